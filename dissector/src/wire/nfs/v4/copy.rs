//! The operations that NFS 4.2 added, without pNFS operations (RFC 7862 15): copies, holes, space; and extended
//! attributes (RFC 8276 8.4).

use super::super::{Io, Op, ShownText};
use super::attr::plain_bitmap;
use super::file::f as file_f;
use super::{Operation, Status, change_info, stateid};
use crate::trace::Trace;
use crate::wire::xdr::{self, Read, Xdr};

const CONTENTS: crate::field::Values = &[(0, "NFS4_CONTENT_DATA"), (1, "NFS4_CONTENT_HOLE")];
const NETLOCS: crate::field::Values = &[(1, "NL4_NAME"), (2, "NL4_URL"), (3, "NL4_NETADDR")];
const HINTS: crate::field::Values = &[
    (0, "IO_ADVISE4_NORMAL"),
    (1, "IO_ADVISE4_SEQUENTIAL"),
    (2, "IO_ADVISE4_SEQUENTIAL_BACKWARDS"),
    (3, "IO_ADVISE4_RANDOM"),
    (4, "IO_ADVISE4_WILLNEED"),
    (5, "IO_ADVISE4_WILLNEED_OPPORTUNISTIC"),
    (6, "IO_ADVISE4_DONTNEED"),
    (7, "IO_ADVISE4_NOREUSE"),
    (8, "IO_ADVISE4_READ"),
    (9, "IO_ADVISE4_WRITE"),
    (10, "IO_ADVISE4_INIT_PROXIMITY"),
];

