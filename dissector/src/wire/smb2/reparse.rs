//! Reparse points, \[MS-FSCC\] 2.1.2: what symbolic links, mount points and special files are made of. They come in
//! FSCTLs and, as the answer to a path with a symbolic link in it, in ERROR replies.

use super::blob::{Blob, blob};
use super::f as shared;
use super::text::Utf16;
use crate::fault::PResult;
use crate::leaf::{self, read};
use crate::trace::{Trace, Value, scope};

wire_enum! {
    /// Type of a reparse point, \[MS-FSCC\] 2.1.2.1.
    pub enum ReparseTag: u32 {
        RESERVED_ZERO = 0x00000000, "IO_REPARSE_TAG_RESERVED_ZERO";
        RESERVED_ONE = 0x00000001, "IO_REPARSE_TAG_RESERVED_ONE";
        RESERVED_TWO = 0x00000002, "IO_REPARSE_TAG_RESERVED_TWO";
        DRIVE_EXTENDER = 0x80000005, "IO_REPARSE_TAG_DRIVE_EXTENDER";
        HSM2 = 0x80000006, "IO_REPARSE_TAG_HSM2";
        SIS = 0x80000007, "IO_REPARSE_TAG_SIS";
        WIM = 0x80000008, "IO_REPARSE_TAG_WIM";
        CSV = 0x80000009, "IO_REPARSE_TAG_CSV";
        DFS = 0x8000000a, "IO_REPARSE_TAG_DFS";
        FILTER_MANAGER = 0x8000000b, "IO_REPARSE_TAG_FILTER_MANAGER";
        DFSR = 0x80000012, "IO_REPARSE_TAG_DFSR";
        DEDUP = 0x80000013, "IO_REPARSE_TAG_DEDUP";
        NFS = 0x80000014, "IO_REPARSE_TAG_NFS";
        FILE_PLACEHOLDER = 0x80000015, "IO_REPARSE_TAG_FILE_PLACEHOLDER";
        WOF = 0x80000017, "IO_REPARSE_TAG_WOF";
        WCI = 0x80000018, "IO_REPARSE_TAG_WCI";
        APPEXECLINK = 0x8000001b, "IO_REPARSE_TAG_APPEXECLINK";
        STORAGE_SYNC = 0x8000001e, "IO_REPARSE_TAG_STORAGE_SYNC";
        UNHANDLED = 0x80000020, "IO_REPARSE_TAG_UNHANDLED";
        ONEDRIVE = 0x80000021, "IO_REPARSE_TAG_ONEDRIVE";
        AF_UNIX = 0x80000023, "IO_REPARSE_TAG_AF_UNIX";
        LX_FIFO = 0x80000024, "IO_REPARSE_TAG_LX_FIFO";
        LX_CHR = 0x80000025, "IO_REPARSE_TAG_LX_CHR";
        LX_BLK = 0x80000026, "IO_REPARSE_TAG_LX_BLK";
        CLOUD = 0x9000001a, "IO_REPARSE_TAG_CLOUD";
        PROJFS = 0x9000001c, "IO_REPARSE_TAG_PROJFS";
        WCI_1 = 0x90001018, "IO_REPARSE_TAG_WCI_1";
        MOUNT_POINT = 0xa0000003, "IO_REPARSE_TAG_MOUNT_POINT";
        SYMLINK = 0xa000000c, "IO_REPARSE_TAG_SYMLINK";
        IIS_CACHE = 0xa0000010, "IO_REPARSE_TAG_IIS_CACHE";
        GLOBAL_REPARSE = 0xa0000019, "IO_REPARSE_TAG_GLOBAL_REPARSE";
        LX_SYMLINK = 0xa000001d, "IO_REPARSE_TAG_LX_SYMLINK";
        WCI_TOMBSTONE = 0xa000001f, "IO_REPARSE_TAG_WCI_TOMBSTONE";
        PROJFS_TOMBSTONE = 0xa0000022, "IO_REPARSE_TAG_PROJFS_TOMBSTONE";
        WCI_LINK = 0xa0000027, "IO_REPARSE_TAG_WCI_LINK";
        HSM = 0xc0000004, "IO_REPARSE_TAG_HSM";
        APPXSTRM = 0xc0000014, "IO_REPARSE_TAG_APPXSTRM";
    }
}

/// File types of NFS reparse points, \[MS-FSCC\] 2.1.2.6.
const NFS_TYPES: crate::field::Values = &[
    (0x004b_4c42, "Block Device"),
    (0x0052_4843, "Character Device"),
    (0x014b_4e4c, "Symbolic Link"),
    (0x4f46_4946, "FIFO"),
    (0x4b43_4f53, "UNIX Socket"),
];

