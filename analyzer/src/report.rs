//! What an analysis found, as plain data: the views (text, JSON, HTML, terminal UI, metrics) are made from it.

use crate::exchange::Exchange;
use crate::finding::{Blame, Finding, Findings};
use crate::latency::Latency;
use crate::op::{At, End};
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::fmt;
use rdmascope_dissector::frame::Addr;

/// The whole capture.
#[derive(Clone, Debug, Default)]
pub struct Report {
    /// Frames and what they were.
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
}

/// Frames.
#[derive(Clone, Debug, Default)]
pub struct Capture {
    /// All of them.
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
    /// What was forgotten to stay within limits: the table, and how often.
    pub dropped: Vec<(&'static str, u64)>,
}

/// What carries a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Transport {
    /// RoCE version 2.
    RoceV2,
    /// InfiniBand, and RoCE version 1.
    Infiniband,
    /// MPA over TCP.
    Iwarp,
    /// Plain TCP.
    Tcp,
}

impl Transport {
    /// The word of the JSON report.
    pub const fn key(self) -> &'static str {
        match self {
            Self::RoceV2 => "rocev2",
            Self::Infiniband => "infiniband",
            Self::Iwarp => "iwarp",
            Self::Tcp => "tcp",
        }
    }

    /// The word for people.
    pub const fn name(self) -> &'static str {
        match self {
            Self::RoceV2 => "RoCEv2",
            Self::Infiniband => "InfiniBand",
            Self::Iwarp => "iWARP",
            Self::Tcp => "TCP",
        }
    }
}

/// What a connection carries.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Protocol {
    /// SMB Direct with SMB2 inside.
    SmbDirect,
    /// RPC-over-RDMA with NFS inside.
    RpcRdma,
    /// SMB2 over plain TCP.
    Smb2,
    /// ONC RPC over plain TCP.
    Rpc,
    /// Not known.
    #[default]
    Unknown,
}

impl Protocol {
    /// The word of the JSON report.
    pub const fn key(self) -> &'static str {
        match self {
            Self::SmbDirect => "smb_direct",
            Self::RpcRdma => "rpcrdma",
            Self::Smb2 => "smb2",
            Self::Rpc => "rpc",
            Self::Unknown => "unknown",
        }
    }

    /// The word for people.
    pub const fn name(self) -> &'static str {
        match self {
            Self::SmbDirect => "SMB Direct",
            Self::RpcRdma => "NFS/RDMA",
            Self::Smb2 => "SMB2",
            Self::Rpc => "RPC",
            Self::Unknown => "unknown",
        }
    }
}

/// How it is known which two flows are one connection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Handshake {
    /// Its CM or MPA handshake, or its TCP SYN, is in the capture.
    Seen,
    /// It was worked out.
    #[default]
    Inferred,
    /// The user said so.
    Pinned,
}

impl Handshake {
    /// The word of the JSON report.
    pub const fn key(self) -> &'static str {
        match self {
            Self::Seen => "seen",
            Self::Inferred => "inferred",
            Self::Pinned => "pinned",
        }
    }
}

/// One end.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Peer {
    /// Network address.
    pub address: Addr,
    /// TCP port, or the port of the RDMA-CM service where that is known; 0 unknown.
    pub port: u16,
    /// Queue pair number; `None` on iWARP, and where it was never seen.
    pub qp: Option<u32>,
}

