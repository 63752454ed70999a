//! Packets of RoCEv2 (IBA volume 1, annex A17): the content of UDP datagrams to port 4791, made and parsed with the
//! dissector's layouts, and its invariant CRC.
//!
//! The CRC covers the IP header, which a UDP socket does not show. All of it is known except for two fields: the
//! identification of IPv4 (16 bits) and whether the packet may be fragmented (1 bit). The CRC is linear, so both follow
//! from the difference between the received CRC and the one for identification 0: [`Check`] solves for them, and
//! refuses a packet that has no solution. Damage passes once in 2^15 packets instead of once in 2^32; on IPv6 no field
//! is unknown.

use crate::transport::Time;
use hashbrown::HashMap;
use rdmascope_dissector::trace::Off;
use rdmascope_dissector::wire::ib::bth::{Bth, Opcode, Part, Row};
use rdmascope_dissector::wire::ib::ext::{self, Extensions, Reth, deth_bytes};
use rdmascope_dissector::wire::ib::icrc::{self, Cover};
use rdmascope_dissector::wire::ib::mad::{QP1, QP1_KEY};
use rdmascope_dissector::wire::{ip, udp};
use std::net::{IpAddr, Ipv4Addr};

/// The UDP port of RoCEv2 (annex A17).
pub const PORT: u16 = udp::ROCE_V2;
/// Packet sequence numbers, message sequence numbers and queue pairs have 24 bits.
pub const MASK_24: u32 = 0x00ff_ffff;
/// Bytes of the invariant CRC.
pub const ICRC: usize = icrc::LEN;

/// The addresses of a connection, of one family.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Path {
    /// Our address.
    pub local: IpAddr,
    /// The peer's.
    pub remote: IpAddr,
    /// The UDP port that ours come from: it spreads connections over paths.
    pub source_port: u16,
}

impl Path {
    /// A source port for a connection: 0xc000 to 0xffff, as annex A17 recommends.
    pub const fn source_port(qp: u32, peer_qp: u32) -> u16 {
        0xc000 | (qp ^ peer_qp) as u16 & 0x3fff
    }
}

/// The RDMA extended header.
pub(crate) fn reth(key: u32, offset: u64, length: u32) -> Vec<u8> {
    let mut out = Vec::with_capacity(Reth::LEN);
    Reth { virtual_address: offset, r_key: key, dma_length: length }.emit(&mut out);
    out
}

/// The datagram extended header of a management datagram: key and source queue pair.
pub(crate) const DETH: [u8; 8] = deth_bytes(QP1_KEY, QP1);

/// Kind of a message of the reliable connection, as far as its opcodes show it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub(crate) enum Kind {
    Send { invalidate: bool, immediate: bool },
    Write { immediate: bool },
    Response,
}

/// Position of packet `n` among `count` packets of a message.
pub(crate) const fn part(n: u64, count: u64) -> Part {
    match (n == 0, n + 1 == count) {
        (true, true) => Part::Only,
        (true, false) => Part::First,
        (false, false) => Part::Middle,
        (false, true) => Part::Last,
    }
}

pub(crate) fn opcode(kind: Kind, part: Part) -> Opcode {
    match (kind, part) {
        (Kind::Send { .. }, Part::First) => Opcode::RC_SEND_FIRST,
        (Kind::Send { .. }, Part::Middle) => Opcode::RC_SEND_MIDDLE,
        (Kind::Send { invalidate: true, .. }, Part::Last) => Opcode::RC_SEND_LAST_INVALIDATE,
        (Kind::Send { invalidate: true, .. }, Part::Only) => Opcode::RC_SEND_ONLY_INVALIDATE,
        (Kind::Send { immediate: true, .. }, Part::Last) => Opcode::RC_SEND_LAST_IMMEDIATE,
        (Kind::Send { immediate: true, .. }, Part::Only) => Opcode::RC_SEND_ONLY_IMMEDIATE,
        (Kind::Send { .. }, Part::Last) => Opcode::RC_SEND_LAST,
        (Kind::Send { .. }, Part::Only) => Opcode::RC_SEND_ONLY,
        (Kind::Write { .. }, Part::First) => Opcode::RC_RDMA_WRITE_FIRST,
        (Kind::Write { .. }, Part::Middle) => Opcode::RC_RDMA_WRITE_MIDDLE,
        (Kind::Write { immediate: true }, Part::Last) => Opcode::RC_RDMA_WRITE_LAST_IMMEDIATE,
        (Kind::Write { immediate: true }, Part::Only) => Opcode::RC_RDMA_WRITE_ONLY_IMMEDIATE,
        (Kind::Write { .. }, Part::Last) => Opcode::RC_RDMA_WRITE_LAST,
        (Kind::Write { .. }, Part::Only) => Opcode::RC_RDMA_WRITE_ONLY,
        (Kind::Response, Part::First) => Opcode::RC_RDMA_READ_RESPONSE_FIRST,
        (Kind::Response, Part::Middle) => Opcode::RC_RDMA_READ_RESPONSE_MIDDLE,
        (Kind::Response, Part::Last) => Opcode::RC_RDMA_READ_RESPONSE_LAST,
        (Kind::Response, Part::Only) => Opcode::RC_RDMA_READ_RESPONSE_ONLY,
    }
}

