//! One step through a capture file, in any format: from the bytes of the next record to the layout of its parts.
//!
//! The same steps are taken over a mapped file and over a read buffer. Nothing here reads, allocates per record or
//! keeps bytes.

use crate::error::Damage;
use crate::metadata::{self, Metadata};
pub(crate) use crate::span::{Span, Step};
use crate::{foreign, pcap, pcapng};

/// Longest captured frame accepted by default, in bytes.
pub const DEFAULT_MAX_RECORD_LEN: u32 = 256 << 20;

/// The format of a file and its metadata so far.
#[derive(Debug, Clone)]
pub(crate) struct Walker {
    pub(crate) format: Format,
    pub(crate) metadata: Metadata,
    pub(crate) max_record_len: u32,
}

/// The format, with the state needed at every step.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Format {
    Pcap(pcap::Pcap),
    Pcapng(pcapng::Pcapng),
}

/// Type of a file, by its first bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Magic {
    Pcap,
    Pcapng,
    Gzip,
    /// zstd, lz4, or a skippable frame of either.
    Frames,
    /// A format of another tool, which is translated.
    Foreign(metadata::Format),
    Other,
}

impl Magic {
    /// Number of bytes needed to recognize the format.
    pub(crate) const LEN: usize = 4;

    pub(crate) fn of(bytes: &[u8]) -> Magic {
        let Some(first) = bytes.first_chunk::<4>() else { return Magic::Other };
        if pcap::Variant::of_magic(*first).is_some() {
            return Magic::Pcap;
        }
        match u32::from_le_bytes(*first) {
            // The same in both byte orders.
            pcapng::SECTION_HEADER => Magic::Pcapng,
            0xfd2f_b528 | 0x184d_2204 | 0x184c_2102 | 0x184d_2a50..=0x184d_2a5f => Magic::Frames,
            _ if first.starts_with(&[0x1f, 0x8b]) => Magic::Gzip,
            _ => foreign::of_magic(*first).map_or(Magic::Other, Magic::Foreign),
        }
    }
}

/// Limit on how far a walker may look ahead to distinguish variants of pcap that have the same magic.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum LookAhead {
    /// Not at all, since more bytes may arrive only later.
    No,
    /// As far as it needs.
    Yes,
    /// As far as it needs, and there is nothing after the bytes given.
    ToTheEnd,
}

/// The beginning of a file: a walker and the offset of the first record or block; or more bytes are needed.
pub(crate) enum Start {
    Ready(Box<Walker>, usize),
    More { what: &'static str, needed: usize },
}

impl Walker {
    /// Starts with the first bytes of a pcap or pcapng file, according to [`Magic::of`].
    pub(crate) fn start(bytes: &[u8], max_record_len: u32, ahead: LookAhead) -> Result<Start, Damage> {
        let mut metadata = Metadata::default();
        let (format, len) = if Magic::of(bytes) == Magic::Pcap {
            if bytes.len() < pcap::FILE_HEADER_LEN {
                return Ok(Start::More { what: "pcap file header", needed: pcap::FILE_HEADER_LEN });
            }
            let mut pcap = pcap::Pcap::start(bytes, max_record_len, &mut metadata)?;
            if ahead != LookAhead::No {
                let records = &bytes[pcap::FILE_HEADER_LEN..];
                if let Some(needed) = pcap.recognize_variant(records, ahead == LookAhead::ToTheEnd, &mut metadata) {
                    return Ok(Start::More { what: "packet record", needed: pcap::FILE_HEADER_LEN + needed });
                }
            }
            (Format::Pcap(pcap), pcap::FILE_HEADER_LEN)
        } else {
            metadata.format = Some(crate::metadata::Format::Pcapng);
            (Format::Pcapng(pcapng::Pcapng::default()), 0)
        };
        Ok(Start::Ready(Box::new(Walker { format, metadata, max_record_len }), len))
    }

    /// Looks at the record that `bytes` begin with, at `offset` in the file. `bytes` must not be empty.
    #[inline(always)]
    pub(crate) fn step(&mut self, bytes: &[u8], offset: u64) -> Result<Step, Damage> {
        match &mut self.format {
            Format::Pcap(pcap) => pcap.step(bytes),
            Format::Pcapng(pcapng) => pcapng.step(bytes, offset, self.max_record_len, &mut self.metadata),
        }
    }

    /// Looks again at a packet that was passed before. Changes nothing.
    pub(crate) fn packet_at(
        format: &Format,
        metadata: &Metadata,
        max: u32,
        bytes: &[u8],
        offset: u64,
    ) -> Result<Step, Damage> {
        match format {
            Format::Pcap(pcap) => pcap.step(bytes),
            Format::Pcapng(_) => pcapng::Pcapng::packet_at(bytes, offset, max, metadata),
        }
    }
}
