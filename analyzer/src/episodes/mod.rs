//! Delays of traffic: intervals of a direction of a connection, with their cause and their cost for the requests behind
//! them.
//!
//! ```text
//!   flow, messages, pipeline ── begin, end ──▶ Episodes ──▶ time::cut   whose time a request's was
//!                                                     └───▶ report      roots by cost, one list a connection
//! ```
//!
//! Flows and messages report what they see; nothing here looks at packets.

pub mod cost;
pub mod time;

use crate::op::{At, End};
use crate::stored::{stored, stored_enum};
use alloc::vec::Vec;
use time::{Cut, Owner, Request, Time};

/// ns by which a segment must be behind its sender's clock to have been held up on the way.
pub(crate) const HELD_UP: i64 = 15_000_000;
/// Episodes of one connection that are kept. Beyond that the cheapest of the older half are only counted.
pub const EPISODES_MAX: usize = 512;

/// Episodes of one connection in a report.
pub const REPORTED_MAX: usize = 256;

/// Kind of a delay of one direction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Kind {
    /// Packets were retransmitted: from the packet that was lost, or the gap seen, until the sender was back at its
    /// newest packet.
    #[default]
    Recovery,
    /// The receiver had no receive posted (RNR NAK), until the Send was retransmitted.
    Rnr,
    /// The sender had no credit, until it was granted one.
    Credit,
    /// Ethernet pause frames stopped the sender.
    Pause,
    /// Congestion notifications had told the sender to slow down, and its next packet waited for that.
    Congestion,
    /// The TCP receive window was closed.
    ZeroWindow,
    /// Nothing came back from the receiver, not even acknowledgments.
    Silence,
    /// The sender held data back until its peer's delayed acknowledgment came (Nagle).
    Nagle,
    /// Packets were delayed between their sender and the capture point.
    HeldUp,
    /// The sender had all that it needs to go on with a message, or to answer an RDMA Read, and did not.
    Idle,
    /// The sender stopped in the middle of a message, for an unknown reason.
    Interrupted,
    /// The capture lost packets: nothing is known about the time in between.
    Gap,
}

impl Kind {
    /// All kinds.
    pub const ALL: [Self; 12] = [
        Self::Recovery,
        Self::Rnr,
        Self::Credit,
        Self::Pause,
        Self::Congestion,
        Self::ZeroWindow,
        Self::Silence,
        Self::Nagle,
        Self::HeldUp,
        Self::Idle,
        Self::Interrupted,
        Self::Gap,
    ];

    /// The word of the reports for programs.
    pub const fn key(self) -> &'static str {
        match self {
            Self::Recovery => "recovery",
            Self::Rnr => "rnr",
            Self::Credit => "credit",
            Self::Pause => "pause",
            Self::Congestion => "congestion",
            Self::ZeroWindow => "zero_window",
            Self::Silence => "silence",
            Self::Nagle => "nagle",
            Self::HeldUp => "held_up",
            Self::Idle => "idle",
            Self::Interrupted => "interrupted",
            Self::Gap => "gap",
        }
    }

    /// The words for people.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Recovery => "recovery",
            Self::Rnr => "receiver not ready",
            Self::Credit => "credit stall",
            Self::Pause => "pause",
            Self::Congestion => "slowed by congestion",
            Self::ZeroWindow => "receive window closed",
            Self::Silence => "silent peer",
            Self::Nagle => "Nagle and delayed ACK",
            Self::HeldUp => "held up on the way",
            Self::Idle => "idle sender",
            Self::Interrupted => "stopped within a message",
            Self::Gap => "capture gap",
        }
    }

    /// Owner of the time that a request spends in such an episode of the client's direction.
    pub const fn owner(self) -> Owner {
        match self {
            Self::Recovery | Self::Silence => Owner::Recovery,
            Self::Rnr => Owner::Rnr,
            Self::Credit | Self::ZeroWindow => Owner::Credit,
            Self::Pause => Owner::Pause,
            Self::Congestion | Self::Nagle | Self::HeldUp => Owner::SendQueue,
            Self::Idle => Owner::Client,
            Self::Interrupted | Self::Gap => Owner::Unknown,
        }
    }

    /// Of several at the same time the lowest counts.
    const fn rank(self) -> u8 {
        match self {
            Self::Silence => 0,
            Self::Rnr => 1,
            Self::Recovery => 2,
            Self::Credit => 3,
            Self::ZeroWindow => 4,
            Self::Pause => 5,
            Self::Congestion => 6,
            Self::Nagle => 7,
            Self::HeldUp => 8,
            Self::Idle => 9,
            Self::Interrupted => 10,
            Self::Gap => 11,
        }
    }
}

/// Cause of an episode, as far as known.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Cause {
    /// Not known, or not yet.
    #[default]
    Unknown,
    /// Packets were lost before the capture point.
    LostBefore,
    /// Packets were lost behind the capture point.
    LostBehind,
    /// Packets or their acknowledgment were lost: the capture does not show which.
    Unacknowledged,
    /// The same, and the receiver went on as if it had them: the acknowledgment was lost.
    AckLost,
    /// Responses to the sender's RDMA Reads were lost, and it asked again.
    ResponseLost,
    /// Packets were damaged, and dropped by their receiver.
    Damaged,
    /// Packets went to a queue pair that is not their receiver's.
    Misaddressed,
    /// Packets were overtaken, which the receiver took for loss.
    Reordered,
    /// Packets were retransmitted although the receiver had them.
    Needless,
    /// Credits of SMB Direct.
    SmbDirectCredits,
    /// Credits of RPC-over-RDMA.
    RpcRdmaCredits,
    /// Credits of SMB2.
    Smb2Credits,
    /// RDMA Reads that may be outstanding.
    ReadDepth,
    /// The answer to an RDMA Read.
    ReadResponse,
    /// The receiver's port asked to pause what is sent to it: the whole link, or the priority of the packets.
    ReceiverPaused,
    /// The receiver's port asked to pause a priority; the packets do not carry theirs.
    PriorityUnknown,
    /// A port that is neither end's asked to pause what is sent to it. Which direction that is, the capture does not
    /// show.
    OtherPort,
    /// The sender was asked to wait, because its receiver was not ready, and waited far longer.
    SentLate,
}

