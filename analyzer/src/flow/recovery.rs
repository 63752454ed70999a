//! One recovery of a direction of a reliable connection: from the first sign that packets did not arrive to the point
//! where the sender is back at its newest packet. IBA volume 1, 9.7.5 (go-back-N).
//!
//! ```text
//!   sent  1 2 ✗ 4 5 ......... 3 4 5 6          a round: what was seen comes again behind what was missing
//!   sent  1 2 4 5 3 6 7                        overtaken: what was missing comes alone
//!                  └── begin      └── end
//! ```

use super::losses::{Losses, Speaks, Unanswered};
use super::psn;
use crate::devices::Measure;
use crate::episodes::{Cause, Trigger};
use crate::op::At;
use alloc::vec::Vec;

/// Rounds without any answer after which a peer is said to be silent.
const SILENT_ROUNDS: u32 = 3;
/// The same, if no answer came any more, however soon they followed each other.
const SILENT_AT_LAST: u32 = 5;
/// ns for which an adapter holds an acknowledgment back, at most: so much longer than the way there and back the
/// shortest may have taken.
pub const HELD_BACK: i64 = 50_000;
/// Packets that came alone of which the number is remembered.
const ALONE_MAX: usize = 8;
/// ns without any answer after which a peer is said to be silent.
const SILENT_TIME: i64 = 1_000_000_000;

/// Packets that follow each other without a jump.
#[derive(Clone, Copy, Debug, Default)]
struct Run {
    begin: At,
    psn: u32,
    /// Packets that had not been seen.
    firsts: u32,
    /// Packets that had.
    repeats: u32,
    /// True if a NAK had asked for them.
    asked: bool,
    /// True if the receiver had acknowledged the first of them.
    acknowledged: bool,
    /// True if it begins with a Read Request whose Response had begun to come.
    reread: bool,
    /// True if it cannot be the sender's answer to a NAK: it is older than that, or came too soon for it.
    is_old: bool,
    /// True if it is the rest of a round that had begun before the NAK.
    goes_on: bool,
}

/// A recovery that is over.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Ended {
    /// Cause of the recovery.
    pub cause: Cause,
    /// Reason for the first packet that was sent again.
    pub trigger: Trigger,
    /// Packets that were lost, late or not taken.
    pub packets: u32,
    /// Retransmitted packets.
    pub repeated: u32,
    /// Payload bytes of the lost packets.
    pub bytes: u64,
}

/// A recovery from loss that is under way.
#[derive(Clone, Debug)]
pub struct Recovery {
    begin: At,
    /// Behind the newest packet sent when it began, or since.
    newest: u32,
    /// First time that packets were missing.
    gap: Option<At>,
    missing: u32,
    /// Missing packets that came with a round.
    filled: u32,
    /// Packets that were lost when they were to go out again: a round jumped over them.
    lost_again: u32,
    overtaken: u32,
    /// Those of them that came again without having been asked for again: the first may have been the one that was sent
    /// first.
    unclear: u32,
    /// The last of them that came alone, in turn: PSN and number.
    filled_alone: Vec<(u32, u32)>,
    delay: i64,
    /// The PSN of the first packet that was missing.
    missing_from: u32,
    naks: u32,
    /// Packets that NAKs asked for.
    asked_for: u32,
    last_nak: Option<u32>,
    /// A NAK came that no round has answered yet.
    pending_nak: bool,
    /// The newest packet that went out since the last NAK.
    resent: Option<u32>,
    /// Time of that NAK, and the wait that it asked for, in ns, if the receiver was not ready.
    asked_at: Option<(At, Option<i64>)>,
    not_ready: bool,
    /// A retransmitted packet had come damaged.
    mended: bool,
    /// Retransmitted packets that had gone to a wrong queue pair.
    misaddressed: u32,
    rounds: u32,
    /// Reason for the first of them.
    trigger: Trigger,
    rounds_acknowledged: u32,
    rounds_reread: u32,
    repeated: u32,
    bytes: u64,
    /// The receiver had gone on sending when it was first tried again.
    spoke: bool,
    first_repeat: At,
    /// Rounds since anything came back that began with the same packet, and its number.
    unanswered_rounds: u32,
    unanswered_psn: u32,
    /// The number with which the last round began.
    last_psn: u32,
    /// Rounds in a row that began behind the packet that is tried again and again.
    ahead_rounds: u32,
    last_sent: At,
    run: Option<Run>,
}

/// Packets that came late by themselves; it is not known yet if their receiver noticed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Late {
    /// The PSN of the first.
    pub psn: u32,
    at: At,
    count: u32,
    delay: i64,
}

impl Late {
    /// The receiver took them without a word, in the order of their numbers: only the capture has them in another.
    pub fn misplaced(self, losses: &mut Losses) {
        losses.misplaced.add(self.at, self.count.into());
    }
}

/// A request packet, as recovery sees it.
#[derive(Clone, Copy, Debug)]
pub struct Sent {
    /// Time and frame of its capture.
    pub at: At,
    /// PSN, 24 bits.
    pub psn: u32,
    /// True if it continues the packet before it.
    pub follows: bool,
    /// True if it had not been seen before.
    pub is_first: bool,
    /// True if the receiver had acknowledged it.
    pub acknowledged: bool,
    /// True if it is a Read Request whose Response had begun to come.
    pub reread: bool,
    /// True if its receiver had gone on sending since.
    pub spoke: bool,
    /// Bytes of its payload.
    pub bytes: u32,
    /// True if the identification of its datagram shows that it was sent long before packets that came earlier.
    pub is_old: bool,
    /// The shortest way from the capture point to the sender and back so far, in ns; 0 if it is not known.
    pub way: i64,
}

