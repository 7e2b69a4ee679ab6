//! Clients that leave.

use serde_json::json;

use crate::support::{Replica, chat_body, eventually};

// U001, U004, U116
#[test]
fn a_client_that_leaves_a_stream_frees_everything() {
    let replica = Replica::start_slow(5, &[]);
    let before = replica.get("/fleet/report").json()["blocks_free"].clone();
    let body = chat_body("tell me", json!({"max_tokens": 2000, "stream": true}));
    let mut stream = replica.stream("/v1/chat/completions", &body);
    for _ in 0..3 {
        stream.next().unwrap();
    }
    drop(stream);
    replica.settle();
    assert_eq!(replica.get("/fleet/report").json()["blocks_free"], before);
    eventually("counted as aborted", || {
        replica.metric("flotilla_replica_requests_total{outcome=\"aborted\"}") == 1.0
    });
    let generated = replica.metric("vllm:generation_tokens_total");
    assert!(generated < 2000.0);
    assert_eq!(replica.metric("vllm:generation_tokens_total"), generated);
    assert!(replica.end().contains("client closed the request"));
}

// U001
#[test]
fn a_client_that_leaves_before_the_answer_frees_everything() {
    let replica = Replica::start_slow(5, &[]);
    let mut connection = replica.connect();
    let body = chat_body("tell me", json!({"max_tokens": 2000}));
    connection.send("POST", "/v1/chat/completions", &[], body.to_string().as_bytes());
    eventually("running", || replica.metric("vllm:num_requests_running") == 1.0);
    drop(connection);
    replica.settle();
    assert_eq!(replica.metric("flotilla_replica_requests_total{outcome=\"aborted\"}"), 1.0);
}

// U055
#[test]
fn those_that_leave_the_queue_are_never_computed() {
    let replica = Replica::start_slow(20, &["--max-num-seqs", "1"]);
    let body = chat_body("tell me", json!({"max_tokens": 4000, "stream": true}));
    let mut running = replica.stream("/v1/chat/completions", &body);
    running.next().unwrap();
    let mut waiting = replica.connect();
    waiting.send("POST", "/v1/chat/completions", &[], body.to_string().as_bytes());
    eventually("waiting", || replica.metric("vllm:num_requests_waiting") == 1.0);
    let started = replica.metric("vllm:time_to_first_token_seconds_count");
    drop(waiting);
    eventually("gone", || replica.metric("vllm:num_requests_waiting") == 0.0);
    assert_eq!(replica.metric("vllm:time_to_first_token_seconds_count"), started);
    drop(running);
    replica.settle();
}
