//! Whether a replica is worth a request: one circuit each, fed with outcomes.
//!
//! It knows no addresses and sends no probes; the caller tells it what happened and asks before it sends. What a
//! client did wrong is no evidence, and neither is a replica that says it is full: it is only left alone for as
//! long as it asked. A circuit opened because the replica could not be reached closes at the first probe that
//! reaches it; one opened by bad answers closes only by a good answer, since a probe proves nothing about those.

use std::time::Duration;

use shared::id::ReplicaId;
use shared::time::Instant;

use crate::replica::Replica;

/// When a circuit opens, and for how long.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Rules {
    /// Failures in a row that open it.
    pub failures_max: u32,
    /// Share of failures among recent outcomes that opens it, once there are `outcomes_min` of them.
    pub failure_rate_max: f64,
    /// See `failure_rate_max`.
    pub outcomes_min: f64,
    /// How long the past counts: an outcome this old weighs half.
    pub half_life: Duration,
    /// First time out; doubles with every failed recovery.
    pub cooldown: Duration,
    /// Longest time out.
    pub cooldown_max: Duration,
    /// Active probes in a row that must fail (U053: a replica busy computing may miss one).
    pub probe_failures_max: u32,
}

impl Default for Rules {
    fn default() -> Self {
        Self {
            failures_max: 3,
            failure_rate_max: 0.5,
            outcomes_min: 8.0,
            half_life: Duration::from_secs(10),
            cooldown: Duration::from_secs(10),
            cooldown_max: Duration::from_mins(1),
            probe_failures_max: 3,
        }
    }
}

/// What a replica did wrong.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fault {
    /// Nobody listens there: the connection was refused.
    Refused,
    /// Nothing came of a connection in time.
    Unreachable,
    /// Closed or reset the connection before the first byte.
    Reset,
    /// Answered 5xx, 503 apart.
    ServerError,
    /// No first byte in time.
    FirstByteLate,
    /// Broke off, or went silent, after the first byte.
    Broken,
    /// Reports work and no progress.
    Stalled,
    /// Far slower than the rest of the fleet.
    Outlier,
}

impl Fault {
    /// Whether an active probe that succeeds disproves it.
    const fn is_disproved_by_probe(self) -> bool {
        matches!(self, Self::Refused | Self::Unreachable | Self::Stalled)
    }

    /// A constant word for logs, metrics and `/fleet`.
    pub const fn what(self) -> &'static str {
        match self {
            Self::Refused => "refused",
            Self::Unreachable => "unreachable",
            Self::Reset => "reset",
            Self::ServerError => "server_error",
            Self::FirstByteLate => "first_byte_late",
            Self::Broken => "broken",
            Self::Stalled => "stalled",
            Self::Outlier => "outlier",
        }
    }
}

/// How one request to a replica ended, as far as the replica is concerned.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Outcome {
    /// A whole answer.
    Answered(Usage),
    /// Nothing learned: the client's own fault (4xx), the client left, or a request that already killed another.
    Neutral,
    /// It said it is full or not ready (429, 503), and when to come back.
    Refused {
        /// Its `Retry-After`.
        retry_after: Option<Duration>,
    },
    /// It failed.
    Failed {
        /// How.
        fault: Fault,
        /// Its `Retry-After`, if it said one.
        retry_after: Option<Duration>,
    },
}

/// Token counts of an answer; `None` where the engine does not say (unknown is not zero).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Usage {
    /// Tokens of the prompt.
    pub prompt_tokens: Option<u32>,
    /// Of these, taken from the prefix cache.
    pub cached_tokens: Option<u32>,
    /// Tokens of the answer.
    pub answer_tokens: Option<u32>,
}

/// What the circuit lets through.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Circuit {
    /// Everything.
    Closed,
    /// Nothing before this time.
    Open(Instant),
    /// One request, to see whether it recovered; `busy` while that one is out.
    Probing {
        /// The probe is on its way.
        busy: bool,
    },
}

/// The circuit of one replica.
#[derive(Clone, Debug)]
pub struct Breaker {
    rules: Rules,
    open: Option<Opening>,
    /// Left alone until then at its own request; no fault.
    rest_until: Option<Instant>,
    failures_in_a_row: u32,
    probe_failures_in_a_row: u32,
    recent: Recent,
}

