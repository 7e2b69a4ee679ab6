//! Queues, connections and protocols at their bounds.

use std::thread;

use serde_json::json;

use crate::support::{Connection, Replica, chat_body, eventually};

// U055
#[test]
fn a_full_queue_is_refused_with_a_wait() {
    let replica = Replica::start_slow(20, &["--max-num-seqs", "1", "--queue-max", "2"]);
    let body = chat_body("tell me", json!({"max_tokens": 4000, "stream": true})).to_string();
    let mut held: Vec<Connection> = Vec::new();
    let refused = loop {
        let mut connection = replica.connect();
        connection.send("POST", "/v1/chat/completions", &[], body.as_bytes());
        held.push(connection);
        let expected = held.len();
        let is_in = || {
            let report = replica.get("/fleet/report").json();
            report["running"].as_u64().unwrap() + report["waiting"].as_u64().unwrap() == expected as u64
        };
        if expected <= 3 {
            eventually("taken", is_in);
        } else {
            break held.pop().unwrap().receive();
        }
    };
    assert_eq!((refused.status, refused.code()), (429, json!("overloaded")));
    assert!(refused.headers["retry-after"].parse::<u64>().unwrap() >= 1);
    drop(held);
    replica.settle();
}

#[test]
fn a_deadline_that_passes_in_the_queue_is_told() {
    let replica = Replica::start_slow(20, &["--max-num-seqs", "1"]);
    let body = chat_body("tell me", json!({"max_tokens": 4000, "stream": true}));
    let mut running = replica.stream("/v1/chat/completions", &body);
    running.next().unwrap();
    let mut late = replica.connect();
    let body = chat_body("tell me", json!({})).to_string();
    late.send("POST", "/v1/chat/completions", &[("x-request-timeout-ms", "50")], body.as_bytes());
    let reply = late.receive();
    assert_eq!((reply.status, reply.code()), (429, json!("overloaded")));
}

// U053, in small: a step takes long, and probes are answered meanwhile.
#[test]
fn probes_are_answered_during_a_long_step() {
    let replica = Replica::start(&[]);
    let mut busy = replica.connect();
    let body = json!({"prompt": "[[stall:2000]]", "max_tokens": 1}).to_string();
    busy.send("POST", "/v1/completions", &[], body.as_bytes());
    eventually("taken", || replica.metric("vllm:num_requests_waiting") == 1.0);
    for path in ["/health", "/ready", "/metrics"] {
        assert_eq!(replica.get(path).status, 200);
    }
    assert_eq!(replica.metric("vllm:time_to_first_token_seconds_count"), 0.0, "the step is still running");
    assert_eq!(busy.receive().status, 200);
}

#[test]
fn malformed_http_is_answered_or_closed_and_harms_nobody() {
    let replica = Replica::start(&[]);
    let corpus: [&[u8]; 8] = [
        b"GET /health\r\n\r\n",
        b"POST /v1/completions HTTP/1.1\r\nhost: x\r\ncontent-length: 4\r\ncontent-length: 5\r\n\r\n{}{}{}",
        b"POST /v1/completions HTTP/1.1\r\nhost: x\r\ncontent-length: +5\r\n\r\n{}   ",
        b"POST /v1/completions HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\nzz\r\n",
        b"POST /v1/completions HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked, identity\r\n\r\n0\r\n\r\n",
        b"GET /health HTTP/1.1\r\nhost : x\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc",
        b"\0\0\0\0\0\0\r\n\r\n",
    ];
    for bytes in corpus {
        let mut connection = replica.connect();
        connection.write(bytes).unwrap();
        connection.shut_write();
        let answer = connection.rest();
        let status = String::from_utf8_lossy(&answer).split(' ').nth(1).map(ToOwned::to_owned);
        let is_refusal = status.as_deref().is_none_or(|status| status.starts_with('4'));
        assert!(is_refusal, "{status:?} for {bytes:?}");
    }
    assert_eq!(replica.complete("[[say:ok]]", json!({})).status, 200);
}

#[test]
fn many_clients_at_once_are_all_answered() {
    let replica = Replica::start(&["--queue-max", "200"]);
    thread::scope(|scope| {
        for _ in 0..64 {
            scope.spawn(|| assert_eq!(replica.chat("[[say:hello]]", json!({})).status, 200));
        }
    });
    replica.settle();
}

#[test]
fn the_more_urgent_of_those_that_wait_runs_first() {
    let replica = Replica::start_slow(20, &["--max-num-seqs", "1", "--scheduling-policy", "priority"]);
    let long = chat_body("tell me", json!({"max_tokens": 100, "stream": true}));
    let mut running = replica.stream("/v1/chat/completions", &long);
    running.next().unwrap();
    let send = |priority: &str, place: f64| {
        let mut connection = replica.connect();
        let body = chat_body("[[say:x]]", json!({})).to_string();
        connection.send(
            "POST",
            "/v1/chat/completions",
            &[("x-flotilla-priority", priority)],
            body.as_bytes(),
        );
        eventually("waiting", || replica.metric("vllm:num_requests_waiting") >= place);
        connection
    };
    let (mut late, mut urgent) = (send("5", 1.0), send("-5", 2.0));
    let queued = |connection: &mut Connection| -> f64 {
        let timing = connection.receive().headers["server-timing"].clone();
        timing.split(['=', ',']).nth(1).unwrap().parse().unwrap()
    };
    let (urgent, late) = (queued(&mut urgent), queued(&mut late));
    assert!(late > urgent, "{late} ms, {urgent} ms");
}
