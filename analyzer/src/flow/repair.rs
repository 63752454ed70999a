//! Retransmissions of TCP in one direction: which segments were retransmitted, and whether the receiver had them. RFC
//! 2018 (SACK), RFC 2883 (D-SACK), RFC 3522 (timestamps tell the copies apart), RFC 8985 (tail loss probes).
//!
//! ```text
//!   the receiver acknowledges ──▶ before the copy went out ─▶ needless;  by D-SACK, or with the timestamp of the first copy ─▶ late acknowledgment
//!                             └─▶ else: the receiver did not have it ─▶ lost: before the capture if only the copy was seen, else behind
//! ```

use super::losses::{Losses, Speaks, Unanswered};
use super::recovery::HELD_BACK;
use super::sizes::{NeverCame, Sizes, Stuck};
use crate::episodes::HELD_UP;
use crate::op::At;
use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::vec::Vec;

/// Segments sent again whose fate is open, at most.
const OPEN_MAX: usize = 256;
/// Copies that are remembered, to tell which of them an acknowledgment answers.
const COPIES_MAX: usize = 16;
/// Reports of the same hole that make a sender send again (RFC 5681 3.2).
const DUPLICATES: u32 = 3;
/// ns by which an age is rounded down at most.
const AGE_STEP: i64 = 1_000;
/// ns that a retransmission timer waits at least (RFC 6298 says 1 s; Linux 200 ms).
pub(super) const TIMEOUT_LEAST: i64 = 200_000_000;
/// ns after the acknowledgment within which a D-SACK may still come.
const SETTLED_AFTER: i64 = 1_000_000_000;
/// Copies without anything from the receiver after which it is said to be silent.
const SILENT_COPIES: u32 = 3;
/// ns without anything from the receiver after which it is said to be silent.
const SILENT_TIME: i64 = 1_000_000_000;
/// ns by which a receiver delays an acknowledgment at least (Linux: 40 ms, Windows: 40 to 200 ms).
const DELAYED_ACK: i64 = 20_000_000;
/// The most that RFC 1122 allows.
const DELAYED_ACK_MAX: i64 = 600_000_000;
/// ns after a delayed acknowledgment within which a sender that waited for it sends, beside the way there and back.
const PROMPTLY: i64 = 500_000;

/// ns by which both directions are late at least, if the clock of a capture was set. Queues of both directions make less.
const STEP_LEAST: i64 = 100_000_000;
/// ns by which the delays of both directions differ at most, if the clock was set.
const STEP_JITTER: i64 = 5_000_000;
/// The same as a part of the step.
const STEP_SHARE: i64 = 16;
/// The same of a long step, whose first segments may have been held up besides.
const STEP_HELD_SHARE: i64 = 2;
/// ns within which a short delay of each direction is none by chance.
const STEP_SOON: i64 = 100_000_000;
/// Segments of both directions that stay late, at least, if the clock was set.
const STEP_LASTING: u8 = 4;
/// ns of a timestamp's tick: all stacks in use count milliseconds. A clock that does not is not read.
const TICK: i64 = 1_000_000;
/// ns that the clock of a sender is watched before it is trusted.
const CLOCK_TRUSTED: i64 = 300_000_000;
/// ns after which the least delay is measured again, because clocks drift.
const CLOCK_WINDOW: i64 = 10_000_000_000;

/// The clock of a sender's timestamps against the capture's.
#[derive(Clone, Copy, Debug)]
struct Clock {
    first: (i64, u32),
    /// The least delay of this window and of the one before, in ns, against the first segment.
    least: [i64; 2],
    window: i64,
    /// The clock has been seen to run in milliseconds.
    is_trusted: bool,
}

impl Clock {
    /// Delay of a segment in ns: its time after its timestamp, compared with the fastest segments of late; `None` as
    /// long as the clock is not known.
    fn delay(&mut self, at: i64, timestamp: u32) -> Option<i64> {
        let took = at.saturating_sub(self.first.0);
        let ticked = i64::from(timestamp.wrapping_sub(self.first.1) as i32) * TICK;
        let delay = took.saturating_sub(ticked);
        if at.saturating_sub(self.window) > CLOCK_WINDOW {
            self.window = at;
            self.least = [delay, self.least[0]];
        }
        self.least[0] = self.least[0].min(delay);
        if !self.is_trusted {
            let is_near = delay.saturating_abs() < took / 8 + HELD_UP;
            self.is_trusted = took >= CLOCK_TRUSTED && is_near;
            if took >= CLOCK_TRUSTED && !is_near {
                // it counts in other steps, or was not the first of this clock: begin again
                *self = Self::new(at, timestamp);
            }
            return None;
        }
        Some(delay.saturating_sub(self.least()))
    }

    /// The least delay of late, in ns, against the first segment.
    fn least(&self) -> i64 {
        self.least[0].min(self.least[1])
    }

    /// From now on, all is so much later on the capture's clock.
    fn step(&mut self, ns: i64) {
        self.least = self.least.map(|least| least.saturating_add(ns));
    }

    fn new(at: i64, timestamp: u32) -> Self {
        Self { first: (at, timestamp), least: [0, 0], window: at, is_trusted: false }
    }
}

/// What is late, as it seems.
#[derive(Clone, Debug, Default)]
struct Lateness {
    /// Segments that were held up since the peer was heard last: their times, delays, the parts of these that are counted,
    /// and the time of the segment before, in ns.
    held_up: Vec<(At, i64, i64, i64)>,
    stepped: Option<Stepped>,
}

/// Segments of [`Lateness`] that are remembered.
const HELD_UP_MAX: usize = 64;

/// The clock of the peer's timestamps.
#[derive(Clone, Copy, Debug)]
struct PeerClock {
    clock: Clock,
    newest: u32,
    /// Time and delay of the newest segment, in ns, and if that had data; `None` of one that was not late.
    late: Option<(i64, i64, bool)>,
}

/// The part of two delays at the same time, one of each direction, by which the clock of the capture was set, as it
/// seems; in ns.
fn step(mine: i64, peers: i64) -> Option<i64> {
    let step = mine.min(peers);
    (step >= STEP_LEAST && differ(mine, peers) <= step / STEP_HELD_SHARE).then_some(step)
}

/// True if two delays alone say that the clock was set: both are long, and the same but for the ways of the segments.
fn is_told(mine: i64, peers: i64) -> bool {
    let step = mine.min(peers);
    step >= STEP_LEAST && differ(mine, peers) <= STEP_JITTER.max(step / STEP_SHARE)
}

/// True if the clock can have been set by so many ns between two segments, at `before` ns and at `late`: in a queue that
/// grows, each is a little later than the last.
const fn is_between(before: i64, late: At, by: i64) -> bool {
    late.time.saturating_sub(before) >= by.saturating_sub(STEP_JITTER)
}

const fn differ(a: i64, b: i64) -> i64 {
    a.saturating_sub(b).saturating_abs()
}

/// Both directions were late at the same time: it is the clock of the capture if they stay so.
#[derive(Clone, Copy, Debug)]
struct Stepped {
    since: At,
    until: At,
    /// The least delays of the sender's clock and of its peer's, by which those that are not late any more show.
    least: [i64; 2],
    /// Segments since then, of the sender and its peer.
    segments: [u8; 2],
}

/// A retransmitted segment.
#[derive(Clone, Copy, Debug)]
struct Retransmission {
    seq: u32,
    end: u32,
    at: At,
    /// Its last copy.
    latest: At,
    /// Time at which the first copy went out, or was noticed to be missing.
    since: At,
    /// The first copy was never seen.
    is_filled: bool,
    /// The receiver had said that just this is missing.
    is_reported: bool,
    /// It followed the first copy sooner than its sender could have heard of that, or the first one was acknowledged
    /// before it came.
    is_prompt: bool,
    timestamp: Option<u32>,
    acked_at: Option<At>,
}

impl Retransmission {
    /// It was acknowledged; to the receiver and back takes `way` ns at least. An acknowledgment that comes too soon for
    /// the last copy is that of the one before.
    fn over(&self, acked: At, way: Option<i64>) -> Over {
        let Self { since, seq: sequence, end, is_filled, is_reported, .. } = *self;
        let is_of_last = acked.since(self.latest) >= way.unwrap_or(0) / 2;
        let copy = if is_of_last { self.latest } else { self.at };
        let until = self.repaired(acked, way);
        Over::Recovery { since, until, sequence, bytes: end.wrapping_sub(sequence), copy, is_filled, is_reported }
    }

    /// The end of its repair: its acknowledgment, or if that waited for something else, the time at which the last copy
    /// had been received, as far as the shortest way to the receiver and back tells.
    fn repaired(&self, acked: At, way: Option<i64>) -> At {
        let heard = way.map(|way| At { frame: self.latest.frame, time: self.latest.time.saturating_add(way) });
        heard.filter(|heard| heard.time < acked.time).unwrap_or(acked)
    }

    /// True if its sender waited as long as a retransmission timer does.
    fn is_timed_out(&self) -> bool {
        self.at.since(self.since) >= TIMEOUT_LEAST
    }
}

/// Relation of a segment to those before it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SegmentKind {
    /// The next bytes.
    #[default]
    New,
    /// Bytes behind some that are missing.
    Early,
    /// Bytes that were missing: sent again, or only late.
    Filled {
        /// True if they came too soon to have been sent again.
        is_late: bool,
    },
    /// Bytes that had come before.
    Repeated,
}

/// A segment with data.
#[derive(Clone, Copy, Debug)]
pub struct Sent {
    /// Time and frame of its capture.
    pub at: At,
    /// Its first sequence number.
    pub seq: u32,
    /// The one behind its last.
    pub end: u32,
    /// TSval of its timestamps option.
    pub timestamp: Option<u32>,
    /// TSecr of it.
    pub echo: Option<u32>,
    /// True if the identification of its datagram shows that it was sent before others that came earlier; `None` if it
    /// shows nothing.
    pub is_older: Option<bool>,
    /// ns since it came first, if known: of one that came again.
    pub age: Option<i64>,
    /// Relation of the segment to those before it.
    pub was: SegmentKind,
}

/// An acknowledgment.
#[derive(Clone, Copy, Debug)]
pub struct Acknowledged<'a> {
    /// Time and frame of its capture.
    pub at: At,
    /// The sequence number it expects next.
    pub ack: u32,
    /// SACK blocks: first sequence number, and the one after the last.
    pub sacks: &'a [(u32, u32)],
    /// TSval of its timestamps option.
    pub timestamp: Option<u32>,
    /// TSecr of it.
    pub echo: Option<u32>,
    /// True if the segment carries data itself.
    pub has_data: bool,
}

