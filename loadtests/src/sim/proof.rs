//! Policies side by side on one scenario, and whether ours holds what is promised of it. Pure, but for the runs.

use std::fmt;

use shared::slo::Slo;

use super::fleet::{Outcome, Simulation};
use super::policy::Policy;
use super::scenario::Scenario;
use crate::capacity::search::Search;
use crate::report::Summary;

/// Least share of the oracle's hits.
const HITS_MIN: f64 = 0.97;
/// Most of the oracle's 99th percentile of the time to the first token.
const TTFT_P99_MAX: f64 = 1.1;
/// Least share of the best other policy's goodput.
const GOODPUT_MIN: f64 = 0.98;
/// Least goodput as a multiple of round robin's.
const ROUND_ROBIN_MIN: f64 = 1.3;
/// Below this share of hits prompts share too little for a router to win by it.
const SHARED_MIN: f64 = 0.5;
/// Share of requests within the SLO at which a fleet counts as able.
const ATTAINMENT: f64 = 0.95;
/// How well the oracle's capacity is found.
const PRECISION: f64 = 0.04;
/// Most runs to find it.
const TRIALS: u32 = 14;

/// One policy's figures, means over the seeds.
#[derive(Clone, Debug, Default)]
pub struct Row {
    /// Which policy.
    pub policy: String,
    /// Requests answered.
    pub answered: f64,
    /// Share of prompt tokens found in a cache.
    pub hit_rate: f64,
    /// Time to the first token, milliseconds: median,
    pub ttft_p50: f64,
    /// and 99th percentile.
    pub ttft_p99: f64,
    /// Time per later token, 99th percentile.
    pub tpot_p99: f64,
    /// Answers within the SLO a second.
    pub goodput_per_s: f64,
    /// Second tries.
    pub retries: f64,
    /// Sequences that gave their blocks back.
    pub preemptions: f64,
}

/// Runs a policy over seeds; adds broken laws to `broken`.
pub fn row(scenario: &Scenario, name: &str, seeds: std::ops::Range<u64>, broken: &mut Vec<String>) -> Row {
    let share = 1.0 / (seeds.end - seeds.start) as f64;
    let mut row = Row { policy: name.to_owned(), ..Row::default() };
    let slo = scenario.slo();
    for seed in seeds {
        let (summary, outcome) = run(scenario, name, slo, seed);
        let ms = |time: std::time::Duration| time.as_secs_f64() * 1e3 * share;
        row.answered += summary.ends[0] as f64 * share;
        row.hit_rate += summary.hit_rate * share;
        row.ttft_p50 += ms(summary.ttft.0);
        row.ttft_p99 += ms(summary.ttft.1);
        row.tpot_p99 += ms(summary.tpot.1);
        row.goodput_per_s += summary.goodput_per_s * share;
        row.retries += outcome.retries as f64 * share;
        row.preemptions += outcome.preemptions as f64 * share;
        broken.extend(outcome.broken.iter().map(|law| format!("seed {seed}: {law}")));
    }
    row
}

fn run(scenario: &Scenario, name: &str, slo: Slo, seed: u64) -> (Summary, Outcome) {
    let policy = Policy::named(name).expect("names are checked before");
    let outcome = Simulation::run(scenario, policy, seed);
    (Summary::of(&outcome.records, slo, outcome.span), outcome)
}

/// The scenario at a share of the highest rate at which the oracle keeps the SLO, and that rate's multiple of the
/// file's.
pub fn at_capacity(scenario: &Scenario, share: f64, seed: u64) -> (Scenario, f64) {
    let slo = scenario.slo();
    let mut search = Search::new(1.0, PRECISION, 0.0, TRIALS);
    while let Some(factor) = search.next() {
        let scenario = sped(scenario, factor);
        let outcome = Simulation::run(&scenario, Policy::Oracle, seed);
        let good = outcome.records.iter().filter(|record| record.is_good(slo)).count();
        search.tell(factor, good as f64 >= ATTAINMENT * outcome.records.len() as f64);
    }
    let capacity = search.met().unwrap_or(1.0);
    (sped(scenario, capacity * share), capacity)
}

fn sped(scenario: &Scenario, factor: f64) -> Scenario {
    let mut scenario = scenario.clone();
    let arrivals = &mut scenario.workload.arrivals;
    arrivals.per_s *= factor;
    arrivals.to_per_s = arrivals.to_per_s.map(|rate| rate * factor);
    // As long as before: a rush that is over soon is no load.
    scenario.workload.sessions = (f64::from(scenario.workload.sessions) * factor).ceil().max(1.0) as u32;
    scenario
}

