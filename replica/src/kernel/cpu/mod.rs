//! The CPU: a pool of threads, an arena, and kernels written once for every instruction set.

mod activations;
mod arena;
mod buffer;
mod attention;
mod element;
mod elementwise;
mod kv;
mod matrix;
mod panel;
mod pool;
mod product_dense;
mod product_quant;
mod slots;
mod simd;


use std::sync::Arc;



pub use self::arena::Rows;
pub use self::kv::KvLayer;
pub use self::matrix::Matrix;
pub use self::simd::Isa;
use self::arena::Arena;
use self::pool::Pool;
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
    isa: Isa,
}

impl Cpu {
    pub(super) fn new(threads: usize, isa: Isa) -> Self {
        Self { shared: Arc::new(Shared { pool: Pool::new(threads), arena: Arena::default(), isa }) }
    }

    pub(super) fn describe(&self) -> String {
        let threads = self.shared.pool.threads();
        format!("cpu, {threads} thread{}, {}", if threads == 1 { "" } else { "s" }, self.shared.isa.name())
    }

    pub(super) fn each(&self, count: usize, job: impl Fn(usize) + Sync) -> Result<()> {
        self.shared.pool.each(count, 1, |range| range.for_each(&job))
    }

    pub(super) fn rows(&self, count: usize, width: usize) -> Rows {
        self.shared.arena.rows(count, width)
    }
}
