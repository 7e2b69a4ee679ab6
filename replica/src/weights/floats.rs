//! Norms, biases and tables of factors: stored as plain floats in every format.

use half::{bf16, f16};
use replica_format::kind::TensorKind;

/// All of them as f32; `None` for quantised kinds, which only matrices are stored as.
pub fn read(kind: TensorKind, bytes: &[u8]) -> Option<Vec<f32>> {
    match kind {
        TensorKind::F32 => Some(each(bytes, f32::from_le_bytes)),
        TensorKind::F16 => Some(each(bytes, |two| f16::from_le_bytes(two).to_f32())),
        TensorKind::BF16 => Some(each(bytes, |two| bf16::from_le_bytes(two).to_f32())),
        _ => None,
    }
}

fn each<const N: usize>(bytes: &[u8], number: impl Fn([u8; N]) -> f32) -> Vec<f32> {
    bytes.as_chunks::<N>().0.iter().map(|stored| number(*stored)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn floats_of_every_width_are_themselves() {
        let expected = Some(vec![1.0, -2.0]);
        assert_eq!(read(TensorKind::F32, &[0, 0, 128, 63, 0, 0, 0, 192]), expected);
        assert_eq!(read(TensorKind::F16, &[0, 60, 0, 192]), expected);
        assert_eq!(read(TensorKind::BF16, &[128, 63, 0, 192]), expected);
        assert_eq!(read(TensorKind::Q8_0, &[0; 34]), None);
    }
}
