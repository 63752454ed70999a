//! The path to RDMA: the steps that a client and a server took on the way to moving their data by RDMA, and the
//! obstacle that stopped them.
//!
//! ```text
//!   SMB   dialect ▸ multichannel, both sides ▸ interfaces asked ▸ answered ▸ one has RDMA ▸ at an address in reach
//!         ▸ RDMA tried ▸ accepted ▸ SMB Direct negotiated ▸ session set up or bound ▸ READ and WRITE use RDMA ▸ it stayed so
//!   NFS   rpcbind asked ▸ NFS listed for RDMA ▸ RDMA tried ▸ accepted ▸ sizes in private data ▸ RPC-over-RDMA answered ▸ data moved by
//! RDMA ▸ it stayed so
//! ```
//!
//! Each is a [`Rung`] of a ladder: yes, no, not seen, or not needed. The first *no* stopped them; a step that was not
//! seen says nothing. [`paths`] is a function of a [`Report`] and of the RDMA connections that were asked for;
//! `conclude` reports its results. \[MS-SMB2\] 3.2.4.1.7, 3.2.5.2, 3.2.5.5; \[MS-SMBD\] 3.1.4.1; RFC 8267 4.2, 6.3.

use crate::finding::{Blame, Certainty, Finding, Rule, Severity, Site};
use crate::op::At;
use crate::outcome::{Ending, Outcome, Purpose, Success, is_orderly};
use crate::rejected;
use crate::report::undelivered::{Undelivered, is_of_roce, is_of_tcp, why_undelivered};
use crate::report::{Connection, Handshake, Protocol, Report, Transport};
use crate::rpcbind::Rpcbind;
pub use crate::smb_setup::{Moved, SmbSetup};
use crate::stored::{stored, stored_enum};
use alloc::format;
use alloc::string::{String, ToString};
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::num::NonZeroUsize;
use hashbrown::{HashMap, HashSet};
use rdmascope_dissector::frame::{Addr, Reason};
use rdmascope_dissector::text::{Elapsed, Grouped};
use rdmascope_dissector::wire::ib::mad::QP1;
use rdmascope_dissector::wire::smb2::NtStatus;
use rdmascope_dissector::wire::smb2::ioctl::NetworkInterface;
use rdmascope_dissector::wire::smb2::negotiate::Dialect;
use rdmascope_dissector::wire::smb2::negotiate::capabilities::MULTI_CHANNEL;

/// The first dialect with SMB Direct.
const DIALECT_30: u16 = Dialect::SMB_3_0.0;
/// Pairs of hosts that get a ladder, at most.
const PATHS_MAX: usize = 256;
/// ns without an answer after which a connection request counts as unanswered.
const PATIENCE: i64 = 3_000_000_000;
/// ns after which a session that did not do something will not do it.
const SETTLED: i64 = 10_000_000_000;
/// ns without a frame on an RDMA connection after which a later one over TCP may have taken its place.
const SILENT: i64 = 30_000_000_000;
/// ns of a connection over TCP before RDMA may have joined its session.
const BRIEF: i64 = 1_000_000_000;
/// Bytes up to which RDMA is not expected: cifs.ko's default threshold.
const SMALL: u32 = 4096;
/// Requests without RDMA after which the next ones are not expected to use it either, if there is no other reason.
const INLINE_ENOUGH: u64 = 16;
/// The UDP port of RoCEv2.
const ROCE: u16 = rdmascope_dissector::wire::udp::ROCE_V2;

/// Outcome of a connection request of RDMA-CM.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CmAnswer {
    /// No answer came.
    None,
    /// A REP.
    Accepted(At),
    /// A REJ of the server, with its reason.
    Rejected(At, String),
    /// The client gave up waiting, and said so.
    TakenBack(At),
    /// The server gave up waiting, and said so: it had answered, or was to.
    GivenUp,
}

/// A REQ of RDMA-CM.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Attempt {
    /// First time that it was sent.
    pub at: At,
    /// Address of the client.
    pub client: Addr,
    /// Address of the server.
    pub server: Addr,
    /// IP addresses of both, client first, if the request names them.
    pub hosts: Option<[Addr; 2]>,
    /// The port of the service; 0 if it has none.
    pub port: u16,
    /// Transport of the attempt.
    pub transport: Transport,
    /// UDP port that it was sent from, of RoCE version 2.
    pub udp_port: Option<u16>,
    /// Number of times it was sent.
    pub sent: u32,
    /// True if anything that its server sent was captured.
    pub heard: bool,
    /// Answer to the connection request.
    pub answer: CmAnswer,
}

/// Kind of storage: SMB or NFS.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Kind {
    /// SMB.
    Smb,
    /// NFS.
    Nfs,
}

impl Kind {
    /// Name in JSON.
    pub const fn key(self) -> &'static str {
        match self {
            Self::Smb => "smb",
            Self::Nfs => "nfs",
        }
    }

    /// Name for people.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Smb => "SMB",
            Self::Nfs => "NFS",
        }
    }
}

/// A rung of the ladder.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Step {
    /// The dialect is 3.0 or later.
    Dialect,
    /// The client announces multichannel.
    ClientMultichannel,
    /// The server does.
    ServerMultichannel,
    /// The client asked for the server's interfaces.
    Asked,
    /// The server listed them.
    Answered,
    /// One of them has RDMA.
    RdmaListed,
    /// At an address that the client may reach.
    Address,
    /// The client asked rpcbind for the port of NFS.
    Rpcbind,
    /// NFS is registered there for RDMA.
    Netid,
    /// The client asked for an RDMA connection.
    Tried,
    /// The connection request was accepted.
    Accepted,
    /// Both sides of NFS sent their sizes in the private data of the handshake.
    PrivateData,
    /// SMB Direct agreed on its parameters; RPC-over-RDMA answered.
    Negotiated,
    /// A session was set up on it, or it was bound to one.
    Session,
    /// Data moves by RDMA.
    Used,
    /// And went on to.
    Kept,
}

impl Step {
    /// Name in JSON.
    pub const fn key(self) -> &'static str {
        match self {
            Self::Dialect => "dialect",
            Self::ClientMultichannel => "client_multichannel",
            Self::ServerMultichannel => "server_multichannel",
            Self::Asked => "interfaces_asked",
            Self::Answered => "interfaces_answered",
            Self::RdmaListed => "rdma_listed",
            Self::Address => "address",
            Self::Rpcbind => "rpcbind_asked",
            Self::Netid => "rdma_registered",
            Self::Tried => "rdma_tried",
            Self::Accepted => "rdma_accepted",
            Self::PrivateData => "private_data",
            Self::Negotiated => "negotiated",
            Self::Session => "session",
            Self::Used => "rdma_used",
            Self::Kept => "rdma_kept",
        }
    }

    /// The question, in few words.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Dialect => "dialect",
            Self::ClientMultichannel => "client: multichannel",
            Self::ServerMultichannel => "server: multichannel",
            Self::Asked => "interfaces asked for",
            Self::Answered => "interfaces listed",
            Self::RdmaListed => "one has RDMA",
            Self::Address => "address in reach",
            Self::Rpcbind => "rpcbind asked",
            Self::Netid => "netid rdma listed",
            Self::Tried => "RDMA tried",
            Self::Accepted => "RDMA accepted",
            Self::PrivateData => "private data",
            Self::Negotiated => "negotiated",
            Self::Session => "session on it",
            Self::Used => "data by RDMA",
            Self::Kept => "stayed on RDMA",
        }
    }
}

/// State of a rung.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum State {
    /// The step was taken.
    Yes,
    /// The step was not taken.
    No,
    /// The capture does not tell.
    NotSeen,
    /// The client took another way: it connected by RDMA without asking for interfaces.
    NotNeeded,
}

impl State {
    /// Name in JSON.
    pub const fn key(self) -> &'static str {
        match self {
            Self::Yes => "yes",
            Self::No => "no",
            Self::NotSeen => "not_seen",
            Self::NotNeeded => "not_needed",
        }
    }
}

/// One question and its answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rung {
    /// The step.
    pub step: Step,
    /// The answer.
    pub state: State,
    /// The evidence, in a few words.
    pub text: String,
    /// Frame and time of the evidence.
    pub at: Option<At>,
}

/// Carrier of the data.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Carried {
    /// RDMA connections only.
    Rdma,
    /// TCP only.
    Tcp,
    /// RDMA and messages both carried data.
    Both,
    /// No data was carried.
    Nothing,
}

impl Carried {
    /// Name in JSON.
    pub const fn key(self) -> &'static str {
        match self {
            Self::Rdma => "rdma",
            Self::Tcp => "tcp",
            Self::Both => "both",
            Self::Nothing => "nothing",
        }
    }

    /// As people say it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Rdma => "over RDMA",
            Self::Tcp => "over TCP",
            Self::Both => "over RDMA and TCP",
            Self::Nothing => "never set up",
        }
    }
}

/// The obstacle that kept a client and a server from RDMA.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Obstacle {
    /// The rung.
    pub step: Step,
    /// The rule that reports it.
    pub rule: Rule,
    /// The side to blame.
    pub by: Blame,
    /// Severity of the finding.
    pub severity: Severity,
    /// Certainty of the finding.
    pub certainty: Certainty,
    /// The problem, as a clause.
    pub text: String,
    /// Frame and time.
    pub at: At,
    /// The connection that runs without RDMA, or that failed.
    pub connection: Option<u32>,
    /// Frames of the attempts that came to nothing.
    pub frames: Vec<At>,
    /// Connections of those attempts.
    pub requests: Vec<u32>,
    /// True if it is another finding, of a connection that failed, and is not to be reported again.
    pub reported: bool,
    /// Its cause, if the answer itself contains it.
    pub why: Option<&'static str>,
}

/// Path of a client and a server to RDMA.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Path {
    /// Kind of storage: SMB or NFS.
    pub kind: Kind,
    /// The client's address, of the first connection.
    pub client: Addr,
    /// The server's.
    pub server: Addr,
    /// Their connections, by number.
    pub connections: Vec<u32>,
    /// Carrier of the data of READ and WRITE.
    pub carried: Carried,
    /// The questions in order.
    pub rungs: Vec<Rung>,
    /// The interfaces that the server listed.
    pub interfaces: Vec<NetworkInterface>,
    /// The obstacle; `None` if there is none, or it is unknown.
    pub verdict: Option<Obstacle>,
}

impl Path {
    /// The first question that was answered with no.
    pub fn first_no(&self) -> Option<&Rung> {
        self.rungs.iter().find(|r| r.state == State::No)
    }
}

/// Outcome of an RDMA connection request.
#[derive(Clone, Debug, PartialEq, Eq)]
enum AttemptOutcome {
    Accepted,
    Rejected(String),
    /// By a TCP reset.
    Reset,
    /// Host that reported it unreachable, and the reason.
    Unreachable(Addr, Reason),
    /// Answered in another protocol.
    Otherwise,
    /// The server's TCP took the MPA Request, and nothing came back.
    Mute,
    /// The server answered again and again, and nothing of the client followed: it had no answer.
    Unreached,
    Silent,
    /// Too young to tell.
    Open,
}

/// Times that a server repeats its answer because the client did not have it, at least.
const UNREACHED: u32 = 2;
/// Cause of answers that do not arrive.
const ONE_WAY: &str = "Packets from the server to the client are dropped on the way: a firewall, or a route, that works in \
    one direction only";

/// Cause of a rejection, if its answer says more than that no service listens.
fn why_named(request: &ConnectionRequest) -> Option<&'static str> {
    let named = match &request.fate {
        AttemptOutcome::Rejected(named) => named,
        AttemptOutcome::Unreachable(by, reason) => return Some(why_undelivered(*reason, *by == request.to)),
        _ => return None,
    };
    // MPA has no reasons: what listens on the port answered
    if request.transport == Transport::Iwarp { Some(rejected::REFUSED) } else { rejected::why_named(named) }
}

/// An RDMA connection request.
#[derive(Clone, Debug)]
struct ConnectionRequest {
    at: At,
    to: Addr,
    port: u16,
    transport: Transport,
    fate: AttemptOutcome,
    heard: bool,
    /// When it was accepted.
    accepted: Option<At>,
    connection: Option<u32>,
    frames: Vec<At>,
}

/// All that was seen between a client and a server.
#[derive(Debug)]
struct Group<'r> {
    kind: Kind,
    client: Addr,
    servers: Vec<Addr>,
    connections: Vec<&'r Connection>,
    attempts: Vec<&'r Attempt>,
}

/// The ladders of a report.
pub fn paths(report: &Report, attempts: &[Attempt], unreachable: &[Undelivered]) -> Vec<Path> {
    let groups = groups(report, attempts);
    let rdma_servers: Vec<(Kind, Addr)> = report
        .connections
        .iter()
        .filter(|c| c.transport.is_some_and(Transport::is_rdma) && c.progress.connected)
        .filter_map(|c| Some((kind_of(c)?, c.peers[1].address)))
        .collect();
    let strangers = tried_by_strangers(report, attempts);
    let mut paths: Vec<Path> = groups
        .iter()
        .filter_map(|group| PathSteps::of(group, unreachable, (&rdma_servers, &strangers), report).climb())
        .take(PATHS_MAX)
        .collect();
    paths.sort_by_key(|p| (p.connections.first().copied().unwrap_or(u32::MAX), p.kind));
    paths
}

/// Addresses that were asked for RDMA by one that has no session over TCP of its own: it may be another address of a
/// client that has one.
fn tried_by_strangers(report: &Report, attempts: &[Attempt]) -> HashSet<Addr> {
    let is_tcp = |c: &&Connection| c.transport == Some(Transport::Tcp) && kind_of(c) == Some(Kind::Smb);
    let known: HashSet<Addr> = report.connections.iter().filter(is_tcp).map(|c| c.peers[0].address).collect();
    let is_try = |c: &&Connection| c.transport.is_some_and(Transport::is_rdma) || is_try(c);
    let ends = report.connections.iter().filter(is_try).map(|c| (c.client_known, c.peers.map(|p| p.address)));
    let roles = ends.flat_map(|(is_sure, [a, b])| [Some((a, b)), (!is_sure).then_some((b, a))]).flatten();
    let asked = attempts.iter().map(|a| (a.client, a.server));
    roles.chain(asked).filter(|(client, _)| !known.contains(client)).map(|(_, server)| server).collect()
}

