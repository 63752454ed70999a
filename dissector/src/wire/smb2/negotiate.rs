//! NEGOTIATE, \[MS-SMB2\] 2.2.3 and 2.2.4: the dialect, the sizes, and from SMB 3.1.1 on a list of contexts.

use super::blob::{Blob, behind, blob, number};
use super::compression::Algorithm;
use super::text::Utf16;
use super::{Header, f as shared, spnego};
use crate::fault::{Fault, PResult};
use crate::leaf::{self, read};
use crate::trace::{Trace, Value, scope};

const BODY: usize = Header::LEN;

wire_enum! {
    /// A version of the protocol.
    pub enum Dialect: u16 {
        SMB_2_0_2 = 0x0202, "SMB 2.0.2";
        SMB_2_1 = 0x0210, "SMB 2.1";
        SMB_2_2_2 = 0x0222, "SMB 2.2.2 (draft of 3.0)";
        SMB_2_2_4 = 0x0224, "SMB 2.2.4 (draft of 3.0)";
        WILDCARD = 0x02ff, "SMB 2 wildcard";
        SMB_3_0 = 0x0300, "SMB 3.0";
        SMB_3_0_2 = 0x0302, "SMB 3.0.2";
        SMB_3_1_0 = 0x0310, "SMB 3.1.0 (draft of 3.1.1)";
        SMB_3_1_1 = 0x0311, "SMB 3.1.1";
    }
}

wire_enum! {
    /// Type of a negotiate context, \[MS-SMB2\] 2.2.3.1.
    pub enum ContextType: u16 {
        PREAUTH_INTEGRITY = 0x0001, "SMB2_PREAUTH_INTEGRITY_CAPABILITIES";
        ENCRYPTION = 0x0002, "SMB2_ENCRYPTION_CAPABILITIES";
        COMPRESSION = 0x0003, "SMB2_COMPRESSION_CAPABILITIES";
        NETNAME = 0x0005, "SMB2_NETNAME_NEGOTIATE_CONTEXT_ID";
        TRANSPORT = 0x0006, "SMB2_TRANSPORT_CAPABILITIES";
        RDMA_TRANSFORM = 0x0007, "SMB2_RDMA_TRANSFORM_CAPABILITIES";
        SIGNING = 0x0008, "SMB2_SIGNING_CAPABILITIES";
        POSIX = 0x0100, "SMB2_POSIX_EXTENSIONS_CAPABILITIES";
    }
}

wire_enum! {
    /// Cipher of messages, by the numbers of SMB2_ENCRYPTION_CAPABILITIES, \[MS-SMB2\] 2.2.3.1.2; 0 is none.
    pub enum Cipher: u16 {
        AES_128_CCM = 0x0001, "AES-128-CCM";
        AES_128_GCM = 0x0002, "AES-128-GCM";
        AES_256_CCM = 0x0003, "AES-256-CCM";
        AES_256_GCM = 0x0004, "AES-256-GCM";
    }
}

impl Cipher {
    /// Every cipher there is.
    pub const ALL: [Self; 4] = [Self::AES_128_CCM, Self::AES_128_GCM, Self::AES_256_CCM, Self::AES_256_GCM];

    /// Bytes of its keys.
    pub const fn key_len(self) -> usize {
        if matches!(self, Self::AES_256_CCM | Self::AES_256_GCM) { 32 } else { 16 }
    }

    /// Bytes of its nonces.
    pub const fn nonce_len(self) -> usize {
        if matches!(self, Self::AES_128_CCM | Self::AES_256_CCM) { 11 } else { 12 }
    }
}

wire_enum! {
    /// Signing algorithm of messages, by the numbers of SMB2_SIGNING_CAPABILITIES, \[MS-SMB2\] 2.2.3.1.7.
    pub enum SigningAlgorithm: u16 {
        HMAC_SHA256 = 0x0000, "HMAC-SHA256";
        AES_CMAC = 0x0001, "AES-CMAC";
        AES_GMAC = 0x0002, "AES-GMAC";
    }
}

impl SigningAlgorithm {
    /// Every algorithm there is.
    pub const ALL: [Self; 3] = [Self::HMAC_SHA256, Self::AES_CMAC, Self::AES_GMAC];

