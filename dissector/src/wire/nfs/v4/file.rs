//! The operations of NFS 4.0 (RFC 7530 16, RFC 8881 18.1 to 18.32): files, directories, opens, locks, client ids.

use super::super::{Io, Op, ShownText, v3};
use super::attr::{self, FileType, ace, bitmap, fattr};
use super::{Operation, Status, change_info, component, filehandle, stateid};
use crate::field::Def;
use crate::trace::{Trace, Value};
use crate::wire::rpc;
use crate::wire::xdr::{self, Read, Xdr};

wire_enum! {
    /// Kinds of byte-range locks (RFC 8881 18.10, `nfs_lock_type4`).
    pub enum LockType: u32 {
        READ = 1, "READ_LT";
        WRITE = 2, "WRITE_LT";
        READW = 3, "READW_LT";
        WRITEW = 4, "WRITEW_LT";
    }
}

wire_enum! {
    /// Mode in which OPEN creates (RFC 8881 18.16.1, `createmode4`).
    pub enum CreateMode: u32 {
        UNCHECKED = 0, "UNCHECKED4";
        GUARDED = 1, "GUARDED4";
        EXCLUSIVE = 2, "EXCLUSIVE4";
        EXCLUSIVE4_1 = 3, "EXCLUSIVE4_1";
    }
}

wire_enum! {
    /// By what right OPEN opens (RFC 8881 18.16.1, `open_claim_type4`).
    pub enum ClaimType: u32 {
        NULL = 0, "CLAIM_NULL";
        PREVIOUS = 1, "CLAIM_PREVIOUS";
        DELEGATE_CUR = 2, "CLAIM_DELEGATE_CUR";
        DELEGATE_PREV = 3, "CLAIM_DELEGATE_PREV";
        FH = 4, "CLAIM_FH";
        DELEG_CUR_FH = 5, "CLAIM_DELEG_CUR_FH";
        DELEG_PREV_FH = 6, "CLAIM_DELEG_PREV_FH";
    }
}

wire_enum! {
    /// Delegation given with an open (RFC 8881 18.16.1, `open_delegation_type4`; the last two: RFC 9754).
    pub enum DelegationType: u32 {
        NONE = 0, "OPEN_DELEGATE_NONE";
        READ = 1, "OPEN_DELEGATE_READ";
        WRITE = 2, "OPEN_DELEGATE_WRITE";
        NONE_EXT = 3, "OPEN_DELEGATE_NONE_EXT";
        READ_ATTRS = 4, "OPEN_DELEGATE_READ_ATTRS_DELEG";
        WRITE_ATTRS = 5, "OPEN_DELEGATE_WRITE_ATTRS_DELEG";
    }
}

const WHY_NO_DELEGATION: crate::field::Values = &[
    (0, "WND4_NOT_WANTED"),
    (1, "WND4_CONTENTION"),
    (2, "WND4_RESOURCE"),
    (3, "WND4_NOT_SUPP_FTYPE"),
    (4, "WND4_WRITE_DELEG_NOT_SUPP_FTYPE"),
    (5, "WND4_NOT_SUPP_UPGRADE"),
    (6, "WND4_NOT_SUPP_DOWNGRADE"),
    (7, "WND4_CANCELLED"),
    (8, "WND4_IS_DIR"),
];

