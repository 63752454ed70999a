//! Packets that a mirror shows twice, told from packets that were sent twice.
//!
//! Spec: RFC 6864 (IP identification). What a host sends again is a new datagram, with another identification where it has one at all;
//! a copy that a mirror port made is the same datagram, and follows soon.

use crate::op::{At, End};
use alloc::vec::Vec;

/// Packets of one direction that are remembered.
const REMEMBERED: usize = 16;
/// A copy follows its original within so many µs, where identification and contents are the same.
const SAME_DATAGRAM: u32 = 10_000;
/// The same, where datagrams have no identification.
const SAME_CONTENTS: u32 = 20;
/// The same, where nothing was asked for again: no timeout of a sender is so short.
const SAME_CONTENTS_CALM: u32 = 500;

/// The last packets of one direction.
#[derive(Clone, Copy, Debug)]
pub struct Copies {
    last: [Seen; REMEMBERED],
    /// How many there were.
    count: u32,
}

#[derive(Clone, Copy, Debug)]
struct Seen {
    number: u32,
    mark: u32,
    /// µs, the lower 32 bits.
    time: u32,
    /// The frame, the lower 32 bits.
    frame: u32,
}

impl Default for Copies {
    fn default() -> Self {
        Self { last: [Seen { number: 0, mark: 0, time: 0, frame: 0 }; REMEMBERED], count: 0 }
    }
}

/// What a datagram and its copy have in common: the IP identification, and what else tells contents apart.
pub fn mark(ip_id: u16, contents: u16) -> u32 {
    u32::from(ip_id) << 16 | u32::from(contents)
}

impl Copies {
    /// Remembers a packet with this sequence number.
    #[inline]
    pub fn add(&mut self, at: At, number: u32, mark: u32) {
        self.last[self.count as usize % REMEMBERED] = Seen { number, mark, time: micros(at), frame: at.frame as u32 };
        // beyond all places the numbers go round above them
        self.count = self.count.checked_add(1).unwrap_or(REMEMBERED as u32);
    }

    fn known(&self) -> &[Seen] {
        &self.last[..self.count.min(REMEMBERED as u32) as usize]
    }

    /// The last frame before `at` in which a packet with this sequence number stood.
    pub fn frame_of(&self, at: At, number: u32) -> Option<u64> {
        let before = self.known().iter().filter(|seen| seen.number == number);
        let ago = before.map(|seen| (at.frame as u32).wrapping_sub(seen.frame)).min()?;
        at.frame.checked_sub(ago.into()).filter(|_| ago > 0)
    }

    /// Whether a packet is the copy of one of the last. `calm`: nobody asked for it again, and it is sent again after a timeout only.
    pub fn has(&self, at: At, number: u32, mark: u32, calm: bool) -> bool {
        let within = match (mark >> 16, calm) {
            (0, false) => SAME_CONTENTS,
            (0, true) => SAME_CONTENTS_CALM,
            _ => SAME_DATAGRAM,
        };
        self.known().iter().any(|seen| (seen.number, seen.mark) == (number, mark) && micros(at).wrapping_sub(seen.time) <= within)
    }

    /// How many of the last packets had this sequence number.
    pub fn times(&self, number: u32) -> usize {
        self.known().iter().filter(|seen| seen.number == number).count()
    }
}

/// Packets of a direction whose identifications must count up before they are trusted.
const COUNTS: u8 = 8;
/// The most by which an identification is ahead of the one before it: segments that an adapter cut, packets for others.
const STEP_MAX: u16 = 64;
/// The most by which it is behind, in packets.
const BACK_MAX: u16 = 4096;

/// The IP identifications of one direction. Where they count up they tell the order in which packets were sent.
#[derive(Clone, Copy, Debug, Default)]
pub struct Ids {
    newest: u16,
    /// How often in a row they counted up.
    run: u8,
}

impl Ids {
    /// Takes the next. By how many packets it was sent before the newest so far, 0 for a newer one; `None` where that cannot be known.
    #[inline]
    pub fn behind(&mut self, id: u16) -> Option<u16> {
        let step = id.wrapping_sub(self.newest);
        let is_known = self.run >= COUNTS;
        match step {
            1..=STEP_MAX => {
                self.run = self.run.saturating_add(1);
                self.newest = id;
                is_known.then_some(0)
            }
            0 => None,
            _ if is_known && step.wrapping_neg() <= BACK_MAX => Some(step.wrapping_neg()),
            _ => {
                *self = Self { newest: id, run: 0 };
                None
            }
        }
    }
}

