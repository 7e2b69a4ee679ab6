//! Many streams at once: each has one end, and nothing is left behind.

use tokio::task::JoinSet;

use crate::client;
use crate::fleet::{Fleet, until};

/// Gauges of the gateway's that are zero when nobody is served.
const GATEWAY_IDLE: &[&str] = &["flotilla_gateway_requests_in_flight"];
/// Gauges of a replica's that are zero when nobody is served.
const REPLICA_IDLE: &[&str] =
    &["vllm:num_requests_running", "vllm:num_requests_waiting", "vllm:kv_cache_usage_perc"];

/// U107's end state: nobody counts anything that is over.
pub async fn until_idle(fleet: &Fleet) {
    let ports = fleet.replica_ports.iter().map(|&port| (port, REPLICA_IDLE));
    for (port, gauges) in std::iter::once((fleet.admin_port, GATEWAY_IDLE)).chain(ports) {
        for gauge in gauges {
            until(&format!("{gauge} is zero"), async || client::metric(port, gauge).await == Some(0.0)).await;
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn thirty_two_streams_end_with_one_done_each_and_leave_no_trace() {
    let fleet = Fleet::start(2, &[]).await;
    let mut streams = JoinSet::new();
    for index in 0..32 {
        let port = fleet.port;
        streams.spawn(async move { client::chat(port, &format!("stream {index}"), 64).await });
    }
    while let Some(answer) = streams.join_next().await {
        let answer = answer.unwrap().unwrap();
        assert_eq!((answer.status, answer.dones()), (200, 1), "{answer:?}");
        assert_eq!(answer.events().last(), Some(&"[DONE]"));
        assert!(!answer.text().is_empty(), "{answer:?}");
    }
    until_idle(&fleet).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_same_prompt_gets_the_same_text_from_every_replica() {
    let fleet = Fleet::start(2, &[]).await;
    let first = client::chat(fleet.port, "again and again", 32).await.unwrap().text();
    for _ in 0..8 {
        assert_eq!(client::chat(fleet.port, "again and again", 32).await.unwrap().text(), first);
    }
}
