//! RDMA adapters, and Soft-RoCE, through libibverbs and librdmacm.

mod record;

use self::record::{Card, Known};
use super::driver::CompletionChannel;
use super::{
    Capabilities, Clock, Completions, Ended, Event, Fabric, Handle, Kind, Listener, OpError, Opened, Request, Rights,
    Setup, Time, Transport, Why,
};
use crate::wire::Wire;
use rdmascope_verbs as verbs;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

/// The row of adapters.
pub const KIND: Kind = Kind {
    name: "verbs",
    text: "An RDMA card or Soft-RoCE, through libibverbs and librdmacm",
    port: 445,
    faults_below: false,
    // 56 bytes of the RDMA-CM's REQ on InfiniBand and RoCE (IBA annex A11)
    private_data: 56,
    open: || Ok(Arc::new(Verbs::load().map_err(io::Error::other)?)),
    cases: &[],
    faults: &[],
};

/// Receives posted in addition to the granted credits: for messages before there are any.
const RECEIVES_MORE: u32 = 16;
/// Maximum size of our Sends in bytes if there is no SMB Direct endpoint.
const RAW_SEND_MAX: u32 = 16_384;
/// Maximum number of reads in each direction.
const DEPTH: u8 = 16;

/// Adapters, with options.
#[derive(Clone, Debug)]
pub struct Verbs {
    /// The libraries.
    pub verbs: verbs::Verbs,
    /// Put the read depths of \[MS-SMBD\] 6.1 into the private data, on iWARP.
    pub legacy_depths: bool,
}

impl Verbs {
    /// With the libraries of this system.
    ///
    /// # Errors
    /// If they are not installed.
    pub fn load() -> verbs::Result<Self> {
        Ok(Self::from(verbs::Verbs::load()?))
    }

    /// Options of a connection for SMB Direct.
    fn options(&self, setup: &Setup) -> verbs::Options {
        verbs::Options {
            receives: u32::from(setup.receives) + RECEIVES_MORE,
            receive_size: setup.receive_size,
            sends: 128,
            send_size: setup.send_size.max(RAW_SEND_MAX),
            responder_resources: DEPTH,
            initiator_depth: DEPTH,
            depths_in_private_data: self.legacy_depths,
            watch: setup.wire.is_some(),
        }
    }
}

impl From<verbs::Verbs> for Verbs {
    fn from(verbs: verbs::Verbs) -> Self {
        Self { verbs, legacy_depths: true }
    }
}

impl Fabric for Verbs {
    fn kind(&self) -> &'static Kind {
        &KIND
    }

    fn connect(&self, address: SocketAddr, setup: &Setup) -> io::Result<Opened> {
        let connection = verbs::Connection::connect(self.verbs, address, self.options(setup), setup.timeout)
            .map_err(io::Error::other)?;
        open(connection, setup, true)
    }

    fn listen(&self, address: SocketAddr) -> io::Result<Box<dyn Listener>> {
        let listener = verbs::Listener::bind(self.verbs, address).map_err(io::Error::other)?;
        Ok(Box::new(VerbsListener { options: self.clone(), listener }))
    }
}

/// # Errors
/// If the wire is to be recorded and cannot be: operations of iWARP adapters are not recorded as RoCE packets, and some
/// drivers report too little.
fn open(connection: verbs::Connection, setup: &Setup, initiator: bool) -> io::Result<Opened> {
    let known = setup.wire.as_ref().map(|_| known(&connection, initiator)).transpose()?;
    let record = setup.wire.clone().zip(known).map(|(wire, known)| Card::new(wire, &known, setup.clock.now()));
    let carrier = Carrier { connection, record, clock: setup.clock, reported: false };
    Ok(Opened { transport: Box::new(carrier), driver: Box::new(CompletionChannel) })
}

struct VerbsListener {
    options: Verbs,
    listener: verbs::Listener,
}

impl std::fmt::Debug for VerbsListener {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "VerbsListener({})", self.listener.address())
    }
}

impl Listener for VerbsListener {
    fn address(&self) -> SocketAddr {
        self.listener.address()
    }

    fn next(&mut self, wait: Duration) -> io::Result<Option<Box<dyn Request>>> {
        let request = self.listener.next(wait).map_err(io::Error::other)?;
        Ok(request.map(|request| Box::new(VerbsRequest { options: self.options.clone(), request }) as Box<dyn Request>))
    }
}

struct VerbsRequest {
    options: Verbs,
    request: verbs::Request,
}

impl std::fmt::Debug for VerbsRequest {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "VerbsRequest({})", self.request.peer())
    }
}

impl Request for VerbsRequest {
    fn peer(&self) -> Option<SocketAddr> {
        Some(self.request.peer())
    }

    fn accept(self: Box<Self>, setup: &Setup) -> io::Result<Opened> {
        let options = self.options.options(setup);
        open(self.request.accept(options, setup.timeout).map_err(io::Error::other)?, setup, false)
    }
}

