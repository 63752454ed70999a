//! pNFS: layouts and devices (RFC 8881 12, 13, 18.40 to 18.44), with the layout types files (RFC 8881 13.3), flexible
//! files (RFC 8435), block volumes (RFC 5663) and SCSI (RFC 8154); and LAYOUTERROR and LAYOUTSTATS (RFC 7862 15).

use super::super::{Op, handle};
use super::attr::LayoutType;
use super::session::notifications;
use super::{Operation, Status, nfstime, stateid};
use crate::field::Def;
use crate::trace::{Trace, Value};
use crate::wire::xdr::{self, Read, Xdr};

const IOMODES: crate::field::Values = &[(1, "LAYOUTIOMODE4_READ"), (2, "LAYOUTIOMODE4_RW"), (3, "LAYOUTIOMODE4_ANY")];
const RETURN_TYPES: crate::field::Values =
    &[(1, "LAYOUTRETURN4_FILE"), (2, "LAYOUTRETURN4_FSID"), (3, "LAYOUTRETURN4_ALL")];
const EXTENT_STATES: crate::field::Values =
    &[(0, "READ_WRITE_DATA"), (1, "READ_DATA"), (2, "INVALID_DATA"), (3, "NONE_DATA")];
const VOLUME_TYPES: crate::field::Values = &[
    (0, "PNFS_BLOCK_VOLUME_SIMPLE"),
    (1, "PNFS_BLOCK_VOLUME_SLICE"),
    (2, "PNFS_BLOCK_VOLUME_CONCAT"),
    (3, "PNFS_BLOCK_VOLUME_STRIPE"),
    (4, "PNFS_SCSI_VOLUME_BASE"),
];

