//! One run as a whole: how long things took, how much was done, what failed. Pure: from exchanges alone.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use shared::slo::Slo;

use crate::exchange::{Exchange, Failure};
use crate::statistics::Spread;
use crate::workload::Workload;

/// Fewest ends in a window that rates may be told from.
const WINDOW_ENDS_MIN: usize = 10;

/// What a run was.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct About {
    /// `live` or `sim`.
    pub kind: String,
    /// Where requests went, or the scenario.
    pub target: String,
    /// The model asked for.
    pub model: String,
    /// What was asked.
    pub workload: String,
    /// The same, so that it can be asked again with the seed; none where a file of requests or no rate was given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub drawn: Option<Workload>,
    /// Where chance came from.
    pub seed: u64,
    /// Who counted tokens of prompts.
    pub tokens_by: String,
    /// Seconds since 1970.
    pub began_unix_s: u64,
    /// Wanted wait for the first token,
    pub slo_ttft_ms: f64,
    /// and for each later one, on average.
    pub slo_tpot_ms: f64,
    /// Requests before this are not judged.
    pub warmup_s: f64,
}

/// One replica's part.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct Share {
    /// Requests it answered.
    pub requests: usize,
    /// Share of their prompt tokens found in its cache.
    pub hit_rate: Option<f64>,
    /// How long they waited for the first token.
    pub ttft_ms: Spread,
    /// Tokens it answered.
    pub output_tokens: u64,
}

/// A run.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct Report {
    /// What it was.
    pub about: About,
    /// Length of the window from which rates are told: from the end of the warm-up to the last send.
    pub window_s: f64,
    /// Judged requests.
    pub requests: usize,
    /// Of these, with a whole answer.
    pub answered: usize,
    /// The others, by kind.
    pub failures: BTreeMap<Failure, usize>,
    /// Answered within the SLO, of all judged.
    pub attainment: f64,
    /// Answers within the SLO a second.
    pub goodput_per_s: f64,
    /// Requests sent a second.
    pub offered_per_s: f64,
    /// Answers a second.
    pub answered_per_s: f64,
    /// Tokens of answers a second.
    pub output_tokens_per_s: f64,
    /// Requests at once, on average.
    pub concurrency_mean: f64,
    /// Tokens of a prompt.
    pub prompt_tokens_mean: f64,
    /// Tokens of an answer.
    pub output_tokens_mean: f64,
    /// From the intended send time to the first token.
    pub ttft_ms: Spread,
    /// Mean time per later token.
    pub tpot_ms: Spread,
    /// Between tokens.
    pub itl_ms: Spread,
    /// From the intended send time to the last token.
    pub e2e_ms: Spread,
    /// In the gateway's queue, where it tells.
    pub queue_ms: Spread,
    /// How late this client sent.
    pub lag_ms: Spread,
    /// The first token of requests in the warm-up.
    pub warmup_ttft_ms: Spread,
    /// Share of prompt tokens found in a cache, as answers tell.
    pub hit_rate: Option<f64>,
    /// The same as the replicas' counters tell.
    pub hit_rate_metrics: Option<f64>,
    /// Highest share of a KV pool in use.
    pub kv_usage_max: Option<f64>,
    /// By replica, where the gateway tells.
    pub replicas: BTreeMap<String, Share>,
    /// Share of events that came together with the one before.
    pub clumped_share: f64,
    /// What may make these figures worth less.
    pub warnings: Vec<String>,
    /// Every request; may be left out.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub exchanges: Vec<Exchange>,
}

