//! Compares the same packets at two points: losses between them, changes on the way, delays, and the offset of the
//! clocks.
//!
//! Packets are matched by values that routers do not change: on RoCE queue pair, PSN, opcode and the invariant CRC,
//! which is end to end by design; on TCP sequence and acknowledgment number, flags and bytes. So addresses, VLANs and
//! tunnels may differ.

use crate::changes::{resized, spoilt};
pub use crate::clock::{Clock, clock};
use crate::directions::{Both, Coverage, Flows, holes};
use crate::history::{Fate, History};
use crate::packets::{Flow, Outside, TCP, flow, hosts};
use crate::pairs::{Copies, Pairs, SAME_MOMENT, alike, by_key, repetitions};
use crate::point::{Followed, Key, SeenRequest};
pub use crate::point::{Hop, PACKETS_MAX, Point};
use crate::profile::Histogram;
use crate::schema::{list, object};
use rdmascope_analyzer::finding::{Blame, Certainty, Rule, Severity};
use rdmascope_analyzer::rules::Group;
use rdmascope_dissector::frame::{Addr, TunnelKind};
use rdmascope_dissector::text::{Elapsed, Grouped, escaped};
use serde_json::{Value as Json, json};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::fmt::Write;

/// Limit of frames listed for one kind of event.
const LISTED: usize = 100;
/// Limit of events kept for one direction.
const MARKS_MAX: usize = 1000;
/// Limit of points of a delay over time.
const DELAYS_MAX: usize = 512;
/// Limit of requests reported individually: the slowest at the first point.
const SLOWEST: usize = 100;
/// Limit of these in the text.
const SLOWEST_SHOWN: usize = 5;
/// Round trips between the points after which a lost packet was sent again, and the least time for it in ns.
const ROUND_TRIPS: i64 = 4;
const WAIT: i64 = 1_000_000;
/// Limit of directions that only one point has, in the text.
const ALONE_SHOWN: usize = 12;

/// Number of packets, and the frames of the first of them.
pub type Listed = (u64, Vec<u64>);

/// A list with what it says, and the point whose frames it names.
type Line<'w, 'n> = (&'w Listed, String, &'n str);

/// Results for one direction.
#[derive(Clone, Debug, Default)]
pub struct DirectionResult {
    /// Packets at both points.
    pub matched: u64,
    /// True if the direction of some of them is assumed: neither hop limits nor times tell it for certain.
    pub is_assumed: bool,
    /// Packets that were lost between the points: number, and their first frames where they were sent.
    pub lost: Listed,
    /// Packets that arrived, and that the other capture missed: frames where they were sent.
    pub missed: Listed,
    /// Packets captured only where they were sent, which were lost or missed: nothing tells which.
    pub undecided: Listed,
    /// Packets that were damaged between the points: frames where they were sent.
    pub damaged: Listed,
    /// Packets captured only where they arrived: frames there.
    pub unseen: Listed,
    /// Those of them that may have been made between the points: resets, and packets that were sent once and arrived
    /// twice.
    pub maybe_made: Listed,
    /// Copies of packets, with the same identification and soon after them, that only one point has: of the first and
    /// of the second.
    pub copies: [Listed; 2],
    /// Packets that arrived and were sent again: lost behind the point where they arrived, or their acknowledgment was
    /// lost or late. Frames where they were sent.
    pub sent_again: Listed,
    /// Packets that later ones overtook between the points: frames of the first point.
    pub reordered: Listed,
    /// One-way delay, in ns.
    pub delay: Histogram,
    /// Delay over time by the first clock, thinned out.
    pub delays: Vec<(i64, i64)>,
    /// Losses, packets that were sent again, and overtaken ones: time by the first clock, kind, and frame.
    pub marks: Vec<(i64, Mark, u64)>,
}

/// Event of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Mark {
    /// Lost between the points.
    Lost,
    /// Lost between the points, or not captured where it should arrive.
    Undecided,
    /// It arrived and was sent again.
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
    /// The connection in each of the two.
    pub connections: [Option<u32>; 2],
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

    /// Its lists that are not empty, each with what it says and the point whose frames it names. `n` is its place in
    /// [`Comparison::ways`].
    pub(crate) fn lists<'n>(&self, n: usize, names: [&'n str; 2]) -> Vec<Line<'_, 'n>> {
        let (from, to) = (names[n], names[1 - n]);
        let copies = "copies that only this point has: made by a mirror, or between the points";
        let made = if self.maybe_made.0 == 0 { "" } else { ", or made between the points" };
        let lists = [
            (&self.lost, "lost between the points".to_owned(), from),
            (&self.missed, "arrived, but not captured there".to_owned(), from),
            (&self.undecided, "lost or not captured".to_owned(), from),
            (&self.damaged, "damaged between the points".to_owned(), from),
            (
                &self.sent_again,
                format!("arrived and sent again: lost behind {to}, or the acknowledgment was lost or late"),
                from,
            ),
            (&self.reordered, "overtaken by later ones between the points".to_owned(), names[0]),
            (&self.unseen, format!("seen only where they arrived: not captured where they were sent{made}"), to),
            (&self.copies[0], copies.to_owned(), names[0]),
            (&self.copies[1], copies.to_owned(), names[1]),
        ];
        lists.into_iter().filter(|(list, ..)| list.0 > 0).collect()
    }
}

/// Packets of one direction of a connection of which one point has none.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Alone {
    /// The point that has them.
    pub at: usize,
    /// Their sender and their receiver, as seen there.
    pub hosts: (Addr, Addr),
    /// TCP ports.
    pub ports: Option<(u16, u16)>,
    /// The queue pair they go to.
    pub queue_pair: Option<u32>,
    /// True if they were sent at this point, false if they arrived there; `None` if that is not known.
    pub is_sender: Option<bool>,
    /// True if it is known that some of them arrived at the other point.
    pub has_arrived: bool,
    /// Their number, and the first frames.
    pub packets: Listed,
}

impl Alone {
    fn new(at: usize, flow: Flow, is_sender: Option<bool>) -> Self {
        let (way, src, dst, ports) = flow;
        let (ports, queue_pair) = if way == TCP { (Some(ports), None) } else { (None, Some(way as u32)) };
        Self { at, hosts: (src, dst), ports, queue_pair, is_sender, has_arrived: false, packets: (0, Vec::new()) }
    }

    /// The direction: hosts, and ports or the queue pair.
    pub fn direction(&self) -> String {
        let (src, dst) = self.hosts;
        match (self.ports, self.queue_pair) {
            (Some((from, to)), _) => format!("{src} port {from} → {dst} port {to}"),
            (None, Some(qp)) => format!("{src} → {dst}, queue pair {qp:#x}"),
            (None, None) => format!("{src} → {dst}"),
        }
    }

    /// What the other point tells of them.
    pub fn words(&self, names: [&str; 2]) -> String {
        let other = names[1 - self.at];
        match self.is_sender {
            Some(true) if self.has_arrived => format!("they arrived, and the capture of {other} leaves them out"),
            Some(true) => {
                format!("none was captured at {other}: they do not get there, or that capture leaves them out")
            }
            Some(false) => format!("none was captured at {other}, where they were sent: that capture leaves them out"),
            None => format!("none was captured at {other}"),
        }
    }
}

