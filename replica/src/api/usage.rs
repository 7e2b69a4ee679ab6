//! Token counts of one request.

use serde::Serialize;
use serde::ser::SerializeStruct;

/// Tokens over all prompts and choices.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Usage {
    /// Of all prompts, each once.
    pub prompt_tokens: u32,
    /// Of those, found in the cache.
    pub cached_tokens: u32,
    /// Of all choices.
    pub answer_tokens: u32,
    /// Of those, inside thoughts.
    pub thought_tokens: u32,
}

impl Serialize for Usage {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        #[derive(Serialize)]
        struct PromptDetails {
            cached_tokens: u32,
        }
        #[derive(Serialize)]
        struct AnswerDetails {
            reasoning_tokens: u32,
        }
        let mut usage = serializer.serialize_struct("Usage", 5)?;
        usage.serialize_field("prompt_tokens", &self.prompt_tokens)?;
        usage.serialize_field("total_tokens", &(self.prompt_tokens + self.answer_tokens))?;
        usage.serialize_field("completion_tokens", &self.answer_tokens)?;
        let prompt = PromptDetails { cached_tokens: self.cached_tokens };
        usage.serialize_field("prompt_tokens_details", &prompt)?;
        let answer = AnswerDetails { reasoning_tokens: self.thought_tokens };
        usage.serialize_field("completion_tokens_details", &answer)?;
        usage.end()
    }
}
