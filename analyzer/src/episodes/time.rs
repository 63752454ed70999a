//! Owners of a request's time: one pure function divides the time from its first frame to the last frame of its reply
//! by what was seen of it and by the episodes that held it up. The parts are integers of ns and always add up to the
//! whole.
//!
//! ```text
//!   begin      sent        first RDMA   last RDMA      reply    seen        end
//!     │  wire    │   server    │  rdma      │  server    │ wire   │ recovery │     where nothing held it up
//!        client's     either         either      server's   server's           whose direction an episode must be of
//! ```
//! Waits between two RDMA operations are the server's as well.
//!
//! An episode of the server's direction held a request up if its next packet came out while the episode lasted, or
//! right behind it; one of the client's direction, if the request had gone out behind the lost packets, until the
//! server was seen to work on it. What the server reads from the client may be lost behind the capture point: then the
//! server goes on when TCP has repaired that.

use super::{Cause, Episode, Kind, not_before};
use crate::op::End;
use crate::stored::{stored, stored_enum};
use alloc::vec::Vec;

/// Owner of a part of a request's time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Owner {
    /// The client, between its own dependent parts.
    Client,
    /// Waiting for credits, or for the receive window.
    Credit,
    /// Waiting in the sender's queue, or between that and the capture point.
    SendQueue,
    /// On the wire, and the way there and back.
    Wire,
    /// Packets were retransmitted.
    Recovery,
    /// The receiver was not ready.
    Rnr,
    /// Pause frames stopped the sender.
    Pause,
    /// RDMA Reads and Writes moved data.
    Rdma,
    /// The server worked on it.
    Server,
    /// Unknown, because the capture lost packets.
    Unknown,
}

impl Owner {
    /// Number of owners.
    pub const COUNT: usize = 10;
    /// All of them, in the order of [`Time`].
    pub const ALL: [Self; Self::COUNT] = [
        Self::Client,
        Self::Credit,
        Self::SendQueue,
        Self::Wire,
        Self::Recovery,
        Self::Rnr,
        Self::Pause,
        Self::Rdma,
        Self::Server,
        Self::Unknown,
    ];

    /// True if it is a delay: not the client's, the server's, the wire's or RDMA's own time.
    pub const fn is_delay(self) -> bool {
        matches!(self, Self::Credit | Self::SendQueue | Self::Recovery | Self::Rnr | Self::Pause)
    }

    /// The word of the reports for programs.
    pub const fn key(self) -> &'static str {
        match self {
            Self::Client => "client",
            Self::Credit => "credit",
            Self::SendQueue => "send_queue",
            Self::Wire => "wire",
            Self::Recovery => "recovery",
            Self::Rnr => "rnr",
            Self::Pause => "pause",
            Self::Rdma => "rdma",
            Self::Server => "server",
            Self::Unknown => "unknown",
        }
    }

    /// The word for people.
    pub const fn name(self) -> &'static str {
        match self {
            Self::SendQueue => "send queue",
            Self::Rnr => "RNR",
            Self::Rdma => "RDMA",
            other => other.key(),
        }
    }
}

/// Time by owner, in ns, in the order of [`Owner::ALL`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Time(pub [i64; Owner::COUNT]);

impl Time {
    /// Time of one owner, in ns.
    pub const fn of(&self, owner: Owner) -> i64 {
        self.0[owner as usize]
    }

    /// Sum over all owners, in ns.
    pub fn sum(&self) -> i64 {
        self.0.iter().fold(0, |sum, part| sum.saturating_add(*part))
    }

    /// Owner and time, if there is any.
    pub fn parts(&self) -> impl Iterator<Item = (Owner, i64)> + '_ {
        Owner::ALL.into_iter().zip(self.0).filter(|(_, time)| *time != 0)
    }

    /// Delays, in ns: time of all owners but client, server, wire and RDMA.
    pub fn held_up(&self) -> i64 {
        let delays = Owner::ALL.iter().filter(|owner| owner.is_delay());
        delays.fold(0i64, |sum, owner| sum.saturating_add(self.of(*owner)))
    }

    /// The same, where so much of one owner's time is another's, in ns.
    #[must_use]
    pub fn moved(mut self, from: Owner, to: Owner, time: i64) -> Self {
        let time = time.clamp(0, self.of(from).max(0));
        self.0[from as usize] -= time;
        self.add(to, time);
        self
    }

    /// The same of a request that the server sent: client and server change places.
    #[must_use]
    pub const fn turned(mut self) -> Self {
        self.0.swap(Owner::Client as usize, Owner::Server as usize);
        self
    }

    /// The owner of most of it, with its part in ns.
    pub fn largest(&self) -> Option<(Owner, i64)> {
        self.parts().reduce(|most, part| if part.1 > most.1 { part } else { most })
    }

    fn add(&mut self, owner: Owner, time: i64) {
        let part = &mut self.0[owner as usize];
        *part = part.saturating_add(time);
    }
}

