//! Internet Protocol: version 4 with options (RFC 791), version 6 with extension headers (RFC 8200), authentication
//! header (RFC 4302). Big-endian.
//!
//! Header decoders return the rest of their input behind the header; the caller cuts it to the length that the header
//! states.

use crate::address::dotted;
use crate::fault::{Check, Fault, PResult};
use crate::field::Def;
use crate::leaf::{self, read};
use crate::trace::LabelPart::{Text, V4};
use crate::trace::{LayerText, Trace, Value, scope};
use core::fmt;
use core::net::Ipv6Addr;

/// Protocol number of TCP.
pub const TCP: u8 = 6;
/// Protocol number of UDP.
pub const UDP: u8 = 17;

/// Protocol numbers that are looked into, and names of the others that are met beside storage.
#[rustfmt::skip]
pub const PROTOCOLS: crate::field::Values = &[
    (0, "IPv6 Hop-by-Hop Option"), (1, "ICMP"), (2, "IGMP"), (4, "IPIP"), (6, "TCP"), (17, "UDP"), (41, "IPv6"), (43, "Routing Header for IPv6"),
    (44, "Fragment Header for IPv6"), (46, "RSVP"), (47, "GRE"), (50, "ESP"), (51, "AH"), (58, "ICMPv6"), (59, "No Next Header"),
    (60, "Destination Options for IPv6"), (88, "EIGRP"), (89, "OSPF"), (103, "PIM"), (112, "VRRP"), (115, "L2TP"), (132, "SCTP"), (135, "Mobility Header"),
    (136, "UDPLite"), (137, "MPLS in IP"), (139, "HIP"), (140, "Shim6"),
];

const ECN: crate::field::Values = &[
    (0, "Not ECN-Capable Transport"),
    (1, "ECN-Capable Transport codepoint '01'"),
    (2, "ECN-Capable Transport codepoint '10'"),
    (3, "Congestion Experienced"),
];
#[rustfmt::skip]
const DSCP: crate::field::Values = &[
    (0, "Default"), (8, "Class Selector 1"), (10, "Assured Forwarding 11"), (12, "Assured Forwarding 12"), (14, "Assured Forwarding 13"), (16, "Class Selector 2"),
    (18, "Assured Forwarding 21"), (20, "Assured Forwarding 22"), (22, "Assured Forwarding 23"), (24, "Class Selector 3"), (26, "Assured Forwarding 31"),
    (28, "Assured Forwarding 32"), (30, "Assured Forwarding 33"), (32, "Class Selector 4"), (34, "Assured Forwarding 41"), (36, "Assured Forwarding 42"),
    (38, "Assured Forwarding 43"), (40, "Class Selector 5"), (44, "Voice Admit"), (46, "Expedited Forwarding"), (48, "Class Selector 6"), (56, "Class Selector 7"),
];

fields! {
    /// Version 4.
    pub mod f ["RFC 791 3.1"] {
        PROTOCOL: Protocol = "ip", "Internet Protocol Version 4";
        VERSION: U8 = "ip.version", "Version", dec;
        /// In bytes.
        HDR_LEN: U8 = "ip.hdr_len", "Header Length", dec;
        DSFIELD: U8 = "ip.dsfield", "Differentiated Services Field", hex;
        DSFIELD_DSCP: U8 & 0xfc / 8 = "ip.dsfield.dscp", "Differentiated Services Codepoint", dec, values DSCP;
        DSFIELD_ECN: U8 & 0x03 / 8 = "ip.dsfield.ecn", "Explicit Congestion Notification", dec, values ECN;
        LEN: U16 = "ip.len", "Total Length", dec;
        ID: U16 = "ip.id", "Identification", hexdec;
        FLAGS: U8 & 0xe0 / 8 = "ip.flags", "Flags", hex;
        FLAGS_RB: Bool & 0x80 / 8 = "ip.flags.rb", "Reserved bit";
        FLAGS_DF: Bool & 0x40 / 8 = "ip.flags.df", "Don't fragment";
        FLAGS_MF: Bool & 0x20 / 8 = "ip.flags.mf", "More fragments";
        /// In units of 8 bytes.
        FRAG_OFFSET: U16 & 0x1fff / 16 = "ip.frag_offset", "Fragment Offset", dec;
        TTL: U8 = "ip.ttl", "Time to Live", dec;
        PROTO: U8 = "ip.proto", "Protocol", dec, values PROTOCOLS;
        CHECKSUM: U16 = "ip.checksum", "Header Checksum", hex;
        SRC: Ipv4 = "ip.src", "Source Address";
        DST: Ipv4 = "ip.dst", "Destination Address";
        ADDR: Ipv4 [hidden] = "ip.addr", "Source or Destination Address";
        /// Names of hosts: the addresses, as nothing is resolved.
        SRC_HOST: Str as Keep [hidden] = "ip.src_host", "Source Host";
        DST_HOST: Str as Keep [hidden] = "ip.dst_host", "Destination Host";
        HOST: Str as Keep [hidden] = "ip.host", "Source or Destination Host";
        OPTIONS: None = "rdmascope.ip.options", "Options";
        OPTION_TYPE: U8 = "ip.opt.type", "Type", dec, values &[(0, "End of Options List (EOL)"), (1, "No Operation (NOP)"), (7, "Record Route"), (68, "Time Stamp"), (130, "Security"), (131, "Loose Source Route"), (137, "Strict Source Route"), (148, "Router Alert")];
        OPTION_LEN: U8 = "ip.opt.len", "Length", dec;
        OPTION_DATA: Bytes = "ip.opt.data", "Data";
    }
}

