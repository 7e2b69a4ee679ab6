//! A request to `/v1/responses` as the same request to chat, and what a response repeats of it.

use serde_json::{Map, Value, json};

use crate::api::fields::{Fields, item, wrong};
use crate::api::plan::Plan;
use crate::error::Error;

/// Fields that have another name or form there.
const MAPPED: [&str; 8] = [
    "input",
    "instructions",
    "max_output_tokens",
    "tools",
    "tool_choice",
    "text",
    "stream_options",
    "reasoning",
];

/// The same request to chat.
pub fn as_chat(body: &Value) -> Result<Value, Error> {
    let fields = Fields::of(body)?;
    for name in ["previous_response_id", "conversation", "prompt"] {
        if fields.get(name).is_some() {
            return Err(fields.refuse(name, "is not supported: nothing is stored here; send the whole input"));
        }
    }
    if fields.get("prompt_logprobs").is_some() {
        return Err(
            fields.refuse("prompt_logprobs", "is not supported here; /v1/chat/completions tells them")
        );
    }
    if fields.boolean("background")?.unwrap_or(false) {
        return Err(fields.refuse("background", "is not supported"));
    }
    let kept = fields.map().iter().filter(|(name, _)| !MAPPED.contains(&name.as_str()));
    let mut chat: Map<_, _> = kept.map(|(name, value)| (name.clone(), value.clone())).collect();
    chat.insert("messages".to_owned(), messages(&fields)?.into());
    if let Some(most) = fields.get("max_output_tokens") {
        chat.insert("max_completion_tokens".to_owned(), most.clone());
    }
    if let Some(tools) = fields.array("tools")? {
        let path = fields.path("tools");
        let tools =
            tools.iter().enumerate().map(|(at, tool)| self::tool(&Fields::at(tool, item(&path, at))?));
        chat.insert("tools".to_owned(), tools.collect::<Result<Vec<_>, _>>()?.into());
    }
    match fields.get("tool_choice") {
        Some(Value::Object(choice)) => {
            let named = json!({"type": choice.get("type"), "function": {"name": choice.get("name")}});
            chat.insert("tool_choice".to_owned(), named);
        }
        Some(choice) => drop(chat.insert("tool_choice".to_owned(), choice.clone())),
        None => {}
    }
    if let Some(text) = fields.object("text")?
        && let Some(format) = text.object("format")?
    {
        chat.insert("response_format".to_owned(), response_format(&format)?);
    }
    Ok(Value::Object(chat))
}

/// A fault of the chat, blamed on the field of this API.
pub fn blamed(mut error: Error) -> Error {
    let names = [
        ("messages", "input"),
        ("max_completion_tokens", "max_output_tokens"),
        ("response_format", "text.format"),
    ];
    for (chat, ours) in names {
        let detail = &mut error.body.error;
        if let Some(param) = detail.param.as_mut().filter(|param| param.starts_with(chat)) {
            *param = param.replacen(chat, ours, 1);
            detail.message = detail.message.replace(chat, ours);
        }
    }
    error
}

/// What a response tells of its request.
pub fn repeated(body: &Value, plan: &Plan) -> Map<String, Value> {
    let given = |name: &str, default: Value| {
        body.get(name).filter(|value| !value.is_null()).cloned().unwrap_or(default)
    };
    let fields = json!({
        "background": false,
        "instructions": given("instructions", Value::Null),
        "max_output_tokens": given("max_output_tokens", Value::Null),
        "metadata": given("metadata", json!({})),
        "parallel_tool_calls": given("parallel_tool_calls", json!(true)),
        "previous_response_id": null,
        "reasoning": given("reasoning", json!({"effort": null, "summary": null})),
        "service_tier": "default",
        "store": false,
        "temperature": plan.options.sampling.temperature,
        "text": given("text", json!({"format": {"type": "text"}})),
        "tool_choice": given("tool_choice", json!("auto")),
        "tools": given("tools", json!([])),
        "top_p": plan.options.sampling.top_p,
        "truncation": "disabled",
        "user": given("user", Value::Null),
    });
    match fields {
        Value::Object(fields) => fields,
        _ => Map::new(),
    }
}

