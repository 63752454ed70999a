//! SMB2 sessions of our own, \[MS-SMB2\]: the client's side and the server's.

pub mod client;
pub mod guard;
mod protection;
pub mod server;
pub mod storage;
pub mod transform;

use rdmascope_analyzer::keys::ntlm;
use rdmascope_dissector::wire::smb2::header::{Header, Ids, flags};
use rdmascope_dissector::wire::smb2::{Command, NtStatus};
use std::time::{SystemTime, UNIX_EPOCH};

/// Credentials of a session.
#[derive(Clone, Debug, Default)]
pub enum Credentials {
    /// No user.
    #[default]
    Anonymous,
    /// A user, by NTLMv2.
    Password(ntlm::Account),
    /// A user, by a ticket for the server.
    #[cfg(feature = "kerberos")]
    Kerberos(Box<crate::kerberos::Credential>),
}

impl Credentials {
    /// A user, as `DOMAIN\user` or `user`, with a password.
    pub fn new(user: &str, password: &str) -> Self {
        Self::Password(ntlm::Account::new(user, password))
    }
}

/// Text in UTF-16, little-endian, as SMB2 carries it.
pub fn utf16(text: &str) -> Vec<u8> {
    text.encode_utf16().flat_map(u16::to_le_bytes).collect()
}

/// Now as a FILETIME: units of 100 ns since 1601.
pub fn filetime() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| filetime_of(d.as_nanos() as u64))
}

/// A time in ns since 1970 as a FILETIME.
pub fn filetime_of(unix_ns: u64) -> u64 {
    unix_ns / 100 + EPOCH_1970
}

/// A FILETIME in ns since 1970; `None` if it is earlier or does not fit.
pub fn unix_ns_of(filetime: u64) -> Option<u64> {
    filetime.checked_sub(EPOCH_1970)?.checked_mul(100)
}

/// 1970 as a FILETIME.
const EPOCH_1970: u64 = 116_444_736_000_000_000;

/// A header with nothing particular in it.
pub(crate) fn header(command: Command, message_id: u64) -> Header {
    Header {
        header_length: Header::LEN as u16,
        credit_charge: 1,
        status_or_channel_sequence: 0,
        command,
        credits: 1,
        flags: 0,
        next_command: 0,
        message_id,
        ids: Ids::Sync { process_id: 0xfeff, tree_id: 0 },
        session_id: 0,
        signature: [0; 16],
    }
}

/// The body of a failed reply, \[MS-SMB2\] 2.2.2.
pub(crate) const ERROR_BODY: [u8; 9] = [9, 0, 0, 0, 0, 0, 0, 0, 0];

/// The bytes of a body, written field by field. Little-endian.
#[derive(Debug, Default)]
pub(crate) struct Writer(pub(crate) Vec<u8>);

impl Writer {
    pub(crate) fn u8(mut self, v: u8) -> Self {
        self.0.push(v);
        self
    }
    pub(crate) fn u16(mut self, v: u16) -> Self {
        self.0.extend_from_slice(&v.to_le_bytes());
        self
    }
    pub(crate) fn u32(mut self, v: u32) -> Self {
        self.0.extend_from_slice(&v.to_le_bytes());
        self
    }
    pub(crate) fn u64(mut self, v: u64) -> Self {
        self.0.extend_from_slice(&v.to_le_bytes());
        self
    }
    pub(crate) fn bytes(mut self, v: &[u8]) -> Self {
        self.0.extend_from_slice(v);
        self
    }
}

/// Header and body in one.
pub(crate) fn message(header: &Header, body: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(Header::LEN + body.len());
    header.emit(&mut out);
    out.extend_from_slice(body);
    out
}

/// The header of a reply to `request`.
pub(crate) fn reply_header(request: &Header, status: NtStatus) -> Header {
    Header {
        status_or_channel_sequence: status.0,
        flags: flags::RESPONSE | (request.flags & flags::RELATED),
        next_command: 0,
        signature: [0; 16],
        ..*request
    }
}

/// Appends one negotiate context, \[MS-SMB2\] 2.2.3.1, to `out`, after padding to a multiple of 8.
pub(crate) fn context(out: &mut Vec<u8>, context_type: u16, data: &[u8]) {
    out.resize(out.len().next_multiple_of(8), 0);
    out.extend_from_slice(&context_type.to_le_bytes());
    out.extend_from_slice(&(data.len() as u16).to_le_bytes());
    out.extend_from_slice(&[0; 4]);
    out.extend_from_slice(data);
}
