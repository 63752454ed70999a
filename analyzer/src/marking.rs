//! Marks that the packets of a connection carry below its transport, and answers to congestion: facts by direction,
//! which `audit` compares.
//!
//! ```text
//!   packet ─▶ Direction: DSCP, PCP, ECN, TTL, UDP source port, P_Key, service level, virtual lane, path MTU, largest frame
//!   mark   ─▶ Answers: how long until the receiver sends a CNP
//!   CNP    ─▶ Notices: in which class, how far apart;  Pace: the rate of the sender before, and while they come
//!   SYN    ─▶ TcpFacts: MSS, window scale, ECN
//! ```
//!
//! RFC 2474 (DSCP), RFC 3168 (ECN), IEEE 802.1Q (PCP), InfiniBand volume 1, 7.7 and annex A17 (RoCEv2), RFC 7323
//! (window scale).

use crate::op::{At, End};
use crate::stored::{Reader, Stored, Writer, stored, stored_enum};
use rdmascope_dissector::frame::{Addr, Carrier, IbPacket, Packet, Segment};
use rdmascope_dissector::wire::ib::bth::{Opcode, Part};
use rdmascope_dissector::wire::tcp::flags::{CWR, ECE, RST, SYN};

/// ns within which a receiver must have answered a mark.
pub const CNP_TIME: i64 = 10_000_000;
/// ns between CNPs below which they are not paced: the least that adapters are set to.
pub const CNP_PACE: i64 = 4_000;
/// log2 of the ns of a bucket of the rate.
const BUCKET_SHIFT: u32 = 20;
/// Buckets of the rate that are kept: a power of two.
const BUCKETS: usize = 16;
/// ns without a CNP after which the next one begins a new burst.
const QUIET: i64 = 50_000_000;
/// CNPs of a burst, and ns that it lasts, from which a sender must have slowed down.
const BURST: (u32, i64) = (10, 20_000_000);

/// Values of a small field and their counts; those beyond the first `N` are added up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Values<const N: usize> {
    rows: [(u16, u64); N],
    length: usize,
    others: u64,
}

impl<const N: usize> Default for Values<N> {
    fn default() -> Self {
        Self { rows: [(0, 0); N], length: 0, others: 0 }
    }
}

impl<const N: usize> Values<N> {
    /// Counts a value `n` times.
    pub fn add(&mut self, value: u16, n: u64) {
        for row in &mut self.rows[..self.length] {
            if row.0 == value {
                row.1 += n;
                return;
            }
        }
        match self.rows.get_mut(self.length) {
            Some(row) => {
                *row = (value, n);
                self.length += 1;
            }
            None => self.others += n,
        }
    }

    /// Each value and its count, in the order in which they came.
    pub fn rows(&self) -> &[(u16, u64)] {
        &self.rows[..self.length]
    }

    /// Number of packets with other values.
    pub fn others(&self) -> u64 {
        self.others
    }

    /// Number of packets with any value.
    pub fn count(&self) -> u64 {
        self.others + self.rows().iter().map(|(_, n)| n).sum::<u64>()
    }

    /// The value that nine of ten have, if there is one.
    pub fn usual(&self) -> Option<u16> {
        let all = self.count();
        self.rows().iter().find(|(_, n)| *n > 0 && n * 10 >= all * 9).map(|(value, _)| *value)
    }

    fn join(&mut self, other: &Self) {
        other.rows().iter().for_each(|(value, n)| self.add(*value, *n));
        self.others += other.others;
    }
}

/// Packets after which a time to live that none of them had is strange.
const SAME_TTL: u64 = 8;

/// Values of the headers of a packet below its transport, in one word, so that a packet with the same marks as the one
/// before it is recognized at little cost.
///
/// | bits | |
/// | --- | --- |
/// | 0–5, 6–7 | differentiated services code point, ECN field |
/// | 8–15 | time to live |
/// | 16–19 | priority of the VLAN tag, and 1; 0 without one |
/// | 20–28 | service level, virtual lane, and whether there are any: of native InfiniBand |
/// | 29, 32–47 | partition key, of InfiniBand and RoCE |
/// | 30, 48–63 | UDP source port, of RoCEv2 |
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Marking(u64);

