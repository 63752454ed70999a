//! IOCTL, \[MS-SMB2\] 2.2.31 and 2.2.32: everything that has no command of its own. The control code decides what the
//! two buffers are.

use super::blob::{Blob, behind, blob, number};
use super::negotiate::Dialect;
use super::text::Utf16;
use super::{FileId, Header, f as shared, flags16, flags32, info, reparse};
use crate::fault::{Fault, PResult};
use crate::field::{Def, Values};
use crate::leaf::{self, read};
use crate::trace::{Trace, Value, scope};
use core::cell::Cell;
use core::fmt;

const BODY: usize = Header::LEN;

/// A control code: device type, access, function and method in one number.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct ControlCode(pub u32);

impl ControlCode {
    /// DFS referrals of a path.
    pub const DFS_GET_REFERRALS: Self = Self(0x0006_0194);
    /// The same, with the client's site.
    pub const DFS_GET_REFERRALS_EX: Self = Self(0x0006_01b0);
    /// Compression of a file.
    pub const GET_COMPRESSION: Self = Self(0x0009_003c);
    /// Object id of a file.
    pub const GET_OBJECT_ID: Self = Self(0x0009_009c);
    /// Makes a reparse point.
    pub const SET_REPARSE_POINT: Self = Self(0x0009_00a4);
    /// Reads a reparse point.
    pub const GET_REPARSE_POINT: Self = Self(0x0009_00a8);
    /// Removes a reparse point.
    pub const DELETE_REPARSE_POINT: Self = Self(0x0009_00ac);
    /// Object id of a file, made where there is none.
    pub const CREATE_OR_GET_OBJECT_ID: Self = Self(0x0009_00c0);
    /// Makes a file sparse, or not.
    pub const SET_SPARSE: Self = Self(0x0009_00c4);
    /// Checksums of a file.
    pub const GET_INTEGRITY_INFORMATION: Self = Self(0x0009_027c);
    /// Regions of a file with valid data.
    pub const QUERY_FILE_REGIONS: Self = Self(0x0009_0284);
    /// The server's support for shared virtual disks.
    pub const QUERY_SHARED_VIRTUAL_DISK_SUPPORT: Self = Self(0x0009_0300);
    /// Storage quality of service.
    pub const STORAGE_QOS_CONTROL: Self = Self(0x0009_0350);
    /// Allocated ranges of a sparse file.
    pub const QUERY_ALLOCATED_RANGES: Self = Self(0x0009_40cf);
    /// Offloaded data transfer: takes a token for a range.
    pub const OFFLOAD_READ: Self = Self(0x0009_4264);
    /// Sets an object id.
    pub const SET_OBJECT_ID: Self = Self(0x0009_8098);
    /// Zeros a range.
    pub const SET_ZERO_DATA: Self = Self(0x0009_80c8);
    /// Tells a device which ranges are free.
    pub const FILE_LEVEL_TRIM: Self = Self(0x0009_8208);
    /// Offloaded data transfer: writes the data that a token represents.
    pub const OFFLOAD_WRITE: Self = Self(0x0009_8268);
    /// Shares extents of one file with another.
    pub const DUPLICATE_EXTENTS: Self = Self(0x0009_8344);
    /// The same, atomic where asked for.
    pub const DUPLICATE_EXTENTS_EX: Self = Self(0x0009_83e8);
    /// Sets compression.
    pub const SET_COMPRESSION: Self = Self(0x0009_c040);
    /// Sets checksums.
    pub const SET_INTEGRITY_INFORMATION: Self = Self(0x0009_c280);
    /// Waits for a pipe.
    pub const PIPE_WAIT: Self = Self(0x0011_0018);
    /// Looks into a pipe.
    pub const PIPE_PEEK: Self = Self(0x0011_400c);
    /// Writes to a pipe and reads the answer.
    pub const PIPE_TRANSCEIVE: Self = Self(0x0011_c017);
    /// A key that names a file in a server-side copy.
    pub const SRV_REQUEST_RESUME_KEY: Self = Self(0x0014_0078);
    /// Asks that handles survive a disconnect, SMB 2.1.
    pub const LMR_REQUEST_RESILIENCY: Self = Self(0x0014_01d4);
    /// The server's network interfaces.
    pub const QUERY_NETWORK_INTERFACE_INFO: Self = Self(0x0014_01fc);
    /// Proof that nobody changed the negotiation, SMB 3.0.
    pub const VALIDATE_NEGOTIATE_INFO: Self = Self(0x0014_0204);
    /// Previous versions.
    pub const SRV_ENUMERATE_SNAPSHOTS: Self = Self(0x0014_4064);
    /// Copies ranges on the server.
    pub const SRV_COPYCHUNK: Self = Self(0x0014_40f2);
    /// Branch cache hashes.
    pub const SRV_READ_HASH: Self = Self(0x0014_41bb);
    /// Copies ranges on the server, target not readable.
    pub const SRV_COPYCHUNK_WRITE: Self = Self(0x0014_80f2);

    /// Every named code, ascending.
    pub const VALUES: Values = CODES;

    /// The name, where the code has one.
    pub fn name(self) -> Option<&'static str> {
        crate::field::name_of(CODES, u64::from(self.0))
    }
}

impl fmt::Display for ControlCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.name() {
            Some(name) => f.write_str(name),
            None => write!(f, "{:#010x}", self.0),
        }
    }
}

impl fmt::Debug for ControlCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

