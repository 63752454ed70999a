//! One connection: a thin shell around its layers. A flow below it (queue pairs or TCP) delivers operations in order;
//! they go to the layer that they concern, and the results of a layer go up.
//!
//! ```text
//!   flow ─┬─ RDMA Write, Read ─▶ memory ───── Delivery ───▶ upper    which exchange the bytes are of
//!         └─ Send, TCP bytes ──▶ messages ─── Message ────▶ upper    SMB2; RPC and NFS
//! ```
//!
//! Layers do not see the shell, nor each other's fields. All of them get the facts about the current frame as one
//! `FrameContext`, and each gives its part of the report as plain data.

pub mod facts;

use crate::context::{self, About, FrameContext};
use crate::devices::Device;
use crate::env::Env;
use crate::episodes::time::Owner;
use crate::episodes::{Cause, Ceiling, Episode, Episodes, Kind, Waiter, not_before};
use crate::finding::{Blame, Certainty, Rule};
use crate::memory::{Fit, Memory};
use crate::messages::Messages;
use crate::messages::smbd::Smbd;
use crate::missed::{Missed, Rests};
use crate::op::{At, End, Placement, RdmaOp, StreamBytes, Verb};
use crate::pauses::{self, Certainly, Way};
use crate::report;
use crate::roles::Roles;
use crate::series::{Series, Trouble, Volume};
use crate::settle::{Settling, Waiting};
use crate::stats::{Commands, FarLonger, is_callback};
use crate::summary::{Handshake, Health, Negotiated, Peer, Progress, Protocol, Smb, Transport};
use crate::upper::{ShownAgain, Upper};
use alloc::string::String;
use core::fmt;
use rdmascope_dissector::frame::Packet;
use rdmascope_dissector::trace::Trace;
use rdmascope_dissector::wire::ib::cm::RpcRdmaPrivate;

pub use crate::notes::{FIELDS, f};

/// Segments of a connection of which enough are known to judge checksums that are wrong.
const FEW_SEGMENTS: u64 = 4;

/// ns without a packet in the middle of a message after which its sender is said to have stopped.
const INTERRUPTED: i64 = 2_000_000;
/// ns beyond the way there and back after which an end that has all that it needs is said to be late.
const IDLE: i64 = 100_000;
/// ns within which a sender goes on that waited for credits, once they have come.
const RELEASED: i64 = 100_000;
/// ns after a notification of congestion in which an adapter may send at a lower rate. The rate comes back in steps of
/// some 300 µs: from the lowest to that of the line takes hundreds of them.
const SLOWED: i64 = 1_000_000_000;
/// ns that a packet waits for a low rate: 4 KiB at a million bytes a second take 4 ms.
const SLOWED_PACKET: i64 = 10_000_000;
/// ns that no rate makes a packet wait.
const SLOWED_LONG: i64 = 100_000_000;
/// ns of a tick of the capture's clock that is fine enough for all that is judged by it.
const FINE: i64 = 1000;
/// RDMA Reads whose requests are remembered.
const READS: u32 = 16;
/// ns for which an adapter holds an acknowledgment back, at most.
const HELD_BACK: i64 = 50_000;
/// ns for which TCP holds an acknowledgment back, at most, with some for the way: Linux up to 200 ms.
const ACKNOWLEDGED_WITHIN: i64 = 220_000_000;
/// ns that the way to a host and back may take: an acknowledgment that comes later than that was late itself.
const LONGEST_WAY: i64 = 800_000_000;
/// ns within which packets may have been on their way when the connection was broken off.
const UNDER_WAY: i64 = 10_000_000;
/// ns without an acknowledgment that are remembered.
const UNHEARD: i64 = 1_000_000;

/// RDMA Reads that an end is to answer.
#[derive(Clone, Copy, Debug, Default)]
struct Reading {
    /// By number: when they were asked for.
    asked: [(u32, At); READS as usize],
    /// Its last Response.
    last: At,
}

/// How a connection was opened, as far as the capture shows.
#[derive(Clone, Debug, Default)]
pub(crate) struct Opening {
    /// Evidence that the two directions belong together.
    pub(crate) handshake: Handshake,
    /// Time of the SYN with ACK that opened the TCP connection.
    pub(crate) tcp_opened: Option<At>,
    /// Time of the MPA Reply or CM REP that opened the RDMA connection.
    pub(crate) rdma_opened: Option<At>,
    /// REPs that went out again after their receiver had begun to send, and have had no RTU.
    pub(crate) replies_again: u32,
    /// Times that the server accepted it once more, with nothing of the client since.
    pub(crate) accepts_again: u32,
    /// True if an RTU was seen.
    pub(crate) is_ready: bool,
    /// Reason of its rejection.
    pub(crate) rejected: Option<String>,
    /// True if the MPA Request was answered with something other than an MPA Reply.
    pub(crate) spoke_otherwise: bool,
    /// True if the contents of a direction were changed in the capture.
    pub(crate) changed: bool,
    /// Local ACK timeout of the CM REQ, in ns: no end of it sends anything again before.
    pub(crate) ack_timeout: Option<i64>,
    /// Most Reads that each end may have outstanding, if the handshake said so.
    pub(crate) read_depth: [Option<u32>; 2],
    /// Incoming and outgoing read depth in the MPA Request or Reply of each end.
    pub(crate) read_depths: [Option<(u32, u32)>; 2],
    /// Private data of NFS in the handshake.
    rpc_rdma_private: Option<[Option<RpcRdmaPrivate>; 2]>,
    /// Of the MPA Request.
    pub(crate) mpa_revision: Option<u8>,
    /// ns from the SYN and ACK of TCP to the MPA Request: to the client and back took less.
    pub(crate) round_trip: Option<i64>,
}

