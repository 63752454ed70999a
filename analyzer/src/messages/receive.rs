//! Packets of Sends to whole messages. One buffer a direction, reused; a Send in one packet is not copied.

use crate::op::{At, Part, RdmaOp};
use crate::pieces::Pieces;
use alloc::vec::Vec;

/// Bytes of one Send put together at most; a longer one keeps its length and loses its tail.
pub const SEND_MAX: usize = 1 << 24;

/// A whole Send.
#[derive(Clone, Copy, Debug)]
pub struct WholeSend<'a> {
    /// The frame of its first packet.
    pub first: At,
    /// The frame of its last packet.
    pub last: At,
    /// Its bytes, as far as they were captured without a hole.
    pub bytes: &'a [u8],
    /// Its length on the wire.
    pub wire_length: u32,
    /// The remote key it invalidates.
    pub invalidate: Option<u32>,
    /// True if the bytes stand in one frame (and not in a buffer that was put together).
    pub in_frame: bool,
    /// Frames of its packets, if there were several.
    pub pieces: Option<&'a Pieces>,
    /// True if a packet of it may have been damaged: the capture cut it, so that its checksum says nothing.
    pub is_unchecked: bool,
}

/// Effect of a packet of a Send.
#[derive(Clone, Copy, Debug)]
pub enum Received<'a> {
    /// The message goes on.
    More,
    /// The message is whole.
    Whole(WholeSend<'a>),
    /// The end of a message whose beginning was not seen.
    Tail,
}

/// Reassembly of one direction.
#[derive(Clone, Debug, Default)]
pub struct Receive {
    buffer: Vec<u8>,
    first: At,
    wire_length: u32,
    pieces: Pieces,
    /// Set if captured bytes stopped being contiguous.
    cut: bool,
    open: bool,
    is_unchecked: bool,
}

impl Receive {
    /// Forgets an open message: packets of it are missing.
    pub fn reset(&mut self) {
        self.open = false;
        self.buffer.clear();
        // a rare large message should not cost its memory for ever
        if self.buffer.capacity() > 1 << 20 {
            self.buffer.shrink_to(1 << 16);
        }
    }

    /// Bytes of memory that it holds.
    pub fn held(&self) -> usize {
        self.buffer.capacity() + self.pieces.held()
    }

    /// Forgets an open message, and gives back its memory.
    pub fn release(&mut self) {
        self.open = false;
        self.buffer = Vec::new();
        self.pieces.release();
    }

