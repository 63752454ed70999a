//! RPC-over-RDMA connections, RFC 8166 (and RFC 8167 for the backward direction): calls and replies matched, chunks joined
//! to the RDMA that filled them, credits, and the rules.
//!
//! ```text
//!  caller ── Send: RDMA_MSG, read list, write list, reply chunk, RPC call ──▶ responder
//!  caller ◀── RDMA Read of the read list ──────────────────────────────────── responder
//!  caller ◀── RDMA Write of the write list and the reply chunk ────────────── responder
//!  caller ◀── Send: RDMA_MSG or RDMA_NOMSG, RPC reply ─────────────────────── responder
//! ```

use crate::connection::Connection;
use crate::env::{Env, Layer};
use crate::exchange::{Channel, Descriptor, Exchange, Family};
use crate::finding::{Certainty, Rule};
use crate::memory::{Region, Right, State};
use crate::op::{At, End, RdmaOp};
use crate::payload::Payload;
use crate::receive::Send;
use crate::report::Sink;
use crate::smbd::link::{Judge, Seen};
use crate::stats::Commands;
use crate::stream;
use alloc::boxed::Box;
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;
use hashbrown::HashMap;
use rdmascope_dissector::trace::{Off, Trace};
use rdmascope_dissector::wire::nfs::{self, Op};
use rdmascope_dissector::wire::rpc::{self, GssService, Memo, Message, Outcome};
use rdmascope_dissector::wire::rpcrdma::{Error, Proc, RpcRdma as Header, Segment};
use rdmascope_dissector::wire::xdr::Stream;

/// Bytes of a message in a Position-Zero Read chunk or a reply chunk put together at most.
const LONG_MAX: usize = 1 << 20;
/// File handles whose names are remembered at most.
const NAMES_MAX: usize = 4096;
/// Inline threshold without RFC 8797 private data, in bytes (RFC 8166 3.3.2).
pub const INLINE_DEFAULT: u32 = 1024;
/// What a server reads for one call at most, with slack, before it is worth a note.
const READ_BUDGET: u64 = (1 << 20) + (1 << 16);

/// The region holds (part of) the call itself.
const LONG_CALL: u32 = 1 << 31;
/// The region is part of the reply chunk.
const LONG_REPLY: u32 = 1 << 30;

/// Credits of one direction: who calls is the index.
#[derive(Clone, Copy, Debug, Default)]
pub struct Credits {
    /// Granted by the last reply.
    pub granted: Seen<u32>,
    /// Asked for by the last call.
    pub requested: u32,
    /// Most asked for.
    pub requested_max: u32,
    /// Calls without reply.
    pub outstanding: u32,
    /// Most of those at a time.
    pub outstanding_max: u32,
    /// Calls.
    pub calls: u64,
    /// Calls beyond the grant.
    pub overruns: u64,
    replied: bool,
}

/// A call without its reply.
#[derive(Debug)]
struct Pending {
    exchange: Exchange,
    memo: Option<Memo>,
    regions: Vec<(u32, Region)>,
    long: Vec<u8>,
    long_have: u64,
    long_want: u64,
    segments: Vec<Segment>,
    chunk_sizes: Vec<u32>,
    reply_segments: Vec<Segment>,
    /// What was learnt of its file while it was decoded.
    names: Names,
    payload: Option<Box<Payload>>,
}

/// The state of one RPC-over-RDMA connection.
#[derive(Debug, Default)]
pub struct RpcRdma {
    /// By the end that calls.
    pub credits: [Credits; 2],
    /// Bytes of one Send to each end, where the handshake said so.
    pub inline_threshold: [Option<u32>; 2],
    /// Messages by sender.
    pub messages: [u64; 2],
    /// Exchanges by command.
    pub commands: Commands,
    pending: HashMap<(End, u32), Box<Pending>>,
    by_exchange: HashMap<u64, (End, u32)>,
    handles: HashMap<Vec<u8>, Arc<str>>,
}

