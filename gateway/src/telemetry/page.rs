//! The text of a scrape: what was counted, and the fleet as it is at that moment.

use super::Metrics;
use prometheus::{Encoder, TextEncoder};
use shared::metric::{Kind, Metric, gateway as names};
use shared::slo::Slo;
use shared::wire::FleetEntry;
use std::collections::BTreeMap;
use std::fmt::Write;

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

/// The fleet at the moment of a scrape.
#[derive(Debug)]
pub struct Moment<'a> {
    /// Everybody.
    pub fleet: &'a [FleetEntry],
    /// Models, and how many take work for each.
    pub ready: &'a [(String, usize)],
    /// What goodput is counted against.
    pub slo: Slo,
}

impl Metrics {
    /// The page.
    pub fn render(&self, moment: &Moment<'_>) -> Vec<u8> {
        let mut text = Vec::with_capacity(16 * 1024);
        TextEncoder::new().encode(&self.registry.gather(), &mut text).expect("a Vec takes any text");
        let mut text = String::from_utf8(text).expect("labels are UTF-8");
        write_replicas(&mut text, moment.fleet);
        let ready = moment.ready.iter().map(|(model, count)| (label("model", model), *count as f64));
        family(&mut text, &names::READY_REPLICAS, ready);
        let spread = imbalance(moment.fleet).into_iter();
        family(&mut text, &names::IMBALANCE, spread.map(|(model, ratio)| (label("model", model), ratio)));
        let targets = [("ttft", moment.slo.ttft), ("tpot", moment.slo.tpot)];
        let targets = targets.map(|(target, limit)| (label("target", target), limit.as_secs_f64()));
        family(&mut text, &names::SLO_SECONDS, targets.into_iter());
        family(&mut text, &names::INFO, [(label("version", env!("CARGO_PKG_VERSION")), 1.0)].into_iter());
        for metric in names::ALL {
            if !text.contains(&format!("# TYPE {} ", metric.name)) {
                family(&mut text, metric, std::iter::empty());
            }
        }
        text.into_bytes()
    }
}

fn write_replicas(text: &mut String, fleet: &[FleetEntry]) {
    for (metric, of) in FLEET_GAUGES {
        let values = fleet.iter().filter_map(|entry| Some((label("replica", &entry.id), of(entry)?)));
        family(text, metric, values);
    }
    let states = fleet.iter().flat_map(|entry| {
        STATES.iter().map(|state| {
            let labels = format!("{},{}", label("replica", &entry.id), label("state", state));
            (labels, f64::from(u8::from(entry.state == *state)))
        })
    });
    family(text, &names::REPLICA_STATE, states);
}

/// How unevenly each model's requests lie over those that take work: standard deviation over mean.
fn imbalance(fleet: &[FleetEntry]) -> BTreeMap<&str, f64> {
    let mut loads: BTreeMap<&str, Vec<f64>> = BTreeMap::new();
    for entry in fleet.iter().filter(|entry| ["ready", "warming"].contains(&entry.state.as_str())) {
        for model in &entry.models {
            loads.entry(model).or_default().push(f64::from(entry.in_flight));
        }
    }
    loads.into_iter().map(|(model, loads)| (model, spread(&loads))).collect()
}

fn spread(loads: &[f64]) -> f64 {
    let count = loads.len().max(1) as f64;
    let mean = loads.iter().sum::<f64>() / count;
    let variance = loads.iter().map(|load| (load - mean).powi(2)).sum::<f64>() / count;
    if mean > 0.0 { variance.sqrt() / mean } else { 0.0 }
}

fn label(name: &str, value: &str) -> String {
    let value = value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n");
    format!("{name}=\"{value}\"")
}

fn family(text: &mut String, metric: &Metric, values: impl Iterator<Item = (String, f64)>) {
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

#[cfg(test)]
mod tests {
    use super::*;

    fn page(metrics: &Metrics, fleet: &[FleetEntry], ready: &[(String, usize)]) -> String {
        String::from_utf8(metrics.render(&Moment { fleet, ready, slo: Slo::DEFAULT })).unwrap()
    }

    fn entry(id: &str, in_flight: u32) -> FleetEntry {
        FleetEntry {
            id: id.into(),
            models: vec!["m".into()],
            state: "ready".into(),
            in_flight,
            ..FleetEntry::default()
        }
    }

    /// U113: nothing appears only once it has happened; what names a replica appears with the replica.
    #[test]
    fn a_scrape_of_a_new_gateway_names_every_metric() {
        let metrics = Metrics::new();
        metrics.add_replica("a:1");
        let text = page(&metrics, &[entry("a:1", 0)], &[("m".into(), 1)]);
        for metric in names::ALL {
            assert!(text.contains(&format!("# TYPE {} ", metric.name)), "{}", metric.name);
            let may_be_unknown = [
                names::REPLICA_RUNNING.name,
                names::REPLICA_WAITING.name,
                names::REPLICA_KV_USAGE.name,
                names::REPLICA_REPORT_AGE.name,
            ];
            let has_sample = text.lines().any(|line| {
                line.strip_prefix(metric.name).is_some_and(|rest| rest.starts_with(['{', ' ', '_']))
            });
            assert!(has_sample || may_be_unknown.contains(&metric.name), "{} has no sample", metric.name);
        }
    }

    #[test]
    fn a_replica_comes_and_goes() {
        let metrics = Metrics::new();
        metrics.add_replica("a:1");
        metrics.add_replica("b:1");
        metrics.replica_failures.with_label_values(&["a:1", "connect"]).inc();
        let fleet = [entry("b:1", 3)];
        assert!(page(&metrics, &fleet, &[]).contains("replica=\"a:1\""));
        metrics.remove_replica("a:1");
        let text = page(&metrics, &fleet, &[("m\"".into(), 1)]);
        assert!(!text.contains("replica=\"a:1\""), "{text}");
        assert!(text.contains("flotilla_gateway_replica_in_flight{replica=\"b:1\"} 3"));
        assert!(text.contains("flotilla_gateway_replica_state{replica=\"b:1\",state=\"ready\"} 1"));
        assert!(text.contains("flotilla_gateway_ready_replicas{model=\"m\\\"\"} 1"));
    }

    #[test]
    fn load_on_one_side_is_imbalance() {
        let check = |loads: &[u32], expected: f64| {
            let fleet: Vec<_> = loads.iter().map(|&load| entry("r:1", load)).collect();
            assert!((imbalance(&fleet)["m"] - expected).abs() < 1e-9, "{loads:?}");
        };
        check(&[4, 4, 4], 0.0);
        check(&[0, 0], 0.0);
        check(&[8, 0], 1.0);
        check(&[5], 0.0);
    }
}
