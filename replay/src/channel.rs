//! SMB Direct over userspace iWARP: [`Lane`] is the two stacked, still without a socket; [`Channel`] drives one over TCP.

use crate::iwarp::memory::{Handle, Rights};
use crate::iwarp::{self, Closed, Connection, OpError, Time};
use crate::smbd::{self, Endpoint, Failure};
use crate::wire::Recorder;
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
}

/// Why a connection ended.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum End {
    /// Below SMB Direct.
    #[error("{0}")]
    Rdma(#[from] Closed),
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

/// iWARP and SMB Direct of one end.
#[derive(Debug)]
pub struct Lane {
    rdma: Connection,
    smbd: Option<Endpoint>,
    initiator: bool,
    config: smbd::Config,
    events: VecDeque<Event>,
    raw: bool,
    over: bool,
}

impl Lane {
    /// One end of a new connection; `initiator` where we connected.
    pub fn new(now: Time, config: &Config, initiator: bool) -> Self {
        let iwarp = iwarp::Config { receive_max: config.smbd.max_receive_size.max(config.iwarp.receive_max), ..config.iwarp.clone() };
        Self {
            rdma: if initiator { Connection::initiator(now, iwarp) } else { Connection::responder(now, iwarp) },
            smbd: None,
            initiator,
            config: config.smbd,
            events: VecDeque::new(),
            raw: false,
            over: false,
        }
    }

    /// One that leaves SMB Direct to its user: Sends come as [`Event::Raw`] and go with [`Lane::send_raw`].
    pub fn raw(now: Time, config: &Config, initiator: bool) -> Self {
        Self { raw: true, ..Self::new(now, config, initiator) }
    }

    /// The SMB Direct endpoint, where there is one yet.
    pub fn smbd(&self) -> Option<&Endpoint> {
        self.smbd.as_ref()
    }

    /// The same, to be changed.
    pub fn smbd_mut(&mut self) -> Option<&mut Endpoint> {
        self.smbd.as_mut()
    }

    /// The iWARP connection.
    pub fn rdma(&mut self) -> &mut Connection {
        &mut self.rdma
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

    /// See [`Connection::register`].
    pub fn register(&mut self, data: Vec<u8>, rights: Rights) -> Option<Handle> {
        self.rdma.register(data, rights)
    }

    /// See [`Connection::deregister`].
    pub fn deregister(&mut self, key: u32) -> Option<Vec<u8>> {
        self.rdma.deregister(key)
    }

    /// See [`Connection::write`].
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
                iwarp::Event::Established { .. } => {
                    if !self.raw {
                        let make = if self.initiator { Endpoint::initiator } else { Endpoint::acceptor };
                        self.smbd = Some(make(now, self.config));
                    }
                    self.events.push_back(Event::Connected);
                }
                iwarp::Event::Received { message, invalidated } => match &mut self.smbd {
                    Some(smbd) => {
                        smbd.handle_message(now, &message);
                        self.take(invalidated);
                    }
                    None => self.events.push_back(Event::Raw(message)),
                },
                iwarp::Event::ReadDone { id } => self.events.push_back(Event::ReadDone { id }),
                iwarp::Event::Closed(why) => self.ended(why.into()),
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
        if self.over && self.rdma.is_established() {
            self.rdma.close();
        }
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
            self.ended(why.into());
        }
    }

    fn ended(&mut self, why: End) {
        if !self.over {
            self.over = true;
            self.events.push_back(Event::Closed(why));
        }
    }
}

/// Bytes taken from the socket at a time.
const CHUNK: usize = 1 << 18;

/// A lane over TCP.
#[derive(Debug)]
pub struct Channel {
    lane: Lane,
    stream: TcpStream,
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
    /// Those of the socket.
    pub fn connect(address: SocketAddr, config: &Config, timeout: Duration) -> io::Result<Self> {
        let stream = TcpStream::connect_timeout(&address, timeout)?;
        Self::over(stream, |now| Lane::new(now, config, true))
    }

    /// The same with [`Lane::raw`].
    ///
    /// # Errors
    /// Those of the socket.
    pub fn connect_raw(address: SocketAddr, config: &Config, timeout: Duration) -> io::Result<Self> {
        let stream = TcpStream::connect_timeout(&address, timeout)?;
        Self::over(stream, |now| Lane::raw(now, config, true))
    }

    /// Serves a connection that was accepted.
    ///
    /// # Errors
    /// Those of the socket.
    pub fn accept(stream: TcpStream, config: &Config) -> io::Result<Self> {
        Self::over(stream, |now| Lane::new(now, config, false))
    }

    /// The same with [`Lane::raw`].
    ///
    /// # Errors
    /// Those of the socket.
    pub fn accept_raw(stream: TcpStream, config: &Config) -> io::Result<Self> {
        Self::over(stream, |now| Lane::raw(now, config, false))
    }

    /// Hands the socket so few bytes at a time: a peer has to put up with any pieces.
    pub fn trickle(&mut self, bytes: usize) {
        self.piece = bytes.max(1);
    }

