//! A whole capture file: every byte of it at once, mapped or handed over, and records by offset. What is walked is read
//! in pieces ([`crate::pieces`]), which takes a third less time than the same over a map, by one thread
//! ([`MappedSource`]) or by several that share it ([`SharedFile`]). Records borrow from the map only where they have to
//! live as long as the file ([`RecordIter`], and sources after [`Source::fetch_ahead`]).
//!
//! A map has one danger: if another program truncates the file meanwhile, touching a page beyond the new end is a
//! SIGBUS, which ends the process. So files that are followed, and files on network file systems, are never mapped (see
//! [`crate::open`]), and walking a map checks the length of the file every 8 MiB, as does every access by offset. A
//! truncation between two such checks, or while records of a map are still held, can still end the process; so can a
//! disk error. [`crate::OpenOptions::mmap`] turns mapping off.
//!
//! Pages behind the current position are released, so that memory does not grow with the file ([`crate::pages`]). A
//! page that is used again is mapped again.

use std::fs::File;
use std::io;
use std::ops::Deref;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use memmap2::Mmap;

use crate::error::{Damage, Error, Problem, Result};
use crate::metadata::Metadata;
use crate::pages::Pages;
use crate::pieces::{Chunk, More, Pieces, Place, ReadAt, Reading};
use crate::record::Record;
use crate::source::{Progress, Source};
use crate::system;
use crate::walk::{DEFAULT_MAX_RECORD_LEN, LookAhead, Magic, Span, Start, Step, Walker};

/// Bytes walked between two looks at the length of a mapped file.
const LOOK_EVERY: usize = 8 << 20;

/// Bytes that are on their way from memory ahead of the walk. The processor does not see by itself which bytes come next,
/// as the place of a record is known only from the one before.
const AHEAD: usize = 4 << 10;
/// Bytes that are asked for at once.
const FETCH: usize = 1 << 10;

/// Blocks that change the metadata whose offsets are kept.
const DESCRIBED_AT_MAX: usize = 1 << 16;

/// Maps a regular file, all of it, to be read.
pub(crate) fn map(file: &File) -> io::Result<Mmap> {
    #[allow(unsafe_code)]
    // SAFETY: the map is read-only and goes into a `CaptureFile`. Its bytes may change if another program writes to the
    // file, and nothing here relies on reading the same byte twice: every length is checked when it is read, and the
    // slices made of it are bounded by the length of the map. Truncation is handled as described at the head of this
    // file.
    let map = unsafe { Mmap::map(file) }?;
    system::read_whole(&map);
    Ok(map)
}

/// A whole, uncompressed capture file: every byte of it at once, records in file order, records by offset.
#[derive(Debug)]
pub struct CaptureFile {
    path: PathBuf,
    storage: Storage,
    max_record_len: u32,
    first_record: usize,
    /// State after the file header; further state is in the metadata of the walk.
    start: Walker,
    pages: Pages,
}

#[derive(Debug)]
enum Storage {
    Map(Mmap, File),
    Owned(Vec<u8>),
}

impl Deref for Storage {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match self {
            Storage::Map(map, _) => map,
            Storage::Owned(bytes) => bytes,
        }
    }
}

impl CaptureFile {
    /// Maps the regular file at `path`. Errors are those of [`crate::open`], and `Unsupported` for compressed files.
    pub fn open(path: impl AsRef<Path>) -> Result<CaptureFile> {
        let path = path.as_ref();
        let file = File::open(path).map_err(|e| Error::open(path, e))?;
        let meta = file.metadata().map_err(|e| Error::open(path, e))?;
        if meta.is_dir() {
            return Err(Error::new(path, Problem::IsDirectory));
        }
        if meta.len() == 0 {
            return Err(Error::new(path, Problem::Empty));
        }
        let map = map(&file).map_err(|e| Error::open(path, e))?;
        CaptureFile::of_map(map, file, path, DEFAULT_MAX_RECORD_LEN)
    }

