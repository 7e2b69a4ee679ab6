//! `flotilla-load`.

use std::process::ExitCode;

use clap::{Parser, Subcommand};
use loadtests::sim::command::{self, Sim};

#[derive(Parser)]
#[command(name = "flotilla-load", version, about)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Run a scenario on a simulated fleet, in virtual time.
    Sim(Sim),
}

#[expect(clippy::print_stderr, reason = "errors of a command line go there")]
fn main() -> ExitCode {
    let Command::Sim(args) = Cli::parse().command;
    match command::run(&args) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}
