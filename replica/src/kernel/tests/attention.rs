use proptest::prelude::*;
use replica_core::batch::{Batch, BlockId, Output, Share};
use shared::id::SequenceId;

use super::{Numbers, bits, devices};
use crate::kernel::{AttentionSpec, Device, HeadLayout, Isa, KvKind, KvShape};

/// A sequence of a test: all its fused rows, and where its blocks lie.
struct Sequence {
    rows: Vec<f32>,
    table: Vec<u32>,
}

#[derive(Clone, Copy, Debug)]
struct Case {
    spec: AttentionSpec,
    kind: KvKind,
    block_tokens: usize,
    blocks: usize,
}

impl Case {
    fn shape(self) -> KvShape {
        KvShape {
            kind: self.kind,
            blocks: self.blocks,
            block_tokens: self.block_tokens,
            kv_heads: self.spec.layout.kv_heads,
            head_dim: self.spec.layout.head_dim,
        }
    }

    fn sequence(self, numbers: &mut Numbers, len: usize, first_block: u32) -> Sequence {
        let table = (0..len.div_ceil(self.block_tokens) as u32).rev().map(|block| first_block + block);
        Sequence { rows: numbers.floats(len * self.spec.layout.width()), table: table.collect() }
    }

    /// Runs steps, each a list of (sequence, its next rows); returns outputs by sequence.
    fn run(self, device: &Device, sequences: &[Sequence], steps: &[Vec<(usize, usize)>]) -> Vec<Vec<f32>> {
        let mut kv = device.kv_layer(self.shape()).unwrap();
        let mut done = vec![0; sequences.len()];
        let mut outputs = vec![Vec::new(); sequences.len()];
        let (width, out_width) =
            (self.spec.layout.width(), self.spec.layout.heads * self.spec.layout.head_dim);
        for step in steps {
            let mut batch = Batch::default();
            let mut rows = Vec::new();
            for &(which, count) in step {
                let sequence = &sequences[which];
                let (first_row, first_block) = (batch.positions.len(), batch.tables.len());
                for position in done[which]..done[which] + count {
                    let block = sequence.table[position / self.block_tokens] as usize;
                    batch.positions.push(position as u32);
                    batch.tokens.push(0);
                    batch.slots.push((block * self.block_tokens + position % self.block_tokens) as u32);
                }
                rows.extend_from_slice(&sequence.rows[done[which] * width..(done[which] + count) * width]);
                batch.tables.extend(sequence.table.iter().copied().map(BlockId));
                batch.shares.push(Share {
                    sequence: SequenceId(which as u64),
                    rows: first_row..first_row + count,
                    table: first_block..batch.tables.len(),
                    output: Output::Last,
                });
                done[which] += count;
            }
            let qkv = device.from_host(&rows, width).unwrap();
            device.write_kv(&qkv, self.spec.layout, &mut kv, &batch.slots).unwrap();
            let mut out = device.rows(batch.rows(), out_width).unwrap();
            device.attend(&qkv, &kv, &batch, &self.spec, &mut out).unwrap();
            let out = device.to_host(&out).unwrap();
            for (&(which, _), share) in step.iter().zip(&batch.shares) {
                outputs[which]
                    .extend_from_slice(&out[share.rows.start * out_width..share.rows.end * out_width]);
            }
        }
        outputs
    }

    fn reference(self, sequence: &Sequence) -> Vec<f64> {
        let HeadLayout { heads, kv_heads, head_dim } = self.spec.layout;
        let width = self.spec.layout.width();
        let kept = |value: f32| match self.kind {
            KvKind::F32 => f64::from(value),
            KvKind::F16 => half::f16::from_f32(value).to_f64(),
        };
        let mut out = Vec::new();
        for position in 0..sequence.rows.len() / width {
            for head in 0..heads {
                let vector = |position: usize, head: usize| {
                    &sequence.rows[position * width + head * head_dim..][..head_dim]
                };
                let kv_head = head / (heads / kv_heads);
                let first =
                    self.spec.window.map_or(0, |window| (position + 1).saturating_sub(window as usize));
                let scores: Vec<f64> = (first..=position)
                    .map(|other| {
                        let key = vector(other, heads + kv_head);
                        let dot: f64 = vector(position, head)
                            .iter()
                            .zip(key)
                            .map(|(&q, &k)| f64::from(q) * kept(k))
                            .sum();
                        let score = dot * f64::from(self.spec.scale);
                        self.spec
                            .softcap
                            .map_or(score, |cap| f64::from(cap) * (score / f64::from(cap)).tanh())
                    })
                    .collect();
                let largest = scores.iter().copied().fold(f64::MIN, f64::max);
                let total: f64 = scores.iter().map(|score| (score - largest).exp()).sum();
                out.extend((0..head_dim).map(|dim| {
                    let value = |at: usize| kept(vector(first + at, heads + kv_heads + kv_head)[dim]);
                    scores
                        .iter()
                        .enumerate()
                        .map(|(at, score)| (score - largest).exp() / total * value(at))
                        .sum::<f64>()
                }));
            }
        }
        out
    }
}

