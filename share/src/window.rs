//! Frames that may still be told of: a message in pieces names the bytes of earlier frames. The oldest leave when there is no more room.
//!
//! ```text
//!   leaving ◀─ [ final: sums wait for a later frame ] [ open: bytes may still be named ] ◀─ new
//! ```

use crate::sums::{self, Fix};
use rdmascope_dissector::field::Def;
use std::collections::{BTreeMap, VecDeque};

/// Bytes of a frame: of the frame with this number, counted from 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Span {
    pub(crate) frame: u64,
    pub(crate) at: u32,
    pub(crate) length: u32,
}

/// What is known of a byte.
const UNKNOWN: u8 = 0;
const KEPT: u8 = 1;
const REPLACED: u8 = 2;

/// What becomes of bytes that no field claims.
pub(crate) trait Blank {
    /// Fills `to`, where `was` stood, in what the field `inside` tells of, where one does.
    fn blank(&mut self, inside: Option<Def>, was: &[u8], to: &mut [u8]);
}

/// A frame in the window.
#[derive(Debug)]
pub(crate) struct Held<M> {
    pub(crate) meta: M,
    pub(crate) old: Box<[u8]>,
    new: Vec<u8>,
    known: Vec<u8>,
    /// Runs of bytes of which other fields tell: the innermost last.
    inside: Vec<(u32, u32, Def)>,
    fixes: Vec<Fix>,
    /// The same bytes in another frame: their places here and there, and how many.
    same: Vec<(u32, Span)>,
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
}

/// Frames in the window at most.
const FRAMES_MAX: usize = 1 << 17;
/// Runs of one frame that are remembered for the report.
const INSIDE_MAX: usize = 1 << 8;

impl<M> Window<M> {
    pub(crate) fn new(limit: usize) -> Self {
        Self { first: 0, held: VecDeque::new(), finals: 0, bytes: 0, limit, crcs: BTreeMap::new() }
    }

