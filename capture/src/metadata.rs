//! Metadata of a capture file: sections, interfaces, statistics, secrets. The amount of each is bounded.
//!
//! Spec: pcapng draft, sections 4.1 (section header), 4.2 (interface), 4.6 (statistics), 4.7 (secrets).

use crate::LinkType;
use crate::hardware::Hardware;

/// Most interfaces accepted in one file.
pub const MAX_INTERFACES: usize = 1 << 16;
/// Most sections accepted in one file.
pub const MAX_SECTIONS: usize = 1 << 16;
/// Most bytes of comments, names and secrets kept of one file; [`Metadata::not_kept`] counts the rest.
pub const MAX_KEPT_BYTES: usize = 64 << 20;

/// Overhead that is counted for each piece, in bytes, so that many small ones cannot take more memory than a few big
/// ones.
const COST_OF_A_PIECE: usize = 64;

/// Everything that a source knows about its file besides the frames. It grows while the file is read.
#[derive(Debug, Clone, Default)]
pub struct Metadata {
    /// Container format of the file, once its first bytes were seen.
    pub format: Option<Format>,
    /// Sections in file order. A pcap file has one.
    pub sections: Vec<Section>,
    /// Interfaces of all sections in file order; [`Record::interface`](crate::Record::interface) is an index into this.
    pub interfaces: Vec<Interface>,
    /// Decryption secrets in file order.
    pub secrets: Vec<Secrets>,
    /// Names of addresses in file order.
    pub names: Vec<Name>,
    /// Counters of RDMA devices meanwhile.
    pub hardware: Hardware,
    /// Pieces of metadata (comments, names, secrets) left out because [`MAX_KEPT_BYTES`] was reached.
    pub not_kept: u64,
    /// Increases with every change, so that a copy can detect that it is stale.
    pub revision: u64,
    pub(crate) kept_bytes: usize,
}

impl Metadata {
    /// Takes `len` bytes from the budget, or counts one piece left out.
    pub(crate) fn may_keep(&mut self, len: usize) -> bool {
        let cost = len.saturating_add(COST_OF_A_PIECE);
        let fits = cost <= MAX_KEPT_BYTES - self.kept_bytes;
        if fits {
            self.kept_bytes += cost;
        } else {
            self.not_kept += 1;
        }
        fits
    }

    /// Keeps a text, lossily decoded from UTF-8, within the budget. `None` also for an empty one.
    pub(crate) fn keep_text(&mut self, value: &[u8]) -> Option<String> {
        // Lossy decoding makes at most three bytes from one.
        (!value.is_empty() && self.may_keep(value.len() * 3))
            .then(|| String::from_utf8_lossy(value).trim_end_matches('\0').to_owned())
    }

    /// The section that holds the block at `offset`.
    pub(crate) fn section_at(&self, offset: u64) -> Option<&Section> {
        let after = self.sections.partition_point(|s| s.offset <= offset);
        self.sections.get(after.checked_sub(1)?)
    }

    /// Frames lost by all interfaces, according to statistics: dropped by interfaces and by the operating system.
    pub fn lost_frames(&self) -> u64 {
        let lost =
            |s: &InterfaceStatistics| s.dropped_by_interface.unwrap_or(0).saturating_add(s.dropped_by_os.unwrap_or(0));
        self.interfaces.iter().filter_map(|i| i.statistics.as_ref()).fold(0, |sum, s| sum.saturating_add(lost(s)))
    }
}

/// Container formats.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    /// Classic pcap, times in microseconds.
    PcapMicroseconds,
    /// Classic pcap, times in nanoseconds.
    PcapNanoseconds,
    /// Classic pcap with the longer record header of Kuznetzov's patch (magic 0xa1b2cd34), times in microseconds.
    PcapModified,
    /// Classic pcap with the record header of Nokia's tcpdump, which has no magic of its own.
    PcapNokia,
    /// Classic pcap with the record header of Red Hat 6.1 (libpcap ss990417), which has no magic of its own.
    PcapRedHat61,
    /// Classic pcap with the record header of SuSE 6.3 (libpcap ss990915), magic 0xa1b2cd34.
    PcapSuse63,
    /// pcapng.
    Pcapng,
    /// Records of Endace's cards.
    Erf,
    /// The format of Solaris (RFC 1761).
    Snoop,
    /// Microsoft Network Monitor 1.
    NetworkMonitor1,
    /// Microsoft Network Monitor 2 and 3.
    NetworkMonitor2,
}

