//! Security descriptors, \[MS-DTYP\] 2.4: SIDs, access control lists and their entries. Self-relative, little-endian
//! except for the authority of a SID.
//!
//! ```text
//! revision  control  offsets: owner SID, group SID, SACL, DACL
//! ACL       revision  size  count │ ACE  type  flags  size  mask  [flags  GUIDs]  SID  [data] │ ACE …
//! ```

use super::blob::number;
use super::text::Utf16;
use super::{f as shared, flags8, flags16, flags32};
use crate::fault::{Fault, PResult};
use crate::field::Def;
use crate::leaf::{self, read};
use crate::trace::{Trace, Value, scope};
use core::fmt;

wire_enum! {
    /// Type of an entry.
    pub enum AceType: u8 {
        ACCESS_ALLOWED = 0x00, "Access Allowed";
        ACCESS_DENIED = 0x01, "Access Denied";
        SYSTEM_AUDIT = 0x02, "System Audit";
        SYSTEM_ALARM = 0x03, "System Alarm";
        ACCESS_ALLOWED_COMPOUND = 0x04, "Access Allowed Compound";
        ACCESS_ALLOWED_OBJECT = 0x05, "Access Allowed Object";
        ACCESS_DENIED_OBJECT = 0x06, "Access Denied Object";
        SYSTEM_AUDIT_OBJECT = 0x07, "System Audit Object";
        SYSTEM_ALARM_OBJECT = 0x08, "System Alarm Object";
        ACCESS_ALLOWED_CALLBACK = 0x09, "Access Allowed Callback";
        ACCESS_DENIED_CALLBACK = 0x0a, "Access Denied Callback";
        ACCESS_ALLOWED_CALLBACK_OBJECT = 0x0b, "Access Allowed Callback Object";
        ACCESS_DENIED_CALLBACK_OBJECT = 0x0c, "Access Denied Callback Object";
        SYSTEM_AUDIT_CALLBACK = 0x0d, "System Audit Callback";
        SYSTEM_ALARM_CALLBACK = 0x0e, "System Alarm Callback";
        SYSTEM_AUDIT_CALLBACK_OBJECT = 0x0f, "System Audit Callback Object";
        SYSTEM_ALARM_CALLBACK_OBJECT = 0x10, "System Alarm Callback Object";
        SYSTEM_MANDATORY_LABEL = 0x11, "System Mandatory Label";
        SYSTEM_RESOURCE_ATTRIBUTE = 0x12, "System Resource Attribute";
        SYSTEM_SCOPED_POLICY_ID = 0x13, "System Scoped Policy Id";
    }
}

impl AceType {
    const fn has_guids(self) -> bool {
        matches!(self.0, 0x05..=0x08 | 0x0b | 0x0c | 0x0f | 0x10)
    }

    const fn has_condition(self) -> bool {
        matches!(self.0, 0x09..=0x10)
    }
}

const CLAIM_TYPES: crate::field::Values =
    &[(1, "INT64"), (2, "UINT64"), (3, "STRING"), (5, "SID"), (6, "BOOLEAN"), (16, "OCTET_STRING")];

/// Tokens of a conditional expression, \[MS-DTYP\] 2.4.4.17.
const TOKENS: crate::field::Values = &[
    (0x00, "Padding"),
    (0x01, "Signed int8"),
    (0x02, "Signed int16"),
    (0x03, "Signed int32"),
    (0x04, "Signed int64"),
    (0x10, "Unicode string"),
    (0x18, "Octet string"),
    (0x50, "Composite"),
    (0x51, "SID"),
    (0x80, "=="),
    (0x81, "!="),
    (0x82, "<"),
    (0x83, "<="),
    (0x84, ">"),
    (0x85, ">="),
    (0x86, "Contains"),
    (0x87, "Exists"),
    (0x88, "Any_of"),
    (0x89, "Member_of"),
    (0x8a, "Device_Member_of"),
    (0x8b, "Member_of_Any"),
    (0x8c, "Device_Member_of_Any"),
    (0x8d, "Not_Exists"),
    (0x8e, "Not_Contains"),
    (0x8f, "Not_Any_of"),
    (0x90, "Not_Member_of"),
    (0x91, "Not_Device_Member_of"),
    (0x92, "Not_Member_of_Any"),
    (0x93, "Not_Device_Member_of_Any"),
    (0xa0, "&&"),
    (0xa1, "||"),
    (0xa2, "!"),
    (0xf8, "Local attribute"),
    (0xf9, "User attribute"),
    (0xfa, "Resource attribute"),
    (0xfb, "Device attribute"),
];

