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

    /// The next packet of a Send.
    #[inline]
    pub fn packet<'a>(&'a mut self, op: &RdmaOp<'a>) -> Received<'a> {
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
            });
        }
        if op.part == Part::First {
            self.reset();
            self.open = true;
            self.first = op.at;
            self.wire_length = 0;
            self.pieces.clear();
            self.cut = false;
        }
        if !self.open {
            return if op.part.ends() { Received::Tail } else { Received::More };
        }
        self.pieces.add(op.at.frame);
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
        })
    }
}
