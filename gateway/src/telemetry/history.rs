//! The last minutes in a ring: what the counters grew by, so that a page can show rates without a Prometheus.

use super::{Metrics, Outcome};
use prometheus::core::Collector;
use serde::Serialize;
use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

/// How often a sample is taken.
pub const STEP: Duration = Duration::from_secs(2);
/// Samples that are kept: five minutes.
const SAMPLES_MAX: usize = 150;
/// How far back a replica's rates look: a minute.
const REPLICA_SAMPLES: usize = 30;

/// What the fleet did in one step.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Sample {
    /// Requests that ended, a second.
    pub requests_per_s: f64,
    /// Those that we failed, a second.
    pub failed_per_s: f64,
    /// Answer tokens, a second.
    pub tokens_per_s: f64,
    /// Prompt tokens, a second.
    pub prompt_tokens_per_s: f64,
    /// Median time to first token of those that began; absent when none did.
    pub ttft_p50_s: Option<f64>,
    /// What 95 % of them kept below.
    pub ttft_p95_s: Option<f64>,
    /// Median mean time per token.
    pub tpot_p50_s: Option<f64>,
    /// Requests that wait in the gateway.
    pub queued: i64,
}

/// What one replica did in the last minute.
#[derive(Clone, Copy, PartialEq, Debug, Default, Serialize)]
pub struct Pace {
    /// Attempts that ended, a second.
    pub requests_per_s: f64,
    /// Answer tokens, a second.
    pub tokens_per_s: f64,
    /// Part of prompt tokens that were cached; absent when it got none.
    pub cached_share: Option<f64>,
}

/// Counters of one replica.
#[derive(Clone, Copy, Debug, Default)]
struct ReplicaTotals {
    requests: f64,
    prompt: f64,
    cached: f64,
    completion: f64,
}

/// Cumulative counts of a histogram's buckets, over all models.
type Buckets = Vec<(f64, u64)>;

/// Counters at one moment.
#[derive(Clone, Debug, Default)]
struct Totals {
    requests: f64,
    failed: f64,
    tokens: f64,
    prompt_tokens: f64,
    ttft: Buckets,
    tpot: Buckets,
}

/// The ring.
#[derive(Debug, Default)]
pub struct History {
    last: Totals,
    samples: VecDeque<Sample>,
    replicas: VecDeque<BTreeMap<String, ReplicaTotals>>,
}

impl History {
    /// Takes the next sample, one [`STEP`] after the last.
    pub fn observe(&mut self, metrics: &Metrics) {
        let now = Totals::of(metrics);
        let per_s = |now: f64, last: f64| (now - last).max(0.0) / STEP.as_secs_f64();
        let last = &self.last;
        let (ttft, tpot) = (growth(&now.ttft, &last.ttft), growth(&now.tpot, &last.tpot));
        self.samples.push_back(Sample {
            requests_per_s: per_s(now.requests, last.requests),
            failed_per_s: per_s(now.failed, last.failed),
            tokens_per_s: per_s(now.tokens, last.tokens),
            prompt_tokens_per_s: per_s(now.prompt_tokens, last.prompt_tokens),
            ttft_p50_s: quantile(&ttft, 0.5),
            ttft_p95_s: quantile(&ttft, 0.95),
            tpot_p50_s: quantile(&tpot, 0.5),
            queued: metrics.queued.get(),
        });
        self.last = now;
        self.replicas.push_back(replica_totals(metrics));
        if self.samples.len() > SAMPLES_MAX {
            self.samples.pop_front();
        }
        if self.replicas.len() > REPLICA_SAMPLES {
            self.replicas.pop_front();
        }
    }

    /// The samples, oldest first.
    pub fn samples(&self) -> Vec<Sample> {
        self.samples.iter().cloned().collect()
    }

    /// What a replica did lately; zero before there are two samples of it.
    pub fn pace(&self, replica: &str) -> Pace {
        let first = self.replicas.iter().position(|totals| totals.contains_key(replica));
        let last = self.replicas.back().and_then(|totals| totals.get(replica));
        let Some((at, last)) = first.zip(last) else { return Pace::default() };
        let first = self.replicas[at][replica];
        let seconds = ((self.replicas.len() - 1 - at) as f64 * STEP.as_secs_f64()).max(STEP.as_secs_f64());
        let prompt = last.prompt - first.prompt;
        Pace {
            requests_per_s: (last.requests - first.requests).max(0.0) / seconds,
            tokens_per_s: (last.completion - first.completion).max(0.0) / seconds,
            cached_share: (prompt > 0.0).then(|| ((last.cached - first.cached) / prompt).clamp(0.0, 1.0)),
        }
    }
}

impl Totals {
    fn of(metrics: &Metrics) -> Self {
        let outcome = |outcome: Outcome| sum(&metrics.requests, "outcome", outcome.word());
        let failed = [Outcome::Shed, Outcome::NoReplica, Outcome::Failed, Outcome::Broken];
        Self {
            requests: Outcome::ALL.into_iter().map(outcome).sum(),
            failed: failed.into_iter().map(outcome).sum(),
            tokens: sum(&metrics.completion_tokens, "", ""),
            prompt_tokens: sum(&metrics.prompt_tokens, "", ""),
            ttft: buckets(&metrics.ttft),
            tpot: buckets(&metrics.tpot),
        }
    }
}

