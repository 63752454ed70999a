//! ICMP and ICMPv6 (RFC 792, RFC 4443): kind, code and checksum, and of an echo its numbers. They are named so that filters can leave them
//! out; of those that say that a destination cannot be reached it is told which: [`unreachable()`].

use crate::address::Addr;
use crate::fault::PResult;
use crate::leaf::read;
use crate::trace::{Trace, scope};

fields! {
    /// ICMP.
    pub mod f ["RFC 792"] {
        PROTOCOL: Protocol = "icmp", "Internet Control Message Protocol";
        TYPE: U8 = "icmp.type", "Type", dec;
        CODE: U8 = "icmp.code", "Code", dec;
        CHECKSUM: U16 = "icmp.checksum", "Checksum", hex;
        IDENTIFIER: U16 = "icmp.ident", "Identifier", dechex;
        SEQUENCE: U16 = "icmp.seq", "Sequence Number", dechex;
    }
}

fields! {
    /// ICMPv6.
    pub mod f6 ["RFC 4443"] {
        PROTOCOL: Protocol = "icmpv6", "Internet Control Message Protocol v6";
        TYPE: U8 = "icmpv6.type", "Type", dec;
        CODE: U8 = "icmpv6.code", "Code", dec;
        CHECKSUM: U16 = "icmpv6.checksum", "Checksum", hex;
    }
}

/// Tells of an ICMP message.
pub fn parse<'a, T: Trace>(i: &'a [u8], t: &mut T) -> PResult<'a, ()> {
    scope(f::PROTOCOL, i, t, |i, t| {
        let (i, kind) = read::u8(f::TYPE, i, t)?;
        let (i, _) = read::u8(f::CODE, i, t)?;
        let (i, _) = read::be16(f::CHECKSUM, i, t)?;
        let name = match kind {
            0 => "Echo (ping) reply",
            3 => "Destination unreachable",
            5 => "Redirect",
            8 => "Echo (ping) request",
            11 => "Time-to-live exceeded",
            _ => return Ok((&i[i.len()..], ())),
        };
        t.info(format_args!("{name}"));
        if matches!(kind, 0 | 8) {
            let (i, _) = read::be16(f::IDENTIFIER, i, t)?;
            let (i, _) = read::be16(f::SEQUENCE, i, t)?;
            return Ok((&i[i.len()..], ()));
        }
        Ok((&i[i.len()..], ()))
    })
}

/// Tells of an ICMPv6 message.
pub fn parse_v6<'a, T: Trace>(i: &'a [u8], t: &mut T) -> PResult<'a, ()> {
    scope(f6::PROTOCOL, i, t, |i, t| {
        let (i, kind) = read::u8(f6::TYPE, i, t)?;
        let (i, _) = read::u8(f6::CODE, i, t)?;
        let (i, _) = read::be16(f6::CHECKSUM, i, t)?;
        let name = match kind {
            1 => "Destination Unreachable",
            2 => "Packet Too Big",
            3 => "Time Exceeded",
            128 => "Echo (ping) request",
            129 => "Echo (ping) reply",
            133 => "Router Solicitation",
            134 => "Router Advertisement",
            135 => "Neighbor Solicitation",
            136 => "Neighbor Advertisement",
            143 => "Multicast Listener Report Message v2",
            _ => return Ok((&i[i.len()..], ())),
        };
        t.info(format_args!("{name}"));
        Ok((&i[i.len()..], ()))
    })
}

/// A datagram that came to nobody, as a host or a router on its way told its sender.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Unreachable {
    /// Why, in a few words.
    pub reason: &'static str,
    /// Protocol of the datagram: 6 TCP, 17 UDP.
    pub protocol: u8,
    /// Where it was to go.
    pub to: Addr,
    /// The port there.
    pub port: u16,
}

/// What an ICMP message (RFC 792; `i` begins with its type) says of a TCP segment or a UDP datagram that could not be delivered.
pub fn unreachable(i: &[u8]) -> Option<Unreachable> {
    let (&kind, &code) = (i.first()?, i.get(1)?);
    let reason = match code {
        0 => "network unreachable",
        1 => "host unreachable",
        2 => "protocol unreachable",
        3 => "port unreachable",
        9 | 10 | 13 => "administratively prohibited",
        _ => "unreachable",
    };
    let inner = i.get(8..).filter(|inner| kind == 3 && inner.first().is_some_and(|b| b >> 4 == 4))?;
    let header = usize::from(inner[0] & 0xf) * 4;
    undelivered(reason, *inner.get(9)?, Addr::V4(*inner.get(16..)?.first_chunk()?), inner.get(header..)?)
}

/// The same of an ICMPv6 message (RFC 4443 3.1).
pub fn unreachable_v6(i: &[u8]) -> Option<Unreachable> {
    let (&kind, &code) = (i.first()?, i.get(1)?);
    let reason = match code {
        0 => "no route",
        1 => "administratively prohibited",
        3 => "address unreachable",
        4 => "port unreachable",
        _ => "unreachable",
    };
    let inner = i.get(8..).filter(|inner| kind == 1 && inner.first().is_some_and(|b| b >> 4 == 6))?;
    undelivered(reason, *inner.get(6)?, Addr::V6(*inner.get(24..)?.first_chunk()?), inner.get(40..)?)
}

fn undelivered(reason: &'static str, protocol: u8, to: Addr, ports: &[u8]) -> Option<Unreachable> {
    let port = u16::from_be_bytes(*ports.get(2..)?.first_chunk()?);
    matches!(protocol, 6 | 17).then_some(Unreachable { reason, protocol, to, port })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_could_not_be_delivered_is_told() {
        let mut message = alloc::vec![3, 3, 0, 0, 0, 0, 0, 0, 0x45, 0, 0, 40, 0, 0, 0, 0, 64, 17, 0, 0, 192, 0, 2, 2, 192, 0, 2, 1];
        message.extend_from_slice(&[0xc0, 0, 0x12, 0xb7]);
        let told = Unreachable { reason: "port unreachable", protocol: 17, to: Addr::V4([192, 0, 2, 1]), port: 4791 };
        assert_eq!(unreachable(&message), Some(told));
        for cut in 0..message.len() {
            assert_eq!(unreachable(&message[..cut]), None);
        }
        message[0] = 8;
        assert_eq!(unreachable(&message), None, "an echo");
        let mut six = alloc::vec![0; 52];
        (six[0], six[1], six[8], six[14], six[47], six[50], six[51]) = (1, 4, 0x60, 6, 1, 1, 0xbd);
        let told = unreachable_v6(&six).map(|u| (u.reason, u.protocol, u.port));
        assert_eq!(told, Some(("port unreachable", 6, 445)));
        assert_eq!(unreachable_v6(&six[..51]), None);
    }
    use crate::trace::Tree;

    #[test]
    fn an_echo_is_read_and_its_prefixes_are_not() {
        let echo = [8, 0, 0x12, 0x34, 0, 7, 0, 9, 1, 2, 3];
        let mut tree = Tree::new();
        tree.begin(&echo);
        tree.protocol("ICMP");
        assert!(parse(&echo, &mut tree).is_ok());
        assert_eq!((tree.number("icmp.ident"), tree.number("icmp.seq")), (Some(7), Some(9)));
        assert_eq!(tree.info, "Echo (ping) request");
        for len in 0..8 {
            assert!(parse(&echo[..len], &mut Tree::new()).is_err(), "{len}");
        }
        tree.begin(&echo);
        assert!(parse_v6(&[135, 0, 0, 0], &mut tree).is_ok());
        assert_eq!(tree.info, "Neighbor Solicitation");
    }
}
