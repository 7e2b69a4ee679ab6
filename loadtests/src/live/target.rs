//! Where requests go, and one request there and back.

use std::time::{Duration, Instant};

use bytes::Bytes;
use http::{HeaderMap, Method, Request, StatusCode, Uri, header};
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::Incoming;
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;

use super::stream::Watch;
use crate::exchange::{Exchange, Failure};

/// Most bytes of a body that is not a stream.
const BODY_BYTES_MAX: usize = 64 << 20;
/// Longest wait for anything but an answer.
const AUXILIARY_DEADLINE: Duration = Duration::from_secs(30);
/// Characters of a server's complaint that are kept.
const COMPLAINT_MAX: usize = 300;

/// An OpenAI endpoint and the connections to it.
#[derive(Clone, Debug)]
pub struct Target {
    base: String,
    path: &'static str,
    key: Option<String>,
    timeout: Duration,
    origin: Instant,
    client: Client<HttpConnector, Full<Bytes>>,
}

impl Target {
    /// One at `base`, `http://host:port` with or without `/v1`. Times count from now.
    pub fn new(
        base: &str,
        path: &'static str,
        key: Option<String>,
        timeout: Duration,
    ) -> Result<Self, String> {
        let base = base.trim_end_matches('/').trim_end_matches("/v1").to_owned();
        let uri: Uri = base.parse().map_err(|error| format!("--url {base}: {error}"))?;
        if uri.scheme_str() != Some("http") || uri.authority().is_none() {
            return Err(format!("--url {base}: give http://HOST:PORT"));
        }
        let mut connector = HttpConnector::new();
        connector.set_nodelay(true);
        let client =
            Client::builder(TokioExecutor::new()).pool_max_idle_per_host(usize::MAX).build(connector);
        Ok(Self { base, path, key, timeout, origin: Instant::now(), client })
    }

    /// The same, with times that count from so much later than now.
    #[must_use]
    pub fn starting_in(&self, wait: Duration) -> Self {
        Self { origin: Instant::now() + wait, ..self.clone() }
    }

    /// Its address.
    pub fn base(&self) -> &str {
        &self.base
    }

    /// When times count from.
    pub fn origin(&self) -> Instant {
        self.origin
    }

    /// Seconds since the run began.
    pub fn now_s(&self) -> f64 {
        let now = Instant::now();
        // The origin may lie ahead.
        now.saturating_duration_since(self.origin).as_secs_f64()
            - self.origin.saturating_duration_since(now).as_secs_f64()
    }

    fn request(&self, method: Method, uri: &str, body: Bytes) -> Result<Request<Full<Bytes>>, String> {
        let mut request = Request::builder().method(method).uri(uri);
        request = request.header(header::CONTENT_TYPE, "application/json");
        if let Some(key) = &self.key {
            request = request.header(header::AUTHORIZATION, format!("Bearer {key}"));
        }
        request.body(Full::new(body)).map_err(|error| error.to_string())
    }

    /// A plain exchange with a path of it or a whole address.
    pub async fn call(&self, method: Method, path: &str, body: Bytes) -> Result<Bytes, String> {
        let uri = if path.starts_with("http") { path.to_owned() } else { format!("{}{path}", self.base) };
        let request = self.request(method, &uri, body)?;
        let exchange = async {
            let answer = self.client.request(request).await.map_err(|error| error.to_string())?;
            let status = answer.status();
            let body = Limited::new(answer.into_body(), BODY_BYTES_MAX).collect().await;
            let body = body.map_err(|error| error.to_string())?.to_bytes();
            if status == StatusCode::OK { Ok(body) } else { Err(format!("status {status}")) }
        };
        let answer = tokio::time::timeout(AUXILIARY_DEADLINE, exchange).await;
        answer.map_err(|_| "no answer in time".to_owned())?.map_err(|error| format!("{uri}: {error}"))
    }

    /// Sends a request that was meant to be sent at `intended_s`; what came of it, and the answer's text.
    pub async fn ask(&self, body: Bytes, session: &str, intended_s: f64) -> (Exchange, String) {
        let mut watch = Watch::default();
        let mut exchange = Exchange { intended_s, sent_s: self.now_s(), ..Exchange::default() };
        let talk = self.talk(body, session, &mut exchange, &mut watch);
        let told = tokio::time::timeout(self.timeout, talk).await;
        let judged = watch.finish(&mut exchange);
        let failure = match told {
            Err(_) => Some(Failure::TimedOut),
            Ok(Ok(())) => judged,
            // What an event said about the break is worth more than the break.
            Ok(Err((Failure::Cut, _))) if judged == Some(Failure::InStream) => judged,
            Ok(Err((failure, why))) => {
                exchange.why = Some(why);
                Some(failure)
            }
        };
        exchange.failure = failure;
        if failure.is_some() {
            exchange.end_s = self.now_s();
        }
        (exchange, watch.text)
    }

    async fn talk(
        &self,
        body: Bytes,
        session: &str,
        exchange: &mut Exchange,
        watch: &mut Watch,
    ) -> Result<(), (Failure, String)> {
        let uri = format!("{}{}", self.base, self.path);
        let mut request =
            self.request(Method::POST, &uri, body).map_err(|why| (Failure::Unreachable, why))?;
        if let Ok(session) = session.parse() {
            request.headers_mut().insert("x-session-affinity", session);
        }
        exchange.sent_s = self.now_s();
        let answer = self.client.request(request).await;
        let answer = answer.map_err(|error| (Failure::Unreachable, reason(&error)))?;
        let (status, headers) = (answer.status(), answer.headers());
        exchange.replica = text(headers, "x-flotilla-replica").map(str::to_owned);
        exchange.queue_ms = headers.get_all("server-timing").iter().find_map(queue_ms);
        let is_stream =
            text(headers, "content-type").is_some_and(|kind| kind.starts_with("text/event-stream"));
        let mut body = answer.into_body();
        if status != StatusCode::OK || !is_stream {
            return Err((failure_of(status), complaint(body).await));
        }
        while let Some(frame) = body.frame().await {
            let frame = frame.map_err(|error| (Failure::Cut, reason(&error)))?;
            if let Some(bytes) = frame.data_ref() {
                watch.feed(bytes, self.now_s(), exchange);
            }
        }
        Ok(())
    }
}

fn failure_of(status: StatusCode) -> Failure {
    match status {
        StatusCode::OK => Failure::Malformed,
        StatusCode::TOO_MANY_REQUESTS | StatusCode::SERVICE_UNAVAILABLE => Failure::Refused,
        _ => Failure::Status,
    }
}

/// The innermost cause.
fn reason(error: &dyn std::error::Error) -> String {
    let mut cause = error;
    while let Some(inner) = cause.source() {
        cause = inner;
    }
    cause.to_string()
}

async fn complaint(body: Incoming) -> String {
    let body = Limited::new(body, BODY_BYTES_MAX).collect().await;
    let text = body.map(|body| String::from_utf8_lossy(&body.to_bytes()).into_owned()).unwrap_or_default();
    text.chars().take(COMPLAINT_MAX).collect()
}

fn text<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a str> {
    headers.get(name)?.to_str().ok()
}

/// The `queue` entry of a `Server-Timing` header.
fn queue_ms(value: &http::HeaderValue) -> Option<f64> {
    let entries = value.to_str().ok()?.split(',');
    let queue = entries.map(str::trim).find_map(|entry| entry.strip_prefix("queue;dur="))?;
    queue.parse().ok()
}
