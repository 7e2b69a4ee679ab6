//! Keys and values of one layer.
use replica_core::batch::Batch;

use super::{Cpu, Rows};
use crate::kernel::{AttentionSpec, HeadLayout, KvShape, Result};

/// Keys and values in host memory.
#[derive(Debug)]
pub struct KvLayer {
    shape: KvShape,
}

impl KvLayer {
    pub fn new(shape: KvShape) -> Result<Self> {
        Ok(Self { shape })
    }
}

impl Cpu {
    pub fn write_kv(&self, _qkv: &Rows, _layout: HeadLayout, _kv: &mut KvLayer, _slots: &[u32]) -> Result<()> {
        unimplemented!()
    }
    pub fn attend(&self, _qkv: &Rows, _kv: &KvLayer, _batch: &Batch, _spec: &AttentionSpec, _out: &mut Rows) -> Result<()> {
        unimplemented!()
    }
}
