//! An SMB Direct endpoint, \[MS-SMBD\] 3.1, around the analyzer's rulebook: [`Link`] observes messages that are
//! received or about to be sent, so that anything the analyzer would report about us is known here first. No socket, no
//! clock.
//!
//! ```text
//! handle_message ◀── whole Sends of the peer        poll_transmit ──▶ whole Sends, and the key that each invalidates
//! handle_timeout ◀── now                            poll_timeout  ──▶ when
//! send           ◀── SMB2 messages of any length    poll_event    ──▶ reassembled SMB2 messages
//! ```

use crate::transport::Time;
use rdmascope_analyzer::finding::{Certainty, Rule};
use rdmascope_analyzer::op::{At, End};
use rdmascope_analyzer::smbd::link::{
    Link, NEGOTIATE_REQUEST_TIMEOUT, NEGOTIATE_RESPONSE_TIMEOUT, Phase, RuleSink, Seen,
};
use rdmascope_dissector::trace::Off;
use rdmascope_dissector::wire::smb2::NtStatus;
use rdmascope_dissector::wire::smbd::{self, DataTransfer, NegotiateRequest, NegotiateResponse, VERSION_1_0};
use std::collections::VecDeque;
use std::fmt;
use thiserror::Error;

/// Seconds in ns.
pub const SECOND: Time = 1_000_000_000;
/// Value of [`Config::settle`] if the peer may be Linux's software iWARP (`siw`), at either end. It takes a socket over
/// when MPA is complete: bytes that arrive before its callbacks are in place wake nobody, and wait until more come.
/// This happens to a first FPDU right after the MPA Reply (ours, as acceptor) or right after its own (ours, as
/// initiator), and with only one message outstanding nothing more comes. An adapter needs no pause.
pub const SETTLE: Time = 200_000_000;
/// Seconds that a peer has to answer a keepalive (\[MS-SMBD\] 3.1.6.2).
const KEEPALIVE_TIMEOUT: Time = 5 * SECOND;
/// Offset of the data: after the header, at the next multiple of 8.
pub(crate) const DATA_OFFSET: usize = 24;
/// Maximum number of breaches that are kept.
const BREACHES_MAX: usize = 256;
/// Maximum number of waiting messages of the upper layer, and of their bytes: a peer that requests more and grants
/// nothing must not fill our memory.
const QUEUE_MAX: usize = 65_536;
const QUEUE_BYTES_MAX: usize = 256 << 20;

/// Parameters that an endpoint offers and requests. The defaults are those of Windows (\[MS-SMBD\] appendix B), except
/// for the sizes of a message and of a reassembled message: 1 MiB is out of reach for a peer that sends 1364 bytes at a
/// time and asks for 255 credits.
#[derive(Clone, Copy, Debug)]
pub struct Config {
    /// Credits to request.
    pub send_credits: u16,
    /// Maximum number of credits to grant.
    pub receive_credits: u16,
    /// Maximum size of a message to send, in bytes.
    pub max_send_size: u32,
    /// Maximum size of a message to receive, in bytes.
    pub max_receive_size: u32,
    /// Maximum size of a reassembled message, in bytes.
    pub max_fragmented_size: u32,
    /// Bytes that one RDMA transfer may move; sent by the acceptor.
    pub max_read_write_size: u32,
    /// Time of silence after which the peer is asked for a response, in ns.
    pub keepalive: Time,
    /// ns for which the first message is held back; see [`SETTLE`].
    pub settle: Time,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            send_credits: 255,
            receive_credits: 255,
            max_send_size: 8136,
            max_receive_size: 8192,
            max_fragmented_size: 262_144,
            max_read_write_size: 8_388_608,
            keepalive: 120 * SECOND,
            settle: 0,
        }
    }
}

/// A rule that was broken, by us or by the peer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Breach {
    /// The rule that was broken.
    pub rule: Rule,
    /// True if it was the peer.
    pub by_peer: bool,
    /// Description, in one clause.
    pub text: String,
}

impl fmt::Display for Breach {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let severity = self.rule.row().severity.name();
        write!(
            f,
            "{severity} {}: {} {}",
            self.rule.id(),
            if self.by_peer { "by the peer: it" } else { "by us: we" },
            self.text
        )
    }
}

