//! Safetensors headers, and the index that joins many files to one checkpoint.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

use crate::error::{Error, undelivered};
use crate::facts::TensorFacts;
use crate::kind::TensorKind;

/// Longest header we read, as in the reference implementation.
const HEADER_BYTES_MAX: u64 = 100_000_000;

/// A parsed header.
#[derive(Clone, PartialEq, Debug)]
pub struct Header {
    /// Tensors of the types we read, by offset.
    pub tensors: Vec<TensorFacts>,
    /// Names and types of the others. They matter only when the model needs one.
    pub unread: Vec<(String, String)>,
    /// Bytes from the file's start to its first tensor.
    pub header_bytes: u64,
}

impl Header {
    /// Reads the header from the first bytes of file number `file`, which is `file_bytes` long.
    ///
    /// # Errors
    ///
    /// [`Error::Short`] says how many bytes are needed; otherwise what is wrong with the file.
    pub fn parse(bytes: &[u8], file_bytes: u64, file: usize) -> Result<Self, Error> {
        if let Some(reason) = undelivered(bytes) {
            return Err(Error::refused(reason));
        }
        let entries = entries(bytes, file_bytes)?;
        let header_bytes = entries.1;
        let mut header = Self { tensors: Vec::new(), unread: Vec::new(), header_bytes };
        for (name, entry) in &entries.0 {
            if name == "__metadata__" {
                continue;
            }
            let stored = entry["dtype"].as_str().ok_or_else(|| Error::at(name, "has no dtype"))?;
            match TensorKind::from_safetensors(stored) {
                Some(kind) => header.tensors.push(tensor(name, entry, kind, header_bytes, file)?),
                None => header.unread.push((name.clone(), stored.to_owned())),
            }
        }
        refuse_truncation(&header.tensors, file_bytes)?;
        crate::inventory::refuse_overlaps(&header.tensors)?;
        header.tensors.sort_by_key(|tensor| tensor.offset);
        Ok(header)
    }
}

/// The JSON object, and where it ends.
fn entries(bytes: &[u8], file_bytes: u64) -> Result<(Map<String, Value>, u64), Error> {
    let truncated =
        || Error::refused(format!("the file is truncated: it has {file_bytes} bytes, fewer than its header"));
    let Some(length) = bytes.first_chunk::<8>() else {
        return Err(if file_bytes < 8 { truncated() } else { Error::Short { needed: 8 } });
    };
    let length = u64::from_le_bytes(*length);
    if length > HEADER_BYTES_MAX {
        return Err(Error::refused(format!(
            "not a safetensors file: its header would be {length} bytes long"
        )));
    }
    let end = 8 + length;
    if end > file_bytes {
        return Err(truncated());
    }
    let json = bytes.get(8..end as usize).ok_or(Error::Short { needed: end })?;
    let parsed = serde_json::from_slice(json);
    parsed
        .map(|entries| (entries, end))
        .map_err(|error| Error::refused(format!("the header is not JSON: {error}")))
}

fn tensor(
    name: &str,
    entry: &Value,
    kind: TensorKind,
    header_bytes: u64,
    file: usize,
) -> Result<TensorFacts, Error> {
    let shape = numbers(&entry["shape"]).ok_or_else(|| Error::at(name, "has no shape"))?;
    let offsets = numbers(&entry["data_offsets"]).filter(|offsets| offsets.len() == 2);
    let offsets = offsets.ok_or_else(|| Error::at(name, "has no data_offsets"))?;
    let (begin, end) = (offsets[0], offsets[1]);
    let size = kind.block().1 as u64;
    let bytes = shape.iter().try_fold(size, |product, &extent| product.checked_mul(extent));
    let bytes = bytes.filter(|&bytes| end.checked_sub(begin) == Some(bytes));
    let bytes = bytes.ok_or_else(|| {
        Error::at(name, format!("bytes {begin} to {end} do not hold a {kind:?} tensor of shape {shape:?}"))
    })?;
    let offset = header_bytes.checked_add(begin).filter(|start| start.checked_add(bytes).is_some());
    let offset = offset.ok_or_else(|| Error::at(name, "its offset is beyond any file"))?;
    Ok(TensorFacts { name: name.to_owned(), shape, kind, file, offset, bytes })
}

fn numbers(value: &Value) -> Option<Vec<u64>> {
    value.as_array()?.iter().map(Value::as_u64).collect()
}

fn refuse_truncation(tensors: &[TensorFacts], file_bytes: u64) -> Result<(), Error> {
    let Some(last) = tensors.iter().max_by_key(|tensor| tensor.offset + tensor.bytes) else { return Ok(()) };
    let needed = last.offset + last.bytes;
    if needed <= file_bytes {
        return Ok(());
    }
    Err(Error::at(&last.name, format!("the file is truncated: it has {file_bytes} bytes of {needed}")))
}

/// `model.safetensors.index.json`: which file holds which tensor.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Index {
    /// Files in order of their names.
    pub files: Vec<String>,
    /// Tensor to position in `files`.
    pub tensors: BTreeMap<String, usize>,
}

impl Index {
    /// Reads the index.
    pub fn parse(json: &[u8]) -> Result<Self, Error> {
        if let Some(reason) = undelivered(json) {
            return Err(Error::refused(reason));
        }
        let whole: Value =
            serde_json::from_slice(json).map_err(|error| Error::refused(format!("not JSON: {error}")))?;
        let map =
            whole["weight_map"].as_object().ok_or_else(|| Error::at("weight_map", "the key is missing"))?;
        let mut placed = Vec::new();
        for (tensor, file) in map {
            let file = file.as_str().filter(|file| is_plain_name(file));
            let file = file.ok_or_else(|| Error::at(tensor, "its file is not a name in the same folder"))?;
            placed.push((tensor.clone(), file.to_owned()));
        }
        let mut files: Vec<String> = placed.iter().map(|(_, file)| file.clone()).collect();
        files.sort_unstable();
        files.dedup();
        let position = |file: &String| files.binary_search(file).unwrap_or_default();
        let tensors = placed.iter().map(|(tensor, file)| (tensor.clone(), position(file))).collect();
        Ok(Self { files, tensors })
    }

    /// Refuses an index that names a tensor which its file does not have.
    pub fn check(&self, tensors: &[TensorFacts], unread: &[(String, String)]) -> Result<(), Error> {
        let found: BTreeMap<&str, usize> =
            tensors.iter().map(|tensor| (tensor.name.as_str(), tensor.file)).collect();
        for (name, &file) in &self.tensors {
            let known =
                found.get(name.as_str()) == Some(&file) || unread.iter().any(|(other, _)| other == name);
            if !known {
                return Err(Error::at(
                    name,
                    format!("the index says it is in {}, and it is not", self.files[file]),
                ));
            }
        }
        Ok(())
    }
}

/// A name that cannot lead out of the checkpoint's folder.
fn is_plain_name(name: &str) -> bool {
    !name.is_empty() && !name.contains(['/', '\\', '\0']) && name != ".." && name != "."
}

#[cfg(test)]
mod tests;
