//! A captured frame, peeled from its link layer down to the RDMA transport or TCP segment inside.
//!
//! ```text
//! Ethernet · VLAN · MPLS · SLL · ERF · InfiniBand ─▶ IPv4/IPv6 ─▶ GRE · ERSPAN · VXLAN · GENEVE ─▶ (again, to a depth)
//!                                                        └─▶ UDP 4791 ─▶ BTH …      IbPacket
//!                                                        └─▶ TCP                    Segment
//! ```
//!
//! [`decode`] stops there: the protocol of the payload depends on the connection, which the analyzer knows. It calls
//! the decoders of [`crate::wire`] on the payload with the same observer.

pub use crate::address::Addr;
pub use crate::fault::Check;
use crate::fault::{Fault, PResult, fault_of};
use crate::leaf::read;
use crate::trace::{LayerText, Off, Trace, Value, scope};
use crate::wire::ib::bth::{Bth, Opcode};
use crate::wire::ib::icrc::{self, Cover};
use crate::wire::ib::net::{Grh, Lrh};
use crate::wire::ib::{self, ext};
pub use crate::wire::icmp::{Reason, Unreachable};
use crate::wire::iwarp::mpa;
use crate::wire::link::{erf, ethernet, mpls, null, pause, sll, vlan};
pub use crate::wire::tcp::Segment;
use crate::wire::tcp::flags::{FIN, RST, SYN};
use crate::wire::{arp, icmp, ip, tcp, tunnel, udp};

/// Link layer of a frame: the LINKTYPE numbers of pcap files.
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

    /// True if its frames can be decoded.
    pub const fn is_known(self) -> bool {
        matches!(
            self,
            Self::NULL
                | Self::ETHERNET
                | Self::RAW
                | Self::RAW_BSD
                | Self::RAW_OPENBSD
                | Self::LOOP
                | Self::LINUX_SLL
                | Self::ERF
                | Self::IPV4
                | Self::IPV6
                | Self::INFINIBAND
                | Self::LINUX_SLL2
        )
    }
}

/// Tunnel of a mirrored or encapsulated frame; of several, the outermost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tunnel {
    /// Kind of tunnel.
    pub kind: TunnelKind,
    /// ERSPAN session, VXLAN or GENEVE network identifier, GRE key.
    pub id: u32,
    /// True if the mirror cut the frame: the ERSPAN T bit says so, or lengths inside go beyond a frame that the capture
    /// has whole.
    pub truncated: bool,
}

/// Tunnels that are looked into.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[allow(missing_docs)]
pub enum TunnelKind {
    Gre,
    Erspan1,
    Erspan2,
    Erspan3,
    Vxlan,
    Geneve,
    /// IP in IP; the identifier is 0.
    Ip,
}

impl TunnelKind {
    /// The word for people.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Gre => "GRE",
            Self::Erspan1 => "ERSPAN I",
            Self::Erspan2 => "ERSPAN II",
            Self::Erspan3 => "ERSPAN III",
            Self::Vxlan => "VXLAN",
            Self::Geneve => "GENEVE",
            Self::Ip => "IP in IP",
        }
    }

    /// The word of the JSON report.
    pub const fn key(self) -> &'static str {
        match self {
            Self::Gre => "gre",
            Self::Erspan1 => "erspan1",
            Self::Erspan2 => "erspan2",
            Self::Erspan3 => "erspan3",
            Self::Vxlan => "vxlan",
            Self::Geneve => "geneve",
            Self::Ip => "ip",
        }
    }

    /// Name of its identifier; empty if it has none.
    pub const fn id_name(self) -> &'static str {
        match self {
            Self::Gre => "key",
            Self::Erspan2 | Self::Erspan3 => "session",
            Self::Vxlan | Self::Geneve => "VNI",
            Self::Erspan1 | Self::Ip => "",
        }
    }
}

/// The frame that a tunnel carries: [`inside`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Inside<'a> {
    /// The outermost tunnel.
    pub tunnel: Tunnel,
    /// Its sender: an IP address.
    pub from: Addr,
    /// First bytes of the frame inside: [`LinkType::ETHERNET`] or [`LinkType::RAW`].
    pub link_type: LinkType,
    /// Its captured bytes.
    pub bytes: &'a [u8],
    /// Its length in bytes before it was cut, as far as the lengths in it tell.
    pub wire_len: u32,
}

/// A frame, peeled. Borrows from the frame; nothing is allocated.
#[derive(Clone, Copy, Debug)]
pub struct Packet<'a> {
    /// Source address of the innermost datagram.
    pub src: Addr,
    /// Destination address of the innermost datagram.
    pub dst: Addr,
    /// The ECN field of the innermost IP header: 0 not capable, 1 and 2 capable, 3 congestion experienced.
    pub ecn: u8,
    /// Differentiated services code point of the innermost IP header (traffic class on native InfiniBand).
    pub dscp: u8,
    /// Time to live of the innermost IP header, hop limit of IPv6 and of a GRH; 0 without one.
    pub ttl: u8,
    /// Service level of a native InfiniBand packet; 0 on Ethernet.
    pub service_level: u8,
    /// Virtual lane of a native InfiniBand packet; 0 on Ethernet.
    pub virtual_lane: u8,
    /// The innermost VLAN identifier.
    pub vlan: Option<u16>,
    /// Priority (PCP) of the innermost VLAN tag.
    pub priority: Option<u8>,
    /// Source address of the innermost Ethernet header; zeros without one.
    pub mac: [u8; 6],
    /// The outermost tunnel.
    pub tunnel: Option<Tunnel>,
    /// Bytes of the innermost frame as it was on the wire; `None` where no tunnel wraps it.
    pub carried: Option<u32>,
    /// The transport packet.
    pub body: Body<'a>,
    /// Bytes of the innermost datagram that were on the wire but are not in the capture.
    pub cut: u32,
    /// Checksum of the innermost IPv4 header; unchecked where it was left to the adapter, and without such a header.
    pub header: Check,
    /// Reason that decoding stopped early, if it did.
    pub fault: Option<Fault>,
}

/// Before anything was read.
impl Default for Packet<'_> {
    #[inline(always)]
    fn default() -> Self {
        Self {
            src: Addr::None,
            dst: Addr::None,
            ecn: 0,
            dscp: 0,
            ttl: 0,
            service_level: 0,
            virtual_lane: 0,
            vlan: None,
            priority: None,
            mac: [0; 6],
            tunnel: None,
            carried: None,
            body: Body::Other("Frame"),
            cut: 0,
            header: Check::Unchecked,
            fault: None,
        }
    }
}

/// Options of [`decode`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Options {
    /// Check the invariant CRC (and the variant one) of InfiniBand packets.
    pub check_crc: bool,
    /// UDP port of RoCEv2 beside 4791, which is always looked into; 0 for none.
    pub roce_port: u16,
}

impl Default for Options {
    fn default() -> Self {
        Self { check_crc: true, roce_port: 0 }
    }
}

