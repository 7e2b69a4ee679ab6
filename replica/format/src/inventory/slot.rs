//! The tensors each family is made of, under the names that models ask with.

use crate::facts::{Architecture, ModelFacts};

/// One tensor of a model.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Slot {
    pub layer: Option<u32>,
    pub expert: Option<u32>,
    /// For example `self_attn.q_proj`.
    pub part: &'static str,
    /// `weight` or `bias`.
    pub suffix: &'static str,
    pub rows: u64,
    /// 1 for vectors.
    pub cols: u64,
    pub required: bool,
}

impl Slot {
    fn matrix(part: &'static str, rows: u32, cols: u32) -> Self {
        let (rows, cols) = (rows.into(), cols.into());
        Self { layer: None, expert: None, part, suffix: "weight", rows, cols, required: true }
    }

    fn vector(part: &'static str, length: u32) -> Self {
        Self::matrix(part, length, 1)
    }

    fn bias(part: &'static str, length: u32, required: bool) -> Self {
        Self { suffix: "bias", required, ..Self::vector(part, length) }
    }

    /// The name models ask with.
    pub fn name(&self) -> String {
        let Self { part, suffix, .. } = self;
        match (self.layer, self.expert) {
            (Some(layer), Some(expert)) => {
                let projection = part.trim_start_matches("mlp.");
                format!("model.layers.{layer}.mlp.experts.{expert}.{projection}.{suffix}")
            }
            (Some(layer), None) => format!("model.layers.{layer}.{part}.{suffix}"),
            _ => format!("{part}.{suffix}"),
        }
    }

    pub fn is_query_or_key(&self) -> bool {
        matches!(self.part, "self_attn.q_proj" | "self_attn.k_proj")
    }
}

/// Embedding, last norm and output head.
pub fn outside_layers(facts: &ModelFacts) -> Vec<Slot> {
    let (vocabulary, hidden) = (facts.vocab_size, facts.hidden_size);
    let mut slots =
        vec![Slot::matrix("model.embed_tokens", vocabulary, hidden), Slot::vector("model.norm", hidden)];
    if !facts.tied_embeddings {
        slots.push(Slot::matrix("lm_head", vocabulary, hidden));
        slots.push(Slot::bias("lm_head", vocabulary, false));
    }
    slots
}

/// The tensors of one layer.
pub fn of_layer(facts: &ModelFacts, layer: u32) -> Vec<Slot> {
    let hidden = facts.hidden_size;
    let mut slots = attention(facts);
    slots.push(Slot::vector("input_layernorm", hidden));
    slots.push(Slot::vector("post_attention_layernorm", hidden));
    if facts.architecture.norms_add_one() {
        slots.push(Slot::vector("pre_feedforward_layernorm", hidden));
        slots.push(Slot::vector("post_feedforward_layernorm", hidden));
    }
    match facts.experts {
        None => slots.extend(mlp(facts)),
        Some(experts) => {
            slots.push(Slot::matrix("mlp.gate", experts.count, hidden));
            for expert in 0..experts.count {
                slots.extend(
                    mlp(facts)
                        .into_iter()
                        .filter(|slot| slot.required)
                        .map(|slot| Slot { expert: Some(expert), ..slot }),
                );
            }
        }
    }
    slots.into_iter().map(|slot| Slot { layer: Some(layer), ..slot }).collect()
}

fn attention(facts: &ModelFacts) -> Vec<Slot> {
    let (queries, keys) = (facts.heads * facts.head_dim, facts.kv_heads * facts.head_dim);
    let biased = facts.architecture == Architecture::Qwen2;
    let mut slots = vec![
        Slot::matrix("self_attn.q_proj", queries, facts.hidden_size),
        Slot::matrix("self_attn.k_proj", keys, facts.hidden_size),
        Slot::matrix("self_attn.v_proj", keys, facts.hidden_size),
        Slot::matrix("self_attn.o_proj", facts.hidden_size, queries),
        Slot::bias("self_attn.q_proj", queries, biased),
        Slot::bias("self_attn.k_proj", keys, biased),
        Slot::bias("self_attn.v_proj", keys, biased),
        Slot::bias("self_attn.o_proj", facts.hidden_size, false),
    ];
    if facts.architecture.has_head_norms() {
        slots.push(Slot::vector("self_attn.q_norm", facts.head_dim));
        slots.push(Slot::vector("self_attn.k_norm", facts.head_dim));
    }
    slots
}

fn mlp(facts: &ModelFacts) -> Vec<Slot> {
    let (hidden, inner) = (facts.hidden_size, facts.intermediate_size);
    vec![
        Slot::matrix("mlp.gate_proj", inner, hidden),
        Slot::matrix("mlp.up_proj", inner, hidden),
        Slot::matrix("mlp.down_proj", hidden, inner),
        Slot::bias("mlp.gate_proj", inner, false),
        Slot::bias("mlp.up_proj", inner, false),
        Slot::bias("mlp.down_proj", hidden, false),
    ]
}
