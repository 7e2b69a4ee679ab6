//! One answer of the stub: events at their times, and how it ends.

use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use bytes::Bytes;
use http::{Response, header};
use http_body_util::{BodyExt, StreamBody};
use hyper::body::Frame;
use serde_json::{Value, json};
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep_until};

use super::{Body, Served, Server, millis};

/// Tokens of an answer whose length nobody asked for.
const TOKENS_DEFAULT: u64 = 16;

/// How an answer ends.
#[derive(Clone, Copy, PartialEq, Eq)]
enum End {
    Whole,
    Error,
    Cut,
    Empty,
}

/// The answer to a body; `place` below 100 says how it ends.
pub(super) fn stream(server: Arc<Server>, body: &Value, place: u64, served: Served) -> Response<Body> {
    let script = server.script;
    let end = match place {
        place if place < script.errors => End::Error,
        place if place < script.errors + script.cuts => End::Cut,
        place if place < script.errors + script.cuts + script.empties => End::Empty,
        _ => End::Whole,
    };
    let tokens = body["max_completion_tokens"].as_u64().or(body["max_tokens"].as_u64());
    let tokens = tokens.unwrap_or(TOKENS_DEFAULT).clamp(1, 100_000) as u32;
    let words = body.to_string().split_whitespace().count() as u32;
    let talk = Talk { server, is_chat: body["messages"].is_array(), tokens, prompt_tokens: words, end };
    let (sender, receiver) = mpsc::channel(tokens as usize + 4);
    tokio::spawn(talk.run(sender, served));
    let frames = futures_util::stream::unfold(receiver, |mut receiver| async move {
        receiver.recv().await.map(|frame| (frame, receiver))
    });
    let mut response = Response::new(StreamBody::new(frames).boxed_unsync());
    let kind = header::HeaderValue::from_static("text/event-stream");
    response.headers_mut().insert(header::CONTENT_TYPE, kind);
    response
}

type Sender = mpsc::Sender<Result<Frame<Bytes>, io::Error>>;

struct Talk {
    server: Arc<Server>,
    is_chat: bool,
    tokens: u32,
    prompt_tokens: u32,
    end: End,
}

impl Talk {
    async fn run(self, sender: Sender, mut served: Served) {
        let script = self.server.script;
        let start = Instant::now();
        let at_once = self.server.prefills.fetch_add(1, Ordering::Relaxed);
        let first = start + millis(script.ttft_ms + script.prefill_ms * at_once as f64);
        sleep_until(first).await;
        self.server.prefills.fetch_sub(1, Ordering::Relaxed);
        let mut held = String::new();
        for index in 0..self.tokens {
            sleep_until(first + millis(script.itl_ms * f64::from(index))).await;
            if self.breaks_at(index, &sender).await {
                return;
            }
            held.push_str(&self.event(index + 1));
            let is_full = (index + 1) % script.clump == 0 || index + 1 == self.tokens;
            if is_full {
                served.last = self.server.now();
                served.first = if served.tokens == 0 { served.last } else { served.first };
                served.tokens = index + 1;
                if !send(&sender, std::mem::take(&mut held)).await {
                    return;
                }
            }
        }
        send(&sender, "data: [DONE]\n\n".to_owned()).await;
        self.server.note(served);
    }

    /// Ends badly here, if it is to.
    async fn breaks_at(&self, index: u32, sender: &Sender) -> bool {
        let is_half = index == self.tokens / 2;
        match self.end {
            End::Error if is_half => {
                send(sender, "data: {\"error\":{\"message\":\"as told\",\"code\":500}}\n\n".to_owned()).await
            }
            // The stream ends as it should, but for the last word.
            End::Cut => is_half && index > 0,
            End::Empty => send(sender, "data: [DONE]\n\n".to_owned()).await,
            _ => false,
        }
    }

    fn event(&self, count: u32) -> String {
        let usage = json!({"prompt_tokens": self.prompt_tokens, "completion_tokens": count,
            "total_tokens": self.prompt_tokens + count, "prompt_tokens_details": {"cached_tokens": 0}});
        let reason = if count == self.tokens { json!("length") } else { Value::Null };
        let choice = if self.is_chat {
            json!({"index": 0, "delta": {"content": " word"}, "finish_reason": reason})
        } else {
            json!({"index": 0, "text": " word", "finish_reason": reason})
        };
        let object = if self.is_chat { "chat.completion.chunk" } else { "text_completion" };
        let chunk = json!({"id": "stub", "object": object, "created": 0, "model": "stub", "choices": [choice],
            "usage": usage});
        format!("data: {chunk}\n\n")
    }
}

/// Whether anybody still listens.
async fn send(sender: &Sender, text: String) -> bool {
    sender.send(Ok(Frame::data(Bytes::from(text)))).await.is_ok()
}
