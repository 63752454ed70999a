//! Sizes of one direction's packets: those that arrived, and one that is sent again and again and never does. Where
//! only large ones are lost, a link on the way takes smaller ones only (RFC 2923 2.1 calls that a black hole).

use crate::episodes::not_before;
use crate::op::At;
use alloc::boxed::Box;
use alloc::vec::Vec;

/// Packets larger than all that arrived which are remembered until they are acknowledged, at most.
const WAITING_MAX: usize = 64;

/// A packet that is sent again and again and is not acknowledged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stuck {
    /// Where it begins.
    pub begin: u32,
    /// The number with which it is acknowledged.
    pub number: u32,
    /// Bytes of its payload.
    pub length: u32,
    /// The first time that it was sent again.
    pub first: At,
    /// The last time.
    pub last: At,
    /// Number of times that it was sent again.
    pub again: u32,
    /// Number of times that the receiver asked for it, each after another try.
    pub asked: u32,
    /// The tries that had been made when it asked last.
    pub tries: u32,
    /// True if it did because a packet behind it arrived, which may have been a small one.
    pub is_small_behind: bool,
    /// Bytes of payload of the largest packet that arrived.
    pub arrived: u32,
}

/// Packets that never came by, though their receiver asked for them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NeverCame {
    /// Where the direction goes on, or the end.
    pub at: At,
    /// Number of packets, or of bytes of a stream.
    pub count: u32,
    /// Bytes of payload of the largest packet that arrived.
    pub arrived: u32,
    /// True if that is less than a full packet has, and no small packet alone is missing.
    pub is_small: bool,
}

/// Sizes of one direction's packets. Lengths are bytes of payload; sequence numbers are 32 bits wide, and wrap.
#[derive(Clone, Debug, Default)]
pub struct Sizes {
    /// The largest that arrived.
    arrived: u32,
    /// What has not arrived so far, or never does.
    open: Option<Box<Open>>,
}

/// A packet that was sent: where it begins, the number with which it is acknowledged, and its length.
type Waiting = (u32, u32, u32);

#[derive(Clone, Debug, Default)]
struct Open {
    /// Packets larger than all that arrived.
    waiting: Vec<Waiting>,
    /// The last packet that was not larger: where it begins.
    small: Option<u32>,
    /// The packet that the receiver asked for last.
    asked: Option<u32>,
    stuck: Option<Stuck>,
    /// Packets that never came by: where the direction goes on, and their number.
    missing: Option<(At, u32)>,
}

impl Sizes {
    /// A packet is sent for the first time.
    #[inline]
    pub fn sent(&mut self, (begin, number): (u32, u32), length: u32) {
        if length > self.arrived || self.open.is_some() {
            self.waits((begin, number, length));
        }
    }

    #[cold]
    fn waits(&mut self, packet: Waiting) {
        let (begin, _, length) = packet;
        let open = self.open.get_or_insert_default();
        if length <= self.arrived {
            open.small = Some(begin);
        } else if open.waiting.len() < WAITING_MAX {
            open.waiting.push(packet);
        } else {
            // nothing is said of what is not known to be lost
            self.arrived = length;
        }
    }

    /// A packet is sent again.
    pub fn again(&mut self, at: At, (begin, number): (u32, u32), length: u32) {
        let arrived = self.arrived;
        let Open { stuck: known, small, asked, .. } = &mut **self.open.get_or_insert_default();
        let is_small_behind = small.is_some_and(|small| small != begin && not_before(small, begin));
        match known {
            Some(stuck) if stuck.begin == begin => {
                stuck.again = stuck.again.saturating_add(1);
                stuck.last = at;
                stuck.is_small_behind |= is_small_behind;
                if length < stuck.length {
                    (stuck.number, stuck.length) = (number, length);
                }
            }
            // a sender goes back to the first one that is missing, and repeats all behind it
            Some(stuck) if not_before(begin, stuck.begin) => stuck.is_small_behind |= length < stuck.length / 2,
            _ => {
                let (first, last, again, tries) = (at, at, 1, 0);
                let asked = u32::from(*asked == Some(begin));
                *known =
                    Some(Stuck { begin, number, length, first, last, again, asked, tries, is_small_behind, arrived });
            }
        }
    }

