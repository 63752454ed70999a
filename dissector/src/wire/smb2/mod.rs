//! SMB2 and SMB3, \[MS-SMB2\]: a header of 64 bytes and one of twenty commands. Several messages may be chained to a
//! compound; a whole compound may be encrypted or compressed.
//!
//! ```text
//! \xfeSMB  header, body, [padding, header, body …]        a message, or a compound of them
//! \xfdSMB  transform header, encrypted message
//! \xfcSMB  compression header, compressed message
//! \xffSMB  SMB1: only the negotiation that ends in SMB2
//! ```
//!
//! [`parse_message`] takes a whole message and gives its PDUs to a [`Visitor`]. The bodies of most replies describe
//! themselves, those of some (QUERY_INFO, QUERY_DIRECTORY) do not: the analyzer remembers a [`RequestMemo`] of each
//! request and gives it back when the reply comes. Without it, bodies that do not describe themselves are reported as
//! data.
//!
//! Offsets in a message count from the first byte of its header, so decoders of bodies take the PDU from there.

pub mod access;
mod ber;
pub mod blob;
pub mod compression;
pub mod create;
pub mod create_context;
pub mod encode;
pub mod error;
pub mod file;
pub mod header;
pub mod info;
pub mod ioctl;
pub mod lock;
pub mod negotiate;
pub mod notify;
pub mod ntlmssp;
pub mod ntstatus;
pub mod oplock;
pub mod query;
pub mod rdma_channel;
pub mod read_write;
pub mod reparse;
pub mod security;
pub mod session;
pub mod smb1;
pub mod spnego;
#[cfg(test)]
mod tests;
#[cfg(test)]
mod tests_layouts;
pub mod text;
pub mod transform;
pub mod tree;

pub use header::{Command, Header, Ids};
pub use ntstatus::{NtStatus, Severity};
pub use rdma_channel::{Channel, ChannelInfo};
pub use text::Utf16;

use crate::fault::{Fault, PResult, fault_of};
use crate::field::{Def, Kind};
use crate::leaf::read;
use crate::trace::{Trace, Value, scope};
use core::fmt;

fields! {
    /// The protocol and the fields that many of its messages share.
    pub mod f ["[MS-SMB2] 2.2"] {
        PROTOCOL: Protocol = "smb2", "SMB2 (Server Message Block Protocol version 2)";
        BUFFER_CODE: U16 = "smb2.buffer_code", "StructureSize", hex;
        BUFFER_CODE_LENGTH: U16 & 0xfffe / 16 = "smb2.buffer_code.length", "Fixed Part Length", dec;
        BUFFER_CODE_DYNAMIC: Bool & 0x1 / 16 = "smb2.buffer_code.dynamic", "Dynamic Part";
        BLOB_OFFSET: U32 = "smb2.olb.offset", "Blob Offset", hex;
        BLOB_LENGTH: U32 = "smb2.olb.length", "Blob Length", dec;
        FILE_ID: Guid = "smb2.fid", "File Id";
        RESERVED: Bytes as Keep = "smb2.reserved", "Reserved";
        UNKNOWN: Bytes = "smb2.unknown", "Unknown";
        BODY: None = "rdmascope.smb2.body", "Body";
        BODY_DATA: Bytes = "rdmascope.smb2.body.data", "Data (request not captured)";
        PADDING: Bytes = "rdmascope.smb2.padding", "Padding";
        MESSAGE: Bytes = "rdmascope.smb2.message", "Message";
    }
}

/// A file that a CREATE opened, or [`FileId::PREVIOUS`].
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct FileId(pub [u8; 16]);

impl FileId {
    /// In a related request: the file of the request before it. In an IOCTL: none.
    pub const PREVIOUS: Self = Self([0xff; 16]);

    /// The half that survives a reconnect.
    pub const fn persistent(self) -> u64 {
        u64::from_le_bytes([self.0[0], self.0[1], self.0[2], self.0[3], self.0[4], self.0[5], self.0[6], self.0[7]])
    }

    /// The half that names the open.
    pub const fn volatile(self) -> u64 {
        u64::from_le_bytes([
            self.0[8], self.0[9], self.0[10], self.0[11], self.0[12], self.0[13], self.0[14], self.0[15],
        ])
    }
}

