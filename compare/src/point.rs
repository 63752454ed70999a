//! One capture: its packets, its requests, and the findings of its analysis.

use crate::packets::{Flow, Outside, Seen, TCP, ib_packet, tcp_segment};
use rdmascope_analyzer::episodes::time::Owner;
use rdmascope_analyzer::exchange::Exchange;
use rdmascope_analyzer::finding::{Blame, Certainty, Rule};
use rdmascope_analyzer::report::{Connection, Report, Sink};
use rdmascope_dissector::fault::Check;
use rdmascope_dissector::field::{Def, id_of};
use rdmascope_dissector::frame::{Addr, Body, Packet};
use rdmascope_dissector::trace::{Trace, Value};
use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, HashMap, HashSet};

/// Limit of packets of one capture that are compared.
pub const PACKETS_MAX: usize = 1 << 23;

/// A request at one point. Times in ns.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SeenRequest {
    pub(crate) frame: u64,
    pub(crate) id: u64,
    pub(crate) command: &'static str,
    /// Time from its first frame to the last one of its reply.
    pub(crate) latency: i64,
    /// The parts of it that the client and the server own.
    pub(crate) own: [i64; 2],
}

/// What findings have in common: the rule, the side, and the connection.
pub(crate) type Key = (Rule, &'static str, Option<u32>);

/// A connection of one capture.
#[derive(Clone, Debug)]
pub(crate) struct Followed {
    pub(crate) id: u32,
    /// From the client and back, as far as they are known.
    pub(crate) flows: [Option<Flow>; 2],
    /// Times of its first and its last frame.
    pub(crate) span: (i64, i64),
}

/// Findings of one rule about one side of a connection.
#[derive(Clone, Debug)]
pub(crate) struct Found {
    pub(crate) certainty: Certainty,
    /// All its frames; empty if they are more than a finding keeps.
    pub(crate) frames: Vec<u64>,
    /// Address of the side.
    pub(crate) address: Option<Addr>,
}

/// Observer for values that only fields give.
#[derive(Clone, Copy, Debug, Default)]
pub struct Hop {
    ttl: u8,
    priority: u8,
    id: u16,
    sent: u32,
}

impl Trace for Hop {
    const ON: bool = true;

    fn field(&mut self, def: Def, _: &[u8], _: usize, value: Value<'_>) {
        const TTL: u32 = id_of("ip.ttl");
        const HOPS: u32 = id_of("ipv6.hlim");
        const PRIORITY: u32 = id_of("vlan.priority");
        const ID: u32 = id_of("ip.id");
        const SENT: u32 = id_of("tcp.options.timestamp.tsval");
        if let Value::U(n) = value {
            match def.id {
                TTL | HOPS => self.ttl = n as u8,
                PRIORITY => self.priority = n as u8,
                ID => self.id = n as u16,
                SENT => self.sent = n as u32,
                _ => {}
            }
        }
    }

    fn open(&mut self, _: Def, _: &[u8]) {}

    fn close(&mut self, _: &[u8]) {}
}

/// The packets and requests of one capture.
#[derive(Debug, Default)]
pub struct Point {
    pub(crate) packets: Vec<Seen>,
    pub(crate) exchanges: Vec<SeenRequest>,
    pub(crate) findings: BTreeMap<Key, Found>,
    /// Connections: number, directions, and times of the first and the last frame.
    pub(crate) connections: Vec<Followed>,
    pub(crate) span: Option<(i64, i64)>,
    /// True if the capture cut packets.
    pub(crate) is_cut: bool,
    /// True if the capture shows, or says itself, that it missed packets.
    pub(crate) has_gaps: bool,
    /// For the packets to a queue pair, those to its peer.
    pub(crate) reverse: HashMap<Flow, Flow>,
    /// Addresses of clients, and of servers.
    pub(crate) roles: [HashSet<Addr>; 2],
    /// Number of packets beyond [`PACKETS_MAX`].
    pub left_out: u64,
}

impl Sink for Point {
    fn exchange(&mut self, exchange: &Exchange) {
        if let (Some(latency), true) = (exchange.latency(), self.exchanges.len() < PACKETS_MAX) {
            self.exchanges.push(SeenRequest {
                frame: exchange.request.frame,
                id: exchange.message_id,
                command: exchange.command,
                latency,
                own: [Owner::Client, Owner::Server].map(|owner| exchange.time.of(owner)),
            });
        }
    }
}

impl Point {
    /// Adds a frame: its decoded packet, observed fields, and the last four captured bytes of an InfiniBand packet.
    pub fn packet(&mut self, frame: u64, time: i64, packet: &Packet<'_>, hop: &Hop, bytes: &[u8]) {
        self.span = Some(self.span.map_or((time, time), |(first, last)| (first.min(time), last.max(time))));
        self.is_cut |= packet.cut > 0;
        match &packet.body {
            Body::Ib(first) => {
                // packets that one point captured before they were segmented are separate ones at the other point
                for ib in std::iter::once(*first).chain(first.joined(packet.cut)) {
                    let one = Seen { is_damaged: ib.icrc == Check::Bad, ..ib_packet(&ib, bytes) };
                    self.seen((frame, time), packet, hop, one, (0, 0));
                }
            }
            Body::Tcp(s) => self.seen((frame, time), packet, hop, tcp_segment(s), (s.src_port, s.dst_port)),
            _ => {}
        }
    }

    fn seen(&mut self, (frame, time): (u64, i64), packet: &Packet<'_>, hop: &Hop, one: Seen, ports: (u16, u16)) {
        if self.packets.len() >= PACKETS_MAX {
            self.left_out += 1;
            return;
        }
        let outside = Outside {
            src: packet.src,
            dst: packet.dst,
            ports,
            dscp: packet.dscp,
            ecn: packet.ecn,
            ttl: hop.ttl,
            vlan: packet.vlan,
            priority: hop.priority,
            tunnel: packet.tunnel,
        };
        self.packets.push(Seen { frame, time, copy: (hop.id, hop.sent), outside, ..one });
    }

    /// Notes that the capture says itself that it dropped so many frames.
    pub fn dropped(&mut self, frames: u64) {
        self.has_gaps |= frames > 0;
    }

    /// Adds the connections and the findings of its analysis.
    pub fn findings(&mut self, report: &Report) {
        for connection in &report.connections {
            let [client, server] = &connection.peers;
            let flows = flows_of(connection);
            if let ([Some(forth), Some(back)], Some(_)) = (flows, client.qp) {
                self.reverse.extend([(forth, back), (back, forth)]);
            }
            let span = (connection.first.time, connection.last.time);
            self.connections.push(Followed { id: connection.id, flows, span });
            if connection.client_known {
                self.roles[0].insert(client.address);
                self.roles[1].insert(server.address);
            }
        }
        self.has_gaps |= report.findings.iter().any(|finding| finding.rule == Rule::CaptureLoss);
        for finding in report.findings.iter() {
            let side = match finding.by {
                Blame::Client => Some(0),
                Blame::Server => Some(1),
                _ => None,
            };
            let connection = finding.connection.and_then(|id| report.connections.iter().find(|c| c.id == id));
            let address = side.zip(connection).map(|(side, c)| c.peers[side].address);
            let frames = if finding.frames.omitted() > 0 { Vec::new() } else { finding.frames.to_vec() };
            match self.findings.entry((finding.rule, finding.by.name(), finding.connection)) {
                Entry::Vacant(place) => _ = place.insert(Found { certainty: finding.certainty, frames, address }),
                Entry::Occupied(mut place) => {
                    let known = place.get_mut();
                    known.certainty = known.certainty.max(finding.certainty);
                    if known.frames.is_empty() || frames.is_empty() {
                        known.frames.clear();
                    } else {
                        known.frames.extend(frames);
                    }
                    if known.address != address {
                        known.address = None;
                    }
                }
            }
        }
    }
}

/// The flows of a connection, from the client and back. One whose queue pair is not known is missing.
fn flows_of(connection: &Connection) -> [Option<Flow>; 2] {
    let [client, server] = &connection.peers;
    let is_tcp = client.qp.is_none() && server.qp.is_none();
    let ways = if is_tcp { [Some(TCP); 2] } else { [server.qp, client.qp].map(|qp| qp.map(u64::from)) };
    let ports = if is_tcp { (client.port, server.port) } else { (0, 0) };
    [
        ways[0].map(|way| (way, client.address, server.address, ports)),
        ways[1].map(|way| (way, server.address, client.address, (ports.1, ports.0))),
    ]
}