/// State of one end of a connection.
#[derive(Clone, Debug, Default)]
pub(crate) struct EndState {
    /// The sequence number of its packet at hand.
    pub(crate) sequence: Option<u32>,
    /// Its last packet that was reported.
    pub(crate) last_op: At,
    /// The sequence number of that packet.
    last_sequence: Option<u32>,
    /// Time at which anything of it was acknowledged last, and up to which sequence number.
    acked: (At, u32),
    /// The first acknowledgment of as much.
    acked_first: At,
    /// Its receive window was closed, and did not open again.
    pub(crate) is_shut: bool,
    /// The last stretch in which nothing of it was acknowledged: acknowledgment before it and its time, time of its
    /// end.
    unheard: ((At, u32), At),
    /// Detects that it waits until it may send another Read.
    pub(crate) reads: Ceiling,
    /// RDMA Reads that it is to answer.
    reading: Reading,
    /// The last notification of congestion to it.
    slowed: Option<At>,
    /// True if it accessed memory otherwise than as it was advertised, as far as the capture shows.
    strays: bool,
    /// Its DREQs without an answer.
    pub(crate) disconnects: u32,
    /// Time of the last of them.
    pub(crate) disconnected: At,
    /// Time at which it broke the connection off: it sent a Terminate, or a NAK after which the queue pairs are of no
    /// use.
    broke_off: Option<At>,
    /// Behaviour of its adapter when something went wrong.
    pub(crate) device: Device,
    /// Its packets, as pauses concern them.
    port: pauses::Port,
}

/// One connection above its flow.
#[derive(Clone, Debug, Default)]
pub struct ConnectionState {
    /// Its number, from 1.
    pub(crate) id: u32,
    /// Transport that carries the connection; `None` until it is known.
    pub(crate) transport: Option<Transport>,
    /// The two sides, by [`End`].
    pub(crate) peers: [Peer; 2],
    /// Roles of the ends: client and server.
    pub(crate) roles: Roles,
    pub(crate) opening: Opening,
    /// By [`End`].
    pub(crate) ends: [EndState; 2],
    /// The first frame.
    pub(crate) first: At,
    /// The last frame.
    pub(crate) last: At,
    /// End of the connection: side that closed it, method, time.
    pub(crate) closed: Option<(Option<End>, &'static str, At)>,
    /// The greatest time of which the times of all its packets are multiples, in ns: the capture's clock has this tick.
    tick: i64,
    /// True if the capture has packets of it in another order than the ends.
    pub(crate) is_out_of_order: bool,
    /// Parts of it that the capture missed.
    pub(crate) missed: Missed,
    /// The mirror sessions that its frames came through.
    pub(crate) mirrors: crate::mirror::Set,
    /// Marking of its packets.
    pub(crate) network: crate::marking::Network,
    /// Counters of the wire.
    pub(crate) health: Health,
    /// The first packet whose invariant CRC was not right.
    pub(crate) icrc_first_bad: Option<At>,
    /// Bytes in frames over time.
    pub(crate) throughput: Series<Volume>,
    /// Retransmissions and their like over time.
    pub(crate) trouble: Series<Trouble>,
    /// Its delays.
    pub(crate) episodes: Episodes,
    settling: Settling,
    /// Packets or bytes that the capture lost, and how often; without Responses to Reads.
    pub(crate) uncaptured: (u64, u64),
    /// True if packets were followed that turned out to be damaged.
    pub(crate) followed_damaged: bool,
    /// Retransmissions before those that may be the copies of a mirror.
    pub(crate) before_copies: u64,
    /// True if no checksum shows that its current packet was undamaged.
    pub(crate) is_unchecked: bool,
    /// Time to live of its last reset, and that of its sender's packets before, if none of those had it; true if they
    /// were many.
    pub(crate) strange_ttl: Option<(u16, u16, bool)>,
    /// Bytes that its messages, memory and requests hold; true if the number may be out of date.
    weight: (usize, bool),
    memory: Memory,
    messages: Messages,
    upper: Upper,
}

/// Parts of a connection that are lent to one call: the context, and its layers from the lowest up.
type Parts<'c> = (FrameContext<'c>, &'c mut Memory, &'c mut Messages, &'c mut Upper);

impl ConnectionState {
    /// A connection of which the first frame was just seen.
    pub fn new(transport: Transport, first: At) -> Self {
        Self { transport: Some(transport), first, last: first, ..Self::default() }
    }

    /// Upper-layer protocol.
    pub fn protocol(&self) -> Protocol {
        self.messages.protocol()
    }

    /// True if a remote key was advertised by an end.
    pub fn advertised(&self, owner: End, key: u32) -> bool {
        self.memory.find(owner, key).is_some()
    }

    /// SMB Direct, if the connection carries it.
    pub fn smbd(&self) -> Option<&Smbd> {
        self.messages.smbd()
    }

    /// True if an end called without a credit of RPC-over-RDMA just now.
    pub(crate) fn is_beyond_credits(&self, caller: End) -> bool {
        self.messages.is_beyond_credits(caller)
    }

    /// Private data of RPC-over-RDMA in the handshake (RFC 8797), by end A and B.
    pub fn rpc_rdma_private(&mut self, private: [Option<RpcRdmaPrivate>; 2]) {
        self.opening.rpc_rdma_private = Some(private);
        self.messages.rpc_rdma_private(End::A, private);
    }

    /// The same of one end, in its MPA Request or Reply. Without the Request, nothing is known of the client.
    pub(crate) fn mpa_private(&mut self, by: End, is_reply: bool, private: Option<RpcRdmaPrivate>) {
        let is_asked = self.opening.rpc_rdma_private.is_some();
        let both = self.opening.rpc_rdma_private.get_or_insert_default();
        both[by.index()] = private;
        let both = *both;
        if is_reply && is_asked {
            self.messages.rpc_rdma_private(by.peer(), both);
        }
    }

    /// Time at which the connection was established: that of RDMA, or that of TCP if no MPA Request followed. In a
    /// capture the MPA Reply may come before its Request.
    pub(crate) fn established(&self) -> Option<At> {
        let o = &self.opening;
        o.rdma_opened.or(o.tcp_opened.filter(|_| o.mpa_revision.is_none()))
    }

