//! The payload of QUERY_INFO, SET_INFO and QUERY_DIRECTORY, \[MS-FSCC\] 2.4 and 2.5: the information classes of files
//! and file systems. The class decides the layout, and only the request names it.

use super::access::{access, attributes};
use super::notify::next_entry;
use super::reparse::ReparseTag;
use super::security;
use super::text::Utf16;
use super::{f as shared, filetime, flags32};
use crate::fault::{Fault, PResult};
use crate::field::Def;
use crate::leaf::read;
use crate::trace::{Trace, Value, scope};

wire_enum! {
    /// Kind of information, \[MS-SMB2\] 2.2.37.
    pub enum InfoType: u8 {
        FILE = 0x01, "FILE_INFO";
        FILESYSTEM = 0x02, "FS_INFO";
        SECURITY = 0x03, "SEC_INFO";
        QUOTA = 0x04, "QUOTA_INFO";
    }
}

wire_enum! {
    /// File information classes, \[MS-FSCC\] 2.4.
    pub enum FileClass: u8 {
        DIRECTORY = 1, "FileDirectoryInformation";
        FULL_DIRECTORY = 2, "FileFullDirectoryInformation";
        BOTH_DIRECTORY = 3, "FileBothDirectoryInformation";
        BASIC = 4, "FileBasicInformation";
        STANDARD = 5, "FileStandardInformation";
        INTERNAL = 6, "FileInternalInformation";
        EA = 7, "FileEaInformation";
        ACCESS = 8, "FileAccessInformation";
        NAME = 9, "FileNameInformation";
        RENAME = 10, "FileRenameInformation";
        LINK = 11, "FileLinkInformation";
        NAMES = 12, "FileNamesInformation";
        DISPOSITION = 13, "FileDispositionInformation";
        POSITION = 14, "FilePositionInformation";
        FULL_EA = 15, "FileFullEaInformation";
        MODE = 16, "FileModeInformation";
        ALIGNMENT = 17, "FileAlignmentInformation";
        ALL = 18, "FileAllInformation";
        ALLOCATION = 19, "FileAllocationInformation";
        END_OF_FILE = 20, "FileEndOfFileInformation";
        ALTERNATE_NAME = 21, "FileAlternateNameInformation";
        STREAM = 22, "FileStreamInformation";
        PIPE = 23, "FilePipeInformation";
        PIPE_LOCAL = 24, "FilePipeLocalInformation";
        PIPE_REMOTE = 25, "FilePipeRemoteInformation";
        MAILSLOT_QUERY = 26, "FileMailslotQueryInformation";
        MAILSLOT_SET = 27, "FileMailslotSetInformation";
        COMPRESSION = 28, "FileCompressionInformation";
        OBJECT_ID = 29, "FileObjectIdInformation";
        MOVE_CLUSTER = 31, "FileMoveClusterInformation";
        QUOTA = 32, "FileQuotaInformation";
        REPARSE_POINT = 33, "FileReparsePointInformation";
        NETWORK_OPEN = 34, "FileNetworkOpenInformation";
        ATTRIBUTE_TAG = 35, "FileAttributeTagInformation";
        TRACKING = 36, "FileTrackingInformation";
        ID_BOTH_DIRECTORY = 37, "FileIdBothDirectoryInformation";
        ID_FULL_DIRECTORY = 38, "FileIdFullDirectoryInformation";
        VALID_DATA_LENGTH = 39, "FileValidDataLengthInformation";
        SHORT_NAME = 40, "FileShortNameInformation";
        SFIO_RESERVE = 44, "FileSfioReserveInformation";
        SFIO_VOLUME = 45, "FileSfioVolumeInformation";
        HARD_LINK = 46, "FileHardLinkInformation";
        NORMALIZED_NAME = 48, "FileNormalizedNameInformation";
        ID_GLOBAL_TX_DIRECTORY = 50, "FileIdGlobalTxDirectoryInformation";
        STANDARD_LINK = 54, "FileStandardLinkInformation";
        ID = 59, "FileIdInformation";
        ID_EXTD_DIRECTORY = 60, "FileIdExtdDirectoryInformation";
        DISPOSITION_EX = 64, "FileDispositionInformationEx";
        RENAME_EX = 65, "FileRenameInformationEx";
        CASE_SENSITIVE = 71, "FileCaseSensitiveInformation";
        LINK_EX = 72, "FileLinkInformationEx";
        ID_64_EXTD_DIRECTORY = 78, "FileId64ExtdDirectoryInformation";
        ID_64_EXTD_BOTH_DIRECTORY = 79, "FileId64ExtdBothDirectoryInformation";
        ID_ALL_EXTD_DIRECTORY = 80, "FileIdAllExtdDirectoryInformation";
        ID_ALL_EXTD_BOTH_DIRECTORY = 81, "FileIdAllExtdBothDirectoryInformation";
        POSIX = 100, "FilePosixInformation";
    }
}

wire_enum! {
    /// File system information classes, \[MS-FSCC\] 2.5.
    pub enum FsClass: u8 {
        VOLUME = 1, "FileFsVolumeInformation";
        LABEL = 2, "FileFsLabelInformation";
        SIZE = 3, "FileFsSizeInformation";
        DEVICE = 4, "FileFsDeviceInformation";
        ATTRIBUTE = 5, "FileFsAttributeInformation";
        CONTROL = 6, "FileFsControlInformation";
        FULL_SIZE = 7, "FileFsFullSizeInformation";
        OBJECT_ID = 8, "FileFsObjectIdInformation";
        DRIVER_PATH = 9, "FileFsDriverPathInformation";
        VOLUME_FLAGS = 10, "FileFsVolumeFlagsInformation";
        SECTOR_SIZE = 11, "FileFsSectorSizeInformation";
        POSIX = 100, "FileFsPosixInformation";
    }
}

const ALIGNMENTS: crate::field::Values = &[
    (0x000, "FILE_BYTE_ALIGNMENT"),
    (0x001, "FILE_WORD_ALIGNMENT"),
    (0x003, "FILE_LONG_ALIGNMENT"),
    (0x007, "FILE_QUAD_ALIGNMENT"),
    (0x00f, "FILE_OCTA_ALIGNMENT"),
    (0x01f, "FILE_32_BYTE_ALIGNMENT"),
    (0x03f, "FILE_64_BYTE_ALIGNMENT"),
    (0x07f, "FILE_128_BYTE_ALIGNMENT"),
    (0x0ff, "FILE_256_BYTE_ALIGNMENT"),
    (0x1ff, "FILE_512_BYTE_ALIGNMENT"),
];

const DEVICE_TYPES: crate::field::Values = &[
    (0x02, "CD-ROM"),
    (0x03, "CD-ROM file system"),
    (0x07, "Disk"),
    (0x08, "Disk file system"),
    (0x11, "Named pipe"),
    (0x14, "Network file system"),
    (0x24, "Virtual disk"),
];

