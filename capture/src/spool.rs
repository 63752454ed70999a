//! Access to bytes by offset without a map: from the file itself, or from an unnamed temporary copy of the decompressed
//! data.

use std::fs::File;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use crate::system;

/// A copy of a stream in a file without a name, which vanishes with the process. Its size is limited; further bytes are
/// not kept.
#[derive(Debug)]
pub(crate) struct Spool {
    file: Option<Arc<File>>,
    kept: Arc<Usage>,
    limit: u64,
}

/// Content of a spool so far; shared with its readers.
#[derive(Debug, Default)]
struct Usage {
    bytes: AtomicU64,
    /// True if nothing more is stored: the limit is reached, or the disk is full.
    full: AtomicBool,
}

impl Spool {
    /// A spool that may take up to `limit` bytes. It creates its file with the first of them.
    pub(crate) fn new(limit: u64) -> Spool {
        Spool { file: None, kept: Arc::default(), limit }
    }

    /// Discards everything, because the stream continues in its decompressed form.
    pub(crate) fn restart(&mut self) {
        *self = Spool::new(self.limit);
    }

    /// Appends bytes. If that fails (full disk) or the limit is reached, later records cannot be read again; reading in
    /// order continues.
    pub(crate) fn keep(&mut self, bytes: &[u8]) {
        let have = self.kept.bytes.load(Ordering::Relaxed);
        if self.kept.full.load(Ordering::Relaxed) {
            return;
        }
        if have + bytes.len() as u64 > self.limit || self.append(bytes, have).is_err() {
            self.kept.full.store(true, Ordering::Release);
        } else {
            self.kept.bytes.store(have + bytes.len() as u64, Ordering::Release);
        }
    }

    fn append(&mut self, bytes: &[u8], at: u64) -> io::Result<()> {
        if self.file.is_none() {
            self.file = Some(Arc::new(tempfile::tempfile()?));
        }
        self.file.as_deref().map_or(Ok(()), |file| system::write_all_at(file, bytes, at))
    }

    pub(crate) fn stored(&self) -> Option<Stored> {
        Some(Stored { file: self.file.clone()?, kept: Some(self.kept.clone()) })
    }
}

/// A file that holds a (decompressed) stream from its beginning: the file itself, or a spool.
#[derive(Debug, Clone)]
pub(crate) struct Stored {
    file: Arc<File>,
    kept: Option<Arc<Usage>>,
}

impl Stored {
    pub(crate) fn itself(file: Arc<File>) -> Stored {
        Stored { file, kept: None }
    }

    /// True if the `needed` bytes from `offset` on were left out of the copy.
    pub(crate) fn misses(&self, offset: u64, needed: usize) -> bool {
        let end = offset.saturating_add(needed as u64);
        self.kept
            .as_ref()
            .is_some_and(|kept| kept.full.load(Ordering::Acquire) && kept.bytes.load(Ordering::Acquire) < end)
    }

    pub(crate) fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        // A spool may be writing; bytes that it has not reported yet may be incomplete.
        let len = self.kept.as_ref().map_or(u64::MAX, |kept| kept.bytes.load(Ordering::Acquire));
        let room = usize::try_from(len.saturating_sub(offset)).unwrap_or(usize::MAX).min(buffer.len());
        system::read_at(&self.file, &mut buffer[..room], offset)
    }
}

/// An unnamed file for temporary data; it vanishes with its handle.
pub fn temporary_file() -> io::Result<File> {
    tempfile::tempfile()
}
