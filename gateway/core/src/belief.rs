//! A number learned from samples that fades back to what one would assume without them.
//!
//! A replica that looked slow is not asked, so it would look slow for ever; fading is what brings it back.

use std::time::Duration;

use shared::time::Instant;

/// Weight of a new sample against what was known.
const GAIN: f64 = 0.2;

/// One odd sample counts as no more than so many times what is believed, nor less than one part in as many.
const STEP_MAX: f64 = 4.0;

/// A learned number.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct Belief {
    value: f64,
    at: Option<Instant>,
}

impl Belief {
    /// Takes in one sample; what is not a positive finite number is no sample.
    pub fn learn(&mut self, sample: f64, now: Instant) {
        if !sample.is_finite() || sample <= 0.0 {
            return;
        }
        if self.at.replace(now).is_none() {
            self.value = sample;
            return;
        }
        let sample = sample.clamp(self.value / STEP_MAX, self.value * STEP_MAX);
        self.value += GAIN * (sample - self.value);
    }

    /// What to reckon with: the learned value, half way to `prior` when it is one `half_life` old.
    pub fn read(&self, prior: f64, half_life: Duration, now: Instant) -> f64 {
        let Some(at) = self.at else { return prior };
        let age = now.since(at).as_secs_f64();
        let half_life = half_life.as_secs_f64();
        let weight = half_life / (half_life + age);
        prior + (self.value - prior) * weight
    }

    /// The learned value if its last sample is no older than this.
    pub fn recent(&self, age_max: Duration, now: Instant) -> Option<f64> {
        self.at.filter(|&at| now.since(at) <= age_max).map(|_| self.value)
    }

    /// The learned value as it was, if there is one.
    pub fn value(&self) -> Option<f64> {
        self.at.map(|_| self.value)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HALF: Duration = Duration::from_secs(10);

    #[test]
    fn without_samples_it_is_the_prior() {
        assert!((Belief::default().read(7.0, HALF, Instant::ZERO) - 7.0).abs() < 1e-9);
        assert_eq!(Belief::default().value(), None);
    }

    #[test]
    fn an_old_belief_fades_to_the_prior() {
        let mut belief = Belief::default();
        belief.learn(100.0, Instant::ZERO);
        let at = |seconds| belief.read(0.0, HALF, Instant::ZERO + Duration::from_secs(seconds));
        assert!((at(0) - 100.0).abs() < 1e-9);
        assert!((at(10) - 50.0).abs() < 1e-9);
        assert!(at(1000) < 1.0);
    }

    #[test]
    fn one_odd_sample_moves_it_little() {
        let mut belief = Belief::default();
        belief.learn(1.0, Instant::ZERO);
        belief.learn(1e9, Instant::ZERO);
        assert!(belief.value().is_some_and(|value| value < 2.0));
    }

    #[test]
    fn nonsense_is_no_sample() {
        let mut belief = Belief::default();
        for sample in [0.0, -1.0, f64::NAN, f64::INFINITY] {
            belief.learn(sample, Instant::ZERO);
        }
        assert_eq!(belief.value(), None);
    }
}
