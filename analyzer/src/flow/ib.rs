//! One reliable connection of two queue pairs: packets in the order of the wire to operations in the order in which the
//! receiver takes them. IBA volume 1, 9.7 (reliable service).
//!
//! ```text
//!   requester ── Send, Write, Read Request: PSN n, n+1, … ──▶ responder
//!   requester ◀── Acknowledge n, NAK, Read Response n … ───── responder      PSNs of the requester's numbering
//! ```
//!
//! Each end is requester of its own numbering and responder in the other's. A request whose PSN is the one expected goes
//! through at once, without a copy. One that came before is a retransmission and is told once only. One that comes early
//! is held until what is missing
//!
//! - is sent again: it was lost on the wire;
//! - is acknowledged all the same: the receiver had it, the capture lost it;
//! - is given up (time, or the limit of what is held): nobody knows.

use super::copies::{Copies, mark};
use super::psn;
use crate::op::{At, End, Gap, Part, Placement, RdmaOp, Verb};
use alloc::collections::VecDeque;
use alloc::vec::Vec;
use rdmascope_dissector::frame::IbPacket;
use rdmascope_dissector::trace::{Off, Trace};
use rdmascope_dissector::wire::ib::bth::{self, Row, Service};
use rdmascope_dissector::wire::ib::ext::{Extensions, Syndrome};

/// Packets held back per direction at most.
pub const HELD_PACKETS_MAX: usize = 512;
/// Bytes held back per direction at most.
pub const HELD_BYTES_MAX: usize = 1 << 20;
/// Capture time after which held packets are no longer held for what is missing, in ns.
pub const HELD_TIME_MAX: i64 = 4_000_000_000;
/// Packets of responses at most that a Read of unknown length is thought to have: 16 MiB in the smallest.
const READ_UNKNOWN: u32 = 1 << 16;
/// Reads remembered per direction at most.
const READS_MAX: usize = 256;
/// A PSN further away than this belongs to another use of the same queue pair numbers.
const JUMP_MAX: i32 = 1 << 16;
/// A copy that follows this closely on the original, in ns, was made by a mirror, not sent again.
const COPY_TIME_MAX: i64 = 20_000;

/// A packet that was overtaken comes within this time, in ns; one that was lost comes after a NAK or a timeout.
const OVERTAKE_TIME_MAX: i64 = 200_000;

/// What happened on the wire besides operations.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IbFact {
    /// A request came early: `missing` packets before it were not seen.
    SequenceGap {
        /// How many.
        missing: u32,
    },
    /// A request came that had come before.
    Retransmission,
    /// A copy of the packet just seen: capture or mirror doubled it.
    Duplicate,
    /// Packets that were captured in another order than they were numbered in.
    Reordered,
    /// A stretch of packets will not come any more.
    Gap(Gap),
    /// Negative acknowledgment: the code (IBA table 61) and the PSN that the responder expects.
    Nak {
        /// 0 PSN sequence error, 1 invalid request, 2 remote access error, 3 remote operational error, 4 invalid RD request.
        code: u8,
        /// PSN.
        psn: u32,
    },
    /// Receiver not ready: no receive was posted for a Send.
    RnrNak {
        /// Timer code of the syndrome, 5 bits.
        timer: u8,
        /// PSN of the Send.
        psn: u32,
    },
    /// More Read Requests outstanding than before.
    ReadsOutstanding(u32),
}

