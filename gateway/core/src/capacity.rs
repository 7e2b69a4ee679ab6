//! How many requests a second a fleet can take within its SLO, and how many replicas are wanted.
//!
//! The first is arithmetic on learned rates; the second damps it for autoscalers: up soon, down late, and never
//! both ways within one window. It starts nothing and knows no orchestrator.

use std::collections::VecDeque;
use std::time::Duration;

use shared::slo::Slo;
use shared::time::Instant;

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
mod tests {
    use proptest::prelude::*;

    use super::*;

    const DAMPING: Damping = Damping {
        replicas_min: 1,
        replicas_max: 20,
        target: 0.7,
        tolerance: 0.1,
        window: Duration::from_mins(5),
    };
    const SLO: Slo = Slo { ttft: Duration::from_secs(1), tpot: Duration::from_millis(100) };
    const ABILITY: Ability =
        Ability { prefill_tokens_per_s: 4000.0, tpot_s: 0.02, running_max: 32.0, kv_tokens_max: None };
    const REQUEST: MeanRequest =
        MeanRequest { uncached_tokens: 400.0, kv_tokens: 600.0, answer_tokens: 200.0 };

    fn at(seconds: u64) -> Instant {
        Instant::ZERO + Duration::from_secs(seconds)
    }

    #[test]
    fn prefill_bounds_long_prompts_and_places_bound_long_answers() {
        let rate = |request| requests_per_s(&ABILITY, &request, SLO);
        let usual = rate(REQUEST);
        assert!(usual > 1.0 && usual <= 10.0, "{usual}");
        assert!(rate(MeanRequest { uncached_tokens: 3000.0, ..REQUEST }) < usual);
        assert!(rate(MeanRequest { answer_tokens: 4000.0, ..REQUEST }) < usual);
    }

    #[test]
    fn a_small_pool_bounds_what_runs_at_once() {
        let small = Ability { kv_tokens_max: Some(1200.0), ..ABILITY };
        assert!(requests_per_s(&small, &REQUEST, SLO) < requests_per_s(&ABILITY, &REQUEST, SLO));
    }

    #[test]
    fn a_replica_that_cannot_meet_the_slo_counts_nothing() {
        let slow = Ability { tpot_s: 0.2, ..ABILITY };
        assert!(requests_per_s(&slow, &REQUEST, SLO) <= 0.0);
        let long = MeanRequest { uncached_tokens: 40_000.0, ..REQUEST };
        assert!(requests_per_s(&ABILITY, &long, SLO) <= 0.0);
    }

    #[test]
    fn more_load_wants_more_at_once_and_less_load_fewer_only_later() {
        let mut scale = Scale::new(DAMPING, 2);
        assert_eq!(scale.observe(4.1, at(0)), 6);
        for second in (10..300).step_by(10) {
            assert_eq!(scale.observe(0.5, at(second)), 6);
        }
        assert_eq!(scale.observe(0.5, at(300)), 6, "a window with the burst in it");
        assert_eq!((310..700).step_by(10).map(|second| scale.observe(0.5, at(second))).last(), Some(1));
    }

    #[test]
    fn close_to_the_target_nothing_changes() {
        let mut scale = Scale::new(DAMPING, 10);
        for second in 0..1000 {
            let load = if second % 2 == 0 { 7.3 } else { 6.7 };
            assert_eq!(scale.observe(load, at(second)), 10);
        }
    }

    proptest! {
        /// U126: no more than one change of direction in a window.
        #[test]
        fn it_turns_at_most_once_a_window(loads in prop::collection::vec(0.0f64..16.0, 50..400)) {
            let mut scale = Scale::new(DAMPING, 3);
            let (mut last, mut turns) = (3, Vec::new());
            let mut was_up = None;
            for (step, load) in loads.into_iter().enumerate() {
                let now = at(step as u64 * 15);
                let wanted = scale.observe(load, now);
                prop_assert!((DAMPING.replicas_min..=DAMPING.replicas_max).contains(&wanted));
                if wanted != last {
                    let is_up = wanted > last;
                    if was_up.replace(is_up).is_some_and(|before| before != is_up) {
                        turns.push(now);
                    }
                    last = wanted;
                }
            }
            prop_assert!(turns.windows(2).all(|pair| pair[1].since(pair[0]) >= DAMPING.window));
        }
    }
}
