//! Logits to a token.

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
    /// The best tokens with theirs, best first, where asked.
    pub top: Vec<(u32, f32)>,
}

/// Why no token can be drawn.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Undrawable {
    /// A logit is not a number, or is infinite.
    NotANumber,
    /// Everything is banned.
    NothingAllowed,
}

/// Draws tokens; keeps its working memory from draw to draw.
#[derive(Debug, Default)]
pub struct Sampler {
    weights: Vec<f32>,
}

impl Sampler {
    /// The log-probability of a given token and of the `top` best: what a prompt's own tokens are told with.
    pub fn score(&mut self, _logits: &[f32], _token: u32, _top: u32) -> Result<Sampled, Undrawable> {
        unimplemented!()
    }
}
