//! Where each tensor that a model asks for lies among those that a checkpoint stores.
//!
//! Models ask by Llama's names in Hugging Face, whatever the family and the format; fused tensors are given
//! as their parts. Pure: it sees headers only, no weights.

mod names;
mod slot;

use std::collections::{BTreeMap, BTreeSet};

use crate::Error;
use crate::facts::{Architecture, ModelFacts, TensorFacts};
use crate::kind::TensorKind;

pub use names::Source;
use slot::Slot;

/// How stored rows follow each other.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RowOrder {
    /// As Hugging Face has them.
    Plain,
    /// llama.cpp's Q and K of some families: the two halves of each head take turns, for a rotary embedding
    /// that turns neighbours instead of halves.
    Paired {
        /// Rows of one head.
        head_dim: u32,
    },
}

impl RowOrder {
    /// Where row `row`, counted as Hugging Face does, is stored.
    pub fn stored(self, row: usize) -> usize {
        let Self::Paired { head_dim } = self else { return row };
        let head_dim = head_dim as usize;
        let (head, within) = (row / head_dim, row % head_dim);
        let half = head_dim / 2;
        head * head_dim + within % half * 2 + within / half
    }
}

/// A tensor a model may ask for: rows of a stored one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Placed {
    /// Index of the stored tensor.
    pub tensor: usize,
    /// Rows of the stored tensor, as a matrix.
    pub stored_rows: u64,
    /// First of them that belongs to this one.
    pub first_row: u64,
    /// How many do. A vector has one a number.
    pub rows: u64,
    /// Numbers in a row.
    pub cols: u64,
    /// How they follow each other.
    pub order: RowOrder,
}

/// Every tensor of a model, and what else the checkpoint holds.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Inventory {
    /// By the name a model asks with. The output head of a tied model is its embedding.
    pub places: BTreeMap<String, Placed>,
    /// Names of stored tensors that nobody will ask for.
    pub extra: Vec<String>,
}

impl Inventory {
    /// Finds every tensor of the model that `facts` describe. `unread` are names and types of stored tensors
    /// of types we do not read.
    ///
    /// # Errors
    ///
    /// Names the tensor that is missing, of the wrong shape, or stored as a type we do not read.
    pub fn take(
        facts: &ModelFacts,
        source: Source,
        tensors: &[TensorFacts],
        unread: &[(String, String)],
    ) -> Result<Self, Error> {
        let mut search = Search {
            facts,
            source,
            tensors,
            unread,
            by_name: tensors
                .iter()
                .enumerate()
                .map(|(index, tensor)| (tensor.name.as_str(), index))
                .collect(),
            used: BTreeSet::new(),
            places: BTreeMap::new(),
        };
        for slot in slot::outside_layers(facts) {
            search.find(&slot)?;
        }
        for layer in 0..facts.layers {
            for slot in slot::of_layer(facts, layer) {
                search.find(&slot)?;
            }
        }
        Ok(search.finish())
    }
}

struct Search<'a> {
    facts: &'a ModelFacts,
    source: Source,
    tensors: &'a [TensorFacts],
    unread: &'a [(String, String)],
    by_name: BTreeMap<&'a str, usize>,
    used: BTreeSet<usize>,
    places: BTreeMap<String, Placed>,
}

impl Search<'_> {
    fn find(&mut self, slot: &Slot) -> Result<(), Error> {
        let name = slot.name();
        for candidate in names::candidates(self.source, self.facts, slot) {
            if let Some(&index) = self.by_name.get(candidate.name.as_str()) {
                let placed = place(self.tensors, index, slot, &candidate, self.order(slot))?;
                self.used.insert(index);
                self.places.insert(name, placed);
                return Ok(());
            }
            if let Some((stored, kind)) = self.unread.iter().find(|(stored, _)| *stored == candidate.name) {
                let reason = format!("stored as {kind}, which is not supported; F32, F16 and BF16 are");
                return Err(Error::at(stored, reason));
            }
        }
        if !slot.required {
            return Ok(());
        }
        let stored = names::candidates(self.source, self.facts, slot).swap_remove(0).name;
        if slot.part == "lm_head" {
            return Err(Error::at(&stored, "the tensor is missing, and tie_word_embeddings is false"));
        }
        Err(Error::at(&stored, "the tensor is missing"))
    }

    fn order(&self, slot: &Slot) -> RowOrder {
        let family = matches!(
            self.facts.architecture,
            Architecture::Llama | Architecture::Mistral | Architecture::Mixtral | Architecture::SmolLm3
        );
        let paired = self.source == Source::Gguf && family && slot.is_query_or_key();
        if paired { RowOrder::Paired { head_dim: self.facts.head_dim } } else { RowOrder::Plain }
    }

    fn finish(mut self) -> Inventory {
        if self.facts.tied_embeddings
            && let Some(embedding) = self.places.get("model.embed_tokens.weight").copied()
        {
            self.places.insert("lm_head.weight".to_owned(), embedding);
        }
        let idle = self.tensors.iter().enumerate().filter(|(index, _)| !self.used.contains(index));
        let idle =
            idle.map(|(_, tensor)| &tensor.name).filter(|name| !names::is_rope_table(self.source, name));
        let extra = idle.chain(self.unread.iter().map(|(name, _)| name)).cloned().collect();
        Inventory { places: self.places, extra }
    }
}