/// Reason for which an endpoint gave up.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum Failure {
    /// No Negotiate message came in time.
    #[error("the peer did not negotiate SMB Direct in time")]
    NegotiateTimeout,
    /// The peer answered with a status.
    #[error("the peer refused SMB Direct with status {0:#010x}")]
    Refused(u32),
    /// The peer did not answer a keepalive.
    #[error("the peer did not answer a keepalive within 5 s")]
    KeepaliveTimeout,
    /// The peer broke a rule after which nothing can be trusted.
    #[error("{0}")]
    Breach(Breach),
    /// A message is shorter than its header.
    #[error("the peer sent a message of {0} bytes, which is shorter than its header")]
    Short(usize),
    /// The upper layer sent more than the peer puts together.
    #[error("a message of {0} bytes is longer than the peer can reassemble")]
    TooLong(usize),
    /// The upper layer sent more than the peer grants credits for.
    #[error("{0} messages wait for SMB Direct credits that the peer does not grant")]
    Full(usize),
}

/// An event of an endpoint.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// SMB2 messages may be sent.
    Established,
    /// A whole SMB2 message.
    Message(Vec<u8>),
    /// The connection must be closed; no more events follow.
    Failed(Failure),
}

/// A Send.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Transmit {
    /// Bytes of the SMB Direct message.
    pub message: Vec<u8>,
    /// The key of the peer that it invalidates.
    pub invalidate: Option<u32>,
}

/// Collects the reports of the rulebook.
struct Notes<'a> {
    me: End,
    breaches: &'a mut Vec<Breach>,
    fatal: Option<Breach>,
}

/// True for rules after which the stream of messages is unusable, or the specification requires termination (3.1.5.5 to
/// 3.1.5.8).
fn is_fatal(rule: Rule) -> bool {
    matches!(
        rule,
        Rule::SmbdNegFirst
            | Rule::SmbdNegReqVersion
            | Rule::SmbdNegReqCredits
            | Rule::SmbdNegReqRecvsize
            | Rule::SmbdNegReqFragsize
            | Rule::SmbdNegRspVersion
            | Rule::SmbdNegRspRecvsize
            | Rule::SmbdNegRspFragsize
            | Rule::SmbdNegRspGranted
            | Rule::SmbdNegRspRequested
            | Rule::SmbdNegRspPreferred
            | Rule::SmbdDataCreditsRequested
            | Rule::SmbdDataLength
            | Rule::SmbdDataAlign
            | Rule::SmbdFragTooBig
            | Rule::SmbdFragRemaining
            | Rule::SmbdCreditOverrun
            | Rule::SmbdCreditOverflow
    )
}

impl RuleSink for Notes<'_> {
    fn broken(&mut self, rule: Rule, by: End, _certainty: Certainty, text: fmt::Arguments<'_>) {
        let breach = Breach { rule, by_peer: by != self.me, text: text.to_string() };
        if breach.by_peer && is_fatal(rule) && self.fatal.is_none() {
            self.fatal = Some(breach.clone());
        }
        if self.breaches.len() < BREACHES_MAX {
            self.breaches.push(breach);
        }
    }
}

/// The header of a data transfer message of this length, with this number of bytes to follow, which grants nothing: for
/// tests that send arbitrary messages.
pub(crate) fn data_header(length: u32, remaining: u32) -> DataTransfer {
    DataTransfer {
        credits_requested: 255,
        credits_granted: 0,
        flags: 0,
        reserved: 0,
        remaining_data_length: remaining,
        data_offset: DATA_OFFSET as u32,
        data_length: length,
    }
}

/// A data transfer message (2.2.3), with its data at the right offset whatever the header says.
pub(crate) fn data_message(header: &DataTransfer, data: &[u8]) -> Vec<u8> {
    let mut message = Vec::with_capacity(DATA_OFFSET + data.len());
    header.emit(&mut message);
    if !data.is_empty() {
        message.resize(DATA_OFFSET, 0);
        message.extend_from_slice(data);
    }
    message
}

/// A message of the upper layer to be sent.
#[derive(Debug)]
struct Outgoing {
    bytes: Vec<u8>,
    sent: usize,
    invalidate: Option<u32>,
}

/// One end of an SMB Direct connection.
#[derive(Debug)]
pub struct Endpoint {
    config: Config,
    me: End,
    link: Link,
    frame: u64,
    out: VecDeque<Transmit>,
    queue: VecDeque<Outgoing>,
    /// Bytes of the messages in `queue`, including those already sent.
    queued: usize,
    events: VecDeque<Event>,
    assembled: Vec<u8>,
    breaches: Vec<Breach>,
    /// True if a response was requested.
    respond: bool,
    /// The peer spent a credit on data, or all it had, since we last gave it any.
    owed: bool,
    negotiate_deadline: Option<Time>,
    /// When silence becomes too long.
    idle_at: Time,
    /// When the answer to our keepalive must have come.
    keepalive_deadline: Option<Time>,
    held_until: Option<Time>,
    /// Nothing is granted.
    withheld: bool,
    failed: bool,
}

