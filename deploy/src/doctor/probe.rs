//! Fills a recording from this machine. Every question has a deadline; what can't be asked stays unknown.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Resource, getrlimit};
use shared::wire::ReplicaReport;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use super::Args;
use super::recording::{Containers, ModelPath, Port, Recording, Redis, Replica};
use super::smi::FIELDS;
use crate::http::Peer;
use crate::machine;
use crate::model::source::Source;
use crate::model::store::Store;
use crate::up::ports;

/// How long any program or peer may take.
const DEADLINE: Duration = Duration::from_secs(5);

/// Asks everything.
pub async fn record(args: &Args) -> Recording {
    let query = format!("--query-gpu={FIELDS}");
    let format = "--format=csv,noheader,nounits";
    Recording {
        gpus: output("nvidia-smi", &[&query, format]),
        apps: output("nvidia-smi", &["--query-compute-apps=gpu_uuid,pid,process_name,used_memory", format]),
        topology: output("nvidia-smi", &["topo", "-m"]),
        xids: xids(),
        build_cuda: build_cuda(),
        visible_devices: std::env::var("CUDA_VISIBLE_DEVICES").ok(),
        proc_version: fs::read_to_string("/proc/version").unwrap_or_default(),
        shm_bytes: free_and_size("/dev/shm").map(|(_, size)| size),
        open_files: getrlimit(Resource::Nofile).current,
        locked_bytes: getrlimit(Resource::Memlock).current,
        memory_bytes: Some(machine::Machine::look().memory_bytes).filter(|&bytes| bytes > 0),
        containers: containers(),
        ports: args.port.iter().map(|&port| Port { port, holder: ports::holder(port) }).collect(),
        model: args.model.as_deref().map(model),
        redis: match &args.redis {
            Some(address) => Some(Redis { address: address.clone(), fault: redis(address).await.err() }),
            None => None,
        },
        replicas: replicas(&args.replica).await,
    }
}

/// What a program prints, unless it is missing, fails or takes too long.
fn output(program: &str, arguments: &[&str]) -> Option<String> {
    let file = tempfile::NamedTempFile::new().ok()?;
    let mut child = Command::new(program)
        .args(arguments)
        .stdin(Stdio::null())
        .stdout(file.reopen().ok()?)
        .stderr(Stdio::null())
        .spawn()
        .ok()?;
    let begun = Instant::now();
    loop {
        match child.try_wait() {
            Ok(Some(status)) if status.success() => return fs::read_to_string(file.path()).ok(),
            Ok(None) if begun.elapsed() < DEADLINE => std::thread::sleep(Duration::from_millis(20)),
            _ => {
                let _ = child.kill();
                let _ = child.wait();
                return None;
            }
        }
    }
}

fn xids() -> Vec<String> {
    let log = output("dmesg", &[]).unwrap_or_default();
    log.lines().filter(|line| line.contains("NVRM: Xid")).map(ToOwned::to_owned).collect()
}

/// The CUDA version that our replica was built with.
fn build_cuda() -> Option<String> {
    let program = machine::program("flotilla-replica").ok()?;
    cuda_of(&output(program.to_str()?, &["--version"])?)
}

/// The number in `flotilla-replica 0.1.0 (cuda 12.8)`; a build without CUDA names none.
fn cuda_of(version: &str) -> Option<String> {
    let (_, rest) = version.split_once("(cuda ")?;
    let (number, _) = rest.split_once(')')?;
    Some(number.to_owned())
}

/// Free bytes and size of the file system at a path.
fn free_and_size(path: &str) -> Option<(u64, u64)> {
    let stat = rustix::fs::statvfs(path).ok()?;
    Some((stat.f_bavail * stat.f_frsize, stat.f_blocks * stat.f_frsize))
}

