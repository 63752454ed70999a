//! Distribution of a capture file to workers, each of which processes whole connections; their output is put in order
//! again.
//!
//! ```text
//!   file ─▶ walk, route ─┬▶ waiting 0 ─▶ worker 0 ─▶ text ─┐
//!                        └▶ waiting n ─▶ worker n ─▶ text ─┴▶ pages, in the order of the file
//! ```
//!
//! A worker that has nothing to do reads and walks the file on. Frames lie in chunks of the file, and what carries them
//! is reused.

use crate::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use crate::sync::{Bell, Mutex, lock, lock_soon};
use rdmascope_analyzer::pipeline::{FrameMeta, Route, Router};
use rdmascope_capture::{CaptureFile, Chunk, Interface, Metadata, Place, Record, SharedFile, SharedWalk};
use rdmascope_dissector::frame::{self, Pause};
use std::collections::VecDeque;
use std::sync::{Arc, PoisonError};

/// Maximum number of records in a batch that goes from one thread to another.
pub const BATCH: u64 = if cfg!(test) { 1 } else { 512 };
/// Bytes of the file after which a batch ends: so few that they are still in the cache when a worker reads them.
pub(crate) const BATCH_BYTES: u64 = 256 << 10;
/// A worker that has fewer batches left walks the file on before it begins with the one that it took.
const LEAD: usize = 8;
/// Of the parts that wait for a worker, another may begin these: how many it passes over, and of how many.
const LENT: (usize, usize) = if cfg!(test) { (0, 2) } else { (1, 8) };
/// Maximum number of batches that wait for one worker, or to be written.
pub const WAITING: usize = if cfg!(test) { 2 } else { 32 };

/// Number and time of a record; one without a time has that of the record before.
#[inline]
pub fn meta_of(record: &Record<'_>, number: u64, time_ns: &mut i64) -> FrameMeta {
    if record.has_time() {
        *time_ns = record.time_ns;
    }
    FrameMeta {
        number,
        time_ns: *time_ns,
        link_type: record.link_type,
        wire_len: record.wire_len,
        interface: record.interface,
    }
}

/// The walk over a file, with its state.
pub struct Walk {
    records: SharedWalk,
    number: u64,
    time_ns: i64,
    /// The error that ended reading too early.
    pub error: Option<rdmascope_capture::Error>,
}

impl Walk {
    /// From the first record.
    fn new(file: &SharedFile<'_>) -> Self {
        Self { records: file.walk(), number: 0, time_ns: 0, error: None }
    }

