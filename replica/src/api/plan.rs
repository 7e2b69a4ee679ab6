//! A request that was understood: nothing in it can be wrong any more, and all that is left is to run it.

use replica_core::sequence::{Request, Wants};
use shared::id::SequenceId;
use shared::time::Instant;

use super::answer::Echo;
use super::options::Options;
use super::served::Served;
use super::tokenizer::Tokenizer;
use crate::error::Error;

/// Which of the two APIs asked.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Shape {
    /// Messages in, a message out.
    Chat,
    /// Text in, text out; `echo` shows the prompt too.
    Completion {
        /// See above.
        echo: bool,
    },
}

/// One prompt.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Prompt {
    /// Its tokens, never none.
    pub tokens: Vec<u32>,
    /// Its text, where it came as text.
    pub text: Option<String>,
}

/// Prompts times `n` choices.
#[derive(Debug)]
pub struct Plan {
    /// The API.
    pub shape: Shape,
    /// At least one.
    pub prompts: Vec<Prompt>,
    /// What all choices share.
    pub options: Options,
    /// Most answer tokens, a prompt each.
    pub answer_tokens_max: Vec<u32>,
    wants: Wants,
    chain_seed: shared::id::BlockHash,
}

impl Plan {
    /// Checks the lengths.
    ///
    /// # Errors
    ///
    /// `context_length_exceeded`, blamed on `param` or on the field that asked for too much.
    pub fn new(
        shape: Shape,
        prompts: Vec<Prompt>,
        options: Options,
        wants: Wants,
        served: &Served,
        param: &'static str,
    ) -> Result<Self, Error> {
        let room = |prompt: &Prompt| {
            let max = served.answer_tokens_max(prompt.tokens.len(), options.answer_tokens_max, param)?;
            if options.answer_tokens_min > max {
                return Err(Error::field(
                    "min_tokens",
                    format!("min_tokens is more than the {max} that may come"),
                ));
            }
            Ok(max)
        };
        let answer_tokens_max = prompts.iter().map(room).collect::<Result<_, _>>()?;
        let chain_seed = served.chain_seed(&options.cache_salt);
        Ok(Self { shape, prompts, options, answer_tokens_max, wants, chain_seed })
    }

    /// Whether answers begin with their prompts.
    pub fn echo(&self) -> bool {
        self.shape == Shape::Completion { echo: true }
    }

    /// The prompt of choice `index` as it is shown.
    pub fn echo_of(&self, index: usize, tokenizer: &Tokenizer) -> Echo {
        let Prompt { tokens, text } = &self.prompts[index / self.options.n as usize];
        let text = text.clone().unwrap_or_else(|| tokenizer.decode(tokens, self.options.skip_special));
        Echo { text, first_token: tokens[0] }
    }

    /// Choices in all.
    pub fn choices(&self) -> usize {
        self.prompts.len() * self.options.n as usize
    }

    /// What the engine runs for choice `index`. Choices of one prompt differ by their seeds alone, so that the
    /// first equals the only one of a request with `n` 1.
    pub fn request(
        &self,
        index: usize,
        id: SequenceId,
        arrival: Instant,
        deadline: Option<Instant>,
    ) -> Request {
        let prompt = index / self.options.n as usize;
        let mut sampling = self.options.sampling.clone();
        sampling.seed = sampling.seed.wrapping_add((index % self.options.n as usize) as u64);
        Request {
            id,
            tokens: self.prompts[prompt].tokens.clone(),
            answered: 0,
            answer_tokens_max: self.answer_tokens_max[prompt],
            answer_tokens_min: self.options.answer_tokens_min,
            stop_tokens: self.options.stop_tokens.clone(),
            sampling,
            chain_seed: self.chain_seed,
            priority: self.options.priority,
            arrival,
            deadline,
            wants: self.wants,
        }
    }
}
