//! Results of an analysis, as plain data: the views (text, JSON, HTML, terminal UI, metrics) are made from it.

use crate::episodes;
use crate::episodes::time::Time;
use crate::exchange::{Exchange, Failures};
use crate::finding::{Blame, Finding, Findings};
use crate::op::{At, End};
use crate::stored::stored;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;
use rdmascope_dissector::wire::ib::cm::RpcRdmaPrivate;

pub mod answer;
pub mod outcome;
pub mod path;
pub mod session;
pub(crate) mod silence;
pub mod totals;
pub(crate) mod undelivered;

pub use crate::sink::{Parts, Quiet, Sink};
pub use crate::summary::*;

/// The whole capture.
#[derive(Clone, Debug, Default)]
pub struct Report {
    /// Frames and their contents.
    pub capture: Capture,
    /// Connections in the order in which they were first seen.
    pub connections: Vec<Connection>,
    /// Connections that were dropped from the report because there were too many.
    pub connections_dropped: u64,
    /// Connections that ended and were added up ([`crate::env::Options::fold`]).
    pub folded: crate::totals::Totals,
    /// Broken rules.
    pub findings: Findings,
    /// The slowest exchanges of the capture, slowest first.
    pub slowest: Vec<Exchange>,
    /// SMB sessions by session id, with the connections (channels) that carry them.
    pub sessions: Vec<(u64, Vec<u32>)>,
    /// Paths to RDMA: how far each pair of hosts got.
    pub paths: Vec<crate::path::Path>,
    /// Answers of servers' rpcbind to clients.
    pub rpcbind: Vec<crate::rpcbind::Registrations>,
}

/// Frames.
#[derive(Clone, Debug, Default)]
pub struct Capture {
    /// Frames of the capture.
    pub frames: u64,
    /// Bytes of them on the wire.
    pub bytes: u64,
    /// The first frame.
    pub first: Option<At>,
    /// The last frame.
    pub last: Option<At>,
    /// Frames by the highest protocol in them.
    pub dissected: Vec<(&'static str, u64)>,
    /// Frames of a followed connection that could not be decoded.
    pub undecoded: u64,
    /// Frames of a link type that is not known, which cannot be decoded, and the number of the first such type.
    pub unknown_link: Option<(u16, u64)>,
    /// Frames that the capture cut short.
    pub cut: u64,
    /// Packets that the capture lost, as far as sequence numbers tell.
    pub lost_by_capture: u64,
    /// Frames that were mirrored or tunnelled.
    pub tunnelled: u64,
    /// The mirror sessions and tunnels that they came through.
    pub mirrors: crate::mirror::Mirrors,
    /// Ethernet pause frames.
    pub pauses: u64,
    /// Pauses by sender and class.
    pub paused: crate::pauses::Pauses,
    /// Packets by class: the priority of their VLAN tag, else the upper three bits of their DSCP.
    pub classes: [u64; 8],
    /// Entries forgotten to stay within limits: the table, and their number.
    pub dropped: Vec<(&'static str, u64)>,
}

/// One connection. Pairs are `[client, server]`.
#[derive(Clone, Debug, Default)]
pub struct Connection {
    /// Counted from 1.
    pub id: u32,
    /// Its numbers in calls of a [`Sink`] and an observer: several if its two directions were paired late.
    pub followed_as: Vec<u32>,
    /// Carrier; `None` only in a default value.
    pub transport: Option<Transport>,
    /// Content.
    pub protocol: Protocol,
    /// The ends. Which is the client is a guess if `client_known` is false.
    pub peers: [Peer; 2],
    /// True if it is known which end is the client.
    pub client_known: bool,
    /// The [`End`] of the events that is the client.
    pub client_end: Option<End>,
    /// The first frame.
    pub first: At,
    /// The last frame.
    pub last: At,
    /// Evidence that its two directions belong together.
    pub handshake: Handshake,
    /// End of the connection: side that closed it (0 the client, 1 the server), method, time.
    pub closed: Option<(Option<usize>, &'static str, At)>,
    /// A CM or MPA rejection: its reason.
    pub rejected: Option<String>,
    /// Sizes and status agreed by SMB Direct.
    pub negotiated: Negotiated,
    /// The SMB layer.
    pub smb: Smb,
    /// NFS.
    pub nfs: crate::session::Nfs,
    /// Private data of both ends of NFS over RDMA in the handshake (RFC 8797); `None` if that was not seen.
    pub rpc_rdma_private: Option<[Option<RpcRdmaPrivate>; 2]>,
    /// Messages and credits, by end.
    pub sides: [SideReport; 2],
    /// Credit ledger story: (time, client holds, server holds), thinned to a bounded number of points.
    pub credit_history: Vec<(i64, i64, i64)>,
    /// RDMA.
    pub rdma: Rdma,
    /// The wire.
    pub health: Health,
    /// The mirror sessions that its frames came through, of [`Capture::mirrors`].
    pub mirrors: crate::mirror::Set,
    /// Exchanges by command.
    pub commands: Vec<Command>,
    /// Failed requests by command and status; bounded.
    pub failures: Vec<Failures>,
    /// Marking of its packets, and answers to congestion.
    pub network: crate::marking::Network,
    /// Progress of the connection.
    pub progress: Progress,
    /// Its outcome; `None` while it is open, and if it is not about storage.
    pub outcome: Option<crate::outcome::Outcome>,
    /// Its delays.
    pub episodes: episodes::Summary,
    /// Time of its requests by owner. A compound counts once; a request that waits for something to happen does not
    /// count.
    pub time: Time,
    /// Calls that were put off.
    pub delayed: Vec<crate::delays::Delayed>,
    /// By end: time of requests that it was itself slow to answer, in ns.
    pub slow_time: [i64; 2],
    /// Requests that were not answered, and that must be: the first of them. A compound counts once.
    pub open: Vec<At>,
    /// By end: behaviour of its adapter when something went wrong.
    pub devices: [crate::devices::Device; 2],
    /// By end: the shortest way from the capture point to it and back, in ns, if it was measured.
    pub round_trip: [Option<i64>; 2],
    /// Throughput over time: (time, bytes in frames from the client, from the server), thinned to a bounded number of
    /// points.
    pub throughput: Vec<(i64, u64, u64)>,
    /// Trouble on the wire over time, if there was any.
    pub trouble: Vec<(i64, crate::series::Trouble)>,
}

impl Connection {
    /// Name of an end, 0 the client: its role or, if the roles are not known, its address.
    pub const fn name_of(&self, end: usize) -> EndName<'_> {
        EndName { connection: self, end, article: "" }
    }

    /// The same inside a sentence: "the client", or the address.
    pub const fn the(&self, end: usize) -> EndName<'_> {
        EndName { connection: self, end, article: "the " }
    }
}

/// Name of an end of a connection: [`Connection::name_of`].
#[derive(Clone, Copy, Debug)]
pub struct EndName<'c> {
    connection: &'c Connection,
    end: usize,
    article: &'static str,
}

