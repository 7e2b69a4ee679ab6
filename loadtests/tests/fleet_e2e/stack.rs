//! The stack that `flotilla compose` writes, on a real Docker engine: up, chat, drain and replace under load,
//! down. No image is pulled: the base is made from Debian's packages.
//!
//! Left out by name, since their images can't be had without a registry: redis, prometheus.

use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tempfile::TempDir;
use tokio::task::JoinSet;

use crate::client;
use crate::fleet::{binaries, free_ports, until};

/// The base that Dockerfiles build on here.
const BASE: &str = "flotilla-base:bookworm";
/// Clients that ask all the time.
const CLIENTS: usize = 6;

/// A stack that goes down when it goes out of scope.
struct Stack {
    folder: TempDir,
    compose: String,
    port: u16,
    admin_port: u16,
}

fn succeeds(program: &str, arguments: &[&str]) -> bool {
    let output = Command::new(program).args(arguments).stdin(Stdio::null()).output();
    output.is_ok_and(|output| output.status.success())
}

/// Why there can be no stack here; else the Compose program.
fn compose_program() -> Result<String, &'static str> {
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

fn run(program: impl AsRef<Path>, arguments: &[&str]) -> Output {
    let program = program.as_ref();
    let output = Command::new(program).args(arguments).stdin(Stdio::null()).output().unwrap();
    let what = format!("{} {}", program.display(), arguments.join(" "));
    assert!(output.status.success(), "{what}: {}", String::from_utf8_lossy(&output.stderr));
    output
}

impl Stack {
    fn start(compose: String) -> Self {
        let docker = Path::new(env!("CARGO_MANIFEST_DIR")).join("../deploy/docker");
        if !succeeds("docker", &["image", "inspect", BASE]) {
            run(docker.join("base.sh"), &[BASE]);
        }
        run(docker.join("build.sh"), &["--base", BASE, "--binaries", binaries().to_str().unwrap()]);
        let ports = free_ports(2);
        let folder = tempfile::tempdir().unwrap();
        let stack = Self { folder, compose, port: ports[0], admin_port: ports[1] };
        let (port, admin_port) = (stack.port.to_string(), stack.admin_port.to_string());
        let mut write = vec!["compose", "--model", "fake", "--replicas", "3", "--port", &port];
        write.extend(["--admin-port", &admin_port, "--out", stack.folder.path().to_str().unwrap()]);
        run(binaries().join("flotilla"), &write);
        stack.compose(&["up", "-d", "--wait", "--wait-timeout", "120"]);
        stack
    }

    fn compose(&self, arguments: &[&str]) -> String {
        let file = self.folder.path().join("compose.yaml");
        let name = format!("flotilla-test-{}", self.port);
        let mut all = vec!["--file", file.to_str().unwrap(), "--project-name", &name];
        all.extend(arguments);
        String::from_utf8_lossy(&run(&self.compose, &all).stdout).into_owned()
    }

    fn fleet(&self, arguments: &[&str]) -> Output {
        let url = format!("http://127.0.0.1:{}", self.admin_port);
        let key = self.folder.path().join("secrets/admin.key");
        let mut command = Command::new(binaries().join("flotilla"));
        command.args(["fleet", "--gateway", &url, "--admin-key-file"]).arg(key).args(arguments);
        command.stdin(Stdio::null()).output().unwrap()
    }

    fn drain(&self, service: &str) {
        let output = self.fleet(&["drain", &self.replica(service), "--wait", "60"]);
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    }

    /// A drain holds until it is taken back, whoever has the address by then.
    async fn rejoin(&self, service: &str) {
        until(&format!("{service} is known and takes work"), async || {
            self.fleet(&["undrain", &self.replica(service)]).status.success()
        })
        .await;
        self.until_ready(3).await;
    }

    /// `host:port` of a service's container, by which the gateway knows it.
    fn replica(&self, service: &str) -> String {
        let container = self.container(service);
        let format = "{{range .NetworkSettings.Networks}}{{.IPAddress}}{{end}}";
        let output = run("docker", &["inspect", "--format", format, &container]);
        format!("{}:8001", String::from_utf8_lossy(&output.stdout).trim())
    }

    fn container(&self, service: &str) -> String {
        self.compose(&["ps", "--all", "--quiet", service]).trim().to_owned()
    }

    async fn until_ready(&self, replicas: usize) {
        until(&format!("{replicas} replicas take work"), async || {
            let list: serde_json::Value =
                serde_json::from_slice(&self.fleet(&["list", "--json"]).stdout).unwrap();
            let takes_work =
                |replica: &&serde_json::Value| replica["state"] == "ready" || replica["state"] == "warming";
            list["replicas"].as_array().unwrap().iter().filter(takes_work).count() == replicas
        })
        .await;
    }
}

impl Drop for Stack {
    fn drop(&mut self) {
        let file = self.folder.path().join("compose.yaml");
        let name = format!("flotilla-test-{}", self.port);
        let _ = Command::new(&self.compose)
            .args([
                "--file",
                file.to_str().unwrap(),
                "--project-name",
                &name,
                "down",
                "--volumes",
                "--timeout",
                "5",
            ])
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .status();
    }
}

/// Clients that ask until told to stop; each answer must be whole.
struct Load {
    is_over: Arc<AtomicBool>,
    clients: JoinSet<usize>,
}

impl Load {
    fn start(port: u16) -> Self {
        let is_over = Arc::new(AtomicBool::new(false));
        let mut clients = JoinSet::new();
        for index in 0..CLIENTS {
            let is_over = Arc::clone(&is_over);
            clients.spawn(async move {
                let mut answers = 0;
                while !is_over.load(Ordering::Relaxed) {
                    let answer =
                        client::chat(port, &format!("client {index} asks {answers}"), 32).await.unwrap();
                    assert!(answer.status == 200 && answer.dones() == 1, "{answer:?}");
                    answers += 1;
                }
                answers
            });
        }
        Self { is_over, clients }
    }

    async fn end(mut self) {
        self.is_over.store(true, Ordering::Relaxed);
        while let Some(answers) = self.clients.join_next().await {
            assert!(answers.unwrap() > 0, "a client got no answer at all");
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stack_is_changed_under_load_and_no_request_fails() {
    let compose = match compose_program() {
        Ok(compose) => compose,
        Err(reason) => return println!("SKIPPED stack: {reason}"),
    };
    let stack = Stack::start(compose);
    stack.until_ready(3).await;
    let load = Load::start(stack.port);

    // Taken out, and put in again wherever it is now.
    stack.drain("replica-2");
    stack.compose(&["stop", "replica-2"]);
    stack.until_ready(2).await;
    stack.compose(&["start", "replica-2"]);
    stack.rejoin("replica-2").await;

    // Every replica is replaced, one after the other.
    for service in ["replica-1", "replica-2", "replica-3"] {
        stack.drain(service);
        stack.compose(&["up", "-d", "--no-deps", "--force-recreate", "--wait", service]);
        stack.rejoin(service).await;
    }
    load.end().await;
}
