use figment::Figment;
use figment::providers::{Format, Yaml};

use super::super::stack::start_seconds;
use super::super::topology::tests::topology;
use super::*;

/// Every resource of one file.
fn resources(topology: &Topology, file: &str) -> Vec<Value> {
    let files = render(topology, "hush");
    let (_, text) = files.iter().find(|(name, _)| name == file).unwrap();
    text.split("---\n").map(|text| Figment::from(Yaml::string(text)).extract().unwrap()).collect()
}

fn kind(resources: &[Value], kind: &str) -> Value {
    resources.iter().find(|resource| resource["kind"] == kind).unwrap_or_else(|| panic!("no {kind}")).clone()
}

/// U106: a start may take as long as its weights need, and liveness stays out of it.
#[test]
fn probes_and_grace_are_computed() {
    let set = kind(&resources(&topology(&[&[]]), "base/replicas.yaml"), "StatefulSet");
    let pod = &set["spec"]["template"]["spec"];
    let container = &pod["containers"][0];
    let start = &container["startupProbe"];
    let allowed = start["periodSeconds"].as_u64().unwrap() * start["failureThreshold"].as_u64().unwrap();
    assert!(allowed >= start_seconds(16_000_000_000), "{allowed}");
    assert_eq!(container["livenessProbe"]["httpGet"]["path"], "/health");
    assert_eq!(container["readinessProbe"]["httpGet"]["path"], "/ready");
    let wait = container["lifecycle"]["preStop"]["sleep"]["seconds"].as_u64().unwrap();
    assert_eq!(pod["terminationGracePeriodSeconds"], wait + 60 + MARGIN_SECONDS);
}

#[test]
fn the_gateway_reads_endpoint_slices_and_nothing_else() {
    let role = kind(&resources(&topology(&[&[]]), "base/gateway.yaml"), "Role");
    assert_eq!(
        role["rules"],
        json!([{"apiGroups": ["discovery.k8s.io"], "resources": ["endpointslices"], "verbs": ["get", "list", "watch"]}])
    );
}

#[test]
fn pods_have_no_privileges_and_no_token_they_do_not_need() {
    let topology = topology(&[&["GPU-a"]]);
    let gateway = kind(&resources(&topology, "base/gateway.yaml"), "Deployment");
    let replica = kind(&resources(&topology, "base/replicas.yaml"), "StatefulSet");
    for pod in [&gateway["spec"]["template"]["spec"], &replica["spec"]["template"]["spec"]] {
        assert_eq!(pod["enableServiceLinks"], false);
        assert_eq!(pod["securityContext"]["runAsNonRoot"], true);
        let context = &pod["containers"][0]["securityContext"];
        assert_eq!(
            (&context["readOnlyRootFilesystem"], &context["allowPrivilegeEscalation"]),
            (&true.into(), &false.into())
        );
    }
    assert_eq!(replica["spec"]["template"]["spec"]["automountServiceAccountToken"], false);
}

#[test]
fn alike_replicas_are_one_set_and_groups_have_shared_memory() {
    let all = resources(&topology(&[&["GPU-a"], &["GPU-b"], &["GPU-c", "GPU-d"]]), "base/replicas.yaml");
    let sets: Vec<_> = all.iter().filter(|resource| resource["kind"] == "StatefulSet").collect();
    let shape = |set: &Value| {
        let container = &set["spec"]["template"]["spec"]["containers"][0];
        (
            set["spec"]["replicas"].as_u64().unwrap(),
            container["resources"]["limits"]["nvidia.com/gpu"].clone(),
        )
    };
    assert_eq!(sets.iter().map(|set| shape(set)).collect::<Vec<_>>(), [(2, "1".into()), (1, "2".into())]);
    let mounts = &sets[1]["spec"]["template"]["spec"]["containers"][0]["volumeMounts"];
    assert!(
        mounts.as_array().unwrap().iter().any(|mount| mount["mountPath"] == "/dev/shm"),
        "U063: {mounts}"
    );
}

/// The key is in the secrets' files and nowhere else.
#[test]
fn the_key_is_in_no_manifest() {
    for (name, text) in render(&topology(&[&[]]), "hush-hush") {
        assert_eq!(text.contains("hush-hush"), name.starts_with("base/secrets/"), "{name}");
    }
}

#[test]
fn no_path_adds_to_a_manifest() {
    let evil = Topology { model: "/m/x\"\n      privileged: true # $(HOME)".to_owned(), ..topology(&[&[]]) };
    let set = kind(&resources(&evil, "base/replicas.yaml"), "StatefulSet");
    let container = &set["spec"]["template"]["spec"]["containers"][0];
    assert_eq!(container["args"][1], "/models/x\"\n      privileged: true # $$(HOME)");
    assert_eq!(container["securityContext"]["privileged"], Value::Null);
}

/// While nobody runs, requests are held for as long as a start takes, and KEDA waits longer than that.
#[test]
fn scaling_from_zero_holds_requests_through_a_start() {
    let topology = topology(&[&[], &[]]);
    let scaled = kind(&resources(&topology, "components/scale-to-zero/resources.yaml"), "ScaledObject");
    let start = start_seconds(topology.weight_bytes);
    assert!(scaled["spec"]["cooldownPeriod"].as_u64().unwrap() > start);
    assert_eq!(scaled["spec"]["minReplicaCount"], 0);
    let kustomization = resources(&topology, "components/scale-to-zero/kustomization.yaml");
    let patch = kustomization[0]["patches"][0]["patch"].as_str().unwrap().to_owned();
    let patch: Value = Figment::from(Yaml::string(&patch)).extract().unwrap();
    let env = &patch["spec"]["template"]["spec"]["containers"][0]["env"];
    assert_eq!(env[0]["name"], "FLOTILLA__QUEUE__HOLD_MS");
    assert!(env[0]["value"].as_str().unwrap().parse::<u64>().unwrap() > start * 1000);
}
