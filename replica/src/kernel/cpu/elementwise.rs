//! Work on rows one by one: norms, sums, products, rotation, gathering.
//!
//! Each row is computed by one thread in one order, so nothing here depends on how many rows there are.

use std::ops::Range;

use super::simd::{Kernel, LANES, Simd, math};
use super::slots::RowsMut;
use super::{Cpu, Rows};
use crate::kernel::{Angles, Result};

/// Elements below which handing work to other threads costs more than it saves.
const GRAIN_ELEMENTS: usize = 16 * 1024;

impl Cpu {
    /// Rows of `width` that are worth a part of their own.
    pub(super) fn grain(width: usize) -> usize {
        (GRAIN_ELEMENTS / width.max(1)).max(1)
    }

    /// Calls `work(row, its elements)` for all rows, on all threads.
    pub(super) fn each_row(&self, x: &mut Rows, work: impl Fn(usize, &mut [f32]) + Sync) -> Result<()> {
        let (count, grain) = (x.count(), Self::grain(x.width()));
        let x = RowsMut::of_rows(x);
        self.shared.pool.each(count, grain, |part| {
            for index in part {
                work(index, x.row(index));
            }
        })
    }

    pub fn add_bias(&self, x: &mut Rows, bias: &[f32]) -> Result<()> {
        self.each_row(x, |_, row| add(row, bias))
    }

    pub fn add(&self, x: &mut Rows, delta: &Rows) -> Result<()> {
        self.each_row(x, |index, row| add(row, delta.row(index)))
    }

    pub fn scale(&self, x: &mut Rows, factor: f32) -> Result<()> {
        self.each_row(x, |_, row| row.iter_mut().for_each(|value| *value *= factor))
    }

    pub fn softcap(&self, x: &mut Rows, cap: f32) -> Result<()> {
        self.each_row(x, |_, row| self.shared.isa.run(Softcap { row, cap }))
    }

    pub fn rms_norm(&self, x: &Rows, w: &[f32], eps: f32, y: &mut Rows) -> Result<()> {
        self.each_row(y, |index, y| self.shared.isa.run(RmsNorm { x: x.row(index), w, eps, y }))
    }

    pub fn add_rms_norm(&self, x: &mut Rows, delta: &Rows, w: &[f32], eps: f32, y: &mut Rows) -> Result<()> {
        let y = RowsMut::of_rows(y);
        self.each_row(x, |index, x| {
            add(x, delta.row(index));
            self.shared.isa.run(RmsNorm { x, w, eps, y: y.row(index) });
        })
    }

    pub fn norm_heads(&self, x: &mut Rows, which: Range<usize>, w: &[f32], eps: f32) -> Result<()> {
        self.each_row(x, |_, row| {
            for head in heads(row, which.clone(), w.len()) {
                self.shared.isa.run(RmsNormInPlace { x: head, w, eps });
            }
        })
    }

    pub fn rotate(&self, x: &mut Rows, which: Range<usize>, head_dim: usize, angles: &Angles) -> Result<()> {
        self.each_row(x, |index, row| {
            let (cos, sin) = angles.row(index);
            for head in heads(row, which.clone(), head_dim) {
                let (first, second) = head[..2 * angles.pairs()].split_at_mut(angles.pairs());
                rotate(first, second, cos, sin);
            }
        })
    }

    pub fn silu_mul(&self, gate_up: &Rows, out: &mut Rows) -> Result<()> {
        self.each_row(out, |index, out| {
            let (gate, up) = gate_up.row(index).split_at(out.len());
            self.shared.isa.run(Gated::<false> { gate, up, out });
        })
    }

    pub fn gelu_mul(&self, gate_up: &Rows, out: &mut Rows) -> Result<()> {
        self.each_row(out, |index, out| {
            let (gate, up) = gate_up.row(index).split_at(out.len());
            self.shared.isa.run(Gated::<true> { gate, up, out });
        })
    }

    pub fn gather(&self, x: &Rows, which: &[usize], out: &mut Rows) -> Result<()> {
        self.each_row(out, |index, out| out.copy_from_slice(x.row(which[index])))
    }

    #[expect(clippy::unused_self, clippy::unnecessary_wraps, reason = "a verb like the others")]
    pub fn scatter_add(&self, x: &Rows, which: &[usize], weights: &[f32], out: &mut Rows) -> Result<()> {
        for (index, (&target, &weight)) in which.iter().zip(weights).enumerate() {
            for (sum, value) in out.row_mut(target).iter_mut().zip(x.row(index)) {
                *sum += weight * value;
            }
        }
        Ok(())
    }
}