fields! {
    /// The fields of file information.
    pub mod f ["[MS-FSCC] 2.4"] {
        DIRECTORY_ENTRY: None = "smb2.find.file_directory_info", "FileDirectoryInfo";
        FULL_ENTRY: None = "smb2.find.full_directory_info", "FullDirectoryInfo";
        BOTH_ENTRY: None = "smb2.find.both_directory_info", "FileBothDirectoryInfo";
        ID_ENTRY: None = "smb2.find.id_both_directory_info", "FileIdDirectoryInfo";
        EXTD_ENTRY: None = "rdmascope.smb2.find.id_extd_directory_info", "FileIdExtdDirectoryInfo";
        NAMES_ENTRY: None = "rdmascope.smb2.find.names_info", "FileNamesInfo";
        POSIX_ENTRY: None = "smb2.find.posix_info", "FilePosixInfo";
        BASIC: None = "smb2.file_basic_info", "FileBasicInformation";
        STANDARD: None = "smb2.file_standard_info", "FileStandardInformation";
        INTERNAL: None = "smb2.file_internal_info", "FileInternalInformation";
        EA: None = "smb2.file_ea_info", "FileEaInformation";
        ACCESS: None = "smb2.file_access_info", "FileAccessInformation";
        NAME: None = "rdmascope.smb2.file_name_info", "FileNameInformation";
        RENAME: None = "smb2.file_rename_info", "FileRenameInformation";
        LINK: None = "smb2.file_link_info", "FileLinkInformation";
        DISPOSITION: None = "smb2.file_disposition_info", "FileDispositionInformation";
        POSITION: None = "smb2.file_position_info", "FilePositionInformation";
        FULL_EA: None = "smb2.file_full_ea_info", "FileFullEaInformation";
        MODE: None = "smb2.file_mode_info", "FileModeInformation";
        ALIGNMENT: None = "smb2.file_alignment_info", "FileAlignmentInformation";
        ALL: None = "smb2.file_all_info", "FileAllInformation";
        ALLOCATION: None = "smb2.file_allocation_info", "FileAllocationInformation";
        END_OF_FILE: None = "smb2.file_endoffile_info", "FileEndOfFileInformation";
        ALTERNATE_NAME: None = "smb2.file_alternate_name_info", "FileAlternateNameInformation";
        STREAM: None = "smb2.file_stream_info", "FileStreamInformation";
        PIPE: None = "smb2.file_pipe_info", "FilePipeInformation";
        COMPRESSION: None = "smb2.file_compression_info", "FileCompressionInformation";
        NETWORK_OPEN: None = "smb2.file_network_open_info", "FileNetworkOpenInformation";
        ATTRIBUTE_TAG: None = "smb2.file_attribute_tag_info", "FileAttributeTagInformation";
        NORMALIZED_NAME: None = "smb2.file_normalized_name_info", "FileNormalizedNameInformation";
        HARD_LINKS: None = "rdmascope.smb2.file_hard_link_info", "FileHardLinkInformation";
        OTHER: None = "rdmascope.smb2.file_info", "File information";
        NEXT: U32 = "smb2.next_offset", "Next Offset", dec;
        FILE_INDEX: U32 = "smb2.file_index", "File Index", hex;
        CREATION: AbsTime = "smb2.create.time", "Create";
        LAST_ACCESS: AbsTime = "smb2.last_access.time", "Last Access";
        LAST_WRITE: AbsTime = "smb2.last_write.time", "Last Write";
        CHANGE: AbsTime = "smb2.last_change.time", "Last Change";
        EOF: U64 = "smb2.eof", "End Of File", dec;
        NEW_EOF: U64 = "smb.end_of_file", "End Of File", dec;
        RENAME_RESERVED: Bytes as Keep = "smb2.reserved.random", "Reserved (Random)";
        ALLOCATION_SIZE: U64 = "smb2.allocation_size", "Allocation Size", dec;
        NAME_LENGTH: U32 = "smb2.filename.len", "Filename Length", dec;
        FILENAME: Utf16 = "smb2.filename", "Filename";
        EA_SIZE: U32 = "smb2.ea_size", "EA Size", dec;
        SHORT_LENGTH: U8 = "smb2.short_name_len", "Short Name Length", dec;
        SHORT_NAME: Utf16 = "smb2.shortname", "Short Name";
        FILE_ID: U64 = "smb2.file_id", "File Id", hex;
        FILE_ID_128: Bytes as Id = "rdmascope.smb2.file_id_128", "File Id (128 bits)";
        TX_ID: Guid = "rdmascope.smb2.find.locking_transaction_id", "LockingTransactionId";
        TX_FLAGS: U32 = "rdmascope.smb2.find.tx_info_flags", "TxInfoFlags", hex;
        NLINKS: U32 = "smb2.nlinks", "Number of Links", dec;
        DELETE_PENDING: U8 = "smb2.delete_pending", "Delete Pending", dec;
        IS_DIRECTORY: U8 = "smb2.is_directory", "Is Directory", dec;
        TOTAL_LINKS: U32 = "rdmascope.smb2.total_nlinks", "Total Number of Links", dec;
        POSITION_INFO: U64 = "smb2.position_info", "Position Information", dec;
        MODE_INFO: U32 = "smb2.mode_info", "Mode Information", hex;
        MODE_WRITE_THROUGH: U32 & 0x2 / 32 = "smb2.mode.file_write_through", "FILE_WRITE_THROUGH", hex;
        MODE_SEQUENTIAL: U32 & 0x4 / 32 = "smb2.mode.file_sequential_only", "FILE_SEQUENTIAL_ONLY", hex;
        MODE_NO_BUFFERING: U32 & 0x8 / 32 = "smb2.mode.file_no_intermediate_buffering", "FILE_NO_INTERMEDIATE_BUFFERING", hex;
        MODE_ALERT: U32 & 0x10 / 32 = "smb2.mode.file_synchronous_io_alert", "FILE_SYNCHRONOUS_IO_ALERT", hex;
        MODE_NONALERT: U32 & 0x20 / 32 = "smb2.mode.file_synchronous_io_nonalert", "FILE_SYNCHRONOUS_IO_NONALERT", hex;
        MODE_DELETE: U32 & 0x1000 / 32 = "smb2.mode.file_delete_on_close", "FILE_DELETE_ON_CLOSE", hex;
        ALIGNMENT_INFO: U32 = "smb2.alignment_info", "Alignment Information", hex, values ALIGNMENTS;
        REPLACE_IF: Bool & 0xff / 8 = "smb2.rename.replace_if", "Replace If";
        RENAME_FLAGS: U32 = "rdmascope.smb2.rename.flags", "Flags", hex;
        RENAME_REPLACE: Bool & 0x1 / 32 = "rdmascope.smb2.rename.flags.replace_if_exists", "Replace if exists";
        RENAME_POSIX: Bool & 0x2 / 32 = "rdmascope.smb2.rename.flags.posix_semantics", "POSIX semantics";
        ROOT_DIRECTORY: Bytes as Keep = "smb2.root_directory", "Root Dir Handle (MBZ)";
        DELETE_ON_CLOSE: Bool & 0x1 / 8 = "smb2.disposition.delete_on_close", "Delete on close";
        DISPOSITION_FLAGS: U32 = "rdmascope.smb2.disposition.flags", "Flags", hex;
        DISPOSITION_DELETE: Bool & 0x1 / 32 = "rdmascope.smb2.disposition.flags.delete", "Delete";
        DISPOSITION_POSIX: Bool & 0x2 / 32 = "rdmascope.smb2.disposition.flags.posix_semantics", "POSIX semantics";
        EA_ENTRY: None = "rdmascope.smb2.ea", "EA";
        EA_FLAGS: U8 = "smb2.ea.flags", "EA Flags", hex;
        EA_NAME_LENGTH: U8 = "smb2.ea.name_len", "EA Name Length", dec;
        EA_DATA_LENGTH: U16 = "smb2.ea.data_len", "EA Data Length", dec;
        EA_NAME: Str = "smb2.ea.name", "EA Name";
        EA_DATA: Bytes as Data = "smb2.ea.data", "EA Data";
        STREAM_NAME_LENGTH: U32 = "smb.stream_name_len", "Stream Name Length", dec;
        STREAM_SIZE: U64 = "smb.stream_size", "Stream Size", dec;
        STREAM_ALLOCATION: U64 = "smb.alloc_size64", "Allocation Size", dec;
        STREAM_NAME: Utf16 = "smb.stream_name", "Stream Name";
        COMPRESSED_SIZE: U64 = "smb.compressed.file_size", "Compressed Size", dec;
        COMPRESSED_FORMAT: U16 = "smb.compressed.format", "Compression Format", dec, values &[(0, "COMPRESSION_FORMAT_NONE"), (2, "COMPRESSION_FORMAT_LZNT1")];
        COMPRESSED_UNIT: U8 = "smb.compressed.unit_shift", "Unit Shift", dec;
        COMPRESSED_CHUNK: U8 = "smb.compressed.chunk_shift", "Chunk Shift", dec;
        COMPRESSED_CLUSTER: U8 = "smb.compressed.cluster_shift", "Cluster Shift", dec;
        PIPE_READ_MODE: U32 = "rdmascope.smb2.pipe.read_mode", "Read Mode", hex, values &[(0, "FILE_PIPE_BYTE_STREAM_MODE"), (1, "FILE_PIPE_MESSAGE_MODE")];
        PIPE_COMPLETION: U32 = "rdmascope.smb2.pipe.completion_mode", "Completion Mode", hex, values &[(0, "FILE_PIPE_QUEUE_OPERATION"), (1, "FILE_PIPE_COMPLETE_OPERATION")];
        PIPE_TYPE: U32 = "rdmascope.smb2.pipe.type", "Pipe Type", hex;
        PIPE_CONFIGURATION: U32 = "rdmascope.smb2.pipe.configuration", "Pipe Configuration", hex, values &[(0, "Inbound"), (1, "Outbound"), (2, "Full duplex")];
        PIPE_MAX_INSTANCES: U32 = "rdmascope.smb2.pipe.max_instances", "Maximum Instances", dec;
        PIPE_CURRENT_INSTANCES: U32 = "rdmascope.smb2.pipe.current_instances", "Current Instances", dec;
        PIPE_INBOUND_QUOTA: U32 = "rdmascope.smb2.pipe.inbound_quota", "Inbound Quota", dec;
        PIPE_READ_AVAILABLE: U32 = "rdmascope.smb2.pipe.read_data_available", "Read Data Available", dec;
        PIPE_OUTBOUND_QUOTA: U32 = "rdmascope.smb2.pipe.outbound_quota", "Outbound Quota", dec;
        PIPE_WRITE_AVAILABLE: U32 = "rdmascope.smb2.pipe.write_quota_available", "Write Quota Available", dec;
        PIPE_STATE: U32 = "rdmascope.smb2.pipe.state", "Named Pipe State", hex, values &[(1, "Disconnected"), (2, "Listening"), (3, "Connected"), (4, "Closing")];
        PIPE_END: U32 = "rdmascope.smb2.pipe.end", "Named Pipe End", hex, values &[(0, "Client"), (1, "Server")];
        PIPE_COLLECT_TIME: U64 = "rdmascope.smb2.pipe.collect_data_time", "Collect Data Time", dec;
        PIPE_COLLECT_MAX: U32 = "rdmascope.smb2.pipe.maximum_collection_count", "Maximum Collection Count", dec;
        TAG: U32 = "smb2.reparse_tag", "Reparse Tag", hex, values ReparseTag::VALUES;
        VALID_DATA_LENGTH: U64 = "rdmascope.smb2.valid_data_length", "Valid Data Length", dec;
        LINK_BYTES: U32 = "rdmascope.smb2.hard_links.bytes_needed", "Bytes Needed", dec;
        LINK_ENTRIES: U32 = "rdmascope.smb2.hard_links.entries_returned", "Entries Returned", dec;
        LINK_ENTRY: None = "rdmascope.smb2.hard_links.entry", "Link";
        PARENT_ID: U64 = "rdmascope.smb2.hard_links.parent_file_id", "Parent File Id", hex;
        CASE_FLAGS: U32 = "rdmascope.smb2.case_sensitive.flags", "Flags", hex, values &[(1, "FILE_CS_FLAG_CASE_SENSITIVE_DIR")];
        VOLUME_SERIAL_64: U64 as Id = "rdmascope.smb2.volume_serial", "Volume Serial Number", hex;
        MOVE_CLUSTERS: Bytes = "rdmascope.smb2.file_info.data", "Data";
        POSIX_INODE: U64 = "smb2.inode", "Inode", hex;
        POSIX_DEVICE: U32 = "smb2.dev", "Device", hex;
        POSIX_PERMS: U32 = "smb2.posix_perms", "POSIX perms", oct;
        POSIX_OWNER: None = "rdmascope.smb2.posix.owner", "Owner SID";
        POSIX_GROUP: None = "rdmascope.smb2.posix.group", "Group SID";
        OBJECT_ID_BUFFER: None = "rdmascope.smb2.file_objectid_buffer", "FILE_OBJECTID_BUFFER";
        OBJECT_ID: Guid = "smb2.object_id", "ObjectId";
        BIRTH_VOLUME_ID: Guid = "smb2.birth_volume_id", "BirthVolumeId";
        BIRTH_OBJECT_ID: Guid = "smb2.birth_object_id", "BirthObjectId";
        DOMAIN_ID: Guid = "smb2.domain_id", "DomainId";
    }
}