/// A period that is over: what held the sender up, and since when.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Over {
    /// Recovery from loss.
    Recovery {
        /// Time at which the lost segment went out, or was noticed to be missing.
        since: At,
        /// Time of its acknowledgment, or by which it had been received.
        until: At,
        /// Its first sequence number.
        sequence: u32,
        /// Its bytes.
        bytes: u32,
        /// Time at which the acknowledged copy went out.
        copy: At,
        /// True if the first copy was never seen.
        is_filled: bool,
        /// True if the receiver had reported it missing.
        is_reported: bool,
    },
    /// The way from the sender's TCP to the capture point.
    HeldUp {
        /// Time at which the sender made the segment.
        since: At,
        /// Time of its capture.
        until: At,
    },
    /// Nothing: the clock of the capture was set, as it seems. What was said to be held up since then was not.
    ClockStep {
        /// Time of the next segment, less the step.
        since: At,
        /// Time of its capture.
        until: At,
        /// True if it is sure enough to be told.
        is_told: bool,
    },
    /// Nothing: that was so.
    ClockSet {
        /// Time of the next segment, less the step.
        since: At,
        /// Time of its capture.
        until: At,
    },
    /// Nothing: the shortest way to the receiver and back so far, in ns.
    RoundTrip(i64),
    /// Waiting for a delayed acknowledgment.
    Nagle {
        /// Time at which the data before it went out.
        since: At,
        /// Time of the acknowledgment.
        until: At,
    },
    /// The receiver was silent.
    Silence(Unanswered),
    /// Nothing: a segment came late that its receiver had in order.
    Misplaced,
}

/// The repairs of one direction.
#[derive(Clone, Debug, Default)]
pub struct Repair {
    again: VecDeque<Retransmission>,
    acked: Option<u32>,
    /// The sender's newest segment with data.
    newest: Option<(At, u32)>,
    /// First time that bytes were missing, and the timestamp of the segment that showed it.
    gap: Option<(At, Option<u32>)>,
    /// A segment without data that begins behind data which did not come by: its time and timestamp, and where it
    /// begins.
    ahead: Option<Box<(At, Option<u32>, u32)>>,
    /// The receiver has used SACK: it would say so if it had something twice.
    says_sack: bool,
    /// The receiver said that something is missing at this sequence number.
    hole: Option<u32>,
    /// Time of the first such report.
    hole_at: At,
    /// Number of such reports.
    reports: u32,
    /// Time in ns at which it had said so often enough for the sender to send again.
    asked_at: i64,
    /// A segment that came late; it is not known yet if the receiver noticed. Begin, end, time, delay in ns. The last
    /// field is true if the sender's own numbers or clock show that it was sent before those that it came behind.
    late: Option<(u32, u32, At, i64, bool)>,
    copies: u32,
    /// The last retransmitted segments: first sequence number, the one behind the last, frame.
    copied: VecDeque<(u32, u32, u64)>,
    silent_since: Option<At>,
    /// A delayed acknowledgment of all that had been sent: when the data went out, when it came, its timestamp.
    delayed: Option<(At, At, Option<u32>)>,
    since_data: bool,
    clock: Option<Clock>,
    peers_clock: Option<Box<PeerClock>>,
    lateness: Option<Box<Lateness>>,
    held_up_until: i64,
    /// Time of the newest segment with data that was not late.
    punctual: i64,
    /// The shortest time from data to its acknowledgment, in ns.
    round_trip: Option<i64>,
    /// Sizes of the sender's segments.
    sizes: Sizes,
    /// Bytes of the largest segment that its peer takes; 0 if that is unknown.
    mss: u16,
}

/// True if `a` is before `b` on the circle of sequence numbers.
const fn before(a: u32, b: u32) -> bool {
    (a.wrapping_sub(b) as i32) < 0
}

impl Repair {
    /// What seemed to be retransmitted since `before` were copies. Times that were measured meanwhile stay: nothing was
    /// measured across a retransmission.
    #[cold]
    pub fn forgive(&mut self, before: Self) {
        let now = core::mem::take(self);
        *self = Self {
            acked: now.acked,
            newest: now.newest,
            since_data: now.since_data,
            delayed: now.delayed,
            clock: now.clock,
            peers_clock: now.peers_clock,
            punctual: now.punctual,
            lateness: now.lateness,
            round_trip: now.round_trip,
            ..before
        };
    }

    /// The sender sends a segment without data, which begins at `seq`. Data before that has left it. Before the last byte
    /// that was acknowledged it asks if its peer is there (RFC 9293 3.8.4).
    pub fn empty(&mut self, at: At, seq: u32, timestamp: Option<u32>) {
        let is_last = |end: u32| end == seq.wrapping_add(1);
        if self.acked.is_some_and(is_last) && self.newest.is_some_and(|(_, end)| is_last(end)) {
            return self.asks(at);
        }
        if self.newest.is_some_and(|(_, newest)| before(newest, seq)) {
            self.ahead.get_or_insert_with(|| Box::new((at, timestamp, seq)));
        }
    }

    /// The sender asks if its peer is there.
    #[cold]
    fn asks(&mut self, at: At) {
        match self.silent_since {
            Some(_) => self.copies += 1,
            None => self.silent_since = Some(at),
        }
    }

    /// A segment is behind its sender's clock by so many ns: it was held up, or the clock of the capture was set, which
    /// the other direction shows as well.
    #[cold]
    fn late(&mut self, at: At, delay: i64, losses: &mut Option<Box<Losses>>) -> Option<Over> {
        let since = |delay: i64| At { frame: at.frame, time: at.time.saturating_sub(delay) };
        let before = self.newest.map_or(0, |(newest, _)| newest.time);
        // one of them that was punctual after the peer's shows that each was held up by itself
        let peers = self.peers_clock.as_ref().and_then(|peer| peer.late).filter(|(time, ..)| *time > self.punctual);
        if let Some((time, late, has_data)) = peers
            && let Some(by) = step(delay, late)
            // what is not the same may be chance, if it was long ago
            && (is_told(delay, late) || at.time.saturating_sub(time) <= STEP_SOON)
            && is_between(before, at, by)
        {
            let is_told = is_told(delay, late);
            self.step(since(by), at, by, is_told || has_data);
            // with data, the direction of the peer tells it
            return (!has_data).then_some(Over::ClockStep { since: since(by), until: at, is_told });
        }
        let losses = losses.get_or_insert_default();
        losses.held_up.add(at, 1);
        // one wait, however many segments came out of it
        let begun = since(delay).time.max(self.held_up_until);
        let time = (at.time - begun).max(0);
        losses.held_up_time = losses.held_up_time.saturating_add(time);
        self.held_up_until = at.time;
        let lateness = self.lateness.get_or_insert_default();
        if lateness.held_up.len() < HELD_UP_MAX {
            lateness.held_up.push((at, delay, time, before));
        }
        Some(Over::HeldUp { since: since(delay), until: at })
    }

    /// The clock of the capture was set, as it seems: segments of both directions are later from now on. If it was not
    /// told, it is as soon as they were late for long enough.
    fn step(&mut self, since: At, until: At, by: i64, is_told: bool) {
        let mut least = [0; 2];
        if let Some(clock) = &mut self.clock {
            clock.step(by);
            least[0] = clock.least();
        }
        if let Some(peer) = &mut self.peers_clock {
            peer.clock.step(by);
            peer.late = None;
            least[1] = peer.clock.least();
        }
        let stepped = (!is_told).then_some(Stepped { since, until, least, segments: [0; 2] });
        if stepped.is_some() || self.lateness.is_some() {
            self.lateness.get_or_insert_default().stepped = stepped;
        }
    }

    /// The peer's clock, in an acknowledgment. If that is as late as what was held up before it, nothing was.
    #[inline]
    fn heard(
        &mut self,
        at: At,
        timestamp: u32,
        has_data: bool,
        losses: &mut Option<Box<Losses>>,
        emit: &mut impl FnMut(Over),
    ) {
        let new = || Box::new(PeerClock { clock: Clock::new(at.time, timestamp), newest: timestamp, late: None });
        let peer = self.peers_clock.get_or_insert_with(new);
        if before(timestamp, peer.newest) {
            // captured once more, or overtaken
            return;
        }
        peer.newest = timestamp;
        let delay = peer.clock.delay(at.time, timestamp).filter(|delay| *delay >= HELD_UP);
        peer.late = delay.map(|delay| (at.time, delay, has_data));
        if self.lateness.is_some() {
            self.are_both_late(delay, losses, emit);
            self.lasts(at, emit);
        }
    }

    /// The peer is heard behind what was held up, `late` itself or not.
    #[cold]
    fn are_both_late(&mut self, late: Option<i64>, losses: &mut Option<Box<Losses>>, emit: &mut impl FnMut(Over)) {
        let held = self.lateness.as_mut().map(|lateness| core::mem::take(&mut lateness.held_up)).unwrap_or_default();
        let newest = held.last().filter(|(at, ..)| at.time > self.punctual).map(|(_, delay, ..)| *delay);
        if let Some((mine, peers)) = newest.zip(late)
            && let Some(by) = step(mine, peers)
        {
            // those before them may have been captured before the clock was set
            let from = held.iter().rposition(|(_, delay, ..)| *delay < by / STEP_HELD_SHARE).map_or(0, |n| n + 1);
            let (until, .., before) = held[from];
            if !is_between(before, until, by) {
                return;
            }
            let since = At { time: until.time.saturating_sub(by), ..until };
            let is_told = is_told(mine, peers);
            self.step(since, until, by, is_told);
            if let Some(losses) = losses {
                for (at, delay, time, _) in &held[from..] {
                    losses.held_up_time = losses.held_up_time.saturating_sub(*time);
                    let left = delay.saturating_sub(by);
                    if left >= HELD_UP {
                        losses.held_up_time = losses.held_up_time.saturating_add((*time).min(left));
                    } else {
                        losses.held_up.retract_at(*at);
                    }
                }
            }
            emit(Over::ClockStep { since, until, is_told });
        }
    }

