//! What a machine says about itself, as text and numbers that can be kept in a file. No opinions.
//!
//! A probe fills it from this machine; tests fill it from recordings of others. Everything may be absent:
//! absent is unknown, and unknown is not a fault.

use serde::{Deserialize, Serialize};

/// One look at a machine.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Recording {
    /// `nvidia-smi --query-gpu=…` with the fields of [`super::smi::FIELDS`], no header, no units.
    pub gpus: Option<String>,
    /// `nvidia-smi --query-compute-apps=gpu_uuid,pid,process_name,used_memory`, likewise.
    pub apps: Option<String>,
    /// `nvidia-smi topo -m`.
    pub topology: Option<String>,
    /// Kernel messages that name an XID.
    pub xids: Vec<String>,
    /// CUDA toolkit that the replica was built with, as `12.8`; absent: built without CUDA.
    pub build_cuda: Option<String>,
    /// `CUDA_VISIBLE_DEVICES`.
    pub visible_devices: Option<String>,
    /// `/proc/version`.
    pub proc_version: String,
    /// Bytes of `/dev/shm`.
    pub shm_bytes: Option<u64>,
    /// Soft limit of open files.
    pub open_files: Option<u64>,
    /// Soft limit of locked memory in bytes; absent where there is none.
    pub locked_bytes: Option<u64>,
    /// Memory that can be taken without swapping.
    pub memory_bytes: Option<u64>,
    /// How containers get their cards.
    pub containers: Containers,
    /// Ports that something of ours wants, with who holds each.
    pub ports: Vec<Port>,
    /// The model that was asked about.
    pub model: Option<ModelPath>,
    /// What Redis answered, where one was asked about.
    pub redis: Option<Redis>,
    /// What each replica that was asked about says of itself.
    pub replicas: Vec<Replica>,
}

/// How Docker gives cards to containers.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Containers {
    /// `docker info`'s cgroup driver.
    pub cgroup_driver: Option<String>,
    /// `docker info`'s cgroup version.
    pub cgroup_version: Option<String>,
    /// Whether the nvidia runtime is registered.
    pub has_nvidia_runtime: bool,
    /// Whether a CDI description of the cards is in `/etc/cdi` or `/var/run/cdi`.
    pub has_cdi: bool,
}

/// A port, and who listens there.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Port {
    /// Its number.
    pub port: u16,
    /// Who holds it; absent: it is free.
    pub holder: Option<String>,
}

/// A model's path.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ModelPath {
    /// As it was written.
    pub path: String,
    /// Why it can't be used.
    pub fault: Option<String>,
    /// Its weights, on disk or still to be fetched.
    pub weight_bytes: u64,
    /// Whether it is known and not fetched yet.
    pub is_absent: bool,
    /// Free bytes of the disk that the model cache is on.
    pub disk_free_bytes: Option<u64>,
}

/// A Redis.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Redis {
    /// Where.
    pub address: String,
    /// Why it is of no use; absent: it answered.
    pub fault: Option<String>,
}

/// A replica's own word.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Replica {
    /// Where it was asked.
    pub address: String,
    /// Why there is no answer.
    pub fault: Option<String>,
    /// `engine` of its report.
    pub engine: String,
    /// `instance` of its report.
    pub instance: String,
    /// `models` of its report.
    pub models: Vec<String>,
    /// `version` of its report.
    pub version: String,
    /// `revision` of its report.
    pub revision: String,
}
