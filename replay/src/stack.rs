//! SMB Direct over a transport: [`Stack`] combines the two, without a socket and without a clock; [`SmbDirect`] is a
//! stack with its driver.

use crate::smbd::{self, Endpoint, Failure};
use crate::transport::packet_fault::Tally;
use crate::transport::{
    self, Clock, Driver, Ended, Fabric, Handle, OpError, Opened, Request, Rights, Setup, Time, Transport,
};
use crate::wire::Wire;
use std::collections::VecDeque;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};
use thiserror::Error;

/// Configuration of a connection.
#[derive(Clone, Debug)]
pub struct Config {
    /// SMB Direct.
    pub smbd: smbd::Config,
    /// The transport.
    pub transport: Arc<dyn Fabric>,
    /// Capture file in which the connection is recorded.
    pub wire: Option<Wire>,
    /// Counts what a fault did.
    pub acted: Tally,
}

impl Default for Config {
    /// Over the transport that needs no hardware.
    fn default() -> Self {
        Self {
            smbd: smbd::Config::default(),
            transport: transport::without_hardware(),
            wire: None,
            acted: Tally::default(),
        }
    }
}

impl Config {
    /// Over this transport, all else as usual.
    pub fn over(transport: impl Fabric) -> Self {
        Self { smbd: smbd::Config::default(), transport: Arc::new(transport), wire: None, acted: Tally::default() }
    }

    /// With the pause that a software transport at the other end needs ([`smbd::SETTLE`]).
    pub fn patient(transport: Arc<dyn Fabric>) -> Self {
        let smbd = smbd::Config { settle: smbd::SETTLE, ..smbd::Config::default() };
        Self { smbd, transport, wire: None, acted: Tally::default() }
    }

    pub(crate) fn setup(&self, timeout: Duration) -> Setup {
        Setup {
            receives: self.smbd.receive_credits,
            receive_size: self.smbd.max_receive_size,
            send_size: self.smbd.max_send_size,
            timeout,
            wire: self.wire.clone(),
            acted: self.acted.clone(),
            clock: Clock::start(),
        }
    }
}

/// Reason for which a connection ended.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum EndReason {
    /// Below SMB Direct.
    #[error("{0}")]
    Transport(#[from] Ended),
    /// SMB Direct gave up.
    #[error("{0}")]
    SmbDirect(#[from] Failure),
}

/// An event of a stack.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// MPA is through.
    Connected,
    /// SMB2 messages may be sent.
    Established,
    /// A whole SMB2 message, and our key that it invalidated.
    Message {
        /// Its bytes.
        bytes: Vec<u8>,
        /// The key.
        invalidated: Option<u32>,
    },
    /// A received Send, if there is no SMB Direct endpoint (see [`Stack::raw`]).
    Raw(Vec<u8>),
    /// One of our RDMA Reads is complete.
    ReadDone {
        /// Result of [`Stack::read`].
        id: u64,
    },
    /// The connection ended, for this reason.
    Closed(EndReason),
}

/// A transport and SMB Direct of one end.
#[derive(Debug)]
pub struct Stack {
    transport: Box<dyn Transport>,
    smbd: Option<Endpoint>,
    initiator: bool,
    config: smbd::Config,
    events: VecDeque<Event>,
    /// Bytes of messages in `events`.
    unread: usize,
    raw: bool,
    /// SMB Direct gave up, and its last words are still to go.
    failing: Option<EndReason>,
    over: bool,
    end: Option<EndReason>,
}

impl Stack {
    /// One end of a new connection; `initiator` is true if we connected.
    pub fn new(config: smbd::Config, transport: Box<dyn Transport>, initiator: bool) -> Self {
        Self {
            transport,
            smbd: None,
            initiator,
            config,
            events: VecDeque::new(),
            unread: 0,
            raw: false,
            failing: None,
            over: false,
            end: None,
        }
    }

