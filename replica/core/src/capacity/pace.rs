//! How fast steps have been, and so how many prompt rows fit in the next one.

use std::time::Duration;

/// Rows of prompt in a step before anything was measured.
const FIRST_PROMPT_TOKENS: u32 = 128;

/// What an observation keeps of its weight when the next one comes.
const MEMORY: f64 = 0.9;

/// Numbers of decoding rows are learned by powers of two.
const SIZES: usize = 16;

/// A forgetful quotient: seconds over a count.
#[derive(Clone, Copy, Debug, Default)]
struct Rate {
    seconds: f64,
    count: f64,
}

impl Rate {
    fn observe(&mut self, seconds: f64, count: f64) {
        self.seconds = self.seconds * MEMORY + seconds;
        self.count = self.count * MEMORY + count;
    }

    fn seconds_each(&self) -> Option<f64> {
        (self.count > 0.0).then(|| self.seconds / self.count)
    }

    fn per_second(&self) -> Option<f64> {
        (self.count > 0.0 && self.seconds > 0.0).then(|| self.count / self.seconds)
    }
}

/// Learned from every step. Prompt rows are charged what a step took beyond a step of its decoding rows
/// alone, so the two rates do not blur each other.
#[derive(Clone, Debug)]
pub struct Pace {
    /// Time of a step without prompts, by the logarithm of its rows.
    decode_steps: [Rate; SIZES],
    decode: Rate,
    prompt: Rate,
    /// A step may hold twice the prompt rows that one has held: a first guess is never far off for long.
    proven_tokens: u32,
}

impl Default for Pace {
    fn default() -> Self {
        Self {
            decode_steps: [Rate::default(); SIZES],
            decode: Rate::default(),
            prompt: Rate::default(),
            proven_tokens: FIRST_PROMPT_TOKENS / 2,
        }
    }
}

impl Pace {
    /// A step of so many prompt and decode rows took `took`.
    pub fn observe(&mut self, prompt_tokens: u32, decode_rows: u32, took: Duration) {
        let seconds = took.as_secs_f64();
        if prompt_tokens == 0 {
            if decode_rows > 0 {
                self.decode_steps[size(decode_rows)].observe(seconds, 1.0);
                self.decode.observe(seconds, f64::from(decode_rows));
            }
            return;
        }
        let beyond = (seconds - self.decode_seconds(decode_rows.max(1))).max(seconds / 100.0);
        self.prompt.observe(beyond, f64::from(prompt_tokens));
        self.proven_tokens = self.proven_tokens.max(prompt_tokens);
    }

    /// How many prompt rows fit in a step of `target` beside so many decoding ones.
    pub fn prompt_tokens(&self, decode_rows: u32, target: Duration) -> u32 {
        let most = self.proven_tokens.saturating_mul(2);
        let Some(each) = self.prompt.seconds_each() else { return most };
        let spare = target.as_secs_f64() - self.decode_seconds(decode_rows);
        ((spare / each).clamp(0.0, f64::from(most))) as u32
    }

    /// Prompt tokens a second; `None` until measured.
    pub fn prefill_tokens_per_s(&self) -> Option<f64> {
        self.prompt.per_second()
    }

    /// Answer tokens a second over all sequences; `None` until measured.
    pub fn decode_tokens_per_s(&self) -> Option<f64> {
        self.decode.per_second()
    }

    /// Time of a step of decoding rows alone: that of the nearest size measured, zero where none was.
    fn decode_seconds(&self, rows: u32) -> f64 {
        if rows == 0 {
            return 0.0;
        }
        let wanted = size(rows);
        let known = (0..SIZES)
            .filter_map(|size| Some((size.abs_diff(wanted), self.decode_steps[size].seconds_each()?)));
        known.min_by_key(|&(distance, _)| distance).map_or(0.0, |(_, seconds)| seconds)
    }
}

fn size(rows: u32) -> usize {
    (rows.ilog2() as usize).min(SIZES - 1)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const TARGET: Duration = Duration::from_millis(100);

    /// A machine with a fixed cost a step and a cost a row.
    fn step(step_us: u64, row_us: u64, prompt: u32, decode: u32) -> Duration {
        Duration::from_micros(step_us + row_us * u64::from(prompt + decode))
    }

    #[test]
    fn nothing_measured_is_a_cautious_guess() {
        assert_eq!(Pace::default().prompt_tokens(0, TARGET), FIRST_PROMPT_TOKENS);
        assert_eq!(Pace::default().prefill_tokens_per_s(), None);
    }

    #[test]
    fn a_short_tail_does_not_spoil_the_rate() {
        let mut pace = Pace::default();
        for _ in 0..20 {
            pace.observe(0, 1, step(8_000, 1_000, 0, 1));
            pace.observe(90, 1, step(8_000, 1_000, 90, 1));
        }
        let before = pace.prompt_tokens(1, TARGET);
        pace.observe(2, 1, step(8_000, 1_000, 2, 1));
        let after = pace.prompt_tokens(1, TARGET);
        assert!(before.abs_diff(after) < before / 10, "{before} {after}");
    }

    #[test]
    fn rates_are_tokens_a_second() {
        let mut pace = Pace::default();
        for _ in 0..50 {
            pace.observe(0, 10, Duration::from_millis(20));
            pace.observe(100, 10, Duration::from_millis(120));
        }
        let (prefill, decode) = (pace.prefill_tokens_per_s().unwrap(), pace.decode_tokens_per_s().unwrap());
        assert!((prefill - 1000.0).abs() < 1.0, "{prefill}");
        assert!((decode - 500.0).abs() < 1.0, "{decode}");
    }

    proptest! {
        /// Whatever the machine, a step that is planned by the pace soon takes about the target.
        #[test]
        fn steps_come_to_take_the_target(step_us in 0u64..20_000, row_us in 20u64..2_000, decode in 0u32..20) {
            let mut pace = Pace::default();
            for _ in 0..80 {
                pace.observe(0, decode, step(step_us, row_us, 0, decode));
                let prompt = pace.prompt_tokens(decode, TARGET);
                pace.observe(prompt, decode, step(step_us, row_us, prompt, decode));
            }
            let took = step(step_us, row_us, pace.prompt_tokens(decode, TARGET), decode);
            prop_assert!(took <= TARGET * 12 / 10, "{took:?}");
            prop_assert!(took >= TARGET * 8 / 10, "{took:?}");
        }
    }
}
