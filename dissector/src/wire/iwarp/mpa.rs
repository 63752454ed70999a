//! MPA, Marker PDU Aligned framing for TCP: RFC 5044; enhanced connection establishment: RFC 6581. Big-endian, but for
//! the CRC.
//!
//! ```text
//! initiator ── "MPA ID Req Frame" flags rev length private data ──▶ responder
//! initiator ◀── "MPA ID Rep Frame" flags rev length private data ── responder
//! either    ── FPDU: length(2) ULPDU padding(0–3) CRC32c(4) ──▶ either
//! ```
//!
//! With markers, four bytes stand before every 512th byte of the stream of FPDUs: the caller takes them out.
//!
//! Private data of revision 2 begins with the read depths of RFC 6581 where the S flag is set. Behind that, or first,
//! may stand the older header of \[MS-SMBD\] 6.1, which some stacks send in the byte order of their processor.

use crate::fault::{Check, Fault, PResult};
use crate::leaf::read;
use crate::trace::{Off, Trace, Value, scope};
use crate::wire::ib::cm::RpcRdmaPrivate;
use alloc::vec::Vec;

/// First bytes of an MPA Request (RFC 5044 7.1.1).
pub const REQUEST_KEY: [u8; 16] = *b"MPA ID Req Frame";
/// First bytes of an MPA Reply (RFC 5044 7.1.1).
pub const REPLY_KEY: [u8; 16] = *b"MPA ID Rep Frame";
/// Length of a Request or Reply without its private data.
pub const FRAME_LEN: usize = 20;
/// Private data may be this long at most (RFC 5044 7.1.1).
pub const PRIVATE_DATA_MAX: usize = 512;
/// Markers stand this many bytes apart, from the start of one to the start of the next (RFC 5044 4.3).
pub const MARKER_INTERVAL: u32 = 512;
/// Length of a marker.
pub const MARKER_LEN: usize = 4;
/// Length of the CRC that ends an FPDU.
pub const CRC_LEN: usize = 4;

fields! {
    /// The protocol and what is not a fixed header.
    pub mod f ["RFC 5044 4"] {
        PROTOCOL: Protocol = "iwarp_mpa", "iWARP Marker Protocol data unit Aligned framing";
        FPDU: None = "iwarp_mpa.fpdu", "FPDU";
        ULPDU_LENGTH: U16 = "iwarp_mpa.ulpdulength", "ULPDU length", dec;
        PAD: Bytes as Keep = "iwarp_mpa.pad", "Padding";
        CRC: U32 = "iwarp_mpa.crc", "CRC", hex;
        CRC_CHECK: U32 = "iwarp_mpa.crc_check", "CRC check", hex;
        CRC_STATUS: U8 = "rdmascope.iwarp_mpa.crc.status", "CRC status", dec, values CRC_STATUS_VALUES;
        PART: Bytes = "rdmascope.iwarp_mpa.fpdu.part", "Part of an FPDU";
        PRIVATE_DATA: Bytes = "iwarp_mpa.privatedata", "Private data";
        LEGACY: None = "iwarp_mpa.legacy", "IRD/ORD negotiate header ([MS-SMBD] 6.1)";
        LEGACY_IRD: U32 = "iwarp_mpa.legacy.ird", "IRD", dec;
        LEGACY_ORD: U32 = "iwarp_mpa.legacy.ord", "ORD", dec;
        LEGACY_LITTLE_ENDIAN: Bool & 0x1 / 8 = "rdmascope.iwarp_mpa.legacy.little_endian", "In little-endian byte order";
        REJECTED: None = "iwarp_mpa.reject_bit_responder", "Reject bit set by Responder";
    }
}

const CRC_STATUS_VALUES: crate::field::Values = &[(0, "Bad"), (1, "Good"), (2, "Unverified")];

