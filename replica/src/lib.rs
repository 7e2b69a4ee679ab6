//! The replica: one model behind an OpenAI server, with continuous batching and a paged KV cache.
//!
//! Rooms along the data's way, each importing only the next: `api` → `engine` → `parallel` → `model` →
//! `layers` → `kernel`, with `weights` beside `model`.

pub mod engine;
pub mod kernel;
pub mod weights;
