//! Losses and their cost in one direction: counted when they happen, reported when the connection ends.
//!
//! One event has one place here. A packet that was lost, the NAK that asked for it and everything that went out again because of it
//! are one loss; a packet that came late is reordering, whatever its receiver made of it.

use crate::finding::Frames;
use crate::op::At;
use alloc::boxed::Box;

/// Something that happened several times: how often, when, in which frames.
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
    /// It happened `n` times at `at`.
    pub fn add(&mut self, at: At, n: u64) {
        if n == 0 {
            return;
        }
        if self.count == 0 || at.time < self.first.time {
            self.first = at;
        }
        self.last = self.last.max(at);
        self.count = self.count.saturating_add(n);
        self.frames.push(at.frame);
    }

    /// One of them was something else.
    pub fn retract(&mut self) {
        self.count = self.count.saturating_sub(1);
    }

    /// Whether it happened at all.
    pub fn any(&self) -> bool {
        self.count > 0
    }
}

/// One direction: what its sender sent, and what became of it. Packets on RC, segments on TCP. Times in ns.
#[derive(Clone, Debug, Default)]
pub struct Losses {
    /// Lost before the capture point: seen only when they were sent again.
    pub lost_before: Tally,
    /// Lost behind the capture point: seen, and sent again because the receiver did not have them.
    pub lost_behind: Tally,
    /// Not acknowledged in time, and sent again: lost behind the capture point, or the acknowledgment was lost before it.
    pub unacknowledged: Tally,
    /// The same, and nothing was heard of the receiver meanwhile: it may just have been slow.
    pub unheard: Tally,
    /// Damaged before the capture point: their checksum is wrong, the receiver dropped them.
    pub damaged: Tally,
    /// Came behind packets that were sent after them.
    pub overtaken: Tally,
    /// Came behind packets that were sent after them, or were lost before the capture point and sent again: nothing tells which.
    pub unclear: Tally,
    /// Responses to Reads that went by and were asked for again: lost behind the capture point, or overtaken there.
    pub went_by: Tally,
    /// The longest delay of what came behind.
    pub delay: i64,
    /// Out of order in the capture only: the receiver had them in order, or had acknowledged them before they stand there.
    pub misplaced: Tally,
    /// Sent again although the receiver had them.
    pub needless: Tally,
    /// All that went out again, for whatever reason.
    pub repeated: Tally,
    /// Negative acknowledgments of a sequence error that the receiver sent for it.
    pub naks: u64,
    /// Times that a requester asked again for Responses of its Reads that it did not get; that a receiver had said that a segment was
    /// missing
    /// which then came.
    pub asked_again: u64,
    /// Times that recovery was under way.
    pub recoveries: u64,
    /// How long altogether, from the first sign to the point where the sender was back.
    pub recovery: i64,
    /// The longest.
    pub recovery_longest: i64,
    /// Never came, and nobody knows why.
    pub vanished: Tally,
    /// The same packet or segment went out again and again, and nothing came back.
    pub unanswered: Option<Unanswered>,
    /// Held up between the sender and the capture point, by the sender's own clock.
    pub held_up: Tally,
    /// How long that was altogether.
    pub held_up_time: i64,
    /// Waits for a delayed acknowledgment, with data to send (Nagle).
    pub nagle: Tally,
    /// How long those waits were altogether.
    pub nagle_time: i64,
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
    /// Whether it is TCP: segments instead of packets.
    pub is_tcp: bool,
    /// Whether a mirror shows everything twice: then what stands there again was not sent again.
    pub is_mirrored: bool,
    /// Whether the copies of that mirror were left out: what goes out again was sent again.
    pub are_copies_known: bool,
    /// By sender: packets that stand there for the third time or more, which no mirror alone shows.
    pub thrice: Option<&'f [Tally; 2]>,
    /// Whether one may: then nothing of it is more than a guess.
    pub may_be_mirrored: bool,
}

/// How many packets two directions counted.
pub fn tallied(of: Option<&[Tally; 2]>) -> [u64; 2] {
    of.map_or([0; 2], |[a, b]| [a.count, b.count])
}

/// A peer that did not answer any more, or not for long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Unanswered {
    /// When the packet went out first.
    pub from: At,
    /// When it went out last, or when the answer came.
    pub to: At,
    /// How often it went out.
    pub times: u32,
    /// Whether an answer came in the end.
    pub answered: bool,
}

impl Unanswered {
    /// For how long, in ns.
    pub fn lasted(&self) -> i64 {
        self.to.time.saturating_sub(self.from.time)
    }
}

impl Losses {
    /// Lost on either side of the capture point.
    pub fn lost(&self) -> u64 {
        self.lost_before.count + self.lost_behind.count
    }

    /// A recovery that lasted from `begin` to `end`.
    pub fn recovered(&mut self, begin: At, end: At) {
        let took = end.time.saturating_sub(begin.time).max(0);
        self.recoveries += 1;
        self.recovery = self.recovery.saturating_add(took);
        self.recovery_longest = self.recovery_longest.max(took);
    }

    /// Keeps the longer of two.
    pub fn unanswered(&mut self, found: Unanswered) {
        if self.unanswered.is_none_or(|known| known.answered && (!found.answered || found.lasted() > known.lasted())) {
            self.unanswered = Some(found);
        }
    }
}
