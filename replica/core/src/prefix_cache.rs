//! Full block's hash to block: what is computed once is found again.
//!
//! A hash names a block's tokens and everything before them, so equal hashes mean equal KV. Freed blocks keep
//! their hash until they are used again. It knows no sequences; they hold, store and release blocks here.

use rustc_hash::FxHashMap;
use shared::id::BlockHash;
use xxhash_rust::xxh3::Xxh3;

use crate::batch::BlockId;
use crate::block_manager::{BlockManager, Freed};

/// The chain of hashes over the full blocks of `tokens`, appended to `chain` where that one ends.
///
/// 128 bits of xxh3 over the parent's hash and the block's token ids; the seed names model, tokenizer
/// revision and cache salt, so tenants and models never share KV by accident.
pub fn extend_chain(chain: &mut Vec<BlockHash>, seed: BlockHash, tokens: &[u32], block_tokens: u32) {
    let start = chain.len() * block_tokens as usize;
    let mut parent = chain.last().copied().unwrap_or(seed);
    for block in tokens.get(start..).unwrap_or_default().chunks_exact(block_tokens as usize) {
        let mut hasher = Xxh3::new();
        hasher.update(&parent.0.to_le_bytes());
        for token in block {
            hasher.update(&token.to_le_bytes());
        }
        parent = BlockHash(hasher.digest128());
        chain.push(parent);
    }
}

/// A block's contents came or went.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Change {
    /// Its KV can be found now.
    Stored(BlockHash),
    /// Its KV is gone.
    Evicted(BlockHash),
}

/// Blocks with names. Bounded by the pool.
#[derive(Debug)]
pub struct PrefixCache {
    blocks: BlockManager,
    by_hash: FxHashMap<BlockHash, BlockId>,
    hashes: Vec<Option<BlockHash>>,
    changes: Vec<Change>,
    changes_lost: bool,
}

impl PrefixCache {
    /// `count` free blocks, nothing known of their contents.
    pub fn new(count: u32) -> Self {
        Self {
            blocks: BlockManager::new(count),
            by_hash: FxHashMap::default(),
            hashes: vec![None; count as usize],
            changes: Vec::new(),
            changes_lost: false,
        }
    }

    /// How many hold this block.
    pub fn holders(&self, block: BlockId) -> u32 {
        self.blocks.holders(block)
    }

    /// Blocks that nobody holds; named ones among them can still be found.
    pub fn free(&self) -> u32 {
        self.blocks.free()
    }

    /// How many blocks of a chain, from its start, are here.
    pub fn find(&self, chain: &[BlockHash]) -> usize {
        chain.iter().take_while(|hash| self.by_hash.contains_key(hash)).count()
    }

    /// How many of these blocks nobody holds: holding them takes as many from the free ones.
    pub fn idle(&self, found: &[BlockHash]) -> u32 {
        let is_idle = |hash: &&BlockHash| self.blocks.holders(self.by_hash[*hash]) == 0;
        found.iter().filter(is_idle).count() as u32
    }

    /// Holds the block of this name, which was found.
    pub fn hold(&mut self, hash: BlockHash) -> BlockId {
        let block = self.by_hash[&hash];
        self.blocks.share(block);
        block
    }

    /// Takes an empty block; the one of use longest ago loses its name.
    pub fn take(&mut self) -> Option<BlockId> {
        let block = self.blocks.take()?;
        self.forget(block);
        Some(block)
    }

    /// Names a full block that is held. Where another block has that name already, that one keeps it.
    pub fn store(&mut self, block: BlockId, hash: BlockHash) {
        assert!(self.blocks.holders(block) > 0, "{block:?} is stored but not held");
        if self.hashes[block.0 as usize].is_some() || self.by_hash.contains_key(&hash) {
            return;
        }
        self.by_hash.insert(hash, block);
        self.hashes[block.0 as usize] = Some(hash);
        self.note(Change::Stored(hash));
    }

    /// Takes a block's name away, so that what it holds is never found again. Its holders keep it.
    pub fn forget(&mut self, block: BlockId) {
        if let Some(hash) = self.hashes[block.0 as usize].take() {
            self.by_hash.remove(&hash);
            self.note(Change::Evicted(hash));
        }
    }

    /// Lets go of a sequence's blocks (emptying `table`), the last first: so a chain is forgotten from its
    /// tail, and what is left of it can still be found.
    pub fn release(&mut self, table: &mut Vec<BlockId>) {
        while let Some(block) = table.pop() {
            let freed = if self.hashes[block.0 as usize].is_some() { Freed::Kept } else { Freed::Spent };
            self.blocks.release(block, freed);
        }
    }

    /// Moves what changed since the last call into `changes`. `false`: nobody asked for so long that
    /// changes were dropped, and only [`PrefixCache::names`] tells the whole.
    pub fn take_changes(&mut self, changes: &mut Vec<Change>) -> bool {
        changes.append(&mut self.changes);
        !std::mem::take(&mut self.changes_lost)
    }

    /// The names of all blocks that can be found now.
    pub fn names(&self) -> impl Iterator<Item = BlockHash> + '_ {
        self.hashes.iter().flatten().copied()
    }

    /// Changes kept for a listener: as many as two turnovers of the pool.
    fn changes_max(&self) -> usize {
        4 * self.hashes.len()
    }

    fn note(&mut self, change: Change) {
        if self.changes.len() >= self.changes_max() {
            self.changes.clear();
            self.changes_lost = true;
        }
        if !self.changes_lost {
            self.changes.push(change);
        }
    }

    /// Panics unless names and blocks agree.
    pub fn check_invariants(&self) {
        self.blocks.check_invariants();
        let named = self.hashes.iter().flatten().count();
        assert_eq!(named, self.by_hash.len(), "a name has no block, or two");
        for (index, hash) in self.hashes.iter().enumerate() {
            let Some(hash) = hash else { continue };
            let block = BlockId(index as u32);
            assert_eq!(self.by_hash.get(hash), Some(&block), "{block:?} is named for another");
        }
    }
}

#[cfg(test)]
mod tests;
