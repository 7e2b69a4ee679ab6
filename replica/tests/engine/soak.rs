//! Mixed random load on a pool that is much too small: nothing is lost, leaks or changes.

use rand::rngs::SmallRng;
use rand::{Rng as _, SeedableRng as _};
use replica::engine::{Options, Refusal};
use replica_core::sampler::Sampling;
use replica_core::sequence::{Finish, Request, Wants};

use crate::support::{Client, Rig, options};

/// A prompt that shares its beginning with others of its group, and how long its answer may be.
fn ask(rig: &Rig, random: &mut SmallRng) -> Request {
    let group = random.random_range(0..5);
    let length = random.random_range(1..200);
    let own = random.random_range(0..4);
    let prompt: Vec<_> = (0..length).map(|place| (place * group + own * (place / 60)) % 90 + 32).collect();
    let wants = if random.random_bool(0.1) { Wants::PromptLogprobs(1) } else { Wants::Tokens };
    let temperature = if random.random_bool(0.3) { 1.0 } else { 0.0 };
    let sampling = Sampling { temperature, seed: u64::from(group), ..Sampling::default() };
    Request { sampling, wants, ..rig.request(&prompt, random.random_range(1..120)) }
}

#[test]
fn random_load_on_a_tiny_pool_changes_no_answer_and_leaves_nothing_behind() {
    let calm = Rig::new(Options { prefix_caching: false, ..options() });
    let rig = Rig::new(Options { kv_bytes: 46_080 * 32 * 16, running_max: 24, waiting_max: 40, ..options() });
    let mut random = SmallRng::seed_from_u64(3);
    let mut open: Vec<(Request, Client)> = Vec::new();
    for _ in 0..600 {
        let request = ask(&rig, &mut random);
        match rig.try_submit(request.clone()) {
            Ok(client) => open.push((request, client)),
            Err(refusal) => assert_eq!(refusal, Refusal::Full),
        }
        while open.len() > 40 {
            let (request, client) = open.swap_remove(random.random_range(0..open.len()));
            if random.random_bool(0.4) {
                drop(client);
                continue;
            }
            let answer = client.finish();
            assert!(matches!(answer.finish, Finish::Length | Finish::Stop(_)), "{:?}", answer.finish);
            let undisturbed = calm.submit(request.clone()).finish();
            assert_eq!(answer.tokens(), undisturbed.tokens());
            assert_eq!(answer.prompt_scores, undisturbed.prompt_scores);
        }
    }
    drop(open);
    let seen = rig.until_idle();
    assert!(seen.preemptions > 0 && seen.prefix_hits > 0, "the load was too light: {seen:?}");
}
