//! A real fleet end to end: gateway and replicas as processes, on the fake model, over sockets.
//!
//! What is asserted holds for any timing: deadlines have slack, conditions are polled.

#![expect(clippy::unwrap_used, reason = "a fault of the harness is a failed test")]

mod boards;
mod client;
mod config;
mod death;
mod fleet;
mod operate;
mod plan;
mod stack;
mod streams;
mod traces;
mod up;
