//! CHANGE_NOTIFY, \[MS-SMB2\] 2.2.35 and 2.2.36: what happened in a folder. SERVER_TO_CLIENT_NOTIFICATION, 2.2.44: what
//! happened to the session.

use super::blob::{Blob, behind, blob, number};
use super::text::Utf16;
use super::{FileId, Header, f as shared};
use crate::fault::PResult;
use crate::leaf::read;
use crate::trace::{Trace, scope};

const BODY: usize = Header::LEN;

wire_enum! {
    /// Change of a file, \[MS-FSCC\] 2.7.1.
    pub enum Action: u32 {
        ADDED = 0x00000001, "FILE_ACTION_ADDED";
        REMOVED = 0x00000002, "FILE_ACTION_REMOVED";
        MODIFIED = 0x00000003, "FILE_ACTION_MODIFIED";
        RENAMED_OLD_NAME = 0x00000004, "FILE_ACTION_RENAMED_OLD_NAME";
        RENAMED_NEW_NAME = 0x00000005, "FILE_ACTION_RENAMED_NEW_NAME";
        ADDED_STREAM = 0x00000006, "FILE_ACTION_ADDED_STREAM";
        REMOVED_STREAM = 0x00000007, "FILE_ACTION_REMOVED_STREAM";
        MODIFIED_STREAM = 0x00000008, "FILE_ACTION_MODIFIED_STREAM";
        REMOVED_BY_DELETE = 0x00000009, "FILE_ACTION_REMOVED_BY_DELETE";
        ID_NOT_TUNNELLED = 0x0000000a, "FILE_ACTION_ID_NOT_TUNNELLED";
        TUNNELLED_ID_COLLISION = 0x0000000b, "FILE_ACTION_TUNNELLED_ID_COLLISION";
    }
}

fields! {
    /// Variable part of the reply.
    pub mod f ["[MS-SMB2] 2.2.36"] {
        OUT: None = "smb2.notify.out", "Out Data";
        INFO: None = "smb2.notify.info", "Notify Info";
        NEXT: U32 = "smb2.notify.next_offset", "Next Offset", hex;
        ACTION: U32 = "smb2.notify.action", "Action", hex, values Action::VALUES;
        NAME_LENGTH: U32 = "smb2.filename.len", "Filename Length", dec;
        NAME: Utf16 = "smb2.filename", "Filename";
    }
}

header! {
    /// Waits for something to happen in a folder.
    pub struct NotifyRequest [NODE = "rdmascope.smb2.notify_request", "Notify Request", "[MS-SMB2] 2.2.35"] {
        /// 32.
        structure_size: le16 = "smb2.buffer_code", "StructureSize", hex, bits {
            fixed_part_length: u16 & 0xfffe = "smb2.buffer_code.length", "Fixed Part Length";
            has_dynamic_part: bool & 0x0001 = "smb2.buffer_code.dynamic", "Dynamic Part";
        };
        flags: le16 = "smb2.notify.flags", "Notify Flags", hex, bits {
            watch_tree: bool & 0x0001 = "smb2.notify.watch_tree", "Watch Tree";
        };
        output_buffer_length: le32 = "smb2.output_buffer_len", "Output Buffer Length", dec;
        file_id: guid = "smb2.fid", "File Id";
        completion_filter: le32 = "smb.nt.notify.completion_filter", "Completion Filter", hex, bits {
            file_name: bool & 0x00000001 = "smb.nt.notify.file_name", "File Name Change";
            dir_name: bool & 0x00000002 = "smb.nt.notify.dir_name", "Directory Name Change";
            attributes: bool & 0x00000004 = "smb.nt.notify.attributes", "Attribute Change";
            size: bool & 0x00000008 = "smb.nt.notify.size", "Size Change";
            last_write: bool & 0x00000010 = "smb.nt.notify.last_write", "Last Write";
            last_access: bool & 0x00000020 = "smb.nt.notify.last_access", "Last Access Change";
            creation: bool & 0x00000040 = "smb.nt.notify.creation", "Created Change";
            ea: bool & 0x00000080 = "smb.nt.notify.ea", "EA Change";
            security: bool & 0x00000100 = "smb.nt.notify.security", "Security Change";
            stream_name: bool & 0x00000200 = "smb.nt.notify.stream_name", "Stream Name Change";
            stream_size: bool & 0x00000400 = "smb.nt.notify.stream_size", "Stream Size Change";
            stream_write: bool & 0x00000800 = "smb.nt.notify.stream_write", "Stream Write";
        };
        reserved: bytes[4] as Keep = "smb2.reserved", "Reserved";
    }
}

