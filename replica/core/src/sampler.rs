//! Logits to a token.
//!
//! In the order that vLLM has: bans, biases and penalties; temperature; min-p; top-k; top-p. Log-probabilities
//! are of the distribution before all of these. The random number of a token is a function of its request's
//! seed and its index in the answer, so what rides along in the batch never changes a token. Knows nothing of
//! models or queues; a mask of a grammar is minus infinity in the logits before they come here.

mod history;
mod select;
#[cfg(test)]
mod tests;

use std::fmt;

use xxhash_rust::xxh3::xxh3_64_with_seed;

pub use self::history::History;
use self::select::Candidate;

/// Below this a temperature takes the best token.
const GREEDY_BELOW: f32 = 1e-5;

/// How a request wants its tokens drawn.
#[derive(Clone, PartialEq, Debug)]
pub struct Sampling {
    /// 0 takes the best token.
    pub temperature: f32,
    /// Keep the smallest set of tokens whose probability reaches this; 1 keeps all.
    pub top_p: f32,
    /// Keep this many tokens; 0 keeps all.
    pub top_k: u32,
    /// Keep tokens at least this probable relative to the best; 0 keeps all.
    pub min_p: f32,
    /// Taken off a token's logit once it is in the answer.
    pub presence_penalty: f32,
    /// Taken off for each time it is in the answer.
    pub frequency_penalty: f32,
    /// Divides (or multiplies, when negative) logits of tokens in prompt or answer; 1 does nothing.
    pub repetition_penalty: f32,
    /// Added to single logits.
    pub logit_bias: Vec<(u32, f32)>,
    /// Token sequences that must not come: the last of one is banned where the answer ends in the others.
    pub bad_words: Vec<Vec<u32>>,
    /// A token's random number is a function of this and its index in the answer.
    pub seed: u64,
    /// Log-probabilities to report: the drawn token's and this many of the best.
    pub logprobs: Option<u32>,
}

impl Default for Sampling {
    fn default() -> Self {
        Self {
            temperature: 1.0,
            top_p: 1.0,
            top_k: 0,
            min_p: 0.0,
            presence_penalty: 0.0,
            frequency_penalty: 0.0,
            repetition_penalty: 1.0,
            logit_bias: Vec::new(),
            bad_words: Vec::new(),
            seed: 0,
            logprobs: None,
        }
    }
}

/// A drawn token with what was asked about it.
#[derive(Clone, PartialEq, Debug)]
pub struct Sampled {
    /// The token.
    pub token: u32,
    /// Its log-probability, where asked (of the distribution before temperature and cuts, as vLLM has it).
    pub logprob: Option<f32>,
    /// Its place among all tokens by probability, from 1, where asked.
    pub rank: Option<u32>,
    /// The best tokens with theirs, best first, where asked.
    pub top: Vec<(u32, f32)>,
}

impl Sampled {
    /// A token about which nothing was asked.
    pub fn unscored(token: u32) -> Self {
        Self { token, logprob: None, rank: None, top: Vec::new() }
    }
}

/// Why no token can be drawn.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Undrawable {
    /// A logit is not a number, or is infinite.
    NotANumber,
    /// Everything is banned.
    NothingAllowed,
}

impl fmt::Display for Undrawable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NotANumber => "the model gave a logit that is not a number",
            Self::NothingAllowed => "every token is banned here",
        })
    }
}

impl std::error::Error for Undrawable {}

/// What one draw depends on besides its logits.
#[derive(Clone, Copy, Debug)]
pub struct Draw<'a> {
    /// What the request asks for.
    pub sampling: &'a Sampling,
    /// What penalties count.
    pub history: &'a History,
    /// The answer so far; its length is the index of the token to draw.
    pub answer: &'a [u32],
    /// Tokens that must not come yet: the stop tokens until `answer_tokens_min` is reached.
    pub suppressed: &'a [u32],
}

/// Draws tokens; keeps its working memory from draw to draw.
#[derive(Debug, Default)]
pub struct Sampler {
    raw: Vec<f32>,
    weights: Vec<f32>,
    candidates: Vec<Candidate>,
}

