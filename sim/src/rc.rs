//! One end of a reliable connection of RoCEv2, by the InfiniBand Architecture Specification, volume 1, 9.7: go-back-N,
//! NAKs, RNR, RDMA Reads that are requested again from the point where their answer broke off, delayed acknowledgments,
//! timeouts and retries.

use crate::frame::{self, Cm, QP, Service, reth};
use crate::packet::{Body, Event, Op, Packet, Rc_, RcWhat};
use crate::transport::{Class, MICROSECOND, MILLISECOND, Out, Periods, ReadDelay, Stamp, Time, Transport};
use rdmascope_dissector::wire::ib::bth::{Bth, Opcode};
use rdmascope_dissector::wire::ib::ext::{ACK, NAK, NakCode, RNR_NAK, aeth_bytes, rnr_timer};
use std::collections::VecDeque;
use std::rc::Rc;

/// Behaviour of an end.
#[derive(Clone, Debug)]
pub struct Config {
    /// Bytes of a packet's payload.
    pub mtu: usize,
    /// The code of that in connection management.
    pub mtu_code: u8,
    /// First sequence numbers of both ends.
    pub psn: [u64; 2],
    /// Maximum number of packets in flight.
    pub window: u64,
    /// Time without an acknowledgment after which all is retransmitted, in ns.
    pub timeout: Time,
    /// Maximum number of retransmissions in a row.
    pub retries: u32,
    /// Number of packets with a requested acknowledgment before one is sent.
    pub coalesce: u32,
    /// Maximum time that an acknowledgment is held back, in ns.
    pub hold: Time,
    /// Times at which no message can be taken: from, to, and the code of the RNR timer.
    pub not_ready: Vec<(Time, Time, u8)>,
    /// Number of packets of a message after which an acknowledgment is requested.
    pub ask: u64,
    /// The identification of IP.
    pub stamp: Stamp,
    /// True if the end that closes leaves without disconnecting.
    pub rude: bool,
    /// Delay of answers to RDMA Reads.
    pub lag: Option<ReadDelay>,
    /// The service that is connected to.
    pub service: Service,
}

struct Wqe {
    op: Rc<Op>,
    start: u64,
    packets: u64,
    /// Number of answers received for a read, in sequence numbers.
    came: u64,
}

impl Wqe {
    fn end(&self) -> u64 {
        self.start + self.packets
    }

    fn is_read(&self) -> bool {
        matches!(*self.op, Op::Read { .. })
    }
}

enum Reply {
    Ack { psn: u64, again: bool },
    Nak { psn: u64, syndrome: u8, what: RcWhat },
    Response { psn: u64, id: u64, place: (bool, bool), data: Rc<[u8]>, range: (usize, usize), again: bool },
}

/// One end.
pub struct Rdma {
    me: usize,
    config: Config,
    connected: bool,
    closed: bool,
    frozen: bool,
    left: bool,
    failed: bool,
    manage: VecDeque<Cm>,
    /// The message of connection management that waits for an answer, the time of its next retransmission, and the
    /// number of retries left.
    asked: Option<(Cm, Time, u32)>,
    events: VecDeque<Event>,
    // requester
    queue: VecDeque<Wqe>,
    next: u64,
    una: u64,
    snd: u64,
    high: u64,
    deadline: Option<Time>,
    tries: u32,
    wait_until: Time,
    again_from: Option<u64>,
    by_timer: u64,
    on_demand: u64,
    // responder
    expected: u64,
    msn: u32,
    complained: bool,
    /// True if a NAK that ends the connection was sent.
    refused: bool,
    owed: u32,
    owed_again: bool,
    ack_at: Option<Time>,
    replies: VecDeque<Reply>,
    /// Until when answers to Reads are held back.
    gate: Time,
    lagged: Vec<(Time, Time)>,
    full: Periods,
    not_ready: u64,
    refuses: Option<u32>,
}

fn rnr_ns(code: u8) -> Time {
    Time::from(rnr_timer(code)) * MICROSECOND
}

impl Rdma {
    /// The end `me`.
    pub fn new(me: usize, config: Config) -> Self {
        let (first, expected) = (config.psn[me], config.psn[1 - me]);
        Self {
            me,
            config,
            connected: false,
            closed: false,
            frozen: false,
            left: false,
            failed: false,
            manage: VecDeque::new(),
            asked: None,
            events: VecDeque::new(),
            queue: VecDeque::new(),
            next: first,
            una: first,
            snd: first,
            high: first,
            deadline: None,
            tries: 0,
            wait_until: 0,
            again_from: None,
            by_timer: 0,
            on_demand: 0,
            expected,
            msn: 0,
            complained: false,
            refused: false,
            owed: 0,
            owed_again: false,
            ack_at: None,
            replies: VecDeque::new(),
            gate: 0,
            lagged: Vec::new(),
            full: Periods::default(),
            not_ready: 0,
            refuses: None,
        }
    }

