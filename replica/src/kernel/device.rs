//! One device and its verbs. Each verb is a barrier: when it returns, its output is whole (on a CUDA device:
//! ordered before whatever comes next).

use std::borrow::Cow;
use std::ops::Range;

use replica_core::batch::Batch;

use super::cpu::{self, Cpu};
use super::operand::Operand;
use super::{
    Angles, AttentionSpec, HeadLayout, Isa, KvLayer, KvShape, Matrix, Result, RopeTable, Rows, Vector,
};

/// Where arithmetic happens. Cheap to clone: clones share threads, arena and stream.
#[derive(Clone, Debug)]
pub enum Device {
    /// A bounded pool of threads on this machine.
    Cpu(Cpu),
    /// One CUDA device.
    #[cfg(any(feature = "cuda", test))]
    Cuda(super::cuda::Cuda),
}

/// Calls the same verb of whichever device this is, with each operand taken as that device's own.
macro_rules! on {
    ($device:expr, $verb:ident($($arg:expr),*)) => {
        match $device {
            Device::Cpu(device) => device.$verb($(Operand::cpu($arg)),*),
            #[cfg(any(feature = "cuda", test))]
            Device::Cuda(device) => device.$verb($(Operand::cuda($arg)),*),
        }
    };
}

impl Device {
    /// The CPU with `threads` threads, the caller among them, and the best instructions it has.
    pub fn cpu(threads: usize) -> Self {
        Self::cpu_with(threads, Isa::best())
    }

    /// The same with chosen instructions, for tests and comparisons.
    pub fn cpu_with(threads: usize, isa: Isa) -> Self {
        Self::Cpu(Cpu::new(threads, isa))
    }

    /// The `ordinal`th CUDA device that the process may see.
    #[cfg(feature = "cuda")]
    pub fn cuda(ordinal: usize) -> Result<Self> {
        Ok(Self::Cuda(super::cuda::Cuda::new(ordinal)?))
    }

    /// What computes, in words for a log line: `cpu, 2 threads, avx512`.
    pub fn describe(&self) -> String {
        match self {
            Self::Cpu(cpu) => cpu.describe(),
            #[cfg(any(feature = "cuda", test))]
            Self::Cuda(cuda) => cuda.describe(),
        }
    }

    /// Calls `job` for each of `0..count` on the threads of the host that compute here, in any order.
    pub fn each_on_host(&self, count: usize, job: impl Fn(usize) + Sync) -> Result<()> {
        match self {
            Self::Cpu(cpu) => cpu.each(count, job),
            #[cfg(any(feature = "cuda", test))]
            Self::Cuda(_) => {
                (0..count).for_each(job);
                Ok(())
            }
        }
    }

    /// Fresh rows; they hold anything.
    pub fn rows(&self, count: usize, width: usize) -> Result<Rows> {
        match self {
            Self::Cpu(cpu) => Ok(Rows::Cpu(cpu.rows(count, width)?)),
            #[cfg(any(feature = "cuda", test))]
            Self::Cuda(cuda) => Ok(Rows::Cuda(cuda.rows(count, width))),
        }
    }

    /// Rows of `width` from host memory.
    pub fn from_host(&self, values: &[f32], width: usize) -> Result<Rows> {
        let mut rows = self.rows(values.len() / width, width)?;
        self.write(&mut rows, values)?;
        Ok(rows)
    }

    /// Overwrites all of `rows`.
    pub fn write(&self, rows: &mut Rows, values: &[f32]) -> Result<()> {
        assert_eq!(rows.count() * rows.width(), values.len(), "rows are overwritten as a whole");
        match self {
            Self::Cpu(_) => Operand::cpu(rows).all_mut().copy_from_slice(values),
            #[cfg(any(feature = "cuda", test))]
            Self::Cuda(cuda) => cuda.write(Operand::cuda(rows), values)?,
        }
        Ok(())
    }