header! {
    /// The fixed part of the reply.
    pub struct NotifyResponseFixed [NODE = "rdmascope.smb2.notify_response", "Notify Response", "[MS-SMB2] 2.2.36"] {
        /// 9.
        structure_size: le16 = "smb2.buffer_code", "StructureSize", hex, bits {
            fixed_part_length: u16 & 0xfffe = "smb2.buffer_code.length", "Fixed Part Length";
            has_dynamic_part: bool & 0x0001 = "smb2.buffer_code.dynamic", "Dynamic Part";
        };
        output_buffer_offset: le16 = "_", "Output Buffer Offset";
        output_buffer_length: le32 = "_", "Output Buffer Length";
    }
}

header! {
    /// Notification that a server sends unasked, SMB 3.1.1.
    pub struct ServerNotification [NODE = "rdmascope.smb2.server_notification", "Server to Client Notification", "[MS-SMB2] 2.2.44.1"] {
        /// 4.
        structure_size: le16 = "smb2.buffer_code", "StructureSize", hex, bits {
            fixed_part_length: u16 & 0xfffe = "smb2.buffer_code.length", "Fixed Part Length";
            has_dynamic_part: bool & 0x0001 = "smb2.buffer_code.dynamic", "Dynamic Part";
        };
        reserved: bytes[2] as Keep = "smb2.reserved", "Reserved";
        notification_type: le32 = "smb2.notification.type", "NotificationType", hex, values &[(0, "SmbNotifySessionClosed")];
    }
}

impl NotifyRequest {
    /// FileId of the directory.
    pub const fn file(&self) -> FileId {
        FileId(self.file_id)
    }
}

/// A CHANGE_NOTIFY reply taken apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NotifyResponse<'a> {
    /// Fields of fixed size.
    pub fixed: NotifyResponseFixed,
    /// A list of FILE_NOTIFY_INFORMATION.
    pub output: Blob<'a>,
}

/// Decodes the body of a CHANGE_NOTIFY request; `pdu` begins with its header.
pub fn request<'a, T: Trace>(pdu: &'a [u8], t: &mut T) -> PResult<'a, NotifyRequest> {
    NotifyRequest::parse(&pdu[BODY.min(pdu.len())..], t)
}

/// Decodes the body of a CHANGE_NOTIFY reply; `pdu` begins with its header.
pub fn response<'a, T: Trace>(pdu: &'a [u8], t: &mut T) -> PResult<'a, NotifyResponse<'a>> {
    const END: usize = BODY + NotifyResponseFixed::LEN;
    scope(NotifyResponseFixed::NODE, &pdu[BODY.min(pdu.len())..], t, |i, t| {
        let (_, fixed) = NotifyResponseFixed::parse_flat(i, t)?;
        let output = blob(pdu, END, (BODY + 2, 2), (BODY + 4, 4), t);
        if T::ON && !output.bytes.is_empty() {
            let _ = scope(f::OUT, output.bytes, t, |mut i, t| {
                while let Some(entry) = next_entry(&mut i) {
                    scope(f::INFO, entry, t, |i, t| {
                        let (i, _) = read::le32(f::NEXT, i, t)?;
                        let (i, action) = read::le32(f::ACTION, i, t)?;
                        let (i, length) = read::le32(f::NAME_LENGTH, i, t)?;
                        let (i, name) = read::bytes(f::NAME, length as usize, i, t)?;
                        t.label(format_args!(": {} {}", Action(action), Utf16(name)));
                        Ok((i, ()))
                    })?;
                }
                Ok((i, ()))
            });
        }
        Ok((behind(pdu, END, &[&output]), NotifyResponse { fixed, output }))
    })
}

/// Decodes the body of a SERVER_TO_CLIENT_NOTIFICATION; `pdu` begins with its header.
pub fn server_notification<'a, T: Trace>(pdu: &'a [u8], t: &mut T) -> PResult<'a, ServerNotification> {
    const SESSION_CLOSED: u32 = 0;
    scope(ServerNotification::NODE, &pdu[BODY.min(pdu.len())..], t, |i, t| {
        let (i, notification) = ServerNotification::parse_flat(i, t)?;
        let i = if notification.notification_type == SESSION_CLOSED {
            read::array::<4, T>(shared::RESERVED, i, t)?.0
        } else {
            i
        };
        Ok((i, notification))
    })
}

/// The next entry of a list whose entries begin with the offset of the one that follows. Advances `list` behind it; the
/// last reaches to the end. `None` at the end, and where an offset does not lead on.
pub(super) fn next_entry<'a>(list: &mut &'a [u8]) -> Option<&'a [u8]> {
    if list.is_empty() {
        return None;
    }
    let next = number(list, 0, 4) as usize;
    let (entry, rest) = match next {
        0 => (*list, &list[list.len()..]),
        n => list.split_at(n.clamp(4.min(list.len()), list.len())),
    };
    *list = rest;
    Some(entry)
}
