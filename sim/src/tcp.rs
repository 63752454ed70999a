//! One end of iWARP: MPA (RFC 5044), DDP (RFC 5041) and RDMAP (RFC 5040) over a TCP of our own, with selective
//! acknowledgments (RFC 2018, 2883), fast retransmit, a retransmission timer (RFC 6298) and delayed acknowledgments.

use crate::frame::{self, Service, Tcp as Head};
use crate::memory::Memory;
use crate::packet::{Body, Event, Mark, Op, Packet, Segment};
use crate::transport::{Class, MILLISECOND, Out, Periods, ReadDelay, Stamp, Time, Transport};
use rdmascope_dissector::wire::iwarp::ddp::Ddp;
use rdmascope_dissector::wire::iwarp::mpa;
use rdmascope_dissector::wire::iwarp::rdmap::{self, Opcode, ReadRequest, Terminate};
use rdmascope_dissector::wire::tcp::flags::{ACK, FIN, PSH, RST, SYN};
use std::collections::{BTreeMap, VecDeque};
use std::rc::Rc;

/// Behaviour of an end.
#[derive(Clone, Debug)]
pub struct Config {
    /// Maximum size of a segment, in bytes.
    pub mss: usize,
    /// Sequence numbers of the SYNs.
    pub isn: [u32; 2],
    /// Maximum number of bytes in flight.
    pub window: u64,
    /// Minimum of the retransmission timer, in ns.
    pub rto: Time,
    /// Maximum number of retransmissions in a row.
    pub retries: u32,
    /// Maximum time that an acknowledgment is held back, in ns.
    pub hold: Time,
    /// Maximum size of a DDP segment, in bytes.
    pub mulpdu: usize,
    /// True if FPDUs carry CRCs.
    pub crc: bool,
    /// The identification of IP.
    pub stamp: Stamp,
    /// True if FPDUs begin segments, as with adapters; else the stream is cut anywhere.
    pub aligned: bool,
    /// True if the end that closes leaves without disconnecting.
    pub rude: bool,
    /// Delay of answers to RDMA Reads.
    pub lag: Option<ReadDelay>,
    /// The service that is connected to.
    pub service: Service,
}

#[derive(PartialEq, Eq, Clone, Copy, Debug)]
enum State {
    Closed,
    Opening,
    Startup,
    Established,
    Over,
}

/// One end.
pub struct Iwarp {
    me: usize,
    config: Config,
    state: State,
    frozen: bool,
    left: bool,
    failed: bool,
    events: VecDeque<Event>,
    // the stream out; position 0 is the SYN, the first byte is at 1
    out: Vec<u8>,
    marks: Vec<(u64, Mark)>,
    /// Positions at which segments made by an adapter end.
    edges: Vec<u64>,
    syn_sent: bool,
    fin_at: Option<u64>,
    una: u64,
    snd: u64,
    high: u64,
    sacked: BTreeMap<u64, u64>,
    duplicates: u32,
    recover: u64,
    /// Position up to which holes were filled in this recovery.
    mended: u64,
    again: VecDeque<(u64, u64)>,
    deadline: Option<Time>,
    tries: u32,
    by_timer: u64,
    on_demand: u64,
    pending_rst: bool,
    // the stream in
    got: u64,
    islands: BTreeMap<u64, u64>,
    held: u32,
    ack_at: Option<Time>,
    ack_now: u32,
    dsack: Option<(u64, u64)>,
    fresh: Option<(u64, u64)>,
    coming: BTreeMap<u64, Mark>,
    coming_fin: Option<u64>,
    peer_fin: bool,
    // iWARP
    msn: [u32; 3],
    next_sink: u32,
    /// Answers to Reads that are held back: until when.
    late: VecDeque<(Time, u64, Rc<[u8]>, Memory)>,
    lagged: Vec<(Time, Time)>,
    full: Periods,
    refuses: Option<u32>,
}

