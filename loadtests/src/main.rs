//! `flotilla-load`.

use std::process::ExitCode;

use clap::{Parser, Subcommand};
use loadtests::calibration::command::{self as calibrate, Calibrate};
use loadtests::capacity::command::{self as capacity, Capacity};
use loadtests::live::command::{self as live, Live};
use loadtests::report::compare::{self, Compare};
use loadtests::sim::command::{self as sim, Sim};
use loadtests::stub::{self, Stub};

#[derive(Parser)]
#[command(name = "flotilla-load", version, about)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Measure a real endpoint.
    Live(Box<Live>),
    /// Find the highest load within an SLO; writes what `flotilla plan --measured` reads.
    Capacity(Box<Capacity>),
    /// Compare two runs.
    Compare(Compare),
    /// Print a real run beside the simulation's prediction of it.
    Calibrate(Calibrate),
    /// Run a scenario on a simulated fleet, in virtual time.
    Sim(Sim),
    /// Serve answers of known delays, to try load testers with.
    Stub(Stub),
}

fn run(command: &Command) -> Result<(), String> {
    let runtime = || tokio::runtime::Runtime::new().map_err(|error| error.to_string());
    match command {
        Command::Live(args) => runtime()?.block_on(live::run(args)),
        Command::Capacity(args) => runtime()?.block_on(capacity::run(args)),
        Command::Compare(args) => compare::run(args),
        Command::Calibrate(args) => calibrate::run(args),
        Command::Sim(args) => sim::run(args),
        Command::Stub(args) => runtime()?.block_on(stub::run(args)),
    }
}

#[expect(clippy::print_stderr, reason = "errors of a command line go there")]
fn main() -> ExitCode {
    match run(&Cli::parse().command) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}