    /// Takes the bytes of a whole file; `name` is the path in errors.
    pub fn from_bytes(bytes: Vec<u8>, name: impl Into<PathBuf>) -> Result<CaptureFile> {
        CaptureFile::new(Storage::Owned(bytes), name.into(), DEFAULT_MAX_RECORD_LEN)
    }

    pub(crate) fn of_map(map: Mmap, file: File, path: &Path, max_record_len: u32) -> Result<CaptureFile> {
        CaptureFile::new(Storage::Map(map, file), path.to_owned(), max_record_len)
    }

    fn new(storage: Storage, path: PathBuf, max_record_len: u32) -> Result<CaptureFile> {
        match Magic::of(&storage) {
            Magic::Pcap | Magic::Pcapng => {}
            Magic::Gzip | Magic::Frames => {
                return Err(Error::new(
                    path,
                    Problem::Unsupported("compressed, so it cannot be used as a whole; read it in order".to_owned()),
                ));
            }
            Magic::Foreign(_) => {
                return Err(Error::new(
                    path,
                    Problem::Unsupported(
                        "neither pcap nor pcapng, so it cannot be used as a whole; read it in order".to_owned(),
                    ),
                ));
            }
            Magic::Other => return Err(Error::new(path, crate::not_capture::not_capture(&storage))),
        }
        match Walker::start(&storage, max_record_len, LookAhead::ToTheEnd) {
            Ok(Start::Ready(start, first_record)) => {
                Ok(CaptureFile { path, storage, max_record_len, first_record, start: *start, pages: Pages::default() })
            }
            Ok(Start::More { what, needed }) => {
                let damage = Damage::CutShort { what, needed: needed as u64, left: storage.len() as u64 };
                Err(Error::new(path, Problem::Damaged { offset: 0, decompressed: false, damage }))
            }
            Err(damage) => Err(Error::new(path, Problem::Damaged { offset: 0, decompressed: false, damage })),
        }
    }

    /// Path of the file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Every byte of the file.
    pub fn bytes(&self) -> &[u8] {
        &self.storage
    }

    /// The records in file order, from the first on. They live as long as the file, so a batch of them may go to
    /// another thread.
    pub fn records(&self) -> RecordIter<'_> {
        RecordIter { file: self, cursor: self.cursor() }
    }

    /// Maps some of the pages that the walk comes to next, and releases some that lie behind it. Threads that share the
    /// records of a file call this between two batches: else the one that walks maps all pages while the others wait
    /// for it. Returns true if there was something to do.
    pub fn map_ahead(&self) -> bool {
        matches!(&self.storage, Storage::Map(map, _) if self.pages.map_ahead(map))
    }

    /// The record at byte `offset`, as in [`Record::offset`], with the metadata of a walk that has passed it.
    pub fn record_at(&self, metadata: &Metadata, offset: u64) -> Result<Record<'_>> {
        let bytes = usize::try_from(offset).ok().and_then(|at| self.storage.get(at..)).unwrap_or(&[]);
        let first = self.first_record as u64;
        if let Some(damage) = self.shrank() {
            return Err(Error::new(&self.path, Problem::Damaged { offset, decompressed: false, damage }));
        }
        match Walker::packet_at(&self.start.format, metadata, self.max_record_len, bytes, offset) {
            Ok(Step::Packet(span)) if offset >= first => Ok(span.record(bytes, offset)),
            _ => Err(Error::new(&self.path, Problem::NoRecordAt(offset))),
        }
    }

    /// The file to be read by several threads, one of which walks.
    pub fn shared(&self) -> SharedFile<'_> {
        SharedFile { file: self, pieces: Pieces::new(self.storage.len()) }
    }

    /// The same in pieces of this size, with so much room in front of each.
    pub(crate) fn shared_in(&self, piece: usize, head: usize) -> SharedFile<'_> {
        SharedFile { file: self, pieces: Pieces::with(piece, head) }
    }

    pub(crate) fn cursor(&self) -> Cursor {
        let revision = self.start.metadata.revision;
        Cursor {
            walker: self.start.clone(),
            at: self.first_record,
            look_at: LOOK_EVERY,
            fetched: None,
            done: false,
            revision,
            described_at: Some(Vec::new()),
        }
    }

    /// Releases the pages of a map before byte `end`, of which `len` bytes may still be mapped. They stay in the page
    /// cache.
    #[cold]
    fn leave_behind(&self, end: usize, len: usize) {
        if let Storage::Map(map, _) = &self.storage {
            let start = end.saturating_sub(len) & !(LOOK_EVERY - 1);
            system::leave_behind(map, start, end.min(map.len()) - start);
        }
    }

    /// The current length of the file, if it is less than the mapped one.
    #[cold]
    fn shrank(&self) -> Option<Damage> {
        let Storage::Map(map, file) = &self.storage else { return None };
        let (was, now) = (map.len() as u64, file.metadata().ok()?.len());
        (now < was).then_some(Damage::Shrank { was, now })
    }
}

