//! What practitioners run, with the reason each time.

use super::super::cards::parse;
use super::super::known::known;
use super::super::memory::Engine;
use super::*;

#[derive(Clone, Copy)]
struct Case {
    model: &'static str,
    weights: Weights,
    gpus: &'static str,
    context: u32,
    concurrency: u32,
}

fn plan(case: &Case) -> Layout {
    let model = known(case.model).unwrap().stored_as(case.weights);
    let kv = KvPlan { engine: Engine::Vllm, element_bytes: 2 };
    let demand = Demand { context_tokens: case.context, concurrency: case.concurrency };
    lay_out(&model, kv, &parse(case.gpus).unwrap(), demand)
}

/// Verdict, ranks and replicas of the first group.
fn check(case: Case, verdict: Verdict, ranks: u32, replicas: u32) {
    let layout = plan(&case);
    let found = layout.groups.first().map_or((0, 0), |group| (group.ranks * group.stages, group.replicas));
    let what = format!("{} {} on {}", case.model, case.weights.word(), case.gpus);
    assert_eq!(
        (layout.verdict, found),
        (verdict, (ranks, replicas)),
        "{what}: {}\n{:#?}",
        layout.rule,
        layout.advice
    );
}

fn case(model: &'static str, weights: Weights, gpus: &'static str, context: u32, concurrency: u32) -> Case {
    Case { model, weights, gpus, context, concurrency }
}

use Verdict::{Fits, Impossible, NeedsNoMore, Short, Split, SplitBadly};
use Weights::{Bf16, Fp8, Int4, Int8, Stored};

#[test]
fn small_models_get_replicas_and_never_splits() {
    // 16 GB of weights leave most of 80 GB to KV: one card is enough for a small office.
    check(case("llama-3-8b", Bf16, "1xH100", 8192, 32), Fits, 1, 1);
    // Eight cards, the demand of one: seven are spare.
    check(case("llama-3-8b", Bf16, "8xH100", 8192, 32), NeedsNoMore, 1, 8);
    // Eight times the demand: eight replicas, no TP.
    check(case("llama-3-8b", Bf16, "8xH100", 8192, 400), Fits, 1, 8);
    // 7B for 200 users on A100: GQA keeps 4k contexts small, one 80 GB card holds them all.
    check(case("qwen2-7b", Bf16, "1xA100-80G", 4096, 200), Fits, 1, 1);
    // The same with full attention heads: 2 GiB a sequence at 4k, so 200 don't fit four cards.
    check(case("llama-2-7b", Bf16, "4xA100-80G", 4096, 200), Short, 1, 4);
    // 14 GB of weights leave a 24 GB card some 5 GB.
    check(case("mistral-7b", Bf16, "2xRTX4090", 4096, 8), NeedsNoMore, 1, 2);
    // Tiny models waste any card.
    check(case("qwen3-0.6b", Bf16, "2xT4", 4096, 10), NeedsNoMore, 1, 2);
    // A3B: 61 GB of weights for all experts, though a token uses few.
    check(case("qwen3-30b-a3b", Bf16, "2xH100", 8192, 8), NeedsNoMore, 1, 2);
}

#[test]
fn models_that_do_not_fit_are_split_as_little_as_possible() {
    // 27B bf16 is 54 GB: four 24 GB cards, not two; on consumer boards the links are poor.
    check(case("gemma-3-27b", Bf16, "4xRTX4090", 4096, 8), SplitBadly, 4, 1);
    check(case("gemma-3-27b", Bf16, "4xL4", 4096, 8), SplitBadly, 4, 1);
    // 141 GB on 4 × 80 GB: TP=2 has 160 GB on the box but no room for KV.
    check(case("llama-3-70b", Bf16, "4xA100-80G", 4096, 32), Split, 4, 1);
    check(case("llama-3-70b", Bf16, "8xH100", 8192, 64), Split, 4, 2);
    // On 141 GB cards two are enough, so eight make four replicas.
    check(case("llama-3-70b", Bf16, "8xH200", 8192, 64), Split, 2, 4);
    // fp8 halves it: one H200 holds it.
    check(case("llama-3-70b", Fp8, "8xH200", 8192, 60), NeedsNoMore, 1, 8);
    check(case("llama-3-70b", Fp8, "4xH100", 8192, 16), Split, 2, 2);
    // 65 GB of 32B: two 80 GB cards at long context, where one has little room left.
    check(case("qwen2.5-32b", Bf16, "2xH100", 32_768, 8), Split, 2, 1);
    check(case("qwen2.5-32b", Bf16, "1xH100", 4096, 4), Fits, 1, 1);
    // Mixtral: 93 GB.
    check(case("mixtral-8x7b", Bf16, "2xA100-80G", 8192, 16), Split, 2, 1);
    check(case("mixtral-8x7b", Bf16, "8xA100-80G", 8192, 128), Split, 2, 4);
    // DeepSeek V3 in fp8 is 671 GB: the classic eight H200.
    check(case("deepseek-v3", Stored, "8xH200", 8192, 32), Split, 8, 1);
    // 72B on eight L40S: no NVLink, so it runs, but through PCIe.
    // TP=4 leaves a rank 1.4 GiB for KV, so sixteen sequences want all eight cards in one group.
    check(case("qwen2.5-72b", Bf16, "8xL40S", 4096, 16), SplitBadly, 8, 1);
    check(case("qwen2.5-72b", Bf16, "8xL40S", 4096, 8), SplitBadly, 4, 2);
}

