//! RPC-over-RDMA version 1, RFC 8166: the transport header that opens every RDMA Send, with its three chunk lists.
//! All big-endian, XDR.
//!
//! ```text
//! xid · version · credits · procedure     fixed
//! (RDMA_MSGP: alignment · threshold)
//! read list   { 1 · position · handle · length · offset } … 0
//! write list  { 1 · count · { handle · length · offset } … } … 0
//! reply chunk   1 · count · { handle · length · offset } …  or 0
//! payload stream: the RPC message, less what was put into chunks; none with RDMA_NOMSG
//! ```
//!
//! The lists are walked once, while parsing; [`RpcRdma`] keeps slices of them that are known to be whole, so that its
//! iterators cannot fail and nothing is allocated. Segments of the read list with the same position are one read chunk.

use crate::fault::{Fault, PResult};
use crate::header::Vec;
use crate::leaf;
use crate::trace::{Trace, Value, scope};

/// The version of the protocol that this is (RFC 8166 4.2.2).
pub const VERSION: u32 = 1;

/// Bytes that a receiver takes inline at least, without other knowledge of it (RFC 8166 3.3.2).
pub const INLINE_DEFAULT: u32 = 1024;

wire_enum! {
    /// Type of the message (RFC 8166 4.2.4).
    pub enum Proc: u32 {
        MSG = 0, "RDMA_MSG";
        NOMSG = 1, "RDMA_NOMSG";
        MSGP = 2, "RDMA_MSGP";
        DONE = 3, "RDMA_DONE";
        ERROR = 4, "RDMA_ERROR";
    }
}

wire_enum! {
    /// Error of an RDMA_ERROR (RFC 8166 4.5).
    pub enum ErrorCode: u32 {
        VERS = 1, "ERR_VERS";
        CHUNK = 2, "ERR_CHUNK";
    }
}

fields! {
    /// The protocol and its lists.
    pub mod f ["RFC 8166 4"] {
        PROTOCOL: Protocol = "rpcordma", "RPC over RDMA";
        READS: U32 = "rpcordma.reads_count", "Read list", dec;
        WRITES: U32 = "rpcordma.writes_count", "Write list", dec;
        REPLY: U32 = "rpcordma.reply_count", "Reply chunk", dec;
        SEGMENTS: U32 = "rpcordma.segment_count", "Write chunk segment count", dec;
        WRITE_CHUNK: None = "rdmascope.rpcordma.write_chunk", "Write chunk";
        ERROR: None = "rdmascope.rpcordma.error", "Error";
        ERROR_CODE: U32 = "rpcordma.errcode", "Error code", dec, values ErrorCode::VALUES;
        MORE: U32 = "rdmascope.rpcordma.value_follows", "Value follows", dec;
        TRAILING: Bytes = "rdmascope.rpcordma.trailing", "Bytes behind the header";
    }
}

header! {
    /// The four words that stand first in every version of the protocol (RFC 8166 4.1).
    pub struct Fixed [NODE = "rdmascope.rpcordma.fixed", "Fixed header", "RFC 8166 4.1"] {
        /// The transaction id of the RPC message, copied so that it can be matched where that message lies in a chunk.
        xid: be32 = "rpcordma.xid", "XID", hex;
        version: be32 = "rpcordma.version", "Version", dec;
        /// From a requester: credits asked for. From a responder: credits granted, in all.
        credits: be32 = "rpcordma.flow_control", "Flow Control", dec;
        proc: be32 = "rpcordma.msg_type", "Message Type", dec, values Proc::VALUES;
    }
}

header! {
    /// Fields of RDMA_MSGP before its lists (RFC 8166 4.2.4; obsolete).
    pub struct Padding [NODE = "rdmascope.rpcordma.padding", "Padding", "RFC 8166 4.2"] {
        align: be32 = "rpcordma.rdma_align", "RDMA align", dec;
        threshold: be32 = "rpcordma.rdma_thresh", "RDMA threshold", dec;
    }
}

header! {
    /// A piece of registered memory (RFC 8166 3.4.3).
    pub struct Segment [NODE = "rdmascope.rpcordma.segment", "RDMA segment", "RFC 8166 3.4.3"] {
        /// The remote key: InfiniBand R_Key, iWARP STag.
        handle: be32 = "rpcordma.rdma_handle", "RDMA handle", hex;
        /// In bytes. In a reply: what the responder wrote.
        length: be32 = "rpcordma.rdma_length", "RDMA length", dec;
        /// The address, or the offset from a zero-based key.
        offset: be64 = "rpcordma.rdma_offset", "RDMA offset", hex;
    }
}