    /// A new frame, and its number.
    pub(crate) fn push(&mut self, meta: M, bytes: &[u8]) -> u64 {
        self.bytes += bytes.len();
        self.held.push_back(Held {
            meta,
            old: bytes.into(),
            new: vec![0; bytes.len()],
            known: vec![UNKNOWN; bytes.len()],
            inside: Vec::new(),
            fixes: Vec::new(),
            same: Vec::new(),
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

    fn is_open(&self, frame: u64) -> bool {
        frame >= self.oldest()
    }

    /// What stood in a frame.
    pub(crate) fn old(&self, span: Span) -> Option<&[u8]> {
        let at = usize::try_from(span.frame.checked_sub(self.first)?).ok()?;
        self.held.get(at)?.old.get(span.at as usize..)?.get(..span.length as usize)
    }

    /// These bytes give nothing away.
    pub(crate) fn keep(&mut self, span: Span) {
        if !self.is_open(span.frame) {
            return;
        }
        let Some(held) = self.held(span.frame) else { return };
        for i in span.at as usize..(span.at.saturating_add(span.length) as usize).min(held.old.len()) {
            if held.known[i] == UNKNOWN {
                (held.known[i], held.new[i]) = (KEPT, held.old[i]);
            }
        }
    }

    /// These bytes become others; what was replaced before stays as it is. Whether any did.
    pub(crate) fn replace(&mut self, span: Span, with: &[u8]) -> bool {
        if !self.is_open(span.frame) {
            return false;
        }
        let Some(held) = self.held(span.frame) else { return false };
        let mut any = false;
        for (i, byte) in (span.at as usize..held.old.len()).zip(&with[..with.len().min(span.length as usize)]) {
            if held.known[i] != REPLACED {
                (held.known[i], held.new[i]) = (REPLACED, *byte);
                any = true;
            }
        }
        any
    }

    /// Other fields tell of these bytes.
    pub(crate) fn inside(&mut self, span: Span, def: Def) {
        if let Some(held) = self.held(span.frame).filter(|h| h.inside.len() < INSIDE_MAX) {
            held.inside.push((span.at, span.at.saturating_add(span.length), def));
        }
    }

    /// Something is to be made anew in a frame.
    pub(crate) fn fix(&mut self, frame: u64, fix: Fix) {
        if let Some(held) = self.held(frame) {
            held.fixes.push(fix);
        }
    }

    /// The bytes at `a` stand at `b` too: what is known of the ones holds for the others.
    pub(crate) fn same(&mut self, a: Span, b: Span) {
        let (earlier, later) = if a.frame <= b.frame { (a, b) } else { (b, a) };
        if earlier.frame == later.frame || !self.is_open(earlier.frame) {
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
    pub(crate) fn leave(&mut self, at_the_end: bool, blank: &mut impl Blank, out: &mut impl FnMut(M, Vec<u8>)) {
        while self.finals < self.held.len() && (at_the_end || self.bytes > self.limit || self.held.len() - self.finals > FRAMES_MAX) {
            self.finish_one(blank);
            while self.held.front().is_some_and(|h| h.is_mended && h.waiting == 0) {
                if let Some(gone) = self.held.pop_front() {
                    self.bytes -= gone.old.len();
                    self.first += 1;
                    self.finals -= 1;
                    out(gone.meta, gone.new);
                }
            }
        }
    }

    fn finish_one(&mut self, blank: &mut impl Blank) {
        let frame = self.oldest();
        let same = self.held(frame).map(|h| std::mem::take(&mut h.same)).unwrap_or_default();
        for (at, there) in same {
            self.share(frame, at, there);
        }
        let Some(held) = self.held(frame) else { return };
        let mut i = 0;
        while i < held.known.len() {
            if held.known[i] != UNKNOWN {
                i += 1;
                continue;
            }
            let inside = held.inside.iter().rev().find(|(from, to, _)| (*from as usize..*to as usize).contains(&i));
            // to the end of what is not known, or of the field that it is in
            let limit = inside.map_or(held.known.len(), |(_, to, _)| *to as usize).min(held.known.len());
            let end = held.known[i..limit].iter().position(|k| *k != UNKNOWN).map_or(limit, |n| i + n);
            let (was, to) = (&held.old[i..end], &mut held.new[i..end]);
            blank.blank(inside.map(|(_, _, def)| *def), was, to);
            i = end;
        }
        held.is_final = true;
        self.finals += 1;
        let mut touched = vec![frame];
        for crc in self.crcs.remove(&frame).unwrap_or_default() {
            self.make(&crc);
            for span in crc.over.iter().chain(&crc.at) {
                if let Some(held) = self.held(span.frame) {
                    held.waiting -= 1;
                    touched.push(span.frame);
                }
            }
        }
        for frame in touched {
            if let Some(held) = self.held(frame).filter(|h| h.is_final && !h.is_mended && h.waiting == 0) {
                sums::mend(&held.fixes, &held.old, &mut held.new);
                held.is_mended = true;
            }
        }
    }

    /// What is known of one copy of bytes is taken over for the other.
    fn share(&mut self, frame: u64, at: u32, there: Span) {
        let Some(here) = self.held(frame) else { return };
        let from = at as usize;
        let to = (from + there.length as usize).min(here.old.len());
        let (old, new, known) = (here.old[from..to].to_vec(), here.new[from..to].to_vec(), here.known[from..to].to_vec());
        let mut back = Vec::new();
        if let Some(other) = self.held(there.frame) {
            for (n, i) in (there.at as usize..other.old.len()).zip(0..old.len()).map(|(a, b)| (b, a)) {
                if other.old[i] != old[n] {
                    continue;
                }
                match (known[n], other.known[i]) {
                    (UNKNOWN, UNKNOWN) => {}
                    (UNKNOWN, theirs) => back.push((from + n, other.new[i], theirs)),
                    (mine, UNKNOWN) => (other.known[i], other.new[i]) = (mine, new[n]),
                    _ => {}
                }
            }
        }
        if let Some(here) = self.held(frame) {
            for (i, byte, known) in back {
                (here.new[i], here.known[i]) = (byte, known);
            }
        }
    }

    fn make(&mut self, crc: &Crc) {
        let (mut was, mut is) = (Vec::new(), Vec::new());
        for span in &crc.over {
            let Some(held) = self.held(span.frame) else { return };
            let range = span.at as usize..(span.at + span.length) as usize;
            was.extend_from_slice(held.old.get(range.clone()).unwrap_or(&[]));
            is.extend_from_slice(held.new.get(range).unwrap_or(&[]));
        }
        let stated: Vec<u8> = crc.at.iter().flat_map(|s| self.old(*s).unwrap_or(&[])).copied().collect();
        let Ok(stated) = <[u8; 4]>::try_from(stated) else { return };
        let made = sums::mpa(stated, &was, &is);
        let mut rest = &made[..];
        for span in &crc.at {
            let (mine, after) = rest.split_at(span.length as usize);
            rest = after;
            if let Some(held) = self.held(span.frame)
                && let Some(to) = held.new.get_mut(span.at as usize..).and_then(|b| b.get_mut(..mine.len()))
            {
                to.copy_from_slice(mine);
            }
        }
    }
}
