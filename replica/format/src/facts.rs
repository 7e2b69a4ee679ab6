//! What a checkpoint says about its model, whatever file it came from. Names follow Hugging Face's config.json.

use serde::Serialize;

use crate::Error;
pub use crate::kind::TensorKind;

/// Everything the loader, the planner and the doctor need to know before reading a weight.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct ModelFacts {
    /// The family.
    pub architecture: Architecture,
    /// The model's own name, where the file gives one.
    pub name: Option<String>,
    /// Decoder layers.
    pub layers: u32,
    /// Width of the residual stream.
    pub hidden_size: u32,
    /// Width inside the MLP (of one expert, for mixtures).
    pub intermediate_size: u32,
    /// Query heads.
    pub heads: u32,
    /// Key and value heads.
    pub kv_heads: u32,
    /// Width of one head (not always `hidden_size / heads`).
    pub head_dim: u32,
    /// Rows of the embedding.
    pub vocab_size: u32,
    /// Positions the model was made for.
    pub context_tokens: u32,
    /// Epsilon of the RMS norms.
    pub norm_eps: f32,
    /// Rotary embedding.
    pub rope: Rope,
    /// Whether the output head is the embedding: what the file says, else the family's default.
    pub tied_embeddings: bool,
    /// Positions a local-attention layer looks back over; `None` for full attention everywhere.
    pub sliding_window: Option<u32>,
    /// Which layers are local, one a layer; empty when all are alike.
    pub local_layers: Vec<bool>,
    /// Which layers turn nothing (SmolLM3), one a layer; empty when all have a rotary embedding.
    pub unrotated_layers: Vec<bool>,
    /// tanh cap on attention scores.
    pub attention_softcap: Option<f32>,
    /// tanh cap on final logits.
    pub logit_softcap: Option<f32>,
    /// Factor on attention scores where it is not `1 / sqrt(head_dim)`.
    pub attention_scale: Option<f32>,
    /// Mixture of experts.
    pub experts: Option<Experts>,
    /// Tokens that end an answer (union over `config.json` and `generation_config.json`).
    pub eos_tokens: Vec<u32>,
    /// Token a prompt begins with, where the tokenizer adds one.
    pub bos_token: Option<u32>,
    /// Bytes of all weights as stored.
    pub weight_bytes: u64,
    /// Weights by count of parameters.
    pub parameters: u64,
    /// What most matrix weights are stored as, for example `Q4_1` or `BF16`.
    pub weight_kind: TensorKind,
}

/// Families whose arithmetic we know. A new one is a line here and a file in `replica::model`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Architecture {
    /// Llama 2 and 3, SmolLM2, Mistral.
    Llama,
    /// SmolLM3: Llama with some layers without rotary embedding.
    SmolLm3,
    /// Mistral with a sliding window.
    Mistral,
    /// Qwen2 and 2.5: biases on Q, K, V.
    Qwen2,
    /// Qwen3: norms on Q and K.
    Qwen3,
    /// Qwen3 with experts.
    Qwen3Moe,
    /// Mixtral.
    Mixtral,
    /// Gemma 2.
    Gemma2,
    /// Gemma 3, text.
    Gemma3,
    /// Phi-3 and Phi-4.
    Phi3,
}

impl Architecture {
    /// As people write them, for messages.
    pub const NAMES: &str =
        "Llama, SmolLM3, Mistral, Mixtral, Qwen2, Qwen3, Qwen3-MoE, Gemma 2, Gemma 3 and Phi-3";

    /// Gemma's norms multiply by one plus the weight, as Hugging Face stores it. (GGUF stores the sum.)
    pub fn norms_add_one(self) -> bool {
        matches!(self, Self::Gemma2 | Self::Gemma3)
    }

    /// Whether norms of Q and K come before the rotary embedding.
    pub fn has_head_norms(self) -> bool {
        matches!(self, Self::Qwen3 | Self::Qwen3Moe | Self::Gemma3)
    }

    /// Whether the output head is the embedding where a config does not say.
    pub fn ties_by_default(self) -> bool {
        matches!(self, Self::Gemma2 | Self::Gemma3 | Self::SmolLm3)
    }
}

/// Deepest model we believe in.
const LAYERS_MAX: u32 = 1 << 12;

impl ModelFacts {
    /// Refuses a depth that no model has, before anything is made for each layer.
    pub(crate) fn check_depth(layers: u32) -> Result<u32, Error> {
        if layers <= LAYERS_MAX {
            return Ok(layers);
        }
        Err(Error::refused(format!("layers is {layers}, outside 1 to {LAYERS_MAX}")))
    }

    /// Refuses sizes that no model has, so that nobody after us divides by zero or overflows.
    ///
    /// # Errors
    ///
    /// Names the size at fault.
    pub fn check(&self) -> Result<(), Error> {
        // Products of any two fit into 32 bits where they are taken as such.
        let sizes = [
            ("layers", self.layers, LAYERS_MAX),
            ("attention heads", self.heads, 1 << 12),
            ("key/value heads", self.kv_heads, 1 << 12),
            ("head_dim", self.head_dim, 1 << 16),
            ("hidden_size", self.hidden_size, 1 << 24),
            ("intermediate_size", self.intermediate_size, 1 << 24),
            ("vocab_size", self.vocab_size, 1 << 24),
        ];
        if let Some((name, size, most)) = sizes.iter().find(|(_, size, most)| *size == 0 || size > most) {
            return Err(Error::refused(format!("{name} is {size}, outside 1 to {most}")));
        }
        if !self.heads.is_multiple_of(self.kv_heads) {
            let reason =
                format!("{} attention heads cannot share {} key/value heads", self.heads, self.kv_heads);
            return Err(Error::refused(reason));
        }
        if !self.rope.dim.is_multiple_of(2) || self.rope.dim > self.head_dim {
            let reason =
                format!("{} of a head's {} dimensions turn: not an even part", self.rope.dim, self.head_dim);
            return Err(Error::refused(reason));
        }
        self.rope.check()?;
        if !(self.norm_eps > 0.0 && self.norm_eps < 1.0) {
            return Err(Error::refused(format!("the epsilon of the norms is {}", self.norm_eps)));
        }
        match self.experts {
            Some(Experts { count, active, .. }) if active == 0 || active > count || count > 4096 => {
                Err(Error::refused(format!("{active} of {count} experts are used for a token")))
            }
            _ => Ok(()),
        }
    }
}

