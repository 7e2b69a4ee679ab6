//! Rotary embedding and its scaling, as configs before and since transformers 5 write them.

use crate::Error;
use crate::facts::{Architecture, Rope, RopeScaling, attention_factor_of_long, attention_factor_of_yarn};

use super::json::Object;

pub fn rope(object: Object<'_>, architecture: Architecture, head_dim: u32) -> Result<Rope, Error> {
    let written = object.object("rope_parameters")?.or(object.object("rope_scaling")?);
    // Gemma 3 has one set for each kind of layer.
    let local = written.map(|all| all.object("sliding_attention")).transpose()?.flatten();
    let global = written.map(|all| all.object("full_attention")).transpose()?.flatten().or(written);
    let in_set = |set: Option<Object<'_>>| set.map_or(Ok(None), |set| set.f32("rope_theta"));
    let default = if architecture == Architecture::Gemma3 { 1_000_000.0 } else { 10_000.0 };
    let local_theta = match architecture {
        Architecture::Gemma3 => {
            let theta = in_set(local)?.or(object.f32("rope_local_base_freq")?);
            Some(theta.unwrap_or(10_000.0))
        }
        _ => None,
    };
    let in_global = global.map_or(Ok(None), |set| set.f32("partial_rotary_factor"))?;
    let part = in_global.or(object.f32("partial_rotary_factor")?).unwrap_or(1.0);
    Ok(Rope {
        theta: in_set(global)?.or(object.f32("rope_theta")?).unwrap_or(default),
        local_theta,
        dim: (head_dim as f32 * part) as u32,
        scaling: match global {
            None => RopeScaling::None,
            Some(set) => scaling(object, set)?,
        },
    })
}

fn scaling(object: Object<'_>, set: Object<'_>) -> Result<RopeScaling, Error> {
    let kind = set.text("rope_type")?.or(set.text("type")?).unwrap_or("default");
    let positions = object.count("max_position_embeddings")?;
    let original =
        set.u32("original_max_position_embeddings")?.or(object.u32("original_max_position_embeddings")?);
    Ok(match kind {
        "default" => RopeScaling::None,
        "linear" => RopeScaling::Linear { factor: set.required_f32("factor")? },
        "dynamic" => {
            let original_context = original.unwrap_or(positions);
            RopeScaling::Dynamic { factor: set.required_f32("factor")?, original_context }
        }
        "llama3" => RopeScaling::Llama3 {
            factor: set.required_f32("factor")?,
            low_freq_factor: set.required_f32("low_freq_factor")?,
            high_freq_factor: set.required_f32("high_freq_factor")?,
            original_context: set.count("original_max_position_embeddings")?,
        },
        "yarn" => yarn(set, original.unwrap_or(positions))?,
        "longrope" | "su" => long(set, positions, original)?,
        other => {
            let reason = format!(
                "RoPE scaling `{other}` is not supported; linear, dynamic, llama3, yarn and longrope are"
            );
            return Err(Error::at("rope_scaling", reason));
        }
    })
}

fn yarn(set: Object<'_>, original_context: u32) -> Result<RopeScaling, Error> {
    let factor = set.required_f32("factor")?;
    if set.flag("truncate")? == Some(false) {
        return Err(Error::at("rope_scaling", "yarn with `truncate` false is not supported"));
    }
    let scaled = |weight: f32| if factor <= 1.0 { 1.0 } else { 0.1 * weight * factor.ln() + 1.0 };
    let by_weights = match (set.f32("mscale")?, set.f32("mscale_all_dim")?) {
        (Some(over), Some(under)) if over != 0.0 && under != 0.0 => Some(scaled(over) / scaled(under)),
        _ => None,
    };
    Ok(RopeScaling::Yarn {
        factor,
        beta_fast: set.f32("beta_fast")?.unwrap_or(32.0),
        beta_slow: set.f32("beta_slow")?.unwrap_or(1.0),
        attention_factor: set
            .f32("attention_factor")?
            .or(by_weights)
            .unwrap_or_else(|| attention_factor_of_yarn(factor)),
        original_context,
    })
}

fn long(set: Object<'_>, positions: u32, original: Option<u32>) -> Result<RopeScaling, Error> {
    let list = |key: &str| set.floats(key)?.ok_or_else(|| Error::at(key, "the key is missing"));
    let original_context = original.unwrap_or(positions);
    let stretch = match original {
        Some(original) if original > 0 => positions as f32 / original as f32,
        _ => set.f32("factor")?.unwrap_or(1.0),
    };
    Ok(RopeScaling::Long {
        short: list("short_factor")?,
        long: list("long_factor")?,
        attention_factor: set
            .f32("attention_factor")?
            .unwrap_or_else(|| attention_factor_of_long(stretch, original_context)),
        original_context,
    })
}