impl Marking {
    const HAS_LANE: u64 = 1 << 28;
    const HAS_P_KEY: u64 = 1 << 29;
    const HAS_PORT: u64 = 1 << 30;

    /// Of a packet; `ib` if it is one of InfiniBand or RoCE.
    #[inline]
    fn of(packet: &Packet<'_>, ib: Option<&IbPacket<'_>>) -> Self {
        let priority = packet.priority.map_or(0, |priority| u64::from(priority & 7) + 1);
        let marking = u64::from(packet.dscp & 0x3f)
            | u64::from(packet.ecn & 3) << 6
            | u64::from(packet.ttl) << 8
            | priority << 16;
        let Some(ib) = ib else { return Self(marking) };
        let marking = marking | Self::HAS_P_KEY | u64::from(ib.bth.p_key) << 32;
        Self(match ib.carrier {
            Carrier::RoceV2 { src_port } => marking | Self::HAS_PORT | u64::from(src_port) << 48,
            Carrier::Infiniband => {
                marking
                    | Self::HAS_LANE
                    | u64::from(packet.service_level & 0xf) << 20
                    | u64::from(packet.virtual_lane & 0xf) << 24
            }
            Carrier::RoceV1 => marking,
        })
    }

    const fn dscp(self) -> u16 {
        (self.0 & 0x3f) as u16
    }

    const fn ecn(self) -> usize {
        (self.0 >> 6 & 3) as usize
    }

    const fn ttl(self) -> u16 {
        (self.0 >> 8 & 0xff) as u16
    }

    fn priority(self) -> Option<u16> {
        ((self.0 >> 16 & 0xf) as u16).checked_sub(1)
    }

    /// Service level and virtual lane.
    fn lane(self) -> Option<(u16, u16)> {
        (self.0 & Self::HAS_LANE != 0).then_some(((self.0 >> 20 & 0xf) as u16, (self.0 >> 24 & 0xf) as u16))
    }

    fn p_key(self) -> Option<u16> {
        (self.0 & Self::HAS_P_KEY != 0).then_some((self.0 >> 32) as u16)
    }

    fn port(self) -> Option<u16> {
        (self.0 & Self::HAS_PORT != 0).then_some((self.0 >> 48) as u16)
    }
}

/// Kind of GID by which a host is addressed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Gid {
    /// RoCE version 1: Ethertype 0x8915.
    RoceV1,
    /// RoCE version 2 over IPv4.
    RoceV2Ipv4,
    /// RoCE version 2 over IPv6.
    RoceV2Ipv6,
    /// Native InfiniBand.
    Infiniband,
}

impl Gid {
    /// Kind of GID that a packet uses.
    pub const fn of(packet: &Packet<'_>, ib: &IbPacket<'_>) -> Self {
        match (ib.carrier, packet.src) {
            (Carrier::RoceV1, _) => Self::RoceV1,
            (Carrier::Infiniband, _) => Self::Infiniband,
            (Carrier::RoceV2 { .. }, Addr::V6(_)) => Self::RoceV2Ipv6,
            (Carrier::RoceV2 { .. }, _) => Self::RoceV2Ipv4,
        }
    }

    /// Name in JSON.
    pub const fn key(self) -> &'static str {
        match self {
            Self::RoceV1 => "roce_v1",
            Self::RoceV2Ipv4 => "roce_v2_ipv4",
            Self::RoceV2Ipv6 => "roce_v2_ipv6",
            Self::Infiniband => "infiniband",
        }
    }

    /// Name for people.
    pub const fn name(self) -> &'static str {
        match self {
            Self::RoceV1 => "RoCE v1",
            Self::RoceV2Ipv4 => "RoCE v2 (IPv4)",
            Self::RoceV2Ipv6 => "RoCE v2 (IPv6)",
            Self::Infiniband => "InfiniBand",
        }
    }
}

