//! Routing of frames to several analyses: each has whole connections of its own, and nothing of what it does depends on
//! the others.
//!
//! ```text
//!   frame ─▶ a cheap look: IPv4, and UDP 4791 or TCP ─┐
//!       └──▶ else it is peeled, without checksums ────┴▶ its hosts, of TCP its ports too ─▶ the shard that has them
//! ```
//!
//! Pairing and connection management need all that two hosts said to each other, so their queue pairs stay together. IP
//! fragments are put together here, since only the whole datagram tells its connection. A shard is chosen by the
//! content of packets only; if two shards would have to know of each other, [`Router::is_separable`] says so.
//!
//! A capture without an end has ever new hosts: [`Router::age`] forgets those that were not heard of for long.

use super::FrameMeta;
use super::datagrams::Datagrams;
use crate::rpcbind;
use alloc::vec::Vec;
use hashbrown::HashMap;
use rdmascope_dissector::frame::{self, Addr, Body, IbPacket, LinkType, Packet, Pause};
use rdmascope_dissector::trace::Off;
use rdmascope_dissector::wire::ib::bth::{Opcode, Service};
use rdmascope_dissector::wire::ib::cm::{self, CmMessage};
use rdmascope_dissector::wire::udp;

/// Destination of a frame.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Route {
    /// Number of the shard, from 0.
    pub shard: usize,
    /// If the frame is the last fragment of an IP datagram: the datagram, with the header of its first fragment.
    pub datagram: Option<Vec<u8>>,
    /// If it is a pause frame: the other shards must be told of it too, by [`super::Pipeline::paused`].
    pub pause: Option<Pause>,
}

/// Frames with the same key go to the same shard, [`Key::Alone`] aside.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Key {
    /// All InfiniBand packets between two hosts.
    Hosts(Addr, Addr),
    /// The segments between two TCP ports.
    Ports((Addr, u16), (Addr, u16)),
    /// A frame that belongs to nothing.
    Alone,
}

impl Key {
    fn hosts(a: Addr, b: Addr) -> Self {
        if a <= b { Self::Hosts(a, b) } else { Self::Hosts(b, a) }
    }

    fn ports(a: (Addr, u16), b: (Addr, u16)) -> Self {
        if a <= b { Self::Ports(a, b) } else { Self::Ports(b, a) }
    }
}

/// The same of IPv4, in few bytes: addresses, and of TCP the ports.
type Short = (u64, u32);

/// Requests of connection management that are remembered, as many as an analysis remembers.
const REQUESTS_MAX: usize = 4096;
/// Keys at most: more than there are connections that one analysis follows.
const KEYS_MAX: usize = 1 << 16;
/// Short keys that are found at once.
const RECENT: usize = 256;

/// Hands out the frames of a capture, in order. See the module.
#[derive(Debug)]
pub struct Router {
    decode: frame::Options,
    keys: HashMap<Key, u16>,
    /// Keys that were not seen since the last call of [`Router::age`].
    old: HashMap<Key, u16>,
    recent: Vec<(Short, u16)>,
    /// By shard: frames that it has, and keys.
    load: Vec<(u64, u32)>,
    datagrams: Datagrams,
    /// Clients and communication ids of requests, and the hosts that they are between.
    requests: HashMap<(Addr, u32), Key>,
    /// The hosts between which a request was refused.
    refused: Option<Key>,
    separable: bool,
    /// True if it forgets keys for want of room.
    forgets: bool,
}

impl Router {
    /// A router for `shards` shards, which decode their frames with these options.
    pub fn new(shards: usize, options: frame::Options) -> Self {
        Self {
            decode: frame::Options { check_crc: false, ..options },
            keys: HashMap::new(),
            old: HashMap::new(),
            recent: alloc::vec![((0, 0), 0); RECENT],
            load: alloc::vec![(0, 0); shards.max(1)],
            datagrams: Datagrams::default(),
            requests: HashMap::new(),
            refused: None,
            separable: true,
            forgets: false,
        }
    }

