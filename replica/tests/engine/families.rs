//! Every family against transformers, on tiny random checkpoints: `reference/make_tiny.py` made them.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use replica::model::Precision;
use replica::weights::Checkpoint;
use serde::Deserialize;

use crate::forward::Forward;

const LOGIT: f32 = 1e-3;
const TIE: f32 = 1e-3;

#[derive(Deserialize)]
struct Recorded {
    prompt: Vec<u32>,
    /// Every which logit was kept.
    logit_stride: usize,
    /// The last logits after so many tokens.
    logits: BTreeMap<String, Vec<f32>>,
    greedy_prompt: usize,
    #[serde(default)]
    greedy: Vec<u32>,
    /// How far apart the two best logits lay at each greedy token.
    #[serde(default)]
    gaps: Vec<f32>,
}

/// Holds the folder, and its GGUF twin where there is one, against the recording.
fn check(name: &str) {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/reference/tiny").join(name);
    let recorded = std::fs::read(folder.join("recorded.json")).unwrap();
    let recorded: Recorded = serde_json::from_slice(&recorded).unwrap();
    let twin = folder.join("model.gguf");
    for path in [folder, twin].iter().filter(|path| path.exists()) {
        let checkpoint = Arc::new(Checkpoint::open(path).unwrap());
        assert_eq!(checkpoint.warnings, [""; 0], "{}", path.display());
        let mut forward = Forward::new(&checkpoint, Precision::F32, 1);
        for (length, expected) in &recorded.logits {
            let length: usize = length.parse().unwrap();
            let logits = forward.last_logits(&recorded.prompt[..length]);
            let kept = logits.iter().step_by(recorded.logit_stride);
            let largest = kept.zip(expected).map(|(ours, theirs)| (ours - theirs).abs()).fold(0.0, f32::max);
            assert!(
                largest < LOGIT,
                "{}: a logit after {length} tokens differs by {largest}",
                path.display()
            );
        }
        let answer = forward.greedy(&recorded.prompt[..recorded.greedy_prompt], recorded.greedy.len());
        let differs = answer.iter().zip(&recorded.greedy).position(|(ours, theirs)| ours != theirs);
        let clear = differs.filter(|&place| recorded.gaps[place] >= TIE);
        assert_eq!(clear, None, "{}: {answer:?} instead of {:?}", path.display(), recorded.greedy);
    }
}

macro_rules! families {
    ($($name:ident),* $(,)?) => {
        $(
            #[test]
            fn $name() {
                check(stringify!($name));
            }
        )*
    };
}

families!(
    llama,
    llama_biases,
    llama_linear,
    llama_dynamic,
    llama_bands,
    mistral,
    smollm3,
    qwen2,
    qwen2_window,
    qwen2_yarn,
    qwen3,
    qwen3_moe,
    mixtral,
    gemma2,
    gemma3,
    phi3,
    phi3_long,
);
