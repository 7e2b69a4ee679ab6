//! The stores of keys and values that blocks index: how many blocks there are, and one layer's after the other.

use replica_core::capacity;
use replica_format::facts::ModelFacts;

use crate::kernel::{self, Device, KvKind, KvLayer, KvShape};
use crate::model::{Precision, Split};

/// Size and form of a pool, the same on every rank.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct KvPlan {
    /// How elements are kept.
    pub kind: KvKind,
    /// Blocks.
    pub blocks: u32,
    /// Tokens of a block.
    pub block_tokens: u32,
    /// Bytes one rank holds.
    pub rank_bytes: u64,
}

/// As exact as the weights: f32 in the exact mode, else f16.
pub fn kind_for(precision: Precision) -> KvKind {
    match precision {
        Precision::F32 => KvKind::F32,
        _ => KvKind::F16,
    }
}

impl KvPlan {
    /// The blocks that fit in `bytes` over all ranks.
    ///
    /// # Errors
    ///
    /// Too little for a single block; says how much would do.
    pub fn new(
        facts: &ModelFacts,
        kind: KvKind,
        bytes: u64,
        block_tokens: u32,
        ranks: u32,
    ) -> Result<Self, String> {
        let shape = capacity::KvShape::of(facts, kind.bytes() as u32, ranks);
        let blocks = capacity::blocks(bytes / u64::from(ranks), &shape, block_tokens);
        let block_bytes = shape.token_bytes() * u64::from(block_tokens);
        if blocks == 0 {
            let least = block_bytes * u64::from(ranks);
            return Err(format!(
                "a KV pool of {bytes} bytes holds no block; one of this model takes {least} bytes"
            ));
        }
        Ok(Self { kind, blocks, block_tokens, rank_bytes: block_bytes * u64::from(blocks) })
    }

    /// A rank's stores, one a layer.
    pub fn allocate(
        &self,
        device: &Device,
        facts: &ModelFacts,
        split: Split,
    ) -> kernel::Result<Vec<KvLayer>> {
        let shape = KvShape {
            kind: self.kind,
            blocks: self.blocks as usize,
            block_tokens: self.block_tokens as usize,
            kv_heads: split.kv_heads(facts).len(),
            head_dim: facts.head_dim as usize,
        };
        (0..facts.layers).map(|_| device.kv_layer(shape)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::fake;

    // U141
    #[test]
    fn kv_heads_that_ranks_share_are_paid_for_on_each() {
        let facts = ModelFacts { heads: 8, kv_heads: 2, ..fake::facts(1024) };
        let blocks = |ranks| KvPlan::new(&facts, KvKind::F32, 64 << 20, 32, ranks).unwrap().blocks;
        assert_eq!(blocks(1), blocks(2));
        assert_eq!(blocks(4), blocks(2) / 2);
    }

    #[test]
    fn a_pool_without_a_block_is_refused_with_the_least_size() {
        let refused = KvPlan::new(&fake::facts(1024), KvKind::F16, 1000, 32, 1).unwrap_err();
        assert!(refused.contains("737280 bytes"), "{refused}");
    }
}