/// An episode that a request waited for, or another request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Behind {
    /// An episode of its connection, by number.
    Episode(u32),
    /// Another request, by number.
    Exchange(u64),
}

/// One request, as cutting sees it. Times in ns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request {
    /// The requester.
    pub client: End,
    /// First frame of the request.
    pub begin: i64,
    /// Time of the last frame of the request, in ns.
    pub sent: i64,
    /// First and last packet of the RDMA that it caused.
    pub rdma: Option<(i64, i64)>,
    /// Time between these in which no operation was under way: the server waited before its next one.
    pub idle: i64,
    /// First frame of the reply.
    pub reply: i64,
    /// Its last frame, the first time.
    pub seen: i64,
    /// The last frame of the copy that the client took.
    pub end: i64,
    /// Sequence numbers of the last packets of request and reply, if known.
    pub sequence: [Option<u32>; 2],
    /// The shortest way from the capture point to the server and back.
    pub way: i64,
    /// True if the server read the client's memory for it.
    pub is_read: bool,
}

/// Part of a request's time that one episode has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Share {
    /// Number of the episode.
    pub episode: u32,
    /// Time in the episode, in ns.
    pub time: i64,
}

/// Result of dividing a request's time.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Cut {
    /// The time by owner: adds up to `end - begin`, or to 0 if that is negative.
    pub time: Time,
    /// Parts of it that episodes have.
    shares: Vec<Share>,
}

impl Cut {
    /// Parts of it that episodes have.
    pub fn shares(&self) -> &[Share] {
        &self.shares
    }

    /// The episode that has most of it.
    pub fn behind(&self) -> Option<Behind> {
        self.shares.iter().max_by_key(|share| share.time).map(|share| Behind::Episode(share.episode))
    }
}

/// ns behind the end of an episode within which held up packets come out.
const RELEASE: i64 = 500_000;
/// The same as a part of the time since it began.
const RELEASE_SHARE: i64 = 32;
/// The phases of the server, each behind something that the client sent.
const TURNS: [usize; 2] = [1, 3];
/// Episodes that one request is cut along at most.
const OVERLAPS_MAX: usize = 64;
/// Points in time of a request itself.
const POINTS: usize = 7;

/// An episode as far as it concerns a request.
#[derive(Clone, Copy, Debug)]
struct Overlap {
    from: i64,
    to: i64,
    rank: u8,
    owner: Owner,
    episode: u32,
    /// It lasts until the server could be heard, and so has the way to it and back.
    has_way: bool,
}

