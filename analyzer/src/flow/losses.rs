//! Losses and their cost in one direction: counted when they happen, reported when the connection ends.
//!
//! One event has one place here. A packet that was lost, the NAK that asked for it and everything that was
//! retransmitted because of it are one loss; a packet that came late is reordering, whatever its receiver made of it.

use super::sizes::{NeverCame, Stuck};
use crate::finding::Frames;
use crate::op::At;
use alloc::boxed::Box;

/// An event that happened several times: number, first and last time, frames.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Number of occurrences.
    pub count: u64,
    /// The first time.
    pub first: At,
    /// The last time.
    pub last: At,
    /// The frames of the first few.
    pub frames: Frames,
}

impl Tally {
    /// Adds `n` occurrences at `at`.
    pub fn add(&mut self, at: At, n: u64) {
        if n == 0 {
            return;
        }
        if self.count == 0 || at.time < self.first.time {
            self.first = at;
        }
        self.last = self.last.max(at);
        self.count = self.count.saturating_add(n);
        self.frames.push(at);
    }

    /// Takes one occurrence back: it was something else.
    pub fn retract(&mut self) {
        self.count = self.count.saturating_sub(1);
    }

    /// Takes the occurrence at `at` back, its frame too.
    pub fn retract_at(&mut self, at: At) {
        self.retract();
        self.frames.remove(at.frame);
        if !self.any() {
            *self = Self::default();
        } else if let Some(first) = self.frames.at().min_by_key(|at| at.time) {
            self.first = first;
        }
    }

    /// Adds the occurrences of another one.
    pub fn join(&mut self, other: &Self) {
        if !other.any() {
            return;
        }
        self.first = if self.any() && self.first.time <= other.first.time { self.first } else { other.first };
        self.last = self.last.max(other.last);
        self.count = self.count.saturating_add(other.count);
        other.frames.at().for_each(|at| self.frames.push(at));
    }

    /// The occurrences that are in none of these, which are parts of it.
    #[must_use]
    pub fn without(&self, parts: &[&Self]) -> Self {
        let count = parts.iter().fold(self.count, |left, part| left.saturating_sub(part.count));
        let mut rest = Self::default();
        let is_left = |at: &At| !parts.iter().any(|part| part.frames.contains(&at.frame));
        self.frames.at().filter(is_left).for_each(|at| rest.add(at, 1));
        if count == 0 {
            return Self::default();
        }
        if !rest.any() {
            (rest.first, rest.last) = (self.first, self.last);
        }
        rest.count = count;
        rest
    }

    /// True if it happened at least once.
    pub fn any(&self) -> bool {
        self.count > 0
    }
}

/// Packets or segments with a wrong checksum that were not damaged on the wire, if all with contents have one.
pub const ALL_CHANGED: u64 = 8;
/// Segments of a sender that may be right where contents were changed: SYN, FIN and RST, which have none.
const WITHOUT_CONTENTS: u32 = 3;

/// True if the checksums of a sender are wrong because the contents were changed in the capture: `bad` of them are
/// wrong, and no more are right than have no contents.
pub fn are_changed(bad: u64, good: u32, is_tcp: bool) -> bool {
    bad >= ALL_CHANGED && good <= if is_tcp { WITHOUT_CONTENTS } else { 0 }
}

/// One direction: losses of its sender's packets, and their repair. Packets on RC, segments on TCP. Times in ns.
#[derive(Clone, Debug, Default)]
pub struct Losses {
    /// Lost before the capture point: seen only when they were sent again.
    pub lost_before: Tally,
    /// Lost behind the capture point: seen, and sent again because the receiver did not have them.
    pub lost_behind: Tally,
    /// Not acknowledged in time, and sent again: lost behind the capture point, or the acknowledgment was lost before
    /// it.
    pub unacknowledged: Tally,
    /// The same, and nothing was heard of the receiver meanwhile: it may just have been slow.
    pub unheard: Tally,
    /// Damaged: their checksum is wrong. The fate of some shows, see the next three.
    pub damaged: Tally,
    /// Those that the receiver dropped: it asked for them, or they were sent again before anything else was.
    pub damaged_dropped: Tally,
    /// Those that were sent again with packets before them, which the receiver would have dropped anyway.
    pub damaged_again: Tally,
    /// Those that were acknowledged and not sent again: the receiver had them undamaged.
    pub damaged_taken: Tally,
    /// Came behind packets that were sent after them.
    pub overtaken: Tally,
    /// Came behind packets that were sent after them, or were lost before the capture point and sent again: the capture
    /// does not show which.
    pub unclear: Tally,
    /// Responses to Reads that went by and were asked for again: lost behind the capture point, or overtaken there.
    pub went_by: Tally,
    /// The longest delay of a packet that came late.
    pub delay: i64,
    /// Out of order in the capture only: the receiver had them in order, or had acknowledged them before they appear in
    /// it.
    pub misplaced: Tally,
    /// Sent again although the receiver had acknowledged them.
    pub needless: Tally,
    /// TCP: sent again although the receiver had them, and no acknowledgment had passed by: it was lost, or late.
    pub ack_late: Tally,
    /// All that was retransmitted, for whatever reason.
    pub repeated: Tally,
    /// Negative acknowledgments of a sequence error that the receiver sent for it.
    pub naks: u64,
    /// RC: times that a requester asked again for missing Responses to its Reads. TCP: segments that the receiver had
    /// reported missing and that then came.
    pub asked_again: u64,
    /// Times that recovery was under way.
    pub recoveries: u64,
    /// Total time of the recoveries, each from its first sign to the point where the sender was back.
    pub recovery: i64,
    /// Time of the longest recovery.
    pub recovery_longest: i64,
    /// Time in ns up to which recoveries were counted.
    recovered_until: i64,
    /// The same packet or segment was retransmitted repeatedly without an answer.
    pub unanswered: Option<Unanswered>,
    /// Held up between the sender and the capture point, by the sender's own clock.
    pub held_up: Tally,
    /// Total time for which segments were held up.
    pub held_up_time: i64,
    /// Waits for a delayed acknowledgment, with data to send (Nagle).
    pub nagle: Tally,
    /// Total time of those waits.
    pub nagle_time: i64,
    /// True if without timestamps it is not known of one of them that the data left behind the acknowledgment.
    pub nagle_unproven: bool,
}

