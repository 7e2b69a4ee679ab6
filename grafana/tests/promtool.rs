//! Prometheus' own tool reads the rules, and runs each alert once firing and once not.

#![expect(clippy::unwrap_used, reason = "a fault of the tools is a failed test")]

use std::path::Path;
use std::process::Command;

use grafana::{files, rules};

/// Runs `promtool` on files as the code writes them; what it says of a fault is the test's failure.
fn check(arguments: &[&str]) {
    let folder = tempfile::tempdir().unwrap();
    files::write(folder.path()).unwrap();
    let Some(output) = promtool(arguments, &folder.path().join("rules")) else { return };
    let said = String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "promtool {arguments:?}: {said}");
}

fn promtool(arguments: &[&str], folder: &Path) -> Option<std::process::Output> {
    match Command::new("promtool").args(arguments).current_dir(folder).output() {
        Ok(output) => Some(output),
        Err(error) => {
            println!("SKIPPED promtool: {error}");
            None
        }
    }
}

#[test]
fn the_rules_are_read_without_complaint() {
    check(&["check", "rules", "--lint=all", "--lint-fatal", "recording.yml", "alerts.yml"]);
}

#[test]
fn every_alert_fires_when_it_should_and_only_then() {
    assert!(rules::alerts::all().len() > 20);
    check(&["test", "rules", "tests.yml"]);
}
