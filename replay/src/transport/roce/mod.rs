//! RoCEv2 in user space (IBA volume 1, annex A17): the communication manager and a reliable connection over UDP
//! datagrams. But for the driver it has no socket and no clock.
//!
//! ```text
//! datagrams           ─▶ handle_datagram  poll_transmit ─▶ datagrams
//! now                 ─▶ handle_timeout   poll_timeout  ─▶ time to call it
//! user operations     ─▶ send write read  poll_event    ─▶ events
//! ```
//!
//! | part | what it is |
//! | --- | --- |
//! | [`packet`] | packets and their invariant CRC |
//! | [`cm`] | messages of the communication manager |
//! | `requester`, `responder` | the two halves of a reliable connection |
//! | [`fault`] | faults of an end, packet by packet |
//! | `congestion` | ECN: a sender's rate, a receiver's notifications |
//! | `udp` | the driver: sockets, the only part that waits |
//! | [`Endpoint`] | one end of one connection: all of these |
//!
//! A violation by the peer ends the connection with a NAK that names it; nothing outside registered memory is ever
//! written.

#[cfg(target_os = "linux")]
mod carrier;
#[cfg(target_os = "linux")]
mod cases;
pub mod cm;
mod congestion;
pub mod fault;
pub mod packet;
#[cfg(target_os = "linux")]
mod record;
mod requester;
mod responder;
#[cfg(test)]
mod tests;
#[cfg(target_os = "linux")]
mod udp;

#[cfg(target_os = "linux")]
pub use carrier::{Carrier, Roce};
#[cfg(target_os = "linux")]
pub use udp::UdpDriver;

use self::cm::{Offer, Waiting};
use self::fault::{Fate, Faults};
use self::packet::{Check, Hidden, MASK_24, Outside, Packet, Path, later, unwrap, wrap};
use self::requester::{Failed, Limits, Read, Requester, Work};
use self::responder::{Done, Responder};
use crate::transport::memory::{Handle, Regions, Rights};
use crate::transport::packet_fault::{PacketFault, Tally};
use crate::transport::{OpError, Time};
use rdmascope_dissector::trace::Off;
use rdmascope_dissector::wire::ib::bth::{Bth, DEFAULT_P_KEY, Opcode, Service, Verb};
use rdmascope_dissector::wire::ib::cm::{CmMessage, ConnectRequest, RejectReason, parse_mad, timeout_nanos};
use rdmascope_dissector::wire::ib::ext::{NakCode, Syndrome};
use rdmascope_dissector::wire::ib::mad::QP1;
use std::collections::VecDeque;
use thiserror::Error;

/// The row of RoCEv2 in user space.
#[cfg(target_os = "linux")]
pub const KIND: crate::transport::Kind = crate::transport::Kind {
    name: "roce",
    text: "RoCEv2 in user space, over UDP port 4791: needs no adapter",
    port: 445,
    faults_below: false,
    private_data: cm::PRIVATE_DATA,
    open: || Ok(std::sync::Arc::new(Roce::default())),
    cases: cases::CASES,
    faults: &fault::FAULTS,
};

/// Configuration of a connection.
#[derive(Clone, Debug)]
pub struct Config {
    /// Maximum payload of a packet, in bytes: 256, 512, 1024, 2048 or 4096.
    pub path_mtu: u16,
    /// Number of the peer's reads that we answer at a time.
    pub responder_resources: u8,
    /// Maximum number of our outstanding reads.
    pub initiator_depth: u8,
    /// Maximum number of bytes that one of our Read Requests asks for.
    pub read_max: u32,
    /// Maximum number of bytes in flight.
    pub window: u32,
    /// Number of times that either end retransmits unacknowledged packets: 0 to 7.
    pub retry_count: u8,
    /// Number of times that either end retries if there was no receive: 7 for ever.
    pub rnr_retry: u8,
    /// RNR timer that a peer without a posted receive gets: the code of IBA volume 1, table 45.
    pub rnr_timer: u8,
    /// The time after which a packet is sent again: 4.096 µs times 2 to this power; up to four times that after the
    /// first.
    pub ack_timeout: u8,
    /// Time that the communication managers wait for each other, in the same code.
    pub cm_timeout: u8,
    /// Number of retries of the communication managers.
    pub cm_retries: u8,
    /// The partition key.
    pub p_key: u16,
    /// Sends of the peer that may come before they are read.
    pub receives: u32,
    /// Maximum size of a Send that we receive, in bytes.
    pub receive_max: u32,
    /// The differentiated services code point of our packets.
    pub dscp: u8,
    /// True if routers may mark our packets on congestion (ECN).
    pub ecn: bool,
    /// Rate of the link in bytes per second: the initial rate after a first notification of congestion.
    pub line_rate: u64,
    /// A fault to inject, and the seed of its random numbers.
    pub fault: Option<(PacketFault, u64)>,
    /// Counts what the fault does, over all connections.
    pub acted: Tally,
}

impl Config {
    /// The type of service of its packets: DSCP and the ECN field (RFC 2474, RFC 3168).
    const fn tos(&self) -> u8 {
        self.dscp << 2 | if self.ecn { 2 } else { 0 }
    }
}

