//! The same packets at two points: which were lost between them, what was changed on the way, how long it took, and by how much the
//! clocks differ.
//!
//! A packet is known again by what routers do not change: on RoCE by queue pair, PSN, opcode and the invariant CRC, which is end to end by
//! design; on TCP by sequence and acknowledgment number, flags and bytes. So addresses, VLANs and tunnels may differ.
//!
//! Clocks: a packet cannot arrive before it was sent. With `f` the differences of times of packets one way and `r` of those the other way,
//! the offset `o(t)` of the clocks obeys `−r ≤ o(t) ≤ f` for all of them. Of all straight lines that do, the one in the middle is told, and
//! half of what is between the outermost as its uncertainty: it holds whatever the delays were, as long as the clocks drift evenly.

use crate::profile::Histogram;
use rdmascope_analyzer::exchange::Exchange;
use rdmascope_analyzer::finding::{Certainty, Rule};
use rdmascope_analyzer::report::Sink;
use rdmascope_dissector::field::{Def, id_of};
use rdmascope_dissector::frame::{Addr, Body, IbPacket, Packet, Segment, Tunnel};
use rdmascope_dissector::text::{Elapsed, Grouped};
use rdmascope_dissector::trace::{Trace, Value};
use serde_json::{Value as Json, json};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fmt::Write;
use std::hash::{DefaultHasher, Hash, Hasher};

/// Packets of one capture that are compared at most.
pub const PACKETS_MAX: usize = 1 << 23;
/// Frames of one kind that are listed.
const LISTED: usize = 100;
/// Copies of one packet that are told apart by their times.
const COPIES_MAX: usize = 32;
/// Points of a delay over time that are kept.
const STORY: usize = 512;
/// ns at both ends of a capture in which a packet may be missing because the other one began later or ended earlier.
const MARGIN: i64 = 1_000_000;

/// What a router may change, and what tells who sent a packet.
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

/// A packet as it was seen at a point.
#[derive(Clone, Copy, Debug)]
struct Seen {
    key: u64,
    /// The same without the bytes, where captures were cut.
    plain: u64,
    /// Its direction, known by what is the same at every point.
    way: u64,
    frame: u64,
    time: i64,
    outside: Outside,
}

/// Hears of a frame what only its fields tell.
#[derive(Clone, Copy, Debug, Default)]
pub struct Hop {
    ttl: u8,
    priority: u8,
}

impl Trace for Hop {
    const ON: bool = true;

    fn field(&mut self, def: Def, _: &[u8], _: usize, value: Value<'_>) {
        const TTL: u32 = id_of("ip.ttl");
        const HOPS: u32 = id_of("ipv6.hlim");
        const PRIORITY: u32 = id_of("vlan.priority");
        if let Value::U(n) = value {
            match def.id {
                TTL | HOPS => self.ttl = n as u8,
                PRIORITY => self.priority = n as u8,
                _ => {}
            }
        }
    }

    fn open(&mut self, _: Def, _: &[u8]) {}

    fn close(&mut self, _: &[u8]) {}
}

