//! Passes over a vocabulary: the best few, the smallest set of a probability, the one that a number hits.
//!
//! None sorts the vocabulary. Equals are told apart by token, so every answer is a function of the logits.

use std::cmp::Ordering;

use super::Undrawable;

/// A token that may be chosen.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) struct Candidate {
    pub token: u32,
    pub logit: f32,
}

impl Candidate {
    /// Better first, of equals the first.
    pub fn order(self, other: Self) -> Ordering {
        other.logit.total_cmp(&self.logit).then(self.token.cmp(&other.token))
    }
}

/// The best logit; an error where one is not a number or infinite, or where all are banned.
pub(super) fn check(logits: &[f32]) -> Result<f32, Undrawable> {
    const LANES: usize = 16;
    let mut best = [f32::NEG_INFINITY; LANES];
    let mut is_bad = [false; LANES];
    let chunks = logits.chunks_exact(LANES);
    let rest = chunks.remainder();
    for chunk in chunks {
        for lane in 0..LANES {
            best[lane] = if chunk[lane] > best[lane] { chunk[lane] } else { best[lane] };
            is_bad[lane] |= chunk[lane].is_nan();
        }
    }
    let best = best.iter().chain(rest).fold(f32::NEG_INFINITY, |best, &logit| best.max(logit));
    if is_bad.contains(&true) || rest.iter().any(|logit| logit.is_nan()) || best == f32::INFINITY {
        return Err(Undrawable::NotANumber);
    }
    if best == f32::NEG_INFINITY { Err(Undrawable::NothingAllowed) } else { Ok(best) }
}

/// The first token that reaches the best logit.
pub(super) fn position(logits: &[f32], best: f32) -> u32 {
    logits.iter().position(|&logit| logit >= best).unwrap_or(0) as u32
}

/// A token's place, from 1, in the order of [`Candidate::order`].
pub(super) fn rank(logits: &[f32], token: usize, logit: f32) -> u32 {
    let (before, after) = logits.split_at(token);
    let better = after.iter().filter(|&&other| other > logit).count();
    (1 + better + before.iter().filter(|&&other| other >= logit).count()) as u32
}

/// exp for x <= 0, to about 2 units in the last place; without branches, so that compilers can widen it.
#[inline]
pub(super) fn exp(x: f32) -> f32 {
    const LOG2_E: f32 = std::f32::consts::LOG2_E;
    const LN_2_HIGH: f32 = 0.693_359_4;
    const LN_2_LOW: f32 = -2.121_944_4e-4;
    /// Rounds to the nearest whole number when added and taken off again.
    const ROUND: f32 = 12_582_912.0;
    let x = if x > -87.0 { x } else { -87.0 };
    let rounded = x * LOG2_E + ROUND;
    let whole = rounded - ROUND;
    let rest = x - whole * LN_2_HIGH - whole * LN_2_LOW;
    let tail = 1.987_569_1e-4_f32;
    let tail = tail * rest + 1.398_2e-3;
    let tail = tail * rest + 8.333_452e-3;
    let tail = tail * rest + 4.166_579_6e-2;
    let tail = tail * rest + 1.666_666_5e-1;
    let tail = tail * rest + 0.5;
    let value = tail * rest * rest + rest + 1.0;
    // The low bits of `rounded` are the whole number: moved up, they are an exponent.
    let scale = f32::from_bits((rounded.to_bits() << 23).wrapping_add(1.0_f32.to_bits()));
    // At the clamp the true value is below every weight that matters.
    if x > -87.0 { value * scale } else { 0.0 }
}

/// The `count` best, best first, into `best`.
pub(super) fn best(logits: &[f32], count: usize, best: &mut Vec<Candidate>) {
    best.clear();
    let count = count.min(logits.len());
    if count == 0 {
        return;
    }
    // Room for twice as many: halved by selection when full, so each token is looked at a few times at most.
    let mut floor = f32::NEG_INFINITY;
    for (token, &logit) in logits.iter().enumerate() {
        if logit < floor {
            continue;
        }
        best.push(Candidate { token: token as u32, logit });
        if best.len() >= 2 * count + 64 {
            best.select_nth_unstable_by(count - 1, |a, b| a.order(*b));
            best.truncate(count);
            floor = best[count - 1].logit;
        }
    }
    best.sort_unstable_by(|a, b| a.order(*b));
    best.truncate(count);
}

/// How many of weights in falling order reach `share` of their sum; at least one.
pub(super) fn reach(weights: &[f32], share: f32) -> usize {
    if share >= 1.0 {
        return weights.len();
    }
    let wanted = total(weights) * f64::from(share);
    let mut reached = 0.0;
    let enough = weights.iter().position(|&weight| {
        reached += f64::from(weight);
        reached >= wanted
    });
    enough.map_or(weights.len(), |index| index + 1)
}

/// Eight to each halving of a weight; what is lighter than 2^-32 goes into the last.
const BINS: usize = 256;

/// Monotone in the weight, which is all that counts: its exponent and the first three bits after it.
fn bin(weight: f32) -> usize {
    let from_one = (1.0_f32.to_bits() >> 20).saturating_sub(weight.to_bits() >> 20);
    (from_one as usize).min(BINS - 1)
}

