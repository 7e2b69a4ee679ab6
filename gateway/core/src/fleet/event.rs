//! What goes into the fleet and what comes out of it.

use shared::id::ReplicaId;
use shared::time::Instant;

use crate::health::Fault;
use crate::load::Sample;
use crate::replica::{Identity, State};

/// Who names an endpoint. A replica stays as long as one of them does.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Source {
    /// The configuration file and flags.
    Config,
    /// The admin API or a replica that registered itself.
    Lease,
    /// Redis.
    Redis,
    /// DNS.
    Dns,
    /// Kubernetes.
    Kubernetes,
}

/// What a probe learned about readiness.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Readiness {
    /// Loading or warming up.
    Loading,
    /// Takes work.
    Ready,
    /// Takes nothing new.
    Draining,
    /// Has work and makes no progress.
    Stalled,
}

/// What a probe brought home.
#[derive(Clone, PartialEq, Debug)]
pub struct Report {
    /// Who answered.
    pub identity: Identity,
    /// Whether it takes work.
    pub readiness: Readiness,
    /// Its load.
    pub sample: Sample,
    /// When the probe was sent: what we sent later may not be in it.
    pub at: Instant,
}

/// What happened in the world.
#[derive(Clone, PartialEq, Debug)]
pub enum Event {
    /// A source names an endpoint (again, as often as it likes).
    Joined {
        /// Where it listens.
        endpoint: String,
        /// Who says so.
        source: Source,
        /// Models it must answer to, or it is somebody else; empty for any.
        models: Vec<String>,
        /// Requests it runs at once, for engines that don't say.
        running_max: Option<u32>,
    },
    /// A source no longer names it: drained, then forgotten.
    Left {
        /// Where it listens.
        endpoint: String,
        /// Who says so.
        source: Source,
    },
    /// An operator wants nothing new sent there.
    Drain(ReplicaId),
    /// The operator takes it back.
    Undrain(ReplicaId),
    /// An operator wants it gone, whoever names it.
    Remove(ReplicaId),
    /// A probe was answered.
    Reported(ReplicaId, Report),
    /// A probe was not answered.
    ProbeFailed(ReplicaId),
}

/// What an event or an ending request changed, for logs, the prefix index and connections.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Change {
    /// New here.
    Added(ReplicaId),
    /// Other state, and the word for why.
    State(ReplicaId, State, &'static str),
    /// Another process answers at the endpoint: forget what the old one cached and held.
    Instance(ReplicaId),
    /// Its circuit opened.
    Opened(ReplicaId, Fault),
    /// Its circuit closed.
    Closed(ReplicaId),
    /// Forgotten; the number is never used again.
    Gone(ReplicaId),
}
