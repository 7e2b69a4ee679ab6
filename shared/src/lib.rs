//! What gateway and replica agree on. Pure: no sockets, no clocks, nothing of ours below it.

pub mod id;
pub mod keys;
pub mod metric;
pub mod openai;
pub mod prefix;
pub mod slo;
pub mod time;
pub mod wire;
