//! One HTTP/1.1 request to a process of ours, with a deadline and a bound on the answer.

use std::time::Duration;

use bytes::Bytes;
use http::{Method, Request, StatusCode, header};
use http_body_util::{BodyExt, Full, Limited};
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;

/// Longest answer that is read.
const ANSWER_BYTES_MAX: usize = 16 << 20;

/// What came back.
#[derive(Debug)]
pub struct Answer {
    /// Its status.
    pub status: StatusCode,
    /// Its body.
    pub body: Bytes,
}

/// Where and how long to ask.
#[derive(Clone, Copy, Debug)]
pub struct Peer<'a> {
    /// `host:port`.
    pub authority: &'a str,
    /// The bearer key, where one is needed.
    pub key: Option<&'a str>,
    /// The most that one request may take.
    pub deadline: Duration,
}

impl Peer<'_> {
    /// `GET` without a body.
    ///
    /// # Errors
    ///
    /// See [`Peer::send`].
    pub async fn get(&self, path: &str) -> Result<Answer, String> {
        self.send(Method::GET, path, Bytes::new()).await
    }

    /// Sends one request on a connection of its own.
    ///
    /// # Errors
    ///
    /// When nobody answers, or not in time: what failed, in one line.
    pub async fn send(&self, method: Method, path: &str, body: Bytes) -> Result<Answer, String> {
        let asked = tokio::time::timeout(self.deadline, self.exchange(method, path, body)).await;
        asked.unwrap_or_else(|_| Err(format!("no answer within {} s", self.deadline.as_secs_f32())))
    }

    async fn exchange(&self, method: Method, path: &str, body: Bytes) -> Result<Answer, String> {
        let stream =
            TcpStream::connect(self.authority).await.map_err(|error| format!("cannot connect: {error}"))?;
        let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream))
            .await
            .map_err(|error| error.to_string())?;
        // It ends with the exchange: both sides of the request live no longer than this call.
        let driver = tokio::spawn(connection);
        let mut request = Request::builder()
            .method(method)
            .uri(path)
            .header(header::HOST, self.authority)
            .header(header::CONNECTION, "close");
        if let Some(key) = self.key {
            request = request.header(header::AUTHORIZATION, format!("Bearer {key}"));
        }
        if !body.is_empty() {
            request = request.header(header::CONTENT_TYPE, "application/json");
        }
        let request = request.body(Full::new(body)).map_err(|error| error.to_string())?;
        let answer = sender.send_request(request).await.map_err(|error| error.to_string())?;
        let status = answer.status();
        let body = Limited::new(answer.into_body(), ANSWER_BYTES_MAX).collect().await;
        driver.abort();
        let body = body.map_err(|error| format!("the answer broke off: {error}"))?.to_bytes();
        Ok(Answer { status, body })
    }
}
