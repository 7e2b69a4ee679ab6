//! From what was written to what may be relied on: every default and every range.

use super::{
    Admin, Config, ConfigError, Configured, Destination, Dns, Keys, Log, Models, Probe, Queue, RawConfig,
    Retry, Routing, Scale, Secret, Server, Shadow, Store, Timeouts, raw,
};
use crate::engine;
use crate::http::endpoint::Endpoint;
use gateway_core::capacity::Damping;
use gateway_core::health::Rules;
use gateway_core::replica::Engine;
use gateway_core::route::Policy;
use shared::slo::Slo;
use std::collections::BTreeMap;
use std::fmt;
use std::ops::RangeInclusive;
use std::path::Path;
use std::time::Duration;

fn refuse<T>(message: impl Into<String>) -> Result<T, ConfigError> {
    Err(ConfigError(message.into()))
}

fn within<T: PartialOrd + fmt::Display + Copy>(
    key: &str,
    given: Option<T>,
    default: T,
    range: RangeInclusive<T>,
) -> Result<T, ConfigError> {
    let value = given.unwrap_or(default);
    if range.contains(&value) {
        return Ok(value);
    }
    refuse(format!("`{key}` is {value}; it must be between {} and {}", range.start(), range.end()))
}

fn millis(
    key: &str,
    given: Option<u64>,
    default: u64,
    range: RangeInclusive<u64>,
) -> Result<Duration, ConfigError> {
    within(key, given, default, range).map(Duration::from_millis)
}

const HOUR_MS: u64 = 3_600_000;

impl TryFrom<RawConfig> for Config {
    type Error = ConfigError;

    fn try_from(raw: RawConfig) -> Result<Self, ConfigError> {
        let config = Self {
            server: server(raw.server)?,
            admin: admin(raw.admin)?,
            replicas: raw.replicas.into_iter().map(replica).collect::<Result<_, _>>()?,
            timeouts: timeouts(&raw.timeouts)?,
            probe: Probe {
                interval: millis("probe.interval_ms", raw.probe.interval_ms, 1000, 50..=HOUR_MS)?,
                timeout: millis("probe.timeout_ms", raw.probe.timeout_ms, 2000, 10..=HOUR_MS)?,
            },
            routing: routing(raw.routing)?,
            models: models(raw.models)?,
            queue: Queue {
                requests_max: within("queue.requests_max", raw.queue.requests_max, 10_000, 0..=10_000_000)?,
                bytes_max: within("queue.bytes_max", raw.queue.bytes_max, 1 << 30, 0..=1 << 40)?,
                wait_max: millis("queue.wait_max_ms", raw.queue.wait_max_ms, 120_000, 0..=HOUR_MS)?,
                hold: millis("queue.hold_ms", raw.queue.hold_ms, 0, 0..=HOUR_MS)?,
            },
            retry: Retry {
                attempts_max: within("retry.attempts_max", raw.retry.attempts_max, 3, 1..=100)?,
                share: within("retry.share", raw.retry.share, 0.2, 0.0..=1.0)?,
                burst: within("retry.burst", raw.retry.burst, 100, 0..=1_000_000)?,
            },
            health: health(&raw.health)?,
            scale: scale(&raw.scale)?,
            keys: keys(raw.tenants, raw.store.url.is_some())?,
            store: store(raw.store)?,
            dns: raw.dns.into_iter().map(dns).collect::<Result<_, _>>()?,
            log: log(raw.log)?,
            traces: raw.traces.endpoint.as_deref().map(collector).transpose()?,
        };
        let mut urls: Vec<_> = config.replicas.iter().map(|replica| replica.url.as_str()).collect();
        urls.sort_unstable();
        if let Some([url, _]) = urls.array_windows().find(|[a, b]| a == b) {
            return refuse(format!("`replicas` names {url} twice"));
        }
        Ok(config)
    }
}

fn host(key: &str, given: Option<String>, default: &str) -> Result<String, ConfigError> {
    let host = given.unwrap_or_else(|| default.to_owned());
    if host.is_empty() || host.contains([' ', '/']) {
        return refuse(format!("`{key}` is `{host}`; it must be an address or a name"));
    }
    Ok(host)
}

fn server(raw: raw::Server) -> Result<Server, ConfigError> {
    let tls = match (raw.tls_certificate, raw.tls_key) {
        (None, None) => None,
        (Some(certificate), Some(key)) => {
            for (key, path) in [("server.tls_certificate", &certificate), ("server.tls_key", &key)] {
                if !Path::new(path).is_file() {
                    return refuse(format!("`{key}` is {}; there is no such file", path.display()));
                }
            }
            Some((certificate, key))
        }
        _ => return refuse("`server.tls_certificate` and `server.tls_key` belong together; one is missing"),
    };
    let cores = std::thread::available_parallelism().map_or(2, usize::from);
    Ok(Server {
        host: host("server.host", raw.host, "0.0.0.0")?,
        port: raw.port.unwrap_or(8000),
        threads: within("server.threads", raw.threads, cores, 1..=1024)?,
        body_bytes_max: within("server.body_bytes_max", raw.body_bytes_max, 32 << 20, 1024..=4 << 30)?,
        client_idle: millis("server.client_idle_ms", raw.client_idle_ms, 60_000, 100..=HOUR_MS)?,
        drain: millis("server.drain_ms", raw.drain_ms, 300_000, 0..=24 * HOUR_MS)?,
        tls,
        upgrade_socket: raw.upgrade_socket,
    })
}

