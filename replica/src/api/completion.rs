//! `/v1/completions`: a body to prompts and options.

use replica_core::sequence::Wants;
use serde_json::Value;

use super::fields::{Fields, item, wrong};
use super::options::{CHOICES_MAX, Options, TOP_LOGPROBS_MAX, token_ids};
use super::plan::{Plan, Prompt, Shape};
use super::served::Served;
use super::structure::Structure;
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
    let prompts = prompts(&fields, "prompt", served)?;
    if prompts.len() as u64 * u64::from(options.n) > u64::from(CHOICES_MAX) {
        return Err(fields.refuse("prompt", &format!("times n makes more than {CHOICES_MAX} choices")));
    }
    let top = logprobs.filter(|_| echo).max(options.prompt_logprobs);
    let wants = top.map_or(Wants::Tokens, Wants::PromptLogprobs);
    let structure = Structure::read(&fields)?;
    let mut plan = Plan::new(Shape::Completion { echo }, prompts, options, wants, served, "prompt")?;
    plan.bound(structure.as_ref(), false, &fields, served)?;
    Ok(plan)
}

/// One prompt or many, as text or as tokens, in field `name`.
pub fn prompts(fields: &Fields<'_>, name: &str, served: &Served) -> Result<Vec<Prompt>, Error> {
    let path = fields.path(name);
    let prompts = match fields.get(name) {
        None => return Err(fields.missing(name)),
        Some(Value::String(text)) => vec![from_text(text, &path, served)?],
        Some(Value::Array(items)) if items.is_empty() => return Err(fields.refuse(name, "is empty")),
        Some(Value::Array(items)) if items[0].is_number() => vec![from_ids(items, &path, served)?],
        Some(Value::Array(items)) if items.len() > CHOICES_MAX as usize => {
            return Err(fields.refuse(name, &format!("holds more than {CHOICES_MAX} texts")));
        }
        Some(Value::Array(items)) => {
            let one = |(at, prompt): (usize, &Value)| match prompt {
                Value::String(text) => from_text(text, &item(&path, at), served),
                Value::Array(ids) => from_ids(ids, &item(&path, at), served),
                other => Err(wrong(&item(&path, at), "a string or an array of token ids", other)),
            };
            items.iter().enumerate().map(one).collect::<Result<_, _>>()?
        }
        Some(other) => return Err(wrong(&path, "a string, an array of strings or of token ids", other)),
    };
    if prompts.iter().any(|prompt| prompt.tokens.is_empty()) {
        return Err(fields.refuse(name, "is empty: there is nothing to continue"));
    }
    Ok(prompts)
}

fn from_text(text: &str, path: &str, served: &Served) -> Result<Prompt, Error> {
    Ok(Prompt { tokens: served.encode(text, true, path)?, text: Some(text.to_owned()) })
}

fn from_ids(ids: &[Value], path: &str, served: &Served) -> Result<Prompt, Error> {
    Ok(Prompt { tokens: token_ids(ids, path, served.vocab_tokens)?, text: None })
}
