//! May this failure be tried elsewhere?
//!
//! The table of refusals as one function of what failed, when, and what has been tried. It knows no fleet: the
//! caller says whether anybody is left, and asks [`crate::continuation`] about streams that broke.

use std::time::Duration;

use shared::time::Instant;

use crate::health::{Fault, Outcome};

/// What went wrong with one attempt.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Failure {
    /// Nobody listens there.
    Refused,
    /// Unroutable, TLS failed, not connected in time, or it fell silent with the request in its hands.
    Unreachable,
    /// Who answers there is not whom we know: never sent.
    Stranger,
    /// The connection ended before the first byte of the answer; `reused` when it had carried others before.
    Reset {
        /// It came from the idle pool: the replica may have closed it before it saw the request.
        reused: bool,
    },
    /// A status, with the seconds of its `Retry-After`.
    Status(u16, Option<Duration>),
    /// No first byte in time.
    FirstByteLate,
    /// The answer ended too early, or fell silent, after its first byte went to the client.
    Broken,
}

/// What has happened to the request so far.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct History {
    /// Attempts made, this one included.
    pub attempts: u32,
    /// Replicas that died while they had it, before this failure.
    pub deaths: u32,
    /// It was already tried again on a fresh connection to the same replica.
    pub refreshed: bool,
}

/// What the caller knows about the rest of the world.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct World {
    /// The time.
    pub now: Instant,
    /// When the client stops waiting.
    pub deadline: Instant,
    /// Some replica that has not failed this request may take it.
    pub is_other_there: bool,
}

/// Limits of one request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Limits {
    /// Attempts in all.
    pub attempts_max: u32,
    /// With less time than this left nothing is tried.
    pub time_left_min: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self { attempts_max: 3, time_left_min: Duration::from_millis(50) }
    }
}

/// What to do now.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Verdict {
    /// The answer is the client's: pass it on as it is.
    Relay,
    /// Same replica, new connection; costs no budget.
    Refresh,
    /// Another replica; one unit of the fleet's budget is spent.
    Elsewhere,
    /// Everybody is full: wait in the gateway's queue. Those who refused may be asked again after it, those who
    /// failed may not.
    Wait,
    /// Ask [`crate::continuation`]; one unit of the fleet's budget is spent.
    Continue,
    /// Give up with this.
    GiveUp(GaveUp),
}

/// Why it ends here; each has its row in the table of refusals.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum GaveUp {
    /// 502 `replica_failed`.
    ReplicaFailed,
    /// 504, the first byte did not come in time.
    TooLate,
    /// 500 `request_failed_replicas`: two replicas died of it.
    Poison,
    /// One error event at the end of the stream.
    Cut,
}

/// The verdict and what the failed replica's circuit is told.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Judgement {
    /// What to do now.
    pub verdict: Verdict,
    /// For [`crate::fleet::Fleet::end`].
    pub outcome: Outcome,
    /// The replica died of it: count one death.
    pub is_death: bool,
}

/// Judges one failed attempt. The budget is spent only if the verdict needs it.
pub fn judge(
    failure: Failure,
    history: History,
    world: World,
    limits: Limits,
    budget: &mut Budget,
) -> Judgement {
    let is_death = matches!(failure, Failure::Reset { reused: false } | Failure::Broken);
    let outcome = outcome_of(failure, is_death && history.deaths > 0);
    let verdict = match failure {
        Failure::Status(status, _) if is_clients(status) => Verdict::Relay,
        Failure::Reset { reused: true } if !history.refreshed => Verdict::Refresh,
        _ if is_death && history.deaths > 0 => Verdict::GiveUp(poisoned(failure)),
        _ => again(failure, history, world, limits, budget),
    };
    Judgement { verdict, outcome, is_death }
}

/// Whether a status is an answer to the client's own fault; 429 and 503 are the replica's state.
pub fn is_clients(status: u16) -> bool {
    status < 500 && !matches!(status, 429)
}

fn again(failure: Failure, history: History, world: World, limits: Limits, budget: &mut Budget) -> Verdict {
    let in_time = world.now + limits.time_left_min < world.deadline;
    let is_full = matches!(failure, Failure::Status(429 | 503, _));
    let may = in_time && history.attempts < limits.attempts_max;
    if failure == Failure::Broken {
        let may = may && world.is_other_there && budget.spend(world.now);
        return if may { Verdict::Continue } else { Verdict::GiveUp(GaveUp::Cut) };
    }
    if may && world.is_other_there && budget.spend(world.now) {
        return Verdict::Elsewhere;
    }
    match failure {
        _ if is_full && in_time => Verdict::Wait,
        _ if is_full => Verdict::Relay,
        Failure::FirstByteLate => Verdict::GiveUp(GaveUp::TooLate),
        _ => Verdict::GiveUp(GaveUp::ReplicaFailed),
    }
}

fn poisoned(failure: Failure) -> GaveUp {
    if failure == Failure::Broken { GaveUp::Cut } else { GaveUp::Poison }
}

fn outcome_of(failure: Failure, is_poison: bool) -> Outcome {
    let failed = |fault, retry_after| Outcome::Failed { fault, retry_after };
    match failure {
        _ if is_poison => Outcome::Neutral,
        Failure::Reset { reused: true } => Outcome::Neutral,
        Failure::Status(status, _) if is_clients(status) => Outcome::Neutral,
        Failure::Status(429 | 503, retry_after) => Outcome::Refused { retry_after },
        Failure::Status(_, retry_after) => failed(Fault::ServerError, retry_after),
        Failure::Refused => failed(Fault::Refused, None),
        Failure::Unreachable | Failure::Stranger => failed(Fault::Unreachable, None),
        Failure::Reset { reused: false } => failed(Fault::Reset, None),
        Failure::FirstByteLate => failed(Fault::FirstByteLate, None),
        Failure::Broken => failed(Fault::Broken, None),
    }
}

/// The fleet's allowance of second tries: a share of the requests, so that a dying fleet is not pushed over.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Budget {
    units: f64,
    at: Instant,
    /// Units one request adds.
    per_request: f64,
    /// Units one second adds, so that a quiet gateway can still fail over.
    per_second: f64,
    units_max: f64,
}

impl Budget {
    /// A full budget: retries may be this share of requests, plus a trickle; `burst` is the most that is saved up.
    pub fn new(share: f64, per_second: f64, burst: u32) -> Self {
        let units_max = f64::from(burst);
        Self { units: units_max, at: Instant::ZERO, per_request: share, per_second, units_max }
    }

    /// A request arrived.
    pub fn deposit(&mut self) {
        self.units = (self.units + self.per_request).min(self.units_max);
    }

    /// Takes one unit if there is one.
    pub fn spend(&mut self, now: Instant) -> bool {
        let earned = now.since(self.at).as_secs_f64() * self.per_second;
        self.units = (self.units + earned).min(self.units_max);
        self.at = self.at.max(now);
        if self.units < 1.0 {
            return false;
        }
        self.units -= 1.0;
        true
    }

    /// Whole units left.
    pub fn left(&self) -> u32 {
        self.units as u32
    }
}

impl Default for Budget {
    fn default() -> Self {
        Self::new(0.2, 1.0, 100)
    }
}

#[cfg(test)]
mod tests;
