//! Whoever rides along, whatever is cached and however often it is preempted: an answer is the same.

use std::time::Duration;

use replica::engine::{Options, Source};
use replica::model::fake;
use replica_core::sampler::Sampling;
use replica_core::sequence::{Request, Wants};

use crate::support::{Rig, bytes, options};
use crate::tiny::{Tiny, families};

/// Prompts of many lengths, some sharing a long prefix that ends within a block.
fn prompts() -> Vec<Vec<u32>> {
    let shared: Vec<u32> = (0..77).map(|place| (place * 31 + 7) % 250).collect();
    (0..16)
        .map(|index| {
            let own = (0..=index * 11).map(|place| (place * 17 + index * 5 + 1) % 250);
            if index % 2 == 0 { shared.iter().copied().chain(own).collect() } else { own.collect() }
        })
        .collect()
}

fn tiny() -> Options {
    Options { source: Source::Checkpoint(Tiny::default().checkpoint()), ..options() }
}

/// A pool of so many blocks, as both models account for them.
fn pool(options: Options, token_bytes: u64, blocks: u64) -> Options {
    Options { kv_bytes: token_bytes * 32 * blocks, ..options }
}

const FAKE_TOKEN_BYTES: u64 = 2 * 30 * 3 * 64 * 4;
const TINY_TOKEN_BYTES: u64 = 2 * 2 * 2 * 16 * 4;

#[test]
fn waiting_requests_share_their_steps() {
    let slow = fake::Delay { step: Duration::from_millis(20), row: Duration::ZERO };
    let rig = Rig::new(Options { source: Source::Fake(slow), ..options() });
    let before = rig.handle.snapshot().steps;
    let answers = rig.together(&[bytes("one"), bytes("two"), bytes("three")], 20);
    assert!(answers.iter().all(|answer| answer.len() == 20));
    let steps = rig.handle.snapshot().steps - before;
    assert!(steps <= 25, "three answers of 20 tokens took {steps} steps");
}

// U042
#[test]
fn cold_equals_warm_and_alone_equals_batched() {
    for options in [options(), tiny()] {
        let uncached = Rig::new(Options { prefix_caching: false, ..options.clone() });
        let alone = uncached.in_turn(&prompts(), 24);
        assert_eq!(uncached.together(&prompts(), 24), alone, "batched, uncached");
        let rig = Rig::new(options);
        assert_eq!(rig.together(&prompts(), 24), alone, "cold, batched");
        assert_eq!(rig.in_turn(&prompts(), 24), alone, "warm, alone");
        assert_eq!(rig.together(&prompts(), 24), alone, "warm, batched");
        assert!(rig.until_idle().prefix_hits > 0);
    }
}

// U042
#[test]
fn fifty_prompts_are_answered_alike_after_some_were_evicted() {
    let prompts: Vec<Vec<u32>> = (0..50_u32)
        .map(|index| {
            let shared = (0..40 + index % 3 * 25).map(|place| (place * 31 + index % 5) % 250);
            shared.chain((0..index).map(|place| (place * 17 + index) % 250)).collect()
        })
        .collect();
    let alone = Rig::new(Options { prefix_caching: false, ..tiny() }).in_turn(&prompts, 12);
    // Room for a few of them: what comes again finds some of its blocks, and some gone.
    let rig = Rig::new(pool(tiny(), TINY_TOKEN_BYTES, 20));
    for turn in ["cold", "warm"] {
        assert_eq!(rig.in_turn(&prompts, 12), alone, "{turn}");
    }
    let mut backwards: Vec<_> = prompts.clone();
    backwards.reverse();
    let answers = rig.together(&backwards, 12);
    assert!(answers.iter().rev().eq(&alone), "batched");
    let seen = rig.until_idle();
    assert!(seen.prefix_hits > 0 && seen.prefix_hits < seen.prefix_queries, "{seen:?}");
}

// U042: windows, norms on heads, experts and caps keep the law too.
#[test]
fn every_family_answers_alike_cold_warm_alone_and_batched() {
    for (name, checkpoint) in families() {
        let context_tokens = checkpoint.facts.context_tokens;
        let options = Options {
            source: Source::Checkpoint(checkpoint),
            context_tokens_max: Some(context_tokens),
            ..options()
        };
        let rig = Rig::new(options.clone());
        let room = context_tokens - 12;
        let prompts: Vec<Vec<u32>> = (1..12)
            .map(|index| (0..(index * 5).min(room)).map(|place| (place * 13 + index % 3) % 250).collect())
            .collect();
        let alone = rig.in_turn(&prompts, 10);
        assert_eq!(rig.together(&prompts, 10), alone, "{name}: warm, batched");
        let fresh = Rig::new(options);
        assert_eq!(fresh.together(&prompts, 10), alone, "{name}: cold, batched");
    }
}