/// Fields of the IP header that a UDP socket does not show.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Hidden {
    /// The identification; 0 on IPv6.
    pub identification: u16,
    /// Routers may fragment the packet.
    pub fragmentable: bool,
}

/// Metadata of a received datagram.
#[derive(Clone, Copy, Debug, Default)]
pub struct Outside {
    /// The UDP source port.
    pub source_port: u16,
    /// Its IP header carries the mark of congestion.
    pub congested: bool,
    /// More of the headers, if they are visible.
    pub header: Option<Header>,
}

/// Header fields that a raw socket shows in addition to those of a UDP socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// Fields that the invariant CRC covers.
    pub hidden: Hidden,
    /// The type of service.
    pub tos: u8,
    /// The time to live.
    pub ttl: u8,
    /// The checksum of UDP; 0 for none.
    pub checksum: u16,
}

/// Parses the data of a raw socket: a whole IPv4 packet. Returns sender and receiver, header fields around the
/// datagram, and the datagram. `None` if it is not for port 4791, has options (RoCEv2 has none), or is incomplete.
pub(crate) fn whole(packet: &[u8]) -> Option<(Ipv4Addr, Ipv4Addr, Outside, &[u8])> {
    let (rest, ip) = ip::parse_v4(packet, &mut Off).ok()?;
    if ip.header_length != 20 || ip.protocol != 17 || ip.more() || ip.offset() != 0 {
        return None;
    }
    let rest = rest.get(..usize::from(ip.total_length).checked_sub(20)?)?;
    let (datagram, udp) = udp::parse(rest, &mut Off).ok()?;
    if udp.dst_port != PORT || usize::from(udp.length) != rest.len() {
        return None;
    }
    let hidden = Hidden { identification: ip.id, fragmentable: ip.fragment & 0x4000 == 0 };
    let header = Header { hidden, tos: ip.tos, ttl: ip.ttl, checksum: udp.checksum };
    let outside = Outside { source_port: udp.src_port, congested: ip.tos & 3 == 3, header: Some(header) };
    Some((ip.src.into(), ip.dst.into(), outside, datagram))
}

/// The invariant CRC of a datagram from its BTH to its padding, with identification 0 and the don't-fragment flag.
/// `None` if it has no BTH.
fn invariant(from: IpAddr, to: IpAddr, source_port: u16, datagram: &[u8]) -> Option<u32> {
    let (bth, rest) = datagram.split_first_chunk::<{ Bth::LEN }>()?;
    let udp_length = (8 + datagram.len() + ICRC) as u16;
    let mut head = [0; 60];
    let (cover, ip) = match (from, to) {
        (IpAddr::V4(from), IpAddr::V4(to)) => {
            head[0] = 0x45;
            head[2..4].copy_from_slice(&(20 + udp_length).to_be_bytes());
            head[6] = 0x40;
            head[9] = 17;
            head[12..16].copy_from_slice(&from.octets());
            head[16..20].copy_from_slice(&to.octets());
            (Cover::Ipv4, 20)
        }
        (from, to) => {
            head[0] = 0x60;
            head[4..6].copy_from_slice(&udp_length.to_be_bytes());
            head[6] = 17;
            head[8..24].copy_from_slice(&crate::wire::octets(from));
            head[24..40].copy_from_slice(&crate::wire::octets(to));
            (Cover::Ipv6, 40)
        }
    };
    head[ip..ip + 2].copy_from_slice(&source_port.to_be_bytes());
    head[ip + 2..ip + 4].copy_from_slice(&PORT.to_be_bytes());
    head[ip + 4..ip + 6].copy_from_slice(&udp_length.to_be_bytes());
    head[ip + 8..ip + 20].copy_from_slice(bth);
    let crc = icrc::invariant(cover, &head[..ip + 20])?;
    let mut hasher = crc32fast::Hasher::new_with_initial(crc);
    hasher.update(rest);
    Some(hasher.finalize())
}

