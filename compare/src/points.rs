//! Compares the same packets at two points: losses between them, changes on the way, delays, and the offset of the
//! clocks.
//!
//! Packets are matched by values that routers do not change: on RoCE queue pair, PSN, opcode and the invariant CRC,
//! which is end to end by design; on TCP sequence and acknowledgment number, flags and bytes. So addresses, VLANs and
//! tunnels may differ.

pub use crate::clock::{Clock, clock};
use crate::profile::Histogram;
use crate::schema::{list, object};
use rdmascope_analyzer::episodes::time::Owner;
use rdmascope_analyzer::exchange::Exchange;
use rdmascope_analyzer::finding::{Blame, Certainty, Rule, Severity};
use rdmascope_analyzer::report::{Report, Sink};
use rdmascope_analyzer::rules::Group;
use rdmascope_dissector::field::{Def, id_of};
use rdmascope_dissector::frame::{Addr, Body, IbPacket, Packet, Segment, Tunnel, TunnelKind};
use rdmascope_dissector::text::{Elapsed, Grouped, escaped};
use rdmascope_dissector::trace::{Trace, Value};
use serde_json::{Value as Json, json};
use std::cmp::Reverse;
use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::fmt::Write;
use std::hash::{DefaultHasher, Hash, Hasher};

/// Limit of packets of one capture that are compared.
pub const PACKETS_MAX: usize = 1 << 23;
/// Limit of frames listed for one kind of event.
const LISTED: usize = 100;
/// Limit of copies of one packet that are distinguished by their times.
const COPIES_MAX: usize = 32;
/// Limit of events kept for one direction.
const MARKS_MAX: usize = 1000;
/// Limit of segments compared with one that was split or joined.
const NEAR: usize = 64;
/// Limit of points of a delay over time.
const DELAYS_MAX: usize = 512;
/// Limit of requests reported individually: the slowest at the first point.
const SLOWEST: usize = 100;
/// Limit of these in the text.
const SLOWEST_SHOWN: usize = 5;
/// Time in ns at both ends of a capture in which a packet may be missing, because the other capture began later or
/// ended earlier.
const MARGIN: i64 = 1_000_000;

/// Values that a router may change, and values that identify the sender of a packet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Outside {
    src: Addr,
    dst: Addr,
    ports: (u16, u16),
    dscp: u8,
    ecn: u8,
    ttl: u8,
    vlan: Option<u16>,
    priority: u8,
    tunnel: Option<Tunnel>,
}

/// A packet at one point.
#[derive(Clone, Copy, Debug)]
struct Seen {
    key: u64,
    /// The same key without the bytes, if captures were cut.
    plain: u64,
    /// Its direction, by values that are the same at every point.
    way: u64,
    frame: u64,
    time: i64,
    /// Values that distinguish copies of it and that routers do not change: the IP identification, and the TCP
    /// timestamp.
    copy: (u16, u32),
    /// For a TCP segment with payload: stream offset and length.
    stretch: Option<(u32, u32)>,
    outside: Outside,
}

/// A request at one point. Times in ns.
#[derive(Clone, Copy, Debug)]
struct SeenRequest {
    frame: u64,
    id: u64,
    command: &'static str,
    /// Time from its first frame to the last one of its reply.
    latency: i64,
    /// The parts of it that the client and the server own.
    own: [i64; 2],
}

/// Findings of one rule about one side.
#[derive(Clone, Debug)]
struct Found {
    certainty: Certainty,
    /// All its frames; empty if they are more than a finding keeps.
    frames: Vec<u64>,
    /// Address of the side.
    address: Option<Addr>,
}

/// Observer for values that only fields give.
#[derive(Clone, Copy, Debug, Default)]
pub struct Hop {
    ttl: u8,
    priority: u8,
    id: u16,
    sent: u32,
}

impl Trace for Hop {
    const ON: bool = true;

    fn field(&mut self, def: Def, _: &[u8], _: usize, value: Value<'_>) {
        const TTL: u32 = id_of("ip.ttl");
        const HOPS: u32 = id_of("ipv6.hlim");
        const PRIORITY: u32 = id_of("vlan.priority");
        const ID: u32 = id_of("ip.id");
        const SENT: u32 = id_of("tcp.options.timestamp.tsval");
        if let Value::U(n) = value {
            match def.id {
                TTL | HOPS => self.ttl = n as u8,
                PRIORITY => self.priority = n as u8,
                ID => self.id = n as u16,
                SENT => self.sent = n as u32,
                _ => {}
            }
        }
    }

    fn open(&mut self, _: Def, _: &[u8]) {}

    fn close(&mut self, _: &[u8]) {}
}

/// The packets and requests of one capture.
#[derive(Debug, Default)]
pub struct Point {
    packets: Vec<Seen>,
    exchanges: Vec<SeenRequest>,
    findings: BTreeMap<(Rule, &'static str), Found>,
    span: Option<(i64, i64)>,
    /// True if the capture cut packets.
    is_cut: bool,
    /// Number of packets beyond [`PACKETS_MAX`].
    pub left_out: u64,
}

impl Sink for Point {
    fn exchange(&mut self, exchange: &Exchange) {
        if let (Some(latency), true) = (exchange.latency(), self.exchanges.len() < PACKETS_MAX) {
            self.exchanges.push(SeenRequest {
                frame: exchange.request.frame,
                id: exchange.message_id,
                command: exchange.command,
                latency,
                own: [Owner::Client, Owner::Server].map(|owner| exchange.time.of(owner)),
            });
        }
    }
}

fn hash(parts: impl Hash) -> u64 {
    let mut hasher = DefaultHasher::new();
    parts.hash(&mut hasher);
    hasher.finish()
}

impl Point {
    /// Adds a frame: its decoded packet, observed fields, and the last four captured bytes of an InfiniBand packet.
    pub fn packet(&mut self, frame: u64, time: i64, packet: &Packet<'_>, hop: &Hop, bytes: &[u8]) {
        self.span = Some(self.span.map_or((time, time), |(first, last)| (first.min(time), last.max(time))));
        self.is_cut |= packet.cut > 0;
        match &packet.body {
            Body::Ib(first) => {
                // packets that one point captured before they were segmented are separate ones at the other point
                for ib in std::iter::once(*first).chain(first.joined(packet.cut)) {
                    self.seen((frame, time), packet, hop, ib_keys(&ib, bytes), hash(("ib", ib.bth.dest_qp)));
                }
            }
            Body::Tcp(segment) => self.seen((frame, time), packet, hop, tcp_keys(segment), hash("tcp")),
            _ => {}
        }
    }

    fn seen(&mut self, (frame, time): (u64, i64), packet: &Packet<'_>, hop: &Hop, [key, plain]: [u64; 2], way: u64) {
        let (ports, stretch) = match &packet.body {
            Body::Tcp(segment) => {
                let stretch = Some((segment.seq, segment.payload_length)).filter(|(_, length)| *length > 0);
                ((segment.src_port, segment.dst_port), stretch)
            }
            _ => ((0, 0), None),
        };
        if self.packets.len() >= PACKETS_MAX {
            self.left_out += 1;
            return;
        }
        let outside = Outside {
            src: packet.src,
            dst: packet.dst,
            ports,
            dscp: packet.dscp,
            ecn: packet.ecn,
            ttl: hop.ttl,
            vlan: packet.vlan,
            priority: hop.priority,
            tunnel: packet.tunnel,
        };
        self.packets.push(Seen { key, plain, way, frame, time, copy: (hop.id, hop.sent), stretch, outside });
    }

