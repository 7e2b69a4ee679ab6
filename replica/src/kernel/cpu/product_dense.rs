//! Products with weights that are numbers by themselves: f32 from the first to the last input, in order.

use replica_format::facts::TensorKind;

use super::buffer::{Plain, view};
use super::element::{Element, F16, F32};
use super::panel::Layout;
use super::simd::{Isa, Kernel, LANES, Simd};

/// Two panels (or one) times rows of activations.
pub struct Product<'a> {
    pub layout: Layout,
    /// The panels, one right after the other.
    pub panels: &'a [u8],
    pub x: &'a [f32],
    /// A sum a lane for each row of the first panel, then of the second.
    pub sums: &'a mut [[f32; LANES]],
}

impl Product<'_> {
    /// Computes it.
    pub fn run(self, isa: Isa) {
        match self.layout.kind {
            TensorKind::F32 => isa.run(Typed::<F32>(self, F32)),
            TensorKind::F16 => isa.run(Typed::<F16>(self, F16)),
            TensorKind::BF16 => isa.run(Typed::<Bf16>(self, Bf16)),
            quantised => panic!("{quantised:?} is not dense"),
        }
    }
}

/// How a weight becomes f32.
trait Weight {
    type Bits: Plain;
    fn load<S: Simd>(simd: S, from: &[Self::Bits; LANES]) -> S::F;
}

impl<E: Element> Weight for E {
    type Bits = E::Bits;
    #[inline(always)]
    fn load<S: Simd>(simd: S, from: &[E::Bits; LANES]) -> S::F {
        E::load(simd, from)
    }
}

/// The upper half of an f32: the kind of many checkpoints; only ever read.
struct Bf16;

impl Weight for Bf16 {
    type Bits = u16;
    #[inline(always)]
    fn load<S: Simd>(simd: S, from: &[u16; LANES]) -> S::F {
        simd.load_bf16(from)
    }
}

/// A product whose kind of weights the compiler knows.
struct Typed<'a, E>(Product<'a>, E);

impl<E: Weight> Kernel for Typed<'_, E> {
    #[inline(always)]
    fn run<S: Simd>(self, simd: S) {
        let Product { layout, panels, x, sums } = self.0;
        let cols = layout.cols;
        let stride = layout.stride();
        let panel = |index: usize| {
            let bytes = &panels[index * stride..][..layout.sections()[2]];
            view::<E::Bits>(bytes).as_chunks::<LANES>().0
        };
        if panels.len() == stride {
            return all_rows::<S, E, 1>(simd, [panel(0)], x, cols, sums);
        }
        assert_eq!(panels.len(), 2 * stride, "one panel or two");
        // With few registers, two panels at once leave room for few rows.
        if S::TILE >= 12 || sums.len() <= 4 {
            return all_rows::<S, E, 2>(simd, [panel(0), panel(1)], x, cols, sums);
        }
        let (first, second) = sums.split_at_mut(sums.len() / 2);
        all_rows::<S, E, 1>(simd, [panel(0)], x, cols, first);
        all_rows::<S, E, 1>(simd, [panel(1)], x, cols, second);
    }
}

/// All rows, as many at a time as registers hold; how many changes no row's arithmetic.
#[inline(always)]
fn all_rows<S: Simd, E: Weight, const PANELS: usize>(
    simd: S,
    panels: [&[[E::Bits; LANES]]; PANELS],
    x: &[f32],
    cols: usize,
    sums: &mut [[f32; LANES]],
) {
    let rows = sums.len() / PANELS;
    let mut done = 0;
    while done < rows {
        done += match rows - done {
            12.. if S::TILE >= 12 => tile::<S, E, PANELS, 12>(simd, panels, x, cols, sums, done),
            6.. if S::TILE >= 6 => tile::<S, E, PANELS, 6>(simd, panels, x, cols, sums, done),
            4.. if S::TILE >= 6 => tile::<S, E, PANELS, 4>(simd, panels, x, cols, sums, done),
            2.. => tile::<S, E, PANELS, 2>(simd, panels, x, cols, sums, done),
            _ => tile::<S, E, PANELS, 1>(simd, panels, x, cols, sums, done),
        };
    }
}

/// `ROWS` rows from `first` on; returns how many.
#[inline(always)]
fn tile<S: Simd, E: Weight, const PANELS: usize, const ROWS: usize>(
    simd: S,
    panels: [&[[E::Bits; LANES]]; PANELS],
    x: &[f32],
    cols: usize,
    sums: &mut [[f32; LANES]],
    first: usize,
) -> usize {
    let panels = panels.map(|panel| &panel[..cols]);
    let rows: [&[f32]; ROWS] = std::array::from_fn(|row| &x[(first + row) * cols..][..cols]);
    // Indices instead of iterators keep the sums in registers.
    let mut totals = [[simd.splat(0.0); PANELS]; ROWS];
    for col in 0..cols {
        let mut weights = [simd.splat(0.0); PANELS];
        for panel in 0..PANELS {
            weights[panel] = E::load(simd, &panels[panel][col]);
        }
        for row in 0..ROWS {
            let x = simd.splat(rows[row][col]);
            for panel in 0..PANELS {
                totals[row][panel] = simd.fma(weights[panel], x, totals[row][panel]);
            }
        }
    }
    let all = sums.len() / PANELS;
    for row in 0..ROWS {
        for panel in 0..PANELS {
            simd.store(totals[row][panel], &mut sums[panel * all + first + row]);
        }
    }
    ROWS
}
