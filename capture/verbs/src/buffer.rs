//! Memory that a card reads and writes on its own: there is no Rust reference to it during that time.

#![allow(unsafe_code)]

use std::mem::ManuallyDrop;

/// The bytes of a vector, as a pointer for as long as a card may reach them.
#[derive(Debug)]
pub(crate) struct Buffer {
    pointer: *mut u8,
    len: usize,
    capacity: usize,
}

// SAFETY: it owns its bytes as the vector did.
unsafe impl Send for Buffer {}

impl Buffer {
    pub(crate) fn new(bytes: Vec<u8>) -> Self {
        let mut bytes = ManuallyDrop::new(bytes);
        Self { pointer: bytes.as_mut_ptr(), len: bytes.len(), capacity: bytes.capacity() }
    }

    pub(crate) fn zeroed(len: usize) -> Self {
        Self::new(vec![0; len])
    }

    pub(crate) fn len(&self) -> usize {
        self.len
    }

    pub(crate) fn address(&self) -> u64 {
        self.pointer as u64
    }

    pub(crate) fn pointer(&self) -> *mut u8 {
        self.pointer
    }

    /// Puts bytes at `at`. The caller must own the place: no outstanding work request may refer to it.
    pub(crate) fn put(&mut self, at: usize, bytes: &[u8]) {
        assert!(
            at.checked_add(bytes.len()).is_some_and(|end| end <= self.len),
            "{} bytes at {at} of {}",
            bytes.len(),
            self.len
        );
        // SAFETY: inside the buffer, as was just asserted; the source is a reference and so lies elsewhere.
        unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), self.pointer.add(at), bytes.len()) }
    }

    /// A piece that a completion has given back to us, until something is posted there again.
    pub(crate) fn piece(&self, at: usize, len: usize) -> &[u8] {
        assert!(at.checked_add(len).is_some_and(|end| end <= self.len), "{len} bytes at {at} of {}", self.len);
        // SAFETY: inside the buffer; the card has finished with the piece, and posting it again needs `&mut` of the
        // owner.
        unsafe { std::slice::from_raw_parts(self.pointer.add(at), len) }
    }

    /// A copy of a range that the peer may access too: if it writes meanwhile, the copy may be partly updated.
    pub(crate) fn copy(&self, at: usize, len: usize) -> Vec<u8> {
        assert!(at.checked_add(len).is_some_and(|end| end <= self.len), "{len} bytes at {at} of {}", self.len);
        let mut bytes = vec![0; len];
        // SAFETY: inside the buffer, as was just asserted, and into a new vector; no reference to the buffer's bytes is
        // made.
        unsafe { std::ptr::copy_nonoverlapping(self.pointer.add(at), bytes.as_mut_ptr(), len) };
        bytes
    }

    /// Returns the vector: the registration has ended, and nobody accesses the bytes any more.
    pub(crate) fn into_vec(self) -> Vec<u8> {
        let this = ManuallyDrop::new(self);
        // SAFETY: pointer, length and capacity are those of the vector that it was made of.
        unsafe { Vec::from_raw_parts(this.pointer, this.len, this.capacity) }
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        // SAFETY: as in `into_vec`, which does not come here.
        drop(unsafe { Vec::from_raw_parts(self.pointer, self.len, self.capacity) });
    }
}
