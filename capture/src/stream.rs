//! Capture files that come as a stream: pipes, compressed files, files that still grow, network file systems.
//!
//! The stream goes through one buffer of at least 256 KiB, which grows only when bytes of a longer record really arrive.
//! Records borrow from it.

use std::fs::File;
use std::io::{self, Cursor, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, sync_channel};
use std::time::{Duration, Instant};

use crate::error::{Damage, Error, Problem, Result};
use crate::foreign::{self, Broken, ErfSearch};
use crate::inflate::{self, Input, Undecodable};
use crate::metadata::{self, Metadata};
use crate::record::Record;
use crate::source::{Progress, Source};
use crate::spool::{Spool, Stored};
use crate::system;
use crate::walk::{Format, LookAhead, Magic, Span, Start, Step, Walker};

/// Bytes of the buffer at first: what is made of them still fits into the second-level cache of a core beside them.
const BUFFER: usize = 256 << 10;

/// Action at the end of a file that still grows.
pub enum Follow {
    /// Sleep this long, then look again; forever.
    Poll(Duration),
    /// Call this. `true`: look again (it is this function that waits). `false`: give `None` for now; the next call
    /// looks again.
    Wait(Box<dyn FnMut() -> bool + Send>),
}

impl std::fmt::Debug for Follow {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Follow::Poll(interval) => f.debug_tuple("Poll").field(interval).finish(),
            Follow::Wait(_) => f.write_str("Wait"),
        }
    }
}

impl Follow {
    /// Waits; returns true to look again.
    fn wait(&mut self) -> bool {
        match self {
            Follow::Poll(interval) => {
                // Never a busy loop.
                std::thread::sleep((*interval).max(Duration::from_millis(1)));
                true
            }
            Follow::Wait(wait) => wait(),
        }
    }
}

/// A capture that is read in order, through a buffer.
pub struct StreamSource {
    path: PathBuf,
    input: Input,
    /// The underlying file, if it is a regular one.
    file: Option<Arc<File>>,
    /// True if all of the input is available at once.
    is_whole: bool,
    follow: Option<Follow>,
    max_record_len: u32,
    decompressed: bool,
    /// The format of another tool, from which the stream is translated.
    translated: Option<metadata::Format>,
    /// Bytes read from the underlying file; differs from the position if that is compressed.
    raw_bytes: Arc<AtomicU64>,
    /// Room for bytes; those from `start` to `end` were read and not passed yet.
    buffer: Vec<u8>,
    start: usize,
    end: usize,
    /// Offset of `buffer[0]` in the (decompressed) stream.
    base: u64,
    walker: Option<Box<Walker>>,
    current: Option<(usize, Span)>,
    spool: Option<Spool>,
    /// Set by the caller to end a pipe.
    stop: Option<Arc<AtomicBool>>,
    done: bool,
    /// The metadata that `metadata()` returns before the first bytes were read.
    nothing: Metadata,
}

impl std::fmt::Debug for StreamSource {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("StreamSource")
            .field("path", &self.path)
            .field("offset", &self.position())
            .finish_non_exhaustive()
    }
}

/// Result of asking for more bytes.
enum Filled {
    Enough,
    /// The stream ended first.
    Ended,
    /// The stream may go on later.
    NotYet,
}

/// Result of reading the beginning of the file.
enum Begun {
    Yes,
    NotYet,
}

impl StreamSource {
    /// Reads from any input; `name` is the path in errors. Reads nothing before the first record is requested.
    pub fn new(input: impl Read + Send + 'static, name: impl Into<PathBuf>) -> StreamSource {
        let raw_bytes = Arc::new(AtomicU64::new(0));
        StreamSource {
            path: name.into(),
            input: Box::new(Counting { inner: input, count: raw_bytes.clone() }),
            file: None,
            is_whole: false,
            follow: None,
            max_record_len: crate::walk::DEFAULT_MAX_RECORD_LEN,
            decompressed: false,
            translated: None,
            raw_bytes,
            buffer: Vec::new(),
            start: 0,
            end: 0,
            base: 0,
            walker: None,
            current: None,
            spool: None,
            stop: None,
            done: false,
            nothing: Metadata::default(),
        }
    }

    /// Bytes that are all there, as those of a file are.
    pub(crate) fn of_bytes(bytes: Vec<u8>, name: &str) -> StreamSource {
        StreamSource { is_whole: true, ..StreamSource::new(Cursor::new(bytes), name) }
    }

