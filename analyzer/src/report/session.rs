//! Sessions with their connections: an SMB session with its channels, an NFS 4.1 session with its connections, an NFS
//! mount with its; the traffic of each of them, and those that carried nothing, almost everything, or ended before the
//! others.
//!
//! ```text
//!   session 0x1 ─┬─ connection 1   TCP      the session was set up on it      46 requests,   1 % of the bytes
//!                ├─ connection 2   RoCEv2   bound as a channel             9,120 requests,  99 %
//!                └─ connection 3   RoCEv2   bound as a channel             no request: idle
//! ```
//!
//! [`sessions`] is a function of the connections of a report. \[MS-SMB2\] 3.2.1.8, 3.3.5.5.2; RFC 8881 2.10.

use crate::latency::Latency;
use crate::op::At;
use crate::report::{Connection, Protocol, Report, Signed, Smb, Transport};
use crate::stats::is_callback;
use crate::stored::stored;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use hashbrown::HashMap;
use rdmascope_dissector::frame::Addr;

/// Sessions that are put together.
const SESSIONS_MAX: usize = 1024;
/// Channels of one session.
const CHANNELS_MAX: usize = 64;
/// Requests from which it can be known how they are shared out.
const ENOUGH: u64 = 100;
/// Bytes from which it can be known how they are shared out.
const ENOUGH_BYTES: u64 = 1 << 20;
/// Of 100: the share of one channel from which the others hardly count.
const LOPSIDED: u64 = 90;

/// Known facts about NFS on one connection.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Nfs {
    /// Version of the NFS program; 0 if no call of it was seen.
    pub version: u32,
    /// Sessions of NFS 4.1 and later that its compounds ran in.
    pub sessions: Vec<[u8; 16]>,
    /// Calls of the server to the client.
    pub callbacks: u64,
    /// True if a call took long for which the server may have waited for a delegation of the client.
    pub perhaps_recalled: bool,
    /// Calls to rpcbind on this connection, and its answers.
    pub rpcbind: crate::rpcbind::Rpcbind,
    /// By end, the client first: the product and version that it gave in EXCHANGE_ID.
    pub implementations: [Option<String>; 2],
}

impl Nfs {
    /// A compound ran in a session.
    pub(crate) fn ran_in(&mut self, session: [u8; 16]) {
        if !self.sessions.contains(&session) && self.sessions.len() < CHANNELS_MAX {
            self.sessions.push(session);
        }
    }

    /// One end names its product.
    pub(crate) fn is_made_by(&mut self, end: usize, product: Option<&str>) {
        if let Some(product) = product {
            self.implementations[end] = Some(product.into());
        }
    }

    /// Takes over the facts from the other half of the connection.
    pub(crate) fn join(&mut self, other: &Self) {
        for (mine, other) in self.implementations.iter_mut().zip(&other.implementations) {
            *mine = mine.take().or_else(|| other.clone());
        }
        self.version = self.version.max(other.version);
        self.callbacks += other.callbacks;
        self.perhaps_recalled |= other.perhaps_recalled;
        self.rpcbind.join(&other.rpcbind);
        other.sessions.iter().for_each(|session| self.ran_in(*session));
    }
}

/// Identifier of a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Id {
    /// SessionId of SMB2.
    Smb(u64),
    /// sessionid4 of NFS 4.1 and later.
    Nfs([u8; 16]),
    /// A mount of NFS 3 or 4.0, which has no name.
    Mount,
}

impl Id {
    /// Name in JSON.
    pub const fn kind(&self) -> &'static str {
        match self {
            Self::Smb(_) => "smb",
            Self::Nfs(_) => "nfs_session",
            Self::Mount => "nfs_mount",
        }
    }

    /// The number in hexadecimal; empty if it has none.
    pub fn text(&self) -> String {
        match self {
            Self::Smb(id) => format!("{id:#018x}"),
            Self::Nfs(id) => format!("{:#034x}", u128::from_be_bytes(*id)),
            Self::Mount => String::new(),
        }
    }
}

/// Role of a connection in a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Role {
    /// The session was set up on it.
    First,
    /// It was bound to the session as another channel.
    Bound,
    /// It carries the session; the message that tied them was not seen, or none is needed.
    Member,
}

