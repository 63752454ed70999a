//! Userspace iWARP: MPA (RFC 5044, RFC 6581), DDP (RFC 5041) and RDMAP (RFC 5040) over any ordered stream of bytes. It
//! has no socket and no clock.
//!
//! ```text
//! bytes of the stream ─▶ handle_bytes    poll_transmit ─▶ bytes for the stream
//! now                 ─▶ handle_timeout  poll_timeout  ─▶ time to call it
//! user operations     ─▶ send write read poll_event    ─▶ events
//! ```
//!
//! A violation by the peer ends the connection with a Terminate that names it; nothing outside registered memory is
//! ever written.

mod carrier;
mod cases;
mod framing;
pub use super::memory;
mod record;
#[cfg(test)]
mod tests;

pub(crate) use carrier::segment;
pub use carrier::{Carrier, Iwarp};

pub use crate::transport::{OpError, Time};

use self::framing::{Deframer, Frame};
use self::memory::{Handle, Refusal, Regions, Rights};
use rdmascope_analyzer::flow::violation::Violation;
use rdmascope_dissector::trace::Off;
use rdmascope_dissector::wire::iwarp::ddp::{self, Buffer, Ddp, Tagged, Untagged};
use rdmascope_dissector::wire::iwarp::mpa;
use rdmascope_dissector::wire::iwarp::rdmap::{
    self, Opcode, QUEUE_READ_REQUEST, QUEUE_SEND, QUEUE_TERMINATE, Quoted, ReadRequest, Terminate,
};
use std::collections::VecDeque;
use thiserror::Error;

/// The row of iWARP in user space.
pub const KIND: crate::transport::Kind = crate::transport::Kind {
    name: "iwarp",
    text: "iWARP in user space, over TCP: needs no adapter",
    // [MS-SMBD] 2.1
    port: 5445,
    faults_below: true,
    private_data: mpa::PRIVATE_DATA_MAX,
    open: || Ok(std::sync::Arc::new(Iwarp::for_soft_iwarp())),
    cases: cases::CASES,
    faults: &[],
};

/// Configuration of a connection.
#[derive(Clone, Debug)]
pub struct Config {
    /// MPA revision to request: 1 or 2 (RFC 6581).
    pub revision: u8,
    /// Request CRCs. They are used if either end requests them.
    pub crc: bool,
    /// Request markers in the data that we receive.
    pub markers: bool,
    /// Number of the peer's reads that we answer at a time.
    pub ird: u16,
    /// Maximum number of our outstanding reads.
    pub ord: u16,
    /// Put the read depths of \[MS-SMBD\] 6.1 into the private data.
    pub legacy_depths: bool,
    /// Maximum size of a DDP segment with its header, in bytes.
    pub mulpdu: u16,
    /// Maximum size of a Send that we receive, in bytes.
    pub receive_max: u32,
    /// ns until the MPA Request or Reply must have come.
    pub startup_timeout: i64,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            revision: 2,
            crc: true,
            markers: false,
            ird: 16,
            ord: 16,
            legacy_depths: true,
            mulpdu: 16_384,
            receive_max: 65_536,
            startup_timeout: 10_000_000_000,
        }
    }
}

/// Reason for which a connection ended.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum Closed {
    /// The peer closed the stream.
    #[error("the peer closed the connection")]
    ByPeer,
    /// The peer closed the stream in the middle of a message.
    #[error("the peer closed the connection in the middle of a message")]
    Cut,
    /// We closed it.
    #[error("closed by us")]
    ByUs,
    /// The peer refused it in its MPA Reply.
    #[error("the peer refused the connection in its MPA Reply")]
    Rejected,
    /// The received bytes are not MPA.
    #[error("the peer does not speak MPA: {0}")]
    NotMpa(&'static str),
    /// No data came in time.
    #[error("the peer sent no MPA frame in time")]
    Timeout,
    /// The peer sent a Terminate.
    #[error("the peer terminated the connection: {0}")]
    Terminated(Terminate),
    /// The peer broke a rule, and we sent a Terminate.
    #[error("terminated by us: {0}")]
    Violation(Terminate),
}