    /// One that leaves SMB Direct to its user: Sends come as [`Event::Raw`] and go with [`Stack::send_raw`].
    pub fn raw(config: smbd::Config, transport: Box<dyn Transport>, initiator: bool) -> Self {
        Self { raw: true, ..Self::new(config, transport, initiator) }
    }

    /// The SMB Direct endpoint, if there is one yet.
    pub fn smbd(&self) -> Option<&Endpoint> {
        self.smbd.as_ref()
    }

    /// The same, to be changed.
    pub fn smbd_mut(&mut self) -> Option<&mut Endpoint> {
        self.smbd.as_mut()
    }

    /// The connection below.
    pub fn transport(&mut self) -> &mut dyn Transport {
        &mut *self.transport
    }

    /// Number of our bytes that are still to be sent: by SMB Direct, which may lack credits, and by the transport.
    pub fn unsent(&self) -> usize {
        self.smbd.as_ref().map_or(0, Endpoint::queued) + self.transport.unsent()
    }

    /// The reason for which it ended; `None` while it is open.
    pub fn end(&self) -> Option<&EndReason> {
        self.end.as_ref()
    }

    /// True if nothing more will happen.
    pub fn is_over(&self) -> bool {
        self.over
    }

    /// Takes bytes of the stream.
    pub fn handle_bytes(&mut self, now: Time, bytes: &[u8]) {
        self.transport.handle_bytes(now, bytes);
        self.turn(now);
    }

    /// The stream ended.
    pub fn handle_eof(&mut self, now: Time) {
        self.transport.handle_eof(now);
        self.turn(now);
    }

    /// Time has passed.
    pub fn handle_timeout(&mut self, now: Time) {
        self.transport.handle_timeout(now);
        if let Some(smbd) = &mut self.smbd {
            smbd.handle_timeout(now);
        }
        self.turn(now);
    }

    /// The time at which [`Stack::handle_timeout`] must be called.
    pub fn poll_timeout(&self) -> Option<Time> {
        let smbd = self.smbd.as_ref().and_then(Endpoint::poll_timeout);
        [self.transport.poll_timeout(), smbd].into_iter().flatten().min()
    }

    /// The next bytes for the stream.
    pub fn poll_transmit(&mut self, now: Time) -> Option<Vec<u8>> {
        self.turn(now);
        self.transport.poll_transmit()
    }

    /// The next event, oldest first; `None` if there is none.
    pub fn poll_event(&mut self) -> Option<Event> {
        let event = self.events.pop_front();
        if let Some(Event::Message { bytes, .. }) = &event {
            self.unread -= bytes.len();
        }
        event
    }

    fn has_events(&self) -> bool {
        !self.events.is_empty()
    }

    /// Sends an SMB2 message.
    ///
    /// # Errors
    /// If it is longer than the peer reassembles, or the connection is not established.
    pub fn send(&mut self, now: Time, message: Vec<u8>, invalidate: Option<u32>) -> Result<(), EndReason> {
        let smbd = self.smbd.as_mut().ok_or_else(not_established)?;
        smbd.send(now, message, invalidate)?;
        self.turn(now);
        Ok(())
    }

    /// Sends a message unchanged. With an SMB Direct endpoint, the rulebook sees it.
    pub fn send_raw(&mut self, now: Time, message: Vec<u8>) {
        match &mut self.smbd {
            Some(smbd) => smbd.transmit_raw(now, message),
            // the error is that of a connection that is over, which is reported to its user
            None => drop(self.transport.send(&message, None, false)),
        }
        self.turn(now);
    }

    /// See [`Transport::register`].
    pub fn register(&mut self, data: Vec<u8>, rights: Rights) -> Option<Handle> {
        self.transport.register(data, rights)
    }

    /// See [`Transport::deregister`].
    pub fn deregister(&mut self, key: u32) -> Option<Vec<u8>> {
        self.transport.deregister(key)
    }

    /// See [`Transport::write`].
    ///
    /// # Errors
    /// If the connection is not established.
    pub fn write(&mut self, key: u32, offset: u64, data: &[u8]) -> Result<(), OpError> {
        self.transport.write(key, offset, data)
    }

