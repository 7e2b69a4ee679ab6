use proptest::prelude::*;
use replica_format::facts::TensorKind;

use super::{KINDS, Numbers, bits, devices};
use crate::kernel::{Device, Isa, Matrix, Part, dequantize};

fn product(device: &Device, x: &[f32], w: &Matrix) -> Vec<f32> {
    let x = device.from_host(x, w.cols()).unwrap();
    let mut y = device.rows(x.count(), w.rows()).unwrap();
    device.matmul(&x, w, &mut y).unwrap();
    device.to_host(&y).unwrap().into_owned()
}

/// Each output beside what f64 says, relative to the largest sum there could be.
fn worst_error(kind: TensorKind, bytes: &[u8], cols: usize, x: &[f32], y: &[f32]) -> f64 {
    let rows = bytes.len() / kind.bytes(cols as u64) as usize;
    let mut weights = vec![0.0; rows * cols];
    dequantize(kind, bytes, &mut weights);
    let mut worst = 0.0f64;
    for (x, y) in x.chunks_exact(cols).zip(y.chunks_exact(rows)) {
        for (w, &y) in weights.chunks_exact(cols).zip(y) {
            let terms = || x.iter().zip(w).map(|(&x, &w)| f64::from(x) * f64::from(w));
            let possible: f64 = terms().map(f64::abs).sum();
            worst = worst.max((f64::from(y) - terms().sum::<f64>()).abs() / possible.max(1e-9));
        }
    }
    worst
}

#[test]
fn every_kind_agrees_with_f64_on_every_instruction_set() {
    let mut numbers = Numbers::new(1);
    for kind in KINDS {
        for (rows, cols, count) in [(1, 256, 1), (37, 512, 5), (48, 768, 70), (100, 256, 14)] {
            let bytes = numbers.tensor(kind, rows, cols);
            let x = numbers.floats(count * cols);
            for device in devices() {
                let w = Matrix::pack(&device, &[Part::of(kind, rows, cols, &bytes)]).unwrap();
                let error = worst_error(kind, &bytes, cols, &x, &product(&device, &x, &w));
                assert!(error < 2e-5, "{kind:?} {rows}×{cols}·{count} on {}: {error}", device.describe());
            }
        }
    }
}

#[test]
fn columns_need_only_be_whole_blocks() {
    let mut numbers = Numbers::new(2);
    for (kind, cols) in
        [(TensorKind::F32, 7), (TensorKind::F16, 33), (TensorKind::BF16, 1), (TensorKind::Q8_0, 96)]
    {
        let bytes = numbers.tensor(kind, 5, cols);
        let x = numbers.floats(3 * cols);
        for device in devices() {
            let w = Matrix::pack(&device, &[Part::of(kind, 5, cols, &bytes)]).unwrap();
            assert!(worst_error(kind, &bytes, cols, &x, &product(&device, &x, &w)) < 1e-5);
        }
    }
    let bytes = numbers.tensor(TensorKind::Q8_0, 1, 32);
    let refused = Matrix::pack(&Device::cpu(1), &[Part::of(TensorKind::Q8_0, 1, 48, &bytes)]);
    assert!(refused.is_err());
}

#[test]
fn stacked_parts_of_different_kinds_are_one_matrix() {
    let mut numbers = Numbers::new(3);
    let (q, k) = (numbers.tensor(TensorKind::Q4_K, 24, 256), numbers.tensor(TensorKind::Q6_K, 7, 256));
    let parts = [Part::of(TensorKind::Q4_K, 24, 256, &q), Part::of(TensorKind::Q6_K, 7, 256, &k)];
    let device = Device::cpu(2);
    let x = numbers.floats(3 * 256);
    let [stacked, first, second] = [&parts[..], &parts[..1], &parts[1..]]
        .map(|parts| product(&device, &x, &Matrix::pack(&device, parts).unwrap()));
    for row in 0..3 {
        assert_eq!(stacked[row * 31..row * 31 + 24], first[row * 24..][..24]);
        assert_eq!(stacked[row * 31 + 24..row * 31 + 31], second[row * 7..][..7]);
    }
}

#[test]
fn embedding_gives_exactly_what_the_kind_defines() {
    let mut numbers = Numbers::new(4);
    for kind in KINDS {
        let bytes = numbers.tensor(kind, 21, 512);
        let mut wanted = vec![0.0; 21 * 512];
        dequantize(kind, &bytes, &mut wanted);
        let device = Device::cpu(2);
        let table = Matrix::pack(&device, &[Part::of(kind, 21, 512, &bytes)]).unwrap();
        let tokens = [20, 0, 7, 7, 16];
        let mut out = device.rows(tokens.len(), 512).unwrap();
        device.embed(&tokens, &table, &mut out).unwrap();
        for (token, row) in tokens.iter().zip(device.to_host(&out).unwrap().chunks_exact(512)) {
            assert_eq!(bits(row), bits(&wanted[*token as usize * 512..][..512]), "{kind:?}");
        }
    }
}

#[test]
fn a_weight_or_input_that_is_not_finite_is_seen_in_its_outputs_and_no_others() {
    let device = Device::cpu(2);
    for kind in [TensorKind::F32, TensorKind::Q4_1] {
        let bytes = Numbers::new(5).tensor(kind, 32, 64);
        let w = Matrix::pack(&device, &[Part::of(kind, 32, 64, &bytes)]).unwrap();
        let mut x = Numbers::new(6).floats(3 * 64);
        x[64 + 5] = f32::NAN;
        let y = product(&device, &x, &w);
        assert!(y[32..64].iter().all(|value| value.is_nan()), "{kind:?}");
        assert!(y[..32].iter().chain(&y[64..]).all(|value| value.is_finite()), "{kind:?}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]

    #[test]
    fn a_row_is_the_same_bits_alone_and_among_others(
        kind in prop::sample::select(&KINDS[..]),
        isa in prop::sample::select(Isa::all()),
        rows in 1usize..80,
        count in 2usize..140,
        threads in 1usize..5,
        seed: u64,
    ) {
        let cols = 256 * (1 + seed as usize % 2);
        let mut numbers = Numbers::new(seed);
        let bytes = numbers.tensor(kind, rows, cols);
        let x = numbers.floats(count * cols);
        let pack = |device: &Device| Matrix::pack(device, &[Part::of(kind, rows, cols, &bytes)]).unwrap();
        let alone = Device::cpu_with(1, isa);
        let together = Device::cpu_with(threads, isa);
        let all = product(&together, &x, &pack(&together));
        let w = pack(&alone);
        for row in [0, count / 2, count - 1] {
            let one = product(&alone, &x[row * cols..(row + 1) * cols], &w);
            prop_assert_eq!(bits(&one), bits(&all[row * rows..(row + 1) * rows]));
        }
        let some = count / 3;
        let rest = product(&alone, &x[some * cols..], &w);
        prop_assert_eq!(bits(&rest), bits(&all[some * rows..]));
    }
}