/// Puts the ladders into a report, and their findings.
pub(crate) fn conclude(report: &mut Report, attempts: &[Attempt], unreachable: &[Undelivered]) {
    report.paths = paths(report, attempts, unreachable);
    for verdict in report.paths.iter().filter_map(|p| p.verdict.as_ref()).filter(|v| !v.reported) {
        // connections that failed on the way failed of this
        for connection in &mut report.connections {
            let is_try = verdict.requests.contains(&connection.id);
            if let Some(outcome) = connection.outcome.as_mut().filter(|o| is_try && o.failed()) {
                outcome.cause = Some((verdict.rule, verdict.by));
            }
        }
        let site = Site { connection: verdict.connection, frame: verdict.at.frame, time_ns: verdict.at.time };
        let finding = Finding::new(verdict.rule, verdict.by, site, verdict.certainty, verdict.text.as_str());
        let finding = finding.with_why(verdict.why).with_severity(verdict.severity);
        report.findings.add(finding.with_frames(verdict.frames.iter().copied()));
    }
    for came in afterwards(report, attempts) {
        let (rule, by) = came.cause;
        if came.replaced {
            report.findings.lower(rule, came.connection, by, Severity::Note, format_args!("{}", came.text));
            let outcome =
                report.connections.iter_mut().find(|c| Some(c.id) == came.connection).and_then(|c| c.outcome.as_mut());
            outcome.into_iter().for_each(|outcome| outcome.success = Success::Replaced);
        } else {
            report.findings.add_to(rule, came.connection, by, &came.text);
        }
    }
}

/// Events after a connection that failed.
struct LaterEvents {
    /// The finding that reports the failure.
    cause: (Rule, Blame),
    connection: Option<u32>,
    /// True if a later one took the place of the one that was refused.
    replaced: bool,
    text: String,
}

/// Events after connections that failed: a later one took the place of one that was refused, or the session went on
/// without it; after one that broke, the client tried again, for so long, and was connected or not.
fn afterwards(report: &Report, attempts: &[Attempt]) -> Vec<LaterEvents> {
    let mut all = Vec::new();
    // REQs that were rejected, and those of them without which sessions went on
    let (mut rejected, mut went_on, mut made_good) = (0, 0, 0);
    // times from REQs that were rejected to later connections of the same hosts whose REQ was not captured
    let mut unseen = Vec::new();
    for group in groups(report, attempts) {
        let is_rdma = |c: &Connection| c.transport.is_some_and(Transport::is_rdma);
        let outcome = |c: &'_ Connection| c.outcome.clone().filter(Outcome::failed);
        let refused =
            |c: &Connection| outcome(c).is_some_and(|o| matches!(o.ending, Ending::Refused | Ending::NoTransport));
        let works: Vec<&Connection> = group.connections.iter().copied().filter(|c| has_session(c)).collect();
        let open_at = |at: At, rdma: bool| {
            let is_open = |c: &&&Connection| {
                c.first < at && c.closed.is_none_or(|(.., end)| end.time > at.time) && (!rdma || is_rdma(c))
            };
            works.iter().find(is_open).is_some()
        };
        let next = |at: At, rdma: bool| {
            works.iter().copied().filter(|c| c.first > at && (!rdma || is_rdma(c))).min_by_key(|c| c.first)
        };
        let is_bound =
            group.connections.iter().any(|c| c.smb.setup.binding.is_some_and(|(_, status)| status == Some(0)));
        let without = group.kind == Kind::Smb && !is_bound;
        for c in group.connections.iter().filter(|c| refused(c)) {
            let Some(cause) = c.outcome.as_ref().and_then(|o| o.cause) else { continue };
            if !matches!(cause.0, Rule::MpaReject | Rule::MpaStartup | Rule::TcpRefused) {
                continue;
            }
            // traffic over TCP instead is no RDMA
            let rdma = is_try(c);
            if let Some(later) = next(c.first, rdma) {
                let (ours, theirs) = (&c.peers[1], &later.peers[1]);
                let place = match (ours.address == theirs.address, ours.port == theirs.port) {
                    (true, true) => String::new(),
                    (true, false) => format!(" to port {}", theirs.port),
                    (false, _) => format!(" to {} port {}", theirs.address, theirs.port),
                };
                let took = Elapsed(later.first.time.saturating_sub(c.first.time));
                let text = format!("; one{place} was accepted {took} after it");
                all.push(LaterEvents { cause, connection: Some(c.id), replaced: true, text });
            } else if without && open_at(c.first, rdma) {
                all.push(LaterEvents { cause, connection: Some(c.id), replaced: false, text: NO_SECOND.into() });
            }
        }
        for a in group.attempts.iter().filter(|a| matches!(a.answer, CmAnswer::Rejected(..))) {
            rejected += 1;
            // one whose handshake the capture does not have
            let accepted = group.connections.iter().filter(|c| {
                c.first > a.at && is_rdma(c) && matches!(c.protocol, Protocol::SmbDirect | Protocol::RpcRdma)
            });
            unseen.extend(
                accepted
                    .min_by_key(|c| c.first)
                    .filter(|c| c.handshake != Handshake::Seen)
                    .map(|c| c.first.since(a.at)),
            );
            let is_second = without && open_at(a.at, true) && next(a.at, true).is_none();
            went_on += usize::from(is_second);
            made_good += usize::from(!is_second && next(a.at, true).is_some());
        }
        for c in works.iter().filter(|c| c.closed.is_some()) {
            let Some(o) = outcome(c) else { continue };
            let (Some(cause), Ending::HungUp { .. } | Ending::Aborted) = (o.cause, o.ending) else { continue };
            let again = next(o.at, is_rdma(c));
            let until = again.map_or(i64::MAX, |c| c.first.time);
            let within = |at: At| at > o.at && at.time < until;
            let in_vain = |a: &&&Attempt| within(a.at) && !matches!(a.answer, CmAnswer::Accepted(_));
            let requests = group.connections.iter().filter(|c| within(c.first) && refused(c)).count()
                + group.attempts.iter().filter(in_vain).count();
            let tried = || plural(requests, "attempt", "attempts");
            // a request that has to be sent again is accepted much later
            let accepted = |c: &Connection| {
                let of_it = |a: &&&Attempt| a.at == c.first;
                let answer = group.attempts.iter().find(of_it).map(|a| &a.answer);
                if let Some(CmAnswer::Accepted(at)) = answer { *at } else { c.first }
            };
            let since = |c: &Connection| Elapsed(accepted(c).time.saturating_sub(o.at.time));
            let mut text = match (requests, again) {
                (0, None) => String::new(),
                (0, Some(again)) => format!("; the client was connected again {} later", since(again)),
                (_, Some(again)) => {
                    format!("; {} to connect again failed, then one succeeded {} later", tried(), since(again))
                }
                (_, None) => format!("; {} to connect again failed", tried()),
            };
            let shares = |other: &&&Connection| other.id != c.id && shares_session(c, other);
            let goes_on = works
                .iter()
                .filter(shares)
                .any(|other| other.first < o.at && other.closed.is_none_or(|(.., end)| end.time > o.at.time));
            // a session that has another channel keeps its handles, and may have closed them there; and who connects
            // again may have its server end the session that it had
            let ends_it = |other: &Connection| other.smb.setup.previous.is_some_and(|id| c.smb.sessions.contains(&id));
            let has_other =
                group.connections.iter().any(|other| other.id != c.id && (shares(&other) || ends_it(other)));
            if has_other && matches!(o.ending, Ending::Aborted) && is_orderly(c) {
                let text = String::from("; the client had another connection, on which it may have been closed");
                all.push(LaterEvents { cause, connection: Some(c.id), replaced: true, text });
                continue;
            }
            if !goes_on {
                let later: Vec<&Connection> = works.iter().copied().filter(|c| c.first > o.at).collect();
                text.push_str(&handles(&c.smb.open, &later));
            }
            if text.is_empty() {
                continue;
            }
            all.push(LaterEvents { cause, connection: Some(c.id), replaced: false, text });
        }
    }
    if rejected > 0 && unseen.len() == rejected {
        let took = Elapsed(unseen.iter().copied().min().unwrap_or(0));
        let text = format!("; the hosts had an RDMA connection {took} after it");
        all.push(LaterEvents { cause: (Rule::CmReject, Blame::Server), connection: None, replaced: true, text });
    }
    let is_without = went_on > 0 && went_on + made_good == rejected;
    let text = match made_good {
        0 if is_without => NO_SECOND,
        0 => "",
        _ if is_without => NO_MORE,
        n if n < rejected => "; others after that were rejected again",
        _ => "",
    };
    if !text.is_empty() {
        let cause = (Rule::CmReject, Blame::Server);
        all.push(LaterEvents { cause, connection: None, replaced: false, text: text.into() });
    }
    all
}

/// Text about the handles that were lost with a connection and those that the client opened again; empty if none was
/// open.
fn handles(open: &[Arc<str>], later: &[&Connection]) -> String {
    const NAMED: usize = 3;
    let Some(number) = NonZeroUsize::new(open.len()) else { return String::new() };
    let mut names: Vec<&str> = open.iter().map(|name| &**name).collect();
    names.dedup();
    let more = names.len().saturating_sub(NAMED);
    names.truncate(NAMED);
    let mut list = names.join(", ");
    if more > 0 {
        list.push_str(&format!(" and {more} more"));
    }
    let is_again = |name: &&Arc<str>| later.iter().any(|c| c.smb.opened.contains(name));
    let again = match (open.iter().filter(is_again).count(), number.get()) {
        _ if later.is_empty() => String::new(),
        (0, 1) => ", which was not opened again".into(),
        (0, _) => ", none of which was opened again".into(),
        (1, 1) => ", which was opened again".into(),
        (n, all) if n == all => ", all of which were opened again".into(),
        (n, _) => format!(", {n} of which were opened again"),
    };
    let was = if number.get() == 1 { "handle was" } else { "handles were" };
    format!("; {number} {was} open on it ({list}){again}")
}

/// The same of others, after one that was accepted.
const NO_MORE: &str = "; others after that were rejected, too, and the session went on without them: multichannel was \
    not established";
/// Consequence of a second channel that is refused.
const NO_SECOND: &str = "; the session went on without it: multichannel was not established";

/// Kind of mount that a connection belongs to; `None` for another kind, and if the client is unknown.
fn kind_of(c: &Connection) -> Option<Kind> {
    if !c.client_known {
        return None;
    }
    match (c.protocol, c.peers[1].port) {
        (Protocol::SmbDirect | Protocol::Smb2, _) => Some(Kind::Smb),
        (Protocol::RpcRdma, _) | (Protocol::Rpc, 2049 | 20049) => Some(Kind::Nfs),
        (Protocol::Unknown, 445 | 5445) => Some(Kind::Smb),
        (Protocol::Unknown, 20049) => Some(Kind::Nfs),
        _ => match c.outcome.as_ref()?.purpose {
            Purpose::SmbDirect | Purpose::SmbTcp => Some(Kind::Smb),
            Purpose::NfsRdma => Some(Kind::Nfs),
            Purpose::RpcTcp | Purpose::Rdma => None,
        },
    }
}

/// Pairs of hosts that talked to each other: by addresses, and for SMB also by the GUIDs of both ends and by the
/// addresses that a server lists.
fn groups<'r>(report: &'r Report, attempts: &'r [Attempt]) -> Vec<Group<'r>> {
    let mut groups: Vec<Group<'r>> = Vec::new();
    let mut by_hosts: HashMap<(Kind, Addr, Addr), usize> = HashMap::new();
    let mut by_guids: HashMap<([u8; 16], [u8; 16]), usize> = HashMap::new();
    // a GID or LID is the host whose IP address a connection request from it names
    let named = attempts.iter().filter_map(|a| Some((a, a.hosts?)));
    let hosts: HashMap<Addr, Addr> =
        named.flat_map(|(a, [client, server])| [(a.client, client), (a.server, server)]).collect();
    let host = |address: Addr| hosts.get(&address).copied().unwrap_or(address);
    let mut place = |kind: Kind, client: Addr, server: Addr, groups: &mut Vec<Group<'r>>| {
        let (client, server) = (host(client), host(server));
        *by_hosts.entry((kind, client, server)).or_insert_with(|| {
            groups.push(Group {
                kind,
                client,
                servers: alloc::vec![server],
                connections: Vec::new(),
                attempts: Vec::new(),
            });
            groups.len() - 1
        })
    };
    for connection in &report.connections {
        let Some(kind) = kind_of(connection) else { continue };
        let [client, server] = connection.peers.map(|p| p.address);
        let at = place(kind, client, server, &mut groups);
        groups[at].connections.push(connection);
    }
    for attempt in attempts {
        let kind = match attempt.port {
            445 | 5445 => Kind::Smb,
            20049 => Kind::Nfs,
            port if report.rpcbind.iter().any(|h| h.server == attempt.server && h.rpcbind.rdma() == Some(port)) => {
                Kind::Nfs
            }
            _ => continue,
        };
        let at = place(kind, attempt.client, attempt.server, &mut groups);
        groups[at].attempts.push(attempt);
    }
    // one mount on several addresses
    for at in 0..groups.len().min(4 * PATHS_MAX) {
        let guids: Vec<_> = groups[at]
            .connections
            .iter()
            .filter_map(|c| Some((c.smb.setup.guids[0]?, c.smb.setup.guids[1]?)))
            .collect();
        let mut into = at;
        for guid in guids.into_iter().filter(|(client, server)| *client != [0; 16] && *server != [0; 16]) {
            into = into.min(*by_guids.entry(guid).or_insert(into));
        }
        if into != at {
            merge(&mut groups, into, at);
        }
    }
    let listed: Vec<(usize, Addr)> = groups
        .iter()
        .enumerate()
        .flat_map(|(at, g)| g.connections.iter().map(move |c| (at, c)))
        .flat_map(|(at, c)| c.smb.setup.interfaces.iter().filter_map(move |i| Some((at, addr(i)?))))
        .take(4 * PATHS_MAX)
        .collect();
    for (at, address) in listed {
        let own = &groups[at];
        // from a link-local address no other client can be distinguished
        let is_near = |g: &Group<'_>| {
            is_link_local(&address) && is_link_local(&g.client) && !g.connections.iter().any(|c| has_session(c))
        };
        // a client has an address for each of its cards, and some servers no GUID
        let is_same = |g: &Group<'_>| client_guids(g).any(|guid| client_guids(own).any(|one| one == guid));
        let is_it = |other: &usize| {
            let g = &groups[*other];
            let is_there = *other != at && g.kind == Kind::Smb && g.servers.contains(&address);
            is_there && (g.client == own.client || is_near(g) || is_same(g))
        };
        let others: Vec<usize> = (0..groups.len()).filter(is_it).collect();
        others.into_iter().for_each(|other| merge(&mut groups, at, other));
    }
    groups.retain(|g| !g.connections.is_empty() || !g.attempts.is_empty());
    groups
}

