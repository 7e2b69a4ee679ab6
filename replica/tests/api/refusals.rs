//! Requests that get no answer, and why.

use serde_json::{Value, json};

use crate::support::{Replica, with};

const CHAT: &str = "/v1/chat/completions";

/// Every field of the wrong type or range, with the field the error must name.
fn faults() -> Vec<(Value, &'static str)> {
    vec![
        (json!({"max_tokens": -1}), "max_tokens"),
        (json!({"max_tokens": 0}), "max_tokens"),
        (json!({"max_tokens": "16"}), "max_tokens"),
        (json!({"max_tokens": 1.5}), "max_tokens"),
        (json!({"max_tokens": 1_000_000_000}), "max_tokens"),
        (json!({"max_tokens": 1u64 << 63}), "max_tokens"),
        (json!({"max_tokens": 5, "max_completion_tokens": 6}), "max_tokens"),
        (json!({"temperature": 2.1}), "temperature"),
        (json!({"temperature": "hot"}), "temperature"),
        (json!({"top_p": -0.1}), "top_p"),
        (json!({"top_k": -2}), "top_k"),
        (json!({"min_p": 1.1}), "min_p"),
        (json!({"presence_penalty": 3}), "presence_penalty"),
        (json!({"frequency_penalty": []}), "frequency_penalty"),
        (json!({"repetition_penalty": 0}), "repetition_penalty"),
        (json!({"logit_bias": {"x": 1}}), "logit_bias"),
        (json!({"logit_bias": {"5": 101}}), "logit_bias.5"),
        (json!({"logit_bias": {"100000": 1}}), "logit_bias"),
        (json!({"seed": 0.5}), "seed"),
        (json!({"n": 0}), "n"),
        (json!({"n": 129}), "n"),
        (json!({"best_of": 2}), "best_of"),
        (json!({"stop": 5}), "stop"),
        (json!({"stop": [""]}), "stop"),
        (json!({"stop": ["a", 1]}), "stop[1]"),
        (json!({"stop_token_ids": [300]}), "stop_token_ids[0]"),
        (json!({"min_tokens": 9, "max_tokens": 8}), "min_tokens"),
        (json!({"stream": "yes"}), "stream"),
        (json!({"stream_options": {"include_usage": true}}), "stream_options"),
        (json!({"stream": true, "stream_options": {"include_usage": 1}}), "stream_options.include_usage"),
        (json!({"ignore_eos": 1}), "ignore_eos"),
        (json!({"model": 5}), "model"),
        (json!({"lora_request": {"name": "x"}}), "lora_request"),
    ]
}

// U020, U043
#[test]
fn every_wrong_field_is_named_before_any_event() {
    let replica = Replica::start(&[]);
    for (extra, param) in faults() {
        for stream in [false, true] {
            let mut extra = extra.clone();
            if extra.get("stream").is_none() && param != "stream_options" {
                extra["stream"] = stream.into();
            }
            for reply in [replica.chat("x", extra.clone()), replica.complete("x", extra.clone())] {
                assert_eq!((reply.status, reply.param()), (400, json!(param)), "{extra}: {}", reply.text());
                assert_eq!(reply.json()["error"]["type"], "invalid_request_error");
            }
        }
    }
    assert_eq!(replica.chat("[[say:ok]]", json!({})).status, 200);
}

