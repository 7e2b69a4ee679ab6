//! What the file's own bits cost against exact arithmetic on the same weights.

use std::sync::Arc;

use replica::engine::Options;
use replica::model::Precision;
use replica::weights::Checkpoint;
use replica_core::sequence::{Request, Wants};

use crate::forward::Forward;
use crate::reference_greedy::{exact, reference};
use crate::support::Rig;

/// Largest change of perplexity, as a share of it.
const PERPLEXITY: f64 = 0.001;
/// Largest change of a likely token's logit; the likely ones lie about 20 above the mean.
const LOGIT: f32 = 0.05;

/// Perplexity of texts: e to the mean negative log-probability of every token that has one before it.
fn perplexity(checkpoint: &Arc<Checkpoint>, precision: Precision, texts: &[&[u32]]) -> f64 {
    let kv_kind = (precision == Precision::F32).then_some(replica::kernel::KvKind::F32);
    let rig = Rig::new(Options { precision, kv_kind, ..exact(checkpoint) });
    let ask = |text: &&[u32]| rig.submit(Request { wants: Wants::PromptLogprobs(0), ..rig.request(text, 1) });
    let clients: Vec<_> = texts.iter().map(ask).collect();
    let scores = clients.into_iter().flat_map(|client| client.finish().prompt_scores);
    let logprobs: Vec<f64> = scores.map(|score| f64::from(score.logprob.unwrap())).collect();
    assert_eq!(logprobs.len(), texts.iter().map(|text| text.len() - 1).sum::<usize>());
    (-logprobs.iter().sum::<f64>() / logprobs.len() as f64).exp()
}

#[test]
fn quantised_arithmetic_keeps_the_perplexity_of_exact_arithmetic() {
    let Some((reference, checkpoint)) = reference("quantised_arithmetic_keeps_the_perplexity") else {
        return;
    };
    let texts: Vec<&[u32]> = reference.cases.iter().map(|case| &case.prompt_ids[..]).collect();
    let texts: Vec<_> = texts.into_iter().filter(|text| (200..500).contains(&text.len())).collect();
    let exact = perplexity(&checkpoint, Precision::F32, &texts);
    let kept = perplexity(&checkpoint, Precision::Kept, &texts);
    eprintln!("perplexity: exact {exact}, quantised {kept}");
    assert!((kept / exact - 1.0).abs() < PERPLEXITY, "exact {exact}, quantised {kept}");
}

#[test]
fn quantised_logits_stay_near_those_of_transformers() {
    let Some((reference, checkpoint)) = reference("quantised_logits_stay_near") else { return };
    let mut forward = Forward::new(&checkpoint, Precision::Kept, 1);
    let mut largest: f32 = 0.0;
    for case in &reference.cases {
        let logits = forward.last_logits(&case.prompt_ids);
        for (ours, theirs) in case.first_logits.of(&logits) {
            largest = largest.max((ours - theirs).abs());
        }
    }
    eprintln!("largest difference of a first logit: {largest}");
    assert!(largest < LOGIT, "{largest}");
}
