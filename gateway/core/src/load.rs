//! What this gateway has sent to one replica and not had back, joined with what the replica reports.
//!
//! Own counts are the base truth: they change at the moment of choosing, so a burst spreads. A report adds what
//! others sent and what is already done; it was true when it was taken, so what we sent or got back since then is
//! added and subtracted. It knows nothing of rates or costs.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use shared::id::ReplicaId;
use shared::time::Instant;

use crate::health::Pass;
use crate::replica::ModelKey;

/// Ends remembered between two reports; older ones are simply forgotten, which over-counts until the next one.
const ENDS_MAX: usize = 1024;

/// How long a sample is worth more than own counts alone.
pub const FRESH: Duration = Duration::from_secs(5);

/// Size of a KV pool of which only the share in use is known, in tokens.
const KV_TOKENS_ASSUMED: u64 = 65_536;

/// One request's weight on a replica.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Share {
    /// Prompt tokens it must compute.
    pub prompt_tokens: u32,
    /// KV tokens it will hold: uncached prompt and the answer expected.
    pub kv_tokens: u32,
}

/// Proof that a request was counted. It goes back by [`crate::fleet::Fleet::end`], whatever the outcome.
#[must_use = "a ticket that is not given back counts for ever"]
#[derive(Debug)]
pub struct Ticket {
    pub(crate) replica: ReplicaId,
    pub(crate) epoch: u32,
    pub(crate) serial: u64,
    pub(crate) share: Share,
    pub(crate) began: Instant,
    pub(crate) first_token: Option<Instant>,
    /// What it asked for, to learn how many bytes a token of that model takes.
    pub(crate) model: ModelKey,
    pub(crate) prompt_bytes: u32,
    /// What the circuit let it through as.
    pub(crate) pass: Pass,
    /// Prompt tokens ahead of it and the slowdown by decoding, for learning; `None` when it had to wait for more.
    pub(crate) ahead: Option<(f64, f64)>,
    /// Seconds to the first token that the fleet's rates explain, once it has any.
    pub(crate) usual_ttft_s: Option<f64>,
}

impl Ticket {
    /// Where the request went.
    pub fn replica(&self) -> ReplicaId {
        self.replica
    }

    /// When it was counted.
    pub fn began(&self) -> Instant {
        self.began
    }
}

/// What a replica said about itself; `None` is unknown, never zero.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct Sample {
    /// Sequences running, and the most there can be.
    pub running: Option<u32>,
    /// See `running`.
    pub running_max: Option<u32>,
    /// Sequences waiting, and the most that may.
    pub waiting: Option<u32>,
    /// See `waiting`.
    pub waiting_max: Option<u32>,
    /// Prompt tokens not computed yet.
    pub waiting_tokens: Option<u64>,
    /// Share of the KV pool in use, 0 to 1.
    pub kv_usage: Option<f64>,
    /// Size of the KV pool in tokens.
    pub kv_tokens_max: Option<u64>,
    /// Longest sequence it accepts.
    pub context_tokens_max: Option<u32>,
    /// Its own measure of its prefill rate.
    pub prefill_tokens_per_s: Option<f64>,
}

/// Own counts and the last sample.
#[derive(Clone, Debug, Default)]
pub struct Load {
    live: BTreeMap<u64, Live>,
    prompt_tokens: u64,
    kv_tokens: u64,
    decoding: u32,
    sample: Option<(Sample, Instant)>,
    since: Since,
    ends: VecDeque<End>,
}

#[derive(Clone, Copy, Debug)]
struct Live {
    began: Instant,
    share: Share,
    is_prefilling: bool,
}

#[derive(Clone, Copy, Debug)]
struct End {
    at: Instant,
    began: Instant,
    kv_tokens: u32,
}

/// Difference between the sample and now.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
struct Since {
    begun: u32,
    begun_prompt_tokens: u64,
    begun_kv_tokens: u64,
    ended: u32,
    ended_kv_tokens: u64,
}

impl Load {
    /// Counts a request that is being sent.
    pub(crate) fn begin(&mut self, serial: u64, share: Share, now: Instant) {
        self.live.insert(serial, Live { began: now, share, is_prefilling: true });
        self.prompt_tokens += u64::from(share.prompt_tokens);
        self.kv_tokens += u64::from(share.kv_tokens);
        if self.is_since_sample(now) {
            self.since.begun += 1;
            self.since.begun_prompt_tokens += u64::from(share.prompt_tokens);
            self.since.begun_kv_tokens += u64::from(share.kv_tokens);
        }
    }

    /// Its prompt is computed.
    pub(crate) fn first_token(&mut self, serial: u64) {
        let Some(live) = self.live.get(&serial).copied().filter(|live| live.is_prefilling) else { return };
        let is_new = self.is_since_sample(live.began);
        self.prompt_done(live, is_new);
        self.decoding += 1;
        if let Some(live) = self.live.get_mut(&serial) {
            live.is_prefilling = false;
        }
    }

    /// Takes a request back.
    pub(crate) fn end(&mut self, serial: u64, now: Instant) {
        let Some(live) = self.live.remove(&serial) else { return };
        let is_new = self.is_since_sample(live.began);
        if live.is_prefilling {
            self.prompt_done(live, is_new);
        } else {
            self.decoding -= 1;
        }
        let kv_tokens = live.share.kv_tokens;
        self.kv_tokens -= u64::from(kv_tokens);
        if is_new {
            self.since.begun -= 1;
            self.since.begun_kv_tokens -= u64::from(kv_tokens);
        } else {
            self.since.ended += 1;
            self.since.ended_kv_tokens += u64::from(kv_tokens);
        }
        if self.ends.len() == ENDS_MAX {
            self.ends.pop_front();
        }
        self.ends.push_back(End { at: now, began: live.began, kv_tokens });
    }

