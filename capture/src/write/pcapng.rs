//! pcapng out: one section, little-endian, times in nanoseconds. Layouts are drawn in the reader's file, `pcapng.rs`.

use std::io::Write;
use std::path::{Path, PathBuf};

use super::{Out, Output, create};
use crate::error::Result;
use crate::metadata::{Interface, InterfaceStatistics, Metadata, Name, Section};
use crate::pcapng::{
    BYTE_ORDER_MAGIC, DECRYPTION_SECRETS, ENHANCED_PACKET, INTERFACE_DESCRIPTION, INTERFACE_STATISTICS,
    NAME_RESOLUTION, SECTION_HEADER, SIMPLE_PACKET, option,
};
use crate::record::{EPB_DROPCOUNT, EPB_FLAGS, OPT_COMMENT, Record};

/// `epb_packetid`.
const EPB_PACKETID: u16 = 5;
/// `epb_queue`.
const EPB_QUEUE: u16 = 6;
/// Longest frame accepted, in bytes; the most that a reader can be set to accept.
const MAX_FRAME_LEN: usize = 1 << 30;

/// Writes a pcapng file: several interfaces, comments, statistics, secrets.
pub struct PcapngWriter<W: Write> {
    out: Out<W>,
    /// Snaplens of the interfaces described.
    interfaces: Vec<u32>,
    secrets: usize,
    names: usize,
    /// The body of the block being made; kept for its room.
    block: Vec<u8>,
}

impl PcapngWriter<Output> {
    /// Creates the file at `path`; `-` is standard output. See [`PcapngWriter::new`].
    pub fn create(path: impl AsRef<Path>, section: &Section) -> Result<PcapngWriter<Output>> {
        PcapngWriter::new(create(path.as_ref())?, path.as_ref(), section)
    }
}

impl<W: Write> PcapngWriter<W> {
    /// Writes to any output; `name` is the path in errors. Hardware, OS, application and comments of `section` are
    /// written.
    pub fn new(output: W, name: impl Into<PathBuf>, section: &Section) -> Result<PcapngWriter<W>> {
        let mut writer = PcapngWriter {
            out: Out::new(output, name.into()),
            interfaces: Vec::new(),
            secrets: 0,
            names: 0,
            block: Vec::new(),
        };
        writer.begin(&[&BYTE_ORDER_MAGIC.to_le_bytes(), &[1, 0, 0, 0], &u64::MAX.to_le_bytes()]);
        writer.texts(&section.comments)?;
        writer.text(option::SHB_HARDWARE, section.hardware.as_deref())?;
        writer.text(option::SHB_OS, section.os.as_deref())?;
        writer.text(option::SHB_USERAPPL, section.application.as_deref())?;
        writer.end(SECTION_HEADER)?;
        Ok(writer)
    }

    /// Describes an interface and returns its number, counting from 0. Its clock is ignored: times are written in
    /// nanoseconds.
    pub fn add_interface(&mut self, interface: &Interface) -> Result<u32> {
        self.begin(&[&interface.link_type.0.to_le_bytes(), &[0, 0], &interface.snap_len.to_le_bytes()]);
        self.texts(&interface.comments)?;
        self.text(option::IF_NAME, interface.name.as_deref())?;
        self.text(option::IF_DESCRIPTION, interface.description.as_deref())?;
        self.text(option::IF_HARDWARE, interface.hardware.as_deref())?;
        self.text(option::IF_OS, interface.os.as_deref())?;
        if let Some(filter) = &interface.filter {
            self.option(option::IF_FILTER, &[&[0], filter.as_bytes()].concat())?;
        }
        if let Some(speed) = interface.speed {
            self.option(option::IF_SPEED, &speed.to_le_bytes())?;
        }
        if let Some(len) = interface.fcs_len {
            self.option(option::IF_FCSLEN, &[len])?;
        }
        self.option(option::IF_TSRESOL, &[9])?;
        self.end(INTERFACE_DESCRIPTION)?;
        self.interfaces.push(interface.snap_len);
        Ok(self.interfaces.len() as u32 - 1)
    }

