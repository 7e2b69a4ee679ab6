//! Products with weights, split over ranks by their outputs or by their inputs.

use super::Step;
use crate::kernel::{Device, Matrix, Rows, Vector};
use crate::parallel::Fault;

/// Holds some of the outputs (all of them, without other ranks): its rows are this rank's columns.
#[derive(Debug)]
pub struct ColumnLinear {
    /// Outputs × inputs.
    pub weight: Matrix,
    /// Added to the outputs.
    pub bias: Option<Vector>,
}

impl ColumnLinear {
    /// This rank's outputs.
    pub fn apply(&self, device: &Device, x: &Rows) -> Result<Rows, Fault> {
        let mut y = device.rows(x.count(), self.weight.rows())?;
        device.matmul(x, &self.weight, &mut y)?;
        if let Some(bias) = &self.bias {
            device.add_bias(&mut y, bias)?;
        }
        Ok(y)
    }
}

/// Holds some of the inputs: every rank gives a part of all outputs, and the sum is everyone's.
#[derive(Debug)]
pub struct RowLinear {
    /// Outputs × inputs of this rank.
    pub weight: Matrix,
    /// Added to the sum.
    pub bias: Option<Vector>,
}

impl RowLinear {
    /// All outputs.
    pub fn apply(&self, step: &mut Step<'_>, x: &Rows) -> Result<Rows, Fault> {
        let mut y = step.device.rows(x.count(), self.weight.rows())?;
        step.device.matmul(x, &self.weight, &mut y)?;
        step.ranks.sum(step.device, &mut y)?;
        if let Some(bias) = &self.bias {
            step.device.add_bias(&mut y, bias)?;
        }
        Ok(y)
    }
}
