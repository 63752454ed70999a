//! Parallel output of frames: each worker dissects the frames of its own connections, and any worker with time writes
//! them.
//!
//! Connections, exchanges and streams are numbered over the whole capture, but a worker knows only those of its own
//! connections. So a dissected frame waits until all frames before it are dissected; then it gets its numbers and is
//! written:
//!
//! ```text
//!   file ─▶ Board ─┬▶ worker: dissect ─▶ Sheet ─┐ the sheets of a batch       ┌▶ worker: text ─┐
//!                  └▶ worker: dissect ─▶ Sheet ─┴▶ get their numbers, in order ┴▶ worker: text ─┴▶ main thread: out, in order
//! ```
//!
//! A worker that has nothing to dissect and nothing to write begins to dissect frames of another one's connections: what
//! needs nothing of earlier frames, and costs by the byte.
//!
//! The output is the same as that of one thread, byte for byte. If connections turn out to be related, this ends early
//! and the caller continues with one thread.

use crate::dissection::{self, Before, Dissected, Dissection};
use crate::input::Bar;
use crate::output::ek::Ek;
use crate::output::fields::Fields;
use crate::output::hex;
use crate::output::json::Json;
use crate::output::lines::Lines;
use crate::output::marks::{Marks, is_counted};
use crate::output::pdml::Pdml;
use crate::output::shape::Shape;
use crate::output::tree::Trees;
use crate::pool::Places;
use crate::shards::{Board, GiveUpAtEnd, GiveUpOnDrop, Next, Page, Part, Text};
use crate::sync::{Mutex, lock, thread};
use anyhow::Result;
use rdmascope_analyzer::connection::f;
use rdmascope_analyzer::env::Options;
use rdmascope_analyzer::keys::Keyring;
use rdmascope_analyzer::pipeline::{Counts, FrameMeta, Growing, Numbers};
use rdmascope_capture::{CaptureFile, Metadata, Place};
use rdmascope_dissector::extract::Extractor;
use rdmascope_dissector::field::Def;
use rdmascope_dissector::filter::Filter;
use rdmascope_dissector::frame::Checked;
use rdmascope_dissector::trace::{Detail, Line, NodeValue as Value, Pair, Tree};

/// Frames in a batch: so few that their trees are near still when they are written.
const BATCH: u64 = if cfg!(test) { 1 } else { 32 };
/// Maximum memory that a sheet keeps when it is reused, in bytes.
const SHEET_BYTES: usize = 1 << 20;
/// Maximum number of batches that wait to be written, for each worker and in addition: few, so that their frames stay
/// in the caches.
const PAGES: (usize, usize) = if cfg!(test) { (1, 0) } else { (2, 2) };
/// Maximum number of texts that wait for standard output, for each worker and in addition.
const TEXTS: (usize, usize) = if cfg!(test) { (0, 2) } else { (2, 4) };

/// Maximum memory for output that is not written yet, in bytes for each thread. Only frames that grow when they are
/// decompressed or put together need as much; they are left to one thread, which writes each at once.
pub const HELD_MAX: usize = 64 << 20;

/// Writes frames that were dissected before. The output for a frame does not depend on the frames written before it, so
/// several printers may take turns.
#[derive(Clone)]
pub enum Printer {
    /// With bytes, or without; coloured, or not.
    Tree(Trees, bool, bool),
    /// `-T json`.
    Json(Json),
    /// `-T ek`.
    Ek(Ek),
    /// `-T pdml`.
    Pdml(Pdml),
}

impl Printer {
    /// Appends a frame.
    pub fn frame(&mut self, out: &mut Vec<u8>, d: &Dissected, tree: &Tree, shape: &Shape, marks: &mut Marks) {
        match self {
            Self::Tree(trees, hex, color) => {
                trees.frame(out, d, tree, *color, marks);
                if *hex {
                    hex::frame(out, tree, *color);
                }
            }
            Self::Json(json) => json.frame(out, d, tree, shape, marks),
            Self::Ek(ek) => ek.frame(out, d, tree, shape, marks),
            Self::Pdml(pdml) => pdml.frame(out, d, tree, shape, marks),
        }
    }

    /// Sets whether the next frame is the first one.
    pub fn is_first(&mut self, first: bool) {
        if let Self::Json(json) = self {
            json.is_first(first);
        }
    }

