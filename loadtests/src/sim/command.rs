//! `flotilla-load sim`: runs scenarios and prints what users would have felt.

use std::path::PathBuf;
use std::time::Instant;

use clap::Args;

use super::fleet::Simulation;
use super::policy::{NAMES, Policy};
use super::proof::{self, Table};
use super::scenario::Scenario;
use crate::exchange::Exchange;
use crate::live::command::{positive, write};
use crate::report::run::{About, Report};
use crate::report::warning::warnings;
use crate::report::{Summary, html, ms};

/// Arguments of `sim`.
#[derive(Args, Debug)]
pub struct Sim {
    /// Scenario files.
    #[arg(required = true)]
    scenarios: Vec<PathBuf>,
    /// Where all chance comes from.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// When policies are compared: the means of so many seeds.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..=10_000))]
    seeds: u64,
    /// How the gateway chooses; several, or `all`, are compared.
    #[arg(long, default_value = "expected_ttft", value_delimiter = ',')]
    policy: Vec<String>,
    /// Run at this share of the rate at which the oracle just keeps the SLO.
    #[arg(long, value_parser = positive)]
    at_capacity: Option<f64>,
    /// Write the report of one run as JSON (what `compare` reads).
    #[arg(long)]
    json: Option<PathBuf>,
    /// Write the report of one run as a page with plots.
    #[arg(long)]
    html: Option<PathBuf>,
}

/// Runs it; the error is for the user.
#[expect(clippy::print_stdout, reason = "the report is the program's output")]
pub fn run(args: &Sim) -> Result<(), String> {
    let names: Vec<_> = if args.policy == ["all"] {
        NAMES.to_vec()
    } else {
        args.policy.iter().map(String::as_str).collect()
    };
    if let Some(unknown) = names.iter().find(|name| Policy::named(name).is_none()) {
        return Err(format!("no policy is called {unknown}; there are {}", NAMES.join(", ")));
    }
    let mut broken = Vec::new();
    for path in &args.scenarios {
        let mut scenario = Scenario::read(path).map_err(|error| error.to_string())?;
        let slo = scenario.slo();
        println!("{} (good: TTFT {}, TPOT {})", scenario.about, ms(slo.ttft), ms(slo.tpot));
        if let Some(share) = args.at_capacity {
            let capacity;
            (scenario, capacity) = proof::at_capacity(&scenario, share, args.seed);
            println!("at {share} of the oracle's capacity, which is {capacity:.2} of the file's rate");
        }
        if let [name] = names[..] {
            alone(args, &scenario, name, &mut broken)?;
        } else {
            compare(args, &scenario, &names, &mut broken);
        }
    }
    if broken.is_empty() { Ok(()) } else { Err(format!("broken laws:\n{}", broken.join("\n"))) }
}

#[expect(clippy::print_stdout, reason = "the report is the program's output")]
fn compare(args: &Sim, scenario: &Scenario, names: &[&str], broken: &mut Vec<String>) {
    let seeds = args.seed..args.seed + args.seeds;
    let rows: Vec<_> = names.iter().map(|name| proof::row(scenario, name, seeds.clone(), broken)).collect();
    println!("{}", Table(&rows));
    for missed in proof::missed(&rows, args.at_capacity.is_some()) {
        println!("missed: {missed}");
    }
    println!();
}

#[expect(clippy::print_stdout, reason = "the report is the program's output")]
fn alone(args: &Sim, scenario: &Scenario, name: &str, broken: &mut Vec<String>) -> Result<(), String> {
    let began = Instant::now();
    let policy = Policy::named(name).ok_or("names are checked before")?;
    let outcome = Simulation::run(scenario, policy, args.seed);
    let slo = scenario.slo();
    println!("\n{}", Summary::of(&outcome.records, slo, outcome.span));
    println!("second tries   {}", outcome.retries);
    println!("preemptions    {}", outcome.preemptions);
    println!("virtual time   {:.1} s in {:.1} s", outcome.span.as_secs_f64(), began.elapsed().as_secs_f64());
    broken.extend(outcome.broken.iter().map(|law| format!("seed {}: {law}", args.seed)));
    let about = About {
        kind: "sim".to_owned(),
        target: format!("{} simulated replicas, {name}", scenario.replicas().count()),
        model: "fake".to_owned(),
        workload: scenario.about.clone(),
        seed: args.seed,
        tokens_by: "the simulation".to_owned(),
        slo_ttft_ms: slo.ttft.as_secs_f64() * 1e3,
        slo_tpot_ms: slo.tpot.as_secs_f64() * 1e3,
        ..About::default()
    };
    let mut report = Report::of(about, outcome.records.iter().map(Exchange::from).collect());
    report.warnings = warnings(&report);
    if let Some(path) = &args.json {
        write(path, &serde_json::to_string(&report).map_err(|error| error.to_string())?)?;
    }
    if let Some(path) = &args.html {
        write(path, &html::page(&report))?;
    }
    Ok(())
}
