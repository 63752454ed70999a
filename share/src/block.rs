//! Blocks of frames: the contiguous bytes of several frames, and what is known about each byte.
//!
//! Two bit sets of a frame, one bit a byte, mark kept and replaced bytes; patches hold the replacements. The new frame
//! is made only when it leaves, so it takes no memory while it waits.

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

/// Numbers from here on belong to scratch buffers: bytes outside any frame, for example the content of a compressed
/// message.
pub(crate) const SCRATCH: u64 = 1 << 63;

impl Span {
    /// True if the span is in a frame, false if it is in a scratch buffer.
    pub(crate) fn is_in_frame(&self) -> bool {
        self.frame < SCRATCH
    }

    pub(crate) fn range(&self, limit: usize) -> Range<usize> {
        let at = (self.at as usize).min(limit);
        at..(self.at.saturating_add(self.length) as usize).min(limit).max(at)
    }
}

/// Fills bytes that belong to no field.
pub(crate) trait Blank {
    /// Fills `to`. `was` are the old bytes; `inside` is the field that contains them, if any.
    fn blank(&mut self, inside: Option<Def>, was: &[u8], to: &mut [u8]);
}

/// Bit sets over the bytes of a frame.
mod places {
    use super::Range;

    /// The words that cover a range, each with a mask of the bits inside the range.
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
        // most fields lie within one word
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

    /// Runs of set bits among the first `length` bits.
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

/// Replacement of bytes.
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

/// Limit of runs of one frame that are kept for the report.
const INSIDE_MAX: u32 = 1 << 8;
/// End of a linked list in a [`Block`].
const NONE: u32 = u32::MAX;
/// Value of [`Patch::data`] for a patch of zeros.
const ZEROS: u32 = u32::MAX;

/// A run of replaced bytes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Patch {
    from: u32,
    to: u32,
    /// Offset of the new bytes in the block's data.
    data: u32,
    next: u32,
}

/// Consecutive frames: their bytes, and what is known about each. Frames are added and removed in order, so a whole
/// block is reused. The items of one frame form a linked list, newest first.
#[derive(Debug, Default)]
pub(crate) struct Block {
    old: Vec<u8>,
    /// Two bit sets for each frame: kept bytes, then replaced bytes.
    places: Vec<u64>,
    patches: Vec<Patch>,
    data: Vec<u8>,
    /// Runs of bytes that lie inside a field which other fields describe: start, end, field, next.
    inside: Vec<(u32, u32, Def, u32)>,
    fixes: Vec<(Fix, u32)>,
    /// MPA CRCs that directly follow the bytes they cover, in the same frame: start, end, next.
    crcs: Vec<(u32, u32, u32)>,
}

/// Place of a frame in its block, and the heads of its lists.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Slot {
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
    /// True if the patch covers this offset.
    pub(crate) fn has(&self, at: usize) -> bool {
        (self.from as usize..self.to as usize).contains(&at)
    }
}

impl Slot {
    /// True if the frame contains MPA CRCs that directly follow the bytes they cover.
    pub(crate) fn has_crcs(&self) -> bool {
        self.crcs != NONE
    }

    /// Range of the frame among the bytes of its block.
    pub(crate) fn range(&self) -> Range<usize> {
        self.at as usize..self.at as usize + self.length as usize
    }

    pub(crate) const EMPTY: Self =
        Self { at: 0, length: 0, places: 0, patches: NONE, inside: NONE, runs: 0, fixes: NONE, crcs: NONE };
}

