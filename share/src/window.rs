//! Frames that may still be told of: a message in pieces names the bytes of earlier frames. The oldest leave when there is no more room.
//!
//! ```text
//!   leaving ◀─ [ final: sums wait for a later frame ] [ open: bytes may still be named ] ◀─ new
//! ```
//!
//! What is known of a frame's bytes are two sets of bits, one bit a byte. Frames that left leave their buffers to those that come.

use crate::sums::{self, Fix};
use rdmascope_dissector::field::Def;
use std::collections::{BTreeMap, VecDeque};
use std::ops::Range;

/// Bytes of a frame: of the frame with this number, counted from 0; of a sheet from [`SHEET`] on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Span {
    pub(crate) frame: u64,
    pub(crate) at: u32,
    pub(crate) length: u32,
}

/// Numbers of sheets: bytes that stand in no frame, as what was compressed there.
const SHEET: u64 = 1 << 63;

impl Span {
    /// Whether it is of a frame.
    pub(crate) fn is_in_frame(&self) -> bool {
        self.frame < SHEET
    }

    fn range(&self, limit: usize) -> Range<usize> {
        let at = (self.at as usize).min(limit);
        at..(self.at.saturating_add(self.length) as usize).min(limit).max(at)
    }
}

/// What becomes of bytes that no field claims.
pub(crate) trait Blank {
    /// Fills `to`, where `was` stood, in what the field `inside` tells of, where one does.
    fn blank(&mut self, inside: Option<Def>, was: &[u8], to: &mut [u8]);
}

/// A set of places.
#[derive(Debug, Default)]
struct Bits(Vec<u64>);

impl Bits {
    fn clear(&mut self, places: usize) {
        self.0.clear();
        self.0.resize(places.div_ceil(64), 0);
    }

    /// The words that hold a range, and which of their bits do.
    fn words(range: Range<usize>) -> impl Iterator<Item = (usize, u64)> {
        let (first, last) = (range.start / 64, range.end.div_ceil(64));
        (first..last).map(move |word| {
            let from = range.start.saturating_sub(word * 64).min(63);
            let to = (range.end - word * 64).min(64);
            (word, u64::MAX << from & u64::MAX >> (64 - to))
        })
    }

    #[inline]
    fn insert(&mut self, range: Range<usize>) {
        // most fields lie in one word
        if range.start / 64 == range.end / 64 {
            let bits = (1_u64 << (range.end % 64)) - (1 << (range.start % 64));
            if let Some(word) = self.0.get_mut(range.start / 64) {
                *word |= bits;
            }
            return;
        }
        for (word, bits) in Self::words(range) {
            self.0[word] |= bits;
        }
    }

    fn has(&self, at: usize) -> bool {
        self.0[at / 64] >> (at % 64) & 1 == 1
    }

    fn has_any(&self, range: Range<usize>) -> bool {
        Self::words(range).any(|(word, bits)| self.0[word] & bits != 0)
    }
}

/// Bytes, what becomes of them, and what is known of each.
#[derive(Debug, Default)]
struct Sheet {
    old: Vec<u8>,
    /// The same but for what was replaced, as far as anything was; to the end once it is filled.
    new: Vec<u8>,
    /// Those that give nothing away.
    kept: Bits,
    replaced: Bits,
    /// Runs of bytes of which other fields tell: the innermost last.
    inside: Vec<(u32, u32, Def)>,
}

impl Sheet {
    fn begin(&mut self, bytes: &[u8]) {
        self.old.clear();
        self.old.extend_from_slice(bytes);
        self.new.clear();
        self.kept.clear(bytes.len());
        self.replaced.clear(bytes.len());
        self.inside.clear();
    }

    fn keep(&mut self, span: Span) {
        self.kept.insert(span.range(self.old.len()));
    }

    /// The new bytes, at least up to a place.
    fn reach(&mut self, end: usize) -> &mut [u8] {
        let begin = self.new.len();
        if begin < end {
            self.new.extend_from_slice(&self.old[begin..end]);
        }
        &mut self.new
    }

