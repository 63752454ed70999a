//! Capture files of other tools, read in order and translated to pcapng: the rest of this crate knows only pcap and
//! pcapng.
//!
//! - ERF, the records of Endace's cards: ERF types reference guide. It has no magic, so its first records must make
//!   sense.
//! - snoop, of Solaris: RFC 1761.
//! - Network Monitor 1, 2 and 3, of Windows: its file header is `CAPTUREFILE_HEADER` of the Network Monitor SDK.
//! ```text
//! ERF              time 8 · type 1 · flags 1 · record length 2 · losses 2 · wire length 2 · [extensions 8 each] · bytes
//! snoop file       magic 8 · version 4 · link type 4                                                         big-endian
//! snoop record     wire length 4 · captured 4 · record length 4 · drops 4 · seconds 4 · microseconds 4 · bytes, padded
//! NetMon file      magic 4 · minor 1 · major 1 · link type 2 · time 16 · frame table offset 4 · length 4 · … to 128
//! NetMon 1 record  milliseconds 4 · wire length 2 · captured 2 · bytes
//! NetMon 2 record  microseconds 8 · wire length 4 · captured 4 · bytes · [2.1 on: link type 2 · process 4 · UTC 8 · zone 1]
//! ```
//! Memory: one record. Offsets in errors count in the file as it is; [`Record::offset`](crate::Record::offset) in what
//! is made of it.

use std::io::{self, BufReader, Read};

use crate::LinkType;
use crate::error::Damage;
use crate::inflate::Input;
use crate::metadata::Format;
use crate::pcapng::{BYTE_ORDER_MAGIC, ENHANCED_PACKET, INTERFACE_DESCRIPTION, SECTION_HEADER, option};
use crate::record::EPB_DROPCOUNT;

const READ_BUFFER: usize = 256 << 10;

/// `ERF_TYPE_PAD`: a record without content.
const ERF_PAD: u8 = 48;
/// `ERF_TYPE_META`.
const ERF_META: u8 = 27;
const ERF_HEADER_LEN: usize = 16;
/// Number of records that are checked to recognize ERF.
const ERF_RECORDS_TO_TELL: usize = 4;
/// Extension headers that a record of ERF may have.
const ERF_EXTENSIONS_MAX: usize = 16;

const NETMON_HEADER_LEN: usize = 128;
/// Link types from here on are those of pcap.
const NETMON_PCAP_BASE: u16 = 0xe000;
/// Link types from here on mark Network Monitor's own notes, not frames.
const NETMON_NOTES: u16 = 0xffe0;
/// Time from 1601-01-01, the beginning of Windows time, to 1970-01-01, in units of 100 ns.
const FILETIME_1970: u64 = 116_444_736_000_000_000;

/// Format of a file of another tool, by its first four bytes.
pub(crate) fn of_magic(first: [u8; 4]) -> Option<Format> {
    match &first {
        b"snoo" => Some(Format::Snoop),
        b"RTSS" => Some(Format::NetworkMonitor1),
        b"GMBU" => Some(Format::NetworkMonitor2),
        _ => None,
    }
}

/// Result of looking for records of ERF.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum ErfSearch {
    Yes,
    No,
    /// Number of bytes needed for a decision.
    More(usize),
}

/// Determines whether a file that begins with `bytes` is in ERF. `ended`: these are all of its bytes.
pub(crate) fn looks_like_erf(bytes: &[u8], ended: bool) -> ErfSearch {
    let mut at = 0;
    for seen in 0..ERF_RECORDS_TO_TELL {
        let rest = bytes.get(at..).unwrap_or(&[]);
        let Some(header) = rest.first_chunk::<ERF_HEADER_LEN>() else {
            return match (ended, rest.len()) {
                (false, _) => ErfSearch::More(at + ERF_HEADER_LEN),
                // To the byte, or cut after some records that were right.
                (true, 0) if seen > 0 => ErfSearch::Yes,
                (true, _) if seen > 1 => ErfSearch::Yes,
                (true, _) => ErfSearch::No,
            };
        };
        let (kind, flags) = (header[8] & 0x7f, header[9]);
        let (len, wire_len) = (half(header, 10), half(header, 14));
        let is_ethernet = matches!(kind, 2 | 11 | 16 | 20);
        let least = ERF_HEADER_LEN + usize::from(header[8] >> 7) * 8 + usize::from(is_ethernet) * 2;
        let is_known = matches!(kind, 1..=29) || (kind == ERF_PAD && seen > 0);
        // A record is not much longer than its frame, unless it is of another nature.
        let is_too_long = is_ethernet && usize::from(len) > least + usize::from(wire_len) + ERF_EXTENSIONS_MAX * 8 + 64;
        if !is_known || flags & 0xc0 != 0 || usize::from(len) < least || is_too_long {
            return ErfSearch::No;
        }
        at += usize::from(len);
        if at > bytes.len() && ended {
            return if seen > 0 { ErfSearch::Yes } else { ErfSearch::No };
        }
    }
    ErfSearch::Yes
}