/// Cuts the time of a request.
pub fn cut(request: &Request, episodes: &[Episode]) -> Cut {
    // a capture's clock may go back: the points are put in order
    let begin = request.begin;
    let end = request.end.clamp(begin, begin.saturating_add(i64::MAX));
    let sent = request.sent.clamp(begin, end);
    let reply = request.reply.clamp(sent, end);
    let seen = request.seen.clamp(reply, end);
    let rdma = request
        .rdma
        .map(|(first, last)| (first.clamp(sent, reply), last.clamp(sent, reply)))
        .filter(|(first, last)| first <= last);
    let (first, last) = rdma.unwrap_or((reply, reply));
    let phases = [
        (begin, sent, Owner::Wire),
        (sent, first, Owner::Server),
        (first, last, Owner::Rdma),
        (last, reply, Owner::Server),
        (reply, seen, Owner::Wire),
        (seen, end, Owner::Recovery),
    ];
    let mut cut = Cut::default();
    // those that were over before it, or began after it, are none of its
    let of_its_time = |episode: &Episode| episode.begin.time < end && begin < episode.until();
    let first_near = episodes.iter().position(of_its_time);
    let near = first_near.map_or(&[][..], |first| &episodes[first..]);
    if near.is_empty() {
        return alone(request, cut, phases);
    }
    let near = &near[..near.iter().rposition(of_its_time).map_or(0, |last| last + 1)];
    let mut overlaps: Vec<Overlap> = Vec::new();
    for (number, (from, to, _)) in phases.into_iter().enumerate().filter(|(_, (from, to, _))| from < to) {
        for episode in near.iter().rev() {
            let (begins, ends) = (episode.begin.time.max(from), episode.until().min(to));
            if begins < ends && overlaps.len() < OVERLAPS_MAX && concerns(request, episode, number, from, to) {
                let (rank, owner) = (episode.rank(), episode.owner(request.client));
                let has_way = episode.kind == Kind::Recovery
                    && episode.trigger.is_of_tcp()
                    && episode.by == Some(request.client)
                    && TURNS.contains(&number);
                overlaps.push(Overlap { from: begins, to: ends, rank, owner, episode: episode.id, has_way });
            }
        }
    }
    if overlaps.is_empty() {
        return alone(request, cut, phases);
    }
    let mut points = [0; 2 * OVERLAPS_MAX + POINTS];
    let of_request: [i64; POINTS] = [begin, sent, first, last, reply, seen, end];
    let known = overlaps.iter().flat_map(|o| [o.from, o.to]).chain(of_request);
    // the server's time behind what the client sent: the request, and what the server read
    let mut turns = [0i64; 2];
    let count = points.iter_mut().zip(known).map(|(point, known)| *point = known).count();
    let points = &mut points[..count];
    points.sort_unstable();
    for pair in points.windows(2) {
        let (from, to) = (pair[0], pair[1]);
        if from == to {
            continue;
        }
        let time = to.saturating_sub(from);
        let phase = phases.iter().position(|(b, e, _)| *b <= from && to <= *e);
        let base = phase.map_or(Owner::Unknown, |phase| phases[phase].2);
        let turn = TURNS.iter().position(|turn| Some(*turn) == phase);
        let over = overlaps.iter().filter(|o| o.from <= from && to <= o.to).min_by_key(|o| (o.rank, o.episode));
        let Some(over) = over else {
            cut.time.add(base, time);
            if let Some(turn) = turn {
                turns[turn] = turns[turn].saturating_add(time);
            }
            continue;
        };
        cut.time.add(over.owner, time);
        if over.owner == Owner::Server {
            // its own time held nothing up
            continue;
        }
        match cut.shares.iter_mut().find(|share| share.episode == over.episode) {
            Some(share) => share.time = share.time.saturating_add(time),
            None => cut.shares.push(Share { episode: over.episode, time }),
        }
    }
    for (turn, phase) in turns.iter_mut().zip(TURNS) {
        // it is part of the episode already
        let (from, to, _) = phases[phase];
        if overlaps.iter().any(|o| o.has_way && from <= o.from && o.to <= to) {
            *turn = 0;
        }
    }
    way(request, cut, turns)
}

/// No episode held it up: each part of its time goes to the owner of its phase.
fn alone(request: &Request, mut cut: Cut, phases: [(i64, i64, Owner); 6]) -> Cut {
    let [sending, server, rdma, then, replying, again] = phases.map(|(from, to, _)| to.saturating_sub(from));
    let of = &mut cut.time.0;
    of[Owner::Wire as usize] = sending.saturating_add(replying);
    of[Owner::Server as usize] = server.saturating_add(then);
    of[Owner::Rdma as usize] = rdma;
    of[Owner::Recovery as usize] = again;
    way(request, cut, [server, then])
}

/// The way to the server and back is the wire's, once for each time that the client sends and the server goes on: after
/// the request, and after what it reads.
fn way(request: &Request, mut cut: Cut, turns: [i64; 2]) -> Cut {
    cut.time = cut.time.moved(Owner::Rdma, Owner::Server, request.idle);
    let count = if request.is_read { 2 } else { 1 };
    for turn in turns.into_iter().take(count) {
        let way = request.way.clamp(0, turn.max(0));
        cut.time.add(Owner::Server, -way);
        cut.time.add(Owner::Wire, way);
    }
    cut
}