header! {
    /// Opens the connection; sent by the end that connected.
    pub struct RequestHeader [NODE = "iwarp_mpa.req", "Request frame header", "RFC 5044 7.1.1"] {
        key: bytes[16] as Keep = "iwarp_mpa.key.req", "ID Req frame";
        flags: u8 = "_", "Flags", hex, bits {
            /// The sender wants markers in what it receives.
            markers: bool & 0x80 = "iwarp_mpa.marker_flag", "Marker flag";
            /// CRCs are to be used, in both directions.
            crc: bool & 0x40 = "iwarp_mpa.crc_flag", "CRC flag";
            /// The responder refuses; 0 in a Request.
            reject: bool & 0x20 = "iwarp_mpa.rej_flag", "Connection rejected flag";
            /// Revision 2: the private data begins with the enhanced read depths (RFC 6581 9.1).
            enhanced: bool & 0x10 = "iwarp_mpa.enhanced_flag", "Enhanced connection setup flag";
            reserved: u8 & 0x0f = "iwarp_mpa.res", "Reserved", hex;
        };
        revision: u8 = "iwarp_mpa.rev", "Revision", dec;
        private_data_length: be16 = "iwarp_mpa.pdlength", "Private data length", dec;
    }
}

header! {
    /// Answers the Request, or refuses it.
    pub struct ReplyHeader [NODE = "iwarp_mpa.rep", "Reply frame header", "RFC 5044 7.1.1"] {
        key: bytes[16] as Keep = "iwarp_mpa.key.rep", "ID Rep frame";
        flags: u8 = "_", "Flags", hex, bits {
            /// The sender wants markers in what it receives.
            markers: bool & 0x80 = "iwarp_mpa.marker_flag", "Marker flag";
            /// CRCs are to be used, in both directions.
            crc: bool & 0x40 = "iwarp_mpa.crc_flag", "CRC flag";
            /// The responder refuses.
            reject: bool & 0x20 = "iwarp_mpa.rej_flag", "Connection rejected flag";
            /// Revision 2: the private data begins with the enhanced read depths (RFC 6581 9.1).
            enhanced: bool & 0x10 = "iwarp_mpa.enhanced_flag", "Enhanced connection setup flag";
            reserved: u8 & 0x0f = "iwarp_mpa.res", "Reserved", hex;
        };
        revision: u8 = "iwarp_mpa.rev", "Revision", dec;
        private_data_length: be16 = "iwarp_mpa.pdlength", "Private data length", dec;
    }
}

header! {
    /// Read depths and the first message of a peer-to-peer connection: first in the private data where the S flag is
    /// set.
    pub struct Enhanced [NODE = "iwarp_mpa.enhanced", "Enhanced RDMA connection establishment", "RFC 6581 9.2"] {
        ird_word: be16 = "_", "IRD and control", hex, bits {
            /// Either end may send first.
            peer_to_peer: bool & 0x8000 = "iwarp_mpa.enhanced.a", "A: peer-to-peer model";
            /// The initiator may open with an FPDU of no length.
            rtr_send: bool & 0x4000 = "iwarp_mpa.enhanced.b", "B: zero length FPDU as RTR";
            /// Reads the sender can take at once; 0x3fff: not negotiated here.
            ird: u16 & 0x3fff = "iwarp_mpa.enhanced.ird", "IRD", dec;
        };
        ord_word: be16 = "_", "ORD and control", hex, bits {
            /// The initiator may open with an RDMA Write of no length.
            rtr_write: bool & 0x8000 = "iwarp_mpa.enhanced.c", "C: zero length RDMA Write as RTR";
            /// The initiator may open with an RDMA Read of no length.
            rtr_read: bool & 0x4000 = "rdmascope.iwarp_mpa.enhanced.d", "D: zero length RDMA Read as RTR";
            /// Reads the sender would issue at once; 0x3fff: not negotiated here.
            ord: u16 & 0x3fff = "iwarp_mpa.enhanced.ord", "ORD", dec;
        };
    }
}

