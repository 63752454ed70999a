//! NFS versions 3 and 4.1 over RPC-over-RDMA version 1, as far as a client and a server need it to read and write
//! files. Messages are written with the dissector's encoders and never read: their meaning goes with them.

use crate::memory::Memory;
use rdmascope_dissector::wire::ib::cm::RpcRdmaPrivate;
use rdmascope_dissector::wire::nfs::v3::{FileType, Procedure, Stable, Status};
use rdmascope_dissector::wire::nfs::v4::Operation;
use rdmascope_dissector::wire::rpc::{
    self, Auth, CallHeader, Flavor, Memo, MessageType, Outcome, Program, ReplyHeader, ReplyState, RpcCall, RpcReply,
};
use rdmascope_dissector::wire::rpcrdma::{self, Error, Fixed, Proc, ReadSegment, RpcRdma, Segment};

/// A message: its bytes and its meaning.
#[derive(Clone, Debug)]
pub struct Message {
    /// Its bytes on the wire.
    pub bytes: Vec<u8>,
    /// Its meaning.
    pub what: Rpc,
}

/// Kinds of messages.
#[derive(Clone, Debug)]
pub enum Rpc {
    /// Of the client.
    Call(Call),
    /// Of the server.
    Reply {
        /// Transaction id of the call.
        xid: u32,
        /// Credits granted.
        credits: u32,
        /// True if the client must leave: the call has failed.
        wrong: bool,
    },
    /// A message that its receiver refuses, with the transaction id of its header.
    Wrong(u32),
    /// A message that its receiver drops.
    Dropped,
}

/// How the data of a call, or the whole call or reply, go.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Way {
    /// In the message.
    Inline,
    /// The data of a READ or WRITE in a chunk of these segments.
    Chunk(Vec<Memory>),
    /// The whole message without its header: the call of a WRITE in a Position-Zero Read chunk, the reply to all others
    /// in a Reply chunk.
    Long(Memory),
}

/// Procedures of version 3; of version 4.1, the operation that gives a compound its purpose.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "the names of RFC 1813 and RFC 8881")]
pub enum Command {
    Null,
    ExchangeId,
    CreateSession,
    Getattr,
    Lookup,
    Read,
    Write,
    Readdir,
}

impl Command {
    /// Of version 3.
    const fn procedure(self) -> Procedure {
        match self {
            Self::Null | Self::ExchangeId | Self::CreateSession => Procedure::NULL,
            Self::Getattr => Procedure::GETATTR,
            Self::Lookup => Procedure::LOOKUP,
            Self::Read => Procedure::READ,
            Self::Write => Procedure::WRITE,
            Self::Readdir => Procedure::READDIR,
        }
    }

    /// Of version 4.1.
    const fn operation(self) -> Option<Operation> {
        match self {
            Self::Null => None,
            Self::ExchangeId => Some(Operation::EXCHANGE_ID),
            Self::CreateSession => Some(Operation::CREATE_SESSION),
            Self::Getattr => Some(Operation::GETATTR),
            Self::Lookup => Some(Operation::LOOKUP),
            Self::Read => Some(Operation::READ),
            Self::Write => Some(Operation::WRITE),
            Self::Readdir => Some(Operation::READDIR),
        }
    }

    /// As reports name it, in either version.
    pub fn name(self) -> &'static str {
        self.operation().map_or_else(|| self.procedure().name(), Operation::name).unwrap_or_default()
    }

    /// True if it is about a file that was looked up before.
    pub const fn is_io(self) -> bool {
        matches!(self, Self::Getattr | Self::Read | Self::Write | Self::Readdir)
    }
}

/// A call.
#[derive(Clone, Debug)]
pub struct Call {
    /// Transaction id.
    pub xid: u32,
    /// Version 3, or 4 for 4.1.
    pub version: u32,
    /// The slot of the session, and the sequence number in it.
    pub slot: (u32, u32),
    /// Its purpose.
    pub command: Command,
    /// Offset in the file.
    pub offset: u64,
    /// Bytes to read or write.
    pub length: u32,
    /// Bytes of them that there are, at the server.
    pub moved: u32,
    /// How they go.
    pub way: Way,
}

impl Call {
    /// The memory of its chunks.
    pub fn memory(&self) -> &[Memory] {
        match &self.way {
            Way::Inline => &[],
            Way::Chunk(segments) => segments,
            Way::Long(memory) => core::slice::from_ref(memory),
        }
    }
}

/// Big-endian words and opaque items of XDR (RFC 4506).
#[derive(Default)]
struct Xdr(Vec<u8>);

