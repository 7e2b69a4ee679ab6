//! Brings an answer to its end: passes it on, and when its replica breaks it off, has another go on with it.

use super::attempts::{Found, Search, Stop, asks_for_ids};
use super::continuing::{self, Continuing};
use super::edit::Edits;
use super::error::{Error, What};
use super::fetch;
use super::record::{Ending, Last};
use super::relay::{self, End, Patience, Relay};
use super::reply;
use super::request::Request;
use super::route::Api;
use super::scan;
use super::session;
use super::transcript::Transcript;
use super::upstream;
use crate::gateway::{Gateway, Order, Placed};
use bytes::Bytes;
use gateway_core::health::{Outcome, Usage};
use gateway_core::replica::Identity;
use gateway_core::retry::{Failure, Verdict};
use pingora::protocols::http::ServerSession;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// Largest answer in one piece that is renamed; embeddings are the largest there are.
const RENAMED_BYTES_MAX: usize = 256 << 20;

/// An answer on its way, whichever replica gives it.
struct Delivery<'a> {
    gateway: &'a Arc<Gateway>,
    session: &'a mut ServerSession,
    request: &'a mut Request,
    order: Order,
    /// Boxed with what was found: a stream under way holds one of each, and not one in every step they pass through.
    relay: Box<Relay>,
    /// The client's body, whatever was sent to replicas.
    original: Bytes,
}

/// Delivers what was found, and records it; whether the connection may carry another request.
pub async fn deliver(
    gateway: &Arc<Gateway>,
    session: &mut ServerSession,
    request: &mut Request,
    found: Box<Found>,
    order: Order,
) -> bool {
    let status = found.answer.head.header.status.as_u16();
    let is_event_stream = found.answer.head.is_event_stream;
    let may_go_on = is_event_stream && status < 400 && continuing::is_possible(request);
    let mut transcript = may_go_on.then(|| Transcript::new(asks_for_ids(request, &found.placed.peer)));
    if let Some(transcript) = transcript.as_mut().filter(|_| request.hides_usage) {
        transcript.hide_usage();
    }
    let needs_done = is_event_stream && matches!(request.api, Api::Chat | Api::Completions);
    let mut relay = Box::new(Relay::new(is_event_stream, needs_done, transcript));
    if let Some(model) = request.renamed() {
        relay.rename(model);
    }
    if is_event_stream {
        let label = gateway.model_label(&request.resolved);
        relay.watcher.gaps = Some(gateway.metrics.itl.with_label_values(&[label]).local());
    }
    let original = request.body.clone();
    let delivery = Delivery { gateway, session, request, order, relay, original };
    delivery.run(found, status).await
}

