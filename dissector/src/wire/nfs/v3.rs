//! NFS version 3, RFC 1813: arguments and results of its 22 procedures.
//!
//! Reads and writes over RDMA: the data of WRITE and the path of SYMLINK may be in a read chunk, the data of READ and
//! the path of READLINK in a write chunk (RFC 8267 4).

use super::{Io, Op, ShownText, Visit, end, handle, time, trace_handle};
use crate::field::Def;
use crate::trace::{Trace, Value};
use crate::wire::rpc;
use crate::wire::xdr::{Read, Xdr};

wire_enum! {
    /// Procedures (RFC 1813 3.3).
    pub enum Procedure: u32 {
        NULL = 0, "NULL";
        GETATTR = 1, "GETATTR";
        SETATTR = 2, "SETATTR";
        LOOKUP = 3, "LOOKUP";
        ACCESS = 4, "ACCESS";
        READLINK = 5, "READLINK";
        READ = 6, "READ";
        WRITE = 7, "WRITE";
        CREATE = 8, "CREATE";
        MKDIR = 9, "MKDIR";
        SYMLINK = 10, "SYMLINK";
        MKNOD = 11, "MKNOD";
        REMOVE = 12, "REMOVE";
        RMDIR = 13, "RMDIR";
        RENAME = 14, "RENAME";
        LINK = 15, "LINK";
        READDIR = 16, "READDIR";
        READDIRPLUS = 17, "READDIRPLUS";
        FSSTAT = 18, "FSSTAT";
        FSINFO = 19, "FSINFO";
        PATHCONF = 20, "PATHCONF";
        COMMIT = 21, "COMMIT";
    }
}

wire_enum! {
    /// Result of a procedure (RFC 1813 2.6, `nfsstat3`).
    pub enum Status: u32 {
        OK = 0, "NFS3_OK";
        PERM = 1, "NFS3ERR_PERM";
        NOENT = 2, "NFS3ERR_NOENT";
        IO = 5, "NFS3ERR_IO";
        NXIO = 6, "NFS3ERR_NXIO";
        ACCES = 13, "NFS3ERR_ACCES";
        EXIST = 17, "NFS3ERR_EXIST";
        XDEV = 18, "NFS3ERR_XDEV";
        NODEV = 19, "NFS3ERR_NODEV";
        NOTDIR = 20, "NFS3ERR_NOTDIR";
        ISDIR = 21, "NFS3ERR_ISDIR";
        INVAL = 22, "NFS3ERR_INVAL";
        FBIG = 27, "NFS3ERR_FBIG";
        NOSPC = 28, "NFS3ERR_NOSPC";
        ROFS = 30, "NFS3ERR_ROFS";
        MLINK = 31, "NFS3ERR_MLINK";
        NAMETOOLONG = 63, "NFS3ERR_NAMETOOLONG";
        NOTEMPTY = 66, "NFS3ERR_NOTEMPTY";
        DQUOT = 69, "NFS3ERR_DQUOT";
        STALE = 70, "NFS3ERR_STALE";
        REMOTE = 71, "NFS3ERR_REMOTE";
        BADHANDLE = 10001, "NFS3ERR_BADHANDLE";
        NOT_SYNC = 10002, "NFS3ERR_NOT_SYNC";
        BAD_COOKIE = 10003, "NFS3ERR_BAD_COOKIE";
        NOTSUPP = 10004, "NFS3ERR_NOTSUPP";
        TOOSMALL = 10005, "NFS3ERR_TOOSMALL";
        SERVERFAULT = 10006, "NFS3ERR_SERVERFAULT";
        BADTYPE = 10007, "NFS3ERR_BADTYPE";
        JUKEBOX = 10008, "NFS3ERR_JUKEBOX";
    }
}

wire_enum! {
    /// File types (RFC 1813 2.6, `ftype3`).
    pub enum FileType: u32 {
        REG = 1, "Regular File";
        DIR = 2, "Directory";
        BLK = 3, "Block Device";
        CHR = 4, "Character Device";
        LNK = 5, "Symbolic Link";
        SOCK = 6, "Socket";
        FIFO = 7, "Named Pipe";
    }
}

wire_enum! {
    /// Stability of a WRITE (RFC 1813 3.3.7, `stable_how`).
    pub enum Stable: u32 {
        UNSTABLE = 0, "UNSTABLE";
        DATA_SYNC = 1, "DATA_SYNC";
        FILE_SYNC = 2, "FILE_SYNC";
    }
}

wire_enum! {
    /// Action of CREATE if the file exists (RFC 1813 3.3.8, `createmode3`).
    pub enum CreateMode: u32 {
        UNCHECKED = 0, "UNCHECKED";
        GUARDED = 1, "GUARDED";
        EXCLUSIVE = 2, "EXCLUSIVE";
    }
}

wire_enum! {
    /// Mode in which SETATTR sets a time (RFC 1813 2.6, `time_how`).
    pub enum TimeHow: u32 {
        DONT_CHANGE = 0, "don't change";
        SET_TO_SERVER_TIME = 1, "set to server time";
        SET_TO_CLIENT_TIME = 2, "set to client time";
    }
}

const FOLLOW: crate::field::Values = &[(0, "no value"), (1, "value follows")];

