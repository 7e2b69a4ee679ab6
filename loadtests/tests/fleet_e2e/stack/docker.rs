//! A stack on a real Docker engine: written by `flotilla compose`, started and changed as an operator does it.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::OnceLock;

use serde_json::Value;
use tempfile::TempDir;

use crate::fleet::{binaries, free_ports, until};

/// The base that Dockerfiles build on here.
const BASE: &str = "flotilla-base:bookworm";
/// The images that `build.sh` makes carry our version.
pub const REPLICA: &str = concat!("flotilla-replica:", env!("CARGO_PKG_VERSION"));

fn succeeds(program: &str, arguments: &[&str]) -> bool {
    let output = Command::new(program).args(arguments).stdin(Stdio::null()).output();
    output.is_ok_and(|output| output.status.success())
}

/// Why there can be no stack here; else the Compose program.
pub fn compose_program() -> Result<String, &'static str> {
    if !succeeds("docker", &["info"]) {
        return Err("no Docker daemon answers");
    }
    let compose = std::env::var("FLOTILLA_COMPOSE").unwrap_or_else(|_| "docker-compose".to_owned());
    let version = Command::new(&compose).arg("version").output();
    let is_new =
        version.is_ok_and(|version| !String::from_utf8_lossy(&version.stdout).contains("version 1."));
    if !is_new {
        return Err("no Compose of version 2 or later; name one in FLOTILLA_COMPOSE");
    }
    if !succeeds("docker", &["image", "inspect", BASE]) && !succeeds("mmdebstrap", &["--version"]) {
        return Err("no base image, and no mmdebstrap to make one");
    }
    Ok(compose)
}

