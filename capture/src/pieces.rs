//! A file that is read in pieces, by as many threads as share it, and walked by one of them at a time.
//!
//! ```text
//!   file   │ piece 0        │ piece 1        │ …     read by whoever has time: Pieces::read_ahead
//!   chunk  │ piece 0        │
//!   chunk           │ record│ piece 1        │       a record that a piece cuts lies in front of the next one
//! ```
//! Reading costs as much as mapping, but the bytes are then in the cache of the processor that looks at them, and a
//! piece is read outside of the walk, which threads have to wait for. Buffers are used again. A file that becomes
//! shorter meanwhile is a clear error; of a map it would be the end of the process.

use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::error::{Damage, Problem};
use crate::record::Record;
use crate::span::Span;

/// Bytes of a piece: with what is made of it, it has to fit into the second-level cache of a core.
const PIECE: usize = 256 << 10;
/// Room in front of a piece for the record that the piece before cuts. A longer one is copied with its pieces.
const HEAD: usize = 32 << 10;
/// No header of a record is longer.
const HEADERS: usize = 4 << 10;
/// Pieces that are read ahead of the walk.
const AHEAD: usize = 8;
/// A piece begins with a line of the cache. Large buffers of the allocator begin 16 bytes behind a page, and to there
/// some processors (AMD's Zen 3) copy from the page cache four times slower.
const LINE: usize = 64;

/// A file of which any bytes can be read at any time.
pub(crate) trait ReadAt {
    /// Number of bytes that it had when it was opened.
    fn len(&self) -> usize;

    /// Reads at an offset; 0 bytes behind the end.
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize>;
}

/// The pieces of a file, shared by those who read them.
#[derive(Debug)]
pub(crate) struct Pieces {
    /// Bytes of a piece, and room in front of it.
    piece: usize,
    head: usize,
    /// Piece `n` is put into slot `n % AHEAD`.
    slots: [Mutex<Slot>; AHEAD],
    /// Pieces that somebody has read, or is reading.
    claimed: AtomicU64,
    /// Pieces that the walk has taken.
    taken: AtomicU64,
    /// Buffers to be filled again.
    free: Mutex<Vec<Vec<u8>>>,
}

#[derive(Debug, Default)]
struct Slot {
    /// The next piece that it is for.
    of: u64,
    read: Option<Result<Piece, Problem>>,
}

/// A buffer with a piece behind the room in front of it.
#[derive(Debug)]
struct Piece {
    bytes: Vec<u8>,
    start: usize,
    end: usize,
}

/// Some records of a file in a row, with the bytes between them; or copies of some records ([`Chunk::push`]).
#[derive(Debug, Default)]
pub struct Chunk {
    bytes: Vec<u8>,
    end: usize,
    /// Offset of its first byte in the file, modulo 2⁶⁴: there may be room in front of the first one.
    zero: u64,
}

impl Chunk {
    /// The bytes from this offset in the file on. None if they lie elsewhere.
    #[inline(always)]
    fn from(&self, offset: u64) -> &[u8] {
        let at = usize::try_from(offset.wrapping_sub(self.zero)).unwrap_or(usize::MAX);
        self.bytes.get(at..self.end).unwrap_or(&[])
    }

    /// One that records can be copied into, with room for so many bytes.
    pub fn with_capacity(bytes: usize) -> Chunk {
        Chunk { bytes: Vec::with_capacity(bytes), ..Chunk::default() }
    }

    /// Copies a record behind those that were copied before. Its offset is then that in the chunk.
    pub fn push(&mut self, record: &Record<'_>) -> Place {
        let (at, captured, options) = (self.end, record.bytes.len(), record.options.len());
        self.bytes.truncate(at);
        self.bytes.extend_from_slice(record.bytes);
        self.bytes.extend_from_slice(record.options);
        self.end = self.bytes.len();
        let span = Span {
            time_ns: record.time_ns,
            interface: record.interface,
            wire_len: record.wire_len,
            link_type: record.link_type,
            flags: record.flags,
            header_len: 0,
            captured: captured as u32,
            options: (captured as u32, (captured + options) as u32),
            len: (captured + options) as u32,
        };
        Place { at: at as u32, span }
    }

    /// Number of bytes of the records that were copied.
    pub fn len(&self) -> usize {
        self.end
    }

    /// True if no record was copied.
    pub fn is_empty(&self) -> bool {
        self.end == 0
    }

    /// Forgets the records that were copied, to be filled again.
    pub fn clear(&mut self) {
        (self.end, self.zero) = (0, 0);
        self.bytes.clear();
    }

