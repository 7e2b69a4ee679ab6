//! The CPU: a pool of threads, an arena, and kernels written once for every instruction set.

#![expect(clippy::inline_always, reason = "only what is inlined is compiled for the instruction set")]

mod activations;
mod arena;
mod attention;
mod buffer;
mod element;
mod elementwise;
mod kv;
mod mapping;
mod matrix;
mod panel;
mod pool;
mod product_dense;
mod product_quant;
mod simd;
mod slots;

use std::sync::Arc;

use self::arena::Arena;
pub use self::arena::Rows;
pub use self::kv::KvLayer;
use self::mapping::Sheets;
pub use self::matrix::Matrix;
use self::pool::Pool;
pub use self::simd::Isa;
use super::Result;

/// Threads, arena and instructions. Clones share them; verbs of clones on several threads take turns.
#[derive(Clone, Debug)]
pub struct Cpu {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    pool: Pool,
    arena: Arena,
    sheets: Sheets,
    isa: Isa,
}

impl Cpu {
    pub(super) fn new(threads: usize, isa: Isa) -> Self {
        let (pool, arena, sheets) = (Pool::new(threads), Arena::default(), Sheets::default());
        Self { shared: Arc::new(Shared { pool, arena, sheets, isa }) }
    }

    pub(super) fn describe(&self) -> String {
        let threads = self.shared.pool.threads();
        format!("cpu, {threads} thread{}, {}", if threads == 1 { "" } else { "s" }, self.shared.isa.name())
    }

    pub(super) fn each(&self, count: usize, job: impl Fn(usize) + Sync) -> Result<()> {
        self.shared.pool.each(count, 1, |range| range.for_each(&job))
    }

    pub(super) fn rows(&self, count: usize, width: usize) -> Result<Rows> {
        self.shared.arena.rows(count, width)
    }
}
