//! The same tokens as Hugging Face transformers, from the same f32 weights: see `tests/reference/record_greedy.py`.
//!
//! Needs the default model, which `flotilla model fetch` puts in the user's cache; says so when it isn't there.

use std::cell::Cell;
use std::path::PathBuf;
use std::sync::Arc;

use replica::engine::{Options, Source};
use replica::kernel::{Device, KvKind, KvLayer, KvShape};
use replica::model::{Blueprint, Decoder, Loader, Model as _, Precision, Split, blueprint};
use replica::parallel::Alone;
use replica::weights::Checkpoint;
use replica_core::batch::{Batch, BlockId, Output, Share};
use replica_core::sequence::Request;
use serde::Deserialize;
use sha2::{Digest as _, Sha256};
use shared::id::SequenceId;

use crate::support::{Rig, options};

/// Two best logits nearer than this may change places.
const TIE: f32 = 1e-3;
/// Largest difference of a first-step logit.
const LOGIT: f32 = 1e-3;

#[derive(Deserialize)]
struct Reference {
    model_sha256: String,
    cases: Vec<Case>,
}

#[derive(Deserialize)]
struct Case {
    name: String,
    prompt_ids: Vec<u32>,
    answer_ids: Vec<u32>,
    first_logits: Logits,
    gaps: Vec<f32>,
}

#[derive(Deserialize)]
struct Logits {
    ids: Vec<u32>,
    values: Vec<f32>,
}

/// The recording and the model it was made with, or nothing where that model isn't here.
fn reference(test: &str) -> Option<(Reference, Arc<Checkpoint>)> {
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
    let sum = Sha256::digest(std::fs::read(&path).unwrap());
    let sum: String = sum.iter().map(|byte| format!("{byte:02x}")).collect();
    assert_eq!(sum, reference.model_sha256, "{}: not the model of the recording", path.display());
    Some((reference, Arc::new(Checkpoint::open(&path).unwrap())))
}

fn exact(checkpoint: &Arc<Checkpoint>) -> Options {
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
    let device = Device::cpu(2);
    let plan: Blueprint = blueprint(&checkpoint.facts);
    let loader = Loader {
        checkpoint: &checkpoint,
        device: &device,
        precision: Precision::F32,
        split: Split::WHOLE,
        progress: &|_| (),
        held_bytes: Cell::new(0),
    };
    let mut decoder = Decoder::load(&loader, &plan, 8192).unwrap();
    let mut kv = pool(&device, &checkpoint);
    let mut largest: f32 = 0.0;
    for case in &reference.cases {
        let output = decoder.forward(&whole_prompt(&case.prompt_ids), &mut kv, &mut Alone).unwrap();
        let logits = output.logits().unwrap();
        let row = logits.iter().next().unwrap();
        for (&id, &theirs) in case.first_logits.ids.iter().zip(&case.first_logits.values) {
            let difference = (row[id as usize] - theirs).abs();
            assert!(
                difference < LOGIT,
                "{}: the logit of {id} is {} and should be {theirs}",
                case.name,
                row[id as usize]
            );
            largest = largest.max(difference);
        }
    }
    eprintln!("largest difference of a first logit: {largest}");
}

const BLOCK_TOKENS: usize = 32;
const BLOCKS: usize = 64;

fn pool(device: &Device, checkpoint: &Checkpoint) -> Vec<KvLayer> {
    let shape = KvShape {
        kind: KvKind::F32,
        blocks: BLOCKS,
        block_tokens: BLOCK_TOKENS,
        kv_heads: checkpoint.facts.kv_heads as usize,
        head_dim: checkpoint.facts.head_dim as usize,
    };
    (0..checkpoint.facts.layers).map(|_| device.kv_layer(shape).unwrap()).collect()
}

/// All of a prompt in one step, in blocks that don't lie in order.
fn whole_prompt(tokens: &[u32]) -> Batch {
    let block = |index: usize| (index * 37 + 5) % BLOCKS;
    let slot = |position: usize| block(position / BLOCK_TOKENS) * BLOCK_TOKENS + position % BLOCK_TOKENS;
    let blocks = tokens.len().div_ceil(BLOCK_TOKENS);
    Batch {
        tokens: tokens.to_vec(),
        positions: (0..tokens.len() as u32).collect(),
        slots: (0..tokens.len()).map(|position| slot(position) as u32).collect(),
        shares: vec![Share {
            sequence: SequenceId(0),
            rows: 0..tokens.len(),
            table: 0..blocks,
            output: Output::Last,
        }],
        tables: (0..blocks).map(|index| BlockId(block(index) as u32)).collect(),
    }
}