    /// The record that the walk found there.
    #[inline(always)]
    pub fn record(&self, place: &Place) -> Record<'_> {
        let bytes = self.bytes.get(place.at as usize..self.end).unwrap_or(&[]);
        place.span.record(bytes, self.zero.wrapping_add(u64::from(place.at)))
    }

    /// The captured bytes of that record.
    #[inline(always)]
    pub fn bytes(&self, frame: FrameAt) -> &[u8] {
        let start = frame.start as usize;
        self.bytes.get(start..start + frame.len as usize).unwrap_or(&[])
    }
}

/// Place of a record in its [`Chunk`].
#[derive(Clone, Copy, Debug)]
pub struct Place {
    at: u32,
    span: Span,
}

impl Place {
    /// That of the captured bytes alone.
    #[inline(always)]
    pub fn frame(&self) -> FrameAt {
        FrameAt { start: self.at + u32::from(self.span.header_len), len: self.span.captured }
    }
}

/// Place of the captured bytes of a record in its [`Chunk`].
#[derive(Clone, Copy, Debug)]
pub struct FrameAt {
    start: u32,
    len: u32,
}

/// What there is behind the bytes of a chunk.
pub(crate) enum More {
    /// They are there now.
    Here,
    /// The next chunk, which was not to be taken yet.
    Later,
    /// The end of the file.
    Nothing,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Pieces {
    /// Of a file of this length.
    pub(crate) fn new(len: usize) -> Pieces {
        // one piece is cut by nothing
        if len <= PIECE { Pieces::with(len, 0) } else { Pieces::with(PIECE, HEAD) }
    }

    /// In pieces of this size, with so much room in front of each.
    pub(crate) fn with(piece: usize, head: usize) -> Pieces {
        Pieces {
            piece: piece.max(1),
            head,
            slots: std::array::from_fn(|n| Mutex::new(Slot { of: n as u64, read: None })),
            claimed: AtomicU64::new(0),
            taken: AtomicU64::new(0),
            free: Mutex::default(),
        }
    }

    /// Reads the next piece, unless enough are read. Returns true if there was something to do.
    pub(crate) fn read_ahead(&self, file: &dyn ReadAt) -> bool {
        let claimed = self.claimed.load(Ordering::Relaxed);
        let start = claimed.saturating_mul(self.piece as u64);
        if start >= file.len() as u64 || claimed >= self.taken.load(Ordering::Relaxed) + AHEAD as u64 {
            return false;
        }
        if self.claimed.compare_exchange(claimed, claimed + 1, Ordering::Relaxed, Ordering::Relaxed).is_ok() {
            let mut slot = lock(&self.slots[claimed as usize % AHEAD]);
            // the walk may have come here first
            if slot.of == claimed && slot.read.is_none() {
                slot.read = Some(self.read(file, claimed));
            }
        }
        true
    }

    /// Takes piece `n`, the one behind those that were taken; it is read if nobody has done that.
    fn take(&self, file: &dyn ReadAt, n: u64) -> Result<Piece, Problem> {
        let mut slot = lock(&self.slots[n as usize % AHEAD]);
        let piece = slot.read.take().unwrap_or_else(|| self.read(file, n));
        slot.of = n + AHEAD as u64;
        drop(slot);
        self.taken.store(n + 1, Ordering::Relaxed);
        self.claimed.fetch_max(n + 1, Ordering::Relaxed);
        piece
    }

    fn read(&self, file: &dyn ReadAt, n: u64) -> Result<Piece, Problem> {
        let mut bytes = lock(&self.free).pop().unwrap_or_else(|| vec![0; self.buffer_len()]);
        let offset = n * self.piece as u64;
        let len = self.piece.min((file.len() as u64).saturating_sub(offset) as usize);
        let start = self.head + bytes[self.head..].as_ptr().align_offset(LINE).min(LINE - 1);
        let end = start + len;
        let mut at = start;
        while at < end {
            match file.read_at(&mut bytes[at..end], offset + (at - start) as u64) {
                Ok(0) => {
                    let (was, now) = (file.len() as u64, offset + (at - start) as u64);
                    return Err(damaged(now, Damage::Shrank { was, now }));
                }
                Ok(n) => at += n,
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(source) => return Err(Problem::Read { offset: offset + (at - start) as u64, source }),
            }
        }
        Ok(Piece { bytes, start, end })
    }

    /// Bytes of a buffer: a piece, the room in front of it, and what brings it to the beginning of a line.
    fn buffer_len(&self) -> usize {
        self.head + self.piece + LINE - 1
    }

    /// One who had this chunk does not need it any more.
    pub(crate) fn give_back(&self, chunk: Arc<Chunk>) {
        if let Some(chunk) = Arc::into_inner(chunk) {
            self.give_back_bytes(chunk.bytes);
        }
    }

    fn give_back_bytes(&self, bytes: Vec<u8>) {
        if bytes.len() == self.buffer_len() {
            lock(&self.free).push(bytes);
        }
    }
}

fn damaged(offset: u64, damage: Damage) -> Problem {
    Problem::Damaged { offset, decompressed: false, damage }
}

/// The position of a walk in the pieces.
#[derive(Debug, Default)]
pub(crate) struct Reading {
    chunk: Arc<Chunk>,
    /// The next piece.
    next: u64,
}

impl Reading {
    /// The bytes from this offset in the file to the end of the chunk at hand.
    #[inline(always)]
    pub(crate) fn rest(&self, offset: usize) -> &[u8] {
        self.chunk.from(offset as u64)
    }

