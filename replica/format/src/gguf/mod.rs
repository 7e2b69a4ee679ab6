//! GGUF headers (versions 2 and 3): metadata and where each tensor lies.
//!
//! Reads any bytes without panicking and without allocating more than the file could fill.

mod cursor;
mod facts;
mod metadata;
mod vocabulary;

pub use metadata::{Array, Metadata, Value};
pub use vocabulary::{TokenType, Vocabulary};

use crate::error::{Error, undelivered};
use crate::facts::{ModelFacts, TensorFacts};
use crate::kind::TensorKind;

use cursor::Cursor;

/// A parsed header. Texts point into the bytes it was read from.
#[derive(Debug)]
pub struct Header<'a> {
    /// Keys and values.
    pub metadata: Metadata<'a>,
    /// Tensors in the file's order.
    pub tensors: Vec<TensorFacts>,
    /// Bytes from the file's start to its first tensor.
    pub header_bytes: u64,
}

impl<'a> Header<'a> {
    /// Reads the header from the first bytes of a file that is `file_bytes` long.
    ///
    /// # Errors
    ///
    /// [`Error::Short`] when the header goes on beyond `bytes` and the file does too (read more and try
    /// again); otherwise what is wrong with the file.
    pub fn parse(bytes: &'a [u8], file_bytes: u64) -> Result<Self, Error> {
        let mut cursor = Cursor::new(bytes, file_bytes);
        let (tensor_count, key_count) = preamble(&mut cursor)?;
        let metadata = Metadata::parse(&mut cursor, key_count)?;
        refuse_parts(&metadata)?;
        let alignment = alignment(&metadata)?;
        let mut tensors = Vec::new();
        for _ in 0..tensor_count {
            tensors.push(tensor(&mut cursor, alignment)?);
        }
        let header_bytes = cursor.at().next_multiple_of(alignment);
        place(&mut tensors, header_bytes, file_bytes)?;
        Ok(Self { metadata, tensors, header_bytes })
    }

    /// What the metadata says about the model.
    pub fn facts(&self) -> Result<ModelFacts, Error> {
        facts::facts(self)
    }

    /// The tokenizer, whole.
    pub fn vocabulary(&self) -> Result<Vocabulary, Error> {
        Vocabulary::read(&self.metadata)
    }

    /// The chat template, where there is one.
    pub fn chat_template(&self) -> Result<Option<&'a str>, Error> {
        self.metadata.text("tokenizer.chat_template")
    }
}

/// Magic and version; then the counts of tensors and keys.
fn preamble(cursor: &mut Cursor<'_>) -> Result<(u64, u64), Error> {
    if let Some(reason) = undelivered(cursor.rest()) {
        return Err(Error::refused(reason));
    }
    if cursor.take(4, "magic")? != b"GGUF" {
        return Err(Error::refused("not a GGUF file: it does not begin with `GGUF`"));
    }
    let version = cursor.u32("version")?;
    if version.swap_bytes() == 2 || version.swap_bytes() == 3 {
        return Err(Error::refused("a big-endian GGUF file; only little-endian ones are read"));
    }
    if version != 2 && version != 3 {
        return Err(Error::refused(format!("GGUF version {version}; versions 2 and 3 are read")));
    }
    Ok((cursor.u64("tensor count")?, cursor.u64("key count")?))
}

/// One part of a split file says so in its keys.
fn refuse_parts(metadata: &Metadata<'_>) -> Result<(), Error> {
    let count = metadata.unsigned("split.count")?.unwrap_or(1);
    if count <= 1 {
        return Ok(());
    }
    let part = metadata.unsigned("split.no")?.unwrap_or(0) + 1;
    Err(Error::at(
        "split.count",
        format!(
            "this is part {part} of {count} of a split model; join the parts with `llama-gguf-split --merge`"
        ),
    ))
}

fn alignment(metadata: &Metadata<'_>) -> Result<u64, Error> {
    const KEY: &str = "general.alignment";
    let alignment = metadata.unsigned(KEY)?.unwrap_or(32);
    if !alignment.is_power_of_two() || alignment > 1 << 20 {
        return Err(Error::at(KEY, format!("{alignment} is not a power of two up to 1048576")));
    }
    Ok(alignment)
}

/// One entry of the tensor table; its offset still counts from the data's start.
fn tensor(cursor: &mut Cursor<'_>, alignment: u64) -> Result<TensorFacts, Error> {
    let name = cursor.text("tensor name")?;
    let dimensions = cursor.u32(name)?;
    if dimensions == 0 || dimensions > 4 {
        return Err(Error::at(name, format!("{dimensions} dimensions; 1 to 4 are possible")));
    }
    let mut shape = Vec::new();
    for _ in 0..dimensions {
        shape.push(cursor.u64(name)?);
    }
    let id = cursor.u32(name)?;
    let kind = TensorKind::from_gguf(id).map_err(|stored| {
        Error::at(name, format!("stored as {stored}, which is not supported; F32, F16, BF16, Q4_0 to Q8_0 and Q2_K to Q6_K are"))
    })?;
    let bytes = bytes_of(&shape, kind)
        .ok_or_else(|| Error::at(name, format!("a shape of {shape:?} cannot be stored as {kind:?}")))?;
    let offset = cursor.u64(name)?;
    if !offset.is_multiple_of(alignment) {
        return Err(Error::at(name, format!("its offset {offset} is not a multiple of {alignment}")));
    }
    shape.reverse();
    Ok(TensorFacts { name: name.to_owned(), shape, kind, file: 0, offset, bytes })
}

/// Bytes of a tensor whose shape is innermost first. `None` when rows are not whole blocks or it can't be.
fn bytes_of(shape: &[u64], kind: TensorKind) -> Option<u64> {
    let (per, _) = kind.block();
    let elements = shape.iter().try_fold(1_u64, |product, &size| product.checked_mul(size))?;
    let whole = elements > 0 && shape.first()?.is_multiple_of(per as u64);
    // No file is that long, and products with a block's bytes stay in range.
    (whole && elements < 1 << 56).then(|| kind.bytes(elements))
}

/// Turns offsets into offsets from the file's start, and checks that the file holds what the table promises.
fn place(tensors: &mut [TensorFacts], header_bytes: u64, file_bytes: u64) -> Result<(), Error> {
    for tensor in tensors.iter_mut() {
        let end = header_bytes.checked_add(tensor.offset).and_then(|start| start.checked_add(tensor.bytes));
        let Some(end) = end.filter(|&end| end <= file_bytes) else {
            return Err(Error::at(
                &tensor.name,
                format!("the file is truncated: it has {file_bytes} bytes and this tensor ends beyond them"),
            ));
        };
        tensor.offset = end - tensor.bytes;
    }
    crate::inventory::refuse_overlaps(tensors)
}

#[cfg(test)]
mod tests;
