//! Distinguishes packets that a mirror shows twice from packets that were sent twice.
//!
//! Spec: RFC 6864 (IP identification). A packet that a host sends again is a new datagram, with another identification
//! if it has one at all; a copy that a mirror port made is the same datagram, and follows soon.

use crate::op::{At, End};
use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::vec::Vec;

/// Packets of one direction that are remembered.
const REMEMBERED: usize = 16;
/// A copy follows its original within this time, in µs, if identification and contents are the same.
const SAME_DATAGRAM: u32 = 10_000;
/// The same, if datagrams have no identification.
const SAME_CONTENTS: u32 = 20;
/// The same, if nothing was asked for again: no timeout of a sender is so short.
const SAME_CONTENTS_CALM: u32 = 500;

/// The last packets of one direction.
#[derive(Clone, Copy, Debug)]
pub struct Copies {
    last: [SeenPacket; REMEMBERED],
    /// Number of packets so far.
    count: u32,
    ids: Ids,
}

#[derive(Clone, Copy, Debug)]
struct SeenPacket {
    number: u32,
    mark: u32,
    /// µs, the lower 32 bits.
    time: u32,
    /// The frame, the lower 32 bits.
    frame: u32,
}

impl Default for Copies {
    fn default() -> Self {
        Self { last: [SeenPacket { number: 0, mark: 0, time: 0, frame: 0 }; REMEMBERED], count: 0, ids: Ids::default() }
    }
}

/// Values that a datagram and its copy have in common: the IP identification, and other values that distinguish
/// contents.
pub fn mark(ip_id: u16, contents: u16) -> u32 {
    u32::from(ip_id) << 16 | u32::from(contents)
}

impl Copies {
    /// Remembers a packet with this sequence number.
    #[inline]
    pub fn add(&mut self, at: At, number: u32, mark: u32) {
        self.last[self.count as usize % REMEMBERED] =
            SeenPacket { number, mark, time: micros(at), frame: at.frame as u32 };
        if mark >> 16 != 0 {
            _ = self.ids.behind((mark >> 16) as u16);
        }
        // beyond all places the numbers go round above them
        self.count = self.count.checked_add(1).unwrap_or(REMEMBERED as u32);
    }

    fn known(&self) -> &[SeenPacket] {
        &self.last[..self.count.min(REMEMBERED as u32) as usize]
    }

    /// The last frame before `at` in which a packet with this sequence number stood.
    pub fn frame_of(&self, at: At, number: u32) -> Option<u64> {
        let before = self.known().iter().filter(|seen| seen.number == number);
        let ago = before.map(|seen| (at.frame as u32).wrapping_sub(seen.frame)).min()?;
        at.frame.checked_sub(ago.into()).filter(|_| ago > 0)
    }

    /// The lower byte of the mark of the last packet with this sequence number: its opcode.
    pub fn opcode_of(&self, number: u32) -> Option<u8> {
        let newest = self.known().iter().filter(|seen| seen.number == number).max_by_key(|seen| seen.frame)?;
        Some(newest.mark as u8)
    }

    /// True if a packet is the copy of one of the last packets. `calm`: it was not asked for again, so that it is sent
    /// again after a timeout only; `asked`: time of the request; a packet from before that is no original if it has no
    /// identification.
    pub fn has(&self, at: At, number: u32, mark: u32, calm: bool, asked: Option<At>) -> bool {
        let within = match (mark >> 16, calm) {
            (0, false) => SAME_CONTENTS,
            (0, true) => SAME_CONTENTS_CALM,
            // what is sent again gets the next identification: however late, this is the same datagram
            _ if self.ids.count_up() => u32::MAX,
            _ => SAME_DATAGRAM,
        };
        let is_answer = |seen: &SeenPacket| {
            asked.is_some_and(|asked| mark >> 16 == 0 && (seen.frame.wrapping_sub(asked.frame as u32) as i32) < 0)
        };
        let is_same = |seen: &SeenPacket| {
            (seen.number, seen.mark) == (number, mark) && micros(at).wrapping_sub(seen.time) <= within
        };
        self.known().iter().any(|seen| is_same(seen) && !is_answer(seen))
    }

