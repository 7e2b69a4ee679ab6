//! `flotilla-load stub`: a server whose delays are known, to try load testers with. It writes down when it really
//! wrote; `/truth` tells.

mod answer;

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use bytes::Bytes;
use clap::Args;
use http::{Method, Request, Response, StatusCode};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto;
use serde::Serialize;
use serde_json::{Value, json};
use tokio::net::TcpListener;

use crate::statistics::Spread;

/// Largest body that is read.
const BODY_BYTES_MAX: usize = 64 << 20;

/// What it does.
#[derive(Args, Clone, Copy, Debug)]
pub struct Script {
    /// Time to the first token.
    #[arg(long, default_value_t = 100.0, value_parser = crate::live::command::seconds)]
    pub ttft_ms: f64,
    /// More of it for each request that waits for its first token at the same time.
    #[arg(long, default_value_t = 0.0, value_parser = crate::live::command::seconds)]
    pub prefill_ms: f64,
    /// Between tokens.
    #[arg(long, default_value_t = 20.0, value_parser = crate::live::command::seconds)]
    pub itl_ms: f64,
    /// Events that are held back and written together.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
    pub clump: u32,
    /// Of a hundred requests, so many get an error in the stream,
    #[arg(long, default_value_t = 0)]
    pub errors: u64,
    /// so many a stream without `[DONE]`,
    #[arg(long, default_value_t = 0)]
    pub cuts: u64,
    /// and so many a stream without a word.
    #[arg(long, default_value_t = 0)]
    pub empties: u64,
}

impl Default for Script {
    fn default() -> Self {
        Self { ttft_ms: 100.0, prefill_ms: 0.0, itl_ms: 20.0, clump: 1, errors: 0, cuts: 0, empties: 0 }
    }
}

/// Arguments of `stub`.
#[derive(Args, Debug)]
pub struct Stub {
    /// Where it listens, on 127.0.0.1; 0 takes any.
    #[arg(long, default_value_t = 8009)]
    port: u16,
    #[command(flatten)]
    script: Script,
}

/// What was really done for one request, in seconds since the server began.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Served {
    /// `x-request-id`, where there was one.
    pub id: Option<String>,
    /// When its body was whole.
    pub received: f64,
    /// When its first token was written,
    pub first: f64,
    /// and its last.
    pub last: f64,
    /// Tokens written.
    pub tokens: u32,
}

/// A server of known delays.
#[derive(Debug)]
pub struct Server {
    script: Script,
    origin: Instant,
    asked: AtomicU64,
    prefills: AtomicU64,
    served: Mutex<Vec<Served>>,
}

type Body = UnsyncBoxBody<Bytes, std::io::Error>;

impl Server {
    /// One that does this.
    pub fn new(script: Script) -> Arc<Self> {
        let served = Mutex::default();
        let (asked, prefills) = (AtomicU64::new(0), AtomicU64::new(0));
        Arc::new(Self { script, origin: Instant::now(), asked, prefills, served })
    }

    /// Serves all who connect, for ever.
    pub async fn serve(self: Arc<Self>, listener: TcpListener) {
        while let Ok((stream, _)) = listener.accept().await {
            let server = Arc::clone(&self);
            if stream.set_nodelay(true).is_err() {
                continue;
            }
            tokio::spawn(async move {
                let service = service_fn(move |request| {
                    let server = Arc::clone(&server);
                    async move { Ok::<_, Infallible>(server.answer(request).await) }
                });
                // Cut streams are meant, and a client may go at any time.
                let _ = auto::Builder::new(TokioExecutor::new())
                    .serve_connection(TokioIo::new(stream), service)
                    .await;
            });
        }
    }

    /// What was done so far.
    pub fn served(&self) -> Vec<Served> {
        self.served.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn now(&self) -> f64 {
        self.origin.elapsed().as_secs_f64()
    }

    fn note(&self, served: Served) {
        self.served.lock().unwrap_or_else(PoisonError::into_inner).push(served);
    }

    async fn answer(self: Arc<Self>, request: Request<Incoming>) -> Response<Body> {
        match (request.method(), request.uri().path()) {
            (&Method::POST, "/v1/chat/completions" | "/v1/completions") => self.complete(request).await,
            (&Method::GET, "/v1/models") => {
                plain(&json!({"object": "list", "data": [{"id": "stub", "object": "model", "root": "stub"}]}))
            }
            (&Method::GET, "/health" | "/metrics") => plain(&json!({})),
            (&Method::GET, "/truth") => plain(&self.truth()),
            _ => status(StatusCode::NOT_FOUND),
        }
    }

    /// How long things really took.
    fn truth(&self) -> Value {
        let served = self.served();
        let tpot = |one: &Served| (one.last - one.first) * 1e3 / f64::from(one.tokens.max(2) - 1);
        json!({
            "requests": served.len(),
            "ttft_ms": Spread::of(served.iter().map(|one| (one.first - one.received) * 1e3)),
            "tpot_ms": Spread::of(served.iter().map(tpot)),
            "e2e_ms": Spread::of(served.iter().map(|one| (one.last - one.received) * 1e3)),
        })
    }

    async fn complete(self: Arc<Self>, request: Request<Incoming>) -> Response<Body> {
        let id = request.headers().get("x-request-id").and_then(|id| id.to_str().ok()).map(str::to_owned);
        let Ok(body) = Limited::new(request.into_body(), BODY_BYTES_MAX).collect().await else {
            return status(StatusCode::PAYLOAD_TOO_LARGE);
        };
        let Ok(body) = serde_json::from_slice(&body.to_bytes()) else {
            return status(StatusCode::BAD_REQUEST);
        };
        // 37 and 100 share no factor: any hundred requests have each kind of end as often as it is asked for.
        let place = self.asked.fetch_add(1, Ordering::Relaxed) * 37 % 100;
        let received = self.now();
        answer::stream(
            self,
            &body,
            place,
            Served { id, received, first: received, last: received, tokens: 0 },
        )
    }
}

fn plain(body: &Value) -> Response<Body> {
    let body = Full::new(Bytes::from(body.to_string())).map_err(|never| match never {});
    Response::new(body.boxed_unsync())
}

fn status(status: StatusCode) -> Response<Body> {
    let mut response =
        plain(&json!({"error": {"message": status.as_str(), "type": "invalid_request_error"}}));
    *response.status_mut() = status;
    response
}

fn millis(ms: f64) -> Duration {
    Duration::from_secs_f64(ms / 1e3)
}

/// Runs it until it is killed; the error is for the user.
#[expect(clippy::print_stdout, reason = "says where it listens")]
pub async fn run(args: &Stub) -> Result<(), String> {
    let address = SocketAddr::from(([127, 0, 0, 1], args.port));
    let listener = TcpListener::bind(address).await.map_err(|error| format!("{address}: {error}"))?;
    let address = listener.local_addr().map_err(|error| error.to_string())?;
    println!("listening on http://{address}");
    Server::new(args.script).serve(listener).await;
    Ok(())
}
