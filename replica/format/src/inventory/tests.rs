use serde_json::{Value, json};

use super::*;

fn facts(changes: &Value) -> ModelFacts {
    let mut config = json!({
        "model_type": "llama", "num_hidden_layers": 1, "hidden_size": 8, "intermediate_size": 12,
        "num_attention_heads": 2, "num_key_value_heads": 1, "vocab_size": 10, "max_position_embeddings": 16
    });
    for (key, value) in changes.as_object().unwrap() {
        config[key] = value.clone();
    }
    crate::config::facts(&config, None).unwrap()
}

fn tensor(name: &str, shape: &[u64]) -> TensorFacts {
    let bytes = 4 * shape.iter().product::<u64>();
    TensorFacts {
        name: name.to_owned(),
        shape: shape.to_vec(),
        kind: TensorKind::F32,
        file: 0,
        offset: 0,
        bytes,
    }
}

/// What a Hugging Face llama of these sizes stores.
fn llama() -> Vec<TensorFacts> {
    let layer = |part: &str| format!("model.layers.0.{part}.weight");
    vec![
        tensor("model.embed_tokens.weight", &[10, 8]),
        tensor("model.norm.weight", &[8]),
        tensor("lm_head.weight", &[10, 8]),
        tensor(&layer("input_layernorm"), &[8]),
        tensor(&layer("post_attention_layernorm"), &[8]),
        tensor(&layer("self_attn.q_proj"), &[8, 8]),
        tensor(&layer("self_attn.k_proj"), &[4, 8]),
        tensor(&layer("self_attn.v_proj"), &[4, 8]),
        tensor(&layer("self_attn.o_proj"), &[8, 8]),
        tensor(&layer("mlp.gate_proj"), &[12, 8]),
        tensor(&layer("mlp.up_proj"), &[12, 8]),
        tensor(&layer("mlp.down_proj"), &[8, 12]),
    ]
}

fn without(name: &str) -> Vec<TensorFacts> {
    llama().into_iter().filter(|tensor| tensor.name != name).collect()
}

fn take(facts: &ModelFacts, tensors: &[TensorFacts]) -> Result<Inventory, String> {
    Inventory::take(facts, Source::HuggingFace, tensors, &[]).map_err(|error| error.to_string())
}

/// U067.
#[test]
fn the_head_is_its_own_or_the_embedding_or_missing_by_name() {
    let untied = facts(&json!({"tie_word_embeddings": false}));
    let tied = facts(&json!({"tie_word_embeddings": true}));
    let silent = facts(&json!({}));
    let head = |facts: &ModelFacts, tensors: &[TensorFacts]| {
        take(facts, tensors).map(|i| i.places["lm_head.weight"].tensor)
    };
    assert_eq!(head(&untied, &llama()), Ok(2));
    assert_eq!(head(&silent, &llama()), Ok(2));
    assert_eq!(head(&tied, &without("lm_head.weight")), Ok(0));
    let both = take(&tied, &llama()).unwrap();
    assert_eq!(
        (both.places["lm_head.weight"].tensor, both.extra.as_slice()),
        (0, ["lm_head.weight".to_owned()].as_slice())
    );
    let missing = Err("`lm_head.weight`: the tensor is missing, and tie_word_embeddings is false".to_owned());
    assert_eq!(head(&untied, &without("lm_head.weight")), missing);
    assert_eq!(head(&silent, &without("lm_head.weight")), missing);
}

/// U068.
#[test]
fn extra_tensors_are_named_and_missing_ones_refused() {
    let facts = facts(&json!({}));
    let mut tensors = llama();
    tensors.push(tensor("model.layers.0.self_attn.rotary_emb.inv_freq", &[4]));
    assert_eq!(take(&facts, &tensors).unwrap().extra, ["model.layers.0.self_attn.rotary_emb.inv_freq"]);
    let name = "model.layers.0.mlp.up_proj.weight";
    assert_eq!(take(&facts, &without(name)).unwrap_err(), format!("`{name}`: the tensor is missing"));
}

#[test]
fn a_wrong_shape_or_an_unread_type_is_refused_by_name() {
    let facts = facts(&json!({}));
    let name = "model.layers.0.mlp.up_proj.weight";
    let mut tensors = without(name);
    tensors.push(tensor(name, &[8, 12]));
    let expected = format!("`{name}`: its shape is [8, 12], and the model's configuration asks for 12 x 8");
    assert_eq!(take(&facts, &tensors).unwrap_err(), expected);
    let unread = [(name.to_owned(), "F8_E4M3".to_owned())];
    let refused =
        Inventory::take(&facts, Source::HuggingFace, &without(name), &unread).unwrap_err().to_string();
    assert!(
        refused.starts_with(&format!("`{name}`: stored as F8_E4M3, which is not supported")),
        "{refused}"
    );
}

