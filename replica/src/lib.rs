//! The replica: one model behind an OpenAI server, with continuous batching and a paged KV cache.
//!
//! Rooms along the data's way, each importing only later ones: `api` → `engine` → `model` → `layers` →
//! `parallel` → `kernel`, with `weights` beside `model`.

pub mod api;
pub mod config;
pub mod engine;
pub mod error;
pub mod kernel;
pub mod layers;
pub mod load;
pub mod model;
pub mod parallel;
pub mod run;
pub mod telemetry;
pub mod weights;
