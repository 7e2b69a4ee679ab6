//! `/tokenize` and `/detokenize`, in vLLM's shapes.

use serde_json::{Value, json};

use super::chat;
use super::fields::Fields;
use super::options::token_ids;
use super::respond::{self, Response};
use super::served::Served;
use super::tools::Tools;
use crate::error::Error;

/// The tokens of `prompt`, or of `messages` as a chat would have them.
pub fn tokenize(body: &Value, served: &Served) -> Result<Response, Error> {
    let fields = Fields::of(body)?;
    served.requested_model(&fields)?;
    let tokens = match fields.string("prompt")? {
        Some(text) => {
            let add_special = fields.boolean("add_special_tokens")?.unwrap_or(true);
            served
                .tokenizer
                .encode(text, add_special)
                .map_err(|error| fields.refuse("prompt", &error.to_string()))?
        }
        None if fields.get("messages").is_some() => {
            chat::prompt(&fields, Tools::read(&fields)?.as_ref(), served)?.tokens
        }
        None => return Err(fields.missing("prompt")),
    };
    let texts = fields.boolean("return_token_strs")?.unwrap_or(false).then(|| {
        let text = |&token| String::from_utf8_lossy(served.tokenizer.token_bytes(token)).into_owned();
        tokens.iter().map(text).collect::<Vec<_>>()
    });
    Ok(respond::json(&json!({
        "count": tokens.len(),
        "max_model_len": served.limit_tokens(),
        "tokens": tokens,
        "token_strs": texts,
    })))
}

/// The text of `tokens`.
pub fn detokenize(body: &Value, served: &Served) -> Result<Response, Error> {
    let fields = Fields::of(body)?;
    served.requested_model(&fields)?;
    let ids = fields.array("tokens")?.ok_or_else(|| fields.missing("tokens"))?;
    let tokens = token_ids(ids, "tokens", served.vocab_tokens)?;
    Ok(respond::json(&json!({"prompt": served.tokenizer.decode(&tokens, false)})))
}