/// Appends a packet to `out`: header, extension headers, payload, padding, invariant CRC. The pad count is set here.
pub fn emit(path: &Path, head: Bth, extensions: &[u8], payload: &[u8], out: &mut Vec<u8>) {
    let start = out.len();
    let padded = payload.len().next_multiple_of(4);
    out.reserve(Bth::LEN + extensions.len() + padded + ICRC);
    head.padded(payload.len()).emit(out);
    out.extend_from_slice(extensions);
    out.extend_from_slice(payload);
    out.resize(out.len() + padded - payload.len(), 0);
    finish(path, start, out);
}

/// Appends the invariant CRC to the packet that begins at `start`.
pub(crate) fn finish(path: &Path, start: usize, out: &mut Vec<u8>) {
    let crc = invariant(path.local, path.remote, path.source_port, &out[start..]).unwrap_or(0);
    out.extend_from_slice(&crc.to_le_bytes());
}

/// A packet without its CRC.
#[derive(Clone, Debug)]
pub struct Packet<'a> {
    /// The base transport header.
    pub bth: Bth,
    /// Meaning of its opcode.
    pub row: &'static Row,
    /// The extension headers.
    pub ext: Extensions,
    /// Payload, without padding.
    pub payload: &'a [u8],
}

impl<'a> Packet<'a> {
    /// Parses a datagram that ends with its CRC. `None` if it is too short, or its opcode is reserved.
    pub fn parse(datagram: &'a [u8]) -> Option<Self> {
        let packet = datagram.get(..datagram.len().checked_sub(ICRC)?)?;
        let (rest, bth) = Bth::parse(packet, &mut Off).ok()?;
        let row = bth.operation().row()?;
        let mut ext = Extensions::default();
        let (rest, ()) = ext::parse(row.headers, rest, &mut Off, &mut ext).ok()?;
        let payload = rest.get(..rest.len().checked_sub(usize::from(bth.padcnt()))?)?;
        Some(Self { bth, row, ext, payload })
    }
}

/// Opcode and destination queue pair of a datagram, to find its connection before its CRC is checked.
pub fn destination(datagram: &[u8]) -> Option<(Opcode, u32)> {
    let (_, bth) = Bth::parse(datagram, &mut Off).ok()?;
    Some((bth.operation(), bth.dest_qp))
}

/// Bits of the IP header that a UDP socket does not show: the identification, and the flag that forbids fragments.
const UNKNOWN: usize = 17;

/// One solved bit: CRCs whose highest bit is this one are reduced by `vector`, which represents the unknown bits of
/// `stands_for`.
#[derive(Clone, Copy, Debug, Default)]
struct Pivot {
    highest: u32,
    vector: u32,
    stands_for: u32,
}

/// Effect of the unknown bits of the IP header on the CRC, for packets of one length.
#[derive(Debug)]
struct Length {
    /// By bit: those of the identification, then the flag.
    basis: [u32; UNKNOWN],
    pivots: [Pivot; UNKNOWN],
}

impl Length {
    /// `after` is the number of bytes after the flags: from the low byte of the fragment offset to the padding.
    fn new(after: usize) -> Self {
        let nothing = crc32fast::hash(&[0; 3]);
        let mut basis = [0; UNKNOWN];
        for (bit, vector) in basis.iter_mut().enumerate() {
            let field = if bit < 16 { (1u32 << (bit + 8)).to_be_bytes() } else { 0x40u32.to_be_bytes() };
            let mut difference = crc32fast::Hasher::new_with_initial(crc32fast::hash(&field[1..]) ^ nothing);
            // combining moves the difference past this number of bytes
            difference.combine(&crc32fast::Hasher::new_with_initial_len(0, after as u64));
            *vector = difference.finalize();
        }
        let mut pivots = [Pivot::default(); UNKNOWN];
        for (bit, vector) in basis.iter().enumerate() {
            let (mut vector, mut stands_for) = (*vector, 1 << bit);
            for pivot in &pivots[..bit] {
                if vector & pivot.highest != 0 {
                    vector ^= pivot.vector;
                    stands_for ^= pivot.stands_for;
                }
            }
            // the polynomial is primitive: 17 bits next to each other never cancel out
            pivots[bit] = Pivot { highest: 1 << vector.checked_ilog2().unwrap_or(0), vector, stands_for };
        }
        Self { basis, pivots }
    }

