//! `flotilla up` as a process, with scripted children in place of gateway and replicas: what it starts, starts
//! again and leaves behind. The real children are in loadtests' end-to-end tests.

#![expect(clippy::unwrap_used, reason = "a fault of the harness is a failed test")]

use std::fs;
use std::io::{BufRead, BufReader};
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU16, Ordering};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

/// Listens on `--port`, answers every request with an empty 200, and tells who it is.
const STUB: &str = r#"#!/usr/bin/env python3
import http.server, os, signal, sys
flags = dict(zip(sys.argv[1::2], sys.argv[2::2]))
class Answer(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.send_header("Content-Length", "0")
        self.end_headers()
    def log_message(self, *_):
        pass
if flags.get("--seed") == "78":
    print("bad settings", file=sys.stderr)
    sys.exit(78)
signal.signal(signal.SIGTERM, signal.SIG_IGN if flags.get("--seed") == "deaf" else lambda *_: sys.exit(0))
print("pid", os.getpid(), "port", flags["--port"], "cards", repr(os.environ.get("CUDA_VISIBLE_DEVICES")), flush=True)
http.server.ThreadingHTTPServer(("127.0.0.1", int(flags["--port"])), Answer).serve_forever()
"#;

/// Longest wait for anything; nothing asserts a time below it.
const DEADLINE: Duration = Duration::from_mins(1);

struct Fleet {
    up: Child,
    lines: Receiver<String>,
    seen: Vec<String>,
    _folder: TempDir,
}

impl Fleet {
    fn start(flags: &[&str]) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let own = folder.path().join("flotilla");
        fs::copy(env!("CARGO_BIN_EXE_flotilla"), &own).unwrap();
        for name in ["flotilla-gateway", "flotilla-replica"] {
            let path = folder.path().join(name);
            fs::write(&path, STUB).unwrap();
            fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
        }
        let mut up = Command::new(&own)
            .args(["up", "--model", "fake"])
            .args(flags)
            .env("HOME", folder.path())
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let (sender, lines) = channel();
        for stream in [
            Box::new(up.stdout.take().unwrap()) as Box<dyn std::io::Read + Send>,
            Box::new(up.stderr.take().unwrap()),
        ] {
            let sender = sender.clone();
            std::thread::spawn(move || {
                for line in BufReader::new(stream).lines().map_while(Result::ok) {
                    let _ = sender.send(line);
                }
            });
        }
        Self { up, lines, seen: Vec::new(), _folder: folder }
    }

    /// Reads on until a line contains `part`.
    fn until(&mut self, part: &str) -> String {
        let begun = Instant::now();
        loop {
            let left = DEADLINE.saturating_sub(begun.elapsed());
            match self.lines.recv_timeout(left) {
                Ok(line) => {
                    self.seen.push(line.clone());
                    if line.contains(part) {
                        return line;
                    }
                }
                Err(error) => panic!("no line with {part:?} came ({error}):\n{}", self.seen.join("\n")),
            }
        }
    }

    /// Process id and port of everyone who introduced himself, latest last.
    fn introduced(&self, who: &str) -> Vec<(i32, u16)> {
        let lines = self.seen.iter().filter(|line| line.starts_with(who) && line.contains("| pid "));
        lines
            .map(|line| {
                let words: Vec<_> = line.split_whitespace().collect();
                let after = |word| words[words.iter().position(|&other| other == word).unwrap() + 1];
                (after("pid").parse().unwrap(), after("port").parse().unwrap())
            })
            .collect()
    }

    fn signal(&self, signal: Signal) {
        kill_process(Pid::from_raw(self.up.id() as i32).unwrap(), signal).unwrap();
    }

    fn everyone(&self) -> Vec<i32> {
        ["gateway", "replica"]
            .iter()
            .flat_map(|who| self.introduced(who))
            .map(|(process, _)| process)
            .collect()
    }
}

impl Drop for Fleet {
    fn drop(&mut self) {
        let _ = self.up.kill();
        let _ = self.up.wait();
    }
}

