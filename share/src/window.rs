//! Window of frames whose bytes may still be identified: a reassembled message identifies bytes of earlier frames. The
//! oldest frames leave when the window is full.
//!
//! ```text
//!   leaving ◀─ [ closed: checksums need a later frame ] [ open: bytes may still be identified ] ◀─ new
//! ```
//!
//! [`block`](crate::block) describes what is kept of a frame. Frames are grouped in batches, which are reused.

use crate::batch::{Batch, BatchFrame, Crc};
use crate::block::{Blank, Block, Known, SCRATCH, Slot, Span, With};
use crate::shape::{Notes, Plan};
use crate::sums::{self, Fix};
use rdmascope_dissector::field::Def;
use rdmascope_dissector::wire::iwarp::mpa;
use std::collections::{BTreeMap, VecDeque};
use std::ops::Range;

/// Knowledge about a byte that its copy gives.
enum FromCopy {
    Kept,
    Zeros,
    Bytes(Vec<u8>),
}

/// The frames that have not left yet.
#[derive(Debug)]
pub(crate) struct Window<M> {
    /// The batches, oldest first.
    batches: VecDeque<Batch<M>>,
    /// Number of closed batches at the front: nothing more becomes known about their frames.
    closed: usize,
    /// Number of the next frame, and of the oldest open frame.
    next: u64,
    oldest: u64,
    /// Bytes of open frames, and their limit.
    bytes: usize,
    limit: usize,
    /// CRCs over several frames, by the last frame that they need.
    crcs: BTreeMap<u64, Vec<Crc>>,
    /// Scratch buffers, outermost first.
    scratch: Vec<(Block, Slot)>,
    /// Limit of bytes in a batch.
    batch_bytes: usize,
    /// Emptied batches, to be used again.
    spare: Vec<Batch<M>>,
}

/// Limit of frames in the window.
const FRAMES_MAX: u64 = 1 << 17;
/// Limit of emptied batches that are kept, and of buffers for new frames.
pub(crate) const SPARE_MAX: usize = 8;
/// Limit of bytes in a batch; a larger frame has a batch of its own.
const BATCH_MAX: usize = 1 << 22;

impl<M> Window<M> {
    pub(crate) fn new(limit: usize) -> Self {
        Self {
            batches: VecDeque::new(),
            closed: 0,
            next: 0,
            oldest: 0,
            bytes: 0,
            limit,
            crcs: BTreeMap::new(),
            scratch: Vec::new(),
            batch_bytes: (limit / 8).clamp(1, BATCH_MAX),
            spare: Vec::new(),
        }
    }

    /// Adds a frame, and returns its number.
    pub(crate) fn push(&mut self, meta: M, bytes: &[u8]) -> u64 {
        self.bytes += bytes.len();
        let has_room = |batch: &Batch<M>| batch.block.length() + bytes.len() <= self.batch_bytes;
        if self.batches.len() == self.closed || !self.batches.back().is_some_and(has_room) {
            let mut batch = self.spare.pop().unwrap_or_default();
            batch.begin(self.next, self.batches.back(), self.batch_bytes.max(bytes.len()));
            self.batches.push_back(batch);
        }
        if let Some(batch) = self.batches.back_mut() {
            batch.push(meta, bytes);
        }
        self.next += 1;
        self.next - 1
    }

    /// Number of the oldest frame that may still change.
    pub(crate) fn oldest(&self) -> u64 {
        self.oldest
    }

    /// Index of the batch that contains a frame.
    #[inline]
    fn batch(&self, frame: u64) -> Option<usize> {
        let last = self.batches.len().checked_sub(1)?;
        if self.batches[last].first <= frame {
            return (frame < self.next).then_some(last);
        }
        self.batches.partition_point(|batch| batch.first <= frame).checked_sub(1)
    }

    fn held(&mut self, frame: u64) -> Option<&mut BatchFrame<M>> {
        let at = self.batch(frame)?;
        self.batches[at].held_mut(frame)
    }

    /// The block and the record of a frame in the window.
    fn place(&self, frame: u64) -> Option<(&Block, &BatchFrame<M>)> {
        let batch = &self.batches[self.batch(frame)?];
        Some((&batch.block, batch.held(frame)?))
    }

