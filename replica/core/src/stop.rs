//! When an answer ends: stop tokens, and stop strings in streamed text.
//!
//! Knows neither tokenizers nor channels: it is given tokens or text pieces and says what may go out.

use crate::sequence::Request;

/// Whether a drawn token ends the answer, which has `answer_tokens` so far.
pub fn is_stop(request: &Request, token: u32, answer_tokens: u32) -> bool {
    answer_tokens >= request.answer_tokens_min && request.stop_tokens.contains(&token)
}

/// What came of a piece of text.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Passed {
    /// This text may go out; more may follow.
    Text(String),
    /// This is the rest of the answer, up to a stop string.
    Stopped {
        /// The rest.
        text: String,
        /// Index of the stop string that matched.
        stop: usize,
    },
}

/// Watches one streamed answer for stop strings. Text that may be the start of one is held back.
///
/// The match that is complete first wins, of those the longest: so the answer is the same however the text
/// is cut into pieces.
#[derive(Clone, Debug)]
pub struct StopStrings {
    stops: Vec<String>,
    include: bool,
    held: String,
}

impl StopStrings {
    /// `include` leaves the stop string in the answer. Empty stop strings match nothing.
    pub fn new(stops: Vec<String>, include: bool) -> Self {
        Self { stops, include, held: String::new() }
    }

    /// The next piece of the answer. Call no more once it has stopped.
    pub fn push(&mut self, piece: &str) -> Passed {
        self.held.push_str(piece);
        if let Some((end, start, stop)) = self.first_match() {
            let mut text = std::mem::take(&mut self.held);
            text.truncate(if self.include { end } else { start });
            return Passed::Stopped { text, stop };
        }
        let keep = self.stops.iter().map(|stop| overlap(&self.held, stop)).max().unwrap_or(0);
        let rest = self.held.split_off(self.held.len() - keep);
        Passed::Text(std::mem::replace(&mut self.held, rest))
    }

    /// The answer ended otherwise: what was held back goes out.
    pub fn flush(&mut self) -> String {
        std::mem::take(&mut self.held)
    }

    /// End, start and index of the match that is complete first.
    fn first_match(&self) -> Option<(usize, usize, usize)> {
        let find = |(index, stop): (usize, &String)| {
            let start = self.held.find(stop.as_str()).filter(|_| !stop.is_empty())?;
            Some((start + stop.len(), start, index))
        };
        self.stops.iter().enumerate().filter_map(find).min()
    }
}

/// Bytes at the end of `text` that a longer `stop` begins with.
fn overlap(text: &str, stop: &str) -> usize {
    let longest = text.len().min(stop.len().saturating_sub(1));
    (1..=longest).rev().find(|&bytes| text.as_bytes().ends_with(&stop.as_bytes()[..bytes])).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// The text that went out, and which stop string ended it.
    fn run(stops: &[&str], include: bool, pieces: &[&str]) -> (String, Option<usize>) {
        let mut watch = StopStrings::new(stops.iter().map(ToString::to_string).collect(), include);
        let mut out = String::new();
        for piece in pieces {
            match watch.push(piece) {
                Passed::Text(text) => out += &text,
                Passed::Stopped { text, stop } => return (out + &text, Some(stop)),
            }
        }
        (out + &watch.flush(), None)
    }

    // U031
    #[test]
    fn a_stop_string_over_five_tokens_never_shows() {
        let pieces = ["ABC", "DEF", "G", "HI", "J"];
        assert_eq!(run(&["DEFGHIJ"], false, &pieces), ("ABC".into(), Some(0)));
        assert_eq!(run(&["DEFGHIJ"], true, &pieces), ("ABCDEFGHIJ".into(), Some(0)));
    }

    // U031
    #[test]
    fn held_text_comes_when_it_turns_out_not_to_match() {
        assert_eq!(run(&["DEFGHIJ"], false, &["ABC", "DEF", "G", "HI", "K"]), ("ABCDEFGHIK".into(), None));
        assert_eq!(run(&["DEFGHIJ"], false, &["ABC", "DEF"]), ("ABCDEF".into(), None));
    }

    #[test]
    fn only_what_may_be_a_start_is_held() {
        let mut watch = StopStrings::new(vec!["</end>".into()], false);
        assert_eq!(watch.push("a < b"), Passed::Text("a < b".into()));
        assert_eq!(watch.push(" </e"), Passed::Text(" ".into()));
        assert_eq!(watch.push("x"), Passed::Text("</ex".into()));
    }

    #[test]
    fn the_first_to_be_complete_wins_and_of_two_the_longer() {
        assert_eq!(run(&["abcd", "bc"], false, &["abcd"]), ("a".into(), Some(1)));
        assert_eq!(run(&["c", "abc"], false, &["xabc"]), ("x".into(), Some(1)));
    }

    #[test]
    fn an_empty_stop_string_matches_nothing() {
        assert_eq!(run(&[""], false, &["abc"]), ("abc".into(), None));
    }

    proptest! {
        #[test]
        fn how_the_text_is_cut_makes_no_difference(
            text in "[abé]{0,24}",
            stops in prop::collection::vec("[abé]{0,4}", 0..4),
            include: bool,
            cuts in prop::collection::vec(0usize..24, 0..6),
        ) {
            let stops: Vec<&str> = stops.iter().map(String::as_str).collect();
            let mut cuts: Vec<usize> = cuts.into_iter().filter(|&cut| text.is_char_boundary(cut)).collect();
            cuts.extend([0, text.len()]);
            cuts.sort_unstable();
            let pieces: Vec<&str> = cuts.windows(2).map(|cut| &text[cut[0]..cut[1]]).collect();
            let whole = run(&stops, include, &[&text]);
            prop_assert_eq!(run(&stops, include, &pieces), whole.clone());
            if !include {
                let shown = stops.iter().any(|stop| !stop.is_empty() && whole.0.contains(stop));
                prop_assert!(!shown, "a stop string shows in {:?}", whole.0);
            }
        }
    }
}
