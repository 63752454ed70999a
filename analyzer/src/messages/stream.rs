//! Messages on plain TCP: SMB2 behind its length (\[MS-SMB2\] 2.1), ONC RPC behind its record mark (RFC 5531 11). A
//! multichannel session uses them beside RDMA, and falls back to them.

use crate::op::{At, StreamBytes};
use crate::pieces::Pieces;
use alloc::vec::Vec;
use rdmascope_dissector::wire::rpc::RecordMark;
use rdmascope_dissector::wire::smb2::Framing;

/// Bytes of one message put together at most: the limit of an SMB2 length, and more than NFS sends.
pub const MESSAGE_MAX: usize = 1 << 24;

/// Kind of messages on a stream.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Kind {
    /// Not decided yet.
    #[default]
    Undecided,
    /// SMB2 behind a length of 24 bits.
    Smb2,
    /// RPC behind record marks.
    Rpc,
    /// Another protocol.
    Other,
}

/// A message put together.
#[derive(Clone, Copy, Debug)]
pub struct Record<'a> {
    /// The frame of its first byte.
    pub first: At,
    /// The frame of its last byte.
    pub last: At,
    /// Its bytes without the framing, as far as they were captured.
    pub bytes: &'a [u8],
    /// Their number on the wire.
    pub wire_length: u32,
    /// True if they stand in one frame.
    pub in_frame: bool,
    /// The segments that they were put together from, if there are several.
    pub pieces: Option<&'a Pieces>,
}

/// The beginning of a message of which the capture cut something off.
#[derive(Clone, Debug)]
struct Cut {
    bytes: Vec<u8>,
    /// Its length on the wire.
    length: u32,
    /// The frame of its first byte.
    first: At,
}

/// One direction of a connection.
#[derive(Clone, Debug, Default)]
pub struct Direction {
    buffer: Vec<u8>,
    /// Frame of the first byte in the buffer.
    first: At,
    /// Frame of the last bytes.
    last: At,
    /// RPC fragments before the last one of a record.
    record: Vec<u8>,
    /// Bytes still to be passed over: of a message that is too long, or cut.
    skip: usize,
    /// The message that they are of, if its beginning was captured and some of the rest was cut off.
    cut: Option<Cut>,
    /// Set after a gap: framing has to be found again.
    lost: bool,
    /// The length of a message led to something that is none, or is longer than any.
    is_broken: bool,
    /// The segments of the message that is not whole.
    pieces: Pieces,
}

fn word(bytes: &[u8], at: usize) -> Option<u32> {
    bytes.get(at..)?.first_chunk::<4>().map(|b| u32::from_be_bytes(*b))
}

/// Kind of messages, if `bytes` begin like SMB2 or RPC on TCP.
pub fn recognize(mut bytes: &[u8]) -> Kind {
    // keep-alives of the session service say nothing (RFC 1002 4.3.7)
    while let [0x85, 0, 0, 0, rest @ ..] = bytes {
        bytes = rest;
    }
    if let Some([0, _, _, _, rest @ ..]) = bytes.get(..8)
        && Framing::of(rest).is_some()
    {
        return Kind::Smb2;
    }
    let word = |at: usize| word(bytes, at);
    let (Some(mark), Some(kind)) = (word(0), word(8)) else { return Kind::Undecided };
    let length = mark & 0x7fff_ffff;
    let call =
        kind == 0 && word(12) == Some(2) && word(16).is_some_and(|program| (100_000..0x6000_0000).contains(&program));
    let reply = kind == 1 && word(12).is_some_and(|state| state <= 1) && word(16).is_some_and(|flavor| flavor <= 7);
    // the first of several fragments of a reply says too little
    let is_whole = mark >> 31 == 1;
    if (24..MESSAGE_MAX as u32).contains(&length) && (call || reply && is_whole) {
        return Kind::Rpc;
    }
    if bytes.len() < 20 { Kind::Undecided } else { Kind::Other }
}

