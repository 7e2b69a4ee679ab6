//! Finds the tokens that are recognised whole, before any algorithm sees the text between them.

use std::fmt;

use aho_corasick::{AhoCorasick, MatchKind};

/// A stretch of a text.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Stretch<'t> {
    Text(&'t str),
    Token(u32),
}

/// Spellings of whole tokens.
pub struct Splitter {
    /// `None` when there is no such token.
    search: Option<AhoCorasick>,
    tokens: Vec<Whole>,
}

/// A token that is recognised whole.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Whole {
    pub spelling: String,
    pub token: u32,
    /// Whether white space behind it belongs to it.
    pub takes_space: bool,
}

impl Splitter {
    pub fn new(tokens: Vec<Whole>) -> Self {
        let tokens: Vec<Whole> = tokens.into_iter().filter(|token| !token.spelling.is_empty()).collect();
        let search = AhoCorasick::builder()
            .match_kind(MatchKind::LeftmostLongest)
            .build(tokens.iter().map(|token| &token.spelling))
            .ok()
            .filter(|_| !tokens.is_empty());
        Self { search, tokens }
    }

    /// Whether some token takes white space with it.
    pub fn takes_space(&self) -> bool {
        self.tokens.iter().any(|token| token.takes_space)
    }

    /// The text's stretches in order, none of them empty. Where spellings overlap the leftmost wins, then the
    /// longest.
    pub fn split<'t>(&self, text: &'t str) -> Vec<Stretch<'t>> {
        let mut stretches = Vec::new();
        let mut done = 0;
        for found in self.search.iter().flat_map(|search| search.find_iter(text)) {
            // White space that a token took may hold the next one.
            if found.start() < done {
                continue;
            }
            if found.start() > done {
                stretches.push(Stretch::Text(&text[done..found.start()]));
            }
            let whole = &self.tokens[found.pattern().as_usize()];
            stretches.push(Stretch::Token(whole.token));
            done = found.end();
            if whole.takes_space {
                done += text[done..].len() - text[done..].trim_ascii_start().len();
            }
        }
        if done < text.len() {
            stretches.push(Stretch::Text(&text[done..]));
        }
        stretches
    }
}

impl fmt::Debug for Splitter {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("Splitter").field("tokens", &self.tokens.len()).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::Stretch::{Text, Token};
    use super::*;

    fn check(text: &str, expected: &[Stretch<'_>]) {
        let whole =
            |spelling: &str, token, takes_space| Whole { spelling: spelling.to_owned(), token, takes_space };
        let tokens = vec![
            whole("<a>", 1, false),
            whole("<ab>", 2, true),
            whole("\n", 3, false),
            whole("\n\n", 4, false),
        ];
        assert_eq!(Splitter::new(tokens).split(text), expected, "{text:?}");
    }

    #[test]
    fn whole_tokens_are_cut_out_longest_first() {
        check("", &[]);
        check("x<a>y", &[Text("x"), Token(1), Text("y")]);
        check("<a><ab>", &[Token(1), Token(2)]);
        check("\n\n\n", &[Token(4), Token(3)]);
        check("<ab> \n y", &[Token(2), Text("y")]);
    }

    #[test]
    fn without_whole_tokens_a_text_is_one_stretch() {
        assert_eq!(Splitter::new(Vec::new()).split("a b"), [Text("a b")]);
    }
}