    /// The same for a capture without an end.
    pub fn endless(shards: usize, options: frame::Options) -> Self {
        Self { forgets: true, ..Self::new(shards, options) }
    }

    /// True if the connections so far have nothing to do with each other. Otherwise several analyses do not come to the
    /// result of a single one.
    pub fn is_separable(&self) -> bool {
        self.separable
    }

    /// Forgets the keys that were not seen since the last call: whoever uses one of them again may have another shard.
    /// To be called in intervals in which shards end what they do not hear of; happens by itself for want of room, if
    /// the capture has no end.
    pub fn age(&mut self) {
        self.old = core::mem::take(&mut self.keys);
        // what is found at once is not looked up among the keys
        self.recent.fill(((0, 0), 0));
        self.requests.clear();
        for (frames, keys) in &mut self.load {
            // what was long ago counts less
            (*frames, *keys) = (*frames / 2, *keys / 2);
        }
    }

    /// IP datagrams that were given up because there were too many.
    pub fn dropped(&self) -> u64 {
        self.datagrams.dropped
    }

    /// The greatest share of the frames so far that one shard has.
    pub fn greatest_share(&self) -> f64 {
        let all: u64 = self.load.iter().map(|(frames, _)| frames).sum();
        let most = self.load.iter().map(|(frames, _)| *frames).max().unwrap_or(0);
        most as f64 / all.max(1) as f64
    }

    /// Destination of the next frame.
    #[inline]
    pub fn route(&mut self, meta: &FrameMeta, bytes: &[u8]) -> Route {
        if let Some(short) = look(meta.link_type, bytes) {
            let place = (short.0 ^ short.0 >> 32 ^ u64::from(short.1)).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56;
            let (known, shard) = self.recent[place as usize % RECENT];
            if known == short {
                let shard = usize::from(shard);
                self.load[shard].0 += 1;
                return Route { shard, datagram: None, pause: None };
            }
            let (route, key) = self.peel(meta, bytes);
            // a damaged frame does not tell where others of its addresses go
            if key != Key::Alone {
                self.recent[place as usize % RECENT] = (short, route.shard as u16);
            }
            return route;
        }
        self.peel(meta, bytes).0
    }

    #[inline(never)]
    fn peel(&mut self, meta: &FrameMeta, bytes: &[u8]) -> (Route, Key) {
        let packet = frame::decode(meta.link_type, bytes, meta.wire_len, &self.decode, &mut Off);
        let (key, datagram) = match &packet.body {
            Body::Fragment(fragment) => match self.datagrams.take(meta.number, packet.src, packet.dst, fragment) {
                Some(whole) => {
                    let inner = frame::decode_ip(&whole.bytes, &self.decode, &mut Off);
                    (self.key(&inner), Some(whole.bytes))
                }
                None => (Key::Alone, None),
            },
            Body::Pause(pause) => {
                // one that follows another ends it
                self.load[0].0 += 1;
                return (Route { pause: Some(*pause), ..Route::default() }, Key::Alone);
            }
            _ => (self.key(&packet), None),
        };
        (Route { shard: self.shard(key), datagram, pause: None }, key)
    }

    fn key(&mut self, packet: &Packet<'_>) -> Key {
        match &packet.body {
            Body::Ib(ib) => {
                let key = Key::hosts(packet.src, packet.dst);
                if ib.bth.dest_qp <= 1 || Opcode(ib.bth.opcode).row().is_some_and(|row| row.service == Service::Ud) {
                    self.management(packet, ib, key);
                }
                key
            }
            Body::Tcp(segment) => Key::ports((packet.src, segment.src_port), (packet.dst, segment.dst_port)),
            // a question to rpcbind and its answer
            Body::Udp(from, to, _) if *from == rpcbind::PORT || *to == rpcbind::PORT => {
                Key::ports((packet.src, *from), (packet.dst, *to))
            }
            Body::Udp(..) | Body::Pause(_) | Body::Fragment(_) | Body::Unreachable(_) | Body::Other(_) => Key::Alone,
        }
    }