    /// The one of a dialect, where none was negotiated.
    pub fn of_dialect(dialect: Dialect) -> Self {
        if dialect < Dialect::SMB_3_0 { Self::HMAC_SHA256 } else { Self::AES_CMAC }
    }
}

wire_enum! {
    /// Transforms of data that goes by RDMA.
    pub enum RdmaTransformId: u16 {
        NONE = 0x0000, "None";
        ENCRYPTION = 0x0001, "Encryption";
        SIGNING = 0x0002, "Signing";
    }
}

fields! {
    /// Variable parts of the two messages.
    pub mod f ["[MS-SMB2] 2.2.3.1"] {
        DIALECT: U16 = "smb2.dialect", "Dialect", hex, values Dialect::VALUES;
        SECURITY_BLOB: Bytes as Ber = "smb2.security_blob", "Security Blob";
        BOOT_TIME_OF_CLIENT: AbsTime = "rdmascope.smb2.client_start_time", "Client Start Time";
        CONTEXT_OFFSET: U32 = "smb2.negotiate_context.offset", "NegotiateContextOffset", hex;
        CONTEXT_COUNT: U16 = "smb2.negotiate_context.count", "NegotiateContextCount", dec;
        CONTEXT: None = "rdmascope.smb2.negotiate_context", "Negotiate Context";
        CONTEXT_TYPE: U16 = "smb2.negotiate_context.type", "Type", hex, values ContextType::VALUES;
        CONTEXT_LENGTH: U16 = "smb2.negotiate_context.data_length", "DataLength", dec;
        HASH_COUNT: U16 = "smb2.negotiate_context.hash_alg_count", "HashAlgorithmCount", dec;
        SALT_LENGTH: U16 = "smb2.negotiate_context.salt_length", "SaltLength", dec;
        HASH: U16 = "smb2.negotiate_context.hash_algorithm", "HashAlgorithm", hex, values &[(1, "SHA-512")];
        SALT: Bytes as Id = "smb2.negotiate_context.salt", "Salt";
        CIPHER_COUNT: U16 = "smb2.negotiate_context.cipher_count", "CipherCount", dec;
        CIPHER: U16 = "smb2.negotiate_context.cipher_id", "CipherId", hex, values Cipher::VALUES;
        COMPRESSION_COUNT: U16 = "smb2.negotiate_context.comp_alg_count", "CompressionAlgorithmCount", dec;
        COMPRESSION_FLAGS: U32 = "smb2.negotiate_context.comp_alg_flags", "Flags", hex;
        COMPRESSION_CHAINED: Bool & 0x1 / 32 = "smb2.negotiate_context.comp_alg_flags.chained", "Chained";
        COMPRESSION_RESERVED: U32 & 0xfffffffe / 32 = "smb2.negotiate_context.comp_alg_flags.reserved", "Reserved", hex;
        COMPRESSION: U16 = "smb2.negotiate_context.comp_alg_id", "CompressionAlgorithmId", hex, values Algorithm::VALUES;
        NETNAME: Utf16 = "smb2.negotiate_context.netname", "Netname";
        TRANSPORT_FLAGS: U32 = "smb2.negotiate_context.transport_flags", "Flags", hex, values &[(1, "SMB2_ACCEPT_TRANSPORT_LEVEL_SECURITY")];
        RDMA_COUNT: U16 = "smb2.negotiate_context.rdma_transform_count", "TransformCount", dec;
        RDMA_RESERVED1: U16 = "smb2.negotiate_context.rdma_transform_reserved1", "Reserved1", hex;
        RDMA_RESERVED2: U32 = "smb2.negotiate_context.rdma_transform_reserved2", "Reserved2", hex;
        RDMA_ID: U16 = "smb2.negotiate_context.rdma_transform_id", "RDMATransformId", hex, values RdmaTransformId::VALUES;
        SIGNING_COUNT: U16 = "smb2.negotiate_context.signing_alg_count", "SigningAlgorithmCount", dec;
        SIGNING: U16 = "smb2.negotiate_context.signing_id", "SigningAlgorithmId", hex, values SigningAlgorithm::VALUES;
        POSIX_RESERVED: Bytes as Keep = "smb2.negotiate_context.posix_reserved", "POSIX Reserved";
    }
}

/// Bits of SecurityMode as numbers.
pub mod security_mode {
    type Bits = <super::NegotiateRequestFixed as crate::field::Fields>::Bits;