/// Content of a frame.
// the largest variant is by far the most common
#[allow(clippy::large_enum_variant)]
#[derive(Clone, Copy, Debug)]
pub enum Body<'a> {
    /// An InfiniBand transport packet, native or RoCE.
    Ib(IbPacket<'a>),
    /// A TCP segment.
    Tcp(Segment<'a>),
    /// A UDP datagram that is not RoCE: source port, destination port, payload (its captured part).
    Udp(u16, u16, &'a [u8]),
    /// An Ethernet pause frame, 802.3x or priority flow control.
    Pause(Pause),
    /// An ICMP message: a TCP segment or a UDP datagram could not be delivered.
    Unreachable(Unreachable),
    /// A fragment of an IP datagram: to be put together by the caller, and decoded again with [`decode_ip`].
    Fragment(IpFragment<'a>),
    /// Something else, by name ("ARP", "LLDP", "SCTP", "ethertype 0x1234" is `Other("Ethernet")`).
    Other(&'static str),
}

impl Body<'_> {
    /// The word of the innermost layer that was peeled, for a frame of which nothing more is known.
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Ib(_) => "InfiniBand",
            Self::Tcp(_) => "TCP",
            Self::Udp(..) => "UDP",
            Self::Pause(_) => "Pause",
            Self::Unreachable(_) => "ICMP",
            Self::Fragment(_) => "IP fragment",
            Self::Other(name) => name,
        }
    }
}

/// Network that carries InfiniBand packets.
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

impl Carrier {
    /// What the frame's line calls a packet.
    const fn protocol(self) -> &'static str {
        match self {
            Self::RoceV2 { .. } => "RRoCE",
            Self::RoceV1 => "RoCE",
            Self::Infiniband => "InfiniBand",
        }
    }
}

/// An InfiniBand transport packet.
#[derive(Clone, Copy, Debug)]
pub struct IbPacket<'a> {
    /// The layer that carried it: UDP (RoCE v2), Ethernet (RoCE v1) or InfiniBand.
    pub carrier: Carrier,
    /// Base transport header.
    pub bth: Bth,
    /// Extension headers that the opcode calls for.
    pub ext: crate::wire::ib::ext::Extensions,
    /// The payload, without padding and ICRC, as far as it was captured.
    pub payload: &'a [u8],
    /// Its length on the wire.
    pub payload_length: u32,
    /// Identification of the IPv4 datagram; 0 without one.
    pub ip_id: u16,
    /// The invariant CRC.
    pub icrc: Check,
    /// Further packets in the same datagram, as captured: [`IbPacket::joined`]. Nearly always empty.
    pub behind: &'a [u8],
}

/// Bytes of the longest packet from its BTH to its ICRC: with the longest extension headers, and the largest path MTU.
const LONGEST: usize = Bth::LEN + 28 + 4096 + ICRC;
const ICRC: usize = icrc::LEN;

impl<'a> IbPacket<'a> {
    /// Bytes from the BTH to the ICRC, as on the wire.
    pub fn length(&self) -> usize {
        let headers = Opcode(self.bth.opcode).row().map_or(0, |row| usize::from(row.length));
        Bth::LEN + headers + self.payload_length as usize + usize::from(self.bth.padcnt()) + ICRC
    }

    /// The packets behind this one in the same datagram, where `cut` bytes of that were not captured ([`Packet::cut`]).
    /// A system that leaves cutting to the last moment (UDP_SEGMENT, generic segmentation offload) shows a capture on
    /// loopback one datagram with several RoCEv2 packets end to end, all but the last of one length; on the wire each
    /// is a datagram of its own.
    pub fn joined(&self, cut: u32) -> impl Iterator<Item = IbPacket<'a>> + use<'a> {
        let (size, carrier, ip_id, icrc) = (self.length(), self.carrier, self.ip_id, self.icrc);
        let mut rest = self.behind;
        core::iter::from_fn(move || {
            let (one, after) = rest.split_at_checked(size).unwrap_or((rest, &[]));
            let missing = if one.len() < size { (size - one.len()).min(cut as usize) } else { 0 };
            rest = after;
            let mut body = Body::Other("RoCE");
            let crc = (if missing == 0 { icrc } else { Check::Unchecked }, None);
            let _ = transport_packet(&mut body, (carrier, ip_id), one, missing, crc, false, &mut Off);
            if let Body::Ib(ib) = body { Some(ib) } else { None }
        })
    }
}

/// Decodes a frame, and looks at the CRCs of the FPDUs that a TCP segment begins with, if it does: all of the work of
/// decoding that costs by the byte and needs nothing of earlier frames, which one thread can do for another.
#[inline]
pub fn decode_and_check<'a>(link_type: LinkType, bytes: &'a [u8], wire_len: u32, options: &Options) -> Packet<'a> {
    let mut packet = Packet::default();
    decode_into(link_type, bytes, wire_len, options, &mut packet, &mut Off);
    check_run(&mut packet.body, options);
    packet
}

/// Looks at the CRCs of the FPDUs that a TCP segment begins with.
#[inline]
fn check_run(body: &mut Body<'_>, options: &Options) {
    if let (Body::Tcp(segment), true) = (body, options.check_crc) {
        segment.checked = mpa::check_run(segment.payload) as u32;
    }
}

/// What one thread has found out of the bytes of a frame for another, which decodes it again: [`decode_checked`].
#[derive(Clone, Copy, Debug, Default)]
pub struct Checked {
    /// The invariant CRC is right, of a datagram with one packet.
    icrc: bool,
    /// [`Segment::checked`].
    run: u32,
}

impl Checked {
    /// What is known of a decoded frame; the CRCs of its FPDUs are looked at now.
    pub fn of(packet: &mut Packet<'_>, options: &Options) -> Self {
        check_run(&mut packet.body, options);
        match &packet.body {
            Body::Ib(ib) => Self { icrc: ib.icrc == Check::Good && ib.behind.is_empty(), run: 0 },
            Body::Tcp(segment) => Self { icrc: false, run: segment.checked },
            _ => Self::default(),
        }
    }
}

/// Decodes a frame that another thread has looked at with the same options: the same as [`decode_and_check`], without
/// looking at each byte again.
#[inline]
pub fn decode_checked<'a>(
    link_type: LinkType,
    bytes: &'a [u8],
    wire_len: u32,
    options: &Options,
    checked: Checked,
) -> Packet<'a> {
    let mut packet = Packet::default();
    let options = Options { check_crc: options.check_crc && !checked.icrc, ..*options };
    decode_into(link_type, bytes, wire_len, &options, &mut packet, &mut Off);
    match &mut packet.body {
        Body::Ib(ib) if checked.icrc => ib.icrc = Check::Good,
        Body::Tcp(segment) => segment.checked = checked.run,
        _ => {}
    }
    packet
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
    /// Pause times by priority; 0 ends a pause, and says nothing of a priority that [`Pause::priorities`] leaves out.
    pub times: [u16; 8],
    /// True if it is a plain 802.3x pause, for the whole link.
    pub whole_link: bool,
}

/// The header of a reassembled datagram, made from the header of one of its fragments: 20 or more bytes of IPv4, 40 of
/// IPv6. Its fragment fields are cleared; its length and checksum are still the fragment's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IpHeader {
    bytes: [u8; 60],
    length: u8,
}

impl IpHeader {
    /// From an IPv4 header: without offset and flags.
    fn v4(header: &[u8]) -> Self {
        let mut whole = Self::copied(header);
        [whole.bytes[6], whole.bytes[7]] = [0, 0];
        whole
    }

    /// From an IPv6 header: what followed the fragment header follows it.
    fn v6(header: &[u8], protocol: u8) -> Self {
        let mut whole = Self::copied(header);
        whole.bytes[6] = protocol;
        whole
    }

    fn copied(header: &[u8]) -> Self {
        let mut bytes = [0; 60];
        let length = header.len().min(bytes.len());
        bytes[..length].copy_from_slice(&header[..length]);
        Self { bytes, length: length as u8 }
    }
}

impl core::ops::Deref for IpHeader {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        &self.bytes[..usize::from(self.length)]
    }
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
    /// True if more fragments follow.
    pub more: bool,
    /// The header under which the datagram, put together, can be decoded: give [`decode_ip`] this and the payloads.
    pub header: IpHeader,
    /// Payload.
    pub payload: &'a [u8],
}

/// Tunnels inside tunnels are followed to this depth.
const TUNNELS_MAX: u8 = 8;
/// VLAN tags, or MPLS labels, in a row.
const TAGS_MAX: u32 = 16;