impl Cause {
    /// All causes.
    pub const ALL: [Self; 19] = [
        Self::Unknown,
        Self::LostBefore,
        Self::LostBehind,
        Self::Unacknowledged,
        Self::AckLost,
        Self::ResponseLost,
        Self::Damaged,
        Self::Misaddressed,
        Self::Reordered,
        Self::Needless,
        Self::SmbDirectCredits,
        Self::RpcRdmaCredits,
        Self::Smb2Credits,
        Self::ReadDepth,
        Self::ReadResponse,
        Self::ReceiverPaused,
        Self::PriorityUnknown,
        Self::OtherPort,
        Self::SentLate,
    ];

    /// The word of the reports for programs.
    pub const fn key(self) -> &'static str {
        match self {
            Self::Unknown => "unknown",
            Self::LostBefore => "lost_before_capture",
            Self::LostBehind => "lost_behind_capture",
            Self::Unacknowledged => "unacknowledged",
            Self::AckLost => "acknowledgment_lost",
            Self::ResponseLost => "response_lost",
            Self::Damaged => "damaged",
            Self::Misaddressed => "wrong_queue_pair",
            Self::Reordered => "reordered",
            Self::Needless => "needless",
            Self::SmbDirectCredits => "smb_direct_credits",
            Self::RpcRdmaCredits => "rpcrdma_credits",
            Self::Smb2Credits => "smb2_credits",
            Self::ReadDepth => "read_depth",
            Self::ReadResponse => "read_response",
            Self::SentLate => "sent_late",
            Self::ReceiverPaused => "receiver_paused",
            Self::PriorityUnknown => "priority_unknown",
            Self::OtherPort => "other_port",
        }
    }

    /// True if packets were lost.
    pub const fn is_loss(self) -> bool {
        matches!(self, Self::LostBefore | Self::LostBehind | Self::Unacknowledged) || self.is_of_the_peer()
    }

    /// True if the lost packets went the other way: the peer had sent them.
    pub const fn is_of_the_peer(self) -> bool {
        matches!(self, Self::AckLost | Self::ResponseLost)
    }
}

/// Reason for which a sender began to repeat packets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Trigger {
    /// None, or not known.
    #[default]
    Unknown,
    /// A NAK asked for them (IBA volume 1, 9.7.5.2.8).
    Nak,
    /// The receiver was not ready, and its time was over (IBA volume 1, 9.7.5.2.8).
    RnrNak,
    /// No acknowledgment came in time (IBA volume 1, 9.7.6.1.3), as far as the capture shows.
    Timeout,
    /// The receiver reported them missing (RFC 5681 3.2, RFC 6675).
    FastRetransmit,
    /// A timer of TCP: RFC 6298, or a probe for a lost tail (RFC 8985).
    Rto,
}

impl Trigger {
    /// True if it is one of TCP, whose receiver takes everything of a direction in order.
    pub const fn is_of_tcp(self) -> bool {
        matches!(self, Self::FastRetransmit | Self::Rto)
    }

    /// The word of the reports for programs.
    pub const fn key(self) -> &'static str {
        match self {
            Self::Unknown => "unknown",
            Self::Nak => "nak",
            Self::RnrNak => "rnr_nak",
            Self::Timeout => "timeout",
            Self::FastRetransmit => "fast_retransmit",
            Self::Rto => "rto",
        }
    }

    /// The words for people; `None` if it is not known.
    pub const fn name(self) -> Option<&'static str> {
        match self {
            Self::Unknown => None,
            Self::Nak => Some("NAK"),
            Self::RnrNak => Some("RNR NAK"),
            Self::Timeout => Some("timeout"),
            Self::FastRetransmit => Some("fast retransmit"),
            Self::Rto => Some("RTO"),
        }
    }
}

/// Requests of an episode that are kept: those that waited longest.
pub const WAITERS_MAX: usize = 3;

/// A request that waited in an episode.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Waiter {
    /// Its number.
    pub exchange: u64,
    /// Its command.
    pub command: &'static str,
    /// Its first frame.
    pub first: u64,
    /// The last frame of its reply.
    pub last: u64,
    /// ns that it waited.
    pub time: i64,
}

/// An interval in which a direction was held up. Times in ns.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Episode {
    /// Counted from 1 on its connection, in the order in which they were noticed.
    pub id: u32,
    /// Kind of delay.
    pub kind: Kind,
    /// Cause, as far as known.
    pub cause: Cause,
    /// Of a recovery: why its sender began to repeat packets.
    pub trigger: Trigger,
    /// Side whose packets were held up; `None` if both directions were.
    pub by: Option<End>,
    /// Frame and time of the beginning.
    pub begin: At,
    /// Time of its end; `None` if it had not ended when the capture, or the connection, was over.
    pub end: Option<At>,
    /// The first sequence number that it concerns, as [`sequence_of_psn`] or TCP give it.
    pub sequence: Option<u32>,
    /// Packets concerned: of a loss those that were lost, of a gap those that are missing.
    pub packets: u32,
    /// Retransmitted packets because of it.
    pub repeated: u32,
    /// Bytes that were retransmitted because of it.
    pub bytes: u64,
    /// ns of requests' time that was spent in it. Requests that waited at the same time count each.
    pub cost: i64,
    /// Requests that waited.
    pub requests: u32,
    /// Those that waited longest, the longest first; without time where there were fewer.
    pub longest: [Waiter; WAITERS_MAX],
}

