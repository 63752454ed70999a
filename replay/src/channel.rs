//! SMB Direct over RDMA: [`Lane`] is the two stacked, over userspace iWARP still without a socket; [`Channel`] drives one over TCP, or over a card.

use crate::iwarp::memory::{Handle, Rights};
use crate::iwarp::{self, Closed, Connection, OpError, Time};
use crate::smbd::{self, Endpoint, Failure};
use crate::transport::{Happened, Rdma, Transport};
#[cfg(target_os = "linux")]
use crate::wire::card::{Card, Known};
use crate::wire::stream::Stream;
use crate::wire::{Recorder, Wire};
use std::collections::VecDeque;
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use thiserror::Error;

/// How a connection is to be.
#[derive(Clone, Debug, Default)]
pub struct Config {
    /// iWARP.
    pub iwarp: iwarp::Config,
    /// SMB Direct.
    pub smbd: smbd::Config,
    /// What carries it.
    pub transport: Transport,
    /// Where what goes over it is kept.
    pub wire: Option<Wire>,
}

impl Config {
    /// What Linux's software iWARP (`siw`) bears, and everybody else: a pause ([`smbd::SETTLE`]), and no CRC unless the peer asks for it. The siw of
    /// Linux 6.12 forgets how much of a CRC it has where a TCP segment ends in the middle of one, finds the CRC wrong, and ends the connection;
    /// nobody who sends more than one segment can keep clear of that.
    pub fn for_soft_iwarp() -> Self {
        let mut config = Self::default();
        config.smbd.settle = smbd::SETTLE;
        config.iwarp.crc = false;
        config
    }
}

/// Why a connection ended.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum End {
    /// Below SMB Direct.
    #[error("{0}")]
    Rdma(#[from] Closed),
    /// Below SMB Direct, on a card.
    #[cfg(target_os = "linux")]
    #[error("{0}")]
    Card(rdmascope_verbs::Ended),
    /// SMB Direct gave up.
    #[error("{0}")]
    SmbDirect(#[from] Failure),
}

/// What happened on a lane.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// MPA is through.
    Connected,
    /// SMB2 messages may be sent.
    Established,
    /// A whole SMB2 message, and the key of ours that it invalidated.
    Message {
        /// Its bytes.
        bytes: Vec<u8>,
        /// The key.
        invalidated: Option<u32>,
    },
    /// A Send as it came, where nobody takes it apart (see [`Lane::raw`]).
    Raw(Vec<u8>),
    /// An RDMA Read of ours is complete.
    ReadDone {
        /// What [`Lane::read`] gave.
        id: u64,
    },
    /// It is over.
    Closed(End),
}

/// RDMA and SMB Direct of one end.
#[derive(Debug)]
pub struct Lane {
    rdma: Rdma,
    smbd: Option<Endpoint>,
    initiator: bool,
    config: smbd::Config,
    events: VecDeque<Event>,
    raw: bool,
    /// SMB Direct gave up, and its last words are still to go.
    failing: Option<End>,
    over: bool,
    end: Option<End>,
}

impl Lane {
    /// One end of a new connection; `initiator` where we connected.
    pub fn new(now: Time, config: &Config, initiator: bool) -> Self {
        let iwarp = iwarp::Config { receive_max: config.smbd.max_receive_size.max(config.iwarp.receive_max), ..config.iwarp.clone() };
        let connection = if initiator { Connection::initiator(now, iwarp) } else { Connection::responder(now, iwarp) };
        Self {
            rdma: Rdma::Iwarp(Box::new(connection)),
            smbd: None,
            initiator,
            config: config.smbd,
            events: VecDeque::new(),
            raw: false,
            failing: None,
            over: false,
            end: None,
        }
    }

    /// One that leaves SMB Direct to its user: Sends come as [`Event::Raw`] and go with [`Lane::send_raw`].
    pub fn raw(now: Time, config: &Config, initiator: bool) -> Self {
        Self { raw: true, ..Self::new(now, config, initiator) }
    }

