//! A named situation: machines, workload, faults and what counts as good. Read from TOML.

use std::path::Path;
use std::time::Duration;

use figment::Figment;
use figment::providers::{Format, Toml};
use serde::Deserialize;
use shared::slo::Slo;

use super::fault::Troubles;
use super::replica::Machine;
use super::slo;
use crate::workload::Workload;

/// A scenario file.
#[derive(Clone, PartialEq, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Scenario {
    /// What it is about.
    pub about: String,
    /// What clients do.
    pub workload: Workload,
    /// Whether clients name their session (`x-session-affinity`).
    #[serde(default)]
    pub affinity: bool,
    /// What serves them.
    pub machines: Vec<Machine>,
    /// Replicas that step at full speed at once, where they share processors; more of them take turns.
    #[serde(default)]
    pub cores: Option<u32>,
    /// What counts as good, beside the rule for the first token.
    pub slo: Targets,
    /// What goes wrong.
    #[serde(default)]
    pub troubles: Troubles,
    /// How gateway and clients behave.
    #[serde(default)]
    pub times: Times,
}

/// The part of an SLO that is a scenario's own, in milliseconds. The first token's is a rule: [`super::slo`].
#[derive(Clone, Copy, PartialEq, Eq, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Targets {
    /// Longest mean time per later token.
    pub tpot_ms: u64,
}

/// Waits and periods in milliseconds.
#[derive(Clone, Copy, PartialEq, Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Times {
    /// From gateway to replica.
    pub hop_ms: f64,
    /// Between two reports of a replica.
    pub report_ms: u64,
    /// The gateway's patience for the first token,
    pub first_token_ms: u64,
    /// for each later one,
    pub idle_ms: u64,
    /// and the client's for the whole answer.
    pub deadline_ms: u64,
}

impl Default for Times {
    fn default() -> Self {
        Self { hop_ms: 1.0, report_ms: 1000, first_token_ms: 30_000, idle_ms: 10_000, deadline_ms: 120_000 }
    }
}

impl Scenario {
    /// Reads a file; the error names file, key and value.
    pub fn read(path: &Path) -> Result<Self, Box<figment::Error>> {
        Figment::from(Toml::file_exact(path)).extract().map_err(Box::new)
    }

    /// From text.
    pub fn parse(text: &str) -> Result<Self, Box<figment::Error>> {
        Figment::from(Toml::string(text)).extract().map_err(Box::new)
    }

    /// One entry a replica.
    pub fn replicas(&self) -> impl Iterator<Item = Machine> + '_ {
        self.machines.iter().flat_map(|machine| std::iter::repeat_n(*machine, machine.count as usize))
    }

    /// The SLO.
    pub fn slo(&self) -> Slo {
        Slo { ttft: slo::ttft(&self.workload, &self.machines), tpot: Duration::from_millis(self.slo.tpot_ms) }
    }
}
