//! Analysis of captures: the loop that every command with a report uses.
//!
//! Several threads work on a mapped file; all other inputs, and small files, go through one loop. In both cases every
//! frame before a damage is analysed, the damage is reported afterwards, and the report is the same, byte for byte.
//!
//! If there are several connections, each worker follows connections of its own (`Router`); an idle worker walks the
//! file on:
//!
//! ```text
//!   file ─▶ walk, route ─┬▶ worker 0: decode, ICRC, Pipeline ─┐
//!                        └▶ worker n: decode, ICRC, Pipeline ─┴▶ finish_all
//! ```
//!
//! If one connection has most of the frames, or if there are several files, the other workers decode for the one that
//! follows the connections ([`ahead`]).

use crate::ahead::{self, How, Mapped};
use crate::dissection::{self, Before, Past, known_speeds};
use crate::input::{Bar, Input};
use crate::known_bugs::{self, Condition, Search};
use crate::shards::{Board, Ended, GiveUpOnDrop, Next, Part, Walk, share};
use crate::sync::thread;
use rdmascope_analyzer::connection::f::CONNECTION;
use rdmascope_analyzer::env::{Options, keep_if_slow};
use rdmascope_analyzer::exchange::Exchange;
use rdmascope_analyzer::finding::Finding;
use rdmascope_analyzer::op::{At, RdmaOp};
use rdmascope_analyzer::pieces::Assembly;
use rdmascope_analyzer::pipeline::{FrameMeta, Pipeline, finish_all};
use rdmascope_analyzer::report::{Parts, Report, Sink};
use rdmascope_capture::{CaptureFile, Chunk, FrameAt, Hardware, Interface, LinkType, Metadata, Place, Record};
use rdmascope_dissector::extract::{Extractor, Need};
use rdmascope_dissector::filter::Filter;
use rdmascope_dissector::frame;
use rdmascope_dissector::render::Stored;
use rdmascope_dissector::trace::{Off, Trace};
use std::collections::HashSet;
use std::sync::Arc;

pub use crate::shards::meta_of;

/// Maximum share of the frames for one worker; if its connections have more, the others decode for it.
pub const SHARE_MAX: f64 = 0.64;
/// A file with fewer bytes is done by one thread before a second one has begun.
pub const SMALL: usize = 1 << 20;
/// Link types of one input that are distinguished.
const LINK_TYPES_MAX: usize = 16;

/// Summary of one input.
#[derive(Clone, Debug, Default)]
pub struct InputSummary {
    /// As the user named it.
    pub path: String,
    /// Frames in it.
    pub frames: u64,
    /// Their bytes on the wire.
    pub bytes: u64,
    /// Time of its first frame, ns since the Unix epoch.
    pub first: Option<i64>,
    /// Time of its last frame.
    pub last: Option<i64>,
    /// Link types of its frames.
    pub link_types: Vec<LinkType>,
    /// The error that stopped reading before the end of the input.
    pub error: Option<String>,
}

impl InputSummary {
    /// Counts a frame.
    #[inline]
    pub fn frame(&mut self, meta: &FrameMeta) {
        let FrameMeta { time_ns, link_type, .. } = *meta;
        self.frames += 1;
        self.bytes += u64::from(meta.wire_len);
        self.first = Some(self.first.map_or(time_ns, |t| t.min(time_ns)));
        self.last = Some(self.last.map_or(time_ns, |t| t.max(time_ns)));
        if self.link_types.last() != Some(&link_type)
            && !self.link_types.contains(&link_type)
            && self.link_types.len() < LINK_TYPES_MAX
        {
            self.link_types.push(link_type);
        }
    }
}

/// Result of a display filter.
#[derive(Clone, Debug, Default)]
pub struct Selection {
    /// The filter, as it was written.
    pub text: String,
    /// Frames that it passes.
    pub frames: u64,
    /// Connections with such a frame, by the numbers they were followed under.
    connections: HashSet<u32>,
    /// A bit for each frame.
    bits: Vec<u64>,
    /// The slowest exchanges that it passes, by the connections' numbers as they were followed.
    pub slowest: Vec<Exchange>,
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