#[test]
fn biases_are_there_where_the_checkpoint_has_them() {
    let plain = facts(&json!({}));
    let mut tensors = llama();
    tensors.push(tensor("model.layers.0.self_attn.q_proj.bias", &[8]));
    assert!(take(&plain, &tensors).unwrap().places.contains_key("model.layers.0.self_attn.q_proj.bias"));
    let qwen = facts(&json!({"model_type": "qwen2"}));
    let missing = take(&qwen, &tensors).unwrap_err();
    assert_eq!(missing, "`model.layers.0.self_attn.k_proj.bias`: the tensor is missing");
}

#[test]
fn fused_tensors_come_apart() {
    let phi = facts(&json!({"model_type": "phi3"}));
    let mut tensors: Vec<_> = llama()
        .into_iter()
        .filter(|t| {
            !["q_proj", "k_proj", "v_proj", "gate_proj", "up_proj"].iter().any(|part| t.name.contains(part))
        })
        .collect();
    tensors.push(tensor("model.layers.0.self_attn.qkv_proj.weight", &[16, 8]));
    tensors.push(tensor("model.layers.0.mlp.gate_up_proj.weight", &[24, 8]));
    let inventory = take(&phi, &tensors).unwrap();
    let rows = |part: &str| {
        let place = inventory.places[&format!("model.layers.0.{part}.weight")];
        (place.stored_rows, place.first_row, place.rows)
    };
    assert_eq!(rows("self_attn.q_proj"), (16, 0, 8));
    assert_eq!(rows("self_attn.k_proj"), (16, 8, 4));
    assert_eq!(rows("self_attn.v_proj"), (16, 12, 4));
    assert_eq!(rows("mlp.gate_proj"), (24, 0, 12));
    assert_eq!(rows("mlp.up_proj"), (24, 12, 12));
    assert!(inventory.extra.is_empty());
}

#[test]
fn experts_have_one_name_whatever_the_family_calls_them() {
    let mixtral = facts(&json!({"model_type": "mixtral", "num_local_experts": 2, "num_experts_per_tok": 1}));
    let mut tensors: Vec<_> = llama().into_iter().filter(|t| !t.name.contains("mlp")).collect();
    tensors.push(tensor("model.layers.0.block_sparse_moe.gate.weight", &[2, 8]));
    for expert in 0..2 {
        for (weight, shape) in [("w1", [12, 8]), ("w2", [8, 12]), ("w3", [12, 8])] {
            tensors.push(tensor(
                &format!("model.layers.0.block_sparse_moe.experts.{expert}.{weight}.weight"),
                &shape,
            ));
        }
    }
    let inventory = take(&mixtral, &tensors).unwrap();
    let stored = |part: &str| {
        tensors[inventory.places[&format!("model.layers.0.mlp.{part}.weight")].tensor].name.clone()
    };
    assert!(stored("gate").ends_with("block_sparse_moe.gate.weight"));
    assert!(stored("experts.1.up_proj").ends_with("experts.1.w3.weight"));
    assert!(stored("experts.0.down_proj").ends_with("experts.0.w2.weight"));

    // GGUF stacks them.
    let gguf = [
        tensor("token_embd.weight", &[10, 8]),
        tensor("output_norm.weight", &[8]),
        tensor("output.weight", &[10, 8]),
        tensor("blk.0.attn_norm.weight", &[8]),
        tensor("blk.0.ffn_norm.weight", &[8]),
        tensor("blk.0.attn_q.weight", &[8, 8]),
        tensor("blk.0.attn_k.weight", &[4, 8]),
        tensor("blk.0.attn_v.weight", &[4, 8]),
        tensor("blk.0.attn_output.weight", &[8, 8]),
        tensor("blk.0.ffn_gate_inp.weight", &[2, 8]),
        tensor("blk.0.ffn_gate_exps.weight", &[2, 12, 8]),
        tensor("blk.0.ffn_up_exps.weight", &[2, 12, 8]),
        tensor("blk.0.ffn_down_exps.weight", &[2, 8, 12]),
        tensor("rope_freqs.weight", &[2]),
    ];
    let inventory = Inventory::take(&mixtral, Source::Gguf, &gguf, &[]).unwrap();
    let place = inventory.places["model.layers.0.mlp.experts.1.up_proj.weight"];
    assert_eq!((place.stored_rows, place.first_row, place.rows, place.cols), (24, 12, 12, 8));
    let query = inventory.places["model.layers.0.self_attn.q_proj.weight"];
    assert_eq!(query.order, RowOrder::Paired { head_dim: 4 });
    assert!(inventory.extra.is_empty());
}
