//! Attributes of NFS version 4 (RFC 8881 5, RFC 7862 12, RFC 8275, RFC 8276): a bitmap says which, an opaque run of
//! bytes holds their values in the order of its bits.

use super::super::{handle, v3};
use super::{fsid, nfstime, pathname, status, time};
use crate::field::Def;
use crate::trace::{Trace, Value};
use crate::wire::xdr::{self, Read, Xdr};

wire_enum! {
    /// Attributes by number (RFC 8881 5.6 to 5.8).
    pub enum Attribute: u32 {
        SUPPORTED_ATTRS = 0, "Supported_Attrs";
        TYPE = 1, "Type";
        FH_EXPIRE_TYPE = 2, "FH_Expire_Type";
        CHANGE = 3, "Change";
        SIZE = 4, "Size";
        LINK_SUPPORT = 5, "Link_Support";
        SYMLINK_SUPPORT = 6, "Symlink_Support";
        NAMED_ATTR = 7, "Named_Attr";
        FSID = 8, "FSID";
        UNIQUE_HANDLES = 9, "Unique_Handles";
        LEASE_TIME = 10, "Lease_Time";
        RDATTR_ERROR = 11, "RDAttr_Error";
        ACL = 12, "ACL";
        ACLSUPPORT = 13, "ACLSupport";
        ARCHIVE = 14, "Archive";
        CANSETTIME = 15, "CanSetTime";
        CASE_INSENSITIVE = 16, "Case_Insensitive";
        CASE_PRESERVING = 17, "Case_Preserving";
        CHOWN_RESTRICTED = 18, "Chown_Restricted";
        FILEHANDLE = 19, "Filehandle";
        FILEID = 20, "FileId";
        FILES_AVAIL = 21, "Files_Avail";
        FILES_FREE = 22, "Files_Free";
        FILES_TOTAL = 23, "Files_Total";
        FS_LOCATIONS = 24, "FS_Locations";
        HIDDEN = 25, "Hidden";
        HOMOGENEOUS = 26, "Homogeneous";
        MAXFILESIZE = 27, "MaxFileSize";
        MAXLINK = 28, "MaxLink";
        MAXNAME = 29, "MaxName";
        MAXREAD = 30, "MaxRead";
        MAXWRITE = 31, "MaxWrite";
        MIMETYPE = 32, "MimeType";
        MODE = 33, "Mode";
        NO_TRUNC = 34, "No_Trunc";
        NUMLINKS = 35, "NumLinks";
        OWNER = 36, "Owner";
        OWNER_GROUP = 37, "Owner_Group";
        QUOTA_AVAIL_HARD = 38, "Quota_Avail_Hard";
        QUOTA_AVAIL_SOFT = 39, "Quota_Avail_Soft";
        QUOTA_USED = 40, "Quota_Used";
        RAWDEV = 41, "RawDev";
        SPACE_AVAIL = 42, "Space_Avail";
        SPACE_FREE = 43, "Space_Free";
        SPACE_TOTAL = 44, "Space_Total";
        SPACE_USED = 45, "Space_Used";
        SYSTEM = 46, "System";
        TIME_ACCESS = 47, "Time_Access";
        TIME_ACCESS_SET = 48, "Time_Access_Set";
        TIME_BACKUP = 49, "Time_Backup";
        TIME_CREATE = 50, "Time_Create";
        TIME_DELTA = 51, "Time_Delta";
        TIME_METADATA = 52, "Time_Metadata";
        TIME_MODIFY = 53, "Time_Modify";
        TIME_MODIFY_SET = 54, "Time_Modify_Set";
        MOUNTED_ON_FILEID = 55, "Mounted_on_FileId";
        DIR_NOTIF_DELAY = 56, "Dir_Notif_Delay";
        DIRENT_NOTIF_DELAY = 57, "Dirent_Notif_Delay";
        DACL = 58, "DACL";
        SACL = 59, "SACL";
        CHANGE_POLICY = 60, "Change_Policy";
        FS_STATUS = 61, "FS_Status";
        FS_LAYOUT_TYPE = 62, "FS_Layout_Type";
        LAYOUT_HINT = 63, "Layout_Hint";
        LAYOUT_TYPE = 64, "Layout_Type";
        LAYOUT_BLKSIZE = 65, "Layout_blksize";
        LAYOUT_ALIGNMENT = 66, "Layout_Alignment";
        FS_LOCATIONS_INFO = 67, "FS_Locations_Info";
        MDSTHRESHOLD = 68, "MDS_Threshold";
        RETENTION_GET = 69, "Retention_Get";
        RETENTION_SET = 70, "Retention_Set";
        RETENTEVT_GET = 71, "Retentevt_Get";
        RETENTEVT_SET = 72, "Retentevt_Set";
        RETENTION_HOLD = 73, "Retention_Hold";
        MODE_SET_MASKED = 74, "Mode_Set_Masked";
        SUPPATTR_EXCLCREAT = 75, "Suppattr_ExclCreat";
        FS_CHARSET_CAP = 76, "FS_Charset_Cap";
        CLONE_BLKSIZE = 77, "Clone_Block_Size";
        SPACE_FREED = 78, "Space_Freed";
        CHANGE_ATTR_TYPE = 79, "Change_Attr_Type";
        SEC_LABEL = 80, "Security_Label";
        MODE_UMASK = 81, "Mode_Umask";
        XATTR_SUPPORT = 82, "Xattr_Support";
        OFFLINE = 83, "Offline";
        TIME_DELEG_ACCESS = 84, "Time_Deleg_Access";
        TIME_DELEG_MODIFY = 85, "Time_Deleg_Modify";
        OPEN_ARGUMENTS = 86, "Open_Arguments";
    }
}

