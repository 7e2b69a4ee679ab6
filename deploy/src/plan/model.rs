//! What planning needs to know of a model. Pure: facts or a config come in.
//!
//! Families that our replica serves come through `replica-format`, the very code that loads them. Two families
//! that others serve (multi-head latent attention, gpt-oss) are read here, and marked as not ours. Anything else
//! is refused: no number is better than a wrong one.

use replica_format::facts::{Architecture, ModelFacts};
use serde_json::Value;

use super::weights::Weights;

/// What one layer keeps of each token.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kv {
    /// A key and a value a head, for every token.
    Full { heads: u32, dim: u32 },
    /// The same, for the last `tokens` only.
    Window { heads: u32, dim: u32, tokens: u32 },
    /// One compressed vector, whole on every rank.
    Latent { width: u32 },
}

/// A model, as far as planning goes.
#[derive(Clone, PartialEq, Debug)]
pub struct Model {
    /// What it is called.
    pub name: String,
    /// One entry a layer.
    pub layers: Vec<Kv>,
    /// Width of the residual stream.
    pub hidden: u32,
    /// Width inside the MLP, of one expert for mixtures.
    pub intermediate: u32,
    /// Query heads.
    pub heads: u32,
    /// Key and value heads; 1 for latent attention.
    pub kv_heads: u32,
    /// Rows of the embedding.
    pub vocab: u32,
    /// The longest sequence it was made for.
    pub context_tokens: u32,
    /// All parameters.
    pub parameters: u64,
    /// Parameters that one token uses.
    pub active_parameters: u64,
    /// Parameters of embedding and head.
    pub embedding_parameters: u64,
    /// Parameters that quantised checkpoints leave in 16 bits: embedding and head, in gpt-oss attention too.
    pub wide_parameters: u64,
    /// Whether experts are chosen per token.
    pub is_mixture: bool,
    /// Bytes as stored.
    pub weight_bytes: u64,
    /// How they are stored.
    pub weights: Weights,
    /// What our replica would load; `None` for families of other engines.
    pub facts: Option<ModelFacts>,
}

impl Model {
    /// From what `replica-format` read.
    pub fn of_facts(name: String, facts: ModelFacts) -> Self {
        let kv = |layer: u32| {
            let (heads, dim) = (facts.kv_heads, facts.head_dim);
            let is_local = facts.local_layers.get(layer as usize).copied().unwrap_or(true);
            match facts.sliding_window.filter(|_| is_local) {
                Some(tokens) => Kv::Window { heads, dim, tokens },
                None => Kv::Full { heads, dim },
            }
        };
        let embedding = u64::from(facts.vocab_size) * u64::from(facts.hidden_size);
        let embedding = embedding * if facts.tied_embeddings { 1 } else { 2 };
        let expert =
            3 * u64::from(facts.hidden_size) * u64::from(facts.intermediate_size) * u64::from(facts.layers);
        let idle = facts.experts.map_or(0, |experts| u64::from(experts.count - experts.active) * expert);
        Self {
            name,
            layers: (0..facts.layers).map(kv).collect(),
            hidden: facts.hidden_size,
            intermediate: facts.intermediate_size,
            heads: facts.heads,
            kv_heads: facts.kv_heads,
            vocab: facts.vocab_size,
            context_tokens: facts.context_tokens,
            parameters: facts.parameters,
            active_parameters: facts.parameters.saturating_sub(idle),
            embedding_parameters: embedding,
            wide_parameters: embedding,
            is_mixture: facts.experts.is_some(),
            weight_bytes: facts.weight_bytes,
            weights: Weights::Stored,
            facts: Some(facts),
        }
    }