impl Endpoint {
    /// The active side; its Negotiate Request can be transmitted at once.
    pub fn initiator(now: Time, config: Config) -> Self {
        let mut endpoint = Self::new(now, config, End::A);
        endpoint.negotiate_deadline = Some(now + NEGOTIATE_RESPONSE_TIMEOUT * SECOND);
        endpoint.held_until = (config.settle > 0).then_some(now + config.settle);
        let request = NegotiateRequest {
            min_version: VERSION_1_0,
            max_version: VERSION_1_0,
            reserved: 0,
            credits_requested: config.send_credits,
            preferred_send_size: config.max_send_size,
            max_receive_size: config.max_receive_size,
            max_fragmented_size: config.max_fragmented_size,
        };
        endpoint.observed(now, |link, at, notes| link.negotiate_request(at, End::A, &request, notes));
        let mut message = Vec::new();
        request.emit(&mut message);
        endpoint.out.push_back(Transmit { message, invalidate: None });
        endpoint
    }

    /// The passive side.
    pub fn acceptor(now: Time, config: Config) -> Self {
        let mut endpoint = Self::new(now, config, End::B);
        endpoint.negotiate_deadline = Some(now + NEGOTIATE_REQUEST_TIMEOUT * SECOND);
        endpoint
    }

    fn new(now: Time, config: Config, me: End) -> Self {
        let mut link = Link::new();
        link.opened(At { frame: 0, time: now });
        Self {
            config,
            me,
            link,
            frame: 0,
            out: VecDeque::new(),
            queue: VecDeque::new(),
            queued: 0,
            events: VecDeque::new(),
            assembled: Vec::new(),
            breaches: Vec::new(),
            respond: false,
            owed: true,
            negotiate_deadline: None,
            idle_at: now + config.keepalive,
            keepalive_deadline: None,
            held_until: None,
            withheld: false,
            failed: false,
        }
    }

    // ---- properties

    /// The rulebook's view of the connection; we are end A if we connected, else end B.
    pub fn link(&self) -> &Link {
        &self.link
    }

    /// The end that we are.
    pub fn end(&self) -> End {
        self.me
    }

    /// Rules broken so far.
    pub fn breaches(&self) -> &[Breach] {
        &self.breaches
    }

    /// True if messages of the upper layer wait for credits.
    pub fn is_waiting(&self) -> bool {
        !self.queue.is_empty()
    }

    /// Bytes that wait to be sent: messages of the upper layer, including partly sent ones, and Sends that were not
    /// fetched.
    pub fn queued(&self) -> usize {
        self.queued + self.out.iter().map(|sent| sent.message.len()).sum::<usize>()
    }

    /// Credits that we hold.
    pub fn credits(&self) -> i64 {
        self.link.credits(self.me).known().unwrap_or(0)
    }

    /// Bytes that one Send may have.
    pub fn max_send_size(&self) -> u32 {
        self.link.side(self.me).max_send_size.unwrap_or(128)
    }

    /// Bytes that one RDMA transfer may move.
    pub fn max_read_write_size(&self) -> u32 {
        self.link.max_read_write_size.unwrap_or(0).min(self.config.max_read_write_size)
    }

    // ---- in

    /// Takes a whole Send of the peer.
    pub fn handle_message(&mut self, now: Time, message: &[u8]) {
        if self.failed {
            return;
        }
        self.idle_at = now.saturating_add(self.config.keepalive);
        self.keepalive_deadline = None;
        match self.link.phase() {
            Phase::Idle if self.me == End::B => self.handle_request(now, message),
            Phase::Negotiating if self.me == End::A => self.handle_response(now, message),
            _ => self.handle_data(now, message),
        }
        self.fill(now);
    }

