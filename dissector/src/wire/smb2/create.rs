//! CREATE, \[MS-SMB2\] 2.2.13 and 2.2.14: opens a file, a folder or a pipe. Further requests and grants are in a list
//! of create contexts, [`super::create_context`].

use super::blob::{Blob, behind, blob};
use super::create_context::{self, Contexts};
use super::text::Utf16;
use super::{FileId, Header};
use crate::fault::PResult;
use crate::trace::{Trace, Value, scope};

const BODY: usize = Header::LEN;

wire_enum! {
    /// Kind of caching that a client may do without asking.
    pub enum OplockLevel: u8 {
        NONE = 0x00, "No oplock";
        LEVEL_II = 0x01, "Level2 oplock";
        EXCLUSIVE = 0x08, "Exclusive oplock";
        BATCH = 0x09, "Batch oplock";
        LEASE = 0xff, "Lease";
    }
}

wire_enum! {
    /// Extent to which the server may act for the client.
    pub enum ImpersonationLevel: u32 {
        ANONYMOUS = 0, "Anonymous";
        IDENTIFICATION = 1, "Identification";
        IMPERSONATION = 2, "Impersonation";
        DELEGATION = 3, "Delegation";
    }
}

wire_enum! {
    /// Actions if the file exists and if it does not.
    pub enum CreateDisposition: u32 {
        SUPERSEDE = 0, "FILE_SUPERSEDE: replace, or create";
        OPEN = 1, "FILE_OPEN: open, or fail";
        CREATE = 2, "FILE_CREATE: fail, or create";
        OPEN_IF = 3, "FILE_OPEN_IF: open, or create";
        OVERWRITE = 4, "FILE_OVERWRITE: overwrite, or fail";
        OVERWRITE_IF = 5, "FILE_OVERWRITE_IF: overwrite, or create";
    }
}

wire_enum! {
    /// CreateAction: what CREATE did.
    pub enum CreateAction: u32 {
        SUPERSEDED = 0, "FILE_SUPERSEDED";
        OPENED = 1, "FILE_OPENED";
        CREATED = 2, "FILE_CREATED";
        OVERWRITTEN = 3, "FILE_OVERWRITTEN";
    }
}

fields! {
    /// Variable parts of the two messages.
    pub mod f ["[MS-SMB2] 2.2.13"] {
        FILENAME: Utf16 = "smb2.filename", "Filename";
        EXTRA_INFO: None = "smb2.create.extrainfo", "ExtraInfo";
    }
}

/// Bits of CreateOptions as numbers.
pub mod options {
    type Bits = <super::CreateRequestFixed as crate::field::Fields>::Bits;

    /// It must be a directory.
    pub const DIRECTORY_FILE: u32 = Bits::directory_file.mask as u32;
    /// It must not be a directory.
    pub const NON_DIRECTORY_FILE: u32 = Bits::non_directory_file.mask as u32;
    /// The file is deleted when it is closed.
    pub const DELETE_ON_CLOSE: u32 = Bits::delete_on_close.mask as u32;
    /// The name is a file id.
    pub const OPEN_BY_FILE_ID: u32 = Bits::open_by_file_id.mask as u32;
}