impl Rope {
    /// Refuses bases, factors and lists of factors that arithmetic can't use.
    fn check(&self) -> Result<(), Error> {
        if !(self.theta.is_finite() && self.theta > 1.0) {
            return Err(Error::refused(format!("the rotary base is {}", self.theta)));
        }
        let sane = |factor: f32| factor.is_finite() && factor > 0.0;
        let fine = match &self.scaling {
            RopeScaling::None => true,
            RopeScaling::Linear { factor } => sane(*factor),
            RopeScaling::Dynamic { factor, original_context } => sane(*factor) && *original_context > 0,
            RopeScaling::Llama3 { factor, low_freq_factor, high_freq_factor, original_context } => {
                sane(*factor)
                    && sane(*low_freq_factor)
                    && low_freq_factor < high_freq_factor
                    && *original_context > 0
            }
            RopeScaling::Yarn { factor, beta_fast, beta_slow, attention_factor, original_context } => {
                [*factor, *beta_fast, *beta_slow, *attention_factor].into_iter().all(sane)
                    && *original_context > 0
            }
            RopeScaling::Long { short, long, attention_factor, original_context } => {
                let complete = |list: &[f32]| list.is_empty() || list.len() == self.dim as usize / 2;
                sane(*attention_factor)
                    && *original_context > 0
                    && [short, long]
                        .into_iter()
                        .all(|list| complete(list) && list.iter().all(|&factor| sane(factor)))
            }
        };
        if fine {
            Ok(())
        } else {
            Err(Error::refused(format!("RoPE scaling is impossible: {:?}", self.scaling)))
        }
    }
}

impl RopeScaling {
    /// How far a model reaches whose file writes `positions`. Some scalings stretch that; with others, and in
    /// Gemma 3, it is stretched already.
    pub fn reach(&self, positions: u32, architecture: Architecture) -> u32 {
        match self {
            Self::Linear { factor } if architecture != Architecture::Gemma3 => {
                (positions as f32 * factor) as u32
            }
            Self::Dynamic { factor, original_context } | Self::Yarn { factor, original_context, .. } => {
                positions.max((*original_context as f32 * factor) as u32)
            }
            _ => positions,
        }
    }
}

/// YaRN's factor on attention where the file gives none.
pub fn attention_factor_of_yarn(factor: f32) -> f32 {
    if factor <= 1.0 { 1.0 } else { 0.1 * factor.ln() + 1.0 }
}

/// Phi's factor on attention where the file gives none: `factor` is how far the context was stretched.
pub fn attention_factor_of_long(factor: f32, original_context: u32) -> f32 {
    if factor <= 1.0 { 1.0 } else { (1.0 + factor.ln() / (original_context as f32).ln()).sqrt() }
}

/// Rotary position embedding.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Rope {
    /// Base of the frequencies.
    pub theta: f32,
    /// Base in local layers, where it differs (Gemma 3).
    pub local_theta: Option<f32>,
    /// Dimensions of a head that turn; the rest pass (partial rotary).
    pub dim: u32,
    /// Stretching beyond the original context. Local layers are never stretched.
    pub scaling: RopeScaling,
}

/// How frequencies are stretched. Anything else refuses to load.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub enum RopeScaling {
    /// As trained.
    None,
    /// Positions divided.
    Linear { factor: f32 },
    /// NTK-aware by length.
    Dynamic { factor: f32, original_context: u32 },
    /// Llama 3's bands.
    Llama3 { factor: f32, low_freq_factor: f32, high_freq_factor: f32, original_context: u32 },
    /// YaRN. `attention_factor` is already resolved.
    Yarn { factor: f32, beta_fast: f32, beta_slow: f32, attention_factor: f32, original_context: u32 },
    /// Divisors, one a frequency (`dim / 2`): `short` up to the original context, `long` beyond it. GGUF
    /// keeps them in tensors (Llama 3's bands too, as equal lists): empty until those are read.
    Long { short: Vec<f32>, long: Vec<f32>, attention_factor: f32, original_context: u32 },
}

/// Mixture of experts.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
pub struct Experts {
    /// How many.
    pub count: u32,
    /// Used for one token.
    pub active: u32,
    /// Whether the chosen experts' weights are normalised to sum 1.
    pub normalised: bool,
}

/// Where one tensor lies.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct TensorFacts {
    /// Its name in the file.
    pub name: String,
    /// Outermost first, as Hugging Face writes shapes (GGUF's order reversed).
    pub shape: Vec<u64>,
    /// How it is stored.
    pub kind: TensorKind,
    /// Index of its file among the checkpoint's files.
    pub file: usize,
    /// Offset of its first byte in that file.
    pub offset: u64,
    /// Its length.
    pub bytes: u64,
}