fields! {
    /// The fields of file system information.
    pub mod fs ["[MS-FSCC] 2.5"] {
        VOLUME: None = "smb2.fs_volume_info", "FileFsVolumeInformation";
        SIZE: None = "smb2.fs_size_info", "FileFsSizeInformation";
        DEVICE: None = "smb2.fs_device_info", "FileFsDeviceInformation";
        ATTRIBUTE: None = "smb2.fs_attribute_info", "FileFsAttributeInformation";
        CONTROL: None = "smb2.fs_control_info", "FileFsControlInformation";
        FULL_SIZE: None = "smb2.fs_full_size_info", "FileFsFullSizeInformation";
        OBJECT_ID: None = "smb2.fs_objectid_info", "FileFsObjectIdInformation";
        SECTOR_SIZE: None = "rdmascope.smb2.fs_sector_size_info", "FileFsSectorSizeInformation";
        POSIX: None = "smb2.fs_posix_info", "FileFsPosixInformation";
        OTHER: None = "rdmascope.smb2.fs_info", "File system information";
        CREATION: AbsTime = "smb.create.time", "Created";
        SERIAL: U32 as Id = "smb.volume.serial", "Volume Serial Number", hex;
        LABEL_LENGTH: U32 = "smb.volume.label.len", "Label Length", dec;
        SUPPORTS_OBJECTS: U8 = "rdmascope.smb2.fs_volume_info.supports_objects", "Supports Objects", dec;
        RESERVED: Bytes as Keep = "smb.reserved", "Reserved";
        LABEL: Utf16 = "smb.volume.label", "Label";
        UNITS: U64 = "smb.alloc_size64", "Total Allocation Units", dec;
        FREE_UNITS: U64 = "smb.free_alloc_units", "Free Units", dec;
        CALLER_FREE: U64 = "smb.caller_free_alloc_units", "Caller Free Units", dec;
        ACTUAL_FREE: U64 = "smb.actual_free_alloc_units", "Actual Free Units", dec;
        SECTORS: U32 = "smb.fs_sector_per_unit", "Sectors/Unit", dec;
        SECTOR_BYTES: U32 = "smb.fs_bytes_per_sector", "Bytes per Sector", dec;
        DEVICE_TYPE: U32 = "smb.device.type", "Device Type", hex, values DEVICE_TYPES;
        CHARACTERISTICS: U32 = "smb.device", "Device Characteristics", hex;
        REMOVABLE: Bool & 0x00000001 / 32 = "smb.device.removable", "Removable";
        READ_ONLY: Bool & 0x00000002 / 32 = "smb.device.read_only", "Read Only";
        FLOPPY: Bool & 0x00000004 / 32 = "smb.device.floppy", "Floppy";
        WRITE_ONCE: Bool & 0x00000008 / 32 = "smb.device.write_once", "Write Once";
        REMOTE: Bool & 0x00000010 / 32 = "smb.device.remote", "Remote";
        MOUNTED: Bool & 0x00000020 / 32 = "smb.device.mounted", "Mounted";
        VIRTUAL: Bool & 0x00000040 / 32 = "smb.device.virtual", "Virtual";
        SECURE_OPEN: Bool & 0x00000100 / 32 = "smb.device.secure_open", "Secure Open";
        TERMINAL_SERVICES: Bool & 0x00001000 / 32 = "smb.device.ts", "Terminal Services";
        WEBDAV: Bool & 0x00002000 / 32 = "smb.device.webdav", "Webdav";
        PORTABLE: Bool & 0x00004000 / 32 = "smb.device.portable", "Portable";
        APPCONTAINER: Bool & 0x00020000 / 32 = "smb.device.aat", "Allow Appcontainer Traversal";
        ATTRIBUTES: U32 = "smb.fs_attr", "FS Attributes", hex;
        CASE_SENSITIVE: Bool & 0x00000001 / 32 = "smb.fs_attr.css", "Case Sensitive Search";
        CASE_PRESERVING: Bool & 0x00000002 / 32 = "smb.fs_attr.cpn", "Case Preserving";
        UNICODE: Bool & 0x00000004 / 32 = "smb.fs_attr.uod", "Unicode On Disk";
        ACLS: Bool & 0x00000008 / 32 = "smb.fs_attr.pacls", "Persistent ACLs";
        COMPRESSION: Bool & 0x00000010 / 32 = "smb.fs_attr.fc", "Compression";
        QUOTAS: Bool & 0x00000020 / 32 = "smb.fs_attr.vq", "Volume Quotas";
        SPARSE: Bool & 0x00000040 / 32 = "smb.fs_attr.ssf", "Sparse Files";
        REPARSE: Bool & 0x00000080 / 32 = "smb.fs_attr.srp", "Reparse Points";
        REMOTE_STORAGE: Bool & 0x00000100 / 32 = "smb.fs_attr.srs", "Remote Storage";
        LFN: Bool & 0x00004000 / 32 = "smb.fs_attr.sla", "LFN APIs";
        COMPRESSED: Bool & 0x00008000 / 32 = "smb.fs_attr.vis", "Volume Is Compressed";
        OIDS: Bool & 0x00010000 / 32 = "smb.fs_attr.soids", "Supports OIDs";
        ENCRYPTION: Bool & 0x00020000 / 32 = "smb.fs_attr.se", "Supports Encryption";
        STREAMS: Bool & 0x00040000 / 32 = "smb.fs_attr.ns", "Named Streams";
        READ_ONLY_VOLUME: Bool & 0x00080000 / 32 = "smb.fs_attr.rov", "Read Only Volume";
        SEQUENTIAL: Bool & 0x00100000 / 32 = "smb.fs_attr.swo", "Sequential Write Once";
        TRANSACTIONS: Bool & 0x00200000 / 32 = "smb.fs_attr.st", "Transactions";
        HARD_LINKS: Bool & 0x00400000 / 32 = "smb.fs_attr.shl", "Hard Links";
        INTEGRITY: Bool & 0x04000000 / 32 = "smb.fs_attr.sis", "Integrity Streams";
        REFCOUNTING: Bool & 0x08000000 / 32 = "smb.fs_attr.sbr", "Block Refcounting";
        SPARSE_VDL: Bool & 0x10000000 / 32 = "smb.fs_attr.ssv", "Sparse VDL";
        MAX_NAME: U32 = "smb.fs_max_name_len", "Max name length", dec;
        NAME_LENGTH: U32 = "smb.fs_name.len", "Label Length", dec;
        NAME: Utf16 as Keep = "smb.fs_name", "FS Name";
        FILTER_START: U64 = "rdmascope.smb2.fs_control_info.free_space_start_filtering", "FreeSpaceStartFiltering", dec;
        FILTER_THRESHOLD: U64 = "rdmascope.smb2.fs_control_info.free_space_threshold", "FreeSpaceThreshold", dec;
        FILTER_STOP: U64 = "rdmascope.smb2.fs_control_info.free_space_stop_filtering", "FreeSpaceStopFiltering", dec;
        QUOTA_THRESHOLD: U64 = "smb.quota.soft.default", "(Soft) Quota Threshold", dec;
        QUOTA_LIMIT: U64 = "smb.quota.hard.default", "(Hard) Quota Limit", dec;
        CONTROL_FLAGS: U32 = "rdmascope.smb2.fs_control_info.flags", "FileSystemControlFlags", hex;
        CONTROL_TRACK: Bool & 0x1 / 32 = "rdmascope.smb2.fs_control_info.flags.quota_track", "Quota track";
        CONTROL_ENFORCE: Bool & 0x2 / 32 = "rdmascope.smb2.fs_control_info.flags.quota_enforce", "Quota enforce";
        CONTROL_LOG_THRESHOLD: Bool & 0x10 / 32 = "rdmascope.smb2.fs_control_info.flags.log_quota_threshold", "Log quota threshold";
        CONTROL_LOG_LIMIT: Bool & 0x20 / 32 = "rdmascope.smb2.fs_control_info.flags.log_quota_limit", "Log quota limit";
        OBJECT: Guid = "smb2.object_id", "ObjectId";
        EXTENDED: Bytes = "rdmascope.smb2.fs_objectid_info.extended", "ExtendedInfo";
        LOGICAL: U32 = "rdmascope.smb2.fs_sector_size_info.logical", "LogicalBytesPerSector", dec;
        PHYSICAL_ATOMICITY: U32 = "rdmascope.smb2.fs_sector_size_info.physical_atomicity", "PhysicalBytesPerSectorForAtomicity", dec;
        PHYSICAL_PERFORMANCE: U32 = "rdmascope.smb2.fs_sector_size_info.physical_performance", "PhysicalBytesPerSectorForPerformance", dec;
        EFFECTIVE_ATOMICITY: U32 = "rdmascope.smb2.fs_sector_size_info.effective_atomicity", "FileSystemEffectivePhysicalBytesPerSectorForAtomicity", dec;
        SECTOR_FLAGS: U32 = "rdmascope.smb2.fs_sector_size_info.flags", "Flags", hex;
        ALIGNED_DEVICE: Bool & 0x1 / 32 = "rdmascope.smb2.fs_sector_size_info.flags.aligned_device", "Aligned device";
        ALIGNED_PARTITION: Bool & 0x2 / 32 = "rdmascope.smb2.fs_sector_size_info.flags.partition_aligned", "Partition \
            aligned on device";
        NO_SEEK_PENALTY: Bool & 0x4 / 32 = "rdmascope.smb2.fs_sector_size_info.flags.no_seek_penalty", "No seek penalty";
        TRIM: Bool & 0x8 / 32 = "rdmascope.smb2.fs_sector_size_info.flags.trim_enabled", "Trim enabled";
        SECTOR_ALIGNMENT: U32 = "rdmascope.smb2.fs_sector_size_info.byte_offset_for_sector_alignment", "ByteOffsetForSectorAlignment", dec;
        PARTITION_ALIGNMENT: U32 = "rdmascope.smb2.fs_sector_size_info.byte_offset_for_partition_alignment", "ByteOffsetForPartitionAlignment", dec;
        POSIX_TRANSFER: U32 = "smb2.fs_posix_optimal_transfer_size", "Optimal Transfer Size", dec;
        POSIX_BLOCK: U32 = "smb2.fs_posix_block_size", "Block Size", dec;
        POSIX_TOTAL: U64 = "smb2.fs_posix_total_blocks", "Total Blocks", dec;
        POSIX_AVAILABLE: U64 = "smb2.fs_posix_blocks_available", "Blocks Available", dec;
        POSIX_USER_AVAILABLE: U64 = "smb2.fs_posix_user_blocks_available", "User Blocks Available", dec;
        POSIX_NODES: U64 = "smb2.fs_posix_total_file_nodes", "Total File Nodes", dec;
        POSIX_FREE_NODES: U64 = "smb2.fs_posix_free_file_nodes", "Free File Nodes", dec;
        POSIX_ID: U64 = "smb2.fs_posix_fs_identifier", "File System Identifier", hex;
    }
}

