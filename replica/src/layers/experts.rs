//! A mixture of experts: each row goes to the few that its router favours.
//!
//! A row's experts add up in the order of their numbers, whoever rides along, so its result is its own.

use std::cmp::Ordering;

use super::{Activation, ColumnLinear, Step};
use crate::kernel::{Device, Matrix, Rows};
use crate::parallel::Fault;

/// One expert, this rank's share of its width.
#[derive(Debug)]
pub struct Expert {
    /// Fused: gate, then up.
    pub gate_up: ColumnLinear,
    /// Back to the residual stream; summed over ranks once for all experts.
    pub down: Matrix,
}

/// One layer's experts.
#[derive(Debug)]
pub struct Experts {
    /// One output an expert; whole on every rank.
    pub router: ColumnLinear,
    /// All of them.
    pub experts: Vec<Expert>,
    /// How many a row goes to.
    pub active: usize,
    /// Whether the chosen ones' weights are made to sum to 1.
    pub normalised: bool,
    /// On the gates.
    pub activation: Activation,
}

/// The rows that one expert gets, and what its answer to each weighs.
#[derive(Clone, Default, Debug)]
struct Load {
    rows: Vec<usize>,
    weights: Vec<f32>,
}

impl Experts {
    /// What the experts add to the residual stream.
    pub fn apply(&self, step: &mut Step<'_>, x: &Rows) -> Result<Rows, Fault> {
        let device = step.device;
        let scores = self.router.apply(device, x)?;
        let loads = self.loads(&device.to_host(&scores)?);
        let mut sum = device.from_host(&vec![0.0; x.count() * x.width()], x.width())?;
        for (expert, load) in self.experts.iter().zip(&loads) {
            if !load.rows.is_empty() {
                expert.add(device, self.activation, x, load, &mut sum)?;
            }
        }
        step.ranks.sum(device, &mut sum)?;
        Ok(sum)
    }

    /// Who gets which rows, from all rows' scores.
    fn loads(&self, scores: &[f32]) -> Vec<Load> {
        let mut loads = vec![Load::default(); self.experts.len()];
        for (row, scores) in scores.chunks_exact(self.experts.len()).enumerate() {
            for (expert, weight) in choose(scores, self.active, self.normalised) {
                loads[expert].rows.push(row);
                loads[expert].weights.push(weight);
            }
        }
        loads
    }
}

impl Expert {
    fn add(
        &self,
        device: &Device,
        activation: Activation,
        x: &Rows,
        load: &Load,
        sum: &mut Rows,
    ) -> Result<(), Fault> {
        let mut own = device.rows(load.rows.len(), x.width())?;
        device.gather(x, &load.rows, &mut own)?;
        let inner = activation.gate(device, &self.gate_up.apply(device, &own)?)?;
        let mut answers = device.rows(load.rows.len(), x.width())?;
        device.matmul(&inner, &self.down, &mut answers)?;
        device.scatter_add(&answers, &load.rows, &load.weights, sum)?;
        Ok(())
    }
}

/// The best of a softmax over all experts, the lower number first among equals.
fn choose(scores: &[f32], active: usize, normalised: bool) -> Vec<(usize, f32)> {
    let largest = scores.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    let mut shares: Vec<_> = scores.iter().map(|score| (score - largest).exp()).enumerate().collect();
    let total: f32 = shares.iter().map(|(_, share)| share).sum();
    shares.sort_by(|a, b| b.1.partial_cmp(&a.1).unwrap_or(Ordering::Equal));
    shares.truncate(active);
    let whole = if normalised { shares.iter().map(|(_, share)| share).sum() } else { total };
    shares.iter().map(|&(expert, share)| (expert, share / whole)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(scores: &[f32], normalised: bool, expected: &[(usize, f32)]) {
        let chosen = choose(scores, expected.len(), normalised);
        assert_eq!(chosen.len(), expected.len());
        for ((expert, weight), (right, share)) in chosen.iter().zip(expected) {
            assert_eq!(expert, right);
            assert!((weight - share).abs() < 1e-6, "{weight} is not {share}");
        }
    }

    #[test]
    fn the_best_experts_get_a_row_by_their_share() {
        let logs = [1.0f32, 4.0, 2.0, 3.0].map(f32::ln);
        check(&logs, false, &[(1, 0.4), (3, 0.3)]);
        check(&logs, true, &[(1, 4.0 / 7.0), (3, 3.0 / 7.0)]);
        check(&[0.0, 0.0, 0.0], true, &[(0, 0.5), (1, 0.5)]);
    }
}
