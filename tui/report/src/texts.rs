//! Frames that workers dissect and write, each those of its own connections; the main thread puts the texts in order.
//!
//! Connections, exchanges and streams are numbered over the whole capture, but a worker knows only those of its own
//! connections. It writes its own numbers and marks their places; they are replaced when the text is output:
//!
//! ```text
//!   file ─▶ Board ─┬▶ worker: dissect, text, marks ─┐ the texts of a batch
//!                  └▶ worker: dissect, text, marks ─┴▶ numbers, in order ─▶ main thread: out
//! ```
//!
//! A frame is written right after its dissection, while it is in the cache of the same core. If one connection has most
//! of the frames, [`crate::sheets`] spreads the work better. The output is the same as that of one thread, byte for
//! byte. If connections turn out to be related, this ends early and the caller continues with one thread.

use crate::dissection::Dissection;
use crate::input::Bar;
use crate::output::marks::{DIGITS, Marks, is_counted};
use crate::output::shape::Shape;
use crate::shards::{Board, GiveUpAtEnd, GiveUpOnDrop, Next, Page, Part, TEXT_BYTES};
use crate::sheets::{Counting, Form, Handed, Limits, Plan, Printer, Shared, handed};
use crate::sync::thread;
use anyhow::Result;
use rdmascope_analyzer::env::Options;
use rdmascope_analyzer::pipeline::{Counts, FrameMeta};
use rdmascope_capture::{CaptureFile, Metadata, Place};
use rdmascope_dissector::extract::Extractor;
use rdmascope_dissector::filter::Filter;
use rdmascope_dissector::render::decimal;
use rdmascope_dissector::trace::Tree;
use std::io::IoSlice;
use std::ops::Range;

/// Frames in a batch: so few that their text is still in the cache when it is output.
const BATCH: u64 = if cfg!(test) { 1 } else { 64 };
/// The same of fields, whose text is short.
const FIELDS_BATCH: u64 = if cfg!(test) { 1 } else { 256 };
/// Maximum number of batches that wait for output, for each worker; half of them are output before it goes on.
const PAGES: usize = if cfg!(test) { 1 } else { 8 };
/// Pieces shorter than this on average are copied together before they go out.
const PIECE_BYTES: usize = 512;

/// Output of a worker for its frames of a batch.
struct Text {
    bytes: Vec<u8>,
    marks: Marks,
    frames: Vec<Written>,
    /// Bytes that were reported: [`Board::hold`].
    held: usize,
}

impl Default for Text {
    fn default() -> Self {
        Self { bytes: Vec::new(), marks: Marks::wanted(), frames: Vec::new(), held: 0 }
    }
}

impl Text {
    /// Removes its frames, and frees the memory that unusually large ones took.
    fn cleared(mut self) -> Self {
        if self.bytes.capacity() > TEXT_BYTES {
            return Self::default();
        }
        self.bytes.clear();
        self.marks.places.clear();
        self.frames.clear();
        self.held = 0;
        self
    }
}

/// A frame in a [`Text`].
struct Written {
    /// Offsets at which its text and its marks end.
    end: usize,
    marks_end: usize,
    shown: bool,
    /// Numbers that its shard had assigned up to and including this frame.
    counts: Counts,
    streams: u64,
}

struct Worker<'p> {
    shard: usize,
    plan: &'p Plan,
    dissection: Dissection,
    form: Form,
    extractor: Extractor,
    /// True if one of its fields is counted over the whole capture.
    counts: bool,
    filter: Option<Filter>,
    tree: Tree,
    shape: Shape,
}

