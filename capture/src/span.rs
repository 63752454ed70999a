//! Layout of the next record, as its format defines it.

use crate::LinkType;
use crate::record::{Flags, Record};

/// The next item of a file.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Step {
    /// A frame.
    Packet(Span),
    /// Something that is not a frame, `len` bytes long. It was processed and can be skipped.
    Other { len: usize },
    /// It is incomplete: `needed` bytes are needed, from its beginning.
    More { what: &'static str, needed: usize },
}

/// Offsets of the parts of a record, in bytes from its beginning, and values of its header.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Span {
    pub(crate) time_ns: i64,
    pub(crate) interface: u32,
    pub(crate) wire_len: u32,
    pub(crate) link_type: LinkType,
    pub(crate) flags: Flags,
    pub(crate) header_len: u8,
    /// Bytes captured, from `header_len` on.
    pub(crate) captured: u32,
    /// Offsets of the beginning and the end of the options.
    pub(crate) options: (u32, u32),
    /// The whole record.
    pub(crate) len: u32,
}

impl Span {
    /// The record that begins with `bytes`. Empty parts if these are not the bytes that the span was made from.
    #[inline(always)]
    pub(crate) fn record(self, bytes: &[u8], offset: u64) -> Record<'_> {
        let start = usize::from(self.header_len);
        Record {
            time_ns: self.time_ns,
            offset,
            interface: self.interface,
            wire_len: self.wire_len,
            link_type: self.link_type,
            flags: self.flags,
            bytes: bytes.get(start..start + self.captured as usize).unwrap_or(&[]),
            options: bytes.get(self.options.0 as usize..self.options.1 as usize).unwrap_or(&[]),
        }
    }
}
