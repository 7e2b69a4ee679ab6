//! Products with quantised weights: integers, exact within a block of 32 inputs, then f32 block after block.
//!
//! A block of weights is unpacked into registers once and multiplied with every row of the activations. A sum
//! goes over the blocks in order and sees nothing of other rows, so the row count changes nothing.

use replica_format::facts::TensorKind;

use super::activations::Activations;
use super::panel::{Layout, PAIRS, VECTOR, low_bits};
use super::simd::{Isa, Kernel, LANES, Simd};

/// Rows of activations whose sums are kept at hand.
pub const ROWS_MAX: usize = 64;

/// One panel times up to [`ROWS_MAX`] rows.
pub struct Product<'a> {
    pub layout: Layout,
    pub panel: &'a [u8],
    /// Block after block, in each block row after row; `stride` from one block to the next.
    pub x: &'a [Activations],
    pub stride: usize,
    /// A sum a row and lane.
    pub sums: &'a mut [[f32; LANES]],
}

impl Product<'_> {
    /// Computes it.
    pub fn run(self, isa: Isa) {
        match self.layout.kind {
            TensorKind::Q2_K => isa.run(Typed::<2, 0, SUBS_16_FLOOR>(self)),
            TensorKind::Q3_K => isa.run(Typed::<3, 4, SUBS_16>(self)),
            TensorKind::Q4_0 => isa.run(Typed::<4, 8, PLAIN>(self)),
            TensorKind::Q4_1 => isa.run(Typed::<4, 0, FLOOR>(self)),
            TensorKind::Q4_K => isa.run(Typed::<4, 0, SUBS_32_FLOOR>(self)),
            TensorKind::Q5_0 => isa.run(Typed::<5, 16, PLAIN>(self)),
            TensorKind::Q5_1 => isa.run(Typed::<5, 0, FLOOR>(self)),
            TensorKind::Q5_K => isa.run(Typed::<5, 0, SUBS_32_FLOOR>(self)),
            TensorKind::Q6_K => isa.run(Typed::<6, 32, SUBS_16>(self)),
            TensorKind::Q8_0 => isa.run(Typed::<8, 128, PLAIN>(self)),
            dense @ (TensorKind::F32 | TensorKind::F16 | TensorKind::BF16) => {
                panic!("{dense:?} has no quants")
            }
        }
    }
}

/// A factor for each block of 32.
const PLAIN: u8 = 0;
/// A factor and a floor for each block of 32.
const FLOOR: u8 = 1;
/// For each block of 32 a sub-factor and a sub-floor, whole blocks of 256 share what these multiply.
const SUBS_32_FLOOR: u8 = 2;
/// The same for each 16, sharing a byte.
const SUBS_16_FLOOR: u8 = 3;
/// Signed sub-factors for each 16.
const SUBS_16: u8 = 4;

/// Bytes ahead of the block at work that are asked for: what memory brings while it takes to answer.
const AHEAD: usize = 8192;

/// Blocks of 32 in a group of 256.
const GROUP_BLOCKS: usize = 8;

/// Repeats the body for each pair of a block. A loop might not be unrolled, and would then keep the block in
/// memory instead of registers.
macro_rules! unrolled {
    ($pair:ident => $body:block) => {
        unrolled!(@ $pair $body 0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15)
    };
    (@ $pair:ident $body:block $($index:literal)*) => {
        $({
            let $pair: usize = $index;
            $body
        })*
    };
}

/// A product whose kind of weights the compiler knows: bits of a quant, its zero, and how factors are kept.
struct Typed<'a, const BITS: usize, const ZERO: u32, const FACTORS: u8>(Product<'a>);

/// Factors and floors of a block for its halves (or twice the same).
type Factors<F> = [(F, F); 2];

impl<const BITS: usize, const ZERO: u32, const FACTORS: u8> Kernel for Typed<'_, BITS, ZERO, FACTORS> {
    #[inline(always)]
    fn run<S: Simd>(self, simd: S) {
        let Product { layout, panel, x, stride, sums } = self.0;
        let sections = layout.sections();
        let (quants, _) = panel[..sections[0]].as_chunks::<VECTOR>();
        let factors = &panel[sections[0]..sections[1]];
        let subs = &panel[sections[1]..sections[2]];
        for sum in sums.iter_mut() {
            *sum = [0.0; LANES];
        }
        for (block, quants) in quants.chunks_exact(BITS).enumerate() {
            for vector in quants {
                simd.prefetch(vector.as_ptr().wrapping_add(AHEAD));
            }
            let pairs = unpack::<S, BITS>(simd, quants);
            let factors = self::factors::<S, FACTORS>(simd, factors, subs, block);
            let x = &x[block * stride..][..sums.len()];
            let block = Block::<S, FACTORS> { pairs, factors };
            let mut row = 0;
            while row < sums.len() {
                let (x, sums) = (&x[row..], &mut sums[row..]);
                row += if sums.len() >= 4 && S::TILE >= 12 {
                    block.add::<BITS, ZERO, 4>(simd, x, sums)
                } else if sums.len() >= 2 {
                    block.add::<BITS, ZERO, 2>(simd, x, sums)
                } else {
                    block.add::<BITS, ZERO, 1>(simd, x, sums)
                };
            }
        }
    }
}

/// A block of weights in registers.
struct Block<S: Simd, const FACTORS: u8> {
    pairs: [S::I; PAIRS],
    factors: Factors<S::F>,
}

