//! A chat's messages, checked and brought to the one form that templates are written for: `content` is a string,
//! a tool call's `arguments` an object.

use serde_json::{Map, Value};

use super::fields::{Fields, item, wrong};
use crate::error::Error;

const ROLES: &[(&str, &str)] = &[
    ("system", "system"),
    // OpenAI's newer word for the same; templates only know the older one.
    ("developer", "system"),
    ("user", "user"),
    ("assistant", "assistant"),
    ("tool", "tool"),
    ("function", "tool"),
];

/// Reads `messages`.
pub fn read(fields: &Fields<'_>) -> Result<Vec<Value>, Error> {
    let messages = fields.array("messages")?.ok_or_else(|| fields.missing("messages"))?;
    if messages.is_empty() {
        return Err(fields.refuse("messages", "must hold at least one message"));
    }
    let path = fields.path("messages");
    messages.iter().enumerate().map(|(at, message)| one(&Fields::at(message, item(&path, at))?)).collect()
}

fn one(message: &Fields<'_>) -> Result<Value, Error> {
    let role = message.word("role", ROLES)?.ok_or_else(|| message.missing("role"))?;
    let calls = tool_calls(message)?;
    let content = content(message)?;
    if content.is_none() && role != "assistant" {
        return Err(message.missing("content"));
    }
    if content.is_none() && calls.is_none() && message.get("refusal").is_none() {
        return Err(message.missing("content"));
    }
    let mut read = Map::new();
    read.insert("role".to_owned(), role.into());
    read.insert("content".to_owned(), content.unwrap_or_default().into());
    if let Some(calls) = calls {
        read.insert("tool_calls".to_owned(), calls.into());
    }
    for name in ["name", "tool_call_id", "reasoning_content", "reasoning"] {
        if let Some(text) = message.string(name)? {
            read.insert(name.to_owned(), text.into());
        }
    }
    Ok(Value::Object(read))
}

/// The text of a message: a string, or the text parts of an array joined.
fn content(message: &Fields<'_>) -> Result<Option<String>, Error> {
    let path = message.path("content");
    match message.get("content") {
        None => Ok(None),
        Some(Value::String(text)) => Ok(Some(text.clone())),
        Some(Value::Array(parts)) => {
            let texts = parts.iter().enumerate().map(|(at, part)| part_text(part, item(&path, at)));
            texts.collect::<Result<String, _>>().map(Some)
        }
        Some(other) => Err(wrong(&path, "a string or an array of parts", other)),
    }
}

fn part_text(part: &Value, path: String) -> Result<&str, Error> {
    if let Value::String(text) = part {
        return Ok(text);
    }
    let part = Fields::at(part, path)?;
    let kind = part.string("type")?.ok_or_else(|| part.missing("type"))?;
    match kind {
        "text" | "input_text" | "output_text" => part.string("text")?.ok_or_else(|| part.missing("text")),
        "refusal" => part.string("refusal")?.ok_or_else(|| part.missing("refusal")),
        kind => {
            let medium = ["image", "audio", "video", "file"].into_iter().find(|medium| kind.contains(medium));
            let message = match medium {
                Some(medium) => format!("{medium} input is not supported by this model: send text"),
                None => format!("{} is not a known kind of part", part.path("type")),
            };
            Err(Error::field(part.path("type"), message))
        }
    }
}

/// Earlier calls of the assistant, as templates expect them.
fn tool_calls(message: &Fields<'_>) -> Result<Option<Vec<Value>>, Error> {
    let Some(calls) = message.array("tool_calls")?.filter(|calls| !calls.is_empty()) else { return Ok(None) };
    let path = message.path("tool_calls");
    let calls = calls.iter().enumerate().map(|(at, call)| tool_call(&Fields::at(call, item(&path, at))?));
    calls.collect::<Result<_, _>>().map(Some)
}

fn tool_call(call: &Fields<'_>) -> Result<Value, Error> {
    let function = call.object("function")?.ok_or_else(|| call.missing("function"))?;
    let name = function.string("name")?.ok_or_else(|| function.missing("name"))?;
    let arguments = match function.get("arguments") {
        None => Value::Object(Map::new()),
        Some(Value::Object(arguments)) => Value::Object(arguments.clone()),
        Some(Value::String(text)) if text.trim().is_empty() => Value::Object(Map::new()),
        Some(Value::String(text)) => serde_json::from_str::<Map<String, Value>>(text)
            .map(Value::Object)
            .map_err(|_| function.refuse("arguments", "must be a JSON object, as a string"))?,
        Some(other) => return Err(wrong(&function.path("arguments"), "a JSON object, as a string", other)),
    };
    let mut read = Map::new();
    if let Some(id) = call.string("id")? {
        read.insert("id".to_owned(), id.into());
    }
    read.insert("type".to_owned(), "function".into());
    read.insert("function".to_owned(), serde_json::json!({"name": name, "arguments": arguments}));
    Ok(Value::Object(read))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn messages(value: &Value) -> Result<Vec<Value>, Error> {
        read(&Fields::of(&json!({"messages": value})).unwrap())
    }

    fn check_fault(value: &Value, param: &str) {
        assert_eq!(messages(value).unwrap_err().body.error.param.as_deref(), Some(param));
    }

    // U015
    #[test]
    fn text_parts_are_joined() {
        for role in ["system", "user", "tool"] {
            let parts = json!([{"role": role, "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]}]);
            assert_eq!(messages(&parts).unwrap()[0]["content"], "ab");
        }
    }

    // U016
    #[test]
    fn a_message_of_tool_calls_needs_no_content() {
        let call =
            json!([{"id": "1", "type": "function", "function": {"name": "f", "arguments": "{\"x\": 1}"}}]);
        let forms = [
            json!({"role": "assistant", "content": null, "tool_calls": call}),
            json!({"role": "assistant", "content": "", "tool_calls": call}),
            json!({"role": "assistant", "tool_calls": call}),
        ];
        let read = forms.map(|form| messages(&json!([form])).unwrap());
        assert!(read.iter().all(|form| form == &read[0]));
        assert_eq!(read[0][0]["tool_calls"][0]["function"]["arguments"], json!({"x": 1}));
    }

    #[test]
    fn faults_are_named_by_their_path() {
        check_fault(&json!([]), "messages");
        check_fault(&json!("hi"), "messages");
        check_fault(&json!([{"role": "user"}]), "messages[0].content");
        check_fault(&json!([{"role": "assistant"}]), "messages[0].content");
        check_fault(&json!([{"role": "king", "content": "x"}]), "messages[0].role");
        check_fault(&json!([{"content": "x"}]), "messages[0].role");
        check_fault(&json!([{"role": "user", "content": 5}]), "messages[0].content");
        check_fault(&json!([{"role": "user", "content": [{"text": "x"}]}]), "messages[0].content[0].type");
        let call =
            json!([{"role": "assistant", "tool_calls": [{"function": {"name": "f", "arguments": "{"}}]}]);
        check_fault(&call, "messages[0].tool_calls[0].function.arguments");
    }

    // U110
    #[test]
    fn other_media_are_refused_by_name() {
        let image = json!([{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "http://127.0.0.1"}}]}]);
        let error = messages(&image).unwrap_err();
        assert!(error.body.error.message.starts_with("image input is not supported"));
    }
}
