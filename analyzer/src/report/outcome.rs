//! The outcome of a connection: its purpose, the stage that it reached, its end, and the side to blame.
//!
//! ```text
//!  Asked ──▶ Connected ──▶ Negotiated ──▶ Session ──▶ Work
//!   TCP,      MPA, CM       SMB Direct     SMB2        a request was answered
//!   CM REQ                  agreed         session
//! ```
//!
//! Rules report violations in messages. An outcome says how the connection ended, also if no message was wrong: a
//! server that accepts and then is silent breaks no rule that a message could show. [`of`] is a pure function of
//! [`Facts`], which are plain data; [`conclude`] ties an outcome to the finding that explains it, or reports one of its
//! own.

use crate::exchange::Status;
use crate::finding::{Blame, Certainty, Finding, Findings, Rule, Severity, Site};
use crate::nfs_causes::why_unmounted;
use crate::op::At;
use crate::report::{Command, Connection, Handshake, Protocol, Transport};
use crate::rpcbind::NFS_PORT;
use crate::rules::Group;
use crate::smb_setup::Obliged;
use crate::stats::{AROUND, MOUNTS, is_callback, may_wait};
use crate::stored::{stored, stored_enum};
use alloc::string::String;
use core::fmt;
use rdmascope_dissector::text::Elapsed as Milliseconds;
use rdmascope_dissector::wire::smb2::NtStatus;

/// ns after which a side that hangs up has waited for something, and did not just go away.
const PATIENCE: i64 = 1_000_000_000;
/// ns without an answer after which a connection that is still open has failed.
const STUCK: i64 = 10_000_000_000;
/// ns for which a server waits at least for the negotiation of SMB Direct to begin.
const SPEAKS: i64 = 4_000_000_000;
/// ns after its last request from which on a connection is idle: its server may close it.
const IDLE: i64 = 60_000_000_000;
/// ns within which the end of a connection follows from a violation before it.
const FOLLOWS: i64 = 1_000_000_000;

/// Purpose of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Purpose {
    /// SMB over SMB Direct.
    SmbDirect,
    /// NFS over RPC-over-RDMA.
    NfsRdma,
    /// SMB over TCP.
    SmbTcp,
    /// RPC over TCP.
    RpcTcp,
    /// RDMA for something else, or nothing that was seen.
    Rdma,
}

impl Purpose {
    /// Name in JSON.
    pub const fn name(self) -> &'static str {
        match self {
            Self::SmbDirect => "smb_direct",
            Self::NfsRdma => "nfs_rdma",
            Self::SmbTcp => "smb_tcp",
            Self::RpcTcp => "rpc_tcp",
            Self::Rdma => "rdma",
        }
    }
}

/// Stage that a connection reached. Ordered: `Work` is the greatest.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Stage {
    /// It was asked for.
    Asked,
    /// The RDMA connection, or the TCP connection below SMB2 or RPC, was established.
    Connected,
    /// SMB Direct agreed on its parameters; without SMB Direct, a message was answered.
    Negotiated,
    /// An SMB2 session was set up.
    Session,
    /// A request beyond that was answered.
    Work,
}

impl Stage {
    /// Name in JSON.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Asked => "asked",
            Self::Connected => "connected",
            Self::Negotiated => "negotiated",
            Self::Session => "session",
            Self::Work => "work",
        }
    }
}

/// Ending of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Ending {
    /// Nothing: it was open at the end of the capture.
    Open,
    /// It was open at the end of the capture, and a side waited: for an answer or for credits.
    Waiting {
        /// The side that had no credit left; otherwise a request had no answer.
        dry: Option<usize>,
    },
    /// A side closed it, and nothing was left to do.
    Closed,
    /// It was asked for and refused.
    Refused,
    /// The handshake of the transport was never finished.
    NoTransport,
    /// The negotiation of SMB Direct was never finished, or not accepted.
    NoNegotiation,
    /// No session was set up.
    NoSession,
    /// The server refused the client every share, or its NFS client ID or session.
    NoMount,
    /// It was closed before a single request was answered.
    NoAnswer,
    /// A side had no credits to send with, and was granted none.
    OutOfCredits {
        /// The side: 0 the client, 1 the server.
        side: usize,
        /// Time since which it had none.
        since: At,
    },
    /// A side broke it off: by a reset, or with an error of the transport.
    Aborted,
    /// A side closed it while requests waited for their replies.
    HungUp {
        /// Number of those requests.
        requests: u64,
    },
}

impl Ending {
    /// Name in JSON.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Open => "open",
            Self::Waiting { .. } => "waiting",
            Self::Closed => "closed",
            Self::Refused => "refused",
            Self::NoTransport => "no_transport",
            Self::NoNegotiation => "no_negotiation",
            Self::NoSession => "no_session",
            Self::NoMount => "no_mount",
            Self::NoAnswer => "no_answer",
            Self::OutOfCredits { .. } => "out_of_credits",
            Self::Aborted => "aborted",
            Self::HungUp { .. } => "hung_up",
        }
    }
}

/// Success of a connection: did it reach its purpose?
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Success {
    /// It did, and nothing was left undone.
    Yes,
    /// It did not, or was cut off in the middle.
    No,
    /// It had not got there when the capture ended, or its beginning was not seen.
    Unknown,
    /// It was refused, and a later one of the same client took its place.
    Replaced,
}

impl Success {
    /// Name in JSON.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Yes => "yes",
            Self::No => "no",
            Self::Unknown => "unknown",
            Self::Replaced => "replaced",
        }
    }
}

/// How a connection was closed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Closing {
    /// It was not.
    #[default]
    Open,
    /// In the way that its transport has for that.
    Closed,
    /// By a reset of TCP.
    Reset,
    /// By an error of its transport: a NAK after which nothing is sent, or a Terminate message.
    BrokenOff,
}

/// Outcome of a connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outcome {
    /// Its purpose.
    pub purpose: Purpose,
    /// Stage that it reached.
    pub reached: Stage,
    /// Ending of the connection.
    pub ending: Ending,
    /// Did it reach its purpose?
    pub success: Success,
    /// Side to blame for a failure: 0 the client, 1 the server.
    pub by: Option<usize>,
    /// Side that closed the connection: 0 the client, 1 the server.
    pub closed_by: Option<usize>,
    /// How it was closed.
    pub closing: Closing,
    /// End of the connection, or of the capture.
    pub at: At,
    /// ns that the side that gave up had waited before that.
    pub waited: i64,
    /// Certainty of the outcome.
    pub certainty: Certainty,
    /// The finding that explains a failure, by its rule and side.
    pub cause: Option<(Rule, Blame)>,
}

/// Facts about a connection at its end. Pairs are `[client, server]`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Facts {
    /// Transport that carries the connection; `None` if unknown.
    pub transport: Option<Transport>,
    /// Upper-layer protocol.
    pub protocol: Protocol,
    /// Port of the service.
    pub port: u16,
    /// True if its handshake was seen, and nothing is missing since.
    pub complete: bool,
    /// True if its handshake was seen, and nothing else of it but its end.
    pub silent: bool,
    /// True if the RDMA connection was established, or on TCP bytes came from both sides.
    pub connected: bool,
    /// The first frame.
    pub first: At,
    /// The last frame.
    pub last: At,
    /// End of the connection, or of the capture.
    pub end: At,
    /// Side that closed it, if known; true if it was closed by a reset.
    pub closed: Option<(Option<usize>, bool)>,
    /// True if it was rejected by its handshake.
    pub rejected: bool,
    /// True if a side ended it with an error of the transport.
    pub terminated: bool,
    /// The side that broke it off by an error of the transport, before it was closed.
    pub broken_off: Option<usize>,
    /// True if packets of the client were captured, none of the server, and the client acknowledged none.
    pub unheard: bool,
    /// Times of the Negotiate Request and the Negotiate Response of SMB Direct.
    pub negotiation: [Option<At>; 2],
    /// True if the response accepted.
    pub accepted: bool,
    /// Messages of the upper layer.
    pub messages: [u64; 2],
    /// Requests that were answered.
    pub answered: u64,
    /// Requests that had no reply at the end.
    pub unanswered: u64,
    /// True if an SMB2 session is there, or none is needed.
    pub session: bool,
    /// Attempts to set up a session that failed, or to negotiate SMB2 if none of these succeeded.
    pub session_failures: u64,
    /// True if no capture shows who is right about that: it is about a user, a password or a dialect.
    pub is_undecided: bool,
    /// True if the server asked for another message of an authentication, and none came.
    pub is_abandoned: bool,
    /// True if each attempt to connect to a share failed, or each to get an NFS client ID or session, and the client did
    /// nothing else.
    pub unmounted: bool,
    /// Requests answered with success beyond those that set up a session.
    pub worked: u64,
    /// Encrypted messages that could not be looked into.
    pub sealed: [u64; 2],
    /// Time of the last message of SMB Direct from each side.
    pub last_sent: [Option<At>; 2],
    /// Time since which each side has no credit that it may spend.
    pub dry: [Option<At>; 2],
    /// True if the Negotiate Response is one that the client must refuse, and did not accept.
    pub refused: bool,
    /// The first request of those that had no reply at the end.
    pub oldest_open: Option<At>,
    /// Number of those of which the capture shows that they had none, whatever it missed before, and the first.
    pub left: (u64, Option<At>),
    /// Of a message of the client that had begun at the end, and was not whole: its last part.
    pub unfinished: Option<At>,
    /// Handles that were open at the end, where all of SMB2 could be read.
    pub handles: u64,
    /// Why the server had to close the connection, if it had to.
    pub obliged: Option<Obliged>,
    /// True if it is one of SMB2 with no handle open: a reset at its end cost nothing.
    pub is_done: bool,
    /// True if packets were retransmitted, or were missing.
    pub troubled: bool,
}

