//! SESSION_SETUP, \[MS-SMB2\] 2.2.5 and 2.2.6: authenticates a user, in as many rounds as its mechanism needs. And the
//! four bytes that LOGOFF, TREE_DISCONNECT, ECHO and CANCEL, and some replies, are made of.

use super::blob::{Blob, behind, blob};
use super::{Header, spnego};
use crate::fault::PResult;
use crate::trace::{Trace, scope};

const BODY: usize = Header::LEN;

fields! {
    /// Fields of the two messages.
    pub mod f ["[MS-SMB2] 2.2.5"] {
        SECURITY_BLOB: Bytes as Ber = "smb2.security_blob", "Security Blob";
        EMPTY: None = "rdmascope.smb2.empty_body", "Body";
    }
}

/// Flags of the two messages as numbers.
pub mod flags {
    use super::{SessionSetupRequestFixed, SessionSetupResponseFixed};
    use crate::field::Fields;

    type Request = <SessionSetupRequestFixed as Fields>::Bits;
    type Response = <SessionSetupResponseFixed as Fields>::Bits;

    /// Of a request: the connection becomes another channel of the session.
    pub const BINDING: u8 = Request::binding.mask as u8;
    /// Of a reply: the user is a guest.
    pub const IS_GUEST: u16 = Response::is_guest.mask as u16;
    /// Of a reply: the user is anonymous.
    pub const IS_NULL: u16 = Response::is_null.mask as u16;
    /// Of a reply: everything in the session is encrypted.
    pub const ENCRYPT_DATA: u16 = Response::encrypt_data.mask as u16;
}

header! {
    /// The fixed part of the request.
    pub struct SessionSetupRequestFixed [NODE = "rdmascope.smb2.session_setup_request", "Session Setup Request", "[MS-SMB2] 2.2.5"] {
        /// 25.
        structure_size: le16 = "smb2.buffer_code", "StructureSize", hex, bits {
            fixed_part_length: u16 & 0xfffe = "smb2.buffer_code.length", "Fixed Part Length";
            has_dynamic_part: bool & 0x0001 = "smb2.buffer_code.dynamic", "Dynamic Part";
        };
        flags: u8 = "smb2.ses_req_flags", "Flags", dec, bits {
            /// The session exists, and this connection is to become another channel of it.
            binding: bool & 0x01 = "smb2.ses_req_flags.session_binding", "Session Binding Request";
        };
        security_mode: u8 = "smb2.sec_mode", "Security mode", hex, bits {
            signing_enabled: bool & 0x01 = "smb2.sec_mode.sign_enabled", "Signing enabled";
            signing_required: bool & 0x02 = "smb2.sec_mode.sign_required", "Signing required";
        };
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
        /// 0.
        channel: le32 = "smb2.channel", "Channel", hex, values super::rdma_channel::Channel::VALUES;
        security_buffer_offset: le16 = "_", "Security Buffer Offset";
        security_buffer_length: le16 = "_", "Security Buffer Length";
        /// The session that this one replaces after a reconnect.
        previous_session_id: le64 = "smb2.previous_sesid", "Previous Session Id", hex;
    }
}

header! {
    /// The fixed part of the reply.
    pub struct SessionSetupResponseFixed [NODE = "rdmascope.smb2.session_setup_response", "Session Setup Response", "[MS-SMB2] 2.2.6"] {
        /// 9.
        structure_size: le16 = "smb2.buffer_code", "StructureSize", hex, bits {
            fixed_part_length: u16 & 0xfffe = "smb2.buffer_code.length", "Fixed Part Length";
            has_dynamic_part: bool & 0x0001 = "smb2.buffer_code.dynamic", "Dynamic Part";
        };
        session_flags: le16 = "smb2.session_flags", "Session Flags", hex, bits {
            is_guest: bool & 0x0001 = "smb2.ses_flags.guest", "Guest";
            is_null: bool & 0x0002 = "smb2.ses_flags.null", "Null";
            /// Everything in this session is encrypted.
            encrypt_data: bool & 0x0004 = "smb2.ses_flags.encrypt", "Encrypt";
        };
        security_buffer_offset: le16 = "_", "Security Buffer Offset";
        security_buffer_length: le16 = "_", "Security Buffer Length";
    }
}

header! {
    /// A body that says nothing.
    pub struct Empty [NODE = "rdmascope.smb2.empty_body", "Body", "[MS-SMB2] 2.2.7"] {
        /// 4.
        structure_size: le16 = "smb2.buffer_code", "StructureSize", hex, bits {
            fixed_part_length: u16 & 0xfffe = "smb2.buffer_code.length", "Fixed Part Length";
            has_dynamic_part: bool & 0x0001 = "smb2.buffer_code.dynamic", "Dynamic Part";
        };
        reserved: bytes[2] as Keep = "smb2.reserved", "Reserved";
    }
}

/// A SESSION_SETUP request taken apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SessionSetupRequest<'a> {
    /// Fields of fixed size.
    pub fixed: SessionSetupRequestFixed,
    /// The token: SPNEGO, or NTLMSSP or Kerberos without it. See [`spnego::mechanism_token`].
    pub security: Blob<'a>,
}

/// A SESSION_SETUP reply taken apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SessionSetupResponse<'a> {
    /// Fields of fixed size.
    pub fixed: SessionSetupResponseFixed,
    /// The token.
    pub security: Blob<'a>,
}

/// Decodes the body of a SESSION_SETUP request; `pdu` begins with its header.
pub fn request<'a, T: Trace>(pdu: &'a [u8], t: &mut T) -> PResult<'a, SessionSetupRequest<'a>> {
    const END: usize = BODY + SessionSetupRequestFixed::LEN;
    scope(SessionSetupRequestFixed::NODE, &pdu[BODY.min(pdu.len())..], t, |i, t| {
        let (_, fixed) = SessionSetupRequestFixed::parse_flat(i, t)?;
        let security = blob(pdu, END, (BODY + 12, 2), (BODY + 14, 2), t);
        spnego::security_blob(f::SECURITY_BLOB, security.bytes, t);
        Ok((behind(pdu, END, &[&security]), SessionSetupRequest { fixed, security }))
    })
}

/// Decodes the body of a SESSION_SETUP reply; `pdu` begins with its header.
pub fn response<'a, T: Trace>(pdu: &'a [u8], t: &mut T) -> PResult<'a, SessionSetupResponse<'a>> {
    const END: usize = BODY + SessionSetupResponseFixed::LEN;
    scope(SessionSetupResponseFixed::NODE, &pdu[BODY.min(pdu.len())..], t, |i, t| {
        let (_, fixed) = SessionSetupResponseFixed::parse_flat(i, t)?;
        let security = blob(pdu, END, (BODY + 4, 2), (BODY + 6, 2), t);
        spnego::security_blob(f::SECURITY_BLOB, security.bytes, t);
        Ok((behind(pdu, END, &[&security]), SessionSetupResponse { fixed, security }))
    })
}

/// Decodes a body of four bytes; `pdu` begins with its header.
pub fn empty<'a, T: Trace>(pdu: &'a [u8], t: &mut T) -> PResult<'a, Empty> {
    Empty::parse(&pdu[BODY.min(pdu.len())..], t)
}

/// A body of which only the StructureSize is said (a SET_INFO reply).
pub fn size_only<'a, T: Trace>(pdu: &'a [u8], t: &mut T) -> PResult<'a, u16> {
    scope(f::EMPTY, &pdu[BODY.min(pdu.len())..], t, super::structure_size)
}
