//! A replica in virtual time: the real scheduler and prefix cache, a fake model, and a time model for a clock.

use std::collections::BTreeMap;
use std::time::Duration;

use replica_core::batch::Batch;
use replica_core::capacity::{StepShape, TimeModel};
use replica_core::prefix_cache::{Change, extend_chain};
use replica_core::sampler::{Sampled, Sampling};
use replica_core::scheduler::{Drawn, Event, Limits, Load, Policy, Refusal, Scheduler};
use replica_core::sequence::{Request, Wants};
use rustc_hash::FxHashMap;
use serde::Deserialize;
use shared::id::{BlockHash, SequenceId};
use shared::prefix::PieceHash;
use shared::time::Instant;

use super::text::{self, PIECE_TOKENS};

/// Tokens a block.
pub const BLOCK_TOKENS: u32 = 32;

/// Blocks under one piece of prompt text.
const PIECE_BLOCKS: usize = PIECE_TOKENS / BLOCK_TOKENS as usize;

/// A kind of machine as a scenario file names it.
#[derive(Clone, Copy, PartialEq, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Machine {
    /// How many of them.
    pub count: u32,
    /// Blocks of 32 tokens in the KV pool.
    pub blocks: u32,
    /// Sequences at once.
    pub running_max: u32,
    /// Sequences that may wait.
    pub waiting_max: u32,
    /// Rows in one step.
    pub step_tokens_max: u32,
    /// Milliseconds a step should take.
    #[serde(default)]
    pub step_target_ms: Option<u64>,
    /// Milliseconds a step takes whatever it runs.
    pub step_ms: f64,
    /// Milliseconds of reading the weights once.
    pub weights_ms: f64,
    /// Microseconds of a row.
    pub row_us: f64,
    /// Nanoseconds of reading one token's KV.
    pub context_token_ns: f64,
}

impl Machine {
    fn limits(&self) -> Limits {
        Limits {
            blocks: self.blocks,
            block_tokens: BLOCK_TOKENS,
            running_max: self.running_max,
            waiting_max: self.waiting_max,
            context_tokens_max: u32::MAX,
            step_tokens_max: self.step_tokens_max,
            step_target: self.step_target_ms.map(Duration::from_millis),
            policy: Policy::Fcfs,
            prefix_caching: true,
            reserve_blocks: 1,
        }
    }

    /// How long its steps take.
    pub fn time(&self) -> TimeModel {
        TimeModel {
            step_s: self.step_ms / 1e3,
            weights_s: self.weights_ms / 1e3,
            row_s: self.row_us / 1e6,
            context_token_s: self.context_token_ns / 1e9,
        }
    }
}

/// What a gateway sends.
#[derive(Clone, Debug)]
pub struct Attempt<'a> {
    /// Its number.
    pub id: u64,
    /// Prompt, then the answer so far.
    pub tokens: &'a [u32],
    /// Tokens of the answer so far.
    pub answered: u32,
    /// The most answer tokens.
    pub answer_tokens_max: u32,
    /// The prompt's name, which the fake model answers.
    pub name: u64,
    /// The prompt's pieces.
    pub pieces: &'a [PieceHash],
    /// When the client stops waiting.
    pub deadline: Instant,
}

/// Pieces that came and went, as `/fleet/events` tells them.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct PieceNews {
    /// Counts up by one.
    pub seq: u64,
    /// Forget everything first.
    pub is_reset: bool,
    /// Now held.
    pub stored: Vec<PieceHash>,
    /// No longer held.
    pub evicted: Vec<PieceHash>,
}

/// One replica.
#[derive(Debug)]
pub struct Replica {
    /// What it is.
    pub machine: Machine,
    time: TimeModel,
    scheduler: Scheduler,
    batch: Batch,
    drawn: Vec<Drawn>,
    names: FxHashMap<SequenceId, u64>,
    /// Last block under a piece, to the piece.
    pieces: FxHashMap<BlockHash, PieceHash>,
    /// Blocks that were stored before their piece was known.
    named_late: Vec<BlockHash>,
    chain: Vec<BlockHash>,
    changes: Vec<Change>,
    seq: u64,
    /// The end of the step that runs.
    step: Option<(Instant, Duration)>,
    /// Grows with each start.
    pub instance: u32,
    /// Times as long as usual a step takes.
    pub slowness: f64,
}

impl Replica {
    /// A fresh one.
    pub fn new(machine: Machine, instance: u32) -> Self {
        Self {
            machine,
            time: machine.time(),
            scheduler: Scheduler::new(machine.limits()),
            batch: Batch::default(),
            drawn: Vec::new(),
            names: FxHashMap::default(),
            pieces: FxHashMap::default(),
            named_late: Vec::new(),
            chain: Vec::new(),
            changes: Vec::new(),
            seq: 0,
            step: None,
            instance,
            slowness: 1.0,
        }
    }

    /// Takes an attempt into its queue.
    pub fn add(&mut self, attempt: &Attempt<'_>, now: Instant) -> Result<(), Refusal> {
        let id = SequenceId(attempt.id);
        let request = Request {
            id,
            tokens: attempt.tokens.to_vec(),
            answered: attempt.answered,
            answer_tokens_max: attempt.answer_tokens_max,
            answer_tokens_min: 0,
            stop_tokens: Vec::new(),
            sampling: Sampling::default(),
            chain_seed: text::CHAIN_SEED,
            priority: 0,
            arrival: now,
            deadline: Some(attempt.deadline),
            wants: Wants::Tokens,
        };
        self.scheduler.add(request)?;
        self.names.insert(id, attempt.name);
        self.name_pieces(attempt.tokens, attempt.pieces);
        Ok(())
    }

