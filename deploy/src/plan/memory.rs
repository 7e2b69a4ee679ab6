//! What a rank holds: weights, KV, everything else. Pure; sums of KV are `replica-core`'s where ours is planned.

use replica_core::capacity::KvShape;

use super::model::{Kv, Model};

const GIB: f64 = 1_073_741_824.0;
/// Tokens a KV block: what a sequence takes is rounded up to it.
pub const BLOCK_TOKENS: u32 = 32;

/// Whose replica is planned.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Engine {
    /// Ours. Window layers keep all tokens: one block table serves every layer.
    Flotilla,
    /// One that drops what lies behind a window, as vLLM does.
    Vllm,
}

/// What is decided about KV before anything is laid out.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct KvPlan {
    /// Whose replica.
    pub engine: Engine,
    /// Bytes of one element: 4, 2 or 1.
    pub element_bytes: u32,
}

impl KvPlan {
    /// Bytes a rank spends on one sequence of so many tokens.
    pub fn sequence_bytes(self, model: &Model, ranks: u32, tokens: u32) -> u64 {
        let kept = u64::from(tokens.next_multiple_of(BLOCK_TOKENS));
        if let (Engine::Flotilla, Some(facts)) = (self.engine, &model.facts) {
            return kept * KvShape::of(facts, self.element_bytes, ranks).token_bytes();
        }
        let of_layer = |kv: &Kv| match *kv {
            Kv::Full { heads, dim } => kept * self.layer_token(heads, dim, ranks),
            Kv::Window { heads, dim, tokens } => {
                kept.min(u64::from(tokens.next_multiple_of(BLOCK_TOKENS)))
                    * self.layer_token(heads, dim, ranks)
            }
            Kv::Latent { width } => kept * u64::from(width) * u64::from(self.element_bytes),
        };
        model.layers.iter().map(of_layer).sum()
    }

    /// Bytes a rank spends on one more token of a sequence that is short of every window.
    pub fn token_bytes(self, model: &Model, ranks: u32) -> u64 {
        self.sequence_bytes(model, ranks, BLOCK_TOKENS) / u64::from(BLOCK_TOKENS)
    }

    /// A key and a value of one layer. Fewer heads than ranks are replicated.
    fn layer_token(self, heads: u32, dim: u32, ranks: u32) -> u64 {
        2 * u64::from(heads.div_ceil(ranks)) * u64::from(dim) * u64::from(self.element_bytes)
    }
}

/// Weights of the fullest rank. Matrices are split; key and value projections only as far as there are heads.
pub fn weight_bytes(model: &Model, ranks: u32) -> u64 {
    let head_dim = model.layers.iter().map(|kv| match *kv {
        Kv::Full { dim, .. } | Kv::Window { dim, .. } => u64::from(dim),
        Kv::Latent { .. } => 0,
    });
    let kv_numbers = 2 * u64::from(model.kv_heads) * u64::from(model.hidden) * head_dim.sum::<u64>();
    let each = model.weight_bytes as f64 / model.parameters as f64;
    let kv_bytes = (kv_numbers as f64 * each) as u64;
    let rest = model.weight_bytes.saturating_sub(kv_bytes);
    rest.div_ceil(u64::from(ranks)) + kv_bytes.div_ceil(u64::from(ranks.min(model.kv_heads)))
}

/// Everything that is neither weights nor KV on a GPU rank: activations, the driver's context, the collective's
/// buffers. Calibrated on vLLM with one H100 over 28 models; ours is not measured on GPUs yet, so it gets the same.
pub fn overhead_bytes(model: &Model, ranks: u32, sequences: u32) -> u64 {
    let calibrated = if model.is_mixture { 2.5 } else { 2.0 } * GIB;
    let logits = f64::from(sequences) * f64::from(model.vocab) * 4.0;
    let small = (model.hidden as f64 / 4096.0).min(1.0);
    let activations = (calibrated * small).max(logits).max(0.25 * GIB);
    let collective = if ranks > 1 { 0.6 * GIB } else { 0.0 };
    (activations + 0.3 * GIB + collective) as u64
}

#[cfg(test)]
mod tests {
    use super::super::known::known;
    use super::*;

    const OURS: KvPlan = KvPlan { engine: Engine::Flotilla, element_bytes: 2 };
    const VLLM: KvPlan = KvPlan { engine: Engine::Vllm, element_bytes: 2 };
    const VLLM_FP8: KvPlan = KvPlan { engine: Engine::Vllm, element_bytes: 1 };

    /// U127: bytes a token by hand.
    #[test]
    fn the_golden_table_of_bytes_a_token() {
        let check = |name: &str, plan: KvPlan, ranks: u32, by_hand: u64| {
            assert_eq!(plan.token_bytes(&known(name).unwrap(), ranks), by_hand, "{name} over {ranks}");
        };
        check("llama-3-8b", OURS, 1, 2 * 32 * 8 * 128 * 2);
        check("llama-3-8b", VLLM_FP8, 1, 2 * 32 * 8 * 128);
        check("llama-3-70b", OURS, 4, 2 * 80 * 2 * 128 * 2);
        check("llama-2-7b", OURS, 1, 2 * 32 * 32 * 128 * 2); // the 1 GiB for 2,048 tokens that some call 200 MB
        check("qwen2-7b", OURS, 1, 2 * 28 * 4 * 128 * 2);
        check("qwen2-7b", OURS, 7, 2 * 28 * 128 * 2); // fewer heads than ranks are replicated
        check("qwen3-0.6b", OURS, 1, 2 * 28 * 8 * 128 * 2); // head_dim is not hidden / heads
        check("gemma-3-27b", VLLM, 1, 2 * 62 * 16 * 128 * 2);
        check("mistral-7b", VLLM, 1, 2 * 32 * 8 * 128 * 2);
        check("deepseek-v3", VLLM, 1, 61 * 576 * 2);
        check("deepseek-v3", VLLM, 8, 61 * 576 * 2); // latent vectors are not split
        check("gpt-oss-20b", VLLM, 1, 2 * 24 * 8 * 64 * 2);
        check("smollm2-135m", OURS, 1, 23_040);
    }

    /// U127: windows bound what a long sequence takes, in engines that use them so.
    #[test]
    fn the_golden_table_of_long_sequences() {
        let check = |name: &str, plan: KvPlan, tokens: u32, by_hand: u64| {
            assert_eq!(plan.sequence_bytes(&known(name).unwrap(), 1, tokens), by_hand, "{name} at {tokens}");
        };
        check("mistral-7b", VLLM, 32_768, 2 * 32 * 8 * 128 * 2 * 4096);
        check("mistral-7b", OURS, 32_768, 2 * 32 * 8 * 128 * 2 * 32_768);
        // Five of six layers look back over 1,024 tokens; of 62 layers, 10 see all.
        check("gemma-3-27b", VLLM, 8192, 2 * 16 * 128 * 2 * (10 * 8192 + 52 * 1024));
        check("gpt-oss-20b", VLLM, 4096, 2 * 8 * 64 * 2 * (12 * 4096 + 12 * 128));
        check("llama-3-8b", OURS, 1, 131_072 * 32); // whole blocks
    }

    #[test]
    fn ranks_share_weights_but_not_the_heads_there_are_too_few_of() {
        let model = known("qwen2-7b").unwrap();
        let whole = weight_bytes(&model, 1);
        assert_eq!(whole, model.weight_bytes);
        assert!(weight_bytes(&model, 4).abs_diff(whole / 4) < 8);
        assert!(weight_bytes(&model, 7) > whole / 7);
    }
}