    /// Interfaces described so far.
    pub fn described(&self) -> usize {
        self.interfaces.len()
    }

    /// Writes the parts of a source's `metadata` that this file does not have yet: interfaces, so that its records can
    /// be written unchanged, and secrets. To be called before the first record and whenever [`Metadata::revision`] has
    /// changed.
    pub fn catch_up(&mut self, metadata: &Metadata) -> Result<()> {
        for interface in metadata.interfaces.get(self.interfaces.len()..).unwrap_or(&[]) {
            self.add_interface(interface)?;
        }
        for name in metadata.names.get(self.names..).unwrap_or(&[]) {
            self.write_name(name)?;
        }
        for secrets in metadata.secrets.get(self.secrets..).unwrap_or(&[]) {
            self.write_secrets(secrets.kind, &secrets.data)?;
        }
        Ok(())
    }

    /// Appends a frame with its options. `DoesNotFit` if its interface was not described or its time is before 1970.
    pub fn write(&mut self, record: &Record<'_>) -> Result<()> {
        self.write_with_comments(record, &[])
    }

    /// Appends a frame with its options, then `comments`, each of at most 65,535 bytes.
    pub fn write_with_comments(&mut self, record: &Record<'_>, comments: &[&str]) -> Result<()> {
        let Some(&snap_len) = self.interfaces.get(record.interface as usize) else {
            let why =
                format!("a frame is of interface {}, and {} were described", record.interface, self.interfaces.len());
            return Err(self.out.does_not_fit(why));
        };
        let Ok(time) = u64::try_from(record.time_ns) else {
            return Err(self.out.does_not_fit(format!("a time of {} ns is before 1970", record.time_ns)));
        };
        if record.bytes.len() > MAX_FRAME_LEN {
            return Err(self.out.does_not_fit(format!("a frame of {} bytes", record.bytes.len())));
        }
        let captured = record.bytes.len() as u32;

        // Only a Simple Packet Block can express that there is no time. Its captured length follows from the other two.
        let snap_len = if snap_len == 0 { u32::MAX } else { snap_len };
        if !record.has_time()
            && record.interface == 0
            && record.options.is_empty()
            && comments.is_empty()
            && captured == record.wire_len.min(snap_len)
        {
            self.begin(&[&record.wire_len.to_le_bytes()]);
            return self.end_with(SIMPLE_PACKET, 4, record.bytes);
        }

        self.begin(&[
            &record.interface.to_le_bytes(),
            &((time >> 32) as u32).to_le_bytes(),
            &(time as u32).to_le_bytes(),
            &captured.to_le_bytes(),
            &record.wire_len.to_le_bytes(),
        ]);
        let options = record.options();
        let big_endian = options.big_endian();
        for o in options {
            match (o.code, o.value) {
                (EPB_FLAGS | EPB_QUEUE, &[a, b, c, d]) if big_endian => self.option(o.code, &[d, c, b, a])?,
                (EPB_DROPCOUNT | EPB_PACKETID, value) if big_endian => {
                    let reversed: Vec<u8> = value.iter().rev().copied().collect();
                    self.option(o.code, &reversed)?;
                }
                (code, value) => self.option(code, value)?,
            }
        }
        self.texts(comments)?;
        self.end_with(ENHANCED_PACKET, 20, record.bytes)
    }

    /// Writes the counters of an interface. Readers use the last block of an interface.
    pub fn write_statistics(&mut self, interface: u32, statistics: &InterfaceStatistics) -> Result<()> {
        self.write_statistics_with_comments(interface, statistics, &[])
    }

