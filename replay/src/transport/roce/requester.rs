//! The requester of a reliable connection (IBA volume 1, 9.7.3 to 9.7.5): messages as packets, in order;
//! acknowledgements, answers to reads, refusals; and going back to the first packet that is missing. Sequence numbers
//! are counted in 64 bits here, from [`START`] on.

use super::packet::{self, Kind, later};
use crate::transport::Time;
use crate::transport::memory::Regions;
use rdmascope_dissector::wire::ib::bth::{Opcode, Row};
use rdmascope_dissector::wire::ib::ext::{NakCode, Syndrome, rnr_timer};
use std::collections::VecDeque;

/// One of this number of packets requests an acknowledgement, so that a long message does not wait for its end.
const ASK_EVERY: u64 = 16;
/// The first sequence number: so that earlier ones are valid numbers, too.
pub(super) const START: u64 = 1 << 32;
/// RNR retries for ever (9.7.5.2.8).
const FOR_EVER: u8 = 7;

/// A request to the peer.
#[derive(Clone, Debug)]
pub(super) enum Work {
    Send { data: Vec<u8>, invalidate: Option<u32>, immediate: Option<u32>, solicited: bool },
    Write { key: u32, offset: u64, data: Vec<u8>, immediate: Option<u32> },
    Read(Read),
}

/// A part of one of our reads: one Read Request, if none is lost.
#[derive(Clone, Copy, Debug)]
pub(super) struct Read {
    pub(super) sink: u32,
    pub(super) sink_offset: u64,
    pub(super) key: u32,
    pub(super) offset: u64,
    pub(super) length: u32,
    /// Bytes that have arrived.
    pub(super) have: u32,
    /// The user's number for the whole read, if this is its last part.
    pub(super) last_of: Option<u64>,
}

#[derive(Debug)]
struct Posted {
    first: u64,
    packets: u64,
    work: Work,
}

impl Posted {
    fn end(&self) -> u64 {
        self.first + self.packets
    }

    /// Bytes that wait here to be sent.
    fn bytes(&self) -> usize {
        match &self.work {
            Work::Send { data, .. } | Work::Write { data, .. } => data.len(),
            Work::Read(_) => 0,
        }
    }
}

/// A packet to be sent, but for its header.
#[derive(Debug)]
pub(super) struct Out<'a> {
    pub(super) opcode: Opcode,
    pub(super) sequence: u64,
    pub(super) ask: bool,
    pub(super) solicited: bool,
    pub(super) extensions: Vec<u8>,
    pub(super) payload: &'a [u8],
}

/// Reason for which the queue pair cannot continue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Failed {
    /// Sent as often as agreed, and not acknowledged.
    Retries,
    /// The peer had no receive as often as agreed.
    RnrRetries,
    /// The peer refused.
    Nak(NakCode),
    /// An answer to a read that does not fit the request.
    BadResponse(&'static str),
}

/// Limits of a requester.
#[derive(Clone, Copy, Debug)]
pub(super) struct Limits {
    pub(super) mtu: usize,
    /// Maximum number of outstanding reads.
    pub(super) depth: u32,
    /// Maximum number of unacknowledged packets.
    pub(super) window: u64,
    /// ns; 0 for ever.
    pub(super) timeout: u64,
    pub(super) retry_count: u8,
    pub(super) rnr_retry: u8,
}

#[derive(Debug)]
pub(super) struct Requester {
    pub(super) limits: Limits,
    queue: VecDeque<Posted>,
    /// The oldest packet that is not acknowledged.
    una: u64,
    /// The next packet to be sent; less than [`Requester::sent`] after going back.
    next: u64,
    /// Index of `next` in the queue.
    at: usize,
    /// Behind the last that was sent.
    sent: u64,
    /// Behind the last that was posted.
    posted: u64,
    /// Read Requests that were sent and not answered completely, and the packets of their answers.
    reading: u32,
    reading_packets: u64,
    deadline: Option<Time>,
    /// Factor of the next timeout: up to 4 times the time agreed (9.7.6.1.3).
    patience: u64,
    retries: u8,
    rnr_retries: u8,
    rnr_until: Option<Time>,
    /// The packet to which we went back, if nothing was acknowledged since.
    went_back: Option<u64>,
    bytes: usize,
    /// Packets that were sent again.
    pub(super) retransmitted: u64,
}