impl Joint {
    /// What the two captures show together.
    pub(crate) fn words(&self, names: [&str; 2]) -> String {
        match self.verdict {
            Agreement::Both => "at both points".to_owned(),
            Agreement::Certain(at) => format!("at both points; certain by {}", names[at]),
            Agreement::Only(at) => format!("only at {}", names[at]),
            Agreement::Withdrawn(at) if self.rule == Rule::RcRetransmit => {
                format!("{} has it; {} shows that the packets arrived", names[at], names[1 - at])
            }
            Agreement::Withdrawn(at) => {
                format!("{} has it; {} has these frames but not the finding", names[at], names[1 - at])
            }
        }
    }
}

/// Findings that say the same of several connections, and the number of these.
pub(crate) fn alike_findings(findings: &[Joint]) -> Vec<(&Joint, usize)> {
    let mut found: Vec<(&Joint, usize)> = Vec::new();
    for one in findings {
        let is_same = |known: &Joint| (known.rule, known.by, known.verdict) == (one.rule, one.by, one.verdict);
        match found.iter_mut().rev().take_while(|(known, _)| known.rule == one.rule).find(|(known, _)| is_same(known)) {
            Some((_, count)) => *count += 1,
            None => found.push((one, 1)),
        }
    }
    found
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
            ("ECN", "1" | "2", "3") => Some("congestion"),
            ("ECN", "0", "3") => Some("marked, though not capable of ECN"),
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
    /// Packets that are alike in both captures though these are of different conversations.
    pub chance: u64,
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
    /// Directions of connections that only one point has.
    pub alone: Vec<Alone>,
    /// Findings of both.
    pub findings: Vec<Joint>,
}

fn note(list: &mut Listed, frame: u64) {
    list.0 += 1;
    if list.1.len() < LISTED {
        list.1.push(frame);
    }
}

/// Points (0 or 1) that missed packets, each with the hosts of these by their addresses at the other point.
type Missed = HashSet<(usize, (Addr, Addr))>;

impl Comparison {
    /// Matches the packets of `a` and `b`.
    pub fn new(a: &Point, b: &Point) -> Self {
        Self::telling(a, b, |_| {})
    }

