//! The metrics of `shared::metric::gateway`, one field each. Values of the fleet are set when somebody scrapes.

use super::Outcome;
use prometheus::{
    Encoder, Histogram, HistogramOpts, HistogramVec, IntCounter, IntCounterVec, IntGauge, Opts, Registry,
    TextEncoder,
};
use shared::metric::{Kind, Metric, gateway as names};
use shared::wire::FleetEntry;

/// From a millisecond to ten minutes: prompts may wait that long.
const SECONDS: &[f64] = &[
    0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0,
    300.0, 600.0,
];

/// The label of requests that name no model, or one nobody knows: clients can't make labels.
pub const NO_MODEL: &str = "-";

/// All counters and histograms.
#[derive(Debug)]
pub struct Metrics {
    registry: Registry,
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
    /// See [`names::DURATION`].
    pub duration: HistogramVec,
    /// See [`names::QUEUE_TIME`].
    pub queue_time: HistogramVec,
    /// See [`names::ROUTE_TIME`].
    pub route_time: Histogram,
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
    /// See [`names::REPLICA_FAILURES`].
    pub replica_failures: IntCounterVec,
    /// See [`names::PROBE_FAILURES`].
    pub probe_failures: IntCounterVec,
    /// See [`names::RETRIES`].
    pub retries: IntCounterVec,
    /// See [`names::CONTINUATIONS`].
    pub continuations: IntCounterVec,
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

fn histograms(registry: &Registry, metric: &Metric) -> HistogramVec {
    let opts = HistogramOpts::new(metric.name, metric.help).buckets(SECONDS.to_vec());
    let histograms = HistogramVec::new(opts, metric.labels).expect("the names are legal");
    register(registry, &histograms);
    histograms
}

fn histogram(registry: &Registry, metric: &Metric) -> Histogram {
    histograms(registry, metric).with_label_values::<&str>(&[])
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
            ttft: histograms(r, &names::TTFT),
            tpot: histograms(r, &names::TPOT),
            duration: histograms(r, &names::DURATION),
            queue_time: histograms(r, &names::QUEUE_TIME),
            route_time: histogram(r, &names::ROUTE_TIME),
            ttft_error: histogram(r, &names::TTFT_ERROR),
            prompt_tokens: counters(r, &names::PROMPT_TOKENS),
            completion_tokens: counters(r, &names::COMPLETION_TOKENS),
            cached_predicted: counters(r, &names::CACHED_PREDICTED),
            cached_reported: counters(r, &names::CACHED_REPORTED),
            replica_requests: counters(r, &names::REPLICA_REQUESTS),
            replica_failures: counters(r, &names::REPLICA_FAILURES),
            probe_failures: counters(r, &names::PROBE_FAILURES),
            retries: counters(r, &names::RETRIES),
            continuations: counters(r, &names::CONTINUATIONS),
            connections: counters(r, &names::UPSTREAM_CONNECTIONS),
            log_lines_dropped,
            config_reloads: counters(r, &names::CONFIG_RELOADS),
            registry,
        };
        metrics.add_model(NO_MODEL);
        for kind in ["fresh", "reused", "replaced"] {
            metrics.connections.with_label_values(&[kind]);
        }
        for outcome in ["ok", "failed"] {
            metrics.config_reloads.with_label_values(&[outcome]);
        }
        for outcome in ["resumed", "failed"] {
            metrics.continuations.with_label_values(&[outcome]);
        }
        metrics
    }

    /// Shows a model's series from the moment it is known.
    pub fn add_model(&self, model: &str) {
        for outcome in Outcome::ALL {
            self.requests.with_label_values(&[model, outcome.word()]);
        }
        for histograms in [&self.ttft, &self.tpot, &self.duration, &self.queue_time] {
            histograms.with_label_values(&[model]);
        }
        for counters in
            [&self.prompt_tokens, &self.completion_tokens, &self.cached_predicted, &self.cached_reported]
        {
            counters.with_label_values(&[model]);
        }
    }

    /// Shows a replica's series from the moment it is known.
    pub fn add_replica(&self, replica: &str) {
        for outcome in ["ok", "client_error", "refused", "failed", "client_closed"] {
            self.replica_requests.with_label_values(&[replica, outcome]);
        }
        self.probe_failures.with_label_values(&[replica]);
    }

    /// Forgets a replica's series.
    pub fn remove_replica(&self, replica: &str) {
        for counters in [&self.replica_requests, &self.replica_failures] {
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
        let _ = self.probe_failures.remove_label_values(&[replica]);
    }

    /// The text of a scrape: what was counted, and the fleet as it is now.
    pub fn render(&self, fleet: &[FleetEntry], ready: &[(String, usize)]) -> Vec<u8> {
        let mut text = Vec::with_capacity(16 * 1024);
        TextEncoder::new().encode(&self.registry.gather(), &mut text).expect("a Vec takes any text");
        let mut text = String::from_utf8(text).expect("labels are UTF-8");
        for (metric, of) in FLEET_GAUGES {
            let values = fleet.iter().filter_map(|entry| of(entry).map(|value| (entry.id.as_str(), value)));
            family(&mut text, metric, values.map(|(id, value)| (format!("replica=\"{id}\""), value)));
        }
        let states = fleet.iter().flat_map(|entry| {
            STATES.iter().map(|state| {
                let labels = format!("replica=\"{}\",state=\"{state}\"", entry.id);
                (labels, f64::from(u8::from(entry.state == *state)))
            })
        });
        family(&mut text, &names::REPLICA_STATE, states);
        let ready =
            ready.iter().map(|(model, count)| (format!("model=\"{}\"", escape(model)), *count as f64));
        family(&mut text, &names::READY_REPLICAS, ready);
        for metric in names::ALL {
            if !text.contains(&format!("# TYPE {} ", metric.name)) {
                family(&mut text, metric, std::iter::empty());
            }
        }
        text.into_bytes()
    }
}