    /// ns since a packet with this sequence number came first, rounded, of those that are remembered.
    pub fn first_age(&self, at: At, number: u32) -> Option<i64> {
        let ago = |seen: &SeenPacket| i64::from(micros(at).wrapping_sub(seen.time)) * 1000;
        self.known().iter().filter(|seen| seen.number == number).map(ago).max()
    }

    /// Number of the remembered packets that had this sequence number.
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

/// The IP identifications of one direction. If they count up, they show the order in which packets were sent.
#[derive(Clone, Copy, Debug, Default)]
pub struct Ids {
    newest: u16,
    /// Number of times in a row that they counted up.
    run: u8,
}

impl Ids {
    /// True if they have counted up so far.
    fn count_up(&self) -> bool {
        self.run >= COUNTS
    }

    /// Takes the next one. Returns the number of packets by which it was sent before the newest so far: 0 for a newer
    /// one, `None` if that cannot be known.
    #[inline]
    pub fn behind(&mut self, id: u16) -> Option<u16> {
        let step = id.wrapping_sub(self.newest);
        let is_known = self.count_up();
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

/// Packets of both directions that are compared at the beginning of a connection at least, and at most.
const DOUBLES: usize = 64;
const DOUBLES_MAX: usize = 4096;
/// Those for which there is room at first.
const DOUBLES_MANY: usize = 512;
/// ns from the first packet in which the copies of a mirror begin to come.
const DOUBLES_TIME: i64 = 25_000_000;
/// Different packets that must have come twice.
const DOUBLES_LEAST: usize = 4;
/// The same of one direction, if the other one is not shown twice, or after another time.
const ONE_WAY_LEAST: usize = 8;
/// Times the distance of copies over which packets of one direction must have come twice then. A sender that goes back
/// sends packets again of a time that is shorter than it took to notice.
const ONE_WAY_SPAN: i64 = 4;
/// Packets at the beginning of a direction of which one has its copy in the capture.
const FIRST_FEW: usize = 4;
/// Packets without their copies after which there is no mirror, unless there are more with them.
const ALONE_MAX: usize = 4;
/// ns by which the distances of copies may differ in any case, and beyond that the part of a distance: of short ones a
/// larger one, up to so many ns.
const SPREAD: i64 = 2_000;
const SPREAD_PART: i64 = 16;
const SPREAD_PART_SHORT: i64 = 4;
const SPREAD_SHORT: i64 = 1_000_000;
/// Packets that wait for their copies at most.
const WAITING_MAX: usize = 4096;
/// Packets that had their copies which are remembered while a mirror is suspected.
const PAIRED: usize = 64;

/// Classification of a packet with regard to mirrors.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shown {
    /// It appears for the first time, as far as is known.
    First,
    /// It may be the first copy of a mirror, or was sent again.
    Suspect,
    /// It is a copy, and from here on it is known that a mirror shows everything twice: since the last suspect.
    Mirrored,
    /// A mirror shows it again.
    Again,
}

/// Time, sender, and a value that distinguishes its contents.
type Mark = (i64, End, [u32; 3]);

/// Detects a connection that appears in the capture twice: each packet, handshake and acknowledgments too, comes again
/// after the same time. One direction may be shown twice alone, and where the captures of two points were joined, each
/// has a distance of its own. Once that is known, copies are distinguished from retransmissions by their delay.
#[derive(Clone, Debug, Default)]
pub struct DoubleDetector {
    first: Vec<Mark>,
    /// Nothing is compared any more.
    is_over: bool,
    /// Some of both directions came twice.
    are_some: bool,
    /// It is known that there is a mirror, and not only suspected.
    is_known: bool,
    /// By direction, if it may be shown twice.
    mirrors: [Option<Box<Mirror>>; 2],
}

/// A mirror that shows one direction twice.
#[derive(Clone, Debug)]
struct Mirror {
    /// Least and greatest delay of a copy, in ns.
    apart: (i64, i64),
    /// Packets without their copies so far, in their order: time and contents.
    waiting: VecDeque<(i64, [u32; 3])>,
    /// The last packets that had copies, until the mirror is known: it shows them no third time.
    paired: VecDeque<[u32; 3]>,
    /// Copies, and packets that had none, or more than one.
    pairs: usize,
    alone: usize,
    /// Times of the first packet and the last that had a copy, in ns.
    span: Option<(i64, i64)>,
}

impl Mirror {
    fn new(distance: i64) -> Self {
        let spread = SPREAD + (distance / SPREAD_PART).max((distance / SPREAD_PART_SHORT).min(SPREAD_SHORT));
        let apart = (distance.saturating_sub(spread), distance.saturating_add(spread));
        Self { apart, waiting: VecDeque::new(), paired: VecDeque::new(), pairs: 0, alone: 0, span: None }
    }

