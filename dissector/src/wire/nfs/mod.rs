//! NFS and the programs around it: decoders that [`crate::wire::rpc::dissect`] hands arguments and results to, and the
//! [`Op`] that a [`Visit`] receives of each operation.
//!
//! | file | program |
//! | --- | --- |
//! | [`v3`] | NFS 3, RFC 1813 |
//! | [`v4`] | NFS 4.0, 4.1, 4.2 and callbacks, RFC 7530, 8881, 7862 |
//! | [`crate::wire::mount`], [`crate::wire::nlm`] | MOUNT and NLM, RFC 1813 appendices I and II |
//! | [`crate::wire::nfsacl`] | NFSACL, the side protocol for POSIX ACLs |
//! | [`crate::wire::portmap`] | portmap and rpcbind, RFC 1833 |

use crate::fault::Fault;
use crate::field::{Def, Values};
use crate::text::is_unsafe;
use crate::trace::{Trace, Value};
use crate::wire::rpc::{self, Flavor, Memo, Program};
use crate::wire::xdr::{Read, Xdr};
use crate::wire::{mount, nfsacl, nlm, portmap};

pub mod v3;
pub mod v4;

fields! {
    /// Fields that the versions of NFS and its auxiliary programs share.
    pub mod f ["RFC 1813 2.5"] {
        PROTOCOL: Protocol = "nfs", "Network File System";
        FH_LENGTH: U32 = "nfs.fh.length", "length", dec;
        FH_HASH: U32 = "nfs.fh.hash", "hash (CRC-32)", hex;
        FHANDLE: Bytes as Id = "nfs.fhandle", "FileHandle";
        OBJECT: None = "rdmascope.nfs.object", "object";
        NAME: Str = "nfs.name", "Name";
        /// Beside the field of the version, which names the status.
        STATUS: U32 [hidden] = "nfs.status", "Status", dec;
        PROCEDURE_V2: U32 = "nfs.procedure_v2", "V2 Procedure", dec, values PROCEDURES_V2;
    }
}

/// The procedures of NFS version 2 (RFC 1094 2.2), by name only.
pub const PROCEDURES_V2: Values = &[
    (0, "NULL"),
    (1, "GETATTR"),
    (2, "SETATTR"),
    (3, "ROOT"),
    (4, "LOOKUP"),
    (5, "READLINK"),
    (6, "READ"),
    (7, "WRITECACHE"),
    (8, "WRITE"),
    (9, "CREATE"),
    (10, "REMOVE"),
    (11, "RENAME"),
    (12, "LINK"),
    (13, "SYMLINK"),
    (14, "MKDIR"),
    (15, "RMDIR"),
    (16, "READDIR"),
    (17, "STATFS"),
];

/// A state id (RFC 8881 3.3.12): opens, locks, delegations and layouts are known by it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct StateId {
    /// Counts changes of the state.
    pub seqid: u32,
    /// The state.
    pub other: [u8; 12],
}

/// The slot that a compound of NFS 4.1 runs in (RFC 8881 18.46).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Slot {
    /// The session.
    pub session: [u8; 16],
    /// The slot.
    pub slot: u32,
    /// Counts requests in the slot.
    pub sequence: u32,
    /// The highest slot in use (of a call), or the highest that may be used (of a reply).
    pub highest: u32,
}

/// The bytes of a file that a READ or WRITE is about.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Io {
    /// Bytes from the start of the file; 0 in a reply.
    pub offset: u64,
    /// Bytes asked for or sent in a call; read or written in a reply.
    pub count: u32,
    /// True if the data is in a chunk.
    pub reduced: bool,
    /// Stability of a WRITE, requested or reached (0 unstable, 1 data, 2 file).
    pub stable: u32,
    /// True if a READ reached the end of the file, in its reply.
    pub eof: bool,
}

