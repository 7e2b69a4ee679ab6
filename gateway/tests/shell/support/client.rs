//! A client on a plain socket: it sends what it is told, and shows what came byte for byte.

use std::net::SocketAddr;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// One whole answer.
#[derive(Clone, Debug, Default)]
pub struct Answer {
    pub status: u16,
    pub headers: Vec<(String, String)>,
    pub body: Vec<u8>,
    /// Whether the body ended as its framing says.
    pub is_whole: bool,
}

impl Answer {
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(key, _)| key == name).map(|(_, value)| value.as_str())
    }

    pub fn headers_named(&self, name: &str) -> usize {
        self.headers.iter().filter(|(key, _)| key == name).count()
    }

    pub fn text(&self) -> String {
        String::from_utf8(self.body.clone()).unwrap()
    }

    pub fn json(&self) -> serde_json::Value {
        serde_json::from_slice(&self.body).unwrap_or_else(|_| panic!("no JSON: {self:?}"))
    }

    /// The code of an error in OpenAI's shape.
    pub fn code(&self) -> String {
        let error = &self.json()["error"];
        assert!(error["message"].is_string() && error["type"].is_string(), "{error}");
        error["code"].as_str().unwrap_or("").to_owned()
    }
}

/// One connection.
pub struct Client {
    pub stream: TcpStream,
    buffer: Vec<u8>,
}

impl Client {
    pub async fn connect(to: SocketAddr) -> Self {
        Self { stream: TcpStream::connect(to).await.unwrap(), buffer: Vec::new() }
    }

    pub async fn send(&mut self, bytes: impl AsRef<[u8]>) {
        self.stream.write_all(bytes.as_ref()).await.unwrap();
    }

    /// Sends a request with a body of known length.
    pub async fn ask(&mut self, method: &str, path: &str, headers: &str, body: &[u8]) {
        let length = body.len();
        let head =
            format!("{method} {path} HTTP/1.1\r\nhost: test\r\n{headers}content-length: {length}\r\n\r\n");
        self.send([head.as_bytes(), body].concat()).await;
    }

    /// Reads until `pattern` has come; everything up to its end.
    pub async fn read_until(&mut self, pattern: &str) -> String {
        loop {
            let text = String::from_utf8_lossy(&self.buffer).into_owned();
            if let Some(at) = text.find(pattern) {
                let end = at + pattern.len();
                self.buffer.drain(..end);
                return text[..end].to_owned();
            }
            let read = tokio::time::timeout(super::PATIENCE, self.stream.read_buf(&mut self.buffer)).await;
            assert!(read.expect("in time").unwrap() > 0, "ended before {pattern:?}: {text}");
        }
    }

    /// Whether the other side closes without another byte.
    pub async fn is_closed(&mut self) -> bool {
        let read = tokio::time::timeout(super::PATIENCE, self.stream.read_buf(&mut self.buffer)).await;
        read.is_ok_and(|read| read.unwrap_or(0) == 0)
    }

    /// Reads one answer; `None` when the connection ends before one begins.
    pub async fn answer(&mut self) -> Option<Answer> {
        self.answer_to("GET").await
    }

    pub async fn answer_to(&mut self, method: &str) -> Option<Answer> {
        tokio::time::timeout(super::PATIENCE, self.read_answer(method)).await.expect("an answer in time")
    }

    async fn read_answer(&mut self, method: &str) -> Option<Answer> {
        let head = loop {
            if let Some(end) = self.buffer.windows(4).position(|window| window == b"\r\n\r\n") {
                break self.buffer.drain(..end + 4).collect::<Vec<_>>();
            }
            if self.stream.read_buf(&mut self.buffer).await.unwrap_or(0) == 0 {
                return None;
            }
        };
        let text = String::from_utf8(head).unwrap();
        let mut lines = text.trim_end().split("\r\n");
        let status = lines.next().unwrap().split(' ').nth(1).unwrap().parse().unwrap();
        let headers = lines
            .map(|line| line.split_once(':').unwrap())
            .map(|(name, value)| (name.to_ascii_lowercase(), value.trim().to_owned()))
            .collect();
        let mut answer = Answer { status, headers, ..Answer::default() };
        if method != "HEAD" && status >= 200 {
            self.read_body(&mut answer).await;
        }
        Some(answer)
    }

    async fn read_body(&mut self, answer: &mut Answer) {
        if answer.header("transfer-encoding") == Some("chunked") {
            while let Some(size) = self.line().await {
                let size = usize::from_str_radix(size.trim(), 16).unwrap();
                if !self.take(size, answer).await || self.line().await.is_none() {
                    return;
                }
                if size == 0 {
                    answer.is_whole = true;
                    return;
                }
            }
        } else if let Some(length) = answer.header("content-length").map(|length| length.parse().unwrap()) {
            answer.is_whole = self.take(length, answer).await;
        } else {
            while self.stream.read_buf(&mut self.buffer).await.unwrap_or(0) > 0 {}
            answer.body.append(&mut self.buffer);
            answer.is_whole = true;
        }
    }

    async fn take(&mut self, length: usize, answer: &mut Answer) -> bool {
        while self.buffer.len() < length {
            if self.stream.read_buf(&mut self.buffer).await.unwrap_or(0) == 0 {
                answer.body.append(&mut self.buffer);
                return false;
            }
        }
        answer.body.extend(self.buffer.drain(..length));
        true
    }

    async fn line(&mut self) -> Option<String> {
        loop {
            if let Some(end) = self.buffer.windows(2).position(|window| window == b"\r\n") {
                let line = self.buffer.drain(..end + 2).collect::<Vec<_>>();
                return Some(String::from_utf8(line).unwrap().trim().to_owned());
            }
            if self.stream.read_buf(&mut self.buffer).await.unwrap_or(0) == 0 {
                return None;
            }
        }
    }
}

/// One request on its own connection.
pub async fn request(to: SocketAddr, method: &str, path: &str, headers: &str, body: &[u8]) -> Answer {
    let mut client = Client::connect(to).await;
    client.ask(method, path, headers, body).await;
    client.answer_to(method).await.expect("an answer")
}

pub async fn get(to: SocketAddr, path: &str) -> Answer {
    request(to, "GET", path, "", b"").await
}

pub async fn post(to: SocketAddr, path: &str, body: &str) -> Answer {
    request(to, "POST", path, "content-type: application/json\r\n", body.as_bytes()).await
}