    /// The block and the place of an open frame or a scratch buffer.
    fn open(&mut self, frame: u64) -> Option<(&mut Block, &mut Slot)> {
        if frame >= SCRATCH {
            return self.scratch.get_mut((frame - SCRATCH) as usize).map(|(block, slot)| (block, slot));
        }
        let at = self.batch(frame).filter(|_| frame >= self.oldest)?;
        self.batches[at].slot_mut(frame)
    }

    /// The block and the place of the newest frame.
    fn newest(&mut self) -> Option<(&mut Block, &mut Slot)> {
        let batch = self.batches.back_mut()?;
        batch.slot_mut(self.next.checked_sub(1)?)
    }

    fn is_open(&self, frame: u64) -> bool {
        (self.oldest..SCRATCH).contains(&frame)
    }

    /// Adds a scratch buffer, which [`Window::pop_scratch`] removes.
    pub(crate) fn push_scratch(&mut self, bytes: &[u8]) -> Span {
        let mut block = Block::default();
        let slot = block.add(bytes);
        self.scratch.push((block, slot));
        Span { frame: SCRATCH + self.scratch.len() as u64 - 1, at: 0, length: bytes.len() as u32 }
    }

    /// Removes the newest scratch buffer. Returns its new bytes, the same with zeros for every replaced byte, and the
    /// number of nonzero bytes that these zeros replace.
    pub(crate) fn pop_scratch(&mut self, blank: &mut impl Blank) -> (Vec<u8>, Vec<u8>, usize) {
        let Some((block, slot)) = self.scratch.pop() else { return Default::default() };
        let mut new = Vec::new();
        block.make(&slot, blank, &mut new);
        let mut flat = new.clone();
        let mut zeroed = 0;
        let known = block.known(&slot);
        for (_, byte) in flat.iter_mut().enumerate().filter(|(i, byte)| **byte != 0 && known.is_replaced(*i)) {
            *byte = 0;
            zeroed += 1;
        }
        (new, flat, zeroed)
    }

    /// The original bytes of a span.
    pub(crate) fn old(&self, span: Span) -> Option<&[u8]> {
        let (block, held) = self.place(span.frame)?;
        block.old(&held.slot).get(span.at as usize..)?.get(..span.length as usize)
    }

    /// Keeps these bytes: they identify nobody.
    #[inline]
    pub(crate) fn keep(&mut self, span: Span) {
        if let Some((block, slot)) = self.open(span.frame) {
            block.keep(slot, span.range(slot.length as usize));
        }
    }

    /// Keeps these bytes of the newest frame.
    #[inline]
    pub(crate) fn keep_newest(&mut self, at: usize, length: usize) {
        if let Some((block, slot)) = self.newest() {
            let end = slot.length as usize;
            block.keep(slot, at.min(end)..(at + length).min(end));
        }
    }

    /// Replaces bytes that were not replaced before. Returns true if there were any.
    pub(crate) fn replace(&mut self, span: Span, with: With<'_>) -> bool {
        self.open(span.frame).is_some_and(|(block, slot)| block.replace(slot, span.range(slot.length as usize), with))
    }

    /// Notes that these bytes lie inside a field which other fields describe.
    pub(crate) fn inside(&mut self, span: Span, def: Def) {
        if let Some((block, slot)) = self.open(span.frame) {
            block.inside(slot, span.at, span.at.saturating_add(span.length), def);
        }
    }

    /// Adds a checksum that is to be recomputed in a frame.
    pub(crate) fn fix(&mut self, frame: u64, fix: Fix) {
        if let Some((block, slot)) = self.open(frame) {
            block.fix(slot, fix);
        }
    }

    /// Everything known about the newest frame.
    pub(crate) fn notes_of_newest(&self) -> Notes {
        let newest = self.next.checked_sub(1).and_then(|frame| self.place(frame));
        newest.map_or_else(Notes::default, |(block, held)| block.notes(&held.slot))
    }

    /// Applies the plan of its shape to the newest frame.
    pub(crate) fn follow_plan(&mut self, plan: &Plan, is_good: bool) {
        if let Some((block, slot)) = self.newest() {
            block.follow(slot, plan, is_good);
        }
    }

    /// Notes that the decoder verified the invariant CRC of the newest frame, so it is recomputed.
    pub(crate) fn icrc_is_good(&mut self) {
        if let Some((block, slot)) = self.newest() {
            block.icrc_is_good(slot);
        }
    }

