//! Finds a replica that begins to answer: place, send, and after a failure do what the core says.

use super::continuing::{self, Continuing};
use super::error::{Error, What};
use super::exchange::{self, Answer, Outgoing};
use super::headers::{self, Forwarded};
use super::request::Request;
use super::session::{self, client_gone};
use crate::gateway::{Choice, Gateway, Line, Order, Peer, Placed, Unplaced};
use gateway_core::queue::Full;
use gateway_core::replica::Engine;
use gateway_core::retry::{Failure, GaveUp, Judgement, Verdict};
use pingora::protocols::http::ServerSession;
use shared::id::ReplicaId;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// A replica and the answer it has begun.
#[derive(Debug)]
pub struct Found {
    /// Counted there.
    pub placed: Placed,
    /// Under way.
    pub answer: Answer,
    /// Tokens of an answer gone on with that the replica takes for prompt.
    pub as_prompt: u32,
}

/// Why there is no answer to pass on.
#[derive(Debug)]
pub enum Stop {
    /// To be told to the client.
    Refused(Error),
    /// Nobody to tell.
    ClientGone,
}

impl From<Error> for Stop {
    fn from(error: Error) -> Self {
        Self::Refused(error)
    }
}

/// One request looking for its replica.
pub struct Search<'a> {
    gateway: &'a Arc<Gateway>,
    session: &'a mut ServerSession,
    request: &'a mut Request,
    order: Order,
    /// Those among `order.tried` that only said they were full.
    full: Vec<ReplicaId>,
    /// When to write the next comment into a silent stream.
    next_comment: Option<Instant>,
    /// The answer to go on with, if it is not a new one.
    continuing: Option<&'a Continuing<'a>>,
    /// Tokens of that answer which the chosen replica takes for prompt.
    as_prompt: u32,
}

impl std::fmt::Debug for Search<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Search").field("order", &self.order).finish_non_exhaustive()
    }
}

impl<'a> Search<'a> {
    /// For a request whose order is made.
    pub fn new(
        gateway: &'a Arc<Gateway>,
        session: &'a mut ServerSession,
        request: &'a mut Request,
        order: Order,
    ) -> Self {
        let keep_alive = gateway.config.load().timeouts.keep_alive.filter(|_| request.is_stream);
        let next_comment = keep_alive.map(|interval| request.received + interval);
        Self {
            gateway,
            session,
            request,
            order,
            full: Vec::new(),
            next_comment,
            continuing: None,
            as_prompt: 0,
        }
    }

    /// For an answer that broke and is to go on.
    #[must_use]
    pub fn going_on(mut self, continuing: &'a Continuing<'a>) -> Self {
        self.continuing = Some(continuing);
        self
    }

    /// Goes from replica to replica until one begins to answer, or the core gives up.
    pub async fn run(mut self) -> Result<Box<Found>, Stop> {
        let mut placed = self.place().await?;
        let mut is_fresh = false;
        loop {
            let began = Instant::now();
            let (failure, answer) = match self.attempt(&placed, is_fresh).await? {
                Ok(answer) => match failure_of(&answer) {
                    None => return Ok(Box::new(Found { placed, answer, as_prompt: self.as_prompt })),
                    Some(failure) => (failure, Some(answer)),
                },
                Err(failure) => (failure, None),
            };
            self.order.tried.push(placed.peer.id);
            let deadline = self.gateway.at(self.request.deadline);
            let judgement = self.gateway.judge(failure, self.request.history, &self.order, deadline);
            if judgement.verdict != Verdict::Relay {
                self.request.times.retry += began.elapsed();
            }
            self.note(&placed, failure, judgement);
            match (judgement.verdict, answer) {
                (Verdict::Relay, Some(answer)) => {
                    return Ok(Box::new(Found { placed, answer, as_prompt: 0 }));
                }
                (Verdict::Refresh, _) => {
                    self.order.tried.pop();
                    self.request.history.refreshed = true;
                    is_fresh = true;
                    continue;
                }
                (Verdict::Elsewhere, _) => placed.end(judgement.outcome),
                (Verdict::Wait, _) => {
                    placed.end(judgement.outcome);
                    self.order.tried.retain(|tried| !self.full.contains(tried));
                }
                (Verdict::GiveUp(why), _) => {
                    placed.end(judgement.outcome);
                    return Err(self.gave_up(why, failure).into());
                }
                (Verdict::Relay | Verdict::Continue, _) => {
                    placed.end(judgement.outcome);
                    return Err(self.gave_up(GaveUp::ReplicaFailed, failure).into());
                }
            }
            is_fresh = false;
            placed = self.place().await?;
        }
    }

