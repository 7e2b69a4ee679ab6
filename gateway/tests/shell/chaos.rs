//! Everything at once, and at the end nothing is left over.

use crate::support::{Act, Client, Gateway, Recorded, Stub, chat, chat_stream, event};
use std::time::Duration;

fn script(request: &Recorded) -> Vec<Act> {
    match request.number % 11 {
        0 => vec![Act::Reset],
        1 => Act::json(500, "{}"),
        2 => Act::answer(429, "retry-after: 0\r\n", "{}"),
        3 => vec![Act::events_head(), Act::chunk(&event("a")), Act::Reset],
        4 => {
            let mut acts = vec![Act::Sleep(Duration::from_millis(15))];
            acts.extend(Act::stream(&["slow"]));
            acts
        }
        5 => vec![Act::Close],
        _ => Act::stream(&["a", "b", "c"]),
    }
}

/// Some clients leave before the head, some in mid-stream.
async fn one(public: std::net::SocketAddr, number: usize) {
    let mut client = Client::connect(public).await;
    let body = if number.is_multiple_of(3) { chat("x") } else { chat_stream("x") };
    client.ask("POST", "/v1/chat/completions", "", body.as_bytes()).await;
    match number % 7 {
        0 => {}
        1 => tokio::time::sleep(Duration::from_millis(number as u64 % 20)).await,
        _ => drop(client.answer().await),
    }
}

#[tokio::test]
async fn after_a_storm_every_count_is_back_at_zero() {
    // U107, with fewer requests than the check names: it is repeated with more by hand.
    let stubs = [Stub::start(script).await, Stub::start(script).await, Stub::start(script).await];
    let gateway = Gateway::ready(&[&stubs[0], &stubs[1], &stubs[2]], &[("HEALTH__COOLDOWN_MS", "50")]).await;
    let total = 1500;
    for wave in 0..total / 50 {
        let asking: Vec<_> = (0..50).map(|at| tokio::spawn(one(gateway.public, wave * 50 + at))).collect();
        for asked in asking {
            asked.await.unwrap();
        }
    }
    gateway.await_idle().await;
    assert_eq!(gateway.metric("flotilla_gateway_requests_queued").await, 0.0);
    let counted = async || {
        let mut sum = 0.0;
        for outcome in [
            "ok",
            "failed_over",
            "continued",
            "client_error",
            "client_closed",
            "shed",
            "no_replica",
            "failed",
            "broken",
        ] {
            for model in ["m", "-"] {
                let sample =
                    format!("flotilla_gateway_requests_total{{model=\"{model}\",outcome=\"{outcome}\"}}");
                sum += gateway.metric(&sample).await;
            }
        }
        sum
    };
    crate::support::until("every request ended once", async || counted().await == total as f64).await;
    // The storm has spent the budget for second attempts, so what answers now must be well.
    for stub in &stubs {
        stub.set_script(|_| Act::stream(&["well"]));
    }
    gateway.await_serving(stubs.len()).await;
    assert_eq!(gateway.post("/v1/chat/completions", &chat_stream("x")).await.status, 200);
}
