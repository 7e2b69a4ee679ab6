//! Tokens to rows and rows to logits, the vocabulary split over ranks.

use std::ops::Range;
use std::sync::Arc;

use super::Step;
use crate::kernel::{Matrix, Rows};
use crate::parallel::Fault;

/// This rank's rows of the table.
#[derive(Debug)]
pub struct Embedding {
    /// One row a token of `tokens`, then padding.
    pub table: Arc<Matrix>,
    /// The tokens this rank holds.
    pub tokens: Range<u32>,
    /// On every row, where the family has one.
    pub scale: Option<f32>,
}

impl Embedding {
    /// The step's tokens as rows.
    pub fn apply(&self, step: &mut Step<'_>) -> Result<Rows, Fault> {
        let (device, tokens) = (step.device, &step.batch.tokens);
        let mut rows = device.rows(tokens.len(), self.table.cols())?;
        if step.ranks.ranks() == 1 {
            device.embed(tokens, &self.table, &mut rows)?;
        } else {
            self.embed_own(step, &mut rows)?;
            step.ranks.sum(step.device, &mut rows)?;
        }
        if let Some(scale) = self.scale {
            step.device.scale(&mut rows, scale)?;
        }
        Ok(rows)
    }

    /// Rows of the tokens that this rank holds; the other rows are zero.
    fn embed_own(&self, step: &Step<'_>, rows: &mut Rows) -> Result<(), Fault> {
        let device = step.device;
        let (mut places, mut own) = (Vec::new(), Vec::new());
        for (place, token) in step.batch.tokens.iter().enumerate() {
            if self.tokens.contains(token) {
                places.push(place);
                own.push(token - self.tokens.start);
            }
        }
        device.write(rows, &vec![0.0; rows.count() * rows.width()])?;
        if !own.is_empty() {
            let mut found = device.rows(own.len(), rows.width())?;
            device.embed(&own, &self.table, &mut found)?;
            device.scatter_add(&found, &places, &vec![1.0; places.len()], rows)?;
        }
        Ok(())
    }
}

/// This rank's rows of the output head.
#[derive(Debug)]
pub struct Head {
    /// As many rows on every rank; shared with the embedding where they are tied.
    pub weight: Arc<Matrix>,
    /// tanh cap.
    pub softcap: Option<f32>,
}

impl Head {
    /// Logits of normed rows: all ranks' side by side, with padding at the end.
    pub fn apply(&self, step: &mut Step<'_>, x: &Rows) -> Result<Rows, Fault> {
        let mut logits = step.device.rows(x.count(), self.weight.rows())?;
        step.device.matmul(x, &self.weight, &mut logits)?;
        if let Some(cap) = self.softcap {
            step.device.softcap(&mut logits, cap)?;
        }
        step.ranks.gather(step.device, logits)
    }
}