/// Runs a program that must succeed; what it said.
pub fn run(program: impl AsRef<Path>, arguments: &[&str]) -> String {
    let program = program.as_ref();
    let output = Command::new(program).args(arguments).stdin(Stdio::null()).output().unwrap();
    let what = format!("{} {}", program.display(), arguments.join(" "));
    assert!(output.status.success(), "{what}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stdout).trim().to_owned()
}

/// Builds both images, once.
fn images() {
    static BUILT: OnceLock<()> = OnceLock::new();
    BUILT.get_or_init(|| {
        let docker = Path::new(env!("CARGO_MANIFEST_DIR")).join("../deploy/docker");
        if !succeeds("docker", &["image", "inspect", BASE]) {
            run(docker.join("base.sh"), &[BASE]);
        }
        run(docker.join("build.sh"), &["--base", BASE, "--binaries", binaries().to_str().unwrap()]);
    });
}

/// A stack that goes down when it goes out of scope.
pub struct Stack {
    folder: TempDir,
    compose: String,
    /// The gateway's port on the host.
    pub port: u16,
    admin_port: u16,
    /// Containers that are not the stack's, to go with it.
    guests: Vec<String>,
}

impl Stack {
    /// Writes a stack of so many replicas; `change` has a word on its topology.
    pub fn write(compose: String, replicas: usize, change: impl FnOnce(&mut Value)) -> Self {
        images();
        let ports = free_ports(2);
        let folder = tempfile::tempdir().unwrap();
        let stack = Self { folder, compose, port: ports[0], admin_port: ports[1], guests: Vec::new() };
        let ports = [stack.port.to_string(), stack.admin_port.to_string()];
        let mut topology = vec!["--model", "fake", "--format", "topology", "--port", &ports[0]];
        let replicas = replicas.to_string();
        topology.extend(["--admin-port", &ports[1], "--replicas", &replicas]);
        stack.render(&topology);
        stack.change(change);
        // An engine gives out addresses of a network's own choice only; ours is known.
        let network = format!(
            "networks: {{default: {{ipam: {{config: [{{subnet: 10.231.{}.0/24}}]}}}}}}\n",
            stack.port % 250
        );
        fs::write(stack.folder.path().join("network.yaml"), network).unwrap();
        stack
    }

    /// Changes the topology file and writes the stack again.
    pub fn change(&self, change: impl FnOnce(&mut Value)) {
        let path = self.folder.path().join("topology.yaml");
        let mut topology: Value = serde_json::from_str(&fs::read_to_string(&path).unwrap()).unwrap();
        change(&mut topology);
        fs::write(&path, topology.to_string()).unwrap();
        self.render(&["--topology", path.to_str().unwrap(), "--force"]);
    }

    fn render(&self, flags: &[&str]) {
        let out = self.folder.path().to_str().unwrap();
        run(binaries().join("flotilla"), &[&["compose", "--out", out], flags].concat());
    }

    fn project(&self) -> String {
        format!("flotilla-test-{}", self.port)
    }

    /// Compose, on this stack.
    pub fn compose(&self, arguments: &[&str]) -> String {
        let file = |name: &str| self.folder.path().join(name).display().to_string();
        let (stack, network, project) = (file("compose.yaml"), file("network.yaml"), self.project());
        let all = ["--file", &stack, "--file", &network, "--project-name", &project];
        run(&self.compose, &[&all, arguments].concat())
    }

    /// The stack's network.
    pub fn network(&self) -> String {
        format!("{}_default", self.project())
    }

    fn fleet(&self, arguments: &[&str]) -> Output {
        let url = format!("http://127.0.0.1:{}", self.admin_port);
        let key: PathBuf = self.folder.path().join("secrets/admin.key");
        let mut command = Command::new(binaries().join("flotilla"));
        command.args(["fleet", "--gateway", &url, "--admin-key-file"]).arg(key).args(arguments);
        command.stdin(Stdio::null()).output().unwrap()
    }

    /// What the gateway believes of each replica.
    fn replicas(&self) -> Vec<Value> {
        let output = self.fleet(&["list", "--json"]);
        let list: Value = serde_json::from_slice(&output.stdout)
            .unwrap_or_else(|_| panic!("{}", String::from_utf8_lossy(&output.stderr)));
        list["replicas"].as_array().unwrap().clone()
    }

    /// Empties a service's replica.
    pub fn drain(&self, service: &str) {
        let id = format!("{}:8001", self.address(service));
        let output = self.fleet(&["drain", &id, "--wait", "60"]);
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    }

    /// Takes every drain back. A drain belongs to the address: whoever has it by now takes no work until then.
    pub fn undrain_all(&self) {
        for replica in self.replicas().iter().filter(|replica| replica["state"] == "draining") {
            let output = self.fleet(&["undrain", replica["id"].as_str().unwrap()]);
            assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        }
    }

    /// Waits until so many replicas of the stack's model take work.
    pub async fn until_ready(&self, replicas: usize) {
        until(&format!("{replicas} replicas take work"), async || {
            let takes_work = |replica: &&Value| {
                (replica["state"] == "ready" || replica["state"] == "warming")
                    && replica["models"].as_array().is_some_and(|models| models.contains(&"fake".into()))
            };
            self.replicas().iter().filter(takes_work).count() == replicas
        })
        .await;
    }

    /// The address of a service's container in the stack's network; empty where it has none.
    pub fn address(&self, service: &str) -> String {
        let format = "{{range .NetworkSettings.Networks}}{{.IPAddress}}{{end}}";
        run("docker", &["inspect", "--format", format, &self.container(service)])
    }

    /// A service's container.
    pub fn container(&self, service: &str) -> String {
        self.compose(&["ps", "--all", "--quiet", service])
    }

    /// What the engine says of a service's health.
    pub fn health(&self, service: &str) -> String {
        run("docker", &["inspect", "--format", "{{.State.Health.Status}}", &self.container(service)])
    }

    /// Starts a replica of somebody else's at this address of the network, reached on a port of this host.
    pub fn invite(&mut self, address: &str, model_name: &str) -> u16 {
        let port = free_ports(1)[0];
        let name = format!("{}-guest", self.project());
        let (network, published) = (self.network(), format!("127.0.0.1:{port}:8001"));
        self.guests.push(name.clone());
        let container = ["run", "-d", "--name", &name, "--network", &network, "--ip", address, "--publish"];
        let replica = ["--model", "fake", "--host", "0.0.0.0", "--served-model-name", model_name];
        run("docker", &[&container, &[published.as_str(), REPLICA][..], &replica].concat());
        port
    }

    /// Starts a second gateway beside the stack's own; its port on this host.
    pub fn second_gateway(&mut self) -> u16 {
        let port = free_ports(1)[0];
        let name = format!("{}-second", self.project());
        let published = format!("127.0.0.1:{port}:8000");
        self.guests.push(name.clone());
        self.compose(&["run", "-d", "--no-deps", "--name", &name, "--publish", &published, "gateway"]);
        port
    }

    /// Ends the guests in order, giving each the time that it needs.
    pub fn dismiss_guests(&mut self) {
        for name in self.guests.drain(..) {
            run("docker", &["stop", "-t", "60", &name]);
            run("docker", &["rm", &name]);
        }
    }
}

impl Drop for Stack {
    fn drop(&mut self) {
        for name in &self.guests {
            succeeds("docker", &["rm", "--force", name]);
        }
        let file = self.folder.path().join("compose.yaml");
        let (file, project) = (file.to_str().unwrap_or_default(), self.project());
        let down = ["down", "--volumes", "--timeout", "5"];
        succeeds(&self.compose, &[&["--file", file, "--project-name", &project][..], &down].concat());
    }
}