/// An event of an endpoint.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// The MPA handshake is complete.
    Established {
        /// Maximum number of our outstanding reads.
        ord: u32,
        /// True if CRCs are used.
        crc: bool,
        /// The private data of the peer, read depths left out.
        private_data: Vec<u8>,
    },
    /// A Send arrived completely.
    Received {
        /// Its bytes.
        message: Vec<u8>,
        /// Our key that it invalidated.
        invalidated: Option<u32>,
    },
    /// One of our reads is complete.
    ReadDone {
        /// Result of [`Endpoint::read`].
        id: u64,
    },
    /// The connection is closed; no more events follow.
    Closed(Closed),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// Waits for the peer's Request or Reply.
    Startup,
    Established,
    /// Closed; the bytes in `out` are still sent.
    Closed,
}

/// One of our reads.
#[derive(Clone, Copy, Debug)]
struct Read {
    id: u64,
    request: ReadRequest,
    /// Bytes that have arrived.
    have: u32,
}

/// Maximum number of our reads that wait.
const READS_MAX: usize = 65_536;
/// Number of bytes of read responses that are made at a time.
const RESPONSE_BURST: u32 = 1 << 18;
const RDMAP_VERSION: u8 = 0x40;
/// Depth that means "not specified" (RFC 6581 9.2).
const DEPTH_NOT_GIVEN: u32 = 0x3fff;

/// Output of an endpoint.
#[derive(Debug)]
struct Output {
    out: Vec<u8>,
    /// CRCs are used, in both directions.
    crc: bool,
    /// If the peer requested markers: the position in the stream of FPDUs.
    markers: Option<u32>,
    /// Maximum size of a segment with its header, in bytes.
    mulpdu: u16,
}

impl Output {
    fn frame(&mut self, ulpdu: &[u8]) {
        match self.markers {
            None => mpa::emit_fpdu(ulpdu, self.crc, &mut self.out),
            Some(position) => {
                self.markers = Some(mpa::emit_fpdu_with_markers(ulpdu, self.crc, position, &mut self.out))
            }
        }
    }

    /// Frames one segment. Without markers, its bytes are written only once, to their final place.
    fn put(&mut self, segment: &Ddp<'_>) {
        if self.markers.is_some() {
            let mut ulpdu = Vec::with_capacity(Ddp::UNTAGGED_LEN + segment.payload.len());
            segment.emit(&mut ulpdu);
            return self.frame(&ulpdu);
        }
        let start = self.out.len();
        self.out.extend_from_slice(&[0; 2]);
        segment.emit(&mut self.out);
        let length = (self.out.len() - start - 2) as u16;
        self.out[start..start + 2].copy_from_slice(&length.to_be_bytes());
        self.out.resize(start + mpa::fpdu_len(length) - mpa::CRC_LEN, 0);
        let value = if self.crc { mpa::crc(&self.out[start..]) } else { 0 };
        self.out.extend_from_slice(&value.to_le_bytes());
    }

    fn untagged(&mut self, opcode: Opcode, msn: u32, word: u32, message: &[u8]) {
        let room = usize::from(self.mulpdu).saturating_sub(Ddp::UNTAGGED_LEN).max(64);
        let mut offset = 0;
        loop {
            let end = (offset + room).min(message.len());
            let last = end == message.len();
            self.put(&rdmap::untagged(opcode, last, msn, offset as u32, word, &message[offset..end]));
            if last {
                return;
            }
            offset = end;
        }
    }

    fn tagged(&mut self, opcode: Opcode, to: Tagged, data: &[u8], ends: bool) {
        // multiples of 8, so that the offsets of all segments are aligned
        let room = (usize::from(self.mulpdu).saturating_sub(Ddp::TAGGED_LEN) & !7).max(64);
        self.out.reserve(data.len() + data.len() / room * 32 + 32);
        let mut at = 0;
        loop {
            let end = (at + room).min(data.len());
            let last = end == data.len();
            self.put(&rdmap::tagged(opcode, last && ends, to.stag, to.offset.wrapping_add(at as u64), &data[at..end]));
            if last {
                return;
            }
            at = end;
        }
    }
}

