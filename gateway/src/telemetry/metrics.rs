//! The metrics of `shared::metric::gateway`, one field each. Values of the fleet are set when somebody scrapes.

use super::Outcome;
use crate::http::error::What;
use crate::http::shadow;
use gateway_core::route::Reason;
use prometheus::{
    Histogram, HistogramOpts, HistogramVec, IntCounter, IntCounterVec, IntGauge, Opts, Registry,
};
use shared::metric::{Metric, gateway as names};
use std::collections::BTreeSet;
use std::sync::{Mutex, PoisonError};

/// The label of requests that name no model, or one nobody knows: clients can't make labels.
pub const NO_MODEL: &str = "-";
/// Tenants that get series of their own; those beyond share one, so that a long key file makes no endless page.
const TENANTS_MAX: usize = 1000;
/// The label of tenants beyond.
const OTHER_TENANTS: &str = "other";

/// What can go wrong with an attempt, as labels and logs call it.
pub const FAILURES: [&str; 8] = [
    "connect",
    "stranger",
    "reset",
    "refused",
    "server_error",
    "first_byte_timeout",
    "broken_stream",
    "idle_timeout",
];

/// Kinds of tokens; the cached ones are a part of the prompt's.
const TOKEN_KINDS: [&str; 3] = ["prompt", "cached", "completion"];

/// All counters and histograms.
#[derive(Debug)]
pub struct Metrics {
    pub(super) registry: Registry,
    /// Tenants that have series.
    tenants: Mutex<BTreeSet<String>>,
    /// See [`names::REQUESTS`].
    pub requests: IntCounterVec,
    /// See [`names::IN_FLIGHT`].
    pub in_flight: IntGauge,
    /// See [`names::QUEUED`].
    pub queued: IntGauge,
    /// See [`names::QUEUED_BYTES`].
    pub queued_bytes: IntGauge,
    /// 1 while the store can be reached.
    pub store_up: IntGauge,
    /// See [`names::REFUSED`].
    pub refused: IntCounterVec,
    /// See [`names::TTFT`].
    pub ttft: HistogramVec,
    /// See [`names::TPOT`].
    pub tpot: HistogramVec,
    /// See [`names::ITL`].
    pub itl: HistogramVec,
    /// See [`names::DURATION`].
    pub duration: HistogramVec,
    /// See [`names::QUEUE_TIME`].
    pub queue_time: HistogramVec,
    /// See [`names::ROUTE_TIME`].
    pub route_time: Histogram,
    /// See [`names::OVERHEAD`].
    pub overhead: Histogram,
    /// See [`names::DECISIONS`].
    pub decisions: IntCounterVec,
    /// See [`names::GOODPUT`].
    pub goodput: IntCounterVec,
    /// See [`names::TENANT_REQUESTS`].
    pub tenant_requests: IntCounterVec,
    /// See [`names::TENANT_TOKENS`].
    pub tenant_tokens: IntCounterVec,
    /// See [`names::EJECTIONS`].
    pub ejections: IntCounterVec,
    /// See [`names::TTFT_ERROR`].
    pub ttft_error: Histogram,
    /// See [`names::PROMPT_TOKENS`].
    pub prompt_tokens: IntCounterVec,
    /// See [`names::COMPLETION_TOKENS`].
    pub completion_tokens: IntCounterVec,
    /// See [`names::CACHED_PREDICTED`].
    pub cached_predicted: IntCounterVec,
    /// See [`names::CACHED_REPORTED`].
    pub cached_reported: IntCounterVec,
    /// See [`names::REPLICA_REQUESTS`].
    pub replica_requests: IntCounterVec,
    /// See [`names::REPLICA_TOKENS`].
    pub replica_tokens: IntCounterVec,
    /// See [`names::REPLICA_FAILURES`].
    pub replica_failures: IntCounterVec,
    /// See [`names::PROBE_FAILURES`].
    pub probe_failures: IntCounterVec,
    /// See [`names::RETRIES`].
    pub retries: IntCounterVec,
    /// See [`names::CONTINUATIONS`].
    pub continuations: IntCounterVec,
    /// See [`names::SHADOWS`].
    pub shadows: IntCounterVec,
    /// See [`names::UPSTREAM_CONNECTIONS`].
    pub connections: IntCounterVec,
    /// See [`names::LOG_LINES_DROPPED`].
    pub log_lines_dropped: IntCounter,
    /// See [`names::CONFIG_RELOADS`].
    pub config_reloads: IntCounterVec,
}

