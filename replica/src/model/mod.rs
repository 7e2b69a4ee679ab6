//! Models: a batch in, logits or hidden states out.
//!
//! A family is a [`Blueprint`]: what its decoder layers have that others lack. Which sequences are in a batch,
//! and what becomes of the logits, is unknown here.

mod blueprint;
mod decoder;
pub mod fake;
mod loader;
mod split;

use std::borrow::Cow;
use std::fmt;

use replica_core::batch::Batch;

pub use blueprint::{Blueprint, LayerPlan, blueprint};
pub use decoder::Decoder;
pub use loader::{LoadError, Loader, Precision};
pub use split::Split;

use crate::kernel::{self, Device, KvLayer, Rows};
use crate::parallel::{Collective, Fault};

/// One rank's share of a model.
pub trait Model: fmt::Debug {
    /// Runs a step, with this rank's keys and values and the other ranks.
    fn forward(
        &mut self,
        batch: &Batch,
        kv: &mut [KvLayer],
        ranks: &mut dyn Collective,
    ) -> Result<Output, Fault>;
}

/// What a step gives: a row for each of [`Batch::output_rows`], in order, each among its kind.
#[derive(Debug)]
pub struct Output {
    /// Where the rows are.
    pub device: Device,
    /// Columns of `logits` that are tokens; the rest is padding.
    pub vocab: usize,
    /// Of shares that sample, and of those that want all.
    pub logits: Option<Rows>,
    /// Final hidden states, of shares that want these.
    pub hidden: Option<Rows>,
}

impl Output {
    /// The logits in host memory, row by row.
    pub fn logits(&self) -> kernel::Result<HostRows<'_>> {
        self.host(self.logits.as_ref(), Some(self.vocab))
    }

    /// The hidden states in host memory, row by row.
    pub fn hidden(&self) -> kernel::Result<HostRows<'_>> {
        self.host(self.hidden.as_ref(), None)
    }

    fn host<'a>(&self, rows: Option<&'a Rows>, width: Option<usize>) -> kernel::Result<HostRows<'a>> {
        let Some(rows) = rows else { return Ok(HostRows::default()) };
        let stride = rows.width();
        Ok(HostRows { values: self.device.to_host(rows)?, stride, width: width.unwrap_or(stride) })
    }
}

/// Rows in host memory.
#[derive(Default, Debug)]
pub struct HostRows<'a> {
    values: Cow<'a, [f32]>,
    stride: usize,
    width: usize,
}

impl HostRows<'_> {
    /// One row.
    pub fn row(&self, index: usize) -> &[f32] {
        &self.values[index * self.stride..][..self.width]
    }

    /// Row after row.
    pub fn iter(&self) -> impl Iterator<Item = &[f32]> {
        self.values.chunks_exact(self.stride.max(1)).map(|row| &row[..self.width])
    }
}
