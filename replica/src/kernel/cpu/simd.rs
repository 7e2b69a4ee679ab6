//! One vector abstraction of 16 lanes, so that each kernel is written once for every instruction set.
//!
//! A kernel is a value with its operands; [`Isa::run`] compiles it for each set and picks one at run time.
//! Sets may round differently from one another; one set never rounds differently for other row counts.
#![expect(unsafe_code, reason = "vector instructions, called only behind a check that the machine has them")]

#[cfg(target_arch = "x86_64")]
mod avx2;
#[cfg(target_arch = "x86_64")]
mod avx512;
pub mod math;
mod portable;

#[cfg(target_arch = "x86_64")]
use avx2::Avx2;
#[cfg(target_arch = "x86_64")]
use avx512::Avx512;
use portable::Portable;

/// Lanes of a vector.
pub const LANES: usize = 16;

/// Instruction sets that kernels are compiled for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Isa(Set);

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Set {
    #[cfg(target_arch = "x86_64")]
    Avx512,
    #[cfg(target_arch = "x86_64")]
    Avx2,
    Portable,
}

impl Isa {
    /// What this machine has, best first. The last one is always there.
    pub fn all() -> Vec<Self> {
        let mut all = Vec::new();
        #[cfg(target_arch = "x86_64")]
        {
            if is_x86_feature_detected!("avx512f")
                && is_x86_feature_detected!("avx512bw")
                && is_x86_feature_detected!("avx512dq")
                && is_x86_feature_detected!("avx512vl")
                && is_x86_feature_detected!("avx512vnni")
                && is_x86_feature_detected!("f16c")
            {
                all.push(Self(Set::Avx512));
            }
            if is_x86_feature_detected!("avx2")
                && is_x86_feature_detected!("fma")
                && is_x86_feature_detected!("f16c")
            {
                all.push(Self(Set::Avx2));
            }
        }
        all.push(Self(Set::Portable));
        all
    }

    /// The best this machine has.
    pub fn best() -> Self {
        Self::all()[0]
    }

    /// Its name, for logs and for choosing one.
    pub fn name(self) -> &'static str {
        match self.0 {
            #[cfg(target_arch = "x86_64")]
            Set::Avx512 => "avx512",
            #[cfg(target_arch = "x86_64")]
            Set::Avx2 => "avx2",
            Set::Portable => "portable",
        }
    }

    /// Runs a kernel with these instructions.
    #[inline]
    pub fn run<K: Kernel>(self, kernel: K) {
        match self.0 {
            #[cfg(target_arch = "x86_64")]
            // SAFETY: an `Isa` of this set is made only in `all`, after the machine was asked.
            Set::Avx512 => unsafe { run_avx512(kernel) },
            #[cfg(target_arch = "x86_64")]
            // SAFETY: as above.
            Set::Avx2 => unsafe { run_avx2(kernel) },
            Set::Portable => kernel.run(Portable),
        }
    }
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni,avx2,fma,f16c")]
fn run_avx512<K: Kernel>(kernel: K) {
    // SAFETY: this function has the instructions that the token stands for.
    kernel.run(unsafe { Avx512::new() });
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,fma,f16c")]
fn run_avx2<K: Kernel>(kernel: K) {
    // SAFETY: as above.
    kernel.run(unsafe { Avx2::new() });
}

/// A computation with its operands.
pub trait Kernel {
    /// Does it. Must be `#[inline(always)]`, and so must be all it calls that takes `simd`: only what is
    /// inlined is compiled for the instruction set.
    fn run<S: Simd>(self, simd: S);
}

/// Vectors of 16 lanes. A value of this type proves that its instructions are there.
pub trait Simd: Copy {
    /// Rows that a dense product keeps in registers at once.
    const TILE: usize;
    /// 16 f32.
    type F: Copy;
    /// 16 i32, or 16 pairs of i16.
    type I: Copy;

    /// Asks for a cache line ahead of its use; the place need not exist.
    fn prefetch(self, place: *const u8);

    fn splat(self, value: f32) -> Self::F;
    fn load(self, from: &[f32; LANES]) -> Self::F;
    /// From IEEE half precision.
    fn load_f16(self, from: &[u16; LANES]) -> Self::F;
    /// From the upper halves of f32.
    fn load_bf16(self, from: &[u16; LANES]) -> Self::F;
    fn store(self, value: Self::F, to: &mut [f32; LANES]);
    /// To IEEE half precision, to nearest.
    fn store_f16(self, value: Self::F, to: &mut [u16; LANES]);
    fn add(self, a: Self::F, b: Self::F) -> Self::F;
    fn sub(self, a: Self::F, b: Self::F) -> Self::F;
    fn mul(self, a: Self::F, b: Self::F) -> Self::F;
    fn div(self, a: Self::F, b: Self::F) -> Self::F;
    /// `b` where either is not a number.
    fn max(self, a: Self::F, b: Self::F) -> Self::F;
    /// `b` where either is not a number.
    fn min(self, a: Self::F, b: Self::F) -> Self::F;
    /// `a * b + c`.
    fn fma(self, a: Self::F, b: Self::F, c: Self::F) -> Self::F;
    /// Sum of the lanes, in one fixed order.
    fn sum(self, a: Self::F) -> f32;
    /// Largest lane.
    fn largest(self, a: Self::F) -> f32;
    /// To the nearest integer.
    fn round(self, a: Self::F) -> Self::I;
    fn to_float(self, a: Self::I) -> Self::F;
    /// The bits as they are.
    fn as_float(self, a: Self::I) -> Self::F;

    fn int_splat(self, value: i32) -> Self::I;
    fn int_load(self, from: &[u8; 4 * LANES]) -> Self::I;
    /// Each byte widened, unsigned.
    fn int_load_u8(self, from: &[u8; LANES]) -> Self::I;
    /// Each byte widened, signed.
    fn int_load_i8(self, from: &[u8; LANES]) -> Self::I;
    fn int_add(self, a: Self::I, b: Self::I) -> Self::I;
    fn and(self, a: Self::I, b: Self::I) -> Self::I;
    fn or(self, a: Self::I, b: Self::I) -> Self::I;
    /// `bits` is known when compiled, everywhere.
    fn shl(self, a: Self::I, bits: u32) -> Self::I;
    /// Zeros come in from above.
    fn shr(self, a: Self::I, bits: u32) -> Self::I;
    /// Sum of the lanes, wrapping.
    fn int_sum(self, a: Self::I) -> i32;
    /// Each lane must fit.
    fn int_store_i16(self, value: Self::I, to: &mut [i16; LANES]);
    /// Adds to each lane the products of its two signed 16-bit halves. Exact while sums fit.
    fn dot2(self, sum: Self::I, a: Self::I, b: Self::I) -> Self::I;
}
