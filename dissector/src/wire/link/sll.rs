//! Linux cooked captures, versions 1 and 2: the kernel's summary of a packet, in place of its link header. Big-endian.

use super::ETHERTYPES;
use crate::fault::PResult;
use crate::leaf::read;
use crate::trace::{Trace, Value, scope};

/// Protocol of a frame that begins with an LLC header.
pub const LLC: u16 = 0x0004;

const PACKET_TYPES: crate::field::Values =
    &[(0, "Unicast to us"), (1, "Broadcast"), (2, "Multicast"), (3, "Unicast to another host"), (4, "Sent by us")];
const HARDWARE_TYPES: crate::field::Values = &[
    (1, "Ethernet"),
    (32, "InfiniBand"),
    (512, "PPP"),
    (768, "IPIP"),
    (772, "Loopback"),
    (776, "IPv6-in-IPv4"),
    (778, "GRE over IP"),
    (65534, "None"),
];

fields! {
    /// Fields of both versions.
    pub mod f ["LINKTYPE_LINUX_SLL, LINKTYPE_LINUX_SLL2"] {
        PROTOCOL: Protocol = "sll", "Linux cooked capture";
        PKTTYPE: U16 = "sll.pkttype", "Packet type", dec, values PACKET_TYPES;
        HATYPE: U16 = "sll.hatype", "Link-layer address type", dec, values HARDWARE_TYPES;
        HALEN: U16 = "sll.halen", "Link-layer address length", dec;
        SRC_ETH: Ether = "sll.src.eth", "Source";
        SRC_IPV4: Ipv4 = "sll.src.ipv4", "Source";
        SRC_OTHER: Bytes = "sll.src.other", "Source";
        UNUSED: Bytes as Keep = "sll.unused", "Unused";
        RESERVED: Bytes as Keep = "sll.reserved", "Reserved";
        LTYPE: U16 = "sll.ltype", "Protocol", hex, values &[(0x0001, "802.3"), (0x0004, "802.2 LLC")];
        ETYPE: U16 = "sll.etype", "Protocol", hex, values ETHERTYPES;
        IFINDEX: U32 = "sll.ifindex", "Interface index", dec;
    }
}

/// Content of a cooked header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sll {
    /// Ethertype, or a small number for other encapsulations ([`LLC`]).
    pub protocol: u16,
    /// ARPHRD type of the interface.
    pub hardware: u16,
    /// Sender, where it is an Ethernet address.
    pub src: Option<[u8; 6]>,
    /// Interface, in version 2.
    pub interface: Option<u32>,
}

/// Decodes version 1: 16 bytes.
pub fn parse<'a, T: Trace>(i: &'a [u8], t: &mut T) -> PResult<'a, Sll> {
    t.protocol("SLL");
    scope(f::PROTOCOL, i, t, |i, t| {
        let (i, _) = read::be16(f::PKTTYPE, i, t)?;
        let (i, hardware) = read::be16(f::HATYPE, i, t)?;
        let (i, length) = read::be16(f::HALEN, i, t)?;
        let (i, src) = address(length, i, t)?;
        let (i, protocol) = protocol(i, t)?;
        Ok((i, Sll { protocol, hardware, src, interface: None }))
    })
}

/// Decodes version 2: 20 bytes.
pub fn parse_v2<'a, T: Trace>(i: &'a [u8], t: &mut T) -> PResult<'a, Sll> {
    t.protocol("SLL");
    scope(f::PROTOCOL, i, t, |i, t| {
        let (i, protocol) = protocol(i, t)?;
        let (i, _) = read::bytes(f::RESERVED, 2, i, t)?;
        let (i, interface) = read::be32(f::IFINDEX, i, t)?;
        let (i, hardware) = read::be16(f::HATYPE, i, t)?;
        let (i, _) = read::u8(f::PKTTYPE, i, t)?;
        let (i, length) = read::u8(f::HALEN, i, t)?;
        let (i, src) = address(u16::from(length), i, t)?;
        Ok((i, Sll { protocol, hardware, src, interface: Some(interface) }))
    })
}

fn protocol<'a, T: Trace>(i: &'a [u8], t: &mut T) -> PResult<'a, u16> {
    let is_ethertype = crate::leaf::be16(i).is_ok_and(|(_, v)| v >= 0x0600);
    read::be16(if is_ethertype { f::ETYPE } else { f::LTYPE }, i, t)
}

/// The address is in a field of 8 bytes, however long it is.
fn address<'a, T: Trace>(length: u16, i: &'a [u8], t: &mut T) -> PResult<'a, Option<[u8; 6]>> {
    let used = usize::from(length).min(8);
    let def = match used {
        6 => f::SRC_ETH,
        4 => f::SRC_IPV4,
        _ => f::SRC_OTHER,
    };
    let (rest, field) = crate::leaf::take(i, 8).or_else(|_| crate::fault::Fault::short(Some(def), i, 8).fail())?;
    if T::ON {
        if used > 0 {
            t.field(def, i, used, Value::Bytes(&field[..used]));
        }
        if used < 8 {
            t.field(f::UNUSED, &i[used..], 8 - used, Value::Bytes(&field[used..]));
        }
    }
    Ok((rest, if used == 6 { field.first_chunk::<6>().copied() } else { None }))
}
