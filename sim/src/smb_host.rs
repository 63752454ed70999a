//! The ends: SMB Direct with its credits and fragments, a client with a script, a server with a processing time. Their
//! actions and observations are the truth with which an analysis is compared.

use crate::end::{Account, End, Ledger, Request, Transfer};
use crate::fault::{Act, Fault};
use crate::memory::{Memory, content};
use crate::packet::{Event, Mark, Message as Sent, Op, Refusal};
use crate::random::Random;
use crate::smb::{self, Asked, Command, Content, DataHeader, Message, Sizes, Smb};
use crate::transport::{MICROSECOND, MILLISECOND, Periods, Time, Transport};
use std::collections::VecDeque;
use std::rc::Rc;

struct Queued {
    smb: Rc<Smb>,
    bytes: Vec<u8>,
    sent: usize,
    invalidate: Option<u32>,
}

/// SMB Direct of one end.
pub struct Direct {
    sizes: Sizes,
    peer: Option<Sizes>,
    /// Credits that this end holds.
    pub credits: i64,
    /// Credits that the peer holds.
    pub lent: i64,
    target: u16,
    wanted: u16,
    queue: VecDeque<Queued>,
    owed: bool,
    withheld: bool,
    /// Counters of this end.
    pub ledger: Ledger,
    /// Periods without credit, with something to send.
    pub dry: Periods,
    /// True if it had at most one credit left, after it had been granted some: from outside it is unknown whether it
    /// waited.
    pub low: bool,
    /// The end broke a rule with a message for which it had no credit but its last.
    pub overran: bool,
    /// Before which of the parts that go on with a message it stops, and for how long.
    pub stops: Option<(u64, Time)>,
    parts: u64,
    /// The period in which it stopped.
    pub stopped: Option<(Time, Time)>,
}

impl Direct {
    fn new(sizes: Sizes, target: u16) -> Self {
        Self {
            sizes,
            peer: None,
            credits: 0,
            lent: 0,
            target,
            wanted: 0,
            queue: VecDeque::new(),
            owed: false,
            withheld: false,
            ledger: Ledger::default(),
            dry: Periods::default(),
            overran: false,
            low: false,
            stops: None,
            parts: 0,
            stopped: None,
        }
    }

    /// Accounts for a wrong message, which is sent even without a credit.
    fn overrun(&mut self) {
        self.overran |= self.credits <= 1;
        self.credits -= 1;
    }

    fn to_grant(&self) -> u16 {
        if self.withheld { 0 } else { (i64::from(self.target.min(self.wanted)) - self.lent).clamp(0, 0xffff) as u16 }
    }

    fn may_send(&self) -> bool {
        match self.credits {
            ..=0 => false,
            1 => self.to_grant() > 0 || self.withheld,
            _ => true,
        }
    }

    fn message(&mut self, data: &[u8], remaining: u32, smb: Option<Rc<Smb>>) -> Message {
        let granted = self.to_grant();
        self.lent += i64::from(granted);
        self.credits -= 1;
        self.low |= self.credits <= 1;
        self.ledger.messages += 1;
        self.ledger.granted += u64::from(granted);
        self.owed = false;
        let full = !data.is_empty();
        let header = DataHeader {
            requested: self.sizes.requested,
            granted,
            remaining,
            offset: if full { 24 } else { 0 },
            length: data.len() as u32,
        };
        Message {
            bytes: smb::data(&header, data),
            what: Content::Data { requested: header.requested, granted, smb, full },
        }
    }

    /// Until when it has stopped.
    fn stops_until(&self, now: Time) -> Option<Time> {
        self.stopped.map(|(_, until)| until).filter(|until| now < *until)
    }

