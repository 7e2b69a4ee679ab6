//! What file formats call the tensors that models ask for.

use crate::facts::{Architecture, ModelFacts};

use super::slot::Slot;

/// Whose names a checkpoint uses.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Source {
    /// Hugging Face's, family by family.
    HuggingFace,
    /// llama.cpp's.
    Gguf,
}

/// A stored tensor that may hold what is asked for.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Candidate {
    pub name: String,
    /// First row that belongs to the slot.
    pub first_row: u64,
    /// Rows the stored tensor must have.
    pub stored_rows: u64,
}

/// Where to look for a slot, likeliest first; never empty.
pub fn candidates(source: Source, facts: &ModelFacts, slot: &Slot) -> Vec<Candidate> {
    let whole = |name: String| Candidate { name, first_row: 0, stored_rows: slot.rows };
    match source {
        Source::Gguf => gguf(facts, slot),
        Source::HuggingFace => {
            if let Some(fused) = fused(facts, slot, ["self_attn.qkv_proj", "mlp.gate_up_proj"]) {
                return vec![Candidate { name: hugging_face(slot, fused.part), ..fused.candidate }];
            }
            let name = match (facts.architecture, slot.part) {
                (Architecture::Mixtral, "mlp.gate") => hugging_face(slot, "block_sparse_moe.gate"),
                (Architecture::Mixtral, _) if slot.expert.is_some() => mixtral_expert(slot),
                _ => slot.name(),
            };
            // Multimodal checkpoints keep the language model one storey down.
            let below = name.replacen("model.", "model.language_model.", 1);
            vec![whole(name.clone()), whole(format!("language_model.{name}")), whole(below)]
        }
    }
}

fn hugging_face(slot: &Slot, part: &str) -> String {
    format!("model.layers.{}.{part}.{}", slot.layer.unwrap_or_default(), slot.suffix)
}

fn mixtral_expert(slot: &Slot) -> String {
    let weight = match slot.part {
        "mlp.gate_proj" => "w1",
        "mlp.down_proj" => "w2",
        _ => "w3",
    };
    hugging_face(slot, &format!("block_sparse_moe.experts.{}.{weight}", slot.expert.unwrap_or_default()))
}

struct Fused {
    part: &'static str,
    candidate: Candidate,
}

/// Phi-3 stores Q, K and V as one tensor, and gate and up as another.
fn fused(facts: &ModelFacts, slot: &Slot, [qkv, gate_up]: [&'static str; 2]) -> Option<Fused> {
    if facts.architecture != Architecture::Phi3 {
        return None;
    }
    let queries = u64::from(facts.heads) * u64::from(facts.head_dim);
    let keys = u64::from(facts.kv_heads) * u64::from(facts.head_dim);
    let inner = u64::from(facts.intermediate_size);
    let (part, first_row, stored_rows) = match slot.part {
        "self_attn.q_proj" => (qkv, 0, queries + 2 * keys),
        "self_attn.k_proj" => (qkv, queries, queries + 2 * keys),
        "self_attn.v_proj" => (qkv, queries + keys, queries + 2 * keys),
        "mlp.gate_proj" => (gate_up, 0, 2 * inner),
        "mlp.up_proj" => (gate_up, inner, 2 * inner),
        _ => return None,
    };
    Some(Fused { part, candidate: Candidate { name: String::new(), first_row, stored_rows } })
}

fn gguf(facts: &ModelFacts, slot: &Slot) -> Vec<Candidate> {
    let whole = |name: String| Candidate { name, first_row: 0, stored_rows: slot.rows };
    let Some(layer) = slot.layer else {
        let part = match slot.part {
            "model.embed_tokens" => "token_embd",
            "model.norm" => "output_norm",
            _ => "output",
        };
        return vec![whole(format!("{part}.{}", slot.suffix))];
    };
    let in_layer = |part: &str| format!("blk.{layer}.{part}.{}", slot.suffix);
    if let Some(fused) = fused(facts, slot, ["attn_qkv", "ffn_up"]) {
        return vec![Candidate { name: in_layer(fused.part), ..fused.candidate }];
    }
    let part = gguf_part(facts.architecture, slot.part);
    let (Some(expert), Some(experts)) = (slot.expert, facts.experts) else {
        return vec![whole(in_layer(part))];
    };
    let stacked = Candidate {
        name: in_layer(&format!("{part}_exps")),
        first_row: u64::from(expert) * slot.rows,
        stored_rows: u64::from(experts.count) * slot.rows,
    };
    // Files from before 2024 keep experts apart.
    vec![stacked, whole(in_layer(&format!("{part}.{expert}")))]
}

fn gguf_part(architecture: Architecture, part: &'static str) -> &'static str {
    match part {
        "input_layernorm" => "attn_norm",
        "self_attn.q_proj" => "attn_q",
        "self_attn.k_proj" => "attn_k",
        "self_attn.v_proj" => "attn_v",
        "self_attn.o_proj" => "attn_output",
        "self_attn.q_norm" => "attn_q_norm",
        "self_attn.k_norm" => "attn_k_norm",
        "post_attention_layernorm" if architecture.norms_add_one() => "post_attention_norm",
        "post_attention_layernorm" | "pre_feedforward_layernorm" => "ffn_norm",
        "post_feedforward_layernorm" => "post_ffw_norm",
        "mlp.gate" => "ffn_gate_inp",
        "mlp.gate_proj" => "ffn_gate",
        "mlp.up_proj" => "ffn_up",
        "mlp.down_proj" => "ffn_down",
        other => other,
    }
}

/// Divisors of rotary frequencies: tensors in GGUF that no layer asks for.
pub fn is_rope_table(source: Source, name: &str) -> bool {
    source == Source::Gguf
        && matches!(name, "rope_freqs.weight" | "rope_factors_long.weight" | "rope_factors_short.weight")
}
