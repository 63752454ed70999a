//! Lookup of requests, for replies that are shown once more without being counted.

use rdmascope_dissector::wire::rpc::Memo;
use rdmascope_dissector::wire::smb2::RequestMemo;

/// Lookup of requests that wait for a reply.
pub trait Known {
    /// The request of SMB2 that a reply answers.
    fn smb2(&mut self, message_id: u64) -> Option<RequestMemo>;
    /// The call that a reply answers.
    fn rpc(&mut self, xid: u32) -> Option<Memo>;
}