    fn replace(&mut self, span: Span, with: &[u8]) -> bool {
        let range = span.range(self.old.len());
        let range = range.start..range.end.min(range.start + with.len());
        let with = &with[..range.len()];
        self.reach(range.end);
        if !self.replaced.has_any(range.clone()) {
            self.new[range.clone()].copy_from_slice(with);
            self.replaced.insert(range.clone());
            return !range.is_empty();
        }
        let mut any = false;
        for (i, byte) in range.clone().zip(with) {
            if !self.replaced.has(i) {
                self.new[i] = *byte;
                any = true;
            }
        }
        self.replaced.insert(range);
        any
    }

    /// The next run that is not known, from a place on.
    fn unknown(&self, from: usize) -> Option<Range<usize>> {
        let length = self.old.len();
        let next = |from: usize, wanted: bool| {
            let mut word = from / 64;
            let mut mask = u64::MAX << (from % 64);
            while word * 64 < length {
                let known = self.kept.0[word] | self.replaced.0[word];
                let found = if wanted { !known } else { known } & mask;
                if found != 0 {
                    return (word * 64 + found.trailing_zeros() as usize).min(length);
                }
                (word, mask) = (word + 1, u64::MAX);
            }
            length
        };
        let start = next(from, true);
        (start < length).then(|| start..next(start, false))
    }

    /// Blanks what no field claims.
    fn fill(&mut self, blank: &mut impl Blank) {
        let mut at = 0;
        while let Some(run) = self.unknown(at) {
            let inside = self.inside.iter().rev().find(|(from, to, _)| (*from as usize..*to as usize).contains(&run.start));
            // to the end of what is not known, or of the field that it is in
            let end = inside.map_or(run.end, |(_, to, _)| run.end.min(*to as usize));
            let inside = inside.map(|(_, _, def)| *def);
            self.reach(run.start);
            self.new.resize(self.new.len().max(end), 0);
            blank.blank(inside, &self.old[run.start..end], &mut self.new[run.start..end]);
            at = end;
        }
        self.reach(self.old.len());
    }
}

/// A frame in the window.
#[derive(Debug)]
struct Held<M> {
    meta: M,
    sheet: Sheet,
    fixes: Vec<Fix>,
    /// The same bytes in another frame: their places here and there, and how many.
    same: Vec<(u32, Span)>,
    /// Those again, once what is known was taken over: a sum that is made later has to follow.
    copies: Vec<(u32, Span)>,
    /// Sums that cover bytes of this frame, or stand in it, and wait for a later one.
    waiting: u32,
    is_final: bool,
    is_mended: bool,
}

/// A CRC over several frames.
#[derive(Debug)]
struct Crc {
    over: Vec<Span>,
    at: Vec<Span>,
}

/// The window.
#[derive(Debug)]
pub(crate) struct Window<M> {
    /// Number of the oldest frame.
    first: u64,
    held: VecDeque<Held<M>>,
    /// How many of them are final.
    finals: usize,
    bytes: usize,
    limit: usize,
    /// By the last frame that they need.
    crcs: BTreeMap<u64, Vec<Crc>>,
    /// What stands in no frame, the outermost first.
    sheets: Vec<Sheet>,
    /// Buffers of frames that left.
    spare: Vec<(Sheet, Vec<Fix>)>,
}

/// Frames in the window at most.
const FRAMES_MAX: usize = 1 << 17;
/// Runs of one frame that are remembered for the report.
const INSIDE_MAX: usize = 1 << 8;
/// Buffers that wait for another frame at most.
const SPARE_MAX: usize = 64;

impl<M> Window<M> {
    pub(crate) fn new(limit: usize) -> Self {
        Self { first: 0, held: VecDeque::new(), finals: 0, bytes: 0, limit, crcs: BTreeMap::new(), sheets: Vec::new(), spare: Vec::new() }
    }

    /// A new frame, and its number.
    pub(crate) fn push(&mut self, meta: M, bytes: &[u8]) -> u64 {
        self.bytes += bytes.len();
        let (mut sheet, fixes) = self.spare.pop().unwrap_or_default();
        sheet.begin(bytes);
        self.held.push_back(Held {
            meta,
            sheet,
            fixes,
            same: Vec::new(),
            copies: Vec::new(),
            waiting: 0,
            is_final: false,
            is_mended: false,
        });
        self.first + self.held.len() as u64 - 1
    }