/// One section of a file.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Section {
    /// Number of the file it is in if several are merged, counting from 0.
    pub input: u32,
    /// Its offset, in bytes from the start of the (decompressed) file.
    pub offset: u64,
    /// True if its integers are big-endian.
    pub big_endian: bool,
    /// Index of its first interface in [`Metadata::interfaces`]. Its others follow directly, except in merged files:
    /// use [`Interface::section`] there.
    pub first_interface: u32,
    /// Number of its interfaces, as far as read.
    pub interfaces: u32,
    /// The machine that captured (`shb_hardware`).
    pub hardware: Option<String>,
    /// Its operating system (`shb_os`).
    pub os: Option<String>,
    /// The program that captured (`shb_userappl`).
    pub application: Option<String>,
    /// Comments on the section.
    pub comments: Vec<String>,
}

/// One interface that frames were captured on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Interface {
    /// Number of the file it is from if several are merged, counting from 0.
    pub input: u32,
    /// Number of its section, counting from 0.
    pub section: u32,
    /// Link type of its frames.
    pub link_type: LinkType,
    /// The capture's limit on the length of a frame in bytes; 0 is none.
    pub snap_len: u32,
    /// Length of the frame check sequence at the end of each frame in bytes, if known.
    pub fcs_len: Option<u8>,
    /// Name (`if_name`), such as `eth0`.
    pub name: Option<String>,
    /// Description (`if_description`).
    pub description: Option<String>,
    /// The hardware (`if_hardware`).
    pub hardware: Option<String>,
    /// The operating system (`if_os`).
    pub os: Option<String>,
    /// The capture filter (`if_filter`), if it is text.
    pub filter: Option<String>,
    /// Link speed in bits per second (`if_speed`).
    pub speed: Option<u64>,
    /// Comments on the interface.
    pub comments: Vec<String>,
    /// Resolution and offset of its timestamps.
    pub clock: Clock,
    /// The last statistics that the file has of it.
    pub statistics: Option<InterfaceStatistics>,
}

impl Interface {
    /// An interface of which only the link type is known: no limit, microseconds.
    pub fn new(link_type: LinkType) -> Interface {
        Interface {
            input: 0,
            section: 0,
            link_type,
            snap_len: 0,
            fcs_len: None,
            name: None,
            description: None,
            hardware: None,
            os: None,
            filter: None,
            speed: None,
            comments: Vec::new(),
            clock: Clock::MICROSECONDS,
            statistics: None,
        }
    }
}

/// Resolution and offset of an interface's timestamps: `if_tsresol` and `if_tsoffset`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Clock {
    /// `if_tsresol`: units of 10^-n seconds, or 2^-n with the highest bit set.
    pub resolution: u8,
    /// `if_tsoffset`: seconds to add to every timestamp.
    pub offset_seconds: i64,
    unit: Unit,
}

/// Nanoseconds in one unit of a clock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Unit {
    /// Nanoseconds per tick.
    Times(u64),
    /// A unit that is this fraction of a nanosecond.
    Part(u64),
    /// 2^-n seconds.
    Binary(u8),
}

impl Clock {
    /// Units of 10^-6 s from 1970: the default if a file does not say otherwise.
    pub const MICROSECONDS: Clock = Clock { resolution: 6, offset_seconds: 0, unit: Unit::Times(1000) };
    /// Units of 10^-9 s from 1970.
    pub const NANOSECONDS: Clock = Clock { resolution: 9, offset_seconds: 0, unit: Unit::Times(1) };

    /// A clock as its two options give it.
    pub fn new(resolution: u8, offset_seconds: i64) -> Clock {
        let unit = match resolution {
            0..=9 => Unit::Times(10u64.pow(9 - u32::from(resolution))),
            10..=28 => Unit::Part(10u64.pow(u32::from(resolution) - 9)),
            // 64 bits of such units are less than a nanosecond.
            29..=0x7f => Unit::Part(u64::MAX),
            _ => Unit::Binary(resolution & 0x7f),
        };
        Clock { resolution, offset_seconds, unit }
    }

