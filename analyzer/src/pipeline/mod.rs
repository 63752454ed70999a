//! Frames in, findings and a report out: the way of a frame to its connection. The connection itself is in
//! [`crate::connection`].
//!
//! It is generic over the observer of decoding: with [`Off`](rdmascope_dissector::trace::Off) it only analyzes; with a
//! `Tree` the very same run fills the detail tree of each frame, upper layers included.
//!
//! ```text
//!   frame ─▶ Packet ─▶ IB: (source, destination, destination QP) ─▶ IbFlow  ─▶ Connection
//!                  └─▶ TCP: (addresses, ports)                  ─▶ TcpFlow ─▶ Connection
//! ```
//!
//! The table of connections (`table`), the two directions of queue pairs (`pairing`), the messages of connection
//! management (`cm`), IP fragments (`datagrams`) and the numbers of the report (`numbering`) are files of their own;
//! each knows nothing of the others' insides. What a frame changes in them is in `ib`, `tcp` and `management`; that
//! queue pairs are in use again is decided in `reuse`. A connection ends in `closing`, all of them give up memory in
//! `memory`, and become a report in `reporting`.
//!
//! Several of these can share the connections of one capture, each on a thread of its own: `route` chooses one for each
//! frame, `shards` joins their results, and `numbers` gives their connections and exchanges the numbers of the whole as
//! frames come.

mod closing;
mod cm;
mod damaged;
mod datagrams;
mod ib;
mod management;
mod memory;
mod networks;
mod numbering;
mod numbers;
mod pairing;
mod reporting;
mod reuse;
mod route;
mod shards;
mod table;
mod tcp;

use crate::connection::ConnectionState;
use crate::env::{Env, Layer, Options};
use crate::finding::{Blame, Certainty, Findings, Rule, Site};
use crate::notes::FirstPass;
use crate::op::{At, End};
use crate::pieces::Assembly;
use crate::report::undelivered::Undelivered;
use crate::sink::{Quiet, Sink};
use crate::totals::Totals;
use crate::{pauses, report, rpcbind};
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;
use cm::Requests;
use core::fmt;
use damaged::Damaged;
use datagrams::{Datagrams, Whole};
use networks::Networks;
use numbering::Joined;
pub use numbers::{Counts, Growing, Numbers};
use pairing::Halves;
use rdmascope_dissector::frame::{self, Addr, Body, LinkType, Packet};
use rdmascope_dissector::trace::Trace;
pub use route::{Route, Router};
use shards::Shard;
pub use shards::{Standing, finish_all, finish_endless};
use table::{Flow, Table};

/// Known facts about a frame besides its bytes.
#[derive(Clone, Copy, Debug)]
pub struct FrameMeta {
    /// Counted from 1 over all inputs.
    pub number: u64,
    /// ns since the Unix epoch.
    pub time_ns: i64,
    /// Link type of the bytes.
    pub link_type: LinkType,
    /// Its length on the wire, in bytes.
    pub wire_len: u32,
    /// Number of the interface of the capture that it came from.
    pub interface: u32,
}

impl FrameMeta {
    /// The frame as analysis refers to it.
    pub fn at(&self) -> At {
        At { frame: self.number, time: self.time_ns }
    }
}

/// Facts about one frame in few bytes, for an index of a capture.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FrameFacts {
    /// Highest layer that was understood.
    pub layer: Layer,
    /// Its connection, by the number that the analysis uses ([`report::Connection::followed_as`]), and the sender.
    pub place: Option<(u32, End)>,
    /// The exchange that it belongs to; 0 for none, or not known yet.
    pub exchange: u64,
    /// True if it went out before.
    pub retransmission: bool,
}

/// ICMP messages about datagrams that could not be delivered, remembered at most.
const UNREACHABLE_MAX: usize = 1024;