    #[inline(always)]
    fn parts<'c>(&'c mut self, env: &'c mut Env, at: At, sender: Option<End>) -> Parts<'c> {
        let about = About {
            id: self.id,
            transport: self.transport,
            protocol: self.messages.protocol(),
            opening_seen: self.opening.handshake == Handshake::Seen,
            established: self.established(),
            ports: [self.peers[0].port, self.peers[1].port],
            retransmissions: self.health.retransmissions,
            sequence: sender.and_then(|by| self.ends[by.index()].sequence),
            acked: [None; 2],
        };
        let Self { is_unchecked, roles, missed, settling, episodes, memory, messages, upper, weight, .. } = self;
        let is_unchecked = *is_unchecked;
        // the caller gets the layers, and may change the memory that they hold
        weight.1 = true;
        (
            FrameContext { at, sender, about, is_unchecked, roles, missed, settling, episodes, env },
            memory,
            messages,
            upper,
        )
    }

    /// `by` broke a rule of its flow at `at`.
    pub fn report(&mut self, env: &mut Env, at: At, rule: Rule, by: End, rests: Rests, text: fmt::Arguments<'_>) {
        self.parts(env, at, Some(by)).0.report(rule, by, rests, text);
    }

    /// A packet of an end was captured.
    #[inline]
    pub fn captured(&mut self, by: End, at: At) {
        self.missed.captured(by, at);
    }

    /// A packet of an end came from a port, in a class of traffic: adds the pause that held it up.
    #[inline]
    pub(crate) fn carried(&mut self, by: End, at: At, packet: &Packet<'_>, pauses: &pauses::Recent) {
        if self.tick > FINE || self.tick == 0 {
            self.tick = common(at.time.saturating_abs(), self.tick);
        }
        let before = self.ends[by.index()].port.sent(at, packet.mac, packet.priority);
        if !pauses.is_empty() && before != At::default() {
            self.paused(by, before, at, pauses);
        }
    }

    /// A datagram of an end, of connection management, was its first packet.
    pub(crate) fn asked(&mut self, by: End, at: At) {
        self.ends[by.index()].port.sent(at, [0; 6], None);
    }

    #[cold]
    fn paused(&mut self, by: End, before: At, at: At, pauses: &pauses::Recent) {
        let (port, peer) = (&self.ends[by.index()].port, &self.ends[by.peer().index()].port);
        let way =
            Way { mine: port.macs(), peers: peer.macs(), priority: port.priority(), way: self.way(by).unwrap_or(0) };
        let Some((begin, end, how)) = pauses.held(&way, before, at) else { return };
        let cause = match how {
            Certainly::Paused => Cause::ReceiverPaused,
            Certainly::PerhapsPaused => Cause::PriorityUnknown,
            Certainly::Elsewhere => Cause::OtherPort,
        };
        self.episodes.add(Episode {
            kind: Kind::Pause,
            cause,
            by: Some(by),
            begin,
            end: Some(end),
            ..Episode::default()
        });
    }

    /// True if any packet was captured.
    pub fn has_captured(&self) -> bool {
        self.missed.has_captured()
    }

    /// Everything that `by` sent up to here is known: findings that waited for it are reported.
    #[inline]
    fn seen(&mut self, env: &mut Env, by: End, at: At) {
        let Self { id, roles, missed, .. } = self;
        missed.seen(by, at, |evidence| evidence.report(env, *id, roles, Certainty::IfNothingWasMissed));
    }

    /// Time that an end of SMB Direct waited for credits, in ns.
    fn stalled(&self, by: End) -> i64 {
        self.messages.smbd().map_or(0, |smbd| smbd.link.side(by).stalled_time)
    }

    /// SMB2's exchanges by command, and RPC's.
    pub fn commands(&self) -> (Option<&Commands>, Option<&Commands>) {
        self.upper.commands()
    }

    /// An operation, in the receiver's order.
    pub fn op<T: Trace>(&mut self, env: &mut Env, op: &RdmaOp<'_>, t: &mut T) {
        env.sink.op(self.id, op);
        if op.verb != Verb::ReadResponse {
            // responses are numbered by their requester: they say nothing about other packets of their sender
            self.seen(env, op.by, op.at);
            if op.verb == Verb::ReadRequest {
                self.ends[op.by.peer().index()].reading.asked[(op.read % READS) as usize] = (op.read, op.at);
            }
        } else {
            let last = core::mem::replace(&mut self.ends[op.by.index()].reading.last, op.at);
            if op.at.since(last) > IDLE {
                self.answers_late(op, last);
            }
            if op.part.ends() {
                self.ends[op.by.peer().index()].reads.free(op.at);
            }
        }
        let is_send = matches!(op.verb, Verb::Send | Verb::SendInvalidate);
        let stalled = if is_send { self.stalled(op.by) } else { 0 };
        let before = core::mem::replace(&mut self.ends[op.by.index()].last_op, op.at);
        let sequence = self.ends[op.by.index()].sequence;
        let sequence = core::mem::replace(&mut self.ends[op.by.index()].last_sequence, sequence);
        if is_send && op.at.since(before) > IDLE && before != At::default() {
            self.interrupted(op, before, sequence);
        }
        let is_weighed = !self.weight.1;
        let mut strays = false;
        let (mut cx, memory, messages, upper) = self.parts(env, op.at, Some(op.by));
        match op.verb {
            Verb::Send | Verb::SendInvalidate => {
                let tail = messages
                    .send(&mut cx, memory, op, t, &mut |cx, memory, message, t| upper.message(cx, memory, message, t));
                if tail {
                    upper.missed();
                }
                let waited = self.stalled(op.by).saturating_sub(stalled);
                if waited > 0 {
                    self.stall(op.by, op.at);
                }
                if self.settling.is_full(op.by) {
                    self.settle_oldest(env, op.by);
                }
            }
            Verb::Write => {
                let delivery = memory.write(&mut cx, op, t);
                strays = delivery.is_none_or(|delivery| delivery.verdict != Fit::Inside);
                if let Some(delivery) = delivery {
                    upper.delivered(&mut cx, &delivery, op);
                    messages.delivered(&delivery, op);
                }
            }
            Verb::ReadRequest => {
                let delivery = memory.read_request(&mut cx, op, t);
                strays = delivery.is_none_or(|delivery| delivery.verdict != Fit::Inside);
                if let Some(delivery) = delivery {
                    upper.asked(&mut cx, &delivery, op);
                }
            }
            Verb::ReadResponse => {
                if let Some(delivery) = memory.read_response(&mut cx, op) {
                    upper.delivered(&mut cx, &delivery, op);
                    messages.delivered(&delivery, op);
                }
            }
            Verb::Atomic | Verb::Terminate => {}
        }
        if op.verb == Verb::Write && op.placement == Placement::Unknown && !op.part.begins() {
            // the packet with its destination was not captured, whether or not its number shows that
            self.missed.gap(op.by, op.at);
        }
        self.ends[op.by.index()].strays |= strays;
        if is_weighed && matches!(op.verb, Verb::Write | Verb::ReadResponse) && self.messages.smbd().is_some() {
            // bytes for memory that was advertised before: only RPC-over-RDMA keeps some
            self.weight.1 = false;
        }
    }

