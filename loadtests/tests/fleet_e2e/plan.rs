//! What is planned for replicas against what running ones say of themselves.

use std::process::Command;

use serde_json::Value;

use crate::client;
use crate::fleet::{Process, binaries, free_ports, until, words};

const KV_BYTES: u64 = 256 << 20;

fn within_three_percent(found: u64, planned: u64) -> bool {
    found.abs_diff(planned) * 100 <= planned * 3
}

fn flotilla(arguments: &[&str]) -> String {
    let output = Command::new(binaries().join("flotilla")).args(arguments).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stdout).trim().to_owned()
}

/// The default model's path, where it is here.
fn model(test: &str) -> Option<String> {
    let output = Command::new(binaries().join("flotilla")).args(["model", "path"]).output().unwrap();
    if !output.status.success() {
        println!("SKIPPED {test}: the default model is not here (flotilla model fetch)");
        return None;
    }
    Some(String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

/// A CPU replica with a KV budget, on a port of its own.
fn start(model: &str, kv_bytes: u64) -> (Process, u16) {
    let port = free_ports(1)[0];
    let (text, kv_bytes) = (port.to_string(), kv_bytes.to_string());
    let flags = ["--model", model, "--port", &text, "--device", "cpu", "--kv-cache-memory-bytes", &kv_bytes];
    (Process::start("flotilla-replica", &words(&flags)), port)
}

/// Its report, once it is ready.
async fn report(port: u16) -> Value {
    until("the replica is ready", async || {
        client::get(port, "/ready").await.is_ok_and(|answer| answer.status == 200)
    })
    .await;
    serde_json::from_str(&client::get(port, "/fleet/report").await.unwrap().body).unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_plan_agrees_with_a_running_replica_on_blocks_and_memory() {
    let Some(model) = model("plan") else { return };
    let plan: Value = serde_json::from_str(&flotilla(&["plan", &model, "--gpus", "1xT4", "--json"])).unwrap();
    let token_bytes = plan["model"]["kv_token_bytes"].as_u64().unwrap();

    let (_replica, port) = start(&model, KV_BYTES);
    let report = report(port).await;
    let blocks = report["blocks_total"].as_u64().unwrap();
    assert!(within_three_percent(blocks, KV_BYTES / (32 * token_bytes)), "{blocks} blocks: {report}");
    let kv_bytes = report["ranks"][0]["kv_bytes"].as_u64().unwrap();
    assert!(within_three_percent(kv_bytes, blocks * 32 * token_bytes), "{kv_bytes} bytes of KV: {report}");
    let weights = report["ranks"][0]["weight_bytes"].as_u64().unwrap();
    let planned = plan["model"]["weight_bytes"].as_u64().unwrap();
    assert!(within_three_percent(weights, planned), "{weights} bytes of weights, {planned} planned");
}

/// U120: replicas of one machine have budgets of their own that fit it together, so it makes no difference who
/// starts first.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn replicas_have_the_same_blocks_whoever_starts_first() {
    let Some(model) = model("budgets") else { return };
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().to_str().unwrap();
    flotilla(&["compose", "--model", &model, "--replicas", "2", "--format", "topology", "--out", out]);
    let topology = std::fs::read_to_string(folder.path().join("topology.yaml")).unwrap();
    let topology: Value = serde_json::from_str(&topology).unwrap();
    let budgets: Vec<_> = topology["replicas"].as_array().unwrap().iter().map(budget).collect();
    let weights = topology["weight_bytes"].as_u64().unwrap();
    assert!(budgets.iter().sum::<u64>() + 2 * weights < memory_bytes(), "{topology}");

    let together = [start(&model, budgets[0]), start(&model, budgets[1])];
    let together = [blocks(&report(together[0].1).await), blocks(&report(together[1].1).await)];
    let first = start(&model, budgets[0]);
    let before = blocks(&report(first.1).await);
    let second = start(&model, budgets[1]);
    let after = blocks(&report(second.1).await);
    for (found, other) in [(together[0], together[1]), (before, after), (together[0], before)] {
        assert!(found > 0 && found.abs_diff(other) <= 1, "{together:?}, then {before} and {after}");
    }
}

fn budget(replica: &Value) -> u64 {
    replica["kv_bytes"].as_u64().unwrap()
}

fn blocks(report: &Value) -> u64 {
    report["blocks_total"].as_u64().unwrap()
}

/// All of this machine's memory.
fn memory_bytes() -> u64 {
    let all = std::fs::read_to_string("/proc/meminfo").unwrap();
    let kib = all.lines().find_map(|line| line.strip_prefix("MemTotal:")).unwrap();
    kib.trim().trim_end_matches(" kB").parse::<u64>().unwrap() * 1024
}