impl<S: Simd, const FACTORS: u8> Block<S, FACTORS> {
    /// Adds the block's part to the sums of `ROWS` rows and returns how many. Several rows go side by side
    /// because each product of a chain waits for the one before; they never meet.
    #[inline(always)]
    fn add<const BITS: usize, const ZERO: u32, const ROWS: usize>(
        &self,
        simd: S,
        x: &[Activations],
        sums: &mut [[f32; LANES]],
    ) -> usize {
        let (x, sums) = (&x[..ROWS], &mut sums[..ROWS]);
        let halves = if matches!(FACTORS, SUBS_16 | SUBS_16_FLOOR) { 2 } else { 1 };
        let floors = matches!(FACTORS, FLOOR | SUBS_32_FLOOR | SUBS_16_FLOOR);
        for half in 0..halves {
            let which = if halves == 2 { half } else { 2 };
            let mut totals = [simd.int_splat(0); ROWS];
            if ZERO != 0 {
                for row in 0..ROWS {
                    totals[row] = simd.shl(simd.int_splat(x[row].minus_sums[which]), ZERO.trailing_zeros());
                }
            }
            unrolled!(pair => {
                if pair * halves / PAIRS == half {
                    for row in 0..ROWS {
                        let both = simd.int_splat(both_of(&x[row].values, pair));
                        totals[row] = simd.dot2(totals[row], self.pairs[pair], both);
                    }
                }
            });
            let (factor, floor) = self.factors[half];
            for row in 0..ROWS {
                let total = simd.to_float(totals[row]);
                let mut sum = simd.load(&sums[row]);
                sum = simd.fma(total, simd.mul(factor, simd.splat(x[row].scale)), sum);
                if floors {
                    sum = simd.fma(floor, simd.splat(x[row].scaled_sums[which]), sum);
                }
                simd.store(sum, &mut sums[row]);
            }
        }
        ROWS
    }
}

/// Two neighbouring values, the first in the low half.
#[inline(always)]
fn both_of(values: &[i16; 2 * PAIRS], pair: usize) -> i32 {
    i32::from(values[2 * pair + 1]) << 16 | i32::from(values[2 * pair] as u16)
}

/// The pairs of a block: `planes` are `BITS` vectors of bits, as `panel` lays them.
#[inline(always)]
fn unpack<S: Simd, const BITS: usize>(simd: S, planes: &[[u8; VECTOR]]) -> [S::I; PAIRS] {
    let mut pairs = [simd.int_splat(0); PAIRS];
    let low = low_bits(BITS);
    unrolled!(pair => {
        let a_vector = 16 / low;
        let plane = simd.int_load(&planes[pair / a_vector]);
        pairs[pair] = bits_of(simd, plane, pair % a_vector * low, low, 0);
        if BITS > low {
            let high = BITS - low;
            let a_vector = 16 / high;
            let plane = simd.int_load(&planes[low + pair / a_vector]);
            pairs[pair] = simd.or(pairs[pair], bits_of(simd, plane, pair % a_vector * high, high, low));
        }
    });
    pairs
}

/// `width` bits of each half from bit `from` on, moved to bit `to`.
#[inline(always)]
fn bits_of<S: Simd>(simd: S, plane: S::I, from: usize, width: usize, to: usize) -> S::I {
    let moved =
        if from >= to { simd.shr(plane, (from - to) as u32) } else { simd.shl(plane, (to - from) as u32) };
    let mask = ((1u32 << width) - 1) << to;
    simd.and(moved, simd.int_splat((mask * 0x0001_0001) as i32))
}

#[inline(always)]
fn factors<S: Simd, const FACTORS: u8>(simd: S, factors: &[u8], subs: &[u8], block: usize) -> Factors<S::F> {
    let (halves, _) = factors.as_chunks::<{ 2 * LANES }>();
    let (subs, _) = subs.as_chunks::<LANES>();
    let half = |at: usize| simd.load_f16(&u16s(&halves[at]));
    let zero = simd.splat(0.0);
    match FACTORS {
        PLAIN => [(half(block), zero); 2],
        FLOOR => [(half(2 * block), half(2 * block + 1)); 2],
        SUBS_32_FLOOR => {
            let (factor, floor) = (half(block / GROUP_BLOCKS * 2), half(block / GROUP_BLOCKS * 2 + 1));
            let sub = |at: usize| simd.to_float(simd.int_load_u8(&subs[2 * block + at]));
            let minus_floor = simd.sub(zero, floor);
            [(simd.mul(factor, sub(0)), simd.mul(minus_floor, sub(1))); 2]
        }
        SUBS_16_FLOOR => {
            let (factor, floor) = (half(block / GROUP_BLOCKS * 2), half(block / GROUP_BLOCKS * 2 + 1));
            let minus_floor = simd.sub(zero, floor);
            let mut both = [(zero, zero); 2];
            for at in 0..2 {
                let bytes = simd.int_load_u8(&subs[2 * block + at]);
                let sub_factor = simd.to_float(simd.and(bytes, simd.int_splat(0xF)));
                let sub_floor = simd.to_float(simd.shr(bytes, 4));
                both[at] = (simd.mul(factor, sub_factor), simd.mul(minus_floor, sub_floor));
            }
            both
        }
        _ => {
            let factor = half(block / GROUP_BLOCKS);
            let sub = |at: usize| simd.to_float(simd.int_load_i8(&subs[2 * block + at]));
            [(simd.mul(factor, sub(0)), zero), (simd.mul(factor, sub(1)), zero)]
        }
    }
}

#[inline(always)]
fn u16s(bytes: &[u8; 2 * LANES]) -> [u16; LANES] {
    std::array::from_fn(|lane| u16::from_le_bytes([bytes[2 * lane], bytes[2 * lane + 1]]))
}
