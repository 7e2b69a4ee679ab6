//! Which pieces of text this replica holds KV for, told to gateways as they come and go.
//!
//! The engine tells of blocks, requests tell which pieces end in which block; together they make events. Who
//! falls behind gets the whole again.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, PoisonError};

use shared::id::BlockHash;
use shared::prefix::PieceHash;
use shared::wire::PieceEvents;
use tokio::sync::{broadcast, mpsc};

use super::landing::Landed;
use crate::engine::Cached;
use replica_core::prefix_cache::Change;

/// Blocks that are remembered without being cached: those of requests under way.
const EXPECTED_MAX: usize = 65_536;
/// Events a gateway may be behind.
const BEHIND_MAX: usize = 256;

/// The account.
#[derive(Debug)]
pub struct Held {
    instance: String,
    account: Mutex<Account>,
    events: broadcast::Sender<Arc<PieceEvents>>,
}

#[derive(Debug, Default)]
struct Account {
    blocks: BTreeMap<BlockHash, Block>,
    /// Blocks in the order in which requests named them.
    expected: VecDeque<BlockHash>,
    seq: u64,
}

#[derive(Debug, Default)]
struct Block {
    is_cached: bool,
    pieces: Vec<PieceHash>,
}

impl Held {
    /// Nothing is held yet.
    pub fn new(instance: &str) -> Self {
        let (events, _) = broadcast::channel(BEHIND_MAX);
        Self { instance: instance.to_owned(), account: Mutex::default(), events }
    }

    /// A request whose pieces end in these blocks is about to run.
    pub fn expect(&self, landed: &[Landed]) {
        self.change(|account| {
            let mut stored = Vec::new();
            for &(hash, piece) in landed {
                let block = account.blocks.entry(hash).or_default();
                if block.pieces.contains(&piece) {
                    continue;
                }
                block.pieces.push(piece);
                if block.is_cached {
                    stored.push(piece);
                } else {
                    account.expected.push_back(hash);
                }
            }
            account.forget_oldest();
            (stored, Vec::new(), false)
        });
    }

    /// The engine's cache has changed.
    pub fn apply(&self, cached: Cached) {
        self.change(|account| match cached {
            Cached::Changed(changes) => account.changed(changes),
            Cached::Whole(blocks) => account.whole(blocks),
        });
    }

    /// Follows the engine until it ends.
    pub async fn follow(&self, mut cached: mpsc::Receiver<Cached>) {
        while let Some(cached) = cached.recv().await {
            self.apply(cached);
        }
    }

    /// All that is held now, and then what changes.
    pub fn subscribe(&self) -> (PieceEvents, broadcast::Receiver<Arc<PieceEvents>>) {
        let account = self.account.lock().unwrap_or_else(PoisonError::into_inner);
        let stored = account.cached_pieces();
        (self.event(account.seq, (stored, Vec::new(), true)), self.events.subscribe())
    }

    /// Number of the newest event.
    pub fn seq(&self) -> u64 {
        self.account.lock().unwrap_or_else(PoisonError::into_inner).seq
    }

    fn change(&self, change: impl FnOnce(&mut Account) -> Told) {
        let mut account = self.account.lock().unwrap_or_else(PoisonError::into_inner);
        let told = change(&mut account);
        if told.0.is_empty() && told.1.is_empty() && !told.2 {
            return;
        }
        account.seq += 1;
        // In the order of their numbers, since the account is still locked; nobody listening is fine.
        drop(self.events.send(Arc::new(self.event(account.seq, told))));
    }

    fn event(&self, seq: u64, (stored, evicted, reset): Told) -> PieceEvents {
        let hex = |pieces: Vec<PieceHash>| pieces.into_iter().map(|piece| format!("{piece:032x}")).collect();
        PieceEvents {
            seq,
            instance: self.instance.clone(),
            reset,
            stored: hex(stored),
            evicted: hex(evicted),
        }
    }
}

/// Stored, evicted, and whether all before is void.
type Told = (Vec<PieceHash>, Vec<PieceHash>, bool);

impl Account {
    fn changed(&mut self, changes: Vec<Change>) -> Told {
        let (mut stored, mut evicted) = (Vec::new(), Vec::new());
        for change in changes {
            match change {
                Change::Stored(hash) => {
                    let block = self.blocks.entry(hash).or_default();
                    block.is_cached = true;
                    stored.extend(&block.pieces);
                }
                Change::Evicted(hash) => {
                    evicted.extend(self.blocks.remove(&hash).into_iter().flat_map(|block| block.pieces));
                }
            }
        }
        (stored, evicted, false)
    }

    fn whole(&mut self, cached: Vec<BlockHash>) -> Told {
        for block in self.blocks.values_mut() {
            block.is_cached = false;
        }
        for hash in cached {
            self.blocks.entry(hash).or_default().is_cached = true;
        }
        self.blocks.retain(|_, block| block.is_cached || !block.pieces.is_empty());
        (self.cached_pieces(), Vec::new(), true)
    }

    fn cached_pieces(&self) -> Vec<PieceHash> {
        let cached = self.blocks.values().filter(|block| block.is_cached);
        cached.flat_map(|block| block.pieces.iter().copied()).collect()
    }

    fn forget_oldest(&mut self) {
        while self.expected.len() > EXPECTED_MAX {
            let Some(oldest) = self.expected.pop_front() else { return };
            if self.blocks.get(&oldest).is_some_and(|block| !block.is_cached) {
                self.blocks.remove(&oldest);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(events: &mut broadcast::Receiver<Arc<PieceEvents>>) -> (u64, Vec<String>, Vec<String>, bool) {
        let event = events.try_recv().unwrap();
        let short =
            |pieces: &[String]| pieces.iter().map(|piece| piece.trim_start_matches('0').to_owned()).collect();
        (event.seq, short(&event.stored), short(&event.evicted), event.reset)
    }

    fn texts(of: &[&str]) -> Vec<String> {
        of.iter().map(|&text| text.to_owned()).collect()
    }

    #[test]
    fn a_piece_is_told_when_its_block_is_stored_and_when_it_goes() {
        let held = Held::new("i");
        let (whole, mut events) = held.subscribe();
        assert!(whole.reset && whole.stored.is_empty());
        held.expect(&[(BlockHash(1), 0xa), (BlockHash(2), 0xb)]);
        assert!(events.try_recv().is_err(), "nothing is computed yet");
        held.apply(Cached::Changed(vec![Change::Stored(BlockHash(1)), Change::Stored(BlockHash(9))]));
        assert_eq!(told(&mut events), (1, texts(&["a"]), vec![], false));
        // Another text that ends in a block which is here already.
        held.expect(&[(BlockHash(9), 0xc)]);
        assert_eq!(told(&mut events), (2, texts(&["c"]), vec![], false));
        held.apply(Cached::Changed(vec![Change::Evicted(BlockHash(1))]));
        assert_eq!(told(&mut events), (3, vec![], texts(&["a"]), false));
        let (whole, _) = held.subscribe();
        assert_eq!((whole.seq, whole.stored.len()), (3, 1));
    }

    #[test]
    fn the_whole_replaces_what_was_told() {
        let held = Held::new("i");
        held.expect(&[(BlockHash(1), 0xa), (BlockHash(2), 0xb)]);
        held.apply(Cached::Changed(vec![Change::Stored(BlockHash(1))]));
        let (_, mut events) = held.subscribe();
        held.apply(Cached::Whole(vec![BlockHash(2)]));
        assert_eq!(told(&mut events), (2, texts(&["b"]), vec![], true));
    }
}