header! {
    /// Stands before every 512th byte of the stream of FPDUs, where the receiver asked for it.
    pub struct Marker [NODE = "iwarp_mpa.markers", "Markers", "RFC 5044 4.3"] {
        reserved: be16 = "iwarp_mpa.marker_res", "Reserved", hex;
        /// Bytes of the stream from the length field of the FPDU to this marker; 0 where it stands before the FPDU.
        fpdu_pointer: be16 = "iwarp_mpa.marker_fpduptr", "FPDU back pointer", dec;
    }
}

/// Read depths as \[MS-SMBD\] 6.1 puts them into the private data: two 32-bit numbers, big-endian if sent as specified.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Legacy {
    /// Incoming read depth.
    pub ird: u32,
    /// Outgoing read depth.
    pub ord: u32,
    /// True if it was sent in the wrong byte order.
    pub little_endian: bool,
}

/// An MPA Request or Reply.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Startup<'a> {
    /// True if it is a Reply.
    pub reply: bool,
    /// The sender wants markers in the bytes that it receives.
    pub markers: bool,
    /// The sender wants CRCs.
    pub crc: bool,
    /// A Reply that refuses.
    pub reject: bool,
    /// The five reserved flag bits, the S flag of revision 2 among them.
    pub reserved: u8,
    /// 1 or 2.
    pub revision: u8,
    /// As the header says.
    pub private_data_length: u16,
    /// Captured part of the private data.
    pub private_data: &'a [u8],
    /// Read depths of RFC 6581.
    pub enhanced: Option<Enhanced>,
    /// Read depths of \[MS-SMBD\] 6.1.
    pub legacy: Option<Legacy>,
    /// NFS's part of the private data (RFC 8797).
    pub rpc_rdma: Option<RpcRdmaPrivate>,
    /// The private data behind the read depths: the upper layer's.
    pub upper: &'a [u8],
}

impl Startup<'_> {
    /// True if its private data begins with the read depths of RFC 6581, according to its flags.
    pub fn is_enhanced(&self) -> bool {
        self.revision >= 2 && self.reserved & 0x10 != 0
    }

    /// Incoming and outgoing read depth of the sender, where it says them.
    pub fn depths(&self) -> Option<(u32, u32)> {
        match (self.legacy, self.enhanced) {
            (Some(l), _) => Some((l.ird, l.ord)),
            (None, Some(e)) => Some((e.ird().into(), e.ord().into())),
            (None, None) => None,
        }
    }

    /// Encodes the frame at the end of `out`. Its private data is `private_data`, with the read depths in it.
    pub fn emit(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(if self.reply { &REPLY_KEY } else { &REQUEST_KEY });
        let bit = |set: bool, mask: u8| if set { mask } else { 0 };
        out.push(bit(self.markers, 0x80) | bit(self.crc, 0x40) | bit(self.reject, 0x20) | (self.reserved & 0x1f));
        out.push(self.revision);
        out.extend_from_slice(&self.private_data_length.to_be_bytes());
        out.extend_from_slice(self.private_data);
    }
}

/// Kind of a stream, by its first bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Opening {
    /// An MPA Request or Reply (`reply`) of this many bytes.
    Startup {
        /// True if it is a Reply.
        reply: bool,
        /// Length with the private data.
        length: usize,
    },
    /// It may become one: more bytes are needed.
    Short,
    /// Neither.
    Other,
}

/// The kind of stream that `i` begins: an MPA Request or Reply, or another.
pub fn opening(i: &[u8]) -> Opening {
    let n = i.len().min(REQUEST_KEY.len());
    let reply = i[..n] == REPLY_KEY[..n];
    if !reply && i[..n] != REQUEST_KEY[..n] {
        return Opening::Other;
    }
    match i.get(18..20) {
        Some(length) => {
            Opening::Startup { reply, length: FRAME_LEN + usize::from(u16::from_be_bytes([length[0], length[1]])) }
        }
        None => Opening::Short,
    }
}