/// Zeroes all weights (of at most 1) but the heaviest whose sum reaches `share` of the total; at least one
/// stays. Only the bin where the sum is reached is sorted.
pub(super) fn keep_top(weights: &mut [f32], share: f32, bin_members: &mut Vec<Candidate>) {
    let mut sums = [0.0_f64; BINS];
    for &weight in weights.iter() {
        sums[bin(weight)] += f64::from(weight);
    }
    let wanted = sums.iter().sum::<f64>() * f64::from(share.max(0.0));
    let mut reached = 0.0;
    let mut border = BINS - 1;
    for (index, sum) in sums.iter().enumerate() {
        if *sum > 0.0 && reached + sum >= wanted {
            border = index;
            break;
        }
        reached += sum;
    }
    bin_members.clear();
    for (token, &weight) in weights.iter().enumerate() {
        if weight > 0.0 && bin(weight) == border {
            bin_members.push(Candidate { token: token as u32, logit: weight });
        }
    }
    bin_members.sort_unstable_by(|a, b| a.order(*b));
    let mut last = None;
    for candidate in bin_members.iter() {
        last = Some(*candidate);
        reached += f64::from(candidate.logit);
        if reached >= wanted {
            break;
        }
    }
    let Some(last) = last else { return };
    for (token, weight) in weights.iter_mut().enumerate() {
        if (Candidate { token: token as u32, logit: *weight }).order(last).is_gt() {
            *weight = 0.0;
        }
    }
}

/// Index where the running sum of weights, in their order, passes this fraction of the total.
pub(super) fn at(weights: &[f32], fraction: f64) -> usize {
    let mut left = total(weights) * fraction;
    for (index, chunk) in weights.chunks(CHUNK).enumerate() {
        let sum = sum(chunk);
        if left < sum {
            return index * CHUNK + within(chunk, left);
        }
        left -= sum;
    }
    // Only rounding leads here.
    weights.iter().rposition(|&weight| weight > 0.0).unwrap_or(0)
}

fn within(weights: &[f32], mut left: f64) -> usize {
    let mut last = 0;
    for (index, &weight) in weights.iter().enumerate().filter(|&(_, &weight)| weight > 0.0) {
        last = index;
        left -= f64::from(weight);
        if left < 0.0 {
            break;
        }
    }
    last
}

/// Weights that are summed in single precision; their sums are summed in double.
const CHUNK: usize = 128;

fn total(weights: &[f32]) -> f64 {
    weights.chunks(CHUNK).map(sum).sum()
}

/// Of one chunk, in lanes.
fn sum(weights: &[f32]) -> f64 {
    const LANES: usize = 8;
    let chunks = weights.chunks_exact(LANES);
    let mut lanes = [0.0_f32; LANES];
    let rest: f32 = chunks.remainder().iter().sum();
    for chunk in chunks {
        for (lane, weight) in lanes.iter_mut().zip(chunk) {
            *lane += weight;
        }
    }
    f64::from(rest) + lanes.iter().map(|&lane| f64::from(lane)).sum::<f64>()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn exp_is_close_to_the_real_one() {
        for step in 0..87_000 {
            let x = -(step as f32) / 1000.0;
            let (ours, real) = (exp(x), x.exp());
            assert!((ours - real).abs() <= real * 3e-7, "{x}: {ours} {real}");
        }
        assert_eq!((exp(0.0), exp(f32::NEG_INFINITY), exp(-1e30)), (1.0, 0.0, 0.0));
    }

    #[test]
    fn bad_logits_are_told_apart() {
        assert_eq!(check(&[1.0, f32::NEG_INFINITY, 3.0]), Ok(3.0));
        assert_eq!(check(&[1.0, f32::NAN]), Err(Undrawable::NotANumber));
        let mut long = vec![0.0; 100];
        long[40] = f32::NAN;
        assert_eq!(check(&long), Err(Undrawable::NotANumber));
        assert_eq!(check(&[1.0, f32::INFINITY]), Err(Undrawable::NotANumber));
        assert_eq!(check(&[f32::NEG_INFINITY; 20]), Err(Undrawable::NothingAllowed));
        assert_eq!(check(&[]), Err(Undrawable::NothingAllowed));
    }

    fn sorted(logits: &[f32]) -> Vec<Candidate> {
        let all = logits.iter().enumerate();
        let mut all: Vec<_> = all.map(|(token, &logit)| Candidate { token: token as u32, logit }).collect();
        all.sort_by(|a, b| a.order(*b));
        all
    }

    proptest! {
        #[test]
        fn the_best_are_those_of_a_full_sort(
            logits in prop::collection::vec((-40i32..40).prop_map(|x| x as f32 / 4.0), 1..400),
            count in 0usize..450,
        ) {
            let mut found = Vec::new();
            best(&logits, count, &mut found);
            let mut expected = sorted(&logits);
            expected.truncate(count);
            prop_assert_eq!(found, expected);
            for (place, of) in sorted(&logits).into_iter().enumerate() {
                prop_assert_eq!(rank(&logits, of.token as usize, of.logit) as usize, place + 1);
            }
        }

        #[test]
        fn the_heaviest_are_those_of_a_full_sort(
            logits in prop::collection::vec((-400i32..=0).prop_map(|x| x as f32 / 16.0), 1..300),
            share in 0.0f32..1.0,
        ) {
            let mut weights: Vec<f32> = logits.iter().map(|&logit| exp(logit)).collect();
            let order = sorted(&weights);
            let total: f64 = weights.iter().map(|&weight| f64::from(weight)).sum();
            keep_top(&mut weights, share, &mut Vec::new());
            let kept = weights.iter().filter(|&&weight| weight > 0.0).count();
            prop_assert!(kept >= 1);
            let sum = |count: usize| order[..count].iter().map(|kept| f64::from(kept.logit)).sum::<f64>() / total;
            prop_assert!(sum(kept) >= f64::from(share) - 1e-9, "too few");
            prop_assert!(kept == 1 || sum(kept - 1) < f64::from(share) + 1e-9, "too many");
            for candidate in &order[..kept] {
                prop_assert!(weights[candidate.token as usize] > 0.0, "a heavier one was cut");
            }
        }
    }
}
