//! The create contexts of a CREATE, \[MS-SMB2\] 2.2.13.2 and 2.2.14.2: a list of named values. The name is four
//! characters or the 16 bytes of a GUID; the same name means one thing in a request and another in its reply.
//!
//! ```text
//! Next  NameOffset  NameLength  Reserved  DataOffset  DataLength │ name … data … │ Next …
//! ```

use super::access::access;
use super::blob::{Blob, number};
use super::ntstatus::NtStatus;
use super::{f as shared, filetime, flags32, flags64, info, security};
use crate::fault::{Fault, PResult};
use crate::field::Def;
use crate::leaf::{self, read};
use crate::trace::{Trace, Value, scope};

/// Extended attributes.
pub const EA_BUFFER: &[u8] = b"ExtA";
/// A security descriptor.
pub const SD_BUFFER: &[u8] = b"SecD";
/// A durable handle, SMB 2.1.
pub const DURABLE_HANDLE_REQUEST: &[u8] = b"DHnQ";
/// A durable handle, reconnected.
pub const DURABLE_HANDLE_RECONNECT: &[u8] = b"DHnC";
/// The size to allocate.
pub const ALLOCATION_SIZE: &[u8] = b"AlSi";
/// The user's maximal access to the file.
pub const QUERY_MAXIMAL_ACCESS: &[u8] = b"MxAc";
/// A previous version.
pub const TIMEWARP_TOKEN: &[u8] = b"TWrp";
/// The file's identifier on disk.
pub const QUERY_ON_DISK_ID: &[u8] = b"QFid";
/// A lease; 32 bytes of data are version 1, 52 version 2.
pub const REQUEST_LEASE: &[u8] = b"RqLs";
/// A durable or persistent handle, SMB 3.
pub const DURABLE_HANDLE_REQUEST_V2: &[u8] = b"DH2Q";
/// Reconnect of a durable handle, version 2.
pub const DURABLE_HANDLE_RECONNECT_V2: &[u8] = b"DH2C";
/// Extensions of Apple's systems.
pub const AAPL: &[u8] = b"AAPL";
/// The application that owns the open, for failover.
pub const APP_INSTANCE_ID: &[u8] =
    &[0x45, 0xbc, 0xa6, 0x6a, 0xef, 0xa7, 0xf7, 0x4a, 0x90, 0x08, 0xfa, 0x46, 0x2e, 0x14, 0x4d, 0x74];
/// Version of an application's claim: the newer one wins.
pub const APP_INSTANCE_VERSION: &[u8] =
    &[0xb9, 0x82, 0xd0, 0xb7, 0x3b, 0x56, 0x07, 0x4f, 0xa0, 0x7b, 0x52, 0x4a, 0x81, 0x16, 0xa0, 0x10];
/// A shared virtual disk.
pub const SVHDX_OPEN_DEVICE: &[u8] =
    &[0x9c, 0xcb, 0xcf, 0x9e, 0x04, 0xc1, 0xe6, 0x43, 0x98, 0x0e, 0x15, 0x8d, 0xa1, 0xf6, 0xec, 0x83];
/// POSIX extensions: the mode of a new file; links, mode and owners of an old one.
pub const POSIX: &[u8] =
    &[0x93, 0xad, 0x25, 0x50, 0x9c, 0xb4, 0x11, 0xe7, 0xb4, 0x23, 0x83, 0xde, 0x96, 0x8b, 0xcd, 0x7c];