    /// Notes that two spans are copies of the same bytes: knowledge about one holds for the other.
    pub(crate) fn same(&mut self, a: Span, b: Span) {
        let (earlier, later) = if a.frame <= b.frame { (a, b) } else { (b, a) };
        if earlier.frame == later.frame || !self.is_open(earlier.frame) || !self.is_open(later.frame) {
            return;
        }
        if let Some(held) = self.held(earlier.frame) {
            held.same.push((earlier.at, later));
        }
        if let Some(held) = self.held(later.frame) {
            held.earlier.push((later.at, earlier));
        }
    }

    /// Copies of a span in open frames: offset within the span, and the copy. Later frames count up to `last`.
    fn elsewhere(&self, span: Span, last: u64) -> Vec<(usize, Span)> {
        let Some((_, held)) = self.place(span.frame) else { return Vec::new() };
        let all = held.earlier.iter().chain(held.same.iter().filter(|(_, there)| there.frame <= last));
        let open = all.filter(|(_, there)| self.is_open(there.frame));
        open.filter_map(|(at, there)| self.copy(span, *at, *there)).map(|(at, copy)| (at as usize, copy)).collect()
    }

    /// The part of `span` whose bytes from `at` on have a copy at `there`: offset within `span`, and the copy. `None`
    /// if the bytes differ, because one of the frames was damaged.
    fn copy(&self, span: Span, at: u32, there: Span) -> Option<(u32, Span)> {
        let (from, to) = (span.at.max(at), (span.at + span.length).min(at.saturating_add(there.length)));
        let length = to.checked_sub(from).filter(|length| *length > 0)?;
        let copy = Span { frame: there.frame, at: there.at + (from - at), length };
        (self.old(copy)? == self.old(Span { at: from, length, ..span })?).then_some((from - span.at, copy))
    }

    /// Adds an MPA CRC over the bytes `over`, stored at `at`.
    pub(crate) fn crc(&mut self, over: Vec<Span>, at: Vec<Span>) {
        let frames = || over.iter().chain(&at).map(|s| s.frame);
        let Some(last) = frames().max() else { return };
        if frames().any(|f| !self.is_open(f)) {
            return;
        }
        let (mut copies, mut done) = (Vec::new(), 0);
        for span in &at {
            copies.extend(self.elsewhere(*span, last).into_iter().map(|(n, copy)| (done + n, copy)));
            done += span.length as usize;
        }
        let crc = Crc { over, at, copies };
        for span in crc.spans() {
            if let Some(place) = self.batch(span.frame) {
                self.batches[place].waiting += 1;
            }
        }
        self.crcs.entry(last).or_default().push(crc);
    }

    /// Adds an MPA CRC that directly follows the bytes it covers, in the same frame.
    pub(crate) fn crc_behind(&mut self, over: Span) {
        let at = Span { at: over.at.saturating_add(over.length), length: mpa::CRC_LEN as u32, ..over };
        if !self.elsewhere(at, over.frame).is_empty() {
            return self.crc(vec![over], vec![at]);
        }
        if let Some((block, slot)) = self.open(over.frame) {
            block.crc(slot, over.at, over.at.saturating_add(over.length));
        }
    }

    /// Closes the oldest batches until the window is within its limits, or all of them `at_the_end`.
    pub(crate) fn close_oldest(&mut self, at_the_end: bool, blank: &mut impl Blank) {
        while self.closed < self.batches.len()
            && (at_the_end || self.bytes > self.limit || self.next - self.oldest > FRAMES_MAX)
        {
            self.closed += 1;
            let end = self.batches.get(self.closed).map_or(self.next, |next| next.first);
            while self.oldest < end {
                self.finish_one(blank);
            }
        }
    }

    /// Removes the oldest batch if it is closed and no checksum in it needs a later frame.
    pub(crate) fn take(&mut self) -> Option<Batch<M>> {
        if self.closed == 0 || self.batches.front().is_none_or(|batch| batch.waiting > 0) {
            return None;
        }
        self.closed -= 1;
        self.batches.pop_front()
    }

    /// Takes back a batch, to be used again.
    pub(crate) fn give_back(&mut self, batch: Batch<M>) {
        if self.spare.len() < SPARE_MAX {
            self.spare.push(batch);
        }
    }