impl fmt::Display for EndName<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { connection, end, article } = self;
        match (connection.client_known, end) {
            (true, 0) => write!(f, "{article}client"),
            (true, _) => write!(f, "{article}server"),
            (false, _) => connection.peers[*end].address.fmt(f),
        }
    }
}

impl Report {
    /// The finding as a whole sentence that names the side, with its address if the connection is known.
    pub fn sentence(&self, finding: &Finding) -> String {
        let who = |end: usize, side: &str| match self.connections.iter().find(|c| Some(c.id) == finding.connection) {
            Some(c) => format!("The {side} ({})", address(&c.peers[end].address)),
            None => format!("The {side}"),
        };
        let who = match finding.by {
            Blame::Client => Some(who(0, "client")),
            Blame::Server => Some(who(1, "server")),
            Blame::Unknown | Blame::Network | Blame::Capture => None,
        };
        finding.sentence(who.as_deref())
    }
}

stored!(Report { capture, connections, connections_dropped, folded, findings, slowest, sessions, paths, rpcbind });
stored!(Capture {
    frames,
    bytes,
    first,
    last,
    dissected,
    undecoded,
    unknown_link,
    cut,
    lost_by_capture,
    tunnelled,
    mirrors,
    pauses,
    paused,
    classes,
    dropped
});
stored!(Connection { id, followed_as, transport, protocol, peers, client_known, client_end, first, last, handshake, closed, rejected, negotiated, smb, nfs, rpc_rdma_private, sides, credit_history, rdma, health, mirrors, commands, failures, network, progress, outcome, episodes, time, delayed, slow_time, open, devices, round_trip, throughput, trouble } if |c| !matches!(c.closed, Some((Some(side), ..)) if side > 1));