    fn next(&mut self, now: Time) -> Option<(Message, Option<u32>)> {
        let peer = self.peer?;
        let room = (peer.receive.min(self.sizes.send) as usize).saturating_sub(24).max(1);
        if self.may_send() && self.queue.front().is_some_and(|next| next.sent > 0) {
            if let Some((_, by)) = self.stops.take_if(|(part, _)| *part == self.parts) {
                self.stopped = Some((now, now + by));
            }
            self.parts += 1;
        }
        if self.stops_until(now).is_some() {
            return None;
        }
        if self.may_send()
            && let Some(mut next) = self.queue.pop_front()
        {
            self.dry.end(now);
            let end = (next.sent + room).min(next.bytes.len());
            let remaining = next.bytes.len() - end;
            let smb = (remaining == 0).then(|| next.smb.clone());
            let many = next.bytes.len() > room;
            self.ledger.fragments += u64::from(many);
            self.ledger.fragmented += u64::from(many && next.sent == 0);
            let part = next.bytes[next.sent..end].to_vec();
            let message = self.message(&part, remaining as u32, smb);
            if remaining > 0 {
                next.sent = end;
                self.queue.push_front(next);
                return Some((message, None));
            }
            return Some((message, next.invalidate));
        }
        if !self.queue.is_empty() {
            self.dry.begin(now);
        }
        let low = i64::from(self.target.min(self.wanted)) / 2;
        if self.owed && self.lent <= low && self.to_grant() > 0 && self.may_send() {
            return Some((self.message(&[], 0, None), None));
        }
        None
    }
}

/// A kind of request that a client makes.
#[derive(Clone, Copy, Debug)]
pub struct Io {
    /// READ, WRITE or ECHO.
    pub command: Command,
    /// Bytes.
    pub length: u32,
    /// By RDMA.
    pub rdma: bool,
    /// The reply invalidates the memory.
    pub invalidate: bool,
}

/// Behaviour of the client.
#[derive(Clone, Debug)]
pub struct Script {
    /// Requests in turn.
    pub io: Vec<Io>,
    /// Number of outstanding requests.
    pub depth: usize,
    /// Maximum pause after a reply.
    pub think: Time,
    /// Time to wait for a reply.
    pub patience: Time,
    /// True if it logs off before it disconnects.
    pub polite: bool,
}

const SETUP: [Command; 4] = [Command::Negotiate, Command::SessionSetup, Command::TreeConnect, Command::Create];
const LEAVE: [Command; 3] = [Command::Close, Command::TreeDisconnect, Command::Logoff];

struct Client {
    script: Script,
    step: usize,
    open: Vec<u64>,
    credits: i64,
    next_id: u64,
    next_key: u32,
    wake: Time,
    heard: Time,
    offset: u64,
}

struct Server {
    work: Vec<(Time, Asked, bool)>,
    reading: Vec<(u64, Asked)>,
    next_read: u64,
    /// Minimum and maximum processing time.
    speed: (Time, Time),
    /// Number of a request that takes longer, and the additional time.
    slow: Option<(u64, Time)>,
    count: u64,
}

enum Role {
    Client(Client),
    Server(Server),
}

/// One end.
pub struct Host {
    me: usize,
    /// Its transport.
    pub transport: Box<dyn Transport>,
    /// SMB Direct.
    pub direct: Direct,
    role: Role,
    random: Random,
    fault: Option<&'static Fault>,
    /// The request, counted from 0, at which the fault happens.
    fault_at: u64,
    seen: u64,
    /// When the fault happened.
    pub failed_at: Option<Time>,
    connected: bool,
    /// True if nothing more is requested of the transport.
    pub over: bool,
    gone: Option<Time>,
    salt: u64,
    stuck: bool,
    now: Time,
    /// The session was established.
    pub session: bool,
}

impl Host {
    /// A client.
    pub fn client(transport: Box<dyn Transport>, sizes: Sizes, target: u16, script: Script, random: Random) -> Self {
        let client = Client {
            script,
            step: 0,
            open: Vec::new(),
            credits: 1,
            next_id: 0,
            next_key: 0x1000,
            wake: 0,
            heard: 0,
            offset: 0,
        };
        Self::new(0, transport, sizes, target, Role::Client(client), random)
    }

    /// A server.
    pub fn server(
        transport: Box<dyn Transport>,
        sizes: Sizes,
        target: u16,
        speed: (Time, Time),
        slow: Option<(u64, Time)>,
        random: Random,
    ) -> Self {
        let server = Server { work: Vec::new(), reading: Vec::new(), next_read: 1, speed, slow, count: 0 };
        Self::new(1, transport, sizes, target, Role::Server(server), random)
    }

