//! NFS and the programs around it: what [`crate::wire::rpc::dissect`] hands arguments and results to, and what an analyzer
//! is told of them.
//!
//! | file | program |
//! | --- | --- |
//! | this one | dispatch |

use crate::field::Values;
use crate::trace::Trace;
use crate::wire::rpc::{self, Memo, Program};
use crate::wire::xdr::{Read, Xdr};

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
    /// Whether the data is in a chunk.
    pub reduced: bool,
    /// Of a WRITE: how stable it is to be, or has become (0 unstable, 1 data, 2 file).
    pub stable: u32,
    /// Of a READ's reply: whether it reached the end of the file.
    pub eof: bool,
}

/// What is said of one operation: a procedure of NFS 3, or one step of a compound. Borrows from the message.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Op<'a> {
    /// Its place in the compound; 0 in NFS 3.
    pub index: u32,
    /// The procedure (NFS 3) or operation (NFS 4, callbacks).
    pub code: u32,
    /// Whether it is of a callback.
    pub callback: bool,
    /// In a reply: its status.
    pub status: Option<u32>,
    /// The file handle that it gives (PUTFH) or is given (GETFH); in NFS 3 that of its first argument, or of the new file.
    pub handle: Option<&'a [u8]>,
    /// A name in a directory: LOOKUP, OPEN, CREATE, REMOVE, LINK, and what RENAME renames. Bytes, usually UTF-8.
    pub name: Option<&'a [u8]>,
    /// The name that RENAME gives.
    pub to_name: Option<&'a [u8]>,
    /// The state it uses or is given.
    pub stateid: Option<StateId>,
    /// What READ, WRITE and COMMIT are about.
    pub io: Option<Io>,
    /// Of SEQUENCE and CB_SEQUENCE.
    pub slot: Option<Slot>,
}

/// Who wants to know of operations. `()` does not.
pub trait Visit<'a> {
    /// One operation has been decoded; also where the bytes ended inside it, with what there was.
    fn op(&mut self, op: &Op<'a>);
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
    const NULL: Values = &[(0, "NULL")];
    const NFS4: Values = &[(0, "NULL"), (1, "COMPOUND")];
    const CALLBACK: Values = &[(0, "CB_NULL"), (1, "CB_COMPOUND")];
    match (Program(program), version) {
        (Program::NFS, 4) => NFS4,
        (Program::NFS_CALLBACK, _) => CALLBACK,
        _ => NULL,
    }
}

/// The minor version of a compound whose arguments begin at `i` (under RPCSEC_GSS, behind its framing); 0 where it cannot be read.
pub(crate) fn minor_version(i: &[u8], memo: &Memo) -> u32 {
    use crate::leaf;
    let read = |i: &[u8]| -> Option<u32> {
        // length and sequence number
        let i = if memo.gss_service == rpc::GssService::INTEGRITY { i.get(8..)? } else { i };
        let (i, tag) = leaf::be32(i).ok()?;
        let (_, minor) = leaf::be32(i.get((tag as usize).checked_next_multiple_of(4)?..)?).ok()?;
        Some(minor)
    };
    read(i).unwrap_or(0)
}

/// Decodes the arguments or results of a procedure.
pub(crate) fn program<'a, T: Trace, V: Visit<'a>>(x: &mut Xdr<'a, '_, T>, _call: bool, _memo: &Memo, _visitor: &mut V) -> Read<()> {
    if !x.i.is_empty() {
        x.rest(rpc::f::UNKNOWN_BODY);
    }
    Ok(())
}