fields! {
    /// Fields of version 3.
    pub mod f ["RFC 1813 3.3"] {
        PROCEDURE: U32 = "nfs.procedure_v3", "V3 Procedure", dec, values Procedure::VALUES;
        STATUS3: U32 = "nfs.status3", "Status", dec, values Status::VALUES;
        FILE: None = "rdmascope.nfs.file", "file";
        DIR: None = "rdmascope.nfs.dir", "dir";
        WHERE: None = "rdmascope.nfs.where", "where";
        FROM: None = "rdmascope.nfs.from", "from";
        TO: None = "rdmascope.nfs.to", "to";
        LINK: None = "rdmascope.nfs.link", "link";
        HANDLE_FOLLOW: U32 = "nfs.handle_follow", "handle_follow", dec, values FOLLOW;
        NEW_HANDLE: None = "rdmascope.nfs.new_handle", "obj";
        NAME_HANDLE: None = "rdmascope.nfs.name_handle", "name_handle";
        HANDLE: None = "rdmascope.nfs.handle", "handle";
        ATTRIBUTES_FOLLOW: U32 = "nfs.attributes_follow", "attributes_follow", dec, values FOLLOW;
        ATTRIBUTES: None = "rdmascope.nfs.attributes", "attributes";
        OBJ_ATTRIBUTES: None = "rdmascope.nfs.obj_attributes", "obj_attributes";
        DIR_ATTRIBUTES: None = "rdmascope.nfs.dir_attributes", "dir_attributes";
        NAME_ATTRIBUTES: None = "rdmascope.nfs.name_attributes", "name_attributes";
        FILE_WCC: None = "rdmascope.nfs.file_wcc", "file_wcc";
        DIR_WCC: None = "rdmascope.nfs.dir_wcc", "dir_wcc";
        FROMDIR_WCC: None = "rdmascope.nfs.fromdir_wcc", "fromdir_wcc";
        TODIR_WCC: None = "rdmascope.nfs.todir_wcc", "todir_wcc";
        WCC_BEFORE: None = "rdmascope.nfs.wcc_before", "before";
        WCC_AFTER: None = "rdmascope.nfs.wcc_after", "after";
        WCC_SIZE: U64 = "nfs.wcc_attr.size", "size", dec;
        TYPE: U32 = "nfs.fattr3.type", "Type", dec, values FileType::VALUES;
        MODE: U32 = "nfs.mode3", "Mode", oct;
        MODE_SUID: Bool & 0x800 / 32 = "nfs.mode3.suid", "S_ISUID";
        MODE_SGID: Bool & 0x400 / 32 = "nfs.mode3.sgid", "S_ISGID";
        MODE_STICKY: Bool & 0x200 / 32 = "nfs.mode3.sticky", "S_ISVTX";
        MODE_RUSR: Bool & 0x100 / 32 = "nfs.mode3.rusr", "S_IRUSR";
        MODE_WUSR: Bool & 0x80 / 32 = "nfs.mode3.wusr", "S_IWUSR";
        MODE_XUSR: Bool & 0x40 / 32 = "nfs.mode3.xusr", "S_IXUSR";
        MODE_RGRP: Bool & 0x20 / 32 = "nfs.mode3.rgrp", "S_IRGRP";
        MODE_WGRP: Bool & 0x10 / 32 = "nfs.mode3.wgrp", "S_IWGRP";
        MODE_XGRP: Bool & 0x08 / 32 = "nfs.mode3.xgrp", "S_IXGRP";
        MODE_ROTH: Bool & 0x04 / 32 = "nfs.mode3.roth", "S_IROTH";
        MODE_WOTH: Bool & 0x02 / 32 = "nfs.mode3.woth", "S_IWOTH";
        MODE_XOTH: Bool & 0x01 / 32 = "nfs.mode3.xoth", "S_IXOTH";
        NLINK: U32 = "nfs.fattr3.nlink", "nlink", dec;
        UID: U32 as User = "nfs.fattr3.uid", "uid", dec;
        GID: U32 as User = "nfs.fattr3.gid", "gid", dec;
        SIZE: U64 = "nfs.fattr3.size", "size", dec;
        USED: U64 = "nfs.fattr3.used", "used", dec;
        RDEV: None = "rdmascope.nfs.rdev", "rdev";
        SPECDATA1: U32 = "nfs.specdata1", "specdata1", dec;
        SPECDATA2: U32 = "nfs.specdata2", "specdata2", dec;
        FSID: U64 = "nfs.fattr3.fsid", "fsid", hexdec;
        FILEID: U64 = "nfs.fattr3.fileid", "fileid", dec;
        ATIME: AbsTime = "nfs.atime", "atime";
        ATIME_SEC: U32 = "nfs.atime.sec", "seconds", dec;
        ATIME_NSEC: U32 = "nfs.atime.nsec", "nano seconds", dec;
        MTIME: AbsTime = "nfs.mtime", "mtime";
        MTIME_SEC: U32 = "nfs.mtime.sec", "seconds", dec;
        MTIME_NSEC: U32 = "nfs.mtime.nsec", "nano seconds", dec;
        CTIME: AbsTime = "nfs.ctime", "ctime";
        CTIME_SEC: U32 = "nfs.ctime.sec", "seconds", dec;
        CTIME_NSEC: U32 = "nfs.ctime.nsec", "nano seconds", dec;
        DTIME: RelTime = "nfs.dtime", "time delta";
        DTIME_SEC: U32 = "nfs.dtime.sec", "seconds", dec;
        DTIME_NSEC: U32 = "nfs.dtime.nsec", "nano seconds", dec;
        NEW_ATTRIBUTES: None = "rdmascope.nfs.new_attributes", "new_attributes";
        SET_MODE: None = "rdmascope.nfs.set_mode", "mode";
        SET_UID: None = "rdmascope.nfs.set_uid", "uid";
        SET_GID: None = "rdmascope.nfs.set_gid", "gid";
        SET_SIZE: None = "rdmascope.nfs.set_size_attr", "size";
        SET_ATIME: None = "rdmascope.nfs.set_atime", "atime";
        SET_MTIME: None = "rdmascope.nfs.set_mtime", "mtime";
        SET_IT: U32 = "nfs.set_it", "set_it", dec, values TimeHow::VALUES;
        NEW_UID: U32 as User = "nfs.uid3", "uid", dec;
        NEW_GID: U32 as User = "nfs.gid3", "gid", dec;
        NEW_SIZE: U64 = "nfs.set_size", "size", dec;
        GUARD: None = "rdmascope.nfs.guard", "guard";
        GUARD_CHECK: U32 = "nfs.sattrguard3", "check", dec, values FOLLOW;
        ACCESS_CHECK: U32 = "nfs.access_check", "Check access", hex;
        ACCESS_RIGHTS: U32 = "nfs.access_rights", "Access rights (of requested)", hex;
        ACCESS_READ: Bool & 0x001 / 32 = "nfs.access_read", "0x001 READ";
        ACCESS_LOOKUP: Bool & 0x002 / 32 = "nfs.access_lookup", "0x002 LOOKUP";
        ACCESS_MODIFY: Bool & 0x004 / 32 = "nfs.access_modify", "0x004 MODIFY";
        ACCESS_EXTEND: Bool & 0x008 / 32 = "nfs.access_extend", "0x008 EXTEND";
        ACCESS_DELETE: Bool & 0x010 / 32 = "nfs.access_delete", "0x010 DELETE";
        ACCESS_EXECUTE: Bool & 0x020 / 32 = "nfs.access_execute", "0x020 EXECUTE";
        ACCESS_XATTR_READ: Bool & 0x040 / 32 = "nfs.access_xattr_read", "0x040 XATTR READ";
        ACCESS_XATTR_WRITE: Bool & 0x080 / 32 = "nfs.access_xattr_write", "0x080 XATTR WRITE";
        ACCESS_XATTR_LIST: Bool & 0x100 / 32 = "nfs.access_xattr_list", "0x100 XATTR LIST";
        OFFSET: U64 = "nfs.offset3", "offset", dec;
        COUNT: U32 = "nfs.count3", "count", dec;
        READ_EOF: Bool = "nfs.read.eof", "EOF";
        DATA: Bytes as Data = "nfs.data", "Data";
        READLINK_DATA: Str = "nfs.readlink.data", "Data";
        STABLE: U32 = "nfs.write.stable", "Stable", dec, values Stable::VALUES;
        COMMITTED: U32 = "nfs.write.committed", "Committed", dec, values Stable::VALUES;
        VERIFIER: Bytes as Id = "nfs.verifier", "Verifier";
        CREATEMODE: U32 = "nfs.createmode", "Create Mode", dec, values CreateMode::VALUES;
        SYMLINK_TO: Str = "nfs.symlink.to", "To";
        MKNOD_TYPE: U32 = "nfs.ftype", "type", dec, values FileType::VALUES;
        COOKIE: U64 = "nfs.cookie3", "cookie", dec;
        DIRCOUNT: U32 = "nfs.count3_dircount", "dircount", dec;
        MAXCOUNT: U32 = "nfs.count3_maxcount", "maxcount", dec;
        ENTRY: None = "nfs.readdir.entry", "Entry";
        ENTRY_FILEID: U64 = "nfs.readdir.entry3.fileid", "File ID", dec;
        ENTRY_NAME: Str = "nfs.readdir.entry3.name", "Name";
        ENTRY_COOKIE: U64 = "nfs.readdir.entry3.cookie", "Cookie", dec;
        PLUS_FILEID: U64 = "nfs.readdirplus.entry.fileid", "File ID", dec;
        PLUS_NAME: Str = "nfs.readdirplus.entry.name", "Name";
        PLUS_COOKIE: U64 = "nfs.readdirplus.entry.cookie", "Cookie", dec;
        READDIR_EOF: U32 = "nfs.readdir.eof", "EOF", dec;
        TBYTES: U64 = "nfs.fsstat3_resok.tbytes", "Total bytes", dec;
        FBYTES: U64 = "nfs.fsstat3_resok.fbytes", "Free bytes", dec;
        ABYTES: U64 = "nfs.fsstat3_resok.abytes", "Available free bytes", dec;
        TFILES: U64 = "nfs.fsstat3_resok.tfiles", "Total file slots", dec;
        FFILES: U64 = "nfs.fsstat3_resok.ffiles", "Free file slots", dec;
        AFILES: U64 = "nfs.fsstat3_resok.afiles", "Available free file slots", dec;
        INVARSEC: U32 = "nfs.fsstat.invarsec", "invarsec", dec;
        RTMAX: U32 = "nfs.fsinfo.rtmax", "rtmax", dec;
        RTPREF: U32 = "nfs.fsinfo.rtpref", "rtpref", dec;
        RTMULT: U32 = "nfs.fsinfo.rtmult", "rtmult", dec;
        WTMAX: U32 = "nfs.fsinfo.wtmax", "wtmax", dec;
        WTPREF: U32 = "nfs.fsinfo.wtpref", "wtpref", dec;
        WTMULT: U32 = "nfs.fsinfo.wtmult", "wtmult", dec;
        DTPREF: U32 = "nfs.fsinfo.dtpref", "dtpref", dec;
        MAXFILESIZE: U64 = "nfs.fsinfo.maxfilesize", "maxfilesize", dec;
        PROPERTIES: U32 = "nfs.fsinfo.properties", "Properties", hex;
        PROPERTY_HARDLINKS: Bool & 0x01 / 32 = "nfs.fsinfo.properties.hardlinks", "File System supports hard links";
        PROPERTY_SYMLINKS: Bool & 0x02 / 32 = "nfs.fsinfo.properties.symlinks", "File System supports symbolic links";
        PROPERTY_PATHCONF: Bool & 0x08 / 32 = "nfs.fsinfo.properties.pathconf", "PATHCONF";
        PROPERTY_SETATTR: Bool & 0x10 / 32 = "nfs.fsinfo.properties.setattr", "SETATTR can set time on server";
        LINKMAX: U32 = "nfs.pathconf.linkmax", "linkmax", dec;
        NAME_MAX: U32 = "nfs.pathconf.name_max", "name_max", dec;
        NO_TRUNC: Bool = "nfs.pathconf.no_trunc", "no_trunc";
        CHOWN_RESTRICTED: Bool = "nfs.pathconf.chown_restricted", "chown_restricted";
        CASE_INSENSITIVE: Bool = "nfs.pathconf.case_insensitive", "case_insensitive";
        CASE_PRESERVING: Bool = "nfs.pathconf.case_preserving", "case_preserving";
    }
}

