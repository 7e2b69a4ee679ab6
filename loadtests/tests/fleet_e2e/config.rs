//! The example configs: each binary accepts its own, and says where a misspelt key stands.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use crate::fleet::binaries;

fn example(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../deploy/config").join(name)
}

fn check(binary: &str, config: &Path) -> Output {
    Command::new(binaries().join(binary)).arg("check").arg("--config").arg(config).output().unwrap()
}

fn misspelt(name: &str, key: &str) -> (tempfile::TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join(name);
    let text = std::fs::read_to_string(example(name)).unwrap();
    std::fs::write(&path, text.replacen(&format!("\n{key} ="), &format!("\n{key}x ="), 1)).unwrap();
    (folder, path)
}

#[test]
fn every_binary_accepts_its_example() {
    for (binary, name) in [("flotilla-gateway", "gateway.toml"), ("flotilla-replica", "replica.toml")] {
        let answer = check(binary, &example(name));
        assert!(answer.status.success(), "{name}: {}", String::from_utf8_lossy(&answer.stderr));
    }
}

/// U135 for the shipped files.
#[test]
fn a_misspelt_key_is_named_with_its_place() {
    for (binary, name, key) in [
        ("flotilla-gateway", "gateway.toml", "body_bytes_max"),
        ("flotilla-replica", "replica.toml", "queue_max"),
    ] {
        let (_folder, path) = misspelt(name, key);
        let answer = check(binary, &path);
        let text = String::from_utf8_lossy(&answer.stderr).into_owned();
        assert!(!answer.status.success(), "{name} passes with {key}x");
        assert!(text.contains(&format!("{key}x")) && text.contains(name), "{text}");
    }
}