/// What listens to a flow.
pub trait IbSink {
    /// The next operation, in the receiver's order.
    fn op<T: Trace>(&mut self, op: &RdmaOp<'_>, t: &mut T);
    /// Something else.
    fn fact(&mut self, at: At, by: End, fact: IbFact);
    /// A packet that is not told as an operation now (it was told before, or is held): only to be shown.
    fn show<T: Trace>(&mut self, _verb: Verb, _part: Part, _bytes: &[u8], _t: &mut T) {}
}

/// Both directions of one reliable connection.
#[derive(Clone, Debug, Default)]
pub struct IbFlow {
    senders: [Sender; 2],
    reads: u32,
    /// By sender.
    copies: [Copies; 2],
    /// Path MTU in bytes: told by CM, or learnt from packets that must be full.
    mtu: Option<u32>,
}

/// What one end requested.
#[derive(Clone, Debug, Default)]
struct Sender {
    /// PSN of the next request.
    next: Option<u32>,
    /// How far ahead of `next` the next request may be, where the number of responses to a Read was not known.
    slack: u32,
    /// When and where the last request was taken.
    last: At,
    /// The open message.
    open: Option<Verb>,
    /// Bytes of it so far.
    offset: u32,
    /// Key and next address of an open Write.
    memory: Option<(u32, u64)>,
    /// Length of the whole open message, where it was said.
    whole: Option<u32>,
    /// An acknowledgment for more than was captured.
    acked_ahead: Option<u32>,
    /// Whether requests are known to be sent again: after a NAK, until a new one comes.
    recovering: bool,
    held: VecDeque<Held>,
    held_bytes: usize,
    reads: VecDeque<Read>,
    /// PSN behind the last Read that is done.
    reads_done: Option<u32>,
}

#[derive(Clone, Debug)]
struct Held {
    at: At,
    psn: u32,
    row: &'static Row,
    ext: Extensions,
    solicited: bool,
    payload: Vec<u8>,
    payload_length: u32,
}

#[derive(Clone, Copy, Debug)]
struct Read {
    first: u32,
    /// Packets of its response.
    span: u32,
    span_known: bool,
    key: u32,
    address: u64,
    length: u32,
    number: u32,
    /// PSN of the next response.
    next: u32,
    /// Bytes answered.
    received: u32,
    /// Responses that were skipped.
    missing: u32,
}

/// A request about to be told.
struct Request<'a> {
    at: At,
    by: End,
    psn: u32,
    row: &'static Row,
    ext: &'a Extensions,
    solicited: bool,
    payload: &'a [u8],
    payload_length: u32,
    in_frame: bool,
}

/// See [`Copies`].
fn mark_of(packet: &IbPacket<'_>) -> u32 {
    mark(packet.ip_id, packet.bth.opcode.into())
}

impl IbFlow {
    /// What the CM handshake said of a direction: the PSN its first request will have.
    pub fn starts_at(&mut self, by: End, psn: u32) {
        self.senders[by.index()].next = Some(psn & psn::MASK);
    }

    /// What the CM handshake said of the path: its MTU in bytes.
    pub fn path_mtu(&mut self, bytes: u32) {
        self.mtu = Some(bytes);
    }

    /// The range of PSNs that an acknowledgment of `by`'s requests may have now: used to find which flows belong together.
    pub fn may_acknowledge(&self, by: End, acknowledged: u32) -> bool {
        let sender = &self.senders[by.index()];
        sender.next.is_some_and(|next| {
            let behind = psn::ahead(next, acknowledged);
            (1..=256).contains(&behind) || (behind <= 0 && behind > -(sender.slack as i32) - 1)
        })
    }

    /// Takes over what is known of one direction from a flow that turned out to be half of this one.
    pub fn adopt(&mut self, by: End, from: &mut Self, from_end: End) {
        self.senders[by.index()] = core::mem::take(&mut from.senders[from_end.index()]);
        self.mtu = self.mtu.or(from.mtu);
    }

    /// One packet that `by` sent.
    pub fn packet<T: Trace, S: IbSink>(&mut self, at: At, by: End, packet: &IbPacket<'_>, t: &mut T, sink: &mut S) {
        let Some(row) = bth::Opcode(packet.bth.opcode).row() else { return };
        if !matches!(row.service, Service::Rc | Service::Uc | Service::Xrc) {
            return;
        }
        if !self.senders[0].held.is_empty() || !self.senders[1].held.is_empty() {
            self.expire(at, sink);
        }
        match row.verb {
            bth::Verb::Acknowledge | bth::Verb::AtomicAck => return self.acknowledge(at, by, packet, sink),
            bth::Verb::ReadResponse => self.read_response(at, by, packet, row, t, sink),
            bth::Verb::Cnp | bth::Verb::Resync => return,
            _ => self.request(at, by, packet, row, t, sink),
        }
        self.copies[by.index()].add(at, packet.bth.psn, mark_of(packet));
    }