    fn solve(&self, mut difference: u32) -> Option<Hidden> {
        let mut bits = 0;
        for pivot in &self.pivots {
            if difference & pivot.highest != 0 {
                difference ^= pivot.vector;
                bits ^= pivot.stands_for;
            }
        }
        (difference == 0).then_some(Hidden { identification: bits as u16, fragmentable: bits >> 16 & 1 == 1 })
    }
}

/// Checks invariant CRCs, and finds the values in the hidden part of the IP header.
#[derive(Debug, Default)]
pub struct Check {
    lengths: HashMap<usize, Length>,
}

impl Check {
    fn length(&mut self, datagram: usize) -> &Length {
        // from the low byte of the fragment offset, byte 7 of the IP header, on
        let after = 20 - 7 + 8 + datagram - ICRC;
        self.lengths.entry(after).or_insert_with(|| Length::new(after))
    }

    /// Checks the CRC of a datagram between these addresses. Returns the hidden fields of its IP header, or `None` if
    /// it is damaged.
    pub fn received(&mut self, from: IpAddr, to: IpAddr, source_port: u16, datagram: &[u8]) -> Option<Hidden> {
        let (packet, crc) = datagram.split_last_chunk::<ICRC>()?;
        // only multiples of 4: this bounds the number of lengths, too
        if packet.len() % 4 != 0 {
            return None;
        }
        let difference = invariant(from, to, source_port, packet)? ^ u32::from_le_bytes(*crc);
        match difference {
            0 => Some(Hidden::default()),
            _ if from.is_ipv6() => None,
            difference => self.length(datagram.len()).solve(difference),
        }
    }

    /// Changes the CRC of a packet of [`emit`] so that it fits an IP packet with this identification.
    pub fn renumber(&mut self, datagram: &mut [u8], identification: u16) {
        if identification == 0 || datagram.len() < Bth::LEN + ICRC {
            return;
        }
        let length = self.length(datagram.len());
        let change = (0..16).filter(|bit| identification >> bit & 1 == 1).fold(0, |crc, bit| crc ^ length.basis[bit]);
        if let Some(crc) = datagram.last_chunk_mut::<ICRC>() {
            *crc = (u32::from_le_bytes(*crc) ^ change).to_le_bytes();
        }
    }
}

/// Sequence numbers of 24 bits as 64 bits: the one that is nearest to `near`.
pub(crate) fn unwrap(psn: u32, first: u32, near: u64) -> u64 {
    let there = psn.wrapping_sub(first) & MASK_24;
    let delta = there.wrapping_sub(near as u32) & MASK_24;
    // the upper half means earlier numbers
    if delta < 0x80_0000 { near + u64::from(delta) } else { near.wrapping_sub(u64::from(MASK_24 + 1 - delta)) }
}

/// The inverse of [`unwrap`].
pub(crate) const fn wrap(sequence: u64, first: u32) -> u32 {
    (sequence as u32).wrapping_add(first) & MASK_24
}

