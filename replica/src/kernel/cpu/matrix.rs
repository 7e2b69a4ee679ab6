//! Weights in panels, and the product with them.

use std::cell::RefCell;
use std::ops::Range;

use super::activations::{Activations, BLOCK, Quantize};
use super::buffer::Buffer;
use super::panel::Layout;
use super::product_quant::ROWS_MAX;
use super::simd::{Isa, LANES};
use super::slots::{RowsMut, Slots};
use super::{Cpu, Rows, product_dense, product_quant};
use crate::kernel::{Error, Part, Result};

/// Dense panels that one product takes.
const TOGETHER: usize = 2;
/// Multiplications below which a product is not worth waking others for.
const ALONE: usize = 32 * 1024;

/// Weights in host memory.
#[derive(Debug)]
pub struct Matrix {
    rows: usize,
    cols: usize,
    stacks: Vec<Stack>,
}

/// The panels of one part.
#[derive(Debug)]
struct Stack {
    layout: Layout,
    /// Outputs before this part's.
    first_row: usize,
    rows: usize,
    data: Buffer<u8>,
}

impl Stack {
    fn panels(&self) -> usize {
        self.rows.div_ceil(LANES)
    }

    /// Panels, or pairs of them, that are multiplied at a time.
    fn units(&self) -> usize {
        if self.layout.quantised() { self.panels() } else { self.panels().div_ceil(TOGETHER) }
    }

    fn panel(&self, index: usize) -> &[u8] {
        &self.data[index * self.layout.stride()..][..self.layout.stride()]
    }
}

impl Matrix {
    pub fn pack(cpu: &Cpu, parts: &[Part<'_>], cols: usize) -> Result<Self> {
        let mut stacks = Vec::with_capacity(parts.len());
        let mut rows = 0;
        for part in parts {
            let layout = Layout { kind: part.kind, cols };
            let stride = layout.stride();
            let mut data = cpu
                .shared
                .sheets
                .cut(part.rows.div_ceil(LANES) * stride)
                .map_err(|bytes| Error::Device(format!("no memory for {bytes} bytes of weights")))?;
            let panels = Slots::of(&mut data, stride);
            cpu.shared.pool.each(part.rows.div_ceil(LANES), 1, |indices| {
                for index in indices {
                    let panel = panels.slot(index);
                    for lane in 0..LANES.min(part.rows - index * LANES) {
                        layout.pack_row(&(part.row)(index * LANES + lane), lane, panel);
                    }
                }
            })?;
            stacks.push(Stack { layout, first_row: rows, rows: part.rows, data });
            rows += part.rows;
        }
        Ok(Self { rows, cols, stacks })
    }

    pub fn rows(&self) -> usize {
        self.rows
    }

    pub fn cols(&self) -> usize {
        self.cols
    }

    pub fn bytes(&self) -> usize {
        self.stacks.iter().map(|stack| stack.data.len()).sum()
    }

    /// The first units of a range that belong to one stack and one group of rows: stack, group, units of the
    /// stack. Units count through the stacks, in each through all groups.
    fn take_piece(
        &self,
        range: &mut Range<usize>,
        row_groups: usize,
    ) -> Option<(&Stack, usize, Range<usize>)> {
        let mut before = 0;
        let of_stack = |stack: &&Stack| {
            let here = before..before + row_groups * stack.units();
            before = here.end;
            here.contains(&range.start)
        };
        let stack = self.stacks.iter().find(of_stack).filter(|_| range.start < range.end)?;
        let (units, start) = (stack.units(), range.start - (before - row_groups * stack.units()));
        let (group, first) = (start / units, start % units);
        let last = units.min(first + range.len());
        range.start += last - first;
        Some((stack, group, first..last))
    }

    /// Writes the values of one row.
    fn read_row(&self, row: usize, values: &mut [f32]) {
        let stack =
            self.stacks.iter().rev().find(|stack| stack.first_row <= row).expect("a matrix has parts");
        let of_stack = row - stack.first_row;
        stack.layout.read_row(stack.panel(of_stack / LANES), of_stack % LANES, values);
    }
}

thread_local! {
    /// Activations as integers, kept so that a steady step allocates nothing.
    static INTEGERS: RefCell<Vec<Activations>> = const { RefCell::new(Vec::new()) };
}

impl Cpu {
    pub fn embed(&self, tokens: &[u32], table: &Matrix, out: &mut Rows) -> Result<()> {
        self.each_row(out, |index, values| table.read_row(tokens[index] as usize, values))
    }