impl Report {
    /// Of these exchanges, which it keeps in the order of their intended times.
    pub fn of(about: About, mut exchanges: Vec<Exchange>) -> Self {
        exchanges.sort_by(|a, b| a.intended_s.total_cmp(&b.intended_s));
        let judged: Vec<_> =
            exchanges.iter().filter(|exchange| exchange.intended_s >= about.warmup_s).collect();
        let cold = exchanges.iter().filter(|exchange| exchange.intended_s < about.warmup_s);
        let slo = about.slo();
        let answered: Vec<_> = judged.iter().copied().filter(|exchange| exchange.is_answered()).collect();
        let spread = |of: fn(&Exchange) -> Option<f64>| {
            Spread::of(answered.iter().filter_map(|exchange| of(exchange)))
        };
        let gaps = answered.iter().flat_map(|exchange| exchange.gaps_ms.iter().map(|gap| f64::from(*gap)));
        let mean = |of: fn(&Exchange) -> u32| {
            answered.iter().map(|exchange| f64::from(of(exchange))).sum::<f64>()
                / answered.len().max(1) as f64
        };
        let good = judged.iter().filter(|exchange| exchange.is_good(slo)).count();
        let mut report = Self {
            requests: judged.len(),
            answered: answered.len(),
            failures: failures(&judged),
            attainment: good as f64 / judged.len().max(1) as f64,
            prompt_tokens_mean: mean(|exchange| exchange.prompt_tokens),
            output_tokens_mean: mean(|exchange| exchange.answer_tokens),
            ttft_ms: spread(Exchange::ttft_ms),
            tpot_ms: spread(Exchange::tpot_ms),
            itl_ms: Spread::of(gaps),
            e2e_ms: spread(|exchange| Some(exchange.e2e_ms())),
            queue_ms: spread(|exchange| exchange.queue_ms),
            lag_ms: Spread::of(judged.iter().map(|exchange| exchange.lag_ms())),
            warmup_ttft_ms: Spread::of(cold.filter(|cold| cold.is_answered()).filter_map(Exchange::ttft_ms)),
            hit_rate: hit_rate(&answered),
            replicas: shares(&answered),
            clumped_share: clumped(&answered),
            ..Self::default()
        };
        report.rates(&about, &judged);
        report.about = about;
        report.exchanges = exchanges;
        report
    }

    /// Rates: what ended in the window over its length.
    fn rates(&mut self, about: &About, judged: &[&Exchange]) {
        let start = about.warmup_s;
        let last =
            |of: fn(&Exchange) -> f64| judged.iter().map(|exchange| of(exchange)).fold(start, f64::max);
        let mut end = last(|exchange| exchange.intended_s);
        let ends = |end: f64| judged.iter().filter(move |exchange| exchange.end_s <= end);
        if ends(end).count() < WINDOW_ENDS_MIN {
            end = last(|exchange| exchange.end_s);
        }
        self.window_s = end - start;
        let per_s = |count: f64| count / self.window_s.max(1e-9);
        let slo = about.slo();
        let answered = || ends(end).filter(|exchange| exchange.is_answered());
        self.offered_per_s = per_s(judged.len() as f64);
        self.answered_per_s = per_s(answered().count() as f64);
        self.goodput_per_s = per_s(ends(end).filter(|exchange| exchange.is_good(slo)).count() as f64);
        let tokens = answered().map(|exchange| f64::from(exchange.answer_tokens)).sum::<f64>();
        self.output_tokens_per_s = per_s(tokens);
        let busy = |exchange: &&Exchange| exchange.end_s.min(end) - exchange.sent_s.min(end);
        self.concurrency_mean = per_s(judged.iter().map(busy).sum::<f64>());
    }

    /// Share of judged requests without a whole answer.
    pub fn failed_share(&self) -> f64 {
        (self.requests - self.answered) as f64 / self.requests.max(1) as f64
    }
}

impl About {
    /// What counts as good.
    pub fn slo(&self) -> Slo {
        let time = |ms: f64| Duration::from_secs_f64(ms / 1e3);
        Slo { ttft: time(self.slo_ttft_ms), tpot: time(self.slo_tpot_ms) }
    }
}

fn failures(judged: &[&Exchange]) -> BTreeMap<Failure, usize> {
    let mut failures = BTreeMap::new();
    for failure in judged.iter().filter_map(|exchange| exchange.failure) {
        *failures.entry(failure).or_default() += 1;
    }
    failures
}

/// None where nobody tells.
fn hit_rate(answered: &[&Exchange]) -> Option<f64> {
    let told =
        || answered.iter().filter_map(|exchange| Some((exchange.cached_tokens?, exchange.prompt_tokens)));
    let prompt = told().map(|(_, prompt)| u64::from(prompt)).sum::<u64>();
    let cached = told().map(|(cached, _)| u64::from(cached)).sum::<u64>();
    (prompt > 0).then(|| cached as f64 / prompt as f64)
}

fn shares(answered: &[&Exchange]) -> BTreeMap<String, Share> {
    let mut by_replica = BTreeMap::<&str, Vec<&Exchange>>::new();
    for exchange in answered {
        if let Some(replica) = &exchange.replica {
            by_replica.entry(replica).or_default().push(exchange);
        }
    }
    let share = |own: Vec<&Exchange>| Share {
        requests: own.len(),
        hit_rate: hit_rate(&own),
        ttft_ms: Spread::of(own.iter().filter_map(|exchange| exchange.ttft_ms())),
        output_tokens: own.iter().map(|exchange| u64::from(exchange.answer_tokens)).sum(),
    };
    by_replica.into_iter().map(|(name, own)| (name.to_owned(), share(own))).collect()
}

