//! Frames of mapped captures, decoded ahead by other threads: one thread follows the connections, in the order of the
//! frames.
//!
//! ```text
//!   files ─▶ worker: walk, decode, ICRC, MPA CRC ─▶ batch ─▶ main thread: in order
//!      ├──▶ worker …                            ─▶ batch ─┤
//!      └──▶ main thread, while it has to wait  ─▶ batch ──┘   emptied batches are reused
//! ```

use crate::shards::{BATCH, BATCH_BYTES, meta_of};
use crate::sync::mpsc::{SyncSender, TryRecvError, sync_channel};
use crate::sync::{Mutex, lock, thread};
use rdmascope_analyzer::pipeline::FrameMeta;
use rdmascope_capture::{Capture, CaptureFile, MergedSource, Metadata, RandomAccess, Record, Source, prefetch};
use rdmascope_dissector::frame::{self, Body, Packet};
use std::collections::BTreeMap;
use std::sync::{Arc, PoisonError};

/// Packets whose upper headers are fetched together.
const GROUP: usize = 16;
/// Bytes at the beginning of a payload in which these are.
const HEADERS: usize = 128;
/// Batches that a worker may be ahead.
const AHEAD: usize = if cfg!(test) { 1 } else { 4 };
/// Files whose pages are mapped ahead of the walk; those of others are mapped when they are touched.
const MAPPED_AHEAD_MAX: usize = 8;

/// A source whose files are mapped as a whole, or not: then nothing is done ahead.
pub trait Mapped: Source + Send {
    /// Its files; `None` if one of them is not mapped.
    fn files(&self) -> Option<Vec<Arc<CaptureFile>>>;

    /// The current frame, borrowed from these files.
    fn record_in<'f>(&self, files: &'f [Arc<CaptureFile>]) -> Record<'f>;

    /// The place of the file that it is of.
    fn which(&self) -> usize;

    /// Access to frames by their offset, for each file.
    fn random_access(&self) -> Option<Vec<RandomAccess>>;
}

impl Mapped for Capture {
    fn files(&self) -> Option<Vec<Arc<CaptureFile>>> {
        Some(vec![self.file()?.clone()])
    }

    #[inline]
    fn record_in<'f>(&self, files: &'f [Arc<CaptureFile>]) -> Record<'f> {
        files.first().map_or(Record::EMPTY, |file| Capture::record_in(self, file))
    }

    fn which(&self) -> usize {
        0
    }

    fn random_access(&self) -> Option<Vec<RandomAccess>> {
        Some(vec![Capture::random_access(self)?])
    }
}

impl Mapped for MergedSource {
    fn files(&self) -> Option<Vec<Arc<CaptureFile>>> {
        self.inputs().map(|capture| capture.file().cloned()).collect()
    }

    #[inline]
    fn record_in<'f>(&self, files: &'f [Arc<CaptureFile>]) -> Record<'f> {
        MergedSource::record_in(self, files)
    }

    fn which(&self) -> usize {
        self.current_input().unwrap_or(0)
    }

    fn random_access(&self) -> Option<Vec<RandomAccess>> {
        self.inputs().map(Capture::random_access).collect()
    }
}

/// How much is done ahead.
#[derive(Clone, Copy, Debug)]
pub struct How {
    /// Threads besides this one.
    pub workers: usize,
    /// Options of the decoder.
    pub options: frame::Options,
    /// True if batches carry the descriptions in the files: [`Batch::described`].
    pub described: bool,
}

/// Decoded frames in a row, with a value kept of each record.
pub struct Batch<'f, T> {
    turn: u64,
    records: Vec<(FrameMeta, &'f [u8], T)>,
    /// The frames, in order.
    pub frames: Vec<(FrameMeta, Packet<'f>, T)>,
    /// Bytes of the files up to its end.
    pub done: u64,
    /// What the files say of themselves, if that has changed and is asked for.
    pub described: Option<Box<Described>>,
}

/// What files say of themselves.
pub struct Described {
    /// The metadata of all.
    pub metadata: Metadata,
    /// Access to the frames; `None` if there is none.
    pub inputs: Option<Vec<RandomAccess>>,
}

impl<T> Default for Batch<'_, T> {
    fn default() -> Self {
        Self { turn: 0, records: Vec::new(), frames: Vec::new(), done: 0, described: None }
    }
}