const MODE_BITS: &[Def] = &[
    f::MODE_SUID,
    f::MODE_SGID,
    f::MODE_STICKY,
    f::MODE_RUSR,
    f::MODE_WUSR,
    f::MODE_XUSR,
    f::MODE_RGRP,
    f::MODE_WGRP,
    f::MODE_XGRP,
    f::MODE_ROTH,
    f::MODE_WOTH,
    f::MODE_XOTH,
];

/// The rights that ACCESS asks about, ascending by bit.
pub(super) const ACCESS_BITS: [Def; 9] = [
    f::ACCESS_READ,
    f::ACCESS_LOOKUP,
    f::ACCESS_MODIFY,
    f::ACCESS_EXTEND,
    f::ACCESS_DELETE,
    f::ACCESS_EXECUTE,
    f::ACCESS_XATTR_READ,
    f::ACCESS_XATTR_WRITE,
    f::ACCESS_XATTR_LIST,
];

const PROPERTY_BITS: &[Def] = &[f::PROPERTY_SETATTR, f::PROPERTY_PATHCONF, f::PROPERTY_SYMLINKS, f::PROPERTY_HARDLINKS];

/// Decodes arguments (of a call) or results of `procedure` in a protocol subtree of its own.
///
/// # Errors
/// If they cannot be read; everything read before has reached the observer and the visitor.
pub fn decode<'a, T: Trace, V: Visit<'a>>(
    x: &mut Xdr<'a, '_, T>,
    call: bool,
    procedure: u32,
    visitor: &mut V,
) -> Read<()> {
    x.t.protocol("NFS");
    let mut op = Op { code: procedure, ..Op::default() };
    let result = x.scope(super::f::PROTOCOL, |x| {
        let procedure = Procedure(procedure);
        if T::ON {
            x.known(rpc::f::PROGRAMVERSION, 3_u32);
            x.known(f::PROCEDURE, procedure.0);
            x.t.label(format_args!(", {procedure} {}", if call { "Call" } else { "Reply" }));
            x.t.info(format_args!("V3 {procedure} {}", if call { "Call" } else { "Reply" }));
        }
        if call {
            arguments(x, procedure, &mut op)?
        } else {
            results(x, procedure, &mut op)?
        }
        end(x)
    });
    visitor.op(&op);
    result
}