    /// A request is found again by its client and the client's id alone: no other pair of hosts may use the same.
    #[cold]
    fn management(&mut self, packet: &Packet<'_>, ib: &IbPacket<'_>, key: Key) {
        let Ok((_, Some(message))) = cm::parse_mad(ib.payload, &mut Off) else { return };
        let (local, remote) = message.comm_ids();
        let named = [local.map(|id| (packet.src, id)), remote.map(|id| (packet.dst, id))];
        for client in named.into_iter().flatten() {
            self.separable &= self.requests.get(&client).is_none_or(|known| *known == key);
        }
        if let CmMessage::Reject(_) = &message {
            // whether a later connection replaced all refused ones is decided over all hosts together
            self.separable &= *self.refused.get_or_insert(key) == key;
        }
        if let CmMessage::Request(request) = &message {
            self.separable &= self.requests.len() + 1 < REQUESTS_MAX;
            if self.requests.len() < REQUESTS_MAX {
                self.requests.insert((packet.src, request.local_comm_id), key);
            }
        }
    }

    /// The shard that has a key; a new key goes to the shard with the least load.
    fn shard(&mut self, key: Key) -> usize {
        let known = if key == Key::Alone { None } else { self.known(key).map(usize::from) };
        let shard = known.unwrap_or_else(|| {
            let least =
                self.load.iter().enumerate().min_by_key(|(_, (frames, keys))| (frames + 64 * u64::from(*keys), *keys));
            let shard = least.map_or(0, |(shard, _)| shard);
            if key != Key::Alone {
                if self.forgets && self.keys.len() >= KEYS_MAX {
                    self.age();
                }
                self.keys.insert(key, shard as u16);
                self.separable &= self.keys.len() < KEYS_MAX;
                self.load[shard].1 += 1;
            }
            shard
        });
        self.load[shard].0 += 1;
        shard
    }

    fn known(&mut self, key: Key) -> Option<u16> {
        if let Some(shard) = self.keys.get(&key) {
            return Some(*shard);
        }
        let shard = self.old.remove(&key)?;
        self.keys.insert(key, shard);
        Some(shard)
    }
}