const NAMES: &[(&[u8], &str)] = &[
    (EA_BUFFER, "SMB2_CREATE_EA_BUFFER"),
    (SD_BUFFER, "SMB2_CREATE_SD_BUFFER"),
    (DURABLE_HANDLE_REQUEST, "SMB2_CREATE_DURABLE_HANDLE_REQUEST"),
    (DURABLE_HANDLE_RECONNECT, "SMB2_CREATE_DURABLE_HANDLE_RECONNECT"),
    (ALLOCATION_SIZE, "SMB2_CREATE_ALLOCATION_SIZE"),
    (QUERY_MAXIMAL_ACCESS, "SMB2_CREATE_QUERY_MAXIMAL_ACCESS_REQUEST"),
    (TIMEWARP_TOKEN, "SMB2_CREATE_TIMEWARP_TOKEN"),
    (QUERY_ON_DISK_ID, "SMB2_CREATE_QUERY_ON_DISK_ID"),
    (REQUEST_LEASE, "SMB2_CREATE_REQUEST_LEASE"),
    (DURABLE_HANDLE_REQUEST_V2, "SMB2_CREATE_DURABLE_HANDLE_REQUEST_V2"),
    (DURABLE_HANDLE_RECONNECT_V2, "SMB2_CREATE_DURABLE_HANDLE_RECONNECT_V2"),
    (AAPL, "SMB2_AAPL_CREATE_CONTEXT"),
    (APP_INSTANCE_ID, "SMB2_CREATE_APP_INSTANCE_ID"),
    (APP_INSTANCE_VERSION, "SMB2_CREATE_APP_INSTANCE_VERSION"),
    (SVHDX_OPEN_DEVICE, "SVHDX_OPEN_DEVICE_CONTEXT"),
    (POSIX, "SMB2_POSIX_CREATE_CONTEXT"),
];

