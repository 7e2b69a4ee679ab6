//! Rows to time: what a step costs on a machine that nobody has to own.

use std::time::Duration;

use crate::batch::Batch;

/// What of a batch its time depends on.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct StepShape {
    /// Rows.
    pub rows: u32,
    /// KV tokens read, over all shares: each share reads its context once.
    pub context_tokens: u64,
}

impl StepShape {
    /// That of a planned batch.
    pub fn of(batch: &Batch) -> Self {
        let last = |share: &crate::batch::Share| u64::from(batch.positions[share.rows.end - 1]) + 1;
        Self { rows: batch.rows() as u32, context_tokens: batch.shares.iter().map(last).sum() }
    }
}

/// Seconds of a step: a fixed part; the weights read once or the rows multiplied, whichever is longer; the
/// KV read.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct TimeModel {
    /// Launches, synchronisation, sampling.
    pub step_s: f64,
    /// Reading all weights once: what a step of few rows takes at least.
    pub weights_s: f64,
    /// Multiplying one row.
    pub row_s: f64,
    /// Reading one token's KV.
    pub context_token_s: f64,
}

impl TimeModel {
    /// From a machine's figures: bytes and operations a second that it really reaches.
    pub fn of_machine(
        weight_bytes: u64,
        parameters: u64,
        kv_token_bytes: u64,
        bytes_per_s: f64,
        flop_per_s: f64,
    ) -> Self {
        Self {
            step_s: 0.0,
            weights_s: weight_bytes as f64 / bytes_per_s,
            row_s: 2.0 * parameters as f64 / flop_per_s,
            context_token_s: kv_token_bytes as f64 / bytes_per_s,
        }
    }

    /// How long a step takes.
    pub fn step(&self, shape: StepShape) -> Duration {
        if shape.rows == 0 {
            return Duration::ZERO;
        }
        let multiply = f64::from(shape.rows) * self.row_s;
        let read = shape.context_tokens as f64 * self.context_token_s;
        Duration::from_secs_f64(self.step_s + multiply.max(self.weights_s) + read)
    }

    /// Prompt tokens a second when nothing else runs, in steps of `step_tokens`.
    pub fn prefill_tokens_per_s(&self, step_tokens: u32) -> f64 {
        let shape = StepShape { rows: step_tokens, context_tokens: 0 };
        f64::from(step_tokens) / self.step(shape).as_secs_f64()
    }

    /// Answer tokens a second of `sequences` that decode together, each over `context_tokens`.
    pub fn decode_tokens_per_s(&self, sequences: u32, context_tokens: u32) -> f64 {
        let context_tokens = u64::from(sequences) * u64::from(context_tokens);
        f64::from(sequences) / self.step(StepShape { rows: sequences, context_tokens }).as_secs_f64()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Llama 3 8B at bf16 on a card of 2 TB/s and 400 TFLOP/s.
    fn card() -> TimeModel {
        TimeModel::of_machine(16_000_000_000, 8_000_000_000, 131_072, 2e12, 4e14)
    }

    #[test]
    fn few_rows_cost_one_read_of_the_weights() {
        let one = card().step(StepShape { rows: 1, context_tokens: 0 });
        let many = card().step(StepShape { rows: 100, context_tokens: 0 });
        assert_eq!((one, many), (Duration::from_millis(8), Duration::from_millis(8)));
    }

    #[test]
    fn many_rows_cost_their_multiplication() {
        assert!((card().prefill_tokens_per_s(8192) - 25_000.0).abs() < 1.0);
    }

    #[test]
    fn a_long_context_slows_decoding() {
        assert!(card().decode_tokens_per_s(64, 100) > card().decode_tokens_per_s(64, 10_000));
    }

    #[test]
    fn nothing_takes_no_time() {
        assert_eq!(card().step(StepShape::default()), Duration::ZERO);
    }
}
