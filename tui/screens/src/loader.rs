//! Reads the capture once, from front to end, in a thread of its own: analysis, index, and news for the screen a few
//! times a second.
//!
//! ```text
//!   file ─▶ decode ─▶ Pipeline ─▶ report (now and then), exchanges, credits ─┐
//!              └────▶ Builder  ─▶ Index ────────────────────────────────────┴▶ News
//! ```
//!
//! If the files are mapped, other threads decode.

use super::cache::{Cache, Identity, Kept};
use super::credits_log::{CreditsLog, Point};
use super::digest::Digest;
use super::exchanges::{self, Exchanges};
use super::index::{Builder, Entry, Index, Kind};
use rdmascope_analyzer::env::Options;
use rdmascope_analyzer::exchange::Exchange;
use rdmascope_analyzer::op::At;
use rdmascope_analyzer::pipeline::{FrameMeta, Pipeline};
use rdmascope_analyzer::report::Sink;
use rdmascope_capture::live::{Counters, Event, LiveSource};
use rdmascope_capture::{
    Capture, Follow, Hardware, HardwareRow, Interface, MergedSource, Metadata, OpenOptions, Progress, RandomAccess,
    Record, Source, open,
};
use rdmascope_dissector::frame::{self, Body, Packet};
use rdmascope_dissector::trace::Off;
use rdmascope_report::ahead::{self, How, Mapped};
use rdmascope_report::analysis::{SMALL, link_speeds, meta_of};
use rdmascope_report::dissection::Past;
use rdmascope_report::live::endless::{self, Look, mpa_port};
use rdmascope_report::live::monitor;
use rdmascope_report::report::Ignore;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant, SystemTime};

/// Maximum number of exchanges in the list.
pub(crate) const EXCHANGES_MAX: usize = 250_000;
/// Slowest exchanges in the overview.
const SLOWEST: usize = 20;
/// Bytes of a pipe or a compressed file that are kept in a temporary file, so that frames can be read again.
const SPOOL_MAX: u64 = 4 << 30;
/// Frames of a file that are read without asking: half a GiB of index.
pub(crate) const FRAMES_MAX: u64 = 1 << 24;
/// Between two deliveries of news.
const DELIVER_EVERY: Duration = Duration::from_millis(50);
/// Between two looks at a file that grows.
const POLL_EVERY: Duration = Duration::from_millis(200);
/// Bytes of the last frames of a live capture that are kept in temporary files, so that they can be looked at.
const LIVE_BYTES: u64 = 1 << 30;
/// Chunks of the index of a live capture that are kept: two million frames.
const LIVE_CHUNKS: usize = 128;
/// Counters of RDMA devices shown.
const COUNTED_MAX: usize = 64;
/// Interval at which the losses of a live capture are checked.
const LOOK_EVERY: Duration = Duration::from_millis(250);
/// ns between two searches for connections to drop.
const EXPIRE_EVERY: Duration = Duration::from_secs(1);
/// Maximum number of threads: the one that follows connections cannot keep up with more.
const THREADS_MAX: usize = 8;
/// Bytes that one of the files has at least before other threads decode.
const AHEAD_FROM: usize = if cfg!(test) { 1 } else { SMALL };
/// Maximum number of files of one command line: their number has a byte in the index.
pub(crate) const INPUTS_MAX: usize = 256;

/// Results since the last delivery.
#[derive(Debug, Default)]
pub(crate) struct News {
    pub(crate) index: Index,
    /// An intermediate report; `None` if making one would take too long now.
    pub(crate) report: Option<Arc<Digest>>,
    /// All exchanges so far.
    pub(crate) exchanges: Exchanges,
    pub(crate) credits: Vec<(u32, Point)>,
    /// All credits, if nothing was read: everything came from the index of an earlier time.
    pub(crate) kept: Option<CreditsLog>,
    /// Exchanges left out because the list is full.
    pub(crate) exchanges_dropped: u64,
    pub(crate) progress: Progress,
    /// True if all was read.
    pub(crate) done: bool,
    /// The error that ended reading early.
    pub(crate) error: Option<String>,
    /// State of a live capture.
    pub(crate) live: Option<LiveFacts>,
    /// Changes of RDMA device counters, if the file has them.
    pub(crate) hardware: Vec<Counted>,
    /// True if the capture was restarted.
    pub(crate) restarted: bool,
    /// If reading waits for an answer: the number of frames read so far. There are more.
    pub(crate) asks: Option<u64>,
}

