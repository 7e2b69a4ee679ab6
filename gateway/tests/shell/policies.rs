//! Policies that operators change while the gateway runs.

use crate::support::{Act, Gateway, Stub, chat, get, post};

/// How often each was asked.
fn counts(stubs: &[&Stub]) -> Vec<usize> {
    stubs.iter().map(|stub| stub.requests()).collect()
}

#[tokio::test]
async fn a_model_follows_its_policy_from_the_next_request_on() {
    let (one, two) =
        (Stub::start(|_| Act::json(200, "{}")).await, Stub::start(|_| Act::json(200, "{}")).await);
    let gateway = Gateway::ready(&[&one, &two], &[]).await;
    let change = async |body: &str| post(gateway.admin, "/routing", body).await;
    let refused = change(r#"{"model":"m","policy":"best"}"#).await;
    assert_eq!((refused.status, refused.code().as_str()), (400, "invalid_body"));
    assert!(refused.text().contains("least_kv"), "it says what there is");
    let changed = change(r#"{"model":"m","policy":"round_robin"}"#).await;
    assert_eq!(changed.json()["models"]["m"], "round_robin");
    for _ in 0..10 {
        assert_eq!(gateway.post("/v1/chat/completions", &chat("x")).await.status, 200);
    }
    assert_eq!(counts(&[&one, &two]), [5, 5], "in turn");
    assert_eq!(change(r#"{"model":"m"}"#).await.json()["models"], serde_json::json!({}));
    assert_eq!(change(r#"{"policy":"least_requests"}"#).await.json()["policy"], "least_requests");
    assert_eq!(get(gateway.admin, "/routing").await.json()["policy"], "least_requests");
}

#[tokio::test]
async fn the_file_names_policies_of_models_that_come_later() {
    let gateway =
        Gateway::start_with(&[], &[("ROUTING__POLICIES", r#"{"m"="least_kv","n"="round_robin"}"#)], &[]);
    let list = get(gateway.admin, "/routing").await.json();
    assert_eq!(list["models"], serde_json::json!({ "m": "least_kv", "n": "round_robin" }));
    assert_eq!(list["policy"], "expected_ttft");
}