fn opts(metric: &Metric) -> Opts {
    Opts::new(metric.name, metric.help)
}

fn register<C: prometheus::core::Collector + Clone + 'static>(registry: &Registry, collector: &C) {
    registry.register(Box::new(collector.clone())).expect("every name is registered once");
}

fn counters(registry: &Registry, metric: &Metric) -> IntCounterVec {
    let counters = IntCounterVec::new(opts(metric), metric.labels).expect("the names are legal");
    register(registry, &counters);
    counters
}

fn gauge(registry: &Registry, metric: &Metric) -> IntGauge {
    let gauge = IntGauge::with_opts(opts(metric)).expect("the names are legal");
    register(registry, &gauge);
    gauge
}

fn histograms(registry: &Registry, metric: &Metric, bounds: &[f64]) -> HistogramVec {
    let opts = HistogramOpts::new(metric.name, metric.help).buckets(bounds.to_vec());
    let histograms = HistogramVec::new(opts, metric.labels).expect("the names are legal");
    register(registry, &histograms);
    histograms
}

fn histogram(registry: &Registry, metric: &Metric, bounds: &[f64]) -> Histogram {
    histograms(registry, metric, bounds).with_label_values::<&str>(&[])
}

impl Metrics {
    /// All of them at zero.
    pub fn new() -> Self {
        let registry = Registry::new();
        let r = &registry;
        let log_lines_dropped =
            IntCounter::with_opts(opts(&names::LOG_LINES_DROPPED)).expect("the names are legal");
        register(r, &log_lines_dropped);
        let metrics = Self {
            requests: counters(r, &names::REQUESTS),
            in_flight: gauge(r, &names::IN_FLIGHT),
            queued: gauge(r, &names::QUEUED),
            queued_bytes: gauge(r, &names::QUEUED_BYTES),
            store_up: gauge(r, &names::STORE_UP),
            refused: counters(r, &names::REFUSED),
            ttft: histograms(r, &names::TTFT, names::TTFT_BOUNDS),
            tpot: histograms(r, &names::TPOT, names::TOKEN_BOUNDS),
            itl: histograms(r, &names::ITL, names::TOKEN_BOUNDS),
            duration: histograms(r, &names::DURATION, names::DURATION_BOUNDS),
            queue_time: histograms(r, &names::QUEUE_TIME, names::QUEUE_BOUNDS),
            route_time: histogram(r, &names::ROUTE_TIME, names::OVERHEAD_BOUNDS),
            overhead: histogram(r, &names::OVERHEAD, names::OVERHEAD_BOUNDS),
            decisions: counters(r, &names::DECISIONS),
            goodput: counters(r, &names::GOODPUT),
            tenant_requests: counters(r, &names::TENANT_REQUESTS),
            tenant_tokens: counters(r, &names::TENANT_TOKENS),
            ejections: counters(r, &names::EJECTIONS),
            ttft_error: histogram(r, &names::TTFT_ERROR, names::TTFT_BOUNDS),
            prompt_tokens: counters(r, &names::PROMPT_TOKENS),
            completion_tokens: counters(r, &names::COMPLETION_TOKENS),
            cached_predicted: counters(r, &names::CACHED_PREDICTED),
            cached_reported: counters(r, &names::CACHED_REPORTED),
            replica_requests: counters(r, &names::REPLICA_REQUESTS),
            replica_tokens: counters(r, &names::REPLICA_TOKENS),
            replica_failures: counters(r, &names::REPLICA_FAILURES),
            probe_failures: counters(r, &names::PROBE_FAILURES),
            retries: counters(r, &names::RETRIES),
            continuations: counters(r, &names::CONTINUATIONS),
            shadows: counters(r, &names::SHADOWS),
            connections: counters(r, &names::UPSTREAM_CONNECTIONS),
            log_lines_dropped,
            config_reloads: counters(r, &names::CONFIG_RELOADS),
            tenants: Mutex::default(),
            registry,
        };
        metrics.add_words();
        metrics
    }