#[rustfmt::skip]
static CODES: Values = &[
    (0x0006_0194, "FSCTL_DFS_GET_REFERRALS"),
    (0x0006_01b0, "FSCTL_DFS_GET_REFERRALS_EX"),
    (0x0009_0000, "FSCTL_REQUEST_OPLOCK_LEVEL_1"),
    (0x0009_0004, "FSCTL_REQUEST_OPLOCK_LEVEL_2"),
    (0x0009_0008, "FSCTL_REQUEST_BATCH_OPLOCK"),
    (0x0009_000c, "FSCTL_OPLOCK_BREAK_ACKNOWLEDGE"),
    (0x0009_0010, "FSCTL_OPBATCH_ACK_CLOSE_PENDING"),
    (0x0009_0014, "FSCTL_OPLOCK_BREAK_NOTIFY"),
    (0x0009_0018, "FSCTL_LOCK_VOLUME"),
    (0x0009_001c, "FSCTL_UNLOCK_VOLUME"),
    (0x0009_0020, "FSCTL_DISMOUNT_VOLUME"),
    (0x0009_0028, "FSCTL_IS_VOLUME_MOUNTED"),
    (0x0009_002c, "FSCTL_IS_PATHNAME_VALID"),
    (0x0009_0030, "FSCTL_MARK_VOLUME_DIRTY"),
    (0x0009_003b, "FSCTL_QUERY_RETRIEVAL_POINTERS"),
    (0x0009_003c, "FSCTL_GET_COMPRESSION"),
    (0x0009_004f, "FSCTL_MARK_AS_SYSTEM_HIVE"),
    (0x0009_0050, "FSCTL_OPLOCK_BREAK_ACK_NO_2"),
    (0x0009_0054, "FSCTL_INVALIDATE_VOLUMES"),
    (0x0009_0058, "FSCTL_QUERY_FAT_BPB"),
    (0x0009_005c, "FSCTL_REQUEST_FILTER_OPLOCK"),
    (0x0009_0060, "FSCTL_FILESYSTEM_GET_STATISTICS"),
    (0x0009_0064, "FSCTL_GET_NTFS_VOLUME_DATA"),
    (0x0009_0068, "FSCTL_GET_NTFS_FILE_RECORD"),
    (0x0009_006f, "FSCTL_GET_VOLUME_BITMAP"),
    (0x0009_0073, "FSCTL_GET_RETRIEVAL_POINTERS"),
    (0x0009_0074, "FSCTL_MOVE_FILE"),
    (0x0009_0078, "FSCTL_IS_VOLUME_DIRTY"),
    (0x0009_007c, "FSCTL_GET_HFS_INFORMATION"),
    (0x0009_0083, "FSCTL_ALLOW_EXTENDED_DASD_IO"),
    (0x0009_0087, "FSCTL_READ_PROPERTY_DATA"),
    (0x0009_008b, "FSCTL_WRITE_PROPERTY_DATA"),
    (0x0009_008f, "FSCTL_FIND_FILES_BY_SID"),
    (0x0009_0097, "FSCTL_DUMP_PROPERTY_DATA"),
    (0x0009_009c, "FSCTL_GET_OBJECT_ID"),
    (0x0009_00a4, "FSCTL_SET_REPARSE_POINT"),
    (0x0009_00a8, "FSCTL_GET_REPARSE_POINT"),
    (0x0009_00ac, "FSCTL_DELETE_REPARSE_POINT"),
    (0x0009_00c0, "FSCTL_CREATE_OR_GET_OBJECT_ID"),
    (0x0009_00c4, "FSCTL_SET_SPARSE"),
    (0x0009_00d4, "FSCTL_SET_ENCRYPTION"),
    (0x0009_00db, "FSCTL_ENCRYPTION_FSCTL_IO"),
    (0x0009_00df, "FSCTL_WRITE_RAW_ENCRYPTED"),
    (0x0009_00e3, "FSCTL_READ_RAW_ENCRYPTED"),
    (0x0009_00f0, "FSCTL_EXTEND_VOLUME"),
    (0x0009_0138, "FSCTL_QUERY_SPARING_INFO"),
    (0x0009_013c, "FSCTL_QUERY_ON_DISK_VOLUME_INFO"),
    (0x0009_0194, "FSCTL_SET_ZERO_ON_DEALLOCATION"),
    (0x0009_0244, "FSCTL_CSV_TUNNEL_REQUEST"),
    (0x0009_0270, "FSCTL_SET_PURGE_FAILURE_MODE"),
    (0x0009_027c, "FSCTL_GET_INTEGRITY_INFORMATION"),
    (0x0009_0284, "FSCTL_QUERY_FILE_REGIONS"),
    (0x0009_02c8, "FSCTL_CSV_SYNC_TUNNEL_REQUEST"),
    (0x0009_0300, "FSCTL_QUERY_SHARED_VIRTUAL_DISK_SUPPORT"),
    (0x0009_0304, "FSCTL_SVHDX_SYNC_TUNNEL_REQUEST"),
    (0x0009_0308, "FSCTL_SVHDX_SET_INITIATOR_INFORMATION"),
    (0x0009_030c, "FSCTL_SET_EXTERNAL_BACKING"),
    (0x0009_0310, "FSCTL_GET_EXTERNAL_BACKING"),
    (0x0009_0314, "FSCTL_DELETE_EXTERNAL_BACKING"),
    (0x0009_0318, "FSCTL_ENUM_EXTERNAL_BACKING"),
    (0x0009_031f, "FSCTL_ENUM_OVERLAY"),
    (0x0009_0350, "FSCTL_STORAGE_QOS_CONTROL"),
    (0x0009_0364, "FSCTL_SVHDX_ASYNC_TUNNEL_REQUEST"),
    (0x0009_0380, "FSCTL_SET_INTEGRITY_INFORMATION_EX"),
    (0x0009_0440, "FSCTL_REFS_STREAM_SNAPSHOT_MANAGEMENT"),
    (0x0009_40b3, "FSCTL_ENUM_USN_DATA"),
    (0x0009_40b7, "FSCTL_SECURITY_ID_CHECK"),
    (0x0009_40bb, "FSCTL_READ_USN_JOURNAL"),
    (0x0009_40cf, "FSCTL_QUERY_ALLOCATED_RANGES"),
    (0x0009_40e7, "FSCTL_CREATE_USN_JOURNAL"),
    (0x0009_40eb, "FSCTL_READ_FILE_USN_DATA"),
    (0x0009_40ef, "FSCTL_WRITE_USN_CLOSE_RECORD"),
    (0x0009_4264, "FSCTL_OFFLOAD_READ"),
    (0x0009_8098, "FSCTL_SET_OBJECT_ID"),
    (0x0009_80a0, "FSCTL_DELETE_OBJECT_ID"),
    (0x0009_80a4, "FSCTL_SET_REPARSE_POINT"),
    (0x0009_80ac, "FSCTL_DELETE_REPARSE_POINT"),
    (0x0009_80bc, "FSCTL_SET_OBJECT_ID_EXTENDED"),
    (0x0009_80c8, "FSCTL_SET_ZERO_DATA"),
    (0x0009_80d0, "FSCTL_ENABLE_UPGRADE"),
    (0x0009_8134, "FSCTL_SET_DEFECT_MANAGEMENT"),
    (0x0009_8208, "FSCTL_FILE_LEVEL_TRIM"),
    (0x0009_8268, "FSCTL_OFFLOAD_WRITE"),
    (0x0009_8344, "FSCTL_DUPLICATE_EXTENTS_TO_FILE"),
    (0x0009_83e8, "FSCTL_DUPLICATE_EXTENTS_TO_FILE_EX"),
    (0x0009_c040, "FSCTL_SET_COMPRESSION"),
    (0x0009_c280, "FSCTL_SET_INTEGRITY_INFORMATION"),
    (0x0011_0018, "FSCTL_PIPE_WAIT"),
    (0x0011_400c, "FSCTL_PIPE_PEEK"),
    (0x0011_c017, "FSCTL_PIPE_TRANSCEIVE"),
    (0x0014_0078, "FSCTL_SRV_REQUEST_RESUME_KEY"),
    (0x0014_01d4, "FSCTL_LMR_REQUEST_RESILIENCY"),
    (0x0014_01fc, "FSCTL_QUERY_NETWORK_INTERFACE_INFO"),
    (0x0014_0204, "FSCTL_VALIDATE_NEGOTIATE_INFO"),
    (0x0014_4064, "FSCTL_SRV_ENUMERATE_SNAPSHOTS"),
    (0x0014_40f2, "FSCTL_SRV_COPYCHUNK"),
    (0x0014_41bb, "FSCTL_SRV_READ_HASH"),
    (0x0014_80f2, "FSCTL_SRV_COPYCHUNK_WRITE"),
];

const ADDRESS_FAMILIES: Values = &[(2, "IPv4"), (23, "IPv6")];
const SHARED_DISK_SUPPORT: Values =
    &[(1, "SharedVirtualDisksSupported"), (7, "SharedVirtualDiskCDPSnapshotsSupported")];
const SHARED_DISK_STATES: Values = &[(0, "HandleStateNone"), (1, "HandleStateFileShared"), (3, "HandleStateShared")];
const TOKEN_TYPES: Values = &[(0xffff_0001, "STORAGE_OFFLOAD_TOKEN_TYPE_ZERO_DATA")];
const CHECKSUMS: Values = &[
    (0, "CHECKSUM_TYPE_NONE"),
    (1, "CHECKSUM_TYPE_CRC32"),
    (2, "CHECKSUM_TYPE_CRC64"),
    (0xffff, "CHECKSUM_TYPE_UNCHANGED"),
];
const COMPRESSIONS: Values =
    &[(0, "COMPRESSION_FORMAT_NONE"), (1, "COMPRESSION_FORMAT_DEFAULT"), (2, "COMPRESSION_FORMAT_LZNT1")];
const SERVER_TYPES: Values = &[(0, "Non-root targets"), (1, "Root targets")];

