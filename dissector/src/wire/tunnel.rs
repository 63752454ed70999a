//! Tunnels that carry mirrored or encapsulated frames: GRE (RFC 2784, 2890), ERSPAN types I to III
//! (draft-foschiano-erspan), VXLAN (RFC 7348), GENEVE (RFC 8926). Big-endian.

use crate::fault::{Fault, PResult};
use crate::leaf::read;
use crate::trace::{Trace, Value, scope};
use crate::wire::link::ETHERTYPES;

header! {
    /// The part of GRE that is always there.
    pub struct Gre [NODE = "rdmascope.gre.header", "Header", "RFC 2784 2"] {
        flags: be16 = "gre.flags_and_version", "Flags and Version", hex, bits {
            checksum: bool & 0x8000 = "gre.flags.checksum", "Checksum Bit";
            routing: bool & 0x4000 = "gre.flags.routing", "Routing Bit";
            key: bool & 0x2000 = "gre.flags.key", "Key Bit";
            sequence: bool & 0x1000 = "gre.flags.sequence_number", "Sequence Number Bit";
            strict: bool & 0x0800 = "gre.flags.strict_source_route", "Strict Source Route Bit";
            recursion: u16 & 0x0700 = "gre.flags.recursion_control", "Recursion control", dec;
            version: u16 & 0x0007 = "gre.flags.version", "Version", dec;
        };
        protocol: be16 = "gre.proto", "Protocol Type", hex, values ETHERTYPES;
    }
}

header! {
    /// ERSPAN type II.
    pub struct Erspan2 [NODE: Protocol = "erspan", "Encapsulated Remote Switch Packet ANalysis Type II", "draft-foschiano-erspan 4.2"] {
        first: be16 = "_", "Version and VLAN", hex, bits {
            version: u16 & 0xf000 = "erspan.version", "Version", dec;
            vlan: u16 & 0x0fff = "erspan.vlan", "Vlan", dec;
        };
        second: be16 = "_", "Session", hex, bits {
            cos: u16 & 0xe000 = "erspan.cos", "COS", dec;
            encap: u16 & 0x1800 = "erspan.encap", "Encap", dec;
            truncated: u16 & 0x0400 = "erspan.truncated", "Truncated", dec;
            session: u16 & 0x03ff = "erspan.spanid", "SpanID", dec;
        };
        third: be32 = "_", "Index", hex, bits {
            reserved: u32 & 0xfff00000 = "erspan.reserved", "Reserved", dec;
            index: u32 & 0x000fffff = "erspan.index", "Index", dec;
        };
    }
}

header! {
    /// ERSPAN type III.
    pub struct Erspan3 [NODE: Protocol = "erspan", "Encapsulated Remote Switch Packet ANalysis Type III", "draft-foschiano-erspan 4.3"] {
        first: be16 = "_", "Version and VLAN", hex, bits {
            version: u16 & 0xf000 = "erspan.version", "Version", dec;
            vlan: u16 & 0x0fff = "erspan.vlan", "Vlan", dec;
        };
        second: be16 = "_", "Session", hex, bits {
            cos: u16 & 0xe000 = "erspan.cos", "COS", dec;
            bso: u16 & 0x1800 = "erspan.bso", "Bad/Short/Oversized", dec;
            truncated: u16 & 0x0400 = "erspan.truncated", "Truncated", dec;
            session: u16 & 0x03ff = "erspan.spanid", "SpanID", dec;
        };
        timestamp: be32 = "erspan.timestamp", "Timestamp", dec;
        sgt: be16 = "erspan.sgt", "Security Group Tag", dec;
        last: be16 = "_", "Flags", hex, bits {
            ethernet: u16 & 0x8000 = "erspan.p", "Has Ethernet PDU", dec;
            frame_type: u16 & 0x7c00 = "erspan.ft", "Frame Type", dec, values &[(0, "Ethernet"), (2, "IP")];
            hardware: u16 & 0x03f0 = "erspan.hw", "Hardware ID", dec;
            egress: bool & 0x0008 = "erspan.direction", "Direction";
            granularity: u16 & 0x0006 = "erspan.gra", "Timestamp granularity", dec, values &[(0, "100 microseconds"), (1, "100 nanoseconds"), (2, "IEEE 1588"), (3, "User configurable")];
            subheader: u16 & 0x0001 = "erspan.o", "Optional Sub headers", dec;
        };
    }
}