impl Iwarp {
    /// The end `me`.
    pub fn new(me: usize, config: Config) -> Self {
        Self {
            me,
            config,
            state: State::Closed,
            frozen: false,
            left: false,
            failed: false,
            events: VecDeque::new(),
            out: Vec::new(),
            marks: Vec::new(),
            edges: Vec::new(),
            syn_sent: false,
            fin_at: None,
            una: 0,
            snd: 0,
            high: 0,
            sacked: BTreeMap::new(),
            duplicates: 0,
            recover: 0,
            mended: 0,
            again: VecDeque::new(),
            deadline: None,
            tries: 0,
            by_timer: 0,
            on_demand: 0,
            pending_rst: false,
            got: 0,
            islands: BTreeMap::new(),
            held: 0,
            ack_at: None,
            ack_now: 0,
            dsack: None,
            fresh: None,
            coming: BTreeMap::new(),
            coming_fin: None,
            peer_fin: false,
            msn: [1; 3],
            next_sink: 0x5100,
            late: VecDeque::new(),
            lagged: Vec::new(),
            full: Periods::default(),
            refuses: None,
        }
    }

    fn end(&self) -> u64 {
        1 + self.out.len() as u64
    }

    fn last(&self) -> u64 {
        self.end() + u64::from(self.fin_at.is_some())
    }

    fn mark(&mut self, mark: Mark) {
        let end = self.end();
        self.marks.push((end, mark));
    }

    fn put(&mut self, segment: &Ddp<'_>) {
        if self.fin_at.is_some() {
            return;
        }
        let mut ulpdu = Vec::new();
        segment.emit(&mut ulpdu);
        mpa::emit_fpdu(&ulpdu, self.config.crc, &mut self.out);
        let end = self.end();
        self.edges.push(end);
    }

    fn send_untagged(&mut self, opcode: Opcode, invalidate: u32, payload: &[u8]) {
        let room = self.config.mulpdu - Ddp::UNTAGGED_LEN;
        let next = &mut self.msn[opcode.queue().unwrap_or(rdmap::QUEUE_SEND) as usize];
        let msn = *next;
        *next += 1;
        let count = payload.len().div_ceil(room).max(1);
        for n in 0..count {
            let part = &payload[n * room..(n * room + room).min(payload.len())];
            self.put(&rdmap::untagged(opcode, n + 1 == count, msn, (n * room) as u32, invalidate, part));
        }
    }

    fn send_tagged(&mut self, opcode: Opcode, memory: Memory, data: &[u8]) {
        let room = (self.config.mulpdu - Ddp::TAGGED_LEN) & !7;
        let count = data.len().div_ceil(room).max(1);
        for n in 0..count {
            let part = &data[n * room..(n * room + room).min(data.len())];
            self.put(&rdmap::tagged(opcode, n + 1 == count, memory.key, memory.address + (n * room) as u64, part));
        }
    }

    fn append(&mut self, bytes: &[u8], mark: Mark) {
        if self.fin_at.is_some() {
            return;
        }
        self.out.extend_from_slice(bytes);
        let end = self.end();
        self.edges.push(end);
        self.mark(mark);
    }

    /// Bytes of the stream at this position that a segment may have.
    fn room(&self, from: u64) -> u64 {
        let most = (from + self.config.mss as u64).min(self.end());
        if !self.config.aligned {
            return most;
        }
        let at = self.edges.partition_point(|e| *e <= from);
        let behind = self.edges[at..].partition_point(|e| *e <= most);
        if behind > 0 { self.edges[at + behind - 1] } else { most }
    }