impl Episode {
    /// True if it is no more than packets that were not seen so far: they may come again, or the capture lost them.
    pub fn is_a_guess(&self) -> bool {
        self.end.is_none() && self.kind == Kind::Recovery && self.repeated == 0 && self.packets == 0
    }

    /// Owner of the time that a request of `client` spends in it.
    pub fn owner(&self, client: End) -> Owner {
        match self.kind {
            Kind::Idle if self.by != Some(client) => Owner::Server,
            _ if self.is_a_guess() || self.cause == Cause::OtherPort => Owner::Unknown,
            kind => kind.owner(),
        }
    }

    /// The requests that waited longest in it, the longest first.
    pub fn waiters(&self) -> impl Iterator<Item = &Waiter> {
        self.longest.iter().take_while(|waiter| waiter.time > 0)
    }

    fn waited(&mut self, waiter: Waiter) {
        self.cost = self.cost.saturating_add(waiter.time);
        self.requests = self.requests.saturating_add(1);
        if let Some(place) = self.longest.iter().position(|known| known.time < waiter.time) {
            self.longest[place..].rotate_right(1);
            self.longest[place] = waiter;
        }
    }

    /// Of several at the same time the lowest counts: what is not known to have held a direction up comes last.
    const fn rank(&self) -> u8 {
        match self.cause {
            Cause::OtherPort => u8::MAX,
            _ => self.kind.rank(),
        }
    }

    /// Time of its end in ns; the largest value if it did not end.
    pub fn until(&self) -> i64 {
        self.end.map_or(i64::MAX, |end| end.time)
    }

    /// Its duration in ns; of one that did not end, until `now`.
    pub fn lasted(&self, now: i64) -> i64 {
        self.end.map_or(now, |end| end.time).saturating_sub(self.begin.time).max(0)
    }
}

/// A packet sequence number (24 bits) as a sequence number of 32 bits that compares as one of TCP does.
pub const fn sequence_of_psn(psn: u32) -> u32 {
    psn << 8
}

/// True if a sequence number is not before another, on the circle.
pub const fn not_before(a: u32, b: u32) -> bool {
    (a.wrapping_sub(b) as i32) >= 0
}

/// ns without room for which a sender must have been to have waited for it.
const CEILING_LEAST: i64 = 50_000;
/// ns after there is room again within which a sender that waited for it goes on.
const CEILING_RELEASE: i64 = 1_000_000;

/// A limit to what a sender may have outstanding. A sender that goes on as soon as there is room again had waited for
/// it.
#[derive(Clone, Copy, Debug, Default)]
pub struct Ceiling {
    full: Option<At>,
    free: Option<At>,
}

impl Ceiling {
    /// There is no more room.
    pub fn full(&mut self, at: At) {
        *self = Self { full: Some(at), free: None };
    }

    /// The limit is no longer reached.
    pub fn free(&mut self, at: At) {
        if self.full.is_some() {
            self.free.get_or_insert(at);
        }
    }

    /// The sender goes on. Returns the beginning and the end of its wait, if it waited.
    pub fn used(&mut self, at: At) -> Option<(At, At)> {
        let Self { full: Some(full), free: Some(free) } = core::mem::take(self) else { return None };
        (free.since(full) >= CEILING_LEAST && (0..=CEILING_RELEASE).contains(&at.since(free))).then_some((full, at))
    }
}

/// Episodes of one kind, cause and direction, added up. Times in ns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sum {
    /// Kind of delay.
    pub kind: Kind,
    /// Cause, as far as known.
    pub cause: Cause,
    /// Side whose packets were delayed.
    pub by: Option<End>,
    /// Number of episodes.
    pub count: u64,
    /// Total duration, in ns.
    pub lasted: i64,
    /// Requests' time in them.
    pub cost: i64,
    /// Packets concerned.
    pub packets: u64,
    /// Retransmitted packets.
    pub repeated: u64,
    /// Beginning of the first.
    pub first: At,
    /// Beginning of the last.
    pub last: At,
}

/// Episodes of a connection for a report; ends are by role: A is the client.
#[derive(Clone, Debug, Default)]
pub struct Summary {
    /// Those that are kept, in the order in which they began.
    pub list: Vec<Episode>,
    /// Number of episodes that are not kept.
    pub omitted: u64,
    /// All of them, by kind, cause and direction.
    pub sums: Vec<Sum>,
}

/// The episodes of one connection.
#[derive(Clone, Debug, Default)]
pub struct Episodes {
    kept: Vec<Episode>,
    next_id: u32,
    /// The latest end of those that are over.
    latest_end: i64,
    /// Number of those that are not over.
    open: u32,
    /// Those that are not kept any more.
    dropped: Vec<Sum>,
    /// By end: the shortest way from the capture point to it and back, in ns.
    round_trip: [Option<i64>; 2],
    /// The same of late, if it is another.
    recent_round_trip: [Option<i64>; 2],
}