impl Xdr {
    fn word(mut self, v: u32) -> Self {
        self.0.extend(v.to_be_bytes());
        self
    }
    fn hyper(mut self, v: u64) -> Self {
        self.0.extend(v.to_be_bytes());
        self
    }
    fn fixed(mut self, bytes: &[u8]) -> Self {
        self.0.extend_from_slice(bytes);
        self.0.resize(self.0.len().next_multiple_of(4), 0);
        self
    }
    fn opaque(self, bytes: &[u8]) -> Self {
        self.word(bytes.len() as u32).fixed(bytes)
    }
    /// The data of a READ or WRITE: only their number if they go in a chunk.
    fn data(self, bytes: &[u8], way: &Way) -> Self {
        if matches!(way, Way::Chunk(_)) { self.word(bytes.len() as u32) } else { self.opaque(bytes) }
    }
    /// `fattr3` of a file or of the directory.
    fn attributes(self, kind: FileType) -> Self {
        let id = if kind == FileType::DIR { 2 } else { 12 };
        let out = self.word(kind.0).word(0o644).word(1).word(1000).word(100).hyper(SIZE).hyper(SIZE);
        out.hyper(0).hyper(7).hyper(id).hyper(1 << 32).hyper(1 << 32).hyper(1 << 32)
    }
    /// `post_op_attr`.
    fn post_op(self, kind: FileType) -> Self {
        self.word(1).attributes(kind)
    }
}

const SIZE: u64 = 1 << 24;
const FILE: [u8; 28] = [0xf1; 28];
const DIRECTORY: [u8; 28] = [0xd1; 28];
const VERIFIER: [u8; 8] = [0x5e; 8];
const NAME: &[u8] = b"data.bin";
/// Bytes that a message of a READ or WRITE has besides its data at most.
pub const OVERHEAD: u32 = 256;

/// The private data of an end (RFC 8797): kilobytes that it takes inline, and whether it takes remote invalidation.
pub fn private(kilobytes: u8, invalidation: bool) -> Vec<u8> {
    let code = kilobytes - 1;
    let mut out = Vec::new();
    RpcRdmaPrivate {
        magic: RpcRdmaPrivate::MAGIC,
        version: 1,
        flags: u8::from(invalidation),
        send_size_code: code,
        receive_size_code: code,
    }
    .emit(&mut out);
    out
}

fn segment(memory: &Memory) -> Segment {
    Segment { handle: memory.key, length: memory.length, offset: memory.address }
}

/// A header of RPC-over-RDMA and its lists.
#[derive(Clone, Debug)]
pub struct Header {
    /// The first four words.
    pub fixed: Fixed,
    /// The read list.
    pub reads: Vec<ReadSegment>,
    /// The write list.
    pub writes: Vec<Vec<Segment>>,
    /// The reply chunk.
    pub reply: Option<Vec<Segment>>,
}

impl Header {
    /// Without chunks.
    pub fn new(xid: u32, credits: u32) -> Self {
        let fixed = Fixed { xid, version: rpcrdma::VERSION, credits, proc: Proc::MSG.0 };
        Self { fixed, reads: Vec::new(), writes: Vec::new(), reply: None }
    }

    /// With a message behind it.
    pub fn bytes(&self, message: &[u8]) -> Vec<u8> {
        let mut out = Vec::new();
        self.fixed.emit(&mut out);
        rpcrdma::emit_lists(&self.reads, &self.writes, self.reply.as_deref(), &mut out);
        out.extend_from_slice(message);
        out
    }
}

/// An RPC message, and the position in it of data that go in a chunk.
pub type Encoded = (Vec<u8>, u32);

/// The RPC message of a call: without its data if they go in a chunk.
pub fn call_message(call: &Call, data: &[u8]) -> Encoded {
    let body = Xdr::default().word(7).opaque(b"client").word(1000).word(100).word(0).0;
    let header = CallHeader {
        xid: call.xid,
        msgtyp: MessageType::CALL.0,
        rpc_version: rpc::VERSION,
        program: Program::NFS.0,
        version: call.version,
        procedure: match call.version {
            3 => call.command.procedure().0,
            _ => u32::from(call.command != Command::Null),
        },
    };
    let credential = match call.command {
        Command::Null => Auth::default(),
        _ => Auth { flavor: Flavor::SYS, body: &body },
    };
    let mut out = Vec::new();
    let memo = Memo::new(Program::NFS, header.version, header.procedure);
    RpcCall { header, credential, verifier: Auth::default(), memo }.emit(&mut out);
    let x = Xdr(out);
    if call.version == 4 && call.command != Command::Null {
        return compound(x, call, data);
    }
    let x = match call.command {
        Command::Getattr => x.opaque(&FILE),
        Command::Lookup => x.opaque(&DIRECTORY).opaque(NAME),
        Command::Read => x.opaque(&FILE).hyper(call.offset).word(call.length),
        Command::Write => {
            let x = x.opaque(&FILE).hyper(call.offset).word(call.length).word(Stable::FILE_SYNC.0);
            x.data(data, &call.way)
        }
        Command::Readdir => x.opaque(&DIRECTORY).hyper(0).fixed(&[0; 8]).word(call.length),
        Command::Null | Command::ExchangeId | Command::CreateSession => x,
    };
    let end = x.0.len() as u32;
    (x.0, end)
}

