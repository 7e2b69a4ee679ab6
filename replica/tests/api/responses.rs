//! `/v1/responses`.

use serde_json::{Value, json};

use crate::support::{Replica, with};

const PATH: &str = "/v1/responses";
const TEMPLATE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/api/hermes.jinja");

/// Names and bodies of a stream's events.
fn events(replica: &Replica, body: Value) -> Vec<Value> {
    let reply = replica.post(PATH, &with(body, json!({"stream": true})));
    assert_eq!(reply.status, 200, "{}", reply.text());
    let text = reply.text();
    let read = text.split("\n\n").filter(|event| !event.is_empty()).map(|event| {
        let (name, data) = event.split_once('\n').unwrap();
        let body: Value = serde_json::from_str(data.strip_prefix("data: ").unwrap()).unwrap();
        assert_eq!(name.strip_prefix("event: ").unwrap(), body["type"]);
        body
    });
    let read: Vec<_> = read.collect();
    for (at, event) in read.iter().enumerate() {
        assert_eq!(event["sequence_number"], at);
    }
    read
}

/// A response without what differs from one to the next.
fn without_ids(mut response: Value) -> Value {
    for name in ["id", "created_at"] {
        response.as_object_mut().unwrap().remove(name);
    }
    for item in response["output"].as_array_mut().unwrap() {
        for name in ["id", "call_id"] {
            item.as_object_mut().unwrap().remove(name);
        }
    }
    response["usage"]["input_tokens_details"].take();
    response
}

#[test]
fn text_is_answered_at_once_and_in_events() {
    let replica = Replica::start(&[]);
    let body = json!({"input": "[[say:Hello]]", "temperature": 0});
    let whole = replica.post(PATH, &body).json();
    assert_eq!(
        (&whole["object"], &whole["status"], &whole["store"]),
        (&json!("response"), &json!("completed"), &json!(false))
    );
    let message = &whole["output"][0];
    assert_eq!(message["content"][0]["text"], "Hello");
    assert_eq!(whole["usage"]["output_tokens"], 6);
    let told = events(&replica, body);
    let names: Vec<_> = told.iter().map(|event| event["type"].as_str().unwrap()).collect();
    assert_eq!(
        names[..4],
        [
            "response.created",
            "response.in_progress",
            "response.output_item.added",
            "response.content_part.added"
        ]
    );
    let joined: String = told
        .iter()
        .filter(|event| event["type"] == "response.output_text.delta")
        .map(|event| event["delta"].as_str().unwrap())
        .collect();
    assert_eq!(joined, "Hello");
    let last = told.last().unwrap();
    assert_eq!(last["type"], "response.completed");
    assert_eq!(without_ids(last["response"].clone()), without_ids(whole));
}

#[test]
fn a_cut_response_says_so() {
    let replica = Replica::start(&[]);
    let body = json!({"input": "tell", "max_output_tokens": 5});
    let whole = replica.post(PATH, &body).json();
    assert_eq!(
        (&whole["status"], &whole["incomplete_details"]["reason"]),
        (&json!("incomplete"), &json!("max_output_tokens"))
    );
    assert_eq!(events(&replica, body).last().unwrap()["type"], "response.incomplete");
}

#[test]
fn tools_are_called() {
    let replica = Replica::start(&["--chat-template", TEMPLATE]);
    let call = "<tool_call>{\"name\": \"now\", \"arguments\": {\"zone\": \"UTC\"}}</tool_call>";
    let body = json!({"input": format!("[[say:{call}]]"), "tools": [{"type": "function", "name": "now", "parameters": {"type": "object"}}], "temperature": 0});
    let whole = replica.post(PATH, &body).json();
    let item = &whole["output"][0];
    assert_eq!(
        (&item["type"], &item["name"], &item["arguments"]),
        (&json!("function_call"), &json!("now"), &json!("{\"zone\": \"UTC\"}"))
    );
    let told = events(&replica, body);
    let joined: String = told
        .iter()
        .filter(|event| event["type"] == "response.function_call_arguments.delta")
        .map(|event| event["delta"].as_str().unwrap())
        .collect();
    assert_eq!(joined, "{\"zone\": \"UTC\"}");
    assert_eq!(without_ids(told.last().unwrap()["response"].clone()), without_ids(whole));
}

#[test]
fn faults_name_the_fields_of_this_api() {
    let replica = Replica::start(&[]);
    for (body, param) in [
        (json!({}), "input"),
        (json!({"input": "x", "max_output_tokens": 0}), "max_output_tokens"),
        (
            json!({"input": [{"role": "user", "content": [{"type": "input_image"}]}]}),
            "input[0].content[0].type",
        ),
        (json!({"input": "x", "previous_response_id": "resp_1"}), "previous_response_id"),
        (
            json!({"input": "x", "text": {"format": {"type": "json_schema", "schema": {"type": "array"}}}}),
            "text.format.json_schema.schema.type",
        ),
    ] {
        let reply = replica.post(PATH, &body);
        assert_eq!((reply.status, reply.param()), (400, json!(param)), "{}", reply.text());
    }
    let broken = replica.post(PATH, &json!({"input": "[[nan:3]]", "stream": true})).text();
    assert!(broken.contains("event: response.failed") && !broken.contains("[DONE]"));
}
