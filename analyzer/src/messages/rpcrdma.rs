//! RPC-over-RDMA connections, RFC 8166 (and RFC 8167 for the backward direction): headers, credits, chunks joined to
//! the RDMA that filled them, and the rules of all that. What the RPC messages say is the layer's above.
//!
//! ```text
//!  caller ── Send: RDMA_MSG, read list, write list, reply chunk, RPC call ──▶ responder
//!  caller ◀── RDMA Read of the read list ──────────────────────────────────── responder
//!  caller ◀── RDMA Write of the write list and the reply chunk ────────────── responder
//!  caller ◀── Send: RDMA_MSG or RDMA_NOMSG, RPC reply ─────────────────────── responder
//! ```

use super::Message;
use super::known::Known;
use super::receive::WholeSend;
use super::stream;
use crate::context::FrameContext;
use crate::covered::Covered;
use crate::episodes::{Cause, Ceiling};
use crate::finding::{Blame, Certainty, Rule, Severity};
use crate::memory::{Memory, Region, Right, State};
use crate::messages::smbd::link::Seen;
use crate::missed::Rests;
use crate::notes::Layer;
use crate::op::{At, End, RdmaOp};
use crate::roles::Source;
use crate::summary::SideReport;
use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;
use hashbrown::HashMap;
use rdmascope_dissector::trace::Trace;
use rdmascope_dissector::wire::rpc::{self, Flavor, Program};
use rdmascope_dissector::wire::rpcrdma::{Error, Proc, ReadSegment, Reads, RpcRdma as Header, Segment, Versions};
use rdmascope_dissector::wire::xdr::Stream;

/// Bytes of a message in a Position-Zero Read chunk or a reply chunk put together at most.
const LONG_MAX: usize = 1 << 20;
/// Time in which a capture may have packets of the two directions in another order, in ns. Neighbours may be farther
/// apart.
const DISORDER: i64 = 100_000;
/// Time by which a capture may have a reply before its call, in ns.
const EARLY: i64 = 1_000_000;
/// ns after which a reply has surely reached the caller, if nothing was retransmitted.
const GRANT_ARRIVES: i64 = 1_000_000_000;
/// Replies without a call that wait for it at most.
const EARLY_MAX: usize = 64;
/// Transaction ids that may be answered without a call, or twice, that are remembered at most.
const DOUBTFUL_MAX: usize = 64;
/// Transaction ids of answered calls that are remembered at most: their caller may refuse the reply.
const ANSWERED_MAX: usize = 64;
/// Bytes that a server reads for one call at most, with slack, before it is worth a note.
const READ_BUDGET: u64 = (1 << 20) + (1 << 16);

/// Reports that the header of RPC-over-RDMA and the RPC message behind it have different transaction ids, RFC 8166
/// 4.2.1.
pub(crate) fn other_xid(cx: &mut FrameContext<'_>, by: End, rests: Rests, xid: u32, inner: u32) {
    let text = format_args!("has XID {xid:#010x} in the header and {inner:#010x} in the RPC message");
    cx.report(Rule::RpcrdmaXid, by, rests, text);
    let (blame, cause) = (cx.blame(by), Some("A sender that fills in the two headers separately"));
    cx.env.findings.because(Rule::RpcrdmaXid, Some(cx.about.id), blame, cause);
}

/// Cause of calls that are sent again where that is forbidden.
pub(crate) const IMPATIENT: &str = "A client of NFS 4 that does not wait for the reply";

/// The region holds (part of) the call itself.
const LONG_CALL: u32 = 1 << 31;
/// The region is part of the reply chunk.
const LONG_REPLY: u32 = 1 << 30;

/// True if the region has a whole call or reply, and not the data of one.
pub const fn has_message(region: &Region) -> bool {
    region.index & (LONG_CALL | LONG_REPLY) > 0
}

/// An RPC message, for the layer above.
#[derive(Clone, Copy, Debug)]
pub struct RpcMessage<'a> {
    /// Side that sent it.
    pub by: End,
    /// Transaction id, of the header if there is one.
    pub xid: u32,
    /// First frame of the message.
    pub first: At,
    /// Last frame of the message.
    pub last: At,
    /// The header of RPC-over-RDMA; `None` on TCP.
    pub header: Option<&'a Header<'a>>,
    /// True if nothing of it was cut off by the capture.
    pub is_whole: bool,
    /// Kind of message.
    pub kind: Kind<'a>,
}

/// Kind of an RPC-over-RDMA message.
#[derive(Clone, Copy, Debug)]
pub enum Kind<'a> {
    /// A call.
    Call {
        /// The number of its exchange: that of the first one if it is sent again.
        exchange: u64,
        /// Facts by which it is known if it is sent again.
        said: Option<Said>,
        /// The message; `None` if it is in a Position-Zero Read chunk, which the responder has yet to read.
        message: Option<Stream<'a>>,
    },
    /// A reply.
    Reply {
        /// The message.
        message: Stream<'a>,
        /// True if it stands in the reply chunk rather than in the Send.
        is_long: bool,
        /// The call, if it was in a Position-Zero Read chunk and is whole now.
        call: Option<Stream<'a>>,
        /// True if it is known what all RDMA of the connection was for.
        is_attributed: bool,
        /// True if it may answer either of two calls.
        is_of_either: bool,
    },
    /// RDMA_ERROR: the responder could not read the call.
    Error,
}

impl<'a> RpcMessage<'a> {
    /// A record of a TCP stream; `None` if it is too short for an RPC header.
    pub fn of_record(cx: &mut FrameContext<'_>, by: End, record: &stream::Record<'a>) -> Option<Self> {
        let word =
            |at: usize| record.bytes.get(at..at + 4).and_then(|b| b.first_chunk::<4>()).map(|b| u32::from_be_bytes(*b));
        let (xid, kind) = (word(0)?, word(4)?);
        let message = Stream::whole(record.bytes);
        let is_whole = record.bytes.len() as u64 >= u64::from(record.wire_length);
        let kind = match kind {
            0 => {
                let (exchange, said) = (cx.env.number_exchange(), Said::of(record.bytes));
                Kind::Call { exchange, said, message: Some(message) }
            }
            _ => Kind::Reply { message, is_long: false, call: None, is_attributed: true, is_of_either: false },
        };
        Some(Self { by, xid, first: record.first, last: record.last, header: None, is_whole, kind })
    }
}

/// Facts about a call by which it is known if it is sent again: those that stay the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Said {
    /// Program, version and procedure.
    procedure: [u32; 3],
    /// Bytes of its arguments.
    length: u32,
    /// Hash of their beginning. RPCSEC_GSS protects each copy anew.
    arguments: u64,
}

impl Said {
    /// Facts about an RPC message; `None` if it is cut within its headers.
    fn of(message: &[u8]) -> Option<Self> {
        /// Bytes of the arguments that are looked at.
        const HASHED: usize = 256;
        /// Offset of the credential.
        const CREDENTIAL: usize = 24;
        let word = |at: usize| message.get(at..)?.first_chunk::<4>().map(|word| u32::from_be_bytes(*word));
        let behind = |auth: usize| auth.checked_add(8 + (word(auth + 4)? as usize).checked_next_multiple_of(4)?);
        let arguments = message.get(behind(behind(CREDENTIAL)?)?..)?;
        let is_gss = Flavor(word(CREDENTIAL)?) == Flavor::GSS;
        let hashed = if is_gss { &[] } else { &arguments[..arguments.len().min(HASHED)] };
        let hash = |hash: u64, byte: &u8| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
        Some(Self {
            procedure: [word(12)?, word(16)?, word(20)?],
            length: arguments.len() as u32,
            arguments: hashed.iter().fold(0xcbf2_9ce4_8422_2325, hash),
        })
    }

    /// True if it must not be sent again on its connection: NFS 4 forbids that (RFC 8881 2.9.2, RFC 7530 3.1.1).
    pub(crate) fn is_once_only(&self) -> bool {
        self.procedure[..2] == [Program::NFS.0, 4]
    }
}

/// Credits of one direction; the calling end is the index.
#[derive(Clone, Copy, Debug, Default)]
struct Credits {
    /// Granted by the last reply.
    granted: Seen<u32>,
    /// Most asked for.
    requested_max: u32,
    /// Calls without reply; a lower bound if messages were missed.
    outstanding: u32,
    /// The lowest number of credits that the caller held, below 0 if it called without one.
    held_min: Option<i64>,
    /// Calls that may still be sent, by any grant that the caller may know of: a lower one may be on its way to it.
    left: u32,
    /// The last reply that granted less than the one before, and the packets that had been retransmitted then.
    lowered: Option<(At, u64)>,
    /// Calls beyond that, until it is known that no reply stands behind them in the capture that came before them.
    beyond: Option<Beyond>,
    /// Detects that the caller waits for a reply before it may call again.
    room: Ceiling,
    /// Calls.
    calls: u64,
    /// Calls beyond the grant.
    overruns: u64,
    replied: bool,
}

/// Calls for which there were no credits.
#[derive(Clone, Copy, Debug)]
struct Beyond {
    at: At,
    /// Number of them.
    calls: u32,
    /// Calls without reply, at the last of them.
    outstanding: u32,
    /// Granted by the last reply; `None` before the first.
    granted: Option<u32>,
}

