//! SMB Direct, and the part of SMB2 that a client and a server need to read and write files. Messages are encoded and
//! never parsed: their meaning goes with them.

use crate::memory::Memory;
use rdmascope_dissector::wire::smb2::header::{self, Header, Ids, flags};
use rdmascope_dissector::wire::smbd::{
    BufferDescriptorV1, DataTransfer, NegotiateRequest, NegotiateResponse, VERSION_1_0,
};
use std::rc::Rc;

/// A message: its bytes and its meaning.
#[derive(Clone, Debug)]
pub struct Message {
    /// Its bytes on the wire.
    pub bytes: Vec<u8>,
    /// Its meaning.
    pub what: Content,
}

/// Kinds of messages of SMB Direct.
#[derive(Clone, Debug)]
pub enum Content {
    /// Negotiate Request.
    Request(Sizes),
    /// Negotiate Response.
    Response(Sizes),
    /// Data Transfer.
    Data {
        /// CreditsRequested.
        requested: u16,
        /// CreditsGranted.
        granted: u16,
        /// The SMB2 message that it completes.
        smb: Option<Rc<Smb>>,
        /// True if it carries data.
        full: bool,
    },
    /// A message that a receiver must not accept.
    Wrong,
}

/// Values of the SMB Direct negotiation.
#[derive(Clone, Copy, Debug)]
pub struct Sizes {
    /// CreditsRequested.
    pub requested: u16,
    /// CreditsGranted, of a response.
    pub granted: u16,
    /// PreferredSendSize.
    pub send: u32,
    /// MaxReceiveSize.
    pub receive: u32,
    /// MaxFragmentedSize.
    pub fragmented: u32,
    /// The versions are wrong.
    pub version: u16,
    /// NTSTATUS of a response.
    pub status: u32,
}

/// Commands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[expect(missing_docs, reason = "the names of [MS-SMB2]")]
pub enum Command {
    Negotiate = 0,
    SessionSetup = 1,
    Logoff = 2,
    TreeConnect = 3,
    TreeDisconnect = 4,
    Create = 5,
    Close = 6,
    Read = 8,
    Write = 9,
    Echo = 13,
}

impl Command {
    /// As reports name it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Negotiate => "NEGOTIATE",
            Self::SessionSetup => "SESSION_SETUP",
            Self::Logoff => "LOGOFF",
            Self::TreeConnect => "TREE_CONNECT",
            Self::TreeDisconnect => "TREE_DISCONNECT",
            Self::Create => "CREATE",
            Self::Close => "CLOSE",
            Self::Read => "READ",
            Self::Write => "WRITE",
            Self::Echo => "ECHO",
        }
    }
}

/// An SMB2 message.
#[derive(Clone, Debug)]
pub enum Smb {
    /// Of the client.
    Request(Asked),
    /// Of the server: the MessageId, credits granted.
    Reply {
        /// Of the request.
        id: u64,
        /// CreditResponse.
        credits: u16,
        /// True if the reply is not a success; the client then leaves.
        wrong: bool,
    },
}

/// A request.
#[derive(Clone, Debug)]
pub struct Asked {
    /// MessageId.
    pub id: u64,
    /// Command of the request.
    pub command: Command,
    /// CreditCharge.
    pub charge: u16,
    /// Offset in the file.
    pub offset: u64,
    /// Bytes to read or write.
    pub length: u32,
    /// Memory for them; `None` if they go inline.
    pub memory: Option<Memory>,
    /// True if the reply must invalidate the memory.
    pub invalidate: bool,
}

/// Bytes of a structure, little-endian.
#[derive(Default)]
pub struct Bytes(pub Vec<u8>);

impl Bytes {
    /// One byte.
    pub fn u8(mut self, v: u8) -> Self {
        self.0.push(v);
        self
    }
    /// Two.
    pub fn u16(mut self, v: u16) -> Self {
        self.0.extend(v.to_le_bytes());
        self
    }
    /// Four.
    pub fn u32(mut self, v: u32) -> Self {
        self.0.extend(v.to_le_bytes());
        self
    }
    /// Eight.
    pub fn u64(mut self, v: u64) -> Self {
        self.0.extend(v.to_le_bytes());
        self
    }
    /// Zeros.
    pub fn zeros(mut self, n: usize) -> Self {
        self.0.resize(self.0.len() + n, 0);
        self
    }
    /// As they are.
    pub fn bytes(mut self, b: &[u8]) -> Self {
        self.0.extend_from_slice(b);
        self
    }
}

