//! Checkpoints on disk: opened, checked, mapped, and seen as the tensors a model asks for.
//!
//! The one place that knows files. What headers mean is decided in `replica_format`; what weights are worth
//! at which width is decided by the layers that hold them.

mod checkpoint;
mod directory;
mod floats;
mod generation;
mod gguf;
mod mapped;
mod samples;
mod view;

pub use checkpoint::{Checkpoint, TokenizerSource, spelling};
pub use generation::GenerationDefaults;
pub use replica_format::Error;
pub use view::{RowOrder, TensorView};
