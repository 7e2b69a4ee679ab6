//! Metadata of a GGUF file to facts. What llama.cpp knows by heart of a family (windows, patterns, scales)
//! is written here too, since its files do not say it.

use crate::Error;
use crate::facts::{
    Architecture, Experts, ModelFacts, Rope, RopeScaling, attention_factor_of_long, attention_factor_of_yarn,
};
use crate::inventory;
use crate::kind::TensorKind;

use super::metadata::{Array, Metadata};
use super::{Header, Vocabulary};

/// Keys below the architecture's name, `llama.block_count` for example.
struct Keys<'h, 'a> {
    metadata: &'h Metadata<'a>,
    prefix: &'a str,
}

impl Keys<'_, '_> {
    fn name(&self, key: &str) -> String {
        format!("{}.{key}", self.prefix)
    }

    fn u32(&self, key: &str) -> Result<Option<u32>, Error> {
        self.metadata.u32(&self.name(key))
    }

    fn f32(&self, key: &str) -> Result<Option<f32>, Error> {
        self.metadata.f32(&self.name(key))
    }

    /// A count that must be there and cannot be nothing.
    fn count(&self, key: &str) -> Result<u32, Error> {
        let name = self.name(key);
        match self.metadata.required_u32(&name)? {
            0 => Err(Error::at(&name, "is 0")),
            count => Ok(count),
        }
    }
}

pub fn facts(header: &Header<'_>) -> Result<ModelFacts, Error> {
    const KEY: &str = "general.architecture";
    let metadata = &header.metadata;
    let prefix = metadata.text(KEY)?.ok_or_else(|| Error::at(KEY, "the key is missing"))?;
    let keys = Keys { metadata, prefix };
    let architecture = architecture(&keys)?;
    let vocabulary = header.vocabulary()?;
    let heads = keys.count("attention.head_count")?;
    let hidden_size = keys.count("embedding_length")?;
    let layers = ModelFacts::check_depth(keys.count("block_count")?)?;
    let head_dim = keys.u32("attention.key_length")?.unwrap_or(hidden_size / heads);
    let rope = rope(&keys, architecture, head_dim)?;
    let stored = |name: &str| header.tensors.iter().find(|tensor| tensor.name == name);
    let mut facts = ModelFacts {
        architecture,
        name: metadata.text("general.name")?.map(ToOwned::to_owned),
        layers,
        hidden_size,
        intermediate_size: intermediate_size(&keys)?,
        heads,
        kv_heads: keys.u32("attention.head_count_kv")?.unwrap_or(heads),
        head_dim,
        vocab_size: stored("token_embd.weight")
            .and_then(|tensor| u32::try_from(tensor.shape[0]).ok())
            .unwrap_or(vocabulary.tokens.len() as u32),
        context_tokens: rope.scaling.reach(keys.count("context_length")?, architecture),
        norm_eps: required_f32(&keys, "attention.layer_norm_rms_epsilon")?,
        rope,
        tied_embeddings: stored("output.weight").is_none(),
        sliding_window: None,
        local_layers: Vec::new(),
        unrotated_layers: Vec::new(),
        attention_softcap: keys.f32("attn_logit_softcapping")?,
        logit_softcap: keys.f32("final_logit_softcapping")?,
        attention_scale: None,
        experts: experts(&keys, architecture)?,
        eos_tokens: eos_tokens(metadata, &vocabulary)?,
        bos_token: vocabulary.bos,
        weight_bytes: 0,
        parameters: 0,
        weight_kind: TensorKind::F32,
    };
    if stored("rope_freqs.weight").is_some() && facts.rope.scaling == RopeScaling::None {
        facts.rope.scaling = in_tensors(facts.context_tokens, 1.0);
    }
    set_family_lore(&keys, &mut facts)?;
    facts.check()?;
    inventory::weigh(&mut facts, &header.tensors);
    Ok(facts)
}

fn architecture(keys: &Keys<'_, '_>) -> Result<Architecture, Error> {
    Ok(match keys.prefix {
        "llama" if keys.u32("expert_count")?.unwrap_or(0) > 0 => Architecture::Mixtral,
        "llama" if keys.u32("attention.sliding_window")?.is_some() => Architecture::Mistral,
        "llama" => Architecture::Llama,
        "smollm3" => Architecture::SmolLm3,
        "qwen2" => Architecture::Qwen2,
        "qwen3" => Architecture::Qwen3,
        "qwen3moe" => Architecture::Qwen3Moe,
        "gemma2" => Architecture::Gemma2,
        "gemma3" => Architecture::Gemma3,
        "phi3" => Architecture::Phi3,
        other => {
            return Err(Error::at(
                "general.architecture",
                format!("the architecture `{other}` is not supported; {} are", Architecture::NAMES),
            ));
        }
    })
}

/// Mixtures say how wide one expert is; Mixtral's files leave it at the width of a dense layer.
fn intermediate_size(keys: &Keys<'_, '_>) -> Result<u32, Error> {
    match keys.u32("expert_feed_forward_length")? {
        Some(width) if width > 0 => Ok(width),
        _ => keys.count("feed_forward_length"),
    }
}

fn required_f32(keys: &Keys<'_, '_>, key: &str) -> Result<f32, Error> {
    keys.f32(key)?.ok_or_else(|| Error::at(&keys.name(key), "the key is missing"))
}

fn experts(keys: &Keys<'_, '_>, architecture: Architecture) -> Result<Option<Experts>, Error> {
    if !matches!(architecture, Architecture::Mixtral | Architecture::Qwen3Moe) {
        return Ok(None);
    }
    let (count, active) = (keys.count("expert_count")?, keys.count("expert_used_count")?);
    Ok(Some(Experts { count, active, normalised: true }))
}

