//! Packets that are not the same at both points: segments that were split or joined, and packets that were damaged.

use crate::directions::Flows;
use crate::packets::{Flow, Seen, flow};
use crate::pairs::Pairs;
use std::collections::{HashMap, HashSet};

/// Limit of segments compared with one that was split or joined.
const NEAR: usize = 64;

/// A segment of a stream: its offset, continued past 2^32, its end, and its index among the packets.
type Stretch = (i64, i64, usize);

/// The segments with a payload of each flow, in order of arrival, and the offset of the first.
fn stretches(packets: &[Seen], wanted: impl Fn(&Flow) -> bool) -> HashMap<Flow, Vec<(u32, u32, usize)>> {
    let mut found: HashMap<Flow, Vec<(u32, u32, usize)>> = HashMap::new();
    for (place, packet) in packets.iter().enumerate() {
        let flow = flow(packet);
        if let Some((seq, length)) = packet.content.stretch().filter(|_| wanted(&flow)) {
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
/// arrived are matched. A segment with the same header and other bytes was damaged.
pub(crate) fn resized(pairs: &mut Pairs<'_>, flows: &Flows, damaged: &mut HashSet<usize>) -> u64 {
    let [a, b] = pairs.points;
    let of_a = stretches(&a.packets, |flow| flows.is_common(0, flow));
    let mut of_b = stretches(&b.packets, |flow| flows.is_common(1, flow));
    let mut resized = 0;
    for (flow, here) in &of_a {
        let Some(there) = flows.same.get(flow).and_then(|flow| of_b.remove(flow)) else { continue };
        let begin = here[0].0;
        let mine = left(here, begin, |place| !pairs.is_left(0, place));
        let mut theirs = left(&there, begin, |place| !pairs.is_left(1, place));
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
            let (one, is_same) =
                (&a.packets[place], |other: &usize| b.packets[*other].content == a.packets[place].content);
            // of those that look the same, the nearest
            let same =
                parts.iter().copied().filter(is_same).min_by_key(|other| b.packets[*other].time.abs_diff(one.time));
            if let Some(other) = same {
                if pairs.is_left(1, other) {
                    pairs.one(place, other);
                    let arrived = &b.packets[other];
                    if one.plain == arrived.plain && one.key != arrived.key && !a.is_cut && !b.is_cut {
                        damaged.insert(place);
                    }
                }
                continue;
            }
            // of a segment that arrived in part, a part was lost
            if is_whole && reach >= to && !parts.is_empty() {
                pairs.of[0][place] = Some(parts[0]);
                resized += 1;
            }
            for other in parts {
                pairs.of[1][other].get_or_insert(place);
            }
        }
    }
    resized
}

/// Packets of queue pairs that were damaged between the points, by their places at the first: the invariant CRC was
/// right where they were sent and is wrong where they arrive.
pub(crate) fn spoilt(pairs: &mut Pairs<'_>, flows: &Flows) -> Vec<usize> {
    let points = pairs.points;
    // those whose CRC itself was damaged have another key
    let is_spoilt = [0, 1].map(|at| {
        points[at].packets.iter().enumerate().any(|(place, packet)| packet.is_damaged && pairs.is_left(at, place))
    });
    if is_spoilt != [false; 2] {
        let wanted = [0, 1].map(|at| move |flow: &Flow| flows.is_common(at, flow));
        let hosts = pairs.known_hosts();
        pairs.join_unique(true, [&wanted[0], &wanted[1]], |here, there| hosts.fit_in_time(here, there));
    }
    let [a, b] = points;
    let is_spoilt = |here: &Seen, there: &Seen| {
        // whatever rewrites addresses makes it wrong, too
        let is_same = (here.outside.src, here.outside.dst) == (there.outside.src, there.outside.dst);
        let (sent, came) = if flows.is_from_a(here) { (here, there) } else { (there, here) };
        is_same && !sent.is_damaged && came.is_damaged
    };
    let of_a = a.packets.iter().zip(&pairs.of[0]).enumerate();
    of_a.filter(|(_, (here, pair))| pair.is_some_and(|other| is_spoilt(here, &b.packets[other])))
        .map(|(place, _)| place)
        .collect()
}
