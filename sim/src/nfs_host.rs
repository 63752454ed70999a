//! The ends of NFS over RPC-over-RDMA: a client with a script that keeps to its credits, a server with a processing
//! time that reads and writes the client's chunks. Their actions and observations are the truth with which an analysis
//! is compared.

use crate::end::{Account, End, Request, Transfer};
use crate::fault::{Act, Fault};
use crate::memory::{Memory, content};
use crate::nfs::{self, Call, Command, Message, OVERHEAD, Rpc, Way};
use crate::packet::{Event, Mark, Message as Sent, Op, Refusal};
use crate::random::Random;
use crate::transport::{MICROSECOND, Time, Transport};
use rdmascope_dissector::wire::nfs::v3::Status;
use rdmascope_dissector::wire::rpcrdma::{Error, Proc, VERSION, Versions};
use std::rc::Rc;

/// How the data of a request go, as the script has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Path {
    /// In the message.
    Inline,
    /// In a chunk of so many segments.
    Chunk(u32),
    /// With the whole message in a chunk.
    Long,
}

/// A kind of request that a client makes.
#[derive(Clone, Copy, Debug)]
pub struct Io {
    /// NULL, GETATTR, LOOKUP, READ, WRITE or READDIR.
    pub command: Command,
    /// Bytes.
    pub length: u32,
    /// How they go.
    pub path: Path,
    /// The Read chunk of a WRITE has the padding of XDR as well.
    pub padded: bool,
    /// The file ends before the bytes that a READ asks for.
    pub short: bool,
}

impl Io {
    /// A request without data.
    pub const fn plain(command: Command) -> Self {
        Self { command, length: 0, path: Path::Inline, padded: false, short: false }
    }
}

/// Values of an end of RPC-over-RDMA.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Bytes that a message of this end may have.
    pub send: u32,
    /// The same of the other end.
    pub receive: u32,
    /// Bytes for which the other end has room.
    pub room: u32,
    /// Credits that a client asks for and a server grants.
    pub credits: u32,
    /// True if a server grants half of them at times.
    pub varies: bool,
    /// True if a server invalidates the client's memory with its reply.
    pub invalidates: bool,
}

/// Behaviour of the client.
#[derive(Clone, Debug)]
pub struct Script {
    /// Version 3, or 4 for 4.1.
    pub version: u32,
    /// Requests in turn, behind those that begin.
    pub io: Vec<Io>,
    /// Number of outstanding requests.
    pub depth: usize,
    /// Maximum pause after a reply.
    pub think: Time,
    /// Time to wait for a reply.
    pub patience: Time,
}

/// Bytes of a header without chunks.
const HEADER: usize = 28;

/// The requests that begin, one after the other.
const fn setup(version: u32) -> &'static [Command] {
    match version {
        3 => &[Command::Null, Command::Lookup],
        _ => &[Command::Null, Command::ExchangeId, Command::CreateSession, Command::Lookup],
    }
}

struct Client {
    script: Script,
    step: usize,
    open: Vec<u32>,
    /// Slots of the session: the call that uses it or did so last, and its sequence number.
    slots: Vec<(u32, u32)>,
    granted: u32,
    /// The most that was granted.
    most: u32,
    next_xid: u32,
    next_key: u32,
    wake: Time,
    heard: Time,
    offset: u64,
}

impl Client {
    /// The next request of the script.
    fn io(&self) -> Option<Io> {
        let setup = setup(self.script.version);
        setup
            .get(self.step)
            .map(|command| Io::plain(*command))
            .or_else(|| self.script.io.get(self.step - setup.len()).copied())
    }

    /// The slot of a session for a call, and its sequence number there.
    fn slot(&mut self, xid: u32) -> (u32, u32) {
        let is_free = |(of, _): &(u32, u32)| !self.open.contains(of);
        let place = self.slots.iter().position(is_free).unwrap_or(self.slots.len());
        if place == self.slots.len() {
            self.slots.push((0, 0));
        }
        let (of, sequence) = &mut self.slots[place];
        (*of, *sequence) = (xid, *sequence + 1);
        (place as u32, *sequence)
    }