/// True if an episode that overlaps a phase of a request held it up in that phase.
fn concerns(request: &Request, episode: &Episode, phase: usize, from: i64, to: i64) -> bool {
    /// The phases by number.
    const SENDING: usize = 0;
    const RDMA: usize = 2;
    const READ: usize = 3;
    const REPLYING: usize = 4;
    let of_client = episode.by.is_none_or(|by| by == request.client);
    let of_server = episode.by.is_none_or(|by| by == request.client.peer());
    if episode.cause == Cause::Needless && episode.kind == Kind::Recovery {
        // needless retransmissions held no request up
        return false;
    }
    if matches!(episode.cause, Cause::Smb2Credits | Cause::RpcRdmaCredits) {
        // these are for requests that are not sent yet
        return false;
    }
    if episode.kind == Kind::Gap {
        return of_server && phase > SENDING && phase < REPLYING;
    }
    if matches!(episode.kind, Kind::Idle | Kind::Congestion) && episode.cause != Cause::SentLate {
        return match (phase, episode.cause) {
            (RDMA, Cause::ReadResponse) => of_client && request.is_read,
            (_, Cause::ReadResponse) => false,
            (SENDING, _) => of_client,
            (REPLYING.., _) => of_server,
            _ => false,
        };
    }
    match phase {
        // a request that is late as a whole began late
        SENDING => of_client && episode.kind != Kind::HeldUp,
        RDMA => !matches!(episode.kind, Kind::Credit | Kind::Interrupted) && (of_server || of_client),
        REPLYING.. => of_server,
        _ => {
            // the request is on its way: it waits for no credit any more
            let is_behind = episode.kind != Kind::Credit
                && match (episode.sequence, request.sequence[0]) {
                    (Some(lost), Some(mine)) => not_before(mine, lost),
                    _ => episode.begin.time <= from,
                };
            // it comes out with the packets that were held up, once the server has heard that it may go on
            let share = (to.saturating_sub(episode.begin.time) / RELEASE_SHARE).max(0);
            let release = RELEASE.saturating_add(share).saturating_add(request.way.max(0));
            let comes_out = to <= episode.until().saturating_add(release);
            // TCP hands the data that the server reads over in order
            let is_data_late = phase == READ
                && request.is_read
                && episode.kind == Kind::Recovery
                && episode.trigger.is_of_tcp()
                && episode.begin.time <= from;
            (of_client && (phase < RDMA && is_behind || is_data_late)) || (of_server && comes_out)
        }
    }
}

stored!(Time { 0 });
stored_enum!(Owner { Client, Credit, SendQueue, Wire, Recovery, Rnr, Pause, Rdma, Server, Unknown });
stored_enum!(Behind { Episode(a), Exchange(a) });

#[cfg(test)]
mod tests {
    use super::*;
    use crate::episodes::Trigger;
    use crate::op::At;
    use proptest::prelude::*;

    const MS: i64 = 1_000_000;

    fn at(time: i64) -> At {
        At { frame: 1, time }
    }

    fn episode(id: u32, kind: Kind, by: End, begin: i64, end: i64) -> Episode {
        Episode { id, kind, by: Some(by), begin: at(begin), end: Some(at(end)), ..Episode::default() }
    }

    /// Sent at 0, answered at 100 ms.
    fn request() -> Request {
        let (sent, reply, end) = (MS, 100 * MS, 101 * MS);
        Request {
            client: End::A,
            begin: 0,
            sent,
            rdma: None,
            idle: 0,
            reply,
            seen: end,
            end,
            sequence: [None; 2],
            way: 0,
            is_read: false,
        }
    }

    fn parts(cut: &Cut) -> Vec<(Owner, i64)> {
        cut.time.parts().map(|(owner, time)| (owner, time / MS)).collect()
    }

    #[test]
    fn without_episodes_it_is_the_servers_the_wires_and_rdmas() {
        assert_eq!(parts(&cut(&request(), &[])), [(Owner::Wire, 2), (Owner::Server, 99)]);
        let moving = Request { rdma: Some((20 * MS, 70 * MS)), way: 9 * MS, ..request() };
        assert_eq!(parts(&cut(&moving, &[])), [(Owner::Wire, 11), (Owner::Rdma, 50), (Owner::Server, 40)]);
    }

    /// The server fetched at once, worked, and wrote.
    #[test]
    fn waits_between_rdma_operations_are_the_servers() {
        let waiting = Request { rdma: Some((10 * MS, 90 * MS)), idle: 70 * MS, ..request() };
        assert_eq!(parts(&cut(&waiting, &[])), [(Owner::Wire, 2), (Owner::Rdma, 10), (Owner::Server, 89)]);
    }

    #[test]
    fn a_reply_that_comes_with_a_recovery_waited_for_it() {
        let lost = episode(7, Kind::Recovery, End::B, 40 * MS, 100 * MS);
        let cut = cut(&request(), &[lost]);
        assert_eq!(parts(&cut), [(Owner::Wire, 2), (Owner::Recovery, 60), (Owner::Server, 39)]);
        assert_eq!(cut.behind(), Some(Behind::Episode(7)));
    }

