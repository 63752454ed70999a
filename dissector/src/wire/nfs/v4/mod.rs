//! NFS version 4: 4.0 (RFC 7530), 4.1 (RFC 8881), 4.2 (RFC 7862) with extended attributes (RFC 8276): COMPOUND, and
//! CB_COMPOUND in the backward direction.
//!
//! ```text
//! call   tag · minor version · (callback ident) · count · { operation · arguments } …
//! reply  status · tag · count · { operation · status · results } …       the last one may have failed
//! ```
//!
//! | file | what it decodes |
//! | --- | --- |
//! | `mod.rs` | the compound, and what operations have in common |
//! | `attr.rs` | attributes by bitmap, ACLs |
//! | `file.rs` | the operations of 4.0 |
//! | `session.rs` | those that 4.1 added, without pNFS |
//! | `layout.rs` | pNFS: layouts and devices |
//! | `copy.rs` | those that 4.2 and RFC 8276 added |
//! | `callback.rs` | those of callbacks |
//!
//! Over RDMA the data of WRITE and the target of a CREATE of a symbolic link may be in read chunks, the data of READ
//! and the text of READLINK in write chunks (RFC 8267 6.1).

use super::{Op, ShownText, StateId, Visit, end, handle, v3};
use crate::fault::Fault;
use crate::field::Def;
use crate::trace::{Trace, Value};
use crate::wire::rpc::{self, Memo};
use crate::wire::xdr::{Read, Xdr};

pub mod attr;
pub mod callback;
pub mod copy;
pub mod file;
pub mod layout;
pub mod session;

wire_enum! {
    /// Operations (RFC 8881 16.2.1, RFC 7862 13, RFC 8276 8.4).
    pub enum Operation: u32 {
        ACCESS = 3, "ACCESS";
        CLOSE = 4, "CLOSE";
        COMMIT = 5, "COMMIT";
        CREATE = 6, "CREATE";
        DELEGPURGE = 7, "DELEGPURGE";
        DELEGRETURN = 8, "DELEGRETURN";
        GETATTR = 9, "GETATTR";
        GETFH = 10, "GETFH";
        LINK = 11, "LINK";
        LOCK = 12, "LOCK";
        LOCKT = 13, "LOCKT";
        LOCKU = 14, "LOCKU";
        LOOKUP = 15, "LOOKUP";
        LOOKUPP = 16, "LOOKUPP";
        NVERIFY = 17, "NVERIFY";
        OPEN = 18, "OPEN";
        OPENATTR = 19, "OPENATTR";
        OPEN_CONFIRM = 20, "OPEN_CONFIRM";
        OPEN_DOWNGRADE = 21, "OPEN_DOWNGRADE";
        PUTFH = 22, "PUTFH";
        PUTPUBFH = 23, "PUTPUBFH";
        PUTROOTFH = 24, "PUTROOTFH";
        READ = 25, "READ";
        READDIR = 26, "READDIR";
        READLINK = 27, "READLINK";
        REMOVE = 28, "REMOVE";
        RENAME = 29, "RENAME";
        RENEW = 30, "RENEW";
        RESTOREFH = 31, "RESTOREFH";
        SAVEFH = 32, "SAVEFH";
        SECINFO = 33, "SECINFO";
        SETATTR = 34, "SETATTR";
        SETCLIENTID = 35, "SETCLIENTID";
        SETCLIENTID_CONFIRM = 36, "SETCLIENTID_CONFIRM";
        VERIFY = 37, "VERIFY";
        WRITE = 38, "WRITE";
        RELEASE_LOCKOWNER = 39, "RELEASE_LOCKOWNER";
        BACKCHANNEL_CTL = 40, "BACKCHANNEL_CTL";
        BIND_CONN_TO_SESSION = 41, "BIND_CONN_TO_SESSION";
        EXCHANGE_ID = 42, "EXCHANGE_ID";
        CREATE_SESSION = 43, "CREATE_SESSION";
        DESTROY_SESSION = 44, "DESTROY_SESSION";
        FREE_STATEID = 45, "FREE_STATEID";
        GET_DIR_DELEGATION = 46, "GET_DIR_DELEGATION";
        GETDEVICEINFO = 47, "GETDEVICEINFO";
        GETDEVICELIST = 48, "GETDEVICELIST";
        LAYOUTCOMMIT = 49, "LAYOUTCOMMIT";
        LAYOUTGET = 50, "LAYOUTGET";
        LAYOUTRETURN = 51, "LAYOUTRETURN";
        SECINFO_NO_NAME = 52, "SECINFO_NO_NAME";
        SEQUENCE = 53, "SEQUENCE";
        SET_SSV = 54, "SET_SSV";
        TEST_STATEID = 55, "TEST_STATEID";
        WANT_DELEGATION = 56, "WANT_DELEGATION";
        DESTROY_CLIENTID = 57, "DESTROY_CLIENTID";
        RECLAIM_COMPLETE = 58, "RECLAIM_COMPLETE";
        ALLOCATE = 59, "ALLOCATE";
        COPY = 60, "COPY";
        COPY_NOTIFY = 61, "COPY_NOTIFY";
        DEALLOCATE = 62, "DEALLOCATE";
        IO_ADVISE = 63, "IO_ADVISE";
        LAYOUTERROR = 64, "LAYOUTERROR";
        LAYOUTSTATS = 65, "LAYOUTSTATS";
        OFFLOAD_CANCEL = 66, "OFFLOAD_CANCEL";
        OFFLOAD_STATUS = 67, "OFFLOAD_STATUS";
        READ_PLUS = 68, "READ_PLUS";
        SEEK = 69, "SEEK";
        WRITE_SAME = 70, "WRITE_SAME";
        CLONE = 71, "CLONE";
        GETXATTR = 72, "GETXATTR";
        SETXATTR = 73, "SETXATTR";
        LISTXATTRS = 74, "LISTXATTRS";
        REMOVEXATTR = 75, "REMOVEXATTR";
        ILLEGAL = 10044, "ILLEGAL";
    }
}

wire_enum! {
    /// Operations of callbacks (RFC 8881 16.4, RFC 7862 16).
    pub enum CallbackOperation: u32 {
        CB_GETATTR = 3, "CB_GETATTR";
        CB_RECALL = 4, "CB_RECALL";
        CB_LAYOUTRECALL = 5, "CB_LAYOUTRECALL";
        CB_NOTIFY = 6, "CB_NOTIFY";
        CB_PUSH_DELEG = 7, "CB_PUSH_DELEG";
        CB_RECALL_ANY = 8, "CB_RECALL_ANY";
        CB_RECALLABLE_OBJ_AVAIL = 9, "CB_RECALLABLE_OBJ_AVAIL";
        CB_RECALL_SLOT = 10, "CB_RECALL_SLOT";
        CB_SEQUENCE = 11, "CB_SEQUENCE";
        CB_WANTS_CANCELLED = 12, "CB_WANTS_CANCELLED";
        CB_NOTIFY_LOCK = 13, "CB_NOTIFY_LOCK";
        CB_NOTIFY_DEVICEID = 14, "CB_NOTIFY_DEVICEID";
        CB_OFFLOAD = 15, "CB_OFFLOAD";
        CB_ILLEGAL = 10044, "CB_ILLEGAL";
    }
}