impl Beyond {
    /// Reports them; `by` is the caller.
    fn report(&self, cx: &mut FrameContext<'_>, by: End, is_guess: bool) {
        let Self { at, outstanding, granted, .. } = *self;
        let mut report = |rule: Rule, text: fmt::Arguments<'_>| match is_guess {
            true => cx.report_as(at, rule, by, Certainty::Guess, text),
            false => cx.report_at(at, rule, by, Rests::LEDGER, text),
        };
        match granted {
            Some(granted) => {
                report(
                    Rule::RpcrdmaCreditOverrun,
                    format_args!("has {outstanding} calls outstanding; {granted} were granted"),
                );
            }
            None => report(
                Rule::RpcrdmaCreditFirst,
                format_args!("sent a second call before the first reply had granted credits"),
            ),
        }
    }
}

impl Credits {
    /// A call for which there were no credits.
    fn overrun(&mut self, at: At) {
        let (outstanding, granted) = (self.outstanding, self.granted.known());
        let beyond = self.beyond.get_or_insert(Beyond { at, calls: 0, outstanding, granted });
        (beyond.calls, beyond.outstanding) = (beyond.calls + 1, outstanding);
    }

    /// A reply was captured at `at`: it may have come before as many calls that were captured just before it. Returns
    /// the calls without credits about which all is known now, and whether they are only a guess.
    fn replied(&mut self, at: At) -> Option<(Beyond, bool)> {
        let beyond = self.beyond.as_mut()?;
        let is_close = at.since(beyond.at) <= DISORDER || at.frame == beyond.at.frame + 1;
        beyond.calls -= u32::from(is_close);
        if is_close && beyond.calls > 0 { None } else { self.beyond.take().map(|beyond| (beyond, is_close)) }
    }

    /// A reply or an error in the frame at hand grants credits.
    fn grant(&mut self, cx: &FrameContext<'_>, credits: u32) {
        if self.granted.known().is_some_and(|before| credits < before) {
            self.lowered = Some((cx.at, cx.about.retransmissions));
        }
        self.granted = Seen::Known(credits);
    }

    /// The caller knows the last grant if it has had time to arrive: no higher one from before counts any more.
    fn settle(&mut self, cx: &FrameContext<'_>) {
        let Some((at, retransmissions)) = self.lowered else { return };
        if cx.about.retransmissions != retransmissions {
            // the reply may have been lost, and have gone again
            self.lowered = Some((cx.at, cx.about.retransmissions));
        } else if cx.at.since(at) > GRANT_ARRIVES {
            self.lowered = None;
            if let Some(granted) = self.granted.known() {
                self.left = self.left.min(granted.max(1).saturating_sub(self.outstanding));
            }
        }
    }

    /// A call is no longer outstanding.
    fn end_call(&mut self) {
        self.outstanding = self.outstanding.saturating_sub(1);
        if let Some(granted) = self.granted.known() {
            // a caller may always send one call: with less it could never go on
            self.left = self.left.max(granted.max(1).saturating_sub(self.outstanding));
        }
    }
}

/// A call without its reply.
#[derive(Clone, Debug, Default)]
struct Call {
    exchange: u64,
    at: At,
    said: Option<Said>,
    /// True if another call had its transaction id, or the same one with other chunks: those of either may come back.
    has_other_chunks: bool,
    /// Keys of all its segments.
    keys: Vec<u32>,
    /// Arrived bytes of a call in a Position-Zero Read chunk, and its length.
    long_call: Vec<u8>,
    long_have: u64,
    long_want: u64,
    /// The read list of such a call, if it has chunks with data too: as it stands in the header.
    reads: Vec<u8>,
    /// Arrived bytes of a reply in the reply chunk, and their number.
    long_reply: Vec<u8>,
    reply_have: u64,
    /// Segments of the write list, and their number in each chunk.
    segments: Vec<Segment>,
    chunk_sizes: Vec<u32>,
    /// Bytes of each of them, and of those of the reply chunk behind them, that RDMA wrote; and the number of the first.
    written: Vec<Covered>,
    first_written: u32,
    /// Bytes of all RDMA Writes into them, those that came twice too.
    wrote: u64,
    reply_segments: Vec<Segment>,
}

/// The RPC-over-RDMA side of one connection.
#[derive(Clone, Debug, Default)]
pub struct RpcRdma {
    /// By the end that calls.
    credits: [Credits; 2],
    /// Bytes of one Send to each end, if the handshake said so.
    inline_threshold: [Option<u32>; 2],
    /// True if the client takes Send with Invalidate; `None` if the handshake was not seen.
    invalidation: Option<bool>,
    /// Messages by sender.
    messages: [u64; 2],
    /// By the end that calls and transaction id.
    calls: HashMap<(End, u32), Box<Call>>,
    /// Transaction ids by number of the exchange.
    by_exchange: HashMap<u64, (End, u32)>,
    /// Bytes of calls and replies in chunks that are kept, at least of those that wait.
    long: usize,
    /// Replies to calls that were not seen, until these can come no more.
    early: VecDeque<Early>,
    /// Callers and transaction ids of the last headers that could not be used, which may be answered with an error, and
    /// of calls with an id that was in use, both of which may be answered.
    doubtful: VecDeque<(End, u32)>,
    /// Callers and transaction ids of the last calls that were answered.
    answered: VecDeque<(End, u32)>,
    /// RDMA_ERRORs.
    errors: u64,
    /// The end whose version the first of them refused: it may step down to version 1.
    refused: Option<End>,
}

/// A reply to a call that was not seen.
#[derive(Clone, Copy, Debug)]
struct Early {
    at: At,
    /// The end that called, and the transaction id.
    caller: End,
    xid: u32,
    /// True if another reply with this id came before it.
    is_again: bool,
}

impl RpcRdma {
    /// Bytes of memory that it holds.
    pub fn held(&self) -> usize {
        self.long + self.calls.capacity() * size_of::<Call>()
    }

    /// Forgets calls and replies in chunks that are not whole yet.
    pub fn release(&mut self) {
        for call in self.calls.values_mut() {
            // a message that was released never becomes whole
            (call.long_call, call.long_reply, call.long_want) = (Vec::new(), Vec::new(), u64::MAX);
        }
        self.long = 0;
    }

    /// A connection whose ends take `inline_threshold` bytes inline and whose client takes remote invalidation or not,
    /// if known; `late` if calls before the first one seen may be outstanding.
    pub fn new(inline_threshold: [Option<u32>; 2], invalidation: Option<bool>, late: bool) -> Self {
        let credits = Credits { replied: late, ..Credits::default() };
        Self { inline_threshold, invalidation, credits: [credits; 2], ..Self::default() }
    }

    /// Calls that `caller` may still send before a reply comes, if known.
    pub fn credits_left(&self, caller: End) -> Option<i64> {
        let credits = &self.credits[caller.index()];
        Some(i64::from(credits.granted.known()?) - i64::from(credits.outstanding))
    }

    /// True if an end has calls outstanding for which it had no credits, as far as is known yet.
    pub fn is_beyond_credits(&self, caller: End) -> bool {
        let credits = &self.credits[caller.index()];
        let granted = credits.granted.known().map(|granted| granted.max(1));
        // of a grant that was lowered just now it is not known if the caller knew of it
        credits.beyond.is_some() || granted.is_some_and(|granted| credits.outstanding > granted)
    }

    /// Messages are missing: outstanding calls and grants are not known for sure.
    pub fn missed(&mut self) {
        for credits in &mut self.credits {
            credits.granted = Seen::Unseen;
            credits.outstanding = 0;
            credits.beyond = None;
            credits.replied = true;
        }
    }

    /// What the handshake said does not hold from here on.
    pub fn distrust(&mut self) {
        (self.inline_threshold, self.invalidation) = ([None; 2], None);
    }

    /// Bytes that RDMA moved for a region of this connection.
    pub fn delivered(&mut self, region: &Region, offset: u64, op: &RdmaOp<'_>) {
        let Some(call) = self.by_exchange.get(&region.exchange).and_then(|key| self.calls.get_mut(key)) else { return };
        let index = (region.index & !LONG_REPLY).checked_sub(call.first_written);
        if let Some(written) = index.and_then(|at| call.written.get_mut(at as usize)) {
            written.add(offset, op.length.into());
            call.wrote = call.wrote.saturating_add(op.length.into());
        }
        if !has_message(region) {
            return;
        }
        let at = usize::try_from(region.payload_offset.saturating_add(offset)).unwrap_or(usize::MAX);
        let Some(end) = at.checked_add(op.bytes.len()).filter(|end| *end <= LONG_MAX) else { return };
        let long = if region.index & LONG_CALL > 0 {
            call.long_have += op.bytes.len() as u64;
            &mut call.long_call
        } else {
            call.reply_have += op.bytes.len() as u64;
            &mut call.long_reply
        };
        if long.len() < end {
            self.long += end - long.len();
            long.resize(end, 0);
        }
        long[at..end].copy_from_slice(op.bytes);
    }