    /// The oldest frame of which something may still be told.
    pub(crate) fn oldest(&self) -> u64 {
        self.first + self.finals as u64
    }

    fn held(&mut self, frame: u64) -> Option<&mut Held<M>> {
        let at = usize::try_from(frame.checked_sub(self.first)?).ok()?;
        self.held.get_mut(at)
    }

    /// What is known of a frame that is still open, or of a sheet.
    fn sheet(&mut self, frame: u64) -> Option<&mut Sheet> {
        if frame >= SHEET {
            return self.sheets.get_mut((frame - SHEET) as usize);
        }
        self.held.get_mut(usize::try_from(frame.checked_sub(self.first)?).ok()?).filter(|h| !h.is_final).map(|h| &mut h.sheet)
    }

    fn is_open(&self, frame: u64) -> bool {
        (self.oldest()..SHEET).contains(&frame)
    }

    /// Bytes that stand in no frame, until [`Window::lift`].
    pub(crate) fn lay(&mut self, bytes: &[u8]) -> Span {
        let mut sheet = Sheet::default();
        sheet.begin(bytes);
        self.sheets.push(sheet);
        Span { frame: SHEET + self.sheets.len() as u64 - 1, at: 0, length: bytes.len() as u32 }
    }

    /// What became of the bytes that were laid down last; and the same with zeros for all that was replaced, of which so many are none.
    pub(crate) fn lift(&mut self, blank: &mut impl Blank) -> (Vec<u8>, Vec<u8>, usize) {
        let mut sheet = self.sheets.pop().unwrap_or_default();
        sheet.fill(blank);
        let mut flat = sheet.new.clone();
        let mut zeroed = 0;
        for (_, byte) in flat.iter_mut().enumerate().filter(|(i, byte)| **byte != 0 && sheet.replaced.has(*i)) {
            *byte = 0;
            zeroed += 1;
        }
        (sheet.new, flat, zeroed)
    }

    /// What stood in a frame.
    pub(crate) fn old(&self, span: Span) -> Option<&[u8]> {
        let at = usize::try_from(span.frame.checked_sub(self.first)?).ok()?;
        self.held.get(at)?.sheet.old.get(span.at as usize..)?.get(..span.length as usize)
    }

    /// These bytes give nothing away.
    #[inline]
    pub(crate) fn keep(&mut self, span: Span) {
        if let Some(sheet) = self.sheet(span.frame) {
            sheet.keep(span);
        }
    }

    /// These bytes of the newest frame give nothing away.
    #[inline]
    pub(crate) fn keep_newest(&mut self, at: usize, length: usize) {
        if let Some(held) = self.held.back_mut() {
            let end = held.sheet.old.len();
            held.sheet.kept.insert(at.min(end)..(at + length).min(end));
        }
    }

    /// These bytes become others; what was replaced before stays as it is. Whether any did.
    pub(crate) fn replace(&mut self, span: Span, with: &[u8]) -> bool {
        self.sheet(span.frame).is_some_and(|sheet| sheet.replace(span, with))
    }

    /// Other fields tell of these bytes.
    pub(crate) fn inside(&mut self, span: Span, def: Def) {
        if let Some(sheet) = self.sheet(span.frame).filter(|s| s.inside.len() < INSIDE_MAX) {
            sheet.inside.push((span.at, span.at.saturating_add(span.length), def));
        }
    }

    /// Something is to be made anew in a frame.
    pub(crate) fn fix(&mut self, frame: u64, fix: Fix) {
        if let Some(held) = self.held(frame) {
            held.fixes.push(fix);
        }
    }