    /// The sender can sign.
    pub const SIGNING_ENABLED: u8 = Bits::signing_enabled.mask as u8;
    /// The sender wants all messages signed.
    pub const SIGNING_REQUIRED: u8 = Bits::signing_required.mask as u8;
}

/// Capabilities as numbers.
pub mod capabilities {
    type Bits = <super::NegotiateRequestFixed as crate::field::Fields>::Bits;

    /// READs and WRITEs of more than 64 KiB.
    pub const LARGE_MTU: u32 = Bits::large_mtu.mask as u32;
    /// Several connections carry one session.
    pub const MULTI_CHANNEL: u32 = Bits::multi_channel.mask as u32;
    /// Encryption.
    pub const ENCRYPTION: u32 = Bits::encryption.mask as u32;
}

header! {
    /// The fixed part of the request. The last eight bytes are a time before SMB 3.1.1, then where the contexts are.
    pub struct NegotiateRequestFixed [NODE = "rdmascope.smb2.negotiate_request", "Negotiate Protocol Request", "[MS-SMB2] 2.2.3"] {
        /// 36.
        structure_size: le16 = "smb2.buffer_code", "StructureSize", hex, bits {
            fixed_part_length: u16 & 0xfffe = "smb2.buffer_code.length", "Fixed Part Length";
            has_dynamic_part: bool & 0x0001 = "smb2.buffer_code.dynamic", "Dynamic Part";
        };
        dialect_count: le16 = "smb2.dialect_count", "Dialect count", dec;
        security_mode: u8 = "smb2.sec_mode", "Security mode", hex, bits {
            signing_enabled: bool & 0x01 = "smb2.sec_mode.sign_enabled", "Signing enabled";
            signing_required: bool & 0x02 = "smb2.sec_mode.sign_required", "Signing required";
        };
        /// The upper half of the 16 bits of SecurityMode.
        security_mode_high: bytes[1] as Keep = "smb2.reserved", "Reserved";
        reserved: bytes[2] as Keep = "smb2.reserved", "Reserved";
        capabilities: le32 = "smb2.capabilities", "Capabilities", hex, bits {
            dfs: bool & 0x00000001 = "smb2.capabilities.dfs", "DFS";
            leasing: bool & 0x00000002 = "smb2.capabilities.leasing", "LEASING";
            large_mtu: bool & 0x00000004 = "smb2.capabilities.large_mtu", "LARGE MTU";
            multi_channel: bool & 0x00000008 = "smb2.capabilities.multi_channel", "MULTI CHANNEL";
            persistent_handles: bool & 0x00000010 = "smb2.capabilities.persistent_handles", "PERSISTENT HANDLES";
            directory_leasing: bool & 0x00000020 = "smb2.capabilities.directory_leasing", "DIRECTORY LEASING";
            encryption: bool & 0x00000040 = "smb2.capabilities.encryption", "ENCRYPTION";
            notifications: bool & 0x00000080 = "smb2.capabilities.notifications", "NOTIFICATIONS";
        };
        client_guid: guid = "smb2.client_guid", "Client Guid";
        contexts_or_start_time: le64 = "_", "NegotiateContextOffset";
    }
}