fields! {
    /// Fields of 4.2 and of extended attributes.
    pub mod f ["RFC 7862 15"] {
        SOURCE: None = "rdmascope.nfs.copy.source", "source";
        DESTINATION: None = "rdmascope.nfs.copy.destination", "destination";
        CONSECUTIVE: Bool = "nfs.consecutive", "copy consecutively?";
        SYNCHRONOUS: Bool = "nfs.synchronous", "copy synchronous?";
        SOURCE_SERVERS: U32 = "nfs.source_servers", "Source Server count", dec;
        NETLOC: None = "rdmascope.nfs.netloc4", "net loc";
        NETLOCTYPE: U32 = "nfs.netloctype", "netloc type", dec, values NETLOCS;
        NL_NAME: Str = "nfs.nl_name", "net loc name";
        NL_URL: Str = "nfs.nl_url", "net loc url";
        LEASE_TIME: None = "rdmascope.nfs.copy.lease_time", "lease time";
        CALLBACK_IDS: U32 = "nfs.callback_ids", "Callback StateIds", dec;
        HINT_BITMAP: None = "rdmascope.nfs.hint", "hints";
        HINT_MASK: U32 = "nfs.hint.mask", "Hint mask", hex;
        HINT: U32 = "nfs.hint.hint", "Hint", dec, values HINTS;
        BYTES_COPIED: U64 = "nfs.bytes_copied", "bytes copied", dec;
        OFFLOADS: U32 = "nfs.num_offload_status", "Number of offload status", dec;
        OFFLOAD_STATUS: U32 = "nfs.offload_status", "nfsstat4", dec, values Status::VALUES;
        CONTENT: None = "nfs.contents", "Contents";
        CONTENT_TYPE: U32 = "nfs.content.type", "Content Type", dec, values CONTENTS;
        DATA_CONTENT: U32 = "nfs.data_content", "data content", dec, values CONTENTS;
        BLOCK_SIZE: U64 = "rdmascope.nfs.adb.block_size", "Block size", dec;
        BLOCK_COUNT: U64 = "rdmascope.nfs.adb.block_count", "Number of Blocks", dec;
        BLOCK_RELOFF: U64 = "rdmascope.nfs.adb.reloff_blocknum", "Relative Offset Block Number", dec;
        BLOCK_NUM: U32 = "nfs.adb.block.num", "Block Number", dec;
        PATTERN_RELOFF: U64 = "rdmascope.nfs.adb.reloff_pattern", "Relative Offset Pattern", dec;
        PATTERN: Bytes = "rdmascope.nfs.adb.pattern", "Pattern";
        XATTR_KEY: Str = "nfs.xattr.key", "Name";
        XATTR_VALUE: Bytes as Data = "rdmascope.nfs.xattr.value", "Value";
        XATTR_OPTIONS: U32 = "nfs.setxattr.options", "setxattr options", dec, values &[(0, "SETXATTR4_EITHER"), (1, "SETXATTR4_CREATE"), (2, "SETXATTR4_REPLACE")];
        LIST_COOKIE: U64 = "nfs.lisxtattr.cookie", "cookie", dec;
        LIST_MAXCOUNT: U32 = "nfs.lisxtattr.maxcount", "maxcount", dec;
        LIST_NAMES: U32 = "nfs.listxattr.names.count", "xattr names count", dec;
        LIST_EOF: U32 = "nfs.lisxtattr.eof", "eof", dec, values &[(0, "No"), (1, "Yes")];
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
        O::ALLOCATE | O::DEALLOCATE => {
            op.stateid = Some(stateid(x)?);
            range(x)?;
        }
        O::COPY => {
            x.scope(f::SOURCE, |x| stateid(x).map(drop))?;
            op.stateid = Some(x.scope(f::DESTINATION, stateid)?);
            x.u64(super::f::OFFSET)?;
            x.u64(super::f::OFFSET)?;
            x.u64(super::f::LENGTH)?;
            requirements(x)?;
            x.list(f::SOURCE_SERVERS, |x, _| netloc(x))?;
        }
        O::COPY_NOTIFY => {
            op.stateid = Some(stateid(x)?);
            netloc(x)?;
        }
        O::IO_ADVISE => {
            op.stateid = Some(stateid(x)?);
            range(x)?;
            plain_bitmap(x, f::HINT_BITMAP, f::HINT_MASK, Some(f::HINT))?;
        }
        O::OFFLOAD_CANCEL | O::OFFLOAD_STATUS => op.stateid = Some(stateid(x)?),
        O::READ_PLUS => {
            op.stateid = Some(stateid(x)?);
            op.io = Some(Io { offset: x.u64(super::f::OFFSET)?, count: x.u32(super::f::COUNT)?, ..Io::default() });
        }
        O::SEEK => {
            op.stateid = Some(stateid(x)?);
            x.u64(super::f::OFFSET)?;
            x.u32(f::DATA_CONTENT)?;
        }
        O::WRITE_SAME => {
            op.stateid = Some(stateid(x)?);
            x.u32(super::f::STABLE)?;
            x.u64(super::f::OFFSET)?;
            x.u64(f::BLOCK_SIZE)?;
            x.u64(f::BLOCK_COUNT)?;
            x.u64(f::BLOCK_RELOFF)?;
            x.u32(f::BLOCK_NUM)?;
            x.u64(f::PATTERN_RELOFF)?;
            x.opaque(f::PATTERN)?;
        }
        O::CLONE => {
            x.scope(f::SOURCE, |x| stateid(x).map(drop))?;
            op.stateid = Some(x.scope(f::DESTINATION, stateid)?);
            x.u64(super::f::OFFSET)?;
            x.u64(super::f::OFFSET)?;
            x.u64(super::f::LENGTH)?;
        }
        O::GETXATTR | O::REMOVEXATTR => key(x, op)?,
        O::SETXATTR => {
            x.u32(f::XATTR_OPTIONS)?;
            key(x, op)?;
            x.opaque(f::XATTR_VALUE)?;
        }
        O::LISTXATTRS => {
            x.u64(f::LIST_COOKIE)?;
            x.u32(f::LIST_MAXCOUNT)?;
        }
        _ => {}
    }
    Ok(())
}

