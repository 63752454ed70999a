//! Frames whose bytes may still be identified: a message in pieces names bytes of earlier frames. The oldest frames leave when the window
//! is full.
//!
//! ```text
//!   leaving ◀─ [ final: sums wait for a later frame ] [ open: bytes may still be named ] ◀─ new
//! ```
//!
//! What is known of a frame's bytes are two sets of bits, one bit a byte, and what stands in the place of those that were replaced. The new
//! frame is made when it is its turn, so that it need not wait in memory. Frames stand in blocks, which are filled again.

use crate::shape::{Notes, Plan};
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
    /// True if it is of a frame.
    pub(crate) fn is_in_frame(&self) -> bool {
        self.frame < SHEET
    }

    fn range(&self, limit: usize) -> Range<usize> {
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

/// The end of a list in a [`Block`].
const NONE: u32 = u32::MAX;
/// Where the bytes of a patch stand that is all zeros.
const ZEROS: u32 = u32::MAX;

/// Bytes that were replaced.
#[derive(Clone, Copy, Debug)]
struct Patch {
    from: u32,
    to: u32,
    /// Where the new ones begin in the block's data.
    data: u32,
    next: u32,
}

/// Frames in order: their bytes, what to do with them, and what is known of each. They come and leave in one order, so blocks do
/// as well, and are filled again. What belongs to one frame is a list, the last one first.
#[derive(Debug, Default)]
struct Block {
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
struct Leaf {
    at: u32,
    length: u32,
    places: u32,
    patches: u32,
    inside: u32,
    runs: u32,
    fixes: u32,
    crcs: u32,
}

impl Leaf {
    const EMPTY: Self = Self { at: 0, length: 0, places: 0, patches: NONE, inside: NONE, runs: 0, fixes: NONE, crcs: NONE };
}

/// Of two sets of places: those that are kept, and those that are replaced.
struct Known<'a> {
    kept: &'a [u64],
    replaced: &'a [u64],
}

impl Known<'_> {
    fn has(&self, at: usize) -> bool {
        places::has(self.kept, at) || places::has(self.replaced, at)
    }

    /// The next run that is not known, from a place on, of so many bytes.
    fn unknown(&self, from: usize, length: usize) -> Option<Range<usize>> {
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
    fn clear(&mut self) {
        self.old.clear();
        self.places.clear();
        self.patches.clear();
        self.data.clear();
        self.inside.clear();
        self.fixes.clear();
        self.crcs.clear();
    }

    /// Makes room for as much as another block has.
    fn reserve_like(&mut self, other: &Self) {
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

    fn add(&mut self, bytes: &[u8]) -> Leaf {
        let (at, places) = (self.old.len() as u32, self.places.len() as u32);
        self.old.extend_from_slice(bytes);
        self.places.resize(self.places.len() + 2 * bytes.len().div_ceil(64), 0);
        Leaf { at, length: bytes.len() as u32, places, ..Leaf::EMPTY }
    }

    fn old(&self, leaf: &Leaf) -> &[u8] {
        &self.old[leaf.at as usize..][..leaf.length as usize]
    }

    fn known(&self, leaf: &Leaf) -> Known<'_> {
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
    fn keep(&mut self, leaf: &Leaf, range: Range<usize>) {
        places::insert(self.kept_mut(leaf), range);
    }

    fn replace(&mut self, leaf: &mut Leaf, range: Range<usize>, with: With<'_>) -> bool {
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

    fn patches(&self, leaf: &Leaf) -> impl Iterator<Item = &Patch> {
        let first = self.patches.get(leaf.patches as usize);
        std::iter::successors(first, |patch| self.patches.get(patch.next as usize))
    }

    /// The new bytes of a part of a patch.
    fn with(&self, patch: &Patch, from: usize, to: usize) -> With<'_> {
        match patch.data {
            ZEROS => With::Zeros,
            data => With::Bytes(&self.data[data as usize + from - patch.from as usize..data as usize + to - patch.from as usize]),
        }
    }

    fn inside(&mut self, leaf: &mut Leaf, from: u32, to: u32, def: Def) {
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

    fn fix(&mut self, leaf: &mut Leaf, fix: Fix) {
        self.fixes.push((fix, leaf.fixes));
        leaf.fixes = self.fixes.len() as u32 - 1;
    }

    /// The fixes of a frame, the last one first.
    fn fixes(&self, leaf: &Leaf) -> impl Iterator<Item = Fix> {
        let first = self.fixes.get(leaf.fixes as usize);
        std::iter::successors(first, |(_, next)| self.fixes.get(*next as usize)).map(|(fix, _)| *fix)
    }

    /// All that is known of a frame.
    fn notes(&self, leaf: &Leaf) -> Notes {
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
    fn follow(&mut self, leaf: &mut Leaf, plan: &Plan, is_good: bool) {
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

    /// The new frame, with bytes that belong to no field blanked.
    fn make(&self, leaf: &Leaf, blank: &mut impl Blank, new: &mut Vec<u8>) {
        let old = self.old(leaf);
        new.clear();
        // contents that become zeros are not looked at
        let zeros = self.patches(leaf).filter(|patch| patch.data == ZEROS).max_by_key(|patch| patch.to - patch.from);
        let (from, to) = zeros.map_or((0, 0), |patch| (patch.from as usize, patch.to as usize));
        new.extend_from_slice(&old[..from]);
        new.resize(to, 0);
        new.extend_from_slice(&old[to..]);
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

/// A frame in the window.
#[derive(Debug)]
struct Held<M> {
    meta: M,
    /// The number of its block.
    block: u64,
    leaf: Leaf,
    /// The new frame, once it is final.
    new: Vec<u8>,
    /// The same bytes in another frame: their places here and there, and how many.
    same: Vec<(u32, Span)>,
    /// Those again, once what is known was taken over: a sum that is made later has to follow.
    copies: Vec<(u32, Span)>,
    /// Sums that cover bytes of this frame, or stand in it, and wait for a later one.
    waiting: u32,
    is_final: bool,
    is_mended: bool,
}

/// What a copy of some bytes shows about them.
enum FromCopy {
    Kept,
    Zeros,
    Bytes(Vec<u8>),
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
    sheets: Vec<(Block, Leaf)>,
    /// Where the frames stand, the oldest first, and the number of the first one.
    blocks: VecDeque<Block>,
    first_block: u64,
    /// Bytes of frames in a block.
    block_bytes: usize,
    /// Blocks and frames to be filled again.
    spare: Vec<Block>,
    blank: Vec<Vec<u8>>,
    /// Sums to be recomputed in the current frame.
    fixes: Vec<Fix>,
}

/// Frames in the window at most.
const FRAMES_MAX: usize = 1 << 17;
/// Runs of one frame that are remembered for the report.
const INSIDE_MAX: u32 = 1 << 8;
/// Buffers that wait for another frame at most.
const SPARE_MAX: usize = 8;
/// Bytes of frames in a block at most, but for one that is larger.
const BLOCK_MAX: usize = 1 << 22;

impl<M> Window<M> {
    pub(crate) fn new(limit: usize) -> Self {
        Self {
            first: 0,
            held: VecDeque::new(),
            finals: 0,
            bytes: 0,
            limit,
            crcs: BTreeMap::new(),
            sheets: Vec::new(),
            blocks: VecDeque::new(),
            first_block: 0,
            block_bytes: (limit / 8).clamp(1, BLOCK_MAX),
            spare: Vec::new(),
            blank: Vec::new(),
            fixes: Vec::new(),
        }
    }

    /// A new frame, and its number.
    pub(crate) fn push(&mut self, meta: M, bytes: &[u8]) -> u64 {
        self.bytes += bytes.len();
        if self.blocks.back().is_none_or(|block| block.old.len() + bytes.len() > self.block_bytes) {
            let mut block = self.spare.pop().unwrap_or_default();
            if let Some(before) = self.blocks.back() {
                block.reserve_like(before);
            }
            block.old.reserve(self.block_bytes.max(bytes.len()));
            self.blocks.push_back(block);
        }
        let block = self.first_block + self.blocks.len() as u64 - 1;
        let leaf = self.blocks.back_mut().map(|block| block.add(bytes)).unwrap_or(Leaf::EMPTY);
        self.held.push_back(Held {
            meta,
            block,
            leaf,
            new: Vec::new(),
            same: Vec::new(),
            copies: Vec::new(),
            waiting: 0,
            is_final: false,
            is_mended: false,
        });
        self.first + self.held.len() as u64 - 1
    }

    /// The oldest frame that may still change.
    pub(crate) fn oldest(&self) -> u64 {
        self.first + self.finals as u64
    }

    fn held(&mut self, frame: u64) -> Option<&mut Held<M>> {
        let at = usize::try_from(frame.checked_sub(self.first)?).ok()?;
        self.held.get_mut(at)
    }

    /// The block and the place of a frame that is held.
    fn place(&self, frame: u64) -> Option<(&Block, &Held<M>)> {
        let held = self.held.get(usize::try_from(frame.checked_sub(self.first)?).ok()?)?;
        Some((self.blocks.get((held.block - self.first_block) as usize)?, held))
    }

    /// What is known of a frame that is still open, or of a sheet.
    fn open(&mut self, frame: u64) -> Option<(&mut Block, &mut Leaf)> {
        if frame >= SHEET {
            return self.sheets.get_mut((frame - SHEET) as usize).map(|(block, leaf)| (block, leaf));
        }
        let held = self.held.get_mut(usize::try_from(frame.checked_sub(self.first)?).ok()?).filter(|h| !h.is_final)?;
        Some((self.blocks.get_mut((held.block - self.first_block) as usize)?, &mut held.leaf))
    }

    fn is_open(&self, frame: u64) -> bool {
        (self.oldest()..SHEET).contains(&frame)
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
        for (_, byte) in flat.iter_mut().enumerate().filter(|(i, byte)| **byte != 0 && places::has(known.replaced, *i)) {
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
        if let (Some(held), Some(block)) = (self.held.back(), self.blocks.back_mut()) {
            let end = held.leaf.length as usize;
            block.keep(&held.leaf, at.min(end)..(at + length).min(end));
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
        let (Some(held), Some(block)) = (self.held.back(), self.blocks.back()) else { return Notes::default() };
        block.notes(&held.leaf)
    }

    /// Of the newest frame is known what is of all like it.
    pub(crate) fn follow_plan(&mut self, plan: &Plan, is_good: bool) {
        if let (Some(held), Some(block)) = (self.held.back_mut(), self.blocks.back_mut()) {
            block.follow(&mut held.leaf, plan, is_good);
        }
    }

    /// The decoder found the invariant CRC of the newest frame correct, so it is to be recomputed.
    pub(crate) fn icrc_is_good(&mut self) {
        let (Some(held), Some(block)) = (self.held.back(), self.blocks.back_mut()) else { return };
        if let Some((Fix::Icrc { is_good, .. }, _)) = block.fixes.get_mut(held.leaf.fixes as usize) {
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

    /// An MPA CRC that stands in a frame right behind the bytes that it covers.
    pub(crate) fn crc_behind(&mut self, over: Span) {
        if let Some((block, leaf)) = self.open(over.frame) {
            block.crcs.push((over.at, over.at.saturating_add(over.length), leaf.crcs));
            leaf.crcs = block.crcs.len() as u32 - 1;
        }
    }

    /// Lets frames go that there is no more room for; all of them `at_the_end`.
    pub(crate) fn leave(&mut self, at_the_end: bool, blank: &mut impl Blank, out: &mut impl FnMut(M, &[u8])) {
        while self.finals < self.held.len() && (at_the_end || self.bytes > self.limit || self.held.len() - self.finals > FRAMES_MAX) {
            self.finish_one(blank);
            while self.held.front().is_some_and(|h| h.is_mended && h.waiting == 0) {
                if let Some(gone) = self.held.pop_front() {
                    self.bytes -= gone.leaf.length as usize;
                    self.first += 1;
                    self.finals -= 1;
                    out(gone.meta, &gone.new);
                    if self.blank.len() < SPARE_MAX {
                        self.blank.push(gone.new);
                    }
                }
            }
            let needed = self.held.front().map_or(self.first_block + self.blocks.len() as u64, |held| held.block);
            while self.first_block < needed
                && let Some(mut block) = self.blocks.pop_front()
            {
                self.first_block += 1;
                if self.spare.len() < SPARE_MAX {
                    block.clear();
                    self.spare.push(block);
                }
            }
        }
    }

    fn finish_one(&mut self, blank: &mut impl Blank) {
        let frame = self.oldest();
        let same = self.held(frame).map(|h| std::mem::take(&mut h.same)).unwrap_or_default();
        // twice: what is known from the last copy holds for the first, too
        for (at, there) in same.iter().chain(&same) {
            self.share(frame, *at, *there);
        }
        let mut new = self.blank.pop().unwrap_or_default();
        let Some((block, held)) = self.place(frame) else { return };
        block.make(&held.leaf, blank, &mut new);
        let mut made: Vec<(u32, [u8; 4])> = Vec::new();
        let (old, mut next) = (block.old(&held.leaf), held.leaf.crcs);
        while let Some((from, to, before)) = block.crcs.get(next as usize) {
            let (from, to) = (*from as usize, *to as usize);
            next = *before;
            let Some(stated) = old.get(to..).and_then(|b| b.first_chunk()) else { continue };
            let crc = sums::mpa(*stated, &old[from..to], &new[from..to]);
            new[to..to + crc.len()].copy_from_slice(&crc);
            if !same.is_empty() {
                made.push((to as u32, crc));
            }
        }
        let Some(held) = self.held(frame) else { return };
        (held.copies, held.new, held.is_final) = (same, new, true);
        self.finals += 1;
        for (at, crc) in made {
            self.follow(Span { frame, at, length: crc.len() as u32 }, &crc);
        }
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

    /// Recomputes the sums of a frame once nothing in it changes any more.
    fn mend(&mut self, frame: u64) {
        let Some(at) = frame.checked_sub(self.first) else { return };
        let Some(held) = self.held.get_mut(at as usize).filter(|h| h.is_final && !h.is_mended && h.waiting == 0) else { return };
        let Some(block) = self.blocks.get((held.block - self.first_block) as usize) else { return };
        self.fixes.clear();
        self.fixes.extend(block.fixes(&held.leaf));
        self.fixes.reverse();
        sums::mend(&self.fixes, block.old(&held.leaf), &mut held.new);
        held.is_mended = true;
    }

    /// What is known of one copy of bytes is taken over for the other.
    fn share(&mut self, frame: u64, at: u32, there: Span) {
        let Some((here, other)) = self.place(frame).zip(self.place(there.frame)) else { return };
        let ((here, mine), (other, theirs)) = ((here, here.0), (other, other.0));
        if frame >= there.frame {
            return;
        }
        let (old, old_there) = (mine.old(&here.1.leaf), theirs.old(&other.1.leaf));
        let (from, offset) = ((at as usize).min(old.len()), there.at as usize);
        let length = (there.length as usize).min(old.len() - from).min(old_there.len().saturating_sub(offset));
        let (known, known_there) = (mine.known(&here.1.leaf), theirs.known(&other.1.leaf));
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
                (false, true) => (frame, n, (theirs, &other.1.leaf, &known_there), m),
                (true, false) => (there.frame, m, (mine, &here.1.leaf, &known), n),
                _ => continue,
            };
            let (block, leaf, known) = source;
            let patch = block.patches(leaf).find(|p| (p.from as usize..p.to as usize).contains(&at));
            let byte = patch.filter(|_| places::has(known.replaced, at)).map(|patch| block.with(patch, at, at + 1));
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
            let (from, to) = (span.at.max(*at), (span.at + span.length).min(at.saturating_add(there.length)));
            if from >= to {
                continue;
            }
            let copy = Span { frame: there.frame, at: there.at + (from - at), length: to - from };
            let is_same = self.old(copy).is_some_and(|bytes| self.old(Span { at: from, length: to - from, ..span }) == Some(bytes));
            if is_same {
                self.replace(copy, With::Bytes(&made[(from - span.at) as usize..(to - span.at) as usize]));
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
            if let Some(held) = self.held(span.frame)
                && let Some(to) = held.new.get_mut(span.at as usize..).and_then(|b| b.get_mut(..mine.len()))
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
            assert!(window.replace(span(frame, at + length / 2, 1), With::Bytes(b"r")));
            assert!(!window.replace(span(frame, at + length / 2, 1), With::Bytes(b"s")), "what was replaced stays");
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
        window.replace(span(b, 3, 2), With::Bytes(b"12"));
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
        window.replace(Span { at: 6, length: 2, ..sheet }, With::Bytes(b"!!"));
        let (new, flat, zeroed) = window.lift(&mut Crosses(Vec::new()));
        assert_eq!((&new[..], &flat[..], zeroed), (&b"conxxx!!"[..], &b"conxxx\0\0"[..], 2));
        assert!(!window.replace(sheet, With::Bytes(b"12345678")), "it is gone");
    }
}