    /// Bytes in front of every frame but the first.
    pub(crate) fn lead(&self) -> usize {
        usize::from(matches!(self, Self::Json(_)))
    }
}

/// Output of a frame.
#[derive(Clone)]
pub enum Form {
    /// All fields of a frame.
    Print(Printer),
    /// Chosen ones.
    Fields(Fields),
    /// A line.
    Lines(Lines),
}

/// Selects the frames to write and their format.
#[derive(Clone)]
pub struct Plan {
    /// Output format.
    pub form: Form,
    /// Fields that columns and filter need.
    pub extractor: Extractor,
    /// Filter that selects the frames.
    pub filter: Option<Filter>,
    /// How much trees keep.
    pub detail: Detail,
    /// True if JSON, EK and PDML use our names and form.
    pub short: bool,
    /// Parts of a tree that are written.
    pub chosen: Chosen,
    /// Keys and passwords.
    pub keyring: Keyring,
    /// UDP port of RoCEv2 in addition to its own; 0 for none.
    pub roce_port: u16,
    /// Threads that work at the same time.
    pub threads: usize,
    /// Maximum memory for output that is not written yet, in bytes for each thread: [`HELD_MAX`].
    pub held_max: usize,
}

impl Plan {
    /// Threads that follow connections: one if keys were given, because the channels of a session share theirs.
    pub(crate) fn workers(&self) -> usize {
        if self.keyring.is_empty() { self.threads.max(1) } else { 1 }
    }
}

/// Protocols of which a tree is written.
#[derive(Clone, Debug, Default)]
pub struct Chosen {
    /// Protocols whose fields are shown; all if empty.
    pub only: Vec<String>,
    /// Protocols that are written; all if empty.
    pub protocols: Vec<String>,
}

impl Chosen {
    /// Removes all other nodes from the tree.
    pub fn choose(&self, tree: &mut Tree) {
        if self.only.is_empty() && self.protocols.is_empty() {
            return;
        }
        let mut layer = "";
        let named = |names: &[String], name: &str| names.is_empty() || names.iter().any(|n| n == name);
        tree.nodes.retain(|node| {
            if node.depth == 0 {
                layer = node.def.name;
            }
            named(&self.protocols, layer) && (node.depth == 0 || named(&self.only, layer))
        });
    }
}

/// Limits on the number of frames.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Frames that are read.
    pub read: u64,
    /// Frames that are shown.
    pub shown: u64,
}

/// Result of the run: how far the output got.
#[derive(Debug)]
pub enum Shared {
    /// The number of frames that were written before connections turned out to be related, and whether any was shown.
    First(u64, bool),
    /// The run is complete. Has the error that ended the capture early, if any, and whether any frame was shown.
    All(Option<rdmascope_capture::Error>, bool),
}

/// A dissected frame. Its numbers are those of its shard until they are replaced by those of the whole capture.
struct KeptFrame {
    frame: Option<Dissected>,
    /// What was found of its bytes, if another worker has begun to dissect it.
    checked: Checked,
    counts: Counts,
    streams: u64,
    seen: Seen,
    shown: bool,
}

enum Seen {
    /// And how Wireshark arranges it.
    Tree(Tree, Shape),
    Values(Extractor),
    Line(Extractor, Line),
}

impl Seen {
    /// Forgets everything and begins a frame of these bytes.
    fn begin(&mut self, bytes: &[u8]) {
        match self {
            Self::Tree(tree, _) => tree.begin(bytes),
            Self::Values(extractor) => extractor.begin(),
            Self::Line(extractor, line) => {
                extractor.begin();
                line.begin();
            }
        }
    }
}

impl KeptFrame {
    fn new(plan: &Plan) -> Self {
        let seen = match plan.form {
            Form::Print(_) => {
                let mut tree = Tree::new();
                tree.detail = plan.detail;
                Seen::Tree(tree, Shape::new(plan.short))
            }
            Form::Fields(_) => Seen::Values(plan.extractor.clone()),
            Form::Lines(_) => Seen::Line(plan.extractor.clone(), Line::default()),
        };
        Self { frame: None, checked: Checked::default(), counts: Counts::default(), streams: 0, seen, shown: true }
    }