fields! {
    /// The buffers and what they may be.
    pub mod f ["[MS-SMB2] 2.2.31"] {
        IN: None = "smb2.ioctl.in", "In Data";
        OUT: None = "smb2.ioctl.out", "Out Data";
        PIPE_DATA: Bytes as Data = "rdmascope.smb2.pipe.data", "Pipe data";
        INTERFACE: None = "rdmascope.smb2.ioctl.network_interfaces", "Network Interface";
        INTERFACE_NEXT: U32 = "smb2.ioctl.network_interfaces.next_offset", "Next Offset", hex;
        INTERFACE_INDEX: U32 = "smb2.ioctl.network_interfaces.index", "Interface Index", dec;
        INTERFACE_CAPABILITIES: U32 = "smb2.ioctl.network_interfaces.capabilities", "Interface Capabilities", hex;
        INTERFACE_RSS: Bool & 0x1 / 32 = "smb2.ioctl.network_interfaces.capabilities.rss", "RSS";
        INTERFACE_RDMA: Bool & 0x2 / 32 = "smb2.ioctl.network_interfaces.capabilities.rdma", "RDMA";
        INTERFACE_QUEUES: U32 = "smb2.ioctl.network_interfaces.reserved", "RSS Queue Count", dec;
        INTERFACE_SPEED: U64 = "smb2.ioctl.network_interfaces.link_speed", "Link Speed", dec;
        FAMILY: U16 = "smb2.windows.sockaddr.family", "Socket Family", dec, values ADDRESS_FAMILIES;
        PORT: U16 = "smb2.windows.sockaddr.port", "Socket Port", dec;
        IPV4: Ipv4 = "smb2.windows.sockaddr.in.addr", "Socket IPv4";
        FLOW: U32 = "smb2.windows.sockaddr.in6.flow_info", "IPv6 Flow Info", hex;
        IPV6: Ipv6 = "smb2.windows.sockaddr.in6.addr", "Socket IPv6";
        SCOPE: U32 = "smb2.windows.sockaddr.in6.scope_id", "IPv6 Scope ID", dec;
        CAPABILITIES: U32 = "smb2.capabilities", "Capabilities", hex;
        CAP_DFS: Bool & 0x00000001 / 32 = "smb2.capabilities.dfs", "DFS";
        CAP_LEASING: Bool & 0x00000002 / 32 = "smb2.capabilities.leasing", "LEASING";
        CAP_LARGE_MTU: Bool & 0x00000004 / 32 = "smb2.capabilities.large_mtu", "LARGE MTU";
        CAP_MULTI_CHANNEL: Bool & 0x00000008 / 32 = "smb2.capabilities.multi_channel", "MULTI CHANNEL";
        CAP_PERSISTENT: Bool & 0x00000010 / 32 = "smb2.capabilities.persistent_handles", "PERSISTENT HANDLES";
        CAP_DIRECTORY: Bool & 0x00000020 / 32 = "smb2.capabilities.directory_leasing", "DIRECTORY LEASING";
        CAP_ENCRYPTION: Bool & 0x00000040 / 32 = "smb2.capabilities.encryption", "ENCRYPTION";
        CLIENT_GUID: Guid = "smb2.client_guid", "Client Guid";
        SERVER_GUID: Guid = "smb2.server_guid", "Server Guid";
        SECURITY_MODE: U8 = "smb2.sec_mode", "Security mode", hex;
        SIGN_ENABLED: Bool & 0x1 / 8 = "smb2.sec_mode.sign_enabled", "Signing enabled";
        SIGN_REQUIRED: Bool & 0x2 / 8 = "smb2.sec_mode.sign_required", "Signing required";
        DIALECT_COUNT: U16 = "smb2.dialect_count", "Dialect count", dec;
        DIALECT: U16 = "smb2.dialect", "Dialect", hex, values Dialect::VALUES;
        RESUME_KEY: Bytes as Id = "smb2.fsctl.cchunk.resume_key", "ResumeKey";
        RESUME_CONTEXT_LENGTH: U32 = "rdmascope.smb2.fsctl.cchunk.context_length", "Context Length", dec;
        RESUME_CONTEXT: Bytes = "rdmascope.smb2.fsctl.cchunk.context", "Context";
        CHUNK: None = "rdmascope.smb2.fsctl.cchunk", "Chunk";
        CHUNK_COUNT: U32 = "smb2.fsctl.cchunk.count", "Chunk Count", dec;
        CHUNK_SOURCE: U64 = "smb2.fsctl.cchunk.src_offset", "Source Offset", dec;
        CHUNK_TARGET: U64 = "smb2.fsctl.cchunk.dst_offset", "Target Offset", dec;
        CHUNK_LENGTH: U32 = "smb2.fsctl.cchunk.xfer_len", "Transfer Length", dec;
        CHUNKS_WRITTEN: U32 = "smb2.fsctl.cchunk.chunks_written", "Chunks Written", dec;
        CHUNK_BYTES: U32 = "smb2.fsctl.cchunk.bytes_written", "Chunk Bytes Written", dec;
        CHUNK_TOTAL: U32 = "smb2.fsctl.cchunk.total_written", "Total Bytes Written", dec;
        SNAPSHOTS: U32 = "smb2.ioctl.enumerate_snapshots.num_snapshots", "Number of snapshots", dec;
        SNAPSHOTS_RETURNED: U32 = "smb2.ioctl.enumerate_snapshots.num_snapshots_returned", "Number of snapshots returned", dec;
        SNAPSHOTS_SIZE: U32 = "smb2.ioctl.enumerate_snapshots.array_size", "Array size", dec;
        SNAPSHOT: Utf16 as Keep = "smb2.ioctl.enumerate_snapshots.snapshot", "Snapshot";
        HASH_TYPE: U32 = "rdmascope.smb2.ioctl.hash.type", "Hash Type", hex;
        HASH_VERSION: U32 = "rdmascope.smb2.ioctl.hash.version", "Hash Version", dec;
        HASH_RETRIEVAL: U32 = "rdmascope.smb2.ioctl.hash.retrieval_type", "Hash Retrieval Type", dec, values &[(1, "SRV_HASH_RETRIEVE_HASH_BASED"), (2, "SRV_HASH_RETRIEVE_FILE_BASED")];
        HASH_LENGTH: U32 = "rdmascope.smb2.ioctl.hash.length", "Length", dec;
        HASH_OFFSET: U64 = "rdmascope.smb2.ioctl.hash.offset", "Offset", dec;
        RESILIENCY_TIMEOUT: U32 = "smb2.ioctl.resiliency.timeout", "Timeout", dec;
        RESILIENCY_RESERVED: U32 = "smb2.ioctl.resiliency.reserved", "Reserved", dec;
        WAIT_TIMEOUT: I64 = "smb2.fsctl.wait.timeout", "Timeout", dec;
        WAIT_NAME_LENGTH: U32 = "smb2.filename.len", "Filename Length", dec;
        WAIT_SPECIFIED: U8 = "rdmascope.smb2.fsctl.wait.timeout_specified", "Timeout Specified", dec;
        WAIT_NAME: Utf16 = "smb2.fsctl.wait.name", "Name";
        PEEK_STATE: U32 = "rdmascope.smb2.pipe.state", "Named Pipe State", hex;
        PEEK_AVAILABLE: U32 = "rdmascope.smb2.pipe.read_data_available", "Read Data Available", dec;
        PEEK_MESSAGES: U32 = "rdmascope.smb2.pipe.messages", "Number Of Messages", dec;
        PEEK_LENGTH: U32 = "rdmascope.smb2.pipe.message_length", "Message Length", dec;
        RANGE: None = "rdmascope.smb2.fsctl.range", "Range";
        RANGE_OFFSET: U64 = "smb2.fsctl.range_offset", "File Offset", dec;
        RANGE_LENGTH: U64 = "smb2.fsctl.range_length", "Length", dec;
        BEYOND_ZERO: U64 = "rdmascope.smb2.fsctl.zero_data.beyond_final_zero", "Beyond Final Zero", dec;
        SET_SPARSE: Bool & 0xff / 8 = "smb2.fsctl.set_sparse", "SetSparse";
        COMPRESSION: U16 = "smb2.compression_format", "Compression Format", dec, values COMPRESSIONS;
        CHECKSUM: U16 = "smb2.checksum_algorithm", "Checksum Algorithm", hex, values CHECKSUMS;
        INTEGRITY_RESERVED: U16 = "smb2.integrity_reserved", "Reserved", dec;
        INTEGRITY_FLAGS: U32 = "smb2.integrity_flags", "Flags", hex;
        INTEGRITY_OFF: Bool & 0x1 / 32 = "smb2.integrity_flags_enforcement", "FSCTL_INTEGRITY_FLAG_CHECKSUM_ENFORCEMENT_OFF";
        INTEGRITY_CHUNK: U32 = "smb2.integrity_crc_chunk_size", "Checksum Chunk Size", dec;
        INTEGRITY_CLUSTER: U32 = "smb2.cluster_size", "Cluster Size", dec;
        REGION_LENGTH: U64 = "smb2.qfr_length", "Length", dec;
        REGION_USAGE: U32 = "smb2.qfr_usage", "Desired Usage", hex;
        REGION_FLAGS: U32 = "smb2.qfr_flags", "Flags", hex;
        REGION_TOTAL: U32 = "smb2.qfr_tot_region_entry_count", "Total Region Entry Count", hex;
        REGION_COUNT: U32 = "smb2.qfr_region_entry_count", "Region Entry Count", hex;
        REGION_OFFSET: U64 = "smb2.file_offset", "File Offset", dec;
        ODX_SIZE: U32 = "smb2.fsctl.odx.size", "Size", dec;
        ODX_FLAGS: U32 = "smb2.fsctl.odx.flags", "Flags", hex;
        ODX_TTL: U32 = "smb2.fsctl.odx.token_ttl", "TokenTimeToLive", dec;
        ODX_OFFSET: U64 = "smb2.fsctl.odx.file_offset", "FileOffset", dec;
        ODX_COPY: U64 = "smb2.fsctl.odx.copy_length", "CopyLength", dec;
        ODX_TRANSFER: U64 = "smb2.fsctl.odx.xfer_length", "TransferLength", dec;
        ODX_TOKEN_OFFSET: U64 = "smb2.fsctl.odx.token_offset", "TokenOffset", dec;
        ODX_TOKEN: None = "rdmascope.smb2.fsctl.odx.token", "Token";
        ODX_TYPE: U32 = "smb2.fsctl.odx.token.type", "TokenType", hex, values TOKEN_TYPES;
        ODX_ID_LENGTH: U16 = "smb2.fsctl.odx.token.idlen", "TokenIdLength", dec;
        ODX_ID: Bytes as Id = "smb2.fsctl.odx.token.id", "TokenId";
        TRIM_KEY: U32 = "rdmascope.smb2.fsctl.trim.key", "Key", dec;
        TRIM_COUNT: U32 = "rdmascope.smb2.fsctl.trim.count", "NumRanges", dec;
        DUPLICATE_SIZE: U64 = "rdmascope.smb2.fsctl.duplicate_extents.size", "StructureSize", dec;
        DUPLICATE_SOURCE: Guid = "rdmascope.smb2.fsctl.duplicate_extents.source_file_id", "SourceFileID";
        DUPLICATE_FROM: U64 = "smb2.fsctl.dupext.src_offset", "SourceFileOffset", dec;
        DUPLICATE_TO: U64 = "smb2.fsctl.dupext.dst_offset", "TargetFileOffset", dec;
        DUPLICATE_COUNT: U64 = "smb2.fsctl.dupext.byte_count", "ByteCount", dec;
        DUPLICATE_FLAGS: U32 = "rdmascope.smb2.fsctl.duplicate_extents.flags", "Flags", hex;
        DISK_SUPPORT: U32 = "smb2.ioctl.shared_virtual_disk.support", "SharedVirtualDiskSupport", hex, values SHARED_DISK_SUPPORT;
        DISK_STATE: U32 = "smb2.ioctl.shared_virtual_disk.handle_state", "SharedVirtualDiskHandleState", hex, values SHARED_DISK_STATES;
    }
}