header! {
    /// A segment of the read list, with the place in the XDR stream that its bytes were taken from (RFC 8166 3.4.5).
    pub struct ReadSegment [NODE = "rdmascope.rpcordma.read_segment", "Read segment", "RFC 8166 3.4.5"] {
        /// Bytes from the start of the RPC message, as if nothing had been taken out; 0 where the message itself is
        /// here.
        position: be32 = "rpcordma.position", "Position in XDR", dec;
        handle: be32 = "rpcordma.rdma_handle", "RDMA handle", hex;
        /// In bytes.
        length: be32 = "rpcordma.rdma_length", "RDMA length", dec;
        offset: be64 = "rpcordma.rdma_offset", "RDMA offset", hex;
    }
}

header! {
    /// The versions that the sender of ERR_VERS speaks (RFC 8166 4.5.1).
    pub struct Versions [NODE = "rdmascope.rpcordma.versions", "Versions", "RFC 8166 4.5.1"] {
        low: be32 = "rpcordma.vers_low", "Version low", dec;
        high: be32 = "rpcordma.vers_high", "Version high", dec;
    }
}

impl ReadSegment {
    /// The memory, without the position.
    pub const fn segment(&self) -> Segment {
        Segment { handle: self.handle, length: self.length, offset: self.offset }
    }
}

/// The read list.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Reads<'a> {
    /// Elements, each with the word 1 before it, without the final 0.
    bytes: &'a [u8],
}

impl<'a> Reads<'a> {
    const ELEMENT: usize = 4 + ReadSegment::LEN;

    /// The list whose elements are these bytes, as [`emit_reads`] writes them.
    pub const fn of(bytes: &'a [u8]) -> Self {
        Self { bytes }
    }

    /// The elements as they stand in the header.
    pub const fn bytes(&self) -> &'a [u8] {
        self.bytes
    }

    /// Number of segments.
    pub const fn len(&self) -> usize {
        self.bytes.len() / Self::ELEMENT
    }

    /// True if the list has no segments.
    pub const fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// The segments, in order.
    pub fn iter(&self) -> impl Iterator<Item = ReadSegment> + Clone + use<'a> {
        self.bytes
            .chunks_exact(Self::ELEMENT)
            .filter_map(|e| ReadSegment::parse_flat(&e[4..], &mut crate::trace::Off).ok())
            .map(|(_, s)| s)
    }

    /// The segments of the chunk at `position`.
    pub fn at(&self, position: u32) -> impl Iterator<Item = Segment> + Clone + use<'a> {
        self.iter().filter(move |s| s.position == position).map(|s| s.segment())
    }

    /// Takes the first chunk off the list: the segments up to where the position changes.
    pub fn next_chunk(&mut self) -> Option<Self> {
        let position = self.iter().next()?.position;
        let n = self.iter().take_while(|s| s.position == position).count();
        let (chunk, rest) = self.bytes.split_at_checked(n * Self::ELEMENT)?;
        self.bytes = rest;
        Some(Self { bytes: chunk })
    }

    /// True if the RPC message itself is in the read list (a Position-Zero Read chunk, RFC 8166 3.5.3).
    pub fn has_message(&self) -> bool {
        self.iter().any(|s| s.position == 0)
    }

    /// Bytes in all.
    pub fn length(&self) -> u64 {
        self.iter().map(|s| u64::from(s.length)).sum()
    }
}

/// The segments of one write chunk, or of the reply chunk.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Chunk<'a> {
    bytes: &'a [u8],
}

impl<'a> Chunk<'a> {
    /// Number of segments.
    pub const fn len(&self) -> usize {
        self.bytes.len() / Segment::LEN
    }

    /// True if the chunk has no segments.
    pub const fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// The segments, in order.
    pub fn segments(&self) -> impl Iterator<Item = Segment> + Clone + use<'a> {
        self.bytes
            .chunks_exact(Segment::LEN)
            .filter_map(|e| Segment::parse_flat(e, &mut crate::trace::Off).ok())
            .map(|(_, s)| s)
    }

    /// Bytes in all: room in a call, bytes written in a reply. 0 in a reply marks a chunk that was not used.
    pub fn length(&self) -> u64 {
        self.segments().map(|s| u64::from(s.length)).sum()
    }
}

/// The write list.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Writes<'a> {
    /// Elements, each with the word 1 and its count before it, without the final 0.
    bytes: &'a [u8],
    count: u32,
}

impl<'a> Writes<'a> {
    /// Number of chunks.
    pub const fn len(&self) -> usize {
        self.count as usize
    }