fields! {
    /// The fields of security descriptors.
    pub mod f ["[MS-DTYP] 2.4"] {
        DESCRIPTOR: None = "rdmascope.nt.sec_desc", "NT Security Descriptor";
        REVISION: U16 = "nt.sec_desc.revision", "Revision", dec;
        CONTROL: U16 = "nt.sec_desc.type", "Type", hex;
        OWNER_DEFAULTED: Bool & 0x0001 / 16 = "nt.sec_desc.type.owner_defaulted", "Owner Defaulted";
        GROUP_DEFAULTED: Bool & 0x0002 / 16 = "nt.sec_desc.type.group_defaulted", "Group Defaulted";
        DACL_PRESENT: Bool & 0x0004 / 16 = "nt.sec_desc.type.dacl_present", "DACL Present";
        DACL_DEFAULTED: Bool & 0x0008 / 16 = "nt.sec_desc.type.dacl_defaulted", "DACL Defaulted";
        SACL_PRESENT: Bool & 0x0010 / 16 = "nt.sec_desc.type.sacl_present", "SACL Present";
        SACL_DEFAULTED: Bool & 0x0020 / 16 = "nt.sec_desc.type.sacl_defaulted", "SACL Defaulted";
        DACL_TRUSTED: Bool & 0x0040 / 16 = "nt.sec_desc.type.dacl_trusted", "DACL Trusted";
        SERVER_SECURITY: Bool & 0x0080 / 16 = "nt.sec_desc.type.server_security", "Server Security";
        DACL_INHERIT_REQUIRED: Bool & 0x0100 / 16 = "nt.sec_desc.type.dacl_auto_inherit_req", "DACL Auto Inherit \
            Required";
        SACL_INHERIT_REQUIRED: Bool & 0x0200 / 16 = "nt.sec_desc.type.sacl_auto_inherit_req", "SACL Auto Inherit \
            Required";
        DACL_INHERITED: Bool & 0x0400 / 16 = "nt.sec_desc.type.dacl_auto_inherited", "DACL Auto Inherited";
        SACL_INHERITED: Bool & 0x0800 / 16 = "nt.sec_desc.type.sacl_auto_inherited", "SACL Auto Inherited";
        DACL_PROTECTED: Bool & 0x1000 / 16 = "nt.sec_desc.type.dacl_protected", "DACL Protected";
        SACL_PROTECTED: Bool & 0x2000 / 16 = "nt.sec_desc.type.sacl_protected", "SACL Protected";
        RM_CONTROL_VALID: Bool & 0x4000 / 16 = "nt.sec_desc.type.rm_control_valid", "RM Control Valid";
        SELF_RELATIVE: Bool & 0x8000 / 16 = "nt.sec_desc.type.self_relative", "Self Relative";
        OWNER_OFFSET: U32 = "nt.offset_to_owner_sid", "Offset to owner SID", dec;
        GROUP_OFFSET: U32 = "nt.offset_to_group_sid", "Offset to group SID", dec;
        SACL_OFFSET: U32 = "nt.offset_to_sacl", "Offset to SACL", dec;
        DACL_OFFSET: U32 = "nt.offset_to_dacl", "Offset to DACL", dec;
        OWNER: None = "rdmascope.nt.sec_desc.owner", "Owner";
        GROUP: None = "rdmascope.nt.sec_desc.group", "Group";
        DACL: None = "rdmascope.nt.sec_desc.dacl", "NT User (DACL) ACL";
        SACL: None = "rdmascope.nt.sec_desc.sacl", "NT System (SACL) ACL";
        SID: Str as Sid = "nt.sid", "SID";
        SID_REVISION: U8 = "nt.sid.revision", "Revision", dec;
        SID_COUNT: U8 = "nt.sid.num_auth", "Num Auth", dec;
        SID_AUTHORITY: U64 = "nt.sid.auth", "Authority", dec;
        SID_SUBAUTHORITIES: Str as Inside = "nt.sid.subauth", "Subauthorities";
        SID_RID: U32 = "nt.sid.rid", "RID", dec;
        SID_NAME: Str = "nt.sid.wkwn", "Well-known SID";
        ACL_REVISION: U16 = "nt.acl.revision", "Revision", dec;
        ACL_SIZE: U16 = "nt.acl.size", "Size", dec;
        ACL_COUNT: U32 = "nt.acl.num_aces", "Num ACEs", dec;
        ACE: None = "rdmascope.nt.ace", "NT ACE";
        ACE_TYPE: U8 = "nt.ace.type", "Type", dec, values AceType::VALUES;
        ACE_FLAGS: U8 = "nt.ace.flags", "NT ACE Flags", hex;
        ACE_OBJECT_INHERIT: Bool & 0x01 / 8 = "nt.ace.flags.object_inherit", "Object Inherit";
        ACE_CONTAINER_INHERIT: Bool & 0x02 / 8 = "nt.ace.flags.container_inherit", "Container Inherit";
        ACE_NO_PROPAGATE: Bool & 0x04 / 8 = "nt.ace.flags.non_propagate_inherit", "Non-Propagate Inherit";
        ACE_INHERIT_ONLY: Bool & 0x08 / 8 = "nt.ace.flags.inherit_only", "Inherit Only";
        ACE_INHERITED: Bool & 0x10 / 8 = "nt.ace.flags.inherited_ace", "Inherited ACE";
        ACE_SUCCESSFUL: Bool & 0x40 / 8 = "nt.ace.flags.successful_access", "Audit Successful Accesses";
        ACE_FAILED: Bool & 0x80 / 8 = "nt.ace.flags.failed_access", "Audit Failed Accesses";
        ACE_SIZE: U16 = "nt.ace.size", "Size", dec;
        MASK: U32 = "nt.access_mask", "Access required", hex;
        MASK_GENERIC_READ: Bool & 0x80000000 / 32 = "nt.access_mask.generic_read", "Generic read";
        MASK_GENERIC_WRITE: Bool & 0x40000000 / 32 = "nt.access_mask.generic_write", "Generic write";
        MASK_GENERIC_EXECUTE: Bool & 0x20000000 / 32 = "nt.access_mask.generic_execute", "Generic execute";
        MASK_GENERIC_ALL: Bool & 0x10000000 / 32 = "nt.access_mask.generic_all", "Generic all";
        MASK_MAXIMUM_ALLOWED: Bool & 0x02000000 / 32 = "nt.access_mask.maximum_allowed", "Maximum allowed";
        MASK_ACCESS_SACL: Bool & 0x01000000 / 32 = "nt.access_mask.access_sacl", "Access SACL";
        MASK_SYNCHRONISE: Bool & 0x00100000 / 32 = "nt.access_mask.synchronise", "Synchronise";
        MASK_WRITE_OWNER: Bool & 0x00080000 / 32 = "nt.access_mask.write_owner", "Write owner";
        MASK_WRITE_DAC: Bool & 0x00040000 / 32 = "nt.access_mask.write_dac", "Write DAC";
        MASK_READ_CONTROL: Bool & 0x00020000 / 32 = "nt.access_mask.read_control", "Read control";
        MASK_DELETE: Bool & 0x00010000 / 32 = "nt.access_mask.delete", "Delete";
        FILE_WRITE_ATTRIBUTES: Bool & 0x00000100 / 32 = "smb.file.accessmask.write_attribute", "Write Attribute";
        FILE_READ_ATTRIBUTES: Bool & 0x00000080 / 32 = "smb.file.accessmask.read_attribute", "Read Attribute";
        FILE_DELETE_CHILD: Bool & 0x00000040 / 32 = "smb.dir.accessmask.delete_child", "Delete Child";
        FILE_EXECUTE: Bool & 0x00000020 / 32 = "smb.file.accessmask.execute", "Execute";
        FILE_WRITE_EA: Bool & 0x00000010 / 32 = "smb.file.accessmask.write_ea", "Write EA";
        FILE_READ_EA: Bool & 0x00000008 / 32 = "smb.file.accessmask.read_ea", "Read EA";
        FILE_APPEND_DATA: Bool & 0x00000004 / 32 = "smb.file.accessmask.append_data", "Append Data";
        FILE_WRITE_DATA: Bool & 0x00000002 / 32 = "smb.file.accessmask.write_data", "Write Data";
        FILE_READ_DATA: Bool & 0x00000001 / 32 = "smb.file.accessmask.read_data", "Read Data";
        OBJECT_FLAGS: U32 = "nt.ace.object.flags", "ACE Object Flags", hex;
        OBJECT_TYPE_PRESENT: Bool & 0x1 / 32 = "nt.ace.object.flags.object_type_present", "Object Type Present";
        INHERITED_TYPE_PRESENT: Bool & 0x2 / 32 = "nt.ace.object.flags.inherited_object_type_present", "Inherited \
            Object Type Present";
        OBJECT_GUID: Guid = "nt.ace.object.guid", "GUID";
        INHERITED_GUID: Guid = "nt.ace.object.inherited_guid", "Inherited GUID";
        CONDITION: None = "nt.ace.cond", "Conditional Expression";
        TOKEN: U8 = "nt.ace.cond.token", "Token", hex, values TOKENS;
        TOKEN_VALUE: I64 = "nt.ace.cond.value_int64", "INT64", dec;
        TOKEN_SIGN: U8 = "nt.ace.cond.sign", "SIGN", hex, values &[(1, "PLUS"), (2, "MINUS"), (3, "NONE")];
        TOKEN_BASE: U8 = "nt.ace.cond.base", "BASE", hex, values &[(1, "OCTAL"), (2, "DECIMAL"), (3, "HEXADECIMAL")];
        TOKEN_LENGTH: U32 = "rdmascope.nt.ace.cond.length", "Length", dec;
        TOKEN_STRING: Utf16 = "nt.ace.cond.value_string", "UNICODE_STRING";
        TOKEN_OCTETS: Bytes = "nt.ace.cond.value_octet_string", "OCTET_STRING";
        TOKEN_LOCAL: Utf16 = "nt.ace.cond.local_attr", "LOCAL_ATTRIBUTE";
        TOKEN_USER: Utf16 = "nt.ace.cond.user_attr", "USER_ATTRIBUTE";
        TOKEN_RESOURCE: Utf16 = "nt.ace.cond.resource_attr", "RESOURCE_ATTRIBUTE";
        TOKEN_DEVICE: Utf16 = "nt.ace.cond.device_attr", "DEVICE_ATTRIBUTE";
        ATTRIBUTE: None = "nt.ace.sra", "Resource Attribute";
        ATTRIBUTE_NAME_OFFSET: U32 = "nt.ace.sra.name_offset", "Name Offset", dec;
        ATTRIBUTE_TYPE: U16 = "nt.ace.sra.type", "Type", dec, values CLAIM_TYPES;
        ATTRIBUTE_RESERVED: U16 = "nt.ace.sra.reserved", "Reserved", hex;
        ATTRIBUTE_FLAGS: U32 = "nt.ace.sra.flags", "Flags", hex;
        ATTRIBUTE_NON_INHERITABLE: Bool & 0x1 / 32 = "nt.ace.sra.flags.non_inheritable", "Non-Inheritable";
        ATTRIBUTE_CASE_SENSITIVE: Bool & 0x2 / 32 = "nt.ace.sra.flags.case_sensitive", "Case Sensitive";
        ATTRIBUTE_DENY_ONLY: Bool & 0x4 / 32 = "nt.ace.sra.flags.deny_only", "Deny Only";
        ATTRIBUTE_DISABLED_BY_DEFAULT: Bool & 0x8 / 32 = "nt.ace.sra.flags.disabled_by_default", "Disabled By Default";
        ATTRIBUTE_DISABLED: Bool & 0x10 / 32 = "nt.ace.sra.flags.disabled", "Disabled";
        ATTRIBUTE_MANDATORY: Bool & 0x20 / 32 = "nt.ace.sra.flags.mandatory", "Mandatory";
        ATTRIBUTE_MANUAL: Bool & 0x10000 / 32 = "nt.ace.sra.flags.manual", "Manual";
        ATTRIBUTE_POLICY: Bool & 0x20000 / 32 = "nt.ace.sra.flags.policy_derived", "Policy Derived";
        ATTRIBUTE_COUNT: U32 = "nt.ace.sra.value_count", "Value Count", dec;
        ATTRIBUTE_VALUE_OFFSET: U32 = "rdmascope.nt.ace.sra.value_offset", "Value Offset", dec;
        ATTRIBUTE_NAME: Utf16 = "nt.ace.sra.name", "Name";
        ATTRIBUTE_INT64: I64 = "nt.ace.sra.value_int64", "INT64", dec;
        ATTRIBUTE_UINT64: U64 = "nt.ace.sra.value_uint64", "UINT64", dec;
        ATTRIBUTE_STRING: Utf16 = "nt.ace.sra.value_string", "STRING";
        ATTRIBUTE_BOOLEAN: U64 = "nt.ace.sra.value_boolean", "BOOLEAN", dec;
        ATTRIBUTE_OCTETS: Bytes = "nt.ace.sra.value_octet_string", "OCTET_STRING";
    }
}