    fn segment(&mut self, from: u64, to: u64, flags: u8, again: bool) -> Out {
        let ip = self.config.stamp.stamp();
        let data =
            if to > from && from > 0 { &self.out[from as usize - 1..(to.min(self.end()) as usize - 1)] } else { &[] };
        let fin = self.fin_at.is_some_and(|at| from <= at && to > at);
        let mut options = Vec::new();
        let mut sack = Vec::new();
        if flags & SYN != 0 {
            options.extend([2, 4]);
            options.extend((self.config.mss as u16).to_be_bytes());
            options.extend([1, 1, 4, 2, 1, 3, 3, 7]);
        } else {
            sack.extend(self.dsack.take());
            if let Some(fresh) = self.fresh.take()
                && let Some((l, r)) = self.islands.range(..=fresh.0).next_back()
            {
                sack.push((*l, *r));
            }
            for (l, r) in self.islands.iter().rev() {
                if sack.len() < 3 && !sack.contains(&(*l, *r)) {
                    sack.push((*l, *r));
                }
            }
            if !sack.is_empty() {
                let seq = |n: u64| self.config.isn[1 - self.me].wrapping_add(n as u32).to_be_bytes();
                options.extend([1, 1, 5, 2 + 8 * sack.len() as u8]);
                sack.iter().for_each(|(l, r)| options.extend([seq(*l), seq(*r)].concat()));
            }
        }
        let has_ack = flags & ACK != 0;
        let head = Head {
            seq: self.config.isn[self.me].wrapping_add(from as u32),
            ack: if has_ack { self.config.isn[1 - self.me].wrapping_add(self.got as u32) } else { 0 },
            flags: flags | if fin { FIN } else { 0 } | if data.is_empty() { 0 } else { PSH },
            window: if flags & SYN != 0 { 0xffff } else { 0x4000 },
            options,
        };
        let class = match () {
            () if flags & (SYN | RST) != 0 || fin && data.is_empty() => Class::Manage,
            () if data.is_empty() => Class::Ack,
            () => Class::Data,
        };
        let frame = frame::tcp(self.me, self.config.service.port, ip, &head, data);
        let marks = self.marks.iter().filter(|(at, _)| from < *at && *at <= to).cloned().collect();
        let segment = Segment {
            seq: from,
            end: to,
            ack: self.got,
            has_ack,
            syn: flags & SYN != 0,
            fin,
            rst: flags & RST != 0,
            sack,
            marks,
        };
        self.held = 0;
        self.ack_at = None;
        self.ack_now = self.ack_now.saturating_sub(1);
        Out { frame, body: Body::Tcp(segment), class, again }
    }

    fn rto(&self) -> Time {
        self.config.rto << self.tries.min(8)
    }

    fn acknowledged(&mut self, now: Time, segment: &Segment) {
        let above = segment.sack.iter().filter(|(_, r)| *r > segment.ack).copied().collect::<Vec<_>>();
        let news = above.iter().any(|(l, r)| !self.sacked.iter().any(|(a, b)| a <= l && r <= b));
        for (l, r) in &above {
            join(&mut self.sacked, *l, *r);
        }
        if segment.ack > self.una {
            self.una = segment.ack;
            self.snd = self.snd.max(self.una);
            self.sacked.retain(|_, r| *r > segment.ack);
            self.again.retain(|(_, to)| *to > segment.ack);
            self.duplicates = 0;
            self.tries = 0;
            self.deadline = if self.una < self.high { Some(now + self.rto()) } else { None };
            if self.una < self.recover {
                self.mend();
            }
        } else if segment.ack == self.una && self.una < self.high && segment.seq == segment.end && news {
            self.duplicates += 1;
            if self.duplicates >= 3 && self.una >= self.recover {
                self.recover = self.high;
                self.on_demand += 1;
                self.mend();
            } else if self.duplicates > 3 {
                self.mend();
            }
        }
    }

    /// Retransmits the holes below the data that the peer has, each once in a recovery.
    fn mend(&mut self) {
        let mut at = self.una;
        let holes: Vec<_> = self
            .sacked
            .iter()
            .map(|(l, r)| {
                let hole = (at, *l);
                at = *r;
                hole
            })
            .filter(|(a, b)| a < b)
            .collect();
        let top = self.mended_to();
        for (from, to) in holes {
            let from = from.max(top);
            if from < to {
                self.again.push_back((from, to));
            }
        }
        if self.sacked.is_empty() && self.again.is_empty() && top <= self.una && self.una < self.snd {
            let to = self.room(self.una.max(1)).max(self.una + 1).min(self.snd);
            self.again.push_back((self.una, to));
        }
    }