fields! {
    /// Fields of the operations of 4.0.
    pub mod f ["RFC 8881 18"] {
        ACCESS_SUPPORTED: U32 = "nfs.access_supported", "Supported types (of requested)", hex;
        SUPP_READ: Bool & 0x001 / 32 = "nfs.access_supp_read", "0x001 READ";
        SUPP_LOOKUP: Bool & 0x002 / 32 = "nfs.access_supp_lookup", "0x002 LOOKUP";
        SUPP_MODIFY: Bool & 0x004 / 32 = "nfs.access_supp_modify", "0x004 MODIFY";
        SUPP_EXTEND: Bool & 0x008 / 32 = "nfs.access_supp_extend", "0x008 EXTEND";
        SUPP_DELETE: Bool & 0x010 / 32 = "nfs.access_supp_delete", "0x010 DELETE";
        SUPP_EXECUTE: Bool & 0x020 / 32 = "nfs.access_supp_execute", "0x020 EXECUTE";
        SUPP_XATTR_READ: Bool & 0x040 / 32 = "nfs.access_supp_xattr_read", "0x040 XATTR READ";
        SUPP_XATTR_WRITE: Bool & 0x080 / 32 = "nfs.access_supp_xattr_write", "0x080 XATTR WRITE";
        SUPP_XATTR_LIST: Bool & 0x100 / 32 = "nfs.access_supp_xattr_list", "0x100 XATTR LIST";
        LINKTEXT: Str = "nfs.symlink.linktext", "Link Contents";
        READLINK: Str = "nfs.readlink.data", "Data";
        LOCKTYPE: U32 = "nfs.locktype4", "locktype", dec, values LockType::VALUES;
        RECLAIM: Bool = "nfs.lock.reclaim", "reclaim?";
        NEW_LOCK_OWNER: Bool = "nfs.lock.locker.new_lock_owner", "new lock owner?";
        LOCK_SEQID: U32 = "nfs.lock_seqid", "lock_seqid", hex;
        LOCK_OWNER: Bytes as Id = "nfs.lock_owner4", "owner";
        DENIED: None = "rdmascope.nfs.lock.denied", "lock denied";
        SHARE_ACCESS: U32 = "nfs.open4.share_access", "share_access", dec, values &[(1, "OPEN4_SHARE_ACCESS_READ"), (2, "OPEN4_SHARE_ACCESS_WRITE"), (3, "OPEN4_SHARE_ACCESS_BOTH")];
        /// Bits of the access word in its second byte, with their values there.
        WANT: U32 = "nfs.want", "wants", hex, values WANTS;
        WANT_SIGNAL: Bool & 0x1_0000 / 32 = "nfs.want_notification.when_resrc_avail", "want_signal_deleg_when_resrc_avail";
        WANT_PUSH: Bool & 0x2_0000 / 32 = "nfs.want_push_deleg_when_uncontended", "want_push_deleg_when_uncontended";
        WANT_TIMESTAMPS: Bool & 0x10_0000 / 32 = "nfs.want_deleg_timestamps", "want_deleg_timestamps";
        SHARE_DENY: U32 = "nfs.open4.share_deny", "share_deny", dec, values &[(0, "OPEN4_SHARE_DENY_NONE"), (1, "OPEN4_SHARE_DENY_READ"), (2, "OPEN4_SHARE_DENY_WRITE"), (3, "OPEN4_SHARE_DENY_BOTH")];
        OPEN_OWNER: Bytes as Id = "nfs.open_owner4", "owner";
        OPENTYPE: U32 = "nfs.open.opentype", "Open Type", dec, values &[(0, "OPEN4_NOCREATE"), (1, "OPEN4_CREATE")];
        CREATEMODE: U32 = "nfs.createmode4", "Create Mode", dec, values CreateMode::VALUES;
        CLAIM: U32 = "nfs.open.claim_type", "Claim Type", dec, values ClaimType::VALUES;
        DELEGATE_TYPE: U32 = "nfs.delegate_type", "delegate_type", dec, values DelegationType::VALUES;
        RFLAGS: U32 = "nfs.open_rflags", "result flags", hex;
        RFLAG_CONFIRM: Bool & 0x02 / 32 = "nfs.open_rflags.confirm", "confirm";
        RFLAG_LOCKTYPE: Bool & 0x04 / 32 = "nfs.open_rflags.locktype_posix", "locktype posix";
        RFLAG_PRESERVE: Bool & 0x08 / 32 = "nfs.open_rflags.preserve_unlinked", "preserve unlinked";
        RFLAG_NOTIFY: Bool & 0x20 / 32 = "nfs.open_rflags.may_notify_lock", "may notify lock";
        DELEGATION: None = "rdmascope.nfs.open.delegation", "delegation";
        DELEGATION_TYPE: U32 = "nfs.open.delegation_type", "Delegation Type", dec, values DelegationType::VALUES;
        RECALL: Bool = "nfs.recall4", "recall";
        LIMIT_BY: U32 = "nfs.open.limit_by", "Space Limit", dec, values &[(1, "NFS_LIMIT_SIZE"), (2, "NFS_LIMIT_BLOCKS")];
        FILESIZE: U64 = "nfs.filesize", "filesize", dec;
        NUM_BLOCKS: U32 = "nfs.num_blocks", "num_blocks", dec;
        BYTES_PER_BLOCK: U32 = "nfs.bytes_per_block", "bytes_per_block", dec;
        WHY: U32 = "nfs.open.why_no_delegation", "why no delegation", dec, values WHY_NO_DELEGATION;
        WILL_PUSH: Bool = "rdmascope.nfs.open.server_will_push", "server will push the delegation";
        WILL_SIGNAL: Bool = "rdmascope.nfs.open.server_will_signal", "server will signal availability";
        CREATEDIR: Bool = "nfs.openattr4.createdir", "attribute dir create";
        EOF: U32 = "nfs.eof", "eof", dec, values &[(0, "No"), (1, "Yes")];
        READ_LENGTH: U32 = "nfs.read.data_length", "Read length", dec;
        WRITE_LENGTH: U32 = "nfs.write.data_length", "Write length", dec;
        COOKIE: U64 = "nfs.cookie4", "cookie", dec;
        COOKIE_VERF: U64 = "nfs.cookie_verf4", "cookie_verf", dec;
        DIRCOUNT: U32 = "nfs.dircount", "dircount", dec;
        MAXCOUNT: U32 = "nfs.maxcount", "maxcount", dec;
        ENTRY: None = "rdmascope.nfs.entry4", "Entry";
        FOLLOWS: Bool = "nfs.value_follows", "Value Follows";
        ENTRY_NAME: Str = "nfs.entry_name", "Name";
        DIRLIST_EOF: Bool = "nfs.dirlist4.eof", "EOF";
        FLAVORS: None = "nfs.flavors.info", "Flavors Info";
        FLAVOR: U32 = "nfs.secinfo.flavor", "flavor", dec, values rpc::Flavor::VALUES;
        OID: Bytes as Keep = "nfs.secinfo.flavor_info.rpcsec_gss_info.oid", "oid";
        QOP: U32 = "nfs.secinfo.flavor_info.rpcsec_gss_info.qop", "qop", dec;
        SERVICE: U32 = "nfs.secinfo.rpcsec_gss_info.service", "service", dec, values rpc::GssService::VALUES;
        CLIENT_ID: Bytes as Name = "nfs.nfs_client_id4.id", "id";
        CB_PROGRAM: U32 = "nfs.cb_program", "cb_program", hex;
    }
}

