//! One connection above the waist: operations to messages, messages to the protocol that they belong to; memory; counters.
//!
//! Below it lies a flow (queue pairs or TCP) that owns the order of packets. Nothing here knows which it is.

use crate::env::{Env, Layer};
use crate::finding::{Blame, Certainty, Rule, Site};
use crate::flow::iwarp::StreamBytes;
use crate::flow::waits::Cause;
use crate::memory::{MemoryMap, Right, State, Verdict};
use crate::op::{At, End, Part, Placement, RdmaOp, Verb};
use crate::receive::{Receive, Received, Send};
use crate::report::{Handshake, Health, Peer, Protocol, Rdma, Sink, Transport};
use crate::rpcrdma::{INLINE_DEFAULT, RpcRdma};
use crate::series::{Least, Series, Trouble, Volume};
use crate::smb2::Smb2;
use crate::smbd::link::Judge;
use crate::smbd::{self, Smbd, Upper};
use crate::stream;
use alloc::boxed::Box;
use alloc::string::String;
use core::fmt;
use rdmascope_dissector::field::Fields;
use rdmascope_dissector::fields;
use rdmascope_dissector::frame::Tunnel;
use rdmascope_dissector::trace::{Trace, Value};
use rdmascope_dissector::wire::ib::cm::RpcRdmaPrivate;

fields! {
    /// What the analysis says of a frame. These are ours; Wireshark has none of them.
    pub mod f ["rdmascope"] {
        PROTOCOL: Protocol = "rdmascope", "rdmascope analysis";
        CONNECTION: U32 = "rdmascope.connection", "Connection", dec;
        CREDITS_CLIENT: I64 = "rdmascope.credits.client", "Send credits the client holds", dec;
        CREDITS_SERVER: I64 = "rdmascope.credits.server", "Send credits the server holds", dec;
        STALL: RelTime = "rdmascope.stall", "Its sender waited for credits";
        EXCHANGE: U64 = "rdmascope.exchange", "Exchange", dec;
        EXCHANGE_BYTES: U64 = "rdmascope.exchange.rdma_bytes", "RDMA bytes of the exchange so far", dec;
        EXCHANGE_REQUEST: FrameNum = "rdmascope.exchange.request", "Answers the request in frame";
        EXCHANGE_TIME: RelTime = "rdmascope.exchange.time", "Time from request to reply";
        EXCHANGE_COMMAND: Str = "rdmascope.exchange.command", "Command of the exchange";
        EXCHANGE_FILE: Str = "rdmascope.exchange.file", "File of the exchange";
        RETRANSMISSION: None = "rdmascope.retransmission", "Sent before";
        HELD: None = "rdmascope.early", "Packets before this one are missing";
        DAMAGED: None = "rdmascope.damaged", "Damaged: its receiver dropped it";
        KEY_STATE: Str = "rdmascope.key.state", "Remote key";
        DATA: Bytes = "rdmascope.data", "Data";
        MIRROR: Str = "rdmascope.mirror", "Came through";
        MIRROR_SESSION: U32 = "rdmascope.mirror.session", "Mirror session", dec;
        MIRROR_TRUNCATED: Bool = "rdmascope.mirror.truncated", "Cut by the mirror";
        FINDING: None = "rdmascope.finding", "Finding";
        FINDING_ID: Str = "rdmascope.finding.id", "Rule";
        FINDING_SEVERITY: Str = "rdmascope.finding.severity", "Severity";
        FINDING_SECTION: Str = "rdmascope.finding.section", "Section";
        FINDING_BY: Str = "rdmascope.finding.by", "By";
        FINDING_CERTAINTY: Str = "rdmascope.finding.certainty", "Certainty";
        FINDING_TEXT: Str = "rdmascope.finding.text", "What happened";
    }
}

/// The fields of this file, for the registry.
pub const FIELDS: &[rdmascope_dissector::field::Def] = <f::All as Fields>::FIELDS;

/// ns after a reply within which an RDMA Write for its exchange came too late, rather than for no reason.
const LATE: i64 = 1_000_000_000;
/// Sends looked at for what they are before a connection is left alone.
const PROBES_MAX: u32 = 64;