/// First bytes of the record of a connection.
fn known(connection: &verbs::Connection, we_connected: bool) -> io::Result<Known> {
    let refused = |why: String| io::Error::new(io::ErrorKind::Unsupported, why);
    let device = connection.device().to_owned();
    if connection.is_iwarp() {
        return Err(refused(format!(
            "{device} is an iWARP card, which cannot be recorded here: capture on its network interface"
        )));
    }
    let Some(numbers) = connection.numbers() else {
        return Err(refused(format!("{device} does not report its queue pair numbers: capture on the wire")));
    };
    let peer = connection.peer();
    let us = connection.local().unwrap_or_else(|| match peer {
        SocketAddr::V4(_) => (std::net::Ipv4Addr::UNSPECIFIED, 0).into(),
        SocketAddr::V6(_) => (std::net::Ipv6Addr::UNSPECIFIED, 0).into(),
    });
    Ok(Known {
        device,
        numbers,
        addresses: [us, peer],
        depths: [connection.depths(), connection.peer_depths()],
        // on RoCE and InfiniBand we have nothing to add
        private_data: [Vec::new(), connection.private_data().to_vec()],
        we_connected,
    })
}

/// A connection that records its operations.
#[derive(Debug)]
struct Carrier {
    connection: verbs::Connection,
    record: Option<Card>,
    clock: Clock,
    /// True if its user knows that it is established.
    reported: bool,
}

impl From<verbs::Ended> for Ended {
    fn from(ended: verbs::Ended) -> Self {
        let why = match ended {
            verbs::Ended::ByUs => Why::ByUs,
            verbs::Ended::ByPeer => Why::ByPeer,
            _ => Why::Failed,
        };
        Self { why, text: ended.to_string() }
    }
}

fn refused(e: verbs::Error) -> OpError {
    match e {
        verbs::Error::Region(_) => OpError::Sink,
        verbs::Error::TooLong { .. } => OpError::TooLong,
        _ => OpError::NotEstablished,
    }
}

impl Transport for Carrier {
    fn capabilities(&self) -> Capabilities {
        Capabilities {
            remote_invalidation: self.connection.can_be_invalidated(),
            send_max: Some(RAW_SEND_MAX),
            // the pause is for software iWARP
            settle: self.connection.is_iwarp(),
        }
    }

    fn unsent(&self) -> usize {
        self.connection.unsent()
    }

    fn poll_event(&mut self) -> Option<Event> {
        if !self.reported && self.connection.is_established() {
            self.reported = true;
            return Some(Event::Established);
        }
        Some(match self.connection.poll_event()? {
            verbs::Event::Received { message, invalidated } => Event::Received { message, invalidated },
            verbs::Event::ReadDone { id } => Event::ReadDone { id },
            verbs::Event::Closed(ended) => Event::Closed(ended.into()),
        })
    }

    fn completions(&mut self) -> Option<&mut dyn Completions> {
        Some(self)
    }

    fn is_established(&self) -> bool {
        self.connection.is_established()
    }

    fn register(&mut self, data: Vec<u8>, rights: Rights) -> Option<Handle> {
        let region = self.connection.register(data, verbs::Rights { read: rights.read, write: rights.write }).ok()?;
        Some(Handle { key: region.key, offset: region.offset, length: region.length })
    }

    fn deregister(&mut self, key: u32) -> Option<Vec<u8>> {
        self.connection.deregister(key)
    }

    fn send(&mut self, message: &[u8], invalidate: Option<u32>, solicited: bool) -> Result<(), OpError> {
        self.connection.send(message, invalidate, solicited).map_err(refused)
    }

    fn write(&mut self, key: u32, offset: u64, data: &[u8]) -> Result<(), OpError> {
        self.connection.write(key, offset, data.to_vec()).map_err(refused)
    }

    fn read(
        &mut self,
        sink: u32,
        sink_offset: u64,
        source: u32,
        source_offset: u64,
        length: u32,
    ) -> Result<u64, OpError> {
        if self.connection.depths().1 == 0 {
            return Err(OpError::NoReads);
        }
        self.connection.read(sink, sink_offset, source, source_offset, length).map_err(refused)
    }

    fn close(&mut self) {
        self.connection.close();
    }

    fn record_progress(&mut self, idle: bool) {
        let Some(record) = &mut self.record else { return };
        while let Some(operation) = self.connection.poll_operation() {
            record.hold(self.clock.at(operation.at), operation.what);
        }
        if idle {
            record.release();
        }
    }

    fn record_granted(&mut self, id: u64, memory: &[Handle]) {
        if let Some(record) = &mut self.record {
            record.granted(id, memory);
        }
    }

    fn record_reply(&mut self, now: Time, reply: &[u8]) {
        if let Some(record) = &mut self.record {
            record.answered(now, reply, |key, length| self.connection.peek(key, length));
        }
    }

    fn record_flush(&self) {
        if let Some(record) = &self.record {
            record.wire.push();
        }
    }

    fn record_end(&mut self, now: Time) -> Option<Wire> {
        self.record_progress(false);
        let mut record = self.record.take()?;
        record.closed(now);
        Some(record.wire.clone())
    }
}

impl Completions for Carrier {
    fn progress(&mut self) -> io::Result<bool> {
        self.connection.progress().map_err(io::Error::other)
    }

    fn wait(&mut self, at_most: Duration) -> io::Result<()> {
        self.connection.wait(at_most).map_err(io::Error::other)
    }

    fn is_busy(&self) -> bool {
        self.connection.is_busy()
    }
}
