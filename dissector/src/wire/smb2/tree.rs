//! TREE_CONNECT, \[MS-SMB2\] 2.2.9 and 2.2.10: connects to a share, from SMB 3.1.1 on perhaps with a remoted identity.

use super::blob::{Blob, behind, blob, number};
use super::text::Utf16;
use super::{Header, f as shared, security};
use crate::fault::{Fault, PResult};
use crate::leaf::{self, read};
use crate::trace::{Trace, Value, scope};

const BODY: usize = Header::LEN;

wire_enum! {
    /// ShareType: kind of share.
    pub enum ShareType: u8 {
        DISK = 0x01, "Physical disk";
        PIPE = 0x02, "Named pipe";
        PRINT = 0x03, "Printer";
    }
}

fields! {
    /// Fields of the variable part of the request.
    pub mod f ["[MS-SMB2] 2.2.9"] {
        PATH: Utf16 = "smb2.tree", "Tree";
        EXTENSION: None = "rdmascope.smb2.tc.extension", "Tree Connect Extension";
        CONTEXT_OFFSET: U32 = "rdmascope.smb2.tc.extension.context_offset", "TreeConnectContextOffset", hex;
        CONTEXT_COUNT: U16 = "rdmascope.smb2.tc.extension.context_count", "TreeConnectContextCount", dec;
        CONTEXT: None = "rdmascope.smb2.tc.context", "Tree Connect Context";
        CONTEXT_TYPE: U16 = "rdmascope.smb2.tc.context.type", "ContextType", hex, values &[(0, "Reserved"), (1, "SMB2_REMOTED_IDENTITY_TREE_CONNECT")];
        CONTEXT_LENGTH: U16 = "rdmascope.smb2.tc.context.length", "DataLength", dec;
        TICKET_TYPE: U16 = "rdmascope.smb2.tc.identity.ticket_type", "TicketType", hex;
        TICKET_SIZE: U16 = "rdmascope.smb2.tc.identity.ticket_size", "TicketSize", dec;
        IDENTITY_OFFSET: U16 = "rdmascope.smb2.tc.identity.offset", "Offset", dec;
        IDENTITY_USER: Bytes = "rdmascope.smb2.tc.identity.user", "User";
        IDENTITY_NAME: Bytes = "rdmascope.smb2.tc.identity.user_name", "UserName";
        IDENTITY_DOMAIN: Bytes = "rdmascope.smb2.tc.identity.domain", "Domain";
        IDENTITY_GROUPS: Bytes = "rdmascope.smb2.tc.identity.groups", "Groups";
        IDENTITY_RESTRICTED: Bytes = "rdmascope.smb2.tc.identity.restricted_groups", "RestrictedGroups";
        IDENTITY_PRIVILEGES: Bytes = "rdmascope.smb2.tc.identity.privileges", "Privileges";
        IDENTITY_PRIMARY: Bytes = "rdmascope.smb2.tc.identity.primary_group", "PrimaryGroup";
        IDENTITY_OWNER: Bytes = "rdmascope.smb2.tc.identity.owner", "Owner";
        IDENTITY_DACL: Bytes = "rdmascope.smb2.tc.identity.default_dacl", "DefaultDacl";
        IDENTITY_DEVICE_GROUPS: Bytes = "rdmascope.smb2.tc.identity.device_groups", "DeviceGroups";
        IDENTITY_USER_CLAIMS: Bytes = "rdmascope.smb2.tc.identity.user_claims", "UserClaims";
        IDENTITY_DEVICE_CLAIMS: Bytes = "rdmascope.smb2.tc.identity.device_claims", "DeviceClaims";
    }
}

header! {
    /// The fixed part of the request.
    pub struct TreeConnectRequestFixed [NODE = "rdmascope.smb2.tree_connect_request", "Tree Connect Request", "[MS-SMB2] 2.2.9"] {
        /// 9.
        structure_size: le16 = "smb2.buffer_code", "StructureSize", hex, bits {
            fixed_part_length: u16 & 0xfffe = "smb2.buffer_code.length", "Fixed Part Length";
            has_dynamic_part: bool & 0x0001 = "smb2.buffer_code.dynamic", "Dynamic Part";
        };
        /// SMB 3.1.1; reserved before.
        flags: le16 = "smb2.tc.flags", "Flags", hex, bits {
            cluster_reconnect: bool & 0x0001 = "smb2.tc.cluster_reconnect", "Cluster Reconnect";
            redirect_to_owner: bool & 0x0002 = "smb2.tc.redirect_to_owner", "Redirect To Owner";
            extension_present: bool & 0x0004 = "smb2.tc.extension_present", "Extension Present";
            flags_reserved: u16 & 0xfff8 = "smb2.tc.reserved", "Reserved", hex;
        };
        path_offset: le16 = "_", "Path Offset";
        path_length: le16 = "_", "Path Length";
    }
}

