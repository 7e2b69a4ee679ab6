//! A request inside a replica: what it asks for, its tokens so far, the blocks it holds.

use std::time::Duration;

use shared::id::{BlockHash, SequenceId};
use shared::time::Instant;

use crate::batch::{BlockId, Output};
use crate::sampler::{History, Sampling};
use crate::scheduler::Turn;

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
    /// Sampled tokens, and log-probabilities of the prompt: each token's own and so many of the best.
    PromptLogprobs(u32),
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

/// A request in flight. Its tokens grow; `computed` of them have their KV in `table`.
#[derive(Debug)]
pub struct Sequence {
    pub(crate) request: Request,
    /// Where it stands in line.
    pub(crate) turn: Turn,
    /// Tokens that came with the request.
    given_tokens: u32,
    pub(crate) computed: u32,
    /// Rows from the start whose outputs went out already (`Wants::PromptLogprobs` and `Hidden`).
    pub(crate) reported: u32,
    pub(crate) table: Vec<BlockId>,
    /// Names of the full blocks of its tokens; may run ahead of `computed`.
    pub(crate) chain: Vec<BlockHash>,
    /// What penalties count.
    pub(crate) history: History,
    /// When its first row was planned.
    pub(crate) started: Option<Instant>,
    /// Tokens found in the cache when it was first admitted.
    pub(crate) cached_tokens: u32,
    /// Tokens of it that the cache had when somebody last looked.
    pub(crate) cached_guess: u32,
    /// Later ones that were admitted before it because they needed fewer blocks.
    pub(crate) passed: u32,
    /// Rows of it in the planned step.
    pub(crate) planned: u32,
    /// Whether a token is to be drawn from the planned step.
    pub(crate) draws: bool,
    /// Whether `Event::Started` went out.
    pub(crate) told: bool,
}

impl Sequence {
    pub(crate) fn new(request: Request, turn: Turn) -> Self {
        let history = History::new(&request.sampling, &request.tokens, request.answered);
        Self {
            turn,
            given_tokens: request.tokens.len() as u32,
            computed: 0,
            reported: 0,
            table: Vec::new(),
            chain: Vec::new(),
            history,
            started: None,
            cached_tokens: 0,
            cached_guess: 0,
            passed: 0,
            planned: 0,
            draws: false,
            told: false,
            request,
        }
    }

    /// Its name.
    pub fn id(&self) -> SequenceId {
        self.request.id
    }

    /// What it asks for.
    pub fn request(&self) -> &Request {
        &self.request
    }

    /// All its tokens: prompt, then answer.
    pub fn tokens(&self) -> &[u32] {
        &self.request.tokens
    }

    /// Tokens of its answer so far, those of an earlier attempt included: the index of the next one.
    pub fn answer_tokens(&self) -> u32 {
        self.len() - self.given_tokens + self.request.answered
    }

    /// The answer so far.
    pub fn answer(&self) -> &[u32] {
        let answer = (self.len() - self.answer_tokens()) as usize;
        &self.request.tokens[answer..]
    }

    pub(crate) fn len(&self) -> u32 {
        self.request.tokens.len() as u32
    }

    /// Rows to run before its next token can be drawn; one when it decodes.
    pub(crate) fn left(&self) -> u32 {
        self.len() - self.computed
    }

    /// Whether a token is drawn once nothing is left to compute.
    pub(crate) fn wants_token(&self) -> bool {
        self.request.wants != Wants::Hidden && self.answer_tokens() < self.request.answer_tokens_max
    }

    /// Whether what is computed may come from the cache: not where every row's output is wanted.
    pub(crate) fn may_reuse(&self) -> bool {
        self.request.wants == Wants::Tokens
    }

    /// How many of the next `rows` may run in one go: outputs are told once, so after a preemption the rows
    /// that went out already and those that did not are different chunks.
    pub(crate) fn untorn(&self, rows: u32) -> u32 {
        let is_torn = self.computed < self.reported && self.reported < self.given_tokens;
        if is_torn && !self.may_reuse() { rows.min(self.reported - self.computed) } else { rows }
    }

    /// Which of the next `rows` give outputs.
    pub(crate) fn output(&self, rows: u32) -> Output {
        let ends = rows == self.left();
        match self.request.wants {
            Wants::PromptLogprobs(_)
                if self.computed >= self.reported && self.computed < self.given_tokens =>
            {
                Output::Every
            }
            Wants::Hidden if self.computed >= self.reported => Output::Hidden,
            Wants::Hidden => Output::Nothing,
            _ if ends && self.wants_token() => Output::Last,
            _ => Output::Nothing,
        }
    }

    /// Its place in line and its blocks are gone; its tokens stay, to be computed again.
    pub(crate) fn reset(&mut self) {
        assert!(self.table.is_empty(), "{:?} loses blocks", self.id());
        self.computed = 0;
        self.planned = 0;
        self.draws = false;
    }
}