impl Default for Config {
    fn default() -> Self {
        Self {
            path_mtu: 1024,
            responder_resources: 16,
            initiator_depth: 16,
            read_max: 1 << 16,
            window: 1 << 18,
            retry_count: 7,
            rnr_retry: 7,
            rnr_timer: 12,
            ack_timeout: 17,
            cm_timeout: 18,
            cm_retries: 15,
            p_key: DEFAULT_P_KEY,
            receives: 512,
            receive_max: 65_536,
            dscp: 26,
            ecn: true,
            line_rate: 1_250_000_000,
            fault: None,
            acted: Tally::default(),
        }
    }
}

/// The code point of notifications of congestion: a class of its own, as most networks have it.
const CNP_DSCP: u8 = 48;
/// Maximum number of operations that wait.
const WORK_MAX: usize = 65_536;
/// Maximum time to wait for the last acknowledgement before we leave, in ns.
const LEAVE_WITHIN: u64 = 1_000_000_000;
/// Maximum time to answer a repeated REQ: 2.1 s, as the code of a timeout.
const SERVICE_TIMEOUT: u8 = 19;
/// Number of times that a Disconnect Request is sent.
const DISCONNECT_RETRIES: u8 = 3;

/// The numbers of our end of a connection: the first two are unique on this host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Numbers {
    /// The queue pair: 24 bits, not 0 or 1.
    pub qp: u32,
    /// The communication identifier.
    pub comm_id: u32,
    /// The number of the peer's first packet: 24 bits.
    pub psn: u32,
}

impl Numbers {
    /// Numbers made from random bytes.
    pub const fn of(random: [u8; 12]) -> Self {
        let [a, b, c, d, e, f, g, h, i, j, k, l] = random;
        Self {
            qp: cm::queue_pair(u32::from_le_bytes([a, b, c, d])),
            comm_id: u32::from_le_bytes([e, f, g, h]),
            psn: u32::from_le_bytes([i, j, k, l]) & MASK_24,
        }
    }
}

/// Reason for which a connection ended.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum Closed {
    /// We closed it.
    #[error("closed by us")]
    ByUs,
    /// The peer sent a Disconnect Request.
    #[error("the peer disconnected")]
    ByPeer,
    /// The peer refused it.
    #[error("the peer refused the connection: {}", .0.name().unwrap_or("reserved reason"))]
    Rejected(RejectReason),
    /// The communication manager of the peer does not answer.
    #[error("the peer's communication manager does not answer")]
    NoAnswer,
    /// The communication manager of the peer sent an invalid answer.
    #[error("the peer's communication manager {0}")]
    BadAnswer(&'static str),
    /// A packet was sent as often as agreed, and never acknowledged.
    #[error("the peer does not acknowledge: transport retry counter exceeded")]
    Retries,
    /// The peer had no receive posted as often as agreed.
    #[error("the peer has no receive posted: RNR retry counter exceeded")]
    RnrRetries,
    /// The peer refused a request.
    #[error("the peer refused a request: NAK {}", .0.name().unwrap_or("reserved code"))]
    Refused(NakCode),
    /// The peer broke a rule, and we sent a NAK.
    #[error("we refused a request of the peer, {}: {}", .0.name().unwrap_or("reserved code"), .1)]
    Violation(NakCode, &'static str),
    /// The peer answered a read with something else.
    #[error("the peer's answer to an RDMA Read is wrong: {0}")]
    BadResponse(&'static str),
}

/// An event of an endpoint.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// The CM handshake is complete.
    Established {
        /// The private data of the peer, including the zeros at its end.
        private_data: Vec<u8>,
    },
    /// A Send arrived completely, or (with an empty message) an RDMA Write with immediate data.
    Received {
        /// Its bytes.
        message: Vec<u8>,
        /// Our key that it invalidated.
        invalidated: Option<u32>,
        /// Its immediate data.
        immediate: Option<u32>,
    },
    /// One of our reads is complete.
    ReadDone {
        /// Result of [`Endpoint::read`].
        id: u64,
    },
    /// The connection is closed; no more events follow.
    Closed(Closed),
}

/// Counters below the messages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Number of our packets that were retransmitted.
    pub retransmitted: u64,
    /// Number of repeated packets of the peer.
    pub duplicates: u64,
    /// Number of the peer's packets that arrived before earlier ones.
    pub gaps: u64,
    /// Datagrams with a wrong invariant CRC.
    pub bad_crc: u64,
    /// Datagrams that are no packets of this connection.
    pub foreign: u64,
    /// Notifications of congestion that we sent.
    pub cnps_sent: u64,
    /// Number of received notifications of congestion.
    pub cnps_received: u64,
}

/// Phase of a connection (12.9.5, and the states of the queue pair, 10.3.1).
#[derive(Debug)]
enum Phase {
    /// A REQ was sent. The queue pair is initialized.
    Connecting(Waiting),
    /// A REP was sent. The queue pair receives.
    Accepting(Waiting),
    /// The queue pair sends and receives.
    Established,
    /// The last messages are being sent, until this time.
    Closing(Time),
    /// A DREQ was sent.
    Disconnecting(Waiting),
    Over,
}

/// The states of a queue pair (10.3.1). Two states are not needed here and left out: SQD, in which the send queue
/// drains, and SQE, which reliable connections do not have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// It is over, and the numbers are free (10.3.1.1).
    Reset,
    /// A REQ was sent: packets for the queue pair are dropped silently (10.3.1.2).
    Initialized,
    /// A REP was sent: requests are taken, and none can be made (10.3.1.3).
    ReadyToReceive,
    /// Sends and receives (10.3.1.4).
    ReadyToSend,
    /// A rule was broken, or the connection is closing: received packets are dropped, and posted operations fail
    /// (10.3.1.7).
    Error,
}

