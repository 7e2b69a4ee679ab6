//! A topology for Kubernetes: a Kustomize base, components to add, overlays that add them. Pure: names and texts out.
//!
//! The gateway is a Deployment that finds replicas itself. Replicas are a `StatefulSet` a shape; what a start and an
//! end may take is computed, as for the other renderings.

mod components;
mod gateway;
mod replicas;

use serde_json::{Value, json};

use super::topology::Topology;
use super::yaml::{document, documents};

/// A pod that ends first waits so long: by then nobody sends it new work.
const PRE_STOP_SECONDS: u64 = 15;
/// What is left after the drain, for the process to end.
const MARGIN_SECONDS: u64 = 10;
/// Who runs in our images.
const USER: u32 = 65532;

/// File names and contents.
pub fn render(topology: &Topology, admin_key: &str) -> Vec<(String, String)> {
    let base = kustomization(&json!({
        "resources": ["gateway.yaml", "replicas.yaml"],
        // A changed configuration has a new name and rolls the gateway; the key's name is what KEDA is told.
        "secretGenerator": [
            {"name": name(topology, "gateway"), "files": ["gateway.toml=secrets/gateway.toml"]},
            {"name": name(topology, "admin"), "files": ["token=secrets/admin.key"],
                "options": {"disableNameSuffixHash": true}},
        ],
    }));
    let mut files = vec![
        ("base/kustomization.yaml".to_owned(), base),
        ("base/gateway.yaml".to_owned(), documents(&gateway::resources(topology))),
        ("base/replicas.yaml".to_owned(), documents(&replicas::resources(topology))),
        ("base/secrets/gateway.toml".to_owned(), gateway::config(topology, admin_key)),
        ("base/secrets/admin.key".to_owned(), admin_key.to_owned()),
    ];
    files.extend(components::render(topology));
    files
}

fn kustomization(body: &Value) -> String {
    of_kind("kustomize.config.k8s.io/v1beta1", "Kustomization", body)
}

fn of_kind(api: &str, kind: &str, body: &Value) -> String {
    let mut whole = body.clone();
    whole["apiVersion"] = api.into();
    whole["kind"] = kind.into();
    document(&whole)
}

/// `flotilla` and `flotilla-gateway`, as the stack is named.
fn name(topology: &Topology, part: &str) -> String {
    format!("{}-{part}", topology.name)
}

fn labels(topology: &Topology, component: &str) -> Value {
    json!({"app.kubernetes.io/name": topology.name, "app.kubernetes.io/component": component})
}

fn resource(topology: &Topology, api: &str, kind: &str, part: &str, spec: &Value) -> Value {
    let component = if part.starts_with("gateway") { "gateway" } else { "replica" };
    let metadata = json!({"name": name(topology, part), "labels": labels(topology, component)});
    json!({"apiVersion": api, "kind": kind, "metadata": metadata, "spec": spec})
}

/// What every container of ours gets: nothing it doesn't need.
fn locked_down() -> Value {
    json!({
        "allowPrivilegeEscalation": false, "readOnlyRootFilesystem": true,
        "capabilities": {"drop": ["ALL"]},
    })
}

fn pod_security() -> Value {
    json!({"runAsNonRoot": true, "runAsUser": USER, "runAsGroup": USER, "fsGroup": USER,
        "seccompProfile": {"type": "RuntimeDefault"}})
}

fn probe(path: &str, port: &str, period: u64, failures: u64) -> Value {
    json!({"httpGet": {"path": path, "port": port}, "periodSeconds": period, "timeoutSeconds": 5,
        "failureThreshold": failures})
}

fn pre_stop() -> Value {
    json!({"preStop": {"sleep": {"seconds": PRE_STOP_SECONDS}}})
}

/// From the order to end until the kill.
fn grace_seconds(drain_seconds: u64) -> u64 {
    PRE_STOP_SECONDS + drain_seconds + MARGIN_SECONDS
}

#[cfg(test)]
mod tests;