wire_enum! {
    /// File types (RFC 8881 3.2, `nfs_ftype4`).
    pub enum FileType: u32 {
        REG = 1, "NF4REG";
        DIR = 2, "NF4DIR";
        BLK = 3, "NF4BLK";
        CHR = 4, "NF4CHR";
        LNK = 5, "NF4LNK";
        SOCK = 6, "NF4SOCK";
        FIFO = 7, "NF4FIFO";
        ATTRDIR = 8, "NF4ATTRDIR";
        NAMEDATTR = 9, "NF4NAMEDATTR";
    }
}

wire_enum! {
    /// Kinds of access control entries (RFC 8881 6.2.1.1).
    pub enum AceType: u32 {
        ALLOWED = 0, "Access_Allowed";
        DENIED = 1, "Access_Denied";
        AUDIT = 2, "System_Audit";
        ALARM = 3, "System_Alarm";
    }
}

wire_enum! {
    /// Rights of an access control entry (RFC 8881 6.2.1.3).
    pub enum AcePermission: u32 {
        READ_DATA = 0x0000_0001, "READ_DATA/LIST_DIRECTORY";
        WRITE_DATA = 0x0000_0002, "WRITE_DATA/ADD_FILE";
        APPEND_DATA = 0x0000_0004, "APPEND_DATA/ADD_SUBDIRECTORY";
        READ_NAMED_ATTRS = 0x0000_0008, "READ_NAMED_ATTRS";
        WRITE_NAMED_ATTRS = 0x0000_0010, "WRITE_NAMED_ATTRS";
        EXECUTE = 0x0000_0020, "EXECUTE";
        DELETE_CHILD = 0x0000_0040, "DELETE_CHILD";
        READ_ATTRIBUTES = 0x0000_0080, "READ_ATTRIBUTES";
        WRITE_ATTRIBUTES = 0x0000_0100, "WRITE_ATTRIBUTES";
        WRITE_RETENTION = 0x0000_0200, "WRITE_RETENTION";
        WRITE_RETENTION_HOLD = 0x0000_0400, "WRITE_RETENTION_HOLD";
        DELETE = 0x0001_0000, "DELETE";
        READ_ACL = 0x0002_0000, "READ_ACL";
        WRITE_ACL = 0x0004_0000, "WRITE_ACL";
        WRITE_OWNER = 0x0008_0000, "WRITE_OWNER";
        SYNCHRONIZE = 0x0010_0000, "SYNCHRONIZE";
    }
}

wire_enum! {
    /// Kinds of layouts (RFC 8881 3.3.13, RFC 5663, 8435, 8154).
    pub enum LayoutType: u32 {
        FILES = 1, "LAYOUT4_NFSV4_1_FILES";
        OSD2 = 2, "LAYOUT4_OSD2_OBJECTS";
        BLOCK = 3, "LAYOUT4_BLOCK_VOLUME";
        FLEX_FILES = 4, "LAYOUT4_FLEX_FILES";
        SCSI = 5, "LAYOUT4_SCSI";
    }
}

