//! The pre-norm decoder that every family is a variation of.

use std::sync::Arc;

use replica_core::batch::{Batch, Output as Wanted, Share};
use replica_format::facts::{Rope, RopeScaling};

use super::blueprint::LayerPlan;
use super::{Blueprint, LoadError, Loader, Model, Output};
use crate::kernel::{AttentionSpec, Device, HeadLayout, KvLayer, RopeTable, Rows};
use crate::layers::{
    Attention, ColumnLinear, Embedding, Expert, Experts, Head, Mlp, QkNorm, RmsNorm, Rotary, RowLinear, Step,
};
use crate::parallel::{Collective, Fault};

/// One rank's share of a decoder.
#[derive(Debug)]
pub struct Decoder {
    device: Device,
    vocab: usize,
    embedding: Embedding,
    rotary: Rotary,
    layers: Vec<Layer>,
    norm: RmsNorm,
    head: Head,
}

#[derive(Debug)]
struct Layer {
    attention_norm: RmsNorm,
    attention: Attention,
    attention_out_norm: Option<RmsNorm>,
    mlp_norm: RmsNorm,
    feed: Feed,
    mlp_out_norm: Option<RmsNorm>,
}

/// What follows attention.
#[derive(Debug)]
enum Feed {
    Dense(Mlp),
    Experts(Experts),
}

impl Feed {
    fn apply(&self, step: &mut Step<'_>, x: &Rows) -> Result<Rows, Fault> {
        match self {
            Self::Dense(mlp) => mlp.apply(step, x),
            Self::Experts(experts) => experts.apply(step, x),
        }
    }
}

impl Decoder {
    /// Reads this rank's share. `context_tokens` is the longest sequence there will be.
    ///
    /// # Errors
    ///
    /// Names the tensor at fault.
    pub fn load(loader: &Loader<'_>, plan: &Blueprint, context_tokens: u32) -> Result<Self, LoadError> {
        let facts = loader.facts();
        let vocab = facts.vocab_size as usize;
        let (tokens, table_rows) = loader.split.vocabulary(vocab);
        let held = tokens.start as u32..tokens.end as u32;
        let table = loader.table("model.embed_tokens.weight", tokens.clone(), table_rows)?;
        let head = if facts.tied_embeddings {
            Arc::clone(&table)
        } else {
            loader.table("lm_head.weight", tokens, table_rows)?
        };
        let layers = plan.layers.iter().enumerate();
        let table_of = |rope: &Rope| RopeTable::new(rope, rope.theta, context_tokens);
        let unstretched = |theta| Rope { theta, scaling: RopeScaling::None, ..facts.rope.clone() };
        Ok(Self {
            device: loader.device.clone(),
            vocab,
            embedding: Embedding { table, tokens: held, scale: plan.embedding_scale },
            rotary: Rotary {
                global: table_of(&facts.rope),
                local: facts.rope.local_theta.map(unstretched).as_ref().map(table_of),
            },
            layers: layers
                .map(|(index, layer)| Layer::load(loader, plan, *layer, index))
                .collect::<Result<_, _>>()?,
            norm: loader.norm("model.norm.weight")?,
            head: Head { weight: head, softcap: facts.logit_softcap },
        })
    }

    /// The rows that give something, by kind, from the residual stream.
    fn output(&self, step: &mut Step<'_>, x: &Rows) -> Result<Output, Fault> {
        let rows_of = |hidden: bool| -> Vec<usize> {
            let shares = step.batch.shares.iter().filter(|share| (share.output == Wanted::Hidden) == hidden);
            shares.flat_map(Share::output_rows).collect()
        };
        let (sampled, hidden) = (rows_of(false), rows_of(true));
        let logits = match self.normed(x, &sampled)? {
            Some(rows) => Some(self.head.apply(step, &rows)?),
            None => None,
        };
        let hidden = self.normed(x, &hidden)?;
        Ok(Output { device: self.device.clone(), vocab: self.vocab, logits, hidden })
    }

    fn normed(&self, x: &Rows, which: &[usize]) -> Result<Option<Rows>, Fault> {
        if which.is_empty() {
            return Ok(None);
        }
        let mut rows = self.device.rows(which.len(), x.width())?;
        self.device.gather(x, which, &mut rows)?;
        Ok(Some(self.norm.apply(&self.device, &rows)?))
    }
}

impl Model for Decoder {
    fn forward(
        &mut self,
        batch: &Batch,
        kv: &mut [KvLayer],
        ranks: &mut dyn Collective,
    ) -> Result<Output, Fault> {
        let device = self.device.clone();
        let mut step = Step { device: &device, ranks, batch };
        let angles = self.rotary.angles(&device, &batch.positions);
        let mut x = self.embedding.apply(&mut step)?;
        let mut delta: Option<Rows> = None;
        for (layer, kv) in self.layers.iter().zip(kv) {
            let normed = match &delta {
                None => layer.attention_norm.apply(&device, &x)?,
                Some(delta) => layer.attention_norm.apply_after(&device, &mut x, delta)?,
            };
            let attended = layer.attention.apply(&mut step, &angles, &normed, kv)?;
            let attended = maybe_normed(&device, layer.attention_out_norm.as_ref(), attended)?;
            let normed = layer.mlp_norm.apply_after(&device, &mut x, &attended)?;
            let fed = layer.feed.apply(&mut step, &normed)?;
            delta = Some(maybe_normed(&device, layer.mlp_out_norm.as_ref(), fed)?);
        }
        if let Some(delta) = &delta {
            device.add(&mut x, delta)?;
        }
        self.output(&mut step, &x)
    }
}