/// Losses by sender.
pub type BySender = [Option<Box<Losses>>; 2];

/// Losses of a flow, with the facts needed to report them.
#[derive(Clone, Copy, Debug, Default)]
pub struct LossView<'f> {
    /// Losses by sender.
    pub losses: [Option<&'f Losses>; 2],
    /// By sender: packets whose checksum is right.
    pub good: [u32; 2],
    /// True for TCP: segments instead of packets.
    pub is_tcp: bool,
    /// True if a mirror shows everything twice: then a packet that appears again was not sent again.
    pub is_mirrored: bool,
    /// By sender: true if the copies of a mirror were left out: then a packet that appears again was sent again.
    pub copies_known: [bool; 2],
    /// By sender: packets that appear for the third time or more, which a mirror alone does not explain.
    pub thrice: Option<&'f [Tally; 2]>,
    /// True if a mirror may show everything twice: then all of this is only a guess.
    pub may_be_mirrored: bool,
    /// By sender: a packet that never arrives, larger than all that do.
    pub stuck: [Option<Stuck>; 2],
    /// By sender: packets, or bytes, that never came by though their receiver asked for them.
    pub never_came: [Option<NeverCame>; 2],
}

/// Packets out of order in the capture alone, at least, of a connection whose order it does not show, and their least
/// share.
const DISORDER: u64 = 8;
const DISORDER_SHARE: u64 = 32;

impl LossView<'_> {
    /// True if so many of a direction's packets stand out of order in the capture alone that its order shows nothing: as
    /// where two capture points with different clocks were merged. `packets` is their number by sender.
    pub fn is_out_of_order(&self, packets: [u64; 2]) -> bool {
        self.losses.iter().zip(packets).any(|(losses, packets)| {
            let count = losses.map_or(0, |losses| losses.misplaced.count);
            count >= DISORDER && count.saturating_mul(DISORDER_SHARE) >= packets
        })
    }
}

/// Number of packets counted in each of two directions.
pub fn tallied(of: Option<&[Tally; 2]>) -> [u64; 2] {
    of.map_or([0; 2], |[a, b]| [a.count, b.count])
}

/// A peer that stopped answering, for good or for a long time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Unanswered {
    /// First transmission of the packet.
    pub from: At,
    /// Its last transmission, or the answer.
    pub to: At,
    /// Number of transmissions.
    pub times: u32,
    /// True if an answer came in the end.
    pub answered: bool,
    /// Packets that it sent itself all the same.
    pub speaks: Speaks,
}

/// Packets of its own that an end sends which acknowledges nothing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Speaks {
    /// None that were not on their way when the silence began.
    #[default]
    Not,
    /// Some while it acknowledged nothing.
    Meanwhile,
    /// Many, and it has never acknowledged anything.
    Always,
}

impl Unanswered {
    /// Time without an answer, in ns.
    pub fn lasted(&self) -> i64 {
        self.to.time.saturating_sub(self.from.time)
    }
}

impl Losses {
    /// Lost on either side of the capture point.
    pub fn lost(&self) -> u64 {
        self.lost_before.count + self.lost_behind.count
    }

    /// Those that were lost on either side of the capture point.
    pub fn lost_anywhere(&self) -> Tally {
        if !self.lost_before.any() {
            return self.lost_behind.clone();
        }
        let mut both = self.lost_before.clone();
        both.add(self.lost_behind.first, self.lost_behind.count);
        both
    }

