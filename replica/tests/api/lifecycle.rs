//! From start to end.

use std::process::Command;

use serde_json::json;

use crate::support::{Replica, chat_body, eventually, run};

// U104, U106
#[test]
fn while_loading_it_is_alive_and_not_ready() {
    let replica = Replica::start_loading("fake:load=3000", &[]);
    assert_eq!(replica.get("/health").status, 200);
    assert_eq!(replica.get("/ping").status, 200);
    assert_eq!(replica.get("/ready").status, 503);
    assert_eq!(replica.get("/fleet/report").json()["state"], "loading");
    assert_eq!(replica.get("/v1/models").status, 503);
    let reply = replica.chat("x", json!({}));
    assert_eq!((reply.status, reply.code()), (503, json!("not_ready")));
    assert!(reply.headers.contains_key("retry-after"));
    eventually("ready", || replica.get("/ready").status == 200);
    assert_eq!(replica.chat("[[say:x]]", json!({})).status, 200);
}

#[test]
fn told_to_end_it_finishes_what_it_has_and_takes_nothing_new() {
    let replica = Replica::start_slow(20, &[]);
    let body = chat_body("tell me", json!({"max_tokens": 60, "stream": true}));
    let mut stream = replica.stream("/v1/chat/completions", &body);
    stream.next().unwrap();
    replica.signal("TERM");
    eventually("draining", || replica.get("/ready").status == 503);
    assert_eq!(replica.get("/health").status, 200);
    assert_eq!(replica.get("/fleet/report").json()["state"], "draining");
    assert_eq!(replica.chat("x", json!({})).status, 503);
    assert_eq!(stream.last().unwrap(), "[DONE]");
    let (status, log) = replica.wait();
    assert!(status.success(), "{log}");
}

#[test]
fn an_answer_that_outlasts_the_drain_time_is_cut() {
    let replica = Replica::start_slow(20, &["--drain-timeout", "0.2"]);
    let body = chat_body("tell me", json!({"max_tokens": 4000, "stream": true}));
    let mut stream = replica.stream("/v1/chat/completions", &body);
    stream.next().unwrap();
    replica.signal("TERM");
    let (status, log) = replica.wait();
    assert!(status.success() && log.contains("cut off"), "{log}");
    assert!(stream.all(|event| event != "[DONE]"));
}

#[test]
fn interrupted_it_ends_at_once() {
    let replica = Replica::start_slow(20, &[]);
    let body = chat_body("tell me", json!({"max_tokens": 4000, "stream": true}));
    replica.stream("/v1/chat/completions", &body).next().unwrap();
    replica.signal("INT");
    assert_eq!(replica.wait().0.code(), Some(130));
}

#[test]
fn told_to_end_while_loading_it_ends() {
    let replica = Replica::start_loading("fake:load=60000", &[]);
    replica.signal("TERM");
    assert!(replica.wait().0.success());
}

#[test]
fn the_probes_of_the_binary_tell_by_exit_code() {
    let replica = Replica::start_loading("fake:load=2000", &[]);
    let port = replica.port.to_string();
    let probe = |what| run(&[what, "--port", &port], &[]).status.success();
    assert!(probe("health"));
    assert!(!probe("ready"));
    eventually("ready", || probe("ready"));
    replica.signal("INT");
    replica.wait();
    assert!(!probe("health"));
}

#[test]
fn an_engine_that_gets_nowhere_is_not_ready_and_comes_back() {
    let replica = Replica::start(&[]);
    let mut stuck = replica.connect();
    let body = json!({"prompt": "[[stall:14000]]", "max_tokens": 1}).to_string();
    stuck.send("POST", "/v1/completions", &[], body.as_bytes());
    eventually("stalled", || replica.get("/ready").status == 503);
    assert_eq!(replica.get("/fleet/report").json()["state"], "stalled");
    assert_eq!(replica.get("/health").status, 200);
    assert_eq!(stuck.receive().status, 200);
    assert_eq!(replica.get("/ready").status, 200);
}

#[test]
fn a_step_that_does_not_end_ends_the_replica_and_every_stream_hears_why() {
    for ranks in ["1", "3"] {
        let arguments = ["--step-timeout", "2", "--tensor-parallel-size", ranks];
        let replica = Replica::start_slow(20, &arguments);
        let body = chat_body("tell me", json!({"max_tokens": 4000, "stream": true}));
        let mut stream = replica.stream("/v1/chat/completions", &body);
        stream.next().unwrap();
        let mut whole = replica.connect();
        let stuck = json!({"prompt": "[[stall:600000]]", "max_tokens": 9}).to_string();
        whole.send("POST", "/v1/completions", &[], stuck.as_bytes());
        let last = stream.last().unwrap();
        assert!(last.contains("\"error\"") && last.contains("step"), "{ranks} ranks: {last}");
        assert_eq!(whole.receive().status, 500);
        let (status, log) = replica.wait();
        assert_eq!(status.code(), Some(1), "{log}");
        assert!(log.contains("--step-timeout"), "{log}");
    }
}

// A failed start is one line and no panic (U071's manner of speaking).
#[test]
fn a_start_that_fails_says_why_in_one_line() {
    let holder = Replica::start(&[]);
    let port = holder.port.to_string();
    for (arguments, said) in [
        (vec!["--model", "/nowhere/model.gguf"], "/nowhere/model.gguf"),
        (vec!["--model", "fake", "--port", port.as_str()], "cannot listen"),
        (vec!["--model", "fake", "--kv-cache-memory-bytes", "2000"], "KV pool"),
        (vec!["--model", "fake", "--chat-template", "/nowhere.jinja"], "/nowhere.jinja"),
        (vec!["--model", "fake", "--device", "cuda"], "cuda"),
    ] {
        let mut arguments = arguments;
        if !arguments.contains(&"--port") {
            arguments.extend(["--port", "0"]);
        }
        let output = run(&arguments, &[]);
        let text = String::from_utf8(output.stderr).unwrap();
        assert!(!output.status.success());
        let errors: Vec<_> = text.lines().filter(|line| line.starts_with("error: ")).collect();
        assert_eq!(errors.len(), 1, "{text}");
        assert!(errors[0].contains(said) && !text.contains("panicked"), "{text}");
    }
}

#[test]
fn help_names_every_option() {
    let output = Command::new(env!("CARGO_BIN_EXE_flotilla-replica")).arg("--help").output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    for option in
        ["--model", "--served-model-name", "--max-num-seqs", "--drain-timeout", "--config", "health", "ready"]
    {
        assert!(text.contains(option), "{option}");
    }
}
