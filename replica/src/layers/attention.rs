//! Attention over the paged KV: project, norm, turn, store, attend, project back.

use super::rotary::StepAngles;
use super::{ColumnLinear, RmsNorm, RowLinear, Step, Turn};
use crate::kernel::{AttentionSpec, KvLayer, Rows};
use crate::parallel::Fault;

/// Norms on single heads of queries and keys.
#[derive(Debug)]
pub struct QkNorm {
    /// Of every query head.
    pub query: RmsNorm,
    /// Of every key head.
    pub key: RmsNorm,
}

/// One layer's attention, this rank's heads of it.
#[derive(Debug)]
pub struct Attention {
    /// Fused: this rank's queries, keys, values.
    pub qkv: ColumnLinear,
    /// Back to the residual stream.
    pub out: RowLinear,
    /// Before turning.
    pub qk_norm: Option<QkNorm>,
    /// Which table turns.
    pub turn: Turn,
    /// Heads, scale, window.
    pub spec: AttentionSpec,
}

impl Attention {
    /// What attention adds to the residual stream.
    pub fn apply(
        &self,
        step: &mut Step<'_>,
        angles: &StepAngles,
        x: &Rows,
        kv: &mut KvLayer,
    ) -> Result<Rows, Fault> {
        let (device, batch) = (step.device, step.batch);
        let layout = self.spec.layout;
        let (queries, turned) = (0..layout.heads, 0..layout.heads + layout.kv_heads);
        let mut qkv = self.qkv.apply(device, x)?;
        if let Some(norm) = &self.qk_norm {
            norm.query.apply_heads(device, &mut qkv, queries.clone())?;
            norm.key.apply_heads(device, &mut qkv, queries.end..turned.end)?;
        }
        if let Some(angles) = angles.of(self.turn) {
            device.rotate(&mut qkv, turned, layout.head_dim, angles)?;
        }
        device.write_kv(&qkv, layout, kv, &batch.slots)?;
        let mut attended = device.rows(x.count(), layout.heads * layout.head_dim)?;
        device.attend(&qkv, kv, batch, &self.spec, &mut attended)?;
        self.out.apply(step, &attended)
    }
}