    /// One end of a card's connection, which is established.
    #[cfg(target_os = "linux")]
    fn of_card(now: Time, config: &Config, connection: rdmascope_verbs::Connection, initiator: bool, raw: bool) -> Self {
        // the pause is for software iWARP
        let settle = if connection.is_iwarp() { config.smbd.settle } else { 0 };
        let mut lane = Self { rdma: Rdma::Verbs(Box::new(connection)), raw, ..Self::new(now, config, initiator) };
        lane.config.settle = settle;
        lane.connected(now);
        lane
    }

    /// The SMB Direct endpoint, where there is one yet.
    pub fn smbd(&self) -> Option<&Endpoint> {
        self.smbd.as_ref()
    }

    /// The same, to be changed.
    pub fn smbd_mut(&mut self) -> Option<&mut Endpoint> {
        self.smbd.as_mut()
    }

    /// The connection below.
    pub fn rdma(&mut self) -> &mut Rdma {
        &mut self.rdma
    }

    /// Why it is over, where it is.
    pub fn end(&self) -> Option<&End> {
        self.end.as_ref()
    }

    /// Whether nothing more will happen.
    pub fn is_over(&self) -> bool {
        self.over
    }

    /// Takes bytes of the stream.
    pub fn handle_bytes(&mut self, now: Time, bytes: &[u8]) {
        self.rdma.handle_bytes(now, bytes);
        self.turn(now);
    }

    /// The stream ended.
    pub fn handle_eof(&mut self, now: Time) {
        self.rdma.handle_eof(now);
        self.turn(now);
    }

    /// Time has passed.
    pub fn handle_timeout(&mut self, now: Time) {
        self.rdma.handle_timeout(now);
        if let Some(smbd) = &mut self.smbd {
            smbd.handle_timeout(now);
        }
        self.turn(now);
    }

    /// When [`Lane::handle_timeout`] is to be called.
    pub fn poll_timeout(&self) -> Option<Time> {
        let smbd = self.smbd.as_ref().and_then(Endpoint::poll_timeout);
        [self.rdma.poll_timeout(), smbd].into_iter().flatten().min()
    }

    /// The next bytes for the stream.
    pub fn poll_transmit(&mut self, now: Time) -> Option<Vec<u8>> {
        self.turn(now);
        self.rdma.poll_transmit()
    }

    /// What happened next.
    pub fn poll_event(&mut self) -> Option<Event> {
        self.events.pop_front()
    }

    fn has_events(&self) -> bool {
        !self.events.is_empty()
    }

    /// Sends an SMB2 message.
    ///
    /// # Errors
    /// Where it is longer than the peer puts together, or the connection is not established.
    pub fn send(&mut self, now: Time, message: Vec<u8>, invalidate: Option<u32>) -> Result<(), End> {
        let smbd = self.smbd.as_mut().ok_or(End::Rdma(Closed::ByUs))?;
        smbd.send(now, message, invalidate)?;
        self.turn(now);
        Ok(())
    }

    /// Sends a message as it is. With an SMB Direct endpoint, the rulebook sees it.
    pub fn send_raw(&mut self, now: Time, message: Vec<u8>) {
        match &mut self.smbd {
            Some(smbd) => smbd.transmit_raw(now, message),
            // an error is that of a connection that is over, which its user is told
            None => drop(self.rdma.send(&message, None, false)),
        }
        self.turn(now);
    }

    /// See [`Rdma::register`].
    pub fn register(&mut self, data: Vec<u8>, rights: Rights) -> Option<Handle> {
        self.rdma.register(data, rights)
    }

    /// See [`Rdma::deregister`].
    pub fn deregister(&mut self, key: u32) -> Option<Vec<u8>> {
        self.rdma.deregister(key)
    }

    /// See [`Rdma::write`].
    ///
    /// # Errors
    /// Where the connection is not established.
    pub fn write(&mut self, key: u32, offset: u64, data: &[u8]) -> Result<(), OpError> {
        self.rdma.write(key, offset, data)
    }

    /// See [`Connection::read`].
    ///
    /// # Errors
    /// See [`OpError`].
    pub fn read(&mut self, sink: Handle, at: u64, source: u32, offset: u64, length: u32) -> Result<u64, OpError> {
        self.rdma.read(sink.key, sink.offset + at, source, offset, length)
    }