header! {
    /// The fixed part of the reply.
    pub struct NegotiateResponseFixed [NODE = "rdmascope.smb2.negotiate_response", "Negotiate Protocol Response", "[MS-SMB2] 2.2.4"] {
        /// 65.
        structure_size: le16 = "smb2.buffer_code", "StructureSize", hex, bits {
            fixed_part_length: u16 & 0xfffe = "smb2.buffer_code.length", "Fixed Part Length";
            has_dynamic_part: bool & 0x0001 = "smb2.buffer_code.dynamic", "Dynamic Part";
        };
        security_mode: u8 = "smb2.sec_mode", "Security mode", hex, bits {
            signing_enabled: bool & 0x01 = "smb2.sec_mode.sign_enabled", "Signing enabled";
            signing_required: bool & 0x02 = "smb2.sec_mode.sign_required", "Signing required";
        };
        /// The upper half of the 16 bits of SecurityMode.
        security_mode_high: bytes[1] as Keep = "smb2.reserved", "Reserved";
        dialect: le16 = "smb2.dialect", "Dialect", hex, values Dialect::VALUES;
        /// In SMB 3.1.1; reserved before.
        context_count: le16 = "smb2.negotiate_context.count", "NegotiateContextCount", dec;
        server_guid: guid = "smb2.server_guid", "Server Guid";
        capabilities: le32 = "smb2.capabilities", "Capabilities", hex, bits {
            dfs: bool & 0x00000001 = "smb2.capabilities.dfs", "DFS";
            leasing: bool & 0x00000002 = "smb2.capabilities.leasing", "LEASING";
            large_mtu: bool & 0x00000004 = "smb2.capabilities.large_mtu", "LARGE MTU";
            multi_channel: bool & 0x00000008 = "smb2.capabilities.multi_channel", "MULTI CHANNEL";
            persistent_handles: bool & 0x00000010 = "smb2.capabilities.persistent_handles", "PERSISTENT HANDLES";
            directory_leasing: bool & 0x00000020 = "smb2.capabilities.directory_leasing", "DIRECTORY LEASING";
            encryption: bool & 0x00000040 = "smb2.capabilities.encryption", "ENCRYPTION";
            notifications: bool & 0x00000080 = "smb2.capabilities.notifications", "NOTIFICATIONS";
        };
        /// Bytes a QUERY_INFO, QUERY_DIRECTORY, SET_INFO or CHANGE_NOTIFY may move.
        max_transact_size: le32 = "smb2.max_trans_size", "Max Transaction Size", dec;
        max_read_size: le32 = "smb2.max_read_size", "Max Read Size", dec;
        max_write_size: le32 = "smb2.max_write_size", "Max Write Size", dec;
        system_time: filetime = "smb2.current_time", "Current Time";
        server_start_time: filetime = "smb2.boot_time", "Boot Time";
        security_buffer_offset: le16 = "_", "Security Buffer Offset";
        security_buffer_length: le16 = "_", "Security Buffer Length";
        context_offset: le32 = "smb2.negotiate_context.offset", "NegotiateContextOffset", hex;
    }
}

/// One negotiate context.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Context<'a> {
    /// Type of the context.
    pub context_type: ContextType,
    /// Data of the context.
    pub data: &'a [u8],
}

impl<'a> Context<'a> {
    /// The 16-bit ids of a context that lists algorithms (hashes, ciphers, compressions, RDMA transforms, signings), in
    /// order of preference; none for the others.
    pub fn ids(&self) -> impl Iterator<Item = u16> + use<'a> {
        let first = match self.context_type {
            ContextType::PREAUTH_INTEGRITY => 4,
            ContextType::ENCRYPTION | ContextType::SIGNING => 2,
            ContextType::COMPRESSION | ContextType::RDMA_TRANSFORM => 8,
            _ => self.data.len(),
        };
        let count = number(self.data, 0, 2) as usize;
        self.data.get(first..).unwrap_or(&[]).chunks_exact(2).take(count).map(|b| u16::from_le_bytes([b[0], b[1]]))
    }
}

/// Walks a list of negotiate contexts. Ends where the bytes or the count do.
#[derive(Clone, Copy, Debug)]
pub struct Contexts<'a> {
    bytes: &'a [u8],
    at: usize,
    left: u16,
}

impl<'a> Contexts<'a> {
    fn of(pdu: &'a [u8], offset: u32, count: u16) -> Self {
        let bytes = pdu.get(offset as usize..).filter(|_| offset as usize >= BODY).unwrap_or(&[]);
        Self { bytes, at: 0, left: count }
    }
}

impl<'a> Iterator for Contexts<'a> {
    type Item = Context<'a>;

    fn next(&mut self) -> Option<Context<'a>> {
        self.left = self.left.checked_sub(1)?;
        let i = self.bytes.get(self.at..)?;
        let (i, context_type) = leaf::le16(i).ok()?;
        let (i, length) = leaf::le16(i).ok()?;
        let data = i.get(4..)?.get(..length.into())?;
        self.at = (self.at + 8 + data.len()).next_multiple_of(8);
        Some(Context { context_type: ContextType(context_type), data })
    }
}

/// A NEGOTIATE request taken apart.
#[derive(Clone, Copy, Debug)]
pub struct NegotiateRequest<'a> {
    /// Fields of fixed size.
    pub fixed: NegotiateRequestFixed,
    /// The contexts; none unless SMB 3.1.1 is among the dialects.
    pub contexts: Contexts<'a>,
    dialects: &'a [u8],
}