    /// Takes exchanges that are complete into the list of the slowest, those that the filter passes.
    fn completed(&mut self, exchanges: &mut Vec<Exchange>, most: usize) {
        for exchange in exchanges.drain(..) {
            if self.has_exchange(&exchange) {
                keep_if_slow(&mut self.slowest, &exchange, most);
            }
        }
    }

    /// True if the filter passes this frame.
    pub fn has_frame(&self, frame: u64) -> bool {
        self.bits.get((frame / 64) as usize).is_some_and(|word| word >> (frame % 64) & 1 == 1)
    }

    /// True if the filter passes a frame of a connection that was followed under one of these numbers.
    pub fn has_connection(&self, followed_as: &[u32]) -> bool {
        followed_as.iter().any(|id| self.connections.contains(id))
    }

    /// True if the filter passes one of the frames that identify a request: its own, its reply's, the first and last of
    /// its RDMA.
    pub fn has_exchange(&self, exchange: &Exchange) -> bool {
        let moved =
            [&exchange.reads, &exchange.writes].into_iter().filter(|m| m.frames > 0).flat_map(|m| [m.first, m.last]);
        let ends = [exchange.request, exchange.request_end].into_iter().chain(exchange.reply).chain(exchange.reply_end);
        ends.chain(moved).any(|at| self.has_frame(at.frame))
    }

    /// True if the filter passes one of its frames. A finding that occurred often keeps only its first frames; it then
    /// also counts if the filter passes a frame of its connection.
    pub fn has_finding(&self, finding: &Finding, connection_is_chosen: bool) -> bool {
        finding.frames.iter().any(|f| self.has_frame(*f)) || (connection_is_chosen && finding.frames.omitted() > 0)
    }
}

/// An analysis that is done.
pub struct Analysis<S> {
    /// Findings of the analyzer.
    pub report: Report,
    /// The sink that received the results of the analysis.
    pub sink: S,
    /// Each input, in the order of the command line.
    pub inputs: Vec<InputSummary>,
    /// Number of frames that the capturing machine reports as lost.
    pub lost_frames: u64,
    /// Counters of RDMA devices while it was captured.
    pub hardware: Hardware,
    /// Result of the filter, if there was one.
    pub selection: Option<Selection>,
    /// Error that ended reading.
    pub error: Option<rdmascope_capture::Error>,
}

/// Options of a run of the analysis.
pub struct Run {
    /// Options of the analyzer.
    pub options: Options,
    /// Maximum number of threads that work at the same time.
    pub threads: usize,
    /// Bytes that a file has at least before more than one works: [`SMALL`].
    pub small: usize,
    /// Restricts the report to frames that it passes.
    pub filter: Option<Filter>,
    /// Frames that are read at most; with a limit, one thread reads them.
    pub frames: u64,
}

/// Analyses all frames of the input; of none, the report is empty.
pub fn run<S: Sink>(input: impl Into<Option<Input>>, names: Vec<String>, run: Run, sink: S) -> Analysis<S> {
    let inputs = names.into_iter().map(|path| InputSummary { path, ..InputSummary::default() }).collect();
    let Run { options, threads, small, filter, frames } = run;
    let threads = if frames == u64::MAX { threads } else { 1 };
    let Some(input) = input.into() else {
        return Loop::new(Pipeline::with_sink(options, sink), inputs).done(None, &Metadata::default());
    };
    let conditions = known_bugs::conditions();
    if filter.is_none() && conditions.is_empty() {
        let analysis = Loop::new(Pipeline::with_sink(options, sink), inputs).up_to(frames);
        return match input {
            Input::One(capture) => analysis.ahead(capture, threads, small),
            Input::Many(merged) => analysis.ahead(merged, threads, small),
        };
    }
    let most = options.slowest_max;
    let sink = Completing { sink, is_wanted: filter.is_some(), exchanges: Vec::new() };
    let analysis = Loop::new(Pipeline::with_sink(options, sink), inputs).up_to(frames);
    match input {
        Input::One(capture) => analysis.filtered(capture, filter, most, conditions),
        Input::Many(merged) => analysis.filtered(merged, filter, most, conditions),
    }
}

