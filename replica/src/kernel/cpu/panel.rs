//! How weights lie in memory: panels of 16 output rows, side by side, in the bits of their kind.
//!
//! A dense panel holds, input after input, 16 elements. A quantised panel holds, for each block of 32 inputs,
//! planes of bits in which every 32-bit lane belongs to one row and its bytes to four neighbouring inputs (a
//! *quad*), then all factors of the panel, then all sub-factors. Nothing is rounded on the way.

use replica_format::facts::TensorKind;

use super::activations::BLOCK;
use super::simd::LANES;
use crate::kernel::quant::{self, BLOCK_MAX, Block};

/// Quads of a block.
pub const QUADS: usize = BLOCK / 4;
const CACHE_LINE: usize = 64;
/// Bytes of a plane in which a quad takes 64 bytes, one a value.
const PLANE: usize = QUADS * 4 * LANES;

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
        PLANE * self.bits() / 8
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
        let size = self.bits() / 8;
        for (col, element) in row.chunks_exact(size).enumerate() {
            panel[(col * LANES + lane) * size..][..size].copy_from_slice(element);
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
            let (factor, floor) = (block.sub_factors[of_group * count + sub], block.sub_floors[of_group * count + sub]);
            match self.kind {
                TensorKind::Q2_K => to[sub * LANES + lane] = factor | floor << 4,
                TensorKind::Q4_K | TensorKind::Q5_K => (to[lane], to[LANES + lane]) = (factor, floor),
                _ => to[sub * LANES + lane] = factor,
            }
        }
    }

    /// Low bits first: a plane of bytes, nibbles (two quads a vector) or pairs (four quads), then a plane of
    /// pairs or single bits (all eight quads) for what is above.
    fn pack_quants(self, quants: &[u8], lane: usize, to: &mut [u8]) {
        for (index, &quant) in quants.iter().enumerate() {
            let (quad, byte) = (index / 4, lane * 4 + index % 4);
            for (start, width, shift) in self.planes() {
                let per = 8 / width;
                let bits = (u32::from(quant) >> shift & ((1 << width) - 1)) << (quad % per * width);
                to[start + quad / per * 4 * LANES + byte] |= bits as u8;
            }
        }
    }

    /// First byte, width and lowest bit of each plane of a block.
    fn planes(self) -> impl Iterator<Item = (usize, usize, usize)> {
        let low = if self.bits() == 3 { 2 } else { self.bits().next_power_of_two().min(8) };
        let low = if matches!(self.bits(), 5 | 6) { 4 } else { low };
        let high = self.bits() - low;
        [(0, low, 0), (PLANE * low / 8, high, low)].into_iter().filter(|&(_, width, _)| width > 0)
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
            let (quad, byte) = (index / 4, lane * 4 + index % 4);
            let parts = self.planes().map(|(start, width, shift)| {
                let per = 8 / width;
                let bits = from[start + quad / per * 4 * LANES + byte] >> (quad % per * width);
                (u32::from(bits) & ((1 << width) - 1)) << shift
            });
            *quant = parts.sum::<u32>() as u8;
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
            (block.sub_factors[of_group * count + sub], block.sub_floors[of_group * count + sub]) = (factor, floor);
        }
    }
}

/// Quants of a group, for the compiler to know.
const _: () = assert!(BLOCK_MAX.is_multiple_of(BLOCK));