/// A datagram that was appended to the buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Leaving {
    /// Length of the packet, in bytes.
    pub length: usize,
    /// The type of service of its IP header: code point and congestion bits.
    pub tos: u8,
}

/// One end of a connection.
#[derive(Debug)]
pub struct Endpoint {
    config: Config,
    path: Path,
    us: Offer,
    peer: Option<Offer>,
    /// Of our next management datagram.
    mad_psn: u32,
    phase: Phase,
    /// Management datagrams to be sent now.
    mads: VecDeque<Vec<u8>>,
    /// The last answer to the peer's REQ or REP: it is repeated if the peer repeats its message.
    answer: Vec<u8>,
    /// The peer's, until it is established.
    private_data: Vec<u8>,
    /// True if the queue pair is in error: no more requests are sent.
    broken: bool,
    requester: Requester,
    responder: Responder,
    sender: congestion::Sender,
    receiver: congestion::Receiver,
    check: Check,
    memory: Regions,
    events: VecDeque<Event>,
    /// True if the end was reported.
    reported: bool,
    next_read: u64,
    /// True if it is the turn of answers, when both halves have output.
    answers_first: bool,
    faults: Option<Faults>,
    counters: Counters,
}

impl Endpoint {
    /// The end that connects, from `local_port`, to a service. Its REQ can be transmitted at once.
    pub fn connect(
        now: Time,
        config: Config,
        path: Path,
        numbers: Numbers,
        local_port: u16,
        service: u16,
        private_data: &[u8],
    ) -> Self {
        let mut endpoint = Self::new(config, path, numbers);
        let c = &endpoint.config;
        let request = cm::request(&cm::Request {
            offer: endpoint.us,
            source: (path.local, local_port),
            destination: (path.remote, service),
            path_mtu: c.path_mtu,
            p_key: c.p_key,
            retry_count: c.retry_count,
            ack_timeout: c.ack_timeout,
            cm_timeout: c.cm_timeout,
            cm_retries: c.cm_retries,
            private_data: private_data.get(..cm::PRIVATE_DATA).unwrap_or(private_data),
        });
        endpoint.mads.push_back(request.clone());
        endpoint.phase =
            Phase::Connecting(Waiting::new(now, request, endpoint.config.cm_timeout, endpoint.config.cm_retries));
        endpoint
    }

    /// The end that accepts a connection, of which this is the REQ's management datagram. Its REP can be transmitted at
    /// once.
    ///
    /// # Errors
    /// The reason for which to refuse it: see [`Endpoint::rejection`].
    pub fn accept(
        now: Time,
        mut config: Config,
        path: Path,
        numbers: Numbers,
        request: &[u8],
    ) -> Result<Self, RejectReason> {
        let Ok((_, Some(CmMessage::Request(request)))) = parse_mad(request, &mut Off) else {
            return Err(RejectReason::UNSUPPORTED);
        };
        if request.head.transport() != 0 {
            return Err(RejectReason::INVALID_TRANSPORT_TYPE);
        }
        let mtu = request.path_mtu().filter(|mtu| *mtu <= config.path_mtu).ok_or(RejectReason::PATH_MTU)?;
        config.path_mtu = mtu;
        config.p_key = request.head.p_key;
        let mut endpoint = Self::new(config, path, numbers);
        if let Some(reason) = endpoint.faults.as_mut().and_then(Faults::rejects) {
            return Err(reason);
        }
        let peer = offer_of(&request);
        endpoint.agree(peer, Some((request.head.retry_count(), request.primary.local_ack_timeout())));
        let reply = cm::reply(&endpoint.us, peer.comm_id, &[]);
        endpoint.mads.push_back(reply.clone());
        endpoint.answer.clone_from(&reply);
        let (code, retries) = (request.head.local_response_timeout(), request.head.max_cm_retries());
        endpoint.phase = Phase::Accepting(Waiting::new(now, reply, code, retries));
        endpoint.private_data = request.private.to_vec();
        Ok(endpoint)
    }

    /// The management datagram that refuses a REQ, as a packet for its sender. No state is kept.
    pub fn rejection(path: &Path, request: &[u8], reason: RejectReason) -> Vec<u8> {
        let remote = match parse_mad(request, &mut Off) {
            Ok((_, Some(message))) => message.comm_ids().0.unwrap_or(0),
            _ => 0,
        };
        let mut out = Vec::new();
        emit_mad(path, 0, &cm::reject(0, remote, false, reason, cm::transaction(request)), &mut out);
        out
    }

    /// An MRA (12.6.6): the REQ is here already, and its answer takes a while.
    pub fn receipt(path: &Path, request: &[u8]) -> Option<Vec<u8>> {
        let Ok((_, Some(CmMessage::Request(ids)))) = parse_mad(request, &mut Off) else { return None };
        let mut out = Vec::new();
        emit_mad(path, 0, &cm::receipt(0, ids.local_comm_id, SERVICE_TIMEOUT, cm::transaction(request)), &mut out);
        Some(out)
    }

    /// The answer to a DREQ for a connection that does not exist any more (12.9.8.3.1).
    pub fn disconnect_reply(path: &Path, request: &[u8]) -> Option<Vec<u8>> {
        let Ok((_, Some(CmMessage::DisconnectRequest(request_head)))) = parse_mad(request, &mut Off) else {
            return None;
        };
        let mut out = Vec::new();
        let reply =
            cm::disconnect_reply(request_head.remote_comm_id, request_head.local_comm_id, cm::transaction(request));
        emit_mad(path, 0, &reply, &mut out);
        Some(out)
    }

