//! The operations that NFS 4.1 added, without pNFS (RFC 8881 18.33 to 18.51): sessions, client ids, directory
//! delegations.

use super::super::{Op, Slot};
use super::attr::{bitmap, plain_bitmap};
use super::file::{ClaimType, DelegationType, WANTS, delegation, secinfo};
use super::{Operation, nfstime, stateid};
use crate::field::{Def, Values};
use crate::trace::Trace;
use crate::wire::rpc;
use crate::wire::xdr::{self, Read, Xdr};

const DIRECTIONS: Values = &[
    (1, "CDFC4_FORE / CDFS4_FORE"),
    (2, "CDFC4_BACK / CDFS4_BACK"),
    (3, "CDFC4_FORE_OR_BOTH / CDFS4_BOTH"),
    (7, "CDFC4_BACK_OR_BOTH"),
];

/// Notifications that can be asked for (RFC 8881 20.4, 20.12).
pub(super) const NOTIFICATIONS: Values = &[
    (0, "NOTIFY4_CHANGE_CHILD_ATTRS"),
    (1, "NOTIFY4_CHANGE_DIR_ATTRS / NOTIFY_DEVICEID4_CHANGE"),
    (2, "NOTIFY4_REMOVE_ENTRY / NOTIFY_DEVICEID4_DELETE"),
    (3, "NOTIFY4_ADD_ENTRY"),
    (4, "NOTIFY4_RENAME_ENTRY"),
    (5, "NOTIFY4_CHANGE_COOKIE_VERIFIER"),
];

