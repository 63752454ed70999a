//! ONC RPC version 2, RFC 5531: the headers of calls and replies, credentials and verifiers (AUTH_NONE, AUTH_SYS,
//! RPCSEC_GSS of RFC 2203 and 5403, AUTH_TLS of RFC 9289), and the record marks of TCP. All big-endian, XDR.
//!
//! ```text
//! call   xid · 0 · 2 · program · version · procedure · credential · verifier · arguments
//! reply  xid · 1 · 0 · verifier · 0 · results                    accepted
//!        xid · 1 · 0 · verifier · why (1 to 5) · …               accepted, not executed
//!        xid · 1 · 1 · why · …                                   denied
//! ```
//!
//! A reply does not name its procedure: to have it decoded, keep a [`Memo`] of the call under its xid. [`dissect`]
//! decodes a whole message down to NFS and its companions; [`parse`] decodes the header alone.

use crate::fault::{Fault, PResult, fault_of};
use crate::field::Def;
use crate::header::Vec;
use crate::leaf;
use crate::trace::{Off, Trace, Value, scope};
use crate::wire::nfs::Visit;
use crate::wire::xdr::{self, Read, Stream, Xdr};

/// The version of RPC that this is.
pub const VERSION: u32 = 2;

wire_enum! {
    /// Programs, by the numbers that IANA keeps (RFC 5531 13).
    pub enum Program: u32 {
        PORTMAP = 100_000, "Portmap";
        RSTAT = 100_001, "RSTAT";
        NFS = 100_003, "NFS";
        YPSERV = 100_004, "YPSERV";
        MOUNT = 100_005, "MOUNT";
        RQUOTA = 100_011, "RQUOTA";
        NLM = 100_021, "NLM";
        STATUS = 100_024, "STAT";
        NFSACL = 100_227, "NFSACL";
        /// The number that clients of NFS version 4 usually give their callback program.
        NFS_CALLBACK = 0x4000_0000, "NFS Callback";
    }
}

wire_enum! {
    /// Call or reply (RFC 5531 9).
    pub enum MessageType: u32 {
        CALL = 0, "Call";
        REPLY = 1, "Reply";
    }
}

wire_enum! {
    /// Acceptance of a call (RFC 5531 9, `reply_stat`).
    pub enum ReplyState: u32 {
        ACCEPTED = 0, "accepted";
        DENIED = 1, "denied";
    }
}

wire_enum! {
    /// Outcome of an accepted call (RFC 5531 9, `accept_stat`).
    pub enum AcceptState: u32 {
        SUCCESS = 0, "RPC executed successfully";
        PROG_UNAVAIL = 1, "remote hasn't exported program";
        PROG_MISMATCH = 2, "remote can't support version #";
        PROC_UNAVAIL = 3, "program can't support procedure";
        GARBAGE_ARGS = 4, "procedure can't decode params";
        SYSTEM_ERR = 5, "system error";
    }
}

wire_enum! {
    /// Reason of a denied call (RFC 5531 9, `reject_stat`).
    pub enum RejectState: u32 {
        RPC_MISMATCH = 0, "RPC_MISMATCH";
        AUTH_ERROR = 1, "AUTH_ERROR";
    }
}

wire_enum! {
    /// Reason of a failed authentication (RFC 5531 9, `auth_stat`).
    pub enum AuthState: u32 {
        OK = 0, "AUTH_OK";
        BADCRED = 1, "bad credential (seal broken)";
        REJECTEDCRED = 2, "client must begin new session";
        BADVERF = 3, "bad verifier (seal broken)";
        REJECTEDVERF = 4, "verifier expired or replayed";
        TOOWEAK = 5, "rejected for security reasons";
        INVALIDRESP = 6, "bogus response verifier";
        FAILED = 7, "reason unknown";
        KERB_GENERIC = 8, "Kerberos generic error";
        TIMEEXPIRE = 9, "Kerberos credential expired";
        TKT_FILE = 10, "Kerberos ticket file problem";
        DECODE = 11, "Kerberos authenticator cannot be decoded";
        NET_ADDR = 12, "Kerberos ticket with wrong network address";
        GSS_CREDPROBLEM = 13, "GSS: no credentials for user";
        GSS_CTXPROBLEM = 14, "GSS: problem with context";
    }
}

wire_enum! {
    /// Authentication flavor (RFC 5531 8.2).
    pub enum Flavor: u32 {
        NONE = 0, "AUTH_NULL";
        SYS = 1, "AUTH_UNIX";
        SHORT = 2, "AUTH_SHORT";
        DES = 3, "AUTH_DES";
        KERB = 4, "AUTH_KERB4";
        RSA = 5, "AUTH_RSA";
        GSS = 6, "RPCSEC_GSS";
        TLS = 7, "AUTH_TLS";
        GSS_KRB5 = 390_003, "RPCSEC_GSS_KRB5";
        GSS_KRB5I = 390_004, "RPCSEC_GSS_KRB5I";
        GSS_KRB5P = 390_005, "RPCSEC_GSS_KRB5P";
    }
}

wire_enum! {
    /// Operation of an RPCSEC_GSS call on its context (RFC 2203 5).
    pub enum GssProcedure: u32 {
        DATA = 0, "RPCSEC_GSS_DATA";
        INIT = 1, "RPCSEC_GSS_INIT";
        CONTINUE_INIT = 2, "RPCSEC_GSS_CONTINUE_INIT";
        DESTROY = 3, "RPCSEC_GSS_DESTROY";
        BIND_CHANNEL = 4, "RPCSEC_GSS_BIND_CHANNEL";
    }
}

