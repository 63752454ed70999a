//! The stream of one of our TCP connections, in constructed segments.

use crate::wire::{Wire, addresses, frame, transport_checksum};
use rdmascope_dissector::wire::ip::TCP;
use rdmascope_dissector::wire::tcp::flags::{ACK, FIN, PSH, SYN};
use std::net::{IpAddr, SocketAddr};

/// Maximum number of bytes of the stream in one frame.
const SEGMENT: usize = 16_384;
/// No operation, and a window scale of 7, as every system offers it (RFC 7323 2.2): a socket does not report the
/// negotiated value.
const WINDOW_SCALE: [u8; 4] = [1, 3, 3, 7];
const DESCRIPTION: &str = "Our own TCP connections: the bytes of the streams, in synthetic segments";

/// Writes one connection.
#[derive(Debug)]
pub(crate) struct Stream {
    pub(super) wire: Wire,
    interface: u32,
    /// Ours and the peer's.
    ends: [(IpAddr, u16); 2],
    sequence: [u32; 2],
    /// By end, ours first: true if its direction is closed.
    closed: [bool; 2],
}

impl Stream {
    /// A connection between us and the peer, with the three frames that open it at `now` (ns since 1970).
    /// `we_connected` is true if we opened it.
    pub(crate) fn new(wire: Wire, us: SocketAddr, peer: SocketAddr, we_connected: bool, now: i64) -> Self {
        let (interface, _) = wire.open("rdmascope iwarp", DESCRIPTION);
        let client = usize::from(!we_connected);
        let mut stream = Self { wire, interface, ends: addresses(us, peer), sequence: [0; 2], closed: [false; 2] };
        // both ends know the client's port: their recordings have the same numbers, and other connections have others
        let from = u32::from(stream.ends[client].1) << 16;
        stream.sequence[client] = from | 1000;
        stream.sequence[1 - client] = from | 2000;
        stream.frame(now, client, SYN, &[]);
        stream.sequence[client] += 1;
        stream.frame(now, 1 - client, SYN | ACK, &[]);
        stream.sequence[1 - client] += 1;
        stream.frame(now, client, ACK, &[]);
        stream
    }

    /// Bytes that we sent.
    pub(crate) fn sent(&mut self, now: i64, bytes: &[u8]) {
        self.stream(now, 0, bytes);
    }

    /// Records received bytes.
    pub(crate) fn received(&mut self, now: i64, bytes: &[u8]) {
        self.stream(now, 1, bytes);
    }

    /// One end (ours or the peer's) closed its direction, if it had not before.
    pub(crate) fn closed(&mut self, now: i64, by_us: bool) {
        let from = usize::from(!by_us);
        if !core::mem::replace(&mut self.closed[from], true) {
            self.frame(now, from, FIN | ACK, &[]);
            self.sequence[from] = self.sequence[from].wrapping_add(1);
        }
    }

    fn stream(&mut self, now: i64, from: usize, bytes: &[u8]) {
        for piece in bytes.chunks(SEGMENT) {
            self.frame(now, from, PSH | ACK, piece);
            self.sequence[from] = self.sequence[from].wrapping_add(piece.len() as u32);
        }
    }

    fn frame(&mut self, now: i64, from: usize, flags: u8, payload: &[u8]) {
        let mut tcp = Vec::with_capacity(20 + payload.len());
        tcp.extend_from_slice(&self.ends[from].1.to_be_bytes());
        tcp.extend_from_slice(&self.ends[1 - from].1.to_be_bytes());
        tcp.extend_from_slice(&self.sequence[from].to_be_bytes());
        let ack = if flags & ACK == 0 { 0 } else { self.sequence[1 - from] };
        tcp.extend_from_slice(&ack.to_be_bytes());
        let options: &[u8] = if flags & SYN == 0 { &[] } else { &WINDOW_SCALE };
        tcp.extend_from_slice(&[0x50 + ((options.len() as u8 / 4) << 4), flags, 0xff, 0xff, 0, 0, 0, 0]);
        tcp.extend_from_slice(options);
        tcp.extend_from_slice(payload);
        let sum = transport_checksum(&self.ends, from, TCP, &tcp);
        tcp[16..18].copy_from_slice(&sum);
        self.wire.frame(self.interface, now, &frame(&self.ends, from, TCP, 0, &tcp), &[]);
    }
}
