//! The three steps of a tile of keys: scores, softmax, values.

use std::ops::Range;

use super::super::element::Element;
use super::super::simd::{LANES, Simd, math};

/// Keys of a tile: two vectors.
pub const KEYS: usize = 32;

/// What a query has gathered so far.
#[derive(Clone, Copy)]
pub struct Running {
    /// The largest score.
    pub largest: f32,
    /// Sum of the weights relative to it.
    pub total: f32,
}

impl Running {
    /// Nothing yet.
    pub const START: Self = Self { largest: f32::NEG_INFINITY, total: 0.0 };

    /// As it was kept.
    pub fn of(kept: &[f32]) -> Self {
        Self { largest: kept[0], total: kept[1] }
    }

    /// Writes it down.
    pub fn keep(self, to: &mut [f32]) {
        (to[0], to[1]) = (self.largest, self.total);
    }

    /// Whether the query saw no key. (A total that is not a number was seen.)
    pub fn is_empty(self) -> bool {
        self.total == 0.0
    }
}

/// Scores of all queries with the keys of a tile.
#[inline(always)]
pub fn all_scores<S: Simd, E: Element>(
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
            8.. if S::TILE >= 12 => score::<S, E, 8>(simd, keys, stride, queries, dim, scores),
            4.. if S::TILE >= 12 => score::<S, E, 4>(simd, keys, stride, queries, dim, scores),
            3.. => score::<S, E, 3>(simd, keys, stride, queries, dim, scores),
            2 => score::<S, E, 2>(simd, keys, stride, queries, dim, scores),
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
    for (at, keys) in keys.chunks(stride).enumerate().take(dim) {
        let (keys, _) = keys[..KEYS].as_chunks::<LANES>();
        let keys = [E::load(simd, &keys[0]), E::load(simd, &keys[1])];
        for query in 0..QUERIES {
            let lanes = simd.splat(queries[query][at]);
            totals[query] =
                [simd.fma(keys[0], lanes, totals[query][0]), simd.fma(keys[1], lanes, totals[query][1])];
        }
    }
    for query in 0..QUERIES {
        store(simd, totals[query], &mut scores[query]);
    }
    QUERIES
}

/// Scores to weights relative to the running maximum; what was gathered under an older one is scaled down.
#[inline(always)]
pub fn softmax<S: Simd>(
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
    let mut weights =
        [math::exp(simd, simd.sub(first, reference)), math::exp(simd, simd.sub(second, reference))];
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
pub fn add_values<S: Simd, E: Element>(
    simd: S,
    values: &[E::Bits],
    weights: &[[f32; KEYS]],
    valid: &[Range<usize>],
    states: &mut [f32],
    [padded, stride]: [usize; 2],
) {
    let mut done = 0;
    while done < weights.len() {
        let whole = valid[done..].iter().take_while(|valid| valid.len() == KEYS).count();
        let (weights, states) = (&weights[done..], &mut states[done * stride..]);
        let valid = valid[done].clone();
        done += match whole {
            4.. if S::TILE >= 12 => add::<S, E, 4>(simd, values, weights, valid, states, [padded, stride]),
            3.. => add::<S, E, 3>(simd, values, weights, valid, states, [padded, stride]),
            2 => add::<S, E, 2>(simd, values, weights, valid, states, [padded, stride]),
            _ => add::<S, E, 1>(simd, values, weights, valid, states, [padded, stride]),
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
    states: &mut [f32],
    [padded, stride]: [usize; 2],
) -> usize {
    let vectors = padded / LANES;
    let mut vector = 0;
    while vector < vectors {
        vector += if vectors - vector >= 4 && S::TILE >= 12 {
            add_vectors::<S, E, QUERIES, 4>(
                simd,
                values,
                weights,
                valid.clone(),
                states,
                [padded, stride],
                vector,
            )
        } else if vectors - vector >= 2 {
            add_vectors::<S, E, QUERIES, 2>(
                simd,
                values,
                weights,
                valid.clone(),
                states,
                [padded, stride],
                vector,
            )
        } else {
            add_vectors::<S, E, QUERIES, 1>(
                simd,
                values,
                weights,
                valid.clone(),
                states,
                [padded, stride],
                vector,
            )
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
    states: &mut [f32],
    [padded, stride]: [usize; 2],
    vector: usize,
) -> usize {
    // Arrays and indices keep the sums in registers and their loops free of checks.
    let weights: [&[f32; KEYS]; QUERIES] = std::array::from_fn(|query| &weights[query]);
    let mut totals = [[simd.splat(0.0); VECTORS]; QUERIES];
    for query in 0..QUERIES {
        let (lanes, _) = states[query * stride + vector * LANES..][..VECTORS * LANES].as_chunks::<LANES>();
        for at in 0..VECTORS {
            totals[query][at] = simd.load(&lanes[at]);
        }
    }
    let values = values[vector * LANES..].chunks(padded);
    for (token, values) in values.enumerate().take(valid.end).skip(valid.start) {
        let (lanes, _) = values[..VECTORS * LANES].as_chunks::<LANES>();
        let mut value = [simd.splat(0.0); VECTORS];
        for at in 0..VECTORS {
            value[at] = E::load(simd, &lanes[at]);
        }
        for query in 0..QUERIES {
            let weight = simd.splat(weights[query][token]);
            for at in 0..VECTORS {
                totals[query][at] = simd.fma(value[at], weight, totals[query][at]);
            }
        }
    }
    for query in 0..QUERIES {
        let (lanes, _) =
            states[query * stride + vector * LANES..][..VECTORS * LANES].as_chunks_mut::<LANES>();
        for at in 0..VECTORS {
            simd.store(totals[query][at], &mut lanes[at]);
        }
    }
    VECTORS
}
