//! Answers in events.

use std::collections::BTreeMap;
use std::thread;

use serde_json::{Value, json};

use crate::support::{Events, Replica, chat_body, with};

const CHAT: &str = "/v1/chat/completions";
const COMPLETIONS: &str = "/v1/completions";
const TEMPLATE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/api/hermes.jinja");

/// Checks every event of a stream against the schema, and gives text and finish reason of each choice.
fn checked(events: &[String], is_chat: bool) -> BTreeMap<u64, (String, String)> {
    assert_eq!(events.iter().filter(|event| *event == "[DONE]").count(), 1);
    assert_eq!(events.last().unwrap(), "[DONE]");
    let chunks: Vec<Value> =
        events[..events.len() - 1].iter().map(|event| serde_json::from_str(event).unwrap()).collect();
    let mut choices = BTreeMap::<u64, (String, String)>::new();
    for chunk in &chunks {
        for constant in ["id", "created", "model", "object"] {
            assert_eq!(chunk[constant], chunks[0][constant]);
        }
        assert!(chunk["id"].is_string() && chunk["created"].is_u64() && chunk["model"].is_string());
        assert_eq!(chunk["object"], if is_chat { "chat.completion.chunk" } else { "text_completion" });
        for choice in chunk["choices"].as_array().expect("choices are always there") {
            let index = choice["index"].as_u64().unwrap();
            let is_first = !choices.contains_key(&index);
            let seen = choices.entry(index).or_default();
            assert_eq!(seen.1, "", "nothing follows the finish reason");
            let text = if is_chat {
                assert_eq!(choice["delta"].get("role").is_some(), is_first);
                choice["delta"].get("content")
            } else {
                Some(&choice["text"])
            };
            seen.0 += text.map_or("", |text| text.as_str().unwrap());
            if let Some(reason) = choice["finish_reason"].as_str() {
                assert!(["stop", "length", "tool_calls", "content_filter"].contains(&reason));
                reason.clone_into(&mut seen.1);
            }
        }
    }
    assert!(choices.values().all(|choice| !choice.1.is_empty()), "{choices:?}");
    choices
}

// U009, U028
#[test]
fn every_event_fits_the_schema() {
    let replica = Replica::start(&[]);
    for n in [1, 2] {
        let extra = json!({"n": n, "stream": true, "max_tokens": 12});
        let chat = replica.chat("say something", extra.clone());
        assert_eq!(checked(&chat.events(), true).len(), n);
        let completion = replica.complete("say something", extra);
        assert_eq!(checked(&completion.events(), false).len(), n);
    }
}

#[test]
fn a_stream_has_the_headers_of_one() {
    let replica = Replica::start(&[]);
    let reply = replica.chat("[[say:x]]", json!({"stream": true}));
    assert_eq!(reply.headers["content-type"], "text/event-stream");
    assert_eq!(reply.headers["cache-control"], "no-cache");
    assert_eq!(reply.headers["x-accel-buffering"], "no");
    assert!(reply.headers["server-timing"].contains("prefill;dur="));
}

// U008
#[test]
fn usage_is_one_more_chunk_and_only_when_asked_for() {
    let replica = Replica::start(&[]);
    let chunks = |extra| {
        let reply = replica.chat("[[say:hey]]", with(json!({"stream": true}), extra));
        let events = reply.events();
        checked(&events, true);
        events[..events.len() - 1]
            .iter()
            .map(|event| serde_json::from_str(event).unwrap())
            .collect::<Vec<Value>>()
    };
    for chunk in chunks(json!({})) {
        assert!(chunk.get("usage").is_none());
        assert_ne!(chunk["choices"], json!([]));
    }
    let told = chunks(json!({"stream_options": {"include_usage": true}}));
    let (last, others) = told.split_last().unwrap();
    assert_eq!((&last["choices"], &last["usage"]["completion_tokens"]), (&json!([]), &json!(4)));
    assert!(others.iter().all(|chunk| chunk["usage"].is_null() && chunk["choices"] != json!([])));
    let counting = chunks(json!({"stream_options": {"include_usage": true, "continuous_usage_stats": true}}));
    assert!(counting.iter().all(|chunk| chunk["usage"]["prompt_tokens"].is_u64()));
}