impl<'f, T> Batch<'f, T> {
    /// The frames, a few at a time, whose upper headers are on their way from memory.
    pub fn groups(&self) -> impl Iterator<Item = &[(FrameMeta, Packet<'f>, T)]> {
        self.frames.chunks(GROUP).inspect(|group| {
            for (_, packet, _) in *group {
                // in TCP every payload must be checked, while in InfiniBand most are data
                if let Body::Tcp(segment) = &packet.body {
                    prefetch(&segment.payload[..segment.payload.len().min(HEADERS)]);
                }
            }
        })
    }
}

/// Walks and decodes everything, and hands it to `each` in order, on this thread, until that returns false. `keep`
/// takes what is needed of a record and of the place of its file. Returns the error that ended reading too early.
pub fn decoded<'f, S: Mapped, T: Send>(
    source: &mut S,
    files: &'f [Arc<CaptureFile>],
    how: &How,
    keep: impl FnMut(&Record<'f>, usize) -> T + Send,
    mut each: impl FnMut(&mut Batch<'f, T>) -> bool,
) -> Option<rdmascope_capture::Error> {
    source.fetch_ahead();
    let walk = Mutex::new(Walk {
        source,
        files,
        keep,
        turn: 0,
        number: 0,
        time_ns: 0,
        revision: None,
        described: how.described,
        is_over: false,
        error: None,
        empty: Vec::new(),
    });
    thread::scope(|scope| {
        let (full, filled) = sync_channel::<Batch<'f, T>>(how.workers * AHEAD);
        for _ in 0..how.workers {
            let (walk, options, full) = (&walk, &how.options, full.clone());
            scope.spawn(move || look_ahead(walk, files, options, &full));
        }
        drop(full);
        // batches that came before their turn
        let mut early = BTreeMap::new();
        let mut turn = 0;
        loop {
            let Some(mut batch) = early.remove(&turn) else {
                let next = match filled.try_recv() {
                    Err(TryRecvError::Empty) => look(&walk, files, &how.options).or_else(|| filled.recv().ok()),
                    next => next.ok(),
                };
                let Some(batch) = next else { break };
                early.insert(batch.turn, batch);
                continue;
            };
            turn += 1;
            if !each(&mut batch) {
                lock(&walk).is_over = true;
                break;
            }
            batch.records.clear();
            batch.frames.clear();
            batch.described = None;
            lock(&walk).empty.push(batch);
        }
    });
    walk.into_inner().unwrap_or_else(PoisonError::into_inner).error
}

/// The walk over the files.
struct Walk<'s, 'f, S, T, K> {
    source: &'s mut S,
    files: &'f [Arc<CaptureFile>],
    keep: K,
    /// The number of the next batch.
    turn: u64,
    number: u64,
    time_ns: i64,
    /// Revision of the metadata that the last batch carried.
    revision: Option<u64>,
    described: bool,
    is_over: bool,
    error: Option<rdmascope_capture::Error>,
    /// Batches to be filled again.
    empty: Vec<Batch<'f, T>>,
}

impl<'f, S: Mapped, T, K: FnMut(&Record<'f>, usize) -> T> Walk<'_, 'f, S, T, K> {
    /// The records of the next batch.
    fn next(&mut self) -> Option<Batch<'f, T>> {
        let mut batch = self.empty.pop().unwrap_or_default();
        let mut bytes = 0;
        while !self.is_over && (batch.records.len() as u64) < BATCH && bytes < BATCH_BYTES {
            match self.source.advance() {
                Ok(true) => {}
                Ok(false) => self.is_over = true,
                Err(e) => {
                    self.error.get_or_insert(e);
                    self.is_over = true;
                }
            }
            if self.is_over {
                break;
            }
            let record = self.source.record_in(self.files);
            let which = self.source.which();
            self.number += 1;
            bytes += record.bytes.len() as u64;
            let kept = (self.keep)(&record, which);
            batch.records.push((meta_of(&record, self.number, &mut self.time_ns), record.bytes, kept));
        }
        if batch.records.is_empty() {
            return None;
        }
        if self.described && self.revision != Some(self.source.metadata().revision) {
            let metadata = self.source.metadata().clone();
            self.revision = Some(metadata.revision);
            batch.described = Some(Box::new(Described { metadata, inputs: self.source.random_access() }));
        }
        batch.done = self.source.progress().done;
        batch.turn = self.turn;
        self.turn += 1;
        Some(batch)
    }
}

/// Walks and decodes the next batch. `None` at the end.
fn look<'f, S: Mapped, T, K>(
    walk: &Mutex<Walk<'_, 'f, S, T, K>>,
    files: &[Arc<CaptureFile>],
    options: &frame::Options,
) -> Option<Batch<'f, T>>
where
    K: FnMut(&Record<'f>, usize) -> T,
{
    for file in files.iter().take(MAPPED_AHEAD_MAX) {
        file.map_ahead();
    }
    let mut batch = lock(walk).next()?;
    let decoded = batch.records.drain(..).map(|(meta, bytes, kept)| {
        let packet = frame::decode_and_check(meta.link_type, bytes, meta.wire_len, options);
        (meta, packet, kept)
    });
    batch.frames.extend(decoded);
    Some(batch)
}

fn look_ahead<'f, S: Mapped, T, K>(
    walk: &Mutex<Walk<'_, 'f, S, T, K>>,
    files: &[Arc<CaptureFile>],
    options: &frame::Options,
    full: &SyncSender<Batch<'f, T>>,
) where
    K: FnMut(&Record<'f>, usize) -> T,
{
    while let Some(batch) = look(walk, files, options) {
        if full.send(batch).is_err() {
            return;
        }
    }
}
