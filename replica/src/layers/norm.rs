//! Root mean square norm.

use crate::kernel::{Device, Result, Rows, Vector};

/// Scales rows to unit mean square, then each channel by its weight.
#[derive(Debug)]
pub struct RmsNorm {
    /// One a channel, as the arithmetic multiplies it.
    pub weight: Vector,
    /// Added to the mean square.
    pub eps: f32,
}

impl RmsNorm {
    /// The normed rows.
    pub fn apply(&self, device: &Device, x: &Rows) -> Result<Rows> {
        let mut y = device.rows(x.count(), x.width())?;
        device.rms_norm(x, &self.weight, self.eps, &mut y)?;
        Ok(y)
    }

    /// Adds `delta` to the residual stream `x` and gives the normed sum.
    pub fn apply_after(&self, device: &Device, x: &mut Rows, delta: &Rows) -> Result<Rows> {
        let mut y = device.rows(x.count(), x.width())?;
        device.add_rms_norm(x, delta, &self.weight, self.eps, &mut y)?;
        Ok(y)
    }

    /// Norms single heads of every row in place.
    pub fn apply_heads(&self, device: &Device, x: &mut Rows, which: std::ops::Range<usize>) -> Result<()> {
        device.norm_heads(x, which, &self.weight, self.eps)
    }
}