fields! {
    /// The fields of the contexts.
    pub mod f ["[MS-SMB2] 2.2.13.2"] {
        ELEMENT: None = "rdmascope.smb2.create.chain_element", "Chain Element";
        NEXT: U32 = "smb2.create.chain_offset", "Chain Offset", hex;
        TAG: Str as Keep = "smb2.tag", "Tag";
        DATA: None = "smb2.create.chain_data", "Data";
        FILE_ID: Guid = "smb2.fid", "File Id";
        DURABLE_RESERVED: U64 = "smb2.dhnq_buffer_reserved", "Reserved", hex;
        ALLOCATION: U64 = "smb2.allocation_size", "Allocation Size", dec;
        MXAC_TIMESTAMP: AbsTime = "smb2.mxac_timestamp", "Timestamp";
        MXAC_STATUS: U32 = "smb2.mxac_status", "Query Status", hex, values NtStatus::VALUES;
        TWRP: AbsTime = "smb2.twrp_timestamp", "Timestamp";
        QFID: Bytes = "smb2.qfid_fid", "Opaque File ID";
        QFID_FILE: U64 = "rdmascope.smb2.qfid.disk_file_id", "DiskFileId", hex;
        QFID_VOLUME: U64 as Id = "rdmascope.smb2.qfid.volume_id", "VolumeId", hex;
        LEASE_KEY: Guid = "smb2.lease.lease_key", "Lease Key";
        LEASE_STATE: U32 = "smb2.lease.lease_state", "Lease State", hex;
        LEASE_READ: Bool & 0x1 / 32 = "smb2.lease.lease_state.read_caching", "Read Caching";
        LEASE_HANDLE: Bool & 0x2 / 32 = "smb2.lease.lease_state.handle_caching", "Handle Caching";
        LEASE_WRITE: Bool & 0x4 / 32 = "smb2.lease.lease_state.write_caching", "Write Caching";
        LEASE_FLAGS: U32 = "smb2.lease.lease_flags", "Lease Flags", hex;
        LEASE_ACK: Bool & 0x1 / 32 = "smb2.lease.lease_state.break_ack_required", "Break Ack Required";
        LEASE_BREAKING: Bool & 0x2 / 32 = "smb2.lease.lease_state.break_in_progress", "Break In Progress";
        LEASE_PARENT_SET: Bool & 0x4 / 32 = "smb2.lease.lease_state.parent_lease_key_set", "Parent Lease Key Set";
        LEASE_DURATION: U64 = "smb2.lease.lease_duration", "Lease Duration", hex;
        LEASE_PARENT: Guid = "smb2.lease.parent_lease_key", "Parent Lease Key";
        LEASE_EPOCH: U16 = "smb2.lease.lease_oplock", "Lease Epoch", hex;
        LEASE_RESERVED: U16 = "smb2.lease.lease_reserved", "Lease Reserved", hex;
        DH2_TIMEOUT: U32 = "smb2.dh2x.timeout", "Timeout", dec;
        DH2_FLAGS: U32 = "smb2.dh2x.flags", "Flags", hex;
        DH2_PERSISTENT: Bool & 0x2 / 32 = "smb2.dh2x.flags.persistent_handle", "Persistent Handle";
        DH2_RESERVED: U64 = "smb2.dh2x.reserved", "Reserved", hex;
        DH2_GUID: Guid = "smb2.dh2x.create_guid", "Create Guid";
        APP_SIZE: U16 = "smb2.app_instance.struct_size", "Struct Size", dec;
        APP_RESERVED: U16 = "smb2.app_instance.reserved", "Reserved", hex;
        APP_GUID: Guid = "smb2.app_instance.app_guid", "Application Guid";
        VERSION_SIZE: U16 = "smb2.app_instance_version.struct_size", "Struct Size", dec;
        VERSION_RESERVED: U16 = "smb2.app_instance_version.reserved", "Reserved", dec;
        VERSION_PADDING: U32 = "smb2.app_instance_version.padding", "Padding", hex;
        VERSION_HIGH: U64 = "smb2.app_instance_version.version.high", "AppInstanceVersionHigh", dec;
        VERSION_LOW: U64 = "smb2.app_instance_version.version.low", "AppInstanceVersionLow", dec;
        SVHDX_VERSION: U32 = "smb2.svhdx_open_device_context.version", "Version", dec;
        SVHDX_HAS_ID: Bool & 0x0 / 8 = "smb2.svhdx_open_device_context.initiator_has_id", "HasInitiatorId";
        SVHDX_RESERVED: Bytes as Keep = "smb2.svhdx_open_device_context.reserved", "Reserved";
        SVHDX_ID: Guid = "smb2.svhdx_open_device_context.initiator_id", "InitiatorId";
        SVHDX_FLAGS: U32 = "smb2.svhdx_open_device_context.flags", "Flags", hex;
        SVHDX_ORIGINATOR: U32 = "smb2.svhdx_open_device_context.originator_flags", "OriginatorFlags", hex, values &[(1, "SVHDX_ORIGINATOR_PVHDPARSER"), (4, "SVHDX_ORIGINATOR_VHDMP")];
        SVHDX_REQUEST: U64 = "smb2.svhxd_open_device_context.open_request_id", "OpenRequestId", hex;
        SVHDX_HOST_LENGTH: U16 = "smb2.svhxd_open_device_context.initiator_host_name_len", "HostNameLength", dec;
        SVHDX_HOST: Utf16 = "smb2.svhdx_open_device_context.host_name", "HostName";
        SVHDX_INITIALIZED: Bool & 0x0 / 32 = "smb2.svhdx_open_device_context.virtual_disk_properties_initialized", "VirtualDiskPropertiesInitialized";
        SVHDX_SERVICE: U32 = "smb2.svhdx_open_device_context.server_service_version", "ServerServiceVersion", dec;
        SVHDX_SECTOR: U32 = "smb2.svhdx_open_device_context.virtual_sector_size", "VirtualSectorSize", dec;
        SVHDX_PHYSICAL: U32 = "smb2.svhdx_open_device_context.physical_sector_size", "PhysicalSectorSize", dec;
        SVHDX_SIZE: U64 = "smb2.svhdx_open_device_context.virtual_size", "VirtualSize", dec;
        POSIX_PERMS: U32 = "smb2.posix_perms", "POSIX perms", oct;
        AAPL_COMMAND: U32 = "smb2.aapl.command_code", "Command code", dec, values &[(1, "Server query"), (2, "Resolve ID")];
        AAPL_RESERVED: U32 = "smb2.aapl.reserved", "Reserved", hex;
        AAPL_BITMASK: U64 = "smb2.aapl.query_bitmask", "Query bitmask", hex;
        AAPL_SERVER: Bool & 0x1 / 64 = "smb2.aapl.bitmask.server_caps", "Server capabilities";
        AAPL_VOLUME: Bool & 0x2 / 64 = "smb2.aapl.bitmask.volume_caps", "Volume capabilities";
        AAPL_MODEL: Bool & 0x4 / 64 = "smb2.aapl.bitmask.model_info", "Model information";
        AAPL_CAPS: U64 = "smb2.aapl.caps", "Client/Server capabilities", hex;
        AAPL_READDIR: Bool & 0x1 / 64 = "smb2.aapl.caps.supports_read_dir_addr", "Supports READDIRATTR";
        AAPL_COPYFILE: Bool & 0x2 / 64 = "smb2.aapl.caps.supports_osx_copyfile", "Supports macOS copyfile";
        AAPL_UNIX: Bool & 0x4 / 64 = "smb2.aapl.caps.unix_based", "UNIX-based";
        AAPL_NFS_ACE: Bool & 0x8 / 64 = "smb2.aapl.supports_nfs_ace", "Supports NFS ACE";
        AAPL_VOLUME_CAPS: U64 = "smb2.aapl.volume_caps", "Volume capabilities", hex;
        AAPL_RESOLVE: Bool & 0x1 / 64 = "smb2.aapl.volume_caps.supports_resolve_id", "Supports Resolve ID";
        AAPL_CASE: Bool & 0x2 / 64 = "smb2.aapl.volume_caps.case_sensitive", "Case sensitive";
        AAPL_SYNC: Bool & 0x4 / 64 = "smb2.aapl.volume_caps.supports_full_sync", "Supports full sync";
        AAPL_LENGTH: U32 = "rdmascope.smb2.aapl.length", "Length", dec;
        AAPL_MODEL_NAME: Utf16 = "smb2.aapl.model_string", "Model string";
        AAPL_PATH: Utf16 = "smb2.aapl.server_path", "Server path";
        AAPL_FILE: U64 = "smb2.file_id", "File Id", hex;
        AAPL_STATUS: U32 = "rdmascope.smb2.aapl.status", "Status", hex, values NtStatus::VALUES;
    }
}