    /// A whole Send.
    pub fn send<T: Trace>(
        &mut self,
        cx: &mut FrameContext<'_>,
        memory: &mut Memory,
        by: End,
        send: &WholeSend<'_>,
        t: &mut T,
        emit: &mut impl FnMut(&mut FrameContext<'_>, &mut Memory, &Message<'_>, &mut T),
    ) {
        cx.layer(Layer::RpcRdma);
        self.messages[by.index()] += 1;
        while self.early.front().is_some_and(|early| cx.at.since(early.at) > EARLY) {
            self.without_call(cx);
        }
        if let Some(limit) = self.inline_threshold[by.peer().index()].filter(|limit| send.wire_length > *limit) {
            let rests = Rests::since(cx.at).of(by).though_cut();
            let length = send.wire_length;
            cx.report(
                Rule::RpcrdmaInline,
                by,
                rests,
                format_args!("sent {length} bytes inline; its peer accepts {limit}"),
            );
        }
        let is_whole = send.bytes.len() as u64 >= u64::from(send.wire_length);
        let Ok((_, header)) = Header::parse(send.bytes, t) else {
            // the words behind an old type of message may be missing
            let old = send
                .bytes
                .get(12..16)
                .and_then(|word| word.first_chunk::<4>())
                .map(|word| Proc(u32::from_be_bytes(*word)));
            if let Some(proc) = old.filter(|proc| is_whole && matches!(*proc, Proc::MSGP | Proc::DONE)) {
                cx.report(
                    Rule::RpcrdmaProc,
                    by,
                    Rests::FRAME,
                    format_args!("sent {proc}, which senders must no longer use"),
                );
            } else if is_whole {
                cx.report(
                    Rule::RpcrdmaMalformed,
                    by,
                    Rests::FRAME,
                    format_args!("sent chunk lists that are cut short"),
                );
            } else {
                self.missed();
                cx.missed.hidden(by, cx.at);
            }
            return self.unusable(by, send.bytes);
        };
        // an error about a version names it (RFC 8166 4.5.1)
        if header.fixed.version != 1 && header.proc() != Proc::ERROR {
            let version = header.fixed.version;
            cx.report(Rule::RpcrdmaVersion, by, Rests::FRAME, format_args!("sent RPC-over-RDMA version {version}"));
            return self.unusable(by, send.bytes);
        }
        if header.proc() != Proc::ERROR && self.refused == Some(by) {
            self.steps_down(cx, by);
        }
        match header.proc() {
            Proc::MSG | Proc::NOMSG => {
                if let Some(word) = header.odd_word(send.bytes) {
                    let text = format_args!("sent chunk lists where {word} says if more follows; only 0 and 1 do");
                    cx.report(Rule::RpcrdmaMalformed, by, Rests::FRAME, text);
                    return self.unusable(by, send.bytes);
                }
            }
            Proc::ERROR => return self.error(cx, memory, by, send, &header, t, emit),
            proc @ (Proc::MSGP | Proc::DONE) => {
                cx.report(
                    Rule::RpcrdmaProc,
                    by,
                    Rests::FRAME,
                    format_args!("sent {proc}, which senders must no longer use"),
                );
                if proc == Proc::DONE {
                    return;
                }
            }
            proc => {
                cx.report(
                    Rule::RpcrdmaProc,
                    by,
                    Rests::FRAME,
                    format_args!("sent the unknown message type {}", proc.0),
                );
                return self.unusable(by, send.bytes);
            }
        }
        let is_cut = !is_whole && !header.is_long() && header.payload.len() < 8;
        if is_cut && cx.roles.client() == Some(by.peer()) && !self.calls.contains_key(&(by.peer(), header.fixed.xid)) {
            // a call of the reverse direction, or a reply to a call that was not seen either
            self.missed();
            cx.missed.hidden(by, cx.at);
            return;
        }
        if self.is_reply(cx, by, &header) {
            self.reply(cx, memory, by, send, &header, t, emit);
        } else {
            self.call(cx, memory, by, send, &header, is_whole, t, emit);
        }
    }

    /// An end whose version was refused goes on with version 1: that is how the version is agreed on.
    fn steps_down(&mut self, cx: &mut FrameContext<'_>, by: End) {
        self.refused = None;
        if self.errors > 1 {
            // the findings are about others too
            return;
        }
        let more = format_args!("; then version 1 was used");
        let connection = Some(cx.about.id);
        for (rule, blame) in [
            (Rule::RpcrdmaVersion, cx.blame(by)),
            (Rule::RpcrdmaVersion, Blame::Unknown),
            (Rule::RpcrdmaError, Blame::Unknown),
        ] {
            cx.env.findings.lower(rule, connection, blame, Severity::Note, more);
        }
    }

    /// Remembers the transaction id of a header that its receiver cannot use.
    fn unusable(&mut self, by: End, bytes: &[u8]) {
        if let Some(xid) = bytes.first_chunk::<4>() {
            let xid = u32::from_be_bytes(*xid);
            if !self.was_answered(by, xid) {
                self.doubt(by, xid);
            }
        }
    }

    /// What answers this transaction id may answer no call that is known.
    fn doubt(&mut self, by: End, xid: u32) {
        if self.doubtful.len() >= DOUBTFUL_MAX {
            self.doubtful.pop_front();
        }
        self.doubtful.push_back((by, xid));
    }

    /// A reply to a call that was not seen.
    fn unasked(&mut self, cx: &mut FrameContext<'_>, by: End, xid: u32) {
        if self.doubtful.contains(&(by.peer(), xid)) {
            return;
        }
        if self.early.len() >= EARLY_MAX {
            self.without_call(cx);
        }
        let (at, caller) = (cx.at, by.peer());
        self.early.push_back(Early { at, caller, xid, is_again: self.answered.contains(&(caller, xid)) });
    }

    /// Reports the oldest reply to a call that was not seen.
    fn without_call(&mut self, cx: &mut FrameContext<'_>) {
        if let Some(Early { at, caller, xid, is_again }) = self.early.pop_front() {
            let (by, rests) = (caller.peer(), Rests::START.of(caller).though_cut());
            if is_again {
                cx.report_at(at, Rule::RpcrdmaXid, by, rests, format_args!("answered XID {xid:#010x} a second time"));
            } else {
                let text = format_args!("answered XID {xid:#010x}, but there is no such call");
                cx.report_at(at, Rule::RpcrdmaXid, by, rests, text);
            }
        }
    }

    /// True if the reply to this call stands before it in the capture. Then no other is expected.
    fn was_answered(&mut self, caller: End, xid: u32) -> bool {
        let place = self.early.iter().position(|early| (early.caller, early.xid) == (caller, xid));
        place.and_then(|place| self.early.remove(place)).is_some()
    }

    /// The connection or the capture ends.
    pub fn finish(&mut self, cx: &mut FrameContext<'_>) {
        for by in End::BOTH {
            if let Some(beyond) = self.credits[by.index()].beyond.take() {
                beyond.report(cx, by, false);
            }
        }
        while !self.early.is_empty() {
            self.without_call(cx);
        }
    }

    fn is_reply(&self, cx: &FrameContext<'_>, by: End, header: &Header<'_>) -> bool {
        let answers = || self.calls.contains_key(&(by.peer(), header.fixed.xid));
        match header.payload.get(4..8) {
            Some(kind) if !header.is_long() => kind == [0, 0, 0, 1],
            _ if !header.is_long() => answers(),
            // a long call has its Position-Zero Read chunk, a long reply its reply chunk (RFC 8166 3.5)
            _ if header.reads.has_message() => false,
            _ => header.reply.is_some() || answers() || cx.roles.client() != Some(by),
        }
    }