    /// See [`Transport::read`].
    ///
    /// # Errors
    /// See [`OpError`].
    pub fn read(&mut self, sink: Handle, at: u64, source: u32, offset: u64, length: u32) -> Result<u64, OpError> {
        self.transport.read(sink.key, sink.offset + at, source, offset, length)
    }

    /// Closes in order.
    pub fn close(&mut self) {
        self.transport.close();
    }

    /// Passes events and output between the two.
    fn turn(&mut self, now: Time) {
        while let Some(event) = self.transport.poll_event() {
            match event {
                transport::Event::Established => self.connected(now),
                transport::Event::Received { message, invalidated } => match &mut self.smbd {
                    Some(smbd) => {
                        smbd.handle_message(now, &message);
                        self.take(invalidated);
                    }
                    None => self.events.push_back(Event::Raw(message)),
                },
                transport::Event::ReadDone { id } => self.events.push_back(Event::ReadDone { id }),
                transport::Event::Closed(why) => self.ended(why.into()),
            }
        }
        self.take(None);
        while self.transport.is_established()
            && let Some(smbd) = &mut self.smbd
            && let Some(next) = smbd.poll_transmit(now)
        {
            // established: it cannot fail
            let _ = self.transport.send(&next.message, next.invalidate, false);
        }
        if !self.smbd.as_ref().is_some_and(Endpoint::has_output)
            && let Some(why) = self.failing.take()
        {
            self.ended(why);
        }
        if self.over && self.transport.is_established() {
            self.transport.close();
        }
    }

    fn connected(&mut self, now: Time) {
        if !self.raw {
            let make = if self.initiator { Endpoint::initiator } else { Endpoint::acceptor };
            let settle = if self.transport.capabilities().settle { self.config.settle } else { 0 };
            self.smbd = Some(make(now, smbd::Config { settle, ..self.config }));
        }
        self.events.push_back(Event::Connected);
    }

    fn take(&mut self, invalidated: Option<u32>) {
        let Some(smbd) = &mut self.smbd else { return };
        let mut failed = None;
        while let Some(event) = smbd.poll_event() {
            match event {
                smbd::Event::Established => self.events.push_back(Event::Established),
                smbd::Event::Message(bytes) => {
                    self.unread += bytes.len();
                    self.events.push_back(Event::Message { bytes, invalidated });
                }
                smbd::Event::Failed(why) => failed = Some(why),
            }
        }
        if let Some(why) = failed {
            self.failing.get_or_insert(why.into());
        }
    }

    fn ended(&mut self, why: EndReason) {
        if !self.over {
            self.over = true;
            self.end = Some(why.clone());
            self.events.push_back(Event::Closed(why));
        }
    }
}

/// Messages that may wait to be read while a channel drains, and their bytes: credits of SMB2 keep honest peers far
/// below.
const UNREAD_EVENTS_MAX: usize = 4096;
const UNREAD_MAX: usize = 64 << 20;
/// Rounds of reading and writing after the time is up, to take data that has already arrived.
const OVERTIME_MAX: u32 = 64;

fn not_established() -> EndReason {
    Ended { why: transport::Why::ByUs, text: OpError::NotEstablished.to_string() }.into()
}

/// A stack with its driver.
#[derive(Debug)]
pub struct SmbDirect {
    stack: Stack,
    driver: Box<dyn Driver>,
    clock: Clock,
    /// True if the end of the recording was written.
    recorded: bool,
}

impl SmbDirect {
    /// Connects to `address`.
    ///
    /// # Errors
    /// Errors of the transport.
    pub fn connect(address: SocketAddr, config: &Config, timeout: Duration) -> io::Result<Self> {
        let setup = config.setup(timeout);
        Ok(Self::new(config.transport.connect(address, &setup)?, setup.clock, |transport| {
            Stack::new(config.smbd, transport, true)
        }))
    }

