//! Bytes of checkpoints to facts about a model. Pure: bytes in, facts out; callers open the files.
//!
//! [`gguf`] and [`safetensors`] read headers, [`config`] reads Hugging Face's JSON, and each gives
//! [`facts::ModelFacts`]. [`inventory`] then says where each tensor a model asks for lies.

pub mod config;
pub mod error;
pub mod facts;
pub mod gguf;
pub mod inventory;
pub mod kind;
pub mod safetensors;

pub use error::Error;