fn secret(key: &str, given: Option<String>) -> Result<Option<Secret>, ConfigError> {
    match given {
        Some(text) if text.trim().is_empty() => refuse(format!("`{key}` is empty; leave it out or set it")),
        other => Ok(other.map(Secret)),
    }
}

fn admin(raw: raw::Admin) -> Result<Admin, ConfigError> {
    let host = host("admin.host", raw.host, "127.0.0.1")?;
    let key = secret("admin.key", raw.key)?;
    let is_loopback = host == "localhost" || host.parse().is_ok_and(|ip: std::net::IpAddr| ip.is_loopback());
    if !is_loopback && key.is_none() {
        return refuse(format!("`admin.host` is {host}, which others can reach; set `admin.key` too"));
    }
    Ok(Admin { host, port: raw.port.unwrap_or(9000), key })
}

fn replica(raw: raw::Replica) -> Result<Configured, ConfigError> {
    let endpoint =
        Endpoint::parse(&raw.url, None).map_err(|error| ConfigError(format!("`replicas`: {error}")))?;
    let engine = raw.engine.map(|word| engine_named(&word)).transpose()?;
    if raw.running_max == Some(0) {
        return refuse("`replicas.running_max` is 0; it must be at least 1");
    }
    let key = secret("replicas.key", raw.key)?;
    Ok(Configured { url: endpoint.url(), engine, models: raw.models, running_max: raw.running_max, key })
}

fn engine_named(word: &str) -> Result<Engine, ConfigError> {
    engine::parse(word).ok_or_else(|| {
        let known: Vec<_> = engine::ALL.into_iter().map(engine::word).collect();
        ConfigError(format!("`replicas.engine` is `{word}`; it must be one of {}", known.join(", ")))
    })
}

fn scale(raw: &raw::Scale) -> Result<Scale, ConfigError> {
    let replicas_min = within("scale.replicas_min", raw.replicas_min, 1, 0..=10_000)?;
    let damping = Damping {
        replicas_min,
        replicas_max: within(
            "scale.replicas_max",
            raw.replicas_max,
            replicas_min.max(100),
            replicas_min..=10_000,
        )?,
        target: within("scale.target", raw.target, 0.7, 0.01..=1.0)?,
        tolerance: within("scale.tolerance", raw.tolerance, 0.1, 0.0..=1.0)?,
        window: millis("scale.window_ms", raw.window_ms, 300_000, 1000..=24 * HOUR_MS)?,
    };
    let slo = Slo {
        ttft: millis("scale.ttft_ms", raw.ttft_ms, Slo::DEFAULT.ttft.as_millis() as u64, 1..=HOUR_MS)?,
        tpot: millis("scale.tpot_ms", raw.tpot_ms, Slo::DEFAULT.tpot.as_millis() as u64, 1..=HOUR_MS)?,
    };
    Ok(Scale { damping, slo })
}

fn keys(raw: raw::Tenants, has_store: bool) -> Result<Option<Keys>, ConfigError> {
    match (raw.keys_file, raw.keys_in_store.unwrap_or(false)) {
        (file, false) => Ok(file.map(Keys::File)),
        (Some(_), true) => refuse("`tenants.keys_in_store` and `tenants.keys_file` exclude each other"),
        (None, true) if !has_store => refuse("`tenants.keys_in_store` needs a store; set `store.url` too"),
        (None, true) => Ok(Some(Keys::Store)),
    }
}

fn store(raw: raw::Store) -> Result<Option<Store>, ConfigError> {
    let Some(url) = secret("store.url", raw.url)? else { return Ok(None) };
    let prefix = raw.prefix.unwrap_or_else(|| "flotilla".to_owned());
    crate::store::Redis::new(url.reveal(), &prefix)
        .map_err(|why| ConfigError(format!("`store.url`: {why}")))?;
    Ok(Some(Store { url, prefix }))
}

fn collector(url: &str) -> Result<traces::Endpoint, ConfigError> {
    traces::Endpoint::parse(url).map_err(|why| ConfigError(format!("`traces.endpoint`: {why}")))
}

fn dns(raw: raw::Dns) -> Result<Dns, ConfigError> {
    let has_port =
        raw.name.rsplit_once(':').is_some_and(|(_, port)| port.parse::<u16>().is_ok_and(|port| port > 0));
    if !has_port {
        return refuse(format!("`dns.name` is `{}`; it must be a host and a port", raw.name));
    }
    Ok(Dns { name: raw.name, interval: millis("dns.interval_ms", raw.interval_ms, 5000, 100..=HOUR_MS)? })
}

