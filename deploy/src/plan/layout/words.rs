//! Why a layout is as it is, and what would change it: words for people. Pure.

use super::super::cards::Pile;
use super::super::memory::BLOCK_TOKENS;
use super::super::weights::Weights;
use super::groups::{Ask, Room, holds};
use super::{Demand, Group, Memory, Verdict, gib};

/// The rule that fired, with its numbers.
pub fn rule(ask: Ask<'_>, piles: &[Pile], groups: &[Group], verdict: Verdict) -> String {
    let demand = ask.demand;
    let alone = piles.iter().map(|pile| (pile, ask.memory(&pile.card, 1, 1)));
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

/// Why a rank has no room.
pub fn shortage(memory: &Memory) -> String {
    format!(
        "{} weights + {} overhead of {} usable leave {} for KV",
        gib(memory.weights),
        gib(memory.overhead),
        gib(memory.usable),
        gib(memory.kv)
    )
}

/// What would change the answer.
pub fn advice(ask: Ask<'_>, piles: &[Pile], groups: &[Group], verdict: Verdict) -> Vec<String> {
    let Ask { model, kv, demand, .. } = ask;
    let mut advice = Vec::new();
    if ask.room == Room::Last && !groups.is_empty() {
        advice.push(
            "it runs only with --gpu-memory-utilization 0.95 and nothing else on the cards: try it before you count on it"
                .to_owned(),
        );
    }
    let wants_less =
        matches!(verdict, Verdict::Split | Verdict::SplitBadly | Verdict::Short | Verdict::Impossible);
    let cards_a_replica = groups.iter().map(|group| group.ranks * group.stages).max().unwrap_or(u32::MAX);
    if wants_less {
        let smaller = Weights::smaller().into_iter().map(|weights| model.clone().stored_as(weights));
        let better =
            smaller.filter(|other| other.weight_bytes < model.weight_bytes * 9 / 10).find_map(|other| {
                let mut ignored = Vec::new();
                let other_ask = Ask { model: &other, room: Room::Usual, ..ask };
                let group =
                    piles.iter().find_map(|pile| other_ask.best(pile, demand.concurrency, &mut ignored))?;
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
            .filter_map(|pile| Ask { demand: halved, ..ask }.best(pile, halved.concurrency, &mut ignored))
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
