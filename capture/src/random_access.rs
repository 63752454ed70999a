//! Records by their offset, from wherever the source keeps them: a mapped file, a file, a temporary copy, the last
//! frames of an interface.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use crate::error::{Error, Problem, Result};
use crate::live::{LiveSource, WindowReader};
use crate::mapped::CaptureFile;
use crate::metadata::Metadata;
use crate::record::Record;
use crate::spool::Stored;
use crate::walk::{Format, Step, Walker};

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
    Stored { stored: Stored, format: Format, max_record_len: u32 },
    Window(WindowReader),
}

impl RandomAccess {
    pub(crate) fn mapped(file: Arc<CaptureFile>, metadata: Metadata) -> RandomAccess {
        RandomAccess { path: file.path().to_owned(), metadata, from: From::Mapped(file), scratch: Vec::new() }
    }

    pub(crate) fn stored(
        path: PathBuf,
        stored: Stored,
        format: Format,
        max_record_len: u32,
        metadata: Metadata,
    ) -> RandomAccess {
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

impl LiveSource {
    /// Access to frames by their offset; `None` if none are kept.
    pub fn random_access(&self) -> Option<RandomAccess> {
        let (reader, metadata) = self.kept()?;
        Some(RandomAccess {
            path: PathBuf::from("live capture"),
            metadata: metadata.clone(),
            from: From::Window(reader),
            scratch: Vec::new(),
        })
    }
}