    /// The receiver has all packets up to this number.
    #[inline]
    pub fn arrived(&mut self, number: u32) {
        if self.open.is_some() {
            self.arrived_some(number);
        }
    }

    #[cold]
    fn arrived_some(&mut self, number: u32) {
        let Some(open) = &mut self.open else { return };
        for (.., length) in open.waiting.extract_if(.., |(_, waiting, _)| not_before(number, *waiting)) {
            self.arrived = self.arrived.max(length);
        }
        open.stuck = open.stuck.filter(|stuck| !not_before(number, stuck.number));
        open.small = open.small.filter(|small| !not_before(number, *small));
        if open.waiting.is_empty() && open.stuck.is_none() && open.missing.is_none() {
            self.open = None;
        }
    }

    /// The receiver has what lies between these two numbers, and not all before it (RFC 2018).
    pub fn has(&mut self, (left, right): (u32, u32)) {
        let Some(open) = &mut self.open else { return };
        let is_inside = |(begin, number, _): &&Waiting| not_before(*begin, left) && not_before(right, *number);
        let largest = open.waiting.iter().filter(is_inside).map(|(.., length)| *length).max();
        self.arrived = self.arrived.max(largest.unwrap_or_default());
    }

    /// The receiver asks for a packet: one that was sent behind it arrived.
    pub fn asked(&mut self, number: u32) {
        self.wanted(number);
        let Some(open) = &mut self.open else { return };
        let is_behind = |begin: u32| begin != number && not_before(begin, number);
        if !open.small.is_some_and(is_behind) {
            // it was a large one
            let behind = open.waiting.iter().filter(|(begin, ..)| is_behind(*begin));
            self.arrived = self.arrived.max(behind.map(|(.., length)| *length).min().unwrap_or_default());
        }
    }

    /// The receiver asks for a packet, for whatever reason.
    pub fn wanted(&mut self, number: u32) {
        let Some(open) = &mut self.open else { return };
        open.asked = Some(number);
        let is_it = |stuck: &&mut Stuck| stuck.begin == number && stuck.again > stuck.tries;
        if let Some(stuck) = open.stuck.as_mut().filter(is_it) {
            (stuck.asked, stuck.tries) = (stuck.asked.saturating_add(1), stuck.again);
        }
    }

    /// The packet that does not arrive; `None` if it was not sent again several times, or if one as large arrived, also
    /// if that was before.
    pub fn stuck(&self) -> Option<Stuck> {
        /// Times that chance does not explain.
        const SEVERAL: u32 = 3;
        let stuck = self.open.as_ref()?.stuck.filter(|stuck| stuck.again >= SEVERAL)?;
        let arrived = self.arrived.max(stuck.arrived);
        // one as large had arrived before: only now small ones alone do
        let no_more = stuck.asked >= SEVERAL && stuck.is_small_behind && self.arrived == stuck.arrived;
        (stuck.length > arrived || no_more).then_some(Stuck { arrived, ..stuck })
    }

    /// So many packets, or bytes of a stream, never came by, though their receiver asked for them.
    #[cold]
    pub fn never_came(&mut self, at: At, count: u32) {
        let missing = &mut self.open.get_or_insert_default().missing;
        let (first, known) = missing.unwrap_or((at, 0));
        *missing = Some((first, known.saturating_add(count)));
    }

    /// Packets that never came by, of a direction whose full packets have so many bytes (0 if that is unknown); more than
    /// `one` of them are more than one small packet.
    pub fn missing(&self, full: u32, one: u32) -> Option<NeverCame> {
        let (arrived, missing) = (self.arrived, self.open.as_ref()?.missing);
        let is_small = |count: u32| arrived > 0 && arrived < full && count > one;
        missing.map(|(at, count)| NeverCame { at, count, arrived, is_small: is_small(count) })
    }

    /// Bytes of payload of the largest packet that arrived.
    pub fn largest(&self) -> u32 {
        self.arrived
    }

