//! Extensible Record Format of Endace capture cards: a header of 16 bytes, extension headers of 8, and the frame. The
//! time stamp is little-endian, the rest big-endian.

use crate::fault::{Fault, PResult};
use crate::leaf::read;
use crate::trace::{Trace, Value, scope};

const TYPES: crate::field::Values = &[
    (0, "LEGACY"),
    (1, "HDLC_POS"),
    (2, "ETH"),
    (3, "ATM"),
    (4, "AAL5"),
    (10, "COLOR_HDLC_POS"),
    (11, "COLOR_ETH"),
    (15, "DSM_COLOR_HDLC_POS"),
    (16, "DSM_COLOR_ETH"),
    (17, "COLOR_MC_HDLC_POS"),
    (19, "COLOR_HASH_POS"),
    (20, "COLOR_HASH_ETH"),
    (21, "INFINIBAND"),
    (22, "IPV4"),
    (23, "IPV6"),
    (25, "INFINIBAND_LINK"),
    (27, "META"),
    (48, "PAD"),
];
const EXTENSIONS: crate::field::Values = &[
    (3, "Classification"),
    (4, "InterceptID"),
    (5, "Raw Link"),
    (6, "BFS Filter/Hash"),
    (12, "Channelised"),
    (14, "Signature"),
    (15, "Packet ID"),
    (16, "Flow ID"),
    (17, "Host ID"),
    (18, "Anchor ID"),
    (19, "Entropy"),
];

/// Offset of the loss counter in a record.
const LOSS_AT: usize = 12;

/// More extension headers than this are not followed.
const EXTENSIONS_MAX: usize = 16;

header! {
    /// The record header.
    pub struct Record [NODE = "rdmascope.erf.record", "Record header", "ERF types reference guide"] {
        /// Seconds in the upper half, binary fraction in the lower.
        timestamp: le64 = "erf.ts", "Timestamp", hex;
        kind: u8 = "erf.types", "Record type", hex, bits {
            ext_header: u8 & 0x80 = "erf.types.ext_header", "Extension header present", dec;
            record_type: u8 & 0x7f = "erf.types.type", "Type", dec, values TYPES;
        };
        flags: u8 = "erf.flags", "Flags", hex, bits {
            cap: u8 & 0x03 = "erf.flags.cap", "Capture interface", dec;
            vlen: u8 & 0x04 = "erf.flags.vlen", "Varying record length", dec;
            trunc: u8 & 0x08 = "erf.flags.trunc", "Truncated", dec;
            rxe: u8 & 0x10 = "erf.flags.rxe", "RX error", dec;
            dse: u8 & 0x20 = "erf.flags.dse", "DS error", dec;
            res: u8 & 0xc0 = "erf.flags.res", "Reserved", hex;
        };
        /// Length of the whole record with its padding.
        record_length: be16 = "erf.rlen", "Record length", dec;
        /// A colour in the types that have one.
        loss_or_color: be16 = "_", "Loss counter or color", dec;
        wire_length: be16 = "erf.wlen", "Wire length", dec;
    }
}

fields! {
    /// The protocol and what follows the record header.
    pub mod f ["ERF types reference guide"] {
        PROTOCOL: Protocol = "erf", "Extensible Record Format";
        /// Packets that were lost before this one.
        LOSS_COUNTER: U16 = "erf.lctr", "Loss counter", dec;
        /// What the filters of the card say of the packet.
        COLOR: U16 = "erf.color", "Color", hex;
        EXTENSION: U8 = "erf.ehdr.types", "Extension Header", dec, values EXTENSIONS;
        DATA: U64 = "erf.ehdr.unknown.data", "Data", hex;
        ETH_OFF: U8 = "erf.eth.off", "offset", dec;
        ETH_PAD: U8 = "erf.eth.pad", "padding", hex;
    }
}

/// Content of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum Content {
    Ethernet,
    Infiniband,
    Ipv4,
    Ipv6,
    Other,
}

/// Decodes the headers of a record: its content, and its length on the wire.
pub fn parse<'a, T: Trace>(i: &'a [u8], t: &mut T) -> PResult<'a, (Content, u16)> {
    t.protocol("ERF");
    scope(f::PROTOCOL, i, t, |at, t| {
        let (mut i, record) = Record::parse_flat(at, t)?;
        let has_color = matches!(record.record_type(), 10 | 11 | 15 | 16 | 17 | 19 | 20);
        let def = if has_color { f::COLOR } else { f::LOSS_COUNTER };
        t.field(def, &at[LOSS_AT..], 2, Value::U(record.loss_or_color.into()));
        let (mut more, mut count) = (record.ext_header() != 0, 0);
        while more {
            if count == EXTENSIONS_MAX {
                return Fault::limit(f::EXTENSION, i).fail();
            }
            let (rest, word) = crate::leaf::be64(i).or_else(|_| Fault::short(Some(f::EXTENSION), i, 8).fail())?;
            if T::ON {
                t.field(f::EXTENSION, i, 1, Value::U(word >> 56 & 0x7f));
                t.field(f::DATA, &i[1..], 7, Value::U(word & 0x00ff_ffff_ffff_ffff));
            }
            more = word >> 63 != 0;
            count += 1;
            i = rest;
        }
        let content = match record.record_type() {
            2 | 11 | 16 | 20 => {
                let (rest, _) = read::u8(f::ETH_OFF, i, t)?;
                let (rest, _) = read::u8(f::ETH_PAD, rest, t)?;
                i = rest;
                Content::Ethernet
            }
            21 => Content::Infiniband,
            22 => Content::Ipv4,
            23 => Content::Ipv6,
            _ => Content::Other,
        };
        Ok((i, (content, record.wire_length)))
    })
}
