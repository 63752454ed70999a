//! Transports of SMB Direct: one folder and one row of [`KINDS`] each. Nothing above this module depends on a
//! particular transport; the differences between them are data ([`Kind`], [`Capabilities`]).
//!
//! | part | meaning |
//! | --- | --- |
//! | [`Kind`] | a row: name, default port, how to get a [`Fabric`] |
//! | [`Fabric`] | a transport with its options: connects and listens |
//! | [`Transport`] | one connection, sans-IO: bytes and completions in, bytes and events out, RDMA operations; can record itself |
//! | [`Driver`] | moves the bytes of a [`Transport`]: a TCP socket, UDP port 4791, or the completion channel of an adapter |

pub mod case;
pub mod driver;
pub mod iwarp;
pub mod memory;
pub mod packet_fault;
pub mod roce;
#[cfg(target_os = "linux")]
pub mod verbs;

use crate::wire::Wire;
use case::OwnCase;
use packet_fault::{FaultRow, PacketFault, Tally};
use std::any::Any;
use std::fmt::Debug;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use thiserror::Error;

/// All transports, the default first.
pub static KINDS: &[Kind] = &[
    iwarp::KIND,
    #[cfg(target_os = "linux")]
    roce::KIND,
    #[cfg(target_os = "linux")]
    verbs::KIND,
];

/// The transport that needs no hardware, with the options of its specification.
pub fn without_hardware() -> Arc<dyn Fabric> {
    Arc::new(iwarp::Iwarp::default())
}

/// A transport: the properties that all of its connections share.
#[derive(Clone, Copy, Debug)]
pub struct Kind {
    /// Its name on the command line.
    pub name: &'static str,
    /// Description in one line.
    pub text: &'static str,
    /// The default port of SMB Direct.
    pub port: u16,
    /// True if faults below SMB Direct can be made ([`Fault`], [`StartupFault`], and those of a stream).
    pub faults_below: bool,
    /// Bytes of private data that a connection request has room for.
    pub private_data: usize,
    /// Makes it ready with its default options.
    pub open: fn() -> io::Result<Arc<dyn Fabric>>,
    /// Cases of the probe that it alone can run.
    pub cases: &'static [OwnCase],
    /// Faults that it can make in its packets.
    pub faults: &'static [FaultRow],
}

impl Kind {
    /// The transport with this name.
    pub fn named(name: &str) -> Option<&'static Self> {
        KINDS.iter().find(|kind| kind.name == name)
    }
}

/// A transport that is ready, with its options.
pub trait Fabric: Any + Debug + Send + Sync {
    /// Its row of [`KINDS`].
    fn kind(&self) -> &'static Kind;

    /// Connects to `address`.
    ///
    /// # Errors
    /// Errors of the system, and if the recording cannot be written.
    fn connect(&self, address: SocketAddr, setup: &Setup) -> io::Result<Opened>;

    /// Listens on `address`; port 0 takes any.
    ///
    /// # Errors
    /// Errors of the system.
    fn listen(&self, address: SocketAddr) -> io::Result<Box<dyn Listener>>;

    /// The same, with a fault in its packets, if that is one of [`Kind::faults`]; the seed is for random decisions.
    fn with_packet_fault(&self, fault: PacketFault, seed: u64) -> Option<Arc<dyn Fabric>> {
        let _ = (fault, seed);
        None
    }

    /// The same, with packets of this class, if it makes packets itself: the differentiated services code point (`None`
    /// for the usual one), and whether routers may mark the packets on congestion.
    fn with_class(&self, dscp: Option<u8>, ecn: bool) -> Option<Arc<dyn Fabric>> {
        let _ = (dscp, ecn);
        None
    }

    /// The same, with a checksum on every message if that is an option.
    fn with_checksums(&self) -> Option<Arc<dyn Fabric>> {
        None
    }
}

/// Parameters of a connection that its user determines.
#[derive(Clone, Debug)]
pub struct Setup {
    /// Maximum number of outstanding messages of the peer.
    pub receives: u16,
    /// Maximum size of a message of the peer, in bytes.
    pub receive_size: u32,
    /// Maximum size of our messages, in bytes.
    pub send_size: u32,
    /// Maximum time to connect.
    pub timeout: Duration,
    /// Capture file in which the connection is recorded.
    pub wire: Option<Wire>,
    /// Counts what a fault of packets did.
    pub acted: Tally,
    /// Clock of the connection.
    pub clock: Clock,
}