/// Times from marks to the CNPs that answer them. A mark counts from the first that is not answered yet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Answers {
    /// Number of marks that were answered.
    pub count: u64,
    /// Number of answers that took longer than [`CNP_TIME`].
    pub late: u64,
    /// The longest time, in ns.
    pub longest: i64,
    /// All together, in ns.
    pub sum: i64,
    /// The first mark of those that waited too long.
    pub first_late: Option<At>,
    /// The first mark since the last CNP.
    pub open: Option<At>,
}

impl Answers {
    #[inline]
    fn marked(&mut self, at: At) {
        self.open.get_or_insert(at);
    }

    /// The mean time, in ns; `None` if there was none.
    pub fn mean(&self) -> Option<i64> {
        i64::try_from(self.count).ok().filter(|n| *n > 0).map(|n| self.sum / n)
    }

    fn answered(&mut self, at: At) {
        let Some(since) = self.open.take() else { return };
        let took = at.since(since).max(0);
        self.count += 1;
        self.longest = self.longest.max(took);
        self.sum = self.sum.saturating_add(took);
        if took > CNP_TIME {
            self.late += 1;
            self.first_late.get_or_insert(since);
        }
    }
}

/// The CNPs of one end.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Notices {
    /// Number of CNPs.
    pub count: u64,
    /// DSCP values of the CNPs.
    pub dscp: Values<4>,
    /// Priorities of their VLAN tags.
    pub priority: Values<2>,
    /// The first and the last of them.
    pub span: Option<(At, At)>,
    /// The shortest time between two, in ns.
    pub shortest: Option<i64>,
    /// Number of those that followed the one before within [`CNP_PACE`].
    pub close: u64,
}

impl Notices {
    fn add(&mut self, at: At, packet: &Packet<'_>) {
        self.count += 1;
        self.dscp.add(packet.dscp.into(), 1);
        if let Some(priority) = packet.priority {
            self.priority.add(priority.into(), 1);
        }
        let first = self.span.map_or(at, |(first, last)| {
            let apart = at.since(last).max(0);
            self.shortest = Some(self.shortest.map_or(apart, |least| least.min(apart)));
            self.close += u64::from(apart < CNP_PACE);
            first
        });
        self.span = Some((first, at));
    }

    fn join(&mut self, other: &Self) {
        self.count += other.count;
        self.dscp.join(&other.dscp);
        self.priority.join(&other.priority);
        self.span = joined(self.span, other.span);
        self.shortest = self.shortest.into_iter().chain(other.shortest).min();
        self.close += other.close;
    }

    /// The mean time between two, in ns.
    pub fn mean(&self) -> Option<i64> {
        let (first, last) = self.span?;
        let between = i64::try_from(self.count.checked_sub(1)?).unwrap_or(i64::MAX);
        last.since(first).checked_div(between)
    }
}

fn joined(a: Option<(At, At)>, b: Option<(At, At)>) -> Option<(At, At)> {
    match (a, b) {
        (Some((a, b)), Some((c, d))) => Some((a.min(c), b.max(d))),
        (a, b) => a.or(b),
    }
}

/// The rate of a sender before and while it received CNPs, in bytes per second.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reaction {
    /// The first CNP.
    pub at: At,
    /// Number of CNPs.
    pub cnps: u32,
    /// The rate before them.
    pub before: u64,
    /// The rate while they came.
    pub after: u64,
    /// True if it sent all the time before, so that both can be compared.
    pub steady: bool,
}

impl Reaction {
    /// True if it went on as fast as before.
    pub const fn is_ignored(&self) -> bool {
        self.steady && self.after >= self.before
    }
}