impl Episodes {
    /// One begins. Its number.
    pub fn begin(&mut self, kind: Kind, by: End, begin: At, sequence: Option<u32>) -> u32 {
        self.add(Episode { kind, by: Some(by), begin, sequence, ..Episode::default() })
    }

    /// `by` waited for room from `begin` to `end`.
    #[cold]
    pub fn stalled(&mut self, by: End, cause: Cause, begin: At, end: At) {
        self.add(Episode { kind: Kind::Credit, cause, by: Some(by), begin, end: Some(end), ..Episode::default() });
    }

    /// One that is under way, of a kind and direction.
    pub fn under_way(&mut self, kind: Kind, by: End) -> Option<&mut Episode> {
        if self.open == 0 {
            return None;
        }
        self.kept.iter_mut().rev().find(|e| e.end.is_none() && e.kind == kind && e.by == Some(by))
    }

    /// Ends the episode of a kind and direction that is under way; `change` sets its facts.
    pub fn end(&mut self, kind: Kind, by: End, end: At, change: impl FnOnce(&mut Episode)) {
        let Some(episode) = self.under_way(kind, by) else { return };
        let end = if end.time < episode.begin.time { episode.begin } else { end };
        episode.end = Some(end);
        change(episode);
        self.open -= 1;
        self.latest_end = self.latest_end.max(end.time);
    }

    /// Takes back the episode that is under way: the sender repaired nothing, and the missing packets were missed by
    /// the capture.
    pub fn retract(&mut self, kind: Kind, by: End, end: At) {
        let Some(place) = self.kept.iter().rposition(|e| e.end.is_none() && e.kind == kind && e.by == Some(by)) else {
            return;
        };
        if self.kept[place].requests > 0 {
            self.end(kind, by, end, |e| e.kind = Kind::Gap);
        } else {
            self.kept.remove(place);
            self.open -= 1;
        }
    }

    /// The clock of the capture was set between `since` and `until`: nothing is known of that time, and what held `by` up
    /// then was nothing else, or by so much less.
    #[cold]
    pub fn clock_set(&mut self, by: End, since: At, until: At) {
        let step = until.since(since);
        let is_wrong = |e: &&mut Episode| {
            e.kind == Kind::HeldUp && e.by == Some(by) && e.end.is_some_and(|end| end.time >= until.time)
        };
        let (mut is_known, mut unknown) = (false, (since, until));
        for episode in self.kept.iter_mut().rev().take_while(|e| e.until() >= until.time).filter(is_wrong) {
            let begin = At { time: episode.begin.time.saturating_add(step), ..episode.begin };
            if episode.until().saturating_sub(begin.time) < HELD_UP {
                (episode.kind, episode.by, is_known) = (Kind::Gap, None, true);
            } else {
                unknown = (episode.begin, begin);
                episode.begin = begin;
            }
        }
        if !is_known {
            let (begin, end) = (unknown.0, Some(unknown.1));
            self.add(Episode { kind: Kind::Gap, begin, end, ..Episode::default() });
        }
    }

    /// Adds an episode; if its end is known, it is over. Returns its number.
    pub fn add(&mut self, mut episode: Episode) -> u32 {
        if let Some(end) = episode.end {
            if end.time <= episode.begin.time {
                return 0;
            }
            self.latest_end = if self.kept.is_empty() { end.time } else { self.latest_end.max(end.time) };
        } else {
            self.open += 1;
        }
        if self.kept.len() >= EPISODES_MAX {
            self.make_room();
        }
        self.next_id += 1;
        episode.id = self.next_id;
        self.kept.push(episode);
        self.next_id
    }

    /// Of the older half the cheaper half are added up.
    #[cold]
    fn make_room(&mut self) {
        let half = self.kept.len() / 2;
        let mut costs: Vec<(i64, i64)> = self.kept[..half].iter().map(|e| (e.cost, e.lasted(e.begin.time))).collect();
        costs.sort_unstable();
        let limit = costs[half / 2];
        let mut place = 0;
        let Self { kept, dropped, open, .. } = self;
        kept.retain(|e| {
            place += 1;
            let goes = place <= half && (e.cost, e.lasted(e.begin.time)) <= limit;
            if goes {
                *open -= u32::from(e.end.is_none());
                sum_into(dropped, e, e.begin.time);
            }
            !goes
        });
    }

    /// A packet reached `end` and its acknowledgment came back to the capture point in `ns`.
    #[inline]
    pub fn round_trip(&mut self, end: End, ns: i64) {
        let known = &mut self.round_trip[end.index()];
        if ns >= 0 && known.is_none_or(|known| ns < known) {
            *known = Some(ns);
        }
    }

    /// The shortest way from the capture point to an end and back, in ns, if it was seen.
    pub fn shortest_round_trip(&self, end: End) -> Option<i64> {
        self.round_trip[end.index()]
    }

    /// The shortest way from the capture point to an end and back has become `ns` long.
    pub fn recent_round_trip_is(&mut self, end: End, ns: i64) {
        self.recent_round_trip[end.index()] = Some(ns);
    }

    /// The shortest way from the capture point to an end and back of late, in ns, if it was seen.
    pub fn recent_round_trip(&self, end: End) -> Option<i64> {
        self.recent_round_trip[end.index()].max(self.round_trip[end.index()])
    }