wire_enum! {
    /// Protection of arguments and results (RFC 2203 5).
    pub enum GssService: u32 {
        NONE = 1, "rpcsec_gss_svc_none";
        INTEGRITY = 2, "rpcsec_gss_svc_integrity";
        PRIVACY = 3, "rpcsec_gss_svc_privacy";
        CHANNEL_PROT = 4, "rpcsec_gss_svc_channel_prot";
    }
}

fields! {
    /// The protocol and what is variable in it.
    pub mod f ["RFC 5531 9"] {
        PROTOCOL: Protocol = "rpc", "Remote Procedure Call";
        XID: U32 = "rpc.xid", "XID", hexdec;
        MSGTYP: U32 = "rpc.msgtyp", "Message Type", dec, values MessageType::VALUES;
        PROGRAM: U32 = "rpc.program", "Program", dec, values Program::VALUES;
        PROGRAMVERSION: U32 = "rpc.programversion", "Program Version", dec;
        PROCEDURE: U32 = "rpc.procedure", "Procedure", dec;
        PROCEDURE_NAME: Str = "rdmascope.rpc.procedure", "Procedure name";
        CREDENTIALS: None = "rdmascope.rpc.credentials", "Credentials";
        VERIFIER: None = "rdmascope.rpc.verifier", "Verifier";
        REPLYSTAT: U32 = "rpc.replystat", "Reply State", dec, values ReplyState::VALUES;
        STATE_ACCEPT: U32 = "rpc.state_accept", "Accept State", dec, values AcceptState::VALUES;
        STATE_REJECT: U32 = "rpc.state_reject", "Reject State", dec, values RejectState::VALUES;
        STATE_AUTH: U32 = "rpc.state_auth", "Auth State", dec, values AuthState::VALUES;
        VERSION_MIN: U32 = "rpc.version.min", "RPC Version (Minimum)", dec;
        VERSION_MAX: U32 = "rpc.version.max", "RPC Version (Maximum)", dec;
        PROGRAMVERSION_MIN: U32 = "rpc.programversion.min", "Program Version (Minimum)", dec;
        PROGRAMVERSION_MAX: U32 = "rpc.programversion.max", "Program Version (Maximum)", dec;
        AUTH_FLAVOR: U32 = "rpc.auth.flavor", "Flavor", dec, values Flavor::VALUES;
        AUTH_LENGTH: U32 = "rpc.auth.length", "Length", dec;
        AUTH_DATA: None = "rdmascope.rpc.auth.data", "Body";
        AUTH_BODY: Bytes = "rdmascope.rpc.auth.body", "Body";
        AUTH_STAMP: U32 = "rpc.auth.stamp", "Stamp", hex;
        AUTH_MACHINE: Str = "rpc.auth.machinename", "Machine Name";
        AUTH_UID: U32 as User = "rpc.auth.uid", "UID", dec;
        AUTH_GID: U32 as User = "rpc.auth.gid", "GID", dec;
        AUTH_GIDS: None = "rdmascope.rpc.auth.gids", "Auxiliary GIDs";
        GSS_VERSION: U32 = "rpc.authgss.version", "GSS Version", dec;
        GSS_PROCEDURE: U32 = "rpc.authgss.procedure", "GSS Procedure", dec, values GssProcedure::VALUES;
        GSS_SEQNUM: U32 = "rpc.authgss.seqnum", "GSS Sequence Number", dec;
        GSS_SERVICE: U32 = "rpc.authgss.service", "GSS Service", dec, values GssService::VALUES;
        GSS_CONTEXT: Bytes as Id = "rpc.authgss.context", "GSS Context";
        GSS_CHECKSUM: Bytes as Secret = "rpc.authgss.checksum", "GSS Checksum";
        GSS_TOKEN: Bytes as Secret = "rpc.authgss.token", "GSS Token";
        GSS_MAJOR: U32 = "rpc.authgss.major", "GSS Major Status", dec;
        GSS_MINOR: U32 = "rpc.authgss.minor", "GSS Minor Status", dec;
        GSS_WINDOW: U32 = "rpc.authgss.window", "GSS Sequence Window", dec;
        GSS_DATA: Bytes = "rpc.authgss.data", "GSS Data";
        GSS_DATA_LENGTH: U32 = "rpc.authgss.data.length", "Length", dec;
        GSS_INTEGRITY: None = "rdmascope.rpc.authgss.integrity", "Data with integrity";
        GSS_CHANNEL_HASH: Str = "rdmascope.rpc.authgss.channel_hash", "Channel hash";
        GSS_CHANNEL: Bytes as Secret = "rdmascope.rpc.authgss.channel", "Channel bindings";
        STARTTLS: Str as Keep = "rdmascope.rpc.auth.tls", "AUTH_TLS";
        UNKNOWN_BODY: Bytes = "rdmascope.rpc.body", "Arguments or results";
        LASTFRAG: Bool & 0x8000_0000 / 32 = "rpc.lastfrag", "Last Fragment";
        FRAGLEN: U32 & 0x7fff_ffff / 32 = "rpc.fraglen", "Fragment Length", dec;
        FRAGMENT: None = "rdmascope.rpc.fragment_header", "Fragment header";
    }
}