/// A connection and its driver.
#[derive(Debug)]
pub struct Opened {
    /// The connection.
    pub transport: Box<dyn Transport>,
    /// Driver that moves its bytes.
    pub driver: Box<dyn Driver>,
}

/// Waits for connections.
pub trait Listener: Debug + Send {
    /// Address on which it listens.
    fn address(&self) -> SocketAddr;

    /// The next one, or `None` when `wait` has passed.
    ///
    /// # Errors
    /// If no more connections can come.
    fn next(&mut self, wait: Duration) -> io::Result<Option<Box<dyn Request>>>;
}

/// A requested connection.
pub trait Request: Debug + Send {
    /// The requester.
    fn peer(&self) -> Option<SocketAddr>;

    /// Takes it.
    ///
    /// # Errors
    /// Errors of the system, and if the recording cannot be written.
    fn accept(self: Box<Self>, setup: &Setup) -> io::Result<Opened>;

    /// Answers with a fault, and returns when the peer is gone.
    ///
    /// # Errors
    /// Errors of the system; `Unsupported` if [`Kind::faults_below`] is false.
    fn fault(self: Box<Self>, fault: StartupFault, setup: &Setup) -> io::Result<()> {
        let _ = (fault, setup);
        Err(io::ErrorKind::Unsupported.into())
    }
}

/// A fault in the answer to a connection request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StartupFault {
    /// No reply is sent.
    Silent,
    /// The connection is refused.
    Reject,
    /// It is of another protocol.
    OtherProtocol,
}

/// A fault below SMB Direct on an established connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The beginning of a message, whose rest is never sent.
    Part,
    /// Bytes that are no message.
    Garbage,
    /// A message with a wrong checksum.
    BadChecksum,
    /// A message with a sequence number that is not the next.
    WrongSequence,
}

/// Capabilities of one connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Capabilities {
    /// True if the peer may end our regions by Send with Invalidate.
    pub remote_invalidation: bool,
    /// Maximum size of our Sends in bytes, if the transport has a limit of its own.
    pub send_max: Option<u32>,
    /// The first message has to be held back for a while, as the peer may miss it: see [`crate::smbd::SETTLE`].
    pub settle: bool,
}

/// ns since the Unix epoch, by a clock that does not run backwards.
pub type Time = i64;

/// Ties the monotonic clock to the calendar.
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    started: Instant,
    epoch: Time,
}

impl Clock {
    /// A clock that shows the system's time now, and does not follow when that is set.
    pub fn start() -> Self {
        /// Looks at both clocks, of which the one without an interruption is taken.
        const LOOKS: usize = 8;
        let look = || {
            let before = Instant::now();
            let epoch = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| d.as_nanos() as Time);
            let took = before.elapsed();
            (took, Self { started: before + took / 2, epoch })
        };
        let (first, others) = (look(), (1..LOOKS).map(|_| look()));
        others.fold(first, |best, next| if next.0 < best.0 { next } else { best }).1
    }

    /// Now.
    pub fn now(&self) -> Time {
        self.at(Instant::now())
    }

    /// The clock's time at this instant.
    pub fn at(&self, instant: Instant) -> Time {
        self.epoch + instant.saturating_duration_since(self.started).as_nanos() as Time
    }
}

/// Rights of the peer to a region.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Rights {
    /// RDMA Read.
    pub read: bool,
    /// RDMA Write.
    pub write: bool,
}

impl Rights {
    /// The sink of reads of our own: the peer may do nothing with it but answer.
    pub const LOCAL: Self = Self { read: false, write: false };
    /// The peer may read.
    pub const REMOTE_READ: Self = Self { read: true, write: false };
    /// The peer may write.
    pub const REMOTE_WRITE: Self = Self { read: false, write: true };
}

/// An advertised region.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Handle {
    /// Its key: STag on iWARP, R_Key elsewhere.
    pub key: u32,
    /// Tagged offset or address of its first byte.
    pub offset: u64,
    /// Length in bytes.
    pub length: u32,
}