    /// Adds the findings of its analysis.
    pub fn findings(&mut self, report: &Report) {
        for finding in report.findings.iter() {
            let side = match finding.by {
                Blame::Client => Some(0),
                Blame::Server => Some(1),
                _ => None,
            };
            let connection = finding.connection.and_then(|id| report.connections.iter().find(|c| c.id == id));
            let address = side.zip(connection).map(|(side, c)| c.peers[side].address);
            let frames = if finding.frames.omitted() > 0 { Vec::new() } else { finding.frames.to_vec() };
            match self.findings.entry((finding.rule, finding.by.name())) {
                Entry::Vacant(place) => _ = place.insert(Found { certainty: finding.certainty, frames, address }),
                Entry::Occupied(mut place) => {
                    let known = place.get_mut();
                    known.certainty = known.certainty.max(finding.certainty);
                    if known.frames.is_empty() || frames.is_empty() {
                        known.frames.clear();
                    } else {
                        known.frames.extend(frames);
                    }
                    if known.address != address {
                        known.address = None;
                    }
                }
            }
        }
    }
}

fn ib_keys(ib: &IbPacket<'_>, bytes: &[u8]) -> [u64; 2] {
    // the invariant CRC follows the payload and its padding
    let crc = ib.payload.as_ptr().addr().checked_sub(bytes.as_ptr().addr()).and_then(|at| {
        let at = at + ib.payload.len() + usize::from(ib.bth.padcnt());
        bytes.get(at..)?.first_chunk::<4>().copied()
    });
    let plain = hash((ib.bth.dest_qp, ib.bth.psn, ib.bth.opcode));
    [hash((plain, crc)), plain]
}

fn tcp_keys(s: &Segment<'_>) -> [u64; 2] {
    let plain = hash((s.seq, s.ack, s.flags, s.window, s.payload_length));
    [hash((plain, s.payload)), plain]
}

/// Results for one direction.
#[derive(Clone, Debug, Default)]
pub struct DirectionResult {
    /// Packets at both points.
    pub matched: u64,
    /// Packets captured where they were sent but not where they should arrive: number, and their first frames.
    pub lost: (u64, Vec<u64>),
    /// Packets captured only where they should arrive: the other capture missed them.
    pub unseen: (u64, Vec<u64>),
    /// Packets that reached the second point and were retransmitted: lost behind it, or their acknowledgment was lost.
    pub sent_again: (u64, Vec<u64>),
    /// Packets that overtook others between the points.
    pub reordered: (u64, Vec<u64>),
    /// One-way delay, in ns.
    pub delay: Histogram,
    /// Delay over time by the first clock, thinned out.
    pub delays: Vec<(i64, i64)>,
    /// Losses, retransmissions and overtaken packets: time by the first clock, kind, and frame.
    pub marks: Vec<(i64, Mark, u64)>,
}

/// Event of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Mark {
    /// Lost between the points.
    Lost,
    /// It reached the second point and was retransmitted.
    SentAgain,
    /// Later packets overtook it.
    Overtaken,
}

/// Combined result of two analyses about a finding.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Agreement {
    /// Both captures have the finding.
    Both,
    /// Both have it, and only this one (0 or 1) is certain: so it is certain.
    Certain(usize),
    /// Only this one has it, and the other does not refute it: only this one could see it, or it is certain.
    Only(usize),
    /// Only this one had it, under the assumption that nothing was missed; the other one has the same frames and the
    /// missed ones, and no such finding.
    Withdrawn(usize),
}

impl Agreement {
    /// Its name in JSON.
    pub const fn key(self) -> &'static str {
        match self {
            Self::Both => "both",
            Self::Certain(_) => "certain",
            Self::Only(_) => "only",
            Self::Withdrawn(_) => "withdrawn",
        }
    }
}

/// A finding of one capture or of both.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Joint {
    /// The rule.
    pub rule: Rule,
    /// The side to blame.
    pub by: &'static str,
    /// Certainty in each of the two.
    pub at: [Option<Certainty>; 2],
    /// Combined result.
    pub verdict: Agreement,
}

impl DirectionResult {
    fn mark(&mut self, time: i64, mark: Mark, frame: u64) {
        if self.marks.len() < MARKS_MAX {
            self.marks.push((time, mark, frame));
        }
    }

    fn lost(&mut self, time: i64, frame: u64) {
        note(&mut self.lost, frame);
        self.mark(time, Mark::Lost, frame);
    }
}

impl Joint {
    fn words(&self, names: [&str; 2]) -> String {
        match self.verdict {
            Agreement::Both => "at both points".to_owned(),
            Agreement::Certain(at) => format!("at both points; certain by {}", names[at]),
            Agreement::Only(at) => format!("only at {}", names[at]),
            Agreement::Withdrawn(at) => {
                format!("{} has it; {} has these frames but not the finding", names[at], names[1 - at])
            }
        }
    }
}

/// True if a rule is about the behaviour of a side and does not depend on the capture point: not about time, the
/// network or the capture.
fn refutable(rule: Rule) -> bool {
    let row = rule.row();
    row.severity == Severity::Error
        && matches!(
            row.group,
            Group::Negotiate | Group::Data | Group::Credits | Group::Memory | Group::Smb2 | Group::RpcRdma
        )
}

/// Pairs of two ordered lists: as many as possible, at the least cost. `cost` is `None` if two elements do not match.
fn aligned(a: &[usize], b: &[usize], cost: impl Fn(usize, usize) -> Option<u64>) -> Vec<(usize, usize)> {
    type Best = (usize, Reverse<u64>);
    let width = b.len() + 1;
    // for the rest from each place on: number of pairs, and cost
    let mut best: Vec<Best> = vec![(0, Reverse(0)); (a.len() + 1) * width];
    let with = |behind: Best, cost: u64| (behind.0 + 1, Reverse(behind.1.0.saturating_add(cost)));
    for i in (0..a.len()).rev() {
        for j in (0..b.len()).rev() {
            let without = best[(i + 1) * width + j].max(best[i * width + j + 1]);
            let pair = cost(a[i], b[j]).map(|cost| with(best[(i + 1) * width + j + 1], cost));
            best[i * width + j] = pair.map_or(without, |pair| pair.max(without));
        }
    }
    let (mut i, mut j) = (0, 0);
    let mut pairs = Vec::new();
    while i < a.len() && j < b.len() {
        let here = best[i * width + j];
        if here == best[(i + 1) * width + j] {
            i += 1;
        } else if here == best[i * width + j + 1] {
            j += 1;
        } else {
            pairs.push((a[i], b[j]));
            (i, j) = (i + 1, j + 1);
        }
    }
    pairs
}

/// Copies of a packet at both points, grouped by the sender's marks if both points have one in common: only copies
/// within a group can be the same.
fn copies(a: &Point, b: &Point, places: &[usize], others: &[usize]) -> Vec<(Vec<usize>, Vec<usize>)> {
    let mut found: BTreeMap<(u16, u32), (Vec<usize>, Vec<usize>)> = BTreeMap::new();
    for place in places {
        found.entry(a.packets[*place].copy).or_default().0.push(*place);
    }
    for other in others {
        found.entry(b.packets[*other].copy).or_default().1.push(*other);
    }
    if found.len() > 1 && found.values().any(|(here, there)| !here.is_empty() && !there.is_empty()) {
        return found.into_values().collect();
    }
    vec![(places.to_vec(), others.to_vec())]
}

/// Changes on the way: value, from, to; and the number of packets.
pub type Changes = BTreeMap<Change, u64>;

/// A value of packets that changed on the way.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Change {
    /// 0 from the first point to the second, 1 back.
    pub way: usize,
    /// The name of the value.
    pub what: &'static str,
    /// The value where the packets were sent.
    pub was: String,
    /// The value where they arrive.
    pub is: String,
}

impl Change {
    /// Its meaning, if known.
    pub(crate) fn meaning(&self) -> Option<&'static str> {
        match (self.what, &*self.was, &*self.is) {
            ("DSCP", _, "0") | ("ECN", "1" | "2", "0") => Some("bleached"),
            ("VLAN priority", was, "0") if was != NONE => Some("bleached"),
            ("ECN", _, "3") => Some("congestion"),
            ("tunnel", NONE, is) if is.starts_with("ERSPAN") => Some("by a mirror"),
            ("tunnel", was, NONE) if was.starts_with("ERSPAN") => Some("by a mirror"),
            _ => None,
        }
    }
}

/// Text for a missing value.
const NONE: &str = "none";

/// Request times of one command at the first and the second point.
#[derive(Clone, Debug, Default)]
pub struct Times {
    /// At the first point.
    pub first: Histogram,
    /// At the second point.
    pub second: Histogram,
    /// The difference: between the points, both ways.
    pub between: Histogram,
    /// Time of the client itself, at the point on its side.
    pub client: Histogram,
    /// Time of the server itself, at the point on its side.
    pub server: Histogram,
}

impl Times {
    fn add(&mut self, request: &Timed) {
        let all = [&mut self.first, &mut self.second, &mut self.between, &mut self.client, &mut self.server];
        for (all, time) in
            all.into_iter().zip([request.first, request.second, request.between(), request.client, request.server])
        {
            all.add(time);
        }
    }
}

/// A request at both points: ns from its first frame to the last one of its reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Timed {
    /// At the first point.
    pub first: i64,
    /// At the second point.
    pub second: i64,
    /// Its first frame at each.
    pub frames: [u64; 2],
    /// Command of the request.
    pub command: &'static str,
    /// Time of the client itself, if one point is at the client.
    pub client: i64,
    /// Time of the server itself, if one point is at the server.
    pub server: i64,
}

impl Timed {
    /// The columns of [`Timed::csv`].
    pub const COLUMNS: &str =
        "first,second,command,first_frame,second_frame,first_s,second_s,between_s,client_s,server_s";

    /// The row of a CSV table, times in seconds.
    pub fn csv(&self, names: [&str; 2]) -> String {
        let name = |name: &str| format!("\"{}\"", escaped(name).replace('"', "\"\""));
        let seconds = |ns: i64| {
            let (sign, ns) = (if ns < 0 { "-" } else { "" }, ns.unsigned_abs());
            format!("{sign}{}.{:09}", ns / 1_000_000_000, ns % 1_000_000_000)
        };
        let times = [self.first, self.second, self.between(), self.client, self.server].map(seconds).join(",");
        format!("{},{},{},{},{},{times}", name(names[0]), name(names[1]), self.command, self.frames[0], self.frames[1])
    }