/// True if the captured beginning of bytes can be that of a message.
fn begins(kind: Kind, bytes: &[u8]) -> bool {
    match (kind, bytes) {
        (Kind::Smb2, [0, _, _, _, id, b'S', b'M', b'B', ..]) => *id >= 0xfc,
        // an empty one, and one of which less was captured
        (Kind::Smb2, [0, 0, 0, 0, ..] | [0, _, _, _] | [0, _, _, _, 0xfc..=0xff]) => true,
        (Kind::Smb2, [0, _, _, _, 0xfc..=0xff, b'S'] | [0, _, _, _, 0xfc..=0xff, b'S', b'M']) => true,
        // RFC 1002 4.3.1
        (Kind::Smb2, [kind, ..]) => matches!(kind, 0x81..=0x85),
        // less of a message tells nothing
        (Kind::Rpc, _) if word(bytes, 0).is_some_and(|mark| mark & 0x7fff_ffff < 12) => true,
        (Kind::Rpc, _) if bytes.len() >= 16 => match (word(bytes, 8), word(bytes, 12)) {
            // the version, and the state of the reply: four bytes earlier or later there is something else
            (Some(0), Some(version)) => (1..=4).contains(&version),
            (Some(1), Some(state)) => state <= 1,
            _ => false,
        },
        (Kind::Rpc, _) if bytes.len() >= 12 => matches!(bytes[8..12], [0, 0, 0, 0 | 1]),
        _ => true,
    }
}

/// True if bytes begin with a fragment behind which others of the same message come.
fn goes_on(bytes: &[u8]) -> bool {
    word(bytes, 0).is_some_and(|mark| (24..MESSAGE_MAX as u32).contains(&mark))
}

impl Direction {
    /// True, once, if the length of a message led to something that is none, or is longer than any.
    pub fn was_broken(&mut self) -> bool {
        core::mem::take(&mut self.is_broken)
    }

    /// True if a message is not whole.
    pub fn is_open(&self) -> bool {
        !self.buffer.is_empty() || !self.record.is_empty() || self.skip > 0
    }

    /// The last part of a message that is not whole.
    pub fn open_since(&self) -> Option<At> {
        self.is_open().then_some(self.last)
    }

    /// The stream begins late: its first bytes need not begin a message.
    pub fn late(&mut self) {
        self.lost = true;
    }