/// An operation that cannot be carried out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum OpError {
    /// Not established, or over.
    #[error("the connection is not established")]
    NotEstablished,
    /// The peer answers no reads.
    #[error("the peer accepts no RDMA Reads: its inbound read depth is 0")]
    NoReads,
    /// The sink is not one of our regions, or too small.
    #[error("the sink of an RDMA Read is not a region of that size")]
    Sink,
    /// Too many operations at a time.
    #[error("too many operations wait")]
    Full,
    /// Longer than the transport's buffers.
    #[error("the message is longer than the buffers for it")]
    TooLong,
}

/// Reason for which a connection ended.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{text}")]
pub struct Ended {
    /// Class of the reason.
    pub why: Why,
    /// In the words of the transport.
    pub text: String,
}

/// Kinds of end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Why {
    /// We closed it.
    ByUs,
    /// The peer closed it.
    ByPeer,
    /// The peer refused it.
    Rejected,
    /// The peer broke a rule, did not answer, or has gone.
    Failed,
    /// The peer reports that we broke a rule.
    Accused,
}

/// An event of a connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// Operations can be posted.
    Established,
    /// A Send arrived completely.
    Received {
        /// Its bytes.
        message: Vec<u8>,
        /// Our key that it invalidated.
        invalidated: Option<u32>,
    },
    /// One of our reads is complete.
    ReadDone {
        /// Result of [`Transport::read`].
        id: u64,
    },
    /// It is over; nothing follows.
    Closed(Ended),
}

/// One end of a connection. It has no socket and no clock.
///
/// ```text
/// bytes of a stream   ─▶ handle_bytes    poll_transmit ─▶ bytes for the stream
/// now                 ─▶ handle_timeout  poll_timeout  ─▶ time to call it
/// user operations     ─▶ send write read poll_event    ─▶ events
/// ```
///
/// A transport of datagrams leaves the first line out and has [`Transport::datagrams`]; one whose adapter moves the
/// bytes has [`Transport::completions`].
pub trait Transport: Any + Debug + Send {
    /// Capabilities of the connection.
    fn capabilities(&self) -> Capabilities;

    // ---- in and out

    /// Takes bytes of the stream.
    fn handle_bytes(&mut self, now: Time, bytes: &[u8]) {
        let _ = (now, bytes);
    }

    /// The stream ended.
    fn handle_eof(&mut self, now: Time) {
        let _ = now;
    }

    /// Time has passed.
    fn handle_timeout(&mut self, now: Time) {
        let _ = now;
    }

    /// The time at which [`Transport::handle_timeout`] must be called.
    fn poll_timeout(&self) -> Option<Time> {
        None
    }

    /// The next bytes for the stream.
    fn poll_transmit(&mut self) -> Option<Vec<u8>> {
        None
    }

    /// Number of our bytes that are still to be sent.
    fn unsent(&self) -> usize;

    /// The next event.
    fn poll_event(&mut self) -> Option<Event>;

    /// Completions of an adapter, in place of a stream.
    fn completions(&mut self) -> Option<&mut dyn Completions> {
        None
    }

    /// The same for datagrams.
    fn datagrams(&mut self) -> Option<&mut dyn Datagrams> {
        None
    }

    // ---- operations

    /// True if operations can be posted.
    fn is_established(&self) -> bool;

    /// Registers `data` and grants `rights` to the peer. `None` if no more can be registered.
    fn register(&mut self, data: Vec<u8>, rights: Rights) -> Option<Handle>;

    /// Ends a region and returns its bytes.
    fn deregister(&mut self, key: u32) -> Option<Vec<u8>>;

    /// Number of bytes that the peer wrote into a region, if they are counted.
    fn written(&self, key: u32) -> Option<u64> {
        let _ = key;
        None
    }

    /// Sends a message; with `invalidate`, the peer's region of that key ends when it has arrived.
    ///
    /// # Errors
    /// If the connection is not established, or the message is too long.
    fn send(&mut self, message: &[u8], invalidate: Option<u32>, solicited: bool) -> Result<(), OpError>;

    /// Writes into the peer's memory.
    ///
    /// # Errors
    /// If the connection is not established.
    fn write(&mut self, key: u32, offset: u64, data: &[u8]) -> Result<(), OpError>;

    /// Reads the peer's memory into one of our regions. The returned number comes back in [`Event::ReadDone`].
    ///
    /// # Errors
    /// See [`OpError`].
    fn read(
        &mut self,
        sink: u32,
        sink_offset: u64,
        source: u32,
        source_offset: u64,
        length: u32,
    ) -> Result<u64, OpError>;