    /// True if the list has no chunks.
    pub const fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// The chunks, in order.
    pub const fn iter(&self) -> Chunks<'a> {
        Chunks { bytes: self.bytes }
    }
}

/// The chunks of a write list.
#[derive(Clone, Debug, Default)]
pub struct Chunks<'a> {
    bytes: &'a [u8],
}

impl<'a> Iterator for Chunks<'a> {
    type Item = Chunk<'a>;

    fn next(&mut self) -> Option<Chunk<'a>> {
        let (_, i) = self.bytes.split_at_checked(4)?;
        let (i, count) = leaf::be32(i).ok()?;
        let (bytes, rest) = i.split_at_checked((count as usize).checked_mul(Segment::LEN)?)?;
        self.bytes = rest;
        Some(Chunk { bytes })
    }
}

/// Content of an RDMA_ERROR.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Error {
    /// The version is not spoken; the lowest and highest that are.
    Vers(Versions),
    /// The chunk lists could not be read, or do not suffice for the reply.
    Chunk,
    /// An error code that is not defined.
    Unknown(u32),
}

/// An RPC-over-RDMA header. Borrows its lists.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RpcRdma<'a> {
    /// Its first four words.
    pub fixed: Fixed,
    /// The read list; empty in a reply.
    pub reads: Reads<'a>,
    /// The write list.
    pub writes: Writes<'a>,
    /// The reply chunk.
    pub reply: Option<Chunk<'a>>,
    /// Alignment and threshold of RDMA_MSGP.
    pub padding: Option<Padding>,
    /// Error code and values of RDMA_ERROR.
    pub error: Option<Error>,
    /// The payload stream: the bytes behind the header in the Send. With RDMA_NOMSG, RDMA_DONE and RDMA_ERROR it should
    /// be empty.
    pub payload: &'a [u8],
}

impl<'a> RpcRdma<'a> {
    /// Type of the message.
    pub const fn proc(&self) -> Proc {
        Proc(self.fixed.proc)
    }

    /// True if the RPC message is not in the Send but in a Position-Zero Read chunk or the reply chunk.
    pub const fn is_long(&self) -> bool {
        self.fixed.proc == Proc::NOMSG.0
    }

    /// The first word of its lists that says if something follows, and is neither 0 nor 1 (RFC 4506 4.4, 4.19).
    /// `message` is the Send that it was decoded from.
    pub fn odd_word(&self, message: &[u8]) -> Option<u32> {
        let word = |bytes: &[u8]| bytes.first_chunk().map(|word| u32::from_be_bytes(*word));
        let reads = self.reads.bytes.chunks_exact(Reads::ELEMENT).filter_map(word);
        let mut left = self.writes.bytes;
        let writes = self.writes.iter().filter_map(|chunk| {
            let more = word(left);
            left = left.get(8 + chunk.bytes.len()..)?;
            more
        });
        let lists = Fixed::LEN + self.padding.map_or(0, |_| Padding::LEN);
        // behind each list stands a 0
        let reply = lists + self.reads.bytes.len() + 4 + self.writes.bytes.len() + 4;
        let reply = self.reply.and_then(|_| word(message.get(reply..)?));
        reads.chain(writes).chain(reply).find(|word| *word > 1)
    }