    /// Takes in a report that was true at `at`; an older one than the last is ignored.
    pub(crate) fn report(&mut self, sample: Sample, at: Instant) {
        if self.sample.is_some_and(|(_, known)| known > at) {
            return;
        }
        self.sample = Some((sample, at));
        self.ends.retain(|end| end.at >= at && end.began < at);
        self.since = Since {
            ended: self.ends.len() as u32,
            ended_kv_tokens: self.ends.iter().map(|end| u64::from(end.kv_tokens)).sum(),
            ..Since::default()
        };
        // Serials grow with time, so what began since the sample is at the end.
        for live in self.live.values().rev().take_while(|live| live.began >= at) {
            self.since.begun += 1;
            self.since.begun_kv_tokens += u64::from(live.share.kv_tokens);
            if live.is_prefilling {
                self.since.begun_prompt_tokens += u64::from(live.share.prompt_tokens);
            }
        }
    }

    /// Requests of ours there.
    pub fn requests(&self) -> u32 {
        self.live.len() as u32
    }

    /// Requests of ours there that have begun to answer.
    pub fn decoding(&self) -> u32 {
        self.decoding
    }

    /// Prompt tokens of ours not known to be computed.
    pub fn prompt_tokens(&self) -> u64 {
        self.prompt_tokens
    }

    /// The last sample, whatever its age.
    pub fn sample(&self) -> Sample {
        self.sample.map(|(sample, _)| sample).unwrap_or_default()
    }

    /// When the last sample was taken.
    pub fn sampled_at(&self) -> Option<Instant> {
        self.sample.map(|(_, at)| at)
    }

    fn fresh(&self, now: Instant) -> Option<(Sample, Duration)> {
        self.sample.map(|(sample, at)| (sample, now.since(at))).filter(|(_, age)| *age <= FRESH)
    }

    /// Requests there, running and waiting, whoever sent them.
    pub fn occupancy(&self, now: Instant) -> u32 {
        let own = self.requests();
        let Some((sample, _)) = self.fresh(now) else { return own };
        let Some(running) = sample.running else { return own };
        let reported = (running + sample.waiting.unwrap_or(0)).saturating_sub(self.since.ended);
        own.max(reported + self.since.begun)
    }

    /// Prompt tokens still to be computed there, when it computes `rate` of them a second. Where it says only how
    /// many requests wait, each is taken to have `prompt_tokens`.
    pub fn queued_tokens(&self, rate: f64, prompt_tokens: f64, now: Instant) -> f64 {
        let own = self.prompt_tokens as f64;
        let Some((sample, age)) = self.fresh(now) else { return own };
        let since = self.since.begun_prompt_tokens as f64;
        let left = |tokens: f64| (tokens - rate * age.as_secs_f64()).max(0.0);
        match (sample.waiting_tokens, sample.waiting) {
            (Some(tokens), _) => left(tokens as f64) + since,
            (None, Some(waiting)) => own.max(left(f64::from(waiting) * prompt_tokens) + since),
            (None, None) => own,
        }
    }

    /// Tokens of the KV pool in use and its size; `None` where nothing is known of either.
    pub fn kv_tokens(&self, now: Instant) -> Option<(f64, f64)> {
        let size = self.sample().kv_tokens_max.filter(|&tokens| tokens > 0);
        let usage = self.fresh(now).and_then(|(sample, _)| sample.kv_usage);
        let own = self.kv_tokens as f64;
        match (size, usage) {
            (None, None) => None,
            (Some(size), None) => Some((own, size as f64)),
            (size, Some(usage)) => {
                let pool = size.unwrap_or(KV_TOKENS_ASSUMED) as f64;
                let used = usage * pool - self.since.ended_kv_tokens as f64;
                Some((used.max(0.0) + self.since.begun_kv_tokens as f64, pool))
            }
        }
    }

    /// Panics unless the sums are those of the live requests.
    pub fn check_invariants(&self) {
        let sum = |of: fn(&Live) -> u64| self.live.values().map(of).sum::<u64>();
        let prompt = sum(|live| if live.is_prefilling { u64::from(live.share.prompt_tokens) } else { 0 });
        assert_eq!(self.prompt_tokens, prompt, "prompt tokens");
        assert_eq!(self.kv_tokens, sum(|live| u64::from(live.share.kv_tokens)), "kv tokens");
        assert_eq!(u64::from(self.decoding), sum(|live| u64::from(!live.is_prefilling)), "decoding");
        let begun = self.live.values().filter(|live| self.is_since_sample(live.began)).count();
        assert_eq!(self.since.begun as usize, begun, "begun since the sample");
        assert!(self.ends.len() <= ENDS_MAX);
    }

    fn is_since_sample(&self, began: Instant) -> bool {
        self.sample.is_none_or(|(_, at)| began >= at)
    }

    fn prompt_done(&mut self, live: Live, is_since_sample: bool) {
        let tokens = u64::from(live.share.prompt_tokens);
        self.prompt_tokens -= tokens;
        if is_since_sample {
            self.since.begun_prompt_tokens -= tokens;
        }
    }
}

#[cfg(test)]
mod tests;