    fn new(config: Config, path: Path, numbers: Numbers) -> Self {
        let us = Offer {
            comm_id: numbers.comm_id,
            qp: numbers.qp,
            starting_psn: numbers.psn & MASK_24,
            responder_resources: config.responder_resources,
            initiator_depth: config.initiator_depth,
            rnr_retry: config.rnr_retry,
            guid: 0x0200_00ff_fe00_0000 | u64::from(numbers.qp),
        };
        let mtu = usize::from(config.path_mtu);
        let limits = limits(&config, mtu);
        Self {
            us,
            path,
            peer: None,
            mad_psn: 0,
            phase: Phase::Over,
            mads: VecDeque::new(),
            answer: Vec::new(),
            private_data: Vec::new(),
            broken: false,
            requester: Requester::new(limits),
            responder: Responder::new(
                mtu,
                config.responder_resources.into(),
                config.receives,
                config.receive_max as usize,
                config.rnr_timer,
            ),
            sender: congestion::Sender::new(config.line_rate),
            receiver: congestion::Receiver::default(),
            check: Check::default(),
            memory: Regions::default(),
            events: VecDeque::new(),
            reported: false,
            next_read: 1,
            answers_first: true,
            faults: config
                .fault
                .and_then(|(fault, seed)| Faults::new(fault, seed))
                .map(|faults| faults.counted_by(&config.acted)),
            counters: Counters::default(),
            config,
        }
    }

    /// Takes over the peer's values: depths and, on the accepting side, number and time of retransmissions.
    fn agree(&mut self, peer: Offer, retries: Option<(u8, u8)>) {
        let mut limits = limits(&self.config, usize::from(self.config.path_mtu));
        self.us.initiator_depth = self.us.initiator_depth.min(peer.responder_resources);
        limits.depth = self.us.initiator_depth.into();
        limits.rnr_retry = peer.rnr_retry;
        if let Some((count, timeout)) = retries {
            limits.retry_count = count;
            limits.timeout = if timeout == 0 { 0 } else { timeout_nanos(timeout) };
        }
        self.requester.set_limits(limits);
        self.peer = Some(peer);
    }

    // ---- properties

    /// Our numbers.
    pub fn numbers(&self) -> Numbers {
        Numbers { qp: self.us.qp, comm_id: self.us.comm_id, psn: self.us.starting_psn }
    }

    /// The addresses of the connection.
    pub fn path(&self) -> Path {
        self.path
    }

    /// Bytes of payload in a packet.
    pub fn path_mtu(&self) -> u16 {
        self.config.path_mtu
    }

    /// The state of the queue pair.
    pub fn state(&self) -> State {
        match self.phase {
            Phase::Connecting(_) => State::Initialized,
            Phase::Accepting(_) => State::ReadyToReceive,
            Phase::Established | Phase::Closing(_) if !self.broken => State::ReadyToSend,
            Phase::Established | Phase::Closing(_) | Phase::Disconnecting(_) => State::Error,
            Phase::Over => State::Reset,
        }
    }

    /// True if operations can be posted.
    pub fn is_established(&self) -> bool {
        matches!(self.phase, Phase::Established) && !self.reported
    }

    /// True if the peer's communication manager has not answered yet.
    pub fn is_connecting(&self) -> bool {
        matches!(self.phase, Phase::Connecting(_))
    }

    /// True if both ends know that it is over, or no answer is expected any more.
    pub fn is_over(&self) -> bool {
        matches!(self.phase, Phase::Over) && self.mads.is_empty()
    }

    /// True if nothing of ours is to be sent or acknowledged.
    pub fn is_quiet(&self) -> bool {
        self.requester.len() == 0 && !self.responder.is_ready() && self.mads.is_empty() && !self.receiver.is_due()
    }

    /// Registered memory.
    pub fn memory(&self) -> &Regions {
        &self.memory
    }

    /// True if every operation that was asked for is done.
    pub fn is_acknowledged(&self) -> bool {
        self.requester.len() == 0
    }

    /// True if something is to be sent that waits for acknowledgments, or for answers to Reads.
    pub fn is_held(&self) -> bool {
        !self.broken && self.requester.is_held()
    }

    /// Bytes of messages that the peer has not acknowledged. Answers to its reads are made as they are transmitted.
    pub fn unsent(&self) -> usize {
        self.requester.bytes()
    }

    /// Counters below the messages.
    pub fn counters(&self) -> Counters {
        Counters {
            retransmitted: self.requester.retransmitted,
            duplicates: self.responder.duplicates,
            gaps: self.responder.gaps,
            cnps_received: self.sender.notifications,
            ..self.counters
        }
    }

    /// Number of times that the configured fault was applied.
    pub fn faults_done(&self) -> u64 {
        self.faults.as_ref().map_or(0, |faults| faults.done)
    }

    /// Bytes a second that congestion limits us to.
    pub fn rate(&self) -> Option<u64> {
        self.sender.rate()
    }

    // ---- in

    /// Takes a datagram that came to port 4791 from the peer's `source_port`; `congested` if its IP header has a
    /// congestion mark. Returns the fields of the IP header that the socket does not show, or `None` if the invariant
    /// CRC is wrong and the datagram is ignored.
    pub fn handle_datagram(&mut self, now: Time, source_port: u16, congested: bool, datagram: &[u8]) -> Option<Hidden> {
        self.handle_outside(now, &Outside { source_port, congested, header: None }, datagram)
    }

