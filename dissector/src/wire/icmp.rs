//! ICMP and ICMPv6 (RFC 792, RFC 4443): kind, code and checksum, and of an echo its numbers. Nothing is followed in them; they are named so
//! that filters can leave them out.

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

#[cfg(test)]
mod tests {
    use super::*;
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
