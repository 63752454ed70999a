//! iWARP in user space as a transport: the row, and a connection that keeps its own wire.

use super::memory::{Handle, Rights};
use super::record::Stream;
use super::{Closed, Config, Endpoint, Event};
use crate::transport::driver::{Accepted, Passed, TcpAcceptor, TcpDriver};
use crate::transport::{
    self, Capabilities, Ended, Fabric, Fault, Kind, Listener, OpError, Opened, Request, Setup, StartupFault, Time,
    Transport, Why,
};
use crate::wire::Wire;
use rdmascope_dissector::wire::iwarp::ddp::{self, Buffer, Ddp, Untagged};
use rdmascope_dissector::wire::iwarp::rdmap::Opcode;
use std::io;
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::time::Duration;

/// iWARP in user space, with its options.
#[derive(Clone, Debug, Default)]
pub struct Iwarp(pub Config);

impl Iwarp {
    /// Options that work with Linux's software iWARP (`siw`) and with all others: no CRC unless the peer asks for it.
    /// If a TCP segment ends in the middle of a CRC, the siw of Linux 6.12 forgets how much of the CRC it has, finds it
    /// wrong, and ends the connection. A sender of more than one segment cannot avoid that.
    pub fn for_soft_iwarp() -> Self {
        Self(Config { crc: false, ..Config::default() })
    }

    fn open(&self, stream: TcpStream, initiator: bool, setup: &Setup) -> io::Result<Opened> {
        let now = setup.clock.now();
        let config = Config { receive_max: setup.receive_size.max(self.0.receive_max), ..self.0.clone() };
        let mut carrier =
            Carrier::new(if initiator { Endpoint::initiator(now, config) } else { Endpoint::responder(now, config) });
        if let Some(wire) = setup.wire.clone() {
            carrier.record = Some(Stream::new(wire, stream.local_addr()?, stream.peer_addr()?, initiator, now));
        }
        Ok(Opened { transport: Box::new(carrier), driver: Box::new(TcpDriver::new(stream)?) })
    }
}

impl Fabric for Iwarp {
    fn kind(&self) -> &'static Kind {
        &super::KIND
    }

    fn connect(&self, address: SocketAddr, setup: &Setup) -> io::Result<Opened> {
        self.open(TcpStream::connect_timeout(&address, setup.timeout)?, true, setup)
    }

    fn listen(&self, address: SocketAddr) -> io::Result<Box<dyn Listener>> {
        Ok(Box::new(IwarpListener { options: self.clone(), acceptor: TcpAcceptor::bind(address)? }))
    }

    fn with_checksums(&self) -> Option<Arc<dyn Fabric>> {
        Some(Arc::new(Self(Config { crc: true, ..self.0.clone() })))
    }
}

#[derive(Debug)]
struct IwarpListener {
    options: Iwarp,
    acceptor: TcpAcceptor,
}

impl Listener for IwarpListener {
    fn address(&self) -> SocketAddr {
        self.acceptor.address()
    }

    fn next(&mut self, wait: Duration) -> io::Result<Option<Box<dyn Request>>> {
        let accepted = self.acceptor.next(wait)?;
        Ok(accepted
            .map(|accepted| Box::new(IwarpRequest { options: self.options.clone(), accepted }) as Box<dyn Request>))
    }
}

#[derive(Debug)]
struct IwarpRequest {
    options: Iwarp,
    accepted: Accepted,
}

impl Request for IwarpRequest {
    fn peer(&self) -> Option<SocketAddr> {
        Some(self.accepted.peer)
    }

    fn accept(self: Box<Self>, setup: &Setup) -> io::Result<Opened> {
        self.options.open(self.accepted.stream, false, setup)
    }

    fn fault(self: Box<Self>, fault: StartupFault, setup: &Setup) -> io::Result<()> {
        let answer: &[u8] = match fault {
            StartupFault::Silent => b"",
            // an MPA Reply, revision 1, with the reject bit
            StartupFault::Reject => b"MPA ID Rep Frame\x20\x01\0\0",
            StartupFault::OtherProtocol => b"HTTP/1.1 400 Bad Request\r\n\r\n",
        };
        let (clock, stream) = (&setup.clock, &self.accepted.stream);
        let mut record = match setup.wire.clone() {
            Some(wire) => Some(Stream::new(wire, stream.local_addr()?, stream.peer_addr()?, false, clock.now())),
            None => None,
        };
        let mut kept = |passed: Passed<'_>| {
            let Some(record) = &mut record else { return };
            match passed {
                Passed::Sent(bytes) => record.sent(clock.now(), bytes),
                Passed::Received(bytes) => record.received(clock.now(), bytes),
                Passed::Closed { by_us } => record.closed(clock.now(), by_us),
            }
        };
        let done = self.accepted.answer_with(answer, &mut kept);
        if let Some(record) = record {
            record.wire.push();
        }
        done
    }
}

/// A connection that keeps its own wire.
#[derive(Debug)]
pub struct Carrier {
    connection: Endpoint,
    record: Option<Stream>,
}

impl Carrier {
    /// Around a connection, whose wire is not kept.
    pub fn new(connection: Endpoint) -> Self {
        Self { connection, record: None }
    }