    /// Closes the oldest open frame.
    fn finish_one(&mut self, blank: &mut impl Blank) {
        let frame = self.oldest;
        let same = self.held(frame).map(|h| std::mem::take(&mut h.same)).unwrap_or_default();
        // twice: knowledge from the last copy holds for the first one too
        for (at, there) in same.iter().chain(&same) {
            self.share(frame, *at, *there);
        }
        self.oldest += 1;
        let Some(held) = self.held(frame) else { return };
        let is_copied = !same.is_empty();
        (held.copies, held.is_copied, held.earlier) = (same, is_copied, Vec::new());
        let (length, has_crcs) = (held.slot.length as usize, held.slot.has_crcs());
        self.bytes -= length;
        if is_copied && has_crcs {
            self.make_early(frame, blank);
        }
        for crc in self.crcs.remove(&frame).unwrap_or_default() {
            self.finish_crc(crc, blank);
        }
    }

    /// Handles a CRC whose frames are all closed. If it has no copies and all its frames are in one batch, it is
    /// computed with that batch.
    fn finish_crc(&mut self, crc: Crc, blank: &mut impl Blank) {
        let batch = crc.at.first().and_then(|span| self.batch(span.frame));
        let is_here = crc.spans().all(|span| self.batch(span.frame) == batch);
        let is_followed = |span: &Span| self.place(span.frame).is_none_or(|(_, held)| held.is_copied);
        let is_copied = !crc.copies.is_empty() || crc.at.iter().any(is_followed);
        for span in crc.spans() {
            if let Some(place) = self.batch(span.frame) {
                self.batches[place].waiting -= 1;
            }
        }
        if let (Some(place), true, false) = (batch, is_here, is_copied) {
            self.batches[place].add_crc(crc);
            return;
        }
        for span in crc.spans() {
            self.make_early(span.frame, blank);
        }
        self.make(&crc);
    }

    /// Makes a frame before its batch, because bytes of other frames depend on it.
    fn make_early(&mut self, frame: u64, blank: &mut impl Blank) {
        let Some((block, held)) = self.place(frame).filter(|(_, held)| held.new.is_empty()) else { return };
        let mut new = Vec::new();
        let mut made: Vec<(u32, [u8; 4])> = Vec::new();
        block.make(&held.slot, blank, &mut new);
        block.make_crcs(&held.slot, &mut new, |at, crc| made.push((at, crc)));
        let Some(held) = self.held(frame) else { return };
        held.new = new;
        for (at, crc) in made {
            self.follow(Span { frame, at, length: crc.len() as u32 }, &crc);
        }
    }

    /// Exchanges knowledge about bytes between two copies.
    fn share(&mut self, frame: u64, at: u32, there: Span) {
        let Some(((mine, here), (theirs, other))) = self.place(frame).zip(self.place(there.frame)) else { return };
        if frame >= there.frame {
            return;
        }
        let (old, old_there) = (mine.old(&here.slot), theirs.old(&other.slot));
        let (from, offset) = ((at as usize).min(old.len()), there.at as usize);
        let length = (there.length as usize).min(old.len() - from).min(old_there.len().saturating_sub(offset));
        let (known, known_there) = (mine.known(&here.slot), theirs.known(&other.slot));
        let is_known = |known: &Known<'_>, from: usize| known.unknown(from, from + length).is_none();
        if length == 0 || is_known(&known, from) && is_known(&known_there, offset) {
            return;
        }
        let mut told: Vec<(u64, Range<usize>, FromCopy)> = Vec::new();
        for i in 0..length {
            let (n, m) = (from + i, offset + i);
            if old[n] != old_there[m] {
                continue;
            }
            let (to, place, source, at) = match (known.has(n), known_there.has(m)) {
                (false, true) => (frame, n, (theirs, &other.slot, &known_there), m),
                (true, false) => (there.frame, m, (mine, &here.slot, &known), n),
                _ => continue,
            };
            let (block, slot, known) = source;
            let patch = block.patches(slot).find(|patch| patch.has(at));
            let byte = patch.filter(|_| known.is_replaced(at)).map(|patch| block.with(patch, at, at + 1));
            let goes_on = told.last_mut().filter(|(frame, range, _)| *frame == to && range.end == place);
            match (goes_on, byte) {
                (Some((_, range, FromCopy::Kept)), None) | (Some((_, range, FromCopy::Zeros)), Some(With::Zeros)) => {
                    range.end += 1
                }
                (Some((_, range, FromCopy::Bytes(bytes))), Some(With::Bytes(byte))) => {
                    range.end += 1;
                    bytes.extend_from_slice(byte);
                }
                (_, None) => told.push((to, place..place + 1, FromCopy::Kept)),
                (_, Some(With::Zeros)) => told.push((to, place..place + 1, FromCopy::Zeros)),
                (_, Some(With::Bytes(byte))) => told.push((to, place..place + 1, FromCopy::Bytes(byte.to_vec()))),
            }
        }
        for (frame, range, what) in told {
            let Some((block, slot)) = self.open(frame) else { continue };
            let with = match &what {
                FromCopy::Kept => {
                    block.keep(slot, range);
                    continue;
                }
                FromCopy::Zeros => With::Zeros,
                FromCopy::Bytes(bytes) => With::Bytes(bytes),
            };
            block.replace(slot, range, with);
        }
    }

