//! Paged attention: each query over its own context, in tiles of 32 keys by absolute position.
//!
//! Softmax goes tile by tile with a running maximum. The tiles of a query and their order depend on its
//! position and window alone, so its result is the same whatever other queries share the work, and wherever
//! the blocks lie. Keys beyond a query are never multiplied, not even with zero: a stale block may hold
//! anything.

mod steps;

use std::cell::RefCell;
use std::ops::Range;

use replica_core::batch::{Batch, BlockId};

use self::steps::{KEYS, Running, add_values, all_scores, softmax};
use super::element::{Element, F16, F32};
use super::kv::{KvLayer, Pair, Store, padded_dim};
use super::simd::{Kernel, Simd};
use super::slots::RowsMut;
use super::{Cpu, Rows};
use crate::kernel::{AttentionSpec, KvShape, Result};

/// Queries that share a pass over keys, heads of a group and rows counted.
const QUERIES_MAX: usize = 16;
/// Multiplications below which attention is not worth waking other threads for.
const ALONE: usize = 64 * 1024;

/// Rows of one sequence that go together.
struct Tile {
    share: usize,
    rows: Range<usize>,
}

thread_local! {
    static SCRATCH: RefCell<Scratch> = RefCell::new(Scratch::default());
}

/// What a thread needs for one tile, kept between tiles.
#[derive(Default)]
struct Scratch {
    /// Scaled queries, `query × head_dim`.
    queries: Vec<f32>,
    /// Sums of values, `query × padded dimension`.
    sums: Vec<f32>,
}

impl Cpu {
    pub fn attend(
        &self,
        qkv: &Rows,
        kv: &KvLayer,
        batch: &Batch,
        spec: &AttentionSpec,
        out: &mut Rows,
    ) -> Result<()> {
        match kv.store() {
            Store::F32(pair) => self.attend_pair::<F32>(qkv, kv.shape(), pair, batch, spec, out),
            Store::F16(pair) => self.attend_pair::<F16>(qkv, kv.shape(), pair, batch, spec, out),
        }
    }

    fn attend_pair<E: Element>(
        &self,
        qkv: &Rows,
        shape: KvShape,
        pair: &Pair<E::Bits>,
        batch: &Batch,
        spec: &AttentionSpec,
        out: &mut Rows,
    ) -> Result<()> {
        let group = spec.layout.heads / spec.layout.kv_heads;
        let heads_a_unit = group.min(QUERIES_MAX);
        // A group is split where it alone has more queries than go together.
        let head_parts = spec.layout.kv_heads * group.div_ceil(heads_a_unit);
        let tiles = tiles(batch, QUERIES_MAX / heads_a_unit);
        let out = RowsMut::of_rows(out);
        let work: usize = batch.positions.iter().map(|&position| position as usize + 1).sum();
        let alone = work * spec.layout.heads * spec.layout.head_dim < ALONE;
        let units = tiles.len() * head_parts;
        self.shared.pool.each(units, if alone { units } else { 1 }, |part| {
            for unit in part {
                let (tile, part) = (&tiles[unit / head_parts], unit % head_parts);
                let (kv_head, of_group) =
                    (part % spec.layout.kv_heads, part / spec.layout.kv_heads * heads_a_unit);
                let first = kv_head * group;
                let heads = first + of_group..first + (of_group + heads_a_unit).min(group);
                let table = &batch.tables[batch.shares[tile.share].table.clone()];
                let positions = &batch.positions[tile.rows.clone()];
                SCRATCH.with_borrow_mut(|scratch| {
                    let context = Context::<E> { pair, shape, table, kv_head };
                    let rows = tile.rows.clone();
                    self.shared.isa.run(Attend {
                        context,
                        spec,
                        heads,
                        rows,
                        positions,
                        qkv,
                        out: &out,
                        scratch,
                    });
                });
            }
        })
    }
}

fn tiles(batch: &Batch, rows_max: usize) -> Vec<Tile> {
    let of_share = |(share, rows): (usize, Range<usize>)| {
        rows.clone()
            .step_by(rows_max)
            .map(move |start| Tile { share, rows: start..(start + rows_max).min(rows.end) })
    };
    batch.shares.iter().map(|share| share.rows.clone()).enumerate().flat_map(of_share).collect()
}