const SUPP_BITS: [Def; 9] = [
    f::SUPP_READ,
    f::SUPP_LOOKUP,
    f::SUPP_MODIFY,
    f::SUPP_EXTEND,
    f::SUPP_DELETE,
    f::SUPP_EXECUTE,
    f::SUPP_XATTR_READ,
    f::SUPP_XATTR_WRITE,
    f::SUPP_XATTR_LIST,
];
/// Delegations that a client can want with an open (RFC 8881 18.16.3).
pub(super) const WANTS: crate::field::Values = &[
    (0x0000, "OPEN4_SHARE_ACCESS_WANT_NO_PREFERENCE"),
    (0x0100, "OPEN4_SHARE_ACCESS_WANT_READ_DELEG"),
    (0x0200, "OPEN4_SHARE_ACCESS_WANT_WRITE_DELEG"),
    (0x0300, "OPEN4_SHARE_ACCESS_WANT_ANY_DELEG"),
    (0x0400, "OPEN4_SHARE_ACCESS_WANT_NO_DELEG"),
    (0x0500, "OPEN4_SHARE_ACCESS_WANT_CANCEL"),
];
const RFLAG_BITS: &[Def] = &[f::RFLAG_CONFIRM, f::RFLAG_LOCKTYPE, f::RFLAG_PRESERVE, f::RFLAG_NOTIFY];