fn arguments<'a, T: Trace>(x: &mut Xdr<'a, '_, T>, procedure: Procedure, op: &mut Op<'a>) -> Read<()> {
    match procedure {
        Procedure::GETATTR | Procedure::READLINK | Procedure::FSSTAT | Procedure::FSINFO | Procedure::PATHCONF => {
            file(x, super::f::OBJECT, op)?;
        }
        Procedure::SETATTR => {
            file(x, super::f::OBJECT, op)?;
            sattr(x)?;
            x.scope(f::GUARD, |x| {
                if x.u32(f::GUARD_CHECK)? != 0 {
                    time(x, f::CTIME, f::CTIME_SEC, f::CTIME_NSEC)?;
                }
                Ok(())
            })?;
        }
        Procedure::LOOKUP | Procedure::REMOVE | Procedure::RMDIR => op.name = Some(diropargs(x, f::WHERE, op)?),
        Procedure::ACCESS => {
            file(x, super::f::OBJECT, op)?;
            let asked = access(x, f::ACCESS_CHECK, None)?;
            if T::ON {
                x.t.info(format_args!("Check: {}", Rights(asked)));
            }
        }
        Procedure::READ => {
            file(x, f::FILE, op)?;
            let io = Io { offset: x.u64(f::OFFSET)?, count: x.u32(f::COUNT)?, ..Io::default() };
            op.io = Some(io);
            if T::ON {
                x.t.info(format_args!("Offset: {}, Len: {}", io.offset, io.count));
            }
        }
        Procedure::WRITE => {
            file(x, f::FILE, op)?;
            let mut io = Io { offset: x.u64(f::OFFSET)?, count: x.u32(f::COUNT)?, ..Io::default() };
            io.stable = x.u32(f::STABLE)?;
            op.io = Some(io);
            if T::ON {
                x.t.info(format_args!("Offset: {}, Len: {}, {}", io.offset, io.count, Stable(io.stable)));
            }
            io.reduced = x.eligible(f::DATA)?.reduced;
            op.io = Some(io);
        }
        Procedure::CREATE => {
            op.name = Some(diropargs(x, f::WHERE, op)?);
            let mode = CreateMode(x.u32(f::CREATEMODE)?);
            if T::ON {
                x.t.info(format_args!("Mode: {mode}"));
            }
            if mode == CreateMode::EXCLUSIVE {
                x.fixed(f::VERIFIER, 8)?;
            } else {
                sattr(x)?;
            }
        }
        Procedure::MKDIR => {
            op.name = Some(diropargs(x, f::WHERE, op)?);
            sattr(x)?;
        }
        Procedure::SYMLINK => {
            op.name = Some(diropargs(x, f::WHERE, op)?);
            sattr(x)?;
            let to = x.eligible(f::SYMLINK_TO)?;
            if T::ON && !to.reduced {
                x.t.info(format_args!("To: {}", ShownText(to.bytes)));
            }
        }
        Procedure::MKNOD => {
            op.name = Some(diropargs(x, f::WHERE, op)?);
            let kind = FileType(x.u32(f::MKNOD_TYPE)?);
            match kind {
                FileType::CHR | FileType::BLK => {
                    sattr(x)?;
                    specdata(x)?;
                }
                FileType::SOCK | FileType::FIFO => sattr(x)?,
                _ => {}
            }
        }
        Procedure::RENAME => {
            op.name = Some(diropargs(x, f::FROM, op)?);
            let directory = op.handle;
            op.to_name = Some(diropargs(x, f::TO, op)?);
            op.handle = directory;
        }
        Procedure::LINK => {
            file(x, f::FILE, op)?;
            let target = op.handle;
            op.name = Some(diropargs(x, f::LINK, op)?);
            op.handle = target;
        }
        Procedure::READDIR => {
            file(x, f::DIR, op)?;
            x.u64(f::COOKIE)?;
            x.fixed(f::VERIFIER, 8)?;
            x.u32(f::COUNT)?;
        }
        Procedure::READDIRPLUS => {
            file(x, f::DIR, op)?;
            x.u64(f::COOKIE)?;
            x.fixed(f::VERIFIER, 8)?;
            x.u32(f::DIRCOUNT)?;
            x.u32(f::MAXCOUNT)?;
        }
        Procedure::COMMIT => {
            file(x, f::FILE, op)?;
            op.io = Some(Io { offset: x.u64(f::OFFSET)?, count: x.u32(f::COUNT)?, ..Io::default() });
        }
        _ => {}
    }
    Ok(())
}

/// The status of a reply.
pub(crate) fn status<T: Trace>(x: &mut Xdr<'_, '_, T>) -> Read<Status> {
    let at = x.i;
    let status = Status(x.u32(f::STATUS3)?);
    if T::ON {
        x.t.field(super::f::STATUS, at, 4, Value::U(status.0.into()));
        if status != Status::OK {
            x.t.info(format_args!("Error: {status}"));
        }
    }
    Ok(status)
}