    /// Decodes the header of a Send in a protocol subtree of its own. The rest is the payload stream, which is left to
    /// the caller. Of another version, errors apart, and of unknown message types, only the four fixed words are
    /// decoded, and the bytes behind them are the payload.
    ///
    /// # Errors
    /// If the bytes end inside the header: the fault names the list that is cut. [`Fixed::parse_flat`] reports the
    /// words before it.
    pub fn parse<T: Trace>(message: &'a [u8], t: &mut T) -> PResult<'a, Self> {
        t.protocol("RPCoRDMA");
        scope(f::PROTOCOL, message, t, |i, t| {
            let (i, fixed) = Fixed::parse_flat(i, t)?;
            if T::ON {
                t.info(format_args!("{}", Proc(fixed.proc)));
            }
            let mut header = Self {
                fixed,
                reads: Reads::default(),
                writes: Writes::default(),
                reply: None,
                padding: None,
                error: None,
                payload: i,
            };
            if fixed.version != VERSION {
                if T::ON {
                    t.info(format_args!("version {}", fixed.version));
                }
                // an error answers in the version of the call (RFC 8166 4.5)
                if header.proc() != Proc::ERROR {
                    return Ok((i, header));
                }
            }
            let mut i = i;
            match header.proc() {
                Proc::MSG | Proc::NOMSG => i = header.lists(i, t)?.0,
                Proc::MSGP => {
                    let (rest, padding) = Padding::parse_flat(i, t)?;
                    header.padding = Some(padding);
                    i = header.lists(rest, t)?.0;
                }
                Proc::ERROR => {
                    let (rest, error) = scope(f::ERROR, i, t, error)?;
                    header.error = Some(error);
                    i = rest;
                }
                _ => {}
            }
            header.payload = i;
            if T::ON && !i.is_empty() && matches!(header.proc(), Proc::NOMSG | Proc::DONE | Proc::ERROR) {
                t.field(f::TRAILING, i, i.len(), Value::Bytes(i));
            }
            Ok((i, header))
        })
    }

    fn lists<T: Trace>(&mut self, i: &'a [u8], t: &mut T) -> PResult<'a, ()> {
        let (i, reads) = read_list(i, t)?;
        let (i, writes) = write_list(i, t)?;
        let (i, reply) = reply_chunk(i, t)?;
        (self.reads, self.writes, self.reply) = (reads, writes, reply);
        if T::ON {
            if !reads.is_empty() {
                t.info(format_args!("{} read segments, {} bytes", reads.len(), reads.length()));
            }
            for chunk in writes.iter() {
                t.info(format_args!("write chunk of {} bytes", chunk.length()));
            }
            if let Some(chunk) = reply {
                t.info(format_args!("reply chunk of {} bytes", chunk.length()));
            }
        }
        Ok((i, ()))
    }

    /// Encodes the header at the end of `out`; the payload is left to the caller.
    pub fn emit(&self, out: &mut Vec<u8>) {
        let word = |out: &mut Vec<u8>, v: u32| out.extend_from_slice(&v.to_be_bytes());
        self.fixed.emit(out);
        if self.fixed.version != VERSION && self.error.is_none() {
            return;
        }
        if let Some(padding) = &self.padding {
            padding.emit(out);
        }
        match self.error {
            Some(Error::Vers(versions)) => {
                word(out, ErrorCode::VERS.0);
                versions.emit(out);
            }
            Some(Error::Chunk) => word(out, ErrorCode::CHUNK.0),
            Some(Error::Unknown(code)) => word(out, code),
            None => {}
        }
        if !matches!(self.proc(), Proc::MSG | Proc::NOMSG | Proc::MSGP) {
            return;
        }
        out.extend_from_slice(self.reads.bytes);
        word(out, 0);
        out.extend_from_slice(self.writes.bytes);
        word(out, 0);
        match self.reply {
            Some(chunk) => {
                word(out, 1);
                word(out, chunk.len() as u32);
                out.extend_from_slice(chunk.bytes);
            }
            None => word(out, 0),
        }
    }
}

/// Encodes the segments of a read list, in the form that [`Reads`] borrows.
pub fn emit_reads(segments: &[ReadSegment], out: &mut Vec<u8>) {
    for segment in segments {
        out.extend_from_slice(&1_u32.to_be_bytes());
        segment.emit(out);
    }
}

/// Encodes one write chunk, in the form that [`Writes`] borrows.
pub fn emit_chunk(segments: &[Segment], out: &mut Vec<u8>) {
    out.extend_from_slice(&1_u32.to_be_bytes());
    out.extend_from_slice(&(segments.len() as u32).to_be_bytes());
    for segment in segments {
        segment.emit(out);
    }
}

/// Encodes all three lists of a header, from the read list on.
pub fn emit_lists(reads: &[ReadSegment], writes: &[Vec<Segment>], reply: Option<&[Segment]>, out: &mut Vec<u8>) {
    emit_reads(reads, out);
    out.extend_from_slice(&[0; 4]);
    for chunk in writes {
        emit_chunk(chunk, out);
    }
    out.extend_from_slice(&[0; 4]);
    match reply {
        Some(segments) => emit_chunk(segments, out),
        None => out.extend_from_slice(&[0; 4]),
    }
}

fn error<'a, T: Trace>(i: &'a [u8], t: &mut T) -> PResult<'a, Error> {
    let (i, code) = leaf::read::be32(f::ERROR_CODE, i, t)?;
    if T::ON {
        t.info(format_args!("{}", ErrorCode(code)));
    }
    match ErrorCode(code) {
        ErrorCode::VERS => {
            let (i, versions) = Versions::parse_flat(i, t)?;
            Ok((i, Error::Vers(versions)))
        }
        ErrorCode::CHUNK => Ok((i, Error::Chunk)),
        _ => Ok((i, Error::Unknown(code))),
    }
}