impl ReadAt for CaptureFile {
    fn len(&self) -> usize {
        self.storage.len()
    }

    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        match &self.storage {
            Storage::Map(_, file) => system::read_at(file, buffer, offset),
            Storage::Owned(bytes) => {
                let rest = usize::try_from(offset).ok().and_then(|at| bytes.get(at..)).unwrap_or(&[]);
                let len = rest.len().min(buffer.len());
                buffer[..len].copy_from_slice(&rest[..len]);
                Ok(len)
            }
        }
    }
}

/// A position in a [`CaptureFile`], with the state of the walk up to it.
#[derive(Debug, Clone)]
pub(crate) struct Cursor {
    pub(crate) walker: Walker,
    at: usize,
    look_at: usize,
    /// Bytes up to here are fetched; `None` if who walks also reads the records, whose bytes the processor then fetches
    /// by itself.
    fetched: Option<usize>,
    done: bool,
    /// Revision of the metadata after the last block that changed them.
    revision: u64,
    /// Offsets of the blocks that changed the metadata; `None` if there are too many.
    described_at: Option<Vec<u64>>,
}

/// Where a walk finds the bytes of its file.
trait Bytes {
    /// True if they are those of the map.
    const ARE_MAPPED: bool;

    /// Those from this offset on.
    fn rest(&self, offset: usize) -> &[u8];

    /// Makes `needed` bytes from this offset on available.
    fn go_on(&mut self, offset: usize, needed: usize) -> Result<More, Problem>;
}

/// The whole file in memory.
struct Whole<'a>(&'a [u8]);

impl Bytes for Whole<'_> {
    const ARE_MAPPED: bool = true;

    #[inline(always)]
    fn rest(&self, offset: usize) -> &[u8] {
        self.0.get(offset..).unwrap_or(&[])
    }

    fn go_on(&mut self, _: usize, _: usize) -> Result<More, Problem> {
        Ok(More::Nothing)
    }
}

/// The file in pieces.
struct InPieces<'a> {
    of: (&'a CaptureFile, &'a Pieces),
    reading: &'a mut Reading,
    /// True if the walk may go on to the next chunk.
    goes_on: bool,
}

impl Bytes for InPieces<'_> {
    const ARE_MAPPED: bool = false;

    #[inline(always)]
    fn rest(&self, offset: usize) -> &[u8] {
        self.reading.rest(offset)
    }

    fn go_on(&mut self, offset: usize, needed: usize) -> Result<More, Problem> {
        if self.goes_on { self.reading.go_on((self.of.0, self.of.1), offset, needed) } else { Ok(More::Later) }
    }
}

