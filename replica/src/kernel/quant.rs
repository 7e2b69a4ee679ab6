//! What the bytes of each quantised kind mean. One decoding serves packing for a device and reading values.
//!
//! Every such kind is affine: a value is `factor · (quant − zero) + floor`, where quants are small unsigned
//! integers and factor and floor hold for 16 or 32 neighbours. Kinds differ in how these are squeezed into
//! bytes, and that is undone here.

use replica_format::facts::TensorKind;

/// Elements of the largest block.
pub(super) const BLOCK_MAX: usize = 256;

/// One block of a quantised kind, unsqueezed but not yet multiplied out, so that nothing is rounded.
#[derive(Clone)]
pub(super) struct Block {
    /// Unsigned quants in order.
    pub quants: [u8; BLOCK_MAX],
    /// Half-precision bits of the block's factor.
    pub factor: u16,
    /// Half-precision bits of the block's floor (negative in K kinds, where it is subtracted).
    pub floor: u16,
    /// K kinds: what `factor` is multiplied with in each sub-block; signed in `Q3_K` and `Q6_K`.
    pub sub_factors: [u8; 16],
    /// K kinds with floors: the same for `floor`.
    pub sub_floors: [u8; 16],
}

impl Block {
    pub const EMPTY: Self =
        Self { quants: [0; BLOCK_MAX], factor: 0, floor: 0, sub_factors: [0; 16], sub_floors: [0; 16] };
}

/// Values of a row of whole blocks, exactly as the kind defines them.
pub fn dequantize(kind: TensorKind, bytes: &[u8], values: &mut [f32]) {
    let (per, size) = kind.block();
    assert_eq!((bytes.len() % size, bytes.len() / size * per), (0, values.len()), "{kind:?}: whole blocks");
    match kind {
        TensorKind::F32 => {
            for (word, value) in bytes.chunks_exact(4).zip(values) {
                *value = f32::from_le_bytes([word[0], word[1], word[2], word[3]]);
            }
        }
        TensorKind::F16 => {
            for (half, value) in bytes.chunks_exact(2).zip(values) {
                *value = half::f16::from_le_bytes([half[0], half[1]]).to_f32();
            }
        }
        TensorKind::BF16 => {
            for (half, value) in bytes.chunks_exact(2).zip(values) {
                *value = half::bf16::from_le_bytes([half[0], half[1]]).to_f32();
            }
        }
        _ => {
            let mut block = Block::EMPTY;
            for (bytes, values) in bytes.chunks_exact(size).zip(values.chunks_exact_mut(per)) {
                decode(kind, bytes, &mut block);
                multiply_out(kind, &block, values);
            }
        }
    }
}

/// Values to the bytes of `Q8_0`, rounded as llama.cpp does; their count is a multiple of 32.
pub fn quantize_q8_0(values: &[f32], bytes: &mut Vec<u8>) {
    assert!(values.len().is_multiple_of(32), "Q8_0 has blocks of 32");
    for block in values.chunks_exact(32) {
        let largest = block.iter().fold(0.0f32, |largest, value| largest.max(value.abs()));
        let inverse = if largest == 0.0 { 0.0 } else { 127.0 / largest };
        bytes.extend(half::f16::from_f32(largest / 127.0).to_le_bytes());
        bytes.extend(block.iter().map(|value| (value * inverse).round() as i8 as u8));
    }
}

/// What is subtracted from a quant: zero for kinds with floors.
pub(super) fn zero(kind: TensorKind) -> u8 {
    match kind {
        TensorKind::Q3_K => 4,
        TensorKind::Q4_0 => 8,
        TensorKind::Q5_0 => 16,
        TensorKind::Q6_K => 32,
        TensorKind::Q8_0 => 128,
        _ => 0,
    }
}

/// Values of a block.
pub(super) fn multiply_out(kind: TensorKind, block: &Block, values: &mut [f32]) {
    let factor = half::f16::from_bits(block.factor).to_f32();
    let floor = half::f16::from_bits(block.floor).to_f32();
    let zero = f32::from(zero(kind));
    let sub = match kind {
        TensorKind::Q4_K | TensorKind::Q5_K => 32,
        TensorKind::Q2_K | TensorKind::Q3_K | TensorKind::Q6_K => 16,
        _ => values.len(),
    };
    for (index, (values, quants)) in
        values.chunks_exact_mut(sub).zip(block.quants.chunks_exact(sub)).enumerate()
    {
        let (factor, floor) = match kind {
            TensorKind::Q2_K | TensorKind::Q4_K | TensorKind::Q5_K => {
                (factor * f32::from(block.sub_factors[index]), -floor * f32::from(block.sub_floors[index]))
            }
            TensorKind::Q3_K | TensorKind::Q6_K => (factor * f32::from(block.sub_factors[index] as i8), 0.0),
            _ => (factor, floor),
        };
        for (value, &quant) in values.iter_mut().zip(quants) {
            *value = factor * (f32::from(quant) - zero) + floor;
        }
    }
}

