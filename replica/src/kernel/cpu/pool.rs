//! A bounded pool of threads for one job at a time: every thread runs the job, the caller too.
//!
//! Made for jobs of microseconds: threads spin a little between jobs, then sleep. The caller waits only for
//! threads that came: one that the system has put aside misses the job instead of holding it up.
#![expect(unsafe_code, reason = "threads borrow the caller's job for as long as it waits for them")]

use std::any::Any;
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicPtr, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::{fmt, hint, ptr, thread};

use crate::kernel::{Error, Result};

/// Turns a thread spins before it sleeps: some tens of microseconds, longer than the gap between two jobs
/// of a step and far shorter than a step.
const SPINS: u32 = 4000;

/// State word: the number of the job in the upper half, then whether it is open, then who is inside.
const OPEN: u64 = 1 << 31;
const INSIDE: u64 = OPEN - 1;
const NUMBER_SHIFT: u32 = 32;

/// What every thread runs.
type Job<'a> = &'a (dyn Fn() + Sync + 'a);

/// The threads. One caller at a time; others wait their turn.
pub struct Pool {
    shared: Arc<Shared>,
    workers: Vec<JoinHandle<()>>,
    turn: Mutex<()>,
}

struct Shared {
    state: AtomicU64,
    /// Where the caller keeps the job; valid while somebody is inside or the job is open.
    job: AtomicPtr<Job<'static>>,
    sleeping: AtomicUsize,
    gate: Mutex<bool>,
    wake: Condvar,
    panic: Mutex<Option<String>>,
}

impl Pool {
    /// A pool that runs jobs on `threads` threads, the caller counted.
    pub fn new(threads: usize) -> Self {
        let shared = Arc::new(Shared {
            state: AtomicU64::new(0),
            job: AtomicPtr::new(ptr::null_mut()),
            sleeping: AtomicUsize::new(0),
            gate: Mutex::new(false),
            wake: Condvar::new(),
            panic: Mutex::new(None),
        });
        let workers = (1..threads.max(1)).filter_map(|index| {
            let shared = Arc::clone(&shared);
            // A thread that cannot be had is done without: the others take its work.
            thread::Builder::new().name(format!("kernel-{index}")).spawn(move || shared.work()).ok()
        });
        Self { workers: workers.collect(), shared, turn: Mutex::new(()) }
    }

    /// How many threads run a job.
    pub fn threads(&self) -> usize {
        self.workers.len() + 1
    }

    /// Calls `job` for parts that together are `0..count`, about `grain` long each, on all threads. Which
    /// thread takes which part is left to chance: a job may not depend on it.
    ///
    /// # Errors
    ///
    /// The job panicked on some thread; the pool goes on.
    pub fn each(&self, count: usize, grain: usize, job: impl Fn(Range<usize>) + Sync) -> Result<()> {
        let next = AtomicUsize::new(0);
        let take_parts = || {
            loop {
                let start = next.fetch_add(grain, Ordering::Relaxed);
                if start >= count {
                    return;
                }
                job(start..(start + grain).min(count));
            }
        };
        if count <= grain || self.workers.is_empty() {
            return run_here(&take_parts);
        }
        self.run(&take_parts)
    }

    fn run(&self, job: Job<'_>) -> Result<()> {
        let _turn = self.turn.lock().unwrap_or_else(PoisonError::into_inner);
        let mut place = job;
        // The lifetime is erased: `close` below returns only when no thread holds the job any more.
        self.shared.open(ptr::from_mut(&mut place).cast());
        let here = run_here(job);
        self.shared.close();
        let there = self.shared.panic.lock().unwrap_or_else(PoisonError::into_inner).take();
        here.and(there.map_or(Ok(()), |what| Err(Error::Worker(what))))
    }
}

impl Shared {
    fn open(&self, job: *mut Job<'static>) {
        self.job.store(job, Ordering::Relaxed);
        let number = (self.state.load(Ordering::Relaxed) >> NUMBER_SHIFT) + 1;
        self.state.store(number << NUMBER_SHIFT | OPEN, Ordering::SeqCst);
        if self.sleeping.load(Ordering::SeqCst) > 0 {
            drop(self.gate.lock().unwrap_or_else(PoisonError::into_inner));
            self.wake.notify_all();
        }
    }

    /// Lets nobody in any more and waits for those inside.
    fn close(&self) {
        let mut state = self.state.fetch_and(!OPEN, Ordering::AcqRel);
        let mut spins = 0;
        while state & INSIDE != 0 {
            spins += 1;
            if spins < SPINS {
                hint::spin_loop();
            } else {
                thread::yield_now();
            }
            state = self.state.load(Ordering::Acquire);
        }
    }

    fn work(&self) {
        let mut done = 0;
        while let Some(number) = self.next(done) {
            done = number;
            if !self.enter(number) {
                continue;
            }
            // SAFETY: this thread is counted inside, so the caller is still in `run`, where the job lives.
            let job = unsafe { *self.job.load(Ordering::Relaxed) };
            if let Err(Error::Worker(what)) = run_here(job) {
                *self.panic.lock().unwrap_or_else(PoisonError::into_inner) = Some(what);
            }
            self.state.fetch_sub(1, Ordering::Release);
        }
    }

    /// Counts this thread inside job `number`, if that is still open.
    fn enter(&self, number: u64) -> bool {
        let inside = |state: u64| (state >> NUMBER_SHIFT == number && state & OPEN != 0).then(|| state + 1);
        self.state.fetch_update(Ordering::AcqRel, Ordering::Acquire, inside).is_ok()
    }

    /// Waits for a job after number `done`; `None` when the pool ends.
    fn next(&self, done: u64) -> Option<u64> {
        let newer = || {
            let number = self.state.load(Ordering::SeqCst) >> NUMBER_SHIFT;
            (number != done).then_some(number)
        };
        for _ in 0..SPINS {
            if let Some(number) = newer() {
                return Some(number);
            }
            hint::spin_loop();
        }
        let mut ended = self.gate.lock().unwrap_or_else(PoisonError::into_inner);
        self.sleeping.fetch_add(1, Ordering::SeqCst);
        let number = loop {
            if *ended {
                break None;
            }
            if let Some(number) = newer() {
                break Some(number);
            }
            ended = self.wake.wait(ended).unwrap_or_else(PoisonError::into_inner);
        };
        self.sleeping.fetch_sub(1, Ordering::SeqCst);
        number
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        *self.shared.gate.lock().unwrap_or_else(PoisonError::into_inner) = true;
        self.shared.wake.notify_all();
        for worker in self.workers.drain(..) {
            // A worker catches the panics of its jobs, and its own loop has none.
            let _ = worker.join();
        }
    }
}

impl fmt::Debug for Pool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Pool({} threads)", self.threads())
    }
}