/// One create context.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Context<'a> {
    /// Four characters, or 16 bytes of a GUID.
    pub name: &'a [u8],
    /// Data of the context.
    pub data: &'a [u8],
}

/// A lease that is asked for or granted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lease {
    /// Chosen by the client.
    pub key: [u8; 16],
    /// 1 read, 2 handle, 4 write caching.
    pub state: u32,
    /// Lease flags, [MS-SMB2] 2.2.13.2.8 and 2.2.13.2.10.
    pub flags: u32,
    /// Version 2: the lease of the folder, and how often it changed.
    pub parent_and_epoch: Option<([u8; 16], u16)>,
}

impl<'a> Context<'a> {
    /// The lease, if the context is one.
    pub fn lease(&self) -> Option<Lease> {
        if self.name != REQUEST_LEASE {
            return None;
        }
        let key = *self.data.first_chunk()?;
        let parent = self.data.get(32..).and_then(|d| d.first_chunk());
        let (state, flags) = (number(self.data, 16, 4) as u32, number(self.data, 20, 4) as u32);
        Some(Lease { key, state, flags, parent_and_epoch: parent.map(|p| (*p, number(self.data, 48, 2) as u16)) })
    }

    /// The spec's name of it.
    pub fn long_name(&self) -> Option<&'static str> {
        NAMES.iter().find(|(name, _)| *name == self.name).map(|(_, long)| *long)
    }
}

/// Walks a list of create contexts. Ends at the first that does not lead on.
#[derive(Clone, Copy, Debug)]
pub struct Contexts<'a>(&'a [u8]);

impl<'a> Contexts<'a> {
    pub(super) const fn of(list: &'a [u8]) -> Self {
        Self(list)
    }
}

impl<'a> Iterator for Contexts<'a> {
    type Item = Context<'a>;

    fn next(&mut self) -> Option<Context<'a>> {
        let entry = next_context(&mut self.0)?;
        let (name, data) = parts(entry);
        Some(Context { name: name.bytes, data: data.bytes })
    }
}

const FIXED: usize = 16;

/// The entry that `list` begins with; it reaches to the next one.
fn next_context<'a>(list: &mut &'a [u8]) -> Option<&'a [u8]> {
    if list.len() < FIXED {
        return None;
    }
    let next = number(list, 0, 4) as usize;
    let (entry, rest) = match next {
        0 => (*list, &list[list.len()..]),
        n => list.split_at(n.clamp(FIXED, list.len())),
    };
    *list = rest;
    Some(entry)
}

