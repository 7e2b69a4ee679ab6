//! Copies of requests that go to another model, and that clients never notice.

use crate::support::{Act, Gateway, Stub, chat, chat_stream, until};

const SHADOWS: (&str, &str) = ("MODELS__SHADOWS", r#"{m={model="new",share=1.0}}"#);

async fn count(gateway: &Gateway, outcome: &str) -> f64 {
    gateway.metric(&format!("flotilla_gateway_shadows_total{{outcome=\"{outcome}\"}}")).await
}

#[tokio::test]
async fn another_model_gets_a_copy_and_the_client_one_answer() {
    let old = Stub::start(|_| Act::stream(&["old"])).await;
    let new = Stub::start_as("127.0.0.1:0".parse().unwrap(), &["new"], |_| Act::stream(&["new"])).await;
    let gateway = Gateway::ready(&[&old, &new], &[SHADOWS]).await;
    let answer = gateway.post("/v1/chat/completions", &chat_stream("hello")).await;
    assert!(answer.text().contains("old") && !answer.text().contains("new"), "{}", answer.text());
    until("the copy is answered", async || count(&gateway, "ok").await == 1.0).await;
    let copy = &new.recorded()[0];
    let body: serde_json::Value = serde_json::from_slice(&copy.body).unwrap();
    assert_eq!((&body["model"], &body["messages"][0]["content"]), (&"new".into(), &"hello".into()));
    assert_eq!(copy.header("x-request-id"), [format!("{}-shadow", answer.header("x-request-id").unwrap())]);
    assert_eq!(gateway.metric("flotilla_gateway_requests_total{model=\"new\",outcome=\"ok\"}").await, 0.0);
    gateway.await_idle().await;
}

#[tokio::test]
async fn a_shadow_that_fails_hangs_or_is_not_there_hurts_nobody() {
    let old = Stub::start(|_| Act::json(200, "{}")).await;
    let gateway = Gateway::ready(&[&old], &[SHADOWS, ("TIMEOUTS__FIRST_BYTE_MS", "300")]).await;
    let ask = async || {
        assert_eq!(gateway.post("/v1/chat/completions", &chat("x")).await.status, 200);
    };
    ask().await;
    until("nobody is there", async || count(&gateway, "skipped").await == 1.0).await;
    let new = Stub::start_as("127.0.0.1:0".parse().unwrap(), &["new"], |_| Act::json(500, "{}")).await;
    let registration = serde_json::json!({ "url": new.url() }).to_string();
    assert_eq!(crate::support::post(gateway.admin, "/fleet", &registration).await.status, 200);
    gateway.await_serving(2).await;
    ask().await;
    until("it fails", async || count(&gateway, "failed").await == 1.0).await;
    new.set_script(|_| vec![Act::AwaitClose]);
    ask().await;
    until("it hangs", async || count(&gateway, "failed").await == 2.0).await;
    gateway.await_idle().await;
}
