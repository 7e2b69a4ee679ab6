//! Work on rows one by one.
#![expect(clippy::unused_self, reason = "verbs of a device, whether they make new tensors on it or not")]

use std::ops::Range;

use candle_core::{D, Tensor};

use super::{Cuda, Rows, Vector};
use crate::kernel::{Angles, Result};

impl Cuda {
    pub fn add_bias(&self, x: &mut Rows, bias: &Vector) -> Result<()> {
        let sum = x.tensor().broadcast_add(bias)?;
        x.set(&sum)
    }

    pub fn add(&self, x: &mut Rows, delta: &Rows) -> Result<()> {
        let sum = x.tensor().add(delta.tensor())?;
        x.set(&sum)
    }

    pub fn scale(&self, x: &mut Rows, factor: f32) -> Result<()> {
        let scaled = x.tensor().affine(f64::from(factor), 0.0)?;
        x.set(&scaled)
    }

    pub fn softcap(&self, x: &mut Rows, cap: f32) -> Result<()> {
        let capped = capped(x.tensor(), cap)?;
        x.set(&capped)
    }

    pub fn rms_norm(&self, x: &Rows, w: &Vector, eps: f32, y: &mut Rows) -> Result<()> {
        y.set(&normed(x.tensor(), w, eps)?)
    }

    pub fn add_rms_norm(&self, x: &mut Rows, delta: &Rows, w: &Vector, eps: f32, y: &mut Rows) -> Result<()> {
        self.add(x, delta)?;
        self.rms_norm(x, w, eps, y)
    }

    pub fn norm_heads(&self, x: &mut Rows, which: Range<usize>, w: &Vector, eps: f32) -> Result<()> {
        with_heads(x, which, w.elem_count(), |heads| normed(heads, w, eps))
    }

    pub fn rotate(&self, x: &mut Rows, which: Range<usize>, head_dim: usize, angles: &Angles) -> Result<()> {
        let (count, pairs) = (angles.count(), angles.pairs());
        let (cos, sin) = angles.all();
        let cos = Tensor::from_slice(cos, (count, 1, pairs), &self.device)?;
        let sin = Tensor::from_slice(sin, (count, 1, pairs), &self.device)?;
        with_heads(x, which, head_dim, |heads| {
            let (first, second) = (heads.narrow(2, 0, pairs)?, heads.narrow(2, pairs, pairs)?);
            let turned_first = first.broadcast_mul(&cos)?.sub(&second.broadcast_mul(&sin)?)?;
            let turned_second = second.broadcast_mul(&cos)?.add(&first.broadcast_mul(&sin)?)?;
            let rest = heads.narrow(2, 2 * pairs, head_dim - 2 * pairs)?;
            Ok(Tensor::cat(&[turned_first, turned_second, rest], 2)?)
        })
    }

    pub fn silu_mul(&self, gate_up: &Rows, out: &mut Rows) -> Result<()> {
        let (gate, up) = halves(gate_up)?;
        out.set(&gate.silu()?.mul(&up)?)
    }

    pub fn gelu_mul(&self, gate_up: &Rows, out: &mut Rows) -> Result<()> {
        let (gate, up) = halves(gate_up)?;
        out.set(&gate.gelu()?.mul(&up)?)
    }

    pub fn gather(&self, x: &Rows, which: &[usize], out: &mut Rows) -> Result<()> {
        let which = self.indices(which.iter().map(|&row| row as u32))?;
        out.set(&x.tensor().index_select(&which, 0)?)
    }

    pub fn scatter_add(&self, x: &Rows, which: &[usize], weights: &[f32], out: &mut Rows) -> Result<()> {
        let weights = Tensor::from_slice(weights, (weights.len(), 1), &self.device)?;
        let which = self.indices(which.iter().map(|&row| row as u32))?;
        let sum = out.tensor().index_add(&which, &x.tensor().broadcast_mul(&weights)?, 0)?;
        out.set(&sum)
    }
}

/// `cap * tanh(x / cap)`.
pub(super) fn capped(x: &Tensor, cap: f32) -> Result<Tensor> {
    let cap = f64::from(cap);
    Ok(x.affine(1.0 / cap, 0.0)?.tanh()?.affine(cap, 0.0)?)
}

/// Norms the last dimension.
fn normed(x: &Tensor, w: &Tensor, eps: f32) -> Result<Tensor> {
    let mean = x.sqr()?.mean_keepdim(D::Minus1)?;
    let rms = mean.affine(1.0, f64::from(eps))?.sqrt()?;
    Ok(x.broadcast_div(&rms)?.broadcast_mul(w)?)
}

fn halves(gate_up: &Rows) -> Result<(Tensor, Tensor)> {
    let width = gate_up.width() / 2;
    let half = |start| gate_up.tensor().narrow(1, start, width)?.contiguous();
    Ok((half(0)?, half(width)?))
}

/// Replaces the heads `which`, given as `rows × heads × dim`; the rest of each row stays.
fn with_heads(
    x: &mut Rows,
    which: Range<usize>,
    dim: usize,
    change: impl FnOnce(&Tensor) -> Result<Tensor>,
) -> Result<()> {
    let all = x.tensor().reshape((x.count(), x.width() / dim, dim))?;
    let changed = change(&all.narrow(1, which.start, which.len())?.contiguous()?)?;
    let before = all.narrow(1, 0, which.start)?;
    let after = all.narrow(1, which.end, x.width() / dim - which.end)?;
    x.set(&Tensor::cat(&[before, changed, after], 1)?)
}
