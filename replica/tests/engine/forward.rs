//! One prompt through a model, without an engine: the logits of its last row.

use std::cell::Cell;
use std::sync::Arc;
use std::time::Duration;

use replica::kernel::{Device, KvKind, KvLayer, KvShape};
use replica::model::{Decoder, Loader, Model as _, Output, Precision, Split, blueprint};
use replica::parallel::{Collective, Group, Run, Times};
use replica::weights::Checkpoint;
use replica_core::batch::{Batch, BlockId, Output as Wanted, Share};
use shared::id::SequenceId;

const BLOCK_TOKENS: usize = 32;
const BLOCKS: usize = 64;
const DEADLINE: Duration = Duration::from_mins(2);

/// A model on its ranks, with a pool for one prompt.
pub struct Forward {
    group: Group<Output>,
}

impl Forward {
    pub fn new(checkpoint: &Arc<Checkpoint>, precision: Precision, ranks: usize) -> Self {
        let times = Times { join: DEADLINE, load: DEADLINE, step: DEADLINE };
        let checkpoint = Arc::clone(checkpoint);
        let build = move |seat| Ok(rank(&checkpoint, precision, seat));
        Self { group: Group::start(ranks, times, build).unwrap() }
    }

    /// The logits after a prompt.
    pub fn last_logits(&mut self, prompt: &[u32]) -> Vec<f32> {
        let output = self.group.forward(&whole_prompt(prompt)).unwrap();
        let logits = output.logits().unwrap();
        logits.iter().next().unwrap().to_vec()
    }

    /// The best token after a prompt, again and again.
    pub fn greedy(&mut self, prompt: &[u32], count: usize) -> Vec<u32> {
        let mut tokens = prompt.to_vec();
        for _ in 0..count {
            let logits = self.last_logits(&tokens);
            let best = logits.iter().enumerate().max_by(|a, b| a.1.total_cmp(b.1)).unwrap();
            tokens.push(best.0 as u32);
        }
        tokens.split_off(prompt.len())
    }
}

fn rank(checkpoint: &Checkpoint, precision: Precision, mut seat: Box<dyn Collective>) -> Run<Output> {
    let device = Device::cpu(if seat.ranks() == 1 { 2 } else { 1 });
    let split = Split { rank: seat.rank(), ranks: seat.ranks() };
    let facts = &checkpoint.facts;
    let loader =
        Loader { checkpoint, device: &device, precision, split, progress: &|_| (), held_bytes: Cell::new(0) };
    let context_tokens = facts.context_tokens.min((BLOCKS * BLOCK_TOKENS) as u32);
    let mut decoder = Decoder::load(&loader, &blueprint(facts), context_tokens).unwrap();
    let shape = KvShape {
        kind: KvKind::F32,
        blocks: BLOCKS,
        block_tokens: BLOCK_TOKENS,
        kv_heads: split.kv_heads(facts).len(),
        head_dim: facts.head_dim as usize,
    };
    let mut kv: Vec<KvLayer> = (0..facts.layers).map(|_| device.kv_layer(shape).unwrap()).collect();
    Box::new(move |batch: &Batch| decoder.forward(batch, &mut kv, &mut *seat))
}

/// All of a prompt in one step, in blocks that don't lie in order.
fn whole_prompt(tokens: &[u32]) -> Batch {
    let block = |index: usize| (index * 37 + 5) % BLOCKS;
    let slot = |position: usize| block(position / BLOCK_TOKENS) * BLOCK_TOKENS + position % BLOCK_TOKENS;
    let blocks = tokens.len().div_ceil(BLOCK_TOKENS);
    Batch {
        tokens: tokens.to_vec(),
        positions: (0..tokens.len() as u32).collect(),
        slots: (0..tokens.len()).map(|position| slot(position) as u32).collect(),
        shares: vec![Share {
            sequence: SequenceId(0),
            rows: 0..tokens.len(),
            table: 0..blocks,
            output: Wanted::Last,
        }],
        tables: (0..blocks).map(|index| BlockId(block(index) as u32)).collect(),
    }
}