/// One connection. Pairs are `[client, server]`.
#[derive(Clone, Debug, Default)]
pub struct Connection {
    /// Counted from 1.
    pub id: u32,
    /// The numbers under which a [`Sink`] and an observer were told of it: several where its two directions were tied together late.
    pub followed_as: Vec<u32>,
    /// Carrier; `None` only in a default value.
    pub transport: Option<Transport>,
    /// Content.
    pub protocol: Protocol,
    /// The ends. Which is the client is a guess where `client_known` is false.
    pub peers: [Peer; 2],
    /// Whether it is known which end is the client.
    pub client_known: bool,
    /// Which [`End`] of the events is the client.
    pub client_end: Option<End>,
    /// The first frame.
    pub first: At,
    /// The last frame.
    pub last: At,
    /// How its two directions were tied together.
    pub handshake: Handshake,
    /// Who ended it: 0 the client, 1 the server; how; when.
    pub closed: Option<(Option<usize>, &'static str, At)>,
    /// A CM or MPA rejection: its reason.
    pub rejected: Option<String>,
    /// Sizes and status agreed by SMB Direct.
    pub negotiated: Negotiated,
    /// The SMB layer.
    pub smb: Smb,
    /// Messages and credits, by end.
    pub sides: [SideReport; 2],
    /// Credit ledger story: (time, client holds, server holds), thinned to a bounded number of points.
    pub credit_story: Vec<(i64, i64, i64)>,
    /// RDMA.
    pub rdma: Rdma,
    /// The wire.
    pub health: Health,
    /// The mirror sessions that its frames came through, of [`Capture::mirrors`].
    pub mirrors: crate::mirror::Set,
    /// Exchanges by command.
    pub commands: Vec<Command>,
    /// Throughput over time: (time, bytes in frames from the client, from the server), thinned to a bounded number of points.
    pub throughput: Vec<(i64, u64, u64)>,
    /// Trouble on the wire over time: (time, retransmissions, negative acknowledgments, congestion marks), where there was any.
    pub trouble: Vec<(i64, [u64; 3])>,
}

/// What SMB Direct agreed on, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Negotiated {
    /// By end: bytes it sends in one message.
    pub max_send_size: [Option<u32>; 2],
    /// By end: bytes it receives in one message.
    pub max_receive_size: [Option<u32>; 2],
    /// By end: bytes it reassembles.
    pub max_fragmented_size: [Option<u32>; 2],
    /// Bytes of RDMA for one request.
    pub max_read_write_size: Option<u32>,
    /// NTSTATUS of the Negotiate Response.
    pub status: Option<u32>,
}

/// What is known of SMB.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Smb {
    /// 0x0311 and so on.
    pub dialect: Option<u16>,
    /// Session ids.
    pub sessions: Vec<u64>,
    /// Whether messages were signed.
    pub signed: bool,
    /// Whether messages were encrypted.
    pub encrypted: bool,
    /// Messages that could be decrypted with the keys given.
    pub decrypted: u64,
    /// Signatures that are right by the keys given.
    pub verified: u64,
    /// By end: encrypted messages it sent, and the last of them.
    pub sealed: [(u64, Option<At>); 2],
}

/// One end's messages and credits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SideReport {
    /// Messages it sent (SMB Direct data transfers, RPC-over-RDMA messages, SMB2 messages on TCP).
    pub messages: u64,
    /// Messages that went in fragments.
    pub fragmented: u64,
    /// Fragments of those.
    pub fragments: u64,
    /// Requests for a response.
    pub keepalives: u64,
    /// Messages without data.
    pub empty: u64,
    /// Most credits it asked for.
    pub requested_max: u32,
    /// Credits granted to it.
    pub granted_total: u64,
    /// Credits it spent.
    pub spent_total: u64,
    /// Least it held, where known.
    pub held_min: Option<i64>,
    /// What it held at the end, where known.
    pub held_last: Option<i64>,
    /// Times it waited for credits.
    pub stalls: u64,
    /// How long together, ns.
    pub stalled_time: i64,
    /// The longest, ns.
    pub stall_longest: i64,
    /// Sends without credit.
    pub overruns: u64,
}

/// RDMA operations of a connection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Rdma {
    /// RDMA Reads.
    pub reads: u64,
    /// Bytes they brought.
    pub read_bytes: u64,
    /// RDMA Writes.
    pub writes: u64,
    /// Bytes they brought.
    pub write_bytes: u64,
    /// Descriptors and segments advertised.
    pub keys_advertised: u64,
    /// Keys invalidated by the peer's Send.
    pub keys_invalidated_remotely: u64,
    /// Operations outside of what was advertised.
    pub outside_advertised: u64,
}