fn messages(fields: &Fields<'_>) -> Result<Vec<Value>, Error> {
    let mut messages = Vec::new();
    if let Some(instructions) = fields.string("instructions")? {
        messages.push(json!({"role": "system", "content": instructions}));
    }
    match fields.get("input") {
        None => return Err(fields.missing("input")),
        Some(Value::String(text)) => messages.push(json!({"role": "user", "content": text})),
        Some(Value::Array(items)) => {
            let path = fields.path("input");
            for (at, one) in items.iter().enumerate() {
                add_item(&Fields::at(one, item(&path, at))?, &mut messages)?;
            }
        }
        Some(other) => return Err(wrong(&fields.path("input"), "a string or an array", other)),
    }
    if messages.is_empty() {
        return Err(fields.refuse("input", "is empty"));
    }
    Ok(messages)
}

fn add_item(item: &Fields<'_>, messages: &mut Vec<Value>) -> Result<(), Error> {
    match item.string("type")?.unwrap_or("message") {
        "message" => messages.push(Value::Object(item.map().clone())),
        "function_call" => {
            let name = item.string("name")?.ok_or_else(|| item.missing("name"))?;
            let id = item.string("call_id")?.ok_or_else(|| item.missing("call_id"))?;
            let arguments = item.string("arguments")?.unwrap_or("{}");
            let call =
                json!({"id": id, "type": "function", "function": {"name": name, "arguments": arguments}});
            match messages
                .last_mut()
                .and_then(|last| last.get_mut("tool_calls"))
                .and_then(Value::as_array_mut)
            {
                Some(calls) => calls.push(call),
                None => messages.push(json!({"role": "assistant", "tool_calls": [call]})),
            }
        }
        "function_call_output" => {
            let id = item.string("call_id")?.ok_or_else(|| item.missing("call_id"))?;
            let output = item.get("output").ok_or_else(|| item.missing("output"))?;
            messages.push(json!({"role": "tool", "tool_call_id": id, "content": output}));
        }
        // What the model thought before is not part of its prompt.
        "reasoning" => {}
        _ => return Err(item.refuse("type", "is not a known kind of item")),
    }
    Ok(())
}

fn tool(tool: &Fields<'_>) -> Result<Value, Error> {
    tool.word("type", &[("function", ())])?.ok_or_else(|| tool.missing("type"))?;
    let function: Map<_, _> = tool
        .map()
        .iter()
        .filter(|(name, _)| *name != "type")
        .map(|(name, value)| (name.clone(), value.clone()))
        .collect();
    Ok(json!({"type": "function", "function": function}))
}

fn response_format(format: &Fields<'_>) -> Result<Value, Error> {
    let kind = format.string("type")?.ok_or_else(|| format.missing("type"))?;
    if kind != "json_schema" {
        return Ok(json!({"type": kind}));
    }
    let schema = format.get("schema").ok_or_else(|| format.missing("schema"))?;
    Ok(
        json!({"type": kind, "json_schema": {"name": format.get("name"), "schema": schema, "strict": format.get("strict")}}),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn items_become_messages() {
        let body = json!({"instructions": "be kind", "input": [
            {"role": "user", "content": [{"type": "input_text", "text": "hi"}]},
            {"type": "function_call", "call_id": "1", "name": "f", "arguments": "{}"},
            {"type": "function_call", "call_id": "2", "name": "g", "arguments": "{}"},
            {"type": "function_call_output", "call_id": "1", "output": "42"},
        ]});
        let chat = as_chat(&body).unwrap();
        let roles: Vec<_> = chat["messages"]
            .as_array()
            .unwrap()
            .iter()
            .map(|message| message["role"].as_str().unwrap())
            .collect();
        assert_eq!(roles, ["system", "user", "assistant", "tool"]);
        assert_eq!(chat["messages"][2]["tool_calls"].as_array().unwrap().len(), 2);
    }

    #[test]
    fn faults_are_blamed_on_the_fields_of_this_api() {
        let error = blamed(Error::field("messages[0].content", "messages[0].content is missing"));
        assert_eq!(error.body.error.param.as_deref(), Some("input[0].content"));
        for (body, param) in [
            (json!({}), "input"),
            (json!({"input": 5}), "input"),
            (json!({"input": "x", "previous_response_id": "r"}), "previous_response_id"),
            (json!({"input": [{"type": "image_generation_call"}]}), "input[0].type"),
            (json!({"input": "x", "tools": [{"type": "web_search"}]}), "tools[0].type"),
        ] {
            assert_eq!(as_chat(&body).unwrap_err().body.error.param.as_deref(), Some(param));
        }
    }
}