    /// To be called when the time of [`Endpoint::poll_timeout`] has come; early is no harm.
    pub fn handle_timeout(&mut self, now: Time) {
        if self.failed {
            return;
        }
        if self.negotiate_deadline.is_some_and(|deadline| now >= deadline) {
            return self.fail(Failure::NegotiateTimeout);
        }
        if self.held_until.is_some_and(|until| now >= until) {
            self.held_until = None;
        }
        if self.link.phase() != Phase::Established {
            return;
        }
        if self.keepalive_deadline.is_some_and(|deadline| now >= deadline) {
            return self.fail(Failure::KeepaliveTimeout);
        }
        if now >= self.idle_at && self.keepalive_deadline.is_none() {
            self.keepalive_deadline = Some(now + KEEPALIVE_TIMEOUT);
            if self.may_send() {
                self.transmit_data(now, &[], 0, 0x0001, None);
            }
        }
    }

    // ---- out

    /// The next Send.
    pub fn poll_transmit(&mut self, now: Time) -> Option<Transmit> {
        if self.held_until.is_some_and(|until| now < until) {
            return None;
        }
        self.held_until = None;
        self.fill(now);
        self.out.pop_front()
    }

    /// True if messages wait for [`Endpoint::poll_transmit`]: a refusal may be held back too.
    pub fn has_output(&self) -> bool {
        !self.out.is_empty()
    }

    /// The time at which [`Endpoint::handle_timeout`] must be called.
    pub fn poll_timeout(&self) -> Option<Time> {
        if self.failed {
            return self.held_until.filter(|_| self.has_output());
        }
        let idle =
            (self.link.phase() == Phase::Established && self.keepalive_deadline.is_none()).then_some(self.idle_at);
        [self.negotiate_deadline, self.keepalive_deadline, idle, self.held_until].into_iter().flatten().min()
    }

    /// The next event, oldest first; `None` if there is none.
    pub fn poll_event(&mut self) -> Option<Event> {
        self.events.pop_front()
    }

    /// Sends an SMB2 message, in as many fragments as needed, when there are credits. `invalidate` goes with the last
    /// one.
    ///
    /// # Errors
    /// If the peer would not reassemble it, or too many messages wait.
    pub fn send(&mut self, now: Time, message: Vec<u8>, invalidate: Option<u32>) -> Result<(), Failure> {
        let limit = self.link.side(self.me.peer()).max_fragmented_size.unwrap_or(0) as usize;
        if message.len() > limit || message.is_empty() {
            return Err(Failure::TooLong(message.len()));
        }
        if self.queue.len() >= QUEUE_MAX || self.queued + message.len() > QUEUE_BYTES_MAX {
            return Err(Failure::Full(self.queue.len()));
        }
        self.queued += message.len();
        self.queue.push_back(Outgoing { bytes: message, sent: 0, invalidate });
        self.fill(now);
        Ok(())
    }

    /// With `true`, grants no more credits: to test how the peer handles this.
    pub fn withhold(&mut self, withheld: bool) {
        self.withheld = withheld;
    }

    /// Sends a message unchanged, even if it breaks rules; violations are in [`Endpoint::breaches`].
    pub fn transmit_raw(&mut self, now: Time, message: Vec<u8>) {
        match self.link.phase() {
            Phase::Established => {
                if let Ok((_, data)) = smbd::parse_data(&message, message.len() as u32, &mut Off) {
                    let length = message.len() as u32;
                    self.observed(now, |link, at, notes| {
                        link.data(at, notes.me, &data.header, length, data.inside, notes)
                    });
                }
            }
            Phase::Idle if self.me == End::A => {
                if let Ok((_, request)) = smbd::parse_negotiate_request(&message, &mut Off) {
                    self.observed(now, |link, at, notes| link.negotiate_request(at, notes.me, &request, notes));
                }
            }
            _ => {}
        }
        self.out.push_back(Transmit { message, invalidate: None });
    }

    // ---- negotiation

