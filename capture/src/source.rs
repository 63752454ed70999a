//! The common interface of mapped, streamed and merged captures.

use crate::error::Result;
use crate::metadata::{Interface, Metadata};
use crate::record::Record;

/// Frames one after another.
///
/// A damaged file yields all frames before the damage, then one error, then nothing more.
pub trait Source {
    /// Goes to the next frame; `false` at the end. (If the file is followed, more may come later: call it again.)
    fn advance(&mut self) -> Result<bool>;

    /// The frame that [`Source::advance`] went to; [`Record::EMPTY`] if there is none.
    fn record(&self) -> Record<'_>;

    /// Goes to the next frame and returns it; `None` at the end.
    #[inline]
    fn next(&mut self) -> Result<Option<Record<'_>>> {
        Ok(if self.advance()? { Some(self.record()) } else { None })
    }

    /// Hands out the frames behind the current one that are in memory already, without changing what else this says:
    /// the metadata, and of several files, which one it is. There may well be none. Ends early where `each` returns
    /// false. Goes on with [`Source::advance`].
    #[inline]
    fn run(&mut self, _each: &mut impl FnMut(&Record<'_>) -> bool)
    where
        Self: Sized,
    {
    }

    /// The metadata of the file, as far as read.
    fn metadata(&self) -> &Metadata;

    /// The interfaces described up to here; [`Record::interface`] is an index into them.
    fn interfaces(&self) -> &[Interface] {
        &self.metadata().interfaces
    }

    /// Progress of reading.
    fn progress(&self) -> Progress;

    /// Others read the bytes of the records, later than this walk comes by: of a mapped file, it fetches them.
    fn fetch_ahead(&mut self) {}
}

impl<S: Source + ?Sized> Source for Box<S> {
    fn advance(&mut self) -> Result<bool> {
        (**self).advance()
    }

    fn record(&self) -> Record<'_> {
        (**self).record()
    }

    fn metadata(&self) -> &Metadata {
        (**self).metadata()
    }

    fn progress(&self) -> Progress {
        (**self).progress()
    }

    fn fetch_ahead(&mut self) {
        (**self).fetch_ahead();
    }
}

/// Progress of reading, in bytes of the file on disk (compressed, if it is).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Progress {
    /// Bytes read.
    pub done: u64,
    /// Total number of bytes; `None` for a pipe.
    pub total: Option<u64>,
}