#[test]
fn odd_and_small_cards_are_used_as_far_as_they_go() {
    // 32B int4 on six 16 GB cards: pairs, three replicas (U129, U065).
    check(case("qwen2.5-32b", Int4, "6x16G", 4096, 6), SplitBadly, 2, 3);
    // Three cards: a pair and one left over.
    check(case("qwen2.5-32b", Int4, "3x16G", 4096, 2), SplitBadly, 2, 1);
    // 13B fp16 on two 4090s without NVLink runs as TP=2 ...
    check(case("llama-2-13b", Stored, "2xRTX4090", 4096, 3), SplitBadly, 2, 1);
    // ... but in int8 each card holds one: the better answer.
    check(case("llama-2-13b", Int8, "2xRTX4090", 4096, 2), Fits, 1, 2);
    // The same on a 3090 pair with its bridge.
    check(case("llama-2-13b", Stored, "2xRTX3090", 4096, 3), Split, 2, 1);
    // 7B in int4 on an 8 GB card, for one user.
    check(case("llama-2-7b", Int4, "1x8G", 2048, 1), Fits, 1, 1);
    // gpt-oss-20b was made for 16 GB.
    check(case("gpt-oss-20b", Stored, "1x16G", 8192, 1), Fits, 1, 1);
    check(case("gpt-oss-120b", Stored, "1xH100", 8192, 8), Fits, 1, 1);
    check(case("phi-4", Int4, "1xRTX4090", 8192, 4), Fits, 1, 1);
}

#[test]
fn what_cannot_run_is_said() {
    check(case("llama-3-70b", Bf16, "1xRTX4090", 4096, 1), Impossible, 0, 0);
    check(case("deepseek-v3", Stored, "8xA100-80G", 8192, 1), Impossible, 0, 0);
    check(case("llama-3-8b", Bf16, "1xT4", 4096, 1), Impossible, 0, 0);
}

#[test]
fn advice_names_the_smaller_weights_that_save_cards() {
    let layout = plan(&case("llama-2-13b", Stored, "2xRTX4090", 4096, 3));
    assert!(
        layout.advice.iter().any(|line| line.contains("int8") || line.contains("fp8")),
        "{:?}",
        layout.advice
    );
    assert!(layout.advice.iter().any(|line| line.contains("no fast link")), "{:?}", layout.advice);
}

#[test]
fn rejected_sizes_are_explained() {
    let layout = plan(&case("qwen2.5-32b", Int4, "6x16G", 4096, 6));
    assert!(layout.rejected.iter().any(|line| line.contains("TP=1 on 16 GiB card")), "{:?}", layout.rejected);
}

#[test]
fn mixed_cards_hold_what_each_kind_can() {
    let layout = plan(&case("llama-3-8b", Bf16, "2xRTX4090,1xA100-80G,1xT4", 4096, 120));
    let kinds: Vec<_> = layout.groups.iter().map(|group| (group.card.name.as_str(), group.ranks)).collect();
    assert_eq!(kinds, [("RTX4090", 1), ("A100-80G", 1)], "{}", layout.rule);
}

#[test]
fn a_longer_context_never_holds_more_sequences() {
    let mut last = u32::MAX;
    for context in [512, 1024, 4096, 8192, 32_768] {
        let layout = plan(&case("llama-3-8b", Bf16, "1xH100", context, 1));
        let sequences = layout.groups[0].memory.sequences;
        assert!(sequences <= last, "{context}");
        last = sequences;
    }
}
