//! State that all connections of an analysis share: options, findings, counters, and the listener.

use crate::breaks::{BREAKS_MAX, Break, Breaks, Freed, OVER, RELEASED_WITHIN, Waited, Waiter, is_same};
use crate::exchange::Exchange;
use crate::finding::{Blame, Certainty, Findings, Rule, Severity, Site};
use crate::keys::Keyring;
use crate::keys::session::ChannelKeys;
use crate::notes::{Broken, FrameNotes};
use crate::op::At;
use crate::sink::{Parts, Sink};
use alloc::boxed::Box;
use alloc::collections::{BTreeMap, BTreeSet, VecDeque};
use alloc::string::ToString;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::cmp::Reverse;
use core::fmt;
use rdmascope_dissector::frame::Addr;
use rdmascope_dissector::text::Elapsed;

/// Options of an analysis.
#[derive(Clone, Debug)]
pub struct Options {
    /// Verify the invariant CRC of every packet and the CRC of every FPDU.
    pub check_crc: bool,
    /// Put payloads together and hash them.
    pub payloads: bool,
    /// Connections followed at the same time at most.
    pub connections_max: usize,
    /// Connections that ended in the report at most.
    pub report_max: usize,
    /// True if those beyond that are added up, the oldest first, rather than left out: for an analysis that has no end.
    pub fold: bool,
    /// Unanswered requests remembered per connection at most.
    pub requests_max: usize,
    /// Bytes that all connections together may hold: packets held back, unfinished messages, open requests, remote
    /// keys.
    pub memory_max: usize,
    /// Exchanges in the list of the slowest.
    pub slowest_max: usize,
    /// Queue pairs that the user says belong together.
    pub pins: Vec<(u32, u32)>,
    /// Keys and passwords to decrypt and verify with; empty for none.
    pub keyring: Keyring,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            check_crc: true,
            payloads: false,
            connections_max: 4096,
            report_max: 10_000,
            fold: false,
            requests_max: 16_384,
            memory_max: 512 << 20,
            slowest_max: 10,
            pins: Vec::new(),
            keyring: Keyring::new(),
        }
    }
}

pub use crate::notes::Layer;

/// Shared by all connections of an analysis. Whoever makes it knows its listener; what follows connections does not.
#[derive(Clone, Debug)]
pub struct Env<S: ?Sized = dyn Sink> {
    /// Options of the analysis.
    pub options: Options,
    /// Broken rules.
    pub findings: Findings,
    /// Facts about the current frame.
    pub frame: FrameNotes,
    /// The number of the frame at hand.
    pub now: u64,
    /// The number that the next exchange gets.
    pub next_exchange: u64,
    /// Packets that the capture lost.
    pub lost_by_capture: u64,
    /// Those that it lost of connections that another analysis follows, as far as is known.
    pub lost_elsewhere: u64,
    /// Frames of followed connections that could not be decoded.
    pub undecoded: u64,
    /// Requests forgotten because there were too many.
    pub requests_dropped: u64,
    /// SMB sessions and the connections that carry them, in the order in which they were first seen.
    pub sessions: Vec<Session>,
    /// Keys that the channels of sessions share, if keys or passwords were given.
    pub channels: ChannelKeys,
    /// The slowest exchanges.
    pub slowest: Vec<Exchange>,
    /// Connections whose packets the capture has in another order than the ends: findings there may be false.
    pub weakened: BTreeSet<u32>,
    /// The last requests after which others may go on that wait, on any connection.
    releases: VecDeque<Release>,
    /// True if a request waited for something that its own connection does not show.
    waits: bool,
    /// Oplocks and leases that servers asked for, on any connection.
    breaks: Breaks,
    /// How they tie connections together.
    asked_back: AskedBack,
    /// Room for exchanges to come: that of some which are done.
    #[expect(clippy::vec_box, reason = "the exchange does not move between owners")]
    spare: Vec<Box<Exchange>>,
    /// The listener.
    pub sink: S,
}

/// Requests after which others may go on that are remembered.
const RELEASES_MAX: usize = 64;

