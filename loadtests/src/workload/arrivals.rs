//! When sessions begin: open loop, whatever the servers do.

use std::f64::consts::TAU;
use std::time::Duration;

use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use serde::{Deserialize, Serialize};

/// How the gaps between arrivals are spread.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Shape {
    /// Equal gaps.
    Constant,
    /// Independent arrivals.
    Poisson,
    /// Gamma-distributed gaps of this shape: below 1 bursty, 1 is Poisson, above 1 even.
    Gamma(f64),
}

/// A rate, its shape, and where the rate goes.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Arrivals {
    /// Sessions a second at the start.
    pub per_s: f64,
    /// Sessions a second at the end, when the rate is to change evenly over them.
    #[serde(default)]
    pub to_per_s: Option<f64>,
    /// How gaps are spread.
    #[serde(default = "poisson")]
    pub shape: Shape,
}

fn poisson() -> Shape {
    Shape::Poisson
}

impl Arrivals {
    /// No gaps at all.
    pub const AT_ONCE: Self = Self { per_s: f64::INFINITY, to_per_s: None, shape: Shape::Constant };

    /// Start times that a seed gives.
    pub fn starts_of_seed(&self, count: u32, seed: u64) -> Vec<Duration> {
        self.starts(count, &mut SmallRng::seed_from_u64(seed))
    }

    /// Start times of so many sessions.
    pub fn starts(&self, count: u32, rng: &mut impl Rng) -> Vec<Duration> {
        let mut now = 0.0;
        let mut starts = Vec::with_capacity(count as usize);
        for index in 0..count {
            let part = f64::from(index) / f64::from(count.max(1));
            let per_s = self.per_s + (self.to_per_s.unwrap_or(self.per_s) - self.per_s) * part;
            now += self.gap(rng) / per_s.max(1e-9);
            starts.push(Duration::from_secs_f64(now));
        }
        starts
    }

    /// One gap, of mean 1.
    fn gap(&self, rng: &mut impl Rng) -> f64 {
        match self.shape {
            Shape::Constant => 1.0,
            Shape::Poisson => exponential(rng),
            Shape::Gamma(shape) => gamma(shape.max(0.01), rng) / shape.max(0.01),
        }
    }
}

fn exponential(rng: &mut impl Rng) -> f64 {
    -f64::ln(1.0 - rng.random::<f64>())
}

fn normal(rng: &mut impl Rng) -> f64 {
    (2.0 * exponential(rng)).sqrt() * (TAU * rng.random::<f64>()).cos()
}

/// Marsaglia and Tsang's method; shapes below 1 by their boost.
fn gamma(shape: f64, rng: &mut impl Rng) -> f64 {
    if shape < 1.0 {
        let boost = (1.0 - rng.random::<f64>()).powf(1.0 / shape);
        return gamma(shape + 1.0, rng) * boost;
    }
    let d = shape - 1.0 / 3.0;
    loop {
        let x = normal(rng);
        let v = (1.0 + x / (9.0 * d).sqrt()).powi(3);
        if v > 0.0 && exponential(rng) > d * v - d - d * v.ln() - x * x / 2.0 {
            return d * v;
        }
    }
}
