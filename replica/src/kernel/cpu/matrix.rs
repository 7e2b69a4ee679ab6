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

/// Parts of a product a thread should get on average, so that threads end together.
const PARTS_A_THREAD: usize = 6;
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

    fn panels(&self) -> usize {
        self.stacks.iter().map(Stack::panels).sum()
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

    /// All products as one job, in parts of some panels by some rows.
    fn products(&self, x: &Rows, integers: &[Activations], w: &Matrix, y: &mut Rows) -> Result<()> {
        let y = RowsMut::of_rows(y);
        let row_groups = x.count().div_ceil(ROWS_MAX);
        let wanted = (self.shared.pool.threads() * PARTS_A_THREAD).div_ceil(row_groups);
        let panels_a_part = w.panels().div_ceil(wanted).next_multiple_of(2);
        let alone = x.count() * w.cols * w.rows < ALONE;
        let panel_groups = |stack: &Stack| stack.panels().div_ceil(panels_a_part);
        let parts: usize = w.stacks.iter().map(|stack| row_groups * panel_groups(stack)).sum();
        self.shared.pool.each(parts, if alone { parts } else { 1 }, |range| {
            for mut part in range {
                let mut stacks = w.stacks.iter();
                let mut stack = stacks.next().expect("a matrix has parts");
                while part >= row_groups * panel_groups(stack) {
                    part -= row_groups * panel_groups(stack);
                    stack = stacks.next().expect("parts are counted over all stacks");
                }
                let (row_group, panel_group) = (part / panel_groups(stack), part % panel_groups(stack));
                let rows = row_group * ROWS_MAX..((row_group + 1) * ROWS_MAX).min(x.count());
                let panels = panel_group * panels_a_part;
                let panels = panels..(panels + panels_a_part).min(stack.panels());
                if stack.layout.quantised() {
                    quantised(self.shared.isa, stack, panels, integers, rows, &y);
                } else {
                    dense(self.shared.isa, stack, panels, x, rows, &y);
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
    let stride = x.len() / (stack.layout.cols / BLOCK);
    let mut sums = [[0.0; LANES]; ROWS_MAX];
    for panel in panels {
        let sums = &mut sums[..rows.len()];
        let x = &x[rows.start..];
        product_quant::Product { layout: stack.layout, panel: stack.panel(panel), x, stride, sums }.run(isa);
        for (row, sums) in rows.clone().zip(sums.iter()) {
            write_lanes(stack, panel, sums, row, y);
        }
    }
}

fn dense(isa: Isa, stack: &Stack, panels: Range<usize>, x: &Rows, rows: Range<usize>, y: &RowsMut<'_>) {
    let mut sums = [[0.0; LANES]; 2 * ROWS_MAX];
    let stride = stack.layout.stride();
    let x = &x.all()[rows.start * x.width()..rows.end * x.width()];
    for first in panels.clone().step_by(2) {
        let together = (panels.end - first).min(2);
        let sums = &mut sums[..together * rows.len()];
        let bytes = &stack.data[first * stride..][..together * stride];
        product_dense::Product { layout: stack.layout, panels: bytes, x, sums }.run(isa);
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