/// What a request was let through as; it comes back with the outcome.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Pass {
    /// It is the recovery probe.
    is_probe: bool,
    /// When.
    at: Instant,
}

#[derive(Clone, Copy, Debug)]
struct Opening {
    /// The last failure.
    since: Instant,
    until: Instant,
    cooldown: Duration,
    fault: Fault,
    probing: bool,
}

impl Breaker {
    /// A closed circuit.
    pub fn new(rules: Rules) -> Self {
        Self {
            rules,
            open: None,
            rest_until: None,
            failures_in_a_row: 0,
            probe_failures_in_a_row: 0,
            recent: Recent::default(),
        }
    }

    /// What it lets through now.
    pub fn circuit(&self, now: Instant) -> Circuit {
        match self.open {
            Some(opening) if now < opening.until => Circuit::Open(opening.until),
            Some(opening) => Circuit::Probing { busy: opening.probing },
            None => Circuit::Closed,
        }
    }

    /// Until when it asked to be left alone, if that is still to come. Such a replica is full, not broken.
    pub fn rests_until(&self, now: Instant) -> Option<Instant> {
        self.rest_until.filter(|&until| now < until)
    }

    /// Whether a request may go there now.
    pub fn admits(&self, now: Instant) -> bool {
        matches!(self.circuit(now), Circuit::Closed | Circuit::Probing { busy: false })
    }

    /// Why it is open, if a fault opened it.
    pub fn fault(&self) -> Option<Fault> {
        self.open.map(|opening| opening.fault)
    }

    /// Share of recent outcomes that failed.
    pub fn failure_rate(&self, now: Instant) -> f64 {
        self.recent.faded(now, self.rules.half_life).rate()
    }

    /// A request starts, and ends by [`Self::record`] with this.
    pub fn begin(&mut self, now: Instant) -> Pass {
        let probing = self.circuit(now) == Circuit::Probing { busy: false };
        if let Some(opening) = self.open.as_mut().filter(|_| probing) {
            opening.probing = true;
        }
        Pass { is_probe: probing, at: now }
    }

    /// A request ended; `pass` is what [`Self::begin`] said of it.
    pub fn record(&mut self, outcome: Outcome, pass: Pass, now: Instant) {
        match outcome {
            Outcome::Answered(_) => self.succeed(pass, now),
            Outcome::Neutral => self.release(pass),
            Outcome::Refused { retry_after } => {
                self.release(pass);
                self.rest(retry_after, now);
            }
            Outcome::Failed { fault, retry_after } => self.fail(fault, retry_after, pass, now),
        }
    }

    /// A token of an answer came: it lives, whatever probes it misses meanwhile.
    pub fn lives(&mut self) {
        self.probe_failures_in_a_row = 0;
    }

    /// An active probe reached the replica and it says it is fine: one is enough.
    pub fn probe_succeeded(&mut self) {
        self.probe_failures_in_a_row = 0;
        if self.fault().is_some_and(Fault::is_disproved_by_probe) {
            self.close();
        }
    }

    /// An active probe failed. True when this one opened the circuit.
    pub fn probe_failed(&mut self, now: Instant) -> bool {
        self.probe_failures_in_a_row += 1;
        if self.probe_failures_in_a_row < self.rules.probe_failures_max {
            return false;
        }
        let was_closed = self.open.is_none();
        self.trip(Fault::Unreachable, now);
        was_closed
    }

    /// Opens at once, or keeps it open for a cooldown from now.
    pub fn trip(&mut self, fault: Fault, now: Instant) {
        let cooldown = self.open.map_or(self.rules.cooldown, |opening| opening.cooldown);
        self.open_for(fault, cooldown, now);
    }

    fn succeed(&mut self, pass: Pass, now: Instant) {
        self.recent.add(0.0, now, self.rules.half_life);
        self.failures_in_a_row = 0;
        self.lives();
        // An answer that began before the last failure says nothing about what came after.
        if self.open.is_some_and(|opening| opening.since <= pass.at) {
            self.close();
        }
    }

