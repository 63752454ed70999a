//! The waist. InfiniBand, RoCEv2 and iWARP look different below it and the same above it: everything from SMB Direct
//! and RPC-over-RDMA upwards is written once, against [`RdmaOp`].
//!
//! An operation is reported packet by packet (segment by segment on iWARP), in the order in which the receiver takes
//! it: a packet that came twice is reported once, an early one is held back, a missing one is reported as [`Gap`].

use crate::stored::{stored, stored_enum};

/// A frame of the capture: its number, counted from 1, and its time in ns since the Unix epoch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct At {
    /// Number of the frame, from 1.
    pub frame: u64,
    /// Nanoseconds since the Unix epoch.
    pub time: i64,
}

impl At {
    /// ns since an earlier frame; negative if that is later. Times come from the capture, which may say anything.
    pub const fn since(self, earlier: Self) -> i64 {
        self.time.saturating_sub(earlier.time)
    }
}

/// One of the two ends of a connection, by the order in which they were first seen. Which of them is the client is
/// known later, or never: `Connection::client` says.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum End {
    /// The end that sent the first packet seen.
    A,
    /// The other one.
    B,
}

impl End {
    /// Both sides.
    pub const BOTH: [Self; 2] = [Self::A, Self::B];

    /// The other end.
    pub const fn peer(self) -> Self {
        match self {
            Self::A => Self::B,
            Self::B => Self::A,
        }
    }

    /// 0 or 1, for arrays of two.
    pub const fn index(self) -> usize {
        self as usize
    }
}

/// Kind of operation; names are those of libibverbs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Verb {
    /// A message into the next posted receive.
    Send,
    /// The same, and a remote key of the receiver is invalidated when it has arrived.
    SendInvalidate,
    /// Bytes into the receiver's memory.
    Write,
    /// A request for bytes of the receiver's memory.
    ReadRequest,
    /// The bytes that a request asked for.
    ReadResponse,
    /// Compare and swap, fetch and add, or their answers.
    Atomic,
    /// iWARP: the sender ends the connection and says why.
    Terminate,
}

/// Part of its message that a packet is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Part {
    /// The whole message.
    Only,
    /// The first of several.
    First,
    /// Neither first nor last.
    Middle,
    /// The last of several.
    Last,
}

impl Part {
    /// True if a message begins here.
    pub const fn begins(self) -> bool {
        matches!(self, Self::Only | Self::First)
    }

    /// True if a message ends here.
    pub const fn ends(self) -> bool {
        matches!(self, Self::Only | Self::Last)
    }

    /// The part that is or is not the beginning and the end.
    pub const fn of(begins: bool, ends: bool) -> Self {
        match (begins, ends) {
            (true, true) => Self::Only,
            (true, false) => Self::First,
            (false, true) => Self::Last,
            (false, false) => Self::Middle,
        }
    }
}

/// Place that the bytes of an operation go to, or come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Placement {
    /// The receiver's next posted buffer: offset of these bytes in the message.
    Queue {
        /// In bytes.
        offset: u32,
    },
    /// Registered memory of one of the ends. For a Write it is the receiver's; for a Read Request and its Response it
    /// is that of the end that answers the Read.
    Memory {
        /// InfiniBand R_Key, iWARP STag.
        key: u32,
        /// Virtual address or tagged offset of the first of these bytes.
        address: u64,
    },
    /// Not known: the packet that says it was not captured.
    Unknown,
}

/// One packet or segment of an RDMA operation.
#[derive(Clone, Copy, Debug)]
pub struct RdmaOp<'a> {
    /// The frame it ended in.
    pub at: At,
    /// Side that sent it.
    pub by: End,
    /// Kind of operation.
    pub verb: Verb,
    /// Part of its message that it is.
    pub part: Part,
    /// Place that the bytes go to or come from.
    pub placement: Placement,
    /// Length of the whole message in bytes, if this part says it (RETH, Read Request).
    pub message_length: Option<u32>,
    /// The remote key that the receiver is to invalidate.
    pub invalidate: Option<u32>,
    /// Immediate data.
    pub immediate: Option<u32>,
    /// True if the receiver is to be woken.
    pub solicited: bool,
    /// Bytes of this part on the wire.
    pub length: u32,
    /// The same bytes, as far as they were captured.
    pub bytes: &'a [u8],
    /// True if the bytes stand in the frame `at` as they are (rather than in a buffer that was put together).
    pub in_frame: bool,
    /// Ties the parts of a Read Response to their request: the request's number on this connection, from 1; 0 unknown.
    pub read: u32,
}

/// Bytes in order of a TCP connection that is not iWARP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StreamBytes<'a> {
    /// The frame in which they became the next ones.
    pub at: At,
    /// Side that sent the bytes.
    pub by: End,
    /// The bytes.
    pub bytes: &'a [u8],
    /// So many bytes behind them will not be seen: cut or lost by the capture.
    pub missing: u32,
    /// True if they stand in the frame `at`.
    pub in_frame: bool,
}

/// Bytes or packets of a stream that will not be seen any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Gap {
    /// Frame and time at which the stream goes on.
    pub at: At,
    /// Side whose packets are missing.
    pub by: End,
    /// Number of packets (RC) or bytes (iWARP).
    pub count: u32,
    /// True if the receiver had them (so the capture lost them), as far as can be known.
    pub receiver_had_them: bool,
    /// True if the receiver said that it did not have them.
    pub is_asked: bool,
}

stored!(At { frame, time });
stored_enum!(End { A, B });