    /// All that are kept, in the order in which they were noticed.
    pub fn iter(&self) -> core::slice::Iter<'_, Episode> {
        self.kept.iter()
    }

    /// Number of episodes that are not kept any more.
    pub fn dropped(&self) -> u64 {
        self.dropped.iter().map(|sum| sum.count).sum()
    }

    /// All there were, added up by kind, cause and direction; those under way until `now`.
    pub fn sums(&self, now: i64) -> Vec<Sum> {
        let mut sums = self.dropped.clone();
        self.kept.iter().for_each(|e| sum_into(&mut sums, e, now));
        sums
    }

    /// Divides the time of a request by owner. If it counts, `waiter` names it, and the cost of episodes is added to
    /// them.
    pub fn cut(&mut self, request: &Request, waiter: Option<Waiter>) -> Cut {
        if self.open == 0 && self.latest_end <= request.begin {
            return time::cut(request, &[]);
        }
        let cut = time::cut(request, &self.kept);
        let Some(waiter) = waiter else { return cut };
        for share in cut.shares() {
            if let Some(episode) = self.kept.iter_mut().rev().find(|e| e.id == share.episode) {
                episode.waited(Waiter { time: share.time, ..waiter });
            }
        }
        cut
    }

    /// The episodes for a report. `client` is the end that becomes A, `now` the last frame.
    pub fn summary(&self, client: End, now: i64) -> Summary {
        let role = |by: Option<End>| by.map(|by| if client == End::A { by } else { by.peer() });
        let mut list: Vec<Episode> = self.kept.iter().map(|e| Episode { by: role(e.by), ..*e }).collect();
        let mut omitted = self.dropped();
        if list.len() > REPORTED_MAX {
            list.sort_by_key(|e| core::cmp::Reverse((e.cost, e.lasted(now))));
            omitted += (list.len() - REPORTED_MAX) as u64;
            list.truncate(REPORTED_MAX);
        }
        list.sort_by_key(|e| (e.begin.time, e.id));
        let mut sums = self.sums(now);
        sums.iter_mut().for_each(|sum| sum.by = role(sum.by));
        Summary { list, omitted, sums }
    }

    /// The connection, or the capture, is over.
    pub fn finish(&mut self) {
        self.open = 0;
    }

    /// Takes over the other half of a connection whose directions were first taken for two; `swapped` if their ends
    /// have other names.
    pub fn adopt(&mut self, from: &mut Self, swapped: bool) {
        for mut episode in core::mem::take(&mut from.kept) {
            episode.by = episode.by.map(|by| if swapped { by.peer() } else { by });
            self.add(episode);
        }
        for end in End::BOTH {
            if let Some(ns) = from.round_trip[end.index()] {
                self.round_trip(if swapped { end.peer() } else { end }, ns);
            }
        }
        self.dropped.append(&mut from.dropped);
    }
}

fn sum_into(sums: &mut Vec<Sum>, e: &Episode, now: i64) {
    let place = sums.iter().position(|s| (s.kind, s.cause, s.by) == (e.kind, e.cause, e.by)).unwrap_or_else(|| {
        let Episode { kind, cause, by, begin, .. } = *e;
        sums.push(Sum {
            kind,
            cause,
            by,
            count: 0,
            lasted: 0,
            cost: 0,
            packets: 0,
            repeated: 0,
            first: begin,
            last: begin,
        });
        sums.len() - 1
    });
    let sum = &mut sums[place];
    sum.count += 1;
    sum.lasted = sum.lasted.saturating_add(e.lasted(now));
    sum.cost = sum.cost.saturating_add(e.cost);
    sum.packets = sum.packets.saturating_add(e.packets.into());
    sum.repeated = sum.repeated.saturating_add(e.repeated.into());
    if e.begin.time < sum.first.time {
        sum.first = e.begin;
    }
    if e.begin.time > sum.last.time {
        sum.last = e.begin;
    }
}

/// Time by owner of several requests, added up.
impl core::ops::AddAssign<&Time> for Time {
    fn add_assign(&mut self, other: &Time) {
        // most owners have none of it
        for (sum, part) in self.0.iter_mut().zip(&other.0).filter(|(_, part)| **part != 0) {
            *sum = sum.saturating_add(*part);
        }
    }
}

stored_enum!(Kind {
    Recovery,
    Rnr,
    Credit,
    Pause,
    Congestion,
    ZeroWindow,
    Silence,
    Nagle,
    HeldUp,
    Idle,
    Interrupted,
    Gap
});
stored_enum!(Cause {
    Unknown,
    LostBefore,
    LostBehind,
    Unacknowledged,
    AckLost,
    ResponseLost,
    Damaged,
    Misaddressed,
    Reordered,
    Needless,
    SmbDirectCredits,
    RpcRdmaCredits,
    Smb2Credits,
    ReadDepth,
    ReadResponse,
    ReceiverPaused,
    PriorityUnknown,
    OtherPort,
    SentLate
});
stored_enum!(Trigger { Unknown, Nak, RnrNak, Timeout, FastRetransmit, Rto });
stored!(Episode {
    id,
    kind,
    cause,
    trigger,
    by,
    begin,
    end,
    sequence,
    packets,
    repeated,
    bytes,
    cost,
    requests,
    longest
});
stored!(Waiter { exchange, command, first, last, time });
stored!(Sum { kind, cause, by, count, lasted, cost, packets, repeated, first, last });
stored!(Summary { list, omitted, sums });

#[cfg(test)]
mod tests {
    use super::*;

    fn at(time: i64) -> At {
        At { frame: time as u64, time }
    }

