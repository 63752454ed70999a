//! Access masks and attributes of files, \[MS-SMB2\] 2.2.13.1 and \[MS-FSCC\] 2.6, as several messages carry them.

use crate::field::Def;

fields! {
    /// An access mask in the words of files, outside of a CREATE request.
    pub mod access ["[MS-SMB2] 2.2.13.1"] {
        MASK: U32 = "smb.access_mask", "Access Mask", hex;
        READ: Bool & 0x00000001 / 32 = "smb.access.read", "Read";
        WRITE: Bool & 0x00000002 / 32 = "smb.access.write", "Write";
        APPEND: Bool & 0x00000004 / 32 = "smb.access.append", "Append";
        READ_EA: Bool & 0x00000008 / 32 = "smb.access.read_ea", "Read EA";
        WRITE_EA: Bool & 0x00000010 / 32 = "smb.access.write_ea", "Write EA";
        EXECUTE: Bool & 0x00000020 / 32 = "smb.access.execute", "Execute";
        DELETE_CHILD: Bool & 0x00000040 / 32 = "smb.access.delete_child", "Delete Child";
        READ_ATTRIBUTES: Bool & 0x00000080 / 32 = "smb.access.read_attributes", "Read Attributes";
        WRITE_ATTRIBUTES: Bool & 0x00000100 / 32 = "smb.access.write_attributes", "Write Attributes";
        DELETE: Bool & 0x00010000 / 32 = "smb.access.delete", "Delete";
        READ_CONTROL: Bool & 0x00020000 / 32 = "smb.access.read_control", "Read Control";
        WRITE_DAC: Bool & 0x00040000 / 32 = "smb.access.write_dac", "Write DAC";
        WRITE_OWNER: Bool & 0x00080000 / 32 = "smb.access.write_owner", "Write Owner";
        SYNCHRONIZE: Bool & 0x00100000 / 32 = "smb.access.synchronize", "Synchronize";
        SYSTEM_SECURITY: Bool & 0x01000000 / 32 = "smb.access.system_security", "System Security";
        MAXIMUM_ALLOWED: Bool & 0x02000000 / 32 = "smb.access.maximum_allowed", "Maximum Allowed";
        GENERIC_ALL: Bool & 0x10000000 / 32 = "smb.access.generic_all", "Generic All";
        GENERIC_EXECUTE: Bool & 0x20000000 / 32 = "smb.access.generic_execute", "Generic Execute";
        GENERIC_WRITE: Bool & 0x40000000 / 32 = "smb.access.generic_write", "Generic Write";
        GENERIC_READ: Bool & 0x80000000 / 32 = "smb.access.generic_read", "Generic Read";
    }
}

impl access::All {
    /// The bits of the mask.
    pub(super) const BITS: &'static [Def] = &[
        access::READ,
        access::WRITE,
        access::APPEND,
        access::READ_EA,
        access::WRITE_EA,
        access::EXECUTE,
        access::DELETE_CHILD,
        access::READ_ATTRIBUTES,
        access::WRITE_ATTRIBUTES,
        access::DELETE,
        access::READ_CONTROL,
        access::WRITE_DAC,
        access::WRITE_OWNER,
        access::SYNCHRONIZE,
        access::SYSTEM_SECURITY,
        access::MAXIMUM_ALLOWED,
        access::GENERIC_ALL,
        access::GENERIC_EXECUTE,
        access::GENERIC_WRITE,
        access::GENERIC_READ,
    ];
}

fields! {
    /// The attributes of a file, outside of CREATE and CLOSE.
    pub mod attributes ["[MS-FSCC] 2.6"] {
        ATTRIBUTES: U32 = "smb2.file_attribute", "File Attributes", hex;
        READ_ONLY: Bool & 0x00000001 / 32 = "smb2.file_attribute.read_only", "Read Only";
        HIDDEN: Bool & 0x00000002 / 32 = "smb2.file_attribute.hidden", "Hidden";
        SYSTEM: Bool & 0x00000004 / 32 = "smb2.file_attribute.system", "System";
        DIRECTORY: Bool & 0x00000010 / 32 = "smb2.file_attribute.directory", "Directory";
        ARCHIVE: Bool & 0x00000020 / 32 = "smb2.file_attribute.archive", "Requires archived";
        NORMAL: Bool & 0x00000080 / 32 = "smb2.file_attribute.normal", "Normal";
        TEMPORARY: Bool & 0x00000100 / 32 = "smb2.file_attribute.temporary", "Temporary";
        SPARSE: Bool & 0x00000200 / 32 = "smb2.file_attribute.sparse", "Sparse";
        REPARSE_POINT: Bool & 0x00000400 / 32 = "smb2.file_attribute.reparse", "Reparse Point";
        COMPRESSED: Bool & 0x00000800 / 32 = "smb2.file_attribute.compressed", "Compressed";
        OFFLINE: Bool & 0x00001000 / 32 = "smb2.file_attribute.offline", "Offline";
        NOT_CONTENT_INDEXED: Bool & 0x00002000 / 32 = "smb2.file_attribute.not_content_indexed", "Not Content Indexed";
        ENCRYPTED: Bool & 0x00004000 / 32 = "smb2.file_attribute.encrypted", "Encrypted";
        INTEGRITY_STREAM: Bool & 0x00008000 / 32 = "smb2.file_attribute.integrity_stream", "Integrity Stream";
        NO_SCRUB_DATA: Bool & 0x00020000 / 32 = "smb2.file_attribute.no_scrub_data", "No Scrub Data";
    }
}

impl attributes::All {
    /// The bits of the attributes.
    pub(super) const BITS: &'static [Def] = &[
        attributes::READ_ONLY,
        attributes::HIDDEN,
        attributes::SYSTEM,
        attributes::DIRECTORY,
        attributes::ARCHIVE,
        attributes::NORMAL,
        attributes::TEMPORARY,
        attributes::SPARSE,
        attributes::REPARSE_POINT,
        attributes::COMPRESSED,
        attributes::OFFLINE,
        attributes::NOT_CONTENT_INDEXED,
        attributes::ENCRYPTED,
        attributes::INTEGRITY_STREAM,
        attributes::NO_SCRUB_DATA,
    ];
}
