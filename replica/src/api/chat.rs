//! `/v1/chat/completions`: a body to one prompt and options.

use replica_core::sequence::Wants;
use serde_json::{Map, Value};

use super::content::{Calls, Content, Thoughts};
use super::fields::Fields;
use super::messages;
use super::options::{Options, TOP_LOGPROBS_MAX};
use super::plan::{Plan, Prompt, Shape};
use super::served::Served;
use super::structure::Structure;
use super::tools::Tools;
use crate::error::Error;

/// Understands a body.
pub fn plan(body: &Value, served: &Served) -> Result<Plan, Error> {
    let fields = Fields::of(body)?;
    let mut options = Options::read(&fields, logprobs(&fields)?, served)?;
    if fields.array("modalities")?.is_some_and(|modalities| modalities.iter().any(|one| one != "text")) {
        return Err(fields.refuse("modalities", "may only hold \"text\": audio output is not supported"));
    }
    let tools = Tools::read(&fields)?;
    let structure = Structure::read(&fields)?;
    let prompt = prompt(&fields, tools.as_ref(), served)?;
    let text = prompt.text.as_deref().unwrap_or_default();
    let thoughts = served.dialect.thinks.then(|| Thoughts::new(Thoughts::opens(text)));
    let thinks_first = thoughts.is_some() && Thoughts::opens(text);
    let structure = tools.as_ref().and_then(Tools::structure).or(structure);
    let calls = match (&tools, &served.dialect.calls) {
        (Some(tools), Some(own)) => {
            // Markers of calls may be control tokens: they must be seen.
            options.skip_special = false;
            Some(Calls::new(tools.form(own), tools.names.clone(), tools.only_one))
        }
        (Some(_), None) => {
            return Err(fields.refuse("tools", "can't be used: this model's chat template shows none"));
        }
        (None, _) => None,
    };
    let wants = options.prompt_logprobs.map_or(Wants::Tokens, Wants::PromptLogprobs);
    let mut plan = Plan::new(Shape::Chat, vec![prompt], options, wants, served, "messages")?;
    plan.content = Content::new(thoughts, calls);
    plan.bound(structure.as_ref(), thinks_first, &fields, served)?;
    Ok(plan)
}

/// Renders and encodes the messages: the one path for chats and for `/tokenize`.
pub fn prompt(fields: &Fields<'_>, tools: Option<&Tools>, served: &Served) -> Result<Prompt, Error> {
    let template = served.template.as_ref().ok_or_else(|| {
        fields.refuse("messages", "can't be used: this model has no chat template; use /v1/completions")
    })?;
    let messages = messages::read(fields)?;
    let goes_on = fields.boolean("continue_final_message")?.unwrap_or(false);
    let add_generation_prompt = fields.boolean("add_generation_prompt")?.unwrap_or(!goes_on);
    if goes_on && add_generation_prompt {
        return Err(fields.refuse("continue_final_message", "contradicts add_generation_prompt"));
    }
    let extra = fields.object("chat_template_kwargs")?.map(|extra| extra.map().clone());
    let text = template
        .render(
            &messages,
            tools.map(|tools| &tools.shown[..]),
            add_generation_prompt,
            &extra.unwrap_or_else(Map::new),
        )
        .map_err(|error| {
            fields.refuse("messages", &format!("don't fit the model's chat template: {error}"))
        })?;
    let text = if goes_on { up_to_final_message(text, &messages, fields)? } else { text };
    // The template wrote the special tokens already.
    let tokens = served.encode(&text, false, "messages")?;
    if tokens.is_empty() {
        return Err(fields.refuse("messages", "give an empty prompt"));
    }
    Ok(Prompt { tokens, text: Some(text) })
}

/// Cuts off what the template writes after the last message, so that the answer goes on with it.
fn up_to_final_message(mut text: String, messages: &[Value], fields: &Fields<'_>) -> Result<String, Error> {
    let last = messages.last().filter(|last| last["role"] == "assistant");
    let content = last.and_then(|last| last["content"].as_str()).filter(|content| !content.trim().is_empty());
    let Some(content) = content else {
        return Err(
            fields.refuse("continue_final_message", "needs a last message of the assistant with text")
        );
    };
    // Templates may trim what they are given.
    let found = [content, content.trim_start(), content.trim()]
        .into_iter()
        .find_map(|form| Some(text.rfind(form)? + form.len()));
    let end = found.ok_or_else(|| {
        fields.refuse("continue_final_message", "can't be done: the chat template rewrites the last message")
    })?;
    text.truncate(end);
    Ok(text)
}

fn logprobs(fields: &Fields<'_>) -> Result<Option<u32>, Error> {
    let top = fields.count("top_logprobs", 0..=TOP_LOGPROBS_MAX)?;
    match (fields.boolean("logprobs")?.unwrap_or(false), top) {
        (true, top) => Ok(Some(top.unwrap_or(0))),
        (false, Some(top)) if top > 0 => Err(fields.refuse("top_logprobs", "needs logprobs to be true")),
        (false, _) => Ok(None),
    }
}