    /// From a Hugging Face config alone: weights are counted from shapes.
    ///
    /// # Errors
    ///
    /// Says what can't be estimated.
    pub fn of_config(name: &str, config: &Value) -> Result<Self, String> {
        let kind = config["model_type"].as_str().unwrap_or_default();
        let mut plain = config.clone();
        let quantization = plain.as_object_mut().and_then(|object| object.remove("quantization_config"));
        let mut model = match kind {
            "deepseek_v2" | "deepseek_v3" => latent(name, config)?,
            "gpt_oss" => gpt_oss(name, config)?,
            _ => {
                let facts = replica_format::config::facts(&plain, None);
                let facts = facts.map_err(|error| format!("cannot estimate {name}: {error}"))?;
                Self::of_facts(name.to_owned(), facts)
            }
        };
        if let Some(quantization) = quantization {
            let weights = Weights::of_config(&quantization).ok_or_else(|| {
                format!("cannot estimate {name}: unknown quantization_config {quantization}")
            })?;
            model = model.stored_as(weights);
            // Our replica refuses these checkpoints.
            model.facts = None;
        }
        Ok(model)
    }

    /// The same model with its weights stored in another way.
    #[must_use]
    pub fn stored_as(mut self, weights: Weights) -> Self {
        if let Some(bytes) = weights.bytes(self.parameters, self.wide_parameters) {
            self.weight_bytes = bytes;
            self.weights = weights;
        }
        self
    }

    /// Whether any layer looks back over a window only.
    pub fn has_windows(&self) -> bool {
        self.layers.iter().any(|kv| matches!(kv, Kv::Window { .. }))
    }

    /// The family, where our replica knows it.
    pub fn architecture(&self) -> Option<Architecture> {
        self.facts.as_ref().map(|facts| facts.architecture)
    }
}

fn count(config: &Value, key: &str) -> Result<u32, String> {
    let value = config[key].as_u64().and_then(|count| u32::try_from(count).ok()).filter(|&count| count > 0);
    value.ok_or_else(|| format!("cannot estimate: config.json has no usable {key}"))
}

/// DeepSeek V2 and V3: latent attention, a few dense layers, then mixtures with shared experts.
fn latent(name: &str, config: &Value) -> Result<Model, String> {
    let get = |key| count(config, key);
    let wide = |key| count(config, key).map(u64::from);
    let (layers, hidden, heads) =
        (get("num_hidden_layers")?, wide("hidden_size")?, wide("num_attention_heads")?);
    let (rank, rope, nope, value) =
        (wide("kv_lora_rank")?, wide("qk_rope_head_dim")?, wide("qk_nope_head_dim")?, wide("v_head_dim")?);
    let query = match wide("q_lora_rank") {
        Ok(low) => hidden * low + low * heads * (rope + nope),
        Err(_) => hidden * heads * (rope + nope),
    };
    let attention = query + hidden * (rank + rope) + rank * heads * (nope + value) + heads * value * hidden;
    let expert = 3 * hidden * wide("moe_intermediate_size")?;
    let dense_layers = u64::from(get("first_k_dense_replace").unwrap_or(0));
    let mixed_layers = u64::from(layers) - dense_layers.min(u64::from(layers));
    let shared = wide("n_shared_experts").unwrap_or(0);
    let embedding = 2 * wide("vocab_size")? * hidden;
    let common = u64::from(layers) * attention
        + dense_layers * 3 * hidden * wide("intermediate_size")?
        + mixed_layers * (shared * expert + hidden * wide("n_routed_experts")?)
        + embedding;
    let parameters = common + mixed_layers * wide("n_routed_experts")? * expert;
    Ok(Model {
        name: name.to_owned(),
        layers: vec![Kv::Latent { width: (rank + rope) as u32 }; layers as usize],
        hidden: hidden as u32,
        intermediate: get("moe_intermediate_size")?,
        heads: heads as u32,
        kv_heads: 1,
        vocab: get("vocab_size")?,
        context_tokens: get("max_position_embeddings")?,
        parameters,
        active_parameters: common + mixed_layers * wide("num_experts_per_tok")? * expert,
        embedding_parameters: embedding,
        wide_parameters: embedding,
        is_mixture: true,
        weight_bytes: 2 * parameters,
        weights: Weights::Stored,
        facts: None,
    })
}

