//! The ERROR reply, \[MS-SMB2\] 2.2.2: a failing status carries it in place of the command's own body. From SMB 3.1.1
//! on its data may be a list of contexts; before, it is one context's data.

use super::blob::number;
use super::ntstatus::NtStatus;
use super::text::Utf16;
use super::{Header, reparse};
use crate::fault::{Fault, PResult};
use crate::leaf::{self, read};
use crate::trace::{Trace, Value, scope};

const BODY: usize = Header::LEN;

/// Ids of error contexts.
pub const ERROR_IDS: crate::field::Values =
    &[(0, "SMB2_ERROR_ID_DEFAULT"), (0x72645253, "SMB2_ERROR_ID_SHARE_REDIRECT")];

const REPARSE_TAG_SYMLINK: u32 = 0xa000_000c;
const SYMLINK_ERROR_TAG: u32 = 0x4c4d_5953;

fields! {
    /// Variable part of an ERROR reply.
    pub mod f ["[MS-SMB2] 2.2.2"] {
        DATA: Bytes = "smb2.error.data", "Error Data";
        CONTEXT: Bytes = "smb2.error.context", "Error Context";
        CONTEXT_LENGTH: U32 = "smb2.error.context.length", "ErrorDataLength", dec;
        CONTEXT_ID: U32 = "smb2.error.context.id", "ErrorId", hex, values ERROR_IDS;
        MIN_BUFFER_LENGTH: U32 = "smb2.error.min_buf_length", "Minimum required buffer length", dec;
        SYMLINK: None = "smb2.symlink_error_response", "Symbolic Link Error Response";
        SYMLINK_LENGTH: U32 = "smb2.symlink.length", "SymLink Length", dec;
        SYMLINK_ERROR_TAG: U32 = "smb2.symlink.error_tag", "SymLink Error Tag", hex;
        REPARSE_TAG: U32 = "smb2.reparse_tag", "Reparse Tag", hex, values reparse::ReparseTag::VALUES;
        REPARSE_LENGTH: U16 = "smb2.reparse_data_length", "Reparse Data Length", dec;
        UNPARSED_PATH_LENGTH: U16 = "smb2.symlink.unparsed_path_length", "Unparsed Path Length", dec;
        REDIRECT: None = "smb2.error.share_redirect", "Share Redirect";
        REDIRECT_SIZE: U32 = "smb2.error.share_redirect.struct_size", "Struct Size", dec;
        REDIRECT_TYPE: U32 = "smb2.error.share_redirect.notif_type", "Notification Type", dec;
        REDIRECT_FLAGS: U16 = "smb2.error.share_redirect.flags", "Flags", hex;
        REDIRECT_TARGET: U16 = "smb2.error.share_redirect.target_type", "Target Type", hex;
        REDIRECT_COUNT: U32 = "smb2.error.share_redirect.ip_count", "IP Addr Count", dec;
        REDIRECT_LIST: None = "smb2.error.share_redirect.ip_list", "IP Addr List";
        REDIRECT_ADDRESS: None = "rdmascope.smb2.error.share_redirect.ip", "IP Addr";
        REDIRECT_ADDRESS_TYPE: U32 = "rdmascope.smb2.error.share_redirect.ip.type", "Type", dec, values &[(1, "IPv4"), (2, "IPv6")];
        REDIRECT_ADDRESS_RESERVED: U32 = "rdmascope.smb2.error.share_redirect.ip.reserved", "Reserved", hex;
        REDIRECT_IPV4: Ipv4 = "rdmascope.smb2.error.share_redirect.ip.v4", "IPv4 address";
        REDIRECT_IPV6: Ipv6 = "rdmascope.smb2.error.share_redirect.ip.v6", "IPv6 address";
        REDIRECT_NAME: Utf16 = "smb2.error.share_redirect.res_name", "Resource Name";
    }
}

