//! Reads flags, then runs the gateway or asks a running one.

use clap::{Parser, Subcommand};
use gateway::config::{self, Flags};
use std::io::IsTerminal;
use std::path::PathBuf;
use std::process::ExitCode;

mod ask;

/// One OpenAI endpoint over a fleet of replicas.
#[derive(Debug, Parser)]
#[command(name = "flotilla-gateway", version)]
struct Arguments {
    /// Configuration file, TOML or YAML
    #[arg(long, global = true, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Interface of the public port
    #[arg(long, global = true)]
    host: Option<String>,
    /// The public port; 0 lets the system choose
    #[arg(long, global = true)]
    port: Option<u16>,
    /// Interface of the admin port
    #[arg(long, global = true)]
    admin_host: Option<String>,
    /// The admin port; 0 lets the system choose
    #[arg(long, global = true)]
    admin_port: Option<u16>,
    /// A replica's URL; may be given more than once
    #[arg(long = "replica", global = true, value_name = "URL")]
    replicas: Vec<String>,
    /// Threads that serve requests
    #[arg(long, global = true)]
    threads: Option<usize>,
    /// Take over from the gateway that runs with the same configuration, and let it end
    #[arg(long)]
    upgrade: bool,
    #[command(subcommand)]
    command: Option<Command>,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Say whether the configuration is right, and where not
    Check,
    /// Exit with 0 while the gateway on this machine is alive
    Health,
    /// Exit with 0 while the gateway on this machine has a replica that takes work
    Ready,
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    match run(arguments) {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            eprintln!("flotilla-gateway: {why}");
            ExitCode::FAILURE
        }
    }
}

fn run(arguments: Arguments) -> Result<(), Box<dyn std::error::Error>> {
    let flags = Flags {
        config: arguments.config,
        host: arguments.host,
        port: arguments.port,
        admin_host: arguments.admin_host,
        admin_port: arguments.admin_port,
        threads: arguments.threads,
        replicas: arguments.replicas,
    };
    let config = config::load(&flags)?;
    match arguments.command {
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