    /// True if an end accessed memory otherwise than as it was advertised, and nothing is missing that would have
    /// advertised it.
    pub fn is_stray(&self, by: End) -> bool {
        self.ends[by.index()].strays && !self.missed.anything()
    }

    /// Bytes in order of a TCP connection that is not iWARP.
    pub fn stream<T: Trace>(&mut self, env: &mut Env, piece: &StreamBytes<'_>, t: &mut T) {
        self.seen(env, piece.by, piece.at);
        let (mut cx, memory, messages, upper) = self.parts(env, piece.at, Some(piece.by));
        if piece.missing > 0 {
            upper.missed();
        }
        messages.stream(&mut cx, memory, piece, t, &mut |cx, memory, message, t| upper.message(cx, memory, message, t));
        if self.settling.is_full(piece.by) {
            self.settle_oldest(env, piece.by);
        }
    }

    /// Adds an episode for the time since `before`, in which the sender sent nothing, if it was in the middle of a
    /// message.
    #[cold]
    fn interrupted(&mut self, op: &RdmaOp<'_>, before: At, sequence: Option<u32>) {
        if op.part.begins() && !self.messages.is_inside(op.by) {
            return;
        }
        let since = self.able_since(op, before, sequence).map(|time| At { frame: before.frame, time });
        let is_idle = since.is_some_and(|since| self.idle(op, Cause::Unknown, since));
        // until then, the cause is unknown
        let end = since.filter(|_| is_idle).unwrap_or(op.at);
        if end.since(before) > INTERRUPTED {
            let (kind, by, end) = (Kind::Interrupted, Some(op.by), Some(end));
            self.episodes.add(Episode { kind, by, begin: before, end, ..Episode::default() });
        }
    }

    /// Time in ns from which on the sender of a part of a message could have sent it, as far as the capture shows.
    fn able_since(&self, op: &RdmaOp<'_>, before: At, sequence: Option<u32>) -> Option<i64> {
        let since = self.free_since(op.by, before, sequence)?;
        if !op.part.begins() {
            return Some(since);
        }
        // the next message of SMB Direct takes a credit, the last of which has to be kept
        let Some(2..) = self.messages.smbd()?.link.credits(op.by).known() else { return None };
        let granted = self.ends[op.by.peer().index()].last_op;
        let way = self.way(op.by)?;
        Some(if granted > before { since.max(granted.time.saturating_add(way)) } else { since })
    }

    /// An RDMA Read was answered, and nothing of the answer had come since `last`: adds that time if its request waited
    /// for it.
    #[cold]
    fn answers_late(&mut self, op: &RdmaOp<'_>, last: At) {
        let Some(way) = self.way(op.by) else { return };
        let (number, asked) = self.ends[op.by.index()].reading.asked[(op.read % READS) as usize];
        if op.read == 0 || number != op.read {
            return;
        }
        let mut since = asked.time.saturating_add(way);
        if self.transport == Some(Transport::Iwarp) {
            // a sender of TCP may wait for acknowledgments first
            let before = self.ends[op.by.index()].last_op.max(last);
            let Some(free) = self.free_since(op.by, before, self.ends[op.by.index()].last_sequence) else { return };
            since = since.max(free);
        }
        self.idle(op, Cause::ReadResponse, At { frame: asked.frame, time: since.max(last.time) });
    }

    /// Time in ns from which on `by` had no reason to wait for acknowledgments: all up to `sequence`, sent at `before`,
    /// had come back to it.
    fn free_since(&self, by: End, before: At, sequence: Option<u32>) -> Option<i64> {
        let way = self.way(by)?;
        let (at, acked) = self.ends[by.index()].acked;
        let has_all = at != At::default() && not_before(acked, sequence?);
        has_all.then(|| before.time.max(at.time.saturating_add(way)))
    }

    /// ns from the capture point to an end and back, at most.
    fn way(&self, end: End) -> Option<i64> {
        // an acknowledgment may have been held back; who asked for the connection went on at once
        let opening = self.opening.round_trip.filter(|_| self.roles.sure_client() == Some(end));
        self.episodes.recent_round_trip(end).into_iter().chain(opening).min()
    }

    /// A notification of congestion went to `by`: it has to slow down (annex A17.9).
    #[cold]
    pub fn slowed(&mut self, by: End, at: At) {
        self.ends[by.index()].slowed = Some(at);
    }