    /// The call of a request, with the message that goes with it and the data in that.
    fn call(&mut self, io: Io, limits: Limits) -> (Call, nfs::Encoded, Rc<[u8]>) {
        let xid = self.next_xid;
        self.next_xid += 1;
        let is_write = io.command == Command::Write;
        let room = if is_write { limits.send } else { limits.receive } - OVERHEAD;
        let length = if io.path == Path::Inline { io.length.min(room) } else { io.length };
        let data = if is_write { content(self.offset, length, SALT) } else { Rc::from([]) };
        let moved = match io.command {
            Command::Read if io.short => length / 3 + 1,
            Command::Readdir => length.saturating_sub(OVERHEAD),
            _ => length,
        };
        let (version, slot) = (self.script.version, self.slot(xid));
        let mut call =
            Call { xid, version, slot, command: io.command, offset: self.offset, length, moved, way: Way::Inline };
        self.offset += u64::from(length);
        call.way = match io.path {
            Path::Inline => Way::Inline,
            Path::Chunk(segments) => {
                let whole = if io.padded && is_write { length.next_multiple_of(4) } else { length };
                let part = whole / segments;
                let last = whole - part * (segments - 1);
                Way::Chunk(
                    (1..=segments)
                        .map(|n| Memory::new(&mut self.next_key, if n == segments { last } else { part }))
                        .collect(),
                )
            }
            Path::Long if is_write => {
                Way::Long(Memory::new(&mut self.next_key, nfs::call_message(&call, &data).0.len() as u32))
            }
            Path::Long => Way::Long(Memory::new(&mut self.next_key, length + OVERHEAD)),
        };
        let message = nfs::call_message(&call, &data);
        (call, message, data)
    }
}

struct Server {
    work: Vec<(Time, Call, bool)>,
    /// Numbers of RDMA Reads, and the call that each is for.
    reading: Vec<(u64, Call)>,
    next_read: u64,
    /// Minimum and maximum processing time.
    speed: (Time, Time),
    /// Number of a request that takes longer, and the additional time.
    slow: Option<(u64, Time)>,
    count: u64,
    open: Vec<u32>,
}

enum Role {
    Client(Client),
    Server(Server),
}

/// One end.
pub struct Host {
    me: usize,
    transport: Box<dyn Transport>,
    limits: Limits,
    role: Role,
    random: Random,
    fault: Option<(&'static Fault, u64)>,
    /// Requests at which it could have happened.
    seen: u64,
    account: Account,
    connected: bool,
    over: bool,
    stuck: bool,
}

/// The content of the file.
const SALT: u64 = 1;

impl Host {
    /// A client.
    pub fn client(transport: Box<dyn Transport>, limits: Limits, script: Script, random: Random) -> Self {
        let (granted, next_xid) = (1, 0x1000);
        let (open, slots) = (Vec::new(), Vec::new());
        let client = Client {
            script,
            step: 0,
            open,
            slots,
            granted,
            most: granted,
            next_xid,
            next_key: 0x2000,
            wake: 0,
            heard: 0,
            offset: 0,
        };
        Self::new(0, transport, limits, Role::Client(client), random)
    }

    /// A server.
    pub fn server(
        transport: Box<dyn Transport>,
        limits: Limits,
        speed: (Time, Time),
        slow: Option<(u64, Time)>,
        random: Random,
    ) -> Self {
        let server =
            Server { work: Vec::new(), reading: Vec::new(), next_read: 1, speed, slow, count: 0, open: Vec::new() };
        Self::new(1, transport, limits, Role::Server(server), random)
    }

    fn new(me: usize, transport: Box<dyn Transport>, limits: Limits, role: Role, random: Random) -> Self {
        let (fault, account) = (None, Account::default());
        Self {
            me,
            transport,
            limits,
            role,
            random,
            fault,
            seen: 0,
            account,
            connected: false,
            over: false,
            stuck: false,
        }
    }

    fn leave(&mut self, now: Time) {
        if !self.over {
            self.over = true;
            self.transport.close(now);
        }
    }

    fn send(&mut self, now: Time, bytes: Vec<u8>, what: Rpc, invalidate: Option<u32>) {
        self.account.ledger.messages += 1;
        if self.me == 0 {
            self.account.ledger.calls += 1;
            self.account.ledger.requested = self.limits.credits;
        }
        self.transport.post(now, Op::Send { message: Rc::new(Sent::Rpc(Message { bytes, what })), invalidate });
    }

