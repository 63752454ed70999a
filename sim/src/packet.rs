//! Packets on the link: a frame, and its meaning to the endpoints.

use crate::frame::Cm;
use crate::memory::Memory;
use crate::{nfs, smb};
use std::rc::Rc;

/// A packet in transit.
#[derive(Clone, Debug)]
pub struct Packet {
    /// Number, counted from 1 over both directions; a copy has the number of its original.
    pub id: u64,
    /// Number of the end that sent it.
    pub from: usize,
    /// The bytes on the wire.
    pub frame: Vec<u8>,
    /// Its meaning.
    pub body: Body,
    /// True if a bit of it is wrong: its receiver drops it, or gets its bytes and has to see that.
    pub damaged: bool,
}

/// Meaning of a packet to its receiver.
#[derive(Clone, Debug)]
pub enum Body {
    /// Connection management.
    Cm(Cm),
    /// A packet of a reliable connection.
    Rc(Rc_),
    /// A TCP segment.
    Tcp(Segment),
    /// What its bytes mean.
    Bytes,
}

/// A packet of a reliable connection. Sequence numbers have 64 bits here; only the low 24 bits are on the wire.
#[derive(Clone, Debug)]
pub struct Rc_ {
    /// Its sequence number.
    pub psn: u64,
    /// Kind of packet.
    pub what: RcWhat,
    /// True if an acknowledgment is requested.
    pub ack: bool,
}

/// Kinds of packets.
#[derive(Clone, Debug)]
pub enum RcWhat {
    /// A part of a Send or Write.
    Part {
        /// The whole operation.
        op: Rc<Op>,
        /// True for the first part.
        first: bool,
        /// True for the last part.
        last: bool,
    },
    /// An RDMA Read, or the rest of one.
    Read {
        /// The whole operation.
        op: Rc<Op>,
        /// Its number.
        id: u64,
        /// Sequence numbers of its answer.
        packets: u64,
        /// The data at the responder: the simulator's shortcut past its memory.
        data: Rc<[u8]>,
        /// Bytes of it that arrived before.
        offset: usize,
    },
    /// A part of the answer.
    Response {
        /// The read's number.
        id: u64,
        /// Bytes.
        length: u32,
    },
    /// Acknowledges all packets up to this one.
    Ack,
    /// This one is missing.
    Nak,
    /// The responder is not ready: retry after this number of ns.
    NotReady(i64),
    /// This one is refused, with the code of its NAK.
    Refused(u8),
}

/// A message of the layer above.
#[derive(Clone, Debug)]
pub enum Message {
    /// Of SMB Direct.
    Smb(smb::Message),
    /// Of RPC-over-RDMA.
    Rpc(nfs::Message),
}

impl Message {
    /// Its bytes on the wire.
    pub fn bytes(&self) -> &[u8] {
        match self {
            Self::Smb(message) => &message.bytes,
            Self::Rpc(message) => &message.bytes,
        }
    }
}

/// An operation that an end requests of its transport.
#[derive(Clone, Debug)]
pub enum Op {
    /// A message.
    Send {
        /// The message.
        message: Rc<Message>,
        /// The key that it invalidates.
        invalidate: Option<u32>,
    },
    /// An RDMA Write into memory of the peer.
    Write {
        /// Memory of the peer.
        memory: Memory,
        /// The data.
        data: Rc<[u8]>,
        /// Reason for which the peer will refuse it, if it will.
        wrong: Option<Refusal>,
    },
    /// An RDMA Read from memory of the peer.
    Read {
        /// Number that is returned when it is done.
        id: u64,
        /// Memory of the peer.
        memory: Memory,
        /// The data at the peer: the simulator's shortcut.
        data: Rc<[u8]>,
        /// Reason for which the peer will refuse it, if it will.
        wrong: Option<Refusal>,
    },
}

/// Reason for which an operation is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// No memory has this key.
    Key,
    /// The access is beyond the end of the memory.
    Bounds,
    /// The memory does not allow this kind of access.
    Rights,
}

impl Refusal {
    /// Error code in a Terminate, RFC 5040 4.8 and RFC 5041 7.2.
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
            Self::Send { message, .. } => message.bytes().len(),
            Self::Write { data, .. } | Self::Read { data, .. } => data.len(),
        }
    }
}

/// A TCP segment. Positions are counted from the SYN, which is 0.
#[derive(Clone, Debug, Default)]
pub struct Segment {
    /// Position of its first byte.
    pub seq: u64,
    /// Position after its last byte.
    pub end: u64,
    /// Position up to which the sender of this has received everything.
    pub ack: u64,
    /// True if `ack` is valid.
    pub has_ack: bool,
    /// True for the first segment of the connection.
    pub syn: bool,
    /// True for the last segment of the direction.
    pub fin: bool,
    /// True if the connection is reset.
    pub rst: bool,
    /// Further ranges that the sender of this has received (SACK).
    pub sack: Vec<(u64, u64)>,
    /// The items that are complete at each position.
    pub marks: Rc<[(u64, Mark)]>,
}

/// Item that is complete at a position in a byte stream.
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
        /// The requested bytes.
        data: Rc<[u8]>,
        /// Memory for the answer.
        sink: Memory,
        /// The key of the memory that is read.
        key: u32,
    },
    /// The whole answer to the read of this number.
    Response(u64),
    /// An RDMA Write to the memory of this key.
    Written(u32),
    /// An item that makes the receiver end the connection with a Terminate: layer and type, and code.
    Bad(u8, u8),
    /// A Terminate.
    Terminate,
}

/// An event that a transport reports to its user.
#[derive(Clone, Debug)]
pub enum Event {
    /// The connection is established: operations can be posted.
    Connected,
    /// A message arrived.
    Received(Rc<Message>),
    /// A read of this end is complete.
    ReadDone(u64),
    /// The connection is closed.
    Closed,
}
