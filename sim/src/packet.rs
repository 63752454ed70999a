//! What goes over the link: a frame, and beside it what it means to the endpoints.

use crate::frame::Cm;
use crate::smb::{Memory, Message};
use std::rc::Rc;

/// A packet on its way.
#[derive(Clone, Debug)]
pub struct Packet {
    /// Counted from 1 over both directions; a copy has the number of what it copies.
    pub id: u64,
    /// Who sent it.
    pub from: usize,
    /// As it stands on the wire.
    pub frame: Vec<u8>,
    /// What it means.
    pub body: Body,
    /// A bit of it is wrong: its receiver throws it away.
    pub damaged: bool,
}

/// What a packet means to its receiver.
#[derive(Clone, Debug)]
pub enum Body {
    /// Connection management.
    Cm(Cm),
    /// A packet of a reliable connection.
    Rc(Rc_),
    /// A TCP segment.
    Tcp(Segment),
}

/// A packet of a reliable connection. Sequence numbers are counted on without end; on the wire stand their last 24 bits.
#[derive(Clone, Debug)]
pub struct Rc_ {
    /// Its sequence number.
    pub psn: u64,
    /// What it is.
    pub what: RcWhat,
    /// An acknowledgment is asked for.
    pub ack: bool,
}

/// Kinds of them.
#[derive(Clone, Debug)]
pub enum RcWhat {
    /// A part of a Send or Write.
    Part {
        /// All of it.
        op: Rc<Op>,
        /// The first of it.
        first: bool,
        /// The last of it.
        last: bool,
    },
    /// An RDMA Read, or the rest of one.
    Read {
        /// All of it.
        op: Rc<Op>,
        /// Its number.
        id: u64,
        /// Sequence numbers of its answer.
        packets: u64,
        /// What is there: the simulator's shortcut past the memory of the responder.
        data: Rc<[u8]>,
        /// Bytes of it that came already.
        offset: usize,
    },
    /// A part of the answer.
    Response {
        /// The read's number.
        id: u64,
        /// Bytes.
        length: u32,
    },
    /// All up to here came.
    Ack,
    /// This one is missing.
    Nak,
    /// Not ready: again after so many ns.
    NotReady(i64),
    /// This one is refused, with the code of its NAK.
    Refused(u8),
}

/// What an end asks its transport for.
#[derive(Clone, Debug)]
pub enum Op {
    /// A message.
    Send {
        /// What it is.
        message: Rc<Message>,
        /// The key that it invalidates.
        invalidate: Option<u32>,
    },
    /// Bytes into memory of the peer.
    Write {
        /// Where.
        memory: Memory,
        /// What.
        data: Rc<[u8]>,
        /// Why the peer will refuse it.
        wrong: Option<Wrong>,
    },
    /// Bytes from memory of the peer.
    Read {
        /// Given back when it is done.
        id: u64,
        /// Where.
        memory: Memory,
        /// What is there: the simulator's shortcut.
        data: Rc<[u8]>,
        /// Why the peer will refuse it.
        wrong: Option<Wrong>,
    },
}

/// Why an operation is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wrong {
    /// There is no memory of that key.
    Key,
    /// It ends before.
    Bounds,
    /// It may not be used that way.
    Rights,
}

impl Wrong {
    /// In a Terminate, RFC 5040 4.8 and RFC 5041 7.2.
    pub fn code(self) -> u8 {
        match self {
            Self::Key => 0,
            Self::Bounds => 1,
            Self::Rights => 2,
        }
    }
}

impl Op {
    /// Bytes that it moves.
    pub fn length(&self) -> usize {
        match self {
            Self::Send { message, .. } => message.bytes.len(),
            Self::Write { data, .. } | Self::Read { data, .. } => data.len(),
        }
    }
}

/// A TCP segment. Positions are counted on from the SYN, which is 0.
#[derive(Clone, Debug, Default)]
pub struct Segment {
    /// Position of its first byte.
    pub seq: u64,
    /// Position behind it.
    pub end: u64,
    /// What the sender of this has, without holes.
    pub ack: u64,
    /// True if `ack` counts.
    pub has_ack: bool,
    /// The connection's first.
    pub syn: bool,
    /// The direction's last.
    pub fin: bool,
    /// The connection is dropped.
    pub rst: bool,
    /// Ranges that the sender of this has besides.
    pub sack: Vec<(u64, u64)>,
    /// What is complete at which position.
    pub marks: Rc<[(u64, Mark)]>,
}

/// What a position in a stream of bytes completes.
#[derive(Clone, Debug)]
pub enum Mark {
    /// The MPA Request or Reply.
    Startup,
    /// A message.
    Send(Rc<Message>),
    /// An RDMA Read Request.
    Read {
        /// Its number.
        id: u64,
        /// Bytes asked for: what is there.
        data: Rc<[u8]>,
        /// Memory that takes the answer.
        sink: Memory,
        /// The key of the memory that is read.
        key: u32,
    },
    /// All of the answer.
    Response(u64),
    /// Memory of this key.
    Written(u32),
    /// What makes the receiver end the connection with a Terminate: layer and type, and code.
    Bad(u8, u8),
    /// A Terminate.
    Terminate,
}

/// What a transport tells its user.
#[derive(Clone, Debug)]
pub enum Event {
    /// Operations can be asked for.
    Connected,
    /// A message came.
    Received(Rc<Message>),
    /// A read of ours is done.
    ReadDone(u64),
    /// It is over.
    Closed,
}
