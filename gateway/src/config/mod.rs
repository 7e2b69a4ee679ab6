//! What the program may rely on, made once from what was written.
//!
//! `raw` is what was written, in any of four places; `check` alone knows defaults and ranges. Nothing reads the
//! environment later.

mod blame;
mod check;
mod raw;
mod schema;

use gateway_core::capacity::Damping;
use gateway_core::health::Rules;
use gateway_core::replica::Engine;
use gateway_core::route::Policy;
use shared::slo::Slo;
use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

pub use raw::{Flags, RawConfig, load};

/// All settings.
#[derive(Clone, PartialEq, Debug)]
pub struct Config {
    /// The public port.
    pub server: Server,
    /// The operator's port.
    pub admin: Admin,
    /// Replicas that configuration and flags name.
    pub replicas: Vec<Configured>,
    /// How long things may take.
    pub timeouts: Timeouts,
    /// How replicas are asked for their state.
    pub probe: Probe,
    /// How a replica is chosen.
    pub routing: Routing,
    /// What names stand for which models.
    pub models: Models,
    /// How many requests may wait.
    pub queue: Queue,
    /// How often a request may be tried.
    pub retry: Retry,
    /// When a replica is left alone.
    pub health: Rules,
    /// When more or fewer replicas are wanted.
    pub scale: Scale,
    /// Where the API keys are; absent: everybody may use the gateway.
    pub keys: Option<Keys>,
    /// What several gateways share; absent: this one is alone.
    pub store: Option<Store>,
    /// Names whose addresses are replicas.
    pub dns: Vec<Dns>,
    /// What is written where.
    pub log: Log,
    /// The collector that gets a trace of each request; absent: nothing is gathered.
    pub traces: Option<traces::Endpoint>,
}

/// When more or fewer replicas are wanted.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Scale {
    /// How the wish is damped.
    pub damping: Damping,
    /// What a good answer is.
    pub slo: Slo,
}

/// Where the API keys are.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Keys {
    /// In a file.
    File(PathBuf),
    /// In the store, the same for all gateways that share it.
    Store,
}

/// The Redis that several gateways share.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Store {
    /// Where it is; it may hold a password.
    pub url: Secret,
    /// What all its keys begin with.
    pub prefix: String,
}

/// A name whose addresses are replicas.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Dns {
    /// Host and port.
    pub name: String,
    /// Time between two looks.
    pub interval: Duration,
}

/// The public port.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Server {
    /// Interface to listen on.
    pub host: String,
    /// Port to listen on; 0 lets the system choose.
    pub port: u16,
    /// Threads that serve requests.
    pub threads: usize,
    /// Largest request body.
    pub body_bytes_max: usize,
    /// How long a client may pause while it sends or reads.
    pub client_idle: Duration,
    /// How long to wait for running requests at the end.
    pub drain: Duration,
    /// Certificate chain and key, for TLS.
    pub tls: Option<(PathBuf, PathBuf)>,
    /// Unix socket through which a new process takes over; both name the same one.
    pub upgrade_socket: Option<PathBuf>,
}

/// The operator's port.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Admin {
    /// Interface to listen on.
    pub host: String,
    /// Port to listen on; 0 lets the system choose.
    pub port: u16,
    /// Bearer key; needed unless the interface is loopback.
    pub key: Option<Secret>,
}

/// A replica by configuration.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Configured {
    /// Where it listens.
    pub url: String,
    /// What it runs; absent: found out.
    pub engine: Option<Engine>,
    /// Models it must answer to; empty: any.
    pub models: Vec<String>,
    /// Requests it runs at once, for engines that don't say.
    pub running_max: Option<u32>,
    /// Key sent to it in place of the client's.
    pub key: Option<Secret>,
}

/// Time limits of a request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Timeouts {
    /// Until a connection stands.
    pub connect: Duration,
    /// From the request's last byte to the answer's first.
    pub first_byte: Duration,
    /// Between two reads of an answer.
    pub idle: Duration,
    /// The whole request.
    pub total: Duration,
    /// Interval of comment lines while a stream is silent; absent: none, and errors keep their status.
    pub keep_alive: Option<Duration>,
}

/// How replicas are asked for their state.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Probe {
    /// Time between two rounds.
    pub interval: Duration,
    /// Time for one round.
    pub timeout: Duration,
}

/// How a replica is chosen.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Routing {
    /// The policy of models that have none of their own.
    pub policy: Policy,
    /// The others', by model.
    pub policies: BTreeMap<String, Policy>,
    /// Headers that name a session, in order.
    pub session_headers: Vec<String>,
}

/// What names stand for which models.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Models {
    /// What is served when a request names no model, or one nobody knows.
    pub default: Option<String>,
    /// Other names: each stands for one model, or for several with weights.
    pub aliases: BTreeMap<String, Vec<(String, u32)>>,
    /// Models to use while nobody takes work for the first.
    pub fallbacks: BTreeMap<String, Vec<String>>,
    /// Whether `/v1/models` leaves the aliases out.
    pub hide_aliases: bool,
    /// Models whose requests go to another one too, by name.
    pub shadows: BTreeMap<String, Shadow>,
}

/// Another model that gets copies of requests, and whose answers nobody sees.
#[derive(Clone, PartialEq, Debug)]
pub struct Shadow {
    /// It.
    pub model: String,
    /// How many of the requests are copied, 0 to 1.
    pub share: f64,
}

/// How many requests may wait in the gateway while every replica is full.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Queue {
    /// Requests.
    pub requests_max: usize,
    /// Bytes of their bodies.
    pub bytes_max: u64,
    /// Longest wait of one.
    pub wait_max: Duration,
    /// How long a request waits for the first replica, when there is none; zero: not at all.
    pub hold: Duration,
}

/// How often a request may be tried.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Retry {
    /// Attempts of one request in all.
    pub attempts_max: u32,
    /// Second tries as a share of requests.
    pub share: f64,
    /// Second tries that may be saved up.
    pub burst: u32,
}

/// What is written where.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Log {
    /// `tracing`'s filter.
    pub level: String,
    /// Where a line per request goes.
    pub access: Destination,
    /// Where a line per answer goes that somebody may be billed for.
    pub usage: Destination,
}

/// Where lines go.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Destination {
    /// Nowhere.
    Off,
    /// Standard output.
    Stdout,
    /// A file, appended to.
    File(PathBuf),
}

/// A text that never shows itself.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(String);

impl Secret {
    /// The text, for the one place that sends or compares it.
    pub fn reveal(&self) -> &str {
        &self.0
    }

    /// Whether `given` is the same, in a time that does not depend on where they differ.
    pub fn is(&self, given: &[u8]) -> bool {
        let differences = self.0.bytes().zip(given).fold(0, |sum, (a, b)| sum | (a ^ b));
        differences == 0 && self.0.len() == given.len()
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(…)")
    }
}

/// A setting that can't be, in words that lead to it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ConfigError(pub String);

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for ConfigError {}

#[cfg(test)]
mod tests;