/// A port that is free now, never the same twice, below the range that Linux gives to outgoing connections: one of
/// those could take it between this look and the child's start.
fn free_port() -> String {
    static TAKEN: AtomicU16 = AtomicU16::new(0);
    let from = 5_000 + (std::process::id() % 60) as u16 * 40;
    let mut candidates = std::iter::repeat_with(|| from + TAKEN.fetch_add(1, Ordering::Relaxed) % 40);
    candidates.find(|port| TcpListener::bind(("127.0.0.1", *port)).is_ok()).unwrap().to_string()
}

fn poll(what: &str, mut is_so: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !is_so() {
        assert!(begun.elapsed() < DEADLINE, "not within {DEADLINE:?}: {what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Gone, or dead and only waiting for whoever adopted it to notice.
fn is_gone(process: i32) -> bool {
    let stat = fs::read_to_string(format!("/proc/{process}/stat")).unwrap_or_default();
    stat.rsplit_once(')').is_none_or(|(_, rest)| rest.trim_start().starts_with(['Z', 'X']))
}

#[test]
fn ctrl_c_ends_everything_it_started() {
    let mut fleet = Fleet::start(&["--port", &free_port(), "--replicas", "3"]);
    fleet.until("Try:");
    let everyone = fleet.everyone();
    assert_eq!(everyone.len(), 4, "{:?}", fleet.seen);
    assert!(fleet.seen.iter().any(|line| line.contains("cards ''")), "replicas on CPU see no card");
    fleet.signal(Signal::INT);
    let status = fleet.up.wait().unwrap();
    assert!(status.success(), "{status}");
    assert!(everyone.iter().all(|&process| is_gone(process)));
}

#[test]
fn a_killed_supervisor_takes_its_children_along() {
    let mut fleet = Fleet::start(&["--port", &free_port(), "--", "--seed", "deaf"]);
    fleet.until("Try:");
    let everyone = fleet.everyone();
    fleet.signal(Signal::KILL);
    poll("children end with their parent", || everyone.iter().all(|&process| is_gone(process)));
}

#[test]
fn a_replica_that_dies_comes_back_on_its_port() {
    let mut fleet = Fleet::start(&["--port", &free_port()]);
    fleet.until("Try:");
    let (process, port) = fleet.introduced("replica-1")[0];
    kill_process(Pid::from_raw(process).unwrap(), Signal::KILL).unwrap();
    fleet.until("replica-1 is ready again");
    let (again, same_port) = *fleet.introduced("replica-1").last().unwrap();
    assert!(again != process && same_port == port);
    assert!(TcpStream::connect(("127.0.0.1", port)).is_ok());
}

#[test]
fn a_second_ctrl_c_does_not_wait() {
    let mut fleet = Fleet::start(&["--port", &free_port(), "--", "--seed", "deaf"]);
    fleet.until("Try:");
    let everyone = fleet.everyone();
    fleet.signal(Signal::INT);
    fleet.until("ending");
    fleet.signal(Signal::INT);
    fleet.up.wait().unwrap();
    poll("the deaf are killed", || everyone.iter().all(|&process| is_gone(process)));
}

#[test]
fn settings_that_cannot_work_end_the_fleet_at_once() {
    let mut fleet = Fleet::start(&["--port", &free_port(), "--replicas", "1", "--", "--seed", "78"]);
    fleet.until("replica-0 | bad settings");
    fleet.until("cannot run: its settings can't work");
    assert!(!fleet.up.wait().unwrap().success());
}

#[test]
fn a_taken_port_and_a_wrong_model_are_said_before_anything_starts() {
    let taken = TcpListener::bind(("127.0.0.1", 0)).unwrap();
    let port = taken.local_addr().unwrap().port().to_string();
    let mut fleet = Fleet::start(&["--port", &port]);
    let line = fleet.until("is taken by");
    assert!(
        line.contains(&format!("process {}", std::process::id())) && line.contains("--port PORT"),
        "{line}"
    );
    assert!(!fleet.up.wait().unwrap().success());

    let missing = PathBuf::from("/no/such/model.gguf");
    let answer =
        Command::new(env!("CARGO_BIN_EXE_flotilla")).args(["up", "--model"]).arg(missing).output().unwrap();
    assert!(!answer.status.success());
    assert!(String::from_utf8_lossy(&answer.stderr).contains("there is no such file or folder"));
}
