//! Classic pcap: a file header, then records one after another.
//!
//! Spec: draft-ietf-opsawg-pcap. Byte order and time unit follow from the magic.
//! ```text
//! file    magic 4 · major 2 · minor 2 · reserved 8 · snaplen 4 · FCS length, flags and link type 4
//! record  seconds 4 · fraction 4 · captured length 4 · wire length 4 · [what a variant adds] · bytes
//! ```
//! Patched versions of libpcap made record headers longer, some of them without a magic of their own; the first records
//! tell:
//!
//! | variant                   | magic      | added to a record header                                    |
//! | ------------------------- | ---------- | ----------------------------------------------------------- |
//! | Nokia                     | 0xa1b2c3d4 | 4 bytes                                                     |
//! | Red Hat 6.1 (ss990417)    | 0xa1b2c3d4 | 8: interface 4 · protocol 2 · packet type 1 · padding 1     |
//! | Kuznetzov (ss991029)      | 0xa1b2cd34 | 8: the same                                                 |
//! | SuSE 6.3 (ss990915)       | 0xa1b2cd34 | 12: the same, and two processors and three bytes of padding |
//!
//! QEMU's filter-dump puts an unannounced virtio-net header before each Ethernet frame; see [`virtio_header`].

use crate::LinkType;
use crate::error::Damage;
use crate::metadata::{Clock, Format, Interface, Metadata, Section};
use crate::record::Flags;
use crate::span::{Span, Step};

/// Microseconds.
pub(crate) const MAGIC_MICROSECONDS: u32 = 0xa1b2_c3d4;
/// Nanoseconds.
pub(crate) const MAGIC_NANOSECONDS: u32 = 0xa1b2_3c4d;
/// Kuznetzov's patch: microseconds, longer record header.
pub(crate) const MAGIC_MODIFIED: u32 = 0xa1b2_cd34;

pub(crate) const FILE_HEADER_LEN: usize = 24;
pub(crate) const RECORD_HEADER_LEN: usize = 16;

/// Number of records that are checked to recognize the variant of a file.
const RECORDS_TO_TELL: usize = 3;
/// Longest record that is read in advance to recognize the variant, in bytes.
const LONGEST_TO_TELL: u32 = 1 << 20;
/// Two records of one file that are further apart in time than this are odd, in seconds.
const FAR_APART: u32 = 366 * 24 * 3600;

/// Captured lengths up to this are accepted whatever the snaplen is, as some writers set it wrongly.
const TOLERATED_RECORD_LEN: u32 = 256 << 10;

/// Byte order and format, from the magic.
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

