//! Which subcommands there are.

use std::process::ExitCode;

use clap::{Parser, Subcommand};

use crate::{compose, doctor, fleet, key, model, plan, up};

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
    /// Write a stack for containers or systemd.
    Compose(compose::Args),
    /// Make, list, rotate and revoke API keys.
    Key(key::Args),
    /// List, add, drain, remove and watch the replicas of a running gateway.
    Fleet(fleet::Args),
    /// Run a program that ends when its parent does (used by `up` for its children).
    #[command(hide = true)]
    Leash(up::leash::Args),
}

/// Runs the one that was asked for.
pub fn run() -> Result<ExitCode, String> {
    match Cli::parse().command {
        Command::Up(args) => up::run(args),
        Command::Model(args) => model::run(&args),
        Command::Plan(args) => plan::run(&args),
        Command::Doctor(args) => doctor::run(&args),
        Command::Compose(args) => compose::run(&args),
        Command::Key(args) => key::run(&args),
        Command::Fleet(args) => fleet::run(&args),
        Command::Leash(args) => up::leash::run(&args),
    }
}
