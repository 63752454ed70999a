//! Frames in, findings and a report out. The pipeline ties packets to connections and connections to each other; what
//! happens on a connection is [`crate::connection`]'s.
//!
//! It is generic over the observer of decoding: with [`Off`](rdmascope_dissector::trace::Off) it only analyzes; with a `Tree` the very same run fills the
//! detail tree of each frame, upper layers included.
//!
//! ```text
//!   frame ─▶ Packet ─▶ IB: (source, destination, destination QP) ─▶ IbFlow  ─▶ Connection
//!                  └─▶ TCP: (addresses, ports)                  ─▶ TcpFlow ─▶ Connection
//! ```
//!
//! **Queue pairs without their handshake.** A packet names only the receiver's queue pair. Two flows of opposite direction
//! between the same hosts are one connection where one acknowledges the PSNs of the other, or uses memory that the other
//! advertised, or where there is no other choice. Such a connection is `inferred`.

use crate::connection::Connection;
use crate::env::{Env, Layer, NOWHERE, Options};
use crate::finding::{Blame, Certainty, Findings, Rule, Site};
use crate::flow::ib::IbFlow;
use crate::flow::iwarp::TcpFlow;
use crate::flow::report::Listener;
use crate::op::{At, End};
use crate::report::{self, Handshake, Peer, Quiet, Report, Sink, Transport};
use crate::series::{Trouble, Volume};
use crate::totals::Totals;
use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::string::ToString;
use alloc::vec::Vec;
use hashbrown::{HashMap, HashSet};
use rdmascope_dissector::fault::FaultKind;
use rdmascope_dissector::frame::{self, Addr, Body, Carrier, Check, IbPacket, LinkType, Packet, Segment};
use rdmascope_dissector::trace::Trace;
use rdmascope_dissector::wire::ib::bth::{self, Opcode, Service};
use rdmascope_dissector::wire::ib::cm::{self, CmMessage};

/// What is known of a frame besides its bytes.
#[derive(Clone, Copy, Debug)]
pub struct FrameMeta {
    /// Counted from 1 over all inputs.
    pub number: u64,
    /// ns since the Unix epoch.
    pub time_ns: i64,
    /// What its first bytes are.
    pub link_type: LinkType,
    /// Its length on the wire, in bytes.
    pub wire_len: u32,
    /// Which interface of the capture it came from.
    pub interface: u32,
}

impl FrameMeta {
    /// The frame as analysis refers to it.
    pub fn at(&self) -> At {
        At { frame: self.number, time: self.time_ns }
    }
}

/// What the analysis made of one frame, in few bytes: for an index of a capture.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FrameFacts {
    /// How far it was understood.
    pub layer: Layer,
    /// Its connection, by the number under which it is followed ([`report::Connection::followed_as`]), and who sent it.
    pub place: Option<(u32, End)>,
    /// The exchange that it belongs to; 0 for none, or not known yet.
    pub exchange: u64,
    /// Whether it went out before.
    pub retransmission: bool,
}

/// Halves of connections remembered per pair of hosts at most.
const HALVES_MAX: usize = 64;
/// Packets of an unpaired flow that are looked at for what it belongs to.
const PAIRING_TRIES: u32 = 512;
/// CM exchanges remembered at most.
const CM_MAX: usize = 4096;
/// Frames of one CM exchange that are remembered until its connection is there.
const CM_EARLY_MAX: usize = 8;
/// IP datagrams put together at the same time at most.
const DATAGRAMS_MAX: usize = 256;
/// Connections that are added up together.
const FOLD: usize = 64;
/// ns after which a REQ without an answer has timed out.
const CM_TIMEOUT: i64 = 20_000_000_000;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct QpKey {
    src: Addr,
    dst: Addr,
    qp: u32,
}

/// Address and port.
type TcpEnd = (Addr, u16);

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct TcpKey {
    low: TcpEnd,
    high: TcpEnd,
}

impl TcpKey {
    fn of(a: TcpEnd, b: TcpEnd) -> Self {
        if a <= b { Self { low: a, high: b } } else { Self { low: b, high: a } }
    }
}

#[derive(Clone, Copy, Debug)]
struct Place {
    slot: u32,
    end: End,
}

#[derive(Debug)]
enum Flow {
    Ib(Box<IbFlow>),
    Tcp(Box<TcpFlow>),
}

#[derive(Debug)]
struct Slot {
    connection: Connection,
    flow: Flow,
    /// Keys under which it is found.
    qp_keys: [Option<QpKey>; 2],
    tcp_key: Option<TcpKey>,
    /// Whether only one direction is known.
    half: bool,
    tries: u32,
    /// Second chance: used since the hand of the clock last passed.
    used: bool,
}

/// A REQ that waits for its answer, and what its answer is matched by later.
#[derive(Clone, Debug)]
struct Request {
    at: At,
    client: Addr,
    server: Addr,
    comm_id: u32,
    qp: u32,
    psn: u32,
    /// Of the service asked for; 0 where the service has no IP port.
    port: u16,
    source_port: u16,
    /// Reads that the client can answer at a time.
    responder_resources: u8,
    path_mtu: Option<u16>,
    rpc_rdma: Option<cm::RpcRdmaPrivate>,
    slot: Option<u32>,
    /// The number under which its connection is followed.
    connection: Option<u32>,
    /// Frames of it from before there was a connection, and who sent them.
    early: Vec<(u64, End)>,
    server_comm_id: Option<u32>,
    answered: bool,
}

