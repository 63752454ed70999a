//! Packets that were not delivered, as ICMP reports them to their sender (RFC 792, RFC 4443), and why.

use crate::op::At;
use rdmascope_dissector::frame::{Addr, Reason, Unreachable};
use rdmascope_dissector::wire::ip::{TCP, UDP};
use rdmascope_dissector::wire::udp::ROCE_V2;

/// A report of ICMP: its frame, the host that reports and the one that it tells, and the datagram.
pub(crate) type Undelivered = (At, [Addr; 2], Unreachable);

/// True if ICMP tells `from` of a packet of RoCE version 2 to this queue pair of `to`. A quote that is too short to name
/// one, or was blanked (RoCE has no queue pair 0), is of the sender's UDP ports. Probes (traceroute) go to the same port,
/// but to no queue pair, and from others.
pub(crate) fn is_of_roce(
    (_, [_, told], undelivered): &Undelivered,
    [from, to]: [Addr; 2],
    queue_pair: Option<u32>,
    is_sent_from: impl Fn(u16) -> bool,
) -> bool {
    let Unreachable { protocol, ports, .. } = *undelivered;
    let quoted = undelivered.queue_pair.filter(|qp| *qp != 0);
    let is_its = || quoted.map_or_else(|| is_sent_from(ports[0]), |qp| queue_pair == Some(qp));
    is_between(*told, undelivered, [from, to]) && protocol == UDP && ports[1] == ROCE_V2 && is_its()
}

/// True if ICMP tells `from` of a segment of TCP to `to`, by their ports.
pub(crate) fn is_of_tcp((_, [_, told], undelivered): &Undelivered, hosts: [Addr; 2], ports: [u16; 2]) -> bool {
    is_between(*told, undelivered, hosts) && undelivered.protocol == TCP && undelivered.ports == ports
}

fn is_between(told: Addr, undelivered: &Unreachable, [from, to]: [Addr; 2]) -> bool {
    told == from && undelivered.to == to
}

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