/// The word before a list element: whether one follows. Any value but 0 counts as yes, as with XDR booleans of the
/// kernels.
fn more(def: crate::field::Def, i: &[u8]) -> PResult<'_, bool> {
    match leaf::be32(i) {
        Ok((rest, v)) => Ok((rest, v != 0)),
        Err(_) => Fault::short(Some(def), i, 4).fail(),
    }
}

fn read_list<'a, T: Trace>(start: &'a [u8], t: &mut T) -> PResult<'a, Reads<'a>> {
    // the count stands before its elements in the tree, so a first walk finds the end; the second one reports
    let mut i = start;
    let mut whole = true;
    loop {
        let Ok((rest, follows)) = more(f::READS, i) else {
            whole = false;
            break;
        };
        if !follows {
            break;
        }
        let Some((_, rest)) = rest.split_at_checked(ReadSegment::LEN) else {
            whole = false;
            break;
        };
        i = rest;
    }
    let reads = Reads { bytes: &start[..start.len() - i.len()] };
    if whole && !T::ON {
        return Ok((&i[4..], reads));
    }
    let length = reads.bytes.len() + i.len().min(4);
    t.field(f::READS, start, length, Value::U(reads.len() as u64));
    t.down();
    let mut at = start;
    let result = loop {
        let (rest, follows) = match more(f::MORE, at) {
            Ok(v) => v,
            Err(e) => break Err(e),
        };
        if !follows {
            break Ok((rest, reads));
        }
        match ReadSegment::parse(rest, t) {
            Ok((rest, _)) => at = rest,
            Err(e) => break Err(e),
        }
    };
    t.up();
    result
}

/// The segments of a chunk: their count is bounded by the bytes before anything is done with it.
fn chunk<'a, T: Trace>(i: &'a [u8], t: &mut T) -> PResult<'a, Chunk<'a>> {
    let (i, count) = leaf::read::be32(f::SEGMENTS, i, t)?;
    let bytes = (count as usize).checked_mul(Segment::LEN).and_then(|n| i.get(..n));
    if let Some(bytes) = bytes.filter(|_| !T::ON) {
        return Ok((&i[bytes.len()..], Chunk { bytes }));
    }
    let mut at = i;
    for _ in 0..count {
        at = Segment::parse(at, t)?.0;
    }
    Ok((at, Chunk { bytes: &i[..i.len() - at.len()] }))
}

fn write_list<'a, T: Trace>(start: &'a [u8], t: &mut T) -> PResult<'a, Writes<'a>> {
    let mut i = start;
    let mut count = 0_u32;
    let mut whole = true;
    loop {
        let Ok((rest, follows)) = more(f::WRITES, i) else {
            whole = false;
            break;
        };
        if !follows {
            break;
        }
        match chunk(rest, &mut crate::trace::Off) {
            Ok((rest, _)) => i = rest,
            Err(_) => {
                whole = false;
                break;
            }
        }
        count += 1;
    }
    let writes = Writes { bytes: &start[..start.len() - i.len()], count };
    if whole && !T::ON {
        return Ok((&i[4..], writes));
    }
    let length = writes.bytes.len() + i.len().min(4);
    t.field(f::WRITES, start, length, Value::U(u64::from(count)));
    t.down();
    let mut at = start;
    let result = loop {
        let (rest, follows) = match more(f::MORE, at) {
            Ok(v) => v,
            Err(e) => break Err(e),
        };
        if !follows {
            break Ok((rest, writes));
        }
        match scope(f::WRITE_CHUNK, rest, t, chunk) {
            Ok((rest, _)) => at = rest,
            Err(e) => break Err(e),
        }
    };
    t.up();
    result
}

fn reply_chunk<'a, T: Trace>(start: &'a [u8], t: &mut T) -> PResult<'a, Option<Chunk<'a>>> {
    let (i, follows) = more(f::REPLY, start)?;
    if !follows {
        t.field(f::REPLY, start, 4, Value::U(0));
        return Ok((i, None));
    }
    if !T::ON {
        return chunk(i, t).map(|(i, c)| (i, Some(c)));
    }
    let end = chunk(i, &mut crate::trace::Off).map_or(start.len(), |(rest, _)| start.len() - rest.len());
    t.field(f::REPLY, start, end, Value::U(1));
    t.down();
    let result = chunk(i, t);
    t.up();
    result.map(|(i, c)| (i, Some(c)))
}

/// Kind of a message, as [`recognize`] sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MessageKind {
    /// An RPC call, inline.
    Call,
    /// An RPC reply, inline.
    Reply,
    /// A call in a Position-Zero Read chunk.
    LongCall,
    /// A reply in the reply chunk, or a call of which nothing is inline but which offers one.
    LongReply,
    /// RDMA_DONE: weak, four words speak for it.
    Done,
    /// RDMA_ERROR.
    Error,
}