fn results<'a, T: Trace>(x: &mut Xdr<'a, '_, T>, procedure: Procedure, op: &mut Op<'a>) -> Read<()> {
    if procedure == Procedure::NULL || procedure.name().is_none() {
        return Ok(());
    }
    let status = status(x)?;
    op.status = Some(status.0);
    let ok = status == Status::OK;
    match procedure {
        Procedure::GETATTR if ok => x.scope(f::OBJ_ATTRIBUTES, attributes)?,
        Procedure::SETATTR => wcc(x, f::FILE_WCC)?,
        Procedure::LOOKUP => {
            if ok {
                op.handle = Some(handle(x, super::f::OBJECT)?);
                trace(x, op);
                post_op(x, f::OBJ_ATTRIBUTES)?;
            }
            post_op(x, f::DIR_ATTRIBUTES)?;
        }
        Procedure::ACCESS => {
            post_op(x, f::OBJ_ATTRIBUTES)?;
            if ok {
                let allowed = access(x, f::ACCESS_RIGHTS, None)?;
                if T::ON {
                    x.t.info(format_args!("Allowed: {}", Rights(allowed)));
                }
            }
        }
        Procedure::READLINK => {
            post_op(x, f::OBJ_ATTRIBUTES)?;
            if ok {
                let path = x.eligible(f::READLINK_DATA)?;
                if T::ON && !path.reduced {
                    x.t.info(format_args!("Path: {}", ShownText(path.bytes)));
                }
            }
        }
        Procedure::READ => {
            post_op(x, f::OBJ_ATTRIBUTES)?;
            if ok {
                let mut io = Io { count: x.u32(f::COUNT)?, eof: x.bool(f::READ_EOF)?, ..Io::default() };
                op.io = Some(io);
                if T::ON {
                    x.t.info(format_args!("Len: {}", io.count));
                }
                io.reduced = x.eligible(f::DATA)?.reduced;
                op.io = Some(io);
            }
        }
        Procedure::WRITE => {
            wcc(x, f::FILE_WCC)?;
            if ok {
                let io = Io { count: x.u32(f::COUNT)?, stable: x.u32(f::COMMITTED)?, ..Io::default() };
                op.io = Some(io);
                if T::ON {
                    x.t.info(format_args!("Len: {}, {}", io.count, Stable(io.stable)));
                }
                x.fixed(f::VERIFIER, 8)?;
            }
        }
        Procedure::CREATE | Procedure::MKDIR | Procedure::SYMLINK | Procedure::MKNOD => {
            if ok {
                op.handle = post_op_handle(x, f::NEW_HANDLE)?;
                trace(x, op);
                post_op(x, f::OBJ_ATTRIBUTES)?;
            }
            wcc(x, f::DIR_WCC)?;
        }
        Procedure::REMOVE | Procedure::RMDIR => wcc(x, f::DIR_WCC)?,
        Procedure::RENAME => {
            wcc(x, f::FROMDIR_WCC)?;
            wcc(x, f::TODIR_WCC)?;
        }
        Procedure::LINK => {
            post_op(x, f::OBJ_ATTRIBUTES)?;
            wcc(x, f::DIR_WCC)?;
        }
        Procedure::READDIR => {
            post_op(x, f::DIR_ATTRIBUTES)?;
            if ok {
                x.fixed(f::VERIFIER, 8)?;
                let n = x.chain(|x| {
                    x.scope(f::ENTRY, |x| {
                        x.u64(f::ENTRY_FILEID)?;
                        let name = x.opaque(f::ENTRY_NAME)?;
                        label(x, name);
                        x.u64(f::ENTRY_COOKIE).map(drop)
                    })
                })?;
                listed(x, n)?;
            }
        }
        Procedure::READDIRPLUS => {
            post_op(x, f::DIR_ATTRIBUTES)?;
            if ok {
                x.fixed(f::VERIFIER, 8)?;
                let n = x.chain(|x| {
                    x.scope(f::ENTRY, |x| {
                        x.u64(f::PLUS_FILEID)?;
                        let name = x.opaque(f::PLUS_NAME)?;
                        label(x, name);
                        x.u64(f::PLUS_COOKIE)?;
                        post_op(x, f::NAME_ATTRIBUTES)?;
                        post_op_handle(x, f::NAME_HANDLE).map(drop)
                    })
                })?;
                listed(x, n)?;
            }
        }
        Procedure::FSSTAT => {
            post_op(x, f::OBJ_ATTRIBUTES)?;
            if ok {
                for def in [f::TBYTES, f::FBYTES, f::ABYTES, f::TFILES, f::FFILES, f::AFILES] {
                    x.u64(def)?;
                }
                x.u32(f::INVARSEC)?;
            }
        }
        Procedure::FSINFO => {
            post_op(x, f::OBJ_ATTRIBUTES)?;
            if ok {
                for def in [f::RTMAX, f::RTPREF, f::RTMULT, f::WTMAX, f::WTPREF, f::WTMULT, f::DTPREF] {
                    x.u32(def)?;
                }
                x.u64(f::MAXFILESIZE)?;
                time(x, f::DTIME, f::DTIME_SEC, f::DTIME_NSEC)?;
                x.flags(f::PROPERTIES, PROPERTY_BITS)?;
            }
        }
        Procedure::PATHCONF => {
            post_op(x, f::OBJ_ATTRIBUTES)?;
            if ok {
                x.u32(f::LINKMAX)?;
                x.u32(f::NAME_MAX)?;
                for def in [f::NO_TRUNC, f::CHOWN_RESTRICTED, f::CASE_INSENSITIVE, f::CASE_PRESERVING] {
                    x.bool(def)?;
                }
            }
        }
        Procedure::COMMIT => {
            wcc(x, f::FILE_WCC)?;
            if ok {
                x.fixed(f::VERIFIER, 8)?;
            }
        }
        _ => {}
    }
    Ok(())
}

fn trace<T: Trace>(x: &mut Xdr<'_, '_, T>, op: &Op<'_>) {
    if let Some(handle) = op.handle {
        trace_handle(x, "FH", handle);
    }
}

fn label<T: Trace>(x: &mut Xdr<'_, '_, T>, name: &[u8]) {
    if T::ON {
        x.t.label(format_args!(": name {}", ShownText(name)));
    }
}

fn listed<T: Trace>(x: &mut Xdr<'_, '_, T>, entries: u32) -> Read<()> {
    if T::ON {
        x.t.info(format_args!("{entries} entries"));
    }
    x.bool_number(f::READDIR_EOF).map(drop)
}

fn file<'a, T: Trace>(x: &mut Xdr<'a, '_, T>, node: Def, op: &mut Op<'a>) -> Read<()> {
    op.handle = Some(handle(x, node)?);
    trace(x, op);
    Ok(())
}

