//! ICMP and ICMPv6 (RFC 792, RFC 4443): kind, code and checksum, and of an echo its numbers. They are named so that
//! filters can leave them out. Errors quote the datagram that they are about: its IP header and what there is of its
//! TCP or UDP header are reported as such. Of those that say that a destination cannot be reached it is reported which:
//! [`unreachable()`].

use crate::address::Addr;
use crate::fault::PResult;
use crate::field::{Def, FieldSet};
use crate::leaf::read;
use crate::trace::{LabelPart, Trace, Value, scope};
use crate::wire::{ip, tcp, udp};
use core::fmt;

fields! {
    /// ICMP.
    pub mod f ["RFC 792"] {
        PROTOCOL: Protocol = "icmp", "Internet Control Message Protocol";
        TYPE: U8 = "icmp.type", "Type", dec;
        CODE: U8 = "icmp.code", "Code", dec;
        CHECKSUM: U16 = "icmp.checksum", "Checksum", hex;
        IDENTIFIER: U16 = "icmp.ident", "Identifier", dechex;
        SEQUENCE: U16 = "icmp.seq", "Sequence Number", dechex;
        GATEWAY: Ipv4 = "icmp.redir_gw", "Gateway Address";
    }
}

fields! {
    /// ICMPv6.
    pub mod f6 ["RFC 4443"] {
        PROTOCOL: Protocol = "icmpv6", "Internet Control Message Protocol v6";
        TYPE: U8 = "icmpv6.type", "Type", dec;
        CODE: U8 = "icmpv6.code", "Code", dec;
        CHECKSUM: U16 = "icmpv6.checksum", "Checksum", hex;
        SOLICITED: Ipv6 = "icmpv6.nd.ns.target_address", "Target Address";
        ADVERTISED: Ipv6 = "icmpv6.nd.na.target_address", "Target Address";
        OPTION: None = "icmpv6.opt", "ICMPv6 Option";
        OPTION_TYPE: U8 = "icmpv6.opt.type", "Type", dec;
        OPTION_LENGTH: U8 = "icmpv6.opt.length", "Length", dec;
        OPTION_SOURCE: Bytes as Mac = "icmpv6.opt.src_linkaddr", "Source Link-layer address";
        OPTION_TARGET: Bytes as Mac = "icmpv6.opt.target_linkaddr", "Target Link-layer address";
    }
}

/// Observes a quoted packet: its fields are reported, and the frame's line stays with the message around it. Quotes are
/// cut short, which is no fault.
struct Quoted<'a, T>(&'a mut T);

impl<T: Trace> Trace for Quoted<'_, T> {
    const ON: bool = T::ON;

    fn wants(&self, fields: &'static FieldSet) -> bool {
        self.0.wants(fields)
    }

    fn keeps(&self, def: Def) -> bool {
        self.0.keeps(def)
    }

    fn field(&mut self, def: Def, at: &[u8], len: usize, value: Value<'_>) {
        self.0.field(def, at, len, value);
    }

    fn unshown(&mut self, at: &[u8], len: usize) {
        self.0.unshown(at, len);
    }

    fn open(&mut self, def: Def, at: &[u8]) {
        self.0.open(def, at);
    }

    fn close(&mut self, rest: &[u8]) {
        self.0.close(rest);
    }

    fn abort(&mut self) {
        self.0.abort();
    }

    fn down(&mut self) {
        self.0.down();
    }

    fn up(&mut self) {
        self.0.up();
    }

    fn label(&mut self, text: fmt::Arguments<'_>) {
        self.0.label(text);
    }

    fn label_parts(&mut self, parts: &[LabelPart<'_>]) {
        self.0.label_parts(parts);
    }
}