fields! {
    /// Attributes.
    pub mod f ["RFC 8881 5"] {
        MASK: U32 = "nfs.attr_mask", "Attr mask", hex;
        MASK_EMPTY: U32 = "rdmascope.nfs.attr_mask.empty", "Attr mask", hex;
        MASK_WORDS: U32 = "rdmascope.nfs.attr_mask.words", "words", dec;
        BITMAP: None = "rdmascope.nfs.bitmap4", "Attr mask";
        ATTR_COUNT: U32 = "nfs.attr_count", "Attr count", dec;
        ATTR: U32 = "nfs.attr", "reqd_attr", dec, values Attribute::VALUES;
        ATTRIBUTE: None = "rdmascope.nfs.attribute", "Attribute";
        ATTRIBUTES: None = "rdmascope.nfs.fattr4", "Attributes";
        VALUES_LENGTH: U32 = "rdmascope.nfs.attr_values.length", "Attr values length", dec;
        VALUES: Bytes = "rdmascope.nfs.attr_values", "Attr values";
        UNKNOWN: Bytes = "nfs.bitmap_data", "Undissected bitmap data";
        TYPE: U32 = "nfs.nfs_ftype4", "ftype4", dec, values FileType::VALUES;
        FH_EXPIRE_TYPE: U32 = "nfs.fattr4_fh_expire_type", "fattr4_fh_expire_type", hex;
        CHANGE: U64 = "nfs.changeid4", "changeid", dec;
        SIZE: U64 = "nfs.fattr4.size", "size", dec;
        LINK_SUPPORT: Bool = "nfs.fattr4_link_support", "fattr4_link_support";
        SYMLINK_SUPPORT: Bool = "nfs.fattr4_symlink_support", "fattr4_symlink_support";
        NAMED_ATTR: Bool = "nfs.fattr4_named_attr", "fattr4_named_attr";
        UNIQUE_HANDLES: Bool = "nfs.fattr4_unique_handles", "fattr4_unique_handles";
        LEASE_TIME: U32 = "nfs.fattr4.lease_time", "lease_time", dec;
        ACLSUPPORT: U32 = "nfs.fattr4.aclsupport", "aclsupport", dec;
        ACLSUPPORT_ALLOW: Bool & 0x1 / 32 = "nfs.fattr4.aclsupport.allow_acl", "ALLOW";
        ACLSUPPORT_DENY: Bool & 0x2 / 32 = "nfs.fattr4.aclsupport.deny_acl", "DENY";
        ACLSUPPORT_AUDIT: Bool & 0x4 / 32 = "nfs.fattr4.aclsupport.audit_acl", "AUDIT";
        ACLSUPPORT_ALARM: Bool & 0x8 / 32 = "nfs.fattr4.aclsupport.alarm_acl", "ALARM";
        ARCHIVE: Bool = "nfs.fattr4_archive", "fattr4_archive";
        CANSETTIME: Bool = "nfs.fattr4_cansettime", "fattr4_cansettime";
        CASE_INSENSITIVE: Bool = "nfs.fattr4_case_insensitive", "fattr4_case_insensitive";
        CASE_PRESERVING: Bool = "nfs.fattr4_case_preserving", "fattr4_case_preserving";
        CHOWN_RESTRICTED: Bool = "nfs.fattr4_chown_restricted", "fattr4_chown_restricted";
        FILEHANDLE: None = "rdmascope.nfs.fattr4_filehandle", "fattr4_filehandle";
        FILEID: U64 = "nfs.fattr4.fileid", "fileid", dec;
        FILES_AVAIL: U64 = "nfs.fattr4.files_avail", "files_avail", dec;
        FILES_FREE: U64 = "nfs.fattr4.files_free", "files_free", dec;
        FILES_TOTAL: U64 = "nfs.fattr4.files_total", "files_total", dec;
        FS_ROOT: None = "rdmascope.nfs.fattr4.fs_root", "fs_root";
        FS_LOCATION: None = "nfs.fattr4.fs_location", "fs_location4";
        SERVERS: None = "nfs.servers", "servers";
        SERVER: Str = "nfs.server", "server";
        ROOTPATH: None = "rdmascope.nfs.fattr4.rootpath", "rootpath";
        HIDDEN: Bool = "nfs.fattr4_hidden", "fattr4_hidden";
        HOMOGENEOUS: Bool = "nfs.fattr4_homogeneous", "fattr4_homogeneous";
        MAXFILESIZE: U64 = "nfs.fattr4.maxfilesize", "maxfilesize", dec;
        MAXLINK: U32 = "nfs.fattr4.maxlink", "maxlink", dec;
        MAXNAME: U32 = "nfs.fattr4.maxname", "maxname", dec;
        MAXREAD: U64 = "nfs.fattr4.maxread", "maxread", dec;
        MAXWRITE: U64 = "nfs.fattr4.maxwrite", "maxwrite", dec;
        MIMETYPE: Str as Keep = "nfs.fattr4_mimetype", "fattr4_mimetype";
        MODE: U32 = "nfs.mode", "mode", oct;
        MODE_NAME: U32 & 0xe000 / 32 = "nfs.mode.name", "Name", dec;
        MODE_SUID: Bool & 0x800 / 32 = "nfs.mode.set_user_id", "Set user id on exec";
        MODE_SGID: Bool & 0x400 / 32 = "nfs.mode.set_group_id", "Set group id on exec";
        MODE_SAVE: Bool & 0x200 / 32 = "nfs.mode.save_swap_text", "Save swapped text even after use";
        MODE_RUSR: Bool & 0x100 / 32 = "nfs.mode.read_owner", "Read permission for owner";
        MODE_WUSR: Bool & 0x80 / 32 = "nfs.mode.write_owner", "Write permission for owner";
        MODE_XUSR: Bool & 0x40 / 32 = "nfs.mode.exec_owner", "Execute permission for owner";
        MODE_RGRP: Bool & 0x20 / 32 = "nfs.mode.read_group", "Read permission for group";
        MODE_WGRP: Bool & 0x10 / 32 = "nfs.mode.write_group", "Write permission for group";
        MODE_XGRP: Bool & 0x08 / 32 = "nfs.mode.exec_group", "Execute permission for group";
        MODE_ROTH: Bool & 0x04 / 32 = "nfs.mode.read_other", "Read permission for others";
        MODE_WOTH: Bool & 0x02 / 32 = "nfs.mode.write_other", "Write permission for others";
        MODE_XOTH: Bool & 0x01 / 32 = "nfs.mode.exec_other", "Execute permission for others";
        UMASK: U32 = "nfs.fattr4.umask", "umask", oct;
        MODE_MASK: U32 = "rdmascope.nfs.fattr4.mode_mask", "mode mask", oct;
        NO_TRUNC: Bool = "nfs.fattr4_no_trunc", "fattr4_no_trunc";
        NUMLINKS: U32 = "nfs.fattr4.numlinks", "numlinks", dec;
        OWNER: Str = "nfs.fattr4_owner", "fattr4_owner";
        OWNER_GROUP: Str = "nfs.fattr4_owner_group", "fattr4_owner_group";
        QUOTA_HARD: U64 = "nfs.fattr4.quota_hard", "quota_hard", dec;
        QUOTA_SOFT: U64 = "nfs.fattr4.quota_soft", "quota_soft", dec;
        QUOTA_USED: U64 = "nfs.fattr4.quota_used", "quota_used", dec;
        SPACE_AVAIL: U64 = "nfs.fattr4.space_avail", "space_avail", dec;
        SPACE_FREE: U64 = "nfs.fattr4.space_free", "space_free", dec;
        SPACE_TOTAL: U64 = "nfs.fattr4.space_total", "space_total", dec;
        SPACE_USED: U64 = "nfs.fattr4.space_used", "space_used", dec;
        SYSTEM: Bool = "nfs.fattr4_system", "fattr4_system";
        TIME_SET: U32 = "rdmascope.nfs.fattr4.time_how", "set_it", dec, values &[(0, "SET_TO_SERVER_TIME4"), (1, "SET_TO_CLIENT_TIME4")];
        MOUNTED_ON: U64 = "nfs.fattr4.mounted_on_fileid", "fileid", hex;
        ACL_FLAGS: U32 = "nfs.acl.flags", "ACL flags", dec;
        ACL_AUTO_INHERIT: Bool & 0x1 / 32 = "nfs.acl.flags.auto_inherit", "AUTO_INHERIT";
        ACL_PROTECTED: Bool & 0x2 / 32 = "nfs.acl.flags.protected", "PROTECTED";
        ACL_DEFAULTED: Bool & 0x4 / 32 = "nfs.acl.flags.defaulted", "DEFAULTED";
        NUM_ACES: U32 = "nfs.num_aces", "ACE count", dec;
        ACE: None = "rdmascope.nfs.nfsace4", "ACE";
        ACETYPE: U32 = "nfs.acetype4", "acetype", dec, values AceType::VALUES;
        ACEFLAGS: U32 = "nfs.aceflags4", "ACE flags", hex;
        ACEFLAG_FILE_INHERIT: Bool & 0x01 / 32 = "nfs.aceflag4.file_inherit", "File_Inherit";
        ACEFLAG_DIR_INHERIT: Bool & 0x02 / 32 = "nfs.aceflag4.dir_inherit", "Directory_Inherit";
        ACEFLAG_NO_PROP: Bool & 0x04 / 32 = "nfs.aceflag4.no_prop_inherit", "No_Propagate_Inherit";
        ACEFLAG_INHERIT_ONLY: Bool & 0x08 / 32 = "nfs.aceflag4.inherit_only", "Inherit_Only";
        ACEFLAG_SUCCESSFUL: Bool & 0x10 / 32 = "nfs.aceflag4.successful_access", "Successful_Access";
        ACEFLAG_FAILED: Bool & 0x20 / 32 = "nfs.aceflag4.failed_access", "Failed_access";
        ACEFLAG_GROUP: Bool & 0x40 / 32 = "nfs.aceflag4.id_group", "Identifier_Group";
        ACEFLAG_INHERITED: Bool & 0x80 / 32 = "nfs.aceflag4.inherited_ace", "Inherited_ACE";
        ACEMASK: U32 = "nfs.acemask4", "ACE mask", hex;
        ACE_PERM: U32 = "nfs.ace_perm4", "perm", hex, values AcePermission::VALUES;
        WHO: Str = "nfs.who", "Who";
        POLICY_MAJOR: U64 = "rdmascope.nfs.change_policy.major", "major", dec;
        POLICY_MINOR: U64 = "rdmascope.nfs.change_policy.minor", "minor", dec;
        STATUS_ABSENT: Bool = "rdmascope.nfs.fs_status.absent", "absent";
        STATUS_TYPE: U32 = "rdmascope.nfs.fs_status.type", "type", dec, values &[(1, "STATUS4_FIXED"), (2, "STATUS4_UPDATED"), (3, "STATUS4_VERSIONED"), (4, "STATUS4_WRITABLE"), (5, "STATUS4_REFERRAL")];
        STATUS_SOURCE: Str = "rdmascope.nfs.fs_status.source", "source";
        STATUS_CURRENT: Str = "rdmascope.nfs.fs_status.current", "current";
        STATUS_AGE: I32 = "rdmascope.nfs.fs_status.age", "age", dec;
        STATUS_VERSION: None = "rdmascope.nfs.fs_status.version", "version";
        LAYOUTTYPE: U32 = "nfs.layouttype", "layout type", dec, values LayoutType::VALUES;
        LAYOUT_HINT: Bytes = "rdmascope.nfs.layout_hint", "layout hint";
        LAYOUT_BLKSIZE: U32 = "nfs.fattr4.layout_blksize", "blksize", dec;
        LAYOUT_ALIGNMENT: U32 = "rdmascope.nfs.fattr4.layout_alignment", "alignment", dec;
        LOCATIONS_FLAGS: U32 = "rdmascope.nfs.fs_locations_info.flags", "flags", hex;
        LOCATIONS_VALID_FOR: I32 = "rdmascope.nfs.fs_locations_info.valid_for", "valid for", dec;
        LOCATIONS_ITEM: None = "rdmascope.nfs.fs_locations_info.item", "item";
        LOCATIONS_SERVER: None = "rdmascope.nfs.fs_locations_info.server", "server";
        LOCATIONS_CURRENCY: I32 = "rdmascope.nfs.fs_locations_info.currency", "currency", dec;
        LOCATIONS_INFO: Bytes = "rdmascope.nfs.fs_locations_info.info", "info";
        THRESHOLD: None = "nfs.fattr4.threshold_item", "threshold_item4";
        THRESHOLD_HINTS: Bytes = "rdmascope.nfs.fattr4.threshold_item.hints", "hints";
        RETENTION_DURATION: U64 = "rdmascope.nfs.retention.duration", "duration", dec;
        RETENTION_ENABLE: Bool = "rdmascope.nfs.retention.enable", "enable";
        RETENTION_HOLD: U64 = "rdmascope.nfs.retention.hold", "hold", hex;
        CHARSET_CAP: U32 = "nfs.fattr4.fs_charset_cap", "fs_charset_cap", hex;
        CHARSET_NONUTF8: Bool & 0x1 / 32 = "nfs.fattr4.fs_charset_cap.nonutf8", "CONTAINS_NON_UTF8";
        CHARSET_UTF8: Bool & 0x2 / 32 = "nfs.fattr4.fs_charset_cap.utf8", "ALLOWS_ONLY_UTF8";
        CLONE_BLKSIZE: U32 = "nfs.fattr4.clone_block_size", "clone block size", dec;
        SPACE_FREED: U64 = "nfs.fattr4.space_freed", "space freed", dec;
        CHANGE_ATTR_TYPE: U32 = "nfs.fattr4.change_attr_type", "change attr type", dec, values &[
            (0, "NFS4_CHANGE_TYPE_IS_MONOTONIC_INCR"), (1, "NFS4_CHANGE_TYPE_IS_VERSION_COUNTER"),
            (2, "NFS4_CHANGE_TYPE_IS_VERSION_COUNTER_NOPNFS"), (3, "NFS4_CHANGE_TYPE_IS_TIME_METADATA"), (4, "NFS4_CHANGE_TYPE_IS_UNDEFINED")];
        LABEL_LFS: U32 = "nfs.fattr4.security_label.lfs", "label_format", dec;
        LABEL_PI: U32 = "nfs.fattr4.security_label.pi", "policy_id", dec;
        LABEL_CONTEXT: Str = "nfs.fattr4.security_label.context", "context";
        XATTR_SUPPORT: Bool = "nfs.fattr4_xattr_support", "fattr4_xattr_support";
        OFFLINE: Bool = "nfs.fattr4_offline", "fattr4_offline";
        OPEN_ARGUMENT: U32 = "rdmascope.nfs.fattr4.open_argument", "supported values", hex;
        OPEN_ARGUMENTS: None = "rdmascope.nfs.fattr4.open_arguments", "open argument";
    }
}