/// Summary of one operation: a procedure of NFS 3, or one step of a compound. Borrows from the message.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Op<'a> {
    /// Its place in the compound; 0 in NFS 3.
    pub index: u32,
    /// The procedure (NFS 3) or operation (NFS 4, callbacks).
    pub code: u32,
    /// True if it is part of a callback.
    pub callback: bool,
    /// In a reply: its status.
    pub status: Option<u32>,
    /// The file handle that it sets (PUTFH) or returns (GETFH); in NFS 3 the handle of its first argument, or of the
    /// new file.
    pub handle: Option<&'a [u8]>,
    /// A name in a directory: LOOKUP, OPEN, CREATE, REMOVE, LINK, and what RENAME renames. Bytes, usually UTF-8.
    pub name: Option<&'a [u8]>,
    /// The name that RENAME gives.
    pub to_name: Option<&'a [u8]>,
    /// The state it uses or is given.
    pub stateid: Option<StateId>,
    /// Data range of READ, WRITE and COMMIT.
    pub io: Option<Io>,
    /// Of SEQUENCE and CB_SEQUENCE.
    pub slot: Option<Slot>,
    /// Of the result of SEQUENCE: `sr_status_flags` (RFC 8881 18.46.3).
    pub state_flags: Option<u32>,
    /// Of EXCHANGE_ID: the sender's product, `nii_name` (RFC 8881 3.3.22). Bytes, usually UTF-8.
    pub implementation: Option<&'a [u8]>,
}

/// Receiver of operations. `()` ignores them.
pub trait Visit<'a> {
    /// One operation has been decoded; also where the bytes ended inside it, with what there was.
    fn op(&mut self, op: &Op<'a>);

    /// A portmapper was asked where a program listens, or a program was registered.
    #[inline]
    fn mapping(&mut self, _: &portmap::Mapping<'a>) {}

    /// A program beside NFS answered with this status: MOUNT to MNT, or NFSACL.
    #[inline]
    fn answered(&mut self, _status: u32) {}

    /// A compound of so many results ended with this status.
    #[inline]
    fn compound(&mut self, _status: u32, _results: u32) {}
}

impl<'a> Visit<'a> for () {
    #[inline]
    fn op(&mut self, _: &Op<'a>) {}
}

impl<'a, F: FnMut(&Op<'a>)> Visit<'a> for F {
    #[inline]
    fn op(&mut self, op: &Op<'a>) {
        self(op);
    }
}

/// The procedures of a program, by number.
pub fn procedures(program: u32, version: u32) -> Values {
    const NFS4: Values = &[(0, "NULL"), (1, "COMPOUND")];
    const CALLBACK: Values = &[(0, "CB_NULL"), (1, "CB_COMPOUND")];
    const NULL: Values = &[(0, "NULL")];
    match (Program(program), version) {
        (Program::NFS, 2) => PROCEDURES_V2,
        (Program::NFS, 3) => v3::Procedure::VALUES,
        (Program::NFS, 4) => NFS4,
        (Program(program), _) if rpc::is_transient(program) => CALLBACK,
        (Program::MOUNT, _) => mount::Procedure::VALUES,
        (Program::NLM, _) => nlm::Procedure::VALUES,
        (Program::PORTMAP, 2) => portmap::Procedure::VALUES,
        (Program::PORTMAP, _) => portmap::RpcbindProcedure::VALUES,
        (Program::NFSACL, _) => nfsacl::Procedure::VALUES,
        _ => NULL,
    }
}

/// The minor version of a compound whose arguments begin at `i` (under RPCSEC_GSS, with its framing); 0 where it cannot
/// be read.
pub(crate) fn minor_version(i: &[u8], memo: &Memo) -> u32 {
    use crate::leaf;
    let read = |i: &[u8]| -> Option<u32> {
        // length and sequence number
        let integrity = memo.flavor == Flavor::GSS && memo.gss_service == rpc::GssService::INTEGRITY;
        let i = if integrity { i.get(8..)? } else { i };
        let (i, tag) = leaf::be32(i).ok()?;
        let (_, minor) = leaf::be32(i.get((tag as usize).checked_next_multiple_of(4)?..)?).ok()?;
        Some(minor)
    };
    read(i).unwrap_or(0)
}