    /// Tells that the clock of the capture was set, if both directions stayed late since then. Forgets what is over.
    #[cold]
    fn lasts(&mut self, at: At, emit: &mut impl FnMut(Over)) {
        let least =
            [self.clock.as_ref(), self.peers_clock.as_ref().map(|peer| &peer.clock)].map(|c| c.map(Clock::least));
        let Some(stepped) = self.lateness.as_mut().and_then(|lateness| lateness.stepped.as_mut()) else {
            self.lateness = None;
            return;
        };
        stepped.segments[1] = stepped.segments[1].saturating_add(1);
        let Stepped { since, until, .. } = *stepped;
        let most = until.since(since) / STEP_HELD_SHARE;
        let is_over = least.into_iter().zip(stepped.least).any(|(now, then)| now.is_none_or(|now| now < then - most));
        let is_lasting = stepped.segments.iter().all(|n| *n >= STEP_LASTING) && at.since(until) >= CLOCK_TRUSTED;
        if is_over || is_lasting {
            self.lateness = None;
        }
        if is_lasting && !is_over {
            emit(Over::ClockSet { since, until });
        }
    }

    /// Data of which an empty segment showed before that it had left comes by for the first time: it was lost, if its
    /// clock or the time that passed says that it was sent again.
    #[cold]
    fn comes_again(&mut self, sent: &Sent, way: i64, losses: &mut Option<Box<Losses>>) {
        let Some((since, clock, seq)) = self.ahead.as_deref().copied() else { return };
        if !before(sent.end, seq) {
            self.ahead = None;
        }
        let is_newer = match clock.zip(sent.timestamp) {
            Some((then, now)) => before(then, now),
            None => sent.at.since(since) >= TIMEOUT_LEAST,
        };
        if before(sent.seq, seq) && is_newer {
            let losses = losses.get_or_insert_default();
            losses.lost_before.add(sent.at, 1);
            losses.repeated.add(sent.at, 1);
            let again = Retransmission { since, is_filled: true, is_prompt: false, ..self.again_of(sent, way) };
            self.open(again, losses);
        }
    }

    /// The sender sends data. `way`: from the capture point to the sender and back, in ns.
    pub fn sent(&mut self, sent: &Sent, way: i64, losses: &mut Option<Box<Losses>>) -> Option<Over> {
        let Sent { at, end, timestamp, echo, was, .. } = *sent;
        let mut over = None;
        let delay = timestamp.and_then(|timestamp| {
            self.clock.get_or_insert_with(|| Clock::new(at.time, timestamp)).delay(at.time, timestamp)
        });
        if let Some(delay) = delay.filter(|_| matches!(was, SegmentKind::New | SegmentKind::Early)) {
            if delay < HELD_UP {
                self.punctual = at.time;
            } else {
                over = self.late(at, delay, losses);
            }
            if let Some(stepped) = self.lateness.as_mut().and_then(|lateness| lateness.stepped.as_mut()) {
                stepped.segments[0] = stepped.segments[0].saturating_add(1);
            }
        }
        self.sized(sent);
        match was {
            // the last byte again, which its peer has
            SegmentKind::New if self.newest.is_some_and(|(_, newest)| newest == end) => {
                self.asks(at);
                return over;
            }
            SegmentKind::New => {
                self.gap = None;
                if self.ahead.is_some() {
                    self.comes_again(sent, way, losses);
                }
                if let Some((since, until, clock)) = self.delayed.take()
                    && over.is_none()
                    && at.time.saturating_sub(until.time) <= PROMPTLY + way
                    // a segment that had left before the acknowledgment came does not echo its clock
                    && echo.zip(clock).is_none_or(|(echo, clock)| !before(echo, clock))
                {
                    let losses = losses.get_or_insert_default();
                    losses.nagle.add(at, 1);
                    losses.nagle_unproven |= echo.zip(clock).is_none();
                    losses.nagle_time = losses.nagle_time.saturating_add(until.time.saturating_sub(since.time));
                    over = Some(Over::Nagle { since, until });
                }
            }
            SegmentKind::Early => {
                self.gap.get_or_insert((at, timestamp));
            }
            SegmentKind::Filled { is_late } => {
                let gap = self.gap.unwrap_or((at, None));
                // its timestamp is earlier than that of the segment that overtook it: it was sent before
                let clocks = gap.1.zip(timestamp);
                let is_older = sent.is_older.unwrap_or(clocks.is_some_and(|(newer, this)| before(this, newer)));
                // and a later one says that it was sent again, however soon
                let is_newer = sent.is_older == Some(false) || clocks.is_some_and(|(newer, this)| before(newer, this));
                let is_reported = self.hole == Some(sent.seq);
                // asked for often enough: a sender that sees that sends again, however soon (RFC 5681 3.2)
                let waited = at.time.saturating_sub(self.asked_at);
                let is_prompt =
                    waited >= way - way / 8 - HELD_BACK && waited <= way.saturating_mul(2).saturating_add(PROMPTLY);
                let is_asked = is_reported && self.reports >= DUPLICATES && is_prompt;
                // neither its datagram's number nor a clock shows the order of sending
                let is_untold = sent.is_older.is_none() && clocks.is_none();
                let delay = at.time.saturating_sub(gap.0.time);
                let losses = losses.get_or_insert_default();
                let is_early = is_late && !is_asked && !is_newer;
                let is_timely = !is_asked && delay < TIMEOUT_LEAST;
                if is_older && (is_reported || !is_late) {
                    losses.overtaken.add(at, 1);
                    losses.delay = losses.delay.max(delay);
                } else if !is_older
                    && !is_newer
                    && (is_timely && (is_reported || !is_late) || is_untold && delay < TIMEOUT_LEAST && is_asked)
                {
                    losses.unclear.add(at, 1);
                } else if is_older || is_early {
                    if self.late.replace((sent.seq, end, at, delay, is_older)).is_some() {
                        losses.misplaced.add(at, 1);
                    }
                } else {
                    losses.lost_before.add(at, 1);
                    losses.repeated.add(at, 1);
                    losses.asked_again += u64::from(is_reported);
                    self.open(
                        Retransmission { since: gap.0, is_filled: true, is_prompt: false, ..self.again_of(sent, way) },
                        losses,
                    );
                }
            }
            SegmentKind::Repeated => {
                let losses = losses.get_or_insert_default();
                losses.repeated.add(at, 1);
                // one of the two was sent first, and came late: if nothing shows which, neither counts as sent without
                // need
                let filled = |again: &&mut Retransmission| again.is_filled && again.seq == sent.seq && again.end == end;
                if let Some(known) = self.again.iter_mut().find(filled) {
                    let delay = at.time.saturating_sub(known.since.time);
                    match sent.is_older {
                        Some(true) => {
                            losses.lost_before.retract();
                            losses.overtaken.add(at, 1);
                            losses.delay = losses.delay.max(delay);
                            known.is_filled = false;
                        }
                        None if delay < TIMEOUT_LEAST => {
                            losses.lost_before.retract();
                            losses.unclear.add(at, 1);
                            known.is_filled = false;
                        }
                        _ => {}
                    }
                    if sent.is_older != Some(false) {
                        return over;
                    }
                }
                self.copies += 1;
                if self.copied.len() >= COPIES_MAX {
                    self.copied.pop_front();
                }
                self.copied.push_back((sent.seq, end, at.frame));
                // an end that acknowledged all was not silent before
                let is_open = |end: &u32| self.acked.is_none_or(|acked| before(acked, *end));
                let since = self.newest.filter(|(_, end)| is_open(end)).map_or(at, |(newest, _)| newest);
                self.silent_since.get_or_insert(since);
                if self.acked.is_some_and(|acked| !before(acked, end)) {
                    losses.needless.add(at, 1);
                } else {
                    self.open(self.again_of(sent, way), losses);
                }
            }
        }
        if self.newest.is_none_or(|(_, newest)| before(newest, end)) {
            self.newest = Some((at, end));
        }
        self.delayed = None;
        self.since_data = true;
        over
    }

    /// The sender's clock was cut off the next segment: it would show if that waited for the last acknowledgment.
    #[cold]
    pub fn unclocked(&mut self) {
        self.delayed = None;
    }

    /// The receiver takes segments of so many bytes at most.
    pub fn takes(&mut self, mss: u16) {
        self.mss = mss;
    }

    /// A segment that never arrives, larger than all that do.
    pub fn stuck(&self) -> Option<Stuck> {
        self.sizes.stuck()
    }

    /// So many bytes never came by, though the receiver asked for them.
    pub fn misses(&mut self, at: At, bytes: u32) {
        self.sizes.never_came(at, bytes);
    }

    /// Bytes that never came by, though the receiver asked for them; the sender itself takes segments of `own` bytes at
    /// most.
    pub fn never_came(&self, own: u16) -> Option<NeverCame> {
        /// Bytes of options that segments have at most.
        const OPTIONS: u32 = 40;
        let full = u32::from(self.mss.min(own)).saturating_sub(OPTIONS);
        self.sizes.missing(full, self.sizes.largest())
    }

    /// Bytes of the largest segment that the receiver takes; 0 if that is unknown.
    pub fn mss(&self) -> u16 {
        self.mss
    }

    fn sized(&mut self, sent: &Sent) {
        /// No segment is larger on any network: it was captured before the adapter cut it.
        const LARGEST: u32 = 9216;
        let length = sent.end.wrapping_sub(sent.seq).min(if self.mss > 0 { self.mss.into() } else { u32::MAX });
        if length > LARGEST {
            return;
        }
        match sent.was {
            SegmentKind::Repeated if self.acked.is_none_or(|acked| before(acked, sent.end)) => {
                self.sizes.again(sent.at, (sent.seq, sent.end), length);
            }
            SegmentKind::Repeated => {}
            SegmentKind::New | SegmentKind::Early | SegmentKind::Filled { .. } => {
                self.sizes.sent((sent.seq, sent.end), length);
            }
        }
    }

    fn again_of(&self, sent: &Sent, way: i64) -> Retransmission {
        let newest = self.newest.map_or(sent.at, |(at, _)| at);
        let since = match sent.age.map(|age| sent.at.time.saturating_sub(age)) {
            Some(first) if first < newest.time && sent.was == SegmentKind::Repeated => {
                At { frame: newest.frame, time: first }
            }
            _ => newest,
        };
        let is_reported = self.hole == Some(sent.seq);
        // to the receiver, back, and to the sender and back; that the receiver misses it was heard only if it said so
        // after the first copy
        let heard = self.round_trip.unwrap_or(0).saturating_add(way);
        let is_asked =
            |age: i64| is_reported && self.hole_at.time.saturating_add(AGE_STEP) > sent.at.time.saturating_sub(age);
        let is_prompt = sent.age.is_some_and(|age| age.saturating_add(AGE_STEP) <= heard && !is_asked(age));
        let Sent { at, seq, end, timestamp, .. } = *sent;
        let latest = at;
        Retransmission {
            seq,
            end,
            at,
            latest,
            since,
            is_filled: false,
            is_reported,
            is_prompt,
            timestamp,
            acked_at: None,
        }
    }

