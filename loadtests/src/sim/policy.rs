//! Ways to choose a replica: those of the gateway's core, and others to compare with.
//!
//! The others are re-statements of published rules, in own code: sglang-router's `cache_aware`, llm-d's default
//! scorers, nginx's random. Each is given what it has in production or better (fresh numbers, our index instead
//! of its tree of characters). The oracle knows every replica's exact cache, queue and running step.

use std::time::Duration;

use gateway_core::fleet::Fleet;
use gateway_core::load::Share;
use gateway_core::prefix_index::{Matches, PrefixIndex, Settlement};
use gateway_core::route::{self, Decision, Demand, Reason, Refusal};
use rand::Rng;
use rand::rngs::SmallRng;
use shared::id::ReplicaId;
use shared::prefix::PIECE_BYTES;
use shared::time::Instant;

use super::gateway::Order;
use super::text::TOKEN_BYTES;

/// A way to choose.
#[derive(Debug)]
pub enum Policy {
    /// One of the gateway's own.
    Core(route::Policy),
    /// Anybody, as nginx's `random`.
    Random,
    /// sglang-router's `cache_aware` with its default thresholds.
    CacheAware(Box<Index>),
    /// llm-d's default: prefix 3, queue 2, KV 2, the highest score, ties by lot.
    LlmD(Box<Index>),
    /// The soonest by what is really there.
    Oracle,
}

/// What is really there, for those who may know it.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct Truth {
    /// Sequences running.
    pub running: u32,
    /// Sequences waiting, those on their way there included.
    pub waiting: u32,
    /// The most that may wait.
    pub waiting_max: u32,
    /// Share of the pool in use.
    pub kv_usage: f64,
    /// Tokens of this prompt in its cache, or about to be.
    pub cached_tokens: u32,
    /// Time until this prompt's first token would come there.
    pub ttft: Duration,
}

/// Names that the command line takes.
pub const NAMES: [&str; 9] = [
    "expected_ttft",
    "round_robin",
    "least_requests",
    "least_kv",
    "prefix_affinity",
    "random",
    "cache_aware",
    "llm_d",
    "oracle",
];

impl Policy {
    /// The one of this name.
    pub fn named(name: &str) -> Option<Self> {
        Some(match name {
            "expected_ttft" => Self::Core(route::Policy::ExpectedTtft),
            "round_robin" => Self::Core(route::Policy::RoundRobin),
            "least_requests" => Self::Core(route::Policy::LeastRequests),
            "least_kv" => Self::Core(route::Policy::LeastKv),
            "prefix_affinity" => Self::Core(route::Policy::PrefixAffinity),
            "random" => Self::Random,
            "cache_aware" => Self::CacheAware(Box::default()),
            "llm_d" => Self::LlmD(Box::default()),
            "oracle" => Self::Oracle,
            _ => return None,
        })
    }

    /// Whether it must be told what is really there.
    pub fn wants_truth(&self) -> bool {
        matches!(self, Self::LlmD(_) | Self::Oracle)
    }

    /// Whether requests wait in the gateway when everybody is full.
    pub fn has_queue(&self) -> bool {
        matches!(self, Self::Core(_))
    }

    /// The router's own policy behind it.
    pub(super) fn of_core(&self) -> route::Policy {
        match self {
            Self::Core(policy) => *policy,
            _ => route::Policy::default(),
        }
    }

    /// Chooses, unless the gateway's router is to. None of these waits in the gateway: a full replica says so.
    pub(super) fn choose(
        &mut self,
        demand: &Demand<'_>,
        order: &Order,
        fleet: &Fleet,
        truths: &[Truth],
        now: Instant,
        rng: &mut SmallRng,
    ) -> Option<Result<Decision, Refusal>> {
        if let Self::Core(_) = self {
            return None;
        }
        let candidates = candidates(demand, fleet, now);
        if candidates.is_empty() {
            return Some(Err(Refusal::NoReplica));
        }
        let truth = |id: ReplicaId| truths[id.0 as usize];
        let (winner, cached_tokens) = match self {
            Self::Core(_) => return None,
            Self::Random => (candidates[rng.random_range(0..candidates.len())].0, 0),
            Self::CacheAware(index) => index.cache_aware(order, &candidates, rng),
            Self::LlmD(index) => index.llm_d(order, &candidates, truth, rng),
            Self::Oracle => {
                let best = |(id, _): &&(ReplicaId, u32)| {
                    (truth(*id).waiting >= truth(*id).waiting_max, truth(*id).ttft, truth(*id).running)
                };
                let winner = candidates.iter().min_by_key(best).map_or(candidates[0].0, |winner| winner.0);
                (winner, truth(winner).cached_tokens)
            }
        };
        Some(Ok(decision(winner, cached_tokens, demand)))
    }
}

