//! What both transports have in common.

use crate::frame::Ip;
use crate::packet::{Body, Event, Op, Packet};

/// A time in ns of the simulation.
pub type Time = i64;
/// In ns.
pub const MICROSECOND: Time = 1000;
/// In ns.
pub const MILLISECOND: Time = 1_000_000;
/// In ns.
pub const SECOND: Time = 1_000_000_000;

/// An end that is late to answer RDMA Reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lag {
    /// Reads that come from then on.
    pub from: Time,
    /// And before that.
    pub to: Time,
    /// By so many ns.
    pub by: Time,
}

/// What a packet is for, as its sender knows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Class {
    /// Sets up or ends the connection.
    Manage,
    /// Part of a request of a reliable connection, or bytes of a stream.
    Data,
    /// Part of the answer to an RDMA Read.
    Response,
    /// Acknowledges only.
    Ack,
    /// Asks for something again, or refuses it.
    Nak,
}

/// A packet that leaves.
#[derive(Debug)]
pub struct Out {
    /// As it stands on the wire.
    pub frame: Vec<u8>,
    /// What it means.
    pub body: Body,
    /// What it is for.
    pub class: Class,
    /// It went before.
    pub again: bool,
}

/// What is the same for all packets of an end.
#[derive(Clone, Copy, Debug)]
pub struct Stamp {
    /// The next identification of IP; `None` where all are 0.
    pub id: Option<u16>,
}

impl Stamp {
    /// For the next packet.
    pub fn stamp(&mut self) -> Ip {
        let id = self.id.map_or(0, |id| id);
        self.id = self.id.map(|id| id.wrapping_add(1));
        Ip { id, ecn: 2 }
    }
}

/// One end of a connection, without a clock.
pub trait Transport {
    /// Begins to connect.
    fn open(&mut self, now: Time);
    /// Asks for an operation.
    fn post(&mut self, now: Time, op: Op);
    /// Takes a packet.
    fn handle(&mut self, now: Time, packet: &Packet);
    /// Time has passed.
    fn timeout(&mut self, now: Time);
    /// When [`Transport::timeout`] is to be called.
    fn poll_timeout(&self) -> Option<Time>;
    /// The next packet, where one may go now.
    fn poll_transmit(&mut self, now: Time) -> Option<Out>;
    /// What happened.
    fn poll_event(&mut self) -> Option<Event>;
    /// Ends the connection in order.
    fn close(&mut self, now: Time);
    /// Puts bytes on a stream that are no message; nothing where there is none.
    fn raw(&mut self, _bytes: &[u8], _mark: crate::packet::Mark) {}
    /// Drops the connection.
    fn reset(&mut self) {}
    /// The next message has a sequence number that is not the next; where it has none, nothing.
    fn skip_message(&mut self) {}
    /// True if it left without a word while it was connected.
    fn left(&self) -> bool;
    /// Falls silent, and answers nothing any more.
    fn freeze(&mut self);
    /// Refuses access to the memory of this key.
    fn refuse(&mut self, key: u32);
    /// How often it had no receive for a message.
    fn refused(&self) -> u64 {
        0
    }
    /// Times in which an answer to an RDMA Read was held back.
    fn lagged(&self) -> &[(Time, Time)] {
        &[]
    }
    /// Operations that are posted and not done.
    fn is_idle(&self) -> bool;
    /// How often something was sent again because of a timer, of a wish of the peer.
    fn recoveries(&self) -> (u64, u64);
    /// True if it failed: the peer did not answer.
    fn failed(&self) -> bool;
}
