//! Frames whose bytes may still be identified: a message in pieces names bytes of earlier frames. The oldest frames leave when the window
//! is full.
//!
//! ```text
//!   leaving ◀─ [ final: sums wait for a later frame ] [ open: bytes may still be named ] ◀─ new
//! ```
//!
//! What is known of a frame's bytes are two sets of bits, one bit a byte, and what stands in the place of those that were replaced. The new
//! frame is made when it is its turn, so that it need not wait in memory. Frames stand in blocks, which are filled again.

use crate::block::{Blank, Block, Known, Leaf, SHEET, Span, With};
use crate::parcel::{Crc, Held, Shelf};
use crate::shape::{Notes, Plan};
use crate::sums::{self, Fix};
use rdmascope_dissector::field::Def;
use rdmascope_dissector::wire::iwarp::mpa;
use std::collections::{BTreeMap, VecDeque};
use std::ops::Range;

/// What a copy of some bytes shows about them.
enum FromCopy {
    Kept,
    Zeros,
    Bytes(Vec<u8>),
}

/// The window.
#[derive(Debug)]
pub(crate) struct Window<M> {
    /// Where the frames stand, the oldest first.
    shelves: VecDeque<Shelf<M>>,
    /// How many of them are shut: nothing more becomes known of their frames.
    shut: usize,
    /// Number of the next frame, and of the oldest that is open.
    next: u64,
    oldest: u64,
    /// Bytes of frames that are open, and how many there may be.
    bytes: usize,
    limit: usize,
    /// By the last frame that they need.
    crcs: BTreeMap<u64, Vec<Crc>>,
    /// What stands in no frame, the outermost first.
    sheets: Vec<(Block, Leaf)>,
    /// Bytes of frames on a shelf.
    shelf_bytes: usize,
    /// To be filled again.
    spare: Vec<Shelf<M>>,
}

/// Frames in the window at most.
const FRAMES_MAX: u64 = 1 << 17;
/// Maximum number of shelves that wait to be filled again, and of buffers of new frames.
pub(crate) const SPARE_MAX: usize = 8;
/// Bytes of frames on a shelf at most, but for one that is larger.
const SHELF_MAX: usize = 1 << 22;

impl<M> Window<M> {
    pub(crate) fn new(limit: usize) -> Self {
        Self {
            shelves: VecDeque::new(),
            shut: 0,
            next: 0,
            oldest: 0,
            bytes: 0,
            limit,
            crcs: BTreeMap::new(),
            sheets: Vec::new(),
            shelf_bytes: (limit / 8).clamp(1, SHELF_MAX),
            spare: Vec::new(),
        }
    }

    /// A new frame, and its number.
    pub(crate) fn push(&mut self, meta: M, bytes: &[u8]) -> u64 {
        self.bytes += bytes.len();
        let has_room = |shelf: &Shelf<M>| shelf.block.length() + bytes.len() <= self.shelf_bytes;
        if self.shelves.len() == self.shut || !self.shelves.back().is_some_and(has_room) {
            let mut shelf = self.spare.pop().unwrap_or_default();
            shelf.begin(self.next, self.shelves.back(), self.shelf_bytes.max(bytes.len()));
            self.shelves.push_back(shelf);
        }
        if let Some(shelf) = self.shelves.back_mut() {
            shelf.push(meta, bytes);
        }
        self.next += 1;
        self.next - 1
    }

    /// The oldest frame that may still change.
    pub(crate) fn oldest(&self) -> u64 {
        self.oldest
    }

    /// The place of the shelf on which a frame stands.
    #[inline]
    fn shelf(&self, frame: u64) -> Option<usize> {
        let last = self.shelves.len().checked_sub(1)?;
        if self.shelves[last].first <= frame {
            return (frame < self.next).then_some(last);
        }
        self.shelves.partition_point(|shelf| shelf.first <= frame).checked_sub(1)
    }

    fn held(&mut self, frame: u64) -> Option<&mut Held<M>> {
        let at = self.shelf(frame)?;
        self.shelves[at].held_mut(frame)
    }

    /// The block and the place of a frame that is here.
    fn place(&self, frame: u64) -> Option<(&Block, &Held<M>)> {
        let shelf = &self.shelves[self.shelf(frame)?];
        Some((&shelf.block, shelf.held(frame)?))
    }