header! {
    /// The fixed part of an ERROR reply.
    pub struct ErrorFixed [NODE = "rdmascope.smb2.error_response", "Error Response", "[MS-SMB2] 2.2.2"] {
        /// 9.
        structure_size: le16 = "smb2.buffer_code", "StructureSize", hex, bits {
            fixed_part_length: u16 & 0xfffe = "smb2.buffer_code.length", "Fixed Part Length";
            has_dynamic_part: bool & 0x0001 = "smb2.buffer_code.dynamic", "Dynamic Part";
        };
        /// Contexts in the data, SMB 3.1.1; 0 before.
        context_count: u8 = "smb2.error.context_count", "Error Context Count", dec;
        reserved: u8 = "smb2.error.reserved", "Reserved", hex;
        /// Bytes of data.
        byte_count: le32 = "smb2.error.byte_count", "Byte Count", dec;
    }
}

/// An ERROR reply taken apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ErrorResponse<'a> {
    /// Fields of fixed size.
    pub fixed: ErrorFixed,
    /// Its data: contexts, or the data of one.
    pub data: &'a [u8],
}

/// Decodes an ERROR body; `pdu` begins with its header, `status` is the header's.
pub fn error_response<'a, T: Trace>(pdu: &'a [u8], status: NtStatus, t: &mut T) -> PResult<'a, ErrorResponse<'a>> {
    scope(ErrorFixed::NODE, &pdu[BODY.min(pdu.len())..], t, |i, t| {
        let (i, fixed) = ErrorFixed::parse_flat(i, t)?;
        let count = fixed.byte_count as usize;
        let Ok((rest, data)) = leaf::take(i, count) else {
            if T::ON && !i.is_empty() {
                t.field(f::DATA, i, i.len(), Value::Bytes(i));
            }
            return Fault::short(Some(f::DATA), i, count).fail();
        };
        if T::ON {
            if count > 0 {
                let result = if fixed.context_count > 0 {
                    contexts(data, fixed.context_count, status, t)
                } else {
                    context_data(data, 0, status, t)
                };
                let _ = result;
            } else if let Some(pad) = i.first_chunk::<1>() {
                // a server may send one byte of data that the count does not tell
                t.field(f::DATA, i, 1, Value::Bytes(pad));
            }
        }
        let rest = if count == 0 { &rest[1.min(rest.len())..] } else { rest };
        Ok((rest, ErrorResponse { fixed, data }))
    })
}

fn contexts<'a, T: Trace>(data: &'a [u8], count: u8, status: NtStatus, t: &mut T) -> PResult<'a, ()> {
    let mut i = data;
    for _ in 0..count {
        if i.is_empty() {
            break;
        }
        (i, _) = scope(f::CONTEXT, i, t, |i, t| {
            let (i, length) = read::le32(f::CONTEXT_LENGTH, i, t)?;
            let (i, id) = read::le32(f::CONTEXT_ID, i, t)?;
            let Some((data, rest)) = i.split_at_checked(length as usize) else {
                return Fault::short(Some(f::CONTEXT_LENGTH), i, length as usize).fail();
            };
            let _ = context_data(data, id, status, t);
            Ok((rest, ()))
        })?;
        // contexts begin at multiples of 8
        i = &i[((data.len() - i.len()).next_multiple_of(8) - (data.len() - i.len())).min(i.len())..];
    }
    Ok((i, ()))
}

fn context_data<'a, T: Trace>(i: &'a [u8], id: u32, status: NtStatus, t: &mut T) -> PResult<'a, ()> {
    const SHARE_REDIRECT: u32 = 0x7264_5253;
    let looks_like_symlink =
        number(i, 4, 4) as u32 == SYMLINK_ERROR_TAG && number(i, 8, 4) as u32 == REPARSE_TAG_SYMLINK;
    match (id, status) {
        (SHARE_REDIRECT, _) => share_redirect(i, t),
        (0, NtStatus::STOPPED_ON_SYMLINK) => symlink(i, t),
        (0, _) if looks_like_symlink => symlink(i, t),
        (0, NtStatus::BUFFER_TOO_SMALL) if i.len() >= 4 => read::le32(f::MIN_BUFFER_LENGTH, i, t).map(|(i, _)| (i, ())),
        // SMB 3.0: the redirect stands without a context
        (0, NtStatus::BAD_NETWORK_NAME) if number(i, 4, 4) == 3 && i.len() >= 24 => share_redirect(i, t),
        _ => read::bytes(f::DATA, i.len(), i, t).map(|(i, _)| (i, ())),
    }
}

