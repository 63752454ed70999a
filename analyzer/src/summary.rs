//! Plain data that the layers of a connection tell of themselves, and that the report is made of.

use crate::episodes::time::{Owner, Time};
use crate::exchange::{Failing, Status};
use crate::latency::Latency;
use crate::op::At;
use crate::stored::{stored, stored_enum};
use alloc::string::{String, ToString};
use alloc::sync::Arc;
use alloc::vec::Vec;
use rdmascope_dissector::frame::Addr;

/// Transport of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Transport {
    /// RoCE version 2.
    RoceV2,
    /// RoCE version 1.
    RoceV1,
    /// InfiniBand.
    Infiniband,
    /// MPA over TCP.
    Iwarp,
    /// Plain TCP.
    Tcp,
}

impl Transport {
    /// The word of the JSON report, which counts RoCE version 1 as InfiniBand.
    pub const fn key(self) -> &'static str {
        match self {
            Self::RoceV2 => "rocev2",
            Self::RoceV1 | Self::Infiniband => "infiniband",
            Self::Iwarp => "iwarp",
            Self::Tcp => "tcp",
        }
    }

    /// The word for people.
    pub const fn name(self) -> &'static str {
        match self {
            Self::RoceV2 => "RoCEv2",
            Self::RoceV1 => "RoCE v1",
            Self::Infiniband => "InfiniBand",
            Self::Iwarp => "iWARP",
            Self::Tcp => "TCP",
        }
    }

    /// True if it has packets of InfiniBand: queue pairs and packet sequence numbers instead of a byte stream.
    pub const fn is_packets(self) -> bool {
        matches!(self, Self::RoceV2 | Self::RoceV1 | Self::Infiniband)
    }

    /// True for RDMA of any kind.
    pub const fn is_rdma(self) -> bool {
        !matches!(self, Self::Tcp)
    }
}

/// Upper-layer protocol of a connection.
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
    /// Unknown protocol.
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

/// Evidence that two flows are one connection.
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

/// One side of a connection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Peer {
    /// Network address.
    pub address: Addr,
    /// TCP port, or the port of the RDMA-CM service if known; 0 unknown.
    pub port: u16,
    /// Queue pair number; `None` on iWARP, and if it was never seen.
    pub qp: Option<u32>,
}

/// Progress of a connection. Pairs are `[client, server]`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Progress {
    /// True if the connection was established: the RDMA connection, or the TCP connection if there is none.
    pub connected: bool,
    /// When RDMA was accepted: by a REP of connection management, or by an MPA Reply.
    pub accepted: Option<At>,
    /// True if packets were missed, or the beginning was, or a whole direction.
    pub missed: bool,
    /// True if the contents of a direction were changed in the capture: what it said is not known.
    pub changed: bool,
    /// True if nothing of it was captured but its opening and its end.
    pub silent: bool,
    /// True if the MPA Request was answered with something other than an MPA Reply.
    pub spoke_otherwise: bool,
    /// Times of the Negotiate Request and the Negotiate Response of SMB Direct.
    pub negotiation: [Option<At>; 2],
    /// Time of the last message of SMB Direct from each side.
    pub last_sent: [Option<At>; 2],
    /// Time since which each side has no credit of SMB Direct that it may spend.
    pub dry: [Option<At>; 2],
    /// True if the Negotiate Response is one that the client must refuse, and did not accept.
    pub refused: bool,
    /// The first request of those that were never answered, and that must be.
    pub oldest_open: Option<At>,
    /// Number of those of which the capture shows that they were not answered, and the first.
    pub left: (u64, Option<At>),
    /// By side, of a message that has begun and is not whole: its last part.
    pub unfinished: [Option<At>; 2],
    /// Sides whose receive window of TCP was closed to the end.
    pub shut: [bool; 2],
    /// The side that broke it off by an error of the transport (a Terminate, or a NAK that is no request for packets),
    /// and when.
    pub broken_off: Option<(usize, At)>,
    /// True if packets of the client were captured, none of the server, and the client acknowledged none.
    pub unheard: bool,
    /// Times that the server repeated its answer to the connection request, and nothing of the client followed.
    pub unreached: u32,
}