/// State of a live capture.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct LiveFacts {
    /// Frames lost, by the kernel and before it.
    pub(crate) dropped: u64,
    /// Current problem with an interface.
    pub(crate) note: Option<String>,
    /// RDMA device counters that grew.
    pub(crate) hardware: Vec<Counted>,
}

/// Changes of an RDMA device counter while frames were captured.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Counted {
    /// `mlx5_0/1 out_of_sequence`.
    pub(crate) name: String,
    /// Total increase.
    pub(crate) increase: u64,
    /// Each increase: ns since the Unix epoch, and amount.
    pub(crate) steps: Vec<(i64, u64)>,
}

fn counted(hardware: &Hardware) -> Vec<Counted> {
    let one = |row: &HardwareRow| Counted {
        name: row.counter.to_string(),
        increase: row.increase(),
        steps: hardware.steps(row).filter(|(_, n)| *n > 0).collect(),
    };
    hardware.grown().into_iter().take(COUNTED_MAX).map(one).collect()
}

/// Access to the frames for reading them again, shared by threads. The version is increased when the inputs must be
/// taken again.
#[derive(Debug, Default)]
pub(crate) struct Again {
    pub(crate) version: u64,
    /// Number of restarts of the capture: after one, places belong to other frames.
    pub(crate) restarts: u64,
    pub(crate) inputs: Vec<RandomAccess>,
}

/// Shared by the threads.
#[derive(Clone, Debug)]
pub(crate) struct Shared {
    pub(crate) again: Arc<Mutex<Again>>,
    pub(crate) index: Arc<Mutex<Index>>,
    pub(crate) exchanges: Arc<Mutex<Exchanges>>,
    pub(crate) stop: Arc<AtomicBool>,
    /// True if the loader has read everything.
    pub(crate) finished: Arc<AtomicBool>,
    /// True if a live capture is paused.
    pub(crate) paused: Arc<AtomicBool>,
    /// Number of restarts of a live capture that were requested.
    pub(crate) restarts: Arc<AtomicU64>,
    /// Number of frames that are read without asking; 0 ends reading.
    pub(crate) frames_max: Arc<AtomicU64>,
    /// The files being read. They are never written to.
    pub(crate) files: Arc<Mutex<Vec<PathBuf>>>,
    /// Options of the analysis.
    pub(crate) options: Arc<Options>,
    /// Findings to leave out.
    pub(crate) ignore: Arc<Vec<Ignore>>,
    /// Indexes of captures on disk, if they are used.
    pub(crate) cache: Option<Arc<Cache>>,
}

impl Default for Shared {
    fn default() -> Self {
        Self {
            again: Arc::default(),
            index: Arc::default(),
            exchanges: Arc::default(),
            stop: Arc::default(),
            finished: Arc::default(),
            paused: Arc::default(),
            restarts: Arc::default(),
            frames_max: Arc::new(AtomicU64::new(FRAMES_MAX)),
            files: Arc::default(),
            options: Arc::default(),
            ignore: Arc::default(),
            cache: None,
        }
    }
}

impl Shared {
    pub(crate) fn index(&self) -> Index {
        self.index.lock().unwrap_or_else(|poisoned| poisoned.into_inner()).clone()
    }

    /// For an analysis with these options.
    pub(crate) fn with(options: Options) -> Self {
        Self { options: Arc::new(options), ..Self::default() }
    }

    pub(crate) fn files(&self) -> Vec<PathBuf> {
        self.files.lock().unwrap_or_else(|poisoned| poisoned.into_inner()).clone()
    }

    pub(crate) fn exchanges(&self) -> Exchanges {
        self.exchanges.lock().unwrap_or_else(|poisoned| poisoned.into_inner()).clone()
    }
}

#[derive(Debug, Default)]
struct Collector {
    exchanges: exchanges::Builder,
    /// True if the newest entries replace the oldest.
    rolls: bool,
    dropped: u64,
    credits: Vec<(u32, Point)>,
}

impl Sink for Collector {
    fn exchange(&mut self, exchange: &Exchange) {
        let is_full = self.exchanges.len() >= EXCHANGES_MAX;
        if is_full && !self.rolls {
            self.dropped += 1;
            return;
        }
        if is_full {
            self.exchanges.forget();
        }
        self.exchanges.push(exchange.clone());
    }

