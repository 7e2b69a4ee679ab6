//! Log-probabilities of the prompt, under vLLM's name and in its form.

use serde_json::{Value, json};

use crate::support::{Replica, with};

const PROMPT: &str = "[[say:ok]]";

/// Checks the form: nothing about the first token, then each token's own entry, beside `top` of the best.
fn check(told: &Value, prompt: &[u64], top: usize) {
    let places = told.as_array().unwrap();
    assert_eq!(places.len(), prompt.len());
    assert!(places[0].is_null());
    for (place, token) in places.iter().zip(prompt).skip(1) {
        let entries = place.as_object().unwrap();
        let own = &entries[&token.to_string()];
        let rank = own["rank"].as_u64().unwrap() as usize;
        assert_eq!(entries.len(), if rank <= top { top } else { top + 1 });
        let mut others: Vec<_> = entries.values().collect();
        others.sort_by_key(|entry| entry["rank"].as_u64().unwrap());
        for (entry, expected) in others.iter().zip(1..=top as u64) {
            assert_eq!(entry["rank"], expected);
        }
        for pair in others.windows(2) {
            assert!(pair[0]["logprob"].as_f64().unwrap() >= pair[1]["logprob"].as_f64().unwrap());
        }
        assert!(others.iter().all(|entry| entry["logprob"].as_f64().unwrap() <= 0.0));
        assert_eq!(own["decoded_token"], String::from_utf8_lossy(&[*token as u8]).as_ref());
    }
}

fn bytes(text: &str) -> Vec<u64> {
    text.bytes().map(u64::from).collect()
}

#[test]
fn completions_tell_them_with_every_choice() {
    let replica = Replica::start(&[]);
    for top in [0, 1, 3, 20] {
        let body = replica.complete(PROMPT, json!({"prompt_logprobs": top})).json();
        assert_eq!(body["choices"][0]["text"], "ok");
        assert!(body["choices"][0]["logprobs"].is_null());
        check(&body["choices"][0]["prompt_logprobs"], &bytes(PROMPT), top);
    }
    let body = json!({"prompt": ["ab", PROMPT], "n": 2, "prompt_logprobs": 2, "max_tokens": 1, "seed": 1});
    let body = replica.post("/v1/completions", &body).json();
    for (index, prompt) in [(0, "ab"), (1, "ab"), (2, PROMPT), (3, PROMPT)] {
        check(&body["choices"][index]["prompt_logprobs"], &bytes(prompt), 2);
    }
    // The only token of a prompt has nothing before it.
    let one = replica.complete("x", json!({"prompt_logprobs": 1, "max_tokens": 1})).json();
    assert_eq!(one["choices"][0]["prompt_logprobs"], json!([null]));
    let unasked = replica.complete("x", json!({"prompt_logprobs": null, "max_tokens": 1})).json();
    assert!(unasked["choices"][0].get("prompt_logprobs").is_none());
    replica.settle();
}

#[test]
fn chats_tell_them_once() {
    let replica = Replica::start(&[]);
    let messages = json!([{"role": "user", "content": PROMPT}]);
    let ids = replica.post("/tokenize", &json!({"messages": messages})).json()["tokens"].clone();
    let body = replica.chat(PROMPT, json!({"prompt_logprobs": 2, "n": 2})).json();
    let told = body["prompt_logprobs"].as_array().unwrap();
    assert_eq!(told.len(), ids.as_array().unwrap().len());
    for (place, id) in told.iter().zip(ids.as_array().unwrap()).skip(1) {
        assert!(place[id.to_string()]["rank"].as_u64().unwrap() >= 1, "{place}");
    }
    assert!(body["choices"][1].get("prompt_logprobs").is_none());
}

#[test]
fn an_echo_beside_them_keeps_its_own_count() {
    let replica = Replica::start(&[]);
    let count = |body: &Value, place: usize| {
        let place = &body["choices"][0]["logprobs"]["top_logprobs"][place];
        place.as_object().map_or(0, serde_json::Map::len)
    };
    for (logprobs, top) in [(1, 3), (3, 1)] {
        let asked = json!({"echo": true, "logprobs": logprobs, "prompt_logprobs": top});
        let body = replica.complete(PROMPT, asked).json();
        check(&body["choices"][0]["prompt_logprobs"], &bytes(PROMPT), top);
        assert_eq!((count(&body, 0), count(&body, 1), count(&body, 11)), (0, logprobs, logprobs));
        let alone = replica.complete(PROMPT, json!({"echo": true, "logprobs": logprobs})).json();
        assert_eq!(alone["choices"][0]["logprobs"], body["choices"][0]["logprobs"]);
    }
    let unscored = replica.complete(PROMPT, json!({"echo": true, "prompt_logprobs": 1})).json();
    check(&unscored["choices"][0]["prompt_logprobs"], &bytes(PROMPT), 1);
    assert!(unscored["choices"][0]["logprobs"].is_null());
}

#[test]
fn they_are_the_same_cold_and_warm() {
    let replica = Replica::start(&[]);
    let prompt = "what is said twice ".repeat(8);
    let ask = || replica.complete(&prompt, json!({"prompt_logprobs": 2, "max_tokens": 1})).json();
    let cold = ask()["choices"][0]["prompt_logprobs"].clone();
    assert_eq!(ask()["choices"][0]["prompt_logprobs"], cold);
}

#[test]
fn where_they_cannot_be_told_the_field_is_named() {
    let replica = Replica::start(&[]);
    let begun = json!({"answer_ids": [1], "seed": 1});
    for (path, body) in [
        ("/v1/completions", json!({"prompt": "x", "stream": true})),
        ("/v1/chat/completions", json!({"messages": [{"role": "user", "content": "x"}], "stream": true})),
        ("/v1/completions", json!({"prompt": "x", "flotilla": begun})),
        ("/v1/responses", json!({"input": "x"})),
        ("/v1/embeddings", json!({"input": "x"})),
    ] {
        let reply = replica.post(path, &with(body, json!({"prompt_logprobs": 1})));
        assert_eq!(
            (reply.status, reply.param()),
            (400, json!("prompt_logprobs")),
            "{path}: {}",
            reply.text()
        );
    }
    for wrong in [json!(-1), json!(21), json!("1"), json!(true), json!(0.5)] {
        let reply = replica.complete("x", json!({"prompt_logprobs": wrong}));
        assert_eq!((reply.status, reply.param()), (400, json!("prompt_logprobs")), "{wrong}");
    }
}