    fn mended_to(&self) -> u64 {
        self.again.back().map_or(self.mended, |(_, to)| *to)
    }

    fn deliver(&mut self, now: Time) {
        while let Some((&at, _)) = self.coming.first_key_value()
            && at <= self.got
        {
            let Some((_, mark)) = self.coming.pop_first() else { break };
            self.take(now, mark);
        }
    }

    fn take(&mut self, now: Time, mark: Mark) {
        match mark {
            Mark::Startup => {
                if self.me == frame::SERVER {
                    let reply = frame::mpa_startup(true, self.config.crc, &self.config.service.private[frame::SERVER]);
                    self.append(&reply, Mark::Startup);
                }
                self.state = State::Established;
                self.events.push_back(Event::Connected);
            }
            Mark::Send(message) => self.events.push_back(Event::Received(message)),
            Mark::Read { key, .. } if self.refuses == Some(key) => self.take(now, Mark::Bad(0x01, 0)),
            Mark::Written(key) if self.refuses == Some(key) => self.take(now, Mark::Bad(0x11, 0)),
            Mark::Written(_) => {}
            Mark::Read { id, data, sink, .. } if self.fin_at.is_none() => {
                let until = self.late.back().map(|(until, ..)| *until);
                let lag = self.config.lag.filter(|lag| (lag.from..lag.to).contains(&now));
                if let (None, Some(lag)) = (until, lag) {
                    self.lagged.push((now, now + lag.by));
                }
                match until.or(lag.map(|lag| now + lag.by)) {
                    Some(until) => self.late.push_back((until, id, data, sink)),
                    None => self.respond(id, &data, sink),
                }
            }
            Mark::Read { .. } => {}
            Mark::Response(id) => self.events.push_back(Event::ReadDone(id)),
            Mark::Bad(layer, code) => {
                // without the header that caused it
                let (layer, error_type) = (layer >> 4, layer & 0xf);
                let mut body = Vec::new();
                Terminate { layer, error_type, code, segment_length: None, ddp: None, read_request: None }
                    .emit(&mut body);
                self.send_untagged(Opcode::TERMINATE, 0, &body);
                self.mark(Mark::Terminate);
                self.failed = true;
                self.fin_at = Some(self.end());
            }
            Mark::Terminate => {
                self.fin_at.get_or_insert(1 + self.out.len() as u64);
            }
        }
    }

    fn respond(&mut self, id: u64, data: &[u8], sink: Memory) {
        self.send_tagged(Opcode::READ_RESPONSE, sink, data);
        self.mark(Mark::Response(id));
    }

    fn over(&mut self) {
        if self.state != State::Over {
            self.state = State::Over;
            self.deadline = None;
            self.events.push_back(Event::Closed);
        }
    }
}

fn join(ranges: &mut BTreeMap<u64, u64>, mut from: u64, mut to: u64) {
    let touched: Vec<_> = ranges.range(..=to).filter(|(_, r)| **r >= from).map(|(l, r)| (*l, *r)).collect();
    for (l, r) in touched {
        ranges.remove(&l);
        from = from.min(l);
        to = to.max(r);
    }
    ranges.insert(from, to);
}

impl Transport for Iwarp {
    fn open(&mut self, _now: Time) {
        self.state = State::Opening;
    }