/// How the wire did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Health {
    /// Packets or segments that went out again.
    pub retransmissions: u64,
    /// Negative acknowledgments other than RNR.
    pub naks: u64,
    /// Receiver-not-ready NAKs.
    pub rnr_naks: u64,
    /// Places where packets were missing when the next one came.
    pub sequence_gaps: u64,
    /// Copies made by the capture or a mirror.
    pub duplicates: u64,
    /// Wrong invariant CRCs.
    pub icrc_bad: u64,
    /// Wrong MPA CRCs.
    pub crc_bad: u64,
    /// Packets marked congestion experienced.
    pub ecn_marked: u64,
    /// Congestion notification packets.
    pub cnps: u64,
}

impl Rdma {
    /// Adds what another connection did.
    pub fn join(&mut self, other: &Self) {
        self.reads += other.reads;
        self.read_bytes += other.read_bytes;
        self.writes += other.writes;
        self.write_bytes += other.write_bytes;
        self.keys_advertised += other.keys_advertised;
        self.keys_invalidated_remotely += other.keys_invalidated_remotely;
        self.outside_advertised += other.outside_advertised;
    }
}

impl Health {
    /// Adds what another connection met.
    pub fn join(&mut self, other: &Self) {
        self.retransmissions += other.retransmissions;
        self.naks += other.naks;
        self.rnr_naks += other.rnr_naks;
        self.sequence_gaps += other.sequence_gaps;
        self.duplicates += other.duplicates;
        self.icrc_bad += other.icrc_bad;
        self.crc_bad += other.crc_bad;
        self.ecn_marked += other.ecn_marked;
        self.cnps += other.cnps;
    }
}

/// All exchanges of one command on a connection.
#[derive(Clone, Debug)]
pub struct Command {
    /// `READ`, `CREATE`, …
    pub name: &'static str,
    /// How many.
    pub count: u64,
    /// Of those, with a failing status.
    pub errors: u64,
    /// Of those, without a reply.
    pub unanswered: u64,
    /// Payload bytes moved.
    pub bytes: u64,
    /// Request to reply.
    pub latency: Latency,
    /// Where the time went, summed, in ns: credit, wire, server, RDMA.
    pub split: [i64; 4],
}

