//! Sampling defaults that a checkpoint brings along.

use serde::Deserialize;

/// From `generation_config.json`; a request's own values win.
#[derive(Clone, Copy, PartialEq, Debug, Default, Deserialize)]
pub struct GenerationDefaults {
    /// Temperature.
    pub temperature: Option<f32>,
    /// Nucleus.
    pub top_p: Option<f32>,
    /// The likeliest few.
    pub top_k: Option<u32>,
    /// Least share of the likeliest.
    pub min_p: Option<f32>,
    /// Repetition penalty.
    pub repetition_penalty: Option<f32>,
}
