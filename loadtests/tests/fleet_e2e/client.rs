//! A client that keeps what it saw: status, events, whether the end was proper.

use bytes::Bytes;
use http::{Request, header};
use http_body_util::{BodyExt, Full};
use hyper_util::rt::TokioIo;
use serde_json::{Value, json};
use tokio::net::TcpStream;

use crate::fleet::DEADLINE;

/// An answer, as far as it came.
#[derive(Clone, Debug, Default)]
pub struct Answer {
    /// Its status.
    pub status: u16,
    /// Its body: all of it, or what came before the connection broke.
    pub body: String,
}

impl Answer {
    /// The `data:` fields of a stream.
    pub fn events(&self) -> Vec<&str> {
        self.body.lines().filter_map(|line| line.strip_prefix("data: ")).collect()
    }

    /// How often `[DONE]` came.
    pub fn dones(&self) -> usize {
        self.events().iter().filter(|event| **event == "[DONE]").count()
    }

    /// Whether the stream told of an error in its last event.
    pub fn ends_with_error(&self) -> bool {
        let last = self.events().last().and_then(|event| serde_json::from_str::<Value>(event).ok());
        last.is_some_and(|event| event["error"]["message"].is_string())
    }

    /// The text of all deltas.
    pub fn text(&self) -> String {
        let chunks = self.events().into_iter().filter_map(|event| serde_json::from_str::<Value>(event).ok());
        chunks
            .filter_map(|chunk| Some(chunk["choices"][0]["delta"]["content"].as_str()?.to_owned()))
            .collect()
    }
}

/// A streamed chat. `Err` when nobody answered at all.
pub async fn chat(port: u16, prompt: &str, max_tokens: u32) -> Result<Answer, String> {
    chat_with(port, prompt, max_tokens, json!({})).await
}

/// The same with more fields.
pub async fn chat_with(port: u16, prompt: &str, max_tokens: u32, more: Value) -> Result<Answer, String> {
    chat_as(port, prompt, max_tokens, more, &[]).await
}

/// The same with headers.
pub async fn chat_as(
    port: u16,
    prompt: &str,
    max_tokens: u32,
    more: Value,
    headers: &[(&str, &str)],
) -> Result<Answer, String> {
    let mut body = json!({
        "model": "fake", "stream": true, "max_tokens": max_tokens, "ignore_eos": true, "temperature": 0,
        "messages": [{"role": "user", "content": prompt}],
    });
    body.as_object_mut().unwrap().extend(more.as_object().cloned().unwrap_or_default());
    let request = Request::post("/v1/chat/completions").header(header::CONTENT_TYPE, "application/json");
    let request = headers.iter().fold(request, |request, (name, value)| request.header(*name, *value));
    send(port, request.body(Full::new(Bytes::from(body.to_string()))).unwrap()).await
}

/// A plain `GET`.
pub async fn get(port: u16, path: &str) -> Result<Answer, String> {
    send(port, Request::get(path).body(Full::default()).unwrap()).await
}

/// The sum of one metric's series; `None` when the process or the metric isn't there.
pub async fn metric(port: u16, name: &str) -> Option<f64> {
    let answer = get(port, "/metrics").await.ok()?;
    let series = answer
        .body
        .lines()
        .filter(|line| line.strip_prefix(name).is_some_and(|rest| rest.starts_with(['{', ' '])));
    let values: Vec<f64> = series.filter_map(|line| line.rsplit_once(' ')?.1.parse().ok()).collect();
    if values.is_empty() { None } else { Some(values.iter().sum()) }
}

async fn send(port: u16, mut request: Request<Full<Bytes>>) -> Result<Answer, String> {
    request.headers_mut().insert(header::HOST, "127.0.0.1".parse().unwrap());
    let exchange = async {
        let stream = TcpStream::connect(("127.0.0.1", port)).await.map_err(|error| error.to_string())?;
        let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream))
            .await
            .map_err(|error| error.to_string())?;
        tokio::spawn(connection);
        let answer = sender.send_request(request).await.map_err(|error| error.to_string())?;
        let mut kept = Answer { status: answer.status().as_u16(), body: String::new() };
        let mut body = answer.into_body();
        while let Some(Ok(frame)) = body.frame().await {
            if let Some(bytes) = frame.data_ref() {
                kept.body.push_str(&String::from_utf8_lossy(bytes));
            }
        }
        Ok(kept)
    };
    tokio::time::timeout(DEADLINE, exchange).await.map_err(|_| "no end within the deadline".to_owned())?
}
