//! What was written: defaults, then a file, then the environment, then flags. Every field is optional, and none
//! may be unknown.

use super::{Config, ConfigError, blame};
use figment::Figment;
use figment::providers::{Env, Format, Toml, Yaml};
use serde::Deserialize;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// Sections as written.
#[derive(Clone, PartialEq, Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct RawConfig {
    /// See [`super::Server`].
    pub server: Server,
    /// See [`super::Admin`].
    pub admin: Admin,
    /// See [`super::Configured`].
    pub replicas: Vec<Replica>,
    /// See [`super::Timeouts`].
    pub timeouts: Timeouts,
    /// See [`super::Probe`].
    pub probe: Probe,
    /// See [`super::Routing`].
    pub routing: Routing,
    /// See [`super::Models`].
    pub models: Models,
    /// See [`super::Queue`].
    pub queue: Queue,
    /// See [`super::Retry`].
    pub retry: Retry,
    /// See [`gateway_core::health::Rules`].
    pub health: Health,
    /// See [`super::Scale`].
    pub scale: Scale,
    /// See [`super::Config::keys`].
    pub tenants: Tenants,
    /// See [`super::Store`].
    pub store: Store,
    /// See [`super::Dns`].
    pub dns: Vec<Dns>,
    /// See [`super::Log`].
    pub log: Log,
    /// See [`super::Config::traces`].
    pub traces: Traces,
}

#[derive(Clone, PartialEq, Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Server {
    pub host: Option<String>,
    pub port: Option<u16>,
    pub threads: Option<usize>,
    pub body_bytes_max: Option<usize>,
    pub client_idle_ms: Option<u64>,
    pub drain_ms: Option<u64>,
    pub tls_certificate: Option<PathBuf>,
    pub tls_key: Option<PathBuf>,
    pub upgrade_socket: Option<PathBuf>,
}

#[derive(Clone, PartialEq, Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Admin {
    pub host: Option<String>,
    pub port: Option<u16>,
    pub key: Option<String>,
}

#[derive(Clone, PartialEq, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Replica {
    pub url: String,
    pub engine: Option<String>,
    #[serde(default)]
    pub models: Vec<String>,
    pub running_max: Option<u32>,
    pub key: Option<String>,
}

#[derive(Clone, PartialEq, Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
#[expect(clippy::struct_field_names, reason = "the names are keys, and keys say their unit")]
pub struct Timeouts {
    pub connect_ms: Option<u64>,
    pub first_byte_ms: Option<u64>,
    pub idle_ms: Option<u64>,
    pub total_ms: Option<u64>,
    pub keep_alive_ms: Option<u64>,
}

#[derive(Clone, PartialEq, Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Probe {
    pub interval_ms: Option<u64>,
    pub timeout_ms: Option<u64>,
}

#[derive(Clone, PartialEq, Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Routing {
    pub policy: Option<String>,
    pub policies: BTreeMap<String, String>,
    pub session_headers: Option<Vec<String>>,
}

#[derive(Clone, PartialEq, Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Models {
    pub default: Option<String>,
    pub aliases: BTreeMap<String, Target>,
    pub fallbacks: BTreeMap<String, Vec<String>>,
    pub hide_aliases: Option<bool>,
    pub shadows: BTreeMap<String, Shadow>,
}

#[derive(Clone, PartialEq, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Shadow {
    pub model: String,
    pub share: f64,
}

/// A model, or several with weights.
#[derive(Clone, PartialEq, Debug, Deserialize)]
#[serde(untagged)]
pub enum Target {
    One(String),
    Split(Vec<Part>),
}

#[derive(Clone, PartialEq, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Part {
    pub model: String,
    pub weight: u32,
}

#[derive(Clone, PartialEq, Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Queue {
    pub requests_max: Option<usize>,
    pub bytes_max: Option<u64>,
    pub wait_max_ms: Option<u64>,
    pub hold_ms: Option<u64>,
}

#[derive(Clone, PartialEq, Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Retry {
    pub attempts_max: Option<u32>,
    pub share: Option<f64>,
    pub burst: Option<u32>,
}