    /// Writes a recomputed checksum to those of its copies that are still open.
    fn follow(&mut self, span: Span, made: &[u8]) {
        let copies = self.held(span.frame).map(|held| std::mem::take(&mut held.copies)).unwrap_or_default();
        for (at, there) in &copies {
            if let Some((n, copy)) = self.copy(span, *at, *there) {
                self.replace(copy, With::Bytes(&made[n as usize..(n + copy.length) as usize]));
            }
        }
        if let Some(held) = self.held(span.frame) {
            held.copies = copies;
        }
    }

    fn make(&mut self, crc: &Crc) {
        let (mut was, mut is) = (Vec::new(), Vec::new());
        for span in &crc.over {
            let Some((block, held)) = self.place(span.frame) else { return };
            let range = span.at as usize..(span.at + span.length) as usize;
            was.extend_from_slice(block.old(&held.slot).get(range.clone()).unwrap_or(&[]));
            is.extend_from_slice(held.new.get(range).unwrap_or(&[]));
        }
        let stated: Vec<u8> = crc.at.iter().flat_map(|s| self.old(*s).unwrap_or(&[])).copied().collect();
        let Ok(stated) = <[u8; 4]>::try_from(stated) else { return };
        let made = sums::mpa(stated, &was, &is);
        let mut rest = &made[..];
        for span in &crc.at {
            let (mine, after) = rest.split_at(span.length as usize);
            rest = after;
            self.follow(*span, mine);
            self.put(*span, mine);
        }
        for (n, copy) in &crc.copies {
            self.put(*copy, &made[*n..*n + copy.length as usize]);
        }
    }