    fn new(me: usize, transport: Box<dyn Transport>, sizes: Sizes, target: u16, role: Role, random: Random) -> Self {
        Self {
            me,
            transport,
            direct: Direct::new(sizes, target),
            role,
            random,
            fault: None,
            fault_at: 0,
            seen: 0,
            failed_at: None,
            connected: false,
            over: false,
            gone: None,
            salt: 1,
            stuck: false,
            now: 0,
            session: false,
        }
    }

    fn is_done(&self) -> bool {
        matches!(&self.role, Role::Client(c) if c.step >= SETUP.len() + c.script.io.len() + LEAVE.len())
    }

    fn fill(&mut self, now: Time) {
        while let Some((message, invalidate)) = self.direct.next(now) {
            self.transport.post(now, Op::Send { message: Rc::new(Sent::Smb(message)), invalidate });
        }
    }

    fn leave(&mut self, now: Time) {
        if !self.over {
            self.over = true;
            self.transport.close(now);
        }
    }

    fn send(&mut self, now: Time, message: Message) {
        self.transport.post(now, Op::Send { message: Rc::new(Sent::Smb(message)), invalidate: None });
    }

    fn is_fault(&self, act: Act) -> bool {
        self.fault.is_some_and(|f| f.act == act)
    }

    fn happened(&mut self, now: Time, event: Event, requests: &mut [Request]) {
        match event {
            Event::Connected => {
                self.connected = true;
                if let Role::Client(c) = &mut self.role {
                    c.heard = now;
                    if self.is_fault(Act::NoNegotiate) {
                        self.failed_at = Some(now);
                        return;
                    }
                    let mut sizes = self.direct.sizes;
                    let wrong = self.negotiation(now, &mut sizes);
                    let mut bytes = smb::negotiate_request(&sizes);
                    if self.is_fault(Act::ShortNegotiate) {
                        self.failed_at = Some(now);
                        bytes.truncate(19);
                    }
                    let what = if wrong || bytes.len() < 20 { Content::Wrong } else { Content::Request(sizes) };
                    self.send(now, Message { bytes, what });
                }
            }
            Event::Received(message) => {
                if let Sent::Smb(message) = &*message {
                    self.received(now, message, requests);
                }
            }
            Event::ReadDone(id) => {
                if let Role::Server(s) = &mut self.role
                    && let Some(at) = s.reading.iter().position(|(of, _)| *of == id)
                {
                    let (_, asked) = s.reading.remove(at);
                    let pause = self.random.within(5, 60) * MICROSECOND;
                    if let Some(r) = requests.iter_mut().find(|r| r.id == asked.id) {
                        r.work += pause;
                        r.moved = u64::from(asked.length);
                    }
                    s.work.push((now + pause, asked, true));
                }
            }
            Event::Closed => {
                self.over = true;
                self.connected = false;
                // an end that fails closes its connection
                self.transport.close(now);
            }
        }
    }

    /// Falsifies a negotiation. Returns true if its receiver refuses it.
    fn negotiation(&mut self, now: Time, sizes: &mut Sizes) -> bool {
        let Some(fault) = self.fault else { return false };
        let wrong = match fault.act {
            Act::Version => {
                sizes.version = 0x200;
                // a server answers that it does not know the version
                self.me == 1
            }
            Act::SmallReceive => {
                sizes.receive = 100;
                true
            }
            Act::SmallFragments => {
                sizes.fragmented = 65_536;
                true
            }
            Act::NoCredits => {
                if self.me == 0 {
                    sizes.requested = 0
                } else {
                    sizes.granted = 0
                }
                true
            }
            Act::RefuseNegotiate => {
                *sizes = Sizes { version: 0, granted: 0, status: 0xc000_00bb, ..*sizes };
                self.failed_at = Some(now);
                return true;
            }
            _ => return false,
        };
        self.failed_at = Some(now);
        wrong
    }