    fn ask(&mut self, now: Time, what: Cm) {
        self.manage.push_back(what);
        self.asked = Some((what, now + 400 * MILLISECOND, 6));
    }

    fn handle_cm(&mut self, now: Time, what: Cm) {
        match what {
            Cm::Request => self.ask(now, Cm::Reply),
            // a retransmitted reply does not revive an end that is leaving
            Cm::Reply if self.closed || matches!(self.asked, Some((Cm::Disconnect, ..))) => {}
            Cm::Reply => {
                self.manage.push_back(Cm::Ready);
                if !self.connected && !self.closed {
                    self.asked = None;
                    self.connect();
                }
            }
            Cm::Ready => {
                self.asked = None;
                self.connect();
            }
            Cm::Disconnect => {
                self.manage.push_back(Cm::Disconnected);
                self.end();
            }
            Cm::Disconnected => {
                self.asked = None;
                self.end();
            }
        }
    }

    fn connect(&mut self) {
        if !self.connected && !self.closed {
            self.connected = true;
            self.events.push_back(Event::Connected);
        }
    }

    fn end(&mut self) {
        if !self.closed {
            self.closed = true;
            self.connected = false;
            self.events.push_back(Event::Closed);
        }
    }

    // ---- requester

    fn acknowledge(&mut self, now: Time, upto: u64) {
        // an acknowledgment of a request after a read without an answer: the answer was lost
        let hole = self
            .queue
            .iter()
            .find(|w| w.is_read() && w.came < w.packets && w.start + w.came < upto)
            .map(|w| w.start + w.came);
        if let Some(hole) = hole
            && self.again_from != Some(hole)
            && self.snd > hole
        {
            self.go_back(hole);
        }
        let upto = hole.map_or(upto, |h| upto.min(h)).min(self.high);
        if upto > self.una {
            self.una = upto;
            self.tries = 0;
            self.snd = self.snd.max(self.una);
            self.deadline = if self.una < self.snd { Some(now + self.config.timeout) } else { None };
            while self.queue.front().is_some_and(|w| w.end() <= self.una) {
                self.queue.pop_front();
            }
        }
    }

    fn go_back(&mut self, to: u64) {
        self.snd = to;
        self.again_from = Some(to);
        self.on_demand += 1;
    }

    fn handle_response(&mut self, now: Time, psn: u64, id: u64) {
        // answers are taken in order: one that is ahead shows that earlier ones were lost
        let Some(wqe) = self.queue.iter_mut().find(|w| w.is_read() && w.came < w.packets) else { return };
        let next = wqe.start + wqe.came;
        if psn == next && matches!(*wqe.op, Op::Read { id: of, .. } if of == id) {
            wqe.came += 1;
            let done = wqe.came == wqe.packets;
            self.again_from = None;
            self.acknowledge(now, psn + 1);
            if done {
                self.events.push_back(Event::ReadDone(id));
            }
        } else if psn > next && self.again_from != Some(next) && self.snd > next {
            self.go_back(next);
        }
    }