    #[test]
    fn a_recovery_of_other_replies_while_the_server_works_held_nothing_up() {
        let others = episode(7, Kind::Recovery, End::B, 10 * MS, 40 * MS);
        assert_eq!(parts(&cut(&request(), &[others])), [(Owner::Wire, 2), (Owner::Server, 99)]);
    }

    #[test]
    fn a_request_behind_what_was_lost_waits_for_it_and_one_before_it_does_not() {
        let lost = Episode { sequence: Some(500), ..episode(1, Kind::Recovery, End::A, MS / 2, 60 * MS) };
        let behind = Request { sequence: [Some(501), None], ..request() };
        assert_eq!(parts(&cut(&behind, &[lost])), [(Owner::Wire, 1), (Owner::Recovery, 59), (Owner::Server, 40)]);
        let before = Request { begin: 0, sent: 0, sequence: [Some(499), None], ..request() };
        assert_eq!(cut(&before, &[lost]).time.of(Owner::Recovery), 0);
        // what is RDMA at one moment shows that the request had arrived
        let moved = |at: i64| cut(&Request { rdma: Some((at, at)), ..behind }, &[lost]).time.of(Owner::Recovery);
        assert_eq!([moved(20 * MS), moved(MS)], [39 * MS / 2, MS / 2]);
    }

    #[test]
    fn a_client_that_is_late_with_what_the_server_reads_has_that_time_and_with_nothing_else() {
        let late = Episode { cause: Cause::ReadResponse, ..episode(3, Kind::Idle, End::A, 30 * MS, 50 * MS) };
        let reading = Request { rdma: Some((20 * MS, 70 * MS)), is_read: true, ..request() };
        let found = cut(&reading, &[late]);
        assert_eq!(parts(&found), [(Owner::Client, 20), (Owner::Wire, 2), (Owner::Rdma, 30), (Owner::Server, 49)]);
        assert_eq!(found.behind(), Some(Behind::Episode(3)));
        let writing = Request { is_read: false, ..reading };
        assert_eq!(cut(&writing, &[late]).time.of(Owner::Client), 0);
        assert_eq!(cut(&request(), &[late]).time.of(Owner::Client), 0);
    }

    #[test]
    fn who_stops_within_a_message_has_the_time() {
        let sending = Request { sent: 40 * MS, ..request() };
        let late = episode(3, Kind::Idle, End::A, 10 * MS, 39 * MS);
        assert_eq!(parts(&cut(&sending, &[late])), [(Owner::Client, 29), (Owner::Wire, 12), (Owner::Server, 60)]);
        let replying = Request { reply: 60 * MS, ..request() };
        let late = episode(3, Kind::Idle, End::B, 70 * MS, 100 * MS);
        let found = cut(&replying, &[late]);
        assert_eq!(parts(&found), [(Owner::Wire, 12), (Owner::Server, 89)]);
        assert_eq!(found.behind(), None);
    }

    #[test]
    fn what_was_repeated_without_need_costs_nothing() {
        let needless = Episode { cause: Cause::Needless, ..episode(1, Kind::Recovery, End::B, 40 * MS, 100 * MS) };
        assert_eq!(cut(&request(), &[needless]).time.of(Owner::Recovery), 0);
    }

    #[test]
    fn what_the_capture_lost_is_nobodys() {
        let gap = episode(1, Kind::Gap, End::B, 30 * MS, 50 * MS);
        assert_eq!(parts(&cut(&request(), &[gap])), [(Owner::Wire, 2), (Owner::Server, 79), (Owner::Unknown, 20)]);
    }

    #[test]
    fn the_time_until_the_copy_that_was_taken_is_recoverys() {
        let late = Request { end: 301 * MS, ..request() };
        assert_eq!(cut(&late, &[]).time.of(Owner::Recovery), 200 * MS);
    }

    /// The phases in which an episode of all the time of a request held it up.
    fn held(request: &Request, kind: Kind, cause: Cause, by: Option<End>) -> Vec<usize> {
        let all = Episode { kind, cause, by, begin: at(0), end: Some(at(101 * MS)), ..Episode::default() };
        (0..6).filter(|phase| concerns(request, &all, *phase, 50 * MS, 60 * MS)).collect()
    }

