//! One TCP connection, both directions: segments in, RDMA operations out, or the bytes in order where it is not iWARP.
//!
//! ```text
//! Segment ─▶ tcp::Stream ─▶ pieces ─▶ mpa::Framer ─▶ FPDUs ─▶ DDP, RDMAP ─▶ RdmaOp      FlowSink::op
//!                                        │ not MPA ───────────────────────▶ StreamBytes  FlowSink::bytes
//!            └──────────────────────────┴─────────────────────────────────▶ FlowFact     FlowSink::fact
//! ```
//!
//! RFC 5040 says how operations use DDP: Sends count up the messages of queue 0, Read Requests those of queue 1; a Read
//! Response is tagged with the sink that its request named, in the order of the requests.

use super::mpa::{Found, Framed, Framer, Verdict};
use super::tcp::{self, Event, Stream};
use crate::op::{At, End, Gap, Part, Placement, RdmaOp, Verb};
use alloc::collections::VecDeque;
use rdmascope_dissector::frame::{Check, Segment};
use rdmascope_dissector::trace::{Trace, Value};
use rdmascope_dissector::wire::iwarp::ddp::{Buffer, Tagged, Untagged};
use rdmascope_dissector::wire::iwarp::mpa::{self as wire, Crc, Startup};
use rdmascope_dissector::wire::iwarp::rdmap::{self, Body, Opcode, Rdmap, ReadRequest, Terminate};

/// How a connection is followed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Options {
    /// Bytes held back for each direction, while earlier ones are missing.
    pub hold_limit: usize,
    /// Verify the CRCs of FPDUs.
    pub check_crc: bool,
    /// Read Requests remembered for each direction until they are answered.
    pub reads_limit: usize,
}

impl Default for Options {
    fn default() -> Self {
        Self { hold_limit: 4 << 20, check_crc: true, reads_limit: 4096 }
    }
}

