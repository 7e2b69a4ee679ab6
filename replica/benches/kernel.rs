//! What the kernels reach on this machine: `cargo bench -p replica --bench kernel [-- FILTER [THREADS [ISA]]]`.
//!
//! Weights of a product rotate over copies that together exceed the caches, as the layers of a model do, so
//! that one row shows memory and many rows show arithmetic. The best of many runs is shown: on a shared
//! machine that is the steadiest figure. Compare figures of one run only.

use std::hint::black_box;
use std::time::{Duration, Instant};

use replica::kernel::{AttentionSpec, Device, HeadLayout, Isa, KvKind, KvShape, Matrix, Part, RopeTable};
use replica_core::batch::{Batch, BlockId, Output, Share};
use replica_format::facts::{Rope, RopeScaling, TensorKind};
use shared::id::SequenceId;

const KINDS: [TensorKind; 8] = [
    TensorKind::Q4_1,
    TensorKind::Q8_0,
    TensorKind::Q4_0,
    TensorKind::F32,
    TensorKind::BF16,
    TensorKind::F16,
    TensorKind::Q4_K,
    TensorKind::Q6_K,
];
/// Outputs and inputs, as in SmolLM2-135M (K kinds: inputs rounded up to whole blocks).
const SHAPES: [(usize, usize); 4] = [(960, 576), (3072, 576), (576, 1536), (49152, 576)];
const ROWS: [usize; 6] = [1, 4, 16, 64, 128, 512];
/// Copies of a matrix together take at least this.
const BEYOND_CACHES: usize = 96 << 20;
const PATIENCE: Duration = Duration::from_millis(250);

fn main() {
    let args: Vec<String> = std::env::args().skip(1).filter(|arg| arg != "--bench").collect();
    let filter = args.first().cloned().unwrap_or_default();
    let threads = args.get(1).and_then(|arg| arg.parse().ok()).unwrap_or(2);
    let isa = Isa::all().into_iter().find(|isa| args.get(2).is_some_and(|name| name == isa.name()));
    let device = Device::cpu_with(threads, isa.unwrap_or_else(Isa::best));
    println!("{}", device.describe());
    memory(threads);
    for kind in KINDS {
        for (rows, cols) in SHAPES {
            let name = format!("{kind:?} {rows}x{cols}");
            if name.contains(&filter) {
                products(&device, kind, rows, cols, &name);
            }
        }
    }
    for (context, streams, rows) in
        [(64, 1, 1), (64, 4, 1), (64, 16, 1), (1024, 1, 1), (1024, 16, 1), (512, 1, 128)]
    {
        if "step".contains(&filter) {
            step(&device, context, streams, rows);
        }
    }
    for kind in [KvKind::F32, KvKind::F16] {
        for (context, rows) in [(1024, 1), (1024, 128), (4096, 1)] {
            let name = format!("attention {kind:?} {context}");
            if name.contains(&filter) {
                attention(&device, kind, context, rows, &name);
            }
        }
    }
}

/// Seconds of the fastest run.
fn best(mut run: impl FnMut()) -> f64 {
    run();
    let (start, mut best) = (Instant::now(), f64::MAX);
    while start.elapsed() < PATIENCE {
        let one = Instant::now();
        run();
        best = best.min(one.elapsed().as_secs_f64());
    }
    best
}

/// What reading costs at least: sums over more than the caches hold, a piece a thread.
fn memory(threads: usize) {
    let words = vec![1u64; 256 << 17];
    let seconds = best(|| {
        std::thread::scope(|scope| {
            for piece in words.chunks(words.len().div_ceil(threads)) {
                scope.spawn(|| black_box(piece.iter().fold(0u64, |sum, word| sum.wrapping_add(*word))));
            }
        });
    });
    println!("memory read: {:.1} GB/s", words.len() as f64 * 8.0 / seconds / 1e9);
}

fn products(device: &Device, kind: TensorKind, rows: usize, cols: usize, name: &str) {
    let cols = cols.next_multiple_of(kind.block().0);
    // Zeros multiply as fast as anything.
    let bytes = vec![0; rows * kind.bytes(cols as u64) as usize];
    let pack = || Matrix::pack(device, &[Part::of(kind, rows, cols, &bytes)]).expect("memory");
    let copies: Vec<_> = (0..(BEYOND_CACHES / bytes.len()).clamp(1, 60)).map(|_| pack()).collect();
    print!("{name:>18}");
    for count in ROWS {
        if count * rows * cols > 6_000_000_000 {
            continue;
        }
        let x = device.from_host(&vec![0.5; count * cols], cols).expect("memory");
        let mut y = device.rows(count, rows).expect("memory");
        let mut turn = 0;
        let seconds = best(|| {
            turn = (turn + 1) % copies.len();
            device.matmul(&x, &copies[turn], &mut y).expect("no fault");
        });
        let gflops = 2.0 * (count * rows * cols) as f64 / seconds / 1e9;
        if count == 1 {
            print!(" | {:5.1} GB/s", copies[0].bytes() as f64 / seconds / 1e9);
        }
        print!(" | {count}: {:7.1} us {gflops:4.0} GF/s", seconds * 1e6);
    }
    println!();
}

/// The weights of SmolLM2-135M as its `Q4_1` file keeps them.
struct Model {
    layers: Vec<[Matrix; 4]>,
    head: Matrix,
}

impl Model {
    fn new(device: &Device) -> Self {
        let pack = |kind: TensorKind, rows: usize, cols: usize| {
            let bytes = vec![0; rows * kind.bytes(cols as u64) as usize];
            Matrix::pack(device, &[Part::of(kind, rows, cols, &bytes)]).expect("memory")
        };
        let shapes = [(960, 576), (576, 576), (3072, 576), (576, 1536)];
        let layer = || shapes.map(|(rows, cols)| pack(TensorKind::Q4_1, rows, cols));
        Self { layers: (0..30).map(|_| layer()).collect(), head: pack(TensorKind::Q8_0, 49152, 576) }
    }
}