impl<'a> NegotiateRequest<'a> {
    /// The dialects offered.
    pub fn dialects(&self) -> impl Iterator<Item = Dialect> + use<'a> {
        self.dialects.chunks_exact(2).map(|b| Dialect(u16::from_le_bytes([b[0], b[1]])))
    }
}

/// A NEGOTIATE reply taken apart.
#[derive(Clone, Copy, Debug)]
pub struct NegotiateResponse<'a> {
    /// Fields of fixed size.
    pub fixed: NegotiateResponseFixed,
    /// The token that begins the authentication (SPNEGO).
    pub security: Blob<'a>,
    /// The contexts; none below SMB 3.1.1.
    pub contexts: Contexts<'a>,
}

impl NegotiateResponse<'_> {
    /// The dialect chosen.
    pub const fn dialect(&self) -> Dialect {
        Dialect(self.fixed.dialect)
    }
}

/// Decodes the body of a NEGOTIATE request; `pdu` begins with its header.
pub fn request<'a, T: Trace>(pdu: &'a [u8], t: &mut T) -> PResult<'a, NegotiateRequest<'a>> {
    const END: usize = BODY + NegotiateRequestFixed::LEN;
    scope(NegotiateRequestFixed::NODE, &pdu[BODY.min(pdu.len())..], t, |i, t| {
        let (i, fixed) = NegotiateRequestFixed::parse_flat(i, t)?;
        let last8 = &pdu[END - 8..];
        let wanted = 2 * usize::from(fixed.dialect_count);
        let dialects = &i[..wanted.min(i.len()) & !1];
        let has_contexts = dialects.chunks_exact(2).any(|b| b == Dialect::SMB_3_1_1.0.to_le_bytes());
        let (offset, count) = (fixed.contexts_or_start_time as u32, (fixed.contexts_or_start_time >> 32) as u16);
        if T::ON {
            if has_contexts {
                t.field(f::CONTEXT_OFFSET, last8, 4, Value::U(offset.into()));
                t.field(f::CONTEXT_COUNT, &last8[4..], 2, Value::U(count.into()));
                read::array::<2, T>(shared::RESERVED, &last8[6..], t)?;
            } else {
                t.field(f::BOOT_TIME_OF_CLIENT, last8, 8, crate::header::filetime(fixed.contexts_or_start_time));
            }
            for dialect in dialects.chunks_exact(2) {
                t.field(f::DIALECT, dialect, 2, Value::U(number(dialect, 0, 2)));
            }
        }
        if dialects.len() < wanted {
            return Fault::short(Some(f::DIALECT), &i[dialects.len()..], 2).fail();
        }
        let rest = &i[dialects.len()..];
        if !has_contexts {
            return Ok((rest, NegotiateRequest { fixed, contexts: Contexts::of(&[], 0, 0), dialects }));
        }
        let contexts = Contexts::of(pdu, offset, count);
        let rest = trace_contexts(pdu, offset, count, rest, t);
        Ok((rest, NegotiateRequest { fixed, contexts, dialects }))
    })
}

/// Decodes the body of a NEGOTIATE reply; `pdu` begins with its header.
pub fn response<'a, T: Trace>(pdu: &'a [u8], t: &mut T) -> PResult<'a, NegotiateResponse<'a>> {
    const END: usize = BODY + NegotiateResponseFixed::LEN;
    scope(NegotiateResponseFixed::NODE, &pdu[BODY.min(pdu.len())..], t, |i, t| {
        let (_, fixed) = NegotiateResponseFixed::parse_flat(i, t)?;
        let security = blob(pdu, END, (BODY + 56, 2), (BODY + 58, 2), t);
        spnego::security_blob(f::SECURITY_BLOB, security.bytes, t);
        let rest = behind(pdu, END, &[&security]);
        if Dialect(fixed.dialect) != Dialect::SMB_3_1_1 {
            return Ok((rest, NegotiateResponse { fixed, security, contexts: Contexts::of(&[], 0, 0) }));
        }
        let contexts = Contexts::of(pdu, fixed.context_offset, fixed.context_count);
        let rest = trace_contexts(pdu, fixed.context_offset, fixed.context_count, rest, t);
        Ok((rest, NegotiateResponse { fixed, security, contexts }))
    })
}

/// Type, DataLength and a reserved word, before the data of a context.
const CONTEXT_HEADER: usize = 8;