    fn credits(&mut self, connection: u32, at: At, held: [Option<i64>; 2]) {
        self.credits.push((connection, Point::new(at, [held[0], held[1], None])));
    }

    fn upper_credits(&mut self, connection: u32, at: At, held: Option<i64>) {
        self.credits.push((connection, Point::new(at, [None, None, held])));
    }
}

/// The captures of the command line, open.
pub(crate) enum Input {
    One(Box<Capture>),
    Many(Box<MergedSource>),
    Live(Box<LiveInput>),
}

/// Interfaces.
pub(crate) struct LiveInput {
    source: LiveSource,
    rdma_root: PathBuf,
    facts: LiveFacts,
    looked: Instant,
    sampled: Instant,
}

impl LiveInput {
    pub(crate) fn new(source: LiveSource, rdma_root: PathBuf) -> Self {
        let (facts, looked) = (LiveFacts::default(), Instant::now());
        Self { source: source.keep(LIVE_BYTES), rdma_root, facts, looked, sampled: looked }
    }

    /// Returns the state of the capture; `None` if it was checked a moment ago.
    fn look(&mut self) -> Option<LiveFacts> {
        if self.looked.elapsed() < LOOK_EVERY {
            return None;
        }
        self.looked = Instant::now();
        self.facts.dropped = self.source.counters().iter().map(Counters::dropped).sum();
        while let Some((name, event)) = self.source.event() {
            self.facts.note = match event {
                Event::Up | Event::Port(_) => None,
                event => Some(format!("{name}: {event}")),
            };
        }
        if self.sampled.elapsed() >= monitor::HARDWARE_EVERY {
            self.sampled = Instant::now();
            if !self.source.sample_hardware(&self.rdma_root).is_empty() {
                self.facts.hardware = counted(&self.source.metadata().hardware);
            }
        }
        Some(self.facts.clone())
    }
}

/// Opens the files. With `follow`, waits at the end of the last one for more.
pub(crate) fn open_all(files: &[PathBuf], follow: bool, stop: &Arc<AtomicBool>) -> anyhow::Result<Input> {
    anyhow::ensure!(files.len() <= INPUTS_MAX, "{} files; {INPUTS_MAX} can be shown together", files.len());
    let mut captures = Vec::with_capacity(files.len());
    for path in files {
        let mut options = OpenOptions::new().spool(SPOOL_MAX);
        if follow && files.len() == 1 {
            let stop = stop.clone();
            options = options.follow(Follow::Wait(Box::new(move || {
                if !stop.load(Ordering::Relaxed) {
                    std::thread::sleep(POLL_EVERY);
                }
                // the loader gets the chance to deliver its results
                false
            })));
        }
        captures.push(open(path, options)?);
    }
    Ok(match captures.len() {
        1 => Input::One(Box::new(captures.remove(0))),
        _ => Input::Many(Box::new(MergedSource::new(captures))),
    })
}

impl Input {
    fn advance(&mut self) -> rdmascope_capture::Result<bool> {
        match self {
            Input::One(c) => c.advance(),
            Input::Many(m) => m.advance(),
            Input::Live(l) => l.source.advance(),
        }
    }

    fn which(&self) -> usize {
        match self {
            Input::One(_) | Input::Live(_) => 0,
            Input::Many(m) => m.current_input().unwrap_or(0),
        }
    }

    fn revision(&self) -> u64 {
        match self {
            Input::One(c) => c.metadata().revision,
            Input::Many(m) => m.inputs().map(|c| c.metadata().revision).sum(),
            Input::Live(l) => l.source.metadata().revision,
        }
    }

    fn metadata(&self) -> &Metadata {
        match self {
            Input::One(c) => c.metadata(),
            Input::Many(m) => m.metadata(),
            Input::Live(l) => l.source.metadata(),
        }
    }

    fn hardware(&self) -> &Hardware {
        &self.metadata().hardware
    }

    fn random_access(&self) -> Option<Vec<RandomAccess>> {
        match self {
            Input::One(c) => Some(vec![c.random_access()?]),
            Input::Many(m) => m.inputs().map(Capture::random_access).collect(),
            Input::Live(l) => Some(vec![l.source.random_access()?]),
        }
    }

