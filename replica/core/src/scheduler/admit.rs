//! Who of the waiting may run: looks at the whole prompt and a reserve, never at its first chunk alone.
//!
//! The line is kept, with two exceptions. Who shares a prefix that somebody is computing right now waits for
//! it and lets the others pass. Who lacks blocks lets up to [`PASSED_MAX`] smaller ones pass, then the door
//! is shut until it fits: a long prompt does not idle the replica, and short ones do not starve it.

use shared::time::Instant;

use super::store::Place;
use super::{Event, Scheduler};
use crate::sequence::{Finish, Sequence};
use shared::id::SequenceId;

/// How many may pass one that lacks blocks.
const PASSED_MAX: u32 = 16;

/// How far down the line anybody looks.
const WINDOW: usize = 32;

/// What the door says.
enum Entry {
    /// Come in, with so many blocks of the prompt found.
    Open(u32),
    /// A running sequence computes its prefix.
    PrefixComing,
    /// Too few are free.
    NoBlocks,
}

impl Scheduler {
    /// Blocks of a sequence's chain that the cache has. At least one token is always computed.
    pub(super) fn cached_blocks(&self, sequence: &Sequence) -> u32 {
        self.cache.find(self.usable(sequence)) as u32
    }

    fn usable<'a>(&self, sequence: &'a Sequence) -> &'a [shared::id::BlockHash] {
        if !sequence.may_reuse() {
            return &[];
        }
        let usable = ((sequence.len() - 1) / self.limits.block_tokens) as usize;
        &sequence.chain[..usable.min(sequence.chain.len())]
    }

    fn entry(&self, place: Place) -> Entry {
        let sequence = &self.store[place];
        if self.awaits_prefix(sequence) {
            return Entry::PrefixComing;
        }
        let usable = self.usable(sequence);
        let found = self.cache.find(usable);
        if usable.get(found).is_some_and(|hash| self.computing.contains_key(hash)) {
            return Entry::PrefixComing;
        }
        let running = self.running.len() as u32;
        let reserve = if running == 0 { 0 } else { self.limits.reserve_blocks * (running + 1) };
        let idle = self.cache.idle(&usable[..found]);
        let needed = self.limits.blocks_of(sequence.len()) - found as u32 + idle;
        if needed + reserve <= self.cache.free() { Entry::Open(found as u32) } else { Entry::NoBlocks }
    }

    /// Whether the block that it was seen to wait for is still being computed.
    fn awaits_prefix(&self, sequence: &Sequence) -> bool {
        let next = (sequence.cached_guess / self.limits.block_tokens) as usize;
        self.usable(sequence).get(next).is_some_and(|hash| self.computing.contains_key(hash))
    }

    /// Admits the next in line, or `wanted` alone, where the door lets it in.
    pub(super) fn admit_next(&mut self, wanted: Option<Place>, now: Instant) -> Option<Place> {
        if self.running.len() as u32 >= self.limits.running_max {
            return None;
        }
        let mut lacking = None;
        let mut admitted = None;
        for &place in self.waiting.values().take(WINDOW) {
            match self.entry(place) {
                Entry::Open(found) if wanted.is_none_or(|wanted| wanted == place) => {
                    admitted = Some((place, found));
                    break;
                }
                Entry::NoBlocks if self.store[place].passed >= PASSED_MAX => break,
                Entry::NoBlocks => lacking = lacking.or(Some(place)),
                Entry::Open(_) | Entry::PrefixComing => {}
            }
            if wanted == Some(place) {
                break;
            }
        }
        let (place, found) = admitted?;
        if let Some(lacking) = lacking {
            self.store[lacking].passed += 1;
        }
        self.admit(place, found, now);
        Some(place)
    }

    /// Of the waiting that could come in, the one with the fewest tokens to compute, if fewer than `below`.
    /// Where priorities count, only among equals of the first.
    pub(super) fn shortest_waiting(&self, first: Place, below: u32) -> Option<(u32, Place)> {
        let priority = self.store[first].turn.priority;
        let line = self.waiting.values().take(WINDOW).copied();
        line.filter(|&place| self.store[place].turn.priority == priority)
            .filter(|&place| !self.awaits_prefix(&self.store[place]))
            .map(|place| {
                (self.store[place].left().saturating_sub(self.store[place].cached_guess).max(1), place)
            })
            .filter(|&(left, _)| left < below)
            .min_by_key(|&(left, place)| (left, self.store[place].turn))
    }

    fn admit(&mut self, place: Place, found: u32, now: Instant) {
        let sequence = &mut self.store[place];
        let (turn, blocks) = (sequence.turn, self.limits.blocks_of(sequence.len()));
        let (shared, own) = sequence.chain.split_at((found as usize).min(sequence.chain.len()));
        for &hash in shared {
            sequence.table.push(self.cache.hold(hash));
        }
        for &hash in own {
            self.computing.entry(hash).or_insert(place);
        }
        for _ in found..blocks {
            sequence.table.push(self.cache.take().expect("the door counted the free blocks"));
        }
        sequence.computed = found * self.limits.block_tokens;
        if sequence.started.is_none() {
            sequence.started = Some(now);
            sequence.cached_tokens = sequence.computed;
        }
        if self.limits.prefix_caching && sequence.may_reuse() {
            self.done.cache_query_tokens += u64::from(sequence.len());
            self.done.cache_hit_tokens += u64::from(sequence.computed);
        }
        sequence.cached_guess = 0;
        if let Some(deadline) = sequence.request.deadline {
            self.deadlines.remove(&(deadline, turn));
        }
        self.waiting.remove(&turn);
        let index = self.running.partition_point(|&(other, _)| other < turn);
        self.running.insert(index, (turn, place));
    }

    /// Drops those whose deadline passed before they ever ran.
    pub(super) fn expire(&mut self, now: Instant, events: &mut Vec<(SequenceId, Event)>) {
        while let Some(&(deadline, turn)) = self.deadlines.first() {
            if deadline > now {
                break;
            }
            let place = self.waiting[&turn];
            events.push((self.store[place].id(), Event::Finished(Finish::Expired)));
            self.remove(place);
        }
    }
}