/// The analysis of one capture.
#[derive(Clone, Debug)]
pub struct Pipeline<S: ?Sized = Quiet> {
    decode: frame::Options,
    tcp: crate::flow::iwarp::Options,
    table: Table,
    next_id: u32,
    halves: Halves,
    networks: Networks,
    requests: Requests,
    damaged: Damaged,
    /// Datagrams that could not be delivered, and the sender that the ICMP error went to.
    unreachable: Vec<Undelivered>,
    datagrams: Datagrams,
    /// Rpcbind over UDP.
    rpcbind: crate::rpcbind::Datagrams,
    joined: Joined,
    done: Vec<report::Connection>,
    done_dropped: u64,
    folded: Totals,
    capture: report::Capture,
    /// Pauses that may hold up the packets to come.
    pauses: pauses::Recent,
    layers: [u64; Layer::ALL.len()],
    connections_evicted: u64,
    /// Times that the unfinished messages of a connection were forgotten for want of memory.
    messages_forgotten: u64,
    /// If this analysis is one of several that share the connections of a capture: facts about it that the others need
    /// in the end.
    shard: Option<Shard>,
    env: Env<S>,
}

impl Pipeline<Quiet> {
    /// An analysis that only makes a report.
    pub fn new(options: Options) -> Self {
        Self::with_sink(options, Quiet)
    }
}

impl Default for Pipeline<Quiet> {
    fn default() -> Self {
        Self::new(Options::default())
    }
}

impl<S: Sink> Pipeline<S> {
    /// What an earlier pass over the same capture found: requests then name the frame that answers them, and frames the
    /// findings that only the end of the capture shows.
    pub fn knows(&mut self, first_pass: Arc<FirstPass>) {
        self.env.frame.first_pass = Some(first_pass);
    }

    /// An analysis that reports to `sink` as it goes.
    pub fn with_sink(options: Options, sink: S) -> Self {
        let decode = frame::Options { check_crc: options.check_crc, ..frame::Options::default() };
        let tcp = crate::flow::iwarp::Options { check_crc: options.check_crc, ..Default::default() };
        Self {
            decode,
            tcp,
            table: Table::default(),
            next_id: 1,
            halves: Halves::default(),
            networks: Networks::default(),
            requests: Requests::default(),
            damaged: Damaged::default(),
            unreachable: Vec::new(),
            datagrams: Datagrams::default(),
            rpcbind: crate::rpcbind::Datagrams::default(),
            joined: Joined::default(),
            done: Vec::new(),
            done_dropped: 0,
            folded: Totals::default(),
            capture: report::Capture::default(),
            pauses: pauses::Recent::default(),
            layers: [0; Layer::ALL.len()],
            connections_evicted: 0,
            messages_forgotten: 0,
            shard: None,
            env: Env::new(options, sink),
        }
    }

    /// The analysis as its own parts know it: whoever listens.
    fn inner(&mut self) -> &mut Pipeline<dyn Sink> {
        self
    }

    /// The same, to look at.
    fn shown(&self) -> &Pipeline<dyn Sink> {
        self
    }

    /// The listener.
    pub fn sink(&mut self) -> &mut S {
        &mut self.env.sink
    }

    /// The same, to look at.
    pub fn listener(&self) -> &S {
        &self.env.sink
    }

    /// Findings so far.
    pub fn findings(&self) -> &Findings {
        &self.env.findings
    }

    /// Facts about the last frame.
    pub fn facts(&self) -> FrameFacts {
        FrameFacts {
            layer: self.env.frame.layer(),
            place: self.env.frame.place,
            exchange: self.env.frame.exchanges().last().map_or(0, |e| e.exchange),
            retransmission: self.env.frame.retransmission,
        }
    }

    /// Earlier frames that turned out with the last one to belong to its connection, by number, with their senders: the
    /// frames of a handshake before the answer that makes the connection.
    pub fn earlier(&self) -> &[(u64, End)] {
        &self.env.frame.earlier
    }

    /// A known bug that the last frame shows, by a condition of the caller's: for those of [`crate::rules::give`].
    pub fn known_bug(
        &mut self,
        meta: &FrameMeta,
        rule: Rule,
        by: Blame,
        certainty: Certainty,
        text: fmt::Arguments<'_>,
    ) {
        let env: &mut Env = &mut self.env;
        let connection = env.frame.place.map(|(connection, _)| connection);
        let site = Site { connection, frame: meta.number, time_ns: meta.time_ns };
        env.report_later(rule.row().severity, rule, by, site, certainty, text);
    }

