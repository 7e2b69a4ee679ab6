//! One stored matrix, seen as rows of raw bytes in Hugging Face's order, or a slice of it.
//!
//! A view copies nothing and knows no arithmetic. Bytes are little-endian and need not be aligned.

use std::ops::Range;

use replica_format::kind::TensorKind;

pub use replica_format::inventory::RowOrder;

/// Rows of whole blocks. A view of a view is a view: tensor parallel ranks cut theirs from the whole.
#[derive(Clone, Copy, Debug)]
pub struct TensorView<'a> {
    /// How elements are stored.
    pub kind: TensorKind,
    /// Rows of this view (outputs of a linear layer).
    pub rows: usize,
    /// Elements of a row (inputs of a linear layer).
    pub cols: usize,
    /// The stored tensor from its first byte on.
    bytes: &'a [u8],
    /// Bytes from one stored row to the next.
    stride: usize,
    /// Bytes of a stored row before the view's first column.
    skip: usize,
    /// Stored row (before reordering) of the view's row 0.
    first: usize,
    order: RowOrder,
}

impl<'a> TensorView<'a> {
    /// All of a stored tensor.
    ///
    /// # Panics
    ///
    /// When `bytes` are not exactly `rows` rows: the headers have been checked before.
    pub fn new(kind: TensorKind, rows: usize, cols: usize, bytes: &'a [u8], order: RowOrder) -> Self {
        let stride = kind.bytes(cols as u64) as usize;
        assert_eq!(bytes.len(), stride * rows, "a {kind:?} tensor of {rows} x {cols}");
        Self { kind, rows, cols, bytes, stride, skip: 0, first: 0, order }
    }

    /// Raw bytes of row `index`.
    pub fn row(&self, index: usize) -> &'a [u8] {
        assert!(index < self.rows, "row {index} of {}", self.rows);
        let start = self.order.stored(self.first + index) * self.stride + self.skip;
        &self.bytes[start..start + self.row_bytes()]
    }

    /// Bytes of one row.
    pub fn row_bytes(&self) -> usize {
        self.kind.bytes(self.cols as u64) as usize
    }

    /// All rows as one run of bytes, where they lie so in the file.
    pub fn contiguous(&self) -> Option<&'a [u8]> {
        let whole_rows = self.row_bytes() == self.stride && self.order == RowOrder::Plain;
        whole_rows.then(|| &self.bytes[self.first * self.stride..(self.first + self.rows) * self.stride])
    }

    /// These rows only (column-parallel layers, heads, parts of a fused tensor).
    #[must_use]
    pub fn rows(&self, range: Range<usize>) -> Self {
        assert!(range.start <= range.end && range.end <= self.rows, "rows {range:?} of {}", self.rows);
        Self { first: self.first + range.start, rows: range.len(), ..*self }
    }

    /// These columns only (row-parallel layers). `None` where the range cuts a block in two.
    #[must_use]
    pub fn columns(&self, range: Range<usize>) -> Option<Self> {
        assert!(range.start <= range.end && range.end <= self.cols, "columns {range:?} of {}", self.cols);
        let (per, _) = self.kind.block();
        let whole = range.start.is_multiple_of(per) && range.end.is_multiple_of(per);
        let skip = self.skip + self.kind.bytes(range.start as u64) as usize;
        whole.then_some(Self { skip, cols: range.len(), ..*self })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn matrix() -> Vec<u8> {
        (0..8 * 4).flat_map(|value: u16| value.to_le_bytes()).collect()
    }

    fn numbers(bytes: &[u8]) -> Vec<u16> {
        bytes.chunks(2).map(|pair| u16::from_le_bytes([pair[0], pair[1]])).collect()
    }

    #[test]
    fn rows_and_columns_can_be_cut_from_each_other() {
        let bytes = matrix();
        let view = TensorView::new(TensorKind::F16, 8, 4, &bytes, RowOrder::Plain);
        let part = view.rows(2..5).columns(1..3).unwrap().rows(1..3);
        assert_eq!((part.rows, part.cols), (2, 2));
        assert_eq!(numbers(part.row(0)), [13, 14]);
        assert_eq!(numbers(part.row(1)), [17, 18]);
        assert_eq!(numbers(view.rows(2..4).contiguous().unwrap()), [8, 9, 10, 11, 12, 13, 14, 15]);
        assert!(part.contiguous().is_none());
    }

    #[test]
    fn paired_rows_come_out_as_halves_of_a_head() {
        let bytes = matrix();
        let order = RowOrder::Paired { head_dim: 4 };
        let view = TensorView::new(TensorKind::F16, 8, 4, &bytes, order);
        let firsts: Vec<u16> = (0..8).map(|row| numbers(view.row(row))[0] / 4).collect();
        assert_eq!(firsts, [0, 2, 1, 3, 4, 6, 5, 7]);
        assert_eq!(numbers(view.rows(4..8).row(1))[0] / 4, 6);
    }

    #[test]
    fn a_cut_through_a_block_is_refused() {
        let bytes = vec![0; 2 * 36];
        let view = TensorView::new(TensorKind::Q4_0, 2, 64, &bytes, RowOrder::Plain);
        assert!(view.columns(16..64).is_none());
        assert_eq!(view.columns(32..64).unwrap().row(1).len(), 18);
    }
}
