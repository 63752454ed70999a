//! Which packets go from the first point to the second and which come back, and what the capture of a point covers.

use crate::clock::Clock;
use crate::history::{History, Stream};
use crate::packets::{Flow, Seen, flow, hosts};
use crate::pairs::Pairs;
use rdmascope_dissector::frame::Addr;
use std::cmp::Ordering;
use std::collections::{BTreeMap, HashMap, HashSet};

/// Time in ns between the end of a capture and what is sent to a silent point: a capture that ended long before may not
/// have run.
const SILENCE: i64 = 1_000_000_000;
/// Difference in ns of the two directions that no host brings about that takes its times late.
const FAR: i64 = 100_000;
/// Time in ns within which packets cross each other: over a longer one, the drift of the clocks shows.
const CROSSING: i64 = 100_000_000;
/// Time in ns at both ends of a capture in which a packet may be missing, because the other capture began later or
/// ended earlier.
pub(crate) const MARGIN: i64 = 1_000_000;

/// The direction of a flow.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Direction {
    /// True from the first point to the second.
    pub(crate) from_a: bool,
    /// False if it is assumed.
    pub(crate) is_certain: bool,
}

impl Direction {
    /// Its place in [`crate::points::Comparison::ways`].
    pub(crate) fn index(&self) -> usize {
        usize::from(!self.from_a)
    }
}

/// Evidence for two statements that exclude each other.
#[derive(Clone, Copy, Debug, Default)]
struct Votes([u64; 2]);

impl Votes {
    fn add(&mut self, is_first: bool) {
        self.0[usize::from(!is_first)] += 1;
    }

    fn sum(self) -> u64 {
        self.0[0] + self.0[1]
    }

    /// The one for which nine tenths of it speak.
    fn clear(self) -> Option<bool> {
        let [first, second] = self.0;
        let most = first.max(second);
        (most > 0 && most * 10 >= (first + second) * 9).then_some(first > second)
    }
}

/// Evidence for the point at which the first of two hosts is.
#[derive(Clone, Copy, Debug, Default)]
struct Evidence {
    /// The last packet: whether the first host sent it, its time, and its difference of times.
    last: Option<(bool, i64, i64)>,
    /// Of two packets that cross each other, the one to the second point has the greater difference.
    times: Votes,
    /// The same, if they are too far apart for times that were taken late.
    far: Votes,
    /// The hop limit is greater where a packet is sent.
    hops: Votes,
    /// Packets that one point has more often than the other: they were lost behind it.
    losses: Votes,
    /// Packets that only one point has, and only once: it does not prove a loss.
    singles: Votes,
}

impl Evidence {
    /// True if the first host is at the first point, and whether that is certain. `is_client` tells whether it is the
    /// client, whose capture is named first.
    fn judge(&self, is_client: Option<bool>) -> (bool, bool) {
        let by_times = self.times.clear();
        let far = self.far.clear().filter(|_| 2 * self.far.sum() >= self.times.sum());
        if let Some(at_a) = self.hops.clear().or(far.filter(|at_a| by_times == Some(*at_a))) {
            return (at_a, true);
        }
        let agrees = |at_a: bool, other: Option<bool>| other.is_none_or(|other| other == at_a);
        match (by_times, self.by_losses()) {
            (Some(at_a), None) => (at_a, agrees(at_a, is_client)),
            (Some(at_a), losses) => (at_a, agrees(at_a, losses)),
            (None, Some(at_a)) => (at_a, agrees(at_a, is_client)),
            (None, None) => (is_client.unwrap_or(self.times.0[0] >= self.times.0[1]), false),
        }
    }

    /// The same by losses, if all of them agree and are more than what a capture missed.
    fn by_losses(&self) -> Option<bool> {
        match (self.losses.0, self.singles.0) {
            ([here, 0], [missed, _]) if here > missed => Some(true),
            ([0, there], [_, missed]) if there > missed => Some(false),
            _ => None,
        }
    }
}

/// Directions of the flows of both points.
#[derive(Debug, Default)]
pub(crate) struct Flows {
    /// By the flows of each point.
    pub(crate) of: [HashMap<Flow, Direction>; 2],
    /// The flow at the second point, for each flow at the first that both have.
    pub(crate) same: BTreeMap<Flow, Flow>,
    /// Flows of each point that both have.
    pub(crate) common: [HashSet<Flow>; 2],
}