/// Translates `input`, a file of `format`, to pcapng.
pub(crate) fn translate(format: Format, input: Input, max_record_len: u32) -> Input {
    let input = Reader { inner: BufReader::with_capacity(READ_BUFFER, input), offset: 0, max: max_record_len };
    let records = match format {
        Format::Snoop => Records::Snoop(Snoop::default()),
        Format::NetworkMonitor1 | Format::NetworkMonitor2 => Records::NetMon(NetMon::default()),
        _ => Records::Erf,
    };
    let mut out = Vec::new();
    let section = [&BYTE_ORDER_MAGIC.to_le_bytes()[..], &[1, 0, 0, 0], &u64::MAX.to_le_bytes()].concat();
    block(&mut out, SECTION_HEADER, &[&section]);
    Box::new(Translated { input, records, frame: Frame::default(), interfaces: Vec::new(), out, at: 0, ended: false })
}

/// A frame during translation.
#[derive(Default)]
struct Frame {
    /// Nanoseconds since 1970.
    time_ns: u64,
    link_type: u16,
    /// Number of the interface, on a card with several.
    port: u8,
    wire_len: u32,
    /// Frames lost before it.
    lost: u64,
    bytes: Vec<u8>,
}

struct Translated {
    input: Reader,
    records: Records,
    frame: Frame,
    /// Link types and ports that were described.
    interfaces: Vec<(u16, u8)>,
    /// pcapng, of which the bytes before `at` were given.
    out: Vec<u8>,
    at: usize,
    ended: bool,
}

enum Records {
    Erf,
    Snoop(Snoop),
    NetMon(NetMon),
}

impl Read for Translated {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        while self.at == self.out.len() {
            if self.ended {
                return Ok(0);
            }
            (self.at, self.ended) = (0, true);
            self.out.clear();
            let found = match &mut self.records {
                Records::Erf => erf(&mut self.input, &mut self.frame)?,
                Records::Snoop(snoop) => snoop.next(&mut self.input, &mut self.frame)?,
                Records::NetMon(netmon) => netmon.next(&mut self.input, &mut self.frame)?,
            };
            self.ended = !found;
            if found {
                self.give();
            }
        }
        let n = buffer.len().min(self.out.len() - self.at);
        buffer[..n].copy_from_slice(&self.out[self.at..self.at + n]);
        self.at += n;
        Ok(n)
    }
}

impl Translated {
    /// Makes a block of the frame, and one of its interface if it is new.
    fn give(&mut self) {
        let Frame { time_ns, link_type, port, wire_len, lost, .. } = self.frame;
        let number = self.interfaces.iter().position(|i| *i == (link_type, port)).unwrap_or_else(|| {
            self.interfaces.push((link_type, port));
            let head = [&link_type.to_le_bytes()[..], &[0; 6]].concat();
            let name = format!("port {port}");
            let mut options = Vec::new();
            if matches!(self.records, Records::Erf) {
                options.extend(
                    [&option::IF_NAME.to_le_bytes()[..], &(name.len() as u16).to_le_bytes(), name.as_bytes()].concat(),
                );
                options.resize(options.len().next_multiple_of(4), 0);
            }
            options.extend([&option::IF_TSRESOL.to_le_bytes()[..], &[1, 0, 9, 0, 0, 0]].concat());
            block(&mut self.out, INTERFACE_DESCRIPTION, &[&head, &options]);
            self.interfaces.len() - 1
        });
        let captured = self.frame.bytes.len() as u32;
        let mut head = Vec::with_capacity(20);
        for word in [number as u32, (time_ns >> 32) as u32, time_ns as u32, captured, wire_len] {
            head.extend(word.to_le_bytes());
        }
        let padding = &[0; 3][..self.frame.bytes.len().next_multiple_of(4) - self.frame.bytes.len()];
        let mut drops = Vec::new();
        if lost > 0 {
            drops.extend([&EPB_DROPCOUNT.to_le_bytes()[..], &[8, 0], &lost.to_le_bytes()].concat());
        }
        block(&mut self.out, ENHANCED_PACKET, &[&head, &self.frame.bytes, padding, &drops]);
    }
}