    /// A replica that can do what is wanted.
    async fn place(&mut self) -> Result<Placed, Stop> {
        loop {
            let placed = self.place_anywhere().await?;
            let Some(continuing) = self.continuing else { return Ok(placed) };
            match continuing.request_for(&placed.peer.identity.load()) {
                Ok(next) => {
                    self.request.body = next.body;
                    self.as_prompt = next.as_prompt;
                    return Ok(placed);
                }
                Err(obstacle) => {
                    tracing::debug!(replica = %placed.peer.endpoint.authority, obstacle = obstacle.what(), "can't go on");
                    self.order.tried.push(placed.peer.id);
                }
            }
        }
    }

    /// A replica, after a wait in the queue if must be.
    async fn place_anywhere(&mut self) -> Result<Placed, Stop> {
        match self.gateway.place(&self.order) {
            Ok(Choice::Placed(placed)) => Ok(placed),
            Ok(Choice::Waiting(line)) => {
                let began = Instant::now();
                let placed = self.wait(line).await;
                self.request.times.queue += began.elapsed();
                if let Some(trace) = &mut self.request.trace {
                    trace.add_wait(began);
                }
                placed
            }
            Err(unplaced) => Err(self.refuse(unplaced).into()),
        }
    }

    async fn wait(&mut self, mut line: Line) -> Result<Placed, Stop> {
        let queue = self.gateway.config.load().queue;
        let latest = (Instant::now() + queue.wait_max).min(self.request.deadline);
        loop {
            let until = self.next_comment.map_or(latest, |comment| comment.min(latest));
            tokio::select! {
                biased;
                placed = line.wait() => {
                    let placed = placed.ok_or_else(|| overloaded(queue.wait_max))?;
                    return placed.map_err(|unplaced| self.refuse(unplaced).into());
                }
                () = client_gone(self.session) => return Err(Stop::ClientGone),
                () = tokio::time::sleep_until(until.into()) => {}
            }
            if Instant::now() >= latest {
                return Err(overloaded(queue.wait_max).into());
            }
            self.comment().await?;
        }
    }