fields! {
    /// The fields of quotas.
    pub mod quota ["[MS-FSCC] 2.4.41"] {
        INFO: None = "smb2.quota_info", "Quota Information";
        ENTRY: None = "rdmascope.smb.quota.user", "User Quota";
        QUERY: None = "smb2.query_quota_info", "Query Quota Information";
        SINGLE: Bool & 0xff / 8 = "smb2.query_quota_info.single", "ReturnSingle";
        RESTART: Bool & 0xff / 8 = "smb2.query_quota_info.restart", "RestartScan";
        SID_LIST_LENGTH: U32 = "smb2.query_quota_info.sidlistlen", "SidListLength", dec;
        START_SID_LENGTH: U32 = "smb2.query_quota_info.startsidlen", "StartSidLength", dec;
        START_SID_OFFSET: U32 = "smb2.query_quota_info.startsidoffset", "StartSidOffset", dec;
        NEXT: U32 = "smb.quota.user.offset", "Next Offset", dec;
        SID_LENGTH: U32 = "smb.length_of_sid", "Length of SID", dec;
        CHANGE_TIME: AbsTime = "smb.quota.user.change_time", "Change Time";
        USED: U64 = "smb.quota.used", "Quota Used", dec;
        THRESHOLD: U64 = "smb.quota.soft.default", "(Soft) Quota Threshold", dec;
        LIMIT: U64 = "smb.quota.hard.default", "(Hard) Quota Limit", dec;
    }
}