/// True if the client had no answer of the server to its connection request: neither used nor ended it.
fn is_unreached(c: &Connection) -> bool {
    c.progress.unreached >= UNREACHED && c.closed.is_none() && c.rejected.is_none()
}

/// ClientGuids that name a client.
fn client_guids<'g>(group: &'g Group<'_>) -> impl Iterator<Item = [u8; 16]> + 'g {
    group.connections.iter().filter_map(|c| c.smb.setup.guids[0]).filter(|guid| *guid != [0; 16])
}

/// Moves everything of group `from` into group `into`; the empty group stays.
fn merge(groups: &mut [Group<'_>], into: usize, from: usize) {
    let (connections, attempts, servers) = {
        let gone = &mut groups[from];
        (
            core::mem::take(&mut gone.connections),
            core::mem::take(&mut gone.attempts),
            core::mem::take(&mut gone.servers),
        )
    };
    let group = &mut groups[into];
    group.connections.extend(connections);
    group.connections.sort_by_key(|c| c.id);
    group.attempts.extend(attempts);
    for server in servers {
        if !group.servers.contains(&server) {
            group.servers.push(server);
        }
    }
}

/// The address of an interface.
pub fn addr(interface: &NetworkInterface) -> Option<Addr> {
    Some(match interface.address? {
        core::net::IpAddr::V4(a) => Addr::V4(a.octets()),
        core::net::IpAddr::V6(a) => Addr::V6(a.octets()),
    })
}

fn is_link_local(address: &Addr) -> bool {
    match address {
        Addr::V4([169, 254, ..]) => true,
        Addr::V6([0xfe, b, ..]) => b & 0xc0 == 0x80,
        _ => false,
    }
}

/// True if two addresses begin alike as addresses of one subnet mostly do: /24, /64.
fn may_be_near(a: &Addr, b: &Addr) -> bool {
    match (a, b) {
        (Addr::V4(a), Addr::V4(b)) => a[..3] == b[..3],
        (Addr::V6(a), Addr::V6(b)) => a[..8] == b[..8],
        _ => false,
    }
}

fn dialect_name(code: u16) -> &'static str {
    // a client that offers the wildcard has SMB 2.1 or higher
    let dialect = if code == Dialect::WILDCARD.0 { Dialect::SMB_2_1 } else { Dialect(code) };
    dialect.name().unwrap_or("another dialect")
}

fn status_name(status: u32) -> String {
    NtStatus(status).name().map_or_else(|| format!("{status:#010x}"), ToString::to_string)
}

/// A rung, and the finding to report if it is the obstacle.
struct Draft {
    rung: Rung,
    no: Option<(Rule, Blame, Certainty, String)>,
    /// The cause, if it is known.
    why: Option<&'static str>,
}

struct PathSteps<'g, 'r> {
    group: &'g Group<'r>,
    tcp: Vec<&'r Connection>,
    rdma: Vec<&'r Connection>,
    requests: Vec<ConnectionRequest>,
    end: At,
    /// True if no frame was cut short: the missing part may have been the answer, or traffic over TCP.
    is_whole: bool,
    /// True if the same server serves any client by RDMA.
    serves_rdma: bool,
    /// Answers of the server's rpcbind, to this client or another one.
    rpcbind: Rpcbind,
    /// True if queue pairs of the two talk to each other whose handshake and messages the capture does not tell.
    has_unknown_pair: bool,
    /// True if somebody asked for RDMA at an address that the server lists, who may be this client.
    is_tried_by_stranger: bool,
    drafts: Vec<Draft>,
}

impl<'g, 'r> PathSteps<'g, 'r> {
    fn of(
        group: &'g Group<'r>,
        unreachable: &[Undelivered],
        (rdma_servers, strangers): (&[(Kind, Addr)], &HashSet<Addr>),
        report: &Report,
    ) -> Self {
        let (end, is_whole) = (report.capture.last.unwrap_or_default(), report.capture.cut == 0);
        let is_rdma = |c: &Connection| matches!(c.protocol, Protocol::SmbDirect | Protocol::RpcRdma) || is_try(c);
        let (rdma, tcp): (Vec<&Connection>, Vec<&Connection>) = group.connections.iter().partition(|c| is_rdma(c));
        let undelivered = |since: At, is_it: &dyn Fn(&Undelivered) -> bool| {
            let told = unreachable.iter().find(|told| told.0 >= since && is_it(told));
            told.map(|(at, [by, _], u)| (*at, *by, u.reason))
        };
        let mut requests: Vec<ConnectionRequest> = Vec::new();
        for a in &group.attempts {
            let waited = end.time.saturating_sub(a.at.time);
            let is_it =
                |told: &Undelivered| is_of_roce(told, [a.client, a.server], Some(QP1), |port| a.udp_port == Some(port));
            let icmp = undelivered(a.at, &is_it);
            let mut frames = alloc::vec![a.at];
            if let CmAnswer::TakenBack(at) = a.answer {
                frames.push(at);
            }
            let unreached = group.connections.iter().find(|c| c.first == a.at && is_unreached(c));
            let fate = match (&a.answer, icmp) {
                (CmAnswer::Accepted(_), _) if unreached.is_some() => AttemptOutcome::Unreached,
                (CmAnswer::Accepted(_), _) => AttemptOutcome::Accepted,
                (CmAnswer::Rejected(at, reason), _) => {
                    frames.push(*at);
                    AttemptOutcome::Rejected(reason.clone())
                }
                (_, Some((at, by, reason))) => {
                    frames.push(at);
                    AttemptOutcome::Unreachable(by, reason)
                }
                (CmAnswer::TakenBack(_), None) if is_whole => AttemptOutcome::Silent,
                (CmAnswer::None, None) if waited >= PATIENCE && is_whole => AttemptOutcome::Silent,
                (CmAnswer::TakenBack(_) | CmAnswer::GivenUp | CmAnswer::None, None) => AttemptOutcome::Open,
            };
            let (at, to, port, transport) = (a.at, a.server, a.port, a.transport);
            requests.push(ConnectionRequest {
                at,
                to,
                port,
                transport,
                fate,
                heard: a.heard,
                accepted: if let CmAnswer::Accepted(at) = a.answer { Some(at) } else { None },
                connection: unreached.map(|c| c.id),
                frames,
            });
        }
        for c in rdma.iter().filter(|c| is_try(c) || c.transport == Some(Transport::Iwarp)) {
            let [client, server] = c.peers.map(|p| p.address);
            let port = c.peers[1].port;
            let ports = c.peers.map(|p| p.port);
            let icmp = undelivered(c.first, &|told| is_of_tcp(told, [client, server], ports));
            let mut frames = alloc::vec![c.first];
            frames.extend(c.closed.map(|(.., at)| at));
            let waited = c.closed.map_or(end, |(.., at)| at).time.saturating_sub(c.first.time);
            let fate = if matches!(c.protocol, Protocol::SmbDirect | Protocol::RpcRdma) {
                AttemptOutcome::Accepted
            } else if let Some(reason) = &c.rejected {
                AttemptOutcome::Rejected(reason.clone())
            } else if let Some((at, by, reason)) = icmp.filter(|_| !c.progress.connected) {
                frames.push(at);
                AttemptOutcome::Unreachable(by, reason)
            } else if c.closed.is_some_and(|(by, how, _)| by == Some(1) && how == "RST")
                && c.handshake == Handshake::Seen
                && !c.progress.connected
            {
                AttemptOutcome::Reset
            } else if is_unreached(c) && c.handshake == Handshake::Seen {
                AttemptOutcome::Unreached
            } else if c.progress.spoke_otherwise {
                AttemptOutcome::Otherwise
            } else if c.transport == Some(Transport::Iwarp) && c.progress.connected {
                AttemptOutcome::Accepted
            } else if c.progress.missed && !c.progress.unheard || c.progress.connected && c.progress.silent {
                // what was asked on it, and what was answered, the capture lacks
                AttemptOutcome::Open
            } else if is_whole
                && !c.progress.changed
                && c.handshake == Handshake::Seen
                && (waited >= PATIENCE || c.closed.is_some())
            {
                // what was asked on a connection that is older than the capture, and what was answered, is not known
                match (c.transport == Some(Transport::Iwarp), c.progress.unheard) {
                    (true, false) => AttemptOutcome::Mute,
                    // its TCP answered, and was asked for nothing
                    (false, false) => AttemptOutcome::Open,
                    (_, true) => AttemptOutcome::Silent,
                }
            } else {
                AttemptOutcome::Open
            };
            let is_probe = c.transport == Some(Transport::Tcp) && !c.progress.unheard && c.handshake == Handshake::Seen;
            if is_probe && fate == AttemptOutcome::Open {
                // a port that was looked at is not tried
                continue;
            }
            let heard = c.closed.is_some() || c.progress.connected;
            let transport = Transport::Iwarp;
            requests.push(ConnectionRequest {
                at: c.first,
                to: server,
                port,
                transport,
                fate,
                heard,
                accepted: c.progress.accepted,
                connection: Some(c.id),
                frames,
            });
        }
        requests.sort_by_key(|t| t.at);
        let serves_rdma = group.servers.iter().any(|s| rdma_servers.contains(&(group.kind, *s)));
        let mut rpcbind = Rpcbind::default();
        if group.kind == Kind::Nfs {
            report.rpcbind.iter().filter(|h| group.servers.contains(&h.server)).for_each(|h| rpcbind.join(&h.rpcbind));
        }
        let is_pair = |c: &&Connection| {
            let is_theirs = |client: usize| {
                c.peers[client].address == group.client && group.servers.contains(&c.peers[1 - client].address)
            };
            let is_rdma = c.transport.is_some_and(Transport::is_packets);
            let is_refused = c.rejected.is_some() || is_unreached(c);
            is_rdma && c.protocol == Protocol::Unknown && !is_refused && (is_theirs(0) || is_theirs(1))
        };
        let has_unknown_pair = report.connections.iter().find(is_pair).is_some();
        let listed = tcp.iter().flat_map(|c| &c.smb.setup.interfaces).filter(|i| i.rdma).filter_map(addr);
        let is_tried_by_stranger = listed.into_iter().any(|address| strangers.contains(&address));
        Self {
            group,
            tcp,
            rdma,
            requests,
            end,
            is_whole,
            serves_rdma,
            rpcbind,
            has_unknown_pair,
            is_tried_by_stranger,
            drafts: Vec::new(),
        }
    }

    fn add(&mut self, step: Step, state: State, text: impl Into<String>, at: Option<At>) {
        self.drafts.push(Draft { rung: Rung { step, state, text: text.into(), at }, no: None, why: None });
    }

    /// Adds the cause of what the last rung says.
    fn because(&mut self, why: &'static str) {
        if let Some(draft) = self.drafts.last_mut() {
            draft.why = Some(why);
        }
    }

    fn no(&mut self, step: Step, text: impl Into<String>, at: Option<At>, why: (Rule, Blame, Certainty, String)) {
        self.drafts.push(Draft {
            rung: Rung { step, state: State::No, text: text.into(), at },
            no: Some(why),
            why: None,
        });
    }

    /// True if an RDMA connection of the two reached a session.
    fn worked(&self) -> bool {
        self.rdma.iter().any(|c| has_session(c))
    }

    fn climb(mut self) -> Option<Path> {
        let group = self.group;
        match group.kind {
            Kind::Smb => self.smb(),
            Kind::Nfs => self.nfs()?,
        }
        let worked = self.worked();
        let has_tcp = self.tcp.iter().any(|c| has_session(c));
        let carried = match (worked, has_tcp) {
            (true, true) => Carried::Both,
            (true, false) => Carried::Rdma,
            (false, true) => Carried::Tcp,
            (false, false) => Carried::Nothing,
        };
        let verdict = self.verdict(worked);
        let mut connections: Vec<u32> = group.connections.iter().map(|c| c.id).collect();
        connections.sort_unstable();
        let server = self
            .tcp
            .first()
            .or(self.rdma.first())
            .map(|c| c.peers[1].address)
            .or_else(|| group.servers.first().copied());
        let heard = group.connections.iter().map(|c| &c.smb.setup).find(|h| !h.interfaces.is_empty());
        Some(Path {
            kind: group.kind,
            client: group.client,
            server: server.unwrap_or_default(),
            connections,
            carried,
            rungs: self.drafts.into_iter().map(|d| d.rung).collect(),
            interfaces: heard.map(|h| h.interfaces.clone()).unwrap_or_default(),
            verdict,
        })
    }

    /// True if there is any sign of RDMA in the capture.
    fn is_hinted(&self) -> bool {
        let listed = self.group.connections.iter().any(|c| c.smb.setup.interfaces.iter().any(|i| i.rdma));
        !self.requests.is_empty()
            || listed
            || !self.rdma.is_empty()
            || self.serves_rdma
            || self.rpcbind.rdma().is_some()
    }

