//! A checkpoint's tensors to the layers of one rank: each is read once, sliced, converted where asked, packed.

use std::borrow::Cow;
use std::cell::Cell;
use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use replica_format::facts::{ModelFacts, TensorKind};

use super::Split;
use crate::kernel::{self, Device, Matrix, Part, Vector};
use crate::layers::{ColumnLinear, RmsNorm, RowLinear};
use crate::weights::{Checkpoint, TensorView};

/// What matrices become in memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Precision {
    /// The file's own bits.
    #[default]
    Kept,
    /// Everything as f32, quantised weights too: the exact mode.
    F32,
    /// Floats as f16; quantised weights stay.
    F16,
    /// Floats as bf16; quantised weights stay.
    BF16,
    /// Floats as `Q8_0`; quantised weights stay.
    Q8_0,
}

/// Why a model could not be loaded.
#[derive(Debug)]
pub enum LoadError {
    /// The checkpoint's fault; names file and tensor.
    Checkpoint(replica_format::Error),
    /// The device's.
    Device(kernel::Error),
    /// It asks for what this family's arithmetic has not.
    Unsupported(String),
}

/// Reads one rank's share of a checkpoint.
pub struct Loader<'a> {
    /// From where.
    pub checkpoint: &'a Checkpoint,
    /// To where.
    pub device: &'a Device,
    /// As what.
    pub precision: Precision,
    /// Which share.
    pub split: Split,
    /// Told the stored bytes of each matrix once it is packed.
    pub progress: &'a (dyn Fn(u64) + Sync),
    /// Bytes of matrices packed so far, as held.
    pub held_bytes: Cell<u64>,
}

