//! Tool calls and thoughts, with a template that shows tools as Hermes' does.

use serde_json::{Value, json};

use crate::support::{Replica, with};

const TEMPLATE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/api/hermes.jinja");

fn start() -> Replica {
    Replica::start(&["--chat-template", TEMPLATE])
}

fn tools() -> Value {
    let add = json!({"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"], "additionalProperties": false});
    json!([
        {"type": "function", "function": {"name": "add", "description": "Adds.", "parameters": add}},
        {"type": "function", "function": {"name": "now"}},
    ])
}

/// The message and finish reason of a whole answer, ids left out of calls.
fn whole(replica: &Replica, script: &str, extra: Value) -> (Value, String) {
    let reply = replica.chat(script, with(json!({"tools": tools()}), extra));
    assert_eq!(reply.status, 200, "{}", reply.text());
    let choice = reply.json()["choices"][0].clone();
    let mut message = choice["message"].clone();
    without_ids(&mut message);
    (message, choice["finish_reason"].as_str().unwrap().to_owned())
}

/// The same from a stream, its deltas merged by index as clients do.
fn merged(replica: &Replica, script: &str, extra: Value) -> (Value, String) {
    let reply = replica.chat(script, with(json!({"tools": tools(), "stream": true}), extra));
    let mut message = json!({"role": "assistant", "content": null, "refusal": null});
    let mut finish = String::new();
    for event in reply.events().iter().filter(|event| *event != "[DONE]") {
        let chunk: Value = serde_json::from_str(event).unwrap();
        let choice = &chunk["choices"][0];
        for name in ["content", "reasoning", "reasoning_content"] {
            if let Some(text) = choice["delta"][name].as_str().filter(|text| !text.is_empty()) {
                let before = message[name].as_str().unwrap_or_default().to_owned();
                message[name] = (before + text).into();
            }
        }
        for call in choice["delta"]["tool_calls"].as_array().into_iter().flatten() {
            merge_call(&mut message, call);
        }
        if let Some(reason) = choice["finish_reason"].as_str() {
            reason.clone_into(&mut finish);
        }
    }
    if message["content"].is_null() && message.get("tool_calls").is_none() {
        message["content"] = "".into();
    }
    without_ids(&mut message);
    (message, finish)
}

fn merge_call(message: &mut Value, call: &Value) {
    let index = call["index"].as_u64().unwrap() as usize;
    let calls = message.as_object_mut().unwrap().entry("tool_calls").or_insert_with(|| json!([]));
    let calls = calls.as_array_mut().unwrap();
    if calls.len() == index {
        let mut begun = call.clone();
        begun.as_object_mut().unwrap().remove("index");
        calls.push(begun);
        return;
    }
    let before = calls[index]["function"]["arguments"].as_str().unwrap().to_owned();
    calls[index]["function"]["arguments"] = (before + call["function"]["arguments"].as_str().unwrap()).into();
}

/// Checks that ids are there and all different, then takes them out.
fn without_ids(message: &mut Value) {
    let mut seen = std::collections::BTreeSet::new();
    let calls = message.get_mut("tool_calls").and_then(Value::as_array_mut);
    for call in calls.into_iter().flatten() {
        let id = call.as_object_mut().unwrap().remove("id").unwrap();
        assert!(seen.insert(id.as_str().unwrap().to_owned()) && !id.as_str().unwrap().is_empty());
        assert_eq!(call["type"], "function");
    }
}

// U039, U040, U145
#[test]
fn merged_deltas_equal_the_whole_message() {
    let replica = start();
    let call = |name: &str, arguments: &str| {
        format!("<tool_call>\n{{\"name\": \"{name}\", \"arguments\": {arguments}}}\n</tool_call>")
    };
    let scripts = [
        call("add", "{\"a\": 1}"),
        call("now", "{}"),
        format!("I will.\n{}", call("add", "{\"a\": 12345}")),
        format!("{}\n{}", call("add", "{\"a\": 1}"), call("now", "{}")),
        call("add", "{\"a\": \"x\\\"y\", \"b\": [1, {\"c\": null}]}"),
        call("add", "{ \"a\" : 1 }"),
        "<tool_call>{\"name\": \"now\"}</tool_call>".to_owned(),
        "<tool_call>{\"arguments\": {\"a\": 3}, \"name\": \"add\"}</tool_call>".to_owned(),
        call("add", "{\"a\": \"日本 🦀\"}"),
        format!("{}{}{}", call("now", "{}"), call("now", "{}"), call("now", "{}")),
    ];
    for script in scripts {
        let script = format!("[[say:{script}]]");
        let (message, finish) = whole(&replica, &script, json!({}));
        assert_eq!(finish, "tool_calls", "{message}");
        for call in message["tool_calls"].as_array().unwrap() {
            let arguments = call["function"]["arguments"].as_str().unwrap();
            assert!(serde_json::from_str::<Value>(arguments).unwrap().is_object());
        }
        assert_eq!(merged(&replica, &script, json!({})), (message, finish));
    }
}

