//! What may be added to the base: scaling to zero with KEDA, a pool of the Gateway API Inference Extension, groups
//! over machines, `KServe`. Each overlay adds one.

use serde_json::{Value, json};

use super::super::stack::{model_argument, replica_flags, start_seconds};
use super::super::topology::Topology;
use super::super::yaml::{document, documents};
use super::{kustomization, labels, locked_down, name, of_kind, probe, replicas, resource};

/// Seconds between two questions of KEDA.
const POLL_SECONDS: u64 = 5;
/// Idle for so long after a start could have ended, and replicas go.
const IDLE_SECONDS: u64 = 300;
/// The longest that the gateway holds a request.
const HOLD_SECONDS_MAX: u64 = 3600;
/// Machines of a group that spans machines; an example to change.
const GROUP_MACHINES: u32 = 2;
/// Of whoever serves a group over machines: ours doesn't.
const GROUP_IMAGE: &str = "vllm/vllm-openai:v0.11.0";

/// File names and contents.
pub fn render(topology: &Topology) -> Vec<(String, String)> {
    let mut files = component("scale-to-zero", &scale_to_zero(topology), &[hold(topology)]);
    files.extend(component("inference-pool", &[inference_pool(topology)], &[]));
    files.extend(component("groups", &[groups(topology)], &without_stateful_sets(topology)));
    for (overlay, parts) in [
        ("plain", vec![]),
        ("autoscaled", vec!["scale-to-zero"]),
        ("inference-gateway", vec!["inference-pool"]),
        ("groups", vec!["groups"]),
    ] {
        let parts: Vec<_> = parts.iter().map(|part| format!("../../components/{part}")).collect();
        let body = json!({"namespace": topology.name, "resources": ["namespace.yaml", "../../base"], "components": parts});
        files.push((format!("overlays/{overlay}/kustomization.yaml"), kustomization(&body)));
        files.push((format!("overlays/{overlay}/namespace.yaml"), document(&namespace(topology))));
    }
    let body = json!({"namespace": topology.name, "resources": ["namespace.yaml", "runtime.yaml"]});
    files.push(("overlays/kserve/kustomization.yaml".to_owned(), kustomization(&body)));
    files.push(("overlays/kserve/namespace.yaml".to_owned(), document(&namespace(topology))));
    files.push(("overlays/kserve/runtime.yaml".to_owned(), documents(&kserve(topology))));
    files
}

fn namespace(topology: &Topology) -> Value {
    json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": topology.name,
        "labels": {"pod-security.kubernetes.io/enforce": "restricted"}}})
}

fn component(part: &str, resources: &[Value], patches: &[Value]) -> Vec<(String, String)> {
    let patches: Vec<_> = patches.iter().map(|patch| json!({"patch": document(patch)})).collect();
    let body = of_kind(
        "kustomize.config.k8s.io/v1alpha1",
        "Component",
        &json!({"resources": ["resources.yaml"], "patches": patches}),
    );
    vec![
        (format!("components/{part}/kustomization.yaml"), body),
        (format!("components/{part}/resources.yaml"), documents(resources)),
    ]
}

/// The gateway knows who waits while there is no replica; so its own number is followed.
fn scale_to_zero(topology: &Topology) -> [Value; 2] {
    let start = start_seconds(topology.weight_bytes);
    let count = replicas::shapes(topology).first().map_or(1, |(_, _, count)| *count);
    let url = format!("http://{}.{}.svc:9000/scale", name(topology, "gateway-admin"), topology.name);
    let trigger = json!({
        "type": "metrics-api", "metricType": "AverageValue",
        "metadata": {"url": url, "valueLocation": "models.0.replicas_wanted", "targetValue": "1",
            "activationTargetValue": "0", "authMode": "bearer"},
        "authenticationRef": {"name": name(topology, "replica")},
    });
    let scaled = json!({
        "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "StatefulSet", "name": name(topology, "replica")},
        "pollingInterval": POLL_SECONDS, "cooldownPeriod": start + IDLE_SECONDS,
        "minReplicaCount": 0, "maxReplicaCount": count,
        // A gateway that has just started knows no model yet, and one that is away answers nothing.
        "fallback": {"failureThreshold": 3, "replicas": 1},
        "advanced": {"horizontalPodAutoscalerConfig": {"behavior": {"scaleDown": {
            "stabilizationWindowSeconds": IDLE_SECONDS,
            "policies": [{"type": "Pods", "value": 1, "periodSeconds": 60}]}}}},
        "triggers": [trigger],
    });
    let secret =
        json!({"secretTargetRef": [{"parameter": "token", "name": name(topology, "admin"), "key": "token"}]});
    [
        resource(topology, "keda.sh/v1alpha1", "ScaledObject", "replica", &scaled),
        resource(topology, "keda.sh/v1alpha1", "TriggerAuthentication", "replica", &secret),
    ]
}

/// The gateway holds requests for as long as a start may take, and may want none.
fn hold(topology: &Topology) -> Value {
    let hold_ms = (start_seconds(topology.weight_bytes) + POLL_SECONDS).min(HOLD_SECONDS_MAX) * 1000;
    let variable = |key: &str, value: String| json!({"name": format!("FLOTILLA__{key}"), "value": value});
    json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": name(topology, "gateway")},
        "spec": {"template": {"spec": {"containers": [{"name": "gateway", "env": [
            variable("QUEUE__HOLD_MS", hold_ms.to_string()), variable("SCALE__REPLICAS_MIN", "0".to_owned())]}]}}}})
}