const MODE_BITS: &[Def] = &[
    f::MODE_NAME,
    f::MODE_SUID,
    f::MODE_SGID,
    f::MODE_SAVE,
    f::MODE_RUSR,
    f::MODE_WUSR,
    f::MODE_XUSR,
    f::MODE_RGRP,
    f::MODE_WGRP,
    f::MODE_XGRP,
    f::MODE_ROTH,
    f::MODE_WOTH,
    f::MODE_XOTH,
];
const ACEFLAG_BITS: &[Def] = &[
    f::ACEFLAG_FILE_INHERIT,
    f::ACEFLAG_DIR_INHERIT,
    f::ACEFLAG_NO_PROP,
    f::ACEFLAG_INHERIT_ONLY,
    f::ACEFLAG_SUCCESSFUL,
    f::ACEFLAG_FAILED,
    f::ACEFLAG_GROUP,
    f::ACEFLAG_INHERITED,
];
const ACLSUPPORT_BITS: &[Def] = &[f::ACLSUPPORT_ALLOW, f::ACLSUPPORT_DENY, f::ACLSUPPORT_AUDIT, f::ACLSUPPORT_ALARM];
const ACL_FLAG_BITS: &[Def] = &[f::ACL_AUTO_INHERIT, f::ACL_PROTECTED, f::ACL_DEFAULTED];