    /// The same if more of the headers is known: then all bits of the invariant CRC are checked.
    pub fn handle_outside(&mut self, now: Time, outside: &Outside, datagram: &[u8]) -> Option<Hidden> {
        let Outside { source_port, congested, header } = *outside;
        let solved = self.check.received(self.path.remote, self.path.local, source_port, datagram);
        // there is at most one solution: if it differs from the header, the CRC is not that of this packet
        let right = solved.filter(|solved| header.is_none_or(|header| header.hidden == *solved));
        let Some(hidden) = right else {
            self.counters.bad_crc += 1;
            return None;
        };
        if let Some(packet) = Packet::parse(datagram) {
            self.handle_packet(now, congested, &packet);
        } else {
            self.counters.foreign += 1;
        }
        Some(hidden)
    }

    fn handle_packet(&mut self, now: Time, congested: bool, packet: &Packet<'_>) {
        let bth = &packet.bth;
        // 9.6.1.1: version, partition (the upper bit marks a full member), queue pair
        if bth.tver() != 0 || (bth.p_key ^ self.config.p_key) & 0x7fff != 0 {
            self.counters.foreign += 1;
            return;
        }
        if bth.dest_qp == QP1 {
            if bth.operation() == Opcode::UD_SEND_ONLY {
                self.handle_mad(now, packet.payload);
            }
            return;
        }
        let ours = matches!(packet.row.service, Service::Rc | Service::Congestion);
        if bth.dest_qp != self.us.qp || !ours || self.peer.is_none() {
            self.counters.foreign += 1;
            return;
        }
        if packet.row.verb == Verb::Cnp {
            self.sender.notified(now);
            return;
        }
        if congested {
            self.receiver.marked(now);
        }
        if let Phase::Accepting(_) = self.phase {
            // a request has the same meaning as an RTU (12.9.7.2)
            if packet.row.is_request() {
                self.established(now);
            }
        }
        if self.broken || !matches!(self.phase, Phase::Established | Phase::Closing(_)) {
            return;
        }
        if packet.row.is_request() {
            self.handle_request(now, packet);
        } else {
            self.handle_answer(now, packet);
        }
    }

    fn handle_request(&mut self, now: Time, packet: &Packet<'_>) {
        let sequence = unwrap(packet.bth.psn, self.us.starting_psn, self.responder.expected());
        if sequence == self.responder.expected()
            && let Some(syndrome) = self.faults.as_mut().and_then(Faults::requested)
        {
            self.responder.acknowledge(sequence, syndrome);
            if let Syndrome::Nak(code) = Syndrome::of(syndrome)
                && code != NakCode::PSN_SEQUENCE_ERROR
            {
                self.fail(now, Closed::Violation(code, "on purpose"));
            }
            return;
        }
        match self.responder.handle(sequence, packet, &mut self.memory) {
            Done::Nothing => {}
            Done::Received { message, invalidated, immediate } => {
                self.events.push_back(Event::Received { message, invalidated, immediate });
            }
            Done::Broken(code, why) => self.fail(now, Closed::Violation(code, why)),
        }
    }

    fn handle_answer(&mut self, now: Time, packet: &Packet<'_>) {
        let Some(peer) = self.peer else { return };
        let sequence = unwrap(packet.bth.psn, peer.starting_psn, self.requester.una());
        let handled = match (packet.row.verb, packet.ext.syndrome()) {
            (Verb::ReadResponse, None | Some(Syndrome::Ack { .. })) => {
                let done = self.requester.handle_response(now, sequence, packet.row, packet.payload, &mut self.memory);
                done.map(|done| self.events.extend(done.map(|id| Event::ReadDone { id })))
            }
            (Verb::Acknowledge, Some(syndrome)) => self.requester.handle_ack(now, sequence, syndrome),
            _ => Ok(()),
        };
        if let Err(failed) = handled {
            self.fail(now, failed.into());
        }
    }

    /// The queue pair is in error: this is reported to the user, then the last NAK and a DREQ are sent.
    fn fail(&mut self, now: Time, why: Closed) {
        self.broken = true;
        self.tell(why);
        if let Phase::Established = self.phase {
            self.phase = Phase::Closing(later(now, LEAVE_WITHIN));
        }
    }

    fn tell(&mut self, why: Closed) {
        if !std::mem::replace(&mut self.reported, true) {
            self.events.push_back(Event::Closed(why));
        }
    }

    fn established(&mut self, now: Time) {
        self.phase = Phase::Established;
        let private_data = std::mem::take(&mut self.private_data);
        self.events.push_back(Event::Established { private_data });
        if self.faults.as_mut().is_some_and(Faults::established) {
            self.close(now);
        }
    }

    // ---- the communication manager