/// Rate at which an end sends.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Pace {
    /// Bytes by bucket of time, the last ones.
    recent: [u64; BUCKETS],
    /// Number of the last bucket.
    bucket: i64,
    total: u64,
    burst: Option<Burst>,
    worst: Option<Reaction>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Burst {
    since: At,
    last: i64,
    count: u32,
    /// Bytes of the whole buckets before it, and the number of buckets that had some.
    before: u64,
    busy: u32,
    from: u64,
    to: u64,
}

impl Pace {
    #[inline]
    fn sent(&mut self, time: i64, bytes: u32) {
        if time >> BUCKET_SHIFT > self.bucket {
            self.turn(time >> BUCKET_SHIFT);
        }
        self.recent[(self.bucket & (BUCKETS as i64 - 1)) as usize] += u64::from(bytes);
        self.total += u64::from(bytes);
    }

    fn turn(&mut self, bucket: i64) {
        let gone = bucket.saturating_sub(self.bucket).min(BUCKETS as i64);
        for step in 0..gone {
            self.recent[((bucket - step) & (BUCKETS as i64 - 1)) as usize] = 0;
        }
        self.bucket = bucket;
    }

    fn marked(&mut self, at: At) {
        if at.time >> BUCKET_SHIFT > self.bucket {
            self.turn(at.time >> BUCKET_SHIFT);
        }
        if let Some(burst) = self.burst.as_mut().filter(|b| at.time.saturating_sub(b.last) <= QUIET) {
            (burst.last, burst.to) = (at.time, self.total);
            burst.count = burst.count.saturating_add(1);
            return;
        }
        self.worst = self.reaction();
        // the bucket at hand is not over
        let current = (self.bucket & (BUCKETS as i64 - 1)) as usize;
        let whole = || self.recent.iter().enumerate().filter(|(place, _)| *place != current).map(|(_, bytes)| *bytes);
        let (before, busy) = (whole().sum(), whole().filter(|bytes| *bytes > 0).count() as u32);
        self.burst = Some(Burst { since: at, last: at.time, count: 1, before, busy, from: self.total, to: self.total });
    }

    /// Its reaction to the burst of CNPs that it answered worst.
    pub fn reaction(&self) -> Option<Reaction> {
        let last = self.burst.and_then(|b| {
            let span = b.last.saturating_sub(b.since.time);
            if b.count < BURST.0 || span < BURST.1 || b.before == 0 {
                return None;
            }
            let rate = |bytes: u64, ns: i64| (u128::from(bytes) * 1_000_000_000 / (ns.max(1) as u128)) as u64;
            let before = rate(b.before, (BUCKETS as i64 - 1) << BUCKET_SHIFT);
            let after = rate(b.to - b.from, span);
            Some(Reaction { at: b.since, cnps: b.count, before, after, steady: b.busy as usize >= BUCKETS - 3 })
        });
        match (self.worst, last) {
            (Some(worst), Some(last)) if last.is_ignored() && !worst.is_ignored() => Some(last),
            (worst, last) => worst.or(last),
        }
    }
}

/// TCP options and flags of one direction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TcpFacts {
    /// True if its SYN was captured.
    pub syn: bool,
    /// Maximum segment size that it announced, in bytes.
    pub mss: Option<u16>,
    /// Window scale that it announced.
    pub window_scale: Option<u8>,
    /// ECE and CWR flags of its SYN (0x40, 0x80).
    pub ecn_setup: u8,
    /// Segments with ECE, SYNs aside.
    pub ece: u64,
    /// Segments with CWR, SYNs aside.
    pub cwr: u64,
    /// The largest window that it announced, not scaled.
    pub window_most: u16,
    /// Bytes of payload.
    pub bytes: u64,
    /// Bytes of its largest frame of those that are one segment for sure: not longer than the peer's MSS.
    pub largest: u32,
}

