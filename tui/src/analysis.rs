//! Captures through the analyzer: one loop for every command that wants a report.
//!
//! A file that is mapped is walked, and its checksums are looked at, by other threads than the one that follows connections; anything
//! else goes through one loop. Either way every frame before a damage is analysed, and the damage is told afterwards.
//!
//! ```text
//!   file ─▶ worker: walk, ICRC, MPA CRC ─▶ batch ─▶ main thread: Pipeline, in the order of the file
//!      └──▶ worker …                          ◀─ empty batch
//! ```

use crate::input::{Bar, Input};
use rdmascope_analyzer::connection::f::CONNECTION;
use rdmascope_analyzer::env::Options;
use rdmascope_analyzer::exchange::Exchange;
use rdmascope_analyzer::finding::Finding;
use rdmascope_analyzer::pipeline::{FrameMeta, Pipeline};
use rdmascope_analyzer::report::{Report, Sink};
use rdmascope_capture::{CaptureFile, Hardware, LinkType, Metadata, Record, RecordIter, Source};
use rdmascope_dissector::filter::Filter;
use rdmascope_dissector::frame::{self, Checked};
use rdmascope_dissector::probe::{Need, Probe};
use rdmascope_dissector::render::Stored;
use rdmascope_dissector::trace::{Off, Trace};
use rdmascope_dissector::wire::frame_fields::{self, FrameInfo};
use std::collections::HashSet;
use std::sync::Mutex;
use std::sync::mpsc::{Receiver, Sender, SyncSender, channel, sync_channel};
use std::thread;

/// Records in a batch that goes from one thread to another.
const BATCH: usize = 512;
/// Batches that a worker may be ahead.
const AHEAD: usize = 4;
/// Link types of one input that are told apart.
const LINK_TYPES_MAX: usize = 16;

/// What one input had.
#[derive(Clone, Debug, Default)]
pub(crate) struct InputStory {
    /// As the user named it.
    pub(crate) path: String,
    /// Frames in it.
    pub(crate) frames: u64,
    /// Their bytes on the wire.
    pub(crate) bytes: u64,
    /// Time of its first frame, ns since the Unix epoch.
    pub(crate) first: Option<i64>,
    /// Time of its last frame.
    pub(crate) last: Option<i64>,
    /// What its frames begin with.
    pub(crate) link_types: Vec<LinkType>,
    /// Why it could not be read to its end.
    pub(crate) error: Option<String>,
}

impl InputStory {
    #[inline]
    pub(crate) fn frame(&mut self, record: &Record<'_>, time_ns: i64) {
        self.frames += 1;
        self.bytes += u64::from(record.wire_len);
        self.first = Some(self.first.map_or(time_ns, |t| t.min(time_ns)));
        self.last = Some(self.last.map_or(time_ns, |t| t.max(time_ns)));
        if self.link_types.last() != Some(&record.link_type)
            && !self.link_types.contains(&record.link_type)
            && self.link_types.len() < LINK_TYPES_MAX
        {
            self.link_types.push(record.link_type);
        }
    }
}

/// What a display filter chose.
#[derive(Clone, Debug, Default)]
pub(crate) struct Selection {
    /// The filter, as it was written.
    pub(crate) text: String,
    /// Frames that it passes.
    pub(crate) frames: u64,
    /// Connections with such a frame, by the numbers they were followed under.
    connections: HashSet<u32>,
    /// A bit for each frame.
    bits: Vec<u64>,
}

impl Selection {
    fn add(&mut self, frame: u64, connection: Option<u32>) {
        self.frames += 1;
        let word = (frame / 64) as usize;
        if word >= self.bits.len() {
            self.bits.resize(word + 1, 0);
        }
        self.bits[word] |= 1 << (frame % 64);
        self.connections.extend(connection);
    }

    /// Whether the filter passes this frame.
    pub(crate) fn has_frame(&self, frame: u64) -> bool {
        self.bits.get((frame / 64) as usize).is_some_and(|word| word >> (frame % 64) & 1 == 1)
    }

    /// Whether the filter passes a frame of the connection that was followed under one of these numbers.
    pub(crate) fn has_connection(&self, followed_as: &[u32]) -> bool {
        followed_as.iter().any(|id| self.connections.contains(id))
    }

    /// Whether the filter passes one of the frames by which a request is known: its own, its reply's, first and last of its RDMA.
    pub(crate) fn has_exchange(&self, exchange: &Exchange) -> bool {
        let moved = [&exchange.reads, &exchange.writes].into_iter().filter(|m| m.frames > 0).flat_map(|m| [m.first, m.last]);
        let ends = [exchange.request, exchange.request_end].into_iter().chain(exchange.reply).chain(exchange.reply_end);
        ends.chain(moved).any(|at| self.has_frame(at.frame))
    }