    fn received(&mut self, now: Time, message: &Message, requests: &mut [Request]) {
        match &message.what {
            Content::Request(peer) => {
                let mut sizes = self.direct.sizes;
                if peer.version != 0x100 {
                    let bytes =
                        smb::negotiate_response(&Sizes { version: 0, granted: 0, status: 0xc000_00bb, ..sizes });
                    self.gone = Some(now + MILLISECOND);
                    return self.send(now, Message { bytes, what: Content::Wrong });
                }
                if self.is_fault(Act::NoNegotiate) {
                    self.failed_at = Some(now);
                    self.stuck = true;
                    return;
                }
                sizes.granted = self.direct.target.min(peer.requested);
                sizes.send = sizes.send.min(peer.receive);
                let wrong = self.negotiation(now, &mut sizes);
                self.direct.lent = sizes.granted.into();
                self.direct.wanted = peer.requested;
                self.direct.peer = Some(*peer);
                self.direct.sizes.send = sizes.send;
                let mut bytes = smb::negotiate_response(&sizes);
                let mut what = if wrong { Content::Wrong } else { Content::Response(sizes) };
                if self.is_fault(Act::ShortNegotiate) {
                    self.failed_at = Some(now);
                    bytes.truncate(31);
                    what = Content::Wrong;
                }
                self.send(now, Message { bytes, what });
            }
            Content::Response(peer) => {
                self.direct.peer = Some(*peer);
                self.direct.credits = peer.granted.into();
                self.direct.wanted = peer.requested;
                if let Role::Client(c) = &mut self.role {
                    c.heard = now;
                }
                self.begin(now);
            }
            Content::Data { requested, granted, smb, full } => {
                if self.me == 1 && self.direct.ledger.messages == 0 && self.direct.lent > 0 && self.direct.credits == 0
                {
                    self.begin(now);
                }
                self.direct.lent -= 1;
                self.direct.wanted = *requested;
                self.direct.credits += i64::from(*granted);
                self.direct.owed |= *full;
                if let Some(smb) = smb {
                    self.smb(now, smb, requests);
                }
            }
            Content::Wrong => {
                if self.is_fault(Act::NoNegotiate) {
                    return;
                }
                self.leave(now);
            }
        }
    }

    /// Applies faults that begin once SMB Direct is established.
    fn begin(&mut self, now: Time) {
        match self.fault.map(|f| f.act) {
            Some(Act::RefuseCredits) => {
                self.failed_at = Some(now);
                self.direct.withheld = true;
            }
            Some(Act::GrantTooMuch) => {
                self.failed_at = Some(now);
                for _ in 0..2 {
                    let header = DataHeader {
                        requested: self.direct.sizes.requested,
                        granted: u16::MAX,
                        remaining: 0,
                        offset: 0,
                        length: 0,
                    };
                    let bytes = smb::data(&header, &[]);
                    self.direct.overrun();
                    self.send(now, Message { bytes, what: Content::Wrong });
                }
            }
            _ => {}
        }
    }

    fn smb(&mut self, now: Time, smb: &Smb, requests: &mut [Request]) {
        match (smb, &mut self.role) {
            (Smb::Request(asked), Role::Server(_)) => {
                let transfer = matches!(asked.command, Command::Read | Command::Write);
                if transfer && self.fault.is_some_and(|f| f.act.is_transfer()) {
                    self.seen += 1;
                    let goes_on = self.fault.is_some_and(|f| f.act.goes_on());
                    if self.failed_at.is_some() && !goes_on {
                        return;
                    }
                    let fits = match self.fault.map(|f| f.act) {
                        Some(act) if act.needs_memory() => asked.memory.is_some(),
                        _ => true,
                    };
                    if self.seen > self.fault_at && fits && self.failed_at.is_none() {
                        self.failed_at = Some(now);
                        return self.fail(now, asked, requests);
                    }
                }
                let Role::Server(s) = &mut self.role else { return };
                s.count += 1;
                let mut work = self.random.within(s.speed.0, s.speed.1);
                if let Some((at, extra)) = s.slow
                    && at == s.count
                {
                    work += extra;
                }
                if let Some(r) = requests.iter_mut().find(|r| r.id == asked.id) {
                    r.arrived = Some(now);
                    r.work = work;
                }
                s.work.push((now + work, asked.clone(), false));
            }
            (Smb::Reply { id, credits, wrong }, Role::Client(c)) => {
                c.credits += i64::from(*credits);
                c.heard = now;
                c.open.retain(|of| of != id);
                if let Some(r) = requests.iter_mut().find(|r| r.id == *id) {
                    r.done = Some(now);
                }
                if *wrong {
                    return self.leave(now);
                }
                let pause = self.random.within(0, c.script.think);
                c.wake = now + pause;
            }
            _ => {}
        }
    }