/// Checks the shape of a stored tensor against what the model asks for.
fn place(
    tensors: &[TensorFacts],
    index: usize,
    slot: &Slot,
    candidate: &names::Candidate,
    order: RowOrder,
) -> Result<Placed, Error> {
    let tensor = &tensors[index];
    let (stored_rows, cols) = match tensor.shape.as_slice() {
        [length] => (*length, 1),
        [outer @ .., cols] => (outer.iter().product(), *cols),
        [] => (0, 0),
    };
    if (stored_rows, cols) != (candidate.stored_rows, slot.cols) {
        let wanted = if slot.cols == 1 {
            format!("{} numbers", candidate.stored_rows)
        } else {
            format!("{} x {}", candidate.stored_rows, slot.cols)
        };
        let reason =
            format!("its shape is {:?}, and the model's configuration asks for {wanted}", tensor.shape);
        return Err(Error::at(&tensor.name, reason));
    }
    if slot.cols == 1 && !tensor.kind.is_plain() {
        return Err(Error::at(&tensor.name, format!("a vector stored as {:?}", tensor.kind)));
    }
    Ok(Placed { tensor: index, stored_rows, first_row: candidate.first_row, rows: slot.rows, cols, order })
}

/// Fills in the sums over stored tensors.
pub fn weigh(facts: &mut ModelFacts, tensors: &[TensorFacts]) {
    facts.weight_bytes = tensors.iter().map(|tensor| tensor.bytes).sum();
    facts.parameters = tensors.iter().map(|tensor| tensor.shape.iter().product::<u64>()).sum();
    let mut by_kind = BTreeMap::<TensorKind, u64>::new();
    for tensor in tensors.iter().filter(|tensor| tensor.shape.len() > 1) {
        *by_kind.entry(tensor.kind).or_default() += tensor.bytes;
    }
    if let Some((&kind, _)) = by_kind.iter().max_by_key(|(_, bytes)| **bytes) {
        facts.weight_kind = kind;
    }
}

/// Fills in the same sums for a model whose every weight is stored as `kind`, without its headers.
pub fn weigh_by_shapes(facts: &mut ModelFacts, kind: TensorKind) {
    // No config stops anyone from describing more than there is.
    const MOST: u64 = 1 << 56;
    let numbers = |slots: Vec<Slot>| -> u128 {
        slots
            .iter()
            .filter(|slot| slot.required)
            .map(|slot| u128::from(slot.rows) * u128::from(slot.cols))
            .sum()
    };
    let layers = u128::from(facts.layers) * numbers(slot::of_layer(facts, 0));
    facts.parameters = u64::try_from(layers + numbers(slot::outside_layers(facts))).unwrap_or(MOST).min(MOST);
    facts.weight_bytes = kind.bytes(facts.parameters);
    facts.weight_kind = kind;
}

/// Refuses tables whose tensors share bytes, as only damage makes them do.
pub fn refuse_overlaps(tensors: &[TensorFacts]) -> Result<(), Error> {
    let mut order: Vec<&TensorFacts> = tensors.iter().filter(|tensor| tensor.bytes > 0).collect();
    order.sort_by_key(|tensor| tensor.offset);
    for pair in order.windows(2) {
        if pair[0].offset + pair[0].bytes > pair[1].offset {
            return Err(Error::at(&pair[1].name, format!("shares bytes with `{}`", pair[0].name)));
        }
    }
    let mut names = BTreeSet::new();
    match tensors.iter().find(|tensor| !names.insert(&tensor.name)) {
        Some(twice) => Err(Error::at(&twice.name, "the tensor is there twice")),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests;