/// Decodes arguments or results; `false` where there is no such operation.
pub(super) fn decode<'a, T: Trace>(
    x: &mut Xdr<'a, '_, T>,
    call: bool,
    operation: Operation,
    op: &mut Op<'a>,
) -> Read<bool> {
    if call {
        arguments(x, operation, op)?;
    } else {
        results(x, operation, op)?;
    }
    Ok(operation.name().is_some())
}

fn arguments<'a, T: Trace>(x: &mut Xdr<'a, '_, T>, operation: Operation, op: &mut Op<'a>) -> Read<()> {
    use Operation as O;
    match operation {
        O::ACCESS => {
            let asked = v3::access(x, v3::f::ACCESS_CHECK, None)?;
            if T::ON {
                x.t.label(format_args!(", [Check: {}]", v3::Rights(asked)));
            }
        }
        O::CLOSE => {
            x.u32(super::f::SEQID)?;
            state(x, op)?;
        }
        O::COMMIT => {
            op.io = Some(Io { offset: x.u64(super::f::OFFSET)?, count: x.u32(super::f::COUNT)?, ..Io::default() })
        }
        O::CREATE => {
            match FileType(x.u32(attr::f::TYPE)?) {
                FileType::LNK => drop(x.eligible(f::LINKTEXT)?),
                FileType::BLK | FileType::CHR => {
                    x.u32(v3::f::SPECDATA1)?;
                    x.u32(v3::f::SPECDATA2)?;
                }
                _ => {}
            }
            name(x, op)?;
            fattr(x)?;
        }
        O::DELEGPURGE | O::RENEW => drop(x.u64(super::f::CLIENTID)?),
        O::DELEGRETURN => state(x, op)?,
        O::GETATTR => drop(bitmap(x)?),
        O::LINK | O::LOOKUP | O::REMOVE | O::SECINFO => name(x, op)?,
        O::LOCK => {
            x.u32(f::LOCKTYPE)?;
            x.bool(f::RECLAIM)?;
            range(x)?;
            if x.bool(f::NEW_LOCK_OWNER)? {
                x.u32(super::f::SEQID)?;
                state(x, op)?;
                x.u32(f::LOCK_SEQID)?;
                owner(x, f::LOCK_OWNER)?;
            } else {
                state(x, op)?;
                x.u32(f::LOCK_SEQID)?;
            }
        }
        O::LOCKT => {
            x.u32(f::LOCKTYPE)?;
            range(x)?;
            owner(x, f::LOCK_OWNER)?;
        }
        O::LOCKU => {
            x.u32(f::LOCKTYPE)?;
            x.u32(super::f::SEQID)?;
            state(x, op)?;
            range(x)?;
        }
        O::NVERIFY | O::VERIFY => fattr(x)?,
        O::OPEN => open(x, op)?,
        O::OPENATTR => drop(x.bool(f::CREATEDIR)?),
        O::OPEN_CONFIRM => {
            state(x, op)?;
            x.u32(super::f::SEQID)?;
        }
        O::OPEN_DOWNGRADE => {
            state(x, op)?;
            x.u32(super::f::SEQID)?;
            share(x)?;
        }
        O::PUTFH => {
            filehandle(x, op)?;
            if let (true, Some(handle)) = (T::ON, op.handle) {
                x.t.label(format_args!(", FH: {:#010x}", crc32fast::hash(handle)));
            }
        }
        O::READ => {
            state(x, op)?;
            let io = Io { offset: x.u64(super::f::OFFSET)?, count: x.u32(super::f::COUNT)?, ..Io::default() };
            op.io = Some(io);
            if T::ON {
                x.t.label(format_args!(", Offset: {} Len: {}", io.offset, io.count));
            }
        }
        O::READDIR => {
            x.u64(f::COOKIE)?;
            x.u64(f::COOKIE_VERF)?;
            x.u32(f::DIRCOUNT)?;
            x.u32(f::MAXCOUNT)?;
            bitmap(x)?;
        }
        O::RENAME => {
            name(x, op)?;
            op.to_name = Some(component(x)?);
        }
        O::SETATTR => {
            state(x, op)?;
            fattr(x)?;
        }
        O::SETCLIENTID => {
            x.u64(super::f::VERIFIER)?;
            x.opaque(f::CLIENT_ID)?;
            x.u32(f::CB_PROGRAM)?;
            super::netaddr(x)?;
            x.u32(super::f::CALLBACK_IDENT)?;
        }
        O::SETCLIENTID_CONFIRM => {
            x.u64(super::f::CLIENTID)?;
            x.u64(super::f::VERIFIER)?;
        }
        O::WRITE => {
            state(x, op)?;
            let mut io = Io { offset: x.u64(super::f::OFFSET)?, ..Io::default() };
            io.stable = x.u32(super::f::STABLE)?;
            op.io = Some(io);
            length(x, f::WRITE_LENGTH);
            let data = x.eligible(super::f::DATA)?;
            (io.count, io.reduced) = (data.length, data.reduced);
            op.io = Some(io);
            if T::ON {
                x.t.label(format_args!(", Offset: {} Len: {}", io.offset, io.count));
            }
        }
        O::RELEASE_LOCKOWNER => owner(x, f::LOCK_OWNER)?,
        _ => {}
    }
    Ok(())
}

