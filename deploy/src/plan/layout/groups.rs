//! The group of cards that a replica takes, and what each of its ranks holds. Pure.

use super::super::cards::{Card, Link, Pile};
use super::super::legal;
use super::super::memory::{BLOCK_TOKENS, KvPlan, overhead_bytes, weight_bytes};
use super::super::model::Model;
use super::words::shortage;
use super::{Demand, Group, Memory};

/// Part of a card's memory that is used: on one card, in a group, and where nothing runs otherwise.
const USE_ALONE: f64 = 0.90;
const USE_IN_GROUP: f64 = 0.85;
const USE_LAST: f64 = 0.95;
/// Part of the rest that allocators lose.
const SLACK: f64 = 0.03;
/// Sequences a replica is sized for at least, where memory allows it.
const SEQUENCES: u32 = 64;
/// Halves: where no layout holds the demand, a larger group must hold half as much again to be worth its talk.
const WORTH_A_SPLIT: u32 = 3;
/// Largest group tried, in one machine.
const RANKS_MAX: u32 = 16;

/// How much of a card may be used.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Room {
    /// So much that something is left for whatever else happens on a card.
    Usual,
    /// Nearly all of it.
    Last,
}

impl Room {
    fn part(self, cards: u32) -> f64 {
        match self {
            Self::Usual if cards > 1 => USE_IN_GROUP,
            Self::Usual => USE_ALONE,
            Self::Last => USE_LAST,
        }
    }
}

/// What is to be laid out.
#[derive(Clone, Copy, Debug)]
pub struct Ask<'a> {
    /// The model.
    pub model: &'a Model,
    /// How its KV is kept.
    pub kv: KvPlan,
    /// What is asked of the fleet.
    pub demand: Demand,
    /// How much of each card may be used.
    pub room: Room,
}

/// Sequences that all replicas of a group's cards hold.
pub fn holds(group: &Group) -> u32 {
    group.replicas.saturating_mul(group.memory.sequences)
}

impl Ask<'_> {
    /// The smallest legal group whose replicas together hold `wanted`; failing that, a larger one where it holds
    /// much more.
    pub fn best(self, pile: &Pile, wanted: u32, rejected: &mut Vec<String>) -> Option<Group> {
        let mut best: Option<Group> = None;
        for ranks in 1..=pile.count.min(RANKS_MAX) {
            if let Err(why) = legal::check(self.model, ranks) {
                rejected.push(why);
                continue;
            }
            let group = self.group(pile, ranks, 1);
            let name = format!("TP={ranks} on {}", pile.card.name);
            if group.memory.sequences == 0 {
                rejected.push(format!("{name}: {}", shortage(&group.memory)));
                continue;
            }
            if holds(&group) >= wanted {
                return Some(group);
            }
            rejected.push(format!(
                "{name}: {} replicas hold {} of {wanted} sequences",
                group.replicas,
                holds(&group)
            ));
            if best.as_ref().is_none_or(|best| 2 * holds(&group) >= WORTH_A_SPLIT * holds(best)) {
                best = Some(group);
            }
        }
        best.or_else(|| self.staged(pile))
    }

    /// Tensor-parallel groups in pipeline stages, where no group alone fits.
    fn staged(self, pile: &Pile) -> Option<Group> {
        let reach = match pile.card.link {
            Link::Nvlink { cards, .. } => cards,
            Link::Pcie | Link::PcieHost => 4,
        };
        let ranks =
            (1..=pile.count.min(reach)).rev().find(|&ranks| legal::check(self.model, ranks).is_ok())?;
        let stages = 2..=(pile.count / ranks).min(self.model.layers.len() as u32);
        stages.map(|stages| self.group(pile, ranks, stages)).find(|group| group.memory.sequences > 0)
    }

    fn group(self, pile: &Pile, ranks: u32, stages: u32) -> Group {
        let cards = ranks * stages;
        let memory = self.memory(&pile.card, ranks, stages);
        Group {
            card: pile.card.clone(),
            cards: pile.count,
            ranks,
            stages,
            replicas: pile.count / cards,
            needed: 0,
            memory,
        }
    }

    /// Where one rank's memory goes.
    pub fn memory(self, card: &Card, ranks: u32, stages: u32) -> Memory {
        let Self { model, kv, demand, room } = self;
        let usable = (card.memory_bytes as f64 * room.part(ranks * stages)) as u64;
        // Embedding and head make the first and last stage heavier than the others.
        let ends = if stages > 1 { model.embedding_parameters / u64::from(ranks) } else { 0 };
        let weights = weight_bytes(model, ranks).div_ceil(u64::from(stages)) + ends;
        let overhead = overhead_bytes(model, ranks * stages, demand.concurrency.min(SEQUENCES));
        let left = usable.saturating_sub(weights + overhead);
        let kv_bytes = (left as f64 * (1.0 - SLACK)) as u64;
        let sequence =
            kv.sequence_bytes(model, ranks, demand.context_tokens).div_ceil(u64::from(stages)).max(1);
        let sequences = u32::try_from(kv_bytes / sequence).unwrap_or(u32::MAX);
        let token = kv.token_bytes(model, ranks).div_ceil(u64::from(stages)).max(1);
        let kv_tokens = kv_bytes / token / u64::from(BLOCK_TOKENS) * u64::from(BLOCK_TOKENS);
        Memory { usable, weights, overhead, kv: kv_bytes, kv_tokens, sequences }
    }
}