    /// Time between the points, both ways.
    pub fn between(&self) -> i64 {
        self.first.saturating_sub(self.second).saturating_abs()
    }
}

/// Comparison of two captures.
#[derive(Clone, Debug, Default)]
pub struct Comparison {
    /// Number of packets of each.
    pub packets: [u64; 2],
    /// The clocks, if any packet is in both captures.
    pub clock: Option<Clock>,
    /// From the first point to the second, and back.
    pub ways: [DirectionResult; 2],
    /// Changes between the points.
    pub changes: Changes,
    /// Requests by command.
    pub times: BTreeMap<&'static str, Times>,
    /// The slowest requests at the first point, the longest first.
    pub slowest: Vec<Timed>,
    /// TCP segments that an adapter split or joined between the points (TSO, GRO, LRO).
    pub resized: u64,
    /// Findings of both.
    pub findings: Vec<Joint>,
}

fn note(list: &mut (u64, Vec<u64>), frame: u64) {
    list.0 += 1;
    if list.1.len() < LISTED {
        list.1.push(frame);
    }
}

/// Packets with the same key, by index.
fn by_key(packets: &[Seen], plain: bool) -> HashMap<u64, Vec<usize>> {
    let mut found: HashMap<u64, Vec<usize>> = HashMap::new();
    for (place, packet) in packets.iter().enumerate() {
        found.entry(if plain { packet.plain } else { packet.key }).or_default().push(place);
    }
    found
}

impl Comparison {
    /// Matches the packets of `a` and `b`.
    pub fn new(a: &Point, b: &Point) -> Self {
        Self::telling(a, b, |_| {})
    }

    /// The same, and passes each request of both points to `each`.
    pub fn telling(a: &Point, b: &Point, mut each: impl FnMut(&Timed)) -> Self {
        let mut this = Self { packets: [a.packets.len() as u64, b.packets.len() as u64], ..Self::default() };
        let plain = a.is_cut || b.is_cut;
        let (mut in_a, mut in_b) = (by_key(&a.packets, plain), by_key(&b.packets, plain));
        // addresses and the invariant CRC were both rewritten: numbers are left to match
        if !plain && !in_a.keys().any(|key| in_b.contains_key(key)) {
            (in_a, in_b) = (by_key(&a.packets, true), by_key(&b.packets, true));
        }
        // packets without copies give the clocks
        let mut pairs: Vec<Option<usize>> = vec![None; a.packets.len()];
        let mut taken = vec![false; b.packets.len()];
        for (key, places) in &in_a {
            if let ([one], Some([other])) = (&places[..], in_b.get(key).map(|p| &p[..])) {
                pairs[*one] = Some(*other);
                taken[*other] = true;
            }
        }
        let flows = directions(a, b, &pairs);
        this.clock = clocks(a, b, &pairs, &flows);
        let Some(clock) = this.clock else {
            this.compare_findings(a, b, &pairs, &flows, &HashSet::new());
            return this;
        };
        // match copies and retransmissions: as many as possible, in order, by the delay of packets without copies
        let forth = |place: usize, other: usize| {
            let packet = &a.packets[place];
            let forth = clock.first(b.packets[other].time).saturating_sub(packet.time);
            flows
                .of_a
                .get(&flow(packet))
                .map(|from_a| (usize::from(!from_a), if *from_a { forth } else { forth.saturating_neg() }))
        };
        let mut once: [Histogram; 2] = Default::default();
        for (way, delay) in pairs.iter().enumerate().filter_map(|(place, pair)| forth(place, (*pair)?)) {
            once[way].add(delay);
        }
        let typical = once.map(|h| h.quantile(0.5).unwrap_or(0));
        let slack = if clock.both_ways { clock.uncertainty as i64 } else { i64::MAX };
        let cost = |place: usize, other: usize| {
            let (way, delay) = forth(place, other)?;
            // nothing arrives before it was sent
            (delay >= slack.saturating_neg()).then(|| delay.saturating_sub(typical[way]).unsigned_abs())
        };
        for (key, places) in &in_a {
            let Some(others) = in_b.get(key).filter(|others| places.len() > 1 || others.len() > 1) else { continue };
            for (places, others) in copies(a, b, places, others) {
                let found: Vec<(usize, usize)> = match (places.len(), others.len()) {
                    (1, 1) => vec![(places[0], others[0])],
                    // so many that only their order distinguishes them
                    (n, m) if n.max(m) > COPIES_MAX => places.into_iter().zip(others).collect(),
                    _ => aligned(&places, &others, cost),
                };
                for (place, other) in found {
                    pairs[place] = Some(other);
                    taken[other] = true;
                }
            }
        }
        this.resized = resized(a, b, &flows, &mut pairs, &mut taken);
        let missed = this.ways(a, b, &pairs, &taken, &flows, &clock);
        this.requests(a, b, &pairs, &flows, &mut each);
        this.keep_slowest();
        this.compare_findings(a, b, &pairs, &flows, &missed);
        this
    }

    /// Results for each direction, and the hosts whose packets a point (0 or 1) missed, by their addresses at the other
    /// point.
    fn ways(
        &mut self,
        a: &Point,
        b: &Point,
        pairs: &[Option<usize>],
        taken: &[bool],
        flows: &Flows,
        clock: &Clock,
    ) -> HashSet<(usize, (Addr, Addr))> {
        let mut missed = HashSet::new();
        // a packet counts as lost only if the other capture covers its time, as far as the clocks are known
        let margin = MARGIN.saturating_add(if clock.both_ways { clock.uncertainty as i64 } else { 0 });
        let within = |span: Option<(i64, i64)>, time: i64| {
            span.is_some_and(|(first, last)| {
                (first.saturating_add(margin)..=last.saturating_sub(margin)).contains(&time)
            })
        };
        let mut again: HashMap<(u64, u64), bool> = HashMap::new();
        let mut newest: HashMap<Flow, usize> = HashMap::new();
        for (place, packet) in a.packets.iter().enumerate() {
            let Some(&from_a) = flows.of_a.get(&flow(packet)) else { continue };
            let way = &mut self.ways[usize::from(!from_a)];
            let Some(other) = pairs[place] else {
                let there = packet.time.saturating_add(clock.offset_at(packet.time) as i64);
                if within(b.span, there) {
                    if from_a {
                        way.lost(packet.time, packet.frame);
                    } else {
                        note(&mut way.unseen, packet.frame);
                        missed.insert((1, hosts(&flow(packet))));
                    }
                }
                // if one of the copies is a retransmission, it is this one
                if from_a && *again.entry((packet.way, packet.key)).or_insert(false) {
                    note(&mut way.sent_again, packet.frame);
                    way.mark(packet.time, Mark::SentAgain, packet.frame);
                }
                continue;
            };
            let there = &b.packets[other];
            way.matched += 1;
            let forth = clock.first(there.time).saturating_sub(packet.time);
            let delay = if from_a { forth } else { forth.saturating_neg() };
            way.delay.add(delay);
            way.delays.push((packet.time, delay));
            let arrived = again.insert((packet.way, packet.key), true);
            if from_a && arrived == Some(true) {
                note(&mut way.sent_again, packet.frame);
                way.mark(packet.time, Mark::SentAgain, packet.frame);
            }
            let latest = newest.entry(flow(packet)).or_insert(other);
            if other < *latest {
                note(&mut way.reordered, packet.frame);
                way.mark(packet.time, Mark::Overtaken, packet.frame);
            }
            *latest = (*latest).max(other);
            self.changed(&packet.outside, &there.outside, from_a);
        }
        for (place, packet) in b.packets.iter().enumerate() {
            let Some(&from_a) = flows.of_b.get(&flow(packet)).filter(|_| !taken[place]) else { continue };
            let sent = clock.first(packet.time);
            if within(a.span, sent) {
                let way = &mut self.ways[usize::from(!from_a)];
                if from_a {
                    note(&mut way.unseen, packet.frame);
                    missed.insert((0, hosts(&flow(packet))));
                } else {
                    way.lost(sent, packet.frame);
                }
            }
        }
        for way in &mut self.ways {
            way.marks.sort_unstable();
            way.delays.sort_unstable();
            let step = way.delays.len().div_ceil(DELAYS_MAX).max(1);
            // the longest of each interval: spikes matter
            way.delays = way.delays.chunks(step).filter_map(|c| c.iter().max_by_key(|(_, d)| *d).copied()).collect();
        }
        missed
    }

