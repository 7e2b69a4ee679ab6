//! How stored numbers become f32 lanes, and back.

use super::buffer::Plain;
use super::simd::{LANES, Simd};

/// A way to store f32.
pub trait Element: Copy + Send + Sync + 'static {
    /// What lies in memory.
    type Bits: Plain + Default;
    fn load<S: Simd>(simd: S, from: &[Self::Bits; LANES]) -> S::F;
    /// Rounds to nearest.
    fn store<S: Simd>(simd: S, value: S::F, to: &mut [Self::Bits; LANES]);
}

/// As it is.
#[derive(Clone, Copy, Debug)]
pub struct F32;

/// IEEE half precision.
#[derive(Clone, Copy, Debug)]
pub struct F16;

impl Element for F32 {
    type Bits = f32;
    #[inline(always)]
    fn load<S: Simd>(simd: S, from: &[f32; LANES]) -> S::F {
        simd.load(from)
    }
    #[inline(always)]
    fn store<S: Simd>(simd: S, value: S::F, to: &mut [f32; LANES]) {
        simd.store(value, to);
    }
}

impl Element for F16 {
    type Bits = u16;
    #[inline(always)]
    fn load<S: Simd>(simd: S, from: &[u16; LANES]) -> S::F {
        simd.load_f16(from)
    }
    #[inline(always)]
    fn store<S: Simd>(simd: S, value: S::F, to: &mut [u16; LANES]) {
        simd.store_f16(value, to);
    }
}