impl Role {
    /// Name in JSON.
    pub const fn key(self) -> &'static str {
        match self {
            Self::First => "first",
            Self::Bound => "bound",
            Self::Member => "member",
        }
    }
}

/// One connection of a session, and its traffic. It counts all of the connection, even if that carries several
/// sessions.
#[derive(Clone, Debug)]
pub struct Channel {
    /// Number of the connection in the report.
    pub connection: u32,
    /// Transport that carries the connection; `None` if unknown.
    pub transport: Option<Transport>,
    /// Its role in the session.
    pub role: Role,
    /// Requests.
    pub requests: u64,
    /// Of those, with a failing status.
    pub errors: u64,
    /// Of those, without a reply.
    pub unanswered: u64,
    /// Files opened on it (CREATE, OPEN).
    pub opens: u64,
    /// Locks asked for on it.
    pub locks: u64,
    /// Bytes of files read.
    pub read: u64,
    /// Bytes of files written.
    pub written: u64,
    /// Bytes that RDMA moved.
    pub rdma: u64,
    /// Calls of the server to the client (NFS).
    pub callbacks: u64,
    /// Of all requests, from request to reply.
    pub latency: Latency,
    /// Retransmitted packets or segments.
    pub retransmissions: u64,
    /// Credits of the transport (SMB Direct, RPC-over-RDMA) that the client held: the least, and at the end.
    pub credits: Option<(i64, i64)>,
    /// First frame on the connection.
    pub first: At,
    /// Last frame on the connection.
    pub last: At,
    /// End of the connection: side that closed it (0 the client, 1 the server), method, time.
    pub closed: Option<(Option<usize>, &'static str, At)>,
    /// True if it ended otherwise than by the client's own orderly end.
    pub broke: bool,
    /// True if it carries other sessions, too.
    pub shared: bool,
}

/// A session, or a mount, and the connections that carry it.
#[derive(Clone, Debug)]
pub struct Session {
    /// Identifier of the session.
    pub id: Id,
    /// The client's address, of its first connection.
    pub client: Addr,
    /// The server's.
    pub server: Addr,
    /// Dialect of SMB2, or version of NFS; 0 if it was not seen.
    pub version: u32,
    /// Part of the messages that is signed; true if messages were encrypted.
    pub protected: (Signed, bool),
    /// Its connections, in order.
    pub channels: Vec<Channel>,
    /// Remarks, in whole sentences.
    pub remarks: Vec<String>,
}

impl Session {
    /// Requests on all channels.
    pub fn requests(&self) -> u64 {
        self.channels.iter().map(|c| c.requests).sum()
    }

    /// Bytes of files read and written on all channels.
    pub fn bytes(&self) -> (u64, u64) {
        self.channels.iter().fold((0, 0), |(read, written), c| (read + c.read, written + c.written))
    }

