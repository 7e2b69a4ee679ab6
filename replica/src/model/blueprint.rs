//! What one family's decoder has that another's lacks. A new dense family is an arm here.
//!
//! Sizes, windows, tables and caps are the checkpoint's own facts; biases are there where it has them.

use replica_format::facts::{Architecture, ModelFacts};

use crate::layers::{Activation, Turn};

/// How a decoder is put together.
#[derive(Clone, PartialEq, Debug)]
pub struct Blueprint {
    /// Norms on single heads of queries and keys, before turning.
    pub qk_norm: bool,
    /// In the MLP.
    pub activation: Activation,
    /// Norms on what attention and MLP give, before it joins the residual stream.
    pub out_norms: bool,
    /// On embedded tokens.
    pub embedding_scale: Option<f32>,
    /// Factor on attention scores.
    pub attention_scale: f32,
    /// One a layer.
    pub layers: Vec<LayerPlan>,
}

/// How one layer attends.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LayerPlan {
    /// Positions it looks back over, its own among them.
    pub window: Option<u32>,
    /// How it turns.
    pub turn: Turn,
}

/// The blueprint of a model.
pub fn blueprint(facts: &ModelFacts) -> Blueprint {
    let plain = Blueprint {
        qk_norm: false,
        activation: Activation::Silu,
        out_norms: false,
        embedding_scale: None,
        attention_scale: facts.attention_scale.unwrap_or(1.0 / (facts.head_dim as f32).sqrt()),
        layers: (0..facts.layers as usize).map(|index| layer_plan(facts, index)).collect(),
    };
    match facts.architecture {
        Architecture::Llama
        | Architecture::SmolLm3
        | Architecture::Mistral
        | Architecture::Mixtral
        | Architecture::Qwen2
        | Architecture::Phi3 => plain,
        Architecture::Qwen3 | Architecture::Qwen3Moe => Blueprint { qk_norm: true, ..plain },
        Architecture::Gemma2 => gemma(plain, facts),
        Architecture::Gemma3 => Blueprint { qk_norm: true, ..gemma(plain, facts) },
    }
}

fn gemma(plain: Blueprint, facts: &ModelFacts) -> Blueprint {
    Blueprint {
        activation: Activation::GeluTanh,
        out_norms: true,
        embedding_scale: Some((facts.hidden_size as f32).sqrt()),
        ..plain
    }
}

fn layer_plan(facts: &ModelFacts, index: usize) -> LayerPlan {
    // Without a list all layers are alike: local where there is a window at all.
    let local = facts.local_layers.get(index).copied().unwrap_or(facts.sliding_window.is_some());
    let turn = match facts.unrotated_layers.get(index) {
        Some(true) => Turn::None,
        _ if local => Turn::Local,
        _ => Turn::Global,
    };
    LayerPlan { window: facts.sliding_window.filter(|_| local), turn }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::fake;

    fn check(facts: &ModelFacts, expected: &[(Option<u32>, Turn)]) {
        let layers: Vec<_> = blueprint(facts).layers.iter().map(|layer| (layer.window, layer.turn)).collect();
        assert_eq!(layers, expected);
    }

    #[test]
    fn layers_look_back_and_turn_as_the_checkpoint_says() {
        let plain = ModelFacts { layers: 2, ..fake::facts(64) };
        check(&plain, &[(None, Turn::Global); 2]);
        let windowed = ModelFacts { sliding_window: Some(8), ..plain.clone() };
        check(&windowed, &[(Some(8), Turn::Local); 2]);
        let mixed = ModelFacts { local_layers: vec![true, false], ..windowed };
        check(&mixed, &[(Some(8), Turn::Local), (None, Turn::Global)]);
        let unrotated = ModelFacts { unrotated_layers: vec![false, true], ..plain };
        check(&unrotated, &[(None, Turn::Global), (None, Turn::None)]);
    }
}