const CONTROL: &[Def] = &[
    f::OWNER_DEFAULTED,
    f::GROUP_DEFAULTED,
    f::DACL_PRESENT,
    f::DACL_DEFAULTED,
    f::SACL_PRESENT,
    f::SACL_DEFAULTED,
    f::DACL_TRUSTED,
    f::SERVER_SECURITY,
    f::DACL_INHERIT_REQUIRED,
    f::SACL_INHERIT_REQUIRED,
    f::DACL_INHERITED,
    f::SACL_INHERITED,
    f::DACL_PROTECTED,
    f::SACL_PROTECTED,
    f::RM_CONTROL_VALID,
    f::SELF_RELATIVE,
];

const ACE_FLAGS: &[Def] = &[
    f::ACE_OBJECT_INHERIT,
    f::ACE_CONTAINER_INHERIT,
    f::ACE_NO_PROPAGATE,
    f::ACE_INHERIT_ONLY,
    f::ACE_INHERITED,
    f::ACE_SUCCESSFUL,
    f::ACE_FAILED,
];

const MASK: &[Def] = &[
    f::MASK_GENERIC_READ,
    f::MASK_GENERIC_WRITE,
    f::MASK_GENERIC_EXECUTE,
    f::MASK_GENERIC_ALL,
    f::MASK_MAXIMUM_ALLOWED,
    f::MASK_ACCESS_SACL,
    f::MASK_SYNCHRONISE,
    f::MASK_WRITE_OWNER,
    f::MASK_WRITE_DAC,
    f::MASK_READ_CONTROL,
    f::MASK_DELETE,
    f::FILE_WRITE_ATTRIBUTES,
    f::FILE_READ_ATTRIBUTES,
    f::FILE_DELETE_CHILD,
    f::FILE_EXECUTE,
    f::FILE_WRITE_EA,
    f::FILE_READ_EA,
    f::FILE_APPEND_DATA,
    f::FILE_WRITE_DATA,
    f::FILE_READ_DATA,
];