/// Packets of both directions that are compared at the beginning of a connection.
const DOUBLES: usize = 64;
/// Different packets that must have come twice.
const DOUBLES_LEAST: usize = 4;
/// ns by which the distances of copies may differ in any case, and beyond that the part of a distance.
const SPREAD: i64 = 2_000;
const SPREAD_PART: i64 = 16;

/// Whether a short connection stands in the capture twice: each packet, handshake and acknowledgments too, and each as much later.
#[derive(Clone, Debug, Default)]
pub struct Doubles {
    first: Vec<(At, End, [u32; 3])>,
    more: bool,
}

impl Doubles {
    /// The next packet, and what tells its contents from others'.
    #[inline]
    pub fn add(&mut self, at: At, by: End, contents: [u32; 3]) {
        if !self.more {
            self.more = self.first.len() == DOUBLES;
            if !self.more {
                self.first.push((at, by, contents));
            }
        }
    }

    /// Whether enough of them, of both directions, came twice that a mirror may be why.
    pub fn are_some(&self) -> bool {
        let (mut twice, mut alone) = ([0usize; 2], 0);
        for (n, (_, by, contents)) in self.first.iter().enumerate() {
            let same = |(_, b, c): &&(At, End, [u32; 3])| (b, c) == (by, contents);
            if self.first[..n].iter().any(|seen| same(&seen)) {
                continue;
            }
            match self.first[n + 1..].iter().any(|seen| same(&seen)) {
                true => twice[by.index()] += 1,
                false => alone += 1,
            }
        }
        twice.iter().all(|n| *n > 0) && (twice[0] + twice[1]) * 3 >= alone
    }

    /// Whether all of them came twice.
    pub fn are_all(&self) -> bool {
        let (mut pairs, mut alone) = ([0; 2], Vec::new());
        let mut distance: Option<(i64, i64)> = None;
        for (n, (at, by, contents)) in self.first.iter().enumerate() {
            let same = |(_, b, c): &&(At, End, [u32; 3])| (b, c) == (by, contents);
            // every other one is a copy
            if self.first[..n].iter().filter(same).count() % 2 == 1 {
                continue;
            }
            let Some((copy, ..)) = self.first[n + 1..].iter().find(same) else {
                alone.push(at.time);
                continue;
            };
            let took = copy.time.saturating_sub(at.time);
            distance = Some(distance.map_or((took, took), |(least, most)| (least.min(took), most.max(took))));
            pairs[by.index()] += 1;
        }
        // the last may have their copies behind those that were compared
        let last = self.first.last().map_or(0, |(at, ..)| at.time);
        let most = distance.map_or(0, |(_, most)| most);
        let alone = alone.iter().filter(|time| last.saturating_sub(**time) > most).count();
        let is_even = distance.is_some_and(|(least, most)| most.saturating_sub(least) <= SPREAD + least / SPREAD_PART);
        is_even && pairs[0] > 0 && pairs[1] > 0 && pairs[0] + pairs[1] >= DOUBLES_LEAST && alone * 8 <= pairs[0] + pairs[1]
    }
}

/// Packets of a direction that must have been seen before a mirror is recognised.
const ENOUGH: u64 = 8;

/// Whether a mirror shows every packet twice: about half of what both directions sent stands in the capture again. Recovery repeats packets
/// of one direction, and never all of them; and what goes out again and again stands there more than twice. By direction: packets, those of
/// them that had stood there before, and those of these that had stood there twice.
pub fn is_mirrored(of: [u64; 2], again: [u64; 2], thrice: [u64; 2]) -> bool {
    let is_twice = thrice.iter().sum::<u64>() * 4 <= again.iter().sum::<u64>();
    is_twice && of.iter().sum::<u64>() >= 2 * ENOUGH && of.iter().zip(again).all(|(of, again)| *of >= ENOUGH / 2 && again * 20 >= of * 9)
}