const SESSION: [u8; 16] = [0x41; 16];
const CLIENT_ID: u64 = 0xc11e_0001;
/// Slots of a session.
const SLOTS: u32 = 128;
/// The state id of an anonymous READ or WRITE.
const ANONYMOUS: [u8; 16] = [0; 16];
/// Attribute 4, the size of a file.
const ATTRIBUTES: u32 = 1 << 4;
/// Bytes of an entry of a directory at most.
const ENTRY: u64 = 44;

impl Xdr {
    fn op(self, operation: Operation) -> Self {
        self.word(operation.0)
    }
    fn done(self, operation: Operation, status: Status) -> Self {
        self.word(operation.0).word(status.0)
    }
    /// `fattr4` with the size alone.
    fn size(self) -> Self {
        self.word(1).word(ATTRIBUTES).word(8).hyper(SIZE)
    }
    /// `channel_attrs4`.
    fn channel(self) -> Self {
        [0, 1 << 20, 1 << 20, 4096, 16, SLOTS, 0].into_iter().fold(self, Self::word)
    }
}

/// A compound of version 4.1, behind the header of its call.
fn compound(x: Xdr, call: &Call, data: &[u8]) -> Encoded {
    use Operation as O;
    let begin = |x: Xdr, operations: u32| x.word(0).word(1).word(operations);
    let on = |x: Xdr, operations: u32, handle: &[u8]| {
        let x = begin(x, 2 + operations)
            .op(O::SEQUENCE)
            .fixed(&SESSION)
            .word(call.slot.1)
            .word(call.slot.0)
            .word(SLOTS - 1)
            .word(0);
        x.op(O::PUTFH).opaque(handle)
    };
    let mut position = 0;
    let x = match call.command {
        Command::ExchangeId => {
            begin(x, 1).op(O::EXCHANGE_ID).fixed(&VERIFIER).opaque(b"client").word(0).word(0).word(0)
        }
        Command::CreateSession => {
            let x = begin(x, 1).op(O::CREATE_SESSION).hyper(CLIENT_ID).word(1).word(0);
            x.channel().channel().word(Program::NFS_CALLBACK.0).word(1).word(0)
        }
        Command::Lookup => {
            let x = on(x, 3, &DIRECTORY).op(O::LOOKUP).opaque(NAME).op(O::GETFH);
            x.op(O::GETATTR).word(1).word(ATTRIBUTES)
        }
        Command::Getattr => on(x, 1, &FILE).op(O::GETATTR).word(1).word(ATTRIBUTES),
        Command::Read => on(x, 1, &FILE).op(O::READ).fixed(&ANONYMOUS).hyper(call.offset).word(call.length),
        Command::Write => {
            let x = on(x, 2, &FILE).op(O::WRITE).fixed(&ANONYMOUS).hyper(call.offset).word(Stable::FILE_SYNC.0);
            let x = x.data(data, &call.way);
            position = x.0.len() as u32;
            x.op(O::GETATTR).word(1).word(ATTRIBUTES)
        }
        Command::Readdir => {
            let x = on(x, 1, &DIRECTORY).op(O::READDIR).hyper(0).hyper(0).word(call.length).word(call.length);
            x.word(1).word(ATTRIBUTES)
        }
        Command::Null => x,
    };
    (x.0, position)
}

/// The results of a compound, behind the header of its reply.
fn results(x: Xdr, call: &Call, status: Status, data: &[u8]) -> Vec<u8> {
    use Operation as O;
    let is_ok = status == Status::OK;
    let operation = call.command.operation().unwrap_or_default();
    let (before, behind) = match call.command {
        Command::ExchangeId | Command::CreateSession => (0, 0),
        Command::Lookup => (2, 2),
        Command::Write => (2, 1),
        _ => (2, 0),
    };
    let x = x.word(status.0).word(0).word(before + 1 + if is_ok { behind } else { 0 });
    let x = if before == 0 {
        x
    } else {
        let x = x
            .done(O::SEQUENCE, Status::OK)
            .fixed(&SESSION)
            .word(call.slot.1)
            .word(call.slot.0)
            .word(SLOTS - 1)
            .word(SLOTS - 1);
        x.word(0).done(O::PUTFH, Status::OK)
    };
    let x = x.done(operation, status);
    if !is_ok {
        return x.0;
    }
    match call.command {
        Command::ExchangeId => {
            x.hyper(CLIENT_ID).word(1).word(1 << 16).word(0).hyper(1).opaque(b"server").opaque(b"scope").word(0)
        }
        Command::CreateSession => x.fixed(&SESSION).word(1).word(0).channel().channel(),
        Command::Lookup => x.done(O::GETFH, Status::OK).opaque(&FILE).done(O::GETATTR, Status::OK).size(),
        Command::Getattr => x.size(),
        Command::Read => x.word(u32::from(call.moved < call.length)).data(data, &call.way),
        Command::Write => {
            x.word(call.moved).word(Stable::FILE_SYNC.0).fixed(&VERIFIER).done(O::GETATTR, Status::OK).size()
        }
        Command::Readdir => {
            let entry = |x: Xdr, n: u64| x.word(1).hyper(n).opaque(b"filename").size();
            (1..=u64::from(call.moved) / ENTRY).fold(x.fixed(&VERIFIER), entry).word(0).word(1)
        }
        Command::Null => x,
    }
    .0
}