    fn progress(&self) -> Progress {
        match self {
            Input::One(c) => c.progress(),
            Input::Live(l) => l.source.progress(),
            Input::Many(m) => m.inputs().map(Source::progress).fold(Progress { done: 0, total: Some(0) }, |a, p| {
                Progress { done: a.done + p.done, total: a.total.zip(p.total).map(|(x, y)| x + y) }
            }),
        }
    }
}

/// State of the loader.
struct Loading<D> {
    pipeline: Pipeline<Collector>,
    look: Look,
    past: Past,
    builder: Builder,
    number: u64,
    time_ns: i64,
    progress: Progress,
    /// Frames since the last delivery.
    since: u32,
    delivered: Instant,
    reported: Option<Instant>,
    /// Reports that may still be looked at: so the screen is never the one to clean up.
    digests: Vec<Arc<Digest>>,
    report_took: Duration,
    /// All credits, for the index on disk; `None` if there will be none.
    credits: Option<CreditsLog>,
    deliver: D,
    /// True if the receiver has gone.
    deaf: bool,
    live: Option<LiveFacts>,
    expired: Instant,
    restarts: u64,
    restarted: bool,
    asks: Option<u64>,
}

impl<D: FnMut(News) -> bool> Loading<D> {
    #[inline]
    fn frame(&mut self, which: usize, record: &Record<'_>, interfaces: &[Interface]) -> Option<u16> {
        self.number += 1;
        let meta = meta_of(record, self.number, &mut self.time_ns);
        let before = self.past.before(&meta);
        let packet = self.look.frame(&mut self.pipeline, &meta, record, interfaces, before);
        self.enter(&meta, &packet, record.offset, which);
        mpa_port(&packet.body)
    }

    /// A frame that was decoded already, of which file, and its place there.
    #[inline]
    fn decoded(&mut self, meta: &FrameMeta, packet: &Packet<'_>, offset: u64, which: usize) {
        (self.number, self.time_ns) = (meta.number, meta.time_ns);
        self.pipeline.packet(meta, packet, &mut Off);
        self.enter(meta, packet, offset, which);
    }

    /// Enters a frame into the index, after it was analysed.
    #[inline]
    fn enter(&mut self, meta: &FrameMeta, packet: &Packet<'_>, offset: u64, which: usize) {
        let kind = match &packet.body {
            Body::Ib(ib) => Kind::Ib(ib.bth.opcode),
            Body::Tcp(segment) => Kind::Tcp(!segment.payload.is_empty() || segment.flags & 0x07 != 0),
            Body::Fragment(_) => Kind::Fragment,
            _ => Kind::Other,
        };
        let facts = self.pipeline.facts();
        if let (Some((connection, _)), earlier) = (facts.place, self.pipeline.earlier()) {
            for (frame, end) in earlier {
                self.builder.belongs(*frame as usize - 1, connection, *end);
            }
        }
        self.builder.push(Entry::new(meta.time_ns, which, offset, meta.wire_len, kind, &facts));
        self.since += 1;
    }

    fn news(&mut self, shared: &Shared) {
        // a report may take at most a tenth of the time
        let wait = (self.report_took * 10).max(Duration::from_millis(200));
        let report = self.reported.is_none_or(|at| at.elapsed() > wait).then(|| {
            let begun = Instant::now();
            let report = Arc::new(Digest::new(self.pipeline.snapshot(), &shared.ignore));
            self.digests.retain(|d| Arc::strong_count(d) > 1);
            self.digests.push(report.clone());
            self.reported = Some(begun);
            self.report_took = begun.elapsed();
            report
        });
        // results without a report get one the next time
        self.since = u32::from(report.is_none());
        let sink = self.pipeline.sink();
        keep_credits(&mut self.credits, &sink.credits);
        let news = News {
            report,
            exchanges: publish_exchanges(&sink.exchanges, shared),
            credits: std::mem::take(&mut sink.credits),
            kept: None,
            exchanges_dropped: sink.dropped,
            index: publish(&mut self.builder, shared),
            progress: self.progress,
            done: false,
            error: None,
            live: self.live.clone(),
            hardware: Vec::new(),
            restarted: std::mem::take(&mut self.restarted),
            asks: self.asks.take(),
        };
        self.deaf |= !(self.deliver)(news);
        self.delivered = Instant::now();
    }
}

fn keep_credits(credits: &mut Option<CreditsLog>, new: &[(u32, Point)]) {
    if let Some(credits) = credits {
        new.iter().for_each(|(connection, point)| credits.add(*connection, *point));
    }
}

