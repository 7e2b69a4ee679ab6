//! How weights lie in memory: panels of 16 output rows, side by side, in the bits of their kind.
//!
//! A dense panel holds, input after input, 16 elements. A quantised panel holds, for each block of 32 inputs,
//! planes of bits in which every 32-bit lane belongs to one row, then all factors of the panel, then all
//! sub-factors. In a lane, two neighbouring inputs (a *pair*) lie 16 bits apart, so that one shift and one mask
//! give a pair of 16-bit numbers. Nothing is rounded on the way.

use replica_format::facts::TensorKind;

use super::activations::BLOCK;
use super::simd::LANES;
use crate::kernel::quant::{self, Block};

/// Pairs of a block.
pub const PAIRS: usize = BLOCK / 2;
/// Bytes of a vector, 32 bits a lane.
pub const VECTOR: usize = 4 * LANES;
const CACHE_LINE: usize = 64;

/// Sizes of one panel.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Layout {
    pub kind: TensorKind,
    /// Inputs.
    pub cols: usize,
}

impl Layout {
    /// Bits of a quant.
    pub fn bits(self) -> usize {
        match self.kind {
            TensorKind::Q2_K => 2,
            TensorKind::Q3_K => 3,
            TensorKind::Q4_0 | TensorKind::Q4_1 | TensorKind::Q4_K => 4,
            TensorKind::Q5_0 | TensorKind::Q5_1 | TensorKind::Q5_K => 5,
            TensorKind::Q6_K => 6,
            TensorKind::Q8_0 => 8,
            TensorKind::BF16 | TensorKind::F16 => 16,
            TensorKind::F32 => 32,
        }
    }

    /// Whether weights have factors, or are numbers by themselves.
    pub fn quantised(self) -> bool {
        self.bits() <= 8
    }

    /// Inputs that share a factor in half precision.
    fn group(self) -> usize {
        self.kind.block().0
    }

    fn has_floor(self) -> bool {
        use TensorKind::{Q2_K, Q4_1, Q4_K, Q5_1, Q5_K};
        matches!(self.kind, Q2_K | Q4_1 | Q4_K | Q5_1 | Q5_K)
    }

    /// Sub-factors in a block of 32.
    fn subs(self) -> usize {
        match self.kind {
            TensorKind::Q4_K | TensorKind::Q5_K => 1,
            TensorKind::Q2_K | TensorKind::Q3_K | TensorKind::Q6_K => 2,
            _ => 0,
        }
    }

    /// Bytes of the bits of one block of 32 inputs.
    pub fn block_bytes(self) -> usize {
        self.bits() * VECTOR
    }

    /// Bytes of factors (and floors after them) of one group.
    pub fn group_bytes(self) -> usize {
        2 * LANES * if self.has_floor() { 2 } else { 1 }
    }

    /// Bytes of sub-factors (each with its sub-floors after it, except in `Q2_K`, where both share a byte)
    /// of one block of 32.
    pub fn sub_bytes(self) -> usize {
        let with_floors = self.has_floor() && self.kind != TensorKind::Q2_K;
        self.subs() * LANES * if with_floors { 2 } else { 1 }
    }

    /// Where factors and sub-factors begin, and where the panel ends.
    pub fn sections(self) -> [usize; 3] {
        if !self.quantised() {
            return [self.cols * LANES * self.bits() / 8; 3];
        }
        let factors = self.cols / BLOCK * self.block_bytes();
        let subs = factors + self.cols / self.group() * self.group_bytes();
        [factors, subs, subs + self.cols / BLOCK * self.sub_bytes()]
    }

    /// Bytes from one panel to the next.
    pub fn stride(self) -> usize {
        self.sections()[2].next_multiple_of(CACHE_LINE)
    }

