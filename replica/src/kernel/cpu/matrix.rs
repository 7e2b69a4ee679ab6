//! Weights in panels.
use super::{Cpu, Rows};
use crate::kernel::{Part, Result};

/// Weights in host memory.
#[derive(Debug)]
pub struct Matrix {
    rows: usize,
    cols: usize,
}

impl Matrix {
    pub fn pack(_cpu: &Cpu, parts: &[Part<'_>], cols: usize) -> Result<Self> {
        Ok(Self { rows: parts.iter().map(|part| part.rows).sum(), cols })
    }
    pub fn rows(&self) -> usize {
        self.rows
    }
    pub fn cols(&self) -> usize {
        self.cols
    }
    pub fn bytes(&self) -> usize {
        self.rows * self.cols
    }
}

impl Cpu {
    pub fn matmul(&self, _x: &Rows, _w: &Matrix, _y: &mut Rows) -> Result<()> {
        unimplemented!()
    }
    pub fn embed(&self, _tokens: &[u32], _table: &Matrix, _out: &mut Rows) -> Result<()> {
        unimplemented!()
    }
}