/// The identity of the capture, if there may be an index of it.
fn identity(input: &Input, shared: &Shared) -> Option<(Arc<Cache>, Identity)> {
    let (Input::One(capture), Some(cache)) = (input, &shared.cache) else { return None };
    Some((cache.clone(), cache.identity(capture, &shared.options, SystemTime::now())?))
}

/// Passes on everything that the index of an earlier time has. `None`, and nothing was done, if there is none that
/// fits.
fn from_index(input: &mut Input, cache: &Cache, identity: &Identity, shared: &Shared) -> Option<News> {
    let kept = cache.read(identity, &shared.ignore, SystemTime::now())?;
    let Input::One(capture) = &mut *input else { return None };
    if !capture.skip(&kept.described_at, kept.end) {
        return None;
    }
    renew(input, shared);
    *shared.index.lock().unwrap_or_else(|poisoned| poisoned.into_inner()) = kept.index.clone();
    *shared.exchanges.lock().unwrap_or_else(|poisoned| poisoned.into_inner()) = kept.exchanges.clone();
    shared.finished.store(true, Ordering::Release);
    Some(News {
        index: kept.index,
        report: Some(kept.report),
        exchanges: kept.exchanges,
        kept: Some(kept.credits),
        exchanges_dropped: kept.exchanges_dropped,
        progress: input.progress(),
        done: true,
        error: kept.error,
        hardware: counted(input.hardware()),
        ..News::default()
    })
}

/// Reads everything and passes results to `deliver`, which returns false if nobody listens any more. With `live`,
/// results are reported at once and not only when more frames come; with `follow`, reading continues at the end of the
/// file.
pub(crate) fn run(
    mut input: Input,
    live: bool,
    follow: bool,
    shared: &Shared,
    mut deliver: impl FnMut(News) -> bool + Send,
) {
    let endless = matches!(input, Input::Live(_));
    let identity = if live || follow { None } else { identity(&input, shared) };
    if let Some((cache, identity)) = &identity
        && let Some(news) = from_index(&mut input, cache, identity, shared)
    {
        deliver(news);
        return;
    }
    let (pipeline, builder) = beginning(endless, shared);
    let options = pipeline.decode_options();
    let loading = Mutex::new(Loading {
        pipeline,
        look: Look::new(options),
        past: Past::default(),
        builder,
        number: 0,
        time_ns: 0,
        progress: Progress::default(),
        since: 0,
        delivered: Instant::now(),
        reported: None,
        digests: Vec::new(),
        report_took: Duration::ZERO,
        credits: identity.is_some().then(CreditsLog::default),
        deliver,
        deaf: false,
        live: None,
        expired: Instant::now(),
        restarts: 0,
        restarted: false,
        asks: None,
    });
    let lock = || loading.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    let over = AtomicBool::new(false);
    let error = std::thread::scope(|scope| {
        if live {
            scope.spawn(|| {
                while !over.load(Ordering::Relaxed) {
                    std::thread::sleep(DELIVER_EVERY);
                    let mut loading = lock();
                    if loading.since > 0 {
                        loading.news(shared);
                    }
                }
            });
        }
        let may_be_ahead = !live && !follow && !lock().look.searches();
        let ahead = match &mut input {
            Input::One(capture) if may_be_ahead => read_ahead(&mut **capture, shared, &options, &lock),
            Input::Many(merged) if may_be_ahead => read_ahead(&mut **merged, shared, &options, &lock),
            _ => None,
        };
        let error = match ahead {
            Some(error) => error,
            None => read(&mut input, if live { 1 } else { 1024 }, follow, shared, &lock),
        };
        over.store(true, Ordering::Relaxed);
        error
    });
    if shared.stop.load(Ordering::Relaxed) {
        return;
    }
    renew(&input, shared);
    let mut loading = loading.into_inner().unwrap_or_else(|poisoned| poisoned.into_inner());
    let index = publish(&mut loading.builder, shared);
    shared.finished.store(true, Ordering::Release);
    link_speeds(&mut loading.pipeline, input.metadata());
    let (report, sink) = loading.pipeline.finish();
    keep_credits(&mut loading.credits, &sink.credits);
    let report = Arc::new(Digest::new(report, &shared.ignore));
    let exchanges = publish_exchanges(&sink.exchanges, shared);
    (loading.deliver)(News {
        index: index.clone(),
        report: Some(report.clone()),
        exchanges: exchanges.clone(),
        credits: sink.credits,
        kept: None,
        exchanges_dropped: sink.dropped,
        progress: input.progress(),
        done: true,
        error: error.clone(),
        live: loading.live,
        hardware: counted(input.hardware()),
        restarted: loading.restarted,
        asks: None,
    });
    // if the user ended reading early, there is more to be read the next time
    let is_whole = shared.frames_max.load(Ordering::Relaxed) != 0;
    if let (Some((cache, identity)), Input::One(capture), Some(credits), true) =
        (identity, &input, loading.credits, is_whole)
        && let Some(described_at) = capture.described_at().map(<[u64]>::to_vec)
    {
        let end = input.progress().done;
        let kept =
            Kept { index, report, exchanges, exchanges_dropped: sink.dropped, credits, error, described_at, end };
        cache.write(&identity, capture, &shared.options, &kept, &shared.stop, SystemTime::now());
    }
}

