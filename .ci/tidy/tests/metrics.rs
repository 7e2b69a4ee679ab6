//! One source of metric names: exporters, dashboards and rules agree (U113).

use std::collections::BTreeSet;

use shared::metric::{Kind, Metric, gateway, gpu, replica};
use tidy::{assert_none, files};

fn ours() -> Vec<Metric> {
    gateway::ALL.iter().chain(replica::ALL).chain(gpu::ALL).copied().collect()
}

/// Every series name that a scrape of ours can hold.
fn series() -> BTreeSet<String> {
    let suffixes = |metric: &Metric| match metric.kind {
        Kind::Histogram => ["_bucket", "_sum", "_count"].as_slice(),
        Kind::Counter | Kind::Gauge => &[""],
    };
    ours()
        .iter()
        .flat_map(|metric| suffixes(metric).iter().map(|end| format!("{}{end}", metric.name)))
        .collect()
}

/// Names of our families in a text, whatever stands around them.
fn mentioned(text: &str) -> BTreeSet<&str> {
    let words = text.split(|c: char| !c.is_ascii_alphanumeric() && c != '_' && c != ':');
    let words = words.map(|word| word.trim_end_matches(':'));
    let is_ours = |word: &&str| {
        ["flotilla_gateway_", "flotilla_replica_", "flotilla_gpu_"]
            .iter()
            .any(|family| word.strip_prefix(family).is_some_and(|rest| !rest.is_empty()))
    };
    words.filter(is_ours).collect()
}

#[test]
fn no_two_metrics_share_a_name() {
    let mut seen = BTreeSet::new();
    let faults: Vec<_> = ours()
        .iter()
        .filter(|metric| !seen.insert(metric.name))
        .map(|metric| metric.name.to_owned())
        .collect();
    assert_none("there twice", &faults);
}

#[test]
fn every_metric_on_a_board_or_in_a_rule_exists() {
    let known = series();
    let mut faults = Vec::new();
    for file in files().iter().filter(|file| file.path.starts_with("grafana/") && file.name() != "README.md")
    {
        let unknown = mentioned(&file.text).into_iter().filter(|name| !known.contains(*name));
        faults.extend(unknown.map(|name| format!("{}: {name}", file.path)));
    }
    assert_none("no scrape has these", &faults);
}

#[test]
fn a_name_is_found_in_a_query() {
    let query = "sum by (le) (rate(flotilla_gateway_queue_seconds_bucket{model=\"m\"}[5m])) / flotilla_gpu_x";
    let expected = BTreeSet::from(["flotilla_gateway_queue_seconds_bucket", "flotilla_gpu_x"]);
    assert_eq!(mentioned(query), expected);
}