/// A directory and a name in it.
fn diropargs<'a, T: Trace>(x: &mut Xdr<'a, '_, T>, node: Def, op: &mut Op<'a>) -> Read<&'a [u8]> {
    x.scope(node, |x| {
        let directory = handle(x, f::DIR)?;
        op.handle = Some(directory);
        let name = x.opaque(super::f::NAME)?;
        if T::ON {
            x.t.info(format_args!("DH: {:#010x}/{}", crc32fast::hash(directory), ShownText(name)));
        }
        Ok(name)
    })
}

/// Attributes that may be missing.
pub(crate) fn post_op<T: Trace>(x: &mut Xdr<'_, '_, T>, node: Def) -> Read<()> {
    x.scope(node, |x| {
        if x.u32(f::ATTRIBUTES_FOLLOW)? != 0 {
            x.scope(f::ATTRIBUTES, attributes)?;
        }
        Ok(())
    })
}

fn post_op_handle<'a, T: Trace>(x: &mut Xdr<'a, '_, T>, node: Def) -> Read<Option<&'a [u8]>> {
    x.scope(node, |x| if x.u32(f::HANDLE_FOLLOW)? != 0 { handle(x, f::HANDLE).map(Some) } else { Ok(None) })
}

/// Size and times before an operation, attributes after it; each may be missing.
fn wcc<T: Trace>(x: &mut Xdr<'_, '_, T>, node: Def) -> Read<()> {
    x.scope(node, |x| {
        x.scope(f::WCC_BEFORE, |x| {
            if x.u32(f::ATTRIBUTES_FOLLOW)? != 0 {
                x.u64(f::WCC_SIZE)?;
                time(x, f::MTIME, f::MTIME_SEC, f::MTIME_NSEC)?;
                time(x, f::CTIME, f::CTIME_SEC, f::CTIME_NSEC)?;
            }
            Ok(())
        })?;
        post_op(x, f::WCC_AFTER)
    })
}

fn specdata<T: Trace>(x: &mut Xdr<'_, '_, T>) -> Read<()> {
    x.scope(f::RDEV, |x| {
        x.u32(f::SPECDATA1)?;
        x.u32(f::SPECDATA2).map(drop)
    })
}

/// `fattr3`, 84 bytes (RFC 1813 2.6).
pub(crate) fn attributes<T: Trace>(x: &mut Xdr<'_, '_, T>) -> Read<()> {
    if !T::ON && x.i.len() >= 84 {
        x.i = &x.i[84..];
        return Ok(());
    }
    let kind = FileType(x.u32(f::TYPE)?);
    let mode = x.flags(f::MODE, MODE_BITS)?;
    x.u32(f::NLINK)?;
    x.u32(f::UID)?;
    x.u32(f::GID)?;
    if T::ON {
        x.t.label(format_args!(", {kind}, mode {mode:04o}"));
    }
    x.u64(f::SIZE)?;
    x.u64(f::USED)?;
    specdata(x)?;
    x.u64(f::FSID)?;
    x.u64(f::FILEID)?;
    time(x, f::ATIME, f::ATIME_SEC, f::ATIME_NSEC)?;
    time(x, f::MTIME, f::MTIME_SEC, f::MTIME_NSEC)?;
    time(x, f::CTIME, f::CTIME_SEC, f::CTIME_NSEC)
}

/// `sattr3`: each attribute is set, or not.
fn sattr<T: Trace>(x: &mut Xdr<'_, '_, T>) -> Read<()> {
    x.scope(f::NEW_ATTRIBUTES, |x| {
        for (node, value) in [(f::SET_MODE, f::MODE), (f::SET_UID, f::NEW_UID), (f::SET_GID, f::NEW_GID)] {
            x.scope(node, |x| {
                if x.u32(f::SET_IT)? != 0 {
                    x.flags(value, if value == f::MODE { MODE_BITS } else { &[] })?;
                }
                Ok(())
            })?;
        }
        x.scope(f::SET_SIZE, |x| if x.u32(f::SET_IT)? != 0 { x.u64(f::NEW_SIZE).map(drop) } else { Ok(()) })?;
        x.scope(f::SET_ATIME, |x| {
            if TimeHow(x.u32(f::SET_IT)?) == TimeHow::SET_TO_CLIENT_TIME {
                time(x, f::ATIME, f::ATIME_SEC, f::ATIME_NSEC)?;
            }
            Ok(())
        })?;
        x.scope(f::SET_MTIME, |x| {
            if TimeHow(x.u32(f::SET_IT)?) == TimeHow::SET_TO_CLIENT_TIME {
                time(x, f::MTIME, f::MTIME_SEC, f::MTIME_NSEC)?;
            }
            Ok(())
        })
    })
}

/// Access rights; of them, the bits in `shown` (all that are set where there is none).
pub(super) fn access<T: Trace>(x: &mut Xdr<'_, '_, T>, def: Def, shown: Option<u32>) -> Read<u32> {
    let at = x.i;
    let rights = x.u32(def)?;
    if T::ON {
        x.t.down();
        for (n, bit) in ACCESS_BITS.iter().enumerate().filter(|(n, _)| shown.unwrap_or(rights) >> n & 1 != 0) {
            x.t.field(bit, at, 4, Value::U((rights >> n & 1).into()));
        }
        x.t.up();
    }
    Ok(rights)
}

/// Access rights in short: RD LU MD XT DL XE XAR XAW XAL.
pub(super) struct Rights(pub(super) u32);

