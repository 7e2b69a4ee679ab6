//! Chooses the replica for one request.
//!
//! Pure: the answer depends on the arguments alone. The caller counts the request on the winner
//! ([`crate::fleet::Fleet::begin`]) before anybody else chooses, which is what spreads a burst.

use std::collections::BTreeMap;
use std::time::Duration;

use rand_core::RngCore;
use shared::id::ReplicaId;
use shared::prefix::PIECE_BYTES;
use shared::time::Instant;

use crate::estimate::Outlook;
use crate::fleet::Fleet;
use crate::health::Circuit;
use crate::load::Share;
use crate::replica::{ModelKey, Replica};

/// How to choose. All but the default are there to compare with.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Policy {
    /// One after the other.
    RoundRobin,
    /// Fewest requests there.
    LeastRequests,
    /// Smallest share of the KV pool in use; where that is unknown, of the places.
    LeastKv,
    /// Longest prefix held, then fewest requests.
    PrefixAffinity,
    /// Soonest first token.
    #[default]
    ExpectedTtft,
}

impl Policy {
    /// All of them, the default first.
    pub const ALL: [Self; 5] =
        [Self::ExpectedTtft, Self::RoundRobin, Self::LeastRequests, Self::LeastKv, Self::PrefixAffinity];

    /// The word for configuration and logs.
    pub const fn word(self) -> &'static str {
        match self {
            Self::RoundRobin => "round_robin",
            Self::LeastRequests => "least_requests",
            Self::LeastKv => "least_kv",
            Self::PrefixAffinity => "prefix_affinity",
            Self::ExpectedTtft => "expected_ttft",
        }
    }

    /// The policy of that word.
    pub fn parse(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|policy| policy.word() == word)
    }
}

/// What a request asks for.
#[derive(Clone, Copy, Debug)]
pub struct Demand<'a> {
    /// Of whom.
    pub model: ModelKey,
    /// Bytes of prompt text.
    pub prompt_bytes: u32,
    /// The most tokens it wants back.
    pub answer_tokens_max: Option<u32>,
    /// Fills idle capacity only.
    pub is_batch: bool,
    /// Hash of the session's name: a hint, never a pin.
    pub session: Option<u64>,
    /// Replicas that failed it.
    pub tried: &'a [ReplicaId],
}

/// A replica, and why it won.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Decision {
    /// The winner.
    pub replica: ReplicaId,
    /// For the books.
    pub model: ModelKey,
    /// For the books.
    pub prompt_bytes: u32,
    /// Expected time to the first token there.
    pub ttft: Duration,
    /// Prompt tokens it need not compute again, as far as is known.
    pub cached_tokens: u32,
    /// What it adds to the winner's load.
    pub share: Share,
    /// Why it won.
    pub reason: Reason,
}

/// Why a replica won.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Reason {
    /// Soonest, without help from its cache.
    Soonest,
    /// Soonest because of what it has cached.
    Prefix,
    /// About as soon as the soonest, and the session was there before.
    Session,
    /// The policy's own order.
    Policy,
    /// To see whether it recovered.
    Probe,
    /// Every circuit is open; better to try than to refuse blindly.
    Panic,
}

impl Reason {
    /// All of them.
    pub const ALL: [Self; 6] =
        [Self::Soonest, Self::Prefix, Self::Session, Self::Policy, Self::Probe, Self::Panic];

    /// The word for logs, metrics and headers.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Soonest => "soonest",
            Self::Prefix => "prefix",
            Self::Session => "session",
            Self::Policy => "policy",
            Self::Probe => "probe",
            Self::Panic => "panic",
        }
    }
}

/// Why nobody was chosen.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Refusal {
    /// Nobody who serves the model takes work.
    NoReplica,
    /// Everybody who does has failed this request already.
    AllTried,
    /// Everybody is full: wait for whoever frees first.
    Saturated,
}

