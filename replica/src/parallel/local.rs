//! Ranks as threads of one process that meet in shared memory.
//!
//! Sums run in rank order, so every rank gets the same bits. Every wait has a deadline: a rank that stays away
//! breaks the group for all, and the failure carries its number.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, RwLock};
use std::time::Duration;

use super::{Collective, Fault, RankFailure};
use crate::kernel::{Device, Rows};

/// Where the ranks of one group meet.
#[derive(Debug)]
pub struct Meeting {
    ranks: usize,
    deadline: Duration,
    state: Mutex<State>,
    changed: Condvar,
    /// Two sets of one buffer a rank, used in turn: nobody can come round to a set again before all have
    /// left it, since the other set's meeting lies between.
    parts: [Vec<RwLock<Vec<f32>>>; 2],
}

#[derive(Debug)]
struct State {
    round: u64,
    arrived: Vec<bool>,
    broken: Option<RankFailure>,
}

impl Meeting {
    /// A place for `ranks`, none of which may keep the others waiting longer than `deadline`.
    pub fn new(ranks: usize, deadline: Duration) -> Arc<Self> {
        let set = || (0..ranks).map(|_| RwLock::default()).collect();
        Arc::new(Self {
            ranks,
            deadline,
            state: Mutex::new(State { round: 0, arrived: vec![false; ranks], broken: None }),
            changed: Condvar::new(),
            parts: [set(), set()],
        })
    }

    /// The end of `rank` at this place.
    pub fn seat(self: &Arc<Self>, rank: usize) -> Local {
        assert!(rank < self.ranks, "rank {rank} of {}", self.ranks);
        Local { meeting: Arc::clone(self), rank, turn: 0, total: Vec::new() }
    }

    /// Ends the group for all: whoever waits, or comes later, gets this failure. The first one counts.
    pub fn break_up(&self, failure: RankFailure) {
        let mut state = self.lock();
        if state.broken.is_none() {
            state.broken = Some(failure);
        }
        self.changed.notify_all();
    }

    /// The failure that ended the group, if one did.
    pub fn broken(&self) -> Option<RankFailure> {
        self.lock().broken.clone()
    }