    /// What is known of a frame that is still open, or of a sheet.
    fn open(&mut self, frame: u64) -> Option<(&mut Block, &mut Leaf)> {
        if frame >= SHEET {
            return self.sheets.get_mut((frame - SHEET) as usize).map(|(block, leaf)| (block, leaf));
        }
        let at = self.shelf(frame).filter(|_| frame >= self.oldest)?;
        self.shelves[at].leaf_mut(frame)
    }

    /// The block and the newest frame.
    fn newest(&mut self) -> Option<(&mut Block, &mut Leaf)> {
        let shelf = self.shelves.back_mut()?;
        shelf.leaf_mut(self.next.checked_sub(1)?)
    }

    fn is_open(&self, frame: u64) -> bool {
        (self.oldest..SHEET).contains(&frame)
    }

    /// Bytes that stand in no frame, until [`Window::lift`].
    pub(crate) fn lay(&mut self, bytes: &[u8]) -> Span {
        let mut block = Block::default();
        let leaf = block.add(bytes);
        self.sheets.push((block, leaf));
        Span { frame: SHEET + self.sheets.len() as u64 - 1, at: 0, length: bytes.len() as u32 }
    }

    /// What became of the bytes that were laid down last; and the same with zeros for all that was replaced, of which so many are none.
    pub(crate) fn lift(&mut self, blank: &mut impl Blank) -> (Vec<u8>, Vec<u8>, usize) {
        let Some((block, leaf)) = self.sheets.pop() else { return Default::default() };
        let mut new = Vec::new();
        block.make(&leaf, blank, &mut new);
        let mut flat = new.clone();
        let mut zeroed = 0;
        let known = block.known(&leaf);
        for (_, byte) in flat.iter_mut().enumerate().filter(|(i, byte)| **byte != 0 && known.is_replaced(*i)) {
            *byte = 0;
            zeroed += 1;
        }
        (new, flat, zeroed)
    }

    /// What stood in a frame.
    pub(crate) fn old(&self, span: Span) -> Option<&[u8]> {
        let (block, held) = self.place(span.frame)?;
        block.old(&held.leaf).get(span.at as usize..)?.get(..span.length as usize)
    }

    /// These bytes give nothing away.
    #[inline]
    pub(crate) fn keep(&mut self, span: Span) {
        if let Some((block, leaf)) = self.open(span.frame) {
            block.keep(leaf, span.range(leaf.length as usize));
        }
    }

    /// These bytes of the newest frame give nothing away.
    #[inline]
    pub(crate) fn keep_newest(&mut self, at: usize, length: usize) {
        if let Some((block, leaf)) = self.newest() {
            let end = leaf.length as usize;
            block.keep(leaf, at.min(end)..(at + length).min(end));
        }
    }

    /// These bytes become others; what was replaced before stays as it is. Whether any did.
    pub(crate) fn replace(&mut self, span: Span, with: With<'_>) -> bool {
        self.open(span.frame).is_some_and(|(block, leaf)| block.replace(leaf, span.range(leaf.length as usize), with))
    }

    /// Other fields tell of these bytes.
    pub(crate) fn inside(&mut self, span: Span, def: Def) {
        if let Some((block, leaf)) = self.open(span.frame) {
            block.inside(leaf, span.at, span.at.saturating_add(span.length), def);
        }
    }

    /// Notes a sum to be recomputed in a frame.
    pub(crate) fn fix(&mut self, frame: u64, fix: Fix) {
        if let Some((block, leaf)) = self.open(frame) {
            block.fix(leaf, fix);
        }
    }

    /// All that is known of the newest frame.
    pub(crate) fn notes_of_newest(&self) -> Notes {
        let newest = self.next.checked_sub(1).and_then(|frame| self.place(frame));
        newest.map_or_else(Notes::default, |(block, held)| block.notes(&held.leaf))
    }

    /// Of the newest frame is known what is of all like it.
    pub(crate) fn follow_plan(&mut self, plan: &Plan, is_good: bool) {
        if let Some((block, leaf)) = self.newest() {
            block.follow(leaf, plan, is_good);
        }
    }

    /// The decoder found the invariant CRC of the newest frame correct, so it is to be recomputed.
    pub(crate) fn icrc_is_good(&mut self) {
        if let Some((block, leaf)) = self.newest() {
            block.icrc_is_good(leaf);
        }
    }

    /// The bytes at `a` stand at `b` too: what is known of the ones holds for the others.
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