    /// An end went on that could have from `since` on, as far as the capture shows. Returns true if it was late, or if
    /// congestion may have slowed it down.
    fn idle(&mut self, op: &RdmaOp<'_>, cause: Cause, since: At) -> bool {
        let is_otherwise = |e: &Episode| {
            !matches!(e.kind, Kind::Credit | Kind::Idle | Kind::Congestion | Kind::Interrupted)
                && e.until() > since.time
                && e.begin.time < op.at.time
        };
        // with packets lost, a late packet may have been lost before the capture point; for responses to Reads of
        // RoCE, their requester asks again then, which is an episode
        let is_asked_again = cause == Cause::ReadResponse && self.transport != Some(Transport::Iwarp);
        let is_doubtful = self.health.is_troubled() && !is_asked_again
            || self.missed.anything()
            || self.is_out_of_order
            || self.episodes.iter().any(is_otherwise);
        // of a coarse clock, one tick may be no time at all
        if op.at.since(since) <= IDLE.max(self.tick.saturating_mul(2)) || is_doubtful {
            return false;
        }
        let is_slowed = self.ends[op.by.index()].slowed.is_some_and(|told| op.at.since(told) <= SLOWED);
        let kind = match op.at.since(since) {
            waited if is_slowed && waited <= SLOWED_PACKET => Kind::Congestion,
            // more than a rate explains, and less than shows that it was not the rate
            waited if is_slowed && waited <= SLOWED_LONG => return false,
            _ => Kind::Idle,
        };
        self.episodes.add(Episode {
            kind,
            cause,
            by: Some(op.by),
            begin: since,
            end: Some(op.at),
            ..Episode::default()
        });
        true
    }

    /// `by` waited for credits of SMB Direct until `at`.
    #[cold]
    fn stall(&mut self, by: End, at: At) {
        // until it went on: the credits that were seen on their way before that had yet to come to it
        let Some(side) = self.messages.smbd().map(|smbd| smbd.link.side(by)) else { return };
        let (begin, granted) = (side.stall_since, side.stall_until.time);
        // what it did once they had come is its own time
        let way = self.way(by).unwrap_or(RELEASED).max(RELEASED);
        let end = At { time: at.time.min(granted.saturating_add(way)), ..at };
        self.episodes.stalled(by, Cause::SmbDirectCredits, begin, end);
    }

    /// `by` has `count` Reads outstanding, one of them new; its peer answers `limit` at a time.
    pub(crate) fn reads(&mut self, by: End, at: At, count: u32, limit: u32) {
        let ceiling = &mut self.ends[by.index()].reads;
        if let Some((begin, end)) = ceiling.used(at) {
            self.episodes.stalled(by, Cause::ReadDepth, begin, end);
        }
        if count >= limit {
            ceiling.full(at);
        }
    }

    /// Everything that `by` sent up to a sequence number has arrived: requests that it answered are done.
    #[inline]
    pub fn acknowledged(&mut self, env: &mut Env, at: At, by: End, sequence: u32) {
        let before = core::mem::replace(&mut self.ends[by.index()].acked, (at, sequence));
        if before.1 != sequence || before.0 == At::default() {
            self.ends[by.index()].acked_first = at;
        }
        if at.since(before.0) > UNHEARD {
            self.ends[by.index()].unheard = (before, at);
        }
        let is_tcp = self.is_over_tcp();
        let Self { settling, episodes, upper, ends, .. } = self;
        while let Some(waiting) = settling.arrived(by, sequence) {
            settled(env, episodes, upper, by, waiting, ends, is_tcp);
            env.forget_exchange(settling.done(by));
        }
    }

    /// An end ends the connection with an error of the transport.
    #[cold]
    pub fn broke_off(&mut self, by: End, at: At) {
        self.ends[by.index()].broke_off.get_or_insert(at);
    }

    /// The end that broke the connection off, and when: nothing was sent after that.
    fn broken_off(&self) -> Option<(End, At)> {
        let (at, end) = End::BOTH.into_iter().filter_map(|end| Some((self.ends[end.index()].broke_off?, end))).min()?;
        // packets of its peer may have been on their way
        let goes_on = |by: End| self.ends[by.index()].last_op.since(at) > if by == end { 0 } else { UNDER_WAY };
        (!End::BOTH.into_iter().any(goes_on)).then_some((end, at))
    }

    /// A packet of `by` goes out again, and its receiver takes this copy; with `is_late`, only if it comes so late that
    /// it waited for the acknowledgment of the first.
    #[cold]
    pub fn again(&mut self, by: End, at: At, from: u32, is_behind: bool, is_asked: bool, is_late: bool) {
        // a peer that goes on speaking may well have received the answer
        let spoke = if is_asked { At::default() } else { self.ends[by.peer().index()].last_op };
        let way = self.episodes.shortest_round_trip(by.peer()).unwrap_or(0);
        let soon = if is_late { way.saturating_mul(2).saturating_add(HELD_BACK) } else { 0 };
        self.settling.again(by, at, from, is_behind, spoke, soon);
    }

    #[cold]
    fn settle_oldest(&mut self, env: &mut Env, by: End) {
        let is_tcp = self.is_over_tcp();
        let Self { settling, episodes, upper, ends, .. } = self;
        if let Some(waiting) = settling.oldest(by) {
            settled(env, episodes, upper, by, waiting, ends, is_tcp);
            env.forget_exchange(settling.done(by));
        }
    }

    /// True if all that a Send completes is shown with [`ConnectionState::show`].
    pub fn is_shown(&self, by: End, bytes: &[u8]) -> bool {
        self.messages.is_shown(by, bytes)
    }

    /// A Send that is shown without being counted: it was sent before, or is held back.
    /// The exchanges that it belongs to, the first few.
    pub fn show<T: Trace>(&self, bytes: &[u8], t: &mut T) -> ShownAgain {
        let mut visitor = self.upper.shown();
        self.messages.show(bytes, &mut visitor, t);
        visitor.exchanges
    }

    /// Packets of `by` are missing before `at`.
    pub fn gap(&mut self, env: &mut Env, at: At, by: End) {
        let (mut cx, _, messages, upper) = self.parts(env, at, Some(by));
        messages.gap(&mut cx, by);
        upper.missed();
    }

    /// From here on its packets may be of another connection on the same queue pairs, or come behind a long hole: what
    /// its ends agreed upon is not known any more.
    #[cold]
    pub(crate) fn distrust(&mut self) {
        (self.opening.read_depth, self.opening.ack_timeout) = ([None; 2], None);
        self.messages.distrust();
        self.upper.distrust();
    }

    /// Packets of `by` are acknowledged, but none of them was seen: the credits that they granted are not known.
    #[cold]
    pub fn unseen(&mut self, by: End) {
        self.messages.unseen(by);
    }

