//! RoCEv2 in user space as a transport: the row's fabric, and a connection that keeps its own wire.

use super::packet::{Check, Hidden, Outside, Path};
use super::record::Packets;
use super::udp::{Arrived, Mailbox, UdpDriver, UdpPort, answer, path_mtu};
use super::{Closed, Config, Endpoint, Event, Leaving, Numbers, addressed, fault};
use crate::transport::memory::{Handle, Rights};
use crate::transport::packet_fault::PacketFault;
use crate::transport::{
    self, Capabilities, Datagrams, Ended, Fabric, Fault, Kind, Listener, OpError, Opened, Request, Setup, StartupFault,
    Time, Transport, Why,
};
use crate::wire::Wire;
use rdmascope_dissector::wire::ib::cm::RejectReason;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// RoCEv2 in user space, with its options.
#[derive(Clone, Debug, Default)]
pub struct Roce {
    /// Configuration of connections, except for the path MTU.
    pub config: Config,
    /// The path MTU; `None` for the largest that the interface supports.
    pub path_mtu: Option<u16>,
}

impl Roce {
    fn config(&self, setup: &Setup, local: IpAddr, remote: IpAddr) -> Config {
        Config {
            path_mtu: self.path_mtu.unwrap_or_else(|| path_mtu(local, remote)),
            receives: u32::from(setup.receives) + 16,
            receive_max: setup.receive_size.max(self.config.receive_max),
            acted: setup.acted.clone(),
            ..self.config.clone()
        }
    }
}

/// New numbers, and random bytes for a port.
fn random() -> io::Result<(Numbers, u16)> {
    let mut bytes = [0; 14];
    getrandom::fill(&mut bytes).map_err(io::Error::other)?;
    let [a, b, numbers @ ..] = bytes;
    Ok((Numbers::of(numbers), u16::from_le_bytes([a, b])))
}

impl Fabric for Roce {
    fn kind(&self) -> &'static Kind {
        &super::KIND
    }

    fn connect(&self, address: SocketAddr, setup: &Setup) -> io::Result<Opened> {
        let remote = address.ip().to_canonical();
        let port = UdpPort::towards(remote)?;
        let local = port.address();
        let (numbers, random) = random()?;
        let mut driver = UdpDriver::new(port, local, remote, numbers)?;
        let path = Path { local, remote, source_port: driver.source_port() };
        let now = setup.clock.now();
        let local_port = 0x8000 | random;
        let endpoint =
            Endpoint::connect(now, self.config(setup, local, remote), path, numbers, local_port, address.port(), &[]);
        let mut carrier = Carrier::new(endpoint, now);
        carrier.keep(setup.wire.clone());
        driver.set_addresses(SocketAddr::new(local, local_port), address);
        // no answer at all is an error at once, as with TCP
        let until = Instant::now() + setup.timeout;
        while carrier.endpoint.is_connecting() {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(io::Error::new(
                    io::ErrorKind::TimedOut,
                    format!("no answer from a communication manager at {address}"),
                ));
            }
            driver.round(&setup.clock, &mut carrier, left)?;
        }
        if let Some(Event::Closed(Closed::Rejected(reason))) = carrier.endpoint.events.front() {
            let unknown = matches!(*reason, RejectReason::INVALID_SERVICE_ID);
            if unknown {
                return Err(io::Error::new(
                    io::ErrorKind::ConnectionRefused,
                    format!("nothing listens on port {}", address.port()),
                ));
            }
        }
        Ok(Opened { transport: Box::new(carrier), driver: Box::new(driver) })
    }

    fn listen(&self, address: SocketAddr) -> io::Result<Box<dyn Listener>> {
        let port = UdpPort::open(address.ip().to_canonical())?;
        let mailbox = Mailbox::new()?;
        let mut service = address.port();
        while service == 0 || !port.listen(service, &mailbox) {
            if address.port() != 0 {
                return Err(io::Error::new(io::ErrorKind::AddrInUse, format!("port {service} is listened on already")));
            }
            service = 0x8000 | random()?.1;
        }
        let address = SocketAddr::new(port.address(), service);
        Ok(Box::new(RoceListener { options: self.clone(), port, mailbox, address }))
    }

    fn with_packet_fault(&self, fault: PacketFault, seed: u64) -> Option<Arc<dyn Fabric>> {
        let config = Config { fault: Some((fault, seed)), ..self.config.clone() };
        fault::is_ours(fault).then(|| -> Arc<dyn Fabric> { Arc::new(Self { config, ..self.clone() }) })
    }

    fn with_class(&self, dscp: Option<u8>, ecn: bool) -> Option<Arc<dyn Fabric>> {
        let config = Config { dscp: dscp.map_or(self.config.dscp, |dscp| dscp & 0x3f), ecn, ..self.config.clone() };
        Some(Arc::new(Self { config, ..self.clone() }))
    }
}