    /// Sends once, with an eye on the client.
    async fn attempt(&mut self, placed: &Placed, is_fresh: bool) -> Result<Result<Answer, Failure>, Stop> {
        if !is_fresh {
            self.request.history.attempts += 1;
        }
        let traceparent = self.request.trace.as_mut().map(|trace| trace.begin_attempt(placed));
        let head = self.head(placed, traceparent.as_deref());
        let timeouts = self.gateway.config.load().timeouts;
        let left = self.request.deadline.saturating_duration_since(Instant::now());
        let outgoing = Outgoing {
            head: &head,
            body: &self.request.body.clone(),
            is_head_request: self.request.method == http::Method::HEAD,
            first_byte: timeouts.first_byte.min(left),
            fresh: is_fresh,
        };
        let sending = exchange::send(self.gateway, &placed.peer, outgoing);
        let lost = placed.peer.lost.notified();
        tokio::pin!(sending, lost);
        loop {
            let comment = self.next_comment;
            let due = async {
                match comment {
                    Some(at) => tokio::time::sleep_until(at.into()).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                biased;
                sent = &mut sending => {
                    if let Ok(answer) = &sent {
                        self.request.times.connect = answer.connect;
                        self.request.times.first_byte = answer.first_byte;
                    }
                    return Ok(sent);
                }
                () = client_gone(self.session) => return Err(Stop::ClientGone),
                // Nothing has come, and probes say that nothing will: not worth the wait for the first byte.
                () = &mut lost => {
                    if self.gateway.is_other_there(&self.order, placed.peer.id) {
                        return Ok(Err(Failure::Unreachable));
                    }
                    lost.set(placed.peer.lost.notified());
                    continue;
                }
                () = due => {}
            }
            self.comment().await?;
        }
    }

    /// The request head as this replica gets it.
    fn head(&self, placed: &Placed, traceparent: Option<&str>) -> Vec<u8> {
        let endpoint = &placed.peer.endpoint;
        let target;
        let forwarded = Forwarded {
            method: self.request.method.as_str(),
            target: if endpoint.base.is_empty() {
                &self.request.target
            } else {
                target = format!("{}{}", endpoint.base, self.request.target);
                &target
            },
            host: &endpoint.authority,
            body_bytes: self.request.body.len(),
            request_id: &self.request.id,
            traceparent,
            replica_key: endpoint.key.as_deref(),
            pass_authorization: !self.gateway.tenants.ask_for_keys(),
            wants_ids: asks_for_ids(self.request, &placed.peer),
        };
        let mut head = Vec::with_capacity(512);
        headers::write_head(&mut head, &forwarded, &self.session.req_header().headers);
        head
    }

    /// Writes a comment into the stream when one is due, beginning it if need be.
    async fn comment(&mut self) -> Result<(), Stop> {
        let now = Instant::now();
        let interval = self.gateway.config.load().timeouts.keep_alive;
        let (Some(at), Some(interval)) = (self.next_comment, interval) else { return Ok(()) };
        if now < at {
            return Ok(());
        }
        self.next_comment = Some(now + interval);
        if session::comment(self.session, &self.request.id).await { Ok(()) } else { Err(Stop::ClientGone) }
    }

    fn note(&mut self, placed: &Placed, failure: Failure, judgement: Judgement) {
        self.request.history.deaths += u32::from(judgement.is_death);
        if let Some(trace) = self.request.trace.as_mut().filter(|_| judgement.verdict != Verdict::Relay) {
            trace.end_attempt(Some(what(failure)));
        }
        let metrics = &self.gateway.metrics;
        let replica = placed.peer.endpoint.authority.as_str();
        if is_full(failure) {
            self.full.push(placed.peer.id);
            metrics.replica_requests.with_label_values(&[replica, "refused"]).inc();
        } else if judgement.verdict != Verdict::Relay && judgement.verdict != Verdict::Refresh {
            metrics.replica_requests.with_label_values(&[replica, "failed"]).inc();
            metrics.replica_failures.with_label_values(&[replica, what(failure)]).inc();
            tracing::debug!(replica, what = what(failure), request_id = self.request.id, "attempt failed");
        }
        if judgement.verdict == Verdict::Elsewhere {
            metrics.retries.with_label_values(&[what(failure)]).inc();
        }
    }

    fn refuse(&self, unplaced: Unplaced) -> Error {
        match unplaced {
            Unplaced::NoReplica => no_replica(self.gateway, &self.request.model),
            Unplaced::AllTried => self.gave_up(GaveUp::ReplicaFailed, Failure::Unreachable),
            Unplaced::Full(Full::Bounds(wait) | Full::Deadline(wait)) => overloaded(wait),
        }
    }

    fn gave_up(&self, why: GaveUp, failure: Failure) -> Error {
        let attempts = self.request.history.attempts;
        let mut error = match why {
            GaveUp::Poison => {
                let message = "two replicas died while they had this request; it is not tried again";
                return Error::new(What::Poison, message);
            }
            GaveUp::TooLate => {
                Error::new(What::TooLate, format!("no replica began to answer in time ({attempts} attempts)"))
            }
            GaveUp::ReplicaFailed | GaveUp::Cut => {
                let what = what(failure);
                Error::new(
                    What::ReplicaFailed,
                    format!("no replica could answer: {what} ({attempts} attempts)"),
                )
            }
        };
        let ejected = self.gateway.ejected(self.order.model);
        if let Some(soonest) = ejected.iter().map(|(_, wait)| *wait).min() {
            let list: Vec<_> = ejected
                .iter()
                .map(|(replica, wait)| format!("{replica} for {:.1} s", wait.as_secs_f64()))
                .collect();
            error.message = format!("{}; ejected: {}", error.message, list.join(", "));
            return error.retry_after(soonest);
        }
        error.retry_after(Duration::from_secs(1))
    }
}

/// Whether a replica is asked for what it takes to go on elsewhere.
pub fn asks_for_ids(request: &Request, peer: &Peer) -> bool {
    continuing::is_possible(request) && peer.identity.load().engine == Engine::Flotilla
}

/// Nobody takes work for a model: at once, with the time of a probe as the wait.
pub fn no_replica(gateway: &Gateway, model: &str) -> Error {
    let wait = gateway.config.load().probe.interval;
    Error::new(What::NoReplica, format!("no replica is ready for `{model}`")).retry_after(wait)
}

fn overloaded(wait: Duration) -> Error {
    Error::new(What::Overloaded, "every replica is full and so is the queue, or it is too long")
        .retry_after(wait)
}

/// The failure that a status stands for; what is below 400 is none.
fn failure_of(answer: &Answer) -> Option<Failure> {
    let header = &answer.head.header;
    let status = header.status.as_u16();
    let retry_after =
        header.headers.get(http::header::RETRY_AFTER).and_then(|value| value.to_str().ok()?.parse().ok());
    (status >= 400).then(|| Failure::Status(status, retry_after.map(Duration::from_secs)))
}

fn is_full(failure: Failure) -> bool {
    matches!(failure, Failure::Status(429 | 503, _))
}

/// A constant word for labels and logs.
fn what(failure: Failure) -> &'static str {
    match failure {
        Failure::Refused | Failure::Unreachable => "connect",
        Failure::Stranger => "stranger",
        Failure::Reset { .. } => "reset",
        Failure::Status(429 | 503, _) => "refused",
        Failure::Status(..) => "server_error",
        Failure::FirstByteLate => "first_byte_timeout",
        Failure::Broken => "broken_stream",
    }
}