/// Decodes a frame of `wire_len` bytes of which `bytes` were captured. Never fails: [`Packet::fault`] says why decoding
/// stopped, and the rest of the packet holds everything read before that.
#[inline]
pub fn decode<'a, T: Trace>(
    link: LinkType,
    bytes: &'a [u8],
    wire_len: u32,
    options: &Options,
    t: &mut T,
) -> Packet<'a> {
    let mut packet = Packet::default();
    decode_into(link, bytes, wire_len, options, &mut packet, t);
    packet
}

/// The same into a packet that is there already, which is [`Packet::default`]: it is large, and need not be moved.
#[inline]
pub fn decode_into<'a, T: Trace>(
    link: LinkType,
    bytes: &'a [u8],
    wire_len: u32,
    options: &Options,
    packet: &mut Packet<'a>,
    t: &mut T,
) {
    if link != LinkType::ETHERNET || !at_once(bytes, options, packet) {
        by_steps(link, bytes, wire_len, options, packet, t);
    } else if T::ON {
        // it was decoded without a fault, and so it is again
        let _ = tell(bytes, packet, t);
    }
}

/// Tells the observer of a frame that was decoded [at once](at_once): the same fields in the same order as by steps.
#[inline(always)]
fn tell<'a, T: Trace>(bytes: &'a [u8], packet: &Packet<'a>, t: &mut T) -> PResult<'a, ()> {
    let (i, _) = ethernet::parse(bytes, t)?;
    let (_, header) = ip::parse_v4(i, t)?;
    let payload = i.get(20..usize::from(header.total_length)).unwrap_or(&[]);
    match &packet.body {
        Body::Ib(ib) => {
            let (i, _) = udp::parse(payload, t)?;
            t.protocol(ib.carrier.protocol());
            scope(ib::f::PROTOCOL, i, t, |i, t| {
                let mut body = Body::Other("RoCE");
                transport_packet(&mut body, (ib.carrier, ib.ip_id), i, 0, (ib.icrc, None), true, t)
            })
            .map(|(i, _)| (i, ()))
        }
        _ => tcp::parse(payload, 0, t).1,
    }
}

/// The same for any frame, layer by layer.
fn by_steps<'a, T: Trace>(
    link: LinkType,
    bytes: &'a [u8],
    wire_len: u32,
    options: &Options,
    packet: &mut Packet<'a>,
    t: &mut T,
) {
    let captured = u32::try_from(bytes.len()).unwrap_or(u32::MAX);
    let mut peel = Peel::new(packet, *options, wire_len.saturating_sub(captured));
    let first = peel.link(link, bytes, t);
    peel.run(first, t);
}

/// The same, not told to any observer, for what nearly every frame of RoCEv2 and iWARP is: Ethernet, IPv4 without options, and TCP
/// or one whole packet of RoCEv2 whose ICRC is right, and no length or checksum of a header that is wrong. It takes a
/// third of the instructions. Returns false for all other frames, which are decoded by steps: those set whatever this
/// may have set.
#[inline(always)]
fn at_once<'a>(bytes: &'a [u8], options: &Options, packet: &mut Packet<'a>) -> bool {
    let Ok((i, link)) = ethernet::parse(bytes, &mut Off) else { return false };
    let Some(header) = i.first_chunk::<20>() else { return false };
    if link.type_or_length != 0x0800 || header[0] != 0x45 {
        return false;
    }
    let Ok((_, ip)) = ip::parse_v4(header, &mut Off) else { return false };
    let Some(datagram) = i.get(..usize::from(ip.total_length)) else { return false };
    let Some(payload) = datagram.get(20..) else { return false };
    let check = ip::check_v4(header);
    if ip.is_fragment() || check == Check::Bad {
        return false;
    }
    (packet.mac, packet.header) = (link.src, check);
    header_v4(packet, &ip);
    match ip.protocol {
        ip::UDP => roce_v2(datagram, options, ip.id, &mut packet.body),
        ip::TCP => segment(packet, options, (0, ip.id), payload, &mut Off).is_ok(),
        _ => false,
    }
}

/// What an IPv4 header says of a packet.
#[inline(always)]
fn header_v4(packet: &mut Packet<'_>, header: &ip::Ipv4) {
    (packet.src, packet.dst) = (Addr::V4(header.src), Addr::V4(header.dst));
    (packet.ttl, packet.ecn, packet.dscp) = (header.ttl, header.tos & 0x03, header.tos >> 2);
}

/// The part of [`at_once`] for one whole packet of RoCEv2, in an IPv4 datagram with a header of 20 bytes.
#[inline(always)]
fn roce_v2<'a>(datagram: &'a [u8], options: &Options, ip_id: u16, body: &mut Body<'a>) -> bool {
    let Some((headers, at)) = datagram.split_first_chunk::<28>() else { return false };
    let Ok((_, udp)) = udp::parse(&headers[20..], &mut Off) else { return false };
    if udp.dst_port != udp::ROCE_V2 || usize::from(udp.length) + 20 != datagram.len() || at.len() > LONGEST {
        return false;
    }
    let icrc = match options.check_crc.then(|| check(Cover::Ipv4, datagram)).flatten() {
        Some((stated, calculated)) if stated == calculated => Check::Good,
        Some(_) => return false,
        None => Check::Unchecked,
    };
    let carrier = Carrier::RoceV2 { src_port: udp.src_port };
    transport_packet(body, (carrier, ip_id), at, 0, (icrc, None), true, &mut Off).is_ok()
}

/// Decodes a reassembled IP datagram, under the [`IpHeader`] of one of its fragments. The observer sees its
/// [`ip_payload`] alone: the header was told with the fragment. The length in the header is ignored: the datagram is all
/// of `datagram`. Its invariant CRC is checked only if the caller has corrected that
/// length, since the CRC covers it.
pub fn decode_ip<'a, T: Trace>(datagram: &'a [u8], options: &Options, t: &mut T) -> Packet<'a> {
    let mut packet = Packet::default();
    let mut peel = Peel::new(&mut packet, *options, 0);
    peel.reassembled = true;
    peel.run(Ok((datagram, Next::Ip)), t);
    packet
}

/// The payload of a datagram that [`decode_ip`] takes: all behind the fixed header of IPv6, and the header of IPv4.
pub fn ip_payload(datagram: &[u8]) -> &[u8] {
    let header = match datagram.first() {
        Some(first) if first >> 4 == 6 => 40,
        first => usize::from(first.map_or(0, |first| first & 0x0f)) * 4,
    };
    datagram.get(header..).unwrap_or(&[])
}

/// The frame inside the outermost tunnel of `bytes`, and the sender of the tunnel. `None` without a tunnel, or if the
/// tunnel carries neither Ethernet nor IP. IP in IP and MPLS carry packets of this same wire: they are no tunnel here.
pub fn inside(link: LinkType, bytes: &[u8], wire_len: u32) -> Option<Inside<'_>> {
    let captured = u32::try_from(bytes.len()).unwrap_or(u32::MAX);
    let options = Options { check_crc: false, ..Options::default() };
    let mut packet = Packet::default();
    let mut peel = Peel::new(&mut packet, options, wire_len.saturating_sub(captured));
    let mut step = peel.link(link, bytes, &mut Off);
    let (tunnel, bytes, next) = loop {
        let (i, next) = step.ok()?;
        // a step ends at the content of the tunnel that it enters
        if let Some(tunnel) = peel.packet.tunnel {
            break (tunnel, i, next);
        }
        if matches!(next, Next::End) {
            return None;
        }
        step = peel.step(next, i, &mut Off);
    };
    if tunnel.kind == TunnelKind::Ip {
        return None;
    }
    let link_type = match next {
        Next::Ethernet | Next::Ethertype(0x6558) => LinkType::ETHERNET,
        Next::Ip | Next::Ethertype(0x0800 | 0x86dd) => LinkType::RAW,
        _ => return None,
    };
    // a mirror that cuts frames does not say how long they were: the lengths inside do
    let length = |missing: u32| u32::try_from(bytes.len()).unwrap_or(u32::MAX).saturating_add(missing);
    let carried = length(peel.missing);
    let cut = decode(link_type, bytes, carried, &options, &mut Off).cut;
    Some(Inside { tunnel, from: peel.packet.src, link_type, bytes, wire_len: carried.max(length(cut)) })
}

