//! Replicas behind a name.

use crate::support::{Act, Gateway, Stub, chat, until};

#[tokio::test]
async fn the_addresses_of_a_name_are_replicas() {
    let stub = Stub::start(|_| Act::json(200, "{}")).await;
    let port = stub.name().rsplit(':').next().unwrap().to_owned();
    let names = format!("[{{name=\"localhost:{port}\"}}]");
    let gateway = Gateway::start(&[], &[("DNS", &names)]);
    // The name may stand for ::1 too, where nobody listens.
    until("the replica takes work", async || {
        gateway.post("/v1/chat/completions", &chat("x")).await.status == 200
    })
    .await;
    let fleet = gateway.fleet().await;
    let found = fleet.iter().find(|entry| entry["id"] == stub.name().as_str()).unwrap();
    assert_eq!(found["source"], "dns");
}
