//! `GET /v1/models`, the one route all engines have.

use serde::Deserialize;

#[derive(Deserialize)]
struct List {
    #[serde(default)]
    data: Vec<Entry>,
}

#[derive(Deserialize)]
struct Entry {
    id: String,
    owned_by: Option<String>,
    max_model_len: Option<u32>,
}

fn list(text: &str) -> Vec<Entry> {
    serde_json::from_str::<List>(text).map(|list| list.data).unwrap_or_default()
}

/// Names of the models; empty when the text is no list.
pub fn names(text: &str) -> Vec<String> {
    list(text).into_iter().map(|entry| entry.id).collect()
}

/// Who owns the first model: engines put their own name there.
pub fn owner(text: &str) -> Option<String> {
    list(text).into_iter().next()?.owned_by
}

/// The longest sequence the first model takes, where it is said.
pub fn context_tokens_max(text: &str) -> Option<u32> {
    list(text).first()?.max_model_len
}