impl Delivery<'_> {
    async fn run(mut self, found: Box<Found>, status: u16) -> bool {
        let mut found = found;
        let mut is_continued = false;
        loop {
            let last =
                Last { peer: found.placed.peer.clone(), decision: found.placed.decision, is_continued };
            let end = self.pass(&mut found).await;
            if end == End::Whole
                && let Some(stream) = found.answer.body.into_reusable()
            {
                upstream::put_back(last.peer.id, &last.peer.endpoint, stream);
            }
            let next = match end {
                // Boxed, since it is rare and large.
                End::Broken | End::Silent => Box::pin(self.go_on(found.placed, end)).await,
                _ => {
                    found.placed.end(self.outcome(end, status));
                    None
                }
            };
            match next {
                Some(Ok(next)) => {
                    is_continued = true;
                    found = next;
                }
                Some(Err(other)) => return self.record(other, status, &last).await,
                None => return self.record(end, status, &last).await,
            }
        }
    }

    async fn pass(&mut self, found: &mut Found) -> End {
        let Found { placed, answer, .. } = found;
        if self.request.renamed().is_some() && !answer.head.is_event_stream {
            return Box::pin(self.pass_renamed(found)).await;
        }
        if !relay::begin(self.session, answer, self.request, &placed.peer.endpoint.authority).await {
            return End::ClientGone;
        }
        if self.request.history.attempts == 1 {
            self.gateway.metrics.overhead.observe(self.request.overhead().as_secs_f64());
        }
        let (timeouts, probe) = {
            let config = self.gateway.config.load();
            (config.timeouts, config.probe)
        };
        // Two silent rounds of probes: what still flows, flows.
        let lost = (probe.timeout * 2).min(timeouts.idle);
        let patience = Patience { idle: timeouts.idle, lost };
        let may_go_on = self.relay.transcript.is_some();
        let (gateway, order, peer) = (self.gateway, &self.order, placed.peer.clone());
        let is_lost =
            || may_go_on && peer.is_lost.load(Ordering::Relaxed) && gateway.is_other_there(order, peer.id);
        let first_token = || placed.first_token();
        self.relay.run(self.session, &mut answer.body, self.request, patience, is_lost, first_token).await
    }

    /// An answer in one piece, under the name of the model that was asked for.
    async fn pass_renamed(&mut self, found: &mut Found) -> End {
        let Found { placed, answer, .. } = found;
        let whole = tokio::select! {
            biased;
            whole = fetch::fill(&mut answer.body, RENAMED_BYTES_MAX) => whole,
            () = session::client_gone(self.session) => return End::ClientGone,
        };
        let Ok(whole) = whole else { return End::Broken };
        let renamed = rename(&whole, self.request.renamed().unwrap_or_default());
        answer.head.length = Some(renamed.len() as u64);
        let now = std::time::Instant::now();
        self.relay.watcher.see(&renamed, now);
        self.relay.watcher.end();
        self.relay.bytes_out = renamed.len() as u64;
        placed.first_token();
        let has_body = self.request.method != http::Method::HEAD && !renamed.is_empty();
        let is_sent = relay::begin(self.session, answer, self.request, &placed.peer.endpoint.authority).await
            && (!has_body || session::write(self.session, &renamed).await)
            && self.session.finish_body().await.is_ok();
        if is_sent { End::Whole } else { End::ClientGone }
    }

    /// After a break: another replica's answer, or how it ended instead. `None` when it ends as it is.
    async fn go_on(&mut self, placed: Placed, end: End) -> Option<Result<Box<Found>, End>> {
        self.order.tried.push(placed.peer.id);
        let deadline = self.gateway.at(self.request.deadline);
        let judgement = self.gateway.judge(Failure::Broken, self.request.history, &self.order, deadline);
        self.request.history.deaths += u32::from(judgement.is_death);
        let from = placed.peer.identity.load_full();
        let replica = placed.peer.endpoint.authority.clone();
        placed.end(judgement.outcome);
        let what = if end == End::Silent { "idle_timeout" } else { "broken_stream" };
        self.gateway.metrics.replica_failures.with_label_values(&[replica.as_str(), what]).inc();
        if let Some(trace) = &mut self.request.trace {
            trace.end_attempt(Some(what));
        }
        let transcript = self.relay.transcript.clone()?;
        if transcript.is_finished {
            return self.close().await.map(Err);
        }
        if judgement.verdict != Verdict::Continue {
            return None;
        }
        let next = self.search(&transcript, &from).await;
        let outcome = if matches!(next, Some(Ok(_))) { "resumed" } else { "failed" };
        self.gateway.metrics.continuations.with_label_values(&[outcome]).inc();
        next
    }

    async fn search(&mut self, transcript: &Transcript, from: &Identity) -> Option<Result<Box<Found>, End>> {
        let continuing = Continuing { original: &self.original, transcript, from, api: self.request.api };
        let search = Search::new(self.gateway, self.session, self.request, self.order.clone());
        match search.going_on(&continuing).run().await {
            Ok(found) if found.answer.head.is_event_stream => {
                self.order.tried.clear();
                self.relay.change_replica(found.as_prompt);
                self.end_event().await.then_some(Ok(found)).or(Some(Err(End::ClientGone)))
            }
            Ok(_) | Err(Stop::Refused(_)) => None,
            Err(Stop::ClientGone) => Some(Err(End::ClientGone)),
        }
    }

    /// Ends an event whose blank line was cut off.
    async fn end_event(&mut self) -> bool {
        self.relay.watcher.is_between_events() || session::write(self.session, b"\n").await
    }

    /// The answer was whole but for its end, which is written here, unless the client waits for usage as well.
    async fn close(&mut self) -> Option<End> {
        let prompt = super::prompt::read(&self.original).unwrap_or_default();
        let wants_usage = prompt.asks_for_usage() && !self.request.hides_usage;
        if wants_usage && self.relay.watcher.usage.prompt_tokens.is_none() {
            return None;
        }
        let written = self.end_event().await && session::write(self.session, b"data: [DONE]\n\n").await;
        let is_whole = written && self.session.finish_body().await.is_ok();
        Some(if is_whole { End::Whole } else { End::ClientGone })
    }

    async fn record(mut self, end: End, status: u16, last: &Last) -> bool {
        let mut ending = Ending::relayed(&self.relay, end, status, self.request, last);
        let keep = match end {
            End::Whole => true,
            End::ClientGone => false,
            End::Broken | End::Silent | End::OutOfTime => {
                let error = broken(end);
                ending.error = Some(error.what.code());
                self.break_off(&error).await
            }
        };
        ending.record(self.gateway, self.request);
        keep
    }

    /// Ends an answer that can't be whole: a stream of events with one that says so, others by cutting.
    async fn break_off(&mut self, error: &Error) -> bool {
        if self.session.response_written().is_none() {
            let attempts = self.request.history.attempts;
            return reply::error(self.session, error, &self.request.id, attempts, &self.request.limits).await;
        }
        if !self.relay.is_event_stream() {
            return false;
        }
        if !self.relay.watcher.has_error {
            let theirs = self.relay.transcript.as_ref().and_then(|transcript| transcript.error.as_ref());
            let event = match theirs {
                Some(event) => [b"data: ", event.as_slice(), b"\n\n"].concat(),
                None => error.event(relay::has_own_error_event(self.request.api)),
            };
            let gap: &[u8] = if self.relay.watcher.is_between_events() { b"" } else { b"\n\n" };
            if !session::write(self.session, &[gap, &event].concat()).await {
                return false;
            }
        }
        // The end is well formed for HTTP, so that the client reads the event; the connection is not used again.
        self.session.set_keepalive(None);
        self.session.finish_body().await.is_ok()
    }

    /// What the replica's circuit is told.
    fn outcome(&self, end: End, status: u16) -> Outcome {
        let usage = &self.relay.watcher.usage;
        match end {
            End::Whole if status < 400 => Outcome::Answered(Usage {
                prompt_tokens: usage.prompt_tokens,
                cached_tokens: usage.cached_tokens,
                answer_tokens: usage.completion_tokens,
            }),
            _ => Outcome::Neutral,
        }
    }
}

/// A JSON body with another model's name; what is no object stays as it is.
fn rename(body: &[u8], model: &str) -> Bytes {
    let Ok(members) = scan::members(body) else { return Bytes::copy_from_slice(body) };
    let mut edits = Edits::default();
    if let Some(member) = members.iter().find(|member| member.key == "model") {
        edits.replace(member.span.clone(), serde_json::Value::from(model).to_string());
    }
    edits.apply(body)
}

fn broken(end: End) -> Error {
    match end {
        End::Silent => Error::new(What::Broken, "the replica stopped sending in the middle of its answer"),
        End::OutOfTime => Error::new(What::TooLate, "the request's time was up before its answer was whole"),
        _ => Error::new(What::Broken, "the replica went away in the middle of its answer"),
    }
}