// U145
#[test]
fn ids_of_calls_are_different_over_all_choices() {
    let replica = start();
    let call = "<tool_call>{\"name\": \"now\"}</tool_call>";
    let extra = json!({"tools": tools(), "n": 3});
    let body = replica.chat(&format!("[[say:{call}{call}]]"), extra).json();
    let choices = body["choices"].as_array().unwrap().iter();
    let calls = choices.flat_map(|choice| choice["message"]["tool_calls"].as_array().unwrap().clone());
    let ids: std::collections::BTreeSet<_> =
        calls.map(|call| call["id"].as_str().unwrap().to_owned()).collect();
    assert_eq!(ids.len(), 6, "{body}");
    assert!(ids.iter().all(|id| !id.is_empty()));
}

// U038
#[test]
fn however_short_it_is_cut_stream_and_whole_agree_on_the_reason() {
    let replica = start();
    let script = "[[say:<tool_call>{\"name\": \"add\", \"arguments\": {\"a\": 1}}</tool_call>]]";
    for max_tokens in (1..70).step_by(3) {
        let extra = json!({"max_tokens": max_tokens});
        let (message, finish) = whole(&replica, script, extra.clone());
        assert_eq!(merged(&replica, script, extra).1, finish);
        assert!(finish == "length" || finish == "tool_calls", "{finish}");
        for call in message["tool_calls"].as_array().into_iter().flatten() {
            assert!(serde_json::from_str::<Value>(call["function"]["arguments"].as_str().unwrap()).is_ok());
        }
    }
}

#[test]
fn what_is_no_call_is_text() {
    let replica = start();
    for text in [
        "plain",
        "<tool_call>",
        "<tool_call>{\"name\": \"unknown\", \"arguments\": {}}</tool_call>",
        "<tool_call>nonsense",
        "a < b",
    ] {
        let script = format!("[[say:{text}]]");
        let (message, finish) = whole(&replica, &script, json!({}));
        assert_eq!((message["content"].as_str(), finish.as_str()), (Some(text), "stop"));
        assert_eq!(merged(&replica, &script, json!({})), (message, finish));
    }
    // With no tools to call, everything is text.
    let script = "[[say:<tool_call>{\"name\": \"now\"}</tool_call>]]";
    let (message, finish) = whole(&replica, script, json!({"tool_choice": "none"}));
    assert!(message.get("tool_calls").is_none() && finish == "stop");
}

#[test]
fn a_required_or_named_tool_is_called_whatever_the_model_wants() {
    let replica = start();
    let script = "[[say:I would rather talk.]]";
    let named = json!({"tool_choice": {"type": "function", "function": {"name": "add"}}, "max_tokens": 300, "seed": 3});
    let (message, finish) = whole(&replica, "[[say:{\"a\": 42}]]", named.clone());
    assert_eq!(
        (&message["tool_calls"][0]["function"], finish.as_str()),
        (&json!({"name": "add", "arguments": "{\"a\": 42}"}), "tool_calls")
    );
    assert_eq!(merged(&replica, "[[say:{\"a\": 42}]]", named), (message, finish));
    let required = json!({"tool_choice": "required", "max_tokens": 60});
    let (message, _) = whole(&replica, script, required.clone());
    assert_ne!(message["content"], "I would rather talk.");
    let said = "[[say:[{\"name\": \"add\", \"parameters\": {\"a\": 5}}] ]]";
    let (message, finish) = whole(&replica, said, required);
    assert_eq!(
        (&message["tool_calls"][0]["function"]["name"], finish.as_str()),
        (&json!("add"), "tool_calls"),
        "{message}"
    );
}

