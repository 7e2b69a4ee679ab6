//! Which replica holds the KV of which piece of prompt text.
//!
//! Three sources behind the same entries: our own decisions (a guess until answered), the cached tokens an answer
//! reports (a predicted hit that was none is taken back), and the stored and evicted events of replicas that send
//! them (exact; a gap in their numbers empties the shelf until they start over). It knows text only by hash and
//! replicas only by number. Wrong entries cost time, never correctness.
//!
//! Each replica has a shelf of bounded size that forgets by the clock algorithm: a ring of pieces, oldest first,
//! where a piece used since the hand last came by gets another round. The whole is bounded by equal shares.

use std::collections::{BTreeMap, VecDeque};

use hashbrown::HashTable;
use shared::id::ReplicaId;
use shared::prefix::PieceHash;

use self::holders::{GUESSED, Holders, SEEN, SLOTS_MAX, Slot, YOUNG, bits};

mod holders;

/// Pieces a replica is taken to hold when nothing tells its size: 64 MiB of text.
const PIECES_ASSUMED: usize = 131_072;

/// How fast trust in a replica's predicted hits follows what its answers report.
const TRUST_GAIN: f64 = 0.3;

/// The index of one gateway.
#[derive(Clone, Debug)]
pub struct PrefixIndex {
    entries: HashTable<Entry>,
    shelves: Vec<Option<Shelf>>,
    slots: BTreeMap<ReplicaId, Slot>,
    holdings_max: usize,
}

/// 64 bits of a piece's hash are enough: a collision among a million pieces is a one in 10^7 wrong guess.
#[derive(Clone, Debug)]
struct Entry {
    key: u64,
    holders: Holders,
}

#[derive(Clone, Debug)]
struct Shelf {
    replica: ReplicaId,
    /// Every piece held, oldest first; and pieces no longer held, until the hand or a compaction meets them.
    ring: VecDeque<u64>,
    held: usize,
    pieces_max: usize,
    /// Number of the last event applied; `None` without a complete stream of events.
    seq: Option<u64>,
    trust: f64,
}

/// Pieces each replica holds from the start of one prompt. Kept by the caller, so that looking up allocates nothing.
#[derive(Clone, Debug, Default)]
pub struct Matches {
    alive: Vec<u64>,
    /// By replica.
    depths: Vec<(ReplicaId, u32)>,
}

impl Matches {
    /// Pieces from the start that a replica holds.
    pub fn pieces(&self, replica: ReplicaId) -> u32 {
        self.depths.binary_search_by_key(&replica, |(id, _)| *id).map_or(0, |at| self.depths[at].1)
    }

    /// Replicas that hold at least the first piece.
    pub fn len(&self) -> usize {
        self.depths.len()
    }

    /// Nobody holds the first piece.
    pub fn is_empty(&self) -> bool {
        self.depths.is_empty()
    }
}

/// How a request ended, as far as the cache is concerned.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Settlement {
    /// Its prompt was computed.
    pub is_computed: bool,
    /// Pieces that were predicted to be there.
    pub predicted: u32,
    /// Pieces that the reported cached tokens cover; `None` where the engine does not say.
    pub reported: Option<u32>,
}

/// Pieces that came and went on a replica.
#[derive(Clone, Copy, Debug)]
pub struct PieceChange<'a> {
    /// Counts up by one.
    pub seq: u64,
    /// Forget everything first.
    pub is_reset: bool,
    /// Now held.
    pub stored: &'a [PieceHash],
    /// No longer held.
    pub evicted: &'a [PieceHash],
}

/// Whether a stream of events is still complete.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Sync {
    /// Yes.
    Complete,
    /// Something is missing: the stream must start over with a reset.
    Lost,
}

impl PrefixIndex {
    /// An empty index of at most so many (piece, replica) pairs in all.
    pub fn new(holdings_max: usize) -> Self {
        Self { entries: HashTable::new(), shelves: Vec::new(), slots: BTreeMap::new(), holdings_max }
    }

    /// Makes room for a replica that can hold so many pieces, or changes how many.
    pub fn set_capacity(&mut self, replica: ReplicaId, pieces_max: Option<usize>) {
        let pieces_max = pieces_max.unwrap_or(PIECES_ASSUMED);
        let Some(slot) = self.slot(replica) else { return };
        self.shelf(slot).pieces_max = pieces_max;
        self.trim(slot);
    }