impl core::fmt::Display for Rights {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        let mut space = "";
        for (n, name) in ["RD", "LU", "MD", "XT", "DL", "XE", "XAR", "XAW", "XAL"].iter().enumerate() {
            if self.0 >> n & 1 != 0 {
                write!(f, "{space}{name}")?;
                space = " ";
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{chunks, decode_all, words};
    use super::*;
    use crate::header::Vec;
    use crate::trace::Tree;
    use crate::wire::rpc::{Memo, Program};

    /// Decodes `message`, checks every prefix of it, and returns the tree and the operations that the visitor received.
    fn decoded(procedure: Procedure, call: bool, message: &[u32]) -> (Tree, Vec<Op<'static>>) {
        let bytes = Vec::leak(words(message));
        decode_all(bytes, call, &Memo::new(Program::NFS, 3, procedure.0))
    }

    const FH: [u32; 3] = [8, 0x0100_0100, 0x0100_0000];
    const BYTES: &[u8] = &[1, 0, 1, 0, 1, 0, 0, 0];
    /// "hello"
    const NAME: [u32; 3] = [5, 0x6865_6c6c, 0x6f00_0000];
    const FATTR: [u32; 21] = [1, 0o644, 1, 1000, 100, 0, 6, 0, 4096, 0, 0, 0, 1, 0, 4, 11, 12, 21, 22, 31, 32];
    const SATTR: [u32; 12] = [1, 0o755, 1, 1000, 0, 1, 0, 9, 2, 11, 12, 1];
    const VERIFIER: [u32; 2] = [0xaabb_ccdd, 0x1122_3344];
    /// size, mtime and ctime before; attributes after
    fn wcc() -> Vec<u32> {
        [&[1, 0, 6, 21, 22, 31, 32, 1], &FATTR[..]].concat()
    }
    fn some() -> Vec<u32> {
        [&[1], &FATTR[..]].concat()
    }
    fn join(parts: &[&[u32]]) -> Vec<u32> {
        parts.concat()
    }

    #[test]
    fn arguments_of_every_procedure() {
        use Procedure as P;
        for procedure in [P::GETATTR, P::READLINK, P::FSSTAT, P::FSINFO, P::PATHCONF] {
            let (tree, ops) = decoded(procedure, true, &FH);
            assert_eq!(
                (tree.number("nfs.fh.hash"), ops[0].handle, ops[0].code),
                (Some(0xda68_6b37), Some(BYTES), procedure.0)
            );
            assert_eq!((tree.protocol, tree.number("nfs.procedure_v3")), ("NFS", Some(procedure.0.into())));
        }
        decoded(P::NULL, true, &[]);
        let (tree, _) = decoded(P::SETATTR, true, &join(&[&FH, &SATTR, &[1, 31, 32]]));
        assert_eq!(
            (tree.number("nfs.mode3"), tree.number("nfs.set_size"), tree.number("nfs.ctime.sec")),
            (Some(0o755), Some(9), Some(31))
        );
        assert_eq!(
            (tree.number("nfs.uid3"), tree.number("nfs.gid3"), tree.all("nfs.set_it").count()),
            (Some(1000), None, 6)
        );
        decoded(P::SETATTR, true, &join(&[&FH, &[0, 0, 0, 0, 0, 0, 0]]));
        for procedure in [P::LOOKUP, P::REMOVE, P::RMDIR] {
            let (tree, ops) = decoded(procedure, true, &join(&[&FH, &NAME]));
            assert_eq!((ops[0].name, ops[0].handle), (Some(&b"hello"[..]), Some(BYTES)));
            assert_eq!(tree.info, alloc::format!("V3 {procedure} Call, DH: 0xda686b37/hello"));
        }
        let (tree, _) = decoded(P::ACCESS, true, &join(&[&FH, &[0x1f]]));
        assert_eq!((tree.all("nfs.access_delete").count(), tree.info.ends_with("Check: RD LU MD XT DL")), (1, true));
        let (_, ops) = decoded(P::READ, true, &join(&[&FH, &[1, 2, 4096]]));
        assert_eq!(ops[0].io, Some(Io { offset: 0x1_0000_0002, count: 4096, ..Io::default() }));
        let (tree, ops) = decoded(P::WRITE, true, &join(&[&FH, &[0, 8, 5, 2], &NAME]));
        assert_eq!(ops[0].io, Some(Io { offset: 8, count: 5, stable: 2, ..Io::default() }));
        assert_eq!(tree.info, "V3 WRITE Call, FH: 0xda686b37, Offset: 8, Len: 5, FILE_SYNC");
        assert_eq!(tree.value_bytes(tree.all("nfs.data").next().unwrap()), b"hello");
        decoded(P::CREATE, true, &join(&[&FH, &NAME, &[0], &SATTR]));
        decoded(P::CREATE, true, &join(&[&FH, &NAME, &[2], &VERIFIER]));
        decoded(P::MKDIR, true, &join(&[&FH, &NAME, &SATTR]));
        let (tree, _) = decoded(P::SYMLINK, true, &join(&[&FH, &NAME, &SATTR, &NAME]));
        assert!(tree.info.ends_with("To: hello"));
        let (tree, _) = decoded(P::MKNOD, true, &join(&[&FH, &NAME, &[3], &SATTR, &[8, 1]]));
        assert_eq!(tree.number("nfs.specdata1"), Some(8));
        decoded(P::MKNOD, true, &join(&[&FH, &NAME, &[7], &SATTR]));
        decoded(P::MKNOD, true, &join(&[&FH, &NAME, &[1]]));
        let (_, ops) = decoded(P::RENAME, true, &join(&[&FH, &NAME, &FH, &[2, 0x6162_0000]]));
        assert_eq!((ops[0].name, ops[0].to_name), (Some(&b"hello"[..]), Some(&b"ab"[..])));
        decoded(P::LINK, true, &join(&[&FH, &FH, &NAME]));
        decoded(P::READDIR, true, &join(&[&FH, &[0, 7], &VERIFIER, &[4096]]));
        let (tree, _) = decoded(P::READDIRPLUS, true, &join(&[&FH, &[0, 7], &VERIFIER, &[512, 4096]]));
        assert_eq!((tree.number("nfs.count3_dircount"), tree.number("nfs.count3_maxcount")), (Some(512), Some(4096)));
        decoded(P::COMMIT, true, &join(&[&FH, &[0, 7, 0]]));
    }

    #[test]
    fn results_of_every_procedure() {
        use Procedure as P;
        let (wcc, some) = (wcc(), some());
        decoded(P::NULL, false, &[]);
        let (tree, ops) = decoded(P::GETATTR, false, &join(&[&[0], &FATTR]));
        assert_eq!(
            (ops[0].status, tree.number("nfs.fattr3.size"), tree.number("nfs.mode3.wusr")),
            (Some(0), Some(6), Some(1))
        );
        assert_eq!(
            (tree.number("nfs.fattr3.used"), tree.number("nfs.fattr3.fileid"), tree.number("nfs.atime.nsec")),
            (Some(4096), Some(4), Some(12))
        );
        for procedure in [P::SETATTR, P::REMOVE, P::RMDIR] {
            for status in [0, 13] {
                let (tree, ops) = decoded(procedure, false, &join(&[&[status], &wcc]));
                assert_eq!((ops[0].status, tree.number("nfs.wcc_attr.size")), (Some(status), Some(6)));
                decoded(procedure, false, &[status, 0, 0]);
            }
        }
        let (_, ops) = decoded(P::LOOKUP, false, &join(&[&[0], &FH, &some, &some]));
        assert_eq!(ops[0].handle, Some(BYTES));
        let (tree, _) = decoded(P::LOOKUP, false, &join(&[&[2], &some]));
        assert_eq!(tree.info, "V3 LOOKUP Reply, Error: NFS3ERR_NOENT");
        let (tree, _) = decoded(P::ACCESS, false, &join(&[&[0], &some, &[0xd]]));
        assert!(tree.info.ends_with("Allowed: RD MD XT"));
        let (tree, _) = decoded(P::READLINK, false, &join(&[&[0], &some, &NAME]));
        assert!(tree.info.ends_with("Path: hello"));
        let (_, ops) = decoded(P::READ, false, &join(&[&[0], &some, &[5, 1], &NAME]));
        assert_eq!(ops[0].io, Some(Io { count: 5, eof: true, ..Io::default() }));
        let (_, ops) = decoded(P::WRITE, false, &join(&[&[0], &wcc, &[5, 2], &VERIFIER]));
        assert_eq!(ops[0].io, Some(Io { count: 5, stable: 2, ..Io::default() }));
        for procedure in [P::CREATE, P::MKDIR, P::SYMLINK, P::MKNOD] {
            let (_, ops) = decoded(procedure, false, &join(&[&[0, 1], &FH, &some, &wcc]));
            assert_eq!(ops[0].handle, Some(BYTES));
            decoded(procedure, false, &join(&[&[17], &wcc]));
        }
        for status in [0, 5] {
            decoded(P::RENAME, false, &join(&[&[status], &wcc, &wcc]));
            decoded(P::LINK, false, &join(&[&[status], &some, &wcc]));
        }
        let entry = join(&[&[1, 0, 4], &NAME, &[0, 77]]);
        let (tree, _) = decoded(P::READDIR, false, &join(&[&[0], &some, &VERIFIER, &entry, &entry, &[0, 1]]));
        assert_eq!((tree.all("nfs.readdir.entry3.name").count(), tree.number("nfs.readdir.eof")), (2, Some(1)));
        let (tree, _) = decoded(
            P::READDIRPLUS,
            false,
            &join(&[&[0], &some, &VERIFIER, &entry, &some, &[1], &FH, &entry, &[0, 0], &[0, 0]]),
        );
        assert_eq!((tree.all("nfs.readdirplus.entry.name").count(), tree.number("nfs.readdir.eof")), (2, Some(0)));
        let (tree, _) = decoded(P::FSSTAT, false, &join(&[&[0], &some, &[0, 1, 0, 2, 0, 3, 0, 4, 0, 5, 0, 6, 7]]));
        assert_eq!((tree.number("nfs.fsstat3_resok.afiles"), tree.number("nfs.fsstat.invarsec")), (Some(6), Some(7)));
        let (tree, _) = decoded(P::FSINFO, false, &join(&[&[0], &some, &[1, 2, 3, 4, 5, 6, 7, 0, 8, 1, 0, 0x1b]]));
        assert_eq!(
            (tree.number("nfs.fsinfo.dtpref"), tree.number("nfs.fsinfo.properties.setattr")),
            (Some(7), Some(1))
        );
        let (tree, _) = decoded(P::PATHCONF, false, &join(&[&[0], &some, &[255, 254, 0, 1, 0, 1]]));
        assert_eq!(
            (tree.number("nfs.pathconf.name_max"), tree.number("nfs.pathconf.case_preserving")),
            (Some(254), Some(1))
        );
        decoded(P::COMMIT, false, &join(&[&[0], &wcc, &VERIFIER]));
        for procedure in
            [P::ACCESS, P::READLINK, P::READ, P::READDIR, P::READDIRPLUS, P::FSSTAT, P::FSINFO, P::PATHCONF]
        {
            decoded(procedure, false, &join(&[&[70], &some]));
        }
        decoded(P::GETATTR, false, &[70]);
        for procedure in [P::WRITE, P::COMMIT] {
            decoded(procedure, false, &join(&[&[70], &wcc]));
        }
    }

    #[test]
    fn data_in_chunks() {
        // READ reply: the count is there, the data is not, and neither is its padding
        let reply = words(&join(&[&[0], &some(), &[6, 1, 6]]));
        let (tree, ops) = chunks(&reply, false, &Memo::new(Program::NFS, 3, Procedure::READ.0), &[], &[6]);
        assert_eq!(ops[0].io, Some(Io { count: 6, eof: true, reduced: true, ..Io::default() }));
        assert_eq!(tree.number("rdmascope.reduced.length"), Some(6));
        // READ reply with its data inline, though there was a chunk for it
        let reply = words(&join(&[&[0], &some(), &[5, 1], &NAME]));
        let (_, ops) = chunks(&reply, false, &Memo::new(Program::NFS, 3, Procedure::READ.0), &[], &[0]);
        assert!(ops[0].io.is_some_and(|io| !io.reduced));
        // WRITE call
        let call = words(&join(&[&FH, &[0, 0, 98304, 2, 98304]]));
        let (tree, ops) =
            chunks(&call, true, &Memo::new(Program::NFS, 3, Procedure::WRITE.0), &[(call.len() as u32, 98304)], &[]);
        assert_eq!(ops[0].io, Some(Io { count: 98304, stable: 2, reduced: true, ..Io::default() }));
        assert_eq!(tree.number("rdmascope.reduced.position"), Some(call.len() as u64));
        // SYMLINK call with its path in a chunk
        let call = words(&join(&[&FH, &NAME, &SATTR, &[5]]));
        let (tree, _) =
            chunks(&call, true, &Memo::new(Program::NFS, 3, Procedure::SYMLINK.0), &[(call.len() as u32, 5)], &[]);
        assert_eq!(tree.all("rdmascope.reduced").count(), 1);
        // READLINK reply
        let reply = words(&join(&[&[0], &some(), &[5]]));
        let (tree, _) = chunks(&reply, false, &Memo::new(Program::NFS, 3, Procedure::READLINK.0), &[], &[5]);
        assert_eq!(tree.all("rdmascope.reduced").count(), 1);
    }
}
