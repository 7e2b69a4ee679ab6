//! A CUDA device, through candle's tensors: the same verbs as the CPU's, each a few tensor operations.
//!
//! The law of one arithmetic for every number of rows is a best effort here: the library picks kernels by
//! size. Tests run this code on candle's CPU device beside our own kernels, so it is checked without a GPU.

mod attention;
mod elementwise;
mod matrix;

use candle_core::{DType, Tensor};

pub use self::attention::KvLayer;
pub use self::matrix::Matrix;
use super::{Error, Result};

/// A norm's weight or a bias.
pub type Vector = Tensor;

/// One device of candle's, with its stream. Clones share it.
#[derive(Clone, Debug)]
pub struct Cuda {
    device: candle_core::Device,
}

/// Activations on the device.
#[derive(Debug)]
pub struct Rows {
    count: usize,
    width: usize,
    /// `None` until the first verb has written them.
    tensor: Option<Tensor>,
}

impl Rows {
    pub fn count(&self) -> usize {
        self.count
    }

    pub fn width(&self) -> usize {
        self.width
    }

    /// `count × width`, f32.
    fn tensor(&self) -> &Tensor {
        self.tensor.as_ref().expect("fresh rows are written before they are read")
    }

    fn set(&mut self, tensor: &Tensor) -> Result<()> {
        self.tensor = Some(tensor.reshape((self.count, self.width))?.contiguous()?);
        Ok(())
    }
}

impl Cuda {
    /// The `ordinal`th device that the process may see.
    #[cfg(feature = "cuda")]
    pub fn new(ordinal: usize) -> Result<Self> {
        Ok(Self { device: candle_core::Device::new_cuda(ordinal)? })
    }

    /// Candle's CPU in the place of a GPU.
    #[cfg(test)]
    pub fn stand_in() -> Self {
        Self { device: candle_core::Device::Cpu }
    }

    pub fn describe(&self) -> String {
        format!("{:?}", self.device.location())
    }

    #[expect(clippy::unused_self, reason = "a device's own rows, though they take no room yet")]
    pub fn rows(&self, count: usize, width: usize) -> Rows {
        Rows { count, width, tensor: None }
    }

    pub fn write(&self, rows: &mut Rows, values: &[f32]) -> Result<()> {
        rows.tensor = Some(Tensor::from_slice(values, (rows.count, rows.width), &self.device)?);
        Ok(())
    }

    #[expect(clippy::unused_self, reason = "a verb like the others")]
    pub fn to_host(&self, rows: &Rows) -> Result<Vec<f32>> {
        Ok(rows.tensor().flatten_all()?.to_vec1()?)
    }

    pub fn vector(&self, values: &[f32]) -> Result<Vector> {
        Ok(Tensor::from_slice(values, values.len(), &self.device)?)
    }

    fn indices(&self, indices: impl Iterator<Item = u32>) -> Result<Tensor> {
        let indices: Vec<u32> = indices.collect();
        Ok(Tensor::from_slice(&indices, indices.len(), &self.device)?)
    }
}

impl From<candle_core::Error> for Error {
    fn from(error: candle_core::Error) -> Self {
        Self::Device(error.to_string())
    }
}

/// The type that products with a tensor of this one are computed in.
fn compute_type(device: &candle_core::Device, stored: DType) -> DType {
    // Candle's CPU, the stand-in, has no products of bf16.
    if device.is_cpu() { DType::F32 } else { stored }
}
