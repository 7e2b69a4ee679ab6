//! A checkpoint: facts, tokenizer and template read, weights mapped, each tensor where its model asks.

use std::path::Path;

use replica_format::Error;
use replica_format::facts::{ModelFacts, TensorFacts};
use replica_format::gguf::Vocabulary;
use replica_format::inventory::{Inventory, Placed};
use serde_json::Value;
use xxhash_rust::xxh3::Xxh3;

use super::mapped::Mapped;
use super::{GenerationDefaults, TensorView, directory, floats, gguf, samples};

/// Where the tokenizer comes from.
#[derive(Debug)]
pub enum TokenizerSource {
    /// `tokenizer.json`, and `tokenizer_config.json` where there is one.
    Json {
        /// The file's bytes.
        tokenizer: Vec<u8>,
        /// Parsed; `null` when absent.
        config: Value,
    },
    /// A GGUF file's metadata.
    Gguf(Box<Vocabulary>),
}

/// A GGUF file or a Hugging Face folder, checked as far as its headers and a look into each matrix go.
#[derive(Debug)]
pub struct Checkpoint {
    /// What the model is.
    pub facts: ModelFacts,
    /// Changes with the headers, the tokenizer and (by samples) the weights; the same on every machine.
    pub revision: String,
    /// What an operator should read once, a line each.
    pub warnings: Vec<String>,
    /// The tokenizer.
    pub tokenizer: TokenizerSource,
    /// The chat template's source, where the checkpoint has one.
    pub chat_template: Option<String>,
    /// Spelling of the token a sequence begins with; empty when there is none.
    pub bos_text: String,
    /// Spelling of the token that ends a sequence; empty when there is none.
    pub eos_text: String,
    /// Sampling defaults.
    pub generation: GenerationDefaults,
    files: Vec<Mapped>,
    tensors: Vec<TensorFacts>,
    inventory: Inventory,
}

/// What a format's reader found, before the weights are looked at.
pub(super) struct Parts {
    pub facts: ModelFacts,
    pub tokenizer: TokenizerSource,
    pub chat_template: Option<String>,
    pub bos_text: String,
    pub eos_text: String,
    pub generation: GenerationDefaults,
    pub files: Vec<Mapped>,
    pub tensors: Vec<TensorFacts>,
    pub inventory: Inventory,
    /// Has seen headers and texts.
    pub hash: Xxh3,
}

impl Checkpoint {
    /// Opens a GGUF file, a Hugging Face folder, or a folder that holds one GGUF file.
    ///
    /// # Errors
    ///
    /// One line that names the file and the key or tensor at fault.
    pub fn open(path: &Path) -> Result<Self, Error> {
        let parts = if path.is_dir() { open_folder(path)? } else { gguf::open(path)? };
        let mut hash = parts.hash;
        for tensor in &parts.tensors {
            let file = &parts.files[tensor.file];
            samples::look(tensor, file.bytes(), &mut hash).map_err(|error| file.name(error))?;
        }
        let warnings = warnings(&parts.inventory);
        Ok(Self {
            facts: parts.facts,
            revision: format!("{:032x}", hash.digest128()),
            warnings,
            tokenizer: parts.tokenizer,
            chat_template: parts.chat_template,
            bos_text: parts.bos_text,
            eos_text: parts.eos_text,
            generation: parts.generation,
            files: parts.files,
            tensors: parts.tensors,
            inventory: parts.inventory,
        })
    }