    fn handle_request(&mut self, now: Time, message: &[u8]) {
        let Ok((_, request)) = smbd::parse_negotiate_request(message, &mut Off) else {
            return self.fail(Failure::Short(message.len()));
        };
        self.negotiate_deadline = None;
        let fatal = self.observed(now, |link, at, notes| link.negotiate_request(at, End::A, &request, notes));
        let accepted = fatal.is_none();
        if let Some(breach) = fatal.as_ref().filter(|b| b.rule != Rule::SmbdNegReqVersion) {
            return self.fail(Failure::Breach(breach.clone()));
        }
        let response = NegotiateResponse {
            min_version: VERSION_1_0,
            max_version: VERSION_1_0,
            negotiated_version: if accepted { VERSION_1_0 } else { 0 },
            reserved: 0,
            credits_requested: if accepted { self.config.send_credits } else { 0 },
            credits_granted: if accepted { self.config.receive_credits.min(request.credits_requested) } else { 0 },
            status: if accepted { 0 } else { NtStatus::NOT_SUPPORTED.0 },
            max_read_write_size: if accepted { self.config.max_read_write_size } else { 0 },
            preferred_send_size: if accepted { self.config.max_send_size.min(request.max_receive_size) } else { 0 },
            max_receive_size: if accepted { self.config.max_receive_size } else { 0 },
            max_fragmented_size: if accepted { self.config.max_fragmented_size } else { 0 },
        };
        self.observed(now, |link, at, notes| link.negotiate_response(at, End::B, &response, notes));
        let mut message = Vec::new();
        response.emit(&mut message);
        self.out.push_back(Transmit { message, invalidate: None });
        if self.config.settle > 0 {
            self.held_until = Some(now + self.config.settle);
        }
        match fatal {
            Some(breach) => self.fail(Failure::Breach(breach)),
            None => self.events.push_back(Event::Established),
        }
    }

    fn handle_response(&mut self, now: Time, message: &[u8]) {
        let Ok((_, response)) = smbd::parse_negotiate_response(message, &mut Off) else {
            return self.fail(Failure::Short(message.len()));
        };
        self.negotiate_deadline = None;
        let fatal = self.observed(now, |link, at, notes| link.negotiate_response(at, End::B, &response, notes));
        if response.status != 0 {
            return self.fail(Failure::Refused(response.status));
        }
        if let Some(breach) = fatal {
            return self.fail(Failure::Breach(breach));
        }
        self.events.push_back(Event::Established);
    }

    // ---- data

    fn handle_data(&mut self, now: Time, message: &[u8]) {
        let length = message.len() as u32;
        let Ok((_, data)) = smbd::parse_data(message, length, &mut Off) else {
            return self.fail(Failure::Short(message.len()));
        };
        if let Some(breach) = self
            .observed(now, |link, at, notes| link.data(at, notes.me.peer(), &data.header, length, data.inside, notes))
        {
            return self.fail(Failure::Breach(breach));
        }
        // the peer may have agreed to send less, which is not checked here; more than we posted is a violation
        // (3.1.5.8)
        if length > self.config.max_receive_size {
            let text =
                format!("sent {length} bytes in one message; we receive at most {}", self.config.max_receive_size);
            return self.fail(Failure::Breach(Breach { rule: Rule::SmbdDataTooBig, by_peer: true, text }));
        }
        self.respond |= data.header.response_requested();
        // Answering each message without data would go on for ever, since the answer would be answered in turn. With a
        // single credit, such a message looks the same as a real need for credits; there, the end that has something to
        // send grants a credit to the other.
        let peer = self.link.side(self.me.peer());
        let dry = matches!(peer.credits, Seen::Known(0)) && self.config.receive_credits.min(peer.requested) > 1;
        self.owed |= !data.data.is_empty() || dry;
        if data.data.is_empty() {
            return;
        }
        // how much that can be was judged by the rulebook: no more than our MaxFragmentedSize
        self.assembled.extend_from_slice(data.data);
        if data.header.remaining_data_length == 0 {
            self.events.push_back(Event::Message(core::mem::take(&mut self.assembled)));
        }
    }

    /// Credits that we can grant to the peer in addition to those it holds.
    fn to_grant(&self) -> u16 {
        if self.withheld {
            return 0;
        }
        let peer = self.link.side(self.me.peer());
        let held = match peer.credits {
            Seen::Known(held) => held.max(0),
            Seen::Unseen => 0,
        };
        let target = i64::from(self.config.receive_credits.min(peer.requested));
        u16::try_from(target - held).unwrap_or(0)
    }

    /// With the last credit only a message that grants some may be sent (3.1.5.1).
    fn may_send(&self) -> bool {
        match self.credits() {
            i64::MIN..=0 => false,
            1 => self.to_grant() > 0 || self.withheld,
            _ => true,
        }
    }