fn results<'a, T: Trace>(x: &mut Xdr<'a, '_, T>, operation: Operation, op: &mut Op<'a>) -> Read<()> {
    use Operation as O;
    let status = Status(op.status.unwrap_or(0));
    if status != Status::OK {
        match (operation, status) {
            (O::LOCK | O::LOCKT, Status::DENIED) => x.scope(f::DENIED, |x| {
                range(x)?;
                x.u32(f::LOCKTYPE)?;
                owner(x, f::LOCK_OWNER)
            })?,
            // the attributes that were set before it failed
            (O::SETATTR, _) => drop(bitmap(x)?),
            (O::SETCLIENTID, Status::CLID_INUSE) => super::netaddr(x)?,
            _ => {}
        }
        return Ok(());
    }
    match operation {
        O::ACCESS => {
            let supported = supported(x)?;
            let allowed = v3::access(x, v3::f::ACCESS_RIGHTS, Some(supported))?;
            if T::ON {
                x.t.label(format_args!(", [Allowed: {}]", v3::Rights(allowed)));
            }
        }
        O::CLOSE | O::LOCK | O::LOCKU | O::OPEN_CONFIRM | O::OPEN_DOWNGRADE => state(x, op)?,
        O::COMMIT => drop(x.u64(super::f::VERIFIER)?),
        O::CREATE => {
            change_info(x, super::f::CHANGE_INFO)?;
            bitmap(x)?;
        }
        O::GETATTR => fattr(x)?,
        O::GETFH => filehandle(x, op)?,
        O::LINK | O::REMOVE => change_info(x, super::f::CHANGE_INFO)?,
        O::OPEN => {
            state(x, op)?;
            change_info(x, super::f::CHANGE_INFO)?;
            x.flags(f::RFLAGS, RFLAG_BITS)?;
            bitmap(x)?;
            delegation(x)?;
        }
        O::READ => {
            let eof = x.bool_number(f::EOF)?;
            length(x, f::READ_LENGTH);
            op.io = Some(Io { eof, ..Io::default() });
            let data = x.eligible(super::f::DATA)?;
            op.io = Some(Io { count: data.length, reduced: data.reduced, eof, ..Io::default() });
            if T::ON {
                x.t.label(format_args!(", Len: {}", data.length));
            }
        }
        O::READDIR => {
            x.u64(super::f::VERIFIER)?;
            while x.bool(f::FOLLOWS)? {
                x.scope(f::ENTRY, |x| {
                    x.u64(f::COOKIE)?;
                    let name = x.opaque(f::ENTRY_NAME)?;
                    if T::ON {
                        x.t.label(format_args!(": {}", ShownText(name)));
                        x.t.field(super::super::f::NAME, x.i, 0, Value::Bytes(name));
                    }
                    fattr(x)
                })?;
            }
            x.bool(f::DIRLIST_EOF)?;
        }
        O::READLINK => {
            let text = x.eligible(f::READLINK)?;
            op.name = (!text.reduced).then_some(text.bytes);
        }
        O::RENAME => {
            change_info(x, super::f::SOURCE_CHANGE_INFO)?;
            change_info(x, super::f::TARGET_CHANGE_INFO)?;
        }
        O::SECINFO => secinfo(x)?,
        O::SETATTR => drop(bitmap(x)?),
        O::SETCLIENTID => {
            x.u64(super::f::CLIENTID)?;
            x.u64(super::f::VERIFIER)?;
        }
        O::WRITE => {
            let count = x.u32(super::f::COUNT)?;
            op.io = Some(Io { count, stable: x.u32(super::f::STABLE)?, ..Io::default() });
            x.u64(super::f::VERIFIER)?;
        }
        _ => {}
    }
    Ok(())
}

