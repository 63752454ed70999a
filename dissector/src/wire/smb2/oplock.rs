//! OPLOCK_BREAK, \[MS-SMB2\] 2.2.23 to 2.2.25: the server takes a right to cache back, the client acknowledges, the
//! server answers. The StructureSize distinguishes oplocks (24) from leases (44 for the notification, 36 for the
//! messages after it).

use super::blob::number;
use super::create::OplockLevel;
use super::{FileId, Header, f as shared};
use crate::fault::{Fault, PResult};
use crate::trace::{Trace, Value, scope};

const BODY: usize = Header::LEN;

header! {
    /// Notification, acknowledgment or reply for an oplock.
    pub struct OplockBreak [NODE = "rdmascope.smb2.oplock_break", "Oplock Break", "[MS-SMB2] 2.2.23.1"] {
        /// 24.
        structure_size: le16 = "smb2.buffer_code", "StructureSize", hex, bits {
            fixed_part_length: u16 & 0xfffe = "smb2.buffer_code.length", "Fixed Part Length";
            has_dynamic_part: bool & 0x0001 = "smb2.buffer_code.dynamic", "Dynamic Part";
        };
        /// The remaining oplock level.
        oplock_level: u8 = "smb2.create.oplock", "Oplock", hex, values OplockLevel::VALUES;
        reserved: bytes[1] as Keep = "smb2.reserved", "Reserved";
        reserved2: bytes[4] as Keep = "smb2.reserved", "Reserved";
        file_id: guid = "smb2.fid", "File Id";
    }
}

header! {
    /// The server takes (a part of) a lease back.
    pub struct LeaseBreakNotification [NODE = "rdmascope.smb2.lease_break_notification", "Lease Break Notification", "[MS-SMB2] 2.2.23.2"] {
        /// 44.
        structure_size: le16 = "smb2.buffer_code", "StructureSize", hex, bits {
            fixed_part_length: u16 & 0xfffe = "smb2.buffer_code.length", "Fixed Part Length";
            has_dynamic_part: bool & 0x0001 = "smb2.buffer_code.dynamic", "Dynamic Part";
        };
        /// Counts changes of the lease, SMB 3.
        new_epoch: le16 = "smb2.lease.lease_oplock", "Lease Epoch", hex;
        flags: le32 = "smb2.lease.lease_flags", "Lease Flags", hex, bits {
            ack_required: bool & 0x00000001 = "smb2.lease.lease_state.break_ack_required", "Break Ack Required";
            break_in_progress: bool & 0x00000002 = "smb2.lease.lease_state.break_in_progress", "Break In Progress";
            parent_lease_key_set: bool & 0x00000004 = "smb2.lease.lease_state.parent_lease_key_set", "Parent Lease Key \
                Set";
        };
        lease_key: guid = "smb2.lease.lease_key", "Lease Key";
        current_lease_state: le32 = "smb2.lease.lease_state", "Lease State", hex, bits {
            current_read_caching: bool & 0x00000001 = "smb2.lease.lease_state.read_caching", "Read Caching";
            current_handle_caching: bool & 0x00000002 = "smb2.lease.lease_state.handle_caching", "Handle Caching";
            current_write_caching: bool & 0x00000004 = "smb2.lease.lease_state.write_caching", "Write Caching";
        };
        new_lease_state: le32 = "smb2.lease.lease_state", "New Lease State", hex, bits {
            new_read_caching: bool & 0x00000001 = "smb2.lease.lease_state.read_caching", "Read Caching";
            new_handle_caching: bool & 0x00000002 = "smb2.lease.lease_state.handle_caching", "Handle Caching";
            new_write_caching: bool & 0x00000004 = "smb2.lease.lease_state.write_caching", "Write Caching";
        };
        break_reason: le32 = "smb2.lease.lease_break_reason", "Lease Break Reason", hex;
        access_mask_hint: le32 = "smb2.lease.access_mask_hint", "Access Mask Hint", hex;
        share_mask_hint: le32 = "smb2.lease.share_mask_hint", "Share Mask Hint", hex;
    }
}

header! {
    /// Acknowledgment or reply for a lease.
    pub struct LeaseBreak [NODE = "rdmascope.smb2.lease_break", "Lease Break", "[MS-SMB2] 2.2.24.2"] {
        /// 36.
        structure_size: le16 = "smb2.buffer_code", "StructureSize", hex, bits {
            fixed_part_length: u16 & 0xfffe = "smb2.buffer_code.length", "Fixed Part Length";
            has_dynamic_part: bool & 0x0001 = "smb2.buffer_code.dynamic", "Dynamic Part";
        };
        reserved: bytes[2] as Keep = "smb2.reserved", "Reserved";
        flags: le32 = "smb2.lease.lease_flags", "Lease Flags", hex, bits {
            ack_required: bool & 0x00000001 = "smb2.lease.lease_state.break_ack_required", "Break Ack Required";
            break_in_progress: bool & 0x00000002 = "smb2.lease.lease_state.break_in_progress", "Break In Progress";
            parent_lease_key_set: bool & 0x00000004 = "smb2.lease.lease_state.parent_lease_key_set", "Parent Lease Key \
                Set";
        };
        lease_key: guid = "smb2.lease.lease_key", "Lease Key";
        lease_state: le32 = "smb2.lease.lease_state", "Lease State", hex, bits {
            read_caching: bool & 0x00000001 = "smb2.lease.lease_state.read_caching", "Read Caching";
            handle_caching: bool & 0x00000002 = "smb2.lease.lease_state.handle_caching", "Handle Caching";
            write_caching: bool & 0x00000004 = "smb2.lease.lease_state.write_caching", "Write Caching";
        };
        lease_duration: le64 = "smb2.lease.lease_duration", "Lease Duration", hex;
    }
}

/// One of the three.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Break {
    /// An oplock break: notification (of the server, unasked), acknowledgment, or reply.
    Oplock(OplockBreak),
    /// A lease break notification.
    LeaseNotification(LeaseBreakNotification),
    /// A lease break acknowledgment or reply.
    Lease(LeaseBreak),
}

impl OplockBreak {
    /// FileId of the file.
    pub const fn file(&self) -> FileId {
        FileId(self.file_id)
    }
}

/// Decodes the body of an OPLOCK_BREAK of either direction; `pdu` begins with its header.
pub fn parse<'a, T: Trace>(pdu: &'a [u8], t: &mut T) -> PResult<'a, Break> {
    let body = &pdu[BODY.min(pdu.len())..];
    match number(body, 0, 2) {
        44 => LeaseBreakNotification::parse(body, t).map(|(i, b)| (i, Break::LeaseNotification(b))),
        36 => LeaseBreak::parse(body, t).map(|(i, b)| (i, Break::Lease(b))),
        24 => OplockBreak::parse(body, t).map(|(i, b)| (i, Break::Oplock(b))),
        _ => scope(shared::BODY, body, t, |i, t| {
            let (i, _) = super::structure_size(i, t)?;
            if !i.is_empty() {
                t.field(shared::UNKNOWN, i, i.len(), Value::Bytes(i));
            }
            Fault::value(shared::BUFFER_CODE, body).fail()
        }),
    }
}