    /// The decoder found the invariant CRC to be right that is to be made anew in the newest frame.
    pub(crate) fn icrc_is_good(&mut self) {
        if let Some(Fix::Icrc { is_good, .. }) = self.held.back_mut().and_then(|held| held.fixes.last_mut()) {
            *is_good = true;
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
    }

    /// An MPA CRC over these bytes, which stands at `at`.
    pub(crate) fn crc(&mut self, over: Vec<Span>, at: Vec<Span>) {
        let frames = || over.iter().chain(&at).map(|s| s.frame);
        let Some(last) = frames().max() else { return };
        if frames().any(|f| !self.is_open(f)) {
            return;
        }
        for span in over.iter().chain(&at) {
            if let Some(held) = self.held(span.frame) {
                held.waiting += 1;
            }
        }
        self.crcs.entry(last).or_default().push(Crc { over, at });
    }

    /// Lets frames go that there is no more room for; all of them `at_the_end`.
    pub(crate) fn leave(&mut self, at_the_end: bool, blank: &mut impl Blank, out: &mut impl FnMut(M, &[u8])) {
        while self.finals < self.held.len() && (at_the_end || self.bytes > self.limit || self.held.len() - self.finals > FRAMES_MAX) {
            self.finish_one(blank);
            while self.held.front().is_some_and(|h| h.is_mended && h.waiting == 0) {
                if let Some(mut gone) = self.held.pop_front() {
                    self.bytes -= gone.sheet.old.len();
                    self.first += 1;
                    self.finals -= 1;
                    out(gone.meta, &gone.sheet.new);
                    if self.spare.len() < SPARE_MAX {
                        gone.fixes.clear();
                        self.spare.push((gone.sheet, gone.fixes));
                    }
                }
            }
        }
    }

    fn finish_one(&mut self, blank: &mut impl Blank) {
        let frame = self.oldest();
        let same = self.held(frame).map(|h| std::mem::take(&mut h.same)).unwrap_or_default();
        // twice: what the last copy tells is for the first of them too
        for (at, there) in same.iter().chain(&same) {
            self.share(frame, *at, *there);
        }
        let Some(held) = self.held(frame) else { return };
        held.copies = same;
        held.sheet.fill(blank);
        held.is_final = true;
        self.finals += 1;
        self.mend(frame);
        for crc in self.crcs.remove(&frame).unwrap_or_default() {
            self.make(&crc);
            for span in crc.over.iter().chain(&crc.at) {
                if let Some(held) = self.held(span.frame) {
                    held.waiting -= 1;
                }
                self.mend(span.frame);
            }
        }
    }

    /// Makes the sums of a frame anew once nothing in it changes any more.
    fn mend(&mut self, frame: u64) {
        if let Some(held) = self.held(frame).filter(|h| h.is_final && !h.is_mended && h.waiting == 0) {
            sums::mend(&held.fixes, &held.sheet.old, &mut held.sheet.new);
            held.is_mended = true;
        }
    }

    /// What is known of one copy of bytes is taken over for the other.
    fn share(&mut self, frame: u64, at: u32, there: Span) {
        let (Some(a), Some(b)) = (frame.checked_sub(self.first), there.frame.checked_sub(self.first)) else { return };
        let (a, b) = (a as usize, b as usize);
        if a >= b || b >= self.held.len() {
            return;
        }
        // the frames stand in a ring: the later one is taken out for a moment
        let mut other = std::mem::take(&mut self.held[b].sheet);
        let here = &mut self.held[a].sheet;
        let from = (at as usize).min(here.old.len());
        let length = (there.length as usize).min(here.old.len() - from).min(other.old.len().saturating_sub(there.at as usize));
        here.reach(from + length);
        other.reach((there.at as usize + length).min(other.old.len()));
        for (n, i) in (from..from + length).zip(there.at as usize..) {
            if other.old[i] != here.old[n] {
                continue;
            }
            let (mine, theirs) = (here.kept.has(n) || here.replaced.has(n), other.kept.has(i) || other.replaced.has(i));
            match (mine, theirs) {
                (false, true) => {
                    here.new[n] = other.new[i];
                    if other.replaced.has(i) { here.replaced.insert(n..n + 1) } else { here.kept.insert(n..n + 1) }
                }
                (true, false) => {
                    other.new[i] = here.new[n];
                    if here.replaced.has(n) { other.replaced.insert(i..i + 1) } else { other.kept.insert(i..i + 1) }
                }
                _ => {}
            }
        }
        self.held[b].sheet = other;
    }

    /// Puts a sum that was made anew into the copies of its frame that are still open.
    fn follow(&mut self, span: Span, made: &[u8]) {
        let copies = self.held(span.frame).map(|held| std::mem::take(&mut held.copies)).unwrap_or_default();
        for (at, there) in &copies {
            let (from, to) = (span.at.max(*at), (span.at + span.length).min(at.saturating_add(there.length)));
            if from >= to {
                continue;
            }
            let copy = Span { frame: there.frame, at: there.at + (from - at), length: to - from };
            let is_same = self.old(copy).is_some_and(|bytes| self.old(Span { at: from, length: to - from, ..span }) == Some(bytes));
            if is_same {
                self.replace(copy, &made[(from - span.at) as usize..(to - span.at) as usize]);
            }
        }
        if let Some(held) = self.held(span.frame) {
            held.copies = copies;
        }
    }

    fn make(&mut self, crc: &Crc) {
        let (mut was, mut is) = (Vec::new(), Vec::new());
        for span in &crc.over {
            let Some(held) = self.held(span.frame) else { return };
            let range = span.at as usize..(span.at + span.length) as usize;
            was.extend_from_slice(held.sheet.old.get(range.clone()).unwrap_or(&[]));
            is.extend_from_slice(held.sheet.new.get(range).unwrap_or(&[]));
        }
        let stated: Vec<u8> = crc.at.iter().flat_map(|s| self.old(*s).unwrap_or(&[])).copied().collect();
        let Ok(stated) = <[u8; 4]>::try_from(stated) else { return };
        let made = sums::mpa(stated, &was, &is);
        let mut rest = &made[..];
        for span in &crc.at {
            let (mine, after) = rest.split_at(span.length as usize);
            rest = after;
            self.follow(*span, mine);
            if let Some(held) = self.held(span.frame)
                && let Some(to) = held.sheet.new.get_mut(span.at as usize..).and_then(|b| b.get_mut(..mine.len()))
            {
                to.copy_from_slice(mine);
            }
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
            assert!(window.replace(span(frame, at + length / 2, 1), b"r"));
            assert!(!window.replace(span(frame, at + length / 2, 1), b"s"), "what was replaced stays");
            let mut blank = Crosses(Vec::new());
            let mut out = Vec::new();
            window.leave(true, &mut blank, &mut |(), b| out.extend_from_slice(b));
            for (i, byte) in out.iter().enumerate() {
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
        window.leave(true, &mut blank, &mut |(), _| {});
        assert_eq!(blank.0, [(20, false), (5, true), (70, false)]);
    }

    #[test]
    fn copies_of_bytes_become_the_same() {
        let mut window = Window::new(0);
        let (a, b) = (window.push((), b"abcdef"), window.push((), b"..cdefgh"));
        window.keep(span(a, 0, 3));
        window.replace(span(b, 3, 2), b"12");
        window.same(span(a, 2, 4), span(b, 2, 4));
        let mut out = Vec::new();
        window.leave(true, &mut Crosses(Vec::new()), &mut |(), bytes| out.push(bytes.to_vec()));
        assert_eq!(out, [b"abc12x".to_vec(), b"xxc12xxx".to_vec()]);
    }

    #[test]
    fn a_sheet_is_filled_like_a_frame() {
        let mut window: Window<()> = Window::new(0);
        let sheet = window.lay(b"contents");
        assert!(!sheet.is_in_frame() && window.old(sheet).is_none());
        window.keep(Span { length: 3, ..sheet });
        window.replace(Span { at: 6, length: 2, ..sheet }, b"!!");
        let (new, flat, zeroed) = window.lift(&mut Crosses(Vec::new()));
        assert_eq!((&new[..], &flat[..], zeroed), (&b"conxxx!!"[..], &b"conxxx\0\0"[..], 2));
        assert!(!window.replace(sheet, b"12345678"), "it is gone");
    }
}