impl Requester {
    pub(super) fn new(limits: Limits) -> Self {
        Self {
            limits,
            queue: VecDeque::new(),
            una: START,
            next: START,
            at: 0,
            sent: START,
            posted: START,
            reading: 0,
            reading_packets: 0,
            deadline: None,
            patience: 1,
            retries: limits.retry_count,
            rnr_retries: limits.rnr_retry,
            rnr_until: None,
            went_back: None,
            bytes: 0,
            retransmitted: 0,
        }
    }

    /// Sets the limits that the CM negotiated. Must be called before anything is sent.
    pub(super) fn set_limits(&mut self, limits: Limits) {
        self.limits = limits;
        self.retries = limits.retry_count;
        self.rnr_retries = limits.rnr_retry;
    }

    pub(super) fn post(&mut self, work: Work) {
        let length = match &work {
            Work::Send { data, .. } | Work::Write { data, .. } => data.len(),
            Work::Read(read) => read.length as usize,
        };
        let posted = Posted { first: self.posted, packets: length.div_ceil(self.limits.mtu).max(1) as u64, work };
        self.posted = posted.end();
        self.bytes += posted.bytes();
        self.queue.push_back(posted);
    }

    /// Operations that are not done.
    pub(super) fn len(&self) -> usize {
        self.queue.len()
    }

    /// Bytes that are not acknowledged.
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    /// The oldest unacknowledged packet: received sequence numbers are close to it.
    pub(super) fn una(&self) -> u64 {
        self.una
    }

    pub(super) fn poll_timeout(&self) -> Option<Time> {
        [self.deadline, self.rnr_until].into_iter().flatten().min()
    }

    /// True if something is to be sent, and something has to come before.
    pub(super) fn is_held(&self) -> bool {
        self.at < self.queue.len() && !self.may_send()
    }

    /// True if a packet may be sent now.
    pub(super) fn is_ready(&self, now: Time) -> bool {
        self.ready_at().is_some_and(|at| now >= at)
    }

    /// The time from which a packet may be sent: `None` if something has to come before.
    pub(super) fn ready_at(&self) -> Option<Time> {
        self.may_send().then_some(self.rnr_until.unwrap_or(Time::MIN))
    }

    fn may_send(&self) -> bool {
        if self.next - self.una >= self.limits.window {
            return false;
        }
        match self.queue.get(self.at) {
            Some(Posted { work: Work::Read(_), packets, .. }) => {
                self.reading == 0
                    || self.reading < self.limits.depth && self.reading_packets + packets <= self.limits.window
            }
            Some(_) => true,
            None => false,
        }
    }

