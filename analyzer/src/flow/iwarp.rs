//! One TCP connection, both directions: segments in, RDMA operations out, or the bytes in order if it is not iWARP.
//!
//! ```text
//! Segment ─▶ tcp::Stream ─▶ pieces ─▶ mpa::Framer ─▶ FPDUs ─▶ DDP, RDMAP ─▶ RdmaOp      FlowSink::op
//!                                        │ not MPA ───────────────────────▶ StreamBytes  FlowSink::bytes
//!            └──────────────────────────┴─────────────────────────────────▶ FlowFact     FlowSink::fact
//! ```
//!
//! RFC 5040 says how operations use DDP: Sends count up the messages of queue 0, Read Requests those of queue 1; a Read
//! Response is tagged with the sink that its request named, in the order of the requests.

use super::copies::{Copies, DoubleDetector, Ids, Shown, is_mirrored, mark, may_be_mirrored};
use super::losses::{ALL_CHANGED, BySender, LossView, Losses, Tally, are_changed, tallied};
use super::mpa::{self, Evidence, Framed, Framer, Recognition};
use super::repair::{Acknowledged, Over, Repair, SegmentKind, Sent};
use super::tcp::{self, Event, Stream};
use crate::missed::BEHIND_MAX;
pub use crate::op::StreamBytes;
use crate::op::{At, End, Gap, Part, Placement, RdmaOp, Verb};
use crate::pieces::{Assembly, Pieces};
use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::vec::Vec;
use rdmascope_dissector::frame::{Check, Segment};
use rdmascope_dissector::trace::{Trace, Value};
use rdmascope_dissector::wire::iwarp::ddp::{Buffer, Tagged, Untagged};
use rdmascope_dissector::wire::iwarp::mpa::{self as wire, Crc, Startup};
use rdmascope_dissector::wire::iwarp::rdmap::{self, Body, Opcode, Rdmap, ReadRequest, Terminate};
use rdmascope_dissector::wire::tcp::flags::{ACK, FIN, RST, SYN};

/// Options for following a connection.
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
        Self { hold_limit: 4 << 20, check_crc: true, reads_limit: 1024 }
    }
}

