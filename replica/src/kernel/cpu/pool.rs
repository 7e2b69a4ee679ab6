//! A bounded pool of threads for one job at a time: every thread runs the job, the caller too.
//!
//! Made for jobs of microseconds: threads spin a little between jobs, then sleep. The caller waits only for
//! threads that came: one that the system has put aside misses the job instead of holding it up.
#![expect(unsafe_code, reason = "threads borrow the caller's job for as long as it waits for them")]

mod shares;

use std::any::Any;
use std::cell::UnsafeCell;
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::{fmt, hint, mem, thread};

use self::shares::Shares;
use crate::kernel::{Error, Result};

/// Turns a thread spins before it sleeps: some tens of microseconds, longer than the gap between two jobs
/// of a step and far shorter than a step.
const SPINS: u32 = 4000;
/// In the notice, beside the job's number: whether threads may still come.
const OPEN: u64 = 1;

/// What every thread runs, told which thread it is and the number of the job.
type Job<'a> = dyn Fn(usize, u64) + Sync + 'a;

/// The threads. One caller at a time; others wait their turn.
pub struct Pool {
    shared: Arc<Shared>,
    others: Vec<JoinHandle<()>>,
    turn: Mutex<()>,
}

/// What threads share. Cache lines go from core to core slowly, so each holds what one side writes.
struct Shared {
    notice: Notice,
    seats: Box<[Seat]>,
    shares: Shares,
    sleeping: AtomicUsize,
    gate: Mutex<bool>,
    wake: Condvar,
    panic: Mutex<Option<String>>,
}

/// The current job. Only the caller writes it, and `job` only while nobody is inside.
#[repr(align(128))]
struct Notice {
    /// Twice the job's number, and [`OPEN`].
    state: AtomicU64,
    job: UnsafeCell<Option<&'static Job<'static>>>,
}

/// Which job a thread is inside, 0 for none. Only that thread writes it.
#[derive(Default)]
#[repr(align(128))]
struct Seat(AtomicU64);

// SAFETY: all but `job` is shared by itself. `job` is written while nobody is inside, and read only inside.
unsafe impl Sync for Shared {}

impl Pool {
    /// A pool that runs jobs on `threads` threads, the caller counted.
    pub fn new(threads: usize) -> Self {
        let others = threads.max(1) - 1;
        let shared = Arc::new(Shared {
            notice: Notice { state: AtomicU64::new(0), job: UnsafeCell::new(None) },
            seats: (0..others).map(|_| Seat::default()).collect(),
            shares: Shares::new(others + 1),
            sleeping: AtomicUsize::new(0),
            gate: Mutex::new(false),
            wake: Condvar::new(),
            panic: Mutex::new(None),
        });
        let threads = (0..others).filter_map(|seat| {
            let shared = Arc::clone(&shared);
            // A thread that cannot be had is done without: the others take its work.
            thread::Builder::new().name(format!("kernel-{}", seat + 1)).spawn(move || shared.work(seat)).ok()
        });
        Self { others: threads.collect(), shared, turn: Mutex::new(()) }
    }

    /// How many threads run a job.
    pub fn threads(&self) -> usize {
        self.others.len() + 1
    }

    /// Calls `job` for parts that together are `0..count`, at least `grain` long each, on all threads. Which
    /// thread takes which part is left to chance: a job may not depend on it. A job starts no other job.
    ///
    /// # Errors
    ///
    /// The job panicked on some thread; the pool goes on.
    pub fn each(&self, count: usize, grain: usize, job: impl Fn(Range<usize>) + Sync) -> Result<()> {
        if count <= grain || self.others.is_empty() {
            return caught(|| job(0..count));
        }
        let shares = &self.shared.shares;
        self.run(&move |thread, number| {
            while let Some(part) = shares.take(thread, number, count, grain) {
                job(part);
            }
        })
    }

    fn run(&self, job: &Job<'_>) -> Result<()> {
        let _turn = self.turn.lock().unwrap_or_else(PoisonError::into_inner);
        // SAFETY: the lifetime is only erased: `close` returns when no thread has the job any more, and the
        // job is caught when it panics, so `close` is always reached.
        let job: &'static Job<'static> = unsafe { mem::transmute(job) };
        let number = self.shared.open(job);
        let here = caught(|| job(0, number));
        self.shared.close(number);
        let there = self.shared.panic.lock().unwrap_or_else(PoisonError::into_inner).take();
        here.and(there.map_or(Ok(()), |what| Err(Error::Thread(what))))
    }
}

impl Shared {
    fn open(&self, job: &'static Job<'static>) -> u64 {
        let number = self.notice.state.load(Ordering::Relaxed) / 2 + 1;
        // SAFETY: the last job is closed, so nobody is inside to read it.
        unsafe {
            *self.notice.job.get() = Some(job);
        }
        self.notice.state.store(number * 2 + OPEN, Ordering::SeqCst);
        if self.sleeping.load(Ordering::SeqCst) > 0 {
            drop(self.gate.lock().unwrap_or_else(PoisonError::into_inner));
            self.wake.notify_all();
        }
        number
    }

    /// Lets nobody in any more and waits for those inside.
    fn close(&self, number: u64) {
        self.notice.state.store(number * 2, Ordering::SeqCst);
        for seat in &self.seats {
            let mut spins = 0;
            while seat.0.load(Ordering::SeqCst) == number {
                spins += 1;
                if spins < SPINS {
                    hint::spin_loop();
                } else {
                    thread::yield_now();
                }
            }
        }
    }

    fn work(&self, seat: usize) {
        let mut done = 0;
        while let Some(number) = self.next(done) {
            done = number;
            if let Some(job) = self.enter(seat, number) {
                if let Err(Error::Thread(what)) = caught(|| job(seat + 1, number)) {
                    *self.panic.lock().unwrap_or_else(PoisonError::into_inner) = Some(what);
                }
                self.seats[seat].0.store(0, Ordering::Release);
            }
        }
    }

    /// Takes the seat for job `number`, if that is still open.
    fn enter(&self, seat: usize, number: u64) -> Option<&'static Job<'static>> {
        // First the seat, then a look at the notice, while the caller first closes, then looks at seats: in
        // their one order, either this thread sees it closed or the caller sees it inside.
        self.seats[seat].0.store(number, Ordering::SeqCst);
        if self.notice.state.load(Ordering::SeqCst) != number * 2 + OPEN {
            self.seats[seat].0.store(0, Ordering::Release);
            return None;
        }
        // SAFETY: this thread is inside, so the caller does not write it until the seat is left.
        unsafe { *self.notice.job.get() }
    }

    /// Waits for a job after number `done`; `None` when the pool ends.
    fn next(&self, done: u64) -> Option<u64> {
        let newer = || {
            let number = self.notice.state.load(Ordering::SeqCst) / 2;
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
        for other in self.others.drain(..) {
            // A thread catches the panics of its jobs, and its own loop has none.
            let _ = other.join();
        }
    }
}

impl fmt::Debug for Pool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Pool({} threads)", self.threads())
    }
}

fn caught(job: impl FnOnce()) -> Result<()> {
    catch_unwind(AssertUnwindSafe(job)).map_err(|panic| Error::Thread(message(panic.as_ref())))
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
        assert!(matches!(failed, Err(Error::Thread(what)) if what.contains("part 40 fails")));
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
