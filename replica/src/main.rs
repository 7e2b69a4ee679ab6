//! `flotilla-replica`: reads what it is told, then runs.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, Parser, Subcommand};
use replica::api::probe;
use replica::config::{RawConfig, load};

/// Serves one model with OpenAI's API.
#[derive(Parser)]
#[command(name = "flotilla-replica", version, allow_negative_numbers = true)]
struct Cli {
    #[command(flatten)]
    options: Options,
    #[command(subcommand)]
    command: Option<Command>,
}

#[derive(Args)]
struct Options {
    /// A TOML or YAML file of options
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    #[command(flatten)]
    flags: RawConfig,
}

#[derive(Subcommand)]
enum Command {
    /// Exit with 0 while a replica lives, draining too
    #[command(allow_negative_numbers = true)]
    Health(Options),
    /// Exit with 0 while a replica takes work
    #[command(allow_negative_numbers = true)]
    Ready(Options),
    /// Say what is wrong with the options, and exit
    #[command(allow_negative_numbers = true)]
    Check(Options),
}

fn main() -> ExitCode {
    let Cli { options, command } = Cli::parse();
    let outcome = match command {
        None => load(options.config.as_deref(), &options.flags)
            .map(replica::run::run)
            .map_err(|error| error.to_string()),
        Some(Command::Check(options)) => load(options.config.as_deref(), &options.flags)
            .map(|_| ExitCode::SUCCESS)
            .map_err(|error| error.to_string()),
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
    let config = load(options.config.as_deref(), &options.flags).map_err(|error| error.to_string())?;
    probe::get(&config.host, config.port, path).map(|()| ExitCode::SUCCESS)
}