    /// A stream that is not a regular file. It ends when `stop` is set, even in the middle of a record.
    pub(crate) fn until(input: impl Read + Send + 'static, name: &Path, stop: Option<Arc<AtomicBool>>) -> StreamSource {
        let Some(stop) = stop else { return StreamSource::new(input, name) };
        StreamSource { stop: Some(stop.clone()), ..StreamSource::new(Stoppable::new(input, stop), name) }
    }

    /// True if the stream ended because the stop flag was set.
    fn is_stopped(&self) -> bool {
        self.stop.as_ref().is_some_and(|stop| stop.load(Ordering::Relaxed))
    }

    pub(crate) fn of_file(file: File, path: &Path) -> StreamSource {
        let file = Arc::new(file);
        let mut source = StreamSource::new(SharedFile { file: file.clone(), at: 0 }, path);
        source.file = Some(file);
        source.is_whole = true;
        source
    }

    pub(crate) fn is_regular_file(&self) -> bool {
        self.file.is_some()
    }

    pub(crate) fn with(
        mut self,
        follow: Option<Follow>,
        max_record_len: u32,
        spool_limit: Option<u64>,
    ) -> StreamSource {
        self.follow = follow;
        self.max_record_len = max_record_len;
        self.spool = spool_limit.map(Spool::new);
        self
    }

    /// Path of the file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// True if the stream is decompressed, so that offsets count decompressed bytes.
    pub fn is_compressed(&self) -> bool {
        self.decompressed
    }

    /// Bytes of the (decompressed) stream passed.
    pub fn position(&self) -> u64 {
        self.base + self.start as u64
    }

    /// Bytes of memory that the buffer takes.
    #[cfg(test)]
    pub(crate) fn buffer_len(&self) -> usize {
        self.buffer.len()
    }

    /// The storage from which records can be read again by offset, and the format; `None` if there is none.
    pub(crate) fn stored(&self) -> Option<(Stored, Format)> {
        let format = self.walker.as_ref()?.format;
        let stored = match (&self.spool, &self.file) {
            (Some(spool), _) => spool.stored()?,
            (None, Some(file)) if !self.decompressed && self.translated.is_none() => Stored::itself(file.clone()),
            _ => return None,
        };
        Some((stored, format))
    }

    pub(crate) fn max_record_len(&self) -> u32 {
        self.max_record_len
    }

    /// Determines the format, so that a file that is not a capture is reported at once. A followed file may be empty
    /// yet.
    pub(crate) fn begin_now(&mut self) -> Result<()> {
        match self.begin() {
            Ok(_) => Ok(()),
            Err(problem) => Err(self.fail(problem)),
        }
    }

    fn begin(&mut self) -> Result<Begun, Problem> {
        let (mut needed, mut ended) = (Magic::LEN, false);
        while self.walker.is_none() {
            match self.fill(needed)? {
                Filled::NotYet => return Ok(Begun::NotYet),
                Filled::Ended if self.start == self.end && self.decompressed => {
                    return Err(Problem::NotCapture("the compressed file is empty".to_owned()));
                }
                Filled::Ended if self.start == self.end => return Err(Problem::Empty),
                Filled::Ended => ended = true,
                Filled::Enough => {}
            }
            let bytes = &self.buffer[self.start..self.end];
            let magic = match Magic::of(bytes) {
                // ERF has no magic.
                Magic::Other => match foreign::looks_like_erf(bytes, ended) {
                    ErfSearch::Yes => Magic::Foreign(metadata::Format::Erf),
                    ErfSearch::No => return Err(crate::not_capture::not_capture(bytes)),
                    ErfSearch::More(more) => {
                        needed = more;
                        continue;
                    }
                },
                magic => magic,
            };
            match magic {
                Magic::Other => return Err(crate::not_capture::not_capture(bytes)),
                Magic::Gzip | Magic::Frames if self.decompressed => {
                    return Err(Problem::Unsupported("compressed twice; decompress it once first".to_owned()));
                }
                Magic::Gzip | Magic::Frames if self.follow.is_some() => {
                    return Err(Problem::Unsupported(
                        "following a compressed file; read it when it is complete".to_owned(),
                    ));
                }
                Magic::Foreign(_) if self.follow.is_some() => {
                    let why = "following a file that is neither pcap nor pcapng; read it when it is complete";
                    return Err(Problem::Unsupported(why.to_owned()));
                }
                Magic::Gzip | Magic::Frames | Magic::Foreign(_) => {
                    self.derive(magic);
                    (needed, ended) = (Magic::LEN, false);
                }
                Magic::Pcap | Magic::Pcapng => {
                    match Walker::start(bytes, self.max_record_len, self.look_ahead(ended)) {
                        Ok(Start::Ready(mut walker, len)) => {
                            if self.translated.is_some() {
                                walker.metadata.format = self.translated;
                            }
                            self.walker = Some(walker);
                            self.start += len;
                        }
                        Ok(Start::More { what, needed }) if ended => {
                            let left = bytes.len() as u64;
                            return Err(self.damage(Damage::CutShort { what, needed: needed as u64, left }));
                        }
                        Ok(Start::More { needed: more, .. }) => needed = more,
                        Err(damage) => return Err(self.damage(damage)),
                    }
                }
            }
        }
        Ok(Begun::Yes)
    }

