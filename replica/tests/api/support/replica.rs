//! The binary as a child process.

use std::io::{BufRead, BufReader, Read};
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::thread::JoinHandle;
use std::time::Instant;

use serde_json::{Value, json};

use super::{Connection, Events, PATIENCE, Reply, eventually};

const BINARY: &str = env!("CARGO_BIN_EXE_flotilla-replica");

/// A running replica; killed when dropped.
pub struct Replica {
    child: Child,
    pub port: u16,
    log: Option<JoinHandle<String>>,
}

/// Runs the binary to its end.
pub fn run(arguments: &[&str], variables: &[(&str, &str)]) -> Output {
    let output =
        Command::new(BINARY).args(arguments).envs(variables.iter().copied()).stdin(Stdio::null()).output();
    output.unwrap()
}

impl Replica {
    /// A ready replica of the model without weights.
    pub fn start(arguments: &[&str]) -> Self {
        let replica = Self::start_loading("fake", arguments);
        eventually("ready", || replica.get("/ready").status == 200);
        replica
    }

    /// The same, with so many milliseconds a step.
    pub fn start_slow(step_ms: u32, arguments: &[&str]) -> Self {
        let replica = Self::start_loading(&format!("fake:step={step_ms}"), arguments);
        eventually("ready", || replica.get("/ready").status == 200);
        replica
    }

    /// One that may not be ready yet.
    pub fn start_loading(model: &str, arguments: &[&str]) -> Self {
        let mut child = Command::new(BINARY)
            .args(["--model", model, "--port", "0", "--threads", "1"])
            .args(arguments)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut stderr = child.stderr.take().unwrap();
        let log = std::thread::spawn(move || {
            let mut text = String::new();
            drop(stderr.read_to_string(&mut text));
            text
        });
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let Some((_, port)) = line.trim().rsplit_once(':') else {
            drop(child.wait());
            panic!("no port in {line:?}: {}", log.join().unwrap());
        };
        Self { port: port.parse().unwrap(), child, log: Some(log) }
    }

    pub fn connect(&self) -> Connection {
        Connection::open(self.port)
    }

    pub fn get(&self, path: &str) -> Reply {
        self.request("GET", path, &[], b"")
    }

    pub fn request(&self, method: &str, path: &str, headers: &[(&str, &str)], body: &[u8]) -> Reply {
        let mut connection = self.connect();
        connection.send(method, path, headers, body);
        connection.receive()
    }

    pub fn post(&self, path: &str, body: &Value) -> Reply {
        self.request("POST", path, &[], body.to_string().as_bytes())
    }

    /// The whole answer to a chat.
    pub fn chat(&self, content: &str, extra: Value) -> Reply {
        self.post("/v1/chat/completions", &chat_body(content, extra))
    }

    /// The whole answer to a completion.
    pub fn complete(&self, prompt: &str, extra: Value) -> Reply {
        self.post("/v1/completions", &with(json!({"prompt": prompt, "temperature": 0}), extra))
    }

    /// A stream, read event by event.
    pub fn stream(&self, path: &str, body: &Value) -> Events {
        let mut connection = self.connect();
        connection.send("POST", path, &[], body.to_string().as_bytes());
        Events::of(connection)
    }

    /// The value of one series, its labels left out of `name` where there is only one.
    pub fn metric(&self, name: &str) -> f64 {
        let page = self.get("/metrics").text();
        let line = page.lines().find(|line| {
            line.split(['{', ' ']).next() == Some(name) || line.starts_with(&format!("{name} "))
        });
        let line = line.unwrap_or_else(|| page.lines().find(|line| line.starts_with(name)).expect(name));
        line.rsplit(' ').next().unwrap().parse().unwrap()
    }

    /// Waits until nothing runs, waits or holds a block.
    pub fn settle(&self) {
        eventually("idle", || {
            let report = self.get("/fleet/report").json();
            report["running"] == 0
                && report["waiting"] == 0
                && report["blocks_free"] == report["blocks_total"]
                && self.metric("flotilla_replica_requests_in_flight") == 0.0
        });
    }

    /// Memory that it holds now.
    pub fn rss_bytes(&self) -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.child.id())).unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
        line.trim().trim_end_matches(" kB").parse::<u64>().unwrap() << 10
    }

    /// Sends a signal by name.
    pub fn signal(&self, name: &str) {
        let status = Command::new("kill").args([format!("-{name}"), self.child.id().to_string()]).status();
        assert!(status.unwrap().success());
    }

    /// Waits for its end; its exit and its log.
    pub fn wait(mut self) -> (ExitStatus, String) {
        let until = Instant::now() + PATIENCE;
        let status = loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                break status;
            }
            assert!(Instant::now() < until, "the replica does not end");
            std::thread::sleep(std::time::Duration::from_millis(5));
        };
        (status, self.log.take().unwrap().join().unwrap())
    }

    /// Ends it; its log.
    pub fn end(self) -> String {
        self.signal("INT");
        self.wait().1
    }
}

impl Drop for Replica {
    fn drop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

/// A chat of one message.
pub fn chat_body(content: &str, extra: Value) -> Value {
    with(json!({"messages": [{"role": "user", "content": content}], "temperature": 0}), extra)
}

/// Fields added or replaced.
pub fn with(mut body: Value, extra: Value) -> Value {
    let Value::Object(extra) = extra else { return body };
    body.as_object_mut().unwrap().extend(extra);
    body
}