/// A request after which others may go on that wait: an unlock, a CLOSE, the acknowledgment of an oplock or lease
/// break.
#[derive(Clone, Debug)]
pub(crate) struct Release {
    /// The number of the exchange.
    pub exchange: u64,
    /// Its connection.
    pub connection: u32,
    /// The server's address.
    pub server: Addr,
    /// Of which file.
    pub file: Option<Arc<str>>,
    /// What it gives back.
    pub freed: Freed,
    /// Time of the request.
    pub at: At,
}

/// Exchanges whose room is kept at most.
const SPARE_MAX: usize = 64;

/// Servers that asked for an oplock or a lease, and those of requests that may have waited for one of another connection,
/// each with the span of time, in ns, in which that matters.
#[derive(Clone, Debug, Default)]
struct AskedBack {
    servers: BTreeMap<Addr, (i64, i64)>,
    waiting: BTreeMap<Addr, (i64, i64)>,
    /// How often one was asked for.
    count: usize,
}

impl AskedBack {
    /// Takes in that of another part of the capture. Returns true if neither part has a request that may have waited for
    /// something of the other one.
    fn join(&mut self, part: Self) -> bool {
        let is_apart = are_apart(&self.servers, &part.waiting) && are_apart(&self.waiting, &part.servers);
        part.servers.into_iter().for_each(|(server, span)| widen(&mut self.servers, server, span));
        part.waiting.into_iter().for_each(|(server, span)| widen(&mut self.waiting, server, span));
        self.count += part.count;
        // of more, one part remembers others than both
        is_apart && (self.count <= BREAKS_MAX || self.waiting.is_empty())
    }
}

/// Adds a span of time to that of a server.
fn widen(spans: &mut BTreeMap<Addr, (i64, i64)>, server: Addr, (from, to): (i64, i64)) {
    let span = spans.entry(server).or_insert((from, to));
    *span = (span.0.min(from), span.1.max(to));
}

/// True if no server has spans in both that overlap.
fn are_apart(one: &BTreeMap<Addr, (i64, i64)>, other: &BTreeMap<Addr, (i64, i64)>) -> bool {
    let overlaps = |(from, to): (i64, i64), server| other.get(server).is_some_and(|(a, b)| from <= *b && *a <= to);
    !one.iter().any(|(server, span)| overlaps(*span, server))
}

/// Connections that are remembered as out of order, at most.
const WEAKENED_MAX: usize = 1 << 16;

impl<S: Sink> Env<S> {
    /// Before the first frame.
    pub fn new(options: Options, sink: S) -> Self {
        Self {
            options,
            findings: Findings::default(),
            frame: FrameNotes::default(),
            now: 0,
            next_exchange: 1,
            lost_by_capture: 0,
            lost_elsewhere: 0,
            undecoded: 0,
            requests_dropped: 0,
            sessions: Vec::new(),
            channels: ChannelKeys::default(),
            slowest: Vec::new(),
            weakened: BTreeSet::new(),
            releases: VecDeque::new(),
            waits: false,
            breaks: Breaks::default(),
            asked_back: AskedBack::default(),
            spare: Vec::new(),
            sink,
        }
    }

    /// Takes in the shared state of another part of the capture. Returns true if the two are the same as one analysis
    /// of the whole; they are not if a limit was reached. The numbers of connections are not changed.
    pub(crate) fn join(&mut self, part: Env<S>) -> bool
    where
        S: Parts,
    {
        let Env {
            options: _,
            findings,
            sink,
            frame: _,
            now,
            next_exchange: _,
            lost_by_capture,
            lost_elsewhere: _,
            undecoded,
            requests_dropped,
            sessions,
            channels: _,
            slowest,
            weakened,
            releases: _,
            waits,
            breaks: _,
            asked_back,
            spare: _,
        } = part;
        self.waits |= waits;
        let are_apart = self.asked_back.join(asked_back);
        self.weakened.extend(weakened);
        self.now = self.now.max(now);
        self.lost_by_capture += lost_by_capture;
        self.undecoded += undecoded;
        self.requests_dropped += requests_dropped;
        self.slowest.extend(slowest);
        self.slowest.sort_by_key(slowness);
        self.slowest.truncate(self.options.slowest_max);
        // the part that followed the second channel of a session did not have the keys of the first
        let has_keys = !self.options.keyring.is_empty();
        let is_split =
            has_keys && sessions.iter().any(|session| self.sessions.iter().any(|known| known.id == session.id));
        for session in sessions {
            match self.sessions.iter_mut().find(|s| s.id == session.id) {
                Some(known) => {
                    known.first = known.first.min(session.first);
                    known.connections.extend(session.connections);
                }
                None => self.sessions.push(session),
            }
        }
        self.sessions.sort_by_key(|s| s.first);
        let has_room = !is_split
            && self.weakened.len() < WEAKENED_MAX
            && self.sessions.len() <= SESSIONS_MAX
            && self.sessions.iter().all(|s| s.connections.len() <= CHANNELS_MAX);
        // a request may have waited for another one, on a connection that the other part has
        self.findings.join(findings) && self.sink.join(sink) && has_room && !self.waits && are_apart
    }
}