    fn packet_at(&mut self, psn: u64) -> Option<(Out, u64)> {
        let me = self.me;
        let mtu = self.config.mtu;
        let wqe = self.queue.iter().find(|w| w.start <= psn && psn < w.end())?;
        let (place, last) = ((psn - wqe.start) as usize, psn + 1 == wqe.end());
        let first = place == 0;
        let again = psn < self.high;
        let mut ack = last || (psn + 1).is_multiple_of(self.config.ask);
        let mut used = 1;
        let (opcode, extensions, payload, what): (Opcode, Vec<u8>, &[u8], RcWhat) = match &*wqe.op {
            Op::Send { message, invalidate } => {
                let bytes = message.bytes();
                let bytes = &bytes[(place * mtu).min(bytes.len())..(place * mtu + mtu).min(bytes.len())];
                let (opcode, key) = match (first, last, invalidate) {
                    (true, true, Some(key)) => (Opcode::RC_SEND_ONLY_INVALIDATE, Some(*key)),
                    (false, true, Some(key)) => (Opcode::RC_SEND_LAST_INVALIDATE, Some(*key)),
                    (true, true, None) => (Opcode::RC_SEND_ONLY, None),
                    (true, false, _) => (Opcode::RC_SEND_FIRST, None),
                    (false, true, None) => (Opcode::RC_SEND_LAST, None),
                    (false, false, _) => (Opcode::RC_SEND_MIDDLE, None),
                };
                let extensions = key.map_or(Vec::new(), |k| k.to_be_bytes().to_vec());
                (opcode, extensions, bytes, RcWhat::Part { op: wqe.op.clone(), first, last })
            }
            Op::Write { memory, data, .. } => {
                let bytes = &data[place * mtu..(place * mtu + mtu).min(data.len())];
                let opcode = match (first, last) {
                    (true, true) => Opcode::RC_RDMA_WRITE_ONLY,
                    (true, false) => Opcode::RC_RDMA_WRITE_FIRST,
                    (false, true) => Opcode::RC_RDMA_WRITE_LAST,
                    (false, false) => Opcode::RC_RDMA_WRITE_MIDDLE,
                };
                let extensions = if first { reth(memory.key, memory.address, data.len() as u32) } else { Vec::new() };
                (opcode, extensions, bytes, RcWhat::Part { op: wqe.op.clone(), first, last })
            }
            Op::Read { id, memory, data, .. } => {
                let skipped = place * mtu;
                let length = (data.len() - skipped) as u32;
                used = wqe.end() - psn;
                ack = true;
                let extensions = reth(memory.key, memory.address + skipped as u64, length);
                let read =
                    RcWhat::Read { op: wqe.op.clone(), id: *id, packets: used, data: data.clone(), offset: skipped };
                (Opcode::RC_RDMA_READ_REQUEST, extensions, &[], read)
            }
        };
        // the window is full: request an acknowledgment
        ack |= psn + used >= self.una + self.config.window;
        let ip = self.config.stamp.stamp();
        let head = Bth { ack: u8::from(ack) << 7, ..Bth::new(opcode, QP[1 - me], psn as u32) };
        let frame = frame::roce(me, ip, head, &extensions, payload);
        Some((Out { frame, body: Body::Rc(Rc_ { psn, what, ack }), class: Class::Data, again }, used))
    }

    // ---- responder

    fn owe(&mut self, now: Time, at_once: bool) {
        self.owed += 1;
        if at_once || self.owed >= self.config.coalesce {
            self.pay();
        } else if self.ack_at.is_none() {
            self.ack_at = Some(now + self.config.hold);
        }
    }

    fn pay(&mut self) {
        if self.owed > 0 {
            self.owed = 0;
            self.ack_at = None;
            let again = core::mem::take(&mut self.owed_again);
            self.replies.push_back(Reply::Ack { psn: self.expected - 1, again });
        }
    }

    fn handle_request(&mut self, now: Time, psn: u64, what: &RcWhat, ack: bool) {
        if self.refused {
            return;
        }
        if psn > self.expected {
            if !self.complained {
                self.complained = true;
                self.pay();
                self.replies.push_back(Reply::Nak {
                    psn: self.expected,
                    syndrome: NAK | NakCode::PSN_SEQUENCE_ERROR.0,
                    what: RcWhat::Nak,
                });
            }
            return;
        }
        if psn < self.expected {
            match what {
                RcWhat::Read { id, packets, data, offset, .. } => self.answer(psn, *id, *packets, data, *offset, true),
                _ => {
                    self.owed_again = true;
                    if ack {
                        self.owe(now, true);
                    }
                }
            }
            return;
        }
        if let RcWhat::Part { op, first: true, .. } = what
            && matches!(**op, Op::Send { .. })
            && let Some((_, _, code)) = self.config.not_ready.iter().find(|(from, to, _)| (*from..*to).contains(&now))
        {
            let code = *code;
            self.not_ready += 1;
            self.complained = true;
            self.pay();
            self.replies.push_back(Reply::Nak { psn, syndrome: RNR_NAK | code, what: RcWhat::NotReady(rnr_ns(code)) });
            return;
        }
        self.complained = false;
        if let RcWhat::Part { op, .. } | RcWhat::Read { op, .. } = what
            && let Op::Write { wrong, memory, .. } | Op::Read { wrong, memory, .. } = &**op
            && (wrong.is_some() || self.refuses == Some(memory.key))
        {
            // a remote access error, and the queue pair is of no more use
            self.complained = true;
            self.pay();
            let code = NakCode::REMOTE_ACCESS_ERROR.0;
            self.replies.push_back(Reply::Nak { psn, syndrome: NAK | code, what: RcWhat::Refused(code) });
            self.refused = true;
            return;
        }
        match what {
            RcWhat::Read { id, packets, data, offset, .. } => {
                // earlier requests are acknowledged first: this one is acknowledged by its answer
                self.pay();
                self.expected += packets;
                self.msn += 1;
                if let Some(lag) = self.config.lag
                    && (lag.from..lag.to).contains(&now)
                    && self.gate == 0
                    && self.replies.is_empty()
                {
                    self.gate = now + lag.by;
                    self.lagged.push((now, self.gate));
                }
                self.answer(psn, *id, *packets, data, *offset, false);
            }
            RcWhat::Part { op, last, .. } => {
                self.expected += 1;
                if *last {
                    self.msn += 1;
                    if let Op::Send { message, .. } = &**op {
                        self.events.push_back(Event::Received(message.clone()));
                    }
                }
                if ack {
                    self.owe(now, false);
                }
            }
            _ => {}
        }
    }

