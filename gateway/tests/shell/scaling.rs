//! What autoscalers are told.

use crate::support::{Act, Client, Gateway, Stub, chat, get, until};

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