fields! {
    /// The fields of reparse points.
    pub mod f ["[MS-FSCC] 2.1.2"] {
        BUFFER: None = "smb2.reparse_data_buffer", "Reparse Data Buffer";
        TAG: U32 = "smb2.reparse_tag", "Reparse Tag", hex, values ReparseTag::VALUES;
        LENGTH: U16 = "smb2.reparse_data_length", "Reparse Data Length", dec;
        GUID: Guid = "rdmascope.smb2.reparse_vendor_guid", "Reparse GUID";
        SUBSTITUTE_NAME: Utf16 = "smb2.symlink.substitute_name", "Substitute Name";
        PRINT_NAME: Utf16 = "smb2.symlink.print_name", "Print Name";
        FLAGS: U32 = "smb2.symlink.flags", "Flags", dec, values &[(0, "Absolute"), (1, "SYMLINK_FLAG_RELATIVE")];
        NFS_TYPE: U64 = "smb2.nfs.type", "NFS file type", hex, values NFS_TYPES;
        NFS_TARGET: Utf16 = "smb2.nfs.symlink.target", "Symlink Target";
        NFS_CHAR_MAJOR: U32 = "smb2.nfs.char.major", "Major", hex;
        NFS_CHAR_MINOR: U32 = "smb2.nfs.char.minor", "Minor", hex;
        NFS_BLOCK_MAJOR: U32 = "smb2.nfs.block.major", "Major", hex;
        NFS_BLOCK_MINOR: U32 = "smb2.nfs.block.minor", "Minor", hex;
        LX_VERSION: U32 = "rdmascope.smb2.reparse.lx.version", "Version", dec;
        LX_TARGET: Str = "rdmascope.smb2.reparse.lx.target", "Symlink Target";
    }
}

const NFS_LNK: u64 = 0x014b_4e4c;
const NFS_CHR: u64 = 0x0052_4843;
const NFS_BLK: u64 = 0x004b_4c42;

/// REPARSE_DATA_BUFFER, \[MS-FSCC\] 2.1.2.2, and with the highest bit of the tag clear REPARSE_GUID_DATA_BUFFER,
/// 2.1.2.3.
pub(super) fn data_buffer<'a, T: Trace>(i: &'a [u8], t: &mut T) -> PResult<'a, ()> {
    const MICROSOFT: u32 = 0x8000_0000;
    scope(f::BUFFER, i, t, |i, t| {
        let (i, tag) = read::le32(f::TAG, i, t)?;
        let (i, length) = read::le16(f::LENGTH, i, t)?;
        let (i, _) = read::array::<2, T>(shared::RESERVED, i, t)?;
        let i = if tag & MICROSOFT == 0 { read::array::<16, T>(f::GUID, i, t)?.0 } else { i };
        let (rest, data) = leaf::take(i, (length as usize).min(i.len()))?;
        t.label(format_args!(": {}", ReparseTag(tag)));
        match ReparseTag(tag) {
            // a request that removes a reparse point has its tag alone
            _ if data.is_empty() => (data, ()),
            ReparseTag::SYMLINK => symlink_names(data, t)?,
            ReparseTag::MOUNT_POINT => names(data, 8, t)?,
            ReparseTag::NFS => nfs(data, t)?,
            ReparseTag::LX_SYMLINK => {
                let (i, _) = read::le32(f::LX_VERSION, data, t)?;
                let (i, _) = read::bytes(f::LX_TARGET, i.len(), i, t)?;
                (i, ())
            }
            _ => {
                if !data.is_empty() {
                    t.field(shared::UNKNOWN, data, data.len(), Value::Bytes(data));
                }
                (data, ())
            }
        };
        Ok((rest, ()))
    })
}

/// The two names of a symbolic link and its flags: from SubstituteNameOffset on, \[MS-FSCC\] 2.1.2.4.
pub(super) fn symlink_names<'a, T: Trace>(i: &'a [u8], t: &mut T) -> PResult<'a, ()> {
    let (_, after) = leaf::take(i, 12)?;
    read::le32(f::FLAGS, &after[8..], t)?;
    names(i, 12, t)
}

/// `fixed` bytes that begin with the places of two names, relative to their end; then the names.
fn names<'a, T: Trace>(i: &'a [u8], fixed: usize, t: &mut T) -> PResult<'a, ()> {
    let (paths, head) = leaf::take(i, fixed)?;
    let place = |at: usize, t: &mut T| {
        // reported from the fixed part; its offsets count from the end of it
        let names = blob(head, 0, (at, 2), (at + 2, 2), &mut crate::trace::Off);
        for (def, from, value) in [(shared::BLOB_OFFSET, at, names.offset), (shared::BLOB_LENGTH, at + 2, names.length)]
        {
            t.field(def, &head[from..], 2, Value::U(value.into()));
        }
        Blob::of(paths, 0, names.offset, names.length)
    };
    let substitute = place(0, t);
    let print = place(4, t);
    substitute.trace(f::SUBSTITUTE_NAME, t);
    print.trace(f::PRINT_NAME, t);
    t.label(format_args!(" -> {}", Utf16(if print.is_empty() { substitute.bytes } else { print.bytes })));
    Ok((super::blob::behind(paths, 0, &[&substitute, &print]), ()))
}

fn nfs<'a, T: Trace>(i: &'a [u8], t: &mut T) -> PResult<'a, ()> {
    let (i, kind) = read::le64(f::NFS_TYPE, i, t)?;
    let (major, minor) = match kind {
        NFS_LNK => return read::bytes(f::NFS_TARGET, i.len(), i, t).map(|(i, _)| (i, ())),
        NFS_CHR => (f::NFS_CHAR_MAJOR, f::NFS_CHAR_MINOR),
        NFS_BLK => (f::NFS_BLOCK_MAJOR, f::NFS_BLOCK_MINOR),
        _ => return Ok((i, ())),
    };
    let (i, _) = read::le32(major, i, t)?;
    let (i, _) = read::le32(minor, i, t)?;
    Ok((i, ()))
}
