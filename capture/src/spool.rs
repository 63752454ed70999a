//! Records by offset where the file is not mapped: from the file itself, or from an unnamed temporary copy of what was decompressed.

use std::fs::File;
use std::io::{self, Write};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use crate::error::{Error, Problem, Result};
use crate::mapped::CaptureFile;
use crate::metadata::Metadata;
use crate::record::Record;
use crate::walk::{Format, Step, Walker};

/// A copy of a stream in a file without a name, which vanishes with the process. Bounded; what does not fit is not kept.
#[derive(Debug)]
pub(crate) struct Spool {
    file: Option<Arc<File>>,
    kept: Arc<Kept>,
    limit: u64,
}

/// How much a spool has; shared with those who read from it.
#[derive(Debug, Default)]
struct Kept {
    bytes: AtomicU64,
    /// No more is kept: the limit is reached, or the disk is full.
    full: AtomicBool,
}

impl Spool {
    /// A spool that may take up to `limit` bytes. It creates its file with the first of them.
    pub(crate) fn new(limit: u64) -> Spool {
        Spool { file: None, kept: Arc::default(), limit }
    }

    /// Forgets everything, because what follows is the decompressed form of it.
    pub(crate) fn restart(&mut self) {
        *self = Spool::new(self.limit);
    }

    /// Appends. Where that fails (full disk) or the limit is reached, later records cannot be read again; reading in order goes on.
    pub(crate) fn keep(&mut self, bytes: &[u8]) {
        let have = self.kept.bytes.load(Ordering::Relaxed);
        if self.kept.full.load(Ordering::Relaxed) {
            return;
        }
        if have + bytes.len() as u64 > self.limit || self.append(bytes).is_err() {
            self.kept.full.store(true, Ordering::Release);
        } else {
            self.kept.bytes.store(have + bytes.len() as u64, Ordering::Release);
        }
    }

    fn append(&mut self, bytes: &[u8]) -> io::Result<()> {
        if self.file.is_none() {
            self.file = Some(Arc::new(tempfile::tempfile()?));
        }
        self.file.as_deref().map_or(Ok(()), |mut file| file.write_all(bytes))
    }

    pub(crate) fn stored(&self) -> Option<Stored> {
        Some(Stored { file: self.file.clone()?, kept: Some(self.kept.clone()) })
    }
}

/// A file that holds a (decompressed) stream from its beginning: the file itself, or what a spool has kept.
#[derive(Debug, Clone)]
pub(crate) struct Stored {
    file: Arc<File>,
    kept: Option<Arc<Kept>>,
}

impl Stored {
    pub(crate) fn itself(file: Arc<File>) -> Stored {
        Stored { file, kept: None }
    }

    /// Whether the `needed` bytes from `offset` on were left out of the copy.
    fn misses(&self, offset: u64, needed: usize) -> bool {
        let end = offset.saturating_add(needed as u64);
        self.kept.as_ref().is_some_and(|kept| kept.full.load(Ordering::Acquire) && kept.bytes.load(Ordering::Acquire) < end)
    }

    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        // A spool may be writing; what it has not told yet may be half there.
        let len = self.kept.as_ref().map_or(u64::MAX, |kept| kept.bytes.load(Ordering::Acquire));
        let room = usize::try_from(len.saturating_sub(offset)).unwrap_or(usize::MAX).min(buffer.len());
        read_at(&self.file, &mut buffer[..room], offset)
    }
}

#[cfg(unix)]
fn read_at(file: &File, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
    std::os::unix::fs::FileExt::read_at(file, buffer, offset)
}

#[cfg(windows)]
fn read_at(file: &File, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
    std::os::windows::fs::FileExt::seek_read(file, buffer, offset)
}

/// A file without a name, for what is put aside; it vanishes with its handle.
pub fn temporary_file() -> io::Result<File> {
    tempfile::tempfile()
}

/// Reads records again by their offset. Independent of the source it came from, so another thread may use it.
#[derive(Debug, Clone)]
pub struct RandomAccess {
    path: PathBuf,
    metadata: Metadata,
    from: From,
    scratch: Vec<u8>,
}

#[derive(Debug, Clone)]
enum From {
    Mapped(Arc<CaptureFile>),
    Stored {
        stored: Stored,
        format: Format,
        max_record_len: u32,
    },
    #[cfg(unix)]
    Window(crate::live::WindowReader),
}

impl RandomAccess {
    pub(crate) fn mapped(file: Arc<CaptureFile>, metadata: Metadata) -> RandomAccess {
        RandomAccess { path: file.path().to_owned(), metadata, from: From::Mapped(file), scratch: Vec::new() }
    }

    #[cfg(unix)]
    pub(crate) fn window(reader: crate::live::WindowReader, metadata: Metadata) -> RandomAccess {
        RandomAccess { path: PathBuf::from("live capture"), metadata, from: From::Window(reader), scratch: Vec::new() }
    }

    pub(crate) fn stored(path: PathBuf, stored: Stored, format: Format, max_record_len: u32, metadata: Metadata) -> RandomAccess {
        RandomAccess { path, metadata, from: From::Stored { stored, format, max_record_len }, scratch: Vec::new() }
    }

    /// The interfaces that were described up to here; [`Record::interface`] counts them.
    pub fn interfaces(&self) -> &[crate::Interface] {
        &self.metadata.interfaces
    }

    /// Takes over newer metadata of the source, so that records on interfaces described since then can be read.
    pub fn refresh(&mut self, metadata: &Metadata) {
        if self.metadata.revision != metadata.revision {
            self.metadata = metadata.clone();
        }
    }

    /// The record that begins at byte `offset`, as [`Record::offset`] gave it.
    pub fn record_at(&mut self, offset: u64) -> Result<Record<'_>> {
        let (stored, format, max) = match &self.from {
            From::Mapped(file) => return file.record_at(&self.metadata, offset),
            #[cfg(unix)]
            From::Window(reader) => {
                return match reader.record_at(offset, &mut self.scratch) {
                    Ok(Some(record)) => Ok(record),
                    Ok(None) => Err(Error::new(&self.path, Problem::NoLongerKept)),
                    Err(source) => Err(Error::new(&self.path, Problem::Read { offset, source })),
                };
            }
            From::Stored { stored, format, max_record_len } => (stored, format, *max_record_len),
        };
        let mut have = 0;
        let mut needed = 4096;
        let span = loop {
            if self.scratch.len() < needed {
                self.scratch.resize(needed, 0);
            }
            while have < needed {
                match stored.read_at(&mut self.scratch[have..needed], offset.saturating_add(have as u64)) {
                    Ok(0) => break,
                    Ok(n) => have += n,
                    Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                    Err(source) => return Err(Error::new(&self.path, Problem::Read { offset, source })),
                }
            }
            match Walker::packet_at(format, &self.metadata, max, &self.scratch[..have], offset) {
                Ok(Step::Packet(span)) => break span,
                Ok(Step::More { needed: more, .. }) if have == needed && more > needed => needed = more,
                _ if stored.misses(offset, needed) => return Err(Error::new(&self.path, Problem::NotKept(offset))),
                _ => return Err(Error::new(&self.path, Problem::NoRecordAt(offset))),
            }
        };
        Ok(span.record(&self.scratch[..have], offset))
    }
}