/// Decodes an MPA Request or Reply in a protocol subtree of its own; its key says which of the two it is.
pub fn parse_startup<'a, T: Trace>(i: &'a [u8], t: &mut T) -> PResult<'a, Startup<'a>> {
    t.protocol("MPA");
    scope(f::PROTOCOL, i, t, |i, t| {
        let reply = i.starts_with(&REPLY_KEY);
        if !reply && !i.starts_with(&REQUEST_KEY) && i.len() >= REQUEST_KEY.len() {
            return Fault::value(RequestHeader::NODE, i).fail();
        }
        scope(if reply { ReplyHeader::NODE } else { RequestHeader::NODE }, i, t, |i, t| {
            // both headers are the same bytes
            let (i, h) = if reply {
                let (i, h) = ReplyHeader::parse_flat(i, t)?;
                (
                    i,
                    RequestHeader {
                        key: h.key,
                        flags: h.flags,
                        revision: h.revision,
                        private_data_length: h.private_data_length,
                    },
                )
            } else {
                RequestHeader::parse_flat(i, t)?
            };
            t.info(format_args!("{} revision {}", if reply { "Reply" } else { "Request" }, h.revision));
            if h.reject() {
                if reply {
                    t.field(f::REJECTED, i, 0, Value::None);
                }
                t.info(format_args!("rejected"));
            }
            let length = usize::from(h.private_data_length);
            let (private_data, rest) = i.split_at(length.min(i.len()));
            if T::ON && !private_data.is_empty() {
                t.field(f::PRIVATE_DATA, i, private_data.len(), Value::Bytes(private_data));
                t.down();
            }
            let (enhanced, legacy, upper) = private(&h, private_data, t);
            let rpc_rdma = RpcRdmaPrivate::find(upper, t);
            if T::ON && !private_data.is_empty() {
                t.up();
            }
            if private_data.len() < length {
                return Fault::short(Some(f::PRIVATE_DATA), i, length).fail();
            }
            let frame = Startup {
                reply,
                markers: h.markers(),
                crc: h.crc(),
                reject: h.reject(),
                reserved: h.flags & 0x1f,
                revision: h.revision,
                private_data_length: h.private_data_length,
                private_data,
                enhanced,
                legacy,
                rpc_rdma,
                upper,
            };
            if let (true, Some((ird, ord))) = (T::ON, frame.depths()) {
                t.info(format_args!("IRD {ird}"));
                t.info(format_args!("ORD {ord}"));
            }
            Ok((rest, frame))
        })
    })
}

/// The read depths in private data. Too short for them, it has none.
fn private<'a, T: Trace>(h: &RequestHeader, data: &'a [u8], t: &mut T) -> (Option<Enhanced>, Option<Legacy>, &'a [u8]) {
    let (mut i, mut enhanced) = (data, None);
    if h.revision >= 2
        && h.enhanced()
        && data.len() >= Enhanced::LEN
        && let Ok((rest, e)) = Enhanced::parse(i, t)
    {
        (i, enhanced) = (rest, Some(e));
    }
    let Some(legacy) = legacy(i) else { return (enhanced, None, i) };
    let read = scope(f::LEGACY, i, t, |i, t| {
        let number = if legacy.little_endian { read::le32 } else { read::be32 };
        let (i, _) = number(f::LEGACY_IRD, i, t)?;
        let (i, _) = number(f::LEGACY_ORD, i, t)?;
        t.field(f::LEGACY_LITTLE_ENDIAN, i, 0, Value::U(legacy.little_endian.into()));
        Ok((i, ()))
    });
    (enhanced, Some(legacy), read.map_or(i, |(rest, ())| rest))
}

