//! The gateway's decisions. Pure: what happens here depends on the arguments alone.
//!
//! [`fleet`] keeps what is believed about each replica, [`route`] picks one by [`estimate`] and
//! [`prefix_index`], [`health`] takes a failing one out, [`retry`] and [`continuation`] say what may follow a
//! failure, [`admission`] and [`queue`] who may start and who waits, [`capacity`] how many replicas are wanted.

pub mod admission;
pub mod belief;
pub mod capacity;
pub mod continuation;
pub mod estimate;
pub mod fleet;
pub mod health;
pub mod load;
pub mod prefix_index;
pub mod queue;
pub mod replica;
pub mod retry;
pub mod route;
pub mod said;
