//! `flotilla doctor`: is this machine sound for what is planned?
//!
//! [`probe`] records what the machine says; [`gpu`] and [`host`] say what it means. Verdicts are pure and tested
//! on recordings of machines that nobody here has.

mod finding;
mod gpu;
mod host;
mod probe;
mod recording;
mod smi;

use std::path::PathBuf;
use std::process::ExitCode;

use serde_json::json;

use finding::{Finding, Severity, exit_code};
use recording::Recording;

/// What is planned, and what to look at.
#[derive(clap::Args, Debug)]
pub struct Args {
    /// Cards of one replica: checks that groups sit on good links.
    #[arg(long, default_value_t = 1)]
    tensor_parallel_size: u32,
    /// Accept groups whose traffic crosses CPU sockets.
    #[arg(long)]
    allow_slow_links: bool,
    /// A model's path or name.
    #[arg(long)]
    model: Option<String>,
    /// A port that should be free.
    #[arg(long, default_values_t = [8000, 9000])]
    port: Vec<u16>,
    /// A Redis that should answer, for example `redis://127.0.0.1:6379`.
    #[arg(long)]
    redis: Option<String>,
    /// A replica that should answer; may be given more than once.
    #[arg(long, value_name = "URL")]
    replica: Vec<String>,
    /// Judge this recording (made by --record) instead of this machine.
    #[arg(long, value_name = "FILE", conflicts_with = "record")]
    recording: Option<PathBuf>,
    /// Print what the machine says, for someone else to judge.
    #[arg(long)]
    record: bool,
    /// Answer with JSON on standard output.
    #[arg(long)]
    json: bool,
}

/// What verdicts depend on besides the machine.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Wish {
    ranks: u32,
    allow_slow_links: bool,
}

/// Runs the subcommand. Exit code 0: sound, 1: warnings, 2: broken.
pub fn run(args: &Args) -> Result<ExitCode, String> {
    let recording = if let Some(path) = &args.recording {
        read(path)?
    } else {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        runtime.map_err(|error| format!("cannot start: {error}"))?.block_on(probe::record(args))
    };
    if args.record {
        println!("{:#}", json!(recording));
        return Ok(ExitCode::SUCCESS);
    }
    let wish = Wish { ranks: args.tensor_parallel_size, allow_slow_links: args.allow_slow_links };
    let findings = judge(&recording, wish);
    if args.json {
        println!("{:#}", json!({"exit_code": exit_code(&findings), "findings": findings}));
    } else {
        for finding in &findings {
            println!("{finding}");
        }
        let count = |severity| findings.iter().filter(|finding| finding.severity == severity).count();
        println!("{} broken, {} warnings", count(Severity::Broken), count(Severity::Warning));
    }
    Ok(ExitCode::from(exit_code(&findings)))
}

fn judge(recording: &Recording, wish: Wish) -> Vec<Finding> {
    let mut findings = gpu::judge(recording, wish);
    findings.extend(host::judge(recording, wish));
    findings
}

fn read(path: &std::path::Path) -> Result<Recording, String> {
    let text = std::fs::read_to_string(path).map_err(|error| format!("{}: {error}", path.display()))?;
    serde_json::from_str(&text).map_err(|error| format!("{}: {error}", path.display()))
}

#[cfg(test)]
mod tests;