impl Recovery {
    /// The first sign came: `begin` is when the sender was last known to be well, `newest` the PSN behind its newest
    /// packet.
    pub fn new(begin: At, newest: u32) -> Self {
        Self {
            begin,
            newest,
            gap: None,
            missing: 0,
            filled: 0,
            lost_again: 0,
            overtaken: 0,
            unclear: 0,
            filled_alone: Vec::new(),
            delay: 0,
            missing_from: newest,
            naks: 0,
            asked_for: 0,
            last_nak: None,
            pending_nak: false,
            resent: None,
            asked_at: None,
            not_ready: false,
            mended: false,
            misaddressed: 0,
            rounds: 0,
            trigger: Trigger::Unknown,
            rounds_acknowledged: 0,
            rounds_reread: 0,
            repeated: 0,
            bytes: 0,
            spoke: false,
            first_repeat: At::default(),
            unanswered_rounds: 0,
            unanswered_psn: 0,
            last_psn: 0,
            ahead_rounds: 0,
            last_sent: begin,
            run: None,
        }
    }

    /// Frame and time of the beginning.
    pub fn begin(&self) -> At {
        self.begin
    }

    /// The PSN behind the newest packet that is to be recovered.
    pub fn newest(&self) -> u32 {
        self.newest
    }

    /// Time by which the sender has heard of its last retransmitted packet, if the way there and back takes `way` ns;
    /// `None` if nothing was retransmitted. A receiver that takes longer to answer does not recover any more.
    pub fn over_by(&self, way: i64) -> Option<i64> {
        let is_again = self.last_sent != self.begin;
        is_again.then(|| self.last_sent.time.saturating_add(way).saturating_add(HELD_BACK))
    }

    /// The last time that a packet was sent again, or in its place.
    pub fn last_again(&self) -> Option<At> {
        (self.last_sent != self.begin).then_some(self.last_sent)
    }

    /// True if NAKs asked for packets.
    pub fn is_asked(&self) -> bool {
        self.naks > 0
    }

    /// True if this packet has come since a NAK asked for it: its receiver may have taken that one.
    pub fn has_come(&self, number: u32) -> bool {
        self.resent.is_some_and(|resent| psn::ahead(resent, number) >= 0)
    }

    /// True if the packets after this one go out again too, so that their first copies do not count: the sender was
    /// asked for it, and has sent newer ones.
    pub fn goes_back(&self, number: u32) -> bool {
        self.naks > 0 && psn::ahead(self.newest, number) > 1
    }

    /// True if anything was retransmitted, or a NAK asked for it.
    pub fn is_under_way(&self) -> bool {
        self.naks > 0 || self.rounds > 0 || self.misaddressed > 0 || self.run.is_some_and(|run| run.repeats > 0)
    }

    /// Packets before `newest` are missing: `count` of them.
    pub fn jumped(&mut self, at: At, count: u32, newest: u32) {
        self.gap.get_or_insert(at);
        self.missing = self.missing.saturating_add(count);
        self.end_run();
        self.reach(newest);
    }

    /// The sender's newest packet ends before this PSN.
    pub fn reach(&mut self, newest: u32) {
        if psn::ahead(newest, self.newest) > 0 {
            self.newest = newest;
        }
    }

    /// Takes a NAK of a sequence error. Returns the time that the receiver took to send it, in ns, if that can be
    /// known.
    pub fn asked(&mut self, at: At, number: u32) -> Option<i64> {
        self.end_run();
        self.asked_at = Some((at, None));
        let took = self.gap.filter(|_| self.naks == 0).map(|gap| at.since(gap));
        self.naks += 1;
        self.asked_for += u32::from(self.last_nak != Some(number));
        self.filled_alone.clear();
        self.last_nak = Some(number);
        self.pending_nak = true;
        self.resent = None;
        self.unanswered_rounds = 0;
        took
    }

    /// The receiver asks for a packet that was lost before the capture point when it was to go out again.
    pub fn lost_again(&mut self) {
        self.lost_again += 1;
    }

    /// True if the last packet that went out was this one, for the first time, and a NAK had asked for it.
    pub fn came_just_now(&self, psn: u32) -> bool {
        let is_last = self.filled_alone.last().is_some_and(|(last, count)| *last == psn && *count == 1);
        is_last || self.run.is_some_and(|run| (run.asked || run.is_old) && run.repeats == 0 && run.psn == psn)
    }

    /// Sets the PSN of the first missing packet, if none was missing before.
    pub fn misses(&mut self, psn: u32) {
        if self.gap.is_none() {
            self.missing_from = psn;
        }
    }

    /// So many of the missing packets, those before the PSN `next`, had arrived: the capture lost them.
    pub fn arrived(&mut self, count: u32, next: u32) {
        self.missing = self.missing.saturating_sub(count);
        if psn::ahead(next, self.missing_from) > 0 {
            self.missing_from = next;
        }
    }

    /// True if there is nothing to recover: all packets that were missing had arrived.
    pub fn is_needless(&self) -> bool {
        self.missing == 0 && !self.is_under_way() && !self.not_ready
    }

    /// The NAK is about packets that have come meanwhile, late.
    pub fn came_late(&mut self, late: Late) {
        self.overtaken += late.count;
        self.delay = self.delay.max(late.delay);
        self.gap.get_or_insert(late.at);
    }

    /// The receiver was not ready, and asked to wait for `wait` ns: packets that go out again were not lost.
    pub fn not_ready(&mut self, at: At, wait: i64) {
        self.end_run();
        self.asked_at = Some((at, Some(wait)));
        self.not_ready = true;
        self.pending_nak = true;
        self.unanswered_rounds = 0;
    }

    /// True if the sender was asked for packets that it has not sent again yet: packets that it sends meanwhile were
    /// already on their way.
    pub fn awaits_round(&self) -> bool {
        self.pending_nak
    }

