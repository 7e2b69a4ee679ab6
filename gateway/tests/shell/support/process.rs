//! The gateway as its users start it.

use super::{Answer, Stub, get, until};
use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex};

/// A running gateway, killed at the end.
pub struct Gateway {
    pub public: SocketAddr,
    pub admin: SocketAddr,
    child: Child,
    /// Lines of the access log.
    pub log: Arc<Mutex<Vec<String>>>,
    errors: std::fs::File,
}

impl Drop for Gateway {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Gateway {
    /// In front of these replicas, with settings such as `("PROBE__INTERVAL_MS", "100")` on top.
    pub fn start(replicas: &[&Stub], settings: &[(&str, &str)]) -> Self {
        let urls: Vec<String> = replicas.iter().map(|stub| stub.url()).collect();
        Self::start_with(&urls, settings, &[])
    }

    /// The same with URLs and flags.
    pub fn start_with(urls: &[String], settings: &[(&str, &str)], flags: &[&str]) -> Self {
        let mut command = Command::new(env!("CARGO_BIN_EXE_flotilla-gateway"));
        command.args(["--host", "127.0.0.1", "--port", "0", "--threads", "2"]).args(flags);
        if !flags.contains(&"--admin-port") {
            command.args(["--admin-port", "0"]);
        }
        command.env("FLOTILLA__PROBE__INTERVAL_MS", "100").env("FLOTILLA__LOG__LEVEL", "error");
        for (key, value) in settings {
            command.env(format!("FLOTILLA__{key}"), value);
        }
        for url in urls {
            command.args(["--replica", url]);
        }
        let errors = tempfile::tempfile().unwrap();
        command.stderr(errors.try_clone().unwrap());
        let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines().map(Result::unwrap);
        let mut address = |name: &str| {
            let line = lines.next().expect("the gateway says where it listens");
            let rest = line.strip_prefix("listening on ").unwrap();
            let (address, what) = rest.split_once(' ').unwrap();
            assert_eq!(what, format!("({name})"));
            address.parse().unwrap()
        };
        let (public, admin) = (address("public"), address("admin"));
        let log = Arc::new(Mutex::new(Vec::new()));
        let shared = log.clone();
        std::thread::spawn(move || lines.for_each(|line| shared.lock().unwrap().push(line)));
        Self { public, admin, child, log, errors }
    }

    /// Started, and every replica takes work.
    pub async fn ready(replicas: &[&Stub], settings: &[(&str, &str)]) -> Self {
        let gateway = Self::start(replicas, settings);
        gateway.await_serving(replicas.len()).await;
        gateway
    }

    /// Waits until so many replicas take work.
    pub async fn await_serving(&self, count: usize) {
        until("replicas take work", async || {
            let fleet = self.fleet().await;
            let serving =
                |entry: &&serde_json::Value| matches!(entry["state"].as_str(), Some("ready" | "warming"));
            fleet.iter().filter(serving).count() == count
        })
        .await;
    }

    /// What `/fleet` says.
    pub async fn fleet(&self) -> Vec<serde_json::Value> {
        let answer = get(self.admin, "/fleet").await;
        answer.json()["replicas"].as_array().unwrap().clone()
    }

    /// One sample of `/metrics`; zero when it is not there.
    pub async fn metric(&self, sample: &str) -> f64 {
        let text = get(self.admin, "/metrics").await.text();
        let line =
            text.lines().find(|line| line.strip_prefix(sample).is_some_and(|rest| rest.starts_with(' ')));
        line.map_or(0.0, |line| line.rsplit(' ').next().unwrap().parse().unwrap())
    }

    /// Requests that count as in flight, in all and at replicas.
    pub async fn in_flight(&self) -> f64 {
        let at_replicas: u64 =
            self.fleet().await.iter().map(|entry| entry["in_flight"].as_u64().unwrap()).sum();
        self.metric("flotilla_gateway_requests_in_flight").await + at_replicas as f64
    }

    pub async fn await_idle(&self) {
        until("nothing in flight", async || self.in_flight().await == 0.0).await;
    }

    /// What it wrote to standard error so far.
    pub fn errors(&mut self) -> String {
        use std::io::{Read, Seek};
        let mut text = String::new();
        self.errors.rewind().unwrap();
        self.errors.read_to_string(&mut text).unwrap();
        text
    }

    /// Lines of the access log with this outcome.
    pub fn logged(&self, outcome: &str) -> usize {
        let pattern = format!("\"outcome\":\"{outcome}\"");
        self.log.lock().unwrap().iter().filter(|line| line.contains(&pattern)).count()
    }

    pub fn signal(&self, signal: &str) {
        let status = Command::new("kill").args([signal, &self.child.id().to_string()]).status().unwrap();
        assert!(status.success());
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Whether it has ended, and how.
    pub fn ended(&mut self) -> Option<ExitStatus> {
        self.child.try_wait().unwrap()
    }

    /// A plain request to the public port.
    pub async fn post(&self, path: &str, body: &str) -> Answer {
        super::post(self.public, path, body).await
    }
}
