//! The bill of materials that images carry: all that is linked into a binary, and nothing else.

#![expect(clippy::unwrap_used, reason = "a fault of the harness is a failed test")]

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use serde_json::Value;

fn script() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("docker/sbom.sh")
}

fn sbom(package: &str) -> Output {
    Command::new(script()).arg(package).output().unwrap()
}

/// Names of a binary's parts, each complete.
fn parts(package: &str) -> BTreeSet<String> {
    let output = sbom(package);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let bill: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!((&bill["bomFormat"], &bill["specVersion"]), (&"CycloneDX".into(), &"1.5".into()));
    assert_eq!(bill["metadata"]["component"]["name"], format!("flotilla-{package}"));
    let lock = include_str!("../../Cargo.lock");
    let part = |part: &Value| {
        let text = |key: &str| part[key].as_str().unwrap().to_owned();
        let (name, version) = (text("name"), text("version"));
        assert_eq!(text("purl"), format!("pkg:cargo/{name}@{version}"));
        let licence = part["licenses"][0]["expression"].as_str();
        assert!(licence.is_some_and(|licence| !licence.contains('/')), "{part}");
        // What comes from no registry is ours, and has no digest.
        let is_ours = !lock.contains(&format!("name = \"{name}\"\nversion = \"{version}\"\nsource = "));
        let digest = part["hashes"][0]["content"].as_str();
        assert!(is_ours || digest.is_some_and(|digest| digest.len() == 64), "{part}");
        name
    };
    bill["components"].as_array().unwrap().iter().map(part).collect()
}

#[test]
fn a_bill_lists_what_is_linked_and_nothing_else() {
    let (gateway, replica) = (parts("gateway"), parts("replica"));
    assert!(gateway.contains("pingora") && gateway.contains("gateway-core") && gateway.contains("tokio"));
    assert!(replica.contains("replica-format") && replica.contains("tokenizers"));
    assert!(!replica.contains("pingora") && !gateway.contains("tokenizers"));
    // Only tests use it.
    assert!(!gateway.contains("proptest") && !replica.contains("proptest"));
}

#[test]
fn a_package_that_is_none_has_no_bill() {
    let output = sbom("nobody");
    assert!(!output.status.success() && output.stdout.is_empty(), "{output:?}");
}