/// A whole step of the model, each of `streams` with `rows` new rows, without embedding and sampling.
fn step(device: &Device, context: usize, streams: usize, rows: usize) {
    let model = Model::new(device);
    let layout = HeadLayout { heads: 9, kv_heads: 3, head_dim: 64 };
    let spec = AttentionSpec { layout, scale: 0.125, window: None, softcap: None };
    let blocks = context / 32;
    let shape =
        KvShape { kind: KvKind::F16, blocks: blocks * streams, block_tokens: 32, kv_heads: 3, head_dim: 64 };
    let mut kv: Vec<_> = (0..30).map(|_| device.kv_layer(shape).expect("memory")).collect();
    let mut batch = Batch::default();
    for stream in 0..streams {
        let first = batch.positions.len();
        batch.positions.extend((context - rows) as u32..context as u32);
        batch.slots.extend((0..rows).map(|row| ((stream + 1) * context - rows + row) as u32));
        batch.tables.extend((0..blocks).map(|block| BlockId((stream * blocks + block) as u32)));
        let table = stream * blocks..(stream + 1) * blocks;
        batch.tokens.resize(first + rows, 0);
        let rows = first..first + rows;
        batch.shares.push(Share { sequence: SequenceId(0), rows, table, output: Output::Last });
    }
    let all = batch.rows();
    let rope = Rope { theta: 1e5, local_theta: None, dim: 64, scaling: RopeScaling::None };
    let table = RopeTable::new(&rope, rope.theta, 8192);
    let norm = device.vector(&[1.0; 576]).expect("memory");
    let mut x = device.from_host(&vec![0.5; all * 576], 576).expect("memory");
    let seconds = best(|| {
        let mut run = || -> replica::kernel::Result<()> {
            let angles = device.angles(&table, &batch.positions);
            let mut normed = device.rows(all, 576)?;
            let mut delta = device.from_host(&vec![0.0; all * 576], 576)?;
            for ([qkv_weight, out_weight, gate_up_weight, down_weight], kv) in
                model.layers.iter().zip(&mut kv)
            {
                device.add_rms_norm(&mut x, &delta, &norm, 1e-5, &mut normed)?;
                let mut qkv = device.rows(all, layout.width())?;
                device.matmul(&normed, qkv_weight, &mut qkv)?;
                device.rotate(&mut qkv, 0..12, 64, &angles)?;
                device.write_kv(&qkv, layout, kv, &batch.slots)?;
                let mut attended = device.rows(all, 576)?;
                device.attend(&qkv, kv, &batch, &spec, &mut attended)?;
                device.matmul(&attended, out_weight, &mut delta)?;
                device.add_rms_norm(&mut x, &delta, &norm, 1e-5, &mut normed)?;
                let mut gate_up = device.rows(all, 3072)?;
                device.matmul(&normed, gate_up_weight, &mut gate_up)?;
                let mut active = device.rows(all, 1536)?;
                device.silu_mul(&gate_up, &mut active)?;
                device.matmul(&active, down_weight, &mut delta)?;
            }
            let last: Vec<usize> = batch.output_rows().collect();
            let mut sampled = device.rows(last.len(), 576)?;
            device.gather(&x, &last, &mut sampled)?;
            let mut logits = device.rows(last.len(), 49152)?;
            device.matmul(&sampled, &model.head, &mut logits)
        };
        run().expect("no fault");
    });
    let bytes: usize = model.layers.iter().flatten().chain([&model.head]).map(Matrix::bytes).sum();
    println!(
        "step of {streams} x {rows} rows at {context}: {:.2} ms, {:.0} tok/s, weights at {:.1} GB/s",
        seconds * 1e3,
        all as f64 / seconds,
        bytes as f64 / seconds / 1e9,
    );
}

fn attention(device: &Device, kind: KvKind, context: usize, rows: usize, name: &str) {
    let layout = HeadLayout { heads: 9, kv_heads: 3, head_dim: 64 };
    let blocks = context / 32;
    let shape = KvShape { kind, blocks, block_tokens: 32, kv_heads: 3, head_dim: 64 };
    let layers: Vec<_> = (0..30).map(|_| device.kv_layer(shape).expect("memory")).collect();
    let positions = (context - rows) as u32..context as u32;
    let batch = Batch {
        tokens: vec![0; rows],
        slots: positions.clone().collect(),
        positions: positions.collect(),
        shares: vec![Share {
            sequence: SequenceId(0),
            rows: 0..rows,
            table: 0..blocks,
            output: Output::Last,
        }],
        tables: (0..blocks as u32).map(BlockId).collect(),
    };
    let spec = AttentionSpec { layout, scale: 0.125, window: None, softcap: None };
    let qkv = device.from_host(&vec![0.1; rows * layout.width()], layout.width()).expect("memory");
    let mut out = device.rows(rows, layout.heads * layout.head_dim).expect("memory");
    let mut turn = 0;
    let seconds = best(|| {
        turn = (turn + 1) % layers.len();
        device.attend(&qkv, &layers[turn], &batch, &spec, &mut out).expect("no fault");
    });
    let gflops = 4.0 * (rows * context * 9 * 64) as f64 / seconds / 1e9;
    let bytes = (2 * context * 3 * 64 * kind.bytes()) as f64;
    println!(
        "{name} x {rows} rows: {:.1} us, {gflops:.1} GF/s, {:.1} GB/s",
        seconds * 1e6,
        bytes / seconds / 1e9
    );
}