/// Values negotiated by SMB Direct, in bytes.
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

/// Part of the messages of SMB that is signed. Those of the set-up do not count: in dialect 3.1.1 the last
/// SESSION_SETUP and every TREE_CONNECT are signed, whatever a session does (\[MS-SMB2\] 3.2.4.1.1).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Signed {
    /// None, not even of the set-up.
    #[default]
    No,
    /// Some, or only those of the set-up.
    InPart,
    /// All that may be signed.
    All,
}

impl Signed {
    /// The word of the reports for programs.
    pub const fn key(self) -> &'static str {
        match self {
            Self::No => "no",
            Self::InPart => "in_part",
            Self::All => "all",
        }
    }

    /// The words for people.
    pub const fn name(self) -> &'static str {
        match self {
            Self::No => "not signed",
            Self::InPart => "signed in part",
            Self::All => "signed",
        }
    }

    /// Of messages without and with a signature, and of the set-up with one.
    const fn of(signatures: [u64; 3]) -> Self {
        match signatures {
            [_, 0, 0] => Self::No,
            [_, 0, _] => Self::InPart,
            [0, _, _] => Self::All,
            _ => Self::InPart,
        }
    }
}

/// Known facts about SMB.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Smb {
    /// 0x0311 and so on.
    pub dialect: Option<u16>,
    /// Session ids.
    pub sessions: Vec<u64>,
    /// Messages in the clear without and with a signature of their own; messages of the set-up with one. Those that are
    /// never signed are not counted.
    pub signatures: [u64; 3],
    /// True if messages were encrypted.
    pub encrypted: bool,
    /// Messages that could be decrypted with the keys given.
    pub decrypted: u64,
    /// Signatures that are right by the keys given.
    pub verified: u64,
    /// By end: encrypted messages it sent, and the last of them.
    pub sealed: [(u64, Option<At>); 2],
    /// Facts about the path to RDMA in its messages.
    pub setup: crate::smb_setup::SmbSetup,
    /// Names of files and folders that were opened on it, each once, in their order; of very many the first.
    pub opened: Vec<Arc<str>>,
    /// Of handles that were opened on it and not closed: their names, sorted.
    pub open: Vec<Arc<str>>,
    /// The number of these, with those that have no name.
    pub handles: u64,
    /// True if a request may have waited for an oplock or a lease that the server had asked for, of what file is not
    /// known.
    pub perhaps_recalled: bool,
}

impl Smb {
    /// Names kept in [`Smb::opened`] at most.
    pub const OPENED_MAX: usize = 256;

    /// Part of its messages that is signed.
    pub const fn signed(&self) -> Signed {
        Signed::of(self.signatures)
    }

    /// The same of several connections.
    pub fn signed_of<'s>(all: impl IntoIterator<Item = &'s Self>) -> Signed {
        let mut sum = [0; 3];
        for smb in all {
            sum.iter_mut().zip(smb.signatures).for_each(|(sum, n)| *sum += n);
        }
        Signed::of(sum)
    }
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
    /// Fewest credits it held, if known.
    pub held_min: Option<i64>,
    /// Most credits it held, if known.
    pub held_max: Option<i64>,
    /// Credits it held at the end, if known.
    pub held_last: Option<i64>,
    /// Times it waited for credits.
    pub stalls: u64,
    /// Total time that it waited for credits, in ns.
    pub stalled_time: i64,
    /// The longest wait, in ns.
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
    /// Operations outside the advertised memory.
    pub outside_advertised: u64,
}

