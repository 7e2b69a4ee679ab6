//! A replica that fails before its first byte is replaced unseen; one that fails for good is left alone.

use crate::support::{Act, Client, Gateway, Stub, chat, chat_stream, post, until};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

const OK: &str = "{\"choices\":[]}";

/// Every replica gets its turn, however fast another was.
const IN_TURN: [(&str, &str); 1] = [("ROUTING__POLICY", "round_robin")];

async fn good() -> Stub {
    Stub::start(|_| Act::json(200, OK)).await
}

async fn bad(acts: Vec<Act>) -> Stub {
    Stub::start(move |_| acts.clone()).await
}

#[tokio::test]
async fn every_fault_before_the_first_byte_is_hidden() {
    let faults = [
        vec![Act::Reset],
        vec![Act::Close],
        vec![Act::Write(b"HTTP/1.1 200 OK\r\ncontent-le".to_vec()), Act::Close],
        vec![Act::Write(b"nonsense\r\n\r\n".to_vec())],
        Act::json(500, "{}"),
        Act::json(503, "{}"),
        Act::answer(429, "retry-after: 1\r\n", "{}"),
        vec![Act::events_head(), Act::Close],
        vec![Act::events_head(), Act::chunk("data: {\"error\":{\"message\":\"x\"}}\n\n"), Act::end()],
    ];
    for fault in faults {
        let (bad, good) = (bad(fault.clone()).await, good().await);
        let gateway = Gateway::ready(&[&bad, &good], &IN_TURN).await;
        for _ in 0..6 {
            let answer = gateway.post("/v1/chat/completions", &chat_stream("x")).await;
            assert_eq!((answer.status, answer.text().as_str()), (200, OK), "{fault:?}");
            assert_eq!(answer.header("x-flotilla-replica").unwrap(), good.name());
        }
        assert!(bad.requests() > 0, "{fault:?} was never tried");
        gateway.await_idle().await;
    }
}

#[tokio::test]
async fn a_dead_replica_is_skipped_at_once() {
    // U080
    let (dead, good) = (good().await, good().await);
    let gateway = Gateway::ready(&[&dead, &good], &[("PROBE__INTERVAL_MS", "60000"), IN_TURN[0]]).await;
    dead.kill();
    for _ in 0..10 {
        let answer = gateway.post("/v1/chat/completions", &chat("x")).await;
        assert_eq!(answer.status, 200);
        let attempts: u32 = answer.header("x-flotilla-attempts").unwrap().parse().unwrap();
        assert!(attempts <= 2);
    }
    assert!(gateway.logged("failed_over") + gateway.logged("ok") <= 10);
}

#[tokio::test]
async fn where_nobody_listens_one_failure_ejects() {
    // U086
    let (dead, good) = (good().await, good().await);
    let settings = [("PROBE__INTERVAL_MS", "60000"), ("HEALTH__COOLDOWN_MS", "60000"), IN_TURN[0]];
    let gateway = Gateway::ready(&[&dead, &good], &settings).await;
    dead.kill();
    for _ in 0..20 {
        assert_eq!(gateway.post("/v1/chat/completions", &chat("x")).await.status, 200);
    }
    let failures =
        format!("flotilla_gateway_replica_failures_total{{replica=\"{}\",what=\"connect\"}}", dead.name());
    assert_eq!(gateway.metric(&failures).await, 1.0);
    let entry = gateway.fleet().await.into_iter().find(|entry| entry["id"] == dead.name()).unwrap();
    assert_eq!((entry["state"].as_str(), entry["why"].as_str()), (Some("ejected"), Some("refused")));
}