fn add(x: &mut [f32], delta: &[f32]) {
    for (x, delta) in x.iter_mut().zip(delta) {
        *x += delta;
    }
}

fn heads(row: &mut [f32], which: Range<usize>, head_dim: usize) -> impl Iterator<Item = &mut [f32]> {
    row[which.start * head_dim..which.end * head_dim].chunks_exact_mut(head_dim)
}

fn rotate(first: &mut [f32], second: &mut [f32], cos: &[f32], sin: &[f32]) {
    for (((a, b), cos), sin) in first.iter_mut().zip(second).zip(cos).zip(sin) {
        (*a, *b) = (*a * cos - *b * sin, *b * cos + *a * sin);
    }
}

/// The last lanes of a slice that is no multiple of them, zeros after.
#[inline(always)]
fn padded(rest: &[f32]) -> [f32; LANES] {
    let mut lanes = [0.0; LANES];
    lanes[..rest.len()].copy_from_slice(rest);
    lanes
}

/// `1 / sqrt(mean(x²) + eps)`.
#[inline(always)]
fn inverse_rms<S: Simd>(simd: S, x: &[f32], eps: f32) -> f32 {
    let (whole, rest) = x.as_chunks::<LANES>();
    let mut squares = simd.splat(0.0);
    for lanes in whole {
        let lanes = simd.load(lanes);
        squares = simd.fma(lanes, lanes, squares);
    }
    let rest = simd.load(&padded(rest));
    let sum = simd.sum(simd.fma(rest, rest, squares));
    1.0 / (sum / x.len() as f32 + eps).sqrt()
}

struct RmsNorm<'a> {
    x: &'a [f32],
    w: &'a [f32],
    eps: f32,
    y: &'a mut [f32],
}

impl Kernel for RmsNorm<'_> {
    #[inline(always)]
    fn run<S: Simd>(self, simd: S) {
        let factor = inverse_rms(simd, self.x, self.eps);
        for ((y, x), w) in self.y.iter_mut().zip(self.x).zip(self.w) {
            *y = x * factor * w;
        }
    }
}

struct RmsNormInPlace<'a> {
    x: &'a mut [f32],
    w: &'a [f32],
    eps: f32,
}

impl Kernel for RmsNormInPlace<'_> {
    #[inline(always)]
    fn run<S: Simd>(self, simd: S) {
        let factor = inverse_rms(simd, self.x, self.eps);
        for (x, w) in self.x.iter_mut().zip(self.w) {
            *x = *x * factor * w;
        }
    }
}

/// `out = act(gate) * up`, where `act` is the sigmoid unit, or GELU where so said.
struct Gated<'a, const GELU: bool> {
    gate: &'a [f32],
    up: &'a [f32],
    out: &'a mut [f32],
}

impl<const GELU: bool> Kernel for Gated<'_, GELU> {
    #[inline(always)]
    fn run<S: Simd>(self, simd: S) {
        let (gates, last_gate) = self.gate.as_chunks::<LANES>();
        let (ups, last_up) = self.up.as_chunks::<LANES>();
        let (outs, last_out) = self.out.as_chunks_mut::<LANES>();
        for ((gate, up), out) in gates.iter().zip(ups).zip(outs) {
            gated::<S, GELU>(simd, gate, up, out);
        }
        if !last_out.is_empty() {
            let mut out = [0.0; LANES];
            gated::<S, GELU>(simd, &padded(last_gate), &padded(last_up), &mut out);
            last_out.copy_from_slice(&out[..last_out.len()]);
        }
    }
}

#[inline(always)]
fn gated<S: Simd, const GELU: bool>(simd: S, gate: &[f32; LANES], up: &[f32; LANES], out: &mut [f32; LANES]) {
    let gate = simd.load(gate);
    let active = if GELU { math::gelu(simd, gate) } else { math::silu(simd, gate) };
    simd.store(simd.mul(active, simd.load(up)), out);
}

struct Softcap<'a> {
    row: &'a mut [f32],
    cap: f32,
}

impl Kernel for Softcap<'_> {
    #[inline(always)]
    fn run<S: Simd>(self, simd: S) {
        let (whole, rest) = self.row.as_chunks_mut::<LANES>();
        for lanes in whole {
            softcap(simd, lanes, self.cap);
        }
        let mut last = padded(rest);
        softcap(simd, &mut last, self.cap);
        rest.copy_from_slice(&last[..rest.len()]);
    }
}

#[inline(always)]
fn softcap<S: Simd>(simd: S, lanes: &mut [f32; LANES], cap: f32) {
    let capped = math::tanh(simd, simd.mul(simd.load(lanes), simd.splat(1.0 / cap)));
    simd.store(simd.mul(capped, simd.splat(cap)), lanes);
}
