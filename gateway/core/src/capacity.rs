//! How many requests a second a fleet can take within its SLO, and how many replicas are wanted.
//!
//! The first is arithmetic on learned rates; the second damps it for autoscalers: up soon, down late, and never
//! both ways within one window. It starts nothing and knows no orchestrator.

use std::collections::VecDeque;
use std::time::Duration;

use shared::slo::Slo;
use shared::time::Instant;

use crate::fleet::Fleet;
use crate::replica::{ModelKey, Prior, Replica};

/// What one replica can do, as learned.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Ability {
    /// Prompt tokens a second.
    pub prefill_tokens_per_s: f64,
    /// Seconds per later token with the places it has filled.
    pub tpot_s: f64,
    /// Requests it runs at once.
    pub running_max: f64,
    /// KV tokens it can hold; `None` where unknown.
    pub kv_tokens_max: Option<f64>,
}

impl Ability {
    /// What a replica has shown, and the fleet where it has not; `None` while its pace or its places are unknown.
    pub fn of(replica: &Replica, prior: &Prior, now: Instant) -> Option<Self> {
        Some(Self {
            prefill_tokens_per_s: replica.outlook(prior, now).prefill_tokens_per_s,
            tpot_s: replica.rates().tpot_s.value()?,
            running_max: f64::from(replica.running_max()?),
            kv_tokens_max: replica.load().sample().kv_tokens_max.map(|tokens| tokens as f64),
        })
    }
}

/// What one request asks, in the mean.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct MeanRequest {
    /// Prompt tokens that must be computed.
    pub uncached_tokens: f64,
    /// Tokens held while it runs.
    pub kv_tokens: f64,
    /// Tokens of its answer.
    pub answer_tokens: f64,
}

/// Share of its time a replica may be busy: above it queues grow faster than rates.
const BUSY_MAX: f64 = 0.8;
/// Requests at once on a replica that does not say.
const RUNNING_MAX_ASSUMED: u32 = 64;

/// Requests a second that one replica answers within the SLO; zero when it can't answer even one so.
pub fn requests_per_s(ability: &Ability, request: &MeanRequest, slo: Slo) -> f64 {
    let prefill_s = request.uncached_tokens / ability.prefill_tokens_per_s.max(1e-9);
    if prefill_s > slo.ttft.as_secs_f64() || ability.tpot_s > slo.tpot.as_secs_f64() {
        return 0.0;
    }
    let answer_s = prefill_s + request.answer_tokens * ability.tpot_s;
    let at_once = ability
        .kv_tokens_max
        .map_or(ability.running_max, |kv| ability.running_max.min(kv / request.kv_tokens.max(1.0)));
    // Places turn over in an answer's time; prompts are computed one after the other.
    let by_places = at_once / answer_s.max(1e-9);
    let by_prefill = 1.0 / prefill_s.max(1e-9);
    // A queue of mean length ρ/(1−ρ) must still fit into what the SLO leaves for waiting.
    let slack = (slo.ttft.as_secs_f64() - prefill_s).max(0.0) / prefill_s.max(1e-9);
    let busy = BUSY_MAX.min(slack / (1.0 + slack));
    by_places.min(by_prefill) * busy
}

/// Requests a second that all who serve a model answer within the SLO; `None` while too little has been seen.
pub fn fleet_requests_per_s(fleet: &Fleet, model: ModelKey, slo: Slo, now: Instant) -> Option<f64> {
    let (request, prior) = (fleet.mean_request()?, fleet.prior());
    let serving = fleet.replicas().iter().filter(|replica| replica.is_serving() && replica.serves(model));
    let abilities = serving.filter_map(|replica| Ability::of(replica, &prior, now));
    let rates = abilities.map(|ability| requests_per_s(&ability, &request, slo));
    rates.reduce(|sum, rate| sum + rate)
}

