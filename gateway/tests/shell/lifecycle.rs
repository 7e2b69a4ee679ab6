//! How the process starts, checks and ends.

use crate::support::{Act, Client, Gateway, Stub, chat, chat_stream, event, until};
use std::process::Command;
use std::time::{Duration, Instant};

#[tokio::test]
async fn an_idle_gateway_ends_at_once() {
    for signal in ["-TERM", "-INT"] {
        let stub = Stub::start(|_| Act::json(200, "{}")).await;
        let mut gateway = Gateway::ready(&[&stub], &[]).await;
        assert_eq!(gateway.post("/v1/chat/completions", &chat("x")).await.status, 200);
        let began = Instant::now();
        gateway.signal(signal);
        until("ended", async || gateway.ended().is_some()).await;
        assert!(gateway.ended().unwrap().success());
        assert!(began.elapsed() < Duration::from_secs(5));
        until("the log is written to its end", async || gateway.logged("ok") == 1).await;
    }
}

#[tokio::test]
async fn running_streams_end_before_the_gateway_does() {
    let stub = Stub::start(|_| {
        let mut acts =
            vec![Act::events_head(), Act::chunk(&event("first")), Act::Sleep(Duration::from_millis(800))];
        acts.extend([Act::chunk(&event("last")), Act::chunk("data: [DONE]\n\n"), Act::end()]);
        acts
    })
    .await;
    let mut gateway = Gateway::ready(&[&stub], &[]).await;
    let mut client = Client::connect(gateway.public).await;
    client.ask("POST", "/v1/chat/completions", "", chat_stream("x").as_bytes()).await;
    client.read_until("first").await;
    gateway.signal("-TERM");
    client.read_until("last").await;
    client.read_until("[DONE]").await;
    until("ended", async || gateway.ended().is_some()).await;
    assert!(gateway.ended().unwrap().success());
}

#[tokio::test]
async fn a_taken_port_is_said_in_one_line() {
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().port().to_string();
    let output = Command::new(env!("CARGO_BIN_EXE_flotilla-gateway"))
        .args(["--host", "127.0.0.1", "--port", &port])
        .output()
        .unwrap();
    assert!(!output.status.success());
    let text = String::from_utf8(output.stderr).unwrap();
    assert!(text.contains(&format!("can't listen on 127.0.0.1:{port}")), "{text}");
    assert_eq!(text.lines().count(), 1, "{text}");
}

#[tokio::test]
async fn a_wrong_configuration_is_told_by_check_and_at_the_start() {
    // U135
    let mut file = tempfile::Builder::new().suffix(".toml").tempfile().unwrap();
    std::io::Write::write_all(&mut file, b"[timeouts]\nidel_ms = 5\n").unwrap();
    for arguments in [vec!["check"], vec![]] {
        let output = Command::new(env!("CARGO_BIN_EXE_flotilla-gateway"))
            .args(arguments)
            .arg("--config")
            .arg(file.path())
            .output()
            .unwrap();
        assert!(!output.status.success());
        let text = String::from_utf8(output.stderr).unwrap();
        assert!(text.contains(".toml:2: unknown key `timeouts.idel_ms`; did you mean `idle_ms`?"), "{text}");
    }
    let empty = Command::new(env!("CARGO_BIN_EXE_flotilla-gateway"))
        .arg("check")
        .env("FLOTILLA__SERVER__PORT", "")
        .output()
        .unwrap();
    assert!(!empty.status.success());
    assert!(String::from_utf8(empty.stderr).unwrap().contains("FLOTILLA__SERVER__PORT"));
}

#[tokio::test]
async fn health_and_ready_tell_by_their_exit() {
    let stub = Stub::start(|_| Act::json(200, "{}")).await;
    stub.set_state("loading");
    let gateway = Gateway::start(&[&stub], &[]);
    let port = gateway.admin.port().to_string();
    let exits_well = |command: &str| {
        let mut asking = Command::new(env!("CARGO_BIN_EXE_flotilla-gateway"));
        asking.args([command, "--admin-port", &port]).output().unwrap().status.success()
    };
    assert!(exits_well("health"));
    assert!(!exits_well("ready"));
    stub.set_state("ready");
    gateway.await_serving(1).await;
    assert!(exits_well("ready"));
}
