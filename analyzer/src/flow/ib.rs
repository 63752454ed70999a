//! One reliable connection of two queue pairs: packets in the order of the wire to operations in the order in which the
//! receiver takes them. IBA volume 1, 9.7 (reliable service).
//!
//! ```text
//!   requester ── Send, Write, Read Request: PSN n, n+1, … ──▶ responder
//!   requester ◀── Acknowledge n, NAK, Read Response n … ───── responder      PSNs of the requester's numbering
//! ```
//!
//! Each end is requester of its own numbering and responder in the other's. A request whose PSN is the one expected
//! goes through at once, without a copy. One that came before is a retransmission and is reported once only. One that
//! comes early is held until the missing packets
//!
//! - are sent again: they were lost on the wire;
//! - are acknowledged all the same: the receiver had them, the capture lost them;
//! - are given up (time, or the limit of held packets): the cause is unknown.

use super::copies::{Copies, DoubleDetector, Ids, Shown, is_mirrored, mark, may_be_mirrored};
use super::losses::{ALL_CHANGED, BySender, LossView, Losses, Speaks, Tally, Unanswered, are_changed, tallied};
use super::psn;
use super::recovery::{Ended, HELD_BACK, Late, Recovery, Sent};
use super::restart::{NEAR, Told};
use super::sizes::{Sizes, Stuck};
use crate::devices::Measure;
use crate::episodes::{Kind, sequence_of_psn};
use crate::missed::BEHIND_MAX;
use crate::op::{At, End, Gap, Part, Placement, RdmaOp, Verb};
use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::vec::Vec;
use rdmascope_dissector::frame::{Check, IbPacket};
use rdmascope_dissector::trace::{Off, Trace};
use rdmascope_dissector::wire::ib::bth::{self, Row, Service};
use rdmascope_dissector::wire::ib::ext::{Extensions, Syndrome, rnr_timer};

/// Packets held back per direction at most.
pub const HELD_PACKETS_MAX: usize = 512;
/// Bytes held back per direction at most.
pub const HELD_BYTES_MAX: usize = 1 << 20;
/// Capture time after which held packets no longer wait for missing ones, in ns.
pub const HELD_TIME_MAX: i64 = 4_000_000_000;
/// Packets of responses at most that a Read of unknown length is thought to have: 16 MiB in the smallest.
const READ_UNKNOWN: u32 = 1 << 16;
/// Reads remembered per direction at most.
const READS_MAX: usize = 256;
/// A PSN further away than this belongs to another use of the same queue pair numbers, or comes behind a long hole.
pub const JUMP_MAX: i32 = 1 << 16;
/// Place of the sizes of requests.
const REQUESTS: usize = 0;
/// Place of the sizes of Responses to Reads.
const RESPONSES: usize = 1;
/// A copy that follows this closely on the original, in ns, was made by a mirror, not sent again.
const COPY_TIME_MAX: i64 = 20_000;

/// Packets by which one is behind another at least, as identifications of IP count them, to be more than out of order
/// in the capture.
const OLD: u16 = 8;
/// Responses that are remembered with their time: the first of a Read, and one of [`PASSED_EACH`].
const PASSED: usize = 16;
/// See [`PASSED`]; a power of two.
const PASSED_EACH: u32 = 16;
/// Responses of one Read that are remembered as missing at most.
const MISSING_MAX: usize = 1024;
/// Packets that a sender jumps over while it sends again, at most: more is another position.
const SKIP_MAX: i32 = 64;
/// Such jumps that are remembered.
const SKIPS_MAX: usize = 8;
/// Packets remembered per direction that were retransmitted because they had not come: one of them may still come,
/// late.
const FILLED_MAX: usize = 16;
/// ns after which such a packet does not come any more.
const LATE_MAX: i64 = 2_000_000_000;
/// Stretches of packets remembered per direction that were acknowledged, but not captured so far.
const SKIPPED_MAX: usize = 16;
/// Packets that may be on their way past the end of a capture.
const BEYOND: i32 = 32;
/// Damaged packets remembered per direction that the receiver had, and damaged Responses of which that is not known
/// yet.
const GARBLED_MAX: usize = 64;
/// Packets with a right invariant CRC after which a wrong one says that a packet is damaged, whatever an acknowledgment
/// seems to say.
const ICRC_TRUSTED: u32 = 8;
/// ns within which a requester asks again for Responses that it did not get, beside the way there and back.
const ASKS_AGAIN: i64 = 1_000_000;
/// The smallest path MTU, in bytes.
const MTU_LEAST: u32 = 256;
/// The largest one (IBA 9.6.5.1.1).
const MTU_MOST: u32 = 4096;
/// Packets of its own after which an end that has never acknowledged anything is there, and does not acknowledge.
const SPEAKS: u64 = 8;
/// Packets with a wrong invariant CRC that the receiver took all the same, after which its value says nothing.
const TAKEN_BAD_MAX: u32 = 3;

/// Events on the wire besides operations.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IbFact {
    /// A request came early: `missing` packets before it were not seen.
    SequenceGap {
        /// Number of packets missing.
        missing: u32,
    },
    /// A packet came that had come before.
    Retransmission {
        /// The frame in which it came before, if that is still known.
        of: Option<u64>,
    },
    /// A copy of the packet just seen: capture or mirror doubled it.
    Duplicate,
    /// A packet whose invariant CRC is wrong, which a receiver drops.
    Damaged,
    /// Packets with a wrong invariant CRC were followed, and now one with a right one shows that they were damaged.
    FollowedDamaged,
    /// The next operation is from a packet with a wrong invariant CRC that its receiver seems to have accepted.
    Doubtful,
    /// A recovery begins: `since` is when the sender was last known to be well.
    Recovering {
        /// The last time at which the sender was known to be well.
        since: At,
        /// The first packet that it concerns, as a PSN.
        psn: u32,
        /// Recovery of packets, or a receiver that was not ready.
        kind: Kind,
        /// True if nothing was seen of it but a gap.
        is_gap: bool,
    },
    /// It is over, or the capture is.
    Recovered {
        /// Result of the recovery.
        ended: Ended,
        /// True if it went on until the capture was over.
        over: bool,
    },
    /// The supposed beginning of a recovery was none.
    NotRecovering,
    /// From here on packets that seem to be retransmitted may be the copies of a mirror.
    MayBeCopies,
    /// They are.
    WereCopies,
    /// A measured delay of this end's adapter.
    Measured(Measure),
    /// The shortest way from the capture point to this end and back so far, in ns.
    RoundTrip(i64),
    /// The same of late, in ns: the way may have become longer.
    RecentRoundTrip(i64),
    /// Nothing came back for long, while the same packets were retransmitted.
    Silent(Unanswered),
    /// A transport header version that does not exist.
    Version(u8),
    /// Another partition key than the connection's.
    Partition {
        /// Partition key of the first packet.
        expected: u16,
        /// Partition key of this one.
        got: u16,
    },
    /// A packet that does not go on as the one before it asks for: the middle or end of a message that did not begin,
    /// or the beginning of one inside another.
    OutOfOrder {
        /// Operation of the packet.
        verb: Verb,
        /// Part of the message that it is.
        part: Part,
        /// True if a message was open before it.
        open: bool,
    },
    /// The capture has packets in another order than the ends.
    Misplaced,
    /// So many packets of an [`IbFact::Gap`] came after all, behind their acknowledgment.
    Found(u32),
    /// The first packets of an end were not captured: its peer acknowledges data before any of it was seen.
    BeganLate,
    /// The packet numbers of an end jump: a long stretch of the connection was not captured, or another one uses its
    /// queue pairs.
    Jumped,
    /// A packet went to this queue pair, which is not its receiver's, and then to the right one.
    WrongQueuePair {
        /// The number.
        qp: u32,
        /// True if its invariant CRC was checked, and is right.
        is_checked: bool,
    },
    /// Responses to Reads that the requester had, and the capture has not.
    ResponsesMissed(u32),
    /// A stretch of packets will not come any more.
    Gap(Gap),
    /// The receiver had these packets undamaged. The capture has them damaged, so that their content is not known.
    Garbled(Gap),
    /// The same for so many Responses to Reads.
    ResponsesGarbled(u32),
    /// Negative acknowledgment: the code (IBA table 61) and the PSN that the responder expects.
    Nak {
        /// 0 PSN sequence error, 1 invalid request, 2 remote access error, 3 remote operational error, 4 invalid RD
        /// request.
        code: u8,
        /// PSN.
        psn: u32,
    },
    /// Receiver not ready: no receive was posted for a Send, or another request has to wait.
    RnrNak {
        /// Timer code of the syndrome, 5 bits.
        timer: u8,
        /// PSN of the request.
        psn: u32,
        /// The request, if it was seen.
        of: Option<Operation>,
    },
    /// A Write has another length than its first packet says: more bytes came, or it ended before.
    OtherLength {
        /// Length that the first packet says.
        said: u32,
        /// Bytes that came.
        sent: u32,
        /// Part of the message that the packet is which shows it.
        part: Part,
    },
    /// The last Response to a Read says that it is this part of it.
    ReadNotEnded(Part),
    /// The Responses to a Read have another length than was asked for.
    OtherReadLength {
        /// Length that the Read Request says.
        asked: u32,
        /// Bytes that came.
        came: u32,
    },
    /// A packet is longer than any path MTU is.
    BeyondMtu {
        /// Bytes of its payload.
        length: u32,
    },
    /// Packets were acknowledged that this end's peer never sent.
    AckedUnsent {
        /// The newest PSN that was acknowledged.
        psn: u32,
        /// Packets between the last one that was sent and that.
        beyond: u32,
        /// Acknowledgments of that kind.
        count: u32,
    },
    /// A packet had a wrong number: the same came with the right one.
    WrongNumber {
        /// Its PSN.
        psn: u32,
        /// The right one.
        right: u32,
    },
    /// So many Read Requests are outstanding, unless Responses were missed.
    ReadsOutstanding(u32),
    /// A Read is answered, or refused: `outstanding` Reads were outstanding when it was asked for, all of which were
    /// answered after that.
    ReadsAnswered {
        /// Time of the Read Request.
        asked: At,
        /// Number of outstanding Reads, including this one.
        outstanding: u32,
    },
}

/// A request that its receiver was not ready for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Operation {
    /// Its verb.
    pub verb: Verb,
    /// True if it takes a receive: a Send, or a Write with immediate data.
    pub takes_receive: bool,
}

/// Why a packet goes out again, as far as is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Why {
    /// Nobody asked for it: its sender waited for an acknowledgment in vain.
    Timer,
    /// Its receiver asked for it, and so had dropped it.
    Asked,
    /// The same, but it came since then: its receiver may have taken that one.
    AskedBefore,
}

/// Listener of a flow.
pub trait IbSink {
    /// The next operation, in the receiver's order.
    fn op<T: Trace>(&mut self, op: &RdmaOp<'_>, t: &mut T);
    /// Something else.
    fn fact(&mut self, at: At, by: End, fact: IbFact);
    /// The operation that is reported next ends with this packet, by its sequence number.
    #[inline]
    fn sequence(&mut self, _by: End, _sequence: u32) {}
    /// Everything that `by` requested up to here has arrived. `is_ack`: an acknowledgment says so, and not a Read
    /// Response.
    #[inline]
    fn acknowledged(&mut self, _at: At, _by: End, _sequence: u32, _is_ack: bool) {}
    /// A packet that was already reported as an operation is sent again.
    fn again(&mut self, _at: At, _by: End, _sequence: u32, _why: Why) {}
    /// A packet that is not reported as an operation now (it was reported before, or is held): for display only.
    fn show<T: Trace>(&mut self, _verb: Verb, _part: Part, _bytes: &[u8], _t: &mut T) {}
    /// The same for a packet that comes behind packets that were sent after it, and so no longer counts.
    fn show_late<T: Trace>(&mut self, _verb: Verb, _part: Part, _bytes: &[u8], _t: &mut T) {}
    /// True if all that a held packet completes was shown with the packet itself.
    fn is_shown(&self, _by: End, _verb: Verb, _part: Part, _bytes: &[u8]) -> bool {
        false
    }
}

/// Both directions of one reliable connection.
#[derive(Clone, Debug, Default)]
pub struct IbFlow {
    senders: [Sender; 2],
    /// The handshake was captured: both ends are in the capture.
    is_opened: bool,
    reads: u32,
    /// By sender.
    copies: [Copies; 2],
    /// Path MTU in bytes: from CM, or learnt from packets that must be full.
    mtu: Option<u32>,
    /// A packet that must be full was seen: what CM said no longer counts.
    is_mtu_seen: bool,
    /// P_Key of the first packet.
    partition: Option<u16>,
    /// By sender: packets whose invariant CRC is right.
    icrc_good: [u32; 2],
    /// By sender: true if connection management came with a right one.
    sound: [bool; 2],
    /// By sender: packets whose invariant CRC is wrong, and that the receiver took all the same.
    taken_bad: [u32; 2],
    /// By sender: packets with a wrong invariant CRC were followed, because none had been right so far, or their receiver
    /// seemed to take them.
    followed_bad: [bool; 2],
    losses: [Option<Box<Losses>>; 2],
    /// By sender: packets of requests, and those of them that had stood in the capture before.
    requests: [(u64, u64); 2],
    /// By sender: packets of requests that had stood in the capture twice.
    thrice: Option<Box<[Tally; 2]>>,
    doubles: DoubleDetector,
    /// Sides in recovery when the first copy of a mirror may have come, and how packets were classified then.
    before_copies: Option<Box<([bool; 2], BySender)>>,
    /// By sender.
    ids: [Ids; 2],
    /// The packet at hand was sent long before others that came earlier, as its identification says.
    is_old: bool,
    /// By sender: sizes of its requests, and of its Responses to Reads.
    sizes: [[Sizes; 2]; 2],
    /// By end: the shortest time from a request to its acknowledgment, in ns.
    round_trip: [Option<i64>; 2],
    /// By end: the same of late.
    recent_round_trip: [RecentRoundTrip; 2],
    /// The PSNs of an end went far away: packets may be of another connection on the same queue pairs.
    is_in_question: bool,
}

/// Requests of one end.
#[derive(Clone, Debug, Default)]
struct Sender {
    /// PSN of the next request.
    next: Option<u32>,
    /// Its peer acknowledged data before any of it was seen.
    began_late: bool,
    /// Its PSNs jumped too far for packets that were missed to be counted, and no Send came since.
    has_jumped: bool,
    /// Number of PSNs by which the next request may be ahead of `next`, because the number of responses to a Read is
    /// not known.
    slack: u32,
    /// Time and frame of the last request taken.
    last: At,
    /// The open message.
    open: Option<Verb>,
    /// Bytes of it so far.
    offset: u32,
    /// Key and next address of an open Write.
    memory: Option<(u32, u64)>,
    /// Length of the whole open message, if it was said.
    whole: Option<u32>,
    /// Some packets of the open message were not captured.
    has_hole: bool,
    /// An acknowledgment for more than was captured.
    acked_ahead: Option<u32>,
    /// Number of those, the first, and the MSN of the last.
    acks_ahead: (u32, At, Option<u32>),
    /// The newest PSN that was acknowledged.
    acked: Option<u32>,
    /// PSN behind the last packet, in the order of the capture.
    cursor: u32,
    /// Nothing of it was missed since its first packet.
    is_whole: bool,
    /// The recovery that is under way.
    recovery: Option<Box<Recovery>>,
    /// Packets that came late by themselves, until their receiver shows if it noticed.
    late: Option<Late>,
    /// Stretches of packets that were acknowledged, but not captured so far: the first packet, and their number.
    skipped: VecDeque<(u32, u32)>,
    /// Damaged packets that were acknowledged without being sent again: the PSN, frame and time, and the time of the
    /// acknowledgment.
    garbled: VecDeque<(u32, At, i64)>,
    /// Damaged Responses to its Reads: the PSN, frame and time.
    bad_responses: VecDeque<(u32, At)>,
    /// Packets that were missing and came with a round: the PSN, and when it was missed.
    filled: VecDeque<(u32, At)>,
    held: VecDeque<Held>,
    held_bytes: usize,
    reads: VecDeque<Read>,
    /// PSN behind the last Read that is done.
    reads_done: Option<u32>,
    /// Responses of Reads that are done, given up as not captured, and when that was.
    responses_missed: (Vec<u32>, At),
    /// Reads of which the last Response came.
    reads_answered: u32,
    /// PSN behind the last Response to a Read, in the order of the capture, and its time.
    answered: (u32, i64),
    /// Some of the last Responses: their PSNs, and when they went by.
    passed: [(u32, i64); PASSED],
    /// The last Response that had been missing and came when it was asked for again: its PSN.
    refilled: Option<u32>,
    /// Damaged packets from before any that was not: their PSNs, and the places of their capture.
    unplaced: Vec<(u32, At)>,
    /// The first packet that was seen of it, if those before it were not.
    first: Option<u32>,
    /// The newest packet that asked for an acknowledgment; `None` if none ever does.
    asks: Option<u32>,
    /// The last retransmitted Read: from which Response to which, and when.
    read_again: Option<(u32, u32, At)>,
    /// Packets that the last NAK of a sequence error asked for: the first PSN, the PSN behind the last, and the time.
    nak: Option<(u32, u32, At)>,
    /// The same without a NAK: packets behind a Read were acknowledged, and its Responses had not come. To its sender
    /// they are lost, and it goes back to the Read (IBA volume 1, 9.7.5.1.1).
    passed_over: Option<(u32, u32, At)>,
    /// Packets that a sender jumped over while it sent again what it had sent before: the first, and the one behind the
    /// last. They were lost this time, before the capture point or in the capture.
    jumped: Vec<(u32, u32)>,
    /// A Read that was retransmitted although all of its Responses were seen: its time, and the PSN behind it. The next
    /// packets show if its sender went back to it, or the capture has a copy that was held up.
    reread: Option<(At, u32)>,
    /// The last acknowledgment.
    told: Option<Told>,
    /// The last one before its PSNs went far away, until others show if its receiver goes on.
    told_before: Option<Told>,
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
    /// Its invariant CRC is wrong: it counts only if it is acknowledged and does not come again.
    is_damaged: bool,
    /// All packets before it had come when it came: it goes out again only if its receiver has dropped it.
    is_next: bool,
    /// Its receiver asked for it.
    is_asked: bool,
    /// Its invariant CRC is wrong, and it was unknown then if that means anything.
    is_doubtful: bool,
    /// All that it completes was shown when it came: its content was known by then.
    is_shown: bool,
}

#[derive(Clone, Debug)]
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
    missing: Vec<u32>,
    /// Time at which the first of them was missed.
    gap: At,
    /// Responses that came after later ones, without having been asked for again: number, time of the first, longest
    /// delay in ns.
    late: (u32, At, i64),
    /// Time at which the request, or a part of it, was retransmitted.
    again: Option<At>,
    /// Time at which it went out.
    asked: At,
    /// Number of Reads that had been answered then.
    answered_before: u32,
    /// All of its responses came; one before it still waits for some.
    is_done: bool,
}

impl Read {
    /// Number of its Responses that were not seen, as far as that can be counted.
    fn missed(&self) -> u32 {
        let rest = if self.is_done { 0 } else { psn::ahead(psn::add(self.first, self.span), self.next).max(0) as u32 };
        rest.saturating_add(self.missing.len() as u32)
    }
}

/// A request about to be reported.
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
    /// Its invariant CRC is wrong, and it is still unknown if that means anything.
    is_doubtful: bool,
}

/// The shortest of the last ways to an end and back. A way that becomes longer shows when a window is over.
#[derive(Clone, Copy, Debug, Default)]
struct RecentRoundTrip {
    /// Time of the first of this window, in ns.
    since: i64,
    count: u32,
    least: i64,
    told: Option<i64>,
}

impl RecentRoundTrip {
    /// ns that a window lasts, at least.
    const TIME: i64 = 1_000_000_000;
    /// Ways in a window, at least: some acknowledgments are held back.
    const COUNT: u32 = 32;

    /// Another way, in ns. Returns the shortest of late if that has changed.
    #[inline]
    fn add(&mut self, at: i64, took: i64) -> Option<i64> {
        if took < 0 {
            return None;
        }
        if self.count == 0 {
            (self.since, self.least) = (at, took);
        }
        self.count += 1;
        self.least = self.least.min(took);
        let is_over = self.count >= Self::COUNT && at.saturating_sub(self.since) >= Self::TIME;
        let least = self.least;
        if is_over {
            self.count = 0;
        }
        let is_news = is_over && self.told != Some(least) || self.told.is_some_and(|told| took < told);
        is_news.then(|| *self.told.insert(least))
    }
}

/// See [`Copies`].
/// The number of messages that a responder had taken when it sent a packet (IBA volume 1, 9.7.7.1).
fn msn_of(packet: &IbPacket<'_>) -> Option<u32> {
    packet.ext.aeth.map(|aeth| aeth & psn::MASK)
}

fn mark_of(packet: &IbPacket<'_>) -> u32 {
    let syndrome = packet.ext.aeth.map_or(0, |aeth| (aeth >> 24) as u8);
    mark(packet.ip_id, u16::from_be_bytes([syndrome, packet.bth.opcode]))
}

impl IbFlow {
    /// First PSN of a direction, from the CM handshake.
    pub fn starts_at(&mut self, by: End, psn: u32) {
        let sender = &mut self.senders[by.index()];
        (sender.next, sender.cursor) = (Some(psn & psn::MASK), psn & psn::MASK);
        sender.is_whole = true;
        self.is_opened = true;
    }

    /// Sets for each end whether the capture has its invariant CRCs as they were sent: then a wrong one means that a
    /// packet is damaged.
    pub fn sound(&mut self, ends: [bool; 2]) {
        self.sound = ends;
    }

    /// Path MTU in bytes, from the CM handshake.
    pub fn path_mtu(&mut self, bytes: u32) {
        self.mtu = Some(bytes);
    }

    /// A packet has so many bytes of payload. One that is not the last of its message is as long as the path MTU, and
    /// none is longer (IBA 9.7.4.1.6), whatever CM said. Returns false if it is longer than any path MTU.
    #[inline]
    fn shows_mtu(&mut self, is_full: bool, length: u32) -> bool {
        let is_longer = self.mtu.is_some_and(|mtu| length > mtu);
        if length > 0 && (is_full && !self.is_mtu_seen || is_longer) {
            return self.learn_mtu(is_full, length);
        }
        true
    }

    #[cold]
    fn learn_mtu(&mut self, is_full: bool, length: u32) -> bool {
        if length > MTU_MOST || !is_full && self.is_mtu_seen {
            return length <= MTU_MOST;
        }
        self.is_mtu_seen |= is_full;
        let known = self.mtu.replace(if is_full { length } else { length.next_power_of_two() });
        let Some(mtu) = self.mtu.filter(|mtu| known.is_some_and(|known| known != *mtu)) else { return true };
        // Reads that wait have another number of Responses than was thought
        for sender in &mut self.senders {
            for read in sender.reads.iter_mut().filter(|read| read.span_known && !read.is_done) {
                let was = psn::add(read.first, read.span);
                read.span = read.length.div_ceil(mtu).max(1);
                let is = psn::add(read.first, read.span);
                if sender.next == Some(was) {
                    sender.next = Some(is);
                    sender.cursor = if sender.cursor == was { is } else { sender.cursor };
                }
            }
        }
        true
    }

    /// The range of PSNs that an acknowledgment of `by`'s requests may have now: used to find which flows belong
    /// together.
    pub fn may_acknowledge(&self, by: End, acknowledged: u32) -> bool {
        let sender = &self.senders[by.index()];
        sender.next.is_some_and(|next| {
            let behind = psn::ahead(next, acknowledged);
            (1..=256).contains(&behind) || (behind <= 0 && behind > -(sender.slack as i32) - 1)
        })
    }

    /// True if the PSN of a packet of `by` is far from those of this connection: its queue pairs are in use again, by a
    /// connection whose handshake was not captured. An answer has the PSN of its request.
    pub fn is_far(&self, by: End, is_request: bool, psn: u32) -> bool {
        let requester = if is_request { by } else { by.peer() };
        self.senders[requester.index()]
            .next
            .is_some_and(|next| psn::ahead(next, psn).unsigned_abs() > JUMP_MAX.unsigned_abs())
    }

    /// True if a packet of `by` may be of another connection on the same queue pairs, by its PSN or by those before it.
    #[inline]
    pub fn is_doubtful(&self, by: End, is_request: bool, psn: u32) -> bool {
        let (requester, limit) = if is_request { (by, NEAR) } else { (by.peer(), JUMP_MAX) };
        let is_off = |next: u32| psn::ahead(next, psn).unsigned_abs() > limit.unsigned_abs();
        self.is_in_question || self.senders[requester.index()].next.is_some_and(is_off)
    }

