//! Frames in blocks: their bytes, one behind the other, and what is known of each.
//!
//! What is known of a frame's bytes are two sets of bits, one bit a byte, and what stands in the place of those that were replaced. The new
//! frame is made when it is its turn, so that it need not wait in memory.

use crate::shape::{Notes, Plan};
use crate::sums::{self, Fix};
use rdmascope_dissector::field::Def;
use std::ops::Range;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Span {
    pub(crate) frame: u64,
    pub(crate) at: u32,
    pub(crate) length: u32,
}

/// Numbers of sheets: bytes that stand in no frame, as what was compressed there.
pub(crate) const SHEET: u64 = 1 << 63;

impl Span {
    /// True if it is of a frame.
    pub(crate) fn is_in_frame(&self) -> bool {
        self.frame < SHEET
    }

    pub(crate) fn range(&self, limit: usize) -> Range<usize> {
        let at = (self.at as usize).min(limit);
        at..(self.at.saturating_add(self.length) as usize).min(limit).max(at)
    }
}

/// What to do with bytes that belong to no field.
pub(crate) trait Blank {
    /// Fills `to`, where `was` was, in the field `inside`, if there is one.
    fn blank(&mut self, inside: Option<Def>, was: &[u8], to: &mut [u8]);
}

/// Sets of places, one bit each.
mod places {
    use super::Range;

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
    pub(super) fn insert(set: &mut [u64], range: Range<usize>) {
        // most fields lie in one word
        if range.start / 64 == range.end / 64 {
            let bits = (1_u64 << (range.end % 64)) - (1 << (range.start % 64));
            if let Some(word) = set.get_mut(range.start / 64) {
                *word |= bits;
            }
            return;
        }
        for (word, bits) in words(range) {
            set[word] |= bits;
        }
    }

    #[inline]
    pub(super) fn has(set: &[u64], at: usize) -> bool {
        set[at / 64] >> (at % 64) & 1 == 1
    }

    pub(super) fn has_any(set: &[u64], range: Range<usize>) -> bool {
        words(range).any(|(word, bits)| set[word] & bits != 0)
    }

    /// The runs of places that are in the set, of so many.
    pub(super) fn runs(set: &[u64], length: usize) -> Vec<Range<usize>> {
        let mut runs: Vec<Range<usize>> = Vec::new();
        for at in (0..length).filter(|at| has(set, *at)) {
            match runs.last_mut().filter(|run| run.end == at) {
                Some(run) => run.end += 1,
                None => runs.push(at..at + 1),
            }
        }
        runs
    }
}

/// What stands in the place of bytes.
#[derive(Clone, Copy, Debug)]
pub(crate) enum With<'a> {
    Zeros,
    Bytes(&'a [u8]),
}

impl With<'_> {
    pub(crate) fn part(&self, range: Range<usize>) -> Self {
        match self {
            Self::Zeros => Self::Zeros,
            Self::Bytes(bytes) => Self::Bytes(&bytes[range]),
        }
    }
}

/// Runs of one frame that are remembered for the report.
const INSIDE_MAX: u32 = 1 << 8;
/// The end of a list in a [`Block`].
const NONE: u32 = u32::MAX;
/// Where the bytes of a patch stand that is all zeros.
const ZEROS: u32 = u32::MAX;

/// Bytes that were replaced.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Patch {
    from: u32,
    to: u32,
    /// Where the new ones begin in the block's data.
    data: u32,
    next: u32,
}

/// Frames in order: their bytes, what to do with them, and what is known of each. They come and leave in one order, so blocks do
/// as well, and are filled again. What belongs to one frame is a list, the last one first.
#[derive(Debug, Default)]
pub(crate) struct Block {
    old: Vec<u8>,
    /// Of each frame two sets of places: those that give nothing away, and those that were replaced.
    places: Vec<u64>,
    patches: Vec<Patch>,
    data: Vec<u8>,
    /// Runs of bytes of which other fields tell.
    inside: Vec<(u32, u32, Def, u32)>,
    fixes: Vec<(Fix, u32)>,
    /// MPA CRCs that stand right behind the bytes of the same frame that they cover: from where to where.
    crcs: Vec<(u32, u32, u32)>,
}

