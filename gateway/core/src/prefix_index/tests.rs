use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;

use super::*;

const A: ReplicaId = ReplicaId(1);
const B: ReplicaId = ReplicaId(2);
const COMPUTED: Settlement = Settlement { is_computed: true, predicted: 0, reported: None };

fn index(holdings_max: usize) -> PrefixIndex {
    PrefixIndex::new(holdings_max)
}

fn matched(index: &PrefixIndex, pieces: &[PieceHash], replica: ReplicaId) -> u32 {
    let mut matches = Matches::default();
    index.lookup(pieces, &mut matches);
    matches.pieces(replica)
}

fn compute(index: &mut PrefixIndex, replica: ReplicaId, pieces: &[PieceHash]) {
    index.guess(replica, pieces);
    index.settle(replica, pieces, COMPUTED);
}

#[test]
fn a_match_counts_consecutive_pieces_from_the_start() {
    let mut index = index(100);
    compute(&mut index, A, &[1, 2, 3]);
    compute(&mut index, B, &[1, 2]);
    assert_eq!(matched(&index, &[1, 2, 3, 4], A), 3);
    assert_eq!(matched(&index, &[1, 2, 3, 4], B), 2);
    assert_eq!(matched(&index, &[9, 2, 3], A), 0);
    index.check_invariants();
}

#[test]
fn a_hole_ends_the_match() {
    let mut index = index(100);
    index.apply(A, PieceChange { seq: 0, is_reset: true, stored: &[1, 2, 3], evicted: &[] });
    index.apply(A, PieceChange { seq: 1, is_reset: false, stored: &[], evicted: &[2] });
    assert_eq!(matched(&index, &[1, 2, 3], A), 1);
}

#[test]
fn an_equal_prompt_follows_one_that_is_still_on_its_way() {
    let mut index = index(100);
    index.guess(A, &[1, 2]);
    assert_eq!(matched(&index, &[1, 2], A), 2);
}

#[test]
fn a_failed_request_takes_back_its_guess_but_no_knowledge() {
    let mut index = index(100);
    compute(&mut index, A, &[1]);
    index.guess(A, &[1, 2]);
    index.settle(A, &[1, 2], Settlement { is_computed: false, predicted: 1, reported: None });
    assert_eq!(matched(&index, &[1, 2], A), 1);
}

#[test]
fn an_answer_restores_what_an_equal_failure_took_back() {
    let mut index = index(100);
    index.guess(A, &[1, 2]);
    index.guess(A, &[1, 2]);
    index.settle(A, &[1, 2], Settlement { is_computed: false, predicted: 0, reported: None });
    index.settle(A, &[1, 2], COMPUTED);
    assert_eq!(matched(&index, &[1, 2], A), 2);
}

/// U079: a replica with a tiny pool evicts; one predicted hit that was none drops the entry.
#[test]
fn a_predicted_hit_that_was_none_is_dropped_and_lowers_trust() {
    let mut index = index(100);
    let prompt = [1, 2, 3, 4];
    compute(&mut index, A, &prompt);
    index.settle(A, &prompt, Settlement { is_computed: true, predicted: 4, reported: Some(0) });
    assert!(matched(&index, &prompt, A) <= 1);
    compute(&mut index, A, &prompt);
    let mut matches = Matches::default();
    index.lookup(&prompt, &mut matches);
    assert_eq!(matches.pieces(A), 4);
    assert!(index.trusted(&matches, A) < 4);
    index.check_invariants();
}

#[test]
fn an_unreported_cache_is_unknown_and_corrects_nothing() {
    let mut index = index(100);
    compute(&mut index, A, &[1, 2]);
    index.settle(A, &[1, 2], Settlement { is_computed: true, predicted: 2, reported: None });
    assert_eq!(matched(&index, &[1, 2], A), 2);
}

#[test]
fn with_events_only_what_was_reported_stays() {
    let mut index = index(100);
    index.apply(A, PieceChange { seq: 7, is_reset: true, stored: &[], evicted: &[] });
    index.guess(A, &[1, 2]);
    index.apply(A, PieceChange { seq: 8, is_reset: false, stored: &[1], evicted: &[] });
    index.settle(A, &[1, 2], COMPUTED);
    assert_eq!(matched(&index, &[1, 2], A), 1, "a template rewrote piece 2");
}

#[test]
fn a_gap_empties_the_shelf_until_a_reset() {
    let mut index = index(100);
    let change = |seq, is_reset, stored| PieceChange { seq, is_reset, stored, evicted: &[] };
    assert!(!index.is_exact(A));
    assert_eq!(index.apply(A, change(3, true, &[1])), Sync::Complete);
    assert!(index.is_exact(A));
    assert_eq!(index.apply(A, change(5, false, &[2])), Sync::Lost);
    assert_eq!((index.held(A), index.is_exact(A)), (0, false));
    assert_eq!(index.apply(A, change(6, false, &[2])), Sync::Lost);
    assert_eq!(index.apply(A, change(9, true, &[2])), Sync::Complete);
    assert_eq!(index.held(A), 1);
    index.check_invariants();
}

#[test]
fn a_full_shelf_forgets_the_end_of_old_prompts_first() {
    let mut index = index(100);
    index.set_capacity(A, Some(4));
    compute(&mut index, A, &[1, 2, 3]);
    compute(&mut index, A, &[11, 12]);
    assert_eq!(matched(&index, &[11, 12], A), 2);
    assert_eq!(matched(&index, &[1, 2, 3], A), 2);
    index.check_invariants();
}