/// One capture.
#[derive(Debug, Default)]
pub struct Point {
    packets: Vec<Seen>,
    exchanges: Vec<(u64, &'static str, i64, u64)>,
    findings: BTreeMap<(Rule, &'static str), (Certainty, u64)>,
    span: Option<(i64, i64)>,
    /// Whether packets were cut by the capture.
    is_cut: bool,
    /// Packets beyond [`PACKETS_MAX`].
    pub left_out: u64,
}

impl Sink for Point {
    fn exchange(&mut self, exchange: &Exchange) {
        if let (Some(latency), true) = (exchange.latency(), self.exchanges.len() < PACKETS_MAX) {
            self.exchanges.push((exchange.request.frame, exchange.command, latency, exchange.message_id));
        }
    }
}

fn hash(parts: impl Hash) -> u64 {
    let mut hasher = DefaultHasher::new();
    parts.hash(&mut hasher);
    hasher.finish()
}

impl Point {
    /// A frame: what was decoded of it, what was heard, and its last four captured bytes of InfiniBand.
    pub fn packet(&mut self, frame: u64, time: i64, packet: &Packet<'_>, hop: &Hop, bytes: &[u8]) {
        self.span = Some(self.span.map_or((time, time), |(first, last)| (first.min(time), last.max(time))));
        let ([key, plain], way, ports) = match &packet.body {
            Body::Ib(ib) => (ib_keys(ib, bytes), hash(("ib", ib.bth.dest_qp)), (0, 0)),
            Body::Tcp(segment) => (tcp_keys(segment), hash("tcp"), (segment.src_port, segment.dst_port)),
            _ => return,
        };
        self.is_cut |= packet.cut > 0;
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
        self.packets.push(Seen { key, plain, way, frame, time, outside });
    }

    /// What its analysis found.
    pub fn findings(&mut self, findings: impl IntoIterator<Item = (Rule, &'static str, Certainty, u64)>) {
        for (rule, by, certainty, count) in findings {
            let known = self.findings.entry((rule, by)).or_insert((certainty, 0));
            *known = (known.0.max(certainty), known.1.saturating_add(count));
        }
    }
}

fn ib_keys(ib: &IbPacket<'_>, bytes: &[u8]) -> [u64; 2] {
    // behind the payload and its padding stands the invariant CRC
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

/// A straight line through the differences of two clocks.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Clock {
    /// When it was measured: ns since the Unix epoch, by the first clock.
    pub at: i64,
    /// The second clock minus the first one then, ns.
    pub offset: f64,
    /// By how much it may be off, ns, over the whole capture.
    pub uncertainty: f64,
    /// How much faster the second one goes: parts of one.
    pub drift: f64,
    /// By how much that may be off.
    pub drift_uncertainty: f64,
    /// Whether no even drift explains the times: one of the clocks was set meanwhile, or is uneven.
    pub uneven: bool,
    /// Whether packets were seen in both directions; of one alone the offset is only bounded on one side.
    pub both_ways: bool,
}

impl Clock {
    /// What the first clock showed when the second one showed this.
    pub fn first(&self, second: i64) -> i64 {
        let since = second.saturating_sub(self.at) as f64 - self.offset;
        second.saturating_sub((self.offset + self.drift * since) as i64)
    }

    fn offset_at(&self, time: i64) -> f64 {
        self.offset + self.drift * time.saturating_sub(self.at) as f64
    }
}

/// The clocks of two captures, of packets that went from the first to the second and the other way: times at the first, and how much
/// later the second one has them.
pub fn clock(forward: &[(i64, i64)], backward: &[(i64, i64)]) -> Option<Clock> {
    let times = || forward.iter().chain(backward).map(|(t, _)| *t);
    let (first, last) = (times().min()?, times().max()?);
    let at = first.saturating_add(last.saturating_sub(first) / 2);
    let relative = |points: &[(i64, i64)]| points.iter().map(|(t, d)| (t.saturating_sub(at) as f64, *d as f64)).collect::<Vec<_>>();
    // the offset is below every difference of the one way, and above every one of the other
    let upper = hull(relative(forward), 1.0);
    let lower = hull(relative(backward), -1.0);
    let both_ways = !upper.is_empty() && !lower.is_empty();
    let half = (last.saturating_sub(first) as f64 / 2.0).max(1.0);
    if !both_ways {
        // the least delay is taken for none
        let all = if upper.is_empty() { &lower } else { &upper };
        let sign = if upper.is_empty() { -1.0 } else { 1.0 };
        let best = all.iter().map(|(_, d)| d * sign).fold(f64::INFINITY, f64::min) * sign;
        return Some(Clock {
            at,
            offset: best,
            uncertainty: f64::INFINITY,
            drift: 0.0,
            drift_uncertainty: f64::INFINITY,
            uneven: false,
            both_ways,
        });
    }
    let top = |drift: f64| upper.iter().map(|(t, d)| d - drift * t).fold(f64::INFINITY, f64::min);
    let bottom = |drift: f64| lower.iter().map(|(t, d)| d - drift * t).fold(f64::NEG_INFINITY, f64::max);
    let gap = |drift: f64| top(drift) - bottom(drift);
    // concave: the drift that leaves most room, within what clocks do
    const MOST: f64 = 1e-3;
    let best = peak(gap, -MOST, MOST);
    let room = gap(best);
    // what is lost in a double, and what a clock drifts while a packet is on the way, is less than this
    const SLACK: f64 = 20.0;
    if room < -SLACK {
        let (offset, drift) = ((top(best) + bottom(best)) / 2.0, best);
        return Some(Clock { at, offset, uncertainty: -room, drift, drift_uncertainty: -room / half, uneven: true, both_ways });
    }
    let (least, most) = (edge(gap, best, -MOST), edge(gap, best, MOST));
    // the outermost lines at the middle and at both ends
    let reach = |t: f64| {
        let high = peak(|drift| top(drift) + drift * t, least, most);
        let low = peak(|drift| -(bottom(drift) + drift * t), least, most);
        (top(high) + high * t, bottom(low) + low * t)
    };
    let (high, low) = reach(0.0);
    let (offset, drift) = ((high + low) / 2.0, (least + most) / 2.0);
    let worst = [-half, 0.0, half].map(|t| {
        let (high, low) = reach(t);
        let told = offset + drift * t;
        (high - told).max(told - low)
    });
    let uncertainty = worst.into_iter().fold(0.0, f64::max) + SLACK;
    Some(Clock { at, offset, uncertainty, drift, drift_uncertainty: (most - least) / 2.0 + SLACK / half, uneven: false, both_ways })
}

/// The lower hull of points (`side` 1), or the upper one (`side` −1).
fn hull(mut points: Vec<(f64, f64)>, side: f64) -> Vec<(f64, f64)> {
    points.sort_by(|a, b| a.0.total_cmp(&b.0).then((side * a.1).total_cmp(&(side * b.1))));
    let mut kept: Vec<(f64, f64)> = Vec::new();
    for p in points {
        while let [.., a, b] = kept[..] {
            if side * ((b.0 - a.0) * (p.1 - a.1) - (b.1 - a.1) * (p.0 - a.0)) > 0.0 {
                break;
            }
            kept.pop();
        }
        kept.push(p);
    }
    kept
}

/// Where a concave function is greatest.
fn peak(f: impl Fn(f64) -> f64, mut low: f64, mut high: f64) -> f64 {
    for _ in 0..200 {
        let (a, b) = (low + (high - low) / 3.0, high - (high - low) / 3.0);
        if f(a) < f(b) { low = a } else { high = b }
    }
    (low + high) / 2.0
}

/// Where a concave function that is not negative at `inside` becomes so on the way to `outside`.
fn edge(f: impl Fn(f64) -> f64, inside: f64, outside: f64) -> f64 {
    if f(outside) >= 0.0 {
        return outside;
    }
    let (mut good, mut bad) = (inside, outside);
    for _ in 0..100 {
        let middle = (good + bad) / 2.0;
        if f(middle) >= 0.0 { good = middle } else { bad = middle }
    }
    good
}

/// What was found of one direction.
#[derive(Clone, Debug, Default)]
pub struct Way {
    /// Packets seen at both points.
    pub matched: u64,
    /// Packets seen where they were sent and not where they were to arrive: how many, and frames of the first.
    pub lost: (u64, Vec<u64>),
    /// Packets seen only where they were to arrive: the other capture missed them.
    pub unseen: (u64, Vec<u64>),
    /// Packets that arrived at the second point and were sent again all the same: lost behind it, or their acknowledgment was.
    pub sent_again: (u64, Vec<u64>),
    /// Packets that overtook others between the points.
    pub reordered: (u64, Vec<u64>),
    /// One-way delay, ns.
    pub delay: Histogram,
    /// Delay over time: when, by the first clock, and how long, thinned.
    pub story: Vec<(i64, i64)>,
}

/// What was changed on the way: what, from, to; and how many packets.
pub type Changes = BTreeMap<(&'static str, String, String), u64>;

/// Time of requests of one command: seen at the first point, and at the second.
#[derive(Clone, Debug, Default)]
pub struct Times {
    /// At the first point.
    pub first: Histogram,
    /// At the second point.
    pub second: Histogram,
    /// The difference: between the points, both ways.
    pub between: Histogram,
}

/// Two captures held against each other.
#[derive(Clone, Debug, Default)]
pub struct Comparison {
    /// Packets of both.
    pub packets: [u64; 2],
    /// The clocks, where any packet was seen twice.
    pub clock: Option<Clock>,
    /// From the first point to the second, and back.
    pub ways: [Way; 2],
    /// What was changed.
    pub changes: Changes,
    /// Requests by command.
    pub times: BTreeMap<&'static str, Times>,
    /// Findings: rule and side; whether the first, whether the second has it.
    pub findings: Vec<(Rule, &'static str, bool, bool)>,
}

fn note(list: &mut (u64, Vec<u64>), frame: u64) {
    list.0 += 1;
    if list.1.len() < LISTED {
        list.1.push(frame);
    }
}

/// Packets with the same key, by place in the capture.
fn by_key(packets: &[Seen], plain: bool) -> HashMap<u64, Vec<usize>> {
    let mut found: HashMap<u64, Vec<usize>> = HashMap::new();
    for (place, packet) in packets.iter().enumerate() {
        found.entry(if plain { packet.plain } else { packet.key }).or_default().push(place);
    }
    found
}

impl Comparison {
    /// Finds the packets of `a` in `b`.
    pub fn new(a: &Point, b: &Point) -> Self {
        let mut this = Self { packets: [a.packets.len() as u64, b.packets.len() as u64], ..Self::default() };
        let plain = a.is_cut || b.is_cut;
        let (in_a, in_b) = (by_key(&a.packets, plain), by_key(&b.packets, plain));
        // those that were sent once and seen once tell the clocks
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
            this.compare_findings(a, b);
            return this;
        };
        // copies and packets that were sent again: each with the one that is nearest in time
        for (key, places) in &in_a {
            let Some(others) = in_b.get(key).filter(|others| places.len() > 1 || others.len() > 1) else { continue };
            if places.len().max(others.len()) > COPIES_MAX {
                // so many that only their order tells them apart
                for (place, other) in places.iter().zip(others) {
                    pairs[*place] = Some(*other);
                    taken[*other] = true;
                }
                continue;
            }
            let mut others = others.clone();
            for place in places {
                let time = a.packets[*place].time;
                let distance = |other: &usize| clock.first(b.packets[*other].time).saturating_sub(time).unsigned_abs();
                let Some(nearest) = (0..others.len()).min_by_key(|n| distance(&others[*n])) else { break };
                // a packet that was lost has its second copy as the nearest: that one is another packet's
                let rivals = places.iter().filter(|p| !std::ptr::eq(*p, place) && pairs[**p].is_none());
                let mine = distance(&others[nearest]);
                let is_rivals = rivals
                    .into_iter()
                    .any(|rival| clock.first(b.packets[others[nearest]].time).saturating_sub(a.packets[*rival].time).unsigned_abs() < mine);
                if !is_rivals {
                    let other = others.swap_remove(nearest);
                    pairs[*place] = Some(other);
                    taken[other] = true;
                }
            }
        }
        this.ways(a, b, &pairs, &taken, &flows, &clock);
        this.requests(a, b, &pairs);
        this.compare_findings(a, b);
        this
    }

    fn ways(&mut self, a: &Point, b: &Point, pairs: &[Option<usize>], taken: &[bool], flows: &Flows, clock: &Clock) {
        // lost is only what the other capture would have had: as far as the clocks are known
        let margin = MARGIN.saturating_add(if clock.both_ways { clock.uncertainty as i64 } else { 0 });
        let within = |span: Option<(i64, i64)>, time: i64| {
            span.is_some_and(|(first, last)| (first.saturating_add(margin)..=last.saturating_sub(margin)).contains(&time))
        };
        let mut again: HashMap<(u64, u64), bool> = HashMap::new();
        let mut newest: HashMap<Flow, usize> = HashMap::new();
        for (place, packet) in a.packets.iter().enumerate() {
            let Some(&from_a) = flows.of_a.get(&flow(packet)) else { continue };
            let way = &mut self.ways[usize::from(!from_a)];
            let Some(other) = pairs[place] else {
                let there = packet.time.saturating_add(clock.offset_at(packet.time) as i64);
                if within(b.span, there) {
                    note(if from_a { &mut way.lost } else { &mut way.unseen }, packet.frame);
                }
                // it is the one that is sent again, if it is
                if from_a && *again.entry((packet.way, packet.key)).or_insert(false) {
                    note(&mut way.sent_again, packet.frame);
                }
                continue;
            };
            let there = &b.packets[other];
            way.matched += 1;
            let forth = clock.first(there.time).saturating_sub(packet.time);
            let delay = if from_a { forth } else { forth.saturating_neg() };
            way.delay.add(delay);
            way.story.push((packet.time, delay));
            let arrived = again.insert((packet.way, packet.key), true);
            if from_a && arrived == Some(true) {
                note(&mut way.sent_again, packet.frame);
            }
            let latest = newest.entry(flow(packet)).or_insert(other);
            if other < *latest {
                note(&mut way.reordered, packet.frame);
            }
            *latest = (*latest).max(other);
            self.changed(&packet.outside, &there.outside, from_a);
        }
        for (place, packet) in b.packets.iter().enumerate() {
            let Some(&from_a) = flows.of_b.get(&flow(packet)).filter(|_| !taken[place]) else { continue };
            if within(a.span, clock.first(packet.time)) {
                let way = &mut self.ways[usize::from(!from_a)];
                note(if from_a { &mut way.unseen } else { &mut way.lost }, packet.frame);
            }
        }
        for way in &mut self.ways {
            way.story.sort_unstable();
            let step = way.story.len().div_ceil(STORY).max(1);
            // the longest of each step: spikes are what is looked for
            way.story = way.story.chunks(step).filter_map(|c| c.iter().max_by_key(|(_, d)| *d).copied()).collect();
        }
    }

    fn changed(&mut self, here: &Outside, there: &Outside, from_a: bool) {
        if here == there {
            return;
        }
        let (was, is) = if from_a { (here, there) } else { (there, here) };
        let mut note = |what: &'static str, was: String, is: String| {
            if was != is && self.changes.len() < 1 << 12 {
                *self.changes.entry((what, was, is)).or_default() += 1;
            }
        };
        let vlan = |v: Option<u16>| v.map_or("none".to_owned(), |v| v.to_string());
        let tunnel = |t: Option<Tunnel>| t.map_or("none".to_owned(), |t| format!("{} {}", t.kind.name(), t.id));
        note("source address", was.src.to_string(), is.src.to_string());
        note("destination address", was.dst.to_string(), is.dst.to_string());
        note("source port", was.ports.0.to_string(), is.ports.0.to_string());
        note("destination port", was.ports.1.to_string(), is.ports.1.to_string());
        note("DSCP", was.dscp.to_string(), is.dscp.to_string());
        note("ECN", was.ecn.to_string(), is.ecn.to_string());
        note("TTL", was.ttl.to_string(), is.ttl.to_string());
        note("VLAN", vlan(was.vlan), vlan(is.vlan));
        note("VLAN priority", was.priority.to_string(), is.priority.to_string());
        note("tunnel", tunnel(was.tunnel), tunnel(is.tunnel));
    }

    fn requests(&mut self, a: &Point, b: &Point, pairs: &[Option<usize>]) {
        let frames: HashMap<u64, u64> =
            a.packets.iter().zip(pairs).filter_map(|(packet, pair)| Some((packet.frame, b.packets[(*pair)?].frame))).collect();
        let there: HashMap<(u64, u64), i64> = b.exchanges.iter().map(|(frame, _, latency, id)| ((*frame, *id), *latency)).collect();
        for (frame, command, latency, id) in &a.exchanges {
            let Some(second) = frames.get(frame).and_then(|frame| there.get(&(*frame, *id))) else { continue };
            let times = self.times.entry(command).or_default();
            times.first.add(*latency);
            times.second.add(*second);
            times.between.add((latency - second).abs());
        }
    }

    fn compare_findings(&mut self, a: &Point, b: &Point) {
        let all: BTreeSet<_> = a.findings.keys().chain(b.findings.keys()).copied().collect();
        self.findings = all.into_iter().map(|key| (key.0, key.1, a.findings.contains_key(&key), b.findings.contains_key(&key))).collect();
    }

    /// For a person.
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
            let _ = writeln!(out, "  {} is {} {sign} {} (± {})", names[1], ns(clock.offset.abs()), names[0], ns(clock.uncertainty));
            let ppm = |x: f64| x * 1e6;
            let _ = writeln!(out, "  and goes {:+.3} ppm (± {:.3}) faster", ppm(clock.drift), ppm(clock.drift_uncertainty));
            if clock.uneven {
                let _ = writeln!(out, "  No even drift explains the times: a clock was set meanwhile, or is uneven.");
            }
        } else {
            let _ = writeln!(out, "  Packets were seen one way only: delays are told above the shortest, and the offset is not known.");
        }
        for (n, way) in self.ways.iter().enumerate() {
            let (from, to) = (names[n], names[1 - n]);
            let _ = writeln!(out, "\n{from} → {to}: {} packets", Grouped(way.matched));
            let at = |part: f64| Elapsed(way.delay.quantile(part).unwrap_or(0));
            if way.delay.count() > 0 {
                let sure = if clock.both_ways { format!(" (± {})", ns(clock.uncertainty)) } else { String::new() };
                let max = Elapsed(way.delay.max().unwrap_or(0));
                let _ = writeln!(out, "  one-way delay: median {}, p99 {}, longest {max}{sure}", at(0.5), at(0.99));
            }
            let lines = [
                (&way.lost, "lost between the points", from),
                (&way.sent_again, "arrived and sent again: lost behind the second point, or the acknowledgment was", from),
                (&way.reordered, "overtaken by later ones between the points", names[0]),
                (&way.unseen, "seen only where they arrived: not captured where they were sent", to),
            ];
            for ((count, frames), what, whose) in lines {
                if *count > 0 {
                    let shown: Vec<String> = frames.iter().take(12).map(u64::to_string).collect();
                    let more = if *count > 12 { ", …" } else { "" };
                    let _ = writeln!(out, "  {} {what} (frames of {whose}: {}{more})", Grouped(*count), shown.join(", "));
                }
            }
        }
        if !self.changes.is_empty() {
            let _ = writeln!(out, "\nChanged on the way");
            for ((what, was, is), count) in &self.changes {
                let told = match *what {
                    "DSCP" if is == "0" => ": bleached",
                    "ECN" if is == "3" => ": congestion",
                    _ => "",
                };
                let _ = writeln!(out, "  {what} {was} → {is}{told} ({} packets)", Grouped(*count));
            }
        }
        if !self.times.is_empty() {
            let _ = writeln!(out, "\nRequests (median, p99)");
            for (command, times) in &self.times {
                let pair = |h: &Histogram| format!("{}, {}", Elapsed(h.quantile(0.5).unwrap_or(0)), Elapsed(h.quantile(0.99).unwrap_or(0)));
                let (first, second, between) = (pair(&times.first), pair(&times.second), pair(&times.between));
                let count = times.first.count();
                let _ = writeln!(out, "  {command} × {count}: {} {first}; {} {second}; between {between}", names[0], names[1]);
            }
        }
        type Row = (Rule, &'static str, bool, bool);
        let (both, one): (Vec<Row>, Vec<Row>) = self.findings.iter().copied().partition(|(_, _, a, b)| *a && *b);
        if !self.findings.is_empty() {
            let _ = writeln!(out, "\nFindings");
            for (rule, by, ..) in both {
                let _ = writeln!(out, "  {} by {by}: at both points", rule.id());
            }
            for (rule, by, a, _) in one {
                let _ = writeln!(out, "  {} by {by}: only at {}", rule.id(), names[usize::from(!a)]);
            }
        }
        out
    }

    /// For programs.
    pub fn json(&self, names: [&str; 2]) -> Json {
        let seconds = |ns: f64| if ns.is_finite() { json!(ns / 1e9) } else { Json::Null };
        let quantiles = |h: &Histogram| {
            let at = |part: f64| h.quantile(part).map(|ns| ns as f64 / 1e9);
            json!({"count": h.count(), "min": h.min().map(|n| n as f64 / 1e9), "median": at(0.5), "p99": at(0.99), "max": h.max().map(|n| n as f64 / 1e9)})
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
                "delay_over_time": w.story.iter().map(|(t, d)| json!([*t as f64 / 1e9, *d as f64 / 1e9])).collect::<Vec<_>>(),
            })
        };
        json!({
            "rdmascope": env!("CARGO_PKG_VERSION"),
            "schema": 1,
            "points": names,
            "packets": self.packets,
            "clock": self.clock.map(|c| json!({
                "offset": seconds(c.offset),
                "uncertainty": seconds(c.uncertainty),
                "drift_ppm": c.drift * 1e6,
                "drift_uncertainty_ppm": if c.drift_uncertainty.is_finite() { json!(c.drift_uncertainty * 1e6) } else { Json::Null },
                "uneven": c.uneven,
                "both_ways": c.both_ways,
            })),
            "ways": [way(0), way(1)],
            "changes": self.changes.iter().map(|((what, was, is), n)| json!({"what": what, "from": was, "to": is, "packets": n})).collect::<Vec<_>>(),
            "requests": self.times.iter().map(|(command, t)| json!({
                "command": command,
                "first": quantiles(&t.first),
                "second": quantiles(&t.second),
                "between": quantiles(&t.between),
            })).collect::<Vec<_>>(),
            "findings": self.findings.iter().map(|(rule, by, a, b)| json!({"id": rule.id(), "by": by, "first": a, "second": b})).collect::<Vec<_>>(),
        })
    }
}