fields! {
    /// Fields of sessions.
    pub mod f ["RFC 8881 18.33"] {
        SESSION_ID: Bytes as Id = "nfs.session_id4", "sessionid";
        SLOT: U32 = "nfs.slotid", "slot id", dec;
        HIGH_SLOT: U32 = "nfs.high_slotid", "high slot id", dec;
        TARGET_HIGH_SLOT: U32 = "nfs.target_high_slotid", "target high slot id", dec;
        CACHETHIS: Bool = "nfs.cachethis4", "cache this?";
        FLAGS: U32 = "nfs.sequence.flags", "status flags", hex;
        FLAG_CB_PATH_DOWN: Bool & 0x0001 / 32 = "nfs.sequence.flags.cb_path_down", "SEQ4_STATUS_CB_PATH_DOWN";
        FLAG_GSS_EXPIRING: Bool & 0x0002 / 32 = "nfs.sequence.flags.cb_gss_contexts_expiring", "SEQ4_STATUS_CB_GSS_CONTEXTS_EXPIRING";
        FLAG_GSS_EXPIRED: Bool & 0x0004 / 32 = "nfs.sequence.flags.cb_gss_contexts_expired", "SEQ4_STATUS_CB_GSS_CONTEXTS_EXPIRED";
        FLAG_ALL_REVOKED: Bool & 0x0008 / 32 = "nfs.sequence.flags.expired_all_state_revoked", "SEQ4_STATUS_EXPIRED_ALL_STATE_REVOKED";
        FLAG_SOME_REVOKED: Bool & 0x0010 / 32 = "nfs.sequence.flags.expired_some_state_revoked", "SEQ4_STATUS_EXPIRED_SOME_STATE_REVOKED";
        FLAG_ADMIN_REVOKED: Bool & 0x0020 / 32 = "nfs.sequence.flags.admin_state_revoked", "SEQ4_STATUS_ADMIN_STATE_REVOKED";
        FLAG_RECALLABLE_REVOKED: Bool & 0x0040 / 32 = "nfs.sequence.flags.recallable_state_revoked", "SEQ4_STATUS_RECALLABLE_STATE_REVOKED";
        FLAG_LEASE_MOVED: Bool & 0x0080 / 32 = "nfs.sequence.flags.lease_moved", "SEQ4_STATUS_LEASE_MOVED";
        FLAG_RESTART_RECLAIM: Bool & 0x0100 / 32 = "nfs.sequence.flags.restart_reclaim_needed", "SEQ4_STATUS_RESTART_RECLAIM_NEEDED";
        FLAG_CB_PATH_DOWN_SESSION: Bool & 0x0200 / 32 = "nfs.sequence.flags.cb_path_down_session", "SEQ4_STATUS_CB_PATH_DOWN_SESSION";
        FLAG_BACKCHANNEL_FAULT: Bool & 0x0400 / 32 = "nfs.sequence.flags.backchannel_fault", "SEQ4_STATUS_BACKCHANNEL_FAULT";
        FLAG_DEVID_CHANGED: Bool & 0x0800 / 32 = "nfs.sequence.flags.devid_changed", "SEQ4_STATUS_DEVID_CHANGED";
        FLAG_DEVID_DELETED: Bool & 0x1000 / 32 = "nfs.sequence.flags.devid_deleted", "SEQ4_STATUS_DEVID_DELETED";
        CLIENTOWNER: None = "rdmascope.nfs.clientowner", "eia_clientowner";
        EXCHANGE_CALL_FLAGS: U32 = "nfs.exchange_id.call_flags", "flags", hex;
        EXCHANGE_REPLY_FLAGS: U32 = "nfs.exchange_id.reply_flags", "flags", hex;
        EXCHANGE_MOVED_REFER: Bool & 0x0000_0001 / 32 = "nfs.exchange_id.flags.moved_refer", "EXCHGID4_FLAG_SUPP_MOVED_REFER";
        EXCHANGE_MOVED_MIGR: Bool & 0x0000_0002 / 32 = "nfs.exchange_id.flags.moved_migr", "EXCHGID4_FLAG_SUPP_MOVED_MIGR";
        EXCHANGE_BIND_PRINC: Bool & 0x0000_0100 / 32 = "nfs.exchange_id.flags.bind_princ", "EXCHGID4_FLAG_BIND_PRINC_STATEID";
        EXCHANGE_NON_PNFS: Bool & 0x0001_0000 / 32 = "nfs.exchange_id.flags.non_pnfs", "EXCHGID4_FLAG_USE_NON_PNFS";
        EXCHANGE_PNFS_MDS: Bool & 0x0002_0000 / 32 = "nfs.exchange_id.flags.pnfs_mds", "EXCHGID4_FLAG_USE_PNFS_MDS";
        EXCHANGE_PNFS_DS: Bool & 0x0004_0000 / 32 = "nfs.exchange_id.flags.pnfs_ds", "EXCHGID4_FLAG_USE_PNFS_DS";
        EXCHANGE_REC_A: Bool & 0x4000_0000 / 32 = "nfs.exchange_id.flags.confirmed_rec_a", "EXCHGID4_FLAG_UPD_CONFIRMED_REC_A";
        EXCHANGE_CONFIRMED_R: Bool & 0x8000_0000 / 32 = "nfs.exchange_id.flags.confirmed_r", "EXCHGID4_FLAG_CONFIRMED_R";
        STATE_PROTECT: U32 = "nfs.exchange_id.state_protect", "eia_state_protect", dec, values &[(0, "SP4_NONE"), (1, "SP4_MACH_CRED"), (2, "SP4_SSV")];
        MUST_ENFORCE: None = "rdmascope.nfs.state_protect.must_enforce", "operations that must be enforced";
        MUST_ALLOW: None = "rdmascope.nfs.state_protect.must_allow", "operations that must be allowed";
        OP_MASK: U32 = "nfs.op_mask", "op_mask", hex;
        PROTECTED_OP: U32 = "rdmascope.nfs.state_protect.op", "operation", dec, values Operation::VALUES;
        HASH_ALGS: None = "nfs.sp_parms4_hash_algs", "State Protect hash algorithms";
        ENCR_ALGS: None = "nfs.sp_parms4_encr_algs", "State Protect encryption algorithms";
        ALG_OID: Bytes as Keep = "rdmascope.nfs.state_protect.oid", "oid";
        WINDOW: U32 = "nfs.state_protect_window", "State Protect window", hex;
        GSS_HANDLES: U32 = "nfs.state_protect_num_gss_handles", "State Protect num gss handles", hex;
        HASH_ALG: U32 = "nfs.prot_info4_hash_alg", "Prot Info hash algorithm", hex;
        ENCR_ALG: U32 = "nfs.prot_info4_encr_alg", "Prot Info encryption algorithm", hex;
        SSV_LENGTH: U32 = "nfs.prot_info4_svv_length", "Prot Info svv_length", hex;
        SPI_WINDOW: U32 = "nfs.prot_info4_spi_window", "Prot Info spi window", hex;
        GSS_HANDLE: Bytes as Id = "nfs.gsshandle4", "gsshandle4";
        SERVER_OWNER: None = "rdmascope.nfs.server_owner", "eir_server_owner";
        MINOR_ID: U64 = "nfs.minorid4", "minor ID", dec;
        MAJOR_ID: Bytes as Id = "nfs.majorid4", "major ID";
        SCOPE: Bytes as Id = "nfs.scope", "server scope";
        IMPL_ID: None = "rdmascope.nfs.impl_id4", "impl_id";
        NII_DOMAIN: Str as Keep = "nfs.nii_domain4", "Implementor DNS domain name(nii_domain)";
        NII_NAME: Str as Keep = "nfs.nii_name4", "Implementation product name(nii_name)";
        SESSION_FLAGS: U32 = "nfs.create_session_flags", "csa_flags", hex;
        SESSION_PERSIST: Bool & 0x1 / 32 = "nfs.create_session.flags.persist", "CREATE_SESSION4_FLAG_PERSIST";
        SESSION_BACK_CHAN: Bool & 0x2 / 32 = "nfs.create_session.flags.conn_back_chan", "CREATE_SESSION4_FLAG_CONN_BACK_CHAN";
        SESSION_RDMA: Bool & 0x4 / 32 = "nfs.create_session.flags.conn_rdma", "CREATE_SESSION4_FLAG_CONN_RDMA";
        FORE_CHANNEL: None = "rdmascope.nfs.fore_channel", "fore_chan_attrs";
        BACK_CHANNEL: None = "rdmascope.nfs.back_channel", "back_chan_attrs";
        PADSIZE: U32 = "nfs.padsize4", "hdr pad size", dec;
        MAXREQSIZE: U32 = "nfs.maxreqsize4", "max req size", dec;
        MAXRESPSIZE: U32 = "nfs.maxrespsize4", "max resp size", dec;
        MAXRESPSIZE_CACHED: U32 = "nfs.maxrespsizecached4", "max resp size cached", dec;
        MAXOPS: U32 = "nfs.maxops4", "max ops", dec;
        MAXREQS: U32 = "nfs.maxreqs4", "max reqs", dec;
        RDMA_IRD: U32 = "nfs.rdmachanattrs4", "RDMA chan attrs", dec;
        SEC_FLAVOR: U32 = "nfs.flavor4", "flavor", dec, values rpc::Flavor::VALUES;
        STAMP: U32 = "nfs.stamp4", "stamp", dec;
        MACHINE: Str = "nfs.machinename4", "machine name";
        UID: U32 as User = "nfs.uid4", "uid", dec;
        GID: U32 as User = "nfs.gid4", "gid", dec;
        SERVICE: U32 = "nfs.service4", "gid", dec, values rpc::GssService::VALUES;
        BCTSA_DIR: U32 = "nfs.bctsa_dir", "bctsa_dir", hex, values DIRECTIONS;
        BCTSA_RDMA: Bool = "nfs.bctsa_use_conn_in_rdma_mode", "bctsa_use_conn_in_rdma_mode";
        BCTSR_DIR: U32 = "nfs.bctsr_dir", "bctsr_dir", hex, values DIRECTIONS;
        BCTSR_RDMA: Bool = "nfs.bctsr_use_conn_in_rdma_mode", "bctsr_use_conn_in_rdma_mode";
        SIGNAL: Bool = "rdmascope.nfs.gdda_signal", "signal delegation available";
        NOTIFY_BITMAP: None = "rdmascope.nfs.notify_types", "notification types";
        NOTIFY_MASK: U32 = "nfs.notify_mask", "notify_mask", hex;
        NOTIFY_TYPE: U32 = "nfs.notify_type", "notify_type", dec, values NOTIFICATIONS;
        CHILD_DELAY: None = "rdmascope.nfs.child_attr_delay", "child attribute delay";
        DIR_DELAY: None = "rdmascope.nfs.dir_attr_delay", "directory attribute delay";
        GDD_STATUS: U32 = "rdmascope.nfs.gdd_status", "status", dec, values &[(0, "GDD4_OK"), (1, "GDD4_UNAVAIL")];
        WILL_SIGNAL: Bool = "rdmascope.nfs.gdd_will_signal", "will signal";
        STYLE: U32 = "nfs.secinfo.style", "Secinfo Style", dec, values &[(0, "SECINFO_STYLE4_CURRENT_FH"), (1, "SECINFO_STYLE4_PARENT")];
        SSV: Bytes as Secret = "rdmascope.nfs.ssv", "ssv";
        DIGEST: Bytes as Secret = "rdmascope.nfs.ssv.digest", "digest";
        STATEIDS: None = "nfs.test_stateid.stateids", "StateID List";
        RESULTS: None = "nfs.test_stateid.results", "StateID Result List";
        WANT: U32 = "rdmascope.nfs.want_delegation", "wants", hex, values WANTS;
        CLAIM: U32 = "nfs.open.claim_type", "Claim Type", dec, values ClaimType::VALUES;
        DELEGATE_TYPE: U32 = "nfs.delegate_type", "delegate_type", dec, values DelegationType::VALUES;
        ONE_FS: Bool = "nfs.reclaim_one_fs4", "reclaim one fs?";
    }
}