    /// Share of the bytes (if there are none, of the requests) that a channel carried, in percent.
    pub fn share(&self, channel: &Channel) -> u64 {
        let (read, written) = self.bytes();
        let (part, whole) = if read + written > 0 {
            (channel.read + channel.written, read + written)
        } else {
            (channel.requests, self.requests())
        };
        (u128::from(part) * 100 + u128::from(whole) / 2).checked_div(u128::from(whole)).unwrap_or(0) as u64
    }
}

/// The sessions of a report, in the order in which they began.
pub fn sessions(report: &Report) -> Vec<Session> {
    let by_id: HashMap<u32, &Connection> = report.connections.iter().map(|c| (c.id, c)).collect();
    let start = report.capture.first.map_or(0, |at| at.time);
    let mut all: Vec<(Id, Vec<&Connection>)> = Vec::new();
    for (id, connections) in &report.sessions {
        let mut connections: Vec<&Connection> = connections.iter().filter_map(|c| by_id.get(c).copied()).collect();
        connections.sort_by_key(|c| (c.first, c.id));
        // servers restart their numbers: connections that do not belong together are sessions of their own
        let mut parts: Vec<Vec<&Connection>> = Vec::new();
        for connection in connections {
            match parts.iter_mut().rev().find(|part| belongs(connection, part)) {
                Some(part) if part.len() < CHANNELS_MAX => part.push(connection),
                Some(_) => {}
                None => parts.push(alloc::vec![connection]),
            }
        }
        all.extend(parts.into_iter().map(|part| (Id::Smb(*id), part)));
    }
    let mut nfs: HashMap<(Id, Addr, Addr), usize> = HashMap::new();
    for c in report.connections.iter().filter(|c| is_nfs(c)) {
        let [client, server] = c.peers.map(|p| p.address);
        let ids: Vec<Id> = if c.nfs.sessions.is_empty() {
            alloc::vec![Id::Mount]
        } else {
            c.nfs.sessions.iter().map(|s| Id::Nfs(*s)).collect()
        };
        for id in ids {
            // a session has one name wherever its connections come from
            let hosts = if id == Id::Mount { (client, server) } else { (Addr::None, Addr::None) };
            let at = *nfs.entry((id, hosts.0, hosts.1)).or_insert_with(|| {
                all.push((id, Vec::new()));
                all.len() - 1
            });
            if all[at].1.len() < CHANNELS_MAX {
                all[at].1.push(c);
            }
        }
    }
    all.retain(|(_, connections)| !connections.is_empty());
    all.sort_by_key(|(id, connections)| (connections.iter().map(|c| c.first).min(), *id));
    all.truncate(SESSIONS_MAX);
    all.into_iter().map(|(id, connections)| session(id, &connections, start)).collect()
}

/// True if a connection carries NFS and not only the calls that prepare it.
fn is_nfs(c: &Connection) -> bool {
    match c.protocol {
        Protocol::RpcRdma => !c.commands.is_empty(),
        Protocol::Rpc => c.nfs.version > 0,
        _ => false,
    }
}

/// True if an SMB2 connection belongs to the session that others carry: it was bound to it, or its set-up was not seen
/// and it ran beside them; and it leads to the same server.
fn belongs(c: &Connection, part: &[&Connection]) -> bool {
    let setup = &c.smb.setup;
    let differ = |a: Option<[u8; 16]>, b: Option<[u8; 16]>| a.zip(b).is_some_and(|(a, b)| a != b);
    let is_other =
        |p: &&Connection| differ(setup.guids[0], p.smb.setup.guids[0]) || differ(setup.guids[1], p.smb.setup.guids[1]);
    if part.iter().any(is_other) {
        return false;
    }
    let runs_beside = part.iter().any(|p| p.first <= c.last && c.first <= p.last);
    match (setup.binding, setup.set_up) {
        (Some((_, status)), _) => status.is_none_or(|s| s == 0) && runs_beside,
        // it set up a session of its own, which has got the same number
        (None, Some(_)) => false,
        (None, None) => runs_beside,
    }
}

fn session(id: Id, connections: &[&Connection], start: i64) -> Session {
    let channels: Vec<Channel> = connections.iter().map(|c| channel(&id, c)).collect();
    let first = connections.first();
    let addresses = first.map_or([Addr::None; 2], |c| c.peers.map(|p| p.address));
    let version = connections
        .iter()
        .map(|c| if matches!(id, Id::Smb(_)) { c.smb.dialect.unwrap_or(0).into() } else { c.nfs.version })
        .max();
    let protected = (Smb::signed_of(connections.iter().map(|c| &c.smb)), connections.iter().any(|c| c.smb.encrypted));
    let [client, server] = addresses;
    let mut session =
        Session { id, client, server, version: version.unwrap_or(0), protected, channels, remarks: Vec::new() };
    session.remarks = remarks(&session, start);
    session
}

fn channel(id: &Id, c: &Connection) -> Channel {
    let count = |names: &[&str]| c.commands.iter().filter(|r| names.contains(&r.name)).map(|r| r.count).sum();
    let bytes = |name: &str| c.commands.iter().filter(|r| r.name == name).map(|r| r.bytes).sum();
    let mut latency = Latency::default();
    c.commands.iter().for_each(|r| latency.join(&r.latency));
    let setup = &c.smb.setup;
    let (role, sessions) = match id {
        Id::Smb(_) if setup.binding.is_some() => (Role::Bound, c.smb.sessions.len()),
        Id::Smb(_) if setup.set_up.is_some() => (Role::First, c.smb.sessions.len()),
        Id::Smb(_) => (Role::Member, c.smb.sessions.len()),
        Id::Nfs(_) | Id::Mount => (Role::Member, c.nfs.sessions.len()),
    };
    let broke = c.closed.is_some_and(|(by, how, _)| how == "RST" || by == Some(1))
        || c.outcome.as_ref().is_some_and(|o| o.failed());
    Channel {
        connection: c.id,
        transport: c.transport,
        role,
        requests: c.commands.iter().map(|r| r.count).sum(),
        errors: c.commands.iter().map(|r| r.errors).sum(),
        unanswered: c.commands.iter().filter(|r| !is_callback(r.name)).map(|r| r.unanswered).sum(),
        opens: count(&["CREATE", "OPEN"]),
        locks: count(&["LOCK"]),
        read: bytes("READ"),
        written: bytes("WRITE"),
        rdma: c.rdma.read_bytes + c.rdma.write_bytes,
        callbacks: c.nfs.callbacks,
        latency,
        retransmissions: c.health.retransmissions,
        credits: c.sides[0].held_min.zip(c.sides[0].held_last),
        first: c.first,
        last: c.last,
        closed: c.closed,
        broke,
        shared: sessions > 1,
    }
}

/// Remarks about channels that stand out: one that carries nearly everything, one that carries nothing, one that ended
/// before the others.
fn remarks(session: &Session, start: i64) -> Vec<String> {
    let n = session.channels.len();
    let mut remarks = Vec::new();
    if n < 2 {
        return remarks;
    }
    let (read, written) = session.bytes();
    let requests = session.requests();
    let end = session.channels.iter().map(|c| c.last).max().unwrap_or_default();
    let begun = session.channels.iter().map(|c| c.first).min().unwrap_or_default();
    let half = end.time.saturating_sub(begun.time) / 2;
    let lived = |c: &Channel| c.last.time.saturating_sub(c.first.time) >= half;
    if requests >= ENOUGH || read + written >= ENOUGH_BYTES {
        let what = if read + written > 0 { "bytes" } else { "requests" };
        let most = session.channels.iter().max_by_key(|c| session.share(c));
        if let Some(most) = most.filter(|c| session.share(c) >= LOPSIDED)
            && session.channels.iter().filter(|c| lived(c)).count() > 1
        {
            let (share, id) = (session.share(most), most.connection);
            remarks.push(format!("One of {n} channels (connection {id}) carries {share} % of the {what}."));
        }
        for idle in session.channels.iter().filter(|c| lived(c) && c.read + c.written + c.opens + c.callbacks == 0) {
            let id = idle.connection;
            let requests = if idle.requests == 1 { "request" } else { "requests" };
            remarks.push(format!("Connection {id} carries no file: {} {requests} in all.", idle.requests));
        }
    }
    for gone in session.channels.iter().filter(|c| c.broke) {
        let Some((by, how, at)) = gone.closed else { continue };
        let others: Vec<&Channel> =
            session.channels.iter().filter(|c| c.connection != gone.connection && c.last > at).collect();
        let Some(next) = others.iter().max_by_key(|c| c.requests) else { continue };
        let who = match by {
            Some(0) => "the client",
            Some(_) => "the server",
            None => "one side",
        };
        let seconds = at.time.saturating_sub(start) as f64 / 1e9;
        let open = match gone.unanswered {
            0 => String::new(),
            1 => String::from(" with 1 request open"),
            n => format!(" with {n} requests open"),
        };
        let id = gone.connection;
        remarks.push(format!(
            "Connection {id} was ended by {who} ({how}) at {seconds:.2} s{open}; connection {} went on.",
            next.connection
        ));
    }
    remarks
}

stored!(Nfs { version, sessions, callbacks, perhaps_recalled, rpcbind, implementations });

#[cfg(test)]
mod tests {
    use super::*;
    use crate::path::SmbSetup;
    use crate::report::{Command, Peer, Smb};
    use alloc::vec;