    fn bytes(&self) -> usize {
        match &self.seen {
            Seen::Tree(tree, _) => {
                let sources: usize = tree.sources().iter().map(|s| s.bytes.len()).sum();
                size_of_val(tree.nodes.as_slice()) + tree.text.len() + sources
            }
            Seen::Values(extractor) => extractor.bytes(),
            Seen::Line(extractor, line) => extractor.bytes() + line.info.len(),
        }
    }

    /// Gives it the numbers of the whole capture.
    fn number(&mut self, number: impl Fn(Def, u64) -> u64) {
        match &mut self.seen {
            Seen::Tree(tree, _) => {
                for node in &mut tree.nodes {
                    if let Value::U(known) = &mut node.value
                        && is_counted(node.def)
                    {
                        *known = number(node.def, *known);
                    }
                }
            }
            Seen::Values(extractor) | Seen::Line(extractor, _) => extractor.change(|def, known| {
                if is_counted(def) {
                    *known = number(def, *known);
                }
            }),
        }
    }
}

/// Some frames of a batch that are of one worker.
#[derive(Default)]
struct Sheet {
    kept: Vec<KeptFrame>,
    used: usize,
    /// Bytes of its frames, and how many of them were reported: [`Board::hold`].
    bytes: usize,
    held: usize,
}

impl Sheet {
    /// Room for the next frame.
    fn next(&mut self, plan: &Plan) -> &mut KeptFrame {
        if self.used == self.kept.len() {
            self.kept.push(KeptFrame::new(plan));
        }
        self.used += 1;
        &mut self.kept[self.used - 1]
    }

    /// Removes its frames, and frees the memory that unusually large ones took.
    fn cleared(mut self) -> Self {
        if self.bytes > SHEET_BYTES {
            self.kept.clear();
        }
        (self.used, self.bytes, self.held) = (0, 0, 0);
        self
    }
}

/// Converts the numbers of each shard to those of the whole capture, as far as frames were taken in order.
pub(crate) struct Counting {
    numbers: Numbers,
    /// By shard: the numbers of its streams.
    streams: Vec<Growing>,
    streams_count: u64,
}

impl Counting {
    /// For this number of shards, before the first frame.
    pub(crate) fn new(shards: usize) -> Self {
        Self {
            numbers: Numbers::new(shards),
            streams: (0..shards).map(|_| Growing::default()).collect(),
            streams_count: 0,
        }
    }

    /// The next frame of the capture was of this shard, whose counts after it are these.
    pub(crate) fn frame(&mut self, shard: usize, behind: Counts, streams: u64) {
        self.numbers.frame(shard, behind);
        let known = &mut self.streams[shard];
        while known.len() < streams {
            known.push(self.streams_count);
            self.streams_count += 1;
        }
    }

    /// Converts a number of a shard to that of the whole capture.
    pub(crate) fn number(&self, shard: usize, def: Def, known: u64) -> u64 {
        match def.id {
            id if id == f::CONNECTION.id => self.numbers.connection(known),
            id if id == f::EXCHANGE.id => self.numbers.exchange(known),
            _ => self.streams[shard].at(known).unwrap_or(known),
        }
    }
}

/// Known facts about earlier frames.
struct Order {
    counting: Counting,
    /// Columns of lines grow with their content.
    lines: Option<(Lines, Option<Filter>)>,
}

impl Order {
    /// Numbers the frames of a page, which is the next one. Returns the column widths of lines before it.
    fn number(&mut self, page: &mut Page<Sheet>) -> Option<usize> {
        let Self { counting, lines } = self;
        let width = lines.as_ref().map(|(lines, _)| lines.width());
        let mut read = vec![0; page.parts.len()];
        for shard in &page.order {
            let shard = usize::from(*shard);
            let Some(kept) = page.parts[shard].as_mut().and_then(|sheet| sheet.kept.get_mut(read[shard])) else {
                continue;
            };
            read[shard] += 1;
            counting.frame(shard, kept.counts, kept.streams);
            kept.number(|def, known| counting.number(shard, def, known));
            if let (Some((lines, filter)), Seen::Line(extractor, line), Some(d)) =
                (lines.as_mut(), &kept.seen, &kept.frame)
            {
                kept.shown = filter.as_ref().is_none_or(|filter| filter.matches(extractor));
                if kept.shown {
                    lines.widen(d, line.protocol);
                }
            }
        }
        width
    }
}