impl Worker<'_> {
    fn part<'f, K>(&mut self, board: &Board<'f, Handed, K, Text>, mut part: Part<Handed, Text>)
    where
        K: FnMut(&FrameMeta, Place, &Metadata) -> Handed,
    {
        let mut text = board.blank();
        let mut datagrams = part.datagrams();
        let interfaces = part.interfaces.clone();
        for (meta, (place, before, seen)) in &part.frames {
            let record = part.chunk.record(place);
            let is_whole = datagrams.front().is_some_and(|(number, _)| *number == meta.number);
            let datagram = if is_whole { datagrams.pop_front().map(|(_, datagram)| datagram) } else { None };
            let interfaces = interfaces.get(..*seen).unwrap_or(&interfaces);
            let Self { dissection, extractor, filter, tree, .. } = self;
            let passes = |extractor: &Extractor| filter.as_ref().is_none_or(|filter| filter.matches(extractor));
            let shown = match &mut self.form {
                Form::Print(printer) => {
                    tree.begin(record.bytes);
                    let d = dissection.part(&record, *before, interfaces, datagram, tree);
                    if filter.is_some() {
                        extractor.load(tree);
                    }
                    let shown = passes(extractor);
                    if shown {
                        Marks::prepare(tree);
                        self.plan.chosen.choose(tree);
                        self.shape.apply(tree);
                        printer.frame(&mut text.bytes, &d, tree, &self.shape, &mut text.marks);
                    }
                    shown
                }
                Form::Fields(fields) => {
                    extractor.begin();
                    let d = dissection.part(&record, *before, interfaces, datagram, extractor);
                    let shown = passes(extractor);
                    if shown {
                        if self.counts {
                            extractor.change(|def, number| {
                                if is_counted(def) {
                                    Marks::prepare_one(number);
                                }
                            });
                        }
                        fields.frame(&mut text.bytes, &d, extractor, &mut text.marks);
                    }
                    shown
                }
                Form::Lines(_) => false,
            };
            let (counts, streams) = dissection.counts();
            text.frames.push(Written {
                end: text.bytes.len(),
                marks_end: text.marks.places.len(),
                shown,
                counts,
                streams,
            });
            board.hold(&mut text.held, text.bytes.len());
            if board.is_given_up() {
                return;
            }
        }
        let batch = part.batch;
        board.done(self.shard, part, self.dissection.most_connections());
        board.put(batch, self.shard, text);
    }
}

/// True if workers can write the output of the plan. They cannot write lines, whose columns grow with earlier content,
/// nor apply a filter for numbers that are counted over the whole capture.
pub fn is_possible(plan: &Plan) -> bool {
    let filter_counts = plan.filter.clone().is_some_and(|mut filter| {
        let mut extractor = Extractor::new();
        filter.bind(&mut extractor);
        extractor.wanted().any(is_counted)
    });
    !filter_counts && !matches!(plan.form, Form::Lines(_))
}

