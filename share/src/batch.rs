//! Batches of frames about which nothing more becomes known. Any thread makes their new bytes.
//!
//! ```text
//!   window ─▶ FrameBatch ─▶ make: contents, MPA CRCs, invariant CRCs, checksums ─▶ NewFrames ─▶ out, in the order of batches
//!      ▲                                                                        │
//!      └──────────────────────────── to be filled again ────────────────────────┘
//! ```

use crate::block::{Blank, Block, Slot, Span};
use crate::mapping::Stream;
use crate::sums;
use crate::tally::{Blanked, Payload};
use rdmascope_dissector::field::Def;

/// A frame of a batch.
#[derive(Debug)]
pub(crate) struct BatchFrame<M> {
    meta: M,
    pub(crate) slot: Slot,
    /// The new bytes, if they had to be made before those of the batch: bytes of other frames depend on them.
    pub(crate) new: Vec<u8>,
    /// Copies of its bytes in later frames: offset in this frame, and the bytes there.
    pub(crate) same: Vec<(u32, Span)>,
    /// The same copies, after the frame was closed: a checksum that is recomputed later is written to them too.
    pub(crate) copies: Vec<(u32, Span)>,
    /// Copies in earlier frames, while this frame is open.
    pub(crate) earlier: Vec<(u32, Span)>,
    /// True if there are copies in later frames.
    pub(crate) is_copied: bool,
    /// True if a CRC over several frames covers bytes of it, or is stored in it.
    has_crc: bool,
}

/// An MPA CRC over bytes of several frames.
#[derive(Debug)]
pub(crate) struct Crc {
    pub(crate) over: Vec<Span>,
    pub(crate) at: Vec<Span>,
    /// Copies of the CRC: index of the first of its bytes, and the place of the copy. No copy is in a later frame than
    /// the CRC's last.
    pub(crate) copies: Vec<(usize, Span)>,
}

impl Crc {
    /// All its spans: the covered bytes, the CRC and its copies.
    pub(crate) fn spans(&self) -> impl Iterator<Item = &Span> {
        self.over.iter().chain(&self.at).chain(self.copies.iter().map(|(_, span)| span))
    }
}

/// Consecutive frames in one block.
#[derive(Debug)]
pub(crate) struct Batch<M> {
    /// Number of the first frame.
    pub(crate) first: u64,
    pub(crate) block: Block,
    frames: Vec<BatchFrame<M>>,
    /// CRCs over several frames of this batch, all of which are closed.
    crcs: Vec<Crc>,
    /// Spans of CRCs that also need a later frame.
    pub(crate) waiting: u32,
}

impl<M> Default for Batch<M> {
    fn default() -> Self {
        Self { first: 0, block: Block::default(), frames: Vec::new(), crcs: Vec::new(), waiting: 0 }
    }
}

impl<M> Batch<M> {
    /// Begins a batch at frame `first` with room for `bytes` bytes. Its other capacities follow those of the batch
    /// `before`.
    pub(crate) fn begin(&mut self, first: u64, before: Option<&Self>, bytes: usize) {
        self.first = first;
        if let Some(before) = before {
            self.block.reserve_like(&before.block);
            self.frames.reserve(before.frames.len());
        }
        self.block.reserve(bytes);
    }

    pub(crate) fn push(&mut self, meta: M, bytes: &[u8]) {
        let slot = self.block.add(bytes);
        let (same, copies, earlier) = (Vec::new(), Vec::new(), Vec::new());
        self.frames.push(BatchFrame {
            meta,
            slot,
            new: Vec::new(),
            same,
            copies,
            earlier,
            is_copied: false,
            has_crc: false,
        });
    }

    fn place(&self, frame: u64) -> Option<usize> {
        usize::try_from(frame.checked_sub(self.first)?).ok()
    }

    pub(crate) fn held(&self, frame: u64) -> Option<&BatchFrame<M>> {
        self.frames.get(self.place(frame)?)
    }

