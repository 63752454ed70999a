//! Packets that were not delivered, as ICMP reports them to their sender (RFC 792, RFC 4443), and why.

use crate::op::At;
use rdmascope_dissector::frame::{Addr, Reason, Unreachable};

/// A report of ICMP: its frame, the host that reports and the one that it tells, and the datagram.
pub(crate) type Undelivered = (At, [Addr; 2], Unreachable);

/// Cause of packets that were not delivered for a reason; `is_host` if their destination says so itself.
pub(crate) fn why_undelivered(reason: Reason, is_host: bool) -> &'static str {
    match reason {
        Reason::NoPort | Reason::NoProtocol if is_host => {
            "The host is there, and nothing on it takes the packets: it has no RDMA device at that address (any more), or \
                its own firewall rejects them"
        }
        Reason::TooLarge(_) => {
            "A link on the way takes smaller packets only: all hosts, switches and tunnels need one MTU"
        }
        Reason::Expired => "Routers send the packets in a circle, or their time to live is set too low",
        Reason::NoHost => "The host is down or off its network: its last router does not find it",
        Reason::NoRoute => "A router has no way to the network of the host",
        Reason::Prohibited => "A firewall or a router on the way rejects the packets",
        Reason::NoPort | Reason::NoProtocol | Reason::Other => {
            "A firewall or a router rejects it, or the host has no RDMA device at that address"
        }
    }
}