/// Nothing marks the header of \[MS-SMBD\] 6.1. Depths are small numbers, which distinguishes it from other private
/// data, and shows its byte order.
fn legacy(i: &[u8]) -> Option<Legacy> {
    const SMALL: u32 = 0xffff;
    let (ird, rest) = i.split_first_chunk::<4>()?;
    let (ord, rest) = rest.split_first_chunk::<4>()?;
    let big = Legacy { ird: u32::from_be_bytes(*ird), ord: u32::from_be_bytes(*ord), little_endian: false };
    let little = Legacy { ird: u32::from_le_bytes(*ird), ord: u32::from_le_bytes(*ord), little_endian: true };
    if big.ird == 0 && big.ord == 0 {
        return rest.is_empty().then_some(big);
    }
    [big, little].into_iter().find(|l| l.ird <= SMALL && l.ord <= SMALL)
}

/// Use of CRCs on the connection, and the result for this FPDU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Crc {
    /// Not in use, or not known to be: the field is whatever the sender left there.
    Unused,
    /// CRCs are in use; the result of the check.
    Used(Check),
}

/// A framed protocol data unit, without markers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fpdu<'a> {
    /// As the header says; `ulpdu` holds the captured part.
    pub ulpdu_length: u16,
    /// The DDP segment.
    pub ulpdu: &'a [u8],
}

/// Padding behind a ULPDU, which makes the FPDU a multiple of 4 bytes (RFC 5044 4.1).
#[inline]
pub const fn padding(ulpdu_length: u16) -> usize {
    (4 - (2 + ulpdu_length as usize) % 4) % 4
}

/// Length of an FPDU with header, padding and CRC, without markers.
#[inline]
pub const fn fpdu_len(ulpdu_length: u16) -> usize {
    2 + ulpdu_length as usize + padding(ulpdu_length) + CRC_LEN
}

/// CRC32c (RFC 3720 B.4), which covers an FPDU and its markers. On the wire it stands little-endian.
#[inline]
pub fn crc(bytes: &[u8]) -> u32 {
    crc_fast::checksum(crc_fast::CrcAlgorithm::Crc32Iscsi, bytes) as u32
}

/// The CRC of what had the CRC `before` and of the `bytes` that follow it.
#[inline]
pub fn crc_append(before: u32, bytes: &[u8]) -> u32 {
    let mut digest = crc_fast::Digest::new_with_init_state(crc_fast::CrcAlgorithm::Crc32Iscsi, u64::from(!before));
    digest.update(bytes);
    digest.finalize() as u32
}

/// The CRC of an FPDU as it stands in the last four bytes (RFC 5044 4.4, with the byte order of RFC 3720:
/// little-endian). `fpdu` is whole, with its markers, if there are any.
#[inline]
pub fn check(fpdu: &[u8]) -> Check {
    let Some((body, stated)) = fpdu.split_last_chunk::<CRC_LEN>() else { return Check::Unchecked };
    if crc(body) == u32::from_le_bytes(*stated) { Check::Good } else { Check::Bad }
}

/// Length of the run of whole FPDUs without markers, with right CRCs, at the start of `bytes`.
pub fn check_run(bytes: &[u8]) -> usize {
    let mut good = 0;
    while let Some((length, _)) = bytes[good..].split_first_chunk::<2>() {
        let Some(fpdu) = bytes[good..].get(..fpdu_len(u16::from_be_bytes(*length))) else { break };
        if check(fpdu) != Check::Good {
            break;
        }
        good += fpdu.len();
    }
    good
}

