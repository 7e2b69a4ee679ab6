//! What decoders are made of. Each layer holds its weights, or this rank's share of them, and computes on rows;
//! none knows a scheduler, a server or a file.

mod attention;
mod embedding;
mod experts;
mod linear;
mod mlp;
mod norm;
mod rotary;

pub use attention::{Attention, QkNorm};
pub use embedding::{Embedding, Head};
pub use experts::{Expert, Experts};
pub use linear::{ColumnLinear, RowLinear};
pub use mlp::{Activation, Mlp};
pub use norm::RmsNorm;
pub use rotary::{Rotary, Turn};

use replica_core::batch::Batch;

use crate::kernel::Device;
use crate::parallel::Collective;

/// What every layer of a step works with.
#[derive(Debug)]
pub struct Step<'a> {
    /// Where to compute.
    pub device: &'a Device,
    /// The other ranks.
    pub ranks: &'a mut dyn Collective,
    /// What to compute.
    pub batch: &'a Batch,
}
