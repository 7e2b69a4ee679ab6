//! Reads flags, then runs the gateway or asks a running one.

mod ask;
mod cli;

use clap::Parser;
use cli::{Arguments, Command};
use gateway::config;
use std::io::IsTerminal;
use std::process::ExitCode;

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    match run(&arguments) {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            eprintln!("flotilla-gateway: {why}");
            ExitCode::FAILURE
        }
    }
}

fn run(arguments: &Arguments) -> Result<(), Box<dyn std::error::Error>> {
    let flags = arguments.flags();
    let config = config::load(&flags)?;
    match &arguments.command {
        Some(Command::Check) => println!("the configuration is right: {} replicas", config.replicas.len()),
        Some(Command::Health) => ask::ask(&config.admin, "/health")?,
        Some(Command::Ready) => ask::ask(&config.admin, "/ready")?,
        None => {
            let filter = tracing_subscriber::EnvFilter::new(&config.log.level);
            let is_terminal = std::io::stderr().is_terminal();
            let log = tracing_subscriber::fmt().with_env_filter(filter).with_ansi(is_terminal);
            log.with_writer(std::io::stderr).init();
            gateway::server::run(flags, config, arguments.upgrade)?;
        }
    }
    Ok(())
}