/// Whether so much of both directions stands there again that a mirror may be why, though it is not certain.
pub fn may_be_mirrored(of: [u64; 2], again: [u64; 2]) -> bool {
    of.iter().zip(again).all(|(of, again)| again > 0 && again * 4 >= *of)
}

fn micros(at: At) -> u32 {
    (at.time / 1000) as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(time: i64) -> At {
        At { frame: 1, time }
    }

    #[test]
    fn a_mirror_shows_both_directions_twice() {
        assert!(is_mirrored([200, 40], [100, 19], [20, 0]));
        assert!(!is_mirrored([200, 40], [100, 2], [0, 0]), "one direction repeats itself");
        assert!(!is_mirrored([200, 40], [80, 20], [0, 0]), "not all of it");
        assert!(!is_mirrored([8, 6], [4, 3], [0, 0]), "too few to tell");
        assert!(!is_mirrored([50, 48], [24, 24], [20, 20]), "the same packets again and again");
        assert!(may_be_mirrored([50, 48], [24, 24]) && may_be_mirrored([3, 4], [1, 1]), "nobody knows");
        assert!(!may_be_mirrored([200, 40], [100, 2]) && !may_be_mirrored([2, 1], [1, 0]));
    }

    #[test]
    fn identifications_that_count_up_tell_what_was_sent_before() {
        let mut ids = Ids::default();
        (500..510).for_each(|id| _ = ids.behind(id));
        assert_eq!((ids.behind(511), ids.behind(509), ids.behind(512)), (Some(0), Some(2), Some(0)));
        assert_eq!(ids.behind(512), None, "the same datagram");
        assert_eq!(ids.behind(40_000), None, "they do not count");
        let mut zero = Ids::default();
        assert!((0..20).all(|_| zero.behind(0).is_none()));
    }

    #[test]
    fn a_short_connection_that_stands_there_twice_is_told_by_its_even_distance() {
        let talk = |distances: &[i64]| {
            let mut doubles = Doubles::default();
            let mut packets: Vec<(i64, u32)> = Vec::new();
            for (n, distance) in (0..).zip(distances) {
                packets.extend([(i64::from(n) * 1_000, n), (i64::from(n) * 1_000 + distance, n)]);
            }
            packets.sort_unstable();
            for (time, n) in packets {
                doubles.add(At { frame: 1, time }, if n % 2 == 0 { End::A } else { End::B }, [n, 0, 0]);
            }
            (doubles.are_some(), doubles.are_all())
        };
        let is_all = |distances: &[i64]| talk(distances).1;
        assert_eq!(talk(&[500_000, 500_000]), (true, false), "some of both directions");
        assert!(is_all(&[500_000; 6]));
        assert!(!is_all(&[500_000; 3]), "too few");
        assert!(!is_all(&[500_000, 500_000, 900_000, 500_000]), "timeouts");
        assert!(!Doubles::default().are_all() && !Doubles::default().are_some());
    }

    #[test]
    fn a_copy_is_the_same_datagram_soon_after() {
        let mut copies = Copies::default();
        assert!(!copies.has(at(0), 0, 0, false), "nothing was seen");
        copies.add(at(1_000), 7, mark(500, 9));
        assert!(copies.has(at(2_000_000), 7, mark(500, 9), false));
        assert!(!copies.has(at(2_000_000), 7, mark(501, 9), false), "sent again");
        assert!(!copies.has(at(2_000_000), 7, mark(500, 8), false), "other contents");
        assert!(!copies.has(at(20_000_000), 7, mark(500, 9), false), "too late");
        copies.add(at(1_000), 8, mark(0, 9));
        assert!(
            copies.has(at(5_000), 8, mark(0, 9), false) && !copies.has(at(50_000), 8, mark(0, 9), false),
            "without an identification only time tells"
        );
        assert!(
            copies.has(at(50_000), 8, mark(0, 9), true) && !copies.has(at(900_000), 8, mark(0, 9), true),
            "and whether it was asked for"
        );
        for n in 100..116 {
            copies.add(at(2_000), n, mark(500, 9));
        }
        assert!(!copies.has(at(3_000), 7, mark(500, 9), false), "forgotten");
    }
}