wire_enum! {
    /// Result of an operation (RFC 8881 15, RFC 7862 11, RFC 8276 8.5).
    pub enum Status: u32 {
        OK = 0, "NFS4_OK";
        PERM = 1, "NFS4ERR_PERM";
        NOENT = 2, "NFS4ERR_NOENT";
        IO = 5, "NFS4ERR_IO";
        NXIO = 6, "NFS4ERR_NXIO";
        ACCESS = 13, "NFS4ERR_ACCESS";
        EXIST = 17, "NFS4ERR_EXIST";
        XDEV = 18, "NFS4ERR_XDEV";
        NOTDIR = 20, "NFS4ERR_NOTDIR";
        ISDIR = 21, "NFS4ERR_ISDIR";
        INVAL = 22, "NFS4ERR_INVAL";
        FBIG = 27, "NFS4ERR_FBIG";
        NOSPC = 28, "NFS4ERR_NOSPC";
        ROFS = 30, "NFS4ERR_ROFS";
        MLINK = 31, "NFS4ERR_MLINK";
        NAMETOOLONG = 63, "NFS4ERR_NAMETOOLONG";
        NOTEMPTY = 66, "NFS4ERR_NOTEMPTY";
        DQUOT = 69, "NFS4ERR_DQUOT";
        STALE = 70, "NFS4ERR_STALE";
        BADHANDLE = 10001, "NFS4ERR_BADHANDLE";
        BAD_COOKIE = 10003, "NFS4ERR_BAD_COOKIE";
        NOTSUPP = 10004, "NFS4ERR_NOTSUPP";
        TOOSMALL = 10005, "NFS4ERR_TOOSMALL";
        SERVERFAULT = 10006, "NFS4ERR_SERVERFAULT";
        BADTYPE = 10007, "NFS4ERR_BADTYPE";
        DELAY = 10008, "NFS4ERR_DELAY";
        SAME = 10009, "NFS4ERR_SAME";
        DENIED = 10010, "NFS4ERR_DENIED";
        EXPIRED = 10011, "NFS4ERR_EXPIRED";
        LOCKED = 10012, "NFS4ERR_LOCKED";
        GRACE = 10013, "NFS4ERR_GRACE";
        FHEXPIRED = 10014, "NFS4ERR_FHEXPIRED";
        SHARE_DENIED = 10015, "NFS4ERR_SHARE_DENIED";
        WRONGSEC = 10016, "NFS4ERR_WRONGSEC";
        CLID_INUSE = 10017, "NFS4ERR_CLID_INUSE";
        RESOURCE = 10018, "NFS4ERR_RESOURCE";
        MOVED = 10019, "NFS4ERR_MOVED";
        NOFILEHANDLE = 10020, "NFS4ERR_NOFILEHANDLE";
        MINOR_VERS_MISMATCH = 10021, "NFS4ERR_MINOR_VERS_MISMATCH";
        STALE_CLIENTID = 10022, "NFS4ERR_STALE_CLIENTID";
        STALE_STATEID = 10023, "NFS4ERR_STALE_STATEID";
        OLD_STATEID = 10024, "NFS4ERR_OLD_STATEID";
        BAD_STATEID = 10025, "NFS4ERR_BAD_STATEID";
        BAD_SEQID = 10026, "NFS4ERR_BAD_SEQID";
        NOT_SAME = 10027, "NFS4ERR_NOT_SAME";
        LOCK_RANGE = 10028, "NFS4ERR_LOCK_RANGE";
        SYMLINK = 10029, "NFS4ERR_SYMLINK";
        RESTOREFH = 10030, "NFS4ERR_RESTOREFH";
        LEASE_MOVED = 10031, "NFS4ERR_LEASE_MOVED";
        ATTRNOTSUPP = 10032, "NFS4ERR_ATTRNOTSUPP";
        NO_GRACE = 10033, "NFS4ERR_NO_GRACE";
        RECLAIM_BAD = 10034, "NFS4ERR_RECLAIM_BAD";
        RECLAIM_CONFLICT = 10035, "NFS4ERR_RECLAIM_CONFLICT";
        BADXDR = 10036, "NFS4ERR_BADXDR";
        LOCKS_HELD = 10037, "NFS4ERR_LOCKS_HELD";
        OPENMODE = 10038, "NFS4ERR_OPENMODE";
        BADOWNER = 10039, "NFS4ERR_BADOWNER";
        BADCHAR = 10040, "NFS4ERR_BADCHAR";
        BADNAME = 10041, "NFS4ERR_BADNAME";
        BAD_RANGE = 10042, "NFS4ERR_BAD_RANGE";
        LOCK_NOTSUPP = 10043, "NFS4ERR_LOCK_NOTSUPP";
        OP_ILLEGAL = 10044, "NFS4ERR_OP_ILLEGAL";
        DEADLOCK = 10045, "NFS4ERR_DEADLOCK";
        FILE_OPEN = 10046, "NFS4ERR_FILE_OPEN";
        ADMIN_REVOKED = 10047, "NFS4ERR_ADMIN_REVOKED";
        CB_PATH_DOWN = 10048, "NFS4ERR_CB_PATH_DOWN";
        BADIOMODE = 10049, "NFS4ERR_BADIOMODE";
        BADLAYOUT = 10050, "NFS4ERR_BADLAYOUT";
        BAD_SESSION_DIGEST = 10051, "NFS4ERR_BAD_SESSION_DIGEST";
        BADSESSION = 10052, "NFS4ERR_BADSESSION";
        BADSLOT = 10053, "NFS4ERR_BADSLOT";
        COMPLETE_ALREADY = 10054, "NFS4ERR_COMPLETE_ALREADY";
        CONN_NOT_BOUND_TO_SESSION = 10055, "NFS4ERR_CONN_NOT_BOUND_TO_SESSION";
        DELEG_ALREADY_WANTED = 10056, "NFS4ERR_DELEG_ALREADY_WANTED";
        BACK_CHAN_BUSY = 10057, "NFS4ERR_BACK_CHAN_BUSY";
        LAYOUTTRYLATER = 10058, "NFS4ERR_LAYOUTTRYLATER";
        LAYOUTUNAVAILABLE = 10059, "NFS4ERR_LAYOUTUNAVAILABLE";
        NOMATCHING_LAYOUT = 10060, "NFS4ERR_NOMATCHING_LAYOUT";
        RECALLCONFLICT = 10061, "NFS4ERR_RECALLCONFLICT";
        UNKNOWN_LAYOUTTYPE = 10062, "NFS4ERR_UNKNOWN_LAYOUTTYPE";
        SEQ_MISORDERED = 10063, "NFS4ERR_SEQ_MISORDERED";
        SEQUENCE_POS = 10064, "NFS4ERR_SEQUENCE_POS";
        REQ_TOO_BIG = 10065, "NFS4ERR_REQ_TOO_BIG";
        REP_TOO_BIG = 10066, "NFS4ERR_REP_TOO_BIG";
        REP_TOO_BIG_TO_CACHE = 10067, "NFS4ERR_REP_TOO_BIG_TO_CACHE";
        RETRY_UNCACHED_REP = 10068, "NFS4ERR_RETRY_UNCACHED_REP";
        UNSAFE_COMPOUND = 10069, "NFS4ERR_UNSAFE_COMPOUND";
        TOO_MANY_OPS = 10070, "NFS4ERR_TOO_MANY_OPS";
        OP_NOT_IN_SESSION = 10071, "NFS4ERR_OP_NOT_IN_SESSION";
        HASH_ALG_UNSUPP = 10072, "NFS4ERR_HASH_ALG_UNSUPP";
        CLIENTID_BUSY = 10074, "NFS4ERR_CLIENTID_BUSY";
        PNFS_IO_HOLE = 10075, "NFS4ERR_PNFS_IO_HOLE";
        SEQ_FALSE_RETRY = 10076, "NFS4ERR_SEQ_FALSE_RETRY";
        BAD_HIGH_SLOT = 10077, "NFS4ERR_BAD_HIGH_SLOT";
        DEADSESSION = 10078, "NFS4ERR_DEADSESSION";
        ENCR_ALG_UNSUPP = 10079, "NFS4ERR_ENCR_ALG_UNSUPP";
        PNFS_NO_LAYOUT = 10080, "NFS4ERR_PNFS_NO_LAYOUT";
        NOT_ONLY_OP = 10081, "NFS4ERR_NOT_ONLY_OP";
        WRONG_CRED = 10082, "NFS4ERR_WRONG_CRED";
        WRONG_TYPE = 10083, "NFS4ERR_WRONG_TYPE";
        DIRDELEG_UNAVAIL = 10084, "NFS4ERR_DIRDELEG_UNAVAIL";
        REJECT_DELEG = 10085, "NFS4ERR_REJECT_DELEG";
        RETURNCONFLICT = 10086, "NFS4ERR_RETURNCONFLICT";
        DELEG_REVOKED = 10087, "NFS4ERR_DELEG_REVOKED";
        PARTNER_NOTSUPP = 10088, "NFS4ERR_PARTNER_NOTSUPP";
        PARTNER_NO_AUTH = 10089, "NFS4ERR_PARTNER_NO_AUTH";
        UNION_NOTSUPP = 10090, "NFS4ERR_UNION_NOTSUPP";
        OFFLOAD_DENIED = 10091, "NFS4ERR_OFFLOAD_DENIED";
        WRONG_LFS = 10092, "NFS4ERR_WRONG_LFS";
        BADLABEL = 10093, "NFS4ERR_BADLABEL";
        OFFLOAD_NO_REQS = 10094, "NFS4ERR_OFFLOAD_NO_REQS";
        NOXATTR = 10095, "NFS4ERR_NOXATTR";
        XATTR2BIG = 10096, "NFS4ERR_XATTR2BIG";
    }
}

fields! {
    /// The compound, and what operations have in common.
    pub mod f ["RFC 8881 16.2"] {
        PROCEDURE: U32 = "nfs.procedure_v4", "V4 Procedure", dec, values &[(0, "NULL"), (1, "COMPOUND")];
        CB_PROCEDURE: U32 = "nfs.cb_procedure", "CB Procedure", dec, values &[(0, "CB_NULL"), (1, "CB_COMPOUND")];
        TAG: Str = "nfs.tag", "Tag";
        MINORVERSION: U32 = "nfs.minorversion", "minorversion", dec;
        CALLBACK_IDENT: U32 = "nfs.callback.ident", "callback_ident", hex;
        STATUS4: U32 = "nfs.nfsstat4", "Status", dec, values Status::VALUES;
        OPS_COUNT: U32 = "nfs.ops.count", "Operations", dec;
        OPERATION: None = "rdmascope.nfs.operation", "Operation";
        OPCODE: U32 = "nfs.opcode", "Opcode", dec, values Operation::VALUES;
        CB_OPCODE: U32 = "nfs.cb.operation", "Opcode", dec, values CallbackOperation::VALUES;
        MAIN_OPCODE: U32 = "nfs.main_opcode", "Main Opcode", dec, values Operation::VALUES;
        FILEHANDLE: None = "rdmascope.nfs.filehandle", "FileHandle";
        COMPONENT: Str = "nfs.pathname.component", "Name";
        COMPONENTS: U32 = "nfs.pathname.component.count", "pathname components", dec;
        PATHNAME: None = "rdmascope.nfs.pathname", "pathname";
        STATEID: Bytes = "nfs.stateid", "StateID";
        STATEID_HASH: U16 = "nfs.stateid.hash", "StateID Hash", hex;
        STATEID_SEQID: U32 = "nfs.stateid.seqid", "StateID seqid", dec;
        STATEID_OTHER: Bytes as Id = "nfs.stateid.other", "StateID Other";
        STATEID_OTHER_HASH: U32 = "nfs.stateid.other_hash", "StateID Other hash", hex;
        CLIENTID: U64 = "nfs.clientid", "clientid", hex;
        SEQID: U32 = "nfs.seqid", "seqid", hex;
        VERIFIER: U64 = "nfs.verifier4", "verifier", hex;
        DATA: Bytes as Data = "nfs.data", "Data";
        OFFSET: U64 = "nfs.offset4", "offset", dec;
        LENGTH: U64 = "nfs.length4", "length", dec;
        COUNT: U32 = "nfs.count4", "count", dec;
        STABLE: U32 = "nfs.stable_how4", "stable_how4", dec, values v3::Stable::VALUES;
        CHANGE_INFO: None = "rdmascope.nfs.change_info", "change_info";
        SOURCE_CHANGE_INFO: None = "rdmascope.nfs.source_change_info", "source_cinfo";
        TARGET_CHANGE_INFO: None = "rdmascope.nfs.target_change_info", "target_cinfo";
        ATOMIC: Bool = "nfs.change_info.atomic", "Atomic";
        BEFORE: U64 = "nfs.changeid4.before", "changeid (before)", dec;
        AFTER: U64 = "nfs.changeid4.after", "changeid (after)", dec;
        SECONDS: U64 = "nfs.nfstime4.seconds", "seconds", dec;
        NSECONDS: U32 = "nfs.nfstime4.nseconds", "nseconds", dec;
        TIME: None = "rdmascope.nfs.nfstime4", "time";
        R_NETID: Str as Keep = "nfs.r_netid", "r_netid";
        R_ADDR: Str = "nfs.r_addr", "r_addr";
        NETADDR: None = "rdmascope.nfs.netaddr4", "netaddr";
        FSID_MAJOR: U64 = "nfs.fsid4.major", "fsid4.major", dec;
        FSID_MINOR: U64 = "nfs.fsid4.minor", "fsid4.minor", dec;
    }
}

