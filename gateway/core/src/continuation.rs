//! May this broken stream go on elsewhere, and from what?
//!
//! From token ids the continuation is exact: a random number is a function of seed and token index, nothing is
//! tokenised again. From text it is a sensible answer, but not the very same. It builds no body and reads no stream:
//! the caller gathers the facts and turns the plan into a request.

use crate::replica::{Engine, Identity};

/// Which API the stream speaks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Api {
    /// `/v1/chat/completions`.
    Chat,
    /// `/v1/completions`.
    Completions,
    /// Anything else, `/v1/responses` with its own events among it.
    Other,
}

/// A stream that broke after its first byte.
#[expect(clippy::struct_excessive_bools, reason = "independent facts about one stream")]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Broken {
    /// Which API it speaks.
    pub api: Api,
    /// Answers asked for at once.
    pub choices: u32,
    /// Tokens that have reached the client.
    pub tokens_sent: u32,
    /// The most it may have; `None` is up to the end of the context.
    pub tokens_max: Option<u32>,
    /// The ids of all tokens sent are known (our replicas add them).
    pub has_ids: bool,
    /// A tool call was begun.
    pub is_in_tool_call: bool,
    /// The answer must follow a grammar or schema.
    pub is_structured: bool,
    /// Logprobs go to the client: those of text continued elsewhere would not fit what was sent.
    pub has_logprobs: bool,
    /// A finish reason has already gone to the client: nothing but the end is missing.
    pub is_finished: bool,
}

/// How to go on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Plan {
    /// Nothing is missing but usage and the end: write them here.
    Close,
    /// Send prompt, ids so far and seed; at most so many tokens more.
    FromIds {
        /// What is left of the most.
        tokens_left: Option<u32>,
    },
    /// Send the text so far as the start of the answer (chat: `continue_final_message`; completions: prompt + text).
    FromText {
        /// What is left of the most.
        tokens_left: Option<u32>,
    },
}

/// Why it can't go on there.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Obstacle {
    /// This API has no way to say it.
    Api,
    /// More than one answer at once.
    Choices,
    /// A tool call is half open.
    ToolCall,
    /// A grammar can't be picked up in the middle of text.
    Structured,
    /// See [`Broken::has_logprobs`].
    Logprobs,
    /// Other weights or arithmetic: it would be somebody else's answer.
    OtherModel,
    /// The engine there can't start from a given beginning.
    Engine,
}

impl Obstacle {
    /// A constant word for logs and metrics.
    pub const fn what(self) -> &'static str {
        match self {
            Self::Api => "api",
            Self::Choices => "choices",
            Self::ToolCall => "tool_call",
            Self::Structured => "structured",
            Self::Logprobs => "logprobs",
            Self::OtherModel => "other_model",
            Self::Engine => "engine",
        }
    }
}

/// Plans how `broken`, which came from a replica like `from`, goes on at one like `to`.
///
/// # Errors
///
/// [`Obstacle`] names the first thing in the way.
pub fn plan(broken: &Broken, from: &Identity, to: &Identity) -> Result<Plan, Obstacle> {
    if broken.is_finished {
        return Ok(Plan::Close);
    }
    if broken.api == Api::Other {
        return Err(Obstacle::Api);
    }
    if broken.choices != 1 {
        return Err(Obstacle::Choices);
    }
    if !is_same_model(from, to) {
        return Err(Obstacle::OtherModel);
    }
    let tokens_left = broken.tokens_max.map(|most| most.saturating_sub(broken.tokens_sent));
    // Ids carry everything: an open tool call and a grammar's state are functions of them.
    if broken.has_ids && from.engine == Engine::Flotilla && to.engine == Engine::Flotilla {
        return Ok(Plan::FromIds { tokens_left });
    }
    if broken.is_in_tool_call {
        return Err(Obstacle::ToolCall);
    }
    if broken.is_structured {
        return Err(Obstacle::Structured);
    }
    if broken.has_logprobs {
        return Err(Obstacle::Logprobs);
    }
    if !continues_text(to.engine, broken.api) {
        return Err(Obstacle::Engine);
    }
    Ok(Plan::FromText { tokens_left })
}

/// Whether an engine can start its answer from given text.
pub fn continues_text(engine: Engine, api: Api) -> bool {
    match api {
        Api::Chat => matches!(engine, Engine::Flotilla | Engine::Vllm | Engine::Sglang),
        // Every engine completes a prompt, and prompt + text is one; what it is not known to be is left alone.
        Api::Completions => engine != Engine::Unknown,
        Api::Other => false,
    }
}