/// Words of a bitmap that are looked at: 256 attributes, of which 87 have a meaning.
const WORDS: usize = 8;

/// A set of attributes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Bitmap {
    words: [u32; WORDS],
}

impl Bitmap {
    fn attributes(&self) -> impl Iterator<Item = u32> + use<> {
        let words = self.words;
        words
            .into_iter()
            .zip(0_u32..)
            .filter(|(word, _)| *word != 0)
            .flat_map(|(word, index)| (0..32).filter(move |bit| word >> bit & 1 != 0).map(move |bit| index * 32 + bit))
    }
}

/// A bitmap; with `names` the attributes in it are reported one by one.
fn words<T: Trace>(x: &mut Xdr<'_, '_, T>, names: bool) -> Read<Bitmap> {
    let mut bitmap = Bitmap::default();
    x.list(f::MASK_WORDS, |x, index| {
        let at = x.i;
        if x.peek() == Some(0) {
            return x.u32(f::MASK_EMPTY).map(drop);
        }
        let word = x.u32(f::MASK)?;
        if let Some(place) = bitmap.words.get_mut(index as usize) {
            *place = word;
        }
        if T::ON {
            x.t.down();
            x.t.field(f::ATTR_COUNT, at, 0, Value::U(word.count_ones().into()));
            for bit in (0..32).filter(|bit| names && (index as usize) < WORDS && word >> bit & 1 != 0) {
                x.t.field(f::ATTR, at, 4, Value::U(u64::from(index) * 32 + bit));
            }
            x.t.up();
        }
        Ok(())
    })?;
    Ok(bitmap)
}