    /// Takes the next bytes and delivers every message that they complete. Returns true if the bytes passed unread:
    /// framing is still to be found.
    pub fn take(&mut self, kind: Kind, piece: &StreamBytes<'_>, emit: &mut impl FnMut(&Record<'_>)) -> bool {
        let mut bytes = piece.bytes;
        if self.lost {
            // a message nearly always begins a segment
            let is_part = kind == Kind::Rpc && bytes.len() >= 24 && begins(kind, bytes) && goes_on(bytes);
            if recognize(bytes) != kind && !is_part {
                return !bytes.is_empty();
            }
            self.lost = false;
        }
        if !bytes.is_empty() {
            self.last = piece.at;
        }
        // bytes that were lost are a piece of their own
        let is_cut = piece.missing > 0 && (piece.in_frame || !bytes.is_empty());
        let skipped = self.skip.min(bytes.len());
        bytes = &bytes[skipped..];
        self.pass(skipped, piece.at, emit);
        if !self.buffer.is_empty() || !self.record.is_empty() {
            self.pieces.add_frame(piece.at.frame);
        }
        if self.buffer.is_empty() {
            let used = self.messages(kind, bytes, piece.at, piece.at, piece.in_frame, emit);
            bytes = &bytes[used..];
            if is_cut && self.skip == 0 && self.cut_off(kind, bytes, None, piece, emit) {
                return false;
            }
            if !bytes.is_empty() && self.skip == 0 {
                self.first = piece.at;
                self.buffer.extend_from_slice(bytes);
            }
        } else {
            self.buffer.extend_from_slice(bytes);
            let mut buffer = core::mem::take(&mut self.buffer);
            let used = self.messages(kind, &buffer, self.first, piece.at, false, emit);
            if used > 0 {
                buffer.drain(..used.min(buffer.len()));
                self.first = piece.at;
            }
            if is_cut && self.skip == 0 && self.cut_off(kind, &buffer, Some(self.first), piece, emit) {
                return false;
            }
            if self.skip > 0 {
                buffer.clear();
            }
            if buffer.is_empty() && buffer.capacity() > 1 << 18 {
                buffer = Vec::new();
            }
            self.buffer = buffer;
        }
        if !self.buffer.is_empty() || !self.record.is_empty() {
            self.pieces.add_frame(piece.at.frame);
        }
        let mut missing = piece.missing as usize;
        if is_cut {
            let passed = missing.min(self.skip);
            self.pass(passed, piece.at, emit);
            missing -= passed;
        }
        if missing > 0 {
            self.gap();
        }
        false
    }

    /// Passes over bytes of a message that is too long, or cut: that one is delivered with its last byte.
    fn pass(&mut self, count: usize, at: At, emit: &mut impl FnMut(&Record<'_>)) {
        self.skip -= count;
        if self.skip == 0
            && let Some(Cut { bytes, length, first }) = self.cut.take()
        {
            let pieces = self.pieces.several();
            emit(&Record { first, last: at, bytes: &bytes, wire_length: length, in_frame: false, pieces });
            self.pieces.clear();
        }
    }

    /// Takes the beginning of a message, `before` if it is in earlier segments too, and with it the bytes that the
    /// capture cut off behind it. False if that is no beginning: framing has to be found again.
    fn cut_off(
        &mut self,
        kind: Kind,
        bytes: &[u8],
        before: Option<At>,
        piece: &StreamBytes<'_>,
        emit: &mut impl FnMut(&Record<'_>),
    ) -> bool {
        let is_one = |word: u32| if kind == Kind::Smb2 { word >> 24 == 0 } else { word >> 31 == 1 };
        let Some(word) = word(bytes, 0).filter(|word| self.record.is_empty() && is_one(*word)) else { return false };
        let (length, bytes) = ((word & 0x7fff_ffff) as usize, &bytes[RecordMark::LEN..]);
        let (missing, first) = (piece.missing as usize, before.unwrap_or(piece.at));
        let Some(rest) = length.checked_sub(bytes.len()).filter(|rest| *rest > 0) else { return false };
        if bytes.is_empty() || length > MESSAGE_MAX {
            return false;
        }
        self.buffer = Vec::new();
        if let Some(skip) = rest.checked_sub(missing).filter(|skip| *skip > 0) {
            self.cut = Some(Cut { bytes: bytes.to_vec(), length: length as u32, first });
            (self.skip, self.last) = (skip, piece.at);
            self.pieces.add_frame(piece.at.frame);
            return true;
        }
        let in_frame = piece.in_frame && before.is_none();
        let pieces = self.pieces.several();
        emit(&Record { first, last: piece.at, bytes, wire_length: length as u32, in_frame, pieces });
        self.pieces.clear();
        // what follows in the part that was cut off is not known
        self.lost = missing > rest;
        true
    }

    /// Bytes of memory that it holds.
    pub fn held(&self) -> usize {
        let cut = self.cut.as_ref().map_or(0, |cut| cut.bytes.capacity());
        self.buffer.capacity() + self.record.capacity() + cut + self.pieces.held()
    }

    /// Bytes are missing.
    pub fn gap(&mut self) {
        self.buffer = Vec::new();
        self.record = Vec::new();
        self.pieces.release();
        (self.skip, self.cut) = (0, None);
        self.lost = true;
    }

    fn messages(
        &mut self,
        kind: Kind,
        bytes: &[u8],
        first: At,
        last: At,
        in_frame: bool,
        emit: &mut impl FnMut(&Record<'_>),
    ) -> usize {
        let mut at = 0;
        while let Some(head) = bytes[at..].first_chunk::<4>() {
            let word = u32::from_be_bytes(*head);
            if self.record.is_empty() && !begins(kind, &bytes[at..]) {
                // the length before it was wrong
                self.gap();
                self.is_broken = true;
                return bytes.len();
            }
            let (length, whole) = match kind {
                Kind::Smb2 if head[0] == 0 => ((word & 0x00ff_ffff) as usize, true),
                // a session service message of another type: keep alive, session request
                Kind::Smb2 => ((word & 0x0001_ffff) as usize, false),
                _ => ((word & 0x7fff_ffff) as usize, word >> 31 == 1),
            };
            if length > MESSAGE_MAX {
                self.is_broken = true;
                self.skip = (length + RecordMark::LEN).saturating_sub(bytes.len() - at);
                return bytes.len();
            }
            let Some(body) = bytes.get(at + 4..at + 4 + length) else { break };
            at += 4 + length;
            if kind == Kind::Smb2 {
                if whole && !body.is_empty() {
                    let pieces = self.pieces.several();
                    emit(&Record { first, last, bytes: body, wire_length: length as u32, in_frame, pieces });
                    self.pieces.clear();
                }
                continue;
            }
            if !whole || !self.record.is_empty() {
                if self.record.len() + body.len() > MESSAGE_MAX {
                    self.gap();
                    return bytes.len();
                }
                self.record.extend_from_slice(body);
                if whole {
                    let record = core::mem::take(&mut self.record);
                    let (wire_length, pieces) = (record.len() as u32, self.pieces.several());
                    emit(&Record { first, last, bytes: &record, wire_length, in_frame: false, pieces });
                    self.pieces.clear();
                }
                continue;
            }
            let pieces = self.pieces.several();
            emit(&Record { first, last, bytes: body, wire_length: length as u32, in_frame, pieces });
            self.pieces.clear();
        }
        at
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::op::End;
    use alloc::vec;

    #[test]
    fn the_segments_of_a_message_are_known() {
        let message = |length: usize| [&(length as u32).to_be_bytes()[..], b"\xfeSMB", &vec![7; length - 4]].concat();
        let stream = [message(100), message(64), message(1000)].concat();
        let mut direction = Direction::default();
        let mut said = Vec::new();
        for (i, chunk) in stream.chunks(300).enumerate() {
            direction.take(Kind::Smb2, &piece(i as u64 + 1, chunk), &mut |m| {
                said.push(m.pieces.map(|pieces| pieces.frames().to_vec()))
            });
        }
        assert_eq!(said, [None, None, Some(vec![1, 2, 3, 4])]);
        // a record of RPC, of two fragments in three segments
        let (mut direction, mut said) = (Direction::default(), Vec::new());
        let call = [&[1; 4][..], &[0, 0, 0, 0, 0, 0, 0, 2], &[1; 28]].concat();
        let record = [&40u32.to_be_bytes()[..], &call, &(0x8000_0000u32 | 20).to_be_bytes(), &[2; 20]].concat();
        for (frame, part) in [(5, &record[..44]), (6, &record[44..50]), (7, &record[50..])] {
            direction.take(Kind::Rpc, &piece(frame, part), &mut |m| {
                said.push((m.wire_length, m.pieces.map(|p| p.frames().to_vec())))
            });
        }
        assert_eq!(said, [(60, Some(vec![5, 6, 7]))]);
    }

    #[test]
    fn lengths_that_lead_to_no_message_are_noticed_whatever_the_transaction_is_called() {
        let reply = |xid: u32, extra: u32| {
            let mark = (0x8000_0000 | 28) + extra;
            [&mark.to_be_bytes()[..], &xid.to_be_bytes(), &[0, 0, 0, 1], &[0; 20]].concat()
        };
        // of a small number, the mark behind a wrong one looks like that of a first fragment
        for xid in [0x0012_3456u32, 0x4567_89ab, 0x8000_0010, 0xfedc_ba98] {
            for (extra, is_wrong) in [(0, false), (4, true)] {
                let stream: Vec<u8> = (0..40).flat_map(|_| reply(xid, extra)).collect();
                let (mut direction, mut messages) = (Direction::default(), 0);
                for (i, chunk) in stream.chunks(64).enumerate() {
                    direction.take(Kind::Rpc, &piece(i as u64 + 1, chunk), &mut |_| messages += 1);
                }
                let counted = if is_wrong { messages < 40 } else { messages == 40 };
                assert!(counted, "{messages} messages of {xid:#x}, {extra} too long");
                assert_eq!(direction.was_broken(), is_wrong, "{xid:#x}, {extra} too long");
            }
        }
    }

    fn piece(frame: u64, bytes: &[u8]) -> StreamBytes<'_> {
        StreamBytes { at: At { frame, time: 0 }, by: End::A, bytes, missing: 0, in_frame: true }
    }

    #[test]
    fn messages_come_out_whole_however_they_are_cut() {
        let mut stream = Vec::new();
        for length in [70usize, 64, 1000] {
            stream.extend_from_slice(&(length as u32).to_be_bytes());
            stream.extend_from_slice(b"\xfeSMB");
            stream.resize(stream.len() + length - 4, 7);
        }
        for step in [1, 3, 69, 74, 200, 5000] {
            let mut direction = Direction::default();
            let mut lengths = Vec::new();
            for (i, chunk) in stream.chunks(step).enumerate() {
                direction.take(Kind::Smb2, &piece(i as u64 + 1, chunk), &mut |m| {
                    lengths.push((m.wire_length, m.bytes.starts_with(b"\xfeSMB")))
                });
            }
            assert_eq!(lengths, [(70, true), (64, true), (1000, true)], "cut every {step} bytes");
        }
    }

    #[test]
    fn kinds_are_distinguished() {
        assert_eq!(recognize(b"\0\0\0\x40\xfeSMB@\0"), Kind::Smb2);
        let call = [0x80, 0, 0, 40, 1, 2, 3, 4, 0, 0, 0, 0, 0, 0, 0, 2, 0, 1, 0x86, 0xa3, 0, 0, 0, 4];
        assert_eq!(recognize(&call), Kind::Rpc);
        assert_eq!(recognize(b"GET / HTTP/1.1\r\nHost: x"), Kind::Other);
        assert_eq!(recognize(b"\0\0"), Kind::Undecided);
        assert_eq!(recognize(b"\x85\0\0\0"), Kind::Undecided);
        assert_eq!(recognize(b"\x85\0\0\0\0\0\0\x40\xfeSMB@\0"), Kind::Smb2);
    }

    /// RFC 5531 11: a message may come in fragments, the first of which has no last bit.
    #[test]
    fn fragments_are_recognized_at_the_beginning_and_behind_a_gap() {
        let call = [1, 2, 3, 4, 0, 0, 0, 0, 0, 0, 0, 2, 0, 1, 0x86, 0xa3, 0, 0, 0, 4, 0, 0, 0, 0, 0, 0, 0, 0];
        let first = [&28u32.to_be_bytes()[..], &call].concat();
        assert_eq!(recognize(&first), Kind::Rpc);
        let mut reply = [0; 28];
        (reply[3], reply[7]) = (9, 1);
        let in_two = [&28u32.to_be_bytes()[..], &reply, &0x8000_0004u32.to_be_bytes(), &[5; 4]].concat();
        assert_eq!(recognize(&in_two), Kind::Other, "too little for a guess at the kind of a stream");
        let (mut direction, mut lengths) = (Direction::default(), Vec::new());
        direction.gap();
        direction.take(Kind::Rpc, &piece(1, &[7; 40]), &mut |_| {});
        direction.take(Kind::Rpc, &piece(2, &in_two), &mut |m| lengths.push(m.wire_length));
        assert_eq!(lengths, [32]);
    }

    /// What a capture with a snap length keeps of segments: their first bytes.
    #[test]
    fn messages_that_were_cut_are_known_by_their_beginning() {
        let message = |length: usize| [&(length as u32).to_be_bytes()[..], b"\xfeSMB", &vec![7; length - 4]].concat();
        let cut = |segments: &[Vec<u8>], kept: usize| {
            let (mut direction, mut said) = (Direction::default(), Vec::new());
            for (frame, segment) in (1..).zip(segments) {
                let bytes = &segment[..segment.len().min(kept)];
                let missing = (segment.len() - bytes.len()) as u32;
                let piece = StreamBytes { missing, ..piece(frame, bytes) };
                direction.take(Kind::Smb2, &piece, &mut |m| {
                    said.push((m.first.frame, m.last.frame, m.bytes.len(), m.wire_length, m.in_frame));
                });
            }
            said
        };
        let alone = [message(100), message(200)];
        assert_eq!(cut(&alone, 30), [(1, 1, 26, 100, true), (2, 2, 26, 200, true)]);
        assert_eq!(cut(&alone, 1000), [(1, 1, 100, 100, true), (2, 2, 200, 200, true)]);
        // one message in several segments, one behind it in the last of them, and one that begins a segment
        let stream = [message(250), message(46)].concat();
        let mut long: Vec<Vec<u8>> = stream.chunks(100).map(<[u8]>::to_vec).collect();
        long.push(message(60));
        assert_eq!(cut(&long, 30), [(1, 3, 26, 250, false), (5, 5, 26, 60, true)], "the second one is in the hole");
        assert_eq!(cut(&long, 80), [(1, 3, 76, 250, false), (3, 4, 22, 46, false), (5, 5, 60, 60, true)]);
        // nothing of a message is known whose length was cut off, nor of what follows
        assert_eq!(cut(&[message(100), message(100)], 4), []);
        assert_eq!(
            cut(&[[message(40), message(40)].concat(), message(60)], 46),
            [(1, 1, 40, 40, true), (2, 2, 42, 60, true)]
        );
    }

    #[test]
    fn a_gap_is_survived() {
        let mut direction = Direction::default();
        let mut seen = 0;
        let message = [&[0, 0, 0, 64][..], b"\xfeSMB", &[0; 60]].concat();
        direction.take(Kind::Smb2, &piece(1, &message[..30]), &mut |_| seen += 1);
        direction.gap();
        direction.take(Kind::Smb2, &piece(2, &message[40..]), &mut |_| seen += 1);
        direction.take(Kind::Smb2, &piece(3, &message), &mut |_| seen += 1);
        assert_eq!(seen, 1);
    }
}