/// Passes everything on to another listener. The exchanges that a frame completes are kept until a filter has decided
/// about the frame, if there is one.
struct Completing<S> {
    sink: S,
    is_wanted: bool,
    exchanges: Vec<Exchange>,
}

impl<S: Sink> Sink for Completing<S> {
    fn exchange(&mut self, exchange: &Exchange) {
        if self.is_wanted {
            self.exchanges.push(exchange.clone());
        }
        self.sink.exchange(exchange);
    }

    fn reply(&mut self, exchange: u64, message: &[u8]) {
        self.sink.reply(exchange, message);
    }

    fn request(&mut self, exchange: u64, message: &[u8]) {
        self.sink.request(exchange, message);
    }

    fn assembled(&mut self, what: Assembly, frame: u64, frames: &[u64]) {
        self.sink.assembled(what, frame, frames);
    }

    fn credits(&mut self, connection: u32, at: At, held: [Option<i64>; 2]) {
        self.sink.credits(connection, at, held);
    }

    fn upper_credits(&mut self, connection: u32, at: At, held: Option<i64>) {
        self.sink.upper_credits(connection, at, held);
    }

    fn op(&mut self, connection: u32, op: &RdmaOp<'_>) {
        self.sink.op(connection, op);
    }

    fn payload(&mut self, exchange: &Exchange, offset: u64, bytes: &[u8]) {
        self.sink.payload(exchange, offset, bytes);
    }

    fn forgotten(&mut self, connection: u32) {
        self.sink.forgotten(connection);
    }

    fn finding(&mut self, finding: &Finding) {
        self.sink.finding(finding);
    }
}

/// The same for sinks that can be split: then threads share the connections.
pub fn run_in_parts<S: Parts + Send>(
    input: impl Into<Option<Input>>,
    names: Vec<String>,
    how: Run,
    sink: S,
) -> Analysis<S> {
    let input = input.into();
    if let (Some(Input::One(capture)), None) = (&input, &how.filter)
        && Search::new().is_none_or(|search| search.is_by_connection())
        && let Some(file) = capture.file()
        && how.threads > 1
        && how.frames == u64::MAX
        && file.bytes().len() >= how.small
        && share(file, how.threads, frame::Options::default()) <= SHARE_MAX
        && let Some(analysis) = run_in_shards(file, &names, &how, &sink)
    {
        return analysis;
    }
    run(input, names, how, sink)
}

