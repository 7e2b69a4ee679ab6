//! Who a source names, look after look. One that is missing is given time to come back.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// What one source has named.
#[derive(Clone, Debug)]
pub struct Roster {
    patience: Duration,
    seen: BTreeMap<String, Instant>,
}

impl Roster {
    /// An empty one, from which a name goes when it was missing for so long.
    pub fn new(patience: Duration) -> Self {
        Self { patience, seen: BTreeMap::new() }
    }

    /// A source was looked at: who is new, and who has gone.
    pub fn look(
        &mut self,
        named: impl IntoIterator<Item = String>,
        now: Instant,
    ) -> (Vec<String>, Vec<String>) {
        let is_new = |name: &String| self.seen.insert(name.clone(), now).is_none();
        let joined = named.into_iter().filter(is_new).collect();
        let is_gone = |last: &Instant| now.duration_since(*last) >= self.patience;
        let left = self.seen.iter().filter(|(_, last)| is_gone(last)).map(|(name, _)| name.clone()).collect();
        self.seen.retain(|_, last| !is_gone(last));
        (joined, left)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(list: &str) -> Vec<String> {
        list.split_whitespace().map(str::to_owned).collect()
    }

    #[test]
    fn one_that_is_missing_leaves_only_after_a_while() {
        let mut roster = Roster::new(Duration::from_secs(5));
        let start = Instant::now();
        let mut look = |list, second| roster.look(names(list), start + Duration::from_secs(second));
        assert_eq!(look("a b", 0), (names("a b"), vec![]));
        assert_eq!(look("b", 4), (vec![], vec![]));
        assert_eq!(look("a b", 4), (vec![], vec![]));
        assert_eq!(look("b c", 8), (names("c"), vec![]));
        assert_eq!(look("b c", 9), (vec![], names("a")));
        assert_eq!(look("a b c", 10), (names("a"), vec![]));
    }

    #[test]
    fn a_source_that_names_nobody_empties_it_in_time() {
        let mut roster = Roster::new(Duration::from_secs(5));
        let start = Instant::now();
        roster.look(names("a b"), start);
        assert_eq!(roster.look(vec![], start + Duration::from_secs(5)), (vec![], names("a b")));
    }
}