/// Where the results of a connection go.
pub trait FlowSink {
    /// An RDMA operation, or a part of one. The observer stands where its bytes are: what is traced now stands behind the
    /// RDMAP header, in the same source.
    fn op<T: Trace>(&mut self, op: &RdmaOp<'_>, t: &mut T);

    /// Something that a rule or a report wants to know.
    fn fact(&mut self, at: At, by: End, fact: FlowFact<'_>);

    /// Bytes in order of a connection that is not iWARP.
    fn bytes<T: Trace>(&mut self, bytes: &StreamBytes<'_>, t: &mut T);
}

/// Bytes in order of a connection that is not iWARP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StreamBytes<'a> {
    /// The frame in which they became the next ones.
    pub at: At,
    /// Who sent them.
    pub by: End,
    /// The bytes.
    pub bytes: &'a [u8],
    /// So many bytes behind them will not be seen: cut or lost by the capture.
    pub missing: u32,
    /// Whether they stand in the frame `at`.
    pub in_frame: bool,
}

/// What a connection has to say besides its operations.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum FlowFact<'a> {
    /// The connection is opened.
    MpaRequest(Startup<'a>),
    /// The connection is accepted, or refused ([`Startup::reject`]).
    MpaReply(Startup<'a>),
    /// The CRC of an FPDU is wrong.
    CrcBad,
    /// A marker does not point to the header of its FPDU.
    MarkerBad {
        /// Its pointer.
        pointer: u16,
        /// What it should be.
        expected: u16,
    },
    /// MPA framing was found in mid-stream: at a late start, after a gap, or where it had been lost.
    Resync {
        /// Bytes that could not be read.
        skipped: u32,
        /// How it was found.
        found: Found,
    },
    /// An FPDU whose DDP header could not be read.
    DdpShort {
        /// Its ULPDU length.
        length: u32,
    },
    /// A DDP or RDMAP version, opcode or queue that is not defined, or does not go with the opcode.
    Undefined {
        /// DDP control byte.
        ddp: u8,
        /// RDMAP control byte.
        rdmap: u8,
        /// The queue of an untagged segment.
        queue: u32,
    },
    /// Untagged messages are missing, and the stream has no gap there.
    MsnGap {
        /// Which queue.
        queue: u32,
        /// The number that comes next.
        expected: u32,
        /// The number that came.
        got: u32,
    },
    /// A message number that was used before.
    MsnRepeat {
        /// Which queue.
        queue: u32,
        /// The number that comes next.
        expected: u32,
        /// The number that came.
        got: u32,
    },
    /// A segment of a message begins before the end of the one before.
    SegmentOverlap {
        /// Where it should begin: message offset or tagged offset.
        expected: u64,
        /// Where it does.
        got: u64,
    },
    /// A segment of a message begins behind the end of the one before, or the rest of a message did not come.
    SegmentHole {
        /// Where it should begin: message offset or tagged offset.
        expected: u64,
        /// Where it does.
        got: u64,
    },
    /// A Read Response to no Read Request that was seen.
    ReadUnknown {
        /// Sink STag.
        stag: u32,
        /// Sink tagged offset.
        offset: u64,
    },
    /// A TCP segment was sent again.
    Retransmission {
        /// Its bytes.
        bytes: u32,
        /// Whether the first copy was lost on its way to the capture.
        filled: bool,
    },
    /// A TCP segment was overtaken by a later one.
    OutOfOrder {
        /// Its bytes.
        bytes: u32,
    },
    /// Two copies of the same bytes of the TCP stream differ.
    Conflict {
        /// Bytes compared.
        bytes: u32,
    },
    /// The receive window, closed since then, is open again.
    ZeroWindow {
        /// When it closed.
        since: At,
    },
    /// The connection was reset.
    Reset,
    /// Bytes of the stream that will not be seen any more.
    Gap(Gap),
    /// The sender ends the connection with an error.
    Terminate(Terminate),
    /// The sender has closed its direction. The first of the two ends the connection.
    Closed,
    /// A SYN began another connection with the same addresses and ports: all that was known is forgotten.
    Reopened,
}

/// What is held back at most where one direction only was captured.
const ONE_SIDED_HOLD_LIMIT: usize = 256 * 1024;

const FIN: u8 = 0x01;
const SYN: u8 = 0x02;
const RST: u8 = 0x04;
const ACK: u8 = 0x10;

/// One TCP connection.
#[derive(Debug, Default)]
pub struct TcpFlow {
    streams: [Stream; 2],
    framers: [Framer; 2],
    messages: Messages,
    verdict: Verdict,
    /// What Request and Reply said: CRC, markers.
    startup: [Option<(bool, bool)>; 2],
    /// Who sent the SYN or the MPA Request.
    initiator: Option<End>,
    zero_window_since: [Option<At>; 2],
    reset: bool,
}

impl TcpFlow {
    /// A connection of which nothing is known.
    pub fn new() -> Self {
        Self::default()
    }

    /// What the connection is.
    pub fn verdict(&self) -> Verdict {
        self.verdict
    }

    /// Who opened it, where that was seen: the MPA Request, else the SYN.
    pub fn initiator(&self) -> Option<End> {
        self.initiator
    }

    /// How the framing of one direction is known.
    pub fn found(&self, by: End) -> Option<Found> {
        self.framers[by.index()].found()
    }

    /// What happened to the TCP segments of one direction.
    pub fn counts(&self, by: End) -> &tcp::Counts {
        self.streams[by.index()].counts()
    }

    /// Whether a segment is the SYN of another connection with the same addresses and ports. Such a segment makes
    /// [`TcpFlow::segment`] forget everything; a caller that wants a connection of its own for it asks first.
    pub fn is_reopened_by(&self, by: End, segment: &Segment<'_>) -> bool {
        segment.flags & SYN != 0 && segment.flags & RST == 0 && self.streams[by.index()].is_other_syn(segment.seq)
    }

    /// Bytes of memory, all told.
    pub fn memory(&self) -> usize {
        let held: usize = self.streams.iter().map(Stream::held).chain(self.framers.iter().map(Framer::memory)).sum();
        size_of::<Self>() + held + self.messages.memory()
    }

    /// Gives back buffers that hold nothing: for a connection that has been idle.
    pub fn trim(&mut self) {
        self.framers.iter_mut().for_each(Framer::trim);
        self.messages.trim();
    }

    /// Takes the next segment of the capture, sent by `by`.
    pub fn segment<T: Trace, S: FlowSink>(&mut self, at: At, by: End, segment: &Segment<'_>, options: &Options, t: &mut T, out: &mut S) {
        let flags = segment.flags;
        if flags & (SYN | FIN | RST) != 0 || segment.window == 0 || self.zero_window_since[by.index()].is_some() {
            self.unusual(at, by, segment, out);
            if flags & RST != 0 {
                return;
            }
        }
        // what the receiver has, before what it sends
        if flags & ACK != 0 {
            let (stream, mut follow) = self.parts(at, by.peer(), segment.payload, options, t, out);
            stream.acknowledged(segment.ack, &mut |e| follow.event(e));
        }
        if segment.payload_length > 0 && flags & SYN == 0 {
            let limit = if self.streams[by.peer().index()].started() {
                options.hold_limit
            } else {
                // nobody acknowledges what the capture lost: perhaps one direction only was captured
                options.hold_limit.min(ONE_SIDED_HOLD_LIMIT)
            };
            if !self.streams[by.index()].started() {
                self.framers[by.index()].late();
            }
            let (stream, mut follow) = self.parts(at, by, segment.payload, options, t, out);
            stream.data(at, segment.seq, segment.payload, segment.payload_length, limit, &mut |e| follow.event(e));
        }
        if flags & FIN != 0 {
            let seq = segment.seq.wrapping_add(segment.payload_length);
            let (stream, mut follow) = self.parts(at, by, segment.payload, options, t, out);
            stream.fin(seq, &mut |e| follow.event(e));
        }
    }

    /// Everything but an ordinary segment.
    #[cold]
    fn unusual<S: FlowSink>(&mut self, at: At, by: End, segment: &Segment<'_>, out: &mut S) {
        let flags = segment.flags;
        if self.is_reopened_by(by, segment) {
            *self = Self::default();
            out.fact(at, by, FlowFact::Reopened);
        }
        if flags & RST != 0 {
            self.streams[by.index()].counts_mut().resets += 1;
            if !self.reset {
                self.reset = true;
                out.fact(at, by, FlowFact::Reset);
            }
            return;
        }
        if flags & SYN != 0 {
            self.streams[by.index()].syn(segment.seq);
            self.initiator = self.initiator.or(Some(if flags & ACK != 0 { by.peer() } else { by }));
            // the window of a SYN is not yet a promise
            return;
        }
        let since = &mut self.zero_window_since[by.index()];
        match (*since, segment.window) {
            (None, 0) if flags & ACK != 0 && flags & FIN == 0 => {
                *since = Some(at);
                self.streams[by.index()].counts_mut().zero_windows += 1;
            }
            (Some(closed), 1..) => {
                *since = None;
                out.fact(at, by, FlowFact::ZeroWindow { since: closed });
            }
            _ => {}
        }
    }

    #[inline]
    fn parts<'f, T: Trace, S: FlowSink>(
        &'f mut self,
        at: At,
        by: End,
        payload: &'f [u8],
        options: &'f Options,
        t: &'f mut T,
        out: &'f mut S,
    ) -> (&'f mut Stream, Follow<'f, T, S>) {
        let Self { streams, framers, messages, verdict, startup, initiator, .. } = self;
        let said = Said { at, by, payload, options, t, out, messages, startup, initiator, learned: false, fpdus: 0 };
        (&mut streams[by.index()], Follow { framers, verdict, said })
    }
}

/// Takes what a stream tells to the framer of its direction, and what that one tells to [`Said`].
struct Follow<'f, T, S> {
    framers: &'f mut [Framer; 2],
    verdict: &'f mut Verdict,
    said: Said<'f, T, S>,
}

impl<T: Trace, S: FlowSink> Follow<'_, T, S> {
    #[inline]
    fn event(&mut self, event: Event<'_>) {
        match event {
            Event::Piece(piece) => self.piece(piece),
            other => self.said.event(other),
        }
    }