#[test]
fn fields_of_one_route_are_checked_too() {
    let replica = Replica::start(&[]);
    for (extra, param) in [
        (json!({"logprobs": 5}), "logprobs"),
        (json!({"top_logprobs": 5}), "top_logprobs"),
        (json!({"logprobs": true, "top_logprobs": 21}), "top_logprobs"),
        (json!({"messages": []}), "messages"),
        (json!({"messages": null}), "messages"),
        (
            json!({"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "file:///etc/passwd"}}]}]}),
            "messages[0].content[0].type",
        ),
    ] {
        let reply = replica.chat("x", extra.clone());
        assert_eq!((reply.status, reply.param()), (400, json!(param)), "{extra}: {}", reply.text());
    }
    for (extra, param) in [
        (json!({"prompt": null}), "prompt"),
        (json!({"prompt": ""}), "prompt"),
        (json!({"prompt": []}), "prompt"),
        (json!({"prompt": [300]}), "prompt[0]"),
        (json!({"prompt": ["a", 5]}), "prompt[1]"),
        (json!({"prompt": {"a": 1}}), "prompt"),
        (json!({"logprobs": true}), "logprobs"),
        (json!({"suffix": "x"}), "suffix"),
        (json!({"prompt": vec!["x"; 100], "n": 2}), "prompt"),
    ] {
        let reply = replica.complete("x", extra.clone());
        assert_eq!((reply.status, reply.param()), (400, json!(param)), "{extra}: {}", reply.text());
    }
}

// U019, U020, U022, U043
#[test]
fn what_is_allowed_is_answered() {
    let replica = Replica::start(&["--max-model-len", "256"]);
    let finish = |extra| {
        let body = replica.complete("tell", extra).json();
        (body["usage"]["completion_tokens"].clone(), body["choices"][0]["finish_reason"].clone())
    };
    assert_eq!(finish(json!({"max_completion_tokens": 5})), (json!(5), json!("length")));
    assert_eq!(finish(json!({"max_completion_tokens": 5, "max_tokens": 5})), (json!(5), json!("length")));
    // Without a limit an answer goes on to the end of the context.
    assert_eq!(finish(json!({"max_tokens": null})), (json!(252), json!("length")));
    for (temperature, top_p, top_k) in [(0.0, 0.0, 0), (1e-6, 1e-9, 1), (2.0, 1.0, 262), (2.0, 0.0, -1)] {
        let extra = json!({"temperature": temperature, "top_p": top_p, "top_k": top_k, "max_tokens": 3});
        assert_eq!(finish(extra), (json!(3), json!("length")));
    }
}

// U023, U024, U027
#[test]
fn too_long_is_told_with_all_three_numbers() {
    let replica = Replica::start(&["--max-model-len", "64"]);
    assert_eq!(replica.get("/v1/models").json()["data"][0]["max_model_len"], 64);
    for stream in [false, true] {
        let reply = replica.complete(&"x".repeat(50), json!({"max_tokens": 20, "stream": stream}));
        assert_eq!((reply.status, reply.code()), (400, json!("context_length_exceeded")));
        for number in ["64", "50", "20"] {
            assert!(reply.message().contains(number), "{}", reply.message());
        }
        let reply = replica.complete(&"x".repeat(65), json!({"stream": stream}));
        assert_eq!((reply.status, reply.code()), (400, json!("context_length_exceeded")));
        assert_eq!(reply.headers["x-should-retry"], "false");
    }
    let fits = replica.complete(&"x".repeat(50), json!({"max_tokens": 14})).json();
    assert_eq!(fits["usage"]["prompt_tokens"], 50);
}

// U050
#[test]
fn a_prompt_larger_than_the_pool_is_refused_by_name() {
    // Some blocks, far below the context.
    let replica = Replica::start(&["--kv-cache-memory-bytes", "8000000"]);
    let report = replica.get("/fleet/report").json();
    let pool = report["blocks_total"].as_u64().unwrap() * 32;
    assert_eq!(report["context_tokens_max"], pool);
    let reply = replica.complete(&"x".repeat(pool as usize + 1), json!({}));
    assert_eq!((reply.status, reply.code()), (400, json!("context_length_exceeded")));
    assert!(
        reply.message().contains(&format!("KV pool of this replica holds {pool} tokens")),
        "{}",
        reply.message()
    );
    assert_eq!(replica.complete("[[say:ok]]", json!({})).status, 200);
}

/// A good body of so many bytes.
fn padded(bytes: usize) -> Vec<u8> {
    let frame = json!({"prompt": "[[say:ok]]", "padding": ""}).to_string().len();
    json!({"prompt": "[[say:ok]]", "padding": "x".repeat(bytes - frame)}).to_string().into_bytes()
}

// U029
#[test]
fn without_a_setting_bodies_may_have_32_mib() {
    let replica = Replica::start(&[]);
    for (bytes, status) in [(3_000_000, 200), (20_000_000, 200), (32 << 20, 200), ((32 << 20) + 1, 413)] {
        let reply = replica.request("POST", "/v1/completions", &[], &padded(bytes));
        assert_eq!(reply.status, status, "{bytes}");
    }
}

// U029
#[test]
fn bodies_are_read_up_to_the_limit() {
    let replica = Replica::start(&["--body-bytes-max", "4000000"]);
    let body = padded;
    let reply = replica.request("POST", "/v1/completions", &[], &body(4_000_000));
    assert_eq!(reply.status, 200);
    let reply = replica.request("POST", "/v1/completions", &[], &body(4_000_001));
    assert_eq!((reply.status, reply.code()), (413, json!("request_too_large")));
    // Chunked bodies are counted as they come.
    let mut connection = replica.connect();
    connection
        .write(b"POST /v1/completions HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n")
        .unwrap();
    for _ in 0..5 {
        let chunk = [format!("{:x}\r\n", 1_000_000).as_bytes(), &vec![b'x'; 1_000_000], b"\r\n"].concat();
        if connection.write(&chunk).is_err() {
            break;
        }
    }
    assert_eq!(connection.receive().status, 413);
    assert!(replica.metric("flotilla_replica_refusals_total{reason=\"too_large\"}") >= 2.0);
}

#[test]
fn a_body_that_is_no_json_object_is_malformed() {
    let replica = Replica::start(&[]);
    for body in ["", "{", "[]", "5", "{\"a\":}", "\u{feff}{}"] {
        assert_eq!(replica.request("POST", CHAT, &[], body.as_bytes()).status, 400, "{body}");
    }
    let deep = "[".repeat(100_000);
    assert_eq!(replica.request("POST", CHAT, &[], deep.as_bytes()).status, 400);
    let gzip = replica.request("POST", CHAT, &[("content-encoding", "gzip")], b"{}");
    assert_eq!(gzip.status, 415);
}

// U108
#[test]
fn without_a_key_only_probes_are_answered() {
    let replica = Replica::start(&["--api-key", "first-canary", "second-canary"]);
    for path in ["/health", "/ready", "/ping"] {
        assert_eq!(replica.get(path).status, 200, "{path}");
    }
    let guarded = [
        "/metrics",
        "/v1/models",
        "/v1/models/fake",
        CHAT,
        "/v1/completions",
        "/tokenize",
        "/detokenize",
        "/fleet/report",
        "//v1/models",
        "/V1/models",
        "/v1/../v1/models",
        "/v1/%6dodels",
        "/health/",
        "/",
        "//health",
        "/HEALTH",
        "/health/../metrics",
    ];
    for path in guarded {
        for method in ["GET", "POST", "HEAD", "OPTIONS", "PUT"] {
            let mut connection = replica.connect();
            connection.send(method, path, &[], b"");
            assert_eq!(connection.receive_head().0, 401, "{method} {path}");
        }
    }
    for wrong in ["first-canar", "first-canary2", "", "FIRST-CANARY"] {
        let header = format!("Bearer {wrong}");
        assert_eq!(replica.request("GET", "/v1/models", &[("authorization", &header)], b"").status, 401);
    }
    for right in ["first-canary", "second-canary"] {
        let header = format!("Bearer {right}");
        assert_eq!(replica.request("GET", "/v1/models", &[("authorization", &header)], b"").status, 200);
    }
    // U109
    assert!(!replica.end().contains("canary"));
}

#[test]
fn unknown_routes_and_methods_are_told_apart() {
    let replica = Replica::start(&[]);
    assert_eq!(replica.get("/v2/models").status, 404);
    assert_eq!(replica.get("/v1/models/nobody").code(), json!("model_not_found"));
    assert_eq!(replica.get(CHAT).status, 405);
    assert_eq!(replica.request("POST", "/health", &[], b"").status, 405);
}

// U043: logits that are no numbers end their request alone.
#[test]
fn a_fault_ends_one_request_alone() {
    let replica = Replica::start(&[]);
    let failed = replica.complete("[[nan:0]]", json!({"stream": true}));
    assert_eq!((failed.status, failed.json()["error"]["type"].clone()), (500, json!("server_error")));
    // After the first token there is no status to change: one event tells, and no [DONE] follows.
    let broken = replica.complete("[[nan:3]]", json!({"stream": true}));
    let events = broken.events();
    assert_eq!(broken.status, 200);
    let last: Value = serde_json::from_str(events.last().unwrap()).unwrap();
    assert_eq!(last["error"]["code"], "replica_failed");
    assert!(!events.contains(&"[DONE]".to_owned()));
    assert_eq!(replica.complete("[[say:ok]]", with(json!({}), json!({}))).status, 200);
    replica.settle();
}

#[test]
fn refusals_read_as_one_sentence_each() {
    let replica = Replica::start(&["--max-model-len", "64"]);
    let replies = [
        replica.chat("x", json!({"temperature": "hot"})),
        replica.chat("x", json!({"model": "other"})),
        replica.complete(&"x".repeat(60), json!({"max_tokens": 9})),
        replica.get("/nowhere"),
    ];
    let bodies: Vec<_> = replies.iter().map(crate::support::Reply::json).collect();
    insta::assert_json_snapshot!(bodies);
}
