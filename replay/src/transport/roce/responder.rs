//! The responder of a reliable connection (IBA volume 1, 9.7.4 and 9.7.5): accepts packets in their order, refuses
//! others, answers duplicates once more, and refuses access to memory that was not granted. Sequence numbers are
//! counted in 64 bits here, from [`START`] on.

use super::packet::{self, Kind, MASK_24, Packet};
use super::requester::START;
use crate::transport::memory::{Refusal, Regions};
use rdmascope_dissector::wire::ib::bth::{Opcode, Verb};
use rdmascope_dissector::wire::ib::ext::{ACK, NAK, NakCode, RNR_NAK, aeth_bytes};
use std::collections::VecDeque;

/// Maximum number of waiting answers: a peer that sends but does not receive gets no more.
const ANSWERS_MAX: usize = 256;

/// The message that is being received.
#[derive(Debug)]
enum Current {
    Nothing,
    Send(Vec<u8>),
    Write { key: u32, offset: u64, left: u32 },
}

/// An answer to be sent; they are kept in the order of sequence numbers.
#[derive(Clone, Copy, Debug)]
enum Answer {
    Acknowledge {
        sequence: u64,
        syndrome: u8,
        msn: u32,
    },
    /// `again`: answers a Read that was answered before.
    Read {
        first: u64,
        key: u32,
        offset: u64,
        length: u32,
        sent: u64,
        msn: u32,
        again: bool,
    },
}

/// A packet to be sent, but for its header.
#[derive(Debug)]
pub(super) struct Out<'a> {
    pub(super) opcode: Opcode,
    pub(super) sequence: u64,
    pub(super) extension: Option<[u8; 4]>,
    pub(super) payload: &'a [u8],
}

/// Result of processing a packet.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Done {
    /// Nothing to report to the user.
    Nothing,
    /// A message arrived.
    Received { message: Vec<u8>, invalidated: Option<u32>, immediate: Option<u32> },
    /// It breaks a rule: a NAK is sent, and the queue pair ends.
    Broken(NakCode, &'static str),
}

#[derive(Debug)]
pub(super) struct Responder {
    pub(super) mtu: usize,
    /// Number of reads that are answered at a time.
    pub(super) depth: u32,
    /// Maximum size of a Send, in bytes.
    pub(super) receive_max: usize,
    /// Sends that may come: receives that are posted.
    pub(super) receives: u32,
    pub(super) rnr_timer: u8,
    expected: u64,
    msn: u32,
    current: Current,
    /// A NAK of this gap was sent.
    gap_reported: bool,
    answers: VecDeque<Answer>,
    reads: u32,
    /// Number of repeated packets.
    pub(super) duplicates: u64,
    /// Number of packets that arrived out of order.
    pub(super) gaps: u64,
}

impl Responder {
    pub(super) fn new(mtu: usize, depth: u32, receives: u32, receive_max: usize, rnr_timer: u8) -> Self {
        Self {
            mtu,
            depth,
            receive_max,
            receives,
            rnr_timer,
            expected: START,
            msn: 0,
            current: Current::Nothing,
            gap_reported: false,
            answers: VecDeque::new(),
            reads: 0,
            duplicates: 0,
            gaps: 0,
        }
    }

    /// The next expected packet: received sequence numbers are close to it.
    pub(super) fn expected(&self) -> u64 {
        self.expected
    }

    pub(super) fn is_ready(&self) -> bool {
        !self.answers.is_empty()
    }

    /// True if data waits to be sent, and not only acknowledgements.
    pub(super) fn is_reading(&self) -> bool {
        matches!(self.answers.front(), Some(Answer::Read { .. }))
    }

    /// An acknowledgement, or a refusal.
    pub(super) fn acknowledge(&mut self, sequence: u64, syndrome: u8) {
        let answer = Answer::Acknowledge { sequence, syndrome, msn: self.msn };
        // a later one includes the earlier
        if let Some(Answer::Acknowledge { syndrome: ACK, .. }) = self.answers.back() {
            self.answers.pop_back();
        }
        if self.answers.len() < ANSWERS_MAX {
            self.answers.push_back(answer);
        }
    }

    /// A request of the peer.
    pub(super) fn handle(&mut self, sequence: u64, packet: &Packet<'_>, memory: &mut Regions) -> Done {
        if sequence < self.expected {
            self.duplicate(sequence, packet, memory);
            return Done::Nothing;
        }
        if sequence > self.expected {
            self.gaps += 1;
            // one NAK for a gap (9.7.5.2.8)
            if !std::mem::replace(&mut self.gap_reported, true) {
                self.acknowledge(self.expected, NAK | NakCode::PSN_SEQUENCE_ERROR.0);
            }
            return Done::Nothing;
        }
        match self.take(packet, memory) {
            Ok(done) => {
                self.gap_reported = false;
                done
            }
            Err(Refused::NotReady) => {
                self.gap_reported = true;
                let syndrome = RNR_NAK | self.rnr_timer & 0x1f;
                self.acknowledge(sequence, syndrome);
                Done::Nothing
            }
            Err(Refused::Nak(code, why)) => {
                self.acknowledge(sequence, NAK | code.0);
                Done::Broken(code, why)
            }
        }
    }