    /// A file has its first records at once; a pipe may give them much later, and its beginning is not to wait for
    /// them.
    fn look_ahead(&self, ended: bool) -> LookAhead {
        match (self.is_whole && self.follow.is_none(), ended) {
            (_, true) => LookAhead::ToTheEnd,
            (true, false) => LookAhead::Yes,
            (false, false) => LookAhead::No,
        }
    }

    /// Replaces the input by the decompressed or translated form of the bytes read so far and the rest.
    fn derive(&mut self, magic: Magic) {
        let head = Cursor::new(self.buffer[self.start..self.end].to_vec());
        let input = std::mem::replace(&mut self.input, Box::new(io::empty()));
        let input: Input = Box::new(head.chain(input));
        self.input = match magic {
            Magic::Gzip => inflate::gzip(input),
            Magic::Foreign(format) => foreign::translate(format, input, self.max_record_len),
            _ => inflate::frames(input),
        };
        match magic {
            Magic::Foreign(format) => self.translated = Some(format),
            _ => self.decompressed = true,
        }
        (self.start, self.end, self.base) = (0, 0, 0);
        if let Some(spool) = &mut self.spool {
            spool.restart();
        }
    }

    /// Reads until `needed` bytes from `start` on are in the buffer.
    fn fill(&mut self, needed: usize) -> Result<Filled, Problem> {
        while self.end - self.start < needed {
            if self.start > 0 && (self.start == self.end || self.buffer.len() - self.start < needed.max(BUFFER / 4)) {
                self.buffer.copy_within(self.start..self.end, 0);
                self.base += self.start as u64;
                self.end -= self.start;
                self.start = 0;
            }
            if self.end == self.buffer.len() {
                // A record longer than the buffer: grow with the received bytes, not with the claimed length.
                self.buffer.resize((self.buffer.len() * 2).max(BUFFER), 0);
            }
            match self.input.read(&mut self.buffer[self.end..]) {
                Ok(0) => match &mut self.follow {
                    None => return Ok(Filled::Ended),
                    Some(follow) => {
                        let position = self.base + self.end as u64;
                        if let Some(now) = self.file.as_ref().and_then(|f| f.metadata().ok()).map(|m| m.len())
                            && now < position
                        {
                            return Err(self.damage(Damage::Shrank { was: position, now }));
                        }
                        if !follow.wait() {
                            return Ok(Filled::NotYet);
                        }
                    }
                },
                Ok(n) => {
                    if let Some(spool) = &mut self.spool {
                        spool.keep(&self.buffer[self.end..self.end + n]);
                    }
                    self.end += n;
                }
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) => return Err(self.read_problem(e)),
            }
        }
        Ok(Filled::Enough)
    }

    fn step(&mut self) -> Result<bool, Problem> {
        if self.walker.is_none()
            && let Begun::NotYet = self.begin()?
        {
            return Ok(false);
        }
        loop {
            let Some(walker) = &mut self.walker else { return Ok(false) };
            let bytes = &self.buffer[self.start..self.end];
            let (what, needed) = if bytes.is_empty() {
                ("", 1)
            } else {
                match walker.step(bytes, self.base + self.start as u64) {
                    Ok(Step::Packet(span)) => {
                        self.current = Some((self.start, span));
                        self.start += span.len as usize;
                        return Ok(true);
                    }
                    Ok(Step::Other { len }) => {
                        self.start += len;
                        continue;
                    }
                    Ok(Step::More { what, needed }) => (what, needed),
                    Err(damage) => return Err(self.damage(damage)),
                }
            };
            match self.fill(needed)? {
                Filled::Enough => {}
                Filled::NotYet => return Ok(false),
                Filled::Ended if self.start == self.end || self.is_stopped() => {
                    self.done = true;
                    return Ok(false);
                }
                Filled::Ended => {
                    let left = (self.end - self.start) as u64;
                    return Err(self.damage(Damage::CutShort { what, needed: needed as u64, left }));
                }
            }
        }
    }

    #[cold]
    fn damage(&self, damage: Damage) -> Problem {
        Problem::Damaged { offset: self.position(), decompressed: self.decompressed, damage }
    }

    #[cold]
    fn read_problem(&self, e: io::Error) -> Problem {
        let offset = self.base + self.end as u64;
        if let Some(Broken { offset, damage }) = e.get_ref().and_then(|e| e.downcast_ref()) {
            return Problem::Damaged { offset: *offset, decompressed: self.decompressed, damage: damage.clone() };
        }
        let damage = match e.get_ref().and_then(|e| e.downcast_ref::<Undecodable>()) {
            Some(Undecodable { method, reason }) => Damage::Compression { method, reason: reason.clone() },
            None => return Problem::Read { offset, source: e },
        };
        Problem::Damaged { offset, decompressed: true, damage }
    }

    #[cold]
    fn fail(&mut self, problem: Problem) -> Error {
        self.done = true;
        Error::new(&self.path, problem)
    }
}

