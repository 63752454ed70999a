//! A packet as one point has it: the values that identify it, its direction, and its place in what its sender numbers.

use rdmascope_dissector::frame::{Addr, IbPacket, Segment, Tunnel};
use rdmascope_dissector::wire::ib::bth::{Service, Verb};
use rdmascope_dissector::wire::tcp::flags;
use std::hash::{DefaultHasher, Hash, Hasher};

/// The direction of TCP segments, which addresses and ports distinguish.
pub(crate) const TCP: u64 = u64::MAX;
pub(crate) const PSN_BITS: u32 = 24;
/// The kind of an acknowledgment, in its syndrome: 0 positive.
pub(crate) const NAK_BITS: u8 = 0x60;
/// Receiver not ready: it asks for the packet later.
pub(crate) const RNR: u8 = 0x20;

/// Values that a router may change, and values that identify the sender of a packet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Outside {
    pub(crate) src: Addr,
    pub(crate) dst: Addr,
    pub(crate) ports: (u16, u16),
    pub(crate) dscp: u8,
    pub(crate) ecn: u8,
    pub(crate) ttl: u8,
    pub(crate) vlan: Option<u16>,
    pub(crate) priority: u8,
    pub(crate) tunnel: Option<Tunnel>,
}

/// A packet at one point.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Seen {
    pub(crate) key: u64,
    /// The same key without the bytes, if captures were cut.
    pub(crate) plain: u64,
    /// Its direction, by values that are the same at every point: the queue pair it goes to, or [`TCP`].
    pub(crate) way: u64,
    pub(crate) frame: u64,
    pub(crate) time: i64,
    /// Values that distinguish copies of it and that routers do not change: the IP identification, and the TCP
    /// timestamp.
    pub(crate) copy: (u16, u32),
    pub(crate) content: Content,
    /// True if its invariant CRC is wrong.
    pub(crate) is_damaged: bool,
    pub(crate) outside: Outside,
}

/// One direction of a connection at one point.
pub(crate) type Flow = (u64, Addr, Addr, (u16, u16));

/// Place of a packet in what its sender numbers, and what it acknowledges.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Content {
    /// Not numbered, or not acknowledged: datagrams, congestion notifications.
    #[default]
    Unnumbered,
    /// Request of a reliable queue pair: its PSN.
    Request(u32),
    /// Response with data: its PSN, which is one of the request.
    Response(u32),
    /// Acknowledgment of a reliable queue pair: its PSN and syndrome.
    Acknowledgment(u32, u8),
    /// TCP segment.
    Segment {
        /// Its sequence number.
        seq: u32,
        /// Its flags.
        flags: u8,
        /// Length of its payload.
        length: u32,
        /// Its acknowledgment number.
        ack: u32,
    },
}

/// Data that are sent again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Kind {
    /// Requests of queue pairs.
    Request,
    /// Responses to them.
    Response,
    /// TCP segments.
    Segment,
}

impl Content {
    /// The kind of data that its sender sends again if it is lost.
    pub(crate) fn kind(self) -> Option<Kind> {
        let kind = match self {
            Self::Request(_) => Kind::Request,
            Self::Response(_) => Kind::Response,
            _ => Kind::Segment,
        };
        self.numbers().map(|_| kind)
    }

    /// The kind of data that its receiver may send again because of it.
    pub(crate) fn asks_for(self) -> Option<Kind> {
        match self {
            Self::Acknowledgment(_, syndrome) if syndrome & NAK_BITS != 0 => Some(Kind::Request),
            Self::Request(_) => Some(Kind::Response),
            Self::Segment { .. } => Some(Kind::Segment),
            _ => None,
        }
    }

    /// For a TCP segment with payload: stream offset of that, and its length.
    pub(crate) fn stretch(self) -> Option<(u32, u32)> {
        match self {
            Self::Segment { seq, flags, length, .. } if length > 0 => {
                Some((seq.wrapping_add(u32::from(flags & flags::SYN != 0)), length))
            }
            _ => None,
        }
    }

    /// True if it ends a TCP connection at once.
    pub(crate) fn is_reset(self) -> bool {
        matches!(self, Self::Segment { flags, .. } if flags & flags::RST != 0)
    }

    /// The first of its numbers, their count, and the bits of a number.
    pub(crate) fn numbers(self) -> Option<(u32, u32, u32)> {
        match self {
            Self::Request(psn) | Self::Response(psn) => Some((psn, 1, PSN_BITS)),
            Self::Segment { seq, flags, length, .. } if flags & flags::RST == 0 => {
                let all = length + u32::from(flags & flags::SYN != 0) + u32::from(flags & flags::FIN != 0);
                (all > 0).then_some((seq, all, u32::BITS))
            }
            _ => None,
        }
    }

    /// The number behind the last one that it acknowledges.
    pub(crate) fn acknowledged(self) -> Option<u32> {
        match self {
            Self::Response(psn) => Some(psn.wrapping_add(1)),
            Self::Acknowledgment(psn, syndrome) => Some(psn.wrapping_add(u32::from(syndrome & NAK_BITS == 0))),
            Self::Segment { flags, ack, .. } if flags & flags::ACK != 0 => Some(ack),
            _ => None,
        }
    }
}

pub(crate) fn flow(packet: &Seen) -> Flow {
    (packet.way, packet.outside.src, packet.outside.dst, packet.outside.ports)
}

/// Two hosts, in either direction.
pub(crate) fn hosts(flow: &Flow) -> (Addr, Addr) {
    if flow.1 <= flow.2 { (flow.1, flow.2) } else { (flow.2, flow.1) }
}

pub(crate) fn hash(parts: impl Hash) -> u64 {
    let mut hasher = DefaultHasher::new();
    parts.hash(&mut hasher);
    hasher.finish()
}

pub(crate) fn ib_packet(ib: &IbPacket<'_>, bytes: &[u8]) -> Seen {
    // the invariant CRC follows the payload and its padding
    let crc = ib.payload.as_ptr().addr().checked_sub(bytes.as_ptr().addr()).and_then(|at| {
        let at = at + ib.payload.len() + usize::from(ib.bth.padcnt());
        bytes.get(at..)?.first_chunk::<4>().copied()
    });
    let plain = hash((ib.bth.dest_qp, ib.bth.psn, ib.bth.opcode));
    let row = ib.bth.operation().row().filter(|row| matches!(row.service, Service::Rc | Service::Xrc));
    let content = match row.map(|row| row.verb) {
        None => Content::Unnumbered,
        Some(Verb::ReadResponse | Verb::AtomicAck) => Content::Response(ib.bth.psn),
        Some(Verb::Acknowledge) => {
            Content::Acknowledgment(ib.bth.psn, ib.ext.aeth.map_or(0, |aeth| (aeth >> 24) as u8))
        }
        Some(_) => Content::Request(ib.bth.psn),
    };
    Seen { key: hash((plain, crc)), plain, way: ib.bth.dest_qp.into(), content, ..Seen::default() }
}

pub(crate) fn tcp_segment(s: &Segment<'_>) -> Seen {
    let plain = hash((s.seq, s.ack, s.flags, s.window, s.payload_length));
    let content = Content::Segment { seq: s.seq, flags: s.flags, length: s.payload_length, ack: s.ack };
    Seen { key: hash((plain, s.payload)), plain, way: TCP, content, ..Seen::default() }
}

/// A packet with this content, from a port to another.
#[cfg(test)]
pub(crate) fn packet(time: i64, content: Content, ports: (u16, u16)) -> Seen {
    Seen { time, content, outside: Outside { ports, ..Outside::default() }, ..Seen::default() }
}