/// More credits than any implementation asks for or grants: a message with more is of another protocol.
const CREDITS_PLAUSIBLE: u32 = 0xffff;

/// Recognizes `message`, a whole Send of a connection whose handshake is not known, as probable RPC-over-RDMA: version
/// 1, a known message type, credits in reason, lists that can be read, and inside them an RPC message with the same
/// XID. Messages of SMB Direct are not taken for it (their second word cannot be 1 while their reserved fields are 0).
pub fn recognize(message: &[u8]) -> Option<MessageKind> {
    let (_, fixed) = Fixed::parse_flat(message, &mut crate::trace::Off).ok()?;
    if fixed.version != VERSION || fixed.proc > Proc::ERROR.0 || fixed.credits == 0 || fixed.credits > CREDITS_PLAUSIBLE
    {
        return None;
    }
    let (payload, header) = RpcRdma::parse(message, &mut crate::trace::Off).ok()?;
    match header.proc() {
        Proc::MSG | Proc::MSGP => {
            let (i, xid) = leaf::be32(payload).ok()?;
            let (_, kind) = leaf::be32(i).ok()?;
            match (xid == fixed.xid, kind) {
                (true, 0) => Some(MessageKind::Call),
                (true, 1) if header.reads.is_empty() => Some(MessageKind::Reply),
                _ => None,
            }
        }
        Proc::NOMSG if !payload.is_empty() => None,
        Proc::NOMSG if header.reads.has_message() => Some(MessageKind::LongCall),
        Proc::NOMSG if header.reply.is_some_and(|c| !c.is_empty()) => Some(MessageKind::LongReply),
        Proc::DONE if payload.is_empty() => Some(MessageKind::Done),
        Proc::ERROR if payload.is_empty() && !matches!(header.error, Some(Error::Unknown(_))) => {
            Some(MessageKind::Error)
        }
        _ => None,
    }
}

