//! A model's headers from disk: the bytes that `replica-format` asks for, never the weights.

use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

use replica_format::Error;
use replica_format::{gguf, inventory, safetensors};
use serde_json::Value;

use super::known::known;
use super::model::Model;

/// First read of a file's start; more where its header says so.
const START_BYTES: u64 = 1 << 20;
/// A longer header is damage.
const HEADER_BYTES_MAX: u64 = 512 << 20;

/// The model at a path, or of a known name.
///
/// # Errors
///
/// Says which file or key is at fault, or which names are known.
pub fn read(word: &str) -> Result<Model, String> {
    let path = Path::new(word);
    let name = || path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
    if path.is_dir() {
        return folder(path, &name());
    }
    if !path.exists() {
        return known(word);
    }
    if path.extension().is_some_and(|extension| extension == "json") {
        return Model::of_config(&name(), &json(path)?);
    }
    let facts = with_start(path, |bytes, length| gguf::Header::parse(bytes, length)?.facts())?;
    Ok(Model::of_facts(name(), facts))
}

fn folder(path: &Path, name: &str) -> Result<Model, String> {
    let mut model = Model::of_config(name, &json(&path.join("config.json"))?)?;
    let mut shards: Vec<PathBuf> = std::fs::read_dir(path)
        .map_err(|error| format!("{}: {error}", path.display()))?
        .filter_map(|entry| Some(entry.ok()?.path()))
        .filter(|path| path.extension().is_some_and(|extension| extension == "safetensors"))
        .collect();
    shards.sort();
    let Some(facts) = model.facts.as_mut().filter(|_| !shards.is_empty()) else { return Ok(model) };
    let mut tensors = Vec::new();
    for (file, shard) in shards.iter().enumerate() {
        let header = with_start(shard, |bytes, length| safetensors::Header::parse(bytes, length, file))?;
        tensors.extend(header.tensors);
    }
    inventory::weigh(facts, &tensors);
    Ok(Model::of_facts(name.to_owned(), facts.clone()))
}

fn json(path: &Path) -> Result<Value, String> {
    let text = std::fs::read_to_string(path).map_err(|error| format!("{}: {error}", path.display()))?;
    serde_json::from_str(&text).map_err(|error| format!("{}: {error}", path.display()))
}

/// Parses a file's start, reading more as long as the parser asks for more.
fn with_start<T>(path: &Path, mut parse: impl FnMut(&[u8], u64) -> Result<T, Error>) -> Result<T, String> {
    let fault = |what: &dyn std::fmt::Display| format!("{}: {what}", path.display());
    let mut file = File::open(path).map_err(|error| fault(&error))?;
    let length = file.metadata().map_err(|error| fault(&error))?.len();
    let mut start = Vec::new();
    let mut wanted = START_BYTES;
    loop {
        let more = wanted.min(length).saturating_sub(start.len() as u64);
        (&mut file).take(more).read_to_end(&mut start).map_err(|error| fault(&error))?;
        match parse(&start, length) {
            Err(Error::Short { needed }) if needed > start.len() as u64 && needed <= HEADER_BYTES_MAX => {
                // Headers of many small parts ask for little at a time.
                wanted = needed.max(2 * start.len() as u64);
            }
            other => return other.map_err(|error| fault(&error)),
        }
    }
}