    /// A packet goes out again that had come damaged.
    pub fn mends(&mut self) {
        self.mended = true;
    }

    /// A packet goes out again that had gone to a wrong queue pair.
    pub fn misaddressed(&mut self) {
        self.misaddressed += 1;
    }

    /// True if the receiver was not ready and asked for time.
    pub fn is_not_ready(&self) -> bool {
        self.not_ready
    }

    /// Anything came back from the receiver. Returns the silence that it ends.
    pub fn answered(&mut self, at: At) -> Option<Unanswered> {
        self.end_run();
        let silence = self.silence(at, true);
        self.unanswered_rounds = 0;
        silence
    }

    fn silence(&self, to: At, answered: bool) -> Option<Unanswered> {
        let found =
            Unanswered { from: self.begin, to, times: self.unanswered_rounds + 1, answered, speaks: Speaks::Not };
        // senders try seven times at most, and then give up
        let gives_up = !answered && self.unanswered_rounds >= SILENT_AT_LAST;
        (gives_up || self.unanswered_rounds >= SILENT_ROUNDS && found.lasted() >= SILENT_TIME).then_some(found)
    }

    /// Takes a packet that is sent before the newest one. Returns a measure of the sender's adapter, if it gives one.
    pub fn sent(&mut self, sent: &Sent) -> Option<Measure> {
        // an answer takes at least a round trip, for which delayed acknowledgments give too large a value
        let too_soon = |asked: At| sent.at.since(asked) < sent.way - sent.way / 8 - HELD_BACK;
        let is_soon = self.asked_at.is_some_and(|(asked, _)| too_soon(asked));
        // a round from before the NAK, in which packets were lost again
        let is_wanted = self.last_nak == Some(sent.psn);
        let goes_on = is_soon && self.rounds > 0 && !is_wanted && (sent.follows || !sent.is_first);
        let is_old = sent.is_old || sent.is_first && is_soon && !goes_on;
        let measure = match self.asked_at.take_if(|_| !is_old && !goes_on) {
            Some((asked, None)) => Some(Measure::Resend(sent.at.since(asked))),
            Some((asked_at, Some(asked))) => Some(Measure::Rnr { asked, kept: sent.at.since(asked_at) }),
            None if !sent.is_first && !sent.follows && !is_soon && self.naks == 0 && !self.not_ready => {
                Some(Measure::Timeout(sent.at.since(self.last_sent)))
            }
            None => None,
        };
        if !sent.follows || self.run.is_none() {
            if !sent.is_first
                && let Some(run) = self.run.take_if(|run| run.asked && run.repeats == 0 && run.psn == sent.psn)
            {
                // the missing packets had come late, just before they were sent again
                self.overtaken += run.firsts;
                let gap = self.gap.unwrap_or(run.begin);
                self.delay = self.delay.max(run.begin.time.saturating_sub(gap.time));
                self.pending_nak = true;
            }
            self.end_run();
            if !sent.is_first && self.filled_alone.iter().any(|(psn, _)| *psn == sent.psn) {
                // it goes out again with all that follows it: what came of that alone may have been sent before
                let unclear: u32 = self
                    .filled_alone
                    .extract_if(.., |(psn, _)| psn::ahead(*psn, sent.psn) >= 0)
                    .map(|(_, count)| count)
                    .sum();
                self.filled -= unclear;
                self.unclear += unclear;
            }
            self.run = Some(Run {
                begin: sent.at,
                psn: sent.psn,
                asked: !is_old && !goes_on && core::mem::take(&mut self.pending_nak),
                goes_on,
                acknowledged: sent.acknowledged,
                reread: sent.reread,
                is_old,
                ..Run::default()
            });
        }
        self.last_sent = sent.at;
        if self.naks > 0 && !is_old && !goes_on && self.resent.is_none_or(|resent| psn::ahead(sent.psn, resent) > 0) {
            self.resent = Some(sent.psn);
        }
        self.bytes = self.bytes.saturating_add(sent.bytes.into());
        let Some(run) = self.run.as_mut() else { return measure };
        if sent.is_first {
            run.firsts += 1;
        } else {
            if self.repeated == 0 && run.repeats == 0 {
                self.first_repeat = sent.at;
                self.spoke = sent.spoke;
            }
            run.repeats += 1;
        }
        measure
    }

    fn end_run(&mut self) {
        let Some(run) = self.run.take() else { return };
        if run.repeats == 0 && (run.is_old || !run.asked && !self.not_ready && self.naks == 0 && self.rounds == 0) {
            self.overtaken += run.firsts;
            let gap = self.gap.unwrap_or(run.begin);
            self.delay = self.delay.max(run.begin.time.saturating_sub(gap.time));
            return;
        }
        if run.goes_on {
            self.filled = self.filled.saturating_add(run.firsts);
            self.repeated = self.repeated.saturating_add(run.firsts + run.repeats);
            return;
        }
        if self.rounds == 0 {
            self.trigger = match run {
                Run { asked: true, .. } if self.naks > 0 => Trigger::Nak,
                _ if self.not_ready => Trigger::RnrNak,
                Run { repeats: 1.., reread: false, .. } if self.naks == 0 => Trigger::Timeout,
                _ => Trigger::Unknown,
            };
        }
        self.rounds += 1;
        self.filled = self.filled.saturating_add(run.firsts);
        if run.repeats == 0 {
            if self.filled_alone.len() >= ALONE_MAX {
                self.filled_alone.remove(0);
            }
            self.filled_alone.push((run.psn, run.firsts));
        }
        // if the capture lost the first packet of a round, or has it in another order, the round seems to begin later:
        // such a round does not count by itself, unless the next one begins later, too
        let is_ahead = |of: u32| self.unanswered_rounds > 0 && psn::ahead(run.psn, of) > 0;
        let (is_on, is_inside) = (is_ahead(self.unanswered_psn), is_ahead(self.last_psn));
        self.ahead_rounds = if is_on { self.ahead_rounds + u32::from(!is_inside) } else { 0 };
        if !is_on || self.ahead_rounds > 1 {
            (self.unanswered_rounds, self.unanswered_psn) = (if is_on { 0 } else { self.unanswered_rounds }, run.psn);
            self.unanswered_rounds += u32::from(!run.asked);
            self.ahead_rounds = 0;
        }
        self.last_psn = run.psn;
        self.rounds_acknowledged += u32::from(run.acknowledged && !run.asked);
        self.rounds_reread += u32::from(run.reread && !run.asked);
        self.repeated = self.repeated.saturating_add(run.firsts + run.repeats);
        if self.first_repeat == At::default() {
            self.first_repeat = run.begin;
        }
    }