// U005
#[test]
fn characters_of_several_tokens_arrive_whole() {
    let replica = Replica::start(&[]);
    for text in ["👩‍👩‍👧‍👦!", "🦀", "漢字かな", "naïve café"] {
        let script = format!("[[say:{text}]]");
        let whole = replica.chat(&script, json!({})).json();
        assert_eq!(whole["choices"][0]["message"]["content"], text);
        let events = replica.chat(&script, json!({"stream": true})).events();
        assert_eq!(checked(&events, true)[&0].0, text);
        assert!(events.iter().all(|event| !event.contains('\u{fffd}')));
    }
}

// U031
#[test]
fn stop_strings_over_token_borders_agree_with_the_whole_answer() {
    let replica = Replica::start(&[]);
    for (script, stop, expected) in [
        ("[[say:ABCDEFGHIJ and more]]", "DEFGHIJ", "ABC"),
        ("[[say:ABCDEFGHIx]]", "DEFGHIJ", "ABCDEFGHIx"),
        ("[[say:ABCDEFG]]", "DEFGHIJ", "ABCDEFG"),
    ] {
        let streamed = replica.chat(script, json!({"stop": stop, "stream": true}));
        assert_eq!(checked(&streamed.events(), true)[&0], (expected.to_owned(), "stop".to_owned()));
        let whole = replica.chat(script, json!({"stop": stop})).json();
        assert_eq!(whole["choices"][0]["message"]["content"], expected);
    }
    replica.settle();
}

// U010
#[test]
fn many_streams_each_end_once_and_leave_their_connection_usable() {
    let replica = Replica::start(&["--max-num-seqs", "16", "--chat-template", TEMPLATE]);
    let call = "<tool_call>{\"name\": \"now\"}</tool_call>";
    let tools = json!([{"type": "function", "function": {"name": "now"}}]);
    // Each with the text and the reason it must end with.
    let kinds = [
        ("hello there", json!({"max_tokens": 5}), "hello", "length"),
        ("hello there", json!({"stop": ["lo"]}), "hel", "stop"),
        ("hello there", json!({}), "hello there", "stop"),
        (call, json!({"tools": tools}), "", "tool_calls"),
    ];
    thread::scope(|scope| {
        for worker in 0..32 {
            let (replica, kinds) = (&replica, &kinds);
            scope.spawn(move || {
                let mut connection = replica.connect();
                for turn in 0..16 {
                    let (script, extra, text, reason) = &kinds[(worker + turn) % kinds.len()];
                    let extra = with(json!({"stream": true}), extra.clone());
                    let body = chat_body(&format!("[[say:{script}]]"), extra).to_string();
                    connection.send("POST", CHAT, &[], body.as_bytes());
                    let mut stream = Events::of(connection);
                    let events: Vec<_> = stream.by_ref().collect();
                    assert_eq!(checked(&events, true)[&0], ((*text).to_owned(), (*reason).to_owned()));
                    connection = stream.into_connection();
                }
            });
        }
    });
    replica.settle();
}

#[test]
fn tokens_arrive_as_they_are_made() {
    let replica = Replica::start_slow(20, &[]);
    let body = json!({"prompt": "tell me", "max_tokens": 250, "stream": true});
    let mut stream = replica.stream(COMPLETIONS, &body);
    assert!(stream.next().unwrap().contains("\"text\""));
    // The first event is here long before the last token is made.
    assert_eq!(replica.metric("vllm:num_requests_running"), 1.0);
    assert_eq!(stream.last().unwrap(), "[DONE]");
}

#[test]
fn token_ids_ride_along_when_a_gateway_asks() {
    let replica = Replica::start(&[]);
    let body = json!({"prompt": "[[say:añb]]", "stream": true, "seed": 5, "temperature": 0}).to_string();
    let asked = replica.request("POST", COMPLETIONS, &[("x-flotilla-continue", "1")], body.as_bytes());
    let chunks = asked.events();
    let ids: Vec<Value> = chunks[..chunks.len() - 1]
        .iter()
        .flat_map(|chunk| {
            let chunk: Value = serde_json::from_str(chunk).unwrap();
            assert_eq!(chunk["flotilla"]["seed"], 5);
            chunk["flotilla"]["ids"].as_array().unwrap().clone()
        })
        .collect();
    assert_eq!(ids, [97, 0xc3, 0xb1, 98].map(Value::from));
    let unasked = replica.request("POST", COMPLETIONS, &[], body.as_bytes());
    assert!(!unasked.text().contains("flotilla"));
}