    fn handle_mad(&mut self, now: Time, mad: &[u8]) {
        let Ok((_, Some(message))) = parse_mad(mad, &mut Off) else { return };
        let transaction = cm::transaction(mad);
        let peer_id = self.peer.map(|peer| peer.comm_id);
        // 12.9.8.1: a message for another connection
        match message {
            CmMessage::Request(request) => {
                if peer_id != Some(request.local_comm_id) {
                    return;
                }
            }
            _ => {
                if message.comm_ids().1 != Some(self.us.comm_id) {
                    return;
                }
                let known = peer_id.is_none_or(|id| message.comm_ids().0 == Some(id));
                if !known && !matches!(message, CmMessage::Reject(_)) {
                    return;
                }
            }
        }
        match message {
            // the REP was lost
            CmMessage::Request(_) => {
                if let Phase::Accepting(_) = self.phase {
                    self.mads.push_back(self.answer.clone());
                }
            }
            CmMessage::Reply(reply) => match &self.phase {
                Phase::Connecting(_) => {
                    let head = &reply.head;
                    let peer = Offer {
                        comm_id: head.local_comm_id,
                        qp: head.local_qpn,
                        starting_psn: head.starting_psn,
                        responder_resources: head.responder_resources,
                        initiator_depth: head.initiator_depth,
                        rnr_retry: head.rnr_retry_count(),
                        guid: head.local_ca_guid,
                    };
                    if peer.qp <= QP1 {
                        self.tell(Closed::BadAnswer("names a queue pair that is a manager's"));
                        let reason = RejectReason::UNSUPPORTED;
                        self.mads.push_back(cm::reject(self.us.comm_id, peer.comm_id, true, reason, transaction));
                        self.phase = Phase::Over;
                        return;
                    }
                    if let Some(reason) = self.faults.as_mut().and_then(Faults::rejects) {
                        self.tell(Closed::ByUs);
                        self.mads.push_back(cm::reject(self.us.comm_id, peer.comm_id, true, reason, transaction));
                        self.phase = Phase::Over;
                        return;
                    }
                    self.agree(peer, None);
                    self.private_data = reply.private.to_vec();
                    self.answer = cm::ready(self.us.comm_id, peer.comm_id, transaction);
                    self.mads.push_back(self.answer.clone());
                    self.established(now);
                }
                // the RTU was lost
                Phase::Established | Phase::Closing(_) if !self.answer.is_empty() => {
                    self.mads.push_back(self.answer.clone())
                }
                _ => {}
            },
            CmMessage::ReadyToUse(_) => {
                if let Phase::Accepting(_) = self.phase {
                    self.established(now);
                }
            }
            CmMessage::MsgRcptAck(receipt) => {
                if let Phase::Connecting(waiting) | Phase::Accepting(waiting) = &mut self.phase {
                    waiting.extend(now, receipt.service_timeout());
                }
            }
            CmMessage::Reject(reject) => {
                if let Phase::Connecting(_) | Phase::Accepting(_) = self.phase {
                    self.tell(Closed::Rejected(reject.reason()));
                    self.phase = Phase::Over;
                }
            }
            CmMessage::DisconnectRequest(request) => {
                if request.remote_qpn != self.us.qp {
                    return;
                }
                self.mads.push_back(cm::disconnect_reply(self.us.comm_id, request.local_comm_id, transaction));
                self.tell(Closed::ByPeer);
                self.broken = true;
                self.phase = Phase::Over;
            }
            CmMessage::DisconnectReply(_) => {
                if let Phase::Disconnecting(_) = self.phase {
                    self.phase = Phase::Over;
                }
            }
            _ => {}
        }
    }

    // ---- time

    /// To be called when the time of [`Endpoint::poll_timeout`] has come; early is no harm.
    pub fn handle_timeout(&mut self, now: Time) {
        if !self.broken
            && let Err(failed) = self.requester.handle_timeout(now)
        {
            self.fail(now, failed.into());
        }
        match &mut self.phase {
            Phase::Connecting(waiting) | Phase::Accepting(waiting) => match waiting.due(now) {
                Some(true) => self.mads.push_back(waiting.mad.clone()),
                Some(false) => {
                    // the end that gives up reports this (12.9.8.3.1)
                    let remote = self.peer.map_or(0, |peer| peer.comm_id);
                    let of_reply = matches!(self.phase, Phase::Accepting(_));
                    let reason = RejectReason::TIMEOUT;
                    self.mads.push_back(cm::reject(self.us.comm_id, remote, of_reply, reason, self.us.comm_id.into()));
                    self.phase = Phase::Over;
                    self.tell(Closed::NoAnswer);
                }
                None => {}
            },
            Phase::Closing(until) => {
                let done = (self.broken || self.requester.len() == 0) && !self.responder.is_ready();
                if done || now >= *until {
                    self.disconnect(now);
                }
            }
            Phase::Disconnecting(waiting) => match waiting.due(now) {
                Some(true) => self.mads.push_back(waiting.mad.clone()),
                Some(false) => self.phase = Phase::Over,
                None => {}
            },
            Phase::Established | Phase::Over => {}
        }
    }

    fn disconnect(&mut self, now: Time) {
        self.broken = true;
        let Some(peer) = self.peer else {
            self.phase = Phase::Over;
            return;
        };
        let request = cm::disconnect(self.us.comm_id, peer.comm_id, peer.qp, self.us.comm_id.into());
        self.mads.push_back(request.clone());
        self.phase =
            Phase::Disconnecting(Waiting::new(now, request, self.config.cm_timeout.min(16), DISCONNECT_RETRIES));
    }

