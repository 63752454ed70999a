//! The listener of an analysis: called as it goes.

use crate::exchange::Exchange;
use crate::finding::Finding;
use crate::op::{At, RdmaOp};
use crate::pieces::Assembly;

/// Listener of an analysis as it goes; all methods do nothing by default.
///
/// The analysis knows it as `dyn Sink`: it is called a few times a frame at most, and the code that follows connections
/// would be compiled anew for each kind of listener otherwise.
pub trait Sink: 'static {
    /// An exchange is complete, or will not be.
    fn exchange(&mut self, _exchange: &Exchange) {}
    /// An SMB2 reply, from its header to the next one's of a compound, as far as it was captured; the exchange is
    /// reported later.
    fn reply(&mut self, _exchange: u64, _message: &[u8]) {}
    /// An SMB2 request, from its header to the next one's of a compound, as far as it was captured; the exchange is
    /// reported later.
    fn request(&mut self, _exchange: u64, _message: &[u8]) {}
    /// A message was put together in `frame` from pieces in `frames`.
    fn assembled(&mut self, _what: Assembly, _frame: u64, _frames: &[u64]) {}
    /// The credits that an end holds changed. `None` if unknown. Order: end A, end B.
    fn credits(&mut self, _connection: u32, _at: At, _held: [Option<i64>; 2]) {}
    /// The credits of the layer above that the client can still spend changed: SMB2's, or RPC-over-RDMA's.
    fn upper_credits(&mut self, _connection: u32, _at: At, _held: Option<i64>) {}
    /// An operation on a connection (reported packet by packet).
    fn op(&mut self, _connection: u32, _op: &RdmaOp<'_>) {}
    /// Payload of an exchange: bytes of the file at `offset`, in pieces as they come.
    fn payload(&mut self, _exchange: &Exchange, _offset: u64, _bytes: &[u8]) {}
    /// A connection, by the number it is followed under, was added up with others and is not kept any more.
    fn forgotten(&mut self, _connection: u32) {}
    /// A rule was found broken in a way that was not seen before: its first occurrence. Later ones are counted in the
    /// report.
    fn finding(&mut self, _finding: &Finding) {}
}

/// A listener to one part of a capture, while others listen to its other parts, each of connections of its own. Joined,
/// they have the same result as one that heard it all.
pub trait Parts: Sink + Sized {
    /// One that listens to another part, and has heard nothing yet.
    fn part(&self) -> Self;
    /// Takes in the state of another one. Returns true if both together are the same as one that heard all of it; if a
    /// limit was reached, they are not.
    fn join(&mut self, part: Self) -> bool;
    /// Hands out the number of each exchange that it keeps: exchanges heard in parts were not numbered as in the whole.
    fn exchange_numbers(&mut self, each: &mut dyn FnMut(&mut u64));
}

impl Parts for Quiet {
    fn part(&self) -> Self {
        Quiet
    }

    fn join(&mut self, _part: Self) -> bool {
        true
    }

    fn exchange_numbers(&mut self, _each: &mut dyn FnMut(&mut u64)) {}
}

/// Listens to nothing.
#[derive(Clone, Copy, Debug, Default)]
pub struct Quiet;

impl Sink for Quiet {}
