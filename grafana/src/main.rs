//! `flotilla-boards`: writes dashboards and rules, and draws boards from a Prometheus' answers.

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::{Parser, Subcommand};
use grafana::prometheus::Prometheus;
use grafana::{boards, draw, files};

#[derive(Parser)]
#[command(name = "flotilla-boards", about = "Dashboards and Prometheus rules of Flotilla")]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Writes dashboards, rules and provisioning files below a folder.
    Write {
        /// The folder.
        folder: PathBuf,
    },
    /// Draws every board as SVG from what a Prometheus knows now: to look at boards without a Grafana.
    Draw {
        /// Where SVG files go.
        folder: PathBuf,
        /// Where the Prometheus listens.
        #[arg(long, default_value = "127.0.0.1:9090")]
        prometheus: String,
        /// How far back, in seconds.
        #[arg(long, default_value_t = 1800)]
        seconds: u64,
    },
}

fn main() -> ExitCode {
    let done = match Cli::parse().command {
        Command::Write { folder } => files::write(&folder).map_err(|error| error.to_string()),
        Command::Draw { folder, prometheus, seconds } => {
            draw::write(&folder, &boards::all(), &Prometheus(prometheus), Duration::from_secs(seconds))
        }
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            eprintln!("{why}");
            ExitCode::FAILURE
        }
    }
}
