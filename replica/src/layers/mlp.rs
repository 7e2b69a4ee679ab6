//! The gated feed-forward layer.

use super::{ColumnLinear, RowLinear, Step};
use crate::kernel::{Device, Rows};
use crate::parallel::Fault;

/// What the gate goes through.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Activation {
    /// `x * sigmoid(x)`.
    Silu,
    /// GELU in its tanh form.
    GeluTanh,
}

/// One layer's MLP, this rank's share of its width.
#[derive(Debug)]
pub struct Mlp {
    /// Fused: this rank's gate, then its up.
    pub gate_up: ColumnLinear,
    /// Back to the residual stream.
    pub down: RowLinear,
    /// On the gate.
    pub activation: Activation,
}

impl Mlp {
    /// What the MLP adds to the residual stream.
    pub fn apply(&self, step: &mut Step<'_>, x: &Rows) -> Result<Rows, Fault> {
        let gate_up = self.gate_up.apply(step.device, x)?;
        let inner = self.activation.gate(step.device, &gate_up)?;
        self.down.apply(step, &inner)
    }
}

impl Activation {
    /// Gate and up, side by side, to the inner rows.
    pub fn gate(self, device: &Device, gate_up: &Rows) -> Result<Rows, Fault> {
        let mut inner = device.rows(gate_up.count(), gate_up.width() / 2)?;
        match self {
            Self::Silu => device.silu_mul(gate_up, &mut inner)?,
            Self::GeluTanh => device.gelu_mul(gate_up, &mut inner)?,
        }
        Ok(inner)
    }
}
