//! Storage of activations: buffers that go round, so that a steady step allocates nothing.

use std::fmt;
use std::mem;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::buffer::Buffer;
use crate::kernel::{Error, Result};

/// Spare buffers kept at most; a step uses about ten at a time.
const SPARE_MAX: usize = 64;

/// Spare buffers, smallest capacity first.
#[derive(Clone, Default)]
pub struct Arena {
    spare: Arc<Mutex<Vec<Buffer<f32>>>>,
}

/// Activations in host memory, `count × width`.
pub struct Rows {
    count: usize,
    width: usize,
    storage: Buffer<f32>,
    home: Arena,
}

impl Arena {
    /// Rows that hold anything: the smallest spare buffer that fits, or a new one of the next power of two.
    ///
    /// # Errors
    ///
    /// The system has no memory for them.
    pub fn rows(&self, count: usize, width: usize) -> Result<Rows> {
        let needed = count * width;
        let mut spare = self.lock();
        let fits = spare.partition_point(|buffer| buffer.len() < needed);
        let storage = if fits < spare.len() && spare[fits].len() <= needed.max(16) * 4 {
            spare.remove(fits)
        } else {
            drop(spare);
            let len = needed.max(16).next_power_of_two();
            Buffer::zeroed(len)
                .map_err(|bytes| Error::Device(format!("no memory for {bytes} bytes of activations")))?
        };
        Ok(Rows { count, width, storage, home: self.clone() })
    }

    fn give_back(&self, buffer: Buffer<f32>) {
        let mut spare = self.lock();
        if spare.len() < SPARE_MAX {
            let place = spare.partition_point(|other| other.len() < buffer.len());
            spare.insert(place, buffer);
        }
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Buffer<f32>>> {
        self.spare.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Rows {
    /// Rows.
    pub fn count(&self) -> usize {
        self.count
    }

    /// Elements of a row.
    pub fn width(&self) -> usize {
        self.width
    }

    /// Everything, row by row.
    pub fn all(&self) -> &[f32] {
        &self.storage[..self.count * self.width]
    }

    /// Everything, to be written.
    pub fn all_mut(&mut self) -> &mut [f32] {
        &mut self.storage[..self.count * self.width]
    }

    /// One row.
    pub fn row(&self, row: usize) -> &[f32] {
        &self.all()[row * self.width..(row + 1) * self.width]
    }

    /// One row, to be written.
    pub fn row_mut(&mut self, row: usize) -> &mut [f32] {
        let of_row = row * self.width..(row + 1) * self.width;
        &mut self.all_mut()[of_row]
    }
}

impl Drop for Rows {
    fn drop(&mut self) {
        if let Ok(empty) = Buffer::zeroed(0) {
            self.home.give_back(mem::replace(&mut self.storage, empty));
        }
    }
}

impl fmt::Debug for Rows {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Rows({}×{})", self.count, self.width)
    }
}

impl fmt::Debug for Arena {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Arena({} spare)", self.lock().len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_of_one_size_use_one_buffer_again_and_again() {
        let arena = Arena::default();
        let first = arena.rows(3, 100).unwrap().all().as_ptr();
        for _ in 0..10 {
            assert_eq!(arena.rows(3, 100).unwrap().all().as_ptr(), first);
        }
        let held = arena.rows(3, 100).unwrap();
        assert_ne!(arena.rows(3, 100).unwrap().all().as_ptr(), held.all().as_ptr());
    }

    #[test]
    fn a_large_buffer_is_not_spent_on_a_small_row() {
        let arena = Arena::default();
        let large = arena.rows(100, 1000).unwrap().all().as_ptr();
        assert_ne!(arena.rows(1, 10).unwrap().all().as_ptr(), large);
        assert_eq!(arena.rows(90, 1000).unwrap().all().as_ptr(), large);
    }
}