#[test]
fn a_new_replica_shrinks_the_share_of_the_others() {
    let mut index = index(8);
    compute(&mut index, A, &[1, 2, 3, 4, 5, 6, 7, 8]);
    compute(&mut index, B, &[11, 12, 13, 14, 15]);
    assert_eq!((index.held(A), index.held(B)), (4, 4));
    index.check_invariants();
}

#[test]
fn a_forgotten_replica_leaves_nothing_and_its_slot_is_used_again() {
    let mut index = index(100);
    compute(&mut index, A, &[1, 2]);
    index.forget(A);
    assert_eq!(index.pieces(), 0);
    compute(&mut index, B, &[1]);
    assert_eq!(matched(&index, &[1], A), 0);
    assert_eq!(matched(&index, &[1], B), 1);
    index.check_invariants();
}

#[test]
fn memory_stays_flat_over_distinct_prompts() {
    let mut index = index(2000);
    let mut most_after_warm_up = 0;
    for prompt in 0..20_000_u64 {
        let replica = ReplicaId((prompt % 4) as u32);
        let pieces: Vec<PieceHash> = (0..5).map(|piece| hash(prompt * 5 + piece)).collect();
        compute(&mut index, replica, &pieces);
        let bytes = index.bytes();
        if prompt == 4000 {
            most_after_warm_up = bytes;
        }
        assert!(prompt <= 4000 || bytes <= most_after_warm_up * 3 / 2, "{bytes} after {prompt} prompts");
    }
    assert!(index.bytes() / index.pieces() < 100, "{} bytes a piece", index.bytes() / index.pieces());
    index.check_invariants();
}

fn hash(number: u64) -> PieceHash {
    PieceHash::from(number.wrapping_mul(0x9e37_79b9_7f4a_7c15))
}

#[derive(Clone, Debug)]
enum Op {
    Compute(u32, usize, usize),
    Fail(u32, usize, usize),
    Forget(u32),
    Reset(u32, usize),
    Lookup(usize),
}

fn op() -> impl Strategy<Value = Op> {
    let prompt = || (0u32..9, 0usize..6, 0usize..8);
    prop_oneof![
        4 => prompt().prop_map(|(replica, stem, length)| Op::Compute(replica, stem, length)),
        2 => prompt().prop_map(|(replica, stem, length)| Op::Fail(replica, stem, length)),
        1 => (0u32..9).prop_map(Op::Forget),
        1 => (0u32..9, 0usize..6).prop_map(|(replica, stem)| Op::Reset(replica, stem)),
        3 => (0usize..6).prop_map(Op::Lookup),
    ]
}

/// Prompts that share starts: stem 3 begins like stem 1.
fn prompt(stem: usize, length: usize) -> Vec<PieceHash> {
    (0..length).map(|at| hash((if at < 3 { stem % 2 } else { stem } * 100 + at) as u64)).collect()
}

#[derive(Default)]
struct Naive {
    held: BTreeMap<u32, BTreeSet<PieceHash>>,
    exact: BTreeSet<u32>,
}

impl Naive {
    fn depth(&self, replica: u32, pieces: &[PieceHash]) -> u32 {
        let held = self.held.get(&replica);
        pieces.iter().take_while(|piece| held.is_some_and(|held| held.contains(piece))).count() as u32
    }

    fn run(&mut self, op: &Op) {
        match *op {
            Op::Compute(replica, stem, length) if !self.exact.contains(&replica) => {
                self.held.entry(replica).or_default().extend(prompt(stem, length));
            }
            Op::Forget(replica) => {
                self.held.remove(&replica);
                self.exact.remove(&replica);
            }
            Op::Reset(replica, stem) => {
                self.held.insert(replica, prompt(stem, 5).into_iter().collect());
                self.exact.insert(replica);
            }
            _ => {}
        }
    }
}

fn run(index: &mut PrefixIndex, op: &Op) {
    match *op {
        Op::Compute(replica, stem, length) => compute(index, ReplicaId(replica), &prompt(stem, length)),
        Op::Fail(replica, stem, length) => {
            let pieces = prompt(stem, length);
            index.guess(ReplicaId(replica), &pieces);
            index.settle(ReplicaId(replica), &pieces, Settlement { is_computed: false, ..COMPUTED });
        }
        Op::Forget(replica) => index.forget(ReplicaId(replica)),
        Op::Reset(replica, stem) => {
            let stored = prompt(stem, 5);
            index.apply(
                ReplicaId(replica),
                PieceChange { seq: 1, is_reset: true, stored: &stored, evicted: &[] },
            );
        }
        Op::Lookup(_) => {}
    }
}

proptest! {
    #[test]
    fn with_room_for_all_it_equals_the_naive_index(ops in prop::collection::vec(op(), 1..60)) {
        let (mut index, mut naive) = (index(100_000), Naive::default());
        for op in ops {
            run(&mut index, &op);
            naive.run(&op);
            index.check_invariants();
            if let Op::Lookup(stem) = op {
                let pieces = prompt(stem, 8);
                for replica in 0..9 {
                    let found = matched(&index, &pieces, ReplicaId(replica));
                    prop_assert_eq!(found, naive.depth(replica, &pieces));
                }
            }
        }
    }

    #[test]
    fn when_full_it_holds_no_more_than_the_naive_index(
        ops in prop::collection::vec(op(), 1..80), room in 1usize..40,
    ) {
        let (mut index, mut naive) = (index(room), Naive::default());
        for op in ops {
            run(&mut index, &op);
            naive.run(&op);
            index.check_invariants();
            for stem in 0..6 {
                let pieces = prompt(stem, 8);
                for replica in 0..9 {
                    prop_assert!(matched(&index, &pieces, ReplicaId(replica)) <= naive.depth(replica, &pieces));
                }
            }
        }
    }
}