impl Flows {
    /// Determines the directions. For the packets of two hosts, the point that has them first is known except for the
    /// clocks; both directions together give the clocks.
    pub(crate) fn new(pairs: &Pairs<'_>, histories: &[History; 2]) -> Self {
        let mut this = Self::default();
        let mut evidence: BTreeMap<(Addr, Addr), Evidence> = BTreeMap::new();
        for (packet, other) in pairs.frames() {
            let f = flow(packet);
            this.same.entry(f).or_insert_with(|| flow(other));
            let difference = other.time.saturating_sub(packet.time);
            let known = evidence.entry(hosts(&f)).or_default();
            let is_first = f.1 == hosts(&f).0;
            let crossing = known.last.filter(|(was_first, time, before)| {
                *was_first != is_first && *before != difference && packet.time.saturating_sub(*time) <= CROSSING
            });
            if let Some((_, _, before)) = crossing {
                let at_a = (difference > before) == is_first;
                known.times.add(at_a);
                if difference.abs_diff(before) >= FAR as u64 {
                    known.far.add(at_a);
                }
            }
            known.last = Some((is_first, packet.time, difference));
            let (here, there) = (packet.outside.ttl, other.outside.ttl);
            if here != there && here.min(there) > 0 {
                known.hops.add((here > there) == is_first);
            }
        }
        for (here, there) in &this.same {
            let known = evidence.entry(hosts(here)).or_default();
            let is_first = here.1 == hosts(here).0;
            for is_response in [false, true] {
                let streams = (histories[0].stream(here, is_response), histories[1].stream(there, is_response));
                if let (Some(a), Some(b)) = streams {
                    let (losses, singles) = uneven(a, b);
                    for (votes, [more_at_a, more_at_b]) in [(&mut known.losses, losses), (&mut known.singles, singles)]
                    {
                        votes.0[usize::from(!is_first)] += more_at_a;
                        votes.0[usize::from(is_first)] += more_at_b;
                    }
                }
            }
        }
        let [clients, servers] = &pairs.points[0].roles;
        for (here, there) in &this.same {
            let (one, two) = hosts(here);
            let is = |roles: &HashSet<Addr>| roles.contains(&one) != roles.contains(&two);
            let is_client =
                if is(clients) { Some(clients.contains(&one)) } else { is(servers).then(|| servers.contains(&two)) };
            let (at_a, is_certain) = evidence.get(&(one, two)).copied().unwrap_or_default().judge(is_client);
            let direction = Direction { from_a: at_a == (here.1 == one), is_certain };
            this.of[0].insert(*here, direction);
            this.of[1].insert(*there, direction);
        }
        this.common = [this.same.keys().copied().collect(), this.same.values().copied().collect()];
        for at in 0..2 {
            this.by_address(at, &pairs.points[at].packets);
        }
        this
    }

    /// Directions of flows that only one point has, by their hosts.
    fn by_address(&mut self, at: usize, packets: &[Seen]) {
        // whether a host is at the first point, if all its flows agree
        let mut sides: HashMap<Addr, Option<Direction>> = HashMap::new();
        for ((_, src, dst, _), direction) in &self.of[at] {
            for (host, from_a) in [(*src, direction.from_a), (*dst, !direction.from_a)] {
                let side = Direction { from_a, ..*direction };
                let known = sides.entry(host).or_insert(Some(side));
                *known = known
                    .filter(|known| known.from_a == from_a)
                    .map(|known| Direction { is_certain: known.is_certain && side.is_certain, ..known });
            }
        }
        let side = |host: Addr| sides.get(&host).copied().flatten();
        for packet in packets {
            let f = flow(packet);
            let by_receiver = side(f.2).map(|there| Direction { from_a: !there.from_a, ..there });
            let direction = match (side(f.1), by_receiver) {
                (Some(one), Some(other)) => (one.from_a == other.from_a).then_some(one),
                (one, other) => one.or(other),
            };
            if let Some(direction) = direction {
                self.of[at].entry(f).or_insert(direction);
            }
        }
    }

    pub(crate) fn is_common(&self, at: usize, flow: &Flow) -> bool {
        self.common[at].contains(flow)
    }

    /// True if a packet of the first point goes to the second, or if that is not known.
    pub(crate) fn is_from_a(&self, packet: &Seen) -> bool {
        self.of[0].get(&flow(packet)).is_none_or(|direction| direction.from_a)
    }
}

/// Counts the numbers that one of two points has more often than the other, and those that only one has, once; for
/// each point.
fn uneven(a: &Stream, b: &Stream) -> ([u64; 2], [u64; 2]) {
    let shift = a.shift(b);
    let (mut more, mut singles) = ([0; 2], [0; 2]);
    let (Some(first), Some(last)) = (a.pieces.first().zip(b.pieces.first()), a.pieces.last().zip(b.pieces.last()))
    else {
        return (more, singles);
    };
    let common = first.0.start.max(first.1.start + shift)..last.0.end.min(last.1.end + shift);
    let (mut here, mut there) = (a.pieces.iter().peekable(), b.pieces.iter().peekable());
    loop {
        let order = match (here.peek(), there.peek()) {
            (None, None) => return (more, singles),
            (Some(_), None) => Ordering::Less,
            (None, Some(_)) => Ordering::Greater,
            (Some(one), Some(other)) => (one.start, one.end).cmp(&(other.start + shift, other.end + shift)),
        };
        let one = if order.is_le() { here.next() } else { None };
        let other = if order.is_ge() { there.next() } else { None };
        match (one, other) {
            (Some(one), Some(other)) if one.count != other.count => more[usize::from(one.count < other.count)] += 1,
            (Some(one), None) if common.contains(&one.start) => singles[0] += 1,
            (None, Some(other)) if common.contains(&(other.start + shift)) => singles[1] += 1,
            _ => {}
        }
    }
}