header! {
    /// VXLAN, with the group policy extension.
    pub struct Vxlan [NODE: Protocol = "vxlan", "Virtual eXtensible Local Area Network", "RFC 7348 5"] {
        flags: be16 = "vxlan.flags", "Flags", hex, bits {
            gbp_extension: bool & 0x8000 = "vxlan.flag_g", "GBP Extension";
            has_vni: bool & 0x0800 = "vxlan.flag_i", "VXLAN Network ID (VNI)";
            dont_learn: bool & 0x0040 = "vxlan.flag_d", "Don't Learn";
            policy_applied: bool & 0x0008 = "vxlan.flag_a", "Policy Applied";
            reserved_flags: u16 & 0x77b7 = "vxlan.flags_reserved", "Reserved(R)", hex;
        };
        gbp: be16 = "vxlan.gbp", "Group Policy ID", dec;
        vni: be24 = "vxlan.vni", "VXLAN Network Identifier (VNI)", dec;
        reserved8: u8 = "vxlan.reserved8", "Reserved", dec;
    }
}

fields! {
    /// Fields of the variable part.
    pub mod f ["RFC 2784, RFC 2890, RFC 8926, draft-foschiano-erspan"] {
        GRE: Protocol = "gre", "Generic Routing Encapsulation";
        GRE_CHECKSUM: U16 = "gre.checksum", "Checksum", hex;
        GRE_OFFSET: U16 = "gre.offset", "Offset", dec;
        GRE_KEY: U32 = "gre.key", "Key", hex;
        GRE_SEQUENCE: U32 = "gre.sequence_number", "Sequence Number", dec;
        PLATFORM: U32 & 0xfc000000 / 32 = "erspan.platid", "Platform ID", dec;
        PLATFORM_INFO: U64 = "erspan.pid.rsvd", "Reserved", dec;
        GENEVE: Protocol = "geneve", "Generic Network Virtualization Encapsulation";
        GENEVE_VERSION: U8 = "geneve.version", "Version", dec;
        GENEVE_FLAGS: U8 = "geneve.flags", "Flags", hex;
        GENEVE_OAM: Bool & 0x80 / 8 = "geneve.flags.oam", "Operations, Administration and Management Frame";
        GENEVE_CRITICAL: Bool & 0x40 / 8 = "geneve.flags.critical", "Critical Options Present";
        GENEVE_PROTOCOL: U16 = "geneve.proto_type", "Protocol Type", hex, values ETHERTYPES;
        GENEVE_VNI: U24 = "geneve.vni", "Virtual Network Identifier (VNI)", hexdec;
        GENEVE_RESERVED: U8 = "geneve.reserved", "Reserved", hex;
        GENEVE_OPTIONS: Bytes = "geneve.options", "Geneve Options";
        GENEVE_OPTION: Bytes = "geneve.option", "Option";
        GENEVE_OPTION_CLASS: U16 = "geneve.option.class", "Class", hex;
        GENEVE_OPTION_TYPE: U8 = "geneve.option.type", "Type", hex;
        GENEVE_OPTION_LENGTH: U8 = "geneve.option.length", "Length", dec;
        GENEVE_OPTION_DATA: Bytes = "geneve.option.unknown.data", "Unknown Option Data";
    }
}

/// Payload type, key and sequence number of a GRE header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GreInfo {
    /// Ethertype, or 0x88be and 0x22eb for ERSPAN.
    pub protocol: u16,
    /// The key, where there is one.
    pub key: Option<u32>,
    /// The sequence number, where there is one. ERSPAN type I has none, type II has one.
    pub sequence: Option<u32>,
}

