//! Token to bytes: one flat table, made once.

use replica_format::gguf::{TokenType, Vocabulary};
use serde_json::Value;
use tokenizers::Tokenizer as Library;

use crate::weights::Error;

use super::pieces;

/// Bytes of every token, end to end.
#[derive(Debug, Default)]
pub struct Table {
    bytes: Vec<u8>,
    /// Where each token ends.
    ends: Vec<usize>,
    control: Vec<bool>,
    strips_space: bool,
}

/// How a `tokenizer.json` turns tokens back to text, by its decoder.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Spelling {
    ByteLevel,
    SentencePiece { strips_space: bool },
}

impl Table {
    /// Of a GGUF file's tokens.
    pub fn of_vocabulary(vocabulary: &Vocabulary) -> Self {
        let byte_level = vocabulary.model == "gpt2";
        let mut table = Self::default();
        for (spelling, &kind) in vocabulary.tokens.iter().zip(&vocabulary.types) {
            let bytes = match kind {
                TokenType::Control | TokenType::UserDefined | TokenType::Unknown if byte_level => {
                    spelling.clone().into_bytes()
                }
                TokenType::Byte => pieces::byte_token(spelling).map_or_else(Vec::new, |byte| vec![byte]),
                _ if byte_level => pieces::byte_level(spelling),
                _ => pieces::sentence_piece(spelling),
            };
            table.push(&bytes, matches!(kind, TokenType::Control | TokenType::Unknown));
        }
        table
    }

    /// Of a `tokenizer.json`.
    ///
    /// # Errors
    ///
    /// When its decoder is one we do not know.
    pub fn of_library(library: &Library) -> Result<Self, Error> {
        let spelling = spelling(library)?;
        let added = library.get_added_tokens_decoder();
        let count = library.get_vocab(true).values().max().map_or(0, |&last| last + 1);
        let mut table = Self {
            strips_space: spelling == Spelling::SentencePiece { strips_space: true },
            ..Self::default()
        };
        for token in 0..count {
            if let Some(added) = added.get(&token) {
                table.push(added.content.as_bytes(), added.special);
                continue;
            }
            let text = library.id_to_token(token).unwrap_or_default();
            let bytes = match (spelling, pieces::byte_token(&text)) {
                (Spelling::ByteLevel, _) => pieces::byte_level(&text),
                (Spelling::SentencePiece { .. }, Some(byte)) => vec![byte],
                (Spelling::SentencePiece { .. }, None) => pieces::sentence_piece(&text),
            };
            table.push(&bytes, false);
        }
        Ok(table)
    }

    fn push(&mut self, bytes: &[u8], control: bool) {
        self.bytes.extend_from_slice(bytes);
        self.ends.push(self.bytes.len());
        self.control.push(control);
    }

    pub fn bytes(&self, token: u32) -> &[u8] {
        let token = token as usize;
        let Some(&end) = self.ends.get(token) else { return &[] };
        let start = if token == 0 { 0 } else { self.ends[token - 1] };
        &self.bytes[start..end]
    }

    /// Bytes of the longest token.
    pub fn longest(&self) -> usize {
        self.ends.iter().scan(0, |start, &end| Some(end - std::mem::replace(start, end))).max().unwrap_or(0)
    }

    pub fn is_control(&self, token: u32) -> bool {
        self.control.get(token as usize).copied().unwrap_or(false)
    }

    pub fn len(&self) -> usize {
        self.ends.len()
    }

    /// Whether decoding takes off the space that encoding puts before every text.
    pub fn strips_space(&self) -> bool {
        self.strips_space
    }
}

/// Reads the decoder's description; its parts are named in JSON alone.
fn spelling(library: &Library) -> Result<Spelling, Error> {
    let decoder = serde_json::to_value(library.get_decoder()).unwrap_or_default();
    let one = std::slice::from_ref(&decoder);
    let steps = decoder["decoders"].as_array().map_or(one, Vec::as_slice);
    let is = |kind: &str| steps.iter().any(|step| step["type"] == kind);
    if is("ByteLevel") {
        return Ok(Spelling::ByteLevel);
    }
    if is("ByteFallback") || is("Metaspace") {
        let metaspace = |step: &Value| step["type"] == "Metaspace" && step["prepend_scheme"] != "never";
        let strips_space = is("Strip") || steps.iter().any(metaspace);
        return Ok(Spelling::SentencePiece { strips_space });
    }
    let kind = decoder["type"].as_str().unwrap_or("none");
    Err(Error::at("decoder", format!("`{kind}` is not supported; byte-level and SentencePiece's are")))
}