    /// Closes in order.
    pub fn close(&mut self) {
        self.rdma.close();
    }

    fn turn(&mut self, now: Time) {
        while let Some(event) = self.rdma.poll_event() {
            match event {
                Happened::Established => self.connected(now),
                Happened::Received { message, invalidated } => match &mut self.smbd {
                    Some(smbd) => {
                        smbd.handle_message(now, &message);
                        self.take(invalidated);
                    }
                    None => self.events.push_back(Event::Raw(message)),
                },
                Happened::ReadDone { id } => self.events.push_back(Event::ReadDone { id }),
                Happened::Closed(why) => self.ended(why),
            }
        }
        self.take(None);
        while self.rdma.is_established()
            && let Some(smbd) = &mut self.smbd
            && let Some(next) = smbd.poll_transmit(now)
        {
            // established: it cannot fail
            let _ = self.rdma.send(&next.message, next.invalidate, false);
        }
        if !self.smbd.as_ref().is_some_and(Endpoint::has_output)
            && let Some(why) = self.failing.take()
        {
            self.ended(why);
        }
        if self.over && self.rdma.is_established() {
            self.rdma.close();
        }
    }

    fn connected(&mut self, now: Time) {
        if !self.raw {
            let make = if self.initiator { Endpoint::initiator } else { Endpoint::acceptor };
            self.smbd = Some(make(now, self.config));
        }
        self.events.push_back(Event::Connected);
    }

    fn take(&mut self, invalidated: Option<u32>) {
        let Some(smbd) = &mut self.smbd else { return };
        let mut failed = None;
        while let Some(event) = smbd.poll_event() {
            match event {
                smbd::Event::Established => self.events.push_back(Event::Established),
                smbd::Event::Message(bytes) => self.events.push_back(Event::Message { bytes, invalidated }),
                smbd::Event::Failed(why) => failed = Some(why),
            }
        }
        if let Some(why) = failed {
            self.failing.get_or_insert(why.into());
        }
    }

    fn ended(&mut self, why: End) {
        if !self.over {
            self.over = true;
            self.end = Some(why.clone());
            self.events.push_back(Event::Closed(why));
        }
    }
}

impl Drop for Channel {
    fn drop(&mut self) {
        // what went wrong with it, the next one who flushes is told
        if let Some(wire) = self.end_record() {
            wire.push();
        }
    }
}

/// Bytes taken from the socket at a time.
const CHUNK: usize = 1 << 18;
/// Rounds of reading and writing when the time is up: what is there already is taken.
const OVERTIME_MAX: u32 = 64;
/// How long the last messages may take to get out of a card.
#[cfg(target_os = "linux")]
const FLUSH_WITHIN: Duration = Duration::from_secs(1);
/// Receives posted beyond the credits granted: for what comes before there are any.
#[cfg(target_os = "linux")]
const RECEIVES_MORE: u32 = 16;
/// Bytes of a Send of ours that leaves SMB Direct to its user.
#[cfg(target_os = "linux")]
const RAW_SEND_MAX: u32 = 16_384;