    fn changed(&mut self, here: &Outside, there: &Outside, from_a: bool) {
        if here == there {
            return;
        }
        let (was, is) = if from_a { (here, there) } else { (there, here) };
        let mut note = |what: &'static str, was: String, is: String| {
            if was != is && self.changes.len() < 1 << 12 {
                *self.changes.entry(Change { way: usize::from(!from_a), what, was, is }).or_default() += 1;
            }
        };
        let none = || NONE.to_owned();
        let vlan = |o: &Outside| o.vlan.map_or_else(none, |v| v.to_string());
        let priority = |o: &Outside| o.vlan.map_or_else(none, |_| o.priority.to_string());
        let tunnel = |o: &Outside| match o.tunnel {
            None => none(),
            Some(t) if t.kind.id_name().is_empty() || (t.kind, t.id) == (TunnelKind::Gre, 0) => {
                t.kind.name().to_owned()
            }
            Some(t) => format!("{} {} {}", t.kind.name(), t.kind.id_name(), t.id),
        };
        // a mirror adds the VLAN of its port to frames without a tag too
        let is_mirrored =
            |o: &Outside| o.tunnel.is_some_and(|t| matches!(t.kind, TunnelKind::Erspan2 | TunnelKind::Erspan3));
        let is_of_mirror = |mirror: &Outside, other: &Outside| is_mirrored(mirror) && other.vlan.is_none();
        note("source address", was.src.to_string(), is.src.to_string());
        note("destination address", was.dst.to_string(), is.dst.to_string());
        note("source port", was.ports.0.to_string(), is.ports.0.to_string());
        note("destination port", was.ports.1.to_string(), is.ports.1.to_string());
        note("DSCP", was.dscp.to_string(), is.dscp.to_string());
        note("ECN", was.ecn.to_string(), is.ecn.to_string());
        note("TTL", was.ttl.to_string(), is.ttl.to_string());
        if !is_of_mirror(was, is) && !is_of_mirror(is, was) {
            note("VLAN", vlan(was), vlan(is));
            note("VLAN priority", priority(was), priority(is));
        }
        note("tunnel", tunnel(was), tunnel(is));
    }

    fn requests(
        &mut self,
        a: &Point,
        b: &Point,
        pairs: &[Option<usize>],
        flows: &Flows,
        each: &mut impl FnMut(&Timed),
    ) {
        let there: HashMap<(u64, u64), &SeenRequest> =
            b.exchanges.iter().map(|asked| ((asked.frame, asked.id), asked)).collect();
        // the frame at both points, and whether the packet goes from the first to the second
        let mut packets: HashMap<u64, (u64, bool)> = HashMap::new();
        for (packet, other) in
            a.packets.iter().zip(pairs).filter_map(|(packet, pair)| Some((packet, b.packets.get((*pair)?)?)))
        {
            packets.insert(packet.frame, (other.frame, flows.of_a.get(&flow(packet)).copied().unwrap_or(true)));
        }
        for asked in &a.exchanges {
            let Some((frame, from_a)) = packets.get(&asked.frame) else { continue };
            let Some(other) = there.get(&(*frame, asked.id)) else { continue };
            // the client is at the point from which the request comes
            let (client, server) = if *from_a { (asked, *other) } else { (*other, asked) };
            let timed = Timed {
                first: asked.latency,
                second: other.latency,
                frames: [asked.frame, *frame],
                command: asked.command,
                client: client.own[0],
                server: server.own[1],
            };
            self.times.entry(asked.command).or_default().add(&timed);
            each(&timed);
            self.slowest.push(timed);
            if self.slowest.len() >= 2 * SLOWEST {
                self.keep_slowest();
            }
        }
    }

    fn keep_slowest(&mut self) {
        self.slowest.sort_unstable_by_key(|t| (Reverse(t.first), t.frames));
        self.slowest.truncate(SLOWEST);
    }

    /// Combines the findings of the two analyses. Certain findings are not withdrawn, nor those that depend on the
    /// capture point.
    fn compare_findings(
        &mut self,
        a: &Point,
        b: &Point,
        pairs: &[Option<usize>],
        flows: &Flows,
        missed: &HashSet<(usize, (Addr, Addr))>,
    ) {
        let all: BTreeSet<_> = a.findings.keys().chain(b.findings.keys()).copied().collect();
        if all.is_empty() {
            return;
        }
        // for each point, the index of a frame there and of the same packet at the other point
        let mut seen: [HashMap<u64, (usize, usize)>; 2] = Default::default();
        for (place, other) in pairs.iter().enumerate().filter_map(|(place, pair)| Some((place, (*pair)?))) {
            seen[0].insert(a.packets[place].frame, (place, other));
            seen[1].insert(b.packets[other].frame, (other, place));
        }
        let points = [a, b];
        for key @ (rule, by) in all {
            let found = points.map(|point| point.findings.get(&key));
            let verdict = match found {
                [Some(x), Some(y)] => match (x.certainty == Certainty::Certain, y.certainty == Certainty::Certain) {
                    (true, false) => Agreement::Certain(0),
                    (false, true) => Agreement::Certain(1),
                    _ => Agreement::Both,
                },
                _ => {
                    let at = usize::from(found[0].is_none());
                    let is_refuted = found[at].is_some_and(|f| {
                        f.certainty != Certainty::Certain
                            && refutable(rule)
                            && !f.frames.is_empty()
                            && f.frames.iter().all(|frame| {
                                seen[at].get(frame).is_some_and(|(here, there)| {
                                    let (here, there) = (&points[at].packets[*here], &points[1 - at].packets[*there]);
                                    let of_a = if at == 0 { here } else { there };
                                    let from_a = flows.of_a.get(&flow(of_a)).copied().unwrap_or(true);
                                    // true if the side to blame is behind the other point
                                    let is_sender = f.address.map(|address| here.outside.src == address);
                                    let is_behind =
                                        is_sender.is_some_and(|is_sender| (is_sender == from_a) == (at == 1));
                                    is_behind || missed.contains(&(at, hosts(&flow(there))))
                                })
                            })
                    });
                    if is_refuted { Agreement::Withdrawn(at) } else { Agreement::Only(at) }
                }
            };
            self.findings.push(Joint { rule, by, at: found.map(|f| f.map(|f| f.certainty)), verdict });
        }
    }

    /// The comparison as text.
    pub fn text(&self, names: [&str; 2]) -> String {
        let mut out = String::new();
        let matched: u64 = self.ways.iter().map(|w| w.matched).sum();
        let [a, b] = self.packets.map(|n| Grouped(n).to_string());
        let _ = writeln!(out, "{} of {a} and {b} RDMA and TCP packets were seen at both points.", Grouped(matched));
        let Some(clock) = &self.clock else {
            let _ = writeln!(out, "No packet was seen at both: these captures have nothing in common.");
            return out;
        };
        let _ = writeln!(out, "\nClocks");
        let ns = |x: f64| Elapsed(x.clamp(-9e18, 9e18) as i64).to_string();
        let sign = if clock.offset < 0.0 { "behind" } else { "ahead of" };
        if clock.both_ways {
            // with as many digits as are known
            let offset = format!("{:.6} s", clock.offset.abs() / 1e9);
            let _ = writeln!(out, "  {} is {offset} {sign} {} (± {})", names[1], names[0], ns(clock.uncertainty));
            if clock.is_drift_known() {
                let (drift, pace) = (clock.drift.abs() * 1e6, if clock.drift < 0.0 { "slower" } else { "faster" });
                let _ = writeln!(out, "  and runs {drift:.3} ppm (± {:.3}) {pace}", clock.drift_uncertainty * 1e6);
            } else {
                let span = Elapsed(clock.span);
                let _ =
                    writeln!(out, "  The drift cannot be known from {span}: the times are not exact enough for that.");
            }
            if clock.uneven && !clock.is_drift_known() {
                let _ = writeln!(
                    out,
                    "  The times contradict each other: they were taken late at one point, or a clock was set in \
                        between."
                );
            } else if clock.uneven {
                let _ = writeln!(
                    out,
                    "  No constant drift explains the times: a clock was set in between, or runs unevenly."
                );
            }
        } else {
            let _ = writeln!(
                out,
                "  Packets were seen in one direction only: delays are relative to the shortest, and the offset is not \
                    known."
            );
        }
        for (n, way) in self.ways.iter().enumerate() {
            let (from, to) = (names[n], names[1 - n]);
            let _ = writeln!(out, "\n{from} → {to}: {} packets", Grouped(way.matched));
            let at = |part: f64| Elapsed(way.delay.quantile(part).unwrap_or(0));
            if way.delay.count() > 0 {
                let sure = if clock.both_ways { format!(" (± {})", ns(clock.uncertainty)) } else { String::new() };
                let [min, max] = [way.delay.min(), way.delay.max()].map(|ns| Elapsed(ns.unwrap_or(0)));
                let [half, most] = [0.5, 0.9].map(at);
                let nearly = way.delay.p99().map_or_else(String::new, |ns| format!("p99 {}, ", Elapsed(ns)));
                let _ = writeln!(
                    out,
                    "  one-way delay: shortest {min}, median {half}, p90 {most}, {nearly}longest {max}{sure}"
                );
            }
            let lines = [
                (&way.lost, "lost between the points", from),
                (
                    &way.sent_again,
                    "arrived and sent again: lost behind the second point, or the acknowledgment was",
                    from,
                ),
                (&way.reordered, "overtaken by later ones between the points", names[0]),
                (&way.unseen, "seen only where they arrived: not captured where they were sent", to),
            ];
            for ((count, frames), what, whose) in lines {
                if *count > 0 {
                    let shown: Vec<String> = frames.iter().take(12).map(u64::to_string).collect();
                    let more = if *count > 12 { ", …" } else { "" };
                    let _ =
                        writeln!(out, "  {} {what} (frames of {whose}: {}{more})", Grouped(*count), shown.join(", "));
                }
            }
        }
        if self.resized > 0 {
            let _ = writeln!(
                out,
                "\n{} TCP segments were split or joined by an adapter between the points (TSO, GRO).",
                Grouped(self.resized)
            );
        }
        if !self.changes.is_empty() {
            let _ = writeln!(out, "\nChanged on the way");
            let mut last = None;
            for (change, count) in &self.changes {
                let Change { way, what, was, is } = change;
                if last.replace(way) != Some(way) {
                    let [from, to] = [names[*way], names[1 - *way]].map(escaped);
                    let _ = writeln!(out, "  {from} → {to}");
                }
                let meaning = change.meaning().map_or(String::new(), |meaning| format!(": {meaning}"));
                let _ = writeln!(out, "    {what} {was} → {is}{meaning} ({} packets)", Grouped(*count));
            }
        }
        if !self.times.is_empty() {
            let _ = writeln!(out, "\nRequests: median and 99th percentile of the time");
            let pair = |h: &Histogram| {
                format!("{}, {}", Elapsed(h.quantile(0.5).unwrap_or(0)), Elapsed(h.quantile(0.99).unwrap_or(0)))
            };
            let heads = ["", "requests", "seen at", "seen at", "between the points", "client's own", "server's own"]
                .map(str::to_owned);
            let [a, b] = names.map(escaped);
            let under = ["command".to_owned(), String::new(), a, b, String::new(), String::new(), String::new()];
            let rows = self.times.iter().map(|(command, t)| {
                let [a, b, c, d, e] = [&t.first, &t.second, &t.between, &t.client, &t.server].map(pair);
                [(*command).to_owned(), Grouped(t.first.count()).to_string(), a, b, c, d, e]
            });
            columns(&mut out, &[heads, under].into_iter().chain(rows).collect::<Vec<_>>());
        }
        if !self.slowest.is_empty() {
            let _ = writeln!(out, "\nThe slowest requests");
        }
        for t in self.slowest.iter().take(SLOWEST_SHOWN) {
            let [first, second, between, client, server] =
                [t.first, t.second, t.between(), t.client, t.server].map(Elapsed);
            let _ = writeln!(
                out,
                "  {} in frame {}: {first} at {}, {second} at {}, {between} between; the server took {server}, the \
                    client {client}",
                t.command, t.frames[0], names[0], names[1]
            );
        }
        let (withdrawn, stood): (Vec<&Joint>, Vec<&Joint>) =
            self.findings.iter().partition(|t| matches!(t.verdict, Agreement::Withdrawn(_)));
        for (title, rows) in [("Findings", stood), ("Withdrawn: one capture missed what the other has", withdrawn)] {
            if !rows.is_empty() {
                let _ = writeln!(out, "\n{title}");
            }
            for t in rows {
                let _ = writeln!(out, "  {} by {}: {}", t.rule.id(), t.by, t.words(names));
            }
        }
        out
    }

    /// The comparison as JSON.
    pub fn json(&self, names: [&str; 2]) -> Json {
        let seconds = |ns: f64| if ns.is_finite() { json!(ns / 1e9) } else { Json::Null };
        let quantiles = |h: &Histogram| {
            let at = |part: f64| h.quantile(part).map(|ns| ns as f64 / 1e9);
            json!({"count": h.count(), "min": h.min().map(|n| n as f64 / 1e9), "p10": at(0.1), "median": at(0.5), "p90": at(0.9), "p99": at(0.99), "max": h.max().map(|n| n as f64 / 1e9)})
        };
        let list = |(count, frames): &(u64, Vec<u64>)| json!({"count": count, "frames": frames});
        let way = |n: usize| {
            let w = &self.ways[n];
            json!({
                "from": names[n],
                "to": names[1 - n],
                "matched": w.matched,
                "delay": quantiles(&w.delay),
                "lost_between": list(&w.lost),
                "sent_again": list(&w.sent_again),
                "reordered": list(&w.reordered),
                "not_captured": list(&w.unseen),
                "delay_over_time": w.delays.iter().map(|(t, d)| json!([*t as f64 / 1e9, *d as f64 / 1e9])).collect::<Vec<_>>(),
            })
        };
        json!({
            "rdmascope": env!("CARGO_PKG_VERSION"),
            "schema": 1,
            "points": names,
            "packets": self.packets,
            "clock": self.clock.map(|c| json!({
                "at": c.at as f64 / 1e9,
                "offset": seconds(c.offset),
                "uncertainty": seconds(c.uncertainty),
                "drift_ppm": c.drift * 1e6,
                "drift_uncertainty_ppm": if c.is_drift_known() && c.drift_uncertainty.is_finite() { json!(c.drift_uncertainty * 1e6) } else { Json::Null },
                "uneven": c.uneven,
                "both_ways": c.both_ways,
            })),
            "ways": [way(0), way(1)],
            "changes": self.changes.iter().map(|(c, n)| json!({"way": c.way, "what": c.what, "from": c.was, "to": c.is, "packets": n})).collect::<Vec<_>>(),
            "requests": self.times.iter().map(|(command, t)| json!({
                "command": command,
                "first": quantiles(&t.first),
                "second": quantiles(&t.second),
                "between": quantiles(&t.between),
                "client": quantiles(&t.client),
                "server": quantiles(&t.server),
            })).collect::<Vec<_>>(),
            "slowest": self.slowest.iter().map(|t| json!({
                "command": t.command,
                "frames": t.frames,
                "first": t.first as f64 / 1e9,
                "second": t.second as f64 / 1e9,
                "between": t.between() as f64 / 1e9,
                "client": t.client as f64 / 1e9,
                "server": t.server as f64 / 1e9,
            })).collect::<Vec<_>>(),
            "resized": self.resized,
            "findings": self.findings.iter().map(|t| json!({
                "id": t.rule.id(),
                "by": t.by,
                "first": t.at[0].is_some(),
                "second": t.at[1].is_some(),
                "certainty": t.at.iter().flatten().max().map(|c| c.name()),
                "verdict": t.verdict.key(),
            })).collect::<Vec<_>>(),
        })
    }
}