impl Env {
    /// True if the capture lost packets, of whatever connection.
    pub fn has_lost(&self) -> bool {
        self.lost_by_capture > 0 || self.lost_elsewhere > 0
    }

    /// The capture has packets of a connection in another order than the ends.
    #[cold]
    pub fn weaken(&mut self, connection: u32) {
        if self.weakened.len() < WEAKENED_MAX {
            self.weakened.insert(connection);
        }
    }

    /// A request after which others may go on that wait.
    pub(crate) fn release(&mut self, release: Release) {
        if self.releases.len() >= RELEASES_MAX {
            self.releases.pop_front();
        }
        self.releases.push_back(release);
    }

    /// The request of another connection after which one went on that its server had put off, and answered at `reply`. It
    /// may wait for a lock of a `range`.
    pub(crate) fn released(&mut self, waiter: &Waiter<'_>, range: Option<(u64, u64)>, reply: At) -> Option<u64> {
        self.waits = true;
        let is_its = |r: &&Release| {
            r.connection != waiter.connection
                && Some(r.server) == waiter.server
                && r.freed.lets(is_same(r.file.as_deref(), waiter.file), waiter.asked, range)
        };
        let is_prompt = |r: &&Release| r.at > waiter.asked && (0..=RELEASED_WITHIN).contains(&reply.since(r.at));
        self.releases.iter().rev().filter(is_its).find(is_prompt).map(|r| r.exchange)
    }

    /// A server asks for an oplock or a lease.
    pub(crate) fn ask_back(&mut self, new: Break) {
        self.asked_back.count += 1;
        if let Some(server) = new.server {
            widen(&mut self.asked_back.servers, server, (new.asked.time, new.asked.time.saturating_add(OVER)));
        }
        self.breaks.ask(new);
    }

    /// The breaks of all connections.
    pub(crate) fn breaks(&mut self) -> &mut Breaks {
        &mut self.breaks
    }

    /// True if a request may have waited for an oplock or a lease. If it took [`breaks::SHARED_LEAST`](crate::breaks::SHARED_LEAST), that may be one of another
    /// connection of its `server`.
    #[inline]
    pub(crate) fn may_have_waited(&mut self, asked: At, reply: At, server: Option<Addr>) -> bool {
        if let Some(server) = server {
            widen(&mut self.asked_back.waiting, server, (asked.time, reply.time));
        }
        self.breaks.may_hold_up(asked)
    }

    /// Time for which a request waited for what clients hold.
    #[cold]
    pub(crate) fn held_up(&mut self, waiter: &Waiter<'_>, reply: At) -> Waited {
        self.breaks.waited(waiter, reply)
    }

    /// The frame at hand was understood up to `layer`.
    #[inline]
    pub fn layer(&mut self, layer: Layer) {
        self.frame.understood(layer);
    }

    /// A rule was found broken.
    pub fn report(&mut self, rule: Rule, by: Blame, site: Site, certainty: Certainty, text: fmt::Arguments<'_>) {
        self.report_as(rule.row().severity, rule, by, site, certainty, text);
    }

    /// The same, with a severity of its own.
    pub fn report_as(
        &mut self,
        severity: Severity,
        rule: Rule,
        by: Blame,
        site: Site,
        certainty: Certainty,
        text: fmt::Arguments<'_>,
    ) {
        if self.frame.is_observed(site.frame) {
            self.frame.broken(Broken { rule, severity, by, certainty, text: text.to_string() });
        }
        self.report_later(severity, rule, by, site, certainty, text);
    }

