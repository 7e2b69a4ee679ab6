//! `/openapi.json`: what each route takes and gives, for clients and for testers that make requests from it.

use serde_json::{Value, json};

/// The document of a replica that answers to `names`.
pub fn document(names: &[String]) -> Value {
    json!({
        "openapi": "3.1.0",
        "info": {
            "title": "flotilla-replica",
            "version": env!("CARGO_PKG_VERSION"),
            "description": "One model behind OpenAI's API. Unknown fields are ignored; null is absence.",
        },
        "components": {
            "securitySchemes": {"key": {"type": "http", "scheme": "bearer"}},
            "schemas": {
                "Error": error(),
                "Model": model(names),
                "Message": message(),
                "Tool": tool(),
                "Structures": structures(),
                "ResponseFormat": response_format(),
            },
        },
        "paths": paths(),
    })
}

fn paths() -> Value {
    json!({
        "/v1/chat/completions": post("An answer to messages", &chat()),
        "/v1/completions": post("An answer that goes on from text", &completion()),
        "/v1/responses": post("An answer to items; nothing is stored", &response()),
        "/v1/embeddings": post("One vector a text", &embedding()),
        "/tokenize": post("Tokens of a text or of messages", &tokenize()),
        "/detokenize": post("Text of tokens", &detokenize()),
        "/v1/models": get("The names the model answers to"),
        "/v1/models/{id}": {
            "get": {
                "summary": "One of these names",
                "parameters": [{"name": "id", "in": "path", "required": true, "schema": {"type": "string"}}],
                "responses": {"200": ok("application/json"), "default": refusal()},
            },
        },
        "/health": get("Alive, while loading and draining too"),
        "/ready": get("Taking work"),
        "/ping": get("Alive"),
        "/fleet/report": get("Identity, state and load"),
    })
}

fn post(summary: &str, schema: &Value) -> Value {
    json!({
        "post": {
            "summary": summary,
            "security": [{"key": []}],
            "requestBody": {"required": true, "content": {"application/json": {"schema": schema}}},
            "responses": {"200": ok("application/json"), "default": refusal()},
        },
    })
}

fn get(summary: &str) -> Value {
    json!({"get": {"summary": summary, "responses": {"200": ok("application/json"), "default": refusal()}}})
}

fn ok(content: &str) -> Value {
    json!({"description": "The answer; with `stream`, events.", "content": {content: {}, "text/event-stream": {}}})
}

fn refusal() -> Value {
    let schema = json!({"$ref": "#/components/schemas/Error"});
    json!({"description": "Why there is none.", "content": {"application/json": {"schema": schema}}})
}

fn model(names: &[String]) -> Value {
    let names: Vec<_> = names.iter().map(|name| json!(name)).chain([Value::Null]).collect();
    json!({"enum": names, "description": "One of /v1/models; the first where absent."})
}

fn error() -> Value {
    let word = json!({"type": ["string", "null"]});
    let fields =
        json!({"message": {"type": "string"}, "type": {"type": "string"}, "param": word, "code": word});
    let detail =
        json!({"type": "object", "properties": fields, "required": ["message", "type", "param", "code"]});
    json!({"type": "object", "properties": {"error": detail}, "required": ["error"]})
}

fn message() -> Value {
    let part = json!({
        "type": "object",
        "properties": {"type": {"const": "text"}, "text": {"type": "string"}},
        "required": ["type", "text"],
    });
    json!({
        "type": "object",
        "properties": {
            "role": {"enum": ["system", "developer", "user", "assistant", "tool", "function"]},
            "content": {"type": ["string", "array", "null"], "items": part},
            "name": {"type": "string"},
            "tool_call_id": {"type": "string"},
            "tool_calls": {"type": "array", "items": {"type": "object"}},
        },
        "required": ["role"],
    })
}

fn tool() -> Value {
    let function = json!({
        "type": "object",
        "properties": {
            "name": {"type": "string", "pattern": "^[A-Za-z0-9_.-]{1,128}$"},
            "description": {"type": "string"},
            "parameters": {"type": "object"},
        },
        "required": ["name"],
    });
    json!({"type": "object", "properties": {"type": {"const": "function"}, "function": function}, "required": ["type", "function"]})
}

fn structures() -> Value {
    json!({
        "type": "object",
        "properties": {
            "json": {"type": ["object", "string"]},
            "regex": {"type": "string"},
            "choice": {"type": "array", "items": {"type": "string"}, "minItems": 1},
            "grammar": {"type": "string"},
            "json_object": {"type": "boolean"},
        },
    })
}

fn response_format() -> Value {
    json!({
        "type": "object",
        "properties": {
            "type": {"enum": ["text", "json_object", "json_schema"]},
            "json_schema": {"type": "object", "properties": {"name": {"type": "string"}, "schema": {"type": "object"}}},
        },
        "required": ["type"],
    })
}

