//! The last step of a request: what is counted and logged of it.

use super::error::{Error, What};
use super::relay::{End, Relay};
use super::request::Request;
use super::stream::Usage;
use crate::gateway::{Gateway, Peer};
use crate::telemetry::{Line, NO_MODEL, Outcome, Used};
use gateway_core::route::Decision;
use std::sync::Arc;
use std::time::Duration;

/// How one request ended.
#[derive(Debug)]
pub struct Ending {
    /// As clients and operators tell it apart.
    pub outcome: Outcome,
    /// The status the client got; 0 when it left before.
    pub status: u16,
    /// The error's code.
    pub error: Option<&'static str>,
    replica: Option<(String, &'static str)>,
    bytes_out: u64,
    ttft: Option<Duration>,
    tpot: Option<Duration>,
    /// Token counts.
    pub usage: Usage,
    events: u32,
    predicted_tokens: u32,
}

/// The replica that had the request last.
#[derive(Debug)]
pub struct Last {
    /// It.
    pub peer: Arc<Peer>,
    /// Why it was chosen.
    pub decision: Decision,
    /// It went on with another's answer.
    pub is_continued: bool,
}

impl Ending {
    /// An ending without an answer.
    pub fn of(outcome: Outcome) -> Self {
        Self {
            outcome,
            status: 0,
            error: None,
            replica: None,
            bytes_out: 0,
            ttft: None,
            tpot: None,
            usage: Usage::default(),
            events: 0,
            predicted_tokens: 0,
        }
    }

    /// An ending by an error of ours.
    pub fn refused(error: &Error) -> Self {
        let outcome = match error.what {
            What::RateLimited | What::Overloaded => Outcome::Shed,
            What::NoReplica => Outcome::NoReplica,
            what if what.is_clients() => Outcome::ClientError,
            _ => Outcome::Failed,
        };
        Self { status: error.what.status(), error: Some(error.what.code()), ..Self::of(outcome) }
    }

    /// An ending by a replica's answer; the last one's, if it changed replicas.
    pub fn relayed(relay: &Relay, end: End, status: u16, request: &Request, last: &Last) -> Self {
        let outcome = match end {
            End::ClientGone => Outcome::ClientClosed,
            End::Broken | End::Silent | End::OutOfTime => Outcome::Broken,
            End::Whole if status >= 500 => Outcome::Failed,
            End::Whole if status == 429 => Outcome::Shed,
            End::Whole if status >= 400 => Outcome::ClientError,
            End::Whole if last.is_continued => Outcome::Continued,
            End::Whole if request.history.attempts > 1 => Outcome::FailedOver,
            End::Whole => Outcome::Ok,
        };
        let watcher = &relay.watcher;
        let later_tokens = watcher.tokens.saturating_sub(1);
        let span = watcher.first_token.zip(watcher.last_token).map(|(first, last)| last - first);
        Self {
            status,
            replica: Some((last.peer.endpoint.authority.clone(), last.decision.reason.word())),
            bytes_out: relay.bytes_out,
            ttft: watcher.first_token.map(|first| first.saturating_duration_since(request.received)),
            tpot: span.filter(|_| later_tokens > 0).map(|span| span / later_tokens),
            usage: watcher.usage,
            events: watcher.tokens,
            predicted_tokens: last.decision.cached_tokens,
            ..Self::of(outcome)
        }
    }