#[derive(Debug, Default)]
struct Datagram {
    key: (Addr, Addr, u32, u8),
    header: Vec<u8>,
    parts: Vec<(u32, Vec<u8>)>,
    length: Option<u32>,
    have: u32,
}

/// The analysis of one capture.
#[derive(Debug)]
pub struct Pipeline<S = Quiet> {
    env: Env<S>,
    decode: frame::Options,
    tcp: crate::flow::iwarp::Options,
    slots: Vec<Option<Box<Slot>>>,
    free: Vec<u32>,
    open: usize,
    hand: usize,
    next_id: u32,
    qps: HashMap<QpKey, Place>,
    tcps: HashMap<TcpKey, u32>,
    halves: HashMap<(Addr, Addr), Vec<u32>>,
    cached: [Option<(QpKey, Place)>; 2],
    /// The TCP connection of the frame before: one of its ends, the other, where it is.
    cached_tcp: Option<(TcpEnd, TcpEnd, u32)>,
    requests: VecDeque<Request>,
    datagrams: VecDeque<Datagram>,
    joined: HashMap<u32, u32>,
    done: Vec<report::Connection>,
    done_dropped: u64,
    folded: Totals,
    capture: report::Capture,
    layers: [u64; Layer::ALL.len()],
    connections_evicted: u64,
    datagrams_dropped: u64,
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
    /// An analysis that tells `sink` what it sees as it goes.
    pub fn with_sink(options: Options, sink: S) -> Self {
        let decode = frame::Options { check_crc: options.check_crc, ..frame::Options::default() };
        let tcp = crate::flow::iwarp::Options { check_crc: options.check_crc, ..Default::default() };
        Self {
            env: Env::new(options, sink),
            decode,
            tcp,
            slots: Vec::new(),
            free: Vec::new(),
            open: 0,
            hand: 0,
            next_id: 1,
            qps: HashMap::new(),
            tcps: HashMap::new(),
            halves: HashMap::new(),
            cached: [None; 2],
            cached_tcp: None,
            requests: VecDeque::new(),
            datagrams: VecDeque::new(),
            joined: HashMap::new(),
            done: Vec::new(),
            done_dropped: 0,
            folded: Totals::default(),
            capture: report::Capture::default(),
            layers: [0; Layer::ALL.len()],
            connections_evicted: 0,
            datagrams_dropped: 0,
        }
    }

    /// Who listens.
    pub fn sink(&mut self) -> &mut S {
        &mut self.env.sink
    }

    /// Findings so far.
    pub fn findings(&self) -> &Findings {
        &self.env.findings
    }

    /// What was made of the last frame.
    pub fn facts(&self) -> FrameFacts {
        FrameFacts {
            layer: self.env.frame_layer(),
            place: self.env.place_of_frame,
            exchange: self.env.exchange_of_frame,
            retransmission: self.env.retransmission,
        }
    }

    /// Earlier frames that turned out with the last one to belong to its connection, by number, and who sent them: of a handshake, what
    /// came before the answer that makes the connection.
    pub fn earlier(&self) -> &[(u64, End)] {
        &self.env.earlier_frames
    }

    /// What is numbered next gets these numbers, where they are not 0. For those who feed only a part of a capture again and want
    /// the numbers of the whole.
    pub fn number_from(&mut self, connection: u32, exchange: u64) {
        if connection > 0 {
            self.next_id = connection;
        }
        if exchange > 0 {
            self.env.next_exchange = exchange;
        }
    }

    /// The report as it would be if the capture ended here, but without what only the end tells (requests without an answer). For
    /// those who watch; costs as much as there are connections.
    pub fn snapshot(&self) -> Report {
        let open = self.slots.iter().flatten().map(|slot| report::Connection::of(&slot.connection));
        let mut capture = self.capture.clone();
        capture.lost_by_capture = self.env.lost_by_capture;
        self.assemble(self.done.iter().cloned().chain(open).collect(), capture, self.env.slowest.clone(), self.env.sessions.clone())
    }

    /// For an analysis without an end: lets go of connections that were ended `closed_after` ns before `now`, and of those without a frame
    /// for `idle_after` ns. (One that speaks again is found again, as one whose handshake was not seen.)
    pub fn expire(&mut self, now: i64, closed_after: i64, idle_after: i64) {
        let at = self.capture.last.unwrap_or(NOWHERE);
        for slot in 0..self.slots.len() {
            let Some(s) = self.slots[slot].as_ref() else { continue };
            let age = now.saturating_sub(s.connection.last.time);
            let is_over = s.connection.closed.is_some() || s.connection.rejected.is_some();
            if age > idle_after {
                self.connections_evicted += u64::from(!is_over);
                self.close(slot as u32, at);
            } else if is_over && age > closed_after {
                self.close(slot as u32, at);
            }
        }
    }

