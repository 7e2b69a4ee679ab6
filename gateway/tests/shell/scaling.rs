//! What autoscalers are told.

use crate::support::{Act, Client, Gateway, Stub, chat, get, post, until};

async fn scale(gateway: &Gateway) -> serde_json::Value {
    let list = get(gateway.admin, "/scale").await.json();
    list["models"].as_array().and_then(|models| models.first()).cloned().unwrap_or_default()
}

#[tokio::test]
async fn more_work_than_the_replica_has_places_wants_more_replicas() {
    let stub = Stub::start(|_| vec![Act::AwaitClose]).await;
    stub.set_running_max(2);
    let gateway = Gateway::ready(&[&stub], &[("SCALE__REPLICAS_MAX", "3")]).await;
    until("the model is known", async || scale(&gateway).await["replicas_ready"] == 1).await;
    assert_eq!(scale(&gateway).await["replicas_wanted"], 1);
    let mut clients = Vec::new();
    for _ in 0..8 {
        let mut client = Client::connect(gateway.public).await;
        client.ask("POST", "/v1/chat/completions", "", chat("x").as_bytes()).await;
        clients.push(client);
    }
    // Eight requests are four replicas' worth of work; three are the most there may be.
    until("three are wanted", async || scale(&gateway).await["replicas_wanted"] == 3).await;
    let entry = scale(&gateway).await;
    assert!(entry["waiting"].as_u64().unwrap() >= 1 && entry["load"].as_f64().unwrap() > 2.0, "{entry}");
    drop(clients);
    gateway.await_idle().await;
    assert_eq!(scale(&gateway).await["replicas_wanted"], 3, "fewer only after a whole window");
}

/// Scale from zero: with a hold, a request waits for the first replica, and no longer than the hold.
#[tokio::test]
async fn a_request_is_held_until_the_first_replica_comes() {
    let gateway = Gateway::start(&[], &[("QUEUE__HOLD_MS", "20000")]);
    let mut early = Client::connect(gateway.public).await;
    early.ask("POST", "/v1/chat/completions", "", chat("x").as_bytes()).await;
    until("it waits", async || gateway.metric("flotilla_gateway_requests_queued").await == 1.0).await;
    let stub = Stub::start(|_| Act::json(200, "{}")).await;
    let body = format!("{{\"url\":\"{}\"}}", stub.url());
    assert_eq!(post(gateway.admin, "/fleet", &body).await.status, 200);
    assert_eq!(early.answer().await.unwrap().status, 200);
}

#[tokio::test]
async fn a_hold_that_ends_says_that_nobody_is_there() {
    let gateway = Gateway::start(&[], &[("QUEUE__HOLD_MS", "300")]);
    let begin = std::time::Instant::now();
    let answer = gateway.post("/v1/chat/completions", &chat("x")).await;
    assert_eq!((answer.status, answer.code().as_str()), (503, "no_replica"));
    assert!(answer.header("retry-after").is_some());
    assert!(begin.elapsed() >= std::time::Duration::from_millis(300));
    gateway.await_idle().await;
}
