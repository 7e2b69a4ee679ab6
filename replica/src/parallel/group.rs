//! All ranks of a replica: the caller's thread is rank 0, every other rank has its own.
//!
//! A fault of a lone rank costs its step. In a group it ends the group, since the others wait for the one
//! that left; every wait is bounded and names who is missing.

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread;
use std::time::Duration;

use replica_core::batch::Batch;

use super::{Alone, Collective, Fault, Meeting, RankFailure, panic_text};

/// What a rank does with a step; lives and dies on its rank's thread.
pub type Run<T> = Box<dyn FnMut(&Batch) -> Result<T, Fault>>;

/// How long ranks wait for each other.
#[derive(Clone, Copy, Debug)]
pub struct Times {
    /// Until all have joined.
    pub join: Duration,
    /// Until all have loaded.
    pub load: Duration,
    /// At one collective.
    pub step: Duration,
}

/// Why a step came to nothing.
#[derive(PartialEq, Eq, Debug)]
pub enum StepError {
    /// Only this step is lost.
    Step(String),
    /// The group is over.
    Group(RankFailure),
}

/// Runs every step on all ranks and gives what rank 0 got.
pub struct Group<T> {
    first: Run<T>,
    others: Option<Others>,
}

struct Others {
    meeting: Arc<Meeting>,
    steps: Vec<SyncSender<Arc<Batch>>>,
}

impl<T> fmt::Debug for Group<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let others = self.others.as_ref().map_or(0, |others| others.steps.len());
        f.debug_struct("Group").field("others", &others).finish_non_exhaustive()
    }
}

impl<T: 'static> Group<T> {
    /// Starts `ranks` ranks; `build` makes what each does, on the rank's own thread.
    ///
    /// # Errors
    ///
    /// The rank that could not be built, or did not come in time.
    pub fn start<B>(ranks: usize, times: Times, build: B) -> Result<Self, RankFailure>
    where
        B: Fn(Box<dyn Collective>) -> Result<Run<T>, String> + Send + Sync + 'static,
    {
        if ranks == 1 {
            let first = build(Box::new(Alone)).map_err(|reason| RankFailure { rank: 0, reason })?;
            return Ok(Self { first, others: None });
        }
        let meeting = Meeting::new(ranks, times.step);
        let build = Arc::new(build);
        let mut steps = Vec::new();
        for rank in 1..ranks {
            // A rank takes a step before it can meet the others in it, so two never wait in line.
            let (sender, receiver) = sync_channel(2);
            let (meeting, build) = (Arc::clone(&meeting), Arc::clone(&build));
            thread::Builder::new()
                .name(format!("rank-{rank}"))
                .spawn(move || serve(rank, times, &meeting, &*build, &receiver))
                .map_err(|error| RankFailure { rank, reason: format!("could not start: {error}") })?;
            steps.push(sender);
        }
        let first = join(0, times, &meeting, &*build)?;
        Ok(Self { first, others: Some(Others { meeting, steps }) })
    }

    /// Runs one step on all ranks.
    ///
    /// # Errors
    ///
    /// Whether the step or the whole group is lost, and why.
    pub fn forward(&mut self, batch: &Batch) -> Result<T, StepError> {
        if let Some(others) = &self.others {
            others.send(batch).map_err(StepError::Group)?;
        }
        let outcome = guarded(|| (self.first)(batch));
        let reason = match outcome {
            Ok(output) => return Ok(output),
            Err(Fault::Rank(failure)) => return Err(StepError::Group(failure)),
            Err(Fault::Device(error)) => error.to_string(),
        };
        match &self.others {
            None => Err(StepError::Step(reason)),
            Some(others) => Err(StepError::Group(others.break_up(0, reason))),
        }
    }
}

impl Others {
    fn send(&self, batch: &Batch) -> Result<(), RankFailure> {
        let batch = Arc::new(batch.clone());
        for (sender, rank) in self.steps.iter().zip(1..) {
            if sender.try_send(Arc::clone(&batch)).is_err() {
                return Err(self.break_up(rank, "takes no steps any more".to_owned()));
            }
        }
        Ok(())
    }

    /// Ends the group for this reason, unless it had one already; the one that counts comes back.
    fn break_up(&self, rank: usize, reason: String) -> RankFailure {
        let failure = RankFailure { rank, reason };
        self.meeting.break_up(failure.clone());
        self.meeting.broken().unwrap_or(failure)
    }
}

/// The life of a rank other than 0.
fn serve<T, B>(rank: usize, times: Times, meeting: &Arc<Meeting>, build: &B, steps: &Receiver<Arc<Batch>>)
where
    B: Fn(Box<dyn Collective>) -> Result<Run<T>, String>,
{
    let Ok(mut run) = join(rank, times, meeting, build) else { return };
    while let Ok(batch) = steps.recv() {
        match guarded(|| run(&batch)) {
            Ok(_) => {}
            Err(Fault::Rank(_)) => return,
            Err(Fault::Device(error)) => {
                meeting.break_up(RankFailure { rank, reason: error.to_string() });
                return;
            }
        }
    }
}

