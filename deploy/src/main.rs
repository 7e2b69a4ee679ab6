//! `flotilla`: the operator's command. One subcommand a module; [`cli`] picks one.

mod cli;
mod compose;
mod doctor;
mod fleet;
mod http;
mod key;
mod machine;
mod model;
mod plan;
mod up;

use std::process::ExitCode;

fn main() -> ExitCode {
    cli::run().unwrap_or_else(|error| {
        eprintln!("flotilla: {error}");
        ExitCode::FAILURE
    })
}