    /// All of `rows`, row by row, in host memory: borrowed where it is there already.
    pub fn to_host<'a>(&self, rows: &'a Rows) -> Result<Cow<'a, [f32]>> {
        match self {
            Self::Cpu(_) => Ok(Cow::Borrowed(Operand::cpu(rows).all())),
            #[cfg(any(feature = "cuda", test))]
            Self::Cuda(cuda) => Ok(Cow::Owned(cuda.to_host(Operand::cuda(rows))?)),
        }
    }

    /// A norm's weight or a bias.
    pub fn vector(&self, values: &[f32]) -> Result<Vector> {
        match self {
            Self::Cpu(_) => Ok(Vector::Cpu(values.to_vec())),
            #[cfg(any(feature = "cuda", test))]
            Self::Cuda(cuda) => Ok(Vector::Cuda(cuda.vector(values)?)),
        }
    }

    /// An empty store of keys and values.
    pub fn kv_layer(&self, shape: KvShape) -> Result<KvLayer> {
        assert!(shape.block_tokens.is_multiple_of(32), "a block holds a multiple of 32 tokens: {shape:?}");
        match self {
            Self::Cpu(_) => Ok(KvLayer::Cpu(cpu::KvLayer::new(shape)?)),
            #[cfg(any(feature = "cuda", test))]
            Self::Cuda(cuda) => Ok(KvLayer::Cuda(cuda.kv_layer(shape)?)),
        }
    }

    /// `out[i] = table[tokens[i]]`; tokens must be rows of the table.
    pub fn embed(&self, tokens: &[u32], table: &Matrix, out: &mut Rows) -> Result<()> {
        assert_eq!((tokens.len(), table.cols()), (out.count(), out.width()), "embed: shapes");
        on!(self, embed(tokens, table, out))
    }

    /// `y = x · wᵀ`: `x` is `m × w.cols()`, `y` is `m × w.rows()`.
    pub fn matmul(&self, x: &Rows, w: &Matrix, y: &mut Rows) -> Result<()> {
        assert_eq!((x.width(), x.count(), w.rows()), (w.cols(), y.count(), y.width()), "matmul: shapes");
        on!(self, matmul(x, w, y))
    }

    /// `x += bias` on every row.
    pub fn add_bias(&self, x: &mut Rows, bias: &Vector) -> Result<()> {
        on!(self, add_bias(x, bias))
    }

    /// `y = x / rms(x) * w`, row by row.
    pub fn rms_norm(&self, x: &Rows, w: &Vector, eps: f32, y: &mut Rows) -> Result<()> {
        assert_eq!((x.count(), x.width()), (y.count(), y.width()), "rms_norm: shapes");
        on!(self, rms_norm(x, w, eps, y))
    }

    /// `x += delta`, then `y = rms_norm(x)`: the residual stream goes on in `x`.
    pub fn add_rms_norm(&self, x: &mut Rows, delta: &Rows, w: &Vector, eps: f32, y: &mut Rows) -> Result<()> {
        assert_eq!((x.count(), x.width()), (delta.count(), delta.width()), "add_rms_norm: shapes");
        assert_eq!((x.count(), x.width()), (y.count(), y.width()), "add_rms_norm: shapes");
        on!(self, add_rms_norm(x, delta, w, eps, y))
    }

    /// Norms single heads in place: heads `which` (of `w`'s width each) of every row.
    pub fn norm_heads(&self, x: &mut Rows, which: Range<usize>, w: &Vector, eps: f32) -> Result<()> {
        on!(self, norm_heads(x, which, w, eps))
    }

    /// `x += delta`.
    pub fn add(&self, x: &mut Rows, delta: &Rows) -> Result<()> {
        assert_eq!((x.count(), x.width()), (delta.count(), delta.width()), "add: shapes");
        on!(self, add(x, delta))
    }

    /// `x *= factor`.
    pub fn scale(&self, x: &mut Rows, factor: f32) -> Result<()> {
        on!(self, scale(x, factor))
    }

    /// `x = cap * tanh(x / cap)`.
    pub fn softcap(&self, x: &mut Rows, cap: f32) -> Result<()> {
        on!(self, softcap(x, cap))
    }

    /// The angles of a step's rows, for [`Self::rotate`] in every layer.
    pub fn angles(&self, table: &RopeTable, positions: &[u32]) -> Angles {
        table.angles(positions)
    }

    /// Turns the heads `which` (of `head_dim` each) of every row in place: pair `i` is dimensions `i` and
    /// `i + angles.pairs()` of a head (Hugging Face's order), further dimensions pass.
    pub fn rotate(&self, x: &mut Rows, which: Range<usize>, head_dim: usize, angles: &Angles) -> Result<()> {
        assert_eq!(x.count(), angles.count(), "rotate: one row of angles a row");
        on!(self, rotate(x, which, head_dim, angles))
    }

    /// Stores keys and values of every row of a fused projection: row `i` goes to `slots[i]`.
    pub fn write_kv(&self, qkv: &Rows, layout: HeadLayout, kv: &mut KvLayer, slots: &[u32]) -> Result<()> {
        assert_eq!((qkv.count(), qkv.width()), (slots.len(), layout.width()), "write_kv: shapes");
        on!(self, write_kv(qkv, layout, kv, slots))
    }

    /// Every row's queries over its sequence's keys and values up to its own position, which must have been
    /// written before. `out` is `rows × (heads · head_dim)`.
    pub fn attend(
        &self,
        qkv: &Rows,
        kv: &KvLayer,
        batch: &Batch,
        spec: &AttentionSpec,
        out: &mut Rows,
    ) -> Result<()> {
        assert_eq!((qkv.count(), qkv.width()), (batch.rows(), spec.layout.width()), "attend: shapes");
        assert_eq!(
            (out.count(), out.width()),
            (batch.rows(), spec.layout.heads * spec.layout.head_dim),
            "attend: shapes"
        );
        on!(self, attend(qkv, kv, batch, spec, out))
    }

    /// `out = silu(gate) * up`, where a row of `gate_up` is the gate, then up, each of `out`'s width.
    pub fn silu_mul(&self, gate_up: &Rows, out: &mut Rows) -> Result<()> {
        assert_eq!((gate_up.count(), gate_up.width()), (out.count(), 2 * out.width()), "silu_mul: shapes");
        on!(self, silu_mul(gate_up, out))
    }

    /// The same with the tanh form of GELU.
    pub fn gelu_mul(&self, gate_up: &Rows, out: &mut Rows) -> Result<()> {
        assert_eq!((gate_up.count(), gate_up.width()), (out.count(), 2 * out.width()), "gelu_mul: shapes");
        on!(self, gelu_mul(gate_up, out))
    }

    /// `out[i] = x[which[i]]`.
    pub fn gather(&self, x: &Rows, which: &[usize], out: &mut Rows) -> Result<()> {
        assert_eq!((which.len(), x.width()), (out.count(), out.width()), "gather: shapes");
        on!(self, gather(x, which, out))
    }

    /// `out[which[i]] += weights[i] * x[i]`, in order of `i`: an expert's answers into the stream.
    pub fn scatter_add(&self, x: &Rows, which: &[usize], weights: &[f32], out: &mut Rows) -> Result<()> {
        assert_eq!(
            (which.len(), weights.len(), x.width()),
            (x.count(), x.count(), out.width()),
            "scatter_add: shapes"
        );
        on!(self, scatter_add(x, which, weights, out))
    }
}