    /// Counts and logs it.
    pub fn record(&self, gateway: &Gateway, request: &Request) {
        request.settle(self.replica.is_some(), self.usage);
        let metrics = &gateway.metrics;
        let model = if request.model.is_empty() { NO_MODEL } else { request.model.as_str() };
        let total = request.arrived.elapsed();
        let label = gateway.model_label(&request.resolved);
        metrics.requests.with_label_values(&[label, self.outcome.word()]).inc();
        metrics.duration.with_label_values(&[label]).observe(total.as_secs_f64());
        if let Some((replica, _)) = &self.replica {
            metrics.replica_requests.with_label_values(&[replica.as_str(), self.at_replica()]).inc();
            metrics.queue_time.with_label_values(&[label]).observe(request.times.queue.as_secs_f64());
        }
        if let Some(ttft) = self.ttft {
            metrics.ttft.with_label_values(&[label]).observe(ttft.as_secs_f64());
        }
        if let Some(tpot) = self.tpot {
            metrics.tpot.with_label_values(&[label]).observe(tpot.as_secs_f64());
        }
        self.record_tokens(gateway, &request.tenant.name);
        if self.is_good(gateway) {
            metrics.goodput.with_label_values(&[label]).inc();
        }
        let counts = [
            (&metrics.prompt_tokens, self.usage.prompt_tokens),
            (&metrics.completion_tokens, self.usage.completion_tokens),
            (&metrics.cached_reported, self.usage.cached_tokens),
            (&metrics.cached_predicted, self.usage.cached_tokens.map(|_| self.predicted_tokens)),
        ];
        for (counter, count) in counts {
            if let Some(count) = count {
                counter.with_label_values(&[label]).inc_by(u64::from(count));
            }
        }
        self.log(gateway, request, model, total);
        if let Some((tracer, trace)) = gateway.tracer.as_ref().zip(request.trace.as_ref()) {
            trace.tell(tracer, request, self);
        }
    }

    fn record_tokens(&self, gateway: &Gateway, tenant: &str) {
        let metrics = &gateway.metrics;
        let tenant = metrics.tenant(tenant);
        metrics.tenant_requests.with_label_values(&[tenant, self.outcome.word()]).inc();
        let counts = [
            ("prompt", self.usage.prompt_tokens),
            ("cached", self.usage.cached_tokens),
            ("completion", self.usage.completion_tokens),
        ];
        for (kind, count) in counts {
            let count = u64::from(count.unwrap_or(0));
            metrics.tenant_tokens.with_label_values(&[tenant, kind]).inc_by(count);
            if let Some((replica, _)) = &self.replica {
                metrics.replica_tokens.with_label_values(&[replica.as_str(), kind]).inc_by(count);
            }
        }
    }

    /// Whether it counts as goodput.
    fn is_good(&self, gateway: &Gateway) -> bool {
        let is_answered = matches!(self.outcome, Outcome::Ok | Outcome::FailedOver | Outcome::Continued);
        let slo = gateway.config.load().scale.slo;
        is_answered && self.ttft.is_some_and(|ttft| slo.is_met(ttft, self.tpot.unwrap_or_default()))
    }

    fn at_replica(&self) -> &'static str {
        match self.outcome {
            Outcome::Ok | Outcome::FailedOver | Outcome::Continued => "ok",
            Outcome::ClientError => "client_error",
            Outcome::ClientClosed => "client_closed",
            Outcome::Shed | Outcome::NoReplica => "refused",
            Outcome::Failed | Outcome::Broken => "failed",
        }
    }

    fn log(&self, gateway: &Gateway, request: &Request, model: &str, total: Duration) {
        let has_answer = self.replica.is_some();
        let line = Line {
            request_id: &request.id,
            method: request.method.as_str(),
            path: request.path(),
            status: self.status,
            outcome: self.outcome,
            error: self.error,
            tenant: &request.tenant.name,
            model,
            resolved: request.renamed().map(|_| request.resolved.as_str()),
            replica: self.replica.as_ref().map(|(replica, _)| replica.as_str()),
            reason: self.replica.as_ref().map(|(_, reason)| *reason),
            attempts: request.history.attempts,
            bytes_in: request.body.len(),
            bytes_out: self.bytes_out,
            queue: request.times.queue,
            first_byte: has_answer.then_some(request.times.first_byte),
            total,
            usage: self.usage,
        };
        if !gateway.logs.write(&line) {
            gateway.metrics.log_lines_dropped.inc();
        }
        if has_answer && self.status < 400 && gateway.logs.bills() {
            self.bill(gateway, request, model);
        }
    }

    fn bill(&self, gateway: &Gateway, request: &Request, model: &str) {
        let used = Used {
            request_id: &request.id,
            tenant: &request.tenant.name,
            key: request.key.as_deref(),
            model,
            resolved: &request.resolved,
            outcome: self.outcome,
            usage: self.usage,
            prompt_tokens_estimated: gateway.prompt_tokens(&request.resolved, request.prompt_bytes),
            events: self.events,
        };
        if !gateway.logs.bill(&used) {
            gateway.metrics.log_lines_dropped.inc();
            tracing::error!(
                request_id = request.id,
                "a line of the usage log is lost: its writer can't keep up"
            );
        }
    }
}
