//! Where the pieces of a request's text landed in its prompt: the block that each one ends in.
//!
//! Pieces are what a gateway routes by; blocks are what is cached. A piece that a template rewrote is not found
//! and not told: that costs a gateway a guess, never anybody a right answer.

use replica_core::prefix_cache::extend_chain;
use serde_json::Value;
use shared::id::BlockHash;
use shared::prefix::{PIECE_BYTES, PieceHash, Pieces};

use super::tokenizer::Tokenizer;
use crate::config::BLOCK_TOKENS;

/// A piece, and the block that must be cached for it.
pub type Landed = (BlockHash, PieceHash);

/// One stretch of text: where it begins among the bytes of pieces, where in the prompt, and its length.
#[derive(Clone, Copy, Debug)]
struct Stretch {
    fed: usize,
    rendered: usize,
    bytes: usize,
}

/// A request's text on its way into pieces.
#[derive(Debug)]
pub struct Landing {
    pieces: Pieces,
    stretches: Vec<Stretch>,
}

impl Landing {
    /// Of a request under one model, salt and tools (as they were sent).
    pub fn new(model: &str, salt: &str, tools: &[u8]) -> Self {
        Self { pieces: Pieces::new(model, salt, tools), stretches: Vec::new() }
    }

    /// A completion's prompt.
    #[must_use]
    pub fn of_text(mut self, text: &str) -> Self {
        self.stretches.push(Stretch { fed: 0, rendered: 0, bytes: text.len() });
        self.pieces.text(text.as_bytes());
        self
    }

    /// A chat's messages, as they were sent, and what the template made of them.
    #[must_use]
    pub fn of_chat(mut self, messages: &[Value], rendered: &str) -> Self {
        let mut from = Some(0);
        for message in messages {
            let text = |name: &str| message[name].as_str().unwrap_or_default();
            self.pieces.begin_message(text("role"), text("name"));
            for part in parts(&message["content"]) {
                let fed = self.pieces.bytes();
                self.pieces.text(part.as_bytes());
                let found = from.and_then(|from| Some(from + rendered[from..].find(part)?));
                self.stretches.extend(found.map(|rendered| Stretch { fed, rendered, bytes: part.len() }));
                from = found.map(|found| found + part.len());
            }
            self.pieces.end_message();
        }
        self
    }

    /// The pieces that end in a full block of `tokens`.
    pub fn blocks(self, seed: BlockHash, tokens: &[u32], tokenizer: &Tokenizer) -> Vec<Landed> {
        let mut chain = Vec::new();
        extend_chain(&mut chain, seed, tokens, BLOCK_TOKENS);
        // Bytes of the prompt up to the end of each block.
        let lengths = tokens.chunks_exact(BLOCK_TOKENS as usize).scan(0, |bytes, block| {
            *bytes += block.iter().map(|&token| tokenizer.token_bytes(token).len()).sum::<usize>();
            Some(*bytes)
        });
        let ends: Vec<usize> = lengths.collect();
        let stretches = self.stretches;
        let pieces = self.pieces.finish();
        let landed = pieces.into_iter().enumerate().map_while(|(index, piece)| {
            let end = rendered_end(&stretches, (index + 1) * PIECE_BYTES)?;
            let block = ends.partition_point(|&bytes| bytes < end);
            Some((*chain.get(block)?, piece))
        });
        landed.collect()
    }
}

/// Where byte `fed` of the pieces' text is in the prompt; for the marks between messages, the end of the text
/// before them.
fn rendered_end(stretches: &[Stretch], fed: usize) -> Option<usize> {
    let stretch = stretches[..stretches.partition_point(|stretch| stretch.fed < fed)].last()?;
    let is_last = stretches.last().is_some_and(|last| last.fed == stretch.fed);
    // Past the last stretch that was found nothing is known but the marks that follow it.
    let marks = 2;
    if is_last && fed > stretch.fed + stretch.bytes + marks {
        return None;
    }
    Some(stretch.rendered + (fed - stretch.fed).min(stretch.bytes))
}

fn parts(content: &Value) -> Vec<&str> {
    match content {
        Value::String(text) => vec![text],
        Value::Array(parts) => parts.iter().filter_map(|part| part["text"].as_str()).collect(),
        _ => Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::model::fake;

    fn tokenizer() -> Tokenizer {
        Tokenizer::from_json(fake::tokenizer_json().as_bytes(), &Value::Null).unwrap()
    }

    /// Blocks (by their place in the prompt) that the pieces end in.
    fn check(landing: Landing, prompt: &str, expected: &[usize]) {
        let tokenizer = tokenizer();
        let tokens = tokenizer.encode(prompt, false).unwrap();
        let mut chain = Vec::new();
        extend_chain(&mut chain, BlockHash(7), &tokens, BLOCK_TOKENS);
        let landed = landing.blocks(BlockHash(7), &tokens, &tokenizer);
        let blocks: Vec<_> =
            landed.iter().map(|(block, _)| chain.iter().position(|hash| hash == block).unwrap()).collect();
        assert_eq!(blocks, expected);
    }

    #[test]
    fn pieces_of_plain_text_end_where_they_are_cut() {
        // A byte is a token: 512 of them are 16 blocks.
        let text = "x".repeat(1100);
        check(Landing::new("m", "", b"").of_text(&text), &text, &[15, 31]);
    }

    #[test]
    fn pieces_of_a_chat_are_found_where_the_template_put_them() {
        let messages = [
            json!({"role": "system", "content": "s".repeat(600)}),
            json!({"role": "user", "content": "u".repeat(600)}),
        ];
        let rendered = format!("<|system|>{}<|end|><|user|>{}<|end|>", "s".repeat(600), "u".repeat(600));
        // The first piece ends after 502 letters of the first text: 10 bytes of marks were before it, and one
        // token is before it in the prompt.
        check(Landing::new("m", "", b"").of_chat(&messages, &rendered), &rendered, &[15, 31]);
    }

    #[test]
    fn a_text_that_the_template_rewrote_ends_what_is_told() {
        let messages = [
            json!({"role": "system", "content": "S".repeat(600)}),
            json!({"role": "user", "content": "u".repeat(600)}),
        ];
        let rendered = format!("{}{}", "s".repeat(600), "u".repeat(600));
        check(Landing::new("m", "", b"").of_chat(&messages, &rendered), &rendered, &[]);
    }
}