    /// Takes the next packet. Returns true if it is the copy of an earlier one.
    fn is_copy(&mut self, time: i64, contents: [u32; 3]) -> bool {
        let since = |before: i64| time.saturating_sub(before);
        // the copies of these were not captured
        while self.waiting.front().is_some_and(|(before, _)| since(*before) > self.apart.1) {
            self.waiting.pop_front();
            self.alone += 1;
        }
        let is_old = |(before, _): &&(i64, [u32; 3])| since(*before) >= self.apart.0;
        match self.waiting.iter().take_while(is_old).position(|(_, c)| *c == contents) {
            Some(place) => {
                if let Some((before, _)) = self.waiting.remove(place) {
                    self.span = Some((self.span.map_or(before, |(first, _)| first), before));
                }
                self.pairs += 1;
                true
            }
            None => {
                self.waiting.push_back((time, contents));
                false
            }
        }
    }

    /// The same while it is not known if there is a mirror.
    fn may_be_copy(&mut self, time: i64, contents: [u32; 3]) -> bool {
        if self.is_copy(time, contents) {
            if self.paired.len() >= PAIRED {
                self.paired.pop_front();
            }
            self.paired.push_back(contents);
            return true;
        }
        // a sender whose peer is gone sends the same again and again
        self.alone += usize::from(self.paired.contains(&contents));
        false
    }

    /// True if it is one whatever is known of the other direction.
    fn is_sure(&self) -> bool {
        let span = self.span.map_or(0, |(first, last)| last.saturating_sub(first));
        self.pairs >= ONE_WAY_LEAST && self.alone * 8 <= self.pairs && span >= self.apart.1.saturating_mul(ONE_WAY_SPAN)
    }

    /// True if it is one because the other direction is shown twice, too, after the same time.
    fn is_sure_with(&self, other: &Self) -> bool {
        let (pairs, alone) = (self.pairs + other.pairs, self.alone + other.alone);
        let is_same = self.apart.0 <= other.apart.1 && other.apart.0 <= self.apart.1;
        is_same && self.pairs > 0 && other.pairs > 0 && pairs >= DOUBLES_LEAST && alone * 8 <= pairs
    }

    /// True if too many packets had no copy.
    fn is_none(&self) -> bool {
        self.alone >= ALONE_MAX + self.pairs / 2
    }
}

impl DoubleDetector {
    /// The next packet, and a value that distinguishes its contents.
    #[inline]
    pub fn add(&mut self, at: At, by: End, contents: [u32; 3]) -> Shown {
        if self.is_over { Shown::First } else { self.compare((at.time, by, contents)) }
    }

    #[cold]
    fn compare(&mut self, packet: Mark) -> Shown {
        let (time, by, contents) = packet;
        if self.is_known {
            let Some(mirror) = &mut self.mirrors[by.index()] else { return Shown::First };
            if mirror.waiting.len() >= WAITING_MAX {
                // more of them than can be remembered
                *self = Self { is_over: true, ..Self::default() };
                return Shown::First;
            }
            return if mirror.is_copy(time, contents) { Shown::Again } else { Shown::First };
        }
        let is_suspected = self.is_suspected();
        if let Some(mirror) = &mut self.mirrors[by.index()] {
            let is_copy = mirror.may_be_copy(time, contents);
            if mirror.is_none() {
                self.mirrors[by.index()] = None;
            } else if is_copy && self.is_sure(time, by) {
                (self.is_known, self.first) = (true, Vec::new());
                self.mirrors.iter_mut().flatten().for_each(|mirror| mirror.paired = VecDeque::new());
                return Shown::Mirrored;
            }
        } else if let Some(mirror) = self.suspect(packet) {
            self.mirrors[by.index()] = Some(Box::new(mirror));
            // what is suspected of one direction goes back to before both
            if !is_suspected {
                self.first.push(packet);
                return Shown::Suspect;
            }
        }
        self.first.push(packet);
        let count = self.first.len();
        let age = self.first.first().map_or(0, |(first, ..)| time.saturating_sub(*first));
        if count >= DOUBLES_MAX || count >= DOUBLES && age > DOUBLES_TIME && !self.is_suspected() {
            (self.are_some, self.is_over) = (self.are_some(), true);
            (self.first, self.mirrors) = (Vec::new(), [None, None]);
        } else if count == DOUBLES || count == DOUBLES_MANY {
            // at once, so that nothing is allocated for each packet
            self.first.reserve_exact(if count == DOUBLES { DOUBLES_MANY } else { DOUBLES_MAX } - count);
        }
        Shown::First
    }

