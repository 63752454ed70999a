//! What carries SMB Direct: iWARP in user space, or a card through its verbs. [`Rdma`] is one connection of either, with the operations that
//! both have.

use crate::channel::End;
use crate::iwarp::memory::{Handle, Rights};
use crate::iwarp::{self, OpError, Time};
#[cfg(target_os = "linux")]
use rdmascope_verbs as verbs;

/// Which of the two a connection is to use.
#[derive(Clone, Copy, Debug, Default)]
#[non_exhaustive]
pub enum Transport {
    /// iWARP in user space, over TCP.
    #[default]
    Iwarp,
    /// A card: RoCE, InfiniBand or iWARP.
    #[cfg(target_os = "linux")]
    Verbs(verbs::Verbs),
}

impl Transport {
    /// The port of SMB Direct where none is given: on iWARP it has one of its own (\[MS-SMBD\] 2.1).
    pub fn port(self) -> u16 {
        match self {
            Self::Iwarp => 5445,
            #[cfg(target_os = "linux")]
            Self::Verbs(_) => 445,
        }
    }
}

/// A connection.
#[derive(Debug)]
pub enum Rdma {
    /// iWARP in user space, without its socket.
    Iwarp(Box<iwarp::Connection>),
    /// A card's.
    #[cfg(target_os = "linux")]
    Verbs(Box<verbs::Connection>),
}

/// What happened on one.
pub(crate) enum Happened {
    /// Operations can be asked for.
    Established,
    /// A Send arrived whole.
    Received { message: Vec<u8>, invalidated: Option<u32> },
    /// A read of ours is complete.
    ReadDone { id: u64 },
    /// It is over.
    Closed(End),
}

#[cfg(target_os = "linux")]
fn refused(e: verbs::Error) -> OpError {
    match e {
        verbs::Error::Region(_) => OpError::Sink,
        verbs::Error::TooLong { .. } => OpError::TooLong,
        _ => OpError::NotEstablished,
    }
}

impl Rdma {
    /// Takes bytes of the stream; a card has none.
    pub fn handle_bytes(&mut self, now: Time, bytes: &[u8]) {
        if let Self::Iwarp(c) = self {
            c.handle_bytes(now, bytes);
        }
    }

    /// The stream ended.
    pub fn handle_eof(&mut self, now: Time) {
        if let Self::Iwarp(c) = self {
            c.handle_eof(now);
        }
    }

    /// Time has passed.
    pub fn handle_timeout(&mut self, now: Time) {
        if let Self::Iwarp(c) = self {
            c.handle_timeout(now);
        }
    }

    /// When [`Rdma::handle_timeout`] is to be called.
    pub fn poll_timeout(&self) -> Option<Time> {
        match self {
            Self::Iwarp(c) => c.poll_timeout(),
            #[cfg(target_os = "linux")]
            Self::Verbs(_) => None,
        }
    }

    /// The next bytes for the stream; a card has none.
    pub fn poll_transmit(&mut self) -> Option<Vec<u8>> {
        match self {
            Self::Iwarp(c) => c.poll_transmit(),
            #[cfg(target_os = "linux")]
            Self::Verbs(_) => None,
        }
    }

    pub(crate) fn poll_event(&mut self) -> Option<Happened> {
        match self {
            Self::Iwarp(c) => Some(match c.poll_event()? {
                iwarp::Event::Established { .. } => Happened::Established,
                iwarp::Event::Received { message, invalidated } => Happened::Received { message, invalidated },
                iwarp::Event::ReadDone { id } => Happened::ReadDone { id },
                iwarp::Event::Closed(why) => Happened::Closed(why.into()),
            }),
            #[cfg(target_os = "linux")]
            Self::Verbs(c) => Some(match c.poll_event()? {
                verbs::Event::Received { message, invalidated } => Happened::Received { message, invalidated },
                verbs::Event::ReadDone { id } => Happened::ReadDone { id },
                verbs::Event::Closed(why) => Happened::Closed(End::Card(why)),
            }),
        }
    }

