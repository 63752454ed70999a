//! One row an I/O: request, the memory it advertised, the RDMA operations it caused, reply; its data and the owners of
//! its time.

use crate::episodes::time::{Behind, Owner, Request, Time};
use crate::op::{At, End};
use crate::stored::{stored, stored_enum};
use alloc::string::String;
use core::fmt;
pub use rdmascope_dissector::text::escaped;
use rdmascope_dissector::wire::nfs;
use rdmascope_dissector::wire::rpc::Outcome;
use rdmascope_dissector::wire::smb2::NtStatus;

/// Descriptors of one request kept in its row; a request may have more, which count.
pub const DESCRIPTORS_KEPT: usize = 4;

/// Path by which the payload of an exchange was transferred.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum DataPath {
    /// Inside the messages.
    #[default]
    Inline,
    /// RDMA, by descriptors or chunks.
    Rdma,
    /// RDMA, and the remote key invalidated by the reply.
    RdmaInvalidate,
    /// RDMA of transformed (encrypted or signed) payload.
    RdmaTransform,
}

impl DataPath {
    /// The word of the reports.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Inline => "inline",
            Self::Rdma => "rdma",
            Self::RdmaInvalidate => "rdma_invalidate",
            Self::RdmaTransform => "rdma_transform",
        }
    }
}

/// Memory that a request advertised.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Descriptor {
    /// Address or tagged offset.
    pub offset: u64,
    /// The remote key.
    pub token: u32,
    /// Length in bytes.
    pub length: u32,
}

/// RDMA that an exchange caused, of one kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Transfer {
    /// Operations (messages, not packets).
    pub operations: u32,
    /// Packets or segments.
    pub frames: u32,
    /// Bytes moved.
    pub bytes: u64,
    /// The first packet.
    pub first: At,
    /// The last one.
    pub last: At,
    /// Operations under way.
    pub open: u32,
}

/// Protocol of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Family {
    /// SMB2 and 3.
    Smb2,
    /// ONC RPC: NFS and its helpers.
    Rpc,
}

/// Status of a call that RPC itself refused: this, and a number of ours. No program has a status that large.
const REFUSED: u32 = 0x8000_0000;
/// The same, where the caller was not authenticated: this, and its `auth_stat`.
const UNAUTHENTICATED: u32 = REFUSED | 0x100;

/// Names of RFC 5531 9 for calls that were not executed, by what is added to [`REFUSED`], from 1 on.
const REFUSALS: [&str; 8] = [
    "PROG_UNAVAIL",
    "PROG_MISMATCH",
    "PROC_UNAVAIL",
    "GARBAGE_ARGS",
    "SYSTEM_ERR",
    "RPC_MISMATCH",
    "denied",
    "neither accepted nor denied",
];
/// The same for `auth_stat`.
const AUTH_ERRORS: [&str; 15] = [
    "AUTH_ERROR",
    "AUTH_BADCRED",
    "AUTH_REJECTEDCRED",
    "AUTH_BADVERF",
    "AUTH_REJECTEDVERF",
    "AUTH_TOOWEAK",
    "AUTH_INVALIDRESP",
    "AUTH_FAILED",
    "AUTH_KERB_GENERIC",
    "AUTH_TIMEEXPIRE",
    "AUTH_TKT_FILE",
    "AUTH_DECODE",
    "AUTH_NET_ADDR",
    "RPCSEC_GSS_CREDPROBLEM",
    "RPCSEC_GSS_CTXPROBLEM",
];

/// `GARBAGE_ARGS`: the server could not decode the call.
const GARBAGE_ARGS: u32 = REFUSED | 4;
/// `SYSTEM_ERR`: the server has no memory, or no other means.
const SYSTEM_ERR: u32 = REFUSED | 5;
/// `RPC_MISMATCH`: the call was not of version 2 of RPC.
const RPC_MISMATCH: u32 = REFUSED | 6;

/// `NFS3ERR_JUKEBOX`, by a number of ours: version 4 gave its number to `NFS4ERR_DELAY`, which means more.
const JUKEBOX: u32 = 0x4000_0000 | nfs::v3::Status::JUKEBOX.0;