    /// Where else bytes of an open frame stand, in open frames: which of them, and where. Of later frames those up to `last`.
    fn elsewhere(&self, span: Span, last: u64) -> Vec<(usize, Span)> {
        let Some((_, held)) = self.place(span.frame) else { return Vec::new() };
        let all = held.earlier.iter().chain(held.same.iter().filter(|(_, there)| there.frame <= last));
        let open = all.filter(|(_, there)| self.is_open(there.frame));
        open.filter_map(|(at, there)| self.copy(span, *at, *there)).map(|(at, copy)| (at as usize, copy)).collect()
    }

    /// Of bytes of a frame those that stand in another one too, where the bytes from `at` on stand `there`, unless one of both was damaged.
    fn copy(&self, span: Span, at: u32, there: Span) -> Option<(u32, Span)> {
        let (from, to) = (span.at.max(at), (span.at + span.length).min(at.saturating_add(there.length)));
        let length = to.checked_sub(from).filter(|length| *length > 0)?;
        let copy = Span { frame: there.frame, at: there.at + (from - at), length };
        (self.old(copy)? == self.old(Span { at: from, length, ..span })?).then_some((from - span.at, copy))
    }

    /// An MPA CRC over these bytes, which stands at `at`.
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
            if let Some(place) = self.shelf(span.frame) {
                self.shelves[place].waiting += 1;
            }
        }
        self.crcs.entry(last).or_default().push(crc);
    }

    /// An MPA CRC that stands in a frame right behind the bytes that it covers.
    pub(crate) fn crc_behind(&mut self, over: Span) {
        let at = Span { at: over.at.saturating_add(over.length), length: mpa::CRC_LEN as u32, ..over };
        if !self.elsewhere(at, over.frame).is_empty() {
            return self.crc(vec![over], vec![at]);
        }
        if let Some((block, leaf)) = self.open(over.frame) {
            block.crc(leaf, over.at, over.at.saturating_add(over.length));
        }
    }

    /// Shuts the oldest shelves, for which there is no more room; all of them `at_the_end`.
    pub(crate) fn leave(&mut self, at_the_end: bool, blank: &mut impl Blank) {
        while self.shut < self.shelves.len() && (at_the_end || self.bytes > self.limit || self.next - self.oldest > FRAMES_MAX) {
            self.shut += 1;
            let end = self.shelves.get(self.shut).map_or(self.next, |next| next.first);
            while self.oldest < end {
                self.finish_one(blank);
            }
        }
    }

    /// The oldest shelf, once it is shut and no sum on it waits for a later frame.
    pub(crate) fn take(&mut self) -> Option<Shelf<M>> {
        if self.shut == 0 || self.shelves.front().is_none_or(|shelf| shelf.waiting > 0) {
            return None;
        }
        self.shut -= 1;
        self.shelves.pop_front()
    }

    /// Takes back a shelf that is to be filled again.
    pub(crate) fn give_back(&mut self, shelf: Shelf<M>) {
        if self.spare.len() < SPARE_MAX {
            self.spare.push(shelf);
        }
    }

    /// Nothing more becomes known of the oldest open frame.
    fn finish_one(&mut self, blank: &mut impl Blank) {
        let frame = self.oldest;
        let same = self.held(frame).map(|h| std::mem::take(&mut h.same)).unwrap_or_default();
        // twice: what is known from the last copy holds for the first, too
        for (at, there) in same.iter().chain(&same) {
            self.share(frame, *at, *there);
        }
        self.oldest += 1;
        let Some(held) = self.held(frame) else { return };
        let is_copied = !same.is_empty();
        (held.copies, held.is_copied, held.earlier) = (same, is_copied, Vec::new());
        let (length, has_crcs) = (held.leaf.length as usize, held.leaf.has_crcs());
        self.bytes -= length;
        if is_copied && has_crcs {
            self.make_early(frame, blank);
        }
        for crc in self.crcs.remove(&frame).unwrap_or_default() {
            self.finish_crc(crc, blank);
        }
    }

    /// Nothing more becomes known of any frame of a CRC. If its copies do not hang on it and its frames stand together, it is made with
    /// them.
    fn finish_crc(&mut self, crc: Crc, blank: &mut impl Blank) {
        let shelf = crc.at.first().and_then(|span| self.shelf(span.frame));
        let is_here = crc.spans().all(|span| self.shelf(span.frame) == shelf);
        let is_followed = |span: &Span| self.place(span.frame).is_none_or(|(_, held)| held.is_copied);
        let is_copied = !crc.copies.is_empty() || crc.at.iter().any(is_followed);
        for span in crc.spans() {
            if let Some(place) = self.shelf(span.frame) {
                self.shelves[place].waiting -= 1;
            }
        }
        if let (Some(place), true, false) = (shelf, is_here, is_copied) {
            self.shelves[place].add_crc(crc);
            return;
        }
        for span in crc.spans() {
            self.make_early(span.frame, blank);
        }
        self.make(&crc);
    }

    /// Makes a frame on whose bytes others hang.
    fn make_early(&mut self, frame: u64, blank: &mut impl Blank) {
        let Some((block, held)) = self.place(frame).filter(|(_, held)| held.new.is_empty()) else { return };
        let mut new = Vec::new();
        let mut made: Vec<(u32, [u8; 4])> = Vec::new();
        block.make(&held.leaf, blank, &mut new);
        block.make_crcs(&held.leaf, &mut new, |at, crc| made.push((at, crc)));
        let Some(held) = self.held(frame) else { return };
        held.new = new;
        for (at, crc) in made {
            self.follow(Span { frame, at, length: crc.len() as u32 }, &crc);
        }
    }

    /// What is known of one copy of bytes is taken over for the other.
    fn share(&mut self, frame: u64, at: u32, there: Span) {
        let Some(((mine, here), (theirs, other))) = self.place(frame).zip(self.place(there.frame)) else { return };
        if frame >= there.frame {
            return;
        }
        let (old, old_there) = (mine.old(&here.leaf), theirs.old(&other.leaf));
        let (from, offset) = ((at as usize).min(old.len()), there.at as usize);
        let length = (there.length as usize).min(old.len() - from).min(old_there.len().saturating_sub(offset));
        let (known, known_there) = (mine.known(&here.leaf), theirs.known(&other.leaf));
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
                (false, true) => (frame, n, (theirs, &other.leaf, &known_there), m),
                (true, false) => (there.frame, m, (mine, &here.leaf, &known), n),
                _ => continue,
            };
            let (block, leaf, known) = source;
            let patch = block.patches(leaf).find(|patch| patch.has(at));
            let byte = patch.filter(|_| known.is_replaced(at)).map(|patch| block.with(patch, at, at + 1));
            let goes_on = told.last_mut().filter(|(frame, range, _)| *frame == to && range.end == place);
            match (goes_on, byte) {
                (Some((_, range, FromCopy::Kept)), None) | (Some((_, range, FromCopy::Zeros)), Some(With::Zeros)) => range.end += 1,
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
            let Some((block, leaf)) = self.open(frame) else { continue };
            let with = match &what {
                FromCopy::Kept => {
                    block.keep(leaf, range);
                    continue;
                }
                FromCopy::Zeros => With::Zeros,
                FromCopy::Bytes(bytes) => With::Bytes(bytes),
            };
            block.replace(leaf, range, with);
        }
    }

    /// Puts a recomputed sum into the copies of its frame that are still open.
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
            was.extend_from_slice(block.old(&held.leaf).get(range.clone()).unwrap_or(&[]));
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

    /// Puts bytes into a frame that was made.
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

    /// All frames, made anew.
    fn out(window: &mut Window<()>, blank: &mut Crosses) -> Vec<Vec<u8>> {
        window.leave(true, blank);
        let (mut out, mut bytes) = (Vec::new(), Vec::new());
        while let Some(shelf) = window.take() {
            shelf.make(blank, &mut bytes);
            let frames = (shelf.first..).map_while(|frame| shelf.held(frame));
            out.extend(frames.map(|held| bytes[held.leaf.range()].to_vec()));
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
            // before the one that is told, behind it, and behind all that it covers
            let frames: [[&[u8]; 2]; 5] = [[b"-", &stated], [b"data", &stated], [&stated, b"-"], [b"more", b""], [&stated, b""]];
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
                assert_eq!(made[copy.frame as usize][copy.at as usize..][..4], wanted, "frame {}, {is_behind}", copy.frame);
            }
        }
    }

    #[test]
    fn a_sheet_is_filled_like_a_frame() {
        let mut window: Window<()> = Window::new(0);
        let sheet = window.lay(b"contents");
        assert!(!sheet.is_in_frame() && window.old(sheet).is_none());
        window.keep(Span { length: 3, ..sheet });
        window.replace(Span { at: 6, length: 2, ..sheet }, With::Bytes(b"!!"));
        let (new, flat, zeroed) = window.lift(&mut Crosses(Vec::new()));
        assert_eq!((&new[..], &flat[..], zeroed), (&b"conxxx!!"[..], &b"conxxx\0\0"[..], 2));
        assert!(!window.replace(sheet, With::Bytes(b"12345678")), "it is gone");
    }
}