    #[expect(clippy::too_many_arguments, reason = "a message, the layers that it touches, and the callback")]
    fn call<T: Trace>(
        &mut self,
        cx: &mut FrameContext<'_>,
        memory: &mut Memory,
        by: End,
        send: &WholeSend<'_>,
        header: &Header<'_>,
        is_whole: bool,
        t: &mut T,
        emit: &mut impl FnMut(&mut FrameContext<'_>, &mut Memory, &Message<'_>, &mut T),
    ) {
        let xid = header.fixed.xid;
        let backward = cx.roles.sure_client() == Some(by.peer());
        let chunks = !header.reads.is_empty() || !header.writes.is_empty() || header.reply.is_some();
        if chunks {
            cx.roles.learn(by, Source::Shape);
        }
        // RFC 8167 5.3: chunks may be used, but no item of a callback may be in one of its own (RFC 8267 6.5)
        if backward && (header.reads.iter().any(|segment| segment.position != 0) || !header.writes.is_empty()) {
            let text = format_args!("offered chunks for data in a call of the reverse direction");
            cx.report(Rule::RpcrdmaBackward, by, Rests::since(cx.at).of(by).though_cut(), text);
        }
        if header.is_long() && !header.reads.has_message() && header.reply.is_none() {
            let text = format_args!("sent RDMA_NOMSG with neither a Position-Zero Read chunk nor a reply chunk");
            cx.report(Rule::RpcrdmaNomsg, by, Rests::FRAME, text);
        }
        chunk_rules(cx, by, header, is_whole);
        self.spend(cx, by, header);
        let said = if header.is_long() { None } else { Said::of(header.payload) };
        let earlier = self.take(by, xid);
        if let Some(old) = &earlier {
            self.credits[by.index()].end_call();
            self.doubt(by, xid);
            let rests = Rests::since(old.at).of(by.peer());
            // of a call in a Position-Zero Read chunk nothing is known yet
            if said != old.said {
                let text = format_args!("used XID {xid:#010x} again while its call was outstanding");
                cx.report(Rule::RpcrdmaXid, by, rests, text);
            } else if said.is_some_and(|said| said.is_once_only()) {
                let text = format_args!("sent the call of XID {xid:#010x} again on the same connection");
                cx.report(Rule::RpcrdmaXid, by, rests, text);
                cx.env.findings.because(Rule::RpcrdmaXid, Some(cx.about.id), cx.blame(by), Some(IMPATIENT));
            }
        }
        if self.was_answered(by, xid) {
            self.missed();
            cx.missed.hidden(by.peer(), cx.at);
        }
        let is_again = earlier.as_ref().is_some_and(|old| said == old.said);
        let exchange =
            earlier.as_ref().filter(|_| is_again).map_or_else(|| cx.env.number_exchange(), |old| old.exchange);
        let call = match earlier {
            Some(old) if is_again && keys(header).eq(old.keys.iter().copied()) => old,
            earlier => {
                let mut call = advertise(cx, memory, by, header, exchange);
                call.said = said;
                // the reply may be that of either
                if let Some(old) = earlier {
                    call.has_other_chunks = true;
                    if is_again {
                        call.at = old.at;
                    }
                    call.keys.extend(old.keys);
                }
                Box::new(call)
            }
        };
        self.remember(cx, by, xid, call);
        let message = (!header.is_long()).then(|| Stream::inline(header));
        if message.is_none() && T::ON {
            t.info(format_args!("the call is in a Position-Zero Read chunk"));
        }
        let kind = Kind::Call { exchange, said, message };
        let (first, last, is_whole) = (send.first, send.last, send.bytes.len() as u64 >= u64::from(send.wire_length));
        emit(cx, memory, &Message::Rpc(RpcMessage { by, xid, first, last, header: Some(header), is_whole, kind }), t);
    }

    /// The transaction id of the call that a reply answers. The header and the RPC message have the same; if they
    /// differ and only that of the message belongs to a call, it is that.
    fn answered_xid(&mut self, cx: &mut FrameContext<'_>, by: End, header: &Header<'_>) -> u32 {
        let (xid, caller) = (header.fixed.xid, by.peer());
        let has_message = header.proc() == Proc::MSG && !self.calls.contains_key(&(caller, xid));
        let inner = header.payload.first_chunk::<4>().filter(|_| has_message).map(|word| u32::from_be_bytes(*word));
        let Some(inner) = inner.filter(|inner| *inner != xid) else { return xid };
        other_xid(cx, by, Rests::FRAME, xid, inner);
        if self.calls.contains_key(&(caller, inner)) {
            return inner;
        }
        // that there is no call of this id is the same fault
        self.doubt(caller, xid);
        xid
    }

    /// Credits of a call: RFC 8166 3.3.1.
    fn spend(&mut self, cx: &mut FrameContext<'_>, by: End, header: &Header<'_>) {
        let credits = &mut self.credits[by.index()];
        if let Some((begin, end)) = credits.room.used(cx.at) {
            cx.episodes.stalled(by, Cause::RpcRdmaCredits, begin, end);
        }
        credits.settle(cx);
        credits.calls += 1;
        credits.requested_max = credits.requested_max.max(header.fixed.credits);
        credits.outstanding += 1;
        let outstanding = credits.outstanding;
        let left = credits.left;
        credits.left = left.saturating_sub(1);
        let held = match credits.granted {
            // one that keeps to the last grant may know it
            Seen::Known(granted) if left == 0 || outstanding <= granted => {
                Some(i64::from(granted) - i64::from(outstanding))
            }
            Seen::Known(_) => Some(i64::from(left) - 1),
            // one call may go before the first grant: that it is sent says nothing
            Seen::Unseen if !credits.replied && outstanding > 1 => Some(1 - i64::from(outstanding)),
            _ => None,
        };
        credits.held_min = credits.held_min.into_iter().chain(held).min();
        if credits.granted.known().is_some_and(|granted| outstanding >= granted) {
            credits.room.full(cx.at);
        }
        match credits.granted {
            Seen::Known(_) if left == 0 => {
                credits.overruns += 1;
                credits.overrun(cx.at);
            }
            Seen::Unseen if !credits.replied && outstanding == 2 => credits.overrun(cx.at),
            _ => {}
        }
    }

    /// Keeps a call until its reply comes. If there are too many, the older half goes.
    fn remember(&mut self, cx: &FrameContext<'_>, by: End, xid: u32, call: Box<Call>) {
        if self.calls.len() >= cx.env.options.requests_max {
            let mut numbers: Vec<u64> = self.calls.values().map(|c| c.exchange).collect();
            numbers.sort_unstable();
            let middle = numbers.get(numbers.len() / 2).copied().unwrap_or(0);
            self.calls.retain(|_, c| c.exchange > middle);
            self.by_exchange.retain(|exchange, _| *exchange > middle);
            self.long = self.calls.values().map(|c| c.long_call.len() + c.long_reply.len()).sum();
        }
        self.by_exchange.insert(call.exchange, (by, xid));
        self.long += call.long_call.len() + call.long_reply.len();
        self.calls.insert((by, xid), call);
    }

    #[expect(clippy::too_many_arguments, reason = "a message, the layers that it touches, and the callback")]
    fn reply<T: Trace>(
        &mut self,
        cx: &mut FrameContext<'_>,
        memory: &mut Memory,
        by: End,
        send: &WholeSend<'_>,
        header: &Header<'_>,
        t: &mut T,
        emit: &mut impl FnMut(&mut FrameContext<'_>, &mut Memory, &Message<'_>, &mut T),
    ) {
        let caller = by.peer();
        let xid = self.answered_xid(cx, by, header);
        cx.roles.learn(caller, Source::Shape);
        let credits = &mut self.credits[caller.index()];
        let beyond = credits.replied(cx.at);
        credits.grant(cx, header.fixed.credits);
        credits.end_call();
        credits.replied = true;
        if credits.outstanding < header.fixed.credits {
            credits.room.free(cx.at);
        }
        if let Some((beyond, is_guess)) = beyond {
            beyond.report(cx, caller, is_guess);
        }
        if header.fixed.credits == 0 {
            cx.report(Rule::RpcrdmaCreditZero, by, Rests::FRAME, format_args!("granted 0 credits"));
        }
        let call = self.take(caller, xid);
        if call.is_none() {
            self.unasked(cx, by, xid);
        }
        if self.answered.len() >= ANSWERED_MAX {
            self.answered.pop_front();
        }
        self.answered.push_back((caller, xid));
        let mut call = call.unwrap_or_default();
        if call.exchange > 0 {
            if !call.has_other_chunks {
                shape(cx, by, header, &call);
                written(cx, by, header, &call);
            }
            if header.is_long() && header.reply.is_none_or(|chunk| chunk.length() == 0) {
                let text = format_args!("sent RDMA_NOMSG with nothing in the Reply chunk");
                cx.report(Rule::RpcrdmaNomsg, by, Rests::since(call.at).of(by), text);
            }
        }
        if let Some(key) = send.invalidate {
            self.invalidated(cx, memory, by, key, &call);
        }
        let is_long = header.is_long();
        let written = usize::try_from(header.reply.map_or(0, |c| c.length())).unwrap_or(usize::MAX);
        // what stands in a hole is no part of the reply
        let own = call.written.get(call.segments.len()..).unwrap_or_default().iter();
        let mut segments = header.reply.iter().flat_map(|c| c.segments()).zip(own);
        let is_filled = segments.all(|(segment, covered)| {
            let length = segment.length.into();
            covered.of(length).is_some_and(|(_, first)| first == length)
        });
        call.long_reply.truncate(if is_filled { written } else { 0 });
        // a reply in its chunk is whole if all that was written was captured and kept
        let is_reply_whole = call.long_reply.len() == written && call.reply_have >= written as u64;
        let message = if is_long { Stream::long(header, &call.long_reply) } else { Stream::inline(header) };
        let is_call_whole = call.long_want > 0 && call.long_have >= call.long_want;
        let long_call = Stream { bytes: &call.long_call, reads: Reads::of(&call.reads), ..Stream::default() };
        let is_attributed = memory.unattributed() == 0 && !call.has_other_chunks;
        let (call_of_chunk, is_of_either) = (is_call_whole.then_some(long_call), call.has_other_chunks);
        let kind = Kind::Reply { message, is_long, call: call_of_chunk, is_attributed, is_of_either };
        let is_whole = send.bytes.len() as u64 >= u64::from(send.wire_length) && (is_reply_whole || !is_long);
        let (first, last) = (send.first, send.last);
        emit(cx, memory, &Message::Rpc(RpcMessage { by, xid, first, last, header: Some(header), is_whole, kind }), t);
        let is_void = header.writes.iter().chain(header.reply).all(|chunk| chunk.length() == 0);
        for key in &call.keys {
            memory.end(cx.at, caller, *key, call.exchange, is_void);
        }
    }

