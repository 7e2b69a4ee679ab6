//! Small random models: a Llama written here, and one of each family from the repository.

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rand::rngs::SmallRng;
use rand::{Rng as _, SeedableRng as _};
use replica::model::fake;
use replica::weights::Checkpoint;

/// The tiny checkpoints of every family, by name; their contexts are 16 tokens at least.
pub fn families() -> Vec<(String, Arc<Checkpoint>)> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/reference/tiny");
    let mut paths: Vec<_> = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    assert!(paths.len() > 10, "only {paths:?}");
    let open = |path: &PathBuf| {
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        (name, Arc::new(Checkpoint::open(path).unwrap()))
    };
    paths.iter().map(open).collect()
}

/// Its sizes.
#[derive(Clone, Copy)]
pub struct Tiny {
    pub layers: usize,
    pub hidden: usize,
    pub inner: usize,
    pub heads: usize,
    pub kv_heads: usize,
    pub vocab: usize,
    pub tied: bool,
}

impl Default for Tiny {
    fn default() -> Self {
        Self {
            layers: 2,
            hidden: 64,
            inner: 96,
            heads: 4,
            kv_heads: 2,
            vocab: fake::VOCAB as usize,
            tied: true,
        }
    }
}

impl Tiny {
    /// Writes it as a Hugging Face folder with random f32 weights and opens that. The fake model's tokenizer
    /// comes along; tests speak token ids.
    pub fn checkpoint(self) -> Arc<Checkpoint> {
        let folder = tempfile::tempdir().unwrap();
        self.write(folder.path());
        Arc::new(Checkpoint::open(folder.path()).unwrap())
    }

    fn write(self, folder: &Path) {
        let head_dim = self.hidden / self.heads;
        let config = serde_json::json!({
            "architectures": ["LlamaForCausalLM"], "model_type": "llama", "num_hidden_layers": self.layers,
            "hidden_size": self.hidden, "intermediate_size": self.inner, "head_dim": head_dim,
            "num_attention_heads": self.heads, "num_key_value_heads": self.kv_heads, "vocab_size": self.vocab,
            "max_position_embeddings": 4096, "rms_norm_eps": 1e-5, "rope_theta": 10000.0,
            "tie_word_embeddings": self.tied, "eos_token_id": fake::END, "hidden_act": "silu",
        });
        std::fs::write(folder.join("config.json"), config.to_string()).unwrap();
        std::fs::write(folder.join("tokenizer.json"), fake::tokenizer_json()).unwrap();
        let mut header = serde_json::Map::new();
        let mut data = Vec::new();
        let mut random = SmallRng::seed_from_u64(7);
        for (name, shape) in self.tensors(head_dim) {
            let start = data.len();
            let norm = shape.len() == 1;
            let spread = if norm { 0.1 } else { 1.5 / (shape[1] as f32).sqrt() };
            for _ in 0..shape.iter().product::<usize>() {
                let value = random.random_range(-spread..spread) + f32::from(u8::from(norm));
                data.extend(value.to_le_bytes());
            }
            let entry =
                serde_json::json!({"dtype": "F32", "shape": shape, "data_offsets": [start, data.len()]});
            header.insert(name, entry);
        }
        let header = serde_json::Value::Object(header).to_string();
        let mut file = std::fs::File::create(folder.join("model.safetensors")).unwrap();
        file.write_all(&(header.len() as u64).to_le_bytes()).unwrap();
        file.write_all(header.as_bytes()).unwrap();
        file.write_all(&data).unwrap();
    }

    fn tensors(self, head_dim: usize) -> Vec<(String, Vec<usize>)> {
        let (hidden, inner) = (self.hidden, self.inner);
        let (queries, keys) = (self.heads * head_dim, self.kv_heads * head_dim);
        let mut tensors = vec![
            ("model.embed_tokens.weight".to_owned(), vec![self.vocab, hidden]),
            ("model.norm.weight".to_owned(), vec![hidden]),
        ];
        if !self.tied {
            tensors.push(("lm_head.weight".to_owned(), vec![self.vocab, hidden]));
        }
        for layer in 0..self.layers {
            let of_layer = [
                ("input_layernorm", vec![hidden]),
                ("post_attention_layernorm", vec![hidden]),
                ("self_attn.q_proj", vec![queries, hidden]),
                ("self_attn.k_proj", vec![keys, hidden]),
                ("self_attn.v_proj", vec![keys, hidden]),
                ("self_attn.o_proj", vec![hidden, queries]),
                ("mlp.gate_proj", vec![inner, hidden]),
                ("mlp.up_proj", vec![inner, hidden]),
                ("mlp.down_proj", vec![hidden, inner]),
            ];
            let named = of_layer.into_iter();
            tensors.extend(named.map(|(part, shape)| (format!("model.layers.{layer}.{part}.weight"), shape)));
        }
        tensors
    }
}
