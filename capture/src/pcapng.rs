//! pcapng: blocks one after another, each with its type and its length at both ends.
//!
//! Spec: draft-ietf-opsawg-pcapng.
//! ```text
//! block      type 4 · length 4 · body · length 4                             in the byte order of the section
//! section    0x0a0d0d0a · length · magic 4 · major 2 · minor 2 · section length 8 · options
//! interface  1 · length · link type 2 · reserved 2 · snaplen 4 · options
//! packet     6 · length · interface 4 · time, high 4 · low 4 · captured 4 · wire 4 · bytes, padded to 4 · options
//! old packet 2 · length · interface 2 · drops 2 · then as above
//! simple     3 · length · wire 4 · bytes, padded to 4
//! ```
//! Blocks of other types are passed over, except for names (4), statistics (5) and decryption secrets (0xa), which are
//! kept.

use crate::LinkType;
use crate::error::Damage;
use crate::hardware;
use crate::metadata::{
    Clock, Interface, InterfaceStatistics, MAX_INTERFACES, MAX_SECTIONS, Metadata, Name, Secrets, Section,
};
use crate::record::{Flags, OPT_COMMENT, Options};
use crate::span::{Span, Step};

pub(crate) const SECTION_HEADER: u32 = 0x0a0d_0d0a;
pub(crate) const INTERFACE_DESCRIPTION: u32 = 0x1;
pub(crate) const OLD_PACKET: u32 = 0x2;
pub(crate) const SIMPLE_PACKET: u32 = 0x3;
pub(crate) const INTERFACE_STATISTICS: u32 = 0x5;
pub(crate) const ENHANCED_PACKET: u32 = 0x6;
pub(crate) const DECRYPTION_SECRETS: u32 = 0xa;
pub(crate) const NAME_RESOLUTION: u32 = 0x4;

/// The byte-order magic of a section header, as read in the right order.
pub(crate) const BYTE_ORDER_MAGIC: u32 = 0x1a2b_3c4d;

/// Type and both lengths.
const SMALLEST_BLOCK: u32 = 12;
/// Maximum size of header and options in a block, beside the frame itself.
const ROOM_BESIDE_FRAME: u32 = 1 << 20;
/// The fixed part of an Enhanced or old Packet Block, with type and first length.
const PACKET_HEADER_LEN: usize = 28;
const SIMPLE_HEADER_LEN: usize = 12;

pub(crate) mod option {
    //! Option codes, by the block they belong to.
    pub(crate) const SHB_HARDWARE: u16 = 2;
    pub(crate) const SHB_OS: u16 = 3;
    pub(crate) const SHB_USERAPPL: u16 = 4;
    pub(crate) const IF_NAME: u16 = 2;
    pub(crate) const IF_DESCRIPTION: u16 = 3;
    pub(crate) const IF_SPEED: u16 = 8;
    pub(crate) const IF_TSRESOL: u16 = 9;
    pub(crate) const IF_FILTER: u16 = 11;
    pub(crate) const IF_OS: u16 = 12;
    pub(crate) const IF_FCSLEN: u16 = 13;
    pub(crate) const IF_TSOFFSET: u16 = 14;
    pub(crate) const IF_HARDWARE: u16 = 15;
    pub(crate) const ISB_STARTTIME: u16 = 2;
    pub(crate) const ISB_ENDTIME: u16 = 3;
    pub(crate) const ISB_IFRECV: u16 = 4;
    pub(crate) const ISB_IFDROP: u16 = 5;
    pub(crate) const ISB_FILTERACCEPT: u16 = 6;
    pub(crate) const ISB_OSDROP: u16 = 7;
    pub(crate) const ISB_USRDELIV: u16 = 8;
}

/// State for reading the blocks of a pcapng file: the current section.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Pcapng {
    big_endian: bool,
    /// Index of its first interface.
    first_interface: u32,
}