    /// The same, with comments of at most 65,535 bytes each.
    pub fn write_statistics_with_comments(
        &mut self,
        interface: u32,
        statistics: &InterfaceStatistics,
        comments: &[String],
    ) -> Result<()> {
        if interface as usize >= self.interfaces.len() {
            return Err(self.out.does_not_fit(format!("statistics of interface {interface}, which was not described")));
        }
        let halves = |ns: i64| {
            let ns = ns.max(0) as u64;
            [((ns >> 32) as u32).to_le_bytes(), (ns as u32).to_le_bytes()].concat()
        };
        self.begin(&[&interface.to_le_bytes(), &halves(statistics.time_ns)]);
        for (code, time) in [(option::ISB_STARTTIME, statistics.start_ns), (option::ISB_ENDTIME, statistics.end_ns)] {
            if let Some(ns) = time {
                self.option(code, &halves(ns))?;
            }
        }
        for (code, count) in [
            (option::ISB_IFRECV, statistics.received),
            (option::ISB_IFDROP, statistics.dropped_by_interface),
            (option::ISB_FILTERACCEPT, statistics.accepted_by_filter),
            (option::ISB_OSDROP, statistics.dropped_by_os),
            (option::ISB_USRDELIV, statistics.delivered),
        ] {
            if let Some(count) = count {
                self.option(code, &count.to_le_bytes())?;
            }
        }
        self.texts(comments)?;
        self.end(INTERFACE_STATISTICS)
    }

    /// Writes secrets; readers need them before the frames they decrypt. `kind` as in [`Secrets`](crate::Secrets).
    pub fn write_secrets(&mut self, kind: u32, data: &[u8]) -> Result<()> {
        if data.len() > MAX_FRAME_LEN {
            return Err(self.out.does_not_fit(format!("secrets of {} bytes", data.len())));
        }
        self.begin(&[&kind.to_le_bytes(), &(data.len() as u32).to_le_bytes()]);
        self.end_with(DECRYPTION_SECRETS, 8, data)?;
        self.secrets += 1;
        Ok(())
    }

    /// Appends a name of an address. `DoesNotFit` if the address is neither IPv4 nor IPv6, or the name is longer than a
    /// record can be.
    pub fn write_name(&mut self, name: &Name) -> Result<()> {
        let kind: u16 = match name.address.len() {
            4 => 1,
            16 => 2,
            n => return Err(self.out.does_not_fit(format!("a name of an address of {n} bytes"))),
        };
        let Ok(len) = u16::try_from(name.address.len() + name.name.len() + 1) else {
            return Err(self.out.does_not_fit(format!("a name of {} bytes", name.name.len())));
        };
        let mut records =
            [&kind.to_le_bytes()[..], &len.to_le_bytes(), &name.address, name.name.as_bytes(), &[0]].concat();
        records.resize(records.len().next_multiple_of(4) + 4, 0);
        self.begin(&[]);
        self.end_with(NAME_RESOLUTION, 0, &records)?;
        self.names += 1;
        Ok(())
    }

    /// Bytes written.
    pub fn written(&self) -> u64 {
        self.out.written
    }

    /// Hands everything to the operating system, as a live capture does so that others can follow.
    pub fn flush(&mut self) -> Result<()> {
        self.out.flush()
    }

    /// Writes buffered data and returns the output. Earlier errors that were not reported yet are returned here.
    pub fn finish(self) -> Result<W> {
        self.out.finish()
    }

    /// Begins a block's body with its fixed part.
    fn begin(&mut self, parts: &[&[u8]]) {
        self.block.clear();
        for part in parts {
            self.block.extend_from_slice(part);
        }
    }

    fn texts(&mut self, comments: &[impl AsRef<str>]) -> Result<()> {
        comments.iter().try_for_each(|c| self.option(OPT_COMMENT, c.as_ref().as_bytes()))
    }

    fn text(&mut self, code: u16, text: Option<&str>) -> Result<()> {
        text.map_or(Ok(()), |text| self.option(code, text.as_bytes()))
    }

