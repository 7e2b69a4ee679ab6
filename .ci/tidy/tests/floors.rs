//! Which crate may name which (ARCHITECTURE.md, Floors).

#![expect(clippy::unwrap_used, reason = "what cargo says is what cargo says")]

use std::process::Command;

use serde_json::Value;
use tidy::{assert_none, root};

/// Our crates, and those of ours that each may use.
const OURS: &[(&str, &[&str])] = &[
    ("shared", &[]),
    ("traces", &[]),
    ("gateway-core", &["shared"]),
    ("replica-format", &["shared"]),
    ("replica-core", &["shared", "replica-format"]),
    ("gateway", &["shared", "traces", "gateway-core"]),
    ("replica", &["shared", "traces", "replica-core", "replica-format"]),
    ("deploy", &["shared", "gateway-core", "replica-core", "replica-format"]),
    ("grafana", &["shared"]),
    ("loadtests", &["shared", "gateway-core", "replica-core", "replica-format", "grafana"]),
    ("tidy", &["shared"]),
];

/// Foreign crates of the pure floors: complete lists, so that each new one is a decision made here.
const PURE: &[(&str, &[&str])] = &[
    ("shared", &["serde", "serde_json", "sha2", "xxhash-rust"]),
    ("gateway-core", &["hashbrown", "rand_core", "rustc-hash"]),
    ("replica-core", &["rand_core", "rustc-hash", "xxhash-rust"]),
    ("replica-format", &["serde", "serde_json"]),
];

/// Foreign crates that a shell must not name.
const BANNED: &[(&str, &[&str])] = &[
    ("gateway", &["candle-core", "tokenizers", "safetensors"]),
    ("replica", &["pingora", "redis"]),
    ("deploy", &["pingora", "candle-core"]),
    ("loadtests", &["pingora", "candle-core", "redis"]),
];

/// Tools of tests: any crate may have them as dev-dependencies.
const TEST_TOOLS: &[&str] = &[
    "criterion",
    "insta",
    "proptest",
    "rand",
    "tempfile",
    "serde_json",
    "hyper",
    "hyper-util",
    "http-body-util",
];

/// Further dev-dependencies, each with its reason.
const TEST_EXCEPTIONS: &[(&str, &str, &str)] =
    &[("replica", "candle-core", "a second implementation to compare kernels with")];

struct Dependency {
    package: String,
    name: String,
    is_for_tests: bool,
}

fn dependencies() -> Vec<Dependency> {
    let output = Command::new(env!("CARGO"))
        .args(["metadata", "--no-deps", "--format-version", "1", "--offline"])
        .current_dir(root())
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let metadata: Value = serde_json::from_slice(&output.stdout).unwrap();
    let word = |value: &Value| value.as_str().unwrap().to_owned();
    let packages = metadata["packages"].as_array().unwrap();
    packages
        .iter()
        .flat_map(|package| {
            package["dependencies"].as_array().unwrap().iter().map(move |other| (package, other))
        })
        .map(|(package, other)| Dependency {
            package: word(&package["name"]),
            name: word(&other["name"]),
            is_for_tests: other["kind"].as_str() == Some("dev"),
        })
        .collect()
}

fn listed(table: &[(&str, &[&'static str])], package: &str) -> Option<Vec<&'static str>> {
    table.iter().find(|(name, _)| *name == package).map(|(_, others)| others.to_vec())
}

#[test]
fn our_crates_point_down() {
    let is_ours = |name: &str| OURS.iter().any(|(ours, _)| *ours == name);
    let faults: Vec<_> = dependencies()
        .into_iter()
        .filter(|dependency| is_ours(&dependency.name))
        .filter(|dependency| {
            let allowed = listed(OURS, &dependency.package).unwrap_or_default();
            !allowed.contains(&dependency.name.as_str())
        })
        .map(|dependency| format!("{} must not use {}", dependency.package, dependency.name))
        .collect();
    assert_none("dependencies point down, never up or sideways", &faults);
}

#[test]
fn pure_crates_use_only_what_is_listed() {
    let faults: Vec<_> = dependencies()
        .into_iter()
        .filter(|dependency| !dependency.is_for_tests)
        .filter(|dependency| {
            let (pure, ours) = (listed(PURE, &dependency.package), listed(OURS, &dependency.package));
            let name = dependency.name.as_str();
            pure.is_some_and(|pure| !pure.contains(&name) && !ours.unwrap_or_default().contains(&name))
        })
        .map(|dependency| format!("{} must not use {}", dependency.package, dependency.name))
        .collect();
    assert_none("a core depends on nothing that can touch the world", &faults);
}

#[test]
fn shells_stay_on_their_side() {
    let faults: Vec<_> = dependencies()
        .into_iter()
        .filter(|dependency| !dependency.is_for_tests)
        .filter(|dependency| {
            listed(BANNED, &dependency.package)
                .is_some_and(|banned| banned.contains(&dependency.name.as_str()))
        })
        .map(|dependency| format!("{} must not use {}", dependency.package, dependency.name))
        .collect();
    assert_none("the gateway knows no tensors, the replica no proxy", &faults);
}

#[test]
fn tests_of_pure_crates_use_only_tools_of_tests() {
    let faults: Vec<_> = dependencies()
        .into_iter()
        .filter(|dependency| dependency.is_for_tests && listed(PURE, &dependency.package).is_some())
        .filter(|dependency| {
            let name = dependency.name.as_str();
            let excepted = TEST_EXCEPTIONS
                .iter()
                .any(|(package, other, _)| *package == dependency.package && *other == name);
            !TEST_TOOLS.contains(&name) && !excepted
        })
        .map(|dependency| format!("{} must not use {} in its tests", dependency.package, dependency.name))
        .collect();
    assert_none("tests of cores need no world either", &faults);
}

#[test]
fn every_crate_is_on_a_floor_and_takes_the_workspace_lints() {
    let mut faults = Vec::new();
    for file in tidy::files().iter().filter(|file| file.name() == "Cargo.toml" && file.path.contains('/')) {
        let name = file.text.lines().find_map(|line| line.strip_prefix("name = \"")?.strip_suffix('"'));
        if name.is_none_or(|name| listed(OURS, name).is_none()) {
            faults.push(format!("{}: {name:?} is on no floor", file.path));
        }
        if !file.text.contains("[lints]\nworkspace = true") {
            faults.push(format!("{}: does not take the workspace lints", file.path));
        }
        if file.text.contains("panic = \"abort\"") {
            faults.push(format!("{}: a fault must stay inside its request", file.path));
        }
    }
    assert_none("floors and lints hold everywhere", &faults);
}