/// Keys and values of one head of one sequence.
struct Context<'a, E: Element> {
    pair: &'a Pair<E::Bits>,
    shape: KvShape,
    table: &'a [BlockId],
    kv_head: usize,
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

/// The queries of some rows over one head's keys and values.
struct Attend<'a, E: Element> {
    context: Context<'a, E>,
    spec: &'a AttentionSpec,
    /// Query heads, all of one group.
    heads: Range<usize>,
    rows: Range<usize>,
    positions: &'a [u32],
    qkv: &'a Rows,
    out: &'a RowsMut<'a>,
    scratch: &'a mut Scratch,
}

impl<E: Element> Kernel for Attend<'_, E> {
    #[inline(always)]
    fn run<S: Simd>(mut self, simd: S) {
        self.take_queries();
        let (dim, padded) = (self.context.shape.head_dim, padded_dim(self.context.shape));
        let count = self.rows.len() * self.heads.len();
        let Scratch { queries, sums } = &mut *self.scratch;
        let mut running = [Running::START; QUERIES_MAX];
        let first = span(self.positions[0], self.spec.window);
        let last = span(self.positions[self.positions.len() - 1], self.spec.window);
        let end = last.end.div_ceil(KEYS);
        for tile in first.start / KEYS..end {
            if tile + 1 < end {
                prefetch(simd, self.context.keys(tile + 1), dim * self.context.shape.block_tokens.min(KEYS));
                prefetch(simd, self.context.values(tile + 1), KEYS * padded);
            }
            let mut scores = [[0.0; KEYS]; QUERIES_MAX];
            let scores = &mut scores[..count];
            let block_tokens = self.context.shape.block_tokens;
            all_scores::<S, E>(simd, self.context.keys(tile), block_tokens, queries, dim, scores);
            let mut valid = [const { 0..0 }; QUERIES_MAX];
            for (query, scores) in scores.iter_mut().enumerate() {
                let position = self.positions[query / self.heads.len()];
                valid[query] = in_tile(&span(position, self.spec.window), tile);
                if !valid[query].is_empty() {
                    let sums = &mut sums[query * padded..][..padded];
                    softmax(simd, scores, &valid[query], self.spec.softcap, &mut running[query], sums);
                }
            }
            add_values::<S, E>(simd, self.context.values(tile), scores, &valid[..count], sums, padded);
        }
        self.give_sums(&running);
    }
}

impl<E: Element> Attend<'_, E> {
    /// Scaled queries and empty sums into the scratch: all heads of a row, then the next row.
    fn take_queries(&mut self) {
        let dim = self.context.shape.head_dim;
        let Scratch { queries, sums } = &mut *self.scratch;
        queries.clear();
        for row in self.rows.clone() {
            let heads = &self.qkv.row(row)[self.heads.start * dim..self.heads.end * dim];
            queries.extend(heads.iter().map(|value| value * self.spec.scale));
        }
        sums.clear();
        sums.resize(self.rows.len() * self.heads.len() * padded_dim(self.context.shape), 0.0);
    }

    fn give_sums(&self, running: &[Running]) {
        let dim = self.context.shape.head_dim;
        let sums = self.scratch.sums.chunks_exact(padded_dim(self.context.shape));
        for (query, (sums, running)) in sums.zip(running).enumerate() {
            let head = self.heads.start + query % self.heads.len();
            let out = self.out.part(self.rows.start + query / self.heads.len(), head * dim, dim);
            let inverse = 1.0 / running.total;
            for (out, sum) in out.iter_mut().zip(sums) {
                *out = sum * inverse;
            }
        }
    }
}

#[inline(always)]
fn prefetch<S: Simd, T>(simd: S, numbers: &[T], count: usize) {
    for line in (0..count * size_of::<T>()).step_by(64) {
        simd.prefetch(numbers.as_ptr().cast::<u8>().wrapping_add(line));
    }
}

/// What a row sees.
fn span(position: u32, window: Option<u32>) -> Range<usize> {
    let end = position as usize + 1;
    window.map_or(0, |window| end.saturating_sub(window as usize))..end
}

/// The part of a span of positions that lies in a tile, counted from the tile's start.
fn in_tile(span: &Range<usize>, tile: usize) -> Range<usize> {
    let within = |position: usize| position.saturating_sub(tile * KEYS).min(KEYS);
    within(span.start)..within(span.end)
}
