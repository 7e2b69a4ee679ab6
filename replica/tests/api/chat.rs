//! Chats, told at once.

use serde_json::{Value, json};

use crate::support::Replica;

#[test]
fn a_chat_is_answered_with_exact_usage() {
    let replica = Replica::start(&[]);
    let reply = replica.chat("[[say:Hello, world.]]", json!({}));
    assert_eq!(reply.status, 200, "{}", reply.text());
    let body = reply.json();
    let choice = &body["choices"][0];
    assert_eq!(body["object"], "chat.completion");
    assert_eq!(body["model"], "fake");
    assert_eq!(choice["message"], json!({"role": "assistant", "content": "Hello, world.", "refusal": null}));
    assert_eq!(choice["finish_reason"], "stop");
    // 13 bytes and the token that ends the answer.
    assert_eq!(body["usage"]["completion_tokens"], 14);
    let messages = json!({"messages": [{"role": "user", "content": "[[say:Hello, world.]]"}]});
    let counted = replica.post("/tokenize", &messages).json();
    assert_eq!(body["usage"]["prompt_tokens"], counted["count"]);
    assert!(reply.headers["server-timing"].starts_with("replica_queue;dur="), "{:?}", reply.headers);
}

// U049
#[test]
fn chat_and_tokenize_see_the_same_tokens() {
    let replica = Replica::start(&["--max-model-len", "8192"]);
    for text in ["🧑‍🚀 e\u{301} שלום\u{0}x", &"a".repeat(4000)] {
        let messages = json!([{"role": "user", "content": text}]);
        let counted = replica.post("/tokenize", &json!({"messages": messages})).json();
        let answered =
            replica.post("/v1/chat/completions", &json!({"messages": messages, "max_tokens": 1})).json();
        assert_eq!(answered["usage"]["prompt_tokens"], counted["count"]);
        let ids = counted["tokens"].clone();
        let text_again = replica.post("/detokenize", &json!({"tokens": ids})).json();
        assert_eq!(text_again["prompt"], format!("<|user|>{text}<|end|><|assistant|>"));
    }
    // One line of a million letters is no hang: both know at once that it is too long.
    let line = json!({"messages": [{"role": "user", "content": "a".repeat(1 << 20)}]});
    for path in ["/v1/chat/completions", "/tokenize"] {
        let reply = replica.post(path, &line);
        assert_eq!((reply.status, reply.code()), (400, json!("context_length_exceeded")), "{path}");
    }
    // JSON's escape of half a character is no text: both say so.
    let half = br#"{"messages":[{"role":"user","content":"\ud800"}]}"#;
    for path in ["/v1/chat/completions", "/tokenize"] {
        assert_eq!(replica.request("POST", path, &[], half).status, 400);
    }
}

// U015
#[test]
fn text_parts_read_as_the_joined_string() {
    let replica = Replica::start(&[]);
    let answer = |content: Value| {
        let messages = json!([{"role": "system", "content": content}, {"role": "tool", "content": content}, {"role": "user", "content": content}]);
        let body = replica
            .post("/v1/chat/completions", &json!({"messages": messages, "temperature": 0, "max_tokens": 8}));
        let body = body.json();
        (body["usage"]["prompt_tokens"].clone(), body["choices"][0]["message"]["content"].clone())
    };
    let part = |text: &str| json!({"type": "text", "text": text});
    let whole = answer(json!("one two three"));
    assert_eq!(answer(json!([part("one two three")])), whole);
    assert_eq!(answer(json!([part("one "), part("two "), part("three")])), whole);
}

// U016
#[test]
fn tool_calls_without_content_are_one_prompt_in_all_forms() {
    let replica = Replica::start(&[]);
    let call = json!([{"id": "c1", "type": "function", "function": {"name": "f", "arguments": "{}"}}]);
    let forms = [
        json!({"role": "assistant", "content": null, "tool_calls": call}),
        json!({"role": "assistant", "content": "", "tool_calls": call}),
        json!({"role": "assistant", "tool_calls": call}),
    ];
    let counts = forms.map(|form| {
        let messages = json!([{"role": "user", "content": "x"}, form, {"role": "tool", "tool_call_id": "c1", "content": "42"}]);
        let reply = replica.post("/v1/chat/completions", &json!({"messages": messages, "max_tokens": 1}));
        assert_eq!(reply.status, 200, "{}", reply.text());
        reply.json()["usage"]["prompt_tokens"].clone()
    });
    assert!(counts.iter().all(|count| *count == counts[0]), "{counts:?}");
}

