//! Parts of a connection that the observer did not see, and the effect on findings that depend on them.
//!
//! Each direction keeps its holes: before the capture began, packets that the capture lost, bytes that the snap length
//! cut off, or the whole direction. A rule declares the facts that it rests on besides the bytes of its frame
//! ([`Rests`]). If there is a hole in them, it stays silent.
//!
//! A hole shows only when the direction goes on, so a finding that rests on the other direction waits until that one is
//! known to be without a hole:
//!
//! ```text
//!   server  ── RDMA Write with an unknown key ──▶                   rests on what the client sent: waits
//!   client  ── the packet that comes next ─────▶                    nothing was missed: reported
//!   client  ── a later packet: some are missing ▶                   one of them may have advertised the key: dropped
//!   nothing more of the client is captured      ▶                   reported, if no more was acknowledged
//! ```

use crate::finding::{Certainty, Rule, Severity};
use crate::op::{At, End, Gap};
use alloc::collections::VecDeque;
use alloc::string::String;
use alloc::vec::Vec;

/// Holes kept of one direction; more are joined.
const HOLES_MAX: usize = 64;
/// Findings of one connection that wait at the same time at most.
const WAITING_MAX: usize = 256;

/// ns by which a packet comes behind its acknowledgment at most, if the capture has both.
pub(crate) const BEHIND_MAX: i64 = 1_000_000;
/// ns within which a requester asks again for a Response that it has not received: a timer, some of which are long.
const ASKS_AGAIN_MAX: i64 = 5_000_000_000;
/// The unit of Responses to RDMA Reads that the capture lost.
pub(crate) const RESPONSE: &str = "Response";
/// Gaps of one connection whose packets may still come, at most.
const LOST_MAX: usize = 256;
/// Rules of one connection that were broken in frames that may have been damaged, at most.
const UNCHECKED_MAX: usize = 32;

/// From when on nothing may be missing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum From {
    /// The bytes of the frame are enough.
    Frame,
    /// A ledger, which knows the holes of the past: only one that is not known yet matters.
    Known,
    /// This frame.
    At(At),
    /// The first message of the connection.
    Start,
}

/// Facts that a finding depends on besides the bytes of its frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rests {
    from: From,
    /// Ends whose messages it rests on.
    of: [bool; 2],
    /// True if messages that were seen must have been seen whole.
    whole: bool,
}

impl Rests {
    /// Nothing: the frame alone breaks the rule.
    pub const FRAME: Self = Self { from: From::Frame, of: [false; 2], whole: false };
    /// Everything that both ends sent since the connection began.
    pub const START: Self = Self { from: From::Start, of: [true; 2], whole: true };
    /// A ledger that keeps account of what it missed: only packets that are not known to be missed yet matter.
    pub const LEDGER: Self = Self { from: From::Known, of: [true; 2], whole: true };

    /// Everything that both ends sent from a frame on: a request, mostly.
    pub const fn since(at: At) -> Self {
        Self { from: From::At(at), of: [true; 2], whole: true }
    }

    /// The same, of one end only.
    #[must_use]
    pub const fn of(self, end: End) -> Self {
        let of = match end {
            End::A => [self.of[0], false],
            End::B => [false, self.of[1]],
        };
        Self { of, ..self }
    }

    /// The same, but it does not matter where the end of a message was cut off.
    #[must_use]
    pub const fn though_cut(self) -> Self {
        Self { whole: false, ..self }
    }
}

/// Reason why a stretch of one direction was not seen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Why {
    /// Packets, or whole messages of a compound, are missing.
    Missing,
    /// The messages were seen, their ends were cut off.
    Cut,
    /// Messages are encrypted, and the key is not known.
    Sealed,
}

/// A stretch of one direction that was not seen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Hole {
    from: At,
    to: At,
    why: Why,
}

#[derive(Clone, Debug, Default)]
struct Direction {
    /// Messages before the first one that was seen were not.
    late: bool,
    holes: Vec<Hole>,
    /// The last frame up to which nothing is missing, apart from the holes.
    last: Option<At>,
    /// Its first packet that was captured.
    first: Option<At>,
    /// The first of those that are numbered one after the other.
    known_from: Option<At>,
}

impl Direction {
    fn add(&mut self, hole: Hole) {
        let joins = |last: &&mut Hole| last.why == hole.why && (last.to >= hole.from || hole.why == Why::Sealed);
        if let Some(last) = self.holes.last_mut().filter(joins) {
            last.to = last.to.max(hole.to);
            return;
        }
        if self.holes.len() >= HOLES_MAX {
            // those of long ago become one
            let (a, b) = (self.holes.remove(0), self.holes[0]);
            let why = if a.why == b.why { a.why } else { Why::Missing };
            self.holes[0] = Hole { from: a.from.min(b.from), to: a.to.max(b.to), why };
        }
        self.holes.push(hole);
    }

