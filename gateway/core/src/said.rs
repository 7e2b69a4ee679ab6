//! The prefill rate that a replica tells of itself, and what that is worth as it grows old.
//!
//! A replica measures its steps exactly; the times of its answers are blurred by whatever else ran, and equal
//! replicas that look unequal scatter what belongs together. But what it says before it has worked for anybody comes
//! from its warm-up, perhaps beside others that warmed up too: were that believed for ever, one replica that began
//! in a quiet moment would get all requests, and the others never a chance to show better.

use std::time::Duration;

use shared::time::Instant;

/// How long a rate from real work keeps half of its weight, and one from a warm-up.
const WORK_HALF_LIFE: Duration = Duration::from_mins(5);
const WARM_UP_HALF_LIFE: Duration = Duration::from_secs(5);

/// A rate, in tokens a second, as told.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct Said {
    rate: Option<f64>,
    /// When it last changed, or was first heard.
    at: Instant,
    /// Whether it has changed since it was first heard: there was work.
    has_moved: bool,
}

impl Said {
    /// Takes in a report; whether that is news. What is not a positive finite number is no rate.
    pub fn hear(&mut self, rate: Option<f64>, at: Instant) -> bool {
        let Some(rate) = rate.filter(|rate| rate.is_finite() && *rate > 0.0) else { return false };
        if self.rate == Some(rate) {
            return false;
        }
        *self = Self { has_moved: self.rate.is_some(), rate: Some(rate), at };
        true
    }

    /// What it last said.
    pub fn rate(&self) -> Option<f64> {
        self.rate
    }

    /// What to reckon with: what it said, nearer to `usual` the older that is.
    pub fn read(&self, usual: f64, now: Instant) -> Option<f64> {
        let half_life = if self.has_moved { WORK_HALF_LIFE } else { WARM_UP_HALF_LIFE }.as_secs_f64();
        let weight = half_life / (half_life + now.since(self.at).as_secs_f64());
        self.rate.map(|rate| usual + (rate - usual) * weight)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn after(seconds: u64) -> Instant {
        Instant::ZERO + Duration::from_secs(seconds)
    }

    fn check(said: Said, seconds: u64, expected: f64) {
        let read = said.read(300.0, after(seconds)).unwrap();
        assert!((read - expected).abs() < 1.0, "{read}");
    }

    #[test]
    fn a_rate_from_a_warm_up_fades_within_seconds_and_one_from_work_within_minutes() {
        let mut said = Said::default();
        assert!(said.hear(Some(100.0), after(0)));
        assert!(!said.hear(Some(100.0), after(2)));
        check(said, 0, 100.0);
        check(said, 5, 200.0);
        assert!(said.hear(Some(200.0), after(5)));
        check(said, 5, 200.0);
        check(said, 305, 250.0);
    }

    #[test]
    fn nonsense_is_no_rate() {
        let mut said = Said::default();
        for rate in [None, Some(0.0), Some(-1.0), Some(f64::NAN), Some(f64::INFINITY)] {
            assert!(!said.hear(rate, after(0)));
        }
        assert_eq!((said.rate(), said.read(5.0, after(0))), (None, None));
    }
}
