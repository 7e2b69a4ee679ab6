//! Weights in their own bits, laid out for a device.

use std::borrow::Cow;
use std::fmt;

use replica_format::facts::TensorKind;

use super::cpu;
use super::{Device, Error, Result};

/// One tensor of a matrix: rows of bytes as a checkpoint holds them.
pub struct Part<'a> {
    pub(super) kind: TensorKind,
    pub(super) rows: usize,
    pub(super) cols: usize,
    pub(super) row: Box<dyn Fn(usize) -> Cow<'a, [u8]> + Sync + 'a>,
}

impl<'a> Part<'a> {
    /// `row(i)` gives the bytes of row `i`, `kind.bytes(cols)` of them; the caller may permute, slice or
    /// convert there.
    pub fn new(
        kind: TensorKind,
        rows: usize,
        cols: usize,
        row: impl Fn(usize) -> Cow<'a, [u8]> + Sync + 'a,
    ) -> Self {
        Self { kind, rows, cols, row: Box::new(row) }
    }

    /// All rows of a tensor, one after the other in `bytes`.
    pub fn of(kind: TensorKind, rows: usize, cols: usize, bytes: &'a [u8]) -> Self {
        let stride = kind.bytes(cols as u64) as usize;
        Self::new(kind, rows, cols, move |row| Cow::Borrowed(&bytes[row * stride..(row + 1) * stride]))
    }
}

impl fmt::Debug for Part<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} {}×{}", self.kind, self.rows, self.cols)
    }
}

/// Weights, `rows × cols` (outputs × inputs), each part kept in the bits of its kind.
#[derive(Debug)]
pub enum Matrix {
    /// On CPU.
    Cpu(cpu::Matrix),
    /// On a CUDA device.
    #[cfg(any(feature = "cuda", test))]
    Cuda(super::cuda::Matrix),
}

impl Matrix {
    /// Repacks parts, stacked by rows, for the device: done once, at load.
    ///
    /// # Errors
    ///
    /// Parts that differ in columns, or columns that are no whole blocks of a kind.
    pub fn pack(device: &Device, parts: &[Part<'_>]) -> Result<Self> {
        let cols = parts.first().map_or(0, |part| part.cols);
        for part in parts {
            let (block, _) = part.kind.block();
            if part.cols != cols || !part.cols.is_multiple_of(block) {
                return Err(Error::Shape(format!(
                    "a {part:?} part does not fit {cols} columns in blocks of {block}"
                )));
            }
        }
        match device {
            Device::Cpu(cpu) => Ok(Self::Cpu(cpu::Matrix::pack(cpu, parts, cols)?)),
            #[cfg(any(feature = "cuda", test))]
            Device::Cuda(cuda) => Ok(Self::Cuda(super::cuda::Matrix::pack(cuda, parts, cols)?)),
        }
    }

    /// Outputs.
    pub fn rows(&self) -> usize {
        match self {
            Self::Cpu(matrix) => matrix.rows(),
            #[cfg(any(feature = "cuda", test))]
            Self::Cuda(matrix) => matrix.rows(),
        }
    }

    /// Inputs.
    pub fn cols(&self) -> usize {
        match self {
            Self::Cpu(matrix) => matrix.cols(),
            #[cfg(any(feature = "cuda", test))]
            Self::Cuda(matrix) => matrix.cols(),
        }
    }

    /// Bytes a product reads.
    pub fn bytes(&self) -> usize {
        match self {
            Self::Cpu(matrix) => matrix.bytes(),
            #[cfg(any(feature = "cuda", test))]
            Self::Cuda(matrix) => matrix.bytes(),
        }
    }
}