/// A set of attributes that is asked for, or was set (RFC 8881 3.3.7).
pub(super) fn bitmap<T: Trace>(x: &mut Xdr<'_, '_, T>) -> Read<Bitmap> {
    x.scope(f::BITMAP, |x| words(x, true))
}

/// A bitmap of something other than attributes, in a subtree of its own: its words alone.
pub(super) fn plain_bitmap<T: Trace>(x: &mut Xdr<'_, '_, T>, node: Def, word: Def, name: Option<Def>) -> Read<u32> {
    x.scope(node, |x| {
        let mut first = 0;
        x.list(xdr::f::COUNT, |x, index| {
            let at = x.i;
            let value = x.u32(word)?;
            if index == 0 {
                first = value;
            }
            if let (true, Some(name)) = (T::ON, name) {
                x.t.down();
                for bit in (0..32).filter(|bit| (index as usize) < WORDS && value >> bit & 1 != 0) {
                    x.t.field(name, at, 4, Value::U(u64::from(index) * 32 + bit));
                }
                x.t.up();
            }
            Ok(())
        })?;
        Ok(first)
    })
}

/// Attributes with their values (RFC 8881 3.3.8, `fattr4`).
pub(super) fn fattr<T: Trace>(x: &mut Xdr<'_, '_, T>) -> Read<()> {
    x.scope(f::ATTRIBUTES, |x| {
        let set = words(x, false)?;
        if !T::ON {
            return x.opaque(f::VALUES).map(drop);
        }
        let length = x.u32(f::VALUES_LENGTH)? as usize;
        x.within(f::VALUES, length, |x| {
            for number in set.attributes() {
                let attribute = Attribute(number);
                x.scope(f::ATTRIBUTE, |x| {
                    x.known(f::ATTR, number);
                    x.t.label(format_args!(": {attribute} ({number})"));
                    value(x, attribute)
                })?;
                // the length of an unknown one is not known, so neither is where the next begins
                if attribute.name().is_none() {
                    break;
                }
            }
            Ok(())
        })?;
        x.pad(length)
    })
}