/// Flags of the client's state, in the result of SEQUENCE.
pub const SEQUENCE_BITS: &[Def] = &[
    f::FLAG_CB_PATH_DOWN,
    f::FLAG_GSS_EXPIRING,
    f::FLAG_GSS_EXPIRED,
    f::FLAG_ALL_REVOKED,
    f::FLAG_SOME_REVOKED,
    f::FLAG_ADMIN_REVOKED,
    f::FLAG_RECALLABLE_REVOKED,
    f::FLAG_LEASE_MOVED,
    f::FLAG_RESTART_RECLAIM,
    f::FLAG_CB_PATH_DOWN_SESSION,
    f::FLAG_BACKCHANNEL_FAULT,
    f::FLAG_DEVID_CHANGED,
    f::FLAG_DEVID_DELETED,
];
const EXCHANGE_BITS: &[Def] = &[
    f::EXCHANGE_CONFIRMED_R,
    f::EXCHANGE_REC_A,
    f::EXCHANGE_PNFS_DS,
    f::EXCHANGE_PNFS_MDS,
    f::EXCHANGE_NON_PNFS,
    f::EXCHANGE_BIND_PRINC,
    f::EXCHANGE_MOVED_MIGR,
    f::EXCHANGE_MOVED_REFER,
];
const SESSION_BITS: &[Def] = &[f::SESSION_PERSIST, f::SESSION_BACK_CHAN, f::SESSION_RDMA];

