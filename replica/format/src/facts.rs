//! What a checkpoint says about its model, whatever file it came from. Names follow Hugging Face's config.json.

use serde::Serialize;

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
    /// Whether the output head is the embedding. `None` where config says nothing: the family's default.
    pub tied_embeddings: Option<bool>,
    /// Positions a local-attention layer looks back over; `None` for full attention everywhere.
    pub sliding_window: Option<u32>,
    /// Which layers are local, one a layer; empty when all are alike.
    pub local_layers: Vec<bool>,
    /// tanh cap on attention scores.
    pub attention_softcap: Option<f32>,
    /// tanh cap on final logits.
    pub logit_softcap: Option<f32>,
    /// Factor on attention scores where it is not `1 / sqrt(head_dim)`.
    pub attention_scale: Option<f32>,
    /// Mixture of experts.
    pub experts: Option<Experts>,
    /// Tokens that end an answer (union over config and generation_config).
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

/// Rotary position embedding.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Rope {
    /// Base of the frequencies.
    pub theta: f32,
    /// Base in local layers, where it differs (Gemma 3).
    pub local_theta: Option<f32>,
    /// Dimensions of a head that turn; the rest pass (partial rotary).
    pub dim: u32,
    /// Stretching beyond the original context.
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
    /// Phi's long and short factors, one a frequency.
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

/// How a tensor's elements are stored.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize)]
#[allow(non_camel_case_types, reason = "GGUF's own names")]
pub enum TensorKind {
    F32,
    F16,
    BF16,
    Q4_0,
    Q4_1,
    Q5_0,
    Q5_1,
    Q8_0,
    Q2_K,
    Q3_K,
    Q4_K,
    Q5_K,
    Q6_K,
}

impl TensorKind {
    /// Elements a block holds and bytes it takes.
    pub fn block(self) -> (usize, usize) {
        match self {
            Self::F32 => (1, 4),
            Self::F16 | Self::BF16 => (1, 2),
            Self::Q4_0 => (32, 18),
            Self::Q4_1 => (32, 20),
            Self::Q5_0 => (32, 22),
            Self::Q5_1 => (32, 24),
            Self::Q8_0 => (32, 34),
            Self::Q2_K => (256, 84),
            Self::Q3_K => (256, 110),
            Self::Q4_K => (256, 144),
            Self::Q5_K => (256, 176),
            Self::Q6_K => (256, 210),
        }
    }

    /// Bytes of `elements` in a row of whole blocks.
    pub fn bytes(self, elements: u64) -> u64 {
        let (per, bytes) = self.block();
        elements / per as u64 * bytes as u64
    }
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
