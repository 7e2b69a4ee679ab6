//! Paged attention: each query over its own context, in tiles of 32 keys by absolute position.
//!
//! Softmax goes tile by tile with a running maximum. The tiles of a query and their order depend on its
//! position and window alone, so its result is the same whatever other queries share the work, and wherever
//! the blocks lie. Keys beyond a query are never multiplied, not even with zero: a stale block may hold
//! anything.

use std::cell::RefCell;
use std::ops::Range;

use replica_core::batch::{Batch, BlockId};

use super::element::{Element, F16, F32};
use super::kv::{KvLayer, Pair, Store, padded_dim};
use super::simd::{Kernel, LANES, Simd, math};
use super::slots::RowsMut;
use super::{Cpu, Rows};
use crate::kernel::{AttentionSpec, KvShape, Result};

/// Keys of a tile: two vectors.
const KEYS: usize = 32;
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
    pub fn attend(&self, qkv: &Rows, kv: &KvLayer, batch: &Batch, spec: &AttentionSpec, out: &mut Rows) -> Result<()> {
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
                let (kv_head, of_group) = (part % spec.layout.kv_heads, part / spec.layout.kv_heads * heads_a_unit);
                let first = kv_head * group;
                let heads = first + of_group..first + (of_group + heads_a_unit).min(group);
                let table = &batch.tables[batch.shares[tile.share].table.clone()];
                let positions = &batch.positions[tile.rows.clone()];
                SCRATCH.with_borrow_mut(|scratch| {
                    let context = Context::<E> { pair, shape, table, kv_head };
                    let rows = tile.rows.clone();
                    self.shared.isa.run(Attend { context, spec, heads, rows, positions, qkv, out: &out, scratch });
                });
            }
        })
    }
}

