//! Shadow traffic: a copy of some requests goes to another model too, and nobody sees its answers but the metrics.
//!
//! It fills idle capacity only, waits for nothing, and neither delays nor fails the request it is a copy of.

use super::edit::Edits;
use super::exchange::{self, Answer, Outgoing};
use super::headers::{self, Forwarded};
use super::request::Request;
use super::route::Api;
use super::stream::{Lines, Watcher};
use super::{prompt, upstream};
use crate::config::{Models, Timeouts};
use crate::gateway::{Choice, Gateway, Order, Placed};
use bytes::Bytes;
use gateway_core::health::{Outcome, Usage};
use gateway_core::queue::Class;
use std::sync::{Arc, LazyLock};
use std::time::{Duration, Instant};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Kilobytes of bodies that may be under way; a copy counts for some more than it has, so that their number is bounded
/// too.
const KBYTES_MAX: usize = 64 * 1024;
const KBYTES_EACH: usize = 128;

/// What happened to copies, as the metric calls it.
pub const OUTCOMES: [&str; 3] = ["ok", "failed", "skipped"];

static ROOM: LazyLock<Arc<Semaphore>> = LazyLock::new(|| Arc::new(Semaphore::new(KBYTES_MAX)));

/// One copy.
struct Copy {
    api: Api,
    target: String,
    id: String,
    salt: String,
    model: String,
    body: Bytes,
    answer_tokens_max: Option<u32>,
    deadline: Instant,
    timeouts: Timeouts,
}

/// Sends a copy of the request on its way, if its model has a shadow and the lot says so.
pub fn cast(gateway: &Arc<Gateway>, request: &Request, models: &Models, timeouts: &Timeouts) {
    let Some(shadow) = models.shadows.get(&request.resolved) else { return };
    if gateway.lot() >= shadow.share {
        return;
    }
    let kbytes = request.body.len() / 1024 + KBYTES_EACH;
    let Ok(room) = ROOM.clone().try_acquire_many_owned(kbytes.min(KBYTES_MAX) as u32) else {
        return count(gateway, "skipped");
    };
    let copy = Copy {
        api: request.api,
        target: request.target.clone(),
        id: format!("{}-shadow", request.id),
        salt: request.tenant.cache_salt.clone(),
        model: shadow.model.clone(),
        body: request.body.clone(),
        answer_tokens_max: request.answer_tokens_max,
        deadline: request.deadline,
        timeouts: *timeouts,
    };
    tokio::spawn(copy.run(gateway.clone(), room));
}

fn count(gateway: &Gateway, outcome: &str) {
    gateway.metrics.shadows.with_label_values(&[outcome]).inc();
}

impl Copy {
    async fn run(mut self, gateway: Arc<Gateway>, _room: OwnedSemaphorePermit) {
        let placed = self.order(&gateway).and_then(|order| match gateway.place(&order) {
            Ok(Choice::Placed(placed)) => Some(placed),
            // A place in the queue is given up as it is dropped.
            Ok(Choice::Waiting(_)) | Err(_) => None,
        });
        let Some(placed) = placed else { return count(&gateway, "skipped") };
        let left = self.deadline.saturating_duration_since(Instant::now());
        let is_answered = tokio::time::timeout(left, self.send(&gateway, placed)).await.unwrap_or(false);
        count(&gateway, if is_answered { "ok" } else { "failed" });
    }

    /// What the fleet is asked for, and the body under the other model's name.
    fn order(&mut self, gateway: &Gateway) -> Option<Order> {
        let body = self.body.clone();
        let prompt = prompt::read(&body).ok()?;
        let model = gateway.model(&self.model).ok()?;
        let mut edits = Edits::default();
        edits.set(&prompt, "model", &serde_json::Value::from(self.model.as_str()).to_string());
        self.body = edits.apply(&body);
        let (pieces, prompt_bytes) = prompt.pieces(self.api, &self.model, &self.salt);
        Some(Order {
            model,
            tenant: crate::tenants::Tenant::anybody().id,
            class: Class::Batch,
            pieces: pieces.into(),
            prompt_bytes,
            answer_tokens_max: self.answer_tokens_max,
            session: None,
            tried: Vec::new(),
            bytes: self.body.len() as u64,
            deadline: gateway.now(),
        })
    }

    /// Whether the answer came whole.
    async fn send(&self, gateway: &Gateway, mut placed: Placed) -> bool {
        let peer = placed.peer.clone();
        let target = format!("{}{}", peer.endpoint.base, self.target);
        let forwarded = Forwarded {
            method: "POST",
            target: &target,
            host: &peer.endpoint.authority,
            body_bytes: self.body.len(),
            request_id: &self.id,
            replica_key: peer.endpoint.key.as_deref(),
            pass_authorization: false,
            wants_ids: false,
            traceparent: None,
        };
        let json = http::HeaderValue::from_static("application/json");
        let client = http::HeaderMap::from_iter([(http::header::CONTENT_TYPE, json)]);
        let mut head = Vec::with_capacity(512);
        headers::write_head(&mut head, &forwarded, &client);
        let first_byte = self.timeouts.first_byte;
        let outgoing =
            Outgoing { head: &head, body: &self.body, is_head_request: false, first_byte, fresh: false };
        let Ok(answer) = exchange::send(gateway, &peer, outgoing).await else { return false };
        let is_good = answer.head.header.status.is_success();
        let Some((usage, stream)) = watch(answer, &mut placed, self.timeouts.idle).await else {
            return false;
        };
        if let Some(stream) = stream {
            upstream::put_back(peer.id, &peer.endpoint, stream);
        }
        placed.end(if is_good { Outcome::Answered(usage) } else { Outcome::Neutral });
        is_good
    }
}

/// Reads an answer to its end; what it used, and the connection. `None` when it broke off.
async fn watch(
    mut answer: Answer,
    placed: &mut Placed,
    idle: Duration,
) -> Option<(Usage, Option<pingora::protocols::Stream>)> {
    let mut watcher = Watcher::new(answer.head.is_event_stream);
    let mut lines = Lines::default();
    loop {
        let payload = answer.body.payload();
        let whole = if answer.head.is_event_stream { lines.push(payload) } else { payload };
        watcher.see(whole, Instant::now());
        if !payload.is_empty() {
            placed.first_token();
        }
        answer.body.consume();
        if answer.body.is_done() {
            break;
        }
        tokio::time::timeout(idle, answer.body.fill()).await.ok()?.ok()?;
    }
    watcher.end();
    let usage = Usage {
        prompt_tokens: watcher.usage.prompt_tokens,
        cached_tokens: watcher.usage.cached_tokens,
        answer_tokens: watcher.usage.completion_tokens,
    };
    Some((usage, answer.body.into_reusable()))
}
