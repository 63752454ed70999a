//! What Wireshark counts along TCP streams and shows with each frame: stream numbers, sequence numbers from the start of the stream, and
//! scaled windows. What was lost and sent again is the analyzer's to say.

use rdmascope_dissector::field::Def;
use rdmascope_dissector::fields;
use rdmascope_dissector::frame::{Addr, Body, Packet};
use rdmascope_dissector::trace::{Trace, Value};
use rdmascope_dissector::wire::tcp::Segment;
use std::collections::HashMap;

fields! {
    /// Fields of streams. The names are Wireshark's.
    pub mod f ["RFC 9293"] {
        NODE: None = "rdmascope.stream", "Stream";
        TCP_STREAM: U32 = "tcp.stream", "Stream index", dec;
        SEQ: U32 = "tcp.seq", "Sequence Number", dec;
        NEXT: U32 = "tcp.nxtseq", "Next Sequence Number", dec;
        ACK: U32 = "tcp.ack", "Acknowledgment Number", dec;
        WINDOW: U32 = "tcp.window_size", "Calculated window size", dec;
    }
}

/// Streams at most. When there are more, all are forgotten and their numbers go on.
const STREAMS_MAX: usize = 1 << 16;
type Ends = ((Addr, u16), (Addr, u16));

/// The streams of a capture.
#[derive(Default)]
pub struct Streams {
    tcp: HashMap<Ends, Stream>,
    next: u32,
}

#[derive(Clone, Copy, Default)]
struct Stream {
    number: u32,
    sides: [Side; 2],
}

/// What one side sent.
#[derive(Clone, Copy, Default)]
struct Side {
    /// The sequence number that counts as 0.
    base: Option<u32>,
    is_syn: bool,
    scale: Option<u8>,
}

/// The ends in a fixed order, and which of them sends.
fn ends(packet: &Packet<'_>, src: u16, dst: u16) -> (Ends, usize) {
    let key = |a: Addr| match a {
        Addr::None => (0, [0; 16]),
        Addr::V4(b) => (1, wide(&b)),
        Addr::V6(b) => (2, b),
        Addr::Lid(lid) => (3, wide(&lid.to_be_bytes())),
        Addr::Mac(b) => (4, wide(&b)),
    };
    let (a, b) = ((packet.src, src), (packet.dst, dst));
    if (key(a.0), a.1) <= (key(b.0), b.1) { ((a, b), 0) } else { ((b, a), 1) }
}

fn wide(bytes: &[u8]) -> [u8; 16] {
    let mut out = [0; 16];
    out[..bytes.len()].copy_from_slice(bytes);
    out
}

impl Streams {
    /// Takes in a frame and tells the observer of it.
    pub fn frame<T: Trace>(&mut self, packet: &Packet<'_>, t: &mut T) {
        if let Body::Tcp(segment) = &packet.body {
            let (ends, side) = ends(packet, segment.src_port, segment.dst_port);
            self.segment(ends, side, segment, t);
        }
    }

    fn segment<T: Trace>(&mut self, ends: Ends, side: usize, s: &Segment<'_>, t: &mut T) {
        let (syn, ack, fin) = (s.flags & 2 != 0, s.flags & 0x10 != 0, s.flags & 1 != 0);
        if self.tcp.len() >= STREAMS_MAX {
            self.tcp.clear();
        }
        // the same ports with another first number are another stream
        let is_new = self.tcp.get(&ends).is_none_or(|stream| syn && !ack && stream.sides[side].base.is_some_and(|base| base != s.seq));
        if is_new {
            self.tcp.insert(ends, Stream { number: self.next, ..Stream::default() });
            self.next = self.next.wrapping_add(1);
        }
        let Some(stream) = self.tcp.get_mut(&ends) else { return };
        let number = stream.number;
        let other = stream.sides[1 - side];
        let me = &mut stream.sides[side];
        if syn {
            (me.base, me.is_syn, me.scale) = (Some(s.seq), true, s.window_scale);
        }
        let base = *me.base.get_or_insert(s.seq.wrapping_sub(1));
        let next = s.seq.wrapping_add(s.payload_length).wrapping_add(u32::from(syn) + u32::from(fin));
        let scale = match (syn, me.is_syn && other.is_syn, me.scale, other.scale) {
            (false, true, Some(scale), Some(_)) => scale.min(14),
            _ => 0,
        };
        let theirs = &mut stream.sides[1 - side];
        let acked = if ack { s.ack.wrapping_sub(*theirs.base.get_or_insert(s.ack.wrapping_sub(1))) } else { 0 };
        let values = [
            (f::TCP_STREAM, number),
            (f::SEQ, s.seq.wrapping_sub(base)),
            (f::NEXT, next.wrapping_sub(base)),
            (f::ACK, acked),
            (f::WINDOW, u32::from(s.window) << scale),
        ];
        tell(t, &values);
    }
}

fn tell<T: Trace>(t: &mut T, values: &[(Def, u32)]) {
    if !T::ON {
        return;
    }
    let at: &[u8] = &[];
    t.open(f::NODE, at);
    for (def, value) in values {
        t.field(def, at, 0, Value::U(u64::from(*value)));
    }
    t.close(at);
}