/// The JSON Schema of [`Comparison::json`].
pub fn schema() -> Json {
    let count = json!({"type": "integer", "minimum": 0});
    let (text, number, boolean) = (json!({"type": "string"}), json!({"type": "number"}), json!({"type": "boolean"}));
    let maybe = json!({"anyOf": [number, {"type": "null"}]});
    let times = object(&[
        ("count", &count, "Number of values."),
        ("min", &maybe, "The smallest; null without values, as all of these."),
        ("p10", &maybe, "A tenth of them are at most this."),
        ("median", &maybe, "Half of them are at most this."),
        ("p90", &maybe, "Nine tenths of them are at most this."),
        ("p99", &maybe, "99 of 100 of them are at most this."),
        ("max", &maybe, "The largest."),
    ]);
    let packets =
        object(&[("count", &count, "Number of packets."), ("frames", &list(&count), "First frames of these packets.")]);
    let clock = object(&[
        ("at", &number, "Time at which the offset holds, by the first clock: seconds since the Unix epoch."),
        ("offset", &maybe, "Seconds that the second clock is ahead, in the middle of the capture."),
        ("uncertainty", &maybe, "Seconds that the offset may be wrong by; null if that is unknown."),
        ("drift_ppm", &number, "How much faster the second clock runs, in millionths."),
        ("drift_uncertainty_ppm", &maybe, "Millionths that the drift may be wrong by; null if that is unknown."),
        ("uneven", &boolean, "Whether no constant drift explains the times: a clock was set meanwhile, or is uneven."),
        ("both_ways", &boolean, "Whether both directions have packets: one alone bounds the offset on one side only."),
    ]);
    let way = object(&[
        ("from", &text, "The point that these packets pass first."),
        ("to", &text, "The other point."),
        ("matched", &count, "Packets that both points have."),
        ("delay", &times, "Seconds from the first point to the other."),
        ("lost_between", &packets, "Packets captured where they were sent, but not where they should arrive."),
        (
            "sent_again",
            &packets,
            "Packets that reached the other point and were retransmitted: lost behind it, or their acknowledgment was.",
        ),
        ("reordered", &packets, "Packets that overtook others between the points."),
        ("not_captured", &packets, "Packets captured only where they should arrive: the other capture missed them."),
        (
            "delay_over_time",
            &list(&list(&number)),
            "Pairs of a time by the first clock and the delay, both in seconds; thinned out.",
        ),
    ]);
    let change = object(&[
        (
            "way",
            &json!({"type": "integer", "minimum": 0, "maximum": 1}),
            "Place in `ways`: the direction of these packets.",
        ),
        ("what", &text, "The changed field."),
        ("from", &text, "Its value where they are sent."),
        ("to", &text, "Its value where they arrive."),
        ("packets", &count, "Number of packets."),
    ]);
    let request = object(&[
        ("command", &text, "The command."),
        ("first", &times, "Latency at the first point, in seconds."),
        ("second", &times, "Latency at the second point, in seconds."),
        ("between", &times, "Seconds between the points, both ways together."),
        ("client", &times, "The client's own time, seen at the point on its side; seconds."),
        ("server", &times, "The server's own time, seen at the point on its side; seconds."),
    ]);
    let slow = object(&[
        ("command", &text, "The command."),
        ("frames", &list(&count), "The first frame of it in each capture."),
        ("first", &number, "Latency at the first point, in seconds."),
        ("second", &number, "Latency at the second point, in seconds."),
        ("between", &number, "Seconds between the points, both ways together."),
        ("client", &number, "The client's own time, in seconds."),
        ("server", &number, "The server's own time, in seconds."),
    ]);
    let finding = object(&[
        ("id", &text, "The rule."),
        ("by", &text, "The side that broke it."),
        ("first", &boolean, "Whether the first capture has it."),
        ("second", &boolean, "Whether the second capture has it."),
        (
            "certainty",
            &json!({"enum": ["certain", "if_nothing_was_missed", "guess"]}),
            "The certainty of the more certain one.",
        ),
        (
            "verdict",
            &json!({"enum": ["both", "certain", "only", "withdrawn"]}),
            "Withdrawn: one capture has the finding provided that it missed nothing; the other has the missed frames, \
                and not the finding.",
        ),
    ]);
    let one = object(&[
        ("rdmascope", &text, "Version of the program."),
        ("schema", &json!({"const": 1}), "Version of this format. Within a version, keys are only added."),
        ("points", &list(&text), "Names of the two points."),
        ("packets", &list(&count), "Number of packets of each point."),
        (
            "clock",
            &json!({"anyOf": [clock, {"type": "null"}]}),
            "The second clock by the first; null if no packet is at both points.",
        ),
        ("ways", &list(&way), "Both directions."),
        ("changes", &list(&change), "Fields that differ at the two points."),
        ("requests", &list(&request), "Requests that both points have, by command."),
        ("slowest", &list(&slow), "The requests that took longest at the first point; seconds."),
        ("findings", &list(&finding), "Findings of both captures."),
        ("resized", &count, "TCP segments that an adapter split or joined between the points."),
    ]);
    json!({
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "rdmascope compare --format json",
        "anyOf": [one, {"type": "array", "items": one, "description": "One for each capture behind the first, where \
            there are several."}],
    })
}