fn results<'a, T: Trace>(x: &mut Xdr<'a, '_, T>, operation: Operation, op: &mut Op<'a>) -> Read<()> {
    use Operation as O;
    let status = Status(op.status.unwrap_or(0));
    if status != Status::OK {
        return if operation == O::COPY && status == Status::OFFLOAD_NO_REQS { requirements(x) } else { Ok(()) };
    }
    match operation {
        O::COPY => {
            write_response(x)?;
            requirements(x)?;
        }
        O::COPY_NOTIFY => {
            super::time(x, f::LEASE_TIME)?;
            op.stateid = Some(stateid(x)?);
            x.list(f::SOURCE_SERVERS, |x, _| netloc(x))?;
        }
        O::IO_ADVISE => drop(plain_bitmap(x, f::HINT_BITMAP, f::HINT_MASK, Some(f::HINT))?),
        O::OFFLOAD_STATUS => {
            x.u64(f::BYTES_COPIED)?;
            x.list(f::OFFLOADS, |x, _| x.u32(f::OFFLOAD_STATUS).map(drop))?;
        }
        O::READ_PLUS => {
            let mut io = Io { eof: x.bool_number(file_f::EOF)?, ..Io::default() };
            op.io = Some(io);
            x.list(xdr::f::COUNT, |x, _| {
                x.scope(f::CONTENT, |x| {
                    let kind = x.u32(f::CONTENT_TYPE)?;
                    x.u64(super::f::OFFSET)?;
                    let length = match kind {
                        // never reduced: a client cannot know how many pieces there will be (RFC 8267 6.1)
                        0 => x.opaque(super::f::DATA)?.len() as u64,
                        _ => x.u64(super::f::LENGTH)?,
                    };
                    io.count = io.count.saturating_add(u32::try_from(length).unwrap_or(u32::MAX));
                    Ok(())
                })
            })?;
            op.io = Some(io);
        }
        O::SEEK => {
            x.bool_number(file_f::EOF)?;
            x.u64(super::f::OFFSET)?;
        }
        O::WRITE_SAME => write_response(x)?,
        O::GETXATTR => drop(x.opaque(f::XATTR_VALUE)?),
        O::SETXATTR | O::REMOVEXATTR => change_info(x, super::f::CHANGE_INFO)?,
        O::LISTXATTRS => {
            x.u64(f::LIST_COOKIE)?;
            x.list(f::LIST_NAMES, |x, _| x.opaque(f::XATTR_KEY).map(drop))?;
            x.bool_number(f::LIST_EOF)?;
        }
        _ => {}
    }
    Ok(())
}

fn range<T: Trace>(x: &mut Xdr<'_, '_, T>) -> Read<()> {
    x.u64(super::f::OFFSET)?;
    x.u64(super::f::LENGTH).map(drop)
}

fn key<'a, T: Trace>(x: &mut Xdr<'a, '_, T>, op: &mut Op<'a>) -> Read<()> {
    let name = x.opaque(f::XATTR_KEY)?;
    op.name = Some(name);
    if T::ON {
        x.t.label(format_args!(", {}", ShownText(name)));
    }
    Ok(())
}

fn requirements<T: Trace>(x: &mut Xdr<'_, '_, T>) -> Read<()> {
    x.bool(f::CONSECUTIVE)?;
    x.bool(f::SYNCHRONOUS).map(drop)
}

/// `write_response4` (RFC 7862 15.2.3).
pub(super) fn write_response<T: Trace>(x: &mut Xdr<'_, '_, T>) -> Read<()> {
    x.list(f::CALLBACK_IDS, |x, _| stateid(x).map(drop))?;
    x.u64(super::f::LENGTH)?;
    x.u32(super::f::STABLE)?;
    x.u64(super::f::VERIFIER).map(drop)
}

/// Location of a server (RFC 7862 15.3.1).
fn netloc<T: Trace>(x: &mut Xdr<'_, '_, T>) -> Read<()> {
    x.scope(f::NETLOC, |x| match x.u32(f::NETLOCTYPE)? {
        1 => x.opaque(f::NL_NAME).map(drop),
        2 => x.opaque(f::NL_URL).map(drop),
        3 => super::netaddr(x),
        _ => Ok(()),
    })
}
