//! Activations as integers, for products with quantised weights.
//!
//! A block of 32 neighbours shares one scale and keeps 16 bits a value, so that what is lost (at most half of
//! 1/32767 of the block's largest value) is far below what the weights' own rounding lost.

use super::simd::{Kernel, LANES, Simd};

/// Inputs that share a scale.
pub const BLOCK: usize = 32;
const LARGEST: f32 = 32767.0;
/// Blocks of nothing larger than this are zero; the inverse of their scale would be infinite.
const SMALLEST: f32 = 1e-30;

/// 32 inputs of one row.
#[derive(Clone, Copy, Debug)]
#[repr(C, align(32))]
pub struct Activations {
    pub values: [i16; BLOCK],
    /// What a value is multiplied with.
    pub scale: f32,
    /// Minus the sum of the values: of the first half, the second, both.
    pub minus_sums: [i32; 3],
    /// The sums scaled, in the same order.
    pub scaled_sums: [f32; 3],
}

impl Activations {
    /// All zeros.
    pub const ZERO: Self = Self { values: [0; BLOCK], scale: 0.0, minus_sums: [0; 3], scaled_sums: [0.0; 3] };
}

/// Converts a row of whole blocks; block `i` goes to `to(i)`. A value that is not finite makes its block's scale
/// not a number, so that it stays visible.
pub struct Quantize<'a, T> {
    pub from: &'a [f32],
    pub to: T,
}

impl<'a, T: Fn(usize) -> &'a mut Activations> Kernel for Quantize<'_, T> {
    #[inline(always)]
    fn run<S: Simd>(self, simd: S) {
        for (index, block) in self.from.as_chunks::<BLOCK>().0.iter().enumerate() {
            quantize(simd, block, (self.to)(index));
        }
    }
}

#[inline(always)]
fn quantize<S: Simd>(simd: S, from: &[f32; BLOCK], to: &mut Activations) {
    let (halves, _) = from.as_chunks::<LANES>();
    let halves = [simd.load(&halves[0]), simd.load(&halves[1])];
    let zero = simd.splat(0.0);
    let [first, second] = halves;
    let magnitudes = [simd.max(first, simd.sub(zero, first)), simd.max(second, simd.sub(zero, second))];
    let largest = simd.largest(simd.max(magnitudes[0], magnitudes[1]));
    // Zero for finite values, else not a number; magnitudes alone may hide one in their maximum.
    let fault = simd.sum(simd.mul(simd.add(first, second), zero));
    let inverse = if largest > SMALLEST { LARGEST / largest } else { 0.0 };
    to.scale = largest / LARGEST + fault;
    let (to_values, _) = to.values.as_chunks_mut::<LANES>();
    for half in 0..2 {
        let values = simd.round(simd.mul(halves[half], simd.splat(inverse)));
        simd.int_store_i16(values, &mut to_values[half]);
        // Wraps only where a fault made the values meaningless.
        to.minus_sums[half] = simd.int_sum(values).wrapping_neg();
    }
    to.minus_sums[2] = to.minus_sums[0].wrapping_add(to.minus_sums[1]);
    to.scaled_sums = to.minus_sums.map(|sum| sum as f32 * -to.scale);
}

#[cfg(test)]
mod tests {
    use super::super::simd::Isa;
    use super::super::slots::Slots;
    use super::*;

    fn quantized(isa: Isa, from: &[f32; BLOCK]) -> Activations {
        let mut to = [Activations::ZERO];
        let blocks = Slots::of(&mut to, 1);
        isa.run(Quantize { from, to: |block| &mut blocks.slot(block)[0] });
        to[0]
    }

    fn check(from: [f32; BLOCK]) {
        for isa in Isa::all() {
            let to = quantized(isa, &from);
            let largest = from.iter().fold(0.0f32, |largest, value| largest.max(value.abs()));
            let value = |at: usize| i32::from(to.values[at]);
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
                let to = quantized(isa, &from);
                assert!(to.scale.is_nan(), "{}: {bad}", isa.name());
            }
        }
    }
}