    /// The time at which [`Endpoint::handle_timeout`] must be called, or at which something can be transmitted that
    /// cannot be now.
    pub fn poll_timeout(&self) -> Option<Time> {
        let cm = match &self.phase {
            Phase::Connecting(waiting) | Phase::Accepting(waiting) | Phase::Disconnecting(waiting) => {
                Some(waiting.deadline)
            }
            Phase::Closing(until) => Some(*until),
            Phase::Established | Phase::Over => None,
        };
        let requester = if self.broken { None } else { self.requester.poll_timeout() };
        // packets that wait for the rate limit
        let open = matches!(self.phase, Phase::Established | Phase::Closing(_));
        let ready = if self.responder.is_ready() {
            Some(Time::MIN)
        } else {
            self.requester.ready_at().filter(|_| !self.broken)
        };
        let paced = self.sender.next().zip(ready).filter(|_| open).map(|(next, ready)| next.max(ready));
        let held = self.faults.as_ref().and_then(Faults::poll_timeout);
        [cm, requester, paced, held].into_iter().flatten().min()
    }

    // ---- out

    /// The type of service of its packets.
    pub(super) const fn tos(&self) -> u8 {
        self.config.tos()
    }

    /// Appends the next datagram to `out`.
    pub fn poll_transmit(&mut self, now: Time, out: &mut Vec<u8>) -> Option<Leaving> {
        let start = out.len();
        let data = self.config.tos();
        let tos = match self.faults.take() {
            None => self.emit(now, data, out)?,
            Some(mut faults) => {
                let tos = loop {
                    if let Some((tos, bytes)) = faults.due(now) {
                        out.extend_from_slice(&bytes);
                        break Some(tos);
                    }
                    let Some(tos) = self.emit(now, data, out) else { break None };
                    if let Fate::Sent(tos) = faults.leaving(now, &self.path, start, tos, out) {
                        break Some(tos);
                    }
                };
                self.faults = Some(faults);
                tos?
            }
        };
        Some(Leaving { length: out.len() - start, tos })
    }

    /// The same; the type of service.
    fn emit(&mut self, now: Time, data: u8, out: &mut Vec<u8>) -> Option<u8> {
        if let Phase::Closing(_) = self.phase {
            self.handle_timeout(now);
        }
        if let Some(mad) = self.mads.pop_front() {
            emit_mad(&self.path, self.mad_psn, &mad, out);
            self.mad_psn = (self.mad_psn + 1) & MASK_24;
            return Some(0);
        }
        let peer = self.peer?;
        let p_key = self.config.p_key;
        if self.receiver.take() {
            let bth = Bth { p_key, resv8: 0x40, ..Bth::new(Opcode::CNP, peer.qp, 0) };
            packet::emit(&self.path, bth, &[0; 16], &[], out);
            self.counters.cnps_sent += 1;
            return Some(CNP_DSCP << 2);
        }
        if !matches!(self.phase, Phase::Established | Phase::Closing(_)) {
            return None;
        }
        let asking = !self.broken && self.requester.is_ready(now);
        let answering = self.responder.is_ready();
        let data_next = asking || self.responder.is_reading();
        if data_next && !self.sender.may_send(now) {
            return None;
        }
        let start = out.len();
        let bth = |opcode: Opcode, psn, ask: bool, solicited: bool| {
            let (bits, ack) = (u8::from(solicited) << 7, u8::from(ask) << 7);
            Bth { bits, p_key, ack, ..Bth::new(opcode, peer.qp, psn) }
        };
        if answering && (self.answers_first || !asking) {
            self.answers_first = false;
            let answer = self.responder.poll_transmit(&self.memory)?;
            let head = bth(answer.opcode, wrap(answer.sequence, self.us.starting_psn), false, false);
            packet::emit(&self.path, head, answer.extension.as_ref().map_or(&[], |e| &e[..]), answer.payload, out);
        } else {
            self.answers_first = true;
            let request = self.requester.poll_transmit(now)?;
            let head = bth(request.opcode, wrap(request.sequence, peer.starting_psn), request.ask, request.solicited);
            packet::emit(&self.path, head, &request.extensions, request.payload, out);
        }
        self.sender.sent(now, out.len() - start);
        Some(data)
    }

    /// The next event, oldest first; `None` if there is none.
    pub fn poll_event(&mut self) -> Option<Event> {
        let event = self.events.pop_front();
        if let Some(Event::Received { .. }) = event {
            // its receive is posted again
            self.responder.receives += 1;
        }
        event
    }

    // ---- operations

    /// Registers `data` and grants `rights` to the peer. `None` if no more can be registered.
    pub fn register(&mut self, data: Vec<u8>, rights: Rights) -> Option<Handle> {
        self.memory.register(data, rights)
    }

    /// The same, under a key and at an address that the caller chose: see [`Regions::register_at`].
    pub fn register_at(&mut self, handle: Handle, data: Vec<u8>, rights: Rights) {
        self.memory.register_at(handle, data, rights);
    }

    /// Ends a region and returns its bytes.
    pub fn deregister(&mut self, key: u32) -> Option<Vec<u8>> {
        self.memory.deregister(key)
    }

    fn ready(&self) -> Result<(), OpError> {
        if !self.is_established() {
            return Err(OpError::NotEstablished);
        }
        if self.requester.len() >= WORK_MAX { Err(OpError::Full) } else { Ok(()) }
    }

    /// Sends a message; with `invalidate`, the peer's region of that key ends when it has arrived.
    ///
    /// # Errors
    /// If the connection is not established, or too many operations wait already.
    pub fn send(&mut self, message: &[u8], invalidate: Option<u32>, solicited: bool) -> Result<(), OpError> {
        self.ready()?;
        self.requester.post(Work::Send { data: message.to_vec(), invalidate, immediate: None, solicited });
        Ok(())
    }