fields! {
    /// Fields of pNFS.
    pub mod f ["RFC 8881 12"] {
        LAYOUTTYPE: U32 = "nfs.layouttype", "layout type", dec, values LayoutType::VALUES;
        DEVICEID: Bytes as Id = "nfs.deviceid", "device ID";
        MAXCOUNT: U32 = "nfs.maxcount", "maxcount", dec;
        MINCOUNT: U32 = "rdmascope.nfs.mincount", "mincount", dec;
        DEVICES_MAX: U32 = "nfs.devicenum4", "num devices", dec;
        COOKIE: U64 = "nfs.cookie4", "cookie", dec;
        COOKIE_VERF: U64 = "nfs.cookie_verf4", "cookie_verf", dec;
        EOF: U32 = "nfs.eof", "eof", dec;
        LENGTH: U32 = "rdmascope.nfs.layout.body_length", "length", dec;
        DEVICE: None = "rdmascope.nfs.device_addr", "device address";
        DEVINFO: Bytes = "nfs.devinfo", "dev info";
        LAYOUT: None = "rdmascope.nfs.layout4", "layout";
        LAYOUT_CONTENT: None = "rdmascope.nfs.layout_content", "layout content";
        LAYOUT_BYTES: Bytes = "nfs.layout", "layout";
        LAYOUTUPDATE: None = "rdmascope.nfs.layout_update", "layout update";
        LAYOUTUPDATE_BYTES: Bytes = "nfs.layoutupdate", "layout update";
        LRF_BODY: None = "rdmascope.nfs.lrf_body", "lrf_body";
        LRF_BYTES: Bytes = "nfs.lrf_body_content", "lrf_body_content";
        IOMODE: U32 = "nfs.iomode", "IO mode", dec, values IOMODES;
        RETURNTYPE: U32 = "nfs.returntype", "return type", dec, values RETURN_TYPES;
        AVAILABLE: Bool = "nfs.layoutavail", "layout available?";
        WILL_SIGNAL: Bool = "rdmascope.nfs.layout.will_signal", "will signal layout available?";
        RETURN_ON_CLOSE: Bool = "nfs.retclose4", "return on close?";
        MINLENGTH: U64 = "nfs.minlength4", "min length", dec;
        RECLAIM: Bool = "nfs.reclaim4", "reclaim";
        STATEID_PRESENT: Bool = "nfs.lrs_present", "StateID present?";
        NEWOFFSET: Bool = "nfs.newoffset", "new offset?";
        NEWTIME: Bool = "nfs.newtime", "new time?";
        NEWSIZE: Bool = "nfs.newsize", "new size?";
        NFL_UTIL: U32 = "nfs.nfl_util", "nfl_util", hex;
        NFL_DENSE: U32 = "nfs.nfl_util.dense", "dense layout", dec;
        NFL_COMMIT: U32 = "nfs.nfl_util.commit_thru_mds", "commit thru mds", dec;
        /// In bytes: the upper 26 bits where they stand.
        NFL_STRIPE: U32 = "nfs.nfl_util.stripe_size", "stripe size", dec;
        NFL_FIRST: U32 = "nfs.nfl_first_stripe_index", "first stripe to use index", dec;
        NFL_FHS: U32 = "nfs.nfl_fhs", "file handles", hex;
        STRIPE_INDICES: None = "rdmascope.nfs.stripe_indices", "stripe indices";
        DEVICEIDX: U32 = "nfs.deviceidx", "device index", dec;
        MULTIPATH: None = "rdmascope.nfs.multipath", "multipath list";
        STRIPEUNIT: U64 = "nfs.stripeunit", "stripe unit", dec;
        MIRRORS: U32 = "nfs.nfl_mirrors", "Mirror", dec;
        MIRROR: None = "rdmascope.nfs.ff.mirror", "mirror";
        DATA_SERVER: None = "rdmascope.nfs.ff.data_server", "data server";
        EFFICIENCY: U32 = "nfs.nff_mirror_eff", "mirror efficiency", hex;
        FF_OWNER: Str = "nfs.ff.synthetic_owner", "synthetic owner";
        FF_GROUP: Str = "nfs.ff.synthetic_owner_group", "synthetic group";
        FF_FLAGS: U32 = "nfs.ff.layout_flags", "layout flags", hex;
        FF_NO_LAYOUTCOMMIT: Bool & 0x1 / 32 = "nfs.ff.layout_flags.no_layoutcommit", "FLAG_NO_LAYOUTCOMMIT";
        FF_NO_IO_THRU_MDS: Bool & 0x2 / 32 = "nfs.ff.layout_flags.no_io_thru_mds", "FLAG_NO_IO_THRU_MDS";
        FF_NO_READ_IO: Bool & 0x4 / 32 = "nfs.ff.layout_flags.no_read_io", "FLAG_NO_READ_IO";
        FF_STATS_HINT: U32 = "nfs.ff.stats_collect_hint", "stats collect hint", dec;
        FF_VERSIONS: None = "rdmascope.nfs.ff.versions", "versions";
        FF_VERSION: U32 = "nfs.ff.version", "version", dec;
        FF_MINORVERSION: U32 = "nfs.ff.minorversion", "minorversion", dec;
        FF_RSIZE: U32 = "nfs.ff.rsize", "max_rsize", dec;
        FF_WSIZE: U32 = "nfs.ff.wsize", "max_wsize", dec;
        FF_TIGHTLY: Bool = "nfs.ff.tightly_coupled", "tightly coupled";
        FF_IOERRS: U32 = "nfs.ff.ioerrs_count", "IO Errors count", dec;
        FF_IOERR: None = "rdmascope.nfs.ff.ioerr", "IO error";
        FF_IOSTATS: U32 = "nfs.ff.iostats_count", "IO Stats count", dec;
        FF_IOSTAT: None = "rdmascope.nfs.ff.iostat", "IO stats";
        FF_READ: None = "rdmascope.nfs.ff.read", "read";
        FF_WRITE: None = "rdmascope.nfs.ff.write", "write";
        FF_OPS_REQUESTED: U64 = "nfs.ff.ops_requested", "ops requested", dec;
        FF_BYTES_REQUESTED: U64 = "nfs.ff.bytes_requested", "bytes requested", dec;
        FF_OPS_COMPLETED: U64 = "nfs.ff.ops_completed", "ops completed", dec;
        FF_BYTES_COMPLETED: U64 = "nfs.ff.bytes_completed", "bytes completed", dec;
        FF_BYTES_NOT_DELIVERED: U64 = "nfs.ff.bytes_not_delivered", "bytes not delivered", dec;
        FF_BUSY: None = "rdmascope.nfs.ff.total_busy_time", "total busy time";
        FF_COMPLETION: None = "rdmascope.nfs.ff.aggregate_completion_time", "aggregate completion time";
        FF_DURATION: None = "rdmascope.nfs.ff.duration", "duration";
        FF_LOCAL: Bool = "nfs.ff.local", "client used cache?";
        IO_COUNT: U64 = "nfs.io_count", "count", dec;
        IO_BYTES: U64 = "nfs.io_bytes", "bytes", dec;
        DEVICE_ERRORS: U32 = "nfs.device_error_count", "Device Error count", dec;
        DEVICE_ERROR: None = "rdmascope.nfs.device_error", "device error";
        DEVICE_ERROR_OP: U32 = "nfs.ff_ioerrs_op", "OP", dec, values Operation::VALUES;
        EXTENT: None = "rdmascope.nfs.extent", "extent";
        EXTENT_OFFSET: U64 = "nfs.scsil_ext_file_offset", "file offset", dec;
        EXTENT_LENGTH: U64 = "nfs.scsil_ext_length", "length", dec;
        EXTENT_VOLUME: U64 = "nfs.scsill_ext_vol_offset", "volume offset", dec;
        EXTENT_STATE: U32 = "nfs.scsil_ext_state", "extent state", dec, values EXTENT_STATES;
        VOLUME: None = "rdmascope.nfs.devaddr.volume", "volume";
        VOLUME_TYPE: U32 = "nfs.devaddr.scsi_volume_type", "SCSI volume type", dec, values VOLUME_TYPES;
        SIGNATURE_OFFSET: U64 = "rdmascope.nfs.devaddr.signature_offset", "signature offset", dec;
        SIGNATURE: Bytes as Id = "rdmascope.nfs.devaddr.signature", "signature";
        SLICE_START: U64 = "rdmascope.nfs.devaddr.slice_start", "slice start", dec;
        SLICE_LENGTH: U64 = "rdmascope.nfs.devaddr.slice_length", "slice length", dec;
        STRIPE_UNIT: U64 = "rdmascope.nfs.devaddr.stripe_unit", "stripe size", dec;
        VOLUME_REF: U32 = "nfs.devaddr.scsi_volume_ref_index", "volume index ref", dec;
        VPD_CODE_SET: U32 = "nfs.devaddr.scsi_vpd_code_set", "VPD code set", dec;
        VPD_DESIGNATOR_TYPE: U32 = "nfs.devaddr.scsi_vpd_designator_type", "VPD designator type", dec;
        VPD_DESIGNATOR: Bytes as Id = "nfs.devaddr.scsi_vpd_designator", "VPD designator";
        PRIVATE_KEY: Bytes as Secret = "nfs.devaddr.scsi_private_key", "private key";
    }
}

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
        O::GETDEVICEINFO => {
            x.fixed(f::DEVICEID, 16)?;
            x.u32(f::LAYOUTTYPE)?;
            x.u32(f::MAXCOUNT)?;
            notifications(x)?;
        }
        O::GETDEVICELIST => {
            x.u32(f::LAYOUTTYPE)?;
            x.u32(f::DEVICES_MAX)?;
            x.u64(f::COOKIE)?;
            x.u64(f::COOKIE_VERF)?;
        }
        O::LAYOUTCOMMIT => {
            range(x)?;
            x.bool(f::RECLAIM)?;
            op.stateid = Some(stateid(x)?);
            if x.bool(f::NEWOFFSET)? {
                x.u64(super::f::OFFSET)?;
            }
            if x.bool(f::NEWTIME)? {
                super::time(x, super::f::TIME)?;
            }
            layout_update(x)?;
        }
        O::LAYOUTGET => {
            x.bool(f::AVAILABLE)?;
            x.u32(f::LAYOUTTYPE)?;
            x.u32(f::IOMODE)?;
            range(x)?;
            x.u64(f::MINLENGTH)?;
            op.stateid = Some(stateid(x)?);
            x.u32(f::MAXCOUNT)?;
        }
        O::LAYOUTRETURN => {
            x.bool(f::RECLAIM)?;
            let kind = LayoutType(x.u32(f::LAYOUTTYPE)?);
            x.u32(f::IOMODE)?;
            if x.u32(f::RETURNTYPE)? == 1 {
                range(x)?;
                op.stateid = Some(stateid(x)?);
                body(x, f::LRF_BODY, |x| match kind {
                    LayoutType::FLEX_FILES => flex_return(x),
                    _ => rest(x, f::LRF_BYTES),
                })?;
            }
        }
        O::LAYOUTERROR => {
            range(x)?;
            op.stateid = Some(stateid(x)?);
            x.list(f::DEVICE_ERRORS, |x, _| device_error(x))?;
        }
        O::LAYOUTSTATS => {
            range(x)?;
            op.stateid = Some(stateid(x)?);
            io_info(x, f::FF_READ)?;
            io_info(x, f::FF_WRITE)?;
            x.fixed(f::DEVICEID, 16)?;
            layout_update(x)?;
        }
        _ => {}
    }
    Ok(())
}

