//! `flotilla`: the operator's command. One subcommand a module; this file only picks one.

mod doctor;
mod fleet;
mod http;
mod key;
mod machine;
mod model;
mod plan;
mod up;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// Start, feed and look after a fleet of model replicas behind one gateway.
#[derive(Parser, Debug)]
#[command(name = "flotilla", version)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand, Debug)]
enum Command {
    /// Start a gateway and replicas on this machine; Ctrl-C ends everything.
    Up(up::Args),
    /// Fetch, list and describe models.
    Model(model::Args),
    /// Say how many cards a model needs, in which layout, how fast and at what cost.
    Plan(plan::Args),
    /// Look this machine over: driver, links, limits, ports, model. Exit code 1 for warnings, 2 for faults.
    Doctor(doctor::Args),
    /// Make, list, rotate and revoke API keys.
    Key(key::Args),
    /// List, add, drain, remove and watch the replicas of a running gateway.
    Fleet(fleet::Args),
    /// Run a program that ends when its parent does (used by `up` for its children).
    #[command(hide = true)]
    Leash(up::leash::Args),
}

fn main() -> ExitCode {
    let outcome = match Cli::parse().command {
        Command::Up(args) => up::run(args),
        Command::Model(args) => model::run(&args),
        Command::Plan(args) => plan::run(&args),
        Command::Doctor(args) => doctor::run(&args),
        Command::Key(args) => key::run(&args),
        Command::Fleet(args) => fleet::run(&args),
        Command::Leash(args) => up::leash::run(&args),
    };
    match outcome {
        Ok(code) => code,
        Err(error) => {
            eprintln!("flotilla: {error}");
            ExitCode::FAILURE
        }
    }
}
