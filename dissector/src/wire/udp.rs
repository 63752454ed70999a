//! User Datagram Protocol. RFC 768. Big-endian.

use crate::fault::PResult;
use crate::leaf::read;
use crate::trace::LabelPart::{Number, Text};
use crate::trace::{LayerText, Trace, Value, scope};
use core::fmt;

/// RoCEv2 (annex A17).
pub const ROCE_V2: u16 = 4791;
/// VXLAN (RFC 7348).
pub const VXLAN: u16 = 4789;
/// VXLAN as Linux had it before the number was assigned.
pub const VXLAN_LINUX: u16 = 8472;
/// GENEVE (RFC 8926).
pub const GENEVE: u16 = 6081;

fields! {
    /// The header.
    pub mod f ["RFC 768"] {
        PROTOCOL: Protocol = "udp", "User Datagram Protocol";
        SRCPORT: U16 = "udp.srcport", "Source Port", dec;
        DSTPORT: U16 = "udp.dstport", "Destination Port", dec;
        PORT: U16 [hidden] = "udp.port", "Source or Destination Port", dec;
        LENGTH: U16 = "udp.length", "Length", dec;
        CHECKSUM: U16 = "udp.checksum", "Checksum", hex;
        PAYLOAD: Bytes = "udp.payload", "Payload";
    }
}

/// A UDP header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Udp {
    /// Source port.
    pub src_port: u16,
    /// Destination port.
    pub dst_port: u16,
    /// Of header and payload; 0 in a jumbogram.
    pub length: u16,
    /// 0 for none.
    pub checksum: u16,
}

/// Ports and the length of the payload for the frame's line.
fn write_line(header: &[u8; LayerText::LEN], f: &mut fmt::Formatter<'_>) -> fmt::Result {
    let word = |at: usize| u16::from_be_bytes([header[at], header[at + 1]]);
    write!(f, "{} → {} Len={}", word(0), word(2), word(4).saturating_sub(8))
}

/// Decodes the header of 8 bytes.
#[inline]
pub fn parse<'a, T: Trace>(i: &'a [u8], t: &mut T) -> PResult<'a, Udp> {
    parse_with(i, t, |header, i, _| Ok((i, header)))
}

/// The same, and in the same subtree what `payload` reads behind the header.
#[inline]
pub fn parse_with<'a, T: Trace, O>(
    i: &'a [u8],
    t: &mut T,
    payload: impl FnOnce(Udp, &'a [u8], &mut T) -> PResult<'a, O>,
) -> PResult<'a, O> {
    t.protocol("UDP");
    scope(f::PROTOCOL, i, t, |at, t| {
        let (i, src_port) = read::be16(f::SRCPORT, at, t)?;
        let (i, dst_port) = read::be16(f::DSTPORT, i, t)?;
        if T::ON {
            t.field(f::PORT, at, 2, Value::U(u64::from(src_port)));
            t.field(f::PORT, &at[2..], 2, Value::U(u64::from(dst_port)));
            let (src, dst) = (Number(src_port.into()), Number(dst_port.into()));
            t.label_parts(&[Text(", Src Port: "), src, Text(", Dst Port: "), dst]);
        }
        let (i, length) = read::be16(f::LENGTH, i, t)?;
        let (i, checksum) = read::be16(f::CHECKSUM, i, t)?;
        if let (true, Some(header)) = (T::ON, at.first_chunk::<8>()) {
            t.layer_info(LayerText::new(header, write_line));
        }
        payload(Udp { src_port, dst_port, length, checksum }, i, t)
    })
}