    /// Hands out the records of the next batch, at most `most`, which lie in one chunk. Returns false if there were
    /// none.
    fn batch(
        &mut self,
        file: &SharedFile<'_>,
        most: u64,
        mut take: impl FnMut(FrameMeta, &Record<'_>, Place, &Metadata),
    ) -> bool {
        let before = self.number;
        while self.number - before < most {
            match self.records.next(file, self.number == before) {
                Some(Ok(place)) => {
                    self.number += 1;
                    let record = self.records.chunk().record(&place);
                    let meta = meta_of(&record, self.number, &mut self.time_ns);
                    take(meta, &record, place, self.records.metadata());
                }
                Some(Err(e)) => {
                    self.error.get_or_insert(e);
                    break;
                }
                None => break,
            }
        }
        self.number > before
    }

    /// The metadata of the file, as far as read.
    pub fn metadata(&self) -> &Metadata {
        self.records.metadata()
    }
}

/// Maximum memory that a text keeps when it is reused, in bytes.
pub(crate) const TEXT_BYTES: usize = 4 << 20;
/// Results are reported when they have grown by this part of the memory that all may take.
const HELD_STEPS: usize = 64;

/// Next work of a worker.
pub enum Next<T, C = Text> {
    /// Frames.
    Part(Part<T, C>),
    /// Others are too far behind: call [`Board::nap`] with what was [heard](Board::heard) before.
    Full,
    /// No item is left.
    End,
}

/// Part of a batch for one worker.
#[derive(Debug)]
pub struct Part<T, C = Text> {
    /// The how-manieth batch it is, from 0.
    pub batch: u64,
    /// The frames, in order, with what the board's creator keeps of each: its place in [`Part::chunk`], for example.
    pub frames: Vec<(FrameMeta, T)>,
    /// Their bytes.
    pub chunk: Arc<Chunk>,
    /// Bytes of the file up to the end of the batch.
    pub offset: u64,
    /// The interfaces that were known at its end.
    pub interfaces: Arc<[Interface]>,
    /// What another worker has begun for the one that it is of: [`Board::lend`].
    pub begun: Option<C>,
    pub(crate) datagrams: VecDeque<(u64, Vec<u8>)>,
    pub(crate) pauses: VecDeque<(FrameMeta, Pause)>,
    /// True while another worker has its frames.
    is_lent: bool,
}

impl<T, C> Default for Part<T, C> {
    fn default() -> Self {
        Self {
            batch: 0,
            frames: Vec::new(),
            chunk: Arc::default(),
            offset: 0,
            interfaces: Arc::default(),
            begun: None,
            datagrams: VecDeque::new(),
            pauses: VecDeque::new(),
            is_lent: false,
        }
    }
}

impl<T, C> Part<T, C> {
    /// The IP datagrams that frames of this part complete, by number: [`Route::datagram`].
    pub fn datagrams(&mut self) -> VecDeque<(u64, Vec<u8>)> {
        std::mem::take(&mut self.datagrams)
    }

    /// Removes the frames and all that belongs to them.
    pub(crate) fn clear(&mut self) {
        self.frames.clear();
        self.datagrams.clear();
        self.pauses.clear();
    }

    /// The pause frames of the batch that another worker has, in order: a worker tells its analysis of each before the
    /// frames behind it ([`Pipeline::paused`](rdmascope_analyzer::pipeline::Pipeline::paused)).
    pub fn pauses(&mut self) -> VecDeque<(FrameMeta, Pause)> {
        std::mem::take(&mut self.pauses)
    }
}

/// Frames of another worker.
#[derive(Debug)]
pub struct Lent<T, C = Text> {
    /// They, in order.
    pub part: Part<T, C>,
    of: usize,
}

/// Results for the whole file.
pub struct Ended<K> {
    /// The walk over the file, with its final state.
    pub walk: Walk,
    /// The router, which assigned the connections to the workers.
    pub router: Router,
    /// Keeper of the frames.
    pub keep: K,
}

/// The queue from which workers take their frames. `T` is the value kept of a frame, `K` makes it from the record. `C`
/// is a worker's result for its frames of a batch, if the results are put in order.
pub struct Board<'f, T, K, C = Text> {
    file: SharedFile<'f>,
    sorting: Mutex<Sorting<K>>,
    /// By worker: its waiting parts.
    waiting: Vec<Mutex<VecDeque<Part<T, C>>>>,
    /// By worker: the most connections that it followed at one time.
    most: Vec<AtomicUsize>,
    /// To be filled again.
    empty: Mutex<Vec<Part<T, C>>>,
    /// The results in the order of the file, if they are needed.
    pages: Option<Mutex<Pages<C>>>,
    /// So many of them stop the workers, and so few let them go on.
    pages_max: usize,
    pages_again: usize,
    /// Maximum number of frames in a batch.
    batch: u64,
    /// Something became less, or ready.
    bell: Bell,
    given_up: AtomicBool,
    connections_max: usize,
    /// Bytes of results that were reported and not released, and their maximum.
    held: AtomicUsize,
    held_max: usize,
}

struct Sorting<K> {
    walk: Walk,
    router: Router,
    keep: K,
    batches: u64,
    done: bool,
    interfaces: Arc<[Interface]>,
}

