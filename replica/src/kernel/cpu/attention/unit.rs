//! A unit of attention: some rows of one sequence, the heads of one group, over their keys and values.

use std::ops::Range;

use replica_core::batch::{Batch, BlockId};

use super::super::Rows;
use super::super::element::Element;
use super::super::kv::{Pair, padded_dim};
use super::super::simd::{Kernel, LANES, Simd, math};
use super::super::slots::RowsMut;
use super::QUERIES_MAX;
use super::steps::{KEYS, Running, add_values, all_scores, softmax};
use crate::kernel::{AttentionSpec, KvShape};

/// Positions after which softmax starts anew; a multiple of a tile.
pub const SEGMENT: usize = 512;

/// Rows of one sequence and heads of one group that go together.
pub struct Unit {
    pub share: usize,
    pub rows: Range<usize>,
    pub kv_head: usize,
    pub heads: Range<usize>,
}

/// What one query has gathered takes this many numbers: sums of values, then the running maximum and total.
pub fn state_len(shape: KvShape) -> usize {
    padded_dim(shape) + LANES
}

impl Unit {
    /// Heads of the first row, then of the next.
    pub fn queries(&self) -> usize {
        self.rows.len() * self.heads.len()
    }

    /// All positions that some query sees. Positions rise with the rows: the first row begins first, the last
    /// one ends last.
    pub fn span(&self, batch: &Batch, window: Option<u32>) -> Range<usize> {
        let last = batch.positions[self.rows.end - 1];
        span(batch.positions[self.rows.start], window).start..last as usize + 1
    }

    /// Scaled queries.
    pub fn take_queries(&self, qkv: &Rows, dim: usize, scale: f32, queries: &mut Vec<f32>) {
        queries.clear();
        for row in self.rows.clone() {
            let heads = &qkv.row(row)[self.heads.start * dim..self.heads.end * dim];
            queries.extend(heads.iter().map(|value| value * scale));
        }
    }

    /// What was gathered, divided by its total weight, to its place.
    pub fn finish(&self, total: &[f32], shape: KvShape, out: &RowsMut<'_>) {
        let dim = shape.head_dim;
        for (query, state) in total.chunks_exact(state_len(shape)).enumerate() {
            let head = self.heads.start + query % self.heads.len();
            let out = out.part(self.rows.start + query / self.heads.len(), head * dim, dim);
            let inverse = 1.0 / Running::of(&state[padded_dim(shape)..]).total;
            for (out, sum) in out.iter_mut().zip(state) {
                *out = sum * inverse;
            }
        }
    }
}

/// What a row sees.
fn span(position: u32, window: Option<u32>) -> Range<usize> {
    let end = position as usize + 1;
    window.map_or(0, |window| end.saturating_sub(window as usize))..end
}

/// Keys and values of one head of one sequence.
pub struct Context<'a, E: Element> {
    pub pair: &'a Pair<E::Bits>,
    pub shape: KvShape,
    pub table: &'a [BlockId],
    pub kv_head: usize,
}

impl<'a, E: Element> Context<'a, E> {
    /// The block of a tile of keys, counted in heads, and the tile's first token in it.
    fn place(&self, tile: usize) -> (usize, usize) {
        let (block, offset) = (tile * KEYS / self.shape.block_tokens, tile * KEYS % self.shape.block_tokens);
        (self.table[block].0 as usize * self.shape.kv_heads + self.kv_head, offset)
    }

    /// From the tile's first key on: a dimension's tokens, then `block_tokens` further the next dimension's.
    fn keys(&self, tile: usize) -> &'a [E::Bits] {
        let (head, offset) = self.place(tile);
        let size = self.shape.head_dim * self.shape.block_tokens;
        &self.pair.keys[head * size..][..size][offset..]
    }

    /// The tile's values, token by token.
    fn values(&self, tile: usize) -> &'a [E::Bits] {
        let (head, offset) = self.place(tile);
        let dim = padded_dim(self.shape);
        &self.pair.values[(head * self.shape.block_tokens + offset) * dim..][..KEYS * dim]
    }
}

/// A unit's queries over the positions `seen`, all in one segment.
pub struct Segment<'a, E: Element> {
    pub context: Context<'a, E>,
    pub spec: &'a AttentionSpec,
    pub unit: &'a Unit,
    /// Of the unit's rows.
    pub positions: &'a [u32],
    pub seen: Range<usize>,
    /// Scaled, `query × head_dim`.
    pub queries: &'a [f32],
    /// What each query gathers.
    pub to: &'a mut [f32],
}