/// State for reading the records of a pcap file.
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
        // The P bit means that the upper four bits are the FCS length, in units of two bytes.
        let fcs_len = (network & 0x0400_0000 != 0).then_some((network >> 28) as u8 * 2);
        let clock = if format == Format::PcapNanoseconds { Clock::NANOSECONDS } else { Clock::MICROSECONDS };
        metadata.format = Some(format);
        metadata.sections.push(Section { big_endian, interfaces: 1, ..Section::default() });
        metadata.interfaces.push(Interface { snap_len, fcs_len, clock, ..Interface::new(link_type) });
        metadata.revision += 1;

        Ok(Pcap {
            big_endian,
            lengths_may_be_swapped: minor <= 3,
            link_type,
            header_len: RECORD_HEADER_LEN as u32 + added_by(format),
            ns_per_fraction: if format == Format::PcapNanoseconds { 1 } else { 1000 },
            limit: if snap_len == 0 { max_record_len } else { snap_len.max(TOLERATED_RECORD_LEN).min(max_record_len) },
        })
    }

    /// Determines by the first records which of the variants with this magic the file is. `records` are the bytes after
    /// the file header, and `ended` means that these are all. Returns the number of bytes needed, if these are too few.
    pub(crate) fn recognize_variant(&mut self, records: &[u8], ended: bool, metadata: &mut Metadata) -> Option<usize> {
        let variants: &[Format] = match metadata.format {
            Some(Format::PcapMicroseconds) => &[Format::PcapRedHat61, Format::PcapNokia],
            Some(Format::PcapModified) => &[Format::PcapSuse63],
            _ => &[],
        };
        if variants.is_empty() {
            return None;
        }
        // A file that fits its magic is not a variant, and a variant is accepted only if all of it fits.
        match self.fit(records, ended) {
            Fit::More(needed) => return Some(needed),
            Fit::Oddities(0) => return None,
            Fit::Oddities(_) | Fit::Impossible => {}
        }
        for &format in variants {
            let variant = Pcap { header_len: RECORD_HEADER_LEN as u32 + added_by(format), ..*self };
            match variant.fit(records, ended) {
                Fit::More(needed) => return Some(needed),
                Fit::Oddities(0) => {
                    *self = variant;
                    metadata.format = Some(format);
                    return None;
                }
                Fit::Oddities(_) | Fit::Impossible => {}
            }
        }
        None
    }

    /// Checks how well the first records fit this layout.
    fn fit(&self, records: &[u8], ended: bool) -> Fit {
        let (mut at, mut odd, mut previous) = (0, 0, None);
        for seen in 0..RECORDS_TO_TELL {
            let rest = records.get(at..).unwrap_or(&[]);
            if rest.is_empty() && ended {
                // One record alone proves little unless the beginning of its frame is known.
                let tells = seen > 1 || seen == 0 || self.link_type == LinkType::ETHERNET;
                return Fit::Oddities(odd + u32::from(!tells && self.header_len != RECORD_HEADER_LEN as u32));
            }
            let header_len = self.header_len as usize;
            let Some(header) = rest.first_chunk::<RECORD_HEADER_LEN>().filter(|_| rest.len() >= header_len) else {
                return if ended { Fit::Oddities(odd + 1) } else { Fit::More(at + header_len) };
            };
            let (seconds, fraction, captured, wire_len) = self.words(header);
            if captured > self.limit {
                return Fit::Impossible;
            }
            odd += u32::from(fraction >= 1_000_000_000 / self.ns_per_fraction);
            odd += u32::from(captured > wire_len);
            odd += u32::from(previous.is_some_and(|p: u32| seconds.abs_diff(p) > FAR_APART));
            previous = Some(seconds);
            if self.link_type == LinkType::ETHERNET && captured >= 14 {
                match rest.get(header_len + 12..header_len + 14) {
                    Some(&[a, b]) => odd += u32::from(!is_usual_type(u16::from_be_bytes([a, b]), captured)),
                    _ if !ended => return Fit::More(at + header_len + 14),
                    _ => {}
                }
            }
            if captured > LONGEST_TO_TELL {
                break;
            }
            at += header_len + captured as usize;
            if at > records.len() {
                return if ended { Fit::Oddities(odd + 1) } else { Fit::More(at) };
            }
        }
        Fit::Oddities(odd)
    }

    /// Seconds, fraction, captured length and wire length of a record.
    #[inline(always)]
    fn words(&self, header: &[u8; RECORD_HEADER_LEN]) -> (u32, u32, u32, u32) {
        let word = |at: usize| {
            let word = [header[at], header[at + 1], header[at + 2], header[at + 3]];
            if self.big_endian { u32::from_be_bytes(word) } else { u32::from_le_bytes(word) }
        };
        let (captured, wire_len) = (word(8), word(12));
        if captured > wire_len && self.lengths_may_be_swapped {
            return (word(0), word(4), wire_len, captured);
        }
        (word(0), word(4), captured, wire_len)
    }

    /// Looks at the record that `bytes` begin with.
    #[inline(always)]
    pub(crate) fn step(&self, bytes: &[u8]) -> Result<Step, Damage> {
        let Some(header) = bytes.first_chunk::<RECORD_HEADER_LEN>() else {
            return Ok(Step::More { what: "packet record header", needed: self.header_len as usize });
        };
        let (seconds, fraction, captured, wire_len) = self.words(header);
        if captured > self.limit {
            return Err(Damage::RecordTooLong { found: captured, limit: self.limit });
        }
        let len = self.header_len + captured;
        if bytes.len() < len as usize {
            return Ok(Step::More { what: "packet record", needed: len as usize });
        }
        let skipped = if self.link_type == LinkType::ETHERNET {
            virtio_header(&bytes[self.header_len as usize..len as usize])
        } else {
            0
        };
        Ok(Step::Packet(Span {
            time_ns: i64::from(seconds) * 1_000_000_000 + i64::from(fraction) * i64::from(self.ns_per_fraction),
            interface: 0,
            wire_len: wire_len.saturating_sub(u32::from(skipped)),
            link_type: self.link_type,
            flags: Flags(0),
            header_len: self.header_len as u8 + skipped,
            captured: captured - u32::from(skipped),
            options: (0, 0),
            len,
        }))
    }
}

