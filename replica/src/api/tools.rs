//! The tools of a chat: which there are, and whether one must be called.

use serde_json::{Value, json};

use super::content::Form;
use super::fields::{Fields, item};
use super::structure::Structure;
use crate::error::Error;

const TOOLS_MAX: usize = 256;
const NAME_BYTES_MAX: usize = 128;

/// Tools the model may or must call.
#[derive(Clone, PartialEq, Debug)]
pub struct Tools {
    /// As templates show them.
    pub shown: Vec<Value>,
    /// Their names.
    pub names: Vec<String>,
    parameters: Vec<Value>,
    choice: Choice,
    /// Whether one answer calls one at most.
    pub only_one: bool,
}

/// What `tool_choice` says.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Choice {
    Auto,
    Required,
    Named(usize),
}

impl Tools {
    /// Reads `tools`, `tool_choice` and `parallel_tool_calls`; absent when nothing may be called.
    pub fn read(fields: &Fields<'_>) -> Result<Option<Self>, Error> {
        if fields.get("functions").is_some() || fields.get("function_call").is_some() {
            return Err(fields.refuse("functions", "is not supported; use tools"));
        }
        let tools = fields.array("tools")?.unwrap_or_default();
        if tools.len() > TOOLS_MAX {
            return Err(fields.refuse("tools", &format!("may hold at most {TOOLS_MAX} tools")));
        }
        let path = fields.path("tools");
        let mut read = Self {
            shown: tools.to_vec(),
            names: Vec::new(),
            parameters: Vec::new(),
            choice: Choice::Auto,
            only_one: false,
        };
        for (at, tool) in tools.iter().enumerate() {
            read.add(&Fields::at(tool, item(&path, at))?)?;
        }
        let choice = read.choice(fields)?;
        read.only_one = !fields.boolean("parallel_tool_calls")?.unwrap_or(true);
        Ok(choice.map(|choice| Self { choice, ..read }))
    }

    /// The form in which calls come, where the model's own is `own`.
    pub fn form(&self, own: &Form) -> Form {
        match self.choice {
            Choice::Auto => own.clone(),
            Choice::Required => Form::Json,
            Choice::Named(at) => Form::Named(self.names[at].clone()),
        }
    }

    /// What the answer must be, where a tool must be called.
    pub fn structure(&self) -> Option<Structure> {
        match self.choice {
            Choice::Auto => None,
            Choice::Named(at) => Some(Structure::Schema(self.parameters[at].clone())),
            Choice::Required => {
                let call = |(name, parameters): (&String, &Value)| {
                    json!({
                        "type": "object",
                        "properties": {"name": {"const": name}, "parameters": parameters},
                        "required": ["name", "parameters"],
                        "additionalProperties": false,
                    })
                };
                let calls: Vec<_> = self.names.iter().zip(&self.parameters).map(call).collect();
                let most = if self.only_one { json!(1) } else { json!(null) };
                let mut schema = json!({"type": "array", "minItems": 1, "items": {"anyOf": calls}});
                if !most.is_null() {
                    schema["maxItems"] = most;
                }
                Some(Structure::Schema(schema))
            }
        }
    }

    fn add(&mut self, tool: &Fields<'_>) -> Result<(), Error> {
        tool.word("type", &[("function", ())])?.ok_or_else(|| tool.missing("type"))?;
        let function = tool.object("function")?.ok_or_else(|| tool.missing("function"))?;
        let name = function.string("name")?.ok_or_else(|| function.missing("name"))?;
        let is_decent = |c: char| c.is_ascii_alphanumeric() || "_-.".contains(c);
        if name.is_empty() || name.len() > NAME_BYTES_MAX || !name.chars().all(is_decent) {
            return Err(
                function.refuse("name", "needs 1 to 128 letters, digits, underscores, dashes or dots")
            );
        }
        function.string("description")?;
        function.boolean("strict")?;
        let parameters =
            function.object("parameters")?.map(|parameters| Value::Object(parameters.map().clone()));
        self.names.push(name.to_owned());
        self.parameters.push(parameters.unwrap_or_else(|| json!({"type": "object"})));
        Ok(())
    }

    fn choice(&self, fields: &Fields<'_>) -> Result<Option<Choice>, Error> {
        let choice = match fields.get("tool_choice") {
            None => Choice::Auto,
            Some(Value::String(_)) => {
                let known =
                    [("none", None), ("auto", Some(Choice::Auto)), ("required", Some(Choice::Required))];
                match fields.word("tool_choice", &known)?.flatten() {
                    Some(choice) => choice,
                    None => return Ok(None),
                }
            }
            Some(_) => {
                let choice = fields.object("tool_choice")?.ok_or_else(|| fields.missing("tool_choice"))?;
                choice.word("type", &[("function", ())])?.ok_or_else(|| choice.missing("type"))?;
                let function = choice.object("function")?.ok_or_else(|| choice.missing("function"))?;
                let name = function.string("name")?.ok_or_else(|| function.missing("name"))?;
                let at = self.names.iter().position(|known| known == name);
                Choice::Named(at.ok_or_else(|| function.refuse("name", "is not the name of a tool"))?)
            }
        };
        match choice {
            Choice::Required if self.names.is_empty() => Err(fields.refuse("tool_choice", "needs tools")),
            _ if self.names.is_empty() => Ok(None),
            choice => Ok(Some(choice)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(extra: &Value) -> Result<Option<Tools>, Error> {
        let mut body = json!({"tools": [{"type": "function", "function": {"name": "add", "parameters": {"type": "object"}}}]});
        body.as_object_mut().unwrap().extend(extra.as_object().unwrap().clone());
        Tools::read(&Fields::of(&body).unwrap())
    }

    fn check_fault(extra: &Value, param: &str) {
        assert_eq!(read(extra).unwrap_err().body.error.param.as_deref(), Some(param));
    }

    #[test]
    fn a_choice_says_what_the_answer_must_be() {
        let own = Form::Hermes;
        let auto = read(&json!({})).unwrap().unwrap();
        assert_eq!((auto.form(&own), auto.structure()), (Form::Hermes, None));
        let required = read(&json!({"tool_choice": "required"})).unwrap().unwrap();
        assert_eq!(required.form(&own), Form::Json);
        assert!(required.structure().is_some());
        let named = read(&json!({"tool_choice": {"type": "function", "function": {"name": "add"}}}))
            .unwrap()
            .unwrap();
        assert_eq!(named.form(&own), Form::Named("add".to_owned()));
        assert_eq!(read(&json!({"tool_choice": "none"})).unwrap(), None);
        assert_eq!(read(&json!({"tools": []})).unwrap(), None);
    }

    #[test]
    fn faults_are_named_by_their_path() {
        check_fault(&json!({"tools": 5}), "tools");
        check_fault(&json!({"tools": [{"type": "retrieval"}]}), "tools[0].type");
        check_fault(&json!({"tools": [{"type": "function"}]}), "tools[0].function");
        check_fault(
            &json!({"tools": [{"type": "function", "function": {"name": "a b"}}]}),
            "tools[0].function.name",
        );
        check_fault(
            &json!({"tools": [{"type": "function", "function": {"name": "a", "parameters": []}}]}),
            "tools[0].function.parameters",
        );
        check_fault(&json!({"tool_choice": "maybe"}), "tool_choice");
        check_fault(
            &json!({"tool_choice": {"type": "function", "function": {"name": "sub"}}}),
            "tool_choice.function.name",
        );
        check_fault(&json!({"tools": null, "tool_choice": "required"}), "tool_choice");
        check_fault(&json!({"functions": [{"name": "f"}]}), "functions");
    }
}