    /// True if the PSN of a request of `by` is not one of those that are near.
    pub fn is_off(&self, by: End, psn: u32) -> bool {
        self.senders[by.index()].next.is_some_and(|next| psn::ahead(next, psn).unsigned_abs() > NEAR.unsigned_abs())
    }

    /// True if an answer of `by` counts its messages as none of this connection does.
    pub fn counts_anew(&self, at: At, by: End, packet: &IbPacket<'_>) -> bool {
        let sender = &self.senders[by.peer().index()];
        let is_other = |(told, msn): (Told, u32)| told.is_of_another(at, packet.bth.psn, msn) == Some(true);
        sender.told_before.or(sender.told).zip(msn_of(packet)).is_some_and(is_other)
    }

    /// A packet in question is one of this connection, as far as is known.
    pub fn belongs(&mut self, at: At, by: End, packet: &IbPacket<'_>) {
        let sender = &mut self.senders[by.peer().index()];
        let is_known = |(told, msn): (Told, u32)| told.is_of_another(at, packet.bth.psn, msn).is_some();
        if sender.told_before.zip(msn_of(packet)).is_some_and(is_known) {
            sender.told_before = None;
        }
        self.is_in_question = self.senders.iter().any(|sender| sender.has_jumped || sender.told_before.is_some());
    }

    /// Another connection has the queue pairs: packets that are held are its own, and this one misses nothing before
    /// them.
    #[cold]
    pub fn is_over<S: IbSink>(&mut self, at: At, sink: &mut S) {
        for by in End::BOTH {
            let sender = &mut self.senders[by.index()];
            let is_off = |held: &Held| sender.next.is_some_and(|next| psn::ahead(held.psn, next) > NEAR);
            if !sender.held.front().is_some_and(is_off) {
                continue;
            }
            sender.held.clear();
            (sender.held_bytes, sender.acked_ahead) = (0, None);
            if sender.recovery.take().is_some() {
                sink.fact(at, by, IbFact::NotRecovering);
            }
        }
    }

    /// The PSNs of an end went far away.
    #[cold]
    fn questions(&mut self, by: End) {
        let sender = &mut self.senders[by.index()];
        sender.told_before = sender.told_before.or(sender.told);
        self.is_in_question = true;
    }

    /// True if the PSNs of the requests of an end jumped since its last Send: what it sends may be of another connection.
    #[inline]
    pub fn has_jumped(&self, by: End) -> bool {
        self.senders[by.index()].has_jumped
    }

    /// True if an end is to send this PSN next.
    pub fn is_next(&self, by: End, psn: u32) -> bool {
        self.senders[by.index()].next == Some(psn)
    }

    /// A packet that comes next came before, with this PSN, to this queue pair, which is not its receiver's; its sender
    /// had to find out. `is_checked`: by its invariant CRC it was sent that way.
    #[cold]
    pub fn was_misaddressed<S: IbSink>(
        &mut self,
        by: End,
        (at, number, qp): (At, u32, u32),
        is_checked: bool,
        sink: &mut S,
    ) {
        sink.fact(at, by, IbFact::WrongQueuePair { qp, is_checked });
        let sender = &mut self.senders[by.index()];
        if sender.recovery.is_none() {
            sink.fact(at, by, IbFact::Recovering { since: at, psn: number, kind: Kind::Recovery, is_gap: false });
        }
        let recovery = sender.recovery.get_or_insert_with(|| Box::new(Recovery::new(at, psn::add(number, 1))));
        recovery.misaddressed();
    }

    /// True if the peer of an end acknowledged more of its requests than were seen.
    pub fn is_unseen(&self, by: End) -> bool {
        let sender = &self.senders[by.index()];
        sender.acked_ahead.is_some_and(|acked| sender.next.is_some_and(|next| psn::ahead(acked, next) >= 0))
    }

    /// Takes over the state of one direction from a flow that turned out to be half of this one.
    pub fn adopt(&mut self, by: End, from: &mut Self, from_end: End) {
        self.senders[by.index()] = core::mem::take(&mut from.senders[from_end.index()]);
        self.losses[by.index()] = from.losses[from_end.index()].take();
        self.icrc_good[by.index()] = from.icrc_good[from_end.index()];
        self.followed_bad[by.index()] = from.followed_bad[from_end.index()];
        self.mtu = self.mtu.or(from.mtu);
        self.is_mtu_seen |= from.is_mtu_seen;
    }

    /// A packet of `by` whose opcode nobody knows. If its number is the next one, it was a request, and took it.
    #[cold]
    pub fn passes(&mut self, at: At, by: End, number: u32) {
        let sender = &mut self.senders[by.index()];
        if sender.next != Some(number) || sender.recovery.is_some() || !sender.held.is_empty() {
            return;
        }
        (sender.open, sender.memory, sender.is_whole) = (None, None, false);
        (sender.last, sender.slack) = (at, 0);
        sender.cursor = psn::add(number, 1);
        sender.next = Some(sender.cursor);
    }

    /// One packet that `by` sent.
    pub fn packet<T: Trace, S: IbSink>(&mut self, at: At, by: End, packet: &IbPacket<'_>, t: &mut T, sink: &mut S) {
        let Some(row) = bth::Opcode(packet.bth.opcode).row() else { return };
        if !matches!(row.service, Service::Rc | Service::Uc | Service::Xrc) {
            return;
        }
        if !self.senders[0].held.is_empty() || !self.senders[1].held.is_empty() {
            self.expire(at, t, sink);
        }
        self.is_old = self.ids[by.index()].behind(packet.ip_id).is_some_and(|behind| behind >= OLD);
        if self.is_copy(at, by, packet, sink) {
            return;
        }
        let mark = mark_of(packet);
        if packet.bth.tver() != 0 || self.partition != Some(packet.bth.p_key) {
            self.unusual_header(at, by, packet, sink);
        }
        match packet.icrc {
            Check::Good => {
                self.icrc_good[by.index()] = self.icrc_good[by.index()].saturating_add(1);
                if core::mem::take(&mut self.followed_bad[by.index()]) && self.is_dropped(by) {
                    sink.fact(at, by, IbFact::FollowedDamaged);
                }
            }
            Check::Bad if self.is_dropped(by) => return self.damaged(at, by, packet, row, t, sink),
            Check::Bad => self.followed_bad[by.index()] = true,
            Check::Unchecked => {}
        }
        match row.verb {
            bth::Verb::Acknowledge | bth::Verb::AtomicAck => {
                // a copy of one is no second NAK
                let is_nak = !matches!(packet.ext.syndrome(), Some(Syndrome::Ack { .. }) | None);
                if is_nak && self.copies[by.index()].has(at, packet.bth.psn, mark, true, None) {
                    return sink.fact(at, by, IbFact::Duplicate);
                }
                self.acknowledge(at, by, packet, t, sink);
            }
            bth::Verb::ReadResponse => self.read_response(at, by, packet, row, t, sink),
            bth::Verb::Cnp | bth::Verb::Resync => return,
            _ => self.request(at, by, packet, row, t, sink),
        }
        self.copies[by.index()].add(at, packet.bth.psn, mark);
    }

    /// True if a mirror shows a packet once more, where it shows all of them twice.
    #[inline(always)]
    pub fn is_copy<S: IbSink>(&mut self, at: At, by: End, packet: &IbPacket<'_>, sink: &mut S) -> bool {
        let shown = self.doubles.add(at, by, [packet.bth.psn, mark_of(packet), packet.payload_length]);
        shown != Shown::First && self.is_shown_again(at, shown, by, sink)
    }

    #[cold]
    fn is_shown_again<S: IbSink>(&mut self, at: At, shown: Shown, by: End, sink: &mut S) -> bool {
        match shown {
            Shown::First => return false,
            Shown::Suspect => {
                self.suspect();
                sink.fact(at, by, IbFact::MayBeCopies);
                return false;
            }
            Shown::Mirrored => {
                self.forgive(at, sink);
                sink.fact(at, by, IbFact::WereCopies);
            }
            Shown::Again => {}
        }
        sink.fact(at, by, IbFact::Duplicate);
        true
    }

    /// A version that does not exist, or another partition than before (IBA 9.6.1.1, 10.9.3). Damaged packets say
    /// nothing.
    #[cold]
    fn unusual_header<S: IbSink>(&mut self, at: At, by: End, packet: &IbPacket<'_>, sink: &mut S) {
        /// The bit that tells full members of a partition from limited ones.
        const FULL: u16 = 0x8000;
        if packet.icrc == Check::Bad {
            return;
        }
        if packet.bth.tver() != 0 {
            return sink.fact(at, by, IbFact::Version(packet.bth.tver()));
        }
        let got = packet.bth.p_key;
        let expected = *self.partition.get_or_insert(got);
        if (got ^ expected) & !FULL != 0 {
            sink.fact(at, by, IbFact::Partition { expected, got });
        }
    }

    /// True if the receiver drops a packet of `by` whose invariant CRC is wrong. If none of them is right, the packets
    /// are captured before the adapter has written it; if the receiver takes them, it is written in another way.
    pub fn is_dropped(&self, by: End) -> bool {
        let is_known = self.sound[by.index()] || self.icrc_good[by.index()] > 0;
        is_known && self.taken_bad[by.index()] < TAKEN_BAD_MAX
    }

    /// A packet that its receiver drops: shown and counted, not followed. If the receiver acknowledges it all the same,
    /// it is.
    #[cold]
    fn damaged<T: Trace, S: IbSink>(
        &mut self,
        at: At,
        by: End,
        packet: &IbPacket<'_>,
        row: &'static Row,
        t: &mut T,
        sink: &mut S,
    ) {
        sink.fact(at, by, IbFact::Damaged);
        self.losses(by).damaged.add(at, 1);
        let bad = self.losses(by).damaged.count;
        if bad == ALL_CHANGED && are_changed(bad, self.icrc_good[by.index()], false) {
            // so many in a row are not damaged on the wire: nothing is known of what was sent
            sink.fact(at, by, IbFact::BeganLate);
        }
        if T::ON {
            sink.show(verb_of(row), part_of(row), packet.payload, t);
        }
        if row.verb == bth::Verb::ReadResponse {
            let requester = &mut self.senders[by.peer().index()];
            if requester.bad_responses.len() < GARBLED_MAX {
                requester.bad_responses.push_back((packet.bth.psn, at));
            }
            return;
        }
        if matches!(row.verb, bth::Verb::Acknowledge | bth::Verb::AtomicAck) {
            return;
        }
        let sender = &mut self.senders[by.index()];
        let Some(next) = sender.next else {
            if sender.unplaced.len() < GARBLED_MAX {
                sender.unplaced.push((packet.bth.psn, at));
            }
            return;
        };
        // the packet number itself may be damaged
        let ahead = psn::ahead(packet.bth.psn, next);
        if !(0..256).contains(&ahead) {
            return;
        }
        let request = Request {
            at,
            by,
            psn: packet.bth.psn,
            row,
            ext: &packet.ext,
            solicited: packet.bth.se(),
            payload: packet.payload,
            payload_length: packet.payload_length,
            in_frame: true,
            is_doubtful: packet.icrc == Check::Bad,
        };
        if !sender.held.iter().any(|h| h.psn == request.psn) {
            let is_shown = sink.is_shown(by, verb_of(row), part_of(row), packet.payload);
            sender.insert(&request, true, is_shown);
            if let Some(held) = sender.held.iter_mut().find(|h| h.psn == request.psn) {
                held.is_next = ahead == 0;
            }
        }
    }

    /// A damaged packet came again, undamaged.
    #[cold]
    fn mended(&mut self, by: End, held: &Held) {
        let losses = self.losses(by);
        if held.is_next || held.is_asked {
            losses.damaged_dropped.add(held.at, 1);
        } else {
            losses.damaged_again.add(held.at, 1);
        }
    }