const ATTRIBUTE_FLAGS: &[Def] = &[
    f::ATTRIBUTE_NON_INHERITABLE,
    f::ATTRIBUTE_CASE_SENSITIVE,
    f::ATTRIBUTE_DENY_ONLY,
    f::ATTRIBUTE_DISABLED_BY_DEFAULT,
    f::ATTRIBUTE_DISABLED,
    f::ATTRIBUTE_MANDATORY,
    f::ATTRIBUTE_MANUAL,
    f::ATTRIBUTE_POLICY,
];

/// A security identifier: writes itself as `S-1-5-21-…`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sid<'a>(&'a [u8]);

impl<'a> Sid<'a> {
    /// The SID that `bytes` begin with; `None` where they end too early.
    pub fn of(bytes: &'a [u8]) -> Option<Self> {
        let count = usize::from(*bytes.get(1)?);
        bytes.get(..8 + 4 * count).map(Self)
    }

    /// The whole SID in its wire form.
    pub const fn bytes(self) -> &'a [u8] {
        self.0
    }

    /// The numbers behind the authority.
    pub fn subauthorities(self) -> impl Iterator<Item = u32> + 'a {
        self.0[8..].chunks_exact(4).map(|b| u32::from_le_bytes([b[0], b[1], b[2], b[3]]))
    }

    /// The name of a SID that is the same everywhere, \[MS-DTYP\] 2.4.2.4.
    pub fn well_known(self) -> Option<&'static str> {
        let authority = number(self.0, 7, 1) | number(self.0, 6, 1) << 8;
        let (mut subs, count) = (self.subauthorities(), self.0[1]);
        let (first, second) = (subs.next().unwrap_or(0), subs.next().unwrap_or(0));
        Some(match (authority, count, first, second) {
            (0, 1, 0, _) => "Null",
            (1, 1, 0, _) => "Everyone",
            (2, 1, 0, _) => "Local",
            (2, 1, 1, _) => "Console Logon",
            (3, 1, 0, _) => "Creator Owner",
            (3, 1, 1, _) => "Creator Group",
            (3, 1, 4, _) => "Owner Rights",
            (5, 1, 1, _) => "Dialup",
            (5, 1, 2, _) => "Network",
            (5, 1, 3, _) => "Batch",
            (5, 1, 4, _) => "Interactive",
            (5, 1, 6, _) => "Service",
            (5, 1, 7, _) => "Anonymous",
            (5, 1, 9, _) => "Enterprise Domain Controllers",
            (5, 1, 10, _) => "Self",
            (5, 1, 11, _) => "Authenticated Users",
            (5, 1, 12, _) => "Restricted",
            (5, 1, 13, _) => "Terminal Server Users",
            (5, 1, 17, _) => "IUSR",
            (5, 1, 18, _) => "Local System",
            (5, 1, 19, _) => "Local Service",
            (5, 1, 20, _) => "Network Service",
            (5, 2, 32, 544) => "Administrators",
            (5, 2, 32, 545) => "Users",
            (5, 2, 32, 546) => "Guests",
            (5, 2, 32, 547) => "Power Users",
            (5, 2, 32, 551) => "Backup Operators",
            (16, 1, 0x0000, _) => "Untrusted Mandatory Level",
            (16, 1, 0x1000, _) => "Low Mandatory Level",
            (16, 1, 0x2000, _) => "Medium Mandatory Level",
            (16, 1, 0x3000, _) => "High Mandatory Level",
            (16, 1, 0x4000, _) => "System Mandatory Level",
            (22, 2, 1, _) => "Unix User",
            (22, 2, 2, _) => "Unix Group",
            (5, 3, 88, 1) => "NFS User",
            (5, 3, 88, 2) => "NFS Group",
            (5, 3, 88, 3) => "NFS Mode",
            _ => return None,
        })
    }
}