    fn is_whole(&self, rests: &Rests) -> bool {
        let matters = |hole: &Hole| rests.whole || hole.why != Why::Cut;
        match rests.from {
            From::Frame | From::Known => true,
            // what was sent before the first packet that has a number, no number shows
            From::At(at) if self.late && self.known_from.is_none_or(|first| first > at) => false,
            From::At(at) => !self.holes.iter().any(|hole| matters(hole) && hole.to.frame >= at.frame),
            From::Start => !self.late && !self.holes.iter().any(matters),
        }
    }
}

/// A rule that was found broken, with everything but its connection.
#[derive(Clone, Debug)]
pub struct Evidence {
    /// The rule that was broken.
    pub rule: Rule,
    /// The rule's own severity, or one changed by the circumstances.
    pub severity: Severity,
    /// The side that did it.
    pub by: End,
    /// Frame and time of the violation.
    pub at: At,
    /// The violation, as a clause.
    pub text: String,
}

/// Decision about a finding.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Decision {
    /// Report it.
    Report(Certainty),
    /// It rests on something that is not known yet: give it to [`Missed::wait`].
    Wait,
    /// It rests on something that was not seen.
    Silent,
}

#[derive(Clone, Debug)]
struct Waiting {
    evidence: Evidence,
    /// Directions that may still turn out to have a hole.
    for_more: [bool; 2],
}

/// Packets or bytes that the receiver had and the capture seems to have lost. They may still come: some captures have
/// acknowledgments before what they acknowledge.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lost {
    /// Where the direction goes on.
    pub at: At,
    by: End,
    /// Number of packets or bytes that did not come.
    pub count: u32,
    /// "packet" or "byte".
    pub unit: &'static str,
    /// Time in ns at which they were known to be missing.
    since: i64,
}

/// Parts of a connection that the capture missed.
#[derive(Clone, Debug, Default)]
pub struct Missed {
    directions: [Direction; 2],
    waiting: Vec<Waiting>,
    /// Findings that were dropped because too many waited.
    pub dropped: u64,
    /// Rules that were broken in frames that may have been damaged, and the end that broke them.
    unchecked: Vec<(Rule, End)>,
    /// In the order in which they were known to be missing.
    lost: VecDeque<Lost>,
    /// Packets or bytes came that were taken for lost by the capture.
    found_late: bool,
}

impl Missed {
    /// A gap whose packets or bytes the receiver had, known since this time in ns.
    #[cold]
    pub fn lost(&mut self, since: i64, gap: &Gap, unit: &'static str) {
        self.lost.push_back(Lost { at: gap.at, by: gap.by, count: gap.count, unit, since });
    }

    /// Packets or bytes in a gap of `by` came after all. Returns the number of those that did in time.
    #[cold]
    pub fn found(&mut self, by: End, count: u32) -> u32 {
        let mut left = count;
        for lost in self.lost.iter_mut().rev().filter(|lost| lost.by == by) {
            let came = left.min(lost.count);
            lost.count -= came;
            left -= came;
        }
        self.found_late |= left > 0;
        count - left
    }

    /// True if what the capture seemed to have lost stands in it, far from its place: more of that may.
    pub fn is_found_late(&self) -> bool {
        self.found_late
    }

    /// True if [`Missed::settled`] has to be asked.
    #[inline]
    pub fn has_lost(&self) -> bool {
        !self.lost.is_empty()
    }

    /// The next gap whose packets do not come any more at `now` (ns). Nothing may be left of it.
    pub fn settled(&mut self, now: i64) -> Option<Lost> {
        let is_over = |lost: &Lost| {
            let patience = if lost.unit == RESPONSE { ASKS_AGAIN_MAX } else { BEHIND_MAX };
            now.saturating_sub(lost.since) > patience
        };
        let place = self.lost.iter().position(is_over).or((self.lost.len() > LOST_MAX).then_some(0))?;
        self.lost.remove(place)
    }

    /// The capture began after the first message of the connection.
    pub fn late(&mut self) {
        for direction in &mut self.directions {
            direction.late = true;
        }
    }

    /// The first message of the connection was seen after all.
    pub fn begun(&mut self) {
        for direction in &mut self.directions {
            direction.late = false;
        }
    }

    /// A rule was broken in a frame that may have been damaged.
    #[cold]
    pub fn unchecked(&mut self, rule: Rule, by: End) {
        if self.unchecked.len() < UNCHECKED_MAX && !self.unchecked.contains(&(rule, by)) {
            self.unchecked.push((rule, by));
        }
    }