fields! {
    /// Version 6.
    pub mod f6 ["RFC 8200 3"] {
        PROTOCOL: Protocol = "ipv6", "Internet Protocol Version 6";
        VERSION: U8 = "ipv6.version", "Version", dec;
        TCLASS: U32 & 0x0ff00000 / 32 = "ipv6.tclass", "Traffic Class", hex;
        TCLASS_DSCP: U32 & 0x0fc00000 / 32 = "ipv6.tclass.dscp", "Differentiated Services Codepoint", dec, values DSCP;
        TCLASS_ECN: U32 & 0x00300000 / 32 = "ipv6.tclass.ecn", "Explicit Congestion Notification", dec, values ECN;
        FLOW: U24 & 0x0fffff / 24 = "ipv6.flow", "Flow Label", hex;
        PLEN: U16 = "ipv6.plen", "Payload Length", dec;
        NXT: U8 = "ipv6.nxt", "Next Header", dec, values PROTOCOLS;
        HLIM: U8 = "ipv6.hlim", "Hop Limit", dec;
        SRC: Ipv6 = "ipv6.src", "Source Address";
        DST: Ipv6 = "ipv6.dst", "Destination Address";
        ADDR: Ipv6 [hidden] = "ipv6.addr", "Source or Destination Address";
        SRC_HOST: Str as Keep [hidden] = "ipv6.src_host", "Source Host";
        DST_HOST: Str as Keep [hidden] = "ipv6.dst_host", "Destination Host";
        HOST: Str as Keep [hidden] = "ipv6.host", "Source or Destination Host";
        HOPOPTS: Protocol = "ipv6.hopopts", "IPv6 Hop-by-Hop Option";
        HOPOPTS_NXT: U8 = "ipv6.hopopts.nxt", "Next Header", dec, values PROTOCOLS;
        HOPOPTS_LEN: U8 = "ipv6.hopopts.len", "Length", dec;
        DSTOPTS: Protocol = "ipv6.dstopts", "Destination Options for IPv6";
        DSTOPTS_NXT: U8 = "ipv6.dstopts.nxt", "Next Header", dec, values PROTOCOLS;
        DSTOPTS_LEN: U8 = "ipv6.dstopts.len", "Length", dec;
        ROUTING: Protocol = "ipv6.routing", "Routing Header for IPv6";
        ROUTING_NXT: U8 = "ipv6.routing.nxt", "Next Header", dec, values PROTOCOLS;
        ROUTING_LEN: U8 = "ipv6.routing.len", "Length", dec;
        ROUTING_TYPE: U8 = "ipv6.routing.type", "Type", dec;
        ROUTING_SEGLEFT: U8 = "ipv6.routing.segleft", "Segments Left", dec;
        DATA: Bytes = "rdmascope.ipv6.extension.data", "Data";
        FRAGHDR: Protocol = "ipv6.fraghdr", "Fragment Header for IPv6";
        FRAGHDR_NXT: U8 = "ipv6.fraghdr.nxt", "Next Header", dec, values PROTOCOLS;
        FRAGHDR_RESERVED: U8 = "ipv6.fraghdr.reserved_octet", "Reserved octet", hex;
        FRAGHDR_OFFSET: U16 & 0xfff8 / 16 = "ipv6.fraghdr.offset", "Offset", dec;
        FRAGHDR_MORE: Bool & 0x0001 / 16 = "ipv6.fraghdr.more", "More Fragments";
        FRAGHDR_IDENT: U32 = "ipv6.fraghdr.ident", "Identification", hex;
        AH: Protocol = "ah", "Authentication Header";
        AH_NXT: U8 = "ah.next_header", "Next header", dec, values PROTOCOLS;
        AH_LEN: U8 = "ah.length", "Length", dec;
        AH_RESERVED: Bytes as Keep = "ah.reserved", "Reserved";
        AH_SPI: U32 = "ah.spi", "AH SPI", hex;
        AH_SEQUENCE: U32 = "ah.sequence", "AH Sequence", dec;
        AH_ICV: Bytes as Secret = "ah.icv", "AH ICV";
    }
}

