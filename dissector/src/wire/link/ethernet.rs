//! Ethernet II and IEEE 802.3 with LLC and SNAP. Big-endian.

use super::ETHERTYPES;
use crate::address::with_colons;
use crate::fault::PResult;
use crate::field::Def;
use crate::leaf::read;
use crate::trace::{LabelPart, LayerText, Trace, Value, scope};
use core::fmt;

fields! {
    /// Ethernet.
    pub mod f ["IEEE 802.3 3.2"] {
        PROTOCOL: Protocol = "eth", "Ethernet II";
        DST: Ether = "eth.dst", "Destination";
        DST_LG: Bool & 0x020000 / 24 = "eth.dst.lg", "LG bit";
        DST_IG: Bool & 0x010000 / 24 = "eth.dst.ig", "IG bit";
        SRC: Ether = "eth.src", "Source";
        SRC_LG: Bool & 0x020000 / 24 = "eth.src.lg", "LG bit";
        SRC_IG: Bool & 0x010000 / 24 = "eth.src.ig", "IG bit";
        ADDR: Ether [hidden] = "eth.addr", "Address";
        LG: Bool & 0x020000 / 24 [hidden] = "eth.lg", "LG bit";
        IG: Bool & 0x010000 / 24 [hidden] = "eth.ig", "IG bit";
        /// Names of adapters: the addresses, as nothing is resolved.
        DST_RESOLVED: Str as Keep [hidden] = "eth.dst_resolved", "Destination (resolved)";
        SRC_RESOLVED: Str as Keep [hidden] = "eth.src_resolved", "Source (resolved)";
        ADDR_RESOLVED: Str as Keep [hidden] = "eth.addr_resolved", "Address (resolved)";
        TYPE: U16 = "eth.type", "Type", hex, values ETHERTYPES;
        LEN: U16 = "eth.len", "Length", dec;
    }
}

fields! {
    /// Logical link control.
    pub mod llc ["IEEE 802.2 3"] {
        PROTOCOL: Protocol = "llc", "Logical-Link Control";
        DSAP: U8 = "llc.dsap", "DSAP", hex, values SAPS;
        SSAP: U8 = "llc.ssap", "SSAP", hex, values SAPS;
        CONTROL: U16 = "llc.control", "Control", hex;
        OUI: U24 = "llc.oui", "Organization Code", hex;
        TYPE: U16 = "llc.type", "Type", hex, values ETHERTYPES;
        PID: U16 = "llc.pid", "Protocol ID", hex;
    }
}

const SAPS: crate::field::Values = &[
    (0x00, "NULL LSAP"),
    (0x06, "TCP/IP"),
    (0x42, "Spanning Tree BPDU"),
    (0xaa, "SNAP"),
    (0xe0, "NetWare"),
    (0xf0, "NetBIOS"),
    (0xfe, "ISO Network Layer"),
];

/// An Ethernet header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ethernet {
    /// Destination address.
    pub dst: [u8; 6],
    /// Source address.
    pub src: [u8; 6],
    /// Ethertype (0x0600 and more), or length of an 802.3 frame.
    pub type_or_length: u16,
}

/// An address as text.
pub(crate) struct Mac<'a>(pub(crate) &'a [u8; 6]);

impl Mac<'_> {
    /// Hands on the text in one piece.
    #[inline]
    fn text<T>(&self, take: impl FnOnce(&str) -> T) -> T {
        with_colons(*self.0, |text| take(core::str::from_utf8(text).unwrap_or_default()))
    }
}

impl fmt::Display for Mac<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.text(|text| f.write_str(text))
    }
}