/// The output for frames, in their order.
#[derive(Debug, Default)]
pub struct Text {
    /// The whole text.
    pub bytes: Vec<u8>,
    /// Of each frame: the end of its text, and whether it is shown.
    pub ends: Vec<(usize, bool)>,
    /// Bytes that were reported: [`Board::hold`].
    pub held: usize,
}

impl Text {
    /// Removes everything, and frees the memory that unusually large frames took.
    pub(crate) fn cleared(mut self) -> Self {
        if self.bytes.capacity() > TEXT_BYTES {
            return Self::default();
        }
        self.bytes.clear();
        self.ends.clear();
        self.held = 0;
        self
    }
}

struct Pages<C> {
    first: u64,
    pages: VecDeque<Page<C>>,
    /// There were as many as may be, and have not been few enough since.
    is_full: bool,
    /// To be filled again.
    blank: Vec<C>,
}

impl<C> Default for Pages<C> {
    fn default() -> Self {
        Self { first: 0, pages: VecDeque::new(), is_full: false, blank: Vec::new() }
    }
}

/// A batch that is being written.
#[derive(Debug)]
pub struct Page<C> {
    /// The worker of each frame.
    pub order: Vec<u16>,
    /// By worker: the result for its frames.
    pub parts: Vec<Option<C>>,
    missing: usize,
}

impl<'f, T, C, K: FnMut(&FrameMeta, Place, &Metadata) -> T> Board<'f, T, K, C> {
    /// For this number of workers, which decode with these options and together follow at most `connections_max`
    /// connections.
    pub fn new(
        file: &'f CaptureFile,
        workers: usize,
        options: frame::Options,
        connections_max: usize,
        keep: K,
    ) -> Self {
        let workers = workers.max(1);
        let file = file.shared();
        let sorting = Sorting {
            walk: Walk::new(&file),
            router: Router::new(workers, options),
            keep,
            batches: 0,
            done: false,
            interfaces: Arc::default(),
        };
        Self {
            file,
            sorting: Mutex::new(sorting),
            waiting: (0..workers).map(|_| Mutex::default()).collect(),
            most: (0..workers).map(|_| AtomicUsize::new(0)).collect(),
            empty: Mutex::default(),
            pages: None,
            pages_max: WAITING,
            pages_again: WAITING - 1,
            batch: BATCH,
            bell: Bell::default(),
            given_up: AtomicBool::new(false),
            connections_max: connections_max.max(2),
            held: AtomicUsize::new(0),
            held_max: usize::MAX,
        }
    }

    /// Puts the results of the workers in order: [`Board::put`], [`Board::take_page`]. At most this number of batches
    /// wait for that. When so many wait, it goes on when only `again` of them are left: waking a worker for each batch
    /// takes time.
    #[must_use]
    pub fn with_pages(self, most: usize, again: usize) -> Self {
        let most = most.max(1);
        Self { pages: Some(Mutex::default()), pages_max: most, pages_again: again.min(most - 1), ..self }
    }

    /// Sets the maximum memory that results take together, in bytes for each worker.
    #[must_use]
    pub fn with_held_max(self, bytes: usize) -> Self {
        Self { held_max: bytes.saturating_mul(self.waiting.len()), ..self }
    }

    /// Sets the maximum number of frames in a batch.
    #[must_use]
    pub fn with_batches(self, frames: u64) -> Self {
        Self { batch: frames, ..self }
    }

    /// The next frames for a worker.
    pub fn next(&self, worker: usize) -> Next<T, C> {
        loop {
            if self.is_given_up() {
                return Next::End;
            }
            if let Some((part, left)) = self.take(worker) {
                // what all need is done by those who have the least to do
                if left < LEAD {
                    self.file.read_ahead();
                    self.sort_ahead();
                }
                return Next::Part(part);
            }
            let mut sorting = lock_soon(&self.sorting);
            // another worker may have walked meanwhile
            if let Some((part, _)) = self.take(worker) {
                return Next::Part(part);
            }
            if sorting.done {
                // its next frames may be with another worker
                return if lock(&self.waiting[worker]).is_empty() { Next::End } else { Next::Full };
            }
            if self.is_full() {
                drop(sorting);
                if self.file.read_ahead() {
                    continue;
                }
                return Next::Full;
            }
            self.sort(&mut sorting);
        }
    }

