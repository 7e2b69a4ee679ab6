use replica_format::facts::{Rope, RopeScaling};

use super::{Numbers, bits, devices};
use crate::kernel::{Device, RopeTable, Rows};

const WIDTHS: [usize; 4] = [16, 7, 100, 576];

fn host(device: &Device, rows: &Rows) -> Vec<f32> {
    device.to_host(rows).unwrap().into_owned()
}

fn close(got: &[f32], wanted: impl Iterator<Item = f64>) {
    for (at, (got, wanted)) in got.iter().zip(wanted).enumerate() {
        assert!(
            (f64::from(*got) - wanted).abs() <= 2e-6 * wanted.abs().max(1.0),
            "{got}, not {wanted}, at {at}"
        );
    }
}

fn norm(x: &[f32], w: &[f32], eps: f32) -> Vec<f64> {
    let squares: f64 = x.iter().map(|&x| f64::from(x).powi(2)).sum();
    let factor = 1.0 / (squares / x.len() as f64 + f64::from(eps)).sqrt();
    x.iter().zip(w).map(|(&x, &w)| f64::from(x) * factor * f64::from(w)).collect()
}

#[test]
fn norms_agree_with_f64_and_the_fused_one_with_the_plain_ones() {
    let mut numbers = Numbers::new(1);
    for width in WIDTHS {
        for device in devices() {
            let (x, delta, w) =
                (numbers.floats(40 * width), numbers.floats(40 * width), numbers.floats(width));
            let weight = device.vector(&w).unwrap();
            let mut stream = device.from_host(&x, width).unwrap();
            let mut y = device.rows(40, width).unwrap();
            device.rms_norm(&stream, &weight, 1e-5, &mut y).unwrap();
            close(&host(&device, &y), x.chunks_exact(width).flat_map(|x| norm(x, &w, 1e-5)));

            let delta = device.from_host(&delta, width).unwrap();
            let mut fused = device.rows(40, width).unwrap();
            let mut fused_stream = device.from_host(&x, width).unwrap();
            device.add_rms_norm(&mut fused_stream, &delta, &weight, 1e-5, &mut fused).unwrap();
            device.add(&mut stream, &delta).unwrap();
            device.rms_norm(&stream, &weight, 1e-5, &mut y).unwrap();
            assert_eq!(bits(&host(&device, &fused)), bits(&host(&device, &y)));
            assert_eq!(bits(&host(&device, &fused_stream)), bits(&host(&device, &stream)));
        }
    }
}

#[test]
fn only_the_named_heads_are_normed() {
    let mut numbers = Numbers::new(2);
    let (x, w) = (numbers.floats(3 * 5 * 8), numbers.floats(8));
    for device in devices() {
        let mut rows = device.from_host(&x, 40).unwrap();
        device.norm_heads(&mut rows, 1..3, &device.vector(&w).unwrap(), 1e-6).unwrap();
        let normed = host(&device, &rows);
        for (at, (head, old)) in normed.chunks_exact(8).zip(x.chunks_exact(8)).enumerate() {
            if (1..3).contains(&(at % 5)) {
                close(head, norm(old, &w, 1e-6).into_iter());
            } else {
                assert_eq!(head, old);
            }
        }
    }
}

#[test]
fn gated_products_and_softcap_agree_with_f64() {
    let mut numbers = Numbers::new(3);
    let silu = |x: f64| x / (1.0 + (-x).exp());
    let gelu =
        |x: f64| 0.5 * x * (1.0 + ((2.0 / std::f64::consts::PI).sqrt() * (x + 0.044_715 * x.powi(3))).tanh());
    for width in WIDTHS {
        for device in devices() {
            let x: Vec<f32> = numbers.floats(3 * 2 * width).iter().map(|value| value * 6.0).collect();
            let gate_up = device.from_host(&x, 2 * width).unwrap();
            let mut out = device.rows(3, width).unwrap();
            let reference = |act: &dyn Fn(f64) -> f64| -> Vec<f64> {
                let one = |row: &[f32]| -> Vec<f64> {
                    let (gate, up) = row.split_at(width);
                    gate.iter().zip(up).map(|(&gate, &up)| act(f64::from(gate)) * f64::from(up)).collect()
                };
                x.chunks_exact(2 * width).flat_map(one).collect()
            };
            device.silu_mul(&gate_up, &mut out).unwrap();
            close(&host(&device, &out), reference(&silu).into_iter());
            device.gelu_mul(&gate_up, &mut out).unwrap();
            close(&host(&device, &out), reference(&gelu).into_iter());

            let mut capped = device.from_host(&x, width).unwrap();
            device.softcap(&mut capped, 3.0).unwrap();
            close(&host(&device, &capped), x.iter().map(|&x| 3.0 * (f64::from(x) / 3.0).tanh()));
        }
    }
}

#[test]
fn rows_are_gathered_scattered_biased_and_scaled() {
    let device = Device::cpu(2);
    let x = device.from_host(&[1.0, 2.0, 3.0, 4.0, 5.0, 6.0], 2).unwrap();
    let mut out = device.rows(4, 2).unwrap();
    device.gather(&x, &[2, 0, 2, 1], &mut out).unwrap();
    assert_eq!(host(&device, &out), [5.0, 6.0, 1.0, 2.0, 5.0, 6.0, 3.0, 4.0]);
    device.add_bias(&mut out, &device.vector(&[10.0, 20.0]).unwrap()).unwrap();
    device.scale(&mut out, 2.0).unwrap();
    assert_eq!(host(&device, &out), [30.0, 52.0, 22.0, 44.0, 30.0, 52.0, 26.0, 48.0]);
    device.scatter_add(&x, &[3, 0, 3], &[1.0, -2.0, 3.0], &mut out).unwrap();
    assert_eq!(host(&device, &out), [24.0, 44.0, 22.0, 44.0, 30.0, 52.0, 42.0, 68.0]);
}

#[test]
fn named_heads_turn_by_their_position_and_partial_ones_pass_the_rest() {
    let rope = Rope { theta: 100.0, local_theta: None, dim: 4, scaling: RopeScaling::None };
    let table = RopeTable::new(&rope, rope.theta, 64);
    let positions = [0, 1, 9];
    for device in devices() {
        let x = Numbers::new(4).floats(3 * 3 * 6);
        let mut rows = device.from_host(&x, 18).unwrap();
        device.rotate(&mut rows, 0..2, 6, &device.angles(&table, &positions)).unwrap();
        let turned = host(&device, &rows);
        for (row, position) in positions.iter().enumerate() {
            for head in 0..3 {
                let at = |dim: usize| row * 18 + head * 6 + dim;
                for pair in 0..2 {
                    let angle = f64::from(*position) * 100f64.powf(-(pair as f64) / 2.0);
                    let angle = if head < 2 { angle } else { 0.0 };
                    let (a, b) = (f64::from(x[at(pair)]), f64::from(x[at(pair + 2)]));
                    close(&[turned[at(pair)]], [a * angle.cos() - b * angle.sin()].into_iter());
                    close(&[turned[at(pair + 2)]], [b * angle.cos() + a * angle.sin()].into_iter());
                }
                assert_eq!(turned[at(4)..at(6)], x[at(4)..at(6)]);
            }
        }
    }
}