impl Facts {
    /// Facts about a connection of a report; `end` is the last frame of the capture.
    pub fn of(c: &Connection, terminated: bool, end: At) -> Self {
        let row = |name: &str| c.commands.iter().find(|command| command.name == name);
        let setup = row("SESSION_SETUP");
        let is_smb = matches!(c.protocol, Protocol::SmbDirect | Protocol::Smb2);
        let worked = c
            .commands
            .iter()
            .filter(|r| !is_smb || !matches!(r.name, "NEGOTIATE" | "SESSION_SETUP"))
            .map(succeeded)
            .sum();
        let sealed = c.smb.sealed.map(|(n, _)| n);
        let both_sealed = sealed.iter().all(|n| *n > 0);
        // a leg of an authentication succeeds, too
        let heard = &c.smb.setup;
        let is_leg = refusal(c).is_none() && setup.is_some_and(|r| succeeded(r) > 0);
        let is_set_up = heard.set_up.is_some() || is_leg && !heard.is_begun;
        let negotiation_failures = row("NEGOTIATE").filter(|r| succeeded(r) == 0).map_or(0, |r| r.errors);
        let user = |status: u32| NtStatus(status).name().is_some_and(|name| OF_THE_USER.contains(&name));
        Self {
            transport: c.transport,
            protocol: c.protocol,
            port: c.peers[1].port,
            complete: c.handshake == Handshake::Seen && c.client_known && !c.progress.missed,
            silent: c.handshake == Handshake::Seen && c.client_known && c.progress.silent,
            connected: c.progress.connected,
            first: c.first,
            last: c.last,
            end: c.closed.map_or(end, |(.., at)| at),
            closed: c.closed.map(|(by, how, _)| (by, how == "RST")),
            rejected: c.rejected.is_some(),
            terminated,
            broken_off: c.progress.broken_off.map(|(by, _)| by),
            unheard: c.handshake == Handshake::Seen && c.client_known && c.progress.unheard,
            negotiation: c.progress.negotiation,
            accepted: c.negotiated.status == Some(0),
            messages: c.sides.map(|side| side.messages),
            answered: c.commands.iter().map(|r| r.count.saturating_sub(r.unanswered)).sum(),
            unanswered: unanswered(c),
            session: !is_smb || is_set_up || both_sealed || worked > 0,
            session_failures: setup.map_or(negotiation_failures, |r| r.errors),
            is_undecided: setup.is_none() || is_unbound(c) || refusal(c).is_some_and(user),
            is_abandoned: heard.is_begun && refusal(c).is_none(),
            unmounted: sealed == [0, 0] && refused_mount(c).is_some(),
            worked,
            sealed,
            last_sent: c.progress.last_sent,
            dry: c.progress.dry,
            refused: c.progress.refused,
            oldest_open: c.progress.oldest_open,
            left: c.progress.left,
            unfinished: c.progress.unfinished[0].filter(|_| reached_messages(c)),
            handles: if is_smb && sealed == [0, 0] && is_at_work(c) { c.smb.handles } else { 0 },
            obliged: heard.obliged,
            is_done: is_smb && c.smb.handles == 0 && sealed == [0, 0],
            troubled: c.health.is_troubled(),
        }
    }
}

/// Requests of the client that had no reply at the end, and must have one. What the server asked, a client need not
/// answer that closes the connection.
fn unanswered(c: &Connection) -> u64 {
    let must = |r: &&Command| !may_wait(r.name) && !is_callback(r.name);
    c.commands.iter().filter(must).map(|r| r.unanswered.saturating_sub(r.withdrawn)).sum()
}

/// True if a request of a connection was answered with success shortly before its end.
fn is_at_work(c: &Connection) -> bool {
    let worked = c.commands.iter().filter_map(|row| row.worked).max();
    // what the server no longer knows is not open
    let lost = c.commands.iter().filter(|row| row.failing.lost > 0).map(|row| row.failing.span.1).max();
    worked.zip(c.closed).is_some_and(|(at, (.., end))| end.since(at) < IDLE && lost.is_none_or(|lost| lost <= at))
}

/// True if messages of the upper layer of a connection were understood.
fn reached_messages(c: &Connection) -> bool {
    c.commands.iter().any(|command| command.count > command.unanswered)
}

/// Requests of a command that were answered with success.
fn succeeded(command: &Command) -> u64 {
    command.count.saturating_sub(command.errors + command.unanswered)
}

/// The NTSTATUS with which the server refused to set up a session, or to bind the connection to one.
fn refusal(c: &Connection) -> Option<u32> {
    let setup = &c.smb.setup;
    setup
        .refused
        .map(|(_, status)| status)
        .or(setup.binding.and_then(|(_, status)| status.filter(|status| *status != 0)))
}

/// True if the connection was to become another channel of a session, and the server refused that.
fn is_unbound(c: &Connection) -> bool {
    let setup = &c.smb.setup;
    setup.set_up.is_none()
        && setup.refused.is_none()
        && setup.binding.is_some_and(|(_, status)| status.is_some_and(|status| status != 0))
}

/// Values of NTSTATUS that refuse a user, or a password.
const OF_THE_USER: [&str; 10] = [
    "STATUS_LOGON_FAILURE",
    "STATUS_WRONG_PASSWORD",
    "STATUS_NO_SUCH_USER",
    "STATUS_ACCESS_DENIED",
    "STATUS_ACCOUNT_RESTRICTION",
    "STATUS_ACCOUNT_DISABLED",
    "STATUS_ACCOUNT_LOCKED_OUT",
    "STATUS_ACCOUNT_EXPIRED",
    "STATUS_PASSWORD_EXPIRED",
    "STATUS_PASSWORD_MUST_CHANGE",
];

/// The command of a mount that the server refused, with the status, if nothing came of the connection for it.
fn refused_mount(c: &Connection) -> Option<(&'static str, Status)> {
    refused_setup(c).or_else(|| refused_path(c))
}

/// The same of what a client needs before it names what it wants: a share, a client id, a session, MNT.
fn refused_setup(c: &Connection) -> Option<(&'static str, Status)> {
    let done = c.commands.iter().filter(|r| succeeded(r) > 0).map(|r| r.name);
    if done.clone().any(|name| !MOUNTS.contains(&name) && !AROUND.contains(&name)) {
        return None;
    }
    let refused = c.failures.iter().map(|failures| (failures.command, failures.status));
    // the share with the server's pipes is one, too; and who is told that there is no such program tries another version
    let is_decisive = |status: &Status| status.number().is_some() || status.is_unauthenticated();
    let mut decisive = refused.filter(|(command, status)| MOUNTS.contains(command) && is_decisive(status));
    decisive.find(|(command, _)| *command == "TREE_CONNECT" || !done.clone().any(|name| name == *command))
}

/// The same of what a client of NFS mounts: it leaves at once when the server refuses the path (version 4), the
/// facts about the export (version 3), or its very first call.
fn refused_path(c: &Connection) -> Option<(&'static str, Status)> {
    let Some((Some(0), _, end)) = c.closed.filter(|_| matches!(c.protocol, Protocol::RpcRdma | Protocol::Rpc)) else {
        return None;
    };
    let done = || c.commands.iter().filter(|row| row.worked.is_some());
    let is_only = |names: &[&str]| done().all(|row| names.contains(&row.name) || AROUND.contains(&row.name));
    let refused = |name: &str| {
        let row = c.commands.iter().find(|row| row.name == name)?;
        let (at, status) = row.last.and_then(|(at, status)| Some((at, status?)))?;
        let goes_on = |row: &Command| row.name != name && row.last.is_some_and(|(later, _)| later > at);
        // who mounts goes on at once from one step to the next; who looks for a name later is a user
        let before = c.commands.iter().filter_map(|row| row.worked).filter(|worked| *worked < at).max();
        let is_user = name == "LOOKUP" && before.is_some_and(|before| at.since(before) > PATIENCE);
        let is_last = !is_user && !c.commands.iter().any(|row| !AROUND.contains(&row.name) && goes_on(row));
        (is_last && row.errors <= FEW && end.since(at) < PATIENCE).then_some((row.name, status))
    };
    let is_set_up = || done().any(|row| matches!(row.name, "CREATE_SESSION" | "SETCLIENTID_CONFIRM"));
    if c.nfs.version == 4 {
        return refused("LOOKUP").filter(|_| is_set_up() && is_only(WALK));
    }
    // other programs are asked whether they are there, too
    let is_nfs = c.protocol == Protocol::RpcRdma || c.peers[1].port == NFS_PORT;
    let is_first = |status: Status| status.number().is_none() && done().next().is_none();
    let null = || refused("NULL").filter(|(_, status)| is_nfs && is_first(*status));
    refused("FSINFO").filter(|_| is_only(&["GETATTR"])).or_else(null)
}

/// Times that a client tries to mount something, at most: who is refused more often works with it.
const FEW: u64 = 4;

/// Commands with which a client of NFS 4 looks for what it mounts, beside those that set it up.
const WALK: &[&str] = &[
    "EXCHANGE_ID",
    "CREATE_SESSION",
    "SETCLIENTID",
    "SETCLIENTID_CONFIRM",
    "BIND_CONN_TO_SESSION",
    "RECLAIM_COMPLETE",
    "SECINFO",
    "SECINFO_NO_NAME",
    "PUTROOTFH",
    "SEQUENCE",
    "GETFH",
    "GETATTR",
    "ACCESS",
    "LOOKUP",
];