/// Formats rows of words in columns, the first to the left, the others to the right.
fn columns<const N: usize>(out: &mut String, rows: &[[String; N]]) {
    let width = |n: usize| rows.iter().map(|row| row[n].chars().count()).max().unwrap_or(0);
    let widths: [usize; N] = std::array::from_fn(width);
    for row in rows {
        let mut line = format!("  {:<1$}", row[0], widths[0]);
        for (cell, width) in row.iter().zip(widths).skip(1) {
            let _ = write!(line, "  {cell:>width$}");
        }
        let _ = writeln!(out, "{}", line.trim_end());
    }
}

/// One direction of a connection at one point.
type Flow = (u64, Addr, Addr, (u16, u16));

fn flow(packet: &Seen) -> Flow {
    (packet.way, packet.outside.src, packet.outside.dst, packet.outside.ports)
}

/// For two hosts: the sender of the last packet with its difference, and how often each sender had the greater one.
type Votes = (Option<(Addr, i64)>, BTreeMap<Addr, u64>);

/// Flows that go from the first point to the second.
#[derive(Debug, Default)]
struct Flows {
    of_a: HashMap<Flow, bool>,
    of_b: HashMap<Flow, bool>,
    /// The flow at the second point, for each flow at the first.
    same: HashMap<Flow, Flow>,
}

/// Two hosts, in either direction.
fn hosts(flow: &Flow) -> (Addr, Addr) {
    if flow.1 <= flow.2 { (flow.1, flow.2) } else { (flow.2, flow.1) }
}

/// A segment of a stream: its offset, continued past 2^32, its end, and its index among the packets.
type Stretch = (i64, i64, usize);

/// The segments with a payload of each flow, in order of arrival, and the offset of the first.
fn stretches(packets: &[Seen], wanted: impl Fn(&Flow) -> bool) -> HashMap<Flow, Vec<(u32, u32, usize)>> {
    let mut found: HashMap<Flow, Vec<(u32, u32, usize)>> = HashMap::new();
    for (place, packet) in packets.iter().enumerate() {
        let flow = flow(packet);
        if let Some((seq, length)) = packet.stretch.filter(|_| wanted(&flow)) {
            found.entry(flow).or_default().push((seq, length, place));
        }
    }
    found
}

/// Segments without a matching packet at the other point, by stream offset.
fn left(all: &[(u32, u32, usize)], begin: u32, is_known: impl Fn(usize) -> bool) -> Vec<Stretch> {
    let mut at = i64::from(begin);
    let mut left = Vec::new();
    for (seq, length, place) in all {
        at += i64::from(seq.wrapping_sub(at as u32) as i32);
        if !is_known(*place) {
            left.push((at, at + i64::from(*length), *place));
        }
    }
    left
}

/// TCP segments that an adapter split or joined between the points: their bytes are in other segments of the same
/// stream, the first of which is their match. A segment whose bytes arrived only in part is lost; the parts that
/// arrived are matched.
fn resized(a: &Point, b: &Point, flows: &Flows, pairs: &mut [Option<usize>], taken: &mut [bool]) -> u64 {
    let of_a = stretches(&a.packets, |flow| flows.same.contains_key(flow));
    let mut of_b = stretches(&b.packets, |flow| flows.of_b.contains_key(flow));
    let mut resized = 0;
    for (flow, here) in &of_a {
        let Some(there) = flows.same.get(flow).and_then(|flow| of_b.remove(flow)) else { continue };
        let begin = here[0].0;
        let mine = left(here, begin, |place| pairs[place].is_some());
        let mut theirs = left(&there, begin, |place| taken[place]);
        theirs.sort_unstable();
        for (from, to, place) in mine {
            let first = theirs.partition_point(|(_, end, _)| *end <= from);
            let (mut reach, mut is_whole) = (from, true);
            let mut parts = Vec::new();
            for (start, end, other) in theirs.iter().skip(first).take(NEAR) {
                if *start >= to {
                    break;
                }
                is_whole &= *start <= reach;
                reach = reach.max(*end);
                parts.push(*other);
            }
            // of a segment that arrived in part, a part was lost
            parts.iter().for_each(|other| taken[*other] = true);
            if is_whole && reach >= to && !parts.is_empty() {
                pairs[place] = Some(parts[0]);
                resized += 1;
            }
        }
    }
    resized
}

/// Determines the directions. For the packets of two hosts, the point that has them first is known except for the
/// clocks; both directions together give the clocks.
fn directions(a: &Point, b: &Point, pairs: &[Option<usize>]) -> Flows {
    let mut same: BTreeMap<Flow, Flow> = BTreeMap::new();
    for (packet, pair) in a.packets.iter().zip(pairs) {
        if let Some(other) = pair.map(|place| &b.packets[place]) {
            same.entry(flow(packet)).or_insert_with(|| flow(other));
        }
    }
    let mut flows = Flows { same: same.iter().map(|(here, there)| (*here, *there)).collect(), ..Flows::default() };
    // of two packets that cross each other, the one to the second point has the greater difference
    let mut votes: BTreeMap<(Addr, Addr), Votes> = BTreeMap::new();
    for (packet, pair) in a.packets.iter().zip(pairs) {
        let Some(other) = pair.map(|place| &b.packets[place]) else { continue };
        let (f, difference) = (flow(packet), other.time.saturating_sub(packet.time));
        let (last, senders) = votes.entry(hosts(&f)).or_default();
        if let Some((sender, before)) = last.filter(|(sender, _)| *sender != f.1) {
            *senders.entry(if difference > before { f.1 } else { sender }).or_default() += 1;
        }
        *last = Some((f.1, difference));
    }
    for (f, there) in &same {
        let greatest = votes
            .get(&hosts(f))
            .and_then(|(_, senders)| senders.iter().max_by_key(|(_, n)| **n).map(|(sender, _)| *sender));
        let from_a = greatest.is_none_or(|sender| sender == f.1);
        flows.of_a.insert(*f, from_a);
        flows.of_b.insert(*there, from_a);
    }
    flows
}

