//! Transmission Control Protocol, header and options. RFC 9293; window scale and timestamps RFC 7323, SACK RFC 2018.
//! Big-endian.
//!
//! Sequence numbers are the ones of the wire: relative ones need the memory of a connection.

use super::ip::{fold, sum};
use crate::address::Addr;
use crate::fault::{Check, Fault, PResult};
use crate::leaf::{self, read};
use crate::trace::LabelPart::{Number, Text};
use crate::trace::{Trace, Value, scope};
use core::fmt;

/// The flags of a [`Segment`].
pub mod flags {
    use super::f;

    /// No more data follows.
    pub const FIN: u8 = f::FLAGS_FIN.mask as u8;
    /// Begins a connection.
    pub const SYN: u8 = f::FLAGS_SYN.mask as u8;
    /// Breaks the connection off.
    pub const RST: u8 = f::FLAGS_RESET.mask as u8;
    /// Hands over what was received.
    pub const PSH: u8 = f::FLAGS_PUSH.mask as u8;
    /// The acknowledgment number is valid.
    pub const ACK: u8 = f::FLAGS_ACK.mask as u8;
    /// Echo of a congestion mark (RFC 3168).
    pub const ECE: u8 = f::FLAGS_ECE.mask as u8;
    /// The sender has reduced its congestion window (RFC 3168).
    pub const CWR: u8 = f::FLAGS_CWR.mask as u8;
}

fields! {
    /// Header and options.
    pub mod f ["RFC 9293 3.1"] {
        PROTOCOL: Protocol = "tcp", "Transmission Control Protocol";
        SRCPORT: U16 = "tcp.srcport", "Source Port", dec;
        DSTPORT: U16 = "tcp.dstport", "Destination Port", dec;
        PORT: U16 [hidden] = "tcp.port", "Source or Destination Port", dec;
        LEN: U32 = "tcp.len", "TCP Segment Len", dec;
        SEQ_RAW: U32 = "tcp.seq_raw", "Sequence Number (raw)", dec;
        ACK_RAW: U32 = "tcp.ack_raw", "Acknowledgment number (raw)", dec;
        HDR_LEN: U8 = "tcp.hdr_len", "Header Length", dec;
        FLAGS: U16 & 0x0fff / 16 = "tcp.flags", "Flags", hex;
        FLAGS_RES: Bool & 0x0e00 / 12 = "tcp.flags.res", "Reserved";
        FLAGS_AE: Bool & 0x0100 / 12 = "tcp.flags.ae", "Accurate ECN";
        FLAGS_CWR: Bool & 0x0080 / 12 = "tcp.flags.cwr", "Congestion Window Reduced";
        FLAGS_ECE: Bool & 0x0040 / 12 = "tcp.flags.ece", "ECN-Echo";
        FLAGS_URG: Bool & 0x0020 / 12 = "tcp.flags.urg", "Urgent";
        FLAGS_ACK: Bool & 0x0010 / 12 = "tcp.flags.ack", "Acknowledgment";
        FLAGS_PUSH: Bool & 0x0008 / 12 = "tcp.flags.push", "Push";
        FLAGS_RESET: Bool & 0x0004 / 12 = "tcp.flags.reset", "Reset";
        FLAGS_SYN: Bool & 0x0002 / 12 = "tcp.flags.syn", "Syn";
        FLAGS_FIN: Bool & 0x0001 / 12 = "tcp.flags.fin", "Fin";
        FLAGS_STR: Str = "tcp.flags.str", "TCP Flags";
        WINDOW: U16 = "tcp.window_size_value", "Window", dec;
        CHECKSUM: U16 = "tcp.checksum", "Checksum", hex;
        URGENT_POINTER: U16 = "tcp.urgent_pointer", "Urgent Pointer", dec;
        OPTIONS: Bytes = "tcp.options", "TCP Options";
        EOL: Bytes = "tcp.options.eol", "TCP Option - End of Option List (EOL)";
        NOP: Bytes = "tcp.options.nop", "TCP Option - No-Operation (NOP)";
        MSS: Bytes = "tcp.options.mss", "TCP Option - Maximum segment size";
        WSCALE: Bytes = "tcp.options.wscale", "TCP Option - Window scale";
        SACK_PERM: Bytes = "tcp.options.sack_perm", "TCP Option - SACK permitted";
        SACK: Bytes = "tcp.options.sack", "TCP Option - SACK";
        TIMESTAMP: Bytes = "tcp.options.timestamp", "TCP Option - Timestamps";
        UNKNOWN: Bytes = "tcp.options.unknown", "TCP Option - Unknown";
        KIND: U8 = "tcp.option_kind", "Kind", dec, values KINDS;
        OPTION_LEN: U8 = "tcp.option_len", "Length", dec;
        MSS_VAL: U16 = "tcp.options.mss_val", "MSS Value", dec;
        SHIFT: U8 = "tcp.options.wscale.shift", "Shift count", dec;
        MULTIPLIER: U16 = "tcp.options.wscale.multiplier", "Multiplier", dec;
        SACK_LE: U32 = "tcp.options.sack_le", "TCP SACK Left Edge", dec;
        SACK_RE: U32 = "tcp.options.sack_re", "TCP SACK Right Edge", dec;
        /// The first block repeats what the receiver had already (RFC 2883 4).
        DSACK: None = "tcp.options.sack.dsack", "D-SACK Sequence";
        DSACK_LE: U32 = "tcp.options.sack.dsack_le", "TCP D-SACK Left Edge", dec;
        DSACK_RE: U32 = "tcp.options.sack.dsack_re", "TCP D-SACK Right Edge", dec;
        SACK_COUNT: U8 = "tcp.options.sack.count", "TCP SACK Count", dec;
        TSVAL: U32 = "tcp.options.timestamp.tsval", "Timestamp value", dec;
        TSECR: U32 = "tcp.options.timestamp.tsecr", "Timestamp echo reply", dec;
        UNKNOWN_PAYLOAD: Bytes = "tcp.options.unknown.payload", "Payload";
        PAYLOAD: Bytes = "tcp.payload", "TCP payload";
    }
}