/// One connection above the waist.
#[derive(Debug, Default)]
pub struct Connection {
    /// Its number, from 1.
    pub id: u32,
    /// What carries it.
    pub transport: Option<Transport>,
    /// What it carries.
    pub protocol: Protocol,
    /// Its ends.
    pub peers: [Peer; 2],
    /// Which end is the client.
    pub client: Option<End>,
    /// How the two directions were tied together.
    pub handshake: Handshake,
    /// The first frame.
    pub first: At,
    /// The last frame.
    pub last: At,
    /// Who ended it, and how.
    pub closed: Option<(Option<End>, &'static str, At)>,
    /// Why it was rejected.
    pub rejected: Option<String>,
    /// Whether packets were missed, or the beginning was.
    pub missed: bool,
    /// Whether messages of each end were cut short: what they advertised may be among what is not there.
    pub cut: [bool; 2],
    /// The last message of each end that was cut where a reply may have stood.
    pub hidden: [Option<At>; 2],
    /// The mirror sessions that its frames came through.
    pub mirrors: crate::mirror::Set,
    /// Counters of the wire.
    pub health: Health,
    /// Counters of RDMA.
    pub rdma: Rdma,
    /// What is advertised.
    pub memory: MemoryMap,
    /// Most Reads that each end may have outstanding, where the handshake said so.
    pub read_depth: [Option<u32>; 2],
    /// SMB Direct.
    pub smbd: Option<Box<Smbd>>,
    /// RPC-over-RDMA.
    pub rpc: Option<Box<RpcRdma>>,
    /// SMB2.
    pub smb2: Option<Box<Smb2>>,
    /// Bytes in frames over time.
    pub throughput: Series<Volume>,
    /// Retransmissions and their like over time.
    pub trouble: Series<Trouble>,
    /// Credits over time.
    pub story: Series<Least>,
    pub(crate) receive: [Receive; 2],
    pub(crate) inline_threshold: [Option<u32>; 2],
    pub(crate) stream_kind: stream::Kind,
    pub(crate) streams: [stream::Direction; 2],
    pub(crate) read_depths: [Option<(u32, u32)>; 2],
    pub(crate) probes: u32,
    pub(crate) read_write_size: Option<u32>,
    /// What held it up below.
    pub(crate) waits: crate::flow::waits::Waits,
    /// The first packet whose invariant CRC was not right.
    pub icrc_first_bad: Option<At>,
    /// Frames of Sends that could not be told what they are.
    pub undecoded: u64,
}

/// Findings of one connection at one frame.
pub struct Court<'e, S> {
    /// Where they go.
    pub env: &'e mut Env<S>,
    /// The connection.
    pub id: u32,
    /// Which end is the client.
    pub client: Option<End>,
    /// The frame.
    pub at: At,
}

impl<S: Sink> Court<'_, S> {
    /// Who an end is to a reader.
    pub fn blame(&self, end: End) -> Blame {
        match self.client {
            Some(client) if client == end => Blame::Client,
            Some(_) => Blame::Server,
            None => Blame::Unknown,
        }
    }

    /// A finding against `by`.
    pub fn report(&mut self, rule: Rule, by: Blame, certainty: Certainty, text: fmt::Arguments<'_>) {
        let site = Site { connection: Some(self.id), frame: self.at.frame, time_ns: self.at.time };
        self.env.report(rule, by, site, certainty, text);
    }
}

impl<S: Sink> Judge for Court<'_, S> {
    fn judge(&mut self, rule: Rule, by: End, certainty: Certainty, text: fmt::Arguments<'_>) {
        let by = self.blame(by);
        self.report(rule, by, certainty, text);
    }
}

impl Connection {
    /// How certain a rule is that needs everything before it: one message that was not captured may explain it.
    pub fn certainty(&self) -> Certainty {
        Certainty::IfNothingWasMissed
    }