/// What is promised of `expected_ttft` and not held by these rows. The multiple of round robin's goodput is promised at
/// 0.9 of the oracle's capacity only.
pub fn missed(rows: &[Row], is_loaded: bool) -> Vec<String> {
    let named = |name: &str| rows.iter().find(|row| row.policy == name);
    let (Some(ours), Some(oracle)) = (named("expected_ttft"), named("oracle")) else { return Vec::new() };
    let others = rows.iter().filter(|row| row.policy != "expected_ttft" && row.policy != "oracle");
    let best = others.map(|row| row.goodput_per_s).fold(0.0, f64::max);
    let mut missed = Vec::new();
    let mut demand = |is_held: bool, what: String| {
        if !is_held {
            missed.push(what);
        }
    };
    let hits = ours.hit_rate / oracle.hit_rate.max(1e-9);
    demand(hits >= HITS_MIN, format!("hits {:.1} % of the oracle's", hits * 100.0));
    let p99 = ours.ttft_p99 / oracle.ttft_p99.max(1e-9);
    demand(p99 <= TTFT_P99_MAX, format!("TTFT P99 {p99:.2} of the oracle's"));
    let goodput = ours.goodput_per_s / best.max(1e-9);
    demand(goodput >= GOODPUT_MIN, format!("goodput {:.1} % of the best other's", goodput * 100.0));
    if let Some(round_robin) = named("round_robin").filter(|_| is_loaded && oracle.hit_rate >= SHARED_MIN) {
        let gain = ours.goodput_per_s / round_robin.goodput_per_s.max(1e-9);
        demand(gain >= ROUND_ROBIN_MIN, format!("goodput {gain:.2} of round robin's"));
    }
    missed
}

/// Rows under their headings.
#[derive(Debug)]
pub struct Table<'a>(pub &'a [Row]);

impl fmt::Display for Table<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let oracle = self.0.iter().find(|row| row.policy == "oracle");
        let of_oracle = |of: fn(&Row) -> f64, row: &Row| {
            oracle.map_or_else(|| "-".to_owned(), |oracle| format!("{:.2}", of(row) / of(oracle).max(1e-9)))
        };
        writeln!(
            f,
            "{:<16}{:>9}{:>8}{:>10}{:>11}{:>11}{:>10}{:>11}{:>11}{:>9}{:>9}",
            "policy",
            "answered",
            "hits %",
            "of oracle",
            "TTFT P50",
            "P99 ms",
            "of oracle",
            "TPOT P99",
            "goodput/s",
            "retries",
            "preempt"
        )?;
        for row in self.0 {
            writeln!(
                f,
                "{:<16}{:>9.0}{:>8.1}{:>10}{:>11.1}{:>11.1}{:>10}{:>11.1}{:>11.2}{:>9.0}{:>9.0}",
                row.policy,
                row.answered,
                row.hit_rate * 100.0,
                of_oracle(|row| row.hit_rate, row),
                row.ttft_p50,
                row.ttft_p99,
                of_oracle(|row| row.ttft_p99, row),
                row.tpot_p99,
                row.goodput_per_s,
                row.retries,
                row.preemptions
            )?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(policy: &str, hit_rate: f64, ttft_p99: f64, goodput_per_s: f64) -> Row {
        Row { policy: policy.to_owned(), hit_rate, ttft_p99, goodput_per_s, ..Row::default() }
    }

    fn check(ours: (f64, f64, f64), is_loaded: bool, parts: &[&str]) {
        let rows = [
            row("expected_ttft", ours.0, ours.1, ours.2),
            row("round_robin", 0.5, 500.0, 7.5),
            row("oracle", 0.9, 100.0, 10.0),
        ];
        let missed = missed(&rows, is_loaded);
        assert_eq!(missed.len(), parts.len(), "{missed:?}");
        assert!(missed.iter().zip(parts).all(|(missed, part)| missed.contains(part)), "{missed:?}");
    }

    #[test]
    fn each_promise_is_checked_by_itself() {
        check((0.88, 109.0, 10.0), true, &[]);
        check((0.87, 109.0, 10.0), true, &["hits"]);
        check((0.88, 111.0, 10.0), true, &["TTFT P99"]);
        check((0.88, 109.0, 9.0), true, &["round robin"]);
        check((0.88, 109.0, 9.0), false, &[]);
        check((0.88, 109.0, 7.0), false, &["best other"]);
    }
}