/// The key of a RoCEv2 packet of a connection or of a TCP segment in IPv4 over Ethernet, at most one VLAN tag in front
/// of it. `None` for all else, and if the frame has to be decoded.
#[inline]
fn look(link_type: LinkType, bytes: &[u8]) -> Option<Short> {
    const IPV4: [u8; 2] = [0x08, 0x00];
    const VLAN: [u8; 2] = [0x81, 0x00];
    if link_type != LinkType::ETHERNET {
        return None;
    }
    let mut ip = bytes.get(14..)?;
    match *bytes.get(12..14)?.first_chunk::<2>()? {
        IPV4 => {}
        VLAN if *bytes.get(16..18)?.first_chunk::<2>()? == IPV4 => ip = bytes.get(18..)?,
        _ => return None,
    }
    // the header, the ports, and of RoCEv2 the fields up to the receiver's queue pair
    let head = ip.first_chunk::<36>()?;
    let is_whole = u16::from_be_bytes([head[6], head[7]]) & 0x3fff == 0;
    if head[0] != 0x45 || !is_whole {
        return None;
    }
    let source = u32::from_be_bytes([head[12], head[13], head[14], head[15]]);
    let target = u32::from_be_bytes([head[16], head[17], head[18], head[19]]);
    let (from, to) = (u16::from_be_bytes([head[20], head[21]]), u16::from_be_bytes([head[22], head[23]]));
    let wide = |a: u32, b: u32| u64::from(a) << 32 | u64::from(b);
    match head[9] {
        17 if to == udp::ROCE_V2 => {
            let queue_pair = u32::from_be_bytes([0, head[33], head[34], head[35]]);
            // no segment has these ports
            (queue_pair > 1).then_some((wide(source.min(target), source.max(target)), 0))
        }
        6 if from != 0 && to != 0 => {
            let (low, high) = if (source, from) <= (target, to) {
                ((source, from), (target, to))
            } else {
                ((target, to), (source, from))
            };
            Some((wide(low.0, high.0), u32::from(low.1) << 16 | u32::from(high.1)))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rdmascope_dissector::wire;
    use rdmascope_dissector::wire::ib::bth::Bth;
    use rdmascope_dissector::wire::ib::cm::{self, Attribute};
    use rdmascope_dissector::wire::ib::ext::deth_bytes;
    use rdmascope_dissector::wire::ib::mad::{QP1, QP1_KEY};
    use rdmascope_dissector::wire::ip::{TCP, UDP};

    /// An Ethernet frame with IPv4 from one host of 10.0.0.0/24 to another; `fragment` is the field of flags and
    /// offset.
    fn ipv4((from, to): (u8, u8), protocol: u8, fragment: u16, payload: &[u8]) -> Vec<u8> {
        let mut out = [&[2, 0, 0, 0, 0, to, 2, 0, 0, 0, 0, from, 8, 0][..], &[0x45, 0]].concat();
        out.extend((20 + payload.len() as u16).to_be_bytes());
        out.extend([0, 9]);
        out.extend(fragment.to_be_bytes());
        out.extend([64, protocol, 0, 0, 10, 0, 0, from, 10, 0, 0, to]);
        out.extend_from_slice(payload);
        out
    }

    fn udp(from: u16, to: u16, payload: &[u8]) -> Vec<u8> {
        let mut out = [from.to_be_bytes(), to.to_be_bytes(), (8 + payload.len() as u16).to_be_bytes(), [0; 2]].concat();
        out.extend_from_slice(payload);
        out
    }

    /// A RoCEv2 packet to a queue pair, in UDP.
    fn packet(opcode: Opcode, dest_qp: u32, payload: &[u8]) -> Vec<u8> {
        let mut out = Vec::new();
        Bth::new(opcode, dest_qp, 1).emit(&mut out);
        out.extend_from_slice(payload);
        out.extend([0; 4]);
        udp(0xc000, wire::udp::ROCE_V2, &out)
    }

    fn roce(hosts: (u8, u8), dest_qp: u32) -> Vec<u8> {
        ipv4(hosts, UDP, 0, &packet(Opcode::RC_SEND_ONLY, dest_qp, b"data"))
    }

    fn tcp(hosts: (u8, u8), (from, to): (u16, u16)) -> Vec<u8> {
        let mut segment = [from.to_be_bytes(), to.to_be_bytes()].concat();
        segment.extend([0, 0, 0, 1, 0, 0, 0, 1, 0x50, 0x10, 1, 0, 0, 0, 0, 0]);
        ipv4(hosts, TCP, 0, &segment)
    }

    /// A message of connection management with two communication ids.
    fn management(hosts: (u8, u8), attribute: Attribute, local: u32, remote: u32) -> Vec<u8> {
        let ids = [local.to_be_bytes(), remote.to_be_bytes()].concat();
        let payload = [&deth_bytes(QP1_KEY, QP1)[..], &cm::datagram(attribute, 1, &ids)].concat();
        ipv4(hosts, UDP, 0, &packet(Opcode::UD_SEND_ONLY, QP1, &payload))
    }

    fn router(shards: usize) -> Router {
        Router::new(shards, frame::Options::default())
    }

    fn route(router: &mut Router, bytes: &[u8]) -> Route {
        let meta = FrameMeta {
            number: 1,
            time_ns: 0,
            link_type: LinkType::ETHERNET,
            wire_len: bytes.len() as u32,
            interface: 0,
        };
        router.route(&meta, bytes)
    }

    /// The shard of each frame.
    fn shards(router: &mut Router, frames: &[Vec<u8>]) -> Vec<usize> {
        frames.iter().map(|bytes| route(router, bytes).shard).collect()
    }

    #[test]
    fn queue_pairs_of_two_hosts_stay_together_in_both_directions() {
        let mut router = router(4);
        let frames =
            [roce((1, 2), 0x11), roce((3, 4), 0x11), roce((2, 1), 0x12), roce((1, 2), 0x13), roce((4, 3), 0x14)];
        let placed = shards(&mut router, &frames);
        assert_eq!((placed[0], placed[0], placed[1]), (placed[2], placed[3], placed[4]));
        assert_ne!(placed[0], placed[1], "each pair of hosts has a shard of its own while there are free ones");
        assert_eq!(shards(&mut router, &frames), placed, "and keeps it");
    }

    #[test]
    fn tcp_connections_of_two_hosts_are_spread_by_port() {
        let mut router = router(4);
        let ports = [(40_001, 445), (40_002, 445), (40_003, 445), (40_004, 445)];
        let there = shards(&mut router, &ports.map(|ports| tcp((1, 2), ports)));
        assert_eq!(there, [0, 1, 2, 3]);
        let back = shards(&mut router, &ports.map(|(client, server)| tcp((2, 1), (server, client))));
        assert_eq!(back, there);
    }

    /// A frame goes where it would go if it was decoded, whether the cheap look knows it or not.
    #[test]
    fn the_cheap_look_finds_the_shard_that_decoding_finds() {
        let frames: Vec<Vec<u8>> = (1..=40)
            .flat_map(|n| {
                [
                    roce((n, n + 1), 0x11),
                    tcp((n, n + 1), (40_000, 445)),
                    roce((n + 1, n), 0x12),
                    tcp((n + 1, n), (445, 40_000)),
                ]
            })
            .collect();
        let (mut quick, mut slow) = (router(3), router(3));
        let meta = |bytes: &[u8]| {
            let wire_len = bytes.len() as u32;
            FrameMeta { number: 1, time_ns: 0, link_type: LinkType::ETHERNET, wire_len, interface: 0 }
        };
        for bytes in frames.iter().chain(&frames) {
            let decoded = slow.peel(&meta(bytes), bytes).0;
            assert_eq!(quick.route(&meta(bytes), bytes), decoded);
            // the same frame with a VLAN tag
            let tagged = [&bytes[..12], &[0x81, 0, 0, 5], &bytes[12..]].concat();
            assert_eq!(slow.peel(&meta(&tagged), &tagged).0, decoded);
            assert_eq!(quick.route(&meta(&tagged), &tagged), decoded);
        }
    }

    #[test]
    fn the_last_fragment_brings_the_datagram_and_goes_to_its_connection() {
        let mut router = router(4);
        let connection = shards(&mut router, &[roce((9, 8), 0x11), roce((1, 2), 0x11)])[1];
        let whole = packet(Opcode::RC_SEND_ONLY, 0x11, &[7; 100]);
        let (head, tail) = whole.split_at(64);
        let first = route(&mut router, &ipv4((1, 2), UDP, 0x2000, head));
        assert_eq!(first.datagram, None);
        let last = route(&mut router, &ipv4((1, 2), UDP, 64 / 8, tail));
        assert_eq!(last.shard, connection);
        assert_eq!(last.datagram.as_deref().map(|bytes| &bytes[20..]), Some(&whole[..]));
        assert_eq!(router.dropped(), 0);
    }

    #[test]
    fn frames_of_no_connection_go_where_the_least_is() {
        let mut router = router(2);
        let strange = || ipv4((1, 2), UDP, 0, &udp(5000, 5001, b"?"));
        assert_eq!(shards(&mut router, &[strange(), strange(), strange(), strange()]), [0, 1, 0, 1]);
        assert_eq!(router.greatest_share(), 0.5);
        // a question to rpcbind and its answer stay together
        let question = ipv4((1, 2), UDP, 0, &udp(900, 111, b"?"));
        let answer = ipv4((2, 1), UDP, 0, &udp(111, 900, b"!"));
        let placed = shards(&mut router, &[question, strange(), strange(), answer]);
        assert_eq!(placed[0], placed[3]);
        assert!(router.is_separable());
    }

    #[test]
    fn an_id_of_two_pairs_of_hosts_makes_them_inseparable() {
        let (request, reject) = (Attribute::CONNECT_REQUEST, Attribute::CONNECT_REJECT);
        let mut router = router(2);
        shards(
            &mut router,
            &[
                management((1, 2), request, 70, 0),
                management((3, 2), request, 70, 0),
                management((1, 2), request, 71, 0),
            ],
        );
        assert!(router.is_separable(), "ids belong to the client that gave them");
        shards(&mut router, &[management((1, 4), request, 70, 0)]);
        assert!(!router.is_separable(), "the same client and id, of another server");

        // one refused: its hosts decide. Of two pairs, all have to be known together
        let mut router = self::router(2);
        shards(&mut router, &[management((2, 1), reject, 0, 70), management((2, 1), reject, 0, 71)]);
        assert!(router.is_separable());
        shards(&mut router, &[management((2, 3), reject, 0, 72)]);
        assert!(!router.is_separable());
    }

    #[test]
    fn keys_that_are_not_seen_for_long_are_forgotten() {
        let mut router = router(2);
        let pairs = [roce((1, 2), 7), roce((3, 4), 7), roce((5, 6), 7)];
        let placed = shards(&mut router, &pairs);
        for _ in 0..3 {
            router.age();
            // the first pair goes on, in the other direction too
            assert_eq!(shards(&mut router, &[roce((1, 2), 7), roce((2, 1), 8)]), [placed[0]; 2]);
        }
        assert_eq!((router.keys.len(), router.old.len()), (1, 0));
        assert!(router.is_separable());
        let mut endless = Router::endless(2, frame::Options::default());
        let pair = |n: u16| ((Addr::V4([10, 0, 0, 1]), n), (Addr::V4([10, 0, 0, 2]), 1));
        for round in 0..3 {
            for n in 0..=u16::MAX {
                let ((a, from), (b, _)) = pair(n);
                endless.shard(Key::ports((a, from), (b, round)));
            }
        }
        assert!(endless.keys.len() <= KEYS_MAX && endless.old.len() <= KEYS_MAX, "there is an end to it");
    }

    #[test]
    fn frames_that_end_anywhere_have_a_shard() {
        let mut router = router(3);
        for bytes in [roce((1, 2), 0x11), tcp((1, 2), (1, 2)), management((1, 2), Attribute::CONNECT_REQUEST, 1, 2)] {
            for length in 0..bytes.len() {
                assert!(route(&mut router, &bytes[..length]).shard < 3);
            }
        }
        assert_eq!(self::router(0).load.len(), 1, "there is always one");
    }

    #[test]
    fn a_damaged_frame_does_not_send_others_elsewhere() {
        let mut router = Router::new(2, frame::Options::default());
        let mut number = 0;
        let mut shard = |bytes: &[u8]| {
            number += 1;
            let (link_type, wire_len) = (LinkType::ETHERNET, bytes.len() as u32);
            router.route(&FrameMeta { number, time_ns: 0, link_type, wire_len, interface: 0 }, bytes).shard
        };
        let first = shard(&roce((1, 2), 7));
        let mut damaged = roce((3, 4), 7);
        // a length beyond the frame, and a checksum that is wrong
        (damaged[16], damaged[24]) = (9, 1);
        shard(&damaged);
        for _ in 0..200 {
            shard(&roce((5, 6), 7));
        }
        assert_eq!(shard(&roce((3, 4), 7)), first, "that with less to do");
        // behind two VLAN tags the addresses are not found at a glance
        let mut tagged = roce((3, 4), 8);
        tagged.splice(12..12, [0x81, 0, 0, 5, 0x81, 0, 0, 6]);
        assert_eq!(shard(&tagged), first);
    }
}