/// A TCP segment.
#[derive(Clone, Copy, Debug, Default)]
pub struct Segment<'a> {
    /// Source port.
    pub src_port: u16,
    /// Destination port.
    pub dst_port: u16,
    /// Sequence number of the first payload byte (of SYN, where that is set).
    pub seq: u32,
    /// Acknowledgment number; meaningless without the ACK flag.
    pub ack: u32,
    /// The lower 8 flag bits: FIN 0x01, SYN 0x02, RST 0x04, PSH 0x08, ACK 0x10, URG 0x20, ECE 0x40, CWR 0x80.
    pub flags: u8,
    /// Receive window as it stands in the header, not scaled.
    pub window: u16,
    /// Window scale option (of a SYN).
    pub window_scale: Option<u8>,
    /// Maximum segment size option (of a SYN).
    pub mss: Option<u16>,
    /// The blocks of a SACK option, as many as [`Segment::sack_count`] says: from the first sequence number to behind
    /// the last.
    pub sacks: [(u32, u32); 4],
    /// Number of blocks in the SACK option.
    pub sack_count: u8,
    /// TSval and TSecr of a timestamps option.
    pub timestamps: Option<(u32, u32)>,
    /// True if the capture cut options off.
    pub are_options_cut: bool,
    /// The payload, as far as it was captured.
    pub payload: &'a [u8],
    /// Its length on the wire.
    pub payload_length: u32,
    /// The checksum as it stands in the header.
    pub checksum: u16,
    /// Result of the checksum. A checksum that the sending host left to its adapter to finish is not checked.
    pub check: Check,
    /// Identification of the IPv4 datagram; 0 without one.
    pub ip_id: u16,
    /// Length of the run of FPDUs with correct CRCs at the beginning of the payload; 0 if it was not checked.
    pub checked: u32,
}

impl Segment<'_> {
    /// True if the first block of its SACK option repeats what the receiver had already (RFC 2883 4): data that are
    /// acknowledged, or a part of the second block.
    pub fn repeats(&self) -> bool {
        let before = |a: u32, b: u32| (a.wrapping_sub(b) as i32) < 0;
        let [(left, right), (from, to), ..] = self.sacks;
        self.sack_count > 0
            && (before(left, self.ack) || self.sack_count > 1 && !before(left, from) && !before(to, right))
    }
}

#[rustfmt::skip]
const KINDS: crate::field::Values = &[
    (0, "End of Option List"), (1, "No-Operation"), (2, "Maximum Segment Size"), (3, "Window Scale"), (4, "SACK Permitted"), (5, "SACK"), (8, "Time Stamp Option"),
    (19, "MD5 Signature Option"), (28, "User Timeout Option"), (29, "TCP Authentication Option"), (30, "Multipath TCP"), (34, "TCP Fast Open Cookie"),
];

/// Checks the checksum of a whole segment, over the pseudo-header of its IP datagram (RFC 9293 3.1; RFC 8200 8.1). A
/// host that leaves the checksum to its adapter writes the sum of the pseudo-header alone in its place: such a segment
/// is not checked.
pub fn check(src: &Addr, dst: &Addr, segment: &[u8]) -> Check {
    let addresses = match (src, dst) {
        (Addr::V4(a), Addr::V4(b)) => sum(a) + sum(b),
        (Addr::V6(a), Addr::V6(b)) => sum(a) + sum(b),
        _ => return Check::Unchecked,
    };
    let Some(field) = segment.get(16..18) else { return Check::Unchecked };
    let length = segment.len() as u32;
    let pseudo = addresses + sum(&length.to_be_bytes()) + sum(&[0, 6]);
    match fold(pseudo + sum(segment)) {
        0xffff => Check::Good,
        _ if fold(pseudo) == fold(sum(field)) => Check::Unchecked,
        _ => Check::Bad,
    }
}