    /// Every word that is known before anything happens, at zero.
    fn add_words(&self) {
        self.add_model(NO_MODEL);
        self.tenant(NO_MODEL);
        self.store_up.set(1);
        for reason in Reason::ALL {
            self.decisions.with_label_values(&[reason.word()]);
        }
        for what in What::ALL {
            self.refused.with_label_values(&[what.code()]);
        }
        for reason in FAILURES {
            self.retries.with_label_values(&[reason]);
        }
        for kind in ["fresh", "reused", "replaced"] {
            self.connections.with_label_values(&[kind]);
        }
        for outcome in ["ok", "failed"] {
            self.config_reloads.with_label_values(&[outcome]);
        }
        for outcome in ["resumed", "failed"] {
            self.continuations.with_label_values(&[outcome]);
        }
        for outcome in shadow::OUTCOMES {
            self.shadows.with_label_values(&[outcome]);
        }
    }

    /// Shows a model's series from the moment it is known.
    pub fn add_model(&self, model: &str) {
        for outcome in Outcome::ALL {
            self.requests.with_label_values(&[model, outcome.word()]);
        }
        for histograms in [&self.ttft, &self.tpot, &self.itl, &self.duration, &self.queue_time] {
            histograms.with_label_values(&[model]);
        }
        for counters in [
            &self.prompt_tokens,
            &self.completion_tokens,
            &self.cached_predicted,
            &self.cached_reported,
            &self.goodput,
        ] {
            counters.with_label_values(&[model]);
        }
    }

    /// Shows a replica's series from the moment it is known.
    pub fn add_replica(&self, replica: &str) {
        for outcome in ["ok", "client_error", "refused", "failed", "client_closed"] {
            self.replica_requests.with_label_values(&[replica, outcome]);
        }
        for kind in TOKEN_KINDS {
            self.replica_tokens.with_label_values(&[replica, kind]);
        }
        for what in FAILURES {
            self.replica_failures.with_label_values(&[replica, what]);
        }
        for counters in [&self.probe_failures, &self.ejections] {
            counters.with_label_values(&[replica]);
        }
    }

    /// A tenant's label; its series are shown from its first request on.
    pub fn tenant<'a>(&self, name: &'a str) -> &'a str {
        let name = if name.is_empty() { NO_MODEL } else { name };
        let mut tenants = self.tenants.lock().unwrap_or_else(PoisonError::into_inner);
        if tenants.contains(name) {
            return name;
        }
        let label = if tenants.len() < TENANTS_MAX { name } else { OTHER_TENANTS };
        if tenants.insert(label.to_owned()) {
            for outcome in Outcome::ALL {
                self.tenant_requests.with_label_values(&[label, outcome.word()]);
            }
            for kind in TOKEN_KINDS {
                self.tenant_tokens.with_label_values(&[label, kind]);
            }
        }
        label
    }

    /// Forgets a replica's series.
    pub fn remove_replica(&self, replica: &str) {
        for counters in [&self.replica_requests, &self.replica_failures, &self.replica_tokens] {
            let families = prometheus::core::Collector::collect(counters);
            for metric in families.iter().flat_map(|family| family.get_metric().to_vec()) {
                let value = |name: &str| metric.get_label().iter().find(|pair| pair.name() == name);
                let other = metric.get_label().iter().find(|pair| pair.name() != "replica");
                if let Some(other) =
                    other.filter(|_| value("replica").is_some_and(|pair| pair.value() == replica))
                {
                    let _ = counters.remove_label_values(&[replica, other.value()]);
                }
            }
        }
        for counters in [&self.probe_failures, &self.ejections] {
            let _ = counters.remove_label_values(&[replica]);
        }
    }
}

impl Default for Metrics {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tenants_beyond_the_bound_share_a_label() {
        let metrics = Metrics::new();
        let names: Vec<_> = (0..TENANTS_MAX + 2).map(|index| format!("tenant-{index}")).collect();
        let labels: BTreeSet<_> = names.iter().map(|name| metrics.tenant(name)).collect();
        // One place is taken by those without a key, one more label is everybody else's.
        assert_eq!(labels.len(), TENANTS_MAX);
        assert_eq!(metrics.tenant("tenant-0"), "tenant-0");
        assert_eq!(metrics.tenant(names.last().unwrap()), OTHER_TENANTS);
    }
}