const MODE_BITS: &[Def] =
    &[f::MODE_WRITE_THROUGH, f::MODE_SEQUENTIAL, f::MODE_NO_BUFFERING, f::MODE_ALERT, f::MODE_NONALERT, f::MODE_DELETE];

#[rustfmt::skip]
const DEVICE_BITS: &[Def] = &[
    fs::REMOVABLE, fs::READ_ONLY, fs::FLOPPY, fs::WRITE_ONCE, fs::REMOTE, fs::MOUNTED, fs::VIRTUAL, fs::SECURE_OPEN, fs::TERMINAL_SERVICES,
    fs::WEBDAV, fs::PORTABLE, fs::APPCONTAINER,
];

#[rustfmt::skip]
const FS_BITS: &[Def] = &[
    fs::CASE_SENSITIVE, fs::CASE_PRESERVING, fs::UNICODE, fs::ACLS, fs::COMPRESSION, fs::QUOTAS, fs::SPARSE, fs::REPARSE, fs::REMOTE_STORAGE,
    fs::LFN, fs::COMPRESSED, fs::OIDS, fs::ENCRYPTION, fs::STREAMS, fs::READ_ONLY_VOLUME, fs::SEQUENTIAL, fs::TRANSACTIONS, fs::HARD_LINKS,
    fs::INTEGRITY, fs::REFCOUNTING, fs::SPARSE_VDL,
];

/// The name of an information class of this type.
pub fn class_name(info_type: u8, class: u8) -> Option<&'static str> {
    match InfoType(info_type) {
        InfoType::FILE => FileClass(class).name(),
        InfoType::FILESYSTEM => FsClass(class).name(),
        _ => None,
    }
}

/// Tells information of this type and class that fills `i`. `setting` where it is in a SET_INFO request.
pub(super) fn trace<'a, T: Trace>(info_type: u8, class: u8, setting: bool, i: &'a [u8], t: &mut T) -> PResult<'a, ()> {
    match InfoType(info_type) {
        InfoType::FILE => file_info(FileClass(class), setting, i, t),
        InfoType::FILESYSTEM => fs_info(FsClass(class), i, t),
        InfoType::SECURITY => security::descriptor(i, t),
        InfoType::QUOTA => scope(quota::INFO, i, t, quotas),
        _ => rest(i, t),
    }
}

fn rest<'a, T: Trace>(i: &'a [u8], t: &mut T) -> PResult<'a, ()> {
    if !i.is_empty() {
        t.field(shared::UNKNOWN, i, i.len(), Value::Bytes(i));
    }
    Ok((&i[i.len()..], ()))
}

fn file_info<'a, T: Trace>(class: FileClass, setting: bool, i: &'a [u8], t: &mut T) -> PResult<'a, ()> {
    use FileClass as C;
    let node = match class {
        C::BASIC => f::BASIC,
        C::STANDARD => f::STANDARD,
        C::INTERNAL => f::INTERNAL,
        C::EA => f::EA,
        C::ACCESS => f::ACCESS,
        C::NAME => f::NAME,
        C::RENAME | C::RENAME_EX => f::RENAME,
        C::LINK | C::LINK_EX => f::LINK,
        C::DISPOSITION | C::DISPOSITION_EX => f::DISPOSITION,
        C::POSITION => f::POSITION,
        C::FULL_EA => f::FULL_EA,
        C::MODE => f::MODE,
        C::ALIGNMENT => f::ALIGNMENT,
        C::ALL => f::ALL,
        C::ALLOCATION => f::ALLOCATION,
        C::END_OF_FILE => f::END_OF_FILE,
        C::ALTERNATE_NAME => f::ALTERNATE_NAME,
        C::STREAM => f::STREAM,
        C::PIPE | C::PIPE_LOCAL | C::PIPE_REMOTE => f::PIPE,
        C::COMPRESSION => f::COMPRESSION,
        C::NETWORK_OPEN => f::NETWORK_OPEN,
        C::ATTRIBUTE_TAG => f::ATTRIBUTE_TAG,
        C::NORMALIZED_NAME => f::NORMALIZED_NAME,
        C::HARD_LINK => f::HARD_LINKS,
        _ => f::OTHER,
    };
    scope(node, i, t, |i, t| {
        if node == f::OTHER {
            t.label(format_args!(": {class}"));
        }
        let (i, ()) = match class {
            C::BASIC => basic(i, t)?,
            C::STANDARD => standard(i, t)?,
            C::INTERNAL => number64(f::FILE_ID, i, t)?,
            C::EA => number32(f::EA_SIZE, i, t)?,
            C::ACCESS => flags32(access::MASK, access::All::BITS, i, t).map(|(i, _)| (i, ()))?,
            C::NAME | C::ALTERNATE_NAME | C::NORMALIZED_NAME | C::SHORT_NAME => name(i, t)?,
            C::RENAME | C::LINK => {
                let (i, _) = flags8_alone(f::REPLACE_IF, i, t)?;
                rename(i, 7, t)?
            }
            C::RENAME_EX | C::LINK_EX => {
                let (i, _) = flags32(f::RENAME_FLAGS, &[f::RENAME_REPLACE, f::RENAME_POSIX], i, t)?;
                rename(i, 4, t)?
            }
            C::DISPOSITION => flags8_alone(f::DELETE_ON_CLOSE, i, t)?,
            C::DISPOSITION_EX => flags32(f::DISPOSITION_FLAGS, &[f::DISPOSITION_DELETE, f::DISPOSITION_POSIX], i, t)
                .map(|(i, _)| (i, ()))?,
            C::POSITION => number64(f::POSITION_INFO, i, t)?,
            C::FULL_EA => full_ea(i, t)?,
            C::MODE => mode(i, t)?,
            C::ALIGNMENT => number32(f::ALIGNMENT_INFO, i, t)?,
            C::ALL => all(i, t)?,
            C::ALLOCATION => number64(f::ALLOCATION_SIZE, i, t)?,
            C::END_OF_FILE => number64(f::NEW_EOF, i, t)?,
            C::STREAM => streams(i, t)?,
            C::PIPE => numbers32(&[f::PIPE_READ_MODE, f::PIPE_COMPLETION], i, t)?,
            C::PIPE_LOCAL => numbers32(
                &[
                    f::PIPE_TYPE,
                    f::PIPE_CONFIGURATION,
                    f::PIPE_MAX_INSTANCES,
                    f::PIPE_CURRENT_INSTANCES,
                    f::PIPE_INBOUND_QUOTA,
                    f::PIPE_READ_AVAILABLE,
                    f::PIPE_OUTBOUND_QUOTA,
                    f::PIPE_WRITE_AVAILABLE,
                    f::PIPE_STATE,
                    f::PIPE_END,
                ],
                i,
                t,
            )?,
            C::PIPE_REMOTE => {
                let (i, ()) = number64(f::PIPE_COLLECT_TIME, i, t)?;
                number32(f::PIPE_COLLECT_MAX, i, t)?
            }
            C::COMPRESSION => {
                let (i, ()) = number64(f::COMPRESSED_SIZE, i, t)?;
                let (i, _) = read::le16(f::COMPRESSED_FORMAT, i, t)?;
                let (i, _) = read::u8(f::COMPRESSED_UNIT, i, t)?;
                let (i, _) = read::u8(f::COMPRESSED_CHUNK, i, t)?;
                let (i, _) = read::u8(f::COMPRESSED_CLUSTER, i, t)?;
                let (i, _) = read::array::<3, T>(shared::RESERVED, i, t)?;
                (i, ())
            }
            C::OBJECT_ID => object_id(i, t)?,
            C::QUOTA => quotas(i, t)?,
            C::REPARSE_POINT => {
                let (i, ()) = number64(f::FILE_ID, i, t)?;
                number32(f::TAG, i, t)?
            }
            C::NETWORK_OPEN => {
                let (i, ()) = times(i, t)?;
                let (i, ()) = number64(f::ALLOCATION_SIZE, i, t)?;
                let (i, ()) = number64(f::EOF, i, t)?;
                let (i, ()) = attributes_field(i, t)?;
                let (i, _) = read::array::<4, T>(shared::RESERVED, i, t)?;
                (i, ())
            }
            C::ATTRIBUTE_TAG => {
                let (i, ()) = attributes_field(i, t)?;
                number32(f::TAG, i, t)?
            }
            C::VALID_DATA_LENGTH => number64(f::VALID_DATA_LENGTH, i, t)?,
            C::HARD_LINK => hard_links(i, t)?,
            C::STANDARD_LINK => {
                let (i, ()) = numbers32(&[f::NLINKS, f::TOTAL_LINKS], i, t)?;
                let (i, _) = read::u8(f::DELETE_PENDING, i, t)?;
                let (i, _) = read::u8(f::IS_DIRECTORY, i, t)?;
                (i, ())
            }
            C::ID => {
                let (i, ()) = number64(f::VOLUME_SERIAL_64, i, t)?;
                let (i, _) = read::array::<16, T>(f::FILE_ID_128, i, t)?;
                (i, ())
            }
            C::CASE_SENSITIVE => number32(f::CASE_FLAGS, i, t)?,
            C::POSIX => posix(i, t)?,
            class if is_directory_class(class) && !setting => return directory(class, i, t),
            _ => {
                let (i, _) = read::bytes(f::MOVE_CLUSTERS, i.len(), i, t)?;
                (i, ())
            }
        };
        if i.len() < 8 && i.iter().all(|b| *b == 0) { Ok((&i[i.len()..], ())) } else { rest(i, t) }
    })
}

