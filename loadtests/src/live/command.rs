//! `flotilla-load live`: measures a real endpoint.

use std::num::NonZeroU32;
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::Args;

use super::connection::Connection;
use super::demand::{Asked, Demand};
use super::load::{Load, Loop};
use super::measure::measure;
use super::progress::Progress;
use super::prompt::{Counter, Words};
use crate::report::run::{About, Report};
use crate::report::{html, text, vllm};
use crate::workload::{Arrivals, Shape};

/// Arguments of `live`.
#[derive(Args, Debug)]
pub struct Live {
    #[command(flatten)]
    connection: Connection,
    #[command(flatten)]
    demand: Demand,
    /// New sessions a second, whatever the server does (open loop). Without it and `--max-concurrency`: the file's
    /// own times, or all at once.
    #[arg(long, value_parser = rate, conflicts_with = "max_concurrency")]
    request_rate: Option<f64>,
    /// The rate grows or falls evenly to this.
    #[arg(long, value_parser = rate, requires = "request_rate")]
    ramp_to: Option<f64>,
    /// Shape of the gaps: 1 Poisson, less is bursty, more even, `inf` constant.
    #[arg(long, default_value_t = 1.0, value_parser = burstiness)]
    burstiness: f64,
    /// So many sessions at once, each begun when another ends (closed loop).
    #[arg(long)]
    max_concurrency: Option<NonZeroU32>,
    /// No request begins later, in seconds.
    #[arg(long, value_parser = seconds)]
    duration: Option<f64>,
    /// Requests in the first seconds are reported apart.
    #[arg(long, default_value_t = 0.0, value_parser = seconds)]
    warmup: f64,
    #[command(flatten)]
    targets: Targets,
    /// Share of requests that may fail before the exit code says so.
    #[arg(long, default_value_t = 0.01, value_parser = share)]
    error_budget: f64,
    /// Write the report, with every request, as JSON (what `compare` and `calibrate` read).
    #[arg(long)]
    json: Option<PathBuf>,
    /// Write the report as one page with plots.
    #[arg(long)]
    html: Option<PathBuf>,
    /// Write what `vllm bench serve --save-result` would have, by its definitions.
    #[arg(long)]
    vllm_json: Option<PathBuf>,
    /// Show no progress.
    #[arg(long)]
    quiet: bool,
}

/// What counts as good.
#[derive(Args, Clone, Copy, Debug)]
pub struct Targets {
    /// Wanted time to the first token.
    #[arg(long, value_parser = positive)]
    pub ttft_ms: Option<f64>,
    /// Wanted mean time per later token.
    #[arg(long, value_parser = positive)]
    pub tpot_ms: Option<f64>,
}

impl Targets {
    /// Those given, else the scenario's, else generous ones.
    pub fn slo_ms(self, demand: &Demand) -> Result<(f64, f64), String> {
        let scenario = demand.scenario()?.map(|scenario| scenario.slo());
        let ms = |time: Duration| time.as_secs_f64() * 1e3;
        let (ttft, tpot) = scenario.map_or((2000.0, 100.0), |slo| (ms(slo.ttft), ms(slo.tpot)));
        Ok((self.ttft_ms.unwrap_or(ttft), self.tpot_ms.unwrap_or(tpot)))
    }
}

/// Runs it; the error is for the user.
#[expect(clippy::print_stdout, reason = "the report is the program's output")]
pub async fn run(args: &Live) -> Result<(), String> {
    let report = report(args).await?;
    println!("{}", text::text(&report));
    if let Some(path) = &args.json {
        write(path, &serde_json::to_string(&report).map_err(|error| error.to_string())?)?;
    }
    if let Some(path) = &args.html {
        write(path, &html::page(&report))?;
    }
    if let Some(path) = &args.vllm_json {
        write(path, &vllm::result(&report).to_string())?;
    }
    let failed = report.failed_share();
    if failed > args.error_budget {
        return Err(format!("{:.1} % of requests failed, more than --error-budget allows", failed * 100.0));
    }
    Ok(())
}

async fn report(args: &Live) -> Result<Report, String> {
    let (target, model) = args.connection.open().await?;
    let shape = if args.burstiness.is_infinite() { Shape::Constant } else { Shape::Gamma(args.burstiness) };
    let arrivals = args.request_rate.map(|per_s| Arrivals { per_s, to_per_s: args.ramp_to, shape });
    let Asked { sessions, texts, about, workload } = args.demand.ask(arrivals, args.demand.num_prompts)?;
    let words = args.connection.words(&target, &model, args.demand.seed, texts).await?;
    let about = About {
        kind: "live".to_owned(),
        target: target.base().to_owned(),
        workload: about,
        drawn: workload,
        seed: args.demand.seed,
        ..self::about(&model, &words, args.targets.slo_ms(&args.demand)?)
    };
    let load = Load {
        words,
        style: args.connection.style(&model),
        pace: args.max_concurrency.map_or(Loop::Open, Loop::Closed),
        duration: args.duration.map(Duration::from_secs_f64),
        slo: about.slo(),
        warmup: Duration::from_secs_f64(args.warmup),
        bad_max: None,
        sessions,
    };
    let requests = load.sessions.iter().map(|session| session.turns.len() as u64).sum();
    let progress = Progress::new(requests, &about.workload, args.quiet);
    Ok(measure(load, &target, &args.connection.metrics, about, &progress).await)
}

/// What every run says of itself.
pub fn about(model: &str, words: &Words, (slo_ttft_ms, slo_tpot_ms): (f64, f64)) -> About {
    let tokens_by = match words.counter {
        Counter::Local => "a local tokenizer",
        Counter::Server => "the server's /tokenize",
        Counter::Nobody => "words",
    };
    About {
        model: model.to_owned(),
        tokens_by: tokens_by.to_owned(),
        slo_ttft_ms,
        slo_tpot_ms,
        ..About::default()
    }
}

/// Writes a file; the error names it.
pub fn write(path: &Path, text: &str) -> Result<(), String> {
    std::fs::write(path, text).map_err(|error| format!("{}: {error}", path.display()))
}

fn number(text: &str, is_right: impl Fn(f64) -> bool, wanted: &str) -> Result<f64, String> {
    text.parse().ok().filter(|&value| is_right(value)).ok_or_else(|| format!("give {wanted}"))
}

/// Requests or sessions a second.
pub fn rate(text: &str) -> Result<f64, String> {
    number(text, |value| value > 0.0 && value <= 1e6, "a number a second, more than 0")
}

/// A time that is more than none.
pub fn positive(text: &str) -> Result<f64, String> {
    number(text, |value| value > 0.0 && value <= 1e9, "a number more than 0")
}

/// A time that may be none.
pub fn seconds(text: &str) -> Result<f64, String> {
    number(text, |value| (0.0..=1e6).contains(&value), "seconds, 0 or more")
}

/// A share of a whole.
pub fn share(text: &str) -> Result<f64, String> {
    number(text, |value| (0.0..=1.0).contains(&value), "a share from 0 to 1")
}

fn burstiness(text: &str) -> Result<f64, String> {
    number(text, |value| value >= 0.01, "a number from 0.01, or inf")
}
