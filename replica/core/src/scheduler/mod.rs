//! Decides what the next step computes and what its outcome means.
//!
//! Pure: it is told the time and the drawn tokens, and it neither runs a model nor knows who listens.
//! One call of [`Scheduler::schedule`] plans a step, one of [`Scheduler::commit`] accounts for it:
//!
//! 1. every decoding sequence gets its row first; the youngest are preempted when blocks run out;
//! 2. what is left of the step's budget goes to prompts (`lanes` has the rule, fair to long and short);
//! 3. nobody is admitted in a step that preempted, and nobody unless the whole prompt and a reserve fit.
//!
//! The engine's loop is: `schedule`, forward, [`Scheduler::draw`] for every share that
//! [`Scheduler::draws`], `commit`.

mod admit;
mod commit;
mod lanes;
mod limits;
mod plan;
mod store;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};

use rustc_hash::FxHashMap;
use shared::id::{BlockHash, SequenceId};
use shared::time::Instant;

use self::store::{Place, Store};
use crate::batch::Share;
use crate::capacity::Pace;
use crate::prefix_cache::{Change, PrefixCache};
use crate::sampler::{Draw, Sampled, Sampler, Undrawable};
use crate::sequence::{Finish, Request, Sequence, Timing};

pub use self::limits::{Limits, Policy, Refusal};

/// A place in line: by priority where that counts, then by arrival. Kept through preemption.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct Turn {
    priority: i32,
    arrival: u64,
}

/// What happened to a sequence.
#[derive(Clone, PartialEq, Debug)]
pub enum Event {
    /// Comes once, before the first token.
    Started(Timing),
    /// The next token of the answer. The stop token that ends one is not sent.
    Token(Sampled),
    /// It gave its blocks back and waits again; nothing is lost but time. For logs and counters.
    Preempted,
    /// The end; nothing follows, and its blocks are free.
    Finished(Finish),
}

/// What a draw came to; the text tells why a sequence failed.
pub type Drawn = (SequenceId, Result<Sampled, String>);

/// How busy the scheduler is, and what it has done so far.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct Load {
    /// Sequences that hold blocks.
    pub running: u32,
    /// Sequences that wait.
    pub waiting: u32,
    /// Tokens still to be prefilled over all sequences, less what the cache seems to have.
    pub waiting_tokens: u64,
    /// Blocks that nobody holds (cached ones count as free).
    pub blocks_free: u32,
    /// Blocks in the pool.
    pub blocks: u32,
    /// Measured prefill rate in tokens a second.
    pub prefill_tokens_per_s: Option<f64>,
    /// Measured decode rate in tokens a second over all sequences.
    pub decode_tokens_per_s: Option<f64>,
    /// Tokens looked up in the prefix cache since the start.
    pub cache_query_tokens: u64,
    /// Tokens found there.
    pub cache_hit_tokens: u64,
    /// Preemptions since the start.
    pub preemptions: u64,
}

/// Owns the queue, the running set and the blocks of one replica.
#[derive(Debug)]
pub struct Scheduler {
    limits: Limits,
    cache: PrefixCache,
    store: Store,
    waiting: BTreeMap<Turn, Place>,
    /// Who holds blocks, in line order: the last is preempted first.
    running: Vec<(Turn, Place)>,
    /// When waiting sequences that never ran are dropped.
    deadlines: BTreeSet<(Instant, Turn)>,
    /// Blocks that running sequences are about to fill: who shares one waits for it.
    computing: FxHashMap<BlockHash, Place>,
    /// The sequences of the planned step, in the order of its shares.
    planned: Vec<SequenceId>,
    pace: Pace,
    arrivals: u64,
    /// Whose step it is where a step holds one block of prompt only.
    short_turn: bool,
    /// Whether the last plan left somebody waiting.
    crowded: bool,
    /// Counters only; the rest of it is filled in by [`Scheduler::load`].
    done: Load,
}

impl Scheduler {
    /// An idle one. Limits that contradict each other are made to agree; [`Scheduler::limits`] tells them.
    pub fn new(limits: Limits) -> Self {
        let limits = limits.agreed();
        Self {
            limits,
            cache: PrefixCache::new(limits.blocks),
            store: Store::default(),
            waiting: BTreeMap::new(),
            running: Vec::new(),
            deadlines: BTreeSet::new(),
            computing: FxHashMap::default(),
            planned: Vec::new(),
            pace: Pace::default(),
            arrivals: 0,
            short_turn: false,
            crowded: false,
            done: Load::default(),
        }
    }

    /// The limits in force: a context never exceeds the pool, a step has room for a row of every running
    /// sequence and one block of a prompt.
    pub fn limits(&self) -> &Limits {
        &self.limits
    }

    /// Puts a request in the queue. The queue may hold what will fill the free running places too, unless
    /// the last step left somebody waiting.
    pub fn add(&mut self, request: Request) -> Result<(), Refusal> {
        let priority = if self.limits.policy == Policy::Priority { request.priority } else { 0 };
        let mut sequence = Sequence::new(request, Turn { priority, arrival: self.arrivals });
        if sequence.len() + u32::from(sequence.wants_token()) > self.limits.context_tokens_max {
            return Err(Refusal::NeverFits { pool_tokens: self.limits.context_tokens_max });
        }
        let waiting = self.waiting.len() as u32;
        let places = if self.crowded { 0 } else { self.limits.running_max - self.running.len() as u32 };
        if waiting >= self.limits.waiting_max.saturating_add(places) {
            return Err(Refusal::Full { waiting });
        }
        self.arrivals += 1;
        self.limits.name_blocks(&mut sequence);
        sequence.cached_guess = self.cached_blocks(&sequence) * self.limits.block_tokens;
        let (turn, deadline) = (sequence.turn, sequence.request.deadline);
        let place = self.store.insert(sequence);
        self.waiting.insert(turn, place);
        self.deadlines.extend(deadline.map(|deadline| (deadline, turn)));
        Ok(())
    }