    /// Adds a recovery that lasted from `begin` to `end`.
    pub fn recovered(&mut self, begin: At, end: At) {
        let took = end.time.saturating_sub(begin.time).max(0);
        self.recoveries += 1;
        // what one stop held up together waited once
        let begun = if self.recoveries > 1 { begin.time.max(self.recovered_until) } else { begin.time };
        self.recovery = self.recovery.saturating_add(end.time.saturating_sub(begun).max(0));
        self.recovered_until = if self.recoveries > 1 { self.recovered_until.max(end.time) } else { end.time };
        self.recovery_longest = self.recovery_longest.max(took);
    }

    /// Keeps the worse of two silences: one that never ended, else the longer one.
    pub fn unanswered(&mut self, found: Unanswered) {
        if self.unanswered.is_none_or(|known| known.answered && (!found.answered || found.lasted() > known.lasted())) {
            self.unanswered = Some(found);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(time: i64) -> At {
        At { frame: time as u64, time }
    }

    #[test]
    fn a_tally_has_a_first_and_a_last() {
        let mut tally = Tally::default();
        tally.add(at(5), 0);
        assert_eq!((tally.any(), tally.count, tally.first), (false, 0, At::default()));
        for (time, n) in [(20, 2), (10, 1), (10, 1), (30, 1), (25, 1)] {
            tally.add(At { frame: time as u64 + u64::from(tally.any()), time }, n);
        }
        assert_eq!((tally.any(), tally.count), (true, 6));
        assert_eq!((tally.first, tally.last), (At { frame: 11, time: 10 }, At { frame: 31, time: 30 }));
        // the first of those at the same time counts
        tally.add(At { frame: 99, time: 10 }, 1);
        assert_eq!(tally.first.frame, 11);
        (0..8).for_each(|_| tally.retract());
        assert_eq!((tally.any(), tally.count), (false, 0));
    }

    #[test]
    fn occurrences_can_be_taken_back_and_told_apart() {
        let mut tally = Tally::default();
        [3, 5, 9].into_iter().for_each(|time| tally.add(at(time), 1));
        let part = |times: &[i64]| {
            let mut part = Tally::default();
            times.iter().for_each(|time| part.add(at(*time), 1));
            part
        };
        assert_eq!(tally.without(&[&part(&[3]), &part(&[9])]), part(&[5]));
        assert_eq!(tally.without(&[&part(&[3, 5, 9])]), Tally::default());
        assert_eq!(tally.without(&[]), tally);
        let mut joined = part(&[5]);
        joined.join(&Tally::default());
        joined.join(&part(&[3]));
        assert_eq!((joined.count, joined.first, joined.last), (2, at(3), at(5)));
        tally.retract_at(at(3));
        assert_eq!((tally.count, tally.first, &tally.frames[..]), (2, at(5), &[5, 9][..]));
        tally.retract_at(at(5));
        tally.retract_at(at(9));
        assert_eq!(tally, Tally::default());
    }

    #[test]
    fn what_was_never_answered_counts_more_than_the_longest_that_was() {
        let silence = |from: i64, to: i64, answered| Unanswered {
            from: at(from),
            to: at(to),
            times: 3,
            answered,
            speaks: Speaks::Not,
        };
        let worst = |all: &[Unanswered]| {
            let mut losses = Losses::default();
            all.iter().for_each(|found| losses.unanswered(*found));
            losses.unanswered.map(|known| (known.from.time, known.lasted(), known.answered))
        };
        assert_eq!(worst(&[]), None);
        assert_eq!(worst(&[silence(0, 10, true), silence(20, 29, true)]), Some((0, 10, true)));
        assert_eq!(
            worst(&[silence(0, 10, true), silence(20, 30, true)]),
            Some((0, 10, true)),
            "the first of those that are as long"
        );
        assert_eq!(worst(&[silence(0, 10, true), silence(20, 31, true)]), Some((20, 11, true)));
        assert_eq!(worst(&[silence(0, 10, true), silence(20, 21, false)]), Some((20, 1, false)));
        assert_eq!(worst(&[silence(0, 1, false), silence(20, 90, true), silence(20, 90, false)]), Some((0, 1, false)));
    }

    #[test]
    fn recoveries_add_up() {
        let mut losses = Losses::default();
        for (begin, end) in [(10, 30), (50, 45), (60, 70)] {
            losses.recovered(at(begin), at(end));
        }
        assert_eq!((losses.recoveries, losses.recovery, losses.recovery_longest), (3, 30, 20));
        // two at the same time
        losses.recovered(at(65), at(90));
        assert_eq!((losses.recoveries, losses.recovery, losses.recovery_longest), (4, 50, 25));
        losses.lost_before.add(at(1), 2);
        losses.lost_behind.add(at(1), 3);
        assert_eq!(losses.lost(), 5);
        assert_eq!(tallied(Some(&[losses.lost_before, losses.lost_behind])), [2, 3]);
        assert_eq!(tallied(None), [0, 0]);
    }
}