    /// Sets the speed of an interface of the capture, in bits a second. The duration of the quanta of a pause follows
    /// from it.
    pub fn link_speed(&mut self, interface: u32, bits: u64) {
        self.capture.paused.link(interface, bits);
        self.pauses.link(interface, bits);
    }

    /// Sets the numbers of the next connection and the next exchange, if they are not 0. For callers that feed only a
    /// part of a capture again and want the numbers of the whole.
    pub fn number_from(&mut self, connection: u32, exchange: u64) {
        if connection > 0 {
            self.next_id = connection;
        }
        if exchange > 0 {
            self.env.next_exchange = exchange;
        }
    }

    /// Options to decode frames with before they are handed to [`Pipeline::packet`].
    pub fn decode_options(&self) -> frame::Options {
        self.decode
    }

    /// One frame, from its bytes.
    pub fn frame<T: Trace>(&mut self, meta: &FrameMeta, bytes: &[u8], t: &mut T) {
        let mut packet = Packet::default();
        frame::decode_into(meta.link_type, bytes, meta.wire_len, &self.decode, &mut packet, t);
        self.packet(meta, &packet, t);
    }

    /// One frame that was decoded already.
    pub fn packet<T: Trace>(&mut self, meta: &FrameMeta, packet: &Packet<'_>, t: &mut T) {
        self.inner().take(meta, packet, t);
    }

    /// A pause frame that another analysis has, of those that share a capture: it may stop connections of this one too.
    pub fn paused(&mut self, meta: &FrameMeta, pause: &frame::Pause) {
        self.pauses.add(meta.at(), meta.interface, pause);
    }
}

impl Pipeline<dyn Sink> {
    fn take<T: Trace>(&mut self, meta: &FrameMeta, packet: &Packet<'_>, t: &mut T) {
        let at = meta.at();
        self.env.frame.begin(T::ON.then_some(meta.number));
        self.env.now = at.frame;
        self.capture.frames += 1;
        self.capture.bytes += u64::from(meta.wire_len);
        self.capture.first.get_or_insert(at);
        self.capture.last = Some(at);
        if packet.cut > 0 {
            self.cut(at, packet);
        }
        if let Some(tunnel) = &packet.tunnel {
            self.capture.tunnelled += 1;
            self.env.frame.mirror = self.capture.mirrors.count(tunnel, at.frame);
        }
        self.body(meta, packet, t);
        if T::ON {
            self.env.frame.trace(packet.tunnel.as_ref(), t);
        }
        self.layers[self.env.frame.layer() as usize] += 1;
        if let Some(shard) = &mut self.shard {
            shard.after(at.frame, self.env.next_exchange, self.env.lost_by_capture);
        }
    }

    #[inline(always)]
    fn body<T: Trace>(&mut self, meta: &FrameMeta, packet: &Packet<'_>, t: &mut T) {
        if matches!(packet.src, Addr::V4(_) | Addr::V6(_)) {
            self.capture.classes[usize::from(packet.priority.unwrap_or(packet.dscp >> 3) & 7)] += 1;
        }
        match &packet.body {
            Body::Ib(ib) if ib.behind.is_empty() => self.ib(meta.at(), meta.wire_len, packet, ib, t),
            _ => self.other(meta, packet, t),
        }
    }