/// Replicas' worth of work there is for a model: the fuller of places and KV on each, and what waits in the gateway.
pub fn load(fleet: &Fleet, model: ModelKey, waiting: usize, now: Instant) -> f64 {
    let (mut load, mut places, mut serving) = (0.0, 0.0, 0.0);
    for replica in fleet.replicas().iter().filter(|replica| replica.is_serving() && replica.serves(model)) {
        let running_max = f64::from(replica.running_max().unwrap_or(RUNNING_MAX_ASSUMED));
        let by_places = f64::from(replica.load().occupancy(now)) / running_max;
        let by_kv = replica.load().kv_tokens(now).map_or(0.0, |(used, pool)| used / pool);
        load += by_places.max(by_kv);
        places += running_max;
        serving += 1.0;
    }
    // Without a replica one is wanted for whoever waits.
    load + waiting as f64 * if places > 0.0 { serving / places } else { 1.0 }
}

/// How the wish for replicas is damped.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Damping {
    /// Fewest.
    pub replicas_min: u32,
    /// Most.
    pub replicas_max: u32,
    /// Load per replica, as a share of what it can take, to aim at.
    pub target: f64,
    /// No change while the load is this close to the target, as a share of it.
    pub tolerance: f64,
    /// Before fewer are wanted, fewer must have done for so long; before more after fewer, as long.
    pub window: Duration,
}

/// The number of replicas wanted for one model.
#[derive(Clone, Debug)]
pub struct Scale {
    damping: Damping,
    wanted: u32,
    /// Wishes of the last window, with their time; bounded by dropping one when they come too thick.
    wishes: VecDeque<(Instant, u32)>,
    last_change: Option<(Instant, bool)>,
}

/// Wishes remembered at most; a window is cut into so many parts.
const WISHES_MAX: u32 = 64;

impl Scale {
    /// Starts from what is there.
    pub fn new(damping: Damping, replicas: u32) -> Self {
        let wanted = replicas.clamp(damping.replicas_min, damping.replicas_max);
        Self { damping, wanted, wishes: VecDeque::new(), last_change: None }
    }

    /// Takes in the load now, in replicas' worth of work (running, and waiting in the gateway), and says how many
    /// replicas are wanted.
    pub fn observe(&mut self, load: f64, now: Instant) -> u32 {
        let wish = self.wish(load);
        self.remember(wish, now);
        if wish > self.wanted && self.may_turn(true, now) {
            self.change(wish, now);
        } else if let Some(most) = self.most_of_window(now).filter(|&most| most < self.wanted) {
            // Down only to what would have done for the whole window.
            if self.may_turn(false, now) {
                self.change(most, now);
            }
        }
        self.wanted
    }

    /// Replicas wanted.
    pub fn wanted(&self) -> u32 {
        self.wanted
    }

    fn wish(&self, load: f64) -> u32 {
        let load = if load.is_finite() { load.max(0.0) } else { 0.0 };
        let carried = f64::from(self.wanted) * self.damping.target;
        if carried > 0.0 && (load / carried - 1.0).abs() <= self.damping.tolerance {
            return self.wanted;
        }
        let wish = (load / self.damping.target).ceil().min(f64::from(u32::MAX)) as u32;
        wish.clamp(self.damping.replicas_min, self.damping.replicas_max)
    }

    fn remember(&mut self, wish: u32, now: Instant) {
        let spacing = self.damping.window / WISHES_MAX;
        match self.wishes.back_mut() {
            // Within one part of the window the greatest counts.
            Some((at, last)) if now.since(*at) < spacing => *last = wish.max(*last),
            _ => self.wishes.push_back((now, wish)),
        }
        // One older than the window is kept: it shows that the window is covered.
        let covered = |(at, _): &(Instant, u32)| now.since(*at) >= self.damping.window;
        while self.wishes.get(1).is_some_and(covered) {
            self.wishes.pop_front();
        }
    }

    /// The greatest wish of the last window; `None` until a whole window was seen.
    fn most_of_window(&self, now: Instant) -> Option<u32> {
        let (oldest, _) = self.wishes.front()?;
        if now.since(*oldest) < self.damping.window {
            return None;
        }
        self.wishes.iter().map(|(_, wish)| *wish).max()
    }

    /// A change of direction waits until the last change is a window old (U126).
    fn may_turn(&self, is_up: bool, now: Instant) -> bool {
        self.last_change.is_none_or(|(at, was_up)| was_up == is_up || now.since(at) >= self.damping.window)
    }

    fn change(&mut self, to: u32, now: Instant) {
        self.last_change = Some((now, to > self.wanted));
        self.wanted = to;
    }
}

#[cfg(test)]
mod tests;