    /// Bytes of memory besides its own size.
    pub fn memory(&self) -> usize {
        self.open.as_ref().map_or(0, |open| size_of::<Open>() + open.waiting.capacity() * size_of::<Waiting>())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(frame: u64) -> At {
        At { frame, time: frame as i64 }
    }

    /// A direction in which 100 bytes arrived, and one packet goes out again and again.
    fn tried(length: u32, times: u64) -> Sizes {
        let mut sizes = Sizes::default();
        sizes.sent((u32::MAX, u32::MAX), 100);
        sizes.arrived(u32::MAX);
        sizes.sent((5, 5), length);
        (1..=times).for_each(|n| sizes.again(at(n), (5, 5), length));
        sizes
    }

    #[test]
    fn only_what_is_larger_than_all_that_arrived_is_stuck_by_its_size() {
        let found = |length, times| tried(length, times).stuck().map(|stuck| (stuck.again, stuck.arrived));
        assert_eq!([found(4096, 2), found(4096, 3), found(101, 3)], [None, Some((3, 100)), Some((3, 100))]);
        assert_eq!(found(100, 9), None);
    }

    #[test]
    fn what_is_acknowledged_in_the_end_arrived() {
        let mut sizes = tried(4096, 9);
        sizes.arrived(4);
        assert!(sizes.stuck().is_some());
        sizes.arrived(5);
        (20..30).for_each(|n| sizes.again(at(n), (9, 9), 4096));
        assert_eq!(sizes.stuck(), None);
        (20..30).for_each(|n| sizes.again(at(n), (8, 8), 4097));
        assert_eq!(sizes.stuck().map(|stuck| (stuck.length, stuck.arrived)), Some((4097, 4096)));
    }

    #[test]
    fn a_sender_goes_back_to_the_first_that_is_missing() {
        let mut sizes = tried(4096, 4);
        sizes.again(at(5), (6, 6), 200);
        sizes.asked(6);
        assert_eq!(sizes.stuck().map(|stuck| (stuck.length, stuck.asked)), Some((4096, 0)));
        (0..2).for_each(|_| sizes.asked(5));
        assert_eq!(sizes.stuck().map(|stuck| stuck.asked), Some(1), "it was not tried in between");
        sizes.again(at(6), (4, 4), 300);
        assert_eq!(sizes.stuck(), None, "that one was tried once");
        (7..9).for_each(|n| sizes.again(at(n), (4, 4), 300));
        assert_eq!(sizes.stuck().map(|stuck| (stuck.length, stuck.first.frame)), Some((300, 6)));
    }

    #[test]
    fn who_asks_for_a_packet_had_one_behind_it() {
        let asks = |behind: u32| {
            let mut sizes = tried(1024, 4);
            sizes.sent((6, 6), 1024);
            sizes.sent((7, 7), behind);
            sizes.asked(5);
            sizes.stuck().map(|stuck| stuck.arrived)
        };
        assert_eq!(asks(50), Some(100), "it may be that one");
        assert_eq!(asks(1024), None, "all are as large");
        let has = |left, right| {
            let mut sizes = tried(1448, 4);
            sizes.sent((6, 8), 1448);
            sizes.has((left, right));
            sizes.stuck().is_some()
        };
        assert_eq!([has(6, 8), has(7, 8), has(6, 7)], [false, true, true], "one as large arrived");
    }

    #[test]
    fn large_packets_that_do_not_arrive_any_more() {
        let no_more = |asked: u32, behind: u32| {
            let mut sizes = tried(100, 0);
            sizes.arrived(5);
            sizes.sent((20, 20), 4096);
            sizes.arrived(20);
            sizes.sent((21, 21), 4096);
            sizes.sent((22, 22), behind);
            for n in 1..9 {
                sizes.again(at(n), (21, 21), 4096);
                sizes.again(at(n), (22, 22), behind);
                if n <= u64::from(asked) {
                    sizes.asked(21);
                }
            }
            sizes.stuck().map(|stuck| (stuck.length, stuck.arrived))
        };
        assert_eq!([no_more(3, 50), no_more(2, 50), no_more(3, 4096)], [Some((4096, 4096)), None, None]);
    }

    #[test]
    fn of_too_many_packets_nothing_is_said() {
        let mut sizes = Sizes::default();
        (0..100).for_each(|n| sizes.sent((n, n), 100 + n));
        (0..9).for_each(|n| sizes.again(at(n), (1, 1), 101));
        assert_eq!(sizes.stuck(), None);
    }
}
