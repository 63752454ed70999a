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

/// Bits of an access mask as numbers, and the sets of them that \[MS-SMB2\] 2.2.13.1.1 and \[MS-FSCC\] give names.
#[allow(missing_docs)]
pub mod rights {
    use super::access as mask;

    pub const READ_DATA: u32 = mask::READ.mask as u32;
    pub const WRITE_DATA: u32 = mask::WRITE.mask as u32;
    pub const APPEND_DATA: u32 = mask::APPEND.mask as u32;
    pub const READ_EA: u32 = mask::READ_EA.mask as u32;
    pub const WRITE_EA: u32 = mask::WRITE_EA.mask as u32;
    pub const EXECUTE: u32 = mask::EXECUTE.mask as u32;
    pub const DELETE_CHILD: u32 = mask::DELETE_CHILD.mask as u32;
    pub const READ_ATTRIBUTES: u32 = mask::READ_ATTRIBUTES.mask as u32;
    pub const WRITE_ATTRIBUTES: u32 = mask::WRITE_ATTRIBUTES.mask as u32;
    pub const DELETE: u32 = mask::DELETE.mask as u32;
    pub const READ_CONTROL: u32 = mask::READ_CONTROL.mask as u32;
    pub const WRITE_DAC: u32 = mask::WRITE_DAC.mask as u32;
    pub const WRITE_OWNER: u32 = mask::WRITE_OWNER.mask as u32;
    pub const SYNCHRONIZE: u32 = mask::SYNCHRONIZE.mask as u32;
    /// It takes a privilege.
    pub const SYSTEM_SECURITY: u32 = mask::SYSTEM_SECURITY.mask as u32;
    pub const MAXIMUM_ALLOWED: u32 = mask::MAXIMUM_ALLOWED.mask as u32;
    pub const GENERIC_ALL: u32 = mask::GENERIC_ALL.mask as u32;
    pub const GENERIC_WRITE: u32 = mask::GENERIC_WRITE.mask as u32;

    pub const FILE_GENERIC_READ: u32 = READ_DATA | READ_EA | READ_ATTRIBUTES | READ_CONTROL | SYNCHRONIZE;
    pub const FILE_GENERIC_WRITE: u32 =
        WRITE_DATA | APPEND_DATA | WRITE_EA | WRITE_ATTRIBUTES | READ_CONTROL | SYNCHRONIZE;
    pub const FILE_GENERIC_EXECUTE: u32 = EXECUTE | READ_ATTRIBUTES | READ_CONTROL | SYNCHRONIZE;
    pub const FILE_ALL_ACCESS: u32 =
        FILE_GENERIC_READ | FILE_GENERIC_WRITE | FILE_GENERIC_EXECUTE | DELETE_CHILD | DELETE | WRITE_DAC | WRITE_OWNER;
}

/// Attributes of a file as numbers.
pub mod file_attribute {
    use super::attributes;

    /// A directory.
    pub const DIRECTORY: u32 = attributes::DIRECTORY.mask as u32;
    /// A file without other attributes.
    pub const NORMAL: u32 = attributes::NORMAL.mask as u32;
    /// A file that was changed since it was backed up.
    pub const ARCHIVE: u32 = attributes::ARCHIVE.mask as u32;
}

#[cfg(test)]
mod tests {
    use super::rights::*;

    #[test]
    fn sets_of_rights_have_the_values_of_the_specification() {
        assert_eq!(
            (FILE_GENERIC_READ, FILE_GENERIC_WRITE, FILE_GENERIC_EXECUTE),
            (0x0012_0089, 0x0012_0116, 0x0012_00a0)
        );
        assert_eq!(FILE_ALL_ACCESS, 0x001f_01ff);
    }
}
