//! Hugging Face's config.json and `generation_config.json` to facts.

mod attention;
mod json;
mod rope;

use serde_json::Value;

use crate::Error;
use crate::facts::{Architecture, Experts, ModelFacts};
use crate::inventory;
use crate::kind::TensorKind;

use json::Object;

/// Reads the facts. Sums over weights are those of the shapes, stored as the config's dtype; replace them by
/// [`inventory::weigh`] when headers are at hand.
///
/// # Errors
///
/// Names the key that is missing, of the wrong type, or that asks for what we do not serve.
pub fn facts(config: &Value, generation: Option<&Value>) -> Result<ModelFacts, Error> {
    let outer = Object::new(config)?;
    let inner = outer.object("text_config")?;
    let object = inner.unwrap_or(outer);
    let architecture = architecture(object)?;
    refuse_unknown_arithmetic(outer, object, architecture)?;
    let heads = object.count("num_attention_heads")?;
    let hidden_size = object.count("hidden_size")?;
    let head_dim = object.u32("head_dim")?.unwrap_or(hidden_size / heads);
    let rope = rope::rope(object, architecture, head_dim)?;
    let layers = ModelFacts::check_depth(object.count("num_hidden_layers")?)?;
    let attention = attention::attention(object, architecture, layers)?;
    let tied = object.flag("tie_word_embeddings")?.or(outer.flag("tie_word_embeddings")?);
    let mut facts = ModelFacts {
        architecture: if attention.window.is_none() && architecture == Architecture::Mistral {
            Architecture::Llama
        } else {
            architecture
        },
        name: outer.text("_name_or_path")?.filter(|name| !name.is_empty()).map(ToOwned::to_owned),
        layers,
        hidden_size,
        intermediate_size: intermediate_size(object, architecture)?,
        heads,
        kv_heads: object.u32("num_key_value_heads")?.unwrap_or(heads),
        head_dim,
        vocab_size: object.count("vocab_size")?,
        context_tokens: rope.scaling.reach(object.count("max_position_embeddings")?, architecture),
        norm_eps: object.f32("rms_norm_eps")?.unwrap_or(1e-6),
        rope,
        tied_embeddings: tied.unwrap_or(architecture.ties_by_default()),
        sliding_window: attention.window,
        local_layers: attention.local_layers,
        unrotated_layers: attention.unrotated_layers,
        attention_softcap: attention.score_cap,
        logit_softcap: attention.logit_cap,
        attention_scale: attention.scale,
        experts: experts(object, architecture)?,
        eos_tokens: eos_tokens(&[Some(object), Some(outer), generation.map(Object::new).transpose()?])?,
        bos_token: object.token("bos_token_id")?,
        weight_bytes: 0,
        parameters: 0,
        weight_kind: TensorKind::F32,
    };
    facts.check()?;
    inventory::weigh_by_shapes(&mut facts, weight_kind(outer, object)?);
    Ok(facts)
}

fn architecture(object: Object<'_>) -> Result<Architecture, Error> {
    const KEY: &str = "model_type";
    let name = object.text(KEY)?.ok_or_else(|| Error::at(KEY, "the key is missing"))?;
    Ok(match name {
        "llama" => Architecture::Llama,
        "mistral" => Architecture::Mistral,
        "mixtral" => Architecture::Mixtral,
        "smollm3" => Architecture::SmolLm3,
        "qwen2" => Architecture::Qwen2,
        "qwen3" => Architecture::Qwen3,
        "qwen3_moe" => Architecture::Qwen3Moe,
        "gemma2" => Architecture::Gemma2,
        "gemma3" | "gemma3_text" => Architecture::Gemma3,
        "phi3" => Architecture::Phi3,
        other => {
            let reason = format!("the model type `{other}` is not supported; {} are", Architecture::NAMES);
            return Err(Error::at(KEY, reason));
        }
    })
}

/// Options of a config that would silently change the arithmetic.
fn refuse_unknown_arithmetic(
    outer: Object<'_>,
    object: Object<'_>,
    architecture: Architecture,
) -> Result<(), Error> {
    if let Some(quantization) = outer.object("quantization_config")?.or(object.object("quantization_config")?)
    {
        let method = quantization.text("quant_method")?.unwrap_or("unknown").to_owned();
        let reason =
            format!("weights quantised by `{method}` are not supported; F32, F16, BF16 and GGUF are");
        return Err(Error::at("quantization_config", reason));
    }
    let wanted: &[&str] =
        if architecture.norms_add_one() { &["gelu_pytorch_tanh", "gelu_new"] } else { &["silu", "swish"] };
    let key = if architecture.norms_add_one() { "hidden_activation" } else { "hidden_act" };
    match object.text(key)? {
        Some(name) if !wanted.contains(&name) => {
            Err(Error::at(key, format!("`{name}` is not supported for this family; {} is", wanted[0])))
        }
        _ => Ok(()),
    }
}

fn intermediate_size(object: Object<'_>, architecture: Architecture) -> Result<u32, Error> {
    match architecture {
        Architecture::Qwen3Moe => object.count("moe_intermediate_size"),
        _ => object.count("intermediate_size"),
    }
}

fn experts(object: Object<'_>, architecture: Architecture) -> Result<Option<Experts>, Error> {
    let normalised = match architecture {
        Architecture::Mixtral => true,
        Architecture::Qwen3Moe => object.flag("norm_topk_prob")?.unwrap_or(false),
        _ => return Ok(None),
    };
    let dense = object.list("mlp_only_layers")?.is_some_and(|layers| !layers.is_empty());
    if dense || object.u32("decoder_sparse_step")?.is_some_and(|step| step != 1) {
        let reason = "mixtures with some dense layers are not supported";
        return Err(Error::at(if dense { "mlp_only_layers" } else { "decoder_sparse_step" }, reason));
    }
    // Which of the two a family uses has changed with the versions of transformers.
    let count = object.u32("num_experts")?.or(object.u32("num_local_experts")?);
    let count = count.ok_or_else(|| Error::at("num_experts", "the key is missing"))?;
    Ok(Some(Experts { count, active: object.count("num_experts_per_tok")?, normalised }))
}

/// Every token that any of the configs lets end an answer.
fn eos_tokens(sources: &[Option<Object<'_>>]) -> Result<Vec<u32>, Error> {
    let mut tokens = Vec::new();
    for source in sources.iter().flatten() {
        tokens.extend(source.tokens("eos_token_id")?);
    }
    tokens.sort_unstable();
    tokens.dedup();
    Ok(tokens)
}

fn weight_kind(outer: Object<'_>, object: Object<'_>) -> Result<TensorKind, Error> {
    for key in ["dtype", "torch_dtype"] {
        match object.text(key)?.or(outer.text(key)?) {
            None => {}
            Some("float32") => return Ok(TensorKind::F32),
            Some("float16") => return Ok(TensorKind::F16),
            Some("bfloat16" | "auto") => return Ok(TensorKind::BF16),
            Some(other) => return Err(Error::at(key, format!("`{other}` is not supported"))),
        }
    }
    Ok(TensorKind::BF16)
}

#[cfg(test)]
mod tests;