/// Outcome of a connection; `None` if it is not about storage.
pub fn of(f: &Facts) -> Option<Outcome> {
    let purpose = purpose(f)?;
    // who closes what was broken off only cleans up
    let closed_by = f.closed.and_then(|(by, _)| f.broken_off.or(by));
    let reached = reached(f);
    let certainty = if f.complete { Certainty::IfNothingWasMissed } else { Certainty::Guess };
    let mut outcome = Outcome {
        purpose,
        reached,
        ending: if f.closed.is_some() { Ending::Closed } else { Ending::Open },
        success: Success::Yes,
        by: None,
        closed_by,
        closing: match f.closed {
            None => Closing::Open,
            Some(_) if f.broken_off.is_some() => Closing::BrokenOff,
            Some((_, true)) => Closing::Reset,
            Some((_, false)) => Closing::Closed,
        },
        at: f.end,
        waited: 0,
        certainty,
        cause: None,
    };
    // a clock that was set back tells no time
    let since = |at: At| f.end.time.saturating_sub(at.time).max(0);
    let last = f.last_sent.into_iter().flatten().max();
    let waited = since(last.unwrap_or(f.first));
    let open = since(f.oldest_open.unwrap_or(f.end));
    let is_over = f.closed.is_some() || waited >= STUCK;
    let is_packets = f.transport.is_some_and(Transport::is_packets);
    let is_aborted = f.terminated || f.closed.is_some_and(|(_, reset)| reset) && reached > Stage::Asked;
    let mut fail = |ending: Ending, by: Option<usize>, waited: i64| {
        (outcome.ending, outcome.success, outcome.by, outcome.waited) = (ending, Success::No, by, waited);
    };
    if f.rejected {
        // only a server sends an MPA Reply; of connection management, either side rejects, and that ends the connection
        let is_cm = f.transport != Some(Transport::Iwarp) && f.closed.is_some();
        fail(Ending::Refused, if is_cm { closed_by } else { Some(1) }, 0);
        return Some(outcome);
    }
    if is_aborted && !f.terminated && f.complete && f.unanswered == 0 && f.is_done && f.answered > 0 {
        // all was answered and closed: a reset is how some clients and servers close
        let is_refused = !f.session && (f.session_failures > 0 || f.is_abandoned) || f.unmounted;
        if !is_refused {
            return Some(outcome);
        }
    } else if is_aborted && f.unanswered == 0 {
        fail(Ending::Aborted, closed_by, 0);
        return Some(outcome);
    }
    if !f.complete && is_aborted {
        fail(Ending::HungUp { requests: f.unanswered }, closed_by, open);
        return Some(outcome);
    }
    if f.silent
        && closed_by.is_some()
        && purpose == Purpose::SmbDirect
        && reached == Stage::Connected
        && waited >= PATIENCE
    {
        // only a guess: a capture that has the handshake of a connection may lack what it carries
        no_negotiation(f, closed_by, waited, &mut fail);
        return Some(outcome);
    }
    if f.unheard
        && closed_by.is_some()
        && purpose == Purpose::SmbDirect
        && matches!(f.negotiation, [Some(_), None])
        && f.messages[0] == 0
    {
        // the client would have acknowledged a response; but of what the server received, nothing shows
        no_negotiation(f, closed_by, waited, &mut fail);
        outcome.certainty = if closed_by == Some(1) { Certainty::IfNothingWasMissed } else { Certainty::Guess };
        return Some(outcome);
    }
    if f.unheard && reached == Stage::Asked && f.transport == Some(Transport::Tcp) && is_over {
        // a client that was answered goes on; but the capture has nothing of the server, nor of what lies between; for
        // how long it would have gone on asking is not known
        fail(Ending::NoTransport, Some(1), f.last.since(f.first));
        (outcome.certainty, outcome.at) = (Certainty::Guess, f.last);
        return Some(outcome);
    }
    let half = u64::from(f.unfinished.is_some());
    if !f.complete && f.closed.is_some() && f.left.0 + half > 0 {
        // what was missed was missed before; of packets that come last, only TCP shows that none is missing
        let open = since(f.left.1.or(f.unfinished).unwrap_or(f.end));
        fail(Ending::HungUp { requests: f.left.0 + half }, who_hung_up(f, closed_by, open), open);
        if !is_packets {
            outcome.certainty = Certainty::IfNothingWasMissed;
        }
        return Some(outcome);
    }
    if !f.complete {
        // the missing step may have come before the capture, or was missed
        outcome.success = if reached >= Stage::Session { Success::Yes } else { Success::Unknown };
        return Some(outcome);
    }
    if reached == Stage::Asked && f.transport == Some(Transport::Tcp) && f.closed == Some((Some(1), true)) {
        fail(Ending::Refused, Some(1), 0);
    } else if !is_over && reached < Stage::Session && f.messages == [0, 0] {
        outcome.success = Success::Unknown;
    } else if reached == Stage::Asked {
        fail(Ending::NoTransport, Some(1), waited);
    } else if purpose == Purpose::SmbDirect && reached == Stage::Connected {
        no_negotiation(f, closed_by, waited, &mut fail);
    } else if let Some(side) = (0..2).find(|side| is_starved(f, *side, waited)) {
        let dry = f.dry[side].unwrap_or(f.end);
        fail(Ending::OutOfCredits { side, since: dry }, Some(1 - side), since(dry));
        if side == 1 && f.messages[0] <= 1 {
            // one message alone that grants nothing: a capture may have lost the next at its very end
            outcome.certainty = Certainty::Guess;
        }
    } else if f.closed.is_some() && f.unanswered + half > 0 {
        let open = since(f.oldest_open.or(f.unfinished).unwrap_or(f.end));
        let by = who_hung_up(f, closed_by, open);
        fail(Ending::HungUp { requests: f.unanswered + half }, by, open);
        if is_packets && (f.troubled && (open < PATIENCE || by == closed_by) || closed_by == Some(1)) {
            // with packets lost and sent again, the capture may miss a reply: TCP would show that; a server that hangs
            // up late may have tried in vain to send it, and one that does so at once may have received something that
            // the capture lacks: no later packet shows that
            outcome.certainty = Certainty::Guess;
        }
    } else if f.closed.is_some() && f.sealed[0] > 0 && f.sealed[1] == 0 && f.worked == 0 {
        let by = if closed_by == Some(0) && waited >= PATIENCE { Some(1) } else { closed_by };
        fail(Ending::HungUp { requests: f.sealed[0] }, by, waited);
    } else if f.closed.is_some() && !f.session && f.session_failures > 0 {
        // who is right about a user, a password or a dialect, no capture shows
        fail(Ending::NoSession, if f.is_undecided { None } else { Some(1) }, 0);
    } else if f.closed.is_some() && !f.session && f.is_abandoned && f.unanswered == 0 && f.sealed == [0, 0] {
        fail(Ending::NoSession, None, waited);
    } else if f.closed.is_some() && f.unmounted && f.unanswered == 0 {
        fail(Ending::NoMount, None, 0);
    } else if f.closed.is_some()
        && purpose == Purpose::SmbDirect
        && reached == Stage::Negotiated
        && f.answered == 0
        && f.sealed == [0, 0]
        // a client that goes on has accepted; but credits may have been on their way already
        && (f.messages[0] == 0 || f.refused)
    {
        fail(Ending::NoNegotiation, closed_by, since(f.negotiation[1].unwrap_or(f.first)));
    } else if f.closed.is_some() && f.answered == 0 && f.sealed == [0, 0] && purpose != Purpose::Rdma {
        fail(Ending::NoAnswer, closed_by, waited);
    } else if closed_by == Some(1) && f.handles > 0 && f.obliged.is_none() {
        // no server closes a connection that it has files open on, if it does not have to
        fail(Ending::Aborted, closed_by, 0);
        if is_packets {
            outcome.certainty = Certainty::Guess;
        }
    } else if reached < Stage::Session && f.closed.is_none() {
        outcome.success = Success::Unknown;
    } else if f.closed.is_none() {
        let dry = f.dry[0].map(since).filter(|waited| purpose == Purpose::SmbDirect && *waited >= PATIENCE);
        let open = Some(open).filter(|waited| f.unanswered > 0 && *waited >= PATIENCE);
        if let Some(waited) = dry.or(open) {
            // what the side waits for may have come after the capture
            outcome.ending = Ending::Waiting { dry: dry.map(|_| 0) };
            (outcome.success, outcome.waited) = (Success::Unknown, waited);
        }
    }
    if f.troubled && matches!(outcome.ending, Ending::NoNegotiation | Ending::NoAnswer) {
        // with packets lost, the side that closes may not have received everything, or may have tried in vain
        outcome.certainty = Certainty::Guess;
    }
    Some(outcome)
}

/// The side to blame for a connection that was closed with requests open, the oldest for `open` ns: one that closes at
/// once; one that closes after a long wait was not answered, or waited for the rest of a request.
fn who_hung_up(f: &Facts, closed_by: Option<usize>, open: i64) -> Option<usize> {
    match f.obliged.filter(|_| closed_by == Some(1)) {
        Some(Obliged::SecondNegotiate) => Some(0),
        Some(Obliged::Validation) => None,
        None if f.unanswered == 0 && f.left.0 == 0 && open >= PATIENCE => Some(0),
        None if closed_by == Some(0) && open >= PATIENCE => Some(1),
        None => closed_by,
    }
}