    /// Sends a message with immediate data.
    ///
    /// # Errors
    /// As [`Endpoint::send`].
    pub fn send_with_immediate(&mut self, message: &[u8], immediate: u32) -> Result<(), OpError> {
        self.ready()?;
        self.requester.post(Work::Send {
            data: message.to_vec(),
            invalidate: None,
            immediate: Some(immediate),
            solicited: false,
        });
        Ok(())
    }

    /// Writes into the peer's memory; `immediate` is delivered to the peer.
    ///
    /// # Errors
    /// As [`Endpoint::send`].
    pub fn write(&mut self, key: u32, offset: u64, data: &[u8], immediate: Option<u32>) -> Result<(), OpError> {
        self.ready()?;
        self.requester.post(Work::Write { key, offset, data: data.to_vec(), immediate });
        Ok(())
    }

    /// Reads the peer's memory into one of our regions, in Read Requests of [`Config::read_max`] bytes. The returned
    /// number comes back in [`Event::ReadDone`].
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
        self.ready()?;
        if self.requester.limits.depth == 0 {
            return Err(OpError::NoReads);
        }
        if !self.memory.has_room(sink, sink_offset, length) {
            return Err(OpError::Sink);
        }
        let id = self.next_read;
        self.next_read += 1;
        // a multiple of the packet size
        let step = (self.config.read_max / u32::from(self.config.path_mtu)).max(1) * u32::from(self.config.path_mtu);
        let mut at = 0;
        loop {
            let part = (length - at).min(step);
            let last = at + part == length;
            self.requester.post(Work::Read(Read {
                sink,
                sink_offset: sink_offset.wrapping_add(at.into()),
                key: source,
                offset: source_offset.wrapping_add(at.into()),
                length: part,
                have: 0,
                last_of: last.then_some(id),
            }));
            if last {
                return Ok(id);
            }
            at += part;
        }
    }

    /// Ends the connection in order: sent messages have a second to be acknowledged.
    pub fn close(&mut self, now: Time) {
        self.tell(Closed::ByUs);
        match &self.phase {
            Phase::Established => self.phase = Phase::Closing(later(now, LEAVE_WITHIN)),
            Phase::Connecting(_) => {
                // a REP may be in transit
                self.mads.push_back(cm::reject(
                    self.us.comm_id,
                    0,
                    false,
                    RejectReason::CONSUMER,
                    self.us.comm_id.into(),
                ));
                self.phase = Phase::Over;
            }
            Phase::Accepting(_) => self.disconnect(now),
            Phase::Closing(_) | Phase::Disconnecting(_) | Phase::Over => {}
        }
    }
}

impl From<Failed> for Closed {
    fn from(failed: Failed) -> Self {
        match failed {
            Failed::Retries => Self::Retries,
            Failed::RnrRetries => Self::RnrRetries,
            Failed::Nak(code) => Self::Refused(code),
            Failed::BadResponse(why) => Self::BadResponse(why),
        }
    }
}

fn limits(config: &Config, mtu: usize) -> Limits {
    Limits {
        mtu,
        depth: config.initiator_depth.into(),
        window: (config.window as usize / mtu).max(2) as u64,
        timeout: timeout_nanos(config.ack_timeout),
        retry_count: config.retry_count,
        rnr_retry: config.rnr_retry,
    }
}

fn offer_of(request: &ConnectRequest<'_>) -> Offer {
    let head = &request.head;
    Offer {
        comm_id: request.local_comm_id,
        qp: head.local_qpn,
        starting_psn: head.starting_psn,
        responder_resources: head.responder_resources,
        initiator_depth: head.initiator_depth,
        rnr_retry: head.rnr_retry_count(),
        guid: head.local_ca_guid,
    }
}

/// A management datagram, as a packet to queue pair 1.
fn emit_mad(path: &Path, psn: u32, mad: &[u8], out: &mut Vec<u8>) {
    let bth = Bth::new(Opcode::UD_SEND_ONLY, QP1, psn);
    packet::emit(path, bth, &packet::DETH, mad, out);
}

/// Destination of a management datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Addressed {
    /// A REQ: the service's port in the TCP port space of the RDMA-CM, the communication ID of the requester, and its
    /// source port.
    Service {
        /// The port of the service; `None` for one of another port space.
        port: Option<u16>,
        /// The communication ID of the requester.
        comm_id: u32,
        /// The source port, if the REQ has it.
        source_port: Option<u16>,
    },
    /// A message for the connection of this communication identifier.
    Connection(u32),
}

/// Parses a datagram to queue pair 1: its destination, and the management datagram in it. `None` if it is not a message
/// of a communication manager.
pub fn addressed(datagram: &[u8]) -> Option<(Addressed, &[u8])> {
    let packet = Packet::parse(datagram)?;
    if packet.bth.dest_qp != QP1 || packet.bth.operation() != Opcode::UD_SEND_ONLY {
        return None;
    }
    let (_, message) = parse_mad(packet.payload, &mut Off).ok()?;
    let to = match message? {
        CmMessage::Request(request) => Addressed::Service {
            port: request.service_id.port().filter(|(protocol, _)| *protocol == 6).map(|(_, port)| port),
            comm_id: request.local_comm_id,
            source_port: request.addresses.map(|addresses| addresses.source_port),
        },
        message => Addressed::Connection(message.comm_ids().1?),
    };
    Some((to, packet.payload))
}
