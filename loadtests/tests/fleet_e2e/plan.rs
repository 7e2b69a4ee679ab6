//! `flotilla plan` against what a running replica says of itself.

use std::process::Command;

use serde_json::Value;

use crate::client;
use crate::fleet::{Process, binaries, free_ports, until, words};

const KV_BYTES: u64 = 256 << 20;

fn within_three_percent(found: u64, planned: u64) -> bool {
    found.abs_diff(planned) * 100 <= planned * 3
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_plan_agrees_with_a_running_replica_on_blocks_and_weights() {
    let flotilla =
        |arguments: &[&str]| Command::new(binaries().join("flotilla")).args(arguments).output().unwrap();
    let path = flotilla(&["model", "path"]);
    if !path.status.success() {
        return println!("SKIPPED plan: the default model is not here (flotilla model fetch)");
    }
    let model = String::from_utf8_lossy(&path.stdout).trim().to_owned();
    let plan = flotilla(&["plan", &model, "--gpus", "1xT4", "--json"]);
    let plan: Value = serde_json::from_slice(&plan.stdout).unwrap();
    let token_bytes = plan["model"]["kv_token_bytes"].as_u64().unwrap();

    let port = free_ports(1)[0];
    let (text, kv_bytes) = (port.to_string(), KV_BYTES.to_string());
    let flags = ["--model", &model, "--port", &text, "--device", "cpu", "--kv-cache-memory-bytes", &kv_bytes];
    let _replica = Process::start("flotilla-replica", &words(&flags));
    until("the replica is ready", async || {
        client::get(port, "/ready").await.is_ok_and(|answer| answer.status == 200)
    })
    .await;
    let report: Value =
        serde_json::from_str(&client::get(port, "/fleet/report").await.unwrap().body).unwrap();
    let blocks = report["blocks_total"].as_u64().unwrap();
    assert!(within_three_percent(blocks, KV_BYTES / (32 * token_bytes)), "{blocks} blocks: {report}");
    let weights = report["ranks"][0]["weight_bytes"].as_u64().unwrap();
    let planned = plan["model"]["weight_bytes"].as_u64().unwrap();
    assert!(within_three_percent(weights, planned), "{weights} bytes of weights, {planned} planned");
}