/// Result of comparing the first records of a file with a layout.
enum Fit {
    /// Number of bytes needed for a decision.
    More(usize),
    /// Number of oddities that a writer would hardly produce.
    Oddities(u32),
    /// These cannot be records.
    Impossible,
}

/// Bytes that a variant adds to a record header.
fn added_by(format: Format) -> u32 {
    match format {
        Format::PcapNokia => 4,
        Format::PcapModified | Format::PcapRedHat61 => 8,
        Format::PcapSuse63 => 12,
        _ => 0,
    }
}

/// True if an Ethernet frame of `captured` bytes often has this EtherType, or length.
fn is_usual_type(kind: u16, captured: u32) -> bool {
    match kind {
        0..0x0600 => kind >= 3 && u32::from(kind) + 14 <= captured,
        // IPv4, ARP, VLANs, IPv6, slow protocols, MPLS, PPPoE, 802.1X, LLDP, MACsec, PTP, FCoE, FIP, RoCE, loopback
        0x0800 | 0x0806 | 0x8100 | 0x88a8 | 0x9100 | 0x86dd | 0x8809 | 0x8847 | 0x8848 | 0x8863 | 0x8864 | 0x888e
        | 0x88cc | 0x88e5 | 0x88f7 | 0x8906 | 0x8914 | 0x8915 | 0x9000 => true,
        _ => false,
    }
}

/// Length of the virtio-net header (struct virtio_net_hdr, 10 bytes, or 12 with the number of buffers) at the beginning
/// of `frame`, if an Ethernet frame with IP or ARP follows it and `frame` is not valid otherwise; else 0.
#[inline(always)]
fn virtio_header(frame: &[u8]) -> u8 {
    match frame.get(12..14) {
        // Nearly all frames have one of these types.
        Some(&[0x08, 0x00] | &[0x86, 0xdd] | &[0x81, 0x00] | &[0x89, 0x15]) | None => 0,
        Some(&[a, b]) => unusual_frame(frame, u16::from_be_bytes([a, b])),
        Some(_) => 0,
    }
}

#[cold]
fn unusual_frame(frame: &[u8], kind: u16) -> u8 {
    if is_usual_type(kind, frame.len() as u32) && kind >= 0x0600 {
        return 0;
    }
    let half = |at: usize| frame.get(at..at + 2).map_or(u16::MAX, |b| u16::from_le_bytes([b[0], b[1]]));
    let (flags, offload) = (frame[0], frame[1] & 0x7f);
    // Flags: checksum needed, checked, segments coalesced. Offloads: none, TCP over IPv4, UDP, TCP over IPv6, UDP in
    // segments.
    let is_header = flags & !0x07 == 0
        && matches!(offload, 0 | 1 | 3 | 4 | 5)
        && (offload != 0 || half(4) == 0)
        && (flags & 0x01 != 0 || (half(6) == 0 && half(8) == 0));
    if !is_header {
        return 0;
    }
    [12, 10].into_iter().find(|&len| frame.get(usize::from(len)..).is_some_and(is_ip_or_arp)).unwrap_or(0)
}

