//! A scheduler with a model whose every answer depends on every token before it, through the very slots and
//! tables of the batch: a wrong block shows as a wrong token.

mod cases;
mod fairness;
mod properties;

use std::collections::BTreeMap;
use std::time::Duration;

use super::*;
use crate::batch::{Batch, Output};
use crate::sampler::Sampling;
use crate::sequence::Wants;

/// The answer that the fake model gives to a prompt, computed without any scheduler.
pub(super) fn expected(prompt: &[u32], answer_tokens: usize) -> Vec<u32> {
    let mut state = prompt.iter().fold(0, |state, &token| advance(state, token));
    let mut answer = Vec::new();
    for _ in 0..answer_tokens {
        let token = token_of(state);
        answer.push(token);
        state = advance(state, token);
    }
    answer
}

fn advance(state: u64, token: u32) -> u64 {
    (state ^ u64::from(token)).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(23) + 1
}

fn token_of(state: u64) -> u32 {
    (state >> 40) as u32 % 1000
}

/// One replica in memory.
pub(super) struct Bench {
    pub scheduler: Scheduler,
    pub batch: Batch,
    pub events: Vec<(SequenceId, Event)>,
    pub answers: BTreeMap<SequenceId, Vec<u32>>,
    pub ends: BTreeMap<SequenceId, Finish>,
    pub now: Instant,
    pub steps: usize,
    kv: Vec<u64>,
    drawn: Vec<Drawn>,
    /// Sequences whose logits are not numbers.
    pub poisoned: Vec<SequenceId>,
}

pub(super) fn limits() -> Limits {
    Limits {
        blocks: 64,
        block_tokens: 4,
        running_max: 8,
        waiting_max: 100,
        context_tokens_max: 200,
        step_tokens_max: 32,
        step_target: None,
        policy: Policy::Fcfs,
        prefix_caching: true,
        reserve_blocks: 1,
    }
}

pub(super) fn request(id: u64, tokens: &[u32], answer_tokens_max: u32) -> Request {
    Request {
        id: SequenceId(id),
        tokens: tokens.to_vec(),
        answered: 0,
        answer_tokens_max,
        answer_tokens_min: 0,
        stop_tokens: vec![],
        sampling: Sampling::default(),
        chain_seed: BlockHash(0),
        priority: 0,
        arrival: Instant::ZERO,
        deadline: None,
        wants: Wants::Tokens,
    }
}

/// `count` tokens that share nothing with those of another `kind`.
pub(super) fn prompt(kind: u32, count: u32) -> Vec<u32> {
    (0..count).map(|index| kind * 10_000 + index).collect()
}

impl Bench {
    pub fn new(limits: Limits) -> Self {
        Self {
            kv: vec![0; (limits.blocks * limits.block_tokens) as usize],
            scheduler: Scheduler::new(limits),
            batch: Batch::default(),
            events: Vec::new(),
            answers: BTreeMap::new(),
            ends: BTreeMap::new(),
            now: Instant::ZERO,
            steps: 0,
            drawn: Vec::new(),
            poisoned: Vec::new(),
        }
    }

    pub fn add(&mut self, request: Request) {
        self.scheduler.add(request).unwrap();
        self.scheduler.check_invariants();
    }

    /// One step. Whether there was anything to run.
    pub fn step(&mut self) -> bool {
        self.scheduler.schedule(self.now, &mut self.batch, &mut self.events);
        self.scheduler.check_invariants();
        self.check_batch();
        self.forward();
        self.now = self.now + Duration::from_millis(10);
        self.scheduler.commit(self.now, Duration::from_millis(10), &mut self.drawn, &mut self.events);
        self.scheduler.check_invariants();
        self.steps += usize::from(!self.batch.is_empty());
        self.collect();
        !self.batch.is_empty()
    }

    /// Steps until nobody is left, however long that takes.
    pub fn run(&mut self) {
        while !self.scheduler.is_idle() {
            // The last one may have expired in this very step.
            assert!(self.step() || self.scheduler.is_idle(), "somebody is left and nothing runs");
            assert!(self.steps < 20_000, "no end");
        }
        assert_eq!(
            self.scheduler.load().blocks_free,
            self.scheduler.load().blocks,
            "a block is held for ever"
        );
    }

    pub fn answer(&self, id: u64) -> &[u32] {
        self.answers.get(&SequenceId(id)).map_or(&[], Vec::as_slice)
    }

    fn forward(&mut self) {
        let block_tokens = self.scheduler.limits().block_tokens;
        for share in &self.batch.shares {
            let table = &self.batch.tables[share.table.clone()];
            let mut state = 0;
            for row in share.rows.clone() {
                let position = self.batch.positions[row];
                let slot = |position: u32| {
                    (table[(position / block_tokens) as usize].0 * block_tokens + position % block_tokens)
                        as usize
                };
                let before = if position == 0 { 0 } else { self.kv[slot(position - 1)] };
                state = advance(before, self.batch.tokens[row]);
                assert_eq!(self.batch.slots[row] as usize, slot(position));
                self.kv[slot(position)] = state;
            }
            let poisoned = self.poisoned.contains(&share.sequence);
            if poisoned {
                self.drawn.push((share.sequence, Err("poisoned".into())));
            } else if self.scheduler.draws(share) {
                let sampled = Sampled::unscored(token_of(state));
                self.drawn.push((share.sequence, Ok(sampled)));
            }
        }
    }

    fn check_batch(&self) {
        let limits = self.scheduler.limits();
        assert!(self.batch.rows() as u32 <= limits.step_tokens_max, "a step exceeds its budget");
        let mut rows = 0;
        for share in &self.batch.shares {
            assert_eq!(share.rows.start, rows, "shares are not neighbours");
            assert!(!share.rows.is_empty());
            rows = share.rows.end;
            let last = self.batch.positions[rows - 1];
            let ends = self.scheduler.draws(share) || share.output != Output::Nothing;
            assert!(ends || (last + 1).is_multiple_of(limits.block_tokens), "a chunk ends inside a block");
        }
        assert_eq!(rows, self.batch.rows());
    }

    fn collect(&mut self) {
        for (id, event) in self.events.drain(..) {
            assert!(!self.ends.contains_key(&id), "{id:?} speaks after its end");
            match event {
                Event::Started(_) => {
                    assert!(self.answers.insert(id, vec![]).is_none(), "{id:?} starts twice");
                }
                Event::Token(sampled) => self.answers.get_mut(&id).expect("started").push(sampled.token),
                Event::Preempted => {}
                Event::Finished(finish) => {
                    self.ends.insert(id, finish);
                }
            }
        }
    }
}
