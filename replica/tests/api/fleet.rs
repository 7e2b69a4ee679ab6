//! What a replica tells gateways, and vectors.

use std::io::{Read, Write};
use std::net::TcpListener;

use serde_json::{Value, json};
use shared::prefix::Pieces;

use crate::support::{PATIENCE, Replica, eventually};

/// The next event that is not empty of news.
fn next_event(events: &mut crate::support::Events) -> Value {
    serde_json::from_str(&events.next().unwrap()).unwrap()
}

#[test]
fn pieces_are_told_as_they_come_and_go() {
    // A pool of 80 blocks of 32 tokens.
    let replica = Replica::start(&["--kv-cache-memory-bytes", "60000000"]);
    let mut connection = replica.connect();
    connection.send("GET", "/fleet/events", &[], b"");
    let mut events = crate::support::Events::of(connection);
    let first = next_event(&mut events);
    assert_eq!((&first["reset"], &first["stored"]), (&json!(true), &json!([])));
    assert_eq!(first["instance"], replica.get("/fleet/report").json()["instance"]);

    let text = "a".repeat(1200);
    replica.complete(&text, json!({"max_tokens": 1}));
    let mut pieces = Pieces::new("fake", "", b"");
    pieces.text(text.as_bytes());
    let expected: Vec<String> = pieces.finish().iter().map(|piece| format!("{piece:032x}")).collect();
    let mut stored = Vec::new();
    while stored.len() < expected.len() {
        let event = next_event(&mut events);
        stored.extend(
            event["stored"].as_array().unwrap().iter().map(|piece| piece.as_str().unwrap().to_owned()),
        );
    }
    assert_eq!(stored, expected);

    // Other texts take the pool until the first one's blocks are gone.
    let mut evicted = 0;
    for turn in 0..8 {
        replica.complete(&format!("{turn}").repeat(1200), json!({"max_tokens": 1}));
    }
    while evicted < expected.len() {
        let event = next_event(&mut events);
        let gone = event["evicted"].as_array().unwrap();
        evicted += gone.iter().filter(|piece| expected.contains(&piece.as_str().unwrap().to_owned())).count();
    }
    assert!(replica.get("/fleet/report").json()["events_seq"].as_u64().unwrap() > 1);
}

#[test]
fn pieces_of_a_chat_are_those_a_gateway_computes() {
    let replica = Replica::start(&[]);
    let mut connection = replica.connect();
    connection.send("GET", "/fleet/events", &[], b"");
    let mut events = crate::support::Events::of(connection);
    next_event(&mut events);
    let text = "b".repeat(2000);
    replica.chat(&text, json!({"max_tokens": 1, "cache_salt": "tenant"}));
    let mut pieces = Pieces::new("fake", "tenant", b"");
    pieces.message("user", "", &text);
    let expected: Vec<String> = pieces.finish().iter().map(|piece| format!("{piece:032x}")).collect();
    let mut stored = Vec::new();
    while stored.len() < 3 {
        let event = next_event(&mut events);
        stored.extend(
            event["stored"].as_array().unwrap().iter().map(|piece| piece.as_str().unwrap().to_owned()),
        );
    }
    assert_eq!(stored, expected[..3]);
}

#[test]
fn a_replica_registers_and_renews() {
    let gateway = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", gateway.local_addr().unwrap());
    let replica = Replica::start(&["--register", &url, "--register-key", "secret-canary"]);
    let mut stream = gateway.accept().unwrap().0;
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    let mut request = Vec::new();
    let mut buffer = [0; 1024];
    while !request.ends_with(b"}") {
        let read = stream.read(&mut buffer).unwrap();
        assert!(read > 0);
        request.extend_from_slice(&buffer[..read]);
    }
    stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n").unwrap();
    let request = String::from_utf8(request).unwrap();
    let (head, body) = request.split_once("\r\n\r\n").unwrap();
    assert!(head.starts_with("POST /fleet HTTP/1.1") && head.contains("authorization: Bearer secret-canary"));
    let body: Value = serde_json::from_str(body).unwrap();
    assert_eq!(body["url"], format!("http://127.0.0.1:{}", replica.port));
    assert!(body["lease_s"].as_u64().unwrap() >= 5);
    // It comes again by itself.
    drop(gateway.accept().unwrap());
    assert!(!replica.end().contains("canary"));
}

#[test]
fn a_gateway_that_is_away_is_no_reason_not_to_serve() {
    let replica = Replica::start(&["--register", "http://127.0.0.1:1"]);
    assert_eq!(replica.complete("[[say:ok]]", json!({})).status, 200);
    eventually("told", || replica.get("/ready").status == 200);
    assert!(replica.end().contains("cannot register"));
}

#[test]
fn texts_become_vectors_of_length_one() {
    let replica = Replica::start(&[]);
    let embed = |extra: Value| replica.post("/v1/embeddings", &extra);
    let body = embed(json!({"input": ["one text", "another"], "model": "fake"})).json();
    let data = body["data"].as_array().unwrap();
    assert_eq!((data.len(), &data[1]["index"], &data[0]["object"]), (2, &json!(1), &json!("embedding")));
    for entry in data {
        let vector: Vec<f64> =
            entry["embedding"].as_array().unwrap().iter().map(|value| value.as_f64().unwrap()).collect();
        let norm = vector.iter().map(|value| value * value).sum::<f64>();
        assert!((norm - 1.0).abs() < 1e-3 || norm == 0.0, "{norm}");
    }
    assert_eq!(body["usage"]["prompt_tokens"], 15);
    let ids = embed(json!({"input": [1, 2, 3], "pooling": "mean"}));
    assert_eq!(ids.status, 200, "{}", ids.text());
    let packed = embed(json!({"input": "x", "encoding_format": "base64"})).json();
    assert!(packed["data"][0]["embedding"].is_string());
    for (extra, param) in [
        (json!({}), "input"),
        (json!({"input": []}), "input"),
        (json!({"input": [""]}), "input"),
        (json!({"input": "x", "encoding_format": "int8"}), "encoding_format"),
        (json!({"input": "x", "dimensions": 5}), "dimensions"),
    ] {
        let reply = embed(extra);
        assert_eq!((reply.status, reply.param()), (400, json!(param)), "{}", reply.text());
    }
    replica.settle();
}
