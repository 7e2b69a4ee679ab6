//! Who joins, who leaves, and who only pretends.

use crate::support::{Act, Gateway, Stub, chat, get, request, until};
use std::time::Duration;

async fn good() -> Stub {
    Stub::start(|_| Act::json(200, "{}")).await
}

async fn register(gateway: &Gateway, body: &str) -> crate::support::Answer {
    request(gateway.admin, "POST", "/fleet", "", body.as_bytes()).await
}

#[tokio::test]
async fn a_replica_registers_itself_and_is_forgotten_when_it_stops_renewing() {
    let stub = good().await;
    let gateway = Gateway::start(&[], &[]);
    assert_eq!(gateway.post("/v1/chat/completions", &chat("x")).await.status, 503);
    let answer = register(&gateway, &format!(r#"{{"url":"{}","lease_s":1}}"#, stub.url())).await;
    assert_eq!((answer.status, answer.json()["id"].as_str().unwrap()), (200, stub.name().as_str()));
    gateway.await_serving(1).await;
    for _ in 0..8 {
        register(&gateway, &format!(r#"{{"url":"{}","lease_s":1}}"#, stub.url())).await;
        tokio::time::sleep(Duration::from_millis(250)).await;
        assert_eq!(gateway.post("/v1/chat/completions", &chat("x")).await.status, 200);
    }
    until("forgotten", async || gateway.fleet().await.is_empty()).await;
    let none = gateway.post("/v1/chat/completions", &chat("x")).await;
    assert_eq!((none.status, none.code().as_str()), (503, "no_replica"));
}

#[tokio::test]
async fn a_bad_registration_says_what_is_wrong() {
    let gateway = Gateway::start(&[], &[]);
    for (body, word) in [
        ("{", "registration"),
        (r#"{"url":"nowhere"}"#, "`url`"),
        (r#"{"url":"http://a:1","engine":"x"}"#, "`engine`"),
        (r#"{"url":"http://a:1","lease_s":0}"#, "`lease_s`"),
    ] {
        let answer = register(&gateway, body).await;
        assert_eq!(answer.status, 400, "{body}");
        assert!(answer.text().contains(word), "{}", answer.text());
    }
    assert!(gateway.fleet().await.is_empty());
    assert_eq!(get(gateway.admin, "/fleet/nobody:1").await.code(), "replica_not_found");
}

#[tokio::test]
async fn draining_takes_nothing_new_and_lets_the_rest_finish() {
    let slow = Stub::start(|_| {
        let mut acts = vec![Act::Sleep(Duration::from_millis(700))];
        acts.extend(Act::json(200, "{\"slow\":1}"));
        acts
    })
    .await;
    let gateway = Gateway::ready(&[&slow], &[]).await;
    let (public, body) = (gateway.public, chat("x"));
    let running =
        tokio::spawn(async move { crate::support::post(public, "/v1/chat/completions", &body).await });
    until("running", async || slow.requests() == 1).await;
    let path = format!("/fleet/{}/drain", slow.name());
    assert_eq!(request(gateway.admin, "POST", &path, "", b"").await.json()["state"], "draining");
    let refused = gateway.post("/v1/chat/completions", &chat("x")).await;
    assert_eq!((refused.status, refused.code().as_str()), (503, "no_replica"));
    assert_eq!(running.await.unwrap().text(), "{\"slow\":1}");
    request(gateway.admin, "DELETE", &path, "", b"").await;
    gateway.await_serving(1).await;
    assert_eq!(gateway.post("/v1/chat/completions", &chat("x")).await.status, 200);
    request(gateway.admin, "DELETE", &format!("/fleet/{}", slow.name()), "", b"").await;
    until("gone", async || gateway.fleet().await.is_empty()).await;
}

#[tokio::test]
async fn a_stranger_on_a_known_address_gets_nothing() {
    // U103
    let first = good().await;
    let address = first.address;
    let gateway = Gateway::ready(&[&first], &[("PROBE__INTERVAL_MS", "60000")]).await;
    assert_eq!(gateway.post("/v1/chat/completions", &chat("x")).await.status, 200);
    first.kill();
    drop(first);
    // Another program of ours, with other models, under the old address.
    let stranger = Stub::start_as(address, &["other"], |_| Act::json(200, "{\"stranger\":1}")).await;
    for _ in 0..5 {
        let answer = gateway.post("/v1/chat/completions", &chat("x")).await;
        assert!(answer.status >= 500, "{answer:?}");
    }
    assert_eq!(stranger.requests(), 0);
    // The true one comes back, as a new process: it is found again by itself.
    stranger.kill();
    drop(stranger);
    let again = Stub::start_at(address, |_| Act::json(200, "{}")).await;
    until("served again", async || gateway.post("/v1/chat/completions", &chat("x")).await.status == 200)
        .await;
    assert!(again.requests() > 0);
}

#[tokio::test]
async fn a_replica_that_is_full_is_waited_for() {
    let stub = Stub::start(|_| {
        let mut acts = vec![Act::Sleep(Duration::from_millis(100))];
        acts.extend(Act::json(200, "{}"));
        acts
    })
    .await;
    stub.set_running_max(1);
    let gateway = Gateway::ready(&[&stub], &[]).await;
    let asking = (0..8).map(|_| {
        let public = gateway.public;
        tokio::spawn(async move { crate::support::post(public, "/v1/chat/completions", &chat("x")).await })
    });
    for asked in asking.collect::<Vec<_>>() {
        assert_eq!(asked.await.unwrap().status, 200);
    }
    assert_eq!(gateway.metric("flotilla_gateway_requests_queued").await, 0.0);
    gateway.await_idle().await;
}

#[tokio::test]
async fn a_full_queue_says_when_to_come_back() {
    let stub = Stub::start(|_| vec![Act::AwaitClose]).await;
    stub.set_running_max(1);
    let settings = [("QUEUE__REQUESTS_MAX", "1"), ("QUEUE__WAIT_MAX_MS", "60000")];
    let gateway = Gateway::ready(&[&stub], &settings).await;
    let mut clients = Vec::new();
    for _ in 0..2 {
        let mut client = crate::support::Client::connect(gateway.public).await;
        client.ask("POST", "/v1/chat/completions", "", chat("x").as_bytes()).await;
        clients.push(client);
        until("the first is there", async || stub.requests() == 1).await;
    }
    until("one waits", async || gateway.metric("flotilla_gateway_requests_queued").await == 1.0).await;
    let answer = gateway.post("/v1/chat/completions", &chat("x")).await;
    assert_eq!((answer.status, answer.code().as_str()), (429, "overloaded"));
    assert!(answer.header("retry-after").unwrap().parse::<u32>().unwrap() >= 1);
    until("logged", async || gateway.logged("shed") == 1).await;
    // A client that leaves gives its place up, though it only waited.
    drop(clients.pop());
    until("left", async || gateway.metric("flotilla_gateway_requests_queued").await == 0.0).await;
    assert_eq!(stub.requests(), 1);
}

#[tokio::test]
async fn who_waits_goes_to_whichever_frees_first_and_in_order() {
    // U147
    let busy = Stub::start(|_| vec![Act::AwaitClose]).await;
    let soon = Stub::start(|request| {
        let mut acts = vec![Act::Sleep(Duration::from_millis(if request.number == 0 { 600 } else { 5 }))];
        acts.extend(Act::json(200, "{}"));
        acts
    })
    .await;
    busy.set_running_max(1);
    soon.set_running_max(1);
    let gateway = Gateway::ready(&[&busy, &soon], &[]).await;
    let mut clients = Vec::new();
    for number in 0..30 {
        let mut client = crate::support::Client::connect(gateway.public).await;
        client.ask("POST", "/v1/chat/completions", "", chat(&format!("number {number:02}")).as_bytes()).await;
        clients.push(client);
        until("placed or waiting", async || {
            let placed = busy.requests() + soon.requests();
            placed as f64 + gateway.metric("flotilla_gateway_requests_queued").await > f64::from(number)
        })
        .await;
    }
    until("all but one are answered", async || soon.requests() == 29).await;
    assert_eq!(busy.requests(), 1);
    let order: Vec<_> = soon.recorded().iter().map(|recorded| recorded.body.clone()).collect();
    let mut sorted = order.clone();
    sorted.sort();
    assert_eq!(order, sorted, "those who waited went in the order in which they came");
}