header! {
    /// The fixed part of a call (RFC 5531 9, `call_body`).
    pub struct CallHeader [NODE = "rdmascope.rpc.call", "Call", "RFC 5531 9"] {
        xid: be32 = "rpc.xid", "XID", hexdec;
        msgtyp: be32 = "rpc.msgtyp", "Message Type", dec, values MessageType::VALUES;
        rpc_version: be32 = "rpc.version", "RPC Version", dec;
        program: be32 = "rpc.program", "Program", dec, values Program::VALUES;
        version: be32 = "rpc.programversion", "Program Version", dec;
        procedure: be32 = "rpc.procedure", "Procedure", dec;
    }
}

header! {
    /// The fixed part of a reply (RFC 5531 9, `reply_body`).
    pub struct ReplyHeader [NODE = "rdmascope.rpc.reply", "Reply", "RFC 5531 9"] {
        xid: be32 = "rpc.xid", "XID", hexdec;
        msgtyp: be32 = "rpc.msgtyp", "Message Type", dec, values MessageType::VALUES;
        replystat: be32 = "rpc.replystat", "Reply State", dec, values ReplyState::VALUES;
    }
}

/// Header of each fragment of a message on TCP (RFC 5531 11).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RecordMark {
    /// True if the fragment ends the message.
    pub last: bool,
    /// Length of the fragment, in bytes.
    pub length: u32,
}

impl RecordMark {
    /// Length on the wire, in bytes.
    pub const LEN: usize = 4;

    /// Decodes a record mark.
    ///
    /// # Errors
    /// With fewer than four bytes.
    pub fn parse<'a, T: Trace>(i: &'a [u8], t: &mut T) -> PResult<'a, Self> {
        scope(f::FRAGMENT, i, t, |i, t| {
            let Ok((rest, word)) = leaf::be32(i) else { return Fault::short(Some(f::FRAGLEN), i, 4).fail() };
            let mark = Self { last: word & 0x8000_0000 != 0, length: word & 0x7fff_ffff };
            t.field(f::LASTFRAG, i, 4, Value::U(mark.last.into()));
            t.field(f::FRAGLEN, i, 4, Value::U(mark.length.into()));
            Ok((rest, mark))
        })
    }

    /// Encodes it at the end of `out`.
    pub fn emit(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&(self.length & 0x7fff_ffff | u32::from(self.last) << 31).to_be_bytes());
    }
}

/// A credential or a verifier.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Auth<'a> {
    /// Authentication flavor.
    pub flavor: Flavor,
    /// Its content, undecoded.
    pub body: &'a [u8],
}

/// AUTH_SYS (RFC 5531 appendix A): a client's claim about its user.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AuthSys<'a> {
    /// Any number.
    pub stamp: u32,
    /// The client's name for itself.
    pub machine: &'a [u8],
    /// User.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Number of further groups.
    pub gids: u32,
}

/// An RPCSEC_GSS credential of version 1 (RFC 2203 5).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GssCredential<'a> {
    /// Purpose of the call.
    pub procedure: GssProcedure,
    /// Position in the sequence window.
    pub sequence: u32,
    /// Protection of the arguments, and of the results to come.
    pub service: GssService,
    /// The server's name for the context.
    pub context: &'a [u8],
}

impl<'a> Auth<'a> {
    /// The AUTH_SYS credential, where it is one and whole.
    pub fn sys(&self) -> Option<AuthSys<'a>> {
        if self.flavor != Flavor::SYS {
            return None;
        }
        sys(&mut Xdr::new(&Stream::whole(self.body), &mut Off)).ok()
    }

    /// The RPCSEC_GSS credential, where it is one and whole.
    pub fn gss(&self) -> Option<GssCredential<'a>> {
        if self.flavor != Flavor::GSS {
            return None;
        }
        gss(&mut Xdr::new(&Stream::whole(self.body), &mut Off)).ok()
    }

    /// Encodes it at the end of `out`.
    pub fn emit(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.flavor.0.to_be_bytes());
        out.extend_from_slice(&(self.body.len() as u32).to_be_bytes());
        out.extend_from_slice(self.body);
        out.extend_from_slice(&[0; 3][..self.body.len().wrapping_neg() & 3]);
    }
}

/// The parts of a call that decoding its reply takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Memo {
    /// The program.
    pub program: u32,
    /// Version of the program.
    pub version: u32,
    /// The procedure.
    pub procedure: u32,
    /// The flavor of the credential.
    pub flavor: Flavor,
    /// Purpose of an RPCSEC_GSS call; DATA otherwise.
    pub gss_procedure: GssProcedure,
    /// Protection of the data of an RPCSEC_GSS call; NONE otherwise.
    pub gss_service: GssService,
    /// The minor version of an NFSv4 compound.
    pub minor: u32,
    /// True if the credential was AUTH_TLS: a probe of the server, whose reply says STARTTLS.
    pub tls: bool,
}

impl Memo {
    /// A call without RPCSEC_GSS.
    pub const fn new(program: Program, version: u32, procedure: u32) -> Self {
        Self {
            program: program.0,
            version,
            procedure,
            flavor: Flavor::NONE,
            gss_procedure: GssProcedure::DATA,
            gss_service: GssService::NONE,
            minor: 0,
            tls: false,
        }
    }