    /// The same with [`Stack::raw`].
    ///
    /// # Errors
    /// Errors of the transport.
    pub fn connect_raw(address: SocketAddr, config: &Config, timeout: Duration) -> io::Result<Self> {
        let setup = config.setup(timeout);
        Ok(Self::new(config.transport.connect(address, &setup)?, setup.clock, |transport| {
            Stack::raw(config.smbd, transport, true)
        }))
    }

    /// Accepts a requested connection.
    ///
    /// # Errors
    /// Errors of the transport.
    pub fn accept(request: Box<dyn Request>, config: &Config) -> io::Result<Self> {
        let setup = config.setup(ACCEPT_WITHIN);
        Ok(Self::new(request.accept(&setup)?, setup.clock, |transport| Stack::new(config.smbd, transport, false)))
    }

    /// The same with [`Stack::raw`].
    ///
    /// # Errors
    /// Errors of the transport.
    pub fn accept_raw(request: Box<dyn Request>, config: &Config) -> io::Result<Self> {
        let setup = config.setup(ACCEPT_WITHIN);
        Ok(Self::new(request.accept(&setup)?, setup.clock, |transport| Stack::raw(config.smbd, transport, false)))
    }

    fn new(opened: Opened, clock: Clock, stack: impl FnOnce(Box<dyn Transport>) -> Stack) -> Self {
        Self { stack: stack(opened.transport), driver: opened.driver, clock, recorded: false }
    }

    /// Passes only this number of bytes to the network at a time: a peer must accept pieces of any size.
    pub fn trickle(&mut self, bytes: usize) {
        self.driver.trickle(bytes);
    }

    /// True if the peer may be asked to end our regions by Send with Invalidate.
    pub fn can_be_invalidated(&self) -> bool {
        self.stack.transport.capabilities().remote_invalidation
    }

    /// Our address, if the connection uses a socket.
    pub fn local_address(&self) -> Option<SocketAddr> {
        self.driver.local_address()
    }

    /// ns since 1970, by a clock that does not run backwards.
    pub fn now(&self) -> Time {
        self.clock.now()
    }

    /// The stack.
    pub fn stack(&mut self) -> &mut Stack {
        &mut self.stack
    }

    /// Number of our bytes that are still to be sent.
    pub fn unsent(&self) -> usize {
        self.stack.unsent() + self.driver.unsent()
    }

    /// Stops reading from the network while at least this number of our bytes is still to be sent.
    pub fn set_unsent_max(&mut self, bytes: usize) {
        self.driver.set_unsent_max(bytes);
    }

    /// Sends an SMB2 message.
    ///
    /// # Errors
    /// See [`Stack::send`].
    pub fn send(&mut self, message: Vec<u8>, invalidate: Option<u32>) -> Result<(), EndReason> {
        let now = self.now();
        self.stack.send(now, message, invalidate)
    }