/// An IPv4 header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ipv4 {
    /// Length of the header with its options, in bytes; 20 at least.
    pub header_length: u8,
    /// Type of service: DSCP in the upper 6 bits, ECN in the lower 2.
    pub tos: u8,
    /// Of header and payload; 0 where segmentation was left to the card.
    pub total_length: u16,
    /// Identification.
    pub id: u16,
    /// Flags in the upper 3 bits, fragment offset in units of 8 bytes in the lower 13.
    pub fragment: u16,
    /// Time to live.
    pub ttl: u8,
    /// Protocol of the payload.
    pub protocol: u8,
    /// Sender.
    pub src: [u8; 4],
    /// Receiver.
    pub dst: [u8; 4],
}

impl Ipv4 {
    /// Offset of a fragment's payload, in bytes.
    pub const fn offset(&self) -> u32 {
        (self.fragment & 0x1fff) as u32 * 8
    }

    /// True if it is of a part of the datagram.
    pub const fn is_fragment(&self) -> bool {
        self.fragment & 0x3fff != 0
    }

    /// True if more fragments follow.
    pub const fn more(&self) -> bool {
        self.fragment & 0x2000 != 0
    }
}

/// Checks the checksum of a whole IPv4 header, at the beginning of `i` (RFC 791 3.1). One of 0 was left to the adapter.
#[inline]
pub fn check_v4(i: &[u8]) -> Check {
    let Some(fixed) = i.first_chunk::<20>() else { return Check::Unchecked };
    let length = usize::from(fixed[0] & 0x0f) * 4;
    let Some(options) = i.get(20..length) else { return Check::Unchecked };
    if fixed[10..12] == [0, 0] {
        return Check::Unchecked;
    }
    let mut total = sum(fixed);
    if !options.is_empty() {
        total += sum(options);
    }
    if fold(total) == 0xffff { Check::Good } else { Check::Bad }
}

/// Decodes an IPv4 header with its options.
#[inline]
pub fn parse_v4<'a, T: Trace>(i: &'a [u8], t: &mut T) -> PResult<'a, Ipv4> {
    t.protocol("IPv4");
    scope(f::PROTOCOL, i, t, |at, t| {
        if T::ON {
            // of a whole one the compiler knows the length
            let whole = at.first_chunk::<20>().map(|head| trace_v4(head, t));
            whole.unwrap_or_else(|| trace_v4(at, t))?;
        }
        let Some((h, mut rest)) = at.split_first_chunk::<20>() else {
            return Fault::short(Some(f::PROTOCOL), at, 20).fail();
        };
        if h[0] >> 4 != 4 {
            return Fault::value(f::VERSION, at).fail();
        }
        let header_length = (h[0] & 0x0f) * 4;
        if header_length < 20 {
            return Fault::length(f::HDR_LEN, at, 20).fail();
        }
        if header_length > 20 {
            let length = usize::from(header_length) - 20;
            let Some((options, after)) = rest.split_at_checked(length) else {
                return Fault::short(Some(f::OPTIONS), rest, length).fail();
            };
            if T::ON {
                // options that lie about their lengths are reported; the payload is found all the same
                let _ = scope(f::OPTIONS, options, t, trace_options);
            }
            rest = after;
        }
        let header = Ipv4 {
            header_length,
            tos: h[1],
            total_length: u16::from_be_bytes([h[2], h[3]]),
            id: u16::from_be_bytes([h[4], h[5]]),
            fragment: u16::from_be_bytes([h[6], h[7]]),
            ttl: h[8],
            protocol: h[9],
            src: [h[12], h[13], h[14], h[15]],
            dst: [h[16], h[17], h[18], h[19]],
        };
        if T::ON {
            t.label_parts(&[Text(", Src: "), V4(header.src), Text(", Dst: "), V4(header.dst)]);
            t.layer_info(LayerText::new(h, write_v4));
        }
        Ok((rest, header))
    })
}