    /// The name of the procedure, where it is known.
    pub fn procedure_name(&self) -> Option<&'static str> {
        procedure_name(self.program, self.version, self.procedure)
    }

    /// True if this is a callback of NFS version 4: its program has a number chosen by the client.
    pub const fn is_callback(&self) -> bool {
        is_transient(self.program) && (self.version == 1 || self.version == 4) && self.procedure <= 1
    }

    /// True if the program is NFS.
    pub const fn is_nfs(&self) -> bool {
        self.program == Program::NFS.0
    }
}

/// The header of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RpcCall<'a> {
    /// The fields before credential and verifier.
    pub header: CallHeader,
    /// Credential of the caller.
    pub credential: Auth<'a>,
    /// Proof of it.
    pub verifier: Auth<'a>,
    /// To be remembered for the reply.
    pub memo: Memo,
}

/// The header of a reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RpcReply<'a> {
    /// The fields before the verifier.
    pub header: ReplyHeader,
    /// The server's proof; none with a denied call.
    pub verifier: Auth<'a>,
    /// Outcome of the call.
    pub outcome: Outcome,
}

/// Outcome of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// It was executed: results follow.
    Success,
    /// Accepted, but for this reason not executed.
    Failed(AcceptState),
    /// The program has only these versions, lowest and highest.
    ProgramMismatch(u32, u32),
    /// The server speaks only these versions of RPC, lowest and highest.
    RpcMismatch(u32, u32),
    /// The caller was not authenticated.
    AuthError(AuthState),
    /// Denied for a reason that RFC 5531 does not have.
    Denied(u32),
    /// Neither accepted nor denied.
    Unknown(u32),
}

/// The header of an RPC message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Message<'a> {
    /// A call.
    Call(RpcCall<'a>),
    /// A reply.
    Reply(RpcReply<'a>),
}

impl Message<'_> {
    /// The transaction id.
    pub const fn xid(&self) -> u32 {
        match self {
            Self::Call(c) => c.header.xid,
            Self::Reply(r) => r.header.xid,
        }
    }
}

impl RpcCall<'_> {
    /// Encodes the header at the end of `out`; the arguments are left to the caller.
    pub fn emit(&self, out: &mut Vec<u8>) {
        self.header.emit(out);
        self.credential.emit(out);
        self.verifier.emit(out);
    }
}

impl RpcReply<'_> {
    /// Encodes the header at the end of `out`; the results are left to the caller.
    pub fn emit(&self, out: &mut Vec<u8>) {
        let words =
            |out: &mut Vec<u8>, words: &[u32]| words.iter().for_each(|w| out.extend_from_slice(&w.to_be_bytes()));
        self.header.emit(out);
        if self.header.replystat == ReplyState::ACCEPTED.0 {
            self.verifier.emit(out);
        }
        match self.outcome {
            Outcome::Success => words(out, &[AcceptState::SUCCESS.0]),
            Outcome::Failed(state) => words(out, &[state.0]),
            Outcome::ProgramMismatch(low, high) => words(out, &[AcceptState::PROG_MISMATCH.0, low, high]),
            Outcome::RpcMismatch(low, high) => words(out, &[RejectState::RPC_MISMATCH.0, low, high]),
            Outcome::AuthError(state) => words(out, &[RejectState::AUTH_ERROR.0, state.0]),
            Outcome::Denied(why) => words(out, &[why]),
            Outcome::Unknown(_) => {}
        }
    }
}

/// True if a program number is transient (RFC 5531 13), as clients of NFS version 4 choose for their callbacks.
pub const fn is_transient(program: u32) -> bool {
    program >= 0x4000_0000 && program < 0x6000_0000
}

/// The name of a procedure, as the specification of its program has it.
pub fn procedure_name(program: u32, version: u32, procedure: u32) -> Option<&'static str> {
    crate::field::name_of(crate::wire::nfs::procedures(program, version), procedure.into())
}

/// Decodes the header of an RPC message in a protocol subtree of its own. For a reply, `memo` is the memo of the call.
/// The rest is arguments or results.
///
/// # Errors
/// If the bytes end inside the header, or the message is neither call nor reply.
pub fn parse<'a, T: Trace>(message: &'a [u8], memo: Option<Memo>, t: &mut T) -> PResult<'a, Message<'a>> {
    let mut x = Xdr::new(&Stream::whole(message), t);
    match header(&mut x, memo) {
        Ok(m) => Ok((x.i, m)),
        Err(fault) => Err(nom::Err::Error(fault)),
    }
}

/// A message that was decoded as far as possible.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Decoded<'a> {
    /// Its header.
    pub message: Message<'a>,
    /// The input behind it.
    pub rest: &'a [u8],
    /// Reason that its arguments or results could not be read to their end.
    pub fault: Option<Fault>,
    /// Position of a read chunk at which none of the items that were read begins.
    pub unread: Option<u32>,
    /// True if a write chunk that has bytes belongs to none of the items that were read.
    pub is_unmatched: bool,
    /// A boolean of its arguments or results that is neither 0 nor 1, and its value: the first.
    pub odd: Option<(Def, u32)>,
}

/// Decodes a whole RPC message: its header, and arguments or results of the programs known here (NFS, its callback
/// program, MOUNT, NLM, portmap and rpcbind, NFSACL). For a reply, `memo` is the memo of the call: without it results
/// stay bytes. `visitor` is called with every NFS operation. The rest is the input behind the message.
///
/// # Errors
/// If the RPC header cannot be read. Faults after it are reported to the observer, and the rest is empty.
pub fn dissect<'a, T: Trace, V: Visit<'a>>(
    stream: &Stream<'a>,
    memo: Option<Memo>,
    t: &mut T,
    visitor: &mut V,
) -> PResult<'a, Message<'a>> {
    match decode(stream, memo, t, visitor) {
        Ok(decoded) => Ok((decoded.rest, decoded.message)),
        Err(fault) => Err(nom::Err::Error(fault)),
    }
}

