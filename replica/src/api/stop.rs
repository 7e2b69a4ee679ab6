//! Stop strings over text that comes in pieces: what may be shown, what must wait, whether it is over.
//!
//! Text that could be the start of a stop string is held back until it is one or can't be any more.

use super::content::beginning_of;

/// Watches one answer.
#[derive(Clone, Debug)]
pub struct StopStrings {
    stops: Vec<String>,
    include: bool,
    held: String,
}

impl StopStrings {
    /// Ends at the first of `stops`; `include` shows the one that ended it.
    pub fn new(stops: Vec<String>, include: bool) -> Self {
        Self { stops, include, held: String::new() }
    }

    /// Takes more text and moves what may be shown to `shown`. True when a stop string has come.
    pub fn push(&mut self, text: &str, shown: &mut String) -> bool {
        if self.stops.is_empty() {
            shown.push_str(text);
            return false;
        }
        self.held.push_str(text);
        if let Some((start, end)) = self.first_match() {
            shown.push_str(&self.held[..if self.include { end } else { start }]);
            self.held.clear();
            return true;
        }
        let safe = self.held.len() - self.longest_start();
        shown.extend(self.held.drain(..safe));
        false
    }

    /// Nothing follows: what was held is shown after all.
    pub fn flush(&mut self, shown: &mut String) {
        shown.push_str(&self.held);
        self.held.clear();
    }

    /// Start and end of the match that ends first, so that it makes no difference how the text was cut; of
    /// those that end together, the longest.
    fn first_match(&self) -> Option<(usize, usize)> {
        let found = self.stops.iter().filter_map(|stop| self.held.find(stop).map(|at| (at + stop.len(), at)));
        found.min().map(|(end, start)| (start, end))
    }

    /// Bytes at the end of the held text that some stop string begins with.
    fn longest_start(&self) -> usize {
        let longest = self.stops.iter().map(|stop| beginning_of(stop, &self.held)).max().unwrap_or(0);
        // Two stop strings may begin with different bytes of one character: never cut inside it.
        let held = &self.held;
        (longest..=held.len()).find(|&kept| held.is_char_boundary(held.len() - kept)).unwrap_or(held.len())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn check(stops: &[&str], pieces: &[&str], shown_after_each: &[&str], stopped: bool) {
        let mut watch = StopStrings::new(stops.iter().map(|&stop| stop.to_owned()).collect(), false);
        let mut over = false;
        for (piece, expected) in pieces.iter().zip(shown_after_each) {
            let mut shown = String::new();
            over = watch.push(piece, &mut shown);
            assert_eq!(shown, *expected, "after {piece}");
        }
        assert_eq!(over, stopped);
    }

    // U031
    #[test]
    fn a_stop_string_over_four_tokens_never_shows() {
        check(&["DEFGHIJ"], &["ABC", "DEF", "G", "HI", "J"], &["ABC", "", "", "", ""], true);
    }

    #[test]
    fn held_text_is_shown_when_its_tail_does_not_match() {
        check(&["DEFGHIJ"], &["ABC", "DEF", "G", "X"], &["ABC", "", "", "DEFGX"], false);
        check(&["aab"], &["aa", "aab"], &["", "aa"], true);
    }

    #[test]
    fn the_first_stop_string_wins() {
        check(&["\n\n", "END"], &["x END\n\n"], &["x "], true);
    }

    #[test]
    fn what_is_held_at_the_end_is_flushed() {
        let mut watch = StopStrings::new(vec!["stop".to_owned()], false);
        let mut shown = String::new();
        assert!(!watch.push("a st", &mut shown));
        watch.flush(&mut shown);
        assert_eq!(shown, "a st");
    }

    proptest! {
        #[test]
        fn pieces_show_what_the_whole_shows(text in "[ab\u{e9}\u{1f600}]{0,40}", stops in prop::collection::vec("[ab\u{e9}\u{1f600}]{1,4}", 0..4), cuts in prop::collection::vec(0usize..40, 0..8)) {
            let ends = stops.iter().filter_map(|stop| text.find(stop).map(|at| (at + stop.len(), at)));
            let expected = ends.min().map_or(&text[..], |(_, at)| &text[..at]);
            let mut watch = StopStrings::new(stops, false);
            let mut shown = String::new();
            let mut over = false;
            let mut cuts: Vec<_> = cuts.into_iter().filter(|&cut| text.is_char_boundary(cut.min(text.len()))).map(|cut| cut.min(text.len())).collect();
            cuts.push(text.len());
            cuts.sort_unstable();
            let mut from = 0;
            for cut in cuts {
                over = over || watch.push(&text[from..cut], &mut shown);
                from = cut;
            }
            if !over {
                watch.flush(&mut shown);
            }
            prop_assert_eq!(shown, expected);
        }
    }
}