/// Reports that SMB Direct was not established, and the side to blame.
fn no_negotiation(f: &Facts, closed_by: Option<usize>, waited: i64, fail: &mut impl FnMut(Ending, Option<usize>, i64)) {
    let since = |at: At| f.end.time.saturating_sub(at.time).max(0);
    match f.negotiation {
        [_, Some(response)] => fail(Ending::NoNegotiation, Some(1), since(response)),
        [Some(request), None] => {
            let waited = since(request);
            let by = if closed_by == Some(0) && waited < PATIENCE { Some(0) } else { Some(1) };
            fail(Ending::NoNegotiation, by, waited);
        }
        // the client is to speak first; a server that waits for it does so for 5 s (\[MS-SMBD\] 3.1.7.2)
        [None, None] if closed_by == Some(1) && waited < SPEAKS => fail(Ending::NoNegotiation, Some(1), waited),
        [None, None] => fail(Ending::NoNegotiation, Some(0), waited),
    }
}

/// True if a side stopped for want of credits: it had none that it may spend, its peer granted none for a long while,
/// and either a side gave up then or the capture ended.
fn is_starved(f: &Facts, side: usize, waited: i64) -> bool {
    let Some(dry) = f.dry[side] else { return false };
    // a server has its first credits from the client's first message after the negotiation: before that nothing ran out
    if side == 1 && f.messages[0] == 0 {
        return false;
    }
    let silent = waited >= PATIENCE && f.end.time.saturating_sub(dry.time) >= PATIENCE;
    silent && (f.closed.is_some() || waited >= STUCK)
}

fn purpose(f: &Facts) -> Option<Purpose> {
    let is_tcp = f.transport == Some(Transport::Tcp);
    Some(match (f.protocol, f.port) {
        (Protocol::SmbDirect, _) => Purpose::SmbDirect,
        (Protocol::RpcRdma, _) => Purpose::NfsRdma,
        (Protocol::Smb2, _) => Purpose::SmbTcp,
        (Protocol::Rpc, _) => Purpose::RpcTcp,
        // a TCP connection to a storage port that got no answer
        (Protocol::Unknown, 445) if is_tcp && f.messages == [0, 0] && !f.connected => Purpose::SmbTcp,
        (Protocol::Unknown, 5445) if is_tcp && !f.connected => Purpose::SmbDirect,
        (Protocol::Unknown, 20049) if is_tcp && !f.connected => Purpose::NfsRdma,
        (Protocol::Unknown, _) if is_tcp => return None,
        (Protocol::Unknown, 445 | 5445) => Purpose::SmbDirect,
        (Protocol::Unknown, 20049) => Purpose::NfsRdma,
        (Protocol::Unknown, _) => Purpose::Rdma,
    })
}

fn reached(f: &Facts) -> Stage {
    if f.worked > 0 || f.sealed.iter().all(|n| *n > 0) {
        return Stage::Work;
    }
    let is_smb = matches!(f.protocol, Protocol::SmbDirect | Protocol::Smb2);
    if is_smb && f.session && f.answered > 0 {
        return Stage::Session;
    }
    let is_negotiated = match f.protocol {
        Protocol::SmbDirect => f.accepted || (!f.complete && f.messages != [0, 0]),
        _ => f.answered > 0,
    };
    if is_negotiated {
        return Stage::Negotiated;
    }
    if f.connected || f.messages != [0, 0] || f.negotiation != [None; 2] { Stage::Connected } else { Stage::Asked }
}

/// The word for a side.
const fn side(end: usize) -> &'static str {
    if end == 0 { "client" } else { "server" }
}

impl Outcome {
    /// Side to blame for a failure.
    pub fn blame(&self) -> Blame {
        match self.by {
            Some(0) => Blame::Client,
            Some(_) => Blame::Server,
            None => Blame::Unknown,
        }
    }

    /// True if the connection failed.
    pub fn failed(&self) -> bool {
        self.success == Success::No
    }

    /// The outcome as a sentence without its full stop; `start` is the time of the first frame of the capture.
    pub fn sentence(&self, start: i64) -> String {
        alloc::format!("{}", Sentence { outcome: self, start })
    }

    /// The same without numbers, for several connections of one fate: "The client hung up during SMB Direct
    /// negotiation".
    pub fn headline(&self) -> String {
        let who = self.closed_by.map(side);
        let hung_up = |when: &str| match (who, self.closing) {
            (Some(who), Closing::BrokenOff) => alloc::format!("The {who} broke off the connection {when}"),
            (Some(who), _) => alloc::format!("The {who} hung up {when}"),
            (None, Closing::Open) => alloc::format!("The connection got stuck {when}"),
            (None, Closing::Reset) => alloc::format!("The connection was reset {when}"),
            (None, Closing::Closed | Closing::BrokenOff) => alloc::format!("The connection was closed {when}"),
        };
        match self.ending {
            Ending::Open => String::from("The connection was open when the capture ended"),
            Ending::Waiting { dry: Some(end) } => {
                alloc::format!("The {} had no credits left when the capture ended", side(end))
            }
            Ending::Waiting { dry: None } => String::from("A request had no answer when the capture ended"),
            Ending::Closed => String::from("The connection was closed"),
            Ending::Refused => String::from("The connection was refused"),
            Ending::NoTransport => String::from("The connection never got past its handshake"),
            Ending::NoNegotiation => hung_up("during SMB Direct negotiation"),
            Ending::NoSession => String::from("No session was set up"),
            Ending::NoMount => String::from("Nothing was mounted"),
            Ending::NoAnswer => hung_up("before a request was answered"),
            Ending::OutOfCredits { side: end, .. } => {
                alloc::format!("The {} ran out of credits and was granted none", side(end))
            }
            Ending::Aborted => match who {
                Some(who) => alloc::format!("The {who} broke off the connection"),
                None => String::from("The connection was broken off"),
            },
            Ending::HungUp { .. } => hung_up("with requests open"),
        }
    }
}

struct Sentence<'o> {
    outcome: &'o Outcome,
    start: i64,
}

impl fmt::Display for Sentence<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let o = self.outcome;
        let headline = o.headline();
        match o.ending {
            Ending::HungUp { requests: 1 } => f.write_str(&headline.replace("with requests", "with 1 request"))?,
            Ending::HungUp { requests } => {
                f.write_str(&headline.replace("with", &alloc::format!("with {requests}")))?
            }
            _ => f.write_str(&headline)?,
        }
        let waited = Milliseconds(o.waited);
        match o.ending {
            Ending::Waiting { dry: Some(_) } => write!(f, ", and had been granted none for {waited}"),
            Ending::Waiting { dry: None } => write!(f, ", and had waited {waited} for it"),
            Ending::NoTransport if o.closed_by.is_some() && o.waited >= PATIENCE => {
                write!(f, ": given up after {waited}")
            }
            Ending::NoNegotiation | Ending::NoAnswer if o.waited > 0 && o.closed_by.is_some() => {
                write!(f, " after {waited}")
            }
            Ending::OutOfCredits { side: end, since } => {
                let at = Milliseconds(since.time.saturating_sub(self.start));
                write!(f, " from {at} on")?;
                match o.closed_by {
                    Some(by) if by == end => write!(f, "; it gave up {waited} later"),
                    Some(by) => write!(f, "; the {} hung up {waited} later", side(by)),
                    None => write!(f, "; {waited} later the capture ended"),
                }
            }
            Ending::HungUp { .. } if o.waited >= PATIENCE && o.by != o.closed_by && o.by == Some(0) => {
                write!(f, ": nothing more of it for {waited}")
            }
            Ending::HungUp { .. } if o.waited >= PATIENCE && o.by != o.closed_by => {
                write!(f, ": no answer for {waited}")
            }
            _ => Ok(()),
        }
    }
}

/// Sets the outcome of a connection that has ended, or whose capture has: it names the finding that explains a failure;
/// if there is none, the failure becomes a finding of its own. `end` is the last frame of the capture.
pub fn conclude(connection: &mut Connection, findings: &mut Findings, end: At) {
    let is_end = |f: &Finding| f.connection == Some(connection.id) && f.rule == Rule::RdmapTerminate;
    let terminated = connection.transport == Some(Transport::Iwarp) && findings.iter().any(is_end);
    let Some(mut outcome) = of(&Facts::of(connection, terminated, end)) else { return };
    if let Ending::OutOfCredits { .. } = outcome.ending {
        // a side that had no credit left could not answer
        let id = Some(connection.id);
        findings.weaken(|f| f.connection == id && is_silence(f.rule) && Some(f.by) != Some(outcome.blame()));
    }
    if outcome.ending == Ending::NoMount
        && refused_mount(connection).is_some_and(|(command, _)| matches!(command, "LOOKUP" | "NULL"))
    {
        // it may have been a user who looked for a name and unmounted at once, or a tool that asks for versions
        outcome.certainty = Certainty::Guess;
    }
    weaken_silence(connection, findings);
    let told = findings.iter().find(|f| is_end(f)).map(|f| f.by);
    if let Some(told) = told.filter(|_| matches!(outcome.ending, Ending::Aborted)) {
        // who sends a Terminate says what is wrong, and need not be the one who did it
        outcome.by = side_of(told);
    }
    if let (Ending::Closed, Some((by, "RST", _))) = (outcome.ending, connection.closed) {
        let closer = match by {
            Some(0) => Blame::Client,
            Some(_) => Blame::Server,
            None => Blame::Unknown,
        };
        let id = Some(connection.id);
        findings.lower(Rule::TcpReset, id, closer, Severity::Note, format_args!("; nothing was open any more"));
    }
    if matches!(outcome.ending, Ending::Aborted) && !terminated {
        gone_before(connection, &mut outcome, findings);
    }
    if is_half(connection, &outcome) && connection.progress.shut[1] {
        // a client sends nothing into a window that is closed
        outcome.by = Some(1);
    }
    if outcome.failed() {
        outcome.cause = cause(connection, &outcome, findings);
        if let Some((_, blame)) = outcome.cause {
            outcome.by = side_of(blame);
        } else {
            let (rule, severity) = own_rule(&outcome, connection);
            let by = outcome.blame();
            let site = Site { connection: Some(connection.id), frame: outcome.at.frame, time_ns: outcome.at.time };
            let text = Predicate { outcome: &outcome, connection };
            findings.report_as(severity, rule, by, site, outcome.certainty, format_args!("{text}"));
            let setup = &connection.smb.setup;
            let why = match outcome.ending {
                Ending::NoSession if is_unbound(connection) => refusal(connection).map(why_unbound),
                Ending::NoMount => refused_mount(connection).and_then(|(_, status)| why_unmounted(status)),
                Ending::NoSession if refusal(connection).is_none() && setup.is_begun => Some(GAVE_UP),
                Ending::NoSession if refusal(connection).is_none() => Some("The two have no dialect of SMB2 in common"),
                Ending::HungUp { .. } if outcome.closed_by == Some(1) => setup.obliged.map(|obliged| match obliged {
                    Obliged::SecondNegotiate => "The server must disconnect a client that negotiates a second time",
                    Obliged::Validation => {
                        "If FSCTL_VALIDATE_NEGOTIATE_INFO says something else than the NEGOTIATE did, or with \
                            dialect 3.1.1, the server must disconnect: compare the two"
                    }
                }),
                _ => None,
            };
            if why.is_some() {
                findings.because(rule, Some(connection.id), by, why);
            }
            outcome.cause = Some((rule, by));
        }
        // a failure is as sure as what explains it; that a side broke the connection off is seen
        let is_seen = terminated || connection.progress.broken_off.is_some();
        let explains = |f: &&Finding| f.connection == Some(connection.id) && Some((f.rule, f.by)) == outcome.cause;
        if let Some(found) = findings.iter().find(explains).filter(|_| !is_seen) {
            outcome.certainty = outcome.certainty.min(found.certainty);
        }
    }
    connection.outcome = Some(outcome);
}