    /// Puts the bytes of a checkpoint's row into lane `lane` of a zeroed panel.
    pub fn pack_row(self, row: &[u8], lane: usize, panel: &mut [u8]) {
        if self.quantised() {
            self.pack_blocks(row, lane, panel);
            return;
        }
        match self.bits() {
            16 => pack_elements::<2>(row, lane, panel),
            _ => pack_elements::<4>(row, lane, panel),
        }
    }

    fn pack_blocks(self, row: &[u8], lane: usize, panel: &mut [u8]) {
        let [factors, subs, _] = self.sections();
        let mut block = Block::EMPTY;
        for (index, bytes) in row.chunks_exact(self.kind.block().1).enumerate() {
            quant::decode(self.kind, bytes, &mut block);
            let group = &mut panel[factors + index * self.group_bytes()..][..self.group_bytes()];
            group[2 * lane..][..2].copy_from_slice(&block.factor.to_le_bytes());
            if self.has_floor() {
                group[2 * (LANES + lane)..][..2].copy_from_slice(&block.floor.to_le_bytes());
            }
            let first = index * self.group() / BLOCK;
            for (of_group, quants) in block.quants[..self.group()].chunks_exact(BLOCK).enumerate() {
                let at = first + of_group;
                self.pack_quants(quants, lane, &mut panel[at * self.block_bytes()..][..self.block_bytes()]);
                let to = &mut panel[subs + at * self.sub_bytes()..][..self.sub_bytes()];
                self.pack_subs(&block, of_group, lane, to);
            }
        }
    }

    fn pack_subs(self, block: &Block, of_group: usize, lane: usize, to: &mut [u8]) {
        let count = self.subs();
        for sub in 0..count {
            let (factor, floor) =
                (block.sub_factors[of_group * count + sub], block.sub_floors[of_group * count + sub]);
            match self.kind {
                TensorKind::Q2_K => to[sub * LANES + lane] = factor | floor << 4,
                TensorKind::Q4_K | TensorKind::Q5_K => (to[lane], to[LANES + lane]) = (factor, floor),
                _ => to[sub * LANES + lane] = factor,
            }
        }
    }

    fn pack_quants(self, quants: &[u8], lane: usize, to: &mut [u8]) {
        for plane in self.planes() {
            let to = &mut to[plane.first * VECTOR..][..plane.width * VECTOR];
            match plane.width {
                1 => pack_plane::<1>(quants, plane.lowest, lane, to),
                2 => pack_plane::<2>(quants, plane.lowest, lane, to),
                4 => pack_plane::<4>(quants, plane.lowest, lane, to),
                8 => pack_plane::<8>(quants, plane.lowest, lane, to),
                other => panic!("planes of {other} bits are not packed"),
            }
        }
    }

    /// A plane for the low bits of all quants, then one for those above, if there are any.
    fn planes(self) -> impl Iterator<Item = Plane> {
        let low = low_bits(self.bits());
        let high = Plane { first: low, width: self.bits() - low, lowest: low };
        [Plane { first: 0, width: low, lowest: 0 }, high].into_iter().filter(|plane| plane.width > 0)
    }

    /// The values of one lane of a panel, as the kind defines them.
    pub fn read_row(self, panel: &[u8], lane: usize, values: &mut [f32]) {
        if self.quantised() {
            self.read_blocks(panel, lane, values);
            return;
        }
        let size = self.bits() / 8;
        for (col, value) in values.iter_mut().enumerate() {
            let element = &panel[(col * LANES + lane) * size..][..size];
            quant::dequantize(self.kind, element, std::slice::from_mut(value));
        }
    }