    #[expect(clippy::too_many_arguments, reason = "a message, the layers that it touches, and the callback")]
    fn error<T: Trace>(
        &mut self,
        cx: &mut FrameContext<'_>,
        memory: &mut Memory,
        by: End,
        send: &WholeSend<'_>,
        header: &Header<'_>,
        t: &mut T,
        emit: &mut impl FnMut(&mut FrameContext<'_>, &mut Memory, &Message<'_>, &mut T),
    ) {
        let (xid, caller) = (header.fixed.xid, by.peer());
        self.errors += 1;
        // only its sender knows why: a header that it cannot use, a Reply chunk without room, or a mistake of its own
        let call = self.calls.get(&(caller, xid)).map(|call| call.at.frame);
        // a requester may refuse a reply (RFC 8166 4.5); a call of its own with this id has an answer already
        let is_of_reply = call.is_none() && self.answered.contains(&(by, xid));
        let what = if is_of_reply { "the reply to " } else { "" };
        let called = call.map_or(String::new(), |frame| format!(", called in frame {frame},"));
        let mut refused = |reason: fmt::Arguments<'_>| {
            let site = cx.site(cx.at);
            let by = match cx.blame(by) {
                Blame::Client => " by the client",
                Blame::Server => " by the server",
                _ => "",
            };
            let text = format_args!("{what}XID {xid:#010x}{called} was refused{by}: {reason}");
            cx.env.report(Rule::RpcrdmaError, Blame::Unknown, site, Certainty::Certain, text);
        };
        // what is known to be a call, or a reply, was of version 1: nobody is refused by who speaks that
        let is_of_1 = call.is_some() || is_of_reply;
        let is_untrue = |v: &Versions| v.low > v.high || is_of_1 && (v.low..=v.high).contains(&1);
        match header.error {
            Some(Error::Vers(v)) if is_untrue(&v) => {
                let Versions { low, high } = v;
                let (id, blame) = (Some(cx.about.id), cx.blame(by));
                let text = if low > high {
                    format!("versions {low} to {high}, which is no range")
                } else {
                    format!("versions {low} to {high}; it was of version 1")
                };
                let text = format_args!("refused {what}XID {xid:#010x}{called} with ERR_VERS, and speaks {text}");
                cx.report(Rule::RpcrdmaError, by, Rests::FRAME, text);
                let why =
                    Some("A responder that refuses for another reason than it says, or takes one header for another");
                cx.env.findings.because(Rule::RpcrdmaError, id, blame, why);
            }
            Some(Error::Vers(v)) => {
                refused(format_args!("ERR_VERS, the responder speaks versions {} to {}", v.low, v.high));
                let is_first = self.errors == 1 && self.doubtful.contains(&(caller, xid));
                self.refused = Some(caller).filter(|_| is_first && (v.low..=v.high).contains(&1));
            }
            Some(Error::Chunk) => refused(format_args!("ERR_CHUNK")),
            _ => refused(format_args!("an unknown error")),
        }
        let has_reply_chunk = self.calls.get(&(caller, xid)).is_some_and(|call| !call.reply_segments.is_empty());
        let why = match header.error {
            _ if is_of_reply => Some("A reply that its receiver cannot use"),
            Some(Error::Vers(_)) => Some("The two have no version of RPC-over-RDMA in common"),
            Some(Error::Chunk) if has_reply_chunk => None,
            _ => Some("A header or chunks that the receiver cannot use, or a mistake of its own"),
        };
        cx.env.findings.because(Rule::RpcrdmaError, Some(cx.about.id), Blame::Unknown, why);
        if is_of_reply {
            return;
        }
        let credits = &mut self.credits[caller.index()];
        if header.fixed.credits > 0 {
            credits.grant(cx, header.fixed.credits);
        }
        credits.end_call();
        credits.replied = true;
        let Some(call) = self.take(caller, xid) else {
            return self.unasked(cx, by, xid);
        };
        let (first, last, kind) = (send.first, send.last, Kind::Error);
        emit(
            cx,
            memory,
            &Message::Rpc(RpcMessage { by, xid, first, last, header: Some(header), is_whole: true, kind }),
            t,
        );
        for key in &call.keys {
            memory.end(cx.at, caller, *key, call.exchange, true);
        }
    }

    /// A reply came as a Send with Invalidate: RFC 8797 4.1.
    fn invalidated(&self, cx: &mut FrameContext<'_>, memory: &mut Memory, by: End, key: u32, call: &Call) {
        let rests = Rests::since(cx.at).of(by).though_cut();
        if self.invalidation == Some(false) {
            let text = format_args!(
                "invalidated key {key:#010x}; the client did not announce support for remote invalidation in the \
                    handshake"
            );
            cx.report(Rule::RdmaInvalidate, by, rests, text);
            let (blame, why) = (cx.blame(by), Some("A server that does not look at the private data of the handshake"));
            cx.env.findings.because(Rule::RdmaInvalidate, Some(cx.about.id), blame, why);
        } else if call.exchange > 0 && !call.keys.contains(&key) {
            let text = format_args!("invalidated key {key:#010x}, which does not belong to the call that it answers");
            cx.report(Rule::RdmaInvalidate, by, Rests::since(call.at).of(by).though_cut(), text);
            let (blame, why) = (cx.blame(by), Some("A server that takes the wrong key, or that of another call"));
            cx.env.findings.because(Rule::RdmaInvalidate, Some(cx.about.id), blame, why);
            // that the key may be unknown, or invalid already, is the same fault
            return memory.invalidated_wrongly(cx.at, by.peer(), key);
        }
        memory.invalidated_as_asked(cx, by.peer(), key);
    }

    fn take(&mut self, caller: End, xid: u32) -> Option<Box<Call>> {
        let call = self.calls.remove(&(caller, xid))?;
        self.by_exchange.remove(&call.exchange);
        self.long = self.long.saturating_sub(call.long_call.len() + call.long_reply.len());
        Some(call)
    }

    /// Messages and credits by end A and B, for a report.
    pub fn summary(&self) -> [SideReport; 2] {
        End::BOTH.map(|end| {
            let credits = &self.credits[end.index()];
            let mut side = SideReport {
                messages: self.messages[end.index()],
                requested_max: credits.requested_max,
                spent_total: credits.calls,
                overruns: credits.overruns,
                ..SideReport::default()
            };
            if let Some(granted) = credits.granted.known() {
                side.granted_total = granted.into();
                // a lower grant takes nothing from calls that are on their way
                let least = if credits.overruns > 0 { i64::MIN } else { 0 };
                side.held_last = Some((i64::from(granted) - i64::from(credits.outstanding)).max(least));
                side.held_min = credits.held_min.or(side.held_last);
            }
            side
        })
    }

    /// Swaps ends A and B.
    pub fn swap_ends(&mut self) {
        self.credits.swap(0, 1);
        self.inline_threshold.swap(0, 1);
        self.messages.swap(0, 1);
        self.calls = self.calls.drain().map(|((caller, xid), call)| ((caller.peer(), xid), call)).collect();
        self.by_exchange =
            self.by_exchange.drain().map(|(exchange, (caller, xid))| (exchange, (caller.peer(), xid))).collect();
        for caller in self
            .early
            .iter_mut()
            .map(|early| &mut early.caller)
            .chain(self.doubtful.iter_mut().map(|(caller, _)| caller))
        {
            *caller = caller.peer();
        }
        self.answered.iter_mut().for_each(|(caller, _)| *caller = caller.peer());
        self.refused = self.refused.map(End::peer);
    }

    /// Takes over the other half of a connection whose directions were first taken for two.
    pub fn adopt(&mut self, by: End, mut from: Self, from_end: End) {
        if by != from_end {
            from.swap_ends();
        }
        self.messages[by.index()] += from.messages[by.index()];
        for (mine, theirs) in self.credits.iter_mut().zip(from.credits) {
            mine.calls += theirs.calls;
            mine.overruns += theirs.overruns;
            mine.requested_max = mine.requested_max.max(theirs.requested_max);
        }
        self.errors += from.errors;
        self.calls.extend(from.calls);
        self.by_exchange.extend(from.by_exchange);
        // the calls of one half may be those that the replies of the other answer
        self.early.clear();
        self.missed();
    }
}

