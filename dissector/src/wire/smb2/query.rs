//! QUERY_INFO, SET_INFO and QUERY_DIRECTORY, \[MS-SMB2\] 2.2.33, 2.2.34 and 2.2.37 to 2.2.40: metadata of files and
//! file systems, their security and quotas. The layouts are in [`super::info`].

use super::blob::{Blob, behind, blob};
use super::info::{self, FileClass, FsClass, InfoType};
use super::text::Utf16;
use super::{FileId, Header, RequestMemo, RequestParameters, bits, f as shared};
use crate::fault::PResult;
use crate::field::Def;
use crate::trace::{Trace, Value, scope};

const BODY: usize = Header::LEN;

fields! {
    /// Fields that depend on the type of information, and variable parts.
    pub mod f ["[MS-SMB2] 2.2.37"] {
        TYPE: U8 = "smb2.class", "Class", hex, values InfoType::VALUES;
        FILE_CLASS: U8 = "smb2.file_info.infolevel", "InfoLevel", hex, values FileClass::VALUES;
        FS_CLASS: U8 = "smb2.fs_info.infolevel", "InfoLevel", hex, values FsClass::VALUES;
        SECURITY_CLASS: U8 = "smb2.sec_info.infolevel", "InfoLevel", hex, values &[(0, "SMB2_SEC_INFO_00")];
        CLASS: U8 = "smb2.infolevel", "InfoLevel", hex;
        ADDITIONAL: U32 = "smb2.getsetinfo_additional", "Additional Info", hex;
        ADDITIONALS: U32 = "smb2.getsetinfo_additionals", "Additional Info", hex;
        OWNER: Bool & 0x00000001 / 32 = "smb2.getsetinfo_additional_secinfo.owner", "Owner";
        GROUP: Bool & 0x00000002 / 32 = "smb2.getsetinfo_additional_secinfo.group", "Group";
        DACL: Bool & 0x00000004 / 32 = "smb2.getsetinfo_additional_secinfo.dacl", "DACL";
        SACL: Bool & 0x00000008 / 32 = "smb2.getsetinfo_additional_secinfo.sacl", "SACL";
        LABEL: Bool & 0x00000010 / 32 = "smb2.getsetinfo_additional_secinfo.label", "Integrity label";
        ATTRIBUTE: Bool & 0x00000020 / 32 = "smb2.getsetinfo_additional_secinfo.attribute", "Resource attribute";
        SCOPE: Bool & 0x00000040 / 32 = "smb2.getsetinfo_additional_secinfo.scope", "Central access policy";
        BACKUP: Bool & 0x00010000 / 32 = "smb2.getsetinfo_additional_secinfo.backup", "Backup operation";
        FIND_CLASS: U32 = "smb2.find.infolevel", "Info Level", dec, values FileClass::VALUES;
        PATTERN: Utf16 = "smb2.find.pattern", "Search Pattern";
        FIND_INFO: Bytes = "smb2.find.info_blob", "Info";
        INPUT: None = "rdmascope.smb2.getinfo_input", "Input Buffer";
    }
}

const SECURITY_BITS: &[Def] = &[f::OWNER, f::GROUP, f::DACL, f::SACL, f::LABEL, f::ATTRIBUTE, f::SCOPE, f::BACKUP];

header! {
    /// The fixed part of a QUERY_INFO request.
    pub struct QueryInfoRequestFixed [NODE = "rdmascope.smb2.getinfo_request", "GetInfo Request", "[MS-SMB2] 2.2.37"] {
        /// 41.
        structure_size: le16 = "smb2.buffer_code", "StructureSize", hex, bits {
            fixed_part_length: u16 & 0xfffe = "smb2.buffer_code.length", "Fixed Part Length";
            has_dynamic_part: bool & 0x0001 = "smb2.buffer_code.dynamic", "Dynamic Part";
        };
        info_type: u8 = "smb2.class", "Class", hex, values InfoType::VALUES;
        /// Of [`FileClass`] or [`FsClass`], by the type.
        info_class: u8 = "_", "InfoLevel", hex;
        /// Bytes of the reply's buffer at most.
        output_buffer_length: le32 = "smb2.max_response_size", "Max Response Size", dec;
        input_buffer_offset: le16 = "smb2.getinfo_input_offset", "Getinfo Input Offset", hex;
        reserved: bytes[2] as Keep = "smb2.reserved", "Reserved";
        input_buffer_length: le32 = "smb2.getinfo_input_size", "Getinfo Input Size", dec;
        /// Parts of a security descriptor, or an index of extended attributes.
        additional_information: le32 = "_", "Additional Info", hex;
        flags: le32 = "smb2.query_info.flags", "Flags", hex, bits {
            restart_scan: bool & 0x00000001 = "smb2.query_info.flags.restart_scan", "Restart scan";
            return_single_entry: bool & 0x00000002 = "smb2.query_info.flags.return_single_entry", "Return single entry";
            index_specified: bool & 0x00000004 = "smb2.query_info.flags.index_specified", "Index specified";
        };
        file_id: guid = "smb2.fid", "File Id";
    }
}