/// Texts on their way out.
#[derive(Default)]
struct Texts {
    waiting: Places<Text>,
    blank: Vec<Text>,
}

struct Press {
    order: Mutex<Order>,
    texts: Mutex<Texts>,
    texts_max: usize,
}

impl Press {
    fn new(plan: &Plan) -> Self {
        let lines = if let Form::Lines(lines) = &plan.form { Some((lines.clone(), plan.filter.clone())) } else { None };
        let order = Order { counting: Counting::new(plan.workers()), lines };
        Self { order: Mutex::new(order), texts: Mutex::default(), texts_max: TEXTS.0 * plan.workers() + TEXTS.1 }
    }

    /// Writes the next page, if there is one and room for its text.
    fn write<'f, K>(&self, board: &Board<'f, Handed, K, Sheet>, worker: &mut Worker<'_>) -> bool
    where
        K: FnMut(&FrameMeta, Place, &Metadata) -> Handed,
    {
        let (mut page, mut text, turn) = {
            let mut order = lock(&self.order);
            if lock(&self.texts).waiting.len() >= self.texts_max {
                return false;
            }
            let Some(mut page) = board.take_page() else { return false };
            let width = order.number(&mut page);
            if let (Form::Lines(lines), Some(width)) = (&mut worker.form, width) {
                lines.set_width(width);
            }
            let mut texts = lock(&self.texts);
            (page, texts.blank.pop().unwrap_or_default(), texts.waiting.take())
        };
        worker.page(board, &mut page, &mut text);
        // then the text may lack frames
        if board.is_given_up() {
            return false;
        }
        page.parts.iter().flatten().for_each(|sheet| board.release(sheet.held));
        board.give_back(page.parts.into_iter().flatten().map(Sheet::cleared));
        let is_next = lock(&self.texts).waiting.fill(turn, text);
        if is_next {
            board.moved();
        }
        true
    }

    /// The next text, if it is written, and whether nothing could be written before it was taken.
    fn ready(&self) -> Option<(Text, bool)> {
        let mut texts = lock(&self.texts);
        let was_full = texts.waiting.len() >= self.texts_max;
        Some((texts.waiting.pop()?, was_full))
    }

    /// True if no page is being processed. A page that was taken has a place among the texts before the order is
    /// released.
    fn is_empty(&self) -> bool {
        let _order = lock(&self.order);
        lock(&self.texts).waiting.is_empty()
    }
}

/// Data of a frame for a worker: its place, the facts about earlier frames, and the number of interfaces known at that
/// point.
pub(crate) type Handed = (Place, Before, usize);

/// Makes the data of each frame that a board keeps for its worker.
pub(crate) fn handed() -> impl FnMut(&FrameMeta, Place, &Metadata) -> Handed {
    let mut times: Option<(i64, i64)> = None;
    move |meta, place, metadata| {
        let (first_ns, previous_ns) = times.unwrap_or((meta.time_ns, 0));
        times = Some((first_ns, meta.time_ns));
        (place, Before { number: meta.number, first_ns, previous_ns }, metadata.interfaces.len())
    }
}

struct Worker<'p> {
    shard: usize,
    plan: &'p Plan,
    dissection: Dissection,
    form: Form,
    extractor: Extractor,
    filter: Option<Filter>,
}

/// Shows a dissection to what keeps a frame, for a worker with this filter.
macro_rules! observed {
    ($seen:expr, $filter:expr, |$t:ident| $dissect:expr) => {
        match $seen {
            Seen::Tree(tree, _) => {
                let $t = tree;
                $dissect
            }
            Seen::Values(extractor) => {
                let $t = extractor;
                $dissect
            }
            Seen::Line(extractor, line) if $filter.is_some() => {
                let $t = &mut Pair(extractor, line);
                $dissect
            }
            Seen::Line(_, line) => {
                let $t = line;
                $dissect
            }
        }
    };
}