/// Name and data of an entry.
fn parts(entry: &[u8]) -> (Blob<'_>, Blob<'_>) {
    let name = Blob::of(entry, FIXED, number(entry, 4, 2) as u32, number(entry, 6, 2) as u32);
    let data = Blob::of(entry, FIXED, number(entry, 10, 2) as u32, number(entry, 12, 4) as u32);
    (name, data)
}

/// Decodes a list of create contexts, reported as the field `def`; contexts of a reply if `response`. Called by
/// [`crate::fuzzing`].
#[doc(hidden)]
pub fn parse_list<T: Trace>(def: Def, list: &[u8], response: bool, t: &mut T) -> usize {
    trace_list(def, list, response, t);
    Contexts::of(list).map(|c| c.name.len() + c.data.len()).sum()
}

/// Tells a list of contexts as subtree `def`; `response` says which of the two forms of each.
pub(super) fn trace_list<T: Trace>(def: Def, list: &[u8], response: bool, t: &mut T) {
    if !T::ON || list.is_empty() {
        return;
    }
    // a fault was reported where it happened, and the message goes on behind the list
    let _ = scope(def, list, t, |mut i, t| {
        let end = &i[i.len()..];
        if i.len() < FIXED {
            return Fault::short(Some(f::NEXT), i, FIXED).fail();
        }
        while let Some(entry) = next_context(&mut i) {
            let _ = scope(f::ELEMENT, entry, t, |i, t| trace_context(i, response, t));
        }
        if !i.is_empty() {
            t.field(shared::UNKNOWN, i, i.len(), Value::Bytes(i));
        }
        Ok((end, ()))
    });
}

fn trace_context<'a, T: Trace>(entry: &'a [u8], response: bool, t: &mut T) -> PResult<'a, ()> {
    read::le32(f::NEXT, entry, t)?;
    let name = super::blob::blob(entry, FIXED, (4, 2), (6, 2), t);
    let tag = super::ntlmssp::Text { bytes: name.bytes, unicode: false };
    if !name.bytes.is_empty() {
        t.field(f::TAG, name.bytes, name.bytes.len(), Value::Text(format_args!("{tag}")));
    }
    let data = super::blob::blob(entry, FIXED, (10, 2), (12, 4), t);
    match (Context { name: name.bytes, data: data.bytes }).long_name() {
        Some(long) if name.bytes.len() == 4 => t.label(format_args!(": {long} \"{tag}\"")),
        Some(long) => t.label(format_args!(": {long}")),
        None => t.label(format_args!(": \"{tag}\"")),
    }
    if !data.bytes.is_empty() {
        let _ = scope(f::DATA, data.bytes, t, |i, t| {
            let (i, ()) = contents(name.bytes, response, i, t)?;
            if !i.is_empty() {
                t.field(shared::UNKNOWN, i, i.len(), Value::Bytes(i));
            }
            Ok((&i[i.len()..], ()))
        });
    }
    Ok((&entry[entry.len()..], ()))
}