/// Analysis and index before the first frame.
fn beginning(endless: bool, shared: &Shared) -> (Pipeline<Collector>, Builder) {
    let settings = Options { slowest_max: SLOWEST, ..Options::clone(&shared.options) };
    let settings = if endless { endless::endless(settings) } else { settings };
    let pipeline = Pipeline::with_sink(settings, Collector { rolls: endless, ..Collector::default() });
    (pipeline, if endless { Builder::rolling(LIVE_CHUNKS) } else { Builder::default() })
}

/// Answer to the question whether more frames are to be read.
enum Asked {
    More,
    Stop,
    /// No more, for this reason.
    End(String),
}

/// Asks whether more frames are to be read than so many, and waits for the answer.
fn ask<D: FnMut(News) -> bool>(loading: &mut Loading<D>, shared: &Shared) -> Asked {
    loading.asks = Some(loading.number);
    loading.news(shared);
    loop {
        if shared.stop.load(Ordering::Relaxed) {
            return Asked::Stop;
        }
        match shared.frames_max.load(Ordering::Relaxed) {
            most if most == loading.number => std::thread::sleep(POLL_EVERY),
            0 => {
                let read = rdmascope_report::report::words::grouped(loading.number);
                return Asked::End(format!("only the first {read} frames were read, as you asked"));
            }
            _ => return Asked::More,
        }
    }
}

/// Reads files to the end that are mapped and not small, with other threads that decode. Returns why it ended too
/// early; `None`, and nothing was read, if one thread has to do everything.
fn read_ahead<'l, S: Mapped, D: FnMut(News) -> bool + 'l>(
    source: &mut S,
    shared: &Shared,
    options: &frame::Options,
    lock: &dyn Fn() -> MutexGuard<'l, Loading<D>>,
) -> Option<Option<String>> {
    let workers = std::thread::available_parallelism().map_or(1, usize::from).min(THREADS_MAX) - 1;
    let files =
        source.files().filter(|files| workers > 0 && files.iter().any(|file| file.bytes().len() >= AHEAD_FROM))?;
    let total = files.iter().map(|file| file.bytes().len() as u64).sum();
    let how = How { workers, options: *options, described: true };
    let mut ended = None;
    let error = ahead::decoded(
        source,
        &files,
        &how,
        |record, which| (record.offset, which),
        |batch| {
            let mut loading = lock();
            if let Some(described) = batch.described.take() {
                take_again(described.inputs, shared);
                link_speeds(&mut loading.pipeline, &described.metadata);
            }
            for (meta, packet, (offset, which)) in batch.groups().flatten() {
                if loading.number >= shared.frames_max.load(Ordering::Relaxed) {
                    match ask(&mut loading, shared) {
                        Asked::More => {}
                        Asked::Stop => return false,
                        Asked::End(error) => {
                            ended = Some(error);
                            return false;
                        }
                    }
                }
                loading.decoded(meta, packet, *offset, *which);
            }
            loading.progress = Progress { done: batch.done, total: Some(total) };
            if loading.delivered.elapsed() >= DELIVER_EVERY && loading.since > 0 {
                loading.news(shared);
            }
            !shared.stop.load(Ordering::Relaxed) && !loading.deaf
        },
    );
    Some(ended.or_else(|| error.map(|e| e.to_string())))
}