/// One end of an iWARP connection.
#[derive(Debug)]
pub struct Endpoint {
    config: Config,
    initiator: bool,
    state: State,
    deadline: Option<Time>,
    /// Bytes of the startup received so far.
    startup: Vec<u8>,
    deframer: Deframer,
    wire: Output,
    events: VecDeque<Event>,
    memory: Regions,
    ord: u32,
    ird: u32,
    /// MSN of the next message sent, by queue.
    send_msn: [u32; 3],
    /// MSN of the next message expected, by queue.
    receive_msn: [u32; 3],
    /// The Send being received.
    message: Vec<u8>,
    next_read: u64,
    waiting: VecDeque<Read>,
    reading: VecDeque<Read>,
    /// The peer's reads to be answered, with the number of bytes already sent.
    answering: VecDeque<(ReadRequest, u32)>,
    ulpdu: Vec<u8>,
    eof_sent: bool,
}

impl Endpoint {
    /// The end that connected. Its MPA Request can be transmitted at once.
    pub fn initiator(now: Time, config: Config) -> Self {
        let mut connection = Self::new(now, config, true);
        let startup = connection.startup_frame(false, None);
        connection.wire.out.extend_from_slice(&startup);
        connection
    }

    /// The end that accepted.
    pub fn responder(now: Time, config: Config) -> Self {
        Self::new(now, config, false)
    }

    fn new(now: Time, config: Config, initiator: bool) -> Self {
        Self {
            deadline: Some(now.saturating_add(config.startup_timeout)),
            initiator,
            state: State::Startup,
            startup: Vec::new(),
            deframer: Deframer::default(),
            wire: Output { out: Vec::new(), crc: config.crc, markers: None, mulpdu: config.mulpdu },
            events: VecDeque::new(),
            memory: Regions::default(),
            ord: config.ord.into(),
            ird: config.ird.into(),
            send_msn: [1; 3],
            receive_msn: [1; 3],
            message: Vec::new(),
            next_read: 1,
            waiting: VecDeque::new(),
            reading: VecDeque::new(),
            answering: VecDeque::new(),
            ulpdu: Vec::new(),
            eof_sent: false,
            config,
        }
    }

    // ---- properties

    /// True if operations can be posted.
    pub fn is_established(&self) -> bool {
        self.state == State::Established
    }

    /// True if it is over.
    pub fn is_closed(&self) -> bool {
        self.state == State::Closed
    }

    /// Registered memory.
    pub fn memory(&self) -> &Regions {
        &self.memory
    }

    /// Bytes that were made and not transmitted yet. Answers to reads of the peer are made as they are transmitted.
    pub fn unsent(&self) -> usize {
        self.wire.out.len()
    }

    /// Bytes wait to be transmitted.
    pub fn has_output(&self) -> bool {
        !self.wire.out.is_empty() || (!self.answering.is_empty() && self.state == State::Established)
    }

    // ---- in

    /// Takes bytes of the stream, in any pieces.
    pub fn handle_bytes(&mut self, now: Time, mut bytes: &[u8]) {
        if self.state == State::Startup {
            let Some(used) = self.handle_startup(now, bytes) else { return };
            bytes = &bytes[used..];
        }
        if self.state != State::Established {
            return;
        }
        if self.config.markers {
            self.handle_with_markers(bytes);
        } else {
            self.handle_in_place(bytes);
        }
    }