fn results<'a, T: Trace>(x: &mut Xdr<'a, '_, T>, operation: Operation, op: &mut Op<'a>) -> Read<()> {
    use Operation as O;
    match (operation, Status(op.status.unwrap_or(0))) {
        (O::GETDEVICEINFO, Status::OK) => {
            let kind = LayoutType(x.u32(f::LAYOUTTYPE)?);
            body(x, f::DEVICE, |x| device(x, kind))?;
            notifications(x)?;
        }
        (O::GETDEVICEINFO, Status::TOOSMALL) => drop(x.u32(f::MINCOUNT)?),
        (O::GETDEVICELIST, Status::OK) => {
            x.u64(f::COOKIE)?;
            x.u64(f::COOKIE_VERF)?;
            x.list(f::DEVICES_MAX, |x, _| x.fixed(f::DEVICEID, 16).map(drop))?;
            x.bool_number(f::EOF)?;
        }
        (O::LAYOUTCOMMIT, Status::OK) => {
            let new = x.bool(f::NEWSIZE)?;
            if new {
                x.u64(super::f::LENGTH)?;
            }
        }
        (O::LAYOUTGET, Status::OK) => {
            x.bool(f::RETURN_ON_CLOSE)?;
            op.stateid = Some(stateid(x)?);
            x.list(xdr::f::COUNT, |x, _| x.scope(f::LAYOUT, layout))?;
        }
        (O::LAYOUTGET, Status::LAYOUTTRYLATER) => drop(x.bool(f::WILL_SIGNAL)?),
        (O::LAYOUTRETURN, Status::OK) => {
            let present = x.bool(f::STATEID_PRESENT)?;
            if present {
                op.stateid = Some(stateid(x)?);
            }
        }
        _ => {}
    }
    Ok(())
}