    fn answer(&mut self, psn: u64, id: u64, packets: u64, data: &Rc<[u8]>, offset: usize, again: bool) {
        let mtu = self.config.mtu;
        for n in 0..packets {
            let at = (offset + n as usize * mtu).min(data.len());
            let range = (at, (at + mtu).min(data.len()));
            let place = (n == 0, n + 1 == packets);
            self.replies.push_back(Reply::Response { psn: psn + n, id, place, data: data.clone(), range, again });
        }
    }
}

/// Number of packets for this number of bytes.
pub fn packets(length: usize, mtu: usize) -> u64 {
    length.div_ceil(mtu).max(1) as u64
}

impl Transport for Rdma {
    fn open(&mut self, now: Time) {
        self.ask(now, Cm::Request);
    }

    fn post(&mut self, _now: Time, op: Op) {
        let packets = packets(op.length(), self.config.mtu);
        self.queue.push_back(Wqe { op: Rc::new(op), start: self.next, packets, came: 0 });
        self.next += packets;
    }

    fn handle(&mut self, now: Time, packet: &Packet) {
        if self.frozen {
            return;
        }
        match &packet.body {
            Body::Cm(what) => self.handle_cm(now, *what),
            Body::Rc(rc) => {
                if self.closed {
                    return;
                }
                // a packet of the peer replaces a lost ReadyToUse
                if !self.connected {
                    match self.asked {
                        Some((Cm::Reply, ..)) => {
                            self.asked = None;
                            self.connect();
                        }
                        _ => return,
                    }
                }
                match &rc.what {
                    RcWhat::Ack => self.acknowledge(now, rc.psn + 1),
                    RcWhat::Nak => {
                        self.acknowledge(now, rc.psn);
                        if rc.psn >= self.una && self.snd > rc.psn {
                            self.go_back(rc.psn);
                            self.deadline = None;
                        }
                    }
                    RcWhat::NotReady(wait) => {
                        self.acknowledge(now, rc.psn);
                        if rc.psn >= self.una && self.snd > rc.psn {
                            self.go_back(rc.psn);
                            self.deadline = None;
                            self.wait_until = now + wait;
                        }
                    }
                    RcWhat::Refused(_) => {
                        self.failed = true;
                        self.ask(now, Cm::Disconnect);
                        self.connected = false;
                    }
                    RcWhat::Response { id, .. } => self.handle_response(now, rc.psn, *id),
                    RcWhat::Part { .. } | RcWhat::Read { .. } => {
                        self.handle_request(now, rc.psn, &rc.what, rc.ack);
                    }
                }
            }
            Body::Tcp(_) | Body::Bytes => {}
        }
    }

    fn timeout(&mut self, now: Time) {
        if let Some((what, at, left)) = self.asked
            && now >= at
        {
            if left == 0 {
                self.asked = None;
                self.failed = true;
                self.end();
            } else {
                self.manage.push_back(what);
                self.asked = Some((what, now + 400 * MILLISECOND, left - 1));
            }
        }
        if self.ack_at.is_some_and(|at| now >= at) {
            self.pay();
        }
        if now >= self.wait_until {
            self.wait_until = 0;
        }
        if now >= self.gate {
            self.gate = 0;
        }
        if self.deadline.is_some_and(|at| now >= at) && self.connected {
            self.tries += 1;
            self.by_timer += 1;
            self.deadline = None;
            if self.tries > self.config.retries {
                self.failed = true;
                self.ask(now, Cm::Disconnect);
                self.connected = false;
            } else {
                self.snd = self.una;
                self.again_from = None;
            }
        }
    }