/// Appends a pcapng block.
fn block(out: &mut Vec<u8>, kind: u32, parts: &[&[u8]]) {
    let len = (parts.iter().map(|p| p.len()).sum::<usize>() + 12) as u32;
    out.extend(kind.to_le_bytes());
    out.extend(len.to_le_bytes());
    parts.iter().for_each(|p| out.extend_from_slice(p));
    out.extend(len.to_le_bytes());
}

/// A reader that counts its offset in the file.
struct Reader {
    inner: BufReader<Input>,
    offset: u64,
    /// Longest frame accepted, in bytes.
    max: u32,
}

/// Damage in a file of another tool, with its offset. It is the content of the [`io::Error`] that `Read` returns.
#[derive(Debug, thiserror::Error)]
#[error("{damage}")]
pub(crate) struct Broken {
    /// In bytes from the start of the file.
    pub(crate) offset: u64,
    pub(crate) damage: Damage,
}

#[cold]
fn broken(offset: u64, damage: Damage) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, Broken { offset, damage })
}

impl Reader {
    /// Fills `buffer`. `false` if the file ends before its first byte.
    fn fill(&mut self, buffer: &mut [u8], what: &'static str) -> io::Result<bool> {
        let (start, mut have) = (self.offset, 0);
        while have < buffer.len() {
            match self.inner.read(&mut buffer[have..]) {
                Ok(0) if have == 0 => return Ok(false),
                Ok(0) => {
                    return Err(broken(
                        start,
                        Damage::CutShort { what, needed: buffer.len() as u64, left: have as u64 },
                    ));
                }
                Ok(n) => {
                    have += n;
                    self.offset += n as u64;
                }
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) => return Err(e),
            }
        }
        Ok(true)
    }

    /// Fills `buffer`, of a record that has begun at `start`.
    fn rest(&mut self, buffer: &mut [u8], start: u64) -> io::Result<()> {
        let needed = self.offset - start + buffer.len() as u64;
        if buffer.is_empty() || self.fill(buffer, "packet record")? {
            return Ok(());
        }
        Err(broken(start, Damage::CutShort { what: "packet record", needed, left: self.offset - start }))
    }

    /// Appends `len` bytes of a record that began at `start`: memory grows with the existing bytes, not with the
    /// claimed length.
    fn take(&mut self, bytes: &mut Vec<u8>, len: u32, start: u64) -> io::Result<()> {
        if len > self.max {
            return Err(broken(start, Damage::RecordTooLong { found: len, limit: self.max }));
        }
        let needed = self.offset - start + u64::from(len);
        let n = (&mut self.inner).take(u64::from(len)).read_to_end(bytes)?;
        self.offset += n as u64;
        if n < len as usize {
            return Err(broken(start, Damage::CutShort { what: "packet record", needed, left: self.offset - start }));
        }
        Ok(())
    }

    /// Passes over `len` bytes.
    fn skip(&mut self, len: u64, start: u64) -> io::Result<()> {
        let n = io::copy(&mut (&mut self.inner).take(len), &mut io::sink())?;
        self.offset += n;
        if n < len {
            let needed = self.offset - n - start + len;
            return Err(broken(start, Damage::CutShort { what: "packet record", needed, left: self.offset - start }));
        }
        Ok(())
    }
}

fn half(bytes: &[u8], at: usize) -> u16 {
    bytes.get(at..at + 2).map_or(0, |b| u16::from_be_bytes([b[0], b[1]]))
}

fn half_le(bytes: &[u8], at: usize) -> u16 {
    half(bytes, at).swap_bytes()
}

fn word(bytes: &[u8], at: usize) -> u32 {
    bytes.get(at..at + 4).map_or(0, |b| u32::from_be_bytes([b[0], b[1], b[2], b[3]]))
}

fn word_le(bytes: &[u8], at: usize) -> u32 {
    word(bytes, at).swap_bytes()
}