/// Addresses and protocol for the frame's line.
fn write_v4(header: &[u8; LayerText::LEN], f: &mut fmt::Formatter<'_>) -> fmt::Result {
    let address = |at: usize| Dotted([header[at], header[at + 1], header[at + 2], header[at + 3]]);
    write!(f, "{} → {} protocol {}", address(12), address(16), header[9])
}

/// Addresses and the next header for the frame's line.
fn write_v6(header: &[u8; LayerText::LEN], f: &mut fmt::Formatter<'_>) -> fmt::Result {
    let address = |at: usize| Ipv6Addr::from(core::array::from_fn::<u8, 16, _>(|n| header[at + n]));
    write!(f, "{} → {} next header {}", address(8), address(24), header[6])
}

#[inline(always)]
fn trace_v4<'a, T: Trace>(at: &'a [u8], t: &mut T) -> PResult<'a, ()> {
    let (i, first) = leaf::u8(at).or_else(|_| Fault::short(Some(f::VERSION), at, 1).fail())?;
    t.field(f::VERSION, at, 1, Value::U(u64::from(first >> 4)));
    t.field(f::HDR_LEN, at, 1, Value::U(u64::from(first & 0x0f) * 4));
    let (rest, tos) = read::u8(f::DSFIELD, i, t)?;
    t.down();
    t.field(f::DSFIELD_DSCP, i, 1, Value::U(u64::from(tos >> 2)));
    t.field(f::DSFIELD_ECN, i, 1, Value::U(u64::from(tos & 3)));
    t.up();
    let (i, _) = read::be16(f::LEN, rest, t)?;
    let (i, _) = read::be16(f::ID, i, t)?;
    let (rest, word) = leaf::be16(i).or_else(|_| Fault::short(Some(f::FLAGS), i, 2).fail())?;
    t.field(f::FLAGS, i, 1, Value::U(u64::from(word >> 13)));
    t.down();
    t.field(f::FLAGS_RB, i, 1, Value::U(u64::from(word >> 15)));
    t.field(f::FLAGS_DF, i, 1, Value::U(u64::from(word >> 14 & 1)));
    t.field(f::FLAGS_MF, i, 1, Value::U(u64::from(word >> 13 & 1)));
    t.up();
    t.field(f::FRAG_OFFSET, i, 2, Value::U(u64::from(word & 0x1fff)));
    let (i, _) = read::u8(f::TTL, rest, t)?;
    let (i, _) = read::u8(f::PROTO, i, t)?;
    let (i, _) = read::be16(f::CHECKSUM, i, t)?;
    let (rest, src) = read::array::<4, T>(f::SRC, i, t)?;
    t.field(f::ADDR, i, 4, Value::Bytes(&i[..4]));
    hosts_v4([f::SRC_HOST, f::HOST], i, src, t);
    let (i, dst) = read::array::<4, T>(f::DST, rest, t)?;
    t.field(f::ADDR, rest, 4, Value::Bytes(&rest[..4]));
    hosts_v4([f::DST_HOST, f::HOST], rest, dst, t);
    Ok((i, ()))
}

/// An IPv4 address as text, written in one piece.
struct Dotted([u8; 4]);

impl fmt::Display for Dotted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        dotted(self.0, |text| f.write_str(core::str::from_utf8(text).unwrap_or_default()))
    }
}

/// Reports the host of an address by these names.
#[inline]
fn hosts<T: Trace>(names: [Def; 2], at: &[u8], address: Value<'_>, t: &mut T) {
    for def in names {
        t.field(def, at, 0, address);
    }
}