impl Worker<'_> {
    /// Dissects frames of its own connections.
    fn dissect<'f, K>(&mut self, board: &Board<'f, Handed, K, Sheet>, mut part: Part<Handed, Sheet>)
    where
        K: FnMut(&FrameMeta, Place, &Metadata) -> Handed,
    {
        let is_begun = part.begun.is_some();
        let mut sheet = part.begun.take().unwrap_or_else(|| board.blank());
        sheet.used = 0;
        let mut datagrams = part.datagrams();
        let interfaces = part.interfaces.clone();
        for (meta, (place, before, seen)) in &part.frames {
            let record = part.chunk.record(place);
            let is_whole = datagrams.front().is_some_and(|(number, _)| *number == meta.number);
            let datagram = if is_whole { datagrams.pop_front().map(|(_, datagram)| datagram) } else { None };
            let interfaces = interfaces.get(..*seen).unwrap_or(&interfaces);
            let kept = sheet.next(self.plan);
            let (dissection, checked) = (&mut self.dissection, kept.checked);
            if !is_begun {
                kept.seen.begin(record.bytes);
            }
            let d = observed!(&mut kept.seen, self.filter, |t| if is_begun {
                dissection.rest(&record, *before, datagram, checked, t)
            } else {
                dissection.part(&record, *before, interfaces, datagram, t)
            });
            kept.frame = Some(d);
            kept.shown = true;
            (kept.counts, kept.streams) = dissection.counts();
            let bytes = kept.bytes();
            sheet.bytes += bytes;
            board.hold(&mut sheet.held, sheet.bytes);
            if board.is_given_up() {
                return;
            }
        }
        let batch = part.batch;
        board.done(self.shard, part, self.dissection.most_connections());
        board.put(batch, self.shard, sheet);
    }

    /// Begins to dissect frames of another worker's connections. Returns false if there are none.
    fn begin<'f, K>(&mut self, board: &Board<'f, Handed, K, Sheet>) -> bool
    where
        K: FnMut(&FrameMeta, Place, &Metadata) -> Handed,
    {
        let Some(mut lent) = board.lend(self.shard) else { return false };
        let part = &mut lent.part;
        let mut sheet = board.blank();
        let options = self.dissection.decode_options();
        for (_, (place, before, seen)) in &part.frames {
            let record = part.chunk.record(place);
            let interfaces = part.interfaces.get(..*seen).unwrap_or(&part.interfaces);
            let kept = sheet.next(self.plan);
            kept.seen.begin(record.bytes);
            kept.checked = observed!(&mut kept.seen, self.filter, |t| dissection::begin(
                &record, interfaces, *before, &options, t
            ));
        }
        part.begun = Some(sheet);
        board.give(lent);
        true
    }

    /// Writes frames of all workers.
    fn page<'f, K>(&mut self, board: &Board<'f, Handed, K, Sheet>, page: &mut Page<Sheet>, text: &mut Text)
    where
        K: FnMut(&FrameMeta, Place, &Metadata) -> Handed,
    {
        let mut read = vec![0; page.parts.len()];
        for shard in &page.order {
            let shard = usize::from(*shard);
            let kept = page.parts[shard].as_mut().and_then(|sheet| sheet.kept.get_mut(read[shard]));
            let Some(KeptFrame { frame: Some(d), seen, shown, .. }) = kept else { continue };
            read[shard] += 1;
            let passes = |filter: &Option<Filter>, extractor: &Extractor| {
                filter.as_ref().is_none_or(|filter| filter.matches(extractor))
            };
            let shown = match (seen, &mut self.form) {
                (Seen::Tree(tree, shape), Form::Print(printer)) => {
                    if self.filter.is_some() {
                        self.extractor.load(tree);
                    }
                    let shown = passes(&self.filter, &self.extractor);
                    if shown {
                        self.plan.chosen.choose(tree);
                        shape.apply(tree);
                        printer.frame(&mut text.bytes, d, tree, shape, &mut Marks::default());
                    }
                    shown
                }
                (Seen::Values(extractor), Form::Fields(fields)) => {
                    let shown = passes(&self.filter, extractor);
                    if shown {
                        fields.frame(&mut text.bytes, d, extractor, &mut Marks::default());
                    }
                    shown
                }
                (Seen::Line(_, line), Form::Lines(lines)) => {
                    if *shown {
                        lines.frame(&mut text.bytes, d, line.protocol, &line.info, line.faults > 0);
                    }
                    *shown
                }
                _ => false,
            };
            text.ends.push((text.bytes.len(), shown));
            board.hold(&mut text.held, text.bytes.len());
            if board.is_given_up() {
                return;
            }
        }
    }
}

