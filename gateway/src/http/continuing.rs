//! The request by which another replica goes on with a broken answer: the core's plan turned into a body.

use super::edit::Edits;
use super::prompt::{self, Prompt};
use super::request::Request;
use super::route::Api;
use super::transcript::Transcript;
use bytes::Bytes;
use gateway_core::continuation::{self, Broken, Obstacle, Plan};
use gateway_core::replica::Identity;
use shared::wire::{CONTINUATION_FIELD, Continuation};

/// A broken answer, and whose it was.
#[derive(Debug)]
pub struct Continuing<'a> {
    /// The client's body.
    pub original: &'a Bytes,
    /// What the client has.
    pub transcript: &'a Transcript,
    /// Who gave it.
    pub from: &'a Identity,
    /// Its words.
    pub api: Api,
}

/// A request that goes on.
#[derive(Clone, Debug)]
pub struct Next {
    /// Its body.
    pub body: Bytes,
    /// Tokens of the answer that the replica will take for prompt.
    pub as_prompt: u32,
}

impl Continuing<'_> {
    /// Whether nothing is missing but the end.
    pub fn is_finished(&self) -> bool {
        self.transcript.is_finished
    }

    /// The request for a replica.
    ///
    /// # Errors
    ///
    /// Says what keeps that replica from going on.
    pub fn request_for(&self, to: &Identity) -> Result<Next, Obstacle> {
        let prompt = prompt::read(self.original).map_err(|_| Obstacle::Api)?;
        let plan = continuation::plan(&self.facts(&prompt), self.from, to)?;
        let mut edits = Edits::default();
        let as_prompt = match plan {
            Plan::Close => return Err(Obstacle::Api),
            Plan::FromIds { .. } => {
                let answer_ids = self.transcript.ids.clone().ok_or(Obstacle::Api)?;
                let continuation = Continuation { answer_ids, seed: self.transcript.seed };
                let value = serde_json::to_string(&continuation).map_err(|_| Obstacle::Api)?;
                edits.set(&prompt, CONTINUATION_FIELD, &value);
                0
            }
            Plan::FromText { tokens_left } => {
                self.add_text(&prompt, &mut edits)?;
                limit(&prompt, &mut edits, tokens_left);
                self.transcript.tokens
            }
        };
        Ok(Next { body: edits.apply(self.original), as_prompt })
    }

    fn facts(&self, prompt: &Prompt<'_>) -> Broken {
        let is_on =
            |key: &str| prompt.value(key).is_some_and(|value| !matches!(value, b"null" | b"false" | b"0"));
        let structures =
            ["structured_outputs", "guided_json", "guided_regex", "guided_choice", "guided_grammar"];
        let is_text = |value: &[u8]| memchr::memmem::find(value, b"\"text\"").is_some();
        let has_format = is_on("response_format") && !prompt.value("response_format").is_some_and(is_text);
        let choices = prompt.value("n").and_then(super::scan::number).unwrap_or(1);
        Broken {
            api: match self.api {
                Api::Chat => continuation::Api::Chat,
                Api::Completions if !is_on("echo") => continuation::Api::Completions,
                _ => continuation::Api::Other,
            },
            choices: u32::try_from(choices).unwrap_or(u32::MAX),
            tokens_sent: self.transcript.tokens,
            tokens_max: prompt.answer_tokens_max,
            has_ids: self.transcript.ids.is_some(),
            is_in_tool_call: self.transcript.is_in_tool_call,
            is_structured: has_format || structures.iter().any(|key| is_on(key)),
            has_logprobs: is_on("logprobs"),
            is_finished: self.transcript.is_finished,
        }
    }

    /// Puts the text so far where the answer begins.
    fn add_text(&self, prompt: &Prompt<'_>, edits: &mut Edits) -> Result<(), Obstacle> {
        let text = self.transcript.text.as_deref().ok_or(Obstacle::Api)?;
        let key = if self.api == Api::Chat { "messages" } else { "prompt" };
        let (span, value) = prompt.span(key).zip(prompt.value(key)).ok_or(Obstacle::Api)?;
        let last = span.end - 1;
        if self.api == Api::Completions {
            if !value.starts_with(b"\"") {
                return Err(Obstacle::Api);
            }
            edits.replace(last..last, text);
            return Ok(());
        }
        let comma = if value[1..value.len() - 1].trim_ascii().is_empty() { "" } else { "," };
        let head = format!("{comma}{{\"role\":\"assistant\",\"content\":\"");
        edits.replace(last..last, [head.as_bytes(), text, b"\"}"].concat());
        edits.set(prompt, "continue_final_message", "true");
        edits.set(prompt, "add_generation_prompt", "false");
        Ok(())
    }
}