/// Decodes an FPDU in a protocol subtree of its own. `fpdu` is all of it without markers, or its captured part. Only
/// a missing header is a fault: other missing bytes are missing from the `ulpdu`.
#[inline]
pub fn parse_fpdu<'a, T: Trace>(fpdu: &'a [u8], crc: Crc, t: &mut T) -> PResult<'a, Fpdu<'a>> {
    if !T::ON {
        let (i, ulpdu_length) = read::be16(f::ULPDU_LENGTH, fpdu, t)?;
        let (ulpdu, rest) = i.split_at(usize::from(ulpdu_length).min(i.len()));
        return Ok((&rest[(padding(ulpdu_length) + CRC_LEN).min(rest.len())..], Fpdu { ulpdu_length, ulpdu }));
    }
    t.protocol("MPA");
    if !t.wants(&f::SET) {
        return scope(f::PROTOCOL, fpdu, t, |i, _| parse_fpdu(i, crc, &mut Off));
    }
    scope(f::PROTOCOL, fpdu, t, |i, t| {
        scope(f::FPDU, i, t, |i, t| {
            let (i, ulpdu_length) = read::be16(f::ULPDU_LENGTH, i, t)?;
            let (ulpdu, mut i) = i.split_at(usize::from(ulpdu_length).min(i.len()));
            let pad = padding(ulpdu_length);
            let behind = &i[(pad + CRC_LEN).min(i.len())..];
            if pad > 0 && i.len() >= pad {
                (i, _) = read::bytes(f::PAD, pad, i, t)?;
            }
            if i.len() >= CRC_LEN {
                let at = i;
                read::be32(if crc == Crc::Unused { f::CRC } else { f::CRC_CHECK }, i, t)?;
                if let Crc::Used(check) = crc {
                    let status = match check {
                        Check::Bad => 0,
                        Check::Good => 1,
                        Check::Unchecked => 2,
                    };
                    t.field(f::CRC_STATUS, at, 0, Value::U(status));
                    if check == Check::Bad {
                        t.info(format_args!("CRC bad"));
                    }
                }
            }
            Ok((behind, Fpdu { ulpdu_length, ulpdu }))
        })
    })
}

/// Encodes an FPDU at the end of `out`, without markers; its CRC is 0 where CRCs are not in use. A ULPDU longer than
/// its length field can say is cut.
pub fn emit_fpdu(ulpdu: &[u8], crc: bool, out: &mut Vec<u8>) {
    let length = u16::try_from(ulpdu.len()).unwrap_or(u16::MAX);
    let start = out.len();
    out.extend_from_slice(&length.to_be_bytes());
    out.extend_from_slice(&ulpdu[..usize::from(length)]);
    out.resize(out.len() + padding(length), 0);
    let value = if crc { self::crc(&out[start..]) } else { 0 };
    out.extend_from_slice(&value.to_le_bytes());
}