/// Type of the remaining bytes.
#[derive(Clone, Copy)]
enum Next {
    Ethernet,
    Ethertype(u16),
    Ip,
    Transport(u8),
    Infiniband,
    End,
}

/// A frame being peeled.
struct Peel<'a, 'p> {
    packet: &'p mut Packet<'a>,
    options: Options,
    /// Bytes of the innermost datagram that were on the wire behind those at hand.
    missing: u32,
    /// True if the capture has all of the frame.
    is_whole: bool,
    /// Identification of the innermost IPv4 datagram.
    ip_id: u16,
    tunnels: u8,
    reassembled: bool,
    /// The innermost IP datagram, and the cover of an invariant CRC.
    datagram: &'a [u8],
    cover: Option<Cover>,
    /// True if the UDP length goes beyond the IP datagram.
    is_too_long: bool,
}

type Step<'a> = PResult<'a, Next>;

impl<'a, 'p> Peel<'a, 'p> {
    #[inline]
    fn new(packet: &'p mut Packet<'a>, options: Options, missing: u32) -> Self {
        Self {
            packet,
            options,
            missing,
            is_whole: missing == 0,
            ip_id: 0,
            tunnels: 0,
            reassembled: false,
            datagram: &[],
            cover: None,
            is_too_long: false,
        }
    }

    /// Peels on from `step` until nothing is left to peel.
    #[inline]
    fn run<T: Trace>(mut self, mut step: Step<'a>, t: &mut T) {
        loop {
            step = match step {
                Ok((_, Next::End)) => break,
                Ok((i, next)) => self.step(next, i, t),
                Err(e) => {
                    self.failed(fault_of(e), t);
                    break;
                }
            };
        }
        self.packet.cut = self.missing;
        if let Some(carried) = self.packet.carried.as_mut() {
            *carried = carried.saturating_add(self.missing);
        }
        if let Some(tunnel) = self.packet.tunnel.as_mut() {
            tunnel.truncated |= self.missing > 0 && self.is_whole;
        }
    }

    #[inline(always)]
    fn step<T: Trace>(&mut self, next: Next, i: &'a [u8], t: &mut T) -> Step<'a> {
        if self.packet.tunnel.is_some() && matches!(next, Next::Ethernet | Next::Ip) {
            self.packet.carried = Some(u32::try_from(i.len()).unwrap_or(u32::MAX));
        }
        match next {
            Next::Ethertype(kind) => self.ethertype(kind, i, t),
            Next::Transport(protocol) => self.transport(protocol, i, t),
            Next::Ethernet => self.ethernet(i, t),
            Next::Ip => self.ip(i, t),
            Next::Infiniband => self.infiniband(Carrier::Infiniband, i, t),
            Next::End => Ok((i, Next::End)),
        }
    }

    #[cold]
    fn failed<T: Trace>(&mut self, mut fault: Fault, t: &mut T) {
        if !fault.reported {
            t.fault(&fault);
            fault.reported = true;
        }
        self.packet.fault = Some(fault);
    }

    /// Cuts `i` to the `length` that a header states: padding and trailers go, missing bytes are counted.
    #[inline]
    fn bound(&mut self, i: &'a [u8], length: usize) -> &'a [u8] {
        match i.get(..length) {
            Some(inside) => {
                self.missing = 0;
                inside
            }
            None => {
                self.missing = u32::try_from(length - i.len()).unwrap_or(u32::MAX);
                i
            }
        }
    }

    fn other(&mut self, name: &'static str, i: &'a [u8]) -> Step<'a> {
        self.packet.body = Body::Other(name);
        Ok((i, Next::End))
    }

    fn icmp(&mut self, name: &'static str, unreachable: Option<Unreachable>, i: &'a [u8]) -> Step<'a> {
        self.packet.body = unreachable.map_or(Body::Other(name), Body::Unreachable);
        Ok((i, Next::End))
    }

