//! Opens a Hugging Face folder: configs, tokenizer, and one or many safetensors files.

use std::path::{Path, PathBuf};

use replica_format::Error;
use replica_format::error::undelivered;
use replica_format::facts::TensorFacts;
use replica_format::inventory::{self, Inventory, Source};
use replica_format::safetensors::{Header, Index};
use serde_json::Value;
use xxhash_rust::xxh3::Xxh3;

use super::GenerationDefaults;
use super::checkpoint::{Parts, TokenizerSource, spelling};
use super::mapped::Mapped;

pub fn open(folder: &Path) -> Result<Parts, Error> {
    let mut hash = Xxh3::new();
    let mut read = |name: &str| read(folder, name, &mut hash);
    let config = required(folder, "config.json", read("config.json")?)?;
    let config = json(folder, "config.json", &config)?;
    let generation = optional_json(folder, "generation_config.json", read("generation_config.json")?)?;
    let tokenizer = required(folder, "tokenizer.json", read("tokenizer.json")?)?;
    let tokenizer_config =
        optional_json(folder, "tokenizer_config.json", read("tokenizer_config.json")?)?.unwrap_or_default();
    let template_file = read("chat_template.jinja")?;
    let mut facts = replica_format::config::facts(&config, generation.as_ref())
        .map_err(|error| error.in_file(folder.join("config.json").display()))?;
    let shards = Shards::open(folder, &mut hash)?;
    inventory::weigh(&mut facts, &shards.tensors);
    let inventory = Inventory::take(&facts, Source::HuggingFace, &shards.tensors, &shards.unread)
        .map_err(|error| error.in_file(folder.display()))?;
    Ok(Parts {
        chat_template: chat_template(template_file, &tokenizer_config),
        bos_text: spelling(&tokenizer_config["bos_token"]),
        eos_text: spelling(&tokenizer_config["eos_token"]),
        generation: defaults(folder, generation)?,
        tokenizer: TokenizerSource::Json { tokenizer, config: tokenizer_config },
        facts,
        files: shards.files,
        tensors: shards.tensors,
        inventory,
        hash,
    })
}

/// The weights' files, mapped, and all their tensors.
struct Shards {
    files: Vec<Mapped>,
    tensors: Vec<TensorFacts>,
    unread: Vec<(String, String)>,
}

impl Shards {
    fn open(folder: &Path, hash: &mut Xxh3) -> Result<Self, Error> {
        const INDEX: &str = "model.safetensors.index.json";
        let index = match read(folder, INDEX, hash)? {
            None => None,
            Some(bytes) => {
                Some(Index::parse(&bytes).map_err(|error| error.in_file(folder.join(INDEX).display()))?)
            }
        };
        let names = index.as_ref().map_or_else(|| only_file(folder), |index| Ok(index.files.clone()))?;
        let mut shards = Self { files: Vec::new(), tensors: Vec::new(), unread: Vec::new() };
        for (position, name) in names.iter().enumerate() {
            let file = Mapped::open(&folder.join(name))?;
            let header =
                Header::parse(file.bytes(), file.len(), position).map_err(|error| file.name(error))?;
            hash.update(&file.bytes()[..header.header_bytes as usize]);
            shards.tensors.extend(header.tensors);
            shards.unread.extend(header.unread);
            shards.files.push(file);
        }
        if let Some(index) = index {
            let fault = index.check(&shards.tensors, &shards.unread);
            fault.map_err(|error| error.in_file(folder.join(INDEX).display()))?;
        }
        Ok(shards)
    }
}

/// The one safetensors file of a folder without an index.
fn only_file(folder: &Path) -> Result<Vec<String>, Error> {
    let usual = "model.safetensors";
    if folder.join(usual).exists() {
        return Ok(vec![usual.to_owned()]);
    }
    let reason = "the file is missing, and there is no model.safetensors.index.json that names others";
    Err(Error::refused(reason).in_file(folder.join(usual).display()))
}

/// A small file's bytes, which the revision depends on; `None` when it is absent.
fn read(folder: &Path, name: &str, hash: &mut Xxh3) -> Result<Option<Vec<u8>>, Error> {
    let path = folder.join(name);
    match std::fs::read(&path) {
        Ok(bytes) => {
            if let Some(reason) = undelivered(&bytes) {
                return Err(Error::refused(reason).in_file(path.display()));
            }
            hash.update(&bytes);
            Ok(Some(bytes))
        }
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(Error::refused(error.to_string()).in_file(path.display())),
    }
}

fn required(folder: &Path, name: &str, bytes: Option<Vec<u8>>) -> Result<Vec<u8>, Error> {
    bytes.ok_or_else(|| Error::refused("the file is missing").in_file(folder.join(name).display()))
}

fn json(folder: &Path, name: &str, bytes: &[u8]) -> Result<Value, Error> {
    let path: PathBuf = folder.join(name);
    serde_json::from_slice(bytes)
        .map_err(|error| Error::refused(format!("not JSON: {error}")).in_file(path.display()))
}

fn optional_json(folder: &Path, name: &str, bytes: Option<Vec<u8>>) -> Result<Option<Value>, Error> {
    bytes.map(|bytes| json(folder, name, &bytes)).transpose()
}

fn defaults(folder: &Path, generation: Option<Value>) -> Result<GenerationDefaults, Error> {
    let Some(generation) = generation else { return Ok(GenerationDefaults::default()) };
    let path = folder.join("generation_config.json");
    serde_json::from_value(generation)
        .map_err(|error| Error::refused(error.to_string()).in_file(path.display()))
}

/// A file of its own wins; else the tokenizer's config, where several templates have names.
fn chat_template(file: Option<Vec<u8>>, config: &Value) -> Option<String> {
    if let Some(text) = file.and_then(|bytes| String::from_utf8(bytes).ok()) {
        return Some(text);
    }
    match &config["chat_template"] {
        Value::String(text) => Some(text.clone()),
        Value::Array(named) => {
            let default = named.iter().find(|one| one["name"] == "default").or(named.first());
            default.and_then(|one| one["template"].as_str()).map(ToOwned::to_owned)
        }
        _ => None,
    }
}
