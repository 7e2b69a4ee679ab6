//! Every verb of the CPU against a plain f64 reference, and the law: the same bits whatever rides along.

mod attention;
mod cuda;
mod elementwise;
mod product;
mod quant;
mod rope;

use replica_format::facts::TensorKind;

use super::{Device, Isa};

pub const KINDS: [TensorKind; 13] = [
    TensorKind::F32,
    TensorKind::F16,
    TensorKind::BF16,
    TensorKind::Q4_0,
    TensorKind::Q4_1,
    TensorKind::Q5_0,
    TensorKind::Q5_1,
    TensorKind::Q8_0,
    TensorKind::Q2_K,
    TensorKind::Q3_K,
    TensorKind::Q4_K,
    TensorKind::Q5_K,
    TensorKind::Q6_K,
];

/// Numbers that look random and are the same every time.
pub struct Numbers(u64);

impl Numbers {
    pub fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1)
    }

    pub fn bits(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    /// Between -1 and 1.
    pub fn float(&mut self) -> f32 {
        (self.bits() >> 40) as f32 / (1 << 23) as f32 - 1.0
    }

    pub fn floats(&mut self, count: usize) -> Vec<f32> {
        (0..count).map(|_| self.float()).collect()
    }

    /// A tensor's bytes: any quants, factors of a likely size.
    pub fn tensor(&mut self, kind: TensorKind, rows: usize, cols: usize) -> Vec<u8> {
        let (per, size) = kind.block();
        let mut bytes = Vec::new();
        for _ in 0..rows * cols / per {
            let at = bytes.len();
            bytes.extend((0..size).map(|_| self.bits() as u8));
            let block = &mut bytes[at..];
            match kind {
                TensorKind::F32 => block.copy_from_slice(&self.float().to_le_bytes()),
                TensorKind::F16 => block.copy_from_slice(&half::f16::from_f32(self.float()).to_le_bytes()),
                TensorKind::BF16 => block.copy_from_slice(&half::bf16::from_f32(self.float()).to_le_bytes()),
                _ => {
                    for &half in halves(kind) {
                        let value = half::f16::from_f32(self.float() * 0.02);
                        block[half..half + 2].copy_from_slice(&value.to_le_bytes());
                    }
                }
            }
        }
        bytes
    }
}

/// Where a block of the kind keeps numbers in half precision.
fn halves(kind: TensorKind) -> &'static [usize] {
    match kind {
        TensorKind::Q4_1 | TensorKind::Q5_1 | TensorKind::Q4_K | TensorKind::Q5_K => &[0, 2],
        TensorKind::Q2_K => &[80, 82],
        TensorKind::Q3_K => &[108],
        TensorKind::Q6_K => &[208],
        _ => &[0],
    }
}

/// A device for each instruction set of this machine and some numbers of threads.
pub fn devices() -> Vec<Device> {
    let with_threads = |isa| [1, 3].map(|threads| Device::cpu_with(threads, isa));
    Isa::all().into_iter().flat_map(with_threads).collect()
}

pub fn bits(values: &[f32]) -> Vec<u32> {
    values.iter().map(|value| value.to_bits()).collect()
}