/// A time in the future; if it overflows, it is the maximum, which never comes.
pub(crate) fn later(now: Time, nanos: u64) -> Time {
    now.saturating_add(i64::try_from(nanos).unwrap_or(i64::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire;
    use proptest::prelude::*;

    fn path(v6: bool) -> Path {
        let (local, remote) = if v6 { ("2001:db8::1", "2001:db8::2") } else { ("192.0.2.1", "198.51.100.7") };
        Path { local: local.parse().unwrap(), remote: remote.parse().unwrap(), source_port: 0xc123 }
    }

    fn bth() -> Bth {
        Bth { bits: 0x80, ack: 0x80, ..Bth::new(Opcode::RC_SEND_ONLY, 0x1234, 77) }
    }

    /// The CRC as the dissector computes it from a frame.
    fn by_frame(path: &Path, datagram: &[u8], hidden: Hidden) -> u32 {
        let mut udp = [path.source_port.to_be_bytes(), PORT.to_be_bytes()].concat();
        udp.extend_from_slice(&((8 + datagram.len()) as u16).to_be_bytes());
        udp.extend_from_slice(&[0, 0]);
        udp.extend_from_slice(datagram);
        let mut frame = wire::frame(&[(path.local, 0), (path.remote, 0)], 0, 17, hidden.identification, &udp);
        if hidden.fragmentable && path.local.is_ipv4() {
            frame[wire::ETHERNET + 6] = 0;
        }
        let cover = if path.local.is_ipv6() { Cover::Ipv6 } else { Cover::Ipv4 };
        icrc::invariant(cover, &frame[wire::ETHERNET..frame.len() - ICRC]).unwrap()
    }

    #[test]
    fn the_crc_is_that_of_the_whole_frame_and_tells_what_is_hidden() {
        let mut check = Check::default();
        for length in [0usize, 1, 3, 100, 1024, 4096] {
            for v6 in [false, true] {
                let path = path(v6);
                let mut datagram = Vec::new();
                emit(&path, bth(), &[], &vec![0x5a; length], &mut datagram);
                assert_eq!(Packet::parse(&datagram).unwrap().payload, vec![0x5a; length]);
                let crc = u32::from_le_bytes(*datagram.last_chunk().unwrap());
                assert_eq!(crc, by_frame(&path, &datagram, Hidden::default()));
                assert_eq!(
                    check.received(path.local, path.remote, path.source_port, &datagram),
                    Some(Hidden::default())
                );
                for (identification, fragmentable) in
                    [(1u16, false), (0x8000, true), (0xffff, false), (0, true), (0x1234, true)]
                {
                    let hidden = Hidden { identification, fragmentable };
                    let crc = by_frame(&path, &datagram, hidden);
                    let end = datagram.len() - ICRC;
                    let mut other = [&datagram[..end], &crc.to_le_bytes()].concat();
                    let expected = if v6 { Hidden::default() } else { hidden };
                    assert_eq!(
                        check.received(path.local, path.remote, path.source_port, &other),
                        Some(expected),
                        "{length}"
                    );
                    if !v6 && !fragmentable {
                        other.copy_from_slice(&datagram);
                        check.renumber(&mut other, identification);
                        assert_eq!(other[end..], crc.to_le_bytes());
                    }
                }
            }
        }
    }

    #[test]
    fn damage_has_no_solution() {
        let path = path(false);
        let mut datagram = Vec::new();
        emit(&path, bth(), &[], &[7; 64], &mut datagram);
        let mut check = Check::default();
        for at in 0..datagram.len() * 8 {
            // fields that switches may change are not covered
            if at / 8 == 4 {
                continue;
            }
            let mut other = datagram.clone();
            other[at / 8] ^= 1 << (at % 8);
            assert_eq!(check.received(path.local, path.remote, path.source_port, &other), None, "bit {at}");
        }
        assert_eq!(check.received(path.local, path.remote, path.source_port + 1, &datagram), None);
    }

    #[test]
    fn a_whole_packet_is_taken_apart() {
        let ends = [("192.0.2.1".parse().unwrap(), 0), ("192.0.2.2".parse().unwrap(), 0)];
        let udp = [&[0xc1, 0x23, 0x12, 0xb7, 0, 12, 0xab, 0xcd], &[1u8, 2, 3, 4][..]].concat();
        let outer = wire::Ip { id: 0x1234, tos: 0x6b, ttl: 9, ..wire::Ip::default() };
        let frame = wire::frame_with(&ends, 0, 17, outer, &udp);
        let packet = &frame[wire::ETHERNET..];
        let (from, to, outside, datagram) = whole(packet).unwrap();
        assert_eq!((IpAddr::from(from), IpAddr::from(to), datagram), (ends[0].0, ends[1].0, &[1, 2, 3, 4][..]));
        assert_eq!((outside.source_port, outside.congested), (0xc123, true));
        let hidden = Hidden { identification: 0x1234, fragmentable: false };
        assert_eq!(outside.header, Some(Header { hidden, tos: 0x6b, ttl: 9, checksum: 0xabcd }));
        // truncated, another port, a fragment, options
        assert!(whole(&packet[..packet.len() - 1]).is_none());
        for (at, change) in [(23, 1), (6, 0x20), (7, 1), (0, 3), (9, 1)] {
            let mut other = packet.to_vec();
            other[at] ^= change;
            assert!(whole(&other).is_none(), "{at}");
        }
    }

    proptest! {
        #[test]
        fn sequence_numbers_come_back(first in 0..=MASK_24, near in 0x100_0000u64..1 << 40, delta in -0x7f_ffffi64..0x7f_ffff) {
            let sequence = near.wrapping_add_signed(delta);
            prop_assert_eq!(unwrap(wrap(sequence, first), first, near), sequence);
        }

        #[test]
        fn any_bytes_are_borne(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let path = path(false);
            let _ = Packet::parse(&bytes);
            let _ = destination(&bytes);
            let _ = whole(&bytes);
            let _ = Check::default().received(path.local, path.remote, 1, &bytes);
        }
    }
}
