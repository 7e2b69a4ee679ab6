//! Decides what the next step computes and what its outcome means.
//!
//! Pure: it is told the time and the drawn tokens, and it neither runs a model nor knows who listens.
//! One call of [`Scheduler::schedule`] plans a step, one of [`Scheduler::commit`] accounts for it:
//!
//! 1. every decoding sequence gets its row first, the youngest are preempted when blocks run out;
//! 2. what is left of the step's budget goes to prompts, in two lanes (see [`lanes`]);
//! 3. nobody is admitted in a step that preempted, and nobody unless the whole prompt and a reserve fit.
//!
//! The engine's loop is: `schedule`, forward, [`Scheduler::draw`] for every share that
//! [`Scheduler::draws`], `commit`.

use std::time::Duration;

use shared::id::SequenceId;
use shared::time::Instant;

use crate::batch::{Batch, Share};
use crate::sampler::{Sampled, Sampler, Undrawable};
use crate::sequence::{Finish, Request, Timing};

/// Who goes first.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Policy {
    /// In the order of arrival.
    #[default]
    Fcfs,
    /// By `Request::priority`, lower first; equals in the order of arrival.
    Priority,
}

/// What the scheduler may use.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Limits {
    /// Blocks in the KV pool.
    pub blocks: u32,
    /// Tokens a block holds.
    pub block_tokens: u32,
    /// Most sequences that hold blocks at once.
    pub running_max: u32,
    /// Most sequences that wait.
    pub waiting_max: u32,
    /// Longest sequence, prompt and answer together.
    pub context_tokens_max: u32,
    /// Most rows in one step (vLLM's `max_num_batched_tokens`).
    pub step_tokens_max: u32,
    /// How long a step should take at most; the prompt's share of a step adapts to it. `None` always
    /// fills a step up to `step_tokens_max`.
    pub step_target: Option<Duration>,
    /// Who goes first.
    pub policy: Policy,
    /// Whether finished and shared prefixes are found again.
    pub prefix_caching: bool,
    /// Blocks that must stay free for each running sequence, the new one included, when one is admitted.
    pub reserve_blocks: u32,
}

/// Why a request was not taken.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Refusal {
    /// The queue is at its bound: 429.
    Full {
        /// Sequences that wait.
        waiting: u32,
    },
    /// Longer than a sequence can ever be here: 400.
    NeverFits {
        /// Tokens that the pool (or the context, when shorter) holds.
        pool_tokens: u32,
    },
}

/// What happened to a sequence.
#[derive(Clone, PartialEq, Debug)]
pub enum Event {
    /// Comes once, before the first token.
    Started(Timing),
    /// The next token of the answer. The stop token that ends one is not sent.
    Token(Sampled),
    /// It gave its blocks back and waits again; nothing is lost but time. For logs and counters.
    Preempted,
    /// The end; nothing follows, and its blocks are free.
    Finished(Finish),
}

/// What a draw came to; the text tells why a sequence failed.
pub type Drawn = (SequenceId, Result<Sampled, String>);

/// How busy the scheduler is, and what it has done so far.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct Load {
    /// Sequences that hold blocks.
    pub running: u32,
    /// Sequences that wait.
    pub waiting: u32,
    /// Tokens still to be prefilled over all sequences, cached ones among the waiting included.
    pub waiting_tokens: u64,
    /// Blocks that nobody holds (cached ones count as free).
    pub blocks_free: u32,
    /// Blocks in the pool.
    pub blocks: u32,
    /// Measured prefill rate in tokens a second.
    pub prefill_tokens_per_s: Option<f64>,
    /// Measured decode rate in tokens a second over all sequences.
    pub decode_tokens_per_s: Option<f64>,
    /// Tokens looked up in the prefix cache since the start.
    pub cache_query_tokens: u64,
    /// Tokens found there.
    pub cache_hit_tokens: u64,
    /// Preemptions since the start.
    pub preemptions: u64,
}

/// Owns the queue, the running set and the blocks of one replica.
#[derive(Debug)]
pub struct Scheduler {
    limits: Limits,
}

impl Scheduler {
    /// An idle one. Limits that contradict each other are made to agree; [`Scheduler::limits`] tells them.
    pub fn new(limits: Limits) -> Self {
        Self { limits }
    }

    /// The limits in force: a context never exceeds the pool, a step has room for a row of every running
    /// sequence and one block of a prompt.
    pub fn limits(&self) -> &Limits {
        &self.limits
    }

    /// Puts a request in the queue.
    pub fn add(&mut self, _request: Request, _now: Instant) -> Result<(), Refusal> {
        unimplemented!()
    }

    /// Forgets a sequence and frees its blocks at once; no event follows. Whether it was there.
    pub fn abort(&mut self, _id: SequenceId) -> bool {
        unimplemented!()
    }

    /// Plans a step into `batch` (cleared first, its memory reused). Events are of sequences that expired
    /// or were preempted. An empty batch means that there is nothing to run now.
    pub fn schedule(&mut self, _now: Instant, _batch: &mut Batch, _events: &mut Vec<(SequenceId, Event)>) {
        unimplemented!()
    }

    /// Whether a token is to be drawn from the last row of this share of the planned step.
    pub fn draws(&self, _share: &Share) -> bool {
        unimplemented!()
    }

    /// Draws the token of a share from the logits of its last row.
    pub fn draw(
        &self,
        _share: &Share,
        _logits: &mut [f32],
        _sampler: &mut Sampler,
    ) -> Result<Sampled, Undrawable> {
        unimplemented!()
    }

    /// Accounts for the planned step, which took `took`. `drawn` (emptied here) has one entry for every
    /// share that draws, and may have an error for any other share; order does not matter.
    pub fn commit(
        &mut self,
        _now: Instant,
        _took: Duration,
        _drawn: &mut Vec<Drawn>,
        _events: &mut Vec<(SequenceId, Event)>,
    ) {
        unimplemented!()
    }

    /// Whether no sequence waits or runs.
    pub fn is_idle(&self) -> bool {
        unimplemented!()
    }

    /// How busy it is.
    pub fn load(&self) -> Load {
        unimplemented!()
    }
}