    /// All but a single packet of InfiniBand or RoCE.
    fn other<T: Trace>(&mut self, meta: &FrameMeta, packet: &Packet<'_>, t: &mut T) {
        let at = meta.at();
        match &packet.body {
            Body::Ib(ib) => self.joined_packets(meta, packet, ib, t),
            Body::Tcp(segment) => self.tcp(at, meta.wire_len, packet, segment, t),
            Body::Fragment(fragment) => self.fragment(meta, packet, fragment, t),
            Body::Udp(from, to, payload) => {
                self.env.layer(Layer::Udp);
                if *from == rpcbind::PORT || *to == rpcbind::PORT {
                    self.rpcbind.take(at, packet.src, packet.dst, payload);
                }
            }
            Body::Pause(pause) => {
                self.env.layer(Layer::Pause);
                self.capture.pauses += 1;
                self.capture.paused.add(at, meta.interface, pause);
                self.pauses.add(at, meta.interface, pause);
                if pause.quanta > 0 {
                    let quanta = pause.quanta;
                    let stopped = |n: &u8| pause.priorities >> n & 1 != 0 && pause.times[usize::from(*n)] > 0;
                    let classes: Vec<u8> = (0..8).filter(stopped).collect();
                    let what =
                        if pause.whole_link { String::from("the whole link") } else { crate::audit::classes(&classes) };
                    let site = Site { connection: None, frame: at.frame, time_ns: at.time };
                    self.env.report(
                        Rule::RcPfc,
                        Blame::Network,
                        site,
                        Certainty::Certain,
                        format_args!(
                            "the device {} asked to pause {what} for {quanta} quanta",
                            Addr::Mac(pause.source)
                        ),
                    );
                }
            }
            Body::Unreachable(unreachable) => {
                if self.unreachable.len() < UNREACHABLE_MAX {
                    self.unreachable.push((at, [packet.src, packet.dst], *unreachable));
                }
            }
            Body::Other(name) => {
                if *name == "ARP" {
                    self.env.layer(Layer::Arp);
                }
                if !meta.link_type.is_known() {
                    self.capture.unknown_link.get_or_insert((meta.link_type.0, 0)).1 += 1;
                }
            }
        }
    }

    #[cold]
    fn cut(&mut self, at: At, packet: &Packet<'_>) {
        self.capture.cut += 1;
        if matches!(packet.body, Body::Ib(_) | Body::Tcp(_)) {
            let site = Site { connection: None, frame: at.frame, time_ns: at.time };
            let cut = packet.cut;
            let how = if packet.tunnel.is_some_and(|tunnel| tunnel.truncated) {
                "cut off by the mirror"
            } else {
                "not captured"
            };
            self.env.report(
                Rule::CaptureCut,
                Blame::Capture,
                site,
                Certainty::Certain,
                format_args!("{cut} bytes of a packet were {how}"),
            );
        }
    }

    #[cold]
    fn fragment<T: Trace>(
        &mut self,
        meta: &FrameMeta,
        packet: &Packet<'_>,
        fragment: &frame::IpFragment<'_>,
        t: &mut T,
    ) {
        let whole = match &mut self.shard {
            // the router put it together
            Some(shard) => shard.datagram.take(),
            None => self.datagrams.take(meta.number, packet.src, packet.dst, fragment).map(
                |Whole { bytes, length, pieces }| {
                    let what = if matches!(packet.src, frame::Addr::V4(_)) { Assembly::Ipv4 } else { Assembly::Ipv6 };
                    self.env.sink.assembled(what, meta.number, pieces.frames());
                    if T::ON {
                        what.show(&pieces, length, t);
                    }
                    bytes
                },
            ),
        };
        let Some(bytes) = whole else { return };
        if T::ON {
            t.source("Reassembled IP datagram", frame::ip_payload(&bytes));
        }
        let inner = frame::decode_ip(&bytes, &self.decode, t);
        if !matches!(inner.body, Body::Fragment(_)) {
            self.body(meta, &inner, t);
        }
        if T::ON {
            t.end_source();
        }
    }

