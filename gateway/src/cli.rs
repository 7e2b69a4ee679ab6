//! What may stand on the command line.

use clap::{Parser, Subcommand};
use gateway::config::Flags;
use std::path::PathBuf;

/// One OpenAI endpoint over a fleet of replicas.
#[derive(Debug, Parser)]
#[command(name = "flotilla-gateway", version)]
pub struct Arguments {
    /// Configuration file, TOML or YAML
    #[arg(long, global = true, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// Interface of the public port
    #[arg(long, global = true)]
    pub host: Option<String>,
    /// The public port; 0 lets the system choose
    #[arg(long, global = true)]
    pub port: Option<u16>,
    /// Interface of the admin port
    #[arg(long, global = true)]
    pub admin_host: Option<String>,
    /// The admin port; 0 lets the system choose
    #[arg(long, global = true)]
    pub admin_port: Option<u16>,
    /// A replica's URL; may be given more than once
    #[arg(long = "replica", global = true, value_name = "URL")]
    pub replicas: Vec<String>,
    /// Threads that serve requests
    #[arg(long, global = true)]
    pub threads: Option<usize>,
    /// Collector that gets a trace of each request (OTLP over HTTP)
    #[arg(long, global = true, value_name = "URL")]
    pub otlp_traces_endpoint: Option<String>,
    /// Take over from the gateway that runs with the same configuration, and let it end
    #[arg(long)]
    pub upgrade: bool,
    #[command(subcommand)]
    pub command: Option<Command>,
}

#[derive(Debug, Subcommand)]
pub enum Command {
    /// Say whether the configuration is right, and where not
    Check,
    /// Exit with 0 while the gateway on this machine is alive
    Health,
    /// Exit with 0 while the gateway on this machine has a replica that takes work
    Ready,
}

impl Arguments {
    /// The part of them that is configuration.
    pub fn flags(&self) -> Flags {
        Flags {
            config: self.config.clone(),
            host: self.host.clone(),
            port: self.port,
            admin_host: self.admin_host.clone(),
            admin_port: self.admin_port,
            threads: self.threads,
            traces_endpoint: self.otlp_traces_endpoint.clone(),
            replicas: self.replicas.clone(),
        }
    }
}