    #[inline]
    fn piece(&mut self, piece: tcp::Piece<'_>) {
        let by = self.said.by;
        let mut next = Some(piece);
        while let Some(piece) = next {
            next = self.framers[by.index()].push(piece, self.said.options.check_crc, &mut |framed| self.said.framed(framed));
            if self.said.learned {
                self.agree();
            }
        }
        if *self.verdict == Verdict::Undecided {
            self.decide();
        }
    }

    /// Tells both framers what Request and Reply say.
    fn agree(&mut self) {
        self.said.learned = false;
        let crc = match *self.said.startup {
            [Some((a, _)), Some((b, _))] => Some(a || b),
            // one that wants them is enough
            [Some((true, _)), None] | [None, Some((true, _))] => Some(true),
            _ => None,
        };
        for end in End::BOTH {
            // an end says whether it wants markers in what it receives
            let markers = self.said.startup[end.peer().index()].map(|(_, markers)| markers);
            self.framers[end.index()].agree(crc, markers);
        }
    }

    /// One direction speaks for both.
    fn decide(&mut self) {
        let by = self.said.by;
        *self.verdict = self.framers[by.index()].verdict();
        let peer = &mut self.framers[by.peer().index()];
        match *self.verdict {
            Verdict::Undecided => {}
            Verdict::Mpa => peer.agree(None, None),
            Verdict::NotMpa => {
                self.said.by = by.peer();
                peer.give_up(&mut |framed| self.said.framed(framed));
                self.said.by = by;
            }
        }
    }
}