    /// Outcome of the packets.
    pub fn loss_view(&self) -> LossView<'_> {
        let thrice = self.thrice.as_deref();
        LossView {
            losses: [self.losses[0].as_deref(), self.losses[1].as_deref()],
            good: self.icrc_good,
            is_tcp: false,
            is_mirrored: is_mirrored(
                self.requests.map(|(of, _)| of),
                self.requests.map(|(_, again)| again),
                tallied(thrice),
            ),
            copies_known: self.doubles.known(),
            thrice,
            may_be_mirrored: self.doubles.are_some()
                || may_be_mirrored(self.requests.map(|(of, _)| of), self.requests.map(|(_, again)| again)),
            stuck: self.sizes.each_ref().map(|[requests, responses]| {
                // who asks for Responses again does so by its timer, and not because others arrived
                let unasked = |stuck: Stuck| Stuck { is_small_behind: false, ..stuck };
                let stuck = requests.stuck().or_else(|| responses.stuck().map(unasked))?;
                let arrived = requests.largest().max(responses.largest()).max(stuck.arrived);
                (stuck.length > arrived || stuck.arrived >= stuck.length).then_some(Stuck { arrived, ..stuck })
            }),
            never_came: self.sizes.each_ref().map(|[requests, _]| requests.missing(self.mtu.unwrap_or(0), 1)),
        }
    }

    /// Counts a packet that appears in the capture again; one that appears for the third time, no mirror shows.
    #[cold]
    fn stands_again(&mut self, at: At, by: End, number: u32) {
        if self.copies[by.index()].times(number) > 1 {
            self.thrice.get_or_insert_default()[by.index()].add(at, 1);
        }
    }

    fn losses(&mut self, by: End) -> &mut Losses {
        self.losses[by.index()].get_or_insert_default()
    }

    /// Saves the classification of packets so far, because copies of a mirror may follow.
    #[cold]
    fn suspect(&mut self) {
        let recovers = [0, 1].map(|by| self.senders[by].recovery.is_some());
        self.before_copies = Some(Box::new((recovers, self.losses.clone())));
    }

    /// Goes back to the classification before there were copies: packets that seemed to be sent again were copies.
    #[cold]
    fn forgive<S: IbSink>(&mut self, at: At, sink: &mut S) {
        let (recovered, losses) = self.before_copies.take().map_or(([false; 2], [None, None]), |before| *before);
        (self.losses, self.thrice, self.requests) = (losses, None, [(0, 0); 2]);
        for by in End::BOTH {
            let sender = &mut self.senders[by.index()];
            (sender.late, sender.reread, sender.refilled) = (None, None, None);
            if sender.recovery.take_if(|_| !recovered[by.index()]).is_some() {
                sink.fact(at, by, IbFact::NotRecovering);
            }
        }
    }

    /// Bytes of packets that are held back.
    pub fn held(&self) -> usize {
        self.senders.iter().map(|sender| sender.held_bytes).sum()
    }

    /// The capture ends: held packets are reported as far as they are known.
    pub fn finish<S: IbSink>(&mut self, at: At, sink: &mut S) {
        while let Some(by) = self.longest_held() {
            self.skip_to_held(at, by, false, sink);
            self.drain(by, None, &mut Off, sink);
        }
        for by in End::BOTH {
            self.end_recovery(at, by, true, sink);
            if let Some(late) = self.senders[by.index()].late.take() {
                late.misplaced(self.losses(by));
                sink.fact(at, by, IbFact::Misplaced);
            }
            self.never_sent(by, sink);
            self.never_answered(at, by, sink);
        }
    }

    /// Reports Responses to Reads that were not captured although their requester had them: its peer acknowledged
    /// requests behind them, which it carries out in order, and they were not asked for again.
    fn never_answered<S: IbSink>(&mut self, at: At, by: End, sink: &mut S) {
        let sender = &self.senders[by.index()];
        let Some(acked) = sender.acked.filter(|_| sender.recovery.is_none()) else { return };
        let is_over = |read: &Read| (1..JUMP_MAX).contains(&psn::ahead(acked, psn::add(read.first, read.span - 1)));
        // what the capture point damaged is there
        let is_garbled = |read: &Read| {
            let end = psn::add(read.first, read.span);
            sender.bad_responses.iter().any(|(psn, _)| psn::is_within(*psn, read.first, end))
        };
        let is_missed = |read: &&Read| {
            read.span_known && read.span > 0 && read.again.is_none() && is_over(read) && !is_garbled(read)
        };
        let missed: u32 = sender.reads.iter().filter(is_missed).map(Read::missed).sum();
        if missed > 0 {
            sink.fact(at, by.peer(), IbFact::ResponsesMissed(missed));
        }
    }

    /// Reports acknowledgments of many packets that were never sent: nothing is missing of what was, and the sender goes
    /// on behind them with lower numbers. Without that, it is the capture that has no more of the sender.
    fn never_sent<S: IbSink>(&mut self, by: End, sink: &mut S) {
        /// Acknowledgments that are no accident.
        const SEVERAL: u32 = 3;
        let sender = &self.senders[by.index()];
        let (Some(next), Some(psn), (count, first, _)) = (sender.next, sender.acked_ahead, sender.acks_ahead) else {
            return;
        };
        let beyond = psn::ahead(psn, next).saturating_add(1);
        let repeated = self.losses[by.index()].as_ref().map_or(0, |losses| losses.repeated.last.frame);
        let goes_on = sender.last.frame.max(repeated) > first.frame;
        if sender.is_whole && goes_on && beyond >= BEYOND && count >= SEVERAL {
            // that the packets stand behind their acknowledgments is no fault of the capture
            self.losses(by).misplaced = Tally::default();
            sink.fact(first, by.peer(), IbFact::AckedUnsent { psn, beyond: beyond.unsigned_abs(), count });
        }
    }

    /// Held packets that waited too long are reported.
    pub fn expire<T: Trace, S: IbSink>(&mut self, at: At, t: &mut T, sink: &mut S) {
        while let Some(by) = self.longest_held() {
            if self.senders[by.index()].held.front().is_none_or(|h| at.time.saturating_sub(h.at.time) <= HELD_TIME_MAX)
            {
                return;
            }
            self.skip_to_held(at, by, false, sink);
            self.drain(by, None, t, sink);
        }
    }

    /// A recovery of `by`'s packets is over, if one was under way.
    #[cold]
    fn end_recovery<S: IbSink>(&mut self, at: At, by: End, over: bool, sink: &mut S) {
        let Some(recovery) = self.senders[by.index()].recovery.take() else { return };
        let over_by = self.round_trip[by.peer().index()].and_then(|way| recovery.over_by(way)).filter(|_| !over);
        let at = At { time: over_by.map_or(at.time, |time| at.time.min(time)), ..at };
        let is_expected = recovery.is_under_way() || recovery.is_not_ready();
        // if nothing of the peer was captured at all, its silence says nothing
        let peer_is_seen = self.is_opened
            || self.senders[by.index()].acked.is_some()
            || self.senders[by.peer().index()].last != At::default();
        let (ended, late) = recovery.end(at, over, self.losses(by));
        if let Some(late) = late
            && let Some(known) = self.senders[by.index()].late.replace(late)
        {
            known.misplaced(self.losses(by));
            sink.fact(at, by, IbFact::Misplaced);
        }
        // Responses to Reads that went by were answers, whatever became of them
        let answered = self.senders[by.index()].answered.1;
        let has_answered = |found: &Unanswered| !found.answered && answered > found.from.time;
        if !peer_is_seen || self.losses(by).unanswered.as_ref().is_some_and(has_answered) {
            self.losses(by).unanswered = None;
        }
        if let Some(found) = self.losses(by).unanswered.filter(|found| !found.answered) {
            let speaks = self.speaks(by, &found);
            let said = self.senders[by.peer().index()].last;
            let from = if speaks == Speaks::Not { found.from.max(said) } else { found.from };
            self.losses(by).unanswered = Some(Unanswered { speaks, from, ..found });
        }
        sink.fact(at, by, if is_expected { IbFact::Recovered { ended, over } } else { IbFact::NotRecovering });
    }

    /// Packets of its own that the peer of `by` sends, which acknowledges nothing of `by`.
    fn speaks(&self, by: End, found: &Unanswered) -> Speaks {
        let peer = by.peer().index();
        if self.senders[by.index()].acked.is_none() && self.requests[peer].0 >= SPEAKS {
            Speaks::Always
        } else if self.senders[peer].last.since(found.from) > found.lasted() / 8 || self.repeats(by.peer(), found) {
            Speaks::Meanwhile
        } else {
            Speaks::Not
        }
    }

    /// True if an end sent requests again while its peer was not answered.
    fn repeats(&self, by: End, found: &Unanswered) -> bool {
        let is_later = |at: At| at.since(found.from) > found.lasted() / 8;
        let under_way = self.senders[by.index()].recovery.as_ref().and_then(|recovery| recovery.last_again());
        let repeated = self.losses[by.index()].as_ref().map(|losses| losses.repeated.last);
        under_way.or(repeated).is_some_and(is_later)
    }

    /// The recovery that is under way, or one that begins.
    #[cold]
    fn recovery<S: IbSink>(&mut self, at: At, by: End, first: u32, kind: Kind, sink: &mut S) -> &mut Recovery {
        let sender = &mut self.senders[by.index()];
        // a packet that shows a gap was sent behind the missing ones; packets that are asked for, or go out again, were
        // sent by the last packet at the latest
        let shows_gap = sender.next == Some(first) && sender.cursor == first;
        let since = if sender.last == At::default() || shows_gap { at } else { sender.last };
        let newest = sender.cursor;
        if sender.recovery.is_none() {
            sink.fact(at, by, IbFact::Recovering { since, psn: first, kind, is_gap: shows_gap });
        }
        sender.recovery.get_or_insert_with(|| Box::new(Recovery::new(since, newest)))
    }

    /// The end whose first held packet came first: so that held packets come out in the order of the capture.
    fn longest_held(&self) -> Option<End> {
        End::BOTH
            .into_iter()
            .filter_map(|end| Some((self.senders[end.index()].held.front()?.at.frame, end)))
            .min()
            .map(|(_, end)| end)
    }

    fn request<T: Trace, S: IbSink>(
        &mut self,
        at: At,
        by: End,
        packet: &IbPacket<'_>,
        row: &'static Row,
        t: &mut T,
        sink: &mut S,
    ) {
        let number = packet.bth.psn;
        self.requests[by.index()].0 += 1;
        if !self.shows_mtu(matches!(row.part, bth::Part::First | bth::Part::Middle), packet.payload_length) {
            sink.fact(at, by, IbFact::BeyondMtu { length: packet.payload_length });
        }
        if !self.senders[by.index()].held.is_empty() && self.senders[by.index()].next != Some(number) {
            // packets that waited for their copies get none
            self.drain(by, None, t, sink);
        }
        let sender = &mut self.senders[by.index()];
        if sender.next.is_none() {
            sender.first = Some(number);
            if sender.began_late {
                // more of it may have come since it was acknowledged
                sink.fact(at, by, IbFact::BeganLate);
            }
        }
        let next = *sender.next.get_or_insert(number);
        let ahead = psn::ahead(number, next);
        if packet.bth.a() || row.verb == bth::Verb::ReadRequest && sender.asks.is_some() {
            sender.asks = Some(number);
        }
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
            is_doubtful: packet.icrc == Check::Bad,
        };
        let follows = number == sender.cursor;
        if ahead == 0 || (ahead > 0 && ahead as u32 <= sender.slack) {
            if sender.acked_ahead.is_some_and(|acked| psn::ahead(acked, number) >= 0) {
                self.misplaced(at, by, sink);
            }
            if !self.senders[by.index()].held.is_empty() {
                self.was_damaged(by, number, sink);
                self.was_misnumbered(&request, sink);
            }
            if self.senders[by.index()].recovery.is_some() {
                return self.recovers(&request, follows, mark_of(packet), t, sink);
            }
            self.take(&request, t, sink);
            let sender = &mut self.senders[by.index()];
            sender.cursor = sender.next.unwrap_or(number);
            if !sender.held.is_empty() {
                self.drain(by, None, t, sink);
            }
            return;
        }
        if !(-JUMP_MAX..=JUMP_MAX).contains(&ahead) {
            self.jumps(at, by, number, sink);
            self.take_late(&request, t, sink);
            let sender = &mut self.senders[by.index()];
            sender.cursor = sender.next.unwrap_or(number);
            return;
        }
        if ahead < 0 {
            self.requests[by.index()].1 += 1;
            self.stands_again(at, by, number);
            self.again(&request, follows, mark_of(packet), t, sink);
            return;
        }
        // early
        if row.service == Service::Uc || sender.last == At::default() {
            // unreliable: it will not be sent again; or the first packet seen: earlier ones were not captured
            let count = ahead as u32;
            let receiver_had_them =
                sender.acked.is_some_and(|acked| psn::ahead(acked, psn::add(number, psn::MASK)) >= 0);
            if receiver_had_them {
                sender.skip(next, count);
            }
            sink.fact(at, by, IbFact::Gap(Gap { at, by, count, receiver_had_them, is_asked: false }));
            sender.open = None;
            sender.is_whole = false;
            sender.next = Some(number);
            self.take_late(&request, t, sink);
            let sender = &mut self.senders[by.index()];
            sender.cursor = sender.next.unwrap_or(number);
            return;
        }
        let asked = self.senders[by.index()].asked_for(number);
        let copy = self.copies[by.index()].has(at, number, mark_of(packet), false, asked);
        self.hold(&request, ahead as u32, copy, t, sink);
        if T::ON {
            sink.show(verb_of(row), part_of(row), packet.payload, t);
        }
    }

    /// So much is missing before a packet that nobody knows how much, or the queue pairs are in use again: earlier state
    /// is useless.
    #[cold]
    fn jumps<S: IbSink>(&mut self, at: At, by: End, number: u32, sink: &mut S) {
        self.questions(by);
        let sender = &mut self.senders[by.index()];
        sender.held.clear();
        sender.held_bytes = 0;
        sender.skipped.clear();
        sender.garbled.clear();
        sender.bad_responses.clear();
        sender.filled.clear();
        sender.reads.clear();
        sender.jumped.clear();
        (sender.open, sender.memory, sender.is_whole, sender.has_jumped) = (None, None, false, true);
        (sender.next, sender.first, sender.slack) = (Some(number), Some(number), 0);
        (sender.acked, sender.acked_ahead, sender.acks_ahead) = (None, None, (0, At::default(), None));
        (sender.nak, sender.passed_over, sender.reread, sender.read_again) = (None, None, None, None);
        (sender.late, sender.refilled, sender.reads_done) = (None, None, None);
        sender.responses_missed = (Vec::new(), At::default());
        if sender.recovery.take().is_some() {
            sink.fact(at, by, IbFact::NotRecovering);
        }
        sink.fact(at, by, IbFact::Jumped);
    }

    /// A packet that had come damaged comes again, and nothing of its sender came in between: it had to wait for its
    /// timer.
    #[cold]
    fn was_damaged<S: IbSink>(&mut self, by: End, number: u32, sink: &mut S) {
        let sender = &mut self.senders[by.index()];
        let Some(damaged) =
            sender.held.front().filter(|h| h.is_damaged && h.psn == number && sender.recovery.is_none())
        else {
            return;
        };
        let newest = sender.held.iter().rev().find(|h| h.is_damaged).map_or(number, |h| h.psn);
        sender.recovery = Some(Box::new(Recovery::new(damaged.at, psn::add(newest, 1))));
        sink.fact(
            damaged.at,
            by,
            IbFact::Recovering { since: damaged.at, psn: number, kind: Kind::Recovery, is_gap: false },
        );
    }

    /// The packet before this one was far ahead, and is the same message: its number was wrong, and nothing is missing.
    #[cold]
    fn was_misnumbered<S: IbSink>(&mut self, request: &Request<'_>, sink: &mut S) {
        /// Bytes from which two messages are hardly the same by chance: those of SMB2 and RPC carry numbers.
        const OWN: usize = 64;
        /// Packets that hardly are lost together and come again alone.
        const FAR: i32 = 4;
        let sender = &mut self.senders[request.by.index()];
        let [held] = sender.held.make_contiguous() else { return };
        let is_same =
            core::ptr::eq(held.row, request.row) && held.payload == request.payload && request.payload.len() >= OWN;
        let is_message =
            matches!(verb_of(request.row), Verb::Send | Verb::SendInvalidate) && part_of(request.row).begins();
        let is_alone = sender.cursor == psn::add(held.psn, 1) && psn::ahead(held.psn, request.psn) >= FAR;
        if held.is_damaged || !is_same || !is_message || !is_alone {
            return;
        }
        let (at, psn) = (held.at, held.psn);
        (sender.held_bytes, sender.cursor) = (0, request.psn);
        sender.held.clear();
        if sender.recovery.take().is_some() {
            sink.fact(request.at, request.by, IbFact::NotRecovering);
        }
        sink.fact(at, request.by, IbFact::WrongNumber { psn, right: request.psn });
    }

    /// A packet stands behind its acknowledgment.
    #[cold]
    fn misplaced<S: IbSink>(&mut self, at: At, by: End, sink: &mut S) {
        self.losses(by).misplaced.add(at, 1);
        sink.fact(at, by, IbFact::Misplaced);
    }

    /// Settles packets that came late by themselves: their receiver acknowledges up to `number`, or has noticed and
    /// asks for it (`asked`).
    #[cold]
    fn settle_late<S: IbSink>(&mut self, at: At, by: End, number: u32, asked: bool, sink: &mut S) {
        let sender = &mut self.senders[by.index()];
        let Some(late) = sender.late else { return };
        if asked && late.psn == number {
            sender.late = None;
            self.recovery(at, by, number, Kind::Recovery, sink).came_late(late);
        } else if !asked && psn::ahead(number, late.psn) >= 0 {
            sender.late = None;
            late.misplaced(self.losses(by));
            sink.fact(at, by, IbFact::Misplaced);
        }
    }

    /// The request that is next, while a recovery is under way.
    #[cold]
    fn recovers<T: Trace, S: IbSink>(
        &mut self,
        request: &Request<'_>,
        follows: bool,
        mark: u32,
        t: &mut T,
        sink: &mut S,
    ) {
        let (at, by, number) = (request.at, request.by, request.psn);
        // the receiver threw the first copy away, behind the missing packets: it takes this one
        let is_again = self.senders[by.index()].held.front().is_some_and(|h| h.psn == number && !h.is_damaged);
        self.requests[by.index()].1 += u64::from(is_again);
        let asked = self.senders[by.index()].asked_for(number);
        if is_again && self.copies[by.index()].has(at, number, mark, false, asked) {
            sink.fact(at, by, IbFact::Duplicate);
            // whichever of the two it is, the receiver has it now
            self.drain(by, Some(at), t, sink);
            return self.is_back(at, by, number, sink);
        }
        if is_again {
            self.stands_again(at, by, number);
            let of = self.copies[by.index()].frame_of(at, number);
            sink.fact(at, by, IbFact::Retransmission { of });
        }
        let mended = self.senders[by.index()].held.front().is_some_and(|h| h.psn == number && h.is_damaged);
        if mended && let Some(recovery) = self.senders[by.index()].recovery.as_mut() {
            recovery.mends();
        }
        self.sent_in_recovery(request, follows, !is_again && !mended, sink);
        let goes_back = self.senders[by.index()].recovery.as_ref().is_some_and(|r| r.goes_back(number));
        self.take_late(request, t, sink);
        let sender = &mut self.senders[by.index()];
        sender.cursor = sender.next.unwrap_or(number);
        if sender.held.front().is_some_and(|h| sender.next.is_some_and(|next| psn::ahead(h.psn, next) < 0)) {
            // the copy that was thrown away
            if let Some(gone) = sender.held.pop_front() {
                sender.held_bytes -= gone.payload.len();
                if gone.is_damaged {
                    self.mended(by, &gone);
                }
            }
        }
        if !self.senders[by.index()].held.is_empty() && !goes_back {
            self.drain(by, Some(at), t, sink);
        }
        self.is_back(at, by, number, sink);
    }

    /// A request that came before: a copy, or sent again.
    #[cold]
    fn again<T: Trace, S: IbSink>(&mut self, request: &Request<'_>, follows: bool, mark: u32, t: &mut T, sink: &mut S) {
        let (at, by, number, row) = (request.at, request.by, request.psn, request.row);
        if self.is_off(by, number) {
            self.questions(by);
        }
        let sender = &mut self.senders[by.index()];
        if sender.is_before(number) {
            // from before the capture's first: it may have gone first, or go again
            if T::ON {
                sink.show_late(verb_of(row), part_of(row), request.payload, t);
            }
            return;
        }
        if let Some(place) = sender.garbled.iter().position(|(psn, ..)| *psn == number)
            && let Some((_, damaged, acked)) = sender.garbled.remove(place)
        {
            // it is sent again: if that was before its acknowledgment, its receiver had dropped it; else nothing shows
            let losses = self.losses(by);
            losses.damaged_taken.retract_at(damaged);
            if at.time.saturating_sub(acked) <= BEHIND_MAX {
                losses.damaged_dropped.add(damaged, 1);
                if T::ON {
                    sink.show_late(verb_of(row), part_of(row), request.payload, t);
                }
                return self.misplaced(at, by, sink);
            }
        }
        let sender = &mut self.senders[by.index()];
        if sender.unskip(number) {
            // given up as not captured: here it is, behind its acknowledgment
            if T::ON {
                sink.show_late(verb_of(row), part_of(row), request.payload, t);
            }
            sink.fact(at, by, IbFact::Found(1));
            return self.misplaced(at, by, sink);
        }
        let next = sender.next.unwrap_or(number);
        let close = at.time.saturating_sub(sender.last.time) <= COPY_TIME_MAX;
        let copy = psn::ahead(number, next) == -1 && sender.recovery.is_none() && close;
        let calm = sender.recovery.as_ref().is_none_or(|r| !r.is_under_way());
        let asked = sender.asked_for(number);
        let copy = copy || self.copies[by.index()].has(at, number, mark, calm, asked);
        // if a NAK asked for it, one of the two came late, and the other was sent again
        let copy = copy && (mark >> 16 != 0 || !sender.recovery.as_ref().is_some_and(|r| r.came_just_now(number)));
        let of = self.copies[by.index()].frame_of(at, number);
        sink.fact(at, by, if copy { IbFact::Duplicate } else { IbFact::Retransmission { of } });
        if T::ON {
            sink.show(verb_of(row), part_of(row), request.payload, t);
        }
        if copy {
            return;
        }
        let sender = &mut self.senders[by.index()];
        let is_acked = sender.acked.is_some_and(|acked| psn::ahead(acked, number) >= 0);
        // a packet that was missing, asked for and sent again comes now from where it was held up: it had not been lost
        if self.is_old {
            // it was sent first and held up, and the copy that came before it was sent again
            let gap = sender.filled.iter().find(|(psn, _)| *psn == number).map_or(at, |(_, gap)| *gap);
            let losses = self.losses(by);
            losses.overtaken.add(at, 1);
            losses.delay = losses.delay.max(at.time.saturating_sub(gap.time));
            return;
        }
        let late = sender.recovery.as_ref().is_none_or(|r| !r.is_under_way()) && is_acked && !follows;
        if late
            && let Some(place) = sender
                .filled
                .iter()
                .position(|(psn, gap)| *psn == number && at.time.saturating_sub(gap.time) < LATE_MAX)
        {
            let gap = sender.filled.remove(place).map_or(at, |(_, gap)| gap);
            let losses = self.losses(by);
            losses.lost_before.retract();
            losses.overtaken.add(at, 1);
            losses.delay = losses.delay.max(at.time.saturating_sub(gap.time));
            return;
        }
        let recovery = self.recovery(at, by, number, Kind::Recovery, sink);
        let why = match (recovery.is_asked(), recovery.has_come(number)) {
            (false, _) => Why::Timer,
            (true, false) => Why::Asked,
            (true, true) => Why::AskedBefore,
        };
        let sequence = sequence_of_psn(number);
        sink.again(at, by, sequence, why);
        self.sizes[by.index()][REQUESTS].again(at, (sequence, sequence), request.payload_length);
        self.sent_in_recovery(request, follows, false, sink);
        let sender = &mut self.senders[by.index()];
        // a Read takes as many numbers as its answer has packets
        let behind = sender
            .read_again
            .filter(|_| row.verb == bth::Verb::ReadRequest && self.mtu.is_some())
            .map(|(_, behind, _)| behind);
        sender.cursor = behind.unwrap_or(psn::add(number, 1));
    }

    /// `by` asks again for Responses that went by, and did not arrive.
    fn asks_again(&mut self, at: At, by: End) {
        let losses = self.losses(by.peer());
        losses.asked_again += 1;
        losses.lost_behind.add(at, 1);
    }

    /// A request while a recovery is under way.
    #[cold]
    fn sent_in_recovery<S: IbSink>(&mut self, request: &Request<'_>, follows: bool, is_first: bool, sink: &mut S) {
        let Request { at, by, psn: number, row, payload_length: bytes, .. } = *request;
        if let Some((asked, _)) = self.senders[by.index()].reread.take().filter(|(_, behind)| *behind == number) {
            self.asks_again(asked, by);
        }
        let way = self.round_trip[by.index()].unwrap_or(0);
        let sender = &mut self.senders[by.index()];
        sender.goes_again(number);
        let acknowledged = sender.acked.is_some_and(|acked| psn::ahead(acked, number) >= 0);
        let mut reread = false;
        if row.verb == bth::Verb::ReadRequest && !is_first {
            let done = sender.reads_done.is_some_and(|done| psn::ahead(number, done) < 0);
            let within = |r: &&mut Read| (0..r.span as i32).contains(&psn::ahead(number, r.first));
            let read = sender.reads.iter_mut().find(within);
            let had_all = read.as_ref().is_none_or(|r| r.missing.is_empty() && r.is_done);
            let lacks = read.as_ref().is_some_and(|r| !r.missing.is_empty());
            let passed =
                done || read.as_ref().is_some_and(|r| psn::ahead(r.next, number) > 0 && !r.missing.contains(&number));
            let mut late = (0, at, 0);
            let asked_lately = |(from, to, asked): (u32, u32, At)| {
                psn::is_within(number, from, to) && at.since(asked) <= way.saturating_add(ASKS_AGAIN)
            };
            // its Response is lost to its sender: later packets were acknowledged
            let is_passed_over = sender.passed_over.is_some_and(asked_lately);
            reread = done || is_passed_over || read.as_ref().is_some_and(|r| r.received > 0);
            let is_asked = is_passed_over
                || sender.nak.is_some_and(asked_lately)
                || sender.recovery.as_ref().is_some_and(|r| r.is_asked());
            // it was on its way already when they went by
            let is_crossing = at.time.saturating_sub(sender.answered.1) < way;
            if let Some(read) = read {
                read.again = Some(at);
                if !is_asked && reread && !read.is_done && read.gap == At::default() {
                    // its sender had waited long enough for the rest
                    read.gap = at;
                }
                late = core::mem::take(&mut read.late);
            }
            if late.0 > 0 {
                let losses = self.losses(by.peer());
                losses.overtaken.add(late.1, late.0.into());
                losses.delay = losses.delay.max(late.2);
            }
            let mtu = self.mtu.unwrap_or(MTU_LEAST);
            let behind = psn::add(number, request.ext.reth.map_or(1, |reth| reth.dma_length.div_ceil(mtu).max(1)));
            // the first Response that is asked for went by long enough ago to be known there
            let is_past =
                passed && way > 0 && self.senders[by.index()].passed_ago(at, number) > way - way / 8 - HELD_BACK;
            let sender = &mut self.senders[by.index()];
            // those that went by are counted once, however often they are asked for
            let is_past = is_past && sender.read_again.is_none_or(|(earlier, ..)| earlier != number);
            sender.read_again = Some((number, behind, at));
            // the requester had not received those that were given up as not captured
            let is_wanted = |psn: &u32| psn::is_within(*psn, number, behind);
            let wanted = sender.responses_missed.0.extract_if(.., |psn| is_wanted(psn)).count() as u32;
            if wanted > 0 {
                self.losses(by.peer()).lost_before.add(at, wanted.into());
                sink.fact(at, by.peer(), IbFact::Found(wanted));
            }
            let sender = &mut self.senders[by.index()];
            if follows || lacks || wanted > 0 {
                // the sender went back to one before it, or for one behind it that did not come by here either
                self.losses(by.peer()).asked_again += u64::from(!follows);
            } else if !(reread && had_all && !is_asked) || is_crossing {
                if is_past {
                    self.losses(by.peer()).went_by.add(at, 1);
                }
                self.losses(by.peer()).asked_again += u64::from(!(reread && had_all && is_crossing));
            } else if sender.next == Some(behind) {
                // its Responses went by here, and did not arrive, if this is where the sender goes on from
                self.asks_again(at, by);
            } else {
                sender.reread = Some((at, behind));
                if is_past {
                    self.losses(by.peer()).went_by.add(at, 1);
                }
            }
        }
        let heard = self.senders[by.peer().index()].last;
        let sender = &self.senders[by.index()];
        // it spoke late enough to have received the packets that it did not acknowledge
        let spoke =
            self.round_trip[by.peer().index()].is_some_and(|took| heard.time.saturating_sub(took) > sender.last.time);
        // and it was asked to
        let spoke = spoke && sender.asks.is_none_or(|asks| psn::ahead(asks, number) >= 0);
        let sender = &mut self.senders[by.index()];
        let Some(recovery) = sender.recovery.as_mut() else { return };
        if psn::ahead(number, recovery.newest()) >= 0 {
            // new: the recovery ends when it is taken
            return;
        }
        let way = self.round_trip[by.index()].unwrap_or(0);
        let is_old = self.is_old;
        let measure = recovery.sent(&Sent {
            at,
            psn: number,
            follows,
            is_first,
            acknowledged,
            reread,
            spoke,
            bytes,
            is_old,
            way,
        });
        if is_first && !is_old {
            let begin = recovery.begin();
            if sender.filled.len() >= FILLED_MAX {
                sender.filled.pop_front();
            }
            sender.filled.push_back((number, begin));
        }
        if let Some(measure) = measure {
            sink.fact(at, by, IbFact::Measured(measure));
        }
    }

    /// Ends the recovery if the sender is back where it was before, now that a packet was taken.
    #[cold]
    fn is_back<S: IbSink>(&mut self, at: At, by: End, number: u32, sink: &mut S) {
        let sender = &mut self.senders[by.index()];
        if let Some(recovery) = sender.recovery.as_mut().filter(|r| r.awaits_round()) {
            return recovery.reach(psn::add(number, 1));
        }
        if sender.held.is_empty() && sender.recovery.as_ref().is_some_and(|r| psn::ahead(number, r.newest()) >= 0) {
            self.end_recovery(at, by, false, sink);
        }
    }

    #[cold]
    fn hold<T: Trace, S: IbSink>(&mut self, request: &Request<'_>, missing: u32, copy: bool, t: &mut T, sink: &mut S) {
        let (at, by, number) = (request.at, request.by, request.psn);
        if missing > NEAR.unsigned_abs() {
            self.questions(by);
        }
        let sender = &mut self.senders[by.index()];
        let follows = number == sender.cursor;
        let known = sender.held.iter().position(|h| h.psn == number);
        let is_first = known.is_none_or(|place| sender.held[place].is_damaged);
        self.requests[by.index()].1 += u64::from(known.is_some());
        if copy && !is_first {
            return sink.fact(at, by, IbFact::Duplicate);
        }
        if let Some(place) = known {
            if is_first {
                // the copy that is whole counts
                sender.held_bytes -= sender.held[place].payload.len();
                if let Some(gone) = sender.held.remove(place) {
                    self.mended(by, &gone);
                }
            } else {
                // the receiver threw the first one away: this is the one that it takes
                sender.held[place].at = at;
                self.stands_again(at, by, number);
                let of = self.copies[by.index()].frame_of(at, number);
                sink.fact(at, by, IbFact::Retransmission { of });
            }
        }
        if self.senders[by.index()].held.iter().all(|h| h.is_damaged) {
            sink.fact(at, by, IbFact::SequenceGap { missing });
        }
        let newest = self.senders[by.index()].recovery.as_ref().map_or(self.senders[by.index()].cursor, |r| r.newest());
        let jump = psn::ahead(number, newest);
        if jump > 0 || self.senders[by.index()].recovery.is_none() {
            let first = self.senders[by.index()].next.unwrap_or(number);
            let recovery = self.recovery(at, by, first, Kind::Recovery, sink);
            recovery.misses(first);
            recovery.jumped(at, jump.max(0) as u32, psn::add(number, 1));
        } else if jump < 0 {
            self.sent_in_recovery(request, follows, is_first, sink);
        } else if let Some(recovery) = self.senders[by.index()].recovery.as_mut() {
            recovery.reach(psn::add(number, 1));
        }
        let sender = &mut self.senders[by.index()];
        sender.cursor = psn::add(number, 1);
        if !is_first {
            return;
        }
        let is_shown = sink.is_shown(by, verb_of(request.row), part_of(request.row), request.payload);
        sender.insert(request, false, is_shown);
        if sender.acked_ahead.is_some_and(|a| sender.next.is_some_and(|n| psn::ahead(a, n) >= 0)) {
            self.skip_acknowledged(at, by, t, sink);
        }
        let sender = &self.senders[by.index()];
        if sender.held.len() > HELD_PACKETS_MAX || sender.held_bytes > HELD_BYTES_MAX {
            self.skip_to_held(at, by, false, sink);
            self.drain(by, None, t, sink);
        }
    }

    /// Missing packets were acknowledged: the capture lost them, and those behind them need not wait.
    #[cold]
    fn skip_acknowledged<T: Trace, S: IbSink>(&mut self, at: At, by: End, t: &mut T, sink: &mut S) {
        self.skip_to_held(at, by, true, sink);
        self.drain(by, None, t, sink);
        let sender = &self.senders[by.index()];
        if sender.held.is_empty() && sender.recovery.as_ref().is_some_and(|r| r.is_needless()) {
            self.end_recovery(at, by, false, sink);
        }
    }

    /// Gives up missing packets before the first held one: all of them, or those that were acknowledged if
    /// `receiver_had_them`. Those behind the acknowledgment may still come.
    #[cold]
    fn skip_to_held<S: IbSink>(&mut self, at: At, by: End, receiver_had_them: bool, sink: &mut S) {
        let mtu = self.mtu;
        let sender = &mut self.senders[by.index()];
        while !receiver_had_them && sender.held.front().is_some_and(|h| h.is_damaged) {
            if let Some(dropped) = sender.held.pop_front() {
                sender.held_bytes -= dropped.payload.len();
            }
        }
        let (Some(next), Some(first)) = (sender.next, sender.held.front()) else { return };
        let missing = psn::ahead(first.psn, next);
        let acknowledged =
            sender.acked_ahead.filter(|_| receiver_had_them).map(|acked| psn::ahead(acked, next).saturating_add(1));
        let count = acknowledged.map_or(missing, |acknowledged| acknowledged.min(missing));
        if count <= 0 {
            return;
        }
        let is_inside = count < missing || verb_of(first.row) == Verb::Write && !part_of(first.row).begins();
        let behind = psn::add(next, count as u32);
        let is_asked = !receiver_had_them && sender.nak.is_some_and(|(asked, ..)| psn::is_within(asked, next, behind));
        let gap = Gap { at: first.at, by, count: count as u32, receiver_had_them, is_asked };
        if is_asked {
            self.sizes[by.index()][REQUESTS].never_came(gap.at, gap.count);
        }
        sink.fact(at, by, IbFact::Gap(gap));
        if receiver_had_them {
            sender.skip(next, gap.count);
            if let Some(recovery) = sender.recovery.as_mut() {
                recovery.arrived(gap.count, behind);
            }
        }
        (sender.next, sender.slack) = (Some(behind), sender.slack.saturating_sub(gap.count));
        sender.is_whole = false;
        sender.has_jumped |= gap.count > NEAR.unsigned_abs();
        let hole = u64::from(mtu.unwrap_or(0)) * u64::from(gap.count);
        let goes_on = sender.open == Some(Verb::Write) && is_inside;
        let is_open = sender.whole.is_some_and(|whole| u64::from(sender.offset) + hole < u64::from(whole));
        match sender.memory {
            // the same Write behind the hole: its packets are all as long as the MTU
            Some((key, address)) if goes_on && is_open && hole > 0 => {
                sender.memory = Some((key, address.wrapping_add(hole)));
                sender.offset = sender.offset.wrapping_add(hole as u32);
                sender.has_hole = true;
            }
            _ => {
                sender.open = None;
                sender.memory = None;
            }
        }
    }

    /// The packet that is next was not captured as its receiver had it, but damaged. If its receiver had asked for it,
    /// it came again, and that copy was not captured.
    #[cold]
    fn skip_damaged<S: IbSink>(&mut self, at: At, by: End, held: &Held, sink: &mut S) {
        let sender = &mut self.senders[by.index()];
        (sender.open, sender.memory, sender.is_whole) = (None, None, false);
        let behind = psn::add(held.psn, 1);
        sender.next = Some(behind);
        if verb_of(held.row) == Verb::ReadRequest {
            // its length may be wrong: the number of PSNs of its responses is not known
            sender.slack = READ_UNKNOWN;
        }
        if let Some(recovery) = sender.recovery.as_mut() {
            recovery.arrived(1, behind);
        }
        let gap = Gap { at, by, count: 1, receiver_had_them: true, is_asked: false };
        if held.is_asked {
            sender.skip(held.psn, 1);
            self.losses(by).damaged_dropped.add(held.at, 1);
            return sink.fact(at, by, IbFact::Gap(gap));
        }
        self.garbled(at, by, (held.psn, held.at), sink);
    }

    /// The receiver had a damaged packet, its PSN and the place of its capture, undamaged.
    #[cold]
    fn garbled<S: IbSink>(&mut self, at: At, by: End, (number, damaged): (u32, At), sink: &mut S) {
        let garbled = &mut self.senders[by.index()].garbled;
        if garbled.len() >= GARBLED_MAX {
            garbled.pop_front();
        }
        garbled.push_back((number, damaged, at.time));
        self.losses(by).damaged_taken.add(damaged, 1);
        sink.fact(at, by, IbFact::Garbled(Gap { at, by, count: 1, receiver_had_them: true, is_asked: false }));
    }

    /// The receiver acknowledges a packet of a sender of which nothing undamaged was seen. Returns true if it is one
    /// that came damaged: this is where the sender is.
    #[cold]
    fn finds_damaged<S: IbSink>(&mut self, at: At, by: End, number: u32, sink: &mut S) -> bool {
        let sender = &mut self.senders[by.index()];
        if !sender.unplaced.iter().any(|(psn, _)| *psn == number) {
            return false;
        }
        let unplaced = core::mem::take(&mut sender.unplaced);
        (sender.next, sender.cursor) = (Some(psn::add(number, 1)), psn::add(number, 1));
        sender.first = unplaced.first().map(|(psn, _)| *psn);
        for found in unplaced.into_iter().filter(|(psn, _)| (0..JUMP_MAX).contains(&psn::ahead(number, *psn))) {
            self.garbled(at, by, found, sink);
        }
        true
    }

    /// Emits held packets that are next now, to the observer of the frame that makes them the next. `released`: time at
    /// which the receiver could take them, if that was later than their capture.
    fn drain<T: Trace, S: IbSink>(&mut self, by: End, released: Option<At>, t: &mut T, sink: &mut S) {
        loop {
            let sender = &mut self.senders[by.index()];
            let Some(next) = sender.next else { return };
            let Some(front) = sender.held.front() else { return };
            let ahead = psn::ahead(front.psn, next);
            if ahead > 0 && ahead as u32 > sender.slack {
                return;
            }
            let is_acked = || sender.acked_ahead.is_some_and(|acked| psn::ahead(acked, front.psn) >= 0);
            if ahead >= 0 && front.is_damaged && !is_acked() {
                return;
            }
            let Some(held) = sender.held.pop_front() else { return };
            sender.held_bytes -= held.payload.len();
            if ahead < 0 {
                if held.is_damaged {
                    self.mended(by, &held);
                }
                continue;
            }
            let request = Request {
                at: released.map_or(held.at, |released| released.max(held.at)),
                by,
                psn: held.psn,
                row: held.row,
                ext: &held.ext,
                solicited: held.solicited,
                payload: &held.payload,
                payload_length: held.payload_length,
                in_frame: false,
                is_doubtful: held.is_doubtful,
            };
            if held.is_doubtful {
                sink.fact(request.at, by, IbFact::Doubtful);
            }
            if held.is_damaged && (self.sound[by.index()] || self.icrc_good[by.index()] >= ICRC_TRUSTED) {
                // the receiver had it undamaged: this one, or another
                self.skip_damaged(request.at, by, &held, sink);
                continue;
            }
            if held.is_damaged {
                self.taken_bad[by.index()] += 1;
                self.followed_bad[by.index()] = true;
                self.losses(by).damaged.retract();
            }
            let (verb, part) = (verb_of(held.row), part_of(held.row));
            let is_send = matches!(verb, Verb::Send | Verb::SendInvalidate);
            if T::ON && is_send && !(held.is_shown && sink.is_shown(by, verb, part, &held.payload)) {
                self.take_late(&request, t, sink);
            } else {
                self.take_late(&request, &mut Off, sink);
            }
        }
    }

    /// [`IbFlow::take`] for those that are rare.
    #[cold]
    fn take_late<T: Trace, S: IbSink>(&mut self, request: &Request<'_>, t: &mut T, sink: &mut S) {
        self.take(request, t, sink);
    }

    /// The request that is next: becomes an operation.
    #[inline(always)]
    fn take<T: Trace, S: IbSink>(&mut self, request: &Request<'_>, t: &mut T, sink: &mut S) {
        let mtu = self.mtu;
        let sender = &mut self.senders[request.by.index()];
        let verb = verb_of(request.row);
        let part = part_of(request.row);
        if sender.slack > 0 {
            // the Responses to a Read end before the next request
            for read in sender.reads.iter_mut().filter(|read| !read.span_known) {
                let most = psn::ahead(request.psn, read.first).max(1).unsigned_abs();
                read.span = read.span.min(most);
            }
        }
        let number = sequence_of_psn(request.psn);
        self.sizes[request.by.index()][REQUESTS].sent((number, number), request.payload_length);
        // a requester that goes on has the Responses to what it asked for before
        self.sizes[request.by.peer().index()][RESPONSES].arrived(sequence_of_psn(psn::add(request.psn, psn::MASK)));
        sender.slack = 0;
        sender.last = request.at;
        if sender.is_whole && part.begins() == sender.open.is_some() {
            let open = sender.open.is_some();
            sink.fact(request.at, request.by, IbFact::OutOfOrder { verb, part, open });
        }
        if part.begins() {
            sender.offset = 0;
            sender.open = Some(verb);
            sender.memory = None;
            sender.has_hole = false;
            sender.whole = request.ext.reth.map(|r| r.dma_length);
            sender.has_jumped &= !matches!(verb, Verb::Send | Verb::SendInvalidate);
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
                        sender.is_whole &= most == 1;
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
                        missing: Vec::new(),
                        gap: At::default(),
                        late: (0, At::default(), 0),
                        again: None,
                        asked: request.at,
                        answered_before: sender.reads_answered,
                        is_done: false,
                    });
                    let outstanding = sender.reads.iter().filter(|read| !read.is_done).count() as u32;
                    sink.fact(request.at, request.by, IbFact::ReadsOutstanding(outstanding));
                    Placement::Memory { key: reth.r_key, address: reth.virtual_address }
                }
                None => {
                    // its length was cut off: the number of PSNs of its responses is not known
                    sender.slack = READ_UNKNOWN;
                    sender.is_whole = false;
                    Placement::Unknown
                }
            },
            _ => match request.ext.atomic {
                Some(atomic) => Placement::Memory { key: atomic.r_key, address: atomic.virtual_address },
                None => Placement::Unknown,
            },
        };
        let before = sender.offset;
        sender.offset = sender.offset.wrapping_add(request.payload_length);
        if let Some(said) = sender.whole.filter(|_| verb == Verb::Write && known && !sender.has_hole) {
            let sent = sender.offset;
            if before <= said && sent > said || part.ends() && sent < said {
                sink.fact(request.at, request.by, IbFact::OtherLength { said, sent, part });
            }
        }
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
        sink.sequence(request.by, sequence_of_psn(request.psn));
        sink.op(&op, t);
    }

    fn acknowledge<T: Trace, S: IbSink>(&mut self, at: At, by: End, packet: &IbPacket<'_>, t: &mut T, sink: &mut S) {
        let number = packet.bth.psn;
        let requester = by.peer();
        match packet.ext.syndrome() {
            Some(Syndrome::Nak(code)) => {
                sink.fact(at, by, IbFact::Nak { code: code.0, psn: number });
                if !self.has_begun(at, requester, psn::add(number, psn::MASK), sink) {
                    return;
                }
                let sizes = &mut self.sizes[requester.index()][REQUESTS];
                sizes.arrived(sequence_of_psn(psn::add(number, psn::MASK)));
                sizes.asked(sequence_of_psn(number));
                // a packet from before the first one seen was lost on an unknown side, or not at all
                if code.0 == 0 && !self.senders[requester.index()].is_before(number) {
                    let sender = &mut self.senders[requester.index()];
                    sender.nak = sender.next.map(|next| (number, sender.behind_held().unwrap_or(next), at));
                    if let Some(held) = self.senders[requester.index()].held.iter_mut().find(|h| h.psn == number) {
                        held.is_asked = true;
                    }
                    self.settle_late(at, requester, number, true, sink);
                    let is_lost_again = self.senders[requester.index()].is_lost_again(number);
                    let recovery = self.recovery(at, requester, number, Kind::Recovery, sink);
                    if is_lost_again {
                        recovery.lost_again();
                    }
                    if let Some(took) = recovery.asked(at, number) {
                        sink.fact(at, by, IbFact::Measured(Measure::Nak(took)));
                    }
                }
                // a Read that was refused was asked for while those were outstanding that were answered meanwhile
                let sender = &self.senders[requester.index()];
                if code.0 != 0
                    && let Some(read) = sender.reads.iter().find(|read| read.first == number && read.received == 0)
                {
                    let outstanding = sender.reads_answered.wrapping_sub(read.answered_before).saturating_add(1);
                    sink.fact(at, requester, IbFact::ReadsAnswered { asked: read.asked, outstanding });
                }
                // everything before it arrived
                self.acknowledged(at, requester, psn::add(number, psn::MASK), t, sink);
            }
            Some(Syndrome::RnrNak { timer }) => {
                // it arrived, and was not taken
                self.sizes[requester.index()][REQUESTS].arrived(sequence_of_psn(number));
                let of = self.operation_at(requester, number);
                sink.fact(at, by, IbFact::RnrNak { timer, psn: number, of });
                if !self.has_begun(at, requester, psn::add(number, psn::MASK), sink) {
                    return;
                }
                let wait = i64::from(rnr_timer(timer)) * 1000;
                self.recovery(at, requester, number, Kind::Rnr, sink).not_ready(at, wait);
                self.acknowledged(at, requester, psn::add(number, psn::MASK), t, sink);
            }
            Some(Syndrome::Ack { .. }) | None => {
                self.takes_back(requester, packet, sink);
                if !self.has_begun(at, requester, number, sink) {
                    return;
                }
                if self.senders[requester.index()].late.is_some() {
                    self.settle_late(at, requester, number, false, sink);
                }
                self.senders[requester.index()].passes_over(at, number);
                self.acknowledged(at, requester, number, t, sink);
                let sender = &mut self.senders[requester.index()];
                let msn = msn_of(packet).filter(|_| packet.icrc != Check::Bad);
                if sender.acked_ahead == Some(number) {
                    sender.acks_ahead.2 = msn;
                }
                sender.told = msn.map(|msn| Told { psn: number, msn, time: at.time }).or(sender.told);
            }
            Some(_) => {}
        }
    }

    /// The receiver has all packets up to this one. False if none of them was seen, so that nothing is known of their
    /// sender: what it sent was not captured, and nothing tells which packets a NAK makes it send again.
    fn has_begun<S: IbSink>(&mut self, at: At, requester: End, number: u32, sink: &mut S) -> bool {
        let has_begun =
            self.senders[requester.index()].next.is_some() || self.finds_damaged(at, requester, number, sink);
        if !has_begun {
            self.senders[requester.index()].began_late = true;
            sink.fact(at, requester, IbFact::BeganLate);
        }
        has_begun
    }

    /// The request that a packet of an end belongs to, if that is known: one of the last packets, one that is held, or a
    /// Read.
    #[cold]
    fn operation_at(&self, requester: End, number: u32) -> Option<Operation> {
        let sender = &self.senders[requester.index()];
        let held = || sender.held.iter().find(|held| held.psn == number && !held.is_damaged).map(|held| held.row);
        let seen = || bth::Opcode(self.copies[requester.index()].opcode_of(number)?).row();
        if let Some(row) = held().or_else(seen).filter(|row| row.is_request()) {
            let verb = verb_of(row);
            let takes_receive = matches!(verb, Verb::Send | Verb::SendInvalidate) || row.immediate();
            return Some(Operation { verb, takes_receive });
        }
        let is_inside = |read: &Read| (0..read.span as i32).contains(&psn::ahead(number, read.first));
        let verb = Verb::ReadRequest;
        sender.reads.iter().any(is_inside).then_some(Operation { verb, takes_receive: false })
    }

    /// An acknowledgment is for all packets before it, so that a later one, by its MSN, is not for fewer (IBA volume 1,
    /// 9.7.7.1). Where it is, the one before was for packets that were never sent: it means nothing.
    fn takes_back<S: IbSink>(&mut self, requester: End, packet: &IbPacket<'_>, sink: &mut S) {
        let sender = &mut self.senders[requester.index()];
        let (Some(next), Some(psn), (count, first, Some(last))) = (sender.next, sender.acked_ahead, sender.acks_ahead)
        else {
            return;
        };
        let (number, msn) = (packet.bth.psn, msn_of(packet));
        let beyond = psn::ahead(psn, next).saturating_add(1);
        let is_later = msn.is_some_and(|msn| psn::ahead(msn, last) > 0);
        if packet.icrc == Check::Bad || beyond < BEYOND || psn::ahead(number, next) >= 0 || !is_later {
            return;
        }
        (sender.acked_ahead, sender.acks_ahead, sender.acked) = (None, (0, At::default(), None), Some(number));
        self.losses(requester).misplaced = Tally::default();
        let fact = IbFact::AckedUnsent { psn, beyond: beyond.unsigned_abs(), count };
        sink.fact(first, requester.peer(), fact);
    }

    fn acknowledged<T: Trace, S: IbSink>(&mut self, at: At, requester: End, number: u32, t: &mut T, sink: &mut S) {
        let sender = &mut self.senders[requester.index()];
        let Some(next) = sender.next else { return };
        if sender.acked.is_none_or(|acked| (0..JUMP_MAX).contains(&psn::ahead(number, acked))) {
            sender.acked = Some(number);
        }
        self.sizes[requester.index()][REQUESTS].arrived(sequence_of_psn(number));
        if let Some(recovery) = sender.recovery.as_mut() {
            let silence = recovery.answered(at);
            let is_back = (recovery.is_under_way() || recovery.is_not_ready())
                && sender.held.is_empty()
                && psn::ahead(number, recovery.newest()) == -1;
            if let Some(silence) = silence {
                let silence = Unanswered { speaks: self.speaks(requester, &silence), ..silence };
                self.losses(requester).unanswered(silence);
                sink.fact(at, requester, IbFact::Silent(silence));
            }
            if is_back {
                self.end_recovery(at, requester, false, sink);
            }
        }
        sink.acknowledged(at, requester, sequence_of_psn(number), true);
        let sender = &mut self.senders[requester.index()];
        let ahead = psn::ahead(number, next);
        if ahead == -1 && sender.recovery.is_none() {
            let took = at.time.saturating_sub(sender.last.time);
            let known = &mut self.round_trip[requester.peer().index()];
            if took >= 0 && known.is_none_or(|known| took < known) {
                *known = Some(took);
                sink.fact(at, requester.peer(), IbFact::RoundTrip(took));
            }
            if let Some(took) = self.recent_round_trip[requester.peer().index()].add(at.time, took) {
                sink.fact(at, requester.peer(), IbFact::RecentRoundTrip(took));
            }
        }
        if !(0..=JUMP_MAX).contains(&ahead) {
            return;
        }
        // those that the packets have caught up with stood before them in the capture only
        let is_first = sender.acked_ahead.replace(number).is_none_or(|acked| psn::ahead(acked, next) < 0);
        sender.acks_ahead =
            if is_first { (1, at, None) } else { (sender.acks_ahead.0.saturating_add(1), sender.acks_ahead.1, None) };
        if !sender.held.is_empty() {
            self.skip_acknowledged(at, requester, t, sink);
        }
    }

    fn read_response<T: Trace, S: IbSink>(
        &mut self,
        at: At,
        by: End,
        packet: &IbPacket<'_>,
        row: &'static Row,
        t: &mut T,
        sink: &mut S,
    ) {
        let number = packet.bth.psn;
        let part = part_of(row);
        if !self.shows_mtu(matches!(part, Part::First | Part::Middle), packet.payload_length) {
            sink.fact(at, by, IbFact::BeyondMtu { length: packet.payload_length });
        }
        let mtu = self.mtu;
        let requester = by.peer();
        let (round_trip, is_old) = (self.round_trip[requester.index()], self.is_old);
        let answers_after = self.round_trip[by.index()].map_or(0, |way| way - way / 8 - HELD_BACK);
        let (sender, copies) = (&mut self.senders[requester.index()], &self.copies[by.index()]);
        let losses = &mut self.losses[by.index()];
        if let Some(place) = sender.bad_responses.iter().position(|(psn, _)| *psn == number)
            && let Some((_, damaged)) = sender.bad_responses.remove(place)
        {
            // asked for from here on, or from an earlier one on
            let losses = losses.get_or_insert_default();
            let is_asked = sender.read_again.is_some_and(|(from, ..)| from == number);
            let tally = if is_asked { &mut losses.damaged_dropped } else { &mut losses.damaged_again };
            tally.add(damaged, 1);
        }
        let follows = core::mem::replace(&mut sender.answered, (psn::add(number, 1), at.time)).0 == number;
        if part.begins() || number.is_multiple_of(PASSED_EACH) {
            sender.passed[(number / PASSED_EACH) as usize % PASSED] = (number, at.time);
        }
        // a Response acknowledges its request, and all before it
        if sender.acked.is_none_or(|acked| (0..JUMP_MAX).contains(&psn::ahead(number, acked))) {
            sender.acked = Some(number);
        }
        let sequence = sequence_of_psn(number);
        sink.acknowledged(at, requester, sequence, false);
        self.sizes[requester.index()][REQUESTS].arrived(sequence);
        let sizes = &mut self.sizes[by.index()][RESPONSES];
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
        let read_again = found.is_some_and(|index| sender.reads[index].again.is_some()) || sender.recovery.is_some();
        let Some(index) = found else {
            if sender.reads_done.is_some_and(|done| (-JUMP_MAX..0).contains(&psn::ahead(number, done))) {
                let (lost, since) = &mut sender.responses_missed;
                if !read_again && at.since(*since) <= BEHIND_MAX && lost.contains(&number) {
                    // given up as not captured: here it is, behind those that follow it
                    lost.retain(|psn| *psn != number);
                    losses.get_or_insert_default().misplaced.add(at, 1);
                    sink.fact(at, by, IbFact::Found(1));
                    return sink.fact(at, by, IbFact::Misplaced);
                }
                let copy = copies.has(at, number, mark_of(packet), !read_again, sender.reread_for(number));
                let of = copies.frame_of(at, number);
                sink.fact(at, by, if copy { IbFact::Duplicate } else { IbFact::Retransmission { of } });
                if !copy {
                    came_again(losses.get_or_insert_default(), &mut sender.refilled, number, at);
                    sizes.again(at, (sequence, sequence), packet.payload_length);
                    sizes.wanted(sequence);
                }
                return;
            }
            if part == Part::Only && packet.payload_length == 0 {
                // the answer to a Flush or an Atomic Write: it acknowledges
                return self.acknowledge(at, by, packet, t, sink);
            }
            sink.op(&op, t);
            return;
        };
        if index > 0 {
            // Reads are answered in order: open Responses of earlier ones were lost, or missed
            sender.reads.range_mut(..index).filter(|r| !r.is_done && r.gap == At::default()).for_each(|r| r.gap = at);
        }
        let read = &mut sender.reads[index];
        if let (false, Some(mtu)) = (read.span_known, mtu) {
            read.span = read.length.div_ceil(mtu.max(1)).max(1);
            read.span_known = true;
            if sender.next == Some(psn::add(read.first, 1)) {
                // now it is known where the next request begins
                (sender.next, sender.slack) = (Some(psn::add(read.first, read.span)), 0);
            }
        }
        let ahead = psn::ahead(number, read.next);
        if ahead < 0 {
            let Some(place) = read.missing.iter().position(|psn| *psn == number) else {
                let copy = copies.has(at, number, mark_of(packet), !read_again, sender.reread_for(number));
                let of = copies.frame_of(at, number);
                sink.fact(at, by, if copy { IbFact::Duplicate } else { IbFact::Retransmission { of } });
                if !copy {
                    came_again(losses.get_or_insert_default(), &mut sender.refilled, number, at);
                    sizes.again(at, (sequence, sequence), packet.payload_length);
                    sizes.wanted(sequence);
                }
                return;
            };
            read.missing.swap_remove(place);
            let losses = losses.get_or_insert_default();
            // it was on its way when it was asked for again: it is older than that, or came too soon for an answer
            let is_too_soon = |again: At| at.since(again) < answers_after;
            // the answer to a repeated Read begins with it, and its Responses follow each other
            let is_answer = |_| part.begins() || follows;
            if read.again.is_some_and(|again| is_old || is_too_soon(again)) {
                losses.overtaken.add(at, 1);
                losses.delay = losses.delay.max(at.since(read.gap));
            } else if read.again.is_some_and(is_answer) {
                losses.lost_before.add(read.gap, 1);
                losses.repeated.add(at, 1);
                sender.refilled = Some(number);
                sink.fact(at, by, IbFact::Retransmission { of: copies.frame_of(at, number) });
            } else {
                // it was overtaken if the requester noticed and asks for it again; else only the capture has it out of
                // order
                let (count, first, delay) = read.late;
                let first = if count == 0 { at } else { first };
                read.late = (count + 1, first, delay.max(at.time.saturating_sub(read.gap.time)));
            }
        } else if ahead > 0 {
            sink.fact(at, by, IbFact::SequenceGap { missing: ahead as u32 });
            if read.missing.is_empty() {
                read.gap = at;
            }
            let room = MISSING_MAX.saturating_sub(read.missing.len());
            read.missing.extend((0..ahead as u32).take(room).map(|n| psn::add(read.next, n)));
        }
        if ahead == 0 && read.gap != At::default() && read.missing.is_empty() {
            // the rest of it, that was asked for again: its first copies never came
            if part.begins()
                && read.again.is_some_and(|again| again >= read.gap && !is_old && at.since(again) >= answers_after)
            {
                let losses = losses.get_or_insert_default();
                losses.lost_before.add(read.gap, 1);
                losses.repeated.add(at, 1);
                sender.refilled = Some(number);
            }
            read.gap = At::default();
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
            sizes.sent((sequence, sequence), packet.payload_length);
        }
        // it ends with its last Response, or with the missing one that came after it
        let end = psn::add(read.first, read.span);
        let is_last = part.ends() || (read.span_known && read.next == end);
        if is_last && ahead >= 0 {
            // Reads are answered in order: those that were answered since it was asked for were all outstanding then
            let outstanding = sender.reads_answered.wrapping_sub(read.answered_before).saturating_add(1);
            sender.reads_answered = sender.reads_answered.wrapping_add(1);
            if outstanding > 1 {
                sink.fact(at, requester, IbFact::ReadsAnswered { asked: read.asked, outstanding });
            }
        }
        if is_last && read.missing.is_empty() {
            let end = if read.span_known { end } else { psn::add(number, 1) };
            read.is_done = true;
            let is_plain = read.again.is_none() && read.late.0 == 0 && read.gap == At::default();
            let is_plain = is_plain && sender.bad_responses.is_empty();
            if is_plain && part.ends() && read.received != read.length {
                sink.fact(at, by, IbFact::OtherReadLength { asked: read.length, came: read.received });
            }
            // all its bytes are there, so that its last packet is not only taken for that
            if is_plain && ahead == 0 && !part.ends() && read.received >= read.length {
                sink.fact(at, by, IbFact::ReadNotEnded(part));
            }
            let asked = read.asked;
            // they are answered in order: the requester had the missing Responses of earlier ones, if it could have
            // asked for them again before it asked for this one
            let patience = round_trip.map_or(ASKS_AGAIN, |way| way.saturating_mul(2).max(ASKS_AGAIN));
            // or did ask again, without a result so far
            let is_waited_for =
                |read: &Read| asked.since(read.gap) < patience || read.again.is_some_and(|again| again >= read.gap);
            let is_open = |read: &Read| !(read.is_done && read.missing.is_empty()) && is_waited_for(read);
            let over = sender.reads.range(..index).position(is_open).unwrap_or(index + 1);
            let over = over + sender.reads.range(over..).take_while(|read| read.is_done).count();
            let (mut missed, mut misplaced) = (0, 0);
            let mut lost = Vec::new();
            for read in sender.reads.drain(..over) {
                missed += read.missing.len();
                lost.extend(read.missing);
                if read.span_known && !read.is_done {
                    let rest = psn::ahead(psn::add(read.first, read.span), read.next).max(0) as usize;
                    missed += rest;
                    lost.extend((0..rest.min(MISSING_MAX) as u32).map(|n| psn::add(read.next, n)));
                }
                if read.late.0 > 0 {
                    losses.get_or_insert_default().misplaced.add(read.late.1, read.late.0.into());
                    misplaced += read.late.0;
                }
            }
            sender.reads_done = Some(sender.reads.front().map_or(end, |read| read.first));
            let damaged = sender.bad_responses.len();
            if damaged > 0 && missed > 0 {
                // those that came damaged, the requester had undamaged
                let (bad, of) = (&mut sender.bad_responses, losses.get_or_insert_default());
                lost.retain(|psn| {
                    let Some((_, damaged)) =
                        bad.iter().position(|(known, _)| known == psn).and_then(|place| bad.remove(place))
                    else {
                        return true;
                    };
                    of.damaged_taken.add(damaged, 1);
                    false
                });
                let garbled = damaged - bad.len();
                missed -= garbled;
                if garbled > 0 {
                    sink.fact(at, by, IbFact::ResponsesGarbled(garbled as u32));
                }
            }
            if misplaced > 0 {
                sink.fact(at, by, IbFact::Misplaced);
            }
            if missed > 0 {
                lost.truncate(MISSING_MAX);
                sender.responses_missed = (lost, at);
                sink.fact(at, by, IbFact::ResponsesMissed(missed as u32));
            }
        }
        sink.op(&op, t);
    }
}