    /// Bytes of memory that it holds beside its flow.
    #[inline]
    pub fn held(&mut self) -> usize {
        if core::mem::take(&mut self.weight.1) {
            self.weight.0 = self.messages.held() + self.memory.held() + self.upper.held();
        }
        self.weight.0
    }

    /// The part of it that unfinished messages and payloads hold.
    pub fn unfinished(&self) -> usize {
        self.messages.held() + self.upper.payloads()
    }

    /// Counts exactly what is only estimated from packet to packet.
    pub fn count_payloads(&mut self) {
        self.upper.count_payloads();
        self.weight.1 = true;
    }

    /// Gives up payloads, and, from so many bytes on, unfinished messages, as if packets of them were missing.
    pub fn release(&mut self, env: &mut Env, at: At, worth: usize) {
        let (mut cx, _, messages, upper) = self.parts(env, at, None);
        upper.give_up_payloads();
        if messages.held() >= worth {
            messages.release(&mut cx);
            upper.missed();
        }
    }

    /// The connection ends, or the capture does. `unseen`: for each end, true if its peer acknowledged more than was
    /// captured.
    pub fn finish(&mut self, env: &mut Env, at: At, unseen: [bool; 2]) {
        let closed = self.closed;
        let by = closed.and_then(|(by, ..)| by);
        let end = closed.map_or(at, |(_, _, at)| at);
        for by in End::BOTH.into_iter().filter(|by| unseen[by.index()]) {
            self.gap(env, At { frame: u64::MAX, time: end.time }, by);
        }
        let (mut cx, memory, messages, _) = self.parts(env, end, None);
        memory.finish(&mut cx, end);
        messages.finish(&mut cx, by);
        for replier in End::BOTH {
            let is_tcp = self.is_over_tcp();
            let Self { settling, episodes, upper, ends, .. } = self;
            while let Some(waiting) = settling.oldest(replier) {
                settled(env, episodes, upper, replier, waiting, ends, is_tcp);
                env.forget_exchange(settling.done(replier));
            }
        }
        self.episodes.finish();
        let acked = [0, 1].map(|end| {
            let EndState { acked: (at, sequence), acked_first, .. } = self.ends[end];
            (at != At::default()).then_some((acked_first, sequence))
        });
        let (mut cx, _, _, upper) = self.parts(env, end, None);
        cx.about.acked = acked;
        upper.finish(&mut cx, end, closed.map(|(by, ..)| by));
        // of a segment or two, nothing shows if their checksums are wrong because they were damaged
        let packets: u64 = self.network.directions.iter().map(|direction| direction.packets).sum();
        let are_few = self.is_over_tcp() && (1..FEW_SEGMENTS).contains(&packets);
        let Self { id, roles, missed, .. } = self;
        let certainty = context::at_the_end(env);
        missed.finish(|evidence| evidence.report(env, *id, roles, certainty));
        // lost or damaged packets were retransmitted: so may have those that seem to break a rule
        if self.health.is_troubled() || self.followed_damaged || are_few {
            for (rule, by) in missed.take_unchecked() {
                env.findings.weaken_bytes(*id, rule, context::blame(roles, by));
            }
        }
        // datagrams of one side whose CRC is wrong, and that nobody understands, need not be of RoCE at all
        let is_one_sided = End::BOTH.into_iter().any(|end| missed.is_absent(end));
        let is_noise = self.health.icrc_bad > 0
            && self.opening.handshake != Handshake::Seen
            && self.messages.protocol() == Protocol::Unknown;
        if is_noise && is_one_sided {
            env.findings.doubt(|f| f.connection == Some(*id) && f.rule != Rule::RcIcrc);
        }
        if missed.is_found_late() {
            env.findings.weaken_bytes(*id, Rule::CaptureLoss, Blame::Capture);
        }
    }

    /// What seemed to be retransmitted of late were the copies of a mirror.
    #[cold]
    pub(crate) fn were_copies(&mut self) {
        let copies = self.health.retransmissions.saturating_sub(self.before_copies);
        self.health.retransmissions -= copies;
        self.health.duplicates += copies;
    }

    /// True if a request was answered, so that the owners of requests' time are known.
    pub(crate) fn is_answered(&self) -> bool {
        let (smb2, rpc) = self.commands();
        smb2.into_iter().chain(rpc).any(|commands| commands.time().sum() > 0)
    }

    /// ns by which the times of the capture go back at a frame of it, if they do: neighbours may be in another order.
    #[inline]
    pub fn goes_back(&self, at: At) -> Option<i64> {
        /// ns by which frames of one clock may be out of order.
        const OUT_OF_ORDER: i64 = 100_000_000;
        let back = self.last.since(at);
        (back > OUT_OF_ORDER).then_some(back)
    }

    /// Requests of SMB2 and of RPC that took far longer than others.
    pub(crate) fn far_longer(&self) -> [FarLonger<'_>; 2] {
        let (is_tcp, timeout) = (self.is_over_tcp(), self.opening.ack_timeout);
        <[_; 2]>::from(self.commands()).map(|commands| {
            commands.map_or_else(FarLonger::default, |all| all.far_longer(is_tcp, self.tick(), timeout))
        })
    }

    /// Tick of the capture's clock, in ns; 0 if that is fine enough for all that is judged by it.
    fn tick(&self) -> i64 {
        if self.tick > FINE { self.tick } else { 0 }
    }

    /// True if it carries storage, or RDMA of any kind: what other TCP connections lack is nobody's concern.
    pub(crate) fn is_of_storage(&self) -> bool {
        self.transport.is_some_and(Transport::is_rdma) || self.protocol() != Protocol::Unknown
    }

    /// True if TCP carries it.
    pub(crate) fn is_over_tcp(&self) -> bool {
        matches!(self.transport, Some(Transport::Tcp | Transport::Iwarp))
    }