fn run_here(job: Job<'_>) -> Result<()> {
    catch_unwind(AssertUnwindSafe(job)).map_err(|panic| Error::Worker(message(panic.as_ref())))
}

fn message(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(ToString::to_string);
    text.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_else(|| "no message".to_owned())
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicUsize;

    use super::*;

    fn check_all_parts_run_once(pool: &Pool, count: usize, grain: usize) {
        let seen: Vec<_> = (0..count).map(|_| AtomicUsize::new(0)).collect();
        pool.each(count, grain, |part| {
            for index in part {
                seen[index].fetch_add(1, Ordering::Relaxed);
            }
        })
        .unwrap();
        assert!(seen.iter().all(|times| times.load(Ordering::Relaxed) == 1));
    }

    #[test]
    fn every_part_runs_exactly_once() {
        for threads in 1..=4 {
            let pool = Pool::new(threads);
            for round in 0..300 {
                check_all_parts_run_once(&pool, round % 37, 1 + round % 5);
            }
        }
    }

    #[test]
    fn threads_that_fell_asleep_come_back() {
        let pool = Pool::new(3);
        let deadline = std::time::Instant::now() + std::time::Duration::from_secs(20);
        while pool.shared.sleeping.load(Ordering::SeqCst) < 2 {
            assert!(std::time::Instant::now() < deadline, "idle threads never sleep");
            thread::yield_now();
        }
        let both_here = std::sync::Barrier::new(3);
        pool.each(3, 1, |_| {
            both_here.wait();
        })
        .unwrap();
    }

    #[test]
    fn a_panic_on_any_thread_is_an_error_and_the_pool_goes_on() {
        let pool = Pool::new(3);
        let failed = pool.each(64, 1, |part| assert!(part.start != 40, "part {} fails", part.start));
        assert!(matches!(failed, Err(Error::Worker(what)) if what.contains("part 40 fails")));
        check_all_parts_run_once(&pool, 64, 1);
    }

    #[test]
    fn callers_on_several_threads_take_turns() {
        let pool = Pool::new(2);
        thread::scope(|scope| {
            for _ in 0..3 {
                scope.spawn(|| (0..200).for_each(|_| check_all_parts_run_once(&pool, 16, 1)));
            }
        });
    }
}
