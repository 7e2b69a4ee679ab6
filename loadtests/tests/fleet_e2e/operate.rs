//! `flotilla fleet` and `flotilla doctor` against a real gateway and real replicas.

use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};

use serde_json::{Value, json};

use crate::client;
use crate::fleet::{Fleet, Process, binaries, free_ports, until, words};

/// Runs `flotilla` and reads its JSON; `Err` holds what it said instead.
fn flotilla(arguments: &[&str]) -> Result<Value, String> {
    let output = Command::new(binaries().join("flotilla")).args(arguments).arg("--json").output().unwrap();
    if !output.status.success() {
        return Err(String::from_utf8_lossy(&output.stderr).into_owned());
    }
    Ok(serde_json::from_slice(&output.stdout).unwrap())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_replica_is_added_drained_and_removed_by_command() {
    let fleet = Fleet::start(1, &[]).await;
    let admin = format!("http://127.0.0.1:{}", fleet.admin_port);
    let run = |arguments: &[&str]| flotilla(&[&["fleet", "--gateway", admin.as_str()], arguments].concat());
    let count = || run(&["list"]).unwrap()["replicas"].as_array().unwrap().len();
    assert_eq!(count(), 1);

    let port = free_ports(1)[0].to_string();
    let flags = ["--model", "fake", "--host", "127.0.0.1", "--port", &port, "--threads", "1"];
    let _second = Process::start("flotilla-replica", &words(&flags));
    let url = format!("http://127.0.0.1:{port}");
    run(&["add", &url]).unwrap();
    until("the new replica takes work", async || {
        let list = run(&["list"]).unwrap();
        list["replicas"][1]["state"] == "ready" || list["replicas"][1]["state"] == "warming"
    })
    .await;

    let drained = run(&["drain", &url, "--wait", "60"]).unwrap();
    assert_eq!(drained["left"], 0);
    for _ in 0..8 {
        assert_eq!(client::chat(fleet.port, "who answers?", 4).await.unwrap().dones(), 1);
    }
    let answered = client::metric(port.parse().unwrap(), "vllm:request_success_total").await;
    assert_eq!(wanted(&admin), scale(fleet.admin_port).await);
    run(&["undrain", &url]).unwrap();
    run(&["remove", &url, "--wait", "60"]).unwrap();
    assert_eq!(count(), 1);
    assert!(answered.is_none_or(|answered| answered <= 1.0), "a drained replica answered {answered:?}");
    assert!(run(&["drain", &url]).unwrap_err().contains("the gateway says 404"));
}

/// What `fleet watch` shows of each model: its name and the replicas it wants.
fn wanted(admin: &str) -> Value {
    let mut watch = Command::new(binaries().join("flotilla"))
        .args(["fleet", "--gateway", admin, "watch", "--json"])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut line = String::new();
    BufReader::new(watch.stdout.take().unwrap()).read_line(&mut line).unwrap();
    watch.kill().unwrap();
    watch.wait().unwrap();
    models(&serde_json::from_str(&line).unwrap())
}

/// What autoscalers read.
async fn scale(admin_port: u16) -> Value {
    models(&serde_json::from_str(&client::get(admin_port, "/scale").await.unwrap().body).unwrap())
}

fn models(said: &Value) -> Value {
    let of = |model: &Value| json!([model["model"], model["replicas_wanted"]]);
    said["models"].as_array().unwrap().iter().map(of).collect()
}

/// Replicas that aren't who they say (issue 7): one listed twice, one that is not there.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_doctor_asks_replicas_who_they_are() {
    let fleet = Fleet::start(1, &[]).await;
    let urls = [fleet.replica_ports[0], free_ports(1)[0]].map(|port| format!("http://127.0.0.1:{port}"));
    let replicas = [&urls[0], &urls[0], &urls[1]].map(|url| ["--replica", url.as_str()]).concat();
    let output = Command::new(binaries().join("flotilla"))
        .args(["doctor", "--json", "--port", "1"])
        .args(replicas)
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(2));
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    let all: Vec<_> = report["findings"]
        .as_array()
        .unwrap()
        .iter()
        .filter(|finding| finding["code"] == "replica")
        .collect();
    let severities: Vec<_> = all.iter().map(|finding| finding["severity"].as_str().unwrap()).collect();
    assert_eq!(severities, ["sound", "broken", "broken"], "{all:#?}");
    assert!(all[1]["what"].as_str().unwrap().contains("one and the same process"));
}