/// Two waits closer than this are the same: then fewer requests decide, then the lot.
const TIE_S: f64 = 0.001;
/// The same, as a share.
const TIE_SHARE: f64 = 0.02;
/// A session may cost this much more than the soonest, in seconds and as a share.
const SESSION_S: f64 = 0.05;
/// See [`SESSION_S`].
const SESSION_SHARE: f64 = 0.25;

/// Chooses, and remembers only whose turn it is and which policy a model follows.
#[derive(Debug, Default)]
pub struct Router {
    default: Policy,
    policies: BTreeMap<ModelKey, Policy>,
    last: Option<ReplicaId>,
    /// Kept between calls so that choosing allocates nothing.
    candidates: Vec<Candidate>,
    /// The same.
    waiting: Vec<u32>,
}

/// What one prompt asks of one replica.
#[derive(Clone, Copy, Debug)]
#[expect(clippy::struct_field_names, reason = "quantities end in their unit")]
struct Work {
    cached_tokens: u32,
    uncached_tokens: u32,
    kv_tokens: f64,
}

#[derive(Clone, Copy, Debug)]
struct Candidate {
    id: ReplicaId,
    endpoint_hash: u64,
    requests: u32,
    kv_share: f64,
    work: Work,
    ttft_s: f64,
    /// `ttft_s`, and how long computing this prompt there delays those behind it, in seconds of all of them.
    cost_s: f64,
    is_probe: bool,
}

impl Router {
    /// A router whose models follow `default` unless told otherwise.
    pub fn new(default: Policy) -> Self {
        Self { default, ..Self::default() }
    }

    /// Changes the policy of one model, or of all that have none of their own.
    pub fn set_policy(&mut self, model: Option<ModelKey>, policy: Policy) {
        match model {
            Some(model) => drop(self.policies.insert(model, policy)),
            None => self.default = policy,
        }
    }

    /// A model has no policy of its own any more.
    pub fn unset_policy(&mut self, model: ModelKey) {
        self.policies.remove(&model);
    }

    /// The policy of all models that have none of their own.
    pub fn default_policy(&self) -> Policy {
        self.default
    }

    /// Models with a policy of their own.
    pub fn policies(&self) -> impl Iterator<Item = (ModelKey, Policy)> {
        self.policies.iter().map(|(model, policy)| (*model, *policy))
    }

    /// The policy of a model.
    pub fn policy(&self, model: ModelKey) -> Policy {
        self.policies.get(&model).copied().unwrap_or(self.default)
    }

    /// Picks a replica; `matched` says how many pieces from the start of the prompt one holds.
    ///
    /// # Errors
    ///
    /// [`Refusal`] says whether nobody is there, everybody failed or everybody is full.
    pub fn choose(
        &mut self,
        demand: &Demand<'_>,
        fleet: &Fleet,
        matched: impl Fn(ReplicaId) -> u32,
        now: Instant,
        rng: &mut impl RngCore,
    ) -> Result<Decision, Refusal> {
        let is_panic = self.gather(demand, fleet, matched, now)?;
        let answer_tokens = fleet.answer_tokens(demand.answer_tokens_max);
        let (winner, reason) = self.pick(demand, is_panic, rng);
        self.last = Some(winner.id);
        Ok(Decision {
            replica: winner.id,
            model: demand.model,
            prompt_bytes: demand.prompt_bytes,
            ttft: Duration::from_secs_f64(winner.ttft_s.clamp(0.0, 1e6)),
            cached_tokens: winner.work.cached_tokens,
            share: Share {
                prompt_tokens: winner.work.uncached_tokens,
                kv_tokens: winner.work.uncached_tokens.saturating_add(answer_tokens),
            },
            reason,
        })
    }