fn tiles(batch: &Batch, rows_max: usize) -> Vec<Tile> {
    let of_share = |(share, rows): (usize, Range<usize>)| {
        rows.clone().step_by(rows_max).map(move |start| Tile { share, rows: start..(start + rows_max).min(rows.end) })
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

/// What a query has gathered so far.
#[derive(Clone, Copy)]
struct Running {
    largest: f32,
    total: f32,
}

impl<E: Element> Kernel for Attend<'_, E> {
    #[inline(always)]
    fn run<S: Simd>(self, simd: S) {
        let group = self.heads.len();
        let (dim, padded) = (self.context.shape.head_dim, padded_dim(self.context.shape));
        let count = self.rows.len() * group;
        let Scratch { queries, sums } = &mut *self.scratch;
        queries.clear();
        sums.clear();
        sums.resize(count * padded, 0.0);
        for row in self.rows.clone() {
            let heads = &self.qkv.row(row)[self.heads.start * dim..self.heads.end * dim];
            queries.extend(heads.iter().map(|value| value * self.spec.scale));
        }
        let mut running = [Running { largest: f32::NEG_INFINITY, total: 0.0 }; QUERIES_MAX];
        let mut spans = [const { 0..0 }; QUERIES_MAX];
        for query in 0..count {
            let end = self.positions[query / group] as usize + 1;
            spans[query] = self.spec.window.map_or(0, |window| end.saturating_sub(window as usize))..end;
        }
        let (spans, running) = (&spans[..count], &mut running[..count]);
        // Positions rise with the rows, so the first query begins first and the last one ends last.
        let tiles = spans[0].start / KEYS..spans[count - 1].end.div_ceil(KEYS);
        for tile in tiles {
            let mut scores = [[0.0; KEYS]; QUERIES_MAX];
            let scores = &mut scores[..count];
            all_scores::<S, E>(simd, self.context.keys(tile), self.context.shape.block_tokens, queries, dim, scores);
            let mut valid = [const { 0..0 }; QUERIES_MAX];
            for (query, scores) in scores.iter_mut().enumerate() {
                valid[query] = in_tile(&spans[query], tile);
                if !valid[query].is_empty() {
                    let sums = &mut sums[query * padded..][..padded];
                    softmax(simd, scores, &valid[query], self.spec.softcap, &mut running[query], sums);
                }
            }
            add_values::<S, E>(simd, self.context.values(tile), scores, &valid[..count], sums, padded);
        }
        for (query, sums) in sums.chunks_exact(padded).enumerate() {
            let head = self.heads.start + query % group;
            let out = self.out.part(self.rows.start + query / group, head * dim, dim);
            let inverse = 1.0 / running[query].total;
            for (out, sum) in out.iter_mut().zip(sums) {
                *out = sum * inverse;
            }
        }
    }
}

/// The part of a span of positions that lies in a tile, counted from the tile's start.
fn in_tile(span: &Range<usize>, tile: usize) -> Range<usize> {
    let within = |position: usize| position.saturating_sub(tile * KEYS).min(KEYS);
    within(span.start)..within(span.end)
}

/// Scores of all queries with the keys of a tile.
#[inline(always)]
fn all_scores<S: Simd, E: Element>(
    simd: S,
    keys: &[E::Bits],
    stride: usize,
    queries: &[f32],
    dim: usize,
    scores: &mut [[f32; KEYS]],
) {
    let mut done = 0;
    while done < scores.len() {
        let (queries, scores) = (&queries[done * dim..], &mut scores[done..]);
        done += match scores.len() {
            left if left >= 8 && S::TILE >= 12 => score::<S, E, 8>(simd, keys, stride, queries, dim, scores),
            left if left >= 3 => score::<S, E, 3>(simd, keys, stride, queries, dim, scores),
            _ => score::<S, E, 1>(simd, keys, stride, queries, dim, scores),
        };
    }
}

/// Scores of `QUERIES` queries; returns how many.
#[inline(always)]
fn score<S: Simd, E: Element, const QUERIES: usize>(
    simd: S,
    keys: &[E::Bits],
    stride: usize,
    queries: &[f32],
    dim: usize,
    scores: &mut [[f32; KEYS]],
) -> usize {
    let queries: [&[f32]; QUERIES] = std::array::from_fn(|query| &queries[query * dim..][..dim]);
    let mut totals = [[simd.splat(0.0); 2]; QUERIES];
    for at in 0..dim {
        let (keys, _) = keys[at * stride..][..KEYS].as_chunks::<LANES>();
        let keys = [E::load(simd, &keys[0]), E::load(simd, &keys[1])];
        for (totals, query) in totals.iter_mut().zip(&queries) {
            let query = simd.splat(query[at]);
            *totals = [simd.fma(keys[0], query, totals[0]), simd.fma(keys[1], query, totals[1])];
        }
    }
    for (totals, scores) in totals.iter().zip(scores) {
        let (scores, _) = scores.as_chunks_mut::<LANES>();
        simd.store(totals[0], &mut scores[0]);
        simd.store(totals[1], &mut scores[1]);
    }
    QUERIES
}

/// Scores to weights relative to the running maximum; what was gathered under an older one is scaled down.
#[inline(always)]
fn softmax<S: Simd>(
    simd: S,
    scores: &mut [f32; KEYS],
    valid: &Range<usize>,
    softcap: Option<f32>,
    running: &mut Running,
    sums: &mut [f32],
) {
    if let Some(cap) = softcap {
        let [first, second] = load(simd, scores);
        store(simd, [capped(simd, first, cap), capped(simd, second, cap)], scores);
    }
    let whole = valid.len() == KEYS;
    if !whole {
        outside(scores, valid).for_each(|score| *score = f32::NEG_INFINITY);
    }
    let [first, second] = load(simd, scores);
    let largest = simd.largest(simd.max(first, second)).max(running.largest);
    let reference = simd.splat(largest);
    let mut weights = [math::exp(simd, simd.sub(first, reference)), math::exp(simd, simd.sub(second, reference))];
    store(simd, weights, scores);
    if !whole {
        outside(scores, valid).for_each(|score| *score = 0.0);
        weights = load(simd, scores);
    }
    if largest > running.largest {
        shrink(simd, running, largest, sums);
    }
    running.total += simd.sum(simd.add(weights[0], weights[1]));
}

/// What was gathered so far, relative to a new maximum.
#[inline(always)]
fn shrink<S: Simd>(simd: S, running: &mut Running, largest: f32, sums: &mut [f32]) {
    if running.total != 0.0 {
        let mut lanes = [0.0; LANES];
        let factor = math::exp(simd, simd.splat(running.largest - largest));
        simd.store(factor, &mut lanes);
        running.total *= lanes[0];
        for lanes in sums.as_chunks_mut::<LANES>().0 {
            let shrunk = simd.mul(simd.load(lanes), factor);
            simd.store(shrunk, lanes);
        }
    }
    running.largest = largest;
}

#[inline(always)]
fn capped<S: Simd>(simd: S, scores: S::F, cap: f32) -> S::F {
    simd.mul(math::tanh(simd, simd.mul(scores, simd.splat(1.0 / cap))), simd.splat(cap))
}

#[inline(always)]
fn load<S: Simd>(simd: S, scores: &[f32; KEYS]) -> [S::F; 2] {
    let (halves, _) = scores.as_chunks::<LANES>();
    [simd.load(&halves[0]), simd.load(&halves[1])]
}

#[inline(always)]
fn store<S: Simd>(simd: S, halves: [S::F; 2], scores: &mut [f32; KEYS]) {
    let (to, _) = scores.as_chunks_mut::<LANES>();
    simd.store(halves[0], &mut to[0]);
    simd.store(halves[1], &mut to[1]);
}

fn outside<'a>(scores: &'a mut [f32; KEYS], valid: &Range<usize>) -> impl Iterator<Item = &'a mut f32> {
    let (before, rest) = scores.split_at_mut(valid.start);
    before.iter_mut().chain(&mut rest[valid.len()..])
}