/// Marks of one end's packets, and its messages about congestion.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Direction {
    /// The marking of the last packets, which are not counted below yet, and their number.
    last: (Marking, u64),
    /// Packets.
    pub packets: u64,
    /// Differentiated services code points.
    pub dscp: Values<4>,
    /// By ECN field: not capable, ECT(1), ECT(0), congestion experienced.
    pub ecn: [u64; 4],
    /// Priorities of the VLAN tag, of frames that have one.
    pub priority: Values<4>,
    /// Times to live at the capture point.
    pub ttl: Values<4>,
    /// UDP source ports (RoCEv2), by which switches choose a path.
    pub ports: Values<8>,
    /// Partition keys.
    pub p_keys: Values<2>,
    /// Service levels, of native InfiniBand.
    pub service_levels: Values<2>,
    /// Virtual lanes, of native InfiniBand.
    pub lanes: Values<2>,
    /// Bytes of its largest frame.
    pub largest: u32,
    /// Bytes of payload of the largest packet that is not the last of its message: the path MTU in use.
    pub path_mtu: Option<u16>,
    /// First and last packet that was marked congestion experienced.
    pub marked: Option<(At, At)>,
    /// Answers of its receiver to those marks.
    pub answers: Answers,
    /// CNPs that it sent.
    pub cnps: Notices,
    /// Rate at which it sends.
    pub pace: Pace,
    /// Options of the TCP handshake.
    pub tcp: TcpFacts,
}

impl Direction {
    #[inline(always)]
    fn packet(&mut self, at: At, length: u32, marking: Marking) {
        self.packets += 1;
        if self.last.0 == marking {
            self.last.1 += 1;
        } else {
            self.settle();
            self.last = (marking, 1);
        }
        self.largest = self.largest.max(length);
        self.pace.sent(at.time, length);
        if marking.ecn() == 3 {
            self.marked = Some((self.marked.map_or(at, |(first, _)| first), at));
            self.answers.marked(at);
        }
    }

    /// Counts the marking that the last packets had in common.
    #[inline(never)]
    fn settle(&mut self) {
        let (marking, n) = core::mem::take(&mut self.last);
        if n == 0 {
            return;
        }
        self.dscp.add(marking.dscp(), n);
        self.ecn[marking.ecn()] += n;
        self.ttl.add(marking.ttl(), n);
        if let Some(priority) = marking.priority() {
            self.priority.add(priority, n);
        }
        if let Some(port) = marking.port() {
            self.ports.add(port, n);
        }
        if let Some(p_key) = marking.p_key() {
            self.p_keys.add(p_key, n);
        }
        if let Some((level, lane)) = marking.lane() {
            self.service_levels.add(level, n);
            self.lanes.add(lane, n);
        }
    }

    /// The time to live that most of its packets so far had, if none had this one, and true if they were many.
    pub fn other_ttl(&self, ttl: u8) -> Option<(u16, bool)> {
        let mut so_far = *self;
        so_far.settle();
        let (rows, count) = (so_far.ttl.rows(), so_far.ttl.count());
        let is_new = so_far.ttl.others() == 0 && rows.iter().all(|(known, _)| *known != u16::from(ttl));
        let (usual, _) = rows.iter().filter(|_| is_new).max_by_key(|(_, n)| *n)?;
        Some((*usual, count >= SAME_TTL))
    }

    /// The class that its packets are in: by their VLAN tag, else the usual one for their DSCP (the upper three bits).
    /// True if by the tag.
    pub fn class(&self) -> Option<(u8, bool)> {
        match self.priority.usual() {
            Some(priority) if self.priority.count() * 10 >= self.packets * 9 => Some((priority as u8, true)),
            _ => self.dscp.usual().map(|dscp| ((dscp >> 3) as u8, false)),
        }
    }

