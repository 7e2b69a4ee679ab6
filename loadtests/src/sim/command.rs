//! `flotilla-load sim`: runs a scenario and prints what users would have felt.

use std::path::PathBuf;
use std::time::Instant;

use clap::Args;

use super::fleet::{Outcome, Simulation};
use super::policy::{NAMES, Policy};
use super::scenario::Scenario;
use crate::report::{Summary, ms};

/// Arguments of `sim`.
#[derive(Args, Debug)]
pub struct Sim {
    /// A scenario file.
    scenario: PathBuf,
    /// Where all chance comes from.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// How the gateway chooses; several, or `all`, are compared.
    #[arg(long, default_value = "expected_ttft", value_delimiter = ',')]
    policy: Vec<String>,
}

/// Runs it; the error is for the user.
#[expect(clippy::print_stdout, reason = "the report is the program's output")]
pub fn run(args: &Sim) -> Result<(), String> {
    let scenario = Scenario::read(&args.scenario).map_err(|error| error.to_string())?;
    let names: Vec<_> = if args.policy == ["all"] {
        NAMES.to_vec()
    } else {
        args.policy.iter().map(String::as_str).collect()
    };
    if names.len() > 1 {
        println!("{}\n{:<16}{}", scenario.about, "policy", HEADINGS);
    }
    let mut broken = Vec::new();
    for name in &names {
        let policy = Policy::named(name)
            .ok_or_else(|| format!("no policy is called {name}; there are {}", NAMES.join(", ")))?;
        let began = Instant::now();
        let outcome = Simulation::run(&scenario, policy, args.seed);
        let summary = Summary::of(&outcome.records, scenario.slo(), outcome.span);
        if names.len() > 1 {
            println!("{name:<16}{}", line(&summary, &outcome));
        } else {
            println!("{}\n\n{summary}", scenario.about);
            println!("second tries   {}", outcome.retries);
            println!("preemptions    {}", outcome.preemptions);
            println!(
                "virtual time   {:.1} s in {:.1} s",
                outcome.span.as_secs_f64(),
                began.elapsed().as_secs_f64()
            );
        }
        broken.extend(outcome.broken);
    }
    if broken.is_empty() {
        return Ok(());
    }
    Err(format!("seed {} breaks laws:\n{}", args.seed, broken.join("\n")))
}

const HEADINGS: &str =
    "  answered  hits %    TTFT P50    TTFT P99    TPOT P99  goodput/s  retries  preemptions";

fn line(summary: &Summary, outcome: &Outcome) -> String {
    format!(
        "{:>10}{:>8.1}{:>12}{:>12}{:>12}{:>11.2}{:>9}{:>13}",
        summary.ends[0],
        summary.hit_rate * 100.0,
        ms(summary.ttft.0),
        ms(summary.ttft.1),
        ms(summary.tpot.1),
        summary.goodput_per_s,
        outcome.retries,
        outcome.preemptions,
    )
}
