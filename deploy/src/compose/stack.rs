//! A topology as a Compose file. Pure: text out.

use std::fmt::Write;
use std::path::Path;

use super::topology::{GpuAccess, ReplicaPart, Topology};

/// Weights are read from disk at this many bytes a second at least, and twice the time is given.
const LOAD_BYTES_PER_S: u64 = 200_000_000;
/// A start without weights.
const START_SECONDS: u64 = 30;
/// Where a container finds models: under their own names, by which clients ask for them.
const MODELS: &str = "/models/";
/// What a gateway may take to let streams finish.
pub const GATEWAY_DRAIN_SECONDS: u64 = 60;

const HEAD: &str = "\
# Written by `flotilla compose`. Change the topology file and write it again.
";

/// What every container of ours gets: nothing it doesn't need.
const LOCKED_DOWN: &str = "    read_only: true
    tmpfs: [/tmp]
    user: \"65532:65532\"
    cap_drop: [ALL]
    security_opt: [\"no-new-privileges:true\"]
    restart: unless-stopped
";

/// Seconds that a replica's start may take.
pub fn start_seconds(weight_bytes: u64) -> u64 {
    START_SECONDS + 2 * weight_bytes / LOAD_BYTES_PER_S
}

/// The Compose file.
pub fn render(topology: &Topology) -> String {
    let mut text = format!("{HEAD}name: {}\n\nservices:\n", topology.name);
    gateway(&mut text, topology);
    for replica in &topology.replicas {
        self::replica(&mut text, topology, replica);
    }
    if topology.redis {
        text.push_str(REDIS);
    }
    if topology.monitoring {
        text.push_str(MONITORING);
    }
    text.push_str("\nsecrets:\n  gateway:\n    file: ./secrets/gateway.toml\n");
    if topology.monitoring {
        text.push_str("  admin:\n    file: ./secrets/admin.key\n");
    }
    text
}

/// The gateway's configuration, a secret file: it holds the admin key.
pub fn gateway_config(topology: &Topology, admin_key: &str) -> String {
    let mut text = format!(
        "# Written by `flotilla compose`. Holds the admin key: keep it to yourself.\n\n\
         [server]\ndrain_ms = {}\n\n[admin]\nhost = \"0.0.0.0\"\nkey = {}\n\n\
         # Every replica service has this name: one that is added is found, one that moves is found again.\n\
         [[dns]]\nname = \"replicas:8001\"\ninterval_ms = 1000\n",
        GATEWAY_DRAIN_SECONDS * 1000,
        serde_json::Value::from(admin_key),
    );
    if topology.redis {
        text.push_str("\n[store]\nurl = \"redis://redis:6379\"\n");
    }
    text
}

fn gateway(text: &mut String, topology: &Topology) {
    let gateway = &topology.gateway;
    let config = "/run/secrets/gateway";
    let _ = write!(
        text,
        "  gateway:
    image: {}
    command: [\"--config\", \"{config}\"]
    ports:
      - \"{}:8000\"
      - \"127.0.0.1:{}:9000\"
    secrets: [gateway]
    healthcheck:
      test: [\"CMD\", \"flotilla-gateway\", \"ready\", \"--config\", \"{config}\"]
      interval: 5s
      timeout: 5s
      retries: 3
      start_period: {}s
    stop_grace_period: {}s
{LOCKED_DOWN}",
        quoted(&gateway.image),
        gateway.port,
        gateway.admin_port,
        start_seconds(topology.weight_bytes) + 30,
        GATEWAY_DRAIN_SECONDS + 10,
    );
}

/// The model's argument where the host's folder lies at `folder`: the last part of its path.
pub fn model_argument(topology: &Topology, folder: &str) -> String {
    if topology.is_fake() {
        return topology.model.clone();
    }
    let name = Path::new(&topology.model).file_name().unwrap_or_default().to_string_lossy();
    format!("{folder}{name}")
}

/// A replica's command line in a container.
pub fn replica_flags(topology: &Topology, folder: &str, replica: &ReplicaPart) -> Vec<String> {
    let model = model_argument(topology, folder);
    let mut command = vec!["--model".to_owned(), model, "--host".to_owned(), "0.0.0.0".to_owned()];
    let mut flag = |name: &str, value: String| command.extend([name.to_owned(), value]);
    flag("--port", "8001".to_owned());
    if let Some(name) = &topology.served_model_name {
        flag("--served-model-name", name.clone());
    }
    flag("--device", if replica.cards.is_empty() { "cpu" } else { "cuda" }.to_owned());
    flag("--threads", replica.threads.to_string());
    flag("--drain-timeout", replica.drain_seconds.to_string());
    if let Some(tokens) = replica.context_tokens {
        flag("--max-model-len", tokens.to_string());
    }
    if let Some(bytes) = replica.kv_bytes {
        flag("--kv-cache-memory-bytes", bytes.to_string());
    }
    if replica.cards.len() > 1 {
        flag("--tensor-parallel-size", replica.cards.len().to_string());
    }
    command
}

/// A string for a Compose file, which YAML and Compose's own `$NAME` leave as it is.
fn quoted(word: &str) -> String {
    serde_json::Value::from(word).to_string().replace('$', "$$")
}

fn replica(text: &mut String, topology: &Topology, replica: &ReplicaPart) {
    let command: Vec<_> = replica_flags(topology, MODELS, replica).iter().map(|word| quoted(word)).collect();
    let _ = write!(
        text,
        "
  {}:
    image: {}
    command: [{}]
    networks:
      default:
        aliases: [replicas]
    healthcheck:
      test: [\"CMD\", \"flotilla-replica\", \"ready\", \"--port\", \"8001\"]
      interval: 5s
      timeout: 5s
      retries: 3
      start_period: {}s
    stop_grace_period: {}s
{LOCKED_DOWN}",
        replica.name,
        quoted(&replica.image),
        command.join(", "),
        start_seconds(topology.weight_bytes),
        replica.drain_seconds + 10,
    );
    if !topology.is_fake() {
        // The long form: a colon in a path ends nothing.
        let (source, target) = (quoted(&topology.model), quoted(&model_argument(topology, MODELS)));
        let _ = write!(
            text,
            "    volumes:\n      - {{type: bind, source: {source}, target: {target}, read_only: true}}\n"
        );
    }
    cards(text, topology.gpu_access, replica);
}

/// Cards by UUID. Inside the container they are counted from 0.
fn cards(text: &mut String, access: GpuAccess, replica: &ReplicaPart) {
    if replica.cards.is_empty() {
        return;
    }
    let inside: Vec<_> = (0..replica.cards.len()).map(|index| index.to_string()).collect();
    let _ = write!(
        text,
        "    environment:\n      CUDA_DEVICE_ORDER: PCI_BUS_ID\n      CUDA_VISIBLE_DEVICES: \"{}\"\n",
        inside.join(",")
    );
    if replica.cards.len() > 1 {
        text.push_str("    shm_size: 1g\n");
    }
    let (driver, prefix) = match access {
        GpuAccess::Cdi => ("cdi", "nvidia.com/gpu="),
        GpuAccess::Nvidia => ("nvidia", ""),
    };
    let ids: Vec<_> = replica.cards.iter().map(|card| quoted(&format!("{prefix}{card}"))).collect();
    let _ = write!(
        text,
        "    deploy:
      resources:
        reservations:
          devices:
            - driver: {driver}
              device_ids: [{}]
              capabilities: [gpu]
",
        ids.join(", ")
    );
}

const REDIS: &str = "
  redis:
    image: redis:7-alpine
    command: [\"redis-server\", \"--save\", \"\", \"--appendonly\", \"no\"]
    read_only: true
    tmpfs: [/data]
    cap_drop: [ALL]
    security_opt: [\"no-new-privileges:true\"]
    restart: unless-stopped
    healthcheck:
      test: [\"CMD\", \"redis-cli\", \"ping\"]
      interval: 5s
";

const MONITORING: &str = "
  prometheus:
    image: prom/prometheus:v2.55.1
    volumes: [\"./prometheus.yml:/etc/prometheus/prometheus.yml:ro\"]
    secrets: [admin]
    ports: [\"127.0.0.1:9090:9090\"]
    restart: unless-stopped
";

/// What Prometheus scrapes: the gateway with its key, and whoever is called `replicas` now.
pub const PROMETHEUS: &str = "\
# Written by `flotilla compose`.
global:
  scrape_interval: 15s
scrape_configs:
  - job_name: gateway
    authorization:
      credentials_file: /run/secrets/admin
    static_configs:
      - targets: [\"gateway:9000\"]
  - job_name: replicas
    dns_sd_configs:
      - names: [replicas]
        type: A
        port: 8001
";

#[cfg(test)]
mod tests {
    use super::super::topology::tests::topology;
    use super::*;
    use figment::Figment;
    use figment::providers::{Format, Yaml};
    use serde_json::Value;

    fn stack(topology: &Topology) -> Value {
        Figment::from(Yaml::string(&render(topology))).extract().unwrap()
    }

    fn replicas(stack: &Value) -> Vec<&Value> {
        let services = stack["services"].as_object().unwrap();
        services.iter().filter(|(name, _)| name.starts_with("replica")).map(|(_, service)| service).collect()
    }

    /// U118: cards are disjoint, pinned by UUID, counted from 0 inside, and never "all".
    #[test]
    fn every_replica_has_its_own_cards() {
        let topology = topology(&[&["GPU-a"], &["GPU-b", "GPU-c"]]);
        let stack = stack(&topology);
        let mut seen = Vec::new();
        for service in replicas(&stack) {
            let device = &service["deploy"]["resources"]["reservations"]["devices"][0];
            assert!(device["count"].is_null());
            seen.extend(
                device["device_ids"].as_array().unwrap().iter().map(|id| id.as_str().unwrap().to_owned()),
            );
            assert_eq!(service["environment"]["CUDA_DEVICE_ORDER"], "PCI_BUS_ID");
        }
        assert_eq!(seen, ["nvidia.com/gpu=GPU-a", "nvidia.com/gpu=GPU-b", "nvidia.com/gpu=GPU-c"]);
        assert_eq!(replicas(&stack)[1]["environment"]["CUDA_VISIBLE_DEVICES"], "0,1");
    }

    /// U063: groups have shared memory for their collective.
    #[test]
    fn groups_have_shared_memory() {
        let stack = stack(&topology(&[&["GPU-a"], &["GPU-b", "GPU-c"]]));
        assert!(replicas(&stack)[0]["shm_size"].is_null());
        assert_eq!(replicas(&stack)[1]["shm_size"], "1g");
    }

    /// U106: a start may take as long as its weights need; U122: the image's own binary is asked.
    #[test]
    fn starts_and_ends_have_their_time() {
        let topology = topology(&[&[]]);
        let stack = stack(&topology);
        let service = replicas(&stack)[0];
        assert_eq!(service["healthcheck"]["start_period"], format!("{}s", start_seconds(16_000_000_000)));
        assert!(start_seconds(16_000_000_000) >= 160);
        assert_eq!(service["healthcheck"]["test"][1], "flotilla-replica");
        assert_eq!(service["stop_grace_period"], "70s");
        assert_eq!(stack["services"]["gateway"]["stop_grace_period"], "70s");
    }

    #[test]
    fn only_the_gateway_is_reached_from_outside() {
        let stack = stack(&Topology { redis: true, monitoring: true, ..topology(&[&[], &[]]) });
        for (name, service) in stack["services"].as_object().unwrap() {
            for port in service["ports"].as_array().into_iter().flatten() {
                let port = port.as_str().unwrap();
                assert!(
                    port.starts_with("127.0.0.1:") || (name == "gateway" && port == "8000:8000"),
                    "{name}: {port}"
                );
            }
        }
    }

    #[test]
    fn containers_of_ours_have_no_privileges_and_no_secret_in_the_file() {
        let topology = topology(&[&[]]);
        let stack = stack(&topology);
        for name in ["gateway", "replica-1"] {
            let service = &stack["services"][name];
            assert_eq!(
                (&service["read_only"], &service["cap_drop"][0]),
                (&true.into(), &"ALL".into()),
                "{name}"
            );
            assert_eq!(service["user"], "65532:65532");
        }
        assert!(!render(&topology).contains("key ="));
        assert!(gateway_config(&topology, "hush").contains("key = \"hush\""));
    }

    /// Names and paths stay what they are, whatever they hold.
    #[test]
    fn no_name_or_path_adds_to_the_file() {
        let evil = "/models/a\"b: [x]\n    privileged: true\n$HOME:/etc";
        let mut topology = Topology { model: evil.to_owned(), ..topology(&[&["GPU-\"], count: all #"]]) };
        topology.replicas[0].image = "image\n    privileged: true".to_owned();
        topology.gateway.image = "g # comment".to_owned();
        let stack = stack(&topology);
        let service = replicas(&stack)[0];
        assert!(service["privileged"].is_null(), "{service:#}");
        assert_eq!(service["volumes"][0]["source"], evil.replace('$', "$$"));
        assert_eq!(service["volumes"][0]["read_only"], true);
        assert_eq!(service["volumes"][0]["target"], service["command"][1]);
        let device = &service["deploy"]["resources"]["reservations"]["devices"][0];
        assert!(
            device["count"].is_null() && device["device_ids"].as_array().unwrap().len() == 1,
            "{device:#}"
        );
        assert_eq!(stack["services"]["gateway"]["image"], "g # comment");
    }

    #[test]
    fn the_fake_model_needs_no_volume() {
        for model in ["fake", "fake:load=60000"] {
            let stack = stack(&Topology { model: model.to_owned(), ..topology(&[&[]]) });
            assert!(replicas(&stack)[0]["volumes"].is_null());
            assert_eq!(replicas(&stack)[0]["command"][1], model);
        }
    }

    /// A model is asked for by its own name, wherever the container has it.
    #[test]
    fn a_model_keeps_its_name() {
        let command = |topology: &Topology| replicas(&stack(topology))[0]["command"].to_string();
        assert!(command(&topology(&[&[]])).contains(r#""--model","/models/m.gguf""#));
        let named = Topology { served_model_name: Some("llama".to_owned()), ..topology(&[&[]]) };
        assert!(command(&named).contains(r#""--served-model-name","llama""#));
    }
}