/// A Response came again. If it had been missing, the copy that came first had been held up, and this one was sent
/// again.
#[cold]
fn came_again(losses: &mut Losses, refilled: &mut Option<u32>, number: u32, at: At) {
    losses.repeated.add(at, 1);
    if refilled.take_if(|known| *known == number).is_some() {
        losses.lost_before.retract();
        losses.overtaken.add(at, 1);
    }
}

impl Sender {
    /// True if a packet was sent before the first one that was seen.
    fn is_before(&self, number: u32) -> bool {
        self.first.is_some_and(|first| (-JUMP_MAX..0).contains(&psn::ahead(number, first)))
    }

    /// PSN behind the last packet that is held, if any is.
    fn behind_held(&self) -> Option<u32> {
        self.held.back().map(|held| psn::add(held.psn, 1))
    }

    /// Time at which the sender of this packet had a reason to send it again: the last NAK asked for it, or Responses
    /// to it were missing.
    fn asked_for(&self, number: u32) -> Option<At> {
        let is_meant = |(from, to, _): &(u32, u32, At)| psn::is_within(number, *from, *to);
        let lacks = |read: &&Read| read.missing.contains(&number);
        let told = self.nak.filter(is_meant).or(self.passed_over.filter(is_meant)).map(|(.., at)| at);
        told.or_else(|| self.reads.iter().find(lacks).map(|read| read.gap))
    }