/// Distributes the connections of a file among threads, even if the shares are unequal. `None` if connections depend on
/// each other: then one thread has to follow them all.
pub fn run_in_shards<S: Parts + Send>(
    file: &CaptureFile,
    names: &[String],
    run: &Run,
    sink: &S,
) -> Option<Analysis<S>> {
    let mut summary = InputSummary::default();
    let (report, sink, walk) = match Search::new() {
        None => {
            let keep = |meta: &FrameMeta, place: Place, _: &Metadata| {
                summary.frame(meta);
                place.frame()
            };
            let each = |pipeline: &mut Pipeline<S>, meta: &FrameMeta, at: &FrameAt, chunk: &Chunk, _: &[Interface]| {
                pipeline.frame(meta, chunk.bytes(*at), &mut Off)
            };
            in_shards(file, run, sink, keep, || each)
        }
        Some(search) => {
            let mut past = Past::default();
            let keep = |meta: &FrameMeta, place: Place, metadata: &Metadata| {
                summary.frame(meta);
                (place, past.before(meta), metadata.interfaces.len())
            };
            in_shards(file, run, sink, keep, || {
                let mut search = search.clone();
                move |pipeline: &mut Pipeline<S>,
                      meta: &FrameMeta,
                      kept: &(Place, Before, usize),
                      chunk: &Chunk,
                      interfaces: &[Interface]| {
                    let (place, before, interfaces_then) = kept;
                    let record = chunk.record(place);
                    let interfaces = interfaces.get(..*interfaces_then).unwrap_or(interfaces);
                    pipeline.frame(meta, record.bytes, search.begin(&record, interfaces, *before));
                    search.end(meta, pipeline);
                }
            })
        }
    }?;
    let mut input = InputSummary { path: names.first().cloned().unwrap_or_default(), ..summary };
    input.error = walk.error.as_ref().map(ToString::to_string);
    let metadata = walk.metadata();
    let (lost_frames, hardware) = (metadata.lost_frames(), metadata.hardware.clone());
    Some(Analysis { report, sink, inputs: vec![input], lost_frames, hardware, selection: None, error: walk.error })
}

/// `keep` takes what is kept of a frame, and `each` worker processes that.
fn in_shards<S: Parts + Send, T: Send, F>(
    file: &CaptureFile,
    run: &Run,
    sink: &S,
    keep: impl FnMut(&FrameMeta, Place, &Metadata) -> T + Send,
    each: impl Fn() -> F,
) -> Option<(Report, S, Walk)>
where
    F: FnMut(&mut Pipeline<S>, &FrameMeta, &T, &Chunk, &[Interface]) + Send,
{
    let pipeline = |shard| Pipeline::shard(run.options.clone(), sink.part(), shard, run.threads);
    let workers: Vec<(Pipeline<S>, F)> = (0..run.threads).map(|shard| (pipeline(shard), each())).collect();
    let options = workers.first()?.0.decode_options();
    let board = Board::new(file, run.threads, options, run.options.connections_max, keep);
    let bar = Bar::before_output();
    let total = file.bytes().len() as u64;
    let mut pipelines = thread::scope(|scope| {
        let mut workers = workers.into_iter().enumerate();
        let first = workers.next();
        let others: Vec<_> = workers
            .map(|(shard, (pipeline, each))| {
                let board = &board;
                scope.spawn(move || follow(board, shard, pipeline, each, |_| {}))
            })
            .collect();
        let first = first
            .map(|(shard, (pipeline, each))| follow(&board, shard, pipeline, each, |offset| bar.at(offset, total)));
        let joined =
            others.into_iter().map(|worker| worker.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)));
        first.into_iter().chain(joined).collect::<Vec<_>>()
    });
    drop(bar);
    if board.is_given_up() {
        return None;
    }
    let Ended { walk, router, .. } = board.end();
    // all pause frames are counted by the first one
    pipelines.iter_mut().take(1).for_each(|pipeline| link_speeds(pipeline, walk.metadata()));
    let (report, sink) = finish_all(pipelines, &router)?;
    Some((report, sink, walk))
}

/// Tells an analysis how fast the interfaces of its capture are.
pub fn link_speeds<S: Sink>(pipeline: &mut Pipeline<S>, metadata: &Metadata) {
    known_speeds(pipeline, &mut 0, &metadata.interfaces);
}

/// Main loop of a worker: follows the connections that are assigned to it.
fn follow<S: Parts, T, K>(
    board: &Board<'_, T, K>,
    shard: usize,
    mut pipeline: Pipeline<S>,
    mut each: impl FnMut(&mut Pipeline<S>, &FrameMeta, &T, &Chunk, &[Interface]),
    mut at: impl FnMut(u64),
) -> Pipeline<S>
where
    K: FnMut(&FrameMeta, Place, &Metadata) -> T,
{
    let _panics = GiveUpOnDrop(board);
    let mut interfaces = 0;
    loop {
        let heard = board.heard();
        match board.next(shard) {
            Next::Part(mut part) => {
                at(part.offset);
                feed(&mut pipeline, &mut part, &mut interfaces, &mut each);
                board.done(shard, part, pipeline.most_connections());
            }
            Next::Full => board.nap(heard),
            Next::End => return pipeline,
        }
    }
}

