//! `flotilla-load calibrate`: prints what real runs came to beside what the simulation predicts of them.

use std::path::{Path, PathBuf};

use clap::Args;

use super::fit::Fit;
use super::prediction::predict;
use crate::live::command::positive;
use crate::report::run::Report;
use crate::sim::policy::{NAMES, Policy};
use crate::sim::scenario::Scenario;

/// Arguments of `calibrate`.
#[derive(Args, Debug)]
pub struct Calibrate {
    /// Reports of real runs at a given rate (`live --json`).
    #[arg(required = true)]
    runs: Vec<PathBuf>,
    /// Reports of runs through a gateway of ours that say how fast the replicas are; without them each run says it of
    /// itself.
    #[arg(long)]
    from: Vec<PathBuf>,
    /// A scenario with the machines as they are: how many, their KV pools and limits, processors that they share.
    #[arg(long)]
    machines: PathBuf,
    /// How the real gateway chose.
    #[arg(long, default_value = "expected_ttft")]
    policy: String,
    /// How far off a prediction may be, in percent, before the exit code says so.
    #[arg(long, default_value_t = 15.0, value_parser = positive)]
    within: f64,
}

/// Runs it; the error is for the user.
#[expect(clippy::print_stdout, reason = "the report is the program's output")]
pub fn run(args: &Calibrate) -> Result<(), String> {
    let scenario = Scenario::read(&args.machines).map_err(|error| error.to_string())?;
    let cores = f64::from(scenario.cores.unwrap_or(u32::MAX));
    let from = args.from.iter().map(|path| read(path)).collect::<Result<Vec<_>, _>>()?;
    let given = if from.is_empty() { None } else { Some(Fit::of_runs(&from, cores)?) };
    let mut off = Vec::new();
    for path in &args.runs {
        let real = read(path)?;
        let name = path.display();
        let workload = real.about.drawn.clone();
        let workload = workload.ok_or_else(|| format!("{name} does not say which sessions it asked"))?;
        let policy = Policy::named(&args.policy)
            .ok_or_else(|| format!("no policy is called {}; there are {}", args.policy, NAMES.join(", ")))?;
        let fit = match given {
            Some(fit) => fit,
            None => Fit::of(&real.exchanges, cores).map_err(|error| format!("{name}: {error}"))?,
        };
        let (predicted, broken) = predict(&real, &workload, &scenario, &fit, policy);
        println!("{name}\n{fit}\n{}", table(&real, &predicted));
        off.extend(broken.into_iter().map(|law| format!("{name}: {law}")));
        off.extend(misses(&real, &predicted, args.within).map(|miss| format!("{name}: {miss}")));
    }
    if off.is_empty() { Ok(()) } else { Err(off.join("\n")) }
}

fn read(path: &Path) -> Result<Report, String> {
    let text = std::fs::read_to_string(path).map_err(|error| format!("{}: {error}", path.display()))?;
    serde_json::from_str(&text).map_err(|error| format!("{}: {error}", path.display()))
}

/// A figure of both runs.
type Figure = (&'static str, fn(&Report) -> f64);

/// Those that are promised, then those that are shown.
const PROMISED: [Figure; 2] = [("prefix hits, %", hits), ("TTFT P50, ms", |report| report.ttft_ms.p50)];
const SHOWN: [Figure; 5] = [
    ("TTFT mean, ms", |report| report.ttft_ms.mean),
    ("TTFT P99, ms", |report| report.ttft_ms.p99),
    ("TPOT P50, ms", |report| report.tpot_ms.p50),
    ("prompt tokens", |report| report.prompt_tokens_mean),
    ("requests", |report| report.requests as f64),
];

fn hits(report: &Report) -> f64 {
    report.hit_rate.or(report.hit_rate_metrics).unwrap_or(0.0) * 100.0
}

fn off_percent(real: f64, predicted: f64) -> f64 {
    (predicted / real.max(1e-9) - 1.0) * 100.0
}

fn table(real: &Report, predicted: &Report) -> String {
    let line = |(name, of): &Figure| {
        let (real, predicted) = (of(real), of(predicted));
        let off = off_percent(real, predicted);
        format!("{name:<16}{real:>10.1}{predicted:>12.1}{off:>+9.1} %\n")
    };
    let lines: String = PROMISED.iter().chain(&SHOWN).map(line).collect();
    format!("{:<16}{:>10}{:>12}{:>11}\n{lines}", "", "real", "predicted", "off")
}

fn misses(real: &Report, predicted: &Report, within: f64) -> impl Iterator<Item = String> {
    let off = |(name, of): &Figure| (*name, off_percent(of(real), of(predicted)));
    let off: Vec<_> = PROMISED.iter().map(off).collect();
    // What is no number is a miss.
    let far = off.into_iter().filter(move |(_, off)| off.is_nan() || off.abs() > within);
    far.map(move |(name, off)| format!("{name}: {off:+.1} %, more than {within} %"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::statistics::Spread;

    fn report(hit_rate: f64, ttft_ms: f64) -> Report {
        let ttft_ms = Spread { p50: ttft_ms, ..Spread::default() };
        Report { hit_rate: Some(hit_rate), ttft_ms, ..Report::default() }
    }

    #[test]
    fn what_is_promised_is_held_to_its_bound() {
        let misses = |hit_rate, ttft_ms| {
            misses(&report(0.6, 100.0), &report(hit_rate, ttft_ms), 15.0).collect::<Vec<_>>()
        };
        assert!(misses(0.66, 87.0).is_empty());
        assert_eq!(misses(0.72, 100.0), ["prefix hits, %: +20.0 %, more than 15 %"]);
        assert_eq!(misses(0.6, 80.0).len() + misses(0.4, 120.0).len(), 3);
        assert_eq!(misses(0.6, f64::NAN).len(), 1);
    }
}