    fn at(seconds: i64) -> At {
        At { frame: seconds.unsigned_abs() + 1, time: seconds * 1_000_000_000 }
    }

    fn row(name: &'static str, count: u64, bytes: u64) -> Command {
        Command { name, count, bytes, ..Command::default() }
    }

    fn smb(id: u32, from: i64, to: i64, bound: bool, bytes: u64) -> Connection {
        let setup =
            SmbSetup { set_up: Some(at(from)), binding: bound.then_some((at(from), Some(0))), ..SmbSetup::default() };
        Connection {
            id,
            transport: Some(Transport::Iwarp),
            protocol: Protocol::SmbDirect,
            peers: [2, 1].map(|n| Peer { address: Addr::V4([192, 0, 2, n]), port: 0, qp: None }),
            first: at(from),
            last: at(to),
            smb: Smb { dialect: Some(0x0311), sessions: vec![1], setup, ..Smb::default() },
            commands: vec![row("CREATE", 1, 0), row("READ", 200, bytes)],
            ..Connection::default()
        }
    }

    fn report(connections: Vec<Connection>) -> Report {
        let ids = connections.iter().map(|c| c.id).collect();
        Report { connections, sessions: vec![(1, ids)], ..Report::default() }
    }

    #[test]
    fn a_bound_connection_is_a_channel_of_its_session() {
        let all = sessions(&report(vec![smb(1, 0, 20, false, 1 << 20), smb(2, 1, 20, true, 1 << 20)]));
        assert_eq!((all.len(), all[0].channels.len(), all[0].bytes()), (1, 2, (2 << 20, 0)));
        assert_eq!(
            all[0].channels.iter().map(|c| (c.role, all[0].share(c))).collect::<Vec<_>>(),
            [(Role::First, 50), (Role::Bound, 50)]
        );
        assert_eq!(all[0].remarks, [""; 0]);
    }

