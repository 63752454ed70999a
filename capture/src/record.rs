//! One captured frame, borrowed from the file, with its pcapng options.
//!
//! Options: pcapng draft, section 3.5 (format) and 4.3 (Enhanced Packet Block options).

use std::borrow::Cow;

use crate::LinkType;

/// One captured frame. It borrows from the file or from the read buffer; nothing is copied.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Record<'a> {
    /// Time of the capture, in nanoseconds since 1970-01-01 00:00 UTC. 0 if [`Record::has_time`] is false.
    pub time_ns: i64,
    /// Offset of its record or block, in bytes from the start of the (decompressed) file it came from.
    pub offset: u64,
    /// Index into [`Metadata::interfaces`](crate::Metadata::interfaces).
    pub interface: u32,
    /// Its length on the wire in bytes, according to the file. More than `bytes.len()` if the capture cut it.
    pub wire_len: u32,
    /// Link type: the layer that `bytes` begins with.
    pub link_type: LinkType,
    pub(crate) flags: Flags,
    /// Its captured bytes.
    pub bytes: &'a [u8],
    /// Raw pcapng options; parsed only on demand.
    pub(crate) options: &'a [u8],
}

/// Facts about a record that fit one bit each.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Flags(pub(crate) u8);

impl Flags {
    pub(crate) const BIG_ENDIAN: u8 = 0x01;
    pub(crate) const NO_TIME: u8 = 0x02;
}

impl<'a> Record<'a> {
    /// No frame at all: the value of a source before its first record.
    pub const EMPTY: Record<'static> = Record {
        time_ns: 0,
        offset: 0,
        interface: 0,
        wire_len: 0,
        link_type: LinkType::NULL,
        flags: Flags(Flags::NO_TIME),
        bytes: &[],
        options: &[],
    };

    /// A record of your own making, for writers and tests.
    pub fn new(time_ns: i64, interface: u32, link_type: LinkType, wire_len: u32, bytes: &'a [u8]) -> Record<'a> {
        Record { time_ns, offset: 0, interface, wire_len, link_type, flags: Flags(0), bytes, options: &[] }
    }

    /// The same record with only the first `len` of its captured bytes.
    pub fn cut(self, len: usize) -> Record<'a> {
        Record { bytes: self.bytes.get(..len).unwrap_or(self.bytes), ..self }
    }

    /// The same record with other bytes, and without its options: for a writer of something else in its place.
    pub fn holding<'b>(&self, bytes: &'b [u8]) -> Record<'b> {
        Record { bytes, options: &[], ..*self }
    }

    /// True if the file has a time for this frame. A pcapng Simple Packet Block has none.
    pub fn has_time(&self) -> bool {
        self.flags.0 & Flags::NO_TIME == 0
    }

    /// True if the capture cut the frame: fewer bytes here than on the wire.
    pub fn is_cut(&self) -> bool {
        self.bytes.len() < self.wire_len as usize
    }

    /// The pcapng options of the frame, in file order. Empty for pcap. Parsed now, not before.
    pub fn options(&self) -> Options<'a> {
        Options { bytes: self.options, big_endian: self.flags.0 & Flags::BIG_ENDIAN != 0 }
    }

    /// The comments of the frame, in file order; bytes that are not UTF-8 are replaced.
    pub fn comments(&self) -> impl Iterator<Item = Cow<'a, str>> {
        self.options().filter(|o| o.code == OPT_COMMENT).map(|o| String::from_utf8_lossy(o.value))
    }

    /// The direction and error flags of the frame (`epb_flags`), if the file has them.
    pub fn packet_flags(&self) -> Option<u32> {
        let mut options = self.options();
        let value = options.find(|o| o.code == EPB_FLAGS)?.value.first_chunk()?;
        Some(if options.big_endian { u32::from_be_bytes(*value) } else { u32::from_le_bytes(*value) })
    }

    /// Number of frames lost between the frame before on this interface and this one (`epb_dropcount`), if the file has
    /// it.
    pub fn lost_before(&self) -> Option<u64> {
        let mut options = self.options();
        let value = options.find(|o| o.code == EPB_DROPCOUNT)?.value.first_chunk()?;
        Some(if options.big_endian { u64::from_be_bytes(*value) } else { u64::from_le_bytes(*value) })
    }
}

/// `opt_endofopt`.
pub(crate) const OPT_END: u16 = 0;
/// `opt_comment`: UTF-8, in every block.
pub(crate) const OPT_COMMENT: u16 = 1;
/// `epb_flags`, and `pack_flags` of the old Packet Block.
pub(crate) const EPB_FLAGS: u16 = 2;
/// `epb_dropcount`.
pub(crate) const EPB_DROPCOUNT: u16 = 4;

/// The options of an incoming frame: `epb_flags` 1.
pub(crate) const INBOUND: &[u8] = &[2, 0, 4, 0, 1, 0, 0, 0];
/// The options of an outgoing frame: `epb_flags` 2.
pub(crate) const OUTBOUND: &[u8] = &[2, 0, 4, 0, 2, 0, 0, 0];

/// One pcapng option.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PacketOption<'a> {
    /// The option code; its meaning depends on the block, except for 1 (comment).
    pub code: u16,
    /// The value without padding, integers in the byte order of the section.
    pub value: &'a [u8],
}

/// Iterates over the options of a pcapng block. Ends at `opt_endofopt`, at the end of the block, or at an option that
/// exceeds the block.
#[derive(Debug, Clone)]
pub struct Options<'a> {
    pub(crate) bytes: &'a [u8],
    pub(crate) big_endian: bool,
}

impl Options<'_> {
    /// True if integers in the values are big-endian.
    pub fn big_endian(&self) -> bool {
        self.big_endian
    }
}

impl<'a> Iterator for Options<'a> {
    type Item = PacketOption<'a>;

    fn next(&mut self) -> Option<PacketOption<'a>> {
        let (head, rest) = self.bytes.split_first_chunk::<4>()?;
        let half = |a, b| if self.big_endian { u16::from_be_bytes([a, b]) } else { u16::from_le_bytes([a, b]) };
        let (code, len) = (half(head[0], head[1]), usize::from(half(head[2], head[3])));
        if code == OPT_END || rest.len() < len {
            self.bytes = &[];
            return None;
        }
        let value = &rest[..len];
        self.bytes = rest.get(len.next_multiple_of(4)..).unwrap_or(&[]);
        Some(PacketOption { code, value })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with_options(options: &[u8]) -> Record<'_> {
        Record { options, ..Record::EMPTY }
    }

    #[test]
    fn comments_and_flags_are_found_when_asked_for() {
        let bytes = [
            1, 0, 5, 0, b'h', b'e', b'l', b'l', b'o', 0, 0, 0, 2, 0, 4, 0, 1, 0, 0, 0, 1, 0, 2, 0, b'y', 0xff, 0, 0, 0,
            0, 0, 0,
        ];
        let record = with_options(&bytes);
        assert_eq!(record.comments().collect::<Vec<_>>(), ["hello", "y\u{fffd}"]);
        assert_eq!(record.packet_flags(), Some(1));
        assert_eq!(record.lost_before(), None);
    }

    #[test]
    fn an_option_that_lies_ends_the_walk() {
        assert_eq!(with_options(&[1, 0, 1, 0, b'a', 0, 0, 0, 1, 0, 0xff, 0xff, 1]).comments().count(), 1);
        assert_eq!(with_options(&[1, 0, 1]).options().count(), 0);
    }

    #[test]
    fn a_record_is_one_cache_line() {
        assert!(size_of::<Record<'_>>() <= 64);
    }
}