impl Sampler {
    /// Draws the next token. The logits are used up.
    pub fn sample(&mut self, logits: &mut [f32], draw: Draw<'_>) -> Result<Sampled, Undrawable> {
        let sampling = draw.sampling;
        if let Some(top) = sampling.logprobs {
            select::check(logits)?;
            self.raw.clear();
            self.raw.extend_from_slice(logits);
            adjust(logits, draw);
            let token = self.pick(logits, sampling, draw.answer.len())?;
            let raw = std::mem::take(&mut self.raw);
            let sampled = self.score(&raw, token, top);
            self.raw = raw;
            return sampled;
        }
        adjust(logits, draw);
        let token = self.pick(logits, sampling, draw.answer.len())?;
        Ok(Sampled::unscored(token))
    }

    /// The log-probability of a given token and of the `top` best: what a prompt's own tokens are told with.
    pub fn score(&mut self, logits: &[f32], token: u32, top: u32) -> Result<Sampled, Undrawable> {
        let best = select::check(logits)?;
        let total: f64 = logits.iter().map(|logit| f64::from(select::exp(logit - best))).sum();
        let norm = best + total.ln() as f32;
        select::best(logits, top as usize, &mut self.candidates);
        let top = self.candidates.iter().map(|candidate| (candidate.token, candidate.logit - norm)).collect();
        let own = logits.get(token as usize).copied();
        let rank = own.map(|own| select::rank(logits, token as usize, own));
        Ok(Sampled { token, logprob: own.map(|own| own - norm), rank, top })
    }

    fn pick(&mut self, logits: &[f32], sampling: &Sampling, index: usize) -> Result<u32, Undrawable> {
        let best = select::check(logits)?;
        if sampling.temperature < GREEDY_BELOW {
            return Ok(select::position(logits, best));
        }
        let fraction = uniform(sampling.seed, index);
        let warmth = 1.0 / sampling.temperature;
        let floor = min_p_floor(best, sampling);
        let weight = |logit: f32| {
            // Computed for all: a branch would keep the compiler from doing several at once.
            let weight = select::exp((logit - best) * warmth);
            if logit >= floor { weight } else { 0.0 }
        };
        self.weights.clear();
        let top_k = sampling.top_k as usize;
        if top_k > 0 && top_k < logits.len() {
            select::best(logits, top_k, &mut self.candidates);
            self.weights.extend(self.candidates.iter().map(|candidate| weight(candidate.logit)));
            self.weights.truncate(select::reach(&self.weights, sampling.top_p));
            return Ok(self.candidates[select::at(&self.weights, fraction)].token);
        }
        self.weights.extend(logits.iter().map(|&logit| weight(logit)));
        if sampling.top_p < 1.0 {
            select::keep_top(&mut self.weights, sampling.top_p, &mut self.candidates);
        }
        Ok(select::at(&self.weights, fraction) as u32)
    }
}

/// The least logit whose token is `min_p` as probable as the best.
fn min_p_floor(best: f32, sampling: &Sampling) -> f32 {
    if sampling.min_p > 0.0 { best + sampling.min_p.ln() * sampling.temperature } else { f32::MIN }
}

/// In [0, 1): 53 bits of xxh3 over the index, seeded by the request.
fn uniform(seed: u64, index: usize) -> f64 {
    let bits = xxh3_64_with_seed(&(index as u64).to_le_bytes(), seed);
    (bits >> 11) as f64 / (1u64 << 53) as f64
}

/// Bans, biases and penalties. Tokens beyond the vocabulary are ignored.
fn adjust(logits: &mut [f32], draw: Draw<'_>) {
    let sampling = draw.sampling;
    draw.history.apply(logits, sampling);
    for &(token, bias) in &sampling.logit_bias {
        if let Some(logit) = logits.get_mut(token as usize) {
            *logit += bias;
        }
    }
    let ended = sampling.bad_words.iter().filter_map(|word| {
        let (&last, start) = word.split_last()?;
        draw.answer.ends_with(start).then_some(last)
    });
    for token in ended.chain(draw.suppressed.iter().copied()) {
        if let Some(logit) = logits.get_mut(token as usize) {
            *logit = f32::NEG_INFINITY;
        }
    }
}
