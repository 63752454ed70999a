//! FPDUs from a stream of bytes (RFC 5044 4): length, ULPDU, padding, CRC, and markers if they were requested.

use rdmascope_dissector::frame::Check;
use rdmascope_dissector::wire::iwarp::mpa::{self, CRC_LEN, MARKER_INTERVAL, MARKER_LEN};

/// Result of looking for an FPDU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Frame {
    /// Its ULPDU is in the buffer given.
    Whole,
    /// More bytes are needed.
    Short,
    /// Its CRC is not that of its bytes.
    BadCrc,
    /// A marker does not point to the beginning of the FPDU.
    BadMarker,
}

/// Bytes that were received and not used yet: with markers less than two FPDUs and the last input, without markers less
/// than one.
#[derive(Debug, Default)]
pub(super) struct Deframer {
    bytes: Vec<u8>,
    start: usize,
    /// Of `start`, in the stream of FPDUs with markers.
    position: u32,
}

impl Deframer {
    pub(super) fn push(&mut self, bytes: &[u8]) {
        if self.start > 0 && self.start >= self.bytes.len() / 2 {
            self.bytes.drain(..self.start);
            self.start = 0;
        }
        self.bytes.extend_from_slice(bytes);
    }

    pub(super) fn is_empty(&self) -> bool {
        self.start == self.bytes.len()
    }

    /// The ULPDU of the next FPDU, with markers.
    pub(super) fn next_with_markers(&mut self, crc: bool, ulpdu: &mut Vec<u8>) -> Frame {
        let (frame, used) = with_markers(&self.bytes[self.start..], self.position, crc, ulpdu);
        self.start += used;
        self.position = self.position.wrapping_add(used as u32);
        frame
    }

    /// Without markers: takes the missing bytes of a partial FPDU from `more`, and no byte beyond it. Returns the FPDU
    /// if it is complete; the caller returns the vector by [`Deframer::reuse`].
    pub(super) fn complete(&mut self, more: &mut &[u8], crc: bool) -> (Frame, Vec<u8>) {
        let mut take = |bytes: &mut Vec<u8>, whole: usize| {
            let (taken, rest) = more.split_at(whole.saturating_sub(bytes.len()).min(more.len()));
            bytes.extend_from_slice(taken);
            *more = rest;
        };
        take(&mut self.bytes, 2);
        let Some(length) = self.bytes.first_chunk::<2>() else { return (Frame::Short, Vec::new()) };
        let whole = mpa::fpdu_len(u16::from_be_bytes(*length));
        take(&mut self.bytes, whole);
        match find(&self.bytes, crc).0 {
            Frame::Short => (Frame::Short, Vec::new()),
            frame => (frame, core::mem::take(&mut self.bytes)),
        }
    }

    /// Takes back the vector of [`Deframer::complete`], to reuse its memory.
    pub(super) fn reuse(&mut self, mut held: Vec<u8>) {
        if self.bytes.is_empty() {
            held.clear();
            self.bytes = held;
        }
    }
}

/// Looks for an FPDU without markers at the beginning of `i`. Returns the result and its length.
pub(super) fn find(i: &[u8], crc: bool) -> (Frame, usize) {
    let Some(length) = i.first_chunk::<2>() else { return (Frame::Short, 0) };
    let whole = mpa::fpdu_len(u16::from_be_bytes(*length));
    let Some(fpdu) = i.get(..whole) else { return (Frame::Short, 0) };
    if crc && mpa::check(fpdu) == Check::Bad { (Frame::BadCrc, 0) } else { (Frame::Whole, whole) }
}

/// The ULPDU of an FPDU that was found.
pub(super) fn ulpdu(fpdu: &[u8]) -> &[u8] {
    let Some((length, rest)) = fpdu.split_first_chunk::<2>() else { return &[] };
    rest.get(..usize::from(u16::from_be_bytes(*length))).unwrap_or_default()
}

/// Everything is a multiple of four bytes, so that a marker is never inside of a length, a word or a CRC.
fn with_markers(i: &[u8], position: u32, crc: bool, ulpdu: &mut Vec<u8>) -> (Frame, usize) {
    let is_marker = |at: usize| position.wrapping_add(at as u32).is_multiple_of(MARKER_INTERVAL);
    let header = if is_marker(0) { MARKER_LEN } else { 0 };
    let Some(length) = i.get(header..header + 2) else { return (Frame::Short, 0) };
    let length = u16::from_be_bytes([length[0], length[1]]);
    let body = mpa::fpdu_len(length) - CRC_LEN;
    ulpdu.clear();
    let mut at = 0;
    // one word more than the body: the CRC may have a marker before it
    while ulpdu.len() <= body {
        if is_marker(at) {
            let Some(marker) = i.get(at..at + MARKER_LEN) else { return (Frame::Short, 0) };
            let pointer = usize::from(u16::from_be_bytes([marker[2], marker[3]]));
            if pointer != at.saturating_sub(header) {
                return (Frame::BadMarker, 0);
            }
            at += MARKER_LEN;
        }
        if ulpdu.len() == body {
            break;
        }
        let Some(word) = i.get(at..at + 4) else { return (Frame::Short, 0) };
        ulpdu.extend_from_slice(word);
        at += 4;
    }
    let Some(fpdu) = i.get(..at + CRC_LEN) else { return (Frame::Short, 0) };
    if crc && mpa::check(fpdu) == Check::Bad {
        return (Frame::BadCrc, 0);
    }
    ulpdu.drain(..2);
    ulpdu.truncate(length.into());
    (Frame::Whole, at + CRC_LEN)
}
