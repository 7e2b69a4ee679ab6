//! The verdict: how many replicas of how many cards, by which rule, and what would change it. Pure.
//!
//! Two troubles have two answers. A model that doesn't fit is split over cards; a fleet that can't keep up gets
//! more replicas. Splitting against the second wastes cards, so the smallest group that fits always wins.

use super::cards::{Card, Link, Pile};
use super::legal;
use super::memory::{BLOCK_TOKENS, KvPlan, overhead_bytes, weight_bytes};
use super::model::Model;
use super::weights::Weights;

/// Part of a card's memory that is used: on one card, and in a group.
const USE_ALONE: f64 = 0.90;
const USE_IN_GROUP: f64 = 0.85;
/// Part of the rest that allocators lose.
const SLACK: f64 = 0.03;
/// Sequences a replica is sized for at least, where memory allows it.
const SEQUENCES: u32 = 64;
/// Halves: where no layout holds the demand, a larger group must hold half as much again to be worth its talk.
const WORTH_A_SPLIT: u32 = 3;
/// Largest group tried, in one machine.
const RANKS_MAX: u32 = 16;

/// What is asked of the fleet.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Demand {
    /// The longest a sequence gets.
    pub context_tokens: u32,
    /// Sequences at once, over the whole fleet.
    pub concurrency: u32,
}

/// Replicas over alike cards.
#[derive(Clone, PartialEq, Debug)]
pub struct Group {
    /// Which cards.
    pub card: Card,
    /// How many of them there are.
    pub cards: u32,
    /// Cards a replica.
    pub ranks: u32,
    /// Pipeline stages a replica; 1 unless no group of ranks alone fits.
    pub stages: u32,
    /// Replicas that these cards hold.
    pub replicas: u32,
    /// Replicas that the demand needs.
    pub needed: u32,
    /// Where a rank's memory goes.
    pub memory: Memory,
}

/// One rank's memory, in bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Memory {
    /// What may be used.
    pub usable: u64,
    /// Weights.
    pub weights: u64,
    /// Neither weights nor KV.
    pub overhead: u64,
    /// What is left for KV.
    pub kv: u64,
    /// Tokens of KV a replica holds.
    pub kv_tokens: u64,
    /// Sequences of full length a replica holds.
    pub sequences: u32,
}

/// What to do.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Verdict {
    /// Fewer cards than there are will do.
    NeedsNoMore,
    /// One replica a card.
    Fits,
    /// Groups of cards.
    Split,
    /// Groups of cards in pipeline stages, or through slow links only.
    SplitBadly,
    /// It runs, but not all of the demand does.
    Short,
    /// It doesn't run.
    Impossible,
}

/// The whole answer.
#[derive(Clone, PartialEq, Debug)]
pub struct Layout {
    /// What to do.
    pub verdict: Verdict,
    /// On which cards; those that can't hold a replica are left out.
    pub groups: Vec<Group>,
    /// The rule that fired, with its numbers.
    pub rule: String,
    /// Sizes that were not taken, and why.
    pub rejected: Vec<String>,
    /// What would change the answer.
    pub advice: Vec<String>,
}

/// Lays a fleet out over piles of cards: the smallest groups that run, or larger ones where those hold too little.
pub fn lay_out(model: &Model, kv: KvPlan, piles: &[Pile], demand: Demand) -> Layout {
    let mut rejected = Vec::new();
    let smallest = Demand { concurrency: 1, ..demand };
    let mut groups: Vec<_> = piles
        .iter()
        .filter_map(|pile| best_group(model, kv, pile, smallest, demand, &mut rejected))
        .collect();
    if groups.iter().map(holds).sum::<u32>() < demand.concurrency {
        let mut ignored = Vec::new();
        let larger =
            piles.iter().filter_map(|pile| best_group(model, kv, pile, demand, demand, &mut ignored));
        groups = larger.collect();
    }
    rejected.dedup();
    let mut open = demand.concurrency;
    for group in &mut groups {
        group.needed = open.div_ceil(group.memory.sequences.max(1)).min(group.replicas);
        open = open.saturating_sub(group.needed * group.memory.sequences);
    }
    let verdict = judge(&groups, piles, open);
    let rule = rule(model, kv, piles, demand, &groups, verdict);
    let advice = advice(model, kv, piles, demand, &groups, verdict);
    Layout { verdict, groups, rule, rejected, advice }
}

