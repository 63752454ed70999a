//! A captured frame, peeled from its link layer down to the RDMA transport or TCP segment inside.
//!
//! ```text
//! Ethernet · VLAN · MPLS · SLL · ERF · InfiniBand ─▶ IPv4/IPv6 ─▶ GRE · ERSPAN · VXLAN · GENEVE ─▶ (again, to a depth)
//!                                                        └─▶ UDP 4791 ─▶ BTH …      IbPacket
//!                                                        └─▶ TCP                    Segment
//! ```
//!
//! [`decode`] stops there: what the payload is depends on the connection, which the analyzer knows. It calls the decoders
//! of [`crate::wire`] on the payload with the same observer.

use crate::fault::Fault;
use crate::wire::ib::bth::Bth;

/// What the first bytes of a frame are: the LINKTYPE numbers of pcap files.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LinkType(pub u16);

impl LinkType {
    /// BSD loopback: the address family, four bytes in the byte order of the host.
    pub const NULL: Self = Self(0);
    /// Ethernet.
    pub const ETHERNET: Self = Self(1);
    /// Raw IPv4 or IPv6 (a number older files have).
    pub const RAW_BSD: Self = Self(12);
    /// Raw IPv4 or IPv6 (another number older files have).
    pub const RAW_OPENBSD: Self = Self(14);
    /// Raw IPv4 or IPv6.
    pub const RAW: Self = Self(101);
    /// OpenBSD loopback: the address family, four bytes, big-endian.
    pub const LOOP: Self = Self(108);
    /// Linux cooked capture, version 1.
    pub const LINUX_SLL: Self = Self(113);
    /// Endace ERF records.
    pub const ERF: Self = Self(197);
    /// Raw IPv4.
    pub const IPV4: Self = Self(228);
    /// Raw IPv6.
    pub const IPV6: Self = Self(229);
    /// InfiniBand, from the local route header.
    pub const INFINIBAND: Self = Self(247);
    /// Linux cooked capture, version 2.
    pub const LINUX_SLL2: Self = Self(276);

    /// The name tcpdump gives it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::NULL => "BSD loopback",
            Self::ETHERNET => "Ethernet",
            Self::RAW | Self::RAW_BSD | Self::RAW_OPENBSD => "raw IP",
            Self::LOOP => "OpenBSD loopback",
            Self::LINUX_SLL => "Linux cooked v1",
            Self::ERF => "ERF",
            Self::IPV4 => "raw IPv4",
            Self::IPV6 => "raw IPv6",
            Self::INFINIBAND => "InfiniBand",
            Self::LINUX_SLL2 => "Linux cooked v2",
            _ => "unknown link type",
        }
    }
}

/// A network address. What stands in for one where there is no IP: a LID on InfiniBand without GRH, a MAC on bare Ethernet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Addr {
    /// Not known.
    #[default]
    None,
    /// IPv4, in the order of the wire.
    V4([u8; 4]),
    /// IPv6, or an InfiniBand GID.
    V6([u8; 16]),
    /// InfiniBand local identifier.
    Lid(u16),
    /// Ethernet.
    Mac([u8; 6]),
}

/// How a mirrored or tunnelled frame was wrapped; of several, the outermost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tunnel {
    /// Which.
    pub kind: TunnelKind,
    /// ERSPAN session, VXLAN or GENEVE network identifier, GRE key.
    pub id: u32,
    /// Whether the mirror cut the frame (the ERSPAN T bit).
    pub truncated: bool,
}

/// Tunnels that are looked into.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum TunnelKind {
    Gre,
    Erspan1,
    Erspan2,
    Erspan3,
    Vxlan,
    Geneve,
}

/// A frame, peeled. Borrows from the frame; nothing is allocated.
#[derive(Clone, Copy, Debug)]
pub struct Packet<'a> {
    /// Who sent the innermost datagram.
    pub src: Addr,
    /// Who is to receive it.
    pub dst: Addr,
    /// The ECN field of the innermost IP header: 0 not capable, 1 and 2 capable, 3 congestion experienced.
    pub ecn: u8,
    /// Differentiated services code point of the innermost IP header (traffic class on native InfiniBand).
    pub dscp: u8,
    /// The innermost VLAN identifier.
    pub vlan: Option<u16>,
    /// The outermost tunnel.
    pub tunnel: Option<Tunnel>,
    /// What is inside.
    pub body: Body<'a>,
    /// Bytes of the innermost datagram that were on the wire but are not in the capture.
    pub cut: u32,
    /// Why peeling stopped early, where it did.
    pub fault: Option<Fault>,
}