header! {
    /// The reply.
    pub struct TreeConnectResponse [NODE = "rdmascope.smb2.tree_connect_response", "Tree Connect Response", "[MS-SMB2] \
        2.2.10"] {
        /// 16.
        structure_size: le16 = "smb2.buffer_code", "StructureSize", hex, bits {
            fixed_part_length: u16 & 0xfffe = "smb2.buffer_code.length", "Fixed Part Length";
            has_dynamic_part: bool & 0x0001 = "smb2.buffer_code.dynamic", "Dynamic Part";
        };
        share_type: u8 = "smb2.share_type", "Share Type", hex, values ShareType::VALUES;
        reserved: bytes[1] as Keep = "smb2.reserved", "Reserved";
        share_flags: le32 = "smb2.share_flags", "Share flags", hex, bits {
            dfs: bool & 0x00000001 = "smb2.share_flags.dfs", "DFS";
            dfs_root: bool & 0x00000002 = "smb2.share_flags.dfs_root", "DFS root";
            restrict_exclusive_opens: bool & 0x00000100 = "smb2.share_flags.restrict_exclusive_opens", "Restrict exclusive opens";
            force_shared_delete: bool & 0x00000200 = "smb2.share_flags.force_shared_delete", "Force shared delete";
            allow_namespace_caching: bool & 0x00000400 = "smb2.share_flags.allow_namespace_caching", "Allow namespace \
                caching";
            access_based_directory_enum: bool & 0x00000800 = "smb2.share_flags.access_based_dir_enum", "Access based \
                directory enum";
            force_level_ii_oplock: bool & 0x00001000 = "smb2.share_flags.force_levelii_oplock", "Force level II oplock";
            enable_hash_v1: bool & 0x00002000 = "smb2.share_flags.enable_hash_v1", "Enable hash V1";
            enable_hash_v2: bool & 0x00004000 = "smb2.share_flags.enable_hash_v2", "Enable hash V2";
            encrypt_data: bool & 0x00008000 = "smb2.share_flags.encrypt_data", "Encrypted data required";
            identity_remoting: bool & 0x00040000 = "smb2.share_flags.identity_remoting", "Identity Remoting";
            compress_data: bool & 0x00100000 = "smb2.share_flags.compress_data", "Compressed IO";
            isolated_transport: bool & 0x00200000 = "smb2.share_flags.isolated_transport", "Isolated transport";
        };
        capabilities: le32 = "smb2.share_caps", "Share Capabilities", hex, bits {
            dfs_share: bool & 0x00000008 = "smb2.share_caps.dfs", "DFS";
            continuous_availability: bool & 0x00000010 = "smb2.share_caps.continuous_availability", "CONTINUOUS \
                AVAILABILITY";
            scaleout: bool & 0x00000020 = "smb2.share_caps.scaleout", "SCALEOUT";
            cluster: bool & 0x00000040 = "smb2.share_caps.cluster", "CLUSTER";
            asymmetric: bool & 0x00000080 = "smb2.share_caps.asymmetric", "ASYMMETRIC";
            redirect_to_owner: bool & 0x00000100 = "smb2.share_caps.redirect_to_owner", "REDIRECT_TO_OWNER";
        };
        maximal_access: le32 = "smb.access_mask", "Access Mask", hex, bits {
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
    }
}

fields! {
    /// Outside of the share flags' own bits: what two of them say together.
    pub mod caching ["[MS-SMB2] 2.2.10"] {
        POLICY: U32 = "smb2.share.caching", "Caching policy", hex, values &[(0x00, "Manual caching"), (0x10, "Auto caching"), (0x20, "VDO caching"), (0x30, "No caching")];
    }
}

/// A TREE_CONNECT request taken apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TreeConnectRequest<'a> {
    /// Fields of fixed size.
    pub fixed: TreeConnectRequestFixed,
    /// `\\server\share`, UTF-16.
    pub path: Blob<'a>,
}

impl<'a> TreeConnectRequest<'a> {
    /// The path, to be written.
    pub const fn path(&self) -> Utf16<'a> {
        Utf16(self.path.bytes)
    }
}