    /// The chunk at hand.
    pub(crate) fn chunk(&self) -> &Arc<Chunk> {
        &self.chunk
    }

    /// The record at this offset in the chunk at hand.
    #[inline(always)]
    pub(crate) fn place(&self, offset: usize, span: Span) -> Place {
        Place { at: (offset as u64).wrapping_sub(self.chunk.zero) as u32, span }
    }

    /// Goes on to a chunk that begins at `offset`, which lies in the one at hand or directly behind it, and has `needed`
    /// bytes at least; or all that are left, if a header lies among those.
    #[cold]
    pub(crate) fn go_on(
        &mut self,
        (file, pieces): (&dyn ReadAt, &Pieces),
        offset: usize,
        needed: usize,
    ) -> Result<More, Problem> {
        let left = file.len().saturating_sub(offset);
        let needed = if left < needed {
            // where the file ends inside of a record, what there is of its header still tells what is wrong
            let all = left.min(HEADERS);
            if self.rest(offset).len() >= all {
                return Ok(More::Nothing);
            }
            all
        } else {
            needed
        };
        let begins = self.next * pieces.piece as u64;
        let mut piece = self.take(file, pieces)?;
        let rest = self.rest(offset);
        let chunk = if rest.len() <= pieces.head && rest.len() + (piece.end - piece.start) >= needed {
            piece.bytes[piece.start - rest.len()..piece.start].copy_from_slice(rest);
            Chunk { zero: begins.wrapping_sub(piece.start as u64), bytes: piece.bytes, end: piece.end }
        } else {
            let mut bytes = rest.to_vec();
            loop {
                bytes.extend_from_slice(&piece.bytes[piece.start..piece.end]);
                pieces.give_back_bytes(piece.bytes);
                if bytes.len() >= needed {
                    break;
                }
                piece = self.take(file, pieces)?;
            }
            Chunk { end: bytes.len(), bytes, zero: offset as u64 }
        };
        if let Some(own) = Arc::get_mut(&mut self.chunk) {
            pieces.give_back_bytes(std::mem::replace(own, chunk).bytes);
        } else {
            pieces.give_back(std::mem::replace(&mut self.chunk, Arc::new(chunk)));
        }
        Ok(More::Here)
    }