    /// The next packet of a Send, which may have been damaged or not.
    #[inline]
    pub fn packet<'a>(&'a mut self, op: &RdmaOp<'a>, is_unchecked: bool) -> Received<'a> {
        if op.part == Part::Only {
            self.open = false;
            return Received::Whole(WholeSend {
                first: op.at,
                last: op.at,
                bytes: op.bytes,
                wire_length: op.length,
                invalidate: op.invalidate,
                in_frame: op.in_frame,
                pieces: None,
                is_unchecked,
            });
        }
        if op.part == Part::First {
            self.reset();
            self.open = true;
            self.first = op.at;
            self.wire_length = 0;
            self.pieces.clear();
            self.cut = false;
            self.is_unchecked = false;
        }
        if !self.open {
            return if op.part.ends() { Received::Tail } else { Received::More };
        }
        self.pieces.add(op.at.frame);
        self.is_unchecked |= is_unchecked;
        self.wire_length = self.wire_length.saturating_add(op.length);
        if !self.cut {
            let room = SEND_MAX.saturating_sub(self.buffer.len());
            let kept = op.bytes.len().min(room);
            self.buffer.extend_from_slice(&op.bytes[..kept]);
            self.cut = kept < op.length as usize;
        }
        if !op.part.ends() {
            return Received::More;
        }
        self.open = false;
        Received::Whole(WholeSend {
            first: self.first,
            last: op.at,
            bytes: &self.buffer,
            wire_length: self.wire_length,
            invalidate: op.invalidate,
            in_frame: false,
            pieces: Some(&self.pieces),
            is_unchecked: self.is_unchecked,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::op::{End, Placement, Verb};
    use alloc::vec;

    /// A packet of a Send in a frame, with the bytes of it that were captured.
    fn op(frame: u64, part: Part, length: u32, bytes: &[u8]) -> RdmaOp<'_> {
        RdmaOp {
            at: At { frame, time: frame as i64 },
            by: End::A,
            verb: Verb::Send,
            part,
            placement: Placement::Unknown,
            message_length: None,
            invalidate: part.ends().then_some(7),
            immediate: None,
            solicited: false,
            length,
            bytes,
            in_frame: true,
            read: 0,
        }
    }

    /// The Send that a packet completes: its frames from first to last, bytes and length on the wire.
    fn whole<'a>(receive: &'a mut Receive, packet: &RdmaOp<'a>) -> (u64, u64, &'a [u8], u32) {
        match receive.packet(packet, false) {
            Received::Whole(send) => (send.first.frame, send.last.frame, send.bytes, send.wire_length),
            other => panic!("not whole: {other:?}"),
        }
    }

    #[test]
    fn a_send_of_one_packet_is_not_copied() {
        let mut receive = Receive::default();
        let bytes = vec![5; 64];
        let packet = op(3, Part::Only, 64, &bytes);
        let Received::Whole(send) = receive.packet(&packet, false) else { panic!("not whole") };
        assert_eq!((send.bytes.as_ptr(), send.in_frame, send.invalidate), (bytes.as_ptr(), true, Some(7)));
        assert!(send.pieces.is_none());
        assert_eq!(receive.held(), 0);
    }

    #[test]
    fn packets_are_put_together_and_their_frames_named() {
        let mut receive = Receive::default();
        assert!(matches!(receive.packet(&op(1, Part::First, 3, b"abc"), false), Received::More));
        assert!(matches!(receive.packet(&op(4, Part::Middle, 3, b"def"), false), Received::More));
        let last = op(6, Part::Last, 2, b"gh");
        let Received::Whole(send) = receive.packet(&last, false) else { panic!("not whole") };
        assert_eq!((send.first.frame, send.last.frame, send.bytes, send.wire_length), (1, 6, &b"abcdefgh"[..], 8));
        assert_eq!((send.in_frame, send.invalidate), (false, Some(7)));
        assert_eq!(send.pieces.map(Pieces::frames), Some(&[1, 4, 6][..]));
        // the next Send has nothing of this one
        receive.packet(&op(7, Part::First, 1, b"x"), false);
        assert_eq!(whole(&mut receive, &op(8, Part::Last, 1, b"y")), (7, 8, &b"xy"[..], 2));
    }

    #[test]
    fn one_packet_that_may_be_damaged_leaves_the_send_in_doubt() {
        for doubtful in 0..4 {
            let mut receive = Receive::default();
            for (n, part) in [Part::First, Part::Middle, Part::Last].into_iter().enumerate() {
                if let Received::Whole(send) = receive.packet(&op(n as u64, part, 1, b"a"), n == doubtful) {
                    assert_eq!(send.is_unchecked, doubtful < 3, "{doubtful}");
                }
            }
            receive.packet(&op(4, Part::First, 1, b"a"), false);
            let next = op(5, Part::Last, 1, b"a");
            assert!(
                matches!(receive.packet(&next, false), Received::Whole(send) if !send.is_unchecked),
                "nor the next one"
            );
        }
    }

    /// Bytes behind a hole are not joined to those before it: they would stand at the wrong offset.
    #[test]
    fn bytes_end_where_the_capture_cut_them_and_the_length_goes_on() {
        let mut receive = Receive::default();
        receive.packet(&op(1, Part::First, 4, b"abcd"), false);
        receive.packet(&op(2, Part::Middle, 4, b"ef"), false);
        assert_eq!(whole(&mut receive, &op(3, Part::Last, 4, b"ijkl")), (1, 3, &b"abcdef"[..], 12));
    }

    #[test]
    fn the_end_of_a_send_whose_beginning_is_missing_is_a_tail() {
        let mut receive = Receive::default();
        assert!(matches!(receive.packet(&op(1, Part::Middle, 1, b"a"), false), Received::More));
        assert!(matches!(receive.packet(&op(2, Part::Last, 1, b"b"), false), Received::Tail));
        // packets went missing in the middle of one
        for forget in [Receive::reset, Receive::release] {
            receive.packet(&op(3, Part::First, 1, b"c"), false);
            forget(&mut receive);
            assert!(matches!(receive.packet(&op(4, Part::Last, 1, b"d"), false), Received::Tail));
        }
        // a new one begins before the last was ended
        receive.packet(&op(5, Part::First, 1, b"e"), false);
        receive.packet(&op(6, Part::First, 1, b"f"), false);
        assert_eq!(whole(&mut receive, &op(7, Part::Last, 1, b"g")), (6, 7, &b"fg"[..], 2));
    }

    #[test]
    fn a_send_without_an_end_does_not_grow_for_ever() {
        let mut receive = Receive::default();
        let bytes = vec![0; 1 << 20];
        receive.packet(&op(1, Part::First, 1 << 20, &bytes), false);
        for frame in 2..=40 {
            receive.packet(&op(frame, Part::Middle, 1 << 20, &bytes), false);
        }
        let (_, _, kept, length) = whole(&mut receive, &op(41, Part::Last, u32::MAX, &bytes));
        assert_eq!((kept.len(), length), (SEND_MAX, u32::MAX), "the length saturates");
        receive.reset();
        assert!(receive.held() < 1 << 20, "{}", receive.held());
        receive.release();
        assert_eq!(receive.held(), 0);
    }
}