/// What a frame carries.
// the largest variant is by far the most common
#[allow(clippy::large_enum_variant)]
#[derive(Clone, Copy, Debug)]
pub enum Body<'a> {
    /// An InfiniBand transport packet, native or RoCE.
    Ib(IbPacket<'a>),
    /// A TCP segment.
    Tcp(Segment<'a>),
    /// A UDP datagram that is not RoCE: source port, destination port, payload (cut to what was captured).
    Udp(u16, u16, &'a [u8]),
    /// An Ethernet pause frame, 802.3x or priority flow control.
    Pause(Pause),
    /// A fragment of an IP datagram: to be put together by the caller, and decoded again with [`decode_ip`].
    Fragment(IpFragment<'a>),
    /// Something else, by name ("ARP", "LLDP", "SCTP", "ethertype 0x1234" is `Other("Ethernet")`).
    Other(&'static str),
}

/// What carries InfiniBand packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Carrier {
    /// UDP port 4791; the source port, which spreads flows over paths.
    RoceV2 {
        /// UDP source port.
        src_port: u16,
    },
    /// Ethertype 0x8915 with a GRH.
    RoceV1,
    /// Native, with a local route header.
    Infiniband,
}

/// The outcome of a checksum.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Check {
    /// Right.
    Good,
    /// Wrong.
    Bad,
    /// Not checked: the frame was cut, or checking was switched off, or there is none.
    Unchecked,
}

/// An InfiniBand transport packet.
#[derive(Clone, Copy, Debug)]
pub struct IbPacket<'a> {
    /// How it travelled.
    pub carrier: Carrier,
    /// Base transport header.
    pub bth: Bth,
    /// Extension headers that the opcode calls for.
    pub ext: crate::wire::ib::ext::Extensions,
    /// The payload, without padding and ICRC, as far as it was captured.
    pub payload: &'a [u8],
    /// Its length on the wire.
    pub payload_length: u32,
    /// The invariant CRC.
    pub icrc: Check,
}

/// A TCP segment.
#[derive(Clone, Copy, Debug)]
pub struct Segment<'a> {
    /// Source port.
    pub src_port: u16,
    /// Destination port.
    pub dst_port: u16,
    /// Sequence number of the first payload byte (of SYN, where that is set).
    pub seq: u32,
    /// Acknowledgment number; meaningless without the ACK flag.
    pub ack: u32,
    /// The lower 8 flag bits: FIN 0x01, SYN 0x02, RST 0x04, PSH 0x08, ACK 0x10, URG 0x20, ECE 0x40, CWR 0x80.
    pub flags: u8,
    /// Receive window as it stands in the header, not scaled.
    pub window: u16,
    /// Window scale option (of a SYN).
    pub window_scale: Option<u8>,
    /// Maximum segment size option (of a SYN).
    pub mss: Option<u16>,
    /// Whether a SACK option is present.
    pub sack: bool,
    /// The payload, as far as it was captured.
    pub payload: &'a [u8],
    /// Its length on the wire.
    pub payload_length: u32,
}

/// An Ethernet pause frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pause {
    /// Sender of the pause.
    pub source: [u8; 6],
    /// Bit N: priority N is to pause. 0xff for a plain 802.3x pause.
    pub priorities: u8,
    /// Longest pause time in the frame, in quanta of 512 bit times.
    pub quanta: u16,
}

/// A fragment of an IP datagram.
#[derive(Clone, Copy, Debug)]
pub struct IpFragment<'a> {
    /// Identification field (32 bits in IPv6).
    pub id: u32,
    /// Protocol of the datagram's payload.
    pub protocol: u8,
    /// Offset of this fragment's payload in bytes.
    pub offset: u32,
    /// Whether more fragments follow.
    pub more: bool,
    /// The IP header with which the datagram can be decoded again: 20 or more bytes of IPv4, 40 of IPv6.
    pub header: &'a [u8],
    /// Payload.
    pub payload: &'a [u8],
}