/// The JSON Schema of [`Comparison::json`].
pub fn schema() -> Json {
    let count = json!({"type": "integer", "minimum": 0});
    let number = json!({"type": ["number", "null"]});
    let times = json!({
        "type": "object",
        "properties": {"count": count, "min": number, "median": number, "p99": number, "max": number},
        "required": ["count", "min", "median", "p99", "max"],
        "description": "Seconds.",
    });
    let list = json!({
        "type": "object",
        "properties": {"count": count, "frames": {"type": "array", "items": count}},
        "required": ["count", "frames"],
    });
    let one = json!({
        "type": "object",
        "properties": {
            "rdmascope": {"type": "string", "description": "Version of the program."},
            "schema": {"const": 1},
            "points": {"type": "array", "items": {"type": "string"}},
            "packets": {"type": "array", "items": count},
            "clock": {"type": ["object", "null"], "properties": {
                "offset": {"type": ["number", "null"], "description": "Seconds that the second clock is ahead, in the middle of the capture."},
                "uncertainty": number,
                "drift_ppm": {"type": "number"},
                "drift_uncertainty_ppm": number,
                "uneven": {"type": "boolean"},
                "both_ways": {"type": "boolean"},
            }},
            "ways": {"type": "array", "items": {"type": "object", "properties": {
                "from": {"type": "string"},
                "to": {"type": "string"},
                "matched": count,
                "delay": times,
                "lost_between": list,
                "sent_again": list,
                "reordered": list,
                "not_captured": list,
                "delay_over_time": {"type": "array", "items": {"type": "array", "items": {"type": "number"}}},
            }}},
            "changes": {"type": "array", "items": {"type": "object", "properties": {
                "what": {"type": "string"}, "from": {"type": "string"}, "to": {"type": "string"}, "packets": count,
            }}},
            "requests": {"type": "array", "items": {"type": "object", "properties": {
                "command": {"type": "string"}, "first": times, "second": times, "between": times,
            }}},
            "findings": {"type": "array", "items": {"type": "object", "properties": {
                "id": {"type": "string"}, "by": {"type": "string"}, "first": {"type": "boolean"}, "second": {"type": "boolean"},
            }}},
        },
        "required": ["rdmascope", "schema", "points", "packets", "clock", "ways", "changes", "requests", "findings"],
    });
    json!({
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "rdmascope compare --format json",
        "anyOf": [one, {"type": "array", "items": one, "description": "One for each capture behind the first, where there are several."}],
    })
}

