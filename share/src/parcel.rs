//! Frames of which nothing more becomes known, and their way out: whoever has time makes the new ones, on any thread.
//!
//! ```text
//!   window ─▶ Parcel ─▶ make: contents, MPA CRCs, invariant CRCs, checksums ─▶ Made ─▶ out, in the order of parcels
//!      ▲                                                                        │
//!      └──────────────────────────── to be filled again ────────────────────────┘
//! ```

use crate::block::{Blank, Block, Leaf, Span};
use crate::mapping::Stream;
use crate::sums;
use crate::tally::{Blanked, Payload};
use rdmascope_dissector::field::Def;

/// A frame on a shelf.
#[derive(Debug)]
pub(crate) struct Held<M> {
    meta: M,
    pub(crate) leaf: Leaf,
    /// The new frame, where another one hangs on it.
    pub(crate) new: Vec<u8>,
    /// The same bytes in another frame: their places here and there, and how many.
    pub(crate) same: Vec<(u32, Span)>,
    /// Those again, once what is known was taken over: a sum that is made later has to follow.
    pub(crate) copies: Vec<(u32, Span)>,
    /// The same of earlier frames, as long as more may become known of this one.
    pub(crate) earlier: Vec<(u32, Span)>,
    /// True if there are any.
    pub(crate) is_copied: bool,
    /// A CRC of the shelf covers bytes of it, or stands in it.
    has_crc: bool,
}

/// A CRC over several frames.
#[derive(Debug)]
pub(crate) struct Crc {
    pub(crate) over: Vec<Span>,
    pub(crate) at: Vec<Span>,
    /// Where parts of it stand too, in frames up to the last of those: from which of its bytes on.
    pub(crate) copies: Vec<(usize, Span)>,
}

impl Crc {
    /// What it covers, and where it stands.
    pub(crate) fn spans(&self) -> impl Iterator<Item = &Span> {
        self.over.iter().chain(&self.at).chain(self.copies.iter().map(|(_, span)| span))
    }
}

/// Frames that stand together.
#[derive(Debug)]
pub(crate) struct Shelf<M> {
    /// Number of the first one.
    pub(crate) first: u64,
    pub(crate) block: Block,
    frames: Vec<Held<M>>,
    /// CRCs over several of its frames, once nothing in them changes.
    crcs: Vec<Crc>,
    /// Stretches of CRCs that wait for a later frame.
    pub(crate) waiting: u32,
}

impl<M> Default for Shelf<M> {
    fn default() -> Self {
        Self { first: 0, block: Block::default(), frames: Vec::new(), crcs: Vec::new(), waiting: 0 }
    }
}

impl<M> Shelf<M> {
    /// The next frame is its first one. It will have about as much as the shelf before, and so many bytes at most.
    pub(crate) fn begin(&mut self, first: u64, before: Option<&Self>, bytes: usize) {
        self.first = first;
        if let Some(before) = before {
            self.block.reserve_like(&before.block);
            self.frames.reserve(before.frames.len());
        }
        self.block.reserve(bytes);
    }

    pub(crate) fn push(&mut self, meta: M, bytes: &[u8]) {
        let leaf = self.block.add(bytes);
        let (same, copies, earlier) = (Vec::new(), Vec::new(), Vec::new());
        self.frames.push(Held { meta, leaf, new: Vec::new(), same, copies, earlier, is_copied: false, has_crc: false });
    }

    fn place(&self, frame: u64) -> Option<usize> {
        usize::try_from(frame.checked_sub(self.first)?).ok()
    }

    pub(crate) fn held(&self, frame: u64) -> Option<&Held<M>> {
        self.frames.get(self.place(frame)?)
    }

    pub(crate) fn held_mut(&mut self, frame: u64) -> Option<&mut Held<M>> {
        let place = self.place(frame)?;
        self.frames.get_mut(place)
    }

    pub(crate) fn leaf_mut(&mut self, frame: u64) -> Option<(&mut Block, &mut Leaf)> {
        let place = self.place(frame)?;
        let held = self.frames.get_mut(place)?;
        Some((&mut self.block, &mut held.leaf))
    }

    /// A CRC that is made together with the frames.
    pub(crate) fn add_crc(&mut self, crc: Crc) {
        for span in crc.spans() {
            if let Some(held) = self.held_mut(span.frame) {
                held.has_crc = true;
            }
        }
        self.crcs.push(crc);
    }
}