/// Tells sink and observer.
struct Said<'f, T, S> {
    at: At,
    by: End,
    payload: &'f [u8],
    options: &'f Options,
    t: &'f mut T,
    out: &'f mut S,
    messages: &'f mut Messages,
    startup: &'f mut [Option<(bool, bool)>; 2],
    initiator: &'f mut Option<End>,
    /// A Request or Reply was read.
    learned: bool,
    /// FPDUs told in this segment.
    fpdus: u32,
}

impl<T: Trace, S: FlowSink> Said<'_, T, S> {
    fn fact(&mut self, fact: FlowFact<'_>) {
        self.out.fact(self.at, self.by, fact);
    }

    #[cold]
    fn event(&mut self, event: Event<'_>) {
        match event {
            Event::Piece(_) => {}
            Event::Gap { count, receiver_had_them } => {
                self.messages.lost(self.by);
                let gap = Gap { at: self.at, by: self.by, count, receiver_had_them };
                self.fact(FlowFact::Gap(gap));
            }
            Event::Retransmission { bytes, filled } => {
                self.t.info(format_args!("TCP retransmission"));
                self.fact(FlowFact::Retransmission { bytes, filled });
            }
            Event::Held { missing } => self.t.info(format_args!("TCP segment held back, {missing} bytes before it are missing")),
            Event::OutOfOrder { bytes } => self.fact(FlowFact::OutOfOrder { bytes }),
            Event::Conflict { bytes } => self.fact(FlowFact::Conflict { bytes }),
            Event::Closed => self.fact(FlowFact::Closed),
        }
    }

    #[inline]
    fn framed(&mut self, framed: Framed<'_>) {
        match framed {
            Framed::Fpdu { bytes, in_frame, crc } => {
                if in_frame {
                    self.fpdu(bytes, true, crc);
                } else {
                    self.t.source("Reassembled FPDU", bytes);
                    self.fpdu(bytes, false, crc);
                    self.t.end_source();
                }
                self.fpdus += 1;
            }
            Framed::Other(piece) => {
                let tcp::Piece { bytes, missing, in_frame } = piece;
                self.out.bytes(&StreamBytes { at: self.at, by: self.by, bytes, missing, in_frame }, self.t);
            }
            other => self.framed_rarely(other),
        }
    }

    #[cold]
    fn framed_rarely(&mut self, framed: Framed<'_>) {
        match framed {
            Framed::Startup { bytes, in_frame } => {
                if !in_frame {
                    self.t.source("Reassembled MPA frame", bytes);
                }
                if let Ok((_, startup)) = wire::parse_startup(bytes, self.t) {
                    self.startup[self.by.index()] = Some((startup.crc, startup.markers));
                    self.learned = true;
                    self.messages.begin(self.by);
                    *self.initiator = Some(if startup.reply { self.by.peer() } else { self.by });
                    self.fact(if startup.reply { FlowFact::MpaReply(startup) } else { FlowFact::MpaRequest(startup) });
                }
                if !in_frame {
                    self.t.end_source();
                }
                self.fpdus += 1;
            }
            Framed::Part { have, total } => {
                if !T::ON || self.fpdus > 0 || self.payload.is_empty() {
                    return;
                }
                let Some(total) = total else { return };
                self.t.protocol("MPA");
                self.t.open(wire::f::PROTOCOL, self.payload);
                self.t.field(wire::f::PART, self.payload, self.payload.len(), Value::Bytes(self.payload));
                self.t.close(&self.payload[self.payload.len()..]);
                self.t.info(format_args!("{have} of {total} bytes of an FPDU"));
            }
            Framed::MarkerBad { pointer, expected } => self.fact(FlowFact::MarkerBad { pointer, expected }),
            Framed::Resync { skipped, found } => {
                self.messages.lost(self.by);
                self.fact(FlowFact::Resync { skipped, found });
            }
            Framed::Fpdu { .. } | Framed::Other(_) => {}
        }
    }

    #[inline]
    fn fpdu(&mut self, bytes: &[u8], in_frame: bool, crc: Crc) {
        if crc == Crc::Used(Check::Bad) {
            self.fact(FlowFact::CrcBad);
        }
        let Ok((_, fpdu)) = wire::parse_fpdu(bytes, crc, self.t) else { return };
        if fpdu.ulpdu_length == 0 {
            // ready to receive, RFC 6581 9.4
            return;
        }
        let Ok((_, message)) = rdmap::parse(fpdu.ulpdu, self.t) else {
            if bytes.len() >= wire::fpdu_len(fpdu.ulpdu_length) {
                self.fact(FlowFact::DdpShort { length: fpdu.ulpdu_length.into() });
            }
            return;
        };
        let length = u32::from(fpdu.ulpdu_length).saturating_sub(message.ddp.header_len() as u32);
        let (at, by) = (self.at, self.by);
        let out = &mut *self.out;
        let op = self.messages.operation(by, &message, length, self.options.reads_limit, &mut |fact| out.fact(at, by, fact));
        if let Some(op) = op {
            self.out.op(&RdmaOp { at, by, in_frame, ..op }, self.t);
        }
    }
}

