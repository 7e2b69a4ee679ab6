//! What one request gathers on its way.

use super::continuing;
use super::edit::Edits;
use super::error::{Error, What};
use super::naming::Named;
use super::prompt::{self, Prompt};
use super::route::Api;
use super::stream::Usage;
use crate::gateway::{Admitted, Order};
use crate::telemetry::Trace;
use crate::tenants::Tenant;
use bytes::Bytes;
use gateway_core::queue::Class;
use gateway_core::replica::ModelKey;
use gateway_core::retry::History;
use http::HeaderMap;
use rand::{RngCore, SeedableRng};
use shared::prefix::PieceHash;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Longest id of a client that is kept.
const ID_BYTES_MAX: usize = 128;

/// One request, from its head to its end.
#[derive(Debug)]
pub struct Request {
    /// The client's id, or one of ours.
    pub id: String,
    /// Its words.
    pub api: Api,
    /// Its method.
    pub method: http::Method,
    /// Path and query.
    pub target: String,
    /// When its head had come.
    pub arrived: Instant,
    /// When its body had come.
    pub received: Instant,
    /// When it must be over, at the latest.
    pub deadline: Instant,
    /// The body, as sent to replicas.
    pub body: Bytes,
    /// The model asked for; the resolved one, when it asks for none.
    pub model: String,
    /// What replicas call it.
    pub resolved: String,
    /// Whether a stream of events is wanted.
    pub is_stream: bool,
    /// The stream's usage is asked for by the gateway alone, and kept from the client.
    pub hides_usage: bool,
    /// The prompt as a chain of pieces.
    pub pieces: Arc<[PieceHash]>,
    /// Bytes of prompt text.
    pub prompt_bytes: u32,
    /// The most tokens wanted back.
    pub answer_tokens_max: Option<u32>,
    /// Hash of the session it belongs to.
    pub session: Option<u64>,
    /// How urgent it is.
    pub class: Class,
    /// Whose it is.
    pub tenant: Arc<Tenant>,
    /// The id of the key it came with.
    pub key: Option<Arc<str>>,
    /// Its tenant's leave for it.
    pub leave: Option<Admitted>,
    /// Headers that tell what is left of its tenant's limits.
    pub limits: Vec<(&'static str, String)>,
    /// Attempts and deaths so far.
    pub history: History,
    /// What its timings were.
    pub times: Times,
    /// What it leaves in a trace; absent where none is wanted.
    pub trace: Option<Box<Trace>>,
}

/// Where the time before the first byte went.
#[derive(Clone, Copy, Debug, Default)]
pub struct Times {
    /// Wait in the gateway.
    pub queue: Duration,
    /// Reading for routing, and choosing.
    pub route: Duration,
    /// Attempts that failed.
    pub retry: Duration,
    /// Until the connection stood.
    pub connect: Duration,
    /// From there to the first byte.
    pub first_byte: Duration,
}

impl Request {
    /// Before its body is there.
    pub fn new(id: String, api: Api, method: http::Method, target: String, total: Duration) -> Self {
        let now = Instant::now();
        Self {
            id,
            api,
            method,
            target,
            arrived: now,
            received: now,
            deadline: now + total,
            body: Bytes::new(),
            model: String::new(),
            resolved: String::new(),
            is_stream: false,
            hides_usage: false,
            pieces: Arc::default(),
            prompt_bytes: 0,
            answer_tokens_max: None,
            session: None,
            class: Class::Normal,
            tenant: Tenant::anybody(),
            key: None,
            leave: None,
            limits: Vec::new(),
            history: History::default(),
            times: Times::default(),
            trace: None,
        }
    }

    /// Reads the body for routing, and changes in it what must be: the model's name, where another was asked for, and
    /// the tenant's cache salt.
    ///
    /// # Errors
    ///
    /// When it is JSON by its route and can't be read, or `resolve` knows no model of that name.
    pub fn set_body(
        &mut self,
        body: Bytes,
        is_json: bool,
        resolve: impl FnOnce(&str) -> Result<Named, Error>,
    ) -> Result<ModelKey, Error> {
        let must_be_json = self.api != Api::Other;
        if body.is_empty() && must_be_json {
            return Err(Error::new(What::BadBody, "the request has no body"));
        }
        if !must_be_json && (!is_json || body.is_empty()) {
            self.body = body;
            return self.resolve_as("", resolve);
        }
        let prompt = prompt::read(&body)?;
        self.is_stream = prompt.is_stream;
        self.answer_tokens_max = prompt.answer_tokens_max;
        let asked = prompt.model.as_ref().map_or("", |(name, _)| name.as_ref());
        asked.clone_into(&mut self.model);
        let key = self.resolve_as(asked, resolve)?;
        let mut edits = Edits::default();
        if !asked.is_empty() && asked != self.resolved {
            edits.set(&prompt, "model", &serde_json::Value::from(self.resolved.as_str()).to_string());
        }
        self.ask_for_usage(&prompt, &mut edits);
        let theirs = prompt.value("cache_salt").and_then(super::scan::string).unwrap_or_default();
        let ours = &self.tenant.cache_salt;
        let salt = if ours.is_empty() { theirs.as_ref() } else { ours.as_str() };
        if must_be_json && salt != theirs {
            edits.set(&prompt, "cache_salt", &serde_json::Value::from(salt).to_string());
        }
        let (pieces, prompt_bytes) = prompt.pieces(self.api, &self.resolved, salt);
        self.pieces = pieces.into();
        self.prompt_bytes = prompt_bytes;
        self.body = if edits.is_empty() { body } else { edits.apply(&body) };
        Ok(key)
    }