    fn ask(&mut self, now: Time, requests: &mut Vec<Request>) {
        loop {
            if self.over || self.direct.peer.is_none() {
                return;
            }
            let Role::Client(c) = &mut self.role else { return };
            let ios = c.script.io.len();
            let alone = c.step < SETUP.len() || c.step >= SETUP.len() + ios;
            let depth = if alone { 1 } else { c.script.depth };
            if now < c.wake {
                return;
            }
            c.wake = 0;
            if c.open.len() >= depth {
                return;
            }
            if c.step == SETUP.len() {
                self.session = true;
            }
            let mut io = match c.step {
                n if n < SETUP.len() => Io { command: SETUP[n], length: 0, rdma: false, invalidate: false },
                n if n < SETUP.len() + ios => c.script.io[n - SETUP.len()],
                n if n < SETUP.len() + ios + LEAVE.len() && c.script.polite => {
                    Io { command: LEAVE[n - SETUP.len() - ios], length: 0, rdma: false, invalidate: false }
                }
                _ => {
                    if c.open.is_empty() {
                        c.step = usize::MAX;
                        self.leave(now);
                    }
                    return;
                }
            };
            let charge = (io.length.max(1) - 1) / 65_536 + 1;
            if c.credits < i64::from(charge) {
                return;
            }
            if !io.rdma {
                io.length = io.length.min(60_000);
            }
            c.step += 1;
            c.credits -= i64::from(charge);
            let id = c.next_id;
            c.next_id += u64::from(charge);
            let memory = io.rdma.then(|| Memory::new(&mut c.next_key, io.length));
            let offset = c.offset;
            c.offset += u64::from(io.length);
            let asked = Asked {
                id,
                command: io.command,
                charge: charge as u16,
                offset,
                length: io.length,
                memory,
                invalidate: io.invalidate,
            };
            if c.open.is_empty() {
                c.heard = now;
            }
            let transfer = matches!(asked.command, Command::Read | Command::Write);
            c.open.push(id);
            let inline = if io.command == Command::Write && !io.rdma {
                content(offset, io.length, self.salt)
            } else {
                Rc::from([])
            };
            let data = (transfer && io.length > 0).then(|| content(offset, io.length, self.salt));
            requests.push(Request {
                id,
                command: io.command.name(),
                transfer: match io.command {
                    Command::Read => Some(Transfer::Read),
                    Command::Write => Some(Transfer::Write),
                    _ => None,
                },
                length: io.length,
                rdma: memory.is_some(),
                posted: now,
                done: None,
                moved: 0,
                data,
                work: 0,
                arrived: None,
                replied: None,
            });
            if transfer && self.fault.is_some_and(|f| f.act.is_transfer()) {
                self.seen += 1;
                let fits = self.fault.is_some_and(|f| !f.act.needs_memory()) || asked.memory.is_some();
                if self.seen > self.fault_at && fits && self.failed_at.is_none() {
                    self.failed_at = Some(now);
                    match (self.is_fault(Act::Refuse), asked.memory) {
                        (true, Some(memory)) => self.transport.refuse(memory.key),
                        _ => {
                            requests.pop();
                            return self.fail(now, &asked, requests);
                        }
                    }
                }
            }
            let bytes = smb::request(&asked, 32, &inline);
            self.direct.queue.push_back(Queued { smb: Rc::new(Smb::Request(asked)), bytes, sent: 0, invalidate: None });
        }
    }

    fn work(&mut self, now: Time, requests: &mut [Request]) {
        loop {
            let Role::Server(s) = &mut self.role else { return };
            let Some(at) = s.work.iter().position(|(at, ..)| now >= *at) else { return };
            let (_, asked, read) = s.work.remove(at);
            let data = content(asked.offset, asked.length, self.salt);
            match (asked.command, asked.memory, read) {
                (Command::Write, Some(memory), false) => {
                    let id = s.next_read;
                    s.next_read += 1;
                    s.reading.push((id, asked));
                    self.transport.post(now, Op::Read { id, memory, data, wrong: None });
                }
                (Command::Read, Some(memory), _) => {
                    self.transport.post(now, Op::Write { memory, data, wrong: None });
                    moved(requests, &asked);
                    self.answer(now, &asked, asked.length, &[], None, requests);
                }
                (Command::Read, None, _) => {
                    moved(requests, &asked);
                    self.answer(now, &asked, asked.length, &data, None, requests);
                }
                (Command::Write, ..) => {
                    moved(requests, &asked);
                    self.answer(now, &asked, asked.length, &[], None, requests);
                }
                _ => self.answer(now, &asked, 0, &[], None, requests),
            }
        }
    }