/// Replicas for a gateway of that extension; the picker is its own, and fails open.
fn inference_pool(topology: &Topology) -> Value {
    let spec = json!({
        "selector": {"matchLabels": labels(topology, "replica")}, "targetPorts": [{"number": 8001}],
        "endpointPickerRef": {"name": name(topology, "picker"), "kind": "Service", "port": {"number": 9002},
            "failureMode": "FailOpen"},
    });
    resource(topology, "inference.networking.k8s.io/v1", "InferencePool", "replicas", &spec)
}

/// One replica over several machines: for engines that have it, so not for ours.
fn groups(topology: &Topology) -> Value {
    let ranks = topology.replicas.first().map_or(1, |replica| replica.cards.len().max(1));
    let model = model_argument(topology, "/models/");
    let serve = format!(
        "ray start --head --port=6379 && exec vllm serve \"$0\" --port 8001 --tensor-parallel-size {ranks} \
         --pipeline-parallel-size {GROUP_MACHINES} --distributed-executor-backend ray"
    );
    let leader = json!(["/bin/sh", "-c", serve, model]);
    let worker = json!(["/bin/sh", "-c", "exec ray start --address=\"$LWS_LEADER_ADDRESS:6379\" --block"]);
    let pod = |part: &str, command: Value| {
        let mut container = json!({
            "name": part, "image": GROUP_IMAGE, "command": command,
            "resources": {"limits": {"nvidia.com/gpu": ranks.to_string()}},
            "volumeMounts": [{"name": "shm", "mountPath": "/dev/shm"},
                {"name": "models", "mountPath": "/models", "readOnly": true}],
        });
        if part == "leader" {
            container["ports"] = json!([{"name": "http", "containerPort": 8001}]);
            container["startupProbe"] =
                probe("/health", "http", 5, start_seconds(topology.weight_bytes).div_ceil(5));
            container["readinessProbe"] = probe("/health", "http", 2, 2);
        }
        // Only the leader is an endpoint.
        let component = if part == "leader" { "replica" } else { "group-worker" };
        json!({"metadata": {"labels": labels(topology, component)}, "spec": {
            "automountServiceAccountToken": false, "enableServiceLinks": false, "containers": [container],
            "volumes": [{"name": "shm", "emptyDir": {"medium": "Memory", "sizeLimit": "8Gi"}},
                {"name": "models", "persistentVolumeClaim": {"claimName": name(topology, "models"), "readOnly": true}}]}})
    };
    let spec = json!({
        "replicas": topology.replicas.len(),
        "leaderWorkerTemplate": {"size": GROUP_MACHINES, "restartPolicy": "RecreateGroupOnPodRestart",
            "leaderTemplate": pod("leader", leader), "workerTemplate": pod("worker", worker)},
        "rolloutStrategy": {"type": "RollingUpdate", "rollingUpdateConfiguration": {"maxUnavailable": 1, "maxSurge": 0}},
    });
    resource(topology, "leaderworkerset.x-k8s.io/v1", "LeaderWorkerSet", "replica", &spec)
}

fn without_stateful_sets(topology: &Topology) -> Vec<Value> {
    let gone = |part: &String| {
        json!({"$patch": "delete", "apiVersion": "apps/v1", "kind": "StatefulSet",
            "metadata": {"name": name(topology, part)}})
    };
    replicas::shapes(topology).iter().map(|(part, _, _)| gone(part)).collect()
}

/// Our replica as a runtime of `KServe`, and one service on it.
fn kserve(topology: &Topology) -> Vec<Value> {
    let Some(replica) = topology.replicas.first() else { return Vec::new() };
    let cards = replica.cards.len();
    let resources = if cards == 0 {
        json!({"requests": {"cpu": replica.threads.to_string()}})
    } else {
        json!({"limits": {"nvidia.com/gpu": cards.to_string()}})
    };
    let container = json!({
        "name": "kserve-container", "image": replica.image, "args": replica_flags(topology, "/mnt/models/", replica),
        "ports": [{"containerPort": 8001, "protocol": "TCP"}], "resources": resources,
        "startupProbe": json!({"httpGet": {"path": "/ready", "port": 8001}, "periodSeconds": 5,
            "failureThreshold": start_seconds(topology.weight_bytes).div_ceil(5)}),
        "readinessProbe": json!({"httpGet": {"path": "/ready", "port": 8001}, "periodSeconds": 2}),
        "securityContext": locked_down(),
    });
    let runtime = json!({"supportedModelFormats": [{"name": "huggingface", "version": "1"}, {"name": "gguf", "version": "1"}],
        "containers": [container]});
    let format =
        if std::path::Path::new(&topology.model).extension().is_some_and(|extension| extension == "gguf") {
            "gguf"
        } else {
            "huggingface"
        };
    let mut served = json!({"modelFormat": {"name": format}, "runtime": name(topology, "replica")});
    if !topology.is_fake() {
        served["storageUri"] = format!("pvc://{}", name(topology, "models")).into();
    }
    let runtime = resource(topology, "serving.kserve.io/v1alpha1", "ServingRuntime", "replica", &runtime);
    let service =
        json!({"predictor": {"minReplicas": 1, "maxReplicas": topology.replicas.len(), "model": served}});
    vec![runtime, resource(topology, "serving.kserve.io/v1beta1", "InferenceService", "replica", &service)]
}