fn clumped(answered: &[&Exchange]) -> f64 {
    let sum = |of: fn(&Exchange) -> u32| answered.iter().map(|exchange| f64::from(of(exchange))).sum::<f64>();
    sum(|exchange| exchange.clumped_gaps) / sum(|exchange| exchange.event_gaps).max(1.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn about(warmup_s: f64) -> About {
        About { slo_ttft_ms: 200.0, slo_tpot_ms: 50.0, warmup_s, ..About::default() }
    }

    fn exchange(intended_s: f64, ttft_s: f64) -> Exchange {
        Exchange {
            intended_s,
            sent_s: intended_s + 0.001,
            first_chunk_s: Some(intended_s + ttft_s),
            first_token_s: Some(intended_s + ttft_s),
            end_s: intended_s + ttft_s + 0.3,
            prompt_tokens: 100,
            cached_tokens: Some(40),
            answer_tokens: 11,
            gaps_ms: vec![30.0; 10],
            replica: Some("a".to_owned()),
            ..Exchange::default()
        }
    }

    /// U133: prefills that begin together wait for each other. Sixty at once, then one every 100 ms, each of which
    /// is alone: 80 ms of prefill. The burst stays out of the percentiles and is told apart.
    #[test]
    fn a_cold_burst_is_told_apart() {
        let burst = (1..=60).map(|place| exchange(0.0, 0.08 * f64::from(place)));
        let steady = (0..400).map(|place| exchange(5.0 + 0.1 * f64::from(place), 0.08));
        let report = Report::of(about(5.0), burst.chain(steady).collect());
        assert!((report.ttft_ms.p99 / 80.0 - 1.0).abs() < 0.15, "{:?}", report.ttft_ms);
        assert_eq!((report.warmup_ttft_ms.count, report.requests), (60, 400));
        assert!(report.warmup_ttft_ms.p99 > 4000.0);
        assert!((report.attainment - 1.0).abs() < 1e-9);
    }

    #[test]
    fn rates_are_told_from_the_steady_window() {
        // Ten a second for ten seconds; each takes half a second: five at once.
        let exchanges = (0..100).map(|place| exchange(0.1 * f64::from(place), 0.2)).collect();
        let report = Report::of(about(0.0), exchanges);
        let near = |value: f64, wanted: f64| (value / wanted - 1.0).abs() < 0.06;
        assert!(near(report.window_s, 9.9) && near(report.offered_per_s, 10.0), "{report:?}");
        assert!(near(report.answered_per_s, 9.6) && near(report.goodput_per_s, 9.6), "{report:?}");
        assert!(near(report.concurrency_mean, 4.9) && near(report.output_tokens_per_s, 106.0), "{report:?}");
        assert!((report.tpot_ms.p99 - 30.0).abs() < 1e-6 && (report.itl_ms.p50 - 30.0).abs() < 1e-6);
        assert_eq!(report.hit_rate, Some(0.4));
    }

    /// U131: failures are counted by kind, stay out of latencies, and are nobody's good answer.
    #[test]
    fn failures_are_counted_and_not_timed() {
        let mut exchanges: Vec<_> = (0..10).map(|place| exchange(f64::from(place), 0.1)).collect();
        for (place, failure) in [(1, Failure::InStream), (2, Failure::InStream), (3, Failure::Cut)] {
            exchanges[place].failure = Some(failure);
            exchanges[place].first_token_s = Some(1e6);
        }
        let report = Report::of(about(0.0), exchanges);
        assert_eq!(report.failures, BTreeMap::from([(Failure::InStream, 2), (Failure::Cut, 1)]));
        assert!((report.ttft_ms.max - 100.0).abs() < 1e-6);
        assert!((report.attainment - 0.7).abs() < 1e-9 && (report.failed_share() - 0.3).abs() < 1e-9);
    }

    #[test]
    fn replicas_are_told_apart() {
        let mut exchanges: Vec<_> = (0..10).map(|place| exchange(f64::from(place), 0.1)).collect();
        exchanges[0].replica = Some("b".to_owned());
        exchanges[0].cached_tokens = Some(0);
        let replicas = Report::of(about(0.0), exchanges).replicas;
        assert_eq!((replicas["a"].requests, replicas["a"].hit_rate), (9, Some(0.4)));
        assert_eq!((replicas["b"].requests, replicas["b"].hit_rate), (1, Some(0.0)));
    }
}