    /// The times of the capture go back at a frame of a connection, by so many ns.
    #[cold]
    pub fn set_back(&mut self, connection: u32, at: At, back: i64) {
        let site = Site { connection: Some(connection), frame: at.frame, time_ns: at.time };
        let text = format_args!("the times go back by {}; times across this frame are wrong", Elapsed(back));
        self.report(Rule::CaptureClock, Blame::Capture, site, Certainty::Certain, text);
    }

    /// The same for a rule that was broken in an earlier frame and reported there.
    pub fn report_later(
        &mut self,
        severity: Severity,
        rule: Rule,
        by: Blame,
        site: Site,
        certainty: Certainty,
        text: fmt::Arguments<'_>,
    ) {
        if let Some(first) = self.findings.report_as(severity, rule, by, site, certainty, text) {
            self.sink.finding(first);
        }
    }

    /// The number for a new exchange.
    pub fn number_exchange(&mut self) -> u64 {
        let id = self.next_exchange;
        self.next_exchange += 1;
        id
    }

    /// Room for an exchange that begins.
    #[inline]
    pub(crate) fn keep_exchange(&mut self, exchange: Exchange) -> Box<Exchange> {
        match self.spare.pop() {
            Some(mut room) => {
                *room = exchange;
                room
            }
            None => Box::new(exchange),
        }
    }

    /// An exchange is complete and was reported.
    #[inline]
    pub(crate) fn forget_exchange(&mut self, exchange: Option<Box<Exchange>>) {
        if let Some(mut room) = exchange.filter(|_| self.spare.len() < SPARE_MAX) {
            room.file = None;
            self.spare.push(room);
        }
    }

    /// An SMB session was seen on a connection.
    pub fn session(&mut self, session: u64, connection: u32) {
        if let Some(Session { connections, .. }) = self.sessions.iter_mut().find(|s| s.id == session) {
            if !connections.contains(&connection) && connections.len() < CHANNELS_MAX {
                connections.push(connection);
            }
        } else if self.sessions.len() < SESSIONS_MAX {
            self.sessions.push(Session { id: session, first: self.now, connections: alloc::vec![connection] });
        }
    }

    /// An exchange is complete: kept if it is among the slowest.
    pub fn complete(&mut self, exchange: &Exchange) {
        self.sink.exchange(exchange);
        keep_if_slow(&mut self.slowest, exchange, self.options.slowest_max);
    }
}

/// Takes an exchange into a list of the `max` slowest, slowest first, if it is among them.
pub fn keep_if_slow(slowest: &mut Vec<Exchange>, exchange: &Exchange, max: usize) {
    if exchange.latency().is_none() {
        return;
    }
    let is_among = slowest.len() < max || slowest.last().is_some_and(|last| slowness(exchange) < slowness(last));
    if max == 0 || !is_among {
        return;
    }
    // a compound waits once, whatever it asks for
    let is_first = |e: &&mut Exchange| {
        (e.connection, e.request.frame, e.reply_end)
            == (exchange.connection, exchange.request.frame, exchange.reply_end)
    };
    if exchange.is_related
        && let Some(first) = slowest.iter_mut().find(is_first)
    {
        first.compounded = first.compounded.saturating_add(1);
        return;
    }
    let place = slowest.partition_point(|e| slowness(e) < slowness(exchange));
    slowest.insert(place, exchange.clone());
    slowest.truncate(max);
}

/// SMB sessions that are remembered at most.
const SESSIONS_MAX: usize = 1024;
/// Connections of one session that are remembered at most.
const CHANNELS_MAX: usize = 64;

/// An SMB session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Session {
    /// Its number on the wire.
    pub id: u64,
    /// The first frame of it.
    pub first: u64,
    /// The connections that carry it, by the numbers under which they are followed.
    pub connections: Vec<u32>,
}

/// Orders exchanges: the slowest first, of equals the one whose reply ended first.
fn slowness(exchange: &Exchange) -> (Reverse<Option<i64>>, Option<u64>, u64) {
    (Reverse(exchange.latency()), exchange.reply_end.map(|at| at.frame), exchange.id)
}