    /// Processes FPDUs in place; only one that arrives in pieces is copied.
    fn handle_in_place(&mut self, mut bytes: &[u8]) {
        let crc = self.wire.crc;
        while self.state == State::Established {
            if !self.deframer.is_empty() {
                let (frame, held) = self.deframer.complete(&mut bytes, crc);
                match frame {
                    Frame::Whole => self.handle_segment(framing::ulpdu(&held)),
                    Frame::Short => break,
                    Frame::BadCrc | Frame::BadMarker => self.violation(Violation::MpaCrc, None, None),
                }
                self.deframer.reuse(held);
                continue;
            }
            match framing::find(bytes, crc) {
                (Frame::Whole, whole) => {
                    let (fpdu, rest) = bytes.split_at(whole);
                    bytes = rest;
                    self.handle_segment(framing::ulpdu(fpdu));
                }
                (Frame::Short, _) => {
                    self.deframer.push(bytes);
                    break;
                }
                (Frame::BadCrc | Frame::BadMarker, _) => self.violation(Violation::MpaCrc, None, None),
            }
        }
    }

    fn handle_with_markers(&mut self, bytes: &[u8]) {
        self.deframer.push(bytes);
        let mut ulpdu = core::mem::take(&mut self.ulpdu);
        while self.state == State::Established {
            match self.deframer.next_with_markers(self.wire.crc, &mut ulpdu) {
                Frame::Whole => self.handle_segment(&ulpdu),
                Frame::Short => break,
                Frame::BadCrc => self.violation(Violation::MpaCrc, None, None),
                Frame::BadMarker => self.violation(Violation::MpaMarker, None, None),
            }
        }
        self.ulpdu = ulpdu;
    }

    /// The peer will send nothing more.
    pub fn handle_eof(&mut self, _now: Time) {
        let inside = !self.startup.is_empty() && self.state == State::Startup
            || self.state == State::Established && (!self.deframer.is_empty() || !self.message.is_empty());
        self.end(if inside { Closed::Cut } else { Closed::ByPeer });
    }

    /// To be called when the time of [`Endpoint::poll_timeout`] has come; early is no harm.
    pub fn handle_timeout(&mut self, now: Time) {
        if self.state == State::Startup && self.deadline.is_some_and(|deadline| now >= deadline) {
            self.end(Closed::Timeout);
        }
    }

    // ---- out

    /// The next bytes for the stream.
    pub fn poll_transmit(&mut self) -> Option<Vec<u8>> {
        if self.state == State::Established {
            self.answer();
        }
        if self.wire.out.is_empty() { None } else { Some(core::mem::take(&mut self.wire.out)) }
    }

    /// The time at which [`Endpoint::handle_timeout`] must be called.
    pub fn poll_timeout(&self) -> Option<Time> {
        if self.state == State::Startup { self.deadline } else { None }
    }

    /// The next event, oldest first; `None` if there is none.
    pub fn poll_event(&mut self) -> Option<Event> {
        self.events.pop_front()
    }

    // ---- operations

    /// Registers `data` and grants `rights` to the peer. `None` if there are too many regions.
    pub fn register(&mut self, data: Vec<u8>, rights: Rights) -> Option<Handle> {
        self.memory.register(data, rights)
    }

    /// Ends a region and returns its bytes.
    pub fn deregister(&mut self, key: u32) -> Option<Vec<u8>> {
        self.memory.deregister(key)
    }

    /// Sends a message; with `invalidate`, the peer's region of that key ends when it has arrived.
    ///
    /// # Errors
    /// If the connection is not established.
    pub fn send(&mut self, message: &[u8], invalidate: Option<u32>, solicited: bool) -> Result<(), OpError> {
        self.established()?;
        let opcode = match (invalidate, solicited) {
            (None, false) => Opcode::SEND,
            (Some(_), false) => Opcode::SEND_INVALIDATE,
            (None, true) => Opcode::SEND_SE,
            (Some(_), true) => Opcode::SEND_SE_INVALIDATE,
        };
        let msn = self.next_msn(QUEUE_SEND);
        self.wire.untagged(opcode, msn, invalidate.unwrap_or(0), message);
        Ok(())
    }

