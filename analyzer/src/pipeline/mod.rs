//! Frames in, findings and a report out: the way of a frame to its connection. The connection itself is in
//! [`crate::connection`].
//!
//! It is generic over the observer of decoding: with [`Off`] it only analyzes; with a `Tree` the very same run fills the
//! detail tree of each frame, upper layers included.
//!
//! ```text
//!   frame ─▶ Packet ─▶ IB: (source, destination, destination QP) ─▶ IbFlow  ─▶ Connection
//!                  └─▶ TCP: (addresses, ports)                  ─▶ TcpFlow ─▶ Connection
//! ```
//!
//! The table of connections (`table`), the two directions of queue pairs (`pairing`), connection management (`cm`), IP fragments
//! (`datagrams`) and the numbers of the report (`numbering`) are files of their own; each knows nothing of the others' insides.
//!
//! Several of these can share the connections of one capture, each on a thread of its own: `route` chooses one for each
//! frame, `shards` joins their results, and `numbers` gives their connections and exchanges the numbers of the whole as
//! frames come.

mod cm;
mod datagrams;
mod numbering;
mod numbers;
mod pairing;
mod route;
mod shards;
mod table;

use crate::audit;
use crate::connection::ConnectionState;
use crate::env::{Env, Layer, Options, Session};
use crate::finding::{Blame, Certainty, Findings, Rule, Severity, Site};
use crate::flow::iwarp::TcpFlow;
use crate::flow::report::Listener;
use crate::flow::{self, ib::IbFlow};
use crate::notes::Replies;
use crate::op::{At, End};
use crate::path::{self, Attempt};
use crate::pieces::Assembly;
use crate::report::{self, Report};
use crate::roles::Source;
use crate::rpcbind::{self, Registrations};
use crate::series::{Trouble, Volume};
use crate::sink::{Quiet, Sink};
use crate::summary::{Handshake, Peer, Transport};
use crate::totals::Totals;
use alloc::boxed::Box;
use alloc::string::{String, ToString};
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::fmt;
pub use numbers::{Counts, Growing, Numbers};
pub use route::{Route, Router};
pub use shards::finish_all;

use cm::{Rejected, Request, Requests};
use datagrams::{Datagrams, Whole};
use hashbrown::HashSet;
use numbering::Joined;
use pairing::Halves;
use rdmascope_dissector::fault::FaultKind;
use rdmascope_dissector::frame::{self, Addr, Body, Carrier, Check, IbPacket, LinkType, Packet, Segment};
use rdmascope_dissector::trace::{Off, Trace};
use rdmascope_dissector::wire::ib::bth::{self, Opcode, Service};
use rdmascope_dissector::wire::ib::cm::{self as wire, CmMessage};
use rdmascope_dissector::wire::tcp::flags::{ACK, SYN};
use shards::Shard;
use table::{Flow, Place, QpKey, Table, TcpEnd};

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
/// The largest path MTU, in bytes (IBA volume 1, 9.8.1).
const MTU_MAX: u32 = 4096;
/// The smallest path MTU, in bytes. Datagrams of connection management are as long as it.
const MTU_LEAST: u32 = 256;
/// Packets with a wrong invariant CRC on one connection after which all of them are thought to have it.
const UNFINISHED: u64 = 4;
/// ns by which a capture may have packets in another order than the ends.
const DISORDER: i64 = 1_000_000;
/// Connections that are added up together.
const FOLD: usize = 64;

/// The analysis of one capture.
#[derive(Clone, Debug)]
pub struct Pipeline<S = Quiet> {
    env: Env<S>,
    decode: frame::Options,
    tcp: crate::flow::iwarp::Options,
    table: Table,
    next_id: u32,
    halves: Halves,
    requests: Requests,
    /// Datagrams that could not be delivered, and the sender that the ICMP error went to.
    unreachable: Vec<path::Undelivered>,
    datagrams: Datagrams,
    /// Rpcbind over UDP.
    rpcbind: crate::rpcbind::Datagrams,
    joined: Joined,
    done: Vec<report::Connection>,
    done_dropped: u64,
    folded: Totals,
    capture: report::Capture,
    layers: [u64; Layer::ALL.len()],
    connections_evicted: u64,
    /// Times that the unfinished messages of a connection were forgotten for want of memory.
    messages_forgotten: u64,
    /// If this analysis is one of several that share the connections of a capture: facts about it that the others need
    /// in the end.
    shard: Option<Shard>,
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
    /// Replies found by an earlier pass over the same capture: requests then name the frame that answers them.
    pub fn knows(&mut self, replies: Arc<Replies>) {
        self.env.frame.replies = Some(replies);
    }

