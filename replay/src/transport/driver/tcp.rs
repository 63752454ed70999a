//! A TCP socket for a transport that is a stream of bytes.

use crate::transport::{Clock, Driver, Transport};
use std::io::{self, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::time::{Duration, Instant};

/// Number of bytes read from the socket at a time.
const CHUNK: usize = 1 << 18;
/// Maximum time to send the last bytes.
const FLUSH_WITHIN: Duration = Duration::from_millis(100);

/// Moves a stream over a socket.
#[derive(Debug)]
pub struct TcpDriver {
    stream: TcpStream,
    out: Vec<u8>,
    written: usize,
    buffer: Vec<u8>,
    /// The peer sends nothing more.
    ended: bool,
    half_closed: bool,
    /// Maximum number of bytes written at a time.
    piece: usize,
    unsent_max: usize,
}

impl TcpDriver {
    /// Over a socket that is connected.
    ///
    /// # Errors
    /// Errors of the socket.
    pub fn new(stream: TcpStream) -> io::Result<Self> {
        stream.set_nodelay(true)?;
        stream.set_nonblocking(true)?;
        Ok(Self {
            stream,
            out: Vec::new(),
            written: 0,
            buffer: vec![0; CHUNK],
            ended: false,
            half_closed: false,
            piece: usize::MAX,
            unsent_max: usize::MAX,
        })
    }

    fn is_full(&self, transport: &dyn Transport) -> bool {
        self.unsent() + transport.unsent() >= self.unsent_max
    }

    /// Reads once. Returns true if there was data.
    fn receive(&mut self, clock: &Clock, transport: &mut dyn Transport) -> io::Result<bool> {
        if self.ended || self.is_full(transport) {
            return Ok(false);
        }
        let read = match self.stream.read(&mut self.buffer) {
            Ok(n) => n,
            Err(e) if matches!(e.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted) => return Ok(false),
            // a reset is an end as well
            Err(e) if matches!(e.kind(), io::ErrorKind::ConnectionReset | io::ErrorKind::BrokenPipe) => 0,
            Err(e) => return Err(e),
        };
        if read == 0 {
            self.ended = true;
            transport.handle_eof(clock.now());
        } else {
            transport.handle_bytes(clock.now(), &self.buffer[..read]);
        }
        Ok(true)
    }

    /// Writes all output. Returns true if anything moved.
    fn transmit(&mut self, clock: &Clock, transport: &mut dyn Transport) -> io::Result<bool> {
        let mut moved = false;
        loop {
            if self.written == self.out.len() {
                self.written = 0;
                self.out.clear();
                match transport.poll_transmit() {
                    Some(bytes) => self.out = bytes,
                    None => return Ok(moved),
                }
            }
            if self.half_closed {
                self.written = self.out.len();
                continue;
            }
            let end = self.written.saturating_add(self.piece).min(self.out.len());
            // the time before it is sent: the peer may have it before this thread goes on
            let now = clock.now();
            match self.stream.write(&self.out[self.written..end]) {
                Ok(n) => {
                    transport.record_sent(now, &self.out[self.written..self.written + n]);
                    self.written += n;
                    moved = true;
                }
                Err(e) if matches!(e.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted) => {
                    return Ok(moved);
                }
                // data that the peer sent before it closed is still to be read
                Err(e) if matches!(e.kind(), io::ErrorKind::ConnectionReset | io::ErrorKind::BrokenPipe) => {
                    self.half_closed = true;
                    return Ok(moved);
                }
                Err(e) => return Err(e),
            }
        }
    }
}

impl Driver for TcpDriver {
    fn drive(&mut self, clock: &Clock, transport: &mut dyn Transport) -> io::Result<bool> {
        let moved = self.transmit(clock, transport)?;
        Ok(self.receive(clock, transport)? || moved)
    }

    #[cfg(unix)]
    fn wait(&mut self, transport: &mut dyn Transport, at_most: Duration) -> io::Result<()> {
        use rustix::event::{PollFd, PollFlags, Timespec, poll};
        let mut flags = if self.is_full(transport) { PollFlags::empty() } else { PollFlags::IN };
        if self.written < self.out.len() {
            flags |= PollFlags::OUT;
        }
        let timeout =
            Timespec { tv_sec: at_most.as_secs().min(3600) as i64, tv_nsec: i64::from(at_most.subsec_nanos()) };
        match poll(&mut [PollFd::new(&self.stream, flags)], Some(&timeout)) {
            Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
            Err(e) => Err(e.into()),
        }
    }

    #[cfg(not(unix))]
    fn wait(&mut self, _transport: &mut dyn Transport, at_most: Duration) -> io::Result<()> {
        std::thread::sleep(at_most.min(Duration::from_micros(500)));
        Ok(())
    }

    fn flush(&mut self, clock: &Clock, transport: &mut dyn Transport) {
        let until = Instant::now() + FLUSH_WITHIN;
        while self.transmit(clock, transport).is_ok() && !self.out.is_empty() && Instant::now() < until {
            std::thread::sleep(Duration::from_millis(2));
        }
        let _ = self.stream.shutdown(Shutdown::Write);
        self.half_closed = true;
        transport.record_closed(clock.now());
    }

    fn half_close(&mut self, clock: &Clock, transport: &mut dyn Transport) -> io::Result<()> {
        self.transmit(clock, transport)?;
        self.half_closed = true;
        transport.record_closed(clock.now());
        self.stream.shutdown(Shutdown::Write)
    }

    fn unsent(&self) -> usize {
        self.out.len() - self.written
    }

    fn set_unsent_max(&mut self, bytes: usize) {
        self.unsent_max = bytes;
    }

    fn trickle(&mut self, bytes: usize) {
        self.piece = bytes.max(1);
    }

    fn ignore(&mut self) {
        ignore(&mut self.stream, |_| ());
    }

    fn abort(&mut self) {
        let _ = self.stream.shutdown(Shutdown::Both);
    }

    fn local_address(&self) -> Option<SocketAddr> {
        self.stream.local_addr().ok()
    }
}

/// Reads until the peer is gone, and passes the data only to `show`.
fn ignore(stream: &mut TcpStream, mut show: impl FnMut(&[u8])) {
    let _ = stream.set_nonblocking(false);
    let mut buffer = [0; 4096];
    while let Ok(n @ 1..) = stream.read(&mut buffer) {
        show(&buffer[..n]);
    }
    let _ = stream.shutdown(Shutdown::Both);
}

/// A listening socket.
#[derive(Debug)]
pub struct TcpAcceptor {
    listener: TcpListener,
    address: SocketAddr,
}

impl TcpAcceptor {
    /// Listens on `address`.
    ///
    /// # Errors
    /// Errors of the socket.
    pub fn bind(address: SocketAddr) -> io::Result<Self> {
        let listener = TcpListener::bind(address)?;
        let address = listener.local_addr()?;
        Ok(Self { listener, address })
    }

    /// Address that it listens on.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The next connection, or `None` when `wait` has passed. (On systems without `poll`, it waits without a limit.)
    ///
    /// # Errors
    /// Errors of the socket.
    pub fn next(&mut self, wait: Duration) -> io::Result<Option<Accepted>> {
        #[cfg(unix)]
        {
            use rustix::event::{PollFd, PollFlags, Timespec, poll};
            let timeout = Timespec { tv_sec: wait.as_secs().min(3600) as i64, tv_nsec: i64::from(wait.subsec_nanos()) };
            match poll(&mut [PollFd::new(&self.listener, PollFlags::IN)], Some(&timeout)) {
                Ok(0) | Err(rustix::io::Errno::INTR) => return Ok(None),
                Ok(_) => {}
                Err(e) => return Err(e.into()),
            }
        }
        #[cfg(not(unix))]
        let _ = wait;
        match self.listener.accept() {
            Ok((stream, peer)) => Ok(Some(Accepted { stream, peer })),
            // a connection that ended before it was accepted is ignored; without free descriptors, some will be freed
            // later
            Err(_) => {
                std::thread::sleep(Duration::from_millis(10));
                Ok(None)
            }
        }
    }
}

/// A connection that was accepted.
#[derive(Debug)]
pub struct Accepted {
    /// The accepted socket.
    pub stream: TcpStream,
    /// Address of the peer.
    pub peer: SocketAddr,
}

impl Accepted {
    /// Sends these bytes, if there are any, after the first data of the peer; returns when it is gone. `kept` gets all
    /// data.
    ///
    /// # Errors
    /// Errors of the socket.
    pub fn answer_with(mut self, bytes: &[u8], kept: &mut dyn FnMut(Passed<'_>)) -> io::Result<()> {
        if !bytes.is_empty() {
            let mut buffer = [0; 4096];
            let read = self.stream.read(&mut buffer)?;
            kept(Passed::Received(&buffer[..read]));
            self.stream.write_all(bytes)?;
            kept(Passed::Sent(bytes));
        }
        ignore(&mut self.stream, |bytes| kept(Passed::Received(bytes)));
        kept(Passed::Closed { by_us: false });
        kept(Passed::Closed { by_us: true });
        Ok(())
    }
}

/// Data that passed over a stream.
#[derive(Clone, Copy, Debug)]
pub enum Passed<'a> {
    /// From us.
    Sent(&'a [u8]),
    /// From the peer.
    Received(&'a [u8]),
    /// A direction ended.
    Closed {
        /// True if it was our direction.
        by_us: bool,
    },
}