/// Decodes the header of 14 bytes.
#[inline]
pub fn parse<'a, T: Trace>(i: &'a [u8], t: &mut T) -> PResult<'a, Ethernet> {
    t.protocol("Ethernet");
    scope(f::PROTOCOL, i, t, |at, t| {
        if let (true, Some(header)) = (T::ON, at.first_chunk::<14>()) {
            t.layer_info(LayerText::new(header, write_line));
        }
        if !t.wants(&f::SET)
            && let Some((h, rest)) = at.split_first_chunk::<14>()
        {
            let [d0, d1, d2, d3, d4, d5, s0, s1, s2, s3, s4, s5, k0, k1] = *h;
            let (dst, src) = ([d0, d1, d2, d3, d4, d5], [s0, s1, s2, s3, s4, s5]);
            return Ok((rest, Ethernet { dst, src, type_or_length: u16::from_be_bytes([k0, k1]) }));
        }
        let (i, dst) = address([f::DST, f::DST_RESOLVED, f::DST_LG, f::DST_IG], at, t)?;
        let (i, src) = address([f::SRC, f::SRC_RESOLVED, f::SRC_LG, f::SRC_IG], i, t)?;
        let is_type = crate::leaf::be16(i).is_ok_and(|(_, v)| v >= 0x0600);
        let (i, type_or_length) = read::be16(if is_type { f::TYPE } else { f::LEN }, i, t)?;
        let (from, to) = (LabelPart::Mac(src), LabelPart::Mac(dst));
        t.label_parts(&[LabelPart::Text(", Src: "), from, LabelPart::Text(", Dst: "), to]);
        Ok((i, Ethernet { dst, src, type_or_length }))
    })
}

/// The addresses for the frame's line.
fn write_line(header: &[u8; LayerText::LEN], f: &mut fmt::Formatter<'_>) -> fmt::Result {
    let [d0, d1, d2, d3, d4, d5, s0, s1, s2, s3, s4, s5, ..] = *header;
    write!(f, "{} → {}", Mac(&[s0, s1, s2, s3, s4, s5]), Mac(&[d0, d1, d2, d3, d4, d5]))
}

fn address<'a, T: Trace>([def, resolved, lg, ig]: [Def; 4], i: &'a [u8], t: &mut T) -> PResult<'a, [u8; 6]> {
    let (rest, address) = read::array::<6, T>(def, i, t)?;
    if T::ON {
        t.down();
        t.field(f::ADDR, i, 6, Value::Bytes(&i[..6]));
        let names = [resolved, f::ADDR_RESOLVED];
        if names.iter().any(|def| t.keeps(def)) {
            Mac(&address).text(|text| names.iter().for_each(|def| t.field(def, i, 0, Value::Str(text))));
        }
        for (def, shift) in [(lg, 1), (ig, 0), (f::LG, 1), (f::IG, 0)] {
            t.field(def, i, 3, Value::U(u64::from(address[0] >> shift & 1)));
        }
        t.up();
    }
    Ok((rest, address))
}

/// Protocol inside an LLC frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Llc {
    /// SNAP with an ethertype.
    Ethertype(u16),
    /// A spanning tree message.
    SpanningTree,
    /// Another protocol.
    Other,
}

/// Decodes LLC, and SNAP where that follows.
pub fn parse_llc<'a, T: Trace>(i: &'a [u8], t: &mut T) -> PResult<'a, Llc> {
    t.protocol("LLC");
    scope(llc::PROTOCOL, i, t, |i, t| {
        let (i, dsap) = read::u8(llc::DSAP, i, t)?;
        let (i, _) = read::u8(llc::SSAP, i, t)?;
        // unnumbered frames have a control field of one byte, the others of two
        let unnumbered = i.first().is_some_and(|c| c & 0x03 == 0x03);
        let i = if unnumbered { read::u8(llc::CONTROL, i, t)?.0 } else { read::be16(llc::CONTROL, i, t)?.0 };
        if dsap != 0xaa {
            return Ok((i, if dsap == 0x42 { Llc::SpanningTree } else { Llc::Other }));
        }
        let (i, oui) = read::be24(llc::OUI, i, t)?;
        if oui != 0 && oui != 0x0000_00f8 {
            let (i, _) = read::be16(llc::PID, i, t)?;
            return Ok((i, Llc::Other));
        }
        let (i, kind) = read::be16(llc::TYPE, i, t)?;
        Ok((i, Llc::Ethertype(kind)))
    })
}