    /// The capture ends: what is held is told as far as it is known.
    pub fn finish<S: IbSink>(&mut self, at: At, sink: &mut S) {
        while let Some(by) = self.longest_held() {
            self.skip_to_held(at, by, false, sink);
            self.drain(by, sink);
        }
    }

    /// Held packets that waited too long are told.
    pub fn expire<S: IbSink>(&mut self, at: At, sink: &mut S) {
        while let Some(by) = self.longest_held() {
            if self.senders[by.index()].held.front().is_none_or(|h| at.time.saturating_sub(h.at.time) <= HELD_TIME_MAX) {
                return;
            }
            self.skip_to_held(at, by, false, sink);
            self.drain(by, sink);
        }
    }

    /// The end whose first held packet came first: so that what was held comes out in the order of the capture.
    fn longest_held(&self) -> Option<End> {
        End::BOTH.into_iter().filter_map(|end| Some((self.senders[end.index()].held.front()?.at.frame, end))).min().map(|(_, end)| end)
    }

    fn request<T: Trace, S: IbSink>(&mut self, at: At, by: End, packet: &IbPacket<'_>, row: &'static Row, t: &mut T, sink: &mut S) {
        let number = packet.bth.psn;
        if matches!(row.part, bth::Part::First | bth::Part::Middle) && self.mtu.is_none() && packet.payload_length > 0 {
            self.mtu = Some(packet.payload_length);
        }
        let sender = &mut self.senders[by.index()];
        let next = *sender.next.get_or_insert(number);
        let ahead = psn::ahead(number, next);
        let request = Request {
            at,
            by,
            psn: number,
            row,
            ext: &packet.ext,
            solicited: packet.bth.se(),
            payload: packet.payload,
            payload_length: packet.payload_length,
            in_frame: true,
        };
        if ahead == 0 || (ahead > 0 && ahead as u32 <= sender.slack) {
            let overtaken = sender.held.front().is_some_and(|h| at.time.saturating_sub(h.at.time) <= OVERTAKE_TIME_MAX);
            if overtaken && !sender.recovering && ahead == 0 {
                sink.fact(at, by, IbFact::Reordered);
            }
            self.take(&request, t, sink);
            if !self.senders[by.index()].held.is_empty() {
                self.drain(by, sink);
            }
            return;
        }
        if !(-JUMP_MAX..=JUMP_MAX).contains(&ahead) {
            // the queue pair numbers are used anew, or so much is lost that nothing before is of use
            sender.held.clear();
            sender.held_bytes = 0;
            sender.open = None;
            sender.next = Some(number);
            self.take(&request, t, sink);
            return;
        }
        if ahead < 0 {
            let copy = ahead == -1 && !sender.recovering && at.time.saturating_sub(sender.last.time) <= COPY_TIME_MAX;
            let copy = copy || self.copies[by.index()].has(at, number, mark_of(packet));
            sink.fact(at, by, if copy { IbFact::Duplicate } else { IbFact::Retransmission });
            sender.recovering |= !copy;
            if T::ON {
                sink.show(verb_of(row), part_of(row), packet.payload, t);
            }
            return;
        }
        // early
        if row.service == Service::Uc || sender.last == At::default() {
            // unreliable: nobody will send it again; or the first packet seen: what came before it was not captured
            let gap = Gap { at, by, count: ahead as u32, receiver_had_them: false };
            sink.fact(at, by, IbFact::Gap(gap));
            sender.open = None;
            sender.next = Some(number);
            self.take(&request, t, sink);
            return;
        }
        let copy = self.copies[by.index()].has(at, number, mark_of(packet));
        self.hold(&request, ahead as u32, copy, sink);
        if T::ON {
            sink.show(verb_of(row), part_of(row), packet.payload, t);
        }
    }

