//! An end of a conversation, whatever it speaks, and what the assessment may know of it.

use crate::fault::Fault;
use crate::transport::{MICROSECOND, MILLISECOND, Periods, SECOND, Time, Transport};
use std::rc::Rc;

/// Time that a client waits for a reply.
pub const PATIENCE: Time = 20 * SECOND;
/// Minimum processing time of a server.
pub const QUICK: Time = 20 * MICROSECOND;
/// Additional processing time of a slow server.
pub const SLOW: Time = 800 * MILLISECOND;

/// Counters of an end.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Ledger {
    /// Data Transfer messages, or messages of RPC-over-RDMA, sent.
    pub messages: u64,
    /// Credits granted to the peer: with RPC-over-RDMA, by the last reply.
    pub granted: u64,
    /// Calls of RPC-over-RDMA.
    pub calls: u64,
    /// Credits that those asked for.
    pub requested: u32,
    /// Fragments of messages that were sent in several.
    pub fragments: u64,
    /// Messages that were sent in several fragments.
    pub fragmented: u64,
}

/// What an end knows of itself, for the assessment.
#[derive(Clone, Debug, Default)]
pub struct Account {
    /// Its counters.
    pub ledger: Ledger,
    /// Periods without credit, with something to send.
    pub dry: Periods,
    /// True if it had so few credits left that it is unknown from outside whether it waited for more.
    pub low: bool,
    /// True if the end broke a rule with a message for which it had no credit but its last.
    pub overran: bool,
    /// The period in which it stopped in the middle of a message.
    pub stopped: Option<(Time, Time)>,
    /// Time of the fault.
    pub failed_at: Option<Time>,
    /// True if requests could be made.
    pub session: bool,
    /// True if it refused a message with an error of RPC-over-RDMA.
    pub refused: bool,
}

/// Data that a request moves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Transfer {
    /// From the server.
    Read,
    /// To the server.
    Write,
}

/// State of a request, as the client knows it.
#[derive(Clone, Debug)]
pub struct Request {
    /// MessageId of SMB2, or transaction id of RPC.
    pub id: u64,
    /// Its command, as reports name it.
    pub command: &'static str,
    /// The data that it moves.
    pub transfer: Option<Transfer>,
    /// Bytes to read or write.
    pub length: u32,
    /// True if RDMA moves them alone.
    pub rdma: bool,
    /// Time at which the client passed it to the layer below.
    pub posted: Time,
    /// Time at which its reply arrived.
    pub done: Option<Time>,
    /// Bytes that were moved, by the server.
    pub moved: u64,
    /// The moved bytes.
    pub data: Option<Rc<[u8]>>,
    /// Time that the server worked on it.
    pub work: Time,
    /// Time at which it arrived at the server.
    pub arrived: Option<Time>,
    /// Time at which its reply was handed to the layer below.
    pub replied: Option<Time>,
}

/// An end.
pub trait End {
    /// Its transport.
    fn transport(&self) -> &dyn Transport;
    /// Its transport, to be changed.
    fn transport_mut(&mut self) -> &mut dyn Transport;
    /// The time at which [`End::turn`] must be called.
    fn poll_timeout(&self) -> Option<Time>;
    /// Does everything that is due by now. The client's results are stored in `requests`.
    fn turn(&mut self, now: Time, requests: &mut Vec<Request>);
    /// Breaks this rule at the request of that number, counted from 0.
    fn breaks(&mut self, fault: &'static Fault, at: u64);
    /// What it knows of itself.
    fn account(&self) -> Account;
}