    #[test]
    fn a_clock_that_is_set_holds_nothing_up() {
        let at = |ms: i64| At { frame: 1, time: ms * 1_000_000 };
        let told = |kind: Kind, by: End, begin: i64, end: i64| {
            let mut episodes = Episodes::default();
            episodes.add(Episode { kind, by: Some(by), begin: at(begin), end: Some(at(end)), ..Episode::default() });
            episodes.clock_set(End::B, at(10), at(90));
            let ms = |ns: i64| ns / 1_000_000;
            episodes.iter().map(|e| (e.kind, e.by, ms(e.begin.time), ms(e.until()))).collect::<Vec<_>>()
        };
        let unknown = (Kind::Gap, None, 10, 90);
        assert_eq!(told(Kind::HeldUp, End::B, 10, 90), [unknown]);
        let of = |kind: Kind, by: End, begin: i64, end: i64| [(kind, Some(by), begin, end), unknown];
        assert_eq!(told(Kind::HeldUp, End::B, 10, 89), of(Kind::HeldUp, End::B, 10, 89), "before it");
        assert_eq!(told(Kind::HeldUp, End::A, 10, 90), of(Kind::HeldUp, End::A, 10, 90));
        assert_eq!(told(Kind::Nagle, End::B, 10, 90), of(Kind::Nagle, End::B, 10, 90));
        // what is longer was held up besides
        assert_eq!(told(Kind::HeldUp, End::B, 6, 100), [(Kind::Gap, None, 6, 100)]);
        let both = [(Kind::HeldUp, Some(End::B), 85, 100), (Kind::Gap, None, 5, 85)];
        assert_eq!(told(Kind::HeldUp, End::B, 5, 100), both);
    }

    #[test]
    fn an_episode_is_open_until_it_ends() {
        let mut episodes = Episodes::default();
        episodes.begin(Kind::Recovery, End::A, at(10), Some(7));
        assert!(episodes.under_way(Kind::Recovery, End::B).is_none());
        episodes.end(Kind::Recovery, End::A, at(30), |e| (e.cause, e.packets) = (Cause::LostBefore, 2));
        let found: Vec<_> = episodes.iter().map(|e| (e.kind, e.cause, e.lasted(99), e.packets)).collect();
        assert_eq!(found, [(Kind::Recovery, Cause::LostBefore, 20, 2)]);
        episodes.begin(Kind::Recovery, End::A, at(50), None);
        episodes.retract(Kind::Recovery, End::A, at(60));
        assert_eq!(episodes.iter().count(), 1);
    }

    #[test]
    fn who_goes_on_as_soon_as_there_is_room_had_waited_for_it() {
        let us = |us: i64| At { frame: us as u64, time: us * 1000 };
        let told = |full: i64, free: i64, used: i64| {
            let mut ceiling = Ceiling::default();
            ceiling.full(us(full));
            ceiling.free(us(free));
            ceiling.free(us(free + 10_000));
            let told = ceiling.used(us(used)).map(|(begin, end)| (begin.time / 1000, end.time / 1000));
            assert_eq!(ceiling.used(us(used)), None, "once");
            told
        };
        assert_eq!(told(100, 150, 160), Some((100, 160)));
        assert_eq!(told(100, 149, 160), None, "no wait to speak of");
        assert_eq!(told(100, 150, 1150), Some((100, 1150)));
        assert_eq!(told(100, 150, 1151), None, "it had nothing to send");
        let mut ceiling = Ceiling::default();
        ceiling.free(us(10));
        assert_eq!(ceiling.used(us(20)), None, "there was room");
        ceiling.full(us(30));
        assert_eq!(ceiling.used(us(90)), None, "there is none");
    }

    #[test]
    fn what_costs_most_is_kept_and_nothing_is_lost_from_the_sums() {
        let mut episodes = Episodes::default();
        for n in 0..4000 {
            let (begin, end) = (at(n * 10), Some(at(n * 10 + 5)));
            episodes.add(Episode {
                kind: Kind::Credit,
                by: Some(End::A),
                begin,
                end,
                cost: i64::from(n == 3),
                ..Episode::default()
            });
        }
        assert!(episodes.iter().count() <= EPISODES_MAX);
        assert!(episodes.iter().any(|e| e.cost == 1), "what cost something is kept");
        let sums = episodes.sums(0);
        assert_eq!((sums.len(), sums[0].count, sums[0].lasted, sums[0].cost), (1, 4000, 20_000, 1));
    }

    fn recovery(begin: i64, end: Option<i64>) -> Episode {
        Episode { by: Some(End::A), begin: at(begin), end: end.map(at), ..Episode::default() }
    }

    #[test]
    fn what_was_not_repaired_is_a_guess() {
        let open = recovery(10, None);
        assert!(open.is_a_guess());
        assert!(!recovery(10, Some(20)).is_a_guess());
        assert!(!Episode { repeated: 1, ..open }.is_a_guess());
        assert!(!Episode { packets: 1, ..open }.is_a_guess());
        assert!(!Episode { kind: Kind::Rnr, ..open }.is_a_guess());
        assert_eq!((open.owner(End::A), recovery(10, Some(20)).owner(End::A)), (Owner::Unknown, Owner::Recovery));
        let idle = Episode { kind: Kind::Idle, ..open };
        assert_eq!((idle.owner(End::A), idle.owner(End::B)), (Owner::Client, Owner::Server));
    }

    #[test]
    fn numbers_on_the_circle() {
        assert!(not_before(5, 5) && not_before(6, 5) && !not_before(4, 5));
        assert!(not_before(3, u32::MAX) && !not_before(u32::MAX, 3));
        assert_eq!(sequence_of_psn(1), 256);
        assert!(not_before(sequence_of_psn(0), sequence_of_psn(0x00ff_ffff)));
    }