fields! {
    /// Storage quality of service, \[MS-SQOS\].
    pub mod qos ["[MS-SQOS] 2.2.2"] {
        VERSION: U16 = "smb2.ioctl.sqos.protocol_version", "ProtocolVersion", hex, values &[(0x0100, "Storage QoS \
            Protocol 1.0"), (0x0101, "Storage QoS Protocol 1.1")];
        RESERVED: U16 = "smb2.ioctl.sqos.reserved", "Reserved", dec;
        OPERATIONS: U32 = "smb2.ioctl.sqos.operations", "Operations", hex;
        SET_FLOW: Bool & 0x01 / 32 = "smb2.ioctl.sqos.operations.set_logical_flow_id", "Set Logical Flow ID";
        SET_POLICY: Bool & 0x02 / 32 = "smb2.ioctl.sqos.operations.set_policy", "Set Policy";
        PROBE_POLICY: Bool & 0x04 / 32 = "smb2.ioctl.sqos.operations.probe_policy", "Probe Policy";
        GET_STATUS: Bool & 0x08 / 32 = "smb2.ioctl.sqos.operations.get_status", "Get Status";
        UPDATE_COUNTERS: Bool & 0x10 / 32 = "smb2.ioctl.sqos.operations.update_counters", "Update Counters";
        FLOW_ID: Guid = "smb2.ioctl.sqos.logical_flow_id", "LogicalFlowID";
        POLICY_ID: Guid = "smb2.ioctl.sqos.policy_id", "PolicyID";
        INITIATOR_ID: Guid = "smb2.ioctl.sqos.initiator_id", "InitiatorID";
        LIMIT: U64 = "smb2.ioctl.sqos.limit", "Limit", dec;
        RESERVATION: U64 = "smb2.ioctl.sqos.reservation", "Reservation", dec;
        INITIATOR_NAME: Utf16 = "smb2.ioctl.sqos.initiator_name", "InitiatorName";
        NODE_NAME: Utf16 = "smb2.ioctl.sqos.initiator_node_name", "InitiatorNodeName";
        IO_COUNT: U64 = "smb2.ioctl.sqos.io_count_increment", "IoCountIncrement", dec;
        NORMALIZED_IO_COUNT: U64 = "smb2.ioctl.sqos.normalized_io_count_increment", "NormalizedIoCountIncrement", dec;
        LATENCY: U64 = "smb2.ioctl.sqos.latency_increment", "LatencyIncrement", dec;
        LOWER_LATENCY: U64 = "smb2.ioctl.sqos.lower_latency_increment", "LowerLatencyIncrement", dec;
        BANDWIDTH_LIMIT: U64 = "smb2.ioctl.sqos.bandwidth_limit", "BandwidthLimit", dec;
        KILOBYTES: U64 = "smb2.ioctl.sqos.kilobyte_count_increment", "KilobyteCountIncrement", dec;
        TTL: U32 = "smb2.ioctl.sqos.time_to_live", "TimeToLive", dec;
        STATUS: U32 = "smb2.ioctl.sqos.status", "Status", hex, values &[(0, "StorageQoSStatusOk"), (1, "StorageQoSStatusInsufficientThroughput"), (2, "StorageQoSUnknownPolicyId"), (4, "StorageQoSStatusConfigurationMismatch"), (5, "StorageQoSStatusNotAvailable")];
        MAXIMUM_RATE: U64 = "smb2.ioctl.sqos.maximum_io_rate", "MaximumIoRate", dec;
        MINIMUM_RATE: U64 = "smb2.ioctl.sqos.minimum_io_rate", "MinimumIoRate", dec;
        BASE_SIZE: U32 = "smb2.ioctl.sqos.base_io_size", "BaseIoSize", dec;
        RESERVED2: U32 = "smb2.ioctl.sqos.reserved2", "Reserved", dec;
        MAXIMUM_BANDWIDTH: U64 = "smb2.ioctl.sqos.maximum_bandwidth", "MaximumBandwidth", dec;
    }
}