fn timeouts(raw: &raw::Timeouts) -> Result<Timeouts, ConfigError> {
    let keep_alive = within("timeouts.keep_alive_ms", raw.keep_alive_ms, 0, 0..=HOUR_MS)?;
    Ok(Timeouts {
        connect: millis("timeouts.connect_ms", raw.connect_ms, 2000, 1..=HOUR_MS)?,
        first_byte: millis("timeouts.first_byte_ms", raw.first_byte_ms, 300_000, 1..=24 * HOUR_MS)?,
        idle: millis("timeouts.idle_ms", raw.idle_ms, 60_000, 1..=24 * HOUR_MS)?,
        total: millis("timeouts.total_ms", raw.total_ms, HOUR_MS, 1..=24 * HOUR_MS)?,
        keep_alive: (keep_alive > 0).then(|| Duration::from_millis(keep_alive)),
    })
}

fn routing(raw: raw::Routing) -> Result<Routing, ConfigError> {
    let default = raw.policy.map(|word| policy("routing.policy", &word)).transpose()?.unwrap_or_default();
    let policies = raw.policies.into_iter();
    let policies = policies.map(|(model, word)| Ok((model, policy("routing.policies", &word)?)));
    let policies = policies.collect::<Result<_, ConfigError>>()?;
    let session_headers = raw.session_headers.unwrap_or_else(|| vec!["x-session-affinity".to_owned()]);
    for name in &session_headers {
        if http::HeaderName::from_bytes(name.as_bytes()).is_err() {
            return refuse(format!("`routing.session_headers` has `{name}`, which is no header name"));
        }
    }
    let session_headers = session_headers.iter().map(|name| name.to_ascii_lowercase()).collect();
    Ok(Routing { policy: default, policies, session_headers })
}

fn models(raw: raw::Models) -> Result<Models, ConfigError> {
    let mut aliases = BTreeMap::new();
    for (alias, target) in raw.aliases {
        let targets = match target {
            raw::Target::One(model) => vec![(model, 1)],
            raw::Target::Split(parts) => parts.into_iter().map(|part| (part.model, part.weight)).collect(),
        };
        if targets.iter().map(|(_, weight)| u64::from(*weight)).sum::<u64>() == 0 {
            return refuse(format!("`models.aliases` gives `{alias}` no model with a weight above 0"));
        }
        aliases.insert(alias, targets);
    }
    let mut shadows = BTreeMap::new();
    for (model, shadow) in raw.shadows {
        let share = within("models.shadows", Some(shadow.share), 0.0, 0.0..=1.0)?;
        if shadow.model == model {
            return refuse(format!("`models.shadows` names `{model}` as its own shadow"));
        }
        shadows.insert(model, Shadow { model: shadow.model, share });
    }
    let hide_aliases = raw.hide_aliases.unwrap_or(false);
    Ok(Models { default: raw.default, aliases, fallbacks: raw.fallbacks, hide_aliases, shadows })
}

fn policy(key: &str, word: &str) -> Result<Policy, ConfigError> {
    Policy::parse(word).ok_or_else(|| {
        let words = Policy::ALL.map(Policy::word).join(", ");
        ConfigError(format!("`{key}` is `{word}`; it must be one of {words}"))
    })
}

fn health(raw: &raw::Health) -> Result<Rules, ConfigError> {
    let default = Rules::default();
    let ms = |duration: Duration| duration.as_millis() as u64;
    Ok(Rules {
        failures_max: within("health.failures_max", raw.failures_max, default.failures_max, 1..=1000)?,
        probe_failures_max: within(
            "health.probe_failures_max",
            raw.probe_failures_max,
            default.probe_failures_max,
            1..=1000,
        )?,
        cooldown: millis("health.cooldown_ms", raw.cooldown_ms, ms(default.cooldown), 10..=HOUR_MS)?,
        cooldown_max: millis(
            "health.cooldown_max_ms",
            raw.cooldown_max_ms,
            ms(default.cooldown_max),
            10..=HOUR_MS,
        )?,
        ..default
    })
}

fn log(raw: raw::Log) -> Result<Log, ConfigError> {
    let level = raw.level.unwrap_or_else(|| "info".to_owned());
    if level.parse::<tracing_subscriber::EnvFilter>().is_err() || level.is_empty() {
        return refuse(format!(
            "`log.level` is `{level}`; it must be a level or a filter, for example `info`"
        ));
    }
    let access = destination("log.access", raw.access.as_deref(), Destination::Stdout)?;
    let usage = destination("log.usage", raw.usage.as_deref(), Destination::Off)?;
    Ok(Log { level, access, usage })
}

fn destination(key: &str, given: Option<&str>, default: Destination) -> Result<Destination, ConfigError> {
    match given {
        None => Ok(default),
        Some("stdout") => Ok(Destination::Stdout),
        Some("off") => Ok(Destination::Off),
        Some("") => refuse(format!("`{key}` is empty; it must be `stdout`, `off` or a file")),
        Some(path) => Ok(Destination::File(path.into())),
    }
}