/// Operations of a compound whose names a frame's line has room for.
const SHOWN: usize = 16;

/// Decodes arguments (of a call) or results of COMPOUND in a protocol subtree of its own; NULL has none.
///
/// # Errors
/// The bytes cannot be decoded; the observer has been notified, and the visitor of the operations before.
pub fn decode<'a, T: Trace, V: Visit<'a>>(
    x: &mut Xdr<'a, '_, T>,
    call: bool,
    memo: &Memo,
    visitor: &mut V,
) -> Read<()> {
    let callback = memo.is_callback();
    x.t.protocol(if callback { "NFS CB" } else { "NFS" });
    x.scope(super::f::PROTOCOL, |x| {
        let direction = if call { "Call" } else { "Reply" };
        if T::ON {
            x.known(rpc::f::PROGRAMVERSION, memo.version);
            x.known(if callback { f::CB_PROCEDURE } else { f::PROCEDURE }, memo.procedure);
            x.t.label(format_args!(", {} {direction}", memo.procedure_name().unwrap_or("procedure")));
        }
        if memo.procedure != 1 {
            if T::ON {
                let (name, prefix) = (memo.procedure_name().unwrap_or("procedure"), if callback { "" } else { "V4 " });
                x.t.info(format_args!("{prefix}{name} {direction}"));
            }
            return end(x);
        }
        let mut seen = Seen { ops: [Op::default(); SHOWN], total: 0 };
        let (mut status, mut results) = (0, 0);
        let result = compound(x, call, callback, &mut status, &mut |op: &Op<'a>| {
            results += 1;
            if T::ON {
                seen.note(op);
            }
            visitor.op(op);
        });
        if T::ON {
            let prefix = if callback { "CB" } else { "V4" };
            x.t.info(format_args!("{prefix} {direction} {seen}"));
            if status != 0 {
                x.t.info(format_args!("Status: {}", Status(status)));
            }
            for code in seen.main().filter(|_| !callback) {
                x.known(f::MAIN_OPCODE, code);
            }
        }
        result?;
        if !call {
            visitor.compound(status, results);
        }
        end(x)
    })
}

fn compound<'a, T: Trace>(
    x: &mut Xdr<'a, '_, T>,
    call: bool,
    callback: bool,
    status: &mut u32,
    emit: &mut dyn FnMut(&Op<'a>),
) -> Read<()> {
    if call {
        x.opaque(f::TAG)?;
        x.u32(f::MINORVERSION)?;
        if callback {
            x.u32(f::CALLBACK_IDENT)?;
        }
    } else {
        *status = self::status(x)?;
        x.opaque(f::TAG)?;
    }
    x.list(f::OPS_COUNT, |x, index| {
        let mut op = Op { index, callback, ..Op::default() };
        let result = x.scope(f::OPERATION, |x| operation(x, call, &mut op));
        if result.is_ok() || op.code != 0 {
            emit(&op);
        }
        result
    })
    .map(drop)
}

fn operation<'a, T: Trace>(x: &mut Xdr<'a, '_, T>, call: bool, op: &mut Op<'a>) -> Read<()> {
    let at = x.i;
    let opcode = if op.callback { f::CB_OPCODE } else { f::OPCODE };
    op.code = x.u32(opcode)?;
    if T::ON {
        x.t.label(format_args!(": {}", Name(op.code, op.callback)));
    }
    if !call {
        op.status = Some(status(x)?);
    }
    let known = if op.callback {
        callback::decode(x, call, CallbackOperation(op.code), op)?
    } else {
        let operation = Operation(op.code);
        match operation.0 {
            3..=39 => file::decode(x, call, operation, op)?,
            47..=51 | 64 | 65 => layout::decode(x, call, operation, op)?,
            40..=58 => session::decode(x, call, operation, op)?,
            59..=75 => copy::decode(x, call, operation, op)?,
            10044 => true,
            _ => false,
        }
    };
    // without knowing how long its arguments are there is no next operation; a failed one has no results
    if known || op.status.is_some_and(|s| s != 0) { Ok(()) } else { Err(Fault::value(opcode, at)) }
}

/// Content of the frame's line for a compound.
struct Seen<'a> {
    ops: [Op<'a>; SHOWN],
    total: usize,
}

impl<'a> Seen<'a> {
    fn note(&mut self, op: &Op<'a>) {
        if let Some(place) = self.ops.get_mut(self.total) {
            *place = *op;
        }
        self.total += 1;
    }

    fn ops(&self) -> &[Op<'a>] {
        &self.ops[..self.total.min(SHOWN)]
    }

    /// The operations that the compound is about: not those that only set the stage, where there are others.
    fn main(&self) -> impl Iterator<Item = u32> {
        use Operation as O;
        let rank = |op: &Op<'_>| match Operation(op.code) {
            O::SEQUENCE | O::PUTFH | O::SAVEFH | O::RESTOREFH | O::GETFH => 3,
            O::PUTROOTFH | O::PUTPUBFH | O::GETATTR => 2,
            O::ACCESS => 1,
            _ => 0,
        };
        let best = self.ops().iter().map(rank).min();
        self.ops().iter().filter(move |op| Some(rank(op)) == best).map(|op| op.code)
    }
}

impl core::fmt::Display for Seen<'_> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        for (n, op) in self.ops().iter().enumerate() {
            let bar = if n > 0 { " | " } else { "" };
            write!(f, "{bar}{}", Name(op.code, op.callback))?;
            if let (Some(io), true) = (op.io, op.status.is_none()) {
                write!(f, " Offset: {} Len: {}", io.offset, io.count)?;
            } else if let Some(io) = op.io {
                write!(f, " Len: {}", io.count)?;
            }
            match (op.name, op.to_name) {
                (Some(from), Some(to)) => write!(f, " {} To: {}", ShownText(from), ShownText(to))?,
                (Some(name), None) => write!(f, " {}", ShownText(name))?,
                _ => {}
            }
        }
        if self.total > SHOWN {
            write!(f, " | {} more", self.total - SHOWN)?;
        }
        Ok(())
    }
}

struct Name(u32, bool);

impl core::fmt::Display for Name {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        if self.1 { CallbackOperation(self.0).fmt(f) } else { Operation(self.0).fmt(f) }
    }
}

fn status<T: Trace>(x: &mut Xdr<'_, '_, T>) -> Read<u32> {
    let at = x.i;
    let status = x.u32(f::STATUS4)?;
    if T::ON {
        x.t.field(super::f::STATUS, at, 4, Value::U(status.into()));
        if status != 0 {
            x.t.label(format_args!(", {}", Status(status)));
        }
    }
    Ok(status)
}

/// A state id (RFC 8881 3.3.12).
fn stateid<T: Trace>(x: &mut Xdr<'_, '_, T>) -> Read<StateId> {
    let at = x.i;
    let Some(bytes) = at.get(..16) else {
        x.u32(f::STATEID_SEQID)?;
        return Err(Fault::short(Some(f::STATEID_OTHER), x.i, 12));
    };
    if !T::ON {
        x.i = &at[16..];
    } else {
        x.t.field(f::STATEID, at, 16, Value::Bytes(bytes));
        // all zeros and all ones stand for no state (RFC 8881 8.2.3): there is nothing to tell apart
        if bytes[4..].iter().any(|b| *b != bytes[4]) || !matches!(bytes[4], 0 | 0xff) {
            x.t.down();
            x.known(f::STATEID_HASH, crc16(bytes));
            x.u32(f::STATEID_SEQID)?;
            x.fixed(f::STATEID_OTHER, 12)?;
            x.known(f::STATEID_OTHER_HASH, crc32fast::hash(&bytes[4..]));
            x.t.up();
        }
        x.i = &at[16..];
    }
    let mut stateid = StateId { seqid: u32::from_be_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]), other: [0; 12] };
    stateid.other.copy_from_slice(&bytes[4..]);
    Ok(stateid)
}