/// Decodes the arguments or results of a procedure, to the end of what there is.
///
/// # Errors
/// The bytes cannot be decoded; the observer has been notified.
pub(crate) fn program<'a, T: Trace, V: Visit<'a>>(
    x: &mut Xdr<'a, '_, T>,
    call: bool,
    memo: &Memo,
    visitor: &mut V,
) -> Read<()> {
    match (Program(memo.program), memo.version) {
        (Program::NFS, 3) => v3::decode(x, call, memo.procedure, visitor),
        (Program::NFS, 4) => v4::decode(x, call, memo, visitor),
        _ if memo.is_callback() => v4::decode(x, call, memo, visitor),
        (Program::MOUNT, 1..=3) => mount::decode(x, call, memo, visitor),
        (Program::NLM, 1..=4) => nlm::decode(x, call, memo),
        (Program::PORTMAP, 2..=4) => portmap::decode(x, call, memo, visitor),
        (Program::NFSACL, 2 | 3) => nfsacl::decode(x, call, memo, visitor),
        _ => {
            if !x.i.is_empty() {
                x.rest(rpc::f::UNKNOWN_BODY);
            }
            Ok(())
        }
    }
}

/// A file handle in a subtree `node`: opaque, counted.
pub(crate) fn handle<'a, T: Trace>(x: &mut Xdr<'a, '_, T>, node: Def) -> Read<&'a [u8]> {
    x.scope(node, |x| {
        let length = x.u32(f::FH_LENGTH)? as usize;
        hash(x, length);
        x.fixed(f::FHANDLE, length)
    })
}

/// A file handle of fixed length, as version 2 of NFS and the first versions of its companions have it.
pub(crate) fn handle_v2<'a, T: Trace>(x: &mut Xdr<'a, '_, T>, node: Def) -> Read<&'a [u8]> {
    x.scope(node, |x| {
        hash(x, 32);
        x.fixed(f::FHANDLE, 32)
    })
}

fn hash<T: Trace>(x: &mut Xdr<'_, '_, T>, length: usize) {
    if T::ON
        && let Some(handle) = x.i.get(..length)
    {
        x.known(f::FH_HASH, crc32fast::hash(handle));
    }
}

/// The short form in which frames name a file handle.
pub(crate) fn trace_handle<T: Trace>(x: &mut Xdr<'_, '_, T>, label: &str, handle: &[u8]) {
    if T::ON {
        x.t.info(format_args!("{label}: {:#010x}", crc32fast::hash(handle)));
    }
}

/// Seconds and nanoseconds since 1970, with both below it.
pub(crate) fn time<T: Trace>(x: &mut Xdr<'_, '_, T>, def: Def, seconds: Def, nanoseconds: Def) -> Read<()> {
    let at = x.i;
    if T::ON && at.len() >= 8 {
        let word = |n: usize| u32::from_be_bytes([at[n], at[n + 1], at[n + 2], at[n + 3]]);
        // a count of nanoseconds beyond a second is not a time: its words alone are reported
        let nanos = word(4).min(999_999_999);
        x.t.field(def, at, 8, Value::Time { seconds: word(0).into(), nanos });
        x.t.down();
        x.u32(seconds)?;
        x.u32(nanoseconds)?;
        x.t.up();
        return Ok(());
    }
    x.u32(seconds)?;
    x.u32(nanoseconds)?;
    Ok(())
}

/// Bytes of a name, for a frame's line: bytes that are not UTF-8 or not printable become dots.
pub(crate) struct ShownText<'a>(pub(crate) &'a [u8]);

impl core::fmt::Display for ShownText<'_> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        use core::fmt::Write;
        for chunk in self.0.utf8_chunks() {
            for c in chunk.valid().chars() {
                f.write_char(if is_unsafe(c) { '.' } else { c })?;
            }
            if !chunk.invalid().is_empty() {
                f.write_char('.')?;
            }
        }
        Ok(())
    }
}

/// Bytes behind the last result or argument.
pub(crate) fn end<T: Trace>(x: &mut Xdr<'_, '_, T>) -> Result<(), Fault> {
    x.undecoded();
    Ok(())
}

/// Shared by the tests of the versions.
#[cfg(test)]
pub(crate) mod testing {
    use super::{Op, program};
    use crate::header::Vec;
    use crate::trace::{Off, Tree};
    use crate::wire::rpc::Memo;
    use crate::wire::rpcrdma::{self, ReadSegment, RpcRdma, Segment};
    use crate::wire::xdr::{self, Stream, Xdr};