fn range<T: Trace>(x: &mut Xdr<'_, '_, T>) -> Read<()> {
    x.u64(super::f::OFFSET)?;
    x.u64(super::f::LENGTH).map(drop)
}

fn rest<T: Trace>(x: &mut Xdr<'_, '_, T>, def: Def) -> Read<()> {
    if !x.i.is_empty() {
        x.rest(def);
    }
    Ok(())
}

/// An opaque body whose content depends on the layout type.
fn body<T: Trace>(x: &mut Xdr<'_, '_, T>, node: Def, decode: impl FnOnce(&mut Xdr<'_, '_, T>) -> Read<()>) -> Read<()> {
    if !T::ON {
        return x.opaque(node).map(drop);
    }
    let length = x.u32(f::LENGTH)? as usize;
    x.within(node, length, decode)?;
    x.pad(length)
}

fn layout<T: Trace>(x: &mut Xdr<'_, '_, T>) -> Read<()> {
    range(x)?;
    x.u32(f::IOMODE)?;
    let kind = LayoutType(x.u32(f::LAYOUTTYPE)?);
    if T::ON {
        x.t.label(format_args!(": {kind}"));
    }
    body(x, f::LAYOUT_CONTENT, |x| match kind {
        LayoutType::FILES => {
            x.fixed(f::DEVICEID, 16)?;
            let at = x.i;
            let util = x.u32(f::NFL_UTIL)?;
            x.t.down();
            for (def, value) in
                [(f::NFL_DENSE, util & 1), (f::NFL_COMMIT, util >> 1 & 1), (f::NFL_STRIPE, util & !0x3f)]
            {
                x.t.field(def, at, 4, Value::U(value.into()));
            }
            x.t.up();
            x.u32(f::NFL_FIRST)?;
            x.u64(super::f::OFFSET)?;
            x.list(f::NFL_FHS, |x, _| handle(x, super::f::FILEHANDLE).map(drop)).map(drop)
        }
        LayoutType::FLEX_FILES => {
            x.u64(f::STRIPEUNIT)?;
            x.list(f::MIRRORS, |x, _| {
                x.scope(f::MIRROR, |x| x.list(xdr::f::COUNT, |x, _| x.scope(f::DATA_SERVER, data_server)).map(drop))
            })?;
            x.flags(f::FF_FLAGS, &[f::FF_NO_LAYOUTCOMMIT, f::FF_NO_IO_THRU_MDS, f::FF_NO_READ_IO])?;
            x.u32(f::FF_STATS_HINT).map(drop)
        }
        LayoutType::BLOCK | LayoutType::SCSI => extents(x),
        _ => rest(x, f::LAYOUT_BYTES),
    })
}

