//! The replica: one model behind an OpenAI server, with continuous batching and a paged KV cache.
//!
//! Rooms along the data's way, each importing only later ones: `api` → `engine` → `model` → `layers` →
//! `parallel` → `kernel`, with `weights` beside `model`.

pub mod engine;
pub mod kernel;
pub mod layers;
pub mod model;
pub mod parallel;
pub mod weights;