    /// The next packet.
    pub(super) fn poll_transmit(&mut self, now: Time) -> Option<Out<'_>> {
        if !self.is_ready(now) {
            return None;
        }
        let (index, sequence) = (self.at, self.next);
        let (mtu, window) = (self.limits.mtu, self.limits.window);
        let posted = self.queue.get(index)?;
        let (n, packets) = (sequence - posted.first, posted.packets);
        // the missing part of a read is requested at once
        let step = if matches!(posted.work, Work::Read(_)) { packets - n } else { 1 };
        self.next += step;
        if self.next >= posted.end() {
            self.at += 1;
        }
        if sequence < self.sent {
            self.retransmitted += 1;
        }
        self.sent = self.sent.max(self.next);
        if matches!(posted.work, Work::Read(_)) {
            self.reading += 1;
            self.reading_packets += step;
        }
        // it runs from the last packet on: a long message at a low rate is no silence
        if self.limits.timeout > 0 {
            self.deadline = Some(later(now, self.limits.timeout.saturating_mul(self.patience)));
        }
        let last = n + 1 == packets;
        let full = self.next - self.una >= window;
        let part = packet::part(n, packets);
        let piece = |data: &'_ [u8]| n as usize * mtu..data.len().min((n as usize + 1) * mtu);
        Some(match &self.queue[index].work {
            Work::Send { data, invalidate, immediate, solicited } => Out {
                opcode: packet::opcode(
                    Kind::Send { invalidate: invalidate.is_some(), immediate: immediate.is_some() },
                    part,
                ),
                sequence,
                ask: last || full || sequence % ASK_EVERY == ASK_EVERY - 1,
                solicited: last && *solicited,
                extensions: match (invalidate, immediate) {
                    (Some(word), _) | (None, Some(word)) if last => word.to_be_bytes().to_vec(),
                    _ => Vec::new(),
                },
                payload: &data[piece(data)],
            },
            Work::Write { key, offset, data, immediate } => {
                let mut extensions = if n == 0 { packet::reth(*key, *offset, data.len() as u32) } else { Vec::new() };
                if let (true, Some(word)) = (last, immediate) {
                    extensions.extend_from_slice(&word.to_be_bytes());
                }
                Out {
                    opcode: packet::opcode(Kind::Write { immediate: immediate.is_some() }, part),
                    sequence,
                    ask: last || full || sequence % ASK_EVERY == ASK_EVERY - 1,
                    solicited: false,
                    extensions,
                    payload: &data[piece(data)],
                }
            }
            Work::Read(read) => {
                let skip = n as u32 * mtu as u32;
                Out {
                    opcode: Opcode::RC_RDMA_READ_REQUEST,
                    sequence,
                    ask: true,
                    solicited: false,
                    extensions: packet::reth(read.key, read.offset.wrapping_add(skip.into()), read.length - skip),
                    payload: &[],
                }
            }
        })
    }

    /// All packets before `upto` arrived. Reads whose answers are missing there were lost: they are requested again.
    fn acknowledge(&mut self, now: Time, upto: u64) {
        let upto = upto.min(self.sent);
        let before = self.una;
        let mut lost = None;
        while let Some(front) = self.queue.front() {
            if let Work::Read(_) = front.work {
                if front.first < upto {
                    lost = Some(front.first.max(self.una));
                }
                break;
            }
            if front.end() > upto {
                break;
            }
            self.una = front.end();
            self.drop_front();
        }
        self.una = match lost {
            Some(first) => first,
            None => self.una.max(upto),
        };
        self.progress(now, before);
        if let Some(first) = lost {
            self.lost(first);
        }
    }

    fn drop_front(&mut self) {
        if let Some(front) = self.queue.pop_front() {
            self.bytes -= front.bytes();
            self.at = self.at.saturating_sub(1);
        }
    }

    /// Something was acknowledged.
    fn progress(&mut self, now: Time, before: u64) {
        if self.next < self.una {
            self.next = self.una;
            self.locate();
        }
        if self.una == before {
            return;
        }
        self.went_back = None;
        self.patience = 1;
        self.retries = self.limits.retry_count;
        self.rnr_retries = self.limits.rnr_retry;
        self.deadline = (self.una < self.sent && self.limits.timeout > 0).then(|| later(now, self.limits.timeout));
    }

    /// Finds the operation to which `next` belongs, and counts the reads before it.
    fn locate(&mut self) {
        self.at = self.queue.partition_point(|posted| posted.end() <= self.next);
        (self.reading, self.reading_packets) = (0, 0);
        for posted in self.queue.iter().take(self.at) {
            if let Work::Read(_) = posted.work {
                self.reading += 1;
                self.reading_packets += posted.end() - posted.first.max(self.una);
            }
        }
    }

    /// A gap at `sequence` shows that packets were lost; however often it is reported, we go back once.
    fn lost(&mut self, sequence: u64) -> bool {
        if self.went_back == Some(sequence) {
            return false;
        }
        self.went_back = Some(sequence);
        self.go_back(sequence);
        true
    }

    fn go_back(&mut self, sequence: u64) {
        self.next = sequence.clamp(self.una, self.sent);
        self.locate();
    }

    /// Handles an acknowledgement of this packet (9.7.5.1.2). One for a packet that was never sent is ignored.
    pub(super) fn handle_ack(&mut self, now: Time, sequence: u64, syndrome: Syndrome) -> Result<(), Failed> {
        if sequence >= self.sent || sequence.wrapping_add(1) < self.una {
            return Ok(());
        }
        match syndrome {
            Syndrome::Ack { .. } => self.acknowledge(now, sequence + 1),
            Syndrome::RnrNak { timer } => {
                if sequence < self.una {
                    return Ok(());
                }
                self.acknowledge(now, sequence);
                if self.limits.rnr_retry != FOR_EVER {
                    self.rnr_retries = self.rnr_retries.checked_sub(1).ok_or(Failed::RnrRetries)?;
                }
                self.rnr_until = Some(later(now, u64::from(rnr_timer(timer)) * 1000));
                // the time of waiting is not that of an answer
                self.deadline = None;
                self.go_back(sequence);
            }
            Syndrome::Nak(NakCode::PSN_SEQUENCE_ERROR) => {
                if sequence < self.una {
                    return Ok(());
                }
                self.acknowledge(now, sequence);
                if self.una == sequence && self.lost(sequence) {
                    self.retries = self.retries.checked_sub(1).ok_or(Failed::Retries)?;
                }
            }
            Syndrome::Nak(code) => {
                if sequence >= self.una {
                    return Err(Failed::Nak(code));
                }
            }
            // reserved codes are no answer
            Syndrome::Reserved(_) => {}
        }
        Ok(())
    }

    /// A packet of an answer to a read (9.7.5.1.3, 9.7.5.1.6). The number of the user's read that is complete with it.
    pub(super) fn handle_response(
        &mut self,
        now: Time,
        sequence: u64,
        row: &Row,
        payload: &[u8],
        memory: &mut Regions,
    ) -> Result<Option<u64>, Failed> {
        if sequence >= self.sent || sequence < self.una {
            return Ok(None);
        }
        // it acknowledges all packets before it
        let before = self.una;
        while let Some(front) = self.queue.front()
            && !matches!(front.work, Work::Read(_))
            && front.end() <= sequence
        {
            self.una = front.end();
            self.drop_front();
        }
        let una = self.una;
        let mtu = self.limits.mtu;
        let Some(Posted { first, packets, work: Work::Read(read) }) = self.queue.front_mut() else {
            self.progress(now, before);
            return Err(Failed::BadResponse("it answers a request that was not an RDMA Read"));
        };
        let expected = una.max(*first);
        if sequence != expected {
            self.progress(now, before);
            // those before it were lost
            self.lost(expected);
            return Ok(None);
        }
        let last = sequence + 1 == *first + *packets;
        let left = (read.length - read.have) as usize;
        if row.is_last() != last {
            return Err(Failed::BadResponse("it ends too early or too late"));
        }
        if payload.len() != left.min(mtu) {
            return Err(Failed::BadResponse("it does not have the length that was asked for"));
        }
        let place = read.sink_offset.wrapping_add(read.have.into());
        // a sink that was deregistered stores nothing; the answer counts anyway
        let _ = memory.place(read.sink, place, payload);
        read.have += payload.len() as u32;
        let done = read.last_of.filter(|_| last);
        self.una = sequence + 1;
        if self.next > sequence {
            self.reading_packets = self.reading_packets.saturating_sub(1);
        }
        if last {
            if self.at > 0 {
                self.reading = self.reading.saturating_sub(1);
            }
            self.drop_front();
        }
        self.progress(now, before);
        Ok(done)
    }

    /// Time has passed (the transport timer, 9.7.6.1.3).
    pub(super) fn handle_timeout(&mut self, now: Time) -> Result<(), Failed> {
        if self.rnr_until.is_some_and(|until| now >= until) {
            self.rnr_until = None;
        }
        if self.deadline.is_some_and(|deadline| now >= deadline) {
            self.deadline = None;
            if self.una < self.sent {
                self.retries = self.retries.checked_sub(1).ok_or(Failed::Retries)?;
                self.went_back = None;
                self.go_back(self.una);
                self.patience = (self.patience * 2).min(4);
                self.deadline = Some(later(now, self.limits.timeout.saturating_mul(self.patience)));
            }
        }
        Ok(())
    }
}