fn name<'a, T: Trace>(x: &mut Xdr<'a, '_, T>, op: &mut Op<'a>) -> Read<()> {
    let name = component(x)?;
    op.name = Some(name);
    if T::ON {
        x.t.label(format_args!(", {}", ShownText(name)));
    }
    Ok(())
}

fn state<T: Trace>(x: &mut Xdr<'_, '_, T>, op: &mut Op<'_>) -> Read<()> {
    op.stateid = Some(stateid(x)?);
    Ok(())
}

/// The length of the opaque data that comes next, which Wireshark has as a field of its own.
fn length<T: Trace>(x: &mut Xdr<'_, '_, T>, def: Def) {
    if let (true, Some(length)) = (T::ON, x.peek()) {
        x.t.field(def, x.i, 4, Value::U(length.into()));
    }
}

fn range<T: Trace>(x: &mut Xdr<'_, '_, T>) -> Read<()> {
    x.u64(super::f::OFFSET)?;
    x.u64(super::f::LENGTH).map(drop)
}

/// An open owner or lock owner.
pub(super) fn owner<T: Trace>(x: &mut Xdr<'_, '_, T>, def: Def) -> Read<()> {
    x.u64(super::f::CLIENTID)?;
    x.opaque(def).map(drop)
}

fn supported<T: Trace>(x: &mut Xdr<'_, '_, T>) -> Read<u32> {
    let at = x.i;
    let supported = x.u32(f::ACCESS_SUPPORTED)?;
    if T::ON {
        x.t.down();
        for (_, bit) in SUPP_BITS.iter().enumerate().filter(|(n, _)| supported >> n & 1 != 0) {
            x.t.field(bit, at, 4, Value::U(1));
        }
        x.t.up();
    }
    Ok(supported)
}

