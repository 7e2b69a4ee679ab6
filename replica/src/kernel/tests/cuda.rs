//! The tensor path, on candle's CPU device, beside our kernels.

use replica_core::batch::{Batch, BlockId, Output, Share};
use replica_format::facts::{Rope, RopeScaling, TensorKind};
use shared::id::SequenceId;

use super::{KINDS, Numbers};
use crate::kernel::cuda::Cuda;
use crate::kernel::{
    AttentionSpec, Device, HeadLayout, KvKind, KvShape, Matrix, Part, Result, RopeTable, Rows,
};

fn both() -> [Device; 2] {
    [Device::cpu(2), Device::Cuda(Cuda::stand_in())]
}

/// Runs the same on both and compares what comes back.
fn check(what: &str, tolerance: f32, run: impl Fn(&Device) -> Result<Rows>) {
    let [ours, theirs] = both().map(|device| {
        let rows = run(&device).unwrap();
        device.to_host(&rows).unwrap().into_owned()
    });
    assert_eq!(ours.len(), theirs.len());
    let size = ours.iter().fold(1.0f32, |size, value| size.max(value.abs()));
    for (at, (ours, theirs)) in ours.iter().zip(&theirs).enumerate() {
        assert!((ours - theirs).abs() <= tolerance * size, "{what}: {ours} and {theirs} at {at}");
    }
}

#[test]
fn products_and_embeddings_agree_for_every_kind() {
    let mut numbers = Numbers::new(1);
    for kind in KINDS {
        let (first, second) = (numbers.tensor(kind, 20, 256), numbers.tensor(TensorKind::Q8_0, 5, 256));
        let x = numbers.floats(3 * 256);
        // Candle rounds activations to eight bits for quantised weights; ours keep sixteen.
        check(&format!("{kind:?}"), 0.02, |device| {
            let parts = [Part::of(kind, 20, 256, &first), Part::of(TensorKind::Q8_0, 5, 256, &second)];
            let w = Matrix::pack(device, &parts)?;
            let x = device.from_host(&x, 256)?;
            let mut y = device.rows(3, 25)?;
            device.matmul(&x, &w, &mut y)?;
            Ok(y)
        });
        check(&format!("{kind:?} embedding"), 1e-6, |device| {
            let table = Matrix::pack(device, &[Part::of(kind, 20, 256, &first)])?;
            let mut out = device.rows(3, 256)?;
            device.embed(&[19, 0, 7], &table, &mut out)?;
            Ok(out)
        });
    }
}

#[test]
fn work_on_rows_agrees() {
    let mut numbers = Numbers::new(2);
    let (x, delta, w) = (numbers.floats(4 * 48), numbers.floats(4 * 48), numbers.floats(48));
    let head = numbers.floats(8);
    let rope = Rope { theta: 100.0, local_theta: None, dim: 6, scaling: RopeScaling::None };
    let table = RopeTable::new(&rope, rope.theta, 64);
    check("rows", 1e-5, |device| {
        let mut stream = device.from_host(&x, 48)?;
        let delta = device.from_host(&delta, 48)?;
        let mut y = device.rows(4, 48)?;
        device.add_rms_norm(&mut stream, &delta, &device.vector(&w)?, 1e-5, &mut y)?;
        device.add_bias(&mut y, &device.vector(&w)?)?;
        device.norm_heads(&mut y, 1..5, &device.vector(&head)?, 1e-6)?;
        device.rotate(&mut y, 0..4, 8, &device.angles(&table, &[0, 1, 2, 30]))?;
        device.scale(&mut y, 1.5)?;
        device.softcap(&mut y, 2.0)?;
        device.add(&mut y, &stream)?;
        let mut gathered = device.rows(3, 48)?;
        device.gather(&y, &[3, 0, 3], &mut gathered)?;
        device.scatter_add(&gathered, &[1, 1, 2], &[0.5, 2.0, -1.0], &mut stream)?;
        let mut silu = device.rows(4, 24)?;
        device.silu_mul(&stream, &mut silu)?;
        let mut gelu = device.rows(4, 12)?;
        device.gelu_mul(&silu, &mut gelu)?;
        Ok(gelu)
    });
}

#[test]
fn attention_agrees_over_ragged_batches() {
    let layout = HeadLayout { heads: 6, kv_heads: 2, head_dim: 16 };
    let share = |id, rows, table| Share { sequence: SequenceId(id), rows, table, output: Output::Last };
    let positions: Vec<u32> = (0..40).chain(0..3).collect();
    let batch = Batch {
        tokens: vec![0; 43],
        slots: positions[..32].iter().map(|p| 64 + p).chain(0..8).chain(96..99).collect(),
        positions,
        shares: vec![share(0, 0..40, 0..2), share(1, 40..43, 2..3)],
        tables: vec![BlockId(2), BlockId(0), BlockId(3)],
    };
    let rows = Numbers::new(3).floats(43 * layout.width());
    for (kind, window, softcap) in [(KvKind::F32, None, None), (KvKind::F16, Some(7), Some(3.0))] {
        let spec = AttentionSpec { layout, scale: 0.5, window, softcap };
        check("attention", 1e-5, |device| {
            let shape = KvShape { kind, blocks: 4, block_tokens: 32, kv_heads: 2, head_dim: 16 };
            let mut kv = device.kv_layer(shape)?;
            let qkv = device.from_host(&rows, layout.width())?;
            device.write_kv(&qkv, layout, &mut kv, &batch.slots)?;
            let mut out = device.rows(43, 96)?;
            device.attend(&qkv, &kv, &batch, &spec, &mut out)?;
            Ok(out)
        });
    }
}