    /// Whether the filter passes one of its frames. Of many occurrences only the first frames are known; then it does where it
    /// passes a frame of the connection.
    pub(crate) fn has_finding(&self, finding: &Finding, connection_is_chosen: bool) -> bool {
        finding.frames.iter().any(|f| self.has_frame(*f)) || (connection_is_chosen && finding.count > finding.frames.len() as u64)
    }
}

/// An analysis that is done.
pub(crate) struct Analysis<S> {
    pub(crate) report: Report,
    pub(crate) sink: S,
    pub(crate) inputs: Vec<InputStory>,
    /// Frames that the capturing machine says it lost.
    pub(crate) lost_frames: u64,
    /// What RDMA devices counted while it was captured.
    pub(crate) hardware: Hardware,
    pub(crate) selection: Option<Selection>,
    /// What ended reading too early.
    pub(crate) error: Option<rdmascope_capture::Error>,
}

/// How to run.
pub(crate) struct Run {
    pub(crate) options: Options,
    /// Threads that work at the same time at most.
    pub(crate) threads: usize,
    pub(crate) filter: Option<Filter>,
}

/// Analyses all frames of the input.
pub(crate) fn run<S: Sink>(input: Input, names: Vec<String>, run: Run, sink: S) -> Analysis<S> {
    let inputs = names.into_iter().map(|path| InputStory { path, ..InputStory::default() }).collect();
    let analysis = Loop { pipeline: Pipeline::with_sink(run.options, sink), inputs, bar: Bar::before_output(), number: 0, time_ns: 0 };
    match (input, run.filter) {
        (Input::One(capture), None) => match capture.file() {
            Some(file) if run.threads > 1 => analysis.threaded(file, run.threads - 1),
            _ => analysis.plain(capture, |_| 0),
        },
        (Input::One(capture), Some(filter)) => analysis.filtered(capture, |_| 0, filter),
        (Input::Many(merged), None) => analysis.plain(merged, |m| m.current_input().unwrap_or(0)),
        (Input::Many(merged), Some(filter)) => analysis.filtered(merged, |m| m.current_input().unwrap_or(0), filter),
    }
}

struct Loop<S> {
    pipeline: Pipeline<S>,
    inputs: Vec<InputStory>,
    bar: Bar,
    number: u64,
    time_ns: i64,
}

/// Number and time of a record; one without a time has that of the record before.
#[inline]
pub(crate) fn meta_of(record: &Record<'_>, number: u64, time_ns: &mut i64) -> FrameMeta {
    if record.has_time() {
        *time_ns = record.time_ns;
    }
    FrameMeta { number, time_ns: *time_ns, link_type: record.link_type, wire_len: record.wire_len, interface: record.interface }
}

impl<S: Sink> Loop<S> {
    fn plain<R: Source>(mut self, mut source: R, which: impl Fn(&R) -> usize) -> Analysis<S> {
        let error = loop {
            match source.advance() {
                Ok(true) => {}
                Ok(false) => break None,
                Err(e) => break Some(e),
            }
            let record = source.record();
            self.number += 1;
            let meta = meta_of(&record, self.number, &mut self.time_ns);
            self.inputs[which(&source)].frame(&record, meta.time_ns);
            self.pipeline.frame(&meta, record.bytes, &mut Off);
            self.bar.frame(&source);
        };
        self.done(error, source.metadata(), None)
    }

    fn filtered<R: Source>(mut self, mut source: R, which: impl Fn(&R) -> usize, mut filter: Filter) -> Analysis<S> {
        let mut selection = Selection { text: filter.text().to_owned(), ..Selection::default() };
        let mut probe = Probe::new();
        filter.bind(&mut probe);
        let connection = probe.want(CONNECTION, Need::Value);
        let (mut first_ns, mut previous_ns) = (None, 0);
        let error = loop {
            match source.advance() {
                Ok(true) => {}
                Ok(false) => break None,
                Err(e) => break Some(e),
            }
            let record = source.record();
            self.number += 1;
            let meta = meta_of(&record, self.number, &mut self.time_ns);
            self.inputs[which(&source)].frame(&record, meta.time_ns);
            probe.begin();
            let interfaces = source.interfaces();
            let info = FrameInfo {
                number: self.number,
                time_ns: record.has_time().then_some(record.time_ns),
                first_ns: *first_ns.get_or_insert(meta.time_ns),
                previous_ns: (self.number > 1).then_some(previous_ns),
                wire_len: record.wire_len,
                interface: interfaces
                    .get(record.interface as usize)
                    .filter(|i| i.name.is_some() || interfaces.len() > 1)
                    .map(|_| record.interface),
                interface_name: interfaces.get(record.interface as usize).and_then(|i| i.name.as_deref()),
            };
            previous_ns = meta.time_ns;
            frame_fields::tell(&info, record.comments(), record.bytes, &mut probe);
            self.pipeline.frame(&meta, record.bytes, &mut probe);
            probe.end();
            if filter.matches(&probe) {
                let id = probe
                    .values(connection)
                    .next()
                    .and_then(|(_, value)| if let Stored::U(id) = value { u32::try_from(id).ok() } else { None });
                selection.add(self.number, id);
            }
            self.bar.frame(&source);
        };
        self.done(error, source.metadata(), Some(selection))
    }