    #[cold]
    fn hold<S: IbSink>(&mut self, request: &Request<'_>, missing: u32, copy: bool, sink: &mut S) {
        let by = request.by;
        let acked = {
            let sender = &mut self.senders[by.index()];
            if sender.held.iter().any(|h| h.psn == request.psn) {
                sink.fact(request.at, by, if copy { IbFact::Duplicate } else { IbFact::Retransmission });
                return;
            }
            if sender.held.is_empty() {
                sink.fact(request.at, by, IbFact::SequenceGap { missing });
            }
            let place = sender.held.iter().position(|h| psn::ahead(h.psn, request.psn) > 0).unwrap_or(sender.held.len());
            let held = Held {
                at: request.at,
                psn: request.psn,
                row: request.row,
                ext: *request.ext,
                solicited: request.solicited,
                payload: request.payload.to_vec(),
                payload_length: request.payload_length,
            };
            sender.held_bytes += held.payload.len();
            sender.held.insert(place, held);
            sender.acked_ahead.is_some_and(|a| sender.next.is_some_and(|n| psn::ahead(a, n) >= 0))
        };
        if acked {
            self.skip_to_held(request.at, by, true, sink);
            self.drain(by, sink);
        }
        let sender = &self.senders[by.index()];
        if sender.held.len() > HELD_PACKETS_MAX || sender.held_bytes > HELD_BYTES_MAX {
            self.skip_to_held(request.at, by, false, sink);
            self.drain(by, sink);
        }
    }

    /// Gives up what is missing before the first held packet.
    #[cold]
    fn skip_to_held<S: IbSink>(&mut self, at: At, by: End, receiver_had_them: bool, sink: &mut S) {
        let mtu = self.mtu;
        let sender = &mut self.senders[by.index()];
        let (Some(next), Some(first)) = (sender.next, sender.held.front()) else { return };
        let missing = psn::ahead(first.psn, next);
        if missing > 0 {
            sink.fact(at, by, IbFact::Gap(Gap { at: first.at, by, count: missing as u32, receiver_had_them }));
            sender.next = Some(first.psn);
            let goes_on = sender.open == Some(Verb::Write) && verb_of(first.row) == Verb::Write && !part_of(first.row).begins();
            let hole = u64::from(mtu.unwrap_or(0)) * missing as u64;
            let inside = sender.whole.is_some_and(|whole| u64::from(sender.offset) + hole < u64::from(whole));
            match sender.memory {
                // the same Write behind the hole: its packets are all as long as the MTU
                Some((key, address)) if goes_on && inside && hole > 0 => {
                    sender.memory = Some((key, address.wrapping_add(hole)));
                    sender.offset = sender.offset.wrapping_add(hole as u32);
                }
                _ => {
                    sender.open = None;
                    sender.memory = None;
                }
            }
        }
    }

    /// Tells held packets that are next now.
    fn drain<S: IbSink>(&mut self, by: End, sink: &mut S) {
        loop {
            let sender = &mut self.senders[by.index()];
            let Some(next) = sender.next else { return };
            let Some(front) = sender.held.front() else { return };
            let ahead = psn::ahead(front.psn, next);
            if ahead > 0 && ahead as u32 > sender.slack {
                return;
            }
            let Some(held) = sender.held.pop_front() else { return };
            sender.held_bytes -= held.payload.len();
            if ahead < 0 {
                continue;
            }
            let request = Request {
                at: held.at,
                by,
                psn: held.psn,
                row: held.row,
                ext: &held.ext,
                solicited: held.solicited,
                payload: &held.payload,
                payload_length: held.payload_length,
                in_frame: false,
            };
            self.take(&request, &mut Off, sink);
        }
    }

