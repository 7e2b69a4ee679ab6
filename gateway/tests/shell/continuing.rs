//! A stream whose replica dies goes on at another, and the client sees one answer.

use crate::support::{Act, Client, Gateway, Recorded, Stub, until};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

const TOKENS: usize = 24;

/// The text of token `at`: some need escapes.
fn text(at: usize) -> String {
    [" a", "\n", "\"q\"", " é", "\\", "😀"][at % 6].to_owned() + &at.to_string()
}

fn whole() -> String {
    (0..TOKENS).map(text).collect()
}

/// Random enough, and the same each time.
fn mix(seed: usize) -> usize {
    let mixed = (seed as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (mixed ^ (mixed >> 29)) as usize
}

fn event(id: &str, delta: &serde_json::Value, finish: Option<&str>, private: Option<usize>) -> String {
    let choice = serde_json::json!({ "index": 0, "delta": delta, "finish_reason": finish });
    let mut event = serde_json::json!({ "id": id, "created": id.len(), "model": "m", "choices": [choice] });
    if let Some(at) = private {
        event["flotilla"] = serde_json::json!({ "seed": 77, "ids": [at] });
    }
    format!("data: {event}\n\n")
}

/// A greedy replica of ours: it starts at the token that the request says, and tells ids when asked.
fn ours(request: &Recorded, kill: &AtomicBool) -> Vec<Act> {
    let body: serde_json::Value = serde_json::from_slice(&request.body).unwrap();
    let first = body["flotilla"]["answer_ids"].as_array().map_or(0, Vec::len);
    if first > 0 {
        assert_eq!(body["flotilla"]["seed"], 77);
    }
    let has_ids = !request.header("x-flotilla-continue").is_empty();
    let id = format!("chatcmpl-{}", "x".repeat(request.number % 9 + 1));
    let mut acts = vec![Act::events_head()];
    if first == 0 {
        let role = serde_json::json!({ "role": "assistant", "content": "" });
        acts.push(Act::chunk(&event(&id, &role, None, None)));
    }
    for at in first..TOKENS {
        let delta = serde_json::json!({ "content": text(at) });
        acts.push(Act::chunk(&event(&id, &delta, None, has_ids.then_some(at))));
    }
    acts.push(Act::chunk(&event(&id, &serde_json::json!({}), Some("stop"), None)));
    acts.extend([Act::chunk("data: [DONE]\n\n"), Act::end()]);
    if kill.swap(false, Ordering::SeqCst) {
        cut(&mut acts, mix(request.number));
    }
    acts
}

/// Cuts what is written at a random byte behind the first event.
fn cut(acts: &mut Vec<Act>, random: usize) {
    let mut bytes: Vec<u8> = Vec::new();
    let mut first = 0;
    for (at, act) in acts.iter().enumerate() {
        if let Act::Write(more) = act {
            bytes.extend_from_slice(more);
        }
        if at == 1 {
            first = bytes.len();
        }
    }
    let end = first + random % (bytes.len() - first);
    *acts = vec![Act::Write(bytes[..end].to_vec()), Act::Sleep(Duration::from_millis(2)), Act::Reset];
}

struct Seen {
    text: String,
    ids: Vec<String>,
    raw: String,
}

async fn ask(gateway: &Gateway, path: &str, body: &str) -> Seen {
    let raw = gateway.post(path, body).await.text();
    let mut seen = Seen { text: String::new(), ids: Vec::new(), raw: raw.clone() };
    for data in raw.split("\n\n").filter_map(|event| event.trim().strip_prefix("data: ")) {
        if data == "[DONE]" {
            continue;
        }
        let value: serde_json::Value = serde_json::from_str(data).unwrap_or_else(|_| panic!("{raw}"));
        assert!(value.get("error").is_none(), "{raw}");
        assert!(value.get("flotilla").is_none(), "{raw}");
        let choice = &value["choices"][0];
        let delta = choice["delta"]["content"].as_str().or(choice["text"].as_str());
        seen.text += delta.unwrap_or_default();
        seen.ids.push(format!("{} {}", value["id"], value["created"]));
    }
    seen.ids.dedup();
    seen
}

const BODY: &str =
    r#"{"model":"m","stream":true,"temperature":0,"messages":[{"role":"user","content":"x"}]}"#;
const SETTINGS: [(&str, &str); 2] = [("RETRY__SHARE", "1.0"), ("HEALTH__COOLDOWN_MS", "10")];

#[tokio::test]
async fn two_hundred_deaths_are_two_hundred_whole_answers() {
    let kill = Arc::new(AtomicBool::new(false));
    let script = || {
        let kill = kill.clone();
        move |request: &Recorded| ours(request, &kill)
    };
    let (one, two, three) =
        (Stub::start(script()).await, Stub::start(script()).await, Stub::start(script()).await);
    let gateway = Gateway::ready(&[&one, &two, &three], &SETTINGS).await;
    for round in 0..200 {
        kill.store(true, Ordering::SeqCst);
        let seen = ask(&gateway, "/v1/chat/completions", BODY).await;
        assert!(!kill.load(Ordering::SeqCst), "nobody was killed");
        assert_eq!(seen.text, whole(), "round {round}: {}", seen.raw);
        assert_eq!(seen.ids.len(), 1, "round {round}: {}", seen.raw);
        assert_eq!(seen.raw.matches("[DONE]").count(), 1);
        assert_eq!(seen.raw.matches("\"role\"").count(), 1);
    }
    assert!(gateway.metric("flotilla_gateway_continuations_total{outcome=\"resumed\"}").await > 150.0);
    assert_eq!(gateway.metric("flotilla_gateway_continuations_total{outcome=\"failed\"}").await, 0.0);
    gateway.await_idle().await;
    until("logged", async || gateway.logged("continued") > 150).await;
}

#[tokio::test]
async fn a_stream_of_a_stopped_replica_goes_on_long_before_it_counts_as_idle() {
    // U102: streams may be idle for a minute, but probes tell much sooner that this one won't move again.
    let script = |request: &Recorded| {
        let mut acts = ours(request, &AtomicBool::new(false));
        if request.number == 0 && !request.body.windows(10).any(|window| window == b"answer_ids") {
            acts.truncate(9);
            acts.push(Act::AwaitClose);
        }
        acts
    };
    let (one, two) = (Stub::start(script).await, Stub::start(script).await);
    let settings = [SETTINGS[0], ("PROBE__TIMEOUT_MS", "200"), ("HEALTH__PROBE_FAILURES_MAX", "2")];
    let gateway = Gateway::ready(&[&one, &two], &settings).await;
    let mut client = Client::connect(gateway.public).await;
    client.ask("POST", "/v1/chat/completions", "", BODY.as_bytes()).await;
    client.read_until("a6").await;
    let (stopped, other) = if one.requests() > 0 { (&one, &two) } else { (&two, &one) };
    stopped.stop(true);
    client.read_until("[DONE]").await;
    assert_eq!(other.requests(), 1);
    until("let go of", async || stopped.closed_by_peer() == 1).await;
    stopped.stop(false);
    gateway.await_serving(2).await;
    gateway.await_idle().await;
}

/// vLLM goes on from text: what it gets must be a request it understands.
fn vllm(request: &Recorded, kill: &AtomicBool, is_chat: bool) -> Vec<Act> {
    let body: serde_json::Value = serde_json::from_slice(&request.body).unwrap();
    let (so_far, most) = if is_chat {
        let messages = body["messages"].as_array().unwrap();
        let last = messages.last().unwrap();
        let goes_on = last["role"] == "assistant";
        assert_eq!(body["continue_final_message"] == true, goes_on);
        assert_eq!(body["add_generation_prompt"] == false, goes_on);
        (
            if goes_on { last["content"].as_str().unwrap().to_owned() } else { String::new() },
            &body["max_tokens"],
        )
    } else {
        (body["prompt"].as_str().unwrap().strip_prefix("prompt").unwrap().to_owned(), &body["max_tokens"])
    };
    let first =
        (0..=TOKENS).find(|&at| (0..at).map(text).collect::<String>() == so_far).expect("whole tokens");
    assert_eq!(most.as_u64(), Some((TOKENS - first) as u64));
    let mut acts = vec![Act::events_head()];
    let id = format!("cmpl-{}", "y".repeat(request.number + 1));
    if is_chat {
        acts.push(Act::chunk(&event(
            &id,
            &serde_json::json!({ "role": "assistant", "content": "" }),
            None,
            None,
        )));
    }
    for at in first..TOKENS {
        let delta = serde_json::json!({ "content": text(at) });
        let said = event(&id, &delta, None, None);
        let said = if is_chat {
            said
        } else {
            said.replace("\"delta\":{\"content\":", "\"text\":").replacen('}', "", 1)
        };
        acts.push(Act::chunk(&said));
    }
    let usage = serde_json::json!({ "id": id, "created": 1, "choices": [], "usage": {
        "prompt_tokens": 5 + first, "completion_tokens": TOKENS - first, "total_tokens": 5 + TOKENS } });
    acts.extend([Act::chunk(&format!("data: {usage}\n\n")), Act::chunk("data: [DONE]\n\n"), Act::end()]);
    if kill.swap(false, Ordering::SeqCst) {
        acts.truncate(4 + mix(request.number) % 10);
        acts.extend([Act::Sleep(Duration::from_millis(20)), Act::Reset]);
    }
    acts
}

#[tokio::test]
async fn other_engines_go_on_from_text_with_the_right_usage() {
    for is_chat in [true, false] {
        let kill = Arc::new(AtomicBool::new(true));
        let script = || {
            let kill = kill.clone();
            move |request: &Recorded| vllm(request, &kill, is_chat)
        };
        let (one, two) = (Stub::start(script()).await, Stub::start(script()).await);
        one.be_vllm();
        two.be_vllm();
        let gateway = Gateway::ready(&[&one, &two], &SETTINGS).await;
        let (path, body) = if is_chat {
            (
                "/v1/chat/completions",
                r#"{"model":"m","stream":true,"max_tokens":24,"messages":[{"role":"user","content":"x"}]}"#,
            )
        } else {
            ("/v1/completions", r#"{"model":"m","stream":true,"max_tokens":24,"prompt":"prompt"}"#)
        };
        let seen = ask(&gateway, path, body).await;
        assert_eq!(seen.text, whole(), "{}", seen.raw);
        assert_eq!(seen.ids.len(), 1, "{}", seen.raw);
        let usage =
            format!("\"prompt_tokens\":5,\"completion_tokens\":{TOKENS},\"total_tokens\":{}", 5 + TOKENS);
        assert!(seen.raw.contains(&usage), "{}", seen.raw);
        assert_eq!(one.requests() + two.requests(), 2);
    }
}

#[tokio::test]
async fn what_can_not_go_on_ends_with_an_error() {
    // U013: several answers, another model's replica, and a second death.
    let deaths = Arc::new(AtomicUsize::new(0));
    let script = || {
        let deaths = deaths.clone();
        move |_: &Recorded| {
            deaths.fetch_add(1, Ordering::SeqCst);
            let mut acts = vec![Act::events_head()];
            acts.push(Act::chunk(&event("x", &serde_json::json!({ "content": "a" }), None, Some(0))));
            acts.extend([Act::Sleep(Duration::from_millis(20)), Act::Reset]);
            acts
        }
    };
    let (one, two, three) =
        (Stub::start(script()).await, Stub::start(script()).await, Stub::start(script()).await);
    let gateway = Gateway::ready(&[&one, &two, &three], &SETTINGS).await;
    for (body, expected) in [(BODY, 2), (r#"{"model":"m","stream":true,"n":2,"messages":[]}"#, 1)] {
        deaths.store(0, Ordering::SeqCst);
        let mut client = Client::connect(gateway.public).await;
        client.ask("POST", "/v1/chat/completions", "", body.as_bytes()).await;
        let raw = client.answer().await.unwrap().text();
        assert_eq!(raw.matches("{\"error\":").count(), 1, "{raw}");
        assert!(!raw.contains("[DONE]"), "{raw}");
        assert_eq!(deaths.load(Ordering::SeqCst), expected, "{body}");
    }
    gateway.await_idle().await;
}
