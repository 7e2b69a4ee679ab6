//! Memory for vectors: aligned to a cache line, in huge pages when large.
#![expect(unsafe_code, reason = "aligned and mapped memory is not to be had from Vec")]

use std::alloc::{Layout, alloc_zeroed, dealloc, handle_alloc_error};
use std::fmt;
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;

/// From this size on memory is mapped, so that untouched pages cost nothing and huge ones can be had.
const MAPPED_BYTES: usize = 4 << 20;
const HUGE_PAGE: usize = 2 << 20;
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
    Mapped { base: NonNull<libc::c_void>, bytes: usize },
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
        let padded = bytes.next_multiple_of(HUGE_PAGE) + HUGE_PAGE;
        let (protection, flags) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
        // SAFETY: a fresh anonymous mapping touches no memory of ours.
        let base = unsafe { libc::mmap(std::ptr::null_mut(), padded, protection, flags, -1, 0) };
        if base == libc::MAP_FAILED {
            return Err(bytes);
        }
        let base = NonNull::new(base).expect("mmap does not map page zero");
        let offset = base.align_offset(HUGE_PAGE);
        // SAFETY: the offset is less than a huge page, and the mapping has one to spare.
        let first = unsafe { base.byte_add(offset) };
        #[cfg(target_os = "linux")]
        // SAFETY: the range lies in the mapping. It is advice: a refusal changes nothing but speed.
        unsafe {
            libc::madvise(first.as_ptr(), bytes, libc::MADV_HUGEPAGE);
        }
        Ok(Self { first: first.cast(), len, source: Source::Mapped { base, bytes: padded } })
    }
}

impl<T: Plain> Drop for Buffer<T> {
    fn drop(&mut self) {
        match self.source {
            Source::Empty => {}
            // SAFETY: `first` came from the allocator with this layout.
            Source::Heap(layout) => unsafe { dealloc(self.first.as_ptr().cast(), layout) },
            // SAFETY: the mapping is ours, whole, and nothing refers to it any more.
            Source::Mapped { base, bytes } => unsafe {
                libc::munmap(base.as_ptr(), bytes);
            },
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
            assert!(buffer.iter().all(|&value| value == 0.0));
            assert!(len == 0 || buffer.as_ptr().addr().is_multiple_of(CACHE_LINE));
            buffer.fill(1.0);
            assert_eq!(buffer.iter().sum::<f32>(), len as f32);
        }
    }
}