impl fmt::Display for Sid<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let authority = self.0[2..8].iter().fold(0u64, |n, b| n << 8 | u64::from(*b));
        write!(f, "S-{}-{authority}", self.0[0])?;
        self.subauthorities().try_for_each(|s| write!(f, "-{s}"))
    }
}

struct Subauthorities<'a>(Sid<'a>);

impl fmt::Display for Subauthorities<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (n, sub) in self.0.subauthorities().enumerate() {
            write!(f, "{}{sub}", if n > 0 { "-" } else { "" })?;
        }
        Ok(())
    }
}

/// Decodes the SID that `i` begins with, in the subtree that is open.
pub(super) fn sid<'a, T: Trace>(i: &'a [u8], t: &mut T) -> PResult<'a, Sid<'a>> {
    let Some(sid) = Sid::of(i) else {
        let count = i.get(1).map_or(0, |n| usize::from(*n));
        return Fault::short(Some(f::SID), i, 8 + 4 * count).fail();
    };
    let rest = &i[sid.0.len()..];
    if T::ON {
        t.field(f::SID, i, sid.0.len(), Value::Text(format_args!("{sid}")));
        t.down();
        t.field(f::SID_REVISION, i, 1, Value::U(i[0].into()));
        t.field(f::SID_COUNT, &i[1..], 1, Value::U(i[1].into()));
        t.field(f::SID_AUTHORITY, &i[2..], 6, Value::U(i[2..8].iter().fold(0u64, |n, b| n << 8 | u64::from(*b))));
        if i[1] > 0 {
            let length = sid.0.len() - 8;
            t.field(f::SID_SUBAUTHORITIES, &i[8..], length, Value::Text(format_args!("{}", Subauthorities(sid))));
            let last = &i[sid.0.len() - 4..];
            t.field(f::SID_RID, last, 4, Value::U(number(last, 0, 4)));
        }
        if let Some(name) = sid.well_known() {
            t.field(f::SID_NAME, i, 0, Value::Text(format_args!("{name}")));
        }
        t.up();
        t.label(format_args!(": {sid}"));
        if let Some(name) = sid.well_known() {
            t.label(format_args!(" ({name})"));
        }
    }
    Ok((rest, sid))
}

