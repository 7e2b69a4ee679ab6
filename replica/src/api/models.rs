//! `/v1/models`: the one model, under each of its names.
//!
//! While it loads there is none: scripts that wait for this route, as they do with other engines, wait rightly.

use serde_json::{Value, json};

use super::app::{App, model_names};
use super::respond::{self, Response};
use crate::error::Error;

/// All names.
///
/// # Errors
///
/// While the model loads.
pub fn list(app: &App) -> Result<Response, Error> {
    app.loaded()?;
    let names = model_names(&app.config);
    let models: Vec<_> = names.iter().map(|name| entry(app, name, &names[0])).collect();
    Ok(respond::json(&json!({"object": "list", "data": models})))
}

/// One name; it may be percent-encoded, since names may hold slashes.
pub fn one(app: &App, encoded: &str) -> Result<Response, Error> {
    app.loaded()?;
    let names = model_names(&app.config);
    let name = percent_decode(encoded);
    if !names.contains(&name) {
        return Err(Error::unknown_model(&name, &names));
    }
    Ok(respond::json(&entry(app, &name, &names[0])))
}

fn entry(app: &App, name: &str, root: &str) -> Value {
    json!({
        "id": name,
        "object": "model",
        "created": app.created,
        "owned_by": "flotilla",
        "root": root,
        "parent": null,
        "max_model_len": app.report().context_tokens_max,
    })
}

fn percent_decode(text: &str) -> String {
    let bytes = text.as_bytes();
    let mut decoded = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while at < bytes.len() {
        let hex = text.get(at + 1..at + 3).and_then(|hex| u8::from_str_radix(hex, 16).ok());
        let escaped = hex.filter(|_| bytes[at] == b'%');
        decoded.push(escaped.unwrap_or(bytes[at]));
        at += if escaped.is_some() { 3 } else { 1 };
    }
    String::from_utf8_lossy(&decoded).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_with_slashes_may_be_encoded() {
        for (encoded, name) in
            [("a%2Fb", "a/b"), ("a/b", "a/b"), ("100%", "100%"), ("%zz", "%zz"), ("é%C3%A9", "éé")]
        {
            assert_eq!(percent_decode(encoded), name);
        }
    }
}