/// gpt-oss: every second layer looks back over a window; all layers are mixtures.
fn gpt_oss(name: &str, config: &Value) -> Result<Model, String> {
    let get = |key| count(config, key);
    let wide = |key| count(config, key).map(u64::from);
    let (heads, dim, tokens) = (get("num_key_value_heads")?, get("head_dim")?, get("sliding_window")?);
    let layers = get("num_hidden_layers")?;
    let kv = |layer| if layer % 2 == 0 { Kv::Window { heads, dim, tokens } } else { Kv::Full { heads, dim } };
    let (hidden, inner) = (wide("hidden_size")?, wide("intermediate_size")?);
    let query = wide("num_attention_heads")? * u64::from(dim);
    let attention = 2 * hidden * query + 2 * hidden * u64::from(heads) * u64::from(dim);
    let expert = 3 * hidden * inner;
    let embedding = 2 * wide("vocab_size")? * hidden;
    let of = |experts: u64| embedding + u64::from(layers) * (attention + experts * expert);
    let parameters = of(wide("num_local_experts")?);
    Ok(Model {
        name: name.to_owned(),
        layers: (0..layers).map(kv).collect(),
        hidden: hidden as u32,
        intermediate: inner as u32,
        heads: get("num_attention_heads")?,
        kv_heads: heads,
        vocab: get("vocab_size")?,
        context_tokens: get("max_position_embeddings")?,
        parameters,
        active_parameters: of(wide("num_experts_per_tok")?),
        embedding_parameters: embedding,
        wide_parameters: embedding + u64::from(layers) * attention,
        is_mixture: true,
        weight_bytes: 2 * parameters,
        weights: Weights::Stored,
        facts: None,
    })
}

#[cfg(test)]
mod tests {
    use super::super::known::known;

    /// Parameters in billions, within one percent of what the makers say.
    fn check(name: &str, billions: f64, active: f64) {
        let model = known(name).unwrap();
        let near = |count: u64, wanted: f64| (count as f64 / 1e9 / wanted - 1.0).abs() < 0.01;
        assert!(near(model.parameters, billions), "{name}: {}", model.parameters);
        assert!(near(model.active_parameters, active), "{name}: {} active", model.active_parameters);
    }

    #[test]
    fn parameters_are_counted_from_shapes() {
        check("llama-2-7b", 6.738, 6.738);
        check("llama-3-8b", 8.03, 8.03);
        check("llama-3-70b", 70.55, 70.55);
        check("qwen2-7b", 7.616, 7.616);
        check("qwen2.5-32b", 32.76, 32.76);
        check("gemma-3-27b", 27.0, 27.0);
        check("mixtral-8x7b", 46.7, 12.88);
        check("qwen3-30b-a3b", 30.53, 3.35);
        check("deepseek-v3", 671.0, 37.5);
        check("gpt-oss-20b", 20.9, 4.19);
        check("smollm2-135m", 0.1345, 0.1345);
        check("llama-2-13b", 13.016, 13.016);
        check("mistral-7b", 7.242, 7.242);
        check("qwen2.5-72b", 72.71, 72.71);
        check("qwen3-0.6b", 0.596, 0.596);
        check("qwen3-8b", 8.19, 8.19);
        check("qwen3-32b", 32.76, 32.76);
        check("phi-4", 14.66, 14.66);
        // Its makers count 5.13 active without the embedding's rows.
        check("gpt-oss-120b", 116.8, 5.71);
    }

    /// U127: gigabytes as stored, within one percent of what the files of each checkpoint sum up to.
    #[test]
    fn the_golden_table_of_weights() {
        let check = |name: &str, gigabytes: f64| {
            let found = known(name).unwrap().weight_bytes as f64 / 1e9;
            assert!((found / gigabytes - 1.0).abs() < 0.01, "{name}: {found}");
        };
        check("llama-3-8b", 16.06);
        check("llama-3-70b", 141.1);
        check("qwen2-7b", 15.23);
        check("qwen2.5-72b", 145.4);
        check("qwen3-30b-a3b", 61.07);
        check("mixtral-8x7b", 93.4);
        check("phi-4", 29.32);
        // Experts in 4 bits, all else in 16.
        check("gpt-oss-20b", 13.76);
        check("gpt-oss-120b", 65.25);
        // Without the 14 billion parameters that predict a second token, which no plan needs.
        check("deepseek-v3", 671.0 + 2.0);
    }
}
