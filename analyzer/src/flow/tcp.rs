//! One direction of a TCP connection, put in order: RFC 9293. No I/O, no clock, bounded memory.
//!
//! ```text
//! segments ──▶ Stream ──▶ pieces in the order of their sequence numbers, each byte once
//!   acknowledgments of the peer ──▲        what the receiver has and we do not, the capture lost
//! ```
//!
//! A segment that begins at the end of the last one is passed on without a copy. Early segments are held back, up to a
//! limit. Of bytes that come twice the first copy counts. Positions are sequence numbers unwrapped to 64 bits.

use super::repair::TIMEOUT_LEAST;
use crate::op::At;
use alloc::boxed::Box;
use alloc::collections::{BTreeMap, VecDeque};
use alloc::vec::Vec;

/// Bytes of the stream, in order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Piece<'a> {
    /// The bytes.
    pub bytes: &'a [u8],
    /// So many bytes behind them will not be seen: cut or lost by the capture.
    pub missing: u32,
    /// True if the bytes are part of the current frame, and not of a buffer.
    pub in_frame: bool,
}

/// Events of a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event<'a> {
    /// The next bytes.
    Piece(Piece<'a>),
    /// Bytes that no segment of the capture brought are skipped; a [`Piece`] of nothing with them missing follows.
    Gap {
        /// Number of bytes.
        count: u32,
        /// True if the peer acknowledged them.
        receiver_had_them: bool,
    },
    /// A segment brought bytes that were there, or (`filled`) that later bytes had waited for.
    Retransmission {
        /// Bytes of the segment.
        bytes: u32,
        /// True if it brought something new: the first copy was lost on the wire before the capture.
        filled: bool,
    },
    /// A segment came later than one that follows it, too soon after it to be a retransmission.
    OutOfOrder {
        /// Bytes of the segment.
        bytes: u32,
    },
    /// A segment came that is not next: it is held back.
    Held {
        /// Bytes missing before it, and before the bytes that are held already.
        missing: u32,
    },
    /// Two copies of the same bytes differ. The first one counts.
    Conflict {
        /// Bytes compared.
        bytes: u32,
    },
    /// The sender has closed its direction, and all its bytes were reported.
    Closed {
        /// The segment with its FIN, or the one that filled the last gap before that.
        at: At,
    },
}

/// Counters of one direction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Segments with payload.
    pub segments: u64,
    /// Bytes delivered in order.
    pub bytes: u64,
    /// Segments sent again.
    pub retransmitted: u32,
    /// Payload bytes of retransmitted segments.
    pub retransmitted_bytes: u64,
    /// Segments that came late by a little.
    pub out_of_order: u32,
    /// Overlaps whose copies differ.
    pub conflicts: u32,
    /// Probes of an idle connection.
    pub keepalives: u32,
    /// Times the receive window closed.
    pub zero_windows: u32,
    /// Segments with RST.
    pub resets: u32,
    /// Gaps skipped.
    pub gaps: u32,
    /// Bytes in them.
    pub gap_bytes: u64,
    /// Bytes that the capture cut off.
    pub cut_bytes: u64,
}

#[derive(Clone, Debug)]
struct Held {
    bytes: Vec<u8>,
    /// On the wire.
    length: u32,
}

/// One direction of a connection.
#[derive(Clone, Debug, Default)]
pub struct Stream {
    /// Position of the next byte to emit. Its lower half is the sequence number.
    next: u64,
    /// Value of `next` when the first segment came.
    origin: u64,
    /// Position up to which the peer has acknowledged.
    acked: u64,
    /// The same of the newest acknowledgment that may be damaged; 0 if there was none.
    doubted: u64,
    /// The end of the segment that reached furthest.
    highest: u64,
    held: BTreeMap<u64, Held>,
    held_bytes: usize,
    /// Time in ns at which the first segment beyond the open gap came.
    gap_since: i64,
    /// The peer acknowledged again what is before the open gap: it misses the bytes of that.
    is_asked: bool,
    /// Time in ns of the last segment.
    last: i64,
    /// The last stretches that were skipped because the receiver had them: from, to, and the time of the first segment
    /// after that; of those that were skipped since the last segment, its time.
    skipped: VecDeque<(u64, u64, i64)>,
    /// Some were skipped since the last segment.
    skips: bool,
    /// Position of the FIN, and its segment.
    fin: Option<Box<(u64, At)>>,
    /// The FIN itself was not captured: its acknowledgment was.
    is_fin_inferred: bool,
    /// Sequence number of the first byte.
    first: u32,
    started: bool,
    from_syn: bool,
    closed: bool,
    counts: Counts,
}

/// A segment that fills a gap within this time was only overtaken, as Wireshark sees it too.
const REORDERED_WITHIN_NS: i64 = 3_000_000;
/// Bytes by which the first data of a connection is ahead of its SYN at most, if the SYN comes behind it.
const LATE_SYN: u32 = 1 << 16;
/// Bytes by which an acknowledgment that may be damaged is ahead at most, if it is right.
const DOUBTED_AHEAD: u64 = 1 << 24;
/// Stretches that were skipped, of which segments are recognised when they come after all, at most.
const SKIPPED_MAX: usize = 64;
/// Memory that a held segment takes besides its bytes, in bytes.
const HELD_OVERHEAD: usize = 96;

impl Stream {
    /// True if any sequence number is known.
    pub fn started(&self) -> bool {
        self.started
    }

    /// True if it was seen from its first byte on (its SYN was captured).
    pub fn from_syn(&self) -> bool {
        self.from_syn
    }

    /// Counters so far.
    pub fn counts(&self) -> &Counts {
        &self.counts
    }

    /// The same, to add to.
    pub(super) fn counts_mut(&mut self) -> &mut Counts {
        &mut self.counts
    }

    /// Bytes held back, with the memory that it takes to hold them.
    pub fn held(&self) -> usize {
        self.held_bytes
    }