/// Decodes arguments or results; `false` where there is no such operation.
pub(super) fn decode<'a, T: Trace>(
    x: &mut Xdr<'a, '_, T>,
    call: bool,
    operation: Operation,
    op: &mut Op<'a>,
) -> Read<bool> {
    if call {
        arguments(x, operation, op)?;
    } else if op.status == Some(0) {
        results(x, operation, op)?;
    }
    Ok(operation.name().is_some())
}

fn arguments<'a, T: Trace>(x: &mut Xdr<'a, '_, T>, operation: Operation, op: &mut Op<'a>) -> Read<()> {
    use Operation as O;
    match operation {
        O::BACKCHANNEL_CTL => {
            x.u32(super::file::f::CB_PROGRAM)?;
            security(x)?;
        }
        O::BIND_CONN_TO_SESSION => {
            session_id(x)?;
            x.u32(f::BCTSA_DIR)?;
            x.bool(f::BCTSA_RDMA)?;
        }
        O::EXCHANGE_ID => {
            x.scope(f::CLIENTOWNER, |x| {
                x.u64(super::f::VERIFIER)?;
                x.opaque(super::f::DATA).map(drop)
            })?;
            x.flags(f::EXCHANGE_CALL_FLAGS, EXCHANGE_BITS)?;
            let how = x.u32(f::STATE_PROTECT)?;
            if how == 1 || how == 2 {
                protected_operations(x)?;
            }
            if how == 2 {
                for node in [f::HASH_ALGS, f::ENCR_ALGS] {
                    x.scope(node, |x| x.list(xdr::f::COUNT, |x, _| x.opaque(f::ALG_OID).map(drop)).map(drop))?;
                }
                x.u32(f::WINDOW)?;
                x.u32(f::GSS_HANDLES)?;
            }
            op.implementation = impl_id(x)?;
        }
        O::CREATE_SESSION => {
            x.u64(super::f::CLIENTID)?;
            x.u32(super::f::SEQID)?;
            x.flags(f::SESSION_FLAGS, SESSION_BITS)?;
            x.scope(f::FORE_CHANNEL, channel)?;
            x.scope(f::BACK_CHANNEL, channel)?;
            x.u32(super::file::f::CB_PROGRAM)?;
            security(x)?;
        }
        O::DESTROY_SESSION => drop(session_id(x)?),
        O::FREE_STATEID => op.stateid = Some(stateid(x)?),
        O::GET_DIR_DELEGATION => {
            x.bool(f::SIGNAL)?;
            notifications(x)?;
            super::time(x, f::CHILD_DELAY)?;
            super::time(x, f::DIR_DELAY)?;
            bitmap(x)?;
            bitmap(x)?;
        }
        O::SECINFO_NO_NAME => drop(x.u32(f::STYLE)?),
        O::SEQUENCE => {
            let session = session_id(x)?;
            let (sequence, slot) = (x.u32(super::f::SEQID)?, x.u32(f::SLOT)?);
            let highest = x.u32(f::HIGH_SLOT)?;
            op.slot = Some(Slot { session, slot, sequence, highest });
            x.bool(f::CACHETHIS)?;
        }
        O::SET_SSV => {
            x.opaque(f::SSV)?;
            x.opaque(f::DIGEST)?;
        }
        O::TEST_STATEID => {
            x.scope(f::STATEIDS, |x| x.list(xdr::f::COUNT, |x, _| stateid(x).map(drop)).map(drop))?;
        }
        O::WANT_DELEGATION => {
            x.u32(f::WANT)?;
            if x.u32(f::CLAIM)? == 1 {
                x.u32(f::DELEGATE_TYPE)?;
            }
        }
        O::DESTROY_CLIENTID => drop(x.u64(super::f::CLIENTID)?),
        O::RECLAIM_COMPLETE => drop(x.bool(f::ONE_FS)?),
        _ => {}
    }
    Ok(())
}

