use std::collections::BTreeSet;

use proptest::prelude::*;

use super::*;

const SEED: BlockHash = BlockHash(7);

fn chain(tokens: &[u32]) -> Vec<BlockHash> {
    let mut chain = Vec::new();
    extend_chain(&mut chain, SEED, tokens, 4);
    chain
}

/// Computes a sequence as a scheduler would, and gives its table back.
fn compute(cache: &mut PrefixCache, tokens: &[u32]) -> Vec<BlockId> {
    let chain = chain(tokens);
    let found = cache.find(&chain);
    let mut table: Vec<_> = chain[..found].iter().map(|&hash| cache.hold(hash)).collect();
    for &hash in &chain[found..] {
        let block = cache.take().unwrap();
        cache.store(block, hash);
        table.push(block);
    }
    table
}

#[test]
fn only_full_blocks_have_names() {
    assert_eq!(chain(&[1, 2, 3]).len(), 0);
    assert_eq!(chain(&[1, 2, 3, 4]).len(), 1);
    assert_eq!(chain(&[1, 2, 3, 4, 5]), chain(&[1, 2, 3, 4]));
}

#[test]
fn a_name_covers_everything_before_it() {
    let (a, b) = (chain(&[1, 2, 3, 4, 9, 9, 9, 9]), chain(&[1, 2, 3, 5, 9, 9, 9, 9]));
    assert_ne!(a[0], b[0]);
    assert_ne!(a[1], b[1]);
    let mut other_tenant = Vec::new();
    extend_chain(&mut other_tenant, BlockHash(8), &[1, 2, 3, 4], 4);
    assert_ne!(a[0], other_tenant[0]);
}

#[test]
fn a_chain_is_forgotten_from_its_tail() {
    let mut cache = PrefixCache::new(3);
    let tokens: Vec<u32> = (0..12).collect();
    let mut table = compute(&mut cache, &tokens);
    cache.release(&mut table);
    assert_eq!((cache.free(), cache.find(&chain(&tokens))), (3, 3));
    cache.take();
    assert_eq!(cache.find(&chain(&tokens)), 2);
    cache.take();
    assert_eq!(cache.find(&chain(&tokens)), 1);
}

#[test]
fn what_is_held_is_never_forgotten() {
    let mut cache = PrefixCache::new(2);
    let table = compute(&mut cache, &[1, 2, 3, 4]);
    assert!(cache.take().is_some());
    assert_eq!(cache.take(), None);
    assert_eq!(cache.find(&chain(&[1, 2, 3, 4])), 1);
    assert_eq!(cache.holders(table[0]), 1);
}

#[test]
fn a_listener_that_sleeps_is_told_to_start_over() {
    let mut cache = PrefixCache::new(1);
    for token in 0..20 {
        let mut table = compute(&mut cache, &[token; 4]);
        cache.release(&mut table);
    }
    let mut changes = Vec::new();
    assert!(!cache.take_changes(&mut changes));
    assert_eq!(cache.names().collect::<Vec<_>>(), chain(&[19; 4]));
    assert!(cache.take_changes(&mut changes), "it is up to date from here on");
}

proptest! {
    /// Sequences over a small alphabet share prefixes; a plain map of what was announced must always equal
    /// what can be found.
    #[test]
    fn announced_and_found_agree(
        blocks in 1u32..10,
        runs in prop::collection::vec((prop::collection::vec(0u32..2, 0..24), any::<bool>()), 0..40),
    ) {
        let mut cache = PrefixCache::new(blocks);
        let mut held: Vec<Vec<BlockId>> = Vec::new();
        let mut known: BTreeSet<BlockHash> = BTreeSet::new();
        for (tokens, keep) in runs {
            let tokens: Vec<u32> = tokens.iter().flat_map(|&token| [token; 4]).collect();
            let found = chain(&tokens)[..cache.find(&chain(&tokens))].to_vec();
            let need = (chain(&tokens).len() - found.len()) as u32 + cache.idle(&found);
            if need > cache.free() {
                if let Some(mut table) = held.pop() {
                    cache.release(&mut table);
                }
                continue;
            }
            let before = cache.free();
            let mut table = compute(&mut cache, &tokens);
            prop_assert_eq!(before - cache.free(), need, "the price told is the price paid");
            if keep { held.push(table) } else { cache.release(&mut table) }
            let mut changes = Vec::new();
            prop_assert!(cache.take_changes(&mut changes));
            for change in changes {
                match change {
                    Change::Stored(hash) => prop_assert!(known.insert(hash)),
                    Change::Evicted(hash) => prop_assert!(known.remove(&hash)),
                }
            }
            cache.check_invariants();
            let mut names: Vec<_> = cache.names().collect();
            names.sort_unstable();
            prop_assert!(names.iter().eq(&known));
        }
        for mut table in held {
            cache.release(&mut table);
        }
        prop_assert_eq!(cache.free(), blocks, "nothing is held in the end");
    }
}