fn containers() -> Containers {
    let info =
        output("docker", &["info", "--format", "{{.CgroupDriver}} {{.CgroupVersion}} {{json .Runtimes}}"]);
    let Some(info) = info else { return Containers::default() };
    let mut words = info.split_whitespace().map(ToOwned::to_owned);
    let has_cdi = ["/etc/cdi", "/var/run/cdi"].iter().any(|folder| {
        let mut files = fs::read_dir(folder).into_iter().flatten().flatten();
        files.any(|file| file.file_name().to_string_lossy().contains("nvidia"))
    });
    Containers {
        cgroup_driver: words.next(),
        cgroup_version: words.next(),
        has_nvidia_runtime: info.contains("\"nvidia\""),
        has_cdi,
    }
}

fn model(word: &str) -> ModelPath {
    let store = match Store::of_user() {
        Ok(store) => store,
        Err(fault) => return ModelPath { path: word.to_owned(), fault: Some(fault), ..ModelPath::default() },
    };
    let near = store.folder().ancestors().find(|folder| folder.exists()).unwrap_or(Path::new("/"));
    let disk_free_bytes = near.to_str().and_then(free_and_size).map(|(free, _)| free);
    let source = Source::read(Some(word), &store);
    let weight_bytes = source.as_ref().map_or(0, Source::weight_bytes);
    let is_absent = matches!(source, Ok(Source::Absent(_)));
    ModelPath { path: word.to_owned(), fault: source.err(), weight_bytes, is_absent, disk_free_bytes }
}

/// Says PING.
async fn redis(address: &str) -> Result<(), String> {
    let authority = address.strip_prefix("redis://").unwrap_or(address).trim_end_matches('/');
    let exchange = async {
        let mut stream =
            tokio::net::TcpStream::connect(authority).await.map_err(|error| error.to_string())?;
        stream.write_all(b"PING\r\n").await.map_err(|error| error.to_string())?;
        let mut answer = [0; 64];
        let read = stream.read(&mut answer).await.map_err(|error| error.to_string())?;
        let answer = String::from_utf8_lossy(&answer[..read]);
        // One that wants a password is there all the same.
        if answer.starts_with("+PONG") || answer.starts_with("-NOAUTH") {
            Ok(())
        } else {
            Err(format!("it says {}", answer.trim()))
        }
    };
    tokio::time::timeout(DEADLINE, exchange).await.unwrap_or_else(|_| Err("no answer".to_owned()))
}

async fn replicas(addresses: &[String]) -> Vec<Replica> {
    let mut replicas = Vec::new();
    for address in addresses {
        let authority = address.strip_prefix("http://").unwrap_or(address).trim_end_matches('/');
        let peer = Peer { authority, key: None, deadline: DEADLINE };
        let report = peer.get("/fleet/report").await.and_then(|answer| {
            serde_json::from_slice::<ReplicaReport>(&answer.body)
                .map_err(|_| "whoever listens there is no replica of ours".to_owned())
        });
        replicas.push(match report {
            Err(fault) => Replica { address: address.clone(), fault: Some(fault), ..Replica::default() },
            Ok(report) => Replica {
                address: address.clone(),
                fault: None,
                engine: report.engine,
                instance: report.instance,
                models: report.models,
                version: report.version,
                revision: report.revision,
            },
        });
    }
    replicas
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_toolkit_is_read_from_the_replicas_version() {
        let check = |version: &str, expected: Option<&str>| {
            assert_eq!(cuda_of(version).as_deref(), expected, "{version}");
        };
        check("flotilla-replica 0.1.0 (cuda 12.8)\n", Some("12.8"));
        check("flotilla-replica 0.1.0\n", None);
        check("flotilla-replica 0.1.0 (cuda)\n", None);
    }

    /// Against the program itself, where it lies beside the tests: a CUDA build that doesn't tell its number
    /// would silence every verdict on drivers.
    #[test]
    fn the_replica_beside_us_tells_its_toolkit() {
        let folder = std::env::current_exe().unwrap().ancestors().nth(2).unwrap().to_owned();
        let Ok(said) = Command::new(folder.join("flotilla-replica")).arg("--version").output() else {
            return println!("SKIPPED doctor_build: flotilla-replica is not built");
        };
        let said = String::from_utf8_lossy(&said.stdout).into_owned();
        assert!(said.starts_with("flotilla-replica "), "{said}");
        assert_eq!(said.contains("cuda"), cuda_of(&said).is_some(), "{said}");
    }
}
