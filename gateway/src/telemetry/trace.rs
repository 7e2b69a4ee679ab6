//! What one request leaves in a trace: itself, and below it the choice of a replica, each wait in the queue and each
//! attempt, from which the replica's own spans go on.

use super::Outcome;
use crate::gateway::Placed;
use crate::http::headers::TRACEPARENT;
use crate::http::record::Ending;
use crate::http::request::Request;
use crate::http::route::Api;
use http::HeaderMap;
use std::time::Instant;
use traces::{Kind, Span, Tracer, name};

/// One request's spans, gathered only where a collector is configured.
#[derive(Debug)]
pub struct Trace {
    spans: traces::Trace,
    /// The attempt that has not ended.
    attempt: Option<Span>,
}

impl Trace {
    /// Goes on with the client's trace, or begins one. `None` where the client keeps none of its own.
    pub fn begin(headers: &HeaderMap) -> Option<Box<Self>> {
        let theirs = headers.get(TRACEPARENT).and_then(|value| value.to_str().ok());
        traces::Trace::begin(theirs).map(|spans| Box::new(Self { spans, attempt: None }))
    }

    /// A wait in the queue is over.
    pub fn add_wait(&mut self, began: Instant) {
        self.spans.add(Span::new("queue", began, Instant::now()));
    }

    /// An attempt begins; the `traceparent` that its replica goes on from.
    pub fn begin_attempt(&mut self, placed: &Placed) -> String {
        self.end_attempt(None);
        let (place, now) = (self.spans.place(), Instant::now());
        let attempt = Span::new("attempt", now, now)
            .of(Kind::Client)
            .at(place)
            .with(name::REPLICA, placed.peer.endpoint.authority.clone())
            .with(name::REASON, placed.decision.reason.word());
        self.attempt = Some(attempt);
        place.traceparent()
    }

    /// The attempt is over, with an error or none.
    pub fn end_attempt(&mut self, error: Option<&'static str>) {
        if let Some(attempt) = self.attempt.take() {
            self.spans.add(attempt.until(Instant::now()).failed(error));
        }
    }

    /// Sends all of it: the request is over.
    pub fn tell(&self, tracer: &Tracer, request: &Request, ending: &Ending) {
        let now = Instant::now();
        let error = error(ending);
        let mut spans = self.spans.clone();
        if !request.times.route.is_zero() {
            spans.add(Span::new("route", request.received, request.received + request.times.route));
        }
        if let Some(attempt) = &self.attempt {
            spans.add(attempt.clone().until(now).failed(error));
        }
        let count = |count: Option<u32>| count.map(i64::from);
        let operation = operation(request);
        let span = Span::new(format!("{operation} {}", request.model), request.arrived, now)
            .of(Kind::Server)
            .with(name::OPERATION, operation)
            .with(name::PROVIDER, name::FLOTILLA)
            .with(name::REQUEST_MODEL, request.model.clone())
            .with(name::RESPONSE_MODEL, request.resolved.clone())
            .with_some(name::REQUEST_TOKENS_MAX, count(request.answer_tokens_max))
            .with_some(name::INPUT_TOKENS, count(ending.usage.prompt_tokens))
            .with_some(name::CACHED_TOKENS, count(ending.usage.cached_tokens))
            .with_some(name::OUTPUT_TOKENS, count(ending.usage.completion_tokens))
            .with(name::METHOD, request.method.as_str().to_owned())
            .with(name::PATH, request.path().to_owned())
            .with(name::STATUS, i64::from(ending.status))
            .with(name::REQUEST_ID, request.id.clone())
            .with(name::OUTCOME, ending.outcome.word())
            .with(name::TENANT, request.tenant.name.clone())
            .failed(error);
        tracer.tell(&spans, &span);
    }
}

/// What went wrong, if anything did that is not the client's own fault or wish.
fn error(ending: &Ending) -> Option<&'static str> {
    match ending.outcome {
        Outcome::Ok
        | Outcome::FailedOver
        | Outcome::Continued
        | Outcome::ClientError
        | Outcome::ClientClosed => None,
        Outcome::Shed | Outcome::NoReplica | Outcome::Failed | Outcome::Broken => {
            ending.error.or(Some(ending.outcome.word()))
        }
    }
}

/// The operation, in OpenTelemetry's words.
fn operation(request: &Request) -> &'static str {
    match request.api {
        Api::Chat | Api::Responses => "chat",
        Api::Completions => "text_completion",
        Api::Other if request.path() == "/v1/embeddings" => "embeddings",
        Api::Other => "other",
    }
}