    fn post(&mut self, _now: Time, op: Op) {
        match op {
            Op::Send { message, invalidate } => {
                let opcode = if invalidate.is_some() { Opcode::SEND_INVALIDATE } else { Opcode::SEND };
                self.send_untagged(opcode, invalidate.unwrap_or(0), message.bytes());
                self.mark(Mark::Send(message));
            }
            Op::Write { memory, data, wrong } => {
                self.send_tagged(Opcode::WRITE, memory, &data);
                self.mark(wrong.map_or(Mark::Written(memory.key), |wrong| Mark::Bad(0x11, wrong.code())));
            }
            Op::Read { id, memory, data, wrong } => {
                self.next_sink += 0x101;
                let sink = Memory { key: self.next_sink, address: 0, length: data.len() as u32 };
                let mut body = Vec::new();
                ReadRequest {
                    sink_stag: sink.key,
                    sink_offset: sink.address,
                    size: data.len() as u32,
                    source_stag: memory.key,
                    source_offset: memory.address,
                }
                .emit(&mut body);
                self.send_untagged(Opcode::READ_REQUEST, 0, &body);
                self.mark(match wrong {
                    None => Mark::Read { id, data, sink, key: memory.key },
                    Some(wrong) => Mark::Bad(0x01, wrong.code()),
                });
            }
        }
    }

    fn handle(&mut self, now: Time, packet: &Packet) {
        let Body::Tcp(segment) = &packet.body else { return };
        if self.frozen || self.state == State::Over {
            return;
        }
        if segment.rst {
            self.failed = true;
            return self.over();
        }
        if segment.syn {
            if self.got == 0 {
                self.got = 1;
                if self.me == frame::SERVER {
                    self.state = State::Opening;
                }
            }
            self.ack_now += u32::from(self.syn_sent || self.me == frame::CLIENT);
            if self.me == frame::SERVER && self.syn_sent && self.una == 0 {
                self.snd = 0;
            }
        }
        if segment.has_ack {
            self.acknowledged(now, segment);
            if self.state == State::Opening && self.una >= 1 && self.got >= 1 {
                self.state = State::Startup;
                if self.me == frame::CLIENT {
                    let request =
                        frame::mpa_startup(false, self.config.crc, &self.config.service.private[frame::CLIENT]);
                    self.append(&request, Mark::Startup);
                }
            }
        }
        if segment.end > segment.seq && !segment.syn {
            for (at, mark) in segment.marks.iter() {
                if *at > self.got {
                    self.coming.entry(*at).or_insert_with(|| mark.clone());
                }
            }
            if segment.fin {
                self.coming_fin = Some(segment.end);
            }
            let known =
                segment.end <= self.got || self.islands.iter().any(|(l, r)| *l <= segment.seq && segment.end <= *r);
            if known {
                self.dsack = Some((segment.seq, segment.end));
                self.ack_now += 1;
            } else if segment.seq > self.got {
                join(&mut self.islands, segment.seq, segment.end);
                self.fresh = Some((segment.seq, segment.end));
                self.ack_now += 1;
            } else {
                let filled = !self.islands.is_empty();
                self.got = segment.end;
                while let Some((l, r)) = self.islands.first_key_value().map(|(l, r)| (*l, *r))
                    && l <= self.got
                {
                    self.got = self.got.max(r);
                    self.islands.remove(&l);
                }
                self.held += 1;
                if filled || self.held >= 2 {
                    self.ack_now = self.ack_now.max(1);
                } else if self.ack_at.is_none() {
                    self.ack_at = Some(now + self.config.hold);
                }
                self.deliver(now);
                if self.coming_fin.is_some_and(|at| self.got >= at) && !self.peer_fin {
                    self.peer_fin = true;
                    self.ack_now = self.ack_now.max(1);
                    self.fin_at.get_or_insert(1 + self.out.len() as u64);
                    self.events.push_back(Event::Closed);
                }
            }
        }
        if self.peer_fin && self.fin_at.is_some_and(|at| self.una > at) && self.ack_now == 0 {
            self.state = State::Over;
            self.deadline = None;
        }
    }

    fn timeout(&mut self, now: Time) {
        while self.late.front().is_some_and(|(until, ..)| now >= *until)
            && let Some((_, id, data, sink)) = self.late.pop_front()
        {
            self.respond(id, &data, sink);
        }
        if self.ack_at.is_some_and(|at| now >= at) {
            self.ack_at = None;
            self.ack_now = self.ack_now.max(1);
        }
        if self.deadline.is_some_and(|at| now >= at) {
            self.tries += 1;
            self.by_timer += 1;
            self.deadline = None;
            if self.tries > self.config.retries {
                self.failed = true;
                self.over();
            } else {
                // retransmit everything, except what the peer reports as received
                self.snd = self.una;
                self.again.clear();
                self.mended = 0;
                self.recover = self.high;
                self.duplicates = 0;
            }
        }
    }