/// Reads to the end, `batch` frames under one lock. Returns why it ended too early.
fn read<'l, D: FnMut(News) -> bool + 'l>(
    input: &mut Input,
    batch: u32,
    follow: bool,
    shared: &Shared,
    lock: &dyn Fn() -> MutexGuard<'l, Loading<D>>,
) -> Option<String> {
    let mut revision = None;
    loop {
        if let Input::Live(live) = &mut *input {
            live.source.pause(shared.paused.load(Ordering::Relaxed));
        }
        // waiting for a frame happens without the lock
        let mut advanced = input.advance();
        let mut loading = lock();
        let restarts = shared.restarts.load(Ordering::Relaxed);
        if loading.restarts != restarts {
            loading.restarts = restarts;
            (loading.pipeline, loading.builder) = beginning(true, shared);
            (loading.number, loading.time_ns, loading.restarted, loading.past) = (0, 0, true, Past::default());
            loading.since += 1;
            shared.again.lock().unwrap_or_else(|poisoned| poisoned.into_inner()).restarts = restarts;
            publish(&mut loading.builder, shared);
            publish_exchanges(&loading.pipeline.sink().exchanges, shared);
        }
        if !matches!(input, Input::Live(_))
            && loading.number >= shared.frames_max.load(Ordering::Relaxed)
            && matches!(advanced, Ok(true))
        {
            match ask(&mut loading, shared) {
                Asked::More => {}
                Asked::Stop => return None,
                Asked::End(error) => return Some(error),
            }
        }
        let most = shared.frames_max.load(Ordering::Relaxed).saturating_sub(loading.number);
        let mut left = if matches!(input, Input::Live(_)) {
            batch
        } else {
            batch.min(u32::try_from(most).unwrap_or(batch)).max(1)
        };
        let whole = left;
        while let Ok(true) = advanced {
            if left + 1 >= whole && revision != Some(input.revision()) {
                renew(input, shared);
                link_speeds(&mut loading.pipeline, input.metadata());
                revision = Some(input.revision());
            }
            let (record, interfaces) = match &*input {
                Input::One(c) => (c.record(), c.interfaces()),
                Input::Many(m) => (m.record(), m.interfaces()),
                Input::Live(l) => (l.source.record(), l.source.interfaces()),
            };
            let port = loading.frame(input.which(), &record, interfaces);
            if let (Input::Live(l), Some(port)) = (&mut *input, port)
                && let Err(e) = l.source.learn_tcp_port(port)
            {
                return Some(e.to_string());
            }
            left -= 1;
            if left == 0 {
                break;
            }
            advanced = input.advance();
        }
        loading.progress = input.progress();
        if let Input::Live(live) = &mut *input {
            if let Some(facts) = live.look()
                && loading.live.as_ref() != Some(&facts)
            {
                loading.live = Some(facts);
                loading.since += 1;
            }
            if loading.expired.elapsed() >= EXPIRE_EVERY {
                loading.expired = Instant::now();
                endless::expire(&mut loading.pipeline, endless::now_ns());
            }
        }
        if shared.stop.load(Ordering::Relaxed) || loading.deaf {
            return None;
        }
        match advanced {
            Ok(false) if !follow => return None,
            Err(e) => return Some(e.to_string()),
            Ok(_) if loading.delivered.elapsed() >= DELIVER_EVERY && loading.since > 0 => {
                if revision != Some(input.revision()) {
                    renew(input, shared);
                    link_speeds(&mut loading.pipeline, input.metadata());
                    revision = Some(input.revision());
                }
                loading.news(shared);
            }
            Ok(_) => {}
        }
    }
}

fn publish_exchanges(builder: &exchanges::Builder, shared: &Shared) -> Exchanges {
    let exchanges = builder.exchanges();
    *shared.exchanges.lock().unwrap_or_else(|poisoned| poisoned.into_inner()) = exchanges.clone();
    exchanges
}

fn publish(builder: &mut Builder, shared: &Shared) -> Index {
    let index = builder.index();
    *shared.index.lock().unwrap_or_else(|poisoned| poisoned.into_inner()) = index.clone();
    index
}

fn renew(input: &Input, shared: &Shared) {
    take_again(input.random_access(), shared);
}

/// The inputs must be taken again to read frames.
fn take_again(inputs: Option<Vec<RandomAccess>>, shared: &Shared) {
    if let Some(inputs) = inputs {
        let mut again = shared.again.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        again.version += 1;
        again.inputs = inputs;
    }
}
