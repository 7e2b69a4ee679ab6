//! One answer's tokens to text, holding back what is not yet a whole character.

use super::Tokenizer;

/// Bytes that wait for the rest of their character: at most three.
#[derive(Clone, Debug)]
pub struct Decoder {
    held: Vec<u8>,
    skip_control: bool,
}

impl Decoder {
    pub(super) fn new(skip_control: bool) -> Self {
        Self { held: Vec::new(), skip_control }
    }

    /// The text that `token` completes, perhaps none. Bytes that can no longer become a character come out as
    /// U+FFFD. Work is in proportion to the token, not to the answer.
    pub fn push(&mut self, tokenizer: &Tokenizer, token: u32) -> String {
        if !(self.skip_control && tokenizer.is_control(token)) {
            self.held.extend_from_slice(tokenizer.token_bytes(token));
        }
        let whole = self.held.len() - unfinished(&self.held);
        let text = String::from_utf8_lossy(&self.held[..whole]).into_owned();
        self.held.drain(..whole);
        text
    }

    /// What is still held, when no more tokens come.
    pub fn finish(&mut self) -> String {
        String::from_utf8_lossy(&std::mem::take(&mut self.held)).into_owned()
    }
}

/// How many bytes at the end begin a character without ending it.
fn unfinished(bytes: &[u8]) -> usize {
    // Only the last chunk can end in the middle of a character, and then its invalid part is that beginning.
    let Some(last) = bytes.utf8_chunks().last() else { return 0 };
    let rest = last.invalid();
    let wanted = match rest.first() {
        Some(0xc2..=0xdf) => 2,
        Some(0xe0..=0xef) => 3,
        Some(0xf0..=0xf4) => 4,
        _ => 0,
    };
    if rest.len() < wanted { rest.len() } else { 0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_character_that_may_still_end_is_held() {
        //    bytes                   held
        for (bytes, held) in [
            (b"abc".as_slice(), 0),
            (b"ab\xf0", 1),
            (b"ab\xf0\x9f\x91", 3),
            (b"ab\xf0\x9f\x91\xa9", 0),
            (b"\xe4\xb8", 2),
            (b"\xc3", 1),
            // Never the start of a character, or one that broke off before.
            (b"ab\xff", 0),
            (b"\xf0\x9fa", 0),
            (b"\xe0\x80", 0),
            (b"\x80\x80", 0),
            (b"", 0),
        ] {
            assert_eq!(unfinished(bytes), held, "{bytes:x?}");
        }
    }
}