impl Pcapng {
    /// Looks at the block that `bytes` begin with, at `offset` in the file; takes note of it if it is no packet.
    #[inline(always)]
    pub(crate) fn step(
        &mut self,
        bytes: &[u8],
        offset: u64,
        max: u32,
        metadata: &mut Metadata,
    ) -> Result<Step, Damage> {
        if let Some(kind) = bytes.first_chunk::<4>() {
            // The type of a section header reads the same in both orders, and its magic decides.
            if u32::from_le_bytes(*kind) == SECTION_HEADER {
                return self.section_header(bytes, offset, max, metadata);
            }
        }
        let block = match Block::read(bytes, self.big_endian, max)? {
            Ok(block) => block,
            Err(more) => return Ok(more),
        };
        match block.kind {
            ENHANCED_PACKET => {
                let id = block.u32_at(8)?;
                self.packet(&block, id, metadata)
            }
            OLD_PACKET => {
                let id = u32::from(block.u16_at(8)?);
                self.packet(&block, id, metadata)
            }
            SIMPLE_PACKET => self.simple_packet(&block, metadata),
            _ => self.other(&block, offset, metadata),
        }
    }

    /// Looks again at the packet block at `offset`, which was passed before.
    pub(crate) fn packet_at(bytes: &[u8], offset: u64, max: u32, metadata: &Metadata) -> Result<Step, Damage> {
        let not_here = Step::Other { len: 0 };
        let Some(section) = metadata.section_at(offset) else { return Ok(not_here) };
        let here = Pcapng { big_endian: section.big_endian, first_interface: section.first_interface };
        let block = match Block::read(bytes, here.big_endian, max)? {
            Ok(block) => block,
            Err(more) => return Ok(more),
        };
        // A later section's interfaces must not be taken for this one's.
        let known = (section.first_interface + section.interfaces) as usize;
        let interfaces = metadata.interfaces.get(..known).unwrap_or(&metadata.interfaces);
        match block.kind {
            ENHANCED_PACKET => here.packet_of(&block, block.u32_at(8)?, interfaces),
            OLD_PACKET => here.packet_of(&block, u32::from(block.u16_at(8)?), interfaces),
            SIMPLE_PACKET => here.simple_packet_of(&block, interfaces),
            _ => Ok(not_here),
        }
    }

    #[inline(always)]
    fn packet(&self, block: &Block<'_>, id: u32, metadata: &Metadata) -> Result<Step, Damage> {
        self.packet_of(block, id, &metadata.interfaces)
    }

    /// An Enhanced Packet Block, or an old one: they differ only in the first four bytes of the body.
    #[inline(always)]
    fn packet_of(&self, block: &Block<'_>, id: u32, interfaces: &[Interface]) -> Result<Step, Damage> {
        let header: &[u8; PACKET_HEADER_LEN] =
            block.bytes.first_chunk().ok_or_else(|| block.too_short(PACKET_HEADER_LEN as u32 + 4))?;
        let word = |at: usize| block.word([header[at], header[at + 1], header[at + 2], header[at + 3]]);
        let (index, interface) = self.interface(id, interfaces)?;
        let timestamp = u64::from(word(12)) << 32 | u64::from(word(16));
        let captured = word(20);
        let end = block.bytes.len() as u32 - 4;
        let room = end - PACKET_HEADER_LEN as u32;
        if captured > room {
            return Err(Damage::CapturedBeyondBlock { found: captured, room });
        }
        // Some writers leave out the padding if no options follow.
        let options = (PACKET_HEADER_LEN as u32 + captured.next_multiple_of(4)).min(end);
        Ok(Step::Packet(Span {
            time_ns: interface.clock.nanoseconds(timestamp),
            interface: index,
            wire_len: word(24),
            link_type: interface.link_type,
            flags: Flags(if self.big_endian { Flags::BIG_ENDIAN } else { 0 }),
            header_len: PACKET_HEADER_LEN as u8,
            captured,
            options: (options, end),
            len: block.bytes.len() as u32,
        }))
    }

    fn simple_packet(&self, block: &Block<'_>, metadata: &Metadata) -> Result<Step, Damage> {
        self.simple_packet_of(block, &metadata.interfaces)
    }

    /// A Simple Packet Block: no interface (it is the first one), no time, and how much was captured follows from the
    /// snaplen.
    fn simple_packet_of(&self, block: &Block<'_>, interfaces: &[Interface]) -> Result<Step, Damage> {
        let wire_len = block.u32_at(8)?;
        let (index, interface) = self.interface(0, interfaces)?;
        let end = block.bytes.len() as u32 - 4;
        let room = end - SIMPLE_HEADER_LEN as u32;
        let snap_len = if interface.snap_len == 0 { u32::MAX } else { interface.snap_len };
        Ok(Step::Packet(Span {
            time_ns: 0,
            interface: index,
            wire_len,
            link_type: interface.link_type,
            flags: Flags(Flags::NO_TIME | if self.big_endian { Flags::BIG_ENDIAN } else { 0 }),
            header_len: SIMPLE_HEADER_LEN as u8,
            captured: wire_len.min(snap_len).min(room),
            options: (end, end),
            len: block.bytes.len() as u32,
        }))
    }