/// One direction of a connection at one point.
type Flow = (u64, Addr, Addr, (u16, u16));

fn flow(packet: &Seen) -> Flow {
    (packet.way, packet.outside.src, packet.outside.dst, packet.outside.ports)
}

/// Of two hosts: the sender of the last packet with its difference, and how often each sender had the greater one.
type Votes = (Option<(Addr, i64)>, BTreeMap<Addr, u64>);

/// Which flows go from the first point to the second.
#[derive(Debug, Default)]
struct Flows {
    of_a: HashMap<Flow, bool>,
    of_b: HashMap<Flow, bool>,
}

/// The directions: what of two hosts' packets comes sooner at which point is known but for the clocks, and both ways together tell them.
fn directions(a: &Point, b: &Point, pairs: &[Option<usize>]) -> Flows {
    let mut same: BTreeMap<Flow, Flow> = BTreeMap::new();
    for (packet, pair) in a.packets.iter().zip(pairs) {
        if let Some(other) = pair.map(|place| &b.packets[place]) {
            same.entry(flow(packet)).or_insert_with(|| flow(other));
        }
    }
    let mut flows = Flows::default();
    // of two packets that pass each other, the one to the second point has the greater difference
    let hosts = |f: &Flow| if f.1 <= f.2 { (f.1, f.2) } else { (f.2, f.1) };
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
        let greatest = votes.get(&hosts(f)).and_then(|(_, senders)| senders.iter().max_by_key(|(_, n)| **n).map(|(sender, _)| *sender));
        let from_a = greatest.is_none_or(|sender| sender == f.1);
        flows.of_a.insert(*f, from_a);
        flows.of_b.insert(*there, from_a);
    }
    flows
}