#[derive(Debug)]
struct RoceListener {
    options: Roce,
    port: Arc<UdpPort>,
    mailbox: Arc<Mailbox>,
    address: SocketAddr,
}

impl Drop for RoceListener {
    fn drop(&mut self) {
        self.port.forget(self.address.port());
    }
}

impl Listener for RoceListener {
    fn address(&self) -> SocketAddr {
        self.address
    }

    fn next(&mut self, wait: Duration) -> io::Result<Option<Box<dyn Request>>> {
        let until = Instant::now() + wait;
        loop {
            while let Some(arrived) = self.mailbox.take() {
                let checked = Check::default().received(
                    arrived.remote,
                    arrived.local,
                    arrived.outside.source_port,
                    &arrived.bytes,
                );
                let Some(hidden) = checked else { continue };
                let Some((super::Addressed::Service { comm_id, source_port, .. }, mad)) = addressed(&arrived.bytes)
                else {
                    continue;
                };
                if !self.port.begin(arrived.remote, comm_id) {
                    continue;
                }
                let peer = SocketAddr::new(arrived.remote, source_port.unwrap_or(0));
                let mad = mad.to_vec();
                let (options, port, service) = (self.options.clone(), self.port.clone(), self.address.port());
                return Ok(Some(Box::new(RoceRequest {
                    options,
                    port,
                    local: arrived.local,
                    peer,
                    comm_id,
                    service,
                    mad,
                    arrived,
                    hidden,
                    done: false,
                })));
            }
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Ok(None);
            }
            if !self.port.receive()? {
                self.port.wait(&self.mailbox, left)?;
            }
        }
    }
}

/// A REQ that was not answered yet.
#[derive(Debug)]
struct RoceRequest {
    options: Roce,
    port: Arc<UdpPort>,
    local: IpAddr,
    peer: SocketAddr,
    comm_id: u32,
    service: u16,
    mad: Vec<u8>,
    /// The datagram, with the hidden fields of its IP header.
    arrived: Arrived,
    hidden: Hidden,
    done: bool,
}

impl RoceRequest {
    /// Refuses it, and records the request and our answer.
    fn reject(&mut self, reason: RejectReason, setup: Option<&Setup>) -> io::Result<()> {
        self.done = true;
        let reject = |path: &Path| {
            let rejection = Endpoint::rejection(path, &self.mad, reason);
            if let Some(setup) = setup
                && let Some(wire) = setup.wire.clone()
            {
                let (record, now) = (Packets::new(wire, path.local, path.remote, 0), setup.clock.now());
                record.received(now, &self.arrived.outside, self.hidden, &self.arrived.bytes);
                record.sent(now, path.source_port, 0, &rejection);
                record.wire.push();
            }
            Some(rejection)
        };
        let done = answer(self.local, self.peer.ip(), reject);
        self.port.end(self.peer.ip(), self.comm_id);
        done
    }
}

impl Drop for RoceRequest {
    fn drop(&mut self) {
        if !self.done {
            // nobody accepted it
            let _ = self.reject(RejectReason::NO_RESOURCES, None);
        }
    }
}

impl Request for RoceRequest {
    fn peer(&self) -> Option<SocketAddr> {
        Some(self.peer)
    }

    fn accept(mut self: Box<Self>, setup: &Setup) -> io::Result<Opened> {
        let (local, remote) = (self.local, self.peer.ip());
        let (numbers, _) = random()?;
        let mut driver = UdpDriver::new(self.port.clone(), local, remote, numbers)?;
        let path = Path { local, remote, source_port: driver.source_port() };
        let now = setup.clock.now();
        let endpoint = match Endpoint::accept(now, self.options.config(setup, local, remote), path, numbers, &self.mad)
        {
            Ok(endpoint) => endpoint,
            Err(reason) => {
                self.reject(reason, Some(setup))?;
                let why = reason.name().unwrap_or("reserved");
                return Err(io::Error::other(format!("a connection request was refused: {why}")));
            }
        };
        self.done = true;
        driver.answers(remote, self.comm_id);
        driver.set_addresses(SocketAddr::new(local, self.service), self.peer);
        let mut carrier = Carrier::new(endpoint, now);
        carrier.keep(setup.wire.clone());
        if let Some(record) = &carrier.record {
            record.received(now, &self.arrived.outside, self.hidden, &self.arrived.bytes);
        }
        Ok(Opened { transport: Box::new(carrier), driver: Box::new(driver) })
    }

    fn fault(mut self: Box<Self>, fault: StartupFault, setup: &Setup) -> io::Result<()> {
        match fault {
            StartupFault::Reject => self.reject(RejectReason::CONSUMER, Some(setup)),
            StartupFault::Silent | StartupFault::OtherProtocol => {
                self.done = true;
                self.port.forsake(self.peer.ip(), self.comm_id)?;
                if fault == StartupFault::OtherProtocol {
                    answer(self.local, self.peer.ip(), |_| Some(b"HTTP/1.1 400 Bad Request\r\n\r\n".to_vec()))?;
                }
                // the peer repeats its request and gets no answer
                std::thread::sleep(SILENCE);
                self.port.end(self.peer.ip(), self.comm_id);
                Ok(())
            }
        }
    }
}

