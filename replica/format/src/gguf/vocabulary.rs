//! The tokenizer that a GGUF file carries.

use crate::Error;

use super::metadata::{Array, Metadata};

/// What a token is for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum TokenType {
    /// Text.
    Normal,
    /// Stands for what no token spells.
    Unknown,
    /// Steers the model; never shown.
    Control,
    /// Text that is always one token.
    UserDefined,
    /// A hole in the numbering.
    Unused,
    /// One byte, spelled `<0x0A>`.
    Byte,
}

/// Tokens, and how text becomes them.
#[derive(Clone, PartialEq, Debug)]
pub struct Vocabulary {
    /// The algorithm: `gpt2` (byte-level BPE) or `llama` (SentencePiece's BPE).
    pub model: String,
    /// How text is split before BPE, by llama.cpp's name. Absent in old files.
    pub pre: Option<String>,
    /// Spelling of each token.
    pub tokens: Vec<String>,
    /// Kind of each token.
    pub types: Vec<TokenType>,
    /// Score of each token (`llama` only, else empty).
    pub scores: Vec<f32>,
    /// Pairs in the order they merge, two spellings with a space between (`gpt2` only).
    pub merges: Vec<String>,
    /// Beginning of a sequence.
    pub bos: Option<u32>,
    /// End of a sequence.
    pub eos: Option<u32>,
    /// Whether a prompt begins with `bos`; the algorithm's default where the file is silent.
    pub add_bos: Option<bool>,
    /// Whether text gets a space in front (`llama` only).
    pub add_space_prefix: Option<bool>,
    /// Stands for what no token spells.
    pub unknown: Option<u32>,
}

impl Vocabulary {
    pub(super) fn read(metadata: &Metadata<'_>) -> Result<Self, Error> {
        const MODEL: &str = "tokenizer.ggml.model";
        let model = metadata.text(MODEL)?.filter(|model| !matches!(*model, "none" | "no_vocab"));
        let model = model.ok_or_else(|| Error::at(MODEL, "the file has no tokenizer"))?;
        if !matches!(model, "gpt2" | "llama") {
            return Err(Error::at(
                MODEL,
                format!("the tokenizer `{model}` is not supported; gpt2 and llama are"),
            ));
        }
        let tokens = texts(metadata, "tokenizer.ggml.tokens")?;
        if tokens.is_empty() {
            return Err(Error::at("tokenizer.ggml.tokens", "the file has no tokenizer"));
        }
        let vocabulary = Self {
            types: types(metadata, tokens.len())?,
            scores: if model == "llama" { scores(metadata, tokens.len())? } else { Vec::new() },
            merges: if model == "gpt2" { texts(metadata, "tokenizer.ggml.merges")? } else { Vec::new() },
            model: model.to_owned(),
            pre: metadata.text("tokenizer.ggml.pre")?.map(ToOwned::to_owned),
            bos: id(metadata, "tokenizer.ggml.bos_token_id", tokens.len())?,
            eos: id(metadata, "tokenizer.ggml.eos_token_id", tokens.len())?,
            unknown: id(metadata, "tokenizer.ggml.unknown_token_id", tokens.len())?,
            add_bos: metadata.flag("tokenizer.ggml.add_bos_token")?,
            add_space_prefix: metadata.flag("tokenizer.ggml.add_space_prefix")?,
            tokens,
        };
        if model == "gpt2" && vocabulary.merges.is_empty() {
            return Err(Error::at(
                "tokenizer.ggml.merges",
                "a gpt2 tokenizer needs merges and the file has none",
            ));
        }
        Ok(vocabulary)
    }

    /// Whether a prompt begins with `bos`: what the file says, else llama.cpp's default for the algorithm.
    pub fn begins_with_bos(&self) -> bool {
        let pre = self.pre.as_deref().unwrap_or_default();
        let bpe_default =
            matches!(pre, "llama3" | "llama-v3" | "llama-bpe" | "falcon3" | "pixtral" | "tekken");
        self.add_bos.unwrap_or(self.model == "llama" || bpe_default)
    }
}

fn texts(metadata: &Metadata<'_>, key: &str) -> Result<Vec<String>, Error> {
    match metadata.array(key)? {
        Some(Array::Texts(texts)) => Ok(texts.iter().map(|&text| text.to_owned()).collect()),
        Some(_) => Err(Error::at(key, "should be a list of texts")),
        None => Ok(Vec::new()),
    }
}

fn types(metadata: &Metadata<'_>, tokens: usize) -> Result<Vec<TokenType>, Error> {
    const KEY: &str = "tokenizer.ggml.token_type";
    let Some(array) = metadata.array(KEY)? else { return Ok(vec![TokenType::Normal; tokens]) };
    let Array::Integers(numbers) = array else { return Err(Error::at(KEY, "should be a list of numbers")) };
    same_length(KEY, numbers.len(), tokens)?;
    Ok(numbers
        .iter()
        .map(|number| match number {
            2 => TokenType::Unknown,
            3 => TokenType::Control,
            4 => TokenType::UserDefined,
            5 => TokenType::Unused,
            6 => TokenType::Byte,
            _ => TokenType::Normal,
        })
        .collect())
}

fn scores(metadata: &Metadata<'_>, tokens: usize) -> Result<Vec<f32>, Error> {
    const KEY: &str = "tokenizer.ggml.scores";
    match metadata.array(KEY)? {
        Some(Array::Floats(scores)) => {
            same_length(KEY, scores.len(), tokens)?;
            Ok(scores.clone())
        }
        Some(_) => Err(Error::at(KEY, "should be a list of floats")),
        None => Err(Error::at(KEY, "a llama tokenizer needs scores and the file has none")),
    }
}

fn same_length(key: &str, found: usize, tokens: usize) -> Result<(), Error> {
    if found == tokens {
        return Ok(());
    }
    Err(Error::at(key, format!("has {found} entries for {tokens} tokens")))
}

/// A token id. Out of range reads as absent where llama.cpp ignores it too, which old files rely on.
fn id(metadata: &Metadata<'_>, key: &str, tokens: usize) -> Result<Option<u32>, Error> {
    Ok(metadata.u32(key)?.filter(|&id| (id as usize) < tokens))
}