    /// The interface that the section numbers `id`, and its index among those of all sections.
    #[inline(always)]
    fn interface<'m>(&self, id: u32, interfaces: &'m [Interface]) -> Result<(u32, &'m Interface), Damage> {
        let index = self.first_interface.saturating_add(id);
        match interfaces.get(index as usize) {
            Some(interface) => Ok((index, interface)),
            None => Err(Damage::UnknownInterface {
                found: id,
                known: (interfaces.len() as u32).saturating_sub(self.first_interface),
            }),
        }
    }

    #[cold]
    fn section_header(&mut self, bytes: &[u8], offset: u64, max: u32, metadata: &mut Metadata) -> Result<Step, Damage> {
        let more = Step::More { what: "section header block", needed: 28 };
        let Some(magic) = bytes.get(8..12).and_then(|b| b.try_into().ok()) else { return Ok(more) };
        let big_endian = match (u32::from_le_bytes(magic), u32::from_be_bytes(magic)) {
            (BYTE_ORDER_MAGIC, _) => false,
            (_, BYTE_ORDER_MAGIC) => true,
            (found, _) => return Err(Damage::ByteOrderMagic(found)),
        };
        let block = match Block::read(bytes, big_endian, max)? {
            Ok(block) => block,
            Err(more) => return Ok(more),
        };
        let (major, minor) = (block.u16_at(12)?, block.u16_at(14)?);
        if major != 1 {
            return Err(Damage::Version { format: "pcapng", major, minor });
        }
        // After the versions comes the section's length, which writers often do not know and which is not needed here.
        if metadata.sections.len() == MAX_SECTIONS {
            return Err(Damage::TooMany { what: "sections", limit: MAX_SECTIONS });
        }
        self.big_endian = big_endian;
        self.first_interface = metadata.interfaces.len() as u32;
        let mut section = Section { offset, big_endian, first_interface: self.first_interface, ..Section::default() };
        for o in block.options(24)? {
            match o.code {
                OPT_COMMENT => section.comments.extend(metadata.keep_text(o.value)),
                option::SHB_HARDWARE => section.hardware = metadata.keep_text(o.value),
                option::SHB_OS => section.os = metadata.keep_text(o.value),
                option::SHB_USERAPPL => section.application = metadata.keep_text(o.value),
                _ => {}
            }
        }
        metadata.sections.push(section);
        metadata.revision += 1;
        Ok(Step::Other { len: block.bytes.len() })
    }

    #[cold]
    fn other(&self, block: &Block<'_>, offset: u64, metadata: &mut Metadata) -> Result<Step, Damage> {
        match block.kind {
            INTERFACE_DESCRIPTION => Self::interface_description(block, metadata)?,
            INTERFACE_STATISTICS => self.interface_statistics(block, metadata)?,
            DECRYPTION_SECRETS => {
                let (kind, len) = (block.u32_at(8)?, block.u32_at(12)?);
                let room = block.bytes.len() as u32 - 4 - block.least(16)?;
                if len > room {
                    return Err(Damage::CapturedBeyondBlock { found: len, room });
                }
                if metadata.may_keep(len as usize) {
                    let data = block.bytes.get(16..16 + len as usize).unwrap_or(&[]).to_vec();
                    metadata.secrets.push(Secrets { offset, kind, data });
                    metadata.revision += 1;
                }
            }
            NAME_RESOLUTION => Self::names(block, metadata)?,
            _ => {}
        }
        Ok(Step::Other { len: block.bytes.len() })
    }

    /// Reads records of an address and its names, each name terminated by a zero byte. Skips records of other types.
    fn names(block: &Block<'_>, metadata: &mut Metadata) -> Result<(), Damage> {
        let (mut at, end) = (8, block.bytes.len().saturating_sub(4));
        while at + 4 <= end {
            let (kind, len) = (block.u16_at(at)?, usize::from(block.u16_at(at + 2)?));
            let address_len = match kind {
                0 => break,
                1 => 4,
                2 => 16,
                _ => usize::MAX,
            };
            let value = block.bytes.get(at + 4..(at + 4 + len).min(end)).unwrap_or(&[]);
            if let Some((address, names)) = value.split_at_checked(address_len) {
                for name in names.split(|b| *b == 0).filter(|n| !n.is_empty()) {
                    if let Some(name) = metadata.keep_text(name) {
                        metadata.names.push(Name { address: address.to_vec(), name });
                        metadata.revision += 1;
                    }
                }
            }
            at += 4 + len.next_multiple_of(4);
        }
        Ok(())
    }

    fn interface_description(block: &Block<'_>, metadata: &mut Metadata) -> Result<(), Damage> {
        if metadata.interfaces.len() == MAX_INTERFACES {
            return Err(Damage::TooMany { what: "interfaces", limit: MAX_INTERFACES });
        }
        let mut interface = Interface { snap_len: block.u32_at(12)?, ..Interface::new(LinkType(block.u16_at(8)?)) };
        interface.section = (metadata.sections.len() as u32).saturating_sub(1);
        let (mut resolution, mut offset_seconds) = (6, 0);
        for o in block.options(16)? {
            match (o.code, o.value) {
                (OPT_COMMENT, value) => interface.comments.extend(metadata.keep_text(value)),
                (option::IF_NAME, value) => interface.name = metadata.keep_text(value),
                (option::IF_DESCRIPTION, value) => interface.description = metadata.keep_text(value),
                (option::IF_HARDWARE, value) => interface.hardware = metadata.keep_text(value),
                (option::IF_OS, value) => interface.os = metadata.keep_text(value),
                // The first byte is the type of the filter: 0 is text for libpcap, 1 compiled code.
                (option::IF_FILTER, [0, text @ ..]) => interface.filter = metadata.keep_text(text),
                (option::IF_SPEED, value) => interface.speed = block.u64_of(value),
                (option::IF_TSRESOL, &[value]) => resolution = value,
                (option::IF_TSOFFSET, value) => offset_seconds = block.u64_of(value).map_or(0, |v| v as i64),
                // Bytes in today's draft and bits in older ones.
                (option::IF_FCSLEN, &[value]) => interface.fcs_len = Some(if value >= 16 { value / 8 } else { value }),
                _ => {}
            }
        }
        interface.clock = Clock::new(resolution, offset_seconds);
        metadata.interfaces.push(interface);
        if let Some(section) = metadata.sections.last_mut() {
            section.interfaces += 1;
        }
        metadata.revision += 1;
        Ok(())
    }

    fn interface_statistics(&self, block: &Block<'_>, metadata: &mut Metadata) -> Result<(), Damage> {
        let (index, &Interface { clock, .. }) = self.interface(block.u32_at(8)?, &metadata.interfaces)?;
        let time = |high, low| clock.nanoseconds(u64::from(high) << 32 | u64::from(low));
        let mut counters = Vec::new();
        let mut found = InterfaceStatistics {
            time_ns: time(block.u32_at(12)?, block.u32_at(16)?),
            ..InterfaceStatistics::default()
        };
        for o in block.options(20)? {
            // Times are two halves, the higher first in either byte order; counters are single numbers.
            let time_of = || Some(time(block.word(*o.value.first_chunk()?), block.word(*o.value.last_chunk()?)));
            match o.code {
                option::ISB_STARTTIME if o.value.len() == 8 => found.start_ns = time_of(),
                option::ISB_ENDTIME if o.value.len() == 8 => found.end_ns = time_of(),
                option::ISB_IFRECV => found.received = block.u64_of(o.value),
                option::ISB_IFDROP => found.dropped_by_interface = block.u64_of(o.value),
                option::ISB_FILTERACCEPT => found.accepted_by_filter = block.u64_of(o.value),
                option::ISB_OSDROP => found.dropped_by_os = block.u64_of(o.value),
                option::ISB_USRDELIV => found.delivered = block.u64_of(o.value),
                OPT_COMMENT => counters.extend(hardware::parse(o.value)),
                _ => {}
            }
        }
        if !counters.is_empty() {
            metadata.hardware.sample(found.time_ns, &counters);
        }
        metadata.interfaces[index as usize].statistics = Some(found);
        metadata.revision += 1;
        Ok(())
    }
}