    /// A tenant's tokens are counted by the usage of its answers: a stream tells it only when asked.
    fn ask_for_usage(&mut self, prompt: &Prompt<'_>, edits: &mut Edits) {
        let is_counted = !self.tenant.name.is_empty() && continuing::is_possible(self);
        if !is_counted || prompt.asks_for_usage() {
            return;
        }
        self.hides_usage = true;
        match prompt.span("stream_options").zip(prompt.value("stream_options")) {
            Some((span, options)) if options.starts_with(b"{") => {
                let inner = prompt::read(options).unwrap_or_default();
                let mut inside = Edits::default();
                inside.set(&inner, "include_usage", "true");
                edits.replace(span, inside.apply(options));
            }
            _ => edits.set(prompt, "stream_options", r#"{"include_usage":true}"#),
        }
    }

    fn resolve_as(
        &mut self,
        asked: &str,
        resolve: impl FnOnce(&str) -> Result<Named, Error>,
    ) -> Result<ModelKey, Error> {
        let Named { name, key } = resolve(asked)?;
        if asked.is_empty() {
            self.model.clone_from(&name);
        }
        self.resolved = name;
        Ok(key)
    }

    /// The name that answers must carry, when the replica's own would be another.
    pub fn renamed(&self) -> Option<&str> {
        (self.model != self.resolved).then_some(self.model.as_str())
    }

    /// What the fleet is asked for; `deadline` is the latest start.
    pub fn order(&self, model: ModelKey, deadline: shared::time::Instant) -> Order {
        Order {
            model,
            tenant: self.tenant.id,
            class: self.class,
            pieces: self.pieces.clone(),
            prompt_bytes: self.prompt_bytes,
            answer_tokens_max: self.answer_tokens_max,
            session: self.session,
            tried: Vec::new(),
            bytes: self.body.len() as u64,
            deadline,
        }
    }

    /// It is over: what it took counts against its tenant's limits. Nothing was taken where nobody answered.
    pub fn settle(&self, has_answer: bool, usage: Usage) {
        let Some(leave) = &self.leave else { return };
        if !has_answer {
            leave.took(0);
        } else if let Some((prompt, answer)) = usage.prompt_tokens.zip(usage.completion_tokens) {
            leave.took(prompt.saturating_add(answer));
        }
    }

    /// The gateway's own share of the time so far: what neither queue, connection nor replica took.
    pub fn overhead(&self) -> Duration {
        let Times { queue, retry, connect, first_byte, .. } = self.times;
        self.received.elapsed().saturating_sub(queue + retry + connect + first_byte)
    }

    /// Path without query.
    pub fn path(&self) -> &str {
        self.target.split('?').next().unwrap_or("")
    }
}

/// The client's id if it is one that can be written anywhere, else a new one.
pub fn id(headers: &HeaderMap) -> String {
    let theirs = headers.get("x-request-id").and_then(|value| value.to_str().ok());
    let is_plain = |id: &&str| {
        (1..=ID_BYTES_MAX).contains(&id.len())
            && id.bytes().all(|byte| byte.is_ascii_graphic() && byte != b'"')
    };
    theirs.filter(is_plain).map_or_else(new_id, str::to_owned)
}

/// Unique among processes by a random start, within one by counting.
fn new_id() -> String {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    static START: std::sync::LazyLock<u64> =
        std::sync::LazyLock::new(|| rand::rngs::SmallRng::from_os_rng().next_u64());
    format!("req-{:016x}{:08x}", *START, NEXT.fetch_add(1, Ordering::Relaxed))
}

/// The shorter of the configured limit and what the client says it waits.
pub fn total(headers: &HeaderMap, configured: Duration) -> Duration {
    let theirs = headers.get("x-request-timeout-ms").and_then(|value| value.to_str().ok()?.parse().ok());
    theirs.map_or(configured, |ms| configured.min(Duration::from_millis(ms)))
}

/// Hash of the first session header that is there.
pub fn session(headers: &HeaderMap, names: &[String]) -> Option<u64> {
    let value = names.iter().find_map(|name| headers.get(name))?;
    // FNV-1a: the same in every gateway.
    let step = |hash: u64, byte: &u8| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
    Some(value.as_bytes().iter().fold(0xcbf2_9ce4_8422_2325, step))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(name: &'static str, value: &str) -> HeaderMap {
        HeaderMap::from_iter([(http::HeaderName::from_static(name), value.parse().unwrap())])
    }

    #[test]
    fn a_clients_id_is_kept_when_it_is_harmless() {
        assert_eq!(id(&headers("x-request-id", "abc-1")), "abc-1");
        assert!(id(&headers("x-request-id", "a\"b")).starts_with("req-"));
        assert!(id(&headers("x-request-id", &"x".repeat(200))).starts_with("req-"));
        assert_ne!(id(&HeaderMap::new()), id(&HeaderMap::new()));
    }

    #[test]
    fn a_client_can_only_shorten_its_time() {
        let hour = Duration::from_hours(1);
        assert_eq!(total(&headers("x-request-timeout-ms", "1500"), hour), Duration::from_millis(1500));
        assert_eq!(total(&headers("x-request-timeout-ms", "99999999999"), hour), hour);
        assert_eq!(total(&headers("x-request-timeout-ms", "soon"), hour), hour);
    }
}