impl<'a> Loader<'a> {
    /// The model's facts.
    pub fn facts(&self) -> &'a ModelFacts {
        &self.checkpoint.facts
    }

    /// A layer that holds `rows` of each tensor, stacked, with their biases where the checkpoint has any.
    /// Names are without `.weight`.
    pub fn columns(&self, tensors: &[(String, Range<usize>)]) -> Result<ColumnLinear, LoadError> {
        let mut parts = Vec::with_capacity(tensors.len());
        for (name, rows) in tensors {
            parts.push(self.tensor(&format!("{name}.weight"))?.rows(rows.clone()));
        }
        Ok(ColumnLinear { weight: self.pack(&parts, 0)?, bias: self.stacked_bias(tensors)? })
    }

    /// A layer that holds `columns` of a tensor; its bias is whole and comes after the sum.
    pub fn rows(&self, name: &str, columns: Range<usize>) -> Result<RowLinear, LoadError> {
        let view = self.tensor(&format!("{name}.weight"))?;
        let weight = match view.columns(columns.clone()) {
            Some(view) => self.pack(&[view], 0)?,
            // A cut through a quantised block: only its values can be cut, not its bits.
            None => self.pack_values(&view, columns)?,
        };
        let bias = format!("{name}.bias");
        let bias = if self.checkpoint.has(&bias) { Some(self.vector(&bias)?) } else { None };
        Ok(RowLinear { weight, bias })
    }

    /// `rows` of a tensor, then rows of zeros up to `padded`.
    pub fn table(&self, name: &str, rows: Range<usize>, padded: usize) -> Result<Arc<Matrix>, LoadError> {
        let padding = padded - rows.len();
        Ok(Arc::new(self.pack(&[self.tensor(name)?.rows(rows)], padding)?))
    }

    /// The least columns of a tensor that can be cut apart.
    pub fn unit(&self, name: &str) -> Result<usize, LoadError> {
        Ok(self.tensor(name)?.kind.block().0)
    }

    /// A norm.
    pub fn norm(&self, name: &str) -> Result<RmsNorm, LoadError> {
        Ok(RmsNorm { weight: self.vector(name)?, eps: self.facts().norm_eps })
    }

    fn tensor(&self, name: &str) -> Result<TensorView<'a>, LoadError> {
        self.checkpoint.tensor(name).map_err(LoadError::Checkpoint)
    }

    fn vector(&self, name: &str) -> Result<Vector, LoadError> {
        let values = self.checkpoint.vector(name).map_err(LoadError::Checkpoint)?;
        Ok(self.device.vector(&values)?)
    }

    /// The biases of stacked tensors: all have one or none has.
    fn stacked_bias(&self, tensors: &[(String, Range<usize>)]) -> Result<Option<Vector>, LoadError> {
        let mut values = Vec::new();
        for (name, rows) in tensors {
            let bias = format!("{name}.bias");
            if self.checkpoint.has(&bias) {
                let whole = self.checkpoint.vector(&bias).map_err(LoadError::Checkpoint)?;
                values.extend_from_slice(&whole[rows.clone()]);
            }
        }
        let outputs: usize = tensors.iter().map(|(_, rows)| rows.len()).sum();
        match values.len() {
            0 => Ok(None),
            count if count == outputs => Ok(Some(self.device.vector(&values)?)),
            _ => Err(LoadError::Unsupported(format!("only some of {tensors:?} have a bias"))),
        }
    }

    fn pack(&self, views: &[TensorView<'a>], padding: usize) -> Result<Matrix, LoadError> {
        let mut parts: Vec<_> = views.iter().map(|&view| self.part(view)).collect();
        if let (Some(view), 1..) = (views.last(), padding) {
            let kind = self.target(view.kind, view.cols);
            let zeros = vec![0; kind.bytes(view.cols as u64) as usize];
            parts.push(Part::new(kind, padding, view.cols, move |_| Cow::Owned(zeros.clone())));
        }
        let stored = views.iter().map(|view| (view.rows * view.row_bytes()) as u64).sum();
        Ok(self.packed(Matrix::pack(self.device, &parts)?, stored))
    }

    /// Counts a matrix that is done.
    fn packed(&self, matrix: Matrix, stored_bytes: u64) -> Matrix {
        self.held_bytes.set(self.held_bytes.get() + matrix.bytes() as u64);
        (self.progress)(stored_bytes);
        matrix
    }

    /// A tensor as it is, or converted row by row.
    fn part(&self, view: TensorView<'a>) -> Part<'a> {
        let (from, to) = (view.kind, self.target(view.kind, view.cols));
        Part::new(to, view.rows, view.cols, move |row| {
            let bytes = view.row(row);
            if from == to {
                Cow::Borrowed(bytes)
            } else {
                Cow::Owned(encode(to, &values(from, bytes, view.cols)))
            }
        })
    }

    fn pack_values(&self, view: &TensorView<'a>, columns: Range<usize>) -> Result<Matrix, LoadError> {
        let view = *view;
        let cut = columns.clone();
        let part = Part::new(TensorKind::F32, view.rows, columns.len(), move |row| {
            Cow::Owned(encode(TensorKind::F32, &values(view.kind, view.row(row), view.cols)[cut.clone()]))
        });
        Ok(self.packed(Matrix::pack(self.device, &[part])?, (view.rows * view.row_bytes()) as u64))
    }

    fn target(&self, kind: TensorKind, cols: usize) -> TensorKind {
        let float = matches!(kind, TensorKind::F32 | TensorKind::F16 | TensorKind::BF16);
        match self.precision {
            Precision::F32 => TensorKind::F32,
            Precision::F16 if float => TensorKind::F16,
            Precision::BF16 if float => TensorKind::BF16,
            Precision::Q8_0 if float && cols.is_multiple_of(32) => TensorKind::Q8_0,
            _ => kind,
        }
    }
}

fn values(kind: TensorKind, bytes: &[u8], count: usize) -> Vec<f32> {
    let mut values = vec![0.0; count];
    kernel::dequantize(kind, bytes, &mut values);
    values
}

fn encode(kind: TensorKind, values: &[f32]) -> Vec<u8> {
    match kind {
        TensorKind::F16 => {
            values.iter().flat_map(|&value| half::f16::from_f32(value).to_le_bytes()).collect()
        }
        TensorKind::BF16 => {
            values.iter().flat_map(|&value| half::bf16::from_f32(value).to_le_bytes()).collect()
        }
        TensorKind::Q8_0 => {
            let mut bytes = Vec::new();
            kernel::quantize_q8_0(values, &mut bytes);
            bytes
        }
        _ => values.iter().flat_map(|value| value.to_le_bytes()).collect(),
    }
}

impl fmt::Debug for Loader<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Loader")
            .field("precision", &self.precision)
            .field("split", &self.split)
            .finish_non_exhaustive()
    }
}

impl fmt::Display for LoadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Checkpoint(error) => error.fmt(f),
            Self::Device(error) => error.fmt(f),
            Self::Unsupported(what) => what.fmt(f),
        }
    }
}

impl std::error::Error for LoadError {}

impl From<kernel::Error> for LoadError {
    fn from(error: kernel::Error) -> Self {
        Self::Device(error)
    }
}