    /// Drops everything about a replica: it is gone, or another process took its place.
    pub fn forget(&mut self, replica: ReplicaId) {
        if let Some(slot) = self.slots.remove(&replica) {
            self.clear(slot);
            self.shelves[usize::from(slot)] = None;
        }
    }

    /// Finds, for every replica, how many pieces it holds from the start on.
    pub fn lookup(&self, pieces: &[PieceHash], matches: &mut Matches) {
        matches.depths.clear();
        matches.alive.clear();
        let Some(first) = pieces.first().and_then(|&piece| self.find(key(piece))) else { return };
        matches.alive.extend((0..self.shelves.len().div_ceil(64)).map(|index| first.holders.word(index)));
        let mut depth = 1;
        for &piece in &pieces[1..] {
            let Some(entry) = self.find(key(piece)) else { break };
            let depths = &mut matches.depths;
            entry.holders.keep(&mut matches.alive, |slot| depths.push((self.replica(slot), depth)));
            if matches.alive.iter().all(|&word| word == 0) {
                break;
            }
            depth += 1;
        }
        for (index, &word) in matches.alive.iter().enumerate() {
            matches.depths.extend(bits(index, word).map(|slot| (self.replica(slot), depth)));
        }
        matches.depths.sort_unstable();
    }

    /// Matched pieces to reckon with: what is held, less where a replica's answers belied it before.
    pub fn trusted(&self, matches: &Matches, replica: ReplicaId) -> u32 {
        let pieces = matches.pieces(replica);
        if pieces == 0 {
            return 0;
        }
        let trust = self.slots.get(&replica).map_or(1.0, |&slot| self.shelf_ref(slot).trust);
        (f64::from(pieces) * trust) as u32
    }

    /// A request with this prompt is being sent there: a burst of equals should follow it.
    pub fn guess(&mut self, replica: ReplicaId, pieces: &[PieceHash]) {
        let Some(slot) = self.slot(replica) else { return };
        let room = self.room(slot);
        // The end of the prompt first, so that it is also forgotten first.
        for &piece in pieces[..pieces.len().min(room)].iter().rev() {
            self.hold(slot, key(piece), GUESSED);
        }
        self.trim(slot);
    }

    /// The request ended: guesses become knowledge, or are taken back.
    pub fn settle(&mut self, replica: ReplicaId, pieces: &[PieceHash], end: Settlement) {
        let Some(&slot) = self.slots.get(&replica) else { return };
        // A replica that sends events says itself what it keeps.
        let is_kept = end.is_computed && self.shelf_ref(slot).seq.is_none();
        if is_kept {
            // Again, since the failure of an equal request may have taken the guess back meanwhile.
            pieces.iter().take(self.room(slot)).rev().for_each(|&piece| self.hold(slot, key(piece), 0));
            self.trim(slot);
        } else {
            for &piece in pieces {
                self.take_back(slot, key(piece));
            }
        }
        let Some(reported) = end.reported.filter(|_| is_kept && end.predicted > 0) else { return };
        // Engines cache whole blocks and never the last token: one piece less is no miss.
        let found = (reported + 1).min(end.predicted);
        let shelf = self.shelf(slot);
        shelf.trust += TRUST_GAIN * (f64::from(found) / f64::from(end.predicted) - shelf.trust);
        if found < end.predicted {
            pieces.iter().skip(found as usize).for_each(|&piece| self.release(slot, key(piece)));
        }
    }

    /// What a replica says it stored and evicted.
    pub fn apply(&mut self, replica: ReplicaId, change: PieceChange<'_>) -> Sync {
        let Some(slot) = self.slot(replica) else { return Sync::Complete };
        let is_next = self.shelf_ref(slot).seq.is_some_and(|seq| seq + 1 == change.seq);
        if change.is_reset || !is_next {
            self.clear(slot);
        }
        self.shelf(slot).seq = (change.is_reset || is_next).then_some(change.seq);
        if !change.is_reset && !is_next {
            return Sync::Lost;
        }
        self.shelf(slot).trust = 1.0;
        change.evicted.iter().for_each(|&piece| self.release(slot, key(piece)));
        change.stored.iter().rev().for_each(|&piece| self.hold(slot, key(piece), 0));
        self.trim(slot);
        Sync::Complete
    }