/// Equal revisions and arithmetic where both are known; otherwise a shared name on one kind of engine must do.
fn is_same_model(from: &Identity, to: &Identity) -> bool {
    let agree = |a: &str, b: &str| a == b || a.is_empty() || b.is_empty();
    let is_known = !from.revision.is_empty() && !to.revision.is_empty();
    let share_a_name = from.models.iter().any(|name| to.models.contains(name));
    let is_close = is_known || (from.engine == to.engine && share_a_name);
    is_close && agree(&from.revision, &to.revision) && agree(&from.dtype, &to.dtype)
}

#[cfg(test)]
mod tests {
    use super::*;

    const BROKEN: Broken = Broken {
        api: Api::Chat,
        choices: 1,
        tokens_sent: 10,
        tokens_max: Some(64),
        has_ids: true,
        is_in_tool_call: false,
        is_structured: false,
        has_logprobs: false,
        is_finished: false,
    };
    const LEFT: Option<u32> = Some(54);

    fn identity(engine: Engine, revision: &str, dtype: &str) -> Identity {
        Identity {
            instance: String::new(),
            engine,
            models: vec!["m".to_owned()],
            revision: revision.to_owned(),
            dtype: dtype.to_owned(),
        }
    }

    fn check(broken: Broken, engine: Engine, expected: Result<Plan, Obstacle>) {
        let one = identity(engine, "r", "f32");
        assert_eq!(plan(&broken, &one, &one), expected);
    }

    #[test]
    fn ours_go_on_from_ids() {
        check(BROKEN, Engine::Flotilla, Ok(Plan::FromIds { tokens_left: LEFT }));
    }

    #[test]
    fn from_ids_even_a_tool_call_or_a_schema_goes_on() {
        let broken = Broken { is_in_tool_call: true, is_structured: true, has_logprobs: true, ..BROKEN };
        check(broken, Engine::Flotilla, Ok(Plan::FromIds { tokens_left: LEFT }));
    }

    /// U013 names the cases that end with an error event.
    #[test]
    fn from_text_a_tool_call_a_schema_or_logprobs_do_not_go_on() {
        let broken = Broken { has_ids: false, ..BROKEN };
        check(broken, Engine::Vllm, Ok(Plan::FromText { tokens_left: LEFT }));
        check(Broken { is_in_tool_call: true, ..broken }, Engine::Vllm, Err(Obstacle::ToolCall));
        check(Broken { is_structured: true, ..broken }, Engine::Vllm, Err(Obstacle::Structured));
        check(Broken { has_logprobs: true, ..broken }, Engine::Vllm, Err(Obstacle::Logprobs));
    }

    #[test]
    fn several_answers_at_once_do_not_go_on() {
        check(Broken { choices: 2, ..BROKEN }, Engine::Flotilla, Err(Obstacle::Choices));
    }

    #[test]
    fn an_engine_that_cannot_continue_a_chat_is_left_alone() {
        let broken = Broken { has_ids: false, ..BROKEN };
        check(broken, Engine::Ollama, Err(Obstacle::Engine));
        check(
            Broken { api: Api::Completions, ..broken },
            Engine::LlamaCpp,
            Ok(Plan::FromText { tokens_left: LEFT }),
        );
        check(Broken { api: Api::Other, ..broken }, Engine::Vllm, Err(Obstacle::Api));
    }

    #[test]
    fn a_stream_that_only_misses_its_end_is_closed_here() {
        let broken = Broken { is_finished: true, choices: 3, api: Api::Other, ..BROKEN };
        check(broken, Engine::Unknown, Ok(Plan::Close));
    }

    #[test]
    fn other_weights_or_arithmetic_never_go_on() {
        let from = identity(Engine::Flotilla, "r", "f32");
        for (revision, dtype) in [("s", "f32"), ("r", "q4_1")] {
            let to = identity(Engine::Flotilla, revision, dtype);
            assert_eq!(plan(&BROKEN, &from, &to), Err(Obstacle::OtherModel));
        }
    }

    #[test]
    fn without_revisions_a_shared_name_on_one_kind_of_engine_must_do() {
        let broken = Broken { has_ids: false, ..BROKEN };
        let (vllm, ours) = (identity(Engine::Vllm, "", ""), identity(Engine::Flotilla, "r", "f32"));
        assert!(plan(&broken, &vllm, &vllm).is_ok());
        assert_eq!(plan(&broken, &vllm, &ours), Err(Obstacle::OtherModel));
        let other = Identity { models: vec!["n".to_owned()], ..vllm.clone() };
        assert_eq!(plan(&broken, &vllm, &other), Err(Obstacle::OtherModel));
    }
}