    #[test]
    fn which_episodes_hold_up_which_phase() {
        const CLIENT: Option<End> = Some(End::A);
        const SERVER: Option<End> = Some(End::B);
        let writes = request();
        let reads = Request { is_read: true, ..request() };
        let rows: [(Kind, Cause, [&[usize]; 3]); 15] = [
            // of the client's direction, of the server's, of both
            (Kind::Recovery, Cause::LostBefore, [&[0, 1, 2], &[1, 2, 3, 4, 5], &[0, 1, 2, 3, 4, 5]]),
            (Kind::Recovery, Cause::Needless, [&[], &[], &[]]),
            (Kind::Rnr, Cause::Needless, [&[0, 1, 2], &[1, 2, 3, 4, 5], &[0, 1, 2, 3, 4, 5]]),
            (Kind::Credit, Cause::SmbDirectCredits, [&[0], &[1, 3, 4, 5], &[0, 1, 3, 4, 5]]),
            (Kind::Credit, Cause::Smb2Credits, [&[], &[], &[]]),
            (Kind::Credit, Cause::RpcRdmaCredits, [&[], &[], &[]]),
            (Kind::Interrupted, Cause::Unknown, [&[0, 1], &[1, 3, 4, 5], &[0, 1, 3, 4, 5]]),
            (Kind::HeldUp, Cause::Unknown, [&[1, 2], &[1, 2, 3, 4, 5], &[1, 2, 3, 4, 5]]),
            (Kind::Pause, Cause::Unknown, [&[0, 1, 2], &[1, 2, 3, 4, 5], &[0, 1, 2, 3, 4, 5]]),
            (Kind::Gap, Cause::Unknown, [&[], &[1, 2, 3], &[1, 2, 3]]),
            (Kind::Idle, Cause::Unknown, [&[0], &[4, 5], &[0, 4, 5]]),
            (Kind::Idle, Cause::SentLate, [&[0, 1, 2], &[1, 2, 3, 4, 5], &[0, 1, 2, 3, 4, 5]]),
            (Kind::Silence, Cause::Unknown, [&[0, 1, 2], &[1, 2, 3, 4, 5], &[0, 1, 2, 3, 4, 5]]),
            (Kind::Nagle, Cause::Unknown, [&[0, 1, 2], &[1, 2, 3, 4, 5], &[0, 1, 2, 3, 4, 5]]),
            (Kind::ZeroWindow, Cause::Unknown, [&[0, 1, 2], &[1, 2, 3, 4, 5], &[0, 1, 2, 3, 4, 5]]),
        ];
        for (kind, cause, phases) in rows {
            for (by, phases) in [CLIENT, SERVER, None].into_iter().zip(phases) {
                assert_eq!(held(&writes, kind, cause, by), phases, "{kind:?} {cause:?} {by:?}");
                assert_eq!(held(&reads, kind, cause, by), phases, "{kind:?} {cause:?} {by:?}, of a read");
            }
        }
        // a late answer to the server's Reads is the client's, while data moves, if the server reads for it
        for (request, phases) in [(&reads, &[2][..]), (&writes, &[][..])] {
            assert_eq!(held(request, Kind::Idle, Cause::ReadResponse, CLIENT), phases);
            assert!(held(request, Kind::Idle, Cause::ReadResponse, SERVER).is_empty());
        }
    }

    #[test]
    fn data_that_the_server_reads_and_tcp_repairs_makes_it_wait() {
        // the last data was seen at 20 ms, and lost behind that
        let lost = |trigger: Trigger, begin: i64| Episode {
            trigger,
            cause: Cause::Unacknowledged,
            ..episode(4, Kind::Recovery, End::A, begin * MS, 90 * MS)
        };
        let reading = Request { rdma: Some((10 * MS, 20 * MS)), is_read: true, ..request() };
        let found = cut(&reading, &[lost(Trigger::Rto, 20)]);
        assert_eq!(parts(&found), [(Owner::Wire, 2), (Owner::Recovery, 70), (Owner::Rdma, 10), (Owner::Server, 19)]);
        assert_eq!(found.behind(), Some(Behind::Episode(4)));
        let recovery =
            |request: &Request, trigger, begin| cut(request, &[lost(trigger, begin)]).time.of(Owner::Recovery) / MS;
        assert_eq!(recovery(&reading, Trigger::FastRetransmit, 15), 75, "with some in between");
        // what the client sent later holds nothing of this request up, and nor does data that the server does not read
        assert_eq!(recovery(&reading, Trigger::Rto, 21), 0);
        assert_eq!(recovery(&Request { is_read: false, ..reading }, Trigger::Rto, 20), 0);
        // requests of InfiniBand are numbered apart from what the server reads
        assert_eq!(recovery(&reading, Trigger::Timeout, 20), 0);
    }

