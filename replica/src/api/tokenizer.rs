//! Text to tokens and back.
//!
//! Two algorithms behind one face: what the `tokenizers` crate runs (every `tokenizer.json`, and byte-level
//! BPE from GGUF), and SentencePiece's BPE from GGUF. Tokens go back to bytes by one table for both, so that
//! any split of an answer into tokens gives the same bytes. Knows nothing of chats.

mod byte_level;
mod decoder;
mod pieces;
mod sentencepiece;
mod splitting;
mod table;

use std::fmt;

use replica_format::gguf::Vocabulary;
use serde_json::Value;
use tokenizers::Tokenizer as Library;

use crate::weights::{Checkpoint, Error, TokenizerSource, spelling};

pub use decoder::Decoder;
use sentencepiece::SentencePiece;
use table::Table;

/// One model's tokenizer. Shared by all requests.
#[derive(Debug)]
pub struct Tokenizer {
    algorithm: Algorithm,
    table: Table,
    /// What every prompt begins with, where the model was trained so.
    bos: Option<u32>,
    /// The most bytes of text that one token can stand for, where there is such a bound.
    bytes_most: Option<usize>,
}

#[derive(Debug)]
enum Algorithm {
    Library(Box<Library>),
    SentencePiece(Box<SentencePiece>),
}

/// Why a text could not be encoded.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Unencodable(String);

impl fmt::Display for Unencodable {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "the tokenizer failed: {}", self.0)
    }
}

impl std::error::Error for Unencodable {}

impl Tokenizer {
    /// The tokenizer of a checkpoint.
    ///
    /// # Errors
    ///
    /// When it is damaged, or of a kind whose ids we could not promise.
    pub fn from_checkpoint(checkpoint: &Checkpoint) -> Result<Self, Error> {
        match &checkpoint.tokenizer {
            TokenizerSource::Json { tokenizer, config } => {
                Self::from_json(tokenizer, config).map_err(|error| error.in_file("tokenizer.json"))
            }
            TokenizerSource::Gguf(vocabulary) => {
                Self::from_vocabulary(vocabulary, checkpoint.facts.name.as_deref().unwrap_or_default())
            }
        }
    }

    /// From `tokenizer.json` and, where there is one, `tokenizer_config.json`.
    pub fn from_json(json: &[u8], config: &Value) -> Result<Self, Error> {
        let mut library = Library::from_bytes(json).map_err(|error| Error::refused(error.to_string()))?;
        // Truncation would answer another question than the one asked.
        library.with_truncation(None).map_err(|error| Error::refused(error.to_string()))?;
        library.with_padding(None);
        let table = Table::of_library(&library)?;
        let bos = match config["add_bos_token"].as_bool() {
            Some(false) => None,
            // The library's own template may be older than the setting.
            Some(true) => {
                first_special(&library).or_else(|| library.token_to_id(&spelling(&config["bos_token"])))
            }
            None => first_special(&library),
        };
        let strips = library.get_added_tokens_decoder().values().any(|token| token.lstrip || token.rstrip);
        // Normalising can make a text shorter, but not by more than this.
        let longest = table.longest() * if library.get_normalizer().is_some() { 3 } else { 1 };
        let bytes_most = Some(longest).filter(|_| !strips);
        Ok(Self { algorithm: Algorithm::Library(Box::new(library)), table, bos, bytes_most })
    }

    /// From the metadata of a GGUF file. `model_name` tells families apart whose special tokens differ.
    pub fn from_vocabulary(vocabulary: &Vocabulary, model_name: &str) -> Result<Self, Error> {
        let bos = vocabulary.bos.filter(|_| vocabulary.begins_with_bos());
        let table = Table::of_vocabulary(vocabulary);
        let longest = Some(table.longest());
        if vocabulary.model == "gpt2" {
            let algorithm = Algorithm::Library(Box::new(byte_level::build(vocabulary)?));
            return Ok(Self { algorithm, table, bos, bytes_most: longest });
        }
        let model = SentencePiece::new(vocabulary, model_name);
        let bytes_most = longest.filter(|_| !model.takes_space());
        Ok(Self { algorithm: Algorithm::SentencePiece(Box::new(model)), table, bos, bytes_most })
    }

    /// Tokens of a text. Special tokens are recognised by their spelling. With `begin` the prompt begins with
    /// exactly one beginning-of-sequence token, where the model wants one; without, the text is taken as it
    /// is (chat templates write it themselves).
    ///
    /// # Errors
    ///
    /// When a pattern of the tokenizer gives up on the text.
    pub fn encode(&self, text: &str, begin: bool) -> Result<Vec<u32>, Unencodable> {
        let mut tokens = match &self.algorithm {
            Algorithm::Library(library) => {
                let encoding =
                    library.encode_fast(text, false).map_err(|error| Unencodable(error.to_string()))?;
                encoding.get_ids().to_vec()
            }
            Algorithm::SentencePiece(model) => model.encode(text),
        };
        if let Some(bos) = self.bos.filter(|_| begin)
            && tokens.first() != Some(&bos)
        {
            tokens.insert(0, bos);
        }
        Ok(tokens)
    }

    /// A number of tokens that no text of so many bytes falls short of, where there is one: enough to refuse a
    /// text that is far too long without encoding it, which takes about a second a megabyte.
    pub fn tokens_least(&self, text_bytes: usize) -> usize {
        text_bytes / self.bytes_most.unwrap_or(usize::MAX).max(1)
    }

    /// Text of tokens, with U+FFFD for bytes that are no text. A space that the tokenizer puts before every
    /// text is taken off again.
    pub fn decode(&self, tokens: &[u32], skip_control: bool) -> String {
        let shown = tokens.iter().filter(|&&token| !(skip_control && self.is_control(token)));
        let bytes: Vec<u8> = shown.flat_map(|&token| self.token_bytes(token)).copied().collect();
        let text = String::from_utf8_lossy(&bytes);
        let text = if self.adds_space() { text.strip_prefix(' ').unwrap_or(&text) } else { &text };
        text.to_owned()
    }

    /// Decodes one answer as it grows.
    pub fn decoder(&self, skip_control: bool) -> Decoder {
        Decoder::new(skip_control)
    }

    /// The bytes a token stands for, its spelling for control tokens; none for ids without a token.
    pub fn token_bytes(&self, token: u32) -> &[u8] {
        self.table.bytes(token)
    }

    /// Whether a token steers the model and is not part of any text.
    pub fn is_control(&self, token: u32) -> bool {
        self.table.is_control(token)
    }

    /// The token with exactly this spelling.
    pub fn token(&self, spelling: &str) -> Option<u32> {
        match &self.algorithm {
            Algorithm::Library(library) => library.token_to_id(spelling),
            Algorithm::SentencePiece(model) => model.token(spelling),
        }
    }

    /// One more than the highest token.
    pub fn len(&self) -> usize {
        self.table.len()
    }

    /// Whether there is no token at all.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The token every prompt begins with.
    pub fn bos(&self) -> Option<u32> {
        self.bos
    }

    fn adds_space(&self) -> bool {
        match &self.algorithm {
            Algorithm::Library(_) => self.table.strips_space(),
            Algorithm::SentencePiece(model) => model.adds_space(),
        }
    }
}

/// The token that the tokenizer's own template puts before a text.
fn first_special(library: &Library) -> Option<u32> {
    library.encode_fast("", true).ok()?.get_ids().first().copied()
}

#[cfg(test)]
mod tests;
