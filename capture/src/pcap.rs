//! Classic pcap: a file header, then records one after another.
//!
//! Spec: draft-ietf-opsawg-pcap. Byte order and time unit follow from the magic.
//! ```text
//! file    magic 4 · major 2 · minor 2 · reserved 8 · snaplen 4 · FCS length, flags and link type 4
//! record  seconds 4 · fraction 4 · captured length 4 · wire length 4 · [Kuznetzov: interface 4 · protocol 2 · type 1 · pad 1] · bytes
//! ```

use crate::LinkType;
use crate::error::Damage;
use crate::metadata::{Clock, Format, Interface, Metadata, Section};
use crate::record::Flags;
use crate::walk::{Span, Step};

/// Microseconds.
pub(crate) const MAGIC_MICROSECONDS: u32 = 0xa1b2_c3d4;
/// Nanoseconds.
pub(crate) const MAGIC_NANOSECONDS: u32 = 0xa1b2_3c4d;
/// Kuznetzov's patch: microseconds, longer record header.
pub(crate) const MAGIC_MODIFIED: u32 = 0xa1b2_cd34;

pub(crate) const FILE_HEADER_LEN: usize = 24;
pub(crate) const RECORD_HEADER_LEN: usize = 16;
const MODIFIED_RECORD_HEADER_LEN: usize = 24;

/// Captured lengths up to this are accepted whatever the snaplen says, as some writers lie about it.
const TOLERATED_RECORD_LEN: u32 = 256 << 10;

/// What the magic says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Variant {
    big_endian: bool,
    format: Format,
}

impl Variant {
    pub(crate) fn of_magic(first: [u8; 4]) -> Option<Variant> {
        let format = |magic| match magic {
            MAGIC_MICROSECONDS => Some(Format::PcapMicroseconds),
            MAGIC_NANOSECONDS => Some(Format::PcapNanoseconds),
            MAGIC_MODIFIED => Some(Format::PcapModified),
            _ => None,
        };
        let little = format(u32::from_le_bytes(first)).map(|format| Variant { big_endian: false, format });
        little.or_else(|| format(u32::from_be_bytes(first)).map(|format| Variant { big_endian: true, format }))
    }
}

/// What every step through a pcap file needs.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Pcap {
    big_endian: bool,
    /// Writers before version 2.4 swapped the two lengths, some of them in 2.3.
    lengths_may_be_swapped: bool,
    link_type: LinkType,
    header_len: u32,
    ns_per_fraction: u32,
    /// Longest captured length accepted.
    limit: u32,
}

impl Pcap {
    /// Reads the file header, all [`FILE_HEADER_LEN`] bytes of it.
    pub(crate) fn start(header: &[u8], max_record_len: u32, metadata: &mut Metadata) -> Result<Pcap, Damage> {
        let word = |at: usize| header.get(at..at + 4).and_then(|b| b.try_into().ok()).unwrap_or([0; 4]);
        let Some(Variant { big_endian, format }) = Variant::of_magic(word(0)) else {
            return Err(Damage::Version { format: "pcap", major: 0, minor: 0 });
        };
        let u32_at = |at| if big_endian { u32::from_be_bytes(word(at)) } else { u32::from_le_bytes(word(at)) };
        let u16_at = |at| {
            let [a, b, ..] = word(at);
            if big_endian { u16::from_be_bytes([a, b]) } else { u16::from_le_bytes([a, b]) }
        };
        let (major, minor, snap_len, network) = (u16_at(4), u16_at(6), u32_at(16), u32_at(20));
        if major != 2 {
            return Err(Damage::Version { format: "pcap", major, minor });
        }

        let link_type = LinkType((network & 0xffff) as u16);
        // The P bit says that the upper four bits are the FCS length, in units of two bytes.
        let fcs_len = (network & 0x0400_0000 != 0).then_some((network >> 28) as u8 * 2);
        let clock = if format == Format::PcapNanoseconds { Clock::NANOSECONDS } else { Clock::MICROSECONDS };
        metadata.format = Some(format);
        metadata.sections.push(Section { big_endian, interfaces: 1, ..Section::default() });
        metadata.interfaces.push(Interface { snap_len, fcs_len, clock, ..Interface::new(link_type) });
        metadata.revision += 1;

        let modified = format == Format::PcapModified;
        Ok(Pcap {
            big_endian,
            lengths_may_be_swapped: minor <= 3,
            link_type,
            header_len: if modified { MODIFIED_RECORD_HEADER_LEN } else { RECORD_HEADER_LEN } as u32,
            ns_per_fraction: if format == Format::PcapNanoseconds { 1 } else { 1000 },
            limit: if snap_len == 0 { max_record_len } else { snap_len.max(TOLERATED_RECORD_LEN).min(max_record_len) },
        })
    }