impl fmt::Debug for FileId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#x}:{:#x}", self.persistent(), self.volatile())
    }
}

/// Kind of a message, by its first four bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Framing {
    /// `\xfeSMB`
    Plain,
    /// `\xfdSMB`
    Encrypted,
    /// `\xfcSMB`
    Compressed,
    /// `\xffSMB`
    Smb1,
}

impl Framing {
    /// Kind of `message`; `None` if it is not SMB.
    pub fn of(message: &[u8]) -> Option<Self> {
        match message.first_chunk::<4>()? {
            b"\xfeSMB" => Some(Self::Plain),
            b"\xfdSMB" => Some(Self::Encrypted),
            b"\xfcSMB" => Some(Self::Compressed),
            b"\xffSMB" => Some(Self::Smb1),
            _ => None,
        }
    }
}

/// The parts of a request that decoding its reply takes. Small: one is kept for each pending request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RequestMemo {
    /// The command.
    pub command: Command,
    /// True if it referred to the request before it in the compound.
    pub related: bool,
    /// Parameters of the command.
    pub asked: RequestParameters,
}

impl RequestMemo {
    /// True if it is an IOCTL that asks for the network interfaces of the server.
    pub fn asks_for_interfaces(&self) -> bool {
        self.asked == RequestParameters::Ioctl { code: ioctl::ControlCode::QUERY_NETWORK_INTERFACE_INFO.0 }
    }
}

/// Parameters of a request that its reply does not repeat.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum RequestParameters {
    /// Nothing that the reply does not say.
    #[default]
    Nothing,
    /// READ
    Read {
        /// Transport of the data to the client.
        channel: Channel,
        /// Bytes.
        length: u32,
        /// In the file.
        offset: u64,
    },
    /// WRITE
    Write {
        /// Transport of the data to the server.
        channel: Channel,
        /// Bytes, in the message or to be fetched.
        length: u32,
        /// In the file.
        offset: u64,
    },
    /// QUERY_INFO
    QueryInfo {
        /// File, file system, security, quota.
        info_type: u8,
        /// Class of information of that type.
        class: u8,
    },
    /// SET_INFO
    SetInfo {
        /// File, file system, security, quota.
        info_type: u8,
        /// Class of information of that type.
        class: u8,
    },
    /// QUERY_DIRECTORY
    QueryDirectory {
        /// Information class of the entries.
        class: u8,
    },
    /// IOCTL
    Ioctl {
        /// The control code.
        code: u32,
    },
}

