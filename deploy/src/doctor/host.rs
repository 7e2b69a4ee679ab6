//! Verdicts on everything but cards: kernel, limits, containers, ports, model, Redis, replicas. Pure.

use super::Wish;
use super::finding::Finding;
use super::recording::{Containers, ModelPath, Recording, Replica};

const GIB: u64 = 1 << 30;
/// What NCCL wants in `/dev/shm` for one group.
const SHM_A_GROUP: u64 = GIB;
/// Files for a few thousand streams.
const OPEN_FILES_MIN: u64 = 8192;

/// All verdicts on the host.
pub fn judge(recording: &Recording, wish: Wish) -> Vec<Finding> {
    let mut findings = Vec::new();
    findings.extend(wsl(recording, wish));
    findings.extend(shm(recording, wish));
    findings.extend(limits(recording));
    findings.extend(containers(&recording.containers));
    findings.extend(recording.ports.iter().map(|port| match &port.holder {
        None => Finding::sound("port", format!("{} is free", port.port)),
        Some(holder) => {
            let what = format!("{} is taken by {holder}", port.port);
            Finding::warning("port", what, "stop it, or choose another port")
        }
    }));
    if let Some(model) = &recording.model {
        findings.extend(self::model(model, recording.memory_bytes));
    }
    if let Some(redis) = &recording.redis {
        findings.push(match &redis.fault {
            None => Finding::sound("redis", format!("{} answers", redis.address)),
            Some(fault) => {
                let remedy = "start it, or leave it out: one gateway needs none";
                Finding::broken("redis", format!("{}: {fault}", redis.address), remedy)
            }
        });
    }
    findings.extend(replicas(&recording.replicas));
    findings
}

/// U064: NCCL under Windows' kernel.
fn wsl(recording: &Recording, wish: Wish) -> Option<Finding> {
    if !recording.proc_version.to_lowercase().contains("microsoft") {
        return None;
    }
    if wish.ranks <= 1 {
        return Some(Finding::sound("wsl2", "this is WSL2; replicas of one card run normally"));
    }
    Some(Finding::warning(
        "wsl2",
        format!("this is WSL2, where NCCL hangs with groups such as TP={}", wish.ranks),
        "set NCCL_P2P_DISABLE=1 (and NCCL_SHM_DISABLE=1 if /dev/shm can't grow): 60 to 80 % speed, for trying out",
    ))
}

/// U063: shared memory for groups.
fn shm(recording: &Recording, wish: Wish) -> Option<Finding> {
    let have = recording.shm_bytes?;
    if wish.ranks <= 1 || have >= SHM_A_GROUP {
        return None;
    }
    Some(Finding::warning(
        "shm",
        format!(
            "/dev/shm has {} MiB; a group of {} ranks wants {} MiB",
            have >> 20,
            wish.ranks,
            SHM_A_GROUP >> 20
        ),
        "mount it larger (docker: --shm-size=1g or --ipc=host)",
    ))
}

fn limits(recording: &Recording) -> Vec<Finding> {
    let mut findings = Vec::new();
    if let Some(files) = recording.open_files.filter(|&files| files < OPEN_FILES_MIN) {
        let what = format!("{files} files may be open; each stream takes two");
        findings.push(Finding::warning("open_files", what, "ulimit -n 65536, or LimitNOFILE= in the unit"));
    }
    if let (Some(locked), true) = (recording.locked_bytes, recording.gpus.is_some()) {
        let what = format!("only {} KiB of memory may be locked, which pinned buffers need", locked >> 10);
        findings.push(Finding::warning(
            "locked_memory",
            what,
            "ulimit -l unlimited, or LimitMEMLOCK=infinity",
        ));
    }
    findings
}

/// Containers that lose their cards when systemd reloads: its driver rewrites device rules it doesn't know of.
fn containers(how: &Containers) -> Option<Finding> {
    let is_at_risk = how.has_nvidia_runtime
        && !how.has_cdi
        && how.cgroup_driver.as_deref() == Some("systemd")
        && how.cgroup_version.as_deref() == Some("2");
    is_at_risk.then(|| {
        Finding::warning(
            "daemon_reload",
            "containers get cards by the legacy runtime under systemd's cgroups: `systemctl daemon-reload` cuts them off \
             (Failed to initialize NVML: Unknown Error)",
            "describe the cards for CDI: nvidia-ctk cdi generate --output=/etc/cdi/nvidia.yaml, and use CDI devices",
        )
    })
}

fn model(model: &ModelPath, memory_bytes: Option<u64>) -> Vec<Finding> {
    if let Some(fault) = &model.fault {
        return vec![Finding::broken(
            "model",
            fault.clone(),
            "see `flotilla model list`, or give another path",
        )];
    }
    let what = format!("{}: {} MiB of weights", model.path, model.weight_bytes >> 20);
    let mut findings = vec![if model.is_absent {
        let remedy = format!("flotilla model fetch {}", model.path);
        Finding::warning("model", format!("{what}, not fetched yet"), remedy)
    } else {
        Finding::sound("model", what)
    }];
    if let Some(memory) = memory_bytes.filter(|&memory| memory < model.weight_bytes) {
        let what = format!(
            "{} MiB of memory are available for {} MiB of weights",
            memory >> 20,
            model.weight_bytes >> 20
        );
        findings.push(Finding::broken("memory", what, "end other programs, or choose a smaller model"));
    }
    let free = model.disk_free_bytes.unwrap_or(u64::MAX);
    let what = format!("{} MiB are free on the models' disk", free >> 20);
    if model.is_absent && free < model.weight_bytes {
        findings.push(Finding::broken("disk", what, "make room, or set XDG_CACHE_HOME to a larger disk"));
    } else if free < model.weight_bytes / 10 {
        findings.push(Finding::warning("disk", what, "make room before fetching another model"));
    }
    findings
}

/// Replicas that are not who they say.
fn replicas(replicas: &[Replica]) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (index, replica) in replicas.iter().enumerate() {
        let same = |other: &&Replica| !replica.instance.is_empty() && other.instance == replica.instance;
        findings.push(match (&replica.fault, replicas[..index].iter().find(same)) {
            (Some(fault), _) => Finding::broken(
                "replica",
                format!("{}: {fault}", replica.address),
                "start it, or take it out of the fleet",
            ),
            (None, Some(twin)) => Finding::broken(
                "replica",
                format!("{} and {} are one and the same process", twin.address, replica.address),
                "list each replica once: the gateway would count its room twice",
            ),
            (None, None) => {
                let models = replica.models.join(", ");
                Finding::sound(
                    "replica",
                    format!("{}: {} {} serves {models}", replica.address, replica.engine, replica.version),
                )
            }
        });
    }
    findings.extend(mismatches(replicas));
    findings
}

/// Replicas of one name with different weights continue each other's answers wrongly.
fn mismatches(replicas: &[Replica]) -> Vec<Finding> {
    let pairs = replicas
        .iter()
        .enumerate()
        .flat_map(|(index, one)| replicas[..index].iter().map(move |other| (other, one)));
    let differ = pairs.filter(|(a, b)| {
        let names_meet = a.models.iter().any(|name| b.models.contains(name));
        names_meet && !a.revision.is_empty() && !b.revision.is_empty() && a.revision != b.revision
    });
    differ
        .map(|(a, b)| {
            Finding::warning(
                "revision",
                format!(
                    "{} and {} serve {} from different weights",
                    a.address,
                    b.address,
                    a.models.join(", ")
                ),
                "serve them under different names, or from the same file",
            )
        })
        .collect()
}