/// A whole block, its two lengths checked against each other.
struct Block<'a> {
    kind: u32,
    big_endian: bool,
    /// All of it, from type to last length.
    bytes: &'a [u8],
}

impl<'a> Block<'a> {
    /// The block that `bytes` begin with; the inner `Err` means that it is incomplete.
    #[inline(always)]
    fn read(bytes: &'a [u8], big_endian: bool, max: u32) -> Result<Result<Block<'a>, Step>, Damage> {
        let Some(header) = bytes.first_chunk::<8>() else {
            return Ok(Err(Step::More { what: "block header", needed: SMALLEST_BLOCK as usize }));
        };
        let word = |b: [u8; 4]| if big_endian { u32::from_be_bytes(b) } else { u32::from_le_bytes(b) };
        let kind = word([header[0], header[1], header[2], header[3]]);
        let len = word([header[4], header[5], header[6], header[7]]);
        if len < SMALLEST_BLOCK || len % 4 != 0 || len - SMALLEST_BLOCK > max.saturating_add(ROOM_BESIDE_FRAME) {
            return Err(Damage::BlockLength {
                kind,
                found: len,
                least: SMALLEST_BLOCK,
                limit: max.saturating_add(ROOM_BESIDE_FRAME),
            });
        }
        let Some(bytes) = bytes.get(..len as usize) else {
            return Ok(Err(Step::More { what: "block", needed: len as usize }));
        };
        let last = bytes.last_chunk::<4>().map_or(0, |b| word(*b));
        if last != len {
            return Err(Damage::BlockLengthsDiffer { kind, first: len, last });
        }
        Ok(Ok(Block { kind, big_endian, bytes }))
    }

    #[inline(always)]
    fn word(&self, bytes: [u8; 4]) -> u32 {
        if self.big_endian { u32::from_be_bytes(bytes) } else { u32::from_le_bytes(bytes) }
    }

    /// The word at `at`, which must lie before the last length.
    #[inline(always)]
    fn u32_at(&self, at: usize) -> Result<u32, Damage> {
        self.least(at + 4)?;
        Ok(self.word([self.bytes[at], self.bytes[at + 1], self.bytes[at + 2], self.bytes[at + 3]]))
    }

    fn u16_at(&self, at: usize) -> Result<u16, Damage> {
        self.least(at + 2)?;
        let half = [self.bytes[at], self.bytes[at + 1]];
        Ok(if self.big_endian { u16::from_be_bytes(half) } else { u16::from_le_bytes(half) })
    }

    /// The value of an option that is a 64-bit integer; `None` if it has another length.
    fn u64_of(&self, value: &[u8]) -> Option<u64> {
        let value = value.try_into().ok()?;
        Some(if self.big_endian { u64::from_be_bytes(value) } else { u64::from_le_bytes(value) })
    }

    /// The options, which begin at `at`.
    fn options(&self, at: usize) -> Result<Options<'a>, Damage> {
        self.least(at)?;
        Ok(Options { bytes: &self.bytes[at..self.bytes.len() - 4], big_endian: self.big_endian })
    }

