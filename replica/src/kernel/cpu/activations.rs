//! Activations as integers, for products with quantised weights.
//!
//! A block of 32 neighbours shares one scale and takes 16 bits a value, so that what is lost (half of
//! 1/32512 of the block's largest value) is far below what the weights' own rounding lost. The two bytes lie
//! apart: byte products are what machines are good at.

use super::simd::{Kernel, LANES, Simd};

/// Inputs that share a scale.
pub const BLOCK: usize = 32;
/// The largest magnitude: its upper byte, rounded, is 127.
const LARGEST: f32 = 127.0 * 256.0;
/// Blocks of nothing larger than this are zero; the inverse of their scale would be infinite.
const SMALLEST: f32 = 1e-30;

/// 32 inputs of one row.
#[derive(Clone, Copy, Debug)]
#[repr(C, align(32))]
pub struct Activations {
    /// Upper bytes, signed: a value is `256 · upper + lower`.
    pub upper: [u8; BLOCK],
    /// Lower bytes, signed.
    pub lower: [u8; BLOCK],
    /// What a value is multiplied with.
    pub scale: f32,
    /// Minus the sum of the values: of the first half, the second, both.
    pub minus_sums: [i32; 3],
    /// The sums scaled, in the same order.
    pub scaled_sums: [f32; 3],
}

impl Activations {
    /// All zeros.
    pub const ZERO: Self = Self {
        upper: [0; BLOCK],
        lower: [0; BLOCK],
        scale: 0.0,
        minus_sums: [0; 3],
        scaled_sums: [0.0; 3],
    };
}

/// Converts one block. A value that is not finite makes the scale not a number, so that it stays visible.
pub struct Quantize<'a> {
    pub from: &'a [f32; BLOCK],
    pub to: &'a mut Activations,
}

impl Kernel for Quantize<'_> {
    #[inline(always)]
    fn run<S: Simd>(self, simd: S) {
        quantize(simd, self.from, self.to);
    }
}

#[inline(always)]
pub fn quantize<S: Simd>(simd: S, from: &[f32; BLOCK], to: &mut Activations) {
    let (halves, _) = from.as_chunks::<LANES>();
    let halves = [simd.load(&halves[0]), simd.load(&halves[1])];
    let zero = simd.splat(0.0);
    let magnitude = |half| simd.max(half, simd.sub(zero, half));
    let largest = simd.largest(simd.max(magnitude(halves[0]), magnitude(halves[1])));
    // Zero for finite values, else not a number; magnitudes alone may hide one in their maximum.
    let fault = simd.sum(simd.mul(simd.add(halves[0], halves[1]), zero));
    let inverse = if largest > SMALLEST { LARGEST / largest } else { 0.0 };
    to.scale = largest / LARGEST + fault;
    let (uppers, _) = to.upper.as_chunks_mut::<LANES>();
    let (lowers, _) = to.lower.as_chunks_mut::<LANES>();
    for half in 0..2 {
        let values = simd.round(simd.mul(halves[half], simd.splat(inverse)));
        simd.int_store_u8(simd.shr(simd.int_add(values, simd.int_splat(128)), 8), &mut uppers[half]);
        simd.int_store_u8(values, &mut lowers[half]);
        // Wraps only where a fault made the values meaningless.
        to.minus_sums[half] = simd.int_sum(values).wrapping_neg();
    }
    to.minus_sums[2] = to.minus_sums[0].wrapping_add(to.minus_sums[1]);
    to.scaled_sums = to.minus_sums.map(|sum| sum as f32 * -to.scale);
}

#[cfg(test)]
mod tests {
    use super::super::simd::Isa;
    use super::*;

    fn check(from: [f32; BLOCK]) {
        for isa in Isa::all() {
            let mut to = Activations::ZERO;
            isa.run(Quantize { from: &from, to: &mut to });
            let largest = from.iter().fold(0.0f32, |largest, value| largest.max(value.abs()));
            let value = |at: usize| 256 * i32::from(to.upper[at] as i8) + i32::from(to.lower[at] as i8);
            for (at, wanted) in from.iter().enumerate() {
                let error = (value(at) as f32 * to.scale - wanted).abs();
                assert!(error <= largest / LARGEST * 0.51, "{}: {error} at {at}", isa.name());
            }
            assert_eq!(to.minus_sums[0], -(0..16).map(value).sum::<i32>());
            assert_eq!(to.minus_sums[2], -(0..32).map(value).sum::<i32>());
        }
    }

    #[test]
    fn values_come_back_within_half_a_step_on_every_instruction_set() {
        check([0.0; BLOCK]);
        check(std::array::from_fn(|at| (at as f32 - 11.3) * 0.37));
        check(std::array::from_fn(|at| if at == 7 { -1e20 } else { 1e15 * at as f32 }));
        check(std::array::from_fn(|at| 1e-20 * at as f32));
    }

    #[test]
    fn a_value_that_is_not_finite_stays_visible() {
        for isa in Isa::all() {
            for (at, bad) in [(0, f32::NAN), (17, f32::INFINITY), (31, f32::NEG_INFINITY)] {
                let mut from = [1.0; BLOCK];
                from[at] = bad;
                let mut to = Activations::ZERO;
                isa.run(Quantize { from: &from, to: &mut to });
                assert!(to.scale.is_nan(), "{}: {bad}", isa.name());
            }
        }
    }
}