/// Checks the positions of read chunks, which come in rising order. A message of which `inline` bytes are not in them
/// was sent.
fn positions(cx: &mut FrameContext<'_>, by: End, inline: u64, chunks: impl Iterator<Item = ReadSegment>) {
    let sure = Rests::FRAME;
    let (mut last, mut last_end, mut removed) = (0u64, 0u64, 0u64);
    for segment in chunks {
        let position = u64::from(segment.position);
        if position != last {
            // positions count the round-up bytes, which may be in the chunk or not
            removed = removed.next_multiple_of(4);
        }
        if position % 4 != 0 {
            cx.report(
                Rule::RpcrdmaPosition,
                by,
                sure,
                format_args!("has a read chunk at position {position}, not a multiple of 4"),
            );
        } else if position > inline.saturating_add(removed) {
            let text = format_args!("has a read chunk at position {position}, past the end of the message");
            cx.report(Rule::RpcrdmaPosition, by, sure, text);
            cx.report(
                Rule::BugCve202689526,
                by,
                sure,
                format_args!("has a read chunk at position {position}, past the inline body"),
            );
        } else if position > last && position < last_end {
            let text = format_args!(
                "has a read chunk at position {position}, inside the one at {last}, which ends at {last_end}"
            );
            cx.report(Rule::RpcrdmaPosition, by, sure, text);
            cx.report(
                Rule::BugCve202689526,
                by,
                sure,
                format_args!("has read chunks that overlap, at positions {last} and {position}"),
            );
        }
        last_end =
            if position == last { last_end.max(position) } else { position }.saturating_add(segment.length.into());
        last = position;
        removed = removed.saturating_add(segment.length.into());
    }
}

/// Checks the chunk lists of a call.
fn chunk_rules(cx: &mut FrameContext<'_>, by: End, header: &Header<'_>, is_whole: bool) {
    let sure = Rests::FRAME;
    if header.proc() == Proc::MSG && header.reads.has_message() {
        let text = format_args!("has a read chunk at position 0 of RDMA_MSG; the message is in its Send");
        cx.report(Rule::RpcrdmaPosition, by, sure, text);
    }
    // a Position-Zero Read chunk is the message itself, out of which other chunks may have been taken
    let inline = match header.is_long() {
        true if header.reads.has_message() => header.reads.at(0).map(|segment| u64::from(segment.length)).sum(),
        false if is_whole => header.payload.len() as u64,
        _ => u64::MAX,
    };
    let chunks = header.reads.iter().filter(|segment| segment.position > 0);
    if chunks.clone().is_sorted_by_key(|segment| segment.position) {
        positions(cx, by, inline, chunks);
    } else {
        // the list has no order
        let mut sorted: Vec<_> = chunks.collect();
        sorted.sort_by_key(|segment| segment.position);
        positions(cx, by, inline, sorted.into_iter());
    }
    let written = header.writes.iter().chain(header.reply).flat_map(|chunk| chunk.segments());
    for Segment { offset, length, .. } in header.reads.iter().map(|s| s.segment()).chain(written) {
        // the last byte may be the last there is
        if offset.checked_add(u64::from(length).saturating_sub(1)).is_none() {
            cx.report(
                Rule::BugCve202689533,
                by,
                sure,
                format_args!("has a segment of {length} bytes at {offset:#x}, which wraps"),
            );
        }
    }
    let whole = header.reads.length();
    if whole > READ_BUDGET {
        cx.report(Rule::BugCve202689528, by, sure, format_args!("offers {whole} bytes in read chunks"));
    }
    for _ in header.writes.iter().filter(|chunk| chunk.is_empty()) {
        cx.report(Rule::BugCve202689532, by, sure, format_args!("has a write chunk without segments"));
    }
    if header.reply.is_some_and(|c| c.is_empty()) {
        cx.report(Rule::BugCve202693228, by, sure, format_args!("has a reply chunk without segments"));
    }
}

/// Keys of all segments of a call, in the order in which they are advertised.
fn keys(header: &Header<'_>) -> impl Iterator<Item = u32> {
    let written = header.writes.iter().chain(header.reply).flat_map(|chunk| chunk.segments());
    header.reads.iter().map(|segment| segment.handle).chain(written.map(|segment| segment.handle))
}

/// The memory that the chunk lists of a call advertise.
fn advertise(cx: &mut FrameContext<'_>, memory: &mut Memory, by: End, header: &Header<'_>, exchange: u64) -> Call {
    let mut call = Call { exchange, at: cx.at, ..Call::default() };
    let (at, mut index) = (cx.at, 0);
    let mut add = |call: &mut Call, segment: Segment, right: Right, flag: u32, payload_offset: u64| {
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
            awaited: false,
            is_void: false,
        };
        memory.advertise(cx, by, segment.handle, region);
        call.keys.push(segment.handle);
        index += 1;
    };
    let (mut long, mut data) = (0, 0);
    for segment in header.reads.iter() {
        let (flag, offset) = if segment.position == 0 { (LONG_CALL, &mut long) } else { (0, &mut data) };
        add(&mut call, segment.segment(), Right::Read, flag, *offset);
        *offset += u64::from(segment.length);
    }
    call.long_want = long;
    if long > 0 && data > 0 {
        call.reads = header.reads.bytes().to_vec();
    }
    let mut data = 0;
    call.first_written = header.reads.len() as u32;
    for chunk in header.writes.iter() {
        call.chunk_sizes.push(chunk.len() as u32);
        for segment in chunk.segments() {
            call.segments.push(segment);
            add(&mut call, segment, Right::Write, 0, data);
            data += u64::from(segment.length);
        }
    }
    let mut long = 0;
    for segment in header.reply.iter().flat_map(|c| c.segments()) {
        call.reply_segments.push(segment);
        add(&mut call, segment, Right::Write, LONG_REPLY, long);
        long += u64::from(segment.length);
    }
    call.written.resize_with(call.segments.len() + call.reply_segments.len(), Covered::default);
    call
}

/// Checks the write list and the reply chunk of a reply against the call: RFC 8166 3.4.6 and 4.3.
fn shape(cx: &mut FrameContext<'_>, by: End, header: &Header<'_>, call: &Call) {
    let rests = Rests::since(call.at).of(by).though_cut();
    let (offered, returned) = (call.chunk_sizes.len(), header.writes.len());
    if returned != offered {
        let text = format_args!("returned a write list with {returned} of {offered} chunks");
        cx.report(Rule::RpcrdmaWriteShape, by, rests, text);
    }
    let mut rest = call.segments.as_slice();
    for (index, (chunk, size)) in header.writes.iter().zip(&call.chunk_sizes).enumerate() {
        let (offers, after) = rest.split_at_checked(*size as usize).unwrap_or((rest, &[]));
        rest = after;
        if offers.len() != chunk.len() {
            cx.report(
                Rule::RpcrdmaWriteShape,
                by,
                rests,
                format_args!("changed the number of segments of write chunk {index}"),
            );
            return;
        }
        filled(cx, by, rests, chunk.segments().zip(offers.iter().copied()));
    }
    let Some(chunk) = header.reply.filter(|c| !c.is_empty()) else { return };
    if chunk.len() != call.reply_segments.len() {
        let (got, offered) = (chunk.len(), call.reply_segments.len());
        cx.report(
            Rule::RpcrdmaWriteShape,
            by,
            rests,
            format_args!("returned a reply chunk with {got} of {offered} segments"),
        );
    } else {
        filled(cx, by, rests, chunk.segments().zip(call.reply_segments.iter().copied()));
    }
}

/// Cause of a chunk in which padding is counted (RFC 8166 3.4.5.2, 3.4.6.2).
pub(crate) const PADDING: &str = "Padding counted as data";
/// Cause of a chunk in which bytes were written, but not all from its beginning on.
const DISPLACED: &str = "The server wrote at another place of the chunk than its length says, or one part twice and another not at all: \
    what stands in the hole is what was there before";

/// Compares the bytes that the chunks of a reply announce with those that were written there: from the beginning of each
/// segment on, and no round-up bytes behind them, RFC 8166 3.4.6. Other bytes behind them may be changed.
fn written(cx: &mut FrameContext<'_>, by: End, header: &Header<'_>, call: &Call) {
    let rests = Rests::since(call.at).of(by).though_cut();
    let (blame, id) = (cx.blame(by), Some(cx.about.id));
    let (mut announced, mut there) = (0, 0);
    let mut rest = call.written.as_slice();
    let sizes = call.chunk_sizes.iter().map(|size| *size as usize).chain([call.reply_segments.len()]);
    for (chunk, size) in header.writes.iter().map(Some).chain([header.reply]).zip(sizes) {
        let (own, after) = rest.split_at_checked(size).unwrap_or((rest, &[]));
        rest = after;
        let Some(chunk) = chunk else { continue };
        let (says, mut first, mut all) = (chunk.length(), 0, 0);
        for (segment, covered) in chunk.segments().zip(own) {
            let Some((bytes, of_it)) = covered.of(segment.length.into()) else { return };
            (first, all) = (first + of_it, all + bytes);
        }
        (announced, there) = (announced + says, there + first);
        if first == says && says < all && all <= says.next_multiple_of(4) {
            let text = format_args!("wrote {all} bytes into a chunk and says {says}");
            cx.report(Rule::RpcrdmaChunkLength, by, rests, text);
            cx.env.findings.because(Rule::RpcrdmaChunkLength, id, blame, Some(PADDING));
        }
    }
    if announced > there {
        let text = format_args!("says {announced} bytes were written into the chunks; {there} were seen");
        cx.report(Rule::RpcrdmaChunkLength, by, rests, text);
        cx.env.findings.because(Rule::RpcrdmaChunkLength, id, blame, (call.wrote > there).then_some(DISPLACED));
    }
}

