//! What a scheduler may use, and what it refuses.

use std::time::Duration;

use crate::prefix_cache::extend_chain;
use crate::sequence::Sequence;

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
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
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
    /// How long a step should take at most; the prompts' share of a step adapts to it. `None` always
    /// fills a step up to `step_tokens_max`.
    pub step_target: Option<Duration>,
    /// Who goes first.
    pub policy: Policy,
    /// Whether finished and shared prefixes are found again.
    pub prefix_caching: bool,
    /// Blocks that must stay free for each running sequence, the new one included, when one is admitted.
    pub reserve_blocks: u32,
}

impl Limits {
    /// Limits that agree with each other: a context never exceeds the pool, a step has room for a row of
    /// every running sequence and one block of a prompt.
    pub(super) fn agreed(self) -> Self {
        assert!(self.blocks > 0 && self.block_tokens > 0, "a pool without a block serves nobody");
        let step_tokens_max = self.step_tokens_max.max(self.block_tokens + 1);
        Self {
            step_tokens_max,
            running_max: self.running_max.clamp(1, step_tokens_max - self.block_tokens),
            context_tokens_max: self.context_tokens_max.min(self.blocks.saturating_mul(self.block_tokens)),
            ..self
        }
    }

    /// Brings the chain of a sequence's full blocks up to its tokens.
    pub(super) fn name_blocks(&self, sequence: &mut Sequence) {
        if self.prefix_caching {
            let request = &sequence.request;
            extend_chain(&mut sequence.chain, request.chain_seed, &request.tokens, self.block_tokens);
        }
    }

    /// Blocks that hold so many tokens.
    pub fn blocks_of(&self, tokens: u32) -> u32 {
        tokens.div_ceil(self.block_tokens)
    }
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
