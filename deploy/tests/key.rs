//! `flotilla key` as its users run it, on a Redis that gateways share.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use shared::keys::KeyFile;

/// A Redis of our own on a socket file. It ends with the value.
struct Server(Child);

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// `None`, and a line that says so, where there is no redis-server.
fn redis(folder: &Path) -> Option<Server> {
    let args = ["--port", "0", "--unixsocket", "redis.sock", "--save", "", "--appendonly", "no"];
    match Command::new("redis-server").args(args).current_dir(folder).stdout(Stdio::null()).spawn() {
        Ok(child) => Some(Server(child)),
        Err(error) => {
            eprintln!("SKIPPED keys in Redis: redis-server can't be started: {error}");
            None
        }
    }
}

fn flotilla(folder: &Path, args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_flotilla"));
    let store = format!("redis+unix://{}/redis.sock", folder.display());
    command.args(["key", "--json", "--store", &store, "--prefix", "test"]).args(args);
    command
}

fn listed(folder: &Path) -> Option<KeyFile> {
    let output = flotilla(folder, &["list"]).output().unwrap();
    output.status.success().then(|| serde_json::from_slice(&output.stdout).unwrap())
}

#[test]
fn keys_in_redis_are_made_rotated_and_revoked_and_no_change_is_lost() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let Some(_server) = redis(folder) else { return };
    let begun = Instant::now();
    while listed(folder).is_none() {
        assert!(begun.elapsed() < Duration::from_mins(1), "redis does not answer");
        std::thread::sleep(Duration::from_millis(20));
    }
    // All at once: each must build on what the others wrote.
    let names: Vec<String> = (0..8).map(|number| format!("t{number}")).collect();
    let makers: Vec<Child> = names
        .iter()
        .map(|name| flotilla(folder, &["create", name]).stdout(Stdio::null()).spawn().unwrap())
        .collect();
    for mut maker in makers {
        assert!(maker.wait().unwrap().success());
    }
    let mut tenants: Vec<_> = listed(folder).unwrap().tenants.into_iter().map(|tenant| tenant.name).collect();
    tenants.sort();
    assert_eq!(tenants, names);
    assert!(flotilla(folder, &["rotate", "t1"]).output().unwrap().status.success());
    assert!(flotilla(folder, &["revoke", "t0"]).output().unwrap().status.success());
    let left = listed(folder).unwrap().tenants;
    assert_eq!(left.len(), 7);
    assert_eq!(left.iter().find(|tenant| tenant.name == "t1").unwrap().keys.len(), 2);
}