fn results<'a, T: Trace>(x: &mut Xdr<'a, '_, T>, operation: Operation, op: &mut Op<'a>) -> Read<()> {
    use Operation as O;
    match operation {
        O::BIND_CONN_TO_SESSION => {
            session_id(x)?;
            x.u32(f::BCTSR_DIR)?;
            x.bool(f::BCTSR_RDMA)?;
        }
        O::EXCHANGE_ID => {
            x.u64(super::f::CLIENTID)?;
            x.u32(super::f::SEQID)?;
            x.flags(f::EXCHANGE_REPLY_FLAGS, EXCHANGE_BITS)?;
            let how = x.u32(f::STATE_PROTECT)?;
            if how == 1 || how == 2 {
                protected_operations(x)?;
            }
            if how == 2 {
                for def in [f::HASH_ALG, f::ENCR_ALG, f::SSV_LENGTH, f::SPI_WINDOW] {
                    x.u32(def)?;
                }
                x.list(f::GSS_HANDLES, |x, _| x.opaque(f::GSS_HANDLE).map(drop))?;
            }
            x.scope(f::SERVER_OWNER, |x| {
                x.u64(f::MINOR_ID)?;
                x.opaque(f::MAJOR_ID).map(drop)
            })?;
            x.opaque(f::SCOPE)?;
            op.implementation = impl_id(x)?;
        }
        O::CREATE_SESSION => {
            session_id(x)?;
            x.u32(super::f::SEQID)?;
            x.flags(f::SESSION_FLAGS, SESSION_BITS)?;
            x.scope(f::FORE_CHANNEL, channel)?;
            x.scope(f::BACK_CHANNEL, channel)?;
        }
        O::GET_DIR_DELEGATION => {
            if x.u32(f::GDD_STATUS)? != 0 {
                x.bool(f::WILL_SIGNAL)?;
                return Ok(());
            }
            x.u64(super::f::VERIFIER)?;
            op.stateid = Some(stateid(x)?);
            notifications(x)?;
            bitmap(x)?;
            bitmap(x)?;
        }
        O::SECINFO_NO_NAME => secinfo(x)?,
        O::SEQUENCE => {
            let session = session_id(x)?;
            let (sequence, slot) = (x.u32(super::f::SEQID)?, x.u32(f::SLOT)?);
            x.u32(f::HIGH_SLOT)?;
            let highest = x.u32(f::TARGET_HIGH_SLOT)?;
            op.slot = Some(Slot { session, slot, sequence, highest });
            op.state_flags = Some(x.flags(f::FLAGS, SEQUENCE_BITS)?);
        }
        O::SET_SSV => drop(x.opaque(f::DIGEST)?),
        O::TEST_STATEID => {
            x.scope(f::RESULTS, |x| x.list(xdr::f::COUNT, |x, _| super::status(x).map(drop)).map(drop))?;
        }
        O::WANT_DELEGATION => delegation(x)?,
        _ => {}
    }
    Ok(())
}

