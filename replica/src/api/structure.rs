//! Structured output: an answer that must be JSON, fit a schema, a regular expression, a choice or a grammar.
//!
//! Compiled off the engine's thread, within bounds of size and fuel, and kept for the next request that asks the
//! same. What comes out is a mask for the engine: which tokens may come next.

mod compile;
mod schema;

use serde_json::{Value, json};

use super::fields::{Fields, wrong};
use crate::error::Error;

pub use compile::{Compiled, Grammars};

/// Choices that one request may name.
const CHOICES_MAX: usize = 1000;
/// Length of a schema, a grammar or a regular expression.
const SOURCE_BYTES_MAX: usize = 256 << 10;

/// What an answer must be.
#[derive(Clone, PartialEq, Debug)]
pub enum Structure {
    /// JSON that fits this schema.
    Schema(Value),
    /// Text that matches.
    Regex(String),
    /// Text that a grammar in Lark's notation gives.
    Grammar(String),
}

impl Structure {
    /// Any JSON object.
    pub fn object() -> Self {
        Self::Schema(json!({"type": "object"}))
    }

    /// The field to blame when it doesn't compile.
    pub fn param(&self) -> &'static str {
        match self {
            Self::Schema(_) => "response_format",
            Self::Regex(_) | Self::Grammar(_) => "structured_outputs",
        }
    }

    /// Reads `response_format`, `structured_outputs` and the older `guided_*`.
    ///
    /// # Errors
    ///
    /// Wrong types, more than one of them, or a schema that is out of bounds.
    pub fn read(fields: &Fields<'_>) -> Result<Option<Self>, Error> {
        let mut found = Vec::new();
        found.extend(response_format(fields)?);
        if let Some(outputs) = fields.object("structured_outputs")? {
            found.extend(constraints(&outputs, "")?);
        }
        found.extend(constraints(fields, "guided_")?);
        if found.len() > 1 {
            return Err(
                fields.refuse("structured_outputs", "and response_format name more than one structure")
            );
        }
        Ok(found.pop())
    }
}

fn response_format(fields: &Fields<'_>) -> Result<Option<Structure>, Error> {
    const KINDS: &[(&str, &str)] =
        &[("text", "text"), ("json_object", "json_object"), ("json_schema", "json_schema")];
    let Some(format) = fields.object("response_format")? else { return Ok(None) };
    match format.word("type", KINDS)?.ok_or_else(|| format.missing("type"))? {
        "text" => Ok(None),
        "json_object" => Ok(Some(Structure::object())),
        _ => {
            let outer = format.object("json_schema")?.ok_or_else(|| format.missing("json_schema"))?;
            let schema = outer.get("schema").ok_or_else(|| outer.missing("schema"))?;
            let root = Fields::at(schema, outer.path("schema"))?;
            if root.get("type").is_some_and(|kind| kind != "object") {
                return Err(root.refuse("type", "must be \"object\" at the root"));
            }
            schema_structure(schema, &outer.path("schema")).map(Some)
        }
    }
}

/// vLLM's fields: in `structured_outputs`, or with a prefix in the body.
fn constraints(fields: &Fields<'_>, prefix: &str) -> Result<Vec<Structure>, Error> {
    let mut found = Vec::new();
    let name = |end: &str| format!("{prefix}{end}");
    match fields.get(&name("json")) {
        None => {}
        Some(Value::String(text)) => {
            let schema = serde_json::from_str(text);
            let schema: Value = schema.map_err(|_| fields.refuse(&name("json"), "must be a JSON schema"))?;
            found.push(schema_structure(&schema, &fields.path(&name("json")))?);
        }
        Some(schema) => found.push(schema_structure(schema, &fields.path(&name("json")))?),
    }
    if let Some(regex) = bounded(fields, &name("regex"))? {
        found.push(Structure::Regex(regex));
    }
    if let Some(grammar) = bounded(fields, &name("grammar"))? {
        found.push(Structure::Grammar(grammar));
    }
    if let Some(choices) = fields.array(&name("choice"))? {
        found.push(choice(fields, &name("choice"), choices)?);
    }
    if !prefix.is_empty() || !fields.boolean("json_object")?.unwrap_or(false) {
        return Ok(found);
    }
    found.push(Structure::object());
    Ok(found)
}

fn schema_structure(schema: &Value, path: &str) -> Result<Structure, Error> {
    if !schema.is_object() && !schema.is_boolean() {
        return Err(wrong(path, "a JSON schema", schema));
    }
    schema::check(schema).map_err(|what| Error::field(path, format!("{path} {what}")))?;
    Ok(Structure::Schema(schema.clone()))
}

fn bounded(fields: &Fields<'_>, name: &str) -> Result<Option<String>, Error> {
    match fields.string(name)? {
        Some(text) if text.is_empty() || text.len() > SOURCE_BYTES_MAX => {
            Err(fields.refuse(name, &format!("needs 1 to {SOURCE_BYTES_MAX} bytes")))
        }
        text => Ok(text.map(ToOwned::to_owned)),
    }
}

fn choice(fields: &Fields<'_>, name: &str, choices: &[Value]) -> Result<Structure, Error> {
    if choices.is_empty() || choices.len() > CHOICES_MAX {
        return Err(fields.refuse(name, &format!("needs 1 to {CHOICES_MAX} strings")));
    }
    let texts = choices.iter().map(|choice| match choice {
        Value::String(text) if !text.is_empty() => Ok(serde_json::to_string(text).unwrap_or_default()),
        other => Err(wrong(&fields.path(name), "an array of strings that are not empty", other)),
    });
    let texts = texts.collect::<Result<Vec<_>, _>>()?;
    Ok(Structure::Grammar(format!("start: {}", texts.join(" | "))))
}
