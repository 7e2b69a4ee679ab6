//! A chat template: messages to the prompt its model was trained on.
//!
//! Jinja as `transformers` runs it: blocks trimmed, Python's methods on strings, lists and mappings, `tojson`
//! without HTML escapes, `raise_exception`, `strftime_now`, loop controls, `{% generation %}`.

mod clock;
mod functions;
mod json;
mod source;

use std::fmt;

use minijinja::Environment;
use minijinja::value::Value as Jinja;
use serde_json::{Map, Value};

use functions::Raised;

/// A template that parsed.
pub struct Template {
    environment: Environment<'static>,
    bos: String,
    eos: String,
}

/// What a conversation did wrong, by the template's own words or the engine's.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Unrenderable(String);

/// A template that could not be parsed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Unreadable(String);

const NAME: &str = "chat";
/// Instructions of the engine that one rendering may take, so that a template that loops forever ends. A
/// message takes some hundred.
const FUEL: u64 = 5_000_000;

impl Template {
    /// Parses a template. `bos` and `eos` are the spellings it may write.
    ///
    /// # Errors
    ///
    /// Where it is not Jinja.
    pub fn new(source: &str, bos: &str, eos: &str) -> Result<Self, Unreadable> {
        let mut environment = Environment::new();
        environment.set_trim_blocks(true);
        environment.set_lstrip_blocks(true);
        environment.set_fuel(Some(FUEL));
        environment.set_unknown_method_callback(minijinja_contrib::pycompat::unknown_method_callback);
        functions::install(&mut environment);
        environment
            .add_template_owned(NAME, source::adapted(source))
            .map_err(|error| Unreadable(one_line(&error)))?;
        Ok(Self { environment, bos: bos.to_owned(), eos: eos.to_owned() })
    }

    /// Renders a conversation. `extra` are variables of the request; the conversation's own names are ours.
    ///
    /// # Errors
    ///
    /// When the template refuses the conversation, or trips over it.
    pub fn render(
        &self,
        messages: &[Value],
        tools: Option<&[Value]>,
        add_generation_prompt: bool,
        extra: &Map<String, Value>,
    ) -> Result<String, Unrenderable> {
        let mut variables: Vec<(String, Jinja)> =
            extra.iter().map(|(name, value)| (name.clone(), Jinja::from_serialize(value))).collect();
        variables.extend([
            ("messages".to_owned(), Jinja::from_serialize(messages)),
            ("tools".to_owned(), Jinja::from_serialize(tools)),
            ("add_generation_prompt".to_owned(), add_generation_prompt.into()),
            ("bos_token".to_owned(), self.bos.as_str().into()),
            ("eos_token".to_owned(), self.eos.as_str().into()),
        ]);
        let variables: Jinja = variables.into_iter().collect();
        let template = self.environment.get_template(NAME).map_err(|error| Unrenderable(one_line(&error)))?;
        template.render(variables).map_err(|error| Unrenderable(one_line(&error)))
    }
}

/// The template's own message where it raised one, else the engine's with the line.
fn one_line(error: &minijinja::Error) -> String {
    let mut cause = std::error::Error::source(error);
    while let Some(inner) = cause {
        if let Some(Raised(message)) = inner.downcast_ref() {
            return message.replace(['\r', '\n'], " ");
        }
        cause = inner.source();
    }
    let line = error.line().map_or_else(String::new, |line| format!(" in line {line}"));
    let detail = error.detail().map_or_else(String::new, |detail| format!(": {detail}"));
    format!("{}{line}{detail}", error.kind()).replace(['\r', '\n'], " ")
}

impl fmt::Display for Unrenderable {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(&self.0)
    }
}

impl std::error::Error for Unrenderable {}

impl fmt::Display for Unreadable {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "the chat template cannot be parsed: {}", self.0)
    }
}

impl std::error::Error for Unreadable {}

impl fmt::Debug for Template {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("Template").field("bos", &self.bos).field("eos", &self.eos).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
