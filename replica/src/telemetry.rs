//! Logs and metrics of the shell. Prompts and answers are in neither.

pub mod cards;
pub mod metrics;
pub mod page;
pub mod trace;

use std::io::IsTerminal;

use crate::config::Config;

/// Sends our own log lines to standard error; of other crates only warnings, since their finer levels may quote
/// what clients sent.
pub fn init_logs(config: &Config) {
    let level = config.log_level.as_str();
    let others = if level == "error" { "error" } else { "warn" };
    let filter =
        tracing_subscriber::EnvFilter::new(format!("{others},replica={level},flotilla_replica={level}"));
    let lines = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        .with_ansi(std::io::stderr().is_terminal());
    let outcome = if config.log_json { lines.json().try_init() } else { lines.with_target(false).try_init() };
    if let Err(error) = outcome {
        eprintln!("logs are already set up: {error}");
    }
}
