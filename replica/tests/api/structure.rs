//! Answers that must have a shape.

use std::time::Instant;

use serde_json::{Value, json};

use crate::support::{PATIENCE, Replica, with};

fn schema() -> Value {
    json!({"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"], "additionalProperties": false})
}

fn format(schema: &Value) -> Value {
    json!({"response_format": {"type": "json_schema", "json_schema": {"name": "s", "strict": true, "schema": schema}}})
}

#[test]
fn an_answer_fits_its_structure_whatever_the_model_wants() {
    let replica = Replica::start(&[]);
    let text = |script: &str, extra: Value| {
        let extra = with(json!({"max_tokens": 200, "n": 2, "temperature": 1, "seed": 1}), extra);
        let reply = replica.chat(script, extra.clone());
        assert_eq!(reply.status, 200, "{}", reply.text());
        let text = reply.json()["choices"][0]["message"]["content"].as_str().unwrap().to_owned();
        let streamed = replica.chat(script, with(extra, json!({"stream": true})));
        let joined: String = streamed
            .events()
            .iter()
            .filter_map(|event| {
                let chunk: Value = serde_json::from_str(event).ok()?;
                let choice = chunk["choices"].get(0).filter(|choice| choice["index"] == 0)?.clone();
                Some(choice["delta"]["content"].as_str()?.to_owned())
            })
            .collect();
        assert_eq!(joined, text);
        text
    };
    assert_eq!(text("[[say:{\"a\": 7}]]", format(&schema())), "{\"a\": 7}");
    for extra in
        [json!({"structured_outputs": {"choice": ["yes", "no"]}}), json!({"guided_choice": ["yes", "no"]})]
    {
        assert!(["yes", "no"].contains(&text("[[say:maybe]]", extra).as_str()));
    }
    for extra in [json!({"structured_outputs": {"regex": "[0-9]{3}x"}}), json!({"guided_regex": "[0-9]{3}x"})]
    {
        let said = text("[[say:12ab]]", extra);
        assert!(said.len() == 4 && said.ends_with('x'), "{said}");
    }
    let grammar = json!({"structured_outputs": {"grammar": "start: \"ab\" | \"cd\""}});
    assert!(["ab", "cd"].contains(&text("[[say:xx]]", grammar).as_str()));
    assert_eq!(text("[[say:{}]]", json!({"response_format": {"type": "json_object"}})), "{}");
    // A stop string ends a structure too.
    assert_eq!(text("[[say:{\"a\": 7}]]", with(format(&schema()), json!({"stop": "7"}))), "{\"a\": ");
    replica.settle();
}

// U035
#[test]
fn structures_out_of_bounds_are_refused_soon() {
    let replica = Replica::start(&[]);
    let circular = json!({"type": "object", "properties": {"a": {"$ref": "#"}}, "required": ["a"]});
    let schemas = [
        json!({"type": "array", "items": {}}),
        json!("object"),
        json!({"type": "objekt"}),
        json!({"$ref": "#"}),
        circular,
        json!({"type": "object", "description": "x".repeat(1 << 20)}),
        json!({"type": "object", "properties": {"a": {"enum": (0..10_000).map(|n| n.to_string()).collect::<Vec<_>>()}}}),
        json!({"type": "object", "properties": {"a": {"type": "string", "pattern": "("}}}),
    ];
    for schema in schemas {
        let begun = Instant::now();
        let reply = replica.chat("x", format(&schema));
        assert_eq!(reply.status, 400, "{}", reply.text());
        assert!(reply.param().as_str().unwrap().starts_with("response_format"), "{}", reply.text());
        assert!(begun.elapsed() < PATIENCE);
    }
    for (extra, param) in [
        (json!({"response_format": {"type": "xml"}}), "response_format.type"),
        (json!({"response_format": {}}), "response_format.type"),
        (json!({"response_format": {"type": "json_schema"}}), "response_format.json_schema"),
        (json!({"structured_outputs": {"regex": "("}}), "structured_outputs"),
        (json!({"structured_outputs": {"grammar": "start: missing"}}), "structured_outputs"),
        (json!({"structured_outputs": {"choice": []}}), "structured_outputs.choice"),
        (json!({"guided_regex": "a", "guided_choice": ["b"]}), "structured_outputs"),
        (json!({"guided_json": "{"}), "guided_json"),
        (json!({"guided_regex": "a", "ignore_eos": true}), "ignore_eos"),
    ] {
        let reply = replica.complete("x", extra.clone());
        assert_eq!((reply.status, reply.param()), (400, json!(param)), "{extra}: {}", reply.text());
    }
    assert_eq!(replica.chat("[[say:ok]]", json!({})).status, 200);
}