/// Hands the frames of a part to an analysis, and before them what others have for it. `known` is the number of
/// interfaces that it was told of.
pub(crate) fn feed<S: Parts, T>(
    pipeline: &mut Pipeline<S>,
    part: &mut Part<T>,
    known: &mut usize,
    mut each: impl FnMut(&mut Pipeline<S>, &FrameMeta, &T, &Chunk, &[Interface]),
) {
    let (mut datagrams, mut pauses) = (part.datagrams(), part.pauses());
    known_speeds(pipeline, known, &part.interfaces);
    for (meta, kept) in &part.frames {
        while let Some((of, pause)) = pauses.front().filter(|(of, _)| of.number < meta.number) {
            pipeline.paused(of, pause);
            pauses.pop_front();
        }
        if datagrams.front().is_some_and(|(number, _)| *number == meta.number) {
            pipeline.whole(datagrams.pop_front().map(|(_, datagram)| datagram));
        }
        each(pipeline, meta, kept, &part.chunk, &part.interfaces);
    }
    pauses.iter().for_each(|(of, pause)| pipeline.paused(of, pause));
}

struct Loop<S> {
    pipeline: Pipeline<S>,
    inputs: Vec<InputSummary>,
    bar: Bar,
    number: u64,
    /// Frames that are read at most.
    most: u64,
    time_ns: i64,
    /// Interfaces whose speed the analysis knows.
    interfaces: usize,
}

impl<S: Sink> Loop<S> {
    fn new(pipeline: Pipeline<S>, inputs: Vec<InputSummary>) -> Self {
        Self { pipeline, inputs, bar: Bar::before_output(), number: 0, most: u64::MAX, time_ns: 0, interfaces: 0 }
    }

    /// The same of so many frames at most.
    fn up_to(self, most: u64) -> Self {
        Self { most, ..self }
    }

    /// Several threads work if the files are mapped and not small.
    fn ahead<R: Mapped>(self, source: R, threads: usize, small: usize) -> Analysis<S> {
        let files = source
            .files()
            .filter(|files| threads > 1 && files.iter().map(|file| file.bytes().len()).sum::<usize>() >= small);
        match files {
            Some(files) => self.threaded(source, &files, threads - 1),
            None => self.plain(source),
        }
    }

    fn plain<R: Mapped>(mut self, mut source: R) -> Analysis<S> {
        let error = loop {
            if self.number >= self.most {
                break None;
            }
            match source.advance() {
                Ok(true) => {}
                Ok(false) => break None,
                Err(e) => break Some(e),
            }
            let (which, before) = (source.which(), self.number);
            known_speeds(&mut self.pipeline, &mut self.interfaces, source.interfaces());
            self.frame(which, &source.record());
            if self.number < self.most {
                source.run(&mut |record| {
                    self.frame(which, record);
                    self.number < self.most
                });
            }
            self.bar.frames(self.number - before, &source);
        };
        self.done(error, source.metadata())
    }

    /// The next frame, of this input.
    #[inline(always)]
    fn frame(&mut self, which: usize, record: &Record<'_>) {
        self.number += 1;
        let meta = meta_of(record, self.number, &mut self.time_ns);
        self.inputs[which].frame(&meta);
        self.pipeline.frame(&meta, record.bytes, &mut Off);
    }