    /// Forgets a sequence and frees its blocks at once; no event follows. Whether it was there.
    pub fn abort(&mut self, id: SequenceId) -> bool {
        let Some(place) = self.store.place(id) else { return false };
        self.remove(place);
        true
    }

    /// A sequence in flight.
    pub fn sequence(&self, id: SequenceId) -> Option<&Sequence> {
        self.store.place(id).map(|place| &self.store[place])
    }

    /// Whether a token is to be drawn from the last row of this share of the planned step.
    pub fn draws(&self, share: &Share) -> bool {
        self.sequence(share.sequence).is_some_and(|sequence| sequence.draws)
    }

    /// Draws the token of a share from the logits of its last row.
    ///
    /// # Panics
    ///
    /// When the sequence is not in flight: ask [`Scheduler::draws`] first.
    pub fn draw(
        &self,
        share: &Share,
        logits: &mut [f32],
        sampler: &mut Sampler,
    ) -> Result<Sampled, Undrawable> {
        let sequence = self.sequence(share.sequence).expect("shares that draw are in flight");
        let request = &sequence.request;
        let index = sequence.answer_tokens();
        let suppressed = if index < request.answer_tokens_min { &request.stop_tokens[..] } else { &[] };
        let answer = sequence.answer();
        sampler.sample(
            logits,
            Draw { sampling: &request.sampling, history: &sequence.history, answer, suppressed },
        )
    }

    /// Whether no sequence waits or runs.
    pub fn is_idle(&self) -> bool {
        self.store.len() == 0
    }

    /// How busy it is. Counts over all sequences: for reports, not for every step.
    pub fn load(&self) -> Load {
        let left = |&place: &Place| {
            let sequence = &self.store[place];
            u64::from(sequence.left().saturating_sub(sequence.cached_guess))
        };
        let running = self.running.iter().map(|(_, place)| place).map(left).filter(|&left| left > 1);
        Load {
            running: self.running.len() as u32,
            waiting: self.waiting.len() as u32,
            waiting_tokens: self.waiting.values().map(left).sum::<u64>() + running.sum::<u64>(),
            blocks_free: self.cache.free(),
            blocks: self.limits.blocks,
            prefill_tokens_per_s: self.pace.prefill_tokens_per_s(),
            decode_tokens_per_s: self.pace.decode_tokens_per_s(),
            ..self.done
        }
    }

    /// Moves what the prefix cache stored and evicted since the last call into `changes`; `false` means
    /// that some were dropped, and that [`Scheduler::cached`] tells the whole.
    pub fn take_changes(&mut self, changes: &mut Vec<Change>) -> bool {
        self.cache.take_changes(changes)
    }

    /// Names of all blocks that can be found in the prefix cache.
    pub fn cached(&self) -> impl Iterator<Item = BlockHash> + '_ {
        self.cache.names()
    }

    /// Blocks, from its start, of a chain (see [`crate::prefix_cache::extend_chain`]) that the cache has now.
    pub fn cached_of(&self, chain: &[BlockHash]) -> usize {
        self.cache.find(chain)
    }

    /// Gives a running sequence's blocks back.
    fn release(&mut self, place: Place) {
        let sequence = &mut self.store[place];
        let named = (sequence.computed / self.limits.block_tokens) as usize;
        for hash in sequence.chain.get(named..).unwrap_or_default() {
            if self.computing.get(hash) == Some(&place) {
                self.computing.remove(hash);
            }
        }
        self.cache.release(&mut sequence.table);
        let turn = sequence.turn;
        if let Ok(index) = self.running.binary_search_by_key(&turn, |&(turn, _)| turn) {
            self.running.remove(index);
        }
    }

    /// Takes a sequence out of everything.
    fn remove(&mut self, place: Place) {
        let (turn, deadline) = (self.store[place].turn, self.store[place].request.deadline);
        self.waiting.remove(&turn);
        if let Some(deadline) = deadline {
            self.deadlines.remove(&(deadline, turn));
        }
        self.release(place);
        self.store.remove(place);
    }

    /// Panics unless queues, tables and the pool agree.
    pub fn check_invariants(&self) {
        self.cache.check_invariants();
        assert_eq!(self.store.len(), self.waiting.len() + self.running.len(), "a sequence is lost");
        assert!(self.running.is_sorted(), "the running are out of line");
        assert!(self.running.len() as u32 <= self.limits.running_max, "too many run");
        let mut holders = vec![0; self.limits.blocks as usize];
        for &(turn, place) in &self.running {
            let sequence = &self.store[place];
            assert_eq!(sequence.turn, turn, "{:?} stands in another's place", sequence.id());
            let room = sequence.table.len() as u32 * self.limits.block_tokens;
            assert!(sequence.computed <= room, "{:?} has more KV than blocks", sequence.id());
            assert!(sequence.left() > 0, "{:?} has nothing to compute", sequence.id());
            for block in &sequence.table {
                holders[block.0 as usize] += 1;
            }
        }
        for (index, &holders) in holders.iter().enumerate() {
            let block = crate::batch::BlockId(index as u32);
            assert_eq!(self.cache.holders(block), holders, "{block:?} has other holders than it counts");
        }
        for (&turn, &place) in &self.waiting {
            assert_eq!(self.store[place].turn, turn);
            assert!(self.store[place].table.is_empty(), "{:?} waits with blocks", self.store[place].id());
        }
        let runs = |place: &Place| self.running.iter().any(|(_, running)| running == place);
        assert!(self.computing.values().all(runs), "nobody computes a block that others wait for");
    }
}
