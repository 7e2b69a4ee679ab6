//! Weights as tensors: quantised ones in their own bits, dense ones in their own type.

use candle_core::quantized::ggml_file::qtensor_from_ggml;
use candle_core::quantized::{GgmlDType, QMatMul};
use candle_core::{DType, Module, Tensor};
use replica_format::facts::TensorKind;

use super::{Cuda, Rows, compute_type};
use crate::kernel::{Part, Result};

/// Weights on the device, part by part.
#[derive(Debug)]
pub struct Matrix {
    rows: usize,
    cols: usize,
    bytes: usize,
    parts: Vec<Weights>,
}

#[derive(Debug)]
enum Weights {
    Quantised(QMatMul),
    Dense(Tensor),
}

impl Matrix {
    pub fn pack(cuda: &Cuda, parts: &[Part<'_>], cols: usize) -> Result<Self> {
        let mut matrix = Self { rows: 0, cols, bytes: 0, parts: Vec::with_capacity(parts.len()) };
        for part in parts {
            let bytes: Vec<u8> = (0..part.rows).flat_map(|row| (part.row)(row).into_owned()).collect();
            matrix.rows += part.rows;
            matrix.bytes += bytes.len();
            matrix.parts.push(Weights::load(cuda, part.kind, (part.rows, cols), &bytes)?);
        }
        Ok(matrix)
    }

    pub fn rows(&self) -> usize {
        self.rows
    }

    pub fn cols(&self) -> usize {
        self.cols
    }

    pub fn bytes(&self) -> usize {
        self.bytes
    }
}

impl Weights {
    fn load(cuda: &Cuda, kind: TensorKind, shape: (usize, usize), bytes: &[u8]) -> Result<Self> {
        let quantised = match kind {
            TensorKind::F32 => return Self::dense(cuda, DType::F32, shape, bytes),
            TensorKind::F16 => return Self::dense(cuda, DType::F16, shape, bytes),
            TensorKind::BF16 => return Self::dense(cuda, DType::BF16, shape, bytes),
            TensorKind::Q4_0 => GgmlDType::Q4_0,
            TensorKind::Q4_1 => GgmlDType::Q4_1,
            TensorKind::Q5_0 => GgmlDType::Q5_0,
            TensorKind::Q5_1 => GgmlDType::Q5_1,
            TensorKind::Q8_0 => GgmlDType::Q8_0,
            TensorKind::Q2_K => GgmlDType::Q2K,
            TensorKind::Q3_K => GgmlDType::Q3K,
            TensorKind::Q4_K => GgmlDType::Q4K,
            TensorKind::Q5_K => GgmlDType::Q5K,
            TensorKind::Q6_K => GgmlDType::Q6K,
        };
        let tensor = qtensor_from_ggml(quantised, bytes, vec![shape.0, shape.1], &cuda.device)?;
        Ok(Self::Quantised(QMatMul::from_qtensor(tensor)?))
    }

    fn dense(cuda: &Cuda, stored: DType, shape: (usize, usize), bytes: &[u8]) -> Result<Self> {
        let tensor = Tensor::from_raw_buffer(bytes, stored, &[shape.0, shape.1], &cuda.device)?;
        Ok(Self::Dense(tensor.to_dtype(compute_type(&cuda.device, stored))?))
    }

    fn times(&self, x: &Tensor) -> Result<Tensor> {
        Ok(match self {
            Self::Quantised(weights) => weights.forward(x)?,
            Self::Dense(weights) => {
                x.to_dtype(weights.dtype())?.matmul(&weights.t()?)?.to_dtype(DType::F32)?
            }
        })
    }

    fn select(&self, rows: &Tensor) -> Result<Tensor> {
        let selected = match self {
            Self::Quantised(weights) => weights.embedding(rows)?,
            Self::Dense(weights) => weights.index_select(rows, 0)?,
        };
        Ok(selected.to_dtype(DType::F32)?)
    }
}

impl Cuda {
    #[expect(clippy::unused_self, reason = "a verb like the others")]
    pub fn matmul(&self, x: &Rows, w: &Matrix, y: &mut Rows) -> Result<()> {
        let products: Vec<Tensor> =
            w.parts.iter().map(|part| part.times(x.tensor())).collect::<Result<_>>()?;
        y.set(&Tensor::cat(&products, 1)?)
    }

    pub fn embed(&self, tokens: &[u32], table: &Matrix, out: &mut Rows) -> Result<()> {
        let [table] = &table.parts[..] else {
            panic!("an embedding is one tensor, not {}", table.parts.len())
        };
        out.set(&table.select(&self.indices(tokens.iter().copied())?)?)
    }
}
