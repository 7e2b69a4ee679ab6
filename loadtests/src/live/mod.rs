//! The load tester: real endpoints over sockets, latency counted from the intended send time.

pub mod command;
pub mod connection;
pub mod demand;
pub mod load;
pub mod measure;
pub mod metrics;
pub mod progress;
pub mod prompt;
pub mod stream;
pub mod target;