pub(super) fn session_id<T: Trace>(x: &mut Xdr<'_, '_, T>) -> Read<[u8; 16]> {
    let bytes = x.fixed(f::SESSION_ID, 16)?;
    let mut session = [0; 16];
    session.copy_from_slice(bytes);
    Ok(session)
}

/// A set of notifications.
pub(super) fn notifications<T: Trace>(x: &mut Xdr<'_, '_, T>) -> Read<u32> {
    plain_bitmap(x, f::NOTIFY_BITMAP, f::NOTIFY_MASK, Some(f::NOTIFY_TYPE))
}

fn protected_operations<T: Trace>(x: &mut Xdr<'_, '_, T>) -> Read<()> {
    plain_bitmap(x, f::MUST_ENFORCE, f::OP_MASK, Some(f::PROTECTED_OP))?;
    plain_bitmap(x, f::MUST_ALLOW, f::OP_MASK, Some(f::PROTECTED_OP)).map(drop)
}

/// `nfs_impl_id4` (RFC 8881 3.3.22), of which there is one or none: the name of the product.
fn impl_id<'a, T: Trace>(x: &mut Xdr<'a, '_, T>) -> Read<Option<&'a [u8]>> {
    x.scope(f::IMPL_ID, |x| {
        let mut name = None;
        x.list(xdr::f::COUNT, |x, _| {
            x.opaque(f::NII_DOMAIN)?;
            name = Some(x.opaque(f::NII_NAME)?);
            nfstime(x)
        })?;
        Ok(name)
    })
}

/// `channel_attrs4` (RFC 8881 18.36).
fn channel<T: Trace>(x: &mut Xdr<'_, '_, T>) -> Read<()> {
    for def in [f::PADSIZE, f::MAXREQSIZE, f::MAXRESPSIZE, f::MAXRESPSIZE_CACHED, f::MAXOPS, f::MAXREQS] {
        x.u32(def)?;
    }
    x.list(xdr::f::COUNT, |x, _| x.u32(f::RDMA_IRD).map(drop)).map(drop)
}

/// `callback_sec_parms4` (RFC 8881 18.33): how the server is to authenticate in callbacks.
fn security<T: Trace>(x: &mut Xdr<'_, '_, T>) -> Read<()> {
    x.list(xdr::f::COUNT, |x, _| {
        match rpc::Flavor(x.u32(f::SEC_FLAVOR)?) {
            rpc::Flavor::SYS => {
                x.u32(f::STAMP)?;
                x.opaque(f::MACHINE)?;
                x.u32(f::UID)?;
                x.u32(f::GID)?;
                x.list(xdr::f::COUNT, |x, _| x.u32(f::GID).map(drop))?;
            }
            rpc::Flavor::GSS => {
                x.u32(f::SERVICE)?;
                x.opaque(f::GSS_HANDLE)?;
                x.opaque(f::GSS_HANDLE)?;
            }
            _ => {}
        }
        Ok(())
    })
    .map(drop)
}