/// Joins the group, builds, and waits for the others to have built.
fn join<T, B>(rank: usize, times: Times, meeting: &Arc<Meeting>, build: &B) -> Result<Run<T>, RankFailure>
where
    B: Fn(Box<dyn Collective>) -> Result<Run<T>, String>,
{
    meeting.meet(rank, times.join)?;
    let built = catch_unwind(AssertUnwindSafe(|| build(Box::new(meeting.seat(rank)))));
    let run = built.unwrap_or_else(|panic| Err(panic_text(&*panic))).map_err(|reason| {
        let failure = RankFailure { rank, reason };
        meeting.break_up(failure.clone());
        meeting.broken().unwrap_or(failure)
    })?;
    meeting.meet(rank, times.load)?;
    Ok(run)
}

/// Runs with a panic turned into a fault of the device.
fn guarded<T>(run: impl FnOnce() -> Result<T, Fault>) -> Result<T, Fault> {
    catch_unwind(AssertUnwindSafe(run))
        .unwrap_or_else(|panic| Err(Fault::Device(crate::kernel::Error::Thread(panic_text(&*panic)))))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernel::Device;

    const TIMES: Times =
        Times { join: Duration::from_secs(10), load: Duration::from_secs(10), step: Duration::from_secs(10) };

    /// Every rank adds its number, and rank `broken` does something else in place of it.
    fn group(ranks: usize, times: Times, broken: usize, instead: fn()) -> Result<Group<f32>, RankFailure> {
        Group::start(ranks, times, move |mut seat| {
            let device = Device::cpu(1);
            Ok(Box::new(move |batch: &Batch| {
                if seat.rank() == broken {
                    instead();
                }
                let mine = seat.rank() as f32 + batch.tokens.len() as f32;
                let mut rows = device.from_host(&[mine], 1)?;
                seat.sum(&device, &mut rows)?;
                Ok(device.to_host(&rows)?[0])
            }))
        })
    }

    fn step() -> Batch {
        Batch { tokens: vec![7], ..Batch::default() }
    }

    #[test]
    fn every_rank_runs_every_step() {
        let mut group = group(3, TIMES, 9, || ()).unwrap();
        for _ in 0..50 {
            assert_eq!(group.forward(&step()), Ok(6.0));
        }
    }

    #[test]
    fn a_lone_rank_loses_a_step_and_goes_on() {
        let mut first = true;
        let mut group =
            Group::start(1, TIMES, move |_| Ok(Box::new(|_: &Batch| Ok(1.0f32)) as Run<f32>)).unwrap();
        group.first = Box::new(move |_| {
            assert!(!std::mem::take(&mut first), "only once");
            Ok(2.0)
        });
        assert!(
            matches!(group.forward(&step()), Err(StepError::Step(reason)) if reason.contains("only once"))
        );
        assert_eq!(group.forward(&step()), Ok(2.0));
    }

    #[test]
    fn a_rank_that_panics_ends_the_group_with_its_number_and_reason() {
        let mut group = group(2, TIMES, 1, || panic!("out of luck")).unwrap();
        let Err(StepError::Group(failure)) = group.forward(&step()) else { panic!("must fail") };
        assert_eq!(failure.rank, 1);
        assert!(failure.reason.contains("out of luck"), "{failure}");
        assert!(matches!(group.forward(&step()), Err(StepError::Group(_))));
    }

    #[test]
    fn a_rank_that_stalls_ends_the_group_with_its_number() {
        let times = Times { step: Duration::from_millis(50), ..TIMES };
        let mut group = group(2, times, 1, || thread::sleep(Duration::from_secs(2))).unwrap();
        let Err(StepError::Group(failure)) = group.forward(&step()) else { panic!("must fail") };
        assert_eq!(failure.rank, 1);
    }

    // U061
    #[test]
    fn a_rank_that_never_loads_is_named_when_the_time_is_up() {
        let times = Times { load: Duration::from_millis(50), ..TIMES };
        let started = Group::<()>::start(3, times, |seat| {
            if seat.rank() == 2 {
                thread::sleep(Duration::from_secs(2));
            }
            Ok(Box::new(|_: &Batch| Ok(())))
        });
        assert_eq!(started.unwrap_err().rank, 2);
    }

    #[test]
    fn a_rank_that_cannot_load_is_named_to_all() {
        let started = Group::<()>::start(2, TIMES, |seat| match seat.rank() {
            1 => Err("has no such tensor".to_owned()),
            _ => Ok(Box::new(|_: &Batch| Ok(()))),
        });
        let failure = started.unwrap_err();
        assert_eq!((failure.rank, &*failure.reason), (1, "has no such tensor"));
    }
}