impl<E: Element> Kernel for Segment<'_, E> {
    #[inline(always)]
    fn run<S: Simd>(self, simd: S) {
        let shape = self.context.shape;
        let (padded, stride) = (padded_dim(shape), state_len(shape));
        let count = self.unit.queries();
        let mut running = [Running::START; QUERIES_MAX];
        self.to.fill(0.0);
        let tiles = self.seen.start / KEYS..self.seen.end.div_ceil(KEYS);
        for tile in tiles.clone() {
            if tile + 1 < tiles.end {
                prefetch(simd, self.context.keys(tile + 1), shape.head_dim * shape.block_tokens.min(KEYS));
                prefetch(simd, self.context.values(tile + 1), KEYS * padded);
            }
            let mut scores = [[0.0; KEYS]; QUERIES_MAX];
            let scores = &mut scores[..count];
            let keys = self.context.keys(tile);
            all_scores::<S, E>(simd, keys, shape.block_tokens, self.queries, shape.head_dim, scores);
            let mut valid = [const { 0..0 }; QUERIES_MAX];
            for (query, scores) in scores.iter_mut().enumerate() {
                let position = self.positions[query / self.unit.heads.len()];
                valid[query] = in_tile(&span(position, self.spec.window), tile);
                if !valid[query].is_empty() {
                    let sums = &mut self.to[query * stride..][..padded];
                    softmax(simd, scores, &valid[query], self.spec.softcap, &mut running[query], sums);
                }
            }
            let values = self.context.values(tile);
            add_values::<S, E>(simd, values, scores, &valid[..count], self.to, [padded, stride]);
        }
        for (running, state) in running.iter().zip(self.to.chunks_exact_mut(stride)) {
            running.keep(&mut state[padded..]);
        }
    }
}

/// The part of a span of positions that lies in a tile, counted from the tile's start.
fn in_tile(span: &Range<usize>, tile: usize) -> Range<usize> {
    let within = |position: usize| position.saturating_sub(tile * KEYS).min(KEYS);
    within(span.start)..within(span.end)
}

#[inline(always)]
fn prefetch<S: Simd, T>(simd: S, numbers: &[T], count: usize) {
    for line in (0..count * size_of::<T>()).step_by(64) {
        simd.prefetch(numbers.as_ptr().cast::<u8>().wrapping_add(line));
    }
}

/// Adds what a segment gathered to what those before it did.
pub struct Merge<'a> {
    /// Whether there is nothing before it.
    pub first: bool,
    pub part: &'a [f32],
    pub total: &'a mut [f32],
    pub shape: KvShape,
}

impl Kernel for Merge<'_> {
    #[inline(always)]
    fn run<S: Simd>(self, simd: S) {
        if self.first {
            self.total.copy_from_slice(self.part);
            return;
        }
        let (padded, stride) = (padded_dim(self.shape), state_len(self.shape));
        for (total, part) in self.total.chunks_exact_mut(stride).zip(self.part.chunks_exact(stride)) {
            let (before, new) = (Running::of(&total[padded..]), Running::of(&part[padded..]));
            // A query whose window begins later has nothing yet, one whose context ended before nothing new.
            if new.is_empty() {
                continue;
            }
            if before.is_empty() {
                total.copy_from_slice(part);
                continue;
            }
            let largest = before.largest.max(new.largest);
            let mut factors = [0.0; LANES];
            factors[..2].copy_from_slice(&[before.largest - largest, new.largest - largest]);
            let weights = math::exp(simd, simd.load(&factors));
            simd.store(weights, &mut factors);
            let (old, fresh) = (simd.splat(factors[0]), simd.splat(factors[1]));
            let (sums, _) = total[..padded].as_chunks_mut::<LANES>();
            for (sum, part) in sums.iter_mut().zip(part[..padded].as_chunks::<LANES>().0) {
                let merged = simd.fma(simd.load(part), fresh, simd.mul(simd.load(sum), old));
                simd.store(merged, sum);
            }
            let both = before.total * factors[0] + new.total * factors[1];
            Running { largest, total: both }.keep(&mut total[padded..]);
        }
    }
}