#[tokio::test]
async fn who_waits_on_a_stopped_replica_moves_elsewhere_and_it_comes_back() {
    // U102: the first byte may take five minutes, but probes tell much sooner that it won't come.
    let (stopped, good) = (good().await, good().await);
    let settings = [("PROBE__TIMEOUT_MS", "200"), IN_TURN[0]];
    let gateway = Gateway::ready(&[&stopped, &good], &settings).await;
    stopped.stop(true);
    let asking: Vec<_> = (0..8)
        .map(|_| {
            let public = gateway.public;
            tokio::spawn(async move { post(public, "/v1/chat/completions", &chat("x")).await })
        })
        .collect();
    for asked in asking {
        let answer = asked.await.unwrap();
        assert_eq!((answer.status, answer.header("x-flotilla-replica")), (200, Some(good.name().as_str())));
    }
    let entry = gateway.fleet().await.into_iter().find(|entry| entry["id"] == stopped.name()).unwrap();
    assert_eq!(entry["state"], "ejected");
    stopped.stop(false);
    gateway.await_serving(2).await;
    gateway.await_idle().await;
}

#[tokio::test]
async fn the_clients_own_faults_are_passed_on_and_never_counted() {
    // U014, U024, U083
    for status in [400, 404, 413, 422] {
        let body = format!("{{\"error\":{{\"message\":\"yours\",\"code\":{status}}}}}");
        let text = body.clone();
        let is_bad = Arc::new(AtomicBool::new(true));
        let flag = is_bad.clone();
        let script = move |_: &crate::support::Recorded| {
            if flag.load(Ordering::SeqCst) { Act::json(status, &text) } else { Act::json(200, OK) }
        };
        let (one, two) = (Stub::start(script.clone()).await, Stub::start(script).await);
        let gateway = Gateway::ready(&[&one, &two], &[]).await;
        for _ in 0..50 {
            let answer = gateway.post("/v1/chat/completions", &chat_stream("x")).await;
            assert_eq!((answer.status, answer.text()), (status, body.clone()));
            assert_eq!(answer.header("x-flotilla-attempts"), Some("1"));
        }
        assert_eq!(one.requests() + two.requests(), 50);
        is_bad.store(false, Ordering::SeqCst);
        for _ in 0..10 {
            assert_eq!(gateway.post("/v1/chat/completions", &chat("x")).await.status, 200);
        }
    }
}

#[tokio::test]
async fn a_replica_that_always_fails_is_ejected_and_shown() {
    // U086
    let (bad, one, two) = (bad(Act::json(500, "{}")).await, good().await, good().await);
    let gateway = Gateway::ready(&[&bad, &one, &two], &IN_TURN).await;
    for _ in 0..200 {
        assert_eq!(gateway.post("/v1/chat/completions", &chat("x")).await.status, 200);
    }
    assert!(bad.requests() < 10, "{} of 200", bad.requests());
    let entry = gateway.fleet().await.into_iter().find(|entry| entry["id"] == bad.name()).unwrap();
    assert_eq!((entry["state"].as_str(), entry["why"].as_str()), (Some("ejected"), Some("server_error")));
    let failures = format!(
        "flotilla_gateway_replica_failures_total{{replica=\"{}\",what=\"server_error\"}}",
        bad.name()
    );
    assert!(gateway.metric(&failures).await >= 3.0);
    let state = format!("flotilla_gateway_replica_state{{replica=\"{}\",state=\"ejected\"}}", bad.name());
    assert_eq!(gateway.metric(&state).await, 1.0);
}

#[tokio::test]
async fn the_last_replica_is_tried_although_it_is_ejected() {
    // U087
    let bad = bad(Act::json(500, "{}")).await;
    let gateway = Gateway::ready(&[&bad], &[]).await;
    for _ in 0..10 {
        let answer = gateway.post("/v1/chat/completions", &chat("x")).await;
        assert_eq!((answer.status, answer.code().as_str()), (502, "replica_failed"));
    }
    assert_eq!(bad.requests(), 10);
    let answer = gateway.post("/v1/chat/completions", &chat("x")).await;
    assert!(answer.text().contains(&bad.name()), "{}", answer.text());
    assert!(answer.header("retry-after").unwrap().parse::<u32>().unwrap() >= 1);
    bad.set_script(|_| Act::json(200, OK));
    assert_eq!(gateway.post("/v1/chat/completions", &chat("x")).await.status, 200);
}