/// The Negotiate Request, [MS-SMBD] 2.2.1.
pub fn negotiate_request(s: &Sizes) -> Vec<u8> {
    let mut out = Vec::with_capacity(NegotiateRequest::LEN);
    NegotiateRequest {
        min_version: s.version,
        max_version: s.version,
        reserved: 0,
        credits_requested: s.requested,
        preferred_send_size: s.send,
        max_receive_size: s.receive,
        max_fragmented_size: s.fragmented,
    }
    .emit(&mut out);
    out
}

/// The Negotiate Response, [MS-SMBD] 2.2.2. One that refuses has neither credits nor sizes.
pub fn negotiate_response(s: &Sizes) -> Vec<u8> {
    let given = |size: u32| if s.status == 0 { size } else { 0 };
    let given_16 = |value: u16| if s.status == 0 { value } else { 0 };
    let mut out = Vec::with_capacity(NegotiateResponse::LEN);
    NegotiateResponse {
        min_version: VERSION_1_0,
        max_version: VERSION_1_0,
        negotiated_version: given_16(s.version),
        reserved: 0,
        credits_requested: given_16(s.requested),
        credits_granted: given_16(s.granted),
        status: s.status,
        max_read_write_size: given(1 << 20),
        preferred_send_size: given(s.send),
        max_receive_size: given(s.receive),
        max_fragmented_size: given(s.fragmented),
    }
    .emit(&mut out);
    out
}

/// The fields of a Data Transfer message that may be wrong.
#[derive(Clone, Copy, Debug)]
pub struct DataHeader {
    /// CreditsRequested.
    pub requested: u16,
    /// CreditsGranted.
    pub granted: u16,
    /// RemainingDataLength.
    pub remaining: u32,
    /// DataOffset.
    pub offset: u32,
    /// DataLength.
    pub length: u32,
}

/// A Data Transfer message, [MS-SMBD] 2.2.3; data begin at offset 24 whatever the header says.
pub fn data(h: &DataHeader, data: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(24 + data.len());
    DataTransfer {
        credits_requested: h.requested,
        credits_granted: h.granted,
        flags: 0,
        reserved: 0,
        remaining_data_length: h.remaining,
        data_offset: h.offset,
        data_length: h.length,
    }
    .emit(&mut out);
    if !data.is_empty() {
        out.resize(24, 0);
        out.extend_from_slice(data);
    }
    out
}

const SESSION: u64 = 0x5e55_0001;
const TREE: u32 = 7;
const FILE: [u8; 16] = [7; 16];
/// Bytes of the SMB2 header.
pub const HEADER: usize = Header::LEN;

fn head(command: Command, id: u64, charge: u16, credits: u16, status: u32, reply: bool) -> Bytes {
    let tree = if matches!(command, Command::Negotiate | Command::SessionSetup | Command::Logoff | Command::Echo) {
        0
    } else {
        TREE
    };
    let tree = if command == Command::TreeConnect && !reply { 0 } else { tree };
    let none = command == Command::Negotiate || command == Command::Echo || command == Command::SessionSetup && !reply;
    let mut out = Vec::new();
    Header {
        header_length: Header::LEN as u16,
        credit_charge: charge,
        status_or_channel_sequence: status,
        command: header::Command(command as u16),
        credits,
        flags: if reply { flags::RESPONSE } else { 0 },
        next_command: 0,
        message_id: id,
        ids: Ids::Sync { process_id: 0xfeff, tree_id: tree },
        session_id: if none { 0 } else { SESSION },
        signature: [0; 16],
    }
    .emit(&mut out);
    Bytes(out)
}

fn utf16(text: &str) -> Vec<u8> {
    text.encode_utf16().flat_map(u16::to_le_bytes).collect()
}