/// `ff_data_server4` (RFC 8435 5.1).
fn data_server<T: Trace>(x: &mut Xdr<'_, '_, T>) -> Read<()> {
    x.fixed(f::DEVICEID, 16)?;
    x.u32(f::EFFICIENCY)?;
    stateid(x)?;
    x.list(f::NFL_FHS, |x, _| handle(x, super::f::FILEHANDLE).map(drop))?;
    x.opaque(f::FF_OWNER)?;
    x.opaque(f::FF_GROUP).map(drop)
}

/// `pnfs_block_extent4` (RFC 5663 2.3.1), the same for SCSI.
fn extents<T: Trace>(x: &mut Xdr<'_, '_, T>) -> Read<()> {
    x.list(xdr::f::COUNT, |x, _| {
        x.scope(f::EXTENT, |x| {
            x.fixed(f::DEVICEID, 16)?;
            x.u64(f::EXTENT_OFFSET)?;
            x.u64(f::EXTENT_LENGTH)?;
            x.u64(f::EXTENT_VOLUME)?;
            x.u32(f::EXTENT_STATE).map(drop)
        })
    })
    .map(drop)
}

fn device<T: Trace>(x: &mut Xdr<'_, '_, T>, kind: LayoutType) -> Read<()> {
    match kind {
        LayoutType::FILES => {
            x.scope(f::STRIPE_INDICES, |x| x.list(xdr::f::COUNT, |x, _| x.u32(f::DEVICEIDX).map(drop)).map(drop))?;
            x.list(xdr::f::COUNT, |x, _| multipath(x)).map(drop)
        }
        LayoutType::FLEX_FILES => {
            multipath(x)?;
            x.list(xdr::f::COUNT, |x, _| {
                x.scope(f::FF_VERSIONS, |x| {
                    for def in [f::FF_VERSION, f::FF_MINORVERSION, f::FF_RSIZE, f::FF_WSIZE] {
                        x.u32(def)?;
                    }
                    x.bool(f::FF_TIGHTLY).map(drop)
                })
            })
            .map(drop)
        }
        LayoutType::BLOCK | LayoutType::SCSI => x.list(xdr::f::COUNT, |x, _| x.scope(f::VOLUME, volume)).map(drop),
        _ => rest(x, f::DEVINFO),
    }
}

fn multipath<T: Trace>(x: &mut Xdr<'_, '_, T>) -> Read<()> {
    x.scope(f::MULTIPATH, |x| x.list(xdr::f::COUNT, |x, _| super::netaddr(x)).map(drop))
}