    /// Rules that were broken in frames that may have been damaged.
    pub fn take_unchecked(&mut self) -> Vec<(Rule, End)> {
        core::mem::take(&mut self.unchecked)
    }

    /// True if anything is known to be missing: the beginning, or packets.
    pub fn any(&self) -> bool {
        self.directions.iter().any(|d| d.late || d.holes.iter().any(|h| h.why == Why::Missing))
    }

    /// True if all that a rule rests on was seen, as far as is known.
    pub fn is_whole(&self, rests: Rests) -> bool {
        End::BOTH.into_iter().all(|end| !rests.of[end.index()] || self.directions[end.index()].is_whole(&rests))
    }

    /// Decision about a finding in a frame of `sender` if everything up to that frame is known.
    pub fn verdict(&self, rests: Rests, sender: Option<End>) -> Decision {
        if rests.from == From::Frame {
            return Decision::Report(Certainty::Certain);
        }
        if !self.is_whole(rests) {
            return Decision::Silent;
        }
        match End::BOTH.into_iter().any(|end| rests.of[end.index()] && sender != Some(end)) {
            true => Decision::Wait,
            false => Decision::Report(Certainty::IfNothingWasMissed),
        }
    }

    /// Keeps a finding until it is known if anything it rests on was missed.
    pub fn wait(&mut self, rests: Rests, sender: Option<End>, evidence: Evidence) {
        if self.waiting.len() >= WAITING_MAX {
            self.dropped += 1;
            return;
        }
        let for_more = End::BOTH.map(|end| rests.of[end.index()] && sender != Some(end));
        self.waiting.push(Waiting { evidence, for_more });
    }

    /// Everything that `by` sent up to this frame is known. Emits the findings that waited for that.
    #[inline]
    pub fn seen(&mut self, by: End, at: At, emit: impl FnMut(Evidence)) {
        let direction = &mut self.directions[by.index()];
        direction.last = Some(at);
        direction.first.get_or_insert(at);
        direction.known_from.get_or_insert(at);
        if !self.waiting.is_empty() {
            self.release(by, at, emit);
        }
    }

    #[cold]
    fn release(&mut self, by: End, at: At, mut emit: impl FnMut(Evidence)) {
        for waiting in self.waiting.iter_mut().filter(|w| w.evidence.at.frame <= at.frame) {
            waiting.for_more[by.index()] = false;
        }
        let mut index = 0;
        while let Some(waiting) = self.waiting.get(index) {
            match waiting.for_more == [false; 2] {
                true => emit(self.waiting.remove(index).evidence),
                false => index += 1,
            }
        }
    }

    /// Packets of `by` before `at` were not seen.
    pub fn gap(&mut self, by: End, at: At) {
        let direction = &mut self.directions[by.index()];
        let from = direction.last.unwrap_or_default();
        direction.add(Hole { from, to: at, why: Why::Missing });
        self.waiting.retain(|w| !w.for_more[by.index()]);
    }

    /// The end of a message of `by` was cut off by the capture.
    pub fn cut(&mut self, by: End, at: At) {
        self.directions[by.index()].add(Hole { from: at, to: at, why: Why::Cut });
    }

    /// Messages of `by` were cut off with it, as those of a compound are.
    pub fn hidden(&mut self, by: End, at: At) {
        self.directions[by.index()].add(Hole { from: at, to: at, why: Why::Missing });
    }

    /// A message of `by` is encrypted, and the key is not known.
    pub fn encrypted(&mut self, by: End, at: At) {
        self.directions[by.index()].add(Hole { from: at, to: at, why: Why::Sealed });
    }

    /// A packet of an end was captured.
    #[inline]
    pub fn captured(&mut self, by: End, at: At) {
        self.directions[by.index()].first.get_or_insert(at);
    }

    /// True if a packet of either end was captured.
    pub fn has_captured(&self) -> bool {
        self.directions.iter().any(|direction| direction.first.is_some())
    }

    /// Emits the findings that still wait, if their direction was captured at all: no more of it was acknowledged than
    /// was seen.
    pub fn finish(&mut self, mut emit: impl FnMut(Evidence)) {
        let absent = End::BOTH.map(|end| self.is_absent(end));
        for waiting in core::mem::take(&mut self.waiting) {
            if End::BOTH.into_iter().all(|end| !(waiting.for_more[end.index()] && absent[end.index()])) {
                emit(waiting.evidence);
            }
        }
    }