    fn over(stream: TcpStream, lane: impl FnOnce(Time) -> Lane) -> io::Result<Self> {
        stream.set_nodelay(true)?;
        stream.set_nonblocking(true)?;
        let epoch = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| d.as_nanos() as Time);
        Ok(Self {
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
        })
    }

    /// Keeps what goes over the wire, from now on.
    ///
    /// # Errors
    /// Where the addresses of the socket are not known, or nothing can be written.
    pub fn record(&mut self, output: Box<dyn Write + Send>, name: &str) -> io::Result<()> {
        let (us, peer) = (self.stream.local_addr()?, self.stream.peer_addr()?);
        let recorder = Recorder::new(output, name, us, peer, self.lane.initiator, self.now()).map_err(io::Error::other)?;
        self.recorder = Some(recorder);
        Ok(())
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

    /// Moves bytes until something happened, or `wait` has passed (`None`).
    ///
    /// # Errors
    /// Those of the socket.
    pub fn poll(&mut self, wait: Duration) -> io::Result<Option<Event>> {
        let until = Instant::now() + wait;
        loop {
            if let Some(event) = self.lane.poll_event() {
                if matches!(event, Event::Closed(_)) {
                    self.flush();
                }
                return Ok(Some(event));
            }
            let now = self.now();
            if self.lane.poll_timeout().is_some_and(|at| now >= at) {
                self.lane.handle_timeout(now);
                continue;
            }
            let mut moved = self.transmit()?;
            match self.stream.read(&mut self.buffer) {
                Ok(0) => {
                    let now = self.now();
                    if let Some(recorder) = &mut self.recorder {
                        recorder.closed(now, false);
                    }
                    self.lane.handle_eof(now);
                    continue;
                }
                Ok(n) => {
                    let now = self.now();
                    if let Some(recorder) = &mut self.recorder {
                        recorder.received(now, &self.buffer[..n]);
                    }
                    self.lane.handle_bytes(now, &self.buffer[..n]);
                    moved = true;
                }
                Err(e) if matches!(e.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted) => {}
                // a reset ends the connection as an end of the stream does
                Err(e) if matches!(e.kind(), io::ErrorKind::ConnectionReset | io::ErrorKind::BrokenPipe) => {
                    let now = self.now();
                    self.lane.handle_eof(now);
                    continue;
                }
                Err(e) => return Err(e),
            }
            if moved {
                continue;
            }
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Ok(None);
            }
            let timer = self.lane.poll_timeout().map(|at| Duration::from_nanos((at - self.now()).max(0) as u64));
            self.wait(timer.map_or(left, |t| t.min(left)))?;
        }
    }

    /// Closes the connection and finishes what was recorded.
    ///
    /// # Errors
    /// Where the record cannot be written.
    pub fn finish(mut self) -> io::Result<()> {
        self.lane.close();
        self.flush();
        let now = self.now();
        match self.recorder.take() {
            Some(mut recorder) => {
                recorder.closed(now, true);
                recorder.finish().map_err(io::Error::other)
            }
            None => Ok(()),
        }
    }

    /// Closes our direction only.
    ///
    /// # Errors
    /// Those of the socket.
    pub fn half_close(&mut self) -> io::Result<()> {
        self.transmit()?;
        self.half_closed = true;
        self.stream.shutdown(std::net::Shutdown::Write)
    }

    /// Reads until the peer is gone, and makes nothing of it.
    pub(crate) fn ignore(&mut self) {
        crate::fault::ignore(&mut self.stream);
    }

    /// Ends the TCP connection as it is.
    pub(crate) fn abort(&mut self) {
        let _ = self.stream.shutdown(std::net::Shutdown::Both);
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
            match self.stream.write(&self.out[self.written..end]) {
                Ok(n) => {
                    let now = self.now();
                    if let Some(recorder) = &mut self.recorder {
                        recorder.sent(now, &self.out[self.written..self.written + n]);
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
        for _ in 0..50 {
            match self.transmit() {
                Ok(_) if self.out.is_empty() => break,
                Ok(_) => std::thread::sleep(Duration::from_millis(2)),
                Err(_) => break,
            }
        }
        let _ = self.stream.shutdown(std::net::Shutdown::Write);
        self.half_closed = true;
    }

    #[cfg(unix)]
    fn wait(&self, at_most: Duration) -> io::Result<()> {
        use rustix::event::{PollFd, PollFlags, Timespec, poll};
        let mut flags = PollFlags::IN;
        if self.written < self.out.len() {
            flags |= PollFlags::OUT;
        }
        let timeout = Timespec { tv_sec: at_most.as_secs().min(3600) as i64, tv_nsec: i64::from(at_most.subsec_nanos()) };
        match poll(&mut [PollFd::new(&self.stream, flags)], Some(&timeout)) {
            Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
            Err(e) => Err(e.into()),
        }
    }

    #[cfg(not(unix))]
    fn wait(&self, at_most: Duration) -> io::Result<()> {
        std::thread::sleep(at_most.min(Duration::from_micros(500)));
        Ok(())
    }
}
