//! Who takes which part of a job: every thread has a share of its own, and helps others when it is done.
//!
//! A counter for all would be handed from core to core for each part, and that costs more than many a part.

use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};

/// How much of each thread's share is taken, each on a cache line of its own.
#[derive(Debug)]
pub struct Shares {
    cursors: Box<[Cursor]>,
}

/// The job's number, its lower half, then whether the owner came, then how much of its share is taken. Another
/// number means that nothing was, so that nobody has to reset cursors between jobs.
#[derive(Debug, Default)]
#[repr(align(128))]
struct Cursor(AtomicU64);

const NUMBER_SHIFT: u32 = 32;
const CAME: u64 = 1 << 31;
const TAKEN: u64 = CAME - 1;
/// Part of what is left of a share that is taken at once: few parts at first, small ones at last.
const FRACTION: usize = 4;

impl Shares {
    /// For so many threads.
    pub fn new(threads: usize) -> Self {
        Self { cursors: (0..threads).map(|_| Cursor::default()).collect() }
    }

    /// Takes the next part of `0..count` in job `number` for `thread`: from its own share, then from those
    /// after it. Parts have at least `grain` units, but for the last of a share.
    pub fn take(&self, thread: usize, number: u64, count: usize, grain: usize) -> Option<Range<usize>> {
        let threads = self.cursors.len();
        (thread..threads).chain(0..thread).find_map(|owner| {
            let share = count * owner / threads..count * (owner + 1) / threads;
            self.take_from(owner, owner == thread, number, share, grain)
        })
    }

    fn take_from(
        &self,
        owner: usize,
        own: bool,
        number: u64,
        share: Range<usize>,
        grain: usize,
    ) -> Option<Range<usize>> {
        let untouched = number << NUMBER_SHIFT;
        let mut part = 0..0;
        let advance = |cursor: u64| {
            let cursor = if cursor >> NUMBER_SHIFT << NUMBER_SHIFT == untouched { cursor } else { untouched };
            let (came, taken) = (cursor & CAME, (cursor & TAKEN) as usize);
            let left = share.len() - taken;
            // An owner that came goes on to its end, and what little is left lies in its caches already.
            if left == 0 || (!own && came != 0 && left <= share.len() / FRACTION) {
                return None;
            }
            part = share.start + taken..share.start + taken + (left / FRACTION).max(grain).min(left);
            let came = if own { CAME } else { came };
            Some(untouched | came | (taken + part.len()) as u64)
        };
        let cursor = &self.cursors[owner].0;
        cursor.fetch_update(Ordering::Relaxed, Ordering::Relaxed, advance).ok().map(|_| part)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_one_thread_can_take_everything_once_in_job_after_job() {
        let shares = Shares::new(3);
        for number in 1..50 {
            for (count, grain) in [(0, 1), (1, 1), (2, 5), (17, 1), (100, 7)] {
                let job = number * 5 + grain as u64;
                let mut seen = vec![0; count];
                while let Some(part) = shares.take(number as usize % 3, job, count, grain) {
                    part.for_each(|unit| seen[unit] += 1);
                }
                assert!(seen.iter().all(|&times| times == 1), "{count} by {grain}: {seen:?}");
            }
        }
    }

    #[test]
    fn a_thread_begins_with_its_own_share() {
        let shares = Shares::new(4);
        assert_eq!(shares.take(2, 1, 40, 1).map(|part| part.start), Some(20));
        assert_eq!(shares.take(0, 1, 40, 1).map(|part| part.start), Some(0));
    }
}
