//! Products with quantised weights: integers, exact within a block of 32 inputs, then f32 block after block.
//!
//! A block of weights is unpacked into registers once and multiplied with every row of the activations. A sum
//! goes over the blocks in order and sees nothing of other rows, so the row count changes nothing.

use replica_format::facts::TensorKind;

use super::activations::Activations;
use super::panel::{Layout, QUADS};
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
            dense @ (TensorKind::F32 | TensorKind::F16 | TensorKind::BF16) => panic!("{dense:?} has no quants"),
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

/// Blocks of 32 in a group of 256.
const GROUP_BLOCKS: usize = 8;

/// A product whose kind of weights the compiler knows: bits of a quant, its zero, and how factors are kept.
struct Typed<'a, const BITS: usize, const ZERO: u32, const FACTORS: u8>(Product<'a>);

/// Factors and floors of a block for its halves (or twice the same).
type Factors<F> = [(F, F); 2];

impl<const BITS: usize, const ZERO: u32, const FACTORS: u8> Kernel for Typed<'_, BITS, ZERO, FACTORS> {
    #[inline(always)]
    fn run<S: Simd>(self, simd: S) {
        let Product { layout, panel, x, stride, sums } = self.0;
        let sections = layout.sections();
        let (quants, _) = panel[..sections[0]].as_chunks::<{ 4 * LANES }>();
        let factors = &panel[sections[0]..sections[1]];
        let subs = &panel[sections[1]..sections[2]];
        for sum in sums.iter_mut() {
            *sum = [0.0; LANES];
        }
        for (block, quants) in quants.chunks_exact(BITS).enumerate() {
            let quads = unpack::<S, BITS>(simd, quants);
            let factors = self::factors::<S, FACTORS>(simd, factors, subs, block);
            let x = &x[block * stride..][..sums.len()];
            for (x, sum) in x.iter().zip(sums.iter_mut()) {
                let so_far = simd.load(sum);
                simd.store(add_block::<S, BITS, ZERO, FACTORS>(simd, &quads, &factors, x, so_far), sum);
            }
        }
    }
}

/// Adds one block's part of one row's sums.
#[inline(always)]
fn add_block<S: Simd, const BITS: usize, const ZERO: u32, const FACTORS: u8>(
    simd: S,
    quads: &[S::I; QUADS],
    factors: &Factors<S::F>,
    x: &Activations,
    mut sum: S::F,
) -> S::F {
    let halves = if matches!(FACTORS, SUBS_16 | SUBS_16_FLOOR) { 2 } else { 1 };
    let floors = matches!(FACTORS, FLOOR | SUBS_32_FLOOR | SUBS_16_FLOOR);
    let scale = simd.splat(x.scale);
    for half in 0..halves {
        let of_half = half * QUADS / halves..(half + 1) * QUADS / halves;
        let which = if halves == 2 { half } else { 2 };
        let mut total = simd.int_splat(0);
        for quad in of_half.clone() {
            total = dot4::<S, BITS>(simd, total, quads[quad], simd.int_splat(quad_of(&x.upper, quad)));
        }
        total = simd.shl(total, 8);
        if ZERO != 0 {
            let minus_sum = simd.int_splat(x.minus_sums[which]);
            total = simd.int_add(total, simd.shl(minus_sum, ZERO.trailing_zeros()));
        }
        for quad in of_half {
            total = dot4::<S, BITS>(simd, total, quads[quad], simd.int_splat(quad_of(&x.lower, quad)));
        }
        let (factor, floor) = factors[half];
        sum = simd.fma(simd.to_float(total), simd.mul(factor, scale), sum);
        if floors {
            sum = simd.fma(floor, simd.splat(x.scaled_sums[which]), sum);
        }
    }
    sum
}

/// Four neighbouring bytes.
#[inline(always)]
fn quad_of(bytes: &[u8; 4 * QUADS], quad: usize) -> i32 {
    i32::from_le_bytes([bytes[4 * quad], bytes[4 * quad + 1], bytes[4 * quad + 2], bytes[4 * quad + 3]])
}

#[inline(always)]
fn dot4<S: Simd, const BITS: usize>(simd: S, sum: S::I, a: S::I, b: S::I) -> S::I {
    if BITS == 8 { simd.dot4_wide(sum, a, b) } else { simd.dot4(sum, a, b) }
}

/// The quads of a block: `planes` are `BITS` vectors of bits, as `panel` lays them.
#[inline(always)]
fn unpack<S: Simd, const BITS: usize>(simd: S, planes: &[[u8; 4 * LANES]]) -> [S::I; QUADS] {
    let mut quads = [simd.int_splat(0); QUADS];
    let low = if BITS == 8 { 8 } else if BITS < 4 { 2 } else { 4 };
    for (quad, value) in quads.iter_mut().enumerate() {
        let per = 8 / low;
        *value = bits_of(simd, simd.int_load(&planes[quad / per]), quad % per * low, low, 0);
        let high = BITS - low;
        if high > 0 {
            let per = 8 / high;
            let plane = simd.int_load(&planes[low + quad / per]);
            *value = simd.or(*value, bits_of(simd, plane, quad % per * high, high, low));
        }
    }
    quads
}

/// `width` bits of each byte from bit `from` on, moved to bit `to`.
#[inline(always)]
fn bits_of<S: Simd>(simd: S, plane: S::I, from: usize, width: usize, to: usize) -> S::I {
    if width == 8 {
        return plane;
    }
    let moved = if from >= to { simd.shr(plane, (from - to) as u32) } else { simd.shl(plane, (to - from) as u32) };
    let mask = ((1u32 << width) - 1) << to;
    simd.and(moved, simd.int_splat((mask * 0x0101_0101) as i32))
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
            std::array::from_fn(|at| {
                let both = simd.int_load_u8(&subs[2 * block + at]);
                let sub_factor = simd.to_float(simd.and(both, simd.int_splat(0xF)));
                (simd.mul(factor, sub_factor), simd.mul(minus_floor, simd.to_float(simd.shr(both, 4))))
            })
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