    /// The same, and passes each request of both points to `each`.
    pub fn telling(a: &Point, b: &Point, mut each: impl FnMut(&Timed)) -> Self {
        let mut this = Self { packets: [a.packets.len() as u64, b.packets.len() as u64], ..Self::default() };
        let points = [a, b];
        let is_cut = a.is_cut || b.is_cut;
        let copies = points.map(|point| Copies::new(&point.packets, is_cut));
        let of = points.map(|point| vec![None; point.packets.len()]);
        let mut pairs = Pairs { points, copies: [&copies[0], &copies[1]], of };
        // packets without repetitions give the clocks
        pairs.join_unique(is_cut, [&|_| true, &|_| true], |_, _| true);
        // addresses and the invariant CRC of some were both rewritten: numbers are left to match
        let known = [pairs.known(0), pairs.known(1)];
        if !is_cut {
            let hosts = pairs.known_hosts();
            let is_left = [0, 1].map(|at| {
                let known = &known[at];
                move |flow: &Flow| !known.contains(flow)
            });
            pairs.join_unique(true, [&is_left[0], &is_left[1]], |here, there| hosts.fit_in_time(here, there));
        }
        let [in_a, in_b] = [0, 1].map(|at| {
            let renumbered: HashSet<Flow> = pairs.known(at).difference(&known[at]).copied().collect();
            let is_plain = is_cut || known[at].is_empty() && !renumbered.is_empty();
            by_key(&points[at].packets, |place, packet| {
                let is_plain = is_plain || renumbered.contains(&flow(packet));
                (!copies[at].is_copy[place]).then_some(if is_plain { packet.plain } else { packet.key })
            })
        });
        // everything was repeated: the first of each
        if pairs.frames().next().is_none() {
            for (key, places) in &in_a {
                if let Some(others) = in_b.get(key) {
                    pairs.join(places[0], others[0]);
                }
            }
        }
        let mut histories =
            [0, 1].map(|at| History::new(&points[at].packets, &copies[at].is_copy, &points[at].reverse));
        let flows = Flows::new(&pairs, &histories);
        this.clock = clocks(&pairs, &flows);
        let Some(clock) = this.clock else {
            this.compare_findings(&pairs, &flows, &Missed::new());
            return this;
        };
        // match repetitions: as many as possible, in order, by the delay of packets without
        let forth = |place: usize, other: usize| {
            let packet = &a.packets[place];
            let forth = clock.first(b.packets[other].time).saturating_sub(packet.time);
            flows.of[0]
                .get(&flow(packet))
                .map(|way| (way.index(), if way.from_a { forth } else { forth.saturating_neg() }))
        };
        let mut once: [Histogram; 2] = Default::default();
        for (place, other) in pairs.of[0].iter().enumerate().filter_map(|(place, pair)| Some((place, (*pair)?))) {
            if let Some((way, delay)) = forth(place, other) {
                once[way].add(delay);
            }
        }
        let typical = once.map(|h| h.quantile(0.5).unwrap_or(0));
        let slack = if clock.both_ways { clock.uncertainty as i64 } else { i64::MAX };
        let hosts = pairs.known_hosts();
        let can_be = |place: usize, other: usize| hosts.fit(&a.packets[place], &b.packets[other]);
        let cost = |place: usize, other: usize| {
            let (way, delay) = forth(place, other).filter(|_| can_be(place, other))?;
            // nothing arrives before it was sent
            (delay >= slack.saturating_neg()).then(|| delay.saturating_sub(typical[way]).unsigned_abs())
        };
        for (key, places) in &in_a {
            let Some(others) = in_b.get(key).filter(|others| places.len() > 1 || others.len() > 1) else { continue };
            for group in repetitions(a, b, places, others) {
                let left = |pairs: &Pairs<'_>, at: usize, all: &mut dyn Iterator<Item = usize>| {
                    let mut left: Vec<usize> = all.filter(|place| pairs.of[at][*place].is_none()).collect();
                    left.sort_unstable();
                    left
                };
                let places = left(&pairs, 0, &mut group.0.iter().copied());
                let others = left(&pairs, 1, &mut group.1.iter().copied());
                for (place, other) in alike(&places, &others, can_be, cost) {
                    pairs.join(place, other);
                }
                // what was taken for a copy at one point and not at the other
                let with_copies = |at: usize, all: &[usize]| {
                    let copies = all.iter().flat_map(|place| copies[at].of(*place));
                    all.iter().chain(copies).copied().collect::<Vec<usize>>()
                };
                let places = left(&pairs, 0, &mut with_copies(0, &group.0).into_iter());
                let others = left(&pairs, 1, &mut with_copies(1, &group.1).into_iter());
                let at_once = |place, other| cost(place, other).filter(|cost| *cost <= SAME_MOMENT as u64);
                for (place, other) in alike(&places, &others, |place, other| at_once(place, other).is_some(), at_once) {
                    pairs.one(place, other);
                }
            }
        }
        // the same by their numbers, of flows of which no packet has the same key
        if !is_cut {
            let mut known: [HashSet<Flow>; 2] = Default::default();
            for (here, there) in pairs.frames().filter(|(here, there)| here.key == there.key) {
                known[0].insert(flow(here));
                known[1].insert(flow(there));
            }
            let [in_a, in_b] = [0, 1].map(|at| {
                by_key(&points[at].packets, |place, packet| {
                    let is_left = pairs.is_left(at, place) && !known[at].contains(&flow(packet));
                    is_left.then_some(packet.plain)
                })
            });
            for (key, places) in &in_a {
                let others = in_b.get(key).map_or(&[][..], |others| others);
                for (place, other) in alike(places, others, |place, other| cost(place, other).is_some(), cost) {
                    pairs.join(place, other);
                }
            }
        }
        this.chance = pairs.chance();
        if this.chance > 0 {
            this.clock = None;
            this.compare_findings(&pairs, &flows, &Missed::new());
            return this;
        }
        let mut damaged = HashSet::new();
        this.resized = resized(&mut pairs, &flows, &mut damaged);
        damaged.extend(spoilt(&mut pairs, &flows));
        for (at, history) in histories.iter_mut().enumerate() {
            history.prove(&points[at].packets, |place| pairs.of[at][place].is_some());
        }
        let both = Both { pairs, flows, clock, histories, damaged };
        let mut missed = Missed::new();
        let overtaken = this.matched(&both);
        for at in 0..2 {
            this.arrived_only(at, &both, &mut missed);
            this.sent_only(at, &both, &mut missed);
            this.sent_again(at, &both, &overtaken);
        }
        this.thin_out();
        this.requests(&both.pairs, &both.flows, &mut each);
        this.keep_slowest();
        this.compare_findings(&both.pairs, &both.flows, &missed);
        this
    }

    /// Packets that both points have: delays, order, damage, and changes. Returns those that later ones overtook, by
    /// their places at the first point.
    fn matched(&mut self, both: &Both<'_>) -> HashSet<usize> {
        let Both { pairs, flows, clock, damaged, .. } = both;
        let [a, b] = pairs.points;
        let mut newest: HashMap<Flow, usize> = HashMap::new();
        let mut overtaken = HashSet::new();
        // packets in the order of their arrival, each with its place in the order of sending
        let mut arrives = |way: &mut DirectionResult, place: usize, sent: usize| {
            let packet = &a.packets[place];
            let latest = newest.entry(flow(packet)).or_insert(sent);
            if sent < *latest {
                note(&mut way.reordered, packet.frame);
                way.mark(packet.time, Mark::Overtaken, packet.frame);
                overtaken.insert(place);
            }
            *latest = (*latest).max(sent);
        };
        for (place, packet) in a.packets.iter().enumerate() {
            let Some((direction, other)) = flows.of[0].get(&flow(packet)).zip(pairs.of[0][place]) else { continue };
            let (way, there) = (&mut self.ways[direction.index()], &b.packets[other]);
            way.matched += 1;
            way.is_assumed |= !direction.is_certain;
            let forth = clock.first(there.time).saturating_sub(packet.time);
            let delay = if direction.from_a { forth } else { forth.saturating_neg() };
            way.delay.add(delay);
            way.delays.push((packet.time, delay));
            if damaged.contains(&place) {
                note(&mut way.damaged, if direction.from_a { packet.frame } else { there.frame });
            }
            if !direction.from_a {
                arrives(way, place, other);
            }
            self.changed(&packet.outside, &there.outside, direction.from_a);
        }
        for place in pairs.of[1].iter().flatten().copied().filter(|place| pairs.of[0][*place].is_some()) {
            if flows.of[0].get(&flow(&a.packets[place])).is_some_and(|direction| direction.from_a) {
                arrives(&mut self.ways[0], place, place);
            }
        }
        overtaken
    }

    /// Packets that only the point (0 or 1) has at which they arrive, and copies that only that point has.
    fn arrived_only(&mut self, at: usize, both: &Both<'_>, missed: &mut Missed) {
        let Both { pairs, flows, histories, .. } = both;
        let coverage = Coverage::new(at, both);
        for (place, packet) in both.packets_without(at) {
            let flow = flow(packet);
            let Some(direction) = flows.of[at].get(&flow) else { continue };
            let way = &mut self.ways[direction.index()];
            if pairs.copies[at].is_copy[place] {
                note(&mut way.copies[at], packet.frame);
            } else if direction.index() != at && coverage.has(both.first(at, packet.time)) {
                note(&mut way.unseen, packet.frame);
                missed.insert((1 - at, hosts(&flow)));
                let is_second = histories[at].earlier(place).is_some_and(|earlier| pairs.of[at][earlier].is_some());
                if packet.content.is_reset() || is_second {
                    note(&mut way.maybe_made, packet.frame);
                }
            }
        }
    }

    /// What became of the packets that only the point (0 or 1) has at which they were sent; and directions of which
    /// only this point has packets.
    fn sent_only(&mut self, at: usize, both: &Both<'_>, missed: &mut Missed) {
        let Both { pairs, flows, histories, .. } = both;
        let packets = &pairs.points[at].packets[..];
        let coverage = Coverage::new(at, both);
        let holes = holes(at, pairs, flows);
        let delays: i64 = self.ways.iter().filter_map(|way| way.delay.quantile(0.5)).sum();
        let wait = WAIT.max(delays.saturating_mul(ROUND_TRIPS));
        let mut fates: Vec<(usize, Fate)> = Vec::new();
        let mut alone: BTreeMap<Flow, Alone> = BTreeMap::new();
        for (place, packet) in both.packets_without(at).filter(|(place, _)| !pairs.copies[at].is_copy[*place]) {
            let (flow, time) = (flow(packet), both.first(at, packet.time));
            let is_sender = flows.of[at].get(&flow).map(|direction| direction.index() == at);
            let fate = histories[at].fate(packets, place, |place| pairs.of[at][place].is_some(), wait);
            if is_sender == Some(true) {
                fates.push((place, fate));
            }
            if !flows.is_common(at, &flow) && (coverage.has(time) || coverage.is_open(time)) {
                let alone = alone.entry(flow).or_insert_with(|| Alone::new(at, flow, is_sender));
                alone.has_arrived |= is_sender == Some(true) && fate == Fate::Missed;
                note(&mut alone.packets, packet.frame);
            }
        }
        let way = &mut self.ways[at];
        for (place, fate) in fates {
            let packet = &packets[place];
            let (flow, time) = (flow(packet), both.first(at, packet.time));
            let is_certain = flows.of[at].get(&flow).is_some_and(|direction| direction.is_certain);
            // the capture there leaves its packets out, says so, or has a hole here
            let is_gap = pairs.points[1 - at].has_gaps
                || holes.contains(&place)
                || alone.get(&flow).is_some_and(|alone| alone.has_arrived);
            match fate {
                Fate::Lost | Fate::PerhapsLost
                    if is_certain
                        && !(is_gap && fate == Fate::PerhapsLost)
                        && (coverage.has(time) || coverage.is_open(time)) =>
                {
                    note(&mut way.lost, packet.frame);
                    way.mark(time, Mark::Lost, packet.frame);
                }
                _ if !coverage.has(time) => {}
                fate if fate == Fate::Missed || fate == Fate::Unknown && is_gap => {
                    note(&mut way.missed, packet.frame);
                    missed.insert((1 - at, hosts(&flow)));
                }
                _ => {
                    note(&mut way.undecided, packet.frame);
                    way.mark(time, Mark::Undecided, packet.frame);
                }
            }
        }
        self.alone.extend(alone.into_values());
    }

    /// Packets that were sent again at a point (0 or 1) though they had arrived at the other, whole and in order.
    fn sent_again(&mut self, at: usize, both: &Both<'_>, overtaken: &HashSet<usize>) {
        let Both { pairs, flows, histories, damaged, .. } = both;
        let packets = &pairs.points[at].packets[..];
        let is_whole = |place: usize| {
            pairs.of[at][place].is_some_and(|other| {
                let place = if at == 0 { &place } else { &other };
                !damaged.contains(place) && !overtaken.contains(place)
            })
        };
        for place in histories[at].sent_again(packets, is_whole) {
            let packet = &packets[place];
            if flows.of[at].get(&flow(packet)).is_some_and(|direction| direction.is_certain && direction.index() == at)
            {
                let way = &mut self.ways[at];
                note(&mut way.sent_again, packet.frame);
                way.mark(both.first(at, packet.time), Mark::SentAgain, packet.frame);
            }
        }
    }

    /// Leaves so many delays as can be drawn.
    fn thin_out(&mut self) {
        for way in &mut self.ways {
            way.marks.sort_unstable();
            way.delays.sort_unstable();
            let step = way.delays.len().div_ceil(DELAYS_MAX).max(1);
            // the longest of each interval: spikes matter
            way.delays = way.delays.chunks(step).filter_map(|c| c.iter().max_by_key(|(_, d)| *d).copied()).collect();
        }
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

    fn requests(&mut self, pairs: &Pairs<'_>, flows: &Flows, each: &mut impl FnMut(&Timed)) {
        let [a, b] = pairs.points;
        let there: HashMap<(u64, u64), &SeenRequest> =
            b.exchanges.iter().map(|asked| ((asked.frame, asked.id), asked)).collect();
        // the frame at both points, and whether the packet goes from the first to the second
        let mut packets: HashMap<u64, (u64, bool)> = HashMap::new();
        for (packet, other) in pairs.frames() {
            packets.insert(packet.frame, (other.frame, flows.is_from_a(packet)));
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
    fn compare_findings(&mut self, pairs: &Pairs<'_>, flows: &Flows, missed: &Missed) {
        let [a, b] = pairs.points;
        let same = same_connections(pairs, flows, self.clock.as_ref());
        let there = |(rule, by, id): Key| match id {
            None => Some((rule, by, None)),
            Some(id) => same.get(&id).map(|id| (rule, by, Some(*id))),
        };
        let mut all: Vec<[Option<Key>; 2]> = Vec::new();
        let mut common = HashSet::new();
        for here in a.findings.keys() {
            let there = there(*here).filter(|there| b.findings.contains_key(there));
            common.extend(there);
            all.push([Some(*here), there]);
        }
        all.extend(b.findings.keys().filter(|key| !common.contains(*key)).map(|key| [None, Some(*key)]));
        if all.is_empty() {
            return;
        }
        all.sort_unstable_by_key(|keys| keys.iter().flatten().next().copied());
        let same: [HashMap<u32, u32>; 2] =
            [same.iter().map(|(a, b)| (*a, *b)).collect(), same.iter().map(|(a, b)| (*b, *a)).collect()];
        // for each point, the index of a frame there and of the same packet at the other point
        let mut seen: [HashMap<u64, (usize, usize)>; 2] = Default::default();
        for (place, other) in pairs.of[0].iter().enumerate().filter_map(|(place, pair)| Some((place, (*pair)?))) {
            seen[0].insert(a.packets[place].frame, (place, other));
            seen[1].insert(b.packets[other].frame, (other, place));
        }
        let points = [a, b];
        for keys in all {
            let Some((rule, by, _)) = keys.iter().flatten().next().copied() else { continue };
            let found = [0, 1].map(|at: usize| keys[at].and_then(|key| points[at].findings.get(&key)));
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
                                    let from_a = flows.is_from_a(of_a);
                                    // true if the side to blame is behind the other point
                                    let is_sender = f.address.map(|address| here.outside.src == address);
                                    let is_behind =
                                        is_sender.is_some_and(|is_sender| (is_sender == from_a) == (at == 1));
                                    is_behind || missed.contains(&(at, hosts(&flow(there))))
                                })
                            })
                    });
                    // the other point shows that the receiver had them
                    let had = keys[at].and_then(|(_, _, id)| {
                        let spurious =
                            |by: Blame| (Rule::RcSpurious, by.name(), id.and_then(|id| same[at].get(&id).copied()));
                        let all = [Blame::Client, Blame::Server, Blame::Unknown, Blame::Network];
                        all.into_iter().find_map(|by| points[1 - at].findings.get(&spurious(by)))
                    });
                    let is_refuted = is_refuted
                        || rule == Rule::RcRetransmit
                            && found[at].zip(had).is_some_and(|(lost, had)| {
                                !lost.frames.is_empty()
                                    && lost.frames.iter().all(|frame| {
                                        seen[at].get(frame).is_some_and(|(_, there)| {
                                            had.frames.contains(&points[1 - at].packets[*there].frame)
                                        })
                                    })
                            });
                    if is_refuted { Agreement::Withdrawn(at) } else { Agreement::Only(at) }
                }
            };
            let connections = keys.map(|key| key.and_then(|(_, _, id)| id));
            self.findings.push(Joint { rule, by, connections, at: found.map(|f| f.map(|f| f.certainty)), verdict });
        }
    }

    /// The comparison as text.
    pub fn text(&self, names: [&str; 2]) -> String {
        let mut out = String::new();
        let matched: u64 = self.ways.iter().map(|w| w.matched).sum();
        let [a, b] = self.packets.map(|n| Grouped(n).to_string());
        let _ = writeln!(out, "{} of {a} and {b} RDMA and TCP packets were seen at both points.", Grouped(matched));
        let Some(clock) = &self.clock else {
            if self.chance > 0 {
                let _ = writeln!(
                    out,
                    "{} packets look the same, as those of handshakes do, and none of the others: these captures are of \
                        different conversations, or of different parts of one.",
                    self.chance
                );
            } else {
                let _ = writeln!(out, "No packet was seen at both: these captures have nothing in common.");
            }
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
            let assumed = if way.is_assumed { " (direction assumed)" } else { "" };
            let _ = writeln!(out, "\n{from} → {to}: {} packets{assumed}", Grouped(way.matched));
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
            for (list, what, whose) in way.lists(n, names) {
                let (count, frames) = list;
                let shown: Vec<String> = frames.iter().take(12).map(u64::to_string).collect();
                let more = if *count > 12 { ", …" } else { "" };
                let _ = writeln!(out, "  {} {what} (frames of {whose}: {}{more})", Grouped(*count), shown.join(", "));
            }
        }
        if !self.alone.is_empty() {
            let _ = writeln!(out, "\nSeen at one point only");
            for alone in self.alone.iter().take(ALONE_SHOWN) {
                let (count, frames) = &alone.packets;
                let _ = writeln!(
                    out,
                    "  {}: {} packets at {} (from frame {}); {}",
                    alone.direction(),
                    Grouped(*count),
                    names[alone.at],
                    frames.first().unwrap_or(&0),
                    alone.words(names)
                );
            }
            if self.alone.len() > ALONE_SHOWN {
                let _ = writeln!(out, "  and {} more directions", Grouped((self.alone.len() - ALONE_SHOWN) as u64));
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
        let (withdrawn, stood): (Vec<_>, Vec<_>) =
            alike_findings(&self.findings).into_iter().partition(|(t, _)| matches!(t.verdict, Agreement::Withdrawn(_)));
        for (title, rows) in [("Findings", stood), ("Withdrawn: the other capture refutes them", withdrawn)] {
            if !rows.is_empty() {
                let _ = writeln!(out, "\n{title}");
            }
            for (t, count) in rows {
                let all = if count > 1 { format!(" ({count} connections)") } else { String::new() };
                let _ = writeln!(out, "  {} by {}: {}{all}", t.rule.id(), t.by, t.words(names));
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
        let list = |(count, frames): &Listed| json!({"count": count, "frames": frames});
        let way = |n: usize| {
            let w = &self.ways[n];
            json!({
                "from": names[n],
                "to": names[1 - n],
                "matched": w.matched,
                "delay": quantiles(&w.delay),
                "direction_assumed": w.is_assumed,
                "lost_between": list(&w.lost),
                "missed_there": list(&w.missed),
                "lost_or_not_captured": list(&w.undecided),
                "damaged": list(&w.damaged),
                "sent_again": list(&w.sent_again),
                "reordered": list(&w.reordered),
                "not_captured": list(&w.unseen),
                "maybe_made_between": list(&w.maybe_made),
                "copies": w.copies.each_ref().map(list),
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
            "seen_at_one": self.alone.iter().map(|alone| json!({
                "point": alone.at,
                "from": alone.hosts.0.to_string(),
                "to": alone.hosts.1.to_string(),
                "ports": alone.ports.map(|(from, to)| [from, to]),
                "queue_pair": alone.queue_pair,
                "is_sender": alone.is_sender,
                "has_arrived": alone.has_arrived,
                "packets": list(&alone.packets),
            })).collect::<Vec<_>>(),
            "findings": self.findings.iter().map(|t| json!({
                "id": t.rule.id(),
                "by": t.by,
                "connections": t.connections,
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
        (
            "direction_assumed",
            &boolean,
            "Whether the direction of some of them is assumed: neither hop limits nor times tell it for certain.",
        ),
        ("lost_between", &packets, "Packets lost between the points: frames of the point that they pass first."),
        (
            "missed_there",
            &packets,
            "Packets that arrived, though the other capture has them not: they were acknowledged, or later ones were \
                taken, and they were not sent again.",
        ),
        (
            "lost_or_not_captured",
            &packets,
            "Packets captured only where they were sent; nothing tells what became of them.",
        ),
        ("damaged", &packets, "Packets that arrived with other bytes: frames of the point that they pass first."),
        (
            "sent_again",
            &packets,
            "Packets that reached the other point and were sent again: lost behind it, or the acknowledgment was lost \
                or late. What a queue pair repeats after a loss is not counted.",
        ),
        ("reordered", &packets, "Packets that later ones overtook between the points: frames of the first point."),
        ("not_captured", &packets, "Packets captured only where they arrive: the other capture missed them."),
        (
            "maybe_made_between",
            &packets,
            "Those of `not_captured` that may have been made between the points: resets, and second copies.",
        ),
        ("copies", &list(&packets), "Copies that only one point has: those of the first point, and of the second."),
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
        (
            "connections",
            &list(&json!({"anyOf": [count, {"type": "null"}]})),
            "The connection in each capture; null where it has no such finding, or one of no connection.",
        ),
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
                and not the finding. Or the other shows that packets arrived which one takes for lost.",
        ),
    ]);
    let alone = object(&[
        ("point", &json!({"type": "integer", "minimum": 0, "maximum": 1}), "The point that has them."),
        ("from", &text, "Address of the sender."),
        ("to", &text, "Address of the receiver."),
        ("ports", &json!({"anyOf": [list(&count), {"type": "null"}]}), "TCP ports of both; null on RoCE."),
        ("queue_pair", &json!({"anyOf": [count, {"type": "null"}]}), "The queue pair they go to; null on TCP."),
        (
            "is_sender",
            &json!({"anyOf": [boolean, {"type": "null"}]}),
            "Whether they were sent at this point; false if they arrived there, null if that is not known.",
        ),
        ("has_arrived", &boolean, "Whether it is known that some of them arrived at the other point."),
        ("packets", &packets, "The packets."),
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
        ("seen_at_one", &list(&alone), "Directions of connections of which only one point has packets."),
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

/// The connection of the second point, for each of the first that has the same packets.
fn same_connections(pairs: &Pairs<'_>, flows: &Flows, clock: Option<&Clock>) -> HashMap<u32, u32> {
    let [a, b] = pairs.points;
    let mut by_flow: HashMap<Flow, Vec<&Followed>> = HashMap::new();
    for connection in &b.connections {
        for flow in connection.flows.into_iter().flatten() {
            by_flow.entry(flow).or_default().push(connection);
        }
    }
    let mut same = HashMap::new();
    for here in &a.connections {
        // queue pairs and ports are used again: of several the one that has most of the time in common
        let common = |there: &Followed| {
            let (first, last) = clock.map_or(there.span, |c| (c.first(there.span.0), c.first(there.span.1)));
            here.span.1.min(last).saturating_sub(here.span.0.max(first))
        };
        let there = here.flows.iter().flatten().filter_map(|flow| by_flow.get(flows.same.get(flow)?)).flatten();
        if let Some(there) = there.max_by_key(|there| common(there)) {
            same.insert(here.id, there.id);
        }
    }
    same
}

fn clocks(pairs: &Pairs<'_>, flows: &Flows) -> Option<Clock> {
    let (mut forward, mut backward) = (Vec::new(), Vec::new());
    // who records a socket makes the segments of its handshake up: their times say nothing
    let mut begun = BTreeSet::new();
    for (packet, pair) in pairs.points[0].packets.iter().zip(&pairs.of[0]) {
        let Outside { src, dst, ports, .. } = packet.outside;
        let ends = [(src, ports.0), (dst, ports.1)];
        let is_tcp = ports != (0, 0);
        let connection = if ends[0] <= ends[1] { ends } else { [ends[1], ends[0]] };
        if packet.content.stretch().is_some() {
            begun.insert(connection);
        }
        let other = pair.map(|place| &pairs.points[1].packets[place]);
        let Some(other) = other.filter(|_| !is_tcp || begun.contains(&connection)) else { continue };
        let point = (packet.time, other.time.saturating_sub(packet.time));
        match flows.of[0].get(&flow(packet)) {
            Some(direction) if direction.from_a => forward.push(point),
            Some(_) => backward.push(point),
            None => {}
        }
    }
    clock(&forward, &backward)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::directions::MARGIN;
    use crate::packets::{Content, Seen, hash};
    use crate::point::Found;
    use proptest::prelude::*;

    /// A packet of a connection between two hosts: time, sending side, and delay.
    #[derive(Clone, Debug)]
    struct Sent {
        time: i64,
        by_client: bool,
        delay: i64,
        lost: bool,
        /// Its PSN; of what is sent again the same.
        number: u32,
    }

    impl Sent {
        fn new(time: i64, by_client: bool, delay: i64) -> Self {
            Self { time, by_client, delay, lost: false, number: 0 }
        }
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
            content: Content::Request(n as u32),
            outside,
            ..Seen::default()
        }
    }

    /// The client's and the server's capture, with the server's clock ahead by `offset` and drifting.
    fn captured(all: &[Sent], offset: i64, drift: f64, nat: bool) -> (Point, Point) {
        let (mut a, mut b) = (Point::default(), Point::default());
        let clock = |t: i64| t + offset + (drift * t as f64).round() as i64;
        for (n, sent) in all.iter().enumerate() {
            let arrives = sent.time + sent.delay;
            let (at_a, at_b) = if sent.by_client { (sent.time, arrives) } else { (arrives, sent.time) };
            let numbered = |time, nat| Seen {
                key: sent.number.into(),
                plain: sent.number.into(),
                content: Content::Request(sent.number),
                ..seen(n, sent, time, nat)
            };
            if sent.by_client || !sent.lost {
                a.packets.push(numbered(at_a, false));
            }
            if !sent.by_client || !sent.lost {
                b.packets.push(numbered(clock(at_b), nat));
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

    /// Time in ns after which a lost packet is sent again.
    const TIMEOUT: i64 = 2_500_000;

    fn packets() -> impl Strategy<Value = Vec<Sent>> {
        let one = (1..2_000_000i64, any::<bool>(), 5_000..80_000i64, 0..50u8);
        proptest::collection::vec(one, 20..120).prop_map(|rows| {
            let (mut time, mut sent) = (0, Vec::new());
            for (number, (gap, by_client, delay, luck)) in rows.into_iter().enumerate() {
                time += gap;
                let one = Sent { lost: luck == 0, number: number as u32, ..Sent::new(time, by_client, delay) };
                // what is lost is sent again
                if one.lost {
                    sent.push(Sent { time: time + TIMEOUT, lost: false, ..one.clone() });
                }
                sent.push(one);
            }
            sent.sort_by_key(|one| one.time);
            sent
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
                let said = clock.offset + clock.drift * (packet.time - clock.at) as f64;
                let error = (said - truth).abs();
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
            (0..300).map(|n| Sent { number: n as u32, ..Sent::new(n * 2_000_000, n % 2 == 0, 20_000) }).collect();
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
            rows in proptest::collection::vec((800_000..2_000_000i64, any::<bool>(), 100_000..400_000i64, 600_000..700_000i64, 0..6u8), 30..100),
            offset in -4_000_000_000i64..4_000_000_000
        ) {
            let (mut a, mut b, mut lost) = (Point::default(), Point::default(), BTreeSet::new());
            let mut time = 0;
            for (n, (gap, by_client, delay, again, luck)) in rows.iter().enumerate() {
                time += gap;
                // one in three is sent twice; of those, every second loses one of both, or none
                let copies = if *luck < 2 { 2 } else { 1 };
                for copy in 0..copies {
                    let sent = Sent::new(time + copy * again, *by_client, *delay + copy * 50_000);
                    let frame = n * 2 + copy as usize;
                    let is_lost = copies == 2 && *luck == 1 && n % 2 == copy as usize;
                    let seen = |at| Seen {
                        key: n as u64,
                        plain: n as u64,
                        content: Content::Request(n as u32),
                        ..seen(frame, &sent, at, false)
                    };
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
                let way = &found.ways[way];
                // of what was not sent once more, nothing tells that it was lost
                prop_assert!(way.lost.1.iter().all(|frame| frame % 2 == 1));
                let mut gone = [&way.lost.1[..], &way.undecided.1[..]].concat();
                gone.sort_unstable();
                prop_assert_eq!((gone, way.missed.0, way.unseen.0), (truth, 0, 0), "{:?}", found.clock);
            }
        }
    }

    #[test]
    fn copies_that_their_sender_marked_are_distinguished_however_late_they_are() {
        let client = Sent::new(0, true, 0);
        let server = Sent { by_client: false, ..client.clone() };
        let ms = 1_000_000;
        let marked = |id: u16, time: i64, frame: usize| Seen {
            key: 7,
            plain: 7,
            copy: (id, 0),
            content: Content::Request(7),
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
            content: Content::Segment { seq, flags: 0x18, length, ack: 0 },
            ..seen(frame as usize, sent, time, false)
        }
    }

    #[test]
    fn segments_that_an_adapter_split_or_joined_are_known_again() {
        let client = Sent::new(0, true, 0);
        let server = Sent { by_client: false, ..client.clone() };
        let ms = 1_000_000;
        let (mut a, mut b) = (Point::default(), Point::default());
        // bare acknowledgments, which no adapter splits
        let bare =
            |n: usize, sent: &Sent, time: i64| Seen { content: Content::Unnumbered, ..seen(n, sent, time, false) };
        for n in 0..40 {
            a.packets.push(bare(n, &client, n as i64 * ms));
            b.packets.push(bare(n, &client, n as i64 * ms + 20_000));
            a.packets.push(bare(100 + n, &server, n as i64 * ms + 500_000));
            b.packets.push(bare(100 + n, &server, n as i64 * ms + 480_000));
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
        // and sent again
        a.packets.push(segment(&client, 27 * ms, first.wrapping_add(11_584), 1448, 1013));
        b.packets.push(segment(&client, 27 * ms + 25_000, first.wrapping_add(11_584), 1448, 2013));
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
            (0..60).map(|n| Sent { number: n as u32, ..Sent::new(n * 3_000_000, n % 2 == 0, 20_000) }).collect();
        let (mut a, b) = captured(&all, 5_000, 0.0, false);
        let client = Addr::V4([10, 0, 0, 1]);
        let found = |certainty, frames: &[u64]| Found { certainty, frames: frames.to_vec(), address: Some(client) };
        let rule = Rule::SmbdCreditOverrun;
        let verdict =
            |a: &Point, b: &Point| Comparison::new(a, b).findings.iter().map(|t| t.verdict).collect::<Vec<_>>();
        a.findings.insert((rule, "client", None), found(Certainty::IfNothingWasMissed, &[21]));
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
        late.findings.insert((rule, "client", None), found(Certainty::Certain, &[21]));
        assert_eq!(verdict(&late, &b), [Agreement::Only(0)], "what is certain is not withdrawn");
        late.findings.insert((rule, "client", None), found(Certainty::IfNothingWasMissed, &[]));
        assert_eq!(verdict(&late, &b), [Agreement::Only(0)], "nor what has more frames than are kept");
        let mut other = Point { packets: b.packets.clone(), span: b.span, ..Point::default() };
        other.findings.insert((rule, "client", None), found(Certainty::Certain, &[21]));
        assert_eq!(verdict(&a, &other), [Agreement::Certain(1)]);
        // reported about the client at the server's point, and not at the client's
        let mut far =
            Point { findings: a.findings.clone(), packets: b.packets.clone(), span: b.span, ..Point::default() };
        far.findings.insert((rule, "client", None), found(Certainty::IfNothingWasMissed, &[21]));
        let mut near = a;
        near.findings.clear();
        assert_eq!(verdict(&near, &far), [Agreement::Withdrawn(1)]);
        far.findings.insert((Rule::SmbdCreditStall, "client", None), found(Certainty::Guess, &[21]));
        assert_eq!(Comparison::new(&near, &far).json(["a", "b"])["findings"][0]["verdict"], "withdrawn");
    }

    /// A connection of requests both ways, one every ms, and what becomes of each: `None` if it does not arrive. Times
    /// are those of the first clock; the points are 20 µs apart.
    fn traffic(count: i64, change: impl Fn(i64, &mut Seen, &mut Option<Seen>)) -> (Point, Point) {
        let (mut a, mut b) = (Point::default(), Point::default());
        for n in 0..count {
            let sent = Sent::new(n * MS, n % 2 == 0, 20_000);
            let mut here = seen(n as usize, &sent, sent.time, false);
            let mut there = Some(seen(n as usize, &sent, sent.time + sent.delay, false));
            change(n, &mut here, &mut there);
            let (from, to) = if sent.by_client { (&mut a, &mut b) } else { (&mut b, &mut a) };
            from.packets.push(here);
            to.packets.extend(there);
        }
        spanned(&mut a, &mut b, count);
        (a, b)
    }

    fn spanned(a: &mut Point, b: &mut Point, count: i64) {
        for point in [a, b] {
            point.packets.sort_by_key(|packet| packet.time);
            point.span = Some((-10 * MS, (count + 10) * MS));
        }
    }

    const MS: i64 = 1_000_000;

    #[test]
    fn what_was_not_sent_again_was_not_lost() {
        let (a, b) = traffic(100, |n, _, there| {
            if n == 40 {
                *there = None;
            }
        });
        let way = &Comparison::new(&a, &b).ways[0];
        assert_eq!((way.lost.0, way.missed.clone(), way.undecided.0), (0, (1, vec![41]), 0));
        // what nothing acknowledges
        let (a, mut b) = traffic(100, |n, here, there| {
            if n == 40 {
                here.content = Content::Unnumbered;
                *there = None;
            }
        });
        let found = Comparison::new(&a, &b);
        assert_eq!((found.ways[0].missed.0, found.ways[0].undecided.clone()), (0, (1, vec![41])));
        assert!(found.text(["a", "b"]).contains("1 lost or not captured (frames of a: 41)"));
        assert_eq!(found.json(["a", "b"])["ways"][0]["lost_or_not_captured"]["count"], 1);
        // a capture that says that it dropped frames
        b.dropped(1);
        assert_eq!(Comparison::new(&a, &b).ways[0].missed, (1, vec![41]));
        // one that has nothing for a while, in either direction
        let (a, mut b) = traffic(100, |n, here, _| {
            if n == 40 {
                here.content = Content::Unnumbered;
            }
        });
        b.packets.retain(|packet| !(40 * MS..43 * MS).contains(&packet.time));
        let found = Comparison::new(&a, &b);
        assert_eq!((found.ways[0].missed.0, found.ways[0].undecided.0, found.ways[1].unseen.0), (2, 0, 1));
    }

    #[test]
    fn copies_of_a_mirror_are_no_packets() {
        for is_all in [true, false] {
            let (a, mut b) = traffic(100, |n, here, there| {
                here.copy.0 = n as u16 + 1;
                if let Some(there) = there {
                    there.copy.0 = n as u16 + 1;
                }
            });
            let twice: Vec<Seen> = b.packets.iter().copied().filter(|packet| is_all || packet.frame % 5 == 0).collect();
            let count = twice.len() as u64;
            b.packets.extend(twice.into_iter().map(|packet| Seen { time: packet.time + 2_000, ..packet }));
            b.packets.sort_by_key(|packet| packet.time);
            for (found, at) in [(Comparison::new(&a, &b), 1), (Comparison::new(&b, &a), 0)] {
                let sum = |list: fn(&DirectionResult) -> &Listed| found.ways.iter().map(|way| list(way).0).sum::<u64>();
                let copies: u64 = found.ways.iter().map(|way| way.copies[at].0).sum();
                assert_eq!((sum(|w| &w.lost), sum(|w| &w.unseen), copies), (0, 0, count));
                assert_eq!(found.ways.iter().map(|way| way.matched).sum::<u64>(), 100);
                assert_eq!(found.clock.unwrap().offset.abs() as i64, 0);
            }
        }
    }

    #[test]
    fn a_mirror_shows_each_of_several_packets_that_are_the_same_twice() {
        // duplicate acknowledgments, which only their identification distinguishes
        let (mut a, mut b) = traffic(100, |_, _, _| {});
        let same = |id: u16, time: i64| Seen {
            key: 777,
            plain: 777,
            copy: (id, 0),
            content: Content::Unnumbered,
            ..seen(200 + usize::from(id), &Sent::new(0, true, 0), time, false)
        };
        for (n, id) in [1, 2, 3].into_iter().enumerate() {
            let time = 50 * MS + 1_000 * n as i64;
            a.packets.push(same(id, time));
            b.packets.extend([same(id, time + 20_000), same(id, time + 30_000)]);
        }
        spanned(&mut a, &mut b, 100);
        let way = &Comparison::new(&a, &b).ways[0];
        assert_eq!((way.matched, way.copies[1].0, way.unseen.0, way.undecided.0), (53, 3, 0, 0));
    }

    #[test]
    fn a_link_that_goes_down_or_comes_up_late_loses_what_is_tried() {
        let tries = [0, 50, 100].map(|after| after * MS);
        let at = |after: i64, frame: usize| Seen {
            content: Content::Request(5000),
            ..seen(frame, &Sent::new(0, true, 0), after, false)
        };
        let (mut a, mut b) = traffic(100, |_, _, _| {});
        a.packets.extend(tries.map(|after| at(101 * MS + after, 200)));
        b.span = Some((0, 99 * MS));
        let down = Comparison::new(&a, &b);
        assert_eq!((down.ways[0].lost.0, down.ways[0].undecided.0), (3, 0));
        // the server goes on, as the capture of the client shows: the server's ended
        a.packets.push(seen(300, &Sent::new(0, false, 0), 110 * MS, false));
        assert_eq!(Comparison::new(&a, &b).ways[0].lost.0, 0);
        let (mut a, b) = traffic(100, |_, _, _| {});
        a.packets.splice(0..0, tries.map(|after| at(after - 120 * MS, 200)));
        a.span = Some((-130 * MS, 110 * MS));
        let up = Comparison::new(&a, &Point { span: Some((0, 110 * MS)), ..b });
        assert_eq!(up.ways[0].lost.0, 3);
    }

    #[test]
    fn a_direction_that_one_point_has_not_is_told() {
        let (mut a, b) = traffic(100, |_, _, _| {});
        for n in 0..4 {
            let sent = Sent::new(0, true, 0);
            let one = seen(200, &sent, (20 + 10 * n) * MS, false);
            a.packets.push(Seen { way: 77, content: Content::Unnumbered, ..one });
        }
        a.packets.sort_by_key(|packet| packet.time);
        let found = Comparison::new(&a, &b);
        assert_eq!((found.ways[0].lost.0, found.ways[0].undecided.0, found.alone.len()), (0, 4, 1));
        let text = found.text(["a", "b"]);
        assert!(text.contains("10.0.0.1 → 10.0.0.2, queue pair 0x4d: 4 packets at a (from frame 201)"), "{text}");
        assert_eq!(found.json(["a", "b"])["seen_at_one"][0]["is_sender"], true);
    }

    #[test]
    fn a_direction_is_known_by_hop_limits_and_losses_and_else_assumed() {
        let one_way = |n: i64, here: &mut Seen, there: &mut Option<Seen>, ttl: [u8; 2]| {
            here.outside.ttl = ttl[0];
            there.as_mut().unwrap().outside.ttl = ttl[1];
            // times that are as often wrong as right
            there.as_mut().unwrap().time += if n % 4 < 2 { 50_000 } else { -50_000 };
        };
        for (ttl, is_assumed, matched) in [([64, 64], true, 50), ([64, 63], false, 50), ([63, 64], false, 50)] {
            let (a, b) = traffic(100, |n, here, there| one_way(n, here, there, ttl));
            let found = Comparison::new(&a, &b);
            assert_eq!((found.ways[0].is_assumed, found.ways[0].matched), (is_assumed, matched), "{ttl:?}");
            assert_eq!(found.text(["a", "b"]).contains("(direction assumed)"), is_assumed);
        }
        // without hop limits the first capture is taken for the client's
        let (mut a, b) = traffic(100, |n, here, there| one_way(n, here, there, [0, 0]));
        a.roles[0].insert(Addr::V4([10, 0, 0, 2]));
        assert!(Flows::new(&paired(&a, &b), &Default::default()).of[0].values().all(|direction| !direction.is_certain));
    }

    fn paired<'p>(a: &'p Point, b: &'p Point) -> Pairs<'p> {
        let copies = [a, b].map(|point| &*Box::leak(Box::new(Copies::new(&point.packets, false))));
        let mut pairs = Pairs { points: [a, b], copies, of: [a, b].map(|point| vec![None; point.packets.len()]) };
        pairs.join_unique(false, [&|_| true, &|_| true], |_, _| true);
        pairs
    }

    #[test]
    fn the_overtaken_ones_are_named_in_both_directions() {
        // two that take longer than the next two of their direction
        let (a, b) = traffic(100, |n, _, there| {
            if n == 40 || n == 61 {
                there.as_mut().unwrap().time += 5 * MS;
            }
        });
        let found = Comparison::new(&a, &b);
        assert_eq!(found.ways.each_ref().map(|way| way.reordered.clone()), [(1, vec![41]), (1, vec![62])]);
        assert_eq!(found.ways[0].marks, [(40 * MS, Mark::Overtaken, 41)]);
    }

    #[test]
    fn many_packets_that_are_the_same_are_told_apart_by_their_times() {
        // congestion notifications: all the same, and the tenth is lost
        let (a, b) = traffic(200, |n, here, there| {
            if n % 4 == 0 {
                for one in [Some(&mut *here), there.as_mut()].into_iter().flatten() {
                    *one = Seen { key: 9999, plain: 9999, content: Content::Unnumbered, ..*one };
                }
                *there = there.take().filter(|_| n != 40);
            }
        });
        let found = Comparison::new(&a, &b);
        assert_eq!(found.ways[0].undecided, (1, vec![41]));
        assert!(found.ways[0].delay.max().is_some_and(|longest| longest < 20_100), "{:?}", found.ways[0].delay.max());
        assert_eq!(found.ways[0].sent_again.0 + found.ways[0].reordered.0, 0);
    }

    #[test]
    fn damaged_packets_are_told_from_split_ones() {
        let (a, b) = traffic(100, |n, _, there| {
            if let (10, Some(there)) = (n, there) {
                there.is_damaged = true;
            }
        });
        let found = Comparison::new(&a, &b);
        assert_eq!((found.ways[0].damaged.clone(), found.ways[1].damaged.0), ((1, vec![11]), 0));
        // a TCP segment with the same header and other bytes
        let (mut a, mut b) = traffic(100, |_, _, _| {});
        for (n, point) in [&mut a, &mut b].into_iter().enumerate() {
            let first = segment(&Sent::new(0, true, 0), 20 * MS + 20_000 * n as i64, 1000, 500, 300);
            let bad = Seen {
                key: n as u64 + 77_000,
                ..segment(&Sent::new(0, true, 0), 30 * MS + 20_000 * n as i64, 1500, 500, 301)
            };
            point.packets.extend([first, bad]);
            point.packets.sort_by_key(|packet| packet.time);
        }
        let found = Comparison::new(&a, &b);
        assert_eq!((found.resized, found.ways[0].damaged.clone()), (0, (1, vec![301])));
    }

    #[test]
    fn what_only_arrives_may_have_been_made_on_the_way() {
        let (mut a, b) = traffic(100, |_, _, _| {});
        let reset = Content::Segment { seq: 1, flags: 0x14, length: 0, ack: 1 };
        let one = seen(300, &Sent::new(0, false, 0), 50 * MS + 1, false);
        a.packets.push(Seen { content: reset, ..one });
        a.packets.sort_by_key(|packet| packet.time);
        let found = Comparison::new(&a, &b);
        assert_eq!((found.ways[1].unseen.clone(), found.ways[1].maybe_made.0), ((1, vec![301]), 1));
        assert!(found.text(["a", "b"]).contains("or made between the points"));
    }

    #[test]
    fn findings_are_merged_by_connection() {
        let (mut a, mut b) = traffic(100, |_, _, _| {});
        let hosts = [1, 2].map(|n| Addr::V4([10, 0, 0, n]));
        let flows = [Some((1, hosts[0], hosts[1], (0, 0))), Some((0, hosts[1], hosts[0], (0, 0)))];
        let other = [Some((8, hosts[0], hosts[1], (0, 0))), Some((9, hosts[1], hosts[0], (0, 0)))];
        let span = (0, 100 * MS);
        a.connections = vec![Followed { id: 1, flows, span }, Followed { id: 2, flows: other, span }];
        b.connections = vec![Followed { id: 7, flows, span }];
        let found = |frames: &[u64]| Found { certainty: Certainty::Guess, frames: frames.to_vec(), address: None };
        a.findings.insert((Rule::Smb2Error, "server", Some(1)), found(&[]));
        a.findings.insert((Rule::Smb2Error, "server", Some(2)), found(&[]));
        b.findings.insert((Rule::Smb2Error, "server", Some(7)), found(&[]));
        // what one takes for lost arrived at the other
        a.findings.insert((Rule::RcRetransmit, "network", Some(1)), found(&[41]));
        b.findings.insert((Rule::RcSpurious, "unknown", Some(7)), found(&[41]));
        let joint: Vec<_> =
            Comparison::new(&a, &b).findings.iter().map(|t| (t.rule, t.connections, t.verdict)).collect();
        assert_eq!(
            joint,
            [
                (Rule::Smb2Error, [Some(1), Some(7)], Agreement::Both),
                (Rule::Smb2Error, [Some(2), None], Agreement::Only(0)),
                (Rule::RcRetransmit, [Some(1), None], Agreement::Withdrawn(0)),
                (Rule::RcSpurious, [None, Some(7)], Agreement::Only(1)),
            ]
        );
        b.findings.insert((Rule::RcSpurious, "unknown", Some(7)), found(&[43]));
        assert_eq!(Comparison::new(&a, &b).findings[2].verdict, Agreement::Only(0), "another packet");
    }

    #[test]
    fn congestion_marks_packets_that_may_be_marked() {
        let meaning =
            |was: &str, is: &str| Change { way: 0, what: "ECN", was: was.to_owned(), is: is.to_owned() }.meaning();
        assert_eq!([meaning("1", "3"), meaning("2", "3")], [Some("congestion"); 2]);
        assert_eq!(meaning("0", "3"), Some("marked, though not capable of ECN"));
    }
}