    fn open(&mut self, again: Retransmission, losses: &mut Losses) {
        // the same once more: it is one loss, tried again
        let is_same =
            |known: &&mut Retransmission| known.seq == again.seq && known.end == again.end && known.acked_at.is_none();
        if let Some(known) = self.again.iter_mut().find(is_same) {
            known.latest = again.at;
            return;
        }
        if self.again.len() >= OPEN_MAX
            && let Some(oldest) = self.again.pop_front()
        {
            self.settle(&oldest, losses);
        }
        self.again.push_back(again);
    }

    /// The receiver acknowledges. Emits the periods that are over.
    pub fn acknowledged(
        &mut self,
        acknowledgment: &Acknowledged<'_>,
        losses: &mut Option<Box<Losses>>,
        emit: &mut impl FnMut(Over),
    ) {
        let Acknowledged { at, ack, sacks, timestamp, echo, has_data } = *acknowledgment;
        if let Some(timestamp) = timestamp {
            self.heard(at, timestamp, has_data, losses, emit);
        }
        if self.copies >= SILENT_COPIES
            && let Some(from) = self.silent_since
        {
            let found = Unanswered { from, to: at, times: self.copies + 1, answered: true, speaks: Speaks::Not };
            if found.lasted() >= SILENT_TIME {
                losses.get_or_insert_default().unanswered(found);
                emit(Over::Silence(found));
            }
        }
        self.copies = 0;
        self.silent_since = None;
        self.sizes.arrived(ack);
        if self.acked.is_none_or(|acked| before(acked, ack)) {
            self.acked = Some(ack);
            self.hole = None;
            self.reports = 0;
        }
        if let Some((newest, _)) =
            self.newest.filter(|(_, end)| *end == ack && self.since_data && !has_data && self.again.is_empty())
        {
            let took = at.time.saturating_sub(newest.time);
            if took >= 0 && self.round_trip.is_none_or(|known| took < known) {
                self.round_trip = Some(took);
                emit(Over::RoundTrip(took));
            }
        }
        self.delayed_acknowledgment(at, ack, timestamp, has_data);
        if !sacks.is_empty() {
            self.selective(at, ack, sacks, losses);
        }
        if let Some((seq, end, late, delay, is_older)) = self.late {
            if self.hole == Some(seq) {
                let losses = losses.get_or_insert_default();
                if is_older {
                    losses.overtaken.add(late, 1);
                    losses.delay = losses.delay.max(delay);
                } else {
                    // its receiver noticed that it was missing, and may have told its sender in time
                    losses.unclear.add(late, 1);
                }
                self.late = None;
            } else if !before(ack, end) {
                losses.get_or_insert_default().misplaced.add(late, 1);
                self.late = None;
                emit(Over::Misplaced);
            }
        }
        if self.again.is_empty() {
            return;
        }
        let way = self.round_trip;
        for again in self.again.iter_mut().filter(|again| again.acked_at.is_none() && !before(ack, again.end)) {
            again.acked_at = Some(at);
            // the echo of an earlier clock than the copy's: it answers the first one
            let is_first = again.timestamp.zip(echo).is_some_and(|(sent, echo)| before(echo, sent));
            if again.is_filled {
                let until = again.repaired(at, way);
                losses.get_or_insert_default().recovered(again.since, until);
                emit(again.over(at, way));
            } else if is_first && !again.is_reported {
                losses.get_or_insert_default().ack_late.add(again.at, 1);
                again.end = again.seq;
            } else if !again.is_prompt && (again.is_reported || self.says_sack || again.is_timed_out()) {
                emit(again.over(at, way));
            }
        }
        self.again.retain(|again| again.end != again.seq);
        while let Some(first) = self.again.front().copied() {
            if first.acked_at.is_none_or(|acked| at.time.saturating_sub(acked.time) < SETTLED_AFTER) {
                break;
            }
            self.again.pop_front();
            self.settle(&first, losses.get_or_insert_default());
        }
    }

    /// Time at which the receiver first reported the segment with this sequence number missing, if it did.
    pub fn reported(&self, seq: u32) -> Option<At> {
        self.hole.filter(|hole| *hole == seq).map(|_| self.hole_at)
    }

    /// Outcome of a segment, now that no D-SACK came for it.
    fn settle(&self, again: &Retransmission, losses: &mut Losses) {
        // a segment that was sent again before the first copy could be missed came out of a loss or a delay that is
        // reported already
        if again.is_filled || again.is_prompt {
            return;
        }
        let Some(acked) = again.acked_at else { return };
        if again.is_reported || self.says_sack || again.is_timed_out() {
            // without a report of a hole it is unknown whether the segment was lost, or which copy was acknowledged;
            // and a receiver that has never used SACK may just have been slow
            let tally = match (again.is_reported, self.says_sack) {
                (true, _) => &mut losses.lost_behind,
                (_, true) => &mut losses.unacknowledged,
                _ => &mut losses.unheard,
            };
            tally.add(again.at, 1);
            losses.recovered(again.since, again.repaired(acked, self.round_trip));
        }
    }

    /// SACK blocks: the first may report a duplicate (RFC 2883 4), the others the bytes behind a hole.
    fn selective(&mut self, at: At, ack: u32, sacks: &[(u32, u32)], losses: &mut Option<Box<Losses>>) {
        self.says_sack = true;
        sacks.iter().for_each(|block| self.sizes.has(*block));
        self.sizes.asked(ack);
        let (left, right) = sacks[0];
        let inside_second = sacks.get(1).is_some_and(|(l, r)| !before(left, *l) && !before(*r, right));
        let is_twice = before(left, ack) || inside_second;
        if !is_twice || sacks.len() > 1 {
            if self.hole != Some(ack) {
                self.hole_at = at;
            }
            self.reports = if self.hole == Some(ack) { self.reports + 1 } else { 1 };
            self.hole = Some(ack);
            if self.reports == DUPLICATES {
                self.asked_at = at.time;
            }
        }
        if !is_twice {
            return;
        }
        // it says what it answers, and all that was retransmitted behind that had yet to come: the first copy is
        // acknowledged
        if let Some((.., answered)) = self.copied.iter().rev().find(|(seq, end, _)| (*seq, *end) == (left, right)) {
            let is_yet_to_come = |again: &&mut Retransmission| {
                again.acked_at.is_none()
                    && !again.is_filled
                    && !again.is_reported
                    && again.at.frame > *answered
                    && !before(ack, again.end)
            };
            self.again.iter_mut().filter(is_yet_to_come).for_each(|again| again.is_prompt = true);
        }
        let losses = losses.get_or_insert_default();
        self.again.retain(|again| {
            let had = before(again.seq, right) && before(left, again.end);
            if had {
                if again.is_filled {
                    losses.lost_before.retract();
                }
                losses.ack_late.add(again.at, 1);
            }
            !had
        });
    }

    /// An acknowledgment alone, of all data, long after it: data sent since waits for nothing else.
    fn delayed_acknowledgment(&mut self, at: At, ack: u32, clock: Option<u32>, has_data: bool) {
        self.delayed = None;
        let since_data = core::mem::take(&mut self.since_data);
        if let Some((newest, end)) = self.newest
            && since_data
            && !has_data
            && ack == end
            && (DELAYED_ACK..DELAYED_ACK_MAX).contains(&at.time.saturating_sub(newest.time))
        {
            self.delayed = Some((newest, at, clock));
        }
    }

    /// No more segments come; the last of either end was at `last`.
    pub fn finish(&mut self, last: At, losses: &mut Option<Box<Losses>>) {
        if let Some((_, _, late, ..)) = self.late.take() {
            losses.get_or_insert_default().misplaced.add(late, 1);
        }
        for again in core::mem::take(&mut self.again) {
            self.settle(&again, losses.get_or_insert_default());
        }
        // if nothing of the receiver was captured at all, its silence says nothing
        if self.copies >= SILENT_COPIES
            && self.acked.is_some()
            && let Some(from) = self.silent_since
        {
            let found = Unanswered { from, to: last, times: self.copies + 1, answered: false, speaks: Speaks::Not };
            if found.lasted() >= SILENT_TIME {
                losses.get_or_insert_default().unanswered(found);
            }
        }
    }