    /// Plain data for the report.
    pub fn summary(&self) -> report::Connection {
        let client = self.roles.client_or_first();
        let by_role = |end: End| usize::from(end != client);
        let messages = self.messages.summary();
        let upper = self.upper.summary();
        let mut sides = paired(client, messages.sides);
        if !messages.counted {
            for (side, count) in sides.iter_mut().zip(paired(client, upper.messages)) {
                side.messages = count;
            }
        }
        let Negotiated { max_send_size, max_receive_size, max_fragmented_size, .. } = messages.negotiated;
        let mut last = [None; 2];
        let credit_history = messages.credits.into_iter().filter_map(|(time, held)| {
            let held = paired(client, held);
            // stretches without messages keep the credits from before
            last = [held[0].or(last[0]), held[1].or(last[1])];
            Some((time, last[0]?, last[1]?))
        });
        let far_longer = self.far_longer();
        let slow = |end| far_longer.iter().map(|f| f.slow_time(end)).fold(0, i64::saturating_add);
        let slow_time = paired(client, End::BOTH.map(slow));
        let heard_server = self.missed.is_whole(Rests::START.of(client.peer()));
        // who acknowledges the SYN of its peer has it, whether or not the capture does (RFC 9293 3.5)
        let is_heard = self.is_over_tcp() && self.ends[client.peer().index()].acked.0 != At::default();
        // without MPA, that is all there is to a connection
        let is_answered = is_heard && self.transport == Some(Transport::Tcp);
        let progress = Progress {
            accepted: self.opening.rdma_opened,
            connected: self.established().is_some() || self.protocol() != Protocol::Unknown || is_answered,
            missed: self.missed.anything(),
            changed: self.opening.changed,
            silent: self.missed.is_silent(),
            spoke_otherwise: self.opening.spoke_otherwise && self.opening.handshake == Handshake::Seen && heard_server,
            negotiation: messages.negotiation,
            last_sent: paired(client, messages.last_sent),
            dry: paired(client, messages.dry),
            refused: messages.refused,
            oldest_open: upper.commands.oldest_open(),
            left: upper.commands.left(),
            unfinished: paired(client, messages.unfinished),
            shut: paired(client, End::BOTH.map(|end| self.ends[end.index()].is_shut)),
            broken_off: self.broken_off().map(|(by, at)| (by_role(by), at)),
            unreached: if is_heard || self.opening.is_ready || self.has_captured() {
                0
            } else {
                self.opening.accepts_again
            },
            unheard: self.missed.is_one_sided(client) && self.ends[client.peer().index()].acked.0 == At::default(),
        };
        report::Connection {
            id: self.id,
            followed_as: alloc::vec![self.id],
            transport: self.transport,
            protocol: self.protocol(),
            peers: paired(client, self.peers),
            client_known: self.roles.sure_client().is_some(),
            client_end: self.roles.client(),
            first: self.first,
            last: self.last,
            handshake: self.opening.handshake,
            closed: self.closed.map(|(by, how, at)| (by.map(by_role), how, at)),
            rejected: self.opening.rejected.clone(),
            negotiated: Negotiated {
                max_send_size: paired(client, max_send_size),
                max_receive_size: paired(client, max_receive_size),
                max_fragmented_size: paired(client, max_fragmented_size),
                ..messages.negotiated
            },
            nfs: upper.nfs,
            rpc_rdma_private: self.opening.rpc_rdma_private.map(|private| paired(client, private)),
            smb: Smb { sealed: paired(client, upper.smb.sealed), ..upper.smb },
            sides,
            credit_history: credit_history.collect(),
            rdma: self.memory.summary(),
            health: self.health,
            mirrors: self.mirrors,
            network: self.network.summary(client),
            commands: upper.commands.rows().to_vec(),
            failures: upper.commands.failures().to_vec(),
            progress,
            outcome: None,
            episodes: self.episodes.summary(client, self.last.time),
            time: *upper.commands.time(),
            delayed: upper.commands.delayed(),
            slow_time,
            open: upper.commands.open().to_vec(),
            devices: paired(client, [0, 1].map(|end| self.ends[end].device)),
            round_trip: paired(client, End::BOTH.map(|end| self.episodes.shortest_round_trip(end))),
            throughput: self
                .throughput
                .points()
                .map(|(time, volume)| (time, paired(client, volume.0)))
                .map(|(t, [c, s])| (t, c, s))
                .collect(),
            trouble: self.trouble.points().filter(|(_, trouble)| *trouble != Trouble::default()).collect(),
        }
    }

