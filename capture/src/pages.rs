//! Which pages of a mapped file this process has: some ahead of the walk, brought before anybody needs them, and some
//! behind it, which may still be read; all others are released, so that memory does not grow with the file.
//!
//! A page that is missing is mapped when it is touched. If only one thread walks, that is done there and then. If
//! several share a file, the one that walks would map nearly all pages while the others wait for it: so each of them
//! asks for some between two batches ([`crate::CaptureFile::map_ahead`]).

use std::sync::atomic::{AtomicUsize, Ordering};

use memmap2::Mmap;

use crate::system;

/// Bytes that one call maps.
const CHUNK: usize = 1 << 20;
/// Bytes that are mapped ahead of the walk.
const AHEAD: usize = 4 << 20;
/// Bytes behind what is mapped that are not released: batches of records that wait for a thread are there.
const BEHIND: usize = 16 << 20;
/// Bytes that are released at once: each time, every processor that runs a thread of this process is interrupted.
const RELEASED: usize = 8 << 20;

/// How far the pages of a map are brought. Everything here is advice: a value that is too old costs time alone.
#[derive(Debug, Default)]
pub(crate) struct Pages {
    /// Bytes walked, as the walk last told.
    walked: AtomicUsize,
    /// Bytes that somebody has brought, or is bringing.
    mapped: AtomicUsize,
}

impl Pages {
    /// A walk begins, whose records other threads read.
    pub(crate) fn begin(&self) {
        self.walked.store(0, Ordering::Relaxed);
        self.mapped.store(0, Ordering::Relaxed);
    }

    /// The walk came to this byte.
    #[inline]
    pub(crate) fn walked(&self, at: usize) {
        self.walked.store(at, Ordering::Relaxed);
    }

    /// True if other threads map what comes next, and release what lies behind.
    pub(crate) fn are_ahead_of(&self, at: usize) -> bool {
        self.mapped.load(Ordering::Relaxed) > at
    }

    /// Maps the next pages, unless enough of them are, and releases as many behind. Returns true if there was something
    /// to do.
    pub(crate) fn map_ahead(&self, map: &Mmap) -> bool {
        let walked = self.walked.load(Ordering::Relaxed);
        let mapped = self.mapped.load(Ordering::Relaxed);
        if mapped >= map.len() || mapped > walked.saturating_add(AHEAD) {
            return false;
        }
        // what was walked without help is mapped already
        let from = mapped.max(walked & !(CHUNK - 1));
        let to = from.saturating_add(CHUNK);
        if self.mapped.compare_exchange(mapped, to, Ordering::Relaxed, Ordering::Relaxed).is_err() {
            return true;
        }
        system::map_now(map, from, to.min(map.len()) - from);
        if from.is_multiple_of(RELEASED)
            && let Some(start) = from.checked_sub(BEHIND + RELEASED)
        {
            system::leave_behind(map, start, RELEASED);
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_are_mapped_a_bounded_way_ahead_and_released_ones_are_still_the_file_s() {
        let bytes: Vec<u8> = (0..(40 << 20)).map(|n: u32| (n >> 12) as u8).collect();
        let mut file = tempfile::tempfile().unwrap();
        std::io::Write::write_all(&mut file, &bytes).unwrap();
        let map = crate::mapped::map(&file).unwrap();
        let pages = Pages::default();
        for _ in 0..2 {
            pages.begin();
            assert!(!pages.are_ahead_of(0), "nobody has mapped anything yet");
            for walked in (0..map.len()).step_by(CHUNK / 2) {
                pages.walked(walked);
                while pages.map_ahead(&map) {}
                assert!(pages.are_ahead_of(walked));
                assert!(!pages.are_ahead_of(walked + AHEAD + CHUNK));
            }
            assert!(!pages.map_ahead(&map), "the whole file was mapped");
            assert!(map[..] == bytes[..]);
        }
    }

    #[test]
    fn what_was_walked_without_help_is_not_mapped_again() {
        let file = tempfile::tempfile().unwrap();
        file.set_len(16 << 20).unwrap();
        let map = crate::mapped::map(&file).unwrap();
        let pages = Pages::default();
        pages.walked(9 << 20);
        assert!(pages.map_ahead(&map));
        assert!(!pages.are_ahead_of((9 << 20) + CHUNK) && pages.are_ahead_of(9 << 20));
    }
}
