//! Parts of variable length lie anywhere in an SMB2 message, named by an offset from the header and a length: a
//! [`Blob`].

use super::f;
use crate::fault::Fault;
use crate::field::Def;
use crate::trace::{Trace, Value};

/// A run of bytes that a message names by offset and length.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Blob<'a> {
    /// From its base: the SMB2 header, or the structure that names it.
    pub offset: u32,
    /// In bytes, as the message says.
    pub length: u32,
    /// The bytes present: shorter than `length` if that points outside of the message, or the capture cut it.
    pub bytes: &'a [u8],
    /// True if offset and length lie inside of the message, behind its fixed part.
    pub inside: bool,
}

impl<'a> Blob<'a> {
    /// `length` bytes at `offset` of `base`, whose fixed part takes the first `fixed` bytes.
    pub fn of(base: &'a [u8], fixed: usize, offset: u32, length: u32) -> Self {
        let start = (offset as usize).min(base.len());
        let end = start.saturating_add(length as usize).min(base.len());
        let inside =
            length == 0 || (offset as usize >= fixed && u64::from(offset) + u64::from(length) <= base.len() as u64);
        let bytes = if length == 0 { &base[fixed.min(base.len())..][..0] } else { &base[start..end] };
        Self { offset, length, bytes, inside }
    }

    /// True if the length is 0.
    pub const fn is_empty(&self) -> bool {
        self.length == 0
    }

    /// Tells `bytes` as field `def`; nothing where the blob is empty.
    pub fn trace<T: Trace>(&self, def: Def, t: &mut T) {
        if T::ON && !self.bytes.is_empty() {
            t.field(def, self.bytes, self.bytes.len(), Value::Bytes(self.bytes));
        }
    }
}

/// A little-endian integer of `width` bytes at `at`; 0 where it is not there.
pub(crate) fn number(base: &[u8], at: usize, width: usize) -> u64 {
    let Some(bytes) = base.get(at..).and_then(|b| b.get(..width)) else { return 0 };
    bytes.iter().rev().fold(0, |n, b| n << 8 | u64::from(*b))
}

/// Place of an integer: offset in its structure and width, in bytes.
pub(crate) type Place = (usize, usize);

/// Reads offset and length of a blob from their places in `base`, reports both, and a fault if they point outside.
#[inline]
pub(crate) fn blob<'a, T: Trace>(base: &'a [u8], fixed: usize, offset: Place, length: Place, t: &mut T) -> Blob<'a> {
    let blob = Blob::of(base, fixed, number(base, offset.0, offset.1) as u32, number(base, length.0, length.1) as u32);
    if T::ON {
        let mut places = [(f::BLOB_OFFSET, offset, blob.offset), (f::BLOB_LENGTH, length, blob.length)];
        if length.0 < offset.0 {
            places.reverse();
        }
        for (def, place, value) in places {
            if let Some(at) = base.get(place.0..).filter(|at| at.len() >= place.1) {
                t.field(def, at, place.1, Value::U(value.into()));
            }
        }
        if !blob.inside {
            let at = base.get(offset.0.min(base.len())..).unwrap_or(&[]);
            let mut fault = Fault::length(
                f::BLOB_OFFSET,
                at,
                (u64::from(blob.offset) + u64::from(blob.length)).min(u32::MAX.into()) as usize,
            );
            fault.available = base.len().min(u32::MAX as usize) as u32;
            t.fault(&fault);
        }
    }
    blob
}

/// The rest of `base` behind the end of its fixed part and of these blobs.
pub(crate) fn behind<'a>(base: &'a [u8], fixed: usize, blobs: &[&Blob<'_>]) -> &'a [u8] {
    let start = base.as_ptr().addr();
    let end = blobs
        .iter()
        .filter(|b| !b.bytes.is_empty())
        .map(|b| b.bytes.as_ptr().addr() - start + b.bytes.len())
        .max()
        .unwrap_or(0);
    &base[end.max(fixed).min(base.len())..]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn offsets_that_lie_give_what_is_there() {
        let base = [0u8; 20];
        let inside = Blob::of(&base, 8, 8, 12);
        assert_eq!((inside.inside, inside.bytes.len()), (true, 12));
        let past = Blob::of(&base, 8, 16, 90);
        assert_eq!((past.inside, past.bytes.len()), (false, 4));
        assert!(!Blob::of(&base, 8, 4, 4).inside, "inside of the fixed part");
        assert!(!Blob::of(&base, 8, u32::MAX, u32::MAX).inside);
        assert!(Blob::of(&base, 8, 0, 0).inside, "an offset without length means nothing");
        assert_eq!(behind(&base, 8, &[&past]).len(), 0);
        assert_eq!(behind(&base, 8, &[&Blob::of(&base, 8, 10, 3)]).len(), 7);
        assert_eq!((number(&base, 19, 2), number(&[1, 2, 3], 1, 2)), (0, 0x302));
    }
}
