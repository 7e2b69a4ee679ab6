//! `flotilla compose` as a process: what it writes, and what it leaves as it was.

#![expect(clippy::unwrap_used, reason = "a fault of the harness is a failed test")]

use std::fs;
use std::path::Path;
use std::process::{Command, Output};

use figment::Figment;
use figment::providers::{Format, Yaml};
use serde_json::Value;

fn compose(out: &Path, flags: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_flotilla"));
    command.args(["compose", "--model", "fake", "--out"]).arg(out).args(flags).output().unwrap()
}

fn written(out: &Path, flags: &[&str]) {
    let output = compose(out, flags);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

/// The admin key of a folder, which the gateway's configuration beside it holds too.
fn key(out: &Path, secrets: &str) -> String {
    let key = fs::read_to_string(out.join(secrets).join("admin.key")).unwrap();
    let config = fs::read_to_string(out.join(secrets).join("gateway.toml")).unwrap();
    assert!(config.contains(&format!("\nkey = \"{}\"\n", key.trim())), "{config}");
    key.trim().to_owned()
}

#[test]
fn a_stack_that_is_written_again_keeps_its_admin_key() {
    let kinds = [(vec![], "secrets"), (vec!["--format", "kubernetes"], "base/secrets")];
    for (format, secrets) in kinds {
        let folder = tempfile::tempdir().unwrap();
        written(folder.path(), &format);
        let first = key(folder.path(), secrets);
        let more: Vec<_> = [&format[..], &["--replicas", "3", "--force"]].concat();
        written(folder.path(), &more);
        assert_eq!(key(folder.path(), secrets), first, "{format:?}");
    }
}

/// One's own key, as an editor leaves it, is as good.
#[test]
fn an_admin_key_that_is_there_already_is_used() {
    let folder = tempfile::tempdir().unwrap();
    fs::create_dir(folder.path().join("secrets")).unwrap();
    fs::write(folder.path().join("secrets/admin.key"), "my own key\n").unwrap();
    written(folder.path(), &["--force"]);
    assert_eq!(key(folder.path(), "secrets"), "my own key");
}

#[test]
fn stacks_have_keys_of_their_own_and_none_is_replaced_unasked() {
    let (one, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    written(one.path(), &[]);
    written(other.path(), &[]);
    let first = key(one.path(), "secrets");
    assert_ne!(first, key(other.path(), "secrets"));
    let again = compose(one.path(), &[]);
    assert!(!again.status.success() && String::from_utf8_lossy(&again.stderr).contains("--force"));
    assert_eq!(key(one.path(), "secrets"), first);
}

/// U129: six cards of 16 GB and 32B in 4 bits, from the plan to the stack that matches it.
#[test]
fn a_plan_becomes_the_stack_that_it_describes() {
    let folder = tempfile::tempdir().unwrap();
    let topology = folder.path().join("topology.yaml").display().to_string();
    let flags = ["--weights", "int4", "--gpus", "6x16G", "--context", "4096", "--concurrency", "6"];
    let plan = Command::new(env!("CARGO_BIN_EXE_flotilla"))
        .args(["plan", "qwen2.5-32b", "--json", "--topology", &topology])
        .args(flags)
        .output()
        .unwrap();
    assert!(plan.status.success(), "{}", String::from_utf8_lossy(&plan.stderr));
    let plan: Value = serde_json::from_slice(&plan.stdout).unwrap();
    let group = &plan["groups"][0];
    assert!(
        group["kv_tokens"].as_u64().unwrap() > 4096 && group["sequences"].as_u64().unwrap() > 0,
        "{group}"
    );

    let output = Command::new(env!("CARGO_BIN_EXE_flotilla"))
        .args(["compose", "--topology", &topology, "--out"])
        .arg(folder.path())
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let stack: Value = Figment::from(Yaml::file(folder.path().join("compose.yaml"))).extract().unwrap();
    let services = stack["services"].as_object().unwrap();
    let replicas: Vec<_> = services.iter().filter(|(name, _)| name.starts_with("replica")).collect();
    assert_eq!(replicas.len() as u64, group["replicas"].as_u64().unwrap());
    let mut cards = std::collections::BTreeSet::new();
    for (name, replica) in replicas {
        let devices = replica["deploy"]["resources"]["reservations"]["devices"][0]["device_ids"].clone();
        let devices: Vec<String> = serde_json::from_value(devices).unwrap();
        assert_eq!(devices.len() as u64, group["tensor_parallel_size"].as_u64().unwrap(), "{name}");
        cards.extend(devices);
        let command: Vec<String> = serde_json::from_value(replica["command"].clone()).unwrap();
        let value = |flag| command.iter().position(|word| word == flag).map(|at| command[at + 1].as_str());
        assert_eq!(value("--tensor-parallel-size"), Some("2"), "{name}");
        assert_eq!(value("--max-model-len"), Some("4096"), "{name}");
    }
    assert_eq!(cards.len(), 6, "every card is one replica's");
}