    /// Writes bytes to a frame that was already made.
    fn put(&mut self, span: Span, bytes: &[u8]) {
        if let Some(held) = self.held(span.frame)
            && let Some(to) = held.new.get_mut(span.at as usize..).and_then(|b| b.get_mut(..bytes.len()))
        {
            to.copy_from_slice(bytes);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rdmascope_dissector::wire::smb2;

    struct Crosses(Vec<(usize, bool)>);

    impl Blank for Crosses {
        fn blank(&mut self, inside: Option<Def>, was: &[u8], to: &mut [u8]) {
            self.0.push((was.len(), inside.is_some()));
            to.fill(b'x');
        }
    }

    /// All new frames.
    fn out(window: &mut Window<()>, blank: &mut Crosses) -> Vec<Vec<u8>> {
        window.close_oldest(true, blank);
        let (mut out, mut bytes) = (Vec::new(), Vec::new());
        while let Some(batch) = window.take() {
            batch.make(blank, &mut bytes);
            let frames = (batch.first..).map_while(|frame| batch.held(frame));
            out.extend(frames.map(|held| bytes[held.slot.range()].to_vec()));
        }
        out
    }

    fn span(frame: u64, at: u32, length: u32) -> Span {
        Span { frame, at, length }
    }

    #[test]
    fn bytes_are_kept_replaced_or_blanked_whatever_words_they_lie_in() {
        let bytes: Vec<u8> = (0..200u8).collect();
        for (at, length) in [(0, 1), (0, 64), (63, 2), (64, 64), (1, 198), (130, 70), (199, 1), (0, 200)] {
            let mut window = Window::new(0);
            let frame = window.push((), &bytes);
            window.keep(span(frame, at, length));
            assert!(window.replace(span(frame, at + length / 2, 1), With::Bytes(b"r")));
            assert!(!window.replace(span(frame, at + length / 2, 1), With::Bytes(b"s")), "what was replaced stays");
            let mut blank = Crosses(Vec::new());
            for (i, byte) in out(&mut window, &mut blank).concat().iter().enumerate() {
                let (i, middle) = (i as u32, at + length / 2);
                let wanted = match i {
                    _ if i == middle => b'r',
                    _ if (at..at + length).contains(&i) => i as u8,
                    _ => b'x',
                };
                assert_eq!(*byte, wanted, "{i} of {at} {length}");
            }
            assert_eq!(blank.0.len(), usize::from(at > 0) + usize::from(at + length < 200));
        }
    }

    #[test]
    fn what_is_not_known_is_blanked_by_the_field_that_holds_it() {
        let mut window = Window::new(0);
        let frame = window.push((), &[7; 100]);
        window.inside(span(frame, 10, 20), smb2::f::PROTOCOL);
        window.keep(span(frame, 20, 5));
        let mut blank = Crosses(Vec::new());
        out(&mut window, &mut blank);
        assert_eq!(blank.0, [(20, false), (5, true), (70, false)]);
    }

    #[test]
    fn copies_of_bytes_become_the_same() {
        let mut window = Window::new(0);
        let (a, b) = (window.push((), b"abcdef"), window.push((), b"..cdefgh"));
        window.keep(span(a, 0, 3));
        window.replace(span(b, 3, 2), With::Bytes(b"12"));
        window.same(span(a, 2, 4), span(b, 2, 4));
        assert_eq!(out(&mut window, &mut Crosses(Vec::new())), [b"abc12x".to_vec(), b"xxc12xxx".to_vec()]);
    }

    #[test]
    fn every_copy_of_a_crc_becomes_the_same() {
        for is_behind in [true, false] {
            let more: &[u8] = if is_behind { b"" } else { b"more" };
            let stated = mpa::crc(&[b"data", more].concat()).to_le_bytes();
            let mut window = Window::new(0);
            // copies before the CRC, behind it, and behind everything that it covers
            let frames: [[&[u8]; 2]; 5] =
                [[b"-", &stated], [b"data", &stated], [&stated, b"-"], [b"more", b""], [&stated, b""]];
            let [before, told, behind, rest, last] = frames.map(|parts| window.push((), &parts.concat()));
            let copies = [span(before, 1, 4), span(told, 4, 4), span(behind, 0, 4), span(last, 0, 4)];
            for (n, a) in copies.iter().enumerate() {
                copies[n + 1..].iter().for_each(|b| window.same(*a, *b));
            }
            window.replace(span(told, 0, 4), With::Bytes(b"DATA"));
            window.keep(span(rest, 0, 4));
            window.keep(copies[1]);
            if is_behind {
                window.crc_behind(span(told, 0, 4));
            } else {
                window.crc(vec![span(told, 0, 4), span(rest, 0, 4)], vec![copies[1]]);
            }
            let made = out(&mut window, &mut Crosses(Vec::new()));
            let wanted = mpa::crc(&[b"DATA", more].concat()).to_le_bytes();
            for copy in copies {
                assert_eq!(
                    made[copy.frame as usize][copy.at as usize..][..4],
                    wanted,
                    "frame {}, {is_behind}",
                    copy.frame
                );
            }
        }
    }

    #[test]
    fn a_sheet_is_filled_like_a_frame() {
        let mut window: Window<()> = Window::new(0);
        let scratch = window.push_scratch(b"contents");
        assert!(!scratch.is_in_frame() && window.old(scratch).is_none());
        window.keep(Span { length: 3, ..scratch });
        window.replace(Span { at: 6, length: 2, ..scratch }, With::Bytes(b"!!"));
        let (new, flat, zeroed) = window.pop_scratch(&mut Crosses(Vec::new()));
        assert_eq!((&new[..], &flat[..], zeroed), (&b"conxxx!!"[..], &b"conxxx\0\0"[..], 2));
        assert!(!window.replace(scratch, With::Bytes(b"12345678")), "it is gone");
    }
}