/// Flag bits by name, as `[PSH, ACK]`.
struct Flags(u8);

impl fmt::Display for Flags {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("[")?;
        let mut before = false;
        for (bit, name) in ["FIN", "SYN", "RST", "PSH", "ACK", "URG", "ECE", "CWR"].into_iter().enumerate() {
            if self.0 >> bit & 1 != 0 {
                if before {
                    f.write_str(", ")?;
                }
                f.write_str(name)?;
                before = true;
            }
        }
        f.write_str(if before { "]" } else { "<None>]" })
    }
}

/// All twelve flag bits by letter, a dot for a flag that is not set.
struct Letters(u16);

impl fmt::Display for Letters {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (n, letter) in "RRRACEUAPRSF".chars().enumerate() {
            write!(f, "{}", if self.0 >> (11 - n) & 1 != 0 { letter } else { '·' })?;
        }
        Ok(())
    }
}

/// Decodes a segment: `i` is the captured part, `missing` the number of bytes that were on the wire behind it.
/// If the options cannot be read, the result is a segment all the same, and a fault.
#[inline]
pub fn parse<'a, T: Trace>(i: &'a [u8], missing: u32, t: &mut T) -> (Option<Segment<'a>>, PResult<'a, ()>) {
    t.protocol("TCP");
    let mut segment = None;
    let result = scope(f::PROTOCOL, i, t, |i, t| body(i, missing, t, &mut segment));
    (segment, result)
}

#[inline(always)]
fn body<'a, T: Trace>(at: &'a [u8], missing: u32, t: &mut T, out: &mut Option<Segment<'a>>) -> PResult<'a, ()> {
    if T::ON && (t.wants(&f::SET) || at.len() < 20) {
        trace(at, t)?;
    }
    let Some((h, rest)) = at.split_first_chunk::<20>() else { return Fault::short(Some(f::PROTOCOL), at, 20).fail() };
    let header_length = usize::from(h[12] >> 4) * 4;
    let payload = at.get(header_length.max(20)..).unwrap_or(&[]);
    let on_wire = (at.len() as u32).saturating_add(missing);
    let segment = out.insert(Segment {
        src_port: u16::from_be_bytes([h[0], h[1]]),
        dst_port: u16::from_be_bytes([h[2], h[3]]),
        seq: u32::from_be_bytes([h[4], h[5], h[6], h[7]]),
        ack: u32::from_be_bytes([h[8], h[9], h[10], h[11]]),
        flags: h[13],
        window: u16::from_be_bytes([h[14], h[15]]),
        payload,
        payload_length: on_wire.saturating_sub(header_length.max(20) as u32),
        checksum: u16::from_be_bytes([h[16], h[17]]),
        ..Segment::default()
    });
    if T::ON {
        let s = *segment;
        t.field(f::LEN, at, 0, Value::U(u64::from(s.payload_length)));
        let (src, dst) = (Number(s.src_port.into()), Number(s.dst_port.into()));
        let seq = Number(s.seq.into());
        t.label_parts(&[Text(", Src Port: "), src, Text(", Dst Port: "), dst, Text(", Seq: "), seq]);
        let flags = Flags(s.flags);
        let length = s.payload_length;
        if s.flags & 0x10 != 0 {
            t.info(format_args!(
                "{} → {} {flags} Seq={} Ack={} Win={} Len={length}",
                s.src_port, s.dst_port, s.seq, s.ack, s.window
            ));
        } else {
            t.info(format_args!("{} → {} {flags} Seq={} Win={} Len={length}", s.src_port, s.dst_port, s.seq, s.window));
        }
    }
    if header_length < 20 {
        return Fault::length(f::HDR_LEN, at, 20).fail();
    }
    if header_length > 20 {
        let length = header_length - 20;
        let whole = rest.get(..length);
        let options = whole.unwrap_or(rest);
        segment.are_options_cut = whole.is_none();
        scope(f::OPTIONS, options, t, |i, t| parse_options(i, t, segment))?;
        if whole.is_none() {
            return Fault::short(Some(f::OPTIONS), rest, length).fail();
        }
    }
    if T::ON && !payload.is_empty() {
        t.field(f::PAYLOAD, payload, payload.len(), Value::Bytes(payload));
    }
    Ok((&at[at.len()..], ()))
}

