//! When a draining replica is empty. Pure.

use std::fmt;

use shared::wire::FleetEntry;

/// What a replica still has to finish.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Left {
    /// Requests of the gateway that was asked.
    in_flight: u32,
    /// Sequences of any gateway, by the replica's own word.
    sequences: u32,
}

impl Left {
    /// Reads it off an entry. A replica that tells nothing of itself is judged by the gateway's own count; so is
    /// one that is down, whose last word is worth nothing.
    pub fn of(entry: &FleetEntry) -> Self {
        let told = entry.running.unwrap_or(0) + entry.waiting.unwrap_or(0);
        let sequences = if entry.state == "down" { 0 } else { told };
        Self { in_flight: entry.in_flight, sequences }
    }

    /// Whether it may go.
    pub fn is_nothing(self) -> bool {
        self.in_flight == 0 && self.sequences == 0
    }
}

impl fmt::Display for Left {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} requests of this gateway, {} sequences in all", self.in_flight, self.sequences)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(state: &str, in_flight: u32, running: Option<u32>, waiting: Option<u32>, expected: bool) {
        let entry =
            FleetEntry { state: state.to_owned(), in_flight, running, waiting, ..FleetEntry::default() };
        assert_eq!(Left::of(&entry).is_nothing(), expected, "{entry:?}");
    }

    #[test]
    fn it_is_empty_when_nobody_counts_anything() {
        check("draining", 0, Some(0), Some(0), true);
        check("draining", 1, Some(0), Some(0), false);
        check("draining", 0, Some(0), Some(1), false);
    }

    #[test]
    fn another_gateways_work_counts_too() {
        check("draining", 0, Some(2), Some(0), false);
    }

    #[test]
    fn one_that_says_nothing_or_is_down_is_judged_by_the_gateways_count() {
        check("draining", 0, None, None, true);
        check("draining", 3, None, None, false);
        check("down", 0, Some(7), Some(0), true);
    }
}
