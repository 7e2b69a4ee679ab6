//! An answer's text told apart: thoughts, what is said, and tool calls.
//!
//! Works on text as it comes, in pieces of any size, and holds back only what could still be the start of a
//! marker. The whole answer is the pieces put together, so a stream and a whole answer agree by construction.

mod calls;
mod scanner;
mod thoughts;

pub use calls::{Calls, Form};
pub use thoughts::Thoughts;

/// What has become clear since the last piece; within one, thoughts come first and calls last.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Piece {
    /// More of what the model thinks.
    pub thought: String,
    /// More of what it says.
    pub text: String,
    /// More of what it calls.
    pub calls: Vec<CallPiece>,
}

/// A tool call, or more of one.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CallPiece {
    /// Which call of the answer.
    pub index: usize,
    /// Id and function, once at its beginning.
    pub begin: Option<(String, String)>,
    /// More of the arguments, as they were written.
    pub arguments: String,
}

impl Piece {
    /// Whether there is nothing to tell.
    pub fn is_empty(&self) -> bool {
        self.thought.is_empty() && self.text.is_empty() && self.calls.is_empty()
    }

    /// Appends what came later.
    pub fn extend(&mut self, later: Self) {
        self.thought.push_str(&later.thought);
        self.text.push_str(&later.text);
        for piece in later.calls {
            match self.calls.last_mut().filter(|last| last.index == piece.index && piece.begin.is_none()) {
                Some(last) => last.arguments.push_str(&piece.arguments),
                None => self.calls.push(piece),
            }
        }
    }
}

/// Reads one answer.
#[derive(Clone, Debug, Default)]
pub struct Content {
    thoughts: Option<Thoughts>,
    calls: Option<Calls>,
    said: String,
}

impl Content {
    /// A reader; without either part all text is what is said.
    pub fn new(thoughts: Option<Thoughts>, calls: Option<Calls>) -> Self {
        Self { thoughts, calls, said: String::new() }
    }

    /// More text.
    pub fn push(&mut self, text: &str, piece: &mut Piece) {
        match &mut self.thoughts {
            Some(thoughts) => thoughts.push(text, &mut piece.thought, &mut self.said),
            None => self.said.push_str(text),
        }
        self.speak(piece);
    }

    /// No more text. True when it ended in calls that are whole.
    pub fn finish(&mut self, piece: &mut Piece) -> bool {
        if let Some(thoughts) = &mut self.thoughts {
            thoughts.finish(&mut piece.thought, &mut self.said);
        }
        self.speak(piece);
        self.calls.as_mut().is_some_and(|calls| calls.finish(piece))
    }

    /// Whether the answer is among its thoughts.
    pub fn is_thinking(&self) -> bool {
        self.thoughts.as_ref().is_some_and(Thoughts::is_open)
    }

    /// Whether nothing more is wanted: the only call allowed is whole.
    pub fn is_over(&self) -> bool {
        self.calls.as_ref().is_some_and(Calls::is_over)
    }

    fn speak(&mut self, piece: &mut Piece) {
        match &mut self.calls {
            Some(calls) => calls.push(&self.said, piece),
            None => piece.text.push_str(&self.said),
        }
        self.said.clear();
    }
}

/// Bytes at the end of `text` that `marker` begins with, short of all of it.
pub(super) fn beginning_of(marker: &str, text: &str) -> usize {
    let longest = marker.len().saturating_sub(1).min(text.len());
    (1..=longest).rev().find(|&length| text.as_bytes().ends_with(&marker.as_bytes()[..length])).unwrap_or(0)
}

#[cfg(test)]
mod tests;