    /// A court that sits at `at`.
    pub fn court<'e, S: Sink>(&self, env: &'e mut Env<S>, at: At) -> Court<'e, S> {
        Court { env, id: self.id, client: self.client, at }
    }

    /// Whether an answer to a request that `replier` got at `request` may have been cut off.
    pub fn may_be_hidden(&self, replier: End, request: At) -> bool {
        self.hidden[replier.index()].is_some_and(|hidden| hidden.frame >= request.frame)
    }

    /// What of a protocol's port is known: a hint that decides nothing alone.
    pub fn port_hint(&self) -> Protocol {
        match self.peers.map(|p| p.port) {
            [445 | 5445, _] | [_, 445 | 5445] => Protocol::SmbDirect,
            [20049, _] | [_, 20049] => Protocol::RpcRdma,
            _ => Protocol::Unknown,
        }
    }

    /// What NFS said in the private data of the handshake (RFC 8797), by end A and B.
    pub fn rpc_rdma_private(&mut self, private: [Option<RpcRdmaPrivate>; 2]) {
        // without it on both sides, each keeps to the default
        self.inline_threshold = match private {
            [Some(a), Some(b)] => [Some(a.receive_size()), Some(b.receive_size())],
            _ => [Some(INLINE_DEFAULT); 2],
        };
    }

    /// An operation, in the receiver's order.
    pub fn op<T: Trace, S: Sink>(&mut self, env: &mut Env<S>, op: &RdmaOp<'_>, t: &mut T) {
        env.sink.op(self.id, op);
        match op.verb {
            Verb::Send | Verb::SendInvalidate => self.send(env, op, t),
            Verb::Write => self.write(env, op, t),
            Verb::ReadRequest => self.read_request(env, op, t),
            Verb::ReadResponse => self.read_response(env, op),
            Verb::Atomic | Verb::Terminate => {}
        }
    }

    fn send<T: Trace, S: Sink>(&mut self, env: &mut Env<S>, op: &RdmaOp<'_>, t: &mut T) {
        // the buffer is taken out while the message is read from it
        let mut receive = core::mem::take(&mut self.receive[op.by.index()]);
        match receive.packet(op) {
            Received::More => {
                if T::ON && op.part != Part::Only {
                    t.info(format_args!("part of a message"));
                }
            }
            Received::Tail => self.gap(env, op.at, op.by),
            Received::Whole(send) => {
                let apart = T::ON && !send.in_frame;
                if apart {
                    t.source("Reassembled Send", send.bytes);
                }
                self.message(env, op.by, &send, t);
                if apart {
                    t.end_source();
                }
            }
        }
        self.receive[op.by.index()] = receive;
    }

    /// A whole Send.
    fn message<T: Trace, S: Sink>(&mut self, env: &mut Env<S>, by: End, send: &Send<'_>, t: &mut T) {
        self.cut[by.index()] |= (send.bytes.len() as u64) < u64::from(send.wire_length);
        if self.protocol == Protocol::Unknown {
            self.probe(send);
        }
        match self.protocol {
            Protocol::SmbDirect => self.smb_direct(env, by, send, t),
            Protocol::RpcRdma => {
                let Some(mut rpc) = self.rpc.take() else { return };
                rpc.send(self, env, by, send, t);
                env.sink.upper_credits(self.id, send.last, rpc.credits_left(self.client.unwrap_or(End::A)));
                self.rpc = Some(rpc);
            }
            _ => {
                self.undecoded += 1;
                env.undecoded += 1;
                if T::ON && !send.bytes.is_empty() {
                    t.field(f::DATA, send.bytes, send.bytes.len(), Value::Bytes(send.bytes));
                }
            }
        }
    }

    /// Finds out what the connection carries, by what the Send looks like.
    fn probe(&mut self, send: &Send<'_>) {
        if self.probes >= PROBES_MAX {
            return;
        }
        self.probes += 1;
        let hint = self.port_hint();
        let smbd = smbd::looks_like(send.bytes, send.wire_length);
        let rpc = rdmascope_dissector::wire::rpcrdma::looks_like(send.bytes);
        let found = match (smbd, rpc) {
            (Some(Certainty::Certain), _) => Protocol::SmbDirect,
            (_, true) => Protocol::RpcRdma,
            // a message of credits alone has little in it that could not be something else
            (Some(_), false) if hint != Protocol::RpcRdma => Protocol::SmbDirect,
            // too short or too broken to tell, and the handshake named the port
            (None, false) if self.handshake == Handshake::Seen && self.probes == 1 => hint,
            _ => return,
        };
        self.protocol = found;
        match found {
            Protocol::SmbDirect => {
                let late = self.probes > 1 || self.missed || !smbd::begins_connection(send.bytes, send.wire_length);
                let known = self.handshake == Handshake::Seen && self.probes == 1;
                self.smbd = Some(Box::new(if late && !known { Smbd::joined_late() } else { Smbd::default() }));
                self.missed |= late && !known;
                self.smb2 = Some(Box::default());
            }
            Protocol::RpcRdma => {
                self.rpc = Some(Box::new(RpcRdma::new(self.inline_threshold)));
                if self.handshake != Handshake::Seen {
                    self.missed = true;
                }
            }
            _ => {}
        }
    }

    fn smb_direct<T: Trace, S: Sink>(&mut self, env: &mut Env<S>, by: End, send: &Send<'_>, t: &mut T) {
        let Some(mut smbd) = self.smbd.take() else { return };
        env.layer(Layer::SmbDirect);
        let mut court = self.court(env, send.last);
        // who the client is may be learnt from this very message
        if court.client.is_none()
            && smbd.link.initiator().is_none()
            && smbd::begins_connection(send.bytes, send.wire_length)
            && send.wire_length < 32
        {
            court.client = Some(by);
        }
        let stalled = smbd.link.side(by).stalled_time;
        let upper = smbd.send(by, send, t, &mut court);
        if upper.is_some() {
            env.layer(Layer::Smb2);
        }
        let carried = upper.is_some();
        if let Some(upper) = &upper {
            let mut smb2 = self.smb2.take().unwrap_or_default();
            smb2.message(self, env, by, upper, t);
            env.sink.upper_credits(self.id, send.last, smb2.credits_left());
            self.smb2 = Some(smb2);
        }
        if let Some(initiator) = smbd.link.initiator() {
            self.client = Some(initiator);
        }
        self.read_write_size = smbd.link.max_read_write_size;
        let held = [smbd.link.credits(End::A).known(), smbd.link.credits(End::B).known()];
        self.story.add(send.last.time, Least(held));
        env.sink.credits(self.id, send.last, held);
        let waited = smbd.link.side(by).stalled_time - stalled;
        self.waits.add(Cause::Credit, send.last.time.saturating_sub(waited), send.last.time);
        if T::ON {
            self.tell(held, waited, t);
        }
        if let (Some(key), false) = (send.invalidate, carried) {
            // an invalidation on a fragment or an empty message
            self.invalidated(env, send.last, by.peer(), key);
        }
        self.smbd = Some(smbd);
    }

    /// A peer's Send invalidated a key of `owner`.
    pub fn invalidated<S: Sink>(&mut self, env: &mut Env<S>, at: At, owner: End, key: u32) {
        let certainty = self.certainty();
        match self.memory.invalidate(at, owner, key) {
            Some(region) if region.state == State::Live => {}
            Some(_) => {
                let mut court = self.court(env, at);
                court.judge(
                    Rule::RdmaInvalidate,
                    owner.peer(),
                    certainty,
                    format_args!("invalidated key {key:#010x} a second time, or after its exchange"),
                );
            }
            // what advertised it was cut off
            None if self.cut[owner.index()] => {}
            None => {
                let certainty = certainty.min(Certainty::IfNothingWasMissed);
                let mut court = self.court(env, at);
                court.judge(
                    Rule::RdmaInvalidate,
                    owner.peer(),
                    certainty,
                    format_args!("invalidated key {key:#010x}, which its peer never advertised"),
                );
            }
        }
    }

    fn tell<T: Trace>(&self, held: [Option<i64>; 2], waited: i64, t: &mut T) {
        let at: &[u8] = &[];
        t.open(f::PROTOCOL, at);
        t.field(f::CONNECTION, at, 0, Value::U(self.id.into()));
        let client = self.client.unwrap_or(End::A);
        for (def, end) in [(f::CREDITS_CLIENT, client), (f::CREDITS_SERVER, client.peer())] {
            if let Some(held) = held[end.index()] {
                t.field(def, at, 0, Value::I(held));
            }
        }
        if waited > 0 {
            t.field(f::STALL, at, 0, duration(waited));
        }
        t.close(at);
    }

    /// RDMA Write bytes.
    fn write<T: Trace, S: Sink>(&mut self, env: &mut Env<S>, op: &RdmaOp<'_>, t: &mut T) {
        self.rdma.write_bytes += u64::from(op.length);
        if op.part.begins() {
            self.rdma.writes += 1;
        }
        let Placement::Memory { key, address } = op.placement else { return };
        let owner = op.by.peer();
        let (verdict, region) = self.memory.touch(owner, key, address, op.length, Right::Write);
        let region = region.copied();
        if let Some(region) = region {
            self.deliver(env, op, &region, verdict, address);
        }
        tell_key(verdict, t);
        // a Write is judged by its first packet; its length there is the whole message's
        if op.part.begins() {
            let length = op.message_length.unwrap_or(op.length);
            let verdict = match (verdict, &region) {
                (Verdict::Inside, Some(r)) if (address - r.address).saturating_add(length.into()) > r.length => Verdict::Outside,
                (v, _) => v,
            };
            self.verdict(env, op, verdict, key, address, length);
        } else if !matches!(verdict, Verdict::Inside) && op.part.ends() {
            self.verdict(env, op, verdict, key, address, op.length);
        }
    }

    fn read_request<T: Trace, S: Sink>(&mut self, env: &mut Env<S>, op: &RdmaOp<'_>, t: &mut T) {
        self.rdma.reads += 1;
        let Placement::Memory { key, address } = op.placement else { return };
        let owner = op.by.peer();
        let length = op.message_length.unwrap_or(0);
        let (verdict, region) = self.memory.touch(owner, key, address, length, Right::Read);
        tell_key(verdict, t);
        if let Some(region) = region {
            // counted again, byte by byte, when the bytes come
            region.used = region.used.saturating_sub(length.into());
            let exchange = region.exchange;
            env.exchange_of_frame = exchange;
            env.moved_of_frame = self.exchange(exchange).map_or(0, |row| row.rdma_bytes());
            if verdict == Verdict::Inside
                && let Some(row) = self.exchange(exchange)
            {
                row.reads.operations += 1;
                if row.reads.frames == 0 {
                    row.reads.first = op.at;
                }
                row.reads.last = op.at;
                row.reads.frames += 1;
            }
        }
        self.verdict(env, op, verdict, key, address, length);
    }

    fn read_response<S: Sink>(&mut self, env: &mut Env<S>, op: &RdmaOp<'_>) {
        self.rdma.read_bytes += u64::from(op.length);
        let Placement::Memory { key, address } = op.placement else { return };
        let owner = op.by;
        let (verdict, region) = self.memory.touch(owner, key, address, op.length, Right::Read);
        let Some(region) = region.copied() else { return };
        self.deliver(env, op, &region, verdict, address);
    }

    /// Payload bytes that RDMA brought, into the row of their exchange.
    fn deliver<S: Sink>(&mut self, env: &mut Env<S>, op: &RdmaOp<'_>, region: &crate::memory::Region, verdict: Verdict, address: u64) {
        if matches!(verdict, Verdict::Outside | Verdict::Unknown) {
            return;
        }
        let offset = region.payload_offset + (address - region.address);
        let write = op.verb == Verb::Write;
        let at = op.at;
        let payloads = env.options.payloads;
        env.exchange_of_frame = region.exchange;
        if let Some(row) = self.exchange(region.exchange) {
            let transfer = if write { &mut row.writes } else { &mut row.reads };
            if transfer.frames == 0 {
                transfer.first = at;
            }
            transfer.last = at;
            transfer.frames += 1;
            transfer.bytes += u64::from(op.length);
            if write && op.part.begins() {
                transfer.operations += 1;
            }
            env.moved_of_frame = row.rdma_bytes();
            if payloads && verdict != Verdict::Stale {
                self.payload(region.exchange, offset, op);
            }
        }
        if let Some(rpc) = self.rpc.as_mut() {
            rpc.delivered(region, address - region.address, op);
        }
    }

    fn payload(&mut self, exchange: u64, offset: u64, op: &RdmaOp<'_>) {
        if let Some(smb2) = self.smb2.as_mut() {
            smb2.payload(exchange, offset, op.bytes);
        }
        if let Some(rpc) = self.rpc.as_mut() {
            rpc.payload(exchange, offset, op.bytes);
        }
    }

    fn exchange(&mut self, id: u64) -> Option<&mut crate::exchange::Exchange> {
        if let Some(smb2) = self.smb2.as_mut() {
            return smb2.open_exchange(id);
        }
        self.rpc.as_mut().and_then(|rpc| rpc.open_exchange(id))
    }

    fn verdict<S: Sink>(&mut self, env: &mut Env<S>, op: &RdmaOp<'_>, verdict: Verdict, key: u32, address: u64, length: u32) {
        let (at, by) = (op.at, op.by);
        let wanted = if op.verb == Verb::Write { Right::Write } else { Right::Read };
        let what = if wanted == Right::Write { "wrote" } else { "read" };
        let certainty = self.certainty();
        let region = self.memory.find(by.peer(), key).copied();
        let mut court = self.court(env, at);
        match verdict {
            Verdict::Inside => return,
            Verdict::Unknown => {
                if self.protocol == Protocol::Unknown || self.missed || self.cut[by.peer().index()] {
                    // what advertised it may not have been seen or not understood
                    return;
                }
                court.judge(
                    Rule::RdmaKeyUnknown,
                    by,
                    certainty,
                    format_args!("{what} {length} bytes with key {key:#010x}, which its peer never advertised"),
                );
            }
            Verdict::Outside => {
                let (from, size) = region.map_or((0, 0), |r| (r.address, r.length));
                court.judge(
                    Rule::RdmaKeyBounds,
                    by,
                    certainty,
                    format_args!("{what} {length} bytes at {address:#x} with key {key:#010x}, which covers {size} bytes at {from:#x}"),
                );
            }
            Verdict::Stale
                if wanted == Right::Write && region.is_some_and(|r| matches!(r.state, State::Ended(end) if at.time - end.time < LATE)) =>
            {
                let text = format_args!("wrote {length} bytes with key {key:#010x} after the reply that says they are there");
                court.judge(Rule::RdmaOrder, by, certainty, text);
            }
            Verdict::Stale => {
                court.judge(
                    Rule::RdmaKeyStale,
                    by,
                    certainty,
                    format_args!("{what} {length} bytes with key {key:#010x} after it was invalidated or its exchange had ended"),
                );
            }
            Verdict::Direction => {
                let purpose = if wanted == Right::Write { "reading" } else { "writing" };
                court.judge(
                    Rule::RdmaKeyDirection,
                    by,
                    certainty,
                    format_args!("{what} {length} bytes with key {key:#010x}, advertised for {purpose} only"),
                );
            }
        }
        self.rdma.outside_advertised += 1;
    }

    /// Bytes in order of a TCP connection that is not iWARP.
    pub(crate) fn stream<T: Trace, S: Sink>(&mut self, env: &mut Env<S>, piece: &StreamBytes<'_>, t: &mut T) {
        if self.stream_kind == stream::Kind::Other {
            return;
        }
        if self.stream_kind == stream::Kind::Undecided {
            self.stream_kind = stream::probe(piece.bytes);
            match self.stream_kind {
                stream::Kind::Smb2 => {
                    self.protocol = Protocol::Smb2;
                    self.smb2 = Some(Box::default());
                }
                stream::Kind::Rpc => {
                    self.protocol = Protocol::Rpc;
                    self.rpc = Some(Box::new(RpcRdma::new([None; 2])));
                }
                stream::Kind::Other | stream::Kind::Undecided => return,
            }
        }
        if piece.missing > 0 {
            self.cut[piece.by.index()] = true;
            self.hidden[piece.by.index()] = Some(piece.at);
            if let Some(smb2) = self.smb2.as_mut() {
                smb2.missed();
            }
        }
        let kind = self.stream_kind;
        let mut direction = core::mem::take(&mut self.streams[piece.by.index()]);
        direction.take(kind, piece, &mut |message| {
            let apart = T::ON && !message.in_frame;
            if apart {
                t.source("Reassembled TCP", message.bytes);
            }
            if kind == stream::Kind::Smb2 {
                env.layer(Layer::Smb2);
                let mut smb2 = self.smb2.take().unwrap_or_default();
                smb2.message(self, env, piece.by, &Upper::of_stream(message), t);
                self.smb2 = Some(smb2);
            } else if let Some(mut rpc) = self.rpc.take() {
                rpc.record(self, env, piece.by, message, t);
                self.rpc = Some(rpc);
            }
            if apart {
                t.end_source();
            }
        });
        self.streams[piece.by.index()] = direction;
    }

    /// MaxReadWriteSize, where SMB Direct agreed on one.
    pub fn smbd_read_write_size(&self) -> Option<u32> {
        self.read_write_size
    }

    /// Packets of `by` are missing.
    pub fn gap<S: Sink>(&mut self, _env: &mut Env<S>, _at: At, by: End) {
        self.missed = true;
        self.receive[by.index()].reset();
        self.streams[by.index()].gap();
        if let Some(smbd) = self.smbd.as_mut() {
            smbd.missed(by);
        }
        if let Some(smb2) = self.smb2.as_mut() {
            smb2.missed();
        }
        if let Some(rpc) = self.rpc.as_mut() {
            rpc.missed();
        }
    }

    /// Memory that is still advertised when the connection ends.
    fn judge_leaks<S: Sink>(&mut self, env: &mut Env<S>, at: At) {
        for owner in End::BOTH {
            let left = self.memory.all().filter(|(o, _, region)| *o == owner && region.state == State::Live).count();
            let Some(first) = self.memory.all().filter(|(o, _, r)| *o == owner && r.state == State::Live).map(|(.., r)| r.advertised).min()
            else {
                continue;
            };
            if at.time - first.time > LATE {
                let certainty = Certainty::Guess.max(if self.missed { Certainty::Guess } else { self.certainty() });
                let mut court = self.court(env, first);
                court.judge(Rule::RdmaKeyLeak, owner, certainty, format_args!("left {left} keys advertised whose exchange never ended"));
            }
        }
    }

    /// A DREQ, or another end, while requests wait for their replies.
    fn judge_end<S: Sink>(&mut self, env: &mut Env<S>) {
        let Some((by, how, at)) = self.closed else { return };
        let waiting = self.smb2.as_ref().map_or(0, |s| s.outstanding()) + self.rpc.as_ref().map_or(0, |r| r.outstanding());
        if waiting == 0 {
            return;
        }
        let certainty = self.certainty();
        let mut court = self.court(env, at);
        let blame = by.map_or(Blame::Unknown, |by| court.blame(by));
        court.report(
            Rule::CmDisconnect,
            blame,
            certainty,
            format_args!("ended the connection ({how}) with {waiting} requests outstanding"),
        );
    }

    /// The connection ends, or the capture does.
    pub fn finish<S: Sink>(&mut self, env: &mut Env<S>, at: At) {
        let by = self.closed.and_then(|(by, ..)| by);
        let at = self.closed.map_or(at, |(_, _, at)| at);
        self.judge_end(env);
        self.judge_leaks(env, at);
        if let Some(mut smbd) = self.smbd.take() {
            let mut court = self.court(env, at);
            smbd.link.closed(at, by, &mut court);
            self.smbd = Some(smbd);
        }
        if let Some(mut smb2) = self.smb2.take() {
            smb2.finish(self, env, at);
            self.smb2 = Some(smb2);
        }
        if let Some(mut rpc) = self.rpc.take() {
            rpc.finish(self, env, at);
            self.rpc = Some(rpc);
        }
    }

    /// What goes into the report.
    pub fn into_report(self) -> crate::report::Connection {
        crate::report::Connection::of(&self)
    }

    /// Takes over the other half of a connection whose directions were first taken for two.
    pub fn adopt(&mut self, by: End, from: &mut Self, from_end: End) {
        self.peers[by.index()].address = from.peers[from_end.index()].address;
        self.receive[by.index()] = core::mem::take(&mut from.receive[from_end.index()]);
        self.memory.adopt(by, &mut from.memory, from_end);
        self.first = self.first.min(from.first);
        self.last = self.last.max(from.last);
        self.health.join(&from.health);
        self.rdma.reads += from.rdma.reads;
        self.rdma.read_bytes += from.rdma.read_bytes;
        self.rdma.writes += from.rdma.writes;
        self.rdma.write_bytes += from.rdma.write_bytes;
        if self.protocol == Protocol::Unknown {
            self.protocol = from.protocol;
            self.smbd = from.smbd.take();
            self.smb2 = from.smb2.take();
            self.rpc = from.rpc.take();
        } else if self.protocol == from.protocol
            && let (Some(mine), Some(theirs)) = (self.smbd.as_mut(), from.smbd.as_mut())
        {
            mine.adopt(by, theirs, from_end);
        }
        self.mirrors.add(from.mirrors);
        self.cut[by.index()] |= from.cut[from_end.index()];
        self.hidden[by.index()] = self.hidden[by.index()].max(from.hidden[from_end.index()]);
        self.missed = true;
    }
}