    /// The request that is next: becomes an operation.
    #[inline]
    fn take<T: Trace, S: IbSink>(&mut self, request: &Request<'_>, t: &mut T, sink: &mut S) {
        let mtu = self.mtu;
        let sender = &mut self.senders[request.by.index()];
        let verb = verb_of(request.row);
        let part = part_of(request.row);
        sender.slack = 0;
        sender.recovering = false;
        sender.last = request.at;
        if part.begins() {
            sender.offset = 0;
            sender.open = Some(verb);
            sender.memory = None;
            sender.whole = request.ext.reth.map(|r| r.dma_length);
        }
        let known = sender.open.is_some();
        let mut message_length = None;
        let mut read = 0;
        let mut span = 1;
        let placement = match verb {
            Verb::Send | Verb::SendInvalidate => {
                if known {
                    Placement::Queue { offset: sender.offset }
                } else {
                    Placement::Unknown
                }
            }
            Verb::Write => {
                if let Some(reth) = request.ext.reth {
                    message_length = Some(reth.dma_length);
                    sender.memory = Some((reth.r_key, reth.virtual_address));
                }
                match sender.memory {
                    Some((key, address)) if known => {
                        sender.memory = Some((key, address.wrapping_add(u64::from(request.payload_length))));
                        Placement::Memory { key, address }
                    }
                    _ => Placement::Unknown,
                }
            }
            Verb::ReadRequest => match request.ext.reth {
                Some(reth) => {
                    message_length = Some(reth.dma_length);
                    self.reads += 1;
                    read = self.reads;
                    span = match mtu {
                        Some(mtu) => reth.dma_length.div_ceil(mtu.max(1)).max(1),
                        None => 1,
                    };
                    let most = reth.dma_length.div_ceil(256).max(1);
                    if mtu.is_none() {
                        sender.slack = most - 1;
                    }
                    if sender.reads.len() >= READS_MAX {
                        sender.reads.pop_front();
                    }
                    sender.reads.push_back(Read {
                        first: request.psn,
                        span: if mtu.is_some() { span } else { most },
                        span_known: mtu.is_some(),
                        key: reth.r_key,
                        address: reth.virtual_address,
                        length: reth.dma_length,
                        number: read,
                        next: request.psn,
                        received: 0,
                        missing: 0,
                    });
                    sink.fact(request.at, request.by, IbFact::ReadsOutstanding(sender.reads.len() as u32));
                    Placement::Memory { key: reth.r_key, address: reth.virtual_address }
                }
                None => {
                    // its length was cut off: how many numbers its responses take is not known
                    sender.slack = READ_UNKNOWN;
                    Placement::Unknown
                }
            },
            _ => match request.ext.atomic {
                Some(atomic) => Placement::Memory { key: atomic.r_key, address: atomic.virtual_address },
                None => Placement::Unknown,
            },
        };
        sender.offset = sender.offset.wrapping_add(request.payload_length);
        if part.ends() {
            sender.open = None;
        }
        sender.next = Some(psn::add(request.psn, span));
        let op = RdmaOp {
            at: request.at,
            by: request.by,
            verb,
            part,
            placement,
            message_length,
            invalidate: request.ext.invalidate,
            immediate: request.ext.immediate,
            solicited: request.solicited,
            length: request.payload_length,
            bytes: request.payload,
            in_frame: request.in_frame,
            read,
        };
        sink.op(&op, t);
    }

    fn acknowledge<S: IbSink>(&mut self, at: At, by: End, packet: &IbPacket<'_>, sink: &mut S) {
        let number = packet.bth.psn;
        let requester = by.peer();
        match packet.ext.syndrome() {
            Some(Syndrome::Nak(code)) => {
                sink.fact(at, by, IbFact::Nak { code: code.0, psn: number });
                self.senders[requester.index()].recovering = true;
                // everything before it arrived
                self.acknowledged(at, requester, psn::add(number, psn::MASK), sink);
            }
            Some(Syndrome::RnrNak { timer }) => {
                sink.fact(at, by, IbFact::RnrNak { timer, psn: number });
                self.senders[requester.index()].recovering = true;
                self.acknowledged(at, requester, psn::add(number, psn::MASK), sink);
            }
            Some(Syndrome::Ack { .. }) | None => self.acknowledged(at, requester, number, sink),
            Some(_) => {}
        }
    }

