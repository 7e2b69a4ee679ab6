//! `/v1/chat/completions`: a body to one prompt and options.

use replica_core::sequence::Wants;
use serde_json::{Map, Value};

use super::fields::Fields;
use super::messages;
use super::options::{Options, TOP_LOGPROBS_MAX};
use super::plan::{Plan, Prompt, Shape};
use super::served::Served;
use crate::error::Error;

/// Understands a body.
pub fn plan(body: &Value, served: &Served) -> Result<Plan, Error> {
    let fields = Fields::of(body)?;
    let options = Options::read(&fields, logprobs(&fields)?, served)?;
    refuse_unfinished(&fields)?;
    let prompt = prompt(&fields, served)?;
    Plan::new(Shape::Chat, vec![prompt], options, Wants::Tokens, served, "messages")
}

/// Renders and encodes the messages: the one path for chats and for `/tokenize`.
pub fn prompt(fields: &Fields<'_>, served: &Served) -> Result<Prompt, Error> {
    let template = served.template.as_ref().ok_or_else(|| {
        fields.refuse("messages", "can't be used: this model has no chat template; use /v1/completions")
    })?;
    let messages = messages::read(fields)?;
    let add_generation_prompt = fields.boolean("add_generation_prompt")?.unwrap_or(true);
    let extra = fields.object("chat_template_kwargs")?.map(|extra| extra.map().clone());
    let text =
        template.render(&messages, None, add_generation_prompt, &extra.unwrap_or_else(Map::new)).map_err(
            |error| fields.refuse("messages", &format!("don't fit the model's chat template: {error}")),
        )?;
    // The template wrote the special tokens already.
    let tokens = served
        .tokenizer
        .encode(&text, false)
        .map_err(|error| fields.refuse("messages", &error.to_string()))?;
    if tokens.is_empty() {
        return Err(fields.refuse("messages", "give an empty prompt"));
    }
    Ok(Prompt { tokens, text: None })
}

fn logprobs(fields: &Fields<'_>) -> Result<Option<u32>, Error> {
    let top = fields.count("top_logprobs", 0..=TOP_LOGPROBS_MAX)?;
    match (fields.boolean("logprobs")?.unwrap_or(false), top) {
        (true, top) => Ok(Some(top.unwrap_or(0))),
        (false, Some(top)) if top > 0 => Err(fields.refuse("top_logprobs", "needs logprobs to be true")),
        (false, _) => Ok(None),
    }
}

fn refuse_unfinished(fields: &Fields<'_>) -> Result<(), Error> {
    for name in ["tools", "functions"] {
        if fields.array(name)?.is_some_and(|tools| !tools.is_empty()) {
            return Err(fields.refuse(name, "are not supported by this model"));
        }
    }
    if fields.get("tool_choice").is_some_and(|choice| choice != "none" && choice != "auto") {
        return Err(fields.refuse("tool_choice", "needs tools, which are not supported by this model"));
    }
    if fields.array("modalities")?.is_some_and(|modalities| modalities.iter().any(|one| one != "text")) {
        return Err(fields.refuse("modalities", "may only hold \"text\": audio output is not supported"));
    }
    if fields.boolean("continue_final_message")?.unwrap_or(false) {
        return Err(fields.refuse("continue_final_message", "is not supported"));
    }
    Ok(())
}