fn value<T: Trace>(x: &mut Xdr<'_, '_, T>, attribute: Attribute) -> Read<()> {
    use Attribute as A;
    let word = match attribute {
        A::TYPE => Some(f::TYPE),
        A::FH_EXPIRE_TYPE => Some(f::FH_EXPIRE_TYPE),
        A::LEASE_TIME => Some(f::LEASE_TIME),
        A::MAXLINK => Some(f::MAXLINK),
        A::MAXNAME => Some(f::MAXNAME),
        A::NUMLINKS => Some(f::NUMLINKS),
        A::LAYOUT_BLKSIZE => Some(f::LAYOUT_BLKSIZE),
        A::LAYOUT_ALIGNMENT => Some(f::LAYOUT_ALIGNMENT),
        A::CLONE_BLKSIZE => Some(f::CLONE_BLKSIZE),
        A::CHANGE_ATTR_TYPE => Some(f::CHANGE_ATTR_TYPE),
        _ => None,
    };
    if let Some(def) = word {
        return x.u32(def).map(drop);
    }
    let hyper = match attribute {
        A::CHANGE => Some(f::CHANGE),
        A::SIZE => Some(f::SIZE),
        A::FILEID => Some(f::FILEID),
        A::FILES_AVAIL => Some(f::FILES_AVAIL),
        A::FILES_FREE => Some(f::FILES_FREE),
        A::FILES_TOTAL => Some(f::FILES_TOTAL),
        A::MAXFILESIZE => Some(f::MAXFILESIZE),
        A::MAXREAD => Some(f::MAXREAD),
        A::MAXWRITE => Some(f::MAXWRITE),
        A::QUOTA_AVAIL_HARD => Some(f::QUOTA_HARD),
        A::QUOTA_AVAIL_SOFT => Some(f::QUOTA_SOFT),
        A::QUOTA_USED => Some(f::QUOTA_USED),
        A::SPACE_AVAIL => Some(f::SPACE_AVAIL),
        A::SPACE_FREE => Some(f::SPACE_FREE),
        A::SPACE_TOTAL => Some(f::SPACE_TOTAL),
        A::SPACE_USED => Some(f::SPACE_USED),
        A::MOUNTED_ON_FILEID => Some(f::MOUNTED_ON),
        A::RETENTION_HOLD => Some(f::RETENTION_HOLD),
        A::SPACE_FREED => Some(f::SPACE_FREED),
        _ => None,
    };
    if let Some(def) = hyper {
        return x.u64(def).map(drop);
    }
    let boolean = match attribute {
        A::LINK_SUPPORT => Some(f::LINK_SUPPORT),
        A::SYMLINK_SUPPORT => Some(f::SYMLINK_SUPPORT),
        A::NAMED_ATTR => Some(f::NAMED_ATTR),
        A::UNIQUE_HANDLES => Some(f::UNIQUE_HANDLES),
        A::ARCHIVE => Some(f::ARCHIVE),
        A::CANSETTIME => Some(f::CANSETTIME),
        A::CASE_INSENSITIVE => Some(f::CASE_INSENSITIVE),
        A::CASE_PRESERVING => Some(f::CASE_PRESERVING),
        A::CHOWN_RESTRICTED => Some(f::CHOWN_RESTRICTED),
        A::HIDDEN => Some(f::HIDDEN),
        A::HOMOGENEOUS => Some(f::HOMOGENEOUS),
        A::NO_TRUNC => Some(f::NO_TRUNC),
        A::SYSTEM => Some(f::SYSTEM),
        A::XATTR_SUPPORT => Some(f::XATTR_SUPPORT),
        A::OFFLINE => Some(f::OFFLINE),
        _ => None,
    };
    if let Some(def) = boolean {
        return x.bool(def).map(drop);
    }
    let text = match attribute {
        A::MIMETYPE => Some(f::MIMETYPE),
        A::OWNER => Some(f::OWNER),
        A::OWNER_GROUP => Some(f::OWNER_GROUP),
        _ => None,
    };
    if let Some(def) = text {
        return x.opaque(def).map(drop);
    }
    match attribute {
        A::SUPPORTED_ATTRS | A::SUPPATTR_EXCLCREAT => bitmap(x).map(drop),
        A::FSID => fsid(x),
        A::RDATTR_ERROR => status(x).map(drop),
        A::ACL => aces(x),
        A::ACLSUPPORT => x.flags(f::ACLSUPPORT, ACLSUPPORT_BITS).map(drop),
        A::FILEHANDLE => handle(x, f::FILEHANDLE).map(drop),
        A::FS_LOCATIONS => {
            pathname(x, f::FS_ROOT)?;
            x.list(xdr::f::COUNT, |x, _| {
                x.scope(f::FS_LOCATION, |x| {
                    x.scope(f::SERVERS, |x| x.list(xdr::f::COUNT, |x, _| x.opaque(f::SERVER).map(drop)).map(drop))?;
                    pathname(x, f::ROOTPATH)
                })
            })
            .map(drop)
        }
        A::MODE => mode(x),
        A::RAWDEV => {
            x.u32(v3::f::SPECDATA1)?;
            x.u32(v3::f::SPECDATA2).map(drop)
        }
        A::TIME_ACCESS
        | A::TIME_BACKUP
        | A::TIME_CREATE
        | A::TIME_DELTA
        | A::TIME_METADATA
        | A::TIME_MODIFY
        | A::DIR_NOTIF_DELAY
        | A::DIRENT_NOTIF_DELAY
        | A::TIME_DELEG_ACCESS
        | A::TIME_DELEG_MODIFY => nfstime(x),
        A::TIME_ACCESS_SET | A::TIME_MODIFY_SET => {
            if x.u32(f::TIME_SET)? == 1 {
                nfstime(x)?;
            }
            Ok(())
        }
        A::DACL | A::SACL => {
            x.flags(f::ACL_FLAGS, ACL_FLAG_BITS)?;
            aces(x)
        }
        A::CHANGE_POLICY => {
            x.u64(f::POLICY_MAJOR)?;
            x.u64(f::POLICY_MINOR).map(drop)
        }
        A::FS_STATUS => {
            x.bool(f::STATUS_ABSENT)?;
            x.u32(f::STATUS_TYPE)?;
            x.opaque(f::STATUS_SOURCE)?;
            x.opaque(f::STATUS_CURRENT)?;
            x.i32(f::STATUS_AGE)?;
            time(x, f::STATUS_VERSION)
        }
        A::FS_LAYOUT_TYPE | A::LAYOUT_TYPE => x.list(xdr::f::COUNT, |x, _| x.u32(f::LAYOUTTYPE).map(drop)).map(drop),
        A::LAYOUT_HINT => {
            x.u32(f::LAYOUTTYPE)?;
            x.opaque(f::LAYOUT_HINT).map(drop)
        }
        A::FS_LOCATIONS_INFO => {
            x.u32(f::LOCATIONS_FLAGS)?;
            x.i32(f::LOCATIONS_VALID_FOR)?;
            pathname(x, f::FS_ROOT)?;
            x.list(xdr::f::COUNT, |x, _| {
                x.scope(f::LOCATIONS_ITEM, |x| {
                    x.list(xdr::f::COUNT, |x, _| {
                        x.scope(f::LOCATIONS_SERVER, |x| {
                            x.i32(f::LOCATIONS_CURRENCY)?;
                            x.opaque(f::LOCATIONS_INFO)?;
                            x.opaque(f::SERVER).map(drop)
                        })
                    })?;
                    pathname(x, f::ROOTPATH)
                })
            })
            .map(drop)
        }
        A::MDSTHRESHOLD => x
            .list(xdr::f::COUNT, |x, _| {
                x.scope(f::THRESHOLD, |x| {
                    x.u32(f::LAYOUTTYPE)?;
                    words(x, false)?;
                    x.opaque(f::THRESHOLD_HINTS).map(drop)
                })
            })
            .map(drop),
        A::RETENTION_GET | A::RETENTEVT_GET => {
            x.u64(f::RETENTION_DURATION)?;
            x.list(xdr::f::COUNT, |x, _| nfstime(x)).map(drop)
        }
        A::RETENTION_SET | A::RETENTEVT_SET => {
            x.bool(f::RETENTION_ENABLE)?;
            x.list(xdr::f::COUNT, |x, _| x.u64(f::RETENTION_DURATION).map(drop)).map(drop)
        }
        A::MODE_SET_MASKED => {
            mode(x)?;
            x.u32(f::MODE_MASK).map(drop)
        }
        A::FS_CHARSET_CAP => x.flags(f::CHARSET_CAP, &[f::CHARSET_NONUTF8, f::CHARSET_UTF8]).map(drop),
        A::SEC_LABEL => {
            x.u32(f::LABEL_LFS)?;
            x.u32(f::LABEL_PI)?;
            x.opaque(f::LABEL_CONTEXT).map(drop)
        }
        A::MODE_UMASK => {
            mode(x)?;
            x.u32(f::UMASK).map(drop)
        }
        // access, deny, wants, claims, create modes
        A::OPEN_ARGUMENTS => {
            (0..5).try_for_each(|_| plain_bitmap(x, f::OPEN_ARGUMENTS, f::OPEN_ARGUMENT, None).map(drop))
        }
        _ => {
            x.rest(f::UNKNOWN);
            Ok(())
        }
    }
}

fn mode<T: Trace>(x: &mut Xdr<'_, '_, T>) -> Read<()> {
    let mode = x.flags(f::MODE, MODE_BITS)?;
    if T::ON {
        x.t.label(format_args!(": {mode:04o}"));
    }
    Ok(())
}

fn aces<T: Trace>(x: &mut Xdr<'_, '_, T>) -> Read<()> {
    x.list(f::NUM_ACES, |x, _| ace(x)).map(drop)
}

/// One access control entry (RFC 8881 6.2.1).
pub(super) fn ace<T: Trace>(x: &mut Xdr<'_, '_, T>) -> Read<()> {
    x.scope(f::ACE, |x| {
        x.u32(f::ACETYPE)?;
        x.flags(f::ACEFLAGS, ACEFLAG_BITS)?;
        let at = x.i;
        let mask = x.u32(f::ACEMASK)?;
        if T::ON {
            x.t.down();
            for bit in (0..32).map(|n| 1_u32 << n).filter(|bit| mask & bit != 0) {
                x.t.field(f::ACE_PERM, at, 4, Value::U(bit.into()));
            }
            x.t.up();
        }
        x.opaque(f::WHO).map(drop)
    })
}