impl Default for Metrics {
    fn default() -> Self {
        Self::new()
    }
}

/// The words of [`FleetEntry::state`].
const STATES: [&str; 6] = ["joining", "warming", "ready", "draining", "ejected", "down"];

type Of = fn(&FleetEntry) -> Option<f64>;

const FLEET_GAUGES: [(&Metric, Of); 5] = [
    (&names::REPLICA_IN_FLIGHT, |entry| Some(f64::from(entry.in_flight))),
    (&names::REPLICA_RUNNING, |entry| entry.running.map(f64::from)),
    (&names::REPLICA_WAITING, |entry| entry.waiting.map(f64::from)),
    (&names::REPLICA_KV_USAGE, |entry| entry.kv_usage),
    (&names::REPLICA_REPORT_AGE, |entry| entry.age_ms.map(|age| age as f64 / 1000.0)),
];

fn family(text: &mut String, metric: &Metric, values: impl Iterator<Item = (String, f64)>) {
    use std::fmt::Write;
    let kind = match metric.kind {
        Kind::Counter => "counter",
        Kind::Gauge => "gauge",
        Kind::Histogram => "histogram",
    };
    let _ = writeln!(text, "# HELP {} {}\n# TYPE {} {kind}", metric.name, metric.help, metric.name);
    for (labels, value) in values {
        let _ = writeln!(text, "{}{{{labels}}} {value}", metric.name);
    }
}

fn escape(label: &str) -> String {
    label.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_scrape_of_a_new_gateway_names_every_metric() {
        // U113
        let text = String::from_utf8(Metrics::new().render(&[], &[])).unwrap();
        for metric in names::ALL {
            assert!(text.contains(&format!("# TYPE {} ", metric.name)), "{}", metric.name);
        }
    }

    #[test]
    fn a_replica_comes_and_goes() {
        let metrics = Metrics::new();
        metrics.add_replica("a:1");
        metrics.add_replica("b:1");
        metrics.replica_failures.with_label_values(&["a:1", "connect"]).inc();
        let entry =
            FleetEntry { id: "b:1".into(), state: "ready".into(), in_flight: 3, ..FleetEntry::default() };
        let text = |metrics: &Metrics| {
            String::from_utf8(metrics.render(std::slice::from_ref(&entry), &[("m\"".into(), 1)])).unwrap()
        };
        assert!(text(&metrics).contains("replica=\"a:1\""));
        metrics.remove_replica("a:1");
        let text = text(&metrics);
        assert!(!text.contains("replica=\"a:1\""), "{text}");
        assert!(text.contains("flotilla_gateway_replica_in_flight{replica=\"b:1\"} 3"));
        assert!(text.contains("flotilla_gateway_replica_state{replica=\"b:1\",state=\"ready\"} 1"));
        assert!(text.contains("flotilla_gateway_ready_replicas{model=\"m\\\"\"} 1"));
    }
}