    /// Fills `candidates` with those that may take the request; true when only open circuits are left.
    fn gather(
        &mut self,
        demand: &Demand<'_>,
        fleet: &Fleet,
        matched: impl Fn(ReplicaId) -> u32,
        now: Instant,
    ) -> Result<bool, Refusal> {
        let serving = || fleet.replicas().iter().filter(|r| r.is_serving() && r.serves(demand.model));
        let untried = || serving().filter(|replica| !demand.tried.contains(&replica.id()));
        if untried().next().is_none() {
            return Err(if serving().next().is_none() { Refusal::NoReplica } else { Refusal::AllTried });
        }
        let prior = fleet.prior();
        let prompt_tokens = fleet.prompt_tokens(demand.model, demand.prompt_bytes);
        let answer_tokens = fleet.answer_tokens(demand.answer_tokens_max);
        // Too long for all: let one of them say so, it knows its limit exactly.
        let is_too_long = !untried().any(|replica| replica.fits(prompt_tokens));
        let fitting = || untried().filter(|replica| is_too_long || replica.fits(prompt_tokens));
        let is_panic = !fitting().any(|replica| replica.breaker().admits(now));
        let admitting = || fitting().filter(|replica| is_panic || replica.breaker().admits(now));
        let behind = requests_behind(admitting(), &mut self.waiting);
        self.candidates.clear();
        for replica in admitting() {
            let outlook = replica.outlook(&prior, now);
            let cached_tokens = cached_tokens(matched(replica.id()), demand.prompt_bytes, prompt_tokens);
            let uncached_tokens = prompt_tokens - cached_tokens;
            let kv_tokens = f64::from(uncached_tokens) + f64::from(answer_tokens);
            if outlook.has_room_in_line(kv_tokens) && (!demand.is_batch || outlook.is_idle()) {
                let work = Work { cached_tokens, uncached_tokens, kv_tokens };
                self.candidates.push(Candidate::new(replica, &outlook, work, behind, now));
            }
        }
        // A request that already failed somewhere is not gambled with, if there is a choice.
        if !demand.tried.is_empty() && self.candidates.iter().any(|candidate| !candidate.is_probe) {
            self.candidates.retain(|candidate| !candidate.is_probe);
        }
        if self.candidates.is_empty() { Err(Refusal::Saturated) } else { Ok(is_panic) }
    }

    fn pick(&self, demand: &Demand<'_>, is_panic: bool, rng: &mut impl RngCore) -> (Candidate, Reason) {
        if is_panic {
            return (self.soonest(rng), Reason::Panic);
        }
        if let Some(probe) = self.probe() {
            return (probe, Reason::Probe);
        }
        let by = |cost: fn(&Candidate) -> f64, rng| (self.least(cost, rng), Reason::Policy);
        match self.policy(demand.model) {
            Policy::RoundRobin => (self.next_in_turn(), Reason::Policy),
            Policy::LeastRequests => by(|candidate| f64::from(candidate.requests), rng),
            Policy::LeastKv => by(|candidate| candidate.kv_share, rng),
            Policy::PrefixAffinity => by(|candidate| -f64::from(candidate.work.cached_tokens), rng),
            Policy::ExpectedTtft => self.by_ttft(demand, rng),
        }
    }

    /// A replica that waits to show whether it recovered: it would never look soonest, so it goes first.
    fn probe(&self) -> Option<Candidate> {
        self.candidates.iter().find(|candidate| candidate.is_probe).copied()
    }

    fn by_ttft(&self, demand: &Demand<'_>, rng: &mut impl RngCore) -> (Candidate, Reason) {
        let best = self.soonest(rng);
        if let Some(session) = demand.session {
            let home = self.candidates.iter().max_by_key(|candidate| mix(session ^ candidate.endpoint_hash));
            if let Some(home) =
                home.filter(|home| home.cost_s <= best.cost_s * (1.0 + SESSION_SHARE) + SESSION_S)
            {
                return (*home, Reason::Session);
            }
        }
        let reason = if best.work.cached_tokens > 0 { Reason::Prefix } else { Reason::Soonest };
        (best, reason)
    }

    /// The cheapest, which is the soonest while nobody waits; among about equals the one with fewest requests, then by lot.
    fn soonest(&self, rng: &mut impl RngCore) -> Candidate {
        let best = self.candidates.iter().map(|candidate| candidate.cost_s).fold(f64::INFINITY, f64::min);
        let limit = best * (1.0 + TIE_SHARE) + TIE_S;
        let close = self.candidates.iter().filter(|candidate| candidate.cost_s <= limit);
        draw(close, |candidate| f64::from(candidate.requests), rng)
    }