/// Decodes a self-relative security descriptor that fills `i`.
pub(super) fn descriptor<'a, T: Trace>(i: &'a [u8], t: &mut T) -> PResult<'a, ()> {
    scope(f::DESCRIPTOR, i, t, |start, t| {
        let (i, _) = read::le16(f::REVISION, start, t)?;
        let (i, _) = flags16(f::CONTROL, CONTROL, i, t)?;
        let (i, owner) = read::le32(f::OWNER_OFFSET, i, t)?;
        let (i, group) = read::le32(f::GROUP_OFFSET, i, t)?;
        let (i, sacl) = read::le32(f::SACL_OFFSET, i, t)?;
        let (i, dacl) = read::le32(f::DACL_OFFSET, i, t)?;
        let at = |offset: u32, def, t: &mut T| match start.get(offset as usize..) {
            Some(at) if offset >= 20 => Some(at),
            _ if offset == 0 => None,
            _ => {
                t.fault(&Fault::length(def, start, offset as usize));
                None
            }
        };
        // a fault in one of the four is reported for that one; the others are read nevertheless
        if let Some(at) = at(owner, f::OWNER_OFFSET, t) {
            let _ = scope(f::OWNER, at, t, sid);
        }
        if let Some(at) = at(group, f::GROUP_OFFSET, t) {
            let _ = scope(f::GROUP, at, t, sid);
        }
        if let Some(at) = at(sacl, f::SACL_OFFSET, t) {
            let _ = scope(f::SACL, at, t, acl);
        }
        if let Some(at) = at(dacl, f::DACL_OFFSET, t) {
            let _ = scope(f::DACL, at, t, acl);
        }
        Ok((&i[i.len()..], ()))
    })
}

fn acl<'a, T: Trace>(start: &'a [u8], t: &mut T) -> PResult<'a, ()> {
    let (i, _) = read::le16(f::ACL_REVISION, start, t)?;
    let (i, size) = read::le16(f::ACL_SIZE, i, t)?;
    let at = i;
    let (i, count) = leaf::le32(i).map_err(|_| nom::Err::Error(Fault::short(Some(f::ACL_COUNT), i, 4)))?;
    t.field(f::ACL_COUNT, at, 4, Value::U(count.into()));
    t.label(format_args!(": {count} entries"));
    let mut i = &i[..usize::from(size).saturating_sub(8).min(i.len())];
    for _ in 0..count {
        (i, _) = scope(f::ACE, i, t, ace)?;
    }
    Ok((i, ()))
}

fn ace<'a, T: Trace>(start: &'a [u8], t: &mut T) -> PResult<'a, ()> {
    let (i, kind) = read::u8(f::ACE_TYPE, start, t)?;
    let (i, _) = flags8(f::ACE_FLAGS, ACE_FLAGS, i, t)?;
    let (i, size) = read::le16(f::ACE_SIZE, i, t)?;
    let (kind, size) = (AceType(kind), usize::from(size));
    if size < 4 || size > start.len() {
        return Fault::length(f::ACE_SIZE, &start[2..], size).fail();
    }
    t.label(format_args!(" {kind}"));
    let (body, rest) = i.split_at(size - 4);
    if kind.name().is_none() || kind == AceType::ACCESS_ALLOWED_COMPOUND {
        if !body.is_empty() {
            t.field(shared::UNKNOWN, body, body.len(), Value::Bytes(body));
        }
        return Ok((rest, ()));
    }
    let (mut i, _) = flags32(f::MASK, MASK, body, t)?;
    if kind.has_guids() {
        let flags;
        (i, flags) = flags32(f::OBJECT_FLAGS, &[f::OBJECT_TYPE_PRESENT, f::INHERITED_TYPE_PRESENT], i, t)?;
        if flags & 1 != 0 {
            (i, _) = read::array::<16, T>(f::OBJECT_GUID, i, t)?;
        }
        if flags & 2 != 0 {
            (i, _) = read::array::<16, T>(f::INHERITED_GUID, i, t)?;
        }
    }
    (i, _) = sid(i, t)?;
    if kind.has_condition() && i.starts_with(b"artx") {
        let _ = scope(f::CONDITION, i, t, condition);
    } else if kind == AceType::SYSTEM_RESOURCE_ATTRIBUTE {
        let _ = scope(f::ATTRIBUTE, i, t, resource_attribute);
    } else if !i.is_empty() {
        t.field(shared::UNKNOWN, i, i.len(), Value::Bytes(i));
    }
    Ok((rest, ()))
}

