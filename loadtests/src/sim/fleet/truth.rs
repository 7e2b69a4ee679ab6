//! What is really there, for policies that may know it.

use std::time::Duration;

use replica_core::capacity::StepShape;
use shared::time::Instant;

use super::{Seat, Simulation};
use crate::sim::policy::Truth;
use crate::sim::replica::BLOCK_TOKENS;

impl Simulation<'_> {
    /// One entry a seat for one request; empty where the policy does not ask.
    pub(super) fn truths(&self, request: usize) -> Vec<Truth> {
        if !self.wants_truth {
            return Vec::new();
        }
        let chain = &self.requests[request].chain;
        let prompt_tokens = self.requests[request].prompt_tokens;
        let truth = |seat: &Seat| seat.truth(chain, prompt_tokens, self.answer_s_mean, self.now());
        self.seats.iter().map(truth).collect()
    }

    /// A request goes to a seat: its blocks will be there.
    pub(super) fn expect(&mut self, seat: usize, request: usize) {
        let (seat, request) = (&mut self.seats[seat], &self.requests[request]);
        seat.on_the_way_tokens += u64::from(request.prompt_tokens);
        for &hash in &request.chain {
            *seat.coming.entry(hash).or_default() += 1;
        }
    }

    pub(super) fn unexpect(&mut self, seat: usize, request: usize) {
        let (seat, request) = (&mut self.seats[seat], &self.requests[request]);
        for hash in &request.chain {
            if let Some(count) = seat.coming.get_mut(hash) {
                *count -= 1;
                if *count == 0 {
                    seat.coming.remove(hash);
                }
            }
        }
    }
}

impl Seat {
    fn truth(
        &self,
        chain: &[shared::id::BlockHash],
        prompt_tokens: u32,
        answer_s: f64,
        now: Instant,
    ) -> Truth {
        let Some(replica) = &self.replica else { return Truth { ttft: Duration::MAX, ..Truth::default() } };
        let load = replica.load();
        let here = replica.cached_tokens(chain);
        let coming = chain[(here / BLOCK_TOKENS) as usize..]
            .iter()
            .take_while(|hash| self.coming.contains_key(hash))
            .count();
        let cached_tokens = (here + coming as u32 * BLOCK_TOKENS).min(prompt_tokens - 1);
        let uncached = f64::from(prompt_tokens - cached_tokens);
        let ahead = (load.waiting_tokens + self.on_the_way_tokens) as f64;
        let lacking = uncached / f64::from(BLOCK_TOKENS) - f64::from(load.blocks_free);
        let places = f64::from(load.running + load.waiting + 1) - f64::from(self.machine.running_max);
        let step_left = replica.step_end().map_or(Duration::ZERO, |end| end.since(now));
        let seconds = (ahead + uncached) * self.prompt_token_s(load.running)
            + lacking.max(0.0) / f64::from(load.blocks) * answer_s
            + places.max(0.0) / f64::from(self.machine.running_max) * answer_s;
        Truth {
            running: load.running,
            waiting: load.waiting,
            waiting_max: replica.limits().waiting_max,
            kv_usage: 1.0 - f64::from(load.blocks_free) / f64::from(load.blocks),
            cached_tokens,
            ttft: step_left + Duration::from_secs_f64(seconds).mul_f64(replica.slowness),
        }
    }

    /// Seconds of a prompt token beside so many decoding sequences.
    fn prompt_token_s(&self, decodes: u32) -> f64 {
        let rows = self.machine.step_tokens_max;
        let step = self.machine.time().step(StepShape { rows, context_tokens: 0 });
        step.as_secs_f64() / f64::from(rows.saturating_sub(decodes).max(1))
    }
}