/// Checks segments of a chunk as they are returned, each with the one that was offered: the same memory, filled from
/// the front.
fn filled(cx: &mut FrameContext<'_>, by: End, rests: Rests, segments: impl Iterator<Item = (Segment, Segment)>) {
    let mut room_left = false;
    for (segment, offer) in segments {
        let (got, room) = (segment.length, offer.length);
        if (segment.handle, segment.offset) != (offer.handle, offer.offset) {
            let (handle, offered) = (segment.handle, offer.handle);
            if handle == offered {
                let (at, asked) = (segment.offset, offer.offset);
                let text = format_args!(
                    "returned a segment of key {handle:#010x} at offset {at:#x}; it was offered at {asked:#x}"
                );
                cx.report(Rule::RpcrdmaWriteShape, by, rests, text);
            } else {
                let text =
                    format_args!("returned a segment of key {handle:#010x} in place of one of key {offered:#010x}");
                cx.report(Rule::RpcrdmaWriteShape, by, rests, text);
            }
        } else if got > room {
            cx.report(
                Rule::RpcrdmaWriteShape,
                by,
                rests,
                format_args!("says it wrote {got} bytes into a segment of {room}"),
            );
        } else if got > 0 && room_left {
            cx.report(
                Rule::RpcrdmaWriteShape,
                by,
                rests,
                format_args!("says it wrote {got} bytes behind a segment that is not full"),
            );
        }
        room_left |= got < room;
    }
}

