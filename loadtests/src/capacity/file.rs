//! The file that `flotilla plan --measured` reads, and its page. Pure.

use serde_json::{Value, json};

use crate::report::html::{document, escaped, section};
use crate::report::plot::{Mark, Series, chart};
use crate::report::run::Report;
use crate::statistics::Spread;

/// One load that was tried.
#[derive(Clone, Debug)]
pub struct Trial {
    /// Sessions a second, or at once.
    pub load: f64,
    /// Whether the SLO was met.
    pub is_met: bool,
    /// What was measured.
    pub report: Report,
}

/// What is written: the best trial's figures, and all trials.
pub fn file(best: &Trial, trials: &[Trial], replicas: u32, attainment: f64) -> Value {
    let report = &best.report;
    let spread = |spread: Spread| json!({"p50": spread.p50, "p99": spread.p99});
    json!({
        "model": report.about.model,
        "endpoint": report.about.target,
        "workload": report.about.workload,
        "seed": report.about.seed,
        "slo": {"ttft_ms": report.about.slo_ttft_ms, "tpot_ms": report.about.slo_tpot_ms, "attainment": attainment},
        "rate_max_per_s": report.answered_per_s,
        "concurrency_max": report.concurrency_mean,
        "output_tokens_per_s": report.output_tokens_per_s,
        "prompt_tokens_mean": report.prompt_tokens_mean,
        "output_tokens_mean": report.output_tokens_mean,
        "hit_rate": report.hit_rate.or(report.hit_rate_metrics),
        "replicas": replicas,
        "ttft_ms": spread(report.ttft_ms),
        "tpot_ms": spread(report.tpot_ms),
        "trials": trials.iter().map(trial).collect::<Vec<_>>(),
    })
}

fn trial(trial: &Trial) -> Value {
    json!({
        "load": trial.load,
        "is_met": trial.is_met,
        "attainment": trial.report.attainment,
        "answered_per_s": trial.report.answered_per_s,
        "goodput_per_s": trial.report.goodput_per_s,
        "ttft_ms": {"p50": trial.report.ttft_ms.p50, "p99": trial.report.ttft_ms.p99},
        "tpot_ms": {"p50": trial.report.tpot_ms.p50, "p99": trial.report.tpot_ms.p99},
    })
}

/// One line a trial, for people.
pub fn line(trial: &Trial) -> String {
    let Report { answered_per_s, attainment, ttft_ms, tpot_ms, .. } = &trial.report;
    format!(
        "{:>10.2}{answered_per_s:>12.2}{:>12.1}{:>12.1}{:>12.1}{:>12.1}  {}",
        trial.load,
        attainment * 100.0,
        ttft_ms.p50,
        ttft_ms.p99,
        tpot_ms.p50,
        if trial.is_met { "met" } else { "missed" }
    )
}

/// What the lines' columns are.
pub const HEADINGS: &str = "      load  answered/s    within %    TTFT P50    TTFT P99    TPOT P50";

/// Throughput against latency, each trial a point.
pub fn page(trials: &[Trial]) -> String {
    let mut sorted: Vec<_> = trials.iter().collect();
    sorted.sort_unstable_by(|a, b| a.load.total_cmp(&b.load));
    let series = |name: &str, of: fn(&Report) -> f64| Series {
        name: name.to_owned(),
        points: sorted.iter().map(|trial| (trial.report.answered_per_s, of(&trial.report))).collect(),
        mark: Mark::Line,
    };
    let mut body = String::new();
    let ttft = [series("TTFT P50", |run| run.ttft_ms.p50), series("TTFT P99", |run| run.ttft_ms.p99)];
    section(&mut body, "Time to the first token against throughput", &chart("answers/s", "ms", &ttft));
    let tpot = [series("TPOT P50", |run| run.tpot_ms.p50), series("TPOT P99", |run| run.tpot_ms.p99)];
    section(&mut body, "Time per later token against throughput", &chart("answers/s", "ms", &tpot));
    let lines = sorted.iter().fold(HEADINGS.to_owned(), |text, trial| text + "\n" + &line(trial));
    section(&mut body, "Trials", &format!("<pre>{}</pre>", escaped(&lines)));
    let target = trials.first().map_or("", |trial| trial.report.about.target.as_str());
    document(&format!("Capacity of {target}"), &body)
}