#[inline]
fn hosts_v4<T: Trace>(names: [Def; 2], at: &[u8], address: [u8; 4], t: &mut T) {
    if !names.iter().any(|def| t.keeps(def)) {
        return;
    }
    dotted(address, |text| hosts(names, at, Value::Str(core::str::from_utf8(text).unwrap_or_default()), t));
}

fn trace_options<'a, T: Trace>(mut i: &'a [u8], t: &mut T) -> PResult<'a, ()> {
    while !i.is_empty() {
        let (rest, kind) = read::u8(f::OPTION_TYPE, i, t)?;
        match kind {
            0 => return Ok((&i[i.len()..], ())),
            1 => i = rest,
            _ => {
                let (after, length) = read::u8(f::OPTION_LEN, rest, t)?;
                if length < 2 {
                    return Fault::length(f::OPTION_LEN, rest, 2).fail();
                }
                i = read::bytes(f::OPTION_DATA, usize::from(length) - 2, after, t)?.0;
            }
        }
    }
    Ok((i, ()))
}

/// An IPv6 header with the extension headers that were followed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ipv6 {
    /// Traffic class: DSCP in the upper 6 bits, ECN in the lower 2.
    pub traffic_class: u8,
    /// Flow label, 20 bits.
    pub flow: u32,
    /// Bytes after the header of 40; 0 in a jumbogram and where segmentation was left to the card.
    pub payload_length: u16,
    /// Protocol number of the next header.
    pub next: u8,
    /// Hop limit.
    pub hop_limit: u8,
    /// Sender.
    pub src: [u8; 16],
    /// Receiver.
    pub dst: [u8; 16],
}

/// Result of the walk through the extension headers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Extensions {
    /// Protocol of the payload.
    pub protocol: u8,
    /// The fragment header: identification, offset in bytes, whether more follow.
    pub fragment: Option<(u32, u32, bool)>,
}

/// More extension headers than this are not followed.
const EXTENSIONS_MAX: u32 = 16;

/// Decodes an IPv6 header and its extension headers, after `bound` has cut the rest to the length that the header
/// states.
#[inline]
pub fn parse_v6<'a, T: Trace>(
    i: &'a [u8],
    t: &mut T,
    bound: impl FnOnce(&Ipv6, &'a [u8]) -> &'a [u8],
) -> PResult<'a, (Ipv6, Extensions)> {
    t.protocol("IPv6");
    scope(f6::PROTOCOL, i, t, |at, t| {
        if T::ON {
            trace_v6(at, t)?;
        }
        let (rest, header) = fixed_v6(at)?;
        if let (true, Some(h)) = (T::ON, at.first_chunk::<40>()) {
            let (src, dst) = (Ipv6Addr::from(header.src), Ipv6Addr::from(header.dst));
            t.label(format_args!(", Src: {src}, Dst: {dst}"));
            t.layer_info(LayerText::new(h, write_v6));
        }
        let rest = bound(&header, rest);
        let (rest, extensions) = extensions(header.next, rest, t)?;
        Ok((rest, (header, extensions)))
    })
}

/// The same for a datagram that was put together: its header is that of a fragment, which was told in its frame.
pub fn parse_whole_v6<'a, T: Trace>(i: &'a [u8], t: &mut T) -> PResult<'a, (Ipv6, Extensions)> {
    let (rest, header) = fixed_v6(i)?;
    let (rest, extensions) = extensions(header.next, rest, t)?;
    Ok((rest, (header, extensions)))
}

/// The fixed header.
#[inline(always)]
fn fixed_v6(at: &[u8]) -> PResult<'_, Ipv6> {
    let Some((h, rest)) = at.split_first_chunk::<40>() else {
        return Fault::short(Some(f6::PROTOCOL), at, 40).fail();
    };
    let (head, addresses) = h.split_at(8);
    let word = u32::from_be_bytes([head[0], head[1], head[2], head[3]]);
    if word >> 28 != 6 {
        return Fault::value(f6::VERSION, at).fail();
    }
    let (mut src, mut dst) = ([0; 16], [0; 16]);
    src.copy_from_slice(&addresses[..16]);
    dst.copy_from_slice(&addresses[16..]);
    let header = Ipv6 {
        traffic_class: (word >> 20 & 0xff) as u8,
        flow: word & 0x000f_ffff,
        payload_length: u16::from_be_bytes([head[4], head[5]]),
        next: head[6],
        hop_limit: head[7],
        src,
        dst,
    };
    Ok((rest, header))
}