    pub fn matmul(&self, x: &Rows, w: &Matrix, y: &mut Rows) -> Result<()> {
        if !w.stacks.iter().any(|stack| stack.layout.quantised()) {
            return self.products(x, &[], w, y);
        }
        INTEGERS.with_borrow_mut(|integers| {
            integers.resize(x.count() * x.width() / BLOCK, Activations::ZERO);
            self.quantize(x, integers)?;
            self.products(x, integers, w, y)
        })
    }

    /// Rows to integers: block after block, in each block row after row.
    fn quantize(&self, x: &Rows, integers: &mut [Activations]) -> Result<()> {
        let count = x.count();
        let blocks = Slots::of(integers, 1);
        self.shared.pool.each(count, Self::grain(x.width()), |part| {
            for row in part {
                let to = |block: usize| &mut blocks.slot(block * count + row)[0];
                self.shared.isa.run(Quantize { from: x.row(row), to });
            }
        })
    }

    /// All products as one job. A unit of it is some panels by up to [`ROWS_MAX`] rows.
    fn products(&self, x: &Rows, integers: &[Activations], w: &Matrix, y: &mut Rows) -> Result<()> {
        let (y, isa) = (RowsMut::of_rows(y), self.shared.isa);
        let row_groups = x.count().div_ceil(ROWS_MAX);
        let units = row_groups * w.stacks.iter().map(Stack::units).sum::<usize>();
        let alone = x.count() * w.cols * w.rows < ALONE;
        self.shared.pool.each(units, if alone { units } else { 1 }, move |mut range| {
            while let Some((stack, group, units)) = w.take_piece(&mut range, row_groups) {
                let rows = group * ROWS_MAX..((group + 1) * ROWS_MAX).min(x.count());
                if stack.layout.quantised() {
                    quantised(isa, stack, units, integers, rows, &y);
                } else {
                    dense(isa, stack, units, x, rows, &y);
                }
            }
        })
    }
}

fn quantised(
    isa: Isa,
    stack: &Stack,
    panels: Range<usize>,
    x: &[Activations],
    rows: Range<usize>,
    y: &RowsMut<'_>,
) {
    let mut sums = [[0.0; LANES]; ROWS_MAX];
    let sums = &mut sums[..rows.len()];
    let stride = x.len() / (stack.layout.cols / BLOCK);
    let (layout, x) = (stack.layout, &x[rows.start..]);
    for index in panels {
        let panel = stack.panel(index);
        product_quant::Product { layout, panel, x, stride, sums: &mut *sums }.run(isa);
        for (row, sums) in rows.clone().zip(sums.iter()) {
            write_lanes(stack, index, sums, row, y);
        }
    }
}

fn dense(isa: Isa, stack: &Stack, units: Range<usize>, x: &Rows, rows: Range<usize>, y: &RowsMut<'_>) {
    let mut sums = [[0.0; LANES]; TOGETHER * ROWS_MAX];
    let stride = stack.layout.stride();
    let x = &x.all()[rows.start * x.width()..rows.end * x.width()];
    for unit in units {
        let first = unit * TOGETHER;
        let together = (stack.panels() - first).min(TOGETHER);
        let sums = &mut sums[..together * rows.len()];
        let panels = &stack.data[first * stride..][..together * stride];
        product_dense::Product { layout: stack.layout, panels, x, sums: &mut *sums }.run(isa);
        for (panel, sums) in sums.chunks_exact(rows.len()).enumerate() {
            for (row, sums) in rows.clone().zip(sums) {
                write_lanes(stack, first + panel, sums, row, y);
            }
        }
    }
}

/// The lanes of a panel that are outputs, to their places.
fn write_lanes(stack: &Stack, panel: usize, sums: &[f32; LANES], row: usize, y: &RowsMut<'_>) {
    let outputs = LANES.min(stack.rows - panel * LANES);
    y.part(row, stack.first_row + panel * LANES, outputs).copy_from_slice(&sums[..outputs]);
}