    /// The first no, if it is one that stopped them.
    fn verdict(&self, worked: bool) -> Option<Obstacle> {
        let draft = self.drafts.iter().find(|d| {
            let is_late = d.rung.step >= Step::Used;
            d.rung.state == State::No && (is_late || !worked)
        })?;
        let step = draft.rung.step;
        let failed: Vec<&ConnectionRequest> = self
            .requests
            .iter()
            .filter(|t| !matches!(t.fate, AttemptOutcome::Accepted | AttemptOutcome::Open))
            .collect();
        let first = match step {
            Step::Accepted => failed.first().map(|t| t.at),
            _ => None,
        };
        let running = self.tcp.iter().find(|c| has_session(c)).or(self.tcp.first()).copied();
        let at = first
            .or(draft.rung.at)
            .or_else(|| running.map(|c| c.first))
            .or_else(|| self.rdma.first().map(|c| c.first))?;
        let Some((rule, by, certainty, text)) = draft.no.clone() else {
            // a connection failed for a reason that another finding reports
            let broken =
                self.rdma.iter().find(|c| c.outcome.as_ref().is_some_and(|o| o.failed() && o.cause.is_some()))?;
            let outcome = broken.outcome.as_ref()?;
            let (rule, by) = outcome.cause?;
            return Some(Obstacle {
                step,
                rule,
                by,
                severity: rule.row().severity,
                certainty: outcome.certainty,
                text: outcome.sentence(self.end.time),
                at: outcome.at,
                connection: Some(broken.id),
                frames: Vec::new(),
                requests: Vec::new(),
                reported: true,
                why: None,
            });
        };
        let own = rule.row().severity;
        let severity = match step {
            // there is no sign of RDMA
            _ if step < Step::Tried && !self.is_hinted() => Severity::Note,
            Step::Used | Step::Kept => own,
            // the mount failed
            _ if self.is_whole
                && self.tcp.is_empty()
                && !worked
                && step >= Step::Accepted
                && certainty > Certainty::Guess =>
            {
                Severity::Error
            }
            _ if self.group.kind == Kind::Nfs => own,
            _ => Severity::Warn,
        };
        let connection = match step {
            Step::Used | Step::Kept => self.rdma.iter().find(|c| has_session(c)).map(|c| c.id),
            _ => running.map(|c| c.id).or_else(|| failed.iter().find_map(|t| t.connection)),
        };
        let frames =
            if step < Step::Used { failed.iter().flat_map(|t| t.frames.iter().copied()).collect() } else { Vec::new() };
        let requests =
            if step < Step::Used { failed.iter().filter_map(|t| t.connection).collect() } else { Vec::new() };
        let named = self.requests.iter().find_map(why_named).filter(|_| step == Step::Accepted);
        Some(Obstacle {
            step,
            rule,
            by,
            severity,
            certainty,
            text,
            at,
            connection,
            frames,
            requests,
            reported: false,
            why: draft.why.or(named),
        })
    }

    // ── SMB ─────────────────────────────────────────────────────────────────────────────────────────────────────────

    fn smb(&mut self) {
        self.interfaces();
        self.tried();
        self.accepted((Rule::SmbPathRefused, Rule::SmbPathSilent));
        self.session();
        self.used();
        self.kept(Rule::SmbPathFallback);
    }

    /// Adds the rungs that lead a client from TCP to the RDMA interfaces of its server.
    fn interfaces(&mut self) {
        use State::{NotNeeded, NotSeen, Yes};
        let all: Vec<&'r Connection> = self.tcp.iter().chain(&self.rdma).copied().collect();
        let direct = !self.requests.is_empty() || !self.rdma.is_empty();
        // a client that connects by RDMA at once needs no list; only the content of a list can tell why that failed
        let end = self.end.time;
        let settled = |c: &Connection| c.closed.is_some() || end.saturating_sub(c.first.time) >= SETTLED;
        let heard = |f: fn(&SmbSetup) -> bool| all.iter().copied().find(|c| f(&c.smb.setup));
        let mut stopped = false;
        // nothing follows from a dialect that does not exist
        let known = |code: &u16| Dialect(*code).name().is_some();
        let dialect = all.iter().find_map(|c| Some((c.smb.dialect.filter(known)?, c.smb.setup.agreed)));
        match dialect {
            Some((code, at)) if code >= DIALECT_30 => self.add(Step::Dialect, Yes, dialect_name(code), at),
            Some((code, at)) => {
                let offered = all.iter().find_map(|c| c.smb.setup.offered);
                let name = dialect_name(code);
                let why = match offered {
                    Some((_, highest)) if highest >= DIALECT_30 && highest != Dialect::WILDCARD.0 => (
                        Blame::Server,
                        format!(
                            "chose {name}, though the client offers {}; SMB Direct needs SMB 3.0",
                            dialect_name(highest)
                        ),
                    ),
                    Some(_) => (Blame::Client, format!("offers nothing above {name}; SMB Direct needs SMB 3.0")),
                    // the offer of the client was not seen
                    None => (Blame::Unknown, format!("the two ends agreed on {name}; SMB Direct needs SMB 3.0")),
                };
                self.no(Step::Dialect, name, at, (Rule::SmbPathDialect, why.0, Certainty::Certain, why.1));
                stopped = true;
            }
            None => self.add(Step::Dialect, NotSeen, "", None),
        }
        let has_cap = |c: &Connection, end: usize| c.smb.setup.capabilities[end].map(|caps| caps & MULTI_CHANNEL != 0);
        for (end, step) in [(0, Step::ClientMultichannel), (1, Step::ServerMultichannel)] {
            let reported: Vec<(bool, Option<At>)> = all
                .iter()
                .filter_map(|c| {
                    let at = if end == 0 { c.smb.setup.offered.map(|(at, _)| at) } else { c.smb.setup.agreed };
                    Some((has_cap(c, end)?, at))
                })
                .collect();
            match reported.iter().find(|(yes, _)| *yes).or(reported.first()) {
                Some((true, at)) => self.add(step, Yes, "announced", *at),
                Some((false, at)) if direct || dialect.is_some_and(|(code, _)| code < DIALECT_30) => {
                    self.add(step, NotNeeded, "not announced", *at);
                }
                Some((false, at)) if end == 0 => {
                    let text = "does not announce multichannel (SMB2_GLOBAL_CAP_MULTI_CHANNEL), so it adds no channel \
                        over RDMA";
                    stopped = true;
                    self.no(
                        step,
                        "not announced",
                        *at,
                        (Rule::SmbPathClient, Blame::Client, Certainty::Certain, text.into()),
                    );
                }
                Some((false, at)) => {
                    let text = "does not offer multichannel (SMB2_GLOBAL_CAP_MULTI_CHANNEL), so no client adds a \
                        channel over RDMA";
                    stopped = true;
                    self.no(
                        step,
                        "not offered",
                        *at,
                        (Rule::SmbPathServer, Blame::Server, Certainty::Certain, text.into()),
                    );
                }
                None => self.add(step, if direct { NotNeeded } else { NotSeen }, "", None),
            }
        }
        let asked = all.iter().find_map(|c| c.smb.setup.asked);
        let sealed = all.iter().any(|c| c.smb.encrypted && c.smb.decrypted == 0);
        let whole = self.tcp.iter().any(|c| {
            c.handshake == Handshake::Seen && !c.progress.missed && c.smb.setup.set_up.is_some() && settled(c)
        });
        match asked {
            Some(at) => self.add(Step::Asked, Yes, "", Some(at)),
            None if sealed => self.add(Step::Asked, NotSeen, "encrypted", None),
            None if direct => self.add(Step::Asked, NotNeeded, "", None),
            None if whole && !stopped => {
                let text = "never asked for the server's interfaces (FSCTL_QUERY_NETWORK_INTERFACE_INFO), though both \
                    offer multichannel";
                self.no(
                    Step::Asked,
                    "never",
                    None,
                    (Rule::SmbPathAsk, Blame::Client, Certainty::IfNothingWasMissed, text.into()),
                );
            }
            None => self.add(Step::Asked, NotSeen, "", None),
        }
        let answered =
            heard(|h| h.answered.is_some_and(|(_, status)| status == 0)).or_else(|| heard(|h| h.answered.is_some()));
        let unseen = if direct && asked.is_none() { NotNeeded } else { NotSeen };
        let Some((connection, (at, status))) = answered.and_then(|c| Some((c, c.smb.setup.answered?))) else {
            for step in [Step::Answered, Step::RdmaListed, Step::Address] {
                self.add(step, unseen, "", None);
            }
            return;
        };
        let listed = &connection.smb.setup.interfaces;
        let is_cut = connection.smb.setup.is_list_cut;
        if status == 0 && is_cut && listed.is_empty() {
            self.add(Step::Answered, Yes, "with a list that was cut off", Some(at));
            self.add(Step::RdmaListed, NotSeen, "", None);
            self.add(Step::Address, NotSeen, "", None);
            return;
        }
        if status != 0 || listed.is_empty() {
            let detail = if status == 0 { String::from("an empty list") } else { status_name(status) };
            let text = format!("answered the query for its interfaces with {detail}");
            self.no(Step::Answered, detail, Some(at), (Rule::SmbPathAnswer, Blame::Server, Certainty::Certain, text));
            self.add(Step::RdmaListed, unseen, "", None);
            self.add(Step::Address, unseen, "", None);
            return;
        }
        self.add(Step::Answered, Yes, plural(listed.len(), "entry", "entries"), Some(at));
        self.listed(listed, is_cut, at);
    }

    /// Adds the rungs for the entries of a list. If the rest of it was cut off, what they lack may be there.
    fn listed(&mut self, listed: &[NetworkInterface], is_cut: bool, at: At) {
        let able: Vec<&NetworkInterface> = listed.iter().filter(|i| i.rdma).collect();
        let shown = |i: &NetworkInterface| addr(i).map_or_else(|| String::from("no address"), |a| a.to_string());
        if able.is_empty() && is_cut {
            self.add(Step::RdmaListed, State::NotSeen, "", None);
            self.add(Step::Address, State::NotSeen, "", None);
            return;
        }
        if able.is_empty() {
            let text = match listed {
                [one] => format!("lists one interface, {}, without RDMA", shown(one)),
                many => format!("lists {} interface addresses, none of them with RDMA", many.len()),
            };
            self.no(
                Step::RdmaListed,
                "none",
                Some(at),
                (Rule::SmbPathInterface, Blame::Server, Certainty::Certain, text),
            );
            self.add(Step::Address, State::NotSeen, "", None);
            return;
        }
        let addresses: Vec<String> = able.iter().map(|i| shown(i)).collect();
        self.add(Step::RdmaListed, State::Yes, addresses.join(", "), Some(at));
        let client = self.group.client;
        let is_known = |a: &Addr| self.group.servers.contains(a) || may_be_near(a, &client);
        let usable: Vec<&&NetworkInterface> = able
            .iter()
            .filter(|i| {
                i.link_speed > 0 && addr(i).is_some_and(|a| !is_link_local(&a) || self.group.servers.contains(&a))
            })
            .collect();
        let near = usable.iter().filter_map(|i| addr(i)).find(is_known);
        if let Some(near) = near {
            self.add(Step::Address, State::Yes, near.to_string(), Some(at));
        } else if !self.requests.is_empty() {
            self.add(Step::Address, State::NotNeeded, "", None);
        } else if is_cut {
            self.add(Step::Address, State::NotSeen, "", None);
        } else if usable.is_empty() {
            let why =
                if able.iter().all(|i| i.link_speed == 0) { "with link speed 0" } else { "at link-local addresses" };
            let text = format!("lists RDMA only {why}: {}", addresses.join(", "));
            self.no(
                Step::Address,
                why,
                Some(at),
                (Rule::SmbPathAddress, Blame::Server, Certainty::IfNothingWasMissed, text),
            );
        } else {
            let far: Vec<String> = usable.iter().map(|i| shown(i)).collect();
            let far = far.join(", ");
            let text =
                format!("lists RDMA only at {far}, which seems to be another subnet than the client's ({client})");
            self.no(
                Step::Address,
                "another subnet",
                Some(at),
                (Rule::SmbPathAddress, Blame::Server, Certainty::Guess, text),
            );
        }
    }

    /// Adds the rung for a client that asked for an RDMA connection.
    fn tried(&mut self) {
        if let Some(first) = self.requests.first() {
            let mut detail: Vec<String> = Vec::new();
            for t in &self.requests {
                let what = if t.transport == Transport::Iwarp { "iWARP" } else { "CM REQ" };
                let text = format!("{what} to {} port {}", t.to, t.port);
                if !detail.contains(&text) && detail.len() < 4 {
                    detail.push(text);
                }
            }
            let at = first.at;
            return self.add(Step::Tried, State::Yes, detail.join(", "), Some(at));
        }
        if let Some(c) = self.rdma.first() {
            let at = c.first;
            return self.add(Step::Tried, State::Yes, "before the capture began", Some(at));
        }
        let listed = self.tcp.iter().find(|c| c.smb.setup.interfaces.iter().any(|i| i.rdma)).copied();
        let Some(c) = listed else { return self.add(Step::Tried, State::NotSeen, "", None) };
        let since = c.smb.setup.answered.map_or(c.last, |(at, _)| at);
        // a capture on the host does not see data that an RDMA card moves; but then no data goes by TCP
        let moved =
            c.smb.setup.moved.iter().filter_map(|m| m.span).map(|(_, last)| last).max().filter(|last| *last > since);
        // what another connection of the two was for may be all that was missed
        let is_unjudged = |c: &&&Connection| c.protocol == Protocol::Unknown && c.handshake != Handshake::Seen;
        let is_known = !self.is_tried_by_stranger && self.tcp.iter().find(is_unjudged).is_none();
        if moved.is_some() && !c.progress.missed && is_known {
            let text = "never tried RDMA, although the server lists it, and reads and writes over TCP";
            self.no(
                Step::Tried,
                "no",
                Some(since),
                (Rule::SmbPathTry, Blame::Client, Certainty::IfNothingWasMissed, text.into()),
            );
        } else {
            self.add(Step::Tried, State::NotSeen, "", None);
        }
    }