    /// The main thread follows connections; `workers` others walk the file and look at checksums.
    fn threaded(mut self, file: &CaptureFile, workers: usize) -> Analysis<S> {
        let walk = Mutex::new(Walk { records: file.records(), number: 0, time_ns: 0, error: None });
        let options = self.pipeline.decode_options();
        let total = file.bytes().len() as u64;
        thread::scope(|scope| {
            // who has the next batch, in the order of the file
            let (turns, order) = channel::<usize>();
            let mut lines = Vec::new();
            for worker in 0..workers {
                let (full, filled) = sync_channel::<Batch<'_>>(AHEAD);
                let (empty, emptied) = channel::<Batch<'_>>();
                let (walk, turns, options) = (&walk, turns.clone(), &options);
                scope.spawn(move || look(walk, worker, options, &turns, &full, &emptied));
                lines.push((filled, empty));
            }
            drop(turns);
            for worker in order {
                let (filled, empty): &(Receiver<Batch<'_>>, Sender<Batch<'_>>) = &lines[worker];
                // a worker that took a turn always sends a batch for it
                let Ok(mut batch) = filled.recv() else { break };
                self.bar.at(batch.offset, total);
                for (meta, bytes, checked) in batch.frames.drain(..) {
                    self.pipeline.frame_checked(&meta, bytes, checked);
                }
                merge(&mut self.inputs[0], &batch.story);
                batch.story = InputStory::default();
                // where the worker has gone, nobody needs it
                let _ = empty.send(batch);
            }
        });
        let walk = walk.into_inner().unwrap_or_else(|poisoned| poisoned.into_inner());
        let metadata: &Metadata = walk.records.metadata();
        self.done(walk.error, metadata, None)
    }

    fn done(mut self, error: Option<rdmascope_capture::Error>, metadata: &Metadata, selection: Option<Selection>) -> Analysis<S> {
        if let Some(e) = &error {
            let at = self.inputs.iter().position(|i| e.path().as_os_str() == std::ffi::OsStr::new(&i.path)).unwrap_or(0);
            self.inputs[at].error = Some(e.to_string());
        }
        let (report, sink) = self.pipeline.finish();
        let (lost_frames, hardware) = (metadata.lost_frames(), metadata.hardware.clone());
        Analysis { report, sink, inputs: self.inputs, lost_frames, hardware, selection, error }
    }
}

/// The file, as far as it was walked.
struct Walk<'f> {
    records: RecordIter<'f>,
    number: u64,
    time_ns: i64,
    error: Option<rdmascope_capture::Error>,
}

/// Frames with what their checksums said, and what they add to the story of the input. What was decoded is not among it: it is
/// made anew faster than it comes from another core.
#[derive(Default)]
struct Batch<'f> {
    frames: Vec<(FrameMeta, &'f [u8], Checked)>,
    story: InputStory,
    offset: u64,
}

fn look<'f>(
    walk: &Mutex<Walk<'f>>,
    worker: usize,
    options: &frame::Options,
    turns: &Sender<usize>,
    full: &SyncSender<Batch<'f>>,
    emptied: &Receiver<Batch<'f>>,
) {
    let mut records: Vec<(FrameMeta, &'f [u8])> = Vec::with_capacity(BATCH);
    loop {
        let mut batch = emptied.try_recv().unwrap_or_default();
        {
            let mut walk = walk.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
            let walk = &mut *walk;
            while records.len() < BATCH {
                match walk.records.next() {
                    Some(Ok(record)) => {
                        walk.number += 1;
                        let meta = meta_of(&record, walk.number, &mut walk.time_ns);
                        batch.story.frame(&record, meta.time_ns);
                        records.push((meta, record.bytes));
                    }
                    Some(Err(e)) => {
                        walk.error.get_or_insert(e);
                        break;
                    }
                    None => break,
                }
            }
            batch.offset = walk.records.offset();
            // the turn is taken while the walk is held, so that turns are in the order of the file
            if records.is_empty() || turns.send(worker).is_err() {
                return;
            }
        }
        let checked =
            records.drain(..).map(|(meta, bytes)| (meta, bytes, frame::check_sums(meta.link_type, bytes, meta.wire_len, options)));
        batch.frames.extend(checked);
        if full.send(batch).is_err() {
            return;
        }
    }
}

fn merge(into: &mut InputStory, from: &InputStory) {
    into.frames += from.frames;
    into.bytes += from.bytes;
    into.first = [into.first, from.first].into_iter().flatten().min();
    into.last = [into.last, from.last].into_iter().flatten().max();
    for link_type in &from.link_types {
        if !into.link_types.contains(link_type) && into.link_types.len() < LINK_TYPES_MAX {
            into.link_types.push(*link_type);
        }
    }
}