header! {
    /// The fixed part of a reply that is a buffer: QUERY_INFO.
    pub struct QueryInfoResponseFixed [NODE = "rdmascope.smb2.getinfo_response", "GetInfo Response", "[MS-SMB2] 2.2.38"] {
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
    /// The fixed part of a SET_INFO request.
    pub struct SetInfoRequestFixed [NODE = "rdmascope.smb2.setinfo_request", "SetInfo Request", "[MS-SMB2] 2.2.39"] {
        /// 33.
        structure_size: le16 = "smb2.buffer_code", "StructureSize", hex, bits {
            fixed_part_length: u16 & 0xfffe = "smb2.buffer_code.length", "Fixed Part Length";
            has_dynamic_part: bool & 0x0001 = "smb2.buffer_code.dynamic", "Dynamic Part";
        };
        info_type: u8 = "smb2.class", "Class", hex, values InfoType::VALUES;
        /// Of [`FileClass`] or [`FsClass`], by the type.
        info_class: u8 = "_", "InfoLevel", hex;
        buffer_length: le32 = "smb2.setinfo_size", "Setinfo Size", dec;
        buffer_offset: le16 = "smb2.setinfo_offset", "Setinfo Offset", hex;
        reserved: le16 = "smb2.setinfo_reserved", "Reserved", dec;
        /// Parts of a security descriptor.
        additional_information: le32 = "_", "Additional Info", hex;
        file_id: guid = "smb2.fid", "File Id";
    }
}

header! {
    /// The fixed part of a QUERY_DIRECTORY request.
    pub struct QueryDirectoryRequestFixed [NODE = "rdmascope.smb2.find_request", "Find Request", "[MS-SMB2] 2.2.33"] {
        /// 33.
        structure_size: le16 = "smb2.buffer_code", "StructureSize", hex, bits {
            fixed_part_length: u16 & 0xfffe = "smb2.buffer_code.length", "Fixed Part Length";
            has_dynamic_part: bool & 0x0001 = "smb2.buffer_code.dynamic", "Dynamic Part";
        };
        /// Of [`FileClass`].
        info_class: u8 = "_", "Info Level";
        flags: u8 = "smb2.find.flags", "Find Flags", hex, bits {
            restart_scans: bool & 0x01 = "smb2.find.restart_scans", "Restart Scans";
            single_entry: bool & 0x02 = "smb2.find.single_entry", "Single Entry";
            index_specified: bool & 0x04 = "smb2.find.index_specified", "Index Specified";
            reopen: bool & 0x10 = "smb2.find.reopen", "Reopen";
        };
        file_index: le32 = "smb2.file_index", "File Index", hex;
        file_id: guid = "smb2.fid", "File Id";
        pattern_offset: le16 = "_", "Pattern Offset";
        pattern_length: le16 = "_", "Pattern Length";
        output_buffer_length: le32 = "smb2.output_buffer_len", "Output Buffer Length", dec;
    }
}

header! {
    /// The fixed part of a QUERY_DIRECTORY reply.
    pub struct QueryDirectoryResponseFixed [NODE = "rdmascope.smb2.find_response", "Find Response", "[MS-SMB2] 2.2.34"] {
        /// 9.
        structure_size: le16 = "smb2.buffer_code", "StructureSize", hex, bits {
            fixed_part_length: u16 & 0xfffe = "smb2.buffer_code.length", "Fixed Part Length";
            has_dynamic_part: bool & 0x0001 = "smb2.buffer_code.dynamic", "Dynamic Part";
        };
        output_buffer_offset: le16 = "_", "Output Buffer Offset";
        output_buffer_length: le32 = "_", "Output Buffer Length";
    }
}

/// A QUERY_INFO request taken apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QueryInfoRequest<'a> {
    /// Fields of fixed size.
    pub fixed: QueryInfoRequestFixed,
    /// Names of extended attributes, or whose quotas.
    pub input: Blob<'a>,
}