/// A request.
pub fn request(asked: &Asked, credits: u16, inline: &[u8]) -> Vec<u8> {
    let h = head(asked.command, asked.id, asked.charge, credits, 0, false);
    let descriptor = |mut b: Bytes| match asked.memory {
        Some(m) => {
            BufferDescriptorV1 { offset: m.address, token: m.key, length: m.length }.emit(&mut b.0);
            b
        }
        None => b,
    };
    let channel = match (asked.memory, asked.invalidate) {
        (None, _) => 0,
        (_, false) => 1,
        (_, true) => 2,
    };
    match asked.command {
        Command::Negotiate => h.u16(36).u16(1).u16(1).u16(0).u32(4).bytes(&[1; 16]).u64(0).u16(0x302),
        Command::SessionSetup => {
            // NTLMSSP NEGOTIATE of somebody without a name
            let token = [&b"NTLMSSP\0\x01\0\0\0"[..], &[0x05, 0x02, 0x08, 0xa2], &[0; 16]].concat();
            h.u16(25).u8(0).u8(1).u32(0).u32(0).u16(88).u16(token.len() as u16).u64(0).bytes(&token)
        }
        Command::TreeConnect => {
            let path = utf16("\\\\server\\share");
            h.u16(9).u16(0).u16(72).u16(path.len() as u16).bytes(&path)
        }
        Command::Create => {
            let name = utf16("data.bin");
            h.u16(57)
                .u8(0)
                .u8(0)
                .u32(2)
                .zeros(16)
                .u32(0x0012_019f)
                .u32(0x80)
                .u32(7)
                .u32(3)
                .u32(0x40)
                .u16(120)
                .u16(name.len() as u16)
                .u32(0)
                .u32(0)
                .bytes(&name)
        }
        Command::Close => h.u16(24).u16(0).u32(0).bytes(&FILE),
        Command::Read => {
            let place = if asked.memory.is_some() { (HEADER as u16 + 48, 16) } else { (0, 0) };
            let b = h
                .u16(49)
                .u8(80)
                .u8(0)
                .u32(asked.length)
                .u64(asked.offset)
                .bytes(&FILE)
                .u32(0)
                .u32(channel)
                .u32(0)
                .u16(place.0)
                .u16(place.1);
            let b = descriptor(b);
            if asked.memory.is_some() { b } else { b.u8(0) }
        }
        Command::Write => {
            let (place, at, length, remaining) = match asked.memory {
                Some(_) => ((HEADER as u16 + 48, 16), 0, 0, asked.length),
                None => ((0, 0), HEADER as u16 + 48, asked.length, 0),
            };
            let b = h
                .u16(49)
                .u16(at)
                .u32(length)
                .u64(asked.offset)
                .bytes(&FILE)
                .u32(channel)
                .u32(remaining)
                .u16(place.0)
                .u16(place.1)
                .u32(0);
            descriptor(b).bytes(inline)
        }
        Command::Logoff | Command::TreeDisconnect | Command::Echo => h.u16(4).u16(0),
    }
    .0
}

/// A reply; `moved` is the reported byte count of a READ or WRITE, `status` is 0 for success.
pub fn reply(asked: &Asked, credits: u16, status: u32, moved: u32, inline: &[u8]) -> Vec<u8> {
    let h = head(asked.command, asked.id, asked.charge, credits, status, true);
    if status != 0 {
        return h.u16(9).u8(0).u8(0).u32(0).u8(0).0;
    }
    match asked.command {
        Command::Negotiate => h
            .u16(65)
            .u16(1)
            .u16(0x302)
            .u16(0)
            .bytes(&[2; 16])
            .u32(4)
            .u32(1 << 20)
            .u32(1 << 20)
            .u32(1 << 20)
            .zeros(16)
            .u16(128)
            .u16(0)
            .u32(0),
        Command::SessionSetup => h.u16(9).u16(1).u16(72).u16(0),
        Command::TreeConnect => h.u16(16).u8(1).u8(0).u32(0).u32(0).u32(0x001f_01ff),
        Command::Create => {
            h.u16(89).u8(0).u8(0).u32(1).zeros(32).u64(1 << 24).u64(1 << 24).u32(0x20).u32(0).bytes(&FILE).u32(0).u32(0)
        }
        Command::Close => h.u16(60).u16(0).u32(0).zeros(32).u64(0).u64(0).u32(0),
        Command::Read => match asked.memory {
            Some(_) => h.u16(17).u8(80).u8(0).u32(0).u32(moved).u32(0).u8(0),
            None => h.u16(17).u8(80).u8(0).u32(moved).u32(0).u32(0).bytes(inline),
        },
        Command::Write => h.u16(17).u16(0).u32(moved).u32(0).u16(0).u16(0),
        Command::Logoff | Command::TreeDisconnect | Command::Echo => h.u16(4).u16(0),
    }
    .0
}