/// The datagram that an error quotes; as far as it does.
fn quoted<T: Trace>(i: &[u8], t: &mut T) {
    if !T::ON {
        return;
    }
    let t = &mut Quoted(t);
    let (rest, protocol) = match i.first().map(|b| b >> 4) {
        Some(4) => match ip::parse_v4(i, t) {
            // a later fragment has no header
            Ok((_, header)) if header.fragment & 0x1fff == 0 => {
                (i.get(usize::from(header.header_length)..).unwrap_or(&[]), header.protocol)
            }
            _ => return,
        },
        Some(6) => match ip::parse_v6(i, t, |_, rest| rest) {
            Ok((rest, (_, extensions))) if extensions.fragment.is_none_or(|(_, offset, _)| offset == 0) => {
                (rest, extensions.protocol)
            }
            _ => return,
        },
        _ => return,
    };
    match protocol {
        _ if rest.is_empty() => {}
        6 => _ = tcp::parse(rest, 0, t),
        17 => _ = udp::parse(rest, t),
        _ => {}
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
        let Some((word, quote)) = i.split_at_checked(4) else { return Ok((&i[i.len()..], ())) };
        if kind == 5 {
            t.field(f::GATEWAY, word, 4, Value::Bytes(word));
        } else {
            // nothing, or the size that would have fitted
            t.unshown(word, 4);
        }
        quoted(quote, t);
        Ok((&i[i.len()..], ()))
    })
}

/// Options of neighbor discovery (RFC 4861 4.6): type and length, in units of 8 bytes, and the link-layer addresses.
fn options<T: Trace>(mut i: &[u8], t: &mut T) {
    while let [kind, words, ..] = *i {
        let Some((option, rest)) = i.split_at_checked(usize::from(words) * 8).filter(|_| words > 0) else { return };
        t.open(f6::OPTION, option);
        t.field(f6::OPTION_TYPE, option, 1, Value::U(u64::from(kind)));
        t.field(f6::OPTION_LENGTH, &option[1..], 1, Value::U(u64::from(words)));
        let address = &option[2..];
        match kind {
            1 => t.field(f6::OPTION_SOURCE, address, address.len(), Value::Bytes(address)),
            2 => t.field(f6::OPTION_TARGET, address, address.len(), Value::Bytes(address)),
            _ => {}
        }
        t.close(rest);
        i = rest;
    }
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
        // behind four bytes of flags, sizes and reserved fields
        if let (1..=4 | 133 | 135 | 136, Some((word, rest)), true) = (kind, i.split_at_checked(4), T::ON) {
            t.unshown(word, 4);
            match kind {
                1..=4 => quoted(rest, t),
                133 => options(rest, t),
                _ => {
                    let field = if kind == 135 { f6::SOLICITED } else { f6::ADVERTISED };
                    let (rest, _) = read::array::<16, T>(field, rest, t)?;
                    options(rest, t);
                }
            }
        }
        Ok((&i[i.len()..], ()))
    })
}

/// Reason for which a datagram was not delivered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    /// Nobody knows a way to its network.
    NoRoute,
    /// Its host does not answer on its own network.
    NoHost,
    /// Its host does not know its protocol.
    NoProtocol,
    /// Nothing on its host takes it.
    NoPort,
    /// A filter on the way rejects it.
    Prohibited,
    /// It is larger than a link on the way takes, in bytes with its IP header; 0 if that is not said.
    TooLarge(u32),
    /// It was forwarded too often.
    Expired,
    /// Another one.
    Other,
}

impl Reason {
    /// The reason in a few words.
    pub const fn name(self) -> &'static str {
        match self {
            Self::NoRoute => "network unreachable",
            Self::NoHost => "host unreachable",
            Self::NoProtocol => "protocol unreachable",
            Self::NoPort => "port unreachable",
            Self::Prohibited => "administratively prohibited",
            Self::TooLarge(_) => "packet too large",
            Self::Expired => "time to live exceeded",
            Self::Other => "unreachable",
        }
    }
}

