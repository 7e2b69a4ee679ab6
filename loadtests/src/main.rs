//! `flotilla-load`.

use std::process::ExitCode;

use clap::{Parser, Subcommand};
use loadtests::live::command::{self as live, Live};
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
    /// Run a scenario on a simulated fleet, in virtual time.
    Sim(Sim),
    /// Serve answers of known delays, to try load testers with.
    Stub(Stub),
}

fn run(command: &Command) -> Result<(), String> {
    let runtime = || tokio::runtime::Runtime::new().map_err(|error| error.to_string());
    match command {
        Command::Live(args) => runtime()?.block_on(live::run(args)),
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