/// The sum of a counter's series that have a label's value; of all, where no label is named.
fn sum(counters: &impl Collector, label: &str, value: &str) -> f64 {
    let families = counters.collect();
    let series = families.iter().flat_map(prometheus::proto::MetricFamily::get_metric);
    let is_meant = |metric: &&prometheus::proto::Metric| {
        label.is_empty()
            || metric.get_label().iter().any(|pair| pair.name() == label && pair.value() == value)
    };
    series.filter(is_meant).map(|metric| metric.get_counter().get_value()).sum()
}

fn buckets(histograms: &impl Collector) -> Buckets {
    let mut buckets = Buckets::new();
    for family in histograms.collect() {
        for metric in family.get_metric() {
            let histogram = metric.get_histogram();
            let bounds =
                histogram.get_bucket().iter().map(|bucket| (bucket.upper_bound(), bucket.cumulative_count()));
            let all = bounds.chain([(f64::INFINITY, histogram.get_sample_count())]);
            for (at, (bound, count)) in all.enumerate() {
                match buckets.get_mut(at) {
                    Some((_, sum)) => *sum += count,
                    None => buckets.push((bound, count)),
                }
            }
        }
    }
    buckets
}

fn growth(now: &Buckets, last: &Buckets) -> Buckets {
    let before = |at: usize| last.get(at).map_or(0, |(_, count)| *count);
    let grown = |(at, (bound, count)): (usize, &(f64, u64))| (*bound, count.saturating_sub(before(at)));
    now.iter().enumerate().map(grown).collect()
}

/// A quantile of cumulative buckets, straight between their borders; beyond the last border, that border.
fn quantile(buckets: &[(f64, u64)], part: f64) -> Option<f64> {
    let total = buckets.last().map_or(0, |(_, count)| *count);
    if total == 0 {
        return None;
    }
    let wanted = part * total as f64;
    let at = buckets.iter().position(|(_, count)| *count as f64 >= wanted)?;
    let (low, below) = if at == 0 { (0.0, 0) } else { buckets[at - 1] };
    let (high, count) = buckets[at];
    if high.is_infinite() {
        return Some(low);
    }
    Some(low + (high - low) * (wanted - below as f64) / ((count - below) as f64).max(1.0))
}

fn replica_totals(metrics: &Metrics) -> BTreeMap<String, ReplicaTotals> {
    let mut totals: BTreeMap<String, ReplicaTotals> = BTreeMap::new();
    let families = metrics.replica_requests.collect().into_iter().chain(metrics.replica_tokens.collect());
    for family in families {
        for metric in family.get_metric() {
            let label = |name: &str| {
                metric.get_label().iter().find(|pair| pair.name() == name).map_or("", |pair| pair.value())
            };
            let totals = totals.entry(label("replica").to_owned()).or_default();
            let value = metric.get_counter().get_value();
            match label("kind") {
                "prompt" => totals.prompt += value,
                "cached" => totals.cached += value,
                "completion" => totals.completion += value,
                _ => totals.requests += value,
            }
        }
    }
    totals
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_lie_between_borders() {
        let check = |counts: &[(f64, u64)], part, expected| assert_eq!(quantile(counts, part), expected);
        check(&[], 0.5, None);
        check(&[(1.0, 0), (f64::INFINITY, 0)], 0.5, None);
        check(&[(1.0, 0), (2.0, 10), (f64::INFINITY, 10)], 0.5, Some(1.5));
        check(&[(1.0, 10), (f64::INFINITY, 10)], 0.95, Some(0.95));
        check(&[(1.0, 0), (f64::INFINITY, 4)], 0.5, Some(1.0));
    }

    #[test]
    fn rates_are_what_counters_grew_by() {
        let metrics = Metrics::new();
        metrics.add_replica("a:1");
        let mut history = History::default();
        history.observe(&metrics);
        metrics.requests.with_label_values(&["-", "ok"]).inc_by(4);
        metrics.requests.with_label_values(&["-", "shed"]).inc_by(2);
        metrics.ttft.with_label_values(&["-"]).observe(0.3);
        metrics.replica_requests.with_label_values(&["a:1", "ok"]).inc_by(4);
        metrics.replica_tokens.with_label_values(&["a:1", "prompt"]).inc_by(100);
        metrics.replica_tokens.with_label_values(&["a:1", "cached"]).inc_by(75);
        metrics.replica_tokens.with_label_values(&["a:1", "completion"]).inc_by(8);
        history.observe(&metrics);
        let samples = history.samples();
        let last = samples.last().unwrap();
        assert_eq!((last.requests_per_s, last.failed_per_s, last.ttft_p95_s.is_some()), (3.0, 1.0, true));
        assert_eq!(samples[0].ttft_p50_s, None);
        let expected = Pace { requests_per_s: 2.0, tokens_per_s: 4.0, cached_share: Some(0.75) };
        assert_eq!(history.pace("a:1"), expected);
        assert_eq!(history.pace("nobody:1"), Pace::default());
    }

    #[test]
    fn the_ring_is_bounded() {
        let (metrics, mut history) = (Metrics::new(), History::default());
        (0..SAMPLES_MAX + 5).for_each(|_| history.observe(&metrics));
        assert_eq!((history.samples.len(), history.replicas.len()), (SAMPLES_MAX, REPLICA_SAMPLES));
    }
}