/// True if these bytes are certainly an Ethernet frame with IP or ARP.
fn is_ip_or_arp(frame: &[u8]) -> bool {
    let Some((head, payload)) = frame.split_first_chunk::<14>() else { return false };
    // A sender's address is never a group's.
    if head[6] & 0x01 != 0 {
        return false;
    }
    let (kind, payload) = match ([head[12], head[13]], payload) {
        ([0x81, 0x00], [_, _, a, b, rest @ ..]) => ([*a, *b], rest),
        (kind, rest) => (kind, rest),
    };
    match kind {
        [0x08, 0x00] => {
            let len = usize::from(payload.first().map_or(0, |b| b & 0x0f)) * 4;
            let Some(header) = payload.get(..len).filter(|h| h.len() >= 20 && h[0] >> 4 == 4) else { return false };
            let sum: u32 = header.chunks_exact(2).map(|b| u32::from(u16::from_be_bytes([b[0], b[1]]))).sum();
            (sum & 0xffff) + (sum >> 16) == 0xffff || (sum & 0xffff) + (sum >> 16) == 0x1_fffe
        }
        [0x86, 0xdd] => {
            let Some(header) = payload.first_chunk::<40>() else { return false };
            let len = usize::from(u16::from_be_bytes([header[4], header[5]]));
            header[0] >> 4 == 6
                && matches!(header[6], 0 | 6 | 17 | 43 | 44 | 50 | 51 | 58 | 60)
                && (len > 0 && len + 40 <= payload.len())
        }
        [0x08, 0x06] => payload.starts_with(&[0, 1, 8, 0, 6, 4]),
        _ => false,
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
        assert_eq!(
            read.error.unwrap(),
            "test: damaged at byte 41: a packet record claims 4294967295 captured bytes, the limit is 262144"
        );
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

    /// A frame of `len` bytes with IPv6 in it, more or less.
    fn ipv6_frame(len: usize) -> Vec<u8> {
        let mut frame = vec![0x33, 0x33, 0, 0, 0, 0x16, 0x52, 0x54, 0, 0, 0, 1, 0x86, 0xdd, 0x60, 0, 0, 0];
        frame.extend(((len - 54) as u16).to_be_bytes());
        frame.extend([17, 64]);
        frame.resize(len, 0x11);
        frame
    }

    /// A file whose record headers have `added` bytes more than they should by `magic`.
    fn variant(magic: u32, added: usize, big_endian: bool, frames: &[Vec<u8>]) -> Vec<u8> {
        let word = |v: u32| if big_endian { v.to_be_bytes() } else { v.to_le_bytes() };
        let mut file = pcap_file(magic, big_endian, 65535, 1, &[]);
        for (frame, number) in frames.iter().zip(0..) {
            let len = frame.len() as u32;
            file.extend([word(1_700_000_000 + number), word(number), word(len), word(len)].concat());
            file.extend((0..added).map(|b| b as u8));
            file.extend_from_slice(frame);
        }
        file
    }

    /// The frames of a file, mapped and read, which must agree, and the recognized format.
    fn frames_of(file: &[u8]) -> (Vec<Vec<u8>>, Option<String>, Option<Format>) {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("x");
        std::fs::write(&path, file).unwrap();
        let [mapped, read] = [true, false].map(|mmap| {
            let read = match crate::open(&path, crate::OpenOptions::new().mmap(mmap)) {
                Ok(mut capture) => crate::testing::drain(&mut capture),
                Err(e) => return (Vec::new(), Some(e.to_string()), None),
            };
            (read.records.into_iter().map(|r| r.bytes).collect(), read.error, read.metadata.format)
        });
        assert!(mapped == read, "mapped and read");
        mapped
    }

    #[test]
    fn record_headers_of_all_variants_are_recognized_by_the_first_records() {
        let frames: Vec<_> = [60, 90, 70, 1514, 60].map(ipv6_frame).to_vec();
        for count in 1..=frames.len() {
            for (magic, added, format) in [
                (MAGIC_MICROSECONDS, 0, Format::PcapMicroseconds),
                (MAGIC_MICROSECONDS, 4, Format::PcapNokia),
                (MAGIC_MICROSECONDS, 8, Format::PcapRedHat61),
                (MAGIC_MODIFIED, 8, Format::PcapModified),
                (MAGIC_MODIFIED, 12, Format::PcapSuse63),
            ] {
                for big_endian in [false, true] {
                    let (read, error, found) = frames_of(&variant(magic, added, big_endian, &frames[..count]));
                    assert_eq!((error, found), (None, Some(format)), "{count} frames");
                    assert!(read == frames[..count], "{format:?}");
                }
            }
        }
    }

    #[test]
    fn a_damaged_file_is_not_taken_for_a_variant() {
        let frames: Vec<_> = [60, 90, 70, 1514].map(ipv6_frame).to_vec();
        let whole = variant(MAGIC_MICROSECONDS, 0, false, &frames);
        for cut in (FILE_HEADER_LEN..whole.len()).step_by(3) {
            assert_eq!(frames_of(&whole[..cut]).2, Some(Format::PcapMicroseconds), "cut at {cut}");
        }
        for at in FILE_HEADER_LEN..FILE_HEADER_LEN + 250 {
            let mut damaged = whole.clone();
            damaged[at] ^= 0xff;
            assert_eq!(frames_of(&damaged).2, Some(Format::PcapMicroseconds), "damaged at {at}");
        }
    }

    #[test]
    fn virtio_headers_before_frames_are_taken_off() {
        let arp = [&[0xff; 6][..], &[2, 0, 0, 0, 0, 1, 8, 6, 0, 1, 8, 0, 6, 4, 0, 1], &[0; 26]].concat();
        let ip = {
            let mut ip = vec![
                2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1, 8, 0, 0x45, 0, 0, 46, 0, 0, 0x40, 0, 64, 17, 0, 0, 10, 0, 0, 1, 10,
                0, 0, 2,
            ];
            let sum: u32 = ip[14..34].chunks(2).map(|b| u32::from(b[0]) << 8 | u32::from(b[1])).sum();
            let sum = !(((sum & 0xffff) + (sum >> 16)) as u16);
            ip[24..26].copy_from_slice(&sum.to_be_bytes());
            ip.resize(60, 7);
            ip
        };
        for frame in [ipv6_frame(90), arp.clone(), ip] {
            let plain = [&[0; 12][..], &frame].concat();
            let buffers = [&[0; 10][..], &[1, 0], &frame].concat();
            let checksum = [&[1, 1, 54, 0, 100, 0, 34, 0, 16, 0, 1, 0][..], &frame].concat();
            let short = [&[1, 0, 0, 0, 0, 0, 34, 0, 16, 0][..], &frame].concat();
            for with in [plain, buffers, checksum, short] {
                let read =
                    read_all(&pcap_file(MAGIC_MICROSECONDS, false, 65535, 1, &[(1, 0, &with, with.len() as u32)]));
                assert_eq!(read.records[0].bytes, frame);
                assert_eq!(read.records[0].wire_len as usize, frame.len());
                let tunnel =
                    read_all(&pcap_file(MAGIC_MICROSECONDS, false, 65535, 228, &[(1, 0, &with, with.len() as u32)]));
                assert_eq!(tunnel.records[0].bytes, with, "only Ethernet has them");
            }
            // A frame that is already valid is unchanged, whatever it carries.
            let carried = [&[2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1, 0x88, 0xb5][..], &frame].concat();
            let read =
                read_all(&pcap_file(MAGIC_MICROSECONDS, false, 65535, 1, &[(1, 0, &carried, carried.len() as u32)]));
            assert_eq!(read.records[0].bytes, carried);
        }
    }
}
