//! Request text as a chain of piece hashes: what the gateway routes by and a replica reports.
//!
//! A piece is 512 bytes of text. Piece `i`'s hash covers everything before it, so equal hashes mean equal
//! prefixes. The chain is seeded with the resolved model, the tenant's salt and the tools as sent; each message
//! adds its role, its name and its text. Both sides call this one function, so they agree by construction.

use xxhash_rust::xxh3::{Xxh3, xxh3_128_with_seed};

/// Bytes of text a piece covers.
pub const PIECE_BYTES: usize = 512;

/// Hash of one piece and all text before it.
pub type PieceHash = u128;

/// Feeds the text of one request, in order, and collects the chain.
#[derive(Clone, Debug)]
pub struct Pieces {
    parent: u128,
    pending: Vec<u8>,
    hashes: Vec<PieceHash>,
    bytes: usize,
}

impl Pieces {
    /// A chain for one (model, salt, tools). Absent parts are empty strings.
    pub fn new(model: &str, salt: &str, tools: &[u8]) -> Self {
        let mut seed = Xxh3::new();
        for part in [model.as_bytes(), salt.as_bytes(), tools] {
            seed.update(&(part.len() as u64).to_le_bytes());
            seed.update(part);
        }
        Self {
            parent: seed.digest128(),
            pending: Vec::with_capacity(PIECE_BYTES),
            hashes: Vec::new(),
            bytes: 0,
        }
    }

    /// One message of a chat: where its text begins is marked, so that moving a border changes the chain.
    pub fn message(&mut self, role: &str, name: &str, text: &str) {
        self.begin_message(role, name);
        self.text(text.as_bytes());
        self.end_message();
    }

    /// The first half of [`Self::message`], for a text that comes in parts through [`Self::text`].
    pub fn begin_message(&mut self, role: &str, name: &str) {
        self.mark(role);
        self.mark(name);
    }

    /// The second half.
    pub fn end_message(&mut self) {
        self.mark("");
    }

    /// Plain text: a completion's prompt, or one part of a message.
    pub fn text(&mut self, mut text: &[u8]) {
        while !text.is_empty() {
            let take = (PIECE_BYTES - self.pending.len()).min(text.len());
            self.pending.extend_from_slice(&text[..take]);
            self.bytes += take;
            text = &text[take..];
            if self.pending.len() == PIECE_BYTES {
                self.close_piece();
            }
        }
    }

    /// The chain of full pieces; the unfinished tail is not a piece.
    pub fn finish(self) -> Vec<PieceHash> {
        self.hashes
    }

    /// Text bytes fed so far, marks included.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    fn mark(&mut self, word: &str) {
        self.text(&[0]);
        self.text(word.as_bytes());
        self.text(&[0]);
    }

    fn close_piece(&mut self) {
        let own = xxh3_128_with_seed(&self.pending, self.parent as u64);
        let mut chain = Xxh3::with_seed((self.parent >> 64) as u64);
        chain.update(&own.to_le_bytes());
        chain.update(&self.parent.to_le_bytes());
        self.parent = chain.digest128();
        self.hashes.push(self.parent);
        self.pending.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn chain(texts: &[&str]) -> Vec<PieceHash> {
        let mut pieces = Pieces::new("m", "", b"");
        for text in texts {
            pieces.message("user", "", text);
        }
        pieces.finish()
    }

    #[test]
    fn a_common_start_gives_a_common_chain() {
        let long = "x".repeat(2000);
        let (a, b) = (chain(&[&long, "one"]), chain(&[&long, "two, and more"]));
        assert_eq!(a[..3], b[..3]);
    }

    #[test]
    fn model_salt_and_tools_change_every_hash() {
        let all = [("m", "", ""), ("n", "", ""), ("m", "s", ""), ("m", "", "t"), ("ms", "", "")];
        let mut seen = std::collections::BTreeSet::new();
        for (model, salt, tools) in all {
            let mut pieces = Pieces::new(model, salt, tools.as_bytes());
            pieces.text(&[b'x'; PIECE_BYTES]);
            assert!(seen.insert(pieces.finish()[0]), "{model}/{salt}/{tools}");
        }
    }

    #[test]
    fn moving_a_message_border_changes_the_chain() {
        let (a, b) = ("x".repeat(400), "x".repeat(600));
        assert_ne!(chain(&[&a, &b]), chain(&[&b, &a]));
    }

    proptest! {
        #[test]
        fn cutting_the_text_elsewhere_changes_nothing(text in "\\PC{0,3000}", cut in 0usize..3000) {
            let bytes = text.as_bytes();
            let cut = cut.min(bytes.len());
            let mut whole = Pieces::new("m", "s", b"");
            whole.text(bytes);
            let mut parts = Pieces::new("m", "s", b"");
            parts.text(&bytes[..cut]);
            parts.text(&bytes[cut..]);
            prop_assert_eq!(whole.finish(), parts.finish());
        }
    }
}