fn rope(keys: &Keys<'_, '_>, architecture: Architecture, head_dim: u32) -> Result<Rope, Error> {
    let local_theta = match architecture {
        Architecture::Gemma3 => Some(keys.f32("rope.freq_base_swa")?.unwrap_or(10_000.0)),
        _ => None,
    };
    Ok(Rope {
        theta: keys.f32("rope.freq_base")?.unwrap_or(10_000.0),
        local_theta,
        dim: keys.u32("rope.dimension_count")?.unwrap_or(head_dim),
        scaling: scaling(keys, architecture)?,
    })
}

fn scaling(keys: &Keys<'_, '_>, architecture: Architecture) -> Result<RopeScaling, Error> {
    const TYPE: &str = "rope.scaling.type";
    let context = keys.count("context_length")?;
    let original_context = keys.u32("rope.scaling.original_context_length")?.unwrap_or(context);
    let factor = keys.f32("rope.scaling.factor")?;
    if architecture == Architecture::Phi3 && original_context < context {
        let given = keys.f32("rope.scaling.attn_factor")?;
        let factor = context as f32 / original_context as f32;
        let attention_factor = given.unwrap_or_else(|| attention_factor_of_long(factor, original_context));
        return Ok(in_tensors(original_context, attention_factor));
    }
    // Files from before the type was written have a factor of linear scaling alone.
    let linear = keys.f32("rope.scale_linear")?.filter(|factor| !matches!(factor, 0.0 | 1.0));
    let kind =
        keys.metadata.text(&keys.name(TYPE))?.unwrap_or(if linear.is_some() { "linear" } else { "none" });
    let factor = || {
        factor.or(linear).ok_or_else(|| Error::at(&keys.name("rope.scaling.factor"), "the key is missing"))
    };
    Ok(match kind {
        "none" => RopeScaling::None,
        "linear" => RopeScaling::Linear { factor: factor()? },
        "yarn" => RopeScaling::Yarn {
            factor: factor()?,
            beta_fast: keys.f32("rope.scaling.yarn_beta_fast")?.unwrap_or(32.0),
            beta_slow: keys.f32("rope.scaling.yarn_beta_slow")?.unwrap_or(1.0),
            attention_factor: attention_factor_of_yarn(factor()?),
            original_context,
        },
        other => {
            let reason = format!("RoPE scaling `{other}` is not supported; none, linear and yarn are");
            return Err(Error::at(&keys.name(TYPE), reason));
        }
    })
}

/// Factors that lie in tensors of the file, to be read later.
fn in_tensors(original_context: u32, attention_factor: f32) -> RopeScaling {
    RopeScaling::Long { short: Vec::new(), long: Vec::new(), attention_factor, original_context }
}

/// What the file leaves to llama.cpp's knowledge of the family.
fn set_family_lore(keys: &Keys<'_, '_>, facts: &mut ModelFacts) -> Result<(), Error> {
    let window = keys.u32("attention.sliding_window")?.filter(|&window| window > 0);
    let every = |period: u32| (0..facts.layers).map(|layer| (layer + 1) % period != 0).collect();
    match facts.architecture {
        Architecture::Mistral => facts.sliding_window = window,
        Architecture::Phi3 => facts.sliding_window = window.filter(|&window| window < facts.context_tokens),
        Architecture::Gemma2 => {
            facts.local_layers = every(2);
            facts.sliding_window = Some(window.unwrap_or(4096));
            facts.attention_softcap = facts.attention_softcap.or(Some(50.0));
            facts.logit_softcap = facts.logit_softcap.or(Some(30.0));
            // The 27B, known by its 46 layers, scales by the width of the residual stream instead.
            facts.attention_scale = (facts.layers == 46).then(|| by_heads(facts));
        }
        Architecture::Gemma3 => {
            facts.local_layers =
                every(keys.u32("attention.sliding_window_pattern")?.filter(|&p| p > 0).unwrap_or(6));
            facts.sliding_window = Some(window.unwrap_or(1024));
            facts.attention_scale = (facts.layers == 62).then(|| by_heads(facts));
        }
        Architecture::SmolLm3 => {
            facts.unrotated_layers = (0..facts.layers).map(|layer| (layer + 1) % 4 == 0).collect();
        }
        _ => {}
    }
    Ok(())
}

fn by_heads(facts: &ModelFacts) -> f32 {
    (facts.hidden_size as f32 / facts.heads as f32).sqrt().recip()
}

/// The named ends of a sequence, a turn or a message, and the spellings that end one in the families we serve.
fn eos_tokens(metadata: &Metadata<'_>, vocabulary: &Vocabulary) -> Result<Vec<u32>, Error> {
    const ENDS: [&str; 7] = [
        "<|eot_id|>",
        "<|im_end|>",
        "<|end|>",
        "<end_of_turn>",
        "<|endoftext|>",
        "<|end_of_text|>",
        "<|eom_id|>",
    ];
    let mut ends: Vec<u32> = vocabulary.eos.into_iter().collect();
    for key in ["tokenizer.ggml.eot_token_id", "tokenizer.ggml.eom_token_id"] {
        ends.extend(metadata.u32(key)?.filter(|&id| (id as usize) < vocabulary.tokens.len()));
    }
    if let Some(Array::Integers(ids)) = metadata.array("tokenizer.ggml.eos_token_ids")? {
        ends.extend(ids.iter().filter_map(|&id| u32::try_from(id).ok()));
    }
    let named = vocabulary.tokens.iter().enumerate().filter(|(_, token)| ENDS.contains(&token.as_str()));
    ends.extend(named.map(|(id, _)| id as u32));
    ends.sort_unstable();
    ends.dedup();
    Ok(ends)
}