/// The same, with all that is known of where it ended.
///
/// # Errors
/// If the RPC header cannot be read.
pub fn decode<'a, T: Trace, V: Visit<'a>>(
    stream: &Stream<'a>,
    memo: Option<Memo>,
    t: &mut T,
    visitor: &mut V,
) -> Read<Decoded<'a>> {
    let mut x = Xdr::new(stream, t);
    let message = header(&mut x, memo)?;
    let memo = match &message {
        Message::Call(call) => Some(call.memo),
        Message::Reply(reply) => {
            x.reply(stream.writes);
            memo.filter(|_| reply.outcome == Outcome::Success)
        }
    };
    let call = matches!(message, Message::Call(_));
    let Some(memo) = memo else {
        // results of a call that nobody saw, or none
        if !x.i.is_empty() {
            x.rest(f::UNKNOWN_BODY);
        }
        return Ok(Decoded { message, rest: x.i, fault: None, unread: None, is_unmatched: false, odd: None });
    };
    let fault = body(&mut x, call, &memo, visitor).err();
    let rest = if fault.is_none() { x.i } else { &[] };
    Ok(Decoded { message, rest, fault, unread: x.unread(), is_unmatched: x.is_unmatched(), odd: x.odd() })
}

/// Arguments or results, out of their RPCSEC_GSS wrapping.
fn body<'a, T: Trace, V: Visit<'a>>(x: &mut Xdr<'a, '_, T>, call: bool, memo: &Memo, visitor: &mut V) -> Read<()> {
    if memo.flavor != Flavor::GSS {
        return crate::wire::nfs::program(x, call, memo, visitor);
    }
    match (memo.gss_procedure, memo.gss_service) {
        (GssProcedure::INIT | GssProcedure::CONTINUE_INIT, _) => x.scope(f::PROTOCOL, |x| {
            if !call {
                x.opaque(f::GSS_CONTEXT)?;
                x.u32(f::GSS_MAJOR)?;
                x.u32(f::GSS_MINOR)?;
                x.u32(f::GSS_WINDOW)?;
            }
            x.opaque(f::GSS_TOKEN).map(drop)
        }),
        (GssProcedure::BIND_CHANNEL, _) => x.scope(f::PROTOCOL, |x| x.opaque(f::GSS_CHANNEL).map(drop)),
        (GssProcedure::DESTROY, _) => Ok(()),
        (_, GssService::INTEGRITY) => {
            let length = x.u32(f::GSS_DATA_LENGTH)? as usize;
            x.within(f::GSS_INTEGRITY, length, |x| {
                x.u32(f::GSS_SEQNUM)?;
                crate::wire::nfs::program(x, call, memo, visitor)
            })?;
            x.opaque(f::GSS_CHECKSUM).map(drop)
        }
        (_, GssService::PRIVACY) => x.scope(f::PROTOCOL, |x| {
            if T::ON {
                x.t.label(format_args!(", encrypted"));
            }
            x.opaque(f::GSS_DATA).map(drop)
        }),
        _ => crate::wire::nfs::program(x, call, memo, visitor),
    }
}

fn header<'a, T: Trace>(x: &mut Xdr<'a, '_, T>, memo: Option<Memo>) -> Read<Message<'a>> {
    x.t.protocol("RPC");
    x.scope(f::PROTOCOL, |x| match leaf::be32(x.i.get(4..).unwrap_or(&[])).map(|(_, kind)| MessageType(kind)) {
        Ok(MessageType::CALL) => call(x).map(Message::Call),
        Ok(MessageType::REPLY) => reply(x, memo).map(Message::Reply),
        _ => {
            x.u32(f::XID)?;
            let at = x.i;
            x.u32(f::MSGTYP)?;
            Err(Fault::value(f::MSGTYP, at))
        }
    })
}

/// Reads a fixed header out of the stream.
fn fixed<'a, T: Trace, H>(x: &mut Xdr<'a, '_, T>, parse: impl FnOnce(&'a [u8], &mut T) -> PResult<'a, H>) -> Read<H> {
    let (rest, header) = parse(x.i, x.t).map_err(fault_of)?;
    x.i = rest;
    Ok(header)
}

fn call<'a, T: Trace>(x: &mut Xdr<'a, '_, T>) -> Read<RpcCall<'a>> {
    let header = fixed(x, CallHeader::parse_flat)?;
    let mut memo = Memo::new(Program(header.program), header.version, header.procedure);
    if T::ON {
        x.t.label(format_args!(", Type:Call XID:{:#010x}", header.xid));
        match memo.procedure_name() {
            Some(name) => {
                x.t.field(f::PROCEDURE_NAME, x.i, 0, Value::Str(name));
                x.t.info(format_args!("V{} {name} Call", header.version));
            }
            None => {
                x.t.info(format_args!("{} V{} proc-{} Call", Program(header.program), header.version, header.procedure))
            }
        }
    }
    let credential = x.scope(f::CREDENTIALS, |x| auth(x, true))?;
    let verifier = x.scope(f::VERIFIER, |x| auth(x, false))?;
    memo.flavor = credential.flavor;
    memo.tls = credential.flavor == Flavor::TLS;
    if let Some(gss) = credential.gss() {
        (memo.gss_procedure, memo.gss_service) = (gss.procedure, gss.service);
    }
    if memo.program == Program::NFS.0
        && memo.version == 4
        && (memo.flavor != Flavor::GSS || memo.gss_service != GssService::PRIVACY)
    {
        memo.minor = crate::wire::nfs::minor_version(x.i, &memo);
    }
    Ok(RpcCall { header, credential, verifier, memo })
}

