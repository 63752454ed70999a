//! Which packets of two points are the same.

use crate::packets::{Flow, Kind, Seen, flow};
use crate::point::Point;
use rdmascope_dissector::frame::Addr;
use std::cmp::Reverse;
use std::collections::{BTreeMap, HashMap, HashSet};

/// Limit of copies of one packet that are distinguished by their times.
const COPIES_MAX: usize = 32;
/// A copy that a mirror makes follows within this time in ns, if datagrams have an identification.
const SAME_DATAGRAM: i64 = 1_000_000;
/// The same, if they have none, nothing was asked for again, and nearly all packets of the direction come twice: a sender
/// that goes back repeats a part of them.
const SAME_CONTENTS: i64 = 500_000;
/// The same of others, and of what is not numbered.
pub(crate) const SAME_MOMENT: i64 = 20_000;
/// By how much, in ns, a packet may take longer than those that are known.
const LONGEST_DELAY: i64 = 100_000_000;

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

/// Repetitions of a packet at both points, grouped by the sender's marks if both points have one in common: only those
/// within a group can be the same.
pub(crate) fn repetitions(a: &Point, b: &Point, places: &[usize], others: &[usize]) -> Vec<(Vec<usize>, Vec<usize>)> {
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

/// Pairs of two lists of packets that are alike, in order.
pub(crate) fn alike(
    a: &[usize],
    b: &[usize],
    can_be: impl Fn(usize, usize) -> bool,
    cost: impl Fn(usize, usize) -> Option<u64>,
) -> Vec<(usize, usize)> {
    match (a.len(), b.len()) {
        (0, _) | (_, 0) => Vec::new(),
        (1, 1) => {
            if can_be(a[0], b[0]) {
                vec![(a[0], b[0])]
            } else {
                Vec::new()
            }
        }
        // so many that only their times distinguish them
        (n, m) if n.max(m) > COPIES_MAX => nearest(a, b, cost),
        _ => aligned(a, b, cost),
    }
}

/// Pairs of two ordered lists, each with the one that is nearest.
fn nearest(a: &[usize], b: &[usize], cost: impl Fn(usize, usize) -> Option<u64>) -> Vec<(usize, usize)> {
    let (mut i, mut j) = (0, 0);
    let mut pairs = Vec::new();
    let at = |i: usize, j: usize| cost(*a.get(i)?, *b.get(j)?);
    while i < a.len() && j < b.len() {
        let Some(here) = at(i, j) else {
            // it arrived before it was sent: it is of an earlier one
            j += 1;
            continue;
        };
        if at(i + 1, j).is_some_and(|next| next < here) {
            i += 1;
        } else if at(i, j + 1).is_some_and(|next| next < here) {
            j += 1;
        } else {
            pairs.push((a[i], b[j]));
            (i, j) = (i + 1, j + 1);
        }
    }
    pairs
}

/// Packets with the same key, by index.
pub(crate) fn by_key(packets: &[Seen], key: impl Fn(usize, &Seen) -> Option<u64>) -> HashMap<u64, Vec<usize>> {
    let mut found: HashMap<u64, Vec<usize>> = HashMap::new();
    for (place, packet) in packets.iter().enumerate() {
        if let Some(key) = key(place, packet) {
            found.entry(key).or_default().push(place);
        }
    }
    found
}

/// Copies that a mirror made: the same datagram soon again.
#[derive(Debug, Default)]
pub(crate) struct Copies {
    pub(crate) is_copy: Vec<bool>,
    /// The copies of a packet that has any.
    pub(crate) of: HashMap<usize, Vec<usize>>,
}

impl Copies {
    pub(crate) fn new(packets: &[Seen], plain: bool) -> Self {
        let (first, unmarked) = Self::where_mirrored(packets, plain, |_| true);
        if unmarked.is_empty() {
            return first;
        }
        let mut all: HashMap<Flow, usize> = HashMap::new();
        packets.iter().for_each(|packet| *all.entry(flow(packet)).or_default() += 1);
        let is_mirrored = |flow: &Flow| {
            let copies = unmarked.get(flow).copied().unwrap_or_default();
            copies * 5 >= (all.get(flow).copied().unwrap_or_default() - copies) * 4
        };
        Self::where_mirrored(packets, plain, is_mirrored).0
    }

    /// The same where a mirror shows nearly all packets of some directions twice; and the copies of datagrams without
    /// identification, by direction.
    fn where_mirrored(
        packets: &[Seen],
        plain: bool,
        is_mirrored: impl Fn(&Flow) -> bool,
    ) -> (Self, HashMap<Flow, usize>) {
        let mut unmarked: HashMap<Flow, usize> = HashMap::new();
        let mut this = Self { is_copy: vec![false; packets.len()], of: HashMap::new() };
        // the last packet with each key and each mark of its sender, the last one of each direction, and the last one to
        // each host that asks for repetitions
        let mut last: HashMap<(u64, (u16, u32)), usize> = HashMap::new();
        let mut newest: HashMap<Flow, usize> = HashMap::new();
        let mut asked: HashMap<(Addr, Addr, Kind), usize> = HashMap::new();
        for (place, packet) in packets.iter().enumerate() {
            let flow = flow(packet);
            let key = (if plain { packet.plain } else { packet.key }, packet.copy);
            let before = newest.insert(flow, place);
            if let Some(kind) = packet.content.asks_for() {
                asked.insert((flow.1, flow.2, kind), place);
            }
            let Some(first) = last.insert(key, place) else { continue };
            let is_near = |limit| packet.time.saturating_sub(packets[first].time) <= limit;
            let is_same = flow == self::flow(&packets[first]);
            // without an identification, it may have been sent again
            let is_copy = is_same
                && match (packet.copy.0, packet.content.kind()) {
                    (0, Some(kind)) => {
                        // a sender that goes back has others between
                        let is_next = before == Some(*this.of(first).last().unwrap_or(&first));
                        let limit = if is_mirrored(&flow) { SAME_CONTENTS } else { SAME_MOMENT };
                        is_near(limit)
                            && (is_next || is_mirrored(&flow))
                            && asked.get(&(flow.2, flow.1, kind)).is_none_or(|place| *place < first)
                    }
                    (0, None) => {
                        let newest = *this.of(first).last().unwrap_or(&first);
                        // an end may say the same twice
                        is_near(SAME_MOMENT) && before == Some(newest) && is_mirrored(&flow)
                    }
                    _ => is_near(SAME_DATAGRAM),
                };
            if is_copy {
                if packet.copy.0 == 0 {
                    *unmarked.entry(flow).or_default() += 1;
                }
                this.is_copy[place] = true;
                this.of.entry(first).or_default().push(place);
                last.insert(key, first);
            }
        }
        (this, unmarked)
    }

    pub(crate) fn of(&self, place: usize) -> &[usize] {
        self.of.get(&place).map_or(&[], |copies| copies)
    }
}

/// What the packets that are the same tell of all others.
pub(crate) struct Hosts {
    /// For each address at the first point, those at the second.
    pub(crate) same: HashMap<Addr, HashSet<Addr>>,
    /// The least and the greatest difference of times.
    pub(crate) times: (i64, i64),
}

impl Hosts {
    /// True if two packets can be the same, as far as their hosts are known.
    pub(crate) fn fit(&self, here: &Seen, there: &Seen) -> bool {
        let is_same = |one: Addr, other: Addr| self.same.get(&one).is_none_or(|known| known.contains(&other));
        is_same(here.outside.src, there.outside.src) && is_same(here.outside.dst, there.outside.dst)
    }

    /// True if two packets came at about the same time as well.
    pub(crate) fn fit_in_time(&self, here: &Seen, there: &Seen) -> bool {
        let (least, most) = self.times;
        let range = least.saturating_sub(LONGEST_DELAY)..=most.saturating_add(LONGEST_DELAY);
        self.fit(here, there) && (least > most || range.contains(&there.time.saturating_sub(here.time)))
    }
}

/// Packets that two captures of different conversations have in common at most: those of a handshake, whose values are
/// the same each time.
const CHANCE: u64 = 32;
/// Packets of each capture for each of those, at least.
const CHANCE_PART: u64 = 32;
/// ns by which the clocks seem to differ more for one than for another: on no way do delays differ so much.
const CHANCE_SCATTER: i64 = 50_000_000;

/// The packets of two points that are the same.
pub(crate) struct Pairs<'p> {
    pub(crate) points: [&'p Point; 2],
    pub(crate) copies: [&'p Copies; 2],
    /// For each packet of the first point, the one of the second, and the other way round.
    pub(crate) of: [Vec<Option<usize>>; 2],
}

impl Pairs<'_> {
    pub(crate) fn join(&mut self, here: usize, there: usize) {
        self.one(here, there);
        for (here, there) in self.copies[0].of(here).iter().zip(self.copies[1].of(there)) {
            self.one(*here, *there);
        }
    }

    pub(crate) fn one(&mut self, here: usize, there: usize) {
        self.of[0][here] = Some(there);
        self.of[1][there] = Some(here);
    }

    /// True if a packet is not paired, nor a copy of another.
    pub(crate) fn is_left(&self, at: usize, place: usize) -> bool {
        self.of[at][place].is_none() && !self.copies[at].is_copy[place]
    }

    /// Joins the packets left that are alone with their key at both points, if they `fit`.
    pub(crate) fn join_unique(
        &mut self,
        plain: bool,
        wanted: [&dyn Fn(&Flow) -> bool; 2],
        fit: impl Fn(&Seen, &Seen) -> bool,
    ) {
        let [a, b] = [0, 1].map(|at| {
            by_key(&self.points[at].packets, |place, packet| {
                let is_wanted = self.is_left(at, place) && wanted[at](&flow(packet));
                is_wanted.then_some(if plain { packet.plain } else { packet.key })
            })
        });
        let points = self.points;
        for (key, places) in &a {
            if let ([one], Some([other])) = (&places[..], b.get(key).map(|p| &p[..]))
                && fit(&points[0].packets[*one], &points[1].packets[*other])
            {
                self.join(*one, *other);
            }
        }
    }

    /// The addresses and times of the pairs so far.
    pub(crate) fn known_hosts(&self) -> Hosts {
        let mut hosts = Hosts { same: HashMap::new(), times: (i64::MAX, i64::MIN) };
        for (here, there) in self.frames() {
            for (one, other) in [(here.outside.src, there.outside.src), (here.outside.dst, there.outside.dst)] {
                hosts.same.entry(one).or_default().insert(other);
            }
            let difference = there.time.saturating_sub(here.time);
            hosts.times = (hosts.times.0.min(difference), hosts.times.1.max(difference));
        }
        hosts
    }

    /// Flows of a point of which a packet is paired.
    pub(crate) fn known(&self, at: usize) -> HashSet<Flow> {
        let packets = self.points[at].packets.iter().zip(&self.of[at]);
        packets.filter(|(_, pair)| pair.is_some()).map(|(packet, _)| flow(packet)).collect()
    }

    /// Number of pairs, if they are so few of all packets, and so unlike in time, that the captures are of different
    /// conversations; else 0.
    pub(crate) fn chance(&self) -> u64 {
        let count = self.frames().count() as u64;
        let is_part = |point: &&Point| point.packets.len() as u64 > count * CHANCE_PART;
        let offsets = || self.frames().map(|(here, there)| there.time.saturating_sub(here.time));
        let scatter = offsets().max().unwrap_or(0).saturating_sub(offsets().min().unwrap_or(0));
        if count < CHANCE && scatter > CHANCE_SCATTER && self.points.iter().all(is_part) { count } else { 0 }
    }

    pub(crate) fn frames(&self) -> impl Iterator<Item = (&Seen, &Seen)> {
        let [a, b] = self.points;
        a.packets.iter().zip(&self.of[0]).filter_map(|(packet, pair)| Some((packet, b.packets.get((*pair)?)?)))
    }
}