    pub(crate) fn words(words: &[u32]) -> Vec<u8> {
        words.iter().flat_map(|w| w.to_be_bytes()).collect()
    }

    /// Decodes arguments or results: nothing may be left undecoded, `Off` must see the same operations, and every
    /// prefix gives one fault, no panic, and no field outside of it.
    pub(crate) fn decode_all<'a>(bytes: &'a [u8], call: bool, memo: &Memo) -> (Tree, Vec<Op<'a>>) {
        let (mut tree, mut ops, mut silent) = (Tree::new(), Vec::new(), Vec::new());
        tree.begin(bytes);
        let result =
            program(&mut Xdr::new(&Stream::whole(bytes), &mut tree), call, memo, &mut |op: &Op<'a>| ops.push(*op));
        assert_eq!(result, Ok(()), "{memo:?}");
        assert_eq!(tree.all(xdr::f::UNDECODED.name).count(), 0, "{memo:?}");
        program(&mut Xdr::new(&Stream::whole(bytes), &mut Off), call, memo, &mut |op: &Op<'a>| silent.push(*op))
            .unwrap();
        assert_eq!(ops, silent, "observers change nothing");
        nests(&tree);
        for n in 0..bytes.len() {
            let prefix = &bytes[..n];
            let mut tree = Tree::new();
            tree.begin(prefix);
            let with = program(&mut Xdr::new(&Stream::whole(prefix), &mut tree), call, memo, &mut ());
            let without = program(&mut Xdr::new(&Stream::whole(prefix), &mut Off), call, memo, &mut ());
            assert!(with.is_err() && without.is_err(), "{memo:?}: prefix {n} of {}", bytes.len());
            assert_eq!(tree.faults.len(), 1, "told once: {memo:?} prefix {n}");
            assert!(with.unwrap_err().offset_in(prefix).is_some_and(|o| o <= n));
            nests(&tree);
        }
        (tree, ops)
    }

    /// Every node lies inside of the one it is below.
    pub(crate) fn nests(tree: &Tree) {
        let mut above: Vec<(u8, u32, u32)> = Vec::new();
        for node in &tree.nodes {
            above.retain(|(depth, ..)| *depth < node.depth);
            let end = node.offset + node.len;
            assert!(end as usize <= tree.sources()[0].bytes.len());
            if let Some((_, from, to)) = above.last().filter(|_| node.len > 0) {
                assert!(*from <= node.offset && end <= *to, "{} {}..{end} in {from}..{to}", node.def.name, node.offset);
            }
            if !node.generated {
                above.push((node.depth, node.offset, end));
            }
        }
    }

    /// Decodes arguments or results that came with read chunks (position, length) or write chunks (length).
    pub(crate) fn chunks(
        bytes: &[u8],
        call: bool,
        memo: &Memo,
        reads: &[(u32, u32)],
        writes: &[u32],
    ) -> (Tree, Vec<Op<'static>>) {
        let mut message = words(&[9, 1, 1, 0]);
        let reads: Vec<_> = reads
            .iter()
            .map(|(position, length)| ReadSegment { position: *position, handle: 0xa, length: *length, offset: 0x1000 })
            .collect();
        rpcrdma::emit_reads(&reads, &mut message);
        message.extend(words(&[0]));
        for length in writes {
            rpcrdma::emit_chunk(&[Segment { handle: 0xb, length: *length, offset: 0x2000 }], &mut message);
        }
        message.extend(words(&[0, 0]));
        message.extend(bytes);
        let message: &'static [u8] = Vec::leak(message);
        let (_, header) = RpcRdma::parse(message, &mut Off).unwrap();
        let (mut tree, mut ops) = (Tree::new(), Vec::new());
        tree.begin(message);
        let mut x = Xdr::new(&Stream::inline(&header), &mut tree);
        if !call {
            x.reply(header.writes);
        }
        program(&mut x, call, memo, &mut |op: &Op<'static>| ops.push(*op)).unwrap();
        assert!(tree.faults.is_empty() && tree.all(xdr::f::UNDECODED.name).count() == 0);
        (tree, ops)
    }
}