    /// True if the peer acknowledged more than was seen. (A FIN counts as a byte.)
    pub fn is_unseen(&self) -> bool {
        self.started && self.acked > self.next + u64::from(self.fin.is_some())
    }

    /// Sequence number of the first byte.
    pub(super) fn first(&self) -> u32 {
        self.first
    }

    /// The sequence number expected next.
    pub fn next_seq(&self) -> u32 {
        self.next as u32
    }

    /// A SYN with this sequence number: the first byte is the one behind it.
    pub fn syn(&mut self, seq: u32) {
        if !self.started {
            self.start(seq.wrapping_add(1));
            self.from_syn = true;
        }
    }

    /// True if a SYN with this sequence number is that of another connection with the same addresses and ports.
    pub fn is_other_syn(&self, seq: u32) -> bool {
        self.started && seq.wrapping_add(1) != self.first && !self.is_late_syn(seq)
    }

    /// True if the SYN comes behind the first data of its connection, an order that only a capture can have.
    pub fn is_late_syn(&self, seq: u32) -> bool {
        self.started && !self.from_syn && self.first.wrapping_sub(seq.wrapping_add(1)) < LATE_SYN
    }

    /// Bytes between a sequence number and the next one expected, before or behind it; `None` of a stream that did not
    /// begin.
    pub fn distance(&self, seq: u32) -> Option<u32> {
        self.started.then(|| (seq.wrapping_sub(self.next as u32) as i32).unsigned_abs())
    }

    fn start(&mut self, seq: u32) {
        self.started = true;
        self.first = seq;
        self.next = (1 << 32) | u64::from(seq);
        self.origin = self.next;
        self.acked = self.next;
        self.highest = self.next;
    }

    /// Position of a sequence number: the one nearest to `next`.
    fn position(&self, seq: u32) -> u64 {
        let distance = seq.wrapping_sub(self.next as u32) as i32;
        self.next.wrapping_add_signed(distance.into())
    }

    /// True if a segment comes behind its acknowledgment: it is new to the capture, and the peer has it.
    pub fn is_misplaced(&self, seq: u32, length: u32) -> bool {
        if !self.started {
            return false;
        }
        let pos = self.position(seq);
        let end = pos + u64::from(length);
        pos == self.next && self.acked >= end
            || self.skipped.back().is_some_and(|(from, to, _)| *from <= pos && end <= *to)
    }

    /// A segment that may come behind its acknowledgment: true if its bytes were skipped a short time ago. They are not
    /// expected again.
    pub fn found(&mut self, at: At, seq: u32, length: u32) -> bool {
        if self.skipped.is_empty() {
            return false;
        }
        let pos = self.position(seq);
        let end = pos + u64::from(length);
        // the first segment behind an acknowledgment may stand right behind it: what is acknowledged is sent again if
        // a timer had run out alone
        let patience = |last: i64| match self.skips && last == self.last {
            true => TIMEOUT_LEAST - 1,
            false => REORDERED_WITHIN_NS,
        };
        let is_inside = |(from, to, last): &(u64, u64, i64)| {
            *from <= pos && end <= *to && at.time.saturating_sub(*last) <= patience(*last)
        };
        let Some(place) = self.skipped.iter().position(is_inside) else { return false };
        if self.skips {
            self.goes_on(at);
        }
        let (from, to, last) = self.skipped[place];
        self.skipped[place].1 = pos;
        if end < to {
            self.skipped.insert(place + 1, (end, to, last));
        }
        if from == pos {
            self.skipped.remove(place);
        }
        self.counts.segments += 1;
        true
    }

    /// The first segment since stretches were skipped.
    #[cold]
    fn goes_on(&mut self, at: At) {
        self.skips = false;
        let last = self.last;
        self.last = last.max(at.time);
        self.skipped.iter_mut().filter(|(_, _, time)| *time == last).for_each(|(.., time)| *time = self.last);
    }