#[derive(Clone, PartialEq, Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Health {
    pub failures_max: Option<u32>,
    pub probe_failures_max: Option<u32>,
    pub cooldown_ms: Option<u64>,
    pub cooldown_max_ms: Option<u64>,
}

#[derive(Clone, PartialEq, Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Log {
    pub level: Option<String>,
    pub access: Option<String>,
    pub usage: Option<String>,
}

#[derive(Clone, PartialEq, Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Traces {
    pub endpoint: Option<String>,
}

#[derive(Clone, PartialEq, Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Tenants {
    pub keys_file: Option<PathBuf>,
    pub keys_in_store: Option<bool>,
}

#[derive(Clone, PartialEq, Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Store {
    pub url: Option<String>,
    pub prefix: Option<String>,
}

#[derive(Clone, PartialEq, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Dns {
    pub name: String,
    pub interval_ms: Option<u64>,
}

#[derive(Clone, PartialEq, Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Scale {
    pub replicas_min: Option<u32>,
    pub replicas_max: Option<u32>,
    pub target: Option<f64>,
    pub tolerance: Option<f64>,
    pub window_ms: Option<u64>,
    pub ttft_ms: Option<u64>,
    pub tpot_ms: Option<u64>,
}

/// What the command line says; it wins over everything else.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Flags {
    /// The file to read.
    pub config: Option<PathBuf>,
    /// `server.host`.
    pub host: Option<String>,
    /// `server.port`.
    pub port: Option<u16>,
    /// `admin.host`.
    pub admin_host: Option<String>,
    /// `admin.port`.
    pub admin_port: Option<u16>,
    /// `server.threads`.
    pub threads: Option<usize>,
    /// `traces.endpoint`.
    pub traces_endpoint: Option<String>,
    /// Replicas beside those of the file.
    pub replicas: Vec<String>,
}

/// Variables of an orchestrator, such as `FLOTILLA_GATEWAY_PORT`, have one underscore and are none of ours.
const ENV_PREFIX: &str = "FLOTILLA__";

/// Reads all four places and checks the result.
///
/// # Errors
///
/// Names the key, where it was written, and what is allowed there.
pub fn load(flags: &Flags) -> Result<Config, ConfigError> {
    let text = flags.config.as_deref().map(read).transpose()?;
    let mut figment = Figment::new();
    if let (Some(path), Some(text)) = (&flags.config, &text) {
        figment =
            if is_yaml(path) { figment.merge(Yaml::string(text)) } else { figment.merge(Toml::string(text)) };
    }
    figment = figment.merge(Env::prefixed(ENV_PREFIX).split("__"));
    figment = merge_flags(figment, flags);
    let place = flags.config.as_deref().zip(text.as_deref());
    let mut raw: RawConfig = figment.extract().map_err(|error| blame::explain(&error, place))?;
    raw.replicas.extend(flags.replicas.iter().map(|url| Replica { url: url.clone(), ..Replica::default() }));
    Config::try_from(raw).map_err(|error| blame::locate(error, place))
}

fn read(path: &Path) -> Result<String, ConfigError> {
    std::fs::read_to_string(path).map_err(|error| ConfigError(format!("{}: {error}", path.display())))
}

fn is_yaml(path: &Path) -> bool {
    path.extension().is_some_and(|extension| extension == "yaml" || extension == "yml")
}

fn merge_flags(mut figment: Figment, flags: &Flags) -> Figment {
    if let Some(host) = &flags.host {
        figment = figment.merge(("server.host", host));
    }
    if let Some(port) = flags.port {
        figment = figment.merge(("server.port", port));
    }
    if let Some(host) = &flags.admin_host {
        figment = figment.merge(("admin.host", host));
    }
    if let Some(port) = flags.admin_port {
        figment = figment.merge(("admin.port", port));
    }
    if let Some(threads) = flags.threads {
        figment = figment.merge(("server.threads", threads));
    }
    if let Some(endpoint) = &flags.traces_endpoint {
        figment = figment.merge(("traces.endpoint", endpoint));
    }
    figment
}
