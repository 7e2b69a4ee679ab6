use proptest::prelude::*;
use serde_json::json;

use super::*;
use crate::facts::RopeScaling;

/// A config with `changes` on top; `null` takes a key away.
fn config(changes: &Value) -> Value {
    let mut config = json!({
        "model_type": "llama", "num_hidden_layers": 4, "hidden_size": 64, "intermediate_size": 96,
        "num_attention_heads": 4, "num_key_value_heads": 2, "vocab_size": 100, "max_position_embeddings": 256,
        "rms_norm_eps": 1e-5, "rope_theta": 5e5, "hidden_act": "silu", "eos_token_id": 2, "bos_token_id": 1,
        "torch_dtype": "bfloat16"
    });
    for (key, value) in changes.as_object().unwrap() {
        config[key] = value.clone();
    }
    config
}

fn read(changes: &Value) -> ModelFacts {
    facts(&config(changes), None).unwrap()
}

fn refusal(changes: &Value) -> String {
    facts(&config(changes), None).unwrap_err().to_string()
}

#[test]
fn a_llama_is_read_with_its_defaults() {
    let facts = read(&json!({}));
    assert_eq!(facts.architecture, Architecture::Llama);
    assert_eq!((facts.layers, facts.heads, facts.kv_heads, facts.head_dim), (4, 4, 2, 16));
    assert_eq!((facts.rope.theta, facts.rope.dim, facts.context_tokens), (5e5, 16, 256));
    assert!(!facts.tied_embeddings);
    let layer = 64 * 64 * 2 + 32 * 64 * 2 + 96 * 64 * 3 + 2 * 64;
    assert_eq!(facts.parameters, 4 * layer + 2 * 100 * 64 + 64);
    assert_eq!(facts.weight_bytes, 2 * facts.parameters);
    assert_eq!(read(&json!({"num_key_value_heads": null})).kv_heads, 4);
    assert_eq!(read(&json!({"head_dim": 32})).head_dim, 32);
    assert!(read(&json!({"tie_word_embeddings": true})).tied_embeddings);
}

/// U048.
#[test]
fn an_answer_ends_with_any_token_that_any_config_names() {
    let generation = json!({"eos_token_id": [7, 2, 5]});
    assert_eq!(facts(&config(&json!({})), Some(&generation)).unwrap().eos_tokens, [2, 5, 7]);
    assert_eq!(read(&json!({"eos_token_id": [9, 3]})).eos_tokens, [3, 9]);
    assert_eq!(read(&json!({"eos_token_id": null})).eos_tokens, [0; 0]);
}

#[test]
fn what_would_change_the_arithmetic_is_refused() {
    let cases = [
        (json!({"model_type": "deepseek_v3"}), "`model_type`: the model type `deepseek_v3` is not supported"),
        (json!({"model_type": null}), "`model_type`: the key is missing"),
        (json!({"hidden_size": null}), "`hidden_size`: the key is missing"),
        (json!({"hidden_size": "64"}), "`hidden_size`: should be a whole number"),
        (json!({"num_hidden_layers": 0}), "`num_hidden_layers`: is 0"),
        (json!({"num_attention_heads": 3}), "3 attention heads cannot share 2"),
        (json!({"hidden_act": "relu"}), "`hidden_act`: `relu` is not supported"),
        (
            json!({"quantization_config": {"quant_method": "awq"}}),
            "`quantization_config`: weights quantised by `awq`",
        ),
        (json!({"torch_dtype": "int8"}), "`torch_dtype`: `int8` is not supported"),
        (
            json!({"rope_scaling": {"rope_type": "magic"}}),
            "`rope_scaling`: RoPE scaling `magic` is not supported",
        ),
        (json!({"rope_scaling": {"type": "linear"}}), "`factor`: the key is missing"),
        (json!({"rope_scaling": {"type": "linear", "factor": 0}}), "RoPE scaling is impossible"),
        (
            json!({"model_type": "phi3", "rope_scaling": {"type": "longrope", "short_factor": [1.0], "long_factor": [1.0]}}),
            "RoPE scaling is impossible",
        ),
        (
            json!({"model_type": "qwen3_moe", "num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 8,
                "mlp_only_layers": [0]}),
            "`mlp_only_layers`: mixtures with some dense layers",
        ),
        (
            json!({"model_type": "mixtral", "num_local_experts": 4, "num_experts_per_tok": 5}),
            "5 of 4 experts are used",
        ),
        (
            json!({"model_type": "gemma2", "layer_types": ["full_attention"]}),
            "`layer_types`: has 1 entries for 4 layers",
        ),
    ];
    for (changes, expected) in cases {
        let found = refusal(&changes);
        assert!(found.starts_with(expected), "{found}\n  instead of {expected}");
    }
}

