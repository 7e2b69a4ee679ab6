//! Paged attention: each query over its own context, in tiles of 32 keys and segments of 512 by absolute
//! position.
//!
//! Softmax goes tile by tile with a running maximum, and starts anew in each segment; what segments gave is
//! merged in order. Tiles, segments and their order depend on a query's position and window alone, so its
//! result is the same whatever other queries share the work, whoever does it, and wherever the blocks lie.

mod steps;
mod unit;

use std::cell::RefCell;
use std::ops::Range;

use replica_core::batch::Batch;

use self::unit::{Context, Merge, SEGMENT, Unit, state_len};
use super::element::{Element, F16, F32};
use super::kv::{KvLayer, Pair, Store};
use super::slots::RowsMut;
use super::{Cpu, Rows};
use crate::kernel::{AttentionSpec, KvShape, Result};

/// Queries that share a pass over keys, heads of a group and rows counted.
const QUERIES_MAX: usize = 16;
/// Multiplications below which attention is not worth waking other threads for.
const ALONE: usize = 64 * 1024;

thread_local! {
    static SCRATCH: RefCell<Scratch> = RefCell::new(Scratch::default());
}

/// What a thread needs for one unit, kept between units.
#[derive(Default)]
struct Scratch {
    /// Scaled queries, `query × head_dim`.
    queries: Vec<f32>,
    /// What a segment gathered.
    part: Vec<f32>,
    /// What all segments so far gathered.
    total: Vec<f32>,
}

/// One call's operands.
struct Job<'a, E: Element> {
    qkv: &'a Rows,
    shape: KvShape,
    pair: &'a Pair<E::Bits>,
    batch: &'a Batch,
    spec: &'a AttentionSpec,
    units: Vec<Unit>,
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
        let (units, shape) = (units(batch, spec), kv.shape());
        match kv.store() {
            Store::F32(pair) => self.run(&Job::<F32> { qkv, shape, pair, batch, spec, units }, out),
            Store::F16(pair) => self.run(&Job::<F16> { qkv, shape, pair, batch, spec, units }, out),
        }
    }

    fn run<E: Element>(&self, job: &Job<'_, E>, out: &mut Rows) -> Result<()> {
        let context: usize = job.batch.positions.iter().map(|&position| position as usize + 1).sum();
        let alone = context * job.spec.layout.heads * job.shape.head_dim < ALONE;
        let longest = job.batch.positions.iter().max().map_or(0, |&position| position as usize + 1);
        let few = job.units.len() < 2 * self.shared.pool.threads();
        if few && !alone && longest > SEGMENT {
            return self.run_by_segment(job, longest.div_ceil(SEGMENT), out);
        }
        let out = RowsMut::of_rows(out);
        let units = job.units.len();
        self.shared.pool.each(units, if alone { units } else { 1 }, |part| {
            for unit in &job.units[part] {
                SCRATCH.with_borrow_mut(|scratch| self.whole(job, unit, scratch, &out));
            }
        })
    }

    /// One unit, segment after segment.
    fn whole<E: Element>(&self, job: &Job<'_, E>, unit: &Unit, scratch: &mut Scratch, out: &RowsMut<'_>) {
        let Scratch { queries, part, total } = scratch;
        let len = unit.queries() * state_len(job.shape);
        part.resize(len, 0.0);
        total.resize(len, 0.0);
        for (index, segment) in job.segments(unit).enumerate() {
            job.segment(self, unit, segment, queries, part);
            self.shared.isa.run(Merge { first: index == 0, part, total, shape: job.shape });
        }
        unit.finish(total, job.shape, out);
    }

    /// A few units over long contexts: each segment goes to whatever thread is free.
    fn run_by_segment<E: Element>(&self, job: &Job<'_, E>, segments: usize, out: &mut Rows) -> Result<()> {
        let len = QUERIES_MAX * state_len(job.shape);
        let mut parts = self.rows(job.units.len() * segments, len)?;
        let slots = RowsMut::of_rows(&mut parts);
        self.shared.pool.each(job.units.len() * segments, 1, |range| {
            for at in range {
                let unit = &job.units[at / segments];
                if let Some(segment) = job.segments(unit).nth(at % segments) {
                    let part = slots.part(at, 0, unit.queries() * state_len(job.shape));
                    SCRATCH.with_borrow_mut(|scratch| {
                        job.segment(self, unit, segment, &mut scratch.queries, part);
                    });
                }
            }
        })?;
        let (out, parts) = (RowsMut::of_rows(out), &parts);
        self.shared.pool.each(job.units.len(), job.units.len(), |range| {
            for at in range {
                let unit = &job.units[at];
                SCRATCH.with_borrow_mut(|Scratch { total, .. }| {
                    total.resize(unit.queries() * state_len(job.shape), 0.0);
                    for index in 0..job.segments(unit).count() {
                        let part = &parts.row(at * segments + index)[..total.len()];
                        self.shared.isa.run(Merge { first: index == 0, part, total, shape: job.shape });
                    }
                    unit.finish(total, job.shape, &out);
                });
            }
        })
    }
}

impl<E: Element> Job<'_, E> {
    /// The spans of positions, a segment each, that a unit's queries see any of.
    fn segments(&self, unit: &Unit) -> impl Iterator<Item = Range<usize>> {
        let seen = unit.span(self.batch, self.spec.window);
        let whole = seen.start / SEGMENT..seen.end.div_ceil(SEGMENT);
        whole.map(move |at| (at * SEGMENT).max(seen.start)..((at + 1) * SEGMENT).min(seen.end))
    }

    fn segment(&self, cpu: &Cpu, unit: &Unit, seen: Range<usize>, queries: &mut Vec<f32>, to: &mut [f32]) {
        let table = &self.batch.tables[self.batch.shares[unit.share].table.clone()];
        let context = Context::<E> { pair: self.pair, shape: self.shape, table, kv_head: unit.kv_head };
        unit.take_queries(self.qkv, self.shape.head_dim, self.spec.scale, queries);
        let positions = &self.batch.positions[unit.rows.clone()];
        cpu.shared.isa.run(unit::Segment { context, spec: self.spec, unit, positions, seen, queries, to });
    }
}

fn units(batch: &Batch, spec: &AttentionSpec) -> Vec<Unit> {
    let group = spec.layout.heads / spec.layout.kv_heads;
    // A group is split where it alone has more queries than go together.
    let heads_max = group.min(QUERIES_MAX);
    let rows_max = QUERIES_MAX / heads_max;
    let mut units = Vec::new();
    for (share, all) in batch.shares.iter().map(|share| share.rows.clone()).enumerate() {
        for start in all.clone().step_by(rows_max) {
            let rows = start..(start + rows_max).min(all.end);
            for kv_head in 0..spec.layout.kv_heads {
                for first in (kv_head * group..(kv_head + 1) * group).step_by(heads_max) {
                    let heads = first..(first + heads_max).min((kv_head + 1) * group);
                    units.push(Unit { share, rows: rows.clone(), kv_head, heads });
                }
            }
        }
    }
    units
}
