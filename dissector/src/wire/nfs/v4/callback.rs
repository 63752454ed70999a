//! The operations of callbacks (RFC 8881 20, RFC 7862 16): requests of a server to its client, in the backward
//! direction.

use super::super::{Op, Slot};
use super::attr::{bitmap, fattr, plain_bitmap};
use super::copy::{f as copy_f, write_response};
use super::file::{delegation, f as file_f, owner};
use super::layout::f as layout_f;
use super::session::{f as session_f, session_id};
use super::{CallbackOperation, filehandle, fsid, stateid};
use crate::trace::Trace;
use crate::wire::xdr::{self, Read, Xdr};

fields! {
    /// Fields of callbacks.
    pub mod f ["RFC 8881 20"] {
        TRUNCATE: Bool = "nfs.truncate", "Truncate?";
        CHANGED: Bool = "nfs.clorachanged", "Clora changed";
        RECALLTYPE: U32 = "nfs.recalltype", "recall type", dec, values &[(1, "LAYOUTRECALL4_FILE"), (2, "LAYOUTRECALL4_FSID"), (3, "LAYOUTRECALL4_ALL")];
        CHANGE: None = "rdmascope.nfs.cb_notify.change", "change";
        NOTIFY_LENGTH: U32 = "rdmascope.nfs.cb_notify.length", "length", dec;
        NOTIFY: None = "rdmascope.nfs.cb_notify", "notification";
        ENTRY: None = "rdmascope.nfs.cb_notify.entry", "entry";
        REMOVED: None = "rdmascope.nfs.cb_notify.removed", "removed entry";
        ADDED: None = "rdmascope.nfs.cb_notify.added", "added entry";
        PREVIOUS: None = "rdmascope.nfs.cb_notify.previous", "entry before it";
        LAST: Bool = "rdmascope.nfs.cb_notify.last", "last entry";
        DEVICE: None = "rdmascope.nfs.cb_notify.device", "device";
        IMMEDIATE: Bool = "rdmascope.nfs.cb_notify.immediate", "immediate";
        KEEP: U32 = "nfs.objects_to_keep", "objects to keep", dec;
        TYPES: None = "rdmascope.nfs.recall_any.types", "types";
        TYPE_MASK: U32 = "rdmascope.nfs.recall_any.mask", "type mask", hex;
        TYPE: U32 = "rdmascope.nfs.recall_any.type", "type", dec, values &[
            (0, "RCA4_TYPE_MASK_RDATA_DLG"), (1, "RCA4_TYPE_MASK_WDATA_DLG"), (2, "RCA4_TYPE_MASK_DIR_DLG"), (3, "RCA4_TYPE_MASK_FILE_LAYOUT"),
            (4, "RCA4_TYPE_MASK_BLK_LAYOUT"), (16, "PNFS_FF_RCA4_TYPE_MASK_READ"), (17, "PNFS_FF_RCA4_TYPE_MASK_RW")];
        REFERRING: None = "rdmascope.nfs.referring_calls", "referring calls";
        CONTENDED: Bool = "rdmascope.nfs.cwca_contended", "contended wants cancelled";
        RESOURCED: Bool = "rdmascope.nfs.cwca_resourced", "resourced wants cancelled";
    }
}

/// Decodes arguments or results; `false` where there is no such operation.
pub(super) fn decode<'a, T: Trace>(
    x: &mut Xdr<'a, '_, T>,
    call: bool,
    operation: CallbackOperation,
    op: &mut Op<'a>,
) -> Read<bool> {
    if call {
        arguments(x, operation, op)?;
    } else if op.status == Some(0) {
        results(x, operation, op)?;
    }
    Ok(operation.name().is_some())
}