fields! {
    /// DFS referrals, \[MS-DFSC\].
    pub mod dfs ["[MS-DFSC] 2.2"] {
        MAX_LEVEL: U16 = "smb.max_referral_level", "Max Referral Level", dec;
        REQUEST_FLAGS: U16 = "rdmascope.smb.dfs.request.flags", "Request Flags", hex, values &[(1, "SiteName present")];
        REQUEST_LENGTH: U32 = "rdmascope.smb.dfs.request.length", "Request Data Length", dec;
        NAME_LENGTH: U16 = "rdmascope.smb.dfs.request.name_length", "Name Length", dec;
        FILE: Utf16 = "smb.file", "File Name";
        SITE: Utf16 = "rdmascope.smb.dfs.request.site", "Site Name";
        CONSUMED: U16 = "smb.dfs.path_consumed", "Path Consumed", dec;
        COUNT: U16 = "smb.dfs.num_referrals", "Num Referrals", dec;
        FLAGS: U16 = "smb.dfs.flags", "Flags", hex;
        FIELDING: Bool & 0x1 / 16 = "smb.dfs.flags.fielding", "Fielding";
        STORAGE: Bool & 0x2 / 16 = "smb.dfs.flags.server_hold_storage", "Hold Storage";
        REFERRAL: None = "rdmascope.smb.dfs.referral", "Referral";
        VERSION: U16 = "smb.dfs.referral.version", "Version", dec;
        SIZE: U16 = "smb.dfs.referral.size", "Size", dec;
        SERVER_TYPE: U16 = "smb.dfs.referral.server.type", "Server Type", dec, values SERVER_TYPES;
        REFERRAL_FLAGS: U16 = "smb.dfs.referral.flags", "Flags", hex;
        NAME_LIST: Bool & 0x2 / 16 = "smb.dfs.referral.flags.name_list_referral", "NameListReferral";
        TARGET_SET: Bool & 0x4 / 16 = "smb.dfs.referral.flags.target_set_boundary", "TargetSetBoundary";
        PROXIMITY: U32 = "smb.dfs.referral.proximity", "Proximity", dec;
        TTL: U32 = "smb.dfs.referral.ttl", "TTL", dec;
        PATH_OFFSET: U16 = "smb.dfs.referral.path_offset", "Path Offset", dec;
        PATH: Utf16 = "smb.dfs.referral.path", "Path";
        ALT_PATH_OFFSET: U16 = "smb.dfs.referral.alt_path_offset", "Alt Path Offset", dec;
        ALT_PATH: Utf16 = "smb.dfs.referral.alt_path", "Alt Path";
        NODE_OFFSET: U16 = "smb.dfs.referral.node_offset", "Node Offset", dec;
        NODE: Utf16 = "smb.dfs.referral.node", "Node";
        DOMAIN_OFFSET: U16 = "smb.dfs.referral.domain_offset", "Domain Offset", dec;
        DOMAIN: Utf16 = "smb.dfs.referral.domain_name", "Domain Name";
        EXPANDED_COUNT: U16 = "smb.dfs.referral.number_of_expnames", "Number of Expanded Names", dec;
        EXPANDED_OFFSET: U16 = "smb.dfs.referral.expnames_offset", "Expanded Names Offset", dec;
        EXPANDED: Utf16 = "smb.dfs.referral.expname", "Expanded Name";
        GUID: Guid = "smb.dfs.referral.server_guid", "Server GUID";
    }
}

header! {
    /// The fixed part of the request.
    pub struct IoctlRequestFixed [NODE = "rdmascope.smb2.ioctl_request", "Ioctl Request", "[MS-SMB2] 2.2.31"] {
        /// 57.
        structure_size: le16 = "smb2.buffer_code", "StructureSize", hex, bits {
            fixed_part_length: u16 & 0xfffe = "smb2.buffer_code.length", "Fixed Part Length";
            has_dynamic_part: bool & 0x0001 = "smb2.buffer_code.dynamic", "Dynamic Part";
        };
        reserved: bytes[2] as Keep = "smb2.reserved", "Reserved";
        control_code: le32 = "smb2.ioctl.function", "Function", hex, values ControlCode::VALUES, bits {
            device: u32 & 0xffff0000 = "smb2.ioctl.function.device", "Device", hex;
            access: u32 & 0x0000c000 = "smb2.ioctl.function.access", "Access", hex;
            function: u32 & 0x00003ffc = "smb2.ioctl.function.function", "Function", hex;
            method: u32 & 0x00000003 = "smb2.ioctl.function.method", "Method", hex;
        };
        file_id: guid = "smb2.fid", "File Id";
        input_offset: le32 = "_", "Input Offset";
        input_count: le32 = "_", "Input Count";
        max_input_response: le32 = "smb2.max_ioctl_in_size", "Max Ioctl In Size", dec;
        output_offset: le32 = "_", "Output Offset";
        output_count: le32 = "_", "Output Count";
        max_output_response: le32 = "smb2.max_ioctl_out_size", "Max Ioctl Out Size", dec;
        flags: le32 = "smb2.ioctl.flags", "Flags", hex, bits {
            is_fsctl: bool & 0x00000001 = "smb2.ioctl.is_fsctl", "Is FSCTL";
        };
        reserved2: bytes[4] as Keep = "smb2.reserved", "Reserved";
    }
}

header! {
    /// The fixed part of the reply.
    pub struct IoctlResponseFixed [NODE = "rdmascope.smb2.ioctl_response", "Ioctl Response", "[MS-SMB2] 2.2.32"] {
        /// 49.
        structure_size: le16 = "smb2.buffer_code", "StructureSize", hex, bits {
            fixed_part_length: u16 & 0xfffe = "smb2.buffer_code.length", "Fixed Part Length";
            has_dynamic_part: bool & 0x0001 = "smb2.buffer_code.dynamic", "Dynamic Part";
        };
        reserved: bytes[2] as Keep = "smb2.reserved", "Reserved";
        control_code: le32 = "smb2.ioctl.function", "Function", hex, values ControlCode::VALUES, bits {
            device: u32 & 0xffff0000 = "smb2.ioctl.function.device", "Device", hex;
            access: u32 & 0x0000c000 = "smb2.ioctl.function.access", "Access", hex;
            function: u32 & 0x00003ffc = "smb2.ioctl.function.function", "Function", hex;
            method: u32 & 0x00000003 = "smb2.ioctl.function.method", "Method", hex;
        };
        file_id: guid = "smb2.fid", "File Id";
        input_offset: le32 = "_", "Input Offset";
        input_count: le32 = "_", "Input Count";
        output_offset: le32 = "_", "Output Offset";
        output_count: le32 = "_", "Output Count";
        flags: le32 = "smb2.ioctl.flags", "Flags", hex, bits {
            is_fsctl: bool & 0x00000001 = "smb2.ioctl.is_fsctl", "Is FSCTL";
        };
        reserved2: bytes[4] as Keep = "smb2.reserved", "Reserved";
    }
}

/// An IOCTL request taken apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IoctlRequest<'a> {
    /// Fields of fixed size.
    pub fixed: IoctlRequestFixed,
    /// Data for the server.
    pub input: Blob<'a>,
    /// Nothing, as a rule.
    pub output: Blob<'a>,
}

/// An IOCTL reply taken apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IoctlResponse<'a> {
    /// Fields of fixed size.
    pub fixed: IoctlResponseFixed,
    /// The request's input again, or nothing.
    pub input: Blob<'a>,
    /// Data from the server.
    pub output: Blob<'a>,
}

impl IoctlRequest<'_> {
    /// The file; [`FileId::PREVIOUS`] for none.
    pub const fn file(&self) -> FileId {
        FileId(self.fixed.file_id)
    }

    /// The operation requested.
    pub const fn code(&self) -> ControlCode {
        ControlCode(self.fixed.control_code)
    }
}

/// One network interface of a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NetworkInterface {
    /// IfIndex: index of the interface on the server.
    pub index: u32,
    /// True if it can spread its receive load (RSS).
    pub rss: bool,
    /// True if it can do RDMA.
    pub rdma: bool,
    /// Bits a second.
    pub link_speed: u64,
    /// IP address; `None` for an unknown family.
    pub address: Option<core::net::IpAddr>,
}

impl<'a> IoctlResponse<'a> {
    /// CtlCode of the request that this answers.
    pub const fn code(&self) -> ControlCode {
        ControlCode(self.fixed.control_code)
    }

    /// The interfaces of a QUERY_NETWORK_INTERFACE_INFO reply.
    pub fn network_interfaces(&self) -> impl Iterator<Item = NetworkInterface> + use<'a> {
        let mut list = if self.code() == ControlCode::QUERY_NETWORK_INTERFACE_INFO { self.output.bytes } else { &[] };
        core::iter::from_fn(move || {
            let entry = super::notify::next_entry(&mut list).filter(|e| e.len() >= 24)?;
            let capabilities = number(entry, 8, 4);
            let address = match number(entry, 24, 2) {
                2 => entry.get(28..).and_then(|b| b.first_chunk::<4>()).map(|b| (*b).into()),
                23 => entry.get(32..).and_then(|b| b.first_chunk::<16>()).map(|b| (*b).into()),
                _ => None,
            };
            Some(NetworkInterface {
                index: number(entry, 4, 4) as u32,
                rss: capabilities & 1 != 0,
                rdma: capabilities & 2 != 0,
                link_speed: number(entry, 16, 8),
                address,
            })
        })
    }
}

