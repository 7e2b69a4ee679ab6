//! Answers that go on where another replica's broke off.

use serde_json::{Value, json};

use crate::support::{Replica, with};

const TEMPLATE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/api/hermes.jinja");

/// Deltas of a stream that a gateway asked for: the text of each event, and the ids it told.
fn told(replica: &Replica, path: &str, body: &Value) -> Vec<(String, Vec<u64>, Option<String>)> {
    let reply = replica.request("POST", path, &[("x-flotilla-continue", "1")], body.to_string().as_bytes());
    assert_eq!(reply.status, 200, "{}", reply.text());
    let events = reply.events();
    assert_eq!(events.last().unwrap(), "[DONE]");
    let chunk = |event: &String| {
        let chunk: Value = serde_json::from_str(event).unwrap();
        let choice = &chunk["choices"][0];
        let text = choice["text"].as_str().or(choice["delta"]["content"].as_str()).unwrap_or_default();
        let calls = choice["delta"]["tool_calls"].as_array().into_iter().flatten();
        let calls: String = calls.map(|call| call["function"]["arguments"].as_str().unwrap()).collect();
        let ids = chunk["flotilla"]["ids"].as_array().unwrap();
        let ids = ids.iter().map(|id| id.as_u64().unwrap()).collect();
        (format!("{text}{calls}"), ids, choice["finish_reason"].as_str().map(ToOwned::to_owned))
    };
    events[..events.len() - 1].iter().map(chunk).collect()
}

/// Breaks the answer to `body` after every event and goes on: the whole must be the same, each time.
fn check(path: &str, body: &Value, arguments: &[&str]) {
    let replica = Replica::start(arguments);
    let other = Replica::start(arguments);
    let body = with(body.clone(), json!({"stream": true, "seed": 11}));
    let unbroken = told(&replica, path, &body);
    let text: String = unbroken.iter().map(|(text, ..)| text.as_str()).collect();
    for broken_after in (1..unbroken.len()).step_by(3) {
        let (before, _) = unbroken.split_at(broken_after);
        let sent: String = before.iter().map(|(text, ..)| text.as_str()).collect();
        let ids: Vec<u64> = before.iter().flat_map(|(_, ids, _)| ids.clone()).collect();
        if ids.is_empty() {
            continue;
        }
        let go_on = with(body.clone(), json!({"flotilla": {"answer_ids": ids, "seed": 11}}));
        let rest = told(&other, path, &go_on);
        let rest_text: String = rest.iter().map(|(text, ..)| text.as_str()).collect();
        assert_eq!(sent + &rest_text, text, "after {broken_after} events");
        assert_eq!(rest.last().unwrap().2, unbroken.last().unwrap().2);
    }
    replica.settle();
    other.settle();
}

#[test]
fn a_drawn_answer_goes_on_with_the_very_same_tokens() {
    let body = json!({"prompt": "tell me", "temperature": 1.3, "max_tokens": 40, "presence_penalty": 0.5});
    check("/v1/completions", &body, &[]);
}

#[test]
fn held_back_text_is_neither_lost_nor_told_twice() {
    let chat = |text: &str, extra| {
        with(json!({"messages": [{"role": "user", "content": format!("[[say:{text}]]")}]}), extra)
    };
    check(
        "/v1/chat/completions",
        &chat("né🦀 漢字 stop sto stop here", json!({"stop": "stop here", "temperature": 0})),
        &[],
    );
}

#[test]
fn an_open_tool_call_goes_on() {
    let call = "<tool_call>{\"name\": \"add\", \"arguments\": {\"a\": 1, \"b\": \"xyz\"}}</tool_call>";
    let body = json!({
        "messages": [{"role": "user", "content": format!("[[say:well {call}]]")}],
        "tools": [{"type": "function", "function": {"name": "add"}}],
        "temperature": 0,
    });
    check("/v1/chat/completions", &body, &["--chat-template", TEMPLATE]);
}

#[test]
fn usage_counts_the_whole_answer_and_no_role_comes_twice() {
    let replica = Replica::start(&[]);
    let ids: Vec<u32> = "Hel".bytes().map(u32::from).collect();
    let messages = json!([{"role": "user", "content": "[[say:Hello]]"}]);
    let body = json!({"messages": messages, "temperature": 0, "stream": true, "stream_options": {"include_usage": true}, "flotilla": {"answer_ids": ids, "seed": 1}});
    let reply = replica.post("/v1/chat/completions", &body);
    assert!(!reply.text().contains("role"));
    let events = reply.events();
    let usage: Value = serde_json::from_str(&events[events.len() - 2]).unwrap();
    assert_eq!(usage["usage"]["completion_tokens"], 6);
}

#[test]
fn a_continuation_that_cannot_be_is_refused_by_name() {
    let replica = Replica::start(&[]);
    for (extra, param) in [
        (json!({"flotilla": 5}), "flotilla"),
        (json!({"flotilla": {"seed": 1}}), "flotilla.answer_ids"),
        (json!({"flotilla": {"answer_ids": [1]}}), "flotilla.seed"),
        (json!({"flotilla": {"answer_ids": [999], "seed": 1}}), "flotilla.answer_ids[0]"),
        (json!({"flotilla": {"answer_ids": [1, 2], "seed": 1}, "max_tokens": 1}), "flotilla.answer_ids"),
        (json!({"flotilla": {"answer_ids": [1], "seed": 1}, "n": 2}), "flotilla"),
    ] {
        let reply = replica.complete("x", extra.clone());
        assert_eq!((reply.status, reply.param()), (400, json!(param)), "{extra}: {}", reply.text());
    }
}

#[test]
fn a_final_message_is_continued_as_text() {
    let replica = Replica::start(&[]);
    let messages =
        json!([{"role": "user", "content": "[[say:Hello]]"}, {"role": "assistant", "content": "Hel"}]);
    let body = json!({"messages": messages, "continue_final_message": true, "add_generation_prompt": false, "temperature": 0});
    let reply = replica.post("/v1/chat/completions", &body);
    assert_eq!(reply.json()["choices"][0]["message"]["content"], "lo", "{}", reply.text());
    for wrong in
        [json!({"add_generation_prompt": true}), json!({"messages": [{"role": "user", "content": "x"}]})]
    {
        let reply = replica.post("/v1/chat/completions", &with(body.clone(), wrong));
        assert_eq!((reply.status, reply.param()), (400, json!("continue_final_message")));
    }
}