    /// Adds the rung for an RDMA connection that was accepted.
    fn accepted(&mut self, (refused, silent): (Rule, Rule)) {
        let is_there = self.rdma.iter().any(|c| matches!(c.protocol, Protocol::SmbDirect | Protocol::RpcRdma));
        if is_there || self.requests.iter().any(|t| t.fate == AttemptOutcome::Accepted) {
            let kind = self.rdma.iter().find_map(|c| c.transport).map_or("", Transport::name);
            // the acceptance; of a connection that was open before the capture, its first frame
            let accepted = self.rdma.iter().filter_map(|c| c.progress.accepted).min();
            let asked = self.requests.iter().filter(|t| t.fate == AttemptOutcome::Accepted);
            let at = accepted.or_else(|| asked.filter_map(|t| t.accepted).min());
            let at = at.or_else(|| self.rdma.first().map(|c| c.first));
            return self.add(Step::Accepted, State::Yes, kind, at);
        }
        let reported: Vec<&ConnectionRequest> =
            self.requests.iter().filter(|t| t.fate != AttemptOutcome::Open).collect();
        let Some(first) = reported.first() else { return self.add(Step::Accepted, State::NotSeen, "", None) };
        // the clearest answer there was
        let clearest = reported.iter().min_by_key(|t| match &t.fate {
            AttemptOutcome::Rejected(_) => 0,
            AttemptOutcome::Unreachable(..) => 1,
            AttemptOutcome::Reset => 2,
            AttemptOutcome::Otherwise => 3,
            AttemptOutcome::Mute => 4,
            AttemptOutcome::Unreached => 5,
            _ => 6,
        });
        let clearest = clearest.unwrap_or(first);
        let at = Some(clearest.at);
        if self.has_unknown_pair {
            // it may be the RDMA connection of another request
            return self.add(Step::Accepted, State::NotSeen, "", at);
        }
        // the refusal was seen; that no later request was accepted rests on all that the capture missed, and on the
        // time that a client needs for the next one
        let answered_at = clearest.frames.last().copied().unwrap_or(clearest.at);
        let gave_up = self.tcp.iter().any(|c| has_session(c) && c.last > answered_at);
        let is_late = gave_up || self.end.since(answered_at) >= PATIENCE;
        let certainty = if is_late { Certainty::IfNothingWasMissed } else { Certainty::Guess };
        let of = |is_it: &dyn Fn(&ConnectionRequest) -> bool| {
            let mut ports: Vec<u16> = reported.iter().filter(|t| is_it(t)).map(|t| t.port).collect();
            ports.sort_unstable();
            ports.dedup();
            ports
        };
        let named = |ports: &[u16]| {
            let list: Vec<String> = ports.iter().map(ToString::to_string).collect();
            format!("{} {}", if ports.len() == 1 { "port" } else { "ports" }, list.join(" and "))
        };
        // one answer is not that of another port
        let answered = of(&|t| core::mem::discriminant(&t.fate) == core::mem::discriminant(&clearest.fate));
        let mut unanswered = of(&|t| t.fate == AttemptOutcome::Silent);
        unanswered.retain(|port| !answered.contains(port));
        let ports = named(&answered);
        let to = clearest.to;
        let rest = if self.tcp.iter().any(|c| has_session(c)) {
            format!("; {} runs over TCP", self.group.kind.name())
        } else {
            String::new()
        };
        let elsewhere = self.rpcbind.rdma().filter(|listed| reported.iter().all(|t| t.port != *listed));
        let rest =
            elsewhere.map_or(rest.clone(), |listed| format!("; rpcbind lists NFS for RDMA at port {listed}{rest}"));
        let silence =
            if unanswered.is_empty() { String::new() } else { format!("; no answer on {}", named(&unanswered)) };
        let mut mute = of(&|t| t.fate == AttemptOutcome::Mute);
        mute.retain(|port| !answered.contains(port));
        let mute = if mute.is_empty() { String::new() } else { format!("; no MPA Reply on {}", named(&mute)) };
        let rest = format!("{silence}{mute}{rest}");
        match &clearest.fate {
            AttemptOutcome::Rejected(reason) => {
                let text = format!("rejected RDMA on {ports}: {reason}{rest}");
                let short = format!("rejected: {reason}");
                self.no(Step::Accepted, short, Some(answered_at), (refused, Blame::Server, certainty, text));
            }
            AttemptOutcome::Unreachable(by, reason) => {
                let what =
                    if clearest.transport == Transport::Iwarp { ports } else { format!("UDP port {ROCE} (RoCEv2)") };
                // a router or a firewall on the way reports that, too
                let (whose, blame) =
                    if *by == to { (String::new(), Blame::Server) } else { (format!(" of {to}"), Blame::Network) };
                let text = format!("{by} reported that {what}{whose} cannot be reached ({}){rest}", reason.name());
                self.no(Step::Accepted, reason.name(), at, (refused, blame, certainty, text));
            }
            AttemptOutcome::Reset => {
                let text = format!("reset the connection to {ports}{rest}");
                self.no(Step::Accepted, "reset", at, (refused, Blame::Server, certainty, text));
            }
            AttemptOutcome::Unreached => {
                let text = format!(
                    "the answers of {to} to the RDMA connection requests on {ports} did not reach the client{rest}"
                );
                self.no(Step::Accepted, "the answer did not arrive", at, (silent, Blame::Network, certainty, text));
                self.because(ONE_WAY);
            }
            AttemptOutcome::Mute => {
                let text = format!("took the TCP connection to {ports}, and sent no MPA Reply{rest}");
                self.no(Step::Accepted, "no MPA Reply", at, (refused, Blame::Server, certainty, text));
                self.because("What listens on that TCP port does not speak iWARP, or hangs before it answers");
            }
            AttemptOutcome::Otherwise => {
                let text = format!("answered the MPA Request on {ports} with something other than an MPA Reply{rest}");
                self.no(Step::Accepted, "no MPA Reply", at, (refused, Blame::Server, certainty, text));
            }
            _ => {
                // of one direction alone, or of a part of the packets, an answer may be missing
                let is_heard = |c: &&&Connection| has_session(c) && !c.progress.missed;
                let heard = reported.iter().any(|t| t.heard) || self.tcp.iter().find(is_heard).is_some();
                let certainty = if heard { Certainty::IfNothingWasMissed } else { Certainty::Guess };
                let n = reported.len();
                let mut others: Vec<Addr> = reported.iter().map(|t| t.to).filter(|other| *other != to).collect();
                others.sort_unstable();
                others.dedup();
                let to = match others.len() {
                    0 => format!("{to} {ports}"),
                    1 => format!("{to} and {}, {ports},", others[0]),
                    more => format!("{to} and {more} more addresses, {ports},"),
                };
                let text = if n == 1 {
                    format!("the RDMA connection request to {to} was never answered{rest}")
                } else {
                    format!("the {n} RDMA connection requests to {to} were never answered{rest}")
                };
                self.no(Step::Accepted, "no answer", at, (silent, Blame::Unknown, certainty, text));
            }
        }
    }

    /// SMB Direct and the session on it.
    fn session(&mut self) {
        let direct: Vec<&'r Connection> =
            self.rdma.iter().copied().filter(|c| c.protocol == Protocol::SmbDirect).collect();
        let agreed = direct.iter().find(|c| c.negotiated.status == Some(0) && !refused_by_client(c) || has_session(c));
        if let Some(c) = agreed {
            let sizes = c
                .negotiated
                .max_receive_size
                .map(|s| s.map_or_else(|| String::from("?"), |s| Grouped(s.into()).to_string()));
            let at = c.progress.negotiation[1];
            let text =
                if at.is_some() { format!("receive sizes {} and {}", sizes[0], sizes[1]) } else { String::new() };
            self.add(Step::Negotiated, State::Yes, text, at);
        } else if let Some(c) = direct.iter().find(|c| c.outcome.as_ref().is_some_and(crate::outcome::Outcome::failed))
        {
            let at = c.outcome.as_ref().map(|o| o.at);
            self.add(Step::Negotiated, State::No, "failed", at);
        } else {
            self.add(Step::Negotiated, State::NotSeen, "", None);
        }
        let bound = direct.iter().find_map(|c| Some((c.smb.setup.binding?, *c)));
        if let Some(c) = direct.iter().find(|c| has_session(c)) {
            let text = if bound.is_some() { "bound as a channel" } else { "" };
            let at = c.smb.setup.set_up;
            self.add(Step::Session, State::Yes, text, at);
        } else if let Some(((at, Some(status)), _)) = bound.filter(|((_, status), _)| status.is_some_and(|s| s != 0)) {
            let detail = status_name(status);
            let text = format!("refused to bind the RDMA connection to the session: {detail}");
            self.no(Step::Session, detail, Some(at), (Rule::SmbPathBind, Blame::Server, Certainty::Certain, text));
        } else if let Some((at, status)) = direct.iter().find_map(|c| c.smb.setup.refused) {
            self.add(Step::Session, State::No, status_name(status), Some(at));
        } else {
            self.add(Step::Session, State::NotSeen, "", None);
        }
    }

