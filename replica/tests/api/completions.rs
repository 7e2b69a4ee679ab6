//! Completions, told at once.

use serde_json::json;

use crate::support::{Replica, eventually};

#[test]
fn prompts_come_as_text_as_tokens_and_in_arrays() {
    let replica = Replica::start(&[]);
    let ids = replica.post("/tokenize", &json!({"prompt": "[[say:one]]"})).json()["tokens"].clone();
    let texts = |prompt| {
        let body = replica.post("/v1/completions", &json!({"prompt": prompt, "temperature": 0})).json();
        let choices = body["choices"].as_array().unwrap();
        choices.iter().map(|choice| choice["text"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    assert_eq!(texts(json!("[[say:one]]")), ["one"]);
    assert_eq!(texts(ids.clone()), ["one"]);
    assert_eq!(texts(json!([ids, ids])), ["one", "one"]);
    assert_eq!(texts(json!(["[[say:one]]", "[[say:two]]"])), ["one", "two"]);
}

#[test]
fn usage_of_several_prompts_counts_each_once() {
    let replica = Replica::start(&[]);
    let body = json!({"prompt": ["[[say:ab]]", "[[say:abcd]]"], "n": 2, "temperature": 0});
    let body = replica.post("/v1/completions", &body).json();
    assert_eq!(body["choices"].as_array().unwrap().len(), 4);
    assert_eq!(body["usage"]["prompt_tokens"], 10 + 12);
    assert_eq!(body["usage"]["completion_tokens"], 2 * 3 + 2 * 5);
    assert_eq!(body["usage"]["total_tokens"], 38);
}

#[test]
fn echo_shows_the_prompt_and_its_logprobs() {
    let replica = Replica::start(&[]);
    let body = replica.complete("[[say:ok]]", json!({"echo": true, "logprobs": 2})).json();
    let choice = &body["choices"][0];
    assert_eq!(choice["text"], "[[say:ok]]ok");
    let logprobs = &choice["logprobs"];
    let tokens = logprobs["tokens"].as_array().unwrap();
    assert_eq!(tokens.len(), 12);
    assert_eq!(logprobs["token_logprobs"][0], json!(null));
    assert!(logprobs["token_logprobs"][1].is_number());
    assert_eq!(logprobs["text_offset"][11], 11);
    assert_eq!(
        replica.complete("[[say:ok]]", json!({"echo": true})).json()["choices"][0]["text"],
        "[[say:ok]]ok"
    );
}

#[test]
fn the_cache_is_told_in_usage() {
    let replica = Replica::start(&[]);
    let prompt = "x".repeat(100);
    let cached = || {
        let body = replica.complete(&prompt, json!({"max_tokens": 1})).json();
        body["usage"]["prompt_tokens_details"]["cached_tokens"].as_u64().unwrap()
    };
    assert_eq!(cached(), 0);
    assert_eq!(cached(), 96);
    // Another salt shares nothing.
    let salted = replica.complete(&prompt, json!({"max_tokens": 1, "cache_salt": "other"})).json();
    assert_eq!(salted["usage"]["prompt_tokens_details"]["cached_tokens"], 0);
}

#[test]
fn stop_tokens_and_strings_end_an_answer() {
    let replica = Replica::start(&[]);
    let end = |extra| {
        let body = replica.complete("[[say:abcdef]]", extra).json();
        let choice = &body["choices"][0];
        (choice["text"].as_str().unwrap().to_owned(), choice["finish_reason"].as_str().unwrap().to_owned())
    };
    let stopped = |text: &str| (text.to_owned(), "stop".to_owned());
    assert_eq!(end(json!({"stop": "cd"})), stopped("ab"));
    assert_eq!(end(json!({"stop": ["x", "e"]})), stopped("abcd"));
    assert_eq!(end(json!({"stop": ["cd"], "include_stop_str_in_output": true})), stopped("abcd"));
    assert_eq!(end(json!({"stop_token_ids": [100]})), stopped("abc"));
    assert_eq!(end(json!({"stop": ["efg"]})), stopped("abcdef"));
    assert_eq!(end(json!({"max_tokens": 3})), ("abc".to_owned(), "length".to_owned()));
    let ignoring = end(json!({"ignore_eos": true, "max_tokens": 20}));
    assert_eq!(ignoring.1, "length");
}

// U048
#[test]
fn every_end_that_any_file_of_the_model_names_ends_an_answer() {
    let folder = tempfile::tempdir().unwrap();
    let tiny = std::path::Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/reference/tiny/llama"));
    for file in ["config.json", "model.safetensors", "tokenizer.json"] {
        std::fs::copy(tiny.join(file), folder.path().join(file)).unwrap();
    }
    // config.json names 257.
    std::fs::write(folder.path().join("generation_config.json"), "{\"eos_token_id\": [259, 100]}").unwrap();
    let replica = Replica::start_loading(folder.path().to_str().unwrap(), &[]);
    eventually("ready", || replica.get("/ready").status == 200);
    let forced = |token: u32| {
        let extra = json!({"logit_bias": {token.to_string(): 100}, "max_tokens": 5});
        let body = replica.complete("ab", extra).json();
        let choice = &body["choices"][0];
        let text = choice["text"].as_str().unwrap().to_owned();
        (text, choice["finish_reason"].clone(), body["usage"]["completion_tokens"].clone())
    };
    for end in [257, 259, 100] {
        assert_eq!(forced(end), (String::new(), json!("stop"), json!(1)), "{end}");
    }
    assert_eq!(forced(101), ("eeeee".to_owned(), json!("length"), json!(5)));
}