    /// A tensor by Llama's name in Hugging Face, whatever family and format it comes from:
    ///
    /// - `model.embed_tokens.weight`, `model.norm.weight`, `lm_head.weight` (the embedding where tied);
    /// - `model.layers.N.` and `input_layernorm`, `post_attention_layernorm`, `pre_feedforward_layernorm`,
    ///   `post_feedforward_layernorm`, `self_attn.{q,k,v,o}_proj`, `self_attn.{q,k}_norm`,
    ///   `mlp.{gate,up,down}_proj`; mixtures `mlp.gate` and `mlp.experts.E.{gate,up,down}_proj`.
    ///
    /// Fused tensors come as their parts, and rows in Hugging Face's order.
    ///
    /// # Errors
    ///
    /// When the model has no such tensor.
    pub fn tensor(&self, name: &str) -> Result<TensorView<'_>, Error> {
        let place = self.inventory.places.get(name);
        place.map(|place| self.view(place)).ok_or_else(|| Error::at(name, "the model has no such tensor"))
    }

    /// A norm's weight or a bias, as the arithmetic uses it: where a norm multiplies by one plus what Hugging
    /// Face stores (Gemma), the one is added already.
    ///
    /// # Errors
    ///
    /// When the model has no such tensor.
    pub fn vector(&self, name: &str) -> Result<Vec<f32>, Error> {
        let view = self.tensor(name)?;
        let stored: Vec<u8> = (0..view.rows).flat_map(|row| view.row(row)).copied().collect();
        let mut numbers =
            floats::read(view.kind, &stored).ok_or_else(|| Error::at(name, "is a matrix, not a vector"))?;
        let from_hugging_face = matches!(self.tokenizer, TokenizerSource::Json { .. });
        if from_hugging_face && self.facts.architecture.norms_add_one() && name.ends_with("norm.weight") {
            for number in &mut numbers {
                *number += 1.0;
            }
        }
        Ok(numbers)
    }

    /// Names of all tensors the model has.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.inventory.places.keys().map(String::as_str)
    }

    /// Whether the model has this tensor (biases, which only some checkpoints of a family have).
    pub fn has(&self, name: &str) -> bool {
        self.inventory.places.contains_key(name)
    }

    fn view(&self, place: &Placed) -> TensorView<'_> {
        let tensor = &self.tensors[place.tensor];
        let start = tensor.offset as usize;
        let bytes = &self.files[tensor.file].bytes()[start..start + tensor.bytes as usize];
        let (rows, cols) = (place.stored_rows as usize, place.cols as usize);
        let first = place.first_row as usize;
        TensorView::new(tensor.kind, rows, cols, bytes, place.order).rows(first..first + place.rows as usize)
    }
}

/// How a special token of `tokenizer_config.json` is written: a text, or an object that holds it.
pub fn spelling(token: &Value) -> String {
    token.as_str().or_else(|| token["content"].as_str()).unwrap_or_default().to_owned()
}

fn open_folder(folder: &Path) -> Result<Parts, Error> {
    if folder.join("config.json").exists() {
        return directory::open(folder);
    }
    let fail = |error: std::io::Error| Error::refused(error.to_string()).in_file(folder.display());
    let entries = std::fs::read_dir(folder).map_err(fail)?.filter_map(Result::ok).map(|entry| entry.path());
    let mut files: Vec<_> =
        entries.filter(|path| path.extension().is_some_and(|end| end == "gguf")).collect();
    files.sort_unstable();
    match files.as_slice() {
        [one] => gguf::open(one),
        [] => {
            Err(Error::refused("the folder has neither config.json nor a GGUF file")
                .in_file(folder.display()))
        }
        many => {
            let reason = format!("the folder has {} GGUF files; name the one to serve", many.len());
            Err(Error::refused(reason).in_file(folder.display()))
        }
    }
}

/// Names of tensors that nobody asks for, the first few of them.
fn warnings(inventory: &Inventory) -> Vec<String> {
    const NAMED: usize = 8;
    let extra = &inventory.extra;
    if extra.is_empty() {
        return Vec::new();
    }
    let named = extra.iter().take(NAMED).map(String::as_str).collect::<Vec<_>>().join(", ");
    let more = if extra.len() > NAMED { format!(" and {} more", extra.len() - NAMED) } else { String::new() };
    vec![format!(
        "{} tensors of the checkpoint are not part of the model and are ignored: {named}{more}",
        extra.len()
    )]
}