    /// Writes into the peer's memory.
    ///
    /// # Errors
    /// If the connection is not established.
    pub fn write(&mut self, key: u32, offset: u64, data: &[u8]) -> Result<(), OpError> {
        self.established()?;
        self.wire.tagged(Opcode::WRITE, Tagged { stag: key, offset }, data, true);
        Ok(())
    }

    /// Reads the peer's memory into one of our regions. The returned number comes back in [`Event::ReadDone`].
    ///
    /// # Errors
    /// See [`OpError`].
    pub fn read(
        &mut self,
        sink: u32,
        sink_offset: u64,
        source: u32,
        source_offset: u64,
        length: u32,
    ) -> Result<u64, OpError> {
        self.established()?;
        if self.ord == 0 {
            return Err(OpError::NoReads);
        }
        if self.waiting.len() >= READS_MAX {
            return Err(OpError::Full);
        }
        if !self.memory.has_room(sink, sink_offset, length) {
            return Err(OpError::Sink);
        }
        let request = ReadRequest { sink_stag: sink, sink_offset, size: length, source_stag: source, source_offset };
        let id = self.next_read;
        self.next_read += 1;
        self.waiting.push_back(Read { id, request, have: 0 });
        self.ask();
        Ok(id)
    }

    /// Sends a DDP segment unchanged, framed: to test the peer's reaction.
    pub fn transmit_segment(&mut self, ulpdu: &[u8]) {
        self.wire.frame(ulpdu);
    }

    /// Puts any bytes on the stream.
    pub fn transmit_bytes(&mut self, bytes: &[u8]) {
        self.wire.out.extend_from_slice(bytes);
    }

    /// Ends the connection in order.
    pub fn close(&mut self) {
        self.end(Closed::ByUs);
    }

    fn established(&self) -> Result<(), OpError> {
        if self.state == State::Established { Ok(()) } else { Err(OpError::NotEstablished) }
    }

    // ---- startup

    /// Our Request, or our Reply to `request`.
    fn startup_frame(&self, reject: bool, request: Option<&mpa::Startup<'_>>) -> Vec<u8> {
        let revision = request.map_or(self.config.revision, |r| r.revision);
        let mut private_data = Vec::new();
        let enhanced = if request.is_some() { request.is_some_and(|r| r.enhanced.is_some()) } else { revision >= 2 };
        // the S flag promises depths, and nothing else does
        if enhanced {
            let mut e = mpa::Enhanced { ird_word: (self.ird as u16) & 0x3fff, ord_word: (self.ord as u16) & 0x3fff };
            if let Some(asked) = request.and_then(|r| r.enhanced).filter(|e| e.peer_to_peer()) {
                // one of the offered ways for the initiator to signal that it is ready
                e.ird_word |= 0x8000;
                match (asked.rtr_write(), asked.rtr_read(), asked.rtr_send()) {
                    (true, ..) => e.ord_word |= 0x8000,
                    (_, true, _) => e.ord_word |= 0x4000,
                    (_, _, true) => e.ird_word |= 0x4000,
                    _ => {}
                }
            }
            e.emit(&mut private_data);
        }
        if self.config.legacy_depths && request.is_none_or(|r| r.legacy.is_some()) {
            private_data.extend_from_slice(&self.ird.to_be_bytes());
            private_data.extend_from_slice(&self.ord.to_be_bytes());
        }
        let startup = mpa::Startup {
            reply: request.is_some(),
            markers: self.config.markers,
            crc: self.wire.crc,
            reject,
            reserved: if enhanced { 0x10 } else { 0 },
            revision,
            private_data_length: private_data.len() as u16,
            private_data: &private_data,
            ..mpa::Startup::default()
        };
        let mut bytes = Vec::new();
        startup.emit(&mut bytes);
        bytes
    }