impl Cursor {
    /// Goes to the next record. Returns its offset and the layout of its parts.
    #[inline(always)]
    fn advance<B: Bytes>(&mut self, file: &CaptureFile, bytes: &mut B) -> Option<Result<(usize, Span)>> {
        loop {
            let at = self.at;
            if at >= self.look_at {
                self.look_at = at.saturating_add(LOOK_EVERY);
                // other threads may still use a batch of records
                if B::ARE_MAPPED
                    && let Some(end) = at.checked_sub(LOOK_EVERY).filter(|_| !file.pages.are_ahead_of(at))
                {
                    file.leave_behind(end & !(LOOK_EVERY - 1), 2 * LOOK_EVERY);
                }
                if let Some(damage) = file.shrank() {
                    return self.fail(file, self.damaged(damage));
                }
            }
            if self.done {
                return None;
            }
            let rest = bytes.rest(at);
            let (what, needed) = if rest.is_empty() {
                ("", 1)
            } else {
                match self.walker.step(rest, at as u64) {
                    Ok(Step::Packet(span)) => {
                        self.at = at + span.len as usize;
                        if let Some(fetched) = self.fetched {
                            let ahead = self.at.saturating_add(AHEAD);
                            if fetched.saturating_add(FETCH) <= ahead {
                                self.fetch(file, bytes.rest(self.at), fetched, ahead);
                            }
                        }
                        return Some(Ok((at, span)));
                    }
                    Ok(Step::Other { len }) => {
                        self.passed();
                        self.at = at + len;
                        continue;
                    }
                    Ok(Step::More { what, needed }) => (what, needed),
                    Err(damage) => return self.fail(file, self.damaged(damage)),
                }
            };
            match bytes.go_on(at, needed) {
                Ok(More::Here) => {}
                Ok(More::Later) => return None,
                Ok(More::Nothing) if at >= file.storage.len() => return None,
                Ok(More::Nothing) => {
                    let (needed, left) = (needed as u64, (file.storage.len() - at) as u64);
                    return self.fail(file, self.damaged(Damage::CutShort { what, needed, left }));
                }
                Err(problem) => return self.fail(file, problem),
            }
        }
    }

    /// Fetches the bytes from `fetched` to `ahead`, as far as they are in `rest`, which begins at the next record.
    #[inline(never)]
    fn fetch(&mut self, file: &CaptureFile, rest: &[u8], fetched: usize, ahead: usize) {
        let (from, to) = (fetched.max(self.at) - self.at, (ahead - self.at).min(rest.len()));
        system::prefetch(rest.get(from..to).unwrap_or(&[]));
        file.pages.walked(self.at);
        self.fetched = Some(ahead);
    }

    /// Notes the block at hand if it changed the metadata.
    #[cold]
    fn passed(&mut self) {
        if self.walker.metadata.revision != self.revision {
            self.revision = self.walker.metadata.revision;
            self.described_at = self.described_at.take().filter(|at| at.len() < DESCRIBED_AT_MAX);
            if let Some(described_at) = &mut self.described_at {
                described_at.push(self.at as u64);
            }
        }
    }

    #[cold]
    fn damaged(&self, damage: Damage) -> Problem {
        Problem::Damaged { offset: self.at as u64, decompressed: false, damage }
    }

    #[cold]
    fn fail(&mut self, file: &CaptureFile, problem: Problem) -> Option<Result<(usize, Span)>> {
        self.done = true;
        Some(Err(Error::new(&file.path, problem)))
    }
}

/// The records of a [`CaptureFile`] in file order. After an error there are no more.
#[derive(Debug, Clone)]
pub struct RecordIter<'a> {
    file: &'a CaptureFile,
    cursor: Cursor,
}

impl<'a> RecordIter<'a> {
    /// The metadata of the file, as far as read.
    pub fn metadata(&self) -> &Metadata {
        &self.cursor.walker.metadata
    }

    /// Bytes walked.
    pub fn offset(&self) -> u64 {
        self.cursor.at as u64
    }
}

impl<'a> Iterator for RecordIter<'a> {
    type Item = Result<Record<'a>>;

    #[inline]
    fn next(&mut self) -> Option<Result<Record<'a>>> {
        match self.cursor.advance(self.file, &mut Whole(&self.file.storage))? {
            Ok((at, span)) => Some(Ok(span.record(self.file.storage.get(at..)?, at as u64))),
            Err(e) => Some(Err(e)),
        }
    }
}