    /// Follows a connection from now on; if there are too many, the one that is idle longest ends.
    fn insert(&mut self, at: At, mut connection: ConnectionState, flow: Flow) -> u32 {
        if self.table.len() >= self.env.options.connections_max.max(2)
            && let Some(idlest) = self.table.idlest()
        {
            self.connections_evicted += 1;
            self.close(idlest, at);
        }
        connection.id = self.next_id;
        self.next_id = self.next_id.wrapping_add(self.shard.as_ref().map_or(1, Shard::step));
        self.table.insert(self.env.now, connection, flow)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rdmascope_dissector::frame::{Carrier, Check, IbPacket, Segment};
    use rdmascope_dissector::trace::Off;
    use rdmascope_dissector::wire::ib::bth::{Bth, Opcode};
    use rdmascope_dissector::wire::ib::cm as messages;
    use rdmascope_dissector::wire::ib::ext::Extensions;
    use rdmascope_dissector::wire::tcp::flags;

    const SECOND: i64 = 1_000_000_000;

    fn host(n: u8) -> Addr {
        Addr::V4([192, 0, 2, n])
    }

    /// A Send from the first host to a queue pair of the second.
    fn send(qp: u32, psn: u32) -> Packet<'static> {
        let ib = IbPacket {
            carrier: Carrier::RoceV2 { src_port: 0xc000 },
            bth: Bth::new(Opcode::RC_SEND_ONLY, qp, psn),
            ext: Extensions::default(),
            payload: b"data",
            payload_length: 4,
            ip_id: 0,
            icrc: Check::Unchecked,
            behind: &[],
        };
        Packet { src: host(1), dst: host(2), body: Body::Ib(ib), ..Packet::default() }
    }