/// Reports the contexts and returns the bytes behind them. A fault in them is reported and does not make the message
/// unread. This also runs without an observer, since a fault in here is a fault of the message: there is one NEGOTIATE
/// in a connection.
fn trace_contexts<'a, T: Trace>(pdu: &'a [u8], offset: u32, count: u16, rest: &'a [u8], t: &mut T) -> &'a [u8] {
    let end = &pdu[pdu.len()..];
    if !T::ON || count == 0 {
        return if count == 0 { rest } else { end };
    }
    let Some(list) = pdu.get(offset as usize..).filter(|_| offset as usize >= BODY) else {
        t.fault(&Fault::length(f::CONTEXT_OFFSET, rest, offset as usize));
        return end;
    };
    let mut i = list;
    for n in 0..count {
        if n > 0 {
            let read = list.len() - i.len();
            i = &i[(read.next_multiple_of(8) - read).min(i.len())..];
        }
        match scope(f::CONTEXT, i, t, trace_context) {
            Ok((next, ())) => i = next,
            // counts in its data that lie do not move the next one: DataLength says where that begins
            Err(_) => match i.get(CONTEXT_HEADER + number(i, 2, 2) as usize..) {
                Some(next) => i = next,
                None => return end,
            },
        }
    }
    i
}

fn trace_context<'a, T: Trace>(i: &'a [u8], t: &mut T) -> PResult<'a, ()> {
    let (i, context_type) = read::le16(f::CONTEXT_TYPE, i, t)?;
    let context_type = ContextType(context_type);
    t.label(format_args!(": {context_type}"));
    let (i, length) = read::le16(f::CONTEXT_LENGTH, i, t)?;
    let (i, _) = read::array::<4, T>(shared::RESERVED, i, t)?;
    let Some((data, rest)) = i.split_at_checked(length.into()) else {
        return Fault::short(Some(f::CONTEXT_LENGTH), i, length.into()).fail();
    };
    let ids = |count: u16, def, mut i, t: &mut T| {
        for _ in 0..count {
            (i, _) = read::le16(def, i, t)?;
        }
        PResult::Ok((i, ()))
    };
    let i = match context_type {
        ContextType::PREAUTH_INTEGRITY => {
            let (i, count) = read::le16(f::HASH_COUNT, data, t)?;
            let (i, salt) = read::le16(f::SALT_LENGTH, i, t)?;
            let (i, ()) = ids(count, f::HASH, i, t)?;
            read::bytes(f::SALT, salt.into(), i, t)?.0
        }
        ContextType::ENCRYPTION => {
            let (i, count) = read::le16(f::CIPHER_COUNT, data, t)?;
            ids(count, f::CIPHER, i, t)?.0
        }
        ContextType::COMPRESSION => {
            let (i, count) = read::le16(f::COMPRESSION_COUNT, data, t)?;
            let (i, _) = read::array::<2, T>(shared::RESERVED, i, t)?;
            let (i, _) =
                super::flags32(f::COMPRESSION_FLAGS, &[f::COMPRESSION_CHAINED, f::COMPRESSION_RESERVED], i, t)?;
            ids(count, f::COMPRESSION, i, t)?.0
        }
        ContextType::NETNAME => {
            t.label(format_args!(" {}", Utf16(data)));
            read::bytes(f::NETNAME, data.len(), data, t)?.0
        }
        ContextType::TRANSPORT => read::le32(f::TRANSPORT_FLAGS, data, t)?.0,
        ContextType::RDMA_TRANSFORM => {
            let (i, count) = read::le16(f::RDMA_COUNT, data, t)?;
            let (i, _) = read::le16(f::RDMA_RESERVED1, i, t)?;
            let (i, _) = read::le32(f::RDMA_RESERVED2, i, t)?;
            ids(count, f::RDMA_ID, i, t)?.0
        }
        ContextType::SIGNING => {
            let (i, count) = read::le16(f::SIGNING_COUNT, data, t)?;
            ids(count, f::SIGNING, i, t)?.0
        }
        ContextType::POSIX => read::bytes(f::POSIX_RESERVED, data.len(), data, t)?.0,
        _ => data,
    };
    if !i.is_empty() {
        t.field(shared::UNKNOWN, i, i.len(), Value::Bytes(i));
    }
    Ok((rest, ()))
}