impl std::iter::FusedIterator for RecordIter<'_> {}

/// A [`CaptureFile`] whose bytes several threads read, while one of them walks.
#[derive(Debug)]
pub struct SharedFile<'f> {
    file: &'f CaptureFile,
    pieces: Pieces,
}

impl<'f> SharedFile<'f> {
    /// A walk from the first record on. There may be one.
    pub fn walk(&self) -> SharedWalk {
        SharedWalk { cursor: Cursor { fetched: Some(0), ..self.file.cursor() }, reading: Reading::default() }
    }

    /// Reads some of what the walk comes to next, unless enough is read. Threads that have to wait for the walk, or for
    /// each other, call this meanwhile. Returns true if there was something to do.
    pub fn read_ahead(&self) -> bool {
        self.pieces.read_ahead(self.file)
    }

    /// One who had this chunk does not need it any more: its memory is used again.
    pub fn give_back(&self, chunk: Arc<Chunk>) {
        self.pieces.give_back(chunk);
    }
}

/// The walk over a [`SharedFile`].
#[derive(Debug)]
pub struct SharedWalk {
    cursor: Cursor,
    reading: Reading,
}

impl SharedWalk {
    /// Goes to the next record, which is in [`SharedWalk::chunk`] afterwards. Only with `goes_on` does it leave a chunk;
    /// without it, `None` may also be the end of that. After an error there are no more.
    #[inline]
    pub fn next(&mut self, of: &SharedFile<'_>, goes_on: bool) -> Option<Result<Place>> {
        let mut bytes = InPieces { of: (of.file, &of.pieces), reading: &mut self.reading, goes_on };
        match self.cursor.advance(of.file, &mut bytes)? {
            Ok((at, span)) => Some(Ok(self.reading.place(at, span))),
            Err(e) => Some(Err(e)),
        }
    }

    /// The chunk at hand.
    pub fn chunk(&self) -> &Arc<Chunk> {
        self.reading.chunk()
    }

    /// The metadata of the file, as far as read.
    pub fn metadata(&self) -> &Metadata {
        &self.cursor.walker.metadata
    }

    /// Bytes walked.
    pub fn offset(&self) -> u64 {
        self.cursor.at as u64
    }
}

/// A [`CaptureFile`] as a [`Source`]. It is read, unless others need its records for as long as the file lives: then
/// they are those of the map.
#[derive(Debug)]
pub struct MappedSource {
    file: Arc<CaptureFile>,
    cursor: Cursor,
    read: Option<Box<(Pieces, Reading)>>,
    current: Option<(usize, Span)>,
}

impl MappedSource {
    /// Begins at the first record.
    pub fn new(file: Arc<CaptureFile>) -> MappedSource {
        let cursor = file.cursor();
        let read = matches!(file.storage, Storage::Map(..))
            .then(|| Box::new((Pieces::new(file.storage.len()), Reading::default())));
        MappedSource { file, cursor, read, current: None }
    }

    /// The same, read in pieces of this size with so much room in front of each, whatever it lies in.
    #[cfg(test)]
    pub(crate) fn in_pieces(file: Arc<CaptureFile>, piece: usize, head: usize) -> MappedSource {
        let read = Some(Box::new((Pieces::with(piece, head), Reading::default())));
        MappedSource { cursor: file.cursor(), file, read, current: None }
    }

    /// The file itself, to be shared.
    pub fn file(&self) -> &Arc<CaptureFile> {
        &self.file
    }