/// Shows a Send without counting it.
pub fn show<T: Trace>(bytes: &[u8], known: &mut dyn Known, t: &mut T) {
    if let Ok((_, header)) = Header::parse(bytes, t)
        && !header.is_long()
        && header.error.is_none()
    {
        let _ = rpc::dissect(&Stream::inline(&header), known.rpc(header.fixed.xid), t, &mut ());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::context::alone::Alone;
    use alloc::vec;
    use rdmascope_dissector::trace::Off;

    const C: End = End::A;
    const S: End = End::B;
    const NO_CHUNKS: &[u32] = &[0, 0, 0];

    /// RPC-over-RDMA alone, and the messages that it hands up: sender and transaction id.
    struct Layer {
        alone: Alone,
        memory: Memory,
        rpc: RpcRdma,
        up: Vec<(End, u32)>,
    }

    impl Layer {
        fn new() -> Self {
            Self {
                alone: Alone::new(),
                memory: Memory::default(),
                rpc: RpcRdma::new([None; 2], None, false),
                up: Vec::new(),
            }
        }

        fn send(&mut self, by: End, words: &[u32], invalidate: Option<u32>) {
            let Self { alone, memory, rpc, up } = self;
            let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_be_bytes()).collect();
            let mut cx = alone.frame(by);
            let at = cx.at;
            let send = WholeSend {
                first: at,
                last: at,
                bytes: &bytes,
                wire_length: bytes.len() as u32,
                invalidate,
                in_frame: true,
                pieces: None,
                is_unchecked: false,
            };
            let mut emit = |_: &mut FrameContext<'_>, _: &mut Memory, message: &Message<'_>, _: &mut Off| {
                if let Message::Rpc(m) = message {
                    up.push((m.by, m.xid));
                }
            };
            rpc.send(&mut cx, memory, by, &send, &mut Off, &mut emit);
        }

        /// An NFSv3 NULL call with these chunk lists.
        fn call(&mut self, xid: u32, chunks: &[u32]) {
            self.send(C, &[&[xid, 1, 32, 0], chunks, &[xid, 0, 2, 100_003, 3, 0, 0, 0, 0, 0]].concat(), None);
        }

        /// Its reply, which grants `granted` credits.
        fn reply(&mut self, xid: u32, granted: u32, chunks: &[u32]) {
            self.send(S, &[&[xid, 1, granted, 0], chunks, &[xid, 1, 0, 0, 0, 0]].concat(), None);
        }

        /// Rules that were broken, with those that waited for packets that might still come.
        fn broken(&mut self) -> Vec<(Rule, Blame)> {
            let Self { alone, rpc, .. } = self;
            rpc.finish(&mut alone.frame(S));
            let mut broken = self.alone.broken();
            self.alone.missed.captured(C, At::default());
            self.alone.missed.captured(S, At::default());
            self.alone.missed.finish(|evidence| {
                broken.push((evidence.rule, if evidence.by == C { Blame::Client } else { Blame::Server }))
            });
            broken
        }

        fn state(&self, key: u32) -> Option<State> {
            self.memory.find(C, key).map(|region| region.state)
        }
    }

    /// Chunk lists with one Write chunk of one segment.
    fn write_chunk(key: u32, length: u32) -> Vec<u32> {
        vec![0, 1, 1, key, length, 0, 0x1000, 0, 0]
    }

    #[test]
    fn calls_and_replies_are_handed_up_and_credits_are_counted() {
        let mut layer = Layer::new();
        layer.call(1, NO_CHUNKS);
        assert_eq!(layer.rpc.credits_left(C), None, "no reply has granted any");
        layer.reply(1, 2, NO_CHUNKS);
        assert_eq!(layer.rpc.credits_left(C), Some(2));
        layer.call(2, NO_CHUNKS);
        layer.call(3, NO_CHUNKS);
        assert_eq!((layer.rpc.credits_left(C), layer.broken()), (Some(0), vec![]));
        layer.call(4, NO_CHUNKS);
        assert_eq!(layer.broken(), [(Rule::RpcrdmaCreditOverrun, Blame::Client)]);
        assert_eq!(layer.up, [(C, 1), (S, 1), (C, 2), (C, 3), (C, 4)]);
    }

    /// The caller may have sent calls before it knew of the lower grant: only those beyond all grants break the rule.
    #[test]
    fn a_lower_grant_may_be_on_its_way() {
        for (more, expected) in [(2, vec![]), (3, vec![(Rule::RpcrdmaCreditOverrun, Blame::Client)])] {
            let mut layer = Layer::new();
            layer.call(1, NO_CHUNKS);
            layer.reply(1, 4, NO_CHUNKS);
            layer.call(2, NO_CHUNKS);
            layer.call(3, NO_CHUNKS);
            layer.reply(2, 1, NO_CHUNKS);
            (4..4 + more).for_each(|xid| layer.call(xid, NO_CHUNKS));
            assert_eq!(layer.broken(), expected, "{more}");
        }
    }

    /// What a client held is counted when it calls: a later grant changes nothing about that.
    #[test]
    fn the_lowest_number_of_credits_is_that_of_its_time() {
        let held = |grants: [u32; 2], calls: u32| {
            let mut layer = Layer::new();
            layer.call(1, NO_CHUNKS);
            layer.reply(1, grants[0], NO_CHUNKS);
            (2..2 + calls).for_each(|xid| layer.call(xid, NO_CHUNKS));
            layer.reply(2, grants[1], NO_CHUNKS);
            let side = layer.rpc.summary()[C.index()];
            (side.held_min, side.held_last)
        };
        assert_eq!(held([4, 64], 4), (Some(0), Some(61)), "the grant rises at the end");
        assert_eq!(held([8, 2], 8), (Some(0), Some(0)), "it falls while calls are under way");
        assert_eq!(held([4, 4], 6).0, Some(-2), "two more than were granted");
        assert_eq!(held([4, 4], 2).0, Some(2), "the first call has the one credit that there is");
    }

    #[test]
    fn a_client_that_keeps_to_a_lower_grant_holds_no_more() {
        let mut layer = Layer::new();
        layer.call(1, NO_CHUNKS);
        layer.reply(1, 24, NO_CHUNKS);
        layer.call(2, NO_CHUNKS);
        layer.reply(2, 2, NO_CHUNKS);
        (3..5).for_each(|xid| layer.call(xid, NO_CHUNKS));
        assert_eq!(layer.rpc.summary()[C.index()].held_min, Some(0));
        assert_eq!(layer.broken(), []);
    }

    /// A capture may have a call before the reply that it waited for.
    #[test]
    fn a_reply_right_behind_a_call_beyond_the_credits_may_have_come_before_it() {
        for (more, guesses) in [(1, vec![Certainty::Guess]), (2, vec![])] {
            let mut layer = Layer::new();
            layer.call(1, NO_CHUNKS);
            layer.reply(1, 1, NO_CHUNKS);
            layer.call(2, NO_CHUNKS);
            (3..3 + more).for_each(|xid| layer.call(xid, NO_CHUNKS));
            layer.reply(2, 1, NO_CHUNKS);
            assert_eq!(layer.alone.certainties(), guesses, "{more}");
            assert_eq!(layer.broken(), [(Rule::RpcrdmaCreditOverrun, Blame::Client)], "{more}");
        }
    }

    /// The server may have answered the first call before the second came.
    #[test]
    fn both_calls_with_one_transaction_id_may_be_answered() {
        for (procedure, expected) in [(0, vec![]), (1, vec![(Rule::RpcrdmaXid, Blame::Client)])] {
            let mut layer = Layer::new();
            layer.call(1, NO_CHUNKS);
            layer.reply(1, 2, NO_CHUNKS);
            layer.call(2, NO_CHUNKS);
            layer.send(C, &[2, 1, 32, 0, 0, 0, 0, 2, 0, 2, 100_003, 3, procedure, 0, 0, 0, 0], None);
            (0..2).for_each(|_| layer.reply(2, 2, NO_CHUNKS));
            assert_eq!(layer.broken(), expected, "{procedure}: the same one may go again");
        }
    }

    /// A lower grant reaches the caller sooner or later: then it holds.
    #[test]
    fn a_lower_grant_holds_once_it_has_arrived() {
        const FRAME: i64 = 1_000_000;
        for (waited, again, expected) in [
            (0, 0, vec![]),
            (GRANT_ARRIVES, 0, vec![(Rule::RpcrdmaCreditOverrun, Blame::Client)]),
            // the reply may be what was sent again
            (GRANT_ARRIVES, 1, vec![]),
        ] {
            let mut layer = Layer::new();
            layer.call(1, NO_CHUNKS);
            layer.reply(1, 8, NO_CHUNKS);
            layer.call(2, NO_CHUNKS);
            layer.reply(2, 2, NO_CHUNKS);
            layer.alone.at.time += waited - FRAME + 1;
            layer.alone.about.retransmissions += again;
            (3..6).for_each(|xid| layer.call(xid, NO_CHUNKS));
            assert_eq!(layer.broken(), expected, "{waited} ns, {again} sent again");
        }
    }

    #[test]
    fn an_error_grants_credits_too() {
        for (granted, expected) in [(4, vec![]), (0, vec![(Rule::RpcrdmaCreditOverrun, Blame::Client)])] {
            let mut layer = Layer::new();
            layer.call(1, NO_CHUNKS);
            layer.reply(1, 2, NO_CHUNKS);
            layer.call(2, NO_CHUNKS);
            layer.send(S, &[2, 1, granted, 4, 2], None);
            (3..6).for_each(|xid| layer.call(xid, NO_CHUNKS));
            let mut broken = layer.broken();
            broken.retain(|(rule, _)| *rule == Rule::RpcrdmaCreditOverrun);
            assert_eq!(broken, expected, "{granted}");
        }
    }

    /// The answer to a header that could not be used is no reply to nothing.
    #[test]
    fn an_error_answers_a_header_that_could_not_be_used() {
        for (xid, expected) in [(7, vec![]), (8, vec![(Rule::RpcrdmaXid, Blame::Server)])] {
            let mut layer = Layer::new();
            layer.send(C, &[7, 2, 32, 0, 0, 0, 0], None);
            layer.send(S, &[xid, 1, 32, 4, 1, 1, 1], None);
            let mut broken = layer.broken();
            broken.retain(|(rule, _)| *rule == Rule::RpcrdmaXid);
            assert_eq!(broken, expected, "{xid}");
        }
    }

    /// What is not refused for its version is refused wrongly.
    #[test]
    fn an_error_about_versions_says_which_are_spoken() {
        for (low, high, expected) in
            [(2, 3, Blame::Unknown), (1, 1, Blame::Server), (1, 2, Blame::Server), (2, 1, Blame::Server)]
        {
            let mut layer = Layer::new();
            layer.call(1, NO_CHUNKS);
            layer.send(S, &[1, 1, 32, 4, 1, low, high], None);
            assert_eq!(layer.broken(), [(Rule::RpcrdmaError, expected)], "{low} to {high}");
        }
    }

    /// RFC 4506 4.19: optional data begins with a boolean.
    #[test]
    fn a_word_that_says_if_more_follows_is_0_or_1() {
        for place in [0, 6, 11] {
            let mut chunks = vec![1, 68, 5, 64, 0, 0x2000, 0, 1, 1, 7, 4096, 0, 0x1000, 0, 1, 1, 8, 4096, 0, 0x3000];
            // the words before the read segment, the write chunk and the reply chunk
            let place = [0, 7, 14][place / 5];
            let mut layer = Layer::new();
            layer.call(1, &chunks);
            assert!(!layer.broken().iter().any(|(rule, _)| *rule == Rule::RpcrdmaMalformed));
            chunks[place] = 3;
            let mut layer = Layer::new();
            layer.call(1, &chunks);
            assert_eq!((layer.broken(), layer.up.len()), (vec![(Rule::RpcrdmaMalformed, Blame::Client)], 0), "{place}");
        }
    }

    #[test]
    fn a_message_that_is_in_its_send_is_in_no_chunk() {
        let chunks = [1, 0, 5, 64, 0, 0x2000, 0, 0, 0];
        for (proc, expected) in [(0, vec![(Rule::RpcrdmaPosition, Blame::Client)]), (1, vec![])] {
            let mut layer = Layer::new();
            layer.send(C, &[&[1, 1, 32, proc], &chunks[..], &[1, 0, 2, 100_003, 3, 0, 0, 0, 0, 0]].concat(), None);
            assert_eq!(layer.broken(), expected, "{proc}");
        }
    }

    #[test]
    fn a_second_call_waits_for_the_first_reply() {
        let mut layer = Layer::new();
        layer.call(1, NO_CHUNKS);
        layer.call(2, NO_CHUNKS);
        assert_eq!(layer.broken(), [(Rule::RpcrdmaCreditFirst, Blame::Client)]);
    }

    #[test]
    fn a_reply_needs_a_call_and_grants_credits() {
        let mut layer = Layer::new();
        layer.call(1, NO_CHUNKS);
        layer.reply(1, 0, NO_CHUNKS);
        assert_eq!(layer.broken(), [(Rule::RpcrdmaCreditZero, Blame::Server)]);
        let mut layer = Layer::new();
        layer.call(1, NO_CHUNKS);
        layer.reply(9, 32, NO_CHUNKS);
        assert_eq!(layer.broken(), [(Rule::RpcrdmaXid, Blame::Server)]);
    }

    /// A capture may have a quick reply, or an error, before what it answers.
    #[test]
    fn a_reply_may_stand_before_its_call() {
        const FRAME: i64 = 1_000_000;
        for (late, expected) in [(EARLY, vec![]), (EARLY + 1, vec![(Rule::RpcrdmaXid, Blame::Server)])] {
            for is_error in [false, true] {
                let mut layer = Layer::new();
                layer.call(1, NO_CHUNKS);
                layer.reply(1, 32, NO_CHUNKS);
                match is_error {
                    true => layer.send(S, &[2, 1, 32, 4, 1, 1, 1], None),
                    false => layer.reply(2, 32, NO_CHUNKS),
                }
                layer.alone.at.time += late - FRAME;
                match is_error {
                    true => layer.send(C, &[2, 1, 32, 9, 0, 0, 0], None),
                    false => layer.call(2, NO_CHUNKS),
                }
                let mut broken = layer.broken();
                broken.retain(|(rule, _)| *rule == Rule::RpcrdmaXid);
                assert_eq!(broken, expected, "{late} ns, error {is_error}");
            }
        }
    }

    #[test]
    fn memory_of_a_write_chunk_lives_from_the_call_to_the_reply() {
        let mut layer = Layer::new();
        layer.call(1, &write_chunk(7, 4096));
        assert_eq!(layer.state(7), Some(State::Live));
        layer.reply(1, 32, &write_chunk(7, 100));
        assert!(matches!(layer.state(7), Some(State::Ended(_))), "{:?}", layer.state(7));
        assert_eq!(layer.broken(), [(Rule::RpcrdmaChunkLength, Blame::Server)], "nothing was written into it");
    }

    #[test]
    fn a_write_list_comes_back_as_it_was_offered() {
        for (returned, wrong) in
            [(write_chunk(7, 4096), false), (write_chunk(8, 4096), true), (write_chunk(7, 4097), true)]
        {
            let mut layer = Layer::new();
            layer.call(1, &write_chunk(7, 4096));
            layer.reply(1, 32, &returned);
            let is_told = layer.broken().contains(&(Rule::RpcrdmaWriteShape, Blame::Server));
            assert_eq!(is_told, wrong, "{returned:?}");
        }
    }

    #[test]
    fn a_reply_invalidates_a_key_of_its_own_call_only() {
        for (key, broken) in [(7, vec![]), (8, vec![(Rule::RdmaInvalidate, Blame::Server)])] {
            let mut layer = Layer::new();
            layer.call(1, &write_chunk(7, 4096));
            let words = [&[1, 1, 32, 0][..], &write_chunk(7, 100), &[1, 1, 0, 0, 0, 0]].concat();
            layer.send(S, &words, Some(key));
            let invalidate: Vec<_> =
                layer.broken().into_iter().filter(|(rule, _)| *rule == Rule::RdmaInvalidate).collect();
            assert_eq!(invalidate, broken, "{key}");
        }
    }

    #[test]
    fn headers_that_cannot_be_used_are_reported_and_nothing_is_handed_up() {
        for (words, rule) in [
            (&[1_u32, 2, 32, 0, 0, 0, 0][..], Rule::RpcrdmaVersion),
            (&[1, 1, 32, 9, 0, 0, 0], Rule::RpcrdmaProc),
            (&[1, 1, 32, 0, 1, 0], Rule::RpcrdmaMalformed),
        ] {
            let mut layer = Layer::new();
            layer.send(C, words, None);
            assert_eq!((layer.broken(), layer.up.len()), (vec![(rule, Blame::Client)], 0));
        }
    }
}