    /// The same for a protocol that is named on the frame's line and not decoded.
    fn named<T: Trace>(&mut self, name: &'static str, i: &'a [u8], t: &mut T) -> Step<'a> {
        t.protocol(name);
        self.other(name, i)
    }

    #[inline]
    fn link<T: Trace>(&mut self, link: LinkType, i: &'a [u8], t: &mut T) -> Step<'a> {
        match link {
            LinkType::ETHERNET => Ok((i, Next::Ethernet)),
            LinkType::RAW | LinkType::RAW_BSD | LinkType::RAW_OPENBSD | LinkType::IPV4 | LinkType::IPV6 => {
                Ok((i, Next::Ip))
            }
            LinkType::INFINIBAND => Ok((i, Next::Infiniband)),
            LinkType::NULL | LinkType::LOOP => match null::parse(i, t)? {
                (i, 2 | 10 | 24 | 28 | 30) => Ok((i, Next::Ip)),
                (i, _) => self.other("Loopback", i),
            },
            LinkType::LINUX_SLL => {
                let (i, sll) = sll::parse(i, t)?;
                self.cooked(sll, i, t)
            }
            LinkType::LINUX_SLL2 => {
                let (i, sll) = sll::parse_v2(i, t)?;
                self.cooked(sll, i, t)
            }
            LinkType::ERF => {
                let (i, (content, length)) = erf::parse(i, t)?;
                let i = self.bound(i, usize::from(length));
                match content {
                    erf::Content::Ethernet => Ok((i, Next::Ethernet)),
                    erf::Content::Infiniband => Ok((i, Next::Infiniband)),
                    erf::Content::Ipv4 | erf::Content::Ipv6 => Ok((i, Next::Ip)),
                    erf::Content::Other => self.other("ERF", i),
                }
            }
            _ => self.other("Frame", i),
        }
    }

    fn cooked<T: Trace>(&mut self, sll: sll::Sll, i: &'a [u8], t: &mut T) -> Step<'a> {
        if let Some(src) = sll.src {
            self.packet.mac = src;
            self.packet.src = Addr::Mac(src);
        }
        match sll.protocol {
            kind if kind >= 0x0600 => Ok((i, Next::Ethertype(kind))),
            sll::LLC => self.llc(i, t),
            _ => self.other("Linux cooked", i),
        }
    }

    #[inline]
    fn ethernet<T: Trace>(&mut self, i: &'a [u8], t: &mut T) -> Step<'a> {
        self.packet.body = Body::Other("Ethernet");
        let (i, header) = ethernet::parse(i, t)?;
        self.packet.mac = header.src;
        self.packet.src = Addr::Mac(header.src);
        self.packet.dst = Addr::Mac(header.dst);
        self.ethertype(header.type_or_length, i, t)
    }

    #[inline]
    fn ethertype<T: Trace>(&mut self, mut kind: u16, mut i: &'a [u8], t: &mut T) -> Step<'a> {
        let mut tags = 0;
        while vlan::is_tag(kind) {
            if tags == TAGS_MAX {
                return Fault::limit(vlan::Vlan::NODE, i).fail();
            }
            let (rest, (id, priority, next)) = vlan::parse(kind, i, t)?;
            self.packet.vlan = Some(id);
            self.packet.priority = Some(priority);
            (i, kind, tags) = (rest, next, tags + 1);
        }
        match kind {
            0x0800 => self.ipv4(i, t),
            0x86dd => self.ipv6(i, t),
            0x8915 => self.infiniband(Carrier::RoceV1, i, t),
            0x8847 | 0x8848 => self.mpls(i, t),
            0x6558 => {
                self.tunnels(i)?;
                Ok((i, Next::Ethernet))
            }
            0x8808 => {
                self.packet.body = Body::Other("MAC Control");
                let (i, (priorities, times)) = pause::parse(i, t)?;
                let (whole_link, priorities) = (priorities.is_none(), priorities.unwrap_or(0xff));
                let quanta = (0..8).filter(|n| priorities >> n & 1 != 0).map(|n: usize| times[n]).max().unwrap_or(0);
                self.packet.body =
                    Body::Pause(Pause { source: self.packet.mac, priorities, quanta, times, whole_link });
                Ok((i, Next::End))
            }
            length if length < 0x0600 => {
                let inside = self.bound(i, usize::from(length));
                self.llc(inside, t)
            }
            0x0806 => {
                t.protocol("ARP");
                // a fault in it is reported and has no other effect
                let _ = arp::parse(i, t);
                self.other("ARP", i)
            }
            0x88cc => self.named("LLDP", i, t),
            0x8809 => self.named("LACP", i, t),
            0x88f7 => self.named("PTP", i, t),
            0x88e5 => self.named("MACsec", i, t),
            _ => self.other("Ethernet", i),
        }
    }

    fn llc<T: Trace>(&mut self, i: &'a [u8], t: &mut T) -> Step<'a> {
        self.packet.body = Body::Other("LLC");
        match ethernet::parse_llc(i, t)? {
            (i, ethernet::Llc::Ethertype(kind)) if kind >= 0x0600 => Ok((i, Next::Ethertype(kind))),
            (i, ethernet::Llc::SpanningTree) => self.named("STP", i, t),
            (i, _) => self.other("LLC", i),
        }
    }

    fn mpls<T: Trace>(&mut self, mut i: &'a [u8], t: &mut T) -> Step<'a> {
        t.protocol("MPLS");
        self.packet.body = Body::Other("MPLS");
        for _ in 0..TAGS_MAX {
            let (rest, entry) = mpls::Mpls::parse(i, t)?;
            i = rest;
            if entry.bottom() != 0 {
                // no header names the payload: IP by its version, and Ethernet behind a control word of zeros
                // (RFC 4448)
                return match i.first().map(|b| b >> 4) {
                    Some(4 | 6) => Ok((i, Next::Ip)),
                    Some(0) if i.len() > 4 => {
                        self.tunnels(i)?;
                        Ok((&i[4..], Next::Ethernet))
                    }
                    _ => self.other("MPLS", i),
                };
            }
        }
        Fault::limit(mpls::Mpls::NODE, i).fail()
    }

    fn ip<T: Trace>(&mut self, i: &'a [u8], t: &mut T) -> Step<'a> {
        match i.first().map(|b| b >> 4) {
            Some(6) => self.ipv6(i, t),
            _ => self.ipv4(i, t),
        }
    }

    #[inline]
    fn ipv4<T: Trace>(&mut self, i: &'a [u8], t: &mut T) -> Step<'a> {
        self.packet.body = Body::Other("IPv4");
        let (_, header) = if self.reassembled { ip::parse_v4(i, &mut Off)? } else { ip::parse_v4(i, t)? };
        header_v4(self.packet, &header);
        self.ip_id = header.id;
        let at = usize::from(header.header_length);
        let total = usize::from(header.total_length);
        // the header of a fragment says nothing about the whole
        self.packet.header = if self.reassembled { Check::Unchecked } else { ip::check_v4(i) };
        let datagram = match total {
            _ if self.reassembled => i,
            // longer than it was on the wire, in a header that is damaged: nothing of it is missing
            _ if self.packet.header == Check::Bad && total > i.len() + self.missing as usize => {
                return Fault::length(ip::f::LEN, i, total).fail();
            }
            // zero length: the card segments later the datagram that the capture shows whole
            0 => i,
            _ if total < at => return Fault::length(ip::f::LEN, i, at).fail(),
            _ => self.bound(i, total),
        };
        let payload = datagram.get(at..).unwrap_or(&[]);
        if header.is_fragment() && !self.reassembled {
            let (offset, more) = (header.offset(), header.more());
            let fragment = IpFragment {
                id: header.id.into(),
                protocol: header.protocol,
                offset,
                more,
                header: IpHeader::v4(&i[..at]),
                payload,
            };
            return self.fragment(fragment, payload, t);
        }
        self.reassembled = false;
        self.datagram = datagram;
        // options may have been changed on the way, and nothing says how they are covered
        self.cover = (at == 20 && total == datagram.len()).then_some(Cover::Ipv4);
        self.transport(header.protocol, payload, t)
    }

    #[inline]
    fn ipv6<T: Trace>(&mut self, i: &'a [u8], t: &mut T) -> Step<'a> {
        self.packet.body = Body::Other("IPv6");
        self.packet.header = Check::Unchecked;
        let whole = self.reassembled;
        let (payload, (header, extensions)) = if whole {
            let (payload, (header, extensions)) = ip::parse_whole_v6(i, t)?;
            self.header_v6(&header);
            (payload, (header, extensions))
        } else {
            ip::parse_v6(i, t, |header, rest| {
                self.header_v6(header);
                if header.payload_length == 0 { rest } else { self.bound(rest, usize::from(header.payload_length)) }
            })?
        };
        if let (Some((id, offset, more)), false) = (extensions.fragment, whole) {
            let header = IpHeader::v6(&i[..40], extensions.protocol);
            let fragment = IpFragment { id, protocol: extensions.protocol, offset, more, header, payload };
            return self.fragment(fragment, payload, t);
        }
        self.reassembled = false;
        // the extension headers are between
        self.datagram = i.get(..offset_in(i, payload) + payload.len()).unwrap_or(&[]);
        self.cover = (header.next == 17 && usize::from(header.payload_length) == payload.len()).then_some(Cover::Ipv6);
        self.transport(extensions.protocol, payload, t)
    }

    fn header_v6(&mut self, header: &ip::Ipv6) {
        self.packet.src = Addr::V6(header.src);
        self.packet.dst = Addr::V6(header.dst);
        self.packet.ttl = header.hop_limit;
        self.packet.ecn = header.traffic_class & 0x03;
        self.packet.dscp = header.traffic_class >> 2;
    }

    fn fragment<T: Trace>(&mut self, fragment: IpFragment<'a>, payload: &'a [u8], t: &mut T) -> Step<'a> {
        t.info(format_args!(
            "fragment, protocol {}, offset {}, ID {:#06x}",
            fragment.protocol, fragment.offset, fragment.id
        ));
        self.packet.body = Body::Fragment(fragment);
        Ok((payload, Next::End))
    }

    #[inline]
    fn transport<T: Trace>(&mut self, protocol: u8, i: &'a [u8], t: &mut T) -> Step<'a> {
        match protocol {
            17 => self.udp(i, t),
            6 => segment(self.packet, &self.options, (self.missing, self.ip_id), i, t),
            47 => self.gre(i, t),
            4 | 41 => {
                self.enter(TunnelKind::Ip, 0, false, i)?;
                Ok((i, Next::Ip))
            }
            51 => {
                let (i, protocol) = ip::parse_ah(i, t)?;
                self.cover = None;
                self.tunnels(i)?;
                Ok((i, Next::Transport(protocol)))
            }
            137 => self.mpls(i, t),
            1 => {
                t.protocol("ICMP");
                let _ = icmp::parse(i, t);
                self.icmp("ICMP", icmp::unreachable(i), i)
            }
            2 => self.named("IGMP", i, t),
            50 => self.named("ESP", i, t),
            58 => {
                t.protocol("ICMPv6");
                let _ = icmp::parse_v6(i, t);
                self.icmp("ICMPv6", icmp::unreachable_v6(i), i)
            }
            132 => self.named("SCTP", i, t),
            _ => Ok((i, Next::End)),
        }
    }

    #[inline]
    fn udp<T: Trace>(&mut self, at: &'a [u8], t: &mut T) -> Step<'a> {
        self.packet.body = Body::Other("UDP");
        let (_, (header, payload)) = udp::parse_with(at, t, |header, rest, t| {
            let payload = match usize::from(header.length) {
                0 => rest,
                length => match length.checked_sub(8) {
                    // more than the IP datagram holds: the length is wrong, and nothing is missing
                    Some(more) if more > rest.len() + self.missing as usize => {
                        self.is_too_long = true;
                        if T::ON {
                            t.fault(&Fault::length(udp::f::LENGTH, at, length));
                        }
                        rest
                    }
                    Some(length) => self.bound(rest, length),
                    None => return Fault::length(udp::f::LENGTH, at, 8).fail(),
                },
            };
            if !T::ON || payload.is_empty() || self.is_followed(header.dst_port) {
                return Ok((rest, (header, payload)));
            }
            t.field(udp::f::PAYLOAD, payload, payload.len(), Value::Bytes(payload));
            Ok((&payload[payload.len()..], (header, payload)))
        })?;
        self.packet.body = Body::Udp(header.src_port, header.dst_port, payload);
        match header.dst_port {
            udp::ROCE_V2 => self.infiniband(Carrier::RoceV2 { src_port: header.src_port }, payload, t),
            udp::VXLAN | udp::VXLAN_LINUX => {
                t.protocol("VXLAN");
                let (i, vxlan) = tunnel::Vxlan::parse(payload, t)?;
                self.enter(TunnelKind::Vxlan, vxlan.vni, false, i)?;
                Ok((i, Next::Ethernet))
            }
            udp::GENEVE => {
                let (i, (protocol, vni)) = tunnel::parse_geneve(payload, t)?;
                self.enter(TunnelKind::Geneve, vni, false, i)?;
                Ok((i, Next::Ethertype(protocol)))
            }
            port if port == self.options.roce_port && port != 0 => {
                self.infiniband(Carrier::RoceV2 { src_port: header.src_port }, payload, t)
            }
            _ => Ok((payload, Next::End)),
        }
    }

    /// True if the payload of a datagram to this port is looked into.
    fn is_followed(&self, port: u16) -> bool {
        matches!(port, udp::ROCE_V2 | udp::VXLAN | udp::VXLAN_LINUX | udp::GENEVE)
            || port == self.options.roce_port && port != 0
    }

    fn gre<T: Trace>(&mut self, i: &'a [u8], t: &mut T) -> Step<'a> {
        self.packet.body = Body::Other("GRE");
        let (i, gre) = tunnel::parse_gre(i, t)?;
        match (gre.protocol, gre.sequence) {
            (0x88be, None) => {
                self.enter(TunnelKind::Erspan1, 0, false, i)?;
                Ok((i, Next::Ethernet))
            }
            (0x88be, Some(_)) => {
                t.protocol("ERSPAN");
                let (i, erspan) = tunnel::Erspan2::parse(i, t)?;
                self.enter(TunnelKind::Erspan2, erspan.session().into(), erspan.truncated() != 0, i)?;
                self.mirrored(erspan.vlan());
                Ok((i, Next::Ethernet))
            }
            (0x22eb, _) => {
                t.protocol("ERSPAN");
                let (i, erspan) = tunnel::parse_erspan3(i, t)?;
                self.enter(TunnelKind::Erspan3, erspan.session().into(), erspan.truncated() != 0, i)?;
                self.mirrored(erspan.vlan());
                match erspan.frame_type() {
                    0 => Ok((i, Next::Ethernet)),
                    2 => Ok((i, Next::Ip)),
                    _ => self.other("ERSPAN", i),
                }
            }
            (protocol, _) => {
                self.enter(TunnelKind::Gre, gre.key.unwrap_or(0), false, i)?;
                if protocol < 0x0600 { self.other("GRE", i) } else { Ok((i, Next::Ethertype(protocol))) }
            }
        }
    }

    /// The VLAN that the mirrored frame came from; a tag inside is worth more.
    fn mirrored(&mut self, vlan: u16) {
        self.packet.vlan = (vlan != 0).then_some(vlan);
    }

    /// Enters a tunnel: the packet inside counts from here on.
    fn enter(&mut self, kind: TunnelKind, id: u32, truncated: bool, i: &'a [u8]) -> PResult<'a, ()> {
        self.packet.tunnel.get_or_insert(Tunnel { kind, id, truncated }).truncated |= truncated;
        (self.packet.vlan, self.packet.priority) = (None, None);
        self.tunnels(i)
    }

    fn tunnels(&mut self, i: &'a [u8]) -> PResult<'a, ()> {
        if self.tunnels == TUNNELS_MAX {
            return Fault::limit(tunnel::f::GRE, i).fail();
        }
        self.tunnels += 1;
        Ok((i, ()))
    }

    #[inline]
    fn infiniband<T: Trace>(&mut self, carrier: Carrier, i: &'a [u8], t: &mut T) -> Step<'a> {
        if carrier == Carrier::RoceV1 {
            self.packet.body = Body::Other("RoCE");
        } else if carrier == Carrier::Infiniband {
            self.packet.body = Body::Other("InfiniBand");
        }
        t.protocol(carrier.protocol());
        let step = scope(ib::f::PROTOCOL, i, t, |i, t| match carrier {
            Carrier::RoceV2 { .. } => {
                // the datagram ends where UDP says
                let before = offset_in(self.datagram, i);
                let covered = self.datagram.get(..before + i.len()).unwrap_or(&[]);
                let cover = self.cover;
                self.base(carrier, cover, covered, before, t)
            }
            Carrier::RoceV1 => self.global(carrier, i, 0, t),
            Carrier::Infiniband => self.local(i, t),
        });
        if T::ON
            && let Body::Ib(ib) = &self.packet.body
            && !ib.behind.is_empty()
        {
            self.show_joined(ib, t);
        }
        step
    }

    /// A native packet, from its LRH.
    fn local<T: Trace>(&mut self, at: &'a [u8], t: &mut T) -> Step<'a> {
        let (i, lrh) = Lrh::parse(at, t)?;
        self.packet.src = Addr::Lid(lrh.slid);
        self.packet.dst = Addr::Lid(lrh.dlid);
        (self.packet.service_level, self.packet.virtual_lane) = (lrh.sl(), lrh.vl());
        t.info(format_args!("LID {} → {}", lrh.slid, lrh.dlid));
        let length = usize::from(lrh.pktlen()) * 4;
        // a length that does not even hold this header says nothing of where the packet ends
        let variant = at.get(length..length + 2).filter(|_| length >= Lrh::LEN);
        let packet = if length < Lrh::LEN { at } else { self.bound(at, length) };
        let next = match lrh.lnh() {
            3 => self.global(Carrier::Infiniband, packet, Lrh::LEN, t)?,
            2 => self.base(Carrier::Infiniband, Some(Cover::Lrh), packet, Lrh::LEN, t)?,
            1 => (i, Next::Ip),
            _ => {
                let raw = packet.get(Lrh::LEN..).unwrap_or(&[]);
                let (i, _) = read::bytes(ib::f::RAW, raw.len(), raw, t)?;
                (i, Next::End)
            }
        };
        if let (true, Some(variant)) = (T::ON && !matches!(next.1, Next::Ip), variant) {
            let at_crc = &at[length..];
            let (rest, _) = read::be16(ib::f::VCRC, at_crc, t)?;
            if self.options.check_crc {
                let good = icrc::variant(packet).to_le_bytes() == *variant;
                t.field(ib::f::VCRC_STATUS, at_crc, 0, Value::U(good.into()));
            }
            return Ok((rest, next.1));
        }
        Ok(next)
    }

    /// From a GRH, which stands `before` bytes into `packet`.
    fn global<T: Trace>(&mut self, carrier: Carrier, packet: &'a [u8], before: usize, t: &mut T) -> Step<'a> {
        let (i, grh) = Grh::parse(packet.get(before..).unwrap_or(&[]), t)?;
        self.packet.src = Addr::of_gid(grh.sgid);
        self.packet.dst = Addr::of_gid(grh.dgid);
        self.packet.ttl = grh.hoplmt;
        self.packet.ecn = (grh.tclass() & 0x03) as u8;
        self.packet.dscp = (grh.tclass() >> 2) as u8;
        if grh.nxthdr != 0x1b {
            return Ok((i, Next::End));
        }
        let at = before + Grh::LEN;
        let packet = if before == 0 { self.bound(packet, at + usize::from(grh.paylen)) } else { packet };
        self.base(carrier, Some(if before == 0 { Cover::Grh } else { Cover::LrhGrh }), packet, at, t)
    }

    /// From a BTH, which stands `before` bytes into `packet`; `packet` ends with the ICRC, if that was captured.
    #[inline]
    fn base<T: Trace>(
        &mut self,
        carrier: Carrier,
        cover: Option<Cover>,
        packet: &'a [u8],
        before: usize,
        t: &mut T,
    ) -> Step<'a> {
        let at = packet.get(before..).unwrap_or(&[]);
        let missing = self.missing as usize;
        let check = match cover {
            Some(cover) if self.options.check_crc && missing == 0 => check(cover, packet),
            _ => None,
        };
        let icrc = match check {
            // an adapter drops it
            _ if self.is_too_long => Check::Bad,
            Some((stated, calculated)) if stated == calculated => Check::Good,
            Some(_) => Check::Bad,
            None => Check::Unchecked,
        };
        let is_odd = icrc == Check::Bad || (missing > 0 && self.options.check_crc) || at.len() + missing > LONGEST;
        if is_odd
            && !self.is_too_long
            && matches!(carrier, Carrier::RoceV2 { .. })
            && let Some((length, icrc)) = joined(cover, packet, before, missing)
        {
            return self.joined(carrier, at, length, icrc, t);
        }
        let calculated = check.filter(|_| icrc == Check::Bad).map(|(_, calculated)| calculated);
        transport_packet(&mut self.packet.body, (carrier, self.ip_id), at, missing, (icrc, calculated), true, t)
    }

    /// Several packets end to end, all but the last of this length.
    #[cold]
    fn joined<T: Trace>(&mut self, carrier: Carrier, at: &'a [u8], length: usize, icrc: Check, t: &mut T) -> Step<'a> {
        let (first, behind) = at.split_at(length);
        let step = transport_packet(&mut self.packet.body, (carrier, self.ip_id), first, 0, (icrc, None), true, t);
        if let Body::Ib(ib) = &mut self.packet.body {
            ib.behind = behind;
        }
        if T::ON {
            let count = (at.len() + self.missing as usize).div_ceil(length);
            t.info(format_args!("{count} packets captured as one datagram"));
        }
        step
    }

    /// Tells of the packets behind the first of a datagram.
    #[cold]
    fn show_joined<T: Trace>(&self, ib: &IbPacket<'a>, t: &mut T) {
        let length = ib.length();
        for one in ib.behind.chunks(length) {
            let missing = if one.len() < length { (length - one.len()).min(self.missing as usize) } else { 0 };
            let crc = (if missing == 0 { ib.icrc } else { Check::Unchecked }, None);
            // the frame's line describes the first packet only
            let _ = scope(ib::f::PROTOCOL, one, t, |i, t| {
                transport_packet(&mut Body::Other("RoCE"), (ib.carrier, ib.ip_id), i, missing, crc, false, t)
            });
        }
    }
}

/// Decodes a TCP segment between the addresses of `packet`, of which `missing` bytes are not in the capture.
#[inline]
fn segment<'a, T: Trace>(
    packet: &mut Packet<'a>,
    options: &Options,
    (missing, ip_id): (u32, u16),
    i: &'a [u8],
    t: &mut T,
) -> Step<'a> {
    packet.body = Body::Other("TCP");
    let (segment, result) = tcp::parse(i, missing, t);
    if let Some(mut segment) = segment {
        segment.ip_id = ip_id;
        // a SYN's checksum tells whether the sender's other checksums should be right, too; a damaged segment does not
        // begin or end a connection
        let counts = !segment.payload.is_empty() || segment.flags & (FIN | SYN | RST) != 0;
        if options.check_crc && missing == 0 && counts {
            segment.check = tcp::check(&packet.src, &packet.dst, i);
        }
        packet.body = Body::Tcp(segment);
    }
    result.map(|(i, ())| (i, Next::End))
}

/// Decodes one packet of the InfiniBand transport, from its BTH to its ICRC, into `body`. `missing` bytes of it are not
/// in the capture; the ICRC was checked, and the one that it should have is there where it is wrong. `has_line`: it has
/// a say in the frame's line.
#[inline(always)]
fn transport_packet<'a, T: Trace>(
    body: &mut Body<'a>,
    (carrier, ip_id): (Carrier, u16),
    at: &'a [u8],
    missing: usize,
    (icrc, calculated): (Check, Option<u32>),
    has_line: bool,
    t: &mut T,
) -> Step<'a> {
    let (i, bth) = Bth::parse(at, t)?;
    let row = Opcode(bth.opcode).row();
    if let (true, Some(header)) = (T::ON && has_line, at.first_chunk::<{ Bth::LEN }>()) {
        t.layer_info(LayerText::new(header, ib::bth::write_line));
    }
    // it is filled where it stays
    let ext = ext::Extensions::default();
    *body = Body::Ib(IbPacket { carrier, bth, ext, payload: &[], payload_length: 0, ip_id, icrc, behind: &[] });
    let Body::Ib(ib) = body else { return Ok((i, Next::End)) };
    // where headers are cut off, the packet is still one of its queue pair and has its PSN
    let headers = row.map_or(0, |row| usize::from(row.length));
    let on_wire = at.len() + missing;
    let pad = usize::from(bth.padcnt());
    let behind = on_wire.checked_sub(Bth::LEN + headers + pad + ICRC);
    let payload_length = behind.unwrap_or(0);
    let parsed = match row {
        Some(row) => ext::parse(row.headers, i, t, &mut ib.ext),
        None => Ok((i, ())),
    };
    let rest = match &parsed {
        Ok((rest, ())) => *rest,
        Err(_) => &[],
    };
    let payload = rest.get(..payload_length).unwrap_or(rest);
    (ib.payload, ib.payload_length) = (payload, payload_length as u32);
    let (rest, ()) = parsed?;
    if T::ON && has_line {
        if let Some(syndrome) = ib.ext.syndrome() {
            t.info(format_args!("{syndrome} MSN={}", ib.ext.msn().unwrap_or(0)));
        }
        if let Some(reth) = ib.ext.reth {
            t.info(format_args!("R_Key={:#010x} Len={}", reth.r_key, reth.dma_length));
        }
    }
    if T::ON && !payload.is_empty() {
        t.field(ib::f::PAYLOAD, payload, payload.len(), Value::Bytes(payload));
    }
    if behind.is_none() {
        // shorter than its own padding and ICRC
        return Fault::length(Bth::NODE, rest, pad + ICRC).fail();
    }
    if T::ON {
        let rest = &rest[payload.len()..];
        let (padding, crc) = rest.split_at_checked(pad).unwrap_or((rest, &[]));
        if !padding.is_empty() {
            t.field(ib::f::PADDING, padding, padding.len(), Value::Bytes(padding));
        }
        if missing == 0 && crc.len() >= ICRC {
            let (after, _) = read::be32(ib::f::ICRC, crc, t)?;
            let status = match icrc {
                Check::Bad => 0,
                Check::Good => 1,
                Check::Unchecked => 2,
            };
            t.field(ib::f::ICRC_STATUS, crc, 0, Value::U(status));
            if let Some(calculated) = calculated {
                t.field(ib::f::ICRC_CALCULATED, crc, 0, Value::U(calculated.swap_bytes().into()));
                t.info(format_args!("ICRC wrong"));
            }
            return Ok((after, Next::End));
        }
    }
    Ok((&rest[rest.len()..], Next::End))
}

/// Finds several packets end to end behind a RoCEv2 datagram's headers (the first `before` bytes of `packet`), see
/// [`IbPacket::joined`]: returns the length of all but the last, and the result of their ICRCs. All are of one queue
/// pair and one partition, and either the CRC of each is right, or their numbers follow each other; each of the two is
/// more than chance. `missing` bytes were not captured.
#[cold]
#[inline(never)]
fn joined(cover: Option<Cover>, packet: &[u8], before: usize, missing: usize) -> Option<(usize, Check)> {
    /// So many lengths are looked at whose second packet looks like one.
    const TRIES: usize = 8;
    let (headers, at) = packet.split_at_checked(before)?;
    let (_, first) = Bth::parse(at, &mut Off).ok()?;
    let least = Bth::LEN + usize::from(Opcode(first.opcode).row()?.length) + usize::from(first.padcnt()) + ICRC;
    let most = LONGEST.min(at.len().checked_sub(Bth::LEN)?);
    let looks_alike = |size: &usize| at[size + 2..size + 4] == at[2..4] && at[size + 5..size + 8] == at[5..8];
    let mut sizes = (least.next_multiple_of(4)..=most).step_by(4).filter(looks_alike).take(TRIES);
    sizes.find_map(|size| {
        let (mut is_right, mut follows, mut psn) = (cover.is_some(), true, first.psn);
        for (n, one) in at.chunks(size).enumerate() {
            let missing = if one.len() < size { missing.min(size - one.len()) } else { 0 };
            // the remainder of a cut packet says nothing
            let Ok((_, bth)) = Bth::parse(one, &mut Off) else { break };
            let row = Opcode(bth.opcode).row()?;
            let headers_length = Bth::LEN + usize::from(row.length) + usize::from(bth.padcnt()) + ICRC;
            if (bth.p_key, bth.dest_qp) != (first.p_key, first.dest_qp) || headers_length > one.len() + missing {
                return None;
            }
            follows &= bth.psn == psn;
            psn = psn.wrapping_add(1) & 0xff_ffff;
            if missing == 0
                && let (Some(cover), Some((covered, stated))) = (cover, one.split_last_chunk::<ICRC>())
            {
                let stated = Some(u32::from_le_bytes(*stated));
                // joined by a receiver, they may all have had the same identification
                is_right &=
                    [0, n as u16].iter().any(|number| icrc::of_piece(cover, headers, covered, *number) == stated);
            }
        }
        match (is_right, follows) {
            (true, _) => Some((size, Check::Good)),
            (false, true) => Some((size, Check::Unchecked)),
            (false, false) => None,
        }
    })
}

/// Number of bytes of `whole` that stand before `part`, which is a part of it.
#[inline]
fn offset_in(whole: &[u8], part: &[u8]) -> usize {
    part.as_ptr().addr().saturating_sub(whole.as_ptr().addr())
}

/// The ICRC at the end of a packet, and the one it should have, both as read little-endian.
#[inline(always)]
fn check(cover: Cover, packet: &[u8]) -> Option<(u32, u32)> {
    let (covered, stated) = packet.split_last_chunk::<4>()?;
    Some((u32::from_le_bytes(*stated), icrc::invariant(cover, covered)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An acknowledgment that Linux's Soft-RoCE sent.
    const ACK: [u8; 62] = [
        0x52, 0x54, 0, 0, 0, 2, 0x52, 0x54, 0, 0, 0, 1, 0x08, 0, 0x45, 0, 0, 0x30, 0xdd, 0x1c, 0x40, 0, 0x40, 0x11,
        0xd9, 0x9c, 192, 0, 2, 1, 192, 0, 2, 2, 0xeb, 0x1a, 0x12, 0xb7, 0, 0x1c, 0, 0, 0x11, 0, 0xff, 0xff, 0, 0, 0,
        0x12, 0, 0x8d, 0xd2, 0x6b, 0x1f, 0, 0, 1, 0xd8, 0x18, 0xc4, 0xcc,
    ];

    #[test]
    fn a_usual_frame_is_decoded_at_once_and_one_with_a_wrong_crc_by_steps() {
        let options = Options::default();
        let mut packet = Packet::default();
        assert!(at_once(&ACK, &options, &mut packet));
        let mut same = Packet::default();
        by_steps(LinkType::ETHERNET, &ACK, 62, &options, &mut same, &mut Off);
        assert_eq!(alloc::format!("{packet:?}"), alloc::format!("{same:?}"));
        let mut wrong = ACK;
        wrong[61] ^= 1;
        assert!(!at_once(&wrong, &options, &mut Packet::default()));
        let unchecked = Options { check_crc: false, ..options };
        assert!(at_once(&wrong, &unchecked, &mut Packet::default()));
    }

    /// A segment of iWARP: data behind a header with timestamps.
    const SEGMENT: [u8; 70] = [
        0x52, 0x54, 0, 0, 0, 2, 0x52, 0x54, 0, 0, 0, 1, 0x08, 0, 0x45, 0, 0, 0x38, 0xdd, 0x1c, 0x40, 0, 0x40, 0x06, 0,
        0, 192, 0, 2, 1, 192, 0, 2, 2, 0xeb, 0x1a, 0x15, 0x45, 0, 0, 0, 1, 0, 0, 0, 9, 0x80, 0x18, 0x01, 0xf6, 0x12,
        0x34, 0, 0, 1, 1, 8, 10, 0, 0, 0, 7, 0, 0, 0, 8, 0xde, 0xad, 0xbe, 0xef,
    ];

    #[test]
    fn an_observer_is_told_the_same_of_a_frame_that_is_decoded_at_once() {
        use crate::trace::{Line, Tree};
        let options = Options::default();
        let told = |bytes: &[u8], steps: bool| {
            let (mut tree, mut line, mut packet) = (Tree::new(), Line::default(), Packet::default());
            tree.begin(bytes);
            line.begin();
            let mut t = crate::trace::Pair(&mut tree, &mut line);
            let length = bytes.len() as u32;
            match steps {
                true => by_steps(LinkType::ETHERNET, bytes, length, &options, &mut packet, &mut t),
                false => decode_into(LinkType::ETHERNET, bytes, length, &options, &mut packet, &mut t),
            }
            t.end();
            let nodes: alloc::vec::Vec<_> =
                tree.nodes.iter().map(|node| alloc::format!("{node:?} {:?}", tree.stored(node))).collect();
            (nodes, tree.protocol, tree.info, line.protocol, line.info, tree.faults.len())
        };
        for whole in [&ACK[..], &SEGMENT] {
            assert!(at_once(whole, &options, &mut Packet::default()));
            assert_eq!(told(whole, false), told(whole, true));
            for bit in 0..whole.len() * 8 {
                let mut changed = whole.to_vec();
                changed[bit / 8] ^= 1 << (bit % 8);
                assert_eq!(told(&changed, false), told(&changed, true), "bit {bit}");
            }
            for cut in 0..whole.len() {
                assert_eq!(told(&whole[..cut], false), told(&whole[..cut], true), "{cut} bytes");
            }
        }
    }
}
