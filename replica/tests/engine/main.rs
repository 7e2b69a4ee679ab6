//! The engine's promises, kept on the fake model, on a small random Llama, and on the default model.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod accuracy;
mod batching;
mod families;
mod faults;
mod forward;
mod gemma;
mod lifetime;
mod ranks;
mod reference_greedy;
mod soak;
mod support;
mod tiny;
