//! LOCK, \[MS-SMB2\] 2.2.26: locks and unlocks ranges of a file.

use super::{FileId, Header};
use crate::fault::PResult;
use crate::trace::{Off, Trace, scope};

const BODY: usize = Header::LEN;

header! {
    /// The fixed part of the request; the elements follow.
    pub struct LockRequestFixed [NODE = "rdmascope.smb2.lock_request", "Lock Request", "[MS-SMB2] 2.2.26"] {
        /// 48, with the first element.
        structure_size: le16 = "smb2.buffer_code", "StructureSize", hex, bits {
            fixed_part_length: u16 & 0xfffe = "smb2.buffer_code.length", "Fixed Part Length";
            has_dynamic_part: bool & 0x0001 = "smb2.buffer_code.dynamic", "Dynamic Part";
        };
        lock_count: le16 = "smb2.lock_count", "Lock Count", dec;
        /// SMB 2.1 on: number in the low four bits, index above.
        lock_sequence: le32 = "rdmascope.smb2.lock_sequence", "Lock Sequence", hex, bits {
            lock_sequence_number: u32 & 0x0000000f = "smb2.lock_sequence_number", "Lock Sequence Number";
            lock_sequence_index: u32 & 0xfffffff0 = "smb2.lock_sequence_index", "Lock Sequence Index";
        };
        file_id: guid = "smb2.fid", "File Id";
    }
}

header! {
    /// One range.
    pub struct LockElement [NODE = "smb2.lock_info", "Lock Info", "[MS-SMB2] 2.2.26.1"] {
        /// In bytes.
        offset: le64 = "smb2.file_offset", "File Offset", dec;
        /// In bytes.
        length: le64 = "smb2.lock_length", "Length", dec;
        flags: le32 = "smb2.lock_flags", "Flags", hex, bits {
            shared: bool & 0x00000001 = "smb2.lock_flags.shared", "Shared";
            exclusive: bool & 0x00000002 = "smb2.lock_flags.exclusive", "Exclusive";
            unlock: bool & 0x00000004 = "smb2.lock_flags.unlock", "Unlock";
            fail_immediately: bool & 0x00000010 = "smb2.lock_flags.fail_immediately", "Fail Immediately";
        };
        reserved: bytes[4] as Keep = "smb2.reserved", "Reserved";
    }
}

/// A LOCK request taken apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LockRequest<'a> {
    /// Fields of fixed size.
    pub fixed: LockRequestFixed,
    /// The bytes of its elements.
    pub element_bytes: &'a [u8],
}

impl<'a> LockRequest<'a> {
    /// FileId of the file.
    pub const fn file(&self) -> FileId {
        FileId(self.fixed.file_id)
    }

    /// The ranges that are whole.
    pub fn elements(&self) -> impl Iterator<Item = LockElement> + use<'a> {
        self.element_bytes
            .chunks_exact(LockElement::LEN)
            .filter_map(|b| LockElement::parse_flat(b, &mut Off).ok().map(|(_, e)| e))
    }
}

/// Decodes the body of a LOCK request; `pdu` begins with its header.
pub fn request<'a, T: Trace>(pdu: &'a [u8], t: &mut T) -> PResult<'a, LockRequest<'a>> {
    scope(LockRequestFixed::NODE, &pdu[BODY.min(pdu.len())..], t, |i, t| {
        let (start, fixed) = LockRequestFixed::parse_flat(i, t)?;
        let mut i = start;
        for _ in 0..fixed.lock_count {
            (i, _) = LockElement::parse(i, t)?;
        }
        Ok((i, LockRequest { fixed, element_bytes: &start[..start.len() - i.len()] }))
    })
}
