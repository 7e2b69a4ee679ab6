//! Which layers look how far, and what is done to scores.

use crate::Error;
use crate::facts::Architecture;

use super::json::Object;

/// The answers.
#[derive(Default)]
pub struct Attention {
    pub window: Option<u32>,
    pub local_layers: Vec<bool>,
    pub unrotated_layers: Vec<bool>,
    pub score_cap: Option<f32>,
    pub logit_cap: Option<f32>,
    pub scale: Option<f32>,
}

pub fn attention(object: Object<'_>, architecture: Architecture, layers: u32) -> Result<Attention, Error> {
    let window = object.u32("sliding_window")?.filter(|&window| window > 0);
    let whole_context = object.u32("max_position_embeddings")?.unwrap_or(u32::MAX);
    let mut attention = Attention::default();
    match architecture {
        Architecture::Llama => {}
        Architecture::SmolLm3 => attention.unrotated_layers = unrotated_layers(object, layers)?,
        Architecture::Mistral | Architecture::Mixtral | Architecture::Phi3 => {
            attention.window = window.filter(|&window| window < whole_context);
        }
        Architecture::Qwen2 | Architecture::Qwen3 | Architecture::Qwen3Moe => {
            if object.flag("use_sliding_window")?.unwrap_or(false) {
                attention.window = window;
                attention.local_layers = qwen_local_layers(object, layers)?;
            }
        }
        Architecture::Gemma2 | Architecture::Gemma3 => {
            attention.window = Some(window.unwrap_or(4096));
            attention.local_layers = gemma_local_layers(object, architecture, layers)?;
            attention.score_cap = object.f32("attn_logit_softcapping")?;
            attention.logit_cap = object.f32("final_logit_softcapping")?;
            attention.scale = Some(object.f32("query_pre_attn_scalar")?.unwrap_or(256.0).sqrt().recip());
        }
    }
    if attention.local_layers.iter().any(|&local| !local) && attention.window.is_none() {
        attention.local_layers.clear();
    }
    Ok(attention)
}

/// The explicit list, where the config has one.
fn layer_types(object: Object<'_>, layers: u32) -> Result<Option<Vec<bool>>, Error> {
    const KEY: &str = "layer_types";
    let Some(list) = object.list(KEY)? else { return Ok(None) };
    same_length(KEY, list.len(), layers)?;
    let local = list.iter().map(|kind| match kind.as_str() {
        Some("sliding_attention") => Ok(true),
        Some("full_attention") => Ok(false),
        _ => Err(Error::at(KEY, format!("{kind} is not supported"))),
    });
    local.collect::<Result<_, _>>().map(Some)
}

fn gemma_local_layers(
    object: Object<'_>,
    architecture: Architecture,
    layers: u32,
) -> Result<Vec<bool>, Error> {
    if let Some(local) = layer_types(object, layers)? {
        return Ok(local);
    }
    let default = if architecture == Architecture::Gemma2 { 2 } else { 6 };
    let written = object.u32("sliding_window_pattern")?.or(object.u32("_sliding_window_pattern")?);
    let period = written.filter(|&period| period > 0).unwrap_or(default);
    Ok((0..layers).map(|layer| (layer + 1) % period != 0).collect())
}

/// Layers from `max_window_layers` on are local.
fn qwen_local_layers(object: Object<'_>, layers: u32) -> Result<Vec<bool>, Error> {
    if let Some(local) = layer_types(object, layers)? {
        return Ok(local);
    }
    let full = object.u32("max_window_layers")?.unwrap_or(28);
    Ok((0..layers).map(|layer| layer >= full).collect())
}

/// `no_rope_layers` holds 1 where a layer *does* turn.
fn unrotated_layers(object: Object<'_>, layers: u32) -> Result<Vec<bool>, Error> {
    const KEY: &str = "no_rope_layers";
    if let Some(list) = object.list(KEY)? {
        same_length(KEY, list.len(), layers)?;
        return Ok(list.iter().map(|turns| turns.as_u64() == Some(0)).collect());
    }
    let period = object.u32("no_rope_layer_interval")?.filter(|&period| period > 0).unwrap_or(4);
    Ok((0..layers).map(|layer| (layer + 1) % period == 0).collect())
}

fn same_length(key: &str, found: usize, layers: u32) -> Result<(), Error> {
    if found == layers as usize {
        return Ok(());
    }
    Err(Error::at(key, format!("has {found} entries for {layers} layers")))
}
