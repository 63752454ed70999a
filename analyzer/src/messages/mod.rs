//! Messages: Sends put together, then SMB Direct or RPC-over-RDMA; or the records of a plain TCP stream.
//!
//! ```text
//!   RdmaOp (Send) ─▶ receive ─▶ smbd ────▶ Message::Smb2  ┐
//!                          └─▶ rpcrdma ──▶ Message::Rpc   ├─▶ upper
//!   StreamBytes ──▶ stream ──────────────▶ either         ┘
//! ```
//!
//! The content of a connection is recognized by the form of its first messages; the port decides nothing alone.

pub mod known;
pub mod receive;
pub mod rpcrdma;
pub mod smbd;
pub mod stream;

use crate::context::FrameContext;
use crate::finding::{Certainty, Rule};
use crate::memory::{Delivery, Memory};
use crate::notes::{Layer, duration, f};
use crate::op::{At, End, Part, RdmaOp, StreamBytes};
use crate::pieces::Assembly;
use crate::roles::Source;
use crate::series::{Least, Series};
use crate::summary::{Negotiated, Protocol, SideReport, Transport};
use alloc::boxed::Box;
use alloc::vec::Vec;
use known::Known;
use rdmascope_dissector::trace::{Trace, Value};
use rdmascope_dissector::wire::ib::cm::RpcRdmaPrivate;
use rdmascope_dissector::wire::rpcrdma::INLINE_DEFAULT;
use receive::{Receive, Received, WholeSend};
use rpcrdma::{RpcMessage, RpcRdma};
use smbd::{Smb2Message, Smbd};

/// Sends that are examined to recognize the protocol, before a connection is left alone.
const TRIES_MAX: u32 = 64;