    /// Adds the rung for READ and WRITE that let RDMA move their data: all of them, or those of a session whose data it
    /// does not move, if there is one.
    fn used(&mut self) {
        let direct: Vec<&'r Connection> =
            self.rdma.iter().copied().filter(|c| c.protocol == Protocol::SmbDirect).collect();
        let is_inline = |c: &&&'r Connection| {
            let [read, write] = &c.smb.setup.moved;
            let is_large = read.inline_most.max(write.inline_most) >= SMALL;
            read.by_rdma + write.by_rdma == 0 && read.inline + write.inline > 0 && is_large
        };
        // the channels of a session share its work; a server that was restarted gives the same ids again
        let of_one = direct.iter().filter(is_inline).map(|c| {
            let shares = |other: &&&'r Connection| {
                let is_beside = other.first <= end(c) && c.first <= end(other);
                other.id == c.id || is_beside && shares_session(c, other)
            };
            direct.iter().filter(shares).copied().collect::<Vec<_>>()
        });
        let uses =
            |c: &&'r Connection| c.smb.setup.moved.iter().any(|m| m.by_rdma > 0) || c.rdma.reads + c.rdma.writes > 0;
        let without: Vec<Vec<&'r Connection>> = of_one.filter(|session| !session.iter().any(uses)).collect();
        let others = direct.iter().any(uses);
        match without.into_iter().next().filter(|_| others) {
            Some(session) => self.used_by(&session, true),
            None => self.used_by(&direct, false),
        }
    }

    /// The same for these connections: of one session, or of all.
    fn used_by(&mut self, direct: &[&'r Connection], is_one: bool) {
        let mut moved = [Moved::default(); 2];
        for c in direct {
            moved.iter_mut().zip(&c.smb.setup.moved).for_each(|(sum, m)| sum.join(m));
        }
        let mut detail: Vec<String> = Vec::new();
        for (m, name) in moved.iter().zip(["READ", "WRITE"]) {
            if let Some(least) = m.rdma_least {
                detail.push(format!("{name} from {} B", Grouped(least.into())));
            }
            if m.inline > 0 && m.inline_bytes > 0 {
                detail.push(format!("{name} to {} B in messages", Grouped(m.inline_most.into())));
            }
        }
        let (by_rdma, inline) = (moved[0].by_rdma + moved[1].by_rdma, moved[0].inline + moved[1].inline);
        let at = moved.iter().filter_map(|m| m.span).map(|(first, _)| first).min();
        let most = moved[0].inline_most.max(moved[1].inline_most);
        if by_rdma > 0 {
            return self.add(Step::Used, State::Yes, detail.join(", "), at);
        }
        let raw: u64 = direct.iter().map(|c| c.rdma.reads + c.rdma.writes).sum();
        if raw > 0 {
            return self.add(Step::Used, State::Yes, "requests not seen or encrypted", None);
        }
        if inline == 0 || most < SMALL {
            let text =
                if inline == 0 { String::new() } else { format!("nothing larger than {} B", Grouped(most.into())) };
            return self.add(Step::Used, State::NotSeen, text, at);
        }
        let encrypted = direct.iter().any(|c| c.smb.encrypted);
        // of a session that does not sign, messages of the set-up are signed all the same
        let signed = moved.iter().map(|m| m.inline_signed).sum::<u64>();
        let transforms = direct.iter().any(|c| c.smb.setup.transforms);
        let why = match (encrypted, signed == inline) {
            (true, _) if !transforms => ": the session is encrypted, and no RDMA transform was negotiated",
            (true, _) => ": the session is encrypted",
            (false, true) => ": the session is signed",
            (false, false) => "",
        };
        let whose = match direct.first().filter(|_| is_one) {
            Some(c) => format!(" of one session (connection {})", c.id),
            None => String::new(),
        };
        let text = format!(
            "moves the data of {}{whose}, up to {} B each, in messages and not by RDMA{why}",
            plural_io(inline),
            Grouped(most.into())
        );
        let short = format!("{}{why}", detail.join(", "));
        // unseen data may have moved otherwise, and so may data after a capture of a few requests
        let is_early = why.is_empty() && inline < INLINE_ENOUGH && direct.iter().any(|c| c.closed.is_none());
        let is_missed = direct.iter().any(|c| c.progress.missed);
        let certainty = if is_missed || is_early { Certainty::Guess } else { Certainty::IfNothingWasMissed };
        self.no(Step::Used, short, at, (Rule::SmbPathInline, Blame::Client, certainty, text));
        // the rule has a cause for data that is protected, and one for data that is not
        if let ([protected, plain], Some(draft)) = (Rule::SmbPathInline.row().causes, self.drafts.last_mut()) {
            draft.why = match (why.is_empty(), signed) {
                (false, _) => Some(*protected),
                (true, 0) => Some(*plain),
                (true, _) => None,
            };
        }
    }

    /// Adds the rung for data that continued to go by RDMA.
    fn kept(&mut self, rule: Rule) {
        let used: Vec<&'r Connection> = self.rdma.iter().copied().filter(|c| has_session(c)).collect();
        if used.is_empty() {
            return self.add(Step::Kept, State::NotSeen, "", None);
        }
        let ended_before = |at: At| used.iter().copied().filter(move |c| end(c) < at);
        // one that RDMA joins begins a session that has several channels
        let is_alone = |c: &&Connection| {
            ended_before(c.first).count() > 0 && !used.iter().any(|r| end(r) >= c.first && r.first <= end(c))
        };
        let later = self.tcp.iter().copied().filter(|c| has_session(c) && does_work(c)).find(is_alone);
        let used: Vec<&'r Connection> = later.map_or(used.clone(), |c| ended_before(c.first).collect());
        let last = used.iter().map(|c| end(c)).max().unwrap_or_default();
        let all_over = used.iter().all(|c| c.closed.is_some());
        let back = later.and_then(|c| self.rdma.iter().find(|r| has_session(r) && r.first > end(c)));
        // where RDMA comes back, it may have been another mount, or a session that ended before RDMA joined it
        let is_doubtful = |c: &Connection| {
            let is_beside = |other: &Connection| {
                let overlaps = used.iter().any(|r| other.first <= end(r) && r.first <= end(other));
                does_work(other) && overlaps && !used.iter().any(|r| shares_session(other, r))
            };
            let others = self.tcp.iter().filter(|other| other.id != c.id);
            back.is_some() && (end(c).since(c.first) < BRIEF || others.copied().any(is_beside))
        };
        let later = later.filter(|c| !is_doubtful(c));
        let sure = if back.is_some() { Certainty::Guess } else { Certainty::IfNothingWasMissed };
        let back = back.map_or(String::new(), |r| {
            format!("; it came back to RDMA {} later (connection {})", Elapsed(r.first.since(last)), r.id)
        });
        let name = self.group.kind.name();
        match later.map(|c| (c.id, c.first.time.saturating_sub(last.time))) {
            Some((id, _)) if all_over => {
                let text =
                    format!("{name} went on over TCP (connection {id}) after its RDMA connection had ended{back}");
                self.no(Step::Kept, "went on over TCP", Some(last), (rule, Blame::Unknown, sure, text));
                // who ends its session does so on purpose
                let in_order = |c: &&Connection| {
                    let ends = |name: &str| matches!(name, "LOGOFF" | "DESTROY_SESSION" | "DESTROY_CLIENTID");
                    c.commands.iter().any(|row| ends(row.name) && row.count > row.errors + row.unanswered)
                };
                if used.iter().all(in_order) {
                    self.because("The client ended its session, as by an unmount, and used TCP from then on");
                }
            }
            // a link that went down takes the end of its connections with it
            Some((id, silent)) if silent >= SILENT => {
                let text = format!(
                    "{name} went on over TCP (connection {id}); its RDMA connection had been silent for {} by then, \
                        and stayed silent{back}",
                    Elapsed(silent)
                );
                self.no(
                    Step::Kept,
                    "silent; went on over TCP",
                    Some(last),
                    (rule, Blame::Unknown, Certainty::Guess, text),
                );
                self.because("The RDMA connection is idle, or its link is down: the capture does not show its end");
            }
            _ => self.add(Step::Kept, State::Yes, "", None),
        }
    }

    // ── NFS ─────────────────────────────────────────────────────────────────────────────────────────────────────────

    /// `None` if there is no sign of RDMA.
    fn nfs(&mut self) -> Option<()> {
        if !self.is_hinted() {
            return None;
        }
        self.registered();
        if self.requests.is_empty() && self.rdma.is_empty() {
            let c = self.tcp.iter().copied().find(|c| does_work(c) && c.handshake == Handshake::Seen)?;
            let text = match self.rpcbind.rdma() {
                Some(port) => format!(
                    "mounts over TCP, though rpcbind of the server lists NFS for RDMA (netid rdma, port {port})"
                ),
                None => String::from("mounts over TCP from a server that serves others by RDMA"),
            };
            let why = (Rule::NfsPathTcp, Blame::Client, Certainty::IfNothingWasMissed, text);
            self.no(Step::Tried, "no", Some(c.first), why);
            return Some(());
        }
        self.tried();
        self.accepted((Rule::NfsPathRefused, Rule::NfsPathSilent));
        let rpc: Vec<&'r Connection> = self.rdma.iter().copied().filter(|c| c.protocol == Protocol::RpcRdma).collect();
        self.private_data(&rpc);
        let answered = rpc.iter().find(|c| has_session(c)).map(|c| c.first);
        self.add(Step::Negotiated, if answered.is_some() { State::Yes } else { State::NotSeen }, "", answered);
        let moved: u64 = rpc.iter().map(|c| c.rdma.reads + c.rdma.writes).sum();
        let text = if moved > 0 { plural(moved as usize, "RDMA operation", "RDMA operations") } else { String::new() };
        self.add(Step::Used, if moved > 0 { State::Yes } else { State::NotSeen }, text, None);
        self.kept(Rule::NfsPathFallback);
        Some(())
    }

    /// Adds the rungs for the ports of NFS, as rpcbind says. A client that goes to port 20049 at once needs no answer,
    /// and Linux does not register RDMA.
    fn registered(&mut self) {
        use State::{NotNeeded, NotSeen, Yes};
        let direct = !self.requests.is_empty() || !self.rdma.is_empty();
        let unseen = if direct { NotNeeded } else { NotSeen };
        match (self.rpcbind.answered, self.rpcbind.asked) {
            (Some(at), _) => self.add(Step::Rpcbind, Yes, self.rpcbind.text(), Some(at)),
            (None, Some(at)) => self.add(Step::Rpcbind, NotSeen, "no answer", Some(at)),
            (None, None) => self.add(Step::Rpcbind, unseen, "", None),
        }
        match self.rpcbind.rdma() {
            Some(port) => self.add(Step::Netid, Yes, format!("port {port}"), self.rpcbind.answered),
            None => self.add(Step::Netid, unseen, "", None),
        }
    }

    /// Adds the rung for the sizes that both sides sent with the handshake (RFC 8797): without that each uses the
    /// default.
    fn private_data(&mut self, rpc: &[&Connection]) {
        let Some((at, private)) = rpc.iter().find_map(|c| Some((c.first, c.rpc_rdma_private?))) else {
            return self.add(Step::PrivateData, State::NotSeen, "", None);
        };
        let (state, text) = match private {
            [Some(client), Some(server)] => {
                let sizes = [client, server].map(|p| Grouped(p.receive_size().into()));
                let and = if client.remote_invalidation() && server.remote_invalidation() {
                    ", remote invalidation"
                } else {
                    ""
                };
                (State::Yes, format!("inline {} and {} bytes{and}", sizes[0], sizes[1]))
            }
            [Some(_), None] => (State::NotNeeded, String::from("of the client only: inline 1,024 bytes")),
            [None, Some(_)] => (State::NotNeeded, String::from("of the server only: inline 1,024 bytes")),
            [None, None] => (State::NotNeeded, String::from("none: inline 1,024 bytes")),
        };
        self.add(Step::PrivateData, state, text, Some(at));
    }
}

/// A TCP connection that was to carry RDMA, and did not come so far that it does.
fn is_try(c: &Connection) -> bool {
    let unknown = c.protocol == Protocol::Unknown;
    c.transport == Some(Transport::Iwarp) && unknown
        || c.transport == Some(Transport::Tcp) && unknown && matches!(c.peers[1].port, 5445 | 20049)
}

/// True if requests were answered on it, for SMB those of a session.
fn has_session(c: &Connection) -> bool {
    let done = |r: &crate::report::Command| r.count > r.errors + r.unanswered;
    let is_smb = matches!(c.protocol, Protocol::SmbDirect | Protocol::Smb2);
    let sealed = c.smb.sealed.iter().all(|(n, _)| *n > 0);
    // a leg of an authentication is no session
    let is_of_session = |name: &str| name != "NEGOTIATE" && (name != "SESSION_SETUP" || c.smb.setup.set_up.is_some());
    sealed || c.commands.iter().any(|r| done(r) && (!is_smb || is_of_session(r.name)))
}

/// True if files were worked with on it.
fn does_work(c: &Connection) -> bool {
    let sealed = c.smb.sealed.iter().all(|(n, _)| *n > 4);
    sealed
        || c.commands
            .iter()
            .any(|r| matches!(r.name, "READ" | "WRITE" | "CREATE" | "OPEN" | "GETATTR") && r.count > r.unanswered)
}

/// True if two connections carry the same session.
fn shares_session(c: &Connection, other: &Connection) -> bool {
    other.smb.sessions.iter().any(|id| c.smb.sessions.contains(id))
}

/// The end of a connection, or its last frame.
fn end(c: &Connection) -> At {
    c.closed.map_or(c.last, |(.., at)| at)
}

/// True if the client left after the negotiation that the server accepted.
fn refused_by_client(c: &Connection) -> bool {
    c.outcome.as_ref().is_some_and(|o| o.ending == crate::outcome::Ending::NoNegotiation)
}

fn plural(n: usize, one: &str, many: &str) -> String {
    format!("{n} {}", if n == 1 { one } else { many })
}

fn plural_io(n: u64) -> String {
    format!("{} {}", Grouped(n), if n == 1 { "READ or WRITE" } else { "READs and WRITEs" })
}