fn contents<'a, T: Trace>(name: &[u8], response: bool, i: &'a [u8], t: &mut T) -> PResult<'a, ()> {
    match (name, response) {
        (EA_BUFFER, _) => info::full_ea(i, t),
        (SD_BUFFER, _) => security::descriptor(i, t),
        (DURABLE_HANDLE_REQUEST, true) => read::le64(f::DURABLE_RESERVED, i, t).map(|(i, _)| (i, ())),
        (DURABLE_HANDLE_REQUEST, false) => read::array::<16, T>(shared::RESERVED, i, t).map(|(i, _)| (i, ())),
        (DURABLE_HANDLE_RECONNECT, _) => read::array::<16, T>(f::FILE_ID, i, t).map(|(i, _)| (i, ())),
        (ALLOCATION_SIZE, _) => read::le64(f::ALLOCATION, i, t).map(|(i, _)| (i, ())),
        (QUERY_MAXIMAL_ACCESS, false) => filetime(f::MXAC_TIMESTAMP, i, t).map(|(i, _)| (i, ())),
        (QUERY_MAXIMAL_ACCESS, true) => {
            let (i, _) = read::le32(f::MXAC_STATUS, i, t)?;
            let (i, _) = flags32(access::MASK, access::All::BITS, i, t)?;
            Ok((i, ()))
        }
        (TIMEWARP_TOKEN, _) => filetime(f::TWRP, i, t).map(|(i, _)| (i, ())),
        (QUERY_ON_DISK_ID, true) => {
            let (rest, id) = read::bytes(f::QFID, 32, i, t)?;
            t.down();
            t.field(f::QFID_FILE, id, 8, Value::U(number(id, 0, 8)));
            t.field(f::QFID_VOLUME, &id[8..], 8, Value::U(number(id, 8, 8)));
            t.up();
            Ok((rest, ()))
        }
        (REQUEST_LEASE, _) => lease(i, t),
        (DURABLE_HANDLE_REQUEST_V2, _) => {
            let (i, _) = read::le32(f::DH2_TIMEOUT, i, t)?;
            let (i, _) = flags32(f::DH2_FLAGS, &[f::DH2_PERSISTENT], i, t)?;
            if response {
                return Ok((i, ()));
            }
            let (i, _) = read::le64(f::DH2_RESERVED, i, t)?;
            let (i, _) = read::array::<16, T>(f::DH2_GUID, i, t)?;
            Ok((i, ()))
        }
        (DURABLE_HANDLE_RECONNECT_V2, _) => {
            let (i, _) = read::array::<16, T>(f::FILE_ID, i, t)?;
            let (i, _) = read::array::<16, T>(f::DH2_GUID, i, t)?;
            let (i, _) = flags32(f::DH2_FLAGS, &[f::DH2_PERSISTENT], i, t)?;
            Ok((i, ()))
        }
        (APP_INSTANCE_ID, _) => {
            let (i, _) = read::le16(f::APP_SIZE, i, t)?;
            let (i, _) = read::le16(f::APP_RESERVED, i, t)?;
            let (i, _) = read::array::<16, T>(f::APP_GUID, i, t)?;
            Ok((i, ()))
        }
        (APP_INSTANCE_VERSION, _) => {
            let (i, _) = read::le16(f::VERSION_SIZE, i, t)?;
            let (i, _) = read::le16(f::VERSION_RESERVED, i, t)?;
            let (i, _) = read::le32(f::VERSION_PADDING, i, t)?;
            let (i, _) = read::le64(f::VERSION_HIGH, i, t)?;
            let (i, _) = read::le64(f::VERSION_LOW, i, t)?;
            Ok((i, ()))
        }
        (SVHDX_OPEN_DEVICE, _) => svhdx(i, t),
        (POSIX, false) => read::le32(f::POSIX_PERMS, i, t).map(|(i, _)| (i, ())),
        (POSIX, true) => info::posix_links_and_owners(i, t),
        (AAPL, _) => aapl(response, i, t),
        _ => Ok((i, ())),
    }
}

/// Version 1 has 32 bytes, version 2 has 52.
fn lease<'a, T: Trace>(i: &'a [u8], t: &mut T) -> PResult<'a, ()> {
    let (i, _) = read::array::<16, T>(f::LEASE_KEY, i, t)?;
    let (i, _) = flags32(f::LEASE_STATE, &[f::LEASE_READ, f::LEASE_HANDLE, f::LEASE_WRITE], i, t)?;
    let (i, _) = flags32(f::LEASE_FLAGS, &[f::LEASE_ACK, f::LEASE_BREAKING, f::LEASE_PARENT_SET], i, t)?;
    let (i, _) = read::le64(f::LEASE_DURATION, i, t)?;
    if i.is_empty() {
        return Ok((i, ()));
    }
    let (i, _) = read::array::<16, T>(f::LEASE_PARENT, i, t)?;
    let (i, _) = read::le16(f::LEASE_EPOCH, i, t)?;
    let (i, _) = read::le16(f::LEASE_RESERVED, i, t)?;
    Ok((i, ()))
}