    #[test]
    fn what_comes_out_right_behind_an_episode_waited_for_it() {
        let server = |begin, end, to| concerns(&request(), &episode(1, Kind::Recovery, End::B, begin, end), 1, MS, to);
        // half a millisecond, and a part of the time since it began
        let end = 40 * MS;
        let latest =
            |begin: i64| (end..).step_by(1000).take_while(|to| server(begin, end, *to)).last().map(|to| to - end);
        assert_eq!(latest(end), Some((RELEASE * 32 / 31) / 1000 * 1000));
        assert!(server(8 * MS, end, end + RELEASE + MS) && !server(8 * MS, end, end + RELEASE + 2 * MS));
        let exactly = |to: i64| end + RELEASE + (to - 8 * MS) / RELEASE_SHARE == to;
        let to = (end..).find(|to| exactly(*to)).unwrap_or(0);
        assert!(server(8 * MS, end, to) && !server(8 * MS, end, to + 2));
        // a server that is far away hears later that it may go on
        let lost = episode(1, Kind::Recovery, End::B, end, end);
        let far = |way: i64| concerns(&Request { way, ..request() }, &lost, 1, MS, end + RELEASE + 2 * MS);
        assert!(far(2 * MS) && !far(MS) && !far(-MS));
        // of the client's direction: what began before the server could work on it
        let client =
            |begin, from| concerns(&request(), &episode(1, Kind::Recovery, End::A, begin, end), 1, from, 90 * MS);
        assert!(client(MS, MS) && !client(MS + 1, MS));
        let lost = Episode { sequence: Some(500), ..episode(1, Kind::Recovery, End::A, 5 * MS, end) };
        let mine = |mine| concerns(&Request { sequence: [Some(mine), None], ..request() }, &lost, 1, MS, 90 * MS);
        assert!(mine(500) && mine(501) && !mine(499));
    }

    #[test]
    fn an_episode_at_the_edge_of_a_request_is_none_of_its() {
        let recovery =
            |begin, end| cut(&request(), &[episode(1, Kind::Recovery, End::A, begin, end)]).time.of(Owner::Recovery);
        assert_eq!(recovery(-5, 0), 0);
        assert_eq!(recovery(-5, 1), 1);
        assert_eq!(recovery(MS - 1, 2 * MS), 1 + MS);
        let late =
            |begin, end| cut(&request(), &[episode(1, Kind::Recovery, End::B, begin, end)]).time.of(Owner::Recovery);
        assert_eq!(late(101 * MS - 1, 200 * MS), 1);
        assert_eq!(late(101 * MS, 200 * MS), 0);
        // those before and behind the ones that count
        let all = [
            episode(1, Kind::Recovery, End::B, -9, -5),
            episode(2, Kind::Recovery, End::B, 100 * MS, 101 * MS),
            episode(3, Kind::Recovery, End::B, 200 * MS, 201 * MS),
        ];
        let found = cut(&request(), &all);
        assert_eq!((found.time.of(Owner::Recovery), found.behind()), (MS, Some(Behind::Episode(2))));
        // nothing took no time
        let none = Request { sent: 0, reply: 0, seen: 0, end: 0, ..request() };
        assert_eq!(cut(&none, &all).time.sum(), 0);
    }

    #[test]
    fn of_several_episodes_the_lowest_rank_counts() {
        let all = [
            episode(1, Kind::Pause, End::B, 100 * MS, 101 * MS),
            episode(2, Kind::Rnr, End::B, 100 * MS, 101 * MS),
            episode(3, Kind::Rnr, End::B, 100 * MS, 101 * MS),
        ];
        let found = cut(&request(), &all);
        assert_eq!((found.time.of(Owner::Rnr), found.shares()), (MS, &[Share { episode: 2, time: MS }][..]));
        // the share of one that others interrupt is added up
        let inside = [episode(1, Kind::Recovery, End::A, 0, MS), episode(2, Kind::Silence, End::A, MS / 4, MS / 2)];
        let mut shares: Vec<_> = cut(&request(), &inside).shares().iter().map(|s| (s.episode, s.time)).collect();
        shares.sort_unstable();
        assert_eq!(shares, [(1, MS * 3 / 4), (2, MS / 4)]);
    }

