//! What the engine tells of itself: written by the engine's thread each step, read by anyone, without a lock.
//!
//! Each number is right on its own; two of them may be a step apart.

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use shared::time::Instant;

use super::clock;

/// Upper bounds of [`Snapshot::step_rows`]'s buckets, in rows a step (vLLM's `iteration_tokens_total`).
pub const STEP_ROWS_BOUNDS: [u64; 12] = [1, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192];

/// The engine's numbers at some moment.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Snapshot {
    /// Sequences in the running set.
    pub running: u32,
    /// Sequences that wait, those in the inbox too.
    pub waiting: u32,
    /// Prompt tokens still to be computed over all sequences the scheduler knows.
    pub waiting_tokens: u64,
    /// Blocks nobody holds; cached ones count as free.
    pub blocks_free: u32,
    /// Blocks in the pool.
    pub blocks_total: u32,
    /// Measured prefill rate, tokens a second; absent until measured.
    pub prefill_tokens_per_s: Option<f64>,
    /// Measured decode rate over all sequences, tokens a second; absent until measured.
    pub decode_tokens_per_s: Option<f64>,
    /// Sequences that gave their blocks back and waited again, since the start.
    pub preemptions: u64,
    /// Prompt tokens looked up in the prefix cache, since the start.
    pub prefix_queries: u64,
    /// Prompt tokens found there, since the start.
    pub prefix_hits: u64,
    /// Prompt tokens computed or found, since the start.
    pub prompt_tokens: u64,
    /// Tokens sampled, since the start.
    pub generation_tokens: u64,
    /// Steps run, since the start.
    pub steps: u64,
    /// Rows of each step: a cumulative count for each of [`STEP_ROWS_BOUNDS`], then one for all.
    pub step_rows: [u64; 13],
    /// Sum of the above rows.
    pub step_rows_sum: u64,
    /// Time spent in steps, since the start.
    pub step_time: Duration,
    /// Whether it takes nothing new.
    pub draining: bool,
    /// Whether its thread has ended.
    pub ended: bool,
}

/// The shared cells behind [`Snapshot`].
#[derive(Debug, Default)]
pub(crate) struct Stats {
    /// Sequences submitted and not yet ended.
    pub outstanding: AtomicU32,
    pub running: AtomicU32,
    pub waiting_tokens: AtomicU64,
    pub blocks_free: AtomicU32,
    pub blocks_total: AtomicU32,
    /// Bits of an f64; 0 before the first measurement.
    pub prefill_rate: AtomicU64,
    /// Bits of an f64; 0 before the first measurement.
    pub decode_rate: AtomicU64,
    pub preemptions: AtomicU64,
    pub prefix_queries: AtomicU64,
    pub prefix_hits: AtomicU64,
    pub prompt_tokens: AtomicU64,
    pub generation_tokens: AtomicU64,
    pub steps: AtomicU64,
    step_rows: [AtomicU64; 13],
    step_rows_sum: AtomicU64,
    step_nanos: AtomicU64,
    /// When the engine last finished a step or found itself idle.
    progress: AtomicU64,
    pub draining: AtomicBool,
    pub ended: AtomicBool,
}

impl Stats {
    /// Takes one of `max` places for a new sequence.
    pub fn take_place(&self, max: u32) -> bool {
        if self.outstanding.load(Relaxed) == 0 {
            // The time spent idle is no stall.
            self.note_progress();
        }
        let more = |held: u32| (held < max).then_some(held + 1);
        self.outstanding.fetch_update(Relaxed, Relaxed, more).is_ok()
    }

    /// Gives a place back: the sequence has ended.
    pub fn give_place(&self) {
        let before = self.outstanding.fetch_sub(1, Relaxed);
        assert!(before > 0, "a sequence ended that was never submitted");
    }

    /// Counts one step.
    pub fn count_step(&self, rows: usize, took: Duration) {
        let bucket = STEP_ROWS_BOUNDS.partition_point(|&bound| bound < rows as u64);
        self.step_rows[bucket].fetch_add(1, Relaxed);
        self.step_rows_sum.fetch_add(rows as u64, Relaxed);
        self.step_nanos.fetch_add(took.as_nanos() as u64, Relaxed);
        self.steps.fetch_add(1, Relaxed);
    }

    /// Notes that the engine is alive and has got somewhere.
    pub fn note_progress(&self) {
        self.progress.store(clock::now().0, Relaxed);
    }

    /// How long there has been work without any progress; zero when idle.
    pub fn stalled_for(&self, now: Instant) -> Duration {
        if self.outstanding.load(Relaxed) == 0 || self.ended.load(Relaxed) {
            return Duration::ZERO;
        }
        now.since(Instant(self.progress.load(Relaxed)))
    }

    /// All numbers now.
    pub fn snapshot(&self) -> Snapshot {
        let running = self.running.load(Relaxed);
        let rate = |cell: &AtomicU64| Some(f64::from_bits(cell.load(Relaxed))).filter(|&rate| rate > 0.0);
        let mut step_rows = [0; 13];
        let mut below = 0;
        for (cumulative, bucket) in step_rows.iter_mut().zip(&self.step_rows) {
            below += bucket.load(Relaxed);
            *cumulative = below;
        }
        Snapshot {
            running,
            waiting: self.outstanding.load(Relaxed).saturating_sub(running),
            waiting_tokens: self.waiting_tokens.load(Relaxed),
            blocks_free: self.blocks_free.load(Relaxed),
            blocks_total: self.blocks_total.load(Relaxed),
            prefill_tokens_per_s: rate(&self.prefill_rate),
            decode_tokens_per_s: rate(&self.decode_rate),
            preemptions: self.preemptions.load(Relaxed),
            prefix_queries: self.prefix_queries.load(Relaxed),
            prefix_hits: self.prefix_hits.load(Relaxed),
            prompt_tokens: self.prompt_tokens.load(Relaxed),
            generation_tokens: self.generation_tokens.load(Relaxed),
            steps: self.steps.load(Relaxed),
            step_rows,
            step_rows_sum: self.step_rows_sum.load(Relaxed),
            step_time: Duration::from_nanos(self.step_nanos.load(Relaxed)),
            draining: self.draining.load(Relaxed),
            ended: self.ended.load(Relaxed),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_bounded_and_come_back() {
        let stats = Stats::default();
        assert!(stats.take_place(2) && stats.take_place(2));
        assert!(!stats.take_place(2));
        stats.give_place();
        assert!(stats.take_place(2));
    }

    #[test]
    fn rows_of_steps_are_counted_cumulatively() {
        let stats = Stats::default();
        for rows in [1, 8, 9, 10_000] {
            stats.count_step(rows, Duration::from_millis(1));
        }
        let seen = stats.snapshot();
        assert_eq!(seen.step_rows[..4], [1, 2, 3, 3]);
        assert_eq!((seen.step_rows[12], seen.step_rows_sum, seen.steps), (4, 10_018, 4));
    }

    #[test]
    fn an_idle_engine_is_never_stalled() {
        let stats = Stats::default();
        assert_eq!(stats.stalled_for(Instant(u64::MAX)), Duration::ZERO);
        assert!(stats.take_place(2));
        assert!(stats.stalled_for(clock::now()) < Duration::from_mins(1), "idle time counts as a stall");
        stats.progress.store(0, Relaxed);
        assert!(stats.take_place(2), "a second one does not excuse the first");
        assert_eq!(stats.stalled_for(Instant(7)), Duration::from_nanos(7));
    }
}