    /// The frame that [`Source::advance`] went to, borrowed from the file: it stays when the source goes on. `file` is
    /// the one that [`MappedSource::file`] returns; of another one there is no frame.
    #[inline]
    pub fn record_in<'f>(&self, file: &'f Arc<CaptureFile>) -> Record<'f> {
        match self.current {
            Some((at, span)) if Arc::ptr_eq(file, &self.file) => {
                span.record(file.storage.get(at..).unwrap_or(&[]), at as u64)
            }
            _ => Record::EMPTY,
        }
    }

    /// Offsets of the blocks so far that changed the metadata, for [`MappedSource::skip`]; `None` if there are too
    /// many.
    pub fn described_at(&self) -> Option<&[u64]> {
        self.cursor.described_at.as_deref()
    }

    /// Goes to byte `end` of the same file, up to which an earlier walk came, without reading the records before it.
    /// The metadata is then that of the earlier walk: of the file, only the blocks at these offsets are read. Returns
    /// false, and changes nothing, if they cannot be those of this file.
    pub fn skip(&mut self, described_at: &[u64], end: u64) -> bool {
        let mut cursor = self.file.cursor();
        let mut from = cursor.at as u64;
        for at in described_at {
            let bytes = usize::try_from(*at).ok().and_then(|at| self.file.storage.get(at..)).unwrap_or(&[]);
            if *at < from || bytes.is_empty() {
                return false;
            }
            match cursor.walker.step(bytes, *at) {
                Ok(Step::Other { len }) => from = at.saturating_add(len as u64),
                _ => return false,
            }
        }
        let Ok(end) = usize::try_from(end) else { return false };
        if from > end as u64 || end > self.file.storage.len() {
            return false;
        }
        let revision = cursor.walker.metadata.revision;
        self.cursor = Cursor { at: end, done: true, revision, described_at: Some(described_at.to_vec()), ..cursor };
        self.current = None;
        true
    }
}

impl Source for MappedSource {
    #[inline]
    fn advance(&mut self) -> Result<bool> {
        let advanced = match &mut self.read {
            Some(read) => {
                let (pieces, reading) = &mut **read;
                let mut bytes = InPieces { of: (&self.file, pieces), reading, goes_on: true };
                self.cursor.advance(&self.file, &mut bytes)
            }
            None => self.cursor.advance(&self.file, &mut Whole(&self.file.storage)),
        };
        match advanced {
            Some(Ok(found)) => self.current = Some(found),
            Some(Err(e)) => {
                self.current = None;
                return Err(e);
            }
            None => self.current = None,
        }
        Ok(self.current.is_some())
    }

    #[inline]
    fn record(&self) -> Record<'_> {
        let Some((at, span)) = self.current else { return Record::EMPTY };
        let rest = match &self.read {
            Some(read) => read.1.rest(at),
            None => self.file.storage.get(at..).unwrap_or(&[]),
        };
        span.record(rest, at as u64)
    }

    #[inline]
    fn run(&mut self, each: &mut impl FnMut(&Record<'_>) -> bool) {
        // a walk over the map has more to do at each record
        let Some(read) = self.read.as_ref().filter(|_| !self.cursor.done) else { return };
        let begin = self.cursor.at;
        let bytes = read.1.rest(begin);
        let mut at = 0;
        while let Some(rest) = bytes.get(at..).filter(|rest| !rest.is_empty()) {
            let offset = (begin + at) as u64;
            match self.cursor.walker.step(rest, offset) {
                Ok(Step::Packet(span)) => {
                    at += span.len as usize;
                    if !each(&span.record(rest, offset)) {
                        break;
                    }
                }
                Ok(Step::Other { len }) => {
                    self.cursor.at = begin + at;
                    self.cursor.passed();
                    at += len;
                    break;
                }
                // to be read, or to be reported
                Ok(Step::More { .. }) | Err(_) => break,
            }
        }
        self.cursor.at = begin + at;
        self.current = None;
    }

    fn fetch_ahead(&mut self) {
        self.read = None;
        self.file.pages.begin();
        self.cursor.fetched.get_or_insert(0);
    }

    fn metadata(&self) -> &Metadata {
        &self.cursor.walker.metadata
    }

    fn progress(&self) -> Progress {
        Progress { done: self.cursor.at as u64, total: Some(self.file.storage.len() as u64) }
    }
}