    /// Ends the recovery: the sender is back, or the capture is over (`over`). Adds its result to the losses.
    pub fn end(mut self, at: At, over: bool, losses: &mut Losses) -> (Ended, Option<Late>) {
        self.end_run();
        let first = self.gap.unwrap_or(if self.repeated > 0 { self.first_repeat } else { self.begin });
        let silence = if over { self.silence(self.last_sent, false) } else { None };
        if let Some(silence) = silence {
            losses.unanswered(silence);
        }
        losses.repeated.add(self.first_repeat, self.repeated.into());
        losses.naks += u64::from(self.naks);
        if self.misaddressed > 0 && self.filled + self.lost_again + self.overtaken + self.unclear <= self.misaddressed {
            // nothing was lost besides
            if self.rounds > 0 || self.naks > 0 {
                losses.recovered(self.begin, at);
            }
            let (cause, packets, trigger) = (Cause::Misaddressed, self.misaddressed, self.trigger);
            let ended =
                Ended { cause, packets, trigger, repeated: self.repeated.max(self.misaddressed), bytes: self.bytes };
            return (ended, None);
        }
        if self.overtaken > 0 && self.naks == 0 && self.rounds == 0 {
            let ended = Ended { cause: Cause::Reordered, packets: self.overtaken, ..Ended::default() };
            return (ended, Some(Late { psn: self.missing_from, at: first, count: self.overtaken, delay: self.delay }));
        }
        losses.overtaken.add(first, self.overtaken.into());
        if self.repeated == self.filled {
            // nothing behind it was retransmitted, as it does if a sender goes back
            self.unclear += core::mem::take(&mut self.filled);
        }
        losses.unclear.add(first, self.unclear.into());
        losses.delay = losses.delay.max(self.delay);
        let lost = self.filled + self.lost_again;
        if self.rounds > 0 || self.naks > 0 {
            losses.recovered(self.begin, at);
        }
        if over && self.rounds == 0 && self.missing > 0 {
            // the missing packets never came: that is reported when they are given up
            return (Ended { packets: self.missing, ..Ended::default() }, None);
        }
        let (cause, packets) = if lost > 0 {
            losses.lost_before.add(first, lost.into());
            (Cause::LostBefore, lost)
        } else if self.overtaken > 0 {
            // retransmitted packets were not lost
            (Cause::Reordered, self.overtaken)
        } else if self.unclear > 0 {
            (Cause::Unknown, self.unclear)
        } else if self.mended {
            (Cause::Damaged, 1)
        } else if self.not_ready || silence.is_some() {
            // the receiver was not there to take it
            (Cause::Unknown, 1)
        } else if self.repeated == 0 {
            // nothing was sent again, for a NAK either: it came late itself, or the sender was gone, or the capture ends
            if self.missing == 0 && self.last_nak.is_some_and(|number| psn::ahead(self.newest, number) > 0) {
                losses.went_by.add(first, self.asked_for.into());
            }
            (Cause::Unknown, self.asked_for)
        } else if self.asked_for > 0 {
            losses.lost_behind.add(first, self.asked_for.into());
            (Cause::LostBehind, self.asked_for)
        } else if self.rounds > self.rounds_reread {
            let needless = self.rounds_acknowledged.min(self.rounds);
            losses.needless.add(first, needless.into());
            // one packet, however often it was tried: it or its acknowledgment was lost
            let unsure = self.rounds - self.rounds_reread > needless;
            // of one that was never acknowledged, the receiver may be gone
            let spoke = self.spoke && !over;
            let tally = if spoke { &mut losses.unacknowledged } else { &mut losses.unheard };
            tally.add(first, u64::from(unsure));
            let cause = match (unsure, spoke) {
                (false, _) => Cause::Needless,
                (true, true) => Cause::AckLost,
                (true, false) => Cause::Unacknowledged,
            };
            (cause, 1)
        } else {
            // responses to Reads were lost
            (Cause::ResponseLost, self.rounds_reread)
        };
        (Ended { cause, trigger: self.trigger, packets, repeated: self.repeated, bytes: self.bytes }, None)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: i64 = 1_000_000;

    fn at(frame: u64) -> At {
        At { frame, time: frame as i64 * MS }
    }

    /// A packet that follows the one before, or not.
    fn sent(frame: u64, follows: bool, is_first: bool) -> Sent {
        Sent {
            at: at(frame),
            psn: 5,
            follows,
            is_first,
            acknowledged: false,
            reread: false,
            spoke: false,
            bytes: 1,
            is_old: false,
            way: 0,
        }
    }

    fn end(recovery: Recovery, frame: u64) -> Losses {
        let mut losses = Losses::default();
        assert_eq!(recovery.end(at(frame), false, &mut losses).1, None);
        losses
    }

    #[test]
    fn one_packet_lost_is_one_however_many_go_out_again_behind_it() {
        let mut r = Recovery::new(at(1), 10);
        r.jumped(at(2), 1, 12);
        r.asked(at(2), 10);
        r.sent(&sent(3, false, true));
        (4..9).for_each(|f| _ = r.sent(&sent(f, true, false)));
        let losses = end(r, 10);
        assert_eq!((losses.lost_before.count, losses.lost_behind.count, losses.repeated.count), (1, 0, 6));
        assert_eq!((losses.naks, losses.overtaken.count, losses.recovery), (1, 0, 9 * MS));
    }

    #[test]
    fn a_round_goes_on_while_the_next_nak_is_on_its_way() {
        // 16 ms from the capture point to the sender and back
        let packet = |frame: u64, psn: u32, follows: bool, is_first: bool| Sent {
            psn,
            way: 16 * MS,
            ..sent(frame, follows, is_first)
        };
        let lost = |second: Option<u64>| {
            let mut r = Recovery::new(at(1), 15);
            r.jumped(at(2), 2, 15);
            r.asked(at(2), 10);
            r.sent(&packet(20, 10, false, true));
            if let Some(frame) = second {
                r.asked(at(frame), 14);
            }
            // this one had been missing too, and is not older than the round
            r.sent(&packet(21, 11, true, true));
            r.sent(&packet(22, 12, true, false));
            assert_eq!(r.awaits_round(), second.is_some());
            r.sent(&packet(60, 14, false, false));
            let losses = end(r, 70);
            (losses.lost_before.count, losses.lost_behind.count, losses.overtaken.count, losses.repeated.count)
        };
        assert_eq!([lost(None), lost(Some(20))], [(2, 0, 0, 4); 2]);
    }

    #[test]
    fn what_a_round_jumps_over_was_lost_in_it() {
        let lost = |again: bool| {
            let mut r = Recovery::new(at(1), 15);
            r.asked(at(2), 10);
            r.sent(&sent(3, false, false));
            if again {
                r.lost_again();
            }
            r.asked(at(4), 12);
            r.sent(&sent(5, false, false));
            let losses = end(r, 9);
            (losses.lost_before.count, losses.lost_behind.count)
        };
        assert_eq!([lost(false), lost(true)], [(0, 2), (1, 0)]);
    }

    #[test]
    fn a_recovery_tells_what_it_began_with() {
        let trigger = |nak: bool, is_first: bool| {
            let mut r = Recovery::new(at(1), 10);
            if nak {
                r.asked(at(2), 7);
            }
            (3..6).for_each(|f| _ = r.sent(&sent(f, f > 3, is_first && f == 3)));
            r.end(at(9), false, &mut Losses::default()).0.trigger
        };
        assert_eq!(
            [trigger(true, false), trigger(true, true), trigger(false, false)],
            [Trigger::Nak, Trigger::Nak, Trigger::Timeout]
        );
    }

    #[test]
    fn what_was_seen_and_asked_for_was_lost_behind_the_capture() {
        let mut r = Recovery::new(at(1), 10);
        r.asked(at(2), 7);
        r.asked(at(2), 7);
        (3..6).for_each(|f| _ = r.sent(&sent(f, f > 3, false)));
        let losses = end(r, 7);
        assert_eq!(
            (losses.lost_before.count, losses.lost_behind.count, losses.repeated.count, losses.naks),
            (0, 1, 3, 2)
        );
    }

    #[test]
    fn what_comes_alone_was_overtaken_however_late() {
        let mut r = Recovery::new(at(1), 10);
        r.jumped(at(2), 1, 12);
        r.sent(&sent(700, false, true));
        let mut losses = Losses::default();
        let late = r.end(at(701), false, &mut losses).1.expect("it came late");
        assert_eq!((late.count, late.delay), (1, 698 * MS));
        late.misplaced(&mut losses);
        assert_eq!(
            (losses.lost(), losses.misplaced.count, losses.overtaken.count, losses.repeated.count),
            (0, 1, 0, 0),
            "nobody noticed"
        );
        assert_eq!(losses.recoveries, 0, "nobody had to recover");
    }

    #[test]
    fn what_was_overtaken_and_asked_for_is_repeated_but_was_not_lost() {
        let mut r = Recovery::new(at(1), 10);
        r.jumped(at(2), 1, 12);
        r.sent(&sent(3, false, true));
        r.asked(at(2), 10);
        (4..8).for_each(|f| _ = r.sent(&sent(f, f > 4, false)));
        let losses = end(r, 8);
        assert_eq!((losses.lost(), losses.overtaken.count, losses.repeated.count, losses.naks), (0, 1, 4, 1));
    }

    #[test]
    fn what_comes_sooner_than_the_sender_could_have_been_asked_was_overtaken() {
        let at_us = |us: i64| At { frame: us as u64, time: us * 1000 };
        let again = |us, follows, is_first| Sent { at: at_us(us), way: 400_000, ..sent(0, follows, is_first) };
        for (came, overtaken, lost) in [(220, 1, 0), (421, 0, 1)] {
            let mut r = Recovery::new(at_us(1), 4);
            r.jumped(at_us(10), 1, 7);
            r.asked(at_us(20), 5);
            r.sent(&again(came, false, true));
            r.answered(at_us(came));
            (came + 8..came + 11).for_each(|us| _ = r.sent(&Sent { psn: 6, ..again(us, us > came + 8, false) }));
            let losses = end(r, 90);
            assert_eq!((losses.overtaken.count, losses.lost()), (overtaken, lost), "{came}");
        }
    }

    #[test]
    fn what_a_nak_asks_for_comes_once() {
        let mut r = Recovery::new(at(1), 10);
        r.jumped(at(2), 1, 7);
        r.asked(at(3), 5);
        assert!(!r.has_come(5));
        r.sent(&sent(4, false, true));
        r.sent(&Sent { psn: 6, ..sent(5, true, false) });
        assert!(r.has_come(5) && r.has_come(6) && !r.has_come(7));
        r.asked(at(6), 5);
        assert!(!r.has_come(5), "it was asked for once more");
        r.sent(&Sent { is_old: true, ..sent(7, false, false) });
        assert!(!r.has_come(5), "that one was on its way before");
    }

    #[test]
    fn what_came_and_comes_again_unasked_may_have_been_late() {
        let mut r = Recovery::new(at(1), 4);
        r.jumped(at(2), 1, 7);
        r.asked(at(3), 5);
        r.sent(&sent(4, false, true));
        r.answered(at(5));
        (6..9).for_each(|f| _ = r.sent(&sent(f, f > 6, false)));
        let losses = end(r, 9);
        assert_eq!((losses.overtaken.count, losses.unclear.count, losses.lost()), (0, 1, 0));
    }

    #[test]
    fn what_came_alone_and_comes_again_with_all_that_follows_may_have_been_late() {
        let mut r = Recovery::new(at(1), 8);
        r.jumped(at(2), 1, 7);
        r.asked(at(3), 5);
        // 6 had come: these are two that were late
        r.sent(&sent(4, false, true));
        r.sent(&Sent { psn: 7, ..sent(5, false, true) });
        (5..9).for_each(|psn| _ = r.sent(&Sent { psn, ..sent(u64::from(psn) + 1, psn > 5, false) }));
        let losses = end(r, 10);
        assert_eq!((losses.unclear.count, losses.lost()), (2, 0));
    }

    #[test]
    fn the_same_packet_without_any_answer_is_a_silent_peer() {
        let mut r = Recovery::new(at(0), 10);
        for n in 1..7 {
            r.sent(&sent(n * 500, false, false));
        }
        let mut losses = Losses::default();
        let mut answered = r.clone();
        assert!(answered.answered(at(3100)).is_some_and(|u| u.answered && u.times == 7));
        let _ = r.end(at(9000), true, &mut losses);
        let silent = losses.unanswered.unwrap();
        assert_eq!((silent.answered, silent.times, silent.lasted()), (false, 7, 3000 * MS));
        assert_eq!((losses.unacknowledged.count, losses.lost()), (0, 0), "nobody was there to take it");
    }

    #[test]
    fn a_silent_peer_is_seen_though_the_capture_loses_packets_of_rounds() {
        let round = |r: &mut Recovery, n: u64, numbers: &[u32]| {
            let mut before = None;
            for psn in numbers {
                let follows = before == Some(psn - 1);
                before = Some(*psn);
                r.sent(&Sent { psn: *psn, ..sent(n * 500, follows, false) });
            }
        };
        let mut r = Recovery::new(at(0), 10);
        let rounds: [&[u32]; 6] = [&[5, 6, 7], &[6, 7], &[5, 7], &[5, 6, 7], &[5, 6, 7], &[5, 6, 7]];
        (1..).zip(rounds).for_each(|(n, numbers)| round(&mut r, n, numbers));
        let mut losses = Losses::default();
        let _ = r.clone().end(at(9000), true, &mut losses);
        assert_eq!(
            losses.unanswered.map(|u| u.times),
            Some(6),
            "five of which the first packet is known, and the first time"
        );
        // one round of which packets are missing is one
        let mut r = Recovery::new(at(0), 40);
        round(&mut r, 1, &[5, 7, 9, 12, 15, 18, 21, 30]);
        let mut losses = Losses::default();
        let _ = r.end(at(9000), true, &mut losses);
        assert_eq!((losses.unanswered, losses.unheard.count), (None, 1));
    }

    #[test]
    fn who_never_acknowledged_may_be_gone() {
        for (over, counts) in [(false, (1, 0)), (true, (0, 1))] {
            let mut r = Recovery::new(at(1), 10);
            r.sent(&Sent { spoke: true, ..sent(50, false, false) });
            let mut losses = Losses::default();
            let _ = r.end(at(60), over, &mut losses);
            assert_eq!((losses.unacknowledged.count, losses.unheard.count), counts);
        }
    }

    #[test]
    fn what_had_been_acknowledged_goes_out_again_needlessly() {
        let mut r = Recovery::new(at(1), 10);
        r.sent(&Sent { acknowledged: true, ..sent(500, false, false) });
        let losses = end(r, 501);
        assert_eq!((losses.needless.count, losses.lost()), (1, 0));
    }

    #[test]
    fn how_often_and_how_long_makes_silence() {
        let tried = |times: u64, apart: u64, over: bool| {
            let mut r = Recovery::new(at(0), 10);
            (1..=times).for_each(|n| _ = r.sent(&sent(n * apart, false, false)));
            let mut answered = r.clone();
            let told = answered.answered(at(1000)).map(|u| u.times);
            let mut losses = Losses::default();
            let _ = r.end(at(9000), over, &mut losses);
            (told, losses.unanswered.map(|u| u.times))
        };
        // three rounds and a second, or five rounds at last
        assert_eq!(tried(3, 334, true), (Some(4), Some(4)));
        assert_eq!(tried(3, 333, true), (Some(4), None));
        assert_eq!(tried(2, 500, true), (None, None));
        assert_eq!(tried(5, 1, true), (Some(6), Some(6)));
        assert_eq!(tried(4, 1, true), (Some(5), None));
        assert_eq!(tried(5, 1, false), (Some(6), None));
        let mut r = Recovery::new(at(0), 10);
        (1..=3).for_each(|n| _ = r.sent(&sent(n, false, false)));
        assert_eq!(r.clone().answered(At { frame: 1, time: SILENT_TIME - 1 }), None);
        assert!(r.answered(At { frame: 1, time: SILENT_TIME }).is_some());
    }

    #[test]
    fn answers_to_what_was_asked_are_measured() {
        let mut r = Recovery::new(at(1), 10);
        assert_eq!(r.asked(at(2), 5), None, "no gap was seen");
        assert!(r.is_asked() && r.is_under_way() && r.awaits_round());
        assert_eq!(r.sent(&sent(9, false, false)), Some(Measure::Resend(7 * MS)));
        assert_eq!(r.sent(&sent(10, true, false)), None);
        assert!(!r.awaits_round());
        let mut r = Recovery::new(at(1), 10);
        r.jumped(at(2), 1, 12);
        assert_eq!((r.asked(at(5), 10), r.asked(at(6), 10)), (Some(3 * MS), None), "the first alone");
        assert!(r.goes_back(10) && !r.goes_back(11));
        let mut r = Recovery::new(at(1), 10);
        r.not_ready(at(2), 77);
        assert!(r.is_not_ready() && !r.is_asked() && !r.is_under_way());
        assert_eq!(r.sent(&sent(9, false, false)), Some(Measure::Rnr { asked: 77, kept: 7 * MS }));
        let mut r = Recovery::new(at(1), 10);
        assert_eq!(r.sent(&sent(9, false, false)), Some(Measure::Timeout(8 * MS)));
        let mut r = Recovery::new(at(1), 10);
        assert_eq!(r.sent(&sent(9, false, true)), None, "it came for the first time");
        assert!(!r.is_under_way());
        assert_eq!(r.sent(&sent(10, true, false)), None);
        assert!(r.is_under_way());
    }

    #[test]
    fn causes_by_what_was_seen() {
        let cause = |r: Recovery, over| {
            let mut losses = Losses::default();
            let ended = r.end(at(50), over, &mut losses).0;
            (ended.cause, ended.packets, ended.repeated)
        };
        let new = || Recovery::new(at(1), 10);
        let mut gap = new();
        gap.jumped(at(2), 3, 14);
        assert_eq!(gap.newest(), 14);
        assert_eq!(cause(gap, true), (Cause::Unknown, 3, 0), "they never came");
        let mut asked = new();
        asked.asked(at(2), 5);
        assert_eq!(cause(asked.clone(), false), (Cause::Unknown, 1, 0));
        asked.sent(&sent(9, false, false));
        assert_eq!(cause(asked.clone(), false), (Cause::LostBehind, 1, 1));
        asked.mends();
        assert_eq!(cause(asked, false), (Cause::Damaged, 1, 1));
        let mut busy = new();
        busy.not_ready(at(2), 1);
        busy.sent(&sent(9, false, false));
        assert_eq!(cause(busy, false), (Cause::Unknown, 1, 1));
        let mut again = new();
        again.sent(&Sent { spoke: true, ..sent(9, false, false) });
        assert_eq!(
            (cause(again.clone(), false), cause(again, true)),
            ((Cause::AckLost, 1, 1), (Cause::Unacknowledged, 1, 1))
        );
        let mut reread = new();
        reread.sent(&Sent { reread: true, ..sent(9, false, false) });
        assert_eq!(cause(reread.clone(), false), (Cause::ResponseLost, 1, 1));
        // one that was asked for again, and one that was not
        reread.sent(&sent(20, false, false));
        assert_eq!(cause(reread, false), (Cause::Unacknowledged, 1, 2));
        let mut needless = new();
        needless.sent(&Sent { acknowledged: true, ..sent(9, false, false) });
        assert_eq!(cause(needless.clone(), false), (Cause::Needless, 1, 1));
        needless.sent(&sent(20, false, false));
        assert_eq!(cause(needless, false), (Cause::Unacknowledged, 1, 2));
    }

    #[test]
    fn so_many_that_came_alone_are_remembered() {
        let mut r = Recovery::new(at(1), 100);
        r.jumped(at(2), 20, 100);
        r.asked(at(3), 10);
        let count = ALONE_MAX as u32 + 2;
        for n in 0..count {
            r.sent(&Sent { psn: 10 + 2 * n, ..sent(4 + u64::from(n), false, true) });
        }
        // the last of them begins a round: all before it have ended, and the first is forgotten
        r.sent(&Sent { psn: 12, ..sent(50, false, false) });
        (13..20).for_each(|psn| _ = r.sent(&Sent { psn, ..sent(50, true, false) }));
        let losses = end(r, 60);
        assert_eq!((losses.unclear.count, losses.lost()), (0, u64::from(count)));
    }

    #[test]
    fn what_comes_as_soon_as_an_answer_may_be_one() {
        // the way there and back takes 400 us, and an acknowledgment may be held back
        const WAY: i64 = 400_000;
        let soonest = WAY - WAY / 8 - HELD_BACK;
        let answer = |after: i64| {
            let mut r = Recovery::new(at(1), 4);
            r.jumped(at(2), 1, 7);
            r.asked(at(3), 5);
            let measure = r.sent(&Sent { at: At { frame: 4, time: 3 * MS + after }, way: WAY, ..sent(0, false, true) });
            (measure, r.awaits_round())
        };
        assert_eq!(answer(soonest), (Some(Measure::Resend(soonest)), false));
        assert_eq!(answer(soonest - 1), (None, true));
    }

    #[test]
    fn what_came_late_just_before_it_was_sent_again_was_overtaken() {
        let again = |psn: u32, between: bool| {
            let mut r = Recovery::new(at(1), 20);
            r.jumped(at(2), 1, 20);
            r.asked(at(3), 5);
            assert!(!r.came_just_now(5));
            r.sent(&sent(4, false, true));
            assert!(r.came_just_now(5) && !r.came_just_now(6));
            if between {
                r.sent(&Sent { psn: 6, ..sent(5, true, false) });
                assert!(!r.came_just_now(5), "another has followed it");
            }
            r.sent(&Sent { psn, ..sent(6, false, false) });
            r.sent(&Sent { psn: psn + 1, ..sent(7, true, false) });
            let losses = end(r, 9);
            (losses.overtaken.count, losses.lost(), losses.unclear.count)
        };
        assert_eq!(again(5, false), (1, 0, 0));
        assert_eq!(again(6, false), (0, 1, 0), "another one");
        assert_eq!(again(5, true), (0, 1, 0), "the whole round goes out again");
    }

    #[test]
    fn nothing_has_come_for_a_nak_that_was_not_sent() {
        let mut r = Recovery::new(at(1), 10);
        r.sent(&sent(4, false, false));
        assert!(!r.has_come(5));
    }

    #[test]
    fn a_round_that_begins_later_is_counted_if_the_next_one_does_too() {
        let times = |rounds: &[u32]| {
            let mut r = Recovery::new(at(0), 10);
            (1..).zip(rounds).for_each(|(n, psn)| _ = r.sent(&Sent { psn: *psn, ..sent(n * 500, false, false) }));
            r.answered(at(9000)).map(|found| found.times)
        };
        assert_eq!(times(&[5, 5, 5]), Some(4));
        assert_eq!(times(&[5, 5, 5, 6, 5]), Some(5), "the capture lost the first packet of a round");
        assert_eq!(times(&[5, 5, 5, 6, 6, 5]), Some(5));
        assert_eq!(times(&[5, 5, 5, 6, 6, 6]), None, "its peer has the first packet");
        assert_eq!(times(&[5, 5, 5, 6, 6, 6, 6, 6]), Some(4));
    }

    #[test]
    fn when_the_first_packet_went_out_again() {
        let mut alone = Recovery::new(at(1), 10);
        alone.jumped(at(2), 1, 12);
        alone.asked(at(3), 10);
        alone.sent(&sent(4, false, true));
        alone.answered(at(5));
        alone.sent(&Sent { psn: 8, ..sent(6, false, true) });
        let losses = end(alone, 7);
        assert_eq!((losses.repeated.first, losses.repeated.count), (at(4), 2));
        // nothing behind them went out again: they may have been late
        assert_eq!((losses.lost(), losses.unclear.count), (0, 2));
        // with what was seen before
        let mut round = Recovery::new(at(1), 10);
        round.jumped(at(2), 1, 12);
        round.asked(at(3), 10);
        round.sent(&sent(4, false, true));
        round.sent(&Sent { psn: 6, ..sent(5, true, false) });
        let losses = end(round, 7);
        assert_eq!((losses.repeated.first, losses.repeated.count, losses.lost()), (at(5), 2, 1));
    }

    #[test]
    fn what_is_older_than_the_nak_was_overtaken_before_the_gap_was_seen() {
        let mut r = Recovery::new(at(1), 10);
        r.asked(at(2), 5);
        r.sent(&Sent { is_old: true, ..sent(3, false, true) });
        let losses = end(r, 4);
        assert_eq!((losses.overtaken.count, losses.overtaken.first), (1, at(1)));
    }

    #[test]
    fn what_counts_as_a_recovery() {
        let recoveries = |change: fn(&mut Recovery)| {
            let mut r = Recovery::new(at(1), 10);
            change(&mut r);
            let losses = end(r, 9);
            (losses.recoveries, losses.recovery)
        };
        assert_eq!(recoveries(|r| _ = r.asked(at(2), 5)), (1, 8 * MS), "a NAK");
        assert_eq!(recoveries(|r| _ = r.sent(&sent(4, false, false))), (1, 8 * MS), "what went out again");
        assert_eq!(recoveries(|r| r.jumped(at(2), 1, 12)), (0, 0), "a gap alone");
        // a NAK at the very end of the capture
        let mut asked = Recovery::new(at(1), 10);
        asked.asked(at(2), 5);
        let ended = asked.end(at(9), true, &mut Losses::default()).0;
        assert_eq!((ended.cause, ended.packets), (Cause::Unknown, 1));
    }

    #[test]
    fn what_the_capture_lost_is_not_missing() {
        // of three packets that are missing, some had arrived
        let missing = |arrived: &[(u32, u32)]| {
            let mut r = Recovery::new(at(1), 10);
            r.misses(10);
            r.jumped(at(2), 3, 14);
            arrived.iter().for_each(|(count, next)| r.arrived(*count, *next));
            let ended = r.clone().end(at(9), true, &mut Losses::default()).0;
            (r.is_needless(), ended.packets)
        };
        assert_eq!(
            [missing(&[]), missing(&[(1, 11)]), missing(&[(1, 11), (1, 12)])],
            [(false, 3), (false, 2), (false, 1)]
        );
        assert!(missing(&[(3, 13)]).0 && missing(&[(1, 11), (2, 13)]).0);
        let is_needless = |change: fn(&mut Recovery)| {
            let mut r = Recovery::new(at(1), 10);
            change(&mut r);
            r.is_needless()
        };
        assert!(is_needless(|_| {}));
        assert!(!is_needless(|r| _ = r.asked(at(2), 5)) && !is_needless(|r| r.not_ready(at(2), 1)));
        // what comes late by itself begins behind it
        let late = |arrived: u32| {
            let mut r = Recovery::new(at(1), 10);
            r.misses(10);
            r.jumped(at(2), 2, 13);
            r.arrived(arrived, 10 + arrived);
            r.sent(&Sent { psn: 11, ..sent(3, false, true) });
            r.end(at(9), false, &mut Losses::default()).1.map(|late| late.psn)
        };
        assert_eq!([late(0), late(1)], [Some(10), Some(11)]);
    }
}