// U018
#[test]
fn unknown_fields_are_ignored() {
    let replica = Replica::start(&[]);
    let messages = json!([{"role": "user", "content": "[[say:ok]]", "mood": "good"}]);
    let reply =
        replica.post("/v1/chat/completions", &json!({"messages": messages, "temprature": {}, "store": true}));
    assert_eq!((reply.status, &reply.json()["choices"][0]["message"]["content"]), (200, &json!("ok")));
    assert_eq!(replica.complete("[[say:ok]]", json!({"frobnicate": [1]})).status, 200);
}

// U081
#[test]
fn every_name_works_on_every_route_and_is_told_back() {
    let replica = Replica::start(&["--served-model-name", "org/main", "short"]);
    for name in ["org/main", "short"] {
        let whole = replica.chat("[[say:x]]", json!({"model": name}));
        assert_eq!(whole.json()["model"], name);
        let stream = replica.chat("[[say:x]]", json!({"model": name, "stream": true}));
        let first: Value = serde_json::from_str(&stream.events()[0]).unwrap();
        assert_eq!(first["model"], name);
        assert_eq!(replica.complete("[[say:x]]", json!({"model": name})).json()["model"], name);
        assert_eq!(replica.post("/tokenize", &json!({"model": name, "prompt": "x"})).status, 200);
        assert_eq!(replica.post("/detokenize", &json!({"model": name, "tokens": [1]})).status, 200);
        for path in ["/v1/responses", "/v1/embeddings"] {
            let reply = replica.post(path, &json!({"model": name, "input": "[[say:x]]"}));
            assert_eq!(reply.json()["model"], name, "{path}");
        }
        assert_eq!(replica.get(&format!("/v1/models/{name}")).json()["id"], name);
    }
    assert_eq!(replica.get("/v1/models/org%2Fmain").json()["id"], "org/main");
    let listed = replica.get("/v1/models").json();
    assert_eq!(listed["data"].as_array().unwrap().len(), 2);
    assert_eq!(listed["data"][0]["max_model_len"], 8192);
    for (path, field) in [
        ("/v1/completions", "prompt"),
        ("/v1/responses", "input"),
        ("/v1/embeddings", "input"),
        ("/tokenize", "prompt"),
    ] {
        let unknown = replica.post(path, &json!({"model": "fake", field: "x"}));
        assert_eq!((unknown.status, unknown.code()), (404, json!("model_not_found")), "{path}");
    }
    let unknown = replica.chat("x", json!({"model": "fake"}));
    assert_eq!((unknown.status, unknown.code()), (404, json!("model_not_found")));
}

#[test]
fn choices_of_one_request_differ_and_a_seed_repeats_them() {
    let replica = Replica::start(&[]);
    let texts = |seed: u64| {
        let extra = json!({"n": 3, "temperature": 1.5, "seed": seed, "max_tokens": 24});
        let body = replica.chat("tell", extra).json();
        let choices = body["choices"].as_array().unwrap().clone();
        assert_eq!(body["usage"]["completion_tokens"], 72);
        let indices: Vec<_> = choices.iter().map(|choice| choice["index"].as_u64().unwrap()).collect();
        assert_eq!(indices, [0, 1, 2]);
        choices
            .iter()
            .map(|choice| choice["message"]["content"].as_str().unwrap().to_owned())
            .collect::<Vec<_>>()
    };
    let (first, again, other) = (texts(7), texts(7), texts(1 << 40));
    assert_eq!(first, again);
    assert_ne!(first, other);
    assert_ne!(first[0], first[1]);
    // One choice alone is the first of several.
    let alone = replica.chat("tell", json!({"temperature": 1.5, "seed": 7, "max_tokens": 24})).json();
    assert_eq!(alone["choices"][0]["message"]["content"], first[0]);
}

#[test]
fn logprobs_tell_each_token_and_the_best() {
    let replica = Replica::start(&[]);
    let body = replica.chat("[[say:hé]]", json!({"logprobs": true, "top_logprobs": 3})).json();
    let content = body["choices"][0]["logprobs"]["content"].as_array().unwrap();
    // A byte is a token of this model; é is two.
    assert_eq!(content.len(), 3);
    assert_eq!(content[0]["token"], "h");
    assert_eq!(content[0]["bytes"], json!([104]));
    assert_eq!(content[1]["bytes"], json!([0xc3]));
    for token in content {
        let top = token["top_logprobs"].as_array().unwrap();
        assert_eq!(top.len(), 3);
        assert_eq!(top[0]["logprob"], token["logprob"]);
    }
}