    fn fail(&mut self, fault: Fault, retry_after: Option<Duration>, pass: Pass, now: Instant) {
        self.recent.add(1.0, now, self.rules.half_life);
        self.failures_in_a_row = self.failures_in_a_row.saturating_add(1);
        self.rest(retry_after, now);
        if let Some(opening) = self.open {
            // A failed recovery doubles the time out; a straggler only keeps it out as long from here (U143).
            let factor = if pass.is_probe { 2 } else { 1 };
            self.open_for(fault, opening.cooldown * factor, now);
        } else if fault == Fault::Refused || self.is_failing(now) {
            // Where nobody listens, a second look is sure to see the same.
            self.open_for(fault, self.rules.cooldown, now);
        }
    }

    fn is_failing(&self, now: Instant) -> bool {
        let recent = self.recent.faded(now, self.rules.half_life);
        self.failures_in_a_row >= self.rules.failures_max
            || (recent.outcomes >= self.rules.outcomes_min && recent.rate() >= self.rules.failure_rate_max)
    }

    fn open_for(&mut self, fault: Fault, cooldown: Duration, now: Instant) {
        let cooldown = cooldown.min(self.rules.cooldown_max);
        let known = self.open.map_or(Instant::ZERO, |opening| opening.until);
        let until = (now + cooldown).max(known).max(self.rest_until.unwrap_or_default());
        self.open = Some(Opening { since: now, until, cooldown, fault, probing: false });
    }

    fn rest(&mut self, retry_after: Option<Duration>, now: Instant) {
        let Some(wait) = retry_after else { return };
        let until = now + wait.min(self.rules.cooldown_max);
        self.rest_until = Some(self.rest_until.map_or(until, |known| known.max(until)));
    }

    fn release(&mut self, pass: Pass) {
        if let Some(opening) = self.open.as_mut().filter(|_| pass.is_probe) {
            opening.probing = false;
        }
    }

    fn close(&mut self) {
        self.open = None;
        self.failures_in_a_row = 0;
        self.recent = Recent::default();
    }
}

/// Outcomes with fading weight.
#[derive(Clone, Copy, Debug, Default)]
struct Recent {
    failures: f64,
    outcomes: f64,
    at: Instant,
}

impl Recent {
    fn add(&mut self, failures: f64, now: Instant, half_life: Duration) {
        *self = self.faded(now, half_life);
        self.failures += failures;
        self.outcomes += 1.0;
        self.at = now;
    }

    fn faded(self, now: Instant, half_life: Duration) -> Self {
        let weight = (-now.since(self.at).as_secs_f64() / half_life.as_secs_f64()).exp2();
        Self { failures: self.failures * weight, outcomes: self.outcomes * weight, at: self.at.max(now) }
    }

    fn rate(self) -> f64 {
        if self.outcomes > 0.0 { self.failures / self.outcomes } else { 0.0 }
    }
}

/// A replica whose first tokens come so many times later than the fleet's rates explain, against the median of
/// the fleet, is an outlier. Unequal GPUs differ by less, and are priced instead.
const OUTLIER_FACTOR: f64 = 8.0;
/// No more than one in so many replicas is ever out for it, and none of a smaller fleet.
const OUTLIER_FLEET_MIN: usize = 3;
/// What is older says nothing about now.
const OUTLIER_AGE_MAX: Duration = Duration::from_mins(1);

/// Replicas whose first tokens come far too late, with the work that was ahead of them taken into account.
pub(crate) fn outliers(replicas: &[Replica], now: Instant) -> impl Iterator<Item = ReplicaId> + use<> {
    let closed = replicas.iter().filter(|r| r.is_serving() && r.breaker().circuit(now) == Circuit::Closed);
    let lateness = |replica: &Replica| replica.rates().lateness.recent(OUTLIER_AGE_MAX, now);
    let mut seen: Vec<_> = closed.filter_map(|r| lateness(r).map(|late| (late, r.id()))).collect();
    seen.sort_by(|a, b| a.0.total_cmp(&b.0));
    let limit = seen.get(seen.len() / 2).map_or(f64::INFINITY, |(median, _)| median * OUTLIER_FACTOR);
    let most = seen.len() / OUTLIER_FLEET_MIN;
    seen.into_iter().rev().take(most).filter(move |(late, _)| *late > limit).map(|(_, id)| id)
}

#[cfg(test)]
mod tests;
