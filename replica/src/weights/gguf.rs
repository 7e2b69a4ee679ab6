//! Opens a GGUF file.

use std::path::Path;

use replica_format::Error;
use replica_format::facts::{ModelFacts, RopeScaling, TensorFacts};
use replica_format::gguf::{Header, Vocabulary};
use replica_format::inventory::{Inventory, Source};
use xxhash_rust::xxh3::Xxh3;

use super::checkpoint::{Parts, TokenizerSource};
use super::mapped::Mapped;
use super::{GenerationDefaults, floats};

pub fn open(path: &Path) -> Result<Parts, Error> {
    let file = Mapped::open(path)?;
    read(&file).map_err(|error| file.name(error)).map(|parts| Parts { files: vec![file], ..parts })
}

fn read(file: &Mapped) -> Result<Parts, Error> {
    let header = Header::parse(file.bytes(), file.len())?;
    let mut facts = header.facts()?;
    let vocabulary = header.vocabulary()?;
    fill_rope_tables(&mut facts, &header.tensors, file.bytes())?;
    facts.check()?;
    let inventory = Inventory::take(&facts, Source::Gguf, &header.tensors, &[])?;
    let mut hash = Xxh3::new();
    hash.update(&file.bytes()[..header.header_bytes.min(file.len()) as usize]);
    let chat_template = header.chat_template()?.map(ToOwned::to_owned);
    let tensors = header.tensors;
    Ok(Parts {
        facts,
        chat_template,
        bos_text: spelling(&vocabulary, vocabulary.bos),
        eos_text: spelling(&vocabulary, vocabulary.eos),
        tokenizer: TokenizerSource::Gguf(Box::new(vocabulary)),
        generation: GenerationDefaults::default(),
        files: Vec::new(),
        tensors,
        inventory,
        hash,
    })
}

fn spelling(vocabulary: &Vocabulary, token: Option<u32>) -> String {
    token.and_then(|token| vocabulary.tokens.get(token as usize)).cloned().unwrap_or_default()
}

/// Reads the divisors of rotary frequencies that GGUF keeps in tensors: one table for Llama 3's bands, two
/// for Phi's lengths.
fn fill_rope_tables(facts: &mut ModelFacts, tensors: &[TensorFacts], file: &[u8]) -> Result<(), Error> {
    let RopeScaling::Long { short, long, .. } = &mut facts.rope.scaling else { return Ok(()) };
    let find = |name: &str| tensors.iter().find(|tensor| tensor.name == name);
    let (from_short, from_long) = match find("rope_freqs.weight") {
        Some(table) => (table, table),
        None => match (find("rope_factors_short.weight"), find("rope_factors_long.weight")) {
            (Some(short), Some(long)) => (short, long),
            _ => return Err(Error::at("rope_factors_long.weight", "the tensor is missing")),
        },
    };
    *short = table(from_short, file)?;
    *long = table(from_long, file)?;
    Ok(())
}

fn table(tensor: &TensorFacts, file: &[u8]) -> Result<Vec<f32>, Error> {
    let bytes = &file[tensor.offset as usize..(tensor.offset + tensor.bytes) as usize];
    floats::read(tensor.kind, bytes).ok_or_else(|| Error::at(&tensor.name, "should be a list of floats"))
}