    /// A datagram of connection management with both ids.
    fn management(
        (from, to): (u8, u8),
        attribute: messages::Attribute,
        (local, remote): (u32, u32),
        icrc: Check,
    ) -> Packet<'static> {
        let ids = [local.to_be_bytes(), remote.to_be_bytes()].concat();
        let payload: &'static [u8] = messages::datagram(attribute, 7, &ids).leak();
        let Body::Ib(ib) = send(1, 0).body else { unreachable!() };
        let bth = Bth::new(Opcode::UD_SEND_ONLY, 1, 0);
        let ib = IbPacket { bth, payload, payload_length: payload.len() as u32, icrc, ..ib };
        Packet { src: host(from), dst: host(to), body: Body::Ib(ib), ..Packet::default() }
    }

    /// The handshake of two hosts, of which the REQ, the REP or the RTU is damaged.
    fn handshake(damaged: Option<usize>) -> Vec<Packet<'static>> {
        use messages::Attribute;
        let sent = [
            ((1, 2), Attribute::CONNECT_REQUEST, (70, 0)),
            ((2, 1), Attribute::CONNECT_REPLY, (80, 70)),
            ((1, 2), Attribute::READY_TO_USE, (70, 80)),
        ];
        let check = |n: usize| if damaged == Some(n) { Check::Bad } else { Check::Good };
        sent.into_iter()
            .enumerate()
            .map(|(n, (hosts, attribute, ids))| management(hosts, attribute, ids, check(n)))
            .collect()
    }

    /// The values of a REQ whose CRC is wrong are not those that its server got.
    #[test]
    fn a_connection_rests_on_an_undamaged_handshake() {
        let connections = |damaged: Option<usize>| {
            let mut pipeline = Pipeline::default();
            feed(&mut pipeline, &handshake(damaged));
            pipeline.finish().0.connections.len()
        };
        assert_eq!([connections(None), connections(Some(0)), connections(Some(2))], [1, 0, 1]);
    }

    /// A datagram that was answered had come undamaged.
    #[test]
    fn a_damaged_datagram_that_was_answered_is_damaged_in_the_capture_alone() {
        let found = |packets: &[Packet<'_>]| {
            let mut pipeline = Pipeline::default();
            feed(&mut pipeline, packets);
            let report = pipeline.finish().0;
            report.findings.iter().filter(|f| f.rule == Rule::RcIcrc).map(|f| (f.by, f.certainty)).collect::<Vec<_>>()
        };
        let first = management((2, 1), messages::Attribute::CONNECT_REJECT, (0, 69), Check::Good);
        let whole = handshake(None);
        let bad = handshake(Some(1));
        assert_eq!(found(&[bad[0], first, bad[1], bad[2]]), [(Blame::Capture, Certainty::Certain)]);
        assert_eq!(found(&[bad[0], first, bad[1], whole[1], whole[2]]), [(Blame::Network, Certainty::Certain)]);
        assert_eq!(found(&[bad[0], first, bad[1]]), [(Blame::Network, Certainty::Guess)]);
        // all CRCs of the server are wrong
        assert_eq!(found(&bad), []);
    }

    /// A frame whose IP header is damaged is of another host, or has another length: it opens nothing, and is not
    /// followed.
    #[test]
    fn a_frame_with_a_damaged_ip_header_is_not_followed() {
        let segment = |from: u8, flags: u8, header: Check, check: Check| {
            let segment = Segment { src_port: 900, dst_port: 445, seq: 7, flags, check, ..Segment::default() };
            Packet { src: host(from), dst: host(2), body: Body::Tcp(segment), header, ..Packet::default() }
        };
        let connections = |packets: &[Packet<'_>]| {
            let mut pipeline = Pipeline::default();
            feed(&mut pipeline, packets);
            (pipeline.facts().place.is_some(), pipeline.finish().0.connections.len())
        };
        let good = segment(1, flags::SYN, Check::Good, Check::Good);
        let bad = |from: u8| segment(from, flags::ACK, Check::Bad, Check::Bad);
        assert_eq!(connections(&[good, bad(9)]), (true, 1), "its address is nobody's");
        assert_eq!(connections(&[good, bad(1)]), (false, 1));
        // headers that are rewritten on the way
        assert_eq!(connections(&[bad(9), bad(9), bad(9)]), (true, 1));
        assert_eq!(connections(&[good, segment(1, flags::ACK, Check::Bad, Check::Good)]), (true, 1));
    }

    /// Counts requests and findings.
    #[derive(Default)]
    struct Calls(usize, usize);

    impl Sink for Calls {
        fn exchange(&mut self, _: &crate::exchange::Exchange) {
            self.0 += 1;
        }

        fn finding(&mut self, _: &crate::finding::Finding) {
            self.1 += 1;
        }
    }

    /// Feeds packets, 1 s apart, as frames from 1 on.
    fn feed<S: Sink>(pipeline: &mut Pipeline<S>, packets: &[Packet<'_>]) {
        for packet in packets {
            let number = pipeline.capture().frames + 1;
            let time_ns = number as i64 * SECOND;
            let meta = FrameMeta { number, time_ns, link_type: LinkType::ETHERNET, wire_len: 100, interface: 0 };
            pipeline.packet(&meta, packet, &mut Off);
        }
    }

    #[test]
    fn a_frame_without_a_connection_is_counted() {
        let mut pipeline = Pipeline::default();
        feed(&mut pipeline, &[Packet::default()]);
        assert_eq!(pipeline.facts().place, None);
        let (report, _) = pipeline.finish();
        assert_eq!((report.capture.frames, report.capture.bytes, report.connections.len()), (1, 100, 0));
    }

    #[test]
    fn each_queue_pair_is_followed_under_its_own_number() {
        let mut pipeline = Pipeline::default();
        let mut places = Vec::new();
        for (qp, psn) in [(0x11, 1), (0x12, 1), (0x11, 2)] {
            feed(&mut pipeline, &[send(qp, psn)]);
            places.push(pipeline.facts().place.map(|(connection, _)| connection));
        }
        assert_eq!(places, [Some(1), Some(2), Some(1)]);
        assert_eq!(pipeline.finish().0.connections.len(), 2);
    }

    /// Ends that crashed may use their queue pairs again, without a word of connection management in the capture.
    #[test]
    fn a_message_that_opens_a_connection_far_from_the_packets_before_it_opens_another() {
        // the Negotiate Request of SMB Direct
        const NEGOTIATE: &[u8] = &[0, 1, 0, 1, 0, 0, 10, 0, 0, 4, 0, 0, 0, 32, 0, 0, 0, 0, 16, 0];
        let place = |payload: &'static [u8], psn: u32| {
            let mut pipeline = Pipeline::default();
            let Body::Ib(ib) = send(0x11, psn).body else { unreachable!() };
            let ib = IbPacket { payload, payload_length: payload.len() as u32, ..ib };
            feed(&mut pipeline, &[send(0x11, 1), Packet { body: Body::Ib(ib), ..send(0x11, psn) }]);
            pipeline.facts().place.map(|(connection, _)| connection)
        };
        assert_eq!(
            [place(NEGOTIATE, 2), place(b"data", 100_000), place(NEGOTIATE, 100_000)],
            [Some(1), Some(1), Some(2)]
        );
    }

    /// If tables are full, the connection that was idle longest goes, not an arbitrary one.
    #[test]
    fn a_full_table_drops_the_connection_that_was_idle_longest() {
        let mut pipeline = Pipeline::new(Options { connections_max: 2, ..Options::default() });
        feed(&mut pipeline, &[send(0x11, 1), send(0x12, 1), send(0x11, 2), send(0x13, 1)]);
        assert_eq!(pipeline.capture().dropped, [("connections", 1)]);
        // the first one is still followed: its next packet makes no new connection, but one to the second does
        feed(&mut pipeline, &[send(0x11, 3)]);
        assert_eq!(pipeline.facts().place.map(|(connection, _)| connection), Some(1));
        feed(&mut pipeline, &[send(0x12, 2)]);
        assert_eq!(pipeline.facts().place.map(|(connection, _)| connection), Some(4));
    }

    #[test]
    fn an_idle_connection_expires_and_stays_in_the_report() {
        let mut pipeline = Pipeline::default();
        feed(&mut pipeline, &[send(0x11, 1)]);
        pipeline.expire(30 * SECOND, SECOND, 60 * SECOND);
        assert_eq!(pipeline.capture().dropped, []);
        pipeline.expire(90 * SECOND, SECOND, 60 * SECOND);
        assert_eq!(pipeline.capture().dropped, [("connections", 1)]);
        assert_eq!(pipeline.finish().0.connections.len(), 1);
    }

    #[test]
    fn a_sink_hears_a_finding_once() {
        let pause = frame::Pause {
            source: [2; 6],
            priorities: 8,
            quanta: 100,
            times: [0, 0, 0, 100, 0, 0, 0, 0],
            whole_link: false,
        };
        let packet = Packet { body: Body::Pause(pause), ..Packet::default() };
        let mut pipeline = Pipeline::with_sink(Options::default(), Calls::default());
        feed(&mut pipeline, &[packet, packet]);
        let (report, heard) = pipeline.finish();
        assert_eq!((report.capture.pauses, heard.1), (2, 1));
    }

    /// One direction of a TCP connection, with a segment missing: bytes behind the hole are analysed at the end.
    #[test]
    fn tcp_flows_are_finished_at_the_end_of_a_one_sided_capture() {
        // a record of NFS over TCP: its mark, and a NULL call
        let call = |xid: u32| {
            let words = [0x8000_0028, xid, 0, 2, 100_003, 3, 0, 0, 0, 0, 0];
            words.iter().flat_map(|word: &u32| word.to_be_bytes()).collect::<Vec<u8>>()
        };
        let segment = |seq: u32, payload: &'static [u8]| {
            let segment = Segment {
                src_port: 900,
                dst_port: 2049,
                seq,
                payload,
                payload_length: payload.len() as u32,
                ..Segment::default()
            };
            Packet { src: host(1), dst: host(2), body: Body::Tcp(segment), ..Packet::default() }
        };
        let bytes: &'static [u8] = [call(1), call(2), call(3), call(4)].concat().leak();
        let at = |n: usize| segment(1000 + 44 * n as u32, &bytes[n * 44..][..44]);
        let mut pipeline = Pipeline::with_sink(Options::default(), Calls::default());
        feed(&mut pipeline, &[at(0), at(1), at(3)]);
        // the third is missing, and the fourth waits for it
        assert_eq!(pipeline.facts().exchange, 0);
        assert_eq!(pipeline.finish().1.0, 3);
    }
}