    pub(crate) fn held_mut(&mut self, frame: u64) -> Option<&mut BatchFrame<M>> {
        let place = self.place(frame)?;
        self.frames.get_mut(place)
    }

    pub(crate) fn slot_mut(&mut self, frame: u64) -> Option<(&mut Block, &mut Slot)> {
        let place = self.place(frame)?;
        let held = self.frames.get_mut(place)?;
        Some((&mut self.block, &mut held.slot))
    }

    /// Adds a CRC that is computed when the batch is made.
    pub(crate) fn add_crc(&mut self, crc: Crc) {
        for span in crc.spans() {
            if let Some(held) = self.held_mut(span.frame) {
                held.has_crc = true;
            }
        }
        self.crcs.push(crc);
    }
}

/// A batch whose new frames are still to be made.
#[derive(Debug)]
pub struct FrameBatch<M> {
    batch: Batch<M>,
    stream: Stream,
    payload: Payload,
    made: Vec<u8>,
}

/// A batch with its new frames.
#[derive(Debug)]
pub struct NewFrames<M> {
    pub(crate) batch: Batch<M>,
    /// The new frames, contiguous.
    pub(crate) bytes: Vec<u8>,
    pub(crate) blanked: Blanked,
}

impl<M> FrameBatch<M> {
    /// A job over a batch, with a buffer for the new bytes.
    pub(crate) fn new(batch: Batch<M>, stream: Stream, payload: Payload, made: Vec<u8>) -> Self {
        Self { batch, stream, payload, made }
    }

    /// Makes the new frames.
    pub fn make(self) -> NewFrames<M> {
        let Self { batch, stream, payload, made: mut bytes } = self;
        let mut blanked = Blanked::default();
        batch.make(&mut Blanker { stream: &stream, payload, blanked: &mut blanked }, &mut bytes);
        NewFrames { batch, bytes, blanked }
    }
}

impl<M> Batch<M> {
    /// Writes all new frames to `bytes`, contiguous.
    pub(crate) fn make(&self, blank: &mut impl Blank, bytes: &mut Vec<u8>) {
        let mut fixes = Vec::new();
        bytes.clear();
        bytes.reserve(self.block.length());
        for held in &self.frames {
            let begin = bytes.len();
            if held.new.is_empty() {
                self.block.make(&held.slot, blank, bytes);
                self.block.make_crcs(&held.slot, &mut bytes[begin..], |_, _| {});
            } else {
                bytes.extend_from_slice(&held.new);
            }
            if !held.has_crc {
                self.block.mend(&held.slot, &mut bytes[begin..], &mut fixes);
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
            self.block.mend(&held.slot, &mut bytes[held.slot.range()], &mut fixes);
        }
    }

    /// Range of a span among the bytes of the whole batch.
    fn range(&self, span: &Span) -> Option<std::ops::Range<usize>> {
        let frame = self.held(span.frame)?.slot.range();
        let within = span.range(frame.len());
        Some(frame.start + within.start..frame.start + within.end)
    }
}

impl<M> NewFrames<M> {
    /// Passes each new frame to `out`, in order.
    pub fn frames(&mut self, mut out: impl FnMut(M, &[u8])) {
        for held in self.batch.frames.drain(..) {
            out(held.meta, &self.bytes[held.slot.range()]);
        }
    }

    /// The emptied batch and buffer, to be used again.
    pub(crate) fn empty(mut self) -> (Batch<M>, Vec<u8>) {
        self.batch.frames.clear();
        self.batch.block.clear();
        self.batch.crcs.clear();
        (self.batch, self.bytes)
    }
}

/// Blanks bytes that no field claims, and counts them.
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
        // in chunks: contents are long
        if was.chunks(64).any(|piece| piece.iter().fold(0, |all, byte| all | byte) != 0) {
            self.blanked.add(inside.map_or("outside of any field", |def| def.name), was.len());
        }
    }
}