    fn join(&mut self, other: &Self) {
        let mut other = *other;
        self.settle();
        other.settle();
        self.packets += other.packets;
        self.dscp.join(&other.dscp);
        self.ecn.iter_mut().zip(other.ecn).for_each(|(a, b)| *a += b);
        self.priority.join(&other.priority);
        self.ttl.join(&other.ttl);
        self.ports.join(&other.ports);
        self.p_keys.join(&other.p_keys);
        self.service_levels.join(&other.service_levels);
        self.lanes.join(&other.lanes);
        self.largest = self.largest.max(other.largest);
        self.path_mtu = self.path_mtu.max(other.path_mtu);
        self.marked = joined(self.marked, other.marked);
        self.cnps.join(&other.cnps);
        // marks and CNPs of the two halves were not held against each other
        self.answers = Answers::default();
        if self.pace.total == 0 {
            self.pace = other.pace;
        }
    }
}

/// Both directions of a connection: by end A and B, in a report by client and server.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Network {
    /// Each end's packets.
    pub directions: [Direction; 2],
    /// Kind of GID of its hosts; `None` on TCP.
    pub gid: Option<Gid>,
    /// Bytes of the path MTU that the client asked for (CM REQ).
    pub path_mtu_asked: Option<u16>,
}

impl Network {
    /// An InfiniBand or RoCE packet of `by`, in a frame of `length` bytes.
    #[inline(always)]
    pub fn packet(&mut self, at: At, by: End, length: u32, packet: &Packet<'_>, ib: &IbPacket<'_>) {
        let direction = &mut self.directions[by.index()];
        direction.packet(at, length, Marking::of(packet, Some(ib)));
        let is_full = |row: &rdmascope_dissector::wire::ib::bth::Row| matches!(row.part, Part::First | Part::Middle);
        let length = ib.payload_length as u16;
        if direction.path_mtu < Some(length)
            && ib.payload_length <= 4096
            && Opcode(ib.bth.opcode).row().is_some_and(is_full)
        {
            direction.path_mtu = Some(length);
        }
        if self.gid.is_none() {
            self.gid = Some(Gid::of(packet, ib));
        }
    }

    /// A TCP segment of `by`, in a frame of `length` bytes.
    #[inline]
    pub fn segment(&mut self, at: At, by: End, length: u32, packet: &Packet<'_>, segment: &Segment<'_>) {
        let peer_mss = self.directions[by.peer().index()].tcp.mss;
        let direction = &mut self.directions[by.index()];
        direction.packet(at, length, Marking::of(packet, None));
        let tcp = &mut direction.tcp;
        tcp.bytes += u64::from(segment.payload_length);
        if segment.flags & (SYN | RST | ECE | CWR) == 0 {
            tcp.window_most = tcp.window_most.max(segment.window);
            if length > tcp.largest && peer_mss.is_some_and(|mss| segment.payload_length <= mss.into()) {
                tcp.largest = length;
            }
            return;
        }
        if segment.flags & SYN != 0 {
            let ecn_setup = segment.flags & (ECE | CWR);
            *tcp = TcpFacts {
                syn: true,
                mss: segment.mss,
                window_scale: segment.window_scale,
                ecn_setup,
                ..TcpFacts::default()
            };
        } else {
            tcp.ece += u64::from(segment.flags & ECE != 0);
            tcp.cwr += u64::from(segment.flags & CWR != 0);
        }
    }

    /// `by` sent a CNP.
    pub fn notified(&mut self, at: At, by: End, packet: &Packet<'_>) {
        self.directions[by.index()].cnps.add(at, packet);
        let sender = &mut self.directions[by.peer().index()];
        sender.answers.answered(at);
        sender.pace.marked(at);
    }

    /// Both ends by role.
    pub(crate) fn summary(&self, client: End) -> Self {
        let mut summary = *self;
        if client == End::B {
            summary.directions.swap(0, 1);
        }
        summary.directions.iter_mut().for_each(Direction::settle);
        summary
    }