/// The end of a side in pairs: 0 the client, 1 the server.
pub(crate) fn side_of(blame: Blame) -> Option<usize> {
    match blame {
        Blame::Client => Some(0),
        Blame::Server => Some(1),
        _ => None,
    }
}

/// Who resets a connection whose peer was gone did not break it off.
fn gone_before(connection: &Connection, outcome: &mut Outcome, findings: &mut Findings) {
    let Some(closer) = outcome.closed_by else { return };
    let (closer, gone) = if closer == 0 { (Blame::Client, Blame::Server) } else { (Blame::Server, Blame::Client) };
    let id = Some(connection.id);
    let is_silent = |f: &&Finding| {
        f.connection == id
            && (f.rule, f.by, f.severity) == (Rule::PeerSilent, gone, Severity::Error)
            && outcome.at.time.saturating_sub(f.last_time_ns) <= GIVES_UP
    };
    let Some(certainty) = findings.iter().find(is_silent).map(|f| f.certainty) else { return };
    (outcome.by, outcome.certainty) = (side_of(gone), certainty);
    findings.lower(Rule::TcpReset, id, closer, Severity::Note, format_args!("; its peer had not answered any more"));
}

/// Cause of a channel that is refused, by its status (\[MS-SMB2\] 3.3.5.5, 3.3.5.5.2).
fn why_unbound(status: u32) -> &'static str {
    match NtStatus(status).name() {
        Some("STATUS_REQUEST_NOT_ACCEPTED") => "Multichannel is off on the server, or it allows no further channel",
        Some("STATUS_USER_SESSION_DELETED") => "The server knows nothing of the session, or not any more",
        Some("STATUS_NETWORK_SESSION_EXPIRED") => {
            "The session has expired: the client has to authenticate it again first"
        }
        Some("STATUS_INVALID_PARAMETER") => "Another dialect than that of the session, or a request that is not signed",
        Some("STATUS_ACCESS_DENIED") => "A signature that does not verify, or another user than that of the session",
        Some("STATUS_NOT_SUPPORTED") => "A dialect or cipher that does not go together with the session",
        _ => "The status says why",
    }
}

/// Cause of an authentication that is broken off.
const GAVE_UP: &str =
    "The client has nothing to answer the server's challenge with, or was stopped meanwhile: its own log says why";

/// ns after the last try by which a side gives a silent peer up.
const GIVES_UP: i64 = 120_000_000_000;

/// ns by which a capture may have frames in another order than the ends: those of a way there and back.
const DISORDER: i64 = 10_000_000;

/// The silent side may have had no credit for an answer, or a peer that broke the protocol: then it is not to blame for
/// the silence.
fn weaken_silence(connection: &Connection, findings: &mut Findings) {
    /// ns within which a message may have been on its way already.
    const ON_ITS_WAY: i64 = 5_000_000;
    let id = Some(connection.id);
    for (side, blame) in [Blame::Client, Blame::Server].into_iter().enumerate() {
        let last = connection.progress.last_sent[side];
        let is_smbd = connection.protocol == Protocol::SmbDirect;
        let is_dry = is_smbd && connection.progress.dry[side].is_some();
        let unknown = is_smbd && connection.sides[side].held_last.is_none();
        let of_a_message =
            |f: &Finding| matches!(f.rule.row().group, Group::Negotiate | Group::Credits | Group::Data | Group::Memory);
        let is_broken = |f: &Finding| {
            let names_peer = f.by == if side == 0 { Blame::Server } else { Blame::Client };
            let is_grave = f.severity == Severity::Error && !is_silence(f.rule) && !ends_connection(f.rule)
                || f.severity == Severity::Warn && of_a_message(f);
            let says_more = last.is_some_and(|last| last.time > f.last_time_ns.saturating_add(ON_ITS_WAY));
            f.connection == id && names_peer && is_grave && f.certainty > Certainty::Guess && !says_more
        };
        // its packets were no longer acknowledged: it sent them again, and nothing behind them
        let is_unheard = |f: &Finding| {
            let names_peer = f.by == if side == 0 { Blame::Server } else { Blame::Client };
            f.connection == id && names_peer && f.rule == Rule::PeerSilent && f.severity == Severity::Error
        };
        let is_excused = is_dry || findings.iter().any(is_broken) || findings.iter().any(is_unheard);
        let speaks = |f: &Finding| last.is_some_and(|last| last.time > f.last_time_ns);
        findings.weaken(|f| {
            f.connection == id && f.by == blame && is_silence(f.rule) && (is_excused || unknown && !speaks(f))
        });
        // nor does a side answer any more whose peer had broken the protocol: its queue pair takes nothing then
        let is_deaf = findings.iter().any(is_broken);
        findings.weaken(|f| f.connection == id && f.by == blame && f.rule == Rule::PeerSilent && is_deaf);
        // a message is left unsent also if its receiver had broken the protocol
        let is_left = |f: &Finding| {
            f.rule == Rule::SmbdFragRemaining && f.time_ns >= connection.closed.map_or(i64::MAX, |(.., at)| at.time)
        };
        let is_excused = findings.iter().any(is_broken);
        findings.weaken(|f| f.connection == id && f.by == blame && is_excused && is_left(f));
        // with packets lost, requests that a peer still sending has not answered may not have reached it
        let is_busy = connection.closed.is_none() && connection.health.is_troubled();
        let is_open = |f: &Finding| {
            last.is_some_and(|last| connection.last.time.saturating_sub(last.time) < PATIENCE && last.time > f.time_ns)
        };
        findings.weaken(|f| f.connection == id && f.by == blame && is_silence(f.rule) && is_busy && is_open(f));
    }
}

/// True if a connection was closed as one is: by a FIN or a DREQ.
pub(crate) fn is_orderly(connection: &Connection) -> bool {
    connection.progress.broken_off.is_none() && connection.closed.is_some_and(|(_, how, _)| how != "RST")
}

/// True if all that was open at the end of a connection was a request of which only a part had been sent.
fn is_half(connection: &Connection, outcome: &Outcome) -> bool {
    matches!(outcome.ending, Ending::HungUp { requests: 1 })
        && connection.progress.unfinished[0].is_some()
        && unanswered(connection) == 0
}

/// The rule of a failure that no other finding explains.
fn own_rule(outcome: &Outcome, connection: &Connection) -> (Rule, Severity) {
    let is_tcp = connection.transport == Some(Transport::Tcp);
    // a side that disconnects at once, for no visible reason, may have been asked to
    let went_away = if outcome.by == Some(0) { Severity::Warn } else { Severity::Error };
    match outcome.ending {
        Ending::Refused if is_tcp => (Rule::TcpRefused, Severity::Error),
        Ending::Refused if connection.transport == Some(Transport::Iwarp) => (Rule::MpaReject, Severity::Error),
        Ending::Refused => (Rule::CmReject, Severity::Error),
        Ending::NoTransport if is_tcp => (Rule::TcpRefused, Severity::Error),
        Ending::NoTransport => (Rule::MpaStartup, Severity::Error),
        Ending::NoNegotiation if outcome.waited >= PATIENCE && connection.progress.negotiation[1].is_none() => {
            (Rule::SmbdNegTimeout, Severity::Error)
        }
        Ending::NoSession => (Rule::Smb2Session, Severity::Error),
        Ending::NoMount if matches!(connection.protocol, Protocol::SmbDirect | Protocol::Smb2) => {
            (Rule::Smb2Error, Severity::Error)
        }
        Ending::NoMount => (Rule::RpcError, Severity::Error),
        Ending::OutOfCredits { .. } => (Rule::SmbdCreditExhausted, Severity::Error),
        Ending::Aborted if is_orderly(connection) => (Rule::CmDisconnect, Severity::Warn),
        Ending::Aborted => (Rule::TcpReset, Severity::Error),
        Ending::NoNegotiation
        | Ending::NoAnswer
        | Ending::HungUp { .. }
        | Ending::Open
        | Ending::Waiting { .. }
        | Ending::Closed => (Rule::CmDisconnect, went_away),
    }
}