impl Source for StreamSource {
    #[inline]
    fn advance(&mut self) -> Result<bool> {
        self.current = None;
        if self.done {
            return Ok(false);
        }
        self.step().map_err(|problem| self.fail(problem))
    }

    #[inline]
    fn record(&self) -> Record<'_> {
        match self.current {
            Some((at, span)) => span.record(self.buffer.get(at..).unwrap_or(&[]), self.base + at as u64),
            None => Record::EMPTY,
        }
    }

    fn metadata(&self) -> &Metadata {
        self.walker.as_ref().map_or(&self.nothing, |w| &w.metadata)
    }

    fn progress(&self) -> Progress {
        let done = if self.decompressed || self.translated.is_some() {
            self.raw_bytes.load(Ordering::Relaxed)
        } else {
            self.position()
        };
        Progress { done, total: self.file.as_ref().and_then(|f| f.metadata().ok()).map(|m| m.len()) }
    }
}

/// A pipe that can be left: another thread waits for its bytes.
struct Stoppable {
    chunks: Receiver<io::Result<Vec<u8>>>,
    chunk: Cursor<Vec<u8>>,
    stop: Arc<AtomicBool>,
    stopped: Option<Instant>,
}

/// Bytes that the thread reads at once, and how many such pieces it may be ahead.
const CHUNK: usize = 256 << 10;
const CHUNKS_AHEAD: usize = 4;
/// Between two looks at whether to stop.
const LOOK: Duration = Duration::from_millis(100);
/// After the stop flag is set, how long the writer of the pipe, which may be stopping too, may still write.
const LAST_WORDS: Duration = Duration::from_secs(2);

impl Stoppable {
    fn new(mut inner: impl Read + Send + 'static, stop: Arc<AtomicBool>) -> Stoppable {
        let (give, chunks) = sync_channel(CHUNKS_AHEAD);
        std::thread::spawn(move || {
            // a pipe gives a fraction of this at once, which alone is allocated
            let mut room = vec![0; CHUNK];
            loop {
                let read = match inner.read(&mut room) {
                    Ok(0) => return,
                    Ok(n) => Ok(room[..n].to_vec()),
                    Err(e) if e.kind() == io::ErrorKind::Interrupted => continue,
                    Err(e) => Err(e),
                };
                let failed = read.is_err();
                if give.send(read).is_err() || failed {
                    return;
                }
            }
        });
        Stoppable { chunks, chunk: Cursor::default(), stop, stopped: None }
    }
}

impl Read for Stoppable {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        loop {
            // a piece that has arrived is returned, even after the time limit
            match self.chunk.read(buffer)? {
                0 if !buffer.is_empty() => {}
                n => return Ok(n),
            }
            if self.stopped.is_some_and(|since| since.elapsed() > LAST_WORDS) {
                return Ok(0);
            }
            match self.chunks.recv_timeout(LOOK) {
                Ok(chunk) => self.chunk = Cursor::new(chunk?),
                Err(RecvTimeoutError::Disconnected) => return Ok(0),
                // it was stopped, and no more data comes
                Err(RecvTimeoutError::Timeout) if self.stopped.is_some() => return Ok(0),
                Err(RecvTimeoutError::Timeout) => {}
            }
            if self.stop.load(Ordering::Relaxed) {
                self.stopped.get_or_insert_with(Instant::now);
            }
        }
    }
}

/// Counts the bytes read.
struct Counting<R> {
    inner: R,
    count: Arc<AtomicU64>,
}

impl<R: Read> Read for Counting<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let n = self.inner.read(buffer)?;
        self.count.fetch_add(n as u64, Ordering::Relaxed);
        Ok(n)
    }
}

/// A file that is also kept for its length and for reading again by offset.
struct SharedFile {
    file: Arc<File>,
    at: u64,
}

impl Read for SharedFile {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        system::read_on(&self.file, &mut self.at, buffer)
    }
}