    /// Handles bytes of the startup. Returns how many of `bytes` were used, once the startup is complete.
    fn handle_startup(&mut self, _now: Time, bytes: &[u8]) -> Option<usize> {
        let before = self.startup.len();
        let room = mpa::FRAME_LEN + mpa::PRIVATE_DATA_MAX - before.min(mpa::FRAME_LEN + mpa::PRIVATE_DATA_MAX);
        self.startup.extend_from_slice(&bytes[..bytes.len().min(room)]);
        let length = match mpa::opening(&self.startup) {
            mpa::Opening::Short => return None,
            mpa::Opening::Other => {
                self.end(Closed::NotMpa("its first bytes are no MPA key"));
                return None;
            }
            mpa::Opening::Startup { reply, .. } if reply != self.initiator => {
                self.end(Closed::NotMpa("a Request came where a Reply belongs, or the other way round"));
                return None;
            }
            mpa::Opening::Startup { length, .. } if length > mpa::FRAME_LEN + mpa::PRIVATE_DATA_MAX => {
                self.end(Closed::NotMpa("more than 512 bytes of private data"));
                return None;
            }
            mpa::Opening::Startup { length, .. } => length,
        };
        if self.startup.len() < length {
            return None;
        }
        let frame = core::mem::take(&mut self.startup);
        let Ok((_, peer)) = mpa::parse_startup(&frame[..length], &mut Off) else {
            self.end(Closed::NotMpa("its MPA frame cannot be read"));
            return None;
        };
        if peer.revision > 2 || peer.revision == 0 {
            self.end(Closed::NotMpa("its revision is neither 1 nor 2"));
            return None;
        }
        if peer.reply && peer.reject {
            self.end(Closed::Rejected);
            return None;
        }
        self.wire.crc |= peer.crc;
        self.wire.markers = peer.markers.then_some(0);
        if let Some((ird, ord)) = peer.depths() {
            if ird != DEPTH_NOT_GIVEN {
                self.ord = self.ord.min(ird);
            }
            if !self.initiator && ord != DEPTH_NOT_GIVEN && ord > 0 {
                self.ird = self.ird.min(ord);
            }
        }
        if !self.initiator {
            let reply = self.startup_frame(false, Some(&peer));
            self.wire.out.extend_from_slice(&reply);
        }
        self.state = State::Established;
        self.deadline = None;
        let private_data = peer.upper.to_vec();
        self.events.push_back(Event::Established { ord: self.ord, crc: self.wire.crc, private_data });
        Some(length - before)
    }

    // ---- segments out

    /// Sends Read Requests, as many as the peer accepts.
    fn ask(&mut self) {
        while (self.reading.len() as u64) < u64::from(self.ord)
            && let Some(read) = self.waiting.pop_front()
        {
            let mut request = Vec::with_capacity(ReadRequest::LEN);
            read.request.emit(&mut request);
            let msn = self.next_msn(QUEUE_READ_REQUEST);
            self.wire.untagged(Opcode::READ_REQUEST, msn, 0, &request);
            self.reading.push_back(read);
        }
    }

    /// Answers a piece of the peer's reads.
    fn answer(&mut self) {
        let Some((request, sent)) = self.answering.pop_front() else { return };
        let length = (request.size - sent).min(RESPONSE_BURST);
        let data = match length {
            0 => Ok(&[][..]),
            _ => self.memory.read(request.source_stag, request.source_offset + u64::from(sent), length),
        };
        match data {
            Ok(data) => {
                let ends = sent + length == request.size;
                let to = Tagged { stag: request.sink_stag, offset: request.sink_offset.wrapping_add(sent.into()) };
                self.wire.tagged(Opcode::READ_RESPONSE, to, data, ends);
                if !ends {
                    self.answering.push_front((request, sent + length));
                }
            }
            Err(refusal) => self.protection(refusal, None, Some(request)),
        }
    }

    fn next_msn(&mut self, queue: u32) -> u32 {
        let msn = self.send_msn[queue as usize];
        self.send_msn[queue as usize] = msn.wrapping_add(1);
        msn
    }

    // ---- segments in