/// Decodes GRE version 0. Version 1 (of PPTP) and source routes are reported as a fault.
pub fn parse_gre<'a, T: Trace>(i: &'a [u8], t: &mut T) -> PResult<'a, GreInfo> {
    t.protocol("GRE");
    scope(f::GRE, i, t, |at, t| {
        let (mut i, header) = Gre::parse_flat(at, t)?;
        if header.version() != 0 || header.routing() {
            return Fault::value(Gre::flags, at).fail();
        }
        if header.checksum() {
            i = read::be16(f::GRE_CHECKSUM, i, t)?.0;
            i = read::be16(f::GRE_OFFSET, i, t)?.0;
        }
        let mut info = GreInfo { protocol: header.protocol, key: None, sequence: None };
        if header.key() {
            let (rest, key) = read::be32(f::GRE_KEY, i, t)?;
            (i, info.key) = (rest, Some(key));
        }
        if header.sequence() {
            let (rest, sequence) = read::be32(f::GRE_SEQUENCE, i, t)?;
            (i, info.sequence) = (rest, Some(sequence));
        }
        Ok((i, info))
    })
}

/// Decodes ERSPAN type III with the platform specific subheader of 8 bytes that may follow.
pub fn parse_erspan3<'a, T: Trace>(i: &'a [u8], t: &mut T) -> PResult<'a, Erspan3> {
    scope(Erspan3::NODE, i, t, |i, t| {
        let (i, header) = Erspan3::parse_flat(i, t)?;
        if header.subheader() == 0 {
            return Ok((i, header));
        }
        let (rest, word) = crate::leaf::be64(i).or_else(|_| Fault::short(Some(f::PLATFORM), i, 8).fail())?;
        t.field(f::PLATFORM, i, 4, Value::U(word >> 58));
        t.field(f::PLATFORM_INFO, i, 8, Value::U(word & 0x03ff_ffff_ffff_ffff));
        Ok((rest, header))
    })
}

/// Decodes GENEVE with its options: the ethertype of its payload, and the network identifier.
pub fn parse_geneve<'a, T: Trace>(i: &'a [u8], t: &mut T) -> PResult<'a, (u16, u32)> {
    t.protocol("Geneve");
    scope(f::GENEVE, i, t, |at, t| {
        let (i, first) = crate::leaf::u8(at).or_else(|_| Fault::short(Some(f::GENEVE_VERSION), at, 1).fail())?;
        if T::ON {
            t.field(f::GENEVE_VERSION, at, 1, Value::U(u64::from(first >> 6)));
            t.field(f::GENEVE_OPTION_LENGTH, at, 1, Value::U(u64::from(first & 0x3f) * 4));
        }
        let (rest, flags) = read::u8(f::GENEVE_FLAGS, i, t)?;
        if T::ON {
            t.down();
            t.field(f::GENEVE_OAM, i, 1, Value::U(u64::from(flags >> 7)));
            t.field(f::GENEVE_CRITICAL, i, 1, Value::U(u64::from(flags >> 6 & 1)));
            t.up();
        }
        let (i, protocol) = read::be16(f::GENEVE_PROTOCOL, rest, t)?;
        let (i, vni) = read::be24(f::GENEVE_VNI, i, t)?;
        let (i, _) = read::u8(f::GENEVE_RESERVED, i, t)?;
        let length = usize::from(first & 0x3f) * 4;
        if first >> 6 != 0 {
            return Fault::value(f::GENEVE_VERSION, at).fail();
        }
        let (rest, options) =
            crate::leaf::take(i, length).or_else(|_| Fault::short(Some(f::GENEVE_OPTIONS), i, length).fail())?;
        if T::ON && length > 0 {
            // an option with a wrong length is reported; the payload of the tunnel is found all the same
            let _ = scope(f::GENEVE_OPTIONS, options, t, |mut i, t| {
                while !i.is_empty() {
                    (i, _) = scope(f::GENEVE_OPTION, i, t, |i, t| {
                        let (i, _) = read::be16(f::GENEVE_OPTION_CLASS, i, t)?;
                        let (i, _) = read::u8(f::GENEVE_OPTION_TYPE, i, t)?;
                        let (rest, words) =
                            crate::leaf::u8(i).or_else(|_| Fault::short(Some(f::GENEVE_OPTION_LENGTH), i, 1).fail())?;
                        let length = usize::from(words & 0x1f) * 4;
                        t.field(f::GENEVE_OPTION_LENGTH, i, 1, Value::U(length as u64 + 4));
                        read::bytes(f::GENEVE_OPTION_DATA, length, rest, t)
                    })?;
                }
                Ok((i, ()))
            });
        }
        Ok((rest, (protocol, vni)))
    })
}