    /// Bytes of memory besides its own size.
    pub fn memory(&self) -> usize {
        let of = |lateness: &Lateness| {
            size_of::<Lateness>() + lateness.held_up.capacity() * size_of::<(At, i64, i64, i64)>()
        };
        let lateness = self.lateness.as_deref().map_or(0, of);
        let clock = self.peers_clock.as_ref().map_or(0, |_| size_of::<PeerClock>());
        lateness
            + clock
            + self.sizes.memory()
            + self.again.capacity() * size_of::<Retransmission>()
            + self.copied.capacity() * size_of::<(u32, u32, u64)>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;
    use alloc::vec::Vec;

    const MS: i64 = 1_000_000;

    /// A direction, and its reported events.
    #[derive(Default)]
    struct Tap {
        repair: Repair,
        losses: Option<Box<Losses>>,
        over: Vec<Over>,
        frame: u64,
    }

    impl Tap {
        fn at(&mut self, ms: i64) -> At {
            self.frame += 1;
            At { frame: self.frame, time: ms * MS }
        }

        fn send(&mut self, ms: i64, seq: u32, was: SegmentKind) -> &mut Self {
            let sent = Sent {
                at: self.at(ms),
                seq,
                end: seq + 100,
                timestamp: Some(ms as u32),
                echo: None,
                is_older: None,
                age: None,
                was,
            };
            self.over.extend(self.repair.sent(&sent, 0, &mut self.losses));
            self
        }

        fn ack(&mut self, ms: i64, ack: u32, sacks: &[(u32, u32)], echo: u32) -> &mut Self {
            let acknowledgment =
                Acknowledged { at: self.at(ms), ack, sacks, timestamp: None, echo: Some(echo), has_data: false };
            let over = &mut self.over;
            self.repair.acknowledged(&acknowledgment, &mut self.losses, &mut |o| {
                if !matches!(o, Over::RoundTrip(_)) {
                    over.push(o);
                }
            });
            self
        }

        /// Lost before, lost behind, needless or without an acknowledgment in time, overtaken.
        fn counts(&mut self, ms: i64) -> [u64; 4] {
            let last = self.at(ms);
            self.repair.finish(last, &mut self.losses);
            let losses = self.losses.clone().unwrap_or_default();
            let had = losses.needless.count + losses.ack_late.count;
            [losses.lost_before.count, losses.lost_behind.count, had, losses.overtaken.count]
        }
    }

    #[test]
    fn a_copy_that_follows_sooner_than_the_sender_could_have_heard_is_not_the_one_that_was_taken() {
        let sent =
            |at, age, was| Sent { at, seq: 200, end: 300, timestamp: None, echo: None, is_older: None, age, was };
        let recovered = |age: i64| {
            let mut tap = Tap::default();
            // 10 ms from the capture point to the receiver and back, 4 ms to the sender
            tap.send(0, 100, SegmentKind::New).ack(10, 200, &[], 0);
            tap.send(20, 300, SegmentKind::Early).ack(30, 200, &[(300, 400)], 20);
            let overtaken =
                Sent { is_older: Some(true), ..sent(tap.at(40), None, SegmentKind::Filled { is_late: false }) };
            tap.repair.sent(&overtaken, 4 * MS, &mut tap.losses);
            let again = sent(tap.at(54), Some(age), SegmentKind::Repeated);
            tap.repair.sent(&again, 4 * MS, &mut tap.losses);
            tap.ack(70, 400, &[], 40);
            tap.over.iter().any(|over| matches!(over, Over::Recovery { .. }))
        };
        // an age is a whole number of microseconds, and may be up to one more; and a segment that was reported missing
        // after it had gone by was lost
        assert_eq!([14 * MS - 1_000, 14 * MS - 999, 14 * MS].map(recovered), [false, true, true]);
        let mut tap = Tap::default();
        tap.send(0, 100, SegmentKind::New).ack(10, 200, &[], 0);
        tap.send(20, 200, SegmentKind::New).send(21, 300, SegmentKind::New).ack(30, 200, &[(300, 400)], 20);
        let again = sent(tap.at(33), Some(13 * MS), SegmentKind::Repeated);
        tap.repair.sent(&again, 4 * MS, &mut tap.losses);
        tap.ack(43, 400, &[], 33);
        assert_eq!(tap.counts(70), [0, 1, 0, 0]);
    }

    #[test]
    fn data_that_had_left_before_it_came_by_was_lost() {
        let lost = |ahead: u32, clock: Option<u32>, at: i64| {
            let mut tap = Tap::default();
            tap.send(0, 100, SegmentKind::New).ack(1, 200, &[], 0);
            let empty = tap.at(10);
            tap.repair.empty(empty, ahead, clock);
            let timestamp = clock.map(|_| 20);
            let (echo, is_older, age, was) = (None, None, None, SegmentKind::New);
            let sent = Sent { at: tap.at(at), seq: 200, end: 300, timestamp, echo, is_older, age, was };
            tap.repair.sent(&sent, 0, &mut tap.losses);
            tap.ack(at + 1, 300, &[], at as u32);
            let over = tap.over.iter().filter_map(|over| match over {
                Over::Recovery { since, until, .. } => Some((since.time / MS, until.time / MS)),
                _ => None,
            });
            over.collect::<Vec<_>>()
        };
        assert_eq!(lost(300, Some(10), 50), [(10, 51)], "its clock is later");
        assert_eq!(lost(300, Some(20), 50), [], "it may be the first");
        assert_eq!(lost(200, Some(10), 50), [], "nothing had left");
        let least = TIMEOUT_LEAST / MS;
        assert_eq!(lost(300, None, 9 + least), []);
        assert_eq!(lost(300, None, 10 + least), [(10, 11 + least)]);
    }

    #[test]
    fn a_peer_that_is_asked_and_does_not_answer_is_silent() {
        // so many probes, a second from each other; with data, they hold the last byte
        let silent = |probes: i64, is_empty: bool, answer: Option<i64>| {
            let mut tap = Tap::default();
            tap.send(0, 100, SegmentKind::New).ack(1, 200, &[], 0);
            for n in 0..probes {
                let at = tap.at(1000 * (n + 10));
                if is_empty {
                    tap.repair.empty(at, 199, None);
                } else {
                    let (echo, is_older, age, was) = (None, None, None, SegmentKind::New);
                    let sent = Sent { at, seq: 199, end: 200, timestamp: None, echo, is_older, age, was };
                    tap.repair.sent(&sent, 0, &mut tap.losses);
                }
            }
            if let Some(ms) = answer {
                tap.ack(ms, 200, &[], 0);
            }
            let last = tap.at(1000 * (probes + 9));
            tap.repair.finish(last, &mut tap.losses);
            let found = tap.losses.and_then(|losses| losses.unanswered);
            found.map(|found| (found.from.time / MS, found.lasted() / MS, found.times, found.answered))
        };
        let least = i64::from(SILENT_COPIES) + 1;
        for is_empty in [true, false] {
            assert_eq!(silent(least - 1, is_empty, None), None);
            assert_eq!(silent(least, is_empty, None), Some((10_000, 3000, SILENT_COPIES + 1, false)));
            assert_eq!(silent(least, is_empty, Some(13_500)), Some((10_000, 3500, SILENT_COPIES + 1, true)));
            assert_eq!(silent(1, is_empty, Some(10_001)), None);
        }
    }

    #[test]
    fn a_repair_is_over_when_the_copy_has_been_received() {
        // to the receiver and back takes 4 ms; the acknowledgment comes with an answer, so many ms after the last copy
        let until = |copies: &[i64], acked: i64| {
            let mut tap = Tap::default();
            tap.send(0, 100, SegmentKind::New).ack(4, 200, &[(10, 20)], 0);
            tap.send(10, 200, SegmentKind::New);
            copies.iter().for_each(|ms| _ = tap.send(*ms, 200, SegmentKind::Repeated));
            tap.ack(acked, 300, &[], acked as u32);
            let over = tap.over.iter().find_map(|over| match over {
                Over::Recovery { since, until, copy, .. } => Some((since.time / MS, until.time / MS, copy.time / MS)),
                _ => None,
            });
            let last = tap.at(9000);
            tap.repair.finish(last, &mut tap.losses);
            (over, tap.losses.map(|losses| losses.recovery / MS))
        };
        assert_eq!(until(&[310], 312), (Some((10, 312, 310)), Some(302)));
        assert_eq!(until(&[310], 400), (Some((10, 314, 310)), Some(304)));
        // the first copy was lost as well
        assert_eq!(until(&[310, 910], 990), (Some((10, 914, 910)), Some(904)));
        assert_eq!(until(&[310, 910], 911), (Some((10, 911, 310)), Some(901)), "too soon for the second");
    }

    #[test]
    fn what_a_d_sack_answers_was_not_lost() {
        let mut tap = Tap::default();
        tap.send(0, 100, SegmentKind::New).send(10, 100, SegmentKind::Repeated).ack(11, 200, &[], 0).ack(
            12,
            200,
            &[(100, 200)],
            0,
        );
        assert_eq!(tap.counts(20), [0, 0, 1, 0]);
        assert_eq!(tap.over, [], "nothing was held up");
    }

    #[test]
    fn what_was_acknowledged_before_it_went_out_again_was_needless_and_what_was_not_may_have_lost_its_acknowledgment() {
        let had = |first: i64| {
            let mut tap = Tap::default();
            tap.send(0, 100, SegmentKind::New);
            if first > 0 {
                tap.ack(first, 200, &[], 0);
            }
            tap.send(10, 100, SegmentKind::Repeated).ack(12, 200, &[(100, 200)], 0);
            tap.counts(20);
            tap.losses.map(|losses| (losses.needless.count, losses.ack_late.count))
        };
        assert_eq!([had(9), had(0)], [Some((1, 0)), Some((0, 1))]);
    }

    #[test]
    fn a_copy_that_went_out_behind_what_a_d_sack_answers_is_not_the_one_that_was_taken() {
        let recovered = |twice: (u32, u32)| {
            let mut tap = Tap::default();
            tap.send(0, 100, SegmentKind::New).send(1, 200, SegmentKind::New).send(2, 300, SegmentKind::New).ack(
                10,
                300,
                &[],
                0,
            );
            // both had arrived; the last of them waits for its acknowledgment
            tap.send(20, 200, SegmentKind::Repeated).send(21, 300, SegmentKind::Repeated).ack(22, 400, &[twice], 21);
            let was_taken = tap.over.iter().any(|over| matches!(over, Over::Recovery { .. }));
            tap.ack(23, 400, &[(300, 400)], 21);
            assert_eq!(tap.counts(30), [0, 0, 2, 0]);
            was_taken
        };
        // what answers something else tells nothing of it
        assert_eq!([(200, 300), (100, 200)].map(recovered), [false, true]);
    }

    #[test]
    fn what_was_acknowledged_before_it_went_out_again_was_not_lost() {
        let mut tap = Tap::default();
        tap.send(0, 100, SegmentKind::New).ack(1, 200, &[], 0).send(10, 100, SegmentKind::Repeated);
        assert_eq!(tap.counts(20), [0, 0, 1, 0]);
    }

    #[test]
    fn what_the_receiver_reports_missing_was_lost_behind_the_capture() {
        let mut tap = Tap::default();
        tap.send(0, 100, SegmentKind::New).send(1, 200, SegmentKind::New).ack(2, 100, &[(200, 300)], 0);
        tap.send(3, 100, SegmentKind::Repeated).ack(5, 300, &[], 3);
        assert_eq!(tap.counts(20), [0, 1, 0, 0]);
        assert!(matches!(tap.over[..], [Over::Recovery { .. }]), "{:?}", tap.over);
    }

    #[test]
    fn a_hole_that_a_copy_fills_was_lost_before_the_capture() {
        let mut tap = Tap::default();
        tap.send(0, 100, SegmentKind::New).send(1, 300, SegmentKind::Early).ack(2, 200, &[(300, 400)], 1);
        tap.send(9, 200, SegmentKind::Filled { is_late: false }).ack(10, 400, &[], 9);
        assert_eq!(tap.counts(20), [1, 0, 0, 0]);
        let [Over::Recovery { since, until, is_filled: true, .. }] = tap.over[..] else { panic!("{:?}", tap.over) };
        assert_eq!((since, until), (At { frame: 2, time: MS }, At { frame: 5, time: 10 * MS }));
    }

    #[test]
    fn an_older_clock_tells_what_was_overtaken() {
        let mut tap = Tap::default();
        tap.send(5, 100, SegmentKind::New).send(7, 300, SegmentKind::Early);
        let sent = Sent {
            at: tap.at(30),
            seq: 200,
            end: 300,
            timestamp: Some(6),
            echo: None,
            is_older: None,
            age: None,
            was: SegmentKind::Filled { is_late: false },
        };
        tap.repair.sent(&sent, 0, &mut tap.losses);
        assert_eq!(tap.counts(40), [0, 0, 0, 1]);
    }

    #[test]
    fn the_echo_of_the_first_copy_says_that_the_second_was_not_needed() {
        let mut tap = Tap::default();
        tap.send(0, 100, SegmentKind::New).send(200, 100, SegmentKind::Repeated).ack(201, 200, &[], 0);
        assert_eq!(tap.counts(300), [0, 0, 1, 0]);
    }

    #[test]
    fn without_sack_and_without_a_report_nothing_is_reported_as_lost() {
        let mut tap = Tap::default();
        tap.send(0, 100, SegmentKind::New).send(50, 100, SegmentKind::Repeated).ack(51, 200, &[], 50);
        assert_eq!(tap.counts(300), [0, 0, 0, 0]);
        assert_eq!(tap.over, [], "a probe may go out at once");
    }

    #[test]
    fn what_went_out_again_after_a_timer_and_was_answered_then_may_have_been_lost() {
        let mut tap = Tap::default();
        tap.send(0, 100, SegmentKind::New).send(200, 100, SegmentKind::Repeated).ack(201, 200, &[], 200);
        assert_eq!(tap.counts(300), [0, 0, 0, 0]);
        assert_eq!(
            (tap.losses.as_ref().unwrap().unheard.count, tap.losses.as_ref().unwrap().unacknowledged.count),
            (1, 0)
        );
        let [Over::Recovery { since, until, is_reported: false, .. }] = tap.over[..] else { panic!("{:?}", tap.over) };
        assert_eq!((since.time, until.time), (0, 201 * MS));
    }

    #[test]
    fn a_silent_receiver_is_reported_with_the_number_of_attempts() {
        let mut tap = Tap::default();
        tap.send(0, 100, SegmentKind::New);
        [200, 600, 1400, 3000].into_iter().for_each(|ms| {
            tap.send(ms, 100, SegmentKind::Repeated);
        });
        tap.ack(25_000, 200, &[], 3000);
        let silence = tap.losses.as_ref().unwrap().unanswered.unwrap();
        assert_eq!((silence.times, silence.answered, silence.lasted()), (5, true, 25_000 * MS));
    }

    #[test]
    fn data_that_leaves_right_after_a_delayed_acknowledgment_waited_for_it() {
        let mut tap = Tap::default();
        for n in 0..3 {
            tap.send(n * 100, 100 + 200 * n as u32, SegmentKind::New).ack(n * 100 + 42, 200 + 200 * n as u32, &[], 0);
            tap.send(n * 100 + 42, 200 + 200 * n as u32, SegmentKind::New).ack(
                n * 100 + 43,
                300 + 200 * n as u32,
                &[],
                0,
            );
        }
        let losses = tap.losses.clone().unwrap();
        assert_eq!((losses.nagle.count, losses.nagle_time), (3, 3 * 42 * MS));
        // a sender that takes its time after it did not wait for it
        let mut tap = Tap::default();
        tap.send(0, 100, SegmentKind::New).ack(42, 200, &[], 0).send(60, 200, SegmentKind::New);
        assert!(tap.losses.is_none());
    }

    #[test]
    fn a_segment_far_behind_its_own_clock_was_held_up_and_did_not_wait_for_an_acknowledgment() {
        let mut tap = Tap::default();
        for n in 0..10u32 {
            let ms = i64::from(n) * 100;
            tap.send(ms, 100 + 200 * n, SegmentKind::New);
            // made in the same millisecond; it passes when the peer has acknowledged the one before
            tap.ack(ms + 42, 200 + 200 * n, &[], 0);
            let at = tap.at(ms + 42);
            let sent = Sent {
                at,
                seq: 200 + 200 * n,
                end: 300 + 200 * n,
                timestamp: Some(ms as u32),
                echo: Some(0),
                is_older: None,
                age: None,
                was: SegmentKind::New,
            };
            tap.over.extend(tap.repair.sent(&sent, 0, &mut tap.losses));
        }
        let losses = tap.losses.clone().unwrap();
        assert!(losses.held_up.count >= 6 && losses.held_up_time >= 6 * 42 * MS, "{losses:?}");
        assert!(tap.over.iter().all(|over| matches!(over, Over::Nagle { .. } | Over::HeldUp { .. })));
        // one whose clock runs on did wait
        assert!(losses.nagle.count <= 4, "{losses:?}");
    }

    #[test]
    fn a_clock_of_other_steps_says_nothing() {
        let mut tap = Tap::default();
        for n in 0..100u32 {
            // steps of 10 ms
            let sent = Sent {
                at: tap.at(i64::from(n) * 50),
                seq: n * 100,
                end: n * 100 + 100,
                timestamp: Some(n * 5),
                echo: None,
                is_older: None,
                age: None,
                was: SegmentKind::New,
            };
            assert_eq!(tap.repair.sent(&sent, 0, &mut tap.losses), None);
        }
        assert!(tap.losses.is_none());
    }

    impl Tap {
        /// A segment of 100 bytes at a time in ns.
        fn send_at(&mut self, ns: i64, seq: u32, was: SegmentKind, way: i64) -> Option<Over> {
            self.frame += 1;
            let at = At { frame: self.frame, time: ns };
            let sent = Sent { at, seq, end: seq + 100, timestamp: None, echo: None, is_older: None, age: None, was };
            self.repair.sent(&sent, way, &mut self.losses)
        }

        fn ack_at(&mut self, ns: i64, ack: u32, sacks: &[(u32, u32)]) -> Vec<Over> {
            self.frame += 1;
            let at = At { frame: self.frame, time: ns };
            let mut over = Vec::new();
            let acknowledgment = Acknowledged { at, ack, sacks, timestamp: None, echo: None, has_data: false };
            self.repair.acknowledged(&acknowledgment, &mut self.losses, &mut |o| over.push(o));
            over
        }
    }

    #[test]
    fn how_often_and_how_long_makes_silence() {
        let silence = |copies: i64, until: i64, is_answered: bool| {
            let mut tap = Tap::default();
            tap.send_at(-10, 0, SegmentKind::New, 0);
            tap.ack_at(-5, 100, &[]);
            tap.send_at(0, 100, SegmentKind::New, 0);
            (1..=copies).for_each(|n| _ = tap.send_at(n * 100 * MS, 100, SegmentKind::Repeated, 0));
            let mut told = false;
            if is_answered {
                told = tap.ack_at(until, 200, &[]).iter().any(|over| matches!(over, Over::Silence(_)));
            } else {
                tap.repair.finish(At { frame: 99, time: until }, &mut tap.losses);
            }
            let found = tap.losses.and_then(|losses| losses.unanswered).map(|u| (u.times, u.answered, u.lasted()));
            assert_eq!(told, is_answered && found.is_some());
            found
        };
        for is_answered in [true, false] {
            assert_eq!(silence(3, SILENT_TIME, is_answered), Some((4, is_answered, SILENT_TIME)));
            assert_eq!(silence(3, SILENT_TIME - 1, is_answered), None);
            assert_eq!(silence(2, SILENT_TIME, is_answered), None);
        }
        // one that had acknowledged all was not silent before old segments came again
        let mut tap = Tap::default();
        tap.send_at(0, 100, SegmentKind::New, 0);
        tap.ack_at(1, 200, &[]);
        (1..=4).for_each(|n| _ = tap.send_at(9 * SILENT_TIME + n, 100, SegmentKind::Repeated, 0));
        tap.ack_at(9 * SILENT_TIME + 5, 200, &[]);
        assert!(tap.losses.is_some_and(|losses| losses.unanswered.is_none()));
        // of a receiver of which the capture has nothing, nothing is known
        let mut tap = Tap::default();
        tap.send_at(0, 100, SegmentKind::New, 0);
        (1..5).for_each(|n| _ = tap.send_at(n * 100 * MS, 100, SegmentKind::Repeated, 0));
        tap.repair.finish(At { frame: 99, time: 9 * SILENT_TIME }, &mut tap.losses);
        assert!(tap.losses.is_some_and(|losses| losses.unanswered.is_none()));
    }

    #[test]
    fn how_late_an_acknowledgment_is_delayed_and_how_soon_its_sender_goes_on() {
        let waited = |acked: i64, after: i64, way: i64| {
            let mut tap = Tap::default();
            tap.send_at(0, 100, SegmentKind::New, 0);
            tap.ack_at(acked, 200, &[]);
            let over = tap.send_at(acked + after, 200, SegmentKind::New, way);
            let told = tap.losses.map_or((0, 0), |losses| (losses.nagle.count, losses.nagle_time));
            assert_eq!(told, if over.is_some() { (1, acked) } else { (0, 0) });
            over.is_some()
        };
        assert_eq!(
            [DELAYED_ACK - 1, DELAYED_ACK, DELAYED_ACK_MAX - 1, DELAYED_ACK_MAX].map(|ns| waited(ns, 0, 0)),
            [false, true, true, false]
        );
        assert_eq!([PROMPTLY, PROMPTLY + 1].map(|ns| waited(DELAYED_ACK, ns, 0)), [true, false]);
        assert_eq!([PROMPTLY + 7, PROMPTLY + 8].map(|ns| waited(DELAYED_ACK, ns, 7)), [true, false]);
    }

    #[test]
    fn what_waited_as_long_as_a_timer_does_may_have_been_lost() {
        let unheard = |again: i64| {
            let mut tap = Tap::default();
            tap.send_at(0, 100, SegmentKind::New, 0);
            tap.send_at(again, 100, SegmentKind::Repeated, 0);
            let over = tap.ack_at(again + MS, 200, &[]).len();
            tap.repair.finish(At { frame: 99, time: again + 2 * MS }, &mut tap.losses);
            (over, tap.losses.map(|losses| (losses.unheard.count, losses.unacknowledged.count)))
        };
        assert_eq!(unheard(TIMEOUT_LEAST), (1, Some((1, 0))));
        assert_eq!(unheard(TIMEOUT_LEAST - 1), (0, Some((0, 0))));
    }

    #[test]
    fn a_copy_is_settled_when_no_more_is_said_of_it() {
        let settled = |after: i64| {
            let mut tap = Tap::default();
            tap.send_at(0, 100, SegmentKind::New, 0);
            tap.send_at(TIMEOUT_LEAST, 100, SegmentKind::Repeated, 0);
            tap.ack_at(TIMEOUT_LEAST, 200, &[]);
            tap.ack_at(TIMEOUT_LEAST + after, 200, &[]);
            tap.losses.map_or(0, |losses| losses.unheard.count)
        };
        assert_eq!([SETTLED_AFTER - 1, SETTLED_AFTER].map(settled), [0, 1]);
    }

    #[test]
    fn the_shortest_way_to_the_receiver_and_back() {
        let mut tap = Tap::default();
        let mut took = |n: i64, ns: i64| {
            let (begin, seq) = (n * 1000, 100 + n as u32 * 100);
            tap.send_at(begin, seq, SegmentKind::New, 0);
            let over = tap.ack_at(begin + ns, seq + 100, &[]);
            over.into_iter().find_map(|over| if let Over::RoundTrip(ns) = over { Some(ns) } else { None })
        };
        assert_eq!(
            [took(0, 50), took(1, 50), took(2, 51), took(3, 49), took(4, 0), took(5, -1)],
            [Some(50), None, None, Some(49), Some(0), None]
        );
    }

    /// A segment that fills the hole before a later one, or comes again.
    #[derive(Clone, Copy)]
    struct Again {
        ns: i64,
        seq: u32,
        was: SegmentKind,
        timestamp: Option<u32>,
        is_older: Option<bool>,
        way: i64,
    }

    impl Tap {
        fn again(&mut self, of: Again) -> Option<Over> {
            let Again { ns, seq, was, timestamp, is_older, way } = of;
            self.frame += 1;
            let at = At { frame: self.frame, time: ns };
            let sent = Sent { at, seq, end: seq + 100, timestamp, echo: None, is_older, age: None, was };
            self.repair.sent(&sent, way, &mut self.losses)
        }
    }

    #[test]
    fn the_least_delay_is_measured_again_because_clocks_drift() {
        // a clock that loses 1 ms each second; the second window begins a little after the first one's end
        let delay = |after: i64| {
            let mut clock = Clock::new(0, 0);
            assert_eq!(clock.delay(CLOCK_TRUSTED, 300), None);
            let second = CLOCK_WINDOW + 1;
            assert_eq!(clock.delay(second, 9_990), Some(10 * MS + 1));
            clock.delay(second + after, 19_980)
        };
        assert_eq!([delay(CLOCK_WINDOW), delay(CLOCK_WINDOW + 1)], [Some(20 * MS + 1), Some(10 * MS + 1)]);
    }

    #[test]
    fn which_clocks_are_read() {
        let is_read = |took: i64, ticked: u32| {
            let mut clock = Clock::new(0, 0);
            assert_eq!(clock.delay(took, ticked), None);
            clock.delay(took + MS, ticked + 1).is_some()
        };
        assert_eq!([is_read(CLOCK_TRUSTED - 1, 300), is_read(CLOCK_TRUSTED, 300)], [false, true]);
        // an eighth, and what may hold a segment up
        assert_eq!((304 * MS) / 8 + HELD_UP, 53 * MS);
        assert_eq!([251, 252, 356, 357].map(|ticked| is_read(304 * MS, ticked)), [false, true, true, false]);
        // one that is not the first's begins again
        let mut clock = Clock::new(0, 0);
        assert_eq!([clock.delay(CLOCK_TRUSTED, 30), clock.delay(2 * CLOCK_TRUSTED, 330)], [None, None]);
        assert_eq!(clock.delay(2 * CLOCK_TRUSTED + MS, 331), Some(0));
    }

    #[test]
    fn how_far_behind_its_clock_a_segment_was_held_up() {
        let held_up = |delay: i64| {
            let mut tap = Tap::default();
            tap.send(0, 100, SegmentKind::New).send(400, 200, SegmentKind::New);
            let segment = Again {
                ns: 500 * MS + delay,
                seq: 300,
                was: SegmentKind::New,
                timestamp: Some(500),
                is_older: None,
                way: 0,
            };
            let over = tap.again(segment);
            let losses = tap.losses.unwrap_or_default();
            assert_eq!(over.is_some(), losses.held_up.any());
            (losses.held_up.count, losses.held_up_time)
        };
        assert_eq!([held_up(HELD_UP - 1), held_up(HELD_UP)], [(0, 0), (1, HELD_UP)]);
    }

    #[test]
    fn a_clock_that_is_set_makes_both_directions_late() {
        // milliseconds by which the capture's clock is ahead of the sender's and of the peer's, from 500 ms on
        let told = |mine: i64, peers: i64, is_peer_first: bool| {
            let mut tap = Tap::default();
            let send = |tap: &mut Tap, ms: i64, late: i64, seq: u32| {
                let ns = (ms + late) * MS;
                let timestamp = Some(ms as u32);
                let was = SegmentKind::New;
                let over = tap.again(Again { ns, seq, was, timestamp, is_older: None, way: 0 });
                tap.over.extend(over);
            };
            let hear = |tap: &mut Tap, ms: i64, late: i64, ack: u32| {
                let timestamp = Some(7000 + ms as u32);
                let at = tap.at(ms + late);
                let heard = Acknowledged { at, ack, sacks: &[], timestamp, echo: None, has_data: false };
                let over = &mut tap.over;
                tap.repair.acknowledged(&heard, &mut tap.losses, &mut |o| over.push(o));
            };
            for n in 0..5u32 {
                send(&mut tap, 100 * i64::from(n), 0, 100 * n);
                hear(&mut tap, 100 * i64::from(n) + 1, 0, 100 * n + 100);
            }
            if is_peer_first {
                hear(&mut tap, 500, peers, 500);
            }
            for n in 5..9u32 {
                send(&mut tap, 100 * i64::from(n) + 1, mine, 100 * n);
                hear(&mut tap, 100 * i64::from(n) + 2, peers, 100 * n + 100);
            }
            let steps = tap.over.iter().filter(|over| matches!(over, Over::ClockStep { .. })).count();
            let losses = tap.losses.unwrap_or_default();
            (steps, losses.held_up.count, losses.held_up_time / MS)
        };
        for is_peer_first in [false, true] {
            assert_eq!(told(9000, 9000, is_peer_first), (1, 0, 0));
            assert_eq!(told(60_000, 60_001, is_peer_first), (1, 0, 0));
            assert_eq!(told(0, 9000, is_peer_first), (0, 0, 0));
            let (steps, count, _) = told(9000, 0, is_peer_first);
            assert_eq!((steps, count > 0), (0, true), "one direction alone was held up");
            let (steps, count, _) = told(9000, 4000, is_peer_first);
            assert_eq!((steps, count > 0), (0, true), "each by another time");
        }
    }

    /// A sender and its peer whose clocks are known, and what is told of the times of their segments after 500 ms: of
    /// each the sender's or its peer's, its time, and by how much it is late, in ms.
    struct Clocks(Tap);

    impl Clocks {
        fn new() -> Self {
            let mut clocks = Self(Tap::default());
            for n in 0..5 {
                clocks.pass(true, 100 * n, 0).pass(false, 100 * n + 1, 0);
            }
            clocks
        }

        fn pass(&mut self, is_senders: bool, ms: i64, late: i64) -> &mut Self {
            let (tap, seq) = (&mut self.0, 100 * ms as u32);
            if is_senders {
                let (ns, was) = ((ms + late) * MS, SegmentKind::New);
                let again = Again { ns, seq, was, timestamp: Some(ms as u32), is_older: None, way: 0 };
                let over = tap.again(again);
                tap.over.extend(over);
            } else {
                let (at, timestamp) = (tap.at(ms + late), Some(7000 + ms as u32));
                let heard = Acknowledged { at, ack: 0, sacks: &[], timestamp, echo: None, has_data: false };
                let over = &mut tap.over;
                tap.repair.acknowledged(&heard, &mut tap.losses, &mut |o| over.push(o));
            }
            self
        }

        /// Both are late by so much every 50 ms from now on.
        fn stay(&mut self, from: i64, late: i64, times: i64) -> &mut Self {
            (0..times).for_each(|n| _ = self.pass(true, from + 50 * n, late).pass(false, from + 50 * n + 1, late));
            self
        }

        /// Times by which the clock was set, as it seems and as it is told; segments that were held up, and for how long.
        fn told(&mut self) -> (Vec<i64>, Vec<i64>, u64, i64) {
            let (mut seems, mut told) = (Vec::new(), Vec::new());
            for over in &self.0.over {
                match over {
                    Over::ClockStep { since, until, is_told } => {
                        seems.push(until.since(*since) / MS);
                        told.extend(is_told.then_some(until.since(*since) / MS));
                    }
                    Over::ClockSet { since, until } => told.push(until.since(*since) / MS),
                    _ => {}
                }
            }
            let losses = self.0.losses.as_deref().cloned().unwrap_or_default();
            (seems, told, losses.held_up.count, losses.held_up_time / MS)
        }
    }

    #[test]
    fn who_is_late_by_a_step_of_the_clock_may_be_held_up_besides() {
        let told = |mine: i64, peers: i64| Clocks::new().pass(true, 500, mine).pass(false, 501, peers).told();
        assert_eq!(told(300, 300), (vec![300], vec![300], 0, 0));
        assert_eq!(told(341, 300), (vec![300], vec![], 1, 41));
        assert_eq!(told(300, 341), (vec![300], vec![], 0, 0));
        assert_eq!([told(450, 300).0.len(), told(451, 300).0.len()], [1, 0]);
        // what came before the clock was set stays
        let told = Clocks::new().pass(true, 500, 40).pass(true, 501, 1040).pass(false, 502, 1000).told();
        assert_eq!(told, (vec![1000], vec![1000], 2, 80));
        // it is told as soon as both stay late
        let lasting =
            |times: i64| Clocks::new().pass(true, 500, 341).pass(false, 501, 300).stay(550, 300, times).told().1;
        assert_eq!([lasting(3), lasting(7)], [vec![], vec![300]]);
    }

    #[test]
    fn less_than_a_step_of_the_clock_is_held_up_on_its_way() {
        let told = |mine: i64, peers: i64| Clocks::new().pass(true, 500, mine).pass(false, 501, peers).told();
        assert_eq!([told(100, 100), told(99, 99), told(20, 20)].map(|told| told.0.len()), [1, 0, 0]);
        assert_eq!(Clocks::new().stay(500, 40, 9).told(), (vec![], vec![], 9, 360));
        // one that is in time shows that they were not
        for is_senders in [true, false] {
            let told = Clocks::new().stay(500, 341, 1).pass(is_senders, 700, 0).stay(750, 0, 9).told();
            assert_eq!(told.1, [341], "{is_senders}");
        }
    }

    #[test]
    fn a_queue_that_grows_in_both_directions_is_no_step_of_the_clock() {
        let mut clocks = Clocks::new();
        (0..60).for_each(|n| _ = clocks.pass(true, 500 + 2 * n, n.min(40)).pass(false, 501 + 2 * n, n.min(40)));
        let (seems, told, count, _) = clocks.told();
        assert_eq!((seems, told, count), (vec![], vec![], 45));
        // slowly, to more than the least step
        let mut clocks = Clocks::new();
        (0..160).for_each(|n| _ = clocks.pass(true, 500 + 2 * n, n).pass(false, 501 + 2 * n, n));
        assert_eq!(clocks.told().0, []);
    }

    #[test]
    fn who_is_in_time_between_two_late_ones_shows_that_each_was_held_up() {
        let told = Clocks::new().pass(true, 500, 120).pass(true, 650, 0).pass(false, 651, 120).told();
        assert_eq!(told, (vec![], vec![], 1, 120));
        let told = Clocks::new().pass(false, 500, 120).pass(true, 650, 0).pass(true, 700, 120).told();
        assert_eq!(told, (vec![], vec![], 1, 120));
        let told = Clocks::new().pass(false, 500, 120).pass(false, 650, 0).pass(true, 700, 120).told();
        assert_eq!(told, (vec![], vec![], 1, 120));
        let told = |ms: i64| Clocks::new().pass(false, 500, 200).pass(true, ms, 200).told();
        assert_eq!(told(900), (vec![200], vec![200], 0, 0));
    }

    #[test]
    fn a_hole_that_is_reported_often_enough_is_filled_by_what_was_lost() {
        const WAY: i64 = 800_000;
        const BEGIN: i64 = 50 * MS;
        // all segments leave within a tick of their sender's clock; the third of the reports stands at BEGIN, and the
        // segment comes so long after it
        let told = |reports: u32, after: i64| {
            let mut tap = Tap::default();
            let segment = |ns: i64, seq: u32, was: SegmentKind| Again {
                ns,
                seq,
                was,
                timestamp: Some(7),
                is_older: None,
                way: WAY,
            };
            tap.again(segment(0, 100, SegmentKind::New));
            tap.again(segment(MS, 300, SegmentKind::Early));
            for n in 1..=reports {
                let behind = i64::from(n) - 3;
                tap.ack_at(BEGIN + behind * if behind > 0 { 1000 } else { 10 * MS }, 200, &[(300, 400)]);
            }
            tap.again(segment(BEGIN + after, 200, SegmentKind::Filled { is_late: false }));
            let losses = tap.losses.unwrap_or_default();
            (losses.lost_before.count, losses.unclear.count)
        };
        let (lost, unclear) = ((1, 0), (0, 1));
        // the soonest is the way to the sender and back, but for a held acknowledgment; it sends within half a
        // millisecond
        let (least, most) = (WAY - WAY / 8 - HELD_BACK, 2 * WAY + PROMPTLY);
        assert_eq!(
            [told(3, least - 1), told(3, least), told(3, most), told(3, most + 1)],
            [unclear, lost, lost, unclear]
        );
        assert_eq!([told(2, least), told(2, most)], [unclear; 2], "too seldom");
        // more reports change nothing
        assert_eq!([told(4, least), told(4, most), told(4, most + 1)], [lost, lost, unclear]);
    }

    #[test]
    fn a_hole_is_filled_after_a_timer_by_what_was_lost() {
        let told = |delay: i64, reports: i64| {
            let mut tap = Tap::default();
            tap.send_at(0, 100, SegmentKind::New, 0);
            tap.send_at(MS, 300, SegmentKind::Early, 0);
            (0..reports).for_each(|n| _ = tap.ack_at(MS + delay - 100_000 + n, 200, &[(300, 400)]));
            tap.send_at(MS + delay, 200, SegmentKind::Filled { is_late: false }, 0);
            let losses = tap.losses.unwrap_or_default();
            (losses.lost_before.count, losses.unclear.count)
        };
        // whether its receiver reported it or not
        for reports in [0, 1, 3] {
            assert_eq!([told(TIMEOUT_LEAST - 1, reports), told(TIMEOUT_LEAST, reports)], [(0, 1), (1, 0)], "{reports}");
        }
    }

    #[test]
    fn what_filled_a_hole_and_comes_again() {
        // the segment fills the hole and is acknowledged; another copy of it comes so long after the hole was seen
        let told = |seq: u32, delay: i64, is_older: Option<bool>| {
            let mut tap = Tap::default();
            tap.send_at(0, 100, SegmentKind::New, 0);
            tap.send_at(MS, 300, SegmentKind::Early, 0);
            let filled = SegmentKind::Filled { is_late: false };
            tap.again(Again { ns: 2 * MS, seq: 200, was: filled, timestamp: None, is_older: Some(false), way: 0 });
            tap.ack_at(3 * MS, 400, &[]);
            tap.again(Again { ns: MS + delay, seq, was: SegmentKind::Repeated, timestamp: None, is_older, way: 0 });
            let losses = tap.losses.unwrap_or_default();
            [losses.lost_before.count, losses.overtaken.count, losses.unclear.count, losses.needless.count]
        };
        // the first copy was late
        assert_eq!(told(200, 10 * MS, Some(true)), [0, 1, 0, 0]);
        assert_eq!(told(200, TIMEOUT_LEAST - 1, None), [0, 0, 1, 0], "either of them");
        assert_eq!(told(200, TIMEOUT_LEAST, None), [1, 0, 0, 0], "late, but long after it was lost, as it seems");
        // it was sent once more
        assert_eq!(told(200, 10 * MS, Some(false)), [1, 0, 0, 1]);
        // another segment
        assert_eq!([told(100, 10 * MS, Some(true)), told(300, 10 * MS, None)], [[1, 0, 0, 1]; 2]);
    }

    #[test]
    fn which_copies_a_d_sack_may_answer() {
        // the first of so many copies is answered, the last of them is acknowledged for the first time
        let recovered = |copies: u32| {
            let mut tap = Tap::default();
            (1..=copies).for_each(|n| _ = tap.send_at(n.into(), 100 * n, SegmentKind::New, 0));
            tap.ack_at(MS, 100 * copies, &[]);
            (1..=copies).for_each(|n| _ = tap.send_at(2 * MS + i64::from(n), 100 * n, SegmentKind::Repeated, 0));
            tap.ack_at(3 * MS, 100 * copies + 100, &[(100, 200)])
                .iter()
                .any(|over| matches!(over, Over::Recovery { .. }))
        };
        assert_eq!([2, COPIES_MAX as u32, COPIES_MAX as u32 + 1].map(recovered), [false, false, true]);
    }

    #[test]
    fn how_many_open_copies_are_remembered() {
        let told = |count: u32| {
            let mut tap = Tap::default();
            tap.send_at(0, 0, SegmentKind::New, 0);
            tap.ack_at(1, 100, &[(0, 100)]);
            (1..=count).for_each(|n| _ = tap.send_at(2, 100 * n, SegmentKind::New, 0));
            (1..=count).for_each(|n| _ = tap.send_at(MS, 100 * n, SegmentKind::Repeated, 0));
            tap.ack_at(2 * MS, 100 * count + 100, &[]);
            let last = tap.at(9);
            tap.repair.finish(last, &mut tap.losses);
            tap.losses.map_or(0, |losses| losses.unacknowledged.count)
        };
        assert_eq!([1, OPEN_MAX as u32, OPEN_MAX as u32 + 1].map(told), [1, OPEN_MAX as u64, OPEN_MAX as u64]);
    }

    #[test]
    fn a_segment_that_goes_out_twice_more_was_lost_once() {
        let mut tap = Tap::default();
        tap.send(0, 100, SegmentKind::New).send(1, 200, SegmentKind::New).ack(2, 100, &[(200, 300)], 0);
        tap.send(3, 100, SegmentKind::Repeated).send(10, 100, SegmentKind::Repeated).ack(12, 300, &[], 10);
        assert_eq!(tap.counts(20), [0, 1, 0, 0]);
        assert_eq!(tap.over.len(), 1);
    }

    #[test]
    fn what_a_receiver_reports_missing() {
        let reported = |sacks: &[(u32, u32)]| {
            let mut tap = Tap::default();
            tap.send_at(0, 100, SegmentKind::New, 0);
            tap.ack_at(5, 200, sacks);
            (tap.repair.reported(200).map(|at| at.time), tap.repair.reported(300))
        };
        assert_eq!(reported(&[(300, 400)]), (Some(5), None));
        // a segment that came twice is no hole; bytes behind one are
        assert_eq!(reported(&[(100, 200)]), (None, None));
        assert_eq!(reported(&[(100, 200), (300, 400)]), (Some(5), None));
        assert_eq!(reported(&[(300, 350), (300, 400)]), (Some(5), None));
    }

    #[test]
    fn a_copy_may_have_gone_out_before_its_sender_heard_of_the_hole() {
        // the receiver reports the hole at 30 ms; the first copy stands so many ns behind that, the second 5 ms behind
        // it
        let recovered = |behind: i64| {
            let mut tap = Tap::default();
            tap.send(0, 100, SegmentKind::New).ack(10, 200, &[], 0);
            tap.send(20, 300, SegmentKind::Early).ack(30, 200, &[(300, 400)], 20);
            let first = 30 * MS + behind;
            let filled = SegmentKind::Filled { is_late: false };
            tap.again(Again { ns: first, seq: 200, was: filled, timestamp: None, is_older: Some(true), way: 4 * MS });
            tap.frame += 1;
            let at = At { frame: tap.frame, time: first + 5 * MS };
            let was = SegmentKind::Repeated;
            let again =
                Sent { at, seq: 200, end: 300, timestamp: None, echo: None, is_older: None, age: Some(5 * MS), was };
            tap.repair.sent(&again, 4 * MS, &mut tap.losses);
            tap.ack(70, 400, &[], 40);
            tap.over.iter().any(|over| matches!(over, Over::Recovery { .. }))
        };
        // times are whole microseconds
        assert_eq!([AGE_STEP - 1, AGE_STEP].map(recovered), [true, false]);
    }
}