/// Symbolic Link Error Response, \[MS-SMB2\] 2.2.2.2.1.
fn symlink<'a, T: Trace>(i: &'a [u8], t: &mut T) -> PResult<'a, ()> {
    scope(f::SYMLINK, i, t, |i, t| {
        let (i, _) = read::le32(f::SYMLINK_LENGTH, i, t)?;
        let (i, _) = read::le32(f::SYMLINK_ERROR_TAG, i, t)?;
        let (i, _) = read::le32(f::REPARSE_TAG, i, t)?;
        let (i, _) = read::le16(f::REPARSE_LENGTH, i, t)?;
        let (i, _) = read::le16(f::UNPARSED_PATH_LENGTH, i, t)?;
        reparse::symlink_names(i, t)
    })
}

/// Share Redirect Error Context Response, \[MS-SMB2\] 2.2.2.2.2.
fn share_redirect<'a, T: Trace>(start: &'a [u8], t: &mut T) -> PResult<'a, ()> {
    scope(f::REDIRECT, start, t, |i, t| {
        let (i, _) = read::le32(f::REDIRECT_SIZE, i, t)?;
        let (i, _) = read::le32(f::REDIRECT_TYPE, i, t)?;
        let name = super::blob::blob(start, 24, (8, 4), (12, 4), t);
        let (_, i) = i.split_at(8.min(i.len()));
        let (i, _) = read::le16(f::REDIRECT_FLAGS, i, t)?;
        let (i, _) = read::le16(f::REDIRECT_TARGET, i, t)?;
        let (i, count) = read::le32(f::REDIRECT_COUNT, i, t)?;
        let (rest, ()) = scope(f::REDIRECT_LIST, i, t, |mut i, t| {
            for _ in 0..count {
                (i, _) = scope(f::REDIRECT_ADDRESS, i, t, |i, t| {
                    let (i, kind) = read::le32(f::REDIRECT_ADDRESS_TYPE, i, t)?;
                    let (i, _) = read::le32(f::REDIRECT_ADDRESS_RESERVED, i, t)?;
                    let start = i;
                    let (rest, _) = leaf::take(i, 16)?;
                    if kind == 1 {
                        read::bytes(f::REDIRECT_IPV4, 4, start, t)?
                    } else {
                        read::bytes(f::REDIRECT_IPV6, 16, start, t)?
                    };
                    Ok((rest, ()))
                })?;
            }
            Ok((i, ()))
        })?;
        name.trace(f::REDIRECT_NAME, t);
        t.label(format_args!(": {}", Utf16(name.bytes)));
        Ok((if name.bytes.is_empty() { rest } else { &name.bytes[name.bytes.len()..] }, ()))
    })
}

/// StructureSize of an ERROR body.
pub const STRUCTURE_SIZE: u16 = 9;

/// The body in the place of an ERROR body, recognized by its first eight bytes, \[MS-SMB2\] 3.3.4.4.
pub(super) fn is_own_body(own_size: u16, body: &[u8], pdu_length: usize) -> bool {
    const OWN_OFFSET: u64 = 72;
    let size = number(body, 0, 2) as u16;
    if own_size != STRUCTURE_SIZE {
        return size == own_size;
    }
    // QUERY_INFO, QUERY_DIRECTORY, CHANGE_NOTIFY: offset at 2, length at 4; as an ERROR that would be 72 contexts of 8
    // bytes at least
    let (offset, length) = (number(body, 2, 2), number(body, 4, 4));
    size == STRUCTURE_SIZE && offset == OWN_OFFSET && OWN_OFFSET + length <= pdu_length.max(OWN_OFFSET as usize) as u64
}