fn case(heads: usize, kv_heads: usize, head_dim: usize) -> Case {
    let spec = AttentionSpec {
        layout: HeadLayout { heads, kv_heads, head_dim },
        scale: 3.0 / (head_dim as f32).sqrt(),
        window: None,
        softcap: None,
    };
    Case { spec, kind: KvKind::F32, block_tokens: 32, blocks: 20 }
}

fn check(case: Case, len: usize) {
    for device in devices() {
        let sequence = case.sequence(&mut Numbers::new(7), len, 2);
        let wanted = case.reference(&sequence);
        let outputs = case.run(&device, &[sequence], &[vec![(0, len)]]);
        assert_eq!(outputs[0].len(), wanted.len());
        for (at, (value, wanted)) in outputs[0].iter().zip(&wanted).enumerate() {
            let error = (f64::from(*value) - wanted).abs();
            assert!(error < 3e-6, "{case:?} on {}: {value}, not {wanted}, at {at}", device.describe());
        }
    }
}

#[test]
fn attention_agrees_with_f64_for_all_shapes_of_heads() {
    check(case(9, 3, 64), 100);
    check(case(4, 4, 8), 40);
    check(case(4, 1, 24), 70);
    check(case(40, 2, 16), 33);
    check(case(2, 1, 256), 65);
    check(case(1, 1, 80), 1);
}

#[test]
fn windows_softcap_half_precision_and_larger_blocks_agree_with_f64() {
    let plain = case(6, 2, 32);
    for window in [1, 5, 32, 33, 64, 500] {
        check(Case { spec: AttentionSpec { window: Some(window), ..plain.spec }, ..plain }, 130);
    }
    check(Case { spec: AttentionSpec { softcap: Some(2.0), ..plain.spec }, ..plain }, 70);
    check(Case { kind: KvKind::F16, ..plain }, 100);
    check(Case { block_tokens: 64, ..plain }, 200);
}

#[test]
fn what_a_block_held_before_is_never_seen() {
    let case = case(3, 1, 32);
    let device = Device::cpu(2);
    let mut numbers = Numbers::new(8);
    let good = case.sequence(&mut numbers, 40, 0);
    let alone = case.run(&device, &[good], &[vec![(0, 40)]]);
    let mut numbers = Numbers::new(8);
    let good = case.sequence(&mut numbers, 40, 0);
    let mut bad = case.sequence(&mut numbers, 64, 0);
    bad.rows.fill(f32::NAN);
    let after = case.run(&device, &[bad, good], &[vec![(0, 64)], vec![(1, 40)]]);
    assert!(after[0].iter().all(|value| value.is_nan()));
    assert_eq!(bits(&after[1]), bits(&alone[0]));
}

#[test]
fn long_contexts_are_the_same_bits_at_once_and_token_by_token_by_any_number_of_threads() {
    let len = 1100;
    for window in [None, Some(700)] {
        let plain = case(3, 1, 32);
        let spec = AttentionSpec { window, ..plain.spec };
        let case = Case { spec, blocks: 40, ..plain };
        let run = |threads: usize, steps: &[Vec<(usize, usize)>]| {
            let sequence = case.sequence(&mut Numbers::new(9), len, 0);
            case.run(&Device::cpu(threads), &[sequence], steps).remove(0)
        };
        let whole = run(1, &[vec![(0, len)]]);
        for threads in [1, 2, 4] {
            let mut steps = vec![vec![(0, 510)]];
            steps.extend((0..10).map(|_| vec![(0, 1)]));
            steps.push(vec![(0, 575)]);
            steps.extend((0..5).map(|_| vec![(0, 1)]));
            assert_eq!(bits(&run(threads, &steps)), bits(&whole), "{threads} threads, window {window:?}");
        }
    }
    check(Case { blocks: 40, ..case(3, 1, 32) }, 600);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]

    #[test]
    fn a_row_is_the_same_bits_in_any_chunks_among_any_others_in_any_blocks(
        isa in prop::sample::select(Isa::all()),
        kind in prop::sample::select(&[KvKind::F32, KvKind::F16][..]),
        (heads, kv_heads) in prop::sample::select(&[(9, 3), (4, 4), (8, 1)][..]),
        window in prop::option::of(1u32..90),
        threads in 1usize..5,
        len in 1usize..150,
        chunk in 1usize..60,
        seed: u64,
    ) {
        let plain = case(heads, kv_heads, 32);
        let case = Case { kind, spec: AttentionSpec { window, ..plain.spec }, ..plain };
        let whole = case.sequence(&mut Numbers::new(seed), len, 0);
        let whole = case.run(&Device::cpu_with(1, isa), &[whole], &[vec![(0, len)]]);
        let sequences = [
            case.sequence(&mut Numbers::new(seed), len, 7),
            case.sequence(&mut Numbers::new(seed ^ 1), 150, 13),
        ];
        let mut steps = Vec::new();
        let (mut done, mut other) = (0, 0);
        while done < len {
            let count = chunk.min(len - done);
            let mut step = vec![(0, count)];
            if other < 150 {
                let count = (1 + (seed as usize + done) % 11).min(150 - other);
                step.insert(done % 2, (1, count));
                other += count;
            }
            done += count;
            steps.push(step);
        }
        let pieces = case.run(&Device::cpu_with(threads, isa), &sequences, &steps);
        prop_assert_eq!(bits(&pieces[0]), bits(&whole[0]));
    }
}