/// A conditional expression in postfix notation: `artx`, then tokens. A composite is reported as its length and its
/// members.
fn condition<'a, T: Trace>(i: &'a [u8], t: &mut T) -> PResult<'a, ()> {
    let (mut i, _) = leaf::take(i, 4)?;
    while !i.is_empty() {
        let token;
        (i, token) = read::u8(f::TOKEN, i, t)?;
        let text = match token {
            0x01..=0x04 => {
                (i, _) = read::lei64(f::TOKEN_VALUE, i, t)?;
                (i, _) = read::u8(f::TOKEN_SIGN, i, t)?;
                (i, _) = read::u8(f::TOKEN_BASE, i, t)?;
                continue;
            }
            0x50 => {
                (i, _) = read::le32(f::TOKEN_LENGTH, i, t)?;
                continue;
            }
            0x51 => {
                (i, _) = read::le32(f::TOKEN_LENGTH, i, t)?;
                (i, _) = sid(i, t)?;
                continue;
            }
            0x10 => f::TOKEN_STRING,
            0x18 => f::TOKEN_OCTETS,
            0xf8 => f::TOKEN_LOCAL,
            0xf9 => f::TOKEN_USER,
            0xfa => f::TOKEN_RESOURCE,
            0xfb => f::TOKEN_DEVICE,
            _ => continue,
        };
        let length;
        (i, length) = read::le32(f::TOKEN_LENGTH, i, t)?;
        (i, _) = read::bytes(text, length as usize, i, t)?;
    }
    Ok((i, ()))
}

