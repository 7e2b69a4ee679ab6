//! `flotilla-load compare A B`: what changed from one run to another, and how sure that is.

use std::path::{Path, PathBuf};

use clap::Args;
use serde::Serialize;

use super::run::Report;
use crate::exchange::Exchange;
use crate::statistics::{Change, bootstrap, mean, percentile};

/// Arguments of `compare`.
#[derive(Args, Debug)]
pub struct Compare {
    /// The report of the first run (`live --json`),
    before: PathBuf,
    /// and of the second.
    after: PathBuf,
    /// Where draws come from.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Print JSON.
    #[arg(long)]
    json: bool,
    /// Fail when a figure is worse for certain, by more than this many percent.
    #[arg(long)]
    fail_above: Option<f64>,
}

/// A figure of both runs.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Row {
    /// Which.
    pub figure: &'static str,
    /// Whether more of it is better.
    pub is_more_better: bool,
    /// What became of it.
    #[serde(flatten)]
    pub change: Change,
}

/// A figure of a sorted sample.
type Figure = fn(&[f64]) -> f64;
/// What one request adds to a sample.
type Sample = fn(&Exchange, &Report) -> Option<f64>;

const P50: Figure = |sorted| percentile(sorted, 50.0);
const P99: Figure = |sorted| percentile(sorted, 99.0);
const TTFT: Sample = |exchange, _| answered(exchange)?.ttft_ms();
const TPOT: Sample = |exchange, _| answered(exchange)?.tpot_ms();
const E2E: Sample = |exchange, _| Some(answered(exchange)?.e2e_ms());
const GOOD: Sample = |exchange, report| Some(f64::from(exchange.is_good(report.about.slo())));
const HITS: Sample = |exchange, _| {
    Some(f64::from(exchange.cached_tokens?) / f64::from(answered(exchange)?.prompt_tokens.max(1)))
};

const FIGURES: [(&str, bool, Sample, Figure); 11] = [
    ("TTFT mean, ms", false, TTFT, mean),
    ("TTFT P50, ms", false, TTFT, P50),
    ("TTFT P99, ms", false, TTFT, P99),
    ("TPOT mean, ms", false, TPOT, mean),
    ("TPOT P50, ms", false, TPOT, P50),
    ("TPOT P99, ms", false, TPOT, P99),
    ("end to end mean, ms", false, E2E, mean),
    ("end to end P50, ms", false, E2E, P50),
    ("end to end P99, ms", false, E2E, P99),
    ("within SLO, share", true, GOOD, mean),
    ("prefix hits, mean share", true, HITS, mean),
];

fn answered(exchange: &Exchange) -> Option<&Exchange> {
    exchange.is_answered().then_some(exchange)
}

/// Figures that both runs have. Requests of a run are taken as independent; those of one session are not quite, so
/// that the bounds are somewhat too narrow.
pub fn rows(before: &Report, after: &Report, seed: u64) -> Vec<Row> {
    let sample = |report: &Report, of: Sample| -> Vec<f64> {
        let judged = report.exchanges.iter().filter(|one| one.intended_s >= report.about.warmup_s);
        judged.filter_map(|one| of(one, report)).collect()
    };
    FIGURES
        .into_iter()
        .filter_map(|(name, is_more_better, of, figure)| {
            let change = bootstrap(&sample(before, of), &sample(after, of), figure, seed)?;
            Some(Row { figure: name, is_more_better, change })
        })
        .collect()
}

impl Row {
    /// In a word.
    pub fn verdict(&self) -> &'static str {
        match (self.change.is_certain(), (self.change.change > 0.0) == self.is_more_better) {
            (false, _) => "not certain",
            (true, true) => "better",
            (true, false) => "worse",
        }
    }
}

/// Runs it; the error is for the user.
#[expect(clippy::print_stdout, reason = "the report is the program's output")]
pub fn run(args: &Compare) -> Result<(), String> {
    let (before, after) = (read(&args.before)?, read(&args.after)?);
    let rows = rows(&before, &after, args.seed);
    if rows.is_empty() {
        return Err("the reports hold no requests to compare".to_owned());
    }
    if args.json {
        println!("{}", serde_json::to_string_pretty(&rows).map_err(|error| error.to_string())?);
    } else {
        println!("{:<24}{:>12}{:>12}{:>10}   95 % certain", "", "before", "after", "change");
        for row in &rows {
            println!("{}", line(row));
        }
    }
    let is_too_bad = |row: &&Row| {
        row.verdict() == "worse"
            && args.fail_above.is_some_and(|above| row.change.change.abs() * 100.0 > above)
    };
    let worse: Vec<_> = rows.iter().filter(is_too_bad).map(|row| row.figure).collect();
    if worse.is_empty() { Ok(()) } else { Err(format!("worse: {}", worse.join("; "))) }
}

fn line(row: &Row) -> String {
    let Change { before, after, change, low, high } = row.change;
    format!(
        "{:<24}{before:>12.3}{after:>12.3}{:>+9.1}%   {:+.1} % to {:+.1} %  {}",
        row.figure,
        change * 100.0,
        low * 100.0,
        high * 100.0,
        row.verdict()
    )
}

/// Reads a report; the error names the file.
pub fn read(path: &Path) -> Result<Report, String> {
    let text = std::fs::read_to_string(path).map_err(|error| format!("{}: {error}", path.display()))?;
    serde_json::from_str(&text).map_err(|error| format!("{}: {error}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::run::About;

    fn report(ttft_s: f64) -> Report {
        let exchange = |place: u32| {
            let intended_s = f64::from(place);
            let first = intended_s + ttft_s * (1.0 + 0.2 * f64::from(place % 7) / 7.0);
            Exchange {
                intended_s,
                sent_s: intended_s,
                first_token_s: Some(first),
                end_s: first + 0.1,
                answer_tokens: 11,
                prompt_tokens: 10,
                ..Exchange::default()
            }
        };
        let about = About { slo_ttft_ms: 115.0, slo_tpot_ms: 100.0, ..About::default() };
        Report::of(about, (0..300).map(exchange).collect())
    }

    fn verdict(rows: &[Row], figure: &str) -> &'static str {
        rows.iter().find(|row| row.figure == figure).map_or("absent", Row::verdict)
    }

    #[test]
    fn slower_is_worse_and_the_same_is_not_certain() {
        let rows = rows(&report(0.1), &report(0.12), 1);
        assert_eq!(verdict(&rows, "TTFT P50, ms"), "worse");
        assert_eq!(verdict(&rows, "within SLO, share"), "worse");
        assert_eq!(verdict(&rows, "TPOT P50, ms"), "not certain");
        // Nobody told of a cache.
        assert_eq!(verdict(&rows, "prefix hits, mean share"), "absent");
        let faster = super::rows(&report(0.12), &report(0.1), 1);
        assert_eq!(verdict(&faster, "end to end mean, ms"), "better");
    }
}