    /// All connections there were, added up. Costs as much as there are connections that are open or in the report.
    pub fn totals(&self) -> Totals {
        let mut totals = self.folded.clone();
        for connection in &self.done {
            totals.add(connection, false);
        }
        for slot in self.slots.iter().flatten() {
            let is_open = slot.connection.closed.is_none() && slot.connection.rejected.is_none();
            totals.add(&report::Connection::of(&slot.connection), is_open);
        }
        totals
    }

    /// Frames so far, without what is counted by protocol.
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
            ("requests", self.env.requests_dropped),
            ("IP datagrams", self.datagrams_dropped),
            ("findings", self.env.findings.dropped()),
        ];
        dropped.into_iter().filter(|(_, n)| *n > 0).collect()
    }

    /// How frames are to be decoded before they are handed to [`Pipeline::packet`].
    pub fn decode_options(&self) -> frame::Options {
        self.decode
    }

    /// One frame, from its bytes.
    pub fn frame<T: Trace>(&mut self, meta: &FrameMeta, bytes: &[u8], t: &mut T) {
        let packet = frame::decode(meta.link_type, bytes, meta.wire_len, &self.decode, t);
        self.packet(meta, &packet, t);
    }

    /// One frame that was decoded already.
    pub fn packet<T: Trace>(&mut self, meta: &FrameMeta, packet: &Packet<'_>, t: &mut T) {
        let at = meta.at();
        self.env.begin_frame(T::ON.then_some(meta.number));
        self.capture.frames += 1;
        self.capture.bytes += u64::from(meta.wire_len);
        self.capture.first.get_or_insert(at);
        self.capture.last = Some(at);
        if packet.cut > 0 {
            self.cut(at, packet);
        }
        if let Some(tunnel) = &packet.tunnel {
            self.capture.tunnelled += 1;
            self.env.mirror_of_frame = self.capture.mirrors.count(tunnel);
        }
        self.body(meta, packet, t);
        if T::ON {
            crate::connection::tell_frame(&self.env, packet.tunnel.as_ref(), t);
        }
        self.layers[self.env.frame_layer() as usize] += 1;
    }

    fn body<T: Trace>(&mut self, meta: &FrameMeta, packet: &Packet<'_>, t: &mut T) {
        let at = meta.at();
        match &packet.body {
            Body::Ib(ib) => self.ib(at, meta.wire_len, packet, ib, t),
            Body::Tcp(segment) => self.tcp(at, meta.wire_len, packet, segment, t),
            Body::Fragment(fragment) => self.fragment(meta, packet, fragment, t),
            Body::Udp(..) => self.env.layer(Layer::Udp),
            Body::Pause(pause) => {
                self.env.layer(Layer::Pause);
                self.capture.pauses += 1;
                if pause.quanta > 0 {
                    let (priorities, quanta) = (pause.priorities, pause.quanta);
                    let site = Site { connection: None, frame: at.frame, time_ns: at.time };
                    self.env.report(
                        Rule::RcPfc,
                        Blame::Network,
                        site,
                        Certainty::Certain,
                        format_args!("asked to pause priorities {priorities:#010b} for {quanta} quanta"),
                    );
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
        let at = self.capture.last.unwrap_or(NOWHERE);
        for slot in 0..self.slots.len() {
            if self.slots[slot].is_some() {
                self.close(slot as u32, at);
            }
        }
        self.env.is_last = true;
        for request in core::mem::take(&mut self.requests) {
            self.unanswered_request(at, &request);
        }
        self.report()
    }

    fn report(mut self) -> (Report, S) {
        let connections = core::mem::take(&mut self.done);
        let capture = core::mem::take(&mut self.capture);
        let slowest = core::mem::take(&mut self.env.slowest);
        let sessions = core::mem::take(&mut self.env.sessions);
        (self.assemble(connections, capture, slowest, sessions), self.env.sink)
    }

    /// Puts a report together, with numbers that are small and in order.
    fn assemble(
        &self,
        mut connections: Vec<report::Connection>,
        mut capture: report::Capture,
        mut slowest: Vec<crate::exchange::Exchange>,
        sessions: Vec<(u64, Vec<u32>)>,
    ) -> Report {
        connections.sort_by_key(|c| (c.first, c.id));
        // ids are small and in order, whatever was joined on the way
        let mut renumbered: HashMap<u32, u32> = HashMap::new();
        for (index, connection) in connections.iter_mut().enumerate() {
            renumbered.insert(connection.id, index as u32 + 1);
            connection.id = index as u32 + 1;
        }
        let joined = &self.joined;
        let number = |id: u32| {
            let mut id = id;
            while let Some(into) = joined.get(&id) {
                id = *into;
            }
            renumbered.get(&id).copied()
        };
        for half in joined.keys() {
            if let Some(connection) = number(*half).and_then(|id| connections.get_mut(id as usize - 1)) {
                connection.followed_as.push(*half);
            }
        }
        let mut findings = Findings::default();
        for finding in self.env.findings.iter() {
            let mut finding = finding.clone();
            finding.connection = finding.connection.and_then(number);
            findings.add(finding);
        }
        capture.lost_by_capture = self.env.lost_by_capture;
        capture.undecoded = self.env.undecoded;
        capture.dissected = Layer::ALL.iter().map(|l| (l.name(), self.layers[*l as usize])).filter(|(_, n)| *n > 0).collect();
        capture.dropped = self.dropped();
        for exchange in &mut slowest {
            exchange.connection = number(exchange.connection).unwrap_or(0);
        }
        let sessions = sessions
            .into_iter()
            .map(|(id, channels)| {
                let mut channels: Vec<u32> = channels.into_iter().filter_map(number).collect();
                channels.sort_unstable();
                channels.dedup();
                (id, channels)
            })
            .collect();
        Report { capture, connections, connections_dropped: self.done_dropped, folded: self.folded.clone(), findings, slowest, sessions }
    }

    // ── InfiniBand ──────────────────────────────────────────────────────────────────────────────────────────────────

    fn ib<T: Trace>(&mut self, at: At, wire_len: u32, packet: &Packet<'_>, ib: &IbPacket<'_>, t: &mut T) {
        self.env.layer(Layer::Ib);
        if packet.fault.is_some() {
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
        let Some(row) = row else {
            let site = Site { connection: None, frame: at.frame, time_ns: at.time };
            let opcode = ib.bth.opcode;
            self.env.report(
                Rule::BugRxe4c6f86d,
                Blame::Unknown,
                site,
                Certainty::Certain,
                format_args!("sent an opcode that does not exist: {opcode:#04x}"),
            );
            return;
        };
        self.env.layer(Layer::Rdma);
        let key = QpKey { src: packet.src, dst: packet.dst, qp: ib.bth.dest_qp };
        let place = match self.cached {
            [Some((k, place)), _] if k == key => place,
            [_, Some((k, place))] if k == key => place,
            _ => {
                let place = match self.qps.get(&key) {
                    Some(place) => *place,
                    None => self.new_flow(at, key, packet, ib, row),
                };
                self.cached[1] = self.cached[0];
                self.cached[0] = Some((key, place));
                place
            }
        };
        let mut place = place;
        if self.slots[place.slot as usize].as_ref().is_some_and(|s| s.half && s.tries < PAIRING_TRIES) {
            place = self.try_pair(place, key, ib, row);
        }
        let Some(slot) = self.slots[place.slot as usize].as_mut() else { return };
        slot.used = true;
        let connection = &mut slot.connection;
        self.env.place_of_frame = Some((connection.id, place.end));
        connection.last = at;
        connection.mirrors.add(self.env.mirror_of_frame);
        let mut volume = Volume::default();
        volume.0[place.end.index()] = u64::from(wire_len);
        connection.throughput.add(at.time, volume);
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
        match ib.icrc {
            Check::Good => connection.icrc_good += 1,
            Check::Bad => {
                connection.health.icrc_bad += 1;
                connection.icrc_first_bad.get_or_insert(at);
            }
            Check::Unchecked => {}
        }
        if T::ON {
            crate::connection::tell_connection(connection.id, t);
        }
        let Flow::Ib(flow) = &mut slot.flow else { return };
        let mut listener = Listener { connection, env: &mut self.env };
        flow.packet(at, place.end, ib, t, &mut listener);
        if slot.connection.closed.is_some_and(|(_, _, closed)| closed.frame == at.frame) {
            self.cached = [None; 2];
        }
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
        if let Some(slot) = self.qps.get(&key).and_then(|p| self.slots[p.slot as usize].as_mut()) {
            slot.connection.health.cnps += 1;
            site.connection = Some(slot.connection.id);
        }
        let qp = ib.bth.dest_qp;
        self.env.report(Rule::RcCnp, Blame::Network, site, Certainty::Certain, format_args!("queue pair {qp:#x} was told to slow down"));
    }

    /// The first packet of a flow.
    #[cold]
    fn new_flow(&mut self, at: At, key: QpKey, packet: &Packet<'_>, ib: &IbPacket<'_>, row: &bth::Row) -> Place {
        let reverse = self.partner(key, ib, row, true);
        if let Some(slot) = reverse {
            self.join_flow(slot, key);
            return Place { slot, end: End::B };
        }
        let transport = match ib.carrier {
            Carrier::RoceV2 { .. } => Transport::RoceV2,
            Carrier::RoceV1 | Carrier::Infiniband => Transport::Infiniband,
        };
        let mut connection = Connection { transport: Some(transport), first: at, last: at, missed: true, ..Connection::default() };
        connection.peers[0].address = packet.src;
        connection.peers[1] = Peer { address: packet.dst, port: 0, qp: Some(key.qp) };
        // a flow that begins at its first message looks no different from one that began long ago; the protocol may know better
        connection.missed = false;
        let slot = self.insert(at, connection, Flow::Ib(Box::default()));
        if let Some(s) = self.slots[slot as usize].as_mut() {
            s.half = true;
            s.qp_keys[0] = Some(key);
        }
        let place = Place { slot, end: End::A };
        self.qps.insert(key, place);
        let halves = self.halves.entry((key.src, key.dst)).or_default();
        if halves.len() < HALVES_MAX {
            halves.push(slot);
        }
        place
    }

    /// The half connection of the opposite direction that a flow belongs to, where that can be told.
    fn partner(&self, key: QpKey, ib: &IbPacket<'_>, row: &bth::Row, alone_will_do: bool) -> Option<u32> {
        let halves = self.halves.get(&(key.dst, key.src))?;
        let pinned = |slot: &Slot| {
            let other = slot.qp_keys[0].map(|k| k.qp)?;
            self.env.options.pins.iter().any(|(a, b)| (*a, *b) == (key.qp, other) || (*b, *a) == (key.qp, other)).then_some(())
        };
        let is_pinned = |qp: u32| self.env.options.pins.iter().any(|(a, b)| *a == qp || *b == qp);
        let candidates = || halves.iter().copied().filter(|s| self.slots[*s as usize].as_ref().is_some_and(|s| s.half));
        if is_pinned(key.qp) {
            return candidates().find(|s| self.slots[*s as usize].as_ref().and_then(|s| pinned(s)).is_some());
        }
        let free =
            || candidates().filter(|s| self.slots[*s as usize].as_ref().and_then(|s| s.qp_keys[0]).is_some_and(|k| !is_pinned(k.qp)));
        let only = |mut found: Vec<u32>| if found.len() == 1 { found.pop() } else { None };
        if !row.is_request() {
            // it answers: the PSN is one of the requester's
            let psn = ib.bth.psn;
            return only(
                free()
                    .filter(|s| match self.slots[*s as usize].as_ref().map(|s| &s.flow) {
                        Some(Flow::Ib(flow)) => flow.may_acknowledge(End::A, psn),
                        _ => false,
                    })
                    .collect(),
            );
        }
        if let Some(reth) = ib.ext.reth {
            let advertised: Vec<u32> = free()
                .filter(|s| self.slots[*s as usize].as_ref().is_some_and(|s| s.connection.memory.find(End::A, reth.r_key).is_some()))
                .collect();
            if advertised.len() == 1 {
                return only(advertised);
            }
        }
        if !alone_will_do {
            return None;
        }
        only(free().collect())
    }

    /// A flow becomes the other direction of a half connection.
    fn join_flow(&mut self, slot: u32, key: QpKey) {
        self.qps.insert(key, Place { slot, end: End::B });
        if let Some(halves) = self.halves.get_mut(&(key.dst, key.src)) {
            halves.retain(|s| *s != slot);
        }
        if let Some(s) = self.slots[slot as usize].as_mut() {
            s.half = false;
            s.qp_keys[1] = Some(key);
            s.connection.peers[0].qp = Some(key.qp);
            let other = s.qp_keys[0].map(|k| k.qp);
            let pins = &self.env.options.pins;
            if pins.iter().any(|(a, b)| Some(*a) == other && *b == key.qp || Some(*b) == other && *a == key.qp) {
                s.connection.handshake = Handshake::Pinned;
            }
        }
        self.cached = [None; 2];
    }

    /// Looks again whether an unpaired flow belongs to another one.
    #[cold]
    fn try_pair(&mut self, place: Place, key: QpKey, ib: &IbPacket<'_>, row: &bth::Row) -> Place {
        if let Some(slot) = self.slots[place.slot as usize].as_mut() {
            slot.tries += 1;
        }
        let Some(into) = self.partner(key, ib, row, false).filter(|s| *s != place.slot) else { return place };
        let Some(mut gone) = self.slots[place.slot as usize].take() else { return place };
        self.free.push(place.slot);
        self.open -= 1;
        if let Some(halves) = self.halves.get_mut(&(key.src, key.dst)) {
            halves.retain(|s| *s != place.slot);
        }
        self.join_flow(into, key);
        if let Some(slot) = self.slots[into as usize].as_mut() {
            if let (Flow::Ib(mine), Flow::Ib(theirs)) = (&mut slot.flow, &mut gone.flow) {
                mine.adopt(End::B, theirs, End::A);
            }
            slot.connection.adopt(End::B, &mut gone.connection, End::A);
            self.joined.insert(gone.connection.id, slot.connection.id);
        }
        Place { slot: into, end: End::B }
    }

    // ── Connection management ───────────────────────────────────────────────────────────────────────────────────────

    fn datagram<T: Trace>(&mut self, at: At, packet: &Packet<'_>, ib: &IbPacket<'_>, t: &mut T) {
        const MTU_MAX: u32 = 4096;
        if ib.payload_length > MTU_MAX {
            let site = Site { connection: None, frame: at.frame, time_ns: at.time };
            let length = ib.payload_length;
            let text = format_args!("sent a datagram of {length} bytes; no path MTU is larger than {MTU_MAX}");
            self.env.report(Rule::BugCve202440992, Blame::Unknown, site, Certainty::Certain, text);
        }
        if ib.bth.dest_qp > 1 {
            return;
        }
        let Ok((_, Some(message))) = cm::parse_mad(ib.payload, t) else { return };
        self.env.layer(Layer::Cm);
        match message {
            CmMessage::Request(request) => self.cm_request(at, packet, &request),
            CmMessage::Reply(reply) => self.cm_reply(at, packet, ib, &reply),
            CmMessage::Reject(reject) => self.cm_reject(at, packet, &reject),
            CmMessage::DisconnectRequest(head) => self.cm_disconnect(at, packet, head.local_comm_id, head.remote_comm_id),
            _ => {}
        }
        self.cm_place(at, packet, &message);
    }

    /// Says which connection a message of connection management belongs to; where there is none yet, remembers to say it later.
    fn cm_place(&mut self, at: At, packet: &Packet<'_>, message: &CmMessage<'_>) {
        let (Some(local), remote) = message.comm_ids() else { return };
        let end = |r: &Request| {
            let is_servers = |id: u32| r.server_comm_id.is_none_or(|known| known == id);
            if r.client == packet.src && r.comm_id == local && remote.is_none_or(is_servers) {
                Some(End::A)
            } else if r.client == packet.dst && Some(r.comm_id) == remote && is_servers(local) {
                Some(End::B)
            } else {
                None
            }
        };
        let Some((request, end)) = self.requests.iter_mut().rev().find_map(|r| end(r).map(|end| (r, end))) else { return };
        match request.connection {
            Some(id) => self.env.place_of_frame = Some((id, end)),
            None if request.early.len() < CM_EARLY_MAX => request.early.push((at.frame, end)),
            None => {}
        }
    }

    fn cm_request(&mut self, at: At, packet: &Packet<'_>, message: &cm::ConnectRequest<'_>) {
        let again =
            self.requests.iter().any(|r| r.client == packet.src && r.comm_id == message.local_comm_id && r.qp == message.head.local_qpn);
        if again {
            return;
        }
        if self.requests.len() >= CM_MAX
            && let Some(oldest) = self.requests.pop_front()
        {
            self.unanswered_request(at, &oldest);
        }
        self.requests.push_back(Request {
            at,
            client: packet.src,
            server: packet.dst,
            comm_id: message.local_comm_id,
            qp: message.head.local_qpn,
            psn: message.head.starting_psn,
            port: message.service_id.port().map_or(0, |(_, port)| port),
            source_port: message.addresses.map_or(0, |a| a.source_port),
            responder_resources: message.head.responder_resources,
            path_mtu: message.path_mtu(),
            rpc_rdma: message.rpc_rdma,
            slot: None,
            connection: None,
            early: Vec::new(),
            server_comm_id: None,
            answered: false,
        });
    }

    fn cm_reply(&mut self, at: At, packet: &Packet<'_>, ib: &IbPacket<'_>, reply: &cm::ConnectReply<'_>) {
        let rep = &reply.head;
        let Some(index) = self.requests.iter().rposition(|r| r.client == packet.dst && r.comm_id == rep.remote_comm_id) else { return };
        let request = &mut self.requests[index];
        if request.answered && request.server_comm_id == Some(rep.local_comm_id) {
            return;
        }
        request.answered = true;
        request.server_comm_id = Some(rep.local_comm_id);
        self.env.earlier_frames = core::mem::take(&mut request.early);
        let request = request.clone();
        let to_server = QpKey { src: packet.dst, dst: packet.src, qp: rep.local_qpn };
        let to_client = QpKey { src: packet.src, dst: packet.dst, qp: request.qp };
        // the same numbers may have been another connection's
        for key in [to_server, to_client] {
            if let Some(place) = self.qps.get(&key).copied() {
                self.close(place.slot, at);
            }
        }
        let transport = match ib.carrier {
            Carrier::RoceV2 { .. } => Transport::RoceV2,
            Carrier::RoceV1 | Carrier::Infiniband => Transport::Infiniband,
        };
        let mut connection = Connection {
            transport: Some(transport),
            first: request.at,
            last: at,
            client: Some(End::A),
            handshake: Handshake::Seen,
            ..Connection::default()
        };
        connection.peers = [
            Peer { address: packet.dst, port: request.source_port, qp: Some(request.qp) },
            Peer { address: packet.src, port: request.port, qp: Some(rep.local_qpn) },
        ];
        // what the requester may have outstanding is what the other side can answer
        connection.read_depth =
            [Some(u32::from(rep.responder_resources)), Some(u32::from(request.responder_resources))].map(|d| d.filter(|d| *d > 0));
        let mut flow = IbFlow::default();
        connection.rpc_rdma_private([request.rpc_rdma, reply.rpc_rdma]);
        // each side says where the other one is to begin (12.6.5, 12.6.8)
        flow.starts_at(End::A, rep.starting_psn);
        flow.starts_at(End::B, request.psn);
        if let Some(mtu) = request.path_mtu {
            flow.path_mtu(mtu.into());
        }
        let slot = self.insert(request.at, connection, Flow::Ib(Box::new(flow)));
        if let Some(s) = self.slots[slot as usize].as_mut() {
            s.qp_keys = [Some(to_server), Some(to_client)];
            self.requests[index].connection = Some(s.connection.id);
        }
        self.qps.insert(to_server, Place { slot, end: End::A });
        self.qps.insert(to_client, Place { slot, end: End::B });
        self.requests[index].slot = Some(slot);
        self.cached = [None; 2];
    }

    fn cm_reject(&mut self, at: At, packet: &Packet<'_>, reject: &cm::ConnectReject<'_>) {
        let head = &reject.head;
        // a REJ answers a REQ, or takes a REP back
        let request = self.requests.iter_mut().rev().find(|r| {
            (r.client == packet.dst && r.comm_id == head.remote_comm_id) || (r.client == packet.src && r.comm_id == head.local_comm_id)
        });
        let reason = reject.reason();
        let Some(request) = request else { return };
        request.answered = true;
        let port = request.port;
        let by_server = request.client == packet.dst;
        let slot = request.slot;
        let blame = if by_server { Blame::Server } else { Blame::Client };
        let connection = slot.and_then(|s| self.slots[s as usize].as_mut()).map(|s| {
            s.connection.rejected = Some(reason.to_string());
            s.connection.id
        });
        let site = Site { connection, frame: at.frame, time_ns: at.time };
        self.env.report(Rule::CmReject, blame, site, Certainty::Certain, format_args!("RDMA-CM REQ to port {port} was rejected: {reason}"));
    }

    fn cm_disconnect(&mut self, at: At, packet: &Packet<'_>, local: u32, remote: u32) {
        let found = self.requests.iter().rev().find(|r| {
            (r.client == packet.src && r.comm_id == local && r.server_comm_id == Some(remote))
                || (r.client == packet.dst && r.comm_id == remote && r.server_comm_id == Some(local))
        });
        let Some((slot, client)) = found.and_then(|r| Some((r.slot?, r.client))) else { return };
        let Some(s) = self.slots[slot as usize].as_mut() else { return };
        if s.connection.closed.is_none() {
            let by = if client == packet.src { End::A } else { End::B };
            s.connection.closed = Some((Some(by), "DREQ", at));
            s.connection.last = at;
        }
    }

    fn unanswered_request(&mut self, at: At, request: &Request) {
        if request.answered || at.time.saturating_sub(request.at.time) < CM_TIMEOUT {
            return;
        }
        let site = Site { connection: None, frame: request.at.frame, time_ns: request.at.time };
        let (server, port) = (request.server, request.port);
        self.env.report(
            Rule::CmTimeout,
            Blame::Server,
            site,
            Certainty::IfNothingWasMissed,
            format_args!("RDMA-CM REQ to {} port {port} was never answered", Shown(server)),
        );
    }

    // ── TCP ─────────────────────────────────────────────────────────────────────────────────────────────────────────

    fn tcp<T: Trace>(&mut self, at: At, wire_len: u32, packet: &Packet<'_>, segment: &Segment<'_>, t: &mut T) {
        self.env.layer(Layer::Tcp);
        let (from, to) = ((packet.src, segment.src_port), (packet.dst, segment.dst_port));
        let mut slot = match self.cached_tcp {
            Some((a, b, slot)) if (a == from && b == to) || (a == to && b == from) => Some(slot),
            _ => self.tcps.get(&TcpKey::of(from, to)).copied(),
        };
        if let Some(old) = slot
            && let Some(s) = self.slots[old as usize].as_ref()
            && let Flow::Tcp(flow) = &s.flow
            && flow.is_reopened_by(tcp_end(&s.connection, from), segment)
        {
            // the ports are used anew
            self.close(old, at);
            slot = None;
        }
        let slot = match slot {
            Some(slot) => slot,
            None => self.new_tcp(at, TcpKey::of(from, to), from, to, segment),
        };
        self.cached_tcp = Some((from, to, slot));
        let Some(s) = self.slots[slot as usize].as_mut() else { return };
        s.used = true;
        let end = tcp_end(&s.connection, from);
        s.connection.last = at;
        s.connection.mirrors.add(self.env.mirror_of_frame);
        self.env.place_of_frame = Some((s.connection.id, end));
        let mut volume = Volume::default();
        volume.0[end.index()] = u64::from(wire_len);
        s.connection.throughput.add(at.time, volume);
        if packet.ecn == 3 {
            s.connection.health.ecn_marked += 1;
        }
        let Flow::Tcp(flow) = &mut s.flow else { return };
        let mut listener = Listener { connection: &mut s.connection, env: &mut self.env };
        flow.segment(at, end, segment, &self.tcp, t, &mut listener);
    }

    #[cold]
    fn new_tcp(&mut self, at: At, key: TcpKey, from: TcpEnd, to: TcpEnd, segment: &Segment<'_>) -> u32 {
        const SYN: u8 = 0x02;
        const ACK: u8 = 0x10;
        let handshake = if segment.flags & SYN != 0 { Handshake::Seen } else { Handshake::Inferred };
        // a SYN tells who the client is; else the lower of the well-known ports is the server's
        let client = match segment.flags & (SYN | ACK) {
            SYN => Some(End::A),
            f if f == SYN | ACK => Some(End::B),
            _ => match (is_service_port(from.1), is_service_port(to.1)) {
                (false, true) => Some(End::A),
                (true, false) => Some(End::B),
                _ => None,
            },
        };
        let connection = Connection {
            transport: Some(Transport::Tcp),
            first: at,
            last: at,
            client,
            handshake,
            missed: handshake != Handshake::Seen,
            peers: [Peer { address: from.0, port: from.1, qp: None }, Peer { address: to.0, port: to.1, qp: None }],
            ..Connection::default()
        };
        let flow = TcpFlow::new();
        let slot = self.insert(at, connection, Flow::Tcp(Box::new(flow)));
        if let Some(s) = self.slots[slot as usize].as_mut() {
            s.tcp_key = Some(key);
        }
        self.tcps.insert(key, slot);
        slot
    }

    // ── IP fragments ────────────────────────────────────────────────────────────────────────────────────────────────

    #[cold]
    fn fragment<T: Trace>(&mut self, meta: &FrameMeta, packet: &Packet<'_>, fragment: &frame::IpFragment<'_>, t: &mut T) {
        let key = (packet.src, packet.dst, fragment.id, fragment.protocol);
        let index = match self.datagrams.iter().position(|d| d.key == key) {
            Some(index) => index,
            None => {
                if self.datagrams.len() >= DATAGRAMS_MAX {
                    self.datagrams.pop_front();
                    self.datagrams_dropped += 1;
                }
                self.datagrams.push_back(Datagram { key, ..Datagram::default() });
                self.datagrams.len() - 1
            }
        };
        let datagram = &mut self.datagrams[index];
        if fragment.offset == 0 {
            datagram.header = fragment.header.to_vec();
        }
        let end = fragment.offset.saturating_add(fragment.payload.len() as u32);
        if end > u32::from(u16::MAX) {
            return;
        }
        if !fragment.more {
            datagram.length = Some(end);
        }
        if !datagram.parts.iter().any(|(offset, _)| *offset == fragment.offset) && datagram.parts.len() < 128 {
            datagram.have += fragment.payload.len() as u32;
            datagram.parts.push((fragment.offset, fragment.payload.to_vec()));
        }
        if datagram.length != Some(datagram.have) || datagram.header.is_empty() {
            return;
        }
        let Some(mut whole) = self.datagrams.remove(index) else { return };
        whole.parts.sort_by_key(|(offset, _)| *offset);
        let mut bytes = whole.header;
        let mut expected = 0;
        for (offset, part) in &whole.parts {
            if *offset != expected {
                return;
            }
            expected += part.len() as u32;
            bytes.extend_from_slice(part);
        }
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

    fn insert(&mut self, at: At, mut connection: Connection, flow: Flow) -> u32 {
        if self.open >= self.env.options.connections_max.max(2) {
            self.evict(at);
        }
        connection.id = self.next_id;
        self.next_id = self.next_id.wrapping_add(1);
        self.open += 1;
        let slot = Box::new(Slot { connection, flow, qp_keys: [None; 2], tcp_key: None, half: false, tries: 0, used: true });
        match self.free.pop() {
            Some(free) => {
                self.slots[free as usize] = Some(slot);
                free
            }
            None => {
                self.slots.push(Some(slot));
                (self.slots.len() - 1) as u32
            }
        }
    }

    /// Makes room by closing a connection that was idle for a whole turn of the clock.
    #[cold]
    fn evict(&mut self, at: At) {
        for _ in 0..self.slots.len() * 2 {
            self.hand = (self.hand + 1) % self.slots.len();
            match self.slots[self.hand].as_mut() {
                Some(slot) if slot.used => slot.used = false,
                Some(_) => {
                    self.connections_evicted += 1;
                    let hand = self.hand as u32;
                    self.close(hand, at);
                    return;
                }
                None => {}
            }
        }
    }

    /// A connection ends: its story goes to the report.
    fn close(&mut self, slot: u32, at: At) {
        let Some(mut gone) = self.slots[slot as usize].take() else { return };
        self.free.push(slot);
        self.open -= 1;
        self.cached = [None; 2];
        for key in gone.qp_keys.into_iter().flatten() {
            if self.qps.get(&key).is_some_and(|p| p.slot == slot) {
                self.qps.remove(&key);
            }
            for pair in [(key.src, key.dst), (key.dst, key.src)] {
                if let Some(halves) = self.halves.get_mut(&pair) {
                    halves.retain(|s| *s != slot);
                    if halves.is_empty() {
                        self.halves.remove(&pair);
                    }
                }
            }
        }
        if let Some(key) = gone.tcp_key {
            self.tcps.remove(&key);
            self.cached_tcp = None;
        }
        for request in &mut self.requests {
            if request.slot == Some(slot) {
                request.slot = None;
            }
        }
        let mut listener = Listener { connection: &mut gone.connection, env: &mut self.env };
        match &mut gone.flow {
            Flow::Ib(flow) => flow.finish(at, &mut listener),
            Flow::Tcp(_) => {}
        }
        gone.connection.finish(&mut self.env, at);
        if self.done.len() >= self.env.options.report_max && !self.env.options.fold {
            self.done_dropped += 1;
            return;
        }
        self.done.push(gone.connection.into_report());
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
        loop {
            let halves: Vec<u32> = self.joined.iter().filter(|(_, into)| ids.contains(*into)).map(|(half, _)| *half).collect();
            if halves.is_empty() {
                break;
            }
            for half in halves {
                self.joined.remove(&half);
                self.env.sink.forgotten(half);
                ids.insert(half);
            }
        }
        self.env.findings.forget_connections(|id| ids.contains(&id));
        for (_, channels) in &mut self.env.sessions {
            channels.retain(|id| !ids.contains(id));
        }
        self.env.sessions.retain(|(_, channels)| !channels.is_empty());
    }
}

struct Shown(Addr);

impl core::fmt::Display for Shown {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        crate::report::show_address(&self.0, f)
    }
}

fn tcp_end(connection: &Connection, from: TcpEnd) -> End {
    let first = &connection.peers[0];
    if (first.address, first.port) == from { End::A } else { End::B }
}

/// Ports that a server listens on: SMB, SMB Direct over iWARP, NFS, NFS over RDMA, portmap.
const fn is_service_port(port: u16) -> bool {
    matches!(port, 445 | 5445 | 2049 | 20049 | 111 | 139)
}