fn trace_v6<'a, T: Trace>(at: &'a [u8], t: &mut T) -> PResult<'a, ()> {
    let (i, word) = leaf::be32(at).or_else(|_| Fault::short(Some(f6::VERSION), at, 4).fail())?;
    t.field(f6::VERSION, at, 1, Value::U(u64::from(word >> 28)));
    t.field(f::VERSION, at, 0, Value::U(u64::from(word >> 28)));
    t.field(f6::TCLASS, at, 4, Value::U(u64::from(word >> 20 & 0xff)));
    t.down();
    t.field(f6::TCLASS_DSCP, at, 4, Value::U(u64::from(word >> 22 & 0x3f)));
    t.field(f6::TCLASS_ECN, at, 4, Value::U(u64::from(word >> 20 & 3)));
    t.up();
    t.field(f6::FLOW, &at[1..], 3, Value::U(u64::from(word & 0x000f_ffff)));
    let (i, _) = read::be16(f6::PLEN, i, t)?;
    let (i, _) = read::u8(f6::NXT, i, t)?;
    let (i, _) = read::u8(f6::HLIM, i, t)?;
    let (rest, src) = read::array::<16, T>(f6::SRC, i, t)?;
    t.field(f6::ADDR, i, 16, Value::Bytes(&i[..16]));
    hosts([f6::SRC_HOST, f6::HOST], i, Value::Text(format_args!("{}", Ipv6Addr::from(src))), t);
    let (i, dst) = read::array::<16, T>(f6::DST, rest, t)?;
    t.field(f6::ADDR, rest, 16, Value::Bytes(&rest[..16]));
    hosts([f6::DST_HOST, f6::HOST], rest, Value::Text(format_args!("{}", Ipv6Addr::from(dst))), t);
    Ok((i, ()))
}

#[inline]
fn extensions<'a, T: Trace>(mut next: u8, mut i: &'a [u8], t: &mut T) -> PResult<'a, Extensions> {
    for _ in 0..EXTENSIONS_MAX {
        let (node, nxt, len) = match next {
            0 => (f6::HOPOPTS, f6::HOPOPTS_NXT, f6::HOPOPTS_LEN),
            43 => (f6::ROUTING, f6::ROUTING_NXT, f6::ROUTING_LEN),
            60 | 135 | 139 | 140 => (f6::DSTOPTS, f6::DSTOPTS_NXT, f6::DSTOPTS_LEN),
            51 => (f6::AH, f6::AH_NXT, f6::AH_LEN),
            44 => {
                let (rest, (protocol, fragment)) = scope(f6::FRAGHDR, i, t, parse_fragment)?;
                // an atomic fragment is a whole datagram: more extension headers may follow
                if fragment.1 != 0 || fragment.2 {
                    return Ok((rest, Extensions { protocol, fragment: Some(fragment) }));
                }
                (i, next) = (rest, protocol);
                continue;
            }
            _ => return Ok((i, Extensions { protocol: next, fragment: None })),
        };
        (i, next) = scope(node, i, t, |i, t| match next {
            51 => authentication(i, t),
            _ => {
                let (i, following) = read::u8(nxt, i, t)?;
                let (i, words) = read::u8(len, i, t)?;
                // of 8 bytes, not counting the first
                let length = usize::from(words) * 8 + 6;
                if next == 0 && T::ON {
                    // instructions to routers identify nobody
                    t.unshown(i, length.min(i.len()));
                }
                if next != 43 {
                    return Ok((read::bytes(f6::DATA, length, i, t)?.0, following));
                }
                let (i, _) = read::u8(f6::ROUTING_TYPE, i, t)?;
                let (i, _) = read::u8(f6::ROUTING_SEGLEFT, i, t)?;
                Ok((read::bytes(f6::DATA, length - 2, i, t)?.0, following))
            }
        })?;
    }
    Fault::limit(f6::NXT, i).fail()
}

