//! AVX-512 with VNNI: one register a vector.
#![allow(clippy::wildcard_imports, reason = "some fifty instructions, each named where it is used")]

use std::arch::x86_64::*;

use super::{LANES, Simd};

/// Proof that AVX-512 (F, BW, DQ, VL, VNNI) and F16C are there.
#[derive(Clone, Copy)]
pub struct Avx512(());

impl Avx512 {
    /// # Safety
    ///
    /// The machine has these instructions.
    #[inline(always)]
    pub unsafe fn new() -> Self {
        Self(())
    }
}

/// Methods of single instructions; the token in `self` proves that they are there.
macro_rules! instructions {
    ($(fn $name:ident($($arg:ident: $type:ty),*) -> $out:ty = $body:expr;)*) => {$(
        #[inline(always)]
        fn $name(self, $($arg: $type),*) -> $out {
            // SAFETY: the token is made only where the instructions are; references are valid for what is
            // read or written through them.
            unsafe { $body }
        }
    )*};
}

impl Simd for Avx512 {
    const TILE: usize = 12;
    type F = __m512;
    type I = __m512i;

    instructions! {
        fn prefetch(place: *const u8) -> () = _mm_prefetch::<_MM_HINT_T0>(place.cast());
        fn splat(value: f32) -> __m512 = _mm512_set1_ps(value);
        fn load(from: &[f32; LANES]) -> __m512 = _mm512_loadu_ps(from.as_ptr());
        fn load_f16(from: &[u16; LANES]) -> __m512 = _mm512_cvtph_ps(_mm256_loadu_si256(from.as_ptr().cast()));
        fn load_bf16(from: &[u16; LANES]) -> __m512 = _mm512_castsi512_ps(_mm512_slli_epi32::<16>(
            _mm512_cvtepu16_epi32(_mm256_loadu_si256(from.as_ptr().cast()))));
        fn store(value: __m512, to: &mut [f32; LANES]) -> () = _mm512_storeu_ps(to.as_mut_ptr(), value);
        fn store_f16(value: __m512, to: &mut [u16; LANES]) -> () = _mm256_storeu_si256(
            to.as_mut_ptr().cast(), _mm512_cvtps_ph::<_MM_FROUND_TO_NEAREST_INT>(value));
        fn add(a: __m512, b: __m512) -> __m512 = _mm512_add_ps(a, b);
        fn sub(a: __m512, b: __m512) -> __m512 = _mm512_sub_ps(a, b);
        fn mul(a: __m512, b: __m512) -> __m512 = _mm512_mul_ps(a, b);
        fn div(a: __m512, b: __m512) -> __m512 = _mm512_div_ps(a, b);
        fn max(a: __m512, b: __m512) -> __m512 = _mm512_max_ps(a, b);
        fn min(a: __m512, b: __m512) -> __m512 = _mm512_min_ps(a, b);
        fn fma(a: __m512, b: __m512, c: __m512) -> __m512 = _mm512_fmadd_ps(a, b, c);
        fn sum(a: __m512) -> f32 = _mm512_reduce_add_ps(a);
        fn largest(a: __m512) -> f32 = _mm512_reduce_max_ps(a);
        fn round(a: __m512) -> __m512i = _mm512_cvtps_epi32(a);
        fn to_float(a: __m512i) -> __m512 = _mm512_cvtepi32_ps(a);
        fn as_float(a: __m512i) -> __m512 = _mm512_castsi512_ps(a);
        fn int_splat(value: i32) -> __m512i = _mm512_set1_epi32(value);
        fn int_load(from: &[u8; 4 * LANES]) -> __m512i = _mm512_loadu_si512(from.as_ptr().cast());
        fn int_load_u8(from: &[u8; LANES]) -> __m512i = _mm512_cvtepu8_epi32(_mm_loadu_si128(from.as_ptr().cast()));
        fn int_load_i8(from: &[u8; LANES]) -> __m512i = _mm512_cvtepi8_epi32(_mm_loadu_si128(from.as_ptr().cast()));
        fn int_add(a: __m512i, b: __m512i) -> __m512i = _mm512_add_epi32(a, b);
        fn and(a: __m512i, b: __m512i) -> __m512i = _mm512_and_si512(a, b);
        fn or(a: __m512i, b: __m512i) -> __m512i = _mm512_or_si512(a, b);
        fn shl(a: __m512i, bits: u32) -> __m512i = _mm512_sll_epi32(a, _mm_cvtsi32_si128(bits as i32));
        fn shr(a: __m512i, bits: u32) -> __m512i = _mm512_srl_epi32(a, _mm_cvtsi32_si128(bits as i32));
        fn int_sum(a: __m512i) -> i32 = _mm512_reduce_add_epi32(a);
        fn int_store_i16(value: __m512i, to: &mut [i16; LANES]) -> () = _mm256_storeu_si256(
            to.as_mut_ptr().cast(), _mm512_cvtepi32_epi16(value));
        fn dot2(sum: __m512i, a: __m512i, b: __m512i) -> __m512i = _mm512_dpwssd_epi32(sum, a, b);
    }
}
