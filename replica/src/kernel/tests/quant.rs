use candle_core::quantized::{GgmlDType, ggml_file::qtensor_from_ggml};
use replica_format::facts::TensorKind;

use super::{KINDS, Numbers, bits};
use crate::kernel::{dequantize, quantize_q8_0};

fn candle_kind(kind: TensorKind) -> Option<GgmlDType> {
    Some(match kind {
        TensorKind::Q4_0 => GgmlDType::Q4_0,
        TensorKind::Q4_1 => GgmlDType::Q4_1,
        TensorKind::Q5_0 => GgmlDType::Q5_0,
        TensorKind::Q5_1 => GgmlDType::Q5_1,
        TensorKind::Q8_0 => GgmlDType::Q8_0,
        TensorKind::Q2_K => GgmlDType::Q2K,
        TensorKind::Q3_K => GgmlDType::Q3K,
        TensorKind::Q4_K => GgmlDType::Q4K,
        TensorKind::Q5_K => GgmlDType::Q5K,
        TensorKind::Q6_K => GgmlDType::Q6K,
        TensorKind::F32 | TensorKind::F16 | TensorKind::BF16 => return None,
    })
}

#[test]
fn quantised_values_are_those_that_candle_reads() {
    let mut numbers = Numbers::new(1);
    for kind in KINDS {
        let Some(candle_kind) = candle_kind(kind) else { continue };
        let bytes = numbers.tensor(kind, 4, 512);
        let tensor = qtensor_from_ggml(candle_kind, &bytes, vec![4, 512], &candle_core::Device::Cpu).unwrap();
        let wanted = tensor.dequantize(&candle_core::Device::Cpu).unwrap().flatten_all().unwrap();
        let mut values = vec![0.0; 4 * 512];
        dequantize(kind, &bytes, &mut values);
        for (value, wanted) in values.iter().zip(wanted.to_vec1::<f32>().unwrap()) {
            assert!(
                (value - wanted).abs() <= 1e-6 * wanted.abs().max(0.1),
                "{kind:?}: {value}, not {wanted}"
            );
        }
    }
}

#[test]
fn halves_are_widened_exactly() {
    for value in [0.0, -1.5, 65504.0, 6e-8, f32::INFINITY] {
        let (half, brain) = (half::f16::from_f32(value), half::bf16::from_f32(value));
        let mut read = [0.0];
        dequantize(TensorKind::F16, &half.to_le_bytes(), &mut read);
        assert_eq!(bits(&read), [half.to_f32().to_bits()]);
        dequantize(TensorKind::BF16, &brain.to_le_bytes(), &mut read);
        assert_eq!(bits(&read), [brain.to_f32().to_bits()]);
    }
}

#[test]
fn values_quantised_to_eight_bits_come_back_within_half_a_step() {
    let mut values = Numbers::new(2).floats(96);
    values[32..64].fill(0.0);
    let mut bytes = Vec::new();
    quantize_q8_0(&values, &mut bytes);
    let mut back = vec![0.0; 96];
    dequantize(TensorKind::Q8_0, &bytes, &mut back);
    for (block, back) in values.chunks(32).zip(back.chunks(32)) {
        let largest = block.iter().fold(0.0f32, |largest, value| largest.max(value.abs()));
        assert!(block.iter().zip(back).all(|(value, back)| (value - back).abs() <= largest / 127.0 * 0.56));
    }
}