/// Requests of one command that failed with one status.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Failures {
    /// `READ`, `CREATE`, …
    pub command: &'static str,
    /// The status.
    pub status: Status,
    /// Number of requests.
    pub count: u64,
}

/// Meaning of a failing status for the work of a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Failing {
    /// The file system answered: a name that is not there, the end of a file.
    Ordinary,
    /// Somebody else holds the file, or the server asks to wait.
    Busy,
    /// The server does not know the client's session or handles, or refuses it altogether.
    Lost,
    /// Anything else.
    Failed,
}

/// Values of NTSTATUS that mean damage.
const DAMAGE: [&str; 15] = [
    "STATUS_IN_PAGE_ERROR",
    "STATUS_NONEXISTENT_SECTOR",
    "STATUS_DISK_CORRUPT_ERROR",
    "STATUS_DATA_ERROR",
    "STATUS_CRC_ERROR",
    "STATUS_DISK_FULL",
    "STATUS_QUOTA_EXCEEDED",
    "STATUS_DEVICE_DATA_ERROR",
    "STATUS_IO_TIMEOUT",
    "STATUS_ADAPTER_HARDWARE_ERROR",
    "STATUS_UNEXPECTED_IO_ERROR",
    "STATUS_FILE_CORRUPT_ERROR",
    "STATUS_DISK_OPERATION_FAILED",
    "STATUS_IO_DEVICE_ERROR",
    "STATUS_LOST_WRITEBEHIND_DATA",
];

/// The name of a command with its article: "a READ", "an OPEN".
#[derive(Clone, Copy, Debug)]
pub struct One<'c>(pub &'c str);

impl fmt::Display for One<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // names of procedures such as FSINFO are spelt out
        let is_open = self.0.starts_with(['A', 'E', 'I', 'O'])
            || ["FS", "RPC", "UNKNOWN"].iter().any(|start| self.0.starts_with(start));
        write!(f, "{} {}", if is_open { "an" } else { "a" }, self.0)
    }
}

/// Status of a reply, written by its name: `STATUS_ACCESS_DENIED`, `ERR_GRACE`, `PROG_MISMATCH`, `OK`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Status(pub Family, pub u32);

impl Status {
    /// Status of a call that was not executed; `None` if it was.
    pub const fn of_refusal(outcome: Outcome) -> Option<u32> {
        Some(match outcome {
            Outcome::Success => return None,
            Outcome::Failed(state) if state.0 < 6 => REFUSED | state.0,
            Outcome::ProgramMismatch(..) => REFUSED | 2,
            Outcome::RpcMismatch(..) => REFUSED | 6,
            Outcome::AuthError(state) if state.0 < AUTH_ERRORS.len() as u32 => UNAUTHENTICATED | state.0,
            Outcome::AuthError(_) => UNAUTHENTICATED,
            Outcome::Failed(_) | Outcome::Denied(_) => REFUSED | 7,
            Outcome::Unknown(_) => REFUSED | 8,
        })
    }

    /// `NFS3ERR_JUKEBOX`.
    pub const JUKEBOX: Self = Self(Family::Rpc, JUKEBOX);

    /// Status of a reply of this version of NFS, by the number that the protocol has for it.
    pub const fn of_nfs(version: u32, code: u32) -> u32 {
        if version == 3 && code == nfs::v3::Status::JUKEBOX.0 { JUKEBOX } else { code }
    }

    /// The number that the protocol has for it; `None` if RPC refused the call: its program gave no status.
    pub const fn number(self) -> Option<u32> {
        match self {
            Self(Family::Rpc, code) if code & REFUSED != 0 => None,
            Self::JUKEBOX => Some(nfs::v3::Status::JUKEBOX.0),
            Self(_, code) => Some(code),
        }
    }

    /// True if the server could not execute the call for lack of something of its own: SYSTEM_ERR (RFC 5531 9).
    pub const fn is_system_error(self) -> bool {
        matches!(self, Self(Family::Rpc, SYSTEM_ERR))
    }

