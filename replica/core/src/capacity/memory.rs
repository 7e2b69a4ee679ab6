//! Bytes to blocks.

use replica_format::facts::ModelFacts;

/// What one token's KV is made of, on one rank.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct KvShape {
    /// Decoder layers. Layers that look back over a window only keep all their tokens too: one block table
    /// serves every layer.
    pub layers: u32,
    /// Key and value heads of this rank.
    pub kv_heads: u32,
    /// Width of one head.
    pub head_dim: u32,
    /// Bytes of one element.
    pub element_bytes: u32,
}

impl KvShape {
    /// The share of one of `ranks` ranks. Where there are fewer KV heads than ranks they are replicated.
    pub fn of(facts: &ModelFacts, element_bytes: u32, ranks: u32) -> Self {
        Self {
            layers: facts.layers,
            kv_heads: facts.kv_heads.div_ceil(ranks.max(1)).max(1),
            head_dim: facts.head_dim,
            element_bytes,
        }
    }

    /// Bytes that one token takes: a key and a value in every layer.
    pub fn token_bytes(&self) -> u64 {
        let elements = u64::from(self.kv_heads) * u64::from(self.head_dim) * u64::from(self.layers);
        2 * elements * u64::from(self.element_bytes)
    }
}

/// Whole blocks of `block_tokens` tokens that fit in a budget.
pub fn blocks(budget_bytes: u64, shape: &KvShape, block_tokens: u32) -> u32 {
    let block_bytes = (shape.token_bytes() * u64::from(block_tokens)).max(1);
    u32::try_from(budget_bytes / block_bytes).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(layers: u32, kv_heads: u32, head_dim: u32, element_bytes: u32, token_bytes: u64) {
        let shape = KvShape { layers, kv_heads, head_dim, element_bytes };
        assert_eq!(shape.token_bytes(), token_bytes);
    }

    #[test]
    fn a_token_costs_a_key_and_a_value_in_every_layer() {
        check(30, 3, 64, 4, 46_080); // SmolLM2-135M at f32
        check(32, 8, 128, 2, 131_072); // Llama 3 8B at bf16: 128 KiB
        check(80, 8, 128, 2, 327_680); // Llama 3 70B
        check(18, 1, 256, 2, 18_432); // one KV head for all
    }

    #[test]
    fn only_whole_blocks_count() {
        let shape = KvShape { layers: 1, kv_heads: 1, head_dim: 1, element_bytes: 2 };
        assert_eq!(blocks(32 * 4 * 3, &shape, 32), 3);
        assert_eq!(blocks(32 * 4 * 3 - 1, &shape, 32), 2);
        assert_eq!(blocks(0, &shape, 32), 0);
        assert_eq!(blocks(u64::MAX, &shape, 32), u32::MAX);
    }
}
