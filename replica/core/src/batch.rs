//! What one step runs, as plain vectors: the model needs nothing else.

use std::ops::Range;

use shared::id::SequenceId;

/// A block of the KV pool: an index into it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct BlockId(pub u32);

/// Which rows of a share give logits.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Output {
    /// None: the prompt is not at its end yet.
    Nothing,
    /// The last row: a token is sampled from it.
    Last,
    /// Every row: prompt logprobs are wanted.
    Every,
    /// Every row's final hidden state instead of logits: an embedding.
    Hidden,
}

/// One sequence's share of a step.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Share {
    /// Whose.
    pub sequence: SequenceId,
    /// Its rows in `tokens`, `positions` and `slots`; never empty.
    pub rows: Range<usize>,
    /// Its block table in `tables`: enough blocks for all positions up to the last row's.
    pub table: Range<usize>,
    /// Which rows give logits.
    pub output: Output,
}

impl Share {
    /// Its rows that give logits or hidden states.
    pub fn output_rows(&self) -> Range<usize> {
        match self.output {
            Output::Nothing => 0..0,
            Output::Last => self.rows.end - 1..self.rows.end,
            Output::Every | Output::Hidden => self.rows.clone(),
        }
    }
}

/// One forward pass over a ragged batch. Rows of one sequence are neighbours, in position order.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Batch {
    /// Row to token.
    pub tokens: Vec<u32>,
    /// Row to position in its sequence. A row attends to all positions up to its own.
    pub positions: Vec<u32>,
    /// Row to KV slot where its key and value go: `block * block_tokens + offset`.
    pub slots: Vec<u32>,
    /// The sequences, in row order.
    pub shares: Vec<Share>,
    /// Block tables, one after the other.
    pub tables: Vec<BlockId>,
}

impl Batch {
    /// Empties it; its memory stays for the next step.
    pub fn clear(&mut self) {
        self.tokens.clear();
        self.positions.clear();
        self.slots.clear();
        self.shares.clear();
        self.tables.clear();
    }

    /// Whether there is nothing to run.
    pub fn is_empty(&self) -> bool {
        self.tokens.is_empty()
    }

    /// Rows in the step.
    pub fn rows(&self) -> usize {
        self.tokens.len()
    }

    /// Rows that give logits, in order: row `i` of the model's output belongs to the `i`th of these.
    pub fn output_rows(&self) -> impl Iterator<Item = usize> + '_ {
        self.shares.iter().flat_map(Share::output_rows)
    }
}