/// The failure, as a predicate of the side to blame.
struct Predicate<'o> {
    outcome: &'o Outcome,
    connection: &'o Connection,
}

impl Predicate<'_> {
    fn is_obliged(&self, by: Obliged) -> bool {
        self.outcome.closed_by == Some(1) && self.connection.smb.setup.obliged == Some(by)
    }
}

impl fmt::Display for Predicate<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let o = self.outcome;
        let waited = Milliseconds(o.waited);
        let broke_off = if self.connection.transport == Some(Transport::Iwarp) { "Terminate" } else { "NAK" };
        let closed = self.connection.closed.map_or("", |(_, how, _)| how);
        let how = if self.connection.progress.broken_off.is_some() { broke_off } else { closed };
        match o.ending {
            Ending::Refused => write!(f, "refused the connection to port {}", self.connection.peers[1].port),
            Ending::NoTransport if self.connection.transport == Some(Transport::Tcp) => {
                write!(f, "did not answer on port {} for {waited}", self.connection.peers[1].port)
            }
            Ending::NoTransport if self.connection.progress.spoke_otherwise => {
                f.write_str("answered the MPA Request with something other than an MPA Reply")
            }
            Ending::NoTransport => write!(f, "did not answer the MPA Request for {waited}"),
            Ending::NoNegotiation if o.by == Some(0) && self.connection.progress.negotiation[0].is_none() => {
                write!(f, "sent no Negotiate Request in {waited}")
            }
            Ending::NoNegotiation if o.by == Some(0) && self.connection.progress.negotiation[1].is_none() => {
                write!(f, "hung up ({how}) {waited} after its Negotiate Request")
            }
            Ending::NoNegotiation if self.connection.progress.negotiation[1].is_some() => {
                write!(f, "ended the connection ({how}) {waited} after the negotiation, before any request")
            }
            Ending::NoNegotiation if o.by == o.closed_by && self.connection.progress.negotiation[0].is_none() => {
                write!(f, "hung up ({how}) before the client had sent a Negotiate Request")
            }
            Ending::NoNegotiation if o.by == o.closed_by => {
                write!(f, "hung up ({how}) {waited} after the Negotiate Request, without an answer")
            }
            Ending::NoNegotiation => write!(f, "did not answer the Negotiate Request for {waited}"),
            Ending::NoSession => match (o.by, refusal(self.connection)) {
                (None, Some(status)) if is_unbound(self.connection) => {
                    write!(f, "The server refused to bind the connection to a session: {}", NtStatus(status))
                }
                (None, Some(status)) => {
                    write!(f, "The server refused every attempt to set up a session: {}", NtStatus(status))
                }
                (_, None) if self.connection.smb.setup.is_begun => {
                    f.write_str("The client did not go on with its authentication, though the server asked it to")
                }
                (_, None) => f.write_str("The server refused to negotiate SMB2"),
                _ => f.write_str("refused every attempt to set up a session"),
            },
            Ending::NoMount => match refused_mount(self.connection) {
                Some((command, status)) => write!(f, "The server answered {command} with {status}"),
                None => f.write_str("The server refused what was to be mounted"),
            },
            Ending::NoAnswer => write!(f, "ended the connection ({how}) before a request was answered"),
            Ending::OutOfCredits { .. } => write!(f, "granted no credits for {waited} to a peer that had none left"),
            Ending::HungUp { .. } if self.is_obliged(Obliged::SecondNegotiate) => {
                f.write_str("negotiated a second time on a connection that has a dialect")
            }
            Ending::HungUp { .. } if self.is_obliged(Obliged::Validation) => {
                write!(f, "The server ended the connection ({how}) when the client wanted the negotiation validated")
            }
            Ending::HungUp { requests } if o.by == o.closed_by => {
                let plural = if requests == 1 { "" } else { "s" };
                write!(f, "ended the connection ({how}) with {requests} request{plural} outstanding")
            }
            Ending::HungUp { .. } if is_half(self.connection, o) && o.by == Some(0) => {
                write!(f, "did not finish a request in {waited}")
            }
            Ending::HungUp { .. } if is_half(self.connection, o) => {
                write!(f, "took nothing more of a request for {waited}")
            }
            Ending::HungUp { requests } => {
                let plural = if requests == 1 { "" } else { "s" };
                write!(f, "left {requests} request{plural} unanswered for {waited}")
            }
            Ending::Aborted if is_orderly(self.connection) => {
                write!(f, "ended the connection ({how}) in the middle of work")
            }
            Ending::Aborted => write!(f, "broke off the connection ({how})"),
            Ending::Open | Ending::Waiting { .. } | Ending::Closed => f.write_str("ended the connection"),
        }
    }
}

/// Rules about an end, not about its cause.
fn ends_connection(rule: Rule) -> bool {
    matches!(
        rule,
        Rule::CmDisconnect
            | Rule::TcpReset
            | Rule::RdmapTerminate
            | Rule::RdmaKeyLeak
            | Rule::Smb2Slow
            | Rule::Smb2BreakKept
            | Rule::RpcSlow
            | Rule::SmbdFragCost
            | Rule::SmbdNegReach
            | Rule::BugCifsMaxFragmentedSize
            | Rule::RdmaReadSlow
            | Rule::Smb2Error
            | Rule::Smb2IoError
            | Rule::RpcError
            | Rule::RpcIoError
            | Rule::Smb2ErrorBody
            | Rule::TcpLoss
            | Rule::CaptureLoss
            | Rule::CaptureClock
            | Rule::CaptureCut
            | Rule::MpaIrdord
            | Rule::RdmaKeyPredictable
    )
}

/// The finding that explains a failure: a violation just before the end, the worst first and of those the earliest;
/// else one about the end itself.
fn cause(connection: &Connection, outcome: &Outcome, findings: &Findings) -> Option<(Rule, Blame)> {
    // of findings that break nothing, only those that a peer may answer by hanging up
    let is_grave = |f: &Finding| {
        let of_a_message =
            matches!(f.rule.row().group, Group::Negotiate | Group::Credits | Group::Data | Group::Memory);
        f.severity == Severity::Error || f.severity == Severity::Warn && of_a_message
    };
    // a capture may have the end before its cause
    let is_close =
        |f: &Finding| f.time_ns <= outcome.at.time.saturating_add(DISORDER) && f.rule.row().group == Group::Negotiate;
    let before = |f: &Finding| f.frame <= outcome.at.frame || is_close(f);
    // what explains a silence is not younger than it, unless it stands right before the end
    let silent = findings.iter().filter(|f| f.connection == Some(connection.id) && is_silence(f.rule)).map(|f| f.frame);
    let silent = silent.min().filter(|_| matches!(outcome.ending, Ending::HungUp { .. }) && outcome.waited >= PATIENCE);
    let is_too_young = |f: &Finding| {
        silent.is_some_and(|silent| f.frame > silent)
            && !is_silence(f.rule)
            && f.rule != Rule::PathMtu
            && outcome.at.time.saturating_sub(f.last_time_ns) > FOLLOWS
    };
    let here = |f: &&Finding| f.connection == Some(connection.id) && is_grave(f) && before(f);
    let answers = |f: &Finding| match (outcome.ending, f.rule) {
        // silence explains silence, whenever it began
        (Ending::HungUp { .. }, Rule::Smb2Unanswered | Rule::RpcUnanswered | Rule::SmbdKeepalive) => {
            outcome.waited >= PATIENCE
        }
        // a side that is gone grants nothing
        (Ending::OutOfCredits { .. }, Rule::SmbdCreditDeadlock | Rule::PeerSilent) => true,
        (Ending::OutOfCredits { .. }, _) => false,
        (Ending::Aborted, Rule::PeerSilent) => side_of(f.by).is_some_and(|by| outcome.by == Some(by)),
        (Ending::Refused, Rule::MpaReject | Rule::CmReject | Rule::CmTimeout) => true,
        // what never arrives leaves requests open, however long its sender tries
        (_, Rule::PathMtu) => true,
        (Ending::NoNegotiation, rule) if rule.row().group == Group::Negotiate => true,
        (_, rule) if ends_connection(rule) => false,
        (_, Rule::Smb2Unanswered | Rule::RpcUnanswered) => false,
        // a side that waited and was granted credits went on
        (_, Rule::SmbdCreditStall | Rule::SmbdCreditStarved) => false,
        _ => outcome.at.time.saturating_sub(f.last_time_ns) <= outcome.waited.saturating_add(FOLLOWS),
    };
    let found = findings.iter().filter(here).filter(|f| answers(f) && !is_too_young(f));
    let first = found.min_by_key(|f| {
        (core::cmp::Reverse(f.severity), is_silence(f.rule), is_of_data(f.rule), f.frame, layer(f.rule), f.rule)
    });
    let first = first
        .or_else(|| findings.iter().filter(here).find(|f| matches!(f.rule, Rule::RdmapTerminate | Rule::TcpReset)));
    first.map(|f| (f.rule, f.by))
}

/// True if a finding reports silence, which an earlier violation explains.
fn is_silence(rule: Rule) -> bool {
    matches!(rule, Rule::Smb2Unanswered | Rule::RpcUnanswered | Rule::SmbdKeepalive)
}

/// True if a finding is about data that its receiver does not miss at once: another violation explains the end better.
fn is_of_data(rule: Rule) -> bool {
    rule == Rule::RdmaLength
}

/// Rank of a rule among the explanations in one frame: the transport before what it carries, a rule before the known
/// bug that broke it.
pub(crate) fn layer(rule: Rule) -> u8 {
    match rule.row().group {
        Group::Transport | Group::Connection | Group::Capture => 0,
        Group::KnownBug => 2,
        _ => 1,
    }
}

