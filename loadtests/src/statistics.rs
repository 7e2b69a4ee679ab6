//! Means, percentiles, and how sure one may be of a difference.

use rand::Rng;
use rand::SeedableRng;
use rand::rngs::SmallRng;
use serde::{Deserialize, Serialize};

/// How a quantity is spread. Percentiles lie between ranks, linearly.
#[derive(Clone, Copy, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct Spread {
    /// How many there are.
    pub count: usize,
    /// Their mean.
    pub mean: f64,
    /// Their standard deviation.
    pub std: f64,
    /// The median.
    pub p50: f64,
    /// 90th percentile.
    pub p90: f64,
    /// 95th percentile.
    pub p95: f64,
    /// 99th percentile.
    pub p99: f64,
    /// The largest.
    pub max: f64,
}

impl Spread {
    /// Of these; all zero where there are none.
    pub fn of(values: impl Iterator<Item = f64>) -> Self {
        let mut values: Vec<_> = values.collect();
        if values.is_empty() {
            return Self::default();
        }
        values.sort_unstable_by(f64::total_cmp);
        let mean = mean(&values);
        let variance = values.iter().map(|value| (value - mean).powi(2)).sum::<f64>() / values.len() as f64;
        let at = |percent: f64| percentile(&values, percent);
        Self {
            count: values.len(),
            mean,
            std: variance.sqrt(),
            p50: at(50.0),
            p90: at(90.0),
            p95: at(95.0),
            p99: at(99.0),
            max: values[values.len() - 1],
        }
    }
}

/// The mean; zero of none.
pub fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len().max(1) as f64
}

/// A percentile of sorted values; zero of none.
pub fn percentile(sorted: &[f64], percent: f64) -> f64 {
    let Some(last) = sorted.len().checked_sub(1) else { return 0.0 };
    let rank = percent / 100.0 * last as f64;
    let (below, above) = (sorted[rank.floor() as usize], sorted[rank.ceil() as usize]);
    below + (above - below) * rank.fract()
}

/// What changed from one sample to another, relative to the first, with 95 % confidence.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
pub struct Change {
    /// The figure of the first,
    pub before: f64,
    /// and of the second.
    pub after: f64,
    /// Relative change: 0.1 is a tenth more.
    pub change: f64,
    /// Its lowest credible value,
    pub low: f64,
    /// and its highest.
    pub high: f64,
}

impl Change {
    /// Whether no change at all is out of the question.
    pub fn is_certain(&self) -> bool {
        self.low > 0.0 || self.high < 0.0
    }
}

/// Samples that a bootstrap draws.
const DRAWS: usize = 1000;

/// Compares a figure of two samples by drawing from each of them again and again. None where one is empty.
pub fn bootstrap(before: &[f64], after: &[f64], figure: fn(&[f64]) -> f64, seed: u64) -> Option<Change> {
    if before.is_empty() || after.is_empty() {
        return None;
    }
    let mut rng = SmallRng::seed_from_u64(seed);
    let mut draw = |from: &[f64]| {
        let mut drawn: Vec<_> = from.iter().map(|_| from[rng.random_range(0..from.len())]).collect();
        drawn.sort_unstable_by(f64::total_cmp);
        figure(&drawn)
    };
    let relative = |before: f64, after: f64| (after - before) / before.abs().max(1e-9);
    let mut changes: Vec<_> = (0..DRAWS).map(|_| relative(draw(before), draw(after))).collect();
    changes.sort_unstable_by(f64::total_cmp);
    let sorted = |values: &[f64]| {
        let mut values = values.to_vec();
        values.sort_unstable_by(f64::total_cmp);
        figure(&values)
    };
    let (before, after) = (sorted(before), sorted(after));
    let change = relative(before, after);
    Some(Change { before, after, change, low: percentile(&changes, 2.5), high: percentile(&changes, 97.5) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_lie_between_ranks() {
        let spread = Spread::of((1..=101).map(f64::from));
        let figures = [spread.mean, spread.p50, spread.p90, spread.p95, spread.p99, spread.max];
        assert_eq!(figures.map(|figure| figure as u32), [51, 51, 91, 96, 100, 101]);
        assert_eq!(Spread::of([1.0, 2.0].into_iter()).p50.to_bits(), 1.5f64.to_bits());
        assert_eq!(Spread::of(std::iter::empty()), Spread::default());
    }

    #[test]
    fn a_shift_is_certain_and_noise_is_not() {
        let noise = |shift: f64, seed: u64| {
            let mut rng = SmallRng::seed_from_u64(seed);
            (0..400).map(|_| 100.0 + shift + 20.0 * rng.random::<f64>()).collect::<Vec<_>>()
        };
        let shifted = bootstrap(&noise(0.0, 1), &noise(10.0, 2), mean, 3).unwrap();
        assert!(shifted.is_certain() && (shifted.change - 0.09).abs() < 0.02, "{shifted:?}");
        let same = noise(0.0, 1);
        let same = bootstrap(&same, &same, mean, 3).unwrap();
        assert!(!same.is_certain() && same.low < 0.0 && same.high > 0.0, "{same:?}");
        assert_eq!(bootstrap(&[], &[1.0], mean, 3), None);
    }
}