    /// Ends the connection in order.
    fn close(&mut self);

    /// Breaks a rule below SMB Direct. False if the transport does not support this.
    fn fault(&mut self, fault: Fault) -> bool {
        let _ = fault;
        false
    }

    // ---- the keeping of its wire

    /// These bytes of [`Transport::poll_transmit`] have left.
    fn record_sent(&mut self, now: Time, bytes: &[u8]) {
        let _ = (now, bytes);
    }

    /// Records new events of the transport; with `idle`, the user has read all messages so far.
    fn record_progress(&mut self, idle: bool) {
        let _ = idle;
    }

    /// Request `id` (its MessageId) grants the peer access to our memory.
    fn record_granted(&mut self, id: u64, memory: &[Handle]) {
        let _ = (id, memory);
    }

    /// Records a decrypted reply.
    fn record_reply(&mut self, now: Time, reply: &[u8]) {
        let _ = (now, reply);
    }

    /// Keeps that we closed our direction of the stream.
    fn record_closed(&mut self, now: Time) {
        let _ = now;
    }

    /// Hands all that was recorded to the operating system.
    fn record_flush(&self) {}

    /// Records the end of our connection, if that was not done before, and returns the file.
    fn record_end(&mut self, now: Time) -> Option<Wire> {
        let _ = now;
        None
    }
}

/// One end of a connection of datagrams.
pub trait Datagrams {
    /// Takes a datagram of the peer.
    fn handle_datagram(&mut self, now: Time, outside: &roce::packet::Outside, datagram: &[u8]);

    /// Appends the next datagram to `out`.
    fn poll_datagram(&mut self, now: Time, out: &mut Vec<u8>) -> Option<roce::Leaving>;

    /// This one of [`Datagrams::poll_datagram`] has left.
    fn datagram_sent(&mut self, now: Time, tos: u8, datagram: &[u8]);

    /// True if the peer knows that the connection is over, or cannot be reached.
    fn is_over(&self) -> bool;
}

/// Completions of an adapter that moves the bytes itself.
pub trait Completions {
    /// Processes completions. Returns true if there were any.
    ///
    /// # Errors
    /// Errors of the adapter.
    fn progress(&mut self) -> io::Result<bool>;

    /// Waits until something is completed, at most for `at_most`.
    ///
    /// # Errors
    /// Errors of the adapter.
    fn wait(&mut self, at_most: Duration) -> io::Result<()>;

    /// True if operations are outstanding.
    fn is_busy(&self) -> bool;
}

/// Moves the bytes of a [`Transport`]: the only part that blocks.
pub trait Driver: Debug + Send {
    /// Passes received bytes to the transport, and the transport's bytes to the network. Returns true if anything
    /// moved.
    ///
    /// # Errors
    /// Errors of the system.
    fn drive(&mut self, clock: &Clock, transport: &mut dyn Transport) -> io::Result<bool>;

    /// Waits until [`Driver::drive`] has something to do, at most for `at_most`.
    ///
    /// # Errors
    /// Errors of the system.
    fn wait(&mut self, transport: &mut dyn Transport, at_most: Duration) -> io::Result<()>;

    /// Tries for a moment to get the last bytes out, and closes our direction.
    fn flush(&mut self, clock: &Clock, transport: &mut dyn Transport);

    /// Closes our direction.
    ///
    /// # Errors
    /// Errors of the system.
    fn half_close(&mut self, clock: &Clock, transport: &mut dyn Transport) -> io::Result<()>;

    /// Bytes taken from the transport that are still to be sent.
    fn unsent(&self) -> usize {
        0
    }

    /// Reads nothing more while this many bytes or more are still to be sent.
    fn set_unsent_max(&mut self, bytes: usize) {
        let _ = bytes;
    }

    /// Passes only this number of bytes to the stream at a time.
    fn trickle(&mut self, bytes: usize) {
        let _ = bytes;
    }

    /// Reads until the peer is gone, and ignores the data.
    fn ignore(&mut self) {}

    /// Ends the connection abruptly.
    fn abort(&mut self) {}

    /// Gives up the connection, for drivers whose system does not do this when a socket is closed.
    fn leave(&mut self, clock: &Clock, transport: &mut dyn Transport) {
        let _ = (clock, transport);
    }

    /// Our address, if the connection uses a socket.
    fn local_address(&self) -> Option<SocketAddr> {
        None
    }
}