    fn handle_segment(&mut self, ulpdu: &[u8]) {
        if ulpdu.is_empty() {
            // the initiator signals that it is ready (RFC 6581 6)
            return;
        }
        let Ok((_, segment)) = ddp::parse(ulpdu, &mut Off) else {
            return self.violation(Violation::DdpHeader, None, None);
        };
        let opcode = Opcode(segment.ulp & 0x0f);
        let quoted = Quoted { control: segment.control, opcode, buffer: segment.buffer };
        let length = Some(ulpdu.len() as u16);
        if segment.control.version() != 1 {
            let tagged = segment.control.tagged();
            let violation = if tagged { Violation::DdpTaggedVersion } else { Violation::DdpUntaggedVersion };
            return self.violation(violation, length.map(|l| (l, quoted)), None);
        }
        if segment.ulp & 0xc0 != RDMAP_VERSION {
            return self.violation(Violation::RdmapVersion, length.map(|l| (l, quoted)), None);
        }
        match segment.buffer {
            Buffer::Tagged(to) => self.handle_tagged(opcode, to, &segment, quoted),
            Buffer::Untagged(to) => self.handle_untagged(opcode, to, &segment, quoted),
        }
    }

    fn handle_tagged(&mut self, opcode: Opcode, to: Tagged, segment: &Ddp<'_>, quoted: Quoted) {
        let length = (Ddp::TAGGED_LEN + segment.payload.len()) as u16;
        match opcode {
            Opcode::WRITE => {
                if segment.payload.is_empty() {
                    return;
                }
                if let Err(refusal) = self.memory.write(to.stag, to.offset, segment.payload) {
                    self.protection(refusal, Some((length, quoted)), None);
                }
            }
            Opcode::READ_RESPONSE => {
                let Some(read) = self.reading.front_mut() else {
                    return self.violation(Violation::RdmapOpcode, Some((length, quoted)), None);
                };
                let expected = read.request.sink_offset.wrapping_add(read.have.into());
                if to.stag != read.request.sink_stag {
                    return self.violation(Violation::DdpTaggedKey, Some((length, quoted)), None);
                }
                let have = u64::from(read.have) + segment.payload.len() as u64;
                let whole = have == u64::from(read.request.size);
                if to.offset != expected || have > u64::from(read.request.size) || whole != segment.control.last() {
                    return self.violation(Violation::DdpTaggedBounds, Some((length, quoted)), None);
                }
                read.have = have as u32;
                let id = read.id;
                if let Err(refusal) = self.memory.place(to.stag, to.offset, segment.payload) {
                    return self.protection(refusal, Some((length, quoted)), None);
                }
                if whole {
                    self.reading.pop_front();
                    self.events.push_back(Event::ReadDone { id });
                    self.ask();
                }
            }
            _ => self.violation(Violation::RdmapOpcode, Some((length, quoted)), None),
        }
    }