    #[test]
    fn losses_and_whose_they_are() {
        let of = |is: fn(Cause) -> bool| {
            let all = [
                Cause::LostBefore,
                Cause::LostBehind,
                Cause::Unacknowledged,
                Cause::AckLost,
                Cause::ResponseLost,
                Cause::Reordered,
            ];
            all.map(is)
        };
        assert_eq!(of(Cause::is_loss), [true, true, true, true, true, false]);
        assert_eq!(of(Cause::is_of_the_peer), [false, false, false, true, true, false]);
    }

    #[test]
    fn an_episode_has_a_duration() {
        let mut episodes = Episodes::default();
        assert_eq!(episodes.add(recovery(10, Some(10))), 0);
        assert_eq!(episodes.add(recovery(10, Some(9))), 0);
        assert_eq!((episodes.add(recovery(10, Some(11))), episodes.iter().count()), (1, 1));
        // a clock that goes back
        episodes.begin(Kind::Rnr, End::B, at(50), None);
        episodes.end(Kind::Rnr, End::B, at(40), |_| {});
        let ended = episodes.iter().last().map(|e| (e.end, e.lasted(99), e.until()));
        assert_eq!(ended, Some((Some(at(50)), 0, 50)));
        // one that is over at once ends in its last frame
        episodes.begin(Kind::Rnr, End::B, at(50), None);
        episodes.end(Kind::Rnr, End::B, At { frame: 51, time: 50 }, |_| {});
        assert_eq!(episodes.iter().last().and_then(|e| e.end), Some(At { frame: 51, time: 50 }));
        assert_eq!(
            (recovery(10, None).lasted(15), recovery(10, None).lasted(5), recovery(10, None).until()),
            (5, 0, i64::MAX)
        );
        // one that is over is not under way, nor is one of another kind or direction
        assert!(episodes.under_way(Kind::Rnr, End::B).is_none());
        episodes.begin(Kind::Rnr, End::B, at(60), None);
        assert!(episodes.under_way(Kind::Rnr, End::A).is_none() && episodes.under_way(Kind::Credit, End::B).is_none());
        assert_eq!(episodes.under_way(Kind::Rnr, End::B).map(|e| e.begin), Some(at(60)));
        episodes.finish();
        assert!(episodes.under_way(Kind::Rnr, End::B).is_none());
    }

    fn waiting(begin: i64, end: i64) -> Request {
        Request {
            client: End::A,
            begin,
            sent: end,
            rdma: None,
            idle: 0,
            reply: end,
            seen: end,
            end,
            sequence: [None; 2],
            way: 0,
            is_read: false,
        }
    }

    const WAITS: Option<Waiter> = Some(Waiter { exchange: 1, command: "READ", first: 2, last: 3, time: 0 });

    #[test]
    fn an_episode_names_the_requests_that_waited_longest() {
        let mut episodes = Episodes::default();
        episodes.add(recovery(10, Some(60)));
        for (exchange, begin) in [(1, 50), (2, 20), (3, 40), (4, 20), (5, 30)] {
            let waiter = Waiter { exchange, command: "READ", first: exchange * 10, last: exchange * 10 + 1, time: 0 };
            episodes.cut(&waiting(begin, 70), Some(waiter));
        }
        let found: Vec<_> = episodes.iter().flat_map(|e| e.waiters().map(|w| (w.exchange, w.first, w.time))).collect();
        assert_eq!(found, [(2, 20, 40), (4, 40, 40), (5, 50, 30)]);
    }

    #[test]
    fn costs_are_added_to_episodes() {
        let mut episodes = Episodes::default();
        episodes.add(recovery(10, Some(20)));
        episodes.add(recovery(30, Some(40)));
        assert_eq!(episodes.cut(&waiting(0, 50), None).time.of(Owner::Recovery), 20);
        assert!(episodes.iter().all(|e| (e.cost, e.requests) == (0, 0)));
        episodes.cut(&waiting(0, 50), WAITS);
        episodes.cut(&waiting(35, 50), WAITS);
        assert_eq!(episodes.cut(&waiting(39, 50), WAITS).time.of(Owner::Recovery), 1);
        assert_eq!(episodes.cut(&waiting(40, 50), WAITS).time.of(Owner::Recovery), 0);
        let costs: Vec<_> = episodes.iter().map(|e| (e.cost, e.requests)).collect();
        assert_eq!(costs, [(10, 1), (16, 3)]);
    }

    #[test]
    fn what_is_under_way_costs_too() {
        let mut episodes = Episodes::default();
        episodes.add(recovery(10, Some(20)));
        episodes.begin(Kind::Rnr, End::A, at(60), None);
        assert_eq!(episodes.cut(&waiting(50, 70), WAITS).time.of(Owner::Rnr), 10);
        episodes.end(Kind::Rnr, End::A, at(80), |_| {});
        assert_eq!(episodes.cut(&waiting(50, 90), WAITS).time.of(Owner::Rnr), 20);
    }

    #[test]
    fn what_held_up_a_request_is_not_taken_back() {
        let mut episodes = Episodes::default();
        episodes.begin(Kind::Recovery, End::A, at(10), None);
        episodes.cut(&waiting(5, 20), WAITS);
        episodes.retract(Kind::Recovery, End::A, at(30));
        let found: Vec<_> = episodes.iter().map(|e| (e.kind, e.end)).collect();
        assert_eq!(found, [(Kind::Gap, Some(at(30)))]);
        // nor is that of another kind or direction, nor one that is over
        episodes.begin(Kind::Rnr, End::A, at(40), None);
        episodes.retract(Kind::Recovery, End::A, at(50));
        episodes.retract(Kind::Rnr, End::B, at(50));
        assert_eq!(episodes.iter().count(), 2);
        episodes.retract(Kind::Rnr, End::A, at(50));
        assert_eq!(episodes.iter().count(), 1);
        episodes.begin(Kind::Rnr, End::A, at(60), None);
        episodes.end(Kind::Rnr, End::A, at(70), |_| {});
        episodes.retract(Kind::Rnr, End::A, at(80));
        assert_eq!(episodes.iter().count(), 2);
    }

