//! Activations and per-channel weights on a device.

use super::cpu;

/// Activations: `count × width` f32 on a device, row by row. Storage comes from the device's arena and goes
/// back when dropped, so a steady step allocates nothing. Fresh rows hold anything.
#[derive(Debug)]
pub enum Rows {
    /// On CPU.
    Cpu(cpu::Rows),
    /// On a CUDA device.
    #[cfg(any(feature = "cuda", test))]
    Cuda(super::cuda::Rows),
}

impl Rows {
    /// Number of rows.
    pub fn count(&self) -> usize {
        match self {
            Self::Cpu(rows) => rows.count(),
            #[cfg(any(feature = "cuda", test))]
            Self::Cuda(rows) => rows.count(),
        }
    }

    /// Elements of a row.
    pub fn width(&self) -> usize {
        match self {
            Self::Cpu(rows) => rows.width(),
            #[cfg(any(feature = "cuda", test))]
            Self::Cuda(rows) => rows.width(),
        }
    }
}

/// One f32 a channel: a norm's weight or a bias.
#[derive(Debug)]
pub enum Vector {
    /// On CPU.
    Cpu(Vec<f32>),
    /// On a CUDA device.
    #[cfg(any(feature = "cuda", test))]
    Cuda(super::cuda::Vector),
}
