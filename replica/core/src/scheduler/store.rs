//! The sequences of a scheduler, each at one place while it lives.

use rustc_hash::FxHashMap;
use shared::id::SequenceId;

use crate::sequence::Sequence;

/// Index of a sequence; used again after it has ended.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) struct Place(u32);

#[derive(Debug, Default)]
pub(super) struct Store {
    sequences: Vec<Option<Box<Sequence>>>,
    vacant: Vec<Place>,
    places: FxHashMap<SequenceId, Place>,
}

impl Store {
    pub fn insert(&mut self, sequence: Sequence) -> Place {
        let id = sequence.id();
        let place = self.vacant.pop().unwrap_or_else(|| {
            self.sequences.push(None);
            Place(self.sequences.len() as u32 - 1)
        });
        self.sequences[place.0 as usize] = Some(Box::new(sequence));
        let before = self.places.insert(id, place);
        assert!(before.is_none(), "{id:?} is added twice");
        place
    }

    pub fn remove(&mut self, place: Place) {
        if let Some(sequence) = self.sequences[place.0 as usize].take() {
            self.places.remove(&sequence.id());
            self.vacant.push(place);
        }
    }

    pub fn place(&self, id: SequenceId) -> Option<Place> {
        self.places.get(&id).copied()
    }

    pub fn len(&self) -> usize {
        self.places.len()
    }
}

impl std::ops::Index<Place> for Store {
    type Output = Sequence;
    fn index(&self, place: Place) -> &Sequence {
        self.sequences[place.0 as usize].as_deref().expect("queues name only living sequences")
    }
}

impl std::ops::IndexMut<Place> for Store {
    fn index_mut(&mut self, place: Place) -> &mut Sequence {
        self.sequences[place.0 as usize].as_deref_mut().expect("queues name only living sequences")
    }
}