header! {
    /// The fixed part of the request.
    pub struct CreateRequestFixed [NODE = "rdmascope.smb2.create_request", "Create Request", "[MS-SMB2] 2.2.13"] {
        /// 57.
        structure_size: le16 = "smb2.buffer_code", "StructureSize", hex, bits {
            fixed_part_length: u16 & 0xfffe = "smb2.buffer_code.length", "Fixed Part Length";
            has_dynamic_part: bool & 0x0001 = "smb2.buffer_code.dynamic", "Dynamic Part";
        };
        /// Should be 0.
        security_flags: u8 = "rdmascope.smb2.create.security_flags", "Security Flags", hex;
        oplock_level: u8 = "smb2.create.oplock", "Oplock", hex, values OplockLevel::VALUES;
        impersonation_level: le32 = "smb2.impersonation.level", "Impersonation level", dec, values ImpersonationLevel::VALUES;
        /// Should be 0.
        create_flags: le64 = "smb2.create_flags", "Create Flags", hex;
        reserved: bytes[8] as Keep = "smb2.reserved", "Reserved";
        desired_access: le32 = "smb.access_mask", "Access Mask", hex, bits {
            read: bool & 0x00000001 = "smb.access.read", "Read";
            write: bool & 0x00000002 = "smb.access.write", "Write";
            append: bool & 0x00000004 = "smb.access.append", "Append";
            read_ea: bool & 0x00000008 = "smb.access.read_ea", "Read EA";
            write_ea: bool & 0x00000010 = "smb.access.write_ea", "Write EA";
            execute: bool & 0x00000020 = "smb.access.execute", "Execute";
            delete_child: bool & 0x00000040 = "smb.access.delete_child", "Delete Child";
            read_attributes: bool & 0x00000080 = "smb.access.read_attributes", "Read Attributes";
            write_attributes: bool & 0x00000100 = "smb.access.write_attributes", "Write Attributes";
            delete: bool & 0x00010000 = "smb.access.delete", "Delete";
            read_control: bool & 0x00020000 = "smb.access.read_control", "Read Control";
            write_dac: bool & 0x00040000 = "smb.access.write_dac", "Write DAC";
            write_owner: bool & 0x00080000 = "smb.access.write_owner", "Write Owner";
            synchronize: bool & 0x00100000 = "smb.access.synchronize", "Synchronize";
            system_security: bool & 0x01000000 = "smb.access.system_security", "System Security";
            maximum_allowed: bool & 0x02000000 = "smb.access.maximum_allowed", "Maximum Allowed";
            generic_all: bool & 0x10000000 = "smb.access.generic_all", "Generic All";
            generic_execute: bool & 0x20000000 = "smb.access.generic_execute", "Generic Execute";
            generic_write: bool & 0x40000000 = "smb.access.generic_write", "Generic Write";
            generic_read: bool & 0x80000000 = "smb.access.generic_read", "Generic Read";
        };
        file_attributes: le32 = "smb2.file_attribute", "File Attributes", hex, bits {
            attribute_read_only: bool & 0x00000001 = "smb2.file_attribute.read_only", "Read Only";
            attribute_hidden: bool & 0x00000002 = "smb2.file_attribute.hidden", "Hidden";
            attribute_system: bool & 0x00000004 = "smb2.file_attribute.system", "System";
            attribute_directory: bool & 0x00000010 = "smb2.file_attribute.directory", "Directory";
            attribute_archive: bool & 0x00000020 = "smb2.file_attribute.archive", "Requires archived";
            attribute_normal: bool & 0x00000080 = "smb2.file_attribute.normal", "Normal";
            attribute_temporary: bool & 0x00000100 = "smb2.file_attribute.temporary", "Temporary";
            attribute_sparse: bool & 0x00000200 = "smb2.file_attribute.sparse", "Sparse";
            attribute_reparse_point: bool & 0x00000400 = "smb2.file_attribute.reparse", "Reparse Point";
            attribute_compressed: bool & 0x00000800 = "smb2.file_attribute.compressed", "Compressed";
            attribute_offline: bool & 0x00001000 = "smb2.file_attribute.offline", "Offline";
            attribute_not_content_indexed: bool & 0x00002000 = "smb2.file_attribute.not_content_indexed", "Not Content \
                Indexed";
            attribute_encrypted: bool & 0x00004000 = "smb2.file_attribute.encrypted", "Encrypted";
            attribute_integrity_stream: bool & 0x00008000 = "smb2.file_attribute.integrity_stream", "Integrity Stream";
            attribute_no_scrub_data: bool & 0x00020000 = "smb2.file_attribute.no_scrub_data", "No Scrub Data";
        };
        share_access: le32 = "smb.share_access", "Share Access", hex, bits {
            share_read: bool & 0x00000001 = "smb.share.access.read", "Read";
            share_write: bool & 0x00000002 = "smb.share.access.write", "Write";
            share_delete: bool & 0x00000004 = "smb.share.access.delete", "Delete";
        };
        create_disposition: le32 = "smb2.create.disposition", "Disposition", dec, values CreateDisposition::VALUES;
        create_options: le32 = "smb.create_options", "Create Options", hex, bits {
            directory_file: bool & 0x00000001 = "smb.nt.create_options.directory", "Directory";
            write_through: bool & 0x00000002 = "smb.nt.create_options.write_through", "Write Through";
            sequential_only: bool & 0x00000004 = "smb.nt.create_options.sequential_only", "Sequential Only";
            no_intermediate_buffering: bool & 0x00000008 = "smb.nt.create_options.intermediate_buffering", "Intermediate Buffering";
            synchronous_io_alert: bool & 0x00000010 = "smb.nt.create_options.sync_io_alert", "Sync I/O Alert";
            synchronous_io_nonalert: bool & 0x00000020 = "smb.nt.create_options.sync_io_nonalert", "Sync I/O Nonalert";
            non_directory_file: bool & 0x00000040 = "smb.nt.create_options.non_directory", "Non-Directory";
            create_tree_connection: bool & 0x00000080 = "smb.nt.create_options.create_tree_connection", "Create Tree \
                Connection";
            complete_if_oplocked: bool & 0x00000100 = "smb.nt.create_options.complete_if_oplocked", "Complete If \
                Oplocked";
            no_ea_knowledge: bool & 0x00000200 = "smb.nt.create_options.no_ea_knowledge", "No EA Knowledge";
            eight_dot_three_only: bool & 0x00000400 = "smb.nt.create_options.file_open_for_recovery", "8.3 Only";
            random_access: bool & 0x00000800 = "smb.nt.create_options.random_access", "Random Access";
            delete_on_close: bool & 0x00001000 = "smb.nt.create_options.delete_on_close", "Delete On Close";
            open_by_file_id: bool & 0x00002000 = "smb.nt.create_options.open_by_fileid", "Open By FileID";
            open_for_backup_intent: bool & 0x00004000 = "smb.nt.create_options.backup_intent", "Backup Intent";
            no_compression: bool & 0x00008000 = "smb.nt.create_options.no_compression", "No Compression";
            reserve_opfilter: bool & 0x00100000 = "smb.nt.create_options.reserve_opfilter", "Reserve Opfilter";
            open_reparse_point: bool & 0x00200000 = "smb.nt.create_options.open_reparse_point", "Open Reparse Point";
            open_no_recall: bool & 0x00400000 = "smb.nt.create_options.open_no_recall", "Open No Recall";
            open_for_free_space_query: bool & 0x00800000 = "smb.nt.create_options.open_for_free_space_query", "Open For Free Space query";
        };
        name_offset: le16 = "_", "Name Offset";
        name_length: le16 = "_", "Name Length";
        contexts_offset: le32 = "_", "Create Contexts Offset";
        contexts_length: le32 = "_", "Create Contexts Length";
    }
}

