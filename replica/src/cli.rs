//! What may stand on the command line.

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand};
use replica::config::{Config, RawConfig, load};

/// Serves one model with OpenAI's API.
#[derive(Parser)]
#[command(name = "flotilla-replica", version = env!("FLOTILLA_VERSION"), allow_negative_numbers = true)]
pub struct Cli {
    #[command(flatten)]
    pub options: Options,
    #[command(subcommand)]
    pub command: Option<Command>,
}

#[derive(Args)]
pub struct Options {
    /// A TOML or YAML file of options
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    #[command(flatten)]
    pub flags: RawConfig,
}

impl Options {
    /// The configuration they and all layers below make.
    pub fn load(&self) -> Result<Config, String> {
        load(self.config.as_deref(), &self.flags).map_err(|error| error.to_string())
    }
}

#[derive(Subcommand)]
pub enum Command {
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