    /// Makes Sends of the waiting messages, as far as there are credits; then sends answers and grants that no other
    /// message carries.
    fn fill(&mut self, now: Time) {
        if self.failed || self.link.phase() != Phase::Established {
            return;
        }
        let room = (self.max_send_size() as usize).saturating_sub(DATA_OFFSET).max(1);
        while self.may_send()
            && let Some(mut next) = self.queue.pop_front()
        {
            let end = (next.sent + room).min(next.bytes.len());
            let remaining = next.bytes.len() - end;
            let invalidate = if remaining == 0 { next.invalidate } else { None };
            self.transmit_data(now, &next.bytes[next.sent..end], remaining as u32, 0, invalidate);
            if remaining > 0 {
                next.sent = end;
                self.queue.push_front(next);
            } else {
                self.queued -= next.bytes.len();
            }
        }
        let peer = self.link.side(self.me.peer());
        let low = i64::from(self.config.receive_credits.min(peer.requested)) / 2;
        let dry = matches!(peer.credits, Seen::Known(held) if held <= low) && self.to_grant() > 0;
        if (self.respond || self.owed && dry) && self.may_send() {
            self.transmit_data(now, &[], 0, 0, None);
        }
    }

    fn transmit_data(&mut self, now: Time, data: &[u8], remaining: u32, flags: u16, invalidate: Option<u32>) {
        let header = DataTransfer {
            credits_requested: self.config.send_credits,
            credits_granted: self.to_grant(),
            flags,
            reserved: 0,
            remaining_data_length: remaining,
            data_offset: if data.is_empty() { 0 } else { DATA_OFFSET as u32 },
            data_length: data.len() as u32,
        };
        let message = data_message(&header, data);
        let length = message.len() as u32;
        self.observed(now, |link, at, notes| link.data(at, notes.me, &header, length, true, notes));
        self.respond = false;
        self.owed = false;
        self.out.push_back(Transmit { message, invalidate });
    }