header! {
    /// The fixed part of the reply.
    pub struct CreateResponseFixed [NODE = "rdmascope.smb2.create_response", "Create Response", "[MS-SMB2] 2.2.14"] {
        /// 89.
        structure_size: le16 = "smb2.buffer_code", "StructureSize", hex, bits {
            fixed_part_length: u16 & 0xfffe = "smb2.buffer_code.length", "Fixed Part Length";
            has_dynamic_part: bool & 0x0001 = "smb2.buffer_code.dynamic", "Dynamic Part";
        };
        oplock_level: u8 = "smb2.create.oplock", "Oplock", hex, values OplockLevel::VALUES;
        flags: u8 = "smb2.create.rep_flags", "Response Flags", hex, bits {
            is_reparse_point: bool & 0x01 = "smb2.create.rep_flags.reparse_point", "ReparsePoint";
        };
        create_action: le32 = "smb2.create.action", "Create Action", dec, values CreateAction::VALUES;
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
        reserved: bytes[4] as Keep = "smb2.reserved", "Reserved";
        file_id: guid = "smb2.fid", "File Id";
        contexts_offset: le32 = "_", "Create Contexts Offset";
        contexts_length: le32 = "_", "Create Contexts Length";
    }
}

/// A CREATE request taken apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CreateRequest<'a> {
    /// Fields of fixed size.
    pub fixed: CreateRequestFixed,
    /// The name, relative to the share: UTF-16. Empty for the share's root.
    pub name: Blob<'a>,
    /// The bytes of the create contexts; [`CreateRequest::contexts`] walks them.
    pub context_list: Blob<'a>,
}

impl<'a> CreateRequest<'a> {
    /// The name, to be written.
    pub const fn name(&self) -> Utf16<'a> {
        Utf16(self.name.bytes)
    }

    /// The create contexts.
    pub const fn contexts(&self) -> Contexts<'a> {
        Contexts::of(self.context_list.bytes)
    }
}

/// A CREATE reply taken apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CreateResponse<'a> {
    /// Fields of fixed size.
    pub fixed: CreateResponseFixed,
    /// The bytes of the create contexts; [`CreateResponse::contexts`] walks them.
    pub context_list: Blob<'a>,
}

impl<'a> CreateResponse<'a> {
    /// The file, for all requests to come.
    pub const fn file(&self) -> FileId {
        FileId(self.fixed.file_id)
    }

    /// The create contexts.
    pub const fn contexts(&self) -> Contexts<'a> {
        Contexts::of(self.context_list.bytes)
    }
}

/// Decodes the body of a CREATE request; `pdu` begins with its header.
pub fn request<'a, T: Trace>(pdu: &'a [u8], t: &mut T) -> PResult<'a, CreateRequest<'a>> {
    const END: usize = BODY + CreateRequestFixed::LEN;
    scope(CreateRequestFixed::NODE, &pdu[BODY.min(pdu.len())..], t, |i, t| {
        let (_, fixed) = CreateRequestFixed::parse_flat(i, t)?;
        let name = blob(pdu, END, (BODY + 44, 2), (BODY + 46, 2), t);
        // the root of the share has a name, an empty one
        t.field(f::FILENAME, name.bytes, name.bytes.len(), Value::Bytes(name.bytes));
        let context_list = blob(pdu, END, (BODY + 48, 4), (BODY + 52, 4), t);
        create_context::trace_list(f::EXTRA_INFO, context_list.bytes, false, t);
        Ok((behind(pdu, END, &[&name, &context_list]), CreateRequest { fixed, name, context_list }))
    })
}

/// Decodes the body of a CREATE reply; `pdu` begins with its header.
pub fn response<'a, T: Trace>(pdu: &'a [u8], t: &mut T) -> PResult<'a, CreateResponse<'a>> {
    const END: usize = BODY + CreateResponseFixed::LEN;
    scope(CreateResponseFixed::NODE, &pdu[BODY.min(pdu.len())..], t, |i, t| {
        let (_, fixed) = CreateResponseFixed::parse_flat(i, t)?;
        let context_list = blob(pdu, END, (BODY + 80, 4), (BODY + 84, 4), t);
        create_context::trace_list(f::EXTRA_INFO, context_list.bytes, true, t);
        Ok((behind(pdu, END, &[&context_list]), CreateResponse { fixed, context_list }))
    })
}