    fn poll_timeout(&self) -> Option<Time> {
        let late = self.late.front().map(|(until, ..)| *until);
        if self.frozen { None } else { [self.ack_at, self.deadline, late].into_iter().flatten().min() }
    }

    fn poll_transmit(&mut self, now: Time) -> Option<Out> {
        if self.frozen || matches!(self.state, State::Closed) {
            return None;
        }
        if core::mem::take(&mut self.pending_rst) {
            let at = self.snd;
            let out = self.segment(at, at, RST | ACK, false);
            self.over();
            return Some(out);
        }
        if self.state == State::Over {
            return if self.ack_now > 0 {
                let at = self.high;
                Some(self.segment(at, at, ACK, false))
            } else {
                None
            };
        }
        if self.snd == 0 {
            // SYN, or SYN and ACK
            if self.me == frame::SERVER && self.got == 0 {
                return None;
            }
            self.snd = 1;
            let again = self.syn_sent;
            self.syn_sent = true;
            self.high = self.high.max(1);
            self.deadline = Some(now + (self.config.rto.max(1000 * MILLISECOND) << self.tries.min(6)));
            return Some(self.segment(0, 1, if self.me == frame::SERVER { SYN | ACK } else { SYN }, again));
        }
        if self.state == State::Opening {
            return None;
        }
        if let Some((from, to)) = self.again.pop_front() {
            let end = if from < self.end() { self.room(from).min(to) } else { to };
            self.mended = self.mended.max(end);
            if end < to {
                self.again.push_front((end, to));
            }
            if self.deadline.is_none() {
                self.deadline = Some(now + self.rto());
            }
            return Some(self.segment(from, end, ACK, true));
        }
        // skip what the peer has
        while let Some((_, r)) = self.sacked.range(..=self.snd).next_back()
            && *r > self.snd
        {
            self.snd = *r;
        }
        if self.snd < self.last() && self.snd >= self.una + self.config.window {
            self.full.begin(now);
        } else if self.snd < self.last() {
            self.full.end(now);
            let from = self.snd;
            let mut to = if from < self.end() { self.room(from) } else { self.last() };
            if let Some((l, _)) = self.sacked.range(from..).next() {
                to = to.min((*l).max(from + 1));
            }
            if to == self.end() {
                to = self.last();
            }
            let again = from < self.high;
            self.snd = to;
            self.high = self.high.max(to);
            if self.deadline.is_none() {
                self.deadline = Some(now + self.rto());
            }
            return Some(self.segment(from, to, ACK, again));
        }
        if self.ack_now > 0 {
            let at = self.high.max(self.snd);
            return Some(self.segment(at, at, ACK, false));
        }
        None
    }

    fn poll_event(&mut self) -> Option<Event> {
        self.events.pop_front()
    }

    fn close(&mut self, _now: Time) {
        if self.config.rude {
            self.left = self.state == State::Established;
            self.frozen = true;
            self.over();
        } else {
            self.fin_at.get_or_insert(1 + self.out.len() as u64);
        }
    }

    fn raw(&mut self, bytes: &[u8], mark: Mark) {
        self.append(bytes, mark);
    }

    fn reset(&mut self) {
        self.pending_rst = true;
    }

    fn skip_message(&mut self) {
        self.msn[0] += 5;
    }

    fn refuse(&mut self, key: u32) {
        self.refuses = Some(key);
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
        self.una >= self.end()
    }

    fn recoveries(&self) -> (u64, u64) {
        (self.by_timer, self.on_demand)
    }

    fn failed(&self) -> bool {
        self.failed
    }
}