    /// Learns which blocks lie under which piece of text: of a prompt when it comes, of an answer at its end.
    pub fn name_pieces(&mut self, tokens: &[u32], pieces: &[PieceHash]) {
        self.chain.clear();
        extend_chain(&mut self.chain, text::CHAIN_SEED, tokens, BLOCK_TOKENS);
        let last_blocks = self.chain.iter().skip(PIECE_BLOCKS - 1).step_by(PIECE_BLOCKS);
        for (&block, &piece) in last_blocks.zip(pieces) {
            if self.pieces.insert(block, piece).is_none() && self.scheduler.cached_of(&[block]) == 1 {
                self.named_late.push(block);
            }
        }
    }

    /// The client or the gateway left.
    pub fn abort(&mut self, attempt: u64) {
        self.scheduler.abort(SequenceId(attempt));
        self.names.remove(&SequenceId(attempt));
    }

    /// Plans the next step, which takes `crowding` times as long as alone; when it will be over, if there is anything
    /// to run.
    pub fn begin_step(
        &mut self,
        now: Instant,
        crowding: f64,
        events: &mut Vec<(SequenceId, Event)>,
    ) -> Option<Instant> {
        assert!(self.step.is_none(), "a step runs already");
        self.scheduler.schedule(now, &mut self.batch, events);
        if self.batch.is_empty() {
            return None;
        }
        let took = self.time.step(StepShape::of(&self.batch)).mul_f64(self.slowness * crowding);
        self.step = Some((now + took, took));
        Some(now + took)
    }

    /// The step is over: tokens are drawn and accounted for.
    pub fn end_step(&mut self, now: Instant, events: &mut Vec<(SequenceId, Event)>) {
        let (_, took) = self.step.take().expect("a step that ends was begun");
        for share in &self.batch.shares {
            if !self.scheduler.draws(share) {
                continue;
            }
            let Some(sequence) = self.scheduler.sequence(share.sequence) else { continue };
            let token = text::answer_token(self.names[&share.sequence], sequence.answer_tokens());
            self.drawn.push((share.sequence, Ok(Sampled::unscored(token))));
        }
        self.scheduler.commit(now, took, &mut self.drawn, events);
        for (id, event) in events.iter() {
            if matches!(event, Event::Finished(_)) {
                self.names.remove(id);
            }
        }
    }

    /// Rows of the step that runs or ran last.
    pub fn rows(&self) -> u32 {
        self.batch.rows() as u32
    }

    /// When the step that runs will be over.
    pub fn step_end(&self) -> Option<Instant> {
        self.step.map(|(end, _)| end)
    }

    /// Whether nobody runs or waits.
    pub fn is_idle(&self) -> bool {
        self.scheduler.is_idle()
    }

    /// How busy it is.
    pub fn load(&self) -> Load {
        self.scheduler.load()
    }

    /// The scheduler's limits in force.
    pub fn limits(&self) -> &Limits {
        self.scheduler.limits()
    }

    /// Tokens of a prompt, given its chain of blocks, that are in the cache at this moment.
    pub fn cached_tokens(&self, chain: &[BlockHash]) -> u32 {
        self.scheduler.cached_of(chain) as u32 * BLOCK_TOKENS
    }

    /// Pieces that came and went since the last call, if any.
    pub fn news(&mut self) -> Option<PieceNews> {
        self.changes.clear();
        if !self.scheduler.take_changes(&mut self.changes) {
            return Some(self.whole());
        }
        // What counts is how each piece ended up.
        let mut ends = BTreeMap::new();
        for hash in self.named_late.drain(..) {
            ends.extend(self.pieces.get(&hash).map(|&piece| (piece, true)));
        }
        for change in &self.changes {
            let (hash, is_stored) = match change {
                Change::Stored(hash) => (hash, true),
                Change::Evicted(hash) => (hash, false),
            };
            if let Some(&piece) = self.pieces.get(hash) {
                ends.insert(piece, is_stored);
            }
        }
        self.forget_pieces();
        if ends.is_empty() {
            return None;
        }
        self.seq += 1;
        let of =
            |wanted| ends.iter().filter(move |(_, is)| **is == wanted).map(|(&piece, _)| piece).collect();
        Some(PieceNews { seq: self.seq, is_reset: false, stored: of(true), evicted: of(false) })
    }

    /// Keeps the table of pieces to about the size of the pool.
    fn forget_pieces(&mut self) {
        if self.pieces.len() > 2 * self.machine.blocks as usize {
            let scheduler = &self.scheduler;
            self.pieces.retain(|&hash, _| scheduler.cached_of(&[hash]) == 1);
        }
    }

    /// Everything it holds: what a listener gets that starts, or has missed something.
    pub fn whole(&mut self) -> PieceNews {
        self.changes.clear();
        self.named_late.clear();
        self.scheduler.take_changes(&mut self.changes);
        self.seq += 1;
        let stored = self.scheduler.cached().filter_map(|hash| self.pieces.get(&hash).copied()).collect();
        PieceNews { seq: self.seq, is_reset: true, stored, evicted: Vec::new() }
    }

    /// Panics unless the scheduler's state holds together.
    pub fn check_invariants(&self) {
        self.scheduler.check_invariants();
    }
}