    /// Looks at the record that `bytes` begin with.
    #[inline(always)]
    pub(crate) fn step(&self, bytes: &[u8]) -> Result<Step, Damage> {
        let Some(header) = bytes.first_chunk::<RECORD_HEADER_LEN>() else {
            return Ok(Step::More { what: "packet record header", needed: self.header_len as usize });
        };
        let word = |at: usize| {
            let word = [header[at], header[at + 1], header[at + 2], header[at + 3]];
            if self.big_endian { u32::from_be_bytes(word) } else { u32::from_le_bytes(word) }
        };
        let (seconds, fraction, mut captured, mut wire_len) = (word(0), word(4), word(8), word(12));
        if captured > wire_len && self.lengths_may_be_swapped {
            (captured, wire_len) = (wire_len, captured);
        }
        if captured > self.limit {
            return Err(Damage::RecordTooLong { found: captured, limit: self.limit });
        }
        let len = self.header_len + captured;
        if bytes.len() < len as usize {
            return Ok(Step::More { what: "packet record", needed: len as usize });
        }
        Ok(Step::Packet(Span {
            time_ns: i64::from(seconds) * 1_000_000_000 + i64::from(fraction) * i64::from(self.ns_per_fraction),
            interface: 0,
            wire_len,
            link_type: self.link_type,
            flags: Flags(0),
            header_len: self.header_len as u8,
            captured,
            options: (0, 0),
            len,
        }))
    }
}

#[cfg(test)]
mod tests {
    use crate::testing::{pcap_file, read_all};
    use crate::{Format, LinkType};

    use super::*;

    #[test]
    fn both_byte_orders_and_all_three_magics() {
        for big_endian in [false, true] {
            for (magic, format, ns) in [
                (MAGIC_MICROSECONDS, Format::PcapMicroseconds, 1_000_002_000),
                (MAGIC_NANOSECONDS, Format::PcapNanoseconds, 1_000_000_002),
                (MAGIC_MODIFIED, Format::PcapModified, 1_000_002_000),
            ] {
                let file = pcap_file(magic, big_endian, 65535, 1, &[(1, 2, b"abc", 60), (2, 0, b"", 0)]);
                let read = read_all(&file);
                assert_eq!(read.error, None);
                assert_eq!(read.metadata.format, Some(format));
                assert_eq!(read.metadata.sections[0].big_endian, big_endian);
                assert_eq!(read.records.len(), 2);
                let first = &read.records[0];
                assert_eq!((first.time_ns, &first.bytes[..], first.wire_len, first.offset), (ns, &b"abc"[..], 60, 24));
                assert_eq!(first.link_type, LinkType::ETHERNET);
            }
        }
    }

    #[test]
    fn the_upper_half_of_the_link_type_holds_the_fcs_length() {
        let read = read_all(&pcap_file(MAGIC_MICROSECONDS, false, 65535, 0x2400_0001, &[]));
        assert_eq!(read.metadata.interfaces[0].link_type, LinkType::ETHERNET);
        assert_eq!(read.metadata.interfaces[0].fcs_len, Some(4));
    }

    #[test]
    fn a_frame_longer_than_a_lying_snaplen_is_read_and_an_absurd_one_refused() {
        let long = vec![7; 100_000];
        let read = read_all(&pcap_file(MAGIC_MICROSECONDS, false, 96, 1, &[(0, 0, &long, 100_000)]));
        assert_eq!((read.records.len(), read.error), (1, None));

        let mut file = pcap_file(MAGIC_MICROSECONDS, false, 96, 1, &[(0, 0, b"a", 1)]);
        file.extend_from_slice(&[0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 0xff, 0xff, 1, 0, 0, 0]);
        let read = read_all(&file);
        assert_eq!(read.records.len(), 1);
        assert_eq!(read.error.unwrap(), "test: damaged at byte 41: a packet record claims 4294967295 captured bytes, the limit is 262144");
    }

    #[test]
    fn lengths_swapped_by_old_writers_are_swapped_back() {
        let mut file = pcap_file(MAGIC_MICROSECONDS, false, 96, 1, &[(0, 0, b"abc", 60)]);
        file[6] = 2;
        file[32..40].copy_from_slice(&[60, 0, 0, 0, 3, 0, 0, 0]);
        let read = read_all(&file);
        assert_eq!((read.records[0].bytes.len(), read.records[0].wire_len), (3, 60));
    }

    #[test]
    fn another_major_version_is_refused() {
        let mut file = pcap_file(MAGIC_MICROSECONDS, false, 96, 1, &[]);
        file[4] = 3;
        assert_eq!(read_all(&file).error.unwrap(), "test: damaged at byte 0: pcap version 3.4 is not known");
    }
}