/// CRC-16/X-25, by which Wireshark abbreviates state ids.
fn crc16(bytes: &[u8]) -> u16 {
    !bytes.iter().fold(0xffff, |crc, b| {
        (0..8).fold(crc ^ u16::from(*b), |c, _| if c & 1 != 0 { c >> 1 ^ 0x8408 } else { c >> 1 })
    })
}

/// One component of a path.
fn component<'a, T: Trace>(x: &mut Xdr<'a, '_, T>) -> Read<&'a [u8]> {
    x.opaque(f::COMPONENT)
}

fn pathname<T: Trace>(x: &mut Xdr<'_, '_, T>, node: Def) -> Read<()> {
    x.scope(node, |x| x.list(f::COMPONENTS, |x, _| component(x).map(drop)).map(drop))
}

/// The change of a directory (RFC 8881 3.3.11).
fn change_info<T: Trace>(x: &mut Xdr<'_, '_, T>, node: Def) -> Read<()> {
    x.scope(node, |x| {
        x.bool(f::ATOMIC)?;
        x.u64(f::BEFORE)?;
        x.u64(f::AFTER).map(drop)
    })
}

/// Seconds and nanoseconds (RFC 8881 3.3.1).
fn nfstime<T: Trace>(x: &mut Xdr<'_, '_, T>) -> Read<()> {
    x.u64(f::SECONDS)?;
    x.u32(f::NSECONDS).map(drop)
}

fn time<T: Trace>(x: &mut Xdr<'_, '_, T>, node: Def) -> Read<()> {
    x.scope(node, nfstime)
}

/// A network address (RFC 8881 3.3.9).
fn netaddr<T: Trace>(x: &mut Xdr<'_, '_, T>) -> Read<()> {
    x.scope(f::NETADDR, |x| {
        x.opaque(f::R_NETID)?;
        let address = x.opaque(f::R_ADDR)?;
        if T::ON {
            x.t.label(format_args!(": {}", ShownText(address)));
        }
        Ok(())
    })
}

fn fsid<T: Trace>(x: &mut Xdr<'_, '_, T>) -> Read<()> {
    x.u64(f::FSID_MAJOR)?;
    x.u64(f::FSID_MINOR).map(drop)
}