    fn take(&mut self, file: &dyn ReadAt, pieces: &Pieces) -> Result<Piece, Problem> {
        let piece = pieces.take(file, self.next)?;
        self.next += 1;
        Ok(piece)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{CaptureFile, LinkType, MappedSource, PcapWriter, Source};
    use std::io::Write;

    /// A pcap with frames of these lengths.
    fn pcap(lengths: impl IntoIterator<Item = usize>) -> Vec<u8> {
        let mut writer = PcapWriter::new(Vec::new(), "test", LinkType::ETHERNET, 1 << 24, true).unwrap();
        for (n, len) in lengths.into_iter().enumerate() {
            let bytes: Vec<u8> = (0..len).map(|at| (at * 7 + n) as u8).collect();
            writer.write(&Record::new(n as i64, 0, LinkType::ETHERNET, len as u32, &bytes)).unwrap();
        }
        writer.finish().unwrap()
    }

    /// Frames of most lengths, some of them longer than several pieces, so that the file has many pieces.
    fn mixed() -> Vec<u8> {
        pcap((0..3000).map(|n| if n % 500 == 499 { 3 * PIECE + n } else { n * 37 % 2500 }))
    }

    fn on_disk(bytes: &[u8]) -> (tempfile::NamedTempFile, CaptureFile) {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        file.write_all(bytes).unwrap();
        let opened = CaptureFile::open(file.path()).unwrap();
        (file, opened)
    }

    #[test]
    fn records_are_those_of_the_whole_file_whoever_reads_the_pieces() {
        let (_file, file) = on_disk(&mixed());
        let shared = file.shared();
        let walking = std::sync::atomic::AtomicBool::new(true);
        std::thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| {
                    while walking.load(Ordering::Relaxed) {
                        shared.read_ahead();
                        std::thread::yield_now();
                    }
                });
            }
            let mut walk = shared.walk();
            let mut expected = file.records();
            while let Some(place) = walk.next(&shared, true) {
                let place = place.unwrap();
                assert_eq!(walk.chunk().record(&place), expected.next().unwrap().unwrap());
            }
            walking.store(false, Ordering::Relaxed);
            assert!(expected.next().is_none());
            assert_eq!(walk.offset(), file.bytes().len() as u64);
        });
    }

    #[test]
    fn a_chunk_stays_as_it_is_while_somebody_has_it_and_then_its_memory_is_used_again() {
        let (_file, file) = on_disk(&pcap((0..6000).map(|n| n % 1500)));
        let shared = file.shared();
        let mut walk = shared.walk();
        let (mut held, mut buffers) = (Vec::new(), std::collections::BTreeSet::new());
        while let Some(place) = walk.next(&shared, true) {
            let (place, chunk) = (place.unwrap(), walk.chunk().clone());
            buffers.insert(chunk.bytes.as_ptr().addr());
            held.push((place, chunk));
            if held.len() == 1000 {
                for (place, chunk) in held.drain(..) {
                    let record = chunk.record(&place);
                    let n = record.time_ns as usize;
                    assert_eq!(record.bytes.len(), n % 1500);
                    assert!(record.bytes.iter().enumerate().all(|(at, b)| *b == (at * 7 + n) as u8));
                    shared.give_back(chunk);
                }
            }
        }
        let pieces = file.bytes().len() / PIECE;
        assert!(pieces > 10 && buffers.len() < pieces, "{} buffers for {pieces} pieces", buffers.len());
    }

    #[test]
    fn every_piece_begins_with_a_line_of_the_cache() {
        let (_file, file) = on_disk(&mixed());
        for pieces in [Pieces::new(ReadAt::len(&file)), Pieces::with(1000, 100), Pieces::with(70, 0)] {
            for n in 0..20 {
                let piece = pieces.read(&file, n).unwrap();
                assert_eq!(piece.bytes[piece.start..].as_ptr().addr() % LINE, 0);
                assert!(piece.start >= pieces.head && piece.end - piece.start == pieces.piece);
                let at = n as usize * pieces.piece;
                assert_eq!(piece.bytes[piece.start..piece.end], file.bytes()[at..at + pieces.piece]);
            }
        }
    }

    #[test]
    fn nothing_is_read_further_ahead_than_there_is_room() {
        let (_file, file) = on_disk(&mixed());
        let shared = file.shared();
        let read = || std::iter::from_fn(|| shared.read_ahead().then_some(())).count();
        assert_eq!((read(), read()), (AHEAD, 0));
        let mut walk = shared.walk();
        walk.next(&shared, true).unwrap().unwrap();
        assert_eq!((read(), read()), (1, 0));
    }

    /// What was read before the file became shorter is kept, as far as it had been read by then.
    #[test]
    fn a_file_that_becomes_shorter_is_an_error_and_not_the_end_of_the_process() {
        let bytes = mixed();
        for source in [true, false] {
            let (on_disk, file) = on_disk(&bytes);
            on_disk.as_file().set_len(bytes.len() as u64 / 2).unwrap();
            let (mut records, error) = if source {
                let mut source = MappedSource::new(Arc::new(file));
                let mut records = 0;
                let error = loop {
                    match source.advance() {
                        Ok(true) => records += 1,
                        Ok(false) => panic!("it has no end"),
                        Err(e) => break e,
                    }
                };
                (records, error)
            } else {
                let shared = file.shared();
                let mut walk = shared.walk();
                let mut records = 0;
                let error = loop {
                    match walk.next(&shared, true).expect("it has no end") {
                        Ok(_) => records += 1,
                        Err(e) => break e,
                    }
                };
                assert!(walk.next(&shared, true).is_none(), "nothing follows");
                (records, error)
            };
            records /= 100;
            assert!((10..=20).contains(&records), "{records} hundred records");
            assert!(error.to_string().contains("shrank"), "{error}");
        }
    }
}