    /// Waits until all ranks are here.
    ///
    /// # Errors
    ///
    /// The group's first failure, or the rank that did not come within `deadline`.
    pub fn meet(&self, rank: usize, deadline: Duration) -> Result<(), RankFailure> {
        let mut state = self.lock();
        if let Some(failure) = &state.broken {
            return Err(failure.clone());
        }
        let round = state.round;
        state.arrived[rank] = true;
        if state.arrived.iter().all(|&arrived| arrived) {
            state.arrived.fill(false);
            state.round += 1;
            self.changed.notify_all();
            return Ok(());
        }
        let waits = |state: &mut State| state.round == round && state.broken.is_none();
        let (mut state, _) =
            self.changed.wait_timeout_while(state, deadline, waits).unwrap_or_else(PoisonError::into_inner);
        if state.round != round {
            return Ok(());
        }
        let missing = state.arrived.iter().position(|&arrived| !arrived).unwrap_or(rank);
        let failure = state.broken.get_or_insert_with(|| RankFailure {
            rank: missing,
            reason: format!("did not come to the collective within {deadline:?}"),
        });
        let failure = failure.clone();
        self.changed.notify_all();
        Err(failure)
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // No code that can panic runs under this lock, and a rank's panic elsewhere breaks the group anyway.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// One rank's end of a [`Meeting`].
#[derive(Debug)]
pub struct Local {
    meeting: Arc<Meeting>,
    rank: usize,
    turn: usize,
    /// Memory of the last result.
    total: Vec<f32>,
}

impl Local {
    /// Puts this rank's part down and waits for the others'; the parts lie in the set whose index comes back.
    fn exchange(&mut self, part: &[f32]) -> Result<usize, RankFailure> {
        let set = self.turn % 2;
        self.turn += 1;
        {
            let mut mine = self.meeting.parts[set][self.rank].write().unwrap_or_else(PoisonError::into_inner);
            mine.clear();
            mine.extend_from_slice(part);
        }
        self.meeting.meet(self.rank, self.meeting.deadline)?;
        Ok(set)
    }

    /// A part as it lies after an exchange.
    fn part(&self, set: usize, rank: usize) -> impl std::ops::Deref<Target = Vec<f32>> + '_ {
        self.meeting.parts[set][rank].read().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Collective for Local {
    fn rank(&self) -> usize {
        self.rank
    }

    fn ranks(&self) -> usize {
        self.meeting.ranks
    }

    fn sum(&mut self, device: &Device, rows: &mut Rows) -> Result<(), Fault> {
        let set = self.exchange(&device.to_host(rows)?)?;
        let mut total = std::mem::take(&mut self.total);
        total.clone_from(&self.part(set, 0));
        for rank in 1..self.meeting.ranks {
            for (sum, more) in total.iter_mut().zip(self.part(set, rank).iter()) {
                *sum += more;
            }
        }
        device.write(rows, &total)?;
        self.total = total;
        Ok(())
    }

    fn gather(&mut self, device: &Device, part: Rows) -> Result<Rows, Fault> {
        let set = self.exchange(&device.to_host(&part)?)?;
        let (count, width) = (part.count(), part.width());
        let whole_width = width * self.meeting.ranks;
        let mut whole = std::mem::take(&mut self.total);
        whole.resize(count * whole_width, 0.0);
        for rank in 0..self.meeting.ranks {
            let columns = self.part(set, rank);
            for (to, from) in whole.chunks_exact_mut(whole_width).zip(columns.chunks_exact(width)) {
                to[rank * width..][..width].copy_from_slice(from);
            }
        }
        let rows = device.from_host(&whole, whole_width)?;
        self.total = whole;
        Ok(rows)
    }
}

#[cfg(test)]
mod tests {
    use std::thread;

    use super::*;

    const DEADLINE: Duration = Duration::from_secs(10);

    /// Runs `each` on every rank of a fresh group.
    fn on_ranks<T: Send>(ranks: usize, each: impl Fn(Local, Device) -> T + Sync) -> Vec<T> {
        let meeting = Meeting::new(ranks, DEADLINE);
        thread::scope(|scope| {
            let each = &each;
            let threads: Vec<_> = (0..ranks)
                .map(|rank| {
                    let seat = meeting.seat(rank);
                    scope.spawn(move || each(seat, Device::cpu(1)))
                })
                .collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).collect()
        })
    }

    #[test]
    fn every_rank_gets_the_same_sums_many_times_over() {
        let sums = on_ranks(3, |mut seat, device| {
            let mut last = Vec::new();
            for round in 0..100u16 {
                let mine = f32::from(round) * 0.1 + seat.rank() as f32;
                let mut rows = device.from_host(&[mine, -mine], 2).unwrap();
                seat.sum(&device, &mut rows).unwrap();
                last = device.to_host(&rows).unwrap().into_owned();
                let expected = 3.0 * f32::from(round) * 0.1 + 3.0;
                assert!((last[0] - expected).abs() < 1e-4, "round {round}: {last:?}");
            }
            last.iter().map(|value| value.to_bits()).collect::<Vec<_>>()
        });
        assert!(sums.iter().all(|sum| *sum == sums[0]));
    }

    #[test]
    fn columns_lie_side_by_side_in_rank_order() {
        let wholes = on_ranks(2, |mut seat, device| {
            let base = seat.rank() as f32 * 10.0;
            let part = device.from_host(&[base, base + 1.0, base + 2.0, base + 3.0], 2).unwrap();
            let whole = seat.gather(&device, part).unwrap();
            device.to_host(&whole).unwrap().into_owned()
        });
        for whole in wholes {
            assert_eq!(whole, [0.0, 1.0, 10.0, 11.0, 2.0, 3.0, 12.0, 13.0]);
        }
    }

    #[test]
    fn a_rank_that_stays_away_is_named_to_all_others() {
        let meeting = Meeting::new(3, DEADLINE);
        let short = Duration::from_millis(50);
        thread::scope(|scope| {
            for rank in [0, 2] {
                let meeting = &meeting;
                scope.spawn(move || assert_eq!(meeting.meet(rank, short).unwrap_err().rank, 1));
            }
        });
        assert_eq!(meeting.meet(1, short).unwrap_err().rank, 1, "a latecomer hears of it too");
    }

    #[test]
    fn a_broken_group_keeps_its_first_reason() {
        let meeting = Meeting::new(2, DEADLINE);
        for (rank, reason) in [(1, "first"), (0, "second")] {
            meeting.break_up(RankFailure { rank, reason: reason.to_owned() });
        }
        assert_eq!(meeting.meet(0, DEADLINE).unwrap_err().reason, "first");
    }
}