/// Fields that chat and completions share, and `own` ones.
fn generation(own: &Value, required: &str) -> Value {
    let whole = |min: i64, max: i64| json!({"type": ["integer", "null"], "minimum": min, "maximum": max});
    let number = |min: f64, max: f64| json!({"type": ["number", "null"], "minimum": min, "maximum": max});
    let yes = json!({"type": ["boolean", "null"]});
    let mut properties = json!({
        "model": {"$ref": "#/components/schemas/Model"},
        "stream": yes,
        "stream_options": {
            "type": ["object", "null"],
            "properties": {"include_usage": yes, "continuous_usage_stats": yes},
        },
        "temperature": number(0.0, 2.0),
        "top_p": number(0.0, 1.0),
        "top_k": whole(-1, i64::from(u32::MAX)),
        "min_p": number(0.0, 1.0),
        "presence_penalty": number(-2.0, 2.0),
        "frequency_penalty": number(-2.0, 2.0),
        "repetition_penalty": number(0.01, 10.0),
        "logit_bias": {"type": ["object", "null"], "additionalProperties": {"type": "number", "minimum": -100, "maximum": 100}},
        "seed": {"type": ["integer", "null"]},
        "n": whole(1, 128),
        "max_tokens": {"type": ["integer", "null"], "minimum": 1},
        "max_completion_tokens": {"type": ["integer", "null"], "minimum": 1},
        "min_tokens": {"type": ["integer", "null"], "minimum": 0},
        "stop": {"type": ["string", "array", "null"], "items": {"type": "string", "minLength": 1}, "maxItems": 16},
        "stop_token_ids": {"type": ["array", "null"], "items": {"type": "integer", "minimum": 0}, "maxItems": 64},
        "bad_words": {"type": ["array", "null"], "items": {"type": "string", "minLength": 1}, "maxItems": 128},
        "ignore_eos": yes,
        "include_stop_str_in_output": yes,
        "skip_special_tokens": yes,
        "cache_salt": {"type": ["string", "null"]},
        "response_format": {"$ref": "#/components/schemas/ResponseFormat"},
        "structured_outputs": {"$ref": "#/components/schemas/Structures"},
    });
    if let (Some(all), Some(own)) = (properties.as_object_mut(), own.as_object()) {
        all.extend(own.clone());
    }
    json!({"type": "object", "properties": properties, "required": [required]})
}

fn chat() -> Value {
    let own = json!({
        "messages": {"type": "array", "items": {"$ref": "#/components/schemas/Message"}, "minItems": 1},
        "tools": {"type": ["array", "null"], "items": {"$ref": "#/components/schemas/Tool"}},
        "tool_choice": {"type": ["string", "object", "null"]},
        "parallel_tool_calls": {"type": ["boolean", "null"]},
        "logprobs": {"type": ["boolean", "null"]},
        "top_logprobs": {"type": ["integer", "null"], "minimum": 0, "maximum": 20},
        "prompt_logprobs": {"type": ["integer", "null"], "minimum": 0, "maximum": 20},
        "add_generation_prompt": {"type": ["boolean", "null"]},
        "continue_final_message": {"type": ["boolean", "null"]},
        "chat_template_kwargs": {"type": ["object", "null"]},
    });
    generation(&own, "messages")
}

fn completion() -> Value {
    let own = json!({
        "prompt": {"type": ["string", "array"], "items": {"type": ["string", "integer", "array"]}},
        "echo": {"type": ["boolean", "null"]},
        "logprobs": {"type": ["integer", "null"], "minimum": 0, "maximum": 20},
        "prompt_logprobs": {"type": ["integer", "null"], "minimum": 0, "maximum": 20},
    });
    generation(&own, "prompt")
}

fn response() -> Value {
    let own = json!({
        "input": {"type": ["string", "array"], "items": {"type": "object"}},
        "instructions": {"type": ["string", "null"]},
        "max_output_tokens": {"type": ["integer", "null"], "minimum": 1},
        "tools": {"type": ["array", "null"], "items": {"type": "object"}},
        "text": {"type": ["object", "null"]},
    });
    generation(&own, "input")
}

fn embedding() -> Value {
    json!({
        "type": "object",
        "properties": {
            "model": {"$ref": "#/components/schemas/Model"},
            "input": {"type": ["string", "array"], "items": {"type": ["string", "integer", "array"]}},
            "encoding_format": {"enum": ["float", "base64", null]},
            "pooling": {"enum": ["last", "mean", null]},
        },
        "required": ["input"],
    })
}

fn tokenize() -> Value {
    json!({
        "type": "object",
        "properties": {
            "model": {"$ref": "#/components/schemas/Model"},
            "prompt": {"type": ["string", "null"]},
            "messages": {"type": ["array", "null"], "items": {"$ref": "#/components/schemas/Message"}},
            "add_special_tokens": {"type": ["boolean", "null"]},
            "return_token_strs": {"type": ["boolean", "null"]},
        },
    })
}

fn detokenize() -> Value {
    let tokens = json!({"type": "array", "items": {"type": "integer", "minimum": 0}});
    json!({"type": "object", "properties": {"model": {"$ref": "#/components/schemas/Model"}, "tokens": tokens}, "required": ["tokens"]})
}
