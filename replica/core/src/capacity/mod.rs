//! What a machine can hold and how long a step takes: bytes to blocks, rows to time.
//!
//! Pure arithmetic on facts that a shell gathered. Used at start-up, by the scheduler (how much prompt fits
//! in a step), by the simulated fleet (as its clock) and by the planner and the doctor.

mod memory;
mod pace;
mod time;

pub use self::memory::{KvShape, blocks};
pub use self::pace::Pace;
pub use self::time::{StepShape, TimeModel};