/// CLAIM_SECURITY_ATTRIBUTE_RELATIVE_V1, \[MS-DTYP\] 2.4.10.1.
fn resource_attribute<'a, T: Trace>(start: &'a [u8], t: &mut T) -> PResult<'a, ()> {
    let (i, name) = read::le32(f::ATTRIBUTE_NAME_OFFSET, start, t)?;
    let (i, kind) = read::le16(f::ATTRIBUTE_TYPE, i, t)?;
    let (i, _) = read::le16(f::ATTRIBUTE_RESERVED, i, t)?;
    let (i, _) = flags32(f::ATTRIBUTE_FLAGS, ATTRIBUTE_FLAGS, i, t)?;
    let (mut i, count) = read::le32(f::ATTRIBUTE_COUNT, i, t)?;
    // values may overlap: all of them together may be as long as the bytes they lie in
    let mut budget = start.len();
    let mut string = |def, at: &'a [u8], t: &mut T| {
        let text = Utf16(at).until_nul().0;
        let text = &text[..text.len().min(budget)];
        budget -= text.len();
        t.field(def, at, text.len(), Value::Bytes(text));
    };
    if let Some(at) = start.get(name as usize..) {
        string(f::ATTRIBUTE_NAME, at, t);
    }
    for _ in 0..count {
        let offset;
        (i, offset) = read::le32(f::ATTRIBUTE_VALUE_OFFSET, i, t)?;
        let Some(at) = start.get(offset as usize..) else {
            return Fault::length(f::ATTRIBUTE_VALUE_OFFSET, i, offset as usize).fail();
        };
        match kind {
            1 => _ = read::lei64(f::ATTRIBUTE_INT64, at, t)?,
            2 => _ = read::le64(f::ATTRIBUTE_UINT64, at, t)?,
            6 => _ = read::le64(f::ATTRIBUTE_BOOLEAN, at, t)?,
            3 => string(f::ATTRIBUTE_STRING, at, t),
            5 | 16 => {
                let (at, length) = read::le32(f::TOKEN_LENGTH, at, t)?;
                if kind == 5 {
                    sid(at, t)?;
                } else {
                    read::bytes(f::ATTRIBUTE_OCTETS, length as usize, at, t)?;
                }
            }
            _ => {}
        }
    }
    Ok((&start[start.len()..], ()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trace::Tree;
    use alloc::format;
    use alloc::vec::Vec;

    const EVERYONE: [u8; 12] = [1, 1, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0];
    const ADMINISTRATORS: [u8; 16] = [1, 2, 0, 0, 0, 0, 0, 5, 32, 0, 0, 0, 0x20, 2, 0, 0];

    fn ace_of(kind: u8, body: &[u8]) -> Vec<u8> {
        let mut ace = Vec::from([kind, 3]);
        ace.extend_from_slice(&(4 + body.len() as u16).to_le_bytes());
        ace.extend_from_slice(body);
        ace
    }

    /// Owner and group, and a DACL of these entries.
    pub(in super::super) fn example(aces: &[Vec<u8>]) -> Vec<u8> {
        let mut bytes = Vec::from([1, 0, 0x04, 0x80]);
        for offset in [20u32, 36, 0, 48] {
            bytes.extend_from_slice(&offset.to_le_bytes());
        }
        bytes.extend_from_slice(&ADMINISTRATORS);
        bytes.extend_from_slice(&EVERYONE);
        let all: Vec<u8> = aces.concat();
        bytes.extend_from_slice(&[2, 0]);
        bytes.extend_from_slice(&(8 + all.len() as u16).to_le_bytes());
        bytes.extend_from_slice(&(aces.len() as u32).to_le_bytes());
        bytes.extend_from_slice(&all);
        bytes
    }

    fn tree(bytes: &[u8]) -> Tree {
        let mut tree = Tree::new();
        tree.begin(bytes);
        let _ = descriptor(bytes, &mut tree);
        tree
    }

    fn every_kind() -> Vec<Vec<u8>> {
        let allow = [&0x001f_01ffu32.to_le_bytes()[..], &EVERYONE].concat();
        let object = [&[1, 0, 0, 0, 3, 0, 0, 0][..], &[0xaa; 16], &[0xbb; 16], &EVERYONE].concat();
        let mut condition = [&[1, 0, 0, 0][..], &EVERYONE, b"artx"].concat();
        condition.extend_from_slice(&[0xf9, 4, 0, 0, 0, b'a', 0, b'b', 0]);
        condition.extend_from_slice(&[0x04, 5, 0, 0, 0, 0, 0, 0, 0, 1, 2, 0x80]);
        condition.extend_from_slice(&[0x50, 17, 0, 0, 0, 0x51, 12, 0, 0, 0]);
        condition.extend_from_slice(&EVERYONE);
        condition.push(0x89);
        let mut attribute = [&[0, 0, 0, 0][..], &EVERYONE].concat();
        attribute.extend_from_slice(&[20, 0, 0, 0, 3, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 24, 0, 0, 0]);
        attribute.extend_from_slice(&[b'n', 0, 0, 0, b'v', 0, 0, 0]);
        Vec::from([
            ace_of(0, &allow),
            ace_of(5, &object),
            ace_of(9, &condition),
            ace_of(0x12, &attribute),
            ace_of(0x77, &[1, 2, 3]),
        ])
    }

    #[test]
    fn sids_write_themselves() {
        let sid = Sid::of(&ADMINISTRATORS).unwrap();
        assert_eq!((format!("{sid}").as_str(), sid.well_known()), ("S-1-5-32-544", Some("Administrators")));
        assert!(Sid::of(&ADMINISTRATORS[..15]).is_none());
        let [a, b] = [[1u8, 255].as_slice(), &[]];
        assert!(Sid::of(a).is_none() && Sid::of(b).is_none());
    }

    #[test]
    fn owner_group_and_entries_of_every_shape() {
        let bytes = example(&every_kind());
        let tree = tree(&bytes);
        assert!(tree.faults.is_empty(), "{:?}", tree.faults);
        let sids: Vec<_> = tree.all("nt.sid").map(|n| tree.value_bytes(n).to_vec()).collect();
        assert_eq!((sids[0].as_slice(), sids[1].as_slice(), sids.len()), (&b"S-1-5-32-544"[..], &b"S-1-1-0"[..], 7));
        assert_eq!(tree.all("rdmascope.nt.ace").count(), 5);
        assert_eq!(tree.number("nt.access_mask"), Some(0x001f_01ff));
        assert_eq!(tree.number("nt.sec_desc.type.self_relative"), Some(1));
        assert_eq!((tree.all("nt.ace.object.guid").count(), tree.all("nt.ace.cond.user_attr").count()), (1, 1));
        assert_eq!(tree.all("nt.ace.cond.token").count(), 6);
        let value = tree.all("nt.ace.sra.value_string").next().unwrap();
        assert_eq!(tree.value_bytes(value), [b'v', 0]);
    }

    #[test]
    fn what_is_cut_or_lies_gives_a_fault() {
        let bytes = example(&every_kind());
        for n in 0..bytes.len() {
            assert!(!tree(&bytes[..n]).faults.is_empty(), "{n}");
        }
        let mut bytes = example(&[]);
        let count = bytes.len() - 4;
        bytes[count..].fill(0xff);
        let tree = tree(&bytes);
        assert_eq!(tree.faults.len(), 1, "four thousand million entries end at the first");
    }
}