fn maybe_normed(device: &Device, norm: Option<&RmsNorm>, rows: Rows) -> Result<Rows, Fault> {
    Ok(match norm {
        Some(norm) => norm.apply(device, &rows)?,
        None => rows,
    })
}

impl Layer {
    fn load(
        loader: &Loader<'_>,
        plan: &Blueprint,
        layer: LayerPlan,
        index: usize,
    ) -> Result<Self, LoadError> {
        let name = |part: &str| format!("model.layers.{index}.{part}");
        let norm = |part: &str| loader.norm(&name(&format!("{part}.weight")));
        // Hugging Face's names: with norms on outputs, the one before the MLP has a name of its own.
        let out_norm = |part: &str| if plan.out_norms { norm(part).map(Some) } else { Ok(None) };
        let before_mlp =
            if plan.out_norms { "pre_feedforward_layernorm" } else { "post_attention_layernorm" };
        Ok(Self {
            attention_norm: norm("input_layernorm")?,
            attention: load_attention(loader, plan, layer, &name("self_attn"))?,
            attention_out_norm: out_norm("post_attention_layernorm")?,
            mlp_norm: norm(before_mlp)?,
            feed: load_feed(loader, plan, &name("mlp"))?,
            mlp_out_norm: out_norm("post_feedforward_layernorm")?,
        })
    }
}

fn load_attention(
    loader: &Loader<'_>,
    plan: &Blueprint,
    layer: LayerPlan,
    name: &str,
) -> Result<Attention, LoadError> {
    let facts = loader.facts();
    let head_dim = facts.head_dim as usize;
    let (heads, kv_heads) = (loader.split.heads(facts), loader.split.kv_heads(facts));
    let layout = HeadLayout { heads: heads.len(), kv_heads: kv_heads.len(), head_dim };
    let queries = heads.start * head_dim..heads.end * head_dim;
    let keys = kv_heads.start * head_dim..kv_heads.end * head_dim;
    let qkv = [
        (format!("{name}.q_proj"), queries.clone()),
        (format!("{name}.k_proj"), keys.clone()),
        (format!("{name}.v_proj"), keys),
    ];
    let qk_norm = if plan.qk_norm {
        let norm = |part: &str| loader.norm(&format!("{name}.{part}.weight"));
        Some(QkNorm { query: norm("q_norm")?, key: norm("k_norm")? })
    } else {
        None
    };
    Ok(Attention {
        qkv: loader.columns(&qkv)?,
        out: loader.rows(&format!("{name}.o_proj"), queries)?,
        qk_norm,
        turn: layer.turn,
        spec: AttentionSpec {
            layout,
            scale: plan.attention_scale,
            window: layer.window,
            softcap: facts.attention_softcap,
        },
    })
}

fn load_feed(loader: &Loader<'_>, plan: &Blueprint, name: &str) -> Result<Feed, LoadError> {
    let router = format!("{name}.gate");
    match loader.facts().experts {
        Some(experts) if loader.checkpoint.has(&format!("{router}.weight")) => {
            let count = experts.count as usize;
            let load = |index| load_expert(loader, &format!("{name}.experts.{index}"));
            Ok(Feed::Experts(Experts {
                router: loader.columns(&[(router, 0..count)])?,
                experts: (0..count).map(load).collect::<Result<_, _>>()?,
                active: experts.active as usize,
                normalised: experts.normalised,
                activation: plan.activation,
            }))
        }
        _ => {
            let (gate_up, down) = load_gated(loader, name)?;
            Ok(Feed::Dense(Mlp { gate_up, down, activation: plan.activation }))
        }
    }
}

fn load_expert(loader: &Loader<'_>, name: &str) -> Result<Expert, LoadError> {
    let (gate_up, down) = load_gated(loader, name)?;
    Ok(Expert { gate_up, down: down.weight })
}

fn load_gated(loader: &Loader<'_>, name: &str) -> Result<(ColumnLinear, RowLinear), LoadError> {
    let down = format!("{name}.down_proj");
    let unit = loader.unit(&format!("{down}.weight"))?;
    let inner = loader.split.width(loader.facts().intermediate_size as usize, unit);
    let gate_up = [(format!("{name}.gate_proj"), inner.clone()), (format!("{name}.up_proj"), inner.clone())];
    Ok((loader.columns(&gate_up)?, loader.rows(&down, inner)?))
}