/// Time that a connection request is left without an answer.
const SILENCE: Duration = Duration::from_secs(60);

/// A connection that keeps its own wire.
#[derive(Debug)]
pub struct Carrier {
    endpoint: Endpoint,
    record: Option<Packets>,
    /// The last time that was reported.
    now: Time,
}

impl Carrier {
    /// Around an end of a connection, whose wire is not kept.
    pub fn new(endpoint: Endpoint, now: Time) -> Self {
        Self { endpoint, record: None, now }
    }

    /// The connection.
    pub fn endpoint(&mut self) -> &mut Endpoint {
        &mut self.endpoint
    }

    fn keep(&mut self, wire: Option<Wire>) {
        let path = self.endpoint.path();
        self.record = wire.map(|wire| Packets::new(wire, path.local, path.remote, self.endpoint.tos()));
    }
}

impl From<Closed> for Ended {
    fn from(closed: Closed) -> Self {
        let why = match closed {
            Closed::ByUs => Why::ByUs,
            Closed::ByPeer => Why::ByPeer,
            Closed::Rejected(_) => Why::Rejected,
            Closed::Refused(_) => Why::Accused,
            Closed::NoAnswer
            | Closed::BadAnswer(_)
            | Closed::Retries
            | Closed::RnrRetries
            | Closed::Violation(..)
            | Closed::BadResponse(_) => Why::Failed,
        };
        Self { why, text: closed.to_string() }
    }
}

impl Datagrams for Carrier {
    fn handle_datagram(&mut self, now: Time, outside: &Outside, datagram: &[u8]) {
        self.now = now;
        let hidden = self.endpoint.handle_outside(now, outside, datagram);
        if let Some(record) = &self.record {
            record.received(now, outside, hidden.unwrap_or_default(), datagram);
        }
    }

    fn poll_datagram(&mut self, now: Time, out: &mut Vec<u8>) -> Option<Leaving> {
        self.now = now;
        self.endpoint.poll_transmit(now, out)
    }

    fn datagram_sent(&mut self, now: Time, tos: u8, datagram: &[u8]) {
        if let Some(record) = &self.record {
            record.sent(now, self.endpoint.path().source_port, tos, datagram);
        }
    }

    fn is_over(&self) -> bool {
        self.endpoint.is_over()
    }
}

impl Transport for Carrier {
    fn capabilities(&self) -> Capabilities {
        Capabilities { remote_invalidation: true, send_max: None, settle: false }
    }

    fn handle_timeout(&mut self, now: Time) {
        self.now = now;
        self.endpoint.handle_timeout(now);
    }

    fn poll_timeout(&self) -> Option<Time> {
        self.endpoint.poll_timeout()
    }

    fn unsent(&self) -> usize {
        self.endpoint.unsent()
    }

    fn poll_event(&mut self) -> Option<transport::Event> {
        Some(match self.endpoint.poll_event()? {
            Event::Established { .. } => transport::Event::Established,
            Event::Received { message, invalidated, .. } => transport::Event::Received { message, invalidated },
            Event::ReadDone { id } => transport::Event::ReadDone { id },
            Event::Closed(closed) => transport::Event::Closed(closed.into()),
        })
    }

    fn datagrams(&mut self) -> Option<&mut dyn Datagrams> {
        Some(self)
    }

    fn is_established(&self) -> bool {
        self.endpoint.is_established()
    }

    fn register(&mut self, data: Vec<u8>, rights: Rights) -> Option<Handle> {
        self.endpoint.register(data, rights)
    }

    fn deregister(&mut self, key: u32) -> Option<Vec<u8>> {
        self.endpoint.deregister(key)
    }

    fn written(&self, key: u32) -> Option<u64> {
        Some(self.endpoint.memory().written(key))
    }

    fn send(&mut self, message: &[u8], invalidate: Option<u32>, solicited: bool) -> Result<(), OpError> {
        self.endpoint.send(message, invalidate, solicited)
    }

    fn write(&mut self, key: u32, offset: u64, data: &[u8]) -> Result<(), OpError> {
        self.endpoint.write(key, offset, data, None)
    }

    fn read(
        &mut self,
        sink: u32,
        sink_offset: u64,
        source: u32,
        source_offset: u64,
        length: u32,
    ) -> Result<u64, OpError> {
        self.endpoint.read(sink, sink_offset, source, source_offset, length)
    }

    fn close(&mut self) {
        self.endpoint.close(self.now);
    }

    fn fault(&mut self, _fault: Fault) -> bool {
        false
    }

    fn record_flush(&self) {
        if let Some(record) = &self.record {
            record.wire.push();
        }
    }

    fn record_end(&mut self, _now: Time) -> Option<Wire> {
        self.record.take().map(|record| record.wire)
    }
}
