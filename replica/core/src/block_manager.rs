//! Blocks of the KV pool: taken, shared, released.
//!
//! Knows who is free and in which order the free ones are used again. It knows nothing of contents: what a
//! block holds, and whether a free one is worth keeping, is the prefix cache's business.

use crate::batch::BlockId;

/// No neighbour, or not in the free list at all.
const NONE: u32 = u32::MAX;

#[derive(Clone, Copy, Debug)]
struct Block {
    holders: u32,
    previous: u32,
    next: u32,
}

/// Where a block goes when its last holder lets go.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Freed {
    /// Used again last: its contents may be asked for.
    Kept,
    /// Used again first: its contents are of no use.
    Spent,
}

/// All blocks, with the free ones in a list threaded through them: any is removed in constant time.
#[derive(Clone, Debug)]
pub struct BlockManager {
    blocks: Vec<Block>,
    /// The next to be used again.
    first: u32,
    /// The last to be used again.
    last: u32,
    free: u32,
}

impl BlockManager {
    /// `count` free blocks.
    pub fn new(count: u32) -> Self {
        let unlinked = Block { holders: 0, previous: NONE, next: NONE };
        let mut manager = Self { blocks: vec![unlinked; count as usize], first: NONE, last: NONE, free: 0 };
        for block in 0..count {
            manager.link_last(block);
        }
        manager
    }

    /// Blocks in the pool.
    pub fn total(&self) -> u32 {
        self.blocks.len() as u32
    }

    /// Blocks that nobody holds.
    pub fn free(&self) -> u32 {
        self.free
    }

    /// How many hold this block.
    pub fn holders(&self, block: BlockId) -> u32 {
        self.blocks[block.0 as usize].holders
    }

    /// Takes the free block that was of use longest ago.
    pub fn take(&mut self) -> Option<BlockId> {
        let block = self.first;
        if block == NONE {
            return None;
        }
        self.unlink(block);
        self.blocks[block as usize].holders = 1;
        Some(BlockId(block))
    }

    /// One holder more, of a free block too.
    pub fn share(&mut self, block: BlockId) {
        if self.holders(block) == 0 {
            self.unlink(block.0);
        }
        self.blocks[block.0 as usize].holders += 1;
    }

    /// One holder less. Whether the block is free now.
    pub fn release(&mut self, block: BlockId, freed: Freed) -> bool {
        let holders = &mut self.blocks[block.0 as usize].holders;
        assert!(*holders > 0, "{block:?} is freed twice");
        *holders -= 1;
        if *holders > 0 {
            return false;
        }
        match freed {
            Freed::Kept => self.link_last(block.0),
            Freed::Spent => self.link_first(block.0),
        }
        true
    }

    fn link_last(&mut self, block: u32) {
        self.blocks[block as usize].previous = self.last;
        self.blocks[block as usize].next = NONE;
        match self.last {
            NONE => self.first = block,
            last => self.blocks[last as usize].next = block,
        }
        self.last = block;
        self.free += 1;
    }

    fn link_first(&mut self, block: u32) {
        self.blocks[block as usize].previous = NONE;
        self.blocks[block as usize].next = self.first;
        match self.first {
            NONE => self.last = block,
            first => self.blocks[first as usize].previous = block,
        }
        self.first = block;
        self.free += 1;
    }

    fn unlink(&mut self, block: u32) {
        let Block { previous, next, .. } = self.blocks[block as usize];
        match previous {
            NONE => self.first = next,
            previous => self.blocks[previous as usize].next = next,
        }
        match next {
            NONE => self.last = previous,
            next => self.blocks[next as usize].previous = previous,
        }
        self.free -= 1;
    }

    /// Panics unless every block is either free or held, and never both.
    pub fn check_invariants(&self) {
        let mut seen = 0;
        let (mut block, mut previous) = (self.first, NONE);
        while block != NONE {
            let link = self.blocks[block as usize];
            assert_eq!(link.holders, 0, "BlockId({block}) is free and held");
            assert_eq!(link.previous, previous, "BlockId({block}) has a wrong neighbour");
            (previous, block) = (block, link.next);
            seen += 1;
            assert!(seen <= self.free, "the free list has a ring or too many blocks");
        }
        assert_eq!(previous, self.last, "the free list ends elsewhere");
        assert_eq!(seen, self.free, "the free list has too few blocks");
        let held = self.blocks.iter().filter(|block| block.holders > 0).count();
        assert_eq!(held as u32 + self.free, self.total(), "a block is neither free nor held");
    }
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;

    use proptest::prelude::*;

    use super::*;

    /// The same with a plain queue and plain counts.
    struct Naive {
        free: VecDeque<u32>,
        holders: Vec<u32>,
    }

    impl Naive {
        fn release(&mut self, block: u32, freed: Freed) {
            self.holders[block as usize] -= 1;
            if self.holders[block as usize] == 0 {
                match freed {
                    Freed::Kept => self.free.push_back(block),
                    Freed::Spent => self.free.push_front(block),
                }
            }
        }
    }

    #[test]
    fn blocks_are_used_again_in_the_order_they_were_freed() {
        let mut manager = BlockManager::new(3);
        let taken: Vec<_> = std::iter::from_fn(|| manager.take()).collect();
        assert_eq!(taken, [BlockId(0), BlockId(1), BlockId(2)]);
        for block in [1, 2, 0] {
            assert!(manager.release(BlockId(block), Freed::Kept));
        }
        assert_eq!(manager.take(), Some(BlockId(1)));
        manager.share(BlockId(0));
        assert_eq!(manager.take(), Some(BlockId(2)), "the shared one left the middle of the list");
        assert_eq!(manager.take(), None);
    }

    #[test]
    #[should_panic(expected = "BlockId(0) is freed twice")]
    fn freeing_twice_names_the_block() {
        let mut manager = BlockManager::new(1);
        let block = manager.take().unwrap();
        manager.release(block, Freed::Kept);
        manager.release(block, Freed::Kept);
    }

    proptest! {
        #[test]
        fn it_behaves_like_a_plain_queue(
            count in 1u32..12,
            operations in prop::collection::vec((0u8..4, 0u32..12), 0..120),
        ) {
            let mut manager = BlockManager::new(count);
            let mut naive = Naive { free: (0..count).collect(), holders: vec![0; count as usize] };
            for (operation, pick) in operations {
                let block = pick % count;
                match operation {
                    0 => {
                        let expected = naive.free.pop_front();
                        prop_assert_eq!(manager.take(), expected.map(BlockId));
                        if let Some(taken) = expected {
                            naive.holders[taken as usize] = 1;
                        }
                    }
                    1 => {
                        manager.share(BlockId(block));
                        naive.free.retain(|&free| free != block);
                        naive.holders[block as usize] += 1;
                    }
                    _ if naive.holders[block as usize] > 0 => {
                        let freed = if operation == 2 { Freed::Kept } else { Freed::Spent };
                        manager.release(BlockId(block), freed);
                        naive.release(block, freed);
                    }
                    _ => {}
                }
                manager.check_invariants();
                prop_assert_eq!(manager.free() as usize, naive.free.len());
            }
        }
    }
}