fn arguments<'a, T: Trace>(x: &mut Xdr<'a, '_, T>, operation: CallbackOperation, op: &mut Op<'a>) -> Read<()> {
    use CallbackOperation as O;
    match operation {
        O::CB_GETATTR => {
            filehandle(x, op)?;
            bitmap(x)?;
        }
        O::CB_RECALL => {
            op.stateid = Some(stateid(x)?);
            x.bool(f::TRUNCATE)?;
            filehandle(x, op)?;
        }
        O::CB_LAYOUTRECALL => {
            x.u32(layout_f::LAYOUTTYPE)?;
            x.u32(layout_f::IOMODE)?;
            x.bool(f::CHANGED)?;
            match x.u32(f::RECALLTYPE)? {
                1 => {
                    filehandle(x, op)?;
                    x.u64(super::f::OFFSET)?;
                    x.u64(super::f::LENGTH)?;
                    op.stateid = Some(stateid(x)?);
                }
                2 => fsid(x)?,
                _ => {}
            }
        }
        O::CB_NOTIFY => {
            op.stateid = Some(stateid(x)?);
            filehandle(x, op)?;
            x.list(xdr::f::COUNT, |x, _| x.scope(f::CHANGE, |x| notify(x, false)))?;
        }
        O::CB_PUSH_DELEG => {
            filehandle(x, op)?;
            delegation(x)?;
        }
        O::CB_RECALL_ANY | O::CB_RECALLABLE_OBJ_AVAIL => {
            x.u32(f::KEEP)?;
            plain_bitmap(x, f::TYPES, f::TYPE_MASK, Some(f::TYPE))?;
        }
        O::CB_RECALL_SLOT => drop(x.u32(session_f::TARGET_HIGH_SLOT)?),
        O::CB_SEQUENCE => {
            let session = session_id(x)?;
            let (sequence, slot) = (x.u32(super::f::SEQID)?, x.u32(session_f::SLOT)?);
            let highest = x.u32(session_f::HIGH_SLOT)?;
            op.slot = Some(Slot { session, slot, sequence, highest });
            x.bool(session_f::CACHETHIS)?;
            x.list(xdr::f::COUNT, |x, _| {
                x.scope(f::REFERRING, |x| {
                    session_id(x)?;
                    x.list(xdr::f::COUNT, |x, _| {
                        x.u32(super::f::SEQID)?;
                        x.u32(session_f::SLOT).map(drop)
                    })
                    .map(drop)
                })
            })?;
        }
        O::CB_WANTS_CANCELLED => {
            x.bool(f::CONTENDED)?;
            x.bool(f::RESOURCED)?;
        }
        O::CB_NOTIFY_LOCK => {
            filehandle(x, op)?;
            owner(x, file_f::LOCK_OWNER)?;
        }
        O::CB_NOTIFY_DEVICEID => drop(x.list(xdr::f::COUNT, |x, _| x.scope(f::CHANGE, |x| notify(x, true)))?),
        O::CB_OFFLOAD => {
            filehandle(x, op)?;
            op.stateid = Some(stateid(x)?);
            if super::status(x)? == 0 {
                write_response(x)?;
            } else {
                x.u64(copy_f::BYTES_COPIED)?;
            }
        }
        _ => {}
    }
    Ok(())
}

fn results<'a, T: Trace>(x: &mut Xdr<'a, '_, T>, operation: CallbackOperation, op: &mut Op<'a>) -> Read<()> {
    use CallbackOperation as O;
    match operation {
        O::CB_GETATTR => fattr(x)?,
        O::CB_SEQUENCE => {
            let session = session_id(x)?;
            let (sequence, slot) = (x.u32(super::f::SEQID)?, x.u32(session_f::SLOT)?);
            x.u32(session_f::HIGH_SLOT)?;
            let highest = x.u32(session_f::TARGET_HIGH_SLOT)?;
            op.slot = Some(Slot { session, slot, sequence, highest });
        }
        _ => {}
    }
    Ok(())
}

/// `notify4` (RFC 8881 20.4): a bitmap says which changes the opaque body contains, in the order of its bits.
fn notify<T: Trace>(x: &mut Xdr<'_, '_, T>, devices: bool) -> Read<()> {
    let mask = super::session::notifications(x)?;
    if !T::ON {
        return x.opaque(f::NOTIFY).map(drop);
    }
    let length = x.u32(f::NOTIFY_LENGTH)? as usize;
    x.within(f::NOTIFY, length, |x| {
        for bit in (0..32).filter(|bit| mask >> bit & 1 != 0) {
            match (bit, devices) {
                (0, false) => x.scope(f::ENTRY, entry)?,
                (1, false) => fattr(x)?,
                (2, false) => removed(x)?,
                (3, false) => added(x)?,
                (4, false) => {
                    removed(x)?;
                    added(x)?;
                }
                (5, false) => {
                    x.u64(file_f::COOKIE_VERF)?;
                    x.u64(file_f::COOKIE_VERF)?;
                }
                (1 | 2, true) => x.scope(f::DEVICE, |x| {
                    x.u32(layout_f::LAYOUTTYPE)?;
                    x.fixed(layout_f::DEVICEID, 16)?;
                    if bit == 1 {
                        x.bool(f::IMMEDIATE)?;
                    }
                    Ok(())
                })?,
                // of unknown length: the remaining arguments are reported as bytes
                _ => return Ok(()),
            }
        }
        Ok(())
    })?;
    x.pad(length)
}

fn entry<T: Trace>(x: &mut Xdr<'_, '_, T>) -> Read<()> {
    x.opaque(file_f::ENTRY_NAME)?;
    fattr(x)
}

fn entry_with_cookie<T: Trace>(x: &mut Xdr<'_, '_, T>) -> Read<()> {
    entry(x)?;
    x.u64(file_f::COOKIE).map(drop)
}

fn removed<T: Trace>(x: &mut Xdr<'_, '_, T>) -> Read<()> {
    x.scope(f::REMOVED, entry_with_cookie)
}

/// `notify_add4`: the replaced entry, the new entry, its cookie, the entry before it.
fn added<T: Trace>(x: &mut Xdr<'_, '_, T>) -> Read<()> {
    x.scope(f::ADDED, |x| {
        x.list(xdr::f::COUNT, |x, _| removed(x))?;
        x.scope(f::ENTRY, entry)?;
        x.list(xdr::f::COUNT, |x, _| x.u64(file_f::COOKIE).map(drop))?;
        x.list(xdr::f::COUNT, |x, _| x.scope(f::PREVIOUS, entry_with_cookie))?;
        x.bool(f::LAST).map(drop)
    })
}
