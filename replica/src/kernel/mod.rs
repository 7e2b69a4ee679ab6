//! Arithmetic on one device: matrices in their own bits, rows of activations, the paged K and V.
//!
//! It decides how a number is computed and in which order; it knows nothing of layers, models, schedules
//! or files. The law of this room: **one arithmetic a weight type, one order of summation, for every
//! number of rows**. A row's result is the same bits alone, in a batch, in any chunking and with any number
//! of threads, so a cold answer equals a warm one.

mod attention;
mod cpu;
#[cfg(any(feature = "cuda", test))]
mod cuda;
mod device;
mod error;
mod matrix;
mod operand;
mod quant;
mod rope;
mod rows;

#[cfg(test)]
mod tests;

pub use attention::{AttentionSpec, HeadLayout, KvKind, KvLayer, KvShape};
pub use cpu::Isa;
pub use device::Device;
pub use error::{Error, Result};
pub use matrix::{Matrix, Part};
pub use quant::{dequantize, quantize_q8_0};
pub use rope::{Angles, RopeTable};
pub use rows::{Rows, Vector};