    /// Checks that the fixed part, `at` bytes with type and first length, fits in; returns `at`.
    #[inline(always)]
    fn least(&self, at: usize) -> Result<u32, Damage> {
        if self.bytes.len() < at + 4 { Err(self.too_short(at as u32 + 4)) } else { Ok(at as u32) }
    }

    #[cold]
    fn too_short(&self, least: u32) -> Damage {
        Damage::BlockLength { kind: self.kind, found: self.bytes.len() as u32, least, limit: u32::MAX }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{pcapng_block, pcapng_option, read_all};
    use crate::{Damage, Format, Secrets};

    /// A file made block by block, in one byte order.
    #[derive(Default)]
    struct File {
        bytes: Vec<u8>,
        big_endian: bool,
    }

    impl File {
        fn section(big_endian: bool) -> File {
            File { bytes: Vec::new(), big_endian }.and_section(big_endian)
        }

        fn and_section(mut self, big_endian: bool) -> File {
            self.big_endian = big_endian;
            let body = [&self.u32(BYTE_ORDER_MAGIC)[..], &self.u16(1), &self.u16(0), &[0xff; 8]].concat();
            self.block(SECTION_HEADER, &body)
        }

        fn u32(&self, v: u32) -> [u8; 4] {
            if self.big_endian { v.to_be_bytes() } else { v.to_le_bytes() }
        }

        fn u16(&self, v: u16) -> [u8; 2] {
            if self.big_endian { v.to_be_bytes() } else { v.to_le_bytes() }
        }

        fn u64(&self, v: u64) -> [u8; 8] {
            if self.big_endian { v.to_be_bytes() } else { v.to_le_bytes() }
        }

        fn block(mut self, kind: u32, body: &[u8]) -> File {
            self.bytes.extend(pcapng_block(self.big_endian, kind, body));
            self
        }

        fn interface(self, link_type: u16, snap_len: u32, options: &[(u16, &[u8])]) -> File {
            let mut body = [&self.u16(link_type)[..], &[0, 0], &self.u32(snap_len)].concat();
            body.extend(options.iter().flat_map(|(code, value)| pcapng_option(self.big_endian, *code, value)));
            self.block(INTERFACE_DESCRIPTION, &body)
        }

        fn packet(self, interface: u32, timestamp: u64, bytes: &[u8], options: &[(u16, &[u8])]) -> File {
            let (high, low, len) = ((timestamp >> 32) as u32, timestamp as u32, bytes.len() as u32);
            let mut body: Vec<u8> =
                [interface, high, low, len, len + 10].into_iter().flat_map(|v| self.u32(v)).collect();
            body.extend(bytes);
            body.resize(body.len().next_multiple_of(4), 0);
            body.extend(options.iter().flat_map(|(code, value)| pcapng_option(self.big_endian, *code, value)));
            self.block(ENHANCED_PACKET, &body)
        }
    }

    fn damage_of(file: &[u8]) -> (usize, Option<(u64, Damage)>) {
        let whole = crate::CaptureFile::from_bytes(file.to_vec(), "test").unwrap();
        let (mut records, mut found) = (0, None);
        for record in whole.records() {
            match record {
                Ok(_) => records += 1,
                Err(e) => match e.problem() {
                    crate::Problem::Damaged { offset, damage, .. } => found = Some((*offset, damage.clone())),
                    other => panic!("{other:?}"),
                },
            }
        }
        read_all(file);
        (records, found)
    }

    #[test]
    fn both_byte_orders_with_comments_and_flags() {
        for big_endian in [false, true] {
            let file = File::section(big_endian).interface(1, 0, &[]);
            let flags = file.u32(1);
            let file = file.packet(0, 1_000_000, b"abcde", &[(OPT_COMMENT, b"why"), (2, &flags)]);
            let read = read_all(&file.bytes);
            assert_eq!((read.error, read.metadata.format), (None, Some(Format::Pcapng)));
            let r = &read.records[0];
            assert_eq!(
                (r.time_ns, r.wire_len, &r.bytes[..], &r.comments[..]),
                (1_000_000_000, 15, &b"abcde"[..], &["why".to_owned()][..])
            );
            let whole = crate::CaptureFile::from_bytes(file.bytes, "test").unwrap();
            let record = whole.records().next().unwrap().unwrap();
            assert_eq!((record.packet_flags(), record.lost_before()), (Some(1), None));
        }
    }

    #[test]
    fn sections_of_either_order_each_with_their_own_interfaces() {
        let file = File::section(true)
            .interface(1, 0, &[(option::IF_TSRESOL, &[9])])
            .interface(247, 0, &[])
            .packet(1, 7, b"ib", &[])
            .packet(0, 7, b"eth", &[])
            .and_section(false)
            .interface(101, 0, &[])
            .packet(0, 7, b"ip", &[]);
        let read = read_all(&file.bytes);
        assert_eq!(read.error, None);
        let seen: Vec<_> = read.records.iter().map(|r| (r.interface, r.link_type.0, r.time_ns)).collect();
        assert_eq!(seen, [(1, 247, 7000), (0, 1, 7), (2, 101, 7000)]);
        let sections: Vec<_> =
            read.metadata.sections.iter().map(|s| (s.big_endian, s.first_interface, s.interfaces)).collect();
        assert_eq!(sections, [(true, 0, 2), (false, 2, 1)]);
        assert_eq!(read.metadata.interfaces[2].section, 1);
    }

    #[test]
    fn clocks_with_powers_of_two_and_offsets() {
        let offset = 100u64.to_le_bytes();
        let file = File::section(false)
            .interface(1, 0, &[(option::IF_TSRESOL, &[0x80 | 20])])
            .interface(1, 0, &[(option::IF_TSRESOL, &[3]), (option::IF_TSOFFSET, &offset)])
            .packet(0, 3 << 19, b"", &[])
            .packet(1, 1, b"", &[]);
        let times: Vec<_> = read_all(&file.bytes).records.iter().map(|r| r.time_ns).collect();
        assert_eq!(times, [1_500_000_000, 100_001_000_000]);
    }

    #[test]
    fn simple_and_old_packet_blocks() {
        for big_endian in [false, true] {
            let file = File::section(big_endian).interface(1, 3, &[]);
            let simple = [&file.u32(9)[..], b"abc\0"].concat();
            let old =
                [&file.u16(0)[..], &file.u16(4), &file.u32(0), &file.u32(1), &file.u32(2), &file.u32(60), b"xy\0\0"]
                    .concat();
            let read = read_all(&file.block(SIMPLE_PACKET, &simple).block(OLD_PACKET, &old).bytes);
            assert_eq!(read.error, None);
            let [s, o] = &read.records[..] else { panic!("two records") };
            assert_eq!((s.has_time, s.wire_len, &s.bytes[..]), (false, 9, &b"abc"[..]));
            assert_eq!((o.time_ns, o.wire_len, &o.bytes[..]), (1000, 60, &b"xy"[..]));
        }
    }

    #[test]
    fn names_are_kept_and_written_again() {
        let file = [
            (1u16, &[192, 0, 2, 1][..], &b"server\0server.example\0"[..]),
            (2, &[0x20, 1, 0xd, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1][..], b"six\0"),
            (9, b"abcd", b"what is this\0"),
        ];
        let mut body = Vec::new();
        for (kind, address, names) in file {
            body.extend_from_slice(&kind.to_le_bytes());
            body.extend_from_slice(&((address.len() + names.len()) as u16).to_le_bytes());
            body.extend_from_slice(&[address, names].concat());
            body.resize(body.len().next_multiple_of(4), 0);
        }
        body.extend_from_slice(&[0; 4]);
        let block = |body: &[u8]| {
            let len = (body.len() as u32 + 12).to_le_bytes();
            [&NAME_RESOLUTION.to_le_bytes()[..], &len, body, &len].concat()
        };
        let read = |bytes: &[u8]| {
            let mut metadata = Metadata::default();
            let block = Block { kind: NAME_RESOLUTION, bytes, big_endian: false };
            Pcapng::names(&block, &mut metadata).unwrap();
            metadata.names
        };
        let names = read(&block(&body));
        assert_eq!(names.iter().map(|n| n.name.as_str()).collect::<Vec<_>>(), ["server", "server.example", "six"]);
        assert_eq!((names[0].address.len(), names[2].address.len()), (4, 16));
        for cut in 0..body.len() {
            // each truncated block is read without a panic
            read(&block(&body[..cut]));
        }

        let mut writer = crate::PcapngWriter::new(Vec::new(), "names", &Section::default()).unwrap();
        for name in &names {
            writer.write_name(name).unwrap();
        }
        let written = writer.finish().unwrap();
        let at = written.windows(4).position(|w| w == NAME_RESOLUTION.to_le_bytes()).unwrap();
        let len = u32::from_le_bytes(written[at + 4..at + 8].try_into().unwrap()) as usize;
        assert_eq!(read(&written[at..at + len]), names[..1]);
    }

    #[test]
    fn statistics_and_secrets_are_kept_and_unknown_blocks_passed_over() {
        for big_endian in [false, true] {
            let file =
                File::section(big_endian).interface(1, 0, &[(option::IF_NAME, b"eth0"), (option::IF_FILTER, b"\0tcp")]);
            let mut statistics: Vec<u8> = [0, 0, 5].into_iter().flat_map(|v| file.u32(v)).collect();
            statistics.extend(pcapng_option(big_endian, option::ISB_IFDROP, &file.u64(7)));
            statistics.extend(pcapng_option(big_endian, option::ISB_STARTTIME, &[file.u32(1), file.u32(0)].concat()));
            let secrets = [&file.u32(Secrets::TLS_KEY_LOG)[..], &file.u32(5), b"key s\0\0\0"].concat();
            let file = file
                .block(DECRYPTION_SECRETS, &secrets)
                .block(4, &[0; 4])
                .block(0x0bad, &[1; 400])
                .block(0x8000_0001, &[])
                .block(INTERFACE_STATISTICS, &statistics)
                .packet(0, 0, b"", &[]);
            let read = read_all(&file.bytes);
            assert_eq!((read.error, read.records.len()), (None, 1));
            assert_eq!(read.metadata.secrets[0].data, b"key s");
            let i = &read.metadata.interfaces[0];
            assert_eq!((i.name.as_deref(), i.filter.as_deref()), (Some("eth0"), Some("tcp")));
            let s = i.statistics.unwrap();
            assert_eq!((s.dropped_by_interface, s.time_ns, s.start_ns), (Some(7), 5000, Some((1 << 32) * 1000)));
        }
    }

    #[test]
    fn damage_is_reported_with_its_offset_after_the_records_before_it() {
        let good = || File::section(false).interface(1, 0, &[]).packet(0, 0, b"abcd", &[]);
        let at = good().bytes.len();
        let with = |tail: &[u8]| damage_of(&[&good().bytes, tail].concat());

        let limit = (256 << 20) + ROOM_BESIDE_FRAME;
        let length = |found| Some((at as u64, Damage::BlockLength { kind: 6, found, least: 12, limit }));
        assert_eq!(with(&[6, 0, 0, 0, 33, 0, 0, 0]), (1, length(33)));
        assert_eq!(with(&[6, 0, 0, 0, 8, 0, 0, 0]), (1, length(8)));
        assert_eq!(with(&[6, 0, 0, 0, 0xfc, 0xff, 0xff, 0xff]), (1, length(0xffff_fffc)));

        let differ = Damage::BlockLengthsDiffer { kind: 7, first: 12, last: 16 };
        assert_eq!(with(&[7, 0, 0, 0, 12, 0, 0, 0, 16, 0, 0, 0]), (1, Some((at as u64, differ))));

        let unknown = Damage::UnknownInterface { found: 9, known: 1 };
        assert_eq!(damage_of(&good().packet(9, 0, b"", &[]).bytes), (1, Some((at as u64, unknown))));

        let mut lying = good().packet(0, 0, b"abcd", &[]).bytes;
        lying[at + 20] = 5;
        assert_eq!(damage_of(&lying), (1, Some((at as u64, Damage::CapturedBeyondBlock { found: 5, room: 4 }))));

        let cut = Damage::CutShort { what: "block header", needed: 12, left: 5 };
        assert_eq!(with(&[6, 0, 0, 0, 12]), (1, Some((at as u64, cut))));

        let magic = Damage::ByteOrderMagic(0x0101_0101);
        let section = pcapng_block(false, SECTION_HEADER, &[1; 16]);
        assert_eq!(with(&section), (1, Some((at as u64, magic))));
        let short = Damage::BlockLength { kind: 1, found: 16, least: 20, limit: u32::MAX };
        assert_eq!(damage_of(&good().block(INTERFACE_DESCRIPTION, &[0; 4]).bytes), (1, Some((at as u64, short))));
    }

    #[test]
    fn a_packet_before_any_interface_and_no_end_of_interfaces_are_refused() {
        assert_eq!(damage_of(&File::section(false).packet(0, 0, b"", &[]).bytes).0, 0);
        let many = File { bytes: File::section(false).bytes, big_endian: false };
        let one = pcapng_block(false, INTERFACE_DESCRIPTION, &[0; 8]);
        let bytes = [many.bytes, one.repeat(MAX_INTERFACES + 1)].concat();
        let whole = crate::CaptureFile::from_bytes(bytes, "test").unwrap();
        let message = whole.records().next().unwrap().unwrap_err().to_string();
        assert_eq!(message, "test: damaged at byte 1310748: more than 65536 interfaces");
    }

    #[test]
    fn by_offset_only_packets_are_found_and_in_their_section() {
        let file = File::section(false).interface(1, 0, &[]).packet(0, 0, b"abcd", &[]).and_section(true);
        let whole = crate::CaptureFile::from_bytes(file.bytes, "test").unwrap();
        let mut records = whole.records();
        let offset = records.next().unwrap().unwrap().offset;
        assert!(records.next().is_none());
        let metadata = records.metadata().clone();
        assert_eq!(whole.record_at(&metadata, offset).unwrap().bytes, b"abcd");
        for not in [0, 28, offset + 4, 1 << 40] {
            let message = whole.record_at(&metadata, not).unwrap_err().to_string();
            assert_eq!(message, format!("test: no record begins at byte {not}"));
        }
    }
}