/// The body of a message, decoded. The file of each command describes its own.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
#[allow(missing_docs)]
pub enum Body<'a> {
    /// An ERROR body, in place of the command's own.
    Error(error::ErrorResponse<'a>),
    NegotiateRequest(negotiate::NegotiateRequest<'a>),
    NegotiateResponse(negotiate::NegotiateResponse<'a>),
    SessionSetupRequest(session::SessionSetupRequest<'a>),
    SessionSetupResponse(session::SessionSetupResponse<'a>),
    TreeConnectRequest(tree::TreeConnectRequest<'a>),
    TreeConnectResponse(tree::TreeConnectResponse),
    CreateRequest(create::CreateRequest<'a>),
    CreateResponse(create::CreateResponse<'a>),
    CloseRequest(file::CloseRequest),
    CloseResponse(file::CloseResponse),
    FlushRequest(file::FlushRequest),
    ReadRequest(read_write::ReadRequest<'a>),
    ReadResponse(read_write::ReadResponse<'a>),
    WriteRequest(read_write::WriteRequest<'a>),
    WriteResponse(read_write::WriteResponseFixed),
    LockRequest(lock::LockRequest<'a>),
    IoctlRequest(ioctl::IoctlRequest<'a>),
    IoctlResponse(ioctl::IoctlResponse<'a>),
    QueryDirectoryRequest(query::QueryDirectoryRequest<'a>),
    QueryDirectoryResponse(query::QueryDirectoryResponse<'a>),
    NotifyRequest(notify::NotifyRequest),
    NotifyResponse(notify::NotifyResponse<'a>),
    QueryInfoRequest(query::QueryInfoRequest<'a>),
    QueryInfoResponse(query::QueryInfoResponse<'a>),
    SetInfoRequest(query::SetInfoRequest<'a>),
    /// The reply to SET_INFO, which is its StructureSize.
    SetInfoResponse,
    /// A message about an oplock or a lease: the server's notification, the client's acknowledgment, the server's
    /// reply.
    Break(oplock::Break),
    ServerNotification(notify::ServerNotification),
    /// Four bytes that say nothing: LOGOFF, TREE_DISCONNECT, ECHO, CANCEL, and the replies to FLUSH and LOCK.
    Empty,
    /// A command that the spec does not have: its bytes.
    Other(&'a [u8]),
}

impl Body<'_> {
    /// The file that a request names; `None` where it names none.
    pub const fn file(&self) -> Option<FileId> {
        Some(match self {
            Self::CloseRequest(b) => b.file(),
            Self::FlushRequest(b) => b.file(),
            Self::ReadRequest(b) => b.file(),
            Self::WriteRequest(b) => b.file(),
            Self::LockRequest(b) => b.file(),
            Self::IoctlRequest(b) => b.file(),
            Self::QueryDirectoryRequest(b) => b.file(),
            Self::NotifyRequest(b) => b.file(),
            Self::QueryInfoRequest(b) => b.file(),
            Self::SetInfoRequest(b) => b.file(),
            Self::Break(oplock::Break::Oplock(b)) => b.file(),
            _ => return None,
        })
    }
}

/// Verdict on a reply's body: its status decides the form, \[MS-SMB2\] 3.3.4.4.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BodyForm {
    /// The body has the expected form.
    Expected,
    /// The status is a failure, and the command's own body stands where an ERROR body belongs.
    OwnUnderError,
    /// The status is a success, and an ERROR body stands where the command's own belongs.
    ErrorUnderSuccess,
    /// Neither of the two, by its StructureSize.
    Neither,
}

/// One message of a compound.
#[derive(Clone, Copy, Debug)]
pub struct Pdu<'a> {
    /// Header of the message.
    pub header: Header,
    /// From its header to its end: to the next message of the compound, padding included, or to the end of all.
    pub bytes: &'a [u8],
    /// Bytes before it in the compound.
    pub offset: usize,
    /// Its body, or why that could not be read.
    pub body: Result<Body<'a>, Fault>,
    /// Form of the body; [`BodyForm::Expected`] in a request.
    pub form: BodyForm,
}

impl Pdu<'_> {
    /// The memo of this request, to be kept until its reply comes.
    pub fn memo(&self) -> RequestMemo {
        let asked = match &self.body {
            Ok(Body::ReadRequest(r)) => {
                RequestParameters::Read { channel: r.channel.channel, length: r.fixed.length, offset: r.fixed.offset }
            }
            Ok(Body::WriteRequest(w)) => RequestParameters::Write {
                channel: w.channel.channel,
                length: w.payload_length(),
                offset: w.fixed.offset,
            },
            Ok(Body::QueryInfoRequest(q)) => {
                RequestParameters::QueryInfo { info_type: q.fixed.info_type, class: q.fixed.info_class }
            }
            Ok(Body::SetInfoRequest(s)) => {
                RequestParameters::SetInfo { info_type: s.fixed.info_type, class: s.fixed.info_class }
            }
            Ok(Body::QueryDirectoryRequest(q)) => RequestParameters::QueryDirectory { class: q.fixed.info_class },
            Ok(Body::IoctlRequest(i)) => RequestParameters::Ioctl { code: i.fixed.control_code },
            _ => RequestParameters::Nothing,
        };
        RequestMemo { command: self.header.command, related: self.header.is_related(), asked }
    }

    /// Bytes of the PDU behind its header.
    pub fn body_length(&self) -> usize {
        self.bytes.len().saturating_sub(Header::LEN)
    }
}

/// Receiver of the parts of a message. Every method does nothing unless overridden.
pub trait Visitor<'a> {
    /// The memo of the request that this reply answers; `None` where it was not seen.
    fn memo(&mut self, _header: &Header) -> Option<RequestMemo> {
        None
    }

    /// A message of a compound, in order.
    fn pdu(&mut self, _pdu: &Pdu<'a>) {}

    /// A message that is encrypted. Decrypted, it is another message for [`parse_message`].
    fn encrypted(&mut self, _message: &transform::Encrypted<'a>) {}

    /// A message that is compressed. Decompressed, it is another message for [`parse_message`].
    fn compressed(&mut self, _message: &transform::Compressed<'a>) {}

    /// A message of SMB1.
    fn smb1(&mut self, _header: &smb1::Smb1Header) {}
}

impl Visitor<'_> for () {}

/// A closure that takes the PDUs.
#[derive(Clone, Copy, Debug)]
pub struct Each<F>(pub F);

impl<'a, F: FnMut(&Pdu<'a>)> Visitor<'a> for Each<F> {
    fn pdu(&mut self, pdu: &Pdu<'a>) {
        self.0(pdu);
    }
}

/// Decodes a whole message: a compound, or an encrypted or compressed message as far as its header. Every PDU gets a
/// protocol subtree of its own, and the visitor is notified of each. A PDU with an unreadable body does not keep the
/// next ones from being read.
///
/// # Errors
/// The first fault of all its PDUs.
pub fn parse_message<'a, T: Trace, V: Visitor<'a>>(message: &'a [u8], t: &mut T, visitor: &mut V) -> PResult<'a, ()> {
    match Framing::of(message) {
        Some(Framing::Plain) => compound(message, t, visitor),
        Some(Framing::Encrypted) => transform::encrypted(message, t).map(|(i, m)| (i, visitor.encrypted(&m))),
        Some(Framing::Compressed) => transform::compressed(message, t).map(|(i, m)| (i, visitor.compressed(&m))),
        Some(Framing::Smb1) => smb1::message(message, t).map(|(i, h)| (i, visitor.smb1(&h))),
        None => {
            t.protocol("SMB2");
            scope(f::PROTOCOL, message, t, |i, t| {
                if !i.is_empty() {
                    read::bytes(f::MESSAGE, i.len(), i, t)?;
                }
                if message.len() < 4 {
                    Fault::short(Some(header::f::PROTOCOL_ID), i, 4).fail()
                } else {
                    Fault::value(header::f::PROTOCOL_ID, i).fail()
                }
            })
        }
    }
}

fn compound<'a, T: Trace, V: Visitor<'a>>(message: &'a [u8], t: &mut T, visitor: &mut V) -> PResult<'a, ()> {
    const NEXT_COMMAND: usize = 20;
    let (mut rest, mut first_fault) = (message, None);
    loop {
        let next = blob::number(rest, NEXT_COMMAND, 4) as usize;
        let (bytes, after) = match next {
            0 => (rest, None),
            n if n < Header::LEN => (rest, None),
            n => (&rest[..n.min(rest.len())], rest.get(n..)),
        };
        t.protocol("SMB2");
        let offset = message.len() - rest.len();
        let result = scope(f::PROTOCOL, bytes, t, |i, t| {
            let (rest, fault) = pdu(i, offset, t, visitor)?;
            match fault {
                Some(fault) => fault.fail(),
                None => Ok((rest, ())),
            }
        });
        if let Err(e) = result {
            first_fault = first_fault.or(Some(fault_of(e)));
        }
        match after {
            Some(next) if next.starts_with(&header::PROTOCOL_ID) => rest = next,
            Some(next) => {
                let fault = Fault::length(header::f::NEXT_COMMAND, next, 0);
                first_fault = first_fault.or(Some(trace(fault, t)));
                break;
            }
            None if next == 0 => break,
            None => {
                let fault = Fault::length(header::f::NEXT_COMMAND, rest, next);
                first_fault = first_fault.or(Some(trace(fault, t)));
                break;
            }
        }
    }
    match first_fault {
        Some(fault) => fault.fail(),
        None => Ok((&message[message.len()..], ())),
    }
}

fn trace<T: Trace>(mut fault: Fault, t: &mut T) -> Fault {
    t.fault(&fault);
    fault.reported = true;
    fault
}

/// Header and body of one PDU, in the subtree that is open.
fn pdu<'a, T: Trace, V: Visitor<'a>>(
    bytes: &'a [u8],
    offset: usize,
    t: &mut T,
    visitor: &mut V,
) -> PResult<'a, Option<Fault>> {
    let (_, header) = match Header::parse(bytes, t) {
        Ok(read) => read,
        Err(e) => {
            t.info(format_args!("Header cut short"));
            return Err(e);
        }
    };
    let memo = if header.is_response() { visitor.memo(&header).filter(|m| m.command == header.command) } else { None };
    // it is large, and filled where it stays
    let mut decoded = Pdu { header, bytes, offset, body: Ok(Body::Empty), form: BodyForm::Expected };
    let Ok(body) = &mut decoded.body else { return Ok((bytes, None)) };
    let (rest, fault) = match decode_body_into(&header, bytes, memo.as_ref(), t, body) {
        Ok((rest, form)) => {
            decoded.form = form;
            (rest, None)
        }
        Err(e) => {
            let fault = fault_of(e);
            decoded.body = Err(fault);
            (&bytes[bytes.len()..], Some(fault))
        }
    };
    if T::ON {
        say(&header, decoded.body.as_ref().ok(), memo.as_ref(), t);
        if !rest.is_empty() {
            // up to seven bytes, behind the one that an odd StructureSize counts where there is no buffer
            let padding = rest.len() <= 8 && rest.iter().all(|b| *b == 0);
            t.field(if padding { f::PADDING } else { f::UNKNOWN }, rest, rest.len(), Value::Bytes(rest));
        }
    }
    visitor.pdu(&decoded);
    Ok((&bytes[bytes.len()..], fault))
}

/// Decodes the body behind `header`; `pdu` begins with the header. For a reply, `memo` is the memo of its request.
///
/// # Errors
/// The body is shorter than its fixed part, or a structure in it is.
fn decode_body_into<'a, T: Trace>(
    header: &Header,
    pdu: &'a [u8],
    memo: Option<&RequestMemo>,
    t: &mut T,
    out: &mut Body<'a>,
) -> PResult<'a, BodyForm> {
    if header.is_response() {
        return response(header, pdu, memo, t, out);
    }
    let (rest, ()) = match header.command {
        Command::READ => read_write::read_request(pdu, t).map(|(i, b)| (i, *out = Body::ReadRequest(b)))?,
        Command::WRITE => read_write::write_request(pdu, t).map(|(i, b)| (i, *out = Body::WriteRequest(b)))?,
        Command::NEGOTIATE => negotiate::request(pdu, t).map(|(i, b)| (i, *out = Body::NegotiateRequest(b)))?,
        Command::CREATE => create::request(pdu, t).map(|(i, b)| (i, *out = Body::CreateRequest(b)))?,
        Command::CLOSE => file::close_request(pdu, t).map(|(i, b)| (i, *out = Body::CloseRequest(b)))?,
        Command::FLUSH => file::flush_request(pdu, t).map(|(i, b)| (i, *out = Body::FlushRequest(b)))?,
        Command::SESSION_SETUP => session::request(pdu, t).map(|(i, b)| (i, *out = Body::SessionSetupRequest(b)))?,
        Command::TREE_CONNECT => tree::request(pdu, t).map(|(i, b)| (i, *out = Body::TreeConnectRequest(b)))?,
        Command::LOCK => lock::request(pdu, t).map(|(i, b)| (i, *out = Body::LockRequest(b)))?,
        Command::IOCTL => ioctl::request(pdu, t).map(|(i, b)| (i, *out = Body::IoctlRequest(b)))?,
        Command::QUERY_DIRECTORY => {
            query::directory_request(pdu, t).map(|(i, b)| (i, *out = Body::QueryDirectoryRequest(b)))?
        }
        Command::CHANGE_NOTIFY => notify::request(pdu, t).map(|(i, b)| (i, *out = Body::NotifyRequest(b)))?,
        Command::QUERY_INFO => query::info_request(pdu, t).map(|(i, b)| (i, *out = Body::QueryInfoRequest(b)))?,
        Command::SET_INFO => query::set_request(pdu, t).map(|(i, b)| (i, *out = Body::SetInfoRequest(b)))?,
        Command::OPLOCK_BREAK => oplock::parse(pdu, t).map(|(i, b)| (i, *out = Body::Break(b)))?,
        Command::LOGOFF | Command::TREE_DISCONNECT | Command::ECHO | Command::CANCEL => {
            session::empty(pdu, t).map(|(i, _)| (i, *out = Body::Empty))?
        }
        _ => other(pdu, t).map(|(i, b)| (i, *out = b))?,
    };
    Ok((rest, BodyForm::Expected))
}

fn response<'a, T: Trace>(
    header: &Header,
    pdu: &'a [u8],
    memo: Option<&RequestMemo>,
    t: &mut T,
    out: &mut Body<'a>,
) -> PResult<'a, BodyForm> {
    let (form, is_error) = form_of(header, pdu, memo);
    if is_error {
        query::trace_asked(memo, &pdu[header::Header::LEN.min(pdu.len())..], t);
        let (rest, error) = error::error_response(pdu, header.status(), t)?;
        *out = Body::Error(error);
        return Ok((rest, form));
    }
    let (rest, ()) = match header.command {
        Command::READ => read_write::read_response(pdu, t).map(|(i, b)| (i, *out = Body::ReadResponse(b)))?,
        Command::WRITE => read_write::write_response(pdu, t).map(|(i, b)| (i, *out = Body::WriteResponse(b)))?,
        Command::NEGOTIATE => negotiate::response(pdu, t).map(|(i, b)| (i, *out = Body::NegotiateResponse(b)))?,
        Command::CREATE => create::response(pdu, t).map(|(i, b)| (i, *out = Body::CreateResponse(b)))?,
        Command::CLOSE => file::close_response(pdu, t).map(|(i, b)| (i, *out = Body::CloseResponse(b)))?,
        Command::SESSION_SETUP => session::response(pdu, t).map(|(i, b)| (i, *out = Body::SessionSetupResponse(b)))?,
        Command::TREE_CONNECT => tree::response(pdu, t).map(|(i, b)| (i, *out = Body::TreeConnectResponse(b)))?,
        Command::IOCTL => ioctl::response(pdu, t).map(|(i, b)| (i, *out = Body::IoctlResponse(b)))?,
        Command::QUERY_DIRECTORY => {
            query::directory_response(pdu, memo, t).map(|(i, b)| (i, *out = Body::QueryDirectoryResponse(b)))?
        }
        Command::CHANGE_NOTIFY => notify::response(pdu, t).map(|(i, b)| (i, *out = Body::NotifyResponse(b)))?,
        Command::QUERY_INFO => {
            query::info_response(pdu, memo, t).map(|(i, b)| (i, *out = Body::QueryInfoResponse(b)))?
        }
        Command::SET_INFO => session::size_only(pdu, t).map(|(i, _)| (i, *out = Body::SetInfoResponse))?,
        Command::OPLOCK_BREAK => oplock::parse(pdu, t).map(|(i, b)| (i, *out = Body::Break(b)))?,
        Command::SERVER_TO_CLIENT_NOTIFICATION => {
            notify::server_notification(pdu, t).map(|(i, b)| (i, *out = Body::ServerNotification(b)))?
        }
        Command::LOGOFF | Command::TREE_DISCONNECT | Command::ECHO | Command::FLUSH | Command::LOCK => {
            session::empty(pdu, t).map(|(i, _)| (i, *out = Body::Empty))?
        }
        _ => other(pdu, t).map(|(i, b)| (i, *out = b))?,
    };
    Ok((rest, form))
}

fn other<'a, T: Trace>(pdu: &'a [u8], t: &mut T) -> PResult<'a, Body<'a>> {
    let body = &pdu[Header::LEN.min(pdu.len())..];
    scope(f::BODY, body, t, |i, t| {
        let (i, _) = structure_size(i, t)?;
        let (i, _) = read::bytes(f::UNKNOWN, i.len(), i, t)?;
        Ok((i, Body::Other(body)))
    })
}

/// The form of a reply's body, by its content, and whether that is the one for its status.
fn form_of(header: &Header, pdu: &[u8], memo: Option<&RequestMemo>) -> (BodyForm, bool) {
    use error::STRUCTURE_SIZE as ERROR_SIZE;
    let body = &pdu[Header::LEN.min(pdu.len())..];
    let (size, status) = (blob::number(body, 0, 2) as u16, header.status());
    let own_size = header.command.reply_size();
    if status == NtStatus::SUCCESS {
        return match size {
            ERROR_SIZE if own_size != ERROR_SIZE => (BodyForm::ErrorUnderSuccess, true),
            n if n == own_size || header.command == Command::OPLOCK_BREAK => (BodyForm::Expected, false),
            _ => (if body.len() < 2 { BodyForm::Expected } else { BodyForm::Neither }, false),
        };
    }
    let own = match header.command {
        Command::SESSION_SETUP => {
            // the buffer's offset at 4: as the byte count of an ERROR it would be larger than the message
            let (offset, length) = (blob::number(body, 4, 2), blob::number(body, 6, 2));
            size == own_size
                && (status == NtStatus::MORE_PROCESSING_REQUIRED
                    || (offset == 72 && length > 0 && 72 + length <= pdu.len() as u64))
        }
        Command::OPLOCK_BREAK => matches!(size, 24 | 36 | 44),
        _ => error::is_own_body(own_size, body, pdu.len()),
    };
    let form = match (own, may_have_own_body(header.command, status, body, memo)) {
        (true, false) => BodyForm::OwnUnderError,
        (false, _) if size != ERROR_SIZE && body.len() >= 2 => BodyForm::Neither,
        _ => BodyForm::Expected,
    };
    (form, !own)
}

/// The statuses other than success that come with the command's own body, \[MS-SMB2\] 3.3.4.4.
fn may_have_own_body(command: Command, status: NtStatus, body: &[u8], memo: Option<&RequestMemo>) -> bool {
    match (command, status) {
        (Command::SESSION_SETUP, NtStatus::MORE_PROCESSING_REQUIRED) => true,
        (
            Command::QUERY_INFO | Command::QUERY_DIRECTORY | Command::IOCTL | Command::READ,
            NtStatus::BUFFER_OVERFLOW,
        ) => true,
        (Command::CHANGE_NOTIFY, NtStatus::NOTIFY_ENUM_DIR) => true,
        (Command::IOCTL, NtStatus::INVALID_PARAMETER) => {
            let code = match memo.map(|m| m.asked) {
                Some(RequestParameters::Ioctl { code }) => code,
                _ => blob::number(body, 4, 4) as u32,
            };
            matches!(
                ioctl::ControlCode(code),
                ioctl::ControlCode::SRV_COPYCHUNK | ioctl::ControlCode::SRV_COPYCHUNK_WRITE
            )
        }
        (_, NtStatus::PENDING | NtStatus::NOTIFY_CLEANUP) => false,
        (_, status) => matches!(status.severity(), Severity::Success | Severity::Informational),
    }
}

/// Writes the frame's line for a PDU.
fn say<T: Trace>(header: &Header, body: Option<&Body<'_>>, memo: Option<&RequestMemo>, t: &mut T) {
    let (command, kind) = (header.command, if header.is_response() { "Response" } else { "Request" });
    let class = |info_type: u8, class: u8, t: &mut T| {
        let of = info::InfoType(info_type);
        match info::class_name(info_type, class) {
            Some(name) => t.info(format_args!("{command} {kind} {of}/{name}")),
            None => t.info(format_args!("{command} {kind} {of}/{class:#04x}")),
        }
    };
    match body {
        Some(Body::CreateRequest(r)) => t.info(format_args!("{command} {kind} File: {}", r.name())),
        Some(Body::ReadRequest(r)) => {
            t.info(format_args!("{command} {kind} Len:{} Off:{}", r.fixed.length, r.fixed.offset))
        }
        Some(Body::WriteRequest(w)) => {
            t.info(format_args!("{command} {kind} Len:{} Off:{}", w.payload_length(), w.fixed.offset))
        }
        Some(Body::TreeConnectRequest(r)) => t.info(format_args!("{command} {kind} Tree: {}", r.path())),
        Some(Body::IoctlRequest(r)) => t.info(format_args!("{command} {kind} {}", r.code())),
        Some(Body::IoctlResponse(r)) => t.info(format_args!("{command} {kind} {}", r.code())),
        Some(Body::QueryInfoRequest(r)) => class(r.fixed.info_type, r.fixed.info_class, t),
        Some(Body::SetInfoRequest(r)) => class(r.fixed.info_type, r.fixed.info_class, t),
        Some(Body::QueryDirectoryRequest(r)) => {
            t.info(format_args!("{command} {kind} {} Pattern: {}", info::FileClass(r.fixed.info_class), r.pattern()));
        }
        Some(Body::Break(b)) => {
            let of = if matches!(b, oplock::Break::Oplock(_)) { "Oplock" } else { "Lease" };
            let kind = match (header.is_response(), header.message_id) {
                (true, u64::MAX) => "Notification",
                (true, _) => "Response",
                _ => "Acknowledgment",
            };
            t.info(format_args!("{of} Break {kind}"));
        }
        _ if command == Command::SERVER_TO_CLIENT_NOTIFICATION => t.info(format_args!("{command}")),
        _ if command.name().is_none() => t.info(format_args!("Command {command} {kind}")),
        _ => t.info(format_args!("{command} {kind}")),
    }
    if header.status() != NtStatus::SUCCESS {
        t.info(format_args!("Error: {}", header.status()));
    }
    let token = match body {
        Some(Body::SessionSetupRequest(r)) => r.security.bytes,
        Some(Body::SessionSetupResponse(r)) => r.security.bytes,
        Some(
            Body::QueryInfoResponse(query::QueryInfoResponse { output, .. })
            | Body::QueryDirectoryResponse(query::QueryDirectoryResponse { output, .. }),
        ) if memo.is_none() && !output.is_empty() => {
            t.info(format_args!("request not captured"));
            return;
        }
        _ => return,
    };
    if let Some(message) = spnego::mechanism_token(token).and_then(ntlmssp::Message::parse) {
        t.info(format_args!("{message}"));
    }
}

/// The StructureSize that every body begins with.
#[inline]
pub(crate) fn structure_size<'a, T: Trace>(i: &'a [u8], t: &mut T) -> PResult<'a, u16> {
    let (rest, size) = read::le16(f::BUFFER_CODE, i, t)?;
    bits(i, 2, size.into(), &[f::BUFFER_CODE_LENGTH, f::BUFFER_CODE_DYNAMIC], t);
    Ok((rest, size))
}

/// Reports the bits `defs` of the integer `value`, which is `len` bytes at `at`, below the last field.
#[inline]
pub(crate) fn bits<T: Trace>(at: &[u8], len: usize, value: u64, defs: &[Def], t: &mut T) {
    if !T::ON {
        return;
    }
    t.down();
    for def in defs {
        if t.keeps(def) {
            let shifted = (value & def.mask) >> def.mask.trailing_zeros();
            t.field(def, at, len, Value::U(if def.kind == Kind::Bool { (shifted != 0).into() } else { shifted }));
        }
    }
    t.up();
}

/// Reads 8 bits of flags and reports each of `defs`.
pub(crate) fn flags8<'a, T: Trace>(def: Def, defs: &[Def], i: &'a [u8], t: &mut T) -> PResult<'a, u8> {
    let (rest, value) = read::u8(def, i, t)?;
    bits(i, 1, value.into(), defs, t);
    Ok((rest, value))
}

/// Reads 16 bits of flags and reports each of `defs`.
pub(crate) fn flags16<'a, T: Trace>(def: Def, defs: &[Def], i: &'a [u8], t: &mut T) -> PResult<'a, u16> {
    let (rest, value) = read::le16(def, i, t)?;
    bits(i, 2, value.into(), defs, t);
    Ok((rest, value))
}

/// Reads 32 bits of flags and reports each of `defs`.
pub(crate) fn flags32<'a, T: Trace>(def: Def, defs: &[Def], i: &'a [u8], t: &mut T) -> PResult<'a, u32> {
    let (rest, value) = read::le32(def, i, t)?;
    bits(i, 4, value.into(), defs, t);
    Ok((rest, value))
}

/// Reads 64 bits of flags and reports each of `defs`.
pub(crate) fn flags64<'a, T: Trace>(def: Def, defs: &[Def], i: &'a [u8], t: &mut T) -> PResult<'a, u64> {
    let (rest, value) = read::le64(def, i, t)?;
    bits(i, 8, value, defs, t);
    Ok((rest, value))
}

/// Reads a FILETIME.
pub(crate) fn filetime<'a, T: Trace>(def: Def, i: &'a [u8], t: &mut T) -> PResult<'a, u64> {
    let Ok((rest, ticks)) = crate::leaf::le64(i) else {
        return Fault::short(Some(def), i, 8).fail();
    };
    t.field(def, i, 8, crate::header::filetime(ticks));
    Ok((rest, ticks))
}
