//! Shapes of attention and the store of keys and values that every device keeps in its own layout.

use super::cpu;

/// How heads lie side by side in a row of the fused projection: queries, then keys, then values.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct HeadLayout {
    /// Query heads.
    pub heads: usize,
    /// Key and value heads; divides `heads`.
    pub kv_heads: usize,
    /// Width of one head.
    pub head_dim: usize,
}

impl HeadLayout {
    /// Width of a fused row.
    pub fn width(self) -> usize {
        (self.heads + 2 * self.kv_heads) * self.head_dim
    }
}

/// How a layer attends.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct AttentionSpec {
    /// Its heads.
    pub layout: HeadLayout,
    /// Factor on scores, `1 / sqrt(head_dim)` mostly.
    pub scale: f32,
    /// A row sees this many positions, its own among them; `None` sees all.
    pub window: Option<u32>,
    /// Scores become `cap * tanh(score / cap)`.
    pub softcap: Option<f32>,
}

/// How keys and values are kept.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum KvKind {
    /// As computed.
    F32,
    /// Half the memory, and half of what attention reads.
    F16,
}

impl KvKind {
    /// Bytes of one element.
    pub fn bytes(self) -> usize {
        match self {
            Self::F32 => 4,
            Self::F16 => 2,
        }
    }
}

/// Room for the keys and values of one layer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct KvShape {
    /// How elements are kept.
    pub kind: KvKind,
    /// Blocks in the pool.
    pub blocks: usize,
    /// Slots of a block, a multiple of 32.
    pub block_tokens: usize,
    /// Heads.
    pub kv_heads: usize,
    /// Width of one head.
    pub head_dim: usize,
}

/// Keys and values of one layer: `blocks × block_tokens` slots. Which sequence holds which block is
/// unknown here.
#[derive(Debug)]
pub enum KvLayer {
    /// On CPU.
    Cpu(cpu::KvLayer),
    /// On a CUDA device.
    #[cfg(any(feature = "cuda", test))]
    Cuda(super::cuda::KvLayer),
}