/// Counters of trouble on the wire.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Health {
    /// Retransmitted packets or segments.
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
    /// Adds the operations of another connection.
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
    /// True if packets were missing, or were retransmitted.
    pub fn is_troubled(&self) -> bool {
        self.retransmissions + self.naks + self.sequence_gaps > 0
    }

    /// Adds the counts of another connection.
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
#[derive(Clone, Debug, Default)]
pub struct Command {
    /// `READ`, `CREATE`, …
    pub name: &'static str,
    /// Number of requests.
    pub count: u64,
    /// Of those, with a failing status.
    pub errors: u64,
    /// Of those, without a reply.
    pub unanswered: u64,
    /// Of these, those that their client gave up itself: [`crate::exchange::Exchange::is_withdrawn`].
    pub withdrawn: u64,
    /// Payload bytes moved.
    pub bytes: u64,
    /// Request to reply.
    pub latency: Latency,
    /// The same of those that worked; `None` if all did.
    pub latency_of_worked: Option<Latency>,
    /// The latency by owner.
    pub time: Time,
    /// Request to reply without delays: credits, recovery, and the like.
    pub calm: Latency,
    /// Request to reply without the delays of one owner, for those owners that delayed any.
    pub without: Vec<(Owner, Latency)>,
    /// Total time that requests waited for credits before they were sent, in ns.
    pub waited: i64,
    /// The last reply of those that worked.
    pub worked: Option<At>,
    /// Requests that failed since.
    pub failing: FailingRun,
    /// The last reply, with its status if it failed.
    pub last: Option<(At, Option<Status>)>,
}

/// Requests of one command that failed one after the other, without one in between that worked.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FailingRun {
    /// Number of requests.
    pub count: u64,
    /// Of those, the ones that only met somebody else, or were asked to wait.
    pub busy: u64,
    /// Of those, the ones that the server no longer knows, or refuses altogether.
    pub lost: u64,
    /// The first reply, and the last one.
    pub span: (At, At),
    /// Status of the last reply.
    pub status: Option<Status>,
}

impl FailingRun {
    /// Another request failed.
    pub fn add(&mut self, at: At, status: Status) {
        let kind = status.failing();
        let one = Self {
            count: 1,
            busy: u64::from(kind == Failing::Busy),
            lost: u64::from(kind == Failing::Lost),
            span: (at, at),
            status: Some(status),
        };
        self.join(&one);
    }

    /// Takes over those of another run.
    pub fn join(&mut self, other: &Self) {
        if self.count == 0 || other.count == 0 {
            *self = if self.count == 0 { *other } else { *self };
            return;
        }
        self.count += other.count;
        self.busy += other.busy;
        self.lost += other.lost;
        self.status = if other.span.1 >= self.span.1 { other.status } else { self.status };
        self.span = (self.span.0.min(other.span.0), self.span.1.max(other.span.1));
    }
}

impl Command {
    /// Adds the time of an answered request; `time` adds up to `latency`.
    pub fn answered(&mut self, latency: i64, time: &Time) {
        for (owner, _) in time.parts().filter(|(owner, _)| owner.is_delay()) {
            if !self.without.iter().any(|(known, _)| *known == owner) {
                // it delayed none of those before
                self.without.push((owner, self.latency.clone()));
            }
        }
        self.without.iter_mut().for_each(|(owner, without)| without.add(latency.saturating_sub(time.of(*owner))));
        self.latency.add(latency);
        self.calm.add(latency.saturating_sub(time.held_up()));
        self.time += time;
    }

    /// Latencies of the requests that worked. Some failures take no time, and others all of a timeout.
    pub fn worked_latency(&self) -> &Latency {
        self.latency_of_worked.as_ref().unwrap_or(&self.latency)
    }

    /// Keeps the latencies of the requests that worked apart from now on. Called before [`Command::answered`].
    pub fn answers(&mut self, latency: i64, failed: bool) {
        if failed && self.latency_of_worked.is_none() {
            self.latency_of_worked = Some(self.latency.clone());
        }
        if let Some(worked) = self.latency_of_worked.as_mut().filter(|_| !failed) {
            worked.add(latency);
        }
    }