/// Writes the frames of a file, within `limits`; `out` gets the text in pieces, in order.
///
/// # Errors
/// Those of `out`.
pub fn run(
    plan: &Plan,
    file: &CaptureFile,
    limits: Limits,
    mut out: impl FnMut(&mut [IoSlice<'_>]) -> Result<()>,
) -> Result<Shared> {
    let threads = plan.workers();
    let mut workers: Vec<Worker<'_>> = (0..threads)
        .map(|shard| {
            let mut form = plan.form.clone();
            if let Form::Print(printer) = &mut form {
                printer.is_first(false);
            }
            let mut tree = Tree::new();
            tree.detail = plan.detail;
            Worker {
                shard,
                plan,
                dissection: Dissection::shard(plan.keyring.clone(), shard, threads).with_roce_port(plan.roce_port),
                form,
                extractor: plan.extractor.clone(),
                counts: plan.extractor.wanted().any(is_counted),
                filter: plan.filter.clone(),
                tree,
                shape: Shape::new(plan.short),
            }
        })
        .collect();
    let mut own = workers.swap_remove(0);
    let connections_max = Options::default().connections_max;
    let board = Board::new(file, threads, own.dissection.decode_options(), connections_max, handed())
        .with_batches(if matches!(plan.form, Form::Fields(_)) { FIELDS_BATCH } else { BATCH })
        .with_pages(PAGES * threads, PAGES * threads / 2)
        .with_held_max(plan.held_max);
    let lead = if let Form::Print(printer) = &plan.form { Printer::lead(printer) } else { 0 };
    let total = file.bytes().len() as u64;
    let bar = Bar::new();
    let mut outlet = Outlet {
        counting: Counting::new(threads),
        left: limits,
        frames: 0,
        any: false,
        lead,
        digits: Vec::new(),
        pieces: Vec::new(),
    };
    let is_done = thread::scope(|scope| -> Result<bool> {
        let _ending = GiveUpAtEnd(|| board.give_up());
        for mut worker in workers.drain(..) {
            let board = &board;
            scope.spawn(move || {
                let _panics = GiveUpOnDrop(board);
                loop {
                    let heard = board.heard();
                    match board.next(worker.shard) {
                        Next::Part(part) => worker.part(board, part),
                        Next::Full => board.nap(heard),
                        Next::End => return,
                    }
                }
            });
        }
        loop {
            let heard = board.heard();
            let mut moved = false;
            while let Some(page) = board.take_page() {
                moved = true;
                if !outlet.page(&page, &mut out)? {
                    return Ok(true);
                }
                page.parts.iter().flatten().for_each(|text| board.release(text.held));
                board.give_back(page.parts.into_iter().flatten().map(Text::cleared));
            }
            match board.next(own.shard) {
                Next::Part(part) => {
                    bar.at(part.offset, total);
                    own.part(&board, part);
                }
                Next::End if board.is_given_up() => return Ok(false),
                Next::End if !board.has_pages() => return Ok(true),
                Next::Full | Next::End if !moved => board.nap(heard),
                Next::Full | Next::End => {}
            }
        }
    })?;
    if !is_done {
        return Ok(Shared::First(outlet.frames, outlet.any));
    }
    let error = board.end().walk.error.filter(|_| outlet.left.read > 0 && outlet.left.shown > 0);
    Ok(Shared::All(error, outlet.any))
}

/// The next piece of output.
#[derive(Clone)]
enum Piece {
    /// Bytes of a worker's text.
    Text(usize, Range<usize>),
    /// Digits of a number that was filled in.
    Digits(Range<usize>),
}

/// State of the output so far.
struct Outlet {
    counting: Counting,
    left: Limits,
    frames: u64,
    any: bool,
    lead: usize,
    digits: Vec<u8>,
    pieces: Vec<Piece>,
}

impl Outlet {
    /// Passes on the texts of a batch within the limits. Returns true if more may follow.
    fn page(&mut self, page: &Page<Text>, out: &mut impl FnMut(&mut [IoSlice<'_>]) -> Result<()>) -> Result<bool> {
        self.pieces.clear();
        self.digits.clear();
        // by worker: frames, bytes and marks written so far
        let mut read = vec![(0, 0, 0); page.parts.len()];
        for shard in &page.order {
            if self.left.read == 0 || self.left.shown == 0 {
                break;
            }
            let shard = usize::from(*shard);
            let (frame, mut at, mark) = read[shard];
            let Some((text, written)) =
                page.parts[shard].as_ref().and_then(|text| Some((text, text.frames.get(frame)?)))
            else {
                continue;
            };
            self.counting.frame(shard, written.counts, written.streams);
            read[shard] = (frame + 1, written.end, written.marks_end);
            self.frames += 1;
            self.left.read -= 1;
            self.left.shown -= u64::from(written.shown);
            if !self.any && written.end > at {
                at += self.lead.min(written.end - at);
                self.any = true;
            }
            for mark in &text.marks.places[mark..written.marks_end] {
                self.add(shard, at..mark.at);
                let start = self.digits.len();
                decimal(&mut self.digits, self.counting.number(shard, mark.def, mark.number));
                self.pieces.push(Piece::Digits(start..self.digits.len()));
                at = mark.at + DIGITS;
            }
            self.add(shard, at..written.end);
        }
        self.pass(page, out)?;
        Ok(self.left.read > 0 && self.left.shown > 0)
    }

    fn add(&mut self, shard: usize, range: Range<usize>) {
        match self.pieces.last_mut() {
            Some(Piece::Text(last, before)) if *last == shard && before.end == range.start => before.end = range.end,
            _ if range.is_empty() => {}
            _ => self.pieces.push(Piece::Text(shard, range)),
        }
    }

    fn pass(&self, page: &Page<Text>, out: &mut impl FnMut(&mut [IoSlice<'_>]) -> Result<()>) -> Result<()> {
        let bytes = |piece: &Piece| -> &[u8] {
            match piece {
                Piece::Text(shard, range) => page.parts[*shard].as_ref().map_or(&[], |text| &text.bytes[range.clone()]),
                Piece::Digits(range) => &self.digits[range.clone()],
            }
        };
        let len: usize = self.pieces.iter().map(|piece| bytes(piece).len()).sum();
        if len == 0 {
            return Ok(());
        }
        if len < self.pieces.len() * PIECE_BYTES {
            let mut text = Vec::with_capacity(len);
            self.pieces.iter().for_each(|piece| text.extend_from_slice(bytes(piece)));
            return out(&mut [IoSlice::new(&text)]);
        }
        let mut slices: Vec<IoSlice<'_>> = self.pieces.iter().map(|piece| IoSlice::new(bytes(piece))).collect();
        out(&mut slices)
    }
}
