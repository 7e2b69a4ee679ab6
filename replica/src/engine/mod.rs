//! The engine: one OS thread that owns the scheduler and runs its steps on every rank.
//!
//! [`start()`] loads, warms up and gives a [`Handle`]; nobody else sees a scheduler, and no lock is held around it.

mod answers;
mod changes;
pub mod clock;
pub mod command;
mod draw;
mod handle;
mod kv_cache;
mod lost;
mod plan;
mod start;
mod stats;
mod steps;

pub use changes::Cached;
pub use handle::{Handle, Refusal};
pub use lost::Events;
pub use plan::{Options, Place, Source};
pub use start::{StartError, Started, start};
pub use stats::{STEP_ROWS_BOUNDS, Snapshot};