/// `pnfs_block_volume4` (RFC 5663 2.2.2) and `pnfs_scsi_volume4` (RFC 8154 2.3.1), whose types do not collide.
fn volume<T: Trace>(x: &mut Xdr<'_, '_, T>) -> Read<()> {
    let references = |x: &mut Xdr<'_, '_, T>| x.list(xdr::f::COUNT, |x, _| x.u32(f::VOLUME_REF).map(drop)).map(drop);
    match x.u32(f::VOLUME_TYPE)? {
        0 => x
            .list(xdr::f::COUNT, |x, _| {
                x.u64(f::SIGNATURE_OFFSET)?;
                x.opaque(f::SIGNATURE).map(drop)
            })
            .map(drop),
        1 => {
            x.u64(f::SLICE_START)?;
            x.u64(f::SLICE_LENGTH)?;
            x.u32(f::VOLUME_REF).map(drop)
        }
        2 => references(x),
        3 => {
            x.u64(f::STRIPE_UNIT)?;
            references(x)
        }
        4 => {
            x.u32(f::VPD_CODE_SET)?;
            x.u32(f::VPD_DESIGNATOR_TYPE)?;
            x.opaque(f::VPD_DESIGNATOR)?;
            x.fixed(f::PRIVATE_KEY, 8).map(drop)
        }
        _ => Ok(()),
    }
}

fn layout_update<T: Trace>(x: &mut Xdr<'_, '_, T>) -> Read<()> {
    let kind = LayoutType(x.u32(f::LAYOUTTYPE)?);
    body(x, f::LAYOUTUPDATE, |x| match kind {
        LayoutType::FLEX_FILES if !x.i.is_empty() => flex_update(x),
        LayoutType::BLOCK if !x.i.is_empty() => extents(x),
        LayoutType::SCSI if !x.i.is_empty() => x
            .list(xdr::f::COUNT, |x, _| {
                x.scope(f::EXTENT, |x| {
                    x.u64(f::EXTENT_OFFSET)?;
                    x.u64(f::EXTENT_LENGTH).map(drop)
                })
            })
            .map(drop),
        _ => rest(x, f::LAYOUTUPDATE_BYTES),
    })
}

/// `ff_layoutupdate4` (RFC 8435 9.2.3).
fn flex_update<T: Trace>(x: &mut Xdr<'_, '_, T>) -> Read<()> {
    super::netaddr(x)?;
    handle(x, super::f::FILEHANDLE)?;
    latency(x, f::FF_READ)?;
    latency(x, f::FF_WRITE)?;
    super::time(x, f::FF_DURATION)?;
    x.bool(f::FF_LOCAL).map(drop)
}

/// `ff_io_latency4` (RFC 8435 9.2.1).
fn latency<T: Trace>(x: &mut Xdr<'_, '_, T>, node: Def) -> Read<()> {
    x.scope(node, |x| {
        for def in [
            f::FF_OPS_REQUESTED,
            f::FF_BYTES_REQUESTED,
            f::FF_OPS_COMPLETED,
            f::FF_BYTES_COMPLETED,
            f::FF_BYTES_NOT_DELIVERED,
        ] {
            x.u64(def)?;
        }
        x.scope(f::FF_BUSY, nfstime)?;
        x.scope(f::FF_COMPLETION, nfstime)
    })
}

fn io_info<T: Trace>(x: &mut Xdr<'_, '_, T>, node: Def) -> Read<()> {
    x.scope(node, |x| {
        x.u64(f::IO_COUNT)?;
        x.u64(f::IO_BYTES).map(drop)
    })
}

fn device_error<T: Trace>(x: &mut Xdr<'_, '_, T>) -> Read<()> {
    x.scope(f::DEVICE_ERROR, |x| {
        x.fixed(f::DEVICEID, 16)?;
        super::status(x)?;
        x.u32(f::DEVICE_ERROR_OP).map(drop)
    })
}

/// `ff_layoutreturn4` (RFC 8435 9.3).
fn flex_return<T: Trace>(x: &mut Xdr<'_, '_, T>) -> Read<()> {
    if x.i.is_empty() {
        return Ok(());
    }
    x.list(f::FF_IOERRS, |x, _| {
        x.scope(f::FF_IOERR, |x| {
            range(x)?;
            stateid(x)?;
            x.list(f::DEVICE_ERRORS, |x, _| device_error(x)).map(drop)
        })
    })?;
    x.list(f::FF_IOSTATS, |x, _| {
        x.scope(f::FF_IOSTAT, |x| {
            range(x)?;
            stateid(x)?;
            io_info(x, f::FF_READ)?;
            io_info(x, f::FF_WRITE)?;
            x.fixed(f::DEVICEID, 16)?;
            flex_update(x)
        })
    })
    .map(drop)
}