    /// The peer has acknowledged all before this sequence number.
    #[inline]
    pub fn acknowledged(&mut self, ack: u32, emit: &mut impl FnMut(Event<'_>)) {
        if !self.started {
            return;
        }
        self.acked = self.acked.max(self.position(ack));
        if !self.held.is_empty() {
            let gaps = self.counts.gaps;
            self.skip_acknowledged(emit);
            self.skips |= self.counts.gaps > gaps;
            self.is_asked |= ack == self.next as u32;
        }
        if self.fin.is_some() && !self.closed {
            self.end_acknowledged(emit);
        }
    }

    /// An acknowledgment in a segment that may be damaged. It counts where the sender's own numbers agree with it: a
    /// wrong one would hardly be the beginning or the end of a segment.
    #[cold]
    pub fn acknowledged_perhaps(&mut self, ack: u32, emit: &mut impl FnMut(Event<'_>)) {
        let position = self.position(ack);
        if !self.started || position <= self.acked {
            return;
        }
        let is_bound = |(from, held): (&u64, &Held)| [*from, from + u64::from(held.length)].contains(&position);
        if self.held.iter().any(is_bound)
            || self.fin.as_ref().is_some_and(|fin| (fin.0..=fin.0 + 1).contains(&position))
        {
            self.acknowledged(ack, emit);
        } else {
            self.doubted = position;
        }
    }

    /// True if the receiver has all before a position at which the sender goes on.
    fn has_before(&self, position: u64) -> bool {
        position > self.next && (self.acked >= position || self.doubted == position)
    }

    /// The peer may have acknowledged the FIN, and with it all before it.
    #[cold]
    fn end_acknowledged(&mut self, emit: &mut impl FnMut(Event<'_>)) {
        let Some((fin, at)) = self.fin.as_deref().copied() else { return };
        if self.acked > fin && self.next < fin {
            self.skip_to(fin, true, emit);
        }
        self.close_if_done(at, emit);
    }

    /// No more bytes follow the byte before `seq`, the sequence number of the FIN.
    pub fn fin(&mut self, at: At, seq: u32, emit: &mut impl FnMut(Event<'_>)) {
        if !self.started {
            self.start(seq);
        }
        let position = self.position(seq);
        // an end that says it once more, behind its FIN, ends where it did
        let position = self.fin.get_or_insert_with(|| Box::new((position, at))).0;
        self.is_fin_inferred = false;
        if self.has_before(position) && self.held.is_empty() {
            // the receiver has the bytes before: they will not come again
            self.last = self.last.max(at.time);
            self.skip_to(position, true, emit);
        }
        self.close_if_done(at, emit);
    }

    /// The peer ends its own direction, and has acknowledged one number more than there were bytes: that of a FIN, which
    /// the capture has later, or not at all.
    pub fn infer_fin(&mut self, at: At, emit: &mut impl FnMut(Event<'_>)) {
        if self.started && self.fin.is_none() && self.acked == self.next + 1 && self.held.is_empty() {
            self.fin = Some(Box::new((self.next, at)));
            self.is_fin_inferred = true;
            self.close_if_done(at, emit);
        }
    }

    /// True if the FIN was not captured, though its peer acknowledged it.
    pub fn is_fin_unseen(&self) -> bool {
        self.is_fin_inferred
    }

    /// True if the sender went on, or ended, behind bytes that did not come, or if an acknowledgment that may be damaged
    /// says so: what it sent is not known to its end.
    pub fn is_open(&self) -> bool {
        let is_doubted = self.doubted > self.next && self.doubted - self.next < DOUBTED_AHEAD;
        !self.held.is_empty() || self.fin.as_ref().is_some_and(|fin| fin.0 > self.next) || is_doubted
    }

    fn close_if_done(&mut self, at: At, emit: &mut impl FnMut(Event<'_>)) {
        if !self.closed && self.fin.as_ref().is_some_and(|fin| self.next >= fin.0) {
            self.closed = true;
            emit(Event::Closed { at });
        }
    }

    /// A segment of `length` bytes on the wire, of which the capture kept `bytes`. At most `limit` bytes are held back.
    #[inline]
    pub fn data(
        &mut self,
        at: At,
        seq: u32,
        bytes: &[u8],
        length: u32,
        limit: usize,
        emit: &mut impl FnMut(Event<'_>),
    ) {
        if length == 0 {
            return;
        }
        if !self.started {
            self.start(seq);
        }
        let bytes = &bytes[..bytes.len().min(length as usize)];
        if self.skips {
            self.goes_on(at);
        }
        self.last = at.time;
        self.counts.segments += 1;
        if seq == self.next as u32 && self.held.is_empty() && self.highest == self.next {
            // the fast path: exactly the next bytes
            let missing = length - bytes.len() as u32;
            self.next += u64::from(length);
            self.highest = self.next;
            self.counts.bytes += bytes.len() as u64;
            self.counts.cut_bytes += u64::from(missing);
            emit(Event::Piece(Piece { bytes, missing, in_frame: true }));
        } else {
            self.data_slow(at, seq, bytes, length, limit, emit);
        }
        if self.fin.is_some() {
            self.close_if_done(at, emit);
        }
    }

    fn data_slow(
        &mut self,
        at: At,
        seq: u32,
        bytes: &[u8],
        length: u32,
        limit: usize,
        emit: &mut impl FnMut(Event<'_>),
    ) {
        let pos = self.position(seq);
        let end = pos + u64::from(length);
        if length == 1 && end == self.next {
            self.counts.keepalives += 1;
            return;
        }
        if end <= self.origin && !self.from_syn {
            // from before the capture's first: it may have gone first, or go again
            return;
        }
        let had_gap = !self.held.is_empty();
        if self.has_before(pos) {
            // the receiver has the bytes before: they will not come again
            self.acked = self.acked.max(pos);
            self.skip_acknowledged(emit);
            if pos > self.next {
                self.skip_to(pos, true, emit);
            }
        }
        let behind = pos < self.highest;
        self.highest = self.highest.max(end);
        let new =
            if pos <= self.next { self.deliver(pos, bytes, length, emit) } else { self.hold(pos, bytes, length, emit) };
        if behind && new && had_gap && at.time.saturating_sub(self.gap_since) < REORDERED_WITHIN_NS {
            self.counts.out_of_order += 1;
            emit(Event::OutOfOrder { bytes: length });
        } else if behind {
            self.counts.retransmitted += 1;
            self.counts.retransmitted_bytes += u64::from(length);
            emit(Event::Retransmission { bytes: length, filled: new });
        }
        if !had_gap {
            self.gap_since = at.time;
            self.is_asked = false;
        }
        if pos > self.next && new {
            emit(Event::Held { missing: u32::try_from(pos - self.next).unwrap_or(u32::MAX) });
        }
        if !self.held.is_empty() {
            self.skip_acknowledged(emit);
        }
        while self.held_bytes > limit {
            self.skip_first(emit);
        }
    }

    /// Bytes that are missing before the first segment that is held back, and since when, in ns; and true if the
    /// receiver has since then acknowledged what is before them, and no more.
    pub fn open_gap(&self) -> Option<(u32, i64, bool)> {
        let (first, _) = self.held.first_key_value()?;
        let count = u32::try_from(first.saturating_sub(self.next)).unwrap_or(u32::MAX);
        Some((count, self.gap_since, self.is_asked && self.acked == self.next))
    }

    /// Emits all that is held back, with the gaps before it.
    pub fn release(&mut self, emit: &mut impl FnMut(Event<'_>)) {
        while !self.held.is_empty() {
            self.skip_first(emit);
        }
    }

    fn skip_first(&mut self, emit: &mut impl FnMut(Event<'_>)) {
        if let Some((&first, _)) = self.held.first_key_value() {
            self.skip_to(first, false, emit);
            self.drain(0, &[], emit);
        }
    }

    /// Emits the new bytes of a segment that begins at or before `next`. Returns true if there were any.
    fn deliver(&mut self, pos: u64, bytes: &[u8], length: u32, emit: &mut impl FnMut(Event<'_>)) -> bool {
        let end = pos + u64::from(length);
        let from = self.next;
        while self.next < end {
            let until = self.held.first_key_value().map_or(end, |(p, _)| end.min(*p));
            let cut = |at: u64| usize::try_from(at - pos).map_or(bytes.len(), |n| n.min(bytes.len()));
            let part = &bytes[cut(self.next)..cut(until)];
            self.emit_piece(part, until, true, emit);
            self.drain(pos, bytes, emit);
        }
        self.next > from
    }

    /// Emits `part`, after which the stream goes on at `until`: behind `next`, so that there is something to say.
    fn emit_piece(&mut self, part: &[u8], until: u64, in_frame: bool, emit: &mut impl FnMut(Event<'_>)) {
        let missing = (until - self.next) as u32 - part.len() as u32;
        self.next = until;
        self.counts.bytes += part.len() as u64;
        self.counts.cut_bytes += u64::from(missing);
        emit(Event::Piece(Piece { bytes: part, missing, in_frame }));
    }

    /// Emits the held bytes that are next. The segment that opened the way lies at `pos`, to compare with.
    fn drain(&mut self, pos: u64, bytes: &[u8], emit: &mut impl FnMut(Event<'_>)) {
        while let Some(first) = self.held.first_entry() {
            let p = *first.key();
            if p > self.next {
                break;
            }
            let held = first.remove();
            self.held_bytes -= held.bytes.len() + HELD_OVERHEAD;
            self.compare(p, &held.bytes, pos, bytes, emit);
            let end = p + u64::from(held.length);
            if end > self.next {
                let part = &held.bytes[((self.next - p) as usize).min(held.bytes.len())..];
                self.emit_piece(part, end, false, emit);
            }
        }
    }

    /// Keeps the bytes of a segment that are not held yet; it begins beyond `next`. Returns true if any were kept.
    fn hold(&mut self, pos: u64, bytes: &[u8], length: u32, emit: &mut impl FnMut(Event<'_>)) -> bool {
        let end = pos + u64::from(length);
        let (mut at, mut kept) = (pos, false);
        while at < end {
            if let Some((&p, held)) = self.held.range(..=at).next_back() {
                let held_end = p + u64::from(held.length);
                if held_end > at {
                    let differ = differ(p, &held.bytes, pos, bytes);
                    self.conflict(differ, emit);
                    at = held_end;
                    continue;
                }
            }
            let until = self.held.range(at..).next().map_or(end, |(p, _)| end.min(*p));
            let cut = |at: u64| ((at - pos) as usize).min(bytes.len());
            let part = &bytes[cut(at)..cut(until)];
            self.held_bytes += part.len() + HELD_OVERHEAD;
            self.held.insert(at, Held { bytes: part.to_vec(), length: (until - at) as u32 });
            (at, kept) = (until, true);
        }
        kept
    }

    fn compare(&mut self, p: u64, a: &[u8], q: u64, b: &[u8], emit: &mut impl FnMut(Event<'_>)) {
        let differ = differ(p, a, q, b);
        self.conflict(differ, emit);
    }

    fn conflict(&mut self, differ: Option<u32>, emit: &mut impl FnMut(Event<'_>)) {
        if let Some(bytes) = differ {
            self.counts.conflicts += 1;
            emit(Event::Conflict { bytes });
        }
    }

    /// Skips gaps that the peer has acknowledged.
    fn skip_acknowledged(&mut self, emit: &mut impl FnMut(Event<'_>)) {
        while let Some((&first, _)) = self.held.first_key_value() {
            if self.acked < first {
                break;
            }
            self.skip_to(first, true, emit);
            self.drain(0, &[], emit);
        }
    }

    fn skip_to(&mut self, to: u64, receiver_had_them: bool, emit: &mut impl FnMut(Event<'_>)) {
        let count = u32::try_from(to - self.next).unwrap_or(u32::MAX);
        if receiver_had_them {
            if self.skipped.len() >= SKIPPED_MAX {
                self.skipped.pop_front();
            }
            self.skipped.push_back((self.next, to, self.last));
        }
        self.next = to;
        self.counts.gaps += 1;
        self.counts.gap_bytes += u64::from(count);
        emit(Event::Gap { count, receiver_had_them });
        emit(Event::Piece(Piece { bytes: &[], missing: count, in_frame: false }));
    }
}

/// Number of bytes that two runs at these positions have in common, if those bytes differ.
fn differ(p: u64, a: &[u8], q: u64, b: &[u8]) -> Option<u32> {
    let start = p.max(q);
    let end = (p + a.len() as u64).min(q + b.len() as u64);
    if start >= end {
        return None;
    }
    let part =
        |from: u64, run: &[u8]| -> (usize, usize) { ((start - from) as usize, ((end - from) as usize).min(run.len())) };
    let ((a0, a1), (b0, b1)) = (part(p, a), part(q, b));
    (a[a0..a1] != b[b0..b1]).then_some((end - start) as u32)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::VecDeque;
    use std::string::{String, ToString};
    use std::vec;

    /// A conversation: segments of one side, acknowledgments of the other, and the events of the stream.
    struct Tap {
        stream: Stream,
        received: String,
        events: VecDeque<String>,
        now: i64,
        limit: usize,
    }

    impl Tap {
        fn new(isn: u32) -> Self {
            let mut tap = Self {
                stream: Stream::default(),
                received: String::new(),
                events: VecDeque::new(),
                now: 0,
                limit: 4096,
            };
            tap.stream.syn(isn);
            tap
        }

        fn late() -> Self {
            Self { stream: Stream::default(), received: String::new(), events: VecDeque::new(), now: 0, limit: 4096 }
        }

        fn with(&mut self, f: impl FnOnce(&mut Stream, At, usize, &mut dyn FnMut(Event<'_>))) {
            self.now += 10_000_000;
            let (received, events) = (&mut self.received, &mut self.events);
            f(&mut self.stream, At { frame: 1, time: self.now }, self.limit, &mut |e| match e {
                Event::Piece(p) => {
                    assert!(!p.bytes.is_empty() || p.missing > 0, "a piece of nothing");
                    received.push_str(core::str::from_utf8(p.bytes).unwrap());
                    (0..p.missing.min(20)).for_each(|_| received.push('_'));
                }
                Event::Held { .. } => {}
                e => events.push_back(std::format!("{e:?}").split(&[' ', '{'][..]).next().unwrap().to_string()),
            });
        }

        fn send(&mut self, seq: u32, text: &str) -> &mut Self {
            self.with(|s, at, limit, mut emit| s.data(at, seq, text.as_bytes(), text.len() as u32, limit, &mut emit));
            self
        }

        fn ack(&mut self, ack: u32) -> &mut Self {
            self.with(|s, _, _, mut emit| s.acknowledged(ack, &mut emit));
            self
        }

        fn expect(&mut self, received: &str, events: &[&str]) -> &mut Self {
            assert_eq!(self.received, received);
            assert_eq!(self.events.drain(..).collect::<Vec<_>>(), events);
            self
        }
    }

    #[test]
    fn in_order_across_the_wrap() {
        Tap::new(u32::MAX - 3).send(u32::MAX - 2, "ab").send(u32::MAX, "cdef").send(3, "gh").expect("abcdefgh", &[]);
    }

    #[test]
    fn a_lost_segment_is_awaited_and_its_retransmission_reported() {
        Tap::new(99)
            .send(100, "ab")
            .send(104, "ef")
            .ack(102)
            .expect("ab", &[])
            .send(102, "cd")
            .expect("abcdef", &["Retransmission"]);
    }

    #[test]
    fn neighbours_that_swapped_places_are_no_retransmission() {
        let mut tap = Tap::new(99);
        tap.send(102, "cd");
        tap.now -= 10_000_000;
        tap.send(100, "ab").expect("abcd", &["OutOfOrder"]);
    }

    #[test]
    fn what_the_receiver_acknowledged_the_capture_lost() {
        Tap::new(99)
            .send(100, "ab")
            .send(104, "ef")
            .expect("ab", &[])
            .ack(106)
            .expect("ab__ef", &["Gap"])
            .send(106, "gh")
            .expect("ab__efgh", &[]);
        Tap::new(99).send(100, "ab").ack(104).expect("ab", &[]).send(104, "ef").expect("ab__ef", &["Gap"]);
    }

    #[test]
    fn the_acknowledgment_may_be_captured_first() {
        Tap::new(99).send(100, "ab").ack(104).send(102, "cd").expect("abcd", &[]);
    }

    #[test]
    fn overlaps_are_reported_once_and_the_first_copy_counts() {
        Tap::new(99)
            .send(100, "abcd")
            .send(102, "cdef")
            .expect("abcdef", &["Retransmission"])
            .send(100, "abcdef")
            .expect("abcdef", &["Retransmission"]);
        Tap::new(99)
            .send(102, "cd")
            .send(106, "gh")
            .send(100, "abXdefXhij")
            .expect("abcdefghij", &["Conflict", "Conflict", "Retransmission"]);
    }

    #[test]
    fn keepalives_and_late_starts() {
        let mut tap = Tap::late();
        // from before the first segment: it is unknown if it had gone before
        tap.send(500, "ab").send(501, "b").send(400, "old").expect("ab", &[]);
        assert_eq!(tap.stream.counts().keepalives, 1);
        tap.send(502, "c").expect("abc", &[]);
    }

    #[test]
    fn what_is_held_has_a_limit() {
        let mut tap = Tap::new(0);
        for n in 0..100 {
            tap.send(10 + 100 * n, &"x".repeat(100));
            assert!(tap.stream.held() <= 4096);
        }
        assert_eq!(tap.stream.counts().gaps, 1);
        assert!(tap.received.starts_with("_________xxx"));
    }

    #[test]
    fn cut_segments_leave_holes_also_when_held() {
        let mut tap = Tap::new(99);
        tap.with(|s, at, limit, mut emit| s.data(at, 104, b"e", 2, limit, &mut emit));
        tap.with(|s, at, limit, mut emit| s.data(at, 100, b"abc", 4, limit, &mut emit));
        tap.expect("abc_e_", &["Retransmission"]);
        assert_eq!(tap.stream.counts().cut_bytes, 2);
    }

    #[test]
    fn a_fin_closes_when_all_came() {
        let mut tap = Tap::new(99);
        tap.send(102, "cd").with(|s, at, _, mut emit| s.fin(at, 104, &mut emit));
        tap.expect("", &[]).send(100, "ab").expect("abcd", &["Retransmission", "Closed"]);
    }

    #[test]
    fn a_fin_that_is_acknowledged_closes_though_bytes_before_it_were_not_captured() {
        let closed = |ack: u32| {
            let mut tap = Tap::new(99);
            tap.send(100, "ab").with(|s, at, _, mut emit| s.fin(at, 104, &mut emit));
            tap.ack(ack);
            (tap.received.clone(), tap.events.drain(..).collect::<Vec<_>>(), tap.stream.is_unseen())
        };
        // all but the FIN itself was received: it may come again, with the bytes before it
        assert_eq!(closed(104), ("ab".into(), vec![], true));
        assert_eq!(closed(105), ("ab__".into(), vec!["Gap".into(), "Closed".into()], false));
    }

    #[test]
    fn a_fin_ahead_of_what_came_shows_what_is_missing() {
        // acknowledged before, it will not come again
        let ended = |ack: u32| {
            let mut tap = Tap::new(99);
            tap.send(100, "ab").ack(ack).with(|s, at, _, mut emit| s.fin(at, 104, &mut emit));
            (tap.received.clone(), tap.events.len(), tap.stream.is_open())
        };
        assert_eq!([ended(103), ended(104)], [("ab".into(), 0, true), ("ab__".into(), 2, false)]);
        let mut tap = Tap::new(99);
        tap.send(100, "ab").send(106, "gh").ack(104).with(|s, at, _, mut emit| s.fin(at, 104, &mut emit));
        tap.expect("ab", &[]);
        assert!(tap.stream.is_open());
        let mut tap = Tap::new(99);
        assert!(!tap.send(100, "ab").stream.is_open());
        tap.with(|s, at, _, mut emit| s.fin(at, 102, &mut emit));
        assert!(!tap.stream.is_open() && !tap.stream.is_fin_unseen());
    }

    #[test]
    fn a_second_fin_behind_the_first_shows_nothing() {
        let mut tap = Tap::new(99);
        tap.send(100, "ab").with(|s, at, _, mut emit| s.fin(at, 102, &mut emit));
        tap.ack(103).with(|s, at, _, mut emit| s.fin(at, 103, &mut emit));
        assert_eq!((tap.stream.is_open(), tap.stream.counts().gaps), (false, 0));
    }

    #[test]
    fn what_a_fin_shows_to_be_missing_may_come_behind_it() {
        let found = |ns: i64| {
            let mut tap = Tap::new(99);
            tap.send(100, "ab").ack(104).with(|s, at, _, mut emit| s.fin(at, 104, &mut emit));
            let fin = tap.now;
            tap.stream.found(At { frame: 2, time: fin + ns }, 102, 2)
        };
        assert_eq!([found(REORDERED_WITHIN_NS), found(REORDERED_WITHIN_NS + 1)], [true, false]);
    }

    #[test]
    fn a_fin_that_comes_behind_its_acknowledgment_was_captured() {
        let mut tap = Tap::new(99);
        tap.send(100, "ab").ack(103).with(|s, at, _, mut emit| s.infer_fin(at, &mut emit));
        assert!(tap.stream.is_fin_unseen());
        tap.with(|s, at, _, mut emit| s.fin(at, 102, &mut emit));
        assert!(!tap.stream.is_fin_unseen());
    }

    #[test]
    fn an_acknowledgment_that_may_be_damaged_counts_where_its_sender_goes_on() {
        let perhaps = |tap: &mut Tap, ack: u32| tap.with(|s, _, _, mut emit| s.acknowledged_perhaps(ack, &mut emit));
        let before = |ack: u32| {
            let mut tap = Tap::new(99);
            perhaps(tap.send(100, "ab"), ack);
            (tap.stream.is_open(), tap.send(104, "ef").received.clone())
        };
        assert_eq!(
            [101, 102, 103, 104, 105].map(before),
            [(false, "ab"), (false, "ab"), (true, "ab"), (true, "ab__ef"), (true, "ab")].map(|(o, s)| (o, s.into()))
        );
        let far = 102 + DOUBTED_AHEAD as u32;
        assert_eq!([far - 1, far].map(|ack| before(ack).0), [true, false], "it is certainly damaged");
        let behind = |ack: u32| {
            let mut tap = Tap::new(99);
            perhaps(tap.send(100, "ab").send(104, "ef"), ack);
            tap.received.clone()
        };
        assert_eq!([103, 104, 105, 106, 107].map(behind), ["ab", "ab__ef", "ab", "ab__ef", "ab"]);
        let ended = |ack: u32| {
            let mut tap = Tap::new(99);
            perhaps(tap.send(100, "ab"), ack);
            tap.with(|s, at, _, mut emit| s.fin(at, 104, &mut emit));
            tap.received.clone()
        };
        assert_eq!([103, 104, 105].map(ended), ["ab", "ab__", "ab"]);
        let beyond_held = |seq: u32| {
            let mut tap = Tap::new(99);
            perhaps(tap.send(100, "ab").send(104, "ef"), seq);
            tap.send(seq, "xy").received.clone()
        };
        assert_eq!([103, 105, 107, 108].map(beyond_held), ["ab_xef", "ab__efy", "ab__ef_xy", "ab__ef__xy"]);
        let closed = |ack: u32| {
            let mut tap = Tap::new(99);
            tap.send(100, "ab").with(|s, at, _, mut emit| s.fin(at, 104, &mut emit));
            perhaps(&mut tap, ack);
            tap.received.clone()
        };
        assert_eq!([103, 104, 105, 106].map(closed), ["ab", "ab", "ab__", "ab"]);
    }

    #[test]
    fn who_acknowledges_what_is_before_a_gap_asks_for_it() {
        let asked = |before: u32, after: u32| {
            let mut tap = Tap::new(99);
            tap.send(100, "ab").ack(before).send(104, "ef").ack(after);
            tap.stream.open_gap().map(|(.., is_asked)| is_asked)
        };
        assert_eq!([asked(102, 101), asked(102, 102), asked(102, 103)], [Some(false), Some(true), Some(false)]);
        // of one gap, not of the next
        let mut tap = Tap::new(99);
        tap.send(100, "ab").send(104, "ef").ack(102).send(102, "cd").send(108, "ij");
        assert_eq!(tap.stream.open_gap().map(|(.., is_asked)| is_asked), Some(false));
    }

    #[test]
    fn a_fin_that_was_not_captured_shows_in_its_acknowledgment() {
        let inferred = |ack: u32| {
            let mut tap = Tap::new(99);
            tap.send(100, "ab").ack(ack).with(|s, at, _, mut emit| s.infer_fin(at, &mut emit));
            tap.events.len()
        };
        assert_eq!([inferred(102), inferred(103), inferred(104)], [0, 1, 0]);
    }

    #[test]
    fn what_was_acknowledged_and_not_seen() {
        let unseen = |ack: u32, fin: bool| {
            let mut tap = Tap::new(99);
            tap.send(100, "ab");
            if fin {
                tap.with(|s, at, _, mut emit| s.fin(at, 102, &mut emit));
            }
            tap.ack(ack).stream.is_unseen()
        };
        assert_eq!([unseen(101, false), unseen(102, false), unseen(103, false)], [false, false, true]);
        assert_eq!([unseen(103, true), unseen(104, true)], [false, true], "a FIN counts as a byte");
        assert!(!Stream::default().is_unseen());
    }

    #[test]
    fn a_syn_behind_its_data_and_that_of_another_connection() {
        let mut tap = Tap::late();
        assert!(!tap.stream.is_late_syn(999) && !tap.stream.is_other_syn(999), "nothing was seen");
        tap.send(100_000, "ab");
        let syn = |back: u32| (tap.stream.is_late_syn(99_999 - back), tap.stream.is_other_syn(99_999 - back));
        assert_eq!(
            [syn(0), syn(1), syn(LATE_SYN - 1), syn(LATE_SYN)],
            [(true, false), (true, false), (true, false), (false, true)]
        );
        assert!(tap.stream.is_other_syn(100_000));
        let seen = Tap::new(99).stream;
        assert_eq!(
            [98, 99, 100].map(|seq| (seen.is_late_syn(seq), seen.is_other_syn(seq))),
            [(false, true), (false, false), (false, true)]
        );
    }

    #[test]
    fn segments_behind_their_acknowledgment() {
        let mut tap = Tap::new(99);
        assert!(!Stream::default().is_misplaced(100, 1));
        tap.ack(104);
        let told = [(100, 4), (100, 5), (101, 3), (99, 1)].map(|(seq, length)| tap.stream.is_misplaced(seq, length));
        assert_eq!(told, [true, false, false, false]);
        // those that were given up
        let mut tap = Tap::new(99);
        tap.send(100, "ab").send(104, "ef").ack(106);
        let told = [(102, 2), (102, 1), (103, 1), (102, 3), (101, 2), (101, 1), (104, 1)]
            .map(|(seq, length)| tap.stream.is_misplaced(seq, length));
        assert_eq!(told, [true, true, true, false, false, false, false]);
    }

    #[test]
    fn segments_that_were_given_up_come_once() {
        let mut tap = Tap::new(99);
        tap.send(110, "kl").ack(112).send(120, "uv").ack(122);
        let mut found = |ns: i64, seq: u32, length: u32| tap.stream.found(At { frame: 2, time: ns }, seq, length);
        // each stretch is known, and what came of it is not expected again
        let first = [(104, 2), (104, 2), (103, 2), (100, 4), (106, 4), (108, 2), (110, 2)];
        assert_eq!(
            first.map(|(seq, length)| found(10_000_001, seq, length)),
            [true, false, false, true, true, false, false]
        );
        let late = [REORDERED_WITHIN_NS + 1, REORDERED_WITHIN_NS, 0];
        assert_eq!(late.map(|ns| found(30_000_000 + ns, 112, 8)), [false, true, false]);
        assert!(tap.stream.skipped.is_empty());
        // the oldest are forgotten
        for n in 0..=SKIPPED_MAX as u32 {
            tap.send(124 + 4 * n, "ab").ack(126 + 4 * n);
        }
        let kept = tap.stream.skipped.iter().map(|(from, to, _)| (*from as u32, *to as u32));
        assert_eq!((kept.clone().count(), kept.min()), (SKIPPED_MAX, Some((126, 128))));
    }

    #[test]
    fn the_first_segment_behind_an_acknowledgment_may_be_one_that_it_answers() {
        // acknowledged long after the last segment, the missing one stands behind the acknowledgment
        let found = |segments: &[(i64, u32)]| {
            let mut tap = Tap::new(99);
            tap.send(100, "ab").send(106, "gh").ack(108);
            let last = tap.stream.last;
            let times = segments.iter();
            times.map(|(ns, seq)| tap.stream.found(At { frame: 2, time: last + ns }, *seq, 2)).collect::<Vec<_>>()
        };
        assert_eq!(found(&[(TIMEOUT_LEAST - 1, 102)]), [true]);
        assert_eq!(found(&[(TIMEOUT_LEAST, 102)]), [false]);
        // others stand near to it
        let second = |ns: i64| found(&[(TIMEOUT_LEAST / 2, 102), (TIMEOUT_LEAST / 2 + ns, 104)]);
        assert_eq!(
            [second(REORDERED_WITHIN_NS), second(REORDERED_WITHIN_NS + 1)],
            [vec![true, true], vec![true, false]]
        );
        // and what was sent after the acknowledgment shows how much later it is
        let after = |ns: i64| {
            let mut tap = Tap::new(99);
            tap.send(100, "ab").send(104, "ef").ack(106).send(106, "gh");
            let last = tap.stream.last;
            tap.stream.found(At { frame: 2, time: last + ns }, 102, 2)
        };
        assert_eq!([after(REORDERED_WITHIN_NS), after(REORDERED_WITHIN_NS + 1)], [true, false]);
    }

    #[test]
    fn how_late_a_segment_is_out_of_order() {
        let late = |ns: i64| {
            let mut tap = Tap::new(99);
            tap.send(102, "cd");
            tap.now += ns - 10_000_000;
            tap.send(100, "ab");
            (tap.stream.counts().out_of_order, tap.stream.counts().retransmitted)
        };
        assert_eq!([late(REORDERED_WITHIN_NS - 1), late(REORDERED_WITHIN_NS)], [(1, 0), (0, 1)]);
        // since the first of those that wait
        let mut tap = Tap::new(99);
        tap.send(102, "cd");
        tap.now += REORDERED_WITHIN_NS / 2 - 10_000_000;
        tap.send(104, "ef");
        tap.now += REORDERED_WITHIN_NS / 2 - 10_000_000;
        tap.send(100, "ab").expect("abcdef", &["Retransmission"]);
    }

    #[test]
    fn what_is_no_new_segment() {
        let counts = |seq: u32, text: &str| {
            let mut tap = Tap::new(99);
            tap.send(100, "ab").send(seq, text);
            (tap.stream.counts().keepalives, tap.stream.counts().retransmitted)
        };
        // a byte before the next is a probe
        assert_eq!(
            [counts(101, "b"), counts(100, "a"), counts(100, "ab"), counts(102, "c")],
            [(1, 0), (0, 1), (0, 1), (0, 0)]
        );
        // from before the capture's first
        let before = |seq: u32, text: &str| {
            let mut tap = Tap::late();
            tap.send(500, "ab").send(seq, text);
            (tap.stream.counts().segments, tap.stream.counts().retransmitted)
        };
        assert_eq!(
            [before(497, "xx"), before(498, "xx"), before(499, "xa"), before(500, "ab")],
            [(2, 0), (2, 0), (2, 1), (2, 1)]
        );
        let mut seen = Tap::new(499);
        seen.send(500, "ab").send(498, "xx");
        assert_eq!(seen.stream.counts().retransmitted, 1, "the first is known");
    }

    #[test]
    fn what_waits_for_an_acknowledgment_or_for_room() {
        let sent = |ack: u32| {
            let mut tap = Tap::new(99);
            tap.send(100, "ab").ack(ack).send(104, "ef");
            (tap.received.clone(), tap.stream.held() > 0)
        };
        assert_eq!([sent(103), sent(104)], [("ab".to_string(), true), ("ab__ef".to_string(), false)]);
        let acked = |ack: u32| {
            let mut tap = Tap::new(99);
            tap.send(104, "ef").ack(ack);
            tap.stream.held() > 0
        };
        assert_eq!([acked(103), acked(104), acked(105)], [true, false, false]);
        let room = |limit: usize| {
            let mut tap = Tap::new(99);
            tap.limit = limit;
            tap.send(102, "cd").stream.held()
        };
        assert_eq!([room(2 + HELD_OVERHEAD), room(1 + HELD_OVERHEAD)], [2 + HELD_OVERHEAD, 0]);
    }

    #[test]
    fn what_follows_on_acknowledged_bytes_does_not_wait() {
        let waits = |ack: u32| {
            let (mut stream, mut held) = (Stream::default(), 0);
            stream.syn(99);
            stream.acknowledged(ack, &mut |_| {});
            stream.data(At::default(), 104, b"ef", 2, 4096, &mut |event| {
                held += usize::from(matches!(event, Event::Held { .. }))
            });
            held
        };
        assert_eq!([103, 104, 105].map(waits), [1, 0, 0]);
    }

    #[test]
    fn bytes_that_are_cut_off_altogether_are_missing_in_their_place() {
        let mut tap = Tap::new(99);
        tap.with(|s, at, limit, mut emit| s.data(at, 102, b"", 2, limit, &mut emit));
        tap.send(100, "ab").send(104, "ef").expect("ab__ef", &["Retransmission"]);
    }

    #[test]
    fn bytes_in_common() {
        let of = |p: u64, a: &str, q: u64, b: &str| differ(p, a.as_bytes(), q, b.as_bytes());
        assert_eq!([of(0, "abcd", 4, "x"), of(4, "x", 0, "abcd"), of(0, "", 0, "x")], [None; 3]);
        assert_eq!([of(0, "abcd", 3, "dx"), of(0, "abcd", 3, "xd"), of(3, "xd", 0, "abcd")], [None, Some(1), Some(1)]);
        assert_eq!([of(1, "bcd", 0, "abcx"), of(1, "bcd", 0, "xbcd")], [Some(3), None]);
    }

    proptest! {
        /// Any cutting into segments, duplication and reordering gives the same bytes.
        #[test]
        fn the_order_of_arrival_does_not_matter(
            isn: u32,
            cuts in proptest::collection::vec(1..50usize, 1..40),
            swaps in proptest::collection::vec((0..80usize, 0..80usize), 0..60),
            widen in proptest::collection::vec(0..30usize, 80),
        ) {
            let total: usize = cuts.iter().sum();
            let text: String = (0..total).map(|n| char::from(b'a' + (n * 7 % 26) as u8)).collect();
            let mut segments = Vec::new();
            let mut at = 0;
            for c in &cuts {
                segments.push((at, at + c));
                at += c;
            }
            segments.extend_from_within(..);
            for (n, w) in widen.iter().enumerate().take(segments.len()) {
                segments[n].1 = (segments[n].1 + w).min(total);
            }
            for (a, b) in swaps {
                let n = segments.len();
                segments.swap(a % n, b % n);
            }
            let mut tap = Tap::new(isn);
            tap.limit = 1 << 20;
            for (from, to) in segments {
                tap.send(isn.wrapping_add(1).wrapping_add(from as u32), &text[from..to]);
            }
            prop_assert_eq!(&tap.received, &text);
            prop_assert_eq!(tap.stream.held(), 0);
        }

        #[test]
        fn arbitrary_segments_never_panic_and_stay_bounded(
            segments in proptest::collection::vec((any::<u32>(), 0..40usize, 0..60u32, 0..8u8, any::<u16>()), 0..120),
            near_by in prop_oneof![Just(1u32 << 3), Just(1 << 6), Just(1 << 16)],
        ) {
            let mut tap = Tap::late();
            let text = "x".repeat(40);
            for (seq, len, length, kind, near) in segments {
                let near = tap.stream.next_seq().wrapping_add(u32::from(near) % near_by);
                let seq = if kind & 1 == 0 { near } else { seq };
                tap.with(|s, at, limit, mut emit| match kind >> 1 {
                    1 => s.acknowledged(seq, &mut emit),
                    2 => s.acknowledged_perhaps(seq, &mut emit),
                    3 if len == 0 => s.fin(at, seq, &mut emit),
                    3 if len == 1 => s.infer_fin(at, &mut emit),
                    _ => s.data(at, seq, &text.as_bytes()[..len], length, limit, &mut emit),
                });
                prop_assert!(tap.stream.held() <= tap.limit);
                prop_assert!(tap.stream.held.keys().all(|held| *held > tap.stream.next), "what is next is not held");
            }
        }
    }
}