    fn handle_untagged(&mut self, opcode: Opcode, to: Untagged, segment: &Ddp<'_>, quoted: Quoted) {
        let length = (Ddp::UNTAGGED_LEN + segment.payload.len()) as u16;
        if to.queue > QUEUE_TERMINATE {
            return self.violation(Violation::DdpQueue, Some((length, quoted)), None);
        }
        if opcode.queue() != Some(to.queue)
            || !(opcode.is_send() || matches!(opcode, Opcode::READ_REQUEST | Opcode::TERMINATE))
        {
            return self.violation(Violation::RdmapOpcode, Some((length, quoted)), None);
        }
        let expected = self.receive_msn[to.queue as usize];
        if to.msn != expected {
            return self.violation(Violation::DdpMsn, Some((length, quoted)), None);
        }
        let have = if to.queue == QUEUE_SEND { self.message.len() as u32 } else { 0 };
        if to.offset != have {
            return self.violation(Violation::DdpOffset, Some((length, quoted)), None);
        }
        match to.queue {
            QUEUE_SEND => {
                if self.message.len() + segment.payload.len() > self.config.receive_max as usize {
                    return self.violation(Violation::DdpTooLong, Some((length, quoted)), None);
                }
                self.message.extend_from_slice(segment.payload);
                if !segment.control.last() {
                    return;
                }
                let mut invalidated = None;
                if opcode.invalidates() {
                    if !self.memory.invalidate(segment.ulp_word) {
                        return self.violation(Violation::RdmapInvalidate, Some((length, quoted)), None);
                    }
                    invalidated = Some(segment.ulp_word);
                }
                self.receive_msn[0] = expected.wrapping_add(1);
                self.events.push_back(Event::Received { message: core::mem::take(&mut self.message), invalidated });
            }
            QUEUE_READ_REQUEST => {
                let request = match ReadRequest::parse(segment.payload, &mut Off) {
                    Ok(([], request)) if segment.control.last() => request,
                    _ => return self.violation(Violation::DdpTooLong, Some((length, quoted)), None),
                };
                self.receive_msn[1] = expected.wrapping_add(1);
                if self.answering.len() as u64 >= u64::from(self.ird.max(1)) {
                    return self.violation(Violation::DdpNoBuffer, Some((length, quoted)), None);
                }
                if request.size > 0
                    && let Err(refusal) = self.memory.read(request.source_stag, request.source_offset, request.size)
                {
                    return self.protection(refusal, None, Some(request));
                }
                self.answering.push_back((request, 0));
            }
            _ => {
                let reason = rdmascope_dissector::wire::iwarp::rdmap::parse_terminate(segment.payload, &mut Off)
                    .map_or(
                        Terminate {
                            layer: 0,
                            error_type: 0,
                            code: 0xff,
                            segment_length: None,
                            ddp: None,
                            read_request: None,
                        },
                        |(_, t)| t,
                    );
                self.end(Closed::Terminated(reason));
            }
        }
    }

    // ---- the end

    /// Reports an access to memory that was not granted: by DDP for a segment, by RDMAP for a Read Request.
    fn protection(&mut self, refusal: Refusal, quoted: Option<(u16, Quoted)>, request: Option<ReadRequest>) {
        let violation = match (refusal, request.is_some()) {
            (Refusal::Key, false) => Violation::DdpTaggedKey,
            (Refusal::Bounds, false) => Violation::DdpTaggedBounds,
            (Refusal::Wrap, false) => Violation::DdpTaggedWrap,
            (Refusal::Key, true) => Violation::RdmapKey,
            (Refusal::Bounds, true) => Violation::RdmapBounds,
            (Refusal::Wrap, true) => Violation::RdmapWrap,
            (Refusal::Rights, _) => Violation::RdmapRights,
        };
        self.violation(violation, quoted, request);
    }

    /// Ends the connection with a Terminate that names the rule.
    fn violation(&mut self, violation: Violation, quoted: Option<(u16, Quoted)>, read_request: Option<ReadRequest>) {
        let (layer, error_type, code) = violation.terminate();
        let terminate = Terminate {
            layer,
            error_type,
            code,
            segment_length: quoted.map(|(l, _)| l),
            ddp: quoted.map(|(_, q)| q),
            read_request,
        };
        let mut message = Vec::new();
        // a Read Request is quoted after the segment that carried it (RFC 5040 4.8): without that segment, it is left
        // out
        Terminate { read_request: read_request.filter(|_| quoted.is_some()), ..terminate }.emit(&mut message);
        let msn = self.next_msn(QUEUE_TERMINATE);
        self.wire.untagged(Opcode::TERMINATE, msn, 0, &message);
        self.end(Closed::Violation(terminate));
    }

    fn end(&mut self, why: Closed) {
        if self.state == State::Closed {
            return;
        }
        self.state = State::Closed;
        self.deadline = None;
        self.message = Vec::new();
        self.answering.clear();
        self.waiting.clear();
        self.reading.clear();
        if !self.eof_sent {
            self.eof_sent = true;
            self.events.push_back(Event::Closed(why));
        }
    }
}