    /// Number of moves so far. To be asked before looking for work: then no move goes unnoticed between the look and
    /// [`Board::nap`].
    pub fn heard(&self) -> u64 {
        self.bell.heard()
    }

    /// Sleeps until there was a move after those [heard](Board::heard).
    pub fn nap(&self, heard: u64) {
        self.bell.wait(heard);
    }

    /// Called when a worker is done with a part; `connections` is the most connections that it followed at one time.
    pub fn done(&self, worker: usize, mut part: Part<T, C>, connections: usize) {
        part.clear();
        self.file.give_back(std::mem::take(&mut part.chunk));
        lock(&self.empty).push(part);
        self.most[worker].store(connections, Ordering::Release);
    }

    /// Frames that wait for another worker, to do for it what needs nothing of earlier frames. They have to be
    /// [given](Board::give) to it afterwards.
    pub fn lend(&self, worker: usize) -> Option<Lent<T, C>> {
        let others = self.waiting.iter().enumerate().filter(|(of, _)| *of != worker);
        others.into_iter().find_map(|(of, waiting)| {
            let mut waiting = lock(waiting);
            // it is about to take the next ones
            let mut later = waiting.iter_mut().skip(LENT.0).take(LENT.1);
            let found = later.find(|part| !part.is_lent && part.begun.is_none() && !part.frames.is_empty())?;
            found.is_lent = true;
            let Part { batch, offset, frames, chunk, interfaces, .. } = found;
            let (frames, chunk, interfaces) = (std::mem::take(frames), chunk.clone(), interfaces.clone());
            let part = Part { batch: *batch, offset: *offset, frames, chunk, interfaces, ..Part::default() };
            Some(Lent { part, of })
        })
    }

    /// Gives lent frames to their worker, with what was [begun](Part::begun).
    pub fn give(&self, lent: Lent<T, C>) {
        let Lent { part: Part { batch, frames, chunk, begun, .. }, of } = lent;
        let mut waiting = lock(&self.waiting[of]);
        let at = waiting.partition_point(|part| part.batch < batch);
        if let Some(part) = waiting.get_mut(at).filter(|part| part.batch == batch) {
            (part.frames, part.begun, part.is_lent) = (frames, begun, false);
        }
        drop(waiting);
        self.file.give_back(chunk);
        if at == 0 {
            self.moved();
        }
    }

    /// Makes all workers stop.
    pub fn give_up(&self) {
        self.given_up.store(true, Ordering::Relaxed);
        self.bell.ring();
    }

    /// Reports that a result has this many bytes, of which `held` were reported before, if they are many more. Gives up
    /// if the results together take too much memory: one thread that writes each frame at once needs less.
    pub fn hold(&self, held: &mut usize, bytes: usize) {
        let more = bytes.saturating_sub(*held);
        if more > self.held_max / HELD_STEPS {
            *held = bytes;
            if self.held.fetch_add(more, Ordering::Relaxed) + more > self.held_max {
                self.give_up();
            }
        }
    }

    /// A result of which this many bytes were reported is gone.
    pub fn release(&self, held: usize) {
        self.held.fetch_sub(held, Ordering::Relaxed);
    }

    /// True if connections turned out to be related or are too many, or results take too much memory: then one worker
    /// has to process all frames.
    pub fn is_given_up(&self) -> bool {
        self.given_up.load(Ordering::Relaxed)
    }

    /// All workers are done.
    pub fn end(self) -> Ended<K> {
        let Sorting { walk, router, keep, .. } = self.sorting.into_inner().unwrap_or_else(PoisonError::into_inner);
        Ended { walk, router, keep }
    }

