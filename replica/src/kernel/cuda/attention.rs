//! Attention: keys and values gathered block by block, then plain tensor products, sequence by sequence.

use candle_core::{D, DType, Tensor};
use replica_core::batch::{Batch, Share};

use super::elementwise::capped;
use super::{Cuda, Rows};
use crate::kernel::{AttentionSpec, HeadLayout, KvKind, KvShape, Result};

/// Keys and values, `slots × (kv_heads · head_dim)` each.
#[derive(Debug)]
pub struct KvLayer {
    shape: KvShape,
    keys: Tensor,
    values: Tensor,
}

impl Cuda {
    pub fn kv_layer(&self, shape: KvShape) -> Result<KvLayer> {
        let stored = match shape.kind {
            KvKind::F32 => DType::F32,
            KvKind::F16 => DType::F16,
        };
        let dims = (shape.blocks * shape.block_tokens, shape.kv_heads * shape.head_dim);
        let empty = || Tensor::zeros(dims, stored, &self.device);
        Ok(KvLayer { shape, keys: empty()?, values: empty()? })
    }

    pub fn write_kv(&self, qkv: &Rows, layout: HeadLayout, kv: &mut KvLayer, slots: &[u32]) -> Result<()> {
        let width = layout.kv_heads * layout.head_dim;
        let slots = self.indices(slots.iter().copied())?.unsqueeze(1)?;
        let slots = slots.broadcast_as((qkv.count(), width))?.contiguous()?;
        for (to, first_head) in [(&kv.keys, layout.heads), (&kv.values, layout.heads + layout.kv_heads)] {
            let from = qkv.tensor().narrow(1, first_head * layout.head_dim, width)?;
            to.scatter_set(&slots, &from.to_dtype(to.dtype())?.contiguous()?, 0)?;
        }
        Ok(())
    }

    pub fn attend(
        &self,
        qkv: &Rows,
        kv: &KvLayer,
        batch: &Batch,
        spec: &AttentionSpec,
        out: &mut Rows,
    ) -> Result<()> {
        let outputs = batch.shares.iter().map(|share| self.attend_share(qkv, kv, batch, share, spec));
        out.set(&Tensor::cat(&outputs.collect::<Result<Vec<_>>>()?, 0)?)
    }

    /// One sequence's rows over its context; `rows × (heads · head_dim)`.
    fn attend_share(
        &self,
        qkv: &Rows,
        kv: &KvLayer,
        batch: &Batch,
        share: &Share,
        spec: &AttentionSpec,
    ) -> Result<Tensor> {
        let HeadLayout { heads, kv_heads, head_dim } = spec.layout;
        let (group, rows) = (heads / kv_heads, share.rows.len());
        let positions = &batch.positions[share.rows.clone()];
        let context = positions[rows - 1] as usize + 1;
        let block_tokens = kv.shape.block_tokens;
        let table = &batch.tables[share.table.clone()];
        let slot = |position: usize| {
            table[position / block_tokens].0 as usize * block_tokens + position % block_tokens
        };
        let slots = self.indices((0..context).map(|position| slot(position) as u32))?;
        // kv_heads × context × head_dim
        let gathered = |from: &Tensor| -> Result<Tensor> {
            let rows = from.index_select(&slots, 0)?.to_dtype(DType::F32)?;
            Ok(rows.reshape((context, kv_heads, head_dim))?.transpose(0, 1)?.contiguous()?)
        };
        // kv_heads × (rows · group) × head_dim
        let queries = qkv.tensor().narrow(0, share.rows.start, rows)?.narrow(1, 0, heads * head_dim)?;
        let queries = queries.contiguous()?.reshape((rows, kv_heads, group, head_dim))?.transpose(0, 1)?;
        let queries = queries.contiguous()?.reshape((kv_heads, rows * group, head_dim))?;
        let keys = gathered(&kv.keys)?.transpose(1, 2)?.contiguous()?;
        let mut scores = queries.matmul(&keys)?.affine(f64::from(spec.scale), 0.0)?;
        if let Some(cap) = spec.softcap {
            scores = capped(&scores, cap)?;
        }
        let mask = self.mask(positions, context, spec.window)?;
        let scores = scores.reshape((kv_heads, rows, group, context))?.broadcast_add(&mask)?;
        let weights = softmax(&scores)?.reshape((kv_heads, rows * group, context))?;
        let sums = weights.matmul(&gathered(&kv.values)?)?.reshape((kv_heads, rows, group, head_dim))?;
        Ok(sums.transpose(0, 1)?.contiguous()?.reshape((rows, heads * head_dim))?)
    }

    /// Zero where a row sees a position, minus infinity elsewhere; `1 × rows × 1 × context`.
    fn mask(&self, positions: &[u32], context: usize, window: Option<u32>) -> Result<Tensor> {
        let sees = |row: u32, other: u32| other <= row && window.is_none_or(|window| row - other < window);
        let of_row = |&row: &u32| {
            (0..context as u32).map(move |other| if sees(row, other) { 0.0 } else { f32::NEG_INFINITY })
        };
        let mask: Vec<f32> = positions.iter().flat_map(of_row).collect();
        Ok(Tensor::from_vec(mask, (1, positions.len(), 1, context), &self.device)?)
    }
}

fn softmax(scores: &Tensor) -> Result<Tensor> {
    let weights = scores.broadcast_sub(&scores.max_keepdim(D::Minus1)?)?.exp()?;
    Ok(weights.broadcast_div(&weights.sum_keepdim(D::Minus1)?)?)
}
