//! One end of a reliable connection by the RoCEv2 endpoint of `rdmascope-replay`, which is the endpoint of the active
//! mode: the same packets as on a network, in virtual time. It gets bytes, damaged ones too, and has to find out by
//! itself. What an end means by its bytes does not go by the packets here: messages arrive in the order in which they
//! were sent, so that the n-th to arrive is the n-th that was sent, and the bytes of both must be the same.

use crate::frame::{self, Ip, QP, Service};
use crate::memory::Memory;
use crate::packet::{Body, Event, Message, Op, Packet};
use crate::transport::{Class, Out, Periods, Stamp, Time, Transport};
use rdmascope_dissector::wire::ib::bth::Opcode;
use rdmascope_replay::roce::packet::{Check, Header, Hidden, Outside, Path};
use rdmascope_replay::roce::{self, Addressed, Endpoint, Numbers};
use rdmascope_replay::transport::{Handle, Rights};
use std::cell::RefCell;
use std::collections::{HashMap, VecDeque};
use std::net::{IpAddr, Ipv4Addr};
use std::rc::Rc;

/// What both ends of a connection share beside the link.
#[derive(Debug, Default)]
struct Common {
    /// Messages by sending end that have not arrived.
    messages: [VecDeque<Rc<Message>>; 2],
    /// Memory by the end that has it, which the peer was told of, and will use.
    offered: [Vec<(Memory, Offer)>; 2],
}

/// Use that the peer may make of memory.
#[derive(Clone, Debug)]
enum Offer {
    /// It reads these bytes.
    Read(Rc<[u8]>),
    /// It writes.
    Write,
    /// It invalidates the key.
    Invalidate,
}

/// Behaviour of an end.
#[derive(Clone, Debug)]
pub struct Config {
    /// Bytes of a packet's payload.
    pub mtu: u16,
    /// First sequence numbers of both ends.
    pub psn: [u32; 2],
    /// The code of the time after which a packet is sent again.
    pub timeout: u8,
    /// The identification of IP.
    pub stamp: Stamp,
    /// True if the end that closes leaves without disconnecting.
    pub rude: bool,
    /// The service that is connected to.
    pub service: Service,
}

/// One end.
pub struct Ours {
    me: usize,
    config: Config,
    common: Rc<RefCell<Common>>,
    /// There is none before a server is connected to.
    endpoint: Option<Endpoint>,
    numbers: Check,
    frozen: bool,
    left: bool,
    failed: bool,
    /// True if its end was reported.
    over: bool,
    refuses: Option<u32>,
    /// Reads of ours: the number of their user, the key of their sink, and the bytes that must come.
    reads: HashMap<u64, (u64, u32, Rc<[u8]>)>,
    events: VecDeque<Event>,
    /// Highest sequence numbers that were sent: of requests, and of answers to Reads.
    sent: [Option<u32>; 2],
    full: Periods,
}

/// The address of an end.
fn address(of: usize) -> IpAddr {
    Ipv4Addr::new(10, 0, 0, 1 + of as u8).into()
}

/// True if `psn` is not behind `highest`, as 24 bits tell it.
fn is_again(psn: u32, highest: Option<u32>) -> bool {
    highest.is_some_and(|highest| highest.wrapping_sub(psn) & 0xff_ffff < 0x80_0000)
}

impl Ours {
    /// Both ends of a connection.
    pub fn pair(configs: [Config; 2]) -> [Self; 2] {
        let common = Rc::new(RefCell::new(Common::default()));
        let mut me = 0..;
        configs.map(|config| Self {
            me: me.next().unwrap_or_default(),
            config,
            common: common.clone(),
            endpoint: None,
            numbers: Check::default(),
            frozen: false,
            left: false,
            failed: false,
            over: false,
            refuses: None,
            reads: HashMap::new(),
            events: VecDeque::new(),
            sent: [None; 2],
            full: Periods::default(),
        })
    }

    fn path(&self) -> Path {
        let source_port = Path::source_port(QP[self.me], QP[1 - self.me]);
        Path { local: address(self.me), remote: address(1 - self.me), source_port }
    }

    fn numbers(&self) -> Numbers {
        // the packets of an end begin with the number that its peer expects
        Numbers { qp: QP[self.me], comm_id: 0xc0_0001 + self.me as u32, psn: self.config.psn[1 - self.me] }
    }

    fn settings(&self) -> roce::Config {
        roce::Config { path_mtu: self.config.mtu, ack_timeout: self.config.timeout, dscp: 0, ..roce::Config::default() }
    }

