//! Plain arrays: what the compiler makes of them on any machine.
#![expect(clippy::needless_pass_by_value, reason = "lanes are values, as registers are")]

use std::array::from_fn;

use super::{LANES, Simd};

/// Always there.
#[derive(Clone, Copy)]
pub struct Portable;

/// A fused product where the target has one; a call into the maths library would cost a hundred times more.
#[inline(always)]
fn fused(a: f32, b: f32, c: f32) -> f32 {
    if cfg!(any(target_arch = "aarch64", target_feature = "fma")) { a.mul_add(b, c) } else { a * b + c }
}

#[inline(always)]
fn lanes<T, U>(a: [T; LANES], mut op: impl FnMut(&T) -> U) -> [U; LANES] {
    from_fn(|lane| op(&a[lane]))
}

#[inline(always)]
fn pairs<T, U>(a: [T; LANES], b: [T; LANES], mut op: impl FnMut(&T, &T) -> U) -> [U; LANES] {
    from_fn(|lane| op(&a[lane], &b[lane]))
}

impl Simd for Portable {
    const TILE: usize = 2;
    type F = [f32; LANES];
    type I = [u32; LANES];

    #[inline(always)]
    fn prefetch(self, _place: *const u8) {}
    #[inline(always)]
    fn splat(self, value: f32) -> Self::F {
        [value; LANES]
    }
    #[inline(always)]
    fn load(self, from: &[f32; LANES]) -> Self::F {
        *from
    }
    #[inline(always)]
    fn load_f16(self, from: &[u16; LANES]) -> Self::F {
        lanes(*from, |&bits| half::f16::from_bits(bits).to_f32())
    }
    #[inline(always)]
    fn load_bf16(self, from: &[u16; LANES]) -> Self::F {
        lanes(*from, |&bits| f32::from_bits(u32::from(bits) << 16))
    }
    #[inline(always)]
    fn store(self, value: Self::F, to: &mut [f32; LANES]) {
        *to = value;
    }
    #[inline(always)]
    fn store_f16(self, value: Self::F, to: &mut [u16; LANES]) {
        *to = lanes(value, |&value| half::f16::from_f32(value).to_bits());
    }
    #[inline(always)]
    fn add(self, a: Self::F, b: Self::F) -> Self::F {
        pairs(a, b, |a, b| a + b)
    }
    #[inline(always)]
    fn sub(self, a: Self::F, b: Self::F) -> Self::F {
        pairs(a, b, |a, b| a - b)
    }
    #[inline(always)]
    fn mul(self, a: Self::F, b: Self::F) -> Self::F {
        pairs(a, b, |a, b| a * b)
    }
    #[inline(always)]
    fn div(self, a: Self::F, b: Self::F) -> Self::F {
        pairs(a, b, |a, b| a / b)
    }
    #[inline(always)]
    fn max(self, a: Self::F, b: Self::F) -> Self::F {
        pairs(a, b, |&a, &b| if a > b { a } else { b })
    }
    #[inline(always)]
    fn min(self, a: Self::F, b: Self::F) -> Self::F {
        pairs(a, b, |&a, &b| if a < b { a } else { b })
    }
    #[inline(always)]
    fn fma(self, a: Self::F, b: Self::F, c: Self::F) -> Self::F {
        from_fn(|lane| fused(a[lane], b[lane], c[lane]))
    }
    #[inline(always)]
    fn sum(self, a: Self::F) -> f32 {
        a.iter().sum()
    }
    #[inline(always)]
    fn largest(self, a: Self::F) -> f32 {
        a.iter().fold(f32::NEG_INFINITY, |largest, &value| if value > largest { value } else { largest })
    }
    #[inline(always)]
    fn round(self, a: Self::F) -> Self::I {
        lanes(a, |value| value.round_ties_even() as i32 as u32)
    }
    #[inline(always)]
    fn to_float(self, a: Self::I) -> Self::F {
        lanes(a, |&value| value as i32 as f32)
    }
    #[inline(always)]
    fn as_float(self, a: Self::I) -> Self::F {
        lanes(a, |&bits| f32::from_bits(bits))
    }

    #[inline(always)]
    fn int_splat(self, value: i32) -> Self::I {
        [value as u32; LANES]
    }
    #[inline(always)]
    fn int_load(self, from: &[u8; 4 * LANES]) -> Self::I {
        from_fn(|lane| {
            u32::from_le_bytes([from[4 * lane], from[4 * lane + 1], from[4 * lane + 2], from[4 * lane + 3]])
        })
    }
    #[inline(always)]
    fn int_load_u8(self, from: &[u8; LANES]) -> Self::I {
        lanes(*from, |&byte| u32::from(byte))
    }
    #[inline(always)]
    fn int_load_i8(self, from: &[u8; LANES]) -> Self::I {
        lanes(*from, |&byte| i32::from(byte as i8) as u32)
    }
    #[inline(always)]
    fn int_add(self, a: Self::I, b: Self::I) -> Self::I {
        pairs(a, b, |&a, &b| a.wrapping_add(b))
    }
    #[inline(always)]
    fn and(self, a: Self::I, b: Self::I) -> Self::I {
        pairs(a, b, |a, b| a & b)
    }
    #[inline(always)]
    fn or(self, a: Self::I, b: Self::I) -> Self::I {
        pairs(a, b, |a, b| a | b)
    }
    #[inline(always)]
    fn shl(self, a: Self::I, bits: u32) -> Self::I {
        lanes(a, |a| a << bits)
    }
    #[inline(always)]
    fn shr(self, a: Self::I, bits: u32) -> Self::I {
        lanes(a, |a| a >> bits)
    }
    #[inline(always)]
    fn int_sum(self, a: Self::I) -> i32 {
        a.iter().fold(0u32, |sum, &value| sum.wrapping_add(value)) as i32
    }
    #[inline(always)]
    fn int_store_i16(self, value: Self::I, to: &mut [i16; LANES]) {
        *to = lanes(value, |&value| value as i16);
    }
    #[inline(always)]
    fn dot2(self, sum: Self::I, a: Self::I, b: Self::I) -> Self::I {
        from_fn(|lane| {
            let low = i32::from(a[lane] as i16) * i32::from(b[lane] as i16);
            let high = i32::from((a[lane] >> 16) as i16) * i32::from((b[lane] >> 16) as i16);
            sum[lane].wrapping_add(low.wrapping_add(high) as u32)
        })
    }
}