    fn option(&mut self, code: u16, value: &[u8]) -> Result<()> {
        let Ok(len) = u16::try_from(value.len()) else {
            return Err(self.out.does_not_fit(format!("an option of {} bytes, where 65535 fit", value.len())));
        };
        self.block.extend_from_slice(&code.to_le_bytes());
        self.block.extend_from_slice(&len.to_le_bytes());
        self.block.extend_from_slice(value);
        self.block.resize(self.block.len().next_multiple_of(4), 0);
        Ok(())
    }

    fn end(&mut self, kind: u32) -> Result<()> {
        let fixed = self.block.len();
        self.end_with(kind, fixed, &[])
    }

    /// Writes the block: the first `fixed` bytes of its body, then `data` padded, then the rest of the body, which is
    /// options.
    fn end_with(&mut self, kind: u32, fixed: usize, data: &[u8]) -> Result<()> {
        let padding = &[0; 3][..data.len().next_multiple_of(4) - data.len()];
        // No closing opt_endofopt: according to the draft, the end of the block ends the options.
        let len = 12 + self.block.len() + data.len() + padding.len();
        let Ok(len) = u32::try_from(len) else {
            return Err(self.out.does_not_fit(format!("a block of {len} bytes")));
        };
        let mut head = [0; 8];
        head[..4].copy_from_slice(&kind.to_le_bytes());
        head[4..].copy_from_slice(&len.to_le_bytes());
        self.out.write(&head)?;
        self.out.write(&self.block[..fixed])?;
        self.out.write(data)?;
        self.out.write(padding)?;
        self.out.write(&self.block[fixed..])?;
        self.out.write(&len.to_le_bytes())
    }
}

#[cfg(test)]
mod tests {
    use std::io;

    use super::*;
    use crate::testing::read_all;
    use crate::{Clock, LinkType, Secrets};

    fn example() -> Vec<u8> {
        let section = Section {
            hardware: Some("a machine".to_owned()),
            os: Some("an OS".to_owned()),
            application: Some("rdmascope".to_owned()),
            comments: vec!["first".to_owned(), "sécond".to_owned()],
            ..Section::default()
        };
        let mut w = PcapngWriter::new(Vec::new(), "out", &section).unwrap();
        let eth0 = Interface {
            snap_len: 262_144,
            name: Some("eth0".to_owned()),
            filter: Some("udp port 4791".to_owned()),
            speed: Some(100_000_000_000),
            fcs_len: Some(4),
            comments: vec!["to the switch".to_owned()],
            ..Interface::new(LinkType::ETHERNET)
        };
        assert_eq!(w.add_interface(&eth0).unwrap(), 0);
        assert_eq!(w.add_interface(&Interface::new(LinkType::INFINIBAND)).unwrap(), 1);
        w.write_secrets(Secrets::TLS_KEY_LOG, b"CLIENT_RANDOM 1 2").unwrap();
        w.write_with_comments(
            &Record::new(1_700_000_000_123_456_789, 0, LinkType::ETHERNET, 90, b"12345"),
            &["look here", ""],
        )
        .unwrap();
        w.write(&Record::new(5, 1, LinkType::INFINIBAND, 4, b"1234")).unwrap();
        w.write(&Record { wire_len: 2, bytes: b"no", ..Record::EMPTY }).unwrap();
        let statistics = InterfaceStatistics {
            time_ns: 9,
            end_ns: Some(8),
            received: Some(70),
            dropped_by_os: Some(3),
            ..InterfaceStatistics::default()
        };
        w.write_statistics(0, &statistics).unwrap();
        let written = w.written();
        let file = w.finish().unwrap();
        assert_eq!(file.len() as u64, written);
        file
    }