    /// The connection, for tests that send arbitrary data.
    pub fn connection(&mut self) -> &mut Endpoint {
        &mut self.connection
    }
}

impl From<Closed> for Ended {
    fn from(closed: Closed) -> Self {
        let why = match closed {
            Closed::ByUs => Why::ByUs,
            Closed::ByPeer => Why::ByPeer,
            Closed::Rejected => Why::Rejected,
            Closed::Terminated(_) => Why::Accused,
            Closed::Cut | Closed::NotMpa(_) | Closed::Timeout | Closed::Violation(_) => Why::Failed,
        };
        Self { why, text: closed.to_string() }
    }
}

impl Transport for Carrier {
    fn capabilities(&self) -> Capabilities {
        Capabilities { remote_invalidation: true, send_max: None, settle: true }
    }

    fn handle_bytes(&mut self, now: Time, bytes: &[u8]) {
        if let Some(record) = &mut self.record {
            record.received(now, bytes);
        }
        self.connection.handle_bytes(now, bytes);
    }

    fn handle_eof(&mut self, now: Time) {
        if let Some(record) = &mut self.record {
            record.closed(now, false);
        }
        self.connection.handle_eof(now);
    }

    fn handle_timeout(&mut self, now: Time) {
        self.connection.handle_timeout(now);
    }

    fn poll_timeout(&self) -> Option<Time> {
        self.connection.poll_timeout()
    }

    fn poll_transmit(&mut self) -> Option<Vec<u8>> {
        self.connection.poll_transmit()
    }

    fn unsent(&self) -> usize {
        self.connection.unsent()
    }

    fn poll_event(&mut self) -> Option<transport::Event> {
        Some(match self.connection.poll_event()? {
            Event::Established { .. } => transport::Event::Established,
            Event::Received { message, invalidated } => transport::Event::Received { message, invalidated },
            Event::ReadDone { id } => transport::Event::ReadDone { id },
            Event::Closed(closed) => transport::Event::Closed(closed.into()),
        })
    }

    fn is_established(&self) -> bool {
        self.connection.is_established()
    }

    fn register(&mut self, data: Vec<u8>, rights: Rights) -> Option<Handle> {
        self.connection.register(data, rights)
    }

    fn deregister(&mut self, key: u32) -> Option<Vec<u8>> {
        self.connection.deregister(key)
    }

    fn written(&self, key: u32) -> Option<u64> {
        Some(self.connection.memory().written(key))
    }

    fn send(&mut self, message: &[u8], invalidate: Option<u32>, solicited: bool) -> Result<(), OpError> {
        self.connection.send(message, invalidate, solicited)
    }

    fn write(&mut self, key: u32, offset: u64, data: &[u8]) -> Result<(), OpError> {
        self.connection.write(key, offset, data)
    }

    fn read(
        &mut self,
        sink: u32,
        sink_offset: u64,
        source: u32,
        source_offset: u64,
        length: u32,
    ) -> Result<u64, OpError> {
        self.connection.read(sink, sink_offset, source, source_offset, length)
    }

    fn close(&mut self) {
        self.connection.close();
    }

    fn fault(&mut self, fault: Fault) -> bool {
        match fault {
            // the length of an FPDU of 200 bytes, and four of them
            Fault::Part => self.connection.transmit_bytes(&[0, 200, 0x41, 0x43, 0, 0]),
            Fault::Garbage => self.connection.transmit_bytes(&[0xa5; 50_000]),
            Fault::BadChecksum => {
                // 18 bytes of an untagged header, and a CRC that is none
                let mut fpdu = vec![0, 18, 0x41, 0x43];
                fpdu.resize(24, 0xee);
                self.connection.transmit_bytes(&fpdu);
            }
            Fault::WrongSequence => {
                let buffer = Buffer::Untagged(Untagged { queue: 0, msn: 0x7fff_ffff, offset: 0 });
                self.connection.transmit_segment(&segment(Opcode::SEND, buffer, true, &[0; 20]));
            }
        }
        true
    }

    fn record_sent(&mut self, now: Time, bytes: &[u8]) {
        if let Some(record) = &mut self.record {
            record.sent(now, bytes);
        }
    }

    fn record_closed(&mut self, now: Time) {
        if let Some(record) = &mut self.record {
            record.closed(now, true);
        }
    }

    fn record_flush(&self) {
        if let Some(record) = &self.record {
            record.wire.push();
        }
    }

    fn record_end(&mut self, now: Time) -> Option<Wire> {
        let mut record = self.record.take()?;
        record.closed(now, true);
        Some(record.wire)
    }
}

/// A DDP segment of RDMAP (RFC 5041 4, RFC 5040 4.1), last of its message or not.
pub(crate) fn segment(opcode: Opcode, buffer: Buffer, last: bool, payload: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::new();
    let tagged = if matches!(buffer, Buffer::Tagged(_)) { 0x80 } else { 0 };
    let control = ddp::Control { flags: 0x01 | tagged | if last { 0x40 } else { 0 } };
    Ddp { control, ulp: 0x40 | opcode.0, ulp_word: 0, buffer, payload }.emit(&mut bytes);
    bytes
}