    fn answer(
        &mut self,
        now: Time,
        asked: &Asked,
        said: u32,
        inline: &[u8],
        key: Option<u32>,
        requests: &mut [Request],
    ) {
        let credits = if asked.command == Command::Negotiate { 64 } else { asked.charge.max(1) };
        let bytes = smb::reply(asked, credits, 0, said, inline);
        let invalidate = key.or_else(|| asked.memory.filter(|_| asked.invalidate).map(|m| m.key));
        if let Some(r) = requests.iter_mut().find(|r| r.id == asked.id) {
            r.replied = Some(now);
        }
        let smb = Rc::new(Smb::Reply { id: asked.id, credits, wrong: false });
        self.direct.queue.push_back(Queued { smb, bytes, sent: 0, invalidate });
    }

    fn wrong_data(&mut self, now: Time, header: DataHeader, length: usize) {
        let header = DataHeader { requested: self.direct.sizes.requested, granted: 1, ..header };
        let bytes = smb::data(&header, &vec![0; length]);
        self.direct.overrun();
        self.send(now, Message { bytes, what: Content::Wrong });
        self.stuck = true;
    }

    fn fail(&mut self, now: Time, asked: &Asked, requests: &mut [Request]) {
        let Some(fault) = self.fault else { return };
        let header = DataHeader { requested: 0, granted: 0, remaining: 0, offset: 24, length: 0 };
        let memory = asked.memory.unwrap_or_default();
        let bytes: Rc<[u8]> = vec![0xbd; 16].into();
        match fault.act {
            Act::BadLengths => self.wrong_data(now, DataHeader { length: 4000, ..header }, 100),
            Act::BadOffset => self.wrong_data(now, DataHeader { offset: 25, length: 99, ..header }, 100),
            Act::BadRemaining => {
                self.wrong_data(now, DataHeader { remaining: 500, length: 100, ..header }, 100);
                self.wrong_data(now, DataHeader { remaining: 500, length: 100, ..header }, 100);
            }
            Act::TooLong => {
                let most = self.direct.peer.map_or(8192, |p| p.receive);
                self.wrong_data(now, DataHeader { length: most, ..header }, most as usize);
            }
            Act::RequestZero => {
                let bytes = smb::data(&DataHeader { length: 0, offset: 0, ..header }, &[]);
                self.direct.overrun();
                self.send(now, Message { bytes, what: Content::Wrong });
                self.stuck = true;
            }
            Act::NotSmb2 => self.wrong_data(now, DataHeader { length: 100, ..header }, 100),
            Act::Stall => self.stuck = true,
            Act::Deaf => {
                self.transport.freeze();
                self.over = true;
            }
            Act::HalfClose => {
                self.over = true;
                self.transport.close(now);
            }
            Act::Die => {
                self.transport.raw(&[0, 200, 0x41, 0x43, 0, 0], Mark::Startup);
                self.transport.reset();
                self.over = true;
            }
            Act::Garbage => {
                self.transport.raw(&[0xa5; 3000], Mark::Bad(0x20, 2));
                self.stuck = true;
            }
            Act::BadCrc => {
                let mut fpdu = vec![0, 18, 0x41, 0x43];
                fpdu.resize(24, 0xee);
                self.transport.raw(&fpdu, Mark::Bad(0x20, 2));
                self.stuck = true;
            }
            Act::WrongMsn => {
                self.transport.skip_message();
                self.wrong_data(now, DataHeader { length: 20, ..header }, 20);
            }
            Act::WrongKey => {
                let memory = Memory { key: !memory.key, ..memory };
                self.transport.post(now, Op::Write { memory, data: bytes, wrong: Some(Refusal::Key) });
                self.stuck = true;
            }
            Act::OutOfBounds => {
                let memory = Memory { address: memory.address + u64::from(memory.length) - 8, ..memory };
                let op = if asked.command == Command::Read {
                    Op::Write { memory, data: bytes, wrong: Some(Refusal::Bounds) }
                } else {
                    Op::Read { id: 0, memory, data: bytes, wrong: Some(Refusal::Bounds) }
                };
                self.transport.post(now, op);
                self.stuck = true;
            }
            Act::WrongRights => {
                let op = if asked.command == Command::Read {
                    Op::Read { id: 0, memory, data: bytes, wrong: Some(Refusal::Rights) }
                } else {
                    Op::Write { memory, data: bytes, wrong: Some(Refusal::Rights) }
                };
                self.transport.post(now, op);
                self.stuck = true;
            }
            Act::NotGiven => {
                let memory = Memory { key: !memory.key, ..memory };
                self.transport.post(now, Op::Read { id: 0, memory, data: bytes, wrong: Some(Refusal::Key) });
                self.stuck = true;
            }
            Act::StaleKey => {
                self.answer(now, asked, 0, &[], Some(memory.key), requests);
                self.fill(now);
                self.transport.post(now, Op::Write { memory, data: bytes, wrong: Some(Refusal::Key) });
                self.stuck = true;
            }
            Act::WrongInvalidate => self.answer(now, asked, asked.length, &[], Some(!memory.key), requests),
            Act::Lie => self.answer(now, asked, asked.length, &[], None, requests),
            Act::TooMuch => self.answer(now, asked, asked.length.saturating_add(1), &[], None, requests),
            Act::WrongSignature => {
                let mut bytes = smb::reply(asked, 8, 0xc000_0022, 0, &[]);
                bytes[16] |= 8;
                bytes[48..64].fill(0x5a);
                let smb = Rc::new(Smb::Reply { id: asked.id, credits: 8, wrong: true });
                self.direct.queue.push_back(Queued { smb, bytes, sent: 0, invalidate: None });
            }
            _ => {}
        }
        if self.over && self.me == 0 {
            self.gone = None;
        }
    }
}