    /// Handles a repeated packet: acknowledges it once more, or answers a read once more (9.7.1, 9.7.5.1.4).
    fn duplicate(&mut self, sequence: u64, packet: &Packet<'_>, memory: &Regions) {
        self.duplicates += 1;
        match (packet.row.verb, packet.ext.reth) {
            (Verb::ReadRequest, Some(reth)) => {
                let packets = u64::from(reth.dma_length).div_ceil(self.mtu as u64).max(1);
                // an answer that is still to be sent is not doubled
                let coming = |answer: &Answer| matches!(answer, Answer::Read { first, sent, .. } if first + sent <= sequence && sequence + packets <= first + self.packets(answer));
                if self.answers.iter().any(coming) {
                    return;
                }
                let within = sequence + packets <= self.expected
                    && self.reads < self.depth.max(1) * 2
                    && self.answers.len() < ANSWERS_MAX;
                if within
                    && (reth.dma_length == 0 || memory.read(reth.r_key, reth.virtual_address, reth.dma_length).is_ok())
                {
                    self.reads += 1;
                    let (key, offset, length) = (reth.r_key, reth.virtual_address, reth.dma_length);
                    self.answers.push_back(Answer::Read {
                        first: sequence,
                        key,
                        offset,
                        length,
                        sent: 0,
                        msn: self.msn,
                        again: true,
                    });
                }
            }
            _ => self.acknowledge(self.expected.wrapping_sub(1), ACK),
        }
    }

    /// Number of packets that answer a read.
    fn packets(&self, answer: &Answer) -> u64 {
        match answer {
            Answer::Read { length, .. } => u64::from(*length).div_ceil(self.mtu as u64).max(1),
            Answer::Acknowledge { .. } => 0,
        }
    }

    /// The packet that is expected.
    fn take(&mut self, packet: &Packet<'_>, memory: &mut Regions) -> Result<Done, Refused> {
        let row = packet.row;
        let invalid = |why| Refused::Nak(NakCode::INVALID_REQUEST, why);
        let (first, last, length) = (row.is_first(), row.is_last(), packet.payload.len());
        if first != matches!(self.current, Current::Nothing) {
            return Err(invalid("its opcode does not follow the one before"));
        }
        // 9.7.4.1.6: full packets but for the last
        match (row.verb, last) {
            (Verb::Send | Verb::Write, false) if length != self.mtu => {
                return Err(invalid("a packet that is not the last is not full"));
            }
            (Verb::Send | Verb::Write, true) if length > self.mtu => {
                return Err(invalid("a packet is longer than the path MTU"));
            }
            (Verb::Send | Verb::Write, true) if length == 0 && !first => {
                return Err(invalid("the last packet is empty"));
            }
            _ => {}
        }
        let mut done = Done::Nothing;
        match row.verb {
            Verb::Send => {
                let mut message = match std::mem::replace(&mut self.current, Current::Nothing) {
                    Current::Nothing => {
                        if self.receives == 0 {
                            return Err(Refused::NotReady);
                        }
                        self.receives -= 1;
                        Vec::new()
                    }
                    Current::Send(message) => message,
                    Current::Write { .. } => return Err(invalid("its opcode does not follow the one before")),
                };
                if message.len() + length > self.receive_max {
                    return Err(invalid("a Send is longer than the receive for it"));
                }
                message.extend_from_slice(packet.payload);
                if last {
                    let mut invalidated = None;
                    if let Some(key) = packet.ext.invalidate {
                        if !memory.invalidate(key) {
                            return Err(Refused::Nak(
                                NakCode::REMOTE_ACCESS_ERROR,
                                "it invalidates a key that was never advertised",
                            ));
                        }
                        invalidated = Some(key);
                    }
                    done = Done::Received { message, invalidated, immediate: packet.ext.immediate };
                } else {
                    self.current = Current::Send(message);
                }
            }
            Verb::Write => {
                let (key, offset, left) =
                    match (std::mem::replace(&mut self.current, Current::Nothing), packet.ext.reth) {
                        (Current::Nothing, Some(reth)) => {
                            // nothing is written of a message that would not fit
                            if reth.dma_length > 0 {
                                memory.may_write(reth.r_key, reth.virtual_address, reth.dma_length).map_err(access)?;
                            }
                            (reth.r_key, reth.virtual_address, reth.dma_length)
                        }
                        (Current::Write { key, offset, left }, None) => (key, offset, left),
                        _ => return Err(invalid("its opcode does not follow the one before")),
                    };
                let length = length as u32;
                if length > left || last != (length == left) {
                    return Err(invalid("an RDMA Write is longer or shorter than its header says"));
                }
                if row.immediate() {
                    // it takes a receive, as a Send does
                    self.receives = self.receives.checked_sub(1).ok_or(Refused::NotReady).inspect_err(|_| {
                        if !first {
                            self.current = Current::Write { key, offset, left };
                        }
                    })?;
                }
                if length > 0 {
                    memory.write(key, offset, packet.payload).map_err(access)?;
                }
                if !last {
                    self.current =
                        Current::Write { key, offset: offset.wrapping_add(length.into()), left: left - length };
                } else if row.immediate() {
                    done = Done::Received { message: Vec::new(), invalidated: None, immediate: packet.ext.immediate };
                }
            }
            Verb::ReadRequest => {
                let reth = packet.ext.reth.ok_or_else(|| invalid("a Read Request without its header"))?;
                if self.reads >= self.depth || self.answers.len() >= ANSWERS_MAX {
                    return Err(invalid("more RDMA Reads at a time than we accept"));
                }
                if reth.dma_length > 1 << 31 {
                    return Err(invalid("a Read Request of more than 2 GiB"));
                }
                if reth.dma_length > 0 {
                    memory.read(reth.r_key, reth.virtual_address, reth.dma_length).map_err(access)?;
                }
                self.reads += 1;
                self.msn = self.msn.wrapping_add(1) & MASK_24;
                let (key, offset, length) = (reth.r_key, reth.virtual_address, reth.dma_length);
                self.answers.push_back(Answer::Read {
                    first: self.expected,
                    key,
                    offset,
                    length,
                    sent: 0,
                    msn: self.msn,
                    again: false,
                });
                self.expected += u64::from(length).div_ceil(self.mtu as u64).max(1);
                return Ok(Done::Nothing);
            }
            // atomics are not offered
            _ => return Err(invalid("an operation that is not offered")),
        }
        if last {
            self.msn = self.msn.wrapping_add(1) & MASK_24;
        }
        self.expected += 1;
        if packet.bth.a() {
            self.acknowledge(self.expected - 1, ACK);
        }
        Ok(done)
    }