/// A QUERY_INFO reply taken apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QueryInfoResponse<'a> {
    /// Fields of fixed size.
    pub fixed: QueryInfoResponseFixed,
    /// The information, laid out as the request's class says.
    pub output: Blob<'a>,
}

/// A SET_INFO request taken apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SetInfoRequest<'a> {
    /// Fields of fixed size.
    pub fixed: SetInfoRequestFixed,
    /// The information.
    pub buffer: Blob<'a>,
}

/// A QUERY_DIRECTORY request taken apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QueryDirectoryRequest<'a> {
    /// Fields of fixed size.
    pub fixed: QueryDirectoryRequestFixed,
    /// Search pattern, UTF-16LE.
    pub pattern: Blob<'a>,
}

/// A QUERY_DIRECTORY reply taken apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QueryDirectoryResponse<'a> {
    /// Fields of fixed size.
    pub fixed: QueryDirectoryResponseFixed,
    /// The entries, laid out as the request's class says.
    pub output: Blob<'a>,
}

impl QueryInfoRequest<'_> {
    /// FileId of the file.
    pub const fn file(&self) -> FileId {
        FileId(self.fixed.file_id)
    }
}

impl SetInfoRequest<'_> {
    /// FileId of the file.
    pub const fn file(&self) -> FileId {
        FileId(self.fixed.file_id)
    }
}

impl<'a> QueryDirectoryRequest<'a> {
    /// FileId of the directory.
    pub const fn file(&self) -> FileId {
        FileId(self.fixed.file_id)
    }

    /// Pattern of the names, for display.
    pub const fn pattern(&self) -> Utf16<'a> {
        Utf16(self.pattern.bytes)
    }
}

/// Decodes the body of a QUERY_INFO request; `pdu` begins with its header.
pub fn info_request<'a, T: Trace>(pdu: &'a [u8], t: &mut T) -> PResult<'a, QueryInfoRequest<'a>> {
    const END: usize = BODY + QueryInfoRequestFixed::LEN;
    scope(QueryInfoRequestFixed::NODE, &pdu[BODY.min(pdu.len())..], t, |i, t| {
        let (_, fixed) = QueryInfoRequestFixed::parse_flat(i, t)?;
        class_field(fixed.info_type, fixed.info_class, &i[3..], 1, t);
        additional_field(fixed.info_type, fixed.additional_information, &i[16..], t);
        let input = Blob::of(pdu, END, fixed.input_buffer_offset.into(), fixed.input_buffer_length);
        if T::ON && !input.bytes.is_empty() {
            let _ = scope(f::INPUT, input.bytes, t, |i, t| {
                match (InfoType(fixed.info_type), FileClass(fixed.info_class)) {
                    (InfoType::QUOTA, _) => info::query_quota(i, t),
                    (InfoType::FILE, FileClass::FULL_EA) => info::get_ea(i, t),
                    _ => {
                        t.field(shared::UNKNOWN, i, i.len(), Value::Bytes(i));
                        Ok((&i[i.len()..], ()))
                    }
                }
            });
        }
        Ok((behind(pdu, END, &[&input]), QueryInfoRequest { fixed, input }))
    })
}

/// Decodes the body of a QUERY_INFO reply; `pdu` begins with its header.
pub fn info_response<'a, T: Trace>(
    pdu: &'a [u8],
    memo: Option<&RequestMemo>,
    t: &mut T,
) -> PResult<'a, QueryInfoResponse<'a>> {
    const END: usize = BODY + QueryInfoResponseFixed::LEN;
    scope(QueryInfoResponseFixed::NODE, &pdu[BODY.min(pdu.len())..], t, |i, t| {
        let asked = trace_asked(memo, i, t);
        let (_, fixed) = QueryInfoResponseFixed::parse_flat(i, t)?;
        let output = blob(pdu, END, (BODY + 2, 2), (BODY + 4, 4), t);
        if T::ON && !output.bytes.is_empty() {
            match asked {
                Some((info_type, class)) => _ = info::trace(info_type, class, false, output.bytes, t),
                None => output.trace(shared::BODY_DATA, t),
            }
        }
        Ok((behind(pdu, END, &[&output]), QueryInfoResponse { fixed, output }))
    })
}