/// Encodes an FPDU at the end of `out`, with markers. `position` is where in the stream of FPDUs it begins, in bytes
/// from the first marker, markers counted; returns where it ends.
pub fn emit_fpdu_with_markers(ulpdu: &[u8], crc: bool, position: u32, out: &mut Vec<u8>) -> u32 {
    let mut plain = Vec::new();
    emit_fpdu(ulpdu, false, &mut plain);
    let (start, body) = (out.len(), plain.len() - CRC_LEN);
    // the length field comes behind a marker that stands before the FPDU
    let header = start + if position.is_multiple_of(MARKER_INTERVAL) { MARKER_LEN } else { 0 };
    let here = |out: &Vec<u8>| position.wrapping_add((out.len() - start) as u32);
    for (n, byte) in plain[..body].iter().enumerate().map(|(n, b)| (n, Some(*b))).chain([(body, None)]) {
        if n % 4 == 0 && here(out).is_multiple_of(MARKER_INTERVAL) {
            let pointer = out.len().saturating_sub(header) as u16;
            Marker { reserved: 0, fpdu_pointer: pointer }.emit(out);
        }
        out.extend(byte);
    }
    let value = if crc { self::crc(&out[start..]) } else { 0 };
    out.extend_from_slice(&value.to_le_bytes());
    here(out)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trace::{Off, Tree};
    use proptest::prelude::*;

    /// An enhanced Request with the read depths of [MS-SMBD] 6.1 in little-endian, as a Linux initiator sends it.
    const REQUEST: &[u8] = b"MPA ID Req Frame\x50\x02\x00\x0c\x00\x20\x00\x00\x20\0\0\0\x01\0\0\0";
    /// The Reply to it.
    const REPLY: &[u8] = b"MPA ID Rep Frame\x50\x02\x00\x0c\x00\x01\x00\x08\0\0\0\x01\0\0\0\x08";

    #[test]
    fn a_request_and_its_reply_say_their_depths_in_both_byte_orders() {
        let (rest, request) = parse_startup(REQUEST, &mut Off).unwrap();
        assert!(rest.is_empty() && request.crc && !request.reply && !request.reject && !request.markers);
        assert_eq!(request.enhanced.map(|e| (e.ird(), e.ord(), e.peer_to_peer())), Some((32, 0, false)));
        assert_eq!(request.legacy, Some(Legacy { ird: 32, ord: 1, little_endian: true }));
        let (_, reply) = parse_startup(REPLY, &mut Off).unwrap();
        assert_eq!(reply.legacy, Some(Legacy { ird: 1, ord: 8, little_endian: false }));
        assert_eq!((reply.depths(), reply.upper), (Some((1, 8)), &[][..]));
        for bytes in [REQUEST, REPLY] {
            let mut out = Vec::new();
            parse_startup(bytes, &mut Off).unwrap().1.emit(&mut out);
            assert_eq!(out, bytes);
        }
    }

    #[test]
    fn private_data_of_others_is_no_legacy_header() {
        let mut bytes = REQUEST[..20].to_vec();
        bytes.extend_from_slice(&[0, 0x80, 0, 0, 0xf6, 0xab, 0x0e, 0x18, 1, 1, 3, 3]);
        let (_, nfs) = parse_startup(&bytes, &mut Off).unwrap();
        assert_eq!((nfs.legacy, nfs.enhanced.map(|e| e.ird())), (None, Some(128)));
        assert_eq!(
            nfs.rpc_rdma.map(|p| (p.remote_invalidation(), p.send_size(), p.receive_size())),
            Some((true, 4096, 4096))
        );
        assert_eq!(nfs.upper, [0xf6, 0xab, 0x0e, 0x18, 1, 1, 3, 3]);
    }

    #[test]
    fn control_bits_and_reject() {
        let bytes = b"MPA ID Rep Frame\x30\x02\x00\x04\xc0\x10\xc0\x08";
        let mut tree = Tree::new();
        tree.begin(bytes);
        let (_, reply) = parse_startup(bytes, &mut tree).unwrap();
        let e = reply.enhanced.unwrap();
        assert!(reply.reject && e.peer_to_peer() && e.rtr_send() && e.rtr_write() && e.rtr_read());
        assert_eq!((e.ird(), e.ord(), tree.number("iwarp_mpa.enhanced.ird")), (16, 8, Some(16)));
        assert_eq!(tree.all("iwarp_mpa.reject_bit_responder").count(), 1);
        assert_eq!((tree.protocol, tree.info.as_str()), ("MPA", "Reply revision 2, rejected, IRD 16, ORD 8"));
    }

    #[test]
    fn every_prefix_gives_its_fields_and_a_fault() {
        for n in 0..REQUEST.len() {
            let mut tree = Tree::new();
            tree.begin(&REQUEST[..n]);
            assert!(parse_startup(&REQUEST[..n], &mut tree).is_err());
            assert_eq!(tree.faults.len(), 1, "told once");
            assert!(tree.nodes.iter().all(|node| (node.offset + node.len) as usize <= n));
            assert_eq!(opening(&REQUEST[..n]) == Opening::Short, n < 20);
        }
        assert_eq!(opening(REPLY), Opening::Startup { reply: true, length: 32 });
        assert_eq!(opening(b"MPA ID Xyz"), Opening::Other);
    }

    #[test]
    fn an_fpdu_reads_back_and_its_crc_is_checked() {
        let mut out = Vec::new();
        emit_fpdu(&[7; 21], true, &mut out);
        assert_eq!((out.len(), check(&out)), (fpdu_len(21), Check::Good));
        let mut tree = Tree::new();
        tree.begin(&out);
        let (rest, fpdu) = parse_fpdu(&out, Crc::Used(check(&out)), &mut tree).unwrap();
        assert!(rest.is_empty());
        assert_eq!((fpdu.ulpdu_length, fpdu.ulpdu), (21, &[7; 21][..]));
        assert_eq!((tree.number("rdmascope.iwarp_mpa.crc.status"), tree.all("iwarp_mpa.pad").count()), (Some(1), 1));
        out[5] ^= 1;
        assert_eq!(check(&out), Check::Bad);
    }

    // RFC 3720 B.4: 32 bytes of zeros have the CRC aa 36 91 8a on the wire
    #[test]
    fn the_crc_stands_in_the_byte_order_of_iscsi() {
        let mut bytes = alloc::vec![0; 32];
        bytes.extend_from_slice(&[0xaa, 0x36, 0x91, 0x8a]);
        assert_eq!(check(&bytes), Check::Good);
    }

    #[test]
    fn markers_stand_every_512_bytes_and_point_back() {
        let mut out = Vec::new();
        let end = emit_fpdu_with_markers(&[1; 1400], true, 0, &mut out);
        assert_eq!(end as usize, out.len());
        assert_eq!(
            (&out[..4], &out[512..516], &out[1024..1028]),
            (&[0; 4][..], &[0, 0, 0x01, 0xfc][..], &[0, 0, 0x03, 0xfc][..])
        );
        assert_eq!((out.len(), check(&out)), (fpdu_len(1400) + 12, Check::Good));
        let end = emit_fpdu_with_markers(&[2; 500], true, end, &mut out);
        assert_eq!(out[1536..1540], [0, 0, 0, (1536 - 1420) as u8]);
        assert_eq!(end as usize, out.len());
    }

    proptest! {
        #[test]
        fn arbitrary_bytes_never_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200), key in 0..3u8) {
            let mut i = match key { 0 => REQUEST[..16].to_vec(), 1 => REPLY[..16].to_vec(), _ => Vec::new() };
            i.extend_from_slice(&bytes);
            let mut tree = Tree::new();
            tree.begin(&i);
            let traced = parse_startup(&i, &mut tree).ok().map(|(_, s)| s);
            prop_assert_eq!(traced, parse_startup(&i, &mut Off).ok().map(|(_, s)| s));
            if let Some(s) = traced {
                let mut out = Vec::new();
                s.emit(&mut out);
                prop_assert_eq!(&out[..], &i[..out.len()]);
            }
            tree.begin(&i);
            let traced = parse_fpdu(&i, Crc::Unused, &mut tree).map(|(_, p)| p).ok();
            prop_assert_eq!(traced, parse_fpdu(&i, Crc::Unused, &mut Off).map(|(_, p)| p).ok());
        }
    }

    #[test]
    fn a_run_of_fpdus_ends_at_the_first_that_is_wrong_or_not_whole() {
        let mut bytes = Vec::new();
        emit_fpdu(&[1; 21], true, &mut bytes);
        let first = bytes.len();
        emit_fpdu(&[2; 30], true, &mut bytes);
        assert_eq!(check_run(&bytes), bytes.len());
        assert_eq!(check_run(&bytes[..bytes.len() - 1]), first, "cut");
        assert_eq!(check_run(&bytes[1..]), 0, "out of step");
        bytes[first + 5] ^= 1;
        assert_eq!(check_run(&bytes), first, "wrong");
        bytes[5] ^= 1;
        assert_eq!(check_run(&bytes), 0);
        assert_eq!(check_run(&[]), 0);
    }

    #[test]
    fn a_crc_goes_on() {
        // RFC 3720 B.4: 32 bytes of zeros, and of ones
        assert_eq!(crc(&[0; 32]), 0x8a91_36aa);
        assert_eq!(crc_append(crc(&[0xff; 11]), &[0xff; 21]), 0x62a8_ab43);
    }
}