fn clocks(a: &Point, b: &Point, pairs: &[Option<usize>], flows: &Flows) -> Option<Clock> {
    let (mut forward, mut backward) = (Vec::new(), Vec::new());
    for (packet, pair) in a.packets.iter().zip(pairs) {
        let Some(other) = pair.map(|place| &b.packets[place]) else { continue };
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

    /// A packet of a connection between two hosts, as it is sent: when, from which side, and how long it takes.
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
        Seen { key: n as u64, plain: n as u64, way: u64::from(sent.by_client), frame: n as u64 + 1, time, outside }
    }

    /// What the client's and the server's capture have, the server's clock being `offset` ahead and drifting.
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
                let told: BTreeSet<u64> = found.ways[way].lost.1.iter().copied().collect();
                prop_assert!(told.is_subset(&frames));
                // where few packets are left, the clocks are not known well enough to tell that the other capture had begun
                let length = all.last().map_or(0, |s| s.time) as f64;
                if clock.uncertainty < 4e5 && clock.drift_uncertainty * length < 4e5 {
                    prop_assert_eq!(&told, &frames);
                }
                prop_assert_eq!(found.ways[way].unseen.0, 0);
            }
            prop_assert_eq!(found.changes.contains_key(&("DSCP", "26".to_owned(), "0".to_owned())), nat && found.ways[0].matched > 0);
        }
    }

    #[test]
    fn captures_without_a_common_packet_say_so() {
        let found = Comparison::new(&Point::default(), &Point::default());
        assert!(found.clock.is_none() && found.text(["a", "b"]).contains("nothing in common"));
        assert_eq!(found.json(["a", "b"])["clock"], Json::Null);
    }

    #[test]
    fn a_capture_held_against_itself_has_one_even_clock() {
        let points: Vec<(i64, i64)> = (0..100).map(|n| (n * 1_234_567, 0)).collect();
        let same = clock(&points, &points).unwrap();
        assert!(!same.uneven && same.offset.abs() < 1.0, "{same:?}");
    }

    #[test]
    fn a_clock_that_is_set_meanwhile_is_uneven() {
        let forward: Vec<(i64, i64)> = (0..100).map(|n| (n * 1_000_000, if n < 50 { 10_000 } else { 5_000_000 })).collect();
        let backward: Vec<(i64, i64)> = (0..100).map(|n| (n * 1_000_000 + 5, if n < 50 { -10_000 } else { 4_980_000 })).collect();
        assert!(clock(&forward, &backward).unwrap().uneven);
    }
}
