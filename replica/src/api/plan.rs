//! A request that was understood: nothing in it can be wrong any more, and all that is left is to run it.

use replica_core::sequence::{Request, Wants};
use serde_json::{Map, Value};
use shared::id::SequenceId;
use shared::time::Instant;
use shared::wire::CONTINUATION_FIELD;

use super::answer::Echo;
use super::content::{Content, Thoughts};
use super::fields::Fields;
use super::landing::{Landed, Landing};
use super::options::Options;
use super::served::Served;
use super::structure::{Compiled, Structure};
use super::tokenizer::Tokenizer;
use crate::error::Error;

/// Which of the two APIs asked.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Shape {
    /// Messages in, a message out.
    Chat,
    /// Items in, items out.
    Response,
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
    /// How answers are read.
    pub content: Content,
    /// What answers must be.
    pub structure: Option<Compiled>,
    /// Pieces of the request's text and the blocks they end in.
    pub landed: Vec<Landed>,
    /// What a response repeats of its request.
    pub repeated: Map<String, Value>,
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
        let plan = Self {
            shape,
            prompts,
            options,
            content: Content::default(),
            structure: None,
            landed: Vec::new(),
            repeated: Map::new(),
            answer_tokens_max,
            wants,
            chain_seed,
        };
        plan.check_continuation()?;
        Ok(plan)
    }

    /// Bounds the answers by `structure`; after the thoughts, where the prompt opens them.
    pub fn bound(
        &mut self,
        structure: Option<&Structure>,
        thinks_first: bool,
        fields: &Fields<'_>,
        served: &Served,
    ) -> Result<(), Error> {
        let Some(structure) = structure else { return Ok(()) };
        if fields.boolean("ignore_eos")?.unwrap_or(false) {
            return Err(fields
                .refuse("ignore_eos", "can't be used with a structure: the answer ends where that does"));
        }
        let after = thinks_first.then(|| served.tokenizer.token(Thoughts::CLOSE)).flatten();
        let compiled = served.grammars.compile(structure, after, &served.tokenizer, &served.end_tokens);
        let name = structure.param();
        self.structure =
            Some(compiled.map_err(|what| fields.refuse(name, &format!("can't be compiled: {what}")))?);
        Ok(())
    }

    /// Finds where the pieces of the request's text landed. `body` is what was sent, `tools` its tools' bytes.
    pub fn land(&mut self, body: &Value, tools: &[u8], served: &Served) {
        let [Prompt { tokens, text: Some(text) }] = &self.prompts[..] else { return };
        let landing = Landing::new(&served.names[0], &self.options.cache_salt, tools);
        let landing = match self.shape {
            Shape::Completion { .. } => landing.of_text(text),
            Shape::Chat => landing.of_chat(body["messages"].as_array().map_or(&[], |all| &all[..]), text),
            Shape::Response => return,
        };
        self.landed = landing.blocks(self.chain_seed, tokens, &served.tokenizer);
    }

    /// An answer that goes on is one answer.
    fn check_continuation(&self) -> Result<(), Error> {
        let begun = self.answered().len();
        if begun > 0 && (self.choices() > 1 || self.echo()) {
            return Err(Error::field(CONTINUATION_FIELD, "only one answer without echo can go on"));
        }
        if begun as u64 > u64::from(self.answer_tokens_max[0]) {
            let message = format!("the answer begins with {begun} tokens, which is more than it may have");
            return Err(Error::field(format!("{CONTINUATION_FIELD}.answer_ids"), message));
        }
        Ok(())
    }

    /// Whether choice `index` has all its tokens already.
    pub fn is_complete(&self, index: usize) -> bool {
        self.answered().len() as u64 >= u64::from(self.answer_tokens_max[index / self.options.n as usize])
    }

    /// Tokens of the answer that another replica gave.
    pub fn answered(&self) -> &[u32] {
        self.options.continuation.as_ref().map_or(&[], |begun| &begun.answer_ids)
    }

    /// Whether answers begin with their prompts.
    pub fn echo(&self) -> bool {
        self.shape == Shape::Completion { echo: true }
    }

    /// Log-probabilities of a prompt come with its first choice, and with others only where they show them.
    fn wants(&self, index: usize) -> Wants {
        let is_first = index.is_multiple_of(self.options.n as usize);
        let shows = is_first || (self.echo() && self.options.sampling.logprobs.is_some());
        match self.wants {
            Wants::PromptLogprobs(_) if !shows => Wants::Tokens,
            wants => wants,
        }
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
            tokens: [&self.prompts[prompt].tokens, self.answered()].concat(),
            answered: self.answered().len() as u32,
            answer_tokens_max: self.answer_tokens_max[prompt],
            answer_tokens_min: self.options.answer_tokens_min,
            stop_tokens: self.options.stop_tokens.clone(),
            sampling,
            chain_seed: self.chain_seed,
            priority: self.options.priority,
            arrival,
            deadline,
            wants: self.wants(index),
        }
    }
}
