//! The last frames of a live capture, in temporary files without a name: so that they can be looked at again.
//!
//! ```text
//!   offsets   0 ─── SEGMENT ─── 2 × SEGMENT ─── …          the oldest segments go when there are too many
//!   a frame   time 8 │ interface 4 │ wire length 4 │ length 4 │ link type 2 │ direction 1 │ 0 │ bytes
//! ```

use std::collections::VecDeque;
use std::fs::File;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard};

use super::Frame;
use crate::LinkType;
use crate::record::{Flags, INBOUND, OUTBOUND, Record};
use crate::system;

/// Bytes of a segment.
const SEGMENT: u64 = 32 << 20;
const HEAD: usize = 24;
/// Bytes that are gathered before they are written.
const GATHERED: usize = 256 << 10;

/// The writing side.
pub(super) struct Window {
    kept: Arc<Mutex<Segments>>,
    segments_max: usize,
}

#[derive(Default)]
struct Segments {
    /// By number; the last is being written.
    segments: VecDeque<(u64, Arc<File>)>,
    /// Number of bytes of the last segment that are on disk.
    written: u64,
    /// Bytes of the last segment that are not yet on disk.
    gathered: Vec<u8>,
    /// True if the disk is full.
    is_full: bool,
}

/// The reading side.
#[derive(Clone)]
pub(crate) struct Reader {
    kept: Arc<Mutex<Segments>>,
}

impl std::fmt::Debug for Reader {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Reader")
    }
}

fn lock(kept: &Mutex<Segments>) -> MutexGuard<'_, Segments> {
    kept.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
}

impl Window {
    pub(super) fn new(bytes: u64) -> Window {
        Window { kept: Arc::default(), segments_max: (bytes / SEGMENT).max(2) as usize }
    }

    pub(super) fn reader(&self) -> Reader {
        Reader { kept: self.kept.clone() }
    }

    /// Stores a frame and returns its offset. If the disk is full, storing stops; offsets still increase.
    pub(super) fn keep(&mut self, frame: &Frame<'_>, interface: u32) -> u64 {
        let mut kept = lock(&self.kept);
        let len = (HEAD + frame.bytes.len()) as u64;
        let number = kept.segments.back().map_or(0, |s| s.0);
        let at = kept.written + kept.gathered.len() as u64;
        let (number, at) = if kept.segments.is_empty() || at + len > SEGMENT {
            let number = if kept.segments.is_empty() { 0 } else { number + 1 };
            kept.next_segment(number, self.segments_max);
            (number, 0)
        } else {
            (number, at)
        };
        kept.gathered.extend_from_slice(&frame.time_ns.to_le_bytes());
        kept.gathered.extend_from_slice(&interface.to_le_bytes());
        kept.gathered.extend_from_slice(&frame.wire_len.to_le_bytes());
        kept.gathered.extend_from_slice(&(frame.bytes.len() as u32).to_le_bytes());
        kept.gathered.extend_from_slice(&frame.link_type.0.to_le_bytes());
        kept.gathered.extend_from_slice(&[u8::from(frame.options == OUTBOUND), 0]);
        kept.gathered.extend_from_slice(frame.bytes);
        if kept.gathered.len() >= GATHERED {
            kept.write();
        }
        number * SEGMENT + at
    }
}

impl Segments {
    fn next_segment(&mut self, number: u64, most: usize) {
        self.write();
        self.written = 0;
        while self.segments.len() >= most {
            self.segments.pop_front();
        }
        match tempfile::tempfile() {
            Ok(file) => self.segments.push_back((number, Arc::new(file))),
            Err(_) => self.is_full = true,
        }
    }

    fn write(&mut self) {
        if let Some((_, file)) = self.segments.back() {
            self.is_full |= system::write_all_at(file, &self.gathered, self.written).is_err();
        }
        self.written += self.gathered.len() as u64;
        self.gathered.clear();
    }
}

impl Reader {
    /// The frame at an offset; `None` if it is no longer kept.
    pub(crate) fn record_at<'s>(&self, offset: u64, scratch: &'s mut Vec<u8>) -> io::Result<Option<Record<'s>>> {
        let (number, at) = (offset / SEGMENT, offset % SEGMENT);
        let (file, gathered) = {
            let kept = lock(&self.kept);
            let Some((_, file)) = kept.segments.iter().find(|s| s.0 == number) else { return Ok(None) };
            let is_last = kept.segments.back().is_some_and(|s| s.0 == number);
            let behind = at.checked_sub(kept.written).filter(|_| is_last);
            let gathered = behind.map(|from| kept.gathered.get(from as usize..).map(<[u8]>::to_vec));
            (file.clone(), gathered)
        };
        match gathered {
            Some(Some(bytes)) => *scratch = bytes,
            Some(None) => return Ok(None),
            None => {
                scratch.resize(HEAD, 0);
                if !read_whole(&file, scratch, at) {
                    return Ok(None);
                }
                let len = u32::from_le_bytes([scratch[16], scratch[17], scratch[18], scratch[19]]) as usize;
                scratch.resize(HEAD + len.min(SEGMENT as usize), 0);
                if !read_whole(&file, scratch, at) {
                    return Ok(None);
                }
            }
        }
        Ok(record(scratch, offset))
    }
}

/// Fills the buffer from an offset. Says whether there was so much.
fn read_whole(file: &File, mut buffer: &mut [u8], mut at: u64) -> bool {
    while !buffer.is_empty() {
        match system::read_at(file, buffer, at) {
            Ok(0) => return false,
            Ok(n) => {
                buffer = &mut buffer[n..];
                at += n as u64;
            }
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            Err(_) => return false,
        }
    }
    true
}

fn record(bytes: &[u8], offset: u64) -> Option<Record<'_>> {
    let (head, rest) = bytes.split_first_chunk::<HEAD>()?;
    let word = |at: usize| u32::from_le_bytes([head[at], head[at + 1], head[at + 2], head[at + 3]]);
    let time = u64::from(word(4)) << 32 | u64::from(word(0));
    Some(Record {
        time_ns: time as i64,
        offset,
        interface: word(8),
        wire_len: word(12),
        link_type: LinkType(u16::from_le_bytes([head[20], head[21]])),
        flags: Flags(0),
        bytes: rest.get(..word(16) as usize)?,
        options: if head[22] == 1 { OUTBOUND } else { INBOUND },
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_go_and_the_newest_stay() {
        let mut window = Window::new(1);
        let reader = window.reader();
        let bytes = vec![7u8; 60_000];
        let mut offsets = Vec::new();
        for time in 0..2000 {
            let frame = Frame {
                time_ns: time,
                wire_len: 70_000,
                link_type: LinkType::ETHERNET,
                bytes: &bytes,
                options: OUTBOUND,
            };
            offsets.push(window.keep(&frame, 3));
        }
        assert!(offsets.windows(2).all(|w| w[0] < w[1]));
        let mut scratch = Vec::new();
        assert!(reader.record_at(offsets[0], &mut scratch).unwrap().is_none());
        for time in [1500usize, 1990, 1998, 1999] {
            let record = reader.record_at(offsets[time], &mut scratch).unwrap().unwrap();
            assert_eq!((record.time_ns, record.interface, record.wire_len), (time as i64, 3, 70_000));
            assert!(record.bytes == bytes && record.packet_flags() == Some(2));
        }
        assert!(lock(&window.kept).segments.len() == 2);
    }
}