fn clocks(a: &Point, b: &Point, pairs: &[Option<usize>], flows: &Flows) -> Option<Clock> {
    let (mut forward, mut backward) = (Vec::new(), Vec::new());
    // who records a socket makes the segments of its handshake up: their times say nothing
    let mut begun = BTreeSet::new();
    for (packet, pair) in a.packets.iter().zip(pairs) {
        let Outside { src, dst, ports, .. } = packet.outside;
        let ends = [(src, ports.0), (dst, ports.1)];
        let is_tcp = ports != (0, 0);
        let connection = if ends[0] <= ends[1] { ends } else { [ends[1], ends[0]] };
        if packet.stretch.is_some() {
            begun.insert(connection);
        }
        let Some(other) = pair.map(|place| &b.packets[place]).filter(|_| !is_tcp || begun.contains(&connection)) else {
            continue;
        };
        let point = (packet.time, other.time.saturating_sub(packet.time));
        match flows.of_a.get(&flow(packet)) {
            Some(true) => forward.push(point),
            Some(false) => backward.push(point),
            None => {}
        }
    }
    clock(&forward, &backward)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Adds a packet of a connection between two hosts: time, sending side, and delay.
    #[derive(Clone, Debug)]
    struct Sent {
        time: i64,
        by_client: bool,
        delay: i64,
        lost: bool,
    }

    fn seen(n: usize, sent: &Sent, time: i64, nat: bool) -> Seen {
        let (client, server) = (Addr::V4([10, 0, 0, if nat { 99 } else { 1 }]), Addr::V4([10, 0, 0, 2]));
        let (src, dst) = if sent.by_client { (client, server) } else { (server, client) };
        let outside = Outside { src, dst, dscp: if nat { 0 } else { 26 }, ..Outside::default() };
        Seen {
            key: n as u64,
            plain: n as u64,
            way: u64::from(sent.by_client),
            frame: n as u64 + 1,
            time,
            copy: (0, 0),
            stretch: None,
            outside,
        }
    }

    /// The client's and the server's capture, with the server's clock ahead by `offset` and drifting.
    fn captured(all: &[Sent], offset: i64, drift: f64, nat: bool) -> (Point, Point) {
        let (mut a, mut b) = (Point::default(), Point::default());
        let clock = |t: i64| t + offset + (drift * t as f64).round() as i64;
        for (n, sent) in all.iter().enumerate() {
            let arrives = sent.time + sent.delay;
            let (at_a, at_b) = if sent.by_client { (sent.time, arrives) } else { (arrives, sent.time) };
            if sent.by_client || !sent.lost {
                a.packets.push(seen(n, sent, at_a, false));
            }
            if !sent.by_client || !sent.lost {
                b.packets.push(seen(n, sent, clock(at_b), nat));
            }
        }
        // both run from well before the first packet to well after the last one
        let (first, last) = (all[0].time - 2 * MARGIN, all[all.len() - 1].time + 2 * MARGIN);
        for (point, span) in [(&mut a, (first, last)), (&mut b, (clock(first), clock(last)))] {
            point.packets.sort_by_key(|p| p.time);
            point.span = Some(span);
        }
        (a, b)
    }

    fn packets() -> impl Strategy<Value = Vec<Sent>> {
        let one = (1..2_000_000i64, any::<bool>(), 5_000..80_000i64, 0..50u8);
        proptest::collection::vec(one, 20..120).prop_map(|rows| {
            let mut time = 0;
            rows.into_iter()
                .map(|(gap, by_client, delay, luck)| {
                    time += gap;
                    Sent { time, by_client, delay, lost: luck == 0 }
                })
                .collect()
        })
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 10_000, ..ProptestConfig::default() })]
        #[test]
        fn a_capture_that_was_split_is_put_together_within_the_stated_uncertainty(
            all in packets(), offset in -4_000_000_000i64..4_000_000_000, ppm in -80.0..80.0f64, nat in any::<bool>()
        ) {
            prop_assume!(all.iter().any(|s| s.by_client && !s.lost) && all.iter().any(|s| !s.by_client && !s.lost));
            let drift = ppm / 1e6;
            let (a, b) = captured(&all, offset, drift, nat);
            let found = Comparison::new(&a, &b);
            let clock = found.clock.unwrap();
            prop_assert!(clock.both_ways && !clock.uneven, "{clock:?}");
            for packet in &a.packets {
                let truth = offset as f64 + drift * packet.time as f64;
                let error = (clock.offset_at(packet.time) - truth).abs();
                prop_assert!(error <= clock.uncertainty + 2.0, "off by {error}, said {}", clock.uncertainty);
            }
            let lost = |by_client: bool| all.iter().enumerate().filter(move |(_, s)| s.lost && s.by_client == by_client);
            for (way, by_client) in [(0, true), (1, false)] {
                let frames: BTreeSet<u64> = lost(by_client).map(|(n, _)| n as u64 + 1).collect();
                let lost: BTreeSet<u64> = found.ways[way].lost.1.iter().copied().collect();
                prop_assert!(lost.is_subset(&frames));
                // with few packets, the clocks are not known well enough to tell that the other capture had begun
                let length = all.last().map_or(0, |s| s.time) as f64;
                if clock.uncertainty < 4e5 && clock.drift_uncertainty * length < 4e5 {
                    prop_assert_eq!(&lost, &frames);
                }
                prop_assert_eq!(found.ways[way].unseen.0, 0);
            }
            let bleached = Change { way: 0, what: "DSCP", was: "26".to_owned(), is: "0".to_owned() };
            prop_assert_eq!(found.changes.contains_key(&bleached), nat && found.ways[0].matched > 0);
        }
    }

    #[test]
    fn requests_are_timed_one_by_one_at_both_points() {
        let all: Vec<Sent> =
            (0..300).map(|n| Sent { time: n * 2_000_000, by_client: n % 2 == 0, delay: 20_000, lost: false }).collect();
        let (mut a, mut b) = captured(&all, 5_000, 0.0, false);
        for n in (0..300).step_by(2) {
            let (frame, took) = (n + 1, 1_000_000 + 1000 * n as i64);
            let asked = |latency, own| SeenRequest { frame, id: n, command: "READ", latency, own };
            a.exchanges.push(asked(took, [7_000, took - 50_000]));
            b.exchanges.push(asked(took - 40_000, [0, took - 60_000]));
        }
        let mut rows = Vec::new();
        let found = Comparison::telling(&a, &b, |timed| rows.push(timed.csv(["client", "server"])));
        // the client's own time is measured at the client, the server's at the server
        assert_eq!(
            (rows.len(), &rows[0][..]),
            (150, "\"client\",\"server\",READ,1,1,0.001000000,0.000960000,0.000040000,0.000007000,0.000940000")
        );
        assert_eq!(Timed::COLUMNS.split(',').count(), rows[0].split(',').count());
        let read = &found.times["READ"];
        assert_eq!((read.client.max(), read.server.min(), read.server.count()), (Some(7_000), Some(940_000), 150));
        assert_eq!((found.slowest.len(), found.slowest[0].frames), (SLOWEST, [299, 299]));
        assert!(
            found.slowest.iter().all(|t| t.between() == 40_000) && found.slowest.is_sorted_by_key(|t| Reverse(t.first))
        );
        let text = found.text(["client", "server"]);
        let [first, second, between, server] = [1_298_000, 1_258_000, 40_000, 1_238_000].map(Elapsed);
        let wanted = format!(
            "READ in frame 299: {first} at client, {second} at server, {between} between; the server took {server}"
        );
        assert!(text.contains(&wanted), "{text}");
        assert_eq!(found.json(["a", "b"])["slowest"][0]["frames"][0], 299);
    }

    #[test]
    fn captures_without_a_common_packet_say_so() {
        let found = Comparison::new(&Point::default(), &Point::default());
        assert!(found.clock.is_none() && found.text(["a", "b"]).contains("nothing in common"));
        assert_eq!(found.json(["a", "b"])["clock"], Json::Null);
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 1000, ..ProptestConfig::default() })]
        /// As after a loss on RoCE, where everything behind it is retransmitted: copies come sooner than the delay of a
        /// packet.
        #[test]
        fn copies_are_distinguished_and_none_is_called_lost_that_arrived(
            rows in proptest::collection::vec((800_000..2_000_000i64, any::<bool>(), 100_000..400_000i64, 500_000..700_000i64, 0..6u8), 30..100),
            offset in -4_000_000_000i64..4_000_000_000
        ) {
            let (mut a, mut b, mut lost) = (Point::default(), Point::default(), BTreeSet::new());
            let mut time = 0;
            for (n, (gap, by_client, delay, again, luck)) in rows.iter().enumerate() {
                time += gap;
                // one in three is sent twice; of those, every second loses one of both, or none
                let copies = if *luck < 2 { 2 } else { 1 };
                for copy in 0..copies {
                    let sent = Sent { time: time + copy * again, by_client: *by_client, delay: *delay + copy * 50_000, lost: false };
                    let frame = n * 2 + copy as usize;
                    let is_lost = copies == 2 && *luck == 1 && n % 2 == copy as usize;
                    let seen = |at| Seen { key: n as u64, plain: n as u64, ..seen(frame, &sent, at, false) };
                    let (here, there) = if *by_client { (sent.time, sent.time + sent.delay) } else { (sent.time + sent.delay, sent.time) };
                    if *by_client || !is_lost {
                        a.packets.push(seen(here));
                    }
                    if !*by_client || !is_lost {
                        b.packets.push(seen(there + offset));
                    }
                    if is_lost {
                        lost.insert((*by_client, frame as u64 + 1));
                    }
                }
            }
            for (point, ahead) in [(&mut a, 0), (&mut b, offset)] {
                point.packets.sort_by_key(|p| p.time);
                point.span = Some((ahead - 10_000_000, ahead + time + 10_000_000));
            }
            prop_assume!([true, false].iter().all(|side| rows.iter().filter(|r| r.1 == *side && r.4 >= 2).count() > 3));
            let found = Comparison::new(&a, &b);
            for (way, by_client) in [(0, true), (1, false)] {
                let truth: Vec<u64> = lost.iter().filter(|(side, _)| *side == by_client).map(|(_, frame)| *frame).collect();
                let mut lost = found.ways[way].lost.1.clone();
                lost.sort_unstable();
                prop_assert_eq!((lost, found.ways[way].unseen.0), (truth, 0));
            }
        }
    }

    #[test]
    fn copies_that_their_sender_marked_are_distinguished_however_late_they_are() {
        let client = Sent { time: 0, by_client: true, delay: 0, lost: false };
        let server = Sent { by_client: false, ..client.clone() };
        let ms = 1_000_000;
        let marked = |id: u16, time: i64, frame: usize| Seen {
            key: 7,
            plain: 7,
            copy: (id, 0),
            ..seen(frame, &client, time, false)
        };
        let (mut a, mut b) = (Point::default(), Point::default());
        for n in 0..40 {
            a.packets.push(seen(100 + n, &client, n as i64 * ms, false));
            b.packets.push(seen(100 + n, &client, n as i64 * ms + 300_000, false));
            a.packets.push(seen(200 + n, &server, n as i64 * ms + 800_000, false));
            b.packets.push(seen(200 + n, &server, n as i64 * ms + 500_000, false));
        }
        // three copies in a burst: the second one is lost, the first one has a longer delay than the third one
        a.packets.extend([marked(1, 10 * ms, 1), marked(2, 10 * ms + 9_000, 2), marked(3, 10 * ms + 18_000, 3)]);
        b.packets.extend([marked(3, 10 * ms + 318_000, 1), marked(1, 14 * ms, 2)]);
        for point in [&mut a, &mut b] {
            point.packets.sort_by_key(|p| p.time);
            point.span = Some((-10 * ms, 60 * ms));
        }
        let found = Comparison::new(&a, &b);
        assert_eq!((found.ways[0].lost.clone(), found.ways[0].unseen.0), ((1, vec![3]), 0), "frames count from 1");
        // a network that rewrites marks leaves order and time
        for (n, p) in b.packets.iter_mut().filter(|p| p.key == 7).enumerate() {
            p.copy = (100 + n as u16, 0);
        }
        assert_eq!(Comparison::new(&a, &b).ways[0].lost.0, 1);
    }

    fn segment(sent: &Sent, time: i64, seq: u32, length: u32, frame: u64) -> Seen {
        Seen {
            key: hash((seq, length)),
            plain: 0,
            frame,
            stretch: Some((seq, length)),
            ..seen(frame as usize, sent, time, false)
        }
    }

    #[test]
    fn segments_that_an_adapter_split_or_joined_are_known_again() {
        let client = Sent { time: 0, by_client: true, delay: 0, lost: false };
        let server = Sent { by_client: false, ..client.clone() };
        let ms = 1_000_000;
        let (mut a, mut b) = (Point::default(), Point::default());
        // bare acknowledgments, which no adapter splits
        for n in 0..40 {
            a.packets.push(seen(n, &client, n as i64 * ms, false));
            b.packets.push(seen(n, &client, n as i64 * ms + 20_000, false));
            a.packets.push(seen(100 + n, &server, n as i64 * ms + 500_000, false));
            b.packets.push(seen(100 + n, &server, n as i64 * ms + 480_000, false));
        }
        // one of 4,344 bytes, across the end of the sequence numbers, becomes three; three become one
        let first = u32::MAX - 1000;
        a.packets.push(segment(&client, 20 * ms, first, 4344, 1001));
        for n in 0..3 {
            b.packets.push(segment(
                &client,
                20 * ms + 30_000 + i64::from(n),
                first.wrapping_add(1448 * n),
                1448,
                2001 + u64::from(n),
            ));
            a.packets.push(segment(
                &client,
                21 * ms + i64::from(n),
                first.wrapping_add(4344 + 1448 * n),
                1448,
                1002 + u64::from(n),
            ));
        }
        b.packets.push(segment(&client, 21 * ms + 40_000, first.wrapping_add(4344), 4344, 2010));
        // one is lost and retransmitted unchanged; of one that is split in two, the second part is lost
        a.packets.push(segment(&client, 22 * ms, first.wrapping_add(8688), 1448, 1010));
        a.packets.push(segment(&client, 24 * ms, first.wrapping_add(8688), 1448, 1011));
        b.packets.push(segment(&client, 24 * ms + 25_000, first.wrapping_add(8688), 1448, 2011));
        a.packets.push(segment(&client, 25 * ms, first.wrapping_add(10_136), 2896, 1012));
        b.packets.push(segment(&client, 25 * ms + 25_000, first.wrapping_add(10_136), 1448, 2012));
        for point in [&mut a, &mut b] {
            point.packets.sort_by_key(|p| p.time);
            point.span = Some((-10 * ms, 60 * ms));
        }
        let found = Comparison::new(&a, &b);
        assert_eq!((found.resized, found.ways[0].lost.clone(), found.ways[0].unseen.0), (4, (2, vec![1010, 1012]), 0));
        assert!(found.clock.unwrap().offset.abs() < 40_000.0, "{:?}", found.clock);
        assert!(found.text(["a", "b"]).contains("4 TCP segments were split or joined"));
        assert_eq!(found.ways[0].marks, [(22 * ms, Mark::Lost, 1010), (25 * ms, Mark::Lost, 1012)]);
    }

    #[test]
    fn what_one_capture_missed_and_the_other_has_withdraws_a_finding_and_what_is_certain_stays() {
        let all: Vec<Sent> =
            (0..60).map(|n| Sent { time: n * 3_000_000, by_client: n % 2 == 0, delay: 20_000, lost: false }).collect();
        let (mut a, b) = captured(&all, 5_000, 0.0, false);
        let client = Addr::V4([10, 0, 0, 1]);
        let found = |certainty, frames: &[u64]| Found { certainty, frames: frames.to_vec(), address: Some(client) };
        let rule = Rule::SmbdCreditOverrun;
        let verdict =
            |a: &Point, b: &Point| Comparison::new(a, b).findings.iter().map(|t| t.verdict).collect::<Vec<_>>();
        a.findings.insert((rule, "client"), found(Certainty::IfNothingWasMissed, &[21]));
        assert_eq!(
            verdict(&a, &b),
            [Agreement::Only(0)],
            "the client stands behind the first point, which missed nothing"
        );
        // a packet of the client is missing from the first capture, and the second one has it
        let mut late =
            Point { packets: a.packets.clone(), span: a.span, findings: a.findings.clone(), ..Point::default() };
        late.packets.retain(|p| p.frame != 11);
        assert_eq!(verdict(&late, &b), [Agreement::Withdrawn(0)]);
        late.findings.insert((rule, "client"), found(Certainty::Certain, &[21]));
        assert_eq!(verdict(&late, &b), [Agreement::Only(0)], "what is certain is not withdrawn");
        late.findings.insert((rule, "client"), found(Certainty::IfNothingWasMissed, &[]));
        assert_eq!(verdict(&late, &b), [Agreement::Only(0)], "nor what has more frames than are kept");
        let mut other = Point { packets: b.packets.clone(), span: b.span, ..Point::default() };
        other.findings.insert((rule, "client"), found(Certainty::Certain, &[21]));
        assert_eq!(verdict(&a, &other), [Agreement::Certain(1)]);
        // reported about the client at the server's point, and not at the client's
        let mut far =
            Point { findings: a.findings.clone(), packets: b.packets.clone(), span: b.span, ..Point::default() };
        far.findings.insert((rule, "client"), found(Certainty::IfNothingWasMissed, &[21]));
        let mut near = a;
        near.findings.clear();
        assert_eq!(verdict(&near, &far), [Agreement::Withdrawn(1)]);
        far.findings.insert((Rule::SmbdCreditStall, "client"), found(Certainty::Guess, &[21]));
        assert_eq!(Comparison::new(&near, &far).json(["a", "b"])["findings"][0]["verdict"], "withdrawn");
    }
}