/// Writes the frames of a file, within `limits`; `out` gets the text, in order.
///
/// # Errors
/// Those of `out`.
pub fn run(
    plan: &Plan,
    file: &CaptureFile,
    limits: Limits,
    mut out: impl FnMut(&[u8]) -> Result<()>,
) -> Result<Shared> {
    let threads = plan.workers();
    let mut workers: Vec<Worker<'_>> = (0..threads)
        .map(|shard| {
            let dissection = Dissection::shard(plan.keyring.clone(), shard, threads).with_roce_port(plan.roce_port);
            let mut form = plan.form.clone();
            if let Form::Print(printer) = &mut form {
                printer.is_first(false);
            }
            Worker { shard, plan, dissection, form, extractor: plan.extractor.clone(), filter: plan.filter.clone() }
        })
        .collect();
    let mut own = workers.swap_remove(0);
    let connections_max = Options::default().connections_max;
    let pages_max = PAGES.0 * threads + PAGES.1;
    let board = Board::new(file, threads, own.dissection.decode_options(), connections_max, handed())
        .with_batches(BATCH)
        .with_pages(pages_max, pages_max - 1)
        .with_held_max(plan.held_max);
    let press = Press::new(plan);
    let lead = if let Form::Print(printer) = &plan.form { printer.lead() } else { 0 };
    let total = file.bytes().len() as u64;
    let bar = Bar::new();
    let mut writing = Writing { left: limits, frames: 0, any: false, lead };
    let is_done = thread::scope(|scope| -> Result<bool> {
        let _ending = GiveUpAtEnd(|| board.give_up());
        for mut worker in workers.drain(..) {
            let (board, press) = (&board, &press);
            scope.spawn(move || {
                let _panics = GiveUpOnDrop(board);
                loop {
                    let heard = board.heard();
                    if board.is_given_up() {
                        return;
                    }
                    // only the worker of a connection can dissect its frames: that comes first, while others write
                    match board.next(worker.shard) {
                        Next::Part(part) => worker.dissect(board, part),
                        Next::Full | Next::End if press.write(board, &mut worker) || worker.begin(board) => {}
                        Next::End if !board.has_pages() => return,
                        Next::Full | Next::End => board.nap(heard),
                    }
                }
            });
        }
        loop {
            let heard = board.heard();
            let mut moved = false;
            while let Some((text, was_full)) = press.ready() {
                moved = true;
                if was_full {
                    board.moved();
                }
                if !writing.text(&text, &mut out)? {
                    return Ok(true);
                }
                board.release(text.held);
                lock(&press.texts).blank.push(text.cleared());
            }
            if board.is_given_up() {
                return Ok(false);
            }
            match board.next(own.shard) {
                Next::Part(part) => {
                    bar.at(part.offset, total);
                    own.dissect(&board, part);
                }
                Next::Full | Next::End if press.write(&board, &mut own) || own.begin(&board) => {}
                // nothing is in progress any more, unless a thread gave up
                Next::End if !board.has_pages() && press.is_empty() => return Ok(!board.is_given_up()),
                Next::Full | Next::End if !moved => board.nap(heard),
                Next::Full | Next::End => {}
            }
        }
    })?;
    if !is_done {
        return Ok(Shared::First(writing.frames, writing.any));
    }
    let error = board.end().walk.error.filter(|_| writing.left.read > 0 && writing.left.shown > 0);
    Ok(Shared::All(error, writing.any))
}

/// State of the output so far.
struct Writing {
    left: Limits,
    frames: u64,
    any: bool,
    lead: usize,
}

impl Writing {
    /// Passes on a text within the limits. Returns true if more may follow.
    fn text(&mut self, text: &Text, out: &mut impl FnMut(&[u8]) -> Result<()>) -> Result<bool> {
        let mut end = 0;
        for (at, shown) in &text.ends {
            if self.left.read == 0 || self.left.shown == 0 {
                break;
            }
            self.frames += 1;
            self.left.read -= 1;
            self.left.shown -= u64::from(*shown);
            end = *at;
        }
        let bytes = &text.bytes[..end];
        if !bytes.is_empty() {
            out(&bytes[if self.any { 0 } else { self.lead.min(bytes.len()) }..])?;
            self.any = true;
        }
        Ok(self.left.read > 0 && self.left.shown > 0)
    }
}