    /// A packet goes out while others go out again: sees if it jumps over some.
    fn goes_again(&mut self, number: u32) {
        self.jumped.retain(|(from, to)| !psn::is_within(number, *from, *to));
        let jump = psn::ahead(number, self.cursor);
        if (1..=SKIP_MAX).contains(&jump) && self.recovery.as_ref().is_some_and(|r| r.is_under_way()) {
            if self.jumped.len() >= SKIPS_MAX {
                self.jumped.remove(0);
            }
            self.jumped.push((self.cursor, number));
        }
    }

    /// Its receiver asks for a packet. True if that was seen before, and jumped over when it was to go out again.
    fn is_lost_again(&mut self, number: u32) -> bool {
        let is_seen = self.next.is_some_and(|next| psn::ahead(number, next) < 0)
            || self.held.iter().any(|held| held.psn == number && !held.is_damaged);
        is_seen && self.jumped.extract_if(.., |(from, to)| psn::is_within(number, *from, *to)).count() > 0
    }

    /// A packet of it was acknowledged: sees if a Read before that has no answer.
    fn passes_over(&mut self, at: At, number: u32) {
        let is_open = |read: &&Read| !read.is_done && psn::ahead(number, psn::add(read.first, read.span)) >= 0;
        let Some((read, next)) = self.reads.iter().rev().find(is_open).zip(self.next) else { return };
        if self.passed_over.is_none_or(|(from, ..)| from != read.next) {
            self.passed_over = Some((read.next, next, at));
        }
    }

    /// ns since a Response went by, at least.
    fn passed_ago(&self, at: At, number: u32) -> i64 {
        let since = self
            .passed
            .iter()
            .copied()
            .chain([(psn::add(self.answered.0, psn::MASK), self.answered.1)])
            .filter(|(psn, time)| *time != 0 && psn::ahead(*psn, number) >= 0)
            .map(|(_, time)| time)
            .min();
        since.map_or(0, |since| at.time.saturating_sub(since))
    }

    /// Time at which this Response was asked for again, if it was.
    fn reread_for(&self, number: u32) -> Option<At> {
        let is_meant = |(from, to, _): &(u32, u32, At)| psn::is_within(number, *from, *to);
        self.read_again.filter(is_meant).map(|(.., at)| at)
    }

    /// Remembers packets that were acknowledged, but not captured so far.
    fn skip(&mut self, first: u32, count: u32) {
        let next = self.next.unwrap_or(first);
        // an old one may be of an earlier use of its numbers
        self.skipped.retain(|(first, _)| (0..=JUMP_MAX).contains(&psn::ahead(next, *first)));
        if self.skipped.len() >= SKIPPED_MAX {
            self.skipped.pop_front();
        }
        self.skipped.push_back((first, count));
    }

    /// True if a packet was skipped, and comes after all: others of its stretch may still come.
    fn unskip(&mut self, number: u32) -> bool {
        let is_inside = |(first, count): &(u32, u32)| (0..*count as i32).contains(&psn::ahead(number, *first));
        let Some((first, count)) = self.skipped.iter().position(is_inside).and_then(|place| self.skipped.remove(place))
        else {
            return false;
        };
        let before = psn::ahead(number, first) as u32;
        for (first, count) in [(first, before), (psn::add(number, 1), count - before - 1)] {
            if count > 0 {
                self.skip(first, count);
            }
        }
        true
    }