/// What DDP and RDMAP need to remember of a connection.
#[derive(Debug, Default)]
struct Messages {
    halves: [Half; 2],
    /// Read Requests so far.
    reads: u32,
}

#[derive(Debug, Default)]
struct Half {
    queues: [Queue; 4],
    /// A Write of several segments: its STag, and where the next one begins.
    write: Option<(u32, u64)>,
    /// Read Requests of this end that wait for their Responses, in order.
    reads: VecDeque<Read>,
}

/// The untagged messages of one queue.
#[derive(Clone, Copy, Debug, Default)]
struct Queue {
    /// The number of the message that came last.
    msn: u32,
    /// Where its next segment begins.
    offset: u32,
    /// It goes on.
    open: bool,
    /// Nothing was missed since `msn`.
    known: bool,
}

#[derive(Clone, Copy, Debug)]
struct Read {
    number: u32,
    request: ReadRequest,
    /// Sink offset of the next byte.
    next: u64,
    /// Its Response may have been lost by the capture.
    stale: bool,
}

impl Messages {
    fn memory(&self) -> usize {
        self.halves.iter().map(|h| h.reads.capacity() * size_of::<Read>()).sum()
    }

    fn trim(&mut self) {
        self.halves.iter_mut().for_each(|h| h.reads.shrink_to_fit());
    }

    /// The direction begins: its first messages have the number 1.
    fn begin(&mut self, by: End) {
        self.halves[by.index()].queues = [Queue { known: true, ..Queue::default() }; 4];
    }

    /// Bytes of this direction were missed.
    fn lost(&mut self, by: End) {
        let half = &mut self.halves[by.index()];
        half.queues.iter_mut().for_each(|q| (q.known, q.open) = (false, false));
        half.write = None;
        self.halves[by.peer().index()].reads.iter_mut().for_each(|r| r.stale = true);
    }