/// Decodes the body of an IOCTL request; `pdu` begins with its header.
pub fn request<'a, T: Trace>(pdu: &'a [u8], t: &mut T) -> PResult<'a, IoctlRequest<'a>> {
    const END: usize = BODY + IoctlRequestFixed::LEN;
    scope(IoctlRequestFixed::NODE, &pdu[BODY.min(pdu.len())..], t, |i, t| {
        let (_, fixed) = IoctlRequestFixed::parse_flat(i, t)?;
        let input = blob(pdu, END, (BODY + 24, 4), (BODY + 28, 4), t);
        buffer(f::IN, ControlCode(fixed.control_code), Side::Input, input.bytes, t);
        let output = blob(pdu, END, (BODY + 36, 4), (BODY + 40, 4), t);
        buffer(f::OUT, ControlCode(fixed.control_code), Side::Output, output.bytes, t);
        Ok((behind(pdu, END, &[&input, &output]), IoctlRequest { fixed, input, output }))
    })
}

/// Decodes the body of an IOCTL reply; `pdu` begins with its header.
pub fn response<'a, T: Trace>(pdu: &'a [u8], t: &mut T) -> PResult<'a, IoctlResponse<'a>> {
    const END: usize = BODY + IoctlResponseFixed::LEN;
    scope(IoctlResponseFixed::NODE, &pdu[BODY.min(pdu.len())..], t, |i, t| {
        let (_, fixed) = IoctlResponseFixed::parse_flat(i, t)?;
        let input = blob(pdu, END, (BODY + 24, 4), (BODY + 28, 4), t);
        buffer(f::IN, ControlCode(fixed.control_code), Side::Input, input.bytes, t);
        let output = blob(pdu, END, (BODY + 32, 4), (BODY + 36, 4), t);
        buffer(f::OUT, ControlCode(fixed.control_code), Side::Output, output.bytes, t);
        Ok((behind(pdu, END, &[&input, &output]), IoctlResponse { fixed, input, output }))
    })
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Side {
    Input,
    Output,
}

fn buffer<T: Trace>(def: Def, code: ControlCode, side: Side, bytes: &[u8], t: &mut T) {
    if !T::ON || bytes.is_empty() {
        return;
    }
    // a fault was reported where it happened, and the message goes on behind the buffer
    let _ = scope(def, bytes, t, |i, t| {
        let (i, ()) = contents(code, side, i, t)?;
        if !i.is_empty() {
            t.field(shared::UNKNOWN, i, i.len(), Value::Bytes(i));
        }
        Ok((&i[i.len()..], ()))
    });
}

fn contents<'a, T: Trace>(code: ControlCode, side: Side, i: &'a [u8], t: &mut T) -> PResult<'a, ()> {
    use ControlCode as C;
    use Side::{Input, Output};
    match (code, side) {
        (C::DFS_GET_REFERRALS, Input) => referral_request(i, t),
        (C::DFS_GET_REFERRALS_EX, Input) => referral_request_ex(i, t),
        (C::DFS_GET_REFERRALS | C::DFS_GET_REFERRALS_EX, Output) => referrals(i, t),
        (C::QUERY_NETWORK_INTERFACE_INFO, Output) => network_interfaces(i, t),
        (C::VALIDATE_NEGOTIATE_INFO, _) => validate_negotiate(side, i, t),
        (C::SRV_REQUEST_RESUME_KEY, Output) => {
            let (i, _) = read::array::<24, T>(f::RESUME_KEY, i, t)?;
            let (i, length) = read::le32(f::RESUME_CONTEXT_LENGTH, i, t)?;
            let length = (length as usize).min(i.len());
            // four bytes of context come in any case
            let length = if length == 0 { i.len().min(4) } else { length };
            let (i, _) = read::bytes(f::RESUME_CONTEXT, length, i, t)?;
            Ok((i, ()))
        }
        (C::SRV_COPYCHUNK | C::SRV_COPYCHUNK_WRITE, Input) => {
            let (i, _) = read::array::<24, T>(f::RESUME_KEY, i, t)?;
            let (i, count) = read::le32(f::CHUNK_COUNT, i, t)?;
            let (mut i, _) = read::array::<4, T>(shared::RESERVED, i, t)?;
            for _ in 0..count {
                (i, _) = scope(f::CHUNK, i, t, |i, t| {
                    let (i, ()) = numbers(&[f::CHUNK_SOURCE, f::CHUNK_TARGET, f::CHUNK_LENGTH], i, t)?;
                    let (i, _) = read::array::<4, T>(shared::RESERVED, i, t)?;
                    Ok((i, ()))
                })?;
            }
            Ok((i, ()))
        }
        (C::SRV_COPYCHUNK | C::SRV_COPYCHUNK_WRITE, Output) => {
            numbers(&[f::CHUNKS_WRITTEN, f::CHUNK_BYTES, f::CHUNK_TOTAL], i, t)
        }
        (C::SRV_ENUMERATE_SNAPSHOTS, Output) => {
            let (mut i, ()) = numbers(&[f::SNAPSHOTS, f::SNAPSHOTS_RETURNED, f::SNAPSHOTS_SIZE], i, t)?;
            while i.len() >= 4 {
                let name = Utf16(i).until_nul().0;
                if name.is_empty() {
                    break;
                }
                (i, _) = read::bytes(f::SNAPSHOT, name.len(), i, t)?;
                i = &i[2.min(i.len())..];
            }
            let padding = i.iter().take_while(|b| **b == 0).count();
            Ok((&i[padding..], ()))
        }
        (C::SRV_READ_HASH, Input) => {
            numbers(&[f::HASH_TYPE, f::HASH_VERSION, f::HASH_RETRIEVAL, f::HASH_LENGTH, f::HASH_OFFSET], i, t)
        }
        (C::LMR_REQUEST_RESILIENCY, Input) => numbers(&[f::RESILIENCY_TIMEOUT, f::RESILIENCY_RESERVED], i, t),
        (C::PIPE_WAIT, Input) => {
            let (i, _) = read::lei64(f::WAIT_TIMEOUT, i, t)?;
            let (i, length) = read::le32(f::WAIT_NAME_LENGTH, i, t)?;
            let (i, _) = read::u8(f::WAIT_SPECIFIED, i, t)?;
            let (i, _) = read::array::<1, T>(shared::RESERVED, i, t)?;
            let (i, _) = read::bytes(f::WAIT_NAME, length as usize, i, t)?;
            Ok((i, ()))
        }
        (C::PIPE_PEEK, Output) => {
            let (i, ()) = numbers(&[f::PEEK_STATE, f::PEEK_AVAILABLE, f::PEEK_MESSAGES, f::PEEK_LENGTH], i, t)?;
            if i.is_empty() { Ok((i, ())) } else { read::bytes(f::PIPE_DATA, i.len(), i, t).map(|(i, _)| (i, ())) }
        }
        (C::PIPE_TRANSCEIVE, _) => read::bytes(f::PIPE_DATA, i.len(), i, t).map(|(i, _)| (i, ())),
        (C::SET_REPARSE_POINT | C::DELETE_REPARSE_POINT, Input) | (C::GET_REPARSE_POINT, Output) => {
            reparse::data_buffer(i, t)
        }
        (C::SET_ZERO_DATA, Input) => numbers(&[f::RANGE_OFFSET, f::BEYOND_ZERO], i, t),
        (C::QUERY_ALLOCATED_RANGES, _) => ranges(i, t),
        (C::SET_SPARSE, Input) => {
            let value = i.first().copied().unwrap_or(0);
            t.field(f::SET_SPARSE, i, 1, Value::U((value != 0).into()));
            Ok((&i[1.min(i.len())..], ()))
        }
        (C::GET_COMPRESSION, Output) | (C::SET_COMPRESSION, Input) => numbers(&[f::COMPRESSION], i, t),
        (C::GET_INTEGRITY_INFORMATION, Output) | (C::SET_INTEGRITY_INFORMATION, Input) => {
            let (i, ()) = numbers(&[f::CHECKSUM, f::INTEGRITY_RESERVED], i, t)?;
            let (i, _) = flags32(f::INTEGRITY_FLAGS, &[f::INTEGRITY_OFF], i, t)?;
            if side == Output { numbers(&[f::INTEGRITY_CHUNK, f::INTEGRITY_CLUSTER], i, t) } else { Ok((i, ())) }
        }
        (C::QUERY_FILE_REGIONS, Input) => {
            let (i, ()) = numbers(&[f::REGION_OFFSET, f::REGION_LENGTH, f::REGION_USAGE], i, t)?;
            read::array::<4, T>(shared::RESERVED, i, t).map(|(i, _)| (i, ()))
        }
        (C::QUERY_FILE_REGIONS, Output) => {
            let (i, ()) = numbers(&[f::REGION_FLAGS, f::REGION_TOTAL], i, t)?;
            let (i, count) = read::le32(f::REGION_COUNT, i, t)?;
            let (mut i, _) = read::array::<4, T>(shared::RESERVED, i, t)?;
            for _ in 0..count {
                (i, _) = scope(f::RANGE, i, t, |i, t| {
                    let (i, ()) = numbers(&[f::REGION_OFFSET, f::REGION_LENGTH, f::REGION_USAGE], i, t)?;
                    read::array::<4, T>(shared::RESERVED, i, t)
                })?;
            }
            Ok((i, ()))
        }
        (C::GET_OBJECT_ID | C::CREATE_OR_GET_OBJECT_ID, Output) | (C::SET_OBJECT_ID, Input) => info::object_id(i, t),
        (C::OFFLOAD_READ, Input) => {
            let (i, ()) = numbers(&[f::ODX_SIZE, f::ODX_FLAGS, f::ODX_TTL], i, t)?;
            let (i, _) = read::array::<4, T>(shared::RESERVED, i, t)?;
            numbers(&[f::ODX_OFFSET, f::ODX_COPY], i, t)
        }
        (C::OFFLOAD_READ, Output) => {
            let (i, ()) = numbers(&[f::ODX_SIZE, f::ODX_FLAGS, f::ODX_TRANSFER], i, t)?;
            token(i, t)
        }
        (C::OFFLOAD_WRITE, Input) => {
            let (i, ()) = numbers(&[f::ODX_SIZE, f::ODX_FLAGS, f::ODX_OFFSET, f::ODX_COPY, f::ODX_TOKEN_OFFSET], i, t)?;
            token(i, t)
        }
        (C::OFFLOAD_WRITE, Output) => numbers(&[f::ODX_SIZE, f::ODX_FLAGS, f::ODX_TRANSFER], i, t),
        (C::FILE_LEVEL_TRIM, Input) => {
            let (i, ()) = numbers(&[f::TRIM_KEY, f::TRIM_COUNT], i, t)?;
            ranges(i, t)
        }
        (C::FILE_LEVEL_TRIM, Output) => numbers(&[f::TRIM_COUNT], i, t),
        (C::DUPLICATE_EXTENTS, Input) => duplicate_extents(i, t),
        (C::DUPLICATE_EXTENTS_EX, Input) => {
            let (i, ()) = numbers(&[f::DUPLICATE_SIZE], i, t)?;
            let (i, ()) = duplicate_extents(i, t)?;
            let (i, ()) = numbers(&[f::DUPLICATE_FLAGS], i, t)?;
            read::array::<4, T>(shared::RESERVED, i, t).map(|(i, _)| (i, ()))
        }
        (C::QUERY_SHARED_VIRTUAL_DISK_SUPPORT, Output) => numbers(&[f::DISK_SUPPORT, f::DISK_STATE], i, t),
        (C::STORAGE_QOS_CONTROL, _) => storage_qos(side, i, t),
        _ => Ok((i, ())),
    }
}

