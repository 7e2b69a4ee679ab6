//! One loaded model and all that is needed to answer for it.

use shared::id::BlockHash;
use shared::wire::RankReport;
use xxhash_rust::xxh3::Xxh3;

use super::dialect::Dialect;
use super::fields::Fields;
use super::structure::Grammars;
use super::template::Template;
use super::tokenizer::Tokenizer;
use crate::engine::Handle;
use crate::error::Error;
use crate::weights::GenerationDefaults;

/// Made once, when the weights are in memory; shared by all requests.
#[derive(Debug)]
pub struct Served {
    /// Names it answers to; the first is told.
    pub names: Vec<String>,
    /// Text to tokens and back.
    pub tokenizer: Tokenizer,
    /// Chats to text; models without one only complete.
    pub template: Option<Template>,
    /// How it writes tool calls and thoughts.
    pub dialect: Dialect,
    /// Compiled structures.
    pub grammars: Grammars,
    /// The way to the engine.
    pub engine: Handle,
    /// Longest sequence, in tokens.
    pub context_tokens_max: u32,
    /// Tokens the whole KV pool can hold.
    pub pool_tokens: u32,
    /// Rows of the embedding.
    pub vocab_tokens: u32,
    /// Tokens that end every answer.
    pub end_tokens: Vec<u32>,
    /// What the model's makers recommend.
    pub generation: GenerationDefaults,
    /// Seed of requests that bring none.
    pub seed: Option<u64>,
    /// What weights and tokenizer are.
    pub revision: String,
    /// Arithmetic of the weights as kept.
    pub dtype: String,
    /// Memory, a rank each.
    pub ranks: Vec<RankReport>,
}

impl Served {
    /// The name a request uses, or the first one where it names none.
    pub fn requested_model(&self, fields: &Fields<'_>) -> Result<String, Error> {
        match fields.string("model")? {
            None => Ok(self.names[0].clone()),
            Some(name) if self.names.iter().any(|known| known == name) => Ok(name.to_owned()),
            Some(name) => Err(Error::unknown_model(name, &self.names)),
        }
    }

    /// Longest sequence that can ever run here.
    pub fn limit_tokens(&self) -> u32 {
        self.context_tokens_max.min(self.pool_tokens)
    }

    /// Tokens of a prompt's text. One that is far too long is refused by its bytes, since encoding it would take
    /// seconds; nearer the limit it is encoded and counted.
    pub fn encode(&self, text: &str, begin: bool, param: &str) -> Result<Vec<u32>, Error> {
        let least = self.tokenizer.tokens_least(text.len());
        if least > self.limit_tokens() as usize {
            let limit = self.limit();
            return Err(Error::too_long(param, format!("{limit}; the prompt has at least {least} tokens")));
        }
        self.tokenizer.encode(text, begin).map_err(|error| Error::field(param, format!("{param}: {error}")))
    }

    /// Seed of the block-hash chain: KV is shared only under the same model, revision and salt.
    pub fn chain_seed(&self, salt: &str) -> BlockHash {
        let mut seed = Xxh3::new();
        for part in [&self.names[0], &self.revision, salt] {
            seed.update(&(part.len() as u64).to_le_bytes());
            seed.update(part.as_bytes());
        }
        BlockHash(seed.digest128())
    }

    /// How many answer tokens a prompt leaves room for, at most `wanted` (with the field that said so).
    pub fn answer_tokens_max(
        &self,
        prompt_tokens: usize,
        wanted: Option<(u32, &'static str)>,
        param: &'static str,
    ) -> Result<u32, Error> {
        let room = self.limit_tokens().saturating_sub(u32::try_from(prompt_tokens).unwrap_or(u32::MAX));
        match wanted {
            Some((wanted, _)) if room > 0 && wanted <= room => Ok(wanted),
            None if room > 0 => Ok(room),
            wanted => Err(self.too_long(prompt_tokens, wanted, param)),
        }
    }

    /// What limits a sequence, in words.
    fn limit(&self) -> String {
        if self.pool_tokens < self.context_tokens_max {
            return format!(
                "the KV pool of this replica holds {} tokens (less than the model's context of {})",
                self.pool_tokens, self.context_tokens_max
            );
        }
        format!("this model's maximum context length is {} tokens", self.context_tokens_max)
    }

    fn too_long(
        &self,
        prompt_tokens: usize,
        wanted: Option<(u32, &'static str)>,
        param: &'static str,
    ) -> Error {
        let limit = self.limit();
        let asked = match wanted {
            Some((wanted, name)) => format!("the prompt has {prompt_tokens} tokens and {name} is {wanted}"),
            None => format!("the prompt has {prompt_tokens} tokens, which leaves no room for an answer"),
        };
        let prompt_alone = prompt_tokens >= self.limit_tokens() as usize;
        let field = if prompt_alone { param } else { wanted.map_or(param, |(_, name)| name) };
        Error::too_long(field, format!("{limit}; {asked}"))
    }
}
