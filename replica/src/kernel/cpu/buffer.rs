//! Memory for vectors: aligned to a cache line, in huge pages when large.
#![expect(unsafe_code, reason = "aligned memory is not to be had from Vec")]

use std::alloc::{Layout, alloc_zeroed, dealloc, handle_alloc_error};
use std::fmt;
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;
use std::sync::Arc;

use super::mapping::Mapping;

/// From this size on memory is mapped, so that untouched pages cost nothing and huge ones can be had.
const MAPPED_BYTES: usize = 4 << 20;
const CACHE_LINE: usize = 64;

/// Numbers for which all zero bits are a value, and any bits are one.
pub trait Plain: Copy + Send + Sync + 'static {}
impl Plain for u8 {}
impl Plain for u16 {}
impl Plain for f32 {}

/// A boxed slice, zeroed, aligned to 64 bytes.
pub struct Buffer<T: Plain> {
    first: NonNull<T>,
    len: usize,
    source: Source,
}

enum Source {
    Empty,
    Heap(Layout),
    /// Held so that it stays.
    Mapped(#[expect(dead_code, reason = "held, not read")] Arc<Mapping>),
}

impl<T: Plain> Buffer<T> {
    /// `len` zeros.
    ///
    /// # Errors
    ///
    /// How many bytes the system would not map.
    pub fn zeroed(len: usize) -> Result<Self, usize> {
        let bytes = len * size_of::<T>();
        if bytes == 0 {
            return Ok(Self { first: NonNull::dangling(), len, source: Source::Empty });
        }
        if bytes >= MAPPED_BYTES { Self::mapped(len, bytes) } else { Ok(Self::on_heap(len, bytes)) }
    }

    fn on_heap(len: usize, bytes: usize) -> Self {
        let layout = Layout::from_size_align(bytes, CACHE_LINE).expect("less than MAPPED_BYTES");
        // SAFETY: the layout's size is not zero.
        let first = unsafe { alloc_zeroed(layout) };
        let Some(first) = NonNull::new(first.cast::<T>()) else { handle_alloc_error(layout) };
        Self { first, len, source: Source::Heap(layout) }
    }

    fn mapped(len: usize, bytes: usize) -> Result<Self, usize> {
        let mapping = Arc::new(Mapping::new(bytes)?);
        Ok(Self { first: mapping.first().cast(), len, source: Source::Mapped(mapping) })
    }

    /// `len` elements of a mapping, which stays as long as they do.
    ///
    /// # Safety
    ///
    /// They lie in the mapping, aligned, and nobody else has any of them.
    pub unsafe fn cut(mapping: Arc<Mapping>, offset: usize, len: usize) -> Self {
        // SAFETY: the caller vouches for the range.
        let first = unsafe { mapping.first().add(offset) };
        Self { first: first.cast(), len, source: Source::Mapped(mapping) }
    }
}

impl<T: Plain> Drop for Buffer<T> {
    fn drop(&mut self) {
        match &self.source {
            Source::Empty | Source::Mapped(_) => {}
            // SAFETY: `first` came from the allocator with this layout.
            Source::Heap(layout) => unsafe { dealloc(self.first.as_ptr().cast(), *layout) },
        }
    }
}

impl<T: Plain> Deref for Buffer<T> {
    type Target = [T];
    fn deref(&self) -> &[T] {
        // SAFETY: `first` points to `len` elements that live as long as self, and any bits are a `T`.
        unsafe { std::slice::from_raw_parts(self.first.as_ptr(), self.len) }
    }
}

impl<T: Plain> DerefMut for Buffer<T> {
    fn deref_mut(&mut self) -> &mut [T] {
        // SAFETY: as above, and self is borrowed alone.
        unsafe { std::slice::from_raw_parts_mut(self.first.as_ptr(), self.len) }
    }
}

// SAFETY: it owns its elements, which are plain numbers.
unsafe impl<T: Plain> Send for Buffer<T> {}
// SAFETY: shared access only reads.
unsafe impl<T: Plain> Sync for Buffer<T> {}

impl<T: Plain> fmt::Debug for Buffer<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} elements", self.len)
    }
}

/// The bytes as numbers; they must be aligned and whole.
pub fn view<T: Plain>(bytes: &[u8]) -> &[T] {
    // SAFETY: any bits are a `T`.
    let (before, numbers, after) = unsafe { bytes.align_to::<T>() };
    assert!(before.is_empty() && after.is_empty(), "{} bytes are not aligned numbers", bytes.len());
    numbers
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn small_and_large_buffers_are_zeroed_aligned_and_writable() {
        for len in [0, 1, 1000, (MAPPED_BYTES / 4) + 3] {
            let mut buffer = Buffer::<f32>::zeroed(len).unwrap();
            assert_eq!(buffer.len(), len);
            assert!(buffer.iter().all(|value| value.to_bits() == 0));
            assert!(len == 0 || buffer.as_ptr().addr().is_multiple_of(CACHE_LINE));
            buffer.fill(1.5);
            assert!(buffer.iter().all(|value| value.to_bits() == 1.5f32.to_bits()));
        }
    }
}