stored_enum!(Kind { Smb, Nfs });
stored_enum!(Step {
    Dialect,
    ClientMultichannel,
    ServerMultichannel,
    Asked,
    Answered,
    RdmaListed,
    Address,
    Rpcbind,
    Netid,
    Tried,
    Accepted,
    PrivateData,
    Negotiated,
    Session,
    Used,
    Kept
});
stored_enum!(State { Yes, No, NotSeen, NotNeeded });
stored_enum!(Carried { Rdma, Tcp, Both, Nothing });
stored!(Rung { step, state, text, at });
stored!(Obstacle { step, rule, by, severity, certainty, text, at, connection, frames, requests, reported, why });
stored!(Path { kind, client, server, connections, carried, rungs, interfaces, verdict });

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::{Command, Peer, Progress};
    use crate::rpcbind::Netid;
    use alloc::vec;
    use rdmascope_dissector::frame::Unreachable;
    use rdmascope_dissector::trace::Off;
    use rdmascope_dissector::wire::ib::cm::RpcRdmaPrivate;
    use rdmascope_dissector::wire::smb2::ioctl;

    const CLIENT: Addr = Addr::V4([192, 0, 2, 2]);
    const SERVER: Addr = Addr::V4([192, 0, 2, 1]);
    const SECOND: i64 = 1_000_000_000;

    fn at(seconds: i64) -> At {
        At { frame: seconds.unsigned_abs() + 1, time: seconds * SECOND }
    }

    fn row(name: &'static str, count: u64) -> Command {
        Command { name, count, ..Command::default() }
    }

    fn interface(address: [u8; 4], rdma: bool) -> NetworkInterface {
        NetworkInterface { index: 1, rss: false, rdma, link_speed: 10_000_000_000, address: Some(address.into()) }
    }

    fn connection(id: u32, transport: Transport, protocol: Protocol, port: u16, first: i64) -> Connection {
        let peer = |address, port| Peer { address, port, qp: None };
        Connection {
            id,
            transport: Some(transport),
            protocol,
            peers: [peer(CLIENT, 40_000), peer(SERVER, port)],
            client_known: true,
            first: at(first),
            last: at(first + 5),
            handshake: Handshake::Seen,
            closed: Some((Some(0), "FIN", at(first + 5))),
            progress: Progress { connected: true, ..Progress::default() },
            ..Connection::default()
        }
    }

    /// A session over TCP whose server lists an RDMA interface, and which reads and writes.
    fn over_tcp() -> Connection {
        let mut c = connection(1, Transport::Tcp, Protocol::Smb2, 445, 20);
        c.commands = vec![row("SESSION_SETUP", 2), row("CREATE", 2), row("READ", 4)];
        c.smb.dialect = Some(0x0311);
        c.smb.setup = SmbSetup {
            offered: Some((at(20), 0x0311)),
            capabilities: [Some(MULTI_CHANNEL), Some(MULTI_CHANNEL)],
            agreed: Some(at(20)),
            set_up: Some(at(21)),
            asked: Some(at(21)),
            answered: Some((at(21), 0)),
            interfaces: vec![interface([192, 0, 2, 1], true)],
            moved: [Moved {
                inline: 4,
                inline_bytes: 65_536,
                inline_most: 16_384,
                span: Some((at(22), at(24))),
                ..Moved::default()
            }; 2],
            ..SmbSetup::default()
        };
        c
    }

    /// A session over SMB Direct whose READs and WRITEs use RDMA.
    fn over_rdma() -> Connection {
        let mut c = connection(2, Transport::RoceV2, Protocol::SmbDirect, 445, 5);
        c.commands = vec![row("SESSION_SETUP", 2), row("READ", 4)];
        c.smb.dialect = Some(0x0311);
        c.negotiated.status = Some(0);
        c.rdma.writes = 4;
        c.smb.setup.moved[0] = Moved { by_rdma: 4, rdma_bytes: 65_536, rdma_least: Some(4096), ..Moved::default() };
        c
    }

    fn attempt(port: u16, seconds: i64, answer: CmAnswer) -> Attempt {
        Attempt {
            at: at(seconds),
            client: CLIENT,
            server: SERVER,
            hosts: None,
            port,
            transport: Transport::RoceV2,
            udp_port: Some(0xc001),
            sent: 1,
            heard: true,
            answer,
        }
    }

    fn report(connections: Vec<Connection>) -> Report {
        let mut report = Report { connections, ..Report::default() };
        report.capture.last = Some(at(60));
        report
    }

    fn climb(connections: Vec<Connection>, attempts: &[Attempt]) -> Path {
        let mut paths = paths(&report(connections), attempts, &[]);
        assert_eq!(paths.len(), 1);
        paths.remove(0)
    }

    fn verdict(connections: Vec<Connection>, attempts: &[Attempt]) -> Option<(Rule, Blame, Severity)> {
        climb(connections, attempts).verdict.map(|v| (v.rule, v.by, v.severity))
    }

    fn changed(change: impl FnOnce(&mut Connection)) -> Vec<Connection> {
        let mut c = over_tcp();
        change(&mut c);
        vec![c]
    }

    #[test]
    fn a_server_that_lists_rdma_and_a_client_that_does_not_try_it() {
        let path = climb(vec![over_tcp()], &[]);
        assert_eq!((path.carried, path.first_no().map(|r| r.step)), (Carried::Tcp, Some(Step::Tried)));
        assert_eq!(verdict(vec![over_tcp()], &[]), Some((Rule::SmbPathTry, Blame::Client, Severity::Warn)));
        // without data over TCP, RDMA may carry it unseen by the capture
        assert_eq!(verdict(changed(|c| c.smb.setup.moved = [Moved::default(); 2]), &[]), None);
    }

    #[test]
    fn the_first_no_is_what_stopped_them() {
        let plain = |change: fn(&mut Connection)| {
            verdict(
                changed(|c| {
                    c.smb.setup.interfaces[0].rdma = false;
                    change(c);
                }),
                &[],
            )
        };
        assert_eq!(plain(|_| ()), Some((Rule::SmbPathInterface, Blame::Server, Severity::Note)));
        assert_eq!(
            plain(|c| c.smb.setup.interfaces.clear()),
            Some((Rule::SmbPathAnswer, Blame::Server, Severity::Note))
        );
        assert_eq!(
            plain(|c| c.smb.setup.answered = Some((at(21), 0xc000_00bb))),
            Some((Rule::SmbPathAnswer, Blame::Server, Severity::Note))
        );
        let unasked = |c: &mut Connection| (c.smb.setup.asked, c.smb.setup.answered) = (None, None);
        assert_eq!(plain(unasked), Some((Rule::SmbPathAsk, Blame::Client, Severity::Note)));
        assert_eq!(
            plain(|c| c.smb.setup.capabilities[1] = Some(0)),
            Some((Rule::SmbPathServer, Blame::Server, Severity::Note))
        );
        assert_eq!(
            plain(|c| c.smb.setup.capabilities[0] = Some(0)),
            Some((Rule::SmbPathClient, Blame::Client, Severity::Note))
        );
        let old = |c: &mut Connection| (c.smb.dialect, c.smb.setup.offered) = (Some(0x0210), Some((at(20), 0x0210)));
        assert_eq!(plain(old), Some((Rule::SmbPathDialect, Blame::Client, Severity::Note)));
        assert_eq!(
            plain(|c| c.smb.dialect = Some(0x0210)),
            Some((Rule::SmbPathDialect, Blame::Server, Severity::Note))
        );
        let unseen = |c: &mut Connection| (c.smb.dialect, c.smb.setup.offered) = (Some(0x0210), None);
        assert_eq!(plain(unseen), Some((Rule::SmbPathDialect, Blame::Unknown, Severity::Note)));
    }

    #[test]
    fn what_was_not_seen_blames_nobody() {
        // the capture began after the session did
        let late = changed(|c| {
            c.handshake = Handshake::Inferred;
            c.progress.missed = true;
            c.smb.dialect = None;
            c.smb.setup = SmbSetup { moved: c.smb.setup.moved, ..SmbSetup::default() };
        });
        let path = climb(late, &[]);
        assert!(path.rungs.iter().all(|r| r.state != State::No), "{path:?}");
        // encrypted messages cannot be read
        let sealed = changed(|c| {
            (c.smb.encrypted, c.smb.setup.asked, c.smb.setup.answered) = (true, None, None);
            c.smb.setup.interfaces.clear();
        });
        assert_eq!(verdict(sealed, &[]), None);
        // a young session may still ask
        let young = changed(|c| {
            (c.closed, c.first, c.smb.setup.asked, c.smb.setup.answered) = (None, at(55), None, None);
            c.smb.setup.interfaces.clear();
        });
        assert_eq!(verdict(young, &[]), None);
    }

    #[test]
    fn addresses_out_of_reach() {
        let at_address = |address: [u8; 4], speed| {
            changed(|c| {
                c.smb.setup.interfaces = vec![interface([192, 0, 2, 1], false), interface(address, true)];
                c.smb.setup.interfaces[1].link_speed = speed;
            })
        };
        let found = Some((Rule::SmbPathAddress, Blame::Server, Severity::Warn));
        assert_eq!(verdict(at_address([198, 51, 100, 1], 1), &[]), found);
        assert_eq!(verdict(at_address([169, 254, 0, 1], 1), &[]), found);
        assert_eq!(verdict(at_address([192, 0, 2, 9], 0), &[]), found);
        assert_eq!(verdict(at_address([192, 0, 2, 9], 1), &[]).map(|v| v.0), Some(Rule::SmbPathTry));
        let guess = climb(at_address([198, 51, 100, 1], 1), &[]).verdict.map(|v| v.certainty);
        assert_eq!(guess, Some(Certainty::Guess), "there may be a route");
    }

    #[test]
    fn of_a_list_that_was_cut_off_only_what_is_there_counts() {
        let cut = |interfaces: Vec<NetworkInterface>| {
            let path = climb(
                changed(|c| {
                    (c.smb.setup.interfaces, c.smb.setup.is_list_cut) = (interfaces, true);
                    c.smb.setup.moved = [Moved::default(); 2];
                }),
                &[],
            );
            let of = |step: Step| path.rungs.iter().find(|rung| rung.step == step).map(|rung| rung.state);
            assert_eq!(path.verdict.map(|v| v.rule), None);
            [of(Step::Answered), of(Step::RdmaListed), of(Step::Address)].map(|state| state.expect("a rung"))
        };
        use State::{NotSeen, Yes};
        assert_eq!(cut(vec![]), [Yes, NotSeen, NotSeen]);
        assert_eq!(cut(vec![interface([192, 0, 2, 1], false)]), [Yes, NotSeen, NotSeen]);
        assert_eq!(cut(vec![interface([169, 254, 0, 1], true)]), [Yes, Yes, NotSeen]);
        assert_eq!(cut(vec![interface([198, 51, 100, 1], true)]), [Yes, Yes, NotSeen]);
        assert_eq!(cut(vec![interface([192, 0, 2, 1], true)]), [Yes; 3]);
        // its reply
        let answer = |length: u32, bytes: &[u8]| {
            let mut body = vec![0; 64];
            // \[MS-SMB2\] 2.2.32
            body.extend([49, 0, 0, 0]);
            body.extend(0x0014_01fc_u32.to_le_bytes());
            body.extend([0xff; 16]);
            body.extend([[0; 4], [0; 4], [112, 0, 0, 0], length.to_le_bytes(), [0; 4], [0; 4]].concat());
            body.extend_from_slice(bytes);
            let (_, reply) = ioctl::response(&body, &mut Off).expect("it has its fixed part");
            let mut setup = SmbSetup::default();
            setup.answer(at(1), 0, Some(&reply));
            (setup.interfaces.len(), setup.is_list_cut)
        };
        assert_eq!(
            [answer(152, &[0; 152]), answer(152, &[0; 151]), answer(152, &[])],
            [(1, false), (1, true), (0, true)]
        );
        assert_eq!(answer(0, &[]), (0, false));
        let mut unread = SmbSetup::default();
        unread.answer(at(1), 0, None);
        let mut refused = SmbSetup::default();
        refused.answer(at(1), 0xc000_00bb, None);
        assert_eq!([unread.is_list_cut, refused.is_list_cut], [true, false]);
    }

    #[test]
    fn attempts_that_came_to_nothing() {
        let rejected = [
            attempt(5445, 1, CmAnswer::Rejected(at(2), "Invalid service ID".into())),
            attempt(445, 3, CmAnswer::TakenBack(at(8))),
        ];
        assert_eq!(verdict(vec![over_tcp()], &rejected), Some((Rule::SmbPathRefused, Blame::Server, Severity::Warn)));
        assert_eq!(verdict(Vec::new(), &rejected), Some((Rule::SmbPathRefused, Blame::Server, Severity::Error)));
        let silent = [attempt(445, 3, CmAnswer::TakenBack(at(8)))];
        assert_eq!(verdict(vec![over_tcp()], &silent), Some((Rule::SmbPathSilent, Blame::Unknown, Severity::Warn)));
        // a server that has no RDMA at all says so
        let none = changed(|c| c.smb.setup.interfaces[0].rdma = false);
        assert_eq!(verdict(none, &silent), Some((Rule::SmbPathInterface, Blame::Server, Severity::Warn)));
        // a client that goes to RDMA at once needs no list
        let unasked =
            changed(|c| (c.smb.setup.asked, c.smb.setup.answered, c.smb.setup.capabilities[0]) = (None, None, Some(0)));
        assert_eq!(verdict(unasked, &rejected).map(|v| v.0), Some(Rule::SmbPathRefused));
        // too young to tell, and one that got through
        assert_eq!(verdict(Vec::new(), &[attempt(445, 59, CmAnswer::None)]), None);
        let through =
            [attempt(5445, 1, CmAnswer::Rejected(at(2), "No".into())), attempt(445, 3, CmAnswer::Accepted(at(4)))];
        assert_eq!(verdict(vec![over_rdma()], &through), None);
    }

    /// A refusal is sure; that no later request was accepted is not.
    #[test]
    fn a_refusal_at_the_end_of_a_capture_is_a_guess() {
        let refused = |end: i64, connections: Vec<Connection>| {
            let mut report = report(connections);
            report.capture.last = Some(at(end));
            let rejected = [attempt(5445, 1, CmAnswer::Rejected(at(2), "Invalid service ID".into()))];
            paths(&report, &rejected, &[]).remove(0).verdict.map(|v| (v.rule, v.certainty, v.severity))
        };
        assert_eq!(refused(3, Vec::new()), Some((Rule::SmbPathRefused, Certainty::Guess, Severity::Warn)));
        assert_eq!(
            refused(60, Vec::new()),
            Some((Rule::SmbPathRefused, Certainty::IfNothingWasMissed, Severity::Error))
        );
        assert_eq!(refused(60, vec![over_tcp()]).map(|v| v.1), Some(Certainty::IfNothingWasMissed));
        // queue pairs of the two whose handshake was not captured
        let unknown = connection(3, Transport::RoceV2, Protocol::Unknown, 0, 10);
        assert_eq!(refused(60, vec![unknown]), None);
    }

    /// Only a connection that the capture saw begin can have been asked for in vain.
    #[test]
    fn the_end_of_a_connection_is_no_silence() {
        let heard = |unheard: bool, handshake: Handshake, changed: bool| {
            let mut c = connection(1, Transport::Iwarp, Protocol::Unknown, 5445, 1);
            (c.handshake, c.progress.connected, c.progress.changed) = (handshake, false, changed);
            c.progress.unheard = unheard;
            verdict(vec![c], &[]).map(|v| v.0)
        };
        let tried = |handshake, changed| heard(true, handshake, changed);
        assert_eq!(heard(false, Handshake::Seen, false), Some(Rule::SmbPathRefused), "its TCP answered");
        assert_eq!(tried(Handshake::Seen, false), Some(Rule::SmbPathSilent));
        assert_eq!(tried(Handshake::Inferred, false), None);
        assert_eq!(tried(Handshake::Seen, true), None, "nobody can read the answer");
    }

    /// The REQ that was accepted after one that was refused is not in the capture, but its connection is.
    #[test]
    fn a_refusal_is_made_good_by_a_connection_whose_request_was_not_captured() {
        let severity = |handshake: Handshake| {
            let mut later = over_rdma();
            later.handshake = handshake;
            let mut report = report(vec![later]);
            let site = Site { connection: None, frame: 2, time_ns: SECOND };
            report.findings.add(Finding::new(
                Rule::CmReject,
                Blame::Server,
                site,
                Certainty::Certain,
                "RDMA-CM REQ to port 5445 was rejected",
            ));
            conclude(&mut report, &[attempt(5445, 1, CmAnswer::Rejected(at(2), "No".into()))], &[]);
            report.findings.iter().find(|f| f.rule == Rule::CmReject).map(|f| f.severity)
        };
        assert_eq!(severity(Handshake::Inferred), Some(Severity::Note));
    }

    #[test]
    fn the_answer_to_a_request_stands_in_the_frame_of_the_answer() {
        let accepted = |connections: Vec<Connection>, answer: CmAnswer| {
            let path = climb(connections, &[attempt(445, 3, answer)]);
            let rung = path.rungs.iter().find(|r| r.step == Step::Accepted).unwrap();
            (rung.state, rung.at)
        };
        assert_eq!(accepted(vec![over_tcp()], CmAnswer::Accepted(at(4))), (State::Yes, Some(at(4))));
        let refused = accepted(vec![over_tcp()], CmAnswer::Rejected(at(6), "No".into()));
        assert_eq!(refused, (State::No, Some(at(6))));
        let mut rdma = over_rdma();
        assert_eq!(accepted(vec![rdma.clone()], CmAnswer::None), (State::Yes, Some(rdma.first)));
        rdma.progress.accepted = Some(at(7));
        assert_eq!(accepted(vec![rdma], CmAnswer::None), (State::Yes, Some(at(7))));
    }

    #[test]
    fn a_server_whose_answers_do_not_arrive_has_accepted_nothing() {
        let verdict = |repeated: u32| {
            let mut c = connection(2, Transport::RoceV2, Protocol::Unknown, 445, 3);
            (c.progress.unreached, c.closed) = (repeated, None);
            let attempts = [attempt(445, 3, CmAnswer::Accepted(at(4)))];
            let mut paths = paths(&report(vec![over_tcp(), c]), &attempts, &[]);
            paths.remove(0).verdict.map(|v| (v.rule, v.by, v.why))
        };
        assert_eq!(verdict(UNREACHED), Some((Rule::SmbPathSilent, Blame::Network, Some(ONE_WAY))));
        assert_ne!(verdict(UNREACHED - 1).map(|v| v.0), Some(Rule::SmbPathSilent));
    }

    #[test]
    fn a_datagram_that_could_not_be_delivered_is_no_silence() {
        let reported = Unreachable {
            reason: Reason::NoPort,
            protocol: 17,
            to: SERVER,
            ports: [0xc001, ROCE],
            length: 308,
            queue_pair: None,
        };
        let silent = [attempt(445, 3, CmAnswer::None)];
        let of = |by: Addr, reported: Unreachable| {
            let mut paths = paths(&report(vec![over_tcp()]), &silent, &[(at(4), [by, CLIENT], reported)]);
            paths.remove(0).verdict.map(|v| (v.rule, v.by, v.text))
        };
        let rule = |verdict: Option<(Rule, Blame, String)>| verdict.map(|v| v.0);
        assert_eq!(rule(of(SERVER, Unreachable { ports: [0xc001, 53], ..reported })), Some(Rule::SmbPathSilent));
        // a probe goes to that port from another one, and what it carries is no header of a request
        let of_probe = |queue_pair| rule(of(SERVER, Unreachable { ports: [33_434, ROCE], queue_pair, ..reported }));
        assert_eq!([None, Some(0x45_4647), Some(0)].map(of_probe), [Some(Rule::SmbPathSilent); 3]);
        assert_eq!(of_probe(Some(QP1)), Some(Rule::SmbPathRefused));
        let (refused, by, text) = of(SERVER, reported).unwrap();
        assert_eq!((refused, by), (Rule::SmbPathRefused, Blame::Server));
        assert!(
            text.starts_with(&format!("{SERVER} reported that UDP port 4791 (RoCEv2) cannot be reached")),
            "{text}"
        );
        // the host that reported it may be on the way
        let router = Addr::V4([203, 0, 113, 1]);
        let (refused, by, text) = of(router, reported).unwrap();
        assert_eq!((refused, by), (Rule::SmbPathRefused, Blame::Network));
        assert!(
            text.starts_with(&format!("{router} reported that UDP port 4791 (RoCEv2) of {SERVER} cannot be reached")),
            "{text}"
        );
    }

    #[test]
    fn a_port_that_was_silent_did_not_reject() {
        let both =
            [attempt(5445, 1, CmAnswer::None), attempt(445, 3, CmAnswer::Rejected(at(4), "Consumer reject".into()))];
        let text = paths(&report(vec![over_tcp()]), &both, &[]).remove(0).verdict.unwrap().text;
        assert!(text.starts_with("rejected RDMA on port 445: Consumer reject; no answer on port 5445"), "{text}");
    }

    #[test]
    fn handles_that_were_open_on_a_broken_connection_are_named() {
        let name = |name: &str| Arc::<str>::from(name);
        let mut later = over_rdma();
        later.smb.opened = vec![name("a"), name("b")];
        let open = |names: &[&str]| names.iter().map(|n| name(n)).collect::<Vec<_>>();
        let check =
            |names: &[&str], later: &[&Connection], expected: &str| assert_eq!(handles(&open(names), later), expected);
        check(&[], &[&later], "");
        check(&["a"], &[], "; 1 handle was open on it (a)");
        check(&["a"], &[&later], "; 1 handle was open on it (a), which was opened again");
        check(&["c"], &[&later], "; 1 handle was open on it (c), which was not opened again");
        check(&["a", "b"], &[&later], "; 2 handles were open on it (a, b), all of which were opened again");
        check(
            &["a", "a", "c", "d", "e"],
            &[&later],
            "; 5 handles were open on it (a, c, d and 1 more), 2 of which were opened again",
        );
        check(&["x", "y"], &[&later], "; 2 handles were open on it (x, y), none of which was opened again");
    }

    #[test]
    fn rdma_that_moves_no_data() {
        assert_eq!(climb(vec![over_rdma()], &[]).carried, Carried::Rdma);
        assert_eq!(verdict(vec![over_rdma()], &[]), None);
        let inline = |most: u32, signed: u64| {
            let mut c = over_rdma();
            c.rdma.writes = 0;
            // the set-up is signed in any case
            c.smb.signatures = [9 - signed, signed, 3];
            c.smb.setup.moved[0] =
                Moved { inline: 9, inline_bytes: 90_000, inline_most: most, inline_signed: signed, ..Moved::default() };
            c.smb.setup.moved[0].span = Some((at(6), at(7)));
            climb(vec![c], &[]).verdict
        };
        let found = inline(16_384, 9).unwrap();
        assert_eq!((found.rule, found.by, found.severity), (Rule::SmbPathInline, Blame::Client, Severity::Warn));
        let [protected, plain] = Rule::SmbPathInline.row().causes else { panic!("two causes") };
        let of = |signed: u64| inline(16_384, signed).map(|v| (v.text.ends_with(": the session is signed"), v.why));
        assert_eq!(of(9), Some((true, Some(*protected))));
        assert_eq!(of(0), Some((false, Some(*plain))));
        assert_eq!(of(4), Some((false, None)));
        assert_eq!(inline(1000, 9), None, "small");
    }

    #[test]
    fn a_session_that_could_not_be_bound() {
        let bound = |status| {
            let mut c = over_rdma();
            c.commands = vec![row("NEGOTIATE", 1)];
            c.smb.setup = SmbSetup { binding: Some((at(6), Some(status))), ..SmbSetup::default() };
            verdict(vec![over_tcp(), c], &[]).map(|v| v.0)
        };
        assert_eq!(bound(0xc000_00d0), Some(Rule::SmbPathBind));
        assert_ne!(bound(0), Some(Rule::SmbPathBind));
    }

    #[test]
    fn what_went_on_over_tcp() {
        assert_eq!(
            verdict(vec![over_tcp(), over_rdma()], &[]),
            Some((Rule::SmbPathFallback, Blame::Unknown, Severity::Warn))
        );
        // the link went down: no end was captured
        let silent = |until| {
            let rdma = Connection { closed: None, ..over_rdma() };
            let path = climb(vec![changed(|c| (c.first, c.last) = (at(until), at(until + 5))).remove(0), rdma], &[]);
            path.verdict.map(|v| (v.rule, v.certainty))
        };
        assert_eq!(silent(50), Some((Rule::SmbPathFallback, Certainty::Guess)));
        assert_eq!(silent(20), None, "it may be idle");
        let before = changed(|c| (c.first, c.last) = (at(1), at(4)));
        assert_eq!(verdict(vec![before.into_iter().next().unwrap(), over_rdma()], &[]), None);
        // RDMA that comes back does not undo it; RDMA that joins a session is one of its channels
        let back = |first| {
            let mut rdma = over_rdma();
            (rdma.id, rdma.first, rdma.last) = (3, at(first), at(first + 5));
            rdma.closed = Some((Some(0), "DREQ", rdma.last));
            climb(vec![over_tcp(), over_rdma(), rdma], &[]).verdict.map(|v| (v.rule, v.text))
        };
        let text = "SMB went on over TCP (connection 1) after its RDMA connection had ended; it came back to RDMA 20.0 s \
            later (connection 3)";
        assert_eq!(back(30), Some((Rule::SmbPathFallback, text.into())));
        assert_eq!(back(22), None);
    }

    #[test]
    fn a_session_without_rdma_is_told_beside_one_with_it() {
        let with = |sessions: [u64; 2]| {
            let [mut inline, mut rdma] = [over_rdma(), over_rdma()];
            inline.id = 3;
            inline.smb.setup.moved = over_tcp().smb.setup.moved;
            (inline.rdma.writes, inline.smb.sessions, rdma.smb.sessions) = (0, vec![sessions[0]], vec![sessions[1]]);
            climb(vec![rdma, inline], &[]).verdict.map(|v| (v.rule, v.text))
        };
        let text = "moves the data of 8 READs and WRITEs of one session (connection 3), up to 16,384 B each, in messages \
            and not by RDMA";
        assert_eq!(with([7, 8]), Some((Rule::SmbPathInline, text.into())));
        assert_eq!(with([7, 7]), None, "two channels");
    }

    #[test]
    fn nfs_is_judged_only_with_rdma_in_sight() {
        let mut tcp = connection(1, Transport::Tcp, Protocol::Rpc, 2049, 20);
        tcp.commands = vec![row("GETATTR", 5)];
        assert_eq!(paths(&report(vec![tcp.clone()]), &[], &[]), []);
        let refused = [attempt(20_049, 1, CmAnswer::Rejected(at(2), "Invalid service ID".into()))];
        assert_eq!(verdict(vec![tcp.clone()], &refused), Some((Rule::NfsPathRefused, Blame::Server, Severity::Warn)));
        let silent = [attempt(20_049, 1, CmAnswer::TakenBack(at(5)))];
        assert_eq!(verdict(vec![tcp.clone()], &silent), Some((Rule::NfsPathSilent, Blame::Unknown, Severity::Warn)));
        let mut rdma = connection(2, Transport::RoceV2, Protocol::RpcRdma, 20_049, 1);
        rdma.commands = vec![row("READ", 5)];
        assert_eq!(verdict(vec![rdma.clone()], &[]), None);
        let private = |private| {
            let mut c = rdma.clone();
            c.rpc_rdma_private = private;
            let rungs = climb(vec![c], &[]).rungs;
            rungs.into_iter().find(|r| r.step == Step::PrivateData).map(|r| (r.state, r.text))
        };
        let sizes = RpcRdmaPrivate {
            magic: RpcRdmaPrivate::MAGIC,
            version: 1,
            flags: 1,
            send_size_code: 3,
            receive_size_code: 3,
        };
        assert_eq!(private(None), Some((State::NotSeen, String::new())));
        assert_eq!(
            private(Some([Some(sizes), None])),
            Some((State::NotNeeded, "of the client only: inline 1,024 bytes".into()))
        );
        let both = "inline 4,096 and 4,096 bytes, remote invalidation";
        assert_eq!(private(Some([Some(sizes); 2])), Some((State::Yes, both.into())));
        assert_eq!(verdict(vec![rdma.clone(), tcp.clone()], &[]).map(|v| v.0), Some(Rule::NfsPathFallback));
        // rpcbind gives the port of RDMA, to any client
        let listing = |netid, port| crate::rpcbind::Registrations {
            client: CLIENT,
            server: SERVER,
            rpcbind: Rpcbind { answered: Some(at(1)), listed: true, nfs: vec![(netid, port)], ..Rpcbind::default() },
        };
        let listed = |attempts: &[Attempt], netid, port| {
            let mut report = report(vec![tcp.clone()]);
            report.rpcbind = vec![listing(netid, port)];
            paths(&report, attempts, &[]).pop()
        };
        let path = listed(&[], Netid::Rdma, 20_049).expect("RDMA is in sight");
        let states: Vec<_> = path.rungs.iter().map(|r| (r.step, r.state, r.text.as_str())).collect();
        let rungs = [
            (Step::Rpcbind, State::Yes, "rdma 20049"),
            (Step::Netid, State::Yes, "port 20049"),
            (Step::Tried, State::No, "no"),
        ];
        assert_eq!((states.as_slice(), path.verdict.map(|v| v.rule)), (&rungs[..], Some(Rule::NfsPathTcp)));
        assert_eq!(listed(&[], Netid::Tcp, 2049), None, "nothing says that it has RDMA");
        // it is asked for at another port than it is at
        let path = listed(&refused, Netid::Rdma, 2050).expect("RDMA was tried");
        assert!(path.verdict.is_some_and(|v| v.text.contains("rpcbind lists NFS for RDMA at port 2050")));
        let elsewhere = [attempt(2050, 1, CmAnswer::Rejected(at(2), "Invalid service ID".into()))];
        assert_eq!(
            listed(&elsewhere, Netid::Rdma, 2050).and_then(|p| p.verdict).map(|v| v.rule),
            Some(Rule::NfsPathRefused)
        );
        // port 20049 needs no list
        let rungs = climb(vec![rdma.clone()], &[]).rungs;
        assert_eq!(rungs.iter().find(|r| r.step == Step::Netid).map(|r| r.state), Some(State::NotNeeded));
        // another client of the same server has RDMA
        rdma.peers[0].address = Addr::V4([192, 0, 2, 3]);
        let all = paths(&report(vec![rdma, tcp]), &[], &[]);
        let found: Vec<Rule> = all.iter().filter_map(|p| Some(p.verdict.as_ref()?.rule)).collect();
        assert_eq!(found, [Rule::NfsPathTcp]);
    }

    #[test]
    fn hosts_are_one_by_guid_and_by_listed_address() {
        let mut tcp = over_tcp();
        let mut rdma = over_rdma();
        let away = Addr::V4([198, 51, 100, 1]);
        rdma.peers[1].address = away;
        assert_eq!(paths(&report(vec![tcp.clone(), rdma.clone()]), &[], &[]).len(), 2);
        tcp.smb.setup.interfaces = vec![interface([198, 51, 100, 1], true)];
        assert_eq!(paths(&report(vec![tcp.clone(), rdma.clone()]), &[], &[]).len(), 1);
        tcp.smb.setup.interfaces.clear();
        for c in [&mut tcp, &mut rdma] {
            c.smb.setup.guids = [Some([1; 16]), Some([2; 16])];
        }
        let one = paths(&report(vec![tcp, rdma]), &[], &[]);
        assert_eq!((one.len(), one[0].connections.clone()), (1, vec![1, 2]));
    }

    #[test]
    fn a_client_may_ask_for_rdma_from_another_address() {
        let (mut tcp, mut rdma) = (over_tcp(), over_rdma());
        let (far, card) = (Addr::V4([192, 0, 2, 77]), Addr::V4([192, 0, 2, 78]));
        tcp.smb.setup.interfaces = vec![interface([192, 0, 2, 77], true)];
        (rdma.peers[0].address, rdma.peers[1].address) = (card, far);
        let tries = |connections: Vec<Connection>, attempts: &[Attempt]| {
            let all = paths(&report(connections), attempts, &[]);
            let tried = all.iter().filter(|p| p.verdict.as_ref().is_some_and(|v| v.rule == Rule::SmbPathTry)).count();
            (all.len(), tried)
        };
        assert_eq!(tries(vec![tcp.clone()], &[]), (1, 1));
        // ksmbd tells no ServerGuid; the client's is the same
        for (c, server) in [(&mut tcp, [0; 16]), (&mut rdma, [0; 16])] {
            c.smb.setup.guids = [Some([1; 16]), Some(server)];
        }
        assert_eq!(tries(vec![tcp.clone(), rdma.clone()], &[]), (1, 0));
        // an address that nobody knows may be the same client's
        rdma.smb.setup.guids = [None; 2];
        assert_eq!(tries(vec![tcp.clone(), rdma.clone()], &[]), (2, 0));
        let mut asked = attempt(445, 21, CmAnswer::Rejected(at(21), "nothing listening".into()));
        (asked.client, asked.server) = (card, far);
        assert_eq!(tries(vec![tcp.clone()], &[asked.clone()]), (2, 0));
        // that of a client that has a session of its own is not
        let mut other = over_tcp();
        other.id = 3;
        other.peers[0].address = card;
        other.smb.setup.interfaces.clear();
        let (_, tried) = tries(vec![tcp, other, rdma], &[asked]);
        assert_eq!(tried, 1);
    }
}
