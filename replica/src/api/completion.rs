//! `/v1/completions`: a body to prompts and options.

use replica_core::sequence::Wants;
use serde_json::Value;

use super::fields::{Fields, item, wrong};
use super::options::{CHOICES_MAX, Options, TOP_LOGPROBS_MAX, token_ids};
use super::plan::{Plan, Prompt, Shape};
use super::served::Served;
use crate::error::Error;

/// Understands a body.
pub fn plan(body: &Value, served: &Served) -> Result<Plan, Error> {
    let fields = Fields::of(body)?;
    let logprobs = fields.count("logprobs", 0..=TOP_LOGPROBS_MAX)?;
    let options = Options::read(&fields, logprobs, served)?;
    if fields.string("suffix")?.is_some_and(|suffix| !suffix.is_empty()) {
        return Err(fields.refuse("suffix", "is not supported"));
    }
    let echo = fields.boolean("echo")?.unwrap_or(false);
    let prompts = prompts(&fields, served)?;
    if prompts.len() as u64 * u64::from(options.n) > u64::from(CHOICES_MAX) {
        return Err(fields.refuse("prompt", &format!("times n makes more than {CHOICES_MAX} choices")));
    }
    let wants = if echo && logprobs.is_some() { Wants::PromptLogprobs } else { Wants::Tokens };
    Plan::new(Shape::Completion { echo }, prompts, options, wants, served, "prompt")
}

/// One prompt or many, as text or as tokens.
fn prompts(fields: &Fields<'_>, served: &Served) -> Result<Vec<Prompt>, Error> {
    let path = fields.path("prompt");
    let prompts = match fields.get("prompt") {
        None => return Err(fields.missing("prompt")),
        Some(Value::String(text)) => vec![from_text(text, served)?],
        Some(Value::Array(items)) if items.is_empty() => return Err(fields.refuse("prompt", "is empty")),
        Some(Value::Array(items)) if items[0].is_number() => vec![from_ids(items, &path, served)?],
        Some(Value::Array(items)) if items.len() > CHOICES_MAX as usize => {
            return Err(fields.refuse("prompt", &format!("holds more than {CHOICES_MAX} prompts")));
        }
        Some(Value::Array(items)) => {
            let one = |(at, prompt): (usize, &Value)| match prompt {
                Value::String(text) => from_text(text, served),
                Value::Array(ids) => from_ids(ids, &item(&path, at), served),
                other => Err(wrong(&item(&path, at), "a string or an array of token ids", other)),
            };
            items.iter().enumerate().map(one).collect::<Result<_, _>>()?
        }
        Some(other) => return Err(wrong(&path, "a string, an array of strings or of token ids", other)),
    };
    match prompts.iter().position(|prompt| prompt.tokens.is_empty()) {
        Some(_) => Err(fields.refuse("prompt", "is empty: there is nothing to continue")),
        None => Ok(prompts),
    }
}

fn from_text(text: &str, served: &Served) -> Result<Prompt, Error> {
    let tokens =
        served.tokenizer.encode(text, true).map_err(|error| Error::field("prompt", error.to_string()))?;
    Ok(Prompt { tokens, text: Some(text.to_owned()) })
}

fn from_ids(ids: &[Value], path: &str, served: &Served) -> Result<Prompt, Error> {
    Ok(Prompt { tokens: token_ids(ids, path, served.vocab_tokens)?, text: None })
}