    /// True if packets or messages are missing or cut off: the beginning, a gap, or a whole direction.
    pub fn anything(&self) -> bool {
        let is_holed =
            |d: &Direction| d.late || d.first.is_none() || d.holes.iter().any(|hole| hole.why != Why::Sealed);
        self.directions.iter().any(is_holed)
    }

    /// True if neither end was captured at all, and nothing is known to be missing.
    pub fn is_silent(&self) -> bool {
        self.directions.iter().all(|d| d.first.is_none() && !d.late && d.holes.is_empty())
    }

    /// True if an end was captured, its peer was not, and nothing is known to be missing.
    pub fn is_one_sided(&self, end: End) -> bool {
        let is_whole = |d: &Direction| !d.late && d.holes.is_empty();
        !self.is_absent(end) && self.is_absent(end.peer()) && self.directions.iter().all(is_whole)
    }

    /// True if no packet of an end was captured.
    pub fn is_absent(&self, end: End) -> bool {
        self.directions[end.index()].first.is_none()
    }

    /// True if packets of an end are missing between these two frames, as far as is known.
    pub fn is_missing(&self, end: End, from: At, to: At) -> bool {
        let overlaps =
            |hole: &Hole| hole.why == Why::Missing && hole.from.frame <= to.frame && hole.to.frame >= from.frame;
        self.directions[end.index()].holes.iter().any(overlaps)
    }

    /// True if the first packet of an end was captured after this one.
    pub fn begins_after(&self, end: End, at: At) -> bool {
        self.directions[end.index()].first.is_some_and(|first| first.frame > at.frame)
    }