    /// Moves bytes until an event happens, or `wait` has passed (`None`). A closed connection returns its end on every
    /// call.
    ///
    /// # Errors
    /// Errors of the network.
    pub fn poll(&mut self, wait: Duration) -> io::Result<Option<Event>> {
        let until = Instant::now() + wait;
        let mut overtime = 0;
        loop {
            let idle = !self.stack.has_events();
            self.stack.transport.record_progress(idle);
            if let Some(event) = self.stack.poll_event() {
                if matches!(event, Event::Closed(_)) {
                    self.flush();
                }
                return Ok(Some(event));
            }
            if let Some(why) = self.stack.end() {
                return Ok(Some(Event::Closed(why.clone())));
            }
            let moved = self.round()?;
            if self.stack.has_events() {
                continue;
            }
            if moved {
                // a peer that sends useless data forever must not block us
                overtime += u32::from(Instant::now() >= until);
                if overtime < OVERTIME_MAX {
                    continue;
                }
                return Ok(None);
            }
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Ok(None);
            }
            self.wait(left)?;
        }
    }

    /// Moves bytes until fewer than `bytes` of ours are still to be sent, the connection is over, or nothing was sent
    /// for `patience`. Returns true if fewer are left. Events are kept for [`SmbDirect::poll`].
    ///
    /// # Errors
    /// Errors of the network.
    pub fn drain(&mut self, bytes: usize, patience: Duration) -> io::Result<bool> {
        let mut least = self.unsent();
        let mut until = Instant::now() + patience;
        while self.unsent() >= bytes {
            if self.stack.end().is_some()
                || self.stack.unread > UNREAD_MAX
                || self.stack.events.len() > UNREAD_EVENTS_MAX
            {
                return Ok(false);
            }
            let moved = self.round()?;
            if self.unsent() < least {
                least = self.unsent();
                until = Instant::now() + patience;
            }
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Ok(false);
            }
            if !moved {
                self.wait(left)?;
            }
        }
        Ok(true)
    }

    /// One round of timers, reading and writing. Returns true if anything moved.
    fn round(&mut self) -> io::Result<bool> {
        let now = self.now();
        if self.stack.poll_timeout().is_some_and(|at| now >= at) {
            self.stack.handle_timeout(now);
        }
        self.stack.turn(now);
        let moved = self.driver.drive(&self.clock, &mut *self.stack.transport)?;
        let now = self.now();
        self.stack.turn(now);
        Ok(moved)
    }

    fn wait(&mut self, at_most: Duration) -> io::Result<()> {
        self.stack.transport.record_flush();
        let timer =
            self.stack.poll_timeout().map(|at| Duration::from_nanos(at.saturating_sub(self.now()).max(0) as u64));
        self.driver.wait(&mut *self.stack.transport, timer.map_or(at_most, |t| t.min(at_most)))
    }

    /// For the record of a connection: request `id` (its MessageId) grants the peer access to our memory.
    pub(crate) fn granted(&mut self, id: u64, memory: &[Handle]) {
        self.stack.transport.record_granted(id, memory);
    }

    /// For the same: passes on a decrypted reply. To be called before the next [`SmbDirect::poll`].
    pub(crate) fn answered(&mut self, reply: &[u8]) {
        let now = self.now();
        self.stack.transport.record_reply(now, reply);
    }

    /// Closes the connection, and waits for a moment until the peer knows.
    pub(crate) fn close(&mut self) {
        self.stack.close();
        self.flush();
    }

    /// Closes the connection, and writes down the end of it.
    ///
    /// # Errors
    /// If the recording cannot be written.
    pub fn finish(mut self) -> io::Result<()> {
        self.close();
        self.end_record().map_or(Ok(()), |wire| wire.flush())
    }

    /// Writes the end of our connection, if that was not written before.
    fn end_record(&mut self) -> Option<Wire> {
        if self.recorded {
            return None;
        }
        self.recorded = true;
        let now = self.now();
        self.stack.transport.record_end(now)
    }

    /// Closes our direction only.
    ///
    /// # Errors
    /// Errors of the network.
    pub fn half_close(&mut self) -> io::Result<()> {
        let now = self.now();
        self.stack.turn(now);
        self.driver.half_close(&self.clock, &mut *self.stack.transport)
    }

    /// Reads until the peer is gone, and ignores the data.
    pub(crate) fn ignore(&mut self) {
        self.driver.ignore();
    }

    /// Ends the connection abruptly.
    pub(crate) fn abort(&mut self) {
        self.driver.abort();
    }

    /// Tries for a moment to get the last bytes out, a Terminate among them, and closes our direction.
    pub(crate) fn flush(&mut self) {
        let now = self.now();
        self.stack.turn(now);
        self.driver.flush(&self.clock, &mut *self.stack.transport);
    }
}

/// Maximum time to accept a connection.
pub(crate) const ACCEPT_WITHIN: Duration = Duration::from_secs(10);

impl Drop for SmbDirect {
    fn drop(&mut self) {
        self.driver.leave(&self.clock, &mut *self.stack.transport);
        // the next flush reports the error
        if let Some(wire) = self.end_record() {
            wire.push();
        }
    }
}