/// Little-endian integers of the widths that their kinds have.
fn numbers<'a, T: Trace>(defs: &[Def], mut i: &'a [u8], t: &mut T) -> PResult<'a, ()> {
    for def in defs {
        i = match def.kind.bits() {
            16 => read::le16(def, i, t)?.0,
            32 => read::le32(def, i, t)?.0,
            _ => read::le64(def, i, t)?.0,
        };
    }
    Ok((i, ()))
}

fn ranges<'a, T: Trace>(mut i: &'a [u8], t: &mut T) -> PResult<'a, ()> {
    while !i.is_empty() {
        (i, _) = scope(f::RANGE, i, t, |i, t| numbers(&[f::RANGE_OFFSET, f::RANGE_LENGTH], i, t))?;
    }
    Ok((i, ()))
}

fn duplicate_extents<'a, T: Trace>(i: &'a [u8], t: &mut T) -> PResult<'a, ()> {
    let (i, _) = read::array::<16, T>(f::DUPLICATE_SOURCE, i, t)?;
    numbers(&[f::DUPLICATE_FROM, f::DUPLICATE_TO, f::DUPLICATE_COUNT], i, t)
}

/// STORAGE_OFFLOAD_TOKEN, \[MS-FSCC\] 2.1.11: 512 bytes, big-endian.
fn token<'a, T: Trace>(i: &'a [u8], t: &mut T) -> PResult<'a, ()> {
    scope(f::ODX_TOKEN, i, t, |i, t| {
        let (i, _) = read::be32(f::ODX_TYPE, i, t)?;
        let (i, _) = read::array::<2, T>(shared::RESERVED, i, t)?;
        let (i, length) = read::be16(f::ODX_ID_LENGTH, i, t)?;
        let (rest, id) = leaf::take(i, i.len().min(504))?;
        t.field(f::ODX_ID, id, id.len().min(length.into()), Value::Bytes(&id[..id.len().min(length.into())]));
        Ok((rest, ()))
    })
}

/// A list of NETWORK_INTERFACE_INFO, \[MS-SMB2\] 2.2.32.5.
fn network_interfaces<'a, T: Trace>(mut i: &'a [u8], t: &mut T) -> PResult<'a, ()> {
    let end = &i[i.len()..];
    while let Some(entry) = super::notify::next_entry(&mut i) {
        scope(f::INTERFACE, entry, t, |i, t| {
            let (i, _) = read::le32(f::INTERFACE_NEXT, i, t)?;
            let (i, _) = read::le32(f::INTERFACE_INDEX, i, t)?;
            let (i, capabilities) = flags32(f::INTERFACE_CAPABILITIES, &[f::INTERFACE_RSS, f::INTERFACE_RDMA], i, t)?;
            let (i, _) = read::le32(f::INTERFACE_QUEUES, i, t)?;
            let (i, speed) = read::le64(f::INTERFACE_SPEED, i, t)?;
            if capabilities & 2 != 0 {
                t.label(format_args!(", RDMA"));
            }
            t.label(format_args!(", {} Mbit/s", speed / 1_000_000));
            let (rest, address) = leaf::take(i, i.len().min(128))?;
            let (i, family) = read::le16(f::FAMILY, address, t)?;
            match family {
                2 => {
                    let (i, _) = read::be16(f::PORT, i, t)?;
                    let (_, ip) = read::array::<4, T>(f::IPV4, i, t)?;
                    t.label(format_args!(", {}", core::net::Ipv4Addr::from(ip)));
                }
                23 => {
                    let (i, _) = read::be16(f::PORT, i, t)?;
                    let (i, _) = read::le32(f::FLOW, i, t)?;
                    let (i, ip) = read::array::<16, T>(f::IPV6, i, t)?;
                    let _ = read::le32(f::SCOPE, i, t)?;
                    t.label(format_args!(", {}", core::net::Ipv6Addr::from(ip)));
                }
                _ => t.field(shared::UNKNOWN, i, i.len(), Value::Bytes(i)),
            }
            Ok((rest, ()))
        })?;
    }
    Ok((end, ()))
}

