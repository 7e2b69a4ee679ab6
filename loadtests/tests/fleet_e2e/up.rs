//! `flotilla up` with the real gateway and replicas, on the fake model.

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};

use crate::client;
use crate::fleet::{binaries, free_ports, until, words};

/// `flotilla up` on the fake model, and its log so far.
struct Up {
    child: Child,
    port: u16,
}

impl Up {
    fn start() -> Self {
        let port = free_ports(1)[0];
        let mut child = Command::new(binaries().join("flotilla"))
            .args(words(&["up", "--model", "fake", "--port", &port.to_string()]))
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        std::thread::spawn(move || lines.map_while(Result::ok).for_each(|line| println!("{line}")));
        Self { child, port }
    }

    fn signal(&self, signal: &str) {
        let sent = Command::new("kill").args([signal, &self.child.id().to_string()]).status().unwrap();
        assert!(sent.success());
    }
}

impl Drop for Up {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Process ids of the direct children of a process.
fn children(parent: u32) -> Vec<u32> {
    let path = format!("/proc/{parent}/task/{parent}/children");
    let text = std::fs::read_to_string(path).unwrap_or_default();
    text.split_whitespace().map(|process| process.parse().unwrap()).collect()
}

async fn until_served(up: &Up) {
    until("the fleet answers", async || {
        client::chat(up.port, "hello", 4).await.is_ok_and(|answer| answer.dones() == 1)
    })
    .await;
}

/// Gone, or dead and only waiting for whoever adopted it to notice.
fn is_gone(process: u32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{process}/stat")).unwrap_or_default();
    stat.rsplit_once(')').is_none_or(|(_, rest)| rest.trim_start().starts_with(['Z', 'X']))
}

async fn until_gone(processes: &[u32]) {
    for &process in processes {
        until(&format!("process {process} is gone"), async || is_gone(process)).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn up_starts_serves_and_leaves_no_process_behind() {
    let mut up = Up::start();
    until_served(&up).await;
    let processes = children(up.child.id());
    assert_eq!(processes.len(), 3, "a gateway and two replicas");
    up.signal("-INT");
    until("flotilla has ended", async || up.child.try_wait().unwrap().is_some()).await;
    assert!(up.child.wait().unwrap().success());
    until_gone(&processes).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_replica_of_up_that_is_killed_is_started_again() {
    let up = Up::start();
    until_served(&up).await;
    let before = children(up.child.id());
    let replica = before[2];
    assert!(Command::new("kill").args(["-9", &replica.to_string()]).status().unwrap().success());
    until("there is a new process", async || {
        let now = children(up.child.id());
        now.len() == 3 && !now.contains(&replica)
    })
    .await;
    until_served(&up).await;
    let now = children(up.child.id());
    up.signal("-KILL");
    until_gone(&now).await;
}
