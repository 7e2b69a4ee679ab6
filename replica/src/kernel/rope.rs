//! Rotary position embedding: how fast each pair of dimensions turns, and the angles of a step's rows.
//!
//! Pure; the same for every device. Arithmetic is f32 as in Hugging Face's transformers, so that long
//! positions turn by the very same angles.

use replica_format::facts::{Rope, RopeScaling};

/// Turning speed of each pair, with the factor that some scalings put on cosine and sine.
#[derive(Clone, PartialEq, Debug)]
pub struct RopeTable {
    speeds: Vec<f32>,
    attention_factor: f32,
}

/// Cosines and sines of a step's rows, computed once a step and used by every layer.
#[derive(Clone, PartialEq, Debug)]
pub struct Angles {
    pairs: usize,
    cos: Vec<f32>,
    sin: Vec<f32>,
}

impl RopeTable {
    /// The table for `theta` (a local layer's may differ from `rope.theta`), for a model that will see at
    /// most `context_tokens` positions. Scalings that depend on length take it from there and never from
    /// the sequence, so that a row's angle does not change as its sequence grows.
    pub fn new(rope: &Rope, theta: f32, context_tokens: u32) -> Self {
        let dim = rope.dim as usize;
        let base = Self { speeds: speeds(theta, dim), attention_factor: 1.0 };
        match &rope.scaling {
            RopeScaling::None => base,
            RopeScaling::Linear { factor } => {
                Self { speeds: base.speeds.iter().map(|speed| speed / factor).collect(), ..base }
            }
            RopeScaling::Dynamic { factor, original_context } => Self {
                speeds: speeds(stretched_theta(theta, dim, *factor, *original_context, context_tokens), dim),
                ..base
            },
            RopeScaling::Llama3 { factor, low_freq_factor, high_freq_factor, original_context } => {
                let bands = Bands {
                    factor: *factor,
                    low: *low_freq_factor,
                    high: *high_freq_factor,
                    original: *original_context as f32,
                };
                Self { speeds: base.speeds.iter().map(|&speed| bands.stretch(speed)).collect(), ..base }
            }
            RopeScaling::Yarn { factor, beta_fast, beta_slow, attention_factor, original_context } => {
                let ramp = Ramp::new(theta, dim, *beta_fast, *beta_slow, *original_context as f32);
                let speeds = base.speeds.iter().enumerate().map(|(pair, &speed)| {
                    let kept = 1.0 - ramp.at(pair);
                    speed / factor * (1.0 - kept) + speed * kept
                });
                Self { speeds: speeds.collect(), attention_factor: *attention_factor }
            }
            RopeScaling::Long { short, long, attention_factor, original_context } => {
                let stretch = if context_tokens > *original_context { long } else { short };
                let speeds = base.speeds.iter().zip(stretch).map(|(speed, factor)| speed / factor);
                Self { speeds: speeds.collect(), attention_factor: *attention_factor }
            }
        }
    }

    /// The angles of rows at `positions`.
    pub fn angles(&self, positions: &[u32]) -> Angles {
        let pairs = self.speeds.len();
        let mut cos = Vec::with_capacity(positions.len() * pairs);
        let mut sin = Vec::with_capacity(positions.len() * pairs);
        for &position in positions {
            for speed in &self.speeds {
                // The product is rounded to f32 first, as the reference does, then turned exactly.
                let (sine, cosine) = f64::from(position as f32 * speed).sin_cos();
                cos.push(cosine as f32 * self.attention_factor);
                sin.push(sine as f32 * self.attention_factor);
            }
        }
        Angles { pairs, cos, sin }
    }
}

impl Angles {
    /// Pairs that turn in a head; dimensions from `2 * pairs` on pass.
    pub fn pairs(&self) -> usize {
        self.pairs
    }

    /// Rows.
    pub fn count(&self) -> usize {
        self.cos.len().checked_div(self.pairs).unwrap_or(0)
    }

    /// Cosines and sines, row by row.
    pub fn all(&self) -> (&[f32], &[f32]) {
        (&self.cos, &self.sin)
    }

    /// Cosines and sines of one row.
    pub fn row(&self, row: usize) -> (&[f32], &[f32]) {
        let of_row = row * self.pairs..(row + 1) * self.pairs;
        (&self.cos[of_row.clone()], &self.sin[of_row])
    }
}

fn speeds(theta: f32, dim: usize) -> Vec<f32> {
    (0..dim / 2).map(|pair| 1.0 / theta.powf((2 * pair) as f32 / dim as f32)).collect()
}

/// NTK-aware base, for the longest sequence there will be.
fn stretched_theta(theta: f32, dim: usize, factor: f32, original: u32, longest: u32) -> f32 {
    let stretch = factor * longest.max(original) as f32 / original as f32 - (factor - 1.0);
    theta * stretch.powf(dim as f32 / (dim as f32 - 2.0))
}

/// Llama 3: slow pairs are stretched, fast ones kept, those between blended.
struct Bands {
    factor: f32,
    low: f32,
    high: f32,
    original: f32,
}

impl Bands {
    fn stretch(&self, speed: f32) -> f32 {
        let wavelength = 2.0 * std::f32::consts::PI / speed;
        if wavelength < self.original / self.high {
            return speed;
        }
        if wavelength > self.original / self.low {
            return speed / self.factor;
        }
        let smooth = (self.original / wavelength - self.low) / (self.high - self.low);
        (1.0 - smooth) * speed / self.factor + smooth * speed
    }
}

/// `YaRN`: from pair `low` on pairs are stretched more and more, from `high` on fully.
struct Ramp {
    low: f32,
    high: f32,
}

impl Ramp {
    fn new(theta: f32, dim: usize, beta_fast: f32, beta_slow: f32, original: f32) -> Self {
        let pair_of = |turns: f32| {
            dim as f32 * (original / (turns * 2.0 * std::f32::consts::PI)).ln() / (2.0 * theta.ln())
        };
        let low = pair_of(beta_fast).floor().max(0.0);
        let high = pair_of(beta_slow).ceil().min(dim as f32 - 1.0);
        Self { low, high: if low >= high { low + 0.001 } else { high } }
    }

    fn at(&self, pair: usize) -> f32 {
        ((pair as f32 - self.low) / (self.high - self.low)).clamp(0.0, 1.0)
    }
}
