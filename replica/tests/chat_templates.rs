//! Our Jinja against Python's (U045): `reference/record_templates.py` made the recording.
#![expect(clippy::unwrap_used, reason = "helpers of tests")]

use replica::api::template::Template;
use serde_json::{Map, Value};

/// A template by its file, or the text of a snippet.
fn source(template: &str) -> &str {
    match template {
        "gemma.jinja" => include_str!("reference/templates/gemma.jinja"),
        "llama3.jinja" => include_str!("reference/templates/llama3.jinja"),
        "mistral.jinja" => include_str!("reference/templates/mistral.jinja"),
        "phi3.jinja" => include_str!("reference/templates/phi3.jinja"),
        "qwen3.jinja" => include_str!("reference/templates/qwen3.jinja"),
        "smollm2.jinja" => include_str!("reference/templates/smollm2.jinja"),
        snippet => snippet,
    }
}

/// What is wrong with our rendering of a case, if anything.
fn fault(case: &Value) -> Option<String> {
    let template =
        Template::new(source(case["template"].as_str().unwrap()), "<s>", "</s>").map_err(|e| e.to_string());
    let messages = case["messages"].as_array().unwrap();
    let tools = case["tools"].as_array().map(Vec::as_slice);
    let extra: &Map<String, Value> = case["extra"].as_object().unwrap();
    let add_generation_prompt = case["add_generation_prompt"].as_bool().unwrap();
    let found = template.and_then(|template| {
        template.render(messages, tools, add_generation_prompt, extra).map_err(|error| error.to_string())
    });
    // A refusal of the engine has no text that both could share; one of the template has.
    let expected = case["rendered"].as_str().ok_or(case["refused"].as_str());
    let fine = match (&found, expected) {
        (Ok(found), Ok(expected)) | (Err(found), Err(Some(expected))) => found == expected,
        (Err(_), Err(None)) => true,
        _ => false,
    };
    (!fine).then(|| format!("{}\n  Python {expected:?}\n  ours   {found:?}", case["name"]))
}

#[test]
fn templates_render_as_in_python() {
    let cases: Vec<Value> = serde_json::from_str(include_str!("reference/templates.json")).unwrap();
    let faults: Vec<String> = cases.iter().filter_map(fault).collect();
    assert!(faults.is_empty(), "{} of {} differ:\n{}", faults.len(), cases.len(), faults.join("\n"));
}