    /// Registers what the peer was told of.
    fn register(&mut self) {
        let Some(endpoint) = &mut self.endpoint else { return };
        let offered = std::mem::take(&mut self.common.borrow_mut().offered[self.me]);
        for (memory, offer) in offered {
            if self.refuses == Some(memory.key) {
                continue;
            }
            let (bytes, rights) = match offer {
                Offer::Read(bytes) => (bytes.to_vec(), Rights::REMOTE_READ),
                Offer::Write => (vec![0; memory.length as usize], Rights::REMOTE_WRITE),
                Offer::Invalidate => (Vec::new(), Rights::REMOTE_READ),
            };
            // it was used before, or only its key is asked for
            let known = endpoint.memory();
            let is_known = known.has_room(memory.key, memory.address, memory.length)
                || bytes.is_empty() && known.bytes(memory.key).is_some();
            if !is_known {
                let handle = Handle { key: memory.key, offset: memory.address, length: memory.length };
                endpoint.register_at(handle, bytes, rights);
            }
        }
    }

    fn offer(&self, memory: Memory, offer: Offer) {
        self.common.borrow_mut().offered[1 - self.me].push((memory, offer));
    }

    /// Takes the events of the endpoint.
    fn take(&mut self) {
        let Some(endpoint) = &mut self.endpoint else { return };
        while let Some(event) = endpoint.poll_event() {
            match event {
                roce::Event::Established { .. } => self.events.push_back(Event::Connected),
                roce::Event::Received { message, .. } => {
                    let sent = self.common.borrow_mut().messages[1 - self.me].pop_front();
                    let sent = sent.expect("a message that nobody sent has arrived");
                    assert_eq!(sent.bytes(), message, "a message has arrived that is not the one that was sent");
                    self.events.push_back(Event::Received(sent));
                }
                roce::Event::ReadDone { id } => {
                    let (user, sink, bytes) = self.reads.remove(&id).expect("a Read is done that nobody asked for");
                    assert_eq!(
                        endpoint.deregister(sink).as_deref(),
                        Some(&bytes[..]),
                        "a Read has brought other bytes"
                    );
                    self.events.push_back(Event::ReadDone(user));
                }
                roce::Event::Closed(why) => {
                    self.failed |=
                        !matches!(why, roce::Closed::ByUs | roce::Closed::ByPeer | roce::Closed::Violation(..));
                    self.over = true;
                    self.events.push_back(Event::Closed);
                }
            }
        }
    }
}

impl Transport for Ours {
    fn open(&mut self, now: Time) {
        let (settings, path, numbers) = (self.settings(), self.path(), self.numbers());
        let service = &self.config.service;
        let private = &service.private[frame::CLIENT];
        self.endpoint = Some(Endpoint::connect(now, settings, path, numbers, path.source_port, service.port, private));
    }

    fn post(&mut self, _now: Time, op: Op) {
        let is_open = self.endpoint.as_ref().is_some_and(Endpoint::is_established);
        if !is_open {
            return;
        }
        match &op {
            // the memory of one that is wrong is not there
            Op::Write { memory, data, wrong: None } => {
                self.offer(Memory { length: data.len() as u32, ..*memory }, Offer::Write);
            }
            Op::Read { memory, data, wrong: None, .. } => {
                self.offer(Memory { length: data.len() as u32, ..*memory }, Offer::Read(data.clone()));
            }
            Op::Send { invalidate: Some(key), .. } => {
                self.offer(Memory { key: *key, ..Memory::default() }, Offer::Invalidate);
            }
            _ => {}
        }
        let Some(endpoint) = &mut self.endpoint else { return };
        let posted = match op {
            Op::Send { message, invalidate } => {
                self.common.borrow_mut().messages[self.me].push_back(message.clone());
                endpoint.send(message.bytes(), invalidate, true)
            }
            Op::Write { memory, data, .. } => endpoint.write(memory.key, memory.address, &data, None),
            Op::Read { id, memory, data, .. } => {
                let sink = endpoint.register(vec![0; data.len()], Rights::LOCAL).expect("there is room for a sink");
                let length = data.len() as u32;
                endpoint.read(sink.key, sink.offset, memory.key, memory.address, length).map(|read| {
                    self.reads.insert(read, (id, sink.key, data));
                })
            }
        };
        posted.expect("the connection takes operations");
    }

