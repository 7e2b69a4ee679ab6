//! Rows that several threads write, each its own.
#![expect(unsafe_code, reason = "threads write disjoint rows of one buffer")]

use std::marker::PhantomData;

use super::Rows;

/// All rows of one [`Rows`], to be taken one by one from any thread.
#[derive(Clone, Copy)]
pub struct RowsMut<'a> {
    first: *mut f32,
    count: usize,
    width: usize,
    borrowed: PhantomData<&'a mut [f32]>,
}

// SAFETY: it stands for a `&mut [f32]`; see `row` for what keeps threads apart.
unsafe impl Send for RowsMut<'_> {}
// SAFETY: as above.
unsafe impl Sync for RowsMut<'_> {}

impl<'a> RowsMut<'a> {
    /// All of `rows`.
    pub fn of(rows: &'a mut Rows) -> Self {
        let (count, width) = (rows.count(), rows.width());
        Self { first: rows.all_mut().as_mut_ptr(), count, width, borrowed: PhantomData }
    }

    /// One row. Parts of a job have no index in common, so each row is taken by one thread at a time; a
    /// caller holds no row while it takes the same again.
    #[expect(clippy::mut_from_ref, reason = "that is what it is for")]
    pub fn row(&self, index: usize) -> &'a mut [f32] {
        self.part(index, 0, self.width)
    }

    /// `len` elements of one row from `start` on, under the same rule.
    #[expect(clippy::mut_from_ref, reason = "that is what it is for")]
    pub fn part(&self, index: usize, start: usize, len: usize) -> &'a mut [f32] {
        assert!(index < self.count && start + len <= self.width, "row {index}, {start}+{len} is outside");
        // SAFETY: inside the borrowed buffer by the assertion; alone by the rule above.
        unsafe { std::slice::from_raw_parts_mut(self.first.add(index * self.width + start), len) }
    }
}
