//! Starts the binaries beside this test's own executable, and ends them with it.

use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU16, Ordering};
use std::sync::{Mutex, OnceLock};
use std::time::{Duration, Instant};

use crate::client;

/// Where this test executable's ports begin: below those that `flotilla up` looks for, and not where another
/// executable that runs beside it begins.
const PORTS_FROM: u16 = 7_400;
/// Ports that one test executable may use.
const PORTS_EACH: u16 = 80;

/// Longest wait for a condition.
pub const DEADLINE: Duration = Duration::from_mins(2);

/// Where the binaries are, built once from the sources as they are now.
pub fn binaries() -> &'static Path {
    static BUILT: OnceLock<PathBuf> = OnceLock::new();
    BUILT.get_or_init(|| {
        let own = std::env::current_exe().unwrap();
        let folder = own.ancestors().nth(2).unwrap().to_owned();
        let mut cargo = Command::new(env!("CARGO"));
        cargo
            .args(["build", "--quiet", "--workspace", "--bins", "--target-dir"])
            .arg(folder.parent().unwrap());
        if folder.ends_with("release") {
            cargo.arg("--release");
        }
        let status = cargo.current_dir(env!("CARGO_MANIFEST_DIR")).status().unwrap();
        assert!(status.success(), "cargo build: {status}");
        folder
    })
}

/// One process, killed when it goes out of scope.
pub struct Process {
    name: String,
    child: Mutex<Child>,
}

impl Process {
    /// Starts a binary of ours. Its log goes where the test's does, and shows when the test fails.
    pub fn start(name: &str, flags: &[String]) -> Self {
        let child = Command::new(binaries().join(name))
            .args(flags)
            .env("NO_COLOR", "1")
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        Self { name: name.to_owned(), child: Mutex::new(child) }
    }

    /// `kill -9`.
    pub fn kill(&mut self) {
        let child = self.child.get_mut().unwrap();
        child.kill().unwrap();
        child.wait().unwrap();
    }

    /// Fails the test when the process has ended by itself: nothing that is waited for will come then.
    fn assert_runs(&self) {
        let ended = self.child.lock().unwrap().try_wait().unwrap();
        assert!(ended.is_none(), "{} has ended: {ended:?}", self.name);
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        if let Ok(child) = self.child.get_mut() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// A gateway in front of fake replicas.
pub struct Fleet {
    /// The gateway's public port.
    pub port: u16,
    /// The gateway's admin port.
    pub admin_port: u16,
    /// Each replica's port.
    pub replica_ports: Vec<u16>,
    replicas: Vec<Process>,
    replica_flags: Vec<String>,
    gateway: Process,
}

impl Fleet {
    /// Starts it and waits until every replica is in rotation.
    pub async fn start(replicas: usize, replica_flags: &[&str]) -> Self {
        Self::start_with(replicas, replica_flags, &[]).await
    }

    /// The same with flags for the gateway.
    pub async fn start_with(replicas: usize, replica_flags: &[&str], gateway_flags: &[&str]) -> Self {
        let ports = free_ports(replicas + 2);
        let (port, admin_port, replica_ports) = (ports[0], ports[1], ports[2..].to_vec());
        let mut flags = words(&["--port", &port.to_string(), "--admin-port", &admin_port.to_string()]);
        flags.extend(words(gateway_flags));
        for replica in &replica_ports {
            flags.extend(words(&["--replica", &format!("http://127.0.0.1:{replica}")]));
        }
        let gateway = Process::start("flotilla-gateway", &flags);
        let mut fleet = Self {
            port,
            admin_port,
            replica_ports,
            replicas: Vec::new(),
            replica_flags: words(replica_flags),
            gateway,
        };
        for index in 0..replicas {
            let process = fleet.start_replica(index);
            fleet.replicas.push(process);
        }
        for index in 0..replicas {
            fleet.until_in_rotation(index).await;
        }
        fleet
    }

    /// `kill -9` of one replica.
    pub fn kill(&mut self, index: usize) {
        self.replicas[index].kill();
    }

    /// Starts a killed one again, on its port.
    pub fn revive(&mut self, index: usize) {
        self.replicas[index] = self.start_replica(index);
    }

    fn start_replica(&self, index: usize) -> Process {
        let port = self.replica_ports[index].to_string();
        let mut flags = words(&["--model", "fake", "--host", "127.0.0.1", "--port", &port, "--threads", "1"]);
        flags.extend(self.replica_flags.iter().cloned());
        Process::start("flotilla-replica", &flags)
    }

    /// Polls until the gateway has sent that replica a request that it answered.
    pub async fn until_in_rotation(&self, index: usize) {
        until(&format!("replica {index} answers through the gateway"), async || {
            self.gateway.assert_runs();
            self.replicas[index].assert_runs();
            let before = self.answered(index).await;
            let _ = client::chat(self.port, "hello", 1).await;
            self.answered(index).await > before
        })
        .await;
    }

    /// Requests that the replica itself counts as answered.
    async fn answered(&self, index: usize) -> u64 {
        client::metric(self.replica_ports[index], "vllm:request_success_total").await.unwrap_or(0.0) as u64
    }
}

/// Polls a condition until it holds.
pub async fn until(what: &str, mut is_so: impl AsyncFnMut() -> bool) -> Duration {
    let begun = Instant::now();
    while !is_so().await {
        assert!(begun.elapsed() < DEADLINE, "not within {DEADLINE:?}: {what}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    begun.elapsed()
}

/// Ports that are free now, never the same twice, below the range that Linux gives to outgoing connections: one of
/// those could take a port between this look and its process's start.
pub fn free_ports(count: usize) -> Vec<u16> {
    static TAKEN: AtomicU16 = AtomicU16::new(0);
    let from = PORTS_FROM + (std::process::id() % 30) as u16 * PORTS_EACH;
    let candidates = std::iter::repeat_with(|| from + TAKEN.fetch_add(1, Ordering::Relaxed) % PORTS_EACH);
    candidates.filter(|port| TcpListener::bind(("127.0.0.1", *port)).is_ok()).take(count).collect()
}

/// As owned strings.
pub fn words(words: &[&str]) -> Vec<String> {
    words.iter().map(|&word| word.to_owned()).collect()
}