/// The smallest legal group whose replicas together hold `wanted`; failing that, a larger one where it holds
/// much more.
fn best_group(
    model: &Model,
    kv: KvPlan,
    pile: &Pile,
    wanted: Demand,
    demand: Demand,
    rejected: &mut Vec<String>,
) -> Option<Group> {
    let mut best: Option<Group> = None;
    for ranks in 1..=pile.count.min(RANKS_MAX) {
        if let Err(why) = legal::check(model, ranks) {
            rejected.push(why);
            continue;
        }
        let group = group(model, kv, pile, ranks, 1, demand);
        if group.memory.sequences == 0 {
            rejected.push(format!("TP={ranks} on {}: {}", pile.card.name, shortage(&group.memory)));
            continue;
        }
        if holds(&group) >= wanted.concurrency {
            return Some(group);
        }
        if best.as_ref().is_none_or(|best| 2 * holds(&group) >= WORTH_A_SPLIT * holds(best)) {
            best = Some(group);
        }
    }
    best.or_else(|| staged(model, kv, pile, demand))
}

/// Tensor-parallel groups in pipeline stages, where no group alone fits.
fn staged(model: &Model, kv: KvPlan, pile: &Pile, demand: Demand) -> Option<Group> {
    let reach = match pile.card.link {
        Link::Nvlink { cards, .. } => cards,
        Link::Pcie | Link::PcieHost => 4,
    };
    let ranks = (1..=pile.count.min(reach)).rev().find(|&ranks| legal::check(model, ranks).is_ok())?;
    let stages = 2..=(pile.count / ranks).min(model.layers.len() as u32);
    stages
        .map(|stages| group(model, kv, pile, ranks, stages, demand))
        .find(|group| group.memory.sequences > 0)
}