    /// True if it means damage: storage that failed or is full, or a message that the peer could not make sense of.
    pub fn is_damage(self) -> bool {
        match self {
            Self(Family::Smb2, code) => NtStatus(code).name().is_some_and(|name| DAMAGE.contains(&name)),
            // ERR_IO, ERR_NOSPC, ERR_DQUOT, ERR_SERVERFAULT, ERR_BADXDR
            Self(Family::Rpc, 5 | 28 | 69 | 10_006 | 10_036) => true,
            Self(Family::Rpc, code) => [GARBAGE_ARGS, SYSTEM_ERR, RPC_MISMATCH].contains(&code),
        }
    }

    /// Meaning of a failure for the work of a client (\[MS-ERREF\] 2.3.1; RFC 8881 15.1).
    pub const fn failing(self) -> Failing {
        let Self(family, code) = self;
        match family {
            Family::Smb2 => match code {
                // of files that are not there or are something else, and of what a client stops itself: BUFFER_OVERFLOW,
                // NO_MORE_FILES, STOPPED_ON_SYMLINK, NO_SUCH_FILE, END_OF_FILE, OBJECT_NAME_INVALID to
                // OBJECT_NAME_COLLISION, OBJECT_PATH_NOT_FOUND, DELETE_PENDING, FILE_IS_A_DIRECTORY, NOT_A_DIRECTORY,
                // CANCELLED, FS_DRIVER_REQUIRED, PATH_NOT_COVERED, IO_REPARSE_TAG_NOT_HANDLED; and pipes that are closed:
                // PIPE_DISCONNECTED, PIPE_CLOSING, PIPE_BROKEN
                0x8000_0005
                | 0x8000_0006
                | 0x8000_002d
                | 0xc000_000f
                | 0xc000_0011
                | 0xc000_0033..=0xc000_0035
                | 0xc000_003a
                | 0xc000_0056
                | 0xc000_00b0
                | 0xc000_00b1
                | 0xc000_00ba
                | 0xc000_0103
                | 0xc000_0120
                | 0xc000_014b
                | 0xc000_019c
                | 0xc000_0257
                | 0xc000_0279 => Failing::Ordinary,
                // SHARING_VIOLATION, FILE_LOCK_CONFLICT, LOCK_NOT_GRANTED, INSTANCE_NOT_AVAILABLE, PIPE_NOT_AVAILABLE,
                // PIPE_BUSY, PIPE_EMPTY, RETRY
                0xc000_0043 | 0xc000_0054 | 0xc000_0055 | 0xc000_00ab | 0xc000_00ac | 0xc000_00ae | 0xc000_00d9
                | 0xc000_022d => Failing::Busy,
                // INVALID_HANDLE, FILE_INVALID, NETWORK_NAME_DELETED, FILE_CLOSED, USER_SESSION_DELETED,
                // NETWORK_SESSION_EXPIRED
                0xc000_0008 | 0xc000_0098 | 0xc000_00c9 | 0xc000_0128 | 0xc000_0203 | 0xc000_035c => Failing::Lost,
                _ => Failing::Failed,
            },
            Family::Rpc if code & REFUSED != 0 => Failing::Lost,
            Family::Rpc => match code {
                // ERR_NOENT, ERR_EXIST, ERR_NOTDIR, ERR_ISDIR, ERR_DENIED (of a lock), ERR_SYMLINK
                2 | 17 | 20 | 21 | 10_010 | 10_029 => Failing::Ordinary,
                // ERR_DELAY, ERR_JUKEBOX, ERR_LOCKED, ERR_GRACE, ERR_SHARE_DENIED
                10_008 | JUKEBOX | 10_012 | 10_013 | 10_015 => Failing::Busy,
                // ERR_STALE, ERR_BADHANDLE, ERR_EXPIRED, ERR_FHEXPIRED, ERR_WRONGSEC, ERR_STALE_CLIENTID,
                // ERR_STALE_STATEID, ERR_BAD_STATEID, ERR_ADMIN_REVOKED, ERR_BADSESSION, ERR_SEQ_MISORDERED,
                // ERR_DEADSESSION, ERR_DELEG_REVOKED
                70 | 10_001 | 10_011 | 10_014 | 10_016 | 10_022 | 10_023 | 10_025 | 10_047 | 10_052 | 10_063
                | 10_078 | 10_087 => Failing::Lost,
                _ => Failing::Failed,
            },
        }
    }

