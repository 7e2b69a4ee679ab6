//! Brackets and bisects: which load to try next, and when the answer is known. Pure.

/// A search for the highest load that is met. It is taken that what is met at one load is met at all lower ones.
#[derive(Clone, PartialEq, Debug)]
pub struct Search {
    met: Option<f64>,
    missed: Option<f64>,
    start: f64,
    precision: f64,
    step: f64,
    trials_left: u32,
}

impl Search {
    /// Begins at `start`; ends when the answer is known to a share of `precision` or to `step`, whichever is more, or
    /// after so many trials.
    pub fn new(start: f64, precision: f64, step: f64, trials: u32) -> Self {
        Self { met: None, missed: None, start: start.max(step), precision, step, trials_left: trials }
    }

    /// What to try next; none when the answer is known.
    pub fn next(&self) -> Option<f64> {
        if self.trials_left == 0 {
            return None;
        }
        let load = match (self.met, self.missed) {
            (None, None) => self.start,
            (Some(met), None) => met * 2.0,
            (None, Some(missed)) if missed > self.step => (missed / 2.0).max(self.step),
            (Some(met), Some(missed))
                if missed - met > (met * self.precision).max(self.step * (1.0 + 1e-9)) =>
            {
                // In the middle of ratios: half the trials of the middle of sums where the bracket is wide.
                (met * missed).sqrt()
            }
            _ => return None,
        };
        let whole = if self.step > 0.0 { (load / self.step).round() * self.step } else { load };
        Some(whole.clamp(
            self.met.map_or(self.step, |met| met + self.step),
            self.missed.map_or(whole, |missed| missed - self.step).max(self.step),
        ))
    }

    /// What came of a trial.
    pub fn tell(&mut self, load: f64, is_met: bool) {
        self.trials_left = self.trials_left.saturating_sub(1);
        let side = if is_met { &mut self.met } else { &mut self.missed };
        *side = Some(match *side {
            Some(known) if is_met => known.max(load),
            Some(known) => known.min(load),
            None => load,
        });
    }

    /// The highest load that was met.
    pub fn met(&self) -> Option<f64> {
        self.met
    }

    /// The lowest that was not.
    pub fn missed(&self) -> Option<f64> {
        self.missed
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn find(capacity: f64, start: f64, precision: f64, step: f64) -> (Search, u32) {
        let mut search = Search::new(start, precision, step, 200);
        let mut trials = 0;
        while let Some(load) = search.next() {
            search.tell(load, load <= capacity);
            trials += 1;
        }
        (search, trials)
    }

    proptest! {
        #[test]
        fn a_rate_is_found_to_its_precision(
            capacity in 0.01f64..10_000.0, start in 0.01f64..10_000.0, precision in 0.01f64..0.5,
        ) {
            let (search, trials) = find(capacity, start, precision, 0.0);
            let met = search.met().expect("some rate is met");
            prop_assert!(met <= capacity && met * (1.0 + precision) >= capacity * (1.0 - 1e-9), "{search:?}");
            // Twenty doublings span the range, eight halvings of an octave reach a percent.
            prop_assert!(trials <= 32, "{trials} trials");
        }

        #[test]
        fn a_number_of_clients_is_found_exactly(capacity in 1u32..2000, start in 1u32..2000) {
            let (search, trials) = find(f64::from(capacity), f64::from(start), 0.0, 1.0);
            prop_assert_eq!(search.met(), Some(f64::from(capacity)));
            prop_assert!(trials <= 40, "{trials} trials");
        }

        #[test]
        fn every_trial_lies_between_what_is_known(
            answers in prop::collection::vec(any::<bool>(), 1..60), start in 0.01f64..1000.0,
        ) {
            let mut search = Search::new(start, 0.05, 0.0, 60);
            for is_met in answers {
                let Some(load) = search.next() else { break };
                prop_assert!(load > 0.0 && load.is_finite());
                prop_assert!(search.met().is_none_or(|met| load > met));
                prop_assert!(search.missed().is_none_or(|missed| load < missed));
                search.tell(load, is_met);
            }
        }
    }

    #[test]
    fn nothing_is_met_where_one_client_is_too_many() {
        let (search, _) = find(0.0, 8.0, 0.0, 1.0);
        assert_eq!((search.met(), search.missed()), (None, Some(1.0)));
    }
}