fn tell_key<T: Trace>(verdict: Verdict, t: &mut T) {
    if T::ON {
        t.field(f::KEY_STATE, &[], 0, Value::Text(format_args!("{}", verdict.name())));
    }
}

fn duration(ns: i64) -> Value<'static> {
    const SECOND: i64 = 1_000_000_000;
    Value::Time { seconds: ns.div_euclid(SECOND), nanos: ns.rem_euclid(SECOND) as u32 }
}

/// Tells the observer what a whole frame came to: its exchange, and the rules that it breaks.
pub fn tell_frame<S, T: Trace>(env: &Env<S>, tunnel: Option<&Tunnel>, t: &mut T) {
    if env.exchange_of_frame == 0 && env.broken_in_frame.is_empty() && tunnel.is_none() {
        return;
    }
    let at: &[u8] = &[];
    t.open(f::PROTOCOL, at);
    if let Some(tunnel) = tunnel {
        t.field(f::MIRROR, at, 0, Value::Text(format_args!("{}", tunnel.kind.name())));
        t.field(f::MIRROR_SESSION, at, 0, Value::U(tunnel.id.into()));
        t.field(f::MIRROR_TRUNCATED, at, 0, Value::U(tunnel.truncated.into()));
    }
    if env.exchange_of_frame > 0 {
        t.field(f::EXCHANGE, at, 0, Value::U(env.exchange_of_frame));
        if env.moved_of_frame > 0 {
            t.field(f::EXCHANGE_BYTES, at, 0, Value::U(env.moved_of_frame));
        }
        if let Some((request, latency)) = env.answered_in_frame {
            t.field(f::EXCHANGE_REQUEST, at, 0, Value::U(request));
            t.field(f::EXCHANGE_TIME, at, 0, duration(latency));
            if let Some(answer) = &env.answer_of_frame {
                t.field(f::EXCHANGE_COMMAND, at, 0, Value::Text(format_args!("{}", answer.command)));
                if let Some(file) = &answer.file {
                    t.field(f::EXCHANGE_FILE, at, 0, Value::Text(format_args!("{file}")));
                }
            }
        }
    }
    for broken in &env.broken_in_frame {
        let row = broken.rule.row();
        let (id, severity, section, by) = (row.id, broken.severity.name(), row.spec, broken.by.name());
        t.open(f::FINDING, at);
        t.field(f::FINDING_ID, at, 0, Value::Text(format_args!("{id}")));
        t.field(f::FINDING_SEVERITY, at, 0, Value::Text(format_args!("{severity}")));
        t.field(f::FINDING_SECTION, at, 0, Value::Text(format_args!("{section}")));
        t.field(f::FINDING_BY, at, 0, Value::Text(format_args!("{by}")));
        t.field(f::FINDING_CERTAINTY, at, 0, Value::Text(format_args!("{}", broken.certainty.name())));
        t.field(f::FINDING_TEXT, at, 0, Value::Text(format_args!("{}", broken.text)));
        t.close(at);
    }
    t.close(at);
}

/// Tells the observer which connection a frame is of.
pub fn tell_connection<T: Trace>(id: u32, t: &mut T) {
    t.field(f::CONNECTION, &[], 0, Value::U(id.into()));
}
