//! Changes a few places of a JSON text and leaves every other byte as it was.

use super::prompt::Prompt;
use bytes::Bytes;
use std::ops::Range;

/// Changes to one text, in any order.
#[derive(Clone, Debug, Default)]
pub struct Edits {
    changes: Vec<(Range<usize>, Vec<u8>)>,
}

impl Edits {
    /// Puts `with` where `span` was; an empty span inserts.
    pub fn replace(&mut self, span: Range<usize>, with: impl Into<Vec<u8>>) {
        self.changes.push((span, with.into()));
    }

    /// Sets a top-level member of the object that `prompt` was read from; `value` is JSON.
    pub fn set(&mut self, prompt: &Prompt<'_>, key: &str, value: &str) {
        if let Some(span) = prompt.span(key) {
            return self.replace(span, value);
        }
        let comma = if prompt.is_empty() { "" } else { "," };
        let at = prompt.start();
        self.replace(at..at, format!("\"{key}\":{value}{comma}"));
    }

    /// Whether there is nothing to change.
    pub fn is_empty(&self) -> bool {
        self.changes.is_empty()
    }

    /// The text with the changes made.
    pub fn apply(mut self, text: &[u8]) -> Bytes {
        self.changes.sort_by_key(|(span, _)| (span.start, span.end));
        let added: usize = self.changes.iter().map(|(_, with)| with.len()).sum();
        let mut out = Vec::with_capacity(text.len() + added);
        let mut from = 0;
        for (span, with) in self.changes {
            assert!(span.start >= from, "two changes of one place");
            out.extend_from_slice(&text[from..span.start]);
            out.extend_from_slice(&with);
            from = span.end;
        }
        out.extend_from_slice(&text[from..]);
        out.into()
    }
}

#[cfg(test)]
mod tests {
    use super::super::prompt;
    use super::*;

    #[test]
    fn only_the_named_places_change() {
        // U082
        let text = b" { \"model\" : \"alias\", \"t\":0.10,\n\"messages\":[ ] }";
        let prompt = prompt::read(text).unwrap();
        let mut edits = Edits::default();
        edits.set(&prompt, "model", "\"a much longer name\"");
        edits.set(&prompt, "cache_salt", "\"s\"");
        let expected =
            " {\"cache_salt\":\"s\", \"model\" : \"a much longer name\", \"t\":0.10,\n\"messages\":[ ] }";
        assert_eq!(edits.apply(text), expected.as_bytes());
    }

    #[test]
    fn an_empty_object_gets_no_comma() {
        let prompt = prompt::read(b"{}").unwrap();
        let mut edits = Edits::default();
        assert!(edits.is_empty());
        edits.set(&prompt, "a", "1");
        assert_eq!(edits.apply(b"{}"), b"{\"a\":1}".as_slice());
    }
}