    fn is_suspected(&self) -> bool {
        self.mirrors.iter().any(Option::is_some)
    }

    /// The mirror that shows a direction twice if this packet, which was not added yet, is the copy of one of its first.
    fn suspect(&self, (time, by, contents): Mark) -> Option<Mirror> {
        let mine = self.first.iter().filter(|(_, b, _)| *b == by);
        let (first, ..) = mine.clone().take(FIRST_FEW).find(|(.., c)| *c == contents)?;
        let mut mirror = Mirror::new(time.saturating_sub(*first));
        mine.for_each(|(time, _, contents)| _ = mirror.may_be_copy(*time, *contents));
        _ = mirror.may_be_copy(time, contents);
        Some(mirror)
    }

    /// True if there is a mirror: of both directions, or of that of `by`, and the other one would have shown it by now.
    fn is_sure(&self, time: i64, by: End) -> bool {
        let Some(mine) = &self.mirrors[by.index()] else { return false };
        match &self.mirrors[by.peer().index()] {
            Some(other) => mine.is_sure_with(other) || mine.is_sure() && other.is_sure(),
            None => {
                let mut others = self.first.iter().filter(|(_, b, _)| *b != by);
                let is_clear = match others.clone().nth(FIRST_FEW - 1) {
                    Some((last, ..)) => time.saturating_sub(*last) > mine.apart.1.saturating_mul(2),
                    None => others.next().is_none(),
                };
                mine.is_sure() && is_clear
            }
        }
    }

    /// By end: true if copies of its packets are distinguished from retransmissions.
    pub fn known(&self) -> [bool; 2] {
        [0, 1].map(|end| self.is_known && self.mirrors[end].is_some())
    }

    /// True if so many packets of both directions came twice that a mirror may be the reason.
    pub fn are_some(&self) -> bool {
        if self.is_over || self.is_known {
            return self.are_some;
        }
        let mut first = [(End::A, [0; 3]); DOUBLES];
        let count = self.first.len().min(DOUBLES);
        for (place, (_, by, contents)) in first.iter_mut().zip(&self.first) {
            *place = (*by, *contents);
        }
        first[..count].sort_unstable();
        let (mut twice, mut alone) = ([0usize; 2], 0);
        for same in first[..count].chunk_by(|a, b| a == b) {
            match same {
                [(by, _), _, ..] => twice[by.index()] += 1,
                _ => alone += 1,
            }
        }
        twice.iter().all(|n| *n > 0) && (twice[0] + twice[1]) * 3 >= alone
    }
}

/// Packets of a direction that must have been seen before a mirror is recognised.
const ENOUGH: u64 = 8;

/// True if a mirror shows every packet twice: about half of what both directions sent appears again. Recovery repeats
/// packets of one direction, and never all of them; and a packet that is sent over and over appears more than twice. By
/// direction: `of` packets, `again` those that had been captured before, `thrice` those that had been captured twice
/// before.
pub fn is_mirrored(of: [u64; 2], again: [u64; 2], thrice: [u64; 2]) -> bool {
    let is_twice = thrice.iter().sum::<u64>() * 4 <= again.iter().sum::<u64>();
    is_twice
        && of.iter().sum::<u64>() >= 2 * ENOUGH
        && of.iter().zip(again).all(|(of, again)| *of >= ENOUGH / 2 && again * 20 >= of * 9)
}

/// True if so many packets of both directions appear again that a mirror may be the reason, though it is not certain.
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