    #[test]
    fn the_shortest_way_is_kept() {
        let mut episodes = Episodes::default();
        for (ns, shortest) in [(-1, None), (9, Some(9)), (10, Some(9)), (8, Some(8)), (0, Some(0)), (-1, Some(0))] {
            episodes.round_trip(End::B, ns);
            assert_eq!(episodes.shortest_round_trip(End::B), shortest);
        }
        assert_eq!(episodes.shortest_round_trip(End::A), None);
    }

    #[test]
    fn there_is_room_for_so_many() {
        let mut episodes = Episodes::default();
        (0..EPISODES_MAX as i64).for_each(|n| _ = episodes.add(recovery(n * 10, Some(n * 10 + 5))));
        assert_eq!((episodes.iter().count(), episodes.dropped()), (EPISODES_MAX, 0));
        episodes.begin(Kind::Recovery, End::A, at(90_000), None);
        assert_eq!(episodes.iter().count() as u64 + episodes.dropped(), EPISODES_MAX as u64 + 1);
        assert_eq!(episodes.dropped(), EPISODES_MAX as u64 / 2);
        assert!(episodes.iter().any(|e| e.begin.time == EPISODES_MAX as i64 / 2 * 10), "the newer half stays");
        let sums = episodes.sums(90_001);
        assert_eq!((sums[0].count, sums[0].lasted), (EPISODES_MAX as u64 + 1, EPISODES_MAX as i64 * 5 + 1));
    }

    #[test]
    fn sums_tell_of_the_first_and_the_last() {
        let mut episodes = Episodes::default();
        for begin in [20, 10, 30, 25] {
            episodes.add(Episode { packets: 2, repeated: 3, ..recovery(begin, Some(begin + 1)) });
        }
        episodes.add(Episode { by: Some(End::B), ..recovery(5, Some(6)) });
        let sums = episodes.sums(99);
        assert_eq!(
            (sums[0].first, sums[0].last, sums[0].packets, sums[0].repeated, sums[0].lasted),
            (at(10), at(30), 8, 12, 4)
        );
        assert_eq!((sums.len(), sums[1].by, sums[1].count), (2, Some(End::B), 1));
        // of several at the same time, the one that was noticed first
        let mut episodes = Episodes::default();
        for frame in [7, 8] {
            episodes.add(Episode { begin: At { frame, time: 10 }, ..recovery(10, Some(11)) });
        }
        let sums = episodes.sums(99);
        assert_eq!((sums[0].first.frame, sums[0].last.frame), (7, 7));
    }

    #[test]
    fn a_report_has_the_dearest_by_role() {
        let mut episodes = Episodes::default();
        let count = REPORTED_MAX as i64 + 1;
        for n in 0..count {
            episodes.add(Episode { cost: n % 7, ..recovery(10_000 - n * 10, Some(10_001 - n * 10)) });
        }
        let summary = episodes.summary(End::B, 99_999);
        assert_eq!((summary.list.len(), summary.omitted), (REPORTED_MAX, 1));
        assert!(summary.list.iter().all(|e| e.by == Some(End::B)) && summary.sums[0].by == Some(End::B));
        assert!(summary.list.is_sorted_by_key(|e| e.begin.time));
        assert_eq!(summary.list.iter().filter(|e| e.cost > 0).count(), episodes.iter().filter(|e| e.cost > 0).count());
        let same = episodes.summary(End::A, 99_999);
        assert!(same.list.iter().all(|e| e.by == Some(End::A)));
        let mut few = Episodes::default();
        (1..count).for_each(|n| _ = few.add(recovery(n, Some(n + 1))));
        let summary = few.summary(End::A, 99_999);
        assert_eq!((summary.list.len(), summary.omitted), (REPORTED_MAX, 0));
    }

    #[test]
    fn the_other_half_brings_its_episodes() {
        let half = || {
            let mut half = Episodes::default();
            half.add(recovery(10, Some(20)));
            half.round_trip(End::A, 7);
            half
        };
        for (swapped, end) in [(true, End::B), (false, End::A)] {
            let mut whole = Episodes::default();
            whole.adopt(&mut half(), swapped);
            assert_eq!(whole.iter().map(|e| e.by).collect::<Vec<_>>(), [Some(end)]);
            assert_eq!(whole.shortest_round_trip(end), Some(7));
        }
    }

    #[test]
    fn times_add_up() {
        let mut sum = Time::default();
        let mut part = Time::default();
        (part.0[Owner::Wire as usize], part.0[Owner::Rnr as usize]) = (3, 4);
        sum += &part;
        sum += &part;
        assert_eq!((sum.of(Owner::Wire), sum.of(Owner::Rnr), sum.sum(), sum.held_up()), (6, 8, 14, 8));
        assert_eq!(sum.largest(), Some((Owner::Rnr, 8)));
        assert_eq!(Time::default().largest(), None);
        // of two that are alike, the first
        sum.0[Owner::Wire as usize] = 8;
        assert_eq!(sum.largest(), Some((Owner::Wire, 8)));
    }
}