/// True if [`recognize`] finds anything.
pub fn looks_like(message: &[u8]) -> bool {
    recognize(message).is_some()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fault::fault_of;
    use crate::trace::{Off, Tree};
    use alloc::vec;
    use proptest::prelude::*;

    fn words(words: &[u32]) -> Vec<u8> {
        words.iter().flat_map(|w| w.to_be_bytes()).collect()
    }

    /// A call with two read chunks (three segments), two write chunks and a reply chunk, then the start of an RPC call.
    fn full() -> Vec<u8> {
        let mut out = words(&[0x1234_5678, 1, 32, 0]);
        out.extend(words(&[
            1, 148, 0xaa01, 4096, 0x7f, 0x1000, 1, 148, 0xaa02, 100, 0x7f, 0x2000, 1, 200, 0xaa03, 7, 0, 0, 0,
        ]));
        out.extend(words(&[1, 2, 0xbb01, 8192, 0, 0x3000, 0xbb02, 1, 0, 0x4000, 1, 0, 0]));
        out.extend(words(&[1, 1, 0xcc01, 65536, 0xffff_ffff, 0xffff_f000]));
        out.extend(words(&[0x1234_5678, 0, 2, 100_003, 3, 6]));
        out
    }

    #[test]
    fn a_header_with_every_list_reads_back() {
        let bytes = full();
        let (payload, header) = RpcRdma::parse(&bytes, &mut Off).unwrap();
        assert_eq!(payload, &bytes[bytes.len() - 24..]);
        assert_eq!((header.fixed.xid, header.fixed.credits, header.proc()), (0x1234_5678, 32, Proc::MSG));
        assert_eq!(header.reads.len(), 3);
        let reads: Vec<_> = header.reads.iter().collect();
        assert_eq!(reads[1], ReadSegment { position: 148, handle: 0xaa02, length: 100, offset: 0x7f_0000_2000 });
        assert_eq!(header.reads.at(148).map(|s| s.length).sum::<u32>(), 4196);
        assert!(!header.reads.has_message());
        let chunks: Vec<_> = header.writes.iter().collect();
        assert_eq!((header.writes.len(), chunks.len(), chunks[0].len(), chunks[1].len()), (2, 2, 2, 0));
        assert_eq!(chunks[0].length(), 8193);
        assert_eq!(header.reply.unwrap().segments().next().unwrap().offset, 0xffff_ffff_ffff_f000);
        let mut out = Vec::new();
        header.emit(&mut out);
        out.extend_from_slice(payload);
        assert_eq!(out, bytes);
        assert_eq!(recognize(&bytes), Some(MessageKind::Call));
    }

    #[test]
    fn an_error_is_read_in_the_version_of_its_call() {
        let bytes = words(&[7, 2, 32, 4, 1, 1, 1]);
        let (payload, header) = RpcRdma::parse(&bytes, &mut Off).unwrap();
        assert_eq!((header.error, payload.len()), (Some(Error::Vers(Versions { low: 1, high: 1 })), 0));
        let mut out = Vec::new();
        header.emit(&mut out);
        assert_eq!(out, bytes);
        // the rest of another version's header is unknown
        let (payload, header) =
            RpcRdma::parse(&words(&[7, 2, 32, 0, 9, 9]), &mut Off).map(|(i, h)| (i.len(), h.error)).unwrap();
        assert_eq!((payload, header), (8, None));
    }

    #[test]
    fn the_tree_has_counts_before_their_elements() {
        let bytes = full();
        let mut tree = Tree::new();
        tree.begin(&bytes);
        let (_, header) = RpcRdma::parse(&bytes, &mut tree).unwrap();
        assert_eq!(header, RpcRdma::parse(&bytes, &mut Off).unwrap().1, "observers change nothing");
        assert_eq!((tree.number("rpcordma.reads_count"), tree.number("rpcordma.writes_count")), (Some(3), Some(2)));
        assert_eq!(tree.number("rpcordma.reply_count"), Some(1));
        assert_eq!(tree.all("rpcordma.rdma_handle").count(), 6);
        assert_eq!(tree.all("rpcordma.position").count(), 3);
        let reads = tree.all("rpcordma.reads_count").next().unwrap();
        assert_eq!((reads.offset, reads.len), (16, 3 * 24 + 4));
        assert_eq!(tree.protocol, "RPCoRDMA");
        assert!(tree.info.starts_with("RDMA_MSG, 3 read segments"));
    }

    #[test]
    fn every_prefix_gives_its_fields_and_a_fault() {
        let bytes = full();
        let end = bytes.len() - 24;
        for n in 0..end {
            let mut tree = Tree::new();
            tree.begin(&bytes[..n]);
            let fault = fault_of(RpcRdma::parse(&bytes[..n], &mut tree).unwrap_err());
            assert_eq!(tree.faults.len(), 1, "told once");
            assert!(fault.offset_in(&bytes[..n]).is_some_and(|o| o <= n));
            assert!(tree.nodes.iter().all(|node| (node.offset + node.len) as usize <= n), "prefix {n}");
            assert!(RpcRdma::parse(&bytes[..n], &mut Off).is_err());
            assert_eq!(tree.number("rpcordma.xid").is_some(), n >= 4);
            assert_eq!(tree.all("rpcordma.position").count(), [24, 48, 72].iter().filter(|end| n >= **end).count());
            assert!(!looks_like(&bytes[..n]));
        }
    }

    #[test]
    fn errors_done_and_padded_messages() {
        let vers = words(&[7, 1, 8, 4, 1, 1, 1]);
        let (rest, header) = RpcRdma::parse(&vers, &mut Off).unwrap();
        assert!(rest.is_empty());
        assert_eq!(header.error, Some(Error::Vers(Versions { low: 1, high: 1 })));
        assert_eq!(recognize(&vers), Some(MessageKind::Error));
        let chunk = words(&[7, 1, 8, 4, 2]);
        assert_eq!(RpcRdma::parse(&chunk, &mut Off).unwrap().1.error, Some(Error::Chunk));
        let unknown = words(&[7, 1, 8, 4, 9]);
        assert_eq!(RpcRdma::parse(&unknown, &mut Off).unwrap().1.error, Some(Error::Unknown(9)));
        assert!(!looks_like(&unknown));
        let done = words(&[7, 1, 8, 3]);
        assert_eq!(recognize(&done), Some(MessageKind::Done));
        let padded = words(&[7, 1, 8, 2, 64, 1024, 0, 0, 0, 7, 1, 0, 0]);
        let (payload, header) = RpcRdma::parse(&padded, &mut Off).unwrap();
        assert_eq!((header.padding, payload.len()), (Some(Padding { align: 64, threshold: 1024 }), 16));
        assert_eq!(recognize(&padded), Some(MessageKind::Reply));
        for bytes in [vers, chunk, unknown, done, padded] {
            let (payload, header) = RpcRdma::parse(&bytes, &mut Off).unwrap();
            let mut out = Vec::new();
            header.emit(&mut out);
            out.extend_from_slice(payload);
            assert_eq!(out, bytes);
        }
    }

    #[test]
    fn another_version_keeps_its_fixed_words() {
        let bytes = words(&[7, 2, 8, 0, 0xdead]);
        let (payload, header) = RpcRdma::parse(&bytes, &mut Off).unwrap();
        assert_eq!((header.fixed.version, payload.len()), (2, 4));
        assert!(!looks_like(&bytes));
    }

    #[test]
    fn other_protocols_are_not_taken_for_it() {
        assert!(!looks_like(&[0; 20]));
        assert!(!looks_like(&[0; 200]));
        // [MS-SMBD] 4.1 and 4.2: the negotiate messages; 4.4: a data transfer message
        let request = [0, 1, 0, 1, 0, 0, 10, 0, 0, 4, 0, 0, 0, 4, 0, 0, 0, 0, 2, 0];
        assert!(!looks_like(&request));
        let response =
            [0, 1, 0, 1, 0, 1, 0, 0, 10, 0, 1, 0, 0, 0, 0, 0, 0, 0, 16, 0, 0, 4, 0, 0, 0, 4, 0, 0, 0, 0, 2, 0];
        assert!(!looks_like(&response));
        for flags in [0, 1] {
            for credits in [0, 1, 10, 255] {
                let data = [
                    credits, 0, credits, 0, flags, 0, 0, 0, 0, 0, 0, 0, 24, 0, 0, 0, 4, 0, 0, 0, 0, 0, 0, 0, 1, 2, 3, 4,
                ];
                assert!(!looks_like(&data));
            }
        }
        // the XID inside is another one; credits that nobody grants
        assert!(!looks_like(&words(&[7, 1, 8, 0, 0, 0, 0, 8, 0])));
        assert!(!looks_like(&words(&[7, 1, 0, 0, 0, 0, 0, 7, 0])));
        assert!(!looks_like(&words(&[7, 1, 0x1_0000, 0, 0, 0, 0, 7, 0])));
    }

    #[test]
    fn a_count_beyond_the_bytes_is_a_fault_at_once() {
        let bytes = words(&[7, 1, 8, 0, 0, 1, u32::MAX, 0, 0]);
        assert!(RpcRdma::parse(&bytes, &mut Off).is_err());
        let mut tree = Tree::new();
        tree.begin(&bytes);
        assert!(RpcRdma::parse(&bytes, &mut tree).is_err());
        assert_eq!(tree.number("rpcordma.segment_count"), Some(u64::from(u32::MAX)));
        assert!(tree.nodes.len() < 20);
    }

    proptest! {
        #[test]
        fn any_bytes_decode_alike_for_every_observer(bytes in proptest::collection::vec(any::<u8>(), 0..200), proc in 0_u32..6, lists in proptest::collection::vec(0_u32..3, 0..40)) {
            let mut message = words(&[7, 1, 8, proc]);
            message.extend(words(&lists));
            message.extend(&bytes);
            for message in [&message, &bytes] {
                let mut tree = Tree::new();
                tree.begin(message);
                let with = RpcRdma::parse(message, &mut tree);
                let without = RpcRdma::parse(message, &mut Off);
                prop_assert_eq!(with.is_ok(), without.is_ok());
                if let (Ok((a, with)), Ok((b, without))) = (with, without) {
                    prop_assert_eq!(a, b);
                    prop_assert_eq!(with, without);
                }
            }
        }

        #[test]
        fn lists_read_back(reads in proptest::collection::vec((any::<u32>(), any::<u32>(), any::<u32>(), any::<u64>()), 0..9), writes in proptest::collection::vec(proptest::collection::vec((any::<u32>(), any::<u32>(), any::<u64>()), 0..4), 0..5), reply in any::<bool>()) {
            let reads: Vec<_> = reads.into_iter().map(|(position, handle, length, offset)| ReadSegment { position, handle, length, offset }).collect();
            let writes: Vec<Vec<_>> = writes.into_iter().map(|c| c.into_iter().map(|(handle, length, offset)| Segment { handle, length, offset }).collect()).collect();
            let mut message = words(&[7, 1, 8, 1]);
            let segment = [Segment { handle: 1, length: 2, offset: 3 }];
            emit_lists(&reads, &writes, reply.then_some(&segment[..]), &mut message);
            let (rest, header) = RpcRdma::parse(&message, &mut Off).unwrap();
            prop_assert!(rest.is_empty());
            prop_assert_eq!(header.reads.iter().collect::<Vec<_>>(), reads);
            prop_assert_eq!(header.writes.iter().map(|c| c.segments().collect::<Vec<_>>()).collect::<Vec<_>>(), writes);
            prop_assert_eq!(header.reply.is_some(), reply);
            let mut out = vec![];
            header.emit(&mut out);
            prop_assert_eq!(out, message);
        }
    }
}
