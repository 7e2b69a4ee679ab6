//! Which replicas hold one piece: a few packed numbers, or bit planes once many do.

/// A replica's number in the index, below [`SLOTS_MAX`].
pub(super) type Slot = u16;

/// Slots there can be: the bits that the flags leave.
pub(super) const SLOTS_MAX: u16 = 1 << 13;

/// Used since the clock's hand last came by.
pub(super) const YOUNG: u16 = 1 << 13;
/// Only guessed from a decision that has not been answered.
pub(super) const GUESSED: u16 = 1 << 14;
/// Met already while a ring is compacted.
pub(super) const SEEN: u16 = 1 << 15;
const FLAGS: [u16; 3] = [YOUNG, GUESSED, SEEN];
const SLOT: u16 = SLOTS_MAX - 1;

/// Most that are kept packed; with the tag it makes 16 bytes.
const FEW: usize = 6;

/// The holders of one piece.
#[derive(Clone, Debug)]
pub(super) enum Holders {
    /// So many packed (slot, flags), in no order.
    Few(u8, [u16; FEW]),
    /// One bit a slot.
    Many(Box<Planes>),
}

/// Bit planes: who holds it, and each flag.
#[derive(Clone, Debug, Default)]
pub(super) struct Planes {
    count: u32,
    held: Vec<u64>,
    flags: [Vec<u64>; FLAGS.len()],
}

impl Holders {
    pub(super) const fn none() -> Self {
        Self::Few(0, [0; FEW])
    }

    pub(super) fn is_empty(&self) -> bool {
        match self {
            Self::Few(count, _) => *count == 0,
            Self::Many(planes) => planes.count == 0,
        }
    }

    /// The flags of one holder.
    pub(super) fn get(&self, slot: Slot) -> Option<u16> {
        match self {
            Self::Few(count, packed) => {
                packed[..usize::from(*count)].iter().find(|&&one| one & SLOT == slot).map(|one| one & !SLOT)
            }
            Self::Many(planes) => planes.get(slot),
        }
    }

    /// Adds a holder, or changes its flags.
    pub(super) fn set(&mut self, slot: Slot, flags: u16) {
        match self {
            Self::Many(planes) => planes.set(slot, flags),
            Self::Few(count, packed) => {
                let used = usize::from(*count);
                if let Some(one) = packed[..used].iter_mut().find(|one| **one & SLOT == slot) {
                    *one = slot | flags;
                } else if used < FEW {
                    packed[used] = slot | flags;
                    *count += 1;
                } else {
                    let mut planes = Box::<Planes>::default();
                    for one in *packed {
                        planes.set(one & SLOT, one & !SLOT);
                    }
                    planes.set(slot, flags);
                    *self = Self::Many(planes);
                }
            }
        }
    }

    /// Removes a holder; true when it was one.
    pub(super) fn remove(&mut self, slot: Slot) -> bool {
        match self {
            Self::Few(count, packed) => {
                let used = usize::from(*count);
                let Some(at) = packed[..used].iter().position(|one| one & SLOT == slot) else { return false };
                packed[at] = packed[used - 1];
                *count -= 1;
                true
            }
            Self::Many(planes) => planes.remove(slot),
        }
    }

    /// Clears the bits of those in `alive` that do not hold it; `dropped` gets each of them.
    pub(super) fn keep(&self, alive: &mut [u64], mut dropped: impl FnMut(Slot)) {
        for (index, word) in alive.iter_mut().enumerate().filter(|(_, word)| **word != 0) {
            let gone = *word & !self.word(index);
            *word &= !gone;
            bits(index, gone).for_each(&mut dropped);
        }
    }

    /// One word of the set of holders.
    pub(super) fn word(&self, index: usize) -> u64 {
        match self {
            Self::Many(planes) => planes.held.get(index).copied().unwrap_or(0),
            Self::Few(count, packed) => packed[..usize::from(*count)]
                .iter()
                .map(|one| one & SLOT)
                .filter(|slot| usize::from(*slot) / 64 == index)
                .fold(0, |word, slot| word | 1 << (slot % 64)),
        }
    }

    /// Bytes on the heap.
    pub(super) fn heap_bytes(&self) -> usize {
        match self {
            Self::Few(..) => 0,
            Self::Many(planes) => {
                let words = planes.held.capacity() + planes.flags.iter().map(Vec::capacity).sum::<usize>();
                size_of::<Planes>() + words * size_of::<u64>()
            }
        }
    }
}

impl Planes {
    fn get(&self, slot: Slot) -> Option<u16> {
        if !has(&self.held, slot) {
            return None;
        }
        Some(
            (0..FLAGS.len())
                .filter(|&flag| has(&self.flags[flag], slot))
                .fold(0, |flags, at| flags | FLAGS[at]),
        )
    }

    fn set(&mut self, slot: Slot, flags: u16) {
        if !has(&self.held, slot) {
            self.count += 1;
        }
        put(&mut self.held, slot, true);
        for (at, flag) in FLAGS.into_iter().enumerate() {
            put(&mut self.flags[at], slot, flags & flag != 0);
        }
    }

    fn remove(&mut self, slot: Slot) -> bool {
        let was = has(&self.held, slot);
        self.count -= u32::from(was);
        put(&mut self.held, slot, false);
        was
    }
}

/// The slots of the bits set in one word.
pub(super) fn bits(index: usize, mut word: u64) -> impl Iterator<Item = Slot> {
    std::iter::from_fn(move || {
        (word != 0).then(|| {
            let bit = word.trailing_zeros() as usize;
            word &= word - 1;
            (index * 64 + bit) as Slot
        })
    })
}

fn has(plane: &[u64], slot: Slot) -> bool {
    plane.get(usize::from(slot) / 64).is_some_and(|word| word >> (slot % 64) & 1 == 1)
}

fn put(plane: &mut Vec<u64>, slot: Slot, to: bool) {
    let index = usize::from(slot) / 64;
    if index >= plane.len() {
        if !to {
            return;
        }
        plane.resize(index + 1, 0);
    }
    let bit = 1 << (slot % 64);
    if to {
        plane[index] |= bit;
    } else {
        plane[index] &= !bit;
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    #[test]
    fn an_entry_stays_small() {
        assert_eq!(size_of::<Holders>(), 16);
    }

    proptest! {
        #[test]
        fn holders_are_a_map_from_slot_to_flags(
            ops in prop::collection::vec((0u16..200, 0u16..8, prop::bool::weighted(0.7)), 1..200),
        ) {
            let (mut holders, mut naive) = (Holders::none(), BTreeMap::new());
            for (slot, flags, is_set) in ops {
                if is_set {
                    holders.set(slot, flags << 13);
                    naive.insert(slot, flags << 13);
                } else {
                    prop_assert_eq!(holders.remove(slot), naive.remove(&slot).is_some());
                }
                prop_assert_eq!(holders.is_empty(), naive.is_empty());
                for slot in 0..200 {
                    prop_assert_eq!(holders.get(slot), naive.get(&slot).copied());
                }
                let set: Vec<_> = (0..4).flat_map(|index| bits(index, holders.word(index))).collect();
                prop_assert_eq!(set, naive.keys().copied().collect::<Vec<_>>());
            }
        }
    }
}