/// Frames to be made anew; see the module.
#[derive(Debug)]
pub struct Parcel<M> {
    shelf: Shelf<M>,
    stream: Stream,
    payload: Payload,
    made: Vec<u8>,
}

/// New frames.
#[derive(Debug)]
pub struct Made<M> {
    pub(crate) shelf: Shelf<M>,
    /// One behind the other.
    pub(crate) bytes: Vec<u8>,
    pub(crate) blanked: Blanked,
}

impl<M> Parcel<M> {
    /// Of a shelf, and of a buffer to be filled.
    pub(crate) fn new(shelf: Shelf<M>, stream: Stream, payload: Payload, made: Vec<u8>) -> Self {
        Self { shelf, stream, payload, made }
    }

    /// Makes the new frames.
    pub fn make(self) -> Made<M> {
        let Self { shelf, stream, payload, made: mut bytes } = self;
        let mut blanked = Blanked::default();
        shelf.make(&mut Blanker { stream: &stream, payload, blanked: &mut blanked }, &mut bytes);
        Made { shelf, bytes, blanked }
    }
}

impl<M> Shelf<M> {
    /// Makes the new frames, one behind the other.
    pub(crate) fn make(&self, blank: &mut impl Blank, bytes: &mut Vec<u8>) {
        let mut fixes = Vec::new();
        bytes.clear();
        bytes.reserve(self.block.length());
        for held in &self.frames {
            let begin = bytes.len();
            if held.new.is_empty() {
                self.block.make(&held.leaf, blank, bytes);
                self.block.make_crcs(&held.leaf, &mut bytes[begin..], |_, _| {});
            } else {
                bytes.extend_from_slice(&held.new);
            }
            if !held.has_crc {
                self.block.mend(&held.leaf, &mut bytes[begin..], &mut fixes);
            }
        }
        let (mut was, mut is) = (Vec::new(), Vec::new());
        for crc in &self.crcs {
            was.clear();
            is.clear();
            for range in crc.over.iter().filter_map(|span| self.range(span)) {
                was.extend_from_slice(&self.block.all()[range.clone()]);
                is.extend_from_slice(&bytes[range]);
            }
            let at: Vec<_> = crc.at.iter().filter_map(|span| self.range(span)).flatten().collect();
            let Ok(at) = <[usize; 4]>::try_from(at) else { continue };
            let made = sums::mpa(at.map(|at| self.block.all()[at]), &was, &is);
            at.into_iter().zip(made).for_each(|(at, byte)| bytes[at] = byte);
        }
        for held in self.frames.iter().filter(|held| held.has_crc) {
            self.block.mend(&held.leaf, &mut bytes[held.leaf.range()], &mut fixes);
        }
    }

    /// Where bytes of a frame stand among those of all.
    fn range(&self, span: &Span) -> Option<std::ops::Range<usize>> {
        let frame = self.held(span.frame)?.leaf.range();
        let within = span.range(frame.len());
        Some(frame.start + within.start..frame.start + within.end)
    }
}

impl<M> Made<M> {
    /// Hands out the new frames, in their order.
    pub fn frames(&mut self, mut out: impl FnMut(M, &[u8])) {
        for held in self.shelf.frames.drain(..) {
            out(held.meta, &self.bytes[held.leaf.range()]);
        }
    }

    /// What is to be filled again.
    pub(crate) fn empty(mut self) -> (Shelf<M>, Vec<u8>) {
        self.shelf.frames.clear();
        self.shelf.block.clear();
        self.shelf.crcs.clear();
        (self.shelf, self.bytes)
    }
}

/// Fills what no field claims, and keeps count.
pub(crate) struct Blanker<'a> {
    pub(crate) stream: &'a Stream,
    pub(crate) payload: Payload,
    pub(crate) blanked: &'a mut Blanked,
}

impl Blank for Blanker<'_> {
    fn blank(&mut self, inside: Option<Def>, was: &[u8], to: &mut [u8]) {
        if self.payload == Payload::Stream && inside.is_some() {
            self.stream.fill(was, to);
        } else {
            to.fill(0);
        }
        // a piece at a time: contents are long
        if was.chunks(64).any(|piece| piece.iter().fold(0, |all, byte| all | byte) != 0) {
            self.blanked.add(inside.map_or("outside of any field", |def| def.name), was.len());
        }
    }
}
