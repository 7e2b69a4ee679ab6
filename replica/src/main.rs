//! `flotilla-replica`: reads what it is told, then runs.

mod cli;

use std::process::ExitCode;

use clap::Parser;
use cli::{Cli, Command, Options};
use replica::api::probe;

fn main() -> ExitCode {
    let Cli { options, command } = Cli::parse();
    let outcome = match command {
        None => options.load().map(replica::run::run),
        Some(Command::Check(options)) => options.load().map(|_| ExitCode::SUCCESS),
        Some(Command::Health(options)) => ask(options, "/health"),
        Some(Command::Ready(options)) => ask(options, "/ready"),
    };
    outcome.unwrap_or_else(|reason| {
        eprintln!("error: {reason}");
        ExitCode::FAILURE
    })
}

fn ask(mut options: Options, path: &str) -> Result<ExitCode, String> {
    // Only the address matters here: no model need be named.
    options.flags.model.get_or_insert_with(|| "fake".to_owned());
    let config = options.load()?;
    probe::get(&config.host, config.port, path).map(|()| ExitCode::SUCCESS)
}
