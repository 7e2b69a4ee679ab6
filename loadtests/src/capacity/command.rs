//! `flotilla-load capacity`: finds the highest load within an SLO and writes what the planner reads.

use std::num::NonZeroU32;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, ValueEnum};

use super::file::{HEADINGS, Trial, file, line, page};
use super::search::Search;
use crate::live::command::{Targets, about, positive, rate, seconds, share, write};
use crate::live::connection::Connection;
use crate::live::demand::{Asked, Demand};
use crate::live::load::{Load, Loop};
use crate::live::measure::measure;
use crate::live::progress::Progress;
use crate::live::target::Target;
use crate::report::run::About;
use crate::workload::{Arrivals, Shape};

/// What is searched for.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum By {
    /// New sessions a second.
    Rate,
    /// Sessions at once.
    Concurrency,
}

/// Arguments of `capacity`.
#[derive(Args, Debug)]
pub struct Capacity {
    #[command(flatten)]
    connection: Connection,
    #[command(flatten)]
    demand: Demand,
    #[command(flatten)]
    targets: Targets,
    /// What to search for.
    #[arg(long, value_enum, default_value = "rate")]
    by: By,
    /// The first load to try.
    #[arg(long, default_value_t = 1.0, value_parser = rate)]
    start: f64,
    /// How well the answer is to be known, as a share of it.
    #[arg(long, default_value_t = 0.1, value_parser = share)]
    precision: f64,
    /// Most trials.
    #[arg(long, default_value_t = 12, value_parser = clap::value_parser!(u32).range(1..=100))]
    trials: u32,
    /// Length of a trial in seconds.
    #[arg(long, default_value_t = 60.0, value_parser = positive)]
    duration: f64,
    /// Seconds at the start of each trial that are not judged.
    #[arg(long, default_value_t = 10.0, value_parser = seconds)]
    warmup: f64,
    /// Share of requests that must be within the SLO.
    #[arg(long, default_value_t = 0.95, value_parser = share)]
    attainment: f64,
    /// Replicas that answer; without it as many as name themselves.
    #[arg(long)]
    replicas: Option<NonZeroU32>,
    /// Write the file for `flotilla plan --measured`.
    #[arg(long, default_value = "capacity.json")]
    out: PathBuf,
    /// Write throughput against latency as a page.
    #[arg(long)]
    html: Option<PathBuf>,
    /// Show no progress.
    #[arg(long)]
    quiet: bool,
}

/// Runs it; the error is for the user.
#[expect(clippy::print_stdout, reason = "the report is the program's output")]
pub async fn run(args: &Capacity) -> Result<(), String> {
    let (target, model) = args.connection.open().await?;
    let step = if args.by == By::Concurrency { 1.0 } else { 0.0 };
    let mut search = Search::new(args.start, args.precision, step, args.trials);
    let mut trials = Vec::new();
    println!("{HEADINGS}");
    while let Some(load) = search.next() {
        let trial = attempt(args, &target, &model, load, trials.len()).await?;
        println!("{}", line(&trial));
        search.tell(load, trial.is_met);
        trials.push(trial);
    }
    if let Some(path) = &args.html {
        write(path, &page(&trials))?;
    }
    let met = trials.iter().filter(|trial| trial.is_met);
    let best =
        met.max_by(|a, b| a.load.total_cmp(&b.load)).ok_or("no load was met: is the SLO possible at all?")?;
    let named = best.report.replicas.len().max(args.connection.metrics.len()).max(1) as u32;
    let replicas = args.replicas.map_or(named, NonZeroU32::get);
    let text = serde_json::to_string_pretty(&file(best, &trials, replicas, args.attainment));
    write(&args.out, &(text.map_err(|error| error.to_string())? + "\n"))?;
    println!(
        "\n{:.2} requests/s within the SLO, {:.1} at once, {replicas} replicas: {}",
        best.report.answered_per_s,
        best.report.concurrency_mean,
        args.out.display()
    );
    Ok(())
}

/// One trial. Each has texts of its own, so that none finds what another left in a cache.
async fn attempt(
    args: &Capacity,
    target: &Target,
    model: &str,
    load: f64,
    number: usize,
) -> Result<Trial, String> {
    let (arrivals, pace, sessions) = match args.by {
        By::Rate => {
            let arrivals = Arrivals { per_s: load, to_per_s: None, shape: Shape::Poisson };
            (Some(arrivals), Loop::Open, (load * args.duration).ceil().max(1.0) as u32)
        }
        By::Concurrency => {
            let clients = NonZeroU32::new(load as u32).unwrap_or(NonZeroU32::MIN);
            (None, Loop::Closed(clients), args.demand.num_prompts.max(clients.get()))
        }
    };
    let seed = args.demand.seed.wrapping_add(number as u64);
    let Asked { sessions, texts, about: workload, .. } =
        Demand { seed, ..args.demand.clone() }.ask(arrivals, sessions)?;
    let words = args.connection.words(target, model, seed, texts).await?;
    let about = About {
        kind: "live".to_owned(),
        target: target.base().to_owned(),
        workload,
        seed,
        ..about(model, &words, args.targets.slo_ms(&args.demand)?)
    };
    let requests = sessions.iter().map(|session| session.turns.len()).sum::<usize>();
    let run = Load {
        words,
        style: args.connection.style(model),
        pace,
        duration: Some(Duration::from_secs_f64(args.duration)),
        slo: about.slo(),
        warmup: Duration::from_secs_f64(args.warmup),
        bad_max: Some(((1.0 - args.attainment) * requests as f64) as usize + 1),
        sessions,
    };
    let progress = Progress::new(requests as u64, &format!("at {load:.2}"), args.quiet);
    let report = measure(run, target, &args.connection.metrics, about, &progress).await;
    let is_met = report.requests > 0 && report.attainment >= args.attainment;
    Ok(Trial { load, is_met, report })
}
