//! What one request leaves in a trace: itself, and below it the wait, prefill and decode of each of its sequences.

use std::time::Instant;

use replica_core::sequence::Timing;
use traces::{Kind, Span, Tracer, name};

use crate::api::record::Origin;
use crate::api::usage::Usage;

/// One request's spans, gathered only where a collector is configured.
#[derive(Clone, Debug)]
pub struct Trace {
    spans: traces::Trace,
    operation: &'static str,
    model: String,
    /// When it was given to the engine: its times count from here.
    understood: Instant,
    /// What it has used in the end.
    pub usage: Usage,
}

impl Trace {
    /// Goes on with a gateway's or a client's trace, or begins one. `None` where they keep none of theirs.
    pub fn begin(traceparent: Option<&str>, operation: &'static str, model: &str) -> Option<Box<Self>> {
        let spans = traces::Trace::begin(traceparent)?;
        let (model, understood) = (model.to_owned(), Instant::now());
        Some(Box::new(Self { spans, operation, model, understood, usage: Usage::default() }))
    }

    /// A sequence is over: what the engine told of it, and when its last token came.
    pub fn add_sequence(&mut self, timing: Timing, last_token: Option<Instant>) {
        let started = self.understood + timing.queue;
        let first_token = started + timing.prefill;
        self.spans.add(Span::new("queue", self.understood, started));
        let prefill = Span::new("prefill", started, first_token)
            .with(name::CACHED_TOKENS, i64::from(timing.cached_tokens));
        self.spans.add(prefill);
        if let Some(last_token) = last_token {
            self.spans.add(Span::new("decode", first_token, last_token));
        }
    }

    /// Sends all of it: the request is over.
    pub fn tell(&self, tracer: &Tracer, origin: &Origin, outcome: &'static str) {
        let span = Span::new(format!("{} {}", self.operation, self.model), origin.arrival, Instant::now())
            .of(Kind::Server)
            .with(name::OPERATION, self.operation)
            .with(name::PROVIDER, name::FLOTILLA)
            .with(name::REQUEST_MODEL, self.model.clone())
            .with(name::RESPONSE_MODEL, self.model.clone())
            .with(name::INPUT_TOKENS, i64::from(self.usage.prompt_tokens))
            .with(name::CACHED_TOKENS, i64::from(self.usage.cached_tokens))
            .with(name::OUTPUT_TOKENS, i64::from(self.usage.answer_tokens))
            .with(name::REQUEST_ID, origin.request_id.clone())
            .with(name::OUTCOME, outcome)
            .failed((outcome == "failed").then_some(outcome));
        tracer.tell(&self.spans, &span);
    }
}