    /// The stream of a replica's events ended: what is known stays, but no longer counts as complete.
    pub fn lost_stream(&mut self, replica: ReplicaId) {
        if let Some(&slot) = self.slots.get(&replica) {
            self.shelf(slot).seq = None;
        }
    }

    /// Whether a replica's own events tell what it holds.
    pub fn is_exact(&self, replica: ReplicaId) -> bool {
        self.slots.get(&replica).is_some_and(|&slot| self.shelf_ref(slot).seq.is_some())
    }

    /// Pieces one replica is taken to hold.
    pub fn held(&self, replica: ReplicaId) -> usize {
        self.slots.get(&replica).map_or(0, |&slot| self.shelf_ref(slot).held)
    }

    /// Distinct pieces known.
    pub fn pieces(&self) -> usize {
        self.entries.len()
    }

    /// Bytes of memory in use.
    pub fn bytes(&self) -> usize {
        let table = self.entries.capacity() * 8 / 7 * (size_of::<Entry>() + 1);
        let wide: usize = self.entries.iter().map(|entry| entry.holders.heap_bytes()).sum();
        let rings: usize = self.shelves.iter().flatten().map(|shelf| shelf.ring.capacity() * 8).sum();
        table + wide + rings
    }

    /// Panics unless every holding is counted once, on its shelf and in its entry, and all bounds hold.
    pub fn check_invariants(&self) {
        let mut counted = vec![0; self.shelves.len()];
        for entry in &self.entries {
            assert!(!entry.holders.is_empty(), "an entry without holders");
            for slot in
                (0..counted.len().div_ceil(64)).flat_map(|index| bits(index, entry.holders.word(index)))
            {
                counted[usize::from(slot)] += 1;
                let flags = entry.holders.get(slot).expect("a set bit is a holder");
                assert_eq!(flags & SEEN, 0, "a compaction left its mark");
            }
        }
        for (slot, shelf) in self.shelves.iter().enumerate() {
            assert_eq!(counted[slot], shelf.as_ref().map_or(0, |shelf| shelf.held), "slot {slot}");
            let Some(shelf) = shelf else { continue };
            assert!(shelf.held <= self.room(slot as Slot), "slot {slot} is too full");
            assert!(shelf.ring.len() <= 2 * shelf.held + RING_SLACK, "ring {slot} is too long");
            let ring = |key: &&Entry| shelf.ring.contains(&key.key);
            let held = self.entries.iter().filter(|entry| entry.holders.get(slot as Slot).is_some());
            assert!(held.clone().count() == held.filter(ring).count(), "a piece is held but not on the ring");
        }
        assert_eq!(self.slots.len(), self.shelves.iter().flatten().count());
    }

    fn find(&self, key: u64) -> Option<&Entry> {
        self.entries.find(key, |entry| entry.key == key)
    }

    fn replica(&self, slot: Slot) -> ReplicaId {
        self.shelf_ref(slot).replica
    }

    fn shelf_ref(&self, slot: Slot) -> &Shelf {
        self.shelves[usize::from(slot)].as_ref().expect("a slot in use has a shelf")
    }

    fn shelf(&mut self, slot: Slot) -> &mut Shelf {
        self.shelves[usize::from(slot)].as_mut().expect("a slot in use has a shelf")
    }

    /// The slot of a replica, given one if need be. `None` when there are more replicas than slots.
    fn slot(&mut self, replica: ReplicaId) -> Option<Slot> {
        if let Some(&slot) = self.slots.get(&replica) {
            return Some(slot);
        }
        let free = self.shelves.iter().position(Option::is_none).unwrap_or(self.shelves.len());
        let slot = Slot::try_from(free).ok().filter(|&slot| slot < SLOTS_MAX)?;
        let shelf = Shelf {
            replica,
            ring: VecDeque::new(),
            held: 0,
            pieces_max: PIECES_ASSUMED,
            seq: None,
            trust: 1.0,
        };
        if free == self.shelves.len() {
            self.shelves.push(None);
        }
        self.shelves[free] = Some(shelf);
        self.slots.insert(replica, slot);
        // Everybody's share has become smaller.
        let others: Vec<_> = self.slots.values().copied().collect();
        for slot in others {
            self.trim(slot);
        }
        Some(slot)
    }

