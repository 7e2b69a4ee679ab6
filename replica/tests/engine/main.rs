//! The engine's promises, kept on the fake model on a small random Llama, and on the default model.

mod batching;
mod faults;
mod lifetime;
mod reference_greedy;
mod support;
mod tiny;
