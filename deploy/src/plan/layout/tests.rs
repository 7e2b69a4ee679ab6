//! What practitioners run, with the reason each time.

use super::super::cards::parse;
use super::super::known::known;
use super::super::memory::Engine;
use super::super::weights::Weights;
use super::*;

/// Model, weights, cards, tokens of context, sequences at once; verdict, cards a replica, replicas; why.
type Case = (&'static str, Weights, &'static str, u32, u32, Verdict, u32, u32, &'static str);

fn plan(model: &str, weights: Weights, gpus: &str, context_tokens: u32, concurrency: u32) -> Layout {
    let model = known(model).unwrap().stored_as(weights);
    let kv = KvPlan { engine: Engine::Vllm, element_bytes: 2 };
    lay_out(&model, kv, &parse(gpus).unwrap(), Demand { context_tokens, concurrency })
}

/// Verdict, cards a replica and replicas of the first group.
fn check(cases: &[Case]) {
    for &(model, weights, gpus, context, concurrency, verdict, cards, replicas, why) in cases {
        let layout = plan(model, weights, gpus, context, concurrency);
        let found =
            layout.groups.first().map_or((0, 0), |group| (group.ranks * group.stages, group.replicas));
        assert_eq!(
            (layout.verdict, found),
            (verdict, (cards, replicas)),
            "{model} {} on {gpus}; expected since {why}; {}\n{:#?}",
            weights.word(),
            layout.rule,
            layout.advice
        );
    }
}

use Verdict::{Fits, Impossible, NeedsNoMore, Short, Split, SplitBadly};
use Weights::{Bf16, Fp8, Int4, Int8, Stored};

#[rustfmt::skip]
const SMALL: &[Case] = &[
    ("llama-3-8b", Bf16, "1xH100", 8192, 32, Fits, 1, 1,
        "16 GB of weights leave most of 80 GB to KV: one card is enough for a small office"),
    ("llama-3-8b", Bf16, "8xH100", 8192, 32, NeedsNoMore, 1, 8,
        "the demand of one card on eight: seven are spare"),
    ("llama-3-8b", Bf16, "8xH100", 8192, 400, Fits, 1, 8,
        "it fits and can't keep up, so replicas and no TP"),
    ("qwen2-7b", Bf16, "1xA100-80G", 4096, 200, Fits, 1, 1,
        "7B for 200 users on A100: four KV heads make 224 MiB a sequence, 45 GiB for all of them"),
    ("llama-2-7b", Bf16, "4xA100-80G", 4096, 200, Short, 1, 4,
        "the same with KV for all 32 heads: 2 GiB a sequence, so four cards hold some 116"),
    ("llama-2-7b", Bf16, "8xA100-80G", 4096, 200, Fits, 1, 8,
        "and seven replicas hold them, with one to lose"),
    ("mistral-7b", Bf16, "2xRTX4090", 4096, 8, NeedsNoMore, 1, 2,
        "14.5 GB of weights leave a 24 GB card some 5 GB, at half a GiB a sequence"),
    ("mistral-7b", Bf16, "2xA10", 4096, 8, NeedsNoMore, 1, 2,
        "the common cloud card of 24 GB does the same"),
    ("qwen3-0.6b", Bf16, "2xT4", 4096, 10, NeedsNoMore, 1, 2,
        "1.2 GB of weights: tiny models waste any second card"),
    ("qwen3-30b-a3b", Bf16, "2xH100", 8192, 8, NeedsNoMore, 1, 2,
        "61 GB for all experts though a token uses few: one card holds them, with little KV to spare"),
    ("qwen3-8b", Bf16, "1xL40S", 8192, 16, Fits, 1, 1,
        "16 GB of weights on 48 GB: the usual card for 8B"),
    ("llama-2-7b", Int4, "1x8G", 2048, 1, Fits, 1, 1,
        "4 GB of weights and a GiB of KV: a laptop's card for one user"),
    ("gpt-oss-20b", Stored, "1x16G", 8192, 1, Fits, 1, 1,
        "its makers' word: made for 16 GB"),
    ("gpt-oss-120b", Stored, "1xH100", 8192, 8, Fits, 1, 1,
        "its makers' word: made for one 80 GB card"),
    ("phi-4", Int4, "1xRTX4090", 8192, 4, Fits, 1, 1,
        "14B in 4 bits takes 8 GB of 24"),
];

#[rustfmt::skip]
const LARGE: &[Case] = &[
    ("gemma-3-27b", Bf16, "4xRTX4090", 4096, 8, SplitBadly, 4, 1,
        "27B bf16 is 54 GB: four 24 GB cards and not two; GeForce boards have no peer access"),
    ("gemma-3-27b", Bf16, "4xL4", 4096, 8, SplitBadly, 4, 1,
        "the same on data-centre cards without NVLink"),
    ("llama-3-70b", Bf16, "4xA100-80G", 4096, 32, Split, 4, 1,
        "141 GB on four cards: two hold 160 GB on the box and no KV"),
    ("llama-3-70b", Bf16, "2xA100-80G", 4096, 2, Split, 2, 1,
        "the least it is run on: 141 of 160 GB, with nearly all of each card given to it"),
    ("llama-3-70b", Bf16, "1xA100-80G", 4096, 1, Impossible, 0, 0,
        "one card has half of what its weights take"),
    ("llama-3-70b", Bf16, "8xH100", 8192, 64, Split, 4, 2,
        "one box of eight is two groups of four, and not one of eight"),
    ("llama-3-70b", Bf16, "8xH200", 8192, 64, Split, 2, 4,
        "on 141 GB cards two are enough, so eight make four replicas"),
    ("llama-3-70b", Fp8, "8xH200", 8192, 60, NeedsNoMore, 1, 8,
        "fp8 halves it: 71 GB on one H200"),
    ("llama-3-70b", Fp8, "4xH100", 8192, 16, Split, 2, 2,
        "71 GB in fp8 leave nothing of one 80 GB card, so pairs"),
    ("qwen2.5-32b", Bf16, "2xH100", 32_768, 8, Split, 2, 1,
        "65 GB at long context: one card has no room for eight such sequences"),
    ("qwen2.5-32b", Bf16, "1xH100", 4096, 4, Fits, 1, 1,
        "at short context it does run on one"),
    ("mixtral-8x7b", Bf16, "2xA100-80G", 8192, 16, Split, 2, 1,
        "93 GB: a pair, the common way to run it"),
    ("mixtral-8x7b", Bf16, "8xA100-80G", 8192, 128, Split, 2, 4,
        "and a box of eight is four pairs"),
    ("deepseek-v3", Stored, "8xH200", 8192, 32, Split, 8, 1,
        "671 GB in fp8: the classic box of eight H200"),
    ("deepseek-v3", Stored, "8xA100-80G", 8192, 1, Impossible, 0, 0,
        "640 GB on the box are less than its weights"),
    ("deepseek-v3", Stored, "16xH100", 8192, 8, SplitBadly, 16, 1,
        "two boxes of eight H100 hold it, one after the other"),
    ("qwen2.5-72b", Bf16, "8xL40S", 4096, 16, SplitBadly, 8, 1,
        "no NVLink; four cards leave a rank 1.4 GiB for KV, so sixteen sequences want all eight"),
    ("qwen2.5-72b", Bf16, "8xL40S", 4096, 8, SplitBadly, 4, 2,
        "for eight sequences two groups of four do"),
];

#[rustfmt::skip]
const ODD: &[Case] = &[
    ("qwen2.5-32b", Int4, "6x16G", 4096, 6, SplitBadly, 2, 3,
        "U129, U065: 17.6 GB on 16 GB cards are pairs, so three replicas of six cards"),
    ("qwen2.5-32b", Int4, "3x16G", 4096, 2, SplitBadly, 2, 1,
        "of three cards one pair, and one left over"),
    ("llama-2-13b", Stored, "2xRTX4090", 4096, 3, SplitBadly, 2, 1,
        "13B fp16 is 26 GB: both cards, through the host's memory"),
    ("llama-2-13b", Int8, "2xRTX4090", 4096, 2, Fits, 1, 2,
        "in int8 each card holds one: the better answer without NVLink"),
    ("llama-2-13b", Stored, "2xRTX3090", 4096, 3, Split, 2, 1,
        "a 3090 pair has its bridge"),
    ("qwen2-7b", Bf16, "7xT4", 4096, 4, SplitBadly, 2, 3,
        "15.2 GB on 15 GB cards are pairs; 28 heads are shared by 7 too, but pairs make three replicas"),
    ("llama-3-70b", Int4, "2xRTX3090", 4096, 2, Split, 2, 1,
        "the home builder's pair: 38 GB of 48"),
    ("llama-3-70b", Bf16, "1xRTX4090", 4096, 1, Impossible, 0, 0,
        "141 GB are six such cards"),
    ("llama-3-8b", Bf16, "1xT4", 4096, 1, Impossible, 0, 0,
        "16 GB of weights on a card that calls itself 16 GB and has 15"),
    ("llama-3-8b", Int4, "1xT4", 4096, 4, Fits, 1, 1,
        "in 4 bits it has 9 GB to spare"),
];

#[test]
fn small_models_get_replicas_and_never_splits() {
    check(SMALL);
}

#[test]
fn models_that_do_not_fit_are_split_as_little_as_possible() {
    check(LARGE);
}

#[test]
fn odd_and_small_cards_are_used_as_far_as_they_go() {
    check(ODD);
}

#[test]
fn advice_names_the_smaller_weights_that_save_cards() {
    let layout = plan("llama-2-13b", Stored, "2xRTX4090", 4096, 3);
    assert!(
        layout.advice.iter().any(|line| line.contains("int8") || line.contains("fp8")),
        "{:?}",
        layout.advice
    );
    assert!(layout.advice.iter().any(|line| line.contains("no fast link")), "{:?}", layout.advice);
}

/// U065: over 1 to 8 cards only sizes that divide the heads are proposed, every other one up to it is explained, and
/// what the cards are too many or too odd for is left over.
#[test]
fn only_legal_sizes_are_proposed_and_the_others_explained() {
    let cases: [(u32, u32, &[u32]); 4] =
        [(40, 8, &[1, 2, 4, 8]), (28, 4, &[1, 2, 4]), (52, 52, &[1, 2, 4]), (64, 8, &[1, 2, 4, 8])];
    let kv = KvPlan { engine: Engine::Vllm, element_bytes: 2 };
    let demand = Demand { context_tokens: 4096, concurrency: 16 };
    for (heads, kv_heads, legal) in cases {
        let model = Model { heads, kv_heads, ..known("qwen2.5-32b").unwrap() };
        for cards in 1..=8 {
            let layout = lay_out(&model, kv, &parse(&format!("{cards}xA100-40G")).unwrap(), demand);
            for group in &layout.groups {
                assert!(legal.contains(&group.ranks), "({heads}, {kv_heads}) on {cards}: {group:?}");
                assert_eq!(group.replicas, cards / (group.ranks * group.stages), "{group:?}");
                let is_explained = |ranks: u32| {
                    let name = format!("TP={ranks}");
                    layout.rejected.iter().any(|line| line.split([':', ' ']).any(|word| word == name))
                };
                let open = (1..group.ranks).filter(|&ranks| !legal.contains(&ranks) && !is_explained(ranks));
                assert_eq!(open.count(), 0, "({heads}, {kv_heads}) on {cards}: {layout:?}");
            }
        }
    }
}

#[test]
fn rejected_sizes_are_explained() {
    let layout = plan("qwen2.5-32b", Int4, "6x16G", 4096, 6);
    assert!(layout.rejected.iter().any(|line| line.contains("TP=1 on 16 GiB card")), "{:?}", layout.rejected);
}

#[test]
fn mixed_cards_hold_what_each_kind_can() {
    let layout = plan("llama-3-8b", Bf16, "2xRTX4090,1xA100-80G,1xT4", 4096, 120);
    let kinds: Vec<_> = layout.groups.iter().map(|group| (group.card.name.as_str(), group.ranks)).collect();
    assert_eq!(kinds, [("RTX4090", 1), ("A100-80G", 1)], "{}", layout.rule);
}

#[test]
fn a_longer_context_never_holds_more_sequences() {
    let mut last = u32::MAX;
    for context in [512, 1024, 4096, 8192, 32_768] {
        let layout = plan("llama-3-8b", Bf16, "1xH100", context, 1);
        let sequences = layout.groups[0].memory.sequences;
        assert!(sequences <= last, "{context}");
        last = sequences;
    }
}