/// A datagram that was not delivered, as a host or router reported to its sender.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Unreachable {
    /// Reason for which it was not delivered.
    pub reason: Reason,
    /// Protocol of the datagram: 6 TCP, 17 UDP.
    pub protocol: u8,
    /// Destination of the segment or datagram.
    pub to: Addr,
    /// The ports of its sender and of its destination.
    pub ports: [u16; 2],
    /// Bytes of the whole datagram with its IP header, as that says.
    pub length: u32,
    /// The queue pair that it goes to, if it is RoCE version 2 and quoted so far.
    pub queue_pair: Option<u32>,
}

/// Reads an ICMP message (RFC 792; `i` begins with its type) that reports an undeliverable TCP segment or UDP datagram.
pub fn unreachable(i: &[u8]) -> Option<Unreachable> {
    let [kind, code, _, _, _, _, mtu @ ..] = *i.first_chunk::<8>()?;
    let reason = match (kind, code) {
        (3, 0 | 6 | 11) => Reason::NoRoute,
        (3, 1 | 7 | 12) => Reason::NoHost,
        (3, 2) => Reason::NoProtocol,
        (3, 3) => Reason::NoPort,
        // RFC 1191 4
        (3, 4) => Reason::TooLarge(u16::from_be_bytes(mtu).into()),
        (3, 9 | 10 | 13) => Reason::Prohibited,
        (3, _) => Reason::Other,
        (11, 0) => Reason::Expired,
        _ => return None,
    };
    let inner = i.get(8..).filter(|inner| inner.first().is_some_and(|b| b >> 4 == 4))?;
    let header = usize::from(inner[0] & 0xf) * 4;
    let length = u16::from_be_bytes(*inner.get(2..)?.first_chunk()?).into();
    let to = Addr::V4(*inner.get(16..)?.first_chunk()?);
    undelivered(reason, *inner.get(9)?, to, length, inner.get(header..)?)
}

/// The same of an ICMPv6 message (RFC 4443 3).
pub fn unreachable_v6(i: &[u8]) -> Option<Unreachable> {
    let [kind, code, _, _, mtu @ ..] = *i.first_chunk::<8>()?;
    let reason = match (kind, code) {
        (1, 0 | 2) => Reason::NoRoute,
        (1, 1 | 5 | 6) => Reason::Prohibited,
        (1, 3) => Reason::NoHost,
        (1, 4) => Reason::NoPort,
        (1, _) => Reason::Other,
        (2, _) => Reason::TooLarge(u32::from_be_bytes(mtu)),
        (3, 0) => Reason::Expired,
        _ => return None,
    };
    let inner = i.get(8..).filter(|inner| inner.first().is_some_and(|b| b >> 4 == 6))?;
    let length = 40 + u32::from(u16::from_be_bytes(*inner.get(4..)?.first_chunk()?));
    undelivered(reason, *inner.get(6)?, Addr::V6(*inner.get(24..)?.first_chunk()?), length, inner.get(40..)?)
}

