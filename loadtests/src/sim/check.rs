//! The laws that hold for any seed (house rules, section "Tests"). A broken one is noted, with where and when.

use shared::time::Instant;

/// Notes of what was broken; a few are enough.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Laws {
    broken: Vec<String>,
}

/// Which law.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Law {
    /// Every request ends exactly once: answered, refused or timed out.
    EndsOnce,
    /// An answer's tokens are those of the fake model, in order.
    TrueAnswer,
    /// After drain no replica holds a block and no gateway holds load.
    NothingHeld,
    /// No step exceeds its budget, no queue its bound.
    Bounded,
    /// Nothing is sent to a replica known to be draining or open-circuited, but for probes.
    RightPlace,
    /// Retries stay within the budget.
    FewRetries,
}

/// Most notes that are kept.
const NOTES_MAX: usize = 20;

impl Laws {
    /// Notes a breach unless `holds`.
    pub fn check(&mut self, law: Law, holds: bool, now: Instant, what: impl FnOnce() -> String) {
        if !holds && self.broken.len() < NOTES_MAX {
            self.broken.push(format!("{law:?} at {:.3} s: {}", now.0 as f64 / 1e9, what()));
        }
    }

    /// What was broken.
    pub fn broken(&self) -> &[String] {
        &self.broken
    }
}