/// Unsqueezes one block of a quantised kind.
pub(super) fn decode(kind: TensorKind, bytes: &[u8], block: &mut Block) {
    match kind {
        TensorKind::Q4_0 => {
            block.factor = half_at(bytes, 0);
            nibbles(&bytes[2..], &mut block.quants[..32]);
        }
        TensorKind::Q4_1 => {
            (block.factor, block.floor) = (half_at(bytes, 0), half_at(bytes, 2));
            nibbles(&bytes[4..], &mut block.quants[..32]);
        }
        TensorKind::Q5_0 => {
            block.factor = half_at(bytes, 0);
            nibbles(&bytes[6..], &mut block.quants[..32]);
            fifth_bits(&bytes[2..6], &mut block.quants[..32]);
        }
        TensorKind::Q5_1 => {
            (block.factor, block.floor) = (half_at(bytes, 0), half_at(bytes, 2));
            nibbles(&bytes[8..], &mut block.quants[..32]);
            fifth_bits(&bytes[4..8], &mut block.quants[..32]);
        }
        TensorKind::Q8_0 => {
            block.factor = half_at(bytes, 0);
            for (quant, byte) in block.quants.iter_mut().zip(&bytes[2..34]) {
                *quant = byte ^ 0x80;
            }
        }
        TensorKind::Q2_K => q2_k(bytes, block),
        TensorKind::Q3_K => q3_k(bytes, block),
        TensorKind::Q4_K => {
            q45_k_scales(bytes, block);
            nibble_runs(&bytes[16..144], 32, &mut block.quants);
        }
        TensorKind::Q5_K => {
            q45_k_scales(bytes, block);
            nibble_runs(&bytes[48..176], 32, &mut block.quants);
            one_bits(&bytes[16..48], 4, &mut block.quants);
        }
        TensorKind::Q6_K => q6_k(bytes, block),
        TensorKind::F32 | TensorKind::F16 | TensorKind::BF16 => panic!("{kind:?} has no quants"),
    }
}

fn half_at(bytes: &[u8], at: usize) -> u16 {
    u16::from_le_bytes([bytes[at], bytes[at + 1]])
}

/// The low halves of 16 bytes, then the high ones.
fn nibbles(bytes: &[u8], quants: &mut [u8]) {
    for (index, byte) in bytes[..16].iter().enumerate() {
        quants[index] = byte & 0xF;
        quants[index + 16] = byte >> 4;
    }
}

fn fifth_bits(bytes: &[u8], quants: &mut [u8]) {
    for (index, quant) in quants.iter_mut().enumerate() {
        *quant |= (bytes[index / 8] >> (index % 8) & 1) << 4;
    }
}

/// Two bits a quant: in each half of the block, byte `l` holds those of the quants `l`, `l + 32`, `l + 64` and
/// `l + 96`. They are added at bit `to`.
fn two_bits(bytes: &[u8], to: usize, quants: &mut [u8; BLOCK_MAX]) {
    for (bytes, quants) in bytes.chunks_exact(32).zip(quants.chunks_exact_mut(128)) {
        for (fourth, quants) in quants.chunks_exact_mut(32).enumerate() {
            for (quant, byte) in quants.iter_mut().zip(bytes) {
                *quant |= (byte >> (2 * fourth) & 3) << to;
            }
        }
    }
}

/// One bit a quant: byte `l` holds those of the quants `l`, `l + 32` and so on.
fn one_bits(bytes: &[u8], to: usize, quants: &mut [u8; BLOCK_MAX]) {
    for (eighth, quants) in quants.chunks_exact_mut(32).enumerate() {
        for (quant, byte) in quants.iter_mut().zip(bytes) {
            *quant |= (byte >> eighth & 1) << to;
        }
    }
}

/// Four bits a quant: the low halves of `run` bytes, then their high halves, and so on.
fn nibble_runs(bytes: &[u8], run: usize, quants: &mut [u8; BLOCK_MAX]) {
    for (bytes, quants) in bytes.chunks_exact(run).zip(quants.chunks_exact_mut(2 * run)) {
        let (low, high) = quants.split_at_mut(run);
        for ((byte, low), high) in bytes.iter().zip(low).zip(high) {
            (*low, *high) = (byte & 0xF, byte >> 4);
        }
    }
}

fn q2_k(bytes: &[u8], block: &mut Block) {
    block.quants.fill(0);
    two_bits(&bytes[16..80], 0, &mut block.quants);
    (block.factor, block.floor) = (half_at(bytes, 80), half_at(bytes, 82));
    for (index, &both) in bytes[..16].iter().enumerate() {
        (block.sub_factors[index], block.sub_floors[index]) = (both & 0xF, both >> 4);
    }
}

fn q3_k(bytes: &[u8], block: &mut Block) {
    block.quants.fill(0);
    two_bits(&bytes[32..96], 0, &mut block.quants);
    one_bits(&bytes[..32], 2, &mut block.quants);
    let scales = &bytes[96..108];
    for (index, factor) in block.sub_factors.iter_mut().enumerate() {
        let low = if index < 8 { scales[index] & 0xF } else { scales[index - 8] >> 4 };
        let high = scales[8 + index % 4] >> (index / 4 * 2) & 3;
        *factor = (low | high << 4).wrapping_sub(32);
    }
    block.factor = half_at(bytes, 108);
}

/// Six bits each: the first four whole in the low bits, the last four in pieces.
fn q45_k_scales(bytes: &[u8], block: &mut Block) {
    (block.factor, block.floor) = (half_at(bytes, 0), half_at(bytes, 2));
    let scales = &bytes[4..16];
    for index in 0..4 {
        block.sub_factors[index] = scales[index] & 63;
        block.sub_floors[index] = scales[index + 4] & 63;
        block.sub_factors[index + 4] = scales[index + 8] & 0xF | scales[index] >> 6 << 4;
        block.sub_floors[index + 4] = scales[index + 8] >> 4 | scales[index + 4] >> 6 << 4;
    }
}

fn q6_k(bytes: &[u8], block: &mut Block) {
    nibble_runs(&bytes[..128], 64, &mut block.quants);
    two_bits(&bytes[128..192], 4, &mut block.quants);
    block.sub_factors.copy_from_slice(&bytes[192..208]);
    block.factor = half_at(bytes, 208);
}