/// A whole message, for the layer above.
#[derive(Clone, Copy, Debug)]
pub enum Message<'a> {
    /// SMB2.
    Smb2(Smb2Message<'a>),
    /// ONC RPC.
    Rpc(RpcMessage<'a>),
}

/// Messages of a connection for a report.
#[derive(Clone, Debug, Default)]
pub struct Summary {
    /// Values negotiated by SMB Direct, by end A and B.
    pub negotiated: Negotiated,
    /// Messages and credits, by end A and B.
    pub sides: [SideReport; 2],
    /// Times of the Negotiate Request and the Negotiate Response of SMB Direct.
    pub negotiation: [Option<At>; 2],
    /// Time of the last message of SMB Direct from each end.
    pub last_sent: [Option<At>; 2],
    /// Time since which each end has no credit of SMB Direct that it may spend.
    pub dry: [Option<At>; 2],
    /// True if the Negotiate Response is one that must be refused, and was not accepted.
    pub refused: bool,
    /// Credits that ends A and B held over time.
    pub credits: Vec<(i64, [Option<i64>; 2])>,
    /// Ends A and B, of a message that has begun and is not whole: its last part.
    pub unfinished: [Option<At>; 2],
    /// True if it counted the messages: those of SMB2 over TCP are counted above.
    pub counted: bool,
}

/// The message layer of one connection.
#[derive(Clone, Debug, Default)]
pub struct Messages {
    protocol: Protocol,
    receive: [Receive; 2],
    kind: stream::Kind,
    streams: [stream::Direction; 2],
    /// Sends examined so far to recognize the protocol.
    tries: u32,
    /// Bytes of one Send to each end, if the handshake said so.
    inline_threshold: [Option<u32>; 2],
    /// True if the client of NFS takes Send with Invalidate; `None` if the handshake was not seen.
    invalidation: Option<bool>,
    smbd: Option<Box<Smbd>>,
    rpcrdma: Option<Box<RpcRdma>>,
    credits: Series<Least>,
}

impl Messages {
    /// Upper-layer protocol of the connection.
    pub fn protocol(&self) -> Protocol {
        self.protocol
    }

    /// SMB Direct, if the connection carries it.
    pub fn smbd(&self) -> Option<&Smbd> {
        self.smbd.as_deref()
    }

    /// True if an end has called without a credit of RPC-over-RDMA, and it is not settled yet if that was so.
    pub fn is_beyond_credits(&self, caller: End) -> bool {
        self.rpcrdma.as_ref().is_some_and(|rpcrdma| rpcrdma.is_beyond_credits(caller))
    }

    /// Private data of RPC-over-RDMA in the handshake (RFC 8797), by end A and B.
    pub fn rpc_rdma_private(&mut self, caller: End, private: [Option<RpcRdmaPrivate>; 2]) {
        // the keys of the calling side are invalidated
        self.invalidation = Some(private[caller.index()].is_some_and(|p| p.remote_invalidation()));
        // without it on both sides, each keeps to the default
        self.inline_threshold = match private {
            [Some(a), Some(b)] => [Some(a.receive_size()), Some(b.receive_size())],
            _ => [Some(INLINE_DEFAULT); 2],
        };
    }

    /// What the ends agreed upon does not hold from here on: they may be others.
    #[cold]
    pub fn distrust(&mut self) {
        (self.inline_threshold, self.invalidation) = ([None; 2], None);
        if let Some(smbd) = self.smbd.as_mut() {
            smbd.link.distrust();
        }
        if let Some(rpcrdma) = self.rpcrdma.as_mut() {
            rpcrdma.distrust();
        }
    }

    /// Takes a packet of a Send. Returns true if it turned out that packets before it are missing.
    pub fn send<T: Trace>(
        &mut self,
        cx: &mut FrameContext<'_>,
        memory: &mut Memory,
        op: &RdmaOp<'_>,
        t: &mut T,
        emit: &mut impl FnMut(&mut FrameContext<'_>, &mut Memory, &Message<'_>, &mut T),
    ) -> bool {
        let Self { protocol, receive, tries, inline_threshold, invalidation, smbd, rpcrdma, credits, .. } = self;
        let send = match receive[op.by.index()].packet(op, cx.is_unchecked) {
            Received::More => {
                if T::ON && op.part != Part::Only {
                    t.info(format_args!("part of a message"));
                }
                return false;
            }
            Received::Tail => {
                self.gap(cx, op.by);
                return true;
            }
            Received::Whole(send) => send,
        };
        // what is said of the Send rests on all of its packets
        let of_packet = cx.goes_on(send.is_unchecked);
        let apart = T::ON && !send.in_frame;
        if let Some(pieces) = send.pieces {
            let what =
                if cx.about.transport == Some(Transport::Iwarp) { Assembly::IwarpSend } else { Assembly::IbSend };
            cx.env.sink.assembled(what, op.at.frame, pieces.frames());
            if T::ON {
                what.show(pieces, send.wire_length, t);
            }
        }
        if apart {
            t.source("Reassembled Send", send.bytes);
        }
        if (send.bytes.len() as u64) < u64::from(send.wire_length) {
            cx.missed.cut(op.by, cx.at);
        }
        if *protocol == Protocol::Unknown && *tries < TRIES_MAX {
            *tries += 1;
            if let Some(found) = recognize(cx, &send, *tries == 1) {
                *protocol = found;
                cx.about.protocol = found;
                match found {
                    Protocol::SmbDirect => *smbd = Some(Box::new(begin_smbd(cx, &send, *tries == 1))),
                    _ => *rpcrdma = Some(Box::new(begin_rpcrdma(cx, *inline_threshold, *invalidation))),
                }
            }
        }
        if let Some(smbd) = smbd {
            smb_direct(smbd, credits, cx, memory, op.by, &send, t, emit);
        } else if let Some(rpcrdma) = rpcrdma {
            rpcrdma.send(cx, memory, op.by, &send, t, emit);
            let left = rpcrdma.credits_left(cx.roles.client_or_first());
            cx.env.sink.upper_credits(cx.about.id, cx.at, left);
        } else {
            cx.env.undecoded += 1;
            if T::ON && !send.bytes.is_empty() {
                t.field(f::DATA, send.bytes, send.bytes.len(), Value::Bytes(send.bytes));
            }
        }
        if apart {
            t.end_source();
        }
        cx.is_unchecked = of_packet;
        false
    }

    /// Bytes in order of a TCP connection that is not iWARP.
    pub fn stream<T: Trace>(
        &mut self,
        cx: &mut FrameContext<'_>,
        memory: &mut Memory,
        piece: &StreamBytes<'_>,
        t: &mut T,
        emit: &mut impl FnMut(&mut FrameContext<'_>, &mut Memory, &Message<'_>, &mut T),
    ) {
        if piece.missing > 0 && self.kind != stream::Kind::Other {
            cx.missed.hidden(piece.by, piece.at);
        }
        if self.kind == stream::Kind::Undecided {
            self.kind = stream::recognize(piece.bytes);
            self.protocol = match self.kind {
                stream::Kind::Smb2 => Protocol::Smb2,
                stream::Kind::Rpc => Protocol::Rpc,
                stream::Kind::Other | stream::Kind::Undecided => return,
            };
            cx.about.protocol = self.protocol;
            if !cx.about.opening_seen {
                self.streams.iter_mut().for_each(stream::Direction::late);
            }
        }
        if self.kind == stream::Kind::Other {
            return;
        }
        let kind = self.kind;
        let mut starts_tls = false;
        let is_unread = self.streams[piece.by.index()].take(kind, piece, &mut |record| {
            let apart = T::ON && !record.in_frame;
            starts_tls |= kind == stream::Kind::Rpc && is_start_of_tls(record.bytes);
            if let Some(pieces) = record.pieces {
                cx.env.sink.assembled(Assembly::Tcp, record.last.frame, pieces.frames());
                if T::ON {
                    // with its framing: the length of SMB2, the mark of RPC
                    Assembly::Tcp.show(pieces, record.wire_length.saturating_add(4), t);
                }
            }
            if apart {
                t.source("Reassembled TCP", record.bytes);
            }
            if kind == stream::Kind::Smb2 {
                cx.layer(Layer::Smb2);
                emit(cx, memory, &Message::Smb2(Smb2Message::of_record(piece.by, record)), t);
            } else if let Some(message) = RpcMessage::of_record(cx, piece.by, record) {
                cx.layer(Layer::Rpc);
                emit(cx, memory, &Message::Rpc(message), t);
            }
            if apart {
                t.end_source();
            }
        });
        if starts_tls {
            // what follows is encrypted
            self.kind = stream::Kind::Other;
            return;
        }
        if self.streams[piece.by.index()].was_broken() {
            let rule = if kind == stream::Kind::Smb2 { Rule::Smb2Malformed } else { Rule::RpcMalformed };
            let text = format_args!("gave a message another length than it has: what follows is no message");
            let is_whole = !cx.missed.any();
            let certainty = if is_whole { Certainty::IfNothingWasMissed } else { Certainty::Guess };
            cx.report_as(piece.at, rule, piece.by, certainty, text);
            cx.missed.hidden(piece.by, piece.at);
        }
        if is_unread {
            cx.missed.hidden(piece.by, piece.at);
        }
    }

    /// Bytes that RDMA moved: messages may be among them.
    pub fn delivered(&mut self, delivery: &Delivery<'_>, op: &RdmaOp<'_>) {
        if let Some(rpcrdma) = self.rpcrdma.as_mut() {
            rpcrdma.delivered(delivery.region, delivery.offset, op);
        }
    }

    /// Packets of `by` are missing.
    pub fn gap(&mut self, cx: &mut FrameContext<'_>, by: End) {
        self.receive[by.index()].reset();
        self.streams[by.index()].gap();
        if let Some(smbd) = self.smbd.as_mut() {
            smbd.missed(by);
        }
        if let Some(rpcrdma) = self.rpcrdma.as_mut() {
            rpcrdma.missed();
        }
        cx.missed.gap(by, cx.at);
    }

    /// Messages of `by` were there of which none was seen: what they granted is not known.
    pub fn unseen(&mut self, by: End) {
        if let Some(smbd) = self.smbd.as_mut() {
            smbd.missed(by);
        }
        if let Some(rpcrdma) = self.rpcrdma.as_mut() {
            rpcrdma.missed();
        }
    }

    /// Bytes of memory that unfinished messages hold.
    pub fn held(&self) -> usize {
        let buffers: usize =
            self.receive.iter().map(Receive::held).chain(self.streams.iter().map(stream::Direction::held)).sum();
        buffers + self.smbd.as_ref().map_or(0, |s| s.held()) + self.rpcrdma.as_ref().map_or(0, |r| r.held())
    }

    /// Forgets unfinished messages, as if packets of them were missing, and gives back their memory.
    pub fn release(&mut self, cx: &mut FrameContext<'_>) {
        for by in End::BOTH {
            self.gap(cx, by);
            self.receive[by.index()].release();
        }
        if let Some(smbd) = self.smbd.as_mut() {
            smbd.release();
        }
        if let Some(rpcrdma) = self.rpcrdma.as_mut() {
            rpcrdma.release();
        }
    }

    /// The connection or the capture ends: `by` ended it, if a side did.
    pub fn finish(&mut self, cx: &mut FrameContext<'_>, by: Option<End>) {
        if let Some(smbd) = self.smbd.as_mut() {
            smbd.link.closed(cx.at, by, cx);
        }
        if let Some(rpcrdma) = self.rpcrdma.as_mut() {
            rpcrdma.finish(cx);
        }
        // requests may be in a message of the client that never became whole
        let client = cx.roles.client().filter(|client| self.streams[client.index()].is_open());
        if let Some(client) = client {
            cx.missed.hidden(client, cx.at);
        }
    }

    /// True if a message of several Sends has begun that is not over.
    pub fn is_inside(&self, by: End) -> bool {
        self.smbd.as_ref().is_some_and(|smbd| smbd.is_inside(by))
    }

    /// True if all that a Send completes is shown with [`Messages::show`].
    pub fn is_shown(&self, by: End, bytes: &[u8]) -> bool {
        match self.protocol {
            Protocol::SmbDirect => self.smbd.as_ref().is_none_or(|smbd| smbd.is_whole(by, bytes)),
            Protocol::RpcRdma => true,
            _ => false,
        }
    }

    /// A Send that is shown without being counted: it was sent before, or is held back.
    pub fn show<T: Trace>(&self, bytes: &[u8], known: &mut dyn Known, t: &mut T) {
        match self.protocol {
            Protocol::SmbDirect => smbd::show(bytes, known, t),
            Protocol::RpcRdma => rpcrdma::show(bytes, known, t),
            _ => {}
        }
    }

    /// Plain data for the report.
    pub fn summary(&self) -> Summary {
        let mut summary = Summary {
            credits: self.credits.points().map(|(time, least)| (time, least.0)).collect(),
            ..Summary::default()
        };
        summary.counted = self.smbd.is_some() || self.rpcrdma.is_some();
        summary.unfinished = End::BOTH.map(|end| self.streams[end.index()].open_since());
        if let Some(smbd) = self.smbd.as_deref() {
            (summary.negotiated, summary.sides) = smbd.summary();
            let link = &smbd.link;
            summary.negotiation = link.negotiation();
            summary.refused = link.is_refused();
            summary.last_sent = End::BOTH.map(|end| link.side(end).last_sent);
            let is_inside = |end: End| link.side(end).remaining.known().is_some_and(|left| left > 0);
            summary.unfinished = End::BOTH.map(|end| link.side(end).last_sent.filter(|_| is_inside(end)));
            summary.dry = End::BOTH
                .map(|end| link.blocked_since(end).filter(|_| link.credits(end).known().is_some_and(|held| held <= 1)));
        }
        if let Some(rpcrdma) = self.rpcrdma.as_deref() {
            summary.sides = rpcrdma.summary();
        }
        summary
    }

    /// Takes over the other half of a connection whose directions were first taken for two.
    pub fn adopt(&mut self, by: End, from: &mut Self, from_end: End) {
        self.receive[by.index()] = core::mem::take(&mut from.receive[from_end.index()]);
        let other = |held: [Option<i64>; 2]| if from_end == by { held } else { [held[1], held[0]] };
        self.credits.merge(from.credits.points().map(|(time, least)| (time, Least(other(least.0)))));
        if self.protocol == Protocol::Unknown {
            self.protocol = from.protocol;
            self.smbd = from.smbd.take();
            self.rpcrdma = from.rpcrdma.take();
            if from_end != by {
                if let Some(smbd) = self.smbd.as_mut() {
                    smbd.swap_ends();
                }
                if let Some(rpcrdma) = self.rpcrdma.as_mut() {
                    rpcrdma.swap_ends();
                }
            }
        } else if self.protocol == from.protocol {
            if let (Some(mine), Some(theirs)) = (self.smbd.as_mut(), from.smbd.as_mut()) {
                mine.adopt(by, theirs, from_end);
            }
            if let (Some(mine), Some(theirs)) = (self.rpcrdma.as_mut(), from.rpcrdma.take()) {
                mine.adopt(by, *theirs, from_end);
            }
        }
    }
}

/// Protocol of a connection, recognized by the form of a Send; `first`: no Send was examined before it.
fn recognize(cx: &FrameContext<'_>, send: &WholeSend<'_>, first: bool) -> Option<Protocol> {
    let smbd = smbd::looks_like(send.bytes, send.wire_length);
    let rpc = rdmascope_dissector::wire::rpcrdma::looks_like(send.bytes);
    match (smbd, rpc) {
        (Some(Certainty::Certain), _) => Some(Protocol::SmbDirect),
        (_, true) => Some(Protocol::RpcRdma),
        // a message of credits alone has little in it that could not be something else
        (Some(_), false) => Some(Protocol::SmbDirect).filter(|_| cx.about.port_hint() != Protocol::RpcRdma),
        // too short or too broken to tell, and the handshake named the port
        (None, false) => {
            Some(cx.about.port_hint()).filter(|hint| cx.about.opening_seen && first && *hint != Protocol::Unknown)
        }
    }
}

/// True if the first packet of a Send is none of the protocol that its connection carried so far. `is_only`: the Send
/// ends with it.
pub fn is_of_another(protocol: Protocol, bytes: &[u8], wire_length: u32, is_only: bool) -> bool {
    let rpc = || rdmascope_dissector::wire::rpcrdma::looks_like(bytes);
    match protocol {
        Protocol::SmbDirect => {
            let is_smbd = smbd::looks_like(bytes, wire_length).is_some();
            !is_smbd && (rpc() || !smbd::may_be_data(bytes, wire_length, is_only))
        }
        Protocol::RpcRdma => !rpc() && bytes.len() as u32 == wire_length,
        _ => false,
    }
}

fn begin_smbd(cx: &mut FrameContext<'_>, send: &WholeSend<'_>, first: bool) -> Smbd {
    let late = !first || cx.missed.any() || !smbd::begins_connection(send.bytes, send.wire_length);
    let known = cx.about.opening_seen && first;
    if late && !known {
        cx.missed.late();
        return Smbd::joined_late();
    }
    let mut smbd = Smbd::default();
    if let Some(at) = cx.about.established {
        smbd.link.opened(at);
    }
    if let Some(client) = cx.roles.sure_client().filter(|_| cx.about.opening_seen) {
        smbd.link.connected_by(client);
    }
    smbd
}

/// True if a reply accepts to go on with TLS: its verifier says so (RFC 9289 4.1).
fn is_start_of_tls(record: &[u8]) -> bool {
    record.get(4..28).is_some_and(|reply| reply == b"\0\0\0\x01\0\0\0\0\0\0\0\0\0\0\0\x08STARTTLS")
}

fn begin_rpcrdma(cx: &mut FrameContext<'_>, inline_threshold: [Option<u32>; 2], invalidation: Option<bool>) -> RpcRdma {
    if !cx.about.opening_seen {
        cx.missed.late();
    }
    RpcRdma::new(inline_threshold, invalidation, cx.missed.any())
}

#[expect(clippy::too_many_arguments, reason = "the parts of a layer that are lent apart")]
fn smb_direct<T: Trace>(
    smbd: &mut Smbd,
    credits: &mut Series<Least>,
    cx: &mut FrameContext<'_>,
    memory: &mut Memory,
    by: End,
    send: &WholeSend<'_>,
    t: &mut T,
    emit: &mut impl FnMut(&mut FrameContext<'_>, &mut Memory, &Message<'_>, &mut T),
) {
    cx.layer(Layer::SmbDirect);
    // this very message may tell which end is the client
    if smbd.link.initiator().is_none() && send.wire_length < 32 && smbd::begins_connection(send.bytes, send.wire_length)
    {
        cx.roles.learn(by, Source::Negotiation);
    }
    let stalled = smbd.link.side(by).stalled_time;
    let message = smbd.send(by, send, t, cx);
    let carried = message.is_some();
    if let Some(message) = message {
        cx.layer(Layer::Smb2);
        let of_send = cx.goes_on(message.is_unchecked);
        emit(cx, memory, &Message::Smb2(message), t);
        cx.is_unchecked = of_send;
    }
    if smbd.hid_message() {
        cx.missed.hidden(by, cx.at);
    }
    if let Some(initiator) = smbd.link.initiator() {
        cx.roles.learn(initiator, Source::Negotiation);
    }
    let held = [smbd.link.credits(End::A).known(), smbd.link.credits(End::B).known()];
    credits.add(cx.at.time, Least(held));
    cx.env.sink.credits(cx.about.id, cx.at, held);
    if T::ON {
        let waited = smbd.link.side(by).stalled_time.saturating_sub(stalled);
        trace_credits(held, cx.roles.client_or_first(), waited, t);
    }
    if let (Some(key), false) = (send.invalidate, carried || send.invalidate.is_some_and(|key| smbd.holds(by, key))) {
        // an invalidation on a message that carries nothing, or nothing that is understood
        memory.invalidated(cx, by.peer(), key);
    }
}

fn trace_credits<T: Trace>(held: [Option<i64>; 2], client: End, waited: i64, t: &mut T) {
    let at: &[u8] = &[];
    t.open(f::PROTOCOL, at);
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::context::alone::Alone;
    use crate::finding::Blame;
    use crate::op::{Placement, Verb};
    use alloc::vec;
    use rdmascope_dissector::trace::Off;
    use rdmascope_dissector::wire::smbd::{DataTransfer, NegotiateRequest, VERSION_1_0};

    /// The message layer alone, and its messages: sender, bytes, number of fragments or parts.
    struct Layer {
        alone: Alone,
        memory: Memory,
        messages: Messages,
        up: Vec<(End, Vec<u8>, u32)>,
    }

    impl Layer {
        fn new() -> Self {
            Self { alone: Alone::new(), memory: Memory::default(), messages: Messages::default(), up: Vec::new() }
        }

        /// A packet of a Send. Returns true if packets before it turned out to be missing.
        fn packet(&mut self, by: End, part: Part, bytes: &[u8]) -> bool {
            let Self { alone, memory, messages, up } = self;
            let mut cx = alone.frame(by);
            let op = RdmaOp {
                at: cx.at,
                by,
                verb: Verb::Send,
                part,
                placement: Placement::Queue { offset: 0 },
                message_length: None,
                invalidate: None,
                immediate: None,
                solicited: false,
                length: bytes.len() as u32,
                bytes,
                in_frame: true,
                read: 0,
            };
            let mut emit = |_: &mut FrameContext<'_>, _: &mut Memory, message: &Message<'_>, _: &mut Off| match message
            {
                Message::Smb2(m) => up.push((m.by, m.bytes.to_vec(), m.fragments)),
                Message::Rpc(m) => up.push((m.by, m.xid.to_be_bytes().to_vec(), 1)),
            };
            let missing = messages.send(&mut cx, memory, &op, &mut Off, &mut emit);
            alone.about.protocol = messages.protocol();
            missing
        }

        fn stream(&mut self, by: End, bytes: &[u8]) {
            let Self { alone, memory, messages, up } = self;
            let mut cx = alone.frame(by);
            let piece = StreamBytes { at: cx.at, by, bytes, missing: 0, in_frame: true };
            let mut emit = |_: &mut FrameContext<'_>, _: &mut Memory, message: &Message<'_>, _: &mut Off| match message
            {
                Message::Smb2(m) => up.push((m.by, m.bytes.to_vec(), m.fragments)),
                Message::Rpc(m) => up.push((m.by, m.xid.to_be_bytes().to_vec(), 1)),
            };
            messages.stream(&mut cx, memory, &piece, &mut Off, &mut emit);
        }
    }

    fn negotiate() -> Vec<u8> {
        let request = NegotiateRequest {
            min_version: VERSION_1_0,
            max_version: VERSION_1_0,
            reserved: 0,
            credits_requested: 255,
            preferred_send_size: 1364,
            max_receive_size: 8192,
            max_fragmented_size: 1 << 20,
        };
        let mut out = Vec::new();
        request.emit(&mut out);
        out
    }

    /// A data transfer message with part of an SMB2 message, of which `remaining` bytes follow.
    fn fragment(data: &[u8], remaining: u32) -> Vec<u8> {
        let header = DataTransfer {
            credits_requested: 255,
            credits_granted: 1,
            flags: 0,
            reserved: 0,
            remaining_data_length: remaining,
            data_offset: 24,
            data_length: data.len() as u32,
        };
        let mut out = Vec::new();
        header.emit(&mut out);
        out.resize(24, 0);
        out.extend_from_slice(data);
        out
    }

    /// 16 words: xid, version, credits, RDMA_MSG, no chunks, then an NFS NULL call.
    fn rpcrdma_call(xid: u32) -> Vec<u8> {
        [xid, 1, 32, 0, 0, 0, 0, xid, 0, 2, 100_003, 3, 0, 0, 0, 0, 0]
            .iter()
            .flat_map(|w: &u32| w.to_be_bytes())
            .collect()
    }

    #[test]
    fn sends_and_fragments_become_one_smb2_message() {
        let mut layer = Layer::new();
        layer.packet(End::A, Part::Only, &negotiate());
        assert_eq!((layer.messages.protocol(), layer.up.len()), (Protocol::SmbDirect, 0));
        let smb2 = [&b"\xfeSMB\x40\0"[..], &[7; 194]].concat();
        let (first, second) = (fragment(&smb2[..120], 80), fragment(&smb2[120..], 0));
        // the first fragment in two packets of one Send
        layer.packet(End::A, Part::First, &first[..60]);
        layer.packet(End::A, Part::Last, &first[60..]);
        assert!(layer.up.is_empty() && layer.messages.is_inside(End::A) && !layer.messages.is_inside(End::B));
        layer.packet(End::A, Part::Only, &second);
        assert_eq!(layer.up, [(End::A, smb2, 2)]);
        assert!(!layer.messages.is_inside(End::A));
        assert_eq!(layer.messages.summary().sides[End::A.index()].messages, 2, "those of data");
    }

    #[test]
    fn what_a_connection_carries_is_known_by_its_first_messages_and_not_by_its_port() {
        let mut layer = Layer::new();
        layer.alone.about.ports = [5445, 0];
        layer.packet(End::A, Part::Only, &rpcrdma_call(9));
        assert_eq!(layer.messages.protocol(), Protocol::RpcRdma);
        assert_eq!(layer.up, [(End::A, vec![0, 0, 0, 9], 1)]);
        assert!(layer.alone.broken().is_empty());
    }

    #[test]
    fn a_send_whose_beginning_is_missing_says_so_and_the_next_message_is_read_again() {
        let mut layer = Layer::new();
        layer.packet(End::A, Part::Only, &rpcrdma_call(1));
        assert!(!layer.packet(End::A, Part::Middle, &[0; 40]), "more may follow");
        assert!(layer.packet(End::A, Part::Last, &[0; 40]), "its first packet was not seen");
        assert!(layer.alone.missed.any());
        layer.packet(End::A, Part::Only, &rpcrdma_call(2));
        assert_eq!(layer.up.len(), 2);
    }

    #[test]
    fn more_inline_bytes_than_the_peer_takes_are_named_with_their_side() {
        let mut layer = Layer::new();
        layer.messages.rpc_rdma_private(End::A, [None, None]);
        let call = [rpcrdma_call(1), vec![0; 1024]].concat();
        layer.packet(End::A, Part::Only, &call);
        assert_eq!(layer.alone.broken(), [(Rule::RpcrdmaInline, Blame::Client)]);
    }

    /// RFC 9289 4.1: behind a reply that accepts it, a stream is one of TLS.
    #[test]
    fn what_is_encrypted_from_the_first_reply_on_breaks_no_rule() {
        let accepted = *b"\0\0\0\x05\0\0\0\x01\0\0\0\0\0\0\0\0\0\0\0\x08STARTTLS\0\0\0\0";
        let mut refused = accepted;
        refused[20] = b'N';
        let record = |message: &[u8]| [&(0x8000_0000 | message.len() as u32).to_be_bytes()[..], message].concat();
        for (reply, expected) in [(accepted, vec![]), (refused, vec![(Rule::RpcMalformed, Blame::Client)])] {
            let mut layer = Layer::new();
            let call: Vec<u8> = [5_u32, 0, 2, 100_003, 4, 0, 7, 0, 0, 0].iter().flat_map(|w| w.to_be_bytes()).collect();
            layer.stream(End::A, &record(&call));
            layer.stream(End::B, &record(&reply));
            layer.stream(End::A, &[0x16, 3, 1, 2, 0, 1, 0, 1, 0xfc, 3, 3, 9, 9, 9, 9, 9, 9, 9, 9, 9]);
            assert_eq!(layer.alone.broken(), expected);
        }
    }

    #[test]
    fn records_of_a_stream_become_messages_however_it_is_cut() {
        let call: Vec<u8> = [5_u32, 0, 2, 100_003, 3, 0, 0, 0, 0, 0].iter().flat_map(|w| w.to_be_bytes()).collect();
        let record = [&(0x8000_0000 | call.len() as u32).to_be_bytes()[..], &call].concat();
        let all = [&record[..], &record].concat();
        for cut in [28, 44, 50, 88] {
            let mut layer = Layer::new();
            let (head, tail) = all.split_at(cut);
            layer.stream(End::A, head);
            layer.stream(End::A, tail);
            assert_eq!(layer.messages.protocol(), Protocol::Rpc);
            assert_eq!(layer.up, [(End::A, vec![0, 0, 0, 5], 1), (End::A, vec![0, 0, 0, 5], 1)], "cut at {cut}");
        }
    }
}