/// Identification, offset in bytes, whether more follow: behind the protocol of the payload.
fn parse_fragment<'a, T: Trace>(i: &'a [u8], t: &mut T) -> PResult<'a, (u8, (u32, u32, bool))> {
    let (i, protocol) = read::u8(f6::FRAGHDR_NXT, i, t)?;
    let (i, _) = read::u8(f6::FRAGHDR_RESERVED, i, t)?;
    let (rest, word) = leaf::be16(i).or_else(|_| Fault::short(Some(f6::FRAGHDR_OFFSET), i, 2).fail())?;
    t.field(f6::FRAGHDR_OFFSET, i, 2, Value::U(u64::from(word >> 3)));
    t.field(f6::FRAGHDR_MORE, i, 2, Value::U(u64::from(word & 1)));
    let (rest, id) = read::be32(f6::FRAGHDR_IDENT, rest, t)?;
    Ok((rest, (protocol, (id, u32::from(word & 0xfff8), word & 1 != 0))))
}

/// Decodes an authentication header over IPv4: the protocol that follows it.
pub fn parse_ah<'a, T: Trace>(i: &'a [u8], t: &mut T) -> PResult<'a, u8> {
    t.protocol("AH");
    scope(f6::AH, i, t, authentication)
}

fn authentication<'a, T: Trace>(i: &'a [u8], t: &mut T) -> PResult<'a, u8> {
    let (i, following) = read::u8(f6::AH_NXT, i, t)?;
    let (rest, words) = read::u8(f6::AH_LEN, i, t)?;
    // words of 4 bytes, not counting the first two
    let Some(icv) = (usize::from(words) * 4).checked_sub(4) else { return Fault::length(f6::AH_LEN, i, 4).fail() };
    let (i, _) = read::bytes(f6::AH_RESERVED, 2, rest, t)?;
    let (i, _) = read::be32(f6::AH_SPI, i, t)?;
    let (i, _) = read::be32(f6::AH_SEQUENCE, i, t)?;
    let (i, _) = read::bytes(f6::AH_ICV, icv, i, t)?;
    Ok((i, following))
}

/// The checksum of these parts (RFC 1071), as it stands in a header. All parts but the last are of even length.
pub fn checksum(parts: &[&[u8]]) -> [u8; 2] {
    (!fold(parts.iter().map(|part| sum(part)).sum())).to_ne_bytes()
}

/// The sum of 32-bit words in the machine's byte order: in ones' complement the order makes no difference but to the
/// result's own bytes.
#[inline]
pub(super) fn sum(bytes: &[u8]) -> u64 {
    let (words, rest) = bytes.as_chunks::<16>();
    // 128 bits at a time; carries are added at the other end
    let (mut whole, mut carried) = (0u128, 0u64);
    for word in words {
        let (sum, is_carried) = whole.overflowing_add(u128::from_ne_bytes(*word));
        (whole, carried) = (sum, carried + u64::from(is_carried));
    }
    let half = |shift: u32| u64::from((whole >> shift) as u32);
    let (quarters, rest) = rest.as_chunks::<4>();
    let behind: u64 = quarters.iter().map(|word| u64::from(u32::from_ne_bytes(*word))).sum();
    let mut last = [0; 4];
    last[..rest.len()].copy_from_slice(rest);
    half(0) + half(32) + half(64) + half(96) + carried + behind + u64::from(u32::from_ne_bytes(last))
}

/// A sum in 16 bits.
pub(super) fn fold(sum: u64) -> u16 {
    let sum = (sum >> 32) + (sum & 0xffff_ffff);
    let sum = (sum >> 16) + (sum & 0xffff);
    let sum = (sum >> 16) + (sum & 0xffff);
    ((sum >> 16) + (sum & 0xffff)) as u16
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_checksum_is_that_of_the_rfc() {
        // RFC 1071 3, the numerical example
        assert_eq!(checksum(&[&[0x00, 0x01, 0xf2, 0x03, 0xf4, 0xf5, 0xf6, 0xf7]]), [0x22, 0x0d]);
        assert_eq!(checksum(&[&[0x00, 0x01], &[0xf2, 0x03, 0xf4, 0xf5, 0xf6, 0xf7]]), [0x22, 0x0d]);
        assert_eq!(checksum(&[&[0xab]]), [0x54, 0xff]);
        assert_eq!(checksum(&[]), [0xff, 0xff]);
    }
}