    /// Holds a packet back, in the order of the numbers.
    fn insert(&mut self, request: &Request<'_>, is_damaged: bool, is_shown: bool) {
        let place = self.held.iter().position(|h| psn::ahead(h.psn, request.psn) > 0).unwrap_or(self.held.len());
        let held = Held {
            at: request.at,
            psn: request.psn,
            row: request.row,
            ext: *request.ext,
            solicited: request.solicited,
            payload: request.payload.to_vec(),
            payload_length: request.payload_length,
            is_damaged,
            is_next: false,
            is_asked: false,
            is_doubtful: request.is_doubtful,
            is_shown,
        };
        self.held_bytes += held.payload.len();
        self.held.insert(place, held);
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::episodes::Cause;
    use alloc::vec;
    use rdmascope_dissector::frame::Carrier;
    use rdmascope_dissector::wire::ib::bth::{Bth, Opcode};
    use rdmascope_dissector::wire::ib::ext::Reth;

    const FIRST: u8 = Opcode::RC_SEND_FIRST.0;
    const LAST: u8 = Opcode::RC_SEND_LAST.0;
    const ONLY: u8 = Opcode::RC_SEND_ONLY.0;
    const WRITE_FIRST: u8 = Opcode::RC_RDMA_WRITE_FIRST.0;
    const WRITE_MIDDLE: u8 = Opcode::RC_RDMA_WRITE_MIDDLE.0;
    const WRITE_LAST: u8 = Opcode::RC_RDMA_WRITE_LAST.0;
    const READ: u8 = Opcode::RC_RDMA_READ_REQUEST.0;
    const RESPONSE_FIRST: u8 = Opcode::RC_RDMA_READ_RESPONSE_FIRST.0;
    const RESPONSE_MIDDLE: u8 = Opcode::RC_RDMA_READ_RESPONSE_MIDDLE.0;
    const RESPONSE_LAST: u8 = Opcode::RC_RDMA_READ_RESPONSE_LAST.0;
    const RESPONSE_ONLY: u8 = Opcode::RC_RDMA_READ_RESPONSE_ONLY.0;
    const ACKNOWLEDGE: u8 = Opcode::RC_ACKNOWLEDGE.0;

    const MS: i64 = 1_000_000;

    /// Operations with their sender and bytes, and facts about packets.
    #[derive(Default)]
    struct Heard {
        ops: Vec<(End, Part, Vec<u8>)>,
        places: Vec<Placement>,
        facts: Vec<IbFact>,
        again: Vec<Why>,
    }

    impl IbSink for Heard {
        fn op<T: Trace>(&mut self, op: &RdmaOp<'_>, _: &mut T) {
            self.ops.push((op.by, op.part, op.bytes.to_vec()));
            self.places.push(op.placement);
        }

        fn fact(&mut self, _: At, _: End, fact: IbFact) {
            self.facts.push(fact);
        }

        fn again(&mut self, _: At, _: End, _: u32, why: Why) {
            self.again.push(why);
        }
    }

    /// A flow alone, and the time: packets are 1 ms apart.
    struct Wire {
        flow: IbFlow,
        heard: Heard,
        at: At,
        /// ns to the next packet.
        step: i64,
        /// Of the next packets.
        ip_id: u16,
        icrc: Check,
        asks: bool,
    }

    impl Default for Wire {
        fn default() -> Self {
            let (flow, heard, at) = (IbFlow::default(), Heard::default(), At::default());
            Self { flow, heard, at, step: MS, ip_id: 0, icrc: Check::Unchecked, asks: false }
        }
    }

    impl Wire {
        fn put(&mut self, by: End, opcode: u8, psn: u32, ext: Extensions, payload: &[u8]) -> &mut Self {
            self.at = At { frame: self.at.frame + 1, time: self.at.time + self.step };
            let packet = IbPacket {
                carrier: Carrier::RoceV2 { src_port: 0xc000 },
                bth: Bth { ack: if self.asks { 0x80 } else { 0 }, ..Bth::new(Opcode(opcode), 0x11, psn) },
                ext,
                payload,
                payload_length: payload.len() as u32,
                ip_id: self.ip_id,
                icrc: self.icrc,
                behind: &[],
            };
            self.flow.packet(self.at, by, &packet, &mut Off, &mut self.heard);
            self
        }

        fn packet(&mut self, by: End, opcode: u8, psn: u32, aeth: Option<u32>, payload: &[u8]) -> &mut Self {
            self.put(by, opcode, psn, Extensions { aeth, ..Extensions::default() }, payload)
        }

        /// End A reads so many bytes, or writes them, from address 0x1000 on.
        fn memory(&mut self, opcode: u8, psn: u32, dma_length: u32, payload: &[u8]) -> &mut Self {
            let reth = Some(Reth { virtual_address: 0x1000, r_key: 7, dma_length });
            self.put(End::A, opcode, psn, Extensions { reth, ..Extensions::default() }, payload)
        }

        /// End A reads so many packets of 256 bytes.
        fn read(&mut self, psn: u32, packets: u32) -> &mut Self {
            self.flow.path_mtu(256);
            self.memory(READ, psn, packets * 256, &[])
        }

        /// End B answers a Read.
        fn response(&mut self, opcode: u8, psn: u32) -> &mut Self {
            self.packet(End::B, opcode, psn, None, &[psn as u8; 256])
        }

        /// End B asks for a packet that is missing.
        fn nak(&mut self, psn: u32) -> &mut Self {
            self.packet(End::B, ACKNOWLEDGE, psn, Some(0x6000_0000), &[])
        }

        /// Sets the time to the next packet.
        fn after(&mut self, ns: i64) -> &mut Self {
            self.step = ns;
            self
        }

        /// State of end A.
        fn sender(&self) -> &Sender {
            &self.flow.senders[0]
        }

        /// Losses of end A's packets.
        fn losses(&self) -> Losses {
            self.flow.losses[0].as_deref().cloned().unwrap_or_default()
        }

        /// Losses of end B's packets.
        fn losses_of_responses(&self) -> Losses {
            self.flow.losses[1].as_deref().cloned().unwrap_or_default()
        }

        /// Number of facts of a kind.
        fn count(&self, is: impl Fn(&IbFact) -> bool) -> usize {
            self.heard.facts.iter().filter(|fact| is(fact)).count()
        }

        fn copies(&self) -> usize {
            self.count(|fact| *fact == IbFact::Duplicate)
        }

        fn misplaced(&self) -> usize {
            self.count(|fact| *fact == IbFact::Misplaced)
        }

        fn repeated(&self) -> usize {
            self.count(|fact| matches!(fact, IbFact::Retransmission { .. }))
        }

        /// Packets that were given up, and if their receiver had them.
        fn gaps(&self) -> Vec<(u32, bool)> {
            let gap = |fact: &IbFact| match fact {
                IbFact::Gap(gap) | IbFact::Garbled(gap) => Some((gap.count, gap.receiver_had_them)),
                _ => None,
            };
            self.heard.facts.iter().filter_map(gap).collect()
        }

        /// Results of recoveries.
        fn ended(&self) -> Vec<(Cause, u32)> {
            let ended = |fact: &IbFact| {
                if let IbFact::Recovered { ended, .. } = fact { Some((ended.cause, ended.packets)) } else { None }
            };
            self.heard.facts.iter().filter_map(ended).collect()
        }

        fn measured(&self) -> Vec<Measure> {
            let measure = |fact: &IbFact| if let IbFact::Measured(measure) = fact { Some(*measure) } else { None };
            self.heard.facts.iter().filter_map(measure).collect()
        }

        /// End A sends a whole message.
        fn only(&mut self, psn: u32) -> &mut Self {
            self.packet(End::A, ONLY, psn, None, &[psn as u8; 4])
        }

        /// End B acknowledges all up to this packet.
        fn ack(&mut self, psn: u32) -> &mut Self {
            self.packet(End::B, ACKNOWLEDGE, psn, Some(0x1f00_0000), &[])
        }

        /// Packet numbers of the messages that came out, in their order.
        fn order(&self) -> Vec<u8> {
            self.heard.ops.iter().map(|(_, _, bytes)| bytes[0]).collect()
        }
    }

    #[test]
    fn packets_in_order_go_through_with_their_part_of_the_message() {
        let mut wire = Wire::default();
        wire.packet(End::A, FIRST, 0xff_ffff, None, b"one").packet(End::A, LAST, 0, None, b"two");
        assert_eq!(
            wire.heard.ops,
            [(End::A, Part::First, b"one".to_vec()), (End::A, Part::Last, b"two".to_vec())],
            "the PSN wraps"
        );
        assert_eq!(wire.flow.held(), 0);
    }

    /// Its answer is a Read Response without payload, which no Read asked for.
    #[test]
    fn a_flush_and_an_atomic_write_are_requests_that_a_response_acknowledges() {
        let mut wire = Wire::default();
        wire.only(10).memory(Opcode::RC_FLUSH.0, 11, 64, &[]).memory(Opcode::RC_ATOMIC_WRITE.0, 12, 8, &[7; 8]);
        for psn in [11, 12] {
            wire.packet(End::B, RESPONSE_ONLY, psn, Some(0x1f00_0001), &[]);
        }
        wire.only(13);
        let ops: Vec<(End, Part)> = wire.heard.ops.iter().map(|(by, part, _)| (*by, *part)).collect();
        assert_eq!(ops, [(End::A, Part::Only); 4]);
        assert_eq!((wire.sender().acked, wire.sender().next), (Some(12), Some(14)));
        assert_eq!((wire.gaps(), wire.repeated(), wire.copies()), (vec![], 0, 0));
        let is_odd = |fact: &IbFact| matches!(fact, IbFact::OutOfOrder { .. } | IbFact::ResponsesMissed(_));
        assert_eq!(wire.count(is_odd), 0);
    }

    /// No later packet is taken for one behind a loss.
    #[test]
    fn an_opcode_that_nobody_knows_takes_its_number() {
        let mut wire = Wire::default();
        wire.only(10);
        wire.flow.passes(wire.at, End::A, 11);
        wire.only(12).ack(12);
        assert_eq!((wire.order(), wire.gaps()), (vec![10, 12], vec![]));
        assert_eq!((wire.flow.held(), wire.repeated()), (0, 0));
        // one that is not next was sent again, or is not of this end's requests
        wire.flow.passes(wire.at, End::A, 5);
        assert_eq!(wire.sender().next, Some(13));
    }

    /// Nothing tells which packets go out again for a NAK if none of their sender was seen before it.
    #[test]
    fn a_capture_that_begins_at_a_nak_begins_with_no_recovery() {
        const NOT_READY: u32 = 0x2100_0000;
        for syndrome in [0x6000_0000, NOT_READY] {
            let mut wire = Wire::default();
            wire.packet(End::B, ACKNOWLEDGE, 12, Some(syndrome), &[]).only(12).only(13).ack(13).only(14).ack(14);
            assert_eq!(wire.order(), [12, 13, 14]);
            assert_eq!((wire.repeated(), wire.ended()), (0, vec![]), "{syndrome:#x}");
            assert_eq!(wire.count(|fact| matches!(fact, IbFact::Recovering { .. })), 0);
            assert!(wire.count(|fact| *fact == IbFact::BeganLate) > 0 && wire.sender().recovery.is_none());
            // after a handshake, it is known which
            let mut wire = Wire::default();
            wire.flow.starts_at(End::A, 0x80_0000);
            wire.packet(End::B, ACKNOWLEDGE, 0x80_0000, Some(syndrome), &[]);
            (0..3).for_each(|n| _ = wire.only(0x80_0000 + n).ack(0x80_0000 + n));
            assert_eq!((wire.repeated(), wire.sender().recovery.is_none()), (0, true), "{syndrome:#x}");
        }
    }

    #[test]
    fn first_packets_that_are_acknowledged_were_lost_by_the_capture() {
        for (acked, had) in [(None, false), (Some(10), false), (Some(11), true), (Some(12), true)] {
            let mut wire = Wire::default();
            wire.flow.starts_at(End::A, 10);
            acked.into_iter().for_each(|psn| _ = wire.ack(psn));
            wire.only(12).ack(12);
            assert_eq!((wire.gaps(), wire.order()), (vec![(2, had)], vec![12]), "{acked:?}");
            // one of them comes after all
            wire.only(11);
            assert_eq!(wire.count(|fact| *fact == IbFact::Found(1)), usize::from(had));
        }
    }

    /// A receiver that answers what it was sent takes the time that it takes.
    #[test]
    fn a_recovery_ends_a_round_trip_after_what_was_sent_again() {
        let took = |answer: i64| {
            let mut wire = Wire::default();
            (10..14).for_each(|psn| _ = wire.after(MS).only(psn).after(100_000).ack(psn));
            wire.only(14).only(15).nak(14).only(14).only(15).after(answer).ack(15);
            assert_eq!(wire.ended(), [(Cause::LostBehind, 1)]);
            wire.losses().recovery
        };
        assert_eq!([took(100_000), took(43 * MS)], [400_000, 300_000 + 100_000 + HELD_BACK]);
    }

    /// What a NAK asks for did not arrive, whether or not the capture shows it again.
    #[test]
    fn a_nak_at_the_end_of_a_capture_tells_of_a_loss() {
        let mut wire = Wire::default();
        wire.only(10).only(11).only(12).nak(11);
        wire.flow.finish(wire.at, &mut wire.heard);
        assert_eq!((wire.losses().went_by.count, wire.losses().lost()), (1, 0));
        // what was not captured did not go by
        let mut wire = Wire::default();
        wire.only(10).nak(11);
        wire.flow.finish(wire.at, &mut wire.heard);
        assert_eq!(wire.losses().went_by.count, 0);
    }

    /// Without identifications, what comes again behind a missing packet so soon after a NAK is no copy of a mirror.
    #[test]
    fn a_sender_that_goes_back_at_once_repeats_what_was_held() {
        let mut wire = Wire::default();
        (10..14).for_each(|psn| _ = wire.only(psn).ack(psn));
        wire.only(14).after(1_000).only(16).only(17).only(18).nak(15);
        (15..19).for_each(|psn| _ = wire.only(psn));
        wire.after(MS).ack(18);
        assert_eq!((wire.copies(), wire.repeated(), wire.order().len()), (0, 3, 9));
        assert_eq!(wire.ended(), [(Cause::LostBefore, 1)]);
    }

    /// A mirror shows notifications of congestion twice, too.
    #[test]
    fn a_copy_of_a_notification_is_known_where_all_are_shown_twice() {
        let mut wire = Wire::default();
        let cnp = |wire: &mut Wire, after: i64| {
            let at = At { frame: 99, time: wire.at.time + after };
            let packet = IbPacket {
                carrier: Carrier::RoceV2 { src_port: 0xc000 },
                bth: Bth::new(Opcode(0x81), 0x11, 0),
                ext: Extensions::default(),
                payload: &[],
                payload_length: 0,
                ip_id: 0,
                icrc: Check::Unchecked,
                behind: &[],
            };
            let Wire { flow, heard, .. } = wire;
            flow.is_copy(at, End::B, &packet, heard)
        };
        assert_eq!([cnp(&mut wire, 0), cnp(&mut wire, 5_000)], [false; 2]);
        let mut wire = Wire::default();
        for psn in 10..30 {
            wire.after(MS).only(psn).after(5_000).only(psn);
            wire.after(MS).ack(psn).after(5_000).ack(psn);
        }
        assert!(wire.flow.loss_view().copies_known == [true; 2]);
        assert_eq!([MS, MS + 5_000, 3 * MS, 9 * MS].map(|after| cnp(&mut wire, after)), [false, true, false, false]);
    }

    #[test]
    fn the_first_right_invariant_crc_shows_that_those_before_it_were_damaged() {
        let told = |checks: &[Check]| {
            let mut wire = Wire::default();
            for (psn, check) in (10..).zip(checks) {
                wire.icrc = *check;
                wire.only(psn);
            }
            wire.count(|fact| *fact == IbFact::FollowedDamaged)
        };
        let (bad, good) = (Check::Bad, Check::Good);
        assert_eq!([told(&[bad, good, good]), told(&[bad, bad, bad]), told(&[good, bad, good])], [1, 0, 0]);
        assert_eq!(told(&[Check::Unchecked, good]), 0);
    }

    #[test]
    fn the_request_of_a_receiver_that_was_not_ready() {
        let of = |ask: &dyn Fn(&mut Wire)| {
            let mut wire = Wire::default();
            wire.only(10);
            ask(&mut wire);
            wire.packet(End::B, ACKNOWLEDGE, 11, Some(0x2100_0000), &[]);
            let of = |fact: &IbFact| if let IbFact::RnrNak { of, .. } = fact { Some(*of) } else { None };
            wire.heard.facts.iter().find_map(of).expect("it was not ready")
        };
        let operation = |verb: Verb, takes_receive: bool| Some(Operation { verb, takes_receive });
        assert_eq!(of(&|wire| _ = wire.only(11)), operation(Verb::Send, true));
        assert_eq!(of(&|wire| _ = wire.only(12)), None);
        assert_eq!(of(&|wire| _ = wire.read(11, 2)), operation(Verb::ReadRequest, false));
        assert_eq!(of(&|wire| _ = wire.memory(WRITE_FIRST, 11, 600, &[0; 256])), operation(Verb::Write, false));
        let immediate = Opcode::RC_RDMA_WRITE_ONLY_IMMEDIATE.0;
        assert_eq!(of(&|wire| _ = wire.memory(immediate, 11, 4, &[0; 4])), operation(Verb::Write, true));
        // one that others follow
        assert_eq!(of(&|wire| (11..15).for_each(|psn| _ = wire.only(psn))), operation(Verb::Send, true));
    }

    /// Behind so long a hole nothing that was known before counts, as behind a shorter one.
    #[test]
    fn a_jump_of_the_packet_numbers_is_told() {
        for far in [10 + 70_000, 0xff_ffff - 70_000] {
            let mut wire = Wire::default();
            wire.read(10, 2).only(12).ack(12);
            wire.only(far).only(psn::add(far, 1)).ack(psn::add(far, 1));
            assert_eq!(wire.count(|fact| *fact == IbFact::Jumped), 1, "{far}");
            assert_eq!((wire.gaps(), wire.misplaced(), wire.repeated()), (vec![], 0, 0));
            assert!(wire.sender().reads.is_empty() && wire.sender().recovery.is_none());
        }
        let mut wire = Wire::default();
        wire.only(10).only(60_000).ack(60_000);
        assert_eq!((wire.count(|fact| *fact == IbFact::Jumped), wire.gaps()), (0, vec![(59_989, true)]));
    }

    #[test]
    fn packets_behind_a_lost_one_wait_until_it_is_sent_again() {
        let mut wire = Wire::default();
        wire.only(10).only(12);
        assert_eq!(wire.order(), [10]);
        assert!(wire.flow.held() > 0);
        wire.only(11).only(12).ack(12);
        assert_eq!((wire.order(), wire.flow.held()), (vec![10, 11, 12], 0));
        assert!(!wire.heard.facts.iter().any(|fact| matches!(fact, IbFact::Gap(_))));
    }

    #[test]
    fn a_missing_packet_that_is_acknowledged_was_lost_by_the_capture() {
        let mut wire = Wire::default();
        wire.only(10).only(12).ack(12);
        assert_eq!(wire.order(), [10, 12]);
        let gaps: Vec<(u32, bool)> = wire
            .heard
            .facts
            .iter()
            .filter_map(
                |fact| if let IbFact::Gap(gap) = fact { Some((gap.count, gap.receiver_had_them)) } else { None },
            )
            .collect();
        assert_eq!(gaps, [(1, true)]);
    }

    #[test]
    fn what_follows_the_first_packet_behind_a_gap_is_not_missing() {
        // all that is missing is acknowledged: there is nothing to recover
        for newest in [12, 13, 14] {
            let mut wire = Wire::default();
            wire.only(10);
            (12..=newest).for_each(|psn| _ = wire.only(psn));
            assert!(wire.sender().recovery.is_some());
            wire.ack(newest);
            assert_eq!((wire.gaps(), wire.sender().recovery.is_none()), (vec![(1, true)], true), "{newest}");
        }
    }

    #[test]
    fn a_packet_sent_again_is_one_operation() {
        let mut wire = Wire::default();
        wire.only(10).only(10).ack(10).only(11);
        assert_eq!(wire.order(), [10, 11]);
        assert!(wire.heard.facts.contains(&IbFact::Retransmission { of: Some(1) }), "{:?}", wire.heard.facts);
    }

    #[test]
    fn a_nak_has_its_code_and_the_packet_that_it_refuses() {
        let mut wire = Wire::default();
        wire.only(10).packet(End::B, ACKNOWLEDGE, 10, Some(0x6100_0000), &[]);
        assert!(wire.heard.facts.contains(&IbFact::Nak { code: 1, psn: 10 }), "{:?}", wire.heard.facts);
    }

    #[test]
    fn packets_that_are_held_come_out_at_the_end_of_the_capture() {
        let mut wire = Wire::default();
        wire.only(10).only(12).only(13);
        assert_eq!(wire.order(), [10]);
        let Wire { flow, heard, at, .. } = &mut wire;
        flow.finish(*at, heard);
        assert_eq!((wire.order(), wire.flow.held()), (vec![10, 12, 13], 0));
    }

    #[test]
    fn another_partition_is_reported_and_the_membership_bit_is_ignored() {
        let mut wire = Wire::default();
        wire.only(10);
        let mut packet = |p_key: u16, psn: u32| {
            wire.at = At { frame: wire.at.frame + 1, time: wire.at.time + 1_000_000 };
            let packet = IbPacket {
                carrier: Carrier::Infiniband,
                bth: Bth { p_key, ..Bth::new(Opcode(ONLY), 0x11, psn) },
                ext: Extensions::default(),
                payload: &[1],
                payload_length: 1,
                ip_id: 0,
                icrc: Check::Unchecked,
                behind: &[],
            };
            wire.flow.packet(wire.at, End::A, &packet, &mut Off, &mut wire.heard);
            wire.heard.facts.iter().any(|fact| matches!(fact, IbFact::Partition { .. }))
        };
        assert!(!packet(0x7fff, 11));
        assert!(packet(0x8001, 12));
    }

    #[test]
    fn which_acknowledgments_may_be_of_a_flow() {
        let mut flow = IbFlow::default();
        assert!(!flow.may_acknowledge(End::A, 99), "nothing was sent");
        flow.starts_at(End::A, 300);
        let may = |flow: &IbFlow, from: u32, to: u32| {
            (from..to).map(|psn| flow.may_acknowledge(End::A, psn)).collect::<Vec<_>>()
        };
        assert_eq!(may(&flow, 43, 46), [false, true, true], "256 packets back");
        assert_eq!(may(&flow, 299, 302), [true, true, false]);
        flow.senders[0].slack = 3;
        assert_eq!(may(&flow, 302, 306), [true, true, false, false]);
    }

    #[test]
    fn what_is_acknowledged_and_next_was_not_seen() {
        let mut flow = IbFlow::default();
        flow.senders[0].acked_ahead = Some(12);
        assert!(!flow.is_unseen(End::A));
        let unseen = [11, 12, 13].map(|next| {
            flow.senders[0].next = Some(next);
            flow.is_unseen(End::A)
        });
        assert_eq!((unseen, flow.is_unseen(End::B)), ([true, true, false], false));
    }

    #[test]
    fn so_many_damaged_packets_that_were_taken_say_that_the_crc_means_nothing() {
        let mut flow = IbFlow::default();
        assert!(!flow.is_dropped(End::A), "no CRC was right so far");
        flow.icrc_good[0] = 1;
        let dropped = [0, TAKEN_BAD_MAX - 1, TAKEN_BAD_MAX].map(|taken| {
            flow.taken_bad[0] = taken;
            flow.is_dropped(End::A)
        });
        assert_eq!(dropped, [true, true, false]);
        flow.sound([false, true]);
        assert!(flow.is_dropped(End::B));
    }

    #[test]
    fn where_all_packets_are_wrong_nothing_is_known_of_their_sender() {
        let began_late = |good: u32, damaged: u32| {
            let mut wire = Wire { icrc: Check::Bad, ..Wire::default() };
            wire.flow.sound([true; 2]);
            wire.flow.icrc_good[0] = good;
            (0..damaged).for_each(|n| _ = wire.only(n));
            wire.count(|fact| *fact == IbFact::BeganLate)
        };
        assert_eq!([began_late(0, 7), began_late(0, 8), began_late(0, 30), began_late(1, 30)], [0, 1, 1, 0]);
    }

    #[test]
    fn a_damaged_packet_before_any_other_has_a_place_once_it_is_acknowledged() {
        let told = |acknowledged: u32| {
            let mut wire = Wire { icrc: Check::Bad, ..Wire::default() };
            wire.flow.sound([true; 2]);
            wire.only(10).only(11);
            wire.icrc = Check::Good;
            wire.ack(acknowledged);
            let garbled = wire.count(|fact| matches!(fact, IbFact::Garbled(_)));
            (garbled, wire.losses().damaged_taken.count, wire.sender().next)
        };
        assert_eq!(told(11), (2, 2, Some(12)));
        assert_eq!(told(10), (1, 1, Some(11)));
        assert_eq!(told(12), (0, 0, None), "its number may be damaged");
    }

    #[test]
    fn a_damaged_packet_is_held_once() {
        let mut wire = Wire { icrc: Check::Good, ..Wire::default() };
        wire.only(10);
        wire.icrc = Check::Bad;
        // one that is behind, or too far ahead, has a damaged number
        for (psn, held) in [(11, 1), (11, 1), (12, 2), (11, 2), (9, 2), (266, 3), (267, 3)] {
            wire.only(psn);
            assert_eq!(wire.flow.senders[0].held.len(), held, "{psn}");
        }
        assert_eq!(wire.losses().damaged.count, 7);
        assert_eq!(wire.order(), [10]);
    }

    #[test]
    fn a_damaged_packet_that_is_sent_again_is_the_cause_of_its_recovery() {
        let mut wire = Wire { icrc: Check::Good, ..Wire::default() };
        wire.only(10);
        wire.icrc = Check::Bad;
        wire.only(11);
        wire.icrc = Check::Good;
        wire.only(12).nak(11).only(11).only(12).only(13);
        assert_eq!((wire.order(), wire.ended()), (vec![10, 11, 12, 13], vec![(Cause::Damaged, 1)]));
        assert_eq!((wire.losses().lost(), wire.losses().damaged.count, wire.flow.held()), (0, 1, 0));
    }

    #[test]
    fn a_damaged_packet_that_comes_again_by_itself_had_to_wait_for_that() {
        let mut wire = Wire { icrc: Check::Good, ..Wire::default() };
        wire.only(10).ack(10);
        wire.icrc = Check::Bad;
        wire.only(11);
        let damaged = wire.at;
        wire.icrc = Check::Good;
        wire.at.time += 500_000_000;
        wire.only(11).ack(11).only(12).ack(12);
        let begun = wire
            .heard
            .facts
            .iter()
            .find_map(|fact| if let IbFact::Recovering { since, .. } = fact { Some(*since) } else { None });
        assert_eq!((wire.order(), begun, wire.ended()), (vec![10, 11, 12], Some(damaged), vec![(Cause::Damaged, 1)]));
        assert_eq!((wire.losses().lost(), wire.losses().unacknowledged.count, wire.flow.held()), (0, 0, 0));
        assert!(wire.losses().recovery >= 500_000_000);
    }

    #[test]
    fn a_damaged_packet_that_is_acknowledged_was_taken() {
        let taken = |good: u32| {
            let mut wire = Wire { icrc: Check::Good, ..Wire::default() };
            wire.only(10);
            wire.flow.icrc_good[0] = good;
            wire.icrc = Check::Bad;
            wire.only(11);
            wire.icrc = Check::Unchecked;
            wire.ack(11).only(12);
            assert_eq!(wire.count(|fact| *fact == IbFact::Doubtful), 1);
            (wire.order(), wire.flow.taken_bad[0], wire.losses().damaged.count, wire.gaps())
        };
        assert_eq!(taken(ICRC_TRUSTED - 1), (vec![10, 11, 12], 1, 0, vec![]));
        assert_eq!(taken(ICRC_TRUSTED), (vec![10, 12], 0, 1, vec![(1, true)]), "its receiver had another one");
    }

    #[test]
    fn the_fate_of_a_damaged_packet_shows_in_what_follows() {
        // damaged, and of those: dropped by the receiver, sent again with others, taken by the receiver
        let fate = |talk: fn(&mut Wire)| {
            let mut wire = Wire { icrc: Check::Good, ..Wire::default() };
            (0..ICRC_TRUSTED).for_each(|n| _ = wire.only(n));
            wire.ack(ICRC_TRUSTED - 1);
            wire.icrc = Check::Bad;
            wire.only(8);
            wire.icrc = Check::Good;
            talk(&mut wire);
            let garbled = wire.count(|fact| matches!(fact, IbFact::Garbled(_)));
            let l = wire.losses();
            assert!(garbled as u64 >= l.damaged_taken.count);
            let lost = wire.count(|fact| matches!(fact, IbFact::Gap(_)));
            ([&l.damaged, &l.damaged_dropped, &l.damaged_again, &l.damaged_taken].map(|tally| tally.count), lost)
        };
        assert_eq!(fate(|_| ()), ([1, 0, 0, 0], 0), "nothing follows");
        assert_eq!(fate(|w| _ = w.only(9).ack(9).only(10)), ([1, 0, 0, 1], 0), "acknowledged");
        assert_eq!(fate(|w| _ = w.only(9).nak(8).only(8).only(9).ack(9)), ([1, 1, 0, 0], 0), "asked for");
        assert_eq!(fate(|w| _ = w.only(8).ack(8).only(9)), ([1, 1, 0, 0], 0), "sent again, before anything else");
        assert_eq!(
            fate(|w| _ = w.only(9).nak(8).ack(9).only(10)),
            ([1, 1, 0, 0], 1),
            "asked for, and not captured when it came again"
        );
        // one behind it, which the receiver would have dropped anyway
        let with_another = |w: &mut Wire| {
            w.icrc = Check::Bad;
            w.only(9);
            w.icrc = Check::Good;
            w.only(10).nak(8).only(8).only(9).only(10).ack(10);
        };
        assert_eq!(fate(with_another), ([2, 1, 1, 0], 0));
        // sent again long after it was acknowledged: the acknowledgment may have been lost, or stands too early
        let long_after = |w: &mut Wire| {
            w.only(9).ack(9);
            w.at.time += 10 * BEHIND_MAX;
            w.only(8);
        };
        assert_eq!(fate(long_after), ([1, 0, 0, 0], 0));
    }

    #[test]
    fn a_held_packet_is_doubtful_if_its_crc_is_wrong() {
        for (icrc, doubtful) in [(Check::Unchecked, 0), (Check::Good, 0), (Check::Bad, 1)] {
            let mut wire = Wire { icrc, ..Wire::default() };
            wire.only(10).only(12).only(11);
            assert_eq!(
                (wire.order(), wire.count(|fact| *fact == IbFact::Doubtful)),
                (vec![10, 11, 12], doubtful),
                "{icrc:?}"
            );
        }
    }

    #[test]
    fn the_third_time_is_counted() {
        let mut wire = Wire::default();
        for times in 0..4 {
            wire.flow.stands_again(wire.at, End::A, 7);
            let thrice = wire.flow.thrice.as_deref().map_or(0, |thrice| thrice[0].count);
            assert_eq!(thrice, [0, 0, 1, 2][times]);
            wire.flow.copies[0].add(wire.at, 7, 0);
        }
    }

    #[test]
    fn silence_of_an_end_that_was_never_seen_says_nothing() {
        let tried = |before: fn(&mut Wire)| {
            let mut wire = Wire::default();
            before(&mut wire);
            (0..9).for_each(|_| _ = wire.only(10));
            let Wire { flow, heard, at, .. } = &mut wire;
            flow.finish(*at, heard);
            wire.losses().unanswered.map(|found| found.answered)
        };
        assert_eq!(tried(|_| {}), None);
        assert_eq!(tried(|wire| _ = wire.packet(End::B, ONLY, 500, None, &[1])), Some(false));
        assert_eq!(tried(|wire| _ = wire.only(9).ack(9)), Some(false));
    }

    #[test]
    fn an_end_that_acknowledges_nothing_may_send_packets_itself() {
        /// Packets that the peer sends before and while the same one goes out nine times, and what is acknowledged.
        fn speaks(acknowledged: bool, before: u32, meanwhile: u32) -> Option<Speaks> {
            let mut wire = Wire::default();
            wire.only(9);
            if acknowledged {
                wire.ack(9);
            }
            (0..before).for_each(|n| _ = wire.packet(End::B, ONLY, 500 + n, None, &[1]));
            (0..9).for_each(|_| _ = wire.only(10));
            (0..meanwhile).for_each(|n| _ = wire.packet(End::B, ONLY, 500 + before + n, None, &[1]));
            (0..9).for_each(|_| _ = wire.only(10));
            let Wire { flow, heard, at, .. } = &mut wire;
            flow.finish(*at, heard);
            wire.losses().unanswered.map(|found| found.speaks)
        }
        assert_eq!(speaks(true, 9, 0), Some(Speaks::Not));
        assert_eq!(speaks(true, 0, 1), Some(Speaks::Meanwhile));
        assert_eq!(speaks(false, 7, 0), Some(Speaks::Not));
        assert_eq!(speaks(false, 8, 0), Some(Speaks::Always));
    }

    #[test]
    fn how_long_a_packet_is_held() {
        let mut wire = Wire::default();
        wire.only(10).only(12);
        let Wire { flow, heard, at, .. } = &mut wire;
        flow.expire(At { frame: 3, time: at.time + HELD_TIME_MAX }, &mut Off, heard);
        assert!(flow.held() > 0);
        flow.expire(At { frame: 3, time: at.time + HELD_TIME_MAX + 1 }, &mut Off, heard);
        assert_eq!((wire.order(), wire.gaps(), wire.flow.held()), (vec![10, 12], vec![(1, false)], 0));
    }

    #[test]
    fn how_many_packets_are_held() {
        let mut wire = Wire::default();
        wire.only(10);
        let last = 11 + HELD_PACKETS_MAX as u32;
        (12..=last).for_each(|psn| _ = wire.only(psn));
        assert_eq!((wire.heard.ops.len(), wire.flow.senders[0].held.len()), (1, HELD_PACKETS_MAX));
        wire.only(last + 1);
        assert_eq!((wire.heard.ops.len(), wire.flow.held(), wire.gaps()), (HELD_PACKETS_MAX + 2, 0, vec![(1, false)]));
        // or how much
        let half = vec![1; HELD_BYTES_MAX / 2];
        let mut wire = Wire::default();
        wire.only(10).packet(End::A, ONLY, 12, None, &half).packet(End::A, ONLY, 13, None, &half);
        assert_eq!((wire.heard.ops.len(), wire.flow.held()), (1, HELD_BYTES_MAX));
        wire.packet(End::A, ONLY, 14, None, &[]).packet(End::A, ONLY, 15, None, &[1]);
        assert_eq!((wire.heard.ops.len(), wire.flow.held()), (5, 0));
    }

    #[test]
    fn packets_without_a_reply_are_sent_again_by_a_timer() {
        let mut wire = Wire::default();
        wire.only(10).only(12).only(13).only(12).only(13);
        assert_eq!(wire.measured(), [Measure::Timeout(2 * MS)], "for the first of those that follow each other");
        assert_eq!(wire.repeated(), 2);
    }

    #[test]
    fn recoveries_begin_where_all_was_well() {
        let begun = |wire: &Wire| {
            let begins = |fact: &IbFact| match fact {
                IbFact::Recovering { since, psn, is_gap, .. } => Some((since.frame, *psn, *is_gap)),
                _ => None,
            };
            wire.heard.facts.iter().filter_map(begins).collect::<Vec<_>>()
        };
        let mut gap = Wire::default();
        gap.only(10).only(11).only(13);
        assert_eq!(begun(&gap), [(3, 12, true)], "with the packet that shows it");
        let mut asked = Wire::default();
        asked.only(10).only(11).nak(11);
        assert_eq!(begun(&asked), [(2, 11, false)], "with the last packet that was sent");
        let mut next = Wire::default();
        next.only(10).only(11).nak(12);
        assert_eq!(begun(&next), [(3, 12, true)], "none of what was seen is missing");
        let mut behind = Wire::default();
        behind.only(10).only(11);
        behind.flow.senders[0].cursor = 13;
        behind.nak(12);
        assert_eq!(begun(&behind), [(2, 12, false)]);
    }

    #[test]
    fn a_recovery_is_over_with_the_first_new_packet() {
        let mut wire = Wire::default();
        wire.only(10).only(12).nak(11).only(11).only(12);
        assert!(wire.sender().recovery.is_some());
        wire.only(13);
        assert!(wire.sender().recovery.is_none());
        assert_eq!(wire.ended(), [(Cause::LostBefore, 1)]);
        // or when its newest packet is acknowledged
        let mut wire = Wire::default();
        wire.only(10).only(12).nak(11).only(11).only(12).ack(11);
        assert!(wire.sender().recovery.is_some());
        wire.ack(12);
        assert_eq!(wire.ended(), [(Cause::LostBefore, 1)]);
        // the newest is the last of those that wait
        let mut wire = Wire::default();
        wire.only(10).only(12).only(13).nak(11).only(11).only(12).only(13);
        assert!(wire.sender().recovery.is_some());
        wire.only(14);
        assert_eq!(wire.ended(), [(Cause::LostBefore, 1)]);
        // what was on its way when the NAK came does not end it
        let mut wire = Wire::default();
        wire.only(10).only(11).nak(11).only(12).only(13);
        assert!(wire.sender().recovery.is_some());
    }

    #[test]
    fn packets_behind_the_one_that_was_asked_for_wait_for_their_copies() {
        let mut wire = Wire::default();
        wire.only(10).only(12).only(13).nak(11).only(11);
        assert_eq!(wire.order(), [10, 11]);
        wire.only(14);
        assert_eq!((wire.order(), wire.flow.held()), (vec![10, 11, 12, 13, 14], 0), "they get none");
    }

    /// A packet that was lost, as it seems, asked for and sent again: its first copy comes so many ns after it was
    /// missed.
    fn held_up(after: i64, acknowledged: u32, number: u32) -> Wire {
        let mut wire = Wire::default();
        wire.only(10).only(12);
        let missed = wire.at.time;
        wire.nak(11).only(11).ack(acknowledged).only(12).only(13);
        let now = wire.at.time;
        wire.after(missed + after - now).only(number);
        wire
    }

    #[test]
    fn a_packet_that_was_held_up_had_not_been_lost() {
        let told = |wire: Wire| {
            let losses = wire.losses();
            (losses.overtaken.count, losses.lost_before.count, losses.delay, wire.sender().recovery.is_some())
        };
        assert_eq!(told(held_up(LATE_MAX - 1, 11, 11)), (1, 0, LATE_MAX - 1, false));
        assert_eq!(told(held_up(LATE_MAX, 11, 11)), (0, 1, 0, true), "sent again");
        assert_eq!(told(held_up(LATE_MAX - 1, 11, 12)), (0, 1, 0, true), "another one");
        assert_eq!(told(held_up(LATE_MAX - 1, 10, 11)), (0, 1, 0, true), "its receiver may not have it");
    }

    #[test]
    fn an_old_packet_was_overtaken_by_its_copy() {
        // identifications that count up: eight of them are trusted
        let mut wire = Wire::default();
        for psn in 10..24 {
            wire.ip_id = 100 + psn as u16;
            wire.only(psn);
        }
        let gap = wire.at.time - 5 * MS;
        wire.flow.senders[0].filled.extend([
            (20, At { frame: 1, time: gap - MS }),
            (21, At { frame: 2, time: gap }),
            (22, At { frame: 3, time: gap + MS }),
        ]);
        wire.ip_id = 123 - OLD + 1;
        wire.only(21);
        assert!(!wire.flow.is_old);
        wire.flow.senders[0].recovery = None;
        *wire.flow.losses(End::A) = Losses::default();
        wire.ip_id = 123 - OLD;
        wire.only(21);
        assert!(wire.flow.is_old);
        let (delay, losses) = (wire.at.time - gap, wire.losses());
        assert_eq!((losses.overtaken.count, losses.delay, losses.lost()), (1, delay, 0));
        assert!(wire.sender().recovery.is_none());
    }

    #[test]
    fn how_soon_the_copy_of_the_last_packet_comes() {
        let copies = |after: i64, number: u32| {
            let mut wire = Wire { ip_id: 5, ..Wire::default() };
            wire.only(10).only(11);
            // another datagram
            wire.ip_id = 9;
            wire.after(after).only(number);
            (wire.copies(), wire.repeated())
        };
        assert_eq!(copies(COPY_TIME_MAX, 11), (1, 0));
        assert_eq!(copies(COPY_TIME_MAX + 1, 11), (0, 1));
        assert_eq!(copies(COPY_TIME_MAX, 10), (0, 1), "not the last");
    }

    #[test]
    fn packets_stand_behind_their_acknowledgment() {
        let mut wire = Wire::default();
        wire.only(10).ack(12);
        let misplaced = [11, 12, 13].map(|psn| wire.only(psn).misplaced());
        assert_eq!((misplaced, wire.losses().misplaced.count), ([1, 2, 2], 2));
        // those that had been given up
        let mut wire = Wire::default();
        wire.only(10).only(14).ack(14);
        assert_eq!((wire.gaps(), wire.order()), (vec![(3, true)], vec![10, 14]));
        let told = [13, 12, 11].map(|psn| {
            wire.only(psn);
            (wire.misplaced(), wire.repeated())
        });
        assert_eq!(told, [(1, 0), (2, 0), (3, 0)]);
        // each of them once
        let mut wire = Wire::default();
        wire.only(10).only(14).ack(14).only(12).only(12);
        assert_eq!((wire.misplaced(), wire.repeated()), (1, 1));
        let mut wire = Wire::default();
        wire.only(10).only(14).ack(14).only(11).only(11);
        assert_eq!((wire.misplaced(), wire.repeated()), (1, 1));
    }

    #[test]
    fn only_what_was_acknowledged_was_lost_by_the_capture() {
        // 11 and 12 are missing; the receiver had 11, and asks for 12
        let mut wire = Wire::default();
        wire.only(10).only(13).nak(12);
        assert_eq!((wire.gaps(), wire.order()), (vec![(1, true)], vec![10]));
        wire.only(12).only(13);
        assert_eq!((wire.order(), wire.misplaced(), wire.repeated()), (vec![10, 12, 13], 0, 1));
        wire.only(14).ack(14);
        assert_eq!(
            (wire.gaps(), wire.ended(), wire.losses().lost_before.count),
            (vec![(1, true)], vec![(Cause::LostBefore, 1)], 1)
        );
        // an acknowledgment says the same, before the packets behind it or after
        let acknowledged = |early: bool, acknowledged: u32| {
            let mut wire = Wire::default();
            wire.only(10);
            let acks = |wire: &mut Wire| _ = wire.ack(acknowledged);
            if early {
                acks(&mut wire);
            }
            wire.only(14);
            if !early {
                acks(&mut wire);
            }
            (wire.gaps(), wire.order(), wire.flow.held() > 0)
        };
        for early in [false, true] {
            assert_eq!(acknowledged(early, 10), (vec![], vec![10], true));
            assert_eq!(acknowledged(early, 11), (vec![(1, true)], vec![10], true));
            assert_eq!(acknowledged(early, 12), (vec![(2, true)], vec![10], true));
            assert_eq!(acknowledged(early, 13), (vec![(3, true)], vec![10, 14], false));
            assert_eq!(acknowledged(early, 14), (vec![(3, true)], vec![10, 14], false));
        }
        // those that nobody acknowledged never came
        let mut wire = Wire::default();
        wire.only(10).only(14).ack(11);
        let Wire { flow, heard, at, .. } = &mut wire;
        flow.finish(*at, heard);
        assert_eq!((wire.gaps(), wire.order()), (vec![(1, true), (2, false)], vec![10, 14]));
        // one that comes late by itself is known by its own number
        let mut wire = Wire::default();
        wire.only(10).only(13).ack(11).only(12).only(14);
        assert_eq!((wire.order(), wire.sender().late.map(|late| late.psn)), (vec![10, 12, 13, 14], Some(12)));
    }

    #[test]
    fn a_write_goes_on_inside_a_hole_of_which_a_part_was_acknowledged() {
        // a Write of packets 10 to 14: 11 was not captured, 12 was lost and comes again
        let mut wire = Wire::default();
        wire.memory(WRITE_FIRST, 10, 1280, &[1; 256]).packet(End::A, WRITE_MIDDLE, 13, None, &[2; 256]).nak(12);
        wire.packet(End::A, WRITE_MIDDLE, 12, None, &[2; 256]).packet(End::A, WRITE_MIDDLE, 13, None, &[2; 256]);
        wire.packet(End::A, WRITE_LAST, 14, None, &[2; 256]);
        let address = |n: u64| Placement::Memory { key: 7, address: 0x1000 + 256 * n };
        assert_eq!(wire.heard.places, [0, 2, 3, 4].map(address));
    }

    #[test]
    fn a_recovery_does_not_begin_with_what_the_capture_lost() {
        // 11 was not captured; long after that, 13 is lost
        let mut wire = Wire::default();
        wire.only(10).only(12).ack(12).after(5000 * MS).only(14).after(MS).nak(13).only(13).only(14).ack(14);
        let begins = |fact: &IbFact| {
            if let IbFact::Recovering { since, psn, .. } = fact { Some((since.frame, *psn)) } else { None }
        };
        let begun: Vec<_> = wire.heard.facts.iter().filter_map(begins).collect();
        assert_eq!(begun, [(2, 11), (4, 13)]);
        assert_eq!(wire.count(|fact| *fact == IbFact::NotRecovering), 1);
        assert_eq!((wire.ended(), wire.losses().recovery_longest), (vec![(Cause::LostBefore, 1)], 4 * MS));
    }

    #[test]
    fn packets_that_were_skipped_come_in_any_order() {
        let told = |numbers: &[u32]| {
            let mut wire = Wire::default();
            wire.only(10).only(14).ack(14).only(18).ack(18);
            assert_eq!(wire.gaps(), [(3, true), (3, true)]);
            numbers.iter().for_each(|psn| _ = wire.only(*psn));
            (wire.misplaced(), wire.repeated())
        };
        assert_eq!(told(&[11, 12, 13]), (3, 0));
        assert_eq!(told(&[12, 13, 11]), (3, 0));
        assert_eq!(told(&[15, 12, 16, 13, 17, 11]), (6, 0));
        assert_eq!(told(&[12, 12, 11, 11, 13, 13]), (3, 3), "each of them once");
        assert_eq!(told(&[10, 14]), (0, 2), "those came before");
    }

    #[test]
    fn how_many_skipped_stretches_are_remembered() {
        let told = |stretches: usize, come: u32| {
            let mut wire = Wire::default();
            wire.only(10);
            (1..=stretches as u32).for_each(|n| _ = wire.only(10 + 2 * n).ack(10 + 2 * n));
            (0..come).for_each(|n| _ = wire.only(11 + 2 * n));
            (wire.misplaced(), wire.repeated())
        };
        assert_eq!([told(SKIPPED_MAX, 1), told(SKIPPED_MAX + 1, 1)], [(1, 0), (0, 1)]);
        assert_eq!(told(SKIPPED_MAX, SKIPPED_MAX as u32), (SKIPPED_MAX, 0), "those that came make room");
    }

    #[test]
    fn packets_that_were_acknowledged_are_not_waited_for() {
        let order = |acknowledged: u32, seen: u32, early: u32| {
            let mut wire = Wire::default();
            wire.only(10).ack(acknowledged);
            (11..=seen).for_each(|psn| _ = wire.only(psn));
            wire.only(early);
            (wire.order().len(), wire.gaps(), wire.flow.held() > 0)
        };
        assert_eq!(order(10, 10, 12), (1, vec![], true));
        assert_eq!(order(11, 10, 12), (2, vec![(1, true)], false));
        assert_eq!(order(12, 10, 13), (2, vec![(2, true)], false));
        // an acknowledgment of what came since then says nothing of the next
        assert_eq!(order(12, 13, 15), (4, vec![], true));
    }

    #[test]
    fn what_came_late_is_settled_by_its_receiver() {
        let late = || {
            let mut wire = Wire::default();
            wire.only(10).only(12).only(11).only(13);
            assert_eq!((wire.order(), wire.sender().late.map(|late| late.psn)), (vec![10, 11, 12, 13], Some(11)));
            wire
        };
        let told = |wire: &mut Wire| (wire.sender().late.is_some(), wire.misplaced(), wire.losses().misplaced.count);
        assert_eq!(told(late().ack(10)), (true, 0, 0));
        assert_eq!(told(late().ack(11)), (false, 1, 1));
        assert_eq!(told(late().ack(12)), (false, 1, 1));
        // its receiver noticed
        assert_eq!(told(late().nak(12)), (true, 0, 0));
        let mut noticed = late();
        assert_eq!(told(noticed.nak(11)), (false, 0, 0));
        noticed.only(11).only(12).only(13).ack(13);
        assert_eq!((noticed.losses().overtaken.count, noticed.ended()), (1, vec![(Cause::Reordered, 1)]));
        // or the capture is over
        let mut wire = late();
        let Wire { flow, heard, at, .. } = &mut wire;
        flow.finish(*at, heard);
        assert_eq!(told(&mut wire), (false, 1, 1));
    }

    #[test]
    fn the_path_mtu_is_learnt_from_packets_that_are_not_the_last() {
        let learnt = |opcode: u8, length: usize| {
            let mut wire = Wire::default();
            wire.packet(End::A, opcode, 10, None, &vec![1; length]);
            wire.flow.mtu
        };
        assert_eq!(
            [learnt(FIRST, 0), learnt(FIRST, 1), learnt(FIRST, 1024), learnt(ONLY, 1024)],
            [None, Some(1), Some(1024), None]
        );
        assert_eq!([learnt(WRITE_MIDDLE, 256), learnt(LAST, 256)], [Some(256), None]);
        let mut wire = Wire::default();
        wire.only(10).memory(READ, 11, 4096, &[]).packet(End::B, RESPONSE_FIRST, 11, None, &[]);
        assert_eq!(wire.flow.mtu, None);
        wire.packet(End::B, RESPONSE_MIDDLE, 12, None, &[0]);
        assert_eq!(wire.flow.mtu, Some(1));
    }

    #[test]
    fn packets_tell_the_path_mtu_whatever_the_handshake_said() {
        let mut wire = Wire::default();
        wire.flow.path_mtu(4096);
        wire.only(10).memory(READ, 11, 4096, &[]);
        assert_eq!(wire.sender().next, Some(12), "one Response");
        wire.packet(End::B, RESPONSE_FIRST, 11, None, &[0; 1024]);
        assert_eq!((wire.flow.mtu, wire.sender().next), (Some(1024), Some(15)), "four of them");
        let mut wire = Wire::default();
        wire.flow.path_mtu(256);
        wire.packet(End::A, ONLY, 10, None, &[0; 1000]);
        assert_eq!(wire.flow.mtu, Some(1024), "none is longer");
    }

    #[test]
    fn a_packet_beyond_the_path_mtu_changes_nothing_that_is_known() {
        let mut wire = Wire::default();
        wire.flow.path_mtu(4096);
        wire.packet(End::A, ONLY, 10, None, &[0; 4096]);
        assert_eq!(wire.count(|fact| matches!(fact, IbFact::BeyondMtu { .. })), 0);
        wire.packet(End::A, ONLY, 11, None, &[0; 4100]).memory(READ, 12, 8192, &[]);
        assert_eq!((wire.flow.mtu, wire.sender().next), (Some(4096), Some(14)), "two Responses");
        assert_eq!(wire.count(|fact| matches!(fact, IbFact::BeyondMtu { length: 4100 })), 1);
        let mut wire = Wire::default();
        wire.packet(End::A, FIRST, 10, None, &[0; 1024]).packet(End::A, LAST, 11, None, &[0; 1028]);
        assert_eq!(wire.flow.mtu, Some(1024), "it is not the longer one that is wrong, or both are");
    }

    #[test]
    fn where_requests_go_on_behind_a_read_of_unknown_length() {
        // the answer has one packet, or as many as the smallest path MTU makes
        let behind = |psn: u32| {
            let mut wire = Wire::default();
            wire.only(10).memory(READ, 11, 1024, &[]).only(psn);
            (wire.heard.ops.len(), wire.gaps().len())
        };
        assert_eq!([12, 13, 15, 16].map(behind), [(3, 0), (3, 0), (3, 0), (2, 0)]);
        // a held packet is released by the same slack
        let held = |psn: u32| {
            let mut wire = Wire::default();
            wire.only(10).only(psn).memory(READ, 11, 1024, &[]);
            (wire.heard.ops.len(), wire.flow.senders[0].held.len())
        };
        assert_eq!([12, 15, 16].map(held), [(3, 0), (3, 0), (2, 1)]);
        // with the first Response it is known
        let mut wire = Wire::default();
        wire.only(10).memory(READ, 11, 1024, &[]).response(RESPONSE_FIRST, 11);
        assert_eq!((wire.sender().next, wire.sender().slack), (Some(15), 0));
        let mut gone_on = Wire::default();
        gone_on.only(10).memory(READ, 11, 1024, &[]).only(15).response(RESPONSE_FIRST, 11);
        assert_eq!(gone_on.sender().next, Some(16));
    }

    /// When the Read of [`reread`] goes out again.
    const NOW: At = At { frame: 50, time: 50 * MS };

    /// End A recovers. Its Read of packets 100 to 103 was answered whole, and goes out again: times that Responses were
    /// asked for again, those of them that were lost behind the capture point, and those that had gone by.
    fn reread(change: impl FnOnce(&mut IbFlow, &mut Sender)) -> ([u64; 3], IbFlow) {
        let mut flow = IbFlow { mtu: Some(256), ..IbFlow::default() };
        let mut sender = Sender { next: Some(104), cursor: 104, last: At { frame: 1, time: MS }, ..Sender::default() };
        sender.recovery = Some(Box::new(Recovery::new(sender.last, 110)));
        sender.reads.push_back(Read {
            first: 100,
            span: 4,
            span_known: true,
            key: 7,
            address: 0,
            length: 1024,
            number: 1,
            next: 104,
            received: 1024,
            missing: Vec::new(),
            gap: At::default(),
            late: (0, At::default(), 0),
            again: None,
            asked: sender.last,
            answered_before: 0,
            is_done: true,
        });
        change(&mut flow, &mut sender);
        flow.senders[0] = sender;
        let reth = Some(Reth { virtual_address: 0, r_key: 7, dma_length: 1024 });
        again(&mut flow, READ, 100, false, Extensions { reth, ..Extensions::default() });
        let losses = flow.losses[1].as_deref().cloned().unwrap_or_default();
        ([losses.asked_again, losses.lost_behind.count, losses.went_by.count], flow)
    }

    /// A packet of end A goes out, while it recovers.
    fn again(flow: &mut IbFlow, opcode: u8, psn: u32, is_first: bool, ext: Extensions) {
        let row = bth::Opcode(opcode).row().expect("a known opcode");
        let request = Request {
            at: NOW,
            by: End::A,
            psn,
            row,
            ext: &ext,
            solicited: false,
            payload: &[],
            payload_length: 0,
            in_frame: true,
            is_doubtful: false,
        };
        flow.sent_in_recovery(&request, false, is_first, &mut Heard::default());
    }

    #[test]
    fn a_read_that_goes_out_again_was_answered_and_the_answer_lost() {
        let of = |change: fn(&mut IbFlow, &mut Sender)| reread(change).0;
        // its sender goes on behind it: it went back to this one
        assert_eq!(of(|_, _| {}), [1, 1, 0]);
        assert_eq!(of(|_, s| s.next = Some(105)), [0, 0, 0], "or the capture has a copy that was held up");
        let (_, mut flow) = reread(|_, s| s.next = Some(105));
        assert!(flow.losses[1].is_none());
        assert_eq!(flow.senders[0].reread, Some((NOW, 104)));
        // what follows shows which
        let follows = |flow: &IbFlow, psn: u32| {
            let mut flow = flow.clone();
            again(&mut flow, ONLY, psn, false, Extensions::default());
            (flow.losses(End::B).asked_again, flow.losses(End::B).lost_behind.count, flow.senders[0].reread)
        };
        assert_eq!(follows(&flow, 104), (1, 1, None));
        assert_eq!(follows(&flow, 105), (0, 0, None));
        assert_eq!(flow.losses(End::B).asked_again, 0);
        // nothing of it had come
        assert_eq!(of(|_, s| s.reads[0].received = 0), [1, 0, 0]);
        assert_eq!(of(|_, s| s.reads[0].received = 1), [1, 1, 0]);
        // not all of it had come
        assert_eq!(of(|_, s| s.reads[0].missing = vec![101]), [1, 0, 0]);
        assert_eq!(of(|_, s| s.reads[0].is_done = false), [1, 0, 0]);
    }

    #[test]
    fn a_read_that_is_done_is_known_by_its_numbers() {
        let done = |done: u32| {
            reread(|_, s| {
                s.reads.clear();
                s.reads_done = Some(done);
            })
            .0
        };
        assert_eq!([done(100), done(101)], [[1, 0, 0], [1, 1, 0]]);
        // one that does not reach so far
        let span = |span: u32, first: u32| reread(|_, s| (s.reads[0].span, s.reads[0].first) = (span, first)).0;
        assert_eq!(
            [span(1, 100), span(1, 99), span(2, 99), span(4, 101)],
            [[1, 1, 0], [1, 0, 0], [1, 1, 0], [1, 0, 0]]
        );
    }

    #[test]
    fn a_read_that_was_asked_for_goes_out_again_for_that() {
        let at = |ago: i64| At { frame: 40, time: NOW.time - ago };
        let asked = |from: u32, to: u32, ago: i64| reread(|_, s| s.nak = Some((from, to, at(ago)))).0;
        let (for_nak, by_itself) = ([1, 0, 0], [1, 1, 0]);
        assert_eq!(
            [asked(100, 101, 0), asked(99, 101, 0), asked(101, 104, 0), asked(99, 100, 0)],
            [for_nak, for_nak, by_itself, by_itself]
        );
        assert_eq!([asked(100, 104, ASKS_AGAIN), asked(100, 104, ASKS_AGAIN + 1)], [for_nak, by_itself]);
        let far = |ago: i64| {
            reread(|flow, s| {
                flow.round_trip[0] = Some(100_000);
                s.nak = Some((100, 104, at(ago)));
            })
            .0
        };
        assert_eq!([far(ASKS_AGAIN + 100_000), far(ASKS_AGAIN + 100_001)], [for_nak, by_itself]);
    }

    #[test]
    fn a_read_that_crosses_its_answer_shows_no_loss() {
        let crossing = |way: Option<i64>, ago: i64| {
            reread(|flow, s| {
                flow.round_trip[0] = way;
                s.answered = (104, NOW.time - ago);
            })
            .0
        };
        assert_eq!(
            [37_500, 37_501, 99_999, 100_000].map(|ago| crossing(Some(100_000), ago)),
            [[0, 0, 0], [0, 0, 1], [0, 0, 1], [1, 1, 0]],
            "the first of them may have been lost, unless all of them were on their way"
        );
        assert_eq!(crossing(None, 0), [1, 1, 0]);
    }

    #[test]
    fn responses_that_went_by_long_enough_ago_were_lost_or_overtaken() {
        const WAY: i64 = 80_000;
        let known = WAY - WAY / 8 - HELD_BACK;
        let by = |way: Option<i64>, next: u32, ago: i64, missing: Vec<u32>| {
            reread(|flow, s| {
                flow.round_trip[0] = way;
                (s.reads[0].next, s.reads[0].missing, s.reads[0].is_done) = (next, missing, false);
                s.passed[0] = (100, NOW.time - ago);
            })
            .0
        };
        assert_eq!(by(Some(WAY), 101, known + 1, Vec::new()), [1, 0, 1]);
        assert_eq!(by(Some(WAY), 101, known, Vec::new()), [1, 0, 0], "they may still be on their way");
        assert_eq!(by(Some(WAY), 100, known + 1, Vec::new()), [1, 0, 0], "it is the next");
        assert_eq!(by(Some(WAY), 102, known + 1, vec![100]), [1, 0, 0], "it is missing");
        assert_eq!(by(Some(WAY), 102, known + 1, vec![101]), [1, 0, 0], "another one of it is missing");
        assert_eq!(by(None, 101, known + 1, Vec::new()), [1, 0, 0], "the way is not known");
        // the same of a Read that may be the copy of one that was held up
        let copy = |ago: i64| {
            reread(|flow, s| {
                flow.round_trip[0] = Some(WAY);
                (s.next, s.passed[0]) = (Some(105), (100, NOW.time - ago));
            })
            .0
        };
        assert_eq!([copy(known), copy(known + 1)], [[0, 0, 0], [0, 0, 1]]);
    }

    #[test]
    fn how_long_ago_a_response_went_by() {
        let mut sender = Sender::default();
        assert_eq!(sender.passed_ago(NOW, 100), 0, "none did");
        sender.passed[..4].copy_from_slice(&[(98, 1), (100, NOW.time - 5), (102, NOW.time - 7), (104, NOW.time - 6)]);
        assert_eq!(
            [98, 99, 100, 101, 103, 104, 105].map(|psn| sender.passed_ago(NOW, psn)),
            [NOW.time - 1, 7, 7, 7, 6, 6, 0]
        );
    }

    #[test]
    fn the_rest_of_a_read_is_missing_when_its_sender_asks_again() {
        let gap = |change: fn(&mut Sender)| reread(|_, s| change(s)).1.senders[0].reads[0].gap;
        let known = At { frame: 4, time: 4 };
        assert_eq!(gap(|s| s.reads[0].is_done = false), NOW);
        assert_eq!(gap(|s| (s.reads[0].is_done, s.reads[0].gap) = (false, At { frame: 4, time: 4 })), known);
        assert_eq!(gap(|_| {}), At::default());
        assert_eq!(gap(|s| (s.reads[0].is_done, s.reads[0].received) = (false, 0)), At::default());
        assert_eq!(gap(|s| (s.reads[0].is_done, s.nak) = (false, Some((100, 104, NOW)))), At::default());
        // what came late by itself was overtaken: its requester noticed
        let (_, mut flow) = reread(|_, s| s.reads[0].late = (2, At { frame: 4, time: 4 }, 9));
        let losses = flow.losses(End::B);
        assert_eq!((losses.overtaken.count, losses.overtaken.first, losses.delay), (2, known, 9));
        assert_eq!(flow.senders[0].reads[0].late.0, 0);
    }

    #[test]
    fn who_spoke_late_enough_and_was_asked_to_had_the_packet() {
        // the receiver takes 10 ns; its last word was so long after the packet
        let spoke = |after: i64, asks: Option<u32>, took: Option<i64>| {
            let mut flow = IbFlow { round_trip: [None, took], ..IbFlow::default() };
            let last = At { frame: 1, time: MS };
            flow.senders[0] = Sender { next: Some(104), last, asks, ..Sender::default() };
            flow.senders[0].recovery = Some(Box::new(Recovery::new(last, 110)));
            flow.senders[1].last = At { frame: 2, time: MS + after };
            again(&mut flow, ONLY, 100, false, Extensions::default());
            flow.end_recovery(NOW, End::A, false, &mut Heard::default());
            let losses = flow.losses(End::A);
            (losses.unacknowledged.count, losses.unheard.count)
        };
        let (had, unsure) = ((1, 0), (0, 1));
        assert_eq!(
            [spoke(10, None, Some(10)), spoke(11, None, Some(10)), spoke(11, None, None)],
            [unsure, had, unsure]
        );
        assert_eq!(
            [spoke(11, Some(99), Some(10)), spoke(11, Some(100), Some(10)), spoke(11, Some(101), Some(10))],
            [unsure, had, had]
        );
    }

    #[test]
    fn so_many_missing_packets_that_came_are_remembered() {
        let mut flow = IbFlow::default();
        flow.senders[0].recovery = Some(Box::new(Recovery::new(At { frame: 1, time: 1 }, 200)));
        let filled = |flow: &IbFlow| {
            let filled = &flow.senders[0].filled;
            (filled.len(), filled.front().map(|(psn, _)| *psn))
        };
        for n in 0..FILLED_MAX as u32 {
            again(&mut flow, ONLY, 100 + 2 * n, true, Extensions::default());
        }
        assert_eq!(filled(&flow), (FILLED_MAX, Some(100)));
        again(&mut flow, ONLY, 190, true, Extensions::default());
        assert_eq!(filled(&flow), (FILLED_MAX, Some(102)));
        // not those that went out again, nor what is new
        again(&mut flow, ONLY, 191, false, Extensions::default());
        again(&mut flow, ONLY, 200, true, Extensions::default());
        assert_eq!(filled(&flow), (FILLED_MAX, Some(102)));
        again(&mut flow, ONLY, 199, true, Extensions::default());
        assert_eq!(filled(&flow), (FILLED_MAX, Some(104)));
    }

    #[test]
    fn numbers_that_a_nak_or_a_read_asked_for() {
        let at = |frame| At { frame, time: frame as i64 };
        let mut sender = Sender { nak: Some((10, 13, at(5))), read_again: Some((10, 13, at(6))), ..Sender::default() };
        assert_eq!([9, 10, 12, 13].map(|psn| sender.asked_for(psn).map(|at| at.frame)), [None, Some(5), Some(5), None]);
        assert_eq!(
            [9, 10, 12, 13].map(|psn| sender.reread_for(psn).map(|at| at.frame)),
            [None, Some(6), Some(6), None]
        );
        sender.first = Some(20);
        assert_eq!([19, 20, 21].map(|psn| sender.is_before(psn)), [true, false, false]);
    }

    #[test]
    fn a_read_is_answered_in_order() {
        let mut wire = Wire::default();
        wire.only(10)
            .read(11, 3)
            .response(RESPONSE_FIRST, 11)
            .response(RESPONSE_MIDDLE, 12)
            .response(RESPONSE_LAST, 13)
            .only(14);
        assert_eq!(wire.heard.facts, [IbFact::ReadsOutstanding(1)]);
        let address = |n: u64| Placement::Memory { key: 7, address: 0x1000 + 256 * n };
        assert_eq!(wire.heard.places[1..5], [address(0), address(0), address(1), address(2)]);
        assert_eq!((wire.sender().reads.len(), wire.sender().reads_done), (0, Some(14)));
        assert!(wire.flow.losses[1].is_none());
        // what comes again behind it
        wire.response(RESPONSE_LAST, 13);
        assert_eq!((wire.heard.ops.len(), wire.repeated(), wire.losses_of_responses().repeated.count), (6, 1, 1));
        wire.after(1).response(RESPONSE_LAST, 13);
        assert_eq!((wire.heard.ops.len(), wire.copies(), wire.losses_of_responses().repeated.count), (6, 1, 1));
        // what no Read asked for
        wire.response(RESPONSE_ONLY, 14);
        assert_eq!((wire.heard.ops.len(), wire.heard.places.last()), (7, Some(&Placement::Unknown)));
    }

    #[test]
    fn reads_at_the_same_time_are_counted() {
        let mut wire = Wire::default();
        wire.only(10).read(11, 1).read(12, 2).response(RESPONSE_ONLY, 11).read(14, 1);
        let asked = wire.at;
        wire.response(RESPONSE_FIRST, 12).response(RESPONSE_LAST, 13).response(RESPONSE_ONLY, 14);
        let outstanding = |fact: &IbFact| if let IbFact::ReadsOutstanding(count) = fact { Some(*count) } else { None };
        assert_eq!(wire.heard.facts.iter().filter_map(outstanding).collect::<Vec<_>>(), [1, 2, 2]);
        let answered = |fact: &IbFact| match fact {
            IbFact::ReadsAnswered { asked, outstanding } => Some((asked.frame, *outstanding)),
            _ => None,
        };
        let told: Vec<_> = wire.heard.facts.iter().filter_map(answered).collect();
        assert_eq!(told, [(3, 2), (asked.frame, 2)], "one alone says nothing");
        // one that is refused, of which nothing came
        let refused = |psn: u32, code: u32| {
            let mut wire = Wire::default();
            wire.only(10).read(11, 1).read(12, 2).response(RESPONSE_ONLY, 11);
            wire.packet(End::B, ACKNOWLEDGE, psn, Some((0x60 | code) << 24), &[]);
            wire.heard.facts.iter().filter_map(answered).collect::<Vec<_>>()
        };
        assert_eq!([refused(12, 2), refused(13, 2), refused(12, 0)], [vec![(3, 2)], vec![], vec![]]);
        let mut begun = Wire::default();
        begun.only(10).read(11, 1).read(12, 2).response(RESPONSE_ONLY, 11).response(RESPONSE_FIRST, 12);
        begun.packet(End::B, ACKNOWLEDGE, 12, Some(0x6200_0000), &[]);
        assert_eq!(begun.heard.facts.iter().filter_map(answered).count(), 0);
    }

    #[test]
    fn so_many_reads_are_remembered() {
        let mut wire = Wire::default();
        wire.only(10);
        (0..READS_MAX as u32).for_each(|n| _ = wire.read(11 + n, 1));
        assert_eq!((wire.sender().reads.len(), wire.sender().reads[0].first), (READS_MAX, 11));
        wire.read(11 + READS_MAX as u32, 1);
        assert_eq!((wire.sender().reads.len(), wire.sender().reads[0].first), (READS_MAX, 12));
    }

    /// Of a Read of packets 11 to 14 the second Response is missing.
    fn missing() -> Wire {
        let mut wire = Wire::default();
        wire.only(10).read(11, 4).response(RESPONSE_FIRST, 11).response(RESPONSE_MIDDLE, 13);
        assert_eq!(wire.count(|fact| *fact == IbFact::SequenceGap { missing: 1 }), 1);
        wire
    }

    #[test]
    fn a_response_that_is_missing_comes_late_or_again() {
        // late, by itself: its requester may not notice
        let mut wire = missing();
        wire.response(RESPONSE_MIDDLE, 12);
        assert_eq!(wire.sender().reads[0].late, (1, wire.at, MS));
        wire.response(RESPONSE_LAST, 14);
        assert_eq!(
            (wire.misplaced(), wire.losses_of_responses().misplaced.count, wire.sender().reads.len()),
            (1, 1, 0)
        );
        // the Read goes out again for it, and its answer begins with it
        let mut wire = missing();
        let gap = wire.at;
        wire.response(RESPONSE_LAST, 14).read(12, 3);
        assert_eq!(wire.sender().reads[0].again, Some(wire.at));
        wire.response(RESPONSE_FIRST, 12);
        let losses = wire.losses_of_responses();
        assert_eq!(
            (losses.lost_before.count, losses.lost_before.first, losses.repeated.count, losses.overtaken.count),
            (1, gap, 1, 0)
        );
        assert_eq!((wire.sender().refilled, wire.sender().reads.len()), (Some(12), 0));
        // the rest of the answer had come
        wire.response(RESPONSE_MIDDLE, 13).response(RESPONSE_LAST, 14);
        let losses = wire.losses_of_responses();
        assert_eq!((losses.lost_before.count, losses.repeated.count), (1, 3));
        // the copy that was held up comes at last: it had not been lost
        wire.response(RESPONSE_MIDDLE, 12);
        let losses = wire.losses_of_responses();
        assert_eq!((losses.lost_before.count, losses.overtaken.count, losses.repeated.count), (0, 1, 4));
        assert_eq!(wire.sender().refilled, None);
        // the capture did not have it
        let mut wire = missing();
        wire.response(RESPONSE_LAST, 14).only(15).only(16).read(17, 1).response(RESPONSE_ONLY, 17);
        assert_eq!(wire.count(|fact| *fact == IbFact::ResponsesMissed(1)), 1);
        assert_eq!((wire.sender().reads.len(), wire.sender().reads_done), (0, Some(18)));
    }

    #[test]
    fn a_response_that_comes_too_soon_for_an_answer_was_on_its_way() {
        const WAY: i64 = 800_000;
        let after = WAY - WAY / 8 - HELD_BACK;
        let came = |ns: i64| {
            let mut wire = missing();
            wire.response(RESPONSE_LAST, 14);
            let gap = wire.sender().reads[0].gap.time;
            wire.read(12, 3);
            wire.flow.round_trip[1] = Some(WAY);
            wire.after(ns).response(RESPONSE_MIDDLE, 12);
            let late = wire.at.time - gap;
            let losses = wire.losses_of_responses();
            (losses.overtaken.count, losses.lost_before.count, if losses.delay == late { 1 } else { losses.delay })
        };
        assert_eq!(came(after - 1), (1, 0, 1));
        // no first packet, and not behind another: it does not begin an answer
        assert_eq!(came(after), (0, 0, 0));
        let first = |ns: i64| {
            let mut wire = missing();
            wire.response(RESPONSE_LAST, 14).read(12, 3);
            wire.flow.round_trip[1] = Some(WAY);
            wire.after(ns).response(RESPONSE_FIRST, 12);
            let losses = wire.losses_of_responses();
            (losses.overtaken.count, losses.lost_before.count)
        };
        assert_eq!([first(after - 1), first(after)], [(1, 0), (0, 1)]);
    }

    #[test]
    fn the_rest_of_a_read_that_was_asked_for_again_had_been_lost() {
        const WAY: i64 = 800_000;
        let after = WAY - WAY / 8 - HELD_BACK;
        let rest = |ns: i64, opcode: u8| {
            let mut wire = Wire::default();
            wire.only(10).read(11, 4).response(RESPONSE_FIRST, 11).response(RESPONSE_MIDDLE, 12);
            // its sender has waited long enough
            wire.read(13, 2);
            assert_eq!(wire.sender().reads[0].gap, wire.at);
            wire.flow.round_trip[1] = Some(WAY);
            wire.after(ns).response(opcode, 13);
            let losses = wire.losses_of_responses();
            let told = (losses.lost_before.count, losses.repeated.count);
            (told, wire.sender().reads[0].gap, wire.sender().refilled)
        };
        assert_eq!(rest(after, RESPONSE_FIRST), ((1, 1), At::default(), Some(13)));
        assert_eq!(rest(after - 1, RESPONSE_FIRST), ((0, 0), At::default(), None));
        assert_eq!(rest(after, RESPONSE_MIDDLE), ((0, 0), At::default(), None));
    }

    #[test]
    fn a_response_that_was_given_up_comes_behind_later_ones() {
        let comes = |ns: i64| {
            let mut wire = missing();
            wire.after(1000)
                .response(RESPONSE_LAST, 14)
                .after(ASKS_AGAIN - 1000)
                .read(15, 1)
                .after(MS)
                .response(RESPONSE_ONLY, 15);
            wire.after(ns).response(RESPONSE_MIDDLE, 12);
            let again = wire.count(|fact| matches!(fact, IbFact::Retransmission { .. }));
            let once = (wire.count(|fact| *fact == IbFact::Found(1)), wire.misplaced(), again);
            // a second time it is sent again
            wire.after(ns).response(RESPONSE_MIDDLE, 12);
            (once, wire.count(|fact| *fact == IbFact::Found(1)))
        };
        assert_eq!([comes(BEHIND_MAX), comes(BEHIND_MAX + 1)], [((1, 1, 0), 1), ((0, 0, 1), 0)]);
    }

    #[test]
    fn each_response_that_was_given_up_is_found() {
        let mut wire = Wire::default();
        wire.only(10).read(11, 4).response(RESPONSE_FIRST, 11).response(RESPONSE_LAST, 14);
        wire.after(ASKS_AGAIN).read(15, 1).after(1000).response(RESPONSE_ONLY, 15);
        assert_eq!(wire.count(|fact| *fact == IbFact::ResponsesMissed(2)), 1);
        wire.response(RESPONSE_MIDDLE, 13).response(RESPONSE_MIDDLE, 12);
        assert_eq!((wire.count(|fact| *fact == IbFact::Found(1)), wire.misplaced(), wire.repeated()), (2, 2, 0));
    }

    #[test]
    fn answers_to_reads_have_the_length_that_was_asked_for() {
        let lengths = |bytes: &[usize]| {
            let mut wire = Wire::default();
            wire.only(10).read(11, 2);
            wire.packet(End::B, RESPONSE_FIRST, 11, None, &vec![0; bytes[0]]);
            wire.packet(End::B, RESPONSE_LAST, 12, None, &vec![0; bytes[1]]);
            let other = |fact: &IbFact| match fact {
                IbFact::OtherReadLength { asked, came } => Some((*asked, *came)),
                _ => None,
            };
            wire.heard.facts.iter().find_map(other)
        };
        assert_eq!(lengths(&[256, 256]), None);
        assert_eq!(lengths(&[256, 100]), Some((512, 356)));
    }

    #[test]
    fn answers_to_reads_end_with_a_last_packet() {
        let told = |opcodes: &[u8], length: usize| {
            let mut wire = Wire::default();
            wire.only(10).read(11, opcodes.len() as u32);
            for (n, opcode) in opcodes.iter().enumerate() {
                let length = if n + 1 == opcodes.len() { length } else { 256 };
                wire.packet(End::B, *opcode, 11 + n as u32, None, &vec![0; length]);
            }
            let not_ended = |fact: &IbFact| if let IbFact::ReadNotEnded(part) = fact { Some(*part) } else { None };
            wire.heard.facts.iter().find_map(not_ended)
        };
        assert_eq!(told(&[RESPONSE_FIRST, RESPONSE_LAST], 256), None);
        assert_eq!(told(&[RESPONSE_FIRST, RESPONSE_FIRST], 256), Some(Part::First));
        assert_eq!(told(&[RESPONSE_FIRST, RESPONSE_MIDDLE], 260), Some(Part::Middle));
        assert_eq!(told(&[RESPONSE_FIRST, RESPONSE_MIDDLE], 255), None, "more may come");
        assert_eq!([told(&[RESPONSE_ONLY], 256), told(&[RESPONSE_FIRST], 256)], [None, Some(Part::First)]);
        // asked for once more, they come again
        let mut wire = Wire::default();
        wire.only(10).read(11, 2).response(RESPONSE_FIRST, 11).after(ASKS_AGAIN).read(11, 2);
        wire.after(MS).response(RESPONSE_FIRST, 11).response(RESPONSE_FIRST, 12);
        assert_eq!(wire.count(|fact| matches!(fact, IbFact::ReadNotEnded(_))), 0);
    }

    #[test]
    fn reads_are_answered_in_order_or_the_capture_missed_some() {
        // the second Read is asked for so long after a Response of the first was missed
        let told = |asked: i64, way: Option<i64>| {
            let mut wire = missing();
            let gap = wire.at.time;
            wire.after(1000).response(RESPONSE_LAST, 14).after(asked - 1000).read(15, 1);
            assert_eq!(wire.at.time, gap + asked);
            wire.flow.round_trip[0] = way;
            wire.after(MS).response(RESPONSE_ONLY, 15);
            (
                wire.count(|fact| *fact == IbFact::ResponsesMissed(1)),
                wire.sender().reads.len(),
                wire.sender().reads_done,
            )
        };
        let (waits, missed) = ((0, 2, Some(11)), (1, 0, Some(16)));
        assert_eq!([told(ASKS_AGAIN - 1, None), told(ASKS_AGAIN, None)], [waits, missed]);
        assert_eq!([told(2 * MS - 1, Some(MS)), told(2 * MS, Some(MS))], [waits, missed]);
        assert_eq!([told(ASKS_AGAIN - 1, Some(MS / 2)), told(ASKS_AGAIN, Some(MS / 2))], [waits, missed]);
        // what its requester asks for again is waited for
        let mut wire = missing();
        wire.response(RESPONSE_LAST, 14).read(12, 3).after(5 * MS).read(15, 1).response(RESPONSE_ONLY, 15);
        assert_eq!((wire.count(|fact| matches!(fact, IbFact::ResponsesMissed(_))), wire.sender().reads.len()), (0, 2));
        let mut wire = Wire::default();
        wire.only(10).read(11, 4).response(RESPONSE_FIRST, 11).response(RESPONSE_MIDDLE, 12).read(13, 2);
        assert_eq!(wire.sender().reads[0].again, Some(wire.sender().reads[0].gap));
        wire.after(5 * MS).read(15, 1).response(RESPONSE_ONLY, 15);
        assert_eq!((wire.count(|fact| matches!(fact, IbFact::ResponsesMissed(_))), wire.sender().reads.len()), (0, 2));
        // of a Read that was never answered, all are missed
        let mut wire = Wire::default();
        wire.only(10).read(11, 4).response(RESPONSE_FIRST, 11).after(5 * MS).read(15, 1).response(RESPONSE_ONLY, 15);
        wire.after(9 * MS).read(16, 1).response(RESPONSE_ONLY, 16);
        assert_eq!(wire.count(|fact| *fact == IbFact::ResponsesMissed(3)), 1);
    }

    #[test]
    fn how_many_missing_responses_are_remembered() {
        let missing = |count: u32| {
            let mut wire = Wire::default();
            wire.only(10).read(11, 3000).response(RESPONSE_FIRST, 11).response(RESPONSE_MIDDLE, 12 + count);
            wire.sender().reads[0].missing.len()
        };
        assert_eq!([0, 1, 1024, 1025].map(missing), [0, 1, 1024, MISSING_MAX]);
    }

    #[test]
    fn a_write_goes_on_behind_a_hole_inside_it() {
        // a Write of four packets, of which the capture misses some
        let behind = |length: u32, psn: u32, opcode: u8| {
            let mut wire = Wire::default();
            wire.only(9)
                .memory(WRITE_FIRST, 10, length, &[1; 256])
                .packet(End::A, opcode, psn, None, &[2; 16])
                .ack(psn);
            assert_eq!(wire.gaps(), [(psn - 11, true)]);
            wire.heard.places.last().copied()
        };
        let address = |n: u64| Some(Placement::Memory { key: 7, address: 0x1000 + 256 * n });
        assert_eq!(behind(1024, 12, WRITE_MIDDLE), address(2));
        assert_eq!(behind(1024, 13, WRITE_LAST), address(3));
        assert_eq!(behind(769, 13, WRITE_LAST), address(3));
        assert_eq!(behind(768, 13, WRITE_LAST), Some(Placement::Unknown), "it ended in the hole");
        assert_eq!(behind(1024, 13, LAST), Some(Placement::Unknown), "something else");
        assert_eq!(behind(1024, 13, ONLY), Some(Placement::Queue { offset: 0 }));
        // how long the packets of the hole are is not known
        let mut wire = Wire::default();
        wire.memory(WRITE_FIRST, 10, 1024, &[]).packet(End::A, WRITE_LAST, 13, None, &[2; 16]).ack(13);
        assert_eq!(wire.heard.places.last(), Some(&Placement::Unknown));
    }

    #[test]
    fn what_cannot_follow_is_out_of_order() {
        let out_of_order = |opcodes: &[u8]| {
            let mut wire = Wire::default();
            wire.flow.starts_at(End::A, 10);
            (10..).zip(opcodes).for_each(|(psn, opcode)| _ = wire.packet(End::A, *opcode, psn, None, &[1; 4]));
            let told = |fact: &IbFact| {
                if let IbFact::OutOfOrder { part, open, .. } = fact { Some((*part, *open)) } else { None }
            };
            wire.heard.facts.iter().filter_map(told).collect::<Vec<_>>()
        };
        assert_eq!(out_of_order(&[FIRST, LAST, ONLY, FIRST, 0x01, LAST]), []);
        assert_eq!(out_of_order(&[LAST]), [(Part::Last, false)]);
        assert_eq!(out_of_order(&[FIRST, ONLY, ONLY]), [(Part::Only, true)]);
        // behind a Read whose length is not known, nothing is known
        let read = |length: u32| {
            let mut wire = Wire::default();
            wire.flow.starts_at(End::A, 10);
            wire.memory(READ, 10, length, &[]);
            wire.sender().is_whole
        };
        assert_eq!([read(0), read(256), read(257)], [true, true, false]);
    }

    #[test]
    fn a_way_that_becomes_longer_shows_when_a_window_is_over() {
        let mut recent = RecentRoundTrip::default();
        let second = RecentRoundTrip::TIME;
        let mut add = |at: i64, took: i64| recent.add(at, took);
        assert_eq!(add(0, -1), None);
        // the last of 32 ends the window, if it lasted so long
        assert!((0..31).all(|n| add(n, 100).is_none()));
        assert_eq!(add(second - 1, 90), None, "too short");
        assert_eq!(add(second, 95), Some(90));
        assert!((0..31).all(|n| add(second + 1 + n, 5000).is_none()), "too few");
        assert_eq!(add(2 * second, 5000), None, "too short");
        assert_eq!(add(2 * second + 1, 5100), Some(5000));
        assert_eq!((add(2 * second + 2, 6000), add(2 * second + 3, 80)), (None, Some(80)), "a shorter one at once");
    }

    #[test]
    fn a_read_whose_answer_was_passed_over_goes_out_again_for_that() {
        let again = |acknowledged: u32| {
            let mut wire = Wire::default();
            wire.after(1000).only(10).read(11, 1).only(12).only(13).ack(acknowledged);
            wire.read(11, 1);
            let copies = wire.count(|fact| *fact == IbFact::Duplicate);
            let sent = wire.count(|fact| matches!(fact, IbFact::Retransmission { .. }));
            wire.only(12).only(13).response(RESPONSE_ONLY, 11).ack(13);
            (copies, sent, wire.losses().needless.count)
        };
        assert_eq!(again(12), (0, 1, 0));
        assert_eq!(again(10), (1, 0, 0), "nothing asked for it: this is a copy");
    }

    #[test]
    fn what_goes_out_again_and_is_jumped_over_was_lost_before_the_capture() {
        let mut wire = Wire::default();
        wire.only(10).only(11).only(13).only(14).only(15).after(MS).nak(12);
        // 13, which was seen the first time, is missing in this round
        wire.after(MS).only(12).only(14).only(15).after(MS).nak(13);
        wire.after(MS).only(13).only(14).only(15).after(MS).ack(15);
        let losses = wire.losses();
        assert_eq!((losses.lost_before.count, losses.lost_behind.count), (2, 0));
    }

    #[test]
    fn a_response_that_is_asked_for_again_was_not_lost_by_the_capture() {
        let mut wire = Wire::default();
        wire.only(10).read(11, 4).response(RESPONSE_FIRST, 11).response(RESPONSE_LAST, 14);
        wire.after(ASKS_AGAIN).read(15, 1).after(1000).response(RESPONSE_ONLY, 15);
        assert_eq!(wire.count(|fact| *fact == IbFact::ResponsesMissed(2)), 1);
        wire.after(20 * MS).read(11, 4);
        assert_eq!(wire.count(|fact| *fact == IbFact::Found(2)), 1);
        let lost = wire.flow.losses[1].as_ref().map(|losses| losses.lost_before.count);
        assert_eq!(lost, Some(2));
    }

    #[test]
    fn the_shortest_way_is_of_the_last_packet_alone() {
        let mut wire = Wire::default();
        let ways = |wire: &Wire| {
            let way = |fact: &IbFact| if let IbFact::RoundTrip(way) = fact { Some(*way) } else { None };
            wire.heard.facts.iter().filter_map(way).collect::<Vec<_>>()
        };
        wire.only(10).only(11).after(500).ack(10);
        assert!(ways(&wire).is_empty(), "not the last");
        wire.ack(11);
        assert_eq!(ways(&wire), [1000]);
        for (took, known) in [(1000, 1), (1001, 1), (999, 2), (0, 3), (-1, 3)] {
            let next = wire.sender().next.unwrap_or(0);
            wire.after(MS).only(next).after(took).ack(next);
            assert_eq!(ways(&wire).len(), known, "{took}");
        }
        assert_eq!(ways(&wire), [1000, 999, 0]);
    }

    #[test]
    fn the_newest_acknowledgment_is_kept() {
        let mut wire = Wire::default();
        let acked = [10, 12, 11, 12, 13, 14].map(|psn| {
            (wire.sender().next.unwrap_or(10)..=psn).for_each(|psn| _ = wire.only(psn));
            wire.ack(psn).sender().acked
        });
        assert_eq!(acked, [10, 12, 12, 12, 13, 14].map(Some));
        // far ahead of what was seen: of another use of the numbers
        wire.ack(15 + JUMP_MAX as u32);
        assert_eq!(wire.sender().acked_ahead, Some(15 + JUMP_MAX as u32));
        wire.ack(16 + JUMP_MAX as u32);
        assert_eq!(wire.sender().acked_ahead, Some(15 + JUMP_MAX as u32));
    }

    #[test]
    fn what_was_never_sent_shows_only_where_its_sender_goes_on() {
        let unsent = |steps: &[(bool, u32)]| {
            let mut wire = Wire::default();
            wire.flow.starts_at(End::A, 9);
            wire.only(9).ack(9);
            for (is_ack, psn) in steps {
                if *is_ack {
                    wire.ack(*psn)
                } else {
                    wire.only(*psn)
                };
            }
            let Wire { flow, heard, at, .. } = &mut wire;
            flow.finish(*at, heard);
            wire.count(|fact| matches!(fact, IbFact::AckedUnsent { .. }))
        };
        let ahead = [(true, 1009), (false, 10), (true, 1010), (false, 11), (true, 1011)];
        assert_eq!(unsent(&ahead), 1);
        assert_eq!(unsent(&[(true, 1009), (true, 1010), (true, 1011), (false, 9)]), 1, "sent again");
        // the capture has no more of the sender
        assert_eq!(unsent(&[(true, 50), (true, 60), (true, 70)]), 0);
        // also if one acknowledgment had stood before its packet
        assert_eq!(unsent(&[(true, 10), (false, 10), (false, 11), (true, 50), (true, 60), (true, 70)]), 0);
    }

    /// Acknowledgments of packets that were never sent, and one of fewer packets that was sent after them.
    #[test]
    fn an_acknowledgment_that_a_later_one_takes_back_means_nothing() {
        let told = |beyond: u32, msns: [u32; 2]| {
            let mut wire = Wire::default();
            wire.only(10).ack(10).only(11).packet(End::B, ACKNOWLEDGE, 11 + beyond, Some(0x1f00_0000 | msns[0]), &[]);
            wire.only(12).packet(End::B, ACKNOWLEDGE, 12, Some(0x1f00_0000 | msns[1]), &[]);
            // its answer is lost, and it goes out again
            wire.only(13).after(MS).only(13).ack(13);
            let acked = wire.sender().acked;
            let unsent = wire.count(|fact| matches!(fact, IbFact::AckedUnsent { count: 1, .. }));
            let Wire { flow, heard, at, .. } = &mut wire;
            flow.finish(*at, heard);
            (unsent, wire.losses().misplaced.count, wire.losses().needless.count, acked)
        };
        assert_eq!(told(1000, [2, 3]), (1, 0, 0, Some(13)));
        assert_eq!(told(1000, [3, 2]), (0, 2, 1, Some(1011)), "the capture has the acknowledgments in another order");
        assert_eq!(told(1, [2, 3]), (0, 1, 0, Some(13)), "as far as a packet may be behind its acknowledgment");
    }

    #[test]
    fn numbers_far_away_are_of_another_use() {
        let jump = |psn: u32| {
            let mut wire = Wire::default();
            wire.only(0x80_0000).only(psn);
            (wire.order().len(), wire.sender().held.len(), wire.repeated())
        };
        let (next, max) = (0x80_0001, JUMP_MAX as u32);
        assert_eq!([jump(next + max), jump(next + max + 1)], [(1, 1, 0), (2, 0, 0)]);
        assert_eq!(
            [jump(next - max), jump(next - max - 1)],
            [(1, 0, 0), (2, 0, 0)],
            "before the first one that was seen"
        );
    }
}