    /// True if RPC refused the credential of the call.
    pub const fn is_unauthenticated(self) -> bool {
        matches!(self, Self(Family::Rpc, code) if code & UNAUTHENTICATED == UNAUTHENTICATED)
    }

    /// True if it says that the server could not read the call.
    pub const fn is_of_the_call(self) -> bool {
        matches!(self, Self(Family::Rpc, 10_036 | GARBAGE_ARGS | RPC_MISMATCH))
    }

    /// The same of a reply to a command. FSCTL_PIPE_WAIT and FSCTL_PIPE_TRANSCEIVE wait for a pipe, and no disk. What
    /// was to be written is lost for whatever reason the server could not write it.
    pub fn is_damage_of(self, command: &str) -> bool {
        /// STATUS_IO_TIMEOUT
        const TIMEOUT: u32 = 0xc000_00b5;
        let is_lost = || {
            matches!(command, "WRITE" | "FLUSH")
                && self.0 == Family::Smb2
                && self.failing() == Failing::Failed
                && !self.is_of_the_request()
        };
        self.is_damage() && !(command == "IOCTL" && self == Self(Family::Smb2, TIMEOUT)) || is_lost()
    }

    /// True if it says that a request of SMB2 is not one that the server executes for this client: NOT_IMPLEMENTED,
    /// INVALID_PARAMETER, INVALID_DEVICE_REQUEST, ACCESS_DENIED, NOT_SUPPORTED.
    const fn is_of_the_request(self) -> bool {
        matches!(self, Self(Family::Smb2, 0xc000_0002 | 0xc000_000d | 0xc000_0010 | 0xc000_0022 | 0xc000_00bb))
    }

    fn name(self) -> Option<&'static str> {
        let Self(family, code) = self;
        let nth = |names: &[&'static str], base: u32| names.get(code.wrapping_sub(base) as usize).copied();
        match family {
            Family::Smb2 => NtStatus(code).name(),
            Family::Rpc if code == 0 => Some("OK"),
            Family::Rpc if code & REFUSED != 0 => {
                nth(&AUTH_ERRORS, UNAUTHENTICATED).or_else(|| nth(&REFUSALS, REFUSED + 1))
            }
            Family::Rpc if code == JUKEBOX => Some("ERR_JUKEBOX"),
            // the other numbers that versions 3 and 4 and MOUNT share mean the same; only the prefix of the name differs
            Family::Rpc => {
                let name = nfs::v4::Status(code).name().or(nfs::v3::Status(code).name())?;
                name.find("ERR_").map(|at| &name[at..])
            }
        }
    }
}

impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.name(), self.0) {
            (Some(name), _) => f.write_str(name),
            (None, Family::Smb2) => write!(f, "{:#010x}", self.1),
            (None, Family::Rpc) => write!(f, "status {}", self.1),
        }
    }
}