    /// An analysis that reports to `sink` as it goes.
    pub fn with_sink(options: Options, sink: S) -> Self {
        let decode = frame::Options { check_crc: options.check_crc, ..frame::Options::default() };
        let tcp = crate::flow::iwarp::Options { check_crc: options.check_crc, ..Default::default() };
        Self {
            env: Env::new(options, sink),
            decode,
            tcp,
            table: Table::default(),
            next_id: 1,
            halves: Halves::default(),
            requests: Requests::default(),
            unreachable: Vec::new(),
            datagrams: Datagrams::default(),
            rpcbind: crate::rpcbind::Datagrams::default(),
            joined: Joined::default(),
            done: Vec::new(),
            done_dropped: 0,
            folded: Totals::default(),
            capture: report::Capture::default(),
            layers: [0; Layer::ALL.len()],
            connections_evicted: 0,
            messages_forgotten: 0,
            shard: None,
        }
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
    pub fn known_bug(&mut self, meta: &FrameMeta, rule: Rule, by: Blame, certainty: Certainty, text: fmt::Arguments<'_>) {
        let connection = self.env.frame.place.map(|(connection, _)| connection);
        let site = Site { connection, frame: meta.number, time_ns: meta.time_ns };
        self.env.report_later(rule.row().severity, rule, by, site, certainty, text);
    }

    /// Sets the speed of an interface of the capture, in bits a second. The duration of the quanta of a pause follows
    /// from it.
    pub fn link_speed(&mut self, interface: u32, bits: u64) {
        self.capture.paused.link(interface, bits);
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

    /// The report as it would be if the capture ended here, but without results that need the end (requests without a
    /// reply). For live views; its cost grows with the number of connections.
    pub fn snapshot(&self) -> Report {
        let open = self.table.iter().map(|slot| slot.connection.summary());
        let mut capture = self.capture.clone();
        capture.lost_by_capture = self.env.lost_by_capture;
        let connections = self.done.iter().cloned().chain(open).collect();
        let mut report = self.assemble(connections, capture, self.env.slowest.clone(), self.env.sessions.clone());
        let attempts: Vec<Attempt> = self.requests.attempts().collect();
        report.paths = path::paths(&report, &attempts, &self.unreachable);
        report
    }

    /// For an analysis without an end: drops connections that were ended `closed_after` ns before `now`, and of those without a frame
    /// for `idle_after` ns. (One that speaks again is found again, as one whose handshake was not seen.)
    pub fn expire(&mut self, now: i64, closed_after: i64, idle_after: i64) {
        let at = self.capture.last.unwrap_or_default();
        for slot in 0..self.table.end() {
            let Some(s) = self.table.get(slot) else { continue };
            let age = now.saturating_sub(s.connection.last.time);
            let is_over = s.connection.closed.is_some() || s.connection.opening.rejected.is_some();
            if age > idle_after {
                self.connections_evicted += u64::from(!is_over);
                self.close(slot, at);
            } else if is_over && age > closed_after {
                self.close(slot, at);
            }
        }
    }

    /// All connections there were, added up. Costs as much as there are connections that are open or in the report.
    pub fn totals(&self) -> Totals {
        let mut totals = self.folded.clone();
        for connection in &self.done {
            totals.add(connection, false);
        }
        for slot in self.table.iter() {
            let is_open = slot.connection.closed.is_none() && slot.connection.opening.rejected.is_none();
            totals.add(&slot.connection.summary(), is_open);
        }
        totals
    }

    /// Frames so far, without the counts by protocol.
    pub fn capture(&self) -> report::Capture {
        report::Capture {
            lost_by_capture: self.env.lost_by_capture,
            undecoded: self.env.undecoded,
            dropped: self.dropped(),
            ..self.capture.clone()
        }
    }

    fn dropped(&self) -> Vec<(&'static str, u64)> {
        let dropped = [
            ("connections", self.connections_evicted),
            ("unfinished messages", self.messages_forgotten),
            ("requests", self.env.requests_dropped),
            ("IP datagrams", self.datagrams.dropped),
            ("findings", self.env.findings.dropped()),
        ];
        dropped.into_iter().filter(|(_, n)| *n > 0).collect()
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

    fn body<T: Trace>(&mut self, meta: &FrameMeta, packet: &Packet<'_>, t: &mut T) {
        let at = meta.at();
        if matches!(packet.src, Addr::V4(_) | Addr::V6(_)) {
            self.capture.classes[usize::from(packet.priority.unwrap_or(packet.dscp >> 3) & 7)] += 1;
        }
        match &packet.body {
            Body::Ib(ib) if ib.behind.is_empty() => self.ib(at, meta.wire_len, packet, ib, t),
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
                if pause.quanta > 0 {
                    let quanta = pause.quanta;
                    let stopped = |n: &u8| pause.priorities >> n & 1 != 0 && pause.times[usize::from(*n)] > 0;
                    let classes: Vec<u8> = (0..8).filter(stopped).collect();
                    let what = if pause.whole_link { String::from("the whole link") } else { crate::audit::classes(&classes) };
                    let site = Site { connection: None, frame: at.frame, time_ns: at.time };
                    self.env.report(
                        Rule::RcPfc,
                        Blame::Network,
                        site,
                        Certainty::Certain,
                        format_args!("the device {} asked to pause {what} for {quanta} quanta", Addr::Mac(pause.source)),
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
            }
        }
    }

    #[cold]
    fn cut(&mut self, at: At, packet: &Packet<'_>) {
        self.capture.cut += 1;
        if matches!(packet.body, Body::Ib(_) | Body::Tcp(_)) {
            let site = Site { connection: None, frame: at.frame, time_ns: at.time };
            let cut = packet.cut;
            let how = if packet.tunnel.is_some_and(|tunnel| tunnel.truncated) { "cut off by the mirror" } else { "not captured" };
            self.env.report(Rule::CaptureCut, Blame::Capture, site, Certainty::Certain, format_args!("{cut} bytes of a packet were {how}"));
        }
    }

    /// The capture is over. Nothing may be fed any more.
    pub fn finish(mut self) -> (Report, S) {
        let at = self.capture.last.unwrap_or_default();
        for slot in self.table.by_age() {
            self.close(slot, at);
        }
        let attempts: Vec<Attempt> = self.requests.attempts().collect();
        for request in self.requests.take_all() {
            self.unanswered_request(at, &request);
        }
        self.report(&attempts)
    }

    fn report(mut self, attempts: &[Attempt]) -> (Report, S) {
        let connections = core::mem::take(&mut self.done);
        let capture = core::mem::take(&mut self.capture);
        let slowest = core::mem::take(&mut self.env.slowest);
        let sessions = core::mem::take(&mut self.env.sessions);
        let mut report = self.assemble(connections, capture, slowest, sessions);
        path::conclude(&mut report, attempts, &self.unreachable);
        audit::conclude(&mut report);
        (report, self.env.sink)
    }

    /// Puts a report together, with numbers that are small and in order.
    fn assemble(
        &self,
        mut connections: Vec<report::Connection>,
        mut capture: report::Capture,
        mut slowest: Vec<crate::exchange::Exchange>,
        sessions: Vec<Session>,
    ) -> Report {
        let numbers = self.joined.number(&mut connections);
        let findings = {
            // findings that open connections report when they end
            let mut open = Findings::default();
            self.table
                .iter()
                .for_each(|slot| flow::report::add_losses(&slot.connection, &slot.flow.loss_view(), &mut |finding| open.add(finding)));
            let mut findings = numbers.findings(self.env.findings.iter().chain(open.iter())).with_losses_of(&self.env.findings);
            if !self.env.weakened.is_empty() {
                let weakened: Vec<u32> = self.env.weakened.iter().filter_map(|id| numbers.of(*id)).collect();
                // they rest on the order of packets
                findings.weaken(|finding| finding.connection.is_some_and(|id| weakened.contains(&id)));
            }
            findings
        };
        capture.lost_by_capture = self.env.lost_by_capture;
        capture.undecoded = self.env.undecoded;
        capture.dissected = Layer::ALL.iter().map(|l| (l.name(), self.layers[*l as usize])).filter(|(_, n)| *n > 0).collect();
        capture.dropped = self.dropped();
        let listed = connections.iter().flat_map(|c| &c.smb.setup.interfaces);
        capture.paused.listed(listed.map(|interface| interface.link_speed));
        for exchange in &mut slowest {
            exchange.connection = numbers.of(exchange.connection).unwrap_or(0);
        }
        let sessions = numbers.sessions(sessions);
        let (connections_dropped, folded) = (self.done_dropped, self.folded.clone());
        let known = connections.iter().filter(|c| !c.nfs.rpcbind.is_empty());
        let known = known.map(|c| Registrations { client: c.peers[0].address, server: c.peers[1].address, rpcbind: c.nfs.rpcbind.clone() });
        let rpcbind = known.chain(self.rpcbind.registrations().iter().cloned()).collect();
        Report { capture, connections, connections_dropped, folded, findings, slowest, sessions, paths: Vec::new(), rpcbind }
    }

    // ── InfiniBand ──────────────────────────────────────────────────────────────────────────────────────────────────

    /// Several packets that a system had not cut yet when they were captured: each as if it had come by itself, as it will to its receiver.
    #[cold]
    fn joined_packets<T: Trace>(&mut self, meta: &FrameMeta, packet: &Packet<'_>, first: &IbPacket<'_>, t: &mut T) {
        let datagram = first.length() as u64 + first.behind.len() as u64 + u64::from(packet.cut);
        let headers = u64::from(packet.carried.unwrap_or(meta.wire_len)).saturating_sub(datagram);
        let alone = IbPacket { behind: &[], ..*first };
        for ib in core::iter::once(alone).chain(first.joined(packet.cut)) {
            let length = u32::try_from(headers + ib.length() as u64).unwrap_or(u32::MAX);
            let carried = packet.carried.map(|_| length);
            self.ib(meta.at(), length, &Packet { body: Body::Ib(ib), carried, ..*packet }, &ib, t);
        }
    }

    /// A packet that is longer than any path MTU and was cut short, or whose ICRC is not that of its whole: several
    /// packets in one, which cannot be separated. Nothing is reported about them.
    #[cold]
    fn inseparable(&mut self, at: At, packet: &Packet<'_>, ib: &IbPacket<'_>) {
        if packet.cut == 0 {
            let site = Site { connection: None, frame: at.frame, time_ns: at.time };
            let length = ib.payload_length;
            let text = format_args!("{length} bytes were captured as one packet, before they were cut into several");
            self.env.report(Rule::CaptureCut, Blame::Capture, site, Certainty::Certain, text);
        }
    }

    fn ib<T: Trace>(&mut self, at: At, wire_len: u32, packet: &Packet<'_>, ib: &IbPacket<'_>, t: &mut T) {
        self.env.layer(Layer::Ib);
        // where its invariant CRC is wrong, a packet was damaged: its sender sent another one
        if packet.fault.is_some() && ib.icrc != Check::Bad {
            self.short(at, packet);
        }
        let row = Opcode(ib.bth.opcode).row();
        let service = row.map(|r| r.service);
        if service == Some(Service::Congestion) {
            self.env.layer(Layer::Cnp);
            return self.congestion(at, packet, ib);
        }
        if service == Some(Service::Ud) || ib.bth.dest_qp <= 1 {
            self.datagram(at, packet, ib, t);
            return;
        }
        let Some(row) = row else { return self.unassigned(at, packet, ib) };
        self.env.layer(Layer::Rdma);
        if ib.payload_length > MTU_MAX && (packet.cut > 0 || ib.icrc == Check::Bad) {
            return self.inseparable(at, packet, ib);
        }
        let key = QpKey { src: packet.src, dst: packet.dst, qp: ib.bth.dest_qp };
        let mut place = match self.table.by_qp(&key) {
            Some(place) => place,
            None => self.new_flow(at, key, packet, ib, row),
        };
        if self.table.get(place.slot).is_some_and(|s| s.half && s.tries < pairing::TRIES_MAX) {
            place = self.try_pair(place, key, ib, row);
        }
        let Some(slot) = self.table.used(place.slot) else { return };
        let connection = &mut slot.connection;
        self.env.frame.place = Some((connection.id, place.end));
        self.env.frame.hosts = Some((packet.src, packet.dst));
        connection.last = at;
        connection.captured(place.end);
        connection.mirrors.add(self.env.frame.mirror);
        let mut volume = Volume::default();
        volume.0[place.end.index()] = u64::from(wire_len);
        connection.throughput.add(at.time, volume);
        connection.network.packet(at, place.end, packet.carried.unwrap_or(wire_len), packet, ib);
        if packet.ecn == 3 {
            connection.health.ecn_marked += 1;
            connection.trouble.add(at.time, Trouble::CONGESTION);
            let site = Site { connection: Some(connection.id), frame: at.frame, time_ns: at.time };
            self.env.report(
                Rule::RcEcn,
                Blame::Network,
                site,
                Certainty::Certain,
                format_args!("a packet was marked congestion experienced"),
            );
        }
        // where all are wrong, the capture has them as they were before the adapter finished them
        self.env.frame.is_unchecked = match ib.icrc {
            Check::Good => false,
            Check::Unchecked => true,
            Check::Bad => connection.health.icrc_bad < UNFINISHED,
        };
        match ib.icrc {
            Check::Good | Check::Unchecked => {}
            Check::Bad => {
                connection.health.icrc_bad += 1;
                connection.icrc_first_bad.get_or_insert(at);
            }
        }
        let Flow::Ib(flow) = &mut slot.flow else { return };
        let mut listener = Listener { connection, env: &mut self.env };
        if listener.connection.missed.has_lost() {
            listener.settle(at.time);
        }
        flow.packet(at, place.end, ib, t, &mut listener);
        self.count_memory(at, place.slot);
    }

    /// Counts the memory of a connection after a packet. If all connections together exceed the limit, the idlest give up theirs.
    #[inline]
    fn count_memory(&mut self, at: At, slot: u32) {
        self.table.count_memory(slot);
        if self.table.held() > self.env.options.memory_max {
            self.relieve(at);
        }
    }

    /// Makes room: unfinished messages and payloads go first, of the connections that were idle longest; then those connections.
    #[cold]
    fn relieve(&mut self, at: At) {
        /// Bytes from which on it is worth it.
        const HEAVY: usize = 16 << 10;
        let enough = self.env.options.memory_max / 4 * 3;
        for slot in self.table.heavy(HEAVY) {
            if let Some(s) = self.table.get_mut(slot) {
                s.connection.count_payloads();
                self.table.count_memory(slot);
            }
        }
        for slot in self.table.heavy(HEAVY) {
            if self.table.held() <= enough {
                return;
            }
            if let Some(s) = self.table.get_mut(slot).filter(|s| s.connection.unfinished() >= HEAVY) {
                s.connection.release(&mut self.env, at, HEAVY);
                self.messages_forgotten += 1;
                self.table.count_memory(slot);
            }
        }
        while self.table.held() > enough && self.table.len() > 1 {
            let Some(idlest) = self.table.idlest() else { return };
            self.connections_evicted += 1;
            self.close(idlest, at);
        }
    }

    /// An opcode that does not exist: of its sender, or of damage.
    #[cold]
    fn unassigned(&mut self, at: At, packet: &Packet<'_>, ib: &IbPacket<'_>) {
        if ib.icrc == Check::Bad {
            let key = QpKey { src: packet.src, dst: packet.dst, qp: ib.bth.dest_qp };
            if let Some(slot) = self.table.find_qp(&key).and_then(|place| self.table.get_mut(place.slot)) {
                slot.connection.health.icrc_bad += 1;
                slot.connection.icrc_first_bad.get_or_insert(at);
            }
            return;
        }
        let site = Site { connection: None, frame: at.frame, time_ns: at.time };
        let text = format_args!("sent an opcode that does not exist: {:#04x}", ib.bth.opcode);
        self.env.report(Rule::BugRxe4c6f86d, Blame::Unknown, site, Certainty::Certain, text);
    }

    /// A packet whose headers, padding and ICRC are longer than it is.
    #[cold]
    fn short(&mut self, at: At, packet: &Packet<'_>) {
        if packet.cut > 0 || packet.fault.is_none_or(|f| f.kind != FaultKind::Length) {
            return;
        }
        let site = Site { connection: None, frame: at.frame, time_ns: at.time };
        self.env.report(
            Rule::BugCve202646043,
            Blame::Unknown,
            site,
            Certainty::Certain,
            format_args!("sent a packet shorter than its padding and ICRC"),
        );
    }

    fn congestion(&mut self, at: At, packet: &Packet<'_>, ib: &IbPacket<'_>) {
        let key = QpKey { src: packet.src, dst: packet.dst, qp: ib.bth.dest_qp };
        let mut site = Site { connection: None, frame: at.frame, time_ns: at.time };
        if let Some((end, slot)) = self.table.find_qp(&key).and_then(|p| Some((p.end, self.table.get_mut(p.slot)?))) {
            slot.connection.health.cnps += 1;
            slot.connection.trouble.add(at.time, Trouble::CNP);
            slot.connection.network.notified(at, end, packet);
            site.connection = Some(slot.connection.id);
        }
        let qp = ib.bth.dest_qp;
        self.env.report(Rule::RcCnp, Blame::Network, site, Certainty::Certain, format_args!("queue pair {qp:#x} was asked to slow down"));
    }

    /// The first packet of a flow.
    #[cold]
    fn new_flow(&mut self, at: At, key: QpKey, packet: &Packet<'_>, ib: &IbPacket<'_>, row: &bth::Row) -> Place {
        if let Some(slot) = self.halves.partner(&self.table, &self.env.options.pins, &key, ib, row, true) {
            self.join_flow(slot, key);
            return Place { slot, end: End::B };
        }
        self.requests.heard(packet.src, packet.dst);
        // a flow that begins at its first message looks no different from one that began long ago; the protocol may know better
        let mut connection = ConnectionState::new(carrier(ib), at);
        connection.peers[0].address = packet.src;
        connection.peers[1] = Peer { address: packet.dst, port: 0, qp: Some(key.qp) };
        let slot = self.insert(at, connection, Flow::Ib(Box::default()));
        let place = Place { slot, end: End::A };
        self.table.add_qp(key, place);
        if let Some(s) = self.table.get_mut(slot) {
            s.half = true;
        }
        self.halves.add(&key, slot);
        place
    }

    /// A flow becomes the other direction of a half connection.
    fn join_flow(&mut self, slot: u32, key: QpKey) {
        self.table.add_qp(key, Place { slot, end: End::B });
        let Some(s) = self.table.get_mut(slot) else { return };
        s.half = false;
        s.connection.peers[0].qp = Some(key.qp);
        if let Some(other) = s.qp_keys[0] {
            if pairing::pinned(&self.env.options.pins, key.qp, other.qp) {
                s.connection.opening.handshake = Handshake::Pinned;
            }
            self.halves.remove(&other, slot);
        }
    }

    /// Checks again if an unpaired flow belongs to another one.
    #[cold]
    fn try_pair(&mut self, place: Place, key: QpKey, ib: &IbPacket<'_>, row: &bth::Row) -> Place {
        if let Some(slot) = self.table.get_mut(place.slot) {
            slot.tries += 1;
        }
        let into = self.halves.partner(&self.table, &self.env.options.pins, &key, ib, row, false);
        let Some(into) = into.filter(|s| *s != place.slot) else { return place };
        let Some(mut gone) = self.table.remove(place.slot) else { return place };
        self.halves.remove(&key, place.slot);
        self.join_flow(into, key);
        if let Some(slot) = self.table.get_mut(into) {
            if let (Flow::Ib(mine), Flow::Ib(theirs)) = (&mut slot.flow, &mut gone.flow) {
                mine.adopt(End::B, theirs, End::A);
            }
            slot.connection.adopt(End::B, &mut gone.connection, End::A);
            self.joined.add(gone.connection.id, slot.connection.id);
        }
        Place { slot: into, end: End::B }
    }

    // ── Connection management ───────────────────────────────────────────────────────────────────────────────────────

    fn datagram<T: Trace>(&mut self, at: At, packet: &Packet<'_>, ib: &IbPacket<'_>, t: &mut T) {
        let length = ib.payload_length;
        let site = Site { connection: None, frame: at.frame, time_ns: at.time };
        if length > MTU_MAX {
            let text = format_args!("sent a datagram of {length} bytes; no path MTU is larger than {MTU_MAX}");
            self.env.report(Rule::BugCve202440992, Blame::Unknown, site, Certainty::Certain, text);
        } else if length > MTU_LEAST
            && ib.icrc != Check::Bad
            && let Some(mtu) = self.requests.path_mtu(packet.src, packet.dst).filter(|mtu| u32::from(*mtu) < length)
        {
            // connections may use less than the path allows
            let text = format_args!("sent a datagram of {length} bytes; the path MTU of the hosts' connections is {mtu}");
            self.env.report(Rule::BugCve202440992, Blame::Unknown, site, Certainty::Guess, text);
        }
        if ib.bth.dest_qp > 1 {
            return;
        }
        let parsed = wire::parse_mad(ib.payload, t);
        if ib.icrc == Check::Bad && self.requests.is_damaged(at, packet.src, packet.dst) {
            return self.damaged_datagram(at);
        }
        let Ok((_, Some(message))) = parsed else { return };
        self.env.layer(Layer::Cm);
        if packet.ecn == 3 {
            let site = Site { connection: None, frame: at.frame, time_ns: at.time };
            let text = format_args!("a datagram of connection management was marked congestion experienced");
            self.env.report(Rule::RcEcn, Blame::Network, site, Certainty::Certain, text);
        }
        match message {
            CmMessage::Request(request) => {
                if let Some(oldest) = self.requests.request(at, (packet.src, packet.dst), carrier(ib), &request) {
                    self.unanswered_request(at, &oldest);
                }
            }
            CmMessage::Reply(reply) => self.cm_reply(at, packet, ib, &reply),
            CmMessage::Reject(reject) => self.cm_reject(at, packet, &reject),
            CmMessage::DisconnectRequest(head) => self.cm_disconnect(at, packet, head.local_comm_id, head.remote_comm_id),
            CmMessage::DisconnectReply(head) => self.cm_disconnected(packet, head.local_comm_id, head.remote_comm_id),
            _ => {}
        }
        self.requests.heard(packet.src, packet.dst);
        match ib.icrc {
            Check::Good => {
                if let Some(damaged) = self.requests.sound(packet.src, packet.dst) {
                    self.damaged_datagram(damaged);
                }
            }
            // a request is known from here on
            Check::Bad => _ = self.requests.is_damaged(at, packet.src, packet.dst),
            Check::Unchecked => {}
        }
        let place = self.requests.place(at.frame, packet.src, packet.dst, message.comm_ids());
        self.env.frame.place = self.env.frame.place.or(place);
    }

    /// A datagram of connection management whose invariant CRC is wrong, where others are right.
    #[cold]
    fn damaged_datagram(&mut self, at: At) {
        let site = Site { connection: None, frame: at.frame, time_ns: at.time };
        let text = format_args!("a datagram of connection management was damaged before the capture point; its receiver dropped it");
        self.env.report(Rule::RcIcrc, Blame::Network, site, Certainty::Certain, text);
    }

    fn cm_reply(&mut self, at: At, packet: &Packet<'_>, ib: &IbPacket<'_>, reply: &wire::ConnectReply<'_>) {
        let rep = &reply.head;
        let Some((request, early)) = self.requests.reply(at, packet.dst, reply) else { return };
        self.env.frame.earlier = early;
        let to_server = QpKey { src: packet.dst, dst: packet.src, qp: rep.local_qpn };
        let to_client = QpKey { src: packet.src, dst: packet.dst, qp: request.qp };
        // the same numbers may have been another connection's; but one that began just now is this one, whose packets the capture has in
        // another order than the ends
        let mut is_misplaced = false;
        for key in [to_server, to_client] {
            if let Some(place) = self.table.find_qp(&key) {
                if let Some(s) = self.table.get(place.slot)
                    && at.since(s.connection.first) <= DISORDER
                {
                    is_misplaced = true;
                    self.env.weaken(s.connection.id);
                }
                self.close(place.slot, at);
            }
        }
        let mut connection = ConnectionState::new(carrier(ib), request.at);
        connection.last = at;
        connection.opening.handshake = Handshake::Seen;
        connection.roles.learn(End::A, Source::Handshake);
        connection.opening.rdma_opened = Some(at);
        connection.peers = [
            Peer { address: packet.dst, port: request.source_port, qp: Some(request.qp) },
            Peer { address: packet.src, port: request.port, qp: Some(rep.local_qpn) },
        ];
        // the requester may have as many outstanding as the other side can answer
        connection.opening.read_depth =
            [Some(u32::from(rep.responder_resources)), Some(u32::from(request.responder_resources))].map(|d| d.filter(|d| *d > 0));
        let mut flow = IbFlow::default();
        connection.rpc_rdma_private([request.rpc_rdma, reply.rpc_rdma]);
        // each side says where the other one is to begin (12.6.5, 12.6.8)
        flow.starts_at(End::A, rep.starting_psn);
        flow.starts_at(End::B, request.psn);
        flow.sound([request.is_sound, ib.icrc == Check::Good]);
        connection.network.path_mtu_asked = request.path_mtu;
        if let Some(mtu) = request.path_mtu {
            flow.path_mtu(mtu.into());
        }
        let slot = self.insert(request.at, connection, Flow::Ib(Box::new(flow)));
        self.table.add_qp(to_server, Place { slot, end: End::A });
        self.table.add_qp(to_client, Place { slot, end: End::B });
        if let Some(s) = self.table.get(slot) {
            self.requests.connected(&request, slot, s.connection.id);
            if is_misplaced {
                self.env.weaken(s.connection.id);
            }
        }
        if self.requests.make_good(&request) {
            let more = format_args!("; one to port {} was accepted after it", request.port);
            self.env.findings.lower(Rule::CmReject, None, Blame::Server, Severity::Note, more);
        }
    }

    fn cm_reject(&mut self, at: At, packet: &Packet<'_>, reject: &wire::ConnectReject<'_>) {
        let reason = reject.reason();
        let rejected = self.requests.reject(at, (packet.src, packet.dst), &reject.head, reason.to_string());
        let Some(Rejected { port, by_server, slot }) = rejected else { return };
        let blame = if by_server { Blame::Server } else { Blame::Client };
        let connection = slot.and_then(|s| self.table.get_mut(s)).map(|s| {
            s.connection.opening.rejected = Some(reason.to_string());
            s.connection.id
        });
        let site = Site { connection, frame: at.frame, time_ns: at.time };
        self.env.report(Rule::CmReject, blame, site, Certainty::Certain, format_args!("RDMA-CM REQ to port {port} was rejected: {reason}"));
        self.env.findings.because(Rule::CmReject, connection, blame, crate::path::why_rejected(reason));
    }

    fn cm_disconnect(&mut self, at: At, packet: &Packet<'_>, local: u32, remote: u32) {
        let Some((slot, by)) = self.requests.disconnect(packet.src, packet.dst, local, remote) else { return };
        let Some(s) = self.table.get_mut(slot) else { return };
        let farewells = &mut s.connection.ends[by.index()].disconnects;
        *farewells = farewells.saturating_add(1);
        if s.connection.closed.is_none() {
            s.connection.closed = Some((Some(by), "DREQ", at));
            s.connection.last = at;
        }
    }

    /// A DREP: the DREQs of its receiver are answered.
    fn cm_disconnected(&mut self, packet: &Packet<'_>, local: u32, remote: u32) {
        let Some((slot, by)) = self.requests.disconnect(packet.src, packet.dst, local, remote) else { return };
        if let Some(s) = self.table.get_mut(slot) {
            s.connection.ends[by.peer().index()].disconnects = 0;
        }
    }

    fn unanswered_request(&mut self, at: At, request: &Request) {
        if !request.timed_out(at) {
            return;
        }
        let site = Site { connection: None, frame: request.at.frame, time_ns: request.at.time };
        let (server, port) = (request.server, request.port);
        // a server of which nothing was captured may have answered all the same: perhaps one direction only was captured
        let certainty = if request.is_surely_unanswered() { Certainty::IfNothingWasMissed } else { Certainty::Guess };
        let text = format_args!("RDMA-CM REQ to {} port {port} was never answered", ShownAddress(server));
        self.env.report(Rule::CmTimeout, Blame::Server, site, certainty, text);
    }

    // ── TCP ─────────────────────────────────────────────────────────────────────────────────────────────────────────

    fn tcp<T: Trace>(&mut self, at: At, wire_len: u32, packet: &Packet<'_>, segment: &Segment<'_>, t: &mut T) {
        self.env.layer(Layer::Tcp);
        let (from, to) = ((packet.src, segment.src_port), (packet.dst, segment.dst_port));
        let mut slot = self.table.by_tcp(from, to);
        if let Some(old) = slot
            && let Some(s) = self.table.get(old)
            && let Flow::Tcp(flow) = &s.flow
            && flow.is_reopened_by(tcp_end(&s.connection, from), segment)
        {
            // the ports are reused
            self.close(old, at);
            slot = None;
        }
        let slot = match slot {
            Some(slot) => slot,
            None => self.new_tcp(at, from, to, segment),
        };
        let Some(s) = self.table.used(slot) else { return };
        let end = tcp_end(&s.connection, from);
        s.connection.last = at;
        s.connection.captured(end);
        s.connection.mirrors.add(self.env.frame.mirror);
        self.env.frame.place = Some((s.connection.id, end));
        self.env.frame.hosts = Some((packet.src, packet.dst));
        let mut volume = Volume::default();
        volume.0[end.index()] = u64::from(wire_len);
        s.connection.throughput.add(at.time, volume);
        s.connection.network.segment(at, end, packet.carried.unwrap_or(wire_len), packet, segment);
        if packet.ecn == 3 {
            s.connection.trouble.add(at.time, Trouble::CONGESTION);
            s.connection.health.ecn_marked += 1;
        }
        if segment.flags & (SYN | ACK) == SYN | ACK {
            s.connection.opening.tcp_opened.get_or_insert(at);
        }
        let Flow::Tcp(flow) = &mut s.flow else { return };
        self.env.frame.is_unchecked = match segment.check {
            Check::Good => false,
            Check::Unchecked => true,
            // a segment that is followed all the same may be damaged, too
            Check::Bad => flow.is_doubted(end),
        };
        let mut listener = Listener { connection: &mut s.connection, env: &mut self.env };
        if listener.connection.missed.has_lost() {
            listener.settle(at.time);
        }
        flow.segment(at, end, segment, &self.tcp, t, &mut listener);
        let c = &mut s.connection;
        if c.established().is_none() && c.transport == Some(Transport::Iwarp) && segment.payload_length > 0 {
            c.opening.spoke_otherwise |= c.roles.client() == Some(end.peer());
        }
        self.count_memory(at, slot);
    }

    #[cold]
    fn new_tcp(&mut self, at: At, from: TcpEnd, to: TcpEnd, segment: &Segment<'_>) -> u32 {
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
        self.table.add_tcp(from, to, slot);
        slot
    }

    // ── IP fragments ────────────────────────────────────────────────────────────────────────────────────────────────

    #[cold]
    fn fragment<T: Trace>(&mut self, meta: &FrameMeta, packet: &Packet<'_>, fragment: &frame::IpFragment<'_>, t: &mut T) {
        let whole = match &mut self.shard {
            // the router put it together
            Some(shard) => shard.datagram.take(),
            None => self.datagrams.take(meta.number, packet.src, packet.dst, fragment).map(|Whole { bytes, length, pieces }| {
                let what = if matches!(packet.src, frame::Addr::V4(_)) { Assembly::Ipv4 } else { Assembly::Ipv6 };
                self.env.sink.assembled(what, meta.number, pieces.frames());
                if T::ON {
                    what.show(&pieces, length, t);
                }
                bytes
            }),
        };
        let Some(bytes) = whole else { return };
        if T::ON {
            t.source("Reassembled IP datagram", &bytes);
        }
        let inner = frame::decode_ip(&bytes, &self.decode, t);
        if !matches!(inner.body, Body::Fragment(_)) {
            self.body(meta, &inner, t);
        }
        if T::ON {
            t.end_source();
        }
    }

    // ── The table of connections ────────────────────────────────────────────────────────────────────────────────────

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

    /// A connection ends, or is not followed any more: its results go to the report.
    fn close(&mut self, slot: u32, at: At) {
        let Some(mut gone) = self.table.remove(slot) else { return };
        if let Some(key) = gone.qp_keys[0] {
            self.halves.remove(&key, slot);
        }
        self.requests.forget(slot);
        // the packets that it held back are not of the current frame, which may be another connection's
        let is_unchecked = core::mem::take(&mut self.env.frame.is_unchecked);
        let mut listener = Listener { connection: &mut gone.connection, env: &mut self.env };
        match &mut gone.flow {
            Flow::Ib(flow) => flow.finish(at, &mut listener),
            Flow::Tcp(flow) => flow.finish(at, &self.tcp, &mut Off, &mut listener),
        }
        listener.settle(i64::MAX);
        let unseen = End::BOTH.map(|end| match &gone.flow {
            Flow::Ib(flow) => flow.is_unseen(end),
            Flow::Tcp(flow) => flow.is_unseen(end),
        });
        if let Some(shard) = &mut self.shard {
            shard.closes(self.env.now, self.env.lost_by_capture);
        }
        gone.connection.finish(&mut self.env, at, unseen);
        self.env.frame.is_unchecked = is_unchecked;
        // the cost of losses is known now
        flow::report::add_losses(&gone.connection, &gone.flow.loss_view(), &mut |finding| self.env.findings.add(finding));
        let mut connection = gone.connection.summary();
        // frames lost at the very end show nowhere: a capture that lost others may have lost these
        connection.progress.missed |= self.env.lost_by_capture > 0;
        crate::outcome::conclude(&mut connection, &mut self.env.findings, at);
        if self.done.len() >= self.env.options.report_max && !self.env.options.fold {
            self.done_dropped += 1;
            return;
        }
        self.done.push(connection);
        if self.done.len() >= self.env.options.report_max + FOLD {
            self.fold();
        }
    }

    /// Adds the oldest of those that ended up, and forgets them.
    #[cold]
    fn fold(&mut self) {
        let old: Vec<report::Connection> = self.done.drain(..FOLD).collect();
        let mut ids: HashSet<u32> = old.iter().map(|c| c.id).collect();
        for connection in &old {
            self.folded.add(connection, false);
            self.env.sink.forgotten(connection.id);
        }
        // and the halves that became theirs
        self.joined.forget(&mut ids, |half| self.env.sink.forgotten(half));
        self.env.findings.forget_connections(|id| ids.contains(&id));
        for session in &mut self.env.sessions {
            session.connections.retain(|id| !ids.contains(id));
        }
        self.env.sessions.retain(|session| !session.connections.is_empty());
    }
}

fn carrier(ib: &IbPacket<'_>) -> Transport {
    match ib.carrier {
        Carrier::RoceV2 { .. } => Transport::RoceV2,
        Carrier::RoceV1 | Carrier::Infiniband => Transport::Infiniband,
    }
}

struct ShownAddress(Addr);

impl core::fmt::Display for ShownAddress {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        crate::summary::show_address(&self.0, f)
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

#[cfg(test)]
mod tests {
    use super::*;
    use rdmascope_dissector::wire::ib::bth::Bth;
    use rdmascope_dissector::wire::ib::ext::Extensions;

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
        let pause = frame::Pause { source: [2; 6], priorities: 8, quanta: 100, times: [0, 0, 0, 100, 0, 0, 0, 0], whole_link: false };
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
            let segment =
                Segment { src_port: 900, dst_port: 2049, seq, payload, payload_length: payload.len() as u32, ..Segment::default() };
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