/// Adds the weighted values of a tile to all sums; queries that see the whole tile share its reading.
#[inline(always)]
fn add_values<S: Simd, E: Element>(
    simd: S,
    values: &[E::Bits],
    weights: &[[f32; KEYS]],
    valid: &[Range<usize>],
    sums: &mut [f32],
    padded: usize,
) {
    let mut done = 0;
    while done < weights.len() {
        let whole = valid[done..].iter().take_while(|valid| valid.len() == KEYS).count();
        let (weights, sums) = (&weights[done..], &mut sums[done * padded..]);
        let valid = valid[done].clone();
        done += match whole {
            4.. if S::TILE >= 12 => add::<S, E, 4>(simd, values, weights, valid, sums, padded),
            3.. => add::<S, E, 3>(simd, values, weights, valid, sums, padded),
            _ => add::<S, E, 1>(simd, values, weights, valid, sums, padded),
        };
    }
}

/// Adds to the sums of `QUERIES` queries; returns how many.
#[inline(always)]
fn add<S: Simd, E: Element, const QUERIES: usize>(
    simd: S,
    values: &[E::Bits],
    weights: &[[f32; KEYS]],
    valid: Range<usize>,
    sums: &mut [f32],
    padded: usize,
) -> usize {
    let vectors = padded / LANES;
    let mut vector = 0;
    while vector < vectors {
        vector += if vectors - vector >= 4 && S::TILE >= 12 {
            add_vectors::<S, E, QUERIES, 4>(simd, values, weights, valid.clone(), sums, padded, vector)
        } else if vectors - vector >= 2 {
            add_vectors::<S, E, QUERIES, 2>(simd, values, weights, valid.clone(), sums, padded, vector)
        } else {
            add_vectors::<S, E, QUERIES, 1>(simd, values, weights, valid.clone(), sums, padded, vector)
        };
    }
    QUERIES
}

/// The same for `VECTORS` vectors of dimensions from `vector` on; returns how many.
#[inline(always)]
fn add_vectors<S: Simd, E: Element, const QUERIES: usize, const VECTORS: usize>(
    simd: S,
    values: &[E::Bits],
    weights: &[[f32; KEYS]],
    valid: Range<usize>,
    sums: &mut [f32],
    padded: usize,
    vector: usize,
) -> usize {
    let place = |query: usize| query * padded + vector * LANES;
    let mut totals: [[S::F; VECTORS]; QUERIES] = std::array::from_fn(|query| {
        let (lanes, _) = sums[place(query)..][..VECTORS * LANES].as_chunks::<LANES>();
        std::array::from_fn(|at| simd.load(&lanes[at]))
    });
    for token in valid {
        let (lanes, _) = values[token * padded + vector * LANES..][..VECTORS * LANES].as_chunks::<LANES>();
        let values: [S::F; VECTORS] = std::array::from_fn(|at| E::load(simd, &lanes[at]));
        for (totals, weights) in totals.iter_mut().zip(weights) {
            let weight = simd.splat(weights[token]);
            for (total, &value) in totals.iter_mut().zip(&values) {
                *total = simd.fma(value, weight, *total);
            }
        }
    }
    for (query, totals) in totals.iter().enumerate() {
        let (lanes, _) = sums[place(query)..][..VECTORS * LANES].as_chunks_mut::<LANES>();
        for (total, lanes) in totals.iter().zip(lanes) {
            simd.store(*total, lanes);
        }
    }
    VECTORS
}
