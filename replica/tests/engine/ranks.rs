//! A model on several ranks answers as on one.

use std::sync::Arc;

use replica::engine::{Options, Source, start};
use replica::model::Precision;
use replica::weights::Checkpoint;

use crate::forward::Forward;
use crate::reference_greedy::reference;
use crate::support::{Rig, options};
use crate::tiny::{Tiny, families};

/// Logits of one rank and of several may differ by the order of their sums, no more.
const LOGIT: f32 = 1e-4;
/// The same where activations are rounded to whole steps: the order of a sum may tip one over.
const ROUNDED: f32 = 0.05;
/// Best logits nearer than this may change places.
const TIE: f32 = 1e-3;

fn check(checkpoint: &Arc<Checkpoint>, precision: Precision, ranks: usize, prompts: &[Vec<u32>], logit: f32) {
    let mut one = Forward::new(checkpoint, precision, 1);
    let mut several = Forward::new(checkpoint, precision, ranks);
    for prompt in prompts {
        let (expected, seen) = (one.last_logits(prompt), several.last_logits(prompt));
        assert_eq!(expected.len(), seen.len());
        let largest = expected.iter().zip(&seen).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
        assert!(largest < logit, "{ranks} ranks: a logit differs by {largest}");
        compare_greedy(&mut one, &mut several, prompt);
    }
}

/// The same greedy tokens, up to the first near-tie.
fn compare_greedy(one: &mut Forward, several: &mut Forward, prompt: &[u32]) {
    let (expected, seen) = (one.greedy(prompt, 12), several.greedy(prompt, 12));
    let Some(place) = expected.iter().zip(&seen).position(|(a, b)| a != b) else { return };
    let mut logits = one.last_logits(&[prompt, &expected[..place]].concat());
    logits.sort_by(|a, b| b.total_cmp(a));
    assert!(logits[0] - logits[1] < TIE, "greedy tokens differ at {place}: {expected:?}, {seen:?}");
}

fn prompts() -> Vec<Vec<u32>> {
    [1, 33, 70].map(|count| (0..count).map(|place| (place * 29 + 3) % 250).collect()).to_vec()
}

// U140, U141
#[test]
fn several_ranks_give_the_logits_of_one() {
    for tied in [true, false] {
        let tiny = Tiny { heads: 8, kv_heads: 2, vocab: 50_257, tied, ..Tiny::default() };
        let checkpoint = tiny.checkpoint();
        for ranks in [2, 4] {
            check(&checkpoint, Precision::F32, ranks, &prompts(), LOGIT);
        }
    }
}

#[test]
fn every_family_is_split_alike() {
    let prompt: Vec<u32> = (0..15).map(|place| (place * 29 + 3) % 250).collect();
    for (name, checkpoint) in families() {
        eprintln!("{name}");
        check(&checkpoint, Precision::F32, 2, std::slice::from_ref(&prompt), LOGIT);
    }
}

#[test]
fn quantised_weights_are_split_too() {
    // Four ranks cut at whole blocks, eight through those of the output projection.
    let tiny = Tiny { hidden: 128, inner: 192, heads: 8, kv_heads: 4, ..Tiny::default() };
    let checkpoint = tiny.checkpoint();
    for ranks in [2, 4, 8] {
        check(&checkpoint, Precision::Q8_0, ranks, &prompts(), ROUNDED);
    }
}

#[test]
fn three_ranks_answer_as_one_on_the_default_model() {
    let Some((reference, checkpoint)) = reference("three_ranks_answer_as_one") else { return };
    let prompts: Vec<_> = reference.cases.iter().map(|case| case.prompt_ids.clone()).collect();
    let short: Vec<_> =
        prompts.into_iter().filter(|prompt| (10..40).contains(&prompt.len())).take(2).collect();
    check(&checkpoint, Precision::F32, 3, &short, LOGIT);
}

#[test]
fn an_engine_of_several_ranks_serves_and_tells_what_each_holds() {
    let source = Source::Checkpoint(Tiny { heads: 8, kv_heads: 2, ..Tiny::default() }.checkpoint());
    let one = Rig::new(Options { source: source.clone(), ..options() });
    let four = Rig::new(Options { source, ranks: 4, threads: 4, ..options() });
    let prompts = prompts();
    assert_eq!(four.together(&prompts, 16), one.together(&prompts, 16));
    let whole = one.started.as_ref().unwrap().ranks[0].weight_bytes;
    let reports = &four.started.as_ref().unwrap().ranks;
    assert_eq!(reports.iter().map(|report| report.rank).collect::<Vec<_>>(), [0, 1, 2, 3]);
    for report in reports {
        assert!(report.weight_bytes < whole / 2, "{report:?} of {whole}");
        assert_eq!(report.kv_bytes, reports[0].kv_bytes);
    }
}

#[test]
fn heads_that_do_not_divide_are_refused_with_those_that_do() {
    let source = Source::Checkpoint(Tiny { heads: 8, kv_heads: 2, ..Tiny::default() }.checkpoint());
    let refused = start(Options { source, ranks: 3, ..options() }, |_| ()).unwrap_err().to_string();
    assert!(refused.contains("over 1, 2, 4, 8 ranks, not over 3"), "{refused}");
}