// U042, U054
#[test]
fn a_pool_so_small_that_it_preempts_gives_the_same_answers() {
    let pairs = [(options(), FAKE_TOKEN_BYTES), (tiny(), TINY_TOKEN_BYTES)];
    for (options, token_bytes) in pairs {
        let prompts: Vec<_> = prompts().into_iter().filter(|prompt| prompt.len() < 100).collect();
        let alone = Rig::new(options.clone()).in_turn(&prompts, 90);
        let small = Rig::new(pool(options, token_bytes, 12));
        assert_eq!(small.together(&prompts, 90), alone);
        let seen = small.until_idle();
        assert!(seen.preemptions > 0, "nothing was preempted: {seen:?}");
    }
}

#[test]
fn small_steps_give_the_same_answers_as_large_ones() {
    let wide = Rig::new(tiny()).together(&prompts(), 12);
    let narrow = Rig::new(Options { step_tokens_max: 64, running_max: 16, ..tiny() });
    assert_eq!(narrow.together(&prompts(), 12), wide);
}

#[test]
fn a_seed_gives_the_same_text_whatever_rides_along() {
    let rig = Rig::new(tiny());
    let drawn = |rig: &Rig| {
        let sampling = Sampling { temperature: 1.0, seed: 42, ..Sampling::default() };
        rig.submit(Request { sampling, ..rig.request(&bytes("once upon"), 30) })
    };
    let alone = drawn(&rig).finish().tokens();
    let crowd: Vec<_> = prompts().iter().map(|prompt| rig.submit(rig.request(prompt, 30))).collect();
    assert_eq!(drawn(&rig).finish().tokens(), alone);
    drop(crowd);
}

#[test]
fn a_continuation_from_token_ids_is_the_same_text() {
    for options in [options(), tiny()] {
        let rig = Rig::new(options);
        let sampling = Sampling { temperature: 0.8, seed: 9, presence_penalty: 0.5, ..Sampling::default() };
        let whole = Request { sampling, stop_tokens: Vec::new(), ..rig.request(&bytes("a story"), 40) };
        let text = rig.submit(whole.clone()).finish().tokens();
        for cut in [1, 7, 39] {
            let tokens = [&whole.tokens[..], &text[..cut]].concat();
            let id = rig.request(&[], 0).id;
            let rest = Request { id, tokens, answered: cut as u32, ..whole.clone() };
            assert_eq!(rig.submit(rest).finish().tokens(), text[cut..], "cut at {cut}");
        }
    }
}

#[test]
fn prompt_logprobs_cover_the_prompt_from_its_second_token_on() {
    let rig = Rig::new(tiny());
    let prompt = &prompts()[14];
    let asked = Request { wants: Wants::PromptLogprobs(2), ..rig.request(prompt, 3) };
    let answer = rig.submit(asked).finish();
    let scored: Vec<_> = answer.prompt_scores.iter().map(|score| score.token).collect();
    assert_eq!(scored, prompt[1..]);
    assert!(answer.prompt_scores.iter().all(|score| score.logprob.is_some_and(f32::is_finite)));
    for score in &answer.prompt_scores {
        assert_eq!(score.top.len(), 2);
        let place = score.top.iter().position(|top| top.0 == score.token);
        let rank = score.rank.unwrap() as usize;
        assert!(place.map_or(rank > 2, |place| rank == place + 1), "{score:?}");
    }
    assert_eq!(answer.tokens().len(), 3);
}

#[test]
fn hidden_states_come_row_by_row_and_nothing_is_drawn() {
    let rig = Rig::new(tiny());
    let prompt = &prompts()[15];
    let asked = |rig: &Rig| Request { wants: Wants::Hidden, ..rig.request(prompt, 0) };
    let answer = rig.submit(asked(&rig)).finish();
    assert_eq!((answer.hidden.len(), answer.sampled.len()), (prompt.len() * 64, 0));
    assert!(answer.hidden.iter().all(|value| value.is_finite()));
    assert_eq!(rig.submit(asked(&rig)).finish().hidden, answer.hidden);
}