    fn acknowledged<S: IbSink>(&mut self, at: At, requester: End, number: u32, sink: &mut S) {
        let sender = &mut self.senders[requester.index()];
        let Some(next) = sender.next else { return };
        let ahead = psn::ahead(number, next);
        if !(0..=JUMP_MAX).contains(&ahead) {
            return;
        }
        sender.acked_ahead = Some(number);
        if !sender.held.is_empty() {
            self.skip_to_held(at, requester, true, sink);
            self.drain(requester, sink);
        }
    }

    fn read_response<T: Trace, S: IbSink>(&mut self, at: At, by: End, packet: &IbPacket<'_>, row: &'static Row, t: &mut T, sink: &mut S) {
        let number = packet.bth.psn;
        let part = part_of(row);
        if matches!(part, Part::First | Part::Middle) && packet.payload_length > 0 {
            self.mtu.get_or_insert(packet.payload_length);
        }
        let mtu = self.mtu;
        let requester = by.peer();
        let (sender, copies) = (&mut self.senders[requester.index()], &self.copies[by.index()]);
        let mut op = RdmaOp {
            at,
            by,
            verb: Verb::ReadResponse,
            part,
            placement: Placement::Unknown,
            message_length: None,
            invalidate: None,
            immediate: None,
            solicited: packet.bth.se(),
            length: packet.payload_length,
            bytes: packet.payload,
            in_frame: true,
            read: 0,
        };
        let found = sender.reads.iter().position(|r| {
            let ahead = psn::ahead(number, r.first);
            ahead >= 0 && (ahead as u32) < r.span
        });
        let Some(index) = found else {
            if sender.reads_done.is_some_and(|done| (-JUMP_MAX..0).contains(&psn::ahead(number, done))) {
                let copy = copies.has(at, number, mark_of(packet));
                sink.fact(at, by, if copy { IbFact::Duplicate } else { IbFact::Retransmission });
                return;
            }
            sink.op(&op, t);
            return;
        };
        let read = &mut sender.reads[index];
        if let (false, Some(mtu)) = (read.span_known, mtu) {
            read.span = read.length.div_ceil(mtu.max(1)).max(1);
            read.span_known = true;
        }
        let ahead = psn::ahead(number, read.next);
        if ahead < 0 {
            let copy = copies.has(at, number, mark_of(packet));
            if read.missing == 0 || copy {
                sink.fact(at, by, if copy { IbFact::Duplicate } else { IbFact::Retransmission });
                return;
            }
            // sent again because something before it was lost: it may be one of the missing ones, and its bytes are the same
            read.missing -= 1;
            sink.fact(at, by, IbFact::Retransmission);
        } else if ahead > 0 {
            sink.fact(at, by, IbFact::SequenceGap { missing: ahead as u32 });
            read.missing += ahead as u32;
        }
        let offset = match mtu {
            Some(mtu) => (psn::ahead(number, read.first) as u32).saturating_mul(mtu),
            None => read.received,
        };
        op.placement = Placement::Memory { key: read.key, address: read.address.wrapping_add(u64::from(offset)) };
        op.message_length = Some(read.length);
        op.read = read.number;
        read.received = read.received.saturating_add(packet.payload_length);
        if ahead >= 0 {
            read.next = psn::add(number, 1);
        }
        if part.ends() && read.missing == 0 {
            let end = psn::add(number, 1);
            sender.reads.drain(..=index);
            sender.reads_done = Some(end);
        }
        sink.op(&op, t);
    }
}

/// The operation of an opcode, seen from above the waist.
fn verb_of(row: &Row) -> Verb {
    match row.verb {
        bth::Verb::Send if row.invalidate() => Verb::SendInvalidate,
        bth::Verb::Send => Verb::Send,
        bth::Verb::Write => Verb::Write,
        bth::Verb::ReadRequest => Verb::ReadRequest,
        bth::Verb::ReadResponse => Verb::ReadResponse,
        _ => Verb::Atomic,
    }
}

fn part_of(row: &Row) -> Part {
    match row.part {
        bth::Part::Only => Part::Only,
        bth::Part::First => Part::First,
        bth::Part::Middle => Part::Middle,
        bth::Part::Last => Part::Last,
    }
}