/// What listens to an analysis as it goes; all methods do nothing by default.
pub trait Sink {
    /// An exchange is complete, or will not be.
    fn exchange(&mut self, _exchange: &Exchange) {}
    /// An SMB2 reply, from its header to the next one's of a compound, as far as it was captured; the exchange is told later.
    fn reply(&mut self, _exchange: u64, _message: &[u8]) {}
    /// An SMB2 request, from its header to the next one's of a compound, as far as it was captured; the exchange is told later.
    fn request(&mut self, _exchange: u64, _message: &[u8]) {}
    /// The credits that an end holds changed. `None` where unknown. Order: end A, end B.
    fn credits(&mut self, _connection: u32, _at: At, _held: [Option<i64>; 2]) {}
    /// The credits of the layer above that the client can still spend changed: SMB2's, or RPC-over-RDMA's.
    fn upper_credits(&mut self, _connection: u32, _at: At, _held: Option<i64>) {}
    /// An operation on a connection (told packet by packet).
    fn op(&mut self, _connection: u32, _op: &crate::op::RdmaOp<'_>) {}
    /// Payload of an exchange: bytes of the file at `offset`; told in pieces, as they come.
    fn payload(&mut self, _exchange: &Exchange, _offset: u64, _bytes: &[u8]) {}
    /// A connection, by the number it is followed under, was added up with others and is not kept any more.
    fn forgotten(&mut self, _connection: u32) {}
    /// A rule was found broken (also counted in the report).
    fn finding(&mut self, _finding: &crate::finding::Finding) {}
}

/// Listens to nothing.
#[derive(Clone, Copy, Debug, Default)]
pub struct Quiet;

impl Sink for Quiet {}

impl Connection {
    /// The story of a connection up to now.
    pub fn of(connection: &crate::connection::Connection) -> Self {
        let client = connection.client.unwrap_or(End::A);
        let ends = [client, client.peer()];
        let by_end = |end: End| usize::from(end != client);
        let smbd = connection.smbd.as_deref();
        let link = smbd.map(|s| &s.link);
        let mut negotiated = Negotiated::default();
        let mut sides = [SideReport::default(); 2];
        for (index, end) in ends.into_iter().enumerate() {
            if let Some(link) = link {
                let side = link.side(end);
                negotiated.max_send_size[index] = side.max_send_size;
                negotiated.max_receive_size[index] = side.max_receive_size;
                negotiated.max_fragmented_size[index] = side.max_fragmented_size;
                negotiated.max_read_write_size = link.max_read_write_size;
                negotiated.status = link.status;
                sides[index] = SideReport {
                    messages: side.messages,
                    fragmented: side.fragmented,
                    fragments: side.fragments,
                    keepalives: side.keepalives,
                    empty: side.empty,
                    requested_max: side.requested_max.into(),
                    granted_total: side.granted_total,
                    spent_total: side.spent_total,
                    held_min: side.held_min,
                    held_last: side.credits.known(),
                    stalls: side.stalls,
                    stalled_time: side.stalled_time,
                    stall_longest: side.stall_longest.0,
                    overruns: side.overruns,
                };
            }
            if let Some(rpc) = connection.rpc.as_deref() {
                let credits = &rpc.credits[end.index()];
                sides[index].messages = rpc.messages[end.index()];
                sides[index].requested_max = credits.requested_max;
                sides[index].spent_total = credits.calls;
                sides[index].overruns = credits.overruns;
                if let Some(granted) = credits.granted.known() {
                    sides[index].granted_total = granted.into();
                    sides[index].held_last = Some(i64::from(granted) - i64::from(credits.outstanding));
                    sides[index].held_min = Some(i64::from(granted) - i64::from(credits.outstanding_max));
                }
            }
        }
        let mut smb = Smb::default();
        let mut commands = Vec::new();
        if let Some(smb2) = connection.smb2.as_deref() {
            smb = Smb {
                dialect: smb2.dialect,
                sessions: smb2.sessions.clone(),
                signed: smb2.signed,
                encrypted: smb2.encrypted,
                decrypted: smb2.decrypted,
                verified: smb2.verified,
                sealed: ends.map(|end| smb2.sealed[end.index()]),
            };
            commands.extend_from_slice(smb2.commands.rows());
            if smbd.is_none() {
                for (index, end) in ends.into_iter().enumerate() {
                    sides[index].messages = smb2.messages[end.index()];
                }
            }
        }
        if let Some(rpc) = connection.rpc.as_deref() {
            commands.extend_from_slice(rpc.commands.rows());
        }
        let swap = |pair: [u64; 2]| if client == End::A { pair } else { [pair[1], pair[0]] };
        let hold = |pair: [Option<i64>; 2]| if client == End::A { pair } else { [pair[1], pair[0]] };
        let mut last = [None; 2];
        let credit_story = connection
            .story
            .points()
            .filter_map(|(time, least)| {
                let held = hold(least.0);
                // stretches without messages hold what was held before
                last = [held[0].or(last[0]), held[1].or(last[1])];
                Some((time, last[0]?, last[1]?))
            })
            .collect();
        let throughput = connection
            .throughput
            .points()
            .map(|(time, volume)| {
                let [client, server] = swap(volume.0);
                (time, client, server)
            })
            .collect();
        Self {
            id: connection.id,
            followed_as: alloc::vec![connection.id],
            transport: connection.transport,
            protocol: connection.protocol,
            peers: [connection.peers[client.index()], connection.peers[client.peer().index()]],
            client_known: connection.client.is_some(),
            client_end: connection.client,
            first: connection.first,
            last: connection.last,
            handshake: connection.handshake,
            closed: connection.closed.map(|(by, how, at)| (by.map(by_end), how, at)),
            rejected: connection.rejected.clone(),
            negotiated,
            smb,
            sides,
            credit_story,
            rdma: Rdma { outside_advertised: connection.rdma.outside_advertised, ..connection.rdma },
            health: connection.health,
            mirrors: connection.mirrors,
            commands,
            throughput,
            trouble: connection.trouble.points().map(|(time, trouble)| (time, trouble.0)).filter(|(_, n)| *n != [0; 3]).collect(),
        }
    }
}

/// Writes an address as people write it.
pub fn show_address(address: &Addr, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    fmt::Display::fmt(address, f)
}

impl Report {
    /// What a finding says, as a whole sentence that names who did it, with the address where the connection is known.
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

/// An address as people write it.
pub fn address(address: &Addr) -> String {
    address.to_string()
}