/// The next record of ERF, as LINKTYPE_ERF has it: with its headers, without padding.
fn erf(input: &mut Reader, frame: &mut Frame) -> io::Result<bool> {
    loop {
        let start = input.offset;
        let mut header = [0; ERF_HEADER_LEN];
        if !input.fill(&mut header, "packet record header")? {
            return Ok(false);
        }
        let (kind, len, wire_len) = (header[8] & 0x7f, usize::from(half(&header, 10)), half(&header, 14));
        let Some(content) = len.checked_sub(ERF_HEADER_LEN) else {
            return Err(broken(
                start,
                Damage::RecordLength { what: "ERF", found: len as u32, least: ERF_HEADER_LEN as u32 },
            ));
        };
        if kind == ERF_PAD {
            input.skip(content as u64, start)?;
            continue;
        }
        frame.bytes.clear();
        frame.bytes.extend_from_slice(&header);
        input.take(&mut frame.bytes, content as u32, start)?;
        let mut headers = ERF_HEADER_LEN;
        let mut more = header[8] >> 7 != 0;
        while let Some(first) = frame.bytes.get(headers).filter(|_| more) {
            more = first >> 7 != 0;
            headers += 8;
        }
        if matches!(kind, 2 | 11 | 16 | 20) {
            headers += 2;
        }
        let whole = headers + usize::from(wire_len);
        if kind != ERF_META {
            frame.bytes.truncate(whole);
        }
        let stamp = u64::from(word_le(&header, 4)) << 32 | u64::from(word_le(&header, 0));
        frame.time_ns = (stamp >> 32) * 1_000_000_000 + (((stamp & 0xffff_ffff) * 1_000_000_000) >> 32);
        frame.link_type = LinkType::ERF.0;
        frame.port = header[9] & 0x03;
        // In records with a colour the counter is the colour.
        frame.lost = if matches!(kind, 2 | 21 | 22 | 23 | 25) { u64::from(half(&header, 12)) } else { 0 };
        frame.wire_len = if kind == ERF_META { frame.bytes.len() as u32 } else { whole as u32 };
        return Ok(true);
    }
}

#[derive(Default)]
struct Snoop {
    begun: bool,
    /// Frames dropped since the capture began, at the last record.
    dropped: u32,
}

impl Snoop {
    const HEADER_LEN: u32 = 24;

    fn next(&mut self, input: &mut Reader, frame: &mut Frame) -> io::Result<bool> {
        let start = input.offset;
        if !self.begun {
            let mut header = [0; 16];
            if !input.fill(&mut header, "snoop file header")? {
                return Ok(false);
            }
            let (version, link_type) = (word(&header, 8), word(&header, 12));
            if version != 2 {
                return Err(broken(start, Damage::Version { format: "snoop", major: version as u16, minor: 0 }));
            }
            // RFC 1761, "Datalink Type": 4 is Ethernet, 0 is IEEE 802.3.
            if !matches!(link_type, 0 | 4) {
                return Err(broken(start, Damage::LinkType { format: "snoop", found: link_type }));
            }
            self.begun = true;
        }
        let start = input.offset;
        let mut header = [0; Snoop::HEADER_LEN as usize];
        if !input.fill(&mut header, "packet record header")? {
            return Ok(false);
        }
        let [wire_len, captured, len, dropped, seconds, micro] = [0, 4, 8, 12, 16, 20].map(|at| word(&header, at));
        if captured > input.max {
            return Err(broken(start, Damage::RecordTooLong { found: captured, limit: input.max }));
        }
        let Some(padding) = len.checked_sub(Snoop::HEADER_LEN).and_then(|l| l.checked_sub(captured)) else {
            return Err(broken(
                start,
                Damage::RecordLength { what: "snoop", found: len, least: Snoop::HEADER_LEN + captured },
            ));
        };
        frame.bytes.clear();
        input.take(&mut frame.bytes, captured, start)?;
        input.skip(u64::from(padding), start)?;
        frame.time_ns = u64::from(seconds) * 1_000_000_000 + u64::from(micro) * 1000;
        frame.link_type = LinkType::ETHERNET.0;
        frame.wire_len = wire_len;
        frame.lost = u64::from(dropped.saturating_sub(self.dropped));
        self.dropped = dropped;
        Ok(true)
    }
}