/// SVHDX_OPEN_DEVICE_CONTEXT, \[MS-RSVD\] 2.2.4.12, and its version 2, 2.2.4.32.
fn svhdx<'a, T: Trace>(i: &'a [u8], t: &mut T) -> PResult<'a, ()> {
    let (i, version) = read::le32(f::SVHDX_VERSION, i, t)?;
    let (rest, has_id) = leaf::u8(i).map_err(|_| nom::Err::Error(Fault::short(Some(f::SVHDX_HAS_ID), i, 1)))?;
    t.field(f::SVHDX_HAS_ID, i, 1, Value::U((has_id != 0).into()));
    let (i, _) = read::array::<3, T>(f::SVHDX_RESERVED, rest, t)?;
    let (i, _) = read::array::<16, T>(f::SVHDX_ID, i, t)?;
    let (i, _) = read::le32(f::SVHDX_FLAGS, i, t)?;
    let (i, _) = read::le32(f::SVHDX_ORIGINATOR, i, t)?;
    let (i, _) = read::le64(f::SVHDX_REQUEST, i, t)?;
    let (i, length) = read::le16(f::SVHDX_HOST_LENGTH, i, t)?;
    let Some((host, i)) = i.split_at_checked(126) else { return Fault::short(Some(f::SVHDX_HOST), i, 126).fail() };
    read::bytes(f::SVHDX_HOST, usize::from(length).min(126), host, t)?;
    if version < 2 {
        return Ok((i, ()));
    }
    let (rest, initialized) =
        leaf::le32(i).map_err(|_| nom::Err::Error(Fault::short(Some(f::SVHDX_INITIALIZED), i, 4)))?;
    t.field(f::SVHDX_INITIALIZED, i, 4, Value::U((initialized != 0).into()));
    let (i, _) = read::le32(f::SVHDX_SERVICE, rest, t)?;
    let (i, _) = read::le32(f::SVHDX_SECTOR, i, t)?;
    let (i, _) = read::le32(f::SVHDX_PHYSICAL, i, t)?;
    let (i, _) = read::le64(f::SVHDX_SIZE, i, t)?;
    Ok((i, ()))
}

fn aapl<'a, T: Trace>(response: bool, i: &'a [u8], t: &mut T) -> PResult<'a, ()> {
    const SERVER_QUERY: u32 = 1;
    const RESOLVE_ID: u32 = 2;
    let caps = &[f::AAPL_READDIR, f::AAPL_COPYFILE, f::AAPL_UNIX, f::AAPL_NFS_ACE];
    let (i, command) = read::le32(f::AAPL_COMMAND, i, t)?;
    let (i, _) = read::le32(f::AAPL_RESERVED, i, t)?;
    let text = |def, i: &'a [u8], t: &mut T| {
        let (i, length) = read::le32(f::AAPL_LENGTH, i, t)?;
        read::bytes(def, length as usize, i, t).map(|(i, _)| (i, ()))
    };
    match (command, response) {
        (SERVER_QUERY, false) => {
            let (i, _) = flags64(f::AAPL_BITMASK, &[f::AAPL_SERVER, f::AAPL_VOLUME, f::AAPL_MODEL], i, t)?;
            flags64(f::AAPL_CAPS, caps, i, t).map(|(i, _)| (i, ()))
        }
        (SERVER_QUERY, true) => {
            let (mut i, mask) = flags64(f::AAPL_BITMASK, &[f::AAPL_SERVER, f::AAPL_VOLUME, f::AAPL_MODEL], i, t)?;
            if mask & 1 != 0 {
                (i, _) = flags64(f::AAPL_CAPS, caps, i, t)?;
            }
            if mask & 2 != 0 {
                (i, _) = flags64(f::AAPL_VOLUME_CAPS, &[f::AAPL_RESOLVE, f::AAPL_CASE, f::AAPL_SYNC], i, t)?;
            }
            if mask & 4 != 0 {
                (i, _) = read::le32(f::AAPL_RESERVED, i, t)?;
                (i, ()) = text(f::AAPL_MODEL_NAME, i, t)?;
            }
            Ok((i, ()))
        }
        (RESOLVE_ID, false) => read::le64(f::AAPL_FILE, i, t).map(|(i, _)| (i, ())),
        (RESOLVE_ID, true) => {
            let (i, _) = read::le32(f::AAPL_STATUS, i, t)?;
            text(f::AAPL_PATH, i, t)
        }
        _ => Ok((i, ())),
    }
}
