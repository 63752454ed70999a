//! Address Resolution Protocol (RFC 826). It is named so that filters can leave it out; the analysis follows nothing in
//! it.

use crate::fault::PResult;
use crate::leaf::read;
use crate::trace::{Trace, scope};

fields! {
    /// The packet, and the addresses of Ethernet and IPv4 in it.
    pub mod f ["RFC 826"] {
        PROTOCOL: Protocol = "arp", "Address Resolution Protocol";
        HARDWARE_TYPE: U16 = "arp.hw.type", "Hardware type", dec, values &[(1, "Ethernet"), (32, "InfiniBand")];
        PROTOCOL_TYPE: U16 = "arp.proto.type", "Protocol type", hex, values &[(0x0800, "IPv4")];
        HARDWARE_SIZE: U8 = "arp.hw.size", "Hardware size", dec;
        PROTOCOL_SIZE: U8 = "arp.proto.size", "Protocol size", dec;
        OPCODE: U16 = "arp.opcode", "Opcode", dec, values &[(1, "request"), (2, "reply")];
        SRC_MAC: Ether = "arp.src.hw_mac", "Sender MAC address";
        SRC_IPV4: Ipv4 = "arp.src.proto_ipv4", "Sender IP address";
        DST_MAC: Ether = "arp.dst.hw_mac", "Target MAC address";
        DST_IPV4: Ipv4 = "arp.dst.proto_ipv4", "Target IP address";
    }
}

/// Tells of an ARP packet.
pub fn parse<'a, T: Trace>(i: &'a [u8], t: &mut T) -> PResult<'a, ()> {
    scope(f::PROTOCOL, i, t, |i, t| {
        let (i, hardware) = read::be16(f::HARDWARE_TYPE, i, t)?;
        let (i, protocol) = read::be16(f::PROTOCOL_TYPE, i, t)?;
        let (i, hardware_size) = read::u8(f::HARDWARE_SIZE, i, t)?;
        let (i, protocol_size) = read::u8(f::PROTOCOL_SIZE, i, t)?;
        let (i, opcode) = read::be16(f::OPCODE, i, t)?;
        if (hardware, protocol, hardware_size, protocol_size) != (1, 0x0800, 6, 4) {
            return Ok((i, ()));
        }
        let (i, _) = read::array::<6, T>(f::SRC_MAC, i, t)?;
        let (i, src) = read::array::<4, T>(f::SRC_IPV4, i, t)?;
        let (i, _) = read::array::<6, T>(f::DST_MAC, i, t)?;
        let (i, dst) = read::array::<4, T>(f::DST_IPV4, i, t)?;
        let [src, dst] = [src, dst].map(core::net::Ipv4Addr::from);
        match opcode {
            1 => t.info(format_args!("Who has {dst}? Tell {src}")),
            2 => t.info(format_args!("Reply of {src}")),
            _ => {}
        }
        Ok((i, ()))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trace::Tree;

    #[test]
    fn a_request_is_read_and_its_prefixes_are_not() {
        let packet = [0, 1, 8, 0, 6, 4, 0, 1, 0x52, 0x54, 0, 0, 0, 1, 192, 0, 2, 1, 0, 0, 0, 0, 0, 0, 192, 0, 2, 2];
        let mut tree = Tree::new();
        tree.begin(&packet);
        tree.protocol("ARP");
        assert!(parse(&packet, &mut tree).is_ok());
        assert_eq!(tree.number("arp.opcode"), Some(1));
        assert_eq!(tree.info, "Who has 192.0.2.2? Tell 192.0.2.1");
        for len in 0..packet.len() {
            assert!(parse(&packet[..len], &mut Tree::new()).is_err(), "{len}");
        }
    }
}
