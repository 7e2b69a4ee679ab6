//! A replica that is killed under load: what its clients see, and how it comes back.

use tokio::task::JoinSet;

use crate::client::{self, Answer};
use crate::fleet::{Fleet, until};
use crate::streams::until_idle;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_killed_replica_costs_no_unanswered_request_and_comes_back() {
    let mut fleet = Fleet::start(2, &[]).await;
    let port = fleet.port;
    let mut clients = JoinSet::new();
    for index in 0..16 {
        clients.spawn(async move {
            let mut answers = Vec::new();
            for round in 0..12 {
                answers.push(
                    client::chat(port, &format!("client {index} round {round} [[stall:40]]"), 48).await,
                );
            }
            answers
        });
    }
    until("the second replica has work", async || {
        client::metric(fleet.replica_ports[1], "vllm:num_requests_running").await > Some(0.0)
    })
    .await;
    fleet.kill(1);
    let mut whole = 0;
    while let Some(answers) = clients.join_next().await {
        for answer in answers.unwrap() {
            whole += usize::from(check_end(&answer.unwrap()));
        }
    }
    assert!(whole >= 12 * 16 / 2, "only {whole} of {} answers were whole", 12 * 16);

    fleet.revive(1);
    until("the second replica is ready", async || {
        client::get(fleet.replica_ports[1], "/ready").await.is_ok_and(|answer| answer.status == 200)
    })
    .await;
    fleet.until_in_rotation(1).await;
    until_idle(&fleet).await;
}

/// An answer either is whole, or had begun and ends with one error event: never an error status, never
/// silence. Tells whether it is whole.
fn check_end(answer: &Answer) -> bool {
    assert_eq!(answer.status, 200, "an unanswered request goes elsewhere: {answer:?}");
    let is_whole = answer.dones() == 1 && answer.events().last() == Some(&"[DONE]");
    let is_broken = answer.dones() == 0 && answer.ends_with_error() && !answer.text().is_empty();
    assert!(is_whole != is_broken, "{answer:?}");
    is_whole
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn with_every_replica_gone_every_answer_is_an_error_of_openais_shape() {
    let mut fleet = Fleet::start(1, &[]).await;
    fleet.kill(0);
    for _ in 0..20 {
        let answer = client::chat(fleet.port, "anyone?", 4).await.unwrap();
        // 502 while it still tries the only one it has, 503 once it knows.
        assert!(matches!(answer.status, 502 | 503), "{answer:?}");
        assert!(answer.body.starts_with("{\"error\":"), "{answer:?}");
    }
}