    /// Takes over the other half of a connection.
    pub(crate) fn adopt(&mut self, other: &Self, swapped: bool) {
        let [a, b] = &other.directions;
        let theirs = if swapped { [b, a] } else { [a, b] };
        self.directions.iter_mut().zip(theirs).for_each(|(mine, theirs)| mine.join(theirs));
        self.gid = self.gid.or(other.gid);
        self.path_mtu_asked = self.path_mtu_asked.or(other.path_mtu_asked);
    }

    /// The path MTU in use, in bytes: the observed one, else the one that the client asked for.
    pub fn path_mtu(&self) -> Option<u16> {
        self.directions.iter().filter_map(|d| d.path_mtu).max().or(self.path_mtu_asked)
    }

    /// True if both ends of TCP agreed on ECN (RFC 3168 6.1.1); `None` if their SYNs were not seen, or say more than
    /// that.
    pub fn tcp_ecn(&self) -> Option<bool> {
        let [client, server] = self.directions.map(|d| d.tcp);
        if !client.syn || !server.syn {
            return None;
        }
        match (client.ecn_setup, server.ecn_setup) {
            (0xc0, 0x40) => Some(true),
            (0xc0, 0x00) | (0x00, _) => Some(false),
            // accurate ECN (RFC 9768) says more in these bits
            _ => None,
        }
    }

    /// Most bytes that TCP's windows allow to be under way to each end, if both SYNs were seen: 65,535 if one did not
    /// scale.
    pub fn window_limit(&self) -> Option<u32> {
        let tcp = self.directions.map(|d| d.tcp);
        let scaled = tcp.iter().all(|t| t.window_scale.is_some());
        (tcp.iter().all(|t| t.syn) && !scaled).then_some(0xffff)
    }
}

impl<const N: usize> Stored for Values<N> {
    fn store(&self, out: &mut Writer) {
        self.rows.store(out);
        (self.length, self.others).store(out);
    }

    fn restore(from: &mut Reader<'_>) -> Option<Self> {
        let rows = Stored::restore(from)?;
        let (length, others) = Stored::restore(from)?;
        (length <= N).then_some(Self { rows, length, others })
    }
}

stored!(Marking { 0 });
stored_enum!(Gid { RoceV1, RoceV2Ipv4, RoceV2Ipv6, Infiniband });
stored!(Answers { count, late, longest, sum, first_late, open });
stored!(Notices { count, dscp, priority, span, shortest, close });
stored!(Reaction { at, cnps, before, after, steady });
stored!(Pace { recent, bucket, total, burst, worst });
stored!(Burst { since, last, count, before, busy, from, to });
stored!(TcpFacts { syn, mss, window_scale, ecn_setup, ece, cwr, window_most, bytes, largest });
stored!(Direction {
    last,
    packets,
    dscp,
    ecn,
    priority,
    ttl,
    ports,
    p_keys,
    service_levels,
    lanes,
    largest,
    path_mtu,
    marked,
    answers,
    cnps,
    pace,
    tcp
});
stored!(Network { directions, gid, path_mtu_asked });

#[cfg(test)]
mod tests {
    use super::*;

    const MS: i64 = 1 << BUCKET_SHIFT;

    fn at(time: i64) -> At {
        At { frame: 1, time }
    }

    #[test]
    fn a_time_to_live_is_strange_beside_many_others() {
        let strange = |before: &[u8], ttl: u8| {
            let mut direction = Direction::default();
            for ttl in before {
                direction.packet(At::default(), 60, Marking::of(&Packet { ttl: *ttl, ..Packet::default() }, None));
            }
            direction.other_ttl(ttl)
        };
        assert_eq!([strange(&[64; 8], 250), strange(&[64; 8], 64)], [Some((64, true)), None]);
        assert_eq!([strange(&[64; 7], 250), strange(&[], 250)], [Some((64, false)), None]);
        assert_eq!(strange(&[63, 64, 64, 64, 64, 64, 64, 64], 250), Some((64, true)), "its path changed");
        assert_eq!(strange(&[63, 64, 64, 64, 64, 64, 64, 64], 63), None);
    }