    /// Converts a timestamp to nanoseconds since 1970. Values that do not fit 64 bits are clamped.
    #[inline]
    pub fn nanoseconds(&self, timestamp: u64) -> i64 {
        let ns = match self.unit {
            Unit::Times(ns) => i64::try_from(timestamp.saturating_mul(ns)).unwrap_or(i64::MAX),
            Unit::Part(parts) => i64::try_from(timestamp / parts).unwrap_or(i64::MAX),
            Unit::Binary(n) => i64::try_from((u128::from(timestamp) * 1_000_000_000) >> n).unwrap_or(i64::MAX),
        };
        if self.offset_seconds == 0 { ns } else { ns.saturating_add(self.offset_seconds.saturating_mul(1_000_000_000)) }
    }
}

/// Counters of an interface (Interface Statistics Block). Values that the file does not have are `None`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct InterfaceStatistics {
    /// When it was counted: nanoseconds since 1970.
    pub time_ns: i64,
    /// When the capture began (`isb_starttime`): nanoseconds since 1970.
    pub start_ns: Option<i64>,
    /// When the capture ended (`isb_endtime`): nanoseconds since 1970.
    pub end_ns: Option<i64>,
    /// Received frames (`isb_ifrecv`).
    pub received: Option<u64>,
    /// Frames dropped by the interface for lack of resources (`isb_ifdrop`).
    pub dropped_by_interface: Option<u64>,
    /// Frames that the capture filter let through (`isb_filteraccept`).
    pub accepted_by_filter: Option<u64>,
    /// Frames dropped by the operating system (`isb_osdrop`).
    pub dropped_by_os: Option<u64>,
    /// Frames handed to the capturing program (`isb_usrdeliv`).
    pub delivered: Option<u64>,
}

/// A name of an address (Name Resolution Block).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Name {
    /// Four bytes of IPv4 or sixteen of IPv6.
    pub address: Vec<u8>,
    /// The name.
    pub name: String,
}

/// Keys to decrypt frames with (Decryption Secrets Block).
#[derive(Clone, PartialEq, Eq)]
pub struct Secrets {
    /// Offset of its block, in bytes from the start of the (decompressed) file.
    pub offset: u64,
    /// Type of the secrets: [`Secrets::TLS_KEY_LOG`] and others.
    pub kind: u32,
    /// The secrets, as in the file.
    pub data: Vec<u8>,
}

impl Secrets {
    /// TLS keys in the format of NSS's SSLKEYLOGFILE ("TLSK").
    pub const TLS_KEY_LOG: u32 = 0x544c_534b;
}

impl std::fmt::Debug for Secrets {
    /// Says how many bytes there are, not which: logs are no place for keys.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Secrets {{ offset: {}, kind: {:#x}, data: {} bytes }}", self.offset, self.kind, self.data.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clocks_of_every_resolution_give_nanoseconds() {
        assert_eq!(Clock::new(6, 0), Clock::MICROSECONDS);
        assert_eq!(Clock::new(9, 0), Clock::NANOSECONDS);
        assert_eq!(Clock::new(0, 0).nanoseconds(2), 2_000_000_000);
        assert_eq!(Clock::new(12, 0).nanoseconds(1_234_567), 1_234);
        assert_eq!(Clock::new(0x80 | 10, 0).nanoseconds(1536), 1_500_000_000);
        assert_eq!(Clock::new(6, -1).nanoseconds(1), -999_999_000);
        assert_eq!(Clock::new(100, 0).nanoseconds(u64::MAX - 1), 0);
        assert_eq!(Clock::new(0xff, 0).nanoseconds(u64::MAX), 0);
    }

    #[test]
    fn no_timestamp_overflows() {
        for resolution in 0..=255 {
            for offset in [i64::MIN, -1, 0, i64::MAX] {
                Clock::new(resolution, offset).nanoseconds(u64::MAX);
            }
        }
    }

    #[test]
    fn metadata_is_kept_up_to_its_budget_and_the_rest_counted() {
        let mut m = Metadata { kept_bytes: MAX_KEPT_BYTES - COST_OF_A_PIECE - 7, ..Metadata::default() };
        assert_eq!(m.keep_text(b"ok"), Some("ok".to_owned()));
        assert_eq!(m.keep_text(b"no"), None);
        assert_eq!(m.not_kept, 1);
    }
}