    /// The next packet of an answer.
    pub(super) fn poll_transmit<'a>(&mut self, memory: &'a Regions) -> Option<Out<'a>> {
        loop {
            let Answer::Read { first, key, offset, length, sent, msn, again } = self.answers.front_mut()? else {
                let Some(Answer::Acknowledge { sequence, syndrome, msn }) = self.answers.pop_front() else {
                    return None;
                };
                let extension = Some(aeth_bytes(syndrome, msn));
                return Some(Out { opcode: Opcode::RC_ACKNOWLEDGE, sequence, extension, payload: &[] });
            };
            let packets = u64::from(*length).div_ceil(self.mtu as u64).max(1);
            let (n, at) = (*sent, *sent as u32 * self.mtu as u32);
            let (sequence, msn, again) = (*first + n, *msn, *again);
            let payload = match (*length - at).min(self.mtu as u32) {
                0 => Ok(&[][..]),
                size => memory.read(*key, offset.wrapping_add(at.into()), size),
            };
            let part = packet::part(n, packets);
            *sent += 1;
            let ends = *sent == packets || payload.is_err();
            if ends {
                self.answers.pop_front();
                self.reads = self.reads.saturating_sub(1);
            }
            let Ok(payload) = payload else {
                // A region that is gone while a Read is answered once more: its peer has the first answer, or it
                // would not have invalidated the key. There is nothing to refuse.
                if again {
                    continue;
                }
                // the region was deregistered during the read
                let extension = Some(aeth_bytes(NAK | NakCode::REMOTE_OPERATIONAL_ERROR.0, msn));
                return Some(Out { opcode: Opcode::RC_ACKNOWLEDGE, sequence, extension, payload: &[] });
            };
            let opcode = packet::opcode(Kind::Response, part);
            let extension =
                opcode.row().is_some_and(|row| row.is_first() || row.is_last()).then(|| aeth_bytes(ACK, msn));
            return Some(Out { opcode, sequence, extension, payload });
        }
    }
}

#[derive(Debug)]
enum Refused {
    NotReady,
    Nak(NakCode, &'static str),
}

fn access(refusal: Refusal) -> Refused {
    let why = match refusal {
        Refusal::Key => "no region has the key",
        Refusal::Bounds | Refusal::Wrap => "it is outside the region",
        Refusal::Rights => "the region does not grant this",
    };
    Refused::Nak(NakCode::REMOTE_ACCESS_ERROR, why)
}