#[test]
fn scalings_are_read_as_old_and_new_configs_write_them() {
    let old = json!({"rope_scaling": {"type": "dynamic", "factor": 2.0}});
    assert_eq!(read(&old).rope.scaling, RopeScaling::Dynamic { factor: 2.0, original_context: 256 });
    assert_eq!(read(&old).context_tokens, 512);
    let llama3 = json!({"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
        "original_max_position_embeddings": 128});
    let expected = RopeScaling::Llama3 {
        factor: 8.0,
        low_freq_factor: 1.0,
        high_freq_factor: 4.0,
        original_context: 128,
    };
    assert_eq!(read(&json!({"rope_scaling": llama3.clone()})).rope.scaling, expected);
    let mut new = llama3;
    new["rope_theta"] = 1e6.into();
    let facts = read(&json!({"rope_theta": null, "rope_parameters": new}));
    assert_eq!((facts.rope.scaling, facts.rope.theta), (expected, 1e6));
    let yarn = json!({"rope_scaling": {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 128}});
    let RopeScaling::Yarn { attention_factor, beta_fast, beta_slow, .. } = read(&yarn).rope.scaling else {
        panic!()
    };
    assert!((attention_factor - 1.138_629_4).abs() < 1e-6);
    assert_eq!((beta_fast, beta_slow, read(&yarn).context_tokens), (32.0, 1.0, 512));
}

#[test]
fn phi_stretches_by_two_lists_and_turns_a_part_of_each_head() {
    let facts = read(&json!({"model_type": "phi3", "max_position_embeddings": 1024, "sliding_window": 200,
        "original_max_position_embeddings": 256, "partial_rotary_factor": 0.75,
        "rope_scaling": {"type": "longrope", "short_factor": [1.0, 1.0, 1.0, 1.0, 1.0, 1.0],
            "long_factor": [1.5, 2.0, 2.5, 3.0, 3.5, 4.0]}}));
    let RopeScaling::Long { short, long, attention_factor, original_context } = facts.rope.scaling else {
        panic!()
    };
    assert_eq!((short.len(), long[1], original_context, facts.rope.dim), (6, 2.0, 256, 12));
    // sqrt(1 + ln(4) / ln(256))
    assert!((attention_factor - 1.118_034).abs() < 1e-6);
    assert_eq!((facts.sliding_window, facts.local_layers.len()), (Some(200), 0));
}

#[test]
fn windows_belong_to_the_layers_that_have_them() {
    let window = |changes: &Value| {
        let facts = read(changes);
        (facts.architecture, facts.sliding_window, facts.local_layers)
    };
    let mistral = json!({"model_type": "mistral", "sliding_window": 64});
    assert_eq!(window(&mistral), (Architecture::Mistral, Some(64), vec![]));
    assert_eq!(window(&json!({"model_type": "mistral", "sliding_window": null})).0, Architecture::Llama);
    let qwen = json!({"model_type": "qwen2", "sliding_window": 64, "use_sliding_window": false});
    assert_eq!(window(&qwen), (Architecture::Qwen2, None, vec![]));
    let qwen = json!({"model_type": "qwen2", "sliding_window": 64, "use_sliding_window": true, "max_window_layers": 2});
    assert_eq!(window(&qwen).2, [false, false, true, true]);
    let gemma = json!({"model_type": "gemma2", "sliding_window": 64, "query_pre_attn_scalar": 64,
        "attn_logit_softcapping": 50.0, "final_logit_softcapping": 30.0});
    assert_eq!(window(&gemma), (Architecture::Gemma2, Some(64), vec![true, false, true, false]));
    let facts = read(&gemma);
    assert_eq!((facts.attention_scale, facts.attention_softcap), (Some(0.125), Some(50.0)));
    assert_eq!((facts.logit_softcap, facts.tied_embeddings), (Some(30.0), true));
}