/// All that is known of the packets of both points.
pub(crate) struct Both<'p> {
    pub(crate) pairs: Pairs<'p>,
    pub(crate) flows: Flows,
    pub(crate) clock: Clock,
    pub(crate) histories: [History; 2],
    /// Packets of the first point that arrived, or were sent, with other bytes.
    pub(crate) damaged: HashSet<usize>,
}

impl Both<'_> {
    /// The time by the first clock, from one of a point.
    pub(crate) fn first(&self, at: usize, time: i64) -> i64 {
        if at == 0 { time } else { self.clock.first(time) }
    }

    /// Packets of a point that the other has not.
    pub(crate) fn packets_without(&self, at: usize) -> impl Iterator<Item = (usize, &Seen)> {
        let packets = self.pairs.points[at].packets.iter().zip(&self.pairs.of[at]).enumerate();
        packets.filter(|(_, (_, pair))| pair.is_none()).map(|(place, (packet, _))| (place, packet))
    }
}

/// The time that the capture of the other point covers, by the first clock.
pub(crate) struct Coverage {
    span: (i64, i64),
    /// True if nothing came from there before and after it, and something was sent there soon: the point was silent,
    /// and its capture may have run.
    is_open: [bool; 2],
}

impl Coverage {
    /// Of the point other than `at`, as far as the clocks are known.
    pub(crate) fn new(at: usize, both: &Both<'_>) -> Self {
        let Both { pairs, flows, clock, .. } = both;
        let margin = MARGIN.saturating_add(if clock.both_ways { clock.uncertainty as i64 } else { 0 });
        let Some((begin, end)) = pairs.points[1 - at].span else {
            return Self { span: (i64::MAX, i64::MIN), is_open: [false; 2] };
        };
        let span = (both.first(1 - at, begin), both.first(1 - at, end));
        let limits = (span.0.saturating_sub(margin), span.1.saturating_add(margin));
        // the last packet that was sent before it began, and the first one after it ended
        let (mut before, mut after) = (i64::MIN, i64::MAX);
        let mut is_silent = [true; 2];
        for packet in &pairs.points[at].packets {
            let time = both.first(at, packet.time);
            if flows.of[at].get(&flow(packet)).is_none_or(|direction| direction.index() != at) {
                is_silent[0] &= time >= limits.0;
                is_silent[1] &= time <= limits.1;
            } else if time < span.0 {
                before = before.max(time);
            } else if time > span.1 {
                after = after.min(time);
            }
        }
        let is_near = [span.0.saturating_sub(before) <= SILENCE, after.saturating_sub(span.1) <= SILENCE];
        let inner = (span.0.saturating_add(margin), span.1.saturating_sub(margin));
        Self { span: inner, is_open: [is_silent[0] && is_near[0], is_silent[1] && is_near[1]] }
    }

    pub(crate) fn has(&self, time: i64) -> bool {
        (self.span.0..=self.span.1).contains(&time)
    }

    /// True if the point was silent at this time.
    pub(crate) fn is_open(&self, time: i64) -> bool {
        let (begin, end) = self.span;
        time < begin && self.is_open[0] || time > end && self.is_open[1]
    }
}

/// Packets of a point (0 or 1) that the other has not, between others of the opposite direction that it has not sent:
/// its capture had a hole.
pub(crate) fn holes(at: usize, pairs: &Pairs<'_>, flows: &Flows) -> HashSet<usize> {
    let (mut found, mut run) = (HashSet::new(), Vec::new());
    let mut has = [false; 2];
    for (place, packet) in pairs.points[at].packets.iter().enumerate() {
        let Some(direction) = flows.of[at].get(&flow(packet)) else { continue };
        if pairs.of[at][place].is_some() {
            if has == [true; 2] {
                found.extend(run.drain(..));
            }
            run.clear();
            has = [false; 2];
        } else if flows.is_common(at, &flow(packet)) && !pairs.copies[at].is_copy[place] {
            run.push(place);
            has[direction.index()] = true;
        }
    }
    if has == [true; 2] {
        found.extend(run);
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn losses_and_times_must_not_contradict_each_other() {
        let evidence =
            |losses, singles| Evidence { losses: Votes(losses), singles: Votes(singles), ..Evidence::default() };
        assert_eq!(evidence([2, 0], [0, 0]).judge(None), (true, true));
        assert_eq!(evidence([2, 0], [0, 0]).judge(Some(false)), (true, false));
        let late = Evidence { times: Votes([0, 40]), ..evidence([2, 0], [0, 0]) };
        assert_eq!(late.judge(Some(true)), (false, false), "times that are taken late contradict losses");
        let far = Evidence { far: Votes([0, 40]), ..late };
        assert_eq!(far.judge(Some(true)), (false, true));
        assert_eq!(evidence([2, 0], [9, 0]).judge(Some(false)), (false, false), "it misses many");
        assert_eq!(evidence([2, 1], [0, 0]).judge(None), (true, false));
    }
}
