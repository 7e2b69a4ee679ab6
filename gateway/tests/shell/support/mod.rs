//! What the tests share: a scriptable replica, the gateway as a process, clients that see every byte.

mod client;
mod process;
mod stub;

pub use client::{Answer, Client, get, post, request};
pub use process::Gateway;
pub use stub::{Act, Recorded, Stub};

use std::time::{Duration, Instant};

/// Longest wait for anything that should happen at once; this machine may be busy.
pub const PATIENCE: Duration = Duration::from_mins(1);

/// Polls until `condition` holds.
pub async fn until(what: &str, mut condition: impl AsyncFnMut() -> bool) {
    let began = Instant::now();
    while !condition().await {
        assert!(began.elapsed() < PATIENCE, "not in time: {what}");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

/// A chat request.
pub fn chat(text: &str) -> String {
    serde_json::json!({ "model": "m", "messages": [{ "role": "user", "content": text }] }).to_string()
}

/// A chat request for a stream.
pub fn chat_stream(text: &str) -> String {
    serde_json::json!({ "model": "m", "stream": true, "messages": [{ "role": "user", "content": text }] })
        .to_string()
}

/// One event of a chat stream.
pub fn event(text: &str) -> String {
    let chunk = serde_json::json!({
        "id": "c1", "object": "chat.completion.chunk", "created": 1, "model": "m",
        "choices": [{ "index": 0, "delta": { "content": text }, "finish_reason": null }],
    });
    format!("data: {chunk}\n\n")
}
