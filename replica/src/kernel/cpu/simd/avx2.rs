//! AVX2 with FMA: two registers a vector.
#![allow(clippy::wildcard_imports, reason = "some fifty instructions, each named where it is used")]

use std::arch::x86_64::*;

use super::{LANES, Simd};

/// Proof that AVX2, FMA and F16C are there.
#[derive(Clone, Copy)]
pub struct Avx2(());

impl Avx2 {
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

type F = [__m256; 2];
type I = [__m256i; 2];

impl Simd for Avx2 {
    const TILE: usize = 6;
    type F = F;
    type I = I;

    instructions! {
        fn prefetch(place: *const u8) -> () = _mm_prefetch::<_MM_HINT_T0>(place.cast());
        fn splat(value: f32) -> F = [_mm256_set1_ps(value); 2];
        fn load(from: &[f32; LANES]) -> F = [_mm256_loadu_ps(from.as_ptr()), _mm256_loadu_ps(from.as_ptr().add(8))];
        fn load_f16(from: &[u16; LANES]) -> F = [
            _mm256_cvtph_ps(_mm_loadu_si128(from.as_ptr().cast())),
            _mm256_cvtph_ps(_mm_loadu_si128(from.as_ptr().add(8).cast()))];
        fn load_bf16(from: &[u16; LANES]) -> F = {
            let low = _mm256_cvtepu16_epi32(_mm_loadu_si128(from.as_ptr().cast()));
            let high = _mm256_cvtepu16_epi32(_mm_loadu_si128(from.as_ptr().add(8).cast()));
            [low, high].map(|half| _mm256_castsi256_ps(_mm256_slli_epi32::<16>(half)))
        };
        fn store(value: F, to: &mut [f32; LANES]) -> () = {
            _mm256_storeu_ps(to.as_mut_ptr(), value[0]);
            _mm256_storeu_ps(to.as_mut_ptr().add(8), value[1]);
        };
        fn store_f16(value: F, to: &mut [u16; LANES]) -> () = {
            let [low, high] = value.map(|half| _mm256_cvtps_ph::<_MM_FROUND_TO_NEAREST_INT>(half));
            _mm_storeu_si128(to.as_mut_ptr().cast(), low);
            _mm_storeu_si128(to.as_mut_ptr().add(8).cast(), high);
        };
        fn add(a: F, b: F) -> F = [_mm256_add_ps(a[0], b[0]), _mm256_add_ps(a[1], b[1])];
        fn sub(a: F, b: F) -> F = [_mm256_sub_ps(a[0], b[0]), _mm256_sub_ps(a[1], b[1])];
        fn mul(a: F, b: F) -> F = [_mm256_mul_ps(a[0], b[0]), _mm256_mul_ps(a[1], b[1])];
        fn div(a: F, b: F) -> F = [_mm256_div_ps(a[0], b[0]), _mm256_div_ps(a[1], b[1])];
        fn max(a: F, b: F) -> F = [_mm256_max_ps(a[0], b[0]), _mm256_max_ps(a[1], b[1])];
        fn min(a: F, b: F) -> F = [_mm256_min_ps(a[0], b[0]), _mm256_min_ps(a[1], b[1])];
        fn fma(a: F, b: F, c: F) -> F = [_mm256_fmadd_ps(a[0], b[0], c[0]), _mm256_fmadd_ps(a[1], b[1], c[1])];
        fn sum(a: F) -> f32 = {
            let half = _mm256_add_ps(a[0], a[1]);
            let four = _mm_add_ps(_mm256_castps256_ps128(half), _mm256_extractf128_ps::<1>(half));
            let two = _mm_add_ps(four, _mm_movehl_ps(four, four));
            _mm_cvtss_f32(_mm_add_ss(two, _mm_movehdup_ps(two)))
        };
        fn largest(a: F) -> f32 = {
            let half = _mm256_max_ps(a[0], a[1]);
            let four = _mm_max_ps(_mm256_castps256_ps128(half), _mm256_extractf128_ps::<1>(half));
            let two = _mm_max_ps(four, _mm_movehl_ps(four, four));
            _mm_cvtss_f32(_mm_max_ss(two, _mm_movehdup_ps(two)))
        };
        fn round(a: F) -> I = [_mm256_cvtps_epi32(a[0]), _mm256_cvtps_epi32(a[1])];
        fn to_float(a: I) -> F = [_mm256_cvtepi32_ps(a[0]), _mm256_cvtepi32_ps(a[1])];
        fn as_float(a: I) -> F = [_mm256_castsi256_ps(a[0]), _mm256_castsi256_ps(a[1])];
        fn int_splat(value: i32) -> I = [_mm256_set1_epi32(value); 2];
        fn int_load(from: &[u8; 4 * LANES]) -> I = [
            _mm256_loadu_si256(from.as_ptr().cast()),
            _mm256_loadu_si256(from.as_ptr().add(32).cast())];
        fn int_load_u8(from: &[u8; LANES]) -> I = [
            _mm256_cvtepu8_epi32(_mm_loadl_epi64(from.as_ptr().cast())),
            _mm256_cvtepu8_epi32(_mm_loadl_epi64(from.as_ptr().add(8).cast()))];
        fn int_load_i8(from: &[u8; LANES]) -> I = [
            _mm256_cvtepi8_epi32(_mm_loadl_epi64(from.as_ptr().cast())),
            _mm256_cvtepi8_epi32(_mm_loadl_epi64(from.as_ptr().add(8).cast()))];
        fn int_add(a: I, b: I) -> I = [_mm256_add_epi32(a[0], b[0]), _mm256_add_epi32(a[1], b[1])];
        fn and(a: I, b: I) -> I = [_mm256_and_si256(a[0], b[0]), _mm256_and_si256(a[1], b[1])];
        fn or(a: I, b: I) -> I = [_mm256_or_si256(a[0], b[0]), _mm256_or_si256(a[1], b[1])];
        fn shl(a: I, bits: u32) -> I = a.map(|half| _mm256_sll_epi32(half, _mm_cvtsi32_si128(bits as i32)));
        fn shr(a: I, bits: u32) -> I = a.map(|half| _mm256_srl_epi32(half, _mm_cvtsi32_si128(bits as i32)));
        fn int_sum(a: I) -> i32 = {
            let half = _mm256_add_epi32(a[0], a[1]);
            let four = _mm_add_epi32(_mm256_castsi256_si128(half), _mm256_extracti128_si256::<1>(half));
            let two = _mm_add_epi32(four, _mm_unpackhi_epi64(four, four));
            _mm_cvtsi128_si32(two).wrapping_add(_mm_extract_epi32::<1>(two))
        };
        fn int_store_i16(value: I, to: &mut [i16; LANES]) -> () = {
            // Packing goes by quarters: low, high, low, high.
            let packed = _mm256_packs_epi32(value[0], value[1]);
            _mm256_storeu_si256(to.as_mut_ptr().cast(), _mm256_permute4x64_epi64::<0b11_01_10_00>(packed));
        };
        fn dot2(sum: I, a: I, b: I) -> I = [
            _mm256_add_epi32(sum[0], _mm256_madd_epi16(a[0], b[0])),
            _mm256_add_epi32(sum[1], _mm256_madd_epi16(a[1], b[1]))];
    }
}