    /// The main thread follows connections; `workers` other threads walk the files, decode, and check checksums.
    fn threaded<R: Mapped>(mut self, mut source: R, files: &[Arc<CaptureFile>], workers: usize) -> Analysis<S> {
        let how = How { workers, options: self.pipeline.decode_options(), described: true };
        let total = files.iter().map(|file| file.bytes().len() as u64).sum();
        let error = ahead::decoded(
            &mut source,
            files,
            &how,
            |_, which| which,
            |batch| {
                self.bar.at(batch.done, total);
                if let Some(described) = batch.described.take() {
                    known_speeds(&mut self.pipeline, &mut self.interfaces, &described.metadata.interfaces);
                }
                for (meta, packet, which) in batch.groups().flatten() {
                    self.inputs[*which].frame(meta);
                    self.pipeline.packet(meta, packet, &mut Off);
                }
                true
            },
        );
        self.done(error, source.metadata())
    }

    fn done(mut self, error: Option<rdmascope_capture::Error>, metadata: &Metadata) -> Analysis<S> {
        if let Some(e) = &error {
            let at =
                self.inputs.iter().position(|i| e.path().as_os_str() == std::ffi::OsStr::new(&i.path)).unwrap_or(0);
            self.inputs[at].error = Some(e.to_string());
        }
        link_speeds(&mut self.pipeline, metadata);
        let (report, sink) = self.pipeline.finish();
        let (lost_frames, hardware) = (metadata.lost_frames(), metadata.hardware.clone());
        Analysis { report, sink, inputs: self.inputs, lost_frames, hardware, selection: None, error }
    }
}

impl<S: Sink> Loop<Completing<S>> {
    /// Looks at the fields of every frame: for a filter, and for bugs that are known by theirs. Of the exchanges that the
    /// filter passes, the `most` slowest are kept.
    fn filtered<R: Mapped>(
        mut self,
        mut source: R,
        filter: Option<Filter>,
        most: usize,
        mut conditions: Vec<Condition>,
    ) -> Analysis<S> {
        let mut extractor = Extractor::new();
        let mut selected = filter.map(|mut filter| {
            filter.bind(&mut extractor);
            (Selection { text: filter.text().to_owned(), ..Selection::default() }, filter)
        });
        conditions.iter_mut().for_each(|condition| condition.bind(&mut extractor));
        let connection = extractor.want(CONNECTION, Need::Value);
        let mut past = Past::default();
        let error = loop {
            if self.number >= self.most {
                break None;
            }
            match source.advance() {
                Ok(true) => {}
                Ok(false) => break None,
                Err(e) => break Some(e),
            }
            let record = source.record();
            self.number += 1;
            let meta = meta_of(&record, self.number, &mut self.time_ns);
            self.inputs[source.which()].frame(&meta);
            extractor.begin();
            known_speeds(&mut self.pipeline, &mut self.interfaces, source.interfaces());
            dissection::trace(&record, source.interfaces(), past.before(&meta), &mut extractor);
            self.pipeline.frame(&meta, record.bytes, &mut extractor);
            extractor.end();
            conditions.iter().for_each(|condition| condition.check(&meta, &extractor, &mut self.pipeline));
            if let Some((selection, filter)) = &mut selected
                && filter.matches(&extractor)
            {
                let id = extractor
                    .values(connection)
                    .next()
                    .and_then(|(_, value)| if let Stored::U(id) = value { u32::try_from(id).ok() } else { None });
                selection.add(self.number, id);
            }
            if let Some((selection, _)) = &mut selected {
                selection.completed(&mut self.pipeline.sink().exchanges, most);
            }
            self.bar.frame(&source);
        };
        let analysis = self.done(error, source.metadata());
        let Completing { sink, mut exchanges, .. } = analysis.sink;
        let selection = selected.map(|(mut selection, _)| {
            selection.completed(&mut exchanges, most);
            selection
        });
        Analysis {
            report: analysis.report,
            sink,
            inputs: analysis.inputs,
            lost_frames: analysis.lost_frames,
            hardware: analysis.hardware,
            selection,
            error: analysis.error,
        }
    }
}