/// Decodes the body of a SET_INFO request; `pdu` begins with its header.
pub fn set_request<'a, T: Trace>(pdu: &'a [u8], t: &mut T) -> PResult<'a, SetInfoRequest<'a>> {
    const END: usize = BODY + SetInfoRequestFixed::LEN;
    scope(SetInfoRequestFixed::NODE, &pdu[BODY.min(pdu.len())..], t, |i, t| {
        let (_, fixed) = SetInfoRequestFixed::parse_flat(i, t)?;
        class_field(fixed.info_type, fixed.info_class, &i[3..], 1, t);
        additional_field(fixed.info_type, fixed.additional_information, &i[12..], t);
        let buffer = Blob::of(pdu, END, fixed.buffer_offset.into(), fixed.buffer_length);
        if T::ON && !buffer.inside {
            t.fault(&crate::fault::Fault::length(
                SetInfoRequestFixed::buffer_length,
                &i[4..],
                fixed.buffer_length as usize,
            ));
        }
        if T::ON && !buffer.bytes.is_empty() {
            let _ = info::trace(fixed.info_type, fixed.info_class, true, buffer.bytes, t);
        }
        Ok((behind(pdu, END, &[&buffer]), SetInfoRequest { fixed, buffer }))
    })
}

/// Decodes the body of a QUERY_DIRECTORY request; `pdu` begins with its header.
pub fn directory_request<'a, T: Trace>(pdu: &'a [u8], t: &mut T) -> PResult<'a, QueryDirectoryRequest<'a>> {
    const END: usize = BODY + QueryDirectoryRequestFixed::LEN;
    scope(QueryDirectoryRequestFixed::NODE, &pdu[BODY.min(pdu.len())..], t, |i, t| {
        let (_, fixed) = QueryDirectoryRequestFixed::parse_flat(i, t)?;
        t.field(f::FIND_CLASS, &i[2..], 1, Value::U(fixed.info_class.into()));
        let pattern = blob(pdu, END, (BODY + 24, 2), (BODY + 26, 2), t);
        pattern.trace(f::PATTERN, t);
        Ok((behind(pdu, END, &[&pattern]), QueryDirectoryRequest { fixed, pattern }))
    })
}

/// Decodes the body of a QUERY_DIRECTORY reply; `pdu` begins with its header.
pub fn directory_response<'a, T: Trace>(
    pdu: &'a [u8],
    memo: Option<&RequestMemo>,
    t: &mut T,
) -> PResult<'a, QueryDirectoryResponse<'a>> {
    const END: usize = BODY + QueryDirectoryResponseFixed::LEN;
    scope(QueryDirectoryResponseFixed::NODE, &pdu[BODY.min(pdu.len())..], t, |i, t| {
        let class = match memo.map(|m| m.asked) {
            Some(RequestParameters::QueryDirectory { class }) => Some(class),
            _ => None,
        };
        if let Some(class) = class {
            t.field(f::FIND_CLASS, i, 0, Value::U(class.into()));
        }
        let (_, fixed) = QueryDirectoryResponseFixed::parse_flat(i, t)?;
        let output = blob(pdu, END, (BODY + 2, 2), (BODY + 4, 4), t);
        if T::ON && !output.bytes.is_empty() {
            match class.map(FileClass).filter(|c| info::is_directory_class(*c)) {
                Some(class) => {
                    output.trace(f::FIND_INFO, t);
                    t.down();
                    let _ = info::directory(class, output.bytes, t);
                    t.up();
                }
                None => output.trace(shared::BODY_DATA, t),
            }
        }
        Ok((behind(pdu, END, &[&output]), QueryDirectoryResponse { fixed, output }))
    })
}

/// Reports the type and class that a QUERY_INFO asked for, in its reply, even a failing one.
pub(super) fn trace_asked<T: Trace>(memo: Option<&RequestMemo>, at: &[u8], t: &mut T) -> Option<(u8, u8)> {
    let RequestParameters::QueryInfo { info_type, class } = memo?.asked else { return None };
    t.field(f::TYPE, at, 0, Value::U(info_type.into()));
    class_field(info_type, class, at, 0, t);
    Some((info_type, class))
}

fn class_field<T: Trace>(info_type: u8, class: u8, at: &[u8], length: usize, t: &mut T) {
    let def = match InfoType(info_type) {
        InfoType::FILE => f::FILE_CLASS,
        InfoType::FILESYSTEM => f::FS_CLASS,
        InfoType::SECURITY => f::SECURITY_CLASS,
        _ => f::CLASS,
    };
    t.field(def, at, length, Value::U(class.into()));
}

fn additional_field<T: Trace>(info_type: u8, value: u32, at: &[u8], t: &mut T) {
    if InfoType(info_type) == InfoType::SECURITY {
        t.field(f::ADDITIONALS, at, 4, Value::U(value.into()));
        bits(at, 4, value.into(), SECURITY_BITS, t);
    } else {
        t.field(f::ADDITIONAL, at, 4, Value::U(value.into()));
    }
}
