use proptest::prelude::*;

use super::*;

fn draw(logits: &[f32], sampling: &Sampling, answer: &[u32]) -> Result<Sampled, Undrawable> {
    let history = History::new(sampling, answer, answer.len() as u32);
    let draw = Draw { sampling, history: &history, answer, suppressed: &[] };
    Sampler::default().sample(&mut logits.to_vec(), draw)
}

/// How often each token comes over many indices.
fn shares(logits: &[f32], sampling: &Sampling) -> Vec<f64> {
    const DRAWS: usize = 20_000;
    let mut counts = vec![0.0; logits.len()];
    let mut sampler = Sampler::default();
    for index in 0..DRAWS {
        let token = sampler.pick(logits, sampling, index).unwrap();
        counts[token as usize] += 1.0 / DRAWS as f64;
    }
    counts
}

fn check(logits: &[f32], sampling: &Sampling, expected: &[f64]) {
    for (share, expected) in shares(logits, sampling).iter().zip(expected) {
        assert!((share - expected).abs() < 0.015, "{share} is not {expected}");
        assert!(*expected > 0.0 || *share == 0.0, "a cut token came");
    }
}

/// Logits whose probabilities are 0.5, 0.25, 0.125, 0.125.
fn halves() -> Vec<f32> {
    [0.5_f32, 0.25, 0.125, 0.125].iter().map(|p| p.ln() + 3.0).collect()
}

#[test]
fn tokens_come_as_often_as_they_are_probable() {
    check(&halves(), &Sampling::default(), &[0.5, 0.25, 0.125, 0.125]);
    let warm = Sampling { temperature: 0.5, ..Sampling::default() };
    let total = 0.25 + 0.0625 + 2.0 * 0.015_625;
    check(&halves(), &warm, &[0.25 / total, 0.0625 / total, 0.015_625 / total, 0.015_625 / total]);
}

#[test]
fn cuts_leave_the_best_in_proportion() {
    let two = [2.0 / 3.0, 1.0 / 3.0, 0.0, 0.0];
    check(&halves(), &Sampling { top_k: 2, ..Sampling::default() }, &two);
    check(&halves(), &Sampling { top_p: 0.75, ..Sampling::default() }, &two);
    check(&halves(), &Sampling { min_p: 0.4, ..Sampling::default() }, &two);
    check(&halves(), &Sampling { top_k: 3, ..Sampling::default() }, &[4.0 / 7.0, 2.0 / 7.0, 1.0 / 7.0, 0.0]);
    // top-p works on what top-k left: half of it is the first alone, 0.7 of it both.
    let both = Sampling { top_k: 2, top_p: 0.6, ..Sampling::default() };
    check(&halves(), &both, &[1.0, 0.0, 0.0, 0.0]);
}

// U043
#[test]
fn extreme_settings_draw_all_the_same() {
    for temperature in [0.0, 1e-6, 2.0] {
        for top_p in [0.0, 1e-9, 1.0] {
            for top_k in [0, 1, 5] {
                let sampling = Sampling { temperature, top_p, top_k, ..Sampling::default() };
                let token = draw(&halves(), &sampling, &[]).unwrap().token;
                let is_sharp = temperature < 1.0 || top_p < 0.5 || top_k == 1;
                assert!(token < 4 && (!is_sharp || token == 0), "{sampling:?} drew {token}");
            }
        }
    }
    let tiny = Sampling { temperature: 1.1e-5, ..Sampling::default() };
    assert_eq!(draw(&[1e30, -1e30, 3.4e38, 0.0], &tiny, &[]).unwrap().token, 2);
}

// U043
#[test]
fn logits_that_are_no_numbers_are_an_error() {
    for sampling in [Sampling::default(), Sampling { temperature: 0.0, ..Sampling::default() }] {
        assert_eq!(draw(&[0.0, f32::NAN], &sampling, &[]), Err(Undrawable::NotANumber));
        assert_eq!(draw(&[f32::NEG_INFINITY; 2], &sampling, &[]), Err(Undrawable::NothingAllowed));
    }
}

#[test]
fn among_equals_the_greedy_choice_is_the_first() {
    let greedy = Sampling { temperature: 0.0, ..Sampling::default() };
    assert_eq!(draw(&[1.0, 2.0, 2.0], &greedy, &[]).unwrap().token, 1);
}

#[test]
fn suppressed_tokens_and_bad_words_never_come() {
    let sampling = Sampling { bad_words: vec![vec![0], vec![7, 1]], ..Sampling::default() };
    let history = History::default();
    let token = |answer: &[u32], suppressed: &[u32]| {
        let draw = Draw { sampling: &sampling, history: &history, answer, suppressed };
        Sampler::default().sample(&mut [9.0, 8.0, -20.0, -90.0], draw).unwrap().token
    };
    assert_eq!(token(&[3], &[]), 1, "a one-token word is always banned");
    assert_eq!(token(&[3, 7], &[]), 2, "a longer one where its start has come");
    assert_eq!(token(&[3, 7], &[2, 99]), 3);
}

#[test]
fn a_bias_can_force_and_forbid() {
    let greedy = |bias| Sampling { temperature: 0.0, logit_bias: bias, ..Sampling::default() };
    assert_eq!(draw(&halves(), &greedy(vec![(3, 100.0)]), &[]).unwrap().token, 3);
    assert_eq!(draw(&halves(), &greedy(vec![(0, -100.0), (50, 1.0)]), &[]).unwrap().token, 1);
}

#[test]
fn log_probabilities_are_of_the_raw_distribution() {
    let sampling =
        Sampling { temperature: 0.3, logit_bias: vec![(2, 100.0)], logprobs: Some(2), ..Sampling::default() };
    let sampled = draw(&halves(), &sampling, &[]).unwrap();
    assert_eq!(sampled.token, 2);
    assert!((sampled.logprob.unwrap() - 0.125_f32.ln()).abs() < 1e-5);
    assert_eq!(sampled.top.iter().map(|top| top.0).collect::<Vec<_>>(), [0, 1]);
    assert!((sampled.top[0].1 - 0.5_f32.ln()).abs() < 1e-5);
}

proptest! {
    #[test]
    fn a_seed_and_an_index_give_the_token_again(
        logits in prop::collection::vec(-8.0f32..8.0, 2..300),
        seed: u64,
        answer in prop::collection::vec(0u32..300, 0..20),
    ) {
        let sampling = Sampling { seed, top_p: 0.95, ..Sampling::default() };
        let mut busy = Sampler::default();
        let history = History::default();
        let others = Draw { sampling: &sampling, history: &history, answer: &[], suppressed: &[] };
        busy.sample(&mut [1.0; 999], others).unwrap();
        let mine = Draw { sampling: &sampling, history: &history, answer: &answer, suppressed: &[] };
        let after_others = busy.sample(&mut logits.clone(), mine);
        prop_assert_eq!(after_others, draw(&logits, &sampling, &answer));
    }

    #[test]
    fn neighbouring_seeds_and_indices_are_independent(seed in 0u64..u64::MAX - 64) {
        let draws = (0..64).map(|step| uniform(seed + step, 0)).chain((0..64).map(|index| uniform(seed, index)));
        let mean = draws.sum::<f64>() / 128.0;
        prop_assert!((mean - 0.5).abs() < 0.17, "{}", mean);
    }
}
