//! The replica's decisions: what the next step computes, which block is reused, which token is drawn.
//!
//! Pure: time enters as `now`, chance as seeds. Nothing here reads a clock, a file or a socket.

pub mod batch;
pub mod block_manager;
pub mod capacity;
pub mod prefix_cache;
pub mod sampler;
pub mod scheduler;
pub mod sequence;
pub mod stop;