    /// Takes over the other half of a connection whose directions were first taken for two.
    pub fn adopt(&mut self, by: End, from: &mut Self, from_end: End) {
        let swapped = by != from_end;
        self.peers[by.index()].address = from.peers[from_end.index()].address;
        self.roles.adopt(by, &from.roles, from_end);
        self.first = self.first.min(from.first);
        self.last = self.last.max(from.last);
        self.health.join(&from.health);
        self.network.adopt(&from.network, swapped);
        let volumes = from
            .throughput
            .points()
            .map(|(time, Volume([a, b]))| (time, Volume(if swapped { [b, a] } else { [a, b] })));
        self.throughput.merge(volumes);
        self.trouble.merge(from.trouble.points());
        self.icrc_first_bad = match (self.icrc_first_bad, from.icrc_first_bad) {
            (Some(a), Some(b)) => Some(a.min(b)),
            (a, b) => a.or(b),
        };
        self.mirrors.add(from.mirrors);
        self.missed.adopt(by, &mut from.missed, from_end);
        self.followed_damaged |= from.followed_damaged;
        self.episodes.adopt(&mut from.episodes, swapped);
        for end in End::BOTH {
            let mine = if swapped { end.peer() } else { end };
            self.ends[mine.index()].device.join(&from.ends[end.index()].device);
            self.ends[mine.index()].port.adopt(&from.ends[end.index()].port);
        }
        self.weight.1 = true;
        self.settling.adopt(&mut from.settling, swapped);
        self.memory.adopt(by, &mut from.memory, from_end);
        self.messages.adopt(by, &mut from.messages, from_end);
        self.upper.adopt(by, &mut from.upper, from_end);
    }
}

/// A request is done: its time can be divided by owner.
fn settled(
    env: &mut Env,
    episodes: &mut Episodes,
    upper: &mut Upper,
    replier: End,
    waiting: &mut Waiting,
    ends: &[EndState; 2],
    is_tcp: bool,
) {
    let Waiting { exchange, sequence, copy } = waiting;
    if let Some(copy) = copy.filter(|copy| exchange.reply_end.is_some_and(|end| end.time < copy.time)) {
        exchange.reply_seen = exchange.reply_end;
        exchange.reply_end = Some(copy);
    }
    let way = episodes.recent_round_trip(replier).filter(|way| *way <= LONGEST_WAY).unwrap_or(0);
    if let Some(request) = exchange.request(replier.peer(), *sequence, way) {
        let (first, last) = (exchange.request.frame, exchange.reply_end.map_or(0, |at| at.frame));
        let waiter = Waiter { exchange: exchange.id, command: exchange.command, first, last, time: 0 };
        let cut = episodes.cut(&request, exchange.counts().then_some(waiter));
        exchange.behind = exchange.behind.or(cut.behind());
        let ((from, acked), to) = ends[replier.peer().index()].unheard;
        let (sent, reply) = (request.sent, request.reply);
        let part = reply.saturating_sub(sent) / 8;
        let had_it = from.time > sent && exchange.sequence.is_none_or(|mine| not_before(acked, mine));
        exchange.is_unheard =
            !had_it && from.time <= sent.saturating_add(part) && to.time.saturating_add(part) >= reply;
        // TCP acknowledges sooner than this, unless a reply takes the acknowledgment along: that, or the
        // acknowledgment, was lost, and the capture does not tell how long the server took
        let is_lost = exchange.is_unheard && is_tcp && cut.time.of(Owner::Server) > ACKNOWLEDGED_WITHIN;
        let lost = if is_lost { cut.time.of(Owner::Server) } else { 0 };
        exchange.time = cut.time.moved(Owner::Server, Owner::Unknown, lost);
        exchange.time = match is_callback(exchange.command) {
            true => exchange.time.turned(),
            // where it is not known if it was its file that was asked for, nobody's
            false => exchange.time.moved(Owner::Server, Owner::Client, exchange.recalled).moved(
                Owner::Server,
                Owner::Unknown,
                exchange.perhaps_recalled.saturating_sub(exchange.recalled),
            ),
        };
        // what waits for something to happen is nobody's time
        let waits = if exchange.is_poll() { exchange.time.of(Owner::Server) } else { 0 };
        exchange.time = exchange.time.moved(Owner::Server, Owner::Unknown, waits);
    }
    upper.settled(exchange, replier);
    env.complete(exchange);
}

/// The greatest common divisor; the other one of 0.
fn common(mut a: i64, mut b: i64) -> i64 {
    while b != 0 {
        (a, b) = (b, a % b);
    }
    a
}

/// Turns a pair by end A and B into one by client and server.
fn paired<P>(client: End, [a, b]: [P; 2]) -> [P; 2] {
    match client {
        End::A => [a, b],
        End::B => [b, a],
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::op::Part;
    use alloc::vec::Vec;

    fn at(frame: u64, time: i64) -> At {
        At { frame, time }
    }

    #[test]
    fn a_write_whose_first_packet_was_not_seen_shows_that_something_is_missing() {
        let missed = |part: Part, placement: Placement| {
            let mut connection = ConnectionState::new(Transport::RoceV2, at(1, 0));
            let mut env = Env::new(crate::env::Options::default(), crate::context::alone::Listener::default());
            let op = RdmaOp {
                at: at(2, 1000),
                by: End::B,
                verb: Verb::Write,
                part,
                placement,
                message_length: None,
                invalidate: None,
                immediate: None,
                solicited: false,
                length: 4096,
                bytes: &[],
                in_frame: true,
                read: 0,
            };
            connection.op(&mut env, &op, &mut rdmascope_dissector::trace::Off);
            connection.missed.any()
        };
        let known = Placement::Memory { key: 1, address: 0 };
        let cases = [
            (Part::Middle, Placement::Unknown),
            (Part::Last, Placement::Unknown),
            (Part::Middle, known),
            (Part::Only, Placement::Unknown),
        ];
        assert_eq!(cases.map(|(part, placement)| missed(part, placement)), [true, true, false, false]);
    }

    #[test]
    fn a_coarse_clock_is_known_by_its_times() {
        let tick = |times: &[i64]| {
            let mut connection = ConnectionState::default();
            let mut frame = 0;
            for time in times {
                frame += 1;
                connection.carried(End::A, at(frame, *time), &Packet::default(), &pauses::Recent::default());
            }
            connection.tick
        };
        const MS: i64 = 1_000_000;
        assert_eq!(tick(&[17 * MS, 18 * MS, 20 * MS]), MS);
        assert!(tick(&[17 * MS, 18 * MS + 3000, 20 * MS]) <= FINE);
        assert_eq!(tick(&[0, -5 * MS]), 5 * MS);
    }

    #[test]
    fn a_late_pairing_keeps_what_the_other_half_counted() {
        let mut whole =
            ConnectionState { id: 1, first: at(5, 50_000_000), last: at(9, 90_000_000), ..ConnectionState::default() };
        whole.throughput.add(50_000_000, Volume([100, 0]));
        let mut half =
            ConnectionState { id: 2, first: at(2, 20_000_000), last: at(8, 80_000_000), ..ConnectionState::default() };
        half.throughput.add(20_000_000, Volume([7, 0]));
        half.trouble.add(30_000_000, Trouble::NAK);
        (half.icrc_first_bad, half.health.icrc_bad) = (Some(at(4, 0)), 1);
        whole.adopt(End::B, &mut half, End::A);
        let report = whole.summary();
        let volumes: Vec<_> = report.throughput.iter().filter(|(_, a, b)| a + b > 0).copied().collect();
        assert_eq!(volumes, [(20_000_000, 0, 7), (volumes[1].0, 100, 0)]);
        assert_eq!((report.first.frame, report.last.frame, report.trouble.len()), (2, 9, 1));
        assert_eq!((whole.icrc_first_bad.map(|at| at.frame), report.health.icrc_bad), (Some(4), 1));
    }
}