    /// Shows a message to the rulebook. Returns a fatal violation of the peer, if any.
    fn observed(&mut self, now: Time, show: impl FnOnce(&mut Link, At, &mut Notes<'_>)) -> Option<Breach> {
        self.frame += 1;
        let mut notes = Notes { me: self.me, breaches: &mut self.breaches, fatal: None };
        show(&mut self.link, At { frame: self.frame, time: now }, &mut notes);
        notes.fatal
    }

    fn fail(&mut self, why: Failure) {
        self.failed = true;
        self.queue.clear();
        self.queued = 0;
        self.events.push_back(Event::Failed(why));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two endpoints in virtual time, and a tap between them that runs the rulebook of the analyzer.
    struct Pair {
        now: Time,
        ends: [Endpoint; 2],
        tap: Link,
        breaches: Vec<Breach>,
        frames: u64,
        sizes: Vec<usize>,
    }

    impl Pair {
        fn new(a: Config, b: Config) -> Self {
            let mut pair = Self {
                now: 0,
                ends: [Endpoint::initiator(0, a), Endpoint::acceptor(0, b)],
                tap: Link::new(),
                breaches: Vec::new(),
                frames: 0,
                sizes: Vec::new(),
            };
            pair.drive();
            for end in &mut pair.ends {
                assert_eq!(end.poll_event(), Some(Event::Established));
            }
            pair
        }

        fn drive(&mut self) {
            loop {
                let mut moved = false;
                for from in End::BOTH {
                    // one message at a time, so that messages of both directions are in transit together
                    let Some(sent) = self.ends[from.index()].poll_transmit(self.now) else { continue };
                    moved = true;
                    self.now += 1000;
                    self.observe(from, &sent.message);
                    self.ends[1 - from.index()].handle_message(self.now, &sent.message);
                }
                if !moved {
                    return;
                }
                assert!(self.frames < 100_000, "it never ends");
            }
        }

        fn observe(&mut self, from: End, message: &[u8]) {
            self.frames += 1;
            self.sizes.push(message.len());
            let at = At { frame: self.frames, time: self.now };
            let mut notes = Notes { me: End::B, breaches: &mut self.breaches, fatal: None };
            match self.tap.phase() {
                Phase::Idle => self.tap.negotiate_request(
                    at,
                    from,
                    &smbd::parse_negotiate_request(message, &mut Off).unwrap().1,
                    &mut notes,
                ),
                Phase::Negotiating => {
                    self.tap.negotiate_response(
                        at,
                        from,
                        &smbd::parse_negotiate_response(message, &mut Off).unwrap().1,
                        &mut notes,
                    );
                }
                _ => {
                    let data = smbd::parse_data(message, message.len() as u32, &mut Off).unwrap().1;
                    self.tap.data(at, from, &data.header, message.len() as u32, data.inside, &mut notes);
                }
            }
        }

        /// Checks that tap and endpoints agree, and that nobody broke a rule.
        fn agree(&self) {
            for end in End::BOTH {
                for other in &self.ends {
                    assert_eq!(self.tap.credits(end), other.link().credits(end));
                    assert_eq!(self.tap.side(end).messages, other.link().side(end).messages);
                    assert_eq!(self.tap.side(end).remaining, other.link().side(end).remaining);
                }
            }
            assert_eq!(self.breaches, []);
            for end in &self.ends {
                assert_eq!(end.breaches(), []);
            }
        }

        fn messages(&mut self, end: usize) -> Vec<Vec<u8>> {
            std::iter::from_fn(|| self.ends[end].poll_event())
                .map(|event| match event {
                    Event::Message(bytes) => bytes,
                    other => panic!("{other:?}"),
                })
                .collect()
        }
    }

    fn bytes(length: usize) -> Vec<u8> {
        (0..length).map(|n| (n * 7 + n / 251) as u8).collect()
    }

    #[test]
    fn a_mebibyte_goes_both_ways_in_fragments() {
        let config = Config { max_fragmented_size: 1 << 20, ..Config::default() };
        let mut pair = Pair::new(config, config);
        for (end, length) in [(0, 1 << 20), (1, 1 << 20), (0, 1), (1, 8112), (0, 8113)] {
            pair.ends[end].send(pair.now, bytes(length), None).unwrap();
        }
        pair.drive();
        assert_eq!(pair.messages(1), [bytes(1 << 20), bytes(1), bytes(8113)]);
        assert_eq!(pair.messages(0), [bytes(1 << 20), bytes(8112)]);
        assert!(pair.sizes.iter().all(|size| *size <= 8136));
        pair.agree();
    }

    #[test]
    fn few_credits_are_enough() {
        for (a, b) in [(1, 1), (1, 255), (2, 1), (3, 2), (255, 1)] {
            // a message that can be sent with one credit at a time: only MaxFragmentedSize makes this a finding, not
            // the rules
            let config = |asked, granted| Config { send_credits: asked, receive_credits: granted, ..Config::default() };
            let mut pair = Pair::new(config(a, b), config(b, a));
            for _ in 0..20 {
                pair.ends[0].send(pair.now, bytes(30_000), None).unwrap();
                pair.ends[1].send(pair.now, bytes(20_000), None).unwrap();
            }
            pair.drive();
            assert_eq!((pair.messages(1).len(), pair.messages(0).len()), (20, 20), "{a} {b}");
            let harmless = [Rule::SmbdNegReach, Rule::SmbdCreditStarved, Rule::SmbdCreditStall];
            let bad: Vec<_> = pair.breaches.iter().filter(|b| !harmless.contains(&b.rule)).collect();
            assert!(bad.is_empty(), "{a} {b}: {bad:?}");
        }
    }

    #[test]
    fn the_last_credit_is_kept_unless_it_brings_new_ones() {
        let mut a = Endpoint::initiator(0, Config::default());
        let response = NegotiateResponse {
            min_version: 0x0100,
            max_version: 0x0100,
            negotiated_version: 0x0100,
            reserved: 0,
            credits_requested: 1,
            credits_granted: 2,
            status: 0,
            max_read_write_size: 1 << 20,
            preferred_send_size: 1364,
            max_receive_size: 8192,
            max_fragmented_size: 1 << 20,
        };
        let mut message = Vec::new();
        response.emit(&mut message);
        assert!(a.poll_transmit(0).is_some());
        a.handle_message(1, &message);
        // the peer holds no credits: our first message, an empty one, gives it the one credit that it requested
        let grant = a.poll_transmit(1).unwrap();
        assert_eq!(smbd::parse_data(&grant.message, 20, &mut Off).unwrap().1.header.credits_granted, 1);
        a.send(2, vec![1; 10], None).unwrap();
        assert_eq!((a.poll_transmit(2), a.credits(), a.is_waiting()), (None, 1, true));
        assert_eq!(
            a.breaches().iter().map(|b| b.rule).collect::<Vec<_>>(),
            [Rule::SmbdNegReach],
            "what the peer asks for is little"
        );
    }

    #[test]
    fn the_other_sizes_agreed_are_kept() {
        let small = Config { max_receive_size: 1364, max_send_size: 500, ..Config::default() };
        let mut pair = Pair::new(small, Config::default());
        pair.ends[0].send(pair.now, bytes(100_000), None).unwrap();
        pair.ends[1].send(pair.now, bytes(100_000), None).unwrap();
        pair.drive();
        assert_eq!((pair.messages(0), pair.messages(1)), (vec![bytes(100_000)], vec![bytes(100_000)]));
        assert_eq!(pair.ends.each_ref().map(Endpoint::max_send_size), [500, 1364]);
        assert!(pair.ends[0].send(pair.now, vec![0; (1 << 20) + 1], None).is_err());
    }

    #[test]
    fn silence_is_asked_about_and_then_ended() {
        let mut pair = Pair::new(Config { keepalive: 10 * SECOND, ..Config::default() }, Config::default());
        let at = pair.ends[0].poll_timeout().unwrap();
        pair.ends[0].handle_timeout(at);
        pair.now = at;
        let before = pair.frames;
        pair.drive();
        assert_eq!(pair.frames, before + 2, "a question and its answer");
        pair.agree();
        let at = pair.ends[0].poll_timeout().unwrap();
        pair.ends[0].handle_timeout(at);
        assert!(pair.ends[0].poll_transmit(at).is_some());
        let deadline = pair.ends[0].poll_timeout().unwrap();
        assert_eq!(deadline, at + 5 * SECOND);
        pair.ends[0].handle_timeout(deadline);
        assert_eq!(pair.ends[0].poll_event(), Some(Event::Failed(Failure::KeepaliveTimeout)));
    }

    #[test]
    fn a_peer_that_never_negotiates_is_given_up() {
        let mut b = Endpoint::acceptor(0, Config::default());
        assert_eq!(b.poll_timeout(), Some(5 * SECOND));
        b.handle_timeout(5 * SECOND);
        assert_eq!(b.poll_event(), Some(Event::Failed(Failure::NegotiateTimeout)));
        let mut b = Endpoint::acceptor(0, Config::default());
        b.handle_message(0, &[0; 19]);
        assert_eq!(b.poll_event(), Some(Event::Failed(Failure::Short(19))));
    }

    #[test]
    fn a_peer_that_grants_nothing_does_not_fill_our_memory() {
        let mut pair = Pair::new(Config { receive_credits: 4, ..Config::default() }, Config::default());
        pair.ends[0].withhold(true);
        let mut taken = 0;
        let refused = loop {
            match pair.ends[1].send(pair.now, vec![7; 250_000], None) {
                Ok(()) => taken += 250_000,
                Err(e) => break e,
            }
            pair.drive();
            while pair.ends[0].poll_event().is_some() {}
        };
        assert!(matches!(refused, Failure::Full(1000..)) && taken <= QUEUE_BYTES_MAX + 250_000, "{refused}, {taken}");
        // sent messages make room
        pair.ends[0].withhold(false);
        pair.ends[0].send(pair.now, vec![1], None).unwrap();
        pair.ends[0].respond = true;
        for _ in 0..200 {
            pair.now += SECOND;
            pair.frames = 0;
            pair.drive();
            while pair.ends[0].poll_event().is_some() {}
        }
        assert_eq!((pair.ends[1].queued, pair.ends[1].queue.len()), (0, 0));
        pair.ends[1].send(pair.now, vec![7; 250_000], None).unwrap();
    }

    #[test]
    fn violations_are_reported_by_both_ends_and_end_the_connection() {
        let header = data_header(8, 0);
        for (broken, rule) in [
            (DataTransfer { data_offset: 25, data_length: 7, ..header }, Rule::SmbdDataAlign),
            (DataTransfer { data_length: 9, ..header }, Rule::SmbdDataLength),
            (DataTransfer { remaining_data_length: 1 << 18, ..header }, Rule::SmbdFragTooBig),
            (DataTransfer { credits_requested: 0, ..header }, Rule::SmbdDataCreditsRequested),
        ] {
            let mut pair = Pair::new(Config::default(), Config::default());
            let mut message = Vec::new();
            broken.emit(&mut message);
            message.resize(32, 0);
            pair.ends[0].transmit_raw(pair.now, message);
            let sent = pair.ends[0].poll_transmit(pair.now).unwrap();
            assert!(pair.ends[0].breaches().iter().any(|b| b.rule == rule && !b.by_peer), "{rule:?}");
            pair.ends[1].handle_message(pair.now, &sent.message);
            assert!(
                matches!(pair.ends[1].poll_event(), Some(Event::Failed(Failure::Breach(b))) if b.rule == rule && b.by_peer),
                "{rule:?}"
            );
        }
    }
}