#[tokio::test]
async fn an_ejected_replica_rests_for_its_whole_cooldown() {
    // U143, with two worker threads
    let (bad, good) = (bad(Act::json(500, "{}")).await, good().await);
    let settings = [("HEALTH__COOLDOWN_MS", "1500"), ("HEALTH__FAILURES_MAX", "2"), IN_TURN[0]];
    let gateway = Gateway::ready(&[&bad, &good], &settings).await;
    until("ejected", async || {
        gateway.post("/v1/chat/completions", &chat("x")).await;
        gateway.fleet().await.iter().any(|entry| entry["state"] == "ejected")
    })
    .await;
    let (requests, began) = (bad.requests(), std::time::Instant::now());
    while began.elapsed() < Duration::from_millis(1200) {
        assert_eq!(gateway.post("/v1/chat/completions", &chat("x")).await.status, 200);
        if began.elapsed() < Duration::from_millis(1200) {
            assert_eq!(bad.requests(), requests);
        }
    }
    bad.set_script(|_| Act::json(200, OK));
    until("back", async || {
        gateway.post("/v1/chat/completions", &chat("x")).await;
        bad.requests() > requests + 1
    })
    .await;
}

#[tokio::test]
async fn a_connection_that_was_closed_meanwhile_costs_nothing() {
    // U089: the replica closes its idle connections; some requests meet one that is just being closed.
    let stub = Stub::start(|_| {
        let mut acts = Act::json(200, OK);
        acts.extend([Act::Sleep(Duration::from_millis(20)), Act::Close]);
        acts
    })
    .await;
    let gateway = Gateway::ready(&[&stub], &[]).await;
    let mut client = Client::connect(gateway.public).await;
    for round in 0..120u64 {
        client.ask("POST", "/v1/chat/completions", "", chat("x").as_bytes()).await;
        assert_eq!(client.answer().await.unwrap().status, 200, "round {round}");
        tokio::time::sleep(Duration::from_millis(18 + round % 5)).await;
    }
    assert_eq!(gateway.metric("flotilla_gateway_requests_total{model=\"m\",outcome=\"ok\"}").await, 120.0);
}

#[tokio::test]
async fn a_request_that_two_replicas_died_of_is_not_tried_again() {
    let stubs = [bad(vec![Act::Reset]).await, bad(vec![Act::Reset]).await, bad(vec![Act::Reset]).await];
    let gateway = Gateway::ready(&[&stubs[0], &stubs[1], &stubs[2]], &[]).await;
    let answer = post(gateway.public, "/v1/chat/completions", &chat("x")).await;
    assert_eq!((answer.status, answer.code().as_str()), (500, "request_failed_replicas"));
    assert_eq!(answer.header("x-should-retry"), Some("false"));
    assert_eq!(stubs.iter().map(Stub::requests).sum::<usize>(), 2);
}

#[tokio::test]
async fn without_a_replica_the_answer_comes_at_once() {
    // U104
    let stub = good().await;
    stub.set_state("loading");
    let gateway = Gateway::start(&[&stub], &[]);
    until("probed", async || stub.probes() > 2).await;
    let answer = gateway.post("/v1/chat/completions", &chat("x")).await;
    assert_eq!((answer.status, answer.code().as_str()), (503, "no_replica"));
    assert!(answer.header("retry-after").is_some());
    assert_eq!(crate::support::get(gateway.public, "/health").await.status, 200);
    assert_eq!(crate::support::get(gateway.public, "/ready").await.status, 503);
    assert_eq!(stub.requests(), 0);
    stub.set_state("ready");
    gateway.await_serving(1).await;
    assert_eq!(crate::support::get(gateway.public, "/ready").await.status, 200);
    assert_eq!(gateway.post("/v1/chat/completions", &chat("x")).await.status, 200);
}
