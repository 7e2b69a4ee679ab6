//! Service-level objectives: what counts as a good answer.

use std::time::Duration;

/// Targets of one answer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Slo {
    /// Longest wait for the first token.
    pub ttft: Duration,
    /// Longest mean time per later token.
    pub tpot: Duration,
}

impl Slo {
    /// What is aimed at where nobody says otherwise: people wait two seconds, and read ten words a second.
    pub const DEFAULT: Self = Self { ttft: Duration::from_secs(2), tpot: Duration::from_millis(100) };

    /// Whether an answer counts as goodput. An answer of one token has no later ones: its `tpot` is zero.
    pub fn is_met(self, ttft: Duration, tpot: Duration) -> bool {
        ttft <= self.ttft && tpot <= self.tpot
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_targets_must_hold() {
        let slo = Slo { ttft: Duration::from_millis(500), tpot: Duration::from_millis(50) };
        let ms = Duration::from_millis;
        assert!(slo.is_met(ms(500), ms(50)));
        assert!(!slo.is_met(ms(501), ms(50)));
        assert!(!slo.is_met(ms(500), ms(51)));
    }
}
