//! The verdict: how many replicas of how many cards, by which rule, and what would change it. Pure.
//!
//! Two troubles have two answers. A model that doesn't fit is split over cards; a fleet that can't keep up gets
//! more replicas. Splitting against the second wastes cards, so the smallest group that fits always wins.

mod groups;
mod words;

use groups::{Ask, Room, holds};

use super::cards::{Card, Link, Pile};
use super::memory::KvPlan;
use super::model::Model;

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
/// Where nothing runs with the usual room on a card, nearly all of it is used.
pub fn lay_out(model: &Model, kv: KvPlan, piles: &[Pile], demand: Demand) -> Layout {
    let usual = Ask { model, kv, demand, room: Room::Usual };
    let last = Ask { room: Room::Last, ..usual };
    let found = [usual, last].into_iter().map(|ask| (ask, groups_of(ask, piles)));
    let (ask, (mut groups, rejected)) = found
        .reduce(|usual, last| if usual.1.0.is_empty() && !last.1.0.is_empty() { last } else { usual })
        .expect("two are tried");
    let mut open = demand.concurrency;
    for group in &mut groups {
        group.needed = open.div_ceil(group.memory.sequences.max(1)).min(group.replicas);
        open = open.saturating_sub(group.needed * group.memory.sequences);
    }
    let verdict = judge(&groups, piles, open);
    let rule = words::rule(ask, piles, &groups, verdict);
    let advice = words::advice(ask, piles, &groups, verdict);
    Layout { verdict, groups, rule, rejected, advice }
}

/// Groups of each pile, and the sizes that were not taken.
fn groups_of(ask: Ask<'_>, piles: &[Pile]) -> (Vec<Group>, Vec<String>) {
    let all = |wanted| {
        let mut rejected = Vec::new();
        let groups: Vec<_> = piles.iter().filter_map(|pile| ask.best(pile, wanted, &mut rejected)).collect();
        rejected.dedup();
        (groups, rejected)
    };
    let (groups, rejected) = all(1);
    if groups.iter().map(holds).sum::<u32>() >= ask.demand.concurrency {
        return (groups, rejected);
    }
    all(ask.demand.concurrency)
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

/// Bytes for people.
pub fn gib(bytes: u64) -> String {
    format!("{:.1} GiB", bytes as f64 / f64::from(1 << 30))
}

#[cfg(test)]
mod tests;
