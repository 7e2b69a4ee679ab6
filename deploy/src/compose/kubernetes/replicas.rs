//! Replicas: a `StatefulSet` for those that are alike, one headless Service that names them all, and a budget of
//! disruption.

use serde_json::{Value, json};

use super::super::stack::{replica_flags, start_seconds};
use super::super::topology::{ReplicaPart, Topology};
use super::{grace_seconds, labels, locked_down, pod_security, pre_stop, probe, resource};

/// Seconds between two questions while a replica starts.
const START_PERIOD: u64 = 5;

/// Everything about them.
pub fn resources(topology: &Topology) -> Vec<Value> {
    let selector = labels(topology, "replica");
    let service = json!({"clusterIP": "None", "publishNotReadyAddresses": true, "selector": selector,
        "ports": [{"name": "http", "port": 8001, "targetPort": "http"}]});
    let budget = json!({"maxUnavailable": 1, "selector": {"matchLabels": selector}});
    let mut all = vec![
        resource(topology, "v1", "Service", "replicas", &service),
        resource(topology, "policy/v1", "PodDisruptionBudget", "replicas", &budget),
    ];
    all.extend(
        shapes(topology).iter().map(|(part, replica, count)| stateful_set(topology, part, replica, *count)),
    );
    all
}

/// Replicas that are alike but for their name and cards, under a name of their own, and how many there are.
pub fn shapes(topology: &Topology) -> Vec<(String, &ReplicaPart, u32)> {
    let alike = |one: &ReplicaPart, other: &ReplicaPart| {
        let name = String::new;
        ReplicaPart { name: name(), cards: Vec::new(), ..one.clone() }
            == ReplicaPart { name: name(), cards: Vec::new(), ..other.clone() }
            && one.cards.len() == other.cards.len()
    };
    let mut shapes: Vec<(String, &ReplicaPart, u32)> = Vec::new();
    for replica in &topology.replicas {
        if let Some((_, _, count)) = shapes.iter_mut().find(|(_, first, _)| alike(first, replica)) {
            *count += 1;
            continue;
        }
        let number = shapes.len() + 1;
        let part = if number == 1 { "replica".to_owned() } else { format!("replica-{number}") };
        shapes.push((part, replica, 1));
    }
    shapes
}

fn stateful_set(topology: &Topology, part: &str, replica: &ReplicaPart, count: u32) -> Value {
    let mut labels = labels(topology, "replica");
    labels["flotilla/shape"] = part.into();
    let spec = json!({
        "replicas": count, "serviceName": super::name(topology, "replicas"),
        "podManagementPolicy": "Parallel",
        "selector": {"matchLabels": labels},
        // One at a time, and none beside it: there is no spare card to start a second one on.
        "updateStrategy": {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": 1}},
        "template": {"metadata": {"labels": labels}, "spec": pod(topology, replica)},
    });
    resource(topology, "apps/v1", "StatefulSet", part, &spec)
}

fn pod(topology: &Topology, replica: &ReplicaPart) -> Value {
    let mut volumes = vec![json!({"name": "tmp", "emptyDir": {}})];
    let mut mounts = vec![json!({"name": "tmp", "mountPath": "/tmp"})];
    if replica.cards.len() > 1 {
        volumes.push(json!({"name": "shm", "emptyDir": {"medium": "Memory", "sizeLimit": "1Gi"}}));
        mounts.push(json!({"name": "shm", "mountPath": "/dev/shm"}));
    }
    if !topology.is_fake() {
        let claim = super::name(topology, "models");
        volumes
            .push(json!({"name": "models", "persistentVolumeClaim": {"claimName": claim, "readOnly": true}}));
        mounts.push(json!({"name": "models", "mountPath": "/models", "readOnly": true}));
    }
    let container = json!({
        "name": "replica", "image": replica.image, "args": args(topology, replica),
        "ports": [{"name": "http", "containerPort": 8001}],
        "resources": resources_of(topology, replica),
        "startupProbe": probe("/ready", "http", START_PERIOD, start_seconds(topology.weight_bytes).div_ceil(START_PERIOD)),
        // Loaded is not stuck: liveness asks only whether anybody answers.
        "livenessProbe": probe("/health", "http", 10, 6),
        "readinessProbe": probe("/ready", "http", 2, 2),
        "lifecycle": pre_stop(), "securityContext": locked_down(), "volumeMounts": mounts,
    });
    json!({
        "automountServiceAccountToken": false, "enableServiceLinks": false,
        "terminationGracePeriodSeconds": grace_seconds(u64::from(replica.drain_seconds)),
        "securityContext": pod_security(), "containers": [container], "volumes": volumes,
    })
}

/// The model lies on a claim; only the last part of its path is known there. `$(NAME)` would be replaced.
fn args(topology: &Topology, replica: &ReplicaPart) -> Vec<String> {
    let words = replica_flags(topology, "/models/", replica);
    words.iter().map(|word| word.replace('$', "$$")).collect()
}

fn resources_of(topology: &Topology, replica: &ReplicaPart) -> Value {
    let memory = topology.weight_bytes + replica.kv_bytes.unwrap_or(0) + (1 << 30);
    let requests = json!({"cpu": replica.threads.to_string(), "memory": memory.to_string()});
    if replica.cards.is_empty() {
        return json!({"requests": requests});
    }
    // The device plugin pins cards itself, so none is named here.
    json!({"requests": requests, "limits": {"nvidia.com/gpu": replica.cards.len().to_string()}})
}