    #[test]
    fn values_beyond_the_room_are_counted() {
        let mut values = Values::<2>::default();
        [26, 26, 0, 48, 26].into_iter().for_each(|v| values.add(v, 1));
        assert_eq!((values.rows(), values.others(), values.usual()), (&[(26, 3), (0, 1)][..], 1, None));
        values.add(26, 30);
        assert_eq!(values.usual(), Some(26));
        assert_eq!(Values::<2>::default().usual(), None);
    }

    #[test]
    fn packets_alike_are_counted_together_and_none_is_forgotten() {
        let mut direction = Direction::default();
        let marking = |dscp: u64, ecn: u64| Marking(dscp | ecn << 6 | 64 << 8 | Marking::HAS_PORT | 0xc000 << 48);
        let of = marking(26, 2);
        assert_eq!(
            (of.dscp(), of.ecn(), of.ttl(), of.priority(), of.lane(), of.p_key(), of.port()),
            (26, 2, 64, None, None, None, Some(0xc000))
        );
        for (n, of) in [(5, marking(26, 2)), (2, marking(26, 3)), (1, marking(0, 2))] {
            (0..n).for_each(|_| direction.packet(at(0), 100, of));
        }
        let mut network = Network { directions: [direction, Direction::default()], ..Network::default() };
        let told = network.summary(End::B).directions[1];
        assert_eq!((told.packets, told.dscp.rows(), told.ecn), (8, &[(26, 7), (0, 1)][..], [0, 0, 6, 2]));
        let other = network;
        network.adopt(&other, false);
        assert_eq!(network.summary(End::A).directions[0].dscp.count(), 16);
    }

    #[test]
    fn marks_are_answered_in_time_or_late() {
        let mut answers = Answers::default();
        [0, 5].into_iter().for_each(|t| answers.marked(at(t)));
        answers.answered(at(50_000));
        assert_eq!((answers.count, answers.late, answers.longest, answers.open), (1, 0, 50_000, None));
        answers.answered(at(60_000));
        answers.marked(at(100_000));
        answers.answered(at(100_000 + CNP_TIME + 1));
        assert_eq!((answers.count, answers.late, answers.first_late), (2, 1, Some(at(100_000))));
    }

    /// A sender that receives CNPs, with `after` bytes per bucket from then on.
    fn pace(after: u32) -> Pace {
        let mut pace = Pace::default();
        for n in 0..20 {
            pace.sent(n * MS, 10_000);
        }
        for n in 20..60 {
            pace.marked(at(n * MS));
            pace.sent(n * MS, after);
        }
        pace
    }

    #[test]
    fn a_sender_that_slows_down_is_distinguished_from_one_that_does_not() {
        let reaction = pace(5_000).reaction().expect("it was told often enough");
        assert!(!reaction.is_ignored() && reaction.after < reaction.before, "{reaction:?}");
        let ignored = pace(12_000).reaction().filter(Reaction::is_ignored).expect("it went on");
        assert_eq!((ignored.cnps, ignored.before / 1_000_000, ignored.after / 1_000_000), (40, 9, 11));
        // a few CNPs say nothing
        let mut few = Pace::default();
        few.sent(0, 1000);
        (1..4).for_each(|n| few.marked(at(n * MS)));
        assert_eq!(few.reaction(), None);
        // one that had just begun cannot be compared
        let mut young = Pace::default();
        young.sent(19 * MS, 10_000);
        for n in 20..60 {
            young.marked(at(n * MS));
            young.sent(n * MS, 12_000);
        }
        assert!(young.reaction().is_some_and(|r| !r.is_ignored()));
        // nor does a clock that goes back do harm
        few.sent(i64::MIN, 1);
        few.marked(at(i64::MAX));
        few.marked(at(i64::MIN));
    }
}