/// What the record of a card's connection begins with.
#[cfg(target_os = "linux")]
fn known(connection: &rdmascope_verbs::Connection, we_connected: bool) -> io::Result<Known> {
    let refused = |why: String| io::Error::new(io::ErrorKind::Unsupported, why);
    let device = connection.device().to_owned();
    if connection.is_iwarp() {
        return Err(refused(format!("{device} is an iWARP card, whose wire is not kept here: capture it on its network interface")));
    }
    let Some(numbers) = connection.numbers() else {
        return Err(refused(format!("{device} does not tell the numbers of its queue pair: capture it on the wire")));
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

/// What a connection of a card needs for SMB Direct.
#[cfg(target_os = "linux")]
fn card_options(config: &Config) -> rdmascope_verbs::Options {
    rdmascope_verbs::Options {
        receives: u32::from(config.smbd.receive_credits) + RECEIVES_MORE,
        receive_size: config.smbd.max_receive_size,
        sends: 128,
        send_size: config.smbd.max_send_size.max(RAW_SEND_MAX),
        responder_resources: u8::try_from(config.iwarp.ird).unwrap_or(u8::MAX),
        initiator_depth: u8::try_from(config.iwarp.ord).unwrap_or(u8::MAX),
        depths_in_private_data: config.iwarp.legacy_depths,
        watch: config.wire.is_some(),
    }
}

/// A lane over TCP, or over a card.
#[derive(Debug)]
pub struct Channel {
    lane: Lane,
    /// A card needs none.
    stream: Option<TcpStream>,
    started: Instant,
    epoch: Time,
    out: Vec<u8>,
    written: usize,
    buffer: Vec<u8>,
    recorder: Option<Recorder>,
    half_closed: bool,
    /// Bytes written at a time at most.
    piece: usize,
}

impl Channel {
    /// Connects to `address`.
    ///
    /// # Errors
    /// Those of the socket, or of the card.
    pub fn connect(address: SocketAddr, config: &Config, timeout: Duration) -> io::Result<Self> {
        Self::connect_as(address, config, timeout, false)
    }

    /// The same with [`Lane::raw`].
    ///
    /// # Errors
    /// Those of the socket, or of the card.
    pub fn connect_raw(address: SocketAddr, config: &Config, timeout: Duration) -> io::Result<Self> {
        Self::connect_as(address, config, timeout, true)
    }

    fn connect_as(address: SocketAddr, config: &Config, timeout: Duration, raw: bool) -> io::Result<Self> {
        #[cfg(target_os = "linux")]
        if let Transport::Verbs(verbs) = config.transport {
            let connection =
                rdmascope_verbs::Connection::connect(verbs, address, card_options(config), timeout).map_err(io::Error::other)?;
            return Self::over_card(connection, config, true, raw);
        }
        let stream = TcpStream::connect_timeout(&address, timeout)?;
        Self::over(stream, config, |now| if raw { Lane::raw(now, config, true) } else { Lane::new(now, config, true) })
    }

    /// Serves a connection that was accepted.
    ///
    /// # Errors
    /// Those of the socket.
    pub fn accept(stream: TcpStream, config: &Config) -> io::Result<Self> {
        Self::over(stream, config, |now| Lane::new(now, config, false))
    }

    /// The same with [`Lane::raw`].
    ///
    /// # Errors
    /// Those of the socket.
    pub fn accept_raw(stream: TcpStream, config: &Config) -> io::Result<Self> {
        Self::over(stream, config, |now| Lane::raw(now, config, false))
    }

    /// Hands the socket so few bytes at a time: a peer has to put up with any pieces.
    pub fn trickle(&mut self, bytes: usize) {
        self.piece = bytes.max(1);
    }

    fn over(stream: TcpStream, config: &Config, lane: impl FnOnce(Time) -> Lane) -> io::Result<Self> {
        stream.set_nodelay(true)?;
        stream.set_nonblocking(true)?;
        let ends = config.wire.as_ref().map(|_| Ok::<_, io::Error>((stream.local_addr()?, stream.peer_addr()?))).transpose()?;
        let mut channel = Self::new(Some(stream), lane);
        if let Some((wire, (us, peer))) = config.wire.clone().zip(ends) {
            channel.recorder = Some(Recorder::Stream(Stream::new(wire, us, peer, channel.lane.initiator, channel.now())));
        }
        Ok(channel)
    }

    /// Takes a connection that somebody asked a card for.
    ///
    /// # Errors
    /// Those of the card.
    #[cfg(target_os = "linux")]
    pub fn accept_card(request: rdmascope_verbs::Request, config: &Config, timeout: Duration) -> io::Result<Self> {
        let connection = request.accept(card_options(config), timeout).map_err(io::Error::other)?;
        Self::over_card(connection, config, false, false)
    }

    /// The same with [`Lane::raw`].
    ///
    /// # Errors
    /// Those of the card.
    #[cfg(target_os = "linux")]
    pub fn accept_card_raw(request: rdmascope_verbs::Request, config: &Config, timeout: Duration) -> io::Result<Self> {
        let connection = request.accept(card_options(config), timeout).map_err(io::Error::other)?;
        Self::over_card(connection, config, false, true)
    }

    /// # Errors
    /// Where it is to be kept and cannot be: what iWARP cards say is not told as packets of RoCE, and some drivers do not say enough.
    #[cfg(target_os = "linux")]
    fn over_card(connection: rdmascope_verbs::Connection, config: &Config, initiator: bool, raw: bool) -> io::Result<Self> {
        let known = config.wire.as_ref().map(|_| known(&connection, initiator)).transpose()?;
        let mut channel = Self::new(None, |now| Lane::of_card(now, config, connection, initiator, raw));
        if let Some((wire, known)) = config.wire.clone().zip(known) {
            channel.recorder = Some(Recorder::Card(Box::new(Card::new(wire, &known, channel.now()))));
        }
        Ok(channel)
    }

    fn new(stream: Option<TcpStream>, lane: impl FnOnce(Time) -> Lane) -> Self {
        let epoch = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| d.as_nanos() as Time);
        Self {
            lane: lane(epoch),
            stream,
            started: Instant::now(),
            epoch,
            out: Vec::new(),
            written: 0,
            buffer: vec![0; CHUNK],
            recorder: None,
            half_closed: false,
            piece: usize::MAX,
        }
    }

    /// Whether the peer may be asked to end regions of ours by Send with Invalidate.
    pub fn can_be_invalidated(&self) -> bool {
        self.lane.rdma.can_be_invalidated()
    }

    /// Our address, where a socket carries it.
    pub fn local_address(&self) -> Option<SocketAddr> {
        self.stream.as_ref().and_then(|stream| stream.local_addr().ok())
    }

    /// Whether a card carries it.
    pub fn is_card(&self) -> bool {
        self.stream.is_none()
    }

    /// ns since 1970, by a clock that does not run backwards.
    pub fn now(&self) -> Time {
        self.epoch + self.started.elapsed().as_nanos() as Time
    }

    /// The lane.
    pub fn lane(&mut self) -> &mut Lane {
        &mut self.lane
    }

    /// Sends an SMB2 message.
    ///
    /// # Errors
    /// See [`Lane::send`].
    pub fn send(&mut self, message: Vec<u8>, invalidate: Option<u32>) -> Result<(), End> {
        let now = self.now();
        self.lane.send(now, message, invalidate)
    }

    /// Moves bytes until something happened, or `wait` has passed (`None`). A connection that is over says so as often as it is asked.
    ///
    /// # Errors
    /// Those of the socket.
    pub fn poll(&mut self, wait: Duration) -> io::Result<Option<Event>> {
        let until = Instant::now() + wait;
        let mut overtime = 0;
        loop {
            self.observe();
            if let Some(event) = self.lane.poll_event() {
                if matches!(event, Event::Closed(_)) {
                    self.flush();
                }
                return Ok(Some(event));
            }
            if let Some(why) = self.lane.end() {
                return Ok(Some(Event::Closed(why.clone())));
            }
            let now = self.now();
            if self.lane.poll_timeout().is_some_and(|at| now >= at) {
                self.lane.handle_timeout(now);
                continue;
            }
            let mut moved = self.transmit()?;
            match self.receive()? {
                Some(0) => {
                    let now = self.now();
                    if let Some(Recorder::Stream(stream)) = &mut self.recorder {
                        stream.closed(now, false);
                    }
                    self.lane.handle_eof(now);
                    continue;
                }
                Some(n) => {
                    let now = self.now();
                    if let Some(Recorder::Stream(stream)) = &mut self.recorder {
                        stream.received(now, &self.buffer[..n]);
                    }
                    self.lane.handle_bytes(now, &self.buffer[..n]);
                    moved = true;
                }
                None => moved |= self.progress()? || self.lane.has_events(),
            }
            if moved {
                // a peer that never stops sending what comes to nothing is not to keep us for ever
                overtime += u32::from(Instant::now() >= until);
                if overtime < OVERTIME_MAX {
                    continue;
                }
                return Ok(None);
            }
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() && self.stream.is_some() {
                return Ok(None);
            }
            if let Some(recorder) = &self.recorder {
                recorder.push();
            }
            let timer = self.lane.poll_timeout().map(|at| Duration::from_nanos((at - self.now()).max(0) as u64));
            self.wait(timer.map_or(left, |t| t.min(left)))?;
            // a card's news are looked at in the wait, and so at least once
            if left.is_zero() && !self.progress()? && !self.lane.has_events() {
                return Ok(None);
            }
        }
    }

    /// Bytes read; 0 at the end of the stream, which a reset is as well.
    fn receive(&mut self) -> io::Result<Option<usize>> {
        let Some(stream) = &mut self.stream else { return Ok(None) };
        match stream.read(&mut self.buffer) {
            Ok(n) => Ok(Some(n)),
            Err(e) if matches!(e.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted) => Ok(None),
            Err(e) if matches!(e.kind(), io::ErrorKind::ConnectionReset | io::ErrorKind::BrokenPipe) => Ok(Some(0)),
            Err(e) => Err(e),
        }
    }

    /// Lets a card go on; whether anything moved.
    fn progress(&mut self) -> io::Result<bool> {
        #[cfg(target_os = "linux")]
        if let Rdma::Verbs(connection) = &mut self.lane.rdma {
            let moved = connection.progress().map_err(io::Error::other)?;
            let now = self.now();
            self.lane.turn(now);
            return Ok(moved);
        }
        Ok(false)
    }

    /// Takes over what a card did since the last time, and writes it down as far as nobody has messages of it to read yet.
    fn observe(&mut self) {
        #[cfg(target_os = "linux")]
        if let (Some(Recorder::Card(card)), Rdma::Verbs(connection)) = (&mut self.recorder, &mut self.lane.rdma) {
            while let Some(operation) = connection.poll_operation() {
                let since = operation.at.saturating_duration_since(self.started).as_nanos() as Time;
                card.hold(self.epoch + since, operation.what);
            }
            if self.lane.events.is_empty() {
                card.release();
            }
        }
    }

    /// For the record of a card's connection: request `id` (its MessageId) lets the peer at memory of ours.
    pub(crate) fn granted(&mut self, id: u64, memory: &[Handle]) {
        #[cfg(target_os = "linux")]
        if let Some(Recorder::Card(card)) = &mut self.recorder {
            card.granted(id, memory);
        }
        #[cfg(not(target_os = "linux"))]
        let _ = (id, memory);
    }

    /// For the same: a reply came, and this is it in the clear. To be called before the next [`Channel::poll`].
    pub(crate) fn answered(&mut self, reply: &[u8]) {
        #[cfg(target_os = "linux")]
        {
            let now = self.now();
            if let (Some(Recorder::Card(card)), Rdma::Verbs(connection)) = (&mut self.recorder, &self.lane.rdma) {
                card.answered(now, reply, |key, length| connection.peek(key, length));
            }
        }
        #[cfg(not(target_os = "linux"))]
        let _ = reply;
    }

    /// Closes the connection, and writes down the end of it.
    ///
    /// # Errors
    /// Where what was kept cannot be written.
    pub fn finish(mut self) -> io::Result<()> {
        self.lane.close();
        self.flush();
        self.end_record().map_or(Ok(()), |wire| wire.flush())
    }

    /// Writes that we leave, where that was not written before.
    fn end_record(&mut self) -> Option<Wire> {
        self.observe();
        let now = self.now();
        let recorder = self.recorder.take()?;
        let wire = recorder.wire().clone();
        match recorder {
            Recorder::Stream(mut stream) => stream.closed(now, true),
            #[cfg(target_os = "linux")]
            Recorder::Card(mut card) => card.closed(now),
        }
        Some(wire)
    }

    /// Closes our direction only.
    ///
    /// # Errors
    /// Those of the socket.
    pub fn half_close(&mut self) -> io::Result<()> {
        self.transmit()?;
        self.half_closed = true;
        match &self.stream {
            Some(stream) => stream.shutdown(std::net::Shutdown::Write),
            None => {
                self.lane.close();
                Ok(())
            }
        }
    }

    /// Reads until the peer is gone, and makes nothing of it.
    pub(crate) fn ignore(&mut self) {
        if let Some(stream) = &mut self.stream {
            crate::fault::ignore(stream);
        }
    }

    /// Ends the TCP connection as it is.
    pub(crate) fn abort(&mut self) {
        if let Some(stream) = &self.stream {
            let _ = stream.shutdown(std::net::Shutdown::Both);
        }
    }

    /// Writes what there is; whether anything moved.
    fn transmit(&mut self) -> io::Result<bool> {
        let mut moved = false;
        loop {
            if self.written == self.out.len() {
                self.out.clear();
                self.written = 0;
                let now = self.now();
                match self.lane.poll_transmit(now) {
                    Some(bytes) => self.out = bytes,
                    None => return Ok(moved),
                }
            }
            if self.half_closed {
                self.written = self.out.len();
                continue;
            }
            let end = self.written.saturating_add(self.piece).min(self.out.len());
            // only a stream has bytes to transmit
            let Some(stream) = &mut self.stream else { return Ok(moved) };
            match stream.write(&self.out[self.written..end]) {
                Ok(n) => {
                    let now = self.now();
                    if let Some(Recorder::Stream(stream)) = &mut self.recorder {
                        stream.sent(now, &self.out[self.written..self.written + n]);
                    }
                    self.written += n;
                    moved = true;
                }
                Err(e) if matches!(e.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted) => return Ok(moved),
                // what the peer had to say before it closed is still to be read
                Err(e) if matches!(e.kind(), io::ErrorKind::ConnectionReset | io::ErrorKind::BrokenPipe) => {
                    self.half_closed = true;
                    return Ok(moved);
                }
                Err(e) => return Err(e),
            }
        }
    }

    /// Tries for a moment to get the last bytes out, a Terminate among them, and closes our direction.
    pub(crate) fn flush(&mut self) {
        if self.stream.is_none() {
            self.flush_card();
            return;
        }
        for _ in 0..50 {
            match self.transmit() {
                Ok(_) if self.out.is_empty() => break,
                Ok(_) => std::thread::sleep(Duration::from_millis(2)),
                Err(_) => break,
            }
        }
        if let Some(stream) = &self.stream {
            let _ = stream.shutdown(std::net::Shutdown::Write);
        }
        self.half_closed = true;
    }

    /// The same for a card, which disconnects when all is out.
    fn flush_card(&mut self) {
        #[cfg(target_os = "linux")]
        if let Rdma::Verbs(connection) = &mut self.lane.rdma {
            connection.close();
            let until = Instant::now() + FLUSH_WITHIN;
            while connection.is_busy() && Instant::now() < until {
                if !connection.progress().unwrap_or(false) && connection.wait(Duration::from_millis(10)).is_err() {
                    break;
                }
            }
        }
    }

    #[cfg(unix)]
    fn wait(&mut self, at_most: Duration) -> io::Result<()> {
        #[cfg(target_os = "linux")]
        if let Rdma::Verbs(connection) = &mut self.lane.rdma {
            return connection.wait(at_most).map_err(io::Error::other);
        }
        let Some(stream) = &self.stream else { return Ok(()) };
        use rustix::event::{PollFd, PollFlags, Timespec, poll};
        let mut flags = PollFlags::IN;
        if self.written < self.out.len() {
            flags |= PollFlags::OUT;
        }
        let timeout = Timespec { tv_sec: at_most.as_secs().min(3600) as i64, tv_nsec: i64::from(at_most.subsec_nanos()) };
        match poll(&mut [PollFd::new(stream, flags)], Some(&timeout)) {
            Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
            Err(e) => Err(e.into()),
        }
    }

    #[cfg(not(unix))]
    fn wait(&mut self, at_most: Duration) -> io::Result<()> {
        std::thread::sleep(at_most.min(Duration::from_micros(500)));
        Ok(())
    }
}