fn group(model: &Model, kv: KvPlan, pile: &Pile, ranks: u32, stages: u32, demand: Demand) -> Group {
    let cards = ranks * stages;
    let memory = memory(model, kv, &pile.card, ranks, stages, demand);
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

fn holds(group: &Group) -> u32 {
    group.replicas.saturating_mul(group.memory.sequences)
}

/// Where one rank's memory goes.
pub fn memory(model: &Model, kv: KvPlan, card: &Card, ranks: u32, stages: u32, demand: Demand) -> Memory {
    let part = if ranks * stages > 1 { USE_IN_GROUP } else { USE_ALONE };
    let usable = (card.memory_bytes as f64 * part) as u64;
    // Embedding and head make the first and last stage heavier than the others.
    let ends = if stages > 1 { model.embedding_parameters / u64::from(ranks) } else { 0 };
    let weights = weight_bytes(model, ranks).div_ceil(u64::from(stages)) + ends;
    let overhead = overhead_bytes(model, ranks * stages, demand.concurrency.min(SEQUENCES));
    let left = usable.saturating_sub(weights + overhead);
    let kv_bytes = (left as f64 * (1.0 - SLACK)) as u64;
    let sequence = kv.sequence_bytes(model, ranks, demand.context_tokens).div_ceil(u64::from(stages)).max(1);
    let sequences = u32::try_from(kv_bytes / sequence).unwrap_or(u32::MAX);
    let token = kv.token_bytes(model, ranks).div_ceil(u64::from(stages)).max(1);
    let kv_tokens = kv_bytes / token / u64::from(BLOCK_TOKENS) * u64::from(BLOCK_TOKENS);
    Memory { usable, weights, overhead, kv: kv_bytes, kv_tokens, sequences }
}

fn judge(groups: &[Group], piles: &[Pile], open: u32) -> Verdict {
    let cards: u32 = piles.iter().map(|pile| pile.count).sum();
    let needed: u32 = groups.iter().map(|group| group.needed * group.ranks * group.stages).sum();
    let is_slow =
        |group: &Group| group.stages > 1 || (group.ranks > 1 && !is_linked(&group.card, group.ranks));
    match () {
        () if groups.is_empty() => Verdict::Impossible,
        () if open > 0 => Verdict::Short,
        () if needed < cards && groups.iter().all(|group| group.ranks == 1) => Verdict::NeedsNoMore,
        () if groups.iter().any(is_slow) => Verdict::SplitBadly,
        () if groups.iter().all(|group| group.ranks == 1) => Verdict::Fits,
        () => Verdict::Split,
    }
}

/// Whether so many of these cards talk fast enough for tensor parallelism.
pub fn is_linked(card: &Card, ranks: u32) -> bool {
    matches!(card.link, Link::Nvlink { cards, .. } if ranks <= cards)
}

fn rule(
    model: &Model,
    kv: KvPlan,
    piles: &[Pile],
    demand: Demand,
    groups: &[Group],
    verdict: Verdict,
) -> String {
    let alone = piles.iter().map(|pile| (pile, memory(model, kv, &pile.card, 1, 1, demand)));
    let alone = alone.max_by_key(|(_, memory)| memory.usable);
    let fits_alone = alone.as_ref().is_some_and(|(_, memory)| memory.sequences > 0);
    let room = |memory: &Memory| {
        format!(
            "{} weights + {} overhead of {} usable leave {} for KV = {} tokens, {} sequences of {}",
            gib(memory.weights),
            gib(memory.overhead),
            gib(memory.usable),
            gib(memory.kv),
            memory.kv_tokens,
            memory.sequences,
            demand.context_tokens
        )
    };
    match (verdict, alone) {
        (Verdict::Impossible, Some((pile, memory))) => {
            format!("no group holds the model and one sequence: on one {}, {}", pile.card.name, room(&memory))
        }
        (_, Some((pile, memory))) if fits_alone && groups.iter().all(|group| group.ranks == 1) => {
            format!("it fits one {}, so replicas and not splits: {}", pile.card.name, room(&memory))
        }
        (_, Some((pile, memory))) if fits_alone => {
            let rank = groups.first().map_or(memory, |group| group.memory);
            format!(
                "one {} holds {} sequences, too few; a group shares the weights and has more room: {}",
                pile.card.name,
                memory.sequences,
                room(&rank)
            )
        }
        (_, Some((pile, memory))) => {
            let rank = groups.first().map_or(memory, |group| group.memory);
            format!(
                "one {} doesn't hold it ({}); a rank of the group: {}",
                pile.card.name,
                shortage(&memory),
                room(&rank)
            )
        }
        (_, None) => "there are no cards".to_owned(),
    }
}

fn shortage(memory: &Memory) -> String {
    format!(
        "{} weights + {} overhead of {} usable leave {} for KV",
        gib(memory.weights),
        gib(memory.overhead),
        gib(memory.usable),
        gib(memory.kv)
    )
}

fn advice(
    model: &Model,
    kv: KvPlan,
    piles: &[Pile],
    demand: Demand,
    groups: &[Group],
    verdict: Verdict,
) -> Vec<String> {
    let mut advice = Vec::new();
    let wants_less =
        matches!(verdict, Verdict::Split | Verdict::SplitBadly | Verdict::Short | Verdict::Impossible);
    let cards_a_replica = groups.iter().map(|group| group.ranks * group.stages).max().unwrap_or(u32::MAX);
    if wants_less {
        let smaller = Weights::smaller().into_iter().map(|weights| model.clone().stored_as(weights));
        let better =
            smaller.filter(|other| other.weight_bytes < model.weight_bytes * 9 / 10).find_map(|other| {
                let mut ignored = Vec::new();
                let group = piles
                    .iter()
                    .find_map(|pile| best_group(&other, kv, pile, demand, demand, &mut ignored))?;
                (group.ranks * group.stages < cards_a_replica).then_some((other.weights, group))
            });
        if let Some((weights, group)) = better {
            let cards = group.ranks * group.stages;
            advice.push(format!(
                "with {} weights a replica takes {cards} instead of {} cards: {} replicas",
                weights.word(),
                if cards_a_replica == u32::MAX { "too many".to_owned() } else { cards_a_replica.to_string() },
                group.replicas
            ));
        }
    }
    if verdict == Verdict::Short || verdict == Verdict::Impossible {
        let halved = Demand { context_tokens: (demand.context_tokens / 2).max(BLOCK_TOKENS), ..demand };
        let mut ignored = Vec::new();
        let held: u32 = piles
            .iter()
            .filter_map(|pile| best_group(model, kv, pile, halved, halved, &mut ignored))
            .map(|group| holds(&group))
            .sum();
        advice.push(format!(
            "at {} tokens of context the same cards hold {held} sequences",
            halved.context_tokens
        ));
        if kv.element_bytes > 1 {
            advice.push("KV in fp8 holds about twice the sequences, in engines that have it".to_owned());
        }
    }
    if verdict == Verdict::NeedsNoMore {
        advice.push(
            "more cards shorten no single answer; keep one spare replica to survive the loss of one"
                .to_owned(),
        );
    }
    if groups.iter().any(|group| group.stages > 1) {
        advice.push("pipeline stages need an engine that has them (vLLM); ours has none".to_owned());
    }
    if verdict == Verdict::SplitBadly && groups.iter().all(|group| group.stages == 1) {
        advice.push("these cards have no fast link: all-reduces eat much of the gain; prefer smaller weights on one card each".to_owned());
    }
    advice
}

/// Bytes for people.
pub fn gib(bytes: u64) -> String {
    format!("{:.1} GiB", bytes as f64 / f64::from(1 << 30))
}

#[cfg(test)]
mod tests;
