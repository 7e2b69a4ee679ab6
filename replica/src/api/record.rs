//! A generation request's place in the books: counted while it runs, counted and logged once when it ends.

use std::sync::Arc;
use std::time::Instant;

use super::app::App;
use super::usage::Usage;
use crate::telemetry::trace::Trace;

/// What the log and the engine know a request by.
#[derive(Clone, Debug)]
pub struct Origin {
    /// The client's id for it, or ours.
    pub request_id: String,
    /// When it came, for people.
    pub arrival: Instant,
    /// When it came, for the engine.
    pub arrived: shared::time::Instant,
    /// When it is worth nothing any more.
    pub deadline: Option<shared::time::Instant>,
    /// What it leaves in a trace; absent where none is wanted.
    pub trace: Option<Box<Trace>>,
}

/// Held for as long as the request is answered.
#[derive(Debug)]
pub struct Record {
    /// What all requests share.
    pub app: Arc<App>,
    /// Whose it is.
    pub origin: Origin,
    /// How it would end if it ended now.
    pub outcome: &'static str,
}

impl Record {
    /// A request that has been understood; nothing runs for it yet.
    pub fn new(app: &Arc<App>, origin: Origin) -> Self {
        app.metrics.in_flight.inc();
        Self { app: app.clone(), origin, outcome: "refused" }
    }

    /// All of its answer has been made.
    pub fn complete(&mut self, usage: Usage) {
        self.outcome = "completed";
        tracing::info!(
            request_id = self.origin.request_id,
            prompt_tokens = usage.prompt_tokens,
            cached_tokens = usage.cached_tokens,
            answer_tokens = usage.answer_tokens,
            "answered"
        );
    }
}

impl Drop for Record {
    fn drop(&mut self) {
        self.app.metrics.in_flight.dec();
        self.app.metrics.count_request(self.outcome);
        if let Some((tracer, trace)) = self.app.tracer.as_ref().zip(self.origin.trace.take()) {
            trace.tell(tracer, &self.origin, self.outcome);
        }
        if self.outcome == "aborted" {
            tracing::info!(request_id = self.origin.request_id, "client closed the request");
        }
    }
}
