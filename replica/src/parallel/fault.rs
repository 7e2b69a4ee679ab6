//! What ends a step, and what ends a group.

use std::any::Any;
use std::fmt;

use crate::kernel;

/// Why a step came to nothing.
#[derive(Debug)]
pub enum Fault {
    /// This rank's device failed.
    Device(kernel::Error),
    /// The group is over.
    Rank(RankFailure),
}

/// The rank that ended its group, and why.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RankFailure {
    /// Its number.
    pub rank: usize,
    /// What happened to it.
    pub reason: String,
}

impl fmt::Display for RankFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "rank {}: {}", self.rank, self.reason)
    }
}

impl std::error::Error for RankFailure {}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Device(error) => error.fmt(f),
            Self::Rank(failure) => failure.fmt(f),
        }
    }
}

impl std::error::Error for Fault {}

impl From<kernel::Error> for Fault {
    fn from(error: kernel::Error) -> Self {
        Self::Device(error)
    }
}

impl From<RankFailure> for Fault {
    fn from(failure: RankFailure) -> Self {
        Self::Rank(failure)
    }
}

/// What a panic said.
pub fn panic_text(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().copied().or_else(|| panic.downcast_ref::<String>().map(|s| &**s));
    text.unwrap_or("a panic without words").to_owned()
}
