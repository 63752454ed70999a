//! Who listens to an analysis as it goes.

use crate::exchange::Exchange;
use crate::finding::Finding;
use crate::op::{At, RdmaOp};

/// What listens to an analysis as it goes; all methods do nothing by default.
pub trait Sink {
    /// An exchange is complete, or will not be.
    fn exchange(&mut self, _exchange: &Exchange) {}
    /// An SMB2 reply, from its header to the next one's of a compound, as far as it was captured; the exchange is told later.
    fn reply(&mut self, _exchange: u64, _message: &[u8]) {}
    /// An SMB2 request, from its header to the next one's of a compound, as far as it was captured; the exchange is told later.
    fn request(&mut self, _exchange: u64, _message: &[u8]) {}
    /// The credits that an end holds changed. `None` where unknown. Order: end A, end B.
    fn credits(&mut self, _connection: u32, _at: At, _held: [Option<i64>; 2]) {}
    /// The credits of the layer above that the client can still spend changed: SMB2's, or RPC-over-RDMA's.
    fn upper_credits(&mut self, _connection: u32, _at: At, _held: Option<i64>) {}
    /// An operation on a connection (told packet by packet).
    fn op(&mut self, _connection: u32, _op: &RdmaOp<'_>) {}
    /// Payload of an exchange: bytes of the file at `offset`; told in pieces, as they come.
    fn payload(&mut self, _exchange: &Exchange, _offset: u64, _bytes: &[u8]) {}
    /// A connection, by the number it is followed under, was added up with others and is not kept any more.
    fn forgotten(&mut self, _connection: u32) {}
    /// A rule was found broken in a way that was not seen before: its first occurrence. Later ones are counted in the report.
    fn finding(&mut self, _finding: &Finding) {}
}

/// Listens to nothing.
#[derive(Clone, Copy, Debug, Default)]
pub struct Quiet;

impl Sink for Quiet {}
