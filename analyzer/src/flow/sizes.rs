//! Sizes of one direction's packets: those that arrived, and one that is sent again and again and never does. Where
//! only large ones are lost, a link on the way takes smaller ones only (RFC 2923 2.1 calls that a black hole).

use crate::episodes::not_before;
use crate::op::At;
use alloc::boxed::Box;
use alloc::vec::Vec;

/// Lengths that wait for their acknowledgment at a time, at most.
const WAITING_MAX: usize = 8;

/// A packet that is sent again and again and is not acknowledged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stuck {
    /// Where it begins.
    begin: u32,
    /// The number with which it is acknowledged.
    number: u32,
    /// Bytes of its payload.
    pub length: u32,
    /// The first time that it was sent again.
    pub first: At,
    /// The last time.
    pub last: At,
    /// Number of times that it was sent again.
    pub again: u32,
    /// The receiver asked for it: packets behind it arrive.
    pub is_asked: bool,
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
    /// True if that is less than a full packet has.
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

#[derive(Clone, Debug, Default)]
struct Open {
    /// Packets larger than all that arrived: number and length, one of each length.
    waiting: Vec<(u32, u32)>,
    stuck: Option<Stuck>,
    /// Packets that never came by: where the direction goes on, and their number.
    missing: Option<(At, u32)>,
}

impl Sizes {
    /// A packet is sent for the first time.
    #[inline]
    pub fn sent(&mut self, number: u32, length: u32) {
        if length > self.arrived {
            self.waits(number, length);
        }
    }

    #[cold]
    fn waits(&mut self, number: u32, length: u32) {
        let waiting = &mut self.open.get_or_insert_default().waiting;
        if waiting.iter().any(|(_, waiting)| *waiting == length) {
            return;
        }
        if waiting.len() >= WAITING_MAX {
            // nothing is said of what is not known to be lost
            self.arrived = self.arrived.max(length);
            return;
        }
        waiting.push((number, length));
    }

    /// A packet that begins at one number and is acknowledged with another is sent again.
    pub fn again(&mut self, at: At, (begin, number): (u32, u32), length: u32) {
        if length <= self.arrived {
            return;
        }
        let known = &mut self.open.get_or_insert_default().stuck;
        match known {
            Some(stuck) if stuck.begin == begin => {
                stuck.again = stuck.again.saturating_add(1);
                stuck.last = at;
                if length < stuck.length {
                    (stuck.number, stuck.length) = (number, length);
                }
            }
            // a sender goes back to the first one that is missing
            Some(stuck) if not_before(begin, stuck.begin) => {}
            _ => *known = Some(Stuck { begin, number, length, first: at, last: at, again: 1, is_asked: false }),
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
        for (_, length) in open.waiting.extract_if(.., |(waiting, _)| not_before(number, *waiting)) {
            self.arrived = self.arrived.max(length);
        }
        open.stuck = open.stuck.filter(|stuck| !not_before(number, stuck.number));
        if open.waiting.is_empty() && open.stuck.is_none() && open.missing.is_none() {
            self.open = None;
        }
    }

    /// The receiver has all before this number, and says so again: packets that were sent behind it arrive.
    #[inline]
    pub fn asked(&mut self, number: u32) {
        if let Some(stuck) = self.open.as_mut().and_then(|open| open.stuck.as_mut()) {
            stuck.is_asked |= not_before(stuck.begin, number);
        }
    }

    /// The packet that does not arrive, and the bytes of payload of the largest that did; `None` if it was not sent
    /// again several times, or if one as large arrived.
    pub fn stuck(&self) -> Option<(Stuck, u32)> {
        /// Times that chance does not explain.
        const SEVERAL: u32 = 3;
        let stuck = self.open.as_ref()?.stuck;
        stuck.filter(|stuck| stuck.again >= SEVERAL && stuck.length > self.arrived).map(|s| (s, self.arrived))
    }

    /// So many packets, or bytes of a stream, never came by, though their receiver asked for them.
    #[cold]
    pub fn never_came(&mut self, at: At, count: u32) {
        let missing = &mut self.open.get_or_insert_default().missing;
        let (first, known) = missing.unwrap_or((at, 0));
        *missing = Some((first, known.saturating_add(count)));
    }

    /// Packets that never came by, of a direction whose full packets have so many bytes; 0 if that is unknown.
    pub fn missing(&self, full: u32) -> Option<NeverCame> {
        let (arrived, missing) = (self.arrived, self.open.as_ref()?.missing);
        missing.map(|(at, count)| NeverCame { at, count, arrived, is_small: arrived > 0 && arrived < full })
    }

    /// Bytes of payload of the largest packet that arrived.
    pub fn largest(&self) -> u32 {
        self.arrived
    }

    /// Bytes of memory besides its own size.
    pub fn memory(&self) -> usize {
        self.open.as_ref().map_or(0, |open| size_of::<Open>() + open.waiting.capacity() * size_of::<(u32, u32)>())
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
        sizes.sent(u32::MAX, 100);
        sizes.arrived(u32::MAX);
        sizes.sent(5, length);
        (1..=times).for_each(|n| sizes.again(at(n), (5, 5), length));
        sizes
    }

    #[test]
    fn only_what_is_larger_than_all_that_arrived_is_stuck_by_its_size() {
        let found = |length, times| tried(length, times).stuck().map(|(stuck, arrived)| (stuck.again, arrived));
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
        (20..30).for_each(|n| sizes.again(at(n), (9, 9), 4097));
        assert_eq!(sizes.stuck().map(|(stuck, arrived)| (stuck.length, arrived)), Some((4097, 4096)));
    }

    #[test]
    fn a_sender_goes_back_to_the_first_that_is_missing() {
        let mut sizes = tried(4096, 4);
        sizes.again(at(5), (6, 6), 200);
        sizes.asked(6);
        assert_eq!(sizes.stuck().map(|(stuck, _)| (stuck.length, stuck.is_asked)), Some((4096, false)));
        sizes.asked(5);
        sizes.again(at(6), (4, 4), 300);
        assert_eq!(sizes.stuck(), None, "that one was tried once");
        (7..9).for_each(|n| sizes.again(at(n), (4, 4), 300));
        assert_eq!(sizes.stuck().map(|(stuck, _)| (stuck.length, stuck.first.frame)), Some((300, 6)));
    }

    #[test]
    fn of_too_many_lengths_nothing_is_said() {
        let mut sizes = Sizes::default();
        (0..20).for_each(|n| sizes.sent(n, 100 + n));
        (0..9).for_each(|n| sizes.again(at(n), (1, 1), 101));
        assert_eq!(sizes.stuck(), None);
    }
}