    /// The operation that a segment is part of; `length` of its payload on the wire. Time, sender and place are the caller's.
    fn operation<'a>(
        &mut self,
        by: End,
        m: &Rdmap<'a>,
        length: u32,
        reads_limit: usize,
        tell: &mut impl FnMut(FlowFact<'_>),
    ) -> Option<RdmaOp<'a>> {
        let defined = m.ddp.control.version() == 1 && m.control.version() <= 1;
        let queue = if let Buffer::Untagged(b) = m.ddp.buffer { Some(b.queue) } else { None };
        if !defined || m.opcode.is_tagged() != Some(queue.is_none()) || m.opcode.queue() != queue {
            tell(FlowFact::Undefined { ddp: m.ddp.control.flags, rdmap: m.ddp.ulp, queue: queue.unwrap_or(0) });
        }
        let last = m.ddp.control.last();
        let mut op = RdmaOp {
            at: At::default(),
            by,
            verb: Verb::Send,
            part: Part::Only,
            placement: Placement::Unknown,
            message_length: None,
            invalidate: if last { m.invalidate } else { None },
            immediate: None,
            solicited: last && m.opcode.is_solicited(),
            length,
            bytes: m.ddp.payload,
            in_frame: true,
            read: 0,
        };
        match (m.opcode, m.ddp.buffer) {
            (Opcode::WRITE, Buffer::Tagged(b)) => {
                op.verb = Verb::Write;
                op.part = Part::of(self.write(by, b, length, last, tell), last);
                op.placement = Placement::Memory { key: b.stag, address: b.offset };
            }
            (Opcode::READ_RESPONSE, Buffer::Tagged(b)) => {
                op.verb = Verb::ReadResponse;
                self.read_response(&mut op, b, last, tell);
            }
            (opcode, Buffer::Untagged(b)) if opcode.is_tagged() == Some(false) => {
                let begins = self.halves[by.index()].untagged(b, length, last, tell);
                op.part = Part::of(begins, last);
                self.untagged(&mut op, m, b, reads_limit, tell);
            }
            _ => return None,
        }
        Some(op)
    }

    /// Whether a segment of a Write begins a message.
    fn write(&mut self, by: End, b: Tagged, length: u32, last: bool, tell: &mut impl FnMut(FlowFact<'_>)) -> bool {
        let half = &mut self.halves[by.index()];
        let begins = match half.write {
            None => true,
            Some((stag, expected)) => {
                if (stag, expected) != (b.stag, b.offset) {
                    tell(step(expected, b.offset));
                }
                stag != b.stag
            }
        };
        half.write = (!last).then(|| (b.stag, b.offset.wrapping_add(length.into())));
        begins
    }

    /// Joins a Read Response to its request.
    fn read_response(&mut self, op: &mut RdmaOp<'_>, b: Tagged, last: bool, tell: &mut impl FnMut(FlowFact<'_>)) {
        let reads = &mut self.halves[op.by.peer().index()].reads;
        let within = |r: &Read| r.request.sink_stag == b.stag && b.offset.wrapping_sub(r.request.sink_offset) <= r.request.size.into();
        let Some(mut n) = reads.iter().position(within) else {
            op.part = Part::of(false, last);
            return tell(FlowFact::ReadUnknown { stag: b.stag, offset: b.offset });
        };
        // they are answered in order: what stands before and may have been answered unseen has been
        while n > 0 && reads[0].stale {
            reads.pop_front();
            n -= 1;
        }
        let read = &mut reads[n];
        if read.next != b.offset && !read.stale {
            tell(step(read.next, b.offset));
        }
        read.next = b.offset.wrapping_add(op.length.into());
        read.stale = false;
        let into = b.offset.wrapping_sub(read.request.sink_offset);
        op.part = Part::of(into == 0, last);
        op.placement = Placement::Memory { key: read.request.source_stag, address: read.request.source_offset.wrapping_add(into) };
        op.message_length = Some(read.request.size);
        op.read = read.number;
        if last {
            reads.remove(n);
        }
    }

    fn untagged(&mut self, op: &mut RdmaOp<'_>, m: &Rdmap<'_>, b: Untagged, reads_limit: usize, tell: &mut impl FnMut(FlowFact<'_>)) {
        match m.body {
            Body::ReadRequest(request) => {
                op.verb = Verb::ReadRequest;
                self.reads = self.reads.wrapping_add(1).max(1);
                op.read = self.reads;
                op.placement = Placement::Memory { key: request.source_stag, address: request.source_offset };
                op.message_length = Some(request.size);
                (op.length, op.bytes) = (0, &[]);
                let reads = &mut self.halves[op.by.index()].reads;
                // a sink that is used again is free again
                let same = |r: &Read| (r.request.sink_stag, r.request.sink_offset) == (request.sink_stag, request.sink_offset);
                if let Some(n) = reads.iter().position(|r| r.stale && same(r)) {
                    reads.drain(..=n);
                }
                if reads.len() >= reads_limit.max(1) {
                    reads.pop_front();
                }
                reads.push_back(Read { number: op.read, request, next: request.sink_offset, stale: false });
            }
            Body::Terminate(terminate) => {
                op.verb = Verb::Terminate;
                op.placement = Placement::Queue { offset: b.offset };
                tell(FlowFact::Terminate(terminate));
            }
            Body::AtomicRequest(a) => {
                op.verb = Verb::Atomic;
                op.placement = Placement::Memory { key: a.head.remote_stag, address: a.head.remote_offset };
                (op.length, op.bytes) = (0, &[]);
            }
            Body::AtomicResponse(_) => {
                op.verb = Verb::Atomic;
                (op.length, op.bytes) = (0, &[]);
            }
            Body::Immediate(value) => {
                op.placement = Placement::Queue { offset: b.offset };
                op.immediate = Some(value as u32);
            }
            Body::Cut => {
                op.verb = match m.opcode {
                    Opcode::READ_REQUEST => Verb::ReadRequest,
                    Opcode::TERMINATE => Verb::Terminate,
                    Opcode::ATOMIC_REQUEST | Opcode::ATOMIC_RESPONSE => Verb::Atomic,
                    _ => Verb::Send,
                };
            }
            Body::Data => {
                op.placement = Placement::Queue { offset: b.offset };
                op.message_length = op.part.ends().then(|| b.offset.saturating_add(op.length));
                if m.opcode.invalidates() {
                    op.verb = Verb::SendInvalidate;
                }
            }
        }
    }
}

