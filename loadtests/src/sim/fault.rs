//! What goes wrong, from a seed.

use std::time::Duration;

use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use serde::Deserialize;

/// One kind of fault.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Fault {
    /// The process dies with all it has, and starts again when the fault is over.
    Crash,
    /// No step ends.
    Stall,
    /// Every step takes so many times as long.
    Slow(f64),
    /// Gateway and replica do not reach each other; what was under way breaks.
    Partition,
    /// Reports and news of its cache are lost; requests pass.
    Silence,
    /// An operator drains it, and takes that back.
    Drain,
    /// A new replica joins; it stays.
    Join,
}

/// One fault of one replica.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Trouble {
    /// When.
    pub at: Duration,
    /// For how long.
    pub lasts: Duration,
    /// Whose. A join makes its own.
    pub replica: usize,
    /// What.
    pub fault: Fault,
}

/// How much goes wrong, as a scenario file names it.
#[derive(Clone, Copy, PartialEq, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Troubles {
    /// Faults, each of a kind drawn by lot.
    pub count: u32,
    /// Longest time that one lasts.
    pub lasts_s_max: f64,
}

impl Troubles {
    /// All faults within `span`, in the order of their times.
    pub fn draw(&self, seed: u64, replicas: usize, span: Duration) -> Vec<Trouble> {
        let mut rng = SmallRng::seed_from_u64(seed ^ 0xfa17);
        let mut troubles: Vec<_> = (0..self.count)
            .map(|_| Trouble {
                at: span.mul_f64(rng.random()),
                lasts: Duration::from_secs_f64(self.lasts_s_max.max(0.1) * rng.random_range(0.1..1.0)),
                replica: rng.random_range(0..replicas),
                fault: match rng.random_range(0..7) {
                    0 => Fault::Crash,
                    1 => Fault::Stall,
                    2 => Fault::Slow(rng.random_range(2.0..20.0)),
                    3 => Fault::Partition,
                    4 => Fault::Silence,
                    5 => Fault::Drain,
                    _ => Fault::Join,
                },
            })
            .collect();
        troubles.sort_by_key(|trouble| trouble.at);
        troubles
    }
}