/// True if a class is one of QUERY_DIRECTORY's.
pub(super) const fn is_directory_class(class: FileClass) -> bool {
    matches!(class.0, 1..=3 | 12 | 37 | 38 | 50 | 60 | 78..=81 | 100)
}

fn number32<'a, T: Trace>(def: Def, i: &'a [u8], t: &mut T) -> PResult<'a, ()> {
    read::le32(def, i, t).map(|(i, _)| (i, ()))
}

fn number64<'a, T: Trace>(def: Def, i: &'a [u8], t: &mut T) -> PResult<'a, ()> {
    read::le64(def, i, t).map(|(i, _)| (i, ()))
}

fn numbers32<'a, T: Trace>(defs: &[Def], mut i: &'a [u8], t: &mut T) -> PResult<'a, ()> {
    for def in defs {
        (i, ()) = number32(def, i, t)?;
    }
    Ok((i, ()))
}

fn numbers64<'a, T: Trace>(defs: &[Def], mut i: &'a [u8], t: &mut T) -> PResult<'a, ()> {
    for def in defs {
        (i, ()) = number64(def, i, t)?;
    }
    Ok((i, ()))
}

/// One byte that is a truth.
fn flags8_alone<'a, T: Trace>(def: Def, i: &'a [u8], t: &mut T) -> PResult<'a, ()> {
    let Some((value, rest)) = i.split_first() else { return Fault::short(Some(def), i, 1).fail() };
    t.field(def, i, 1, Value::U((u64::from(*value) & def.mask != 0).into()));
    Ok((rest, ()))
}

fn attributes_field<'a, T: Trace>(i: &'a [u8], t: &mut T) -> PResult<'a, ()> {
    flags32(attributes::ATTRIBUTES, attributes::All::BITS, i, t).map(|(i, _)| (i, ()))
}

fn times<'a, T: Trace>(i: &'a [u8], t: &mut T) -> PResult<'a, ()> {
    let (i, _) = filetime(f::CREATION, i, t)?;
    let (i, _) = filetime(f::LAST_ACCESS, i, t)?;
    let (i, _) = filetime(f::LAST_WRITE, i, t)?;
    let (i, _) = filetime(f::CHANGE, i, t)?;
    Ok((i, ()))
}

fn basic<'a, T: Trace>(i: &'a [u8], t: &mut T) -> PResult<'a, ()> {
    let (i, ()) = times(i, t)?;
    let (i, ()) = attributes_field(i, t)?;
    // reserved; some clients leave it out when they set it
    if i.len() < 4 { Ok((i, ())) } else { read::array::<4, T>(shared::RESERVED, i, t).map(|(i, _)| (i, ())) }
}

fn standard<'a, T: Trace>(i: &'a [u8], t: &mut T) -> PResult<'a, ()> {
    let (i, ()) = number64(f::ALLOCATION_SIZE, i, t)?;
    let (i, ()) = number64(f::EOF, i, t)?;
    let (i, ()) = number32(f::NLINKS, i, t)?;
    let (i, _) = read::u8(f::DELETE_PENDING, i, t)?;
    let (i, _) = read::u8(f::IS_DIRECTORY, i, t)?;
    let (i, _) = read::array::<2, T>(shared::RESERVED, i, t)?;
    Ok((i, ()))
}

fn mode<'a, T: Trace>(i: &'a [u8], t: &mut T) -> PResult<'a, ()> {
    flags32(f::MODE_INFO, MODE_BITS, i, t).map(|(i, _)| (i, ()))
}

fn name<'a, T: Trace>(i: &'a [u8], t: &mut T) -> PResult<'a, ()> {
    let (i, length) = read::le32(f::NAME_LENGTH, i, t)?;
    let (i, name) = read::bytes(f::FILENAME, length as usize, i, t)?;
    t.label(format_args!(": {}", Utf16(name)));
    Ok((i, ()))
}

fn rename<'a, T: Trace>(i: &'a [u8], reserved: usize, t: &mut T) -> PResult<'a, ()> {
    let (i, _) = read::bytes(f::RENAME_RESERVED, reserved, i, t)?;
    let (i, _) = read::array::<8, T>(f::ROOT_DIRECTORY, i, t)?;
    name(i, t)
}

fn all<'a, T: Trace>(i: &'a [u8], t: &mut T) -> PResult<'a, ()> {
    let (i, ()) = basic(i, t)?;
    let (i, ()) = standard(i, t)?;
    let (i, ()) = number64(f::FILE_ID, i, t)?;
    let (i, ()) = number32(f::EA_SIZE, i, t)?;
    let (i, _) = flags32(access::MASK, access::All::BITS, i, t)?;
    let (i, ()) = number64(f::POSITION_INFO, i, t)?;
    let (i, ()) = mode(i, t)?;
    let (i, ()) = number32(f::ALIGNMENT_INFO, i, t)?;
    name(i, t)
}

/// A list of extended attributes, \[MS-FSCC\] 2.4.16; also a create context.
pub(super) fn full_ea<'a, T: Trace>(mut i: &'a [u8], t: &mut T) -> PResult<'a, ()> {
    let end = &i[i.len()..];
    while let Some(entry) = next_entry(&mut i) {
        scope(f::EA_ENTRY, entry, t, |i, t| {
            let (i, _) = read::le32(f::NEXT, i, t)?;
            let (i, _) = read::u8(f::EA_FLAGS, i, t)?;
            let (i, name) = read::u8(f::EA_NAME_LENGTH, i, t)?;
            let (i, data) = read::le16(f::EA_DATA_LENGTH, i, t)?;
            let (i, name) = read::bytes(f::EA_NAME, name.into(), i, t)?;
            t.label(format_args!(": {}", super::ntlmssp::Text { bytes: name, unicode: false }));
            // a NUL ends the name
            let i = i.get(1..).unwrap_or(i);
            let (i, _) = read::bytes(f::EA_DATA, data.into(), i, t)?;
            Ok((i, ()))
        })?;
    }
    Ok((end, ()))
}