stored_enum!(Purpose { SmbDirect, NfsRdma, SmbTcp, RpcTcp, Rdma });
stored_enum!(Stage { Asked, Connected, Negotiated, Session, Work });
stored_enum!(Ending { Open, Waiting { dry }, Closed, Refused, NoTransport, NoNegotiation, NoSession, NoMount, NoAnswer, OutOfCredits { side, since }, Aborted, HungUp { requests } });
stored_enum!(Closing { Open, Closed, Reset, BrokenOff });
stored_enum!(Success { Yes, No, Unknown, Replaced });
stored!(Outcome { purpose, reached, ending, success, by, closed_by, closing, at, waited, certainty, cause } if |o| [o.by, o.closed_by].into_iter().flatten().all(|side| side < 2) && !matches!(o.ending, Ending::OutOfCredits { side, .. } | Ending::Waiting { dry: Some(side) } if side > 1));

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: i64 = 1_000_000_000;

    fn at(seconds: i64) -> At {
        At { frame: seconds.unsigned_abs() + 1, time: seconds * SECOND }
    }

    /// A session over SMB Direct that did its work and was closed by the client after ten seconds.
    fn well() -> Facts {
        Facts {
            transport: Some(Transport::Iwarp),
            protocol: Protocol::SmbDirect,
            port: 5445,
            complete: true,
            connected: true,
            first: at(0),
            end: at(10),
            closed: Some((Some(0), false)),
            negotiation: [Some(at(0)), Some(at(0))],
            accepted: true,
            messages: [10, 10],
            answered: 8,
            session: true,
            worked: 6,
            last_sent: [Some(at(10)), Some(at(10))],
            ..Facts::default()
        }
    }

    fn shown(facts: &Facts) -> (Stage, Ending, Success, Option<usize>) {
        let outcome = of(facts).unwrap();
        (outcome.reached, outcome.ending, outcome.success, outcome.by)
    }

    #[test]
    fn a_session_that_did_its_work_has_reached_what_it_was_for() {
        assert_eq!(shown(&well()), (Stage::Work, Ending::Closed, Success::Yes, None));
        assert_eq!(shown(&Facts { closed: None, ..well() }), (Stage::Work, Ending::Open, Success::Yes, None));
        let sealed = Facts { worked: 0, answered: 2, sealed: [3, 3], ..well() };
        assert_eq!(shown(&sealed), (Stage::Work, Ending::Closed, Success::Yes, None));
    }

    #[test]
    fn a_handshake_without_an_answer_is_the_servers() {
        let silent = Facts {
            protocol: Protocol::Unknown,
            connected: false,
            negotiation: [None; 2],
            accepted: false,
            messages: [0; 2],
            answered: 0,
            session: false,
            worked: 0,
            last_sent: [None; 2],
            ..well()
        };
        assert_eq!(shown(&silent), (Stage::Asked, Ending::NoTransport, Success::No, Some(1)));
        // while it is young, nothing can be said
        let young = Facts { closed: None, end: at(2), ..silent.clone() };
        assert_eq!(shown(&young).2, Success::Unknown);
        let old = Facts { closed: None, end: at(20), ..silent.clone() };
        assert_eq!(shown(&old), (Stage::Asked, Ending::NoTransport, Success::No, Some(1)));
        // a SYN that is answered by a reset, and TCP that is nothing of ours
        let refused = Facts { transport: Some(Transport::Tcp), closed: Some((Some(1), true)), ..silent.clone() };
        assert_eq!(shown(&refused), (Stage::Asked, Ending::Refused, Success::No, Some(1)));
        assert_eq!(of(&Facts { port: 443, ..refused }), None);
        let rejected = Facts { rejected: true, ..silent };
        assert_eq!(shown(&rejected).1, Ending::Refused);
        let by = |transport: Transport, closed: Option<Option<usize>>| {
            let (transport, closed) = (Some(transport), closed.map(|by| (by, false)));
            shown(&Facts { transport, closed, ..rejected.clone() }).3
        };
        assert_eq!(
            [Some(Some(0)), Some(Some(1)), Some(None)].map(|closed| by(Transport::RoceV2, closed)),
            [Some(0), Some(1), None]
        );
        assert_eq!([None, Some(Some(0))].map(|closed| by(Transport::Iwarp, closed)), [Some(1); 2]);
    }

    #[test]
    fn an_unfinished_negotiation_is_whose_turn_it_was() {
        let begun = Facts {
            negotiation: [Some(at(1)), None],
            accepted: false,
            messages: [0; 2],
            answered: 0,
            session: false,
            worked: 0,
            ..well()
        };
        let begun = Facts { last_sent: [Some(at(1)), None], ..begun };
        assert_eq!(shown(&begun), (Stage::Connected, Ending::NoNegotiation, Success::No, Some(1)));
        // the client went away at once
        let at_once = Facts { end: at(1), ..begun.clone() };
        assert_eq!(shown(&at_once).3, Some(0));
        // the client never said a word
        let silent = Facts {
            negotiation: [None; 2],
            last_sent: [None; 2],
            closed: Some((Some(1), false)),
            end: at(5),
            ..begun.clone()
        };
        assert_eq!(shown(&silent), (Stage::Connected, Ending::NoNegotiation, Success::No, Some(0)));
        // nothing was seen but how it was opened and closed: that may be all that the capture can see
        let unseen = Facts { complete: false, silent: true, closed: Some((Some(0), false)), ..silent };
        assert_eq!(shown(&unseen), (Stage::Connected, Ending::NoNegotiation, Success::No, Some(0)));
        assert_eq!(of(&unseen).unwrap().certainty, Certainty::Guess);
        assert_eq!(shown(&Facts { end: at(0), ..unseen }).2, Success::Unknown, "it had no time to");
        // both agreed, and the client went away
        let agreed = Facts { negotiation: [Some(at(1)); 2], accepted: true, ..begun };
        assert_eq!(shown(&agreed), (Stage::Negotiated, Ending::NoNegotiation, Success::No, Some(0)));
    }

    #[test]
    fn credits_that_never_come_are_their_granters() {
        let dry = Facts { last_sent: [Some(at(1)), Some(at(1))], dry: [Some(at(1)), None], end: at(31), ..well() };
        assert_eq!(shown(&dry), (Stage::Work, Ending::OutOfCredits { side: 0, since: at(1) }, Success::No, Some(1)));
        let outcome = of(&dry).unwrap();
        assert_eq!(
            outcome.sentence(0),
            "The client ran out of credits and was granted none from 1.00 s on; it gave up 30.0 s later"
        );
        // one that closes in the middle of its work did not wait
        let busy = Facts { last_sent: [Some(at(31)), Some(at(31))], dry: [Some(at(31)), None], ..dry };
        assert_eq!(shown(&busy).1, Ending::Closed);
    }

    #[test]
    fn requests_left_open_are_whose_who_kept_them_waiting() {
        let open =
            |by, since| Facts { unanswered: 3, oldest_open: Some(since), closed: Some((Some(by), false)), ..well() };
        assert_eq!(shown(&open(1, at(10))), (Stage::Work, Ending::HungUp { requests: 3 }, Success::No, Some(1)));
        assert_eq!(shown(&open(0, at(2))).3, Some(1));
        assert_eq!(shown(&open(0, at(10))).3, Some(0));
        let outcome = of(&open(1, at(10))).unwrap();
        assert_eq!(outcome.sentence(0), "The server hung up with 3 requests open");
        assert_eq!(
            of(&open(0, at(2))).unwrap().sentence(0),
            "The client hung up with 3 requests open: no answer for 8.00 s"
        );
        // encrypted requests that nothing whole came back for
        let sealed = Facts { sealed: [1, 0], worked: 0, answered: 2, last_sent: [Some(at(5)), Some(at(5))], ..well() };
        assert_eq!(shown(&sealed), (Stage::Session, Ending::HungUp { requests: 1 }, Success::No, Some(1)));
    }

    #[test]
    fn what_was_missed_before_does_not_excuse_who_hangs_up_with_requests_open() {
        let open = |left: u64, transport| {
            let left = (left, Some(at(9)));
            let closed = Some((Some(1), false));
            let facts = Facts { complete: false, unanswered: 5, left, closed, transport: Some(transport), ..well() };
            let outcome = of(&facts).unwrap();
            (outcome.ending, outcome.success, outcome.by, outcome.certainty)
        };
        let hung_up = (Ending::HungUp { requests: 2 }, Success::No, Some(1));
        assert_eq!(open(2, Transport::Iwarp), (hung_up.0, hung_up.1, hung_up.2, Certainty::IfNothingWasMissed));
        // the last packets of a queue pair may be missing without a trace
        assert_eq!(open(2, Transport::RoceV2), (hung_up.0, hung_up.1, hung_up.2, Certainty::Guess));
        assert_eq!(open(0, Transport::Iwarp).1, Success::Yes, "the capture may have missed the replies");
    }

    #[test]
    fn half_a_request_is_one_that_is_open() {
        let half_since =
            |by, since| shown(&Facts { unfinished: Some(at(since)), closed: Some((Some(by), false)), ..well() });
        let half = |by| half_since(by, 10);
        assert_eq!(half(1), (Stage::Work, Ending::HungUp { requests: 1 }, Success::No, Some(1)));
        assert_eq!(half(0), (Stage::Work, Ending::HungUp { requests: 1 }, Success::No, Some(0)));
        assert_eq!(half_since(1, 2).3, Some(0), "the server waited for the rest");
        assert_eq!(shown(&Facts { unfinished: Some(at(9)), closed: None, ..well() }).2, Success::Yes);
    }

    #[test]
    fn a_server_closes_nothing_that_has_files_open() {
        let closed = |by, obliged| shown(&Facts { handles: 2, closed: Some((Some(by), false)), obliged, ..well() });
        assert_eq!(closed(1, None), (Stage::Work, Ending::Aborted, Success::No, Some(1)));
        assert_eq!(closed(0, None), (Stage::Work, Ending::Closed, Success::Yes, None), "a client may leave");
        assert_eq!(closed(1, Some(Obliged::Validation)).1, Ending::Closed);
    }

    #[test]
    fn a_reset_when_nothing_is_open_any_more_costs_nothing() {
        let reset = |by: usize| Facts { closed: Some((Some(by), true)), is_done: true, ..well() };
        for by in 0..2 {
            assert_eq!(shown(&reset(by)), (Stage::Work, Ending::Closed, Success::Yes, None));
            let open = Facts { is_done: false, ..reset(by) };
            assert_eq!(shown(&open), (Stage::Work, Ending::Aborted, Success::No, Some(by)));
            let asked = Facts { unanswered: 1, oldest_open: Some(at(10)), ..reset(by) };
            assert_eq!(shown(&asked).1, Ending::HungUp { requests: 1 });
            assert_eq!(shown(&Facts { unmounted: true, ..reset(by) }).1, Ending::NoMount);
            assert_eq!(shown(&Facts { terminated: true, ..reset(by) }).1, Ending::Aborted);
        }
    }

    /// \[MS-SMB2\] 3.3.5.4, 3.3.5.15.12
    #[test]
    fn a_server_that_has_to_hang_up_is_not_to_blame() {
        let asked = |obliged| {
            let closed = Some((Some(1), false));
            shown(&Facts { unanswered: 1, oldest_open: Some(at(10)), closed, obliged, ..well() }).3
        };
        let all = [None, Some(Obliged::SecondNegotiate), Some(Obliged::Validation)];
        assert_eq!(all.map(asked), [Some(1), Some(0), None]);
    }

    #[test]
    fn a_clock_that_is_set_back_makes_no_negative_times() {
        let back = Facts { unanswered: 1, oldest_open: Some(at(20)), closed: Some((Some(0), false)), ..well() };
        assert_eq!(of(&back).unwrap().waited, 0);
    }

    #[test]
    fn a_logon_that_was_refused_reached_no_session() {
        let refused = Facts { session: false, session_failures: 1, answered: 2, worked: 0, ..well() };
        assert_eq!(shown(&refused), (Stage::Negotiated, Ending::NoSession, Success::No, Some(1)));
        let user = Facts { is_undecided: true, ..refused };
        assert_eq!(shown(&user), (Stage::Negotiated, Ending::NoSession, Success::No, None));
    }

    #[test]
    fn a_client_that_was_refused_every_share_has_mounted_nothing() {
        let refused = Facts { unmounted: true, ..well() };
        assert_eq!(shown(&refused), (Stage::Work, Ending::NoMount, Success::No, None));
        assert_eq!(shown(&Facts { closed: None, ..refused }).2, Success::Yes, "it may go on");
    }

    #[test]
    fn what_was_missed_is_held_against_nobody() {
        let late = Facts { complete: false, unanswered: 3, oldest_open: Some(at(1)), ..well() };
        assert_eq!(shown(&late), (Stage::Work, Ending::Closed, Success::Yes, None));
        let nothing = Facts { complete: false, answered: 0, session: false, worked: 0, accepted: false, ..well() };
        assert_eq!(shown(&nothing).2, Success::Unknown);
        // a reset and a Terminate are seen, whatever else was missed
        assert_eq!(shown(&Facts { terminated: true, ..late }).2, Success::No);
    }

    #[test]
    fn a_server_that_hangs_up_before_its_first_packet_has_answered_nothing() {
        let facts = Facts {
            complete: false,
            unheard: true,
            negotiation: [Some(at(1)), None],
            accepted: false,
            messages: [0; 2],
            answered: 0,
            session: false,
            worked: 0,
            last_sent: [Some(at(1)), None],
            closed: Some((Some(1), false)),
            end: At { frame: 5, time: SECOND + 2000 },
            ..well()
        };
        assert_eq!(shown(&facts), (Stage::Connected, Ending::NoNegotiation, Success::No, Some(1)));
        let outcome = of(&facts).unwrap();
        assert_eq!(outcome.certainty, Certainty::IfNothingWasMissed);
        assert!(
            outcome.sentence(0).starts_with("The server hung up during SMB Direct negotiation after 2"),
            "{}",
            outcome.sentence(0)
        );
        // a client may have been answered, and never say so
        let by_client = Facts { closed: Some((Some(0), false)), end: at(3), ..facts.clone() };
        assert_eq!(of(&by_client).unwrap().certainty, Certainty::Guess);
        assert_eq!(shown(&Facts { unheard: false, ..facts.clone() }).2, Success::Unknown);
        assert_eq!(shown(&Facts { messages: [1, 0], ..facts }).2, Success::Unknown, "it went on");
    }

    #[test]
    fn a_client_that_asks_in_vain_has_failed() {
        let facts = Facts {
            transport: Some(Transport::Tcp),
            protocol: Protocol::Unknown,
            complete: false,
            connected: false,
            unheard: true,
            negotiation: [None; 2],
            accepted: false,
            messages: [0; 2],
            answered: 0,
            session: false,
            worked: 0,
            last_sent: [None; 2],
            closed: None,
            last: at(31),
            end: at(54),
            ..well()
        };
        let outcome = of(&facts).unwrap();
        assert_eq!(
            (outcome.purpose, outcome.ending, outcome.success, outcome.by, outcome.certainty, outcome.waited),
            (Purpose::SmbDirect, Ending::NoTransport, Success::No, Some(1), Certainty::Guess, 31 * SECOND)
        );
        // an answer may still come, and packets of the server may be missing
        assert_eq!(shown(&Facts { end: at(2), ..facts.clone() }).2, Success::Unknown);
        assert_eq!(shown(&Facts { unheard: false, ..facts.clone() }).2, Success::Unknown);
        assert_eq!(shown(&Facts { messages: [1, 0], ..facts }).2, Success::Unknown, "it went on");
    }

    #[test]
    fn who_breaks_a_connection_off_ends_it_whoever_closes_it() {
        let hung_up =
            |by: usize| Facts { unanswered: 1, oldest_open: Some(at(10)), closed: Some((Some(by), false)), ..well() };
        for by in 0..2 {
            let outcome = of(&Facts { broken_off: Some(0), ..hung_up(by) }).unwrap();
            assert_eq!(
                (outcome.closed_by, outcome.sentence(0)),
                (Some(0), "The client broke off the connection with 1 request open".into())
            );
            let outcome = of(&hung_up(by)).unwrap();
            assert_eq!(outcome.closed_by, Some(by));
            assert!(outcome.sentence(0).ends_with("hung up with 1 request open"));
        }
    }

    #[test]
    fn what_nobody_is_known_to_have_closed() {
        let told = |closed| {
            let facts = Facts { unanswered: 1, oldest_open: Some(at(10)), closed, last: at(10), end: at(11), ..well() };
            let outcome = of(&facts).unwrap();
            (outcome.by, outcome.sentence(0))
        };
        assert_eq!(told(Some((None, true))), (None, "The connection was reset with 1 request open".into()));
        assert_eq!(told(Some((None, false))), (None, "The connection was closed with 1 request open".into()));
    }

    #[test]
    fn a_capture_that_ends_while_a_side_waits_does_not_show_how_it_went_on() {
        let open = Facts { closed: None, ..well() };
        let waits = |since: i64| Facts { unanswered: 1, oldest_open: Some(at(since)), ..open.clone() };
        assert_eq!(shown(&waits(8)), (Stage::Work, Ending::Waiting { dry: None }, Success::Unknown, None));
        assert_eq!(
            of(&waits(8)).unwrap().sentence(0),
            "A request had no answer when the capture ended, and had waited 2.00 s for it"
        );
        assert_eq!(shown(&waits(10)).2, Success::Yes, "it was on its way");
        let dry = |since: i64| Facts { dry: [Some(at(since)), None], last_sent: [Some(at(8)); 2], ..open.clone() };
        assert_eq!(shown(&dry(8)), (Stage::Work, Ending::Waiting { dry: Some(0) }, Success::Unknown, None));
        let sentence = "The client had no credits left when the capture ended, and had been granted none for 2.00 s";
        assert_eq!(of(&dry(8)).unwrap().sentence(0), sentence);
        assert_eq!(shown(&dry(10)).2, Success::Yes);
        assert_eq!(
            shown(&Facts { dry: [None, Some(at(8))], last_sent: [Some(at(8)); 2], ..open }).2,
            Success::Yes,
            "nobody asks it for anything"
        );
    }

    #[test]
    fn a_client_that_goes_on_has_accepted_the_negotiation() {
        let agreed = |messages| Facts { messages, answered: 0, session: false, worked: 0, ..well() };
        assert_eq!(shown(&agreed([0, 2])).1, Ending::NoNegotiation);
        assert_eq!(shown(&agreed([1, 2])).1, Ending::NoAnswer);
    }

    #[test]
    fn times_of_any_size_are_borne() {
        for (first, end) in [(i64::MIN, i64::MAX), (i64::MAX, i64::MIN)] {
            let (first, end) = (At { frame: 1, time: first }, At { frame: 2, time: end });
            let facts =
                Facts { first, end, last_sent: [Some(first), None], dry: [Some(first), None], unanswered: 1, ..well() };
            let outcome = of(&facts).unwrap();
            assert!(!outcome.sentence(end.time).is_empty());
        }
    }
}