    fn handle(&mut self, now: Time, packet: &Packet) {
        if self.frozen {
            return;
        }
        let frame = &packet.frame;
        let length = usize::from(u16::from_be_bytes([frame[38], frame[39]])) - 8;
        let Some(datagram) = frame.get(frame::HEADERS..frame::HEADERS + length) else { return };
        if self.endpoint.is_none()
            && let Some((Addressed::Service { .. }, request)) = roce::addressed(datagram).filter(|_| !packet.damaged)
        {
            let (settings, path, numbers) = (self.settings(), self.path(), self.numbers());
            self.endpoint = Endpoint::accept(now, settings, path, numbers, request).ok();
            return;
        }
        self.register();
        let Some(endpoint) = &mut self.endpoint else { return };
        let source_port = u16::from_be_bytes([frame[34], frame[35]]);
        let hidden = Hidden { identification: u16::from_be_bytes([frame[18], frame[19]]), fragmentable: false };
        let header = Header { hidden, tos: frame[15], ttl: frame[22], checksum: 0 };
        let outside = Outside { source_port, congested: frame[15] & 3 == 3, header: Some(header) };
        let is_right = endpoint.handle_outside(now, &outside, datagram).is_some();
        assert!(is_right != packet.damaged, "packet {} is taken, damaged or not: {is_right}", packet.id);
        self.take();
    }

    fn timeout(&mut self, now: Time) {
        if let Some(endpoint) = &mut self.endpoint {
            endpoint.handle_timeout(now);
        }
        self.take();
    }

    fn poll_timeout(&self) -> Option<Time> {
        let endpoint = self.endpoint.as_ref().filter(|_| !self.frozen)?;
        endpoint.poll_timeout()
    }

    fn poll_transmit(&mut self, now: Time) -> Option<Out> {
        if self.frozen {
            return None;
        }
        let endpoint = self.endpoint.as_mut()?;
        let mut datagram = Vec::new();
        let Some(leaving) = endpoint.poll_transmit(now, &mut datagram) else {
            if endpoint.is_held() {
                self.full.begin(now)
            } else {
                self.full.end(now)
            }
            return None;
        };
        self.full.end(now);
        let ip = Ip { tos: leaving.tos, ..self.config.stamp.stamp() };
        self.numbers.renumber(&mut datagram, ip.id);
        // the purpose, as its sender knows it: of the opcode, the syndrome and the number it has just written
        let opcode = Opcode(datagram[0]);
        let psn = u32::from_be_bytes([0, datagram[9], datagram[10], datagram[11]]);
        let class = match opcode {
            Opcode::UD_SEND_ONLY => Class::Manage,
            Opcode::RC_ACKNOWLEDGE if datagram[12] >> 5 & 3 != 0 => Class::Nak,
            Opcode::RC_ACKNOWLEDGE | Opcode::CNP => Class::Ack,
            Opcode::RC_RDMA_READ_RESPONSE_FIRST
            | Opcode::RC_RDMA_READ_RESPONSE_MIDDLE
            | Opcode::RC_RDMA_READ_RESPONSE_LAST
            | Opcode::RC_RDMA_READ_RESPONSE_ONLY => Class::Response,
            _ => Class::Data,
        };
        let highest = match class {
            Class::Data => &mut self.sent[0],
            Class::Response => &mut self.sent[1],
            _ => &mut None,
        };
        let again = is_again(psn, *highest);
        if !again {
            *highest = Some(psn);
        }
        let path = self.path();
        let frame = frame::udp(self.me, ip, path.source_port, &datagram);
        Some(Out { frame, body: Body::Bytes, class, again })
    }

    fn poll_event(&mut self) -> Option<Event> {
        self.events.pop_front()
    }

    fn close(&mut self, now: Time) {
        if self.over {
            return;
        }
        let Some(endpoint) = &mut self.endpoint else { return };
        if self.config.rude && endpoint.is_established() {
            (self.frozen, self.left, self.over) = (true, true, true);
            self.events.push_back(Event::Closed);
        } else {
            endpoint.close(now);
            self.take();
        }
    }

    fn refuse(&mut self, key: u32) {
        self.refuses = Some(key);
        if let Some(endpoint) = &mut self.endpoint {
            endpoint.deregister(key);
        }
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
        self.endpoint.as_ref().is_none_or(Endpoint::is_acknowledged)
    }

    fn recoveries(&self) -> (u64, u64) {
        (0, self.endpoint.as_ref().map_or(0, |endpoint| endpoint.counters().retransmitted))
    }

    fn failed(&self) -> bool {
        self.failed
    }
}