    /// Stores a worker's result for its frames of a batch.
    pub fn put(&self, batch: u64, worker: usize, made: C) {
        let Some(pages) = &self.pages else { return };
        let mut pages = lock(pages);
        let Some(at) = batch.checked_sub(pages.first) else { return };
        if let Some(page) = pages.pages.get_mut(at as usize) {
            page.parts[worker] = Some(made);
            page.missing -= 1;
            if at == 0 && page.missing == 0 {
                drop(pages);
                self.moved();
            }
        }
    }

    /// The next batch that every worker has finished. `None` if none is ready, or if the board is given up.
    pub fn take_page(&self) -> Option<Page<C>> {
        let mut pages = lock(self.pages.as_ref()?);
        pages.pages.front().filter(|page| page.missing == 0)?;
        // everything up to here was followed within the limits
        self.check();
        if self.is_given_up() {
            return None;
        }
        let page = pages.pages.pop_front()?;
        pages.first += 1;
        let is_again = pages.is_full && pages.pages.len() <= self.pages_again;
        pages.is_full &= !is_again;
        drop(pages);
        if is_again {
            self.moved();
        }
        Some(page)
    }

    /// Returns results for reuse.
    pub fn give_back(&self, blank: impl Iterator<Item = C>) {
        if let Some(pages) = &self.pages {
            lock(pages).blank.extend(blank);
        }
    }

    /// Wakes the workers in [`Board::nap`].
    pub fn moved(&self) {
        self.bell.ring();
    }

    /// True if batches are still being written.
    pub fn has_pages(&self) -> bool {
        self.pages.as_ref().is_some_and(|pages| !lock(pages).pages.is_empty())
    }

    /// True if the file was walked to its end.
    pub fn is_at_end(&self) -> bool {
        lock(&self.sorting).done
    }

    fn is_full(&self) -> bool {
        self.waiting.iter().any(|waiting| lock(waiting).len() >= WAITING)
            || self.pages.as_ref().is_some_and(|pages| lock(pages).is_full)
    }

    /// The next part of a worker, and how many are left.
    fn take(&self, worker: usize) -> Option<(Part<T, C>, usize)> {
        let mut waiting = lock(&self.waiting[worker]);
        let part = if waiting.front()?.is_lent { None } else { waiting.pop_front() }?;
        let left = waiting.len();
        drop(waiting);
        // workers that sleep because it was full are woken when there is room for more than one
        if left == WAITING / 2 {
            self.bell.ring();
        }
        Some((part, left))
    }

    /// Hands out a batch before anybody waits for it, unless another worker walks: then all workers have frames, and
    /// none waits for the walk.
    fn sort_ahead(&self) {
        if let Ok(mut sorting) = self.sorting.try_lock()
            && !sorting.done
            && !self.is_full()
        {
            self.sort(&mut sorting);
        }
    }

    /// Gives up if more connections are followed than one analysis would follow.
    fn check(&self) {
        if self.most.iter().map(|most| most.load(Ordering::Acquire)).sum::<usize>() > self.connections_max {
            self.give_up();
        }
    }