    #[test]
    fn more_episodes_than_are_looked_at() {
        let each = MS / 200;
        let many = |count: i64| {
            let list: Vec<Episode> = (0..count)
                .map(|n| episode(n as u32 + 1, Kind::Recovery, End::A, n * 2 * each, (n * 2 + 1) * each))
                .collect();
            cut(&request(), &list).time.of(Owner::Recovery) / each
        };
        assert_eq!(many(OVERLAPS_MAX as i64), OVERLAPS_MAX as i64);
        assert_eq!(many(OVERLAPS_MAX as i64 + 1), OVERLAPS_MAX as i64);
        // one that begins where a part of the request ends takes no place in it
        let mut list: Vec<Episode> = (0..OVERLAPS_MAX as i64)
            .map(|n| episode(n as u32 + 1, Kind::Recovery, End::A, n * 2 * each, (n * 2 + 1) * each))
            .collect();
        list.push(episode(99, Kind::Recovery, End::A, MS, 2 * MS));
        assert_eq!(cut(&request(), &list).time.of(Owner::Recovery) / each, OVERLAPS_MAX as i64);
    }

    #[test]
    fn the_way_is_the_wires_each_time_that_the_server_goes_on() {
        let reading = Request { rdma: Some((20 * MS, 70 * MS)), is_read: true, way: 9 * MS, ..request() };
        assert_eq!(parts(&cut(&reading, &[])), [(Owner::Wire, 20), (Owner::Rdma, 50), (Owner::Server, 31)]);
        // each is no longer than the time that it is part of
        let soon = Request { rdma: Some((20 * MS, 98 * MS)), ..reading };
        assert_eq!(parts(&cut(&soon, &[])), [(Owner::Wire, 13), (Owner::Rdma, 78), (Owner::Server, 10)]);
        // with an episode, too: one that repairs what the client sent has the way itself
        let gap = episode(1, Kind::Gap, End::B, 80 * MS, 85 * MS);
        assert_eq!(cut(&reading, &[gap]).time.of(Owner::Wire), 20 * MS);
        let repaired = Episode { trigger: Trigger::Rto, ..episode(1, Kind::Recovery, End::A, 70 * MS, 85 * MS) };
        let found = cut(&reading, &[repaired]);
        let expected = [(Owner::Wire, 11), (Owner::Recovery, 15), (Owner::Rdma, 50), (Owner::Server, 25)];
        assert_eq!(parts(&found), expected);
    }

    #[test]
    fn the_way_is_no_longer_than_the_servers_time() {
        let with = |way| parts(&cut(&Request { way, ..request() }, &[]));
        assert_eq!(with(500 * MS), [(Owner::Wire, 101)]);
        assert_eq!(with(-5), [(Owner::Wire, 2), (Owner::Server, 99)]);
    }

    fn any_episode() -> impl Strategy<Value = Episode> {
        let (kinds, causes) = (0..Kind::ALL.len(), [Cause::Unknown, Cause::LostBefore, Cause::Needless]);
        (
            kinds,
            0..3usize,
            0..3u8,
            any::<i64>(),
            -50..2000i64,
            proptest::option::of(0..2000i64),
            proptest::option::of(0..900u32),
        )
            .prop_map(move |(kind, cause, by, wild, begin, lasts, sequence)| {
                let begin = if wild % 97 == 0 { wild } else { begin };
                let by = [Some(End::A), Some(End::B), None][usize::from(by)];
                let end = lasts.map(|lasts| at(begin.saturating_add(lasts)));
                Episode {
                    kind: Kind::ALL[kind],
                    cause: causes[cause],
                    by,
                    begin: at(begin),
                    end,
                    sequence,
                    ..Episode::default()
                }
            })
    }

    proptest! {
        #[test]
        fn the_parts_add_up_to_the_whole(
            points in proptest::array::uniform7(prop_oneof![9 => 0..1500i64, 1 => any::<i64>()]),
            moved in any::<bool>(), way in prop_oneof![0..400i64, any::<i64>()], mine in proptest::option::of(0..900u32),
            mut episodes in proptest::collection::vec(any_episode(), 0..90),
        ) {
            (1..).zip(&mut episodes).for_each(|(id, e)| e.id = id);
            let [begin, sent, first, last, reply, seen, end] = points;
            let rdma = moved.then_some((first, last));
            let request = Request { client: End::A, begin, sent, rdma, idle: way, reply, seen, end, sequence: [mine; 2], way, is_read: moved };
            let cut = cut(&request, &episodes);
            prop_assert_eq!(cut.time.sum(), end.max(begin).saturating_sub(begin));
            prop_assert!(cut.time.0.iter().all(|part| *part >= 0), "{:?}", cut);
            let held: i64 = cut.shares().iter().map(|share| share.time).sum();
            prop_assert!(held <= cut.time.sum());
        }
    }
}