/// VALIDATE_NEGOTIATE_INFO, \[MS-SMB2\] 2.2.31.4 and 2.2.32.6.
fn validate_negotiate<'a, T: Trace>(side: Side, i: &'a [u8], t: &mut T) -> PResult<'a, ()> {
    let capabilities = [
        f::CAP_DFS,
        f::CAP_LEASING,
        f::CAP_LARGE_MTU,
        f::CAP_MULTI_CHANNEL,
        f::CAP_PERSISTENT,
        f::CAP_DIRECTORY,
        f::CAP_ENCRYPTION,
    ];
    let (i, _) = flags32(f::CAPABILITIES, &capabilities, i, t)?;
    let (i, _) = read::array::<16, T>(if side == Side::Input { f::CLIENT_GUID } else { f::SERVER_GUID }, i, t)?;
    let (i, _) = super::flags8(f::SECURITY_MODE, &[f::SIGN_ENABLED, f::SIGN_REQUIRED], i, t)?;
    let (i, _) = read::array::<1, T>(shared::RESERVED, i, t)?;
    if side == Side::Output {
        return numbers(&[f::DIALECT], i, t);
    }
    let (mut i, count) = read::le16(f::DIALECT_COUNT, i, t)?;
    for _ in 0..count {
        (i, _) = read::le16(f::DIALECT, i, t)?;
    }
    Ok((i, ()))
}

fn storage_qos<'a, T: Trace>(side: Side, start: &'a [u8], t: &mut T) -> PResult<'a, ()> {
    const VERSION_1_1: u16 = 0x0101;
    let operations = [qos::SET_FLOW, qos::SET_POLICY, qos::PROBE_POLICY, qos::GET_STATUS, qos::UPDATE_COUNTERS];
    let (i, version) = read::le16(qos::VERSION, start, t)?;
    let (i, _) = read::le16(qos::RESERVED, i, t)?;
    let (i, _) = flags32(qos::OPERATIONS, &operations, i, t)?;
    let (i, _) = read::array::<16, T>(qos::FLOW_ID, i, t)?;
    let (i, _) = read::array::<16, T>(qos::POLICY_ID, i, t)?;
    let (i, _) = read::array::<16, T>(qos::INITIATOR_ID, i, t)?;
    if side == Side::Output {
        let (i, ()) = numbers(
            &[qos::TTL, qos::STATUS, qos::MAXIMUM_RATE, qos::MINIMUM_RATE, qos::BASE_SIZE, qos::RESERVED2],
            i,
            t,
        )?;
        return if version >= VERSION_1_1 { numbers(&[qos::MAXIMUM_BANDWIDTH], i, t) } else { Ok((i, ())) };
    }
    let (i, ()) = numbers(&[qos::LIMIT, qos::RESERVATION], i, t)?;
    let at = start.len() - i.len();
    let (i, _) = leaf::take(i, 8)?;
    let name = blob(start, at + 8, (at, 2), (at + 2, 2), t);
    name.trace(qos::INITIATOR_NAME, t);
    let node = blob(start, at + 8, (at + 4, 2), (at + 6, 2), t);
    node.trace(qos::NODE_NAME, t);
    let (mut i, ()) = numbers(&[qos::IO_COUNT, qos::NORMALIZED_IO_COUNT, qos::LATENCY, qos::LOWER_LATENCY], i, t)?;
    if version >= VERSION_1_1 {
        (i, ()) = numbers(&[qos::BANDWIDTH_LIMIT, qos::KILOBYTES], i, t)?;
    }
    Ok((behind(start, start.len() - i.len(), &[&name, &node]), ()))
}

fn referral_request<'a, T: Trace>(i: &'a [u8], t: &mut T) -> PResult<'a, ()> {
    let (i, _) = read::le16(dfs::MAX_LEVEL, i, t)?;
    let name = Utf16(i).until_nul().0;
    let (i, _) = read::bytes(dfs::FILE, name.len(), i, t)?;
    t.label(format_args!(": {}", Utf16(name)));
    Ok((&i[2.min(i.len())..], ()))
}

fn referral_request_ex<'a, T: Trace>(i: &'a [u8], t: &mut T) -> PResult<'a, ()> {
    let (i, _) = read::le16(dfs::MAX_LEVEL, i, t)?;
    let (i, flags) = read::le16(dfs::REQUEST_FLAGS, i, t)?;
    let (i, _) = read::le32(dfs::REQUEST_LENGTH, i, t)?;
    let (i, length) = read::le16(dfs::NAME_LENGTH, i, t)?;
    let (i, _) = read::bytes(dfs::FILE, length.into(), i, t)?;
    if flags & 1 == 0 {
        return Ok((i, ()));
    }
    let (i, length) = read::le16(dfs::NAME_LENGTH, i, t)?;
    read::bytes(dfs::SITE, length.into(), i, t).map(|(i, _)| (i, ()))
}

/// RESP_GET_DFS_REFERRAL, \[MS-DFSC\] 2.2.4, with referrals of versions 1 to 4.
fn referrals<'a, T: Trace>(start: &'a [u8], t: &mut T) -> PResult<'a, ()> {
    let (i, _) = read::le16(dfs::CONSUMED, start, t)?;
    let (i, count) = read::le16(dfs::COUNT, i, t)?;
    let (i, _) = flags16(dfs::FLAGS, &[dfs::FIELDING, dfs::STORAGE], i, t)?;
    let (mut i, _) = leaf::take(i, 2)?;
    // referrals may share names: together the names may be four times as long as the bytes they lie in
    let budget = Cell::new(start.len().saturating_mul(4));
    for _ in 0..count {
        (i, ()) = scope(dfs::REFERRAL, i, t, |entry, t| {
            let (i, version) = read::le16(dfs::VERSION, entry, t)?;
            let (i, size) = read::le16(dfs::SIZE, i, t)?;
            let (i, _) = read::le16(dfs::SERVER_TYPE, i, t)?;
            let (i, flags) = flags16(dfs::REFERRAL_FLAGS, &[dfs::NAME_LIST, dfs::TARGET_SET], i, t)?;
            let Some(rest) = entry.get(usize::from(size)..).filter(|_| size >= 8) else {
                return Fault::length(dfs::SIZE, &entry[2..], size.into()).fail();
            };
            let text = |def, offset: u16, t: &mut T| {
                let Some(at) = entry.get(usize::from(offset)..).filter(|_| offset >= 8) else { return };
                let text = Utf16(&at[..at.len().min(budget.get()) & !1]).until_nul().0;
                budget.set(budget.get().saturating_sub(text.len() + 2));
                t.field(def, text, text.len(), Value::Bytes(text));
            };
            match version {
                1 => text(dfs::NODE, 8, t),
                2 => {
                    let (i, _) = read::le32(dfs::PROXIMITY, i, t)?;
                    let (i, _) = read::le32(dfs::TTL, i, t)?;
                    paths(i, &text, t)?;
                }
                _ if flags & 2 != 0 => {
                    let (i, _) = read::le32(dfs::TTL, i, t)?;
                    let (i, domain) = read::le16(dfs::DOMAIN_OFFSET, i, t)?;
                    let (i, names) = read::le16(dfs::EXPANDED_COUNT, i, t)?;
                    let (_, offset) = read::le16(dfs::EXPANDED_OFFSET, i, t)?;
                    text(dfs::DOMAIN, domain, t);
                    let mut offset = usize::from(offset);
                    for _ in 0..names {
                        let Some(at) = entry.get(offset..).filter(|at| at.len() >= 2 && budget.get() >= 2) else {
                            break;
                        };
                        let name = Utf16(&at[..at.len().min(budget.get()) & !1]).until_nul().0;
                        budget.set(budget.get().saturating_sub(name.len() + 2));
                        t.field(dfs::EXPANDED, name, name.len(), Value::Bytes(name));
                        offset += name.len() + 2;
                    }
                }
                _ => {
                    let (i, _) = read::le32(dfs::TTL, i, t)?;
                    let i = paths(i, &text, t)?.0;
                    read::array::<16, T>(dfs::GUID, i, t)?;
                }
            }
            Ok((rest, ()))
        })?;
    }
    // the rest are the names
    Ok((&i[i.len()..], ()))
}

fn paths<'a, T: Trace>(i: &'a [u8], text: &impl Fn(Def, u16, &mut T), t: &mut T) -> PResult<'a, ()> {
    let (i, path) = read::le16(dfs::PATH_OFFSET, i, t)?;
    let (i, alternative) = read::le16(dfs::ALT_PATH_OFFSET, i, t)?;
    let (i, node) = read::le16(dfs::NODE_OFFSET, i, t)?;
    text(dfs::PATH, path, t);
    text(dfs::ALT_PATH, alternative, t);
    text(dfs::NODE, node, t);
    Ok((i, ()))
}