/// One request with its reply and its data. Times in ns, sizes in bytes.
#[derive(Clone, Debug)]
pub struct Exchange {
    /// Counted from 1 over the whole capture, in the order of the requests.
    pub id: u64,
    /// The connection's number.
    pub connection: u32,
    /// Protocol family.
    pub family: Family,
    /// Name of the command or operation: `READ`, `CREATE`, `WRITE`, `GETATTR`.
    pub command: &'static str,
    /// MessageId, or XID.
    pub message_id: u64,
    /// Session that it ran in: sessionid4 of NFS, or SessionId of SMB2 as the last eight bytes; `None` outside of one.
    pub session: Option<[u8; 16]>,
    /// First frame of the request.
    pub request: At,
    /// Last frame of the request (of its last fragment).
    pub request_end: At,
    /// First frame of the reply.
    pub reply: Option<At>,
    /// Last frame of the reply.
    pub reply_end: Option<At>,
    /// NTSTATUS, or the NFS status, or that RPC refused the call: [`Status`].
    pub status: Option<u32>,
    /// True if the status is a failure.
    pub failed: bool,
    /// File name or path, unescaped, as far as it is known.
    pub file: Option<alloc::sync::Arc<str>>,
    /// What a call of NFS is about: a number made of the file handles and names in it, the same for the same ones.
    pub about: u64,
    /// Offset in the file.
    pub offset: Option<u64>,
    /// Length asked for.
    pub length: Option<u32>,
    /// Path of the payload.
    pub channel: DataPath,
    /// Memory advertised: the first of them.
    pub descriptors: [Descriptor; DESCRIPTORS_KEPT],
    /// Number of descriptors.
    pub descriptor_count: u32,
    /// RDMA Reads by the server.
    pub reads: Transfer,
    /// RDMA Writes by the server.
    pub writes: Transfer,
    /// Time between its RDMA operations in which none was under way, in ns, without short pauses.
    pub idle: i64,
    /// Payload bytes moved, by RDMA or inline.
    pub bytes_moved: u64,
    /// Packets of its connection that were retransmitted while it was open, which need not have been its own. Until it
    /// is complete: the number that had gone out again when it began.
    pub retransmissions: u32,
    /// Time that the request waited for a credit.
    pub wait_for_credit: i64,
    /// True if an interim reply (STATUS_PENDING) came.
    pub pending: bool,
    /// True if it reads from a named pipe, or writes to one, as far as the capture shows.
    pub is_of_a_pipe: bool,
    /// True if its client closed the connection after the server had told it to wait, or gave its id to another one.
    pub is_withdrawn: bool,
    /// SHA-256 of the payload, if it was asked for and is whole.
    pub sha256: Option<[u8; 32]>,
    /// Bytes that the payload hash does not cover; `None` if it is complete.
    pub payload_holes: Option<u64>,
    /// True if it is a part of a compound behind the first one: it waited together with that.
    pub is_related: bool,
    /// Time of the reply to the request before it in its compound, if that came first: until then, it waited for that one.
    pub turn: Option<At>,
    /// In a list of the slowest: further parts of its compound that the same reply answered, which the list leaves out.
    pub compounded: u32,
    /// The last frame of the reply as it was first seen, if the client took a later copy: [`Exchange::reply_end`].
    pub reply_seen: Option<At>,
    /// Sequence number of the last packet of the request, if known.
    pub sequence: Option<u32>,
    /// Its latency by owner.
    pub time: Time,
    /// The longest wait, apart from its own server.
    pub behind: Option<Behind>,
    /// Time in which a client kept a delegation, an oplock or a lease that the server had asked for in the meantime, in
    /// ns.
    pub recalled: i64,
    /// The same of one of a file that may be another, in ns.
    pub perhaps_recalled: i64,
    /// True if nothing was acknowledged from the request to the reply: the request may have been held up on its way to
    /// the server.
    pub is_unheard: bool,
}

/// Time of an exchange in four parts: see [`Time`] for all of them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Split {
    /// Waiting for a credit: before the request, which is no part of the latency, and within it.
    pub credit: i64,
    /// First to last frame of the request, and of the reply; and the way to the server and back.
    pub wire: i64,
    /// The server's own.
    pub server: i64,
    /// From the first to the last RDMA operation, without the waits between them.
    pub rdma: i64,
}