/// Where a frame stands in its block.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Leaf {
    at: u32,
    pub(crate) length: u32,
    places: u32,
    patches: u32,
    inside: u32,
    runs: u32,
    fixes: u32,
    crcs: u32,
}

impl Patch {
    /// True if it has this place.
    pub(crate) fn has(&self, at: usize) -> bool {
        (self.from as usize..self.to as usize).contains(&at)
    }
}

impl Leaf {
    /// True if MPA CRCs stand in it behind their bytes.
    pub(crate) fn has_crcs(&self) -> bool {
        self.crcs != NONE
    }

    /// Where the frame stands among all bytes of its block.
    pub(crate) fn range(&self) -> Range<usize> {
        self.at as usize..self.at as usize + self.length as usize
    }

    pub(crate) const EMPTY: Self = Self { at: 0, length: 0, places: 0, patches: NONE, inside: NONE, runs: 0, fixes: NONE, crcs: NONE };
}

/// Of two sets of places: those that are kept, and those that are replaced.
pub(crate) struct Known<'a> {
    kept: &'a [u64],
    replaced: &'a [u64],
}

impl Known<'_> {
    pub(crate) fn is_replaced(&self, at: usize) -> bool {
        places::has(self.replaced, at)
    }

    pub(crate) fn has(&self, at: usize) -> bool {
        places::has(self.kept, at) || places::has(self.replaced, at)
    }

    /// The next run that is not known, from a place on, of so many bytes.
    pub(crate) fn unknown(&self, from: usize, length: usize) -> Option<Range<usize>> {
        let next = |from: usize, wanted: bool| {
            let mut word = from / 64;
            let mut mask = u64::MAX << (from % 64);
            while word * 64 < length {
                let known = self.kept[word] | self.replaced[word];
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
}

impl Block {
    pub(crate) fn clear(&mut self) {
        self.old.clear();
        self.places.clear();
        self.patches.clear();
        self.data.clear();
        self.inside.clear();
        self.fixes.clear();
        self.crcs.clear();
    }

    /// Makes room for as much as another block has.
    pub(crate) fn reserve_like(&mut self, other: &Self) {
        fn reserve<T>(mine: &mut Vec<T>, other: &[T]) {
            mine.reserve(other.len() + other.len() / 16);
        }
        reserve(&mut self.places, &other.places);
        reserve(&mut self.patches, &other.patches);
        reserve(&mut self.data, &other.data);
        reserve(&mut self.inside, &other.inside);
        reserve(&mut self.fixes, &other.fixes);
        reserve(&mut self.crcs, &other.crcs);
    }

    /// Bytes of its frames.
    pub(crate) fn length(&self) -> usize {
        self.old.len()
    }

    /// The bytes of all frames, one behind the other.
    pub(crate) fn all(&self) -> &[u8] {
        &self.old
    }

    /// Makes room for so many bytes of frames.
    pub(crate) fn reserve(&mut self, bytes: usize) {
        self.old.reserve(bytes);
    }

    pub(crate) fn add(&mut self, bytes: &[u8]) -> Leaf {
        let (at, places) = (self.old.len() as u32, self.places.len() as u32);
        self.old.extend_from_slice(bytes);
        self.places.resize(self.places.len() + 2 * bytes.len().div_ceil(64), 0);
        Leaf { at, length: bytes.len() as u32, places, ..Leaf::EMPTY }
    }

    pub(crate) fn old(&self, leaf: &Leaf) -> &[u8] {
        &self.old[leaf.at as usize..][..leaf.length as usize]
    }

    pub(crate) fn known(&self, leaf: &Leaf) -> Known<'_> {
        let words = (leaf.length as usize).div_ceil(64);
        let (kept, replaced) = self.places[leaf.places as usize..][..2 * words].split_at(words);
        Known { kept, replaced }
    }

    fn kept_mut(&mut self, leaf: &Leaf) -> &mut [u64] {
        &mut self.places[leaf.places as usize..][..(leaf.length as usize).div_ceil(64)]
    }

    fn replaced_mut(&mut self, leaf: &Leaf) -> &mut [u64] {
        let words = (leaf.length as usize).div_ceil(64);
        &mut self.places[leaf.places as usize + words..][..words]
    }

    #[inline]
    pub(crate) fn keep(&mut self, leaf: &Leaf, range: Range<usize>) {
        places::insert(self.kept_mut(leaf), range);
    }

    pub(crate) fn replace(&mut self, leaf: &mut Leaf, range: Range<usize>, with: With<'_>) -> bool {
        let range = match with {
            With::Zeros => range,
            With::Bytes(bytes) => range.start..range.end.min(range.start + bytes.len()),
        };
        let mut any = false;
        if !places::has_any(self.known(leaf).replaced, range.clone()) {
            any = !range.is_empty();
            self.patch(leaf, range.clone(), with.part(0..range.len()));
        } else {
            let mut at = range.start;
            while at < range.end {
                let known = self.known(leaf);
                let end = (at..range.end).find(|i| places::has(known.replaced, *i)).unwrap_or(range.end);
                if at == end {
                    at += 1;
                    continue;
                }
                any = true;
                self.patch(leaf, at..end, with.part(at - range.start..end - range.start));
                at = end;
            }
        }
        places::insert(self.replaced_mut(leaf), range);
        any
    }

    fn patch(&mut self, leaf: &mut Leaf, range: Range<usize>, with: With<'_>) {
        if range.is_empty() {
            return;
        }
        let data = match with {
            With::Zeros => ZEROS,
            With::Bytes(bytes) => {
                let at = self.data.len() as u32;
                self.data.extend_from_slice(bytes);
                at
            }
        };
        self.patches.push(Patch { from: range.start as u32, to: range.end as u32, data, next: leaf.patches });
        leaf.patches = self.patches.len() as u32 - 1;
    }

    pub(crate) fn patches(&self, leaf: &Leaf) -> impl Iterator<Item = &Patch> {
        let first = self.patches.get(leaf.patches as usize);
        std::iter::successors(first, |patch| self.patches.get(patch.next as usize))
    }

    /// The new bytes of a part of a patch.
    pub(crate) fn with(&self, patch: &Patch, from: usize, to: usize) -> With<'_> {
        match patch.data {
            ZEROS => With::Zeros,
            data => With::Bytes(&self.data[data as usize + from - patch.from as usize..data as usize + to - patch.from as usize]),
        }
    }

    pub(crate) fn inside(&mut self, leaf: &mut Leaf, from: u32, to: u32, def: Def) {
        if leaf.runs < INSIDE_MAX {
            self.inside.push((from, to, def, leaf.inside));
            leaf.inside = self.inside.len() as u32 - 1;
            leaf.runs += 1;
        }
    }

    /// The innermost run at a place.
    fn innermost(&self, leaf: &Leaf, at: usize) -> Option<(usize, Def)> {
        let first = self.inside.get(leaf.inside as usize);
        let mut runs = std::iter::successors(first, |(.., next)| self.inside.get(*next as usize));
        runs.find(|(from, to, ..)| (*from as usize..*to as usize).contains(&at)).map(|(_, to, def, _)| (*to as usize, *def))
    }

    pub(crate) fn fix(&mut self, leaf: &mut Leaf, fix: Fix) {
        self.fixes.push((fix, leaf.fixes));
        leaf.fixes = self.fixes.len() as u32 - 1;
    }

    /// The invariant CRC noted last is correct.
    pub(crate) fn icrc_is_good(&mut self, leaf: &Leaf) {
        if let Some((Fix::Icrc { is_good, .. }, _)) = self.fixes.get_mut(leaf.fixes as usize) {
            *is_good = true;
        }
    }

    /// An MPA CRC stands right behind the bytes that it covers.
    pub(crate) fn crc(&mut self, leaf: &mut Leaf, from: u32, to: u32) {
        self.crcs.push((from, to, leaf.crcs));
        leaf.crcs = self.crcs.len() as u32 - 1;
    }

    /// Makes the MPA CRCs of a new frame that stand behind their bytes, and tells where each is.
    pub(crate) fn make_crcs(&self, leaf: &Leaf, new: &mut [u8], mut made: impl FnMut(u32, [u8; 4])) {
        let (old, mut next) = (self.old(leaf), leaf.crcs);
        while let Some((from, to, before)) = self.crcs.get(next as usize) {
            let (from, to) = (*from as usize, *to as usize);
            next = *before;
            let Some(stated) = old.get(to..).and_then(|b| b.first_chunk()) else { continue };
            let crc = sums::mpa(*stated, &old[from..to], &new[from..to]);
            new[to..to + crc.len()].copy_from_slice(&crc);
            made(to as u32, crc);
        }
    }

    /// Recomputes the sums of a new frame of which nothing else changes.
    pub(crate) fn mend(&self, leaf: &Leaf, new: &mut [u8], fixes: &mut Vec<Fix>) {
        fixes.clear();
        fixes.extend(self.fixes(leaf));
        fixes.reverse();
        sums::mend(fixes, self.old(leaf), new);
    }

    /// The fixes of a frame, the last one first.
    pub(crate) fn fixes(&self, leaf: &Leaf) -> impl Iterator<Item = Fix> {
        let first = self.fixes.get(leaf.fixes as usize);
        std::iter::successors(first, |(_, next)| self.fixes.get(*next as usize)).map(|(fix, _)| *fix)
    }

    /// All that is known of a frame.
    pub(crate) fn notes(&self, leaf: &Leaf) -> Notes {
        let range = |from: u32, to: u32| from as usize..to as usize;
        let patch = |patch: &Patch| {
            let bytes = match self.with(patch, patch.from as usize, patch.to as usize) {
                With::Zeros => None,
                With::Bytes(bytes) => Some(bytes.to_vec()),
            };
            (range(patch.from, patch.to), bytes)
        };
        let first = self.inside.get(leaf.inside as usize);
        let inside = std::iter::successors(first, |(.., next)| self.inside.get(*next as usize));
        let mut notes = Notes {
            kept: places::runs(self.known(leaf).kept, leaf.length as usize),
            replaced: self.patches(leaf).map(patch).collect(),
            inside: inside.map(|(from, to, def, _)| (range(*from, *to), *def)).collect(),
            fixes: self.fixes(leaf).collect(),
        };
        // the lists have the last one first
        notes.replaced.reverse();
        notes.inside.reverse();
        notes.fixes.reverse();
        notes
    }

    /// Notes of a frame of which nothing is known yet what is known of all like it.
    pub(crate) fn follow(&mut self, leaf: &mut Leaf, plan: &Plan, is_good: bool) {
        let length = leaf.length as usize;
        let words = length.div_ceil(64);
        let (kept, replaced) = self.places[leaf.places as usize..][..2 * words].split_at_mut(words);
        for range in plan.kept(length) {
            places::insert(kept, range);
        }
        for (from, with) in plan.replaced() {
            let data = self.data.len() as u32;
            self.data.extend_from_slice(with);
            places::insert(replaced, from..from + with.len());
            self.patches.push(Patch { from: from as u32, to: (from + with.len()) as u32, data, next: leaf.patches });
            leaf.patches = self.patches.len() as u32 - 1;
        }
        for (range, def) in plan.inside(length) {
            self.inside(leaf, range.start as u32, range.end as u32, def);
        }
        for fix in plan.fixes(length, is_good) {
            self.fix(leaf, fix);
        }
    }

    /// The new frame, with bytes that belong to no field blanked, behind what is there.
    pub(crate) fn make(&self, leaf: &Leaf, blank: &mut impl Blank, made: &mut Vec<u8>) {
        let old = self.old(leaf);
        let begin = made.len();
        // contents that become zeros are not looked at
        let zeros = self.patches(leaf).filter(|patch| patch.data == ZEROS).max_by_key(|patch| patch.to - patch.from);
        let (from, to) = zeros.map_or((0, 0), |patch| (patch.from as usize, patch.to as usize));
        made.extend_from_slice(&old[..from]);
        made.resize(begin + to, 0);
        made.extend_from_slice(&old[to..]);
        let new = &mut made[begin..];
        for patch in self.patches(leaf) {
            let (start, end) = (patch.from as usize, patch.to as usize);
            match self.with(patch, start, end) {
                With::Zeros if start == from => {}
                With::Zeros => new[start..end].fill(0),
                With::Bytes(bytes) => new[start..end].copy_from_slice(bytes),
            }
        }
        let known = self.known(leaf);
        let mut at = 0;
        while let Some(run) = known.unknown(at, old.len()) {
            let inside = self.innermost(leaf, run.start);
            // to the end of what is not known, or of the field that it is in
            let end = inside.map_or(run.end, |(to, _)| run.end.min(to));
            blank.blank(inside.map(|(_, def)| def), &old[run.start..end], &mut new[run.start..end]);
            at = end;
        }
    }
}