    /// Whether operations can be asked for.
    pub fn is_established(&self) -> bool {
        match self {
            Self::Iwarp(c) => c.is_established(),
            #[cfg(target_os = "linux")]
            Self::Verbs(c) => c.is_established(),
        }
    }

    /// Whether the peer may be asked to end regions of ours by Send with Invalidate.
    pub fn can_be_invalidated(&self) -> bool {
        match self {
            Self::Iwarp(_) => true,
            #[cfg(target_os = "linux")]
            Self::Verbs(c) => c.can_be_invalidated(),
        }
    }

    /// Lets the peer at `data`, as far as `rights` go. `None` where no more can be registered.
    pub fn register(&mut self, data: Vec<u8>, rights: Rights) -> Option<Handle> {
        match self {
            Self::Iwarp(c) => c.register(data, rights),
            #[cfg(target_os = "linux")]
            Self::Verbs(c) => {
                let region = c.register(data, verbs::Rights { read: rights.read, write: rights.write }).ok()?;
                Some(Handle { key: region.key, offset: region.offset, length: region.length })
            }
        }
    }

    /// Ends a region and gives its bytes back.
    pub fn deregister(&mut self, key: u32) -> Option<Vec<u8>> {
        match self {
            Self::Iwarp(c) => c.deregister(key),
            #[cfg(target_os = "linux")]
            Self::Verbs(c) => c.deregister(key),
        }
    }

    /// Bytes that the peer wrote into a region; a card does not count them.
    pub fn written(&self, key: u32) -> Option<u64> {
        match self {
            Self::Iwarp(c) => Some(c.memory().written(key)),
            #[cfg(target_os = "linux")]
            Self::Verbs(_) => None,
        }
    }

    /// Sends a message; with `invalidate`, the peer's region of that key ends when it has arrived.
    ///
    /// # Errors
    /// Where the connection is not established, or a card's buffers are too short for it.
    pub fn send(&mut self, message: &[u8], invalidate: Option<u32>, solicited: bool) -> Result<(), OpError> {
        match self {
            Self::Iwarp(c) => c.send(message, invalidate, solicited),
            #[cfg(target_os = "linux")]
            Self::Verbs(c) => c.send(message, invalidate, solicited).map_err(refused),
        }
    }

    /// Writes into the peer's memory.
    ///
    /// # Errors
    /// Where the connection is not established.
    pub fn write(&mut self, key: u32, offset: u64, data: &[u8]) -> Result<(), OpError> {
        match self {
            Self::Iwarp(c) => c.write(key, offset, data),
            #[cfg(target_os = "linux")]
            Self::Verbs(c) => c.write(key, offset, data.to_vec()).map_err(refused),
        }
    }

    /// Reads the peer's memory into a region of ours. The number given comes back with the end of it.
    ///
    /// # Errors
    /// See [`OpError`].
    pub fn read(&mut self, sink: u32, sink_offset: u64, source: u32, source_offset: u64, length: u32) -> Result<u64, OpError> {
        match self {
            Self::Iwarp(c) => c.read(sink, sink_offset, source, source_offset, length),
            #[cfg(target_os = "linux")]
            Self::Verbs(c) if c.depths().1 == 0 => Err(OpError::NoReads),
            #[cfg(target_os = "linux")]
            Self::Verbs(c) => c.read(sink, sink_offset, source, source_offset, length).map_err(refused),
        }
    }

    /// See [`iwarp::Connection::transmit_segment`]; a card makes its own, and nothing is sent.
    pub fn transmit_segment(&mut self, ulpdu: &[u8]) {
        if let Self::Iwarp(c) = self {
            c.transmit_segment(ulpdu);
        }
    }

    /// See [`iwarp::Connection::transmit_bytes`]; a card has no stream, and nothing is sent.
    pub fn transmit_bytes(&mut self, bytes: &[u8]) {
        if let Self::Iwarp(c) = self {
            c.transmit_bytes(bytes);
        }
    }

    /// Ends the connection in order.
    pub fn close(&mut self) {
        match self {
            Self::Iwarp(c) => c.close(),
            #[cfg(target_os = "linux")]
            Self::Verbs(c) => c.close(),
        }
    }
}