fn trace<'a, T: Trace>(at: &'a [u8], t: &mut T) -> PResult<'a, ()> {
    let (i, src) = read::be16(f::SRCPORT, at, t)?;
    let (i, dst) = read::be16(f::DSTPORT, i, t)?;
    t.field(f::PORT, at, 2, Value::U(u64::from(src)));
    t.field(f::PORT, &at[2..], 2, Value::U(u64::from(dst)));
    let (i, _) = read::be32(f::SEQ_RAW, i, t)?;
    let (i, _) = read::be32(f::ACK_RAW, i, t)?;
    let (rest, word) = leaf::be16(i).or_else(|_| Fault::short(Some(f::FLAGS), i, 2).fail())?;
    t.field(f::HDR_LEN, i, 1, Value::U(u64::from(word >> 12) * 4));
    t.field(f::FLAGS, i, 2, Value::U(u64::from(word & 0x0fff)));
    t.down();
    t.field(f::FLAGS_RES, i, 1, Value::U(u64::from(word & 0x0e00 != 0)));
    let bits = [
        f::FLAGS_FIN,
        f::FLAGS_SYN,
        f::FLAGS_RESET,
        f::FLAGS_PUSH,
        f::FLAGS_ACK,
        f::FLAGS_URG,
        f::FLAGS_ECE,
        f::FLAGS_CWR,
    ];
    t.field(f::FLAGS_AE, i, 1, Value::U(u64::from(word >> 8 & 1)));
    for (bit, def) in bits.into_iter().enumerate().rev() {
        t.field(def, &i[1..], 1, Value::U(u64::from(word >> bit & 1)));
    }
    t.field(f::FLAGS_STR, i, 0, Value::Text(format_args!("{}", Letters(word & 0x0fff))));
    t.up();
    let (i, _) = read::be16(f::WINDOW, rest, t)?;
    let (i, _) = read::be16(f::CHECKSUM, i, t)?;
    let (i, _) = read::be16(f::URGENT_POINTER, i, t)?;
    Ok((i, ()))
}

fn parse_options<'a, T: Trace>(mut i: &'a [u8], t: &mut T, segment: &mut Segment<'a>) -> PResult<'a, ()> {
    while let Some(&kind) = i.first() {
        let node = match kind {
            0 => f::EOL,
            1 => f::NOP,
            2 => f::MSS,
            3 => f::WSCALE,
            4 => f::SACK_PERM,
            5 => f::SACK,
            8 => f::TIMESTAMP,
            _ => f::UNKNOWN,
        };
        (i, _) = scope(node, i, t, |i, t| {
            let (i, _) = read::u8(f::KIND, i, t)?;
            if kind < 2 {
                return Ok((i, ()));
            }
            let (after, length) = read::u8(f::OPTION_LEN, i, t)?;
            let Some(length) = usize::from(length).checked_sub(2) else {
                return Fault::length(f::OPTION_LEN, i, 2).fail();
            };
            let (rest, data) =
                leaf::take(after, length).or_else(|_| Fault::length(f::OPTION_LEN, i, length + 2).fail())?;
            match (kind, length) {
                (2, 2) => segment.mss = Some(read::be16(f::MSS_VAL, data, t)?.1),
                (3, 1) => {
                    let shift = read::u8(f::SHIFT, data, t)?.1;
                    segment.window_scale = Some(shift);
                    t.field(f::MULTIPLIER, data, 0, Value::U(1 << shift.min(14)));
                }
                (5, _) => {
                    let mut edges = data;
                    while edges.len() >= 8 {
                        let (i, left) = read::be32(f::SACK_LE, edges, t)?;
                        let (i, right) = read::be32(f::SACK_RE, i, t)?;
                        edges = i;
                        if let Some(block) = segment.sacks.get_mut(usize::from(segment.sack_count)) {
                            *block = (left, right);
                            segment.sack_count += 1;
                        }
                    }
                    t.field(f::SACK_COUNT, data, 0, Value::U(((data.len() - edges.len()) / 8) as u64));
                    if T::ON && segment.repeats() {
                        let (left, right) = segment.sacks[0];
                        t.field(f::DSACK, data, 0, Value::None);
                        t.field(f::DSACK_LE, data, 0, Value::U(left.into()));
                        t.field(f::DSACK_RE, data, 0, Value::U(right.into()));
                    }
                }
                (8, 8) => {
                    let (i, value) = read::be32(f::TSVAL, data, t)?;
                    let (_, echo) = read::be32(f::TSECR, i, t)?;
                    segment.timestamps = Some((value, echo));
                }
                (_, 0) => {}
                _ => t.field(f::UNKNOWN_PAYLOAD, data, length, Value::Bytes(data)),
            }
            Ok((rest, ()))
        })?;
        if kind == 0 && i.first() != Some(&0) {
            // the bytes behind the end of the list are padding, usually more such ends
            return Ok((&i[i.len()..], ()));
        }
    }
    Ok((i, ()))
}