    /// Takes over the other half of a connection whose directions were first taken for two.
    pub fn adopt(&mut self, by: End, from: &mut Self, from_end: End) {
        self.directions[by.index()] = core::mem::take(&mut from.directions[from_end.index()]);
        self.found_late |= from.found_late;
        for (rule, end) in from.take_unchecked() {
            self.unchecked(rule, if end == from_end { by } else { by.peer() });
        }
        self.lost.extend(
            from.lost.drain(..).map(|lost| Lost { by: if lost.by == from_end { by } else { by.peer() }, ..lost }),
        );
        for mut waiting in from.waiting.drain(..) {
            waiting.evidence.by = if waiting.evidence.by == from_end { by } else { by.peer() };
            if from_end != by {
                waiting.for_more.swap(0, 1);
            }
            if self.waiting.len() < WAITING_MAX {
                self.waiting.push(waiting);
            }
        }
        self.late();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(frame: u64) -> At {
        At { frame, time: frame as i64 }
    }

    #[test]
    fn what_comes_behind_its_acknowledgment_was_not_lost() {
        let gap = |frame: u64, by: End, count: u32| Gap {
            at: at(frame),
            by,
            count,
            receiver_had_them: true,
            is_asked: false,
        };
        let mut missed = Missed::default();
        missed.lost(1_000, &gap(1, End::A, 3), "packet");
        missed.lost(2_000, &gap(2, End::B, 5), "packet");
        missed.lost(3_000, &gap(3, End::A, 4), "packet");
        assert_eq!([missed.found(End::A, 5), missed.found(End::B, 0)], [5, 0]);
        let mut settled = |now: i64| missed.settled(now).map(|lost| (lost.at.frame, lost.count));
        assert_eq!(
            [settled(1_000 + BEHIND_MAX), settled(1_001 + BEHIND_MAX), settled(1_001 + BEHIND_MAX)],
            [None, Some((1, 2)), None]
        );
        assert_eq!([settled(i64::MAX), settled(i64::MAX), settled(i64::MAX)], [Some((2, 5)), Some((3, 0)), None]);
        assert!(!missed.has_lost() && !missed.is_found_late());
        assert_eq!((missed.found(End::A, 1), missed.is_found_late()), (0, true));
        (0..=LOST_MAX as u64).for_each(|n| missed.lost(9, &gap(n, End::A, 1), "byte"));
        assert_eq!([missed.settled(9), missed.settled(9)].map(|lost| lost.map(|lost| lost.at.frame)), [Some(0), None]);
    }

    /// A finding against A in a frame of A that rests on what B sent.
    fn evidence(missed: &mut Missed, rests: Rests, frame: u64) -> Decision {
        let verdict = missed.verdict(rests, Some(End::A));
        if verdict == Decision::Wait {
            let evidence = Evidence {
                rule: Rule::RdmaKeyUnknown,
                severity: Severity::Error,
                by: End::A,
                at: at(frame),
                text: String::new(),
            };
            missed.wait(rests, Some(End::A), evidence);
        }
        verdict
    }

    fn seen(missed: &mut Missed, by: End, frame: u64) -> Vec<u64> {
        let mut told = Vec::new();
        missed.seen(by, at(frame), |e| told.push(e.at.frame));
        told
    }

    #[test]
    fn the_bytes_of_a_frame_are_certain_whatever_was_missed() {
        let mut missed = Missed::default();
        missed.late();
        missed.gap(End::A, at(3));
        assert_eq!(missed.verdict(Rests::FRAME, Some(End::A)), Decision::Report(Certainty::Certain));
    }

    /// Before the first numbered packet of a capture that began late, nothing shows what was lost.
    #[test]
    fn what_was_sent_before_the_first_packet_of_a_late_capture_is_not_known() {
        let whole = |is_late: bool| {
            let mut missed = Missed::default();
            if is_late {
                missed.late();
            }
            missed.captured(End::B, at(1));
            seen(&mut missed, End::B, 5);
            [4, 5].map(|since| missed.is_whole(Rests::since(at(since)).of(End::B)))
        };
        assert_eq!([whole(false), whole(true)], [[true, true], [false, true]]);
    }

    #[test]
    fn a_finding_waits_until_the_other_direction_goes_on_without_a_hole() {
        let mut missed = Missed::default();
        seen(&mut missed, End::B, 1);
        assert_eq!(evidence(&mut missed, Rests::START.of(End::B), 5), Decision::Wait);
        assert_eq!(
            (seen(&mut missed, End::A, 6), seen(&mut missed, End::B, 4)),
            (Vec::new(), Vec::new()),
            "not that direction, not that far"
        );
        assert_eq!(seen(&mut missed, End::B, 7), [5]);
        assert_eq!(seen(&mut missed, End::B, 8), [0; 0], "told once");
    }

    #[test]
    fn a_hole_that_shows_later_drops_what_rests_on_it() {
        let mut missed = Missed::default();
        seen(&mut missed, End::B, 1);
        evidence(&mut missed, Rests::START.of(End::B), 5);
        missed.gap(End::B, at(9));
        assert_eq!(seen(&mut missed, End::B, 9), [0; 0]);
        assert_eq!(evidence(&mut missed, Rests::START.of(End::B), 10), Decision::Silent, "the hole stays");
        assert_eq!(evidence(&mut missed, Rests::since(at(9)).of(End::B), 11), Decision::Silent);
        assert_eq!(evidence(&mut missed, Rests::since(at(10)).of(End::B), 11), Decision::Wait, "it is behind");
        assert_eq!(
            missed.verdict(Rests::since(at(2)).of(End::A), Some(End::A)),
            Decision::Report(Certainty::IfNothingWasMissed)
        );
    }

    #[test]
    fn a_direction_that_was_never_captured_says_nothing() {
        let mut missed = Missed::default();
        evidence(&mut missed, Rests::START.of(End::B), 5);
        let mut told = 0;
        missed.finish(|_| told += 1);
        assert_eq!((told, missed.is_absent(End::B)), (0, true));
    }

    #[test]
    fn at_the_end_it_counts_what_was_acknowledged() {
        for (unseen, expected) in [(None, 1), (Some(End::B), 0), (Some(End::A), 1)] {
            let mut missed = Missed::default();
            seen(&mut missed, End::B, 1);
            evidence(&mut missed, Rests::START.of(End::B), 5);
            let mut told = 0;
            if let Some(by) = unseen {
                missed.gap(by, at(u64::MAX));
            }
            missed.finish(|_| told += 1);
            assert_eq!(told, expected, "{unseen:?}");
        }
    }

    #[test]
    fn what_was_cut_off_matters_to_those_who_need_messages_whole() {
        let mut missed = Missed::default();
        missed.cut(End::B, at(4));
        let rests = Rests::since(at(2)).of(End::B);
        assert_eq!((missed.is_whole(rests), missed.is_whole(rests.though_cut()), missed.any()), (false, true, false));
        missed.hidden(End::B, at(5));
        assert!(!missed.is_whole(rests.though_cut()) && missed.is_whole(Rests::since(at(2)).of(End::A)));
    }

    #[test]
    fn stays_bounded() {
        let mut missed = Missed::default();
        for frame in 1..10_000 {
            seen(&mut missed, End::A, 3 * frame);
            missed.gap(End::A, at(3 * frame + 2));
            evidence(&mut missed, Rests::LEDGER, 3 * frame + 2);
        }
        assert!(
            missed.directions[0].holes.len() <= HOLES_MAX && missed.waiting.len() <= WAITING_MAX && missed.dropped > 0
        );
        assert!(!missed.is_whole(Rests::since(at(1))) && missed.is_whole(Rests::since(at(30_000))));
    }
}
