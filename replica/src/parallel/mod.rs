//! Ranks: how one model runs on several devices, or on several shares of one machine.
//!
//! A [`Group`] runs every step on all ranks; between layers they meet through a [`Collective`]. What a step
//! computes is unknown here.

mod alone;
mod fault;
mod group;
mod local;
mod self_test;

pub use alone::Alone;
pub use fault::{Fault, RankFailure, panic_text};
pub use group::{Group, Run, StepError, Times};
pub use local::{Local, Meeting};
pub use self_test::self_test;

use crate::kernel::{Device, Rows};

/// One rank's end of its group. All ranks call the same verbs in the same order.
pub trait Collective: std::fmt::Debug + Send {
    /// This rank's number.
    fn rank(&self) -> usize;

    /// Ranks in the group.
    fn ranks(&self) -> usize;

    /// Sums the ranks' rows in place; every rank gets the same bits.
    fn sum(&mut self, device: &Device, rows: &mut Rows) -> Result<(), Fault>;

    /// Puts the ranks' columns side by side, in rank order.
    fn gather(&mut self, device: &Device, part: Rows) -> Result<Rows, Fault>;
}