fn filehandle<'a, T: Trace>(x: &mut Xdr<'a, '_, T>, op: &mut Op<'a>) -> Read<()> {
    op.handle = Some(handle(x, f::FILEHANDLE)?);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::super::testing::{chunks, decode_all, words};
    use super::super::{Io, Slot};
    use super::*;
    use crate::header::Vec;
    use crate::trace::{Off, Tree};
    use crate::wire::rpc::Program;
    use crate::wire::xdr::Stream;
    use Operation as O;
    use proptest::prelude::*;

    fn memo() -> Memo {
        Memo::new(Program::NFS, 4, 1)
    }

    /// A compound with one operation: every prefix is tried, and nothing may stay undecoded.
    fn call(operation: O, arguments: &[u32]) -> (Tree, Op<'static>) {
        let bytes = Vec::leak(words(&[&[0, 2, 1, operation.0], arguments].concat()));
        let (tree, ops) = decode_all(bytes, true, &memo());
        assert_eq!((ops.len(), ops[0].code, ops[0].status), (1, operation.0, None), "{operation}");
        assert_eq!(
            tree.faults.len(),
            0,
            "{operation}: {}",
            tree.faults.first().map_or_else(Default::default, |f| alloc::format!("{}", f.0))
        );
        (tree, ops[0])
    }

    fn reply_with(status: Status, operation: O, results: &[u32]) -> (Tree, Op<'static>) {
        let bytes = Vec::leak(words(&[&[status.0, 0, 1, operation.0, status.0], results].concat()));
        let (tree, ops) = decode_all(bytes, false, &memo());
        assert_eq!((ops.len(), ops[0].code, ops[0].status), (1, operation.0, Some(status.0)), "{operation}");
        assert_eq!(
            tree.faults.len(),
            0,
            "{operation}: {}",
            tree.faults.first().map_or_else(Default::default, |f| alloc::format!("{}", f.0))
        );
        (tree, ops[0])
    }

    fn reply(operation: O, results: &[u32]) -> (Tree, Op<'static>) {
        reply_with(Status::OK, operation, results)
    }

    fn join(parts: &[&[u32]]) -> Vec<u32> {
        parts.concat()
    }

    const FH: &[u32] = &[8, 0x0100_0100, 0x0100_0000];
    const STATEID: &[u32] = &[1, 0xa050_016b, 0x4acb_03ce, 0x0e00_0000];
    /// "hello"
    const NAME: &[u32] = &[5, 0x6865_6c6c, 0x6f00_0000];
    const CINFO: &[u32] = &[1, 0, 5, 0, 6];
    const SESSION: &[u32] = &[0xa050_016b, 0x4acb_03ce, 0x0100_0000, 0];
    const DEVICE: &[u32] = &[1, 2, 3, 4];
    const OWNER: &[u32] = &[0, 7, 4, 0x6f77_6e65];
    const TIME: &[u32] = &[0, 1_795_248_284, 276_043_352];
    /// "tcp" and "::1"
    const NETADDR: &[u32] = &[3, 0x7463_7000, 3, 0x3a3a_3100];
    const ACE: &[u32] = &[0, 0x40, 0x0016_01e7, 6, 0x4f57_4e45, 0x5240_0000];
    /// size 9 and mode 0644
    const FATTR: &[u32] = &[2, 0x10, 2, 12, 0, 9, 0o644];
    const BITMAP: &[u32] = &[2, 0x0010_011a, 0x0030_a23a];
    /// lock owner "owne", read lock of all
    const ALL: &[u32] = &[0, 0, u32::MAX, u32::MAX];

    #[test]
    fn operations_without_arguments_or_results() {
        for operation in
            [O::GETFH, O::LOOKUPP, O::PUTPUBFH, O::PUTROOTFH, O::READLINK, O::RESTOREFH, O::SAVEFH, O::ILLEGAL]
        {
            call(operation, &[]);
        }
        for operation in [
            O::DELEGPURGE,
            O::DELEGRETURN,
            O::LOOKUP,
            O::LOOKUPP,
            O::LOCKT,
            O::NVERIFY,
            O::VERIFY,
            O::OPENATTR,
            O::PUTFH,
            O::PUTPUBFH,
            O::PUTROOTFH,
            O::RENEW,
            O::RESTOREFH,
            O::SAVEFH,
            O::SETCLIENTID_CONFIRM,
            O::RELEASE_LOCKOWNER,
            O::BACKCHANNEL_CTL,
            O::DESTROY_SESSION,
            O::FREE_STATEID,
            O::DESTROY_CLIENTID,
            O::RECLAIM_COMPLETE,
            O::ALLOCATE,
            O::DEALLOCATE,
            O::LAYOUTERROR,
            O::LAYOUTSTATS,
            O::OFFLOAD_CANCEL,
            O::CLONE,
        ] {
            reply(operation, &[]);
        }
        // a failed operation has no results, whatever it is
        for (number, name) in Operation::VALUES.iter().filter(|(n, _)| *n != u64::from(O::SETATTR.0)) {
            let (tree, _) = reply_with(Status::DELAY, Operation(*number as u32), &[]);
            assert_eq!(tree.info, alloc::format!("V4 Reply {name}, Status: NFS4ERR_DELAY"));
        }
    }

    #[test]
    fn files_and_directories() {
        let (tree, _) = call(O::ACCESS, &[0x1f]);
        assert_eq!((tree.number("nfs.access_check"), tree.all("nfs.access_delete").count()), (Some(0x1f), 1));
        let (tree, _) = reply(O::ACCESS, &[0x1f, 0x03]);
        assert_eq!((tree.number("nfs.access_supported"), tree.number("nfs.access_rights")), (Some(0x1f), Some(3)));
        assert_eq!(
            (tree.number("nfs.access_read"), tree.number("nfs.access_delete"), tree.number("nfs.access_execute")),
            (Some(1), Some(0), None)
        );
        call(O::COMMIT, &[0, 0, 0]);
        reply(O::COMMIT, &[1, 2]);
        let (_, op) = call(O::CREATE, &join(&[&[2], NAME, FATTR]));
        assert_eq!(op.name, Some(&b"hello"[..]));
        let (tree, _) = call(O::CREATE, &join(&[&[5], NAME, NAME, FATTR]));
        assert_eq!(tree.value_bytes(tree.all("nfs.symlink.linktext").next().unwrap()), b"hello");
        call(O::CREATE, &join(&[&[3, 8, 1], NAME, FATTR]));
        let (tree, _) = reply(O::CREATE, &join(&[CINFO, BITMAP]));
        assert_eq!((tree.number("nfs.changeid4.after"), tree.number("nfs.attr_count")), (Some(6), Some(5)));
        let (tree, _) = call(O::GETATTR, BITMAP);
        let asked: Vec<_> = tree.all("nfs.attr").map(format_value).collect();
        assert_eq!(asked, [1, 3, 4, 8, 20, 33, 35, 36, 37, 41, 45, 47, 52, 53]);
        let (tree, _) = reply(O::GETATTR, FATTR);
        assert_eq!(
            (tree.number("nfs.fattr4.size"), tree.number("nfs.mode"), tree.number("nfs.mode.read_other")),
            (Some(9), Some(0o644), Some(1))
        );
        let (_, op) = reply(O::GETFH, FH);
        assert_eq!(op.handle, Some(&[1, 0, 1, 0, 1, 0, 0, 0][..]));
        let (_, op) = call(O::PUTFH, FH);
        assert_eq!(op.handle, Some(&[1, 0, 1, 0, 1, 0, 0, 0][..]));
        for operation in [O::LINK, O::LOOKUP, O::REMOVE, O::SECINFO] {
            let (tree, op) = call(operation, NAME);
            assert_eq!((op.name, tree.info), (Some(&b"hello"[..]), alloc::format!("V4 Call {operation} hello")));
        }
        reply(O::LINK, CINFO);
        reply(O::REMOVE, CINFO);
        let (_, op) = call(O::RENAME, &join(&[NAME, &[2, 0x6162_0000]]));
        assert_eq!((op.name, op.to_name), (Some(&b"hello"[..]), Some(&b"ab"[..])));
        let (tree, _) = reply(O::RENAME, &join(&[CINFO, CINFO]));
        assert_eq!(tree.all("nfs.change_info.atomic").count(), 2);
        call(O::NVERIFY, FATTR);
        call(O::VERIFY, FATTR);
        call(O::OPENATTR, &[1]);
        let (tree, op) = call(O::READ, &join(&[STATEID, &[0, 8, 4096]]));
        assert_eq!(op.io, Some(Io { offset: 8, count: 4096, ..Io::default() }));
        assert_eq!(op.stateid.map(|s| (s.seqid, s.other[0])), Some((1, 0xa0)));
        assert_eq!(
            (tree.number("nfs.stateid.hash"), tree.number("nfs.stateid.other_hash")),
            (Some(0xfbcf), Some(0x0c40_9d67))
        );
        let (tree, op) = reply(O::READ, &join(&[&[1], NAME]));
        assert_eq!(op.io, Some(Io { count: 5, eof: true, ..Io::default() }));
        assert_eq!((tree.number("nfs.read.data_length"), tree.number("nfs.eof")), (Some(5), Some(1)));
        call(O::READDIR, &join(&[&[0, 0, 0, 0, 512, 4096], BITMAP]));
        let entry = join(&[&[1, 0, 4], NAME, FATTR]);
        let (tree, _) = reply(O::READDIR, &join(&[&[0, 0], &entry, &entry, &[0, 1]]));
        assert_eq!(
            (tree.all("nfs.entry_name").count(), tree.number("nfs.dirlist4.eof"), tree.all("nfs.mode").count()),
            (2, Some(1), 2)
        );
        let (_, op) = reply(O::READLINK, NAME);
        assert_eq!(op.name, Some(&b"hello"[..]));
        let (tree, _) = reply(O::SECINFO, &[2, 1, 6, 9, 0x2a86_4886, 0xf712_0102, 0x0200_0000, 0, 1]);
        assert_eq!((tree.number("rpc.array.len"), tree.all("nfs.secinfo.flavor").count()), (Some(2), 2));
        call(O::SETATTR, &join(&[STATEID, FATTR]));
        reply(O::SETATTR, BITMAP);
        reply_with(Status::ACCESS, O::SETATTR, &[0]);
        let (tree, op) = call(O::WRITE, &join(&[STATEID, &[0, 8, 2], NAME]));
        assert_eq!(op.io, Some(Io { offset: 8, count: 5, stable: 2, ..Io::default() }));
        assert_eq!((tree.number("nfs.write.data_length"), tree.number("nfs.stable_how4")), (Some(5), Some(2)));
        let (_, op) = reply(O::WRITE, &[5, 2, 0xaa, 0xbb]);
        assert_eq!(op.io, Some(Io { count: 5, stable: 2, ..Io::default() }));
    }

    fn format_value(node: &crate::trace::Node) -> u64 {
        let crate::trace::NodeValue::U(v) = node.value else { panic!("a number") };
        v
    }

    #[test]
    fn opens_and_locks() {
        let open = join(&[&[1, 0x0003_0103, 0], OWNER]);
        let (tree, op) = call(O::OPEN, &join(&[&open, &[1, 0], FATTR, &[0], NAME]));
        assert_eq!(
            (op.name, tree.number("nfs.open4.share_access"), tree.number("nfs.want")),
            (Some(&b"hello"[..]), Some(3), Some(0x100))
        );
        assert_eq!(tree.number("nfs.want_push_deleg_when_uncontended"), Some(1));
        call(O::OPEN, &join(&[&open, &[1, 2, 0xaa, 0xbb, 4]]));
        call(O::OPEN, &join(&[&open, &[1, 3, 0xaa, 0xbb], FATTR, &[0], NAME]));
        call(O::OPEN, &join(&[&open, &[0, 1, 2]]));
        call(O::OPEN, &join(&[&open, &[0, 2], STATEID, NAME]));
        call(O::OPEN, &join(&[&open, &[0, 3], NAME]));
        call(O::OPEN, &join(&[&open, &[0, 4]]));
        let (_, op) = call(O::OPEN, &join(&[&open, &[0, 5], STATEID]));
        assert!(op.stateid.is_some());
        call(O::OPEN, &join(&[&open, &[0, 6]]));
        let opened = join(&[STATEID, CINFO, &[0x24], BITMAP]);
        reply(O::OPEN, &join(&[&opened, &[0]]));
        for kind in [1, 4] {
            let (tree, op) = reply(O::OPEN, &join(&[&opened, &[kind], STATEID, &[1], ACE]));
            assert_eq!((tree.number("nfs.recall4"), tree.number("nfs.acemask4")), (Some(1), Some(0x0016_01e7)));
            assert_eq!(
                (tree.all("nfs.ace_perm4").count(), tree.number("nfs.aceflag4.id_group"), op.stateid.is_some()),
                (10, Some(1), true)
            );
        }
        for kind in [2, 5] {
            let (tree, _) = reply(O::OPEN, &join(&[&opened, &[kind], STATEID, &[0, 1, 0, 4096], ACE]));
            assert_eq!(tree.number("nfs.filesize"), Some(4096));
            reply(O::OPEN, &join(&[&opened, &[kind], STATEID, &[0, 2, 8, 512], ACE]));
        }
        for (why, more) in [(0, &[][..]), (1, &[1]), (2, &[0])] {
            let (tree, _) = reply(O::OPEN, &join(&[&opened, &[3, why], more]));
            assert_eq!(tree.number("nfs.open.why_no_delegation"), Some(why.into()));
        }
        call(O::OPEN_CONFIRM, &join(&[STATEID, &[2]]));
        reply(O::OPEN_CONFIRM, STATEID);
        call(O::OPEN_DOWNGRADE, &join(&[STATEID, &[2, 1, 0]]));
        reply(O::OPEN_DOWNGRADE, STATEID);
        call(O::CLOSE, &join(&[&[2], STATEID]));
        reply(O::CLOSE, STATEID);
        call(O::DELEGRETURN, STATEID);
        call(O::DELEGPURGE, &[0, 7]);
        let (tree, _) = call(O::LOCK, &join(&[&[2, 0], ALL, &[1, 5], STATEID, &[6], OWNER]));
        assert_eq!(
            (tree.number("nfs.locktype4"), tree.number("nfs.lock_seqid"), tree.number("nfs.length4")),
            (Some(2), Some(6), Some(u64::MAX))
        );
        call(O::LOCK, &join(&[&[2, 0], ALL, &[0], STATEID, &[6]]));
        reply(O::LOCK, STATEID);
        let denied = join(&[ALL, &[1], OWNER]);
        for operation in [O::LOCK, O::LOCKT] {
            let (tree, _) = reply_with(Status::DENIED, operation, &denied);
            assert_eq!(tree.all("nfs.lock_owner4").count(), 1);
        }
        call(O::LOCKT, &join(&[&[1], ALL, OWNER]));
        call(O::LOCKU, &join(&[&[1, 5], STATEID, ALL]));
        reply(O::LOCKU, STATEID);
        call(O::RELEASE_LOCKOWNER, OWNER);
        call(O::RENEW, &[0, 7]);
        let (tree, _) = call(O::SETCLIENTID, &join(&[&[1, 2], NAME, &[0x4000_0000], NETADDR, &[1]]));
        assert_eq!((tree.number("nfs.cb_program"), tree.number("nfs.callback.ident")), (Some(0x4000_0000), Some(1)));
        reply(O::SETCLIENTID, &[0, 7, 1, 2]);
        reply_with(Status::CLID_INUSE, O::SETCLIENTID, NETADDR);
        call(O::SETCLIENTID_CONFIRM, &[0, 7, 1, 2]);
    }

    #[test]
    fn sessions() {
        let security = &[3, 0, 1, 7, 1, 0x6100_0000, 0, 0, 1, 4, 6, 1, 4, 0xaa, 4, 0xbb];
        call(O::BACKCHANNEL_CTL, &join(&[&[0x4000_0000], security]));
        let (tree, _) = call(O::BIND_CONN_TO_SESSION, &join(&[SESSION, &[3, 1]]));
        assert_eq!(tree.number("nfs.bctsa_use_conn_in_rdma_mode"), Some(1));
        reply(O::BIND_CONN_TO_SESSION, &join(&[SESSION, &[3, 0]]));
        let who = join(&[&[0x18ea_00ce, 0x6fd6_4147], NAME, &[0x101]]);
        let implementation = join(&[&[1], NAME, NAME, TIME]);
        let (tree, _) = call(O::EXCHANGE_ID, &join(&[&who, &[0], &implementation]));
        assert_eq!(
            (tree.number("nfs.verifier4"), tree.number("nfs.exchange_id.flags.bind_princ")),
            (Some(0x18ea_00ce_6fd6_4147), Some(1))
        );
        let operations: &[u32] = &[1, 8, 2, 0, 0x10];
        let (tree, _) = call(O::EXCHANGE_ID, &join(&[&who, &[1], operations, &[0]]));
        assert_eq!(tree.all("rdmascope.nfs.state_protect.op").map(format_value).collect::<Vec<_>>(), [3, 36]);
        call(O::EXCHANGE_ID, &join(&[&who, &[2], operations, &[1, 4, 0xaa, 1, 4, 0xbb, 128, 4, 0]]));
        let exchanged: &[u32] = &[0, 7, 1, 0x2_0001];
        let server = join(&[&[0, 0], NAME, NAME, &[0]]);
        let (tree, _) = reply(O::EXCHANGE_ID, &join(&[exchanged, &[0], &server]));
        assert_eq!(tree.number("nfs.exchange_id.flags.pnfs_mds"), Some(1));
        reply(O::EXCHANGE_ID, &join(&[exchanged, &[1], operations, &server]));
        reply(O::EXCHANGE_ID, &join(&[exchanged, &[2], operations, &[1, 2, 3, 4, 1, 4, 0xcc], &server]));
        let channel: &[u32] = &[0, 1_049_620, 1_049_480, 7584, 8, 64, 1, 16];
        let (tree, _) = call(O::CREATE_SESSION, &join(&[&[0, 7, 1, 3], channel, channel, &[0x4000_0000], security]));
        assert_eq!(
            (tree.number("nfs.maxreqs4"), tree.number("nfs.rdmachanattrs4"), tree.number("nfs.stamp4")),
            (Some(64), Some(16), Some(7))
        );
        reply(O::CREATE_SESSION, &join(&[SESSION, &[1, 3], channel, channel]));
        call(O::DESTROY_SESSION, SESSION);
        call(O::FREE_STATEID, STATEID);
        call(O::GET_DIR_DELEGATION, &join(&[&[0, 1, 0x3c], TIME, TIME, BITMAP, BITMAP]));
        let (tree, _) = reply(O::GET_DIR_DELEGATION, &join(&[&[0, 1, 2], STATEID, &[1, 0xc], BITMAP, BITMAP]));
        assert_eq!(tree.all("nfs.notify_type").map(format_value).collect::<Vec<_>>(), [2, 3]);
        reply(O::GET_DIR_DELEGATION, &[1, 1]);
        call(O::SECINFO_NO_NAME, &[1]);
        reply(O::SECINFO_NO_NAME, &[1, 1]);
        let (_, op) = call(O::SEQUENCE, &join(&[SESSION, &[9, 2, 3, 1]]));
        let mut session = [0; 16];
        session.copy_from_slice(&words(SESSION));
        assert_eq!(op.slot, Some(Slot { session, slot: 2, sequence: 9, highest: 3 }));
        let (tree, op) = reply(O::SEQUENCE, &join(&[SESSION, &[9, 2, 3, 29, 0x401]]));
        assert_eq!(op.slot, Some(Slot { session, slot: 2, sequence: 9, highest: 29 }));
        assert_eq!(
            (tree.number("nfs.sequence.flags.cb_path_down"), tree.number("nfs.sequence.flags.backchannel_fault")),
            (Some(1), Some(1))
        );
        call(O::SET_SSV, &join(&[NAME, NAME]));
        reply(O::SET_SSV, NAME);
        call(O::TEST_STATEID, &join(&[&[2], STATEID, STATEID]));
        let (tree, _) = reply(O::TEST_STATEID, &[2, 0, 10025]);
        assert_eq!(tree.all("nfs.nfsstat4").count(), 4);
        call(O::WANT_DELEGATION, &[0x100, 1, 2]);
        call(O::WANT_DELEGATION, &[0x100, 4]);
        reply(O::WANT_DELEGATION, &[3, 2, 1]);
        call(O::DESTROY_CLIENTID, &[0, 7]);
        call(O::RECLAIM_COMPLETE, &[0]);
    }

    /// An opaque body: its length in front.
    fn counted(words: &[u32]) -> Vec<u32> {
        [&[words.len() as u32 * 4], words].concat()
    }

    #[test]
    fn layouts_and_devices() {
        call(O::GETDEVICEINFO, &join(&[DEVICE, &[1, 4096, 1, 6]]));
        let files = counted(&join(&[&[2, 0, 1, 2, 1], NETADDR, &[1], NETADDR]));
        let (tree, _) = reply(O::GETDEVICEINFO, &join(&[&[1], &files, &[0]]));
        assert_eq!((tree.all("nfs.deviceidx").count(), tree.all("nfs.r_addr").count()), (2, 2));
        let flex = counted(&join(&[&[1], NETADDR, &[1, 3, 0, 65536, 65536, 1]]));
        let (tree, _) = reply(O::GETDEVICEINFO, &join(&[&[4], &flex, &[0]]));
        assert_eq!((tree.number("nfs.ff.version"), tree.number("nfs.ff.tightly_coupled")), (Some(3), Some(1)));
        let volumes = counted(&join(&[&[
            5, 0, 1, 0, 512, 4, 0xaa, 1, 0, 0, 0, 8, 0, 2, 1, 0, 3, 0, 4096, 2, 0, 1, 4, 1, 3, 4, 0xbb, 1, 2,
        ]]));
        for kind in [3, 5] {
            let (tree, _) = reply(O::GETDEVICEINFO, &join(&[&[kind], &volumes, &[0]]));
            assert_eq!(tree.all("nfs.devaddr.scsi_volume_type").count(), 5);
        }
        reply(O::GETDEVICEINFO, &join(&[&[2], NAME, &[0]]));
        reply_with(Status::TOOSMALL, O::GETDEVICEINFO, &[8192]);
        call(O::GETDEVICELIST, &[1, 8, 0, 0, 0, 0]);
        reply(O::GETDEVICELIST, &join(&[&[0, 1, 0, 2, 1], DEVICE, &[1]]));
        let range: &[u32] = &[0, 0, 0, 4096];
        call(O::LAYOUTCOMMIT, &join(&[range, &[0], STATEID, &[1, 0, 4095, 1], TIME, &[1, 0]]));
        call(O::LAYOUTCOMMIT, &join(&[range, &[0], STATEID, &[0, 0, 5], &counted(&[1, 0, 1, 0, 2])]));
        call(
            O::LAYOUTCOMMIT,
            &join(&[range, &[0], STATEID, &[0, 0, 3], &counted(&join(&[&[1], DEVICE, &[0, 1, 0, 2, 0, 3, 0]]))]),
        );
        reply(O::LAYOUTCOMMIT, &[0]);
        reply(O::LAYOUTCOMMIT, &[1, 0, 4096]);
        call(O::LAYOUTGET, &join(&[&[0, 1, 2], range, &[0, 1], STATEID, &[4096]]));
        let layout = |kind: u32, body: &[u32]| join(&[&[1], STATEID, &[1], range, &[2, kind], &counted(body)]);
        let (tree, _) = reply(O::LAYOUTGET, &layout(1, &join(&[DEVICE, &[0x1_0001, 0, 0, 0, 1], FH])));
        assert_eq!(
            (tree.number("nfs.nfl_util.dense"), tree.number("nfs.nfl_util.stripe_size"), tree.number("nfs.fh.hash")),
            (Some(1), Some(65536), Some(0xda68_6b37))
        );
        let server = join(&[DEVICE, &[5], STATEID, &[1], FH, &[1, 0x3000_0000, 1, 0x3000_0000]]);
        let (tree, _) = reply(O::LAYOUTGET, &layout(4, &join(&[&[0, 65536, 1, 1], &server, &[3, 60]])));
        assert_eq!(
            (tree.number("nfs.nff_mirror_eff"), tree.number("nfs.ff.layout_flags.no_io_thru_mds")),
            (Some(5), Some(1))
        );
        for kind in [3, 5] {
            let (tree, _) = reply(O::LAYOUTGET, &layout(kind, &join(&[&[1], DEVICE, &[0, 1, 0, 2, 0, 3, 1]])));
            assert_eq!(tree.number("nfs.scsil_ext_state"), Some(1));
        }
        let (tree, _) = reply(O::LAYOUTGET, &layout(2, &[1, 2]));
        assert_eq!(tree.all("nfs.layout").count(), 1);
        reply_with(Status::LAYOUTTRYLATER, O::LAYOUTGET, &[1]);
        let latency = join(&[&[0, 1, 0, 2, 0, 3, 0, 4, 0, 5], TIME, TIME]);
        let update = join(&[NETADDR, FH, &latency, &latency, TIME, &[1]]);
        let stats = join(&[range, STATEID, &[0, 1, 0, 2, 0, 3, 0, 4], DEVICE]);
        let returned = join(&[&[1], range, STATEID, &[1], DEVICE, &[5, 25, 1], &stats, &update]);
        let (tree, _) = call(O::LAYOUTRETURN, &join(&[&[0, 4, 3, 1], range, STATEID, &counted(&returned)]));
        assert_eq!(
            (tree.number("nfs.ff_ioerrs_op"), tree.number("nfs.ff.bytes_not_delivered"), tree.number("nfs.io_bytes")),
            (Some(25), Some(5), Some(2))
        );
        call(O::LAYOUTRETURN, &join(&[&[0, 1, 3, 1], range, STATEID, &[0]]));
        call(O::LAYOUTRETURN, &[0, 1, 3, 3]);
        reply(O::LAYOUTRETURN, &[0]);
        reply(O::LAYOUTRETURN, &join(&[&[1], STATEID]));
        call(O::LAYOUTERROR, &join(&[range, STATEID, &[1], DEVICE, &[5, 38]]));
        call(O::LAYOUTSTATS, &join(&[&stats, &[4], &counted(&update)]));
    }

    #[test]
    fn copies_holes_and_extended_attributes() {
        let range: &[u32] = &[0, 8, 0, 4096];
        for operation in [O::ALLOCATE, O::DEALLOCATE] {
            call(operation, &join(&[STATEID, range]));
        }
        let (tree, _) =
            call(O::COPY, &join(&[STATEID, STATEID, &[0, 1, 0, 2, 0, 3, 1, 0, 3, 1], NAME, &[2], NAME, &[3], NETADDR]));
        assert_eq!((tree.all("nfs.netloctype").count(), tree.number("nfs.consecutive")), (3, Some(1)));
        let response = join(&[&[1], STATEID, &[0, 4096, 2, 0xaa, 0xbb]]);
        reply(O::COPY, &join(&[&response, &[1, 0]]));
        reply_with(Status::OFFLOAD_NO_REQS, O::COPY, &[1, 0]);
        call(O::COPY_NOTIFY, &join(&[STATEID, &[1], NAME]));
        reply(O::COPY_NOTIFY, &join(&[TIME, STATEID, &[1, 1], NAME]));
        let (tree, _) = call(O::IO_ADVISE, &join(&[STATEID, range, &[1, 0x12]]));
        assert_eq!(tree.all("nfs.hint.hint").map(format_value).collect::<Vec<_>>(), [1, 4]);
        reply(O::IO_ADVISE, &[1, 2]);
        call(O::OFFLOAD_CANCEL, STATEID);
        call(O::OFFLOAD_STATUS, STATEID);
        reply(O::OFFLOAD_STATUS, &[0, 77, 1, 0]);
        let (_, op) = call(O::READ_PLUS, &join(&[STATEID, &[0, 8, 4096]]));
        assert_eq!(op.io.map(|io| (io.offset, io.count)), Some((8, 4096)));
        let (tree, op) = reply(O::READ_PLUS, &join(&[&[1, 2, 0, 0, 8], NAME, &[1, 0, 13, 0, 100]]));
        assert_eq!(op.io, Some(Io { count: 105, eof: true, ..Io::default() }));
        assert_eq!(tree.all("nfs.content.type").count(), 2);
        call(O::SEEK, &join(&[STATEID, &[0, 8, 1]]));
        reply(O::SEEK, &[0, 0, 4096]);
        call(O::WRITE_SAME, &join(&[STATEID, &[2, 0, 8, 0, 512, 0, 4, 0, 0, 1, 0, 0], NAME]));
        reply(O::WRITE_SAME, &response);
        call(O::CLONE, &join(&[STATEID, STATEID, &[0, 1, 0, 2, 0, 3]]));
        let (_, op) = call(O::GETXATTR, NAME);
        assert_eq!(op.name, Some(&b"hello"[..]));
        reply(O::GETXATTR, NAME);
        call(O::SETXATTR, &join(&[&[1], NAME, NAME]));
        reply(O::SETXATTR, CINFO);
        call(O::LISTXATTRS, &[0, 0, 172]);
        let (tree, _) = reply(O::LISTXATTRS, &join(&[&[0, 2, 2], NAME, NAME, &[1]]));
        assert_eq!((tree.number("nfs.listxattr.names.count"), tree.number("nfs.lisxtattr.eof")), (Some(2), Some(1)));
        call(O::REMOVEXATTR, NAME);
        reply(O::REMOVEXATTR, CINFO);
    }

    #[test]
    fn callbacks() {
        use CallbackOperation as C;
        let memo = Memo::new(Program::NFS_CALLBACK, 1, 1);
        assert_eq!(memo.procedure_name(), Some("CB_COMPOUND"));
        let call = |operation: C, arguments: &[u32]| {
            let bytes = Vec::leak(words(&[&[0, 1, 7, 1, operation.0], arguments].concat()));
            let (tree, ops) = decode_all(bytes, true, &memo);
            assert!(tree.faults.is_empty(), "{operation}");
            assert_eq!((tree.number("nfs.callback.ident"), ops[0].callback, ops[0].code), (Some(7), true, operation.0));
            (tree, ops[0])
        };
        let reply = |operation: C, results: &[u32]| {
            let bytes = Vec::leak(words(&[&[0, 0, 1, operation.0, 0], results].concat()));
            let (tree, ops) = decode_all(bytes, false, &memo);
            assert!(tree.faults.is_empty(), "{operation}");
            (tree, ops[0])
        };
        call(C::CB_GETATTR, &join(&[FH, BITMAP]));
        reply(C::CB_GETATTR, FATTR);
        let (tree, op) = call(C::CB_RECALL, &join(&[STATEID, &[0], FH]));
        assert!(op.stateid.is_some() && op.handle.is_some());
        assert_eq!((tree.protocol, tree.info.as_str()), ("NFS CB", "CB Call CB_RECALL"));
        let (_, op) = call(C::CB_LAYOUTRECALL, &join(&[&[1, 2, 0, 1], FH, ALL, STATEID]));
        assert!(op.handle.is_some());
        call(C::CB_LAYOUTRECALL, &[1, 2, 0, 2, 0, 1, 0, 2]);
        call(C::CB_LAYOUTRECALL, &[1, 2, 0, 3]);
        let entry = join(&[NAME, FATTR]);
        let removed = join(&[&entry, &[0, 4]]);
        let added = join(&[&[1], &removed, &entry, &[1, 0, 5, 1], &removed, &[1]]);
        let body = counted(&join(&[&entry, FATTR, &removed, &added, &removed, &added, &[0, 1, 0, 2]]));
        let (tree, _) = call(C::CB_NOTIFY, &join(&[STATEID, FH, &[1, 1, 0x3f], &body]));
        assert_eq!((tree.all("nfs.entry_name").count(), tree.all("nfs.cookie_verf4").count()), (9, 2));
        call(C::CB_PUSH_DELEG, &join(&[FH, &[1], STATEID, &[0], ACE]));
        for operation in [C::CB_RECALL_ANY, C::CB_RECALLABLE_OBJ_AVAIL] {
            let (tree, _) = call(operation, &[5, 1, 0x9]);
            assert_eq!(tree.all("rdmascope.nfs.recall_any.type").map(format_value).collect::<Vec<_>>(), [0, 3]);
        }
        call(C::CB_RECALL_SLOT, &[12]);
        let (_, op) = call(C::CB_SEQUENCE, &join(&[SESSION, &[9, 2, 3, 0, 1], SESSION, &[1, 4, 5]]));
        assert_eq!(op.slot.map(|s| (s.slot, s.sequence, s.highest)), Some((2, 9, 3)));
        let (_, op) = reply(C::CB_SEQUENCE, &join(&[SESSION, &[9, 2, 3, 15]]));
        assert_eq!(op.slot.map(|s| s.highest), Some(15));
        call(C::CB_WANTS_CANCELLED, &[1, 0]);
        call(C::CB_NOTIFY_LOCK, &join(&[FH, OWNER]));
        let body = counted(&join(&[&[1], DEVICE, &[1, 1], DEVICE]));
        let (tree, _) = call(C::CB_NOTIFY_DEVICEID, &join(&[&[1, 1, 6], &body]));
        assert_eq!((tree.all("nfs.deviceid").count(), tree.number("rdmascope.nfs.cb_notify.immediate")), (2, Some(1)));
        call(C::CB_OFFLOAD, &join(&[FH, STATEID, &[0, 0, 0, 4096, 2, 1, 2]]));
        call(C::CB_OFFLOAD, &join(&[FH, STATEID, &[5, 0, 77]]));
        for operation in [C::CB_RECALL, C::CB_LAYOUTRECALL, C::CB_NOTIFY, C::CB_ILLEGAL, C::CB_OFFLOAD] {
            reply(operation, &[]);
        }
        decode_all(&[], true, &Memo::new(Program::NFS_CALLBACK, 1, 0));
    }

    #[test]
    fn every_attribute_is_decoded() {
        use attr::Attribute as A;
        let text = NAME;
        let path = &join(&[&[2], NAME, NAME]);
        let locations = join(&[path, &[1, 2], NAME, NAME, path]);
        let info = join(&[&[1, 60], path, &[1, 1, 5], NAME, NAME, path]);
        let values: Vec<Vec<u32>> = (0..87)
            .map(|n| match A(n) {
                A::SUPPORTED_ATTRS | A::SUPPATTR_EXCLCREAT => BITMAP.to_vec(),
                A::TYPE
                | A::FH_EXPIRE_TYPE
                | A::LEASE_TIME
                | A::RDATTR_ERROR
                | A::ACLSUPPORT
                | A::MAXLINK
                | A::MAXNAME
                | A::MODE
                | A::NUMLINKS => alloc::vec![1],
                A::LAYOUT_BLKSIZE
                | A::LAYOUT_ALIGNMENT
                | A::FS_CHARSET_CAP
                | A::CLONE_BLKSIZE
                | A::CHANGE_ATTR_TYPE => alloc::vec![1],
                A::LINK_SUPPORT
                | A::SYMLINK_SUPPORT
                | A::NAMED_ATTR
                | A::UNIQUE_HANDLES
                | A::ARCHIVE
                | A::CANSETTIME
                | A::CASE_INSENSITIVE => alloc::vec![1],
                A::CASE_PRESERVING
                | A::CHOWN_RESTRICTED
                | A::HIDDEN
                | A::HOMOGENEOUS
                | A::NO_TRUNC
                | A::SYSTEM
                | A::XATTR_SUPPORT
                | A::OFFLINE => alloc::vec![1],
                A::FSID | A::CHANGE_POLICY => alloc::vec![0, 1, 0, 2],
                A::ACL => join(&[&[1], ACE]),
                A::DACL | A::SACL => join(&[&[1, 1], ACE]),
                A::FILEHANDLE => FH.to_vec(),
                A::FS_LOCATIONS => locations.clone(),
                A::MIMETYPE | A::OWNER | A::OWNER_GROUP => text.to_vec(),
                A::RAWDEV | A::MODE_SET_MASKED | A::MODE_UMASK => alloc::vec![8, 1],
                A::TIME_ACCESS
                | A::TIME_BACKUP
                | A::TIME_CREATE
                | A::TIME_DELTA
                | A::TIME_METADATA
                | A::TIME_MODIFY => TIME.to_vec(),
                A::DIR_NOTIF_DELAY | A::DIRENT_NOTIF_DELAY | A::TIME_DELEG_ACCESS | A::TIME_DELEG_MODIFY => {
                    TIME.to_vec()
                }
                A::TIME_ACCESS_SET => alloc::vec![0],
                A::TIME_MODIFY_SET => join(&[&[1], TIME]),
                A::FS_STATUS => join(&[&[0, 4], NAME, NAME, &[5], TIME]),
                A::FS_LAYOUT_TYPE | A::LAYOUT_TYPE => alloc::vec![2, 1, 4],
                A::LAYOUT_HINT => join(&[&[1], NAME]),
                A::FS_LOCATIONS_INFO => info.clone(),
                A::MDSTHRESHOLD => join(&[&[1, 1, 1, 3], NAME]),
                A::RETENTION_GET | A::RETENTEVT_GET => join(&[&[0, 60, 1], TIME]),
                A::RETENTION_SET | A::RETENTEVT_SET => alloc::vec![1, 1, 0, 60],
                A::SEC_LABEL => join(&[&[1, 2], NAME]),
                A::OPEN_ARGUMENTS => alloc::vec![1, 3, 1, 3, 1, 3, 1, 3, 1, 3],
                _ => alloc::vec![0, 4096],
            })
            .collect();
        assert_eq!(A::VALUES.len(), 87);
        let body = values.concat();
        let all = join(&[&[3, u32::MAX, u32::MAX, (1 << 23) - 1], &counted(&body)]);
        let (tree, _) = reply(O::GETATTR, &all);
        assert_eq!((tree.all("rdmascope.nfs.attribute").count(), tree.all("nfs.bitmap_data").count()), (87, 0));
        assert_eq!(
            (
                tree.number("nfs.fattr4.umask"),
                tree.number("nfs.fattr4.security_label.pi"),
                tree.number("nfs.fattr4.maxwrite")
            ),
            (Some(1), Some(2), Some(4096))
        );
        // one at a time: none takes too much or too little
        for (n, value) in values.iter().enumerate() {
            let mut mask = [0, 0, 0];
            mask[n / 32] = 1 << (n % 32);
            let (tree, _) = reply(O::GETATTR, &join(&[&[3], &mask, &counted(value)]));
            assert_eq!(tree.all("rdmascope.nfs.attribute").count(), 1, "attribute {n}");
        }
        // an unknown attribute: it and the ones behind it stay bytes, and the compound goes on
        let unknown = join(&[&[0, 0, 2, 9, 0, 4, 0, 0, 0, 1 << 31], &counted(&[1, 2]), &[24, 0]]);
        let (tree, ops) = decode_all(Vec::leak(words(&unknown)), false, &memo());
        assert_eq!((tree.all("nfs.bitmap_data").count(), ops.len()), (1, 2));
    }

    #[test]
    fn data_in_chunks() {
        // two READs in one compound, each with a chunk; the second chunk was not used
        let read = |rest: &[u32]| join(&[&[O::READ.0, 0, 0], rest]);
        let two = words(&join(&[&[0, 0, 2], &read(&[65536]), &read(NAME)]));
        let (tree, ops) = chunks(&two, false, &memo(), &[], &[65536, 0]);
        assert_eq!(
            ops.iter().map(|o| o.io.map(|io| (io.count, io.reduced))).collect::<Vec<_>>(),
            [Some((65536, true)), Some((5, false))]
        );
        assert_eq!((tree.number("rdmascope.reduced.chunk"), tree.all("rdmascope.reduced").count()), (Some(0), 1));
        // two WRITEs with both their data in chunks: the second position counts the bytes taken out of the first
        let write = |count: u32| join(&[&[O::WRITE.0], STATEID, &[0, 0, 2, count]]);
        let two = words(&join(&[&[0, 2, 2], &write(4097), &write(8)]));
        for second in [two.len() as u32 + 4097, two.len() as u32 + 4100] {
            let (tree, ops) = chunks(&two, true, &memo(), &[((two.len() / 2 + 6) as u32, 4097), (second, 8)], &[]);
            assert!(ops.iter().all(|o| o.io.is_some_and(|io| io.reduced)), "{second}");
            assert_eq!(tree.all("rdmascope.reduced.position").count(), 2);
        }
        let create = words(&join(&[&[0, 2, 1, O::CREATE.0, 5, 9], NAME, FATTR]));
        let (tree, ops) = chunks(&create, true, &memo(), &[(24, 9)], &[]);
        assert_eq!((tree.all("rdmascope.reduced").count(), ops[0].name), (1, Some(&b"hello"[..])));
        let link = words(&[0, 0, 1, O::READLINK.0, 0, 9]);
        let (tree, ops) = chunks(&link, false, &memo(), &[], &[9]);
        assert_eq!((tree.all("rdmascope.reduced").count(), ops[0].name), (1, None));
    }

    #[test]
    fn a_compound_says_what_it_does() {
        let compound =
            join(&[&[4, 0x7461_6700, 1, 5, 53], SESSION, &[9, 2, 3, 1, 22], FH, &[15], NAME, &[10, 9], BITMAP]);
        let (tree, ops) = decode_all(Vec::leak(words(&compound)), true, &memo());
        assert_eq!(tree.info, "V4 Call SEQUENCE | PUTFH | LOOKUP hello | GETFH | GETATTR");
        assert_eq!(
            (tree.number("nfs.main_opcode"), tree.number("nfs.minorversion"), ops.len()),
            (Some(15), Some(1), 5)
        );
        assert_eq!(ops.iter().map(|o| o.index).collect::<Vec<_>>(), [0, 1, 2, 3, 4]);
        let many = join(&[&[0, 2, 40], &[10; 40]]);
        let (tree, ops) = decode_all(Vec::leak(words(&many)), true, &memo());
        assert!(tree.info.ends_with("| 24 more") && ops.len() == 40);
    }

    #[test]
    fn an_unknown_operation_ends_the_compound() {
        let bytes = words(&[0, 2, 3, 24, 99, 24]);
        let mut tree = Tree::new();
        tree.begin(&bytes);
        let mut seen = Vec::new();
        let result = decode(&mut Xdr::new(&Stream::whole(&bytes), &mut tree), true, &memo(), &mut |op: &Op<'_>| {
            seen.push(op.code)
        });
        assert_eq!(result.unwrap_err().kind, crate::fault::FaultKind::Value);
        assert_eq!((seen, tree.faults.len(), tree.all("nfs.opcode").count()), (alloc::vec![24, 99], 1, 2));
    }

    #[test]
    fn counts_beyond_the_bytes_cost_only_the_bytes() {
        for bytes in [
            words(&[0, 2, u32::MAX]),
            words(&[0, 2, 1, 9, u32::MAX, 1, 2, 3]),
            words(&[0, 2, 1, 55, u32::MAX]),
            words(&[u32::MAX, 0, 0]),
        ] {
            let mut tree = Tree::new();
            tree.begin(&bytes);
            assert!(decode(&mut Xdr::new(&Stream::whole(&bytes), &mut tree), true, &memo(), &mut ()).is_err());
            assert!(tree.nodes.len() < 40 && tree.faults.len() == 1);
        }
    }

    proptest! {
        #[test]
        fn any_bytes_decode_alike_for_every_observer(code in 0_u32..80, call in any::<bool>(), callback in any::<bool>(), small in proptest::collection::vec(0_u32..7, 0..60), tail in proptest::collection::vec(any::<u8>(), 0..40)) {
            let memo = if callback { Memo::new(Program::NFS_CALLBACK, 1, 1) } else { memo() };
            let mut bytes = words(match (call, callback) { (true, false) => &[0, 2, 3], (true, true) => &[0, 1, 7, 3], _ => &[0, 0, 3] });
            bytes.extend(words(&[code]));
            bytes.extend(words(&small));
            bytes.extend(tail);
            let mut tree = Tree::new();
            tree.begin(&bytes);
            let (mut with, mut without) = (Vec::new(), Vec::new());
            let a = decode(&mut Xdr::new(&Stream::whole(&bytes), &mut tree), call, &memo, &mut |op: &Op<'_>| with.push((op.index, op.code)));
            let b = decode(&mut Xdr::new(&Stream::whole(&bytes), &mut Off), call, &memo, &mut |op: &Op<'_>| without.push((op.index, op.code)));
            prop_assert_eq!(a.is_ok(), b.is_ok());
            prop_assert_eq!(with, without);
            super::super::testing::nests(&tree);
            prop_assert!(tree.nodes.len() < 200 + bytes.len() * 20);
        }
    }
}