    fn happened(&mut self, now: Time, event: Event, requests: &mut [Request]) {
        match event {
            Event::Connected => {
                self.connected = true;
                if let Role::Client(c) = &mut self.role {
                    c.heard = now;
                }
            }
            Event::Received(message) => {
                if let Sent::Rpc(message) = &*message {
                    self.received(now, message, requests);
                }
            }
            Event::ReadDone(id) => self.has_read(now, id, requests),
            Event::Closed => {
                self.over = true;
                self.connected = false;
                // an end that fails closes its connection
                self.transport.close(now);
            }
        }
    }

    fn received(&mut self, now: Time, message: &Message, requests: &mut [Request]) {
        match (&message.what, &mut self.role) {
            (Rpc::Call(call), Role::Server(s)) => {
                // a copy of a call that is worked on is dropped
                if s.open.contains(&call.xid) || self.stuck {
                    return;
                }
                self.begin(now, call, requests);
            }
            (Rpc::Wrong(xid), Role::Server(_)) => {
                let is_version_1 = message.bytes.get(4..8) == Some(&VERSION.to_be_bytes());
                let reason =
                    if is_version_1 { Error::Chunk } else { Error::Vers(Versions { low: VERSION, high: VERSION }) };
                self.refuse(now, *xid, reason);
            }
            (Rpc::Reply { xid, credits, wrong }, Role::Client(c)) => {
                c.granted = (*credits).max(1);
                c.most = c.most.max(c.granted);
                c.heard = now;
                c.open.retain(|of| of != xid);
                if let Some(r) = requests.iter_mut().find(|r| r.id == u64::from(*xid)) {
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

    /// Begins to work on a call.
    fn begin(&mut self, now: Time, call: &Call, requests: &mut [Request]) {
        let Role::Server(s) = &mut self.role else { return };
        s.open.push(call.xid);
        s.count += 1;
        let mut work = self.random.within(s.speed.0, s.speed.1);
        if let Some((at, extra)) = s.slow
            && at == s.count
        {
            work += extra;
        }
        if let Some(r) = requests.iter_mut().find(|r| r.id == u64::from(call.xid)) {
            r.arrived = Some(now);
            r.work = work;
        }
        s.work.push((now + work, call.clone(), false));
    }

    fn has_read(&mut self, now: Time, id: u64, requests: &mut [Request]) {
        let Role::Server(s) = &mut self.role else { return };
        let Some(at) = s.reading.iter().position(|(of, _)| *of == id) else { return };
        let (_, call) = s.reading.remove(at);
        if s.reading.iter().any(|(_, other)| other.xid == call.xid) {
            return;
        }
        let pause = self.random.within(5, 60) * MICROSECOND;
        if let Some(r) = requests.iter_mut().find(|r| r.id == u64::from(call.xid)) {
            r.work += pause;
        }
        s.work.push((now + pause, call, true));
    }

    fn ask(&mut self, now: Time, requests: &mut Vec<Request>) {
        loop {
            if self.over || self.stuck || !self.connected {
                return;
            }
            let Role::Client(c) = &mut self.role else { return };
            let setup = setup(c.script.version).len();
            let depth = if c.step < setup { 1 } else { c.script.depth };
            if now < c.wake {
                return;
            }
            c.wake = 0;
            if c.open.len() >= depth {
                return;
            }
            let Some(io) = c.io() else {
                if c.open.is_empty() {
                    self.leave(now);
                }
                return;
            };
            if c.open.len() >= c.granted as usize {
                return self.account.dry.begin(now);
            }
            self.account.dry.end(now);
            self.account.session |= c.step >= setup;
            c.step += 1;
            if c.open.is_empty() {
                c.heard = now;
            }
            let (call, message, data) = c.call(io, self.limits);
            if self.is_time(now, &call) {
                self.fail_client(now, call, message, &data, requests);
            } else {
                self.call(now, &call, &message, &data, requests);
            }
        }
    }

    /// Sends a call.
    fn call(&mut self, now: Time, call: &Call, message: &nfs::Encoded, data: &Rc<[u8]>, requests: &mut Vec<Request>) {
        let Role::Client(c) = &mut self.role else { return };
        c.open.push(call.xid);
        // from outside, a client that has as many calls as credits may wait for more
        self.account.low |= c.open.len() >= c.granted as usize;
        let transfer = match call.command {
            Command::Read => Some(Transfer::Read),
            Command::Write => Some(Transfer::Write),
            _ => None,
        };
        let data = match transfer {
            Some(Transfer::Read) => Some(content(call.offset, call.moved, SALT)),
            Some(Transfer::Write) => Some(data.clone()),
            None => None,
        };
        requests.push(Request {
            id: call.xid.into(),
            command: call.command.name(),
            transfer,
            length: call.length,
            rdma: matches!(call.way, Way::Chunk(_)),
            posted: now,
            done: None,
            moved: 0,
            data,
            work: 0,
            arrived: None,
            replied: None,
        });
        let header = nfs::call_header(call, self.limits.credits, message);
        let inline = if header.fixed.proc == Proc::NOMSG.0 { &[] } else { &message.0[..] };
        self.send(now, header.bytes(inline), Rpc::Call(call.clone()), None);
    }

    fn work(&mut self, now: Time, requests: &mut [Request]) {
        loop {
            let Role::Server(s) = &mut self.role else { return };
            let Some(at) = s.work.iter().position(|(at, ..)| now >= *at) else { return };
            let (_, call, read) = s.work.remove(at);
            // a call in a chunk is known when it was read
            let is_known = read == (call.command == Command::Write && matches!(call.way, Way::Long(_)));
            if is_known && self.is_time(now, &call) {
                self.fail_server(now, &call, requests);
                if self.stuck || self.over {
                    return;
                }
            } else if call.command == Command::Write && call.way != Way::Inline && !read {
                self.fetch(now, &call);
            } else {
                if let Some(r) = requests.iter_mut().find(|r| r.id == u64::from(call.xid)) {
                    r.moved = if r.transfer.is_some() { call.moved.into() } else { 0 };
                }
                self.answer(now, &call, Status::OK, None, requests);
            }
        }
    }

    /// Reads the data of a WRITE, or the whole call.
    fn fetch(&mut self, now: Time, call: &Call) {
        let Role::Server(s) = &mut self.role else { return };
        let data = content(call.offset, call.length, SALT);
        let mut bytes = if let Way::Long(_) = call.way { nfs::call_message(call, &data).0 } else { data.to_vec() };
        for memory in call.memory() {
            bytes.resize(bytes.len().max(memory.length as usize), 0);
            let rest = bytes.split_off(memory.length as usize);
            let data: Rc<[u8]> = core::mem::replace(&mut bytes, rest).into();
            let id = s.next_read;
            s.next_read += 1;
            s.reading.push((id, call.clone()));
            self.transport.post(now, Op::Read { id, memory: *memory, data, wrong: None });
        }
    }

    fn grant(&mut self) -> u32 {
        let half = self.limits.varies && self.limits.credits > 1 && self.random.chance(1, 3);
        let granted = if half { self.limits.credits / 2 } else { self.limits.credits };
        self.account.ledger.granted = granted.into();
        granted
    }

    /// Answers a call; `key` is invalidated in place of one of the call's.
    fn answer(&mut self, now: Time, call: &Call, status: Status, key: Option<u32>, requests: &mut [Request]) {
        let credits = self.grant();
        let data = if call.command == Command::Read { content(call.offset, call.moved, SALT) } else { Rc::from([]) };
        let message = nfs::reply_message(call, status, &data);
        let is_long = matches!(call.way, Way::Long(_))
            && call.command != Command::Write
            && message.len() + HEADER > self.limits.send as usize;
        let written: &[u8] = match &call.way {
            _ if status != Status::OK => &[],
            Way::Chunk(_) => &data,
            Way::Long(_) if is_long => &message,
            _ => &[],
        };
        self.write(now, call, written);
        let header = nfs::reply_header(call, credits, written.len() as u32, is_long);
        let bytes = header.bytes(if is_long { &[] } else { &message });
        let key = key.or_else(|| call.memory().first().filter(|_| self.limits.invalidates).map(|memory| memory.key));
        self.reply(now, call, bytes, Rpc::Reply { xid: call.xid, credits, wrong: false }, key, requests);
    }

    /// Writes bytes into the chunk of a call.
    fn write(&mut self, now: Time, call: &Call, mut bytes: &[u8]) {
        for memory in call.memory() {
            let (part, rest) = bytes.split_at(bytes.len().min(memory.length as usize));
            bytes = rest;
            if !part.is_empty() {
                self.transport.post(now, Op::Write { memory: *memory, data: part.into(), wrong: None });
            }
        }
    }

    fn reply(&mut self, now: Time, call: &Call, bytes: Vec<u8>, what: Rpc, key: Option<u32>, requests: &mut [Request]) {
        if let Role::Server(s) = &mut self.role {
            s.open.retain(|xid| *xid != call.xid);
        }
        if let Some(r) = requests.iter_mut().find(|r| r.id == u64::from(call.xid)) {
            r.replied = Some(now);
        }
        self.send(now, bytes, what, key);
    }

    fn refuse(&mut self, now: Time, xid: u32, reason: Error) {
        self.account.refused = true;
        let credits = self.grant();
        self.send(now, nfs::error(xid, credits, reason), Rpc::Reply { xid, credits, wrong: true }, None);
    }
}

/// True if an end can have this fault at a call.
fn fits(act: Act, by: usize, call: &Call, limits: &Limits) -> bool {
    let is_write = call.command == Command::Write;
    let is_chunk = matches!(call.way, Way::Chunk(_));
    match (act, by) {
        (Act::CreditFirst, _) => call.command == Command::Null,
        (Act::Overrun | Act::Deaf, _) => call.command.is_io(),
        (Act::Refuse, _) => is_chunk,
        (Act::BadPosition | Act::ShortChunk, _) => is_write && is_chunk && call.memory()[0].length > 8,
        (Act::Reduced, 0) => call.command == Command::Getattr,
        (Act::Reduced | Act::Lie | Act::OtherShape, _) => call.command == Command::Read && is_chunk,
        (Act::LongInline, 0) => is_write && call.way == Way::Inline,
        (Act::LongInline, _) => {
            let length = || nfs::reply_message(call, Status::OK, &content(call.offset, call.moved, SALT)).len();
            !is_write && matches!(call.way, Way::Long(_)) && length() + HEADER > limits.room as usize
        }
        (Act::Nomsg, 1) => !is_write && matches!(call.way, Way::Long(_)),
        (Act::InnerXid, _) => call.way == Way::Inline,
        (Act::Status, _) => call.command != Command::Null,
        (act, _) => !act.needs_memory() || !call.memory().is_empty(),
    }
}

/// The same call, with another transaction id.
fn with_other_xid(call: &Call) -> Call {
    Call { xid: call.xid ^ 0x8000_0000, ..call.clone() }
}

impl Host {
    /// True if its fault happens at this call.
    fn is_time(&mut self, now: Time, call: &Call) -> bool {
        let Some((fault, at)) = self.fault else { return false };
        if self.account.failed_at.is_some() || !fits(fault.act, self.me, call, &self.limits) {
            return false;
        }
        // of many credits, replies return some before all calls are out
        if fault.act == Act::Overrun && matches!(&self.role, Role::Client(c) if c.most > 4) {
            return false;
        }
        self.seen += 1;
        let is_time = self.seen > at || fault.act == Act::CreditFirst;
        if is_time {
            self.account.failed_at = Some(now);
        }
        is_time
    }

    /// Faults that either end can have.
    fn fail(&mut self, now: Time, act: Act) {
        self.stuck = true;
        match act {
            Act::Deaf => {
                self.transport.freeze();
                self.over = true;
            }
            Act::Die => {
                self.transport.raw(&[0, 200, 0x41, 0x43, 0, 0], Mark::Startup);
                self.transport.reset();
                self.over = true;
            }
            Act::Garbage => self.transport.raw(&[0xa5; 3000], Mark::Bad(0x20, 2)),
            Act::BadCrc => {
                let mut fpdu = vec![0, 18, 0x41, 0x43];
                fpdu.resize(24, 0xee);
                self.transport.raw(&fpdu, Mark::Bad(0x20, 2));
            }
            Act::WrongMsn => {
                self.transport.skip_message();
                let call = Call {
                    xid: 1,
                    version: 3,
                    slot: (0, 0),
                    command: Command::Null,
                    offset: 0,
                    length: 0,
                    moved: 0,
                    way: Way::Inline,
                };
                let bytes = match self.me {
                    0 => nfs::Header::new(call.xid, self.limits.credits).bytes(&nfs::call_message(&call, &[]).0),
                    _ => nfs::reply_header(&call, self.limits.credits, 0, false).bytes(&nfs::reply_message(
                        &call,
                        Status::OK,
                        &[],
                    )),
                };
                self.send(now, bytes, Rpc::Dropped, None);
            }
            _ => {}
        }
    }

    fn fail_client(
        &mut self,
        now: Time,
        mut call: Call,
        message: nfs::Encoded,
        data: &Rc<[u8]>,
        requests: &mut Vec<Request>,
    ) {
        let Some((fault, _)) = self.fault else { return };
        let mut header = nfs::call_header(&call, self.limits.credits, &message);
        match fault.act {
            Act::Overrun | Act::CreditFirst => {
                self.call(now, &call, &message, data, requests);
                while let Role::Client(c) = &mut self.role
                    && c.open.len() <= c.most as usize
                {
                    let (call, message, data) = c.call(Io::plain(Command::Null), self.limits);
                    self.call(now, &call, &message, &data, requests);
                }
            }
            Act::SameXid => {
                self.call(now, &call, &message, data, requests);
                // the same one may be sent again
                let command = if call.command == Command::Null { Command::Getattr } else { Command::Null };
                let other = Call { command, way: Way::Inline, ..call };
                let message = nfs::call_message(&other, &[]);
                let header = nfs::Header::new(other.xid, self.limits.credits);
                self.send(now, header.bytes(&message.0), Rpc::Call(other), None);
            }
            Act::LongInline => {
                call.length = self.limits.room;
                call.moved = call.length;
                let data = content(call.offset, call.length, SALT);
                let message = nfs::call_message(&call, &data);
                self.call(now, &call, &message, &data, requests);
            }
            Act::Refuse => {
                call.memory().iter().take(1).for_each(|memory| self.transport.refuse(memory.key));
                self.call(now, &call, &message, data, requests);
            }
            Act::Version
            | Act::UnknownProc
            | Act::CutHeader
            | Act::Nomsg
            | Act::BadPosition
            | Act::ShortChunk
            | Act::Reduced => {
                let Role::Client(c) = &mut self.role else { return };
                c.open.push(call.xid);
                let mut message = message;
                if header.fixed.proc == Proc::NOMSG.0 {
                    message.0.clear();
                }
                match fault.act {
                    Act::Version => header.fixed.version += 1,
                    Act::UnknownProc => header.fixed.proc = 9,
                    Act::Nomsg => {
                        header = nfs::Header::new(call.xid, self.limits.credits);
                        header.fixed.proc = Proc::NOMSG.0;
                        message.0.clear();
                    }
                    Act::BadPosition => header.reads.iter_mut().for_each(|segment| segment.position += 2),
                    Act::ShortChunk => header.reads[0].length -= 8,
                    Act::Reduced => {
                        let memory = Memory::new(&mut c.next_key, 28);
                        call.command = Command::Write;
                        call.way = Way::Chunk(vec![memory]);
                        message.1 = message.0.len() as u32;
                        header = nfs::call_header(&call, self.limits.credits, &message);
                    }
                    _ => {}
                }
                let mut bytes = header.bytes(&message.0);
                if fault.act == Act::CutHeader {
                    bytes.truncate(24);
                }
                self.send(now, bytes, Rpc::Wrong(call.xid), None);
            }
            act => self.fail(now, act),
        }
    }

    fn fail_server(&mut self, now: Time, call: &Call, requests: &mut [Request]) {
        let Some((fault, _)) = self.fault else { return };
        let bytes: Rc<[u8]> = vec![0xbd; 16].into();
        let memory = call.memory().first().copied().unwrap_or_default();
        let is_write = call.command == Command::Write;
        let credits = self.limits.credits;
        let data = if call.command == Command::Read { content(call.offset, call.moved, SALT) } else { Rc::from([]) };
        let message = nfs::reply_message(call, Status::OK, &data);
        let good = Rpc::Reply { xid: call.xid, credits, wrong: false };
        let bad = Rpc::Reply { xid: call.xid, credits, wrong: true };
        let read = |memory: Memory, wrong: Refusal| Op::Read { id: 0, memory, data: bytes.clone(), wrong: Some(wrong) };
        let write = |memory: Memory, wrong: Refusal| Op::Write { memory, data: bytes.clone(), wrong: Some(wrong) };
        match fault.act {
            Act::HalfClose => {
                self.over = true;
                self.transport.close(now);
            }
            Act::CreditZero => {
                self.limits.credits = 0;
                self.answer(now, call, Status::OK, None, requests);
                self.limits.credits = credits;
            }
            Act::OtherXid => self.answer(now, &with_other_xid(call), Status::OK, None, requests),
            Act::InnerXid => {
                let message = nfs::reply_message(&with_other_xid(call), Status::OK, &data);
                self.reply(
                    now,
                    call,
                    nfs::Header::new(call.xid, credits).bytes(&message),
                    Rpc::Dropped,
                    None,
                    requests,
                );
            }
            Act::RefuseCall => self.refuse(now, call.xid, Error::Chunk),
            Act::Status => self.answer(now, call, Status::IO, None, requests),
            Act::Lie => {
                let header = nfs::reply_header(call, credits, call.moved, false);
                self.reply(now, call, header.bytes(&message), good, None, requests);
            }
            Act::OtherShape => {
                self.write(now, call, &data);
                let mut header = nfs::reply_header(call, credits, call.moved, false);
                header.writes[0][0].handle = !memory.key;
                self.reply(now, call, header.bytes(&message), bad, None, requests);
            }
            Act::Reduced => {
                let short = Call { moved: call.moved.min(64), way: Way::Inline, ..call.clone() };
                let message = nfs::reply_message(&short, Status::OK, &data[..short.moved as usize]);
                let header = nfs::reply_header(call, credits, 0, false);
                self.reply(now, call, header.bytes(&message), good, None, requests);
            }
            Act::Nomsg => {
                self.reply(now, call, nfs::reply_header(call, credits, 0, true).bytes(&[]), bad, None, requests)
            }
            Act::LongInline => {
                self.reply(now, call, nfs::Header::new(call.xid, credits).bytes(&message), good, None, requests)
            }
            Act::WrongInvalidate => self.answer(now, call, Status::OK, Some(!memory.key), requests),
            Act::StaleKey => {
                self.answer(now, call, Status::OK, None, requests);
                self.transport.post(now, write(memory, Refusal::Key));
                self.stuck = true;
            }
            Act::WrongKey | Act::OutOfBounds | Act::WrongRights | Act::NotGiven => {
                let unknown = Memory { key: !memory.key, ..memory };
                let beyond = Memory { address: memory.address + u64::from(memory.length.saturating_sub(8)), ..memory };
                let op = match (fault.act, is_write) {
                    (Act::WrongKey, _) => write(unknown, Refusal::Key),
                    (Act::NotGiven, _) => read(unknown, Refusal::Key),
                    (Act::OutOfBounds, true) => read(beyond, Refusal::Bounds),
                    (Act::OutOfBounds, false) => write(beyond, Refusal::Bounds),
                    (_, true) => write(memory, Refusal::Rights),
                    (_, false) => read(memory, Refusal::Rights),
                };
                self.transport.post(now, op);
                self.stuck = true;
            }
            act => self.fail(now, act),
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

    fn poll_timeout(&self) -> Option<Time> {
        let own = match &self.role {
            _ if self.over => None,
            Role::Client(c) if self.connected => {
                let wait = (!c.open.is_empty()).then_some(c.heard + c.script.patience);
                [wait, Some(c.wake).filter(|wake| *wake > 0 && !self.stuck)].into_iter().flatten().min()
            }
            Role::Client(_) => None,
            Role::Server(s) => s.work.iter().map(|(at, ..)| *at).min().filter(|_| !self.stuck),
        };
        [own, self.transport.poll_timeout()].into_iter().flatten().min()
    }

    fn turn(&mut self, now: Time, requests: &mut Vec<Request>) {
        self.transport.timeout(now);
        while let Some(event) = self.transport.poll_event() {
            self.happened(now, event, requests);
        }
        match &self.role {
            _ if self.over || self.stuck && self.me == 1 => {}
            Role::Client(c) if self.connected && !c.open.is_empty() && now >= c.heard + c.script.patience => {
                self.leave(now)
            }
            Role::Client(_) => self.ask(now, requests),
            Role::Server(_) => self.work(now, requests),
        }
    }

    fn breaks(&mut self, fault: &'static Fault, at: u64) {
        self.fault = Some((fault, at));
    }

    fn account(&self) -> Account {
        self.account.clone()
    }
}