    fn read_blocks(self, panel: &[u8], lane: usize, values: &mut [f32]) {
        let [factors, subs, _] = self.sections();
        let mut block = Block::EMPTY;
        for (index, values) in values.chunks_exact_mut(self.group()).enumerate() {
            let group = &panel[factors + index * self.group_bytes()..][..self.group_bytes()];
            let half = |at: usize| u16::from_le_bytes([group[2 * at], group[2 * at + 1]]);
            block.factor = half(lane);
            block.floor = if self.has_floor() { half(LANES + lane) } else { 0 };
            let first = index * self.group() / BLOCK;
            for of_group in 0..self.group() / BLOCK {
                let at = first + of_group;
                let from = &panel[at * self.block_bytes()..][..self.block_bytes()];
                self.read_quants(from, lane, &mut block.quants[of_group * BLOCK..][..BLOCK]);
                self.read_subs(&panel[subs + at * self.sub_bytes()..], lane, of_group, &mut block);
            }
            quant::multiply_out(self.kind, &block, values);
        }
    }

    fn read_quants(self, from: &[u8], lane: usize, quants: &mut [u8]) {
        for (index, quant) in quants.iter_mut().enumerate() {
            let of_plane = |plane: Plane| {
                let (byte, shift) = plane.place(index, lane);
                (from[byte] >> shift & plane.mask()) << plane.lowest
            };
            *quant = self.planes().map(of_plane).sum();
        }
    }

    fn read_subs(self, from: &[u8], lane: usize, of_group: usize, block: &mut Block) {
        let count = self.subs();
        for sub in 0..count {
            let byte = from[sub * LANES + lane];
            let (factor, floor) = match self.kind {
                TensorKind::Q2_K => (byte & 0xF, byte >> 4),
                TensorKind::Q4_K | TensorKind::Q5_K => (byte, from[LANES + lane]),
                _ => (byte, 0),
            };
            (block.sub_factors[of_group * count + sub], block.sub_floors[of_group * count + sub]) =
                (factor, floor);
        }
    }
}

/// Bits of a quant that lie in the first plane: 2, 4 or 8 of them.
pub const fn low_bits(bits: usize) -> usize {
    match bits {
        2 | 3 => 2,
        4..=6 => 4,
        _ => 8,
    }
}

/// Some bits of each quant of a block: `width` of them from bit `lowest` on, packed from vector `first` on.
#[derive(Clone, Copy)]
struct Plane {
    first: usize,
    width: usize,
    lowest: usize,
}

/// Elements of `SIZE` bytes, every 16th place one.
fn pack_elements<const SIZE: usize>(row: &[u8], lane: usize, panel: &mut [u8]) {
    let (elements, (places, _)) = (row.as_chunks::<SIZE>().0, panel.as_chunks_mut::<SIZE>());
    for (element, places) in elements.iter().zip(places.chunks_exact_mut(LANES)) {
        places[lane] = *element;
    }
}

/// `WIDTH` bits of each quant, from bit `lowest` on, to one lane of a plane.
fn pack_plane<const WIDTH: usize>(quants: &[u8], lowest: usize, lane: usize, to: &mut [u8]) {
    let pairs_a_vector = 16 / WIDTH;
    for (quants, vector) in quants.chunks_exact(2 * pairs_a_vector).zip(to.chunks_exact_mut(VECTOR)) {
        let mut word = 0;
        for (slot, pair) in quants.as_chunks::<2>().0.iter().enumerate() {
            let both = u32::from(pair[0]) | u32::from(pair[1]) << 16;
            word |= ((both >> lowest) & (((1 << WIDTH) - 1) * 0x0001_0001)) << (slot * WIDTH);
        }
        vector[4 * lane..][..4].copy_from_slice(&word.to_le_bytes());
    }
}

impl Plane {
    fn mask(self) -> u8 {
        (0xFF_u16 >> (8 - self.width)) as u8
    }

    /// The byte of a block, and the bit in it, where input `index` of row `lane` lies.
    fn place(self, index: usize, lane: usize) -> (usize, usize) {
        let (pair, side) = (index / 2, index % 2);
        let a_vector = 16 / self.width;
        let bit = pair % a_vector * self.width + 16 * side;
        ((self.first + pair / a_vector) * VECTOR + 4 * lane + bit / 8, bit % 8)
    }
}