/// Decodes the body of a TREE_CONNECT request; `pdu` begins with its header.
pub fn request<'a, T: Trace>(pdu: &'a [u8], t: &mut T) -> PResult<'a, TreeConnectRequest<'a>> {
    const END: usize = BODY + TreeConnectRequestFixed::LEN;
    scope(TreeConnectRequestFixed::NODE, &pdu[BODY.min(pdu.len())..], t, |i, t| {
        let (rest, fixed) = TreeConnectRequestFixed::parse_flat(i, t)?;
        let path = blob(pdu, END, (BODY + 4, 2), (BODY + 6, 2), t);
        path.trace(f::PATH, t);
        let mut end = behind(pdu, END, &[&path]);
        // the extension lies before the path
        if T::ON && fixed.extension_present() {
            let _ = scope(f::EXTENSION, rest, t, |i, t| {
                let (i, offset) = read::le32(f::CONTEXT_OFFSET, i, t)?;
                let (i, count) = read::le16(f::CONTEXT_COUNT, i, t)?;
                let (_, _) = read::array::<10, T>(shared::RESERVED, i, t)?;
                // "from the start of the request" is read as its body by some and as its header by others
                let from = |base: &'a [u8]| base.get(offset as usize..).filter(|at| number(at, 0, 2) == 1);
                let Some(mut i) = from(&pdu[BODY..]).or_else(|| from(pdu)) else {
                    return Fault::length(f::CONTEXT_OFFSET, rest, offset as usize).fail();
                };
                for _ in 0..count {
                    let before = i.len();
                    (i, _) = scope(f::CONTEXT, i, t, context)?;
                    let read = before - i.len();
                    i = &i[(read.next_multiple_of(8) - read).min(i.len())..];
                }
                if i.len() < end.len() {
                    end = i;
                }
                Ok((i, ()))
            });
        }
        Ok((end, TreeConnectRequest { fixed, path }))
    })
}

/// Decodes the body of a TREE_CONNECT reply; `pdu` begins with its header.
pub fn response<'a, T: Trace>(pdu: &'a [u8], t: &mut T) -> PResult<'a, TreeConnectResponse> {
    scope(TreeConnectResponse::NODE, &pdu[BODY.min(pdu.len())..], t, |i, t| {
        let (rest, response) = TreeConnectResponse::parse_flat(i, t)?;
        t.field(caching::POLICY, &i[4..], 4, Value::U(u64::from(response.share_flags) & 0x30));
        Ok((rest, response))
    })
}

/// SMB2_TREE_CONNECT_CONTEXT, \[MS-SMB2\] 2.2.9.2.
fn context<'a, T: Trace>(i: &'a [u8], t: &mut T) -> PResult<'a, ()> {
    let (i, kind) = read::le16(f::CONTEXT_TYPE, i, t)?;
    let (i, length) = read::le16(f::CONTEXT_LENGTH, i, t)?;
    let (i, _) = read::array::<4, T>(shared::RESERVED, i, t)?;
    let Some((data, rest)) = i.split_at_checked(length.into()) else {
        return Fault::short(Some(f::CONTEXT_LENGTH), i, length.into()).fail();
    };
    if kind == 1 {
        let _ = remoted_identity(data, t);
    } else if !data.is_empty() {
        t.field(shared::UNKNOWN, data, data.len(), Value::Bytes(data));
    }
    Ok((rest, ()))
}

/// SMB2_REMOTED_IDENTITY_TREE_CONNECT, \[MS-SMB2\] 2.2.9.2.1: offsets of twelve pieces, each up to where the next
/// begins.
fn remoted_identity<'a, T: Trace>(start: &'a [u8], t: &mut T) -> PResult<'a, ()> {
    let (i, _) = read::le16(f::TICKET_TYPE, start, t)?;
    let (i, _) = read::le16(f::TICKET_SIZE, i, t)?;
    let pieces = [
        f::IDENTITY_USER,
        f::IDENTITY_NAME,
        f::IDENTITY_DOMAIN,
        f::IDENTITY_GROUPS,
        f::IDENTITY_RESTRICTED,
        f::IDENTITY_PRIVILEGES,
        f::IDENTITY_PRIMARY,
        f::IDENTITY_OWNER,
        f::IDENTITY_DACL,
        f::IDENTITY_DEVICE_GROUPS,
        f::IDENTITY_USER_CLAIMS,
        f::IDENTITY_DEVICE_CLAIMS,
    ];
    let mut offsets = [0usize; 12];
    let mut i = i;
    for offset in &mut offsets {
        let value;
        (i, value) = read::le16(f::IDENTITY_OFFSET, i, t)?;
        *offset = value.into();
    }
    for (def, &offset) in pieces.iter().zip(&offsets).filter(|(_, o)| **o >= 28) {
        let end = offsets.iter().copied().filter(|o| *o > offset).min().unwrap_or(start.len()).min(start.len());
        let Some(piece) = start.get(offset..end).filter(|p| !p.is_empty()) else { continue };
        t.field(def, piece, piece.len(), Value::Bytes(piece));
        t.down();
        // user, primary group and owner are a length and a SID
        if [f::IDENTITY_USER, f::IDENTITY_PRIMARY, f::IDENTITY_OWNER].contains(def) {
            let attributes = number(piece, 0, 2) as usize;
            if let Ok((i, _)) = leaf::take(piece, 2) {
                let _ = security::sid(&i[..attributes.min(i.len())], t);
            }
        }
        t.up();
    }
    Ok((&start[start.len()..], ()))
}