/// The header of a call with this RPC message.
pub fn call_header(call: &Call, credits: u32, message: &Encoded) -> Header {
    let mut header = Header::new(call.xid, credits);
    let read = |position: u32, memory: &Memory| {
        let Segment { handle, length, offset } = segment(memory);
        ReadSegment { position, handle, length, offset }
    };
    match &call.way {
        Way::Inline => {}
        Way::Chunk(segments) if call.command == Command::Write => {
            header.reads = segments.iter().map(|memory| read(message.1, memory)).collect();
        }
        Way::Chunk(segments) => header.writes = vec![segments.iter().map(segment).collect()],
        Way::Long(memory) if call.command == Command::Write => {
            header.fixed.proc = Proc::NOMSG.0;
            header.reads = vec![read(0, memory)];
        }
        Way::Long(memory) => header.reply = Some(vec![segment(memory)]),
    }
    header
}

/// The RPC message of a reply: without its data if they go in a chunk.
pub fn reply_message(call: &Call, status: Status, data: &[u8]) -> Vec<u8> {
    let header = ReplyHeader { xid: call.xid, msgtyp: MessageType::REPLY.0, replystat: ReplyState::ACCEPTED.0 };
    let mut out = Vec::new();
    RpcReply { header, verifier: Auth::default(), outcome: Outcome::Success }.emit(&mut out);
    let x = Xdr(out);
    if call.command == Command::Null {
        return x.0;
    }
    if call.version == 4 {
        return results(x, call, status, data);
    }
    let x = x.word(status.0);
    let is_ok = status == Status::OK;
    match call.command {
        Command::Getattr if is_ok => x.attributes(FileType::REG),
        Command::Lookup if is_ok => x.opaque(&FILE).post_op(FileType::REG).post_op(FileType::DIR),
        Command::Read if is_ok => {
            let end = call.moved < call.length;
            x.post_op(FileType::REG).word(call.moved).word(end.into()).data(data, &call.way)
        }
        Command::Write if is_ok => {
            x.word(0).post_op(FileType::REG).word(call.moved).word(Stable::FILE_SYNC.0).fixed(&VERIFIER)
        }
        Command::Readdir if is_ok => {
            let entry = |x: Xdr, n: u64| x.word(1).hyper(n).opaque(b"filename").hyper(n);
            (1..=u64::from(call.moved) / ENTRY).fold(x.post_op(FileType::DIR).fixed(&VERIFIER), entry).word(0).word(1)
        }
        Command::Getattr => x,
        Command::Write => x.word(0).word(0),
        _ => x.word(0),
    }
    .0
}

/// The header of a reply; `written` are the bytes in the chunk, and `long` is true if the message is there.
pub fn reply_header(call: &Call, credits: u32, written: u32, long: bool) -> Header {
    let mut header = Header::new(call.xid, credits);
    let mut left = written;
    let mut fill = |memory: &Memory| {
        let length = left.min(memory.length);
        left -= length;
        Segment { length, ..segment(memory) }
    };
    match &call.way {
        Way::Chunk(segments) if call.command == Command::Read => {
            header.writes = vec![segments.iter().map(&mut fill).collect()]
        }
        Way::Long(memory) if long => {
            header.fixed.proc = Proc::NOMSG.0;
            header.reply = Some(vec![fill(memory)]);
        }
        _ => {}
    }
    header
}

/// A refusal of a message.
pub fn error(xid: u32, credits: u32, error: Error) -> Vec<u8> {
    let fixed = Fixed { xid, version: rpcrdma::VERSION, credits, proc: Proc::ERROR.0 };
    let mut out = Vec::new();
    let none = RpcRdma {
        fixed,
        reads: Default::default(),
        writes: Default::default(),
        reply: None,
        padding: None,
        error: None,
        payload: &[],
    };
    RpcRdma { error: Some(error), ..none }.emit(&mut out);
    out
}