    #[test]
    fn a_number_that_comes_again_is_another_session() {
        let again = sessions(&report(vec![smb(1, 0, 20, false, 10), smb(2, 30, 40, false, 10)]));
        assert_eq!(again.iter().map(|s| s.channels.len()).collect::<Vec<_>>(), [1, 1]);
        let mut other = smb(2, 1, 20, true, 10);
        let mut one = smb(1, 0, 20, false, 10);
        one.smb.setup.guids = [Some([1; 16]), Some([2; 16])];
        other.smb.setup.guids = [Some([1; 16]), Some([3; 16])];
        assert_eq!(sessions(&report(vec![one, other])).len(), 2, "another server");
    }

    #[test]
    fn outliers_are_reported() {
        let (most, mut idle) = (smb(1, 0, 20, false, 99 << 20), smb(2, 1, 20, true, 0));
        idle.commands = vec![row("ECHO", 3, 0)];
        let all = sessions(&report(vec![most.clone(), idle]));
        assert_eq!(
            all[0].remarks,
            [
                "One of 2 channels (connection 1) carries 100 % of the bytes.",
                "Connection 2 carries no file: 3 requests in all."
            ]
        );
        let mut gone = smb(2, 1, 8, true, 60 << 20);
        gone.closed = Some((Some(1), "RST", at(8)));
        gone.commands[1].unanswered = 4;
        let all = sessions(&report(vec![most, gone]));
        assert_eq!(
            all[0].remarks,
            ["Connection 2 was ended by the server (RST) at 8.00 s with 4 requests open; connection 1 went on."]
        );
    }

    #[test]
    fn nfs_is_put_together_by_session_or_by_hosts() {
        let nfs = |id: u32, sessions: &[[u8; 16]], version: u32| {
            let mut c = smb(id, 0, 9, false, 5);
            (c.protocol, c.transport, c.smb) = (Protocol::Rpc, Some(Transport::Tcp), Smb::default());
            c.nfs = Nfs { version, sessions: sessions.to_vec(), ..Nfs::default() };
            c
        };
        let connections =
            vec![nfs(1, &[[7; 16]], 4), nfs(2, &[[7; 16]], 4), nfs(3, &[], 3), nfs(4, &[], 3), nfs(5, &[], 0)];
        let all = sessions(&Report { connections, ..Report::default() });
        let shape: Vec<_> = all.iter().map(|s| (s.id, s.channels.len())).collect();
        assert_eq!(shape, [(Id::Nfs([7; 16]), 2), (Id::Mount, 2)], "mountd's connection is none");
    }
}