    fn poll_timeout(&self) -> Option<Time> {
        if self.frozen {
            return None;
        }
        let waits = (self.connected && self.snd < self.next && self.wait_until > 0).then_some(self.wait_until);
        let deadline = self.deadline.filter(|_| self.connected);
        let gate = (self.connected && self.gate > 0).then_some(self.gate);
        [self.asked.map(|(_, at, _)| at), self.ack_at, deadline, waits, gate].into_iter().flatten().min()
    }

    fn poll_transmit(&mut self, now: Time) -> Option<Out> {
        if self.frozen {
            return None;
        }
        if let Some(what) = self.manage.pop_front() {
            let psn = self.config.psn.map(|p| p as u32 & 0xff_ffff);
            let frame =
                frame::cm(self.me, self.config.stamp.stamp(), what, psn, self.config.mtu_code, &self.config.service);
            return Some(Out { frame, body: Body::Cm(what), class: Class::Manage, again: false });
        }
        if !self.connected {
            return None;
        }
        let (me, msn) = (self.me, self.msn);
        let is_held = self.gate > 0 && matches!(self.replies.front(), Some(Reply::Response { .. }));
        if let Some(reply) = if is_held { None } else { self.replies.pop_front() } {
            let ip = self.config.stamp.stamp();
            let bth = |opcode, psn: u64| Bth::new(opcode, QP[1 - me], psn as u32);
            return Some(match reply {
                Reply::Ack { psn, again } => Out {
                    frame: frame::roce(me, ip, bth(Opcode::RC_ACKNOWLEDGE, psn), &aeth_bytes(ACK, msn), &[]),
                    body: Body::Rc(Rc_ { psn, what: RcWhat::Ack, ack: false }),
                    class: Class::Ack,
                    again,
                },
                Reply::Nak { psn, syndrome, what } => Out {
                    frame: frame::roce(me, ip, bth(Opcode::RC_ACKNOWLEDGE, psn), &aeth_bytes(syndrome, msn), &[]),
                    body: Body::Rc(Rc_ { psn, what, ack: false }),
                    class: Class::Nak,
                    again: false,
                },
                Reply::Response { psn, id, place, data, range, again } => {
                    let opcode = match place {
                        (true, true) => Opcode::RC_RDMA_READ_RESPONSE_ONLY,
                        (true, false) => Opcode::RC_RDMA_READ_RESPONSE_FIRST,
                        (false, true) => Opcode::RC_RDMA_READ_RESPONSE_LAST,
                        (false, false) => Opcode::RC_RDMA_READ_RESPONSE_MIDDLE,
                    };
                    let extensions = if opcode == Opcode::RC_RDMA_READ_RESPONSE_MIDDLE {
                        Vec::new()
                    } else {
                        aeth_bytes(ACK, msn).to_vec()
                    };
                    let length = (range.1 - range.0) as u32;
                    Out {
                        frame: frame::roce(me, ip, bth(opcode, psn), &extensions, &data[range.0..range.1]),
                        body: Body::Rc(Rc_ { psn, what: RcWhat::Response { id, length }, ack: false }),
                        class: Class::Response,
                        again,
                    }
                }
            });
        }
        if now < self.wait_until || self.snd >= self.next {
            return None;
        }
        if self.snd >= self.una + self.config.window {
            self.full.begin(now);
            return None;
        }
        self.full.end(now);
        let (out, used) = self.packet_at(self.snd)?;
        self.snd += used;
        self.high = self.high.max(self.snd);
        if self.deadline.is_none() {
            self.deadline = Some(now + self.config.timeout);
        }
        Some(out)
    }

    fn poll_event(&mut self) -> Option<Event> {
        self.events.pop_front()
    }

    fn close(&mut self, now: Time) {
        if !self.closed && self.connected {
            if self.config.rude {
                (self.frozen, self.left) = (true, true);
                self.end();
            } else {
                self.ask(now, Cm::Disconnect);
            }
            self.connected = false;
        }
    }

    fn refuse(&mut self, key: u32) {
        self.refuses = Some(key);
    }

    fn refused(&self) -> u64 {
        self.not_ready
    }

    fn lagged(&self) -> &[(Time, Time)] {
        &self.lagged
    }

    fn full(&self) -> &[(Time, Time)] {
        self.full.ended()
    }

    fn left(&self) -> bool {
        self.left
    }

    fn freeze(&mut self) {
        self.frozen = true;
    }

    fn is_idle(&self) -> bool {
        self.queue.is_empty()
    }

    fn recoveries(&self) -> (u64, u64) {
        (self.by_timer, self.on_demand)
    }

    fn failed(&self) -> bool {
        self.failed
    }
}