fn reply<'a, T: Trace>(x: &mut Xdr<'a, '_, T>, memo: Option<Memo>) -> Read<RpcReply<'a>> {
    let header = fixed(x, ReplyHeader::parse_flat)?;
    if T::ON {
        x.t.label(format_args!(", Type:Reply XID:{:#010x}", header.xid));
        if let Some(memo) = &memo {
            x.known(f::PROGRAM, memo.program);
            x.known(f::PROGRAMVERSION, memo.version);
            x.known(f::PROCEDURE, memo.procedure);
        }
        match memo.as_ref().and_then(|m| m.procedure_name().map(|n| (m, n))) {
            Some((memo, name)) => {
                x.t.field(f::PROCEDURE_NAME, x.i, 0, Value::Str(name));
                x.t.info(format_args!("V{} {name} Reply", memo.version));
            }
            None => x.t.info(format_args!("Reply XID {:#010x}", header.xid)),
        }
    }
    let mut verifier = Auth::default();
    let outcome = match ReplyState(header.replystat) {
        ReplyState::ACCEPTED => {
            verifier = x.scope(f::VERIFIER, |x| auth(x, false))?;
            match AcceptState(x.u32(f::STATE_ACCEPT)?) {
                AcceptState::SUCCESS => Outcome::Success,
                AcceptState::PROG_MISMATCH => {
                    Outcome::ProgramMismatch(x.u32(f::PROGRAMVERSION_MIN)?, x.u32(f::PROGRAMVERSION_MAX)?)
                }
                state => Outcome::Failed(state),
            }
        }
        ReplyState::DENIED => match RejectState(x.u32(f::STATE_REJECT)?) {
            RejectState::RPC_MISMATCH => Outcome::RpcMismatch(x.u32(f::VERSION_MIN)?, x.u32(f::VERSION_MAX)?),
            RejectState::AUTH_ERROR => Outcome::AuthError(AuthState(x.u32(f::STATE_AUTH)?)),
            RejectState(other) => Outcome::Denied(other),
        },
        ReplyState(other) => Outcome::Unknown(other),
    };
    if T::ON && outcome != Outcome::Success {
        match outcome {
            Outcome::Failed(state) => x.t.info(format_args!("{state}")),
            Outcome::ProgramMismatch(low, high) => x.t.info(format_args!("program has versions {low} to {high}")),
            Outcome::RpcMismatch(low, high) => x.t.info(format_args!("RPC versions {low} to {high}")),
            Outcome::AuthError(state) => x.t.info(format_args!("{state}")),
            _ => x.t.info(format_args!("denied")),
        }
    }
    Ok(RpcReply { header, verifier, outcome })
}

/// A credential or verifier, within the bytes that it says it has.
fn auth<'a, T: Trace>(x: &mut Xdr<'a, '_, T>, credential: bool) -> Read<Auth<'a>> {
    let flavor = Flavor(x.u32(f::AUTH_FLAVOR)?);
    if !T::ON {
        return Ok(Auth { flavor, body: x.opaque(f::AUTH_BODY)? });
    }
    x.t.label(format_args!(": {flavor}"));
    let length = x.u32(f::AUTH_LENGTH)? as usize;
    let body = x.i.get(..length);
    if length > 0 {
        match (flavor, credential) {
            (Flavor::SYS, true) => x.within(f::AUTH_DATA, length, |x| sys(x).map(drop))?,
            (Flavor::GSS, true) => x.within(f::AUTH_DATA, length, |x| gss(x).map(drop))?,
            (Flavor::GSS, false) => drop(x.fixed(f::GSS_CHECKSUM, length)?),
            (_, false) if body == Some(b"STARTTLS") => drop(x.fixed(f::STARTTLS, length)?),
            _ => drop(x.fixed(f::AUTH_BODY, length)?),
        }
        if credential && matches!(flavor, Flavor::SYS | Flavor::GSS) {
            x.pad(length)?;
        }
    }
    Ok(Auth { flavor, body: body.unwrap_or(&[]) })
}

fn sys<'a, T: Trace>(x: &mut Xdr<'a, '_, T>) -> Read<AuthSys<'a>> {
    let stamp = x.u32(f::AUTH_STAMP)?;
    let machine = x.opaque(f::AUTH_MACHINE)?;
    let (uid, gid) = (x.u32(f::AUTH_UID)?, x.u32(f::AUTH_GID)?);
    let gids = x.scope(f::AUTH_GIDS, |x| {
        let n = x.list(xdr::f::COUNT, |x, _| x.u32(f::AUTH_GID).map(drop))?;
        if T::ON {
            x.t.label(format_args!(" ({n})"));
        }
        Ok(n)
    })?;
    Ok(AuthSys { stamp, machine, uid, gid, gids })
}