    /// Pieces a shelf may have: what its replica can hold, within an equal share of the whole.
    fn room(&self, slot: Slot) -> usize {
        self.shelf_ref(slot).pieces_max.min(self.holdings_max / self.slots.len().max(1))
    }

    fn hold(&mut self, slot: Slot, key: u64, flags: u16) {
        let entry = self.entries.entry(key, |entry| entry.key == key, |entry| entry.key);
        let entry = entry.or_insert_with(|| Entry { key, holders: Holders::none() }).into_mut();
        if let Some(known) = entry.holders.get(slot) {
            // What is known is not turned into a guess.
            return entry.holders.set(slot, (known & flags & GUESSED) | YOUNG);
        }
        entry.holders.set(slot, flags);
        let shelf = self.shelf(slot);
        shelf.held += 1;
        shelf.ring.push_back(key);
        self.compact(slot);
    }

    /// Releases what was only guessed.
    fn take_back(&mut self, slot: Slot, key: u64) {
        let flags = self.find(key).and_then(|entry| entry.holders.get(slot));
        if flags.is_some_and(|flags| flags & GUESSED != 0) {
            self.release(slot, key);
        }
    }

    /// The replica no longer holds the piece; its place on the ring is left for the hand.
    fn release(&mut self, slot: Slot, key: u64) {
        let Ok(mut found) = self.entries.find_entry(key, |entry| entry.key == key) else { return };
        let was_held = found.get_mut().holders.remove(slot);
        if found.get().holders.is_empty() {
            found.remove();
        }
        if was_held {
            self.shelf(slot).held -= 1;
            self.compact(slot);
        }
    }

    /// Moves the clock's hand until the shelf fits.
    fn trim(&mut self, slot: Slot) {
        let room = self.room(slot);
        while self.shelf_ref(slot).held > room {
            let key = self.shelf(slot).ring.pop_front().expect("what is held is on the ring");
            let Some(entry) = self.entries.find_mut(key, |entry| entry.key == key) else { continue };
            let Some(flags) = entry.holders.get(slot) else { continue };
            if flags & YOUNG == 0 {
                self.release(slot, key);
            } else {
                entry.holders.set(slot, flags & !YOUNG);
                self.shelf(slot).ring.push_back(key);
            }
        }
    }

    /// Sweeps what is no longer held, and doubles, off a ring that has become twice too long.
    fn compact(&mut self, slot: Slot) {
        if self.shelf_ref(slot).ring.len() <= 2 * self.shelf_ref(slot).held + RING_SLACK {
            return;
        }
        let mut ring = std::mem::take(&mut self.shelf(slot).ring);
        let entries = &mut self.entries;
        ring.retain(|&key| mark(entries, slot, key, 0, SEEN));
        for &key in &ring {
            mark(entries, slot, key, SEEN, 0);
        }
        ring.shrink_to(2 * ring.len());
        self.shelf(slot).ring = ring;
    }

    fn clear(&mut self, slot: Slot) {
        let ring = std::mem::take(&mut self.shelf(slot).ring);
        for key in ring {
            self.release(slot, key);
        }
        let shelf = self.shelf(slot);
        shelf.ring = VecDeque::new();
        shelf.seq = None;
    }
}

/// Places on a ring that may be stale however few are held.
const RING_SLACK: usize = 64;

fn key(piece: PieceHash) -> u64 {
    piece as u64
}

/// Turns a holding's mark `from` into `to`; false when it is not held or not so marked.
fn mark(entries: &mut HashTable<Entry>, slot: Slot, key: u64, from: u16, to: u16) -> bool {
    let Some(entry) = entries.find_mut(key, |entry| entry.key == key) else { return false };
    let Some(flags) = entry.holders.get(slot).filter(|flags| flags & SEEN == from) else { return false };
    entry.holders.set(slot, flags & !SEEN | to);
    true
}

#[cfg(test)]
mod tests;
