//! Arguments of a device's verbs, taken as that device's own.

use std::ops::Range;

use replica_core::batch::Batch;

use super::{Angles, AttentionSpec, HeadLayout, KvLayer, Matrix, Rows, Vector, cpu};

/// An argument of a verb. Handing a device another's operand is a bug of ours.
pub trait Operand {
    /// What the CPU takes.
    type Cpu;
    /// Itself, for the CPU.
    fn cpu(self) -> Self::Cpu;
    /// What a CUDA device takes.
    #[cfg(any(feature = "cuda", test))]
    type Cuda;
    /// Itself, for a CUDA device.
    #[cfg(any(feature = "cuda", test))]
    fn cuda(self) -> Self::Cuda;
}

/// Things that live on a device, by reference.
macro_rules! held {
    ($([$($mutable:tt)?] $held:ident, $cpu:ty, $cuda:ty;)*) => {$(
        impl<'a> Operand for &'a $($mutable)? $held {
            type Cpu = &'a $($mutable)? $cpu;
            fn cpu(self) -> Self::Cpu {
                match self {
                    $held::Cpu(own) => own,
                    #[cfg(any(feature = "cuda", test))]
                    $held::Cuda(_) => panic!("an operand of a CUDA device is used on CPU"),
                }
            }
            #[cfg(any(feature = "cuda", test))]
            type Cuda = &'a $($mutable)? $cuda;
            #[cfg(any(feature = "cuda", test))]
            fn cuda(self) -> Self::Cuda {
                match self {
                    $held::Cuda(own) => own,
                    $held::Cpu(_) => panic!("an operand on CPU is used on a CUDA device"),
                }
            }
        }
    )*};
}

held! {
    [] Rows, cpu::Rows, super::cuda::Rows;
    [mut] Rows, cpu::Rows, super::cuda::Rows;
    [] Matrix, cpu::Matrix, super::cuda::Matrix;
    [] Vector, Vec<f32>, super::cuda::Vector;
    [] KvLayer, cpu::KvLayer, super::cuda::KvLayer;
    [mut] KvLayer, cpu::KvLayer, super::cuda::KvLayer;
}

/// Things of the host, the same for every device.
macro_rules! plain {
    ($($plain:ty),* $(,)?) => {$(
        impl Operand for $plain {
            type Cpu = Self;
            fn cpu(self) -> Self {
                self
            }
            #[cfg(any(feature = "cuda", test))]
            type Cuda = Self;
            #[cfg(any(feature = "cuda", test))]
            fn cuda(self) -> Self {
                self
            }
        }
    )*};
}

plain! { f32, usize, Range<usize>, &[f32], &[u32], &[usize], HeadLayout, &Angles, &AttentionSpec, &Batch }