    /// Hands out the next batch.
    fn sort(&self, sorting: &mut Sorting<K>) {
        let Sorting { walk, router, keep, batches, done, interfaces } = sorting;
        let mut parts: Vec<Part<T, C>> = {
            let mut empty = lock(&self.empty);
            (0..self.waiting.len()).map(|_| empty.pop().unwrap_or_default()).collect()
        };
        let mut order = Vec::new();
        let any = walk.batch(&self.file, self.batch, |meta, record, place, metadata| {
            let Route { shard, datagram, pause } = router.route(&meta, record.bytes);
            // what is written of frames does not depend on pauses
            if let Some(pause) = pause.filter(|_| self.pages.is_none()) {
                let others = parts.iter_mut().enumerate().filter(|(other, _)| *other != shard);
                others.for_each(|(_, part)| part.pauses.push_back((meta, pause)));
            }
            let part = &mut parts[shard];
            if let Some(datagram) = datagram {
                part.datagrams.push_back((meta.number, datagram));
            }
            let kept = keep(&meta, place, metadata);
            part.frames.push((meta, kept));
            if self.pages.is_some() {
                order.push(shard as u16);
            }
        });
        let known = &walk.metadata().interfaces;
        if known.len() != interfaces.len() {
            *interfaces = known.as_slice().into();
        }
        let (batch, offset) = (*batches, walk.records.offset());
        *batches += 1;
        *done = !any;
        if let (Some(pages), true) = (&self.pages, any) {
            let missing = parts.iter().filter(|part| !part.frames.is_empty()).count();
            let mut pages = lock(pages);
            pages.pages.push_back(Page { order, parts: parts.iter().map(|_| None).collect(), missing });
            pages.is_full |= pages.pages.len() >= self.pages_max;
        }
        for (part, waiting) in parts.into_iter().zip(&self.waiting) {
            if part.frames.is_empty() && part.pauses.is_empty() {
                lock(&self.empty).push(part);
            } else {
                let (chunk, interfaces) = (walk.records.chunk().clone(), interfaces.clone());
                lock(waiting).push_back(Part { batch, offset, chunk, interfaces, ..part });
            }
        }
        self.check();
        if !router.is_separable() {
            self.give_up();
        }
        if *done {
            self.bell.ring();
        }
    }
}

impl<'f, T, C: Default, K: FnMut(&FrameMeta, Place, &Metadata) -> T> Board<'f, T, K, C> {
    /// An empty page to fill.
    pub fn blank(&self) -> C {
        self.pages.as_ref().and_then(|pages| lock(pages).blank.pop()).unwrap_or_default()
    }
}

impl<'f, T, K: FnMut(&FrameMeta, Place, &Metadata) -> T> Board<'f, T, K> {
    /// Passes on the next batch, frame by frame in order: its text, and whether the frame is shown. `None` if none is
    /// ready.
    pub fn page(&self, mut frame: impl FnMut(&[u8], bool)) -> Option<()> {
        let page = self.take_page()?;
        let mut read: Vec<(usize, usize)> = vec![(0, 0); page.parts.len()];
        for worker in &page.order {
            let worker = usize::from(*worker);
            let (n, start) = read[worker];
            let Some((text, (end, shown))) =
                page.parts[worker].as_ref().and_then(|text| Some((text, *text.ends.get(n)?)))
            else {
                continue;
            };
            frame(&text.bytes[start..end], shown);
            read[worker] = (n + 1, end);
        }
        self.give_back(page.parts.into_iter().flatten().map(Text::cleared));
        Some(())
    }
}

/// Calls the function when it is dropped.
pub struct GiveUpAtEnd<F: Fn()>(pub F);

impl<F: Fn()> Drop for GiveUpAtEnd<F> {
    fn drop(&mut self) {
        (self.0)();
    }
}

/// Ensures that nobody waits for a worker that panicked.
pub struct GiveUpOnDrop<'b, 'f, T, K: FnMut(&FrameMeta, Place, &Metadata) -> T, C = Text>(pub &'b Board<'f, T, K, C>);

impl<'f, T, C, K: FnMut(&FrameMeta, Place, &Metadata) -> T> Drop for GiveUpOnDrop<'_, 'f, T, K, C> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.give_up();
        }
    }
}

/// The greatest share of the first frames that one of these workers would get.
pub fn share(file: &CaptureFile, workers: usize, options: frame::Options) -> f64 {
    /// Frames that are looked at.
    const LOOKED_AT: usize = 4096;
    let mut router = Router::new(workers, options);
    let mut time_ns = 0;
    for (record, number) in file.records().map_while(Result::ok).take(LOOKED_AT).zip(1..) {
        router.route(&meta_of(&record, number, &mut time_ns), record.bytes);
    }
    router.greatest_share()
}