impl Exchange {
    /// A request that was sent in the frames `first` to `last`; nothing else is known of it yet.
    pub(crate) fn begun(family: Family, command: &'static str, first: At, last: At) -> Self {
        Self {
            id: 0,
            connection: 0,
            family,
            command,
            message_id: 0,
            session: None,
            request: first,
            request_end: last,
            reply: None,
            reply_end: None,
            status: None,
            failed: false,
            file: None,
            about: 0,
            offset: None,
            length: None,
            channel: DataPath::Inline,
            descriptors: [Descriptor::default(); DESCRIPTORS_KEPT],
            descriptor_count: 0,
            reads: Transfer::default(),
            writes: Transfer::default(),
            idle: 0,
            bytes_moved: 0,
            retransmissions: 0,
            wait_for_credit: 0,
            pending: false,
            is_of_a_pipe: false,
            is_withdrawn: false,
            sha256: None,
            payload_holes: None,
            is_related: false,
            turn: None,
            compounded: 0,
            reply_seen: None,
            sequence: None,
            time: Time::default(),
            behind: None,
            recalled: 0,
            perhaps_recalled: 0,
            is_unheard: false,
        }
    }

    /// It is complete; `retransmissions` packets of its connection have gone out again by now: fewer than before, if some
    /// turned out to be copies.
    pub(crate) fn close(&mut self, retransmissions: u64) {
        let more = (retransmissions as u32).wrapping_sub(self.retransmissions) as i32;
        self.retransmissions = more.max(0) as u32;
    }

    /// The numbers of exchanges in it: its own, and that of the one it waited for.
    pub fn numbers(&mut self) -> impl Iterator<Item = &mut u64> {
        let behind = match &mut self.behind {
            Some(Behind::Exchange(id)) => Some(id),
            _ => None,
        };
        core::iter::once(&mut self.id).chain(behind)
    }

    /// From the first frame of the request to the last frame of the reply, in ns.
    pub fn latency(&self) -> Option<i64> {
        self.reply_end.map(|end| end.since(self.request))
    }

    /// The same without the time in which it waited for the request before it in its compound (\[MS-SMB2\]
    /// 3.3.5.2.7).
    pub fn own_latency(&self) -> Option<i64> {
        let waited = self.turn.map_or(0, |turn| turn.since(self.request).max(0));
        self.latency().map(|latency| latency.saturating_sub(waited))
    }

    /// An RDMA operation of its server begins.
    #[inline]
    pub(crate) fn operation_begins(&mut self, at: At) {
        /// ns between two operations that are no wait.
        const PAUSE: i64 = 1_000_000;
        let last = match (self.reads.frames > 0, self.writes.frames > 0) {
            (false, false) => return,
            (true, false) => self.reads.last,
            (false, true) => self.writes.last,
            (true, true) => self.reads.last.max(self.writes.last),
        };
        let paused = at.since(last);
        if paused >= PAUSE && self.reads.open == 0 && self.writes.open == 0 {
            self.idle = self.idle.saturating_add(paused);
        }
    }

    /// Bytes that RDMA moved for it, both ways.
    pub fn rdma_bytes(&self) -> u64 {
        self.reads.bytes + self.writes.bytes
    }

    /// Its latency in four parts.
    pub fn split(&self) -> Split {
        Split {
            credit: self.wait_for_credit.saturating_add(self.time.of(Owner::Credit)),
            wire: self.time.of(Owner::Wire),
            server: self.time.of(Owner::Server),
            rdma: self.time.of(Owner::Rdma),
        }
    }

    /// True if it waits for something to happen, for as long as that takes: a long latency is normal then.
    pub fn is_poll(&self) -> bool {
        match self.command {
            "CHANGE_NOTIFY" | "OPLOCK_BREAK" | "CANCEL" => true,
            // a lock that another holds; an answer of a pipe
            "LOCK" | "IOCTL" => self.pending,
            "READ" => self.pending && self.is_of_a_pipe,
            _ => false,
        }
    }

    /// True if its time counts. A compound counts once; a request that waits for something to happen does not count.
    pub fn counts(&self) -> bool {
        !self.is_poll() && !self.is_related
    }