/// Lowers the limit by what has been said.
fn limit(prompt: &Prompt<'_>, edits: &mut Edits, tokens_left: Option<u32>) {
    let Some(left) = tokens_left else { return };
    for key in ["max_tokens", "max_completion_tokens"] {
        if prompt.value(key).is_some_and(|value| value != b"null") {
            edits.set(prompt, key, &left.max(1).to_string());
        }
    }
}

/// Whether a broken answer to this request may be thought of at all.
pub fn is_possible(request: &Request) -> bool {
    request.is_stream && matches!(request.api, Api::Chat | Api::Completions)
}

#[cfg(test)]
mod tests {
    use super::*;
    use gateway_core::replica::Engine;

    fn identity(engine: Engine) -> Identity {
        Identity { engine, models: vec!["m".into()], revision: "r".into(), ..Identity::default() }
    }

    fn next(api: Api, body: &str, transcript: &Transcript, engine: Engine) -> Result<String, Obstacle> {
        let original = Bytes::copy_from_slice(body.as_bytes());
        let from = identity(engine);
        let continuing = Continuing { original: &original, transcript, from: &from, api };
        let next = continuing.request_for(&identity(engine))?;
        Ok(String::from_utf8(next.body.to_vec()).unwrap())
    }

    #[test]
    fn ours_go_on_from_ids_and_all_else_stays() {
        let mut transcript = Transcript::new(true);
        (transcript.ids, transcript.seed, transcript.tokens) = (Some(vec![1, 2]), 5, 2);
        let body =
            next(Api::Chat, r#"{"max_tokens":9,"messages":[] }"#, &transcript, Engine::Flotilla).unwrap();
        assert_eq!(body, r#"{"flotilla":{"answer_ids":[1,2],"seed":5},"max_tokens":9,"messages":[] }"#);
    }

    #[test]
    fn others_go_on_from_text() {
        let mut transcript = Transcript::new(false);
        (transcript.text, transcript.tokens) = (Some(br#"a\"b"#.to_vec()), 2);
        let chat = r#"{"messages":[{"role":"user","content":"x"}],"max_tokens":9}"#;
        assert_eq!(
            next(Api::Chat, chat, &transcript, Engine::Vllm).unwrap(),
            r#"{"continue_final_message":true,"add_generation_prompt":false,"messages":[{"role":"user","content":"x"},{"role":"assistant","content":"a\"b"}],"max_tokens":7}"#
        );
        let plain = r#"{"prompt":"x","stream":true}"#;
        assert_eq!(
            next(Api::Completions, plain, &transcript, Engine::LlamaCpp).unwrap(),
            r#"{"prompt":"xa\"b","stream":true}"#
        );
    }

    #[test]
    fn what_can_not_go_on_is_told() {
        // U013
        let mut transcript = Transcript::new(false);
        (transcript.text, transcript.tokens) = (Some(b"a".to_vec()), 1);
        let obstacle = |body: &str| next(Api::Chat, body, &transcript, Engine::Vllm).unwrap_err();
        assert_eq!(obstacle(r#"{"n":2,"messages":[]}"#), Obstacle::Choices);
        assert_eq!(
            obstacle(r#"{"messages":[],"response_format":{"type":"json_object"}}"#),
            Obstacle::Structured
        );
        assert_eq!(obstacle(r#"{"messages":[],"logprobs":true}"#), Obstacle::Logprobs);
        let mut in_call = transcript.clone();
        in_call.is_in_tool_call = true;
        assert_eq!(
            next(Api::Chat, r#"{"messages":[]}"#, &in_call, Engine::Vllm).unwrap_err(),
            Obstacle::ToolCall
        );
        assert_eq!(
            next(Api::Chat, r#"{"messages":[]}"#, &transcript, Engine::Ollama).unwrap_err(),
            Obstacle::Engine
        );
    }
}
