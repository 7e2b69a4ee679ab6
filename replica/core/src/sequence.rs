//! A request inside a replica: what it asks for, its tokens so far, the blocks it holds.

use std::time::Duration;

use shared::id::{BlockHash, SequenceId};
use shared::time::Instant;

use crate::sampler::Sampling;

/// What the server hands to the scheduler. Already validated: the prompt is not empty and fits the context.
#[derive(Clone, PartialEq, Debug)]
pub struct Request {
    /// Its name for the life of the replica.
    pub id: SequenceId,
    /// Prompt tokens, then any answer tokens that another replica gave already (see `answered`).
    pub tokens: Vec<u32>,
    /// How many of `tokens`, at the end, are answer tokens of an earlier attempt: penalties and the
    /// random source count them as answer, and sampling goes on with index `answered`.
    pub answered: u32,
    /// The most answer tokens, `answered` included.
    pub answer_tokens_max: u32,
    /// Not to end before this many answer tokens.
    pub answer_tokens_min: u32,
    /// Tokens that end the answer (end of sequence and the request's own).
    pub stop_tokens: Vec<u32>,
    /// How a token is drawn.
    pub sampling: Sampling,
    /// Seed of the block-hash chain: model, tokenizer revision and cache salt.
    pub chain_seed: BlockHash,
    /// Lower runs first where priorities are on.
    pub priority: i32,
    /// When it came.
    pub arrival: Instant,
    /// Dropped unprefilled when still waiting then.
    pub deadline: Option<Instant>,
    /// What comes back besides tokens.
    pub wants: Wants,
}

/// What an answer is made of.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Wants {
    /// Sampled tokens.
    #[default]
    Tokens,
    /// Sampled tokens, and log-probabilities of the prompt.
    PromptLogprobs,
    /// The final hidden states of the prompt; nothing is sampled.
    Hidden,
}

/// Why a sequence ended.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Finish {
    /// A stop token came; it is not part of the answer. Holds the token.
    Stop(u32),
    /// `answer_tokens_max` or the context is reached.
    Length,
    /// The client left, or the server asked.
    Aborted,
    /// Its deadline passed while it waited.
    Expired,
    /// This sequence alone failed (not-a-number logits, say); the others go on.
    Failed(String),
}

/// When a sequence ran, told with its first token.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Timing {
    /// From arrival to the first row scheduled.
    pub queue: Duration,
    /// From there to the first token.
    pub prefill: Duration,
    /// Prompt tokens that were found in the cache.
    pub cached_tokens: u32,
}