fn gss<'a, T: Trace>(x: &mut Xdr<'a, '_, T>) -> Read<GssCredential<'a>> {
    let at = x.i;
    let version = x.u32(f::GSS_VERSION)?;
    // version 2 (RFC 5403) has the same layout
    if version == 0 || version > 2 {
        return Err(Fault::value(f::GSS_VERSION, at));
    }
    Ok(GssCredential {
        procedure: GssProcedure(x.u32(f::GSS_PROCEDURE)?),
        sequence: x.u32(f::GSS_SEQNUM)?,
        service: GssService(x.u32(f::GSS_SERVICE)?),
        context: x.opaque(f::GSS_CONTEXT)?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trace::Tree;
    use alloc::vec;
    use proptest::prelude::*;

    fn words(words: &[u32]) -> Vec<u8> {
        words.iter().flat_map(|w| w.to_be_bytes()).collect()
    }

    /// stamp 7, "lab-client", uid 1000, gid 100, groups 4 and 24
    fn sys_body() -> Vec<u8> {
        let mut body = words(&[7, 10]);
        body.extend(b"lab-client\0\0");
        body.extend(words(&[1000, 100, 2, 4, 24]));
        body
    }

    fn a_call(credential: Auth<'_>, verifier: Auth<'_>) -> Vec<u8> {
        let header =
            CallHeader { xid: 0x9d34_a6f6, msgtyp: 0, rpc_version: 2, program: 100_003, version: 4, procedure: 1 };
        let mut out = vec![];
        RpcCall { header, credential, verifier, memo: Memo::new(Program::NFS, 4, 1) }.emit(&mut out);
        out
    }

    #[test]
    fn a_call_with_auth_sys_reads_back() {
        let body = sys_body();
        let mut bytes = a_call(Auth { flavor: Flavor::SYS, body: &body }, Auth::default());
        let end = bytes.len();
        bytes.extend(words(&[3, 0x6162_6300, 2, 0]));
        let mut tree = Tree::new();
        tree.begin(&bytes);
        let (rest, message) = parse(&bytes, None, &mut tree).unwrap();
        assert_eq!(parse(&bytes, None, &mut Off).unwrap(), (rest, message), "observers change nothing");
        let Message::Call(call) = message else { panic!("a call") };
        assert_eq!((rest.len(), call.header.xid, message.xid()), (16, 0x9d34_a6f6, 0x9d34_a6f6));
        let expected = AuthSys { stamp: 7, machine: b"lab-client", uid: 1000, gid: 100, gids: 2 };
        assert_eq!(call.credential.sys(), Some(expected));
        assert_eq!((call.memo.flavor, call.memo.minor, call.memo.procedure_name()), (Flavor::SYS, 2, Some("COMPOUND")));
        assert_eq!(
            (tree.number("rpc.program"), tree.number("rpc.auth.uid"), tree.all("rpc.auth.gid").count()),
            (Some(100_003), Some(1000), 3)
        );
        assert_eq!((tree.protocol, tree.info.as_str()), ("RPC", "V4 COMPOUND Call"));
        let mut out = vec![];
        call.emit(&mut out);
        assert_eq!(out, bytes[..end]);
        for n in 0..end {
            let mut tree = Tree::new();
            tree.begin(&bytes[..n]);
            let fault = fault_of(parse(&bytes[..n], None, &mut tree).unwrap_err());
            assert_eq!(tree.faults.len(), 1, "told once");
            assert!(fault.offset_in(&bytes[..n]).is_some_and(|o| o <= n));
            assert!(tree.nodes.iter().all(|node| (node.offset + node.len) as usize <= n), "prefix {n}");
            assert_eq!(
                (tree.number("rpc.program").is_some(), tree.number("rpc.auth.uid").is_some()),
                (n >= 16, n >= 56),
                "prefix {n}"
            );
        }
    }

    #[test]
    fn gss_framing_is_seen_through() {
        for service in [GssService::NONE, GssService::INTEGRITY, GssService::PRIVACY] {
            let credential = words(&[1, 0, 77, service.0, 4, 0xabcd_ef01]);
            let checksum = [9; 28];
            let mut bytes =
                a_call(Auth { flavor: Flavor::GSS, body: &credential }, Auth { flavor: Flavor::GSS, body: &checksum });
            let arguments = words(&[0, 1, 0]);
            match service {
                GssService::INTEGRITY => {
                    bytes.extend(words(&[16, 77]));
                    bytes.extend(&arguments);
                    bytes.extend(words(&[4, 0x1111_1111]));
                }
                GssService::PRIVACY => bytes.extend(words(&[8, 1, 2])),
                _ => bytes.extend(&arguments),
            }
            let mut tree = Tree::new();
            tree.begin(&bytes);
            let (rest, message) = dissect(&Stream::whole(&bytes), None, &mut tree, &mut ()).unwrap();
            let Message::Call(call) = message else { panic!("a call") };
            assert_eq!((rest.len(), call.memo.gss_service, call.memo.gss_procedure), (0, service, GssProcedure::DATA));
            assert_eq!(call.credential.gss().unwrap().context, &0xabcd_ef01_u32.to_be_bytes());
            assert!(tree.faults.is_empty());
            assert_eq!(call.memo.minor, u32::from(service != GssService::PRIVACY));
            let told = tree.all("rpc.authgss.seqnum").count();
            assert_eq!(told, if service == GssService::INTEGRITY { 2 } else { 1 });
            assert_eq!(tree.all("rpc.authgss.data").count(), usize::from(service == GssService::PRIVACY));
            assert_eq!(tree.all("rpc.authgss.checksum").count(), if service == GssService::INTEGRITY { 2 } else { 1 });
        }
    }

    #[test]
    fn a_gss_context_is_set_up() {
        let credential = words(&[1, 1, 0, 1, 0]);
        let mut bytes = a_call(Auth { flavor: Flavor::GSS, body: &credential }, Auth::default());
        bytes.extend(words(&[4, 0x6000_0000]));
        let mut tree = Tree::new();
        tree.begin(&bytes);
        let (_, message) = dissect(&Stream::whole(&bytes), None, &mut tree, &mut ()).unwrap();
        let Message::Call(call) = message else { panic!("a call") };
        assert_eq!((call.memo.gss_procedure, tree.all("rpc.authgss.token").count()), (GssProcedure::INIT, 1));
        let reply = words(&[0x9d34_a6f6, 1, 0, 6, 0, 0, 4, 0xaaaa_aaaa, 0, 0, 128, 4, 0x6000_0000]);
        tree.begin(&reply);
        let (rest, _) = dissect(&Stream::whole(&reply), Some(call.memo), &mut tree, &mut ()).unwrap();
        assert!(rest.is_empty() && tree.faults.is_empty());
        assert_eq!((tree.number("rpc.authgss.window"), tree.all("rpc.authgss.token").count()), (Some(128), 1));
    }

    #[test]
    fn a_tls_probe_is_answered() {
        let bytes = a_call(Auth { flavor: Flavor::TLS, body: &[] }, Auth::default());
        let Message::Call(call) = parse(&bytes, None, &mut Off).unwrap().1 else { panic!("a call") };
        assert!(call.memo.tls);
        let mut reply = words(&[1, 1, 0, 0, 8]);
        reply.extend(b"STARTTLS");
        reply.extend(words(&[0]));
        let mut tree = Tree::new();
        tree.begin(&reply);
        let (_, message) = parse(&reply, Some(call.memo), &mut tree).unwrap();
        let Message::Reply(reply) = message else { panic!("a reply") };
        assert_eq!((reply.outcome, reply.verifier.body), (Outcome::Success, &b"STARTTLS"[..]));
        assert_eq!(tree.all("rdmascope.rpc.auth.tls").count(), 1);
    }

    #[test]
    fn every_way_to_fail_is_read_and_reads_back() {
        let accepted = [5, 1, 0, 0, 0];
        let cases: &[(&[u32], &[u32], Outcome)] = &[
            (&accepted, &[0], Outcome::Success),
            (&accepted, &[1], Outcome::Failed(AcceptState::PROG_UNAVAIL)),
            (&accepted, &[2, 3, 4], Outcome::ProgramMismatch(3, 4)),
            (&accepted, &[3], Outcome::Failed(AcceptState::PROC_UNAVAIL)),
            (&accepted, &[4], Outcome::Failed(AcceptState::GARBAGE_ARGS)),
            (&accepted, &[5], Outcome::Failed(AcceptState::SYSTEM_ERR)),
            (&accepted, &[99], Outcome::Failed(AcceptState(99))),
            (&[5, 1, 1], &[0, 2, 2], Outcome::RpcMismatch(2, 2)),
            (&[5, 1, 1], &[1, 14], Outcome::AuthError(AuthState::GSS_CTXPROBLEM)),
            (&[5, 1, 1], &[2], Outcome::Denied(2)),
            (&[5, 1, 2], &[], Outcome::Unknown(2)),
        ];
        for (start, end, outcome) in cases {
            let bytes = [words(start), words(end)].concat();
            let (rest, message) = parse(&bytes, None, &mut Off).unwrap();
            let Message::Reply(reply) = message else { panic!("a reply") };
            assert_eq!((rest.len(), reply.outcome), (0, *outcome));
            let mut out = vec![];
            reply.emit(&mut out);
            assert_eq!(out, bytes);
            for n in 0..bytes.len() {
                assert!(parse(&bytes[..n], None, &mut Off).is_err());
            }
        }
        assert!(parse(&words(&[5, 2, 0]), None, &mut Off).is_err(), "neither call nor reply");
    }

    #[test]
    fn record_marks_read_back() {
        for (bytes, mark) in [
            ([0x80, 0, 0, 0x28], RecordMark { last: true, length: 40 }),
            ([0x7f, 0xff, 0xff, 0xff], RecordMark { last: false, length: 0x7fff_ffff }),
        ] {
            assert_eq!(RecordMark::parse(&bytes, &mut Off).unwrap().1, mark);
            let mut out = vec![];
            mark.emit(&mut out);
            assert_eq!(out, bytes);
        }
        assert!(RecordMark::parse(&[0; 3], &mut Off).is_err());
    }

    proptest! {
        #[test]
        fn any_bytes_decode_alike_for_every_observer(start in proptest::collection::vec(0_u32..8, 0..8), bytes in proptest::collection::vec(any::<u8>(), 0..120)) {
            let mut message = words(&start);
            message.extend(&bytes);
            let mut tree = Tree::new();
            tree.begin(&message);
            let with = parse(&message, None, &mut tree);
            let without = parse(&message, None, &mut Off);
            prop_assert_eq!(with.is_ok(), without.is_ok());
            if let (Ok(a), Ok(b)) = (with, without) {
                prop_assert_eq!(a, b);
            }
        }
    }
}
