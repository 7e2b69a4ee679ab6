//! `<think>…</think>` at the start of an answer.

use super::beginning_of;

const OPEN: &str = "<think>";

/// Splits thoughts off. A prompt may have opened them already.
#[derive(Clone, Debug)]
pub struct Thoughts {
    place: Place,
    held: String,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Place {
    /// Nothing but white space so far: they may still open.
    Before,
    Inside {
        /// Nothing of them has been shown.
        is_first: bool,
    },
    /// The blank lines between them and what is said.
    Gap,
    After,
}

impl Thoughts {
    /// What ends them.
    pub const CLOSE: &str = "</think>";

    /// Thoughts that the prompt opened (`is_open`), or that the answer may open.
    pub fn new(is_open: bool) -> Self {
        let place = if is_open { Place::Inside { is_first: true } } else { Place::Before };
        Self { place, held: String::new() }
    }

    /// Whether the answer is among them now.
    pub fn is_open(&self) -> bool {
        matches!(self.place, Place::Inside { .. })
    }

    /// Whether a prompt opens thoughts.
    pub fn opens(prompt: &str) -> bool {
        prompt.trim_end().ends_with(OPEN)
    }

    /// More of the answer.
    pub fn push(&mut self, text: &str, thought: &mut String, said: &mut String) {
        self.held.push_str(text);
        loop {
            let before = (self.place, self.held.len());
            match self.place {
                Place::Before => self.before(said),
                Place::Inside { is_first } => self.inside(is_first, thought),
                Place::Gap => self.gap(),
                Place::After => said.push_str(&std::mem::take(&mut self.held)),
            }
            if (self.place, self.held.len()) == before {
                return;
            }
        }
    }

    /// The answer ends: what was held is what it looks like.
    pub fn finish(&mut self, thought: &mut String, said: &mut String) {
        let rest = std::mem::take(&mut self.held);
        match self.place {
            Place::Inside { .. } => thought.push_str(&rest),
            Place::Before | Place::After => said.push_str(&rest),
            Place::Gap => {}
        }
    }

    fn before(&mut self, said: &mut String) {
        let begun = self.held.trim_start();
        if let Some(rest) = begun.strip_prefix(OPEN) {
            self.held = rest.to_owned();
            self.place = Place::Inside { is_first: true };
        } else if !OPEN.starts_with(begun) {
            said.push_str(&std::mem::take(&mut self.held));
            self.place = Place::After;
        }
    }

    fn inside(&mut self, is_first: bool, thought: &mut String) {
        if is_first {
            self.held = self.held.trim_start_matches('\n').to_owned();
        }
        let end = self.held.find(Self::CLOSE);
        let safe = end.unwrap_or_else(|| self.held.len() - beginning_of(Self::CLOSE, &self.held));
        thought.extend(self.held.drain(..safe));
        self.place = Place::Inside { is_first: is_first && safe == 0 };
        if end.is_some() {
            self.held.drain(..Self::CLOSE.len());
            self.place = Place::Gap;
        }
    }

    fn gap(&mut self) {
        self.held = self.held.trim_start_matches('\n').to_owned();
        if !self.held.is_empty() {
            self.place = Place::After;
        }
    }
}
