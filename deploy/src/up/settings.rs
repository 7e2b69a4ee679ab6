//! What `flotilla up` is told: flags over environment over file over defaults.

use std::ffi::OsString;
use std::net::IpAddr;
use std::path::PathBuf;

use figment::Figment;
use figment::providers::{Env, Format, Serialized, Toml, Yaml};
use serde::{Deserialize, Serialize};

/// Flags of `flotilla up`.
#[derive(clap::Args, Clone, Debug, Default)]
pub struct Args {
    /// TOML or YAML file with these settings.
    #[arg(long)]
    config: Option<PathBuf>,
    #[command(flatten)]
    flags: Raw,
    /// Flags for every replica, after `--`.
    #[arg(last = true)]
    replica_flags: Vec<OsString>,
}

/// What was written, wherever it was written. A file's key is the flag's name with underscores; a variable is
/// `FLOTILLA__UP__` and the key in capitals.
#[derive(clap::Args, Clone, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Raw {
    /// GGUF file, Hugging Face folder, name of a known model, or `fake` [default: SmolLM2-135M-Instruct].
    #[arg(long)]
    #[serde(skip_serializing_if = "Option::is_none")]
    model: Option<String>,
    /// How many replicas [default: one a group of cards; 2 on a machine without].
    #[arg(long)]
    #[serde(skip_serializing_if = "Option::is_none")]
    replicas: Option<u32>,
    /// Where the gateway listens [default: 127.0.0.1].
    #[arg(long)]
    #[serde(skip_serializing_if = "Option::is_none")]
    host: Option<IpAddr>,
    /// The gateway's port [default: 8000].
    #[arg(long)]
    #[serde(skip_serializing_if = "Option::is_none")]
    port: Option<u16>,
    /// The gateway's admin port [default: 9000, or a free one when 9000 is taken].
    #[arg(long)]
    #[serde(skip_serializing_if = "Option::is_none")]
    admin_port: Option<u16>,
    /// Cards (or CPU ranks) of one replica [default: 1].
    #[arg(long)]
    #[serde(skip_serializing_if = "Option::is_none")]
    tensor_parallel_size: Option<u32>,
}

/// What the program relies on.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Settings {
    /// The model's word; `None` for the default one.
    pub model: Option<String>,
    /// How many replicas; `None` for as many as fit the machine.
    pub replicas: Option<u32>,
    /// Where the gateway listens.
    pub host: IpAddr,
    /// The gateway's port.
    pub port: u16,
    /// The gateway's admin port, where someone fixed it.
    pub admin_port: Option<u16>,
    /// Ranks of one replica.
    pub tensor_parallel_size: u32,
    /// Passed to every replica as they are.
    pub replica_flags: Vec<OsString>,
}

impl Settings {
    /// Gathers them.
    ///
    /// # Errors
    ///
    /// When a file can't be read or a key is unknown or has the wrong type: which one.
    pub fn gather(args: Args) -> Result<Self, String> {
        let mut figment = Figment::from(Serialized::defaults(Raw::default()));
        if let Some(path) = &args.config {
            if !path.is_file() {
                return Err(format!("--config {}: there is no such file", path.display()));
            }
            let is_yaml = path.extension().is_some_and(|extension| extension == "yaml" || extension == "yml");
            figment = if is_yaml { figment.merge(Yaml::file(path)) } else { figment.merge(Toml::file(path)) };
        }
        let figment = figment.merge(Env::prefixed("FLOTILLA__UP__")).merge(Serialized::defaults(args.flags));
        let raw = figment.extract().map_err(|error| error.to_string())?;
        Ok(Self::complete(raw, args.replica_flags))
    }

    fn complete(raw: Raw, replica_flags: Vec<OsString>) -> Self {
        Self {
            model: raw.model,
            replicas: raw.replicas,
            host: raw.host.unwrap_or(IpAddr::from([127, 0, 0, 1])),
            port: raw.port.unwrap_or(8000),
            admin_port: raw.admin_port,
            tensor_parallel_size: raw.tensor_parallel_size.unwrap_or(1),
            replica_flags,
        }
    }

    /// The value of a flag among those passed to replicas, as `--flag VALUE` or `--flag=VALUE`.
    pub fn replica_flag(&self, flag: &str) -> Option<&str> {
        let mut words = self.replica_flags.iter().filter_map(|word| word.to_str());
        while let Some(word) = words.next() {
            if word == flag {
                return words.next();
            }
            if let Some(value) = word.strip_prefix(flag).and_then(|rest| rest.strip_prefix('=')) {
                return Some(value);
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with_file(text: &str, flags: Raw) -> Result<Settings, String> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("up.toml");
        std::fs::write(&path, text).unwrap();
        Settings::gather(Args { config: Some(path), flags, replica_flags: Vec::new() })
    }

    #[test]
    fn a_flag_wins_over_the_file_and_the_file_over_defaults() {
        let flags = Raw { port: Some(3), ..Raw::default() };
        let settings = with_file("port = 2\nreplicas = 5\n", flags).unwrap();
        assert_eq!((settings.port, settings.replicas), (3, Some(5)));
        assert_eq!(settings.host.to_string(), "127.0.0.1");
    }

    #[test]
    fn the_example_parses() {
        let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("config/up.toml");
        let settings = Settings::gather(Args { config: Some(path), ..Args::default() }).unwrap();
        assert_eq!((settings.port, settings.replicas), (8000, Some(2)));
    }

    #[test]
    fn an_unknown_key_and_a_wrong_type_are_named() {
        let message = with_file("replica = 5\n", Raw::default()).unwrap_err();
        assert!(message.contains("replica") && message.contains("replicas"), "{message}");
        let message = with_file("port = 70000\n", Raw::default()).unwrap_err();
        assert!(message.contains("port"), "{message}");
    }

    #[test]
    fn a_replicas_flag_is_found_in_both_spellings() {
        let words = ["--seed", "7", "--threads=3"].map(OsString::from).to_vec();
        let settings = Settings::complete(Raw::default(), words);
        assert_eq!(settings.replica_flag("--seed"), Some("7"));
        assert_eq!(settings.replica_flag("--threads"), Some("3"));
        assert_eq!(settings.replica_flag("--device"), None);
    }
}
