//! The same tokens as Hugging Face transformers, from the same f32 weights: see `tests/reference/record_greedy.py`.
//!
//! Needs the default model, which `flotilla model fetch` puts in the user's cache; says so when it isn't there.

use std::path::PathBuf;
use std::sync::Arc;

use replica::engine::{Options, Source};
use replica::model::Precision;
use replica::weights::Checkpoint;
use replica_core::sequence::Request;
use serde::Deserialize;
use sha2::{Digest as _, Sha256};

use crate::forward::Forward;
use crate::support::{Rig, options};

/// Two best logits nearer than this may change places.
const TIE: f32 = 1e-3;
/// Largest difference of a first-step logit.
const LOGIT: f32 = 1e-3;

#[derive(Deserialize)]
pub struct Reference {
    model_sha256: String,
    pub cases: Vec<Case>,
}

#[derive(Deserialize)]
pub struct Case {
    name: String,
    pub prompt_ids: Vec<u32>,
    answer_ids: Vec<u32>,
    pub first_logits: Logits,
    gaps: Vec<f32>,
}

#[derive(Deserialize)]
pub struct Logits {
    ids: Vec<u32>,
    values: Vec<f32>,
}

impl Logits {
    /// Pairs of our logit and the recorded one.
    pub fn of(&self, ours: &[f32]) -> impl Iterator<Item = (f32, f32)> {
        self.ids.iter().zip(&self.values).map(|(&id, &theirs)| (ours[id as usize], theirs))
    }
}

/// The recording and the model it was made with, or nothing where that model isn't here.
pub fn reference(test: &str) -> Option<(Reference, Arc<Checkpoint>)> {
    let given = std::env::var_os("FLOTILLA_TEST_MODEL").map(PathBuf::from);
    let cached = || {
        let home = std::env::home_dir()?;
        Some(home.join(".cache/flotilla/models/SmolLM2-135M-Instruct.Q4_1.gguf"))
    };
    let Some(path) = given.or_else(cached).filter(|path| path.exists()) else {
        eprintln!(
            "SKIPPED {test}: no SmolLM2-135M-Instruct.Q4_1.gguf (flotilla model fetch, FLOTILLA_TEST_MODEL)"
        );
        return None;
    };
    let reference: Reference = serde_json::from_str(include_str!("../reference/greedy.json")).unwrap();
    let sum = format!("{:x}", Sha256::digest(std::fs::read(&path).unwrap()));
    assert_eq!(sum, reference.model_sha256, "{}: not the model of the recording", path.display());
    Some((reference, Arc::new(Checkpoint::open(&path).unwrap())))
}

/// Exact arithmetic, with room for every case at once.
pub fn exact(checkpoint: &Arc<Checkpoint>) -> Options {
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let source = Source::Checkpoint(Arc::clone(checkpoint));
    Options { source, threads, running_max: 16, kv_bytes: 2 << 30, ..options() }
}

// U042
#[test]
fn greedy_answers_equal_those_of_transformers_alone_and_batched() {
    let Some((reference, checkpoint)) = reference("greedy_answers_equal_those_of_transformers") else {
        return;
    };
    let rig = Rig::new(exact(&checkpoint));
    let ask = |case: &Case| {
        let request = rig.request(&case.prompt_ids, case.answer_ids.len() as u32);
        rig.submit(Request { stop_tokens: Vec::new(), ..request })
    };
    let clients: Vec<_> = reference.cases.iter().map(ask).collect();
    let batched: Vec<_> = clients.into_iter().map(|client| client.finish().tokens()).collect();
    for (case, answer) in reference.cases.iter().zip(&batched) {
        compare(case, answer);
    }
    for (case, answer) in reference.cases.iter().zip(&batched) {
        if case.prompt_ids.len() < 64 {
            assert_eq!(ask(case).finish().tokens(), *answer, "{}: alone and warm", case.name);
        }
    }
}

/// Equal, but for what follows a near-tie.
fn compare(case: &Case, answer: &[u32]) {
    assert_eq!(answer.len(), case.answer_ids.len(), "{}", case.name);
    let differs = answer.iter().zip(&case.answer_ids).position(|(ours, theirs)| ours != theirs);
    if let Some(place) = differs {
        let gap = case.gaps[place];
        assert!(gap < TIE, "{}: token {place} differs, and the two best lie {gap} apart", case.name);
        eprintln!("NEAR-TIE {}: token {place}, the two best lie {gap} apart", case.name);
    }
}

#[test]
fn first_logits_equal_those_of_transformers() {
    let Some((reference, checkpoint)) = reference("first_logits_equal_those_of_transformers") else { return };
    let mut forward = Forward::new(&checkpoint, Precision::F32, 1);
    let mut largest: f32 = 0.0;
    for case in &reference.cases {
        let logits = forward.last_logits(&case.prompt_ids);
        for (ours, theirs) in case.first_logits.of(&logits) {
            let difference = (ours - theirs).abs();
            assert!(difference < LOGIT, "{}: a logit is {ours} and should be {theirs}", case.name);
            largest = largest.max(difference);
        }
    }
    eprintln!("largest difference of a first logit: {largest}");
}

// U042: the file's own bits have a law of their own, and keep it.
#[test]
fn quantised_answers_are_the_same_alone_batched_and_warm() {
    let Some((reference, checkpoint)) = reference("quantised_answers_are_the_same") else { return };
    let rig = Rig::new(Options { precision: Precision::Kept, kv_kind: None, ..exact(&checkpoint) });
    let prompts: Vec<_> = reference.cases.iter().map(|case| case.prompt_ids.clone()).collect();
    let prompts: Vec<_> = prompts.into_iter().filter(|prompt| prompt.len() < 100).take(12).collect();
    let together = rig.together(&prompts, 16);
    assert_eq!(rig.in_turn(&prompts, 16), together);
}