    /// A mirror may show a datagram late; where identifications count up, no other one has its.
    #[test]
    fn a_datagram_is_the_same_however_late_if_identifications_count_up() {
        let is_copy = |ids: fn(u16) -> u16| {
            let mut copies = Copies::default();
            let at = |n: u16| At { frame: n.into(), time: i64::from(n) * 1_000_000 };
            (1..12).for_each(|n| copies.add(at(n), n.into(), mark(ids(n), n)));
            copies.has(at(60), 11, mark(ids(11), 11), false, None)
        };
        assert_eq!([is_copy(|n| 500 + n), is_copy(|_| 500), is_copy(|n| n.wrapping_mul(20_011))], [true, false, false]);
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
    fn how_soon_a_copy_follows() {
        let latest = |mark: u32, calm: bool| {
            let mut copies = Copies::default();
            copies.add(at(0), 7, mark);
            let has = |us: u32| copies.has(at(i64::from(us) * 1000), 7, mark, calm, None);
            [SAME_CONTENTS, SAME_CONTENTS_CALM, SAME_DATAGRAM].map(|us| (has(us), has(us + 1)))
        };
        assert_eq!(latest(mark(500, 9), false), [(true, true), (true, true), (true, false)]);
        assert_eq!(latest(mark(500, 9), true), [(true, true), (true, true), (true, false)]);
        assert_eq!(latest(mark(0, 9), false), [(true, false), (false, false), (false, false)]);
        assert_eq!(latest(mark(0, 9), true), [(true, true), (true, false), (false, false)]);
    }

    #[test]
    fn what_is_known_of_a_number() {
        let frame = |frame, time| At { frame, time };
        let mut copies = Copies::default();
        copies.add(frame(3, 1_000), 7, mark(0, 9));
        copies.add(frame(5, 9_000), 7, mark(0, 9));
        copies.add(frame(6, 9_000), 8, mark(0, 9));
        assert_eq!((copies.times(7), copies.times(8), copies.times(9)), (2, 1, 0));
        assert_eq!(
            (copies.first_age(frame(9, 21_000), 7), copies.first_age(frame(9, 21_000), 9)),
            (Some(20_000), None)
        );
        assert_eq!((copies.frame_of(frame(9, 0), 7), copies.frame_of(frame(9, 0), 9)), (Some(5), None));
        assert_eq!(copies.frame_of(frame(5, 0), 7), None, "the same frame");
        // what is older than what was asked for is no original, if it has no identification
        let asked = |number| copies.has(frame(9, 10_000), 7, mark(0, 9), true, Some(frame(number, 0)));
        assert!(asked(3) && asked(5) && !asked(6));
        let mut named = Copies::default();
        named.add(frame(3, 1_000), 7, mark(1, 9));
        assert!(named.has(frame(9, 10_000), 7, mark(1, 9), true, Some(frame(6, 0))));
    }

    #[test]
    fn shares_at_which_a_mirror_is_recognised() {
        assert!(is_mirrored([100, 60], [45, 27], [18, 0]));
        assert!(!is_mirrored([100, 60], [45, 27], [18, 1]), "more than a quarter came a third time");
        assert!(!is_mirrored([100, 60], [44, 28], [0, 0]) && !is_mirrored([100, 60], [46, 26], [0, 0]));
        assert!(
            is_mirrored([12, 4], [6, 2], [0, 0])
                && !is_mirrored([11, 4], [6, 2], [0, 0])
                && !is_mirrored([13, 3], [6, 2], [0, 0])
        );
        assert!(
            may_be_mirrored([4, 8], [1, 2]) && !may_be_mirrored([5, 8], [1, 2]) && !may_be_mirrored([0, 8], [0, 2])
        );
    }

    #[test]
    fn steps_of_identifications() {
        let counting = |last: u16| {
            let mut ids = Ids::default();
            let told: Vec<_> = (500..=last).map(|id| ids.behind(id)).collect();
            (ids, told.last().copied().flatten())
        };
        assert_eq!(counting(508).1, None);
        assert_eq!(counting(509).1, Some(0));
        let after = |id| counting(509).0.behind(id);
        assert_eq!([after(509 + STEP_MAX), after(509 + STEP_MAX + 1)], [Some(0), None]);
        assert_eq!(
            [after(509_u16.wrapping_sub(BACK_MAX)), after(509_u16.wrapping_sub(BACK_MAX + 1))],
            [Some(BACK_MAX), None]
        );
        // beyond that they begin anew
        let mut ids = counting(509).0;
        assert_eq!((ids.behind(40_000), ids.behind(40_001), ids.behind(39_999)), (None, None, None));
        let mut ids = counting(507).0;
        assert_eq!((ids.behind(506), ids.behind(508)), (None, None), "not known yet");
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
    fn a_duplicated_connection_is_recognized_by_its_even_distance() {
        let talk = |distances: &[i64]| {
            let mut doubles = DoubleDetector::default();
            let mut packets: Vec<(i64, u32)> = Vec::new();
            for (n, distance) in (0..).zip(distances) {
                packets.extend([(i64::from(n) * 1_000, n), (i64::from(n) * 1_000 + distance, n)]);
            }
            packets.sort_unstable();
            for (time, n) in packets {
                doubles.add(At { frame: 1, time }, if n % 2 == 0 { End::A } else { End::B }, [n, 0, 0]);
            }
            (doubles.are_some(), doubles.is_known)
        };
        let is_known = |distances: &[i64]| talk(distances).1;
        assert_eq!(talk(&[500_000, 500_000]), (true, false), "some of both directions");
        assert!(is_known(&[500_000; 6]) && is_known(&[500_000; 200]));
        assert!(!is_known(&[500_000; 3]), "too few");
        assert!(!is_known(&[500_000, 500_000, 900_000, 500_000]), "timeouts");
        assert!(!DoubleDetector::default().is_known && !DoubleDetector::default().are_some());
    }

    #[test]
    fn once_a_mirror_is_known_its_copies_are_told_from_what_was_sent_again() {
        let mut doubles = DoubleDetector::default();
        let mut add = |us: i64, by: End, number: u32| doubles.add(at(us * 1_000), by, [number, 0, 0]);
        let mut known = None;
        for n in 0..8 {
            let by = if n % 2 == 0 { End::A } else { End::B };
            let shown = [add(i64::from(n) * 1_000, by, n), add(i64::from(n) * 1_000 + 300, by, n)];
            known = known.or(shown.contains(&Shown::Mirrored).then_some(n));
        }
        assert_eq!(known, Some(3));
        assert_eq!([add(9_000, End::A, 8), add(9_300, End::A, 8)], [Shown::First, Shown::Again]);
        assert_eq!(
            [add(9_400, End::A, 8), add(9_700, End::A, 8)],
            [Shown::First, Shown::Again],
            "sent again, and shown twice as everything is"
        );
        assert_eq!(
            [add(10_000, End::A, 9), add(12_000, End::A, 9)],
            [Shown::First, Shown::First],
            "the copy of one was not captured"
        );
        assert!(doubles.is_known);
    }

    #[test]
    fn a_copy_is_the_same_datagram_soon_after() {
        let mut copies = Copies::default();
        assert!(!copies.has(at(0), 0, 0, false, None), "nothing was seen");
        copies.add(at(1_000), 7, mark(500, 9));
        assert!(copies.has(at(2_000_000), 7, mark(500, 9), false, None));
        assert!(!copies.has(at(2_000_000), 7, mark(501, 9), false, None), "sent again");
        assert!(!copies.has(at(2_000_000), 7, mark(500, 8), false, None), "other contents");
        assert!(!copies.has(at(20_000_000), 7, mark(500, 9), false, None), "too late");
        copies.add(at(1_000), 8, mark(0, 9));
        assert!(
            copies.has(at(5_000), 8, mark(0, 9), false, None) && !copies.has(at(50_000), 8, mark(0, 9), false, None),
            "without an identification only time tells"
        );
        assert!(
            copies.has(at(50_000), 8, mark(0, 9), true, None) && !copies.has(at(900_000), 8, mark(0, 9), true, None),
            "and whether it was asked for"
        );
        for n in 100..116 {
            copies.add(at(2_000), n, mark(500, 9));
        }
        assert!(!copies.has(at(3_000), 7, mark(500, 9), false, None), "forgotten");
    }

    #[test]
    fn a_copy_comes_after_its_distance_more_or_less() {
        let mirror = |time: i64| {
            let mut mirror = Mirror::new(500_000);
            assert!(!mirror.is_copy(0, [7; 3]));
            (mirror.is_copy(time, [7; 3]), mirror.alone, mirror.pairs)
        };
        let spread = SPREAD + 500_000 / SPREAD_PART_SHORT;
        let (least, most) = (500_000 - spread, 500_000 + spread);
        assert_eq!([mirror(least - 1), mirror(least)], [(false, 0, 0), (true, 0, 1)]);
        assert_eq!([mirror(most), mirror(most + 1)], [(true, 0, 1), (false, 1, 0)]);
    }

    #[test]
    fn a_mirror_is_sure_with_copies_of_both_directions_and_few_without() {
        let with = |pairs: usize, alone: usize| Mirror { pairs, alone, ..Mirror::new(1000) };
        let is_sure = |[a, b]: [usize; 2], alone: usize| with(a, alone).is_sure_with(&with(b, 0));
        assert_eq!(
            [is_sure([7, 1], 1), is_sure([1, 7], 1), is_sure([8, 0], 1), is_sure([0, 8], 1)],
            [true, true, false, false]
        );
        assert_eq!(
            [is_sure([4, 4], 1), is_sure([4, 4], 2), is_sure([3, 4], 1), is_sure([8, 8], 2)],
            [true, false, false, true]
        );
        assert_eq!([is_sure([DOUBLES_LEAST - 1, 1], 0), is_sure([DOUBLES_LEAST - 2, 1], 0)], [true, false]);
        let apart = |distance: i64| with(4, 0).is_sure_with(&Mirror { pairs: 4, ..Mirror::new(distance) });
        assert_eq!([apart(1000), apart(1_000_000)], [true, false]);
    }

    #[test]
    fn a_direction_that_is_shown_twice_alone_is_so_for_longer_than_a_sender_goes_back() {
        let is_sure = |pairs: usize, alone: usize, span: i64| {
            Mirror { pairs, alone, span: Some((0, span)), ..Mirror::new(0) }.is_sure()
        };
        let enough = SPREAD * ONE_WAY_SPAN;
        assert_eq!([is_sure(8, 1, enough), is_sure(8, 2, enough), is_sure(7, 0, enough)], [true, false, false]);
        assert!(!is_sure(8, 0, enough - 1));
        // packets of A, one in 100 us, those of B between them; copies after so many us
        let talk = |packets: u32, apart: [Option<i64>; 2]| {
            let mut all: Vec<(i64, End, u32)> = Vec::new();
            for n in 0..packets {
                let (time, by) = (i64::from(n) * 50, if n % 2 == 0 { End::A } else { End::B });
                all.push((time, by, n));
                all.extend(apart[by.index()].map(|apart| (time + apart, by, n)));
            }
            all.sort_unstable();
            let mut doubles = DoubleDetector::default();
            let shown: Vec<Shown> =
                all.iter().map(|(us, by, n)| doubles.add(at(us * 1_000), *by, [*n, 0, 0])).collect();
            let count = |which: Shown| shown.iter().filter(|shown| **shown == which).count();
            (doubles.is_known, count(Shown::Suspect), count(Shown::Again) > 20)
        };
        assert_eq!(talk(100, [Some(70), None]), (true, 1, true));
        assert_eq!(talk(100, [None, Some(70)]), (true, 1, true));
        assert_eq!(talk(200, [Some(370), Some(130)]), (true, 1, true), "two points, two clocks");
        assert_eq!(talk(100, [Some(70), Some(70)]), (true, 1, true));
        assert_eq!(talk(100, [None, None]), (false, 0, false));
        // a sender that goes back once, over all that it had sent
        let mut doubles = DoubleDetector::default();
        let again = (0..40).map(|n| (500 + n, n)).chain((40..100).map(|n| (1_000 + n * 50, n)));
        for (us, n) in (0..40).map(|n| (n, n)).chain(again) {
            doubles.add(at(us * 1_000), End::A, [n as u32, 0, 0]);
        }
        assert!(!doubles.is_known);
        // and one whose peer is gone, with all that it has sent, every 500 us
        let mut doubles = DoubleDetector::default();
        for us in (0..20).flat_map(|time| (0..100).map(move |n| (time * 500 + n, n))) {
            doubles.add(at(us.0 * 1_000), End::A, [us.1 as u32, 0, 0]);
        }
        assert!(!doubles.is_known);
    }

    /// Different packets that came at the beginning.
    fn packets(count: usize) -> Vec<Mark> {
        (0..count as u32).map(|n| (0, if n % 2 == 0 { End::A } else { End::B }, [n, 1, 1])).collect()
    }

    #[test]
    fn how_long_copies_are_waited_for() {
        // the packet with which so many have come, so long after the first
        let is_over = |count: usize, time: i64, suspect: Option<i64>| {
            let mirrors = [None, suspect.map(|distance| Box::new(Mirror::new(distance)))];
            let mut doubles = DoubleDetector { first: packets(count - 1), mirrors, ..DoubleDetector::default() };
            assert_eq!(doubles.add(at(time), End::A, [9; 3]), Shown::First);
            assert_eq!(doubles.first.is_empty(), doubles.is_over);
            doubles.is_over
        };
        let late = DOUBLES_TIME + 1;
        assert_eq!(
            [is_over(DOUBLES - 1, late, None), is_over(DOUBLES, late, None), is_over(DOUBLES + 1, late, None)],
            [false, true, true]
        );
        assert!(!is_over(DOUBLES, DOUBLES_TIME, None));
        // with a suspect copy, that of the others may come
        assert!(!is_over(DOUBLES, late, Some(2 * DOUBLES_TIME)));
        assert_eq!([is_over(DOUBLES_MAX - 1, 0, None), is_over(DOUBLES_MAX, 0, None)], [false, true]);
        assert!(is_over(DOUBLES_MAX, 0, Some(2 * DOUBLES_TIME)));
    }

    #[test]
    fn so_many_packets_without_a_copy_clear_the_suspect() {
        let suspect = |alone: usize, pairs: usize| Mirror { pairs, alone, ..Mirror::new(1000) }.is_none();
        assert_eq!([suspect(ALONE_MAX - 1, 0), suspect(ALONE_MAX, 0)], [false, true]);
        // one more for two that had theirs
        assert_eq!([suspect(ALONE_MAX, 2), suspect(ALONE_MAX + 1, 2)], [false, true]);
        let mut doubles = DoubleDetector::default();
        let mut add = |us: i64, n: u32| {
            doubles.add(at(us * 1_000), End::A, [n, 0, 0]);
            doubles.is_suspected()
        };
        assert_eq!([add(0, 1), add(500, 1), add(501, 2), add(502, 3), add(503, 4)], [false, true, true, true, true]);
        assert_eq!([add(504, 5), add(2_000, 6)], [true, false]);
    }

    #[test]
    fn so_many_packets_wait_for_their_copies() {
        let is_known = |count: usize| {
            let waiting = packets(count).into_iter().map(|(time, _, contents)| (time, contents)).collect();
            let mut doubles = DoubleDetector {
                is_known: true,
                mirrors: [Some(Box::new(Mirror { waiting, ..Mirror::new(1000) })), None],
                ..DoubleDetector::default()
            };
            assert_eq!(doubles.add(at(0), End::A, [9; 3]), Shown::First);
            doubles.is_known
        };
        assert_eq!([is_known(WAITING_MAX - 1), is_known(WAITING_MAX)], [true, false]);
    }

    #[test]
    fn so_many_that_came_twice_may_be_a_mirrors() {
        let are_some = |alone: usize, twice: &[End]| {
            let mut first = packets(alone);
            for (n, by) in (1000..).zip(twice) {
                first.extend([(0, *by, [n, 0, 0]); 2]);
            }
            DoubleDetector { first, ..DoubleDetector::default() }.are_some()
        };
        let (a, b) = (End::A, End::B);
        assert_eq!([are_some(6, &[a, b]), are_some(7, &[a, b])], [true, false]);
        assert_eq!([are_some(9, &[a, a, b]), are_some(10, &[a, a, b])], [true, false]);
        assert_eq!([are_some(1, &[a, a]), are_some(1, &[b, b])], [false, false], "of one direction");
    }
}
