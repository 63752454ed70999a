//! Writing of classic pcap, little-endian. It has no room for the other data of pcapng.

use std::io::Write;
use std::path::{Path, PathBuf};

use super::{Out, Output, create};
use crate::LinkType;
use crate::error::Result;
use crate::pcap::{MAGIC_MICROSECONDS, MAGIC_NANOSECONDS};
use crate::record::Record;

/// Writes a pcap file: one link type, no comments.
pub struct PcapWriter<W: Write> {
    out: Out<W>,
    link_type: LinkType,
    ns_per_fraction: u32,
}

impl PcapWriter<Output> {
    /// Creates the file at `path`; `-` is standard output. See [`PcapWriter::new`].
    pub fn create(
        path: impl AsRef<Path>,
        link_type: LinkType,
        snap_len: u32,
        nanoseconds: bool,
    ) -> Result<PcapWriter<Output>> {
        PcapWriter::new(create(path.as_ref())?, path.as_ref(), link_type, snap_len, nanoseconds)
    }
}

impl<W: Write> PcapWriter<W> {
    /// Writes to any output; `name` is the path in errors. `snap_len` is in bytes; times are in nanoseconds, or cut to
    /// microseconds.
    pub fn new(
        output: W,
        name: impl Into<PathBuf>,
        link_type: LinkType,
        snap_len: u32,
        nanoseconds: bool,
    ) -> Result<PcapWriter<W>> {
        let mut out = Out::new(output, name.into());
        let magic = if nanoseconds { MAGIC_NANOSECONDS } else { MAGIC_MICROSECONDS };
        let mut header = [0; 24];
        header[0..4].copy_from_slice(&magic.to_le_bytes());
        header[4..8].copy_from_slice(&[2, 0, 4, 0]);
        header[16..20].copy_from_slice(&snap_len.to_le_bytes());
        header[20..24].copy_from_slice(&u32::from(link_type.0).to_le_bytes());
        out.write(&header)?;
        Ok(PcapWriter { out, link_type, ns_per_fraction: if nanoseconds { 1 } else { 1000 } })
    }

    /// Appends a frame. `DoesNotFit` for another link type, and for times before 1970 or after February 2106.
    pub fn write(&mut self, record: &Record<'_>) -> Result<()> {
        if record.link_type != self.link_type {
            let why = format!(
                "a pcap file holds one link type, here {}, and this frame has {}; use pcapng",
                self.link_type.0, record.link_type.0
            );
            return Err(self.out.does_not_fit(why));
        }
        let Ok(seconds) = u32::try_from(record.time_ns.div_euclid(1_000_000_000)) else {
            return Err(self
                .out
                .does_not_fit(format!("a time of {} ns since 1970 is too large for pcap", record.time_ns)));
        };
        let Ok(captured) = u32::try_from(record.bytes.len()) else {
            return Err(self.out.does_not_fit(format!("a frame of {} bytes is too long for pcap", record.bytes.len())));
        };
        let fraction = record.time_ns.rem_euclid(1_000_000_000) as u32 / self.ns_per_fraction;
        let mut header = [0; 16];
        header[0..4].copy_from_slice(&seconds.to_le_bytes());
        header[4..8].copy_from_slice(&fraction.to_le_bytes());
        header[8..12].copy_from_slice(&captured.to_le_bytes());
        header[12..16].copy_from_slice(&record.wire_len.to_le_bytes());
        self.out.write(&header)?;
        self.out.write(record.bytes)
    }

    /// Bytes written.
    pub fn written(&self) -> u64 {
        self.out.written
    }

    /// Hands everything to the operating system.
    pub fn flush(&mut self) -> Result<()> {
        self.out.flush()
    }

    /// Writes buffered data and returns the output. Earlier errors that were not reported yet are returned here.
    pub fn finish(self) -> Result<W> {
        self.out.finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::read_all;

    fn write(nanoseconds: bool, records: &[Record<'_>]) -> Result<Vec<u8>> {
        let mut w = PcapWriter::new(Vec::new(), "out", LinkType::ETHERNET, 65535, nanoseconds)?;
        for r in records {
            w.write(r)?;
        }
        w.finish()
    }

    #[test]
    fn what_is_written_is_read_and_microseconds_are_cut() {
        let record = Record::new(1_234_567_891, 0, LinkType::ETHERNET, 60, b"abc");
        for (nanoseconds, time) in [(true, 1_234_567_891), (false, 1_234_567_000)] {
            let read = read_all(&write(nanoseconds, &[record]).unwrap());
            assert_eq!(read.error, None);
            let r = &read.records[0];
            assert_eq!((r.time_ns, &r.bytes[..], r.wire_len, r.link_type), (time, &b"abc"[..], 60, LinkType::ETHERNET));
        }
    }

    #[test]
    fn what_pcap_cannot_say_is_refused() {
        let message = |r| write(true, &[r]).unwrap_err().to_string();
        assert!(
            message(Record::new(0, 0, LinkType::RAW, 0, b""))
                .contains("one link type, here 1, and this frame has 101; use pcapng")
        );
        assert!(message(Record::new(-1, 0, LinkType::ETHERNET, 0, b"")).contains("too large for pcap"));
        assert!(message(Record::new(i64::MAX, 0, LinkType::ETHERNET, 0, b"")).contains("too large for pcap"));
    }
}
