//! Byte-level BPE from a GGUF file's metadata, built for the `tokenizers` crate.

use replica_format::gguf::{TokenType, Vocabulary};
use tokenizers::models::bpe::{BPE, Vocab};
use tokenizers::pre_tokenizers::PreTokenizerWrapper;
use tokenizers::pre_tokenizers::byte_level::ByteLevel;
use tokenizers::pre_tokenizers::sequence::Sequence;
use tokenizers::pre_tokenizers::split::{Split, SplitPattern};
use tokenizers::{AddedToken, SplitDelimiterBehavior, Tokenizer};

use crate::weights::Error;

const GPT2: &str = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+";
const LLAMA3: &str = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";
const QWEN2: &str = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";
const GPT4O: &str = r"[^\r\n\p{L}\p{N}]?(?:(?=[\p{L}])[^a-z])*(?:(?=[\p{L}])[^A-Z])+(?:'[sS]|'[tT]|'[rR][eE]|'[vV][eE]|'[mM]|'[lL][lL]|'[dD])?|[^\r\n\p{L}\p{N}]?(?:(?=[\p{L}])[^a-z])+(?:(?=[\p{L}])[^A-Z])*(?:'[sS]|'[tT]|'[rR][eE]|'[vV][eE]|'[mM]|'[lL][lL]|'[dD])?|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+";
const TEKKEN: &str = r"[^\r\n\p{L}\p{N}]?(?:(?=[\p{L}])[^a-z])*(?:(?=[\p{L}])[^A-Z])+|[^\r\n\p{L}\p{N}]?(?:(?=[\p{L}])[^a-z])+(?:(?=[\p{L}])[^A-Z])*|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+";

/// How a text is cut into words before merging, by the name llama.cpp gave it.
struct Cut {
    /// Each pattern cuts the pieces that the one before left.
    patterns: &'static [&'static str],
    /// A word that is a token is that token, whatever the merges say.
    ignores_merges: bool,
}

/// Builds the tokenizer.
///
/// # Errors
///
/// When the file's way of cutting words is unknown, or merges and tokens disagree.
pub fn build(vocabulary: &Vocabulary) -> Result<Tokenizer, Error> {
    let cut = cut(vocabulary.pre.as_deref())?;
    let refuse = |error: tokenizers::Error| Error::at("tokenizer.ggml.merges", error);
    let tokens: Vocab = vocabulary.tokens.iter().cloned().zip(0..).collect();
    let bpe = BPE::builder()
        .vocab_and_merges(tokens, merges(vocabulary)?)
        .ignore_merges(cut.ignores_merges)
        .build()
        .map_err(refuse)?;
    let mut tokenizer = Tokenizer::new(bpe);
    tokenizer.with_pre_tokenizer(Some(words(&cut)?));
    let whole = vocabulary.tokens.iter().zip(&vocabulary.types).filter_map(|(spelling, kind)| match kind {
        TokenType::Control | TokenType::Unknown => Some(AddedToken::from(spelling.clone(), true)),
        TokenType::UserDefined => Some(AddedToken::from(spelling.clone(), false).normalized(false)),
        _ => None,
    });
    tokenizer.add_tokens(whole.filter(|token| !token.content.is_empty())).map_err(refuse)?;
    Ok(tokenizer)
}

fn cut(pre: Option<&str>) -> Result<Cut, Error> {
    let (patterns, ignores_merges): (&[&str], bool) = match pre.unwrap_or("default") {
        "default" => (&[r"[\p{P}\$\+<=>\^~\|]+", GPT2, r"\p{N}+", "[0-9][0-9][0-9]"], false),
        "gpt-2" | "gpt2" | "phi-2" | "olmo" | "mpt" => (&[GPT2], false),
        "smollm" | "starcoder" | "refact" | "command-r" => (&[r"\p{N}", GPT2], false),
        "llama3" | "llama-v3" | "llama-bpe" | "falcon3" | "pixtral" => (&[LLAMA3], true),
        "dbrx" | "smaug-bpe" => (&[LLAMA3], false),
        "qwen2" | "deepseek-r1-qwen" | "stablelm2" => (&[QWEN2], false),
        "gpt-4o" => (&[GPT4O], false),
        "tekken" => (&[TEKKEN], true),
        other => {
            let reason = format!("words cut as `{other}` are not supported");
            return Err(Error::at("tokenizer.ggml.pre", reason));
        }
    };
    Ok(Cut { patterns, ignores_merges })
}

fn merges(vocabulary: &Vocabulary) -> Result<Vec<(String, String)>, Error> {
    let pair = |merge: &String| {
        // A token may begin with a space of its own only in damaged files: GPT-2's alphabet has none.
        let (left, right) = merge.split_once(' ')?;
        Some((left.to_owned(), right.to_owned()))
    };
    let refuse = |merge: &String| Error::at("tokenizer.ggml.merges", format!("`{merge}` is not two tokens"));
    vocabulary.merges.iter().map(|merge| pair(merge).ok_or_else(|| refuse(merge))).collect()
}

fn words(cut: &Cut) -> Result<PreTokenizerWrapper, Error> {
    let mut steps = Vec::new();
    for pattern in cut.patterns {
        let pattern = SplitPattern::Regex((*pattern).to_owned());
        let split = Split::new(pattern, SplitDelimiterBehavior::Isolated, false);
        steps.push(split.map_err(|error| Error::at("tokenizer.ggml.pre", error))?.into());
    }
    steps.push(ByteLevel::new(false, false, false).into());
    Ok(Sequence::new(steps).into())
}
