//! What segments and answers are made of in the simulation: token ids, and four bytes of text a token.

use shared::id::BlockHash;
use shared::prefix::{PIECE_BYTES, PieceHash, Pieces};

use crate::workload::Segment;

/// Bytes of text that a token stands for.
pub const TOKEN_BYTES: usize = 4;

/// Tokens under one piece of prompt text.
pub const PIECE_TOKENS: usize = PIECE_BYTES / TOKEN_BYTES;

/// The seed of every chain of block hashes: there is one model and one tenant.
pub const CHAIN_SEED: BlockHash = BlockHash(1);

/// Appends a segment's tokens.
pub fn extend(tokens: &mut Vec<u32>, segment: Segment) {
    let base = mix(segment.id);
    tokens.extend((0..u64::from(segment.tokens)).map(|index| mix(base + index) as u32));
}

/// Names a prompt: answers depend on all of it.
pub fn name(prompt: &[u32]) -> u64 {
    prompt.iter().fold(prompt.len() as u64, |name, &token| mix(name ^ u64::from(token)))
}

/// The fake model: token `index` of the answer to the prompt of this name.
pub fn answer_token(name: u64, index: u32) -> u32 {
    mix(name.wrapping_add(u64::from(index))) as u32
}

/// The prompt's text as a chain of pieces.
pub fn pieces(prompt: &[u32], scratch: &mut Vec<u8>) -> Vec<PieceHash> {
    scratch.clear();
    scratch.extend(prompt.iter().flat_map(|token| token.to_le_bytes()));
    let mut pieces = Pieces::new("m", "", b"");
    pieces.text(scratch);
    pieces.finish()
}

/// Spreads the bits of a number (the finish of `SplitMix64`).
pub fn mix(value: u64) -> u64 {
    let value = value.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let value = (value ^ (value >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let value = (value ^ (value >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    value ^ (value >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_starts_have_equal_pieces() {
        let prompt = |last| {
            let mut tokens = Vec::new();
            extend(&mut tokens, Segment { id: 1, tokens: 300 });
            extend(&mut tokens, Segment { id: last, tokens: 300 });
            tokens
        };
        let (a, b) = (pieces(&prompt(2), &mut Vec::new()), pieces(&prompt(3), &mut Vec::new()));
        assert_eq!((a.len(), b.len()), (600 / PIECE_TOKENS, 600 / PIECE_TOKENS));
        assert_eq!(a[..2], b[..2]);
        assert_ne!(a[2], b[2]);
    }
}