fn streams<'a, T: Trace>(mut i: &'a [u8], t: &mut T) -> PResult<'a, ()> {
    let end = &i[i.len()..];
    while let Some(entry) = next_entry(&mut i) {
        scope(f::STREAM, entry, t, |i, t| {
            let (i, _) = read::le32(f::NEXT, i, t)?;
            let (i, length) = read::le32(f::STREAM_NAME_LENGTH, i, t)?;
            let (i, ()) = number64(f::STREAM_SIZE, i, t)?;
            let (i, ()) = number64(f::STREAM_ALLOCATION, i, t)?;
            let (i, name) = read::bytes(f::STREAM_NAME, length as usize, i, t)?;
            t.label(format_args!(": {}", Utf16(name)));
            Ok((i, ()))
        })?;
    }
    Ok((end, ()))
}

fn hard_links<'a, T: Trace>(i: &'a [u8], t: &mut T) -> PResult<'a, ()> {
    let (mut i, ()) = numbers32(&[f::LINK_BYTES, f::LINK_ENTRIES], i, t)?;
    let end = &i[i.len()..];
    while let Some(entry) = next_entry(&mut i) {
        scope(f::LINK_ENTRY, entry, t, |i, t| {
            let (i, _) = read::le32(f::NEXT, i, t)?;
            let (i, _) = read::array::<4, T>(shared::RESERVED, i, t)?;
            let (i, ()) = number64(f::PARENT_ID, i, t)?;
            let (i, characters) = read::le32(f::NAME_LENGTH, i, t)?;
            let (i, _) = read::bytes(f::FILENAME, (characters as usize).saturating_mul(2), i, t)?;
            Ok((i, ()))
        })?;
    }
    Ok((end, ()))
}

/// FILE_OBJECTID_BUFFER, \[MS-FSCC\] 2.1.3.
pub(super) fn object_id<'a, T: Trace>(i: &'a [u8], t: &mut T) -> PResult<'a, ()> {
    scope(f::OBJECT_ID_BUFFER, i, t, |i, t| {
        let (i, _) = read::array::<16, T>(f::OBJECT_ID, i, t)?;
        let (i, _) = read::array::<16, T>(f::BIRTH_VOLUME_ID, i, t)?;
        let (i, _) = read::array::<16, T>(f::BIRTH_OBJECT_ID, i, t)?;
        let (i, _) = read::array::<16, T>(f::DOMAIN_ID, i, t)?;
        Ok((i, ()))
    })
}

/// Level 100 of the SMB 3.1.1 POSIX extensions: the values of stat(2).
fn posix<'a, T: Trace>(i: &'a [u8], t: &mut T) -> PResult<'a, ()> {
    let (i, ()) = times(i, t)?;
    let (i, ()) = number64(f::EOF, i, t)?;
    let (i, ()) = number64(f::ALLOCATION_SIZE, i, t)?;
    let (i, ()) = attributes_field(i, t)?;
    let (i, ()) = number64(f::POSIX_INODE, i, t)?;
    let (i, ()) = number32(f::POSIX_DEVICE, i, t)?;
    let (i, _) = read::array::<4, T>(shared::RESERVED, i, t)?;
    posix_links_and_owners(i, t)
}

/// Links, reparse tag, mode, owner and group: also in a create context.
pub(super) fn posix_links_and_owners<'a, T: Trace>(i: &'a [u8], t: &mut T) -> PResult<'a, ()> {
    let (i, ()) = numbers32(&[f::NLINKS, f::TAG, f::POSIX_PERMS], i, t)?;
    let (i, _) = scope(f::POSIX_OWNER, i, t, security::sid)?;
    let (i, _) = scope(f::POSIX_GROUP, i, t, security::sid)?;
    Ok((i, ()))
}

/// The entries of a QUERY_DIRECTORY reply, of this class.
pub(super) fn directory<'a, T: Trace>(class: FileClass, mut i: &'a [u8], t: &mut T) -> PResult<'a, ()> {
    use FileClass as C;
    let end = &i[i.len()..];
    let node = match class {
        C::DIRECTORY => f::DIRECTORY_ENTRY,
        C::FULL_DIRECTORY => f::FULL_ENTRY,
        C::BOTH_DIRECTORY => f::BOTH_ENTRY,
        C::NAMES => f::NAMES_ENTRY,
        C::POSIX => f::POSIX_ENTRY,
        C::ID_BOTH_DIRECTORY | C::ID_FULL_DIRECTORY | C::ID_GLOBAL_TX_DIRECTORY => f::ID_ENTRY,
        _ => f::EXTD_ENTRY,
    };
    while let Some(entry) = next_entry(&mut i) {
        scope(node, entry, t, |i, t| directory_entry(class, i, t))?;
    }
    Ok((end, ()))
}

fn directory_entry<'a, T: Trace>(class: FileClass, i: &'a [u8], t: &mut T) -> PResult<'a, ()> {
    use FileClass as C;
    let (i, _) = read::le32(f::NEXT, i, t)?;
    let (i, _) = read::le32(f::FILE_INDEX, i, t)?;
    let (i, length) = match class {
        C::NAMES => read::le32(f::NAME_LENGTH, i, t)?,
        C::POSIX => {
            let (i, ()) = posix(i, t)?;
            read::le32(f::NAME_LENGTH, i, t)?
        }
        _ => {
            let (i, ()) = times(i, t)?;
            let (i, ()) = number64(f::EOF, i, t)?;
            let (i, ()) = number64(f::ALLOCATION_SIZE, i, t)?;
            let (i, ()) = attributes_field(i, t)?;
            read::le32(f::NAME_LENGTH, i, t)?
        }
    };
    let mut i = i;
    if !matches!(class, C::NAMES | C::POSIX | C::DIRECTORY | C::ID_GLOBAL_TX_DIRECTORY) {
        (i, ()) = number32(f::EA_SIZE, i, t)?;
    }
    match class {
        C::ID_FULL_DIRECTORY => {
            (i, _) = read::array::<4, T>(shared::RESERVED, i, t)?;
            (i, ()) = number64(f::FILE_ID, i, t)?;
        }
        C::BOTH_DIRECTORY => (i, ()) = short_name(i, t)?,
        C::ID_BOTH_DIRECTORY => {
            (i, ()) = short_name(i, t)?;
            (i, _) = read::array::<2, T>(shared::RESERVED, i, t)?;
            (i, ()) = number64(f::FILE_ID, i, t)?;
        }
        C::ID_GLOBAL_TX_DIRECTORY => {
            (i, ()) = number64(f::FILE_ID, i, t)?;
            (i, _) = read::array::<16, T>(f::TX_ID, i, t)?;
            (i, ()) = number32(f::TX_FLAGS, i, t)?;
        }
        C::ID_EXTD_DIRECTORY => {
            (i, ()) = number32(f::TAG, i, t)?;
            (i, _) = read::array::<16, T>(f::FILE_ID_128, i, t)?;
        }
        C::ID_64_EXTD_DIRECTORY
        | C::ID_64_EXTD_BOTH_DIRECTORY
        | C::ID_ALL_EXTD_DIRECTORY
        | C::ID_ALL_EXTD_BOTH_DIRECTORY => {
            (i, ()) = number32(f::TAG, i, t)?;
            (i, ()) = number64(f::FILE_ID, i, t)?;
            if matches!(class, C::ID_ALL_EXTD_DIRECTORY | C::ID_ALL_EXTD_BOTH_DIRECTORY) {
                (i, _) = read::array::<16, T>(f::FILE_ID_128, i, t)?;
            }
            if matches!(class, C::ID_64_EXTD_BOTH_DIRECTORY | C::ID_ALL_EXTD_BOTH_DIRECTORY) {
                (i, ()) = short_name(i, t)?;
            }
        }
        _ => {}
    }
    let (i, name) = read::bytes(f::FILENAME, length as usize, i, t)?;
    t.label(format_args!(": {}", Utf16(name)));
    Ok((i, ()))
}

/// Length, one reserved byte, and always 24 bytes.
fn short_name<'a, T: Trace>(i: &'a [u8], t: &mut T) -> PResult<'a, ()> {
    let (i, length) = read::u8(f::SHORT_LENGTH, i, t)?;
    let (i, _) = read::array::<1, T>(shared::RESERVED, i, t)?;
    let Some((field, rest)) = i.split_at_checked(24) else { return Fault::short(Some(f::SHORT_NAME), i, 24).fail() };
    read::bytes(f::SHORT_NAME, usize::from(length).min(24), field, t)?;
    Ok((rest, ()))
}