    /// A request worked, or failed.
    pub fn ended(&mut self, at: At, failed: Option<Status>) {
        match failed {
            Some(status) if status.failing() != Failing::Ordinary => self.failing.add(at, status),
            // who is told that a name does not exist is known to the server, but has not opened anything
            Some(_) if self.failing.lost * 2 < self.failing.count => {}
            _ => {
                self.worked = self.worked.max(Some(at));
                self.forget_failing();
            }
        }
    }

    fn forget_failing(&mut self) {
        if self.worked.is_some_and(|worked| worked > self.failing.span.0) {
            self.failing = FailingRun::default();
        }
    }

    /// Takes over what worked last, and what failed since.
    pub fn join_ends(&mut self, other: &Self) {
        self.worked = self.worked.max(other.worked);
        let is_later = self.last.is_none_or(|(at, _)| other.last.is_some_and(|(other, _)| other >= at));
        self.last = if is_later { other.last } else { self.last };
        self.forget_failing();
        if self.worked.is_some_and(|worked| worked > other.failing.span.0) {
            return;
        }
        self.failing.join(&other.failing);
    }

    /// Takes over the times of other requests of the command.
    pub fn join_times(&mut self, other: &Self) {
        for (owner, _) in &other.without {
            if !self.without.iter().any(|(known, _)| known == owner) {
                self.without.push((*owner, self.latency.clone()));
            }
        }
        for (owner, without) in &mut self.without {
            let theirs =
                other.without.iter().find(|(known, _)| known == owner).map_or(&other.latency, |(_, theirs)| theirs);
            without.join(theirs);
        }
        if self.latency_of_worked.is_some() || other.latency_of_worked.is_some() {
            let mine = &self.latency;
            self.latency_of_worked.get_or_insert_with(|| mine.clone()).join(other.worked_latency());
        }
        self.latency.join(&other.latency);
        self.calm.join(&other.calm);
        self.time += &other.time;
    }

    /// Parts of the time, in ns: credit (before the request as well), server, RDMA, wire.
    pub fn waits(&self) -> [i64; 4] {
        let of = |owner| self.time.of(owner);
        [self.waited.saturating_add(of(Owner::Credit)), of(Owner::Server), of(Owner::Rdma), of(Owner::Wire)]
    }
}

/// An address as people write it.
pub fn address(address: &Addr) -> String {
    address.to_string()
}

stored_enum!(Transport { RoceV2, RoceV1, Infiniband, Iwarp, Tcp });
stored_enum!(Protocol { SmbDirect, RpcRdma, Smb2, Rpc, Unknown });
stored_enum!(Handshake { Seen, Inferred, Pinned });
stored!(Peer { address, port, qp });
stored!(Progress { connected, accepted, missed, changed, silent, spoke_otherwise, negotiation, last_sent, dry, refused, oldest_open, left, unfinished, shut, broken_off, unheard, unreached } if |p| p.broken_off.is_none_or(|(side, ..)| side < 2));
stored!(Negotiated { max_send_size, max_receive_size, max_fragmented_size, max_read_write_size, status });
stored!(Smb {
    dialect,
    sessions,
    signatures,
    encrypted,
    decrypted,
    verified,
    sealed,
    setup,
    opened,
    open,
    handles,
    perhaps_recalled
});
stored!(SideReport {
    messages,
    fragmented,
    fragments,
    keepalives,
    empty,
    requested_max,
    granted_total,
    spent_total,
    held_min,
    held_max,
    held_last,
    stalls,
    stalled_time,
    stall_longest,
    overruns
});
stored!(Rdma {
    reads,
    read_bytes,
    writes,
    write_bytes,
    keys_advertised,
    keys_invalidated_remotely,
    outside_advertised
});
stored!(Health { retransmissions, naks, rnr_naks, sequence_gaps, duplicates, icrc_bad, crc_bad, ecn_marked, cnps });
stored!(Command {
    name,
    count,
    errors,
    unanswered,
    withdrawn,
    bytes,
    latency,
    latency_of_worked,
    time,
    calm,
    without,
    waited,
    worked,
    failing,
    last
});
stored!(FailingRun { count, busy, lost, span, status });
