//! Common part of both transports.

use crate::frame::Ip;
use crate::packet::{Body, Event, Op, Packet};

/// A time in ns of the simulation.
pub type Time = i64;
/// A microsecond in ns.
pub const MICROSECOND: Time = 1000;
/// A millisecond in ns.
pub const MILLISECOND: Time = 1_000_000;
/// A second in ns.
pub const SECOND: Time = 1_000_000_000;

/// Periods of a state, the last of which may go on.
#[derive(Clone, Debug, Default)]
pub struct Periods {
    ended: Vec<(Time, Time)>,
    since: Option<Time>,
}

impl Periods {
    /// Begins a period, unless one goes on.
    pub fn begin(&mut self, now: Time) {
        self.since.get_or_insert(now);
    }

    /// Ends the period that goes on, if there is one.
    pub fn end(&mut self, now: Time) {
        self.ended.extend(self.since.take().map(|since| (since, now)));
    }

    /// Begin and end of each period that is over.
    pub fn ended(&self) -> &[(Time, Time)] {
        &self.ended
    }

    /// True if a period goes on.
    pub fn is_open(&self) -> bool {
        self.since.is_some()
    }

    /// True if there never was one.
    pub fn is_empty(&self) -> bool {
        self.ended.is_empty() && self.since.is_none()
    }
}

/// A delay of answers to RDMA Reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReadDelay {
    /// Beginning of the period: Reads that arrive from then on are delayed.
    pub from: Time,
    /// End of the period.
    pub to: Time,
    /// Delay, in ns.
    pub by: Time,
}

/// Purpose of a packet, as its sender knows it.
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
    /// Requests a retransmission, or refuses a request.
    Nak,
}

/// A packet that leaves.
#[derive(Debug)]
pub struct Out {
    /// The bytes on the wire.
    pub frame: Vec<u8>,
    /// Its meaning.
    pub body: Body,
    /// Its purpose.
    pub class: Class,
    /// True if it is a retransmission.
    pub again: bool,
}

/// Values that all packets of an end share.
#[derive(Clone, Copy, Debug)]
pub struct Stamp {
    /// The next identification of IP; `None` if all are 0.
    pub id: Option<u16>,
}

impl Stamp {
    /// For the next packet.
    pub fn stamp(&mut self) -> Ip {
        let id = self.id.map_or(0, |id| id);
        self.id = self.id.map(|id| id.wrapping_add(1));
        Ip { id, tos: 2 }
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
    /// Handles timers that are due.
    fn timeout(&mut self, now: Time);
    /// The time at which [`Transport::timeout`] must be called.
    fn poll_timeout(&self) -> Option<Time>;
    /// The next packet, if one may be sent now.
    fn poll_transmit(&mut self, now: Time) -> Option<Out>;
    /// The next event.
    fn poll_event(&mut self) -> Option<Event>;
    /// Ends the connection in order.
    fn close(&mut self, now: Time);
    /// Puts bytes that are not a message on a byte stream; does nothing if the transport has none.
    fn raw(&mut self, _bytes: &[u8], _mark: crate::packet::Mark) {}
    /// Drops the connection.
    fn reset(&mut self) {}
    /// Gives the next message a wrong sequence number; does nothing if messages have none.
    fn skip_message(&mut self) {}
    /// True if it left without disconnecting while it was connected.
    fn left(&self) -> bool;
    /// Stops sending and answering.
    fn freeze(&mut self);
    /// Refuses access to the memory of this key.
    fn refuse(&mut self, key: u32);
    /// Number of messages for which it had no receive.
    fn refused(&self) -> u64 {
        0
    }
    /// Times in which an answer to an RDMA Read was held back.
    fn lagged(&self) -> &[(Time, Time)] {
        &[]
    }
    /// Times in which its window was full, with something to send: nobody else sees that.
    fn full(&self) -> &[(Time, Time)];
    /// True if no posted operation is outstanding.
    fn is_idle(&self) -> bool;
    /// Number of retransmissions because of a timer, and on request of the peer.
    fn recoveries(&self) -> (u64, u64);
    /// True if it failed: the peer did not answer.
    fn failed(&self) -> bool;
}
