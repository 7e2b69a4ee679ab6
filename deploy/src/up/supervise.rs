//! When a process that ended is started again. Pure: what ended, how, and how long it had lived come in.

use std::time::Duration;

/// Exit code for settings that can't work however often one tries (`EX_CONFIG`), and clap's for a wrong flag.
const HOPELESS: [i32; 2] = [78, 2];
/// Wait before the first new start.
const WAIT_FIRST: Duration = Duration::from_millis(250);
/// Longest wait.
const WAIT_LONGEST: Duration = Duration::from_secs(30);
/// A life this long, ready in the end, wipes the slate.
const STEADY: Duration = Duration::from_mins(1);
/// So many starts in a row that never became ready are enough, if it never was ready before.
const STARTS_MAX: u32 = 3;

/// One process's past.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Record {
    /// Ends since the last steady life.
    failures: u32,
    /// Whether it was ready in any life.
    was_ready: bool,
    /// Whether it is ready in this one.
    is_ready: bool,
}

/// What happens next.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Verdict {
    /// Start it again after a wait.
    Restart(Duration),
    /// It won't work; why.
    GiveUp(&'static str),
}

impl Record {
    /// It says it is ready.
    pub fn ready(&mut self) {
        self.was_ready = true;
        self.is_ready = true;
    }

    /// It ended with that exit code (none when a signal ended it), after `lived`.
    pub fn ended(&mut self, code: Option<i32>, lived: Duration) -> Verdict {
        if self.is_ready && lived >= STEADY {
            self.failures = 0;
        }
        self.is_ready = false;
        self.failures += 1;
        if code.is_some_and(|code| HOPELESS.contains(&code)) {
            return Verdict::GiveUp("its settings can't work (see its last lines)");
        }
        if !self.was_ready && self.failures >= STARTS_MAX {
            return Verdict::GiveUp("it ended at every start before it was ready (see its last lines)");
        }
        let doublings = (self.failures - 1).min(16);
        Verdict::Restart((WAIT_FIRST * 2u32.pow(doublings)).min(WAIT_LONGEST))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const KILLED: Option<i32> = None;
    const SOON: Duration = Duration::from_secs(1);

    fn restart_ms(ms: u64) -> Verdict {
        Verdict::Restart(Duration::from_millis(ms))
    }

    #[test]
    fn waits_double_and_a_steady_life_starts_them_anew() {
        let mut record = Record::default();
        record.ready();
        for ms in [250, 500, 1000, 2000] {
            assert_eq!(record.ended(KILLED, SOON), restart_ms(ms));
        }
        record.ready();
        assert_eq!(record.ended(KILLED, STEADY), restart_ms(250));
    }

    #[test]
    fn three_starts_that_never_got_ready_are_enough() {
        let mut record = Record::default();
        assert_eq!(record.ended(Some(1), SOON), restart_ms(250));
        assert_eq!(record.ended(KILLED, SOON), restart_ms(500));
        assert!(matches!(record.ended(Some(1), SOON), Verdict::GiveUp(_)));
    }

    #[test]
    fn wrong_settings_are_not_tried_twice() {
        assert!(matches!(Record::default().ended(Some(78), SOON), Verdict::GiveUp(_)));
        assert!(matches!(Record::default().ended(Some(2), SOON), Verdict::GiveUp(_)));
    }

    #[test]
    fn a_long_life_that_was_never_ready_is_a_failure_too() {
        let mut record = Record::default();
        record.ended(KILLED, STEADY);
        assert_eq!(record.ended(KILLED, STEADY), restart_ms(500));
    }

    proptest! {
        #[test]
        fn what_was_ready_once_is_always_started_again(lives in prop::collection::vec((any::<bool>(), 0u64..200), 1..80)) {
            let mut record = Record::default();
            record.ready();
            for (ready, lived_s) in lives {
                if ready {
                    record.ready();
                }
                match record.ended(KILLED, Duration::from_secs(lived_s)) {
                    Verdict::Restart(wait) => prop_assert!((WAIT_FIRST..=WAIT_LONGEST).contains(&wait)),
                    Verdict::GiveUp(why) => prop_assert!(false, "gave up: {}", why),
                }
            }
        }
    }
}