/// Bit sets of a frame: kept and replaced bytes.
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

    /// The next run of unknown bytes from offset `from` on, in a frame of `length` bytes.
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

    /// Reserves the capacities that another block used.
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

    /// Length of all frames, in bytes.
    pub(crate) fn length(&self) -> usize {
        self.old.len()
    }

    /// The bytes of all frames, contiguous.
    pub(crate) fn all(&self) -> &[u8] {
        &self.old
    }

    /// Reserves room for the bytes of frames.
    pub(crate) fn reserve(&mut self, bytes: usize) {
        self.old.reserve(bytes);
    }

    pub(crate) fn add(&mut self, bytes: &[u8]) -> Slot {
        let (at, places) = (self.old.len() as u32, self.places.len() as u32);
        self.old.extend_from_slice(bytes);
        self.places.resize(self.places.len() + 2 * bytes.len().div_ceil(64), 0);
        Slot { at, length: bytes.len() as u32, places, ..Slot::EMPTY }
    }

    pub(crate) fn old(&self, slot: &Slot) -> &[u8] {
        &self.old[slot.at as usize..][..slot.length as usize]
    }

    pub(crate) fn known(&self, slot: &Slot) -> Known<'_> {
        let words = (slot.length as usize).div_ceil(64);
        let (kept, replaced) = self.places[slot.places as usize..][..2 * words].split_at(words);
        Known { kept, replaced }
    }

    fn kept_mut(&mut self, slot: &Slot) -> &mut [u64] {
        &mut self.places[slot.places as usize..][..(slot.length as usize).div_ceil(64)]
    }

    fn replaced_mut(&mut self, slot: &Slot) -> &mut [u64] {
        let words = (slot.length as usize).div_ceil(64);
        &mut self.places[slot.places as usize + words..][..words]
    }

    #[inline]
    pub(crate) fn keep(&mut self, slot: &Slot, range: Range<usize>) {
        places::insert(self.kept_mut(slot), range);
    }

    pub(crate) fn replace(&mut self, slot: &mut Slot, range: Range<usize>, with: With<'_>) -> bool {
        let range = match with {
            With::Zeros => range,
            With::Bytes(bytes) => range.start..range.end.min(range.start + bytes.len()),
        };
        let mut any = false;
        if !places::has_any(self.known(slot).replaced, range.clone()) {
            any = !range.is_empty();
            self.patch(slot, range.clone(), with.part(0..range.len()));
        } else {
            let mut at = range.start;
            while at < range.end {
                let known = self.known(slot);
                let end = (at..range.end).find(|i| places::has(known.replaced, *i)).unwrap_or(range.end);
                if at == end {
                    at += 1;
                    continue;
                }
                any = true;
                self.patch(slot, at..end, with.part(at - range.start..end - range.start));
                at = end;
            }
        }
        places::insert(self.replaced_mut(slot), range);
        any
    }

    fn patch(&mut self, slot: &mut Slot, range: Range<usize>, with: With<'_>) {
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
        self.patches.push(Patch { from: range.start as u32, to: range.end as u32, data, next: slot.patches });
        slot.patches = self.patches.len() as u32 - 1;
    }

    pub(crate) fn patches(&self, slot: &Slot) -> impl Iterator<Item = &Patch> {
        let first = self.patches.get(slot.patches as usize);
        std::iter::successors(first, |patch| self.patches.get(patch.next as usize))
    }

    /// The new bytes of a part of a patch.
    pub(crate) fn with(&self, patch: &Patch, from: usize, to: usize) -> With<'_> {
        match patch.data {
            ZEROS => With::Zeros,
            data => With::Bytes(
                &self.data[data as usize + from - patch.from as usize..data as usize + to - patch.from as usize],
            ),
        }
    }

    pub(crate) fn inside(&mut self, slot: &mut Slot, from: u32, to: u32, def: Def) {
        if slot.runs < INSIDE_MAX {
            self.inside.push((from, to, def, slot.inside));
            slot.inside = self.inside.len() as u32 - 1;
            slot.runs += 1;
        }
    }

    /// The innermost run that contains an offset: its end and field.
    fn innermost(&self, slot: &Slot, at: usize) -> Option<(usize, Def)> {
        let first = self.inside.get(slot.inside as usize);
        let mut runs = std::iter::successors(first, |(.., next)| self.inside.get(*next as usize));
        runs.find(|(from, to, ..)| (*from as usize..*to as usize).contains(&at))
            .map(|(_, to, def, _)| (*to as usize, *def))
    }

    pub(crate) fn fix(&mut self, slot: &mut Slot, fix: Fix) {
        self.fixes.push((fix, slot.fixes));
        slot.fixes = self.fixes.len() as u32 - 1;
    }

    /// Notes that the decoder verified the invariant CRC that was added last.
    pub(crate) fn icrc_is_good(&mut self, slot: &Slot) {
        if let Some((Fix::Icrc { is_good, .. }, _)) = self.fixes.get_mut(slot.fixes as usize) {
            *is_good = true;
        }
    }

    /// Adds an MPA CRC that directly follows the bytes it covers.
    pub(crate) fn crc(&mut self, slot: &mut Slot, from: u32, to: u32) {
        self.crcs.push((from, to, slot.crcs));
        slot.crcs = self.crcs.len() as u32 - 1;
    }

    /// Recomputes the MPA CRCs that directly follow their bytes in a new frame, and reports the offset of each.
    pub(crate) fn make_crcs(&self, slot: &Slot, new: &mut [u8], mut made: impl FnMut(u32, [u8; 4])) {
        let (old, mut next) = (self.old(slot), slot.crcs);
        while let Some((from, to, before)) = self.crcs.get(next as usize) {
            let (from, to) = (*from as usize, *to as usize);
            next = *before;
            let Some(stated) = old.get(to..).and_then(|b| b.first_chunk()) else { continue };
            let crc = sums::mpa(*stated, &old[from..to], &new[from..to]);
            new[to..to + crc.len()].copy_from_slice(&crc);
            made(to as u32, crc);
        }
    }

    /// Recomputes the checksums of a new frame whose other bytes are final.
    pub(crate) fn mend(&self, slot: &Slot, new: &mut [u8], fixes: &mut Vec<Fix>) {
        fixes.clear();
        fixes.extend(self.fixes(slot));
        fixes.reverse();
        sums::mend(fixes, self.old(slot), new);
    }

    /// Checksums to recompute in a frame, newest first.
    pub(crate) fn fixes(&self, slot: &Slot) -> impl Iterator<Item = Fix> {
        let first = self.fixes.get(slot.fixes as usize);
        std::iter::successors(first, |(_, next)| self.fixes.get(*next as usize)).map(|(fix, _)| *fix)
    }

    /// Everything known about a frame.
    pub(crate) fn notes(&self, slot: &Slot) -> Notes {
        let range = |from: u32, to: u32| from as usize..to as usize;
        let patch = |patch: &Patch| {
            let bytes = match self.with(patch, patch.from as usize, patch.to as usize) {
                With::Zeros => None,
                With::Bytes(bytes) => Some(bytes.to_vec()),
            };
            (range(patch.from, patch.to), bytes)
        };
        let first = self.inside.get(slot.inside as usize);
        let inside = std::iter::successors(first, |(.., next)| self.inside.get(*next as usize));
        let mut notes = Notes {
            kept: places::runs(self.known(slot).kept, slot.length as usize),
            replaced: self.patches(slot).map(patch).collect(),
            inside: inside.map(|(from, to, def, _)| (range(*from, *to), *def)).collect(),
            fixes: self.fixes(slot).collect(),
        };
        // the lists are newest first
        notes.replaced.reverse();
        notes.inside.reverse();
        notes.fixes.reverse();
        notes
    }

    /// Applies the plan of a frame's shape to a frame about which nothing is known yet.
    pub(crate) fn follow(&mut self, slot: &mut Slot, plan: &Plan, is_good: bool) {
        let length = slot.length as usize;
        let words = length.div_ceil(64);
        let (kept, replaced) = self.places[slot.places as usize..][..2 * words].split_at_mut(words);
        for range in plan.kept(length) {
            places::insert(kept, range);
        }
        for (from, with) in plan.replaced() {
            let data = self.data.len() as u32;
            self.data.extend_from_slice(with);
            places::insert(replaced, from..from + with.len());
            self.patches.push(Patch { from: from as u32, to: (from + with.len()) as u32, data, next: slot.patches });
            slot.patches = self.patches.len() as u32 - 1;
        }
        for (range, def) in plan.inside(length) {
            self.inside(slot, range.start as u32, range.end as u32, def);
        }
        for fix in plan.fixes(length, is_good) {
            self.fix(slot, fix);
        }
    }

    /// Appends the new frame to `made`. Unknown bytes are blanked.
    pub(crate) fn make(&self, slot: &Slot, blank: &mut impl Blank, made: &mut Vec<u8>) {
        let old = self.old(slot);
        let begin = made.len();
        // contents that become zeros are not copied first
        let zeros = self.patches(slot).filter(|patch| patch.data == ZEROS).max_by_key(|patch| patch.to - patch.from);
        let (from, to) = zeros.map_or((0, 0), |patch| (patch.from as usize, patch.to as usize));
        made.extend_from_slice(&old[..from]);
        made.resize(begin + to, 0);
        made.extend_from_slice(&old[to..]);
        let new = &mut made[begin..];
        for patch in self.patches(slot) {
            let (start, end) = (patch.from as usize, patch.to as usize);
            match self.with(patch, start, end) {
                With::Zeros if start == from => {}
                With::Zeros => new[start..end].fill(0),
                With::Bytes(bytes) => new[start..end].copy_from_slice(bytes),
            }
        }
        let known = self.known(slot);
        let mut at = 0;
        while let Some(run) = known.unknown(at, old.len()) {
            let inside = self.innermost(slot, run.start);
            // up to the end of the unknown bytes, or of the field that contains them
            let end = inside.map_or(run.end, |(to, _)| run.end.min(to));
            blank.blank(inside.map(|(_, def)| def), &old[run.start..end], &mut new[run.start..end]);
            at = end;
        }
    }
}
