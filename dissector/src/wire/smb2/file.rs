//! CLOSE and FLUSH, \[MS-SMB2\] 2.2.15 to 2.2.18.

use super::{FileId, Header};
use crate::fault::PResult;
use crate::trace::Trace;

header! {
    /// Closes a file.
    pub struct CloseRequest [NODE = "rdmascope.smb2.close_request", "Close Request", "[MS-SMB2] 2.2.15"] {
        /// 24.
        structure_size: le16 = "smb2.buffer_code", "StructureSize", hex, bits {
            fixed_part_length: u16 & 0xfffe = "smb2.buffer_code.length", "Fixed Part Length";
            has_dynamic_part: bool & 0x0001 = "smb2.buffer_code.dynamic", "Dynamic Part";
        };
        flags: le16 = "smb2.close.flags", "Close Flags", hex, bits {
            /// The reply shall carry the attributes.
            post_query_attributes: bool & 0x0001 = "smb2.close.pq_attrib", "PostQuery Attrib";
        };
        reserved: bytes[4] as Keep = "smb2.reserved", "Reserved";
        file_id: guid = "smb2.fid", "File Id";
    }
}

header! {
    /// Answers a CLOSE; times, sizes and attributes are 0 unless they were asked for.
    pub struct CloseResponse [NODE = "rdmascope.smb2.close_response", "Close Response", "[MS-SMB2] 2.2.16"] {
        /// 60.
        structure_size: le16 = "smb2.buffer_code", "StructureSize", hex, bits {
            fixed_part_length: u16 & 0xfffe = "smb2.buffer_code.length", "Fixed Part Length";
            has_dynamic_part: bool & 0x0001 = "smb2.buffer_code.dynamic", "Dynamic Part";
        };
        flags: le16 = "smb2.close.flags", "Close Flags", hex, bits {
            post_query_attributes: bool & 0x0001 = "smb2.close.pq_attrib", "PostQuery Attrib";
        };
        reserved: bytes[4] as Keep = "smb2.reserved", "Reserved";
        creation_time: filetime = "smb2.create.time", "Create";
        last_access_time: filetime = "smb2.last_access.time", "Last Access";
        last_write_time: filetime = "smb2.last_write.time", "Last Write";
        change_time: filetime = "smb2.last_change.time", "Last Change";
        allocation_size: le64 = "smb2.allocation_size", "Allocation Size", dec;
        end_of_file: le64 = "smb2.eof", "End Of File", dec;
        file_attributes: le32 = "smb2.file_attribute", "File Attributes", hex, bits {
            read_only: bool & 0x00000001 = "smb2.file_attribute.read_only", "Read Only";
            hidden: bool & 0x00000002 = "smb2.file_attribute.hidden", "Hidden";
            system: bool & 0x00000004 = "smb2.file_attribute.system", "System";
            directory: bool & 0x00000010 = "smb2.file_attribute.directory", "Directory";
            archive: bool & 0x00000020 = "smb2.file_attribute.archive", "Requires archived";
            normal: bool & 0x00000080 = "smb2.file_attribute.normal", "Normal";
            temporary: bool & 0x00000100 = "smb2.file_attribute.temporary", "Temporary";
            sparse: bool & 0x00000200 = "smb2.file_attribute.sparse", "Sparse";
            reparse_point: bool & 0x00000400 = "smb2.file_attribute.reparse", "Reparse Point";
            compressed: bool & 0x00000800 = "smb2.file_attribute.compressed", "Compressed";
            offline: bool & 0x00001000 = "smb2.file_attribute.offline", "Offline";
            not_content_indexed: bool & 0x00002000 = "smb2.file_attribute.not_content_indexed", "Not Content Indexed";
            encrypted: bool & 0x00004000 = "smb2.file_attribute.encrypted", "Encrypted";
            integrity_stream: bool & 0x00008000 = "smb2.file_attribute.integrity_stream", "Integrity Stream";
            no_scrub_data: bool & 0x00020000 = "smb2.file_attribute.no_scrub_data", "No Scrub Data";
        };
    }
}

header! {
    /// Asks that what was written be made durable.
    pub struct FlushRequest [NODE = "rdmascope.smb2.flush_request", "Flush Request", "[MS-SMB2] 2.2.17"] {
        /// 24.
        structure_size: le16 = "smb2.buffer_code", "StructureSize", hex, bits {
            fixed_part_length: u16 & 0xfffe = "smb2.buffer_code.length", "Fixed Part Length";
            has_dynamic_part: bool & 0x0001 = "smb2.buffer_code.dynamic", "Dynamic Part";
        };
        reserved1: bytes[2] as Keep = "smb2.reserved", "Reserved";
        reserved2: bytes[4] as Keep = "smb2.reserved", "Reserved";
        file_id: guid = "smb2.fid", "File Id";
    }
}

impl CloseRequest {
    /// FileId of the file.
    pub const fn file(&self) -> FileId {
        FileId(self.file_id)
    }
}

impl FlushRequest {
    /// FileId of the file.
    pub const fn file(&self) -> FileId {
        FileId(self.file_id)
    }
}

fn body(pdu: &[u8]) -> &[u8] {
    &pdu[Header::LEN.min(pdu.len())..]
}

/// Decodes the body of a CLOSE request; `pdu` begins with its header.
pub fn close_request<'a, T: Trace>(pdu: &'a [u8], t: &mut T) -> PResult<'a, CloseRequest> {
    CloseRequest::parse(body(pdu), t)
}

/// Decodes the body of a CLOSE reply; `pdu` begins with its header.
pub fn close_response<'a, T: Trace>(pdu: &'a [u8], t: &mut T) -> PResult<'a, CloseResponse> {
    CloseResponse::parse(body(pdu), t)
}

/// Decodes the body of a FLUSH request; `pdu` begins with its header.
pub fn flush_request<'a, T: Trace>(pdu: &'a [u8], t: &mut T) -> PResult<'a, FlushRequest> {
    FlushRequest::parse(body(pdu), t)
}