    /// As it is cut by owner; `None` without a reply. `client` asked, `way` is the shortest way to the server and back
    /// in ns.
    pub fn request(&self, client: End, sequence: Option<u32>, way: i64) -> Option<Request> {
        let (reply, end) = (self.reply?, self.reply_end?);
        let moved = [&self.reads, &self.writes].into_iter().filter(|m| m.frames > 0);
        let rdma = moved.fold(None, |span: Option<(i64, i64)>, m| {
            Some(span.map_or((m.first.time, m.last.time), |(from, to)| (from.min(m.first.time), to.max(m.last.time))))
        });
        Some(Request {
            client,
            begin: self.request.time,
            sent: self.request_end.time,
            rdma,
            idle: self.idle,
            reply: reply.time,
            seen: self.reply_seen.unwrap_or(end).time,
            end: end.time,
            sequence: [self.sequence, sequence],
            way,
            is_read: self.reads.frames > 0,
        })
    }

    /// The file's name for people, escaped for a terminal.
    pub fn shown_file(&self) -> String {
        self.file.as_deref().map(escaped).unwrap_or_default()
    }
}

stored_enum!(DataPath { Inline, Rdma, RdmaInvalidate, RdmaTransform });
stored!(Descriptor { offset, token, length });
stored!(Transfer { operations, frames, bytes, first, last, open });
stored_enum!(Family { Smb2, Rpc });
stored!(Status { 0, 1 });
stored!(Failures { command, status, count });
stored!(Exchange {
    id,
    connection,
    family,
    command,
    message_id,
    session,
    request,
    request_end,
    reply,
    reply_end,
    status,
    failed,
    file,
    about,
    offset,
    length,
    channel,
    descriptors,
    descriptor_count,
    reads,
    writes,
    idle,
    bytes_moved,
    retransmissions,
    wait_for_credit,
    pending,
    is_of_a_pipe,
    is_withdrawn,
    sha256,
    payload_holes,
    is_related,
    turn,
    compounded,
    reply_seen,
    sequence,
    time,
    behind,
    recalled,
    perhaps_recalled,
    is_unheard
});

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::string::ToString;
    use rdmascope_dissector::wire::rpc::{AcceptState, AuthState};

    #[test]
    fn a_server_waits_where_no_operation_is_under_way() {
        let at = |ms: i64| At { frame: 1, time: ms * 1_000_000 };
        let mut row = Exchange::begun(Family::Rpc, "WRITE", at(0), at(0));
        let idle = |row: &mut Exchange, ms: i64| {
            row.operation_begins(at(ms));
            row.idle / 1_000_000
        };
        assert_eq!(idle(&mut row, 9), 0, "the first one");
        row.reads = Transfer { frames: 1, last: at(1), open: 1, ..Transfer::default() };
        assert_eq!(idle(&mut row, 9), 0, "it waits for the client");
        row.reads.open = 0;
        assert_eq!(idle(&mut row, 9), 8);
        row.writes = Transfer { frames: 1, last: at(9), open: 1, ..Transfer::default() };
        assert_eq!(idle(&mut row, 20), 8, "in the middle of a Write");
        row.writes.open = 0;
        assert_eq!(idle(&mut row, 12), 11);
    }

    #[test]
    fn a_number_of_two_versions_of_nfs_has_two_names() {
        let of = |version| Status(Family::Rpc, Status::of_nfs(version, 10_008));
        assert_eq!([3, 4].map(|version| of(version).to_string()), ["ERR_JUKEBOX", "ERR_DELAY"]);
        assert_eq!([3, 4].map(|version| of(version).number()), [Some(10_008); 2]);
        assert_eq!([3, 4].map(|version| of(version).failing()), [Failing::Busy; 2]);
        assert_eq!(Status::of_nfs(3, 70), 70);
    }

    #[test]
    fn a_wait_for_a_pipe_that_is_over_is_no_damage() {
        let timeout = Status(Family::Smb2, 0xc000_00b5);
        assert_eq!(["IOCTL", "READ"].map(|command| timeout.is_damage_of(command)), [false, true]);
        // VOLUME_DISMOUNTED, INSUFFICIENT_RESOURCES; ACCESS_DENIED, FILE_LOCK_CONFLICT, FILE_CLOSED
        let lost =
            |code: u32| ["WRITE", "FLUSH", "READ"].map(|command| Status(Family::Smb2, code).is_damage_of(command));
        assert_eq!([0xc000_026e, 0xc000_009a].map(lost), [[true, true, false]; 2]);
        assert_eq!([0xc000_0022, 0xc000_0054, 0xc000_0128].map(lost), [[false; 3]; 3]);
    }

    #[test]
    fn statuses_have_names() {
        let named = |family, code| Status(family, code).to_string();
        assert_eq!(
            [0, 0xc000_0022, 0xdead_beef].map(|code| named(Family::Smb2, code)),
            ["STATUS_SUCCESS", "STATUS_ACCESS_DENIED", "0xdeadbeef"]
        );
        assert_eq!(
            [0, 2, 10_002, 10_013, 77_777, u32::MAX].map(|code| named(Family::Rpc, code)),
            ["OK", "ERR_NOENT", "ERR_NOT_SYNC", "ERR_GRACE", "status 77777", "status 4294967295"]
        );
    }

    #[test]
    fn statuses_that_mean_damage() {
        let smb2 = |code| Status(Family::Smb2, code).is_damage();
        assert_eq!([0xc000_0185, 0xc000_003e, 0xc000_007f, 0xc000_003f].map(smb2), [true; 4]);
        // success, no such file, no EAs, access denied, the end of a file, not enough resources
        assert_eq!([0, 0xc000_0034, 0xc000_0052, 0xc000_0022, 0xc000_0011, 0xc000_009a].map(smb2), [false; 6]);
        let rpc = |code| Status(Family::Rpc, code).is_damage();
        let refused = |outcome| Status::of_refusal(outcome).map(rpc);
        assert_eq!([5, 28, 10_006, 0, 2, 10_008, 70].map(rpc), [true, true, true, false, false, false, false]);
        assert_eq!(refused(Outcome::Failed(AcceptState::GARBAGE_ARGS)), Some(true));
        assert_eq!(refused(Outcome::RpcMismatch(2, 2)), Some(true));
        assert_eq!(refused(Outcome::ProgramMismatch(3, 4)), Some(false));
        assert_eq!(refused(Outcome::AuthError(AuthState::TOOWEAK)), Some(false));
        let damage = (0xc000_0000..0xc000_0400).filter(|code| smb2(*code)).count();
        assert_eq!(damage, DAMAGE.len(), "each of them is a name of NTSTATUS");
    }

    #[test]
    fn commands_have_an_article() {
        let one = |command: &str| One(command).to_string();
        assert_eq!(
            ["READ", "OPEN", "UNKNOWN", "FSINFO", "FLUSH"].map(one),
            ["a READ", "an OPEN", "an UNKNOWN", "an FSINFO", "a FLUSH"]
        );
    }

    /// RFC 5531 9: a call that was not executed has no status of its program.
    #[test]
    fn calls_that_were_not_executed_have_the_name_of_the_refusal() {
        for (outcome, name) in [
            (Outcome::Failed(AcceptState::PROG_UNAVAIL), "PROG_UNAVAIL"),
            (Outcome::Failed(AcceptState::GARBAGE_ARGS), "GARBAGE_ARGS"),
            (Outcome::Failed(AcceptState::SYSTEM_ERR), "SYSTEM_ERR"),
            (Outcome::Failed(AcceptState(77)), "denied"),
            (Outcome::ProgramMismatch(3, 4), "PROG_MISMATCH"),
            (Outcome::RpcMismatch(2, 2), "RPC_MISMATCH"),
            (Outcome::AuthError(AuthState::TOOWEAK), "AUTH_TOOWEAK"),
            (Outcome::AuthError(AuthState(14)), "RPCSEC_GSS_CTXPROBLEM"),
            (Outcome::AuthError(AuthState(1000)), "AUTH_ERROR"),
            (Outcome::Denied(9), "denied"),
            (Outcome::Unknown(2), "neither accepted nor denied"),
        ] {
            let status = Status(Family::Rpc, Status::of_refusal(outcome).expect("it was refused"));
            assert_eq!((status.to_string().as_str(), status.number()), (name, None), "{outcome:?}");
        }
        assert_eq!((Status::of_refusal(Outcome::Success), Status(Family::Rpc, 70).number()), (None, Some(70)));
    }
}