#[test]
fn gemma_3_has_two_rotary_bases_and_may_be_wrapped() {
    let old = json!({"model_type": "gemma3_text", "rope_theta": 1e6, "rope_local_base_freq": 1e4,
        "sliding_window_pattern": 2, "sliding_window": 8, "rope_scaling": {"rope_type": "linear", "factor": 8.0}});
    let new = json!({"model_type": "gemma3_text", "rope_theta": null, "sliding_window": 8,
        "layer_types": ["sliding_attention", "full_attention", "sliding_attention", "full_attention"],
        "rope_parameters": {"sliding_attention": {"rope_type": "default", "rope_theta": 1e4},
            "full_attention": {"rope_type": "linear", "factor": 8.0, "rope_theta": 1e6}}});
    assert_eq!(read(&old), read(&new));
    assert_eq!((read(&old).rope.theta, read(&old).rope.local_theta), (1e6, Some(1e4)));
    assert_eq!(read(&old).context_tokens, 256);
    let wrapped = json!({"model_type": "gemma3", "text_config": config(&old), "eos_token_id": [1, 106]});
    let facts = facts(&wrapped, None).unwrap();
    assert_eq!((facts.architecture, facts.eos_tokens), (Architecture::Gemma3, vec![1, 2, 106]));
}

#[test]
fn some_layers_of_smollm3_do_not_turn() {
    let facts = read(&json!({"model_type": "smollm3"}));
    assert_eq!(facts.unrotated_layers, [false, false, false, true]);
    let facts = read(&json!({"model_type": "smollm3", "no_rope_layers": [1, 0, 1, 1]}));
    assert_eq!(facts.unrotated_layers, [false, true, false, false]);
}

/// Numbers as no sane config has them, beside sane ones.
fn numbers() -> impl Strategy<Value = Value> {
    prop_oneof![
        (0_u64..200).prop_map(Value::from),
        any::<u32>().prop_map(Value::from),
        (0_u32..32).prop_map(|shift| Value::from(1_u64 << shift)),
        any::<i64>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        Just(Value::Null),
        Just(json!("4")),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn no_numbers_make_it_panic(
        family in prop::sample::select(vec!["llama", "mixtral", "qwen3_moe", "gemma3", "phi3", "smollm3"]),
        values in prop::collection::vec(numbers(), KEYS.len()),
        chosen in prop::collection::vec(any::<bool>(), KEYS.len()),
    ) {
        let mut changes = json!({"model_type": family, "num_local_experts": 4, "num_experts_per_tok": 2,
            "moe_intermediate_size": 8});
        for ((key, value), _) in KEYS.iter().zip(values).zip(chosen).filter(|(_, chosen)| *chosen) {
            changes[*key] = value;
        }
        if let Ok(facts) = facts(&config(&changes), None) {
            let missing = inventory::Inventory::take(&facts, inventory::Source::HuggingFace, &[], &[]);
            prop_assert!(missing.is_err());
        }
    }
}

const KEYS: [&str; 14] = [
    "num_hidden_layers",
    "hidden_size",
    "intermediate_size",
    "num_attention_heads",
    "num_key_value_heads",
    "vocab_size",
    "max_position_embeddings",
    "rms_norm_eps",
    "rope_theta",
    "head_dim",
    "num_local_experts",
    "num_experts_per_tok",
    "sliding_window",
    "partial_rotary_factor",
];
