//! Keys and values of one layer in host memory.
//!
//! Keys of a block lie dimension by dimension, so that scores of neighbouring tokens are neighbouring lanes;
//! values lie token by token, padded to whole vectors.

use super::buffer::{Buffer, Plain};
use super::element::{Element, F16, F32};
use super::simd::{Kernel, LANES, Simd};
use super::slots::Slots;
use super::{Cpu, Rows};
use crate::kernel::{Error, HeadLayout, KvKind, KvShape, Result};

/// Keys and values, in blocks.
#[derive(Debug)]
pub struct KvLayer {
    shape: KvShape,
    store: Store,
}

/// The numbers, as they are kept.
#[derive(Debug)]
pub enum Store {
    F32(Pair<f32>),
    F16(Pair<u16>),
}

/// Keys, `block × head × dimension × token`, and values, `block × head × token × padded dimension`.
#[derive(Debug)]
pub struct Pair<T: Plain> {
    pub keys: Buffer<T>,
    pub values: Buffer<T>,
}

impl KvLayer {
    pub fn new(shape: KvShape) -> Result<Self> {
        let store = match shape.kind {
            KvKind::F32 => Store::F32(pair(shape)?),
            KvKind::F16 => Store::F16(pair(shape)?),
        };
        Ok(Self { shape, store })
    }

    pub fn shape(&self) -> KvShape {
        self.shape
    }

    pub fn store(&self) -> &Store {
        &self.store
    }
}

/// Elements from one token's value to the next.
pub fn padded_dim(shape: KvShape) -> usize {
    shape.head_dim.next_multiple_of(LANES)
}

fn pair<T: Plain>(shape: KvShape) -> Result<Pair<T>> {
    let heads = shape.blocks * shape.kv_heads;
    let store = |per_token: usize| {
        Buffer::zeroed(heads * shape.block_tokens * per_token)
            .map_err(|bytes| Error::Device(format!("no memory for {bytes} bytes of keys and values")))
    };
    Ok(Pair { keys: store(shape.head_dim)?, values: store(padded_dim(shape))? })
}

impl Cpu {
    pub fn write_kv(&self, qkv: &Rows, layout: HeadLayout, kv: &mut KvLayer, slots: &[u32]) -> Result<()> {
        assert_eq!(
            (layout.kv_heads, layout.head_dim),
            (kv.shape.kv_heads, kv.shape.head_dim),
            "write_kv: heads"
        );
        let shape = kv.shape;
        match &mut kv.store {
            Store::F32(pair) => self.write_pair::<F32>(qkv, layout, shape, pair, slots),
            Store::F16(pair) => self.write_pair::<F16>(qkv, layout, shape, pair, slots),
        }
    }

    fn write_pair<E: Element>(
        &self,
        qkv: &Rows,
        layout: HeadLayout,
        shape: KvShape,
        pair: &mut Pair<E::Bits>,
        slots: &[u32],
    ) -> Result<()> {
        let isa = self.shared.isa;
        let (keys, values) = (Slots::of(&mut pair.keys, 1), Slots::of(&mut pair.values, padded_dim(shape)));
        let dim = shape.head_dim;
        self.shared.pool.each(slots.len(), Self::grain(2 * layout.kv_heads * dim), |part| {
            for index in part {
                let (block, offset) =
                    (slots[index] as usize / shape.block_tokens, slots[index] as usize % shape.block_tokens);
                let heads = &qkv.row(index)[layout.heads * dim..];
                let (new_keys, new_values) = heads.split_at(layout.kv_heads * dim);
                for head in 0..layout.kv_heads {
                    let of_head = head * dim..(head + 1) * dim;
                    let first = (block * shape.kv_heads + head) * shape.block_tokens;
                    isa.run(WriteKey::<E> {
                        from: &new_keys[of_head.clone()],
                        to: keys,
                        first: first * dim + offset,
                        stride: shape.block_tokens,
                    });
                    isa.run(WriteValue::<E> { from: &new_values[of_head], to: values.slot(first + offset) });
                }
            }
        })
    }
}

/// One key to every `stride`th place.
struct WriteKey<'a, E: Element> {
    from: &'a [f32],
    to: Slots<'a, E::Bits>,
    first: usize,
    stride: usize,
}

impl<E: Element> Kernel for WriteKey<'_, E> {
    #[inline(always)]
    fn run<S: Simd>(self, simd: S) {
        for (chunk, from) in self.from.chunks(LANES).enumerate() {
            let stored = stored::<S, E>(simd, from);
            for (lane, bits) in stored[..from.len()].iter().enumerate() {
                self.to.slot(self.first + (chunk * LANES + lane) * self.stride)[0] = *bits;
            }
        }
    }
}

/// One value to its place.
struct WriteValue<'a, E: Element> {
    from: &'a [f32],
    to: &'a mut [E::Bits],
}

impl<E: Element> Kernel for WriteValue<'_, E> {
    #[inline(always)]
    fn run<S: Simd>(self, simd: S) {
        for (from, to) in self.from.chunks(LANES).zip(self.to.chunks_exact_mut(LANES)) {
            to.copy_from_slice(&stored::<S, E>(simd, from));
        }
    }
}

/// Up to 16 numbers as they are kept, zeros after.
#[inline(always)]
fn stored<S: Simd, E: Element>(simd: S, from: &[f32]) -> [E::Bits; LANES] {
    let mut lanes = [0.0; LANES];
    lanes[..from.len()].copy_from_slice(from);
    let mut bits = [E::Bits::default(); LANES];
    E::store(simd, simd.load(&lanes), &mut bits);
    bits
}
