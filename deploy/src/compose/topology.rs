//! What a stack consists of: one file, from which every rendering is made. Pure.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// Image names carry our version: `latest` says nothing.
const VERSION: &str = env!("CARGO_PKG_VERSION");

/// As it is written.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Topology {
    /// The stack's name.
    pub name: String,
    /// The model: a GGUF file or a Hugging Face folder on the host, or `fake` with its delays.
    pub model: String,
    /// What clients call it; absent: by its file's or folder's name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub served_model_name: Option<String>,
    /// Bytes of its weights: how long a start may take follows from them.
    #[serde(default)]
    pub weight_bytes: u64,
    /// The gateway.
    pub gateway: GatewayPart,
    /// The replicas, in order.
    pub replicas: Vec<ReplicaPart>,
    /// How containers get their cards.
    #[serde(default)]
    pub gpu_access: GpuAccess,
    /// A Prometheus beside the fleet.
    #[serde(default)]
    pub monitoring: bool,
    /// A Redis that several gateways share.
    #[serde(default)]
    pub redis: bool,
}

/// The gateway's part.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct GatewayPart {
    /// Its image.
    pub image: String,
    /// Its port on every interface.
    pub port: u16,
    /// Its admin port, on loopback.
    pub admin_port: u16,
}

/// One replica's part.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ReplicaPart {
    /// Its service's name.
    pub name: String,
    /// Its image.
    pub image: String,
    /// UUIDs of its cards; none: CPU.
    #[serde(default)]
    pub cards: Vec<String>,
    /// Its threads.
    pub threads: u32,
    /// Its KV memory. Replicas that share a card must have it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kv_bytes: Option<u64>,
    /// Longest sequence, in tokens; absent: the model's own limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub context_tokens: Option<u32>,
    /// Seconds that its answers get to finish.
    #[serde(default = "drain_seconds")]
    pub drain_seconds: u32,
}

fn drain_seconds() -> u32 {
    60
}

impl GatewayPart {
    /// Our gateway at these ports.
    pub fn new(port: u16, admin_port: u16) -> Self {
        Self { image: format!("flotilla-gateway:{VERSION}"), port, admin_port }
    }
}

impl ReplicaPart {
    /// Our replica on these cards, the `index`th of its stack.
    pub fn new(index: usize, cards: Vec<String>, threads: u32) -> Self {
        Self {
            name: format!("replica-{}", index + 1),
            image: format!("flotilla-replica:{VERSION}"),
            cards,
            threads,
            kv_bytes: None,
            context_tokens: None,
            drain_seconds: drain_seconds(),
        }
    }
}

/// How containers get their cards.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum GpuAccess {
    /// By the container device interface: engines from 25 on.
    #[default]
    Cdi,
    /// By the nvidia runtime, for older ones.
    Nvidia,
}

impl Topology {
    /// Whether the model has no weights, and lies nowhere.
    pub fn is_fake(&self) -> bool {
        self.model == "fake" || self.model.starts_with("fake:")
    }

    /// Refuses what can't be a stack.
    ///
    /// # Errors
    ///
    /// Names the service or card at fault.
    pub fn check(&self) -> Result<(), String> {
        let is_name = |name: &str| {
            !name.is_empty()
                && name.len() <= 63
                && name.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-')
        };
        if self.replicas.is_empty() {
            return Err("a stack without replicas serves nobody".to_owned());
        }
        let mut names = vec![self.name.as_str()];
        for replica in &self.replicas {
            if !is_name(&replica.name)
                || names.contains(&replica.name.as_str())
                || RESERVED.contains(&replica.name.as_str())
            {
                return Err(format!("replica {:?}: give each its own name of a-z, 0-9 and -", replica.name));
            }
            if replica.threads == 0 {
                return Err(format!("{}: threads begin at 1", replica.name));
            }
            names.push(&replica.name);
        }
        if !is_name(&self.name) {
            return Err(format!("{:?}: a stack's name has a-z, 0-9 and - only", self.name));
        }
        self.check_cards()
    }

    /// A card belongs to one replica, or to several that each have their budget.
    fn check_cards(&self) -> Result<(), String> {
        let mut owners: BTreeMap<&str, &ReplicaPart> = BTreeMap::new();
        for replica in &self.replicas {
            for card in &replica.cards {
                let is_uuid = |card: &str| {
                    (card.starts_with("GPU-") || card.starts_with("MIG-"))
                        && card.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-' || b == b'/')
                };
                if !is_uuid(card) {
                    return Err(format!("{}: card {card:?} is no UUID (GPU-… or MIG-…)", replica.name));
                }
                if let Some(owner) = owners.insert(card, replica)
                    && (owner.kv_bytes.is_none() || replica.kv_bytes.is_none() || owner.name == replica.name)
                {
                    return Err(format!(
                        "{} and {} share {card}: give both their kv_bytes, or separate cards",
                        owner.name, replica.name
                    ));
                }
            }
        }
        Ok(())
    }
}

/// Services that the stack itself brings.
const RESERVED: [&str; 3] = ["gateway", "redis", "prometheus"];

#[cfg(test)]
pub mod tests {
    use super::*;

    /// A stack of so many replicas, each with these cards.
    pub fn topology(cards: &[&[&str]]) -> Topology {
        let replica = |(index, cards): (usize, &&[&str])| {
            ReplicaPart::new(index, cards.iter().map(|&card| card.to_owned()).collect(), 2)
        };
        Topology {
            name: "flotilla".to_owned(),
            model: "/models/m.gguf".to_owned(),
            served_model_name: None,
            weight_bytes: 16_000_000_000,
            gateway: GatewayPart::new(8000, 9000),
            replicas: cards.iter().enumerate().map(replica).collect(),
            gpu_access: GpuAccess::Cdi,
            monitoring: false,
            redis: false,
        }
    }

    fn check(cards: &[&[&str]], kv_bytes: Option<u64>, expected: Result<(), &str>) {
        let mut topology = topology(cards);
        topology.replicas.iter_mut().for_each(|replica| replica.kv_bytes = kv_bytes);
        match (topology.check(), expected) {
            (Ok(()), Ok(())) => {}
            (Err(message), Err(part)) => assert!(message.contains(part), "{message}"),
            (found, wanted) => panic!("{found:?} instead of {wanted:?}"),
        }
    }

    #[test]
    fn a_card_belongs_to_one_replica() {
        check(&[&["GPU-a"], &["GPU-b", "GPU-c"]], None, Ok(()));
        check(&[&["GPU-a"], &["GPU-a"]], None, Err("replica-1 and replica-2 share GPU-a"));
        check(&[&["GPU-a", "GPU-a"]], Some(1), Err("share GPU-a"));
        check(&[&["0"]], None, Err("no UUID"));
        check(&[&["GPU-a\n"]], None, Err("no UUID"));
        check(&[], None, Err("serves nobody"));
    }

    /// U120: replicas on one card have explicit budgets.
    #[test]
    fn replicas_that_share_a_card_have_budgets() {
        check(&[&["GPU-a"], &["GPU-a"]], Some(4 << 30), Ok(()));
    }

    #[test]
    fn names_are_distinct_and_plain() {
        let mut twice = topology(&[&[], &[]]);
        twice.replicas[1].name = "replica-1".to_owned();
        assert!(twice.check().is_err());
        for wrong in ["", "Replica", "a b", "gateway"] {
            let mut topology = topology(&[&[]]);
            topology.replicas[0].name = wrong.to_owned();
            assert!(topology.check().is_err(), "{wrong}");
        }
    }
}