#[derive(Default)]
struct NetMon {
    begun: bool,
    /// Major version, and minor.
    version: (u8, u8),
    link_type: u16,
    /// When the capture began: nanoseconds since 1970. It has no zone; it is taken as UTC.
    start_ns: u64,
    /// Frames to come.
    frames: u32,
}

impl NetMon {
    fn begin(&mut self, input: &mut Reader) -> io::Result<()> {
        let mut header = [0; NETMON_HEADER_LEN];
        let start = input.offset;
        if !input.fill(&mut header, "Network Monitor file header")? {
            return Ok(());
        }
        self.version = (header[5], header[4]);
        let expected = if header.starts_with(b"RTSS") { 1 } else { 2 };
        if self.version.0 != expected {
            let (major, minor) = (u16::from(header[5]), u16::from(header[4]));
            return Err(broken(start, Damage::Version { format: "Network Monitor", major, minor }));
        }
        self.link_type = half_le(&header, 6);
        let [year, month, _, day, hour, minute, second, milli] =
            [8, 10, 12, 14, 16, 18, 20, 22].map(|at| u64::from(half_le(&header, at)));
        self.start_ns = since_1970(year, month, day)
            .saturating_add(hour * 3600 + minute * 60 + second)
            .saturating_mul(1_000_000_000)
            .saturating_add(milli * 1_000_000);
        self.frames = word_le(&header, 28) / 4;
        self.begun = true;
        Ok(())
    }

    /// Converts a link type of Network Monitor to that of pcap; `None` if it does not mark frames.
    fn link_type(found: u16) -> Option<u16> {
        match found {
            1 => Some(LinkType::ETHERNET.0),
            4 | 7 | 8 | 9 => Some(LinkType::RAW.0),
            NETMON_NOTES.. => None,
            NETMON_PCAP_BASE.. => Some(found - NETMON_PCAP_BASE),
            // LINKTYPE_USER0: shown as bytes.
            _ => Some(147),
        }
    }

    fn next(&mut self, input: &mut Reader, frame: &mut Frame) -> io::Result<bool> {
        if !self.begun {
            self.begin(input)?;
        }
        while self.frames > 0 {
            self.frames -= 1;
            let start = input.offset;
            let is_first = self.version.0 == 1;
            let mut header = [0; 16];
            let header = &mut header[..if is_first { 8 } else { 16 }];
            input.rest(header, start)?;
            let (passed_ns, wire_len, captured) = if is_first {
                (
                    u64::from(word_le(header, 0)).saturating_mul(1_000_000),
                    u32::from(half_le(header, 4)),
                    u32::from(half_le(header, 6)),
                )
            } else {
                let passed = u64::from(word_le(header, 4)) << 32 | u64::from(word_le(header, 0));
                (passed.saturating_mul(1000), word_le(header, 8), word_le(header, 12))
            };
            frame.bytes.clear();
            input.take(&mut frame.bytes, captured, start)?;
            frame.time_ns = self.start_ns.saturating_add(passed_ns);
            frame.wire_len = wire_len;
            let mut link_type = self.link_type;
            // The trailer of a frame grew: a link type in 2.1, a process in 2.2, an absolute time in 2.3.
            let after = match self.version {
                (2, 1) => 2,
                (2, 2) => 6,
                (2, 3..) => 15,
                _ => 0,
            };
            let mut trailer = [0; 15];
            input.rest(&mut trailer[..after], start)?;
            if after >= 2 {
                link_type = half_le(&trailer, 0);
            }
            if after == 15 {
                let ticks = u64::from(word_le(&trailer, 10)) << 32 | u64::from(word_le(&trailer, 6));
                frame.time_ns = ticks.saturating_sub(FILETIME_1970).saturating_mul(100);
            }
            if let Some(link_type) = NetMon::link_type(link_type) {
                frame.link_type = link_type;
                return Ok(true);
            }
        }
        // The table of frames and other notes of Network Monitor follow.
        Ok(false)
    }
}