#[test]
fn one_call_is_the_last_where_parallel_ones_are_off() {
    let replica = start();
    let script =
        "[[say:<tool_call>{\"name\": \"now\"}</tool_call><tool_call>{\"name\": \"now\"}</tool_call>]]";
    let (message, finish) = whole(&replica, script, json!({"parallel_tool_calls": false}));
    assert_eq!((message["tool_calls"].as_array().unwrap().len(), finish.as_str()), (1, "tool_calls"));
    replica.settle();
}

#[test]
fn thoughts_are_told_apart_from_the_answer() {
    let replica = Replica::start(&["--chat-template", TEMPLATE, "--reasoning-parser", "qwen3"]);
    let thinking = json!({"chat_template_kwargs": {"enable_thinking": true}});
    // The prompt may open the thoughts: the model without weights then begins where they do.
    let script = "[[say:<think>hm</think>\n\nyes]]";
    for extra in [json!({}), thinking] {
        let (message, _) = whole(&replica, script, extra.clone());
        assert_eq!((&message["reasoning"], &message["content"]), (&json!("hm"), &json!("yes")));
        assert_eq!(message["reasoning_content"], "hm");
        assert_eq!(merged(&replica, script, extra).0, message);
    }
    let plain = Replica::start(&["--chat-template", TEMPLATE, "--reasoning-parser", "none"]);
    let (message, _) = whole(&plain, "[[say:<think>hm</think>yes]]", json!({}));
    assert_eq!(message["content"], "<think>hm</think>yes");
}

#[test]
fn usage_tells_how_many_tokens_were_thoughts() {
    let replica = Replica::start(&["--chat-template", TEMPLATE, "--reasoning-parser", "qwen3"]);
    let counted = |body: &Value, all: &str, details: &str| {
        (body["usage"][all].clone(), body["usage"][details]["reasoning_tokens"].clone())
    };
    let chat = |replica: &Replica, script: &str, extra| {
        let body = replica.chat(script, extra).json();
        counted(&body, "completion_tokens", "completion_tokens_details")
    };
    // A letter is a token here: the thought's two, and those of the closing marker until it is whole.
    let script = "[[say:<think>hm</think>yes]]";
    assert_eq!(chat(&replica, script, json!({})), (json!(21), json!(9)));
    assert_eq!(chat(&replica, script, json!({"n": 2})), (json!(42), json!(18)));
    // Cut in the middle of them.
    assert_eq!(chat(&replica, script, json!({"max_tokens": 8})), (json!(8), json!(1)));
    assert_eq!(chat(&replica, "[[say:yes]]", json!({})), (json!(4), json!(0)));
    let stream = json!({"stream": true, "stream_options": {"include_usage": true}});
    let events = replica.chat(script, stream).events();
    let last: Value = serde_json::from_str(&events[events.len() - 2]).unwrap();
    assert_eq!(counted(&last, "completion_tokens", "completion_tokens_details"), (json!(21), json!(9)));
    let response = replica.post("/v1/responses", &json!({"input": script, "temperature": 0})).json();
    assert_eq!(counted(&response, "output_tokens", "output_tokens_details"), (json!(21), json!(9)));
    let plain = Replica::start(&["--chat-template", TEMPLATE, "--reasoning-parser", "none"]);
    assert_eq!(chat(&plain, script, json!({})), (json!(21), json!(0)));
}

// U039
#[test]
fn a_model_whose_template_shows_no_tools_refuses_them() {
    let replica = Replica::start(&[]);
    let reply = replica.chat("x", json!({"tools": tools()}));
    assert_eq!((reply.status, reply.param()), (400, json!("tools")));
}

// U145
#[test]
fn odd_ids_of_tool_results_are_taken_or_refused_by_name() {
    let replica = start();
    let call =
        |id: Value| json!({"id": id, "type": "function", "function": {"name": "now", "arguments": "{}"}});
    for (id, answered, expected) in [
        (json!("a"), json!("a"), 200),
        (json!("a"), json!("b"), 200),
        (json!(null), json!(null), 200),
        (json!(5), json!("a"), 400),
        (json!("a"), json!(5), 400),
    ] {
        let messages = json!([
            {"role": "user", "content": "x"},
            {"role": "assistant", "tool_calls": [call(id.clone()), call(id)]},
            {"role": "tool", "tool_call_id": answered, "content": "[[say:ok]]"},
        ]);
        let reply = replica.post("/v1/chat/completions", &json!({"messages": messages, "max_tokens": 4}));
        assert_eq!(reply.status, expected, "{}", reply.text());
    }
}