/// Access that an open allows its owner and denies others. NFS 4.1 adds the delegation wanted.
fn share<T: Trace>(x: &mut Xdr<'_, '_, T>) -> Read<()> {
    let at = x.i;
    if let (true, Some(access)) = (T::ON, x.peek()) {
        x.t.field(f::SHARE_ACCESS, at, 4, Value::U((access & 0xff).into()));
        if access >> 8 != 0 {
            x.t.down();
            x.t.field(f::WANT, at, 4, Value::U((access & 0xff00).into()));
            x.t.up();
            x.bits(at, 4, access.into(), &[f::WANT_SIGNAL, f::WANT_PUSH, f::WANT_TIMESTAMPS]);
        }
        x.i = &at[4..];
    } else {
        x.u32(f::SHARE_ACCESS)?;
    }
    x.u32(f::SHARE_DENY).map(drop)
}

fn open<'a, T: Trace>(x: &mut Xdr<'a, '_, T>, op: &mut Op<'a>) -> Read<()> {
    x.u32(super::f::SEQID)?;
    share(x)?;
    owner(x, f::OPEN_OWNER)?;
    if x.u32(f::OPENTYPE)? == 1 {
        match CreateMode(x.u32(f::CREATEMODE)?) {
            CreateMode::UNCHECKED | CreateMode::GUARDED => fattr(x)?,
            CreateMode::EXCLUSIVE => drop(x.u64(super::f::VERIFIER)?),
            CreateMode::EXCLUSIVE4_1 => {
                x.u64(super::f::VERIFIER)?;
                fattr(x)?;
            }
            _ => {}
        }
    }
    match ClaimType(x.u32(f::CLAIM)?) {
        ClaimType::NULL | ClaimType::DELEGATE_PREV => name(x, op)?,
        ClaimType::PREVIOUS => drop(x.u32(f::DELEGATE_TYPE)?),
        ClaimType::DELEGATE_CUR => {
            state(x, op)?;
            name(x, op)?;
        }
        ClaimType::DELEG_CUR_FH => state(x, op)?,
        _ => {}
    }
    Ok(())
}

/// The delegation that OPEN, WANT_DELEGATION and CB_PUSH_DELEG grant (RFC 8881 18.16.2).
pub(super) fn delegation<T: Trace>(x: &mut Xdr<'_, '_, T>) -> Read<()> {
    x.scope(f::DELEGATION, |x| {
        let kind = DelegationType(x.u32(f::DELEGATION_TYPE)?);
        if T::ON {
            x.t.label(format_args!(": {kind}"));
        }
        match kind {
            DelegationType::READ | DelegationType::READ_ATTRS => {
                stateid(x)?;
                x.bool(f::RECALL)?;
                ace(x)
            }
            DelegationType::WRITE | DelegationType::WRITE_ATTRS => {
                stateid(x)?;
                x.bool(f::RECALL)?;
                match x.u32(f::LIMIT_BY)? {
                    1 => drop(x.u64(f::FILESIZE)?),
                    2 => {
                        x.u32(f::NUM_BLOCKS)?;
                        x.u32(f::BYTES_PER_BLOCK)?;
                    }
                    _ => {}
                }
                ace(x)
            }
            DelegationType::NONE_EXT => match x.u32(f::WHY)? {
                1 => x.bool(f::WILL_PUSH).map(drop),
                2 => x.bool(f::WILL_SIGNAL).map(drop),
                _ => Ok(()),
            },
            _ => Ok(()),
        }
    })
}

/// The ways to authenticate that SECINFO and SECINFO_NO_NAME list.
pub(super) fn secinfo<T: Trace>(x: &mut Xdr<'_, '_, T>) -> Read<()> {
    x.scope(f::FLAVORS, |x| {
        x.list(xdr::f::ARRAY_LENGTH, |x, _| {
            if rpc::Flavor(x.u32(f::FLAVOR)?) == rpc::Flavor::GSS {
                x.opaque(f::OID)?;
                x.u32(f::QOP)?;
                x.u32(f::SERVICE)?;
            }
            Ok(())
        })
        .map(drop)
    })
}