/// Receiver of the results of a connection.
pub trait FlowSink {
    /// An RDMA operation, or a part of one. The observer is at its bytes: fields traced now come behind the RDMAP
    /// header, in the same source.
    fn op<T: Trace>(&mut self, op: &RdmaOp<'_>, t: &mut T);

    /// An event for rules and reports.
    fn fact(&mut self, at: At, by: End, fact: FlowFact<'_>);

    /// The data that is reported next ends before this sequence number.
    #[inline]
    fn sequence(&mut self, _by: End, _sequence: u32) {}

    /// Everything that `by` sent before this sequence number has arrived.
    #[inline]
    fn acknowledged(&mut self, _at: At, _by: End, _sequence: u32) {}

    /// Bytes in order of a connection that is not iWARP.
    fn bytes<T: Trace>(&mut self, bytes: &StreamBytes<'_>, t: &mut T);
}

/// Events of a connection besides its operations.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum FlowFact<'a> {
    /// A SYN+ACK goes out again.
    AcceptsAgain,
    /// The segment makes an FPDU whole that began in others.
    Assembled(&'a Pieces),
    /// The capture has segments in another order than the ends.
    Misplaced,
    /// So many bytes of a [`FlowFact::Gap`] came after all, behind their acknowledgment.
    Found(u32),
    /// The connection is opened.
    MpaRequest(Startup<'a>),
    /// The connection is accepted, or refused ([`Startup::reject`]).
    MpaReply(Startup<'a>),
    /// So many Reads of the sender wait for their Responses, this one among them.
    ReadsOutstanding(u32),
    /// The CRC of an FPDU is wrong.
    CrcBad,
    /// A marker does not point to the header of its FPDU.
    MarkerBad {
        /// Its pointer.
        pointer: u16,
        /// The pointer that would be right.
        expected: u16,
    },
    /// MPA framing was found in mid-stream: at a late start, after a gap, or after it had been lost.
    Resync {
        /// Bytes that could not be read.
        skipped: u32,
        /// Evidence for the framing found.
        found: Evidence,
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
        /// Number of the queue.
        queue: u32,
        /// The number that comes next.
        expected: u32,
        /// The number that came.
        got: u32,
    },
    /// A message number that was used before.
    MsnRepeat {
        /// Number of the queue.
        queue: u32,
        /// The number that comes next.
        expected: u32,
        /// The number that came.
        got: u32,
    },
    /// A segment of a message begins before the end of the one before.
    SegmentOverlap {
        /// Expected beginning: message offset or tagged offset.
        expected: u64,
        /// Actual beginning.
        got: u64,
    },
    /// A segment of a message begins behind the end of the one before, or the rest of a message did not come.
    SegmentHole {
        /// Expected beginning: message offset or tagged offset.
        expected: u64,
        /// Actual beginning.
        got: u64,
    },
    /// A Read Response goes past the end of what was asked for.
    ReadLonger {
        /// Bytes that were asked for.
        asked: u32,
        /// Where it ends, in bytes from the beginning of what was asked for.
        sent: u64,
        /// Bytes that came up to here.
        came: u64,
    },
    /// A Read Response ends before the end of what was asked for.
    ReadShorter {
        /// Bytes that were asked for.
        asked: u32,
        /// Where it ends, in bytes from the beginning of what was asked for.
        sent: u64,
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
        /// True if the first copy was lost on its way to the capture.
        filled: bool,
        /// The frame that it stood in before, if still known.
        of: Option<u64>,
    },
    /// A segment whose checksum is wrong, which a receiver drops.
    Damaged,
    /// It comes again, undamaged.
    Mended {
        /// Time of the damaged one.
        since: At,
        /// Sequence number of both.
        sequence: u32,
        /// Bytes of both.
        bytes: u32,
    },
    /// The next facts and operations are from a segment with a wrong checksum that its receiver seems to have accepted.
    Doubtful,
    /// An FPDU whose CRC is wrong is not delivered: its message has a hole.
    Dropped,
    /// Something that held the sender up is over.
    Over(Over),
    /// The way from the capture point to the sender and back, in ns.
    RoundTrip(i64),
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
    /// The receive window, closed since then, is open again; or was never opened again.
    ZeroWindow {
        /// Time at which it closed.
        since: At,
        /// True if it was opened again.
        is_open: bool,
    },
    /// The connection was reset.
    Reset,
    /// Both ends went on after a reset: it was not taken.
    Resumed,
    /// Bytes of the stream that will not be seen any more.
    Gap(Gap),
    /// The sender ends the connection with an error.
    Terminate(Terminate),
    /// From here on segments that seem to be retransmitted may be the copies of a mirror.
    MayBeCopies,
    /// They are.
    WereCopies,
    /// The sender has closed its direction. The first of the two ends the connection.
    Closed,
    /// A SYN began another connection with the same addresses and ports: all that was known is forgotten.
    Reopened,
    /// The capture cut off the headers of an FPDU, the content of a Read Request, or all that a segment carried.
    Cut,
    /// The contents of what an end sends were changed in the capture.
    Changed,
    /// The first bytes of an end were not captured: its peer acknowledged some before any of it was seen.
    BeganLate,
    /// A segment appears in the capture twice.
    Duplicate,
}

/// ns within which a mirror shows a segment once more.
const COPY_MAX: i64 = 1_000_000;
/// Damaged segments remembered for each direction: should the receiver acknowledge them, it had them.
const UNCONFIRMED_MAX: usize = 8;
/// Segments with a right checksum after which a wrong one says that a segment is damaged, whatever an acknowledgment
/// seems to say.
const CHECKSUM_TRUSTED: u32 = 8;
/// Segments with a wrong checksum that the receiver took all the same, after which checksums say nothing.
const TAKEN_BAD_MAX: u32 = 3;
/// Segments of an end with a wrong checksum after which that says nothing.
const BAD_MAX: u32 = 4;
/// Bytes between the sequence numbers of a connection and those of another one, at least.
const FAR: u32 = 1 << 24;
/// Bytes held back at most if only one direction was captured.
const ONE_SIDED_HOLD_LIMIT: usize = 256 * 1024;
/// ns after which a gap whose bytes have not come is not filled any more.
const NEVER: i64 = 1_000_000_000;

/// A damaged segment: where it was captured, and its first sequence number.
type Garbled = (At, u32);

/// Signs of the numbers of first bytes, by sender.
#[derive(Clone, Debug, Default)]
struct Opening {
    /// By a SYN with a wrong checksum, which is not trusted.
    unsure: [Option<u32>; 2],
    /// The first number that its peer acknowledged before anything of it was captured, and true if it is that of a SYN,
    /// as far as the peer's own numbers tell.
    first_ack: [Option<(u32, bool)>; 2],
}

/// State of one TCP connection.
#[derive(Clone, Debug, Default)]
pub struct TcpFlow {
    streams: [Stream; 2],
    framers: [Framer; 2],
    messages: Messages,
    verdict: Recognition,
    /// By sender: CRC and markers, as its Request or Reply said.
    startup: [Option<(bool, bool)>; 2],
    /// Side that sent the SYN or the MPA Request.
    initiator: Option<End>,
    zero_window_since: [Option<At>; 2],
    /// The first reset, its time and sender, and the ends that sent more after it.
    reset: Option<Box<(At, End, [bool; 2])>>,
    /// Segments of both ends whose checksum is right, and wrong.
    checks: [u32; 2],
    /// Signs of first bytes, until both are known.
    opening: Option<Box<Opening>>,
    /// By sender.
    copies: [Copies; 2],
    losses: [Option<Box<Losses>>; 2],
    repairs: [Repair; 2],
    /// By sender: segments with data whose checksum is right.
    checked_good: [u32; 2],
    /// By sender: true if the checksum of its SYN is right, and so those of its segments should be.
    sound: [bool; 2],
    /// By sender: segments whose checksum is wrong and that the receiver took all the same.
    taken_bad: [u32; 2],
    /// By sender: end of the bytes that may be from a segment with a wrong checksum, received while it was unknown
    /// whether checksums say anything.
    doubtful: [Option<u32>; 2],
    /// By sender: segments with a wrong checksum that were followed all the same.
    bad: [u32; 2],
    /// By sender: damaged segments that are neither acknowledged nor sent again.
    unconfirmed: [Vec<(At, u32, Vec<u8>)>; 2],
    /// By sender: damaged segments that were acknowledged without being sent again.
    garbled: Option<Box<[Vec<Garbled>; 2]>>,
    /// By sender: FPDUs whose CRC is right.
    crc_good: [u32; 2],
    /// By sender: the segments of the FPDU that is not whole.
    pieces: [Pieces; 2],
    /// By end: the way from the capture point and back in the handshake, in ns.
    round_trip: [Option<i64>; 2],
    syn_at: [Option<At>; 2],
    /// By sender: number that its peer acknowledged before anything of it was captured.
    early_ack: [Option<u32>; 2],
    ids: [Ids; 2],
    doubles: DoubleDetector,
    /// Losses and repairs at the time when the first copy of a mirror may have come.
    before_copies: Option<Box<(BySender, [Repair; 2])>>,
    /// By sender: segments with data that stood in the capture twice before.
    thrice: Option<Box<[Tally; 2]>>,
    last: At,
}

impl TcpFlow {
    /// A connection of which nothing is known.
    pub fn new() -> Self {
        Self::default()
    }

    /// Outcome of the segments.
    pub fn loss_view(&self) -> LossView<'_> {
        let counts = |of: fn(&tcp::Counts) -> u64| [of(self.streams[0].counts()), of(self.streams[1].counts())];
        let thrice = self.thrice.as_deref();
        LossView {
            losses: [self.losses[0].as_deref(), self.losses[1].as_deref()],
            good: self.checked_good,
            is_tcp: true,
            is_mirrored: is_mirrored(counts(|c| c.segments), counts(|c| c.retransmitted.into()), tallied(thrice)),
            copies_known: self.doubles.known(),
            thrice,
            may_be_mirrored: self.doubles.are_some()
                || may_be_mirrored(counts(|c| c.segments), counts(|c| c.retransmitted.into())),
            stuck: self.repairs.each_ref().map(Repair::stuck),
            never_came: End::BOTH.map(|by| self.repairs[by.index()].never_came(self.repairs[by.peer().index()].mss())),
        }
    }

    /// Verdict so far: MPA or not.
    pub fn verdict(&self) -> Recognition {
        self.verdict
    }

    /// End that opened the connection, if that was seen: by the MPA Request, else by the SYN.
    pub fn initiator(&self) -> Option<End> {
        self.initiator
    }

    /// Evidence for the framing of one direction.
    pub fn found(&self, by: End) -> Option<Evidence> {
        self.framers[by.index()].found()
    }

    /// Counters of the TCP segments of one direction.
    pub fn counts(&self, by: End) -> &tcp::Counts {
        self.streams[by.index()].counts()
    }

    /// True if a segment is the SYN of another connection with the same addresses and ports. Such a segment makes
    /// [`TcpFlow::segment`] forget everything; a caller that wants a separate connection for it asks first.
    pub fn is_reopened_by(&self, by: End, segment: &Segment<'_>) -> bool {
        // in a damaged one the flag itself may be wrong
        let is_damaged = segment.check == Check::Bad && self.is_dropped(by);
        segment.flags & SYN != 0
            && segment.flags & RST == 0
            && !is_damaged
            && self.streams[by.index()].is_other_syn(segment.seq)
    }

    /// True if the sequence number of a segment of `by` is far from those of this connection: its ports are in use
    /// again, by a connection whose handshake was not captured.
    pub fn is_far(&self, by: End, segment: &Segment<'_>) -> bool {
        let is_damaged = segment.check == Check::Bad && self.is_dropped(by);
        !is_damaged
            && segment.flags & RST == 0
            && self.streams[by.index()].distance(segment.seq).is_some_and(|distance| distance > FAR)
    }

    /// True if a segment can be none of this connection though that is open: its sequence number and its
    /// acknowledgment are both far from those of the connection, and at least one of them is far behind.
    pub fn is_elsewhere(&self, by: End, segment: &Segment<'_>) -> bool {
        let is_behind =
            |end: End, number: u32| (number.wrapping_sub(self.streams[end.index()].next_seq()) as i32).is_negative();
        self.is_far(by, segment)
            && segment.flags & ACK != 0
            && segment.check != Check::Bad
            && self.streams[by.peer().index()].distance(segment.ack).is_some_and(|distance| distance > FAR)
            && (is_behind(by, segment.seq) || is_behind(by.peer(), segment.ack))
    }

    /// Time since which the receive window of an end is closed, if it is.
    pub fn zero_window_since(&self, by: End) -> Option<At> {
        self.zero_window_since[by.index()]
    }

    /// True if the peer of an end acknowledged more than was seen.
    pub fn is_unseen(&self, by: End) -> bool {
        let stream = &self.streams[by.index()];
        stream.is_unseen() || !stream.started() && self.is_acknowledged_unseen(by)
    }

    /// True if acknowledgments of an end of which no byte was captured rise by more than a FIN.
    fn is_acknowledged_unseen(&self, by: End) -> bool {
        let first = self.opening.as_ref().and_then(|opening| opening.first_ack[by.index()]);
        first.zip(self.early_ack[by.index()]).is_some_and(|((first, _), newest)| newest.wrapping_sub(first) as i32 > 1)
    }

    /// No more segments will come. If only one direction was captured, missing bytes were not acknowledged: the bytes
    /// held back behind them are reported now.
    pub fn finish<T: Trace, S: FlowSink>(&mut self, at: At, options: &Options, t: &mut T, out: &mut S) {
        let end = self.reset.as_ref().map_or(self.last, |reset| self.last.max(reset.0));
        for by in End::BOTH {
            if !self.streams[by.peer().index()].started() {
                let (stream, mut follow) = self.parts(at, by, &[], options, t, out);
                stream.release(&mut |e| follow.event(e));
            } else if let Some((count, since, is_asked)) = self.streams[by.index()].open_gap()
                && end.time.saturating_sub(since) >= NEVER
            {
                // what stands behind it was not taken
                let gap = Gap { at: end, by, count, receiver_had_them: false, is_asked };
                if is_asked {
                    self.repairs[by.index()].misses(end, count);
                }
                out.fact(end, by, FlowFact::Gap(gap));
            } else if self.streams[by.index()].is_open() {
                // the connection ends, or the capture, before it is known what became of the bytes
                out.fact(end, by, FlowFact::Cut);
            }
            if self.streams[by.index()].is_fin_unseen() {
                let gap = Gap { at: end, by, count: 1, receiver_had_them: true, is_asked: false };
                out.fact(end, by, FlowFact::Gap(gap));
            }
            if let Some(since) = self.zero_window_since[by.index()].take() {
                out.fact(self.last, by, FlowFact::ZeroWindow { since, is_open: false });
            }
            self.repairs[by.index()].finish(self.last, &mut self.losses[by.index()]);
        }
    }

    /// Saves the classification of segments so far, because copies of a mirror may follow.
    #[cold]
    fn suspect(&mut self) {
        self.before_copies = Some(Box::new((self.losses.clone(), self.repairs.clone())));
    }

    /// Goes back to the classification before there were copies: segments that seemed to be sent again were copies.
    #[cold]
    fn forgive(&mut self) {
        self.thrice = None;
        let (losses, repairs) = self.before_copies.take().map_or_else(Default::default, |before| *before);
        self.losses = losses;
        self.repairs.iter_mut().zip(repairs).for_each(|(repair, before)| repair.forgive(before));
    }

    /// Total memory, in bytes.
    pub fn memory(&self) -> usize {
        let held: usize = self.streams.iter().map(Stream::held).chain(self.framers.iter().map(Framer::memory)).sum();
        let repairs: usize = self.repairs.iter().map(Repair::memory).sum();
        let pieces: usize = self.pieces.iter().map(Pieces::held).sum();
        size_of::<Self>() + held + repairs + pieces + self.messages.memory()
    }

    /// Bytes of the stream that are held back or not framed yet.
    pub fn held(&self) -> usize {
        self.streams.iter().map(Stream::held).chain(self.framers.iter().map(Framer::memory)).sum()
    }

    /// Gives back buffers that hold nothing: for a connection that has been idle.
    pub fn trim(&mut self) {
        self.framers.iter_mut().for_each(Framer::trim);
        self.pieces.iter_mut().filter(|pieces| pieces.frames().is_empty()).for_each(Pieces::release);
        self.messages.trim();
        if self.streams.iter().all(Stream::started) {
            self.opening = None;
        }
    }

    /// Takes the next segment of the capture, sent by `by`.
    pub fn segment<T: Trace, S: FlowSink>(
        &mut self,
        at: At,
        by: End,
        segment: &Segment<'_>,
        options: &Options,
        t: &mut T,
        out: &mut S,
    ) {
        let flags = segment.flags;
        let length = segment.payload_length << 8 | u32::from(segment.flags);
        match self.doubles.add(at, by, [segment.seq, segment.ack, length ^ u32::from(segment.ip_id) << 16]) {
            Shown::First => {}
            Shown::Suspect => {
                self.suspect();
                out.fact(at, by, FlowFact::MayBeCopies);
            }
            shown @ (Shown::Mirrored | Shown::Again) => {
                if shown == Shown::Mirrored {
                    self.forgive();
                    out.fact(at, by, FlowFact::WereCopies);
                }
                t.info(format_args!("captured twice"));
                return out.fact(at, by, FlowFact::Duplicate);
            }
        }
        let is_damaged = segment.check == Check::Bad && self.is_dropped(by);
        match segment.check {
            Check::Good => self.checks[0] = self.checks[0].saturating_add(1),
            Check::Bad => self.checks[1] = self.checks[1].saturating_add(1),
            Check::Unchecked => {}
        }
        let is_reset = flags & RST != 0 && self.is_trusted(segment.check);
        let is_unusual =
            flags & (SYN | FIN | RST) != 0 || segment.window == 0 || self.zero_window_since[by.index()].is_some();
        if is_unusual && !is_damaged {
            self.unusual(at, by, segment, is_reset, out);
            if is_reset {
                return;
            }
        }
        if self.reset.is_some() && flags & (SYN | RST) == 0 && !is_damaged {
            self.resumes(at, by, out);
        }
        self.last = at;
        let is_older = self.ids[by.index()].behind(segment.ip_id).map(|behind| behind > 0);
        if is_damaged {
            return self.damaged(at, by, segment, t, out);
        }
        // first its acknowledgment, then its data
        let is_trusted = segment.check != Check::Bad
            || !self.is_doubted(by)
            || segment.ack == self.streams[by.peer().index()].next_seq();
        if let Some(first) =
            self.unsure(by.peer()).filter(|first| flags & ACK != 0 && (is_trusted || segment.ack == *first))
        {
            self.base(by.peer(), if segment.check == Check::Bad { first } else { segment.ack });
        }
        if flags & ACK != 0 && is_trusted {
            if !self.streams[by.peer().index()].started() {
                self.early_ack[by.peer().index()] = Some(segment.ack);
                let stream = &self.streams[by.index()];
                let is_opening = stream.from_syn() && flags & SYN == 0 && segment.seq == stream.first();
                self.opening.get_or_insert_default().first_ack[by.peer().index()]
                    .get_or_insert((segment.ack, is_opening));
            }
            if !self.unconfirmed[by.peer().index()].is_empty() {
                self.confirm(by.peer(), segment.ack, options, t, out);
            }
            let (stream, mut follow) = self.parts(at, by.peer(), segment.payload, options, t, out);
            stream.acknowledged(segment.ack, &mut |e| follow.event(e));
            let acknowledgment = Acknowledged {
                at,
                ack: segment.ack,
                sacks: &segment.sacks[..usize::from(segment.sack_count).min(segment.sacks.len())],
                timestamp: segment.timestamps.map(|(value, _)| value),
                echo: segment.timestamps.map(|(_, echo)| echo),
                has_data: segment.payload_length > 0,
            };
            let (repair, losses) = (&mut self.repairs[by.peer().index()], &mut self.losses[by.peer().index()]);
            repair.acknowledged(&acknowledgment, losses, &mut |over| out.fact(at, by.peer(), FlowFact::Over(over)));
            out.acknowledged(at, by.peer(), segment.ack);
        } else if flags & ACK != 0 {
            let (stream, mut follow) = self.parts(at, by.peer(), segment.payload, options, t, out);
            stream.acknowledged_perhaps(segment.ack, &mut |e| follow.event(e));
        }
        if segment.payload_length > 0 {
            self.checked_good[by.index()] += u32::from(segment.check == Check::Good);
            // a SYN counts as a byte
            let seq = segment.seq.wrapping_add(u32::from(flags & SYN != 0));
            let limit = if self.streams[by.peer().index()].started() {
                options.hold_limit
            } else {
                // bytes that the capture lost are not acknowledged: perhaps one direction only was captured
                options.hold_limit.min(ONE_SIDED_HOLD_LIMIT)
            };
            if self.unsure(by) == Some(seq) {
                self.base(by, seq);
            }
            if !self.streams[by.index()].started() {
                self.begins(at, by, seq, options, t, out);
            }
            if segment.payload.is_empty() {
                out.fact(at, by, FlowFact::Cut);
            }
            if !self.unconfirmed[by.index()].is_empty() && segment.check != Check::Bad {
                self.mended(at, by, seq, segment.payload_length, out);
            }
            self.framers[by.index()].mark_verified(segment.payload, segment.checked);
            let mark = mark(segment.ip_id, segment.checksum);
            let is_next = seq == self.streams[by.index()].next_seq();
            let of = if is_next { None } else { self.copies[by.index()].frame_of(at, seq) };
            if of.is_some() && self.copies[by.index()].times(seq) > 1 {
                self.thrice.get_or_insert_default()[by.index()].add(at, 1);
            }
            let asked = self.repairs[by.index()].reported(seq);
            let copy = !is_next && self.copies[by.index()].has(at, seq, mark, asked.is_none(), asked);
            let age = if is_next { None } else { self.copies[by.index()].first_age(at, seq) };
            if !is_next && self.streams[by.index()].found(at, seq, segment.payload_length) {
                self.losses[by.index()].get_or_insert_default().misplaced.add(at, 1);
                out.fact(at, by, FlowFact::Misplaced);
                t.info(format_args!("TCP segment behind its acknowledgment, passed over"));
                self.copies[by.index()].add(at, seq, mark);
                self.framers[by.index()].mark_verified(&[], 0);
                out.sequence(by, seq.wrapping_add(segment.payload_length));
                out.fact(at, by, FlowFact::Found(segment.payload_length));
                return self.fin(at, by, segment, options, t, out);
            }
            let misplaced = self.streams[by.index()].is_misplaced(seq, segment.payload_length);
            if misplaced {
                self.losses[by.index()].get_or_insert_default().misplaced.add(at, 1);
                out.fact(at, by, FlowFact::Misplaced);
            }
            let copy = copy || misplaced && !is_next;
            out.sequence(by, seq.wrapping_add(segment.payload_length));
            if segment.check == Check::Bad && self.is_doubted(by) || self.doubtful[by.index()].is_some() {
                self.doubt(at, by, seq.wrapping_add(segment.payload_length), segment.check, out);
            }
            let (stream, mut follow) = self.parts(at, by, segment.payload, options, t, out);
            follow.emitter.copy = copy;
            follow.emitter.of = of;
            stream.data(at, seq, segment.payload, segment.payload_length, limit, &mut |e| follow.event(e));
            let was = follow.emitter.was;
            self.framers[by.index()].mark_verified(&[], 0);
            self.copies[by.index()].add(at, seq, mark);
            let mended = matches!(was, SegmentKind::Filled { .. })
                && self.unconfirmed[by.index()].iter().any(|(_, of, _)| *of == seq);
            if let Some(garbled) = self.garbled.as_mut().filter(|_| !copy).map(|garbled| &mut garbled[by.index()])
                && let Some(place) = garbled.iter().position(|(_, of)| *of == seq)
            {
                // sent again after its acknowledgment: nothing shows if its receiver had dropped the first
                let (damaged, _) = garbled.remove(place);
                self.losses[by.index()].get_or_insert_default().damaged_taken.retract_at(damaged);
            }
            if !copy {
                // a segment that had come damaged was neither lost nor overtaken
                let was = if mended { SegmentKind::New } else { was };
                let sent = Sent {
                    at,
                    seq,
                    end: seq.wrapping_add(segment.payload_length),
                    timestamp: segment.timestamps.map(|(value, _)| value),
                    echo: segment.timestamps.map(|(_, echo)| echo),
                    is_older,
                    age,
                    was,
                };
                let way = self.round_trip[by.index()].unwrap_or(0);
                if segment.are_options_cut && segment.timestamps.is_none() {
                    self.repairs[by.index()].unclocked();
                }
                if let Some(over) = self.repairs[by.index()].sent(&sent, way, &mut self.losses[by.index()]) {
                    out.fact(at, by, FlowFact::Over(over));
                }
            }
        } else if flags & (SYN | FIN) == 0 && segment.seq != self.streams[by.index()].next_seq() {
            let timestamp = segment.timestamps.map(|(value, _)| value);
            self.repairs[by.index()].empty(at, segment.seq, timestamp);
        }
        self.fin(at, by, segment, options, t, out);
    }

    /// The end of a segment.
    #[inline]
    fn fin<T: Trace, S: FlowSink>(
        &mut self,
        at: At,
        by: End,
        segment: &Segment<'_>,
        options: &Options,
        t: &mut T,
        out: &mut S,
    ) {
        if segment.flags & FIN != 0 {
            let seq =
                segment.seq.wrapping_add(segment.payload_length).wrapping_add(u32::from(segment.flags & SYN != 0));
            if segment.payload_length == 0 && !self.streams[by.index()].started() {
                self.begins(at, by, seq, options, t, out);
            }
            let (stream, mut follow) = self.parts(at, by.peer(), &[], options, t, out);
            stream.infer_fin(at, &mut |e| follow.event(e));
            let (stream, mut follow) = self.parts(at, by, segment.payload, options, t, out);
            stream.fin(at, seq, &mut |e| follow.event(e));
        }
    }

    /// True if a segment with a wrong checksum that is followed all the same may be damaged. If many are wrong, they
    /// are captured before the adapter has written their checksums.
    pub fn is_doubted(&self, by: End) -> bool {
        self.bad[by.index()] < BAD_MAX
    }

    /// Facts reported with this segment may be in one with a wrong checksum.
    #[cold]
    fn doubt<S: FlowSink>(&mut self, at: At, by: End, end: u32, check: Check, out: &mut S) {
        let is_before = |a: u32, b: u32| (a.wrapping_sub(b) as i32) < 0;
        let next = self.streams[by.index()].next_seq();
        let is_doubted = check == Check::Bad && self.is_doubted(by);
        let doubtful = &mut self.doubtful[by.index()];
        if is_doubted {
            self.bad[by.index()] += 1;
            *doubtful = Some(doubtful.filter(|known| is_before(end, *known)).unwrap_or(end));
        }
        if self.streams[by.index()].started() && doubtful.is_some_and(|until| !is_before(next, until)) {
            *doubtful = None;
        } else {
            out.fact(at, by, FlowFact::Doubtful);
        }
    }

    /// True if the receiver drops a segment of `by` whose checksum is wrong: others are right, and only few such
    /// segments were taken all the same.
    fn is_dropped(&self, by: End) -> bool {
        let is_known = self.sound[by.index()] || self.checked_good[by.index()] > 0;
        is_known && self.taken_bad[by.index()] < TAKEN_BAD_MAX
    }

    /// True if flags that begin or end a connection count in a segment with this checksum: where it is wrong, only if
    /// no segment has a right one.
    fn is_trusted(&self, check: Check) -> bool {
        check != Check::Bad || self.checks[0] == 0 && self.checks[1] > 1
    }

    /// Number of the first byte of an end by a SYN that is not trusted.
    #[inline]
    fn unsure(&self, by: End) -> Option<u32> {
        self.opening.as_deref().and_then(|opening| opening.unsure[by.index()])
    }

    /// The number of the first byte of an end whose SYN is not trusted, as something else shows it.
    #[cold]
    fn base(&mut self, by: End, first: u32) {
        if let Some(opening) = &mut self.opening {
            opening.unsure[by.index()] = None;
        }
        self.streams[by.index()].syn(first.wrapping_sub(1));
    }

    /// The first segment of an end comes without its SYN: others may have come before it. Its peer may have
    /// acknowledged the SYN, and more.
    #[cold]
    fn begins<T: Trace, S: FlowSink>(&mut self, at: At, by: End, seq: u32, options: &Options, t: &mut T, out: &mut S) {
        let first = self.opening.as_mut().and_then(|opening| opening.first_ack[by.index()].take());
        let newest = self.early_ack[by.index()];
        match (first, newest) {
            (Some((first, true)), Some(newest)) if (seq.wrapping_sub(first) as i32) >= 0 => {
                self.base(by, first);
                let (stream, mut follow) = self.parts(at, by, &[], options, t, out);
                stream.acknowledged(newest, &mut |e| follow.event(e));
            }
            (Some((first, _)), _) if first != seq => {
                out.fact(at, by, FlowFact::BeganLate);
                self.framers[by.index()].late();
            }
            _ => self.framers[by.index()].late(),
        }
    }

    /// A segment after a reset. An end that resets a connection sends nothing more on it; if both ends go on, it was
    /// not taken.
    #[cold]
    fn resumes<S: FlowSink>(&mut self, at: At, by: End, out: &mut S) {
        let Some((_, sender, more)) = self.reset.as_deref_mut().filter(|(reset, ..)| at.since(*reset) > BEHIND_MAX)
        else {
            return;
        };
        more[by.index()] |= by == *sender || more[sender.index()];
        if *more == [true; 2] {
            let sender = *sender;
            self.reset = None;
            out.fact(at, sender, FlowFact::Resumed);
        }
    }

    /// A segment that its receiver drops: counted, not followed. If the receiver acknowledges it all the same, it is.
    #[cold]
    fn damaged<T: Trace, S: FlowSink>(&mut self, at: At, by: End, segment: &Segment<'_>, t: &mut T, out: &mut S) {
        t.info(format_args!("TCP checksum wrong: its content is not analysed"));
        if segment.payload_length == 0 {
            return;
        }
        out.fact(at, by, FlowFact::Damaged);
        let losses = self.losses[by.index()].get_or_insert_default();
        losses.damaged.add(at, 1);
        let bad = losses.damaged.count;
        if bad == ALL_CHANGED && are_changed(bad, self.checked_good[by.index()], true) {
            // so many in a row are not damaged on the wire: nothing is known of what was sent
            out.fact(at, by, FlowFact::Changed);
        }
        let unconfirmed = &mut self.unconfirmed[by.index()];
        if unconfirmed.len() < UNCONFIRMED_MAX && !segment.payload.is_empty() {
            unconfirmed.push((at, segment.seq, segment.payload.to_vec()));
        }
    }

    /// A segment that had come damaged comes again: its receiver had dropped it, and its sender had to find out.
    #[cold]
    fn mended<S: FlowSink>(&mut self, at: At, by: End, seq: u32, bytes: u32, out: &mut S) {
        let damaged = self.unconfirmed[by.index()].iter().find(|(_, of, _)| *of == seq).map(|(since, ..)| *since);
        // a mirror may show the same segment undamaged
        let Some(since) = damaged.filter(|since| at.since(*since) > COPY_MAX) else { return };
        out.fact(at, by, FlowFact::Mended { since, sequence: seq, bytes });
    }

    /// Follows segments that were thought damaged and did not come again, if the receiver acknowledges them: it had
    /// them.
    #[cold]
    fn confirm<T: Trace, S: FlowSink>(&mut self, by: End, ack: u32, options: &Options, t: &mut T, out: &mut S) {
        for (at, seq, bytes) in core::mem::take(&mut self.unconfirmed[by.index()]) {
            let (next, length) = (self.streams[by.index()].next_seq(), bytes.len() as u32);
            let is_behind = |a: u32, b: u32| (a.wrapping_sub(b) as i32) < 0;
            if is_behind(seq, next) {
                // it came again
                self.losses[by.index()].get_or_insert_default().damaged_dropped.add(at, 1);
            } else if is_behind(ack, seq.wrapping_add(length)) {
                self.unconfirmed[by.index()].push((at, seq, bytes));
            } else if self.sound[by.index()] || self.checked_good[by.index()] >= CHECKSUM_TRUSTED {
                // the receiver had it undamaged: here its content is not known
                self.losses[by.index()].get_or_insert_default().damaged_taken.add(at, 1);
                let garbled = &mut self.garbled.get_or_insert_default()[by.index()];
                if garbled.len() >= UNCONFIRMED_MAX {
                    garbled.remove(0);
                }
                garbled.push((at, seq));
                let (stream, mut follow) = self.parts(self.last, by, &[], options, t, out);
                follow.emitter.is_late = true;
                stream.data(at, seq, &[], length, options.hold_limit, &mut |e| follow.event(e));
                out.fact(self.last, by, FlowFact::Dropped);
            } else {
                self.taken_bad[by.index()] += 1;
                if let Some(losses) = self.losses[by.index()].as_mut() {
                    losses.damaged.retract();
                }
                out.fact(at, by, FlowFact::Doubtful);
                let (stream, mut follow) = self.parts(at, by, &[], options, t, out);
                follow.emitter.is_late = true;
                stream.data(at, seq, &bytes, length, options.hold_limit, &mut |e| follow.event(e));
            }
        }
    }

    /// Everything but an ordinary segment.
    #[cold]
    fn unusual<S: FlowSink>(&mut self, at: At, by: End, segment: &Segment<'_>, is_reset: bool, out: &mut S) {
        let flags = segment.flags;
        if self.is_reopened_by(by, segment) {
            *self = Self::default();
            out.fact(at, by, FlowFact::Reopened);
        }
        if is_reset {
            self.streams[by.index()].counts_mut().resets += 1;
            if self.reset.is_none() {
                self.reset = Some(Box::new((at, by, [false; 2])));
                out.fact(at, by, FlowFact::Reset);
            }
            return;
        }
        if flags & SYN != 0 {
            self.repairs[by.peer().index()].takes(segment.mss.unwrap_or_default());
            self.sound[by.index()] |= segment.check == Check::Good;
            if let Some(opening) = self.opening.as_mut().filter(|_| segment.check != Check::Bad) {
                opening.unsure[by.index()] = None;
            }
            if flags & ACK == 0 {
                self.syn_at[by.index()] = Some(at);
            } else if self.streams[by.index()].from_syn() {
                out.fact(at, by, FlowFact::AcceptsAgain);
            } else if let Some(syn) = self.syn_at[by.peer().index()].filter(|_| !self.streams[by.index()].started()) {
                let took = at.time.saturating_sub(syn.time);
                self.round_trip[by.index()] = Some(took);
                out.fact(at, by, FlowFact::RoundTrip(took));
            }
            let is_ahead = |ack: u32| (ack.wrapping_sub(segment.seq.wrapping_add(1)) as i32) >= 0;
            if self.early_ack[by.index()].take().is_some_and(is_ahead)
                || self.streams[by.index()].is_late_syn(segment.seq)
            {
                // its peer had it already
                self.losses[by.index()].get_or_insert_default().misplaced.add(at, 1);
                out.fact(at, by, FlowFact::Misplaced);
            }
            if segment.check == Check::Bad {
                let unsure = Some(segment.seq.wrapping_add(1)).filter(|_| !self.streams[by.index()].started());
                self.opening.get_or_insert_default().unsure[by.index()] = unsure;
            } else {
                self.streams[by.index()].syn(segment.seq);
            }
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
                out.fact(at, by, FlowFact::ZeroWindow { since: closed, is_open: true });
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
        let Self { streams, framers, messages, verdict, startup, initiator, crc_good, pieces, .. } = self;
        let emitter = Emitter {
            at,
            by,
            payload,
            options,
            t,
            out,
            messages,
            startup,
            initiator,
            crc_good,
            pieces,
            learned: false,
            fpdus: 0,
            copy: false,
            of: None,
            was: SegmentKind::New,
            is_late: false,
        };
        (&mut streams[by.index()], Follow { framers, verdict, emitter })
    }
}

/// Passes the events of a stream to the framer of its direction, and the framer's events to [`Emitter`].
struct Follow<'f, T, S> {
    framers: &'f mut [Framer; 2],
    verdict: &'f mut Recognition,
    emitter: Emitter<'f, T, S>,
}

impl<T: Trace, S: FlowSink> Follow<'_, T, S> {
    #[inline]
    fn event(&mut self, event: Event<'_>) {
        match event {
            Event::Piece(piece) if self.emitter.is_late => self.piece(tcp::Piece { in_frame: false, ..piece }),
            Event::Piece(piece) => self.piece(piece),
            other => self.emitter.event(other),
        }
    }

    #[inline]
    fn piece(&mut self, piece: tcp::Piece<'_>) {
        let by = self.emitter.by;
        let (was_lost, is_cut) = (self.framers[by.index()].is_lost(), piece.missing > 0);
        let mut next = Some(piece);
        while let Some(piece) = next {
            next = self.framers[by.index()]
                .push(piece, self.emitter.options.check_crc, &mut |framed| self.emitter.framed(framed));
            if self.emitter.learned {
                self.agree();
            }
        }
        if *self.verdict == Recognition::Undecided {
            self.decide();
        }
        let framer = &self.framers[by.index()];
        let becomes_lost = !was_lost && framer.is_lost();
        if becomes_lost || is_cut && framer.is_searching() && *self.verdict == Recognition::Mpa {
            // messages pass unread until it is found again
            self.emitter.messages.lost(by);
            self.emitter.fact(FlowFact::Cut);
        }
    }

    /// Passes the values of Request and Reply to both framers.
    fn agree(&mut self) {
        self.emitter.learned = false;
        let crc = match *self.emitter.startup {
            [Some((a, _)), Some((b, _))] => Some(a || b),
            // one that wants them is enough
            [Some((true, _)), None] | [None, Some((true, _))] => Some(true),
            _ => None,
        };
        for end in End::BOTH {
            // an end says if it wants markers in the stream that it receives
            let markers = self.emitter.startup[end.peer().index()].map(|(_, markers)| markers);
            self.framers[end.index()].agree(crc, markers);
        }
    }

    /// One direction speaks for both.
    fn decide(&mut self) {
        let by = self.emitter.by;
        *self.verdict = self.framers[by.index()].verdict();
        let peer = &mut self.framers[by.peer().index()];
        match *self.verdict {
            Recognition::Undecided => {}
            Recognition::Mpa => peer.agree(None, None),
            Recognition::NotMpa => {
                self.emitter.by = by.peer();
                peer.give_up(&mut |framed| self.emitter.framed(framed));
                self.emitter.by = by;
            }
        }
    }
}

/// Passes events to the sink and the observer.
struct Emitter<'f, T, S> {
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
    /// FPDUs completed in this segment.
    fpdus: u32,
    /// The segment appears in the capture twice.
    copy: bool,
    /// The frame that it stood in before.
    of: Option<u64>,
    /// By sender: FPDUs whose CRC is right.
    crc_good: &'f mut [u32; 2],
    /// By sender: the segments of the FPDU that is not whole.
    pieces: &'f mut [Pieces; 2],
    /// Relation of the segment to those before it.
    was: SegmentKind,
    /// The bytes are those of an earlier segment.
    is_late: bool,
}

impl<T: Trace, S: FlowSink> Emitter<'_, T, S> {
    fn fact(&mut self, fact: FlowFact<'_>) {
        self.out.fact(self.at, self.by, fact);
    }

    #[cold]
    fn event(&mut self, event: Event<'_>) {
        match event {
            Event::Piece(_) => {}
            Event::Gap { count, receiver_had_them } => {
                self.messages.lost(self.by);
                let gap = Gap { at: self.at, by: self.by, count, receiver_had_them, is_asked: false };
                self.fact(FlowFact::Gap(gap));
            }
            Event::Retransmission { .. } if self.copy => {
                self.t.info(format_args!("captured twice"));
                self.fact(FlowFact::Duplicate);
            }
            Event::Retransmission { bytes, filled } => {
                self.was = if filled { SegmentKind::Filled { is_late: false } } else { SegmentKind::Repeated };
                self.t.info(format_args!("TCP retransmission"));
                self.fact(FlowFact::Retransmission { bytes, filled, of: self.of.filter(|_| !filled) });
            }
            Event::Held { missing } => {
                if self.was == SegmentKind::New {
                    self.was = SegmentKind::Early;
                }
                self.t.info(format_args!("TCP segment held back, {missing} bytes before it are missing"));
            }
            Event::OutOfOrder { bytes } => {
                self.was = SegmentKind::Filled { is_late: true };
                self.fact(FlowFact::OutOfOrder { bytes });
            }
            Event::Conflict { bytes } => self.fact(FlowFact::Conflict { bytes }),
            Event::Closed { at } => self.out.fact(at, self.by, FlowFact::Closed),
        }
    }

    #[inline]
    fn framed(&mut self, framed: Framed<'_>) {
        match framed {
            Framed::Fpdu { bytes, in_frame, crc } => {
                if in_frame {
                    self.fpdu(bytes, true, crc);
                } else {
                    self.put_together(bytes.len());
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

    /// Reports the segments from which the FPDU or Request that the current segment completes was put together.
    fn put_together(&mut self, length: usize) {
        let pieces = &mut self.pieces[self.by.index()];
        pieces.add_frame(self.at.frame);
        if let Some(several) = pieces.several() {
            self.out.fact(self.at, self.by, FlowFact::Assembled(several));
            if T::ON {
                Assembly::Tcp.show(several, length as u32, self.t);
            }
        }
        self.pieces[self.by.index()].clear();
    }

    #[cold]
    fn framed_rarely(&mut self, framed: Framed<'_>) {
        match framed {
            Framed::Startup { bytes, in_frame } => {
                if !in_frame {
                    self.put_together(bytes.len());
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
                self.pieces[self.by.index()].add_frame(self.at.frame);
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
                self.pieces[self.by.index()].clear();
                self.messages.lost(self.by);
                self.fact(FlowFact::Resync { skipped, found });
            }
            Framed::Fpdu { .. } | Framed::Other(_) => {}
        }
    }

    #[inline]
    fn fpdu(&mut self, bytes: &[u8], in_frame: bool, crc: Crc) {
        match crc {
            Crc::Used(Check::Good) => self.crc_good[self.by.index()] = self.crc_good[self.by.index()].saturating_add(1),
            Crc::Used(Check::Bad) => self.fact(FlowFact::CrcBad),
            _ => {}
        }
        let Ok((_, fpdu)) = wire::parse_fpdu(bytes, crc, self.t) else {
            self.messages.lost(self.by);
            return self.fact(FlowFact::Cut);
        };
        if crc == Crc::Used(Check::Bad) && self.crc_good[self.by.index()] > 0 {
            // it is not delivered (RFC 5044 8): shown as far as its headers, not followed
            let _ = rdmap::parse(fpdu.ulpdu, self.t);
            self.messages.lost(self.by);
            return self.fact(FlowFact::Dropped);
        }
        if fpdu.ulpdu_length == 0 {
            // ready to receive, RFC 6581 9.4: padding of 0 follows, and no header
            if bytes.len() > 3 && mpa::plausible(bytes) {
                self.messages.lost(self.by);
                self.fact(FlowFact::DdpShort { length: 0 });
            }
            return;
        }
        let Ok((_, message)) = rdmap::parse(fpdu.ulpdu, self.t) else {
            if bytes.len() >= wire::fpdu_len(fpdu.ulpdu_length) {
                self.fact(FlowFact::DdpShort { length: fpdu.ulpdu_length.into() });
            } else {
                // the message that it belongs to is unknown
                self.messages.lost(self.by);
                self.fact(FlowFact::Cut);
            }
            return;
        };
        let length = u32::from(fpdu.ulpdu_length).saturating_sub(message.ddp.header_len() as u32);
        let (at, by) = (self.at, self.by);
        let out = &mut *self.out;
        let op =
            self.messages.operation(by, &message, length, self.options.reads_limit, &mut |fact| out.fact(at, by, fact));
        if let Some(op) = op {
            self.out.op(&RdmaOp { at, by, in_frame, ..op }, self.t);
        }
    }
}

/// State of a connection in DDP and RDMAP.
#[derive(Clone, Debug, Default)]
struct Messages {
    halves: [Half; 2],
    /// Read Requests so far.
    reads: u32,
}

#[derive(Clone, Debug, Default)]
struct Half {
    queues: [Queue; 4],
    /// By queue: the number that its last message should have had, if that had a wrong one, or went to another queue;
    /// else 0. One wrong number makes those behind it no others.
    instead_of: [u32; 4],
    /// A Write of several segments: its STag, and where the next one begins.
    write: Option<(u32, u64)>,
    /// Read Requests of this end that wait for their Responses, in order.
    reads: VecDeque<Read>,
}

/// The queue of Terminates (RFC 5040 5.1).
const TERMINATES: u32 = 2;

/// The untagged messages of one queue.
#[derive(Clone, Copy, Debug, Default)]
struct Queue {
    /// The number of the message that came last.
    msn: u32,
    /// Message offset of its next segment.
    offset: u32,
    /// It goes on.
    open: bool,
    /// Nothing was missed since `msn`.
    known: bool,
    /// The number of its message is not the one that comes next: the receiver refuses it.
    refused: bool,
}

#[derive(Clone, Copy, Debug)]
struct Read {
    number: u32,
    request: ReadRequest,
    /// Sink offset of the next byte.
    next: u64,
    /// Bytes that came, those that the capture missed among them.
    came: u64,
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

    /// The operation that a segment is part of; `length` of its payload on the wire. Time, sender and place are the
    /// caller's.
    fn operation<'a>(
        &mut self,
        by: End,
        m: &Rdmap<'a>,
        length: u32,
        reads_limit: usize,
        emit: &mut impl FnMut(FlowFact<'_>),
    ) -> Option<RdmaOp<'a>> {
        let defined = m.ddp.control.version() == 1 && m.control.version() <= 1;
        let queue = if let Buffer::Untagged(b) = m.ddp.buffer { Some(b.queue) } else { None };
        if !defined || m.opcode.is_tagged() != Some(queue.is_none()) || m.opcode.queue() != queue {
            emit(FlowFact::Undefined { ddp: m.ddp.control.flags, rdmap: m.ddp.ulp, queue: queue.unwrap_or(0) });
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
                op.part = Part::of(self.write(by, b, length, last, emit), last);
                op.placement = Placement::Memory { key: b.stag, address: b.offset };
            }
            (Opcode::READ_RESPONSE, Buffer::Tagged(b)) => {
                op.verb = Verb::ReadResponse;
                self.read_response(&mut op, b, last, emit);
            }
            (opcode, Buffer::Untagged(b)) if opcode.is_tagged() == Some(false) => {
                let begins = self.halves[by.index()].untagged(b, length, last, emit)?;
                op.part = Part::of(begins, last);
                self.untagged(&mut op, m, b, reads_limit, emit);
            }
            _ => return None,
        }
        Some(op)
    }

    /// Follows the segments of a Write. Returns true if this one begins a message.
    fn write(&mut self, by: End, b: Tagged, length: u32, last: bool, emit: &mut impl FnMut(FlowFact<'_>)) -> bool {
        let half = &mut self.halves[by.index()];
        let begins = match half.write {
            None => true,
            Some((stag, expected)) => {
                if (stag, expected) != (b.stag, b.offset) {
                    emit(step(expected, b.offset));
                }
                stag != b.stag
            }
        };
        half.write = (!last).then(|| (b.stag, b.offset.wrapping_add(length.into())));
        begins
    }

    /// Joins a Read Response to its request.
    fn read_response(&mut self, op: &mut RdmaOp<'_>, b: Tagged, last: bool, emit: &mut impl FnMut(FlowFact<'_>)) {
        let reads = &mut self.halves[op.by.peer().index()].reads;
        // right behind the end of one whose Response may not have been captured begins that of the next
        let within = |r: &Read| {
            let (into, size) = (b.offset.wrapping_sub(r.request.sink_offset), u64::from(r.request.size));
            r.request.sink_stag == b.stag && (into < size || into == size && (!r.stale || size == 0))
        };
        let Some(mut n) = reads.iter().position(within) else {
            op.part = Part::of(false, last);
            return emit(FlowFact::ReadUnknown { stag: b.stag, offset: b.offset });
        };
        // they are answered in order: earlier ones that may have been answered unseen have been
        while n > 0 && reads[0].stale {
            reads.pop_front();
            n -= 1;
        }
        let read = &mut reads[n];
        if read.next != b.offset && !read.stale {
            emit(step(read.next, b.offset));
        }
        read.next = b.offset.wrapping_add(op.length.into());
        let into = b.offset.wrapping_sub(read.request.sink_offset);
        let (asked, sent) = (read.request.size, into.saturating_add(op.length.into()));
        read.came = if read.stale { into } else { read.came }.saturating_add(op.length.into());
        read.stale = false;
        if sent > asked.into() {
            emit(FlowFact::ReadLonger { asked, sent, came: read.came });
        } else if last && sent < asked.into() {
            emit(FlowFact::ReadShorter { asked, sent });
        }
        op.part = Part::of(into == 0, last);
        op.placement =
            Placement::Memory { key: read.request.source_stag, address: read.request.source_offset.wrapping_add(into) };
        op.message_length = Some(read.request.size);
        op.read = read.number;
        if last {
            reads.remove(n);
        }
    }

    fn untagged(
        &mut self,
        op: &mut RdmaOp<'_>,
        m: &Rdmap<'_>,
        b: Untagged,
        reads_limit: usize,
        emit: &mut impl FnMut(FlowFact<'_>),
    ) {
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
                let same =
                    |r: &Read| (r.request.sink_stag, r.request.sink_offset) == (request.sink_stag, request.sink_offset);
                if let Some(n) = reads.iter().rposition(|r| r.stale && same(r)) {
                    reads.drain(..=n);
                }
                if reads.len() >= reads_limit.max(1) {
                    reads.pop_front();
                }
                reads.push_back(Read { number: op.read, request, next: request.sink_offset, came: 0, stale: false });
                if reads.len() > 1 {
                    emit(FlowFact::ReadsOutstanding(reads.iter().filter(|r| !r.stale).count() as u32));
                }
            }
            Body::Terminate(terminate) => {
                op.verb = Verb::Terminate;
                op.placement = Placement::Queue { offset: b.offset };
                emit(FlowFact::Terminate(terminate));
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
                if op.verb == Verb::ReadRequest {
                    // the destination of its Response is unknown
                    emit(FlowFact::Cut);
                }
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
    /// Follows the numbers of a queue. Returns true if the segment begins its message; `None` if its receiver refuses
    /// it, because its number is not the one that comes next (RFC 5041 7.1).
    fn untagged(&mut self, b: Untagged, length: u32, last: bool, emit: &mut impl FnMut(FlowFact<'_>)) -> Option<bool> {
        let begins = b.offset == 0;
        let Some(queue) = self.queues.get_mut(b.queue as usize) else { return Some(begins) };
        let before = *queue;
        *queue = Queue { msn: b.msn, offset: b.offset.wrapping_add(length), open: !last, known: true, refused: false };
        if !before.known {
            return Some(begins);
        }
        if before.open && before.msn == b.msn {
            if b.offset != before.offset {
                emit(step(before.offset.into(), b.offset.into()));
            }
            queue.refused = before.refused;
            return (!before.refused).then_some(begins);
        }
        let expected = before.msn.wrapping_add(1);
        if before.open {
            // the rest of the message before did not come
            emit(FlowFact::SegmentHole { expected: before.offset.into(), got: b.offset.into() });
        }
        let instead_of = &mut self.instead_of[b.queue as usize];
        let goes_on = *instead_of != 0 && (b.msn == *instead_of || b.msn == instead_of.wrapping_add(1));
        if goes_on {
            *instead_of = 0;
        } else if b.msn != expected && *instead_of == 0 {
            *instead_of = expected;
        } else if *instead_of != 0 {
            // wrong ones may follow each other
            *instead_of = instead_of.wrapping_add(1);
        }
        if b.msn != expected && !goes_on {
            let got = b.msn;
            if (b.msn.wrapping_sub(expected) as i32) > 0 {
                emit(FlowFact::MsnGap { queue: b.queue, expected, got });
            } else {
                emit(FlowFact::MsnRepeat { queue: b.queue, expected, got });
                // the count stays as it was
                queue.msn = before.msn;
            }
            // it may be of another queue
            let is_next = |other: &Queue| other.known && !other.open && other.msn.wrapping_add(1) == got;
            for (number, _) in
                self.instead_of.iter_mut().zip(&self.queues).filter(|(n, other)| **n == 0 && is_next(other))
            {
                *number = got;
            }
            // who sends a Terminate takes nothing any more, whatever its number
            if b.queue != TERMINATES {
                self.queues[b.queue as usize].refused = true;
                return None;
            }
        }
        if !begins {
            emit(FlowFact::SegmentHole { expected: 0, got: b.offset.into() });
        }
        Some(begins)
    }
}

/// A segment does not begin where it should.
fn step(expected: u64, got: u64) -> FlowFact<'static> {
    if got > expected { FlowFact::SegmentHole { expected, got } } else { FlowFact::SegmentOverlap { expected, got } }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;
    use alloc::vec::Vec;
    use proptest::prelude::*;
    use rdmascope_dissector::trace::{Off, Tree};
    use rdmascope_dissector::wire::iwarp::ddp::{Control, Ddp};
    use rdmascope_dissector::wire::iwarp::rdmap::{tagged, untagged};
    use std::format;
    use std::string::{String, ToString};

    /// Facts of a flow, as text.
    #[derive(Clone, Debug, Default, PartialEq)]
    struct LossView {
        ops: [Vec<String>; 2],
        facts: Vec<String>,
        bytes: [Vec<u8>; 2],
        outstanding: Vec<u32>,
    }

    impl FlowSink for LossView {
        fn op<T: Trace>(&mut self, op: &RdmaOp<'_>, _: &mut T) {
            let text = String::from_utf8_lossy(op.bytes);
            let place = match op.placement {
                Placement::Queue { offset } => format!("@{offset}"),
                Placement::Memory { key, address } => format!("{key:x}:{address:x}"),
                Placement::Unknown => "?".to_string(),
            };
            let mut line = format!("{:?} {:?} {place} {text}", op.verb, op.part);
            if let Some(length) = op.message_length {
                line += &format!(" of {length}");
            }
            if op.read > 0 {
                line += &format!(" #{}", op.read);
            }
            if let Some(key) = op.invalidate {
                line += &format!(" !{key:x}");
            }
            if (op.bytes.len() as u32) < op.length {
                line += " cut";
            }
            self.ops[op.by.index()].push(line);
        }

        fn fact(&mut self, _: At, _: End, fact: FlowFact<'_>) {
            let is_aside = matches!(
                fact,
                FlowFact::RoundTrip(_) | FlowFact::Over(_) | FlowFact::ReadsOutstanding(_) | FlowFact::Assembled(_)
            );
            if let FlowFact::ReadsOutstanding(count) = fact {
                self.outstanding.push(count);
            }
            if is_aside {
                return;
            }
            self.facts.push(format!("{fact:?}").split([' ', '(']).next().unwrap_or_default().to_string());
        }

        fn bytes<T: Trace>(&mut self, bytes: &StreamBytes<'_>, _: &mut T) {
            self.bytes[bytes.by.index()].extend_from_slice(bytes.bytes);
        }
    }

    /// The bytes that one end sends.
    #[derive(Clone, Default)]
    struct Script {
        bytes: Vec<u8>,
        crc: bool,
        /// Position in the stream of FPDUs, if it has markers.
        marked: Option<u32>,
        msn: [u32; 4],
    }

    impl Script {
        fn new(crc: bool, marked: bool) -> Self {
            Self { crc, marked: marked.then_some(0), ..Self::default() }
        }

        fn startup(&mut self, reply: bool, flags: u8, private: &[u8]) -> &mut Self {
            self.bytes.extend_from_slice(if reply { &wire::REPLY_KEY } else { &wire::REQUEST_KEY });
            self.bytes.extend_from_slice(&[flags, 1, 0, private.len() as u8]);
            self.bytes.extend_from_slice(private);
            self
        }

        fn segment(&mut self, ddp: &Ddp<'_>) -> &mut Self {
            let mut ulpdu = Vec::new();
            ddp.emit(&mut ulpdu);
            match self.marked {
                Some(position) => {
                    self.marked = Some(wire::emit_fpdu_with_markers(&ulpdu, self.crc, position, &mut self.bytes))
                }
                None => wire::emit_fpdu(&ulpdu, self.crc, &mut self.bytes),
            }
            self
        }

        fn queued(&mut self, opcode: Opcode, payload: &[u8], cut: usize) -> &mut Self {
            let queue = opcode.queue().unwrap_or(0) as usize;
            self.msn[queue] += 1;
            let msn = self.msn[queue];
            let last = payload.len().div_ceil(cut).max(1) - 1;
            // a message of nothing is one segment of nothing
            let parts = if payload.is_empty() { vec![payload] } else { payload.chunks(cut).collect() };
            for (n, part) in parts.into_iter().enumerate() {
                let invalidate = if opcode.invalidates() { 0x77 } else { 0 };
                self.segment(&untagged(opcode, n == last, msn, (n * cut) as u32, invalidate, part));
            }
            self
        }

        fn send(&mut self, text: &str) -> &mut Self {
            self.queued(Opcode::SEND, text.as_bytes(), 9000)
        }

        fn write(&mut self, stag: u32, to: u64, payload: &[u8], cut: usize, opcode: Opcode) -> &mut Self {
            let last = payload.len().div_ceil(cut).max(1) - 1;
            for (n, part) in payload.chunks(cut).enumerate() {
                self.segment(&tagged(opcode, n == last, stag, to + (n * cut) as u64, part));
            }
            self
        }

        fn read(&mut self, sink: (u32, u64), source: (u32, u64), size: u32) -> &mut Self {
            let mut payload = Vec::new();
            let request = ReadRequest {
                sink_stag: sink.0,
                sink_offset: sink.1,
                size,
                source_stag: source.0,
                source_offset: source.1,
            };
            request.emit(&mut payload);
            self.queued(Opcode::READ_REQUEST, &payload, 100)
        }
    }

    /// A connection, and its reported events.
    struct Talk {
        flow: TcpFlow,
        seen: LossView,
        sent: [u32; 2],
        now: i64,
        options: Options,
        /// Checksum of the next segments.
        check: Check,
    }

    const ISN: [u32; 2] = [u32::MAX - 100, 5000];

    impl Talk {
        fn late() -> Self {
            let (flow, seen, options) = (TcpFlow::new(), LossView::default(), Options::default());
            Self { flow, seen, sent: [0, 0], now: 0, options, check: Check::Unchecked }
        }

        fn new() -> Self {
            let mut talk = Self::late();
            talk.raw(End::A, ISN[0].wrapping_sub(1), 0, SYN, b"", 0, 9);
            talk.raw(End::B, ISN[1].wrapping_sub(1), ISN[0], SYN | ACK, b"", 0, 9);
            talk
        }

        #[allow(clippy::too_many_arguments)]
        fn raw(&mut self, by: End, seq: u32, ack: u32, flags: u8, payload: &[u8], cut: u32, window: u16) -> &mut Self {
            self.traced(by, seq, ack, flags, payload, cut, window, &mut Off)
        }

        #[allow(clippy::too_many_arguments)]
        fn traced<T: Trace>(
            &mut self,
            by: End,
            seq: u32,
            ack: u32,
            flags: u8,
            payload: &[u8],
            cut: u32,
            window: u16,
            t: &mut T,
        ) -> &mut Self {
            let ports = if by == End::A { (1, 2) } else { (2, 1) };
            let segment = Segment {
                src_port: ports.0,
                dst_port: ports.1,
                seq,
                ack,
                flags,
                window,
                payload,
                payload_length: payload.len() as u32 + cut,
                check: self.check,
                ..Segment::default()
            };
            self.now += 1_000_000;
            let at = At { frame: (self.now / 1_000_000) as u64, time: self.now };
            self.flow.segment(at, by, &segment, &self.options, t, &mut self.seen);
            self
        }

        /// The segment with these bytes of the stream of `by`.
        fn part(&mut self, by: End, from: usize, bytes: &[u8]) -> &mut Self {
            let (seq, ack) = (
                ISN[by.index()].wrapping_add(from as u32),
                ISN[by.peer().index()].wrapping_add(self.sent[by.peer().index()]),
            );
            self.sent[by.index()] = self.sent[by.index()].max((from + bytes.len()) as u32);
            self.raw(by, seq, ack, ACK, bytes, 0, 9)
        }

        /// All of a script in segments of `size` bytes.
        fn all(&mut self, by: End, script: &Script, size: usize) -> &mut Self {
            let start = self.sent[by.index()] as usize;
            for (n, part) in script.bytes[start..].chunks(size).enumerate() {
                self.part(by, start + n * size, part);
            }
            self
        }

        /// Request and Reply, then all of one script, then all of the other.
        fn both(&mut self, a: &Script, b: &Script, size: usize) -> &mut Self {
            for (by, script) in [(End::A, a), (End::B, b)] {
                for (n, part) in script.bytes[..20].chunks(size).enumerate() {
                    self.part(by, n * size, part);
                }
            }
            self.all(End::A, a, size).all(End::B, b, size)
        }

        fn check(&mut self, check: Check) -> &mut Self {
            self.check = check;
            self
        }

        /// Number of facts with this name.
        fn count(&self, name: &str) -> usize {
            self.seen.facts.iter().filter(|fact| *fact == name).count()
        }

        fn damaged(&self) -> u64 {
            self.flow.losses[0].as_ref().map_or(0, |losses| losses.damaged.count)
        }

        fn ack(&mut self, by: End, upto: usize) -> &mut Self {
            let (seq, ack) =
                (ISN[by.index()].wrapping_add(self.sent[by.index()]), ISN[by.peer().index()].wrapping_add(upto as u32));
            self.raw(by, seq, ack, ACK, b"", 0, 9)
        }
    }

    /// Both scripts after their handshake: `flags` of Request and Reply.
    fn opened(request: u8, reply: u8) -> (Script, Script) {
        let crc = (request | reply) & 0x40 != 0;
        let (mut a, mut b) = (Script::new(crc, reply & 0x80 != 0), Script::new(crc, request & 0x80 != 0));
        a.startup(false, request, b"");
        b.startup(true, reply, b"");
        (a, b)
    }

    /// One bit of the sequence number of a SYN is wrong where it was captured: what its peer acknowledges is the base.
    #[test]
    fn a_syn_with_a_wrong_checksum_is_no_base() {
        for wrong in End::BOTH {
            let (mut talk, mut other) = (Talk::late(), Talk::late());
            for (talk, damage) in [(&mut talk, 1 << 18), (&mut other, 0)] {
                for (by, ack, flags) in [(End::A, 0, SYN), (End::B, ISN[0], SYN | ACK)] {
                    let is_it = by == wrong && damage != 0;
                    talk.check = if is_it { Check::Bad } else { Check::Good };
                    let seq = ISN[by.index()].wrapping_sub(1);
                    talk.raw(by, if is_it { seq ^ damage } else { seq }, ack, flags, b"", 0, 9);
                }
                talk.check = Check::Good;
                talk.raw(End::A, ISN[0], ISN[1], ACK, b"", 0, 9);
                talk.part(End::A, 0, b"question").part(End::B, 0, b"answer").part(End::A, 8, b"more").part(
                    End::B,
                    6,
                    b"end",
                );
            }
            assert_eq!(talk.seen, other.seen, "{wrong:?}");
            assert!(End::BOTH.iter().all(|end| talk.flow.streams[end.index()].from_syn()));
        }
    }

    /// Where all checksums are wrong, they say nothing.
    #[test]
    fn a_syn_counts_where_all_checksums_are_wrong() {
        let mut talk = Talk::late();
        talk.check = Check::Bad;
        talk.raw(End::A, ISN[0].wrapping_sub(1), 0, SYN, b"", 0, 9);
        talk.raw(End::B, ISN[1].wrapping_sub(1), ISN[0], SYN | ACK, b"", 0, 9);
        talk.raw(End::A, ISN[0], ISN[1], ACK, b"", 0, 9);
        assert!(End::BOTH.iter().all(|end| talk.flow.streams[end.index()].from_syn()));
        talk.raw(End::B, ISN[1], ISN[0], RST | ACK, b"", 0, 9);
        assert!(talk.seen.facts.contains(&"Reset".into()), "{:?}", talk.seen.facts);
    }

    /// The port that has one direction begins to capture later than the other one: the acknowledgments of the peer show
    /// that.
    #[test]
    fn a_direction_that_was_captured_later_has_a_hole_at_its_beginning() {
        let facts = |missing: usize, is_late: bool| {
            let mut talk = Talk::late();
            if !is_late {
                talk.raw(End::A, ISN[0].wrapping_sub(1), 0, SYN, b"", 0, 9);
            }
            let words: &[&[u8]] = &[b"one", b"two", b"three"];
            talk.raw(End::A, ISN[0], ISN[1], ACK, b"", 0, 9);
            let mut from = 0;
            for (n, word) in words.iter().enumerate() {
                if n < missing {
                    talk.sent[1] += word.len() as u32;
                } else {
                    talk.part(End::B, from, word);
                }
                from += word.len();
                talk.part(End::A, n, b"?");
            }
            talk.seen
                .facts
                .iter()
                .filter(|fact| ["Gap", "BeganLate"].contains(&fact.as_str()))
                .cloned()
                .collect::<Vec<_>>()
        };
        assert_eq!([facts(0, false), facts(0, true)], [vec![], vec![]] as [Vec<String>; 2]);
        assert_eq!([facts(2, false), facts(2, true)], [vec!["Gap"], vec!["BeganLate"]]);
    }

    /// The capture has nothing of what a segment carried.
    #[test]
    fn a_segment_without_a_captured_byte_is_a_hole() {
        let mut talk = Talk::new();
        talk.part(End::A, 0, b"question");
        talk.raw(End::B, ISN[1], ISN[0].wrapping_add(8), ACK, b"", 100, 9);
        assert!(talk.seen.facts.contains(&"Cut".into()), "{:?}", talk.seen.facts);
    }

    #[test]
    fn a_reset_counts_if_it_is_undamaged_and_nothing_follows() {
        let facts = |check: Check, goes_on: bool| {
            let mut talk = Talk::late();
            talk.check = Check::Good;
            talk.raw(End::A, ISN[0].wrapping_sub(1), 0, SYN, b"", 0, 9);
            talk.raw(End::B, ISN[1].wrapping_sub(1), ISN[0], SYN | ACK, b"", 0, 9);
            talk.part(End::A, 0, b"question");
            talk.check = check;
            talk.raw(End::B, ISN[1], ISN[0].wrapping_add(8), RST | ACK, b"", 0, 9);
            talk.check = Check::Good;
            // what was under way to the end that reset it
            talk.part(End::A, 8, b"more");
            if goes_on {
                talk.now += 5_000_000;
                talk.part(End::B, 0, b"answer").part(End::A, 12, b"again");
            }
            let of = |name: &str| talk.seen.facts.iter().filter(|fact| *fact == name).count();
            (of("Reset"), of("Resumed"))
        };
        assert_eq!((facts(Check::Good, false), facts(Check::Good, true)), ((1, 0), (1, 1)));
        assert_eq!((facts(Check::Bad, false), facts(Check::Bad, true)), ((0, 0), (0, 0)));
    }

    #[test]
    fn a_conversation_with_every_verb() {
        let (mut a, mut b) = opened(0x40, 0x40);
        a.send("hello").read((0x51, 0x100), (0x52, 0x2000), 10).queued(Opcode::SEND_INVALIDATE, b"bye", 9);
        b.write(0x53, 0x9000, b"0123456789", 4, Opcode::WRITE).write(
            0x51,
            0x100,
            b"abcdefghij",
            6,
            Opcode::READ_RESPONSE,
        );
        b.queued(Opcode::SEND_SE, b"long message", 5);
        let mut talk = Talk::new();
        talk.both(&a, &b, 1400);
        assert_eq!(
            talk.seen.ops[0],
            ["Send Only @0 hello of 5", "ReadRequest Only 52:2000  of 10 #1", "SendInvalidate Only @0 bye of 3 !77"]
        );
        assert_eq!(
            talk.seen.ops[1],
            [
                "Write First 53:9000 0123",
                "Write Middle 53:9004 4567",
                "Write Last 53:9008 89",
                "ReadResponse First 52:2000 abcdef of 10 #1",
                "ReadResponse Last 52:2006 ghij of 10 #1",
                "Send First @0 long ",
                "Send Middle @5 messa",
                "Send Last @10 ge of 12",
            ]
        );
        assert_eq!(talk.seen.facts, ["MpaRequest", "MpaReply"]);
        assert_eq!(
            (talk.flow.verdict(), talk.flow.initiator(), talk.flow.found(End::A)),
            (Recognition::Mpa, Some(End::A), Some(Evidence::Handshake))
        );
    }

    #[test]
    fn an_idle_connection_is_small() {
        let (mut a, b) = opened(0, 0);
        a.send("hello");
        let mut talk = Talk::new();
        talk.both(&a, &b, 30);
        talk.flow.trim();
        assert!(talk.flow.memory() <= 2816, "{}", talk.flow.memory());
    }

    #[test]
    fn a_stream_may_be_cut_at_every_byte() {
        for flags in [0x00, 0x40, 0x80, 0xc0] {
            let (mut a, mut b) = opened(flags, flags);
            a.send("first").send(&"second ".repeat(99)).read((1, 2), (3, 4), 5);
            b.write(1, 2, b"12345", 3, Opcode::READ_RESPONSE).send(&"x".repeat(1500));
            let mut whole = Talk::new();
            whole.both(&a, &b, 9999);
            assert_eq!(
                whole.seen.ops.iter().map(Vec::len).collect::<Vec<_>>(),
                [3, 3],
                "{flags:x}: {:?}",
                whole.seen.facts
            );
            for size in 1..40 {
                let mut cut = Talk::new();
                cut.both(&a, &b, size);
                assert_eq!(cut.seen, whole.seen, "{flags:x} in segments of {size}");
            }
            for at in 20..a.bytes.len() {
                let mut cut = Talk::new();
                cut.part(End::A, 0, &a.bytes[..at.min(20)]).part(End::B, 0, &b.bytes[..20]);
                cut.part(End::A, at.min(20), &a.bytes[at.min(20)..at]).part(End::A, at, &a.bytes[at..]).all(
                    End::B,
                    &b,
                    9999,
                );
                assert_eq!(cut.seen, whole.seen, "{flags:x} cut at {at}");
            }
        }
    }

    #[test]
    fn markers_go_only_where_they_were_asked_for() {
        // the initiator wants them: only the responder sends them
        let (mut a, mut b) = opened(0x80, 0x00);
        a.send(&"a".repeat(1200));
        b.send(&"b".repeat(1200));
        let mut talk = Talk::new();
        talk.both(&a, &b, 700);
        assert_eq!((talk.seen.ops[0].len(), talk.seen.ops[1].len(), talk.seen.facts.len()), (1, 1, 2));
        // a marker that points elsewhere
        let (at, _) = b.bytes.iter().enumerate().skip(100).find(|(n, _)| (n - 20) % 512 == 2 && *n > 500).unwrap();
        b.bytes[at] ^= 1;
        let mut talk = Talk::new();
        talk.both(&a, &b, 700);
        assert_eq!((talk.seen.ops[1].len(), &talk.seen.facts[2..]), (1, &["MarkerBad".to_string()][..]));
    }

    #[test]
    fn framing_with_markers_survives_a_gap() {
        let (a, mut b) = opened(0xc0, 0x40);
        for n in 0..40 {
            b.send(&format!("{n:02}").repeat(97));
        }
        let mut talk = Talk::new();
        talk.all(End::A, &a, 20)
            .part(End::B, 0, &b.bytes[..1500])
            .part(End::B, 2100, &b.bytes[2100..])
            .ack(End::A, b.bytes.len());
        assert!(talk.seen.facts.contains(&"Gap".to_string()) && talk.seen.facts.contains(&"Resync".to_string()));
        assert!(!talk.seen.facts.iter().any(|f| f == "CrcBad" || f == "MarkerBad"), "{:?}", talk.seen.facts);
        assert!(
            talk.seen.ops[1].len() >= 35 && talk.seen.ops[1].last().unwrap().contains("3939"),
            "{:?}",
            talk.seen.ops[1]
        );
    }

    #[test]
    fn a_reject_and_a_reset() {
        let (a, mut b) = opened(0, 0);
        b.bytes[16] = 0x20;
        let mut talk = Talk::new();
        talk.both(&a, &b, 99).raw(End::B, 0, 0, RST, b"", 0, 0).raw(End::B, 0, 0, RST, b"", 0, 0);
        assert_eq!(talk.seen.facts, ["MpaRequest", "MpaReply", "Reset", "MayBeCopies"]);
        assert_eq!(talk.flow.counts(End::B).resets, 2);
    }

    #[test]
    fn bytes_that_are_not_mpa_are_reported_as_such() {
        let smb = b"\0\0\0\x44\xfeSMB and more of it";
        for late in [false, true] {
            let mut talk = if late { Talk::late() } else { Talk::new() };
            talk.part(End::A, 0, smb).part(End::B, 0, smb).part(End::A, smb.len(), b"on");
            assert_eq!((talk.flow.verdict(), &talk.seen.bytes[1][..]), (Recognition::NotMpa, &smb[..]), "late: {late}");
            assert_eq!(talk.seen.bytes[0], [&smb[..], b"on"].concat());
        }
        // a banner that begins like an MPA frame, byte by byte
        let mut talk = Talk::new();
        for (n, b) in b"MPA ID of mine: 12345".iter().enumerate() {
            talk.part(End::A, n, &[*b]);
        }
        assert_eq!(
            (talk.flow.verdict(), &talk.seen.bytes[0][..]),
            (Recognition::NotMpa, &b"MPA ID of mine: 12345"[..])
        );
        // noise that goes on
        let mut talk = Talk::late();
        let noise: Vec<u8> = (0..1400u32).map(|n| (n.wrapping_mul(2_654_435_761) >> 13) as u8).collect();
        for n in 0..200 {
            talk.part(End::A, n * noise.len(), &noise);
        }
        assert_eq!((talk.flow.verdict(), talk.seen.bytes[0].len()), (Recognition::NotMpa, 200 * noise.len()));
    }

    #[test]
    fn framing_is_found_without_the_handshake() {
        for crc in [true, false] {
            // from the first byte of the connection, and from the middle of an FPDU
            for (from, late) in [(20, false), (20, true), (51, true)] {
                let (mut a, mut b) = opened(if crc { 0x40 } else { 0 }, 0);
                for n in 0..6 {
                    a.send(&format!("message {n}"));
                    b.write(9, 100 * n, &[b'w'; 100], 200, Opcode::WRITE);
                }
                let mut talk = if late { Talk::late() } else { Talk::new() };
                a.bytes.drain(..from);
                b.bytes.drain(..20);
                talk.all(End::A, &a, 40).all(End::B, &b, 126);
                let expected = if crc { Evidence::Crc } else { Evidence::Shape };
                assert_eq!(
                    (talk.flow.found(End::A), talk.flow.found(End::B)),
                    (Some(expected), Some(expected)),
                    "{crc} {from} {late} {:?}",
                    talk.seen
                );
                assert_eq!(talk.seen.ops[0].len() + usize::from(from == 51), 6, "{crc} {from} {late}: {:?}", talk.seen);
                assert_eq!((talk.seen.ops[1].len(), &talk.seen.bytes), (6, &[vec![], vec![]]));
                assert!(talk.seen.facts.iter().all(|f| f == "Resync"), "{:?}", talk.seen.facts);
            }
        }
    }

    #[test]
    fn what_the_capture_lost_is_skipped_and_what_the_wire_lost_is_waited_for() {
        for flags in [0x00, 0x40] {
            let (mut a, b) = opened(flags, 0);
            for n in 0..9 {
                a.send(&format!("message {n}"));
            }
            let size = (a.bytes.len() - 20) / 9;
            let at = |n: usize| 20 + n * size;
            let mut talk = Talk::new();
            talk.part(End::A, 0, &a.bytes[..20]).all(End::B, &b, 99);
            let open = |talk: &mut Talk| {
                talk.part(End::A, 20, &a.bytes[20..at(2)]).part(End::A, at(3), &a.bytes[at(3)..]).seen.ops[0].len()
            };
            assert_eq!(open(&mut talk), 2);
            talk.now += 200_000_000;
            talk.part(End::A, at(2), &a.bytes[at(2)..at(3)]);
            assert_eq!(
                (talk.seen.ops[0].len(), talk.seen.facts.last().map(String::as_str)),
                (9, Some("Retransmission"))
            );

            let mut talk = Talk::new();
            talk.part(End::A, 0, &a.bytes[..20]).all(End::B, &b, 99);
            open(&mut talk);
            talk.ack(End::B, a.bytes.len());
            assert_eq!(
                (talk.seen.ops[0].len(), &talk.seen.facts[2..]),
                (8, &["Gap", "Cut", "Resync"].map(String::from)[..])
            );
            assert!(talk.seen.ops[0].last().unwrap().contains("message 8"));
        }
    }

    #[test]
    fn a_capture_of_one_direction_does_not_wait_for_ever() {
        let mut a = Script::new(true, false);
        for n in 0..40 {
            a.send(&format!("{n:03}").repeat(3000));
        }
        let mut talk = Talk::late();
        let skip = a.bytes.len() / 80;
        talk.part(End::A, 0, &a.bytes[..skip]);
        for (n, part) in a.bytes[2 * skip..].chunks(8000).enumerate() {
            talk.part(End::A, 2 * skip + n * 8000, part);
        }
        assert!(talk.flow.memory() < 400_000);
        let at = At::default();
        talk.flow.finish(at, &talk.options.clone(), &mut Off, &mut talk.seen);
        assert!(
            talk.seen.ops[0].len() >= 37 && talk.seen.facts.contains(&"Gap".to_string()),
            "{} {:?}",
            talk.seen.ops[0].len(),
            talk.seen.facts
        );
    }

    #[test]
    fn cut_frames_keep_their_headers() {
        for flags in [0x00, 0x40, 0x80] {
            let (mut a, mut b) = opened(flags, 0);
            a.send("small");
            b.write(7, 0x1000, &[b'x'; 3000], 1000, Opcode::WRITE).send("the end");
            let mut talk = Talk::new();
            talk.all(End::A, &a, 999).all(End::B, &Script { bytes: b.bytes[..20].to_vec(), ..Script::default() }, 99);
            let mut at = 20;
            while at < b.bytes.len() {
                let segment = &b.bytes[at..(at + 700).min(b.bytes.len())];
                let kept = segment.len().min(300);
                let seq = ISN[1].wrapping_add(at as u32);
                talk.raw(End::B, seq, ISN[0], ACK, &segment[..kept], (segment.len() - kept) as u32, 9);
                at += segment.len();
            }
            let cut: Vec<_> = talk.seen.ops[1].iter().filter(|o| o.ends_with("cut")).collect();
            assert!(cut.len() == 1 && cut[0].starts_with("Write First 7:1000 xxx"), "{flags:x} {:?}", talk.seen);
        }
        // whole FPDUs in cut frames lose nothing but data, and are read in place
        let (a, mut b) = opened(0x40, 0);
        b.bytes.truncate(20);
        let mut talk = Talk::new();
        talk.both(&a, &b, 999);
        for n in 0..3 {
            let mut one = Script::new(true, false);
            one.write(7, 1000 * n, &[b'x'; 1000], 1000, Opcode::WRITE);
            let seq = ISN[1].wrapping_add(20 + n as u32 * one.bytes.len() as u32);
            let mut tree = Tree::new();
            tree.begin(&one.bytes[..100]);
            talk.traced(End::B, seq, ISN[0], ACK, &one.bytes[..100], one.bytes.len() as u32 - 100, 9, &mut tree);
            assert_eq!((tree.number("iwarp_ddp.tagged_offset"), tree.sources().len()), (Some(1000 * n), 1));
        }
        assert_eq!((talk.seen.ops[1].len(), talk.seen.facts.len()), (3, 2));
    }

    #[test]
    fn a_wrong_crc_and_a_length_that_lies() {
        let (mut a, b) = opened(0x40, 0);
        a.send("one").send("two").send("three");
        a.bytes[20 + 20] ^= 1;
        let mut talk = Talk::new();
        talk.all(End::B, &b, 99).all(End::A, &a, 9999);
        assert_eq!((talk.seen.ops[0].len(), talk.seen.facts.last().map(String::as_str)), (3, Some("CrcBad")));
        for flags in [0x00, 0x40] {
            let (mut a, b) = opened(flags, 0);
            for n in 0..5 {
                a.send(&format!("message {n} {}", "m".repeat(40)));
            }
            a.bytes[21] += 8;
            let mut talk = Talk::new();
            talk.part(End::A, 0, &a.bytes[..20]).all(End::B, &b, 99).all(End::A, &a, 90);
            assert!(talk.seen.facts.contains(&"Resync".to_string()), "{flags:x} {:?}", talk.seen);
            assert!(
                talk.seen.ops[0].len() >= 3 && talk.seen.ops[0].last().unwrap().contains("message 4"),
                "{:?}",
                talk.seen.ops[0]
            );
        }
    }

    #[test]
    fn message_numbers_segments_and_responses_that_break_the_rules() {
        let (mut a, mut b) = opened(0, 0);
        a.segment(&untagged(Opcode::SEND, true, 1, 0, 0, b"one"));
        a.segment(&untagged(Opcode::SEND, true, 3, 0, 0, b"three"));
        a.segment(&untagged(Opcode::SEND, true, 1, 0, 0, b"again"));
        a.segment(&untagged(Opcode::SEND, false, 4, 0, 0, b"hole"));
        a.segment(&untagged(Opcode::SEND, false, 4, 6, 0, b"overlap"));
        a.segment(&untagged(Opcode::SEND, true, 4, 7, 0, b"end"));
        b.write(9, 9, b"nobody asked", 99, Opcode::READ_RESPONSE);
        b.segment(&Ddp { control: Control { flags: 0x42 }, ..untagged(Opcode::SEND, true, 1, 0, 0, b"version 2") });
        b.segment(&untagged(Opcode::SEND, true, 2, 0, 0, b"good"));
        b.segment(&untagged(Opcode(0xe), true, 1, 0, 0, b"opcode"));
        b.segment(&untagged(Opcode::SEND, true, 3, 0, 0, b"good"));
        let mut talk = Talk::new();
        talk.both(&a, &b, 9999);
        let facts = [
            "MpaRequest",
            "MpaReply",
            "MsnGap",
            "MsnRepeat",
            "SegmentHole",
            "SegmentOverlap",
            "ReadUnknown",
            "Undefined",
            "Undefined",
        ];
        assert_eq!(talk.seen.facts, facts);
        assert_eq!(
            talk.seen.ops[1],
            [
                "ReadResponse Last ? nobody asked",
                "Send Only @0 version 2 of 9",
                "Send Only @0 good of 4",
                "Send Only @0 good of 4"
            ]
        );
    }

    #[test]
    fn a_terminate_is_reported_with_its_reason() {
        let (a, mut b) = opened(0, 0);
        let terminate =
            Terminate { layer: 2, error_type: 0, code: 2, segment_length: None, ddp: None, read_request: None };
        let mut payload = Vec::new();
        terminate.emit(&mut payload);
        b.queued(Opcode::TERMINATE, &payload, 99);
        let mut talk = Talk::new();
        talk.both(&a, &b, 99);
        assert_eq!((talk.seen.facts.last().map(String::as_str), talk.seen.ops[1].len()), (Some("Terminate"), 1));
    }

    #[test]
    fn windows_that_close_and_ports_that_are_used_again() {
        let (a, b) = opened(0, 0);
        let mut talk = Talk::new();
        talk.both(&a, &b, 99);
        talk.raw(End::B, ISN[1].wrapping_add(20), ISN[0], ACK, b"", 0, 0).raw(
            End::B,
            ISN[1].wrapping_add(20),
            ISN[0],
            ACK,
            b"",
            0,
            0,
        );
        assert!(talk.flow.zero_window_since(End::B).is_some());
        talk.raw(End::B, ISN[1].wrapping_add(20), ISN[0], ACK, b"", 0, 7);
        assert_eq!(
            (talk.seen.facts.last().map(String::as_str), talk.flow.counts(End::B).zero_windows),
            (Some("ZeroWindow"), 1)
        );
        // the same SYN again is nothing, another one is another connection
        talk.raw(End::A, ISN[0].wrapping_sub(1), 0, SYN, b"", 0, 9);
        assert_eq!(talk.flow.verdict(), Recognition::Mpa);
        talk.raw(End::A, 77, 0, SYN, b"", 0, 9);
        assert_eq!(
            (talk.seen.facts.last().map(String::as_str), talk.flow.verdict()),
            (Some("Reopened"), Recognition::Undecided)
        );
    }

    #[test]
    fn fields_lie_in_the_frame_or_in_a_source_of_their_own() {
        let (mut a, b) = opened(0, 0);
        a.send("first").send("second");
        let mut talk = Talk::new();
        talk.part(End::A, 0, &a.bytes[..20]).all(End::B, &b, 99);
        let (first, rest) = a.bytes[20..].split_at(40);
        let (mut frame, mut tree) = (b"header".to_vec(), Tree::new());
        frame.extend_from_slice(first);
        tree.begin(&frame);
        talk.traced(End::A, ISN[0].wrapping_add(20), ISN[1], ACK, &frame[6..], 0, 9, &mut tree);
        let msn = tree.all("iwarp_ddp.msn").next().unwrap();
        assert_eq!((msn.source, msn.offset, tree.covered(msn)), (0, 6 + 12, &[0, 0, 0, 1][..]));
        assert_eq!(tree.protocol, "DDP/RDMA");
        tree.begin(rest);
        talk.traced(End::A, ISN[0].wrapping_add(60), ISN[1], ACK, rest, 0, 9, &mut tree);
        let msn = tree.all("iwarp_ddp.msn").next().unwrap();
        assert_eq!(
            (tree.sources()[usize::from(msn.source)].name, tree.covered(msn)),
            ("Reassembled FPDU", &[0, 0, 0, 2][..])
        );
        assert!(tree.faults.is_empty());
    }

    /// A message of a script.
    #[derive(Clone, Debug)]
    enum Message {
        Send(usize, usize),
        Write(usize, usize),
        Read(usize),
    }

    #[test]
    fn a_damaged_segment_that_is_acknowledged_was_taken_unless_checksums_are_trusted() {
        let taken = |good: u32, sound: bool, acknowledged: usize| {
            let mut talk = Talk::new();
            (talk.flow.checked_good[0], talk.flow.sound[0]) = (good, sound);
            talk.check(Check::Bad).part(End::A, 0, b"0123456789");
            assert_eq!((talk.damaged(), talk.flow.unconfirmed[0].len(), talk.flow.counts(End::A).bytes), (1, 1, 0));
            talk.check(Check::Unchecked).ack(End::B, acknowledged);
            assert_eq!(talk.count("Doubtful") as u32, talk.flow.taken_bad[0]);
            (talk.flow.taken_bad[0], talk.damaged(), talk.flow.unconfirmed[0].len(), talk.flow.counts(End::A).bytes)
        };
        assert_eq!(taken(CHECKSUM_TRUSTED - 1, false, 10), (1, 0, 0, 10));
        assert_eq!(taken(CHECKSUM_TRUSTED, false, 10), (0, 1, 0, 0));
        assert_eq!(taken(1, true, 10), (0, 1, 0, 0));
        assert_eq!(taken(1, false, 9), (0, 1, 1, 0), "not yet");
        assert_eq!(taken(1, false, 11), (1, 0, 0, 10));
        // what came again was dropped
        let mut talk = Talk::new();
        talk.flow.checked_good[0] = 1;
        talk.check(Check::Bad).part(End::A, 0, b"0123456789");
        talk.now += COPY_MAX;
        talk.check(Check::Good).part(End::A, 0, b"0123456789").ack(End::B, 10);
        assert_eq!((talk.flow.taken_bad[0], talk.damaged(), talk.flow.counts(End::A).bytes), (0, 1, 10));
        assert_eq!(talk.flow.unconfirmed[0].len(), 0);
        let fate = |talk: &Talk| talk.flow.losses[0].as_ref().map(|l| [l.damaged_dropped.count, l.damaged_taken.count]);
        assert_eq!((fate(&talk), talk.count("Mended")), (Some([1, 0]), 1), "its sender had to find out");
        // acknowledged without coming again: the receiver had it, and the capture has lost nothing
        let mut talk = Talk::new();
        talk.flow.sound[0] = true;
        talk.check(Check::Bad).part(End::A, 0, b"0123456789");
        talk.check(Check::Good).ack(End::B, 10).part(End::A, 10, b"0123456789").ack(End::B, 20);
        assert_eq!((fate(&talk), talk.count("Gap"), talk.count("Dropped")), (Some([0, 1]), 0, 1));
        // it comes again all the same: nothing shows if the first was taken
        talk.part(End::A, 0, b"0123456789");
        assert_eq!(fate(&talk), Some([0, 0]));
    }

    #[test]
    fn how_many_damaged_segments_say_that_checksums_mean_nothing() {
        let mut flow = TcpFlow::new();
        assert!(!flow.is_dropped(End::A), "no checksum was right so far");
        flow.checked_good[0] = 1;
        let dropped = [0, TAKEN_BAD_MAX - 1, TAKEN_BAD_MAX].map(|taken| {
            flow.taken_bad[0] = taken;
            flow.is_dropped(End::A)
        });
        let doubted = [0, BAD_MAX - 1, BAD_MAX].map(|bad| {
            flow.bad[0] = bad;
            flow.is_doubted(End::A)
        });
        assert_eq!((dropped, doubted), ([true, true, false], [true, true, false]));
        flow.sound[1] = true;
        assert!(flow.is_dropped(End::B));
        // so many are remembered
        let mut talk = Talk::new();
        talk.flow.checked_good[0] = 1;
        talk.check(Check::Bad);
        (0..=UNCONFIRMED_MAX).for_each(|n| _ = talk.part(End::A, n, b"x"));
        assert_eq!((talk.damaged(), talk.flow.unconfirmed[0].len()), (UNCONFIRMED_MAX as u64 + 1, UNCONFIRMED_MAX));
    }

    #[test]
    fn facts_are_doubtful_until_the_bytes_that_may_be_damaged_are_through() {
        let doubtful = |parts: &[(usize, Check)]| {
            let mut talk = Talk::new();
            for (from, check) in parts {
                talk.check(*check).part(End::A, *from, b"0123456789");
            }
            (talk.count("Doubtful"), talk.flow.doubtful[0].is_some())
        };
        let (bad, plain) = (Check::Bad, Check::Unchecked);
        assert_eq!(doubtful(&[(0, plain), (10, plain)]), (0, false));
        assert_eq!(doubtful(&[(0, bad)]), (1, true));
        assert_eq!(doubtful(&[(0, bad), (10, plain)]), (1, false));
        // held back, they come out with what was missing
        assert_eq!(doubtful(&[(10, bad), (0, plain)]), (2, true));
        assert_eq!(doubtful(&[(10, bad), (0, plain), (20, plain)]), (2, false));
        assert_eq!(doubtful(&[(20, bad), (10, bad), (0, plain)]), (3, true));
        assert_eq!(doubtful(&[(20, bad), (10, bad), (0, plain), (30, plain)]), (3, false));
        // all are wrong: they are captured before they are written
        let all: Vec<_> = (0..=BAD_MAX as usize).map(|n| (10 * n, bad)).collect();
        assert_eq!(doubtful(&all), (BAD_MAX as usize, false));
    }

    #[test]
    fn a_segment_that_was_missing_was_lost_if_it_had_not_come_damaged() {
        let told = |is_damaged: bool, ms: i64| {
            let mut talk = Talk::new();
            talk.flow.checked_good[0] = 1;
            talk.part(End::A, 0, b"0123456789");
            if is_damaged {
                talk.check(Check::Bad).part(End::A, 10, b"0123456789").check(Check::Unchecked);
            }
            talk.part(End::A, 20, b"0123456789");
            talk.now += (ms - 1) * 1_000_000;
            talk.part(End::A, 10, b"0123456789");
            let losses = talk.flow.losses[0].as_deref().cloned().unwrap_or_default();
            (losses.lost_before.count, losses.unclear.count, losses.damaged.count)
        };
        assert_eq!([told(false, 300), told(true, 300)], [(1, 0, 0), (0, 0, 1)]);
        // so soon it may have been overtaken
        assert_eq!([told(false, 10), told(true, 10)], [(0, 1, 0), (0, 0, 1)]);
    }

    #[test]
    fn who_opened_the_connection() {
        let opened = |by: End, flags: u8| {
            let mut talk = Talk::late();
            talk.raw(by, 77, 0, flags, b"", 0, 9);
            (talk.flow.initiator(), talk.flow.syn_at[by.index()].is_some())
        };
        assert_eq!([opened(End::A, SYN), opened(End::B, SYN)], [(Some(End::A), true), (Some(End::B), true)]);
        assert_eq!(
            [opened(End::A, SYN | ACK), opened(End::B, SYN | ACK)],
            [(Some(End::B), false), (Some(End::A), false)]
        );
        assert_eq!(Talk::new().flow.round_trip, [None, Some(1_000_000)]);
        // a damaged SYN opens nothing
        let mut talk = Talk::new();
        talk.flow.checked_good[0] = 1;
        let reopened = [Check::Bad, Check::Good, Check::Unchecked].map(|check| {
            let segment = Segment { seq: 77, flags: SYN, check, ..Segment::default() };
            talk.flow.is_reopened_by(End::A, &segment)
        });
        assert_eq!(reopened, [false, true, true]);
        let segment = |seq: u32, flags: u8| Segment { seq, flags, ..Segment::default() };
        let again = ISN[0].wrapping_sub(1);
        let told = [segment(again, SYN), segment(77, SYN | RST), segment(77, ACK)]
            .map(|s| talk.flow.is_reopened_by(End::A, &s));
        assert_eq!(told, [false; 3]);
        // a window is closed by an acknowledgment that ends nothing
        let closed = |flags: u8| {
            let mut talk = Talk::new();
            talk.raw(End::B, ISN[1], ISN[0], flags, b"", 0, 0);
            talk.flow.zero_window_since(End::B).is_some()
        };
        assert_eq!([closed(ACK), closed(0), closed(ACK | FIN)], [true, false, false]);
    }

    #[test]
    fn what_stands_in_the_capture_for_the_third_time() {
        let mut talk = Talk::new();
        let thrice = [0, 1, 2, 3].map(|_| {
            talk.part(End::A, 0, b"0123456789");
            talk.flow.thrice.as_deref().map_or(0, |thrice| thrice[0].count)
        });
        assert_eq!(thrice, [0, 0, 1, 2]);
    }

    #[test]
    fn a_syn_behind_its_acknowledgment_stands_in_the_wrong_place() {
        let misplaced = |ack: u32| {
            let mut talk = Talk::late();
            talk.raw(End::B, 1, ack, ACK, b"", 0, 9).raw(End::A, ISN[0].wrapping_sub(1), 0, SYN, b"", 0, 9);
            talk.count("Misplaced")
        };
        assert_eq!([ISN[0].wrapping_sub(1), ISN[0], ISN[0].wrapping_add(1)].map(misplaced), [0, 1, 1]);
    }

    #[test]
    fn without_the_clock_that_was_cut_off_nobody_waited_for_an_acknowledgment() {
        let nagle = |are_options_cut: bool, timestamps: Option<(u32, u32)>| {
            let mut talk = Talk::new();
            let mut pass = |ns: i64, by: End, seq: u32, payload_length: u32| {
                let [seq, ack] =
                    if by == End::A { [ISN[0].wrapping_add(seq), ISN[1]] } else { [ISN[1], ISN[0].wrapping_add(seq)] };
                let segment = Segment {
                    flags: ACK,
                    window: 9,
                    seq,
                    ack,
                    payload_length,
                    are_options_cut,
                    timestamps,
                    ..Segment::default()
                };
                talk.now += ns;
                let at = At { frame: 9, time: talk.now };
                talk.flow.segment(at, by, &segment, &talk.options, &mut Off, &mut talk.seen);
            };
            pass(1000, End::A, 0, 10);
            pass(40_000_000, End::B, 10, 0);
            pass(100_000, End::A, 10, 10);
            talk.flow.losses[0].as_deref().map_or(0, |losses| losses.nagle.count)
        };
        assert_eq!([nagle(false, None), nagle(true, None), nagle(true, Some((7, 7)))], [1, 0, 1]);
    }

    #[test]
    fn a_length_of_nothing_before_a_header_is_too_short() {
        let short = |change: fn(&mut Vec<u8>)| {
            let (mut a, b) = opened(0, 0);
            a.send("one").send("two");
            let mut fpdu = Script::new(false, false);
            fpdu.msn = a.msn;
            change(&mut fpdu.send("three").bytes);
            a.msn = fpdu.msn;
            a.bytes.extend(fpdu.bytes);
            a.send("four").send("five");
            let mut talk = Talk::new();
            talk.both(&a, &b, 1400);
            talk.count("DdpShort")
        };
        assert_eq!(short(|_| ()), 0);
        assert_eq!(short(|fpdu| fpdu[..2].copy_from_slice(&[0, 0])), 1);
        // one that has nothing
        assert_eq!(short(|fpdu| *fpdu = vec![0; 8]), 0);
    }

    #[test]
    fn numbers_and_offsets_of_a_queue() {
        // queue, number, offset, length, last: what is told, and if a message begins
        let follow = |segments: &[(u32, u32, u32, u32, bool)]| {
            let mut half = Half { queues: [Queue { known: true, ..Queue::default() }; 4], ..Half::default() };
            let mut told = Vec::new();
            for (queue, msn, offset, length, last) in segments {
                let b = Untagged { queue: *queue, msn: *msn, offset: *offset };
                let mut facts = Vec::new();
                let taken = half.untagged(b, *length, *last, &mut |fact| {
                    facts.push(match fact {
                        FlowFact::MsnGap { expected, got, .. } => ("gap", u64::from(expected), u64::from(got)),
                        FlowFact::MsnRepeat { expected, got, .. } => ("repeat", expected.into(), got.into()),
                        FlowFact::SegmentHole { expected, got } => ("hole", expected, got),
                        FlowFact::SegmentOverlap { expected, got } => ("overlap", expected, got),
                        _ => ("other", 0, 0),
                    });
                });
                told.push((taken == Some(true), facts));
            }
            told.pop().unwrap_or_default()
        };
        let first = (0, 1, 0, 5, false);
        assert_eq!(follow(&[first]), (true, vec![]));
        assert_eq!(follow(&[first, (0, 1, 5, 5, true)]), (false, vec![]));
        assert_eq!(follow(&[first, (0, 1, 4, 5, true)]), (false, vec![("overlap", 5, 4)]));
        assert_eq!(follow(&[first, (0, 1, 6, 5, true)]), (false, vec![("hole", 5, 6)]));
        assert_eq!(follow(&[first, (0, 1, 0, 5, true)]), (true, vec![("overlap", 5, 0)]));
        assert_eq!(
            follow(&[first, (0, 2, 0, 5, true)]),
            (true, vec![("hole", 5, 0)]),
            "the rest of the one before did not come"
        );
        assert_eq!(follow(&[first, (0, 1, 5, 5, true), (0, 2, 0, 1, true)]), (true, vec![]));
        let whole = (0, 1, 0, 5, true);
        assert_eq!(follow(&[whole, (0, 2, 3, 5, true)]), (false, vec![("hole", 0, 3)]));
        assert_eq!(follow(&[whole, (0, 3, 0, 5, true)]), (false, vec![("gap", 2, 3)]), "refused");
        assert_eq!(follow(&[whole, (0, 3, 0, 5, false), (0, 3, 5, 5, true)]), (false, vec![]), "so is the rest of it");
        assert_eq!(follow(&[whole, (0, 3, 0, 5, true), (0, 4, 0, 5, true)]), (true, vec![]));
        assert_eq!(follow(&[whole, (0, 1, 0, 5, true)]), (false, vec![("repeat", 2, 1)]), "refused");
        assert_eq!(follow(&[whole, (0, 1, 0, 5, true), (0, 2, 0, 5, true)]), (true, vec![]), "the count stays");
        // one wrong number: those behind it are counted as if it had been right, or had not come
        let outlier = (0, 80, 0, 5, true);
        assert_eq!(follow(&[whole, outlier]), (false, vec![("gap", 2, 80)]));
        assert_eq!(follow(&[whole, outlier, (0, 3, 0, 5, true)]), (true, vec![]));
        assert_eq!(follow(&[whole, outlier, (0, 2, 0, 5, true), (0, 3, 0, 5, true)]), (true, vec![]));
        assert_eq!(follow(&[whole, outlier, (0, 3, 0, 5, true), (0, 5, 0, 5, true)]), (false, vec![("gap", 4, 5)]));
        assert_eq!(follow(&[whole, (0, 1, 0, 5, true), (0, 3, 0, 5, true)]), (true, vec![]));
        let next = (0, 81, 0, 5, true);
        assert_eq!(follow(&[whole, outlier, next, (0, 4, 0, 5, true)]), (true, vec![]), "two wrong ones");
        assert_eq!(follow(&[whole, (1, 2, 0, 5, true)]), (false, vec![("gap", 1, 2)]), "another queue");
        assert_eq!(follow(&[whole, (1, 2, 0, 5, true), (0, 3, 0, 5, true)]), (true, vec![]));
        // each queue by itself; one that does not exist is not followed
        assert_eq!(follow(&[whole, (1, 1, 0, 5, true)]), (true, vec![]));
        assert_eq!([follow(&[(4, 9, 0, 5, true)]), follow(&[(4, 9, 1, 5, true)])], [(true, vec![]), (false, vec![])]);
    }

    #[test]
    fn segments_of_writes_follow_each_other() {
        let facts = |segments: &[(u32, u64, bool)]| {
            let mut messages = Messages::default();
            let mut told = Vec::new();
            let begins: Vec<bool> = segments
                .iter()
                .map(|(stag, offset, last)| {
                    messages.write(End::A, Tagged { stag: *stag, offset: *offset }, 10, *last, &mut |fact| {
                        told.push(matches!(fact, FlowFact::SegmentHole { .. }));
                    })
                })
                .collect();
            (begins, told)
        };
        assert_eq!(
            facts(&[(1, 0, false), (1, 10, false), (1, 20, true), (1, 50, true)]),
            (vec![true, false, false, true], vec![])
        );
        assert_eq!(facts(&[(1, 0, false), (1, 11, true)]), (vec![true, false], vec![true]));
        assert_eq!(facts(&[(1, 0, false), (1, 9, true)]), (vec![true, false], vec![false]));
        assert_eq!(facts(&[(1, 0, false), (2, 10, true)]), (vec![true, true], vec![false]), "another message");
    }

    #[test]
    fn responses_belong_to_the_read_whose_sink_they_are_in() {
        let response = |offset: u64| {
            let (mut a, mut b) = opened(0, 0);
            a.read((0x51, 0x100), (0x52, 0x2000), 10);
            b.segment(&tagged(Opcode::READ_RESPONSE, true, 0x51, offset, b"abc"));
            let mut talk = Talk::new();
            talk.both(&a, &b, 1400);
            (talk.count("ReadUnknown"), talk.count("SegmentHole"), talk.count("SegmentOverlap"))
        };
        assert_eq!([response(0x100), response(0xff), response(0x101)], [(0, 0, 0), (1, 0, 0), (0, 1, 0)]);
        assert_eq!([response(0x10a), response(0x10b)], [(0, 1, 0), (1, 0, 0)]);
        // two into one buffer, the first of which is not captured: neither is longer or shorter than was asked for
        let two = |is_seen: bool| {
            let (mut a, mut b) = opened(0, 0);
            a.read((0x51, 0), (0x52, 0), 3).read((0x51, 3), (0x52, 3), 5);
            b.send("one");
            let from = b.bytes.len();
            b.segment(&tagged(Opcode::READ_RESPONSE, true, 0x51, 0, b"abc"));
            let to = b.bytes.len();
            b.segment(&tagged(Opcode::READ_RESPONSE, true, 0x51, 3, b"defgh")).send("two").send("three");
            let mut talk = Talk::new();
            talk.part(End::A, 0, &a.bytes).part(End::B, 0, &b.bytes[..from]);
            if is_seen {
                talk.part(End::B, from, &b.bytes[from..to]);
            }
            talk.ack(End::A, b.bytes.len()).part(End::B, to, &b.bytes[to..]);
            (talk.count("Gap"), talk.count("ReadLonger"), talk.count("ReadShorter"), talk.count("ReadUnknown"))
        };
        assert_eq!([two(true), two(false)], [(0, 0, 0, 0), (1, 0, 0, 0)]);
        // so many are remembered, and told if there are several
        let limited = |limit: usize| {
            let (mut a, mut b) = opened(0, 0);
            (0..3).for_each(|n| _ = a.read((0x50 + n, 0), (0x60, 0), 3));
            (0..3).for_each(|n| _ = b.segment(&tagged(Opcode::READ_RESPONSE, true, 0x50 + n, 0, b"abc")));
            let mut talk = Talk::new();
            talk.options.reads_limit = limit;
            talk.both(&a, &b, 1400);
            (talk.count("ReadUnknown"), talk.seen.outstanding)
        };
        assert_eq!([limited(3), limited(2), limited(1)], [(0, vec![2, 3]), (1, vec![2, 2]), (2, vec![])]);
    }

    fn message() -> impl Strategy<Value = Message> {
        prop_oneof![
            (0..700usize, 20..300usize).prop_map(|(n, cut)| Message::Send(n, cut)),
            (1..900usize, 20..300usize).prop_map(|(n, cut)| Message::Write(n, cut)),
            (1..500usize).prop_map(Message::Read),
        ]
    }

    fn scripts(messages: &[Message], flags: u8) -> (Script, Script) {
        let (mut a, mut b) = opened(flags, flags);
        for (n, m) in messages.iter().enumerate() {
            let text: Vec<u8> = (0..900).map(|k| b'a' + ((k * 7 + n) % 26) as u8).collect();
            let n = n as u32;
            match m {
                Message::Send(len, cut) => {
                    a.queued(Opcode::SEND_SE, &text[..*len], *cut);
                    b.queued(Opcode::SEND_INVALIDATE, &text[..*len / 2], *cut);
                }
                Message::Write(len, cut) => drop(b.write(n, 0x1000, &text[..*len], *cut, Opcode::WRITE)),
                Message::Read(len) => {
                    a.read((n, 0x10), (n + 100, 0x20), *len as u32);
                    b.write(n, 0x10, &text[..*len], 200, Opcode::READ_RESPONSE);
                }
            }
        }
        (a, b)
    }

    proptest! {
        /// Any cutting into segments, any doubling and reordering of them, has the same result.
        #[test]
        fn the_order_of_segments_does_not_matter(
            messages in proptest::collection::vec(message(), 1..12),
            flags in prop_oneof![Just(0x00u8), Just(0x40), Just(0x80), Just(0xc0)],
            cuts in proptest::collection::vec(1..400usize, 1..30),
            twice in proptest::collection::vec(any::<bool>(), 30),
            swaps in proptest::collection::vec((0..200usize, 1..6usize), 0..30),
        ) {
            let (a, b) = scripts(&messages, flags);
            let mut whole = Talk::new();
            whole.both(&a, &b, usize::MAX);
            prop_assert_eq!(&whole.seen.facts, &["MpaRequest", "MpaReply"]);
            let mut cut = Talk::new();
            cut.part(End::A, 0, &a.bytes[..20]).part(End::B, 0, &b.bytes[..20]);
            for (by, script) in [(End::A, &a), (End::B, &b)] {
                let (mut segments, mut at) = (Vec::new(), 20);
                for n in 0.. {
                    let end = (at + cuts[n % cuts.len()]).min(script.bytes.len());
                    segments.push((at, end));
                    if twice[n % twice.len()] {
                        segments.push((at, end));
                    }
                    if end == script.bytes.len() {
                        break;
                    }
                    at = end;
                }
                for (n, far) in &swaps {
                    let n = n % segments.len();
                    let m = (n + far) % segments.len();
                    segments.swap(n, m);
                }
                for (from, to) in segments {
                    cut.part(by, from, &script.bytes[from..to]);
                }
            }
            prop_assert_eq!(&cut.seen.ops, &whole.seen.ops);
            prop_assert_eq!(cut.seen.bytes, whole.seen.bytes);
            prop_assert!(cut.seen.facts.iter().all(|f| matches!(&f[..], "MpaRequest" | "MpaReply" | "Retransmission" | "OutOfOrder" | "MayBeCopies" | "WereCopies" | "Duplicate")));
        }

        /// A capture that begins late or lacks a piece shows a part of what the whole one shows, except what it cannot
        /// know.
        #[test]
        fn a_late_start_tells_nothing_that_is_not_so(
            messages in proptest::collection::vec(message(), 4..12),
            crc: bool,
            from in 0..3000usize,
            size in 50..1500usize,
        ) {
            let (a, b) = scripts(&messages, if crc { 0x40 } else { 0 });
            let mut whole = Talk::new();
            whole.both(&a, &b, usize::MAX);
            let from = from % b.bytes.len();
            let mut late = Talk::late();
            for (n, part) in b.bytes[from..].chunks(size).enumerate() {
                late.part(End::B, from + n * size, part);
            }
            let place = |op: &String| op.split(' ').nth(3).unwrap_or_default().to_string();
            let all: Vec<_> = whole.seen.ops[1].iter().map(place).collect();
            let seen: Vec<_> = late.seen.ops[1].iter().map(place).collect();
            prop_assert!(all.ends_with(&seen), "{seen:?} of {all:?}");
        }

        #[test]
        fn arbitrary_segments_never_panic_and_stay_bounded(data in proptest::collection::vec(any::<u8>(), 0..3000)) {
            crate::fuzzing::fuzz_tcp_flow(&data);
        }
    }
}
