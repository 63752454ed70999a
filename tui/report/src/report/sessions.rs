//! Texts about sessions that all formats share: a headline for each, a row for each connection of it.

use super::ReportData;
use super::words::{duration, grouped, size};
use rdmascope_analyzer::report::Transport;
use rdmascope_analyzer::session::{Channel, Id, Role, Session};

/// Heads of the columns of [`row`].
pub const HEADS: [&str; 12] =
    ["#", "over", "role", "requests", "opens", "locks", "read", "written", "by RDMA", "median", "sent again", "share"];

/// "SMB session 0x1, SMB 3.1.1".
pub fn headline(session: &Session) -> String {
    let name = match session.id {
        Id::Smb(id) => format!("SMB session {id:#x}"),
        Id::Nfs(_) => format!("NFS session {}", session.id.text()),
        Id::Mount => "NFS mount".to_owned(),
    };
    let version = match (session.id, session.version) {
        (_, 0) => String::new(),
        (Id::Smb(_), code) => format!(", {}", super::dialect(code as u16)),
        (_, version) => format!(", version {version}"),
    };
    format!("{name}{version}, {} → {}", session.client, session.server)
}

/// Totals of a session: "2 connections, 412 requests, 1.2 MB read, 96 kB written".
pub fn sums(session: &Session) -> String {
    let (read, written) = session.bytes();
    let n = session.channels.len() as u64;
    let connections = super::words::count(n, "connection");
    format!(
        "{connections}, {}, {} read, {} written",
        super::words::count(session.requests(), "request"),
        size(read),
        size(written)
    )
}

const fn role(channel: &Channel) -> &'static str {
    match channel.role {
        Role::First => "set up on it",
        Role::Bound => "bound",
        Role::Member => "",
    }
}

/// One connection of it, under [`HEADS`].
pub fn row(session: &Session, c: &Channel) -> [String; 12] {
    let counted = |n: u64| if n > 0 { grouped(n) } else { String::new() };
    [
        c.connection.to_string(),
        c.transport.map_or("", Transport::name).to_owned(),
        role(c).to_owned(),
        grouped(c.requests),
        counted(c.opens),
        counted(c.locks),
        counted(c.read),
        counted(c.written),
        counted(c.rdma),
        c.latency.quantile(500).map_or_else(|| "–".to_owned(), duration),
        counted(c.retransmissions),
        format!("{} %", session.share(c)),
    ]
}

/// Sessions that a text report shows: those on several connections. A session on one connection is reported with that
/// connection.
pub fn asked_for(data: &ReportData) -> impl Iterator<Item = &Session> {
    data.sessions.iter().filter(|s| s.channels.len() > 1)
}
