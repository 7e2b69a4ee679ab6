//! The gateway: a Deployment with two pods at least, a Service, an autoscaler, a budget of disruption, and the right
//! to read where replicas are.

use serde_json::{Value, json};

use super::super::stack::GATEWAY_DRAIN_SECONDS;
use super::super::topology::Topology;
use super::{grace_seconds, labels, locked_down, name, pod_security, pre_stop, probe, resource};

const PODS_MIN: u32 = 2;
const PODS_MAX: u32 = 10;

/// Everything about it but its configuration.
pub fn resources(topology: &Topology) -> Vec<Value> {
    let selector = labels(topology, "gateway");
    let target = json!({"apiVersion": "apps/v1", "kind": "Deployment", "name": name(topology, "gateway")});
    let scaling = json!({
        "scaleTargetRef": target, "minReplicas": PODS_MIN, "maxReplicas": PODS_MAX,
        "metrics": [{"type": "Resource", "resource":
            {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 70}}}],
        "behavior": {"scaleDown": {"stabilizationWindowSeconds": 300}},
    });
    let service =
        json!({"selector": selector, "ports": [{"name": "http", "port": 8000, "targetPort": "http"}]});
    // The admin port is no part of the service that clients reach.
    let admin =
        json!({"selector": selector, "ports": [{"name": "admin", "port": 9000, "targetPort": "admin"}]});
    let budget = json!({"maxUnavailable": 1, "selector": {"matchLabels": selector}});
    let mut all = vec![
        deployment(topology),
        resource(topology, "v1", "Service", "gateway", &service),
        resource(topology, "v1", "Service", "gateway-admin", &admin),
        resource(topology, "autoscaling/v2", "HorizontalPodAutoscaler", "gateway", &scaling),
        resource(topology, "policy/v1", "PodDisruptionBudget", "gateway", &budget),
    ];
    all.extend(rights(topology));
    all
}

/// Reading endpoint slices of its own namespace, and nothing else.
fn rights(topology: &Topology) -> [Value; 3] {
    let metadata = json!({"name": name(topology, "gateway"), "labels": labels(topology, "gateway")});
    let api = "rbac.authorization.k8s.io/v1";
    [
        json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": metadata}),
        json!({"apiVersion": api, "kind": "Role", "metadata": metadata, "rules": [{
            "apiGroups": ["discovery.k8s.io"], "resources": ["endpointslices"], "verbs": ["get", "list", "watch"]}]}),
        json!({"apiVersion": api, "kind": "RoleBinding", "metadata": metadata,
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": name(topology, "gateway")},
            "subjects": [{"kind": "ServiceAccount", "name": name(topology, "gateway")}]}),
    ]
}

fn deployment(topology: &Topology) -> Value {
    let container = json!({
        "name": "gateway", "image": topology.gateway.image,
        "args": ["--config", "/etc/flotilla/gateway.toml"],
        "ports": [{"name": "http", "containerPort": 8000}, {"name": "admin", "containerPort": 9000}],
        "resources": {"requests": {"cpu": "500m", "memory": "256Mi"}, "limits": {"memory": "2Gi"}},
        // Alive is not ready: without any replica the gateway lives, and says 503 itself.
        "startupProbe": probe("/health", "http", 2, 30),
        "livenessProbe": probe("/health", "http", 10, 6),
        "readinessProbe": probe("/health", "http", 2, 2),
        "lifecycle": pre_stop(), "securityContext": locked_down(),
        "volumeMounts": [{"name": "config", "mountPath": "/etc/flotilla", "readOnly": true}],
    });
    let pod = json!({
        "serviceAccountName": name(topology, "gateway"),
        // Variables such as FLOTILLA_GATEWAY_PORT are nobody's settings.
        "enableServiceLinks": false,
        "terminationGracePeriodSeconds": grace_seconds(GATEWAY_DRAIN_SECONDS),
        "securityContext": pod_security(), "containers": [container],
        "volumes": [{"name": "config", "secret": {"secretName": name(topology, "gateway"), "defaultMode": 0o440}}],
        "topologySpreadConstraints": [{"maxSkew": 1, "topologyKey": "kubernetes.io/hostname",
            "whenUnsatisfiable": "ScheduleAnyway",
            "labelSelector": {"matchLabels": labels(topology, "gateway")}}],
    });
    let spec = json!({
        "selector": {"matchLabels": labels(topology, "gateway")},
        "strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": 0, "maxSurge": 1}},
        "template": {"metadata": {"labels": labels(topology, "gateway")}, "spec": pod},
    });
    resource(topology, "apps/v1", "Deployment", "gateway", &spec)
}

/// Its configuration, a secret file: it holds the admin key.
pub fn config(topology: &Topology, admin_key: &str) -> String {
    format!(
        "# Written by `flotilla compose`. Holds the admin key: keep it to yourself.\n\n\
         [server]\ndrain_ms = {}\n\n[admin]\nhost = \"0.0.0.0\"\nkey = {}\n\n\
         # A name with every replica's address, ready or not: the gateway asks each how it is.\n\
         [[dns]]\nname = \"{}:8001\"\ninterval_ms = 1000\n",
        GATEWAY_DRAIN_SECONDS * 1000,
        Value::from(admin_key),
        name(topology, "replicas"),
    )
}