/// What a decoded call or reply says of files.
#[derive(Clone, Debug, Default)]
struct Names {
    command: Option<(&'static str, u8)>,
    handle: Option<Vec<u8>>,
    name: Option<String>,
    got: Option<Vec<u8>>,
    offset: Option<u64>,
    count: Option<u32>,
    status: Option<u32>,
}

impl Pending {
    fn new(exchange: Exchange) -> Self {
        Self {
            exchange,
            memo: None,
            regions: Vec::new(),
            long: Vec::new(),
            long_have: 0,
            long_want: 0,
            segments: Vec::new(),
            chunk_sizes: Vec::new(),
            reply_segments: Vec::new(),
            names: Names::default(),
            payload: None,
        }
    }
}

impl Names {
    /// Forgets what the call said and the reply will say again.
    fn begin_reply(&mut self) {
        *self = Self { handle: self.handle.take(), name: self.name.take(), command: self.command, ..Self::default() };
    }

    fn take(&mut self, memo: Option<&Memo>, op: &Op<'_>) {
        let name = memo.and_then(|m| operation_name(m, op));
        if let Some(name) = name {
            let rank = rank_of(name);
            if self.command.is_none_or(|(_, r)| rank >= r) {
                self.command = Some((name, rank));
            }
        }
        if let Some(io) = op.io {
            self.offset = Some(io.offset);
            self.count = Some(io.count);
        }
        if let Some(file) = op.name {
            self.name = Some(String::from_utf8_lossy(file).into_owned());
        }
        if let Some(handle) = op.handle {
            if self.handle.is_none() {
                self.handle = Some(handle.to_vec());
            }
            self.got = Some(handle.to_vec());
        }
        if let Some(status) = op.status.filter(|s| *s != 0) {
            self.status = Some(status);
        }
    }
}

fn operation_name(memo: &Memo, op: &Op<'_>) -> Option<&'static str> {
    match (op.callback, memo.version) {
        (true, _) => nfs::v4::CallbackOperation(op.code).name(),
        (false, 4) => nfs::v4::Operation(op.code).name(),
        _ => memo.procedure_name(),
    }
}

/// Which operation of a compound gives it its name: what does something, before what leads up to it.
fn rank_of(name: &str) -> u8 {
    match name {
        "SEQUENCE" | "CB_SEQUENCE" | "PUTFH" | "PUTROOTFH" | "SAVEFH" | "RESTOREFH" => 0,
        "GETFH" | "GETATTR" | "ACCESS" | "VERIFY" | "NVERIFY" => 1,
        "LOOKUP" | "LOOKUPP" => 2,
        _ => 3,
    }
}

impl RpcRdma {
    /// Calls that `caller` may still send before a reply comes, where that is known.
    pub fn credits_left(&self, caller: End) -> Option<i64> {
        let credits = &self.credits[caller.index()];
        Some(i64::from(credits.granted.known()?) - i64::from(credits.outstanding))
    }

    /// A connection whose ends take so many bytes inline, where that is known.
    pub fn new(inline_threshold: [Option<u32>; 2]) -> Self {
        Self { inline_threshold, ..Self::default() }
    }

    /// The row of an exchange that is not complete.
    pub fn open_exchange(&mut self, id: u64) -> Option<&mut Exchange> {
        let key = self.by_exchange.get(&id)?;
        self.pending.get_mut(key).map(|p| &mut p.exchange)
    }

    /// Calls without their reply.
    pub fn outstanding(&self) -> usize {
        self.pending.len()
    }

    /// Messages are missing: what is outstanding and granted is not known for sure.
    pub fn missed(&mut self) {
        for credits in &mut self.credits {
            credits.granted = Seen::Unseen;
            credits.replied = true;
        }
    }

    /// Bytes that RDMA moved for a region of this connection.
    pub fn delivered(&mut self, region: &Region, offset: u64, op: &RdmaOp<'_>) {
        if region.index & (LONG_CALL | LONG_REPLY) == 0 {
            return;
        }
        let Some(pending) = self.by_exchange.get(&region.exchange).and_then(|key| self.pending.get_mut(key)) else { return };
        let at = usize::try_from(region.payload_offset.saturating_add(offset)).unwrap_or(usize::MAX);
        let Some(end) = at.checked_add(op.bytes.len()).filter(|end| *end <= LONG_MAX) else { return };
        if pending.long.len() < end {
            pending.long.resize(end, 0);
        }
        pending.long[at..end].copy_from_slice(op.bytes);
        pending.long_have += op.bytes.len() as u64;
    }

    /// Payload bytes of an exchange.
    pub fn payload(&mut self, exchange: u64, offset: u64, bytes: &[u8]) {
        let Some(pending) = self.by_exchange.get(&exchange).and_then(|key| self.pending.get_mut(key)) else { return };
        pending.payload.get_or_insert_default().put(offset, bytes);
    }

    /// A whole Send.
    pub fn send<T: Trace, S: Sink>(&mut self, connection: &mut Connection, env: &mut Env<S>, by: End, send: &Send<'_>, t: &mut T) {
        env.layer(Layer::RpcRdma);
        self.messages[by.index()] += 1;
        let certainty = connection.certainty();
        let mut court = connection.court(env, send.last);
        if let Some(limit) = self.inline_threshold[by.peer().index()].filter(|limit| send.wire_length > *limit) {
            let length = send.wire_length;
            court.judge(Rule::RpcrdmaInline, by, certainty, format_args!("sent {length} bytes inline; its peer takes {limit}"));
        }
        let header = match Header::parse(send.bytes, t) {
            Ok((_, header)) => header,
            Err(_) => {
                if send.bytes.len() as u64 >= u64::from(send.wire_length) {
                    court.judge(Rule::RpcrdmaMalformed, by, Certainty::Certain, format_args!("sent chunk lists that end before their end"));
                } else {
                    connection.hidden[by.index()] = Some(send.last);
                }
                return;
            }
        };
        if header.fixed.version != 1 {
            let version = header.fixed.version;
            court.judge(Rule::RpcrdmaVersion, by, Certainty::Certain, format_args!("sent RPC-over-RDMA version {version}"));
            return;
        }
        match header.proc() {
            Proc::MSG | Proc::NOMSG => {}
            Proc::ERROR => return self.error(connection, env, by, send, &header),
            proc @ (Proc::MSGP | Proc::DONE) => {
                court.judge(Rule::RpcrdmaProc, by, Certainty::Certain, format_args!("sent {proc}, which is not to be sent any more"));
                if proc == Proc::DONE {
                    return;
                }
            }
            proc => {
                court.judge(Rule::RpcrdmaProc, by, Certainty::Certain, format_args!("sent the unknown message type {}", proc.0));
                return;
            }
        }
        let xid = header.fixed.xid;
        let is_reply = match header.payload.get(4..8) {
            Some(kind) if !header.is_long() => kind == [0, 0, 0, 1],
            // a long call has its Position-Zero chunk; a long reply answers a call
            _ => !header.reads.has_message() && self.pending.contains_key(&(by.peer(), xid)),
        };
        if is_reply { self.reply(connection, env, by, send, &header, t) } else { self.call(connection, env, by, send, &header, t) }
    }

    /// A whole RPC message that came over plain TCP.
    pub fn record<T: Trace, S: Sink>(
        &mut self,
        connection: &mut Connection,
        env: &mut Env<S>,
        by: End,
        message: &stream::Message<'_>,
        t: &mut T,
    ) {
        env.layer(Layer::Rpc);
        self.messages[by.index()] += 1;
        let stream = Stream::whole(message.bytes);
        let word = |at: usize| message.bytes.get(at..at + 4).and_then(|b| b.first_chunk::<4>()).map(|b| u32::from_be_bytes(*b));
        let (Some(xid), Some(kind)) = (word(0), word(4)) else { return };
        let send = Send {
            first: message.first,
            last: message.last,
            bytes: message.bytes,
            wire_length: message.wire_length,
            invalidate: None,
            in_frame: message.in_frame,
            packets: 1,
        };
        if kind == 0 {
            connection.client.get_or_insert(by);
            let id = env.number_exchange();
            env.exchange_of_frame = id;
            env.moved_of_frame = 0;
            let mut pending = Box::new(Pending::new(row(id, connection, xid, &send)));
            decode(&stream, &mut pending, t, env);
            self.name_call(&mut pending);
            self.remember(env, by, xid, pending);
            return;
        }
        let Some(mut pending) = self.pending.remove(&(by.peer(), xid)) else {
            let _ = rpc::dissect(&stream, None, t, &mut ());
            return;
        };
        self.by_exchange.remove(&pending.exchange.id);
        env.answered(&pending.exchange, message.last);
        pending.names.begin_reply();
        decode(&stream, &mut pending, t, env);
        self.answered(connection, env, by.peer(), &send, pending);
    }

    /// Keeps a call until its reply comes.
    fn remember<S: Sink>(&mut self, env: &mut Env<S>, by: End, xid: u32, pending: Box<Pending>) {
        if self.pending.len() >= env.options.requests_max {
            env.requests_dropped += 1;
            if let Some(key) = self.pending.keys().next().copied()
                && let Some(old) = self.pending.remove(&key)
            {
                self.by_exchange.remove(&old.exchange.id);
            }
        }
        self.by_exchange.insert(pending.exchange.id, (by, xid));
        if let Some(old) = self.pending.insert((by, xid), pending) {
            self.by_exchange.remove(&old.exchange.id);
        }
    }

    /// A reply was decoded: the row is complete.
    fn answered<S: Sink>(
        &mut self,
        connection: &mut Connection,
        env: &mut Env<S>,
        caller: End,
        send: &Send<'_>,
        mut pending: Box<Pending>,
    ) {
        if let (Some(name), Some(got)) = (&pending.names.name, &pending.names.got) {
            if self.handles.len() >= NAMES_MAX {
                self.handles.clear();
            }
            self.handles.insert(got.clone(), Arc::from(name.as_str()));
        }
        let exchange = &mut pending.exchange;
        exchange.reply = Some(send.first);
        exchange.reply_end = Some(send.last);
        exchange.status = exchange.status.or(Some(pending.names.status.unwrap_or(0)));
        exchange.failed |= pending.names.status.is_some();
        exchange.bytes_moved = match exchange.command {
            "READ" | "WRITE" => pending.names.count.or(exchange.length).unwrap_or(0).into(),
            _ => exchange.reads.bytes + exchange.writes.bytes,
        };
        self.complete(connection, env, send.last, caller, *pending);
    }

    fn call<T: Trace, S: Sink>(
        &mut self,
        connection: &mut Connection,
        env: &mut Env<S>,
        by: End,
        send: &Send<'_>,
        header: &Header<'_>,
        t: &mut T,
    ) {
        let xid = header.fixed.xid;
        let sure = Certainty::Certain;
        let certainty = connection.certainty();
        if connection.client.is_none() {
            connection.client = Some(by);
        }
        let backward = connection.client == Some(by.peer());
        let mut court = connection.court(env, send.last);
        let chunks = !header.reads.is_empty() || !header.writes.is_empty() || header.reply.is_some();
        if backward && (chunks || header.is_long()) {
            court.judge(
                Rule::RpcrdmaBackward,
                by,
                certainty,
                format_args!("sent a backward call with chunks or without an inline message"),
            );
        }
        if header.is_long() && !header.reads.has_message() && header.reply.is_none() {
            court.judge(
                Rule::RpcrdmaNomsg,
                by,
                sure,
                format_args!("sent RDMA_NOMSG with neither a Position-Zero Read chunk nor a reply chunk"),
            );
        }
        let is_cut = (send.bytes.len() as u64) < u64::from(send.wire_length);
        self.chunk_rules(by, header, is_cut, &mut court);
        let credits = &mut self.credits[by.index()];
        credits.calls += 1;
        credits.requested = header.fixed.credits;
        credits.requested_max = credits.requested_max.max(header.fixed.credits);
        credits.outstanding += 1;
        credits.outstanding_max = credits.outstanding_max.max(credits.outstanding);
        match credits.granted {
            Seen::Known(granted) if credits.outstanding > granted => {
                credits.overruns += 1;
                let outstanding = credits.outstanding;
                court.judge(
                    Rule::RpcrdmaCreditOverrun,
                    by,
                    certainty,
                    format_args!("has {outstanding} calls outstanding; {granted} were granted"),
                );
            }
            Seen::Unseen if !credits.replied && credits.outstanding == 2 => {
                court.judge(
                    Rule::RpcrdmaCreditFirst,
                    by,
                    certainty.min(Certainty::IfNothingWasMissed),
                    format_args!("sent a second call before the first reply had granted credits"),
                );
            }
            _ => {}
        }
        if self.pending.contains_key(&(by, xid)) {
            court.judge(Rule::RpcrdmaXid, by, certainty, format_args!("used XID {xid:#010x} again while its call was outstanding"));
            if let Some(old) = self.pending.remove(&(by, xid)) {
                self.by_exchange.remove(&old.exchange.id);
                self.credits[by.index()].outstanding -= 1;
            }
        }
        let id = env.number_exchange();
        env.exchange_of_frame = id;
        env.moved_of_frame = 0;
        let mut pending = Box::new(Pending::new(row(id, connection, xid, send)));
        self.advertise(connection, env, by, send.last, header, &mut pending);
        if !header.is_long() {
            let stream = Stream::inline(header);
            decode(&stream, &mut pending, t, env);
            if pending.memo.is_some()
                && let Some(inner) = header.payload.first_chunk::<4>().map(|b| u32::from_be_bytes(*b)).filter(|inner| *inner != xid)
            {
                let mut court = connection.court(env, send.last);
                court.judge(
                    Rule::RpcrdmaXid,
                    by,
                    sure,
                    format_args!("has XID {xid:#010x} in the header and {inner:#010x} in the RPC message"),
                );
            }
        } else if T::ON {
            t.info(format_args!("the call is in a Position-Zero Read chunk"));
        }
        self.name_call(&mut pending);
        self.remember(env, by, xid, pending);
    }

    /// What the chunk lists of a call must be.
    fn chunk_rules<J: Judge>(&self, by: End, header: &Header<'_>, is_cut: bool, court: &mut J) {
        let sure = Certainty::Certain;
        let inline = if header.is_long() || is_cut { u64::MAX } else { header.payload.len() as u64 };
        let (mut last, mut removed) = (0u64, 0u64);
        for segment in header.reads.iter() {
            let position = u64::from(segment.position);
            if position % 4 != 0 {
                court.judge(Rule::RpcrdmaPosition, by, sure, format_args!("has a read chunk at position {position}, not a multiple of 4"));
            } else if position < last {
                court.judge(Rule::RpcrdmaPosition, by, sure, format_args!("has a read chunk at position {position} behind one at {last}"));
            } else if position > inline.saturating_add(removed) {
                court.judge(
                    Rule::RpcrdmaPosition,
                    by,
                    sure,
                    format_args!("has a read chunk at position {position}, past the end of the message"),
                );
                court.judge(Rule::BugCve202689526, by, sure, format_args!("has a read chunk at position {position}, past the inline body"));
            }
            last = last.max(position);
            if position > 0 {
                removed += u64::from(segment.length);
            }
            if segment.offset.checked_add(segment.length.into()).is_none() {
                let (offset, length) = (segment.offset, segment.length);
                court.judge(Rule::BugCve202689533, by, sure, format_args!("has a segment of {length} bytes at {offset:#x}, which wraps"));
            }
        }
        let whole = header.reads.length();
        if whole > READ_BUDGET {
            court.judge(Rule::BugCve202689528, by, sure, format_args!("offers {whole} bytes in read chunks"));
        }
        for chunk in header.writes.iter() {
            if chunk.is_empty() {
                court.judge(Rule::BugCve202689532, by, sure, format_args!("has a write chunk without segments"));
            }
        }
        if header.reply.is_some_and(|c| c.is_empty()) {
            court.judge(Rule::BugCve202693228, by, sure, format_args!("has a reply chunk without segments"));
        }
    }

    fn advertise<S: Sink>(
        &mut self,
        connection: &mut Connection,
        env: &mut Env<S>,
        by: End,
        at: At,
        header: &Header<'_>,
        pending: &mut Pending,
    ) {
        let exchange = pending.exchange.id;
        let mut index = 0;
        let certainty = connection.certainty();
        let mut add = |segment: Segment,
                       right: Right,
                       flag: u32,
                       payload_offset: u64,
                       pending: &mut Pending,
                       connection: &mut Connection,
                       env: &mut Env<S>| {
            let region = Region {
                address: segment.offset,
                length: segment.length.into(),
                right,
                exchange,
                index: index | flag,
                payload_offset,
                advertised: at,
                state: State::Live,
                used: 0,
            };
            if connection.memory.advertise(by, segment.handle, region).is_some() {
                let key = segment.handle;
                let mut court = connection.court(env, at);
                court.judge(Rule::RdmaKeyReuse, by, certainty, format_args!("advertised key {key:#010x} again while it was live"));
            }
            connection.rdma.keys_advertised += 1;
            pending.regions.push((segment.handle, region));
            if flag == 0 {
                let count = pending.exchange.descriptor_count as usize;
                if let Some(slot) = pending.exchange.descriptors.get_mut(count) {
                    *slot = Descriptor { offset: segment.offset, token: segment.handle, length: segment.length };
                }
                pending.exchange.descriptor_count += 1;
                pending.exchange.channel = Channel::Rdma;
            }
            index += 1;
        };
        let (mut long, mut data) = (0, 0);
        for segment in header.reads.iter() {
            let (flag, offset) = if segment.position == 0 { (LONG_CALL, &mut long) } else { (0, &mut data) };
            add(segment.segment(), Right::Read, flag, *offset, pending, connection, env);
            *offset += u64::from(segment.length);
        }
        pending.long_want = long;
        let mut data = 0;
        for chunk in header.writes.iter() {
            pending.chunk_sizes.push(chunk.len() as u32);
            for segment in chunk.segments() {
                pending.segments.push(segment);
                add(segment, Right::Write, 0, data, pending, connection, env);
                data += u64::from(segment.length);
            }
        }
        let mut long = 0;
        for segment in header.reply.iter().flat_map(|c| c.segments()) {
            pending.reply_segments.push(segment);
            add(segment, Right::Write, LONG_REPLY, long, pending, connection, env);
            long += u64::from(segment.length);
        }
    }

    fn name_call(&self, pending: &mut Pending) {
        let names = &pending.names;
        if let Some((command, _)) = names.command {
            pending.exchange.command = command;
        } else if let Some(name) = pending.memo.and_then(|m| m.procedure_name()) {
            pending.exchange.command = name;
        }
        pending.exchange.offset = names.offset;
        pending.exchange.length = names.count;
        let known = names.handle.as_ref().and_then(|h| self.handles.get(h.as_slice())).cloned();
        pending.exchange.file = match (&names.name, known) {
            (Some(name), _) => Some(Arc::from(name.as_str())),
            (None, known) => known,
        };
    }

    fn reply<T: Trace, S: Sink>(
        &mut self,
        connection: &mut Connection,
        env: &mut Env<S>,
        by: End,
        send: &Send<'_>,
        header: &Header<'_>,
        t: &mut T,
    ) {
        let xid = header.fixed.xid;
        let caller = by.peer();
        let sure = Certainty::Certain;
        let certainty = connection.certainty();
        if connection.client.is_none() {
            connection.client = Some(caller);
        }
        let credits = &mut self.credits[caller.index()];
        credits.outstanding = credits.outstanding.saturating_sub(1);
        credits.granted = Seen::Known(header.fixed.credits);
        credits.replied = true;
        let mut court = connection.court(env, send.last);
        if header.fixed.credits == 0 {
            court.judge(Rule::RpcrdmaCreditZero, by, sure, format_args!("granted 0 credits"));
        }
        let pending = self.pending.remove(&(caller, xid));
        let Some(mut pending) = pending else {
            // else its call may be what was cut off
            if connection.hidden[caller.index()].is_none() {
                court.judge(
                    Rule::RpcrdmaXid,
                    by,
                    certainty.min(Certainty::IfNothingWasMissed),
                    format_args!("answered XID {xid:#010x}, of which there is no call"),
                );
            }
            if !header.is_long() {
                let _ = rpc::dissect(&Stream::inline(header), None, t, &mut ());
            }
            env.layer(Layer::Rpc);
            return;
        };
        self.by_exchange.remove(&pending.exchange.id);
        env.answered(&pending.exchange, send.last);
        let mut court = connection.court(env, send.last);
        if connection.client == Some(by) && (header.is_long() || !header.writes.is_empty()) {
            court.judge(
                Rule::RpcrdmaBackward,
                by,
                certainty,
                format_args!("answered a backward call with chunks or without an inline message"),
            );
        }
        self.shape(by, header, &pending, connection.missed, &mut court);
        pending.names.begin_reply();
        let memo = pending.memo;
        if memo.is_none() && pending.long_want > 0 && pending.long_have >= pending.long_want {
            // the call was in a Position-Zero Read chunk: it is whole now
            let long = core::mem::take(&mut pending.long);
            if T::ON {
                t.source("Reassembled call", &long);
            }
            decode(&Stream::whole(&long), &mut pending, t, env);
            if T::ON {
                t.end_source();
            }
            self.name_call(&mut pending);
        }
        if header.is_long() {
            let written: u64 = header.reply.map_or(0, |c| c.length());
            let mut long = core::mem::take(&mut pending.long);
            long.truncate(usize::try_from(written).unwrap_or(usize::MAX));
            if T::ON {
                t.source("Reply chunk", &long);
            }
            let stream = Stream { bytes: &long, reads: header.reads, writes: header.writes };
            decode(&stream, &mut pending, t, env);
            if T::ON {
                t.end_source();
            }
        } else {
            decode(&Stream::inline(header), &mut pending, t, env);
        }
        self.answered(connection, env, caller, send, pending);
    }

    /// What the write list and the reply chunk of a reply must be, seen from the call.
    fn shape<J: Judge>(&self, by: End, header: &Header<'_>, pending: &Pending, missed: bool, court: &mut J) {
        let sure = Certainty::Certain;
        let mut offered = pending.segments.iter();
        for (index, chunk) in header.writes.iter().enumerate() {
            if pending.chunk_sizes.get(index).is_none_or(|n| *n as usize != chunk.len()) {
                court.judge(Rule::RpcrdmaWriteShape, by, sure, format_args!("changed the number of segments of write chunk {index}"));
                return;
            }
            for segment in chunk.segments() {
                let Some(offer) = offered.next() else { return };
                if segment.length > offer.length {
                    let (got, room) = (segment.length, offer.length);
                    court.judge(Rule::RpcrdmaWriteShape, by, sure, format_args!("says it wrote {got} bytes into a segment of {room}"));
                }
            }
        }
        if let Some(chunk) = header.reply.filter(|c| c.len() != pending.reply_segments.len() && !c.is_empty()) {
            let (got, offered) = (chunk.len(), pending.reply_segments.len());
            court.judge(
                Rule::RpcrdmaWriteShape,
                by,
                sure,
                format_args!("returned a reply chunk of {got} segments; {offered} were offered"),
            );
        }
        let said: u64 = header.writes.iter().map(|c| c.length()).sum();
        let wrote = pending.exchange.writes.bytes;
        if said > wrote && !header.writes.is_empty() && !missed {
            court.judge(
                Rule::RpcrdmaChunkLength,
                by,
                Certainty::IfNothingWasMissed,
                format_args!("says {said} bytes were written into the write list; {wrote} were seen"),
            );
        }
        if pending.memo.is_some_and(|m| m.gss_service.0 >= GssService::INTEGRITY.0) && said > 0 {
            court.judge(Rule::RpcrdmaDdp, by, sure, format_args!("reduced a data item under RPCSEC_GSS integrity or privacy"));
        }
    }

    fn error<S: Sink>(&mut self, connection: &mut Connection, env: &mut Env<S>, by: End, send: &Send<'_>, header: &Header<'_>) {
        let xid = header.fixed.xid;
        let pending = self.pending.remove(&(by.peer(), xid));
        let mut court = connection.court(env, send.last);
        let sure = Certainty::Certain;
        match header.error {
            Some(Error::Vers(v)) => {
                let (low, high) = (v.low, v.high);
                court.judge(
                    Rule::RpcrdmaError,
                    by,
                    sure,
                    format_args!("refused XID {xid:#010x}: ERR_VERS, speaks versions {low} to {high}"),
                );
            }
            Some(Error::Chunk) => court.judge(Rule::RpcrdmaError, by, sure, format_args!("refused XID {xid:#010x}: ERR_CHUNK")),
            _ => court.judge(Rule::RpcrdmaError, by, sure, format_args!("refused XID {xid:#010x} with an unknown error")),
        }
        let credits = &mut self.credits[by.peer().index()];
        credits.outstanding = credits.outstanding.saturating_sub(1);
        credits.replied = true;
        if let Some(mut pending) = pending {
            self.by_exchange.remove(&pending.exchange.id);
            pending.exchange.reply = Some(send.first);
            pending.exchange.reply_end = Some(send.last);
            pending.exchange.failed = true;
            self.complete(connection, env, send.last, by.peer(), *pending);
        }
    }

    fn complete<S: Sink>(&mut self, connection: &mut Connection, env: &mut Env<S>, at: At, caller: End, mut pending: Pending) {
        for (key, _) in &pending.regions {
            connection.memory.end(at, caller, *key, pending.exchange.id);
        }
        if let Some(payload) = pending.payload.take() {
            let length = pending.exchange.bytes_moved;
            payload.seal(&mut pending.exchange, length, env);
        }
        if pending.exchange.failed {
            let (command, status) = (pending.exchange.command, pending.exchange.status.unwrap_or(0));
            let mut court = connection.court(env, at);
            court.judge(Rule::RpcError, caller.peer(), Certainty::Certain, format_args!("answered {command} with status {status}"));
        }
        self.commands.watch(&pending.exchange, caller.peer());
        pending.exchange.close(connection.health.retransmissions);
        self.commands.add(&pending.exchange);
        env.complete(&pending.exchange);
    }

    /// The connection ends: what has no reply never will have.
    pub fn finish<S: Sink>(&mut self, connection: &mut Connection, env: &mut Env<S>, at: At) {
        let mut left: Vec<_> = self.pending.drain().collect();
        left.sort_by_key(|(_, p)| p.exchange.id);
        self.by_exchange.clear();
        for ((caller, _), mut pending) in left {
            let exchange = &mut pending.exchange;
            let hidden = connection.may_be_hidden(caller.peer(), exchange.request);
            if !hidden && at.time.saturating_sub(exchange.request.time) > crate::smb2::UNANSWERED_AFTER {
                let command = exchange.command;
                let site = exchange.request_end;
                let certainty = connection.certainty().min(Certainty::IfNothingWasMissed);
                let mut court = connection.court(env, site);
                court.judge(Rule::RpcUnanswered, caller.peer(), certainty, format_args!("never answered a {command}"));
            }
            exchange.close(connection.health.retransmissions);
            self.commands.add(exchange);
            env.complete(exchange);
        }
    }
}

/// Decodes an RPC message that belongs to a pending call.
fn decode<T: Trace, S: Sink>(stream: &Stream<'_>, pending: &mut Pending, t: &mut T, env: &mut Env<S>) {
    let call_memo = pending.memo;
    let mut names = core::mem::take(&mut pending.names);
    // in a call the memo is not known before its header is read: the program is looked up when an operation is told
    let memo = call_memo.or_else(|| {
        rpc::parse(stream.bytes, None, &mut Off).ok().and_then(|(_, m)| match m {
            Message::Call(call) => Some(call.memo),
            Message::Reply(_) => None,
        })
    });
    let result = rpc::dissect(stream, call_memo, t, &mut |op: &Op<'_>| names.take(memo.as_ref(), op));
    pending.names = names;
    env.layer(if memo.is_some_and(|m| m.is_nfs()) { Layer::Nfs } else { Layer::Rpc });
    match result {
        Ok((_, Message::Call(call))) => pending.memo = Some(call.memo),
        Ok((_, Message::Reply(reply))) => match reply.outcome {
            Outcome::Success => {}
            _ => pending.exchange.failed = true,
        },
        Err(_) => {}
    }
}

/// Shows a Send without counting it.
pub fn show<T: Trace>(bytes: &[u8], t: &mut T) {
    if let Ok((_, header)) = Header::parse(bytes, t)
        && !header.is_long()
        && header.error.is_none()
    {
        let _ = rpc::dissect(&Stream::inline(&header), None, t, &mut ());
    }
}

fn row(id: u64, connection: &Connection, xid: u32, send: &Send<'_>) -> Exchange {
    Exchange {
        id,
        connection: connection.id,
        message_id: xid.into(),
        retransmissions: connection.health.retransmissions as u32,
        ..Exchange::begun(Family::Rpc, "RPC", send.first, send.last)
    }
}
