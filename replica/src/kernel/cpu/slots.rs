//! Slices that several threads write, each its own piece.
#![expect(unsafe_code, reason = "threads write disjoint pieces of one slice")]

use std::marker::PhantomData;

use super::Rows;

/// A slice in pieces of one length, to be taken one by one from any thread.
///
/// The rule that keeps it sound: the parts of a pool's job have no index in common, a job takes only pieces
/// that belong to its part, and it holds no piece while it takes the same again.
#[derive(Clone, Copy)]
pub struct Slots<'a, T> {
    first: *mut T,
    len: usize,
    stride: usize,
    borrowed: PhantomData<&'a mut [T]>,
}

// SAFETY: it stands for a `&mut [T]` whose pieces go to one thread each, by the rule above.
unsafe impl<T: Send> Send for Slots<'_, T> {}
// SAFETY: as above.
unsafe impl<T: Send> Sync for Slots<'_, T> {}

impl<'a, T> Slots<'a, T> {
    /// All of `all`, in pieces of `stride`.
    pub fn of(all: &'a mut [T], stride: usize) -> Self {
        Self { first: all.as_mut_ptr(), len: all.len(), stride, borrowed: PhantomData }
    }

    /// One piece.
    pub fn slot(&self, index: usize) -> &'a mut [T] {
        self.part(index, 0, self.stride)
    }

    /// `len` elements of a piece, from `start` on.
    pub fn part(&self, index: usize, start: usize, len: usize) -> &'a mut [T] {
        let at = index * self.stride + start;
        assert!(
            start + len <= self.stride && at + len <= self.len,
            "piece {index}, {start} + {len} is outside"
        );
        // SAFETY: inside the borrowed slice by the assertion; alone by the rule above.
        unsafe { std::slice::from_raw_parts_mut(self.first.add(at), len) }
    }
}

/// The rows of activations.
pub type RowsMut<'a> = Slots<'a, f32>;

impl<'a> RowsMut<'a> {
    /// All of `rows`, a row a piece.
    pub fn of_rows(rows: &'a mut Rows) -> Self {
        let width = rows.width();
        Self::of(rows.all_mut(), width)
    }

    /// One row.
    pub fn row(&self, index: usize) -> &'a mut [f32] {
        self.slot(index)
    }
}