    fn least(&self, cost: impl Fn(&Candidate) -> f64, rng: &mut impl RngCore) -> Candidate {
        let best = self.candidates.iter().map(&cost).fold(f64::INFINITY, f64::min);
        let equal = self.candidates.iter().filter(|candidate| cost(candidate) <= best);
        draw(equal, |candidate| f64::from(candidate.requests), rng)
    }

    fn next_in_turn(&self) -> Candidate {
        let after = self.candidates.iter().find(|candidate| Some(candidate.id) > self.last);
        *after.unwrap_or(&self.candidates[0])
    }
}

impl Candidate {
    fn new(replica: &Replica, outlook: &Outlook, work: Work, behind: f64, now: Instant) -> Self {
        let uncached_tokens = f64::from(work.uncached_tokens);
        let ttft_s = outlook.ttft_s(uncached_tokens, work.kv_tokens);
        Self {
            id: replica.id(),
            endpoint_hash: replica.endpoint_hash,
            requests: outlook.occupancy,
            kv_share: outlook.kv.map_or_else(|| outlook.places_share(), |(used, pool)| used / pool),
            work,
            ttft_s,
            cost_s: ttft_s + behind * uncached_tokens / outlook.prefill_tokens_per_s,
            is_probe: matches!(replica.breaker().circuit(now), Circuit::Probing { .. }),
        }
    }
}

/// Requests of ours that each second of prefill delays: those that wait for their first token on a replica of the
/// quieter quarter, but for the one whose turn it is.
///
/// Without this price a busy fleet computes prefixes anew to spare one request a little, and grows busier. It is the
/// quieter quarter because a few that are swamped (a burst for one prefix) are no reason to spare the idle.
fn requests_behind<'a>(replicas: impl Iterator<Item = &'a Replica>, waiting: &mut Vec<u32>) -> f64 {
    waiting.clear();
    waiting.extend(replicas.map(|replica| replica.load().requests() - replica.load().decoding()));
    if waiting.is_empty() {
        return 0.0;
    }
    let quarter = waiting.len() / 4;
    f64::from(waiting.select_nth_unstable(quarter).1.saturating_sub(1))
}

/// One of the least by `cost`, each with the same chance.
fn draw<'a>(
    from: impl Iterator<Item = &'a Candidate>,
    cost: impl Fn(&Candidate) -> f64,
    rng: &mut impl RngCore,
) -> Candidate {
    let mut winner: Option<&Candidate> = None;
    let mut equals = 0;
    for candidate in from {
        let ahead =
            winner.map_or(std::cmp::Ordering::Less, |winner| cost(candidate).total_cmp(&cost(winner)));
        equals = match ahead {
            std::cmp::Ordering::Less => 1,
            std::cmp::Ordering::Equal => equals + 1,
            std::cmp::Ordering::Greater => continue,
        };
        if equals == 1 || rng.next_u32().is_multiple_of(equals) {
            winner = Some(candidate);
        }
    }
    *winner.expect("there is a candidate, and the best is among the best")
}

/// Tokens under so many matched pieces; at least one token is always computed.
fn cached_tokens(pieces: u32, prompt_bytes: u32, prompt_tokens: u32) -> u32 {
    let bytes = u64::from(pieces) * PIECE_BYTES as u64;
    let tokens = bytes * u64::from(prompt_tokens) / u64::from(prompt_bytes.max(1));
    (tokens as u32).min(prompt_tokens.saturating_sub(1))
}

/// Spreads the bits of a hash (the finish of `SplitMix64`).
fn mix(hash: u64) -> u64 {
    let hash = (hash ^ (hash >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let hash = (hash ^ (hash >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    hash ^ (hash >> 31)
}

#[cfg(test)]
mod tests;
