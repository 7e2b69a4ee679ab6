//! The boards, and the few kinds of queries that they share.

mod cost;
mod fleet;
mod gpu;
mod replica;
mod routing;
mod tenants;

use shared::metric::Metric;

use crate::board::Board;
use crate::panel::{Panel, Shape, Unit};

/// All boards.
pub fn all() -> Vec<Board> {
    vec![fleet::board(), replica::board(), gpu::board(), routing::board(), tenants::board(), cost::board()]
}

/// The rate of a counter, summed by labels.
fn rate(metric: &Metric, by: &str, filter: &str) -> String {
    format!("sum by ({by}) (rate({}{{{filter}}}[$__rate_interval]))", metric.name)
}

/// Three quantiles of a histogram of ours, over all series that pass the filter: never a mean of quantiles.
fn quantiles(panel: Panel, metric: &Metric, filter: &str) -> Panel {
    let buckets = format!("rate({}_bucket{{{filter}}}[$__rate_interval])", metric.name);
    spread(panel, &buckets)
}

/// The same of a recorded rate of buckets.
fn recorded_quantiles(panel: Panel, record: &str, filter: &str) -> Panel {
    spread(panel, &format!("{record}{{{filter}}}"))
}

fn spread(panel: Panel, buckets: &str) -> Panel {
    [("p50", 0.5), ("p95", 0.95), ("p99", 0.99)].iter().fold(panel, |panel, (legend, quantile)| {
        panel.ask(legend, format!("histogram_quantile({quantile}, sum by (le) ({buckets}))"))
    })
}

/// The mean of a histogram over the window, not since the start.
fn mean(metric: &Metric, filter: &str) -> String {
    let rate = |end: &str| format!("sum(rate({}_{end}{{{filter}}}[$__rate_interval]))", metric.name);
    format!("{} / ({} > 0)", rate("sum"), rate("count"))
}

/// A big number in a row of six.
fn number(title: &'static str, description: &'static str, unit: Unit) -> Panel {
    Panel::new(title, description, Shape::Number, unit).size(4, 4)
}

/// Curves on half a page.
fn half(title: &'static str, description: &'static str, unit: Unit) -> Panel {
    Panel::new(title, description, Shape::Lines, unit).size(12, 8)
}

/// Curves on a third of a page.
fn third(title: &'static str, description: &'static str, unit: Unit) -> Panel {
    Panel::new(title, description, Shape::Lines, unit).size(8, 8)
}

/// Where nobody reads cards.
const NO_GPU: &str = "no card is read (no driver, no exporter)";
/// The filter by model that most gateway series take.
const OF_MODEL: &str = "model=~\"$model\"";
/// The filter by replica of the gateway's series.
const OF_REPLICA: &str = "replica=~\"$replica\"";
/// The filter of recorded series of replicas.
const OF_BOTH: &str = "model=~\"$model\",replica=~\"$replica\"";
/// The filter of recorded series of cards.
const OF_GPU: &str = "gpu=~\"$gpu\"";
