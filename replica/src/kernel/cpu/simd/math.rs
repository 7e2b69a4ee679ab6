//! Functions made of vector instructions.

use super::Simd;

/// Beyond these a power of e would leave the normal f32.
const EXP_RANGE: (f32, f32) = (-87.3, 88.3);
const LOG2_E: f32 = std::f32::consts::LOG2_E;
/// ln 2 in two pieces: the first has few bits, so that its multiples are exact.
const LN_2: (f32, f32) = (0.693_359_4, -2.121_944_4e-4);
/// Taylor's coefficients of e^r from r² on, highest first: enough for |r| ≤ ln 2 / 2.
const EXP_TAIL: [f32; 5] = [1.0 / 720.0, 1.0 / 120.0, 1.0 / 24.0, 1.0 / 6.0, 0.5];
const EXPONENT_BIAS: i32 = 127;
const MANTISSA_BITS: u32 = 23;

/// e to the power of each lane, within two units in the last place; saturates beyond the f32 range.
#[inline(always)]
pub fn exp<S: Simd>(simd: S, x: S::F) -> S::F {
    // In this order of operands, what is not a number stays so.
    let x = simd.min(simd.splat(EXP_RANGE.1), simd.max(simd.splat(EXP_RANGE.0), x));
    let power = simd.round(simd.mul(x, simd.splat(LOG2_E)));
    let whole = simd.to_float(power);
    let rest = simd.fma(whole, simd.splat(-LN_2.0), x);
    let rest = simd.fma(whole, simd.splat(-LN_2.1), rest);
    let mut sum = simd.splat(EXP_TAIL[0]);
    for &coefficient in &EXP_TAIL[1..] {
        sum = simd.fma(sum, rest, simd.splat(coefficient));
    }
    let sum = simd.fma(simd.mul(sum, rest), rest, rest);
    let scale = simd.shl(simd.int_add(power, simd.int_splat(EXPONENT_BIAS)), MANTISSA_BITS);
    let scale = simd.as_float(scale);
    simd.fma(sum, scale, scale)
}

/// `1 / (1 + e^-x)`.
#[inline(always)]
pub fn sigmoid<S: Simd>(simd: S, x: S::F) -> S::F {
    let one = simd.splat(1.0);
    simd.div(one, simd.add(one, exp(simd, simd.sub(simd.splat(0.0), x))))
}

/// `x · sigmoid(x)`.
#[inline(always)]
pub fn silu<S: Simd>(simd: S, x: S::F) -> S::F {
    simd.mul(x, sigmoid(simd, x))
}

/// GELU in its tanh form: `x / 2 · (1 + tanh(√(2/π) · (x + 0.044715 x³)))`.
#[inline(always)]
pub fn gelu<S: Simd>(simd: S, x: S::F) -> S::F {
    // 1 + tanh(u) is 2 · sigmoid(2u).
    const TWICE_ROOT: f32 = 1.595_769;
    let inner = simd.fma(simd.mul(x, x), simd.splat(0.044_715), simd.splat(1.0));
    simd.mul(x, sigmoid(simd, simd.mul(simd.mul(x, inner), simd.splat(TWICE_ROOT))))
}

/// `tanh`, within a few units of 1e-7 (absolute).
#[inline(always)]
pub fn tanh<S: Simd>(simd: S, x: S::F) -> S::F {
    let twice = sigmoid(simd, simd.add(x, x));
    simd.sub(simd.add(twice, twice), simd.splat(1.0))
}

#[cfg(test)]
mod tests {
    use super::super::{Isa, Kernel, LANES};
    use super::*;

    type Reference = fn(f64) -> f64;
    const REFERENCES: [Reference; 5] = [
        f64::exp,
        |x| 1.0 / (1.0 + (-x).exp()),
        |x| x / (1.0 + (-x).exp()),
        |x| 0.5 * x * (1.0 + ((2.0 / std::f64::consts::PI).sqrt() * (x + 0.044_715 * x.powi(3))).tanh()),
        f64::tanh,
    ];

    struct All<'a> {
        x: [f32; LANES],
        y: &'a mut [[f32; LANES]; 5],
    }

    impl Kernel for All<'_> {
        #[inline(always)]
        fn run<S: Simd>(self, simd: S) {
            let x = simd.load(&self.x);
            let results = [exp(simd, x), sigmoid(simd, x), silu(simd, x), gelu(simd, x), tanh(simd, x)];
            for (result, y) in results.into_iter().zip(self.y) {
                simd.store(result, y);
            }
        }
    }

    #[test]
    fn functions_agree_with_the_maths_library_on_every_instruction_set() {
        for isa in Isa::all() {
            for step in -1000..1000 {
                let x: [f32; LANES] = std::array::from_fn(|lane| step as f32 * 0.08 + lane as f32 * 0.004);
                let mut y = [[0.0; LANES]; 5];
                isa.run(All { x, y: &mut y });
                for (y, reference) in y.iter().zip(REFERENCES) {
                    for (x, y) in x.iter().zip(y) {
                        let wanted = reference(f64::from(*x));
                        let error = (f64::from(*y) - wanted).abs() / wanted.abs().max(1.0);
                        assert!(error < 5e-7, "{}: f({x}) = {y}, not {wanted}", isa.name());
                    }
                }
            }
        }
    }
}