impl Half {
    /// Follows the numbers of a queue. Whether the segment begins its message.
    fn untagged(&mut self, b: Untagged, length: u32, last: bool, tell: &mut impl FnMut(FlowFact<'_>)) -> bool {
        let Some(queue) = self.queues.get_mut(b.queue as usize) else { return b.offset == 0 };
        let before = *queue;
        *queue = Queue { msn: b.msn, offset: b.offset.wrapping_add(length), open: !last, known: true };
        if !before.known {
            return b.offset == 0;
        }
        if before.open && before.msn == b.msn {
            if b.offset != before.offset {
                tell(step(before.offset.into(), b.offset.into()));
            }
            return b.offset == 0;
        }
        let expected = before.msn.wrapping_add(1);
        if before.open {
            // the rest of the message before did not come
            tell(FlowFact::SegmentHole { expected: before.offset.into(), got: b.offset.into() });
        }
        if b.msn != expected {
            let got = b.msn;
            if (b.msn.wrapping_sub(expected) as i32) > 0 {
                tell(FlowFact::MsnGap { queue: b.queue, expected, got });
            } else {
                tell(FlowFact::MsnRepeat { queue: b.queue, expected, got });
                // what was counted stays counted
                queue.msn = before.msn;
            }
        }
        if b.offset != 0 {
            tell(FlowFact::SegmentHole { expected: 0, got: b.offset.into() });
        }
        b.offset == 0
    }
}

/// A segment does not begin where it should.
fn step(expected: u64, got: u64) -> FlowFact<'static> {
    if got > expected { FlowFact::SegmentHole { expected, got } } else { FlowFact::SegmentOverlap { expected, got } }
}
