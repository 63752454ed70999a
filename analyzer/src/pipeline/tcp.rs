//! Segments of TCP to their connection.

use super::Pipeline;
use super::networks::Tag;
use super::table::{Flow, TcpEnd};
use crate::connection::ConnectionState;
use crate::connection::facts::Listener;
use crate::env::Layer;
use crate::flow::iwarp::TcpFlow;
use crate::op::{At, End};
use crate::roles::Source;
use crate::series::{Trouble, Volume};
use crate::sink::Sink;
use crate::summary::{Handshake, Peer, Transport};
use alloc::boxed::Box;
use rdmascope_dissector::frame::{Check, Packet, Segment};
use rdmascope_dissector::trace::Trace;
use rdmascope_dissector::wire::tcp::flags::{ACK, RST, SYN};

impl Pipeline<dyn Sink> {
    pub(super) fn tcp<T: Trace>(
        &mut self,
        at: At,
        wire_len: u32,
        packet: &Packet<'_>,
        segment: &Segment<'_>,
        t: &mut T,
    ) {
        self.env.layer(Layer::Tcp);
        let (from, to) = ((packet.src, segment.src_port), (packet.dst, segment.dst_port));
        let mut network = self.networks.of(packet);
        let mut slot = self.table.by_tcp(from, to, network);
        if let Some(old) = slot
            && let Some(s) = self.table.get(old)
            && let Flow::Tcp(flow) = &s.flow
            && flow.is_reopened_by(tcp_end(&s.connection, from), segment)
        {
            let (tag, end, tags) = (Tag::of(packet), tcp_end(&s.connection, from), s.tags);
            let open = [tags[end.index()], tags[end.peer().index()]];
            let is_open = s.connection.closed.is_none();
            // the peer's answer will have the same tag
            match is_open.then(|| self.networks.begin((from.0, to.0), [tag; 2], open)).flatten() {
                Some(other) => network = other,
                // the ports are reused
                None => {
                    self.end_unseen(old, at);
                    self.close(old, at);
                }
            }
            slot = self.table.by_tcp(from, to, network);
        } else if let Some(old) = slot
            && let Some(s) = self.table.get(old)
            && let Flow::Tcp(flow) = &s.flow
            && let end = tcp_end(&s.connection, from)
            && flow.is_far(end, segment)
            && (s.connection.closed.is_some() || flow.is_elsewhere(end, segment))
        {
            self.end_unseen(old, at);
            self.close(old, at);
            slot = None;
        }
        let slot = match slot {
            Some(slot) => slot,
            None => {
                let slot = self.new_tcp(at, from, to, network, segment);
                self.doubt_addresses(slot, packet.header, segment.check);
                slot
            }
        };
        let Some(s) = self.table.used(slot) else { return };
        if s.is_header_damaged(packet.header, segment.check) {
            return t.info(format_args!("IP header checksum wrong: passed over"));
        }
        let end = tcp_end(&s.connection, from);
        if let Some(back) = s.connection.goes_back(at) {
            self.env.set_back(s.connection.id, at, back);
        }
        s.connection.last = at;
        s.connection.captured(end, at);
        s.connection.carried(end, at, packet, &self.pauses);
        s.connection.mirrors.add(self.env.frame.mirror);
        self.env.frame.place = Some((s.connection.id, end));
        self.env.frame.hosts = Some((packet.src, packet.dst));
        let mut volume = Volume::default();
        volume.0[end.index()] = u64::from(wire_len);
        s.connection.throughput.add(at.time, volume);
        if s.tags[end.index()].is_none() {
            s.tags[end.index()] = Some(Tag::of(packet));
        }
        if segment.flags & (SYN | ACK) == SYN | ACK {
            s.connection.opening.tcp_opened.get_or_insert(at);
        }
        let Flow::Tcp(flow) = &mut s.flow else { return };
        s.connection.is_unchecked = match segment.check {
            Check::Good => false,
            Check::Unchecked => true,
            // a segment that is followed all the same may be damaged, too
            Check::Bad => flow.is_doubted(end),
        };
        if segment.flags & RST != 0 {
            let usual = s.connection.network.directions[end.index()].other_ttl(packet.ttl);
            s.connection.strange_ttl = usual.map(|(usual, is_sure)| (packet.ttl.into(), usual, is_sure));
        }
        let mut listener = Listener { connection: &mut s.connection, env: &mut self.env };
        if listener.connection.missed.has_lost() {
            listener.settle(at.time);
        }
        let (copies, was_open) = (listener.connection.health.duplicates, listener.connection.closed.is_none());
        flow.segment(at, end, segment, &self.tcp, t, &mut listener);
        let c = &mut s.connection;
        if c.health.duplicates == copies {
            c.network.segment(at, end, packet.carried.unwrap_or(wire_len), packet, segment);
            if packet.ecn == 3 {
                c.trouble.add(at.time, Trouble::CONGESTION);
                c.health.ecn_marked += 1;
            }
        }
        if c.established().is_none() && c.transport == Some(Transport::Iwarp) && segment.payload_length > 0 {
            // what comes behind the end of its client is no answer any more
            c.opening.spoke_otherwise |= was_open && c.roles.client() == Some(end.peer());
        }
        self.count_memory(at, slot);
    }

    #[cold]
    fn new_tcp(&mut self, at: At, from: TcpEnd, to: TcpEnd, network: u16, segment: &Segment<'_>) -> u32 {
        let handshake = if segment.flags & SYN != 0 { Handshake::Seen } else { Handshake::Inferred };
        // a SYN shows the client; else the lower of the well-known ports is the server's; the flags of a damaged
        // segment say nothing
        let is_damaged = segment.check == Check::Bad && segment.payload_length > 0;
        let flags = if is_damaged { 0 } else { segment.flags };
        let client = match flags & (SYN | ACK) {
            SYN => Some((End::A, Source::Handshake)),
            f if f == SYN | ACK => Some((End::B, Source::Handshake)),
            _ => match (is_service_port(from.1), is_service_port(to.1)) {
                (false, true) => Some((End::A, Source::Port)),
                (true, false) => Some((End::B, Source::Port)),
                _ => None,
            },
        };
        let mut connection = ConnectionState::new(Transport::Tcp, at);
        connection.opening.handshake = handshake;
        connection.peers = [from, to].map(|(address, port)| Peer { address, port, qp: None });
        if handshake != Handshake::Seen {
            connection.missed.late();
        }
        if let Some((client, source)) = client {
            connection.roles.learn(client, source);
        }
        let slot = self.insert(at, connection, Flow::Tcp(Box::new(TcpFlow::new())));
        self.table.add_tcp(from, to, network, slot);
        slot
    }
}

fn tcp_end(connection: &ConnectionState, from: TcpEnd) -> End {
    let first = &connection.peers[0];
    if (first.address, first.port) == from { End::A } else { End::B }
}

/// Ports that a server listens on: SMB, SMB Direct over iWARP, NFS, NFS over RDMA, portmap.
const fn is_service_port(port: u16) -> bool {
    matches!(port, 445 | 5445 | 2049 | 20049 | 111 | 139)
}