fn fs_info<'a, T: Trace>(class: FsClass, i: &'a [u8], t: &mut T) -> PResult<'a, ()> {
    use FsClass as C;
    let node = match class {
        C::VOLUME => fs::VOLUME,
        C::SIZE => fs::SIZE,
        C::DEVICE => fs::DEVICE,
        C::ATTRIBUTE => fs::ATTRIBUTE,
        C::CONTROL => fs::CONTROL,
        C::FULL_SIZE => fs::FULL_SIZE,
        C::OBJECT_ID => fs::OBJECT_ID,
        C::SECTOR_SIZE => fs::SECTOR_SIZE,
        C::POSIX => fs::POSIX,
        _ => fs::OTHER,
    };
    scope(node, i, t, |i, t| {
        let (i, ()) = match class {
            C::VOLUME => {
                let (i, _) = filetime(fs::CREATION, i, t)?;
                let (i, ()) = number32(fs::SERIAL, i, t)?;
                let (i, length) = read::le32(fs::LABEL_LENGTH, i, t)?;
                let (i, _) = read::u8(fs::SUPPORTS_OBJECTS, i, t)?;
                let (i, _) = read::array::<1, T>(fs::RESERVED, i, t)?;
                read::bytes(fs::LABEL, length as usize, i, t).map(|(i, _)| (i, ()))?
            }
            C::LABEL => {
                let (i, length) = read::le32(fs::LABEL_LENGTH, i, t)?;
                read::bytes(fs::LABEL, length as usize, i, t).map(|(i, _)| (i, ()))?
            }
            C::SIZE => {
                let (i, ()) = numbers64(&[fs::UNITS, fs::FREE_UNITS], i, t)?;
                numbers32(&[fs::SECTORS, fs::SECTOR_BYTES], i, t)?
            }
            C::DEVICE => {
                let (i, ()) = number32(fs::DEVICE_TYPE, i, t)?;
                flags32(fs::CHARACTERISTICS, DEVICE_BITS, i, t).map(|(i, _)| (i, ()))?
            }
            C::ATTRIBUTE => {
                let (i, _) = flags32(fs::ATTRIBUTES, FS_BITS, i, t)?;
                let (i, ()) = number32(fs::MAX_NAME, i, t)?;
                let (i, length) = read::le32(fs::NAME_LENGTH, i, t)?;
                read::bytes(fs::NAME, length as usize, i, t).map(|(i, _)| (i, ()))?
            }
            C::CONTROL => {
                let (i, ()) = numbers64(
                    &[fs::FILTER_START, fs::FILTER_THRESHOLD, fs::FILTER_STOP, fs::QUOTA_THRESHOLD, fs::QUOTA_LIMIT],
                    i,
                    t,
                )?;
                let flags = [fs::CONTROL_TRACK, fs::CONTROL_ENFORCE, fs::CONTROL_LOG_THRESHOLD, fs::CONTROL_LOG_LIMIT];
                flags32(fs::CONTROL_FLAGS, &flags, i, t).map(|(i, _)| (i, ()))?
            }
            C::FULL_SIZE => {
                let (i, ()) = numbers64(&[fs::UNITS, fs::CALLER_FREE, fs::ACTUAL_FREE], i, t)?;
                numbers32(&[fs::SECTORS, fs::SECTOR_BYTES], i, t)?
            }
            C::OBJECT_ID => {
                let (i, _) = read::array::<16, T>(fs::OBJECT, i, t)?;
                read::bytes(fs::EXTENDED, i.len().min(48), i, t).map(|(i, _)| (i, ()))?
            }
            C::SECTOR_SIZE => {
                let (i, ()) = numbers32(
                    &[fs::LOGICAL, fs::PHYSICAL_ATOMICITY, fs::PHYSICAL_PERFORMANCE, fs::EFFECTIVE_ATOMICITY],
                    i,
                    t,
                )?;
                let (i, _) = flags32(
                    fs::SECTOR_FLAGS,
                    &[fs::ALIGNED_DEVICE, fs::ALIGNED_PARTITION, fs::NO_SEEK_PENALTY, fs::TRIM],
                    i,
                    t,
                )?;
                numbers32(&[fs::SECTOR_ALIGNMENT, fs::PARTITION_ALIGNMENT], i, t)?
            }
            C::POSIX => {
                let (i, ()) = numbers32(&[fs::POSIX_TRANSFER, fs::POSIX_BLOCK], i, t)?;
                let sizes = [
                    fs::POSIX_TOTAL,
                    fs::POSIX_AVAILABLE,
                    fs::POSIX_USER_AVAILABLE,
                    fs::POSIX_NODES,
                    fs::POSIX_FREE_NODES,
                    fs::POSIX_ID,
                ];
                numbers64(&sizes, i, t)?
            }
            _ => rest(i, t)?,
        };
        if i.len() < 8 && i.iter().all(|b| *b == 0) { Ok((&i[i.len()..], ())) } else { rest(i, t) }
    })
}

/// A list of FILE_QUOTA_INFORMATION.
fn quotas<'a, T: Trace>(mut i: &'a [u8], t: &mut T) -> PResult<'a, ()> {
    let end = &i[i.len()..];
    while let Some(entry) = next_entry(&mut i) {
        scope(quota::ENTRY, entry, t, |i, t| {
            let (i, _) = read::le32(quota::NEXT, i, t)?;
            let (i, length) = read::le32(quota::SID_LENGTH, i, t)?;
            let (i, _) = filetime(quota::CHANGE_TIME, i, t)?;
            let (i, ()) = numbers64(&[quota::USED, quota::THRESHOLD, quota::LIMIT], i, t)?;
            if length == 0 { Ok((i, ())) } else { security::sid(i, t).map(|(i, _)| (i, ())) }
        })?;
    }
    Ok((end, ()))
}

/// SMB2_QUERY_QUOTA_INFO, \[MS-SMB2\] 2.2.37.1: whose quotas are asked for.
pub(super) fn query_quota<'a, T: Trace>(i: &'a [u8], t: &mut T) -> PResult<'a, ()> {
    scope(quota::QUERY, i, t, |i, t| {
        let (i, ()) = flags8_alone(quota::SINGLE, i, t)?;
        let (i, ()) = flags8_alone(quota::RESTART, i, t)?;
        let (i, _) = read::array::<2, T>(shared::RESERVED, i, t)?;
        let (i, list) = read::le32(quota::SID_LIST_LENGTH, i, t)?;
        let (i, start_length) = read::le32(quota::START_SID_LENGTH, i, t)?;
        let (i, start_offset) = read::le32(quota::START_SID_OFFSET, i, t)?;
        if list == 0 {
            return match i.get(start_offset as usize..) {
                Some(at) if start_length > 0 => security::sid(at, t).map(|(i, _)| (i, ())),
                _ => Ok((i, ())),
            };
        }
        let mut list = &i[..(list as usize).min(i.len())];
        while let Some(entry) = next_entry(&mut list) {
            scope(quota::ENTRY, entry, t, |i, t| {
                let (i, _) = read::le32(quota::NEXT, i, t)?;
                let (i, length) = read::le32(quota::SID_LENGTH, i, t)?;
                if length == 0 { Ok((i, ())) } else { security::sid(i, t).map(|(i, _)| (i, ())) }
            })?;
        }
        Ok((list, ()))
    })
}

/// FILE_GET_EA_INFORMATION: the names of the attributes that are asked for.
pub(super) fn get_ea<'a, T: Trace>(mut i: &'a [u8], t: &mut T) -> PResult<'a, ()> {
    let end = &i[i.len()..];
    while let Some(entry) = next_entry(&mut i) {
        scope(f::EA_ENTRY, entry, t, |i, t| {
            let (i, _) = read::le32(f::NEXT, i, t)?;
            let (i, length) = read::u8(f::EA_NAME_LENGTH, i, t)?;
            let (i, _) = read::bytes(f::EA_NAME, length.into(), i, t)?;
            Ok((i, ()))
        })?;
    }
    Ok((end, ()))
}