/// Who may take it, each with the requests that this gateway has there.
fn candidates(demand: &Demand<'_>, fleet: &Fleet, now: Instant) -> Vec<(ReplicaId, u32)> {
    let serving = || {
        fleet
            .replicas()
            .iter()
            .filter(|replica| replica.is_serving() && !demand.tried.contains(&replica.id()))
    };
    let closed = serving().filter(|replica| replica.breaker().admits(now));
    closed.map(|replica| (replica.id(), replica.load().requests())).collect()
}

fn decision(replica: ReplicaId, cached_tokens: u32, demand: &Demand<'_>) -> Decision {
    let prompt_tokens = demand.prompt_bytes / TOKEN_BYTES as u32;
    let uncached = prompt_tokens.saturating_sub(cached_tokens);
    let answer_tokens = demand.answer_tokens_max.unwrap_or(0);
    Decision {
        replica,
        model: demand.model,
        prompt_bytes: demand.prompt_bytes,
        ttft: Duration::ZERO,
        cached_tokens,
        share: Share { prompt_tokens: uncached, kv_tokens: uncached + answer_tokens },
        reason: Reason::Policy,
    }
}

/// A rival's own knowledge of who got what: filled by its decisions alone.
#[derive(Debug)]
pub struct Index {
    index: PrefixIndex,
    matches: Matches,
}

impl Default for Index {
    fn default() -> Self {
        Self { index: PrefixIndex::new(8_000_000), matches: Matches::default() }
    }
}

impl Index {
    /// Imbalanced (max − min > 32 and max > 1.1 × min): fewest in flight. Else the longest match if it covers
    /// more than half of the prompt, else fewest in flight.
    fn cache_aware(
        &mut self,
        order: &Order,
        candidates: &[(ReplicaId, u32)],
        rng: &mut SmallRng,
    ) -> (ReplicaId, u32) {
        let most = candidates.iter().map(|(_, requests)| *requests).max().unwrap_or(0);
        let fewest = candidates.iter().map(|(_, requests)| *requests).min().unwrap_or(0);
        let is_imbalanced = most - fewest > 32 && f64::from(most) > 1.1 * f64::from(fewest);
        self.index.lookup(&order.pieces, &mut self.matches);
        let matched = |id: ReplicaId| self.matches.pieces(id);
        let longest = candidates.iter().map(|(id, _)| matched(*id)).max().unwrap_or(0);
        let covers_half = 2 * longest as usize * PIECE_BYTES > order.prompt_bytes as usize;
        let winner = if covers_half && !is_imbalanced {
            draw(candidates, |(id, _)| f64::from(matched(*id)), rng)
        } else {
            draw(candidates, |(_, requests)| -f64::from(*requests), rng)
        };
        self.learn(winner, order)
    }

    /// The sum of three scores between 0 and 1.
    fn llm_d(
        &mut self,
        order: &Order,
        candidates: &[(ReplicaId, u32)],
        truth: impl Fn(ReplicaId) -> Truth,
        rng: &mut SmallRng,
    ) -> (ReplicaId, u32) {
        self.index.lookup(&order.pieces, &mut self.matches);
        let waiting = |id: ReplicaId| f64::from(truth(id).waiting);
        let (mut least, mut most) = (f64::INFINITY, 0.0_f64);
        for (id, _) in candidates {
            least = least.min(waiting(*id));
            most = most.max(waiting(*id));
        }
        let score = |(id, _): &(ReplicaId, u32)| {
            let prefix = f64::from(self.matches.pieces(*id)) / (order.pieces.len().max(1)) as f64;
            let queue = if most > least { (most - waiting(*id)) / (most - least) } else { 1.0 };
            3.0 * prefix + 2.0 * queue + 2.0 * (1.0 - truth(*id).kv_usage)
        };
        let winner = draw(candidates, score, rng);
        self.learn(winner, order)
    }

    /// Takes the prompt as held there from now on; what it is taken to hold already.
    fn learn(&mut self, winner: ReplicaId, order: &Order) -> (ReplicaId, u32) {
        let cached = self.matches.pieces(winner) as usize * PIECE_BYTES / TOKEN_BYTES;
        self.index.guess(winner, &order.pieces);
        let end = Settlement { is_computed: true, predicted: 0, reported: None };
        self.index.settle(winner, &order.pieces, end);
        (winner, cached as u32)
    }
}

/// One of those with the highest score, each with the same chance.
fn draw(
    candidates: &[(ReplicaId, u32)],
    score: impl Fn(&(ReplicaId, u32)) -> f64,
    rng: &mut SmallRng,
) -> ReplicaId {
    let best = candidates.iter().map(&score).fold(f64::NEG_INFINITY, f64::max);
    let close: Vec<_> = candidates.iter().filter(|candidate| score(candidate) >= best).collect();
    close[rng.random_range(0..close.len())].0
}
