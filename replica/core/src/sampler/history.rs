//! Which tokens a sequence has had: what penalties count, kept up token by token.

use rustc_hash::FxHashMap;

use super::Sampling;

#[derive(Clone, Copy, Debug)]
struct Had {
    token: u32,
    /// Times in the answer; zero for tokens of the prompt alone.
    answer: u32,
}

/// The distinct tokens of prompt and answer. Empty, and free, for a request without penalties.
#[derive(Clone, Debug, Default)]
pub struct History {
    counts: bool,
    had: Vec<Had>,
    index: FxHashMap<u32, u32>,
}

impl History {
    /// Of a request whose last `answered` tokens are answer tokens.
    pub fn new(sampling: &Sampling, tokens: &[u32], answered: u32) -> Self {
        let mut history = Self { counts: has_penalty(sampling), ..Self::default() };
        if history.counts {
            let (prompt, answer) = tokens.split_at(tokens.len().saturating_sub(answered as usize));
            for &token in prompt {
                history.add(token, 0);
            }
            for &token in answer {
                history.add(token, 1);
            }
        }
        history
    }

    /// An answer token came.
    pub fn count(&mut self, token: u32) {
        if self.counts {
            self.add(token, 1);
        }
    }

    fn add(&mut self, token: u32, answer: u32) {
        let index = *self.index.entry(token).or_insert_with(|| {
            self.had.push(Had { token, answer: 0 });
            self.had.len() as u32 - 1
        });
        self.had[index as usize].answer += answer;
    }

    /// Lowers the logits of what was there already: first by repetition, then by frequency and presence.
    pub(super) fn apply(&self, logits: &mut [f32], sampling: &Sampling) {
        for had in &self.had {
            let Some(logit) = logits.get_mut(had.token as usize) else { continue };
            let repetition = sampling.repetition_penalty;
            *logit = if *logit > 0.0 { *logit / repetition } else { *logit * repetition };
            if had.answer > 0 {
                *logit -= sampling.presence_penalty + sampling.frequency_penalty * had.answer as f32;
            }
        }
    }
}

fn has_penalty(sampling: &Sampling) -> bool {
    let off = (0.0, 0.0, 1.0);
    (sampling.presence_penalty, sampling.frequency_penalty, sampling.repetition_penalty) != off
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(sampling: &Sampling, tokens: &[u32], answered: u32, expected: [f32; 4]) {
        let mut logits = [2.0, -2.0, 2.0, 2.0];
        History::new(sampling, tokens, answered).apply(&mut logits, sampling);
        assert_eq!(logits.map(f32::to_bits), expected.map(f32::to_bits));
    }

    #[test]
    fn repetition_counts_prompt_and_answer() {
        let sampling = Sampling { repetition_penalty: 2.0, ..Sampling::default() };
        check(&sampling, &[0, 1], 0, [1.0, -4.0, 2.0, 2.0]);
        check(&sampling, &[0, 1, 2], 1, [1.0, -4.0, 1.0, 2.0]);
    }

    #[test]
    fn presence_and_frequency_count_the_answer_alone() {
        let sampling = Sampling { presence_penalty: 0.5, frequency_penalty: 0.25, ..Sampling::default() };
        check(&sampling, &[0, 1, 2, 2], 2, [2.0, -2.0, 1.0, 2.0]);
    }

    #[test]
    fn tokens_beyond_the_vocabulary_are_ignored() {
        let sampling = Sampling { presence_penalty: 0.5, ..Sampling::default() };
        check(&sampling, &[99], 1, [2.0, -2.0, 2.0, 2.0]);
    }

    #[test]
    fn counting_one_by_one_equals_counting_at_once() {
        let sampling = Sampling { frequency_penalty: 0.25, ..Sampling::default() };
        let mut history = History::new(&sampling, &[3], 0);
        for token in [0, 0, 1] {
            history.count(token);
        }
        let (mut one_by_one, mut at_once) = ([2.0; 4], [2.0; 4]);
        history.apply(&mut one_by_one, &sampling);
        History::new(&sampling, &[3, 0, 0, 1], 3).apply(&mut at_once, &sampling);
        assert_eq!(one_by_one.map(f32::to_bits), at_once.map(f32::to_bits));
    }
}