fn undelivered(reason: Reason, protocol: u8, to: Addr, length: u32, header: &[u8]) -> Option<Unreachable> {
    let [a, b, c, d] = *header.first_chunk()?;
    let ports = [u16::from_be_bytes([a, b]), u16::from_be_bytes([c, d])];
    // a BTH behind the UDP header, the second word of which is the queue pair
    let bth = header.get(13..16).filter(|_| protocol == 17 && ports[1] == udp::ROCE_V2);
    let queue_pair = bth.map(|qp| u32::from_be_bytes([0, qp[0], qp[1], qp[2]]));
    matches!(protocol, 6 | 17).then_some(Unreachable { reason, protocol, to, ports, length, queue_pair })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn undeliverable_packets_are_reported() {
        let mut message =
            alloc::vec![3, 3, 0, 0, 0, 0, 0, 0, 0x45, 0, 0, 40, 0, 0, 0, 0, 64, 17, 0, 0, 192, 0, 2, 2, 192, 0, 2, 1];
        message.extend_from_slice(&[0xc0, 0, 0x12, 0xb7]);
        let (to, ports) = (Addr::V4([192, 0, 2, 1]), [0xc000, 4791]);
        let told = Unreachable { reason: Reason::NoPort, protocol: 17, to, ports, length: 40, queue_pair: None };
        assert_eq!(unreachable(&message), Some(told));
        message.extend_from_slice(&[0, 8, 0, 0, 4, 0, 0xff, 0xff, 0, 0, 1, 0x11]);
        assert_eq!(unreachable(&message).and_then(|told| told.queue_pair), Some(0x111));
        message.truncate(32);
        for cut in 0..message.len() {
            assert_eq!(unreachable(&message[..cut]), None);
        }
        let mut reason = |kind: u8, code: u8, mtu: u8| {
            (message[0], message[1], message[7]) = (kind, code, mtu);
            unreachable(&message).map(|told| told.reason)
        };
        assert_eq!(reason(3, 4, 220), Some(Reason::TooLarge(220)));
        assert_eq!([reason(3, 13, 0), reason(11, 0, 0)], [Some(Reason::Prohibited), Some(Reason::Expired)]);
        assert_eq!([reason(8, 0, 0), reason(11, 1, 0)], [None; 2], "an echo, and a reassembly");
        let mut six = alloc::vec![0; 52];
        (six[0], six[1], six[8], six[14], six[47], six[50], six[51]) = (1, 4, 0x60, 6, 1, 1, 0xbd);
        let told = unreachable_v6(&six).map(|u| (u.reason, u.protocol, u.ports, u.length));
        assert_eq!(told, Some((Reason::NoPort, 6, [0, 445], 40)));
        assert_eq!(unreachable_v6(&six[..51]), None);
        (six[0], six[6]) = (2, 5);
        assert_eq!(unreachable_v6(&six).map(|u| u.reason), Some(Reason::TooLarge(0x0500)));
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
        let mut solicitation = [0; 32];
        (solicitation[0], solicitation[23], solicitation[24], solicitation[25], solicitation[31]) = (135, 9, 1, 1, 7);
        tree.begin(&solicitation);
        assert!(parse_v6(&solicitation, &mut tree).is_ok());
        assert_eq!((tree.info.as_str(), tree.number("icmpv6.opt.length")), ("Neighbor Solicitation", Some(1)));
        assert_eq!(tree.all("icmpv6.opt.src_linkaddr").count(), 1);
        for end in 0..solicitation.len() {
            tree.begin(&solicitation[..end]);
            let _ = parse_v6(&solicitation[..end], &mut tree);
        }
    }

    #[test]
    fn the_datagram_that_an_error_quotes_is_reported_and_the_line_stays() {
        let mut message =
            alloc::vec![3, 3, 0, 0, 0, 0, 0, 0, 0x45, 0, 0, 40, 0, 0, 0, 0, 64, 17, 0, 0, 192, 0, 2, 2, 192, 0, 2, 1];
        message.extend_from_slice(&[0xc0, 0, 0x12, 0xb7, 0, 20, 0, 0, 1, 2, 3]);
        let mut tree = Tree::new();
        tree.begin(&message);
        assert!(parse(&message, &mut tree).is_ok());
        assert_eq!((tree.number("udp.dstport"), tree.number("ip.proto")), (Some(4791), Some(17)));
        assert_eq!((tree.info.as_str(), tree.faults.len()), ("Destination unreachable", 0));
        // eight bytes of a TCP header are what many routers quote
        message[17] = 6;
        for end in 8..message.len() {
            tree.begin(&message[..end]);
            assert!(parse(&message[..end], &mut tree).is_ok() && tree.faults.is_empty(), "{end}");
        }
        tree.begin(&message[..36]);
        let _ = parse(&message[..36], &mut tree);
        assert_eq!(tree.number("tcp.dstport"), Some(4791));
        let mut six = alloc::vec![0; 52];
        (six[0], six[1], six[8], six[14], six[50], six[51]) = (1, 4, 0x60, 17, 1, 0xbd);
        tree.begin(&six);
        assert!(parse_v6(&six, &mut tree).is_ok());
        assert_eq!((tree.number("udp.dstport"), tree.faults.len()), (Some(445), 0));
    }
}