/// Seconds from 1970-01-01 to a day of the Gregorian calendar; 0 if it is not a valid day.
fn since_1970(year: u64, month: u64, day: u64) -> u64 {
    if !(1970..=9999).contains(&year) || !(1..=12).contains(&month) || !(1..=31).contains(&day) {
        return 0;
    }
    // years that begin in March, so that the leap day comes last
    let (y, m) = if month > 2 { (year, month - 3) } else { (year - 1, month + 9) };
    let days = 365 * y + y / 4 - y / 100 + y / 400 + (153 * m + 2) / 5 + day - 1;
    (days - 719_468) * 86_400
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{Everything, drain};
    use crate::{Source, StreamSource};

    fn read(file: &[u8]) -> Everything {
        drain(&mut StreamSource::new(io::Cursor::new(file.to_vec()), "test"))
    }

    fn erf_record(kind: u8, flags: u8, losses: u16, extensions: &[u8], wire_len: u16, bytes: &[u8]) -> Vec<u8> {
        let len = (ERF_HEADER_LEN + extensions.len() + bytes.len()) as u16;
        let seconds = 1_700_000_000u32.to_le_bytes();
        let half_second = 0x8000_0000u32.to_le_bytes();
        let head = [
            &half_second[..],
            &seconds,
            &[kind, flags],
            &len.to_be_bytes(),
            &losses.to_be_bytes(),
            &wire_len.to_be_bytes(),
        ];
        [&head.concat()[..], extensions, bytes].concat()
    }

    fn erf_file() -> Vec<u8> {
        let frame = [&[0, 0][..], b"an Ethernet frame", &[0; 5]].concat();
        let extension = [0x83, 1, 2, 3, 4, 5, 6, 7, 0x03, 1, 2, 3, 4, 5, 6, 7];
        [
            erf_record(2, 0x04, 0, &[], 17, &frame),
            erf_record(ERF_PAD, 0, 0, &[], 0, &[0; 16]),
            erf_record(2 | 0x80, 0x05, 3, &extension, 1500, &frame),
            erf_record(21, 0x04, 0, &[], 8, b"an IB.. "),
        ]
        .concat()
    }

    #[test]
    fn erf_gives_its_records_with_their_time_their_port_and_their_losses() {
        let read = read(&erf_file());
        assert_eq!((read.error, read.metadata.format), (None, Some(Format::Erf)));
        let [a, b, c] = &read.records[..] else { panic!("three frames") };
        assert_eq!(
            (a.time_ns, a.link_type, a.bytes.len(), a.wire_len),
            (1_700_000_000_500_000_000, LinkType::ERF, 35, 35)
        );
        assert_eq!((b.bytes.len(), b.wire_len, b.interface), (16 + 16 + 24, 16 + 16 + 2 + 1500, 1));
        assert_eq!((c.bytes.len(), c.interface), (24, 0));
        assert_eq!(read.metadata.interfaces[1].name.as_deref(), Some("port 1"));
        let mut source = StreamSource::new(io::Cursor::new(erf_file()), "test");
        let mut losses = Vec::new();
        while let Some(record) = source.next().unwrap() {
            losses.push(record.lost_before());
        }
        assert_eq!(losses, [None, Some(3), None]);
    }

    #[test]
    fn a_cut_file_of_erf_gives_what_is_whole() {
        let whole = erf_file();
        for cut in [whole.len() - 1, whole.len() - 20] {
            let read = read(&whole[..cut]);
            let error = read.error.unwrap();
            assert!(
                error.starts_with(&format!(
                    "test: damaged at byte {}: the file ends inside a packet record",
                    whole.len() - 24
                )),
                "{error}"
            );
            assert_eq!(read.records.len(), 2);
        }
    }

    #[test]
    fn what_is_not_erf_is_not_taken_for_it() {
        assert_eq!(looks_like_erf(b"some text\nthat goes on for a while, more than a header", true), ErfSearch::No);
        assert_eq!(looks_like_erf(&[0; 200], true), ErfSearch::No);
        assert_eq!(looks_like_erf(&[0xff; 200], true), ErfSearch::No);
        assert_eq!(looks_like_erf(&[], true), ErfSearch::No);
        assert_eq!(looks_like_erf(&erf_file()[..20], false), ErfSearch::More(56));
        let one = erf_record(2, 4, 0, &[], 10, &[0; 12]);
        assert_eq!(looks_like_erf(&one, true), ErfSearch::Yes);
        assert_eq!(looks_like_erf(&one[..one.len() - 1], true), ErfSearch::No);
    }

    #[test]
    fn snoop_gives_its_frames_and_what_was_dropped_before_them() {
        let words = |w: &[u32]| w.iter().flat_map(|w| w.to_be_bytes()).collect::<Vec<u8>>();
        let file = [
            b"snoop\0\0\0".to_vec(),
            words(&[2, 4, 60, 6, 32, 0, 1_700_000_000, 7]),
            b"sixtee\0\0".to_vec(),
            words(&[4, 4, 28, 5, 1_700_000_001, 0]),
            b"four".to_vec(),
        ]
        .concat();
        let all = read(&file);
        assert_eq!((all.error, all.metadata.format), (None, Some(Format::Snoop)));
        let seen: Vec<_> = all.records.iter().map(|r| (r.time_ns, r.wire_len, &r.bytes[..])).collect();
        assert_eq!(seen, [(1_700_000_000_000_007_000, 60, &b"sixtee"[..]), (1_700_000_001_000_000_000, 4, b"four")]);
        assert_eq!(all.records[0].link_type, LinkType::ETHERNET);

        let mut token_ring = file.clone();
        token_ring[15] = 2;
        assert_eq!(
            read(&token_ring).error.unwrap(),
            "test: damaged at byte 0: snoop link type 2 is not read; only Ethernet is"
        );
        let mut lying = file.clone();
        lying[27] = 20;
        assert_eq!(
            read(&lying).error.unwrap(),
            "test: damaged at byte 16: a snoop record claims a length of 20 bytes, expected at least 30"
        );
        for cut in 8..file.len() {
            read(&file[..cut]);
        }
    }

    #[test]
    fn network_monitor_gives_its_frames_in_all_versions() {
        let mut header = vec![0; NETMON_HEADER_LEN];
        // 2023-11-14 22:13:20.500
        for (at, value) in
            [(6, 1u16), (8, 2023), (10, 11), (12, 2), (14, 14), (16, 22), (18, 13), (20, 20), (22, 500), (28, 8)]
        {
            header[at..at + 2].copy_from_slice(&value.to_le_bytes());
        }
        let start = 1_700_000_000_500_000_000;
        let first = |bytes: &[u8]| [&[3, 0, 0, 0, 60, 0, bytes.len() as u8, 0], bytes].concat();
        let second =
            |bytes: &[u8]| [&[9, 0, 0, 0, 0, 0, 0, 0, 60, 0, 0, 0, bytes.len() as u8, 0, 0, 0], bytes].concat();
        let stamp = (FILETIME_1970 + 7).to_le_bytes();
        let trailer = [&[0x00, 0xe0, 0, 0, 0, 0][..], &stamp, &[0]].concat();
        for (magic, version, records, times, link_type) in [
            (b"RTSS", [1, 1], [first(b"abc"), first(b"d")].concat(), [start + 3_000_000; 2], 1),
            (b"GMBU", [0, 2], [second(b"abc"), second(b"d")].concat(), [start + 9_000; 2], 1),
            (
                b"GMBU",
                [1, 2],
                [second(b"abc"), vec![9, 0], second(b"d"), vec![0xfd, 0xff]].concat(),
                [start + 9_000; 2],
                101,
            ),
            (b"GMBU", [3, 2], [second(b"abc"), trailer.clone(), second(b"d"), trailer.clone()].concat(), [700; 2], 0),
        ] {
            let mut file = header.clone();
            file[..4].copy_from_slice(magic);
            file[4..6].copy_from_slice(&version);
            file.extend_from_slice(&records);
            file.extend([0xaa; 8]);
            let all = read(&file);
            assert_eq!(all.error, None, "{version:?}");
            let seen: Vec<_> = all.records.iter().map(|r| (r.time_ns, r.link_type.0, &r.bytes[..])).collect();
            let expected = [(times[0], link_type, &b"abc"[..]), (times[1], link_type, b"d")];
            // Network Monitor's notes are not frames.
            assert_eq!(seen, expected[..if version == [1, 2] { 1 } else { 2 }], "{version:?}");
            for cut in 4..file.len() {
                read(&file[..cut]);
            }
        }
    }

    #[test]
    fn days_are_counted_as_the_calendar_has_them() {
        assert_eq!(since_1970(1970, 1, 1), 0);
        assert_eq!(since_1970(2024, 2, 29), 1_709_164_800);
        assert_eq!(since_1970(2000, 3, 1), 951_868_800);
        assert_eq!(since_1970(0, 0, 0), 0);
    }
}