impl End for Host {
    fn transport(&self) -> &dyn Transport {
        &*self.transport
    }

    fn transport_mut(&mut self) -> &mut dyn Transport {
        &mut *self.transport
    }

    fn breaks(&mut self, fault: &'static Fault, at: u64) {
        self.fault = Some(fault);
        self.fault_at = at;
    }

    fn poll_timeout(&self) -> Option<Time> {
        let own = match &self.role {
            _ if self.over => None,
            Role::Client(c) if self.connected => {
                let wait = (!c.open.is_empty() || c.step == 0).then_some(c.heard + c.script.patience);
                [wait, (!self.is_done()).then_some(c.wake).filter(|w| *w > 0)].into_iter().flatten().min()
            }
            Role::Client(_) => None,
            Role::Server(s) => s.work.iter().map(|(at, ..)| *at).min(),
        };
        let goes_on = self.direct.stopped.map(|(_, until)| until).filter(|until| *until > self.now);
        [own, self.transport.poll_timeout(), self.gone, goes_on].into_iter().flatten().min()
    }

    fn turn(&mut self, now: Time, requests: &mut Vec<Request>) {
        self.now = now;
        self.transport.timeout(now);
        while let Some(event) = self.transport.poll_event() {
            self.happened(now, event, requests);
        }
        if self.gone.is_some_and(|at| now >= at) {
            self.gone = None;
            self.leave(now);
        }
        if self.over {
            return;
        }
        match &mut self.role {
            Role::Client(c) => {
                if self.connected && (!c.open.is_empty() || c.step == 0) && now >= c.heard + c.script.patience {
                    self.leave(now);
                    return;
                }
                self.ask(now, requests);
            }
            Role::Server(_) => self.work(now, requests),
        }
        if !self.stuck {
            self.fill(now);
        }
    }

    fn account(&self) -> Account {
        let Direct { ledger, dry, low, overran, stopped, .. } = &self.direct;
        Account {
            ledger: *ledger,
            dry: dry.clone(),
            low: *low,
            overran: *overran,
            stopped: *stopped,
            failed_at: self.failed_at,
            session: self.session,
            refused: false,
        }
    }
}

fn moved(requests: &mut [Request], asked: &Asked) {
    if let Some(r) = requests.iter_mut().find(|r| r.id == asked.id) {
        r.moved = u64::from(asked.length);
    }
}