    #[test]
    fn everything_written_is_read() {
        let read = read_all(&example());
        assert_eq!(read.error, None);
        let m = &read.metadata;
        assert_eq!(m.sections[0].comments, ["first", "sécond"]);
        assert_eq!(m.sections[0].application.as_deref(), Some("rdmascope"));
        assert_eq!(m.interfaces[0].name.as_deref(), Some("eth0"));
        assert_eq!(m.interfaces[0].filter.as_deref(), Some("udp port 4791"));
        assert_eq!(
            (m.interfaces[0].speed, m.interfaces[0].fcs_len, m.interfaces[0].clock),
            (Some(100_000_000_000), Some(4), Clock::NANOSECONDS)
        );
        let statistics = m.interfaces[0].statistics.unwrap();
        assert_eq!((statistics.time_ns, statistics.end_ns, statistics.received), (9, Some(8), Some(70)));
        assert_eq!(m.lost_frames(), 3);
        assert_eq!((m.secrets[0].kind, &m.secrets[0].data[..]), (Secrets::TLS_KEY_LOG, &b"CLIENT_RANDOM 1 2"[..]));
        assert_eq!(format!("{:?}", m.secrets[0]).matches("RANDOM").count(), 0);

        let [a, b, c] = &read.records[..] else { panic!("three records") };
        assert_eq!(
            (a.time_ns, a.interface, a.wire_len, &a.bytes[..]),
            (1_700_000_000_123_456_789, 0, 90, &b"12345"[..])
        );
        assert_eq!(a.comments, ["look here", ""]);
        assert_eq!((b.time_ns, b.link_type, b.comments.len()), (5, LinkType::INFINIBAND, 0));
        assert_eq!((c.has_time, &c.bytes[..]), (false, &b"no"[..]));
    }

    #[test]
    fn a_copy_of_a_file_reads_the_same() {
        let first = crate::CaptureFile::from_bytes(example(), "first").unwrap();
        let mut records = first.records();
        let mut w = PcapngWriter::new(Vec::new(), "copy", &Section::default()).unwrap();
        while let Some(record) = records.next() {
            w.catch_up(records.metadata()).unwrap();
            w.write(&record.unwrap()).unwrap();
        }
        let (a, b) = (read_all(&example()), read_all(&w.finish().unwrap()));
        let timeless = |e: &crate::testing::Everything| {
            e.records.iter().cloned().map(|r| crate::testing::Owned { offset: 0, ..r }).collect::<Vec<_>>()
        };
        assert_eq!(timeless(&a), timeless(&b));
        assert_eq!(a.metadata.secrets[0].data, b.metadata.secrets[0].data);
    }

    #[test]
    fn what_cannot_be_written_is_refused_before_a_byte_of_it_is() {
        let mut w = PcapngWriter::new(Vec::new(), "out", &Section::default()).unwrap();
        let before = w.written();
        assert!(
            w.write(&Record::new(0, 0, LinkType::ETHERNET, 0, b""))
                .unwrap_err()
                .to_string()
                .contains("interface 0, and 0 were described")
        );
        assert_eq!(w.written(), before);
        w.add_interface(&Interface::new(LinkType::ETHERNET)).unwrap();
        let before = w.written();
        assert!(w.write(&Record::new(-1, 0, LinkType::ETHERNET, 0, b"")).is_err());
        let long = "x".repeat(65_536);
        assert!(w.write_with_comments(&Record::new(0, 0, LinkType::ETHERNET, 0, b""), &[&long]).is_err());
        assert_eq!(w.written(), before);
    }

    /// A disk with room for this number of bytes.
    struct Disk(usize);

    impl Write for Disk {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            if self.0 == 0 {
                return Err(io::ErrorKind::StorageFull.into());
            }
            let n = bytes.len().min(self.0);
            self.0 -= n;
            Ok(n)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn a_full_disk_is_a_clear_error() {
        let w = PcapngWriter::new(Disk(10), "full.pcapng", &Section::default()).unwrap();
        let message = w.finish().err().unwrap().to_string();
        assert!(message.starts_with("full.pcapng: cannot be written at byte 28: "), "{message}");
        assert!(message.ends_with("; free some space or write elsewhere"), "{message}");
    }
}
