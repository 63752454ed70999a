//! Wireshark's analysis of TCP streams, which is shown with each frame: stream numbers, relative sequence numbers,
//! scaled windows, and the analysis of sequence numbers and acknowledgments ([User's Guide, "TCP Analysis"][guide]). It
//! processes the frames one by one as Wireshark does, so that Wireshark's filters select the same frames here. Which
//! packets were lost, and by whom, is determined by the analyzer.
//!
//! [guide]: https://www.wireshark.org/docs/wsug_html_chunked/ChAdvTCPAnalysis.html

use rdmascope_dissector::field::Def;
use rdmascope_dissector::fields;
use rdmascope_dissector::frame::{Addr, Body, Packet};
use rdmascope_dissector::trace::{Trace, Value};
use rdmascope_dissector::wire::tcp::Segment;
use rdmascope_dissector::wire::tcp::flags::{ACK, FIN, PSH, RST, SYN};
use std::collections::{HashMap, VecDeque};

fields! {
    /// Fields of streams. The names are Wireshark's.
    pub mod f ["RFC 9293"] {
        NODE: None = "rdmascope.stream", "Stream";
        TCP_STREAM: U32 = "tcp.stream", "Stream index", dec;
        PACKET: U32 = "tcp.stream.pnum", "Stream Packet Number", dec;
        COMPLETENESS: U8 = "tcp.completeness", "Conversation completeness", dec;
        SEQ: U32 = "tcp.seq", "Sequence Number", dec;
        NEXT: U32 = "tcp.nxtseq", "Next Sequence Number", dec;
        ACK: U32 = "tcp.ack", "Acknowledgment Number", dec;
        WINDOW: U32 = "tcp.window_size", "Calculated window size", dec;
        SCALE: I32 = "tcp.window_size_scalefactor", "Window size scaling factor", dec;
        TIME_RELATIVE: RelTime = "tcp.time_relative", "Time since first frame in this TCP stream";
        TIME_DELTA: RelTime = "tcp.time_delta", "Time since previous frame in this TCP stream";
        CONNECTION_SYN: None = "tcp.connection.syn", "Connection establish request (SYN)";
        CONNECTION_SYNACK: None = "tcp.connection.synack", "Connection establish acknowledge (SYN+ACK)";
        CONNECTION_FIN: None = "tcp.connection.fin", "Connection finish (FIN)";
        CONNECTION_RST: None = "tcp.connection.rst", "Connection reset (RST)";
        ANALYSIS: None = "tcp.analysis", "SEQ/ACK analysis";
        ACKS_FRAME: FrameNum = "tcp.analysis.acks_frame", "This is an ACK to the segment in frame";
        ACK_RTT: RelTime = "tcp.analysis.ack_rtt", "The RTT to ACK the segment was";
        INITIAL_RTT: RelTime = "tcp.analysis.initial_rtt", "iRTT";
        IN_FLIGHT: U32 = "tcp.analysis.bytes_in_flight", "Bytes in flight", dec;
        PUSHED: U32 = "tcp.analysis.push_bytes_sent", "Bytes sent since last PSH flag", dec;
        DUPLICATE_NUMBER: U32 = "tcp.analysis.duplicate_ack_num", "Duplicate ACK #", dec;
        DUPLICATE_FRAME: FrameNum = "tcp.analysis.duplicate_ack_frame", "Duplicate to the ACK in frame";
        FLAGS: None = "tcp.analysis.flags", "TCP Analysis Flags";
        RTO: RelTime = "tcp.analysis.rto", "The RTO for this segment was";
        RTO_FRAME: FrameNum = "tcp.analysis.rto_frame", "RTO based on delta from frame";
        RETRANSMISSION: None = "tcp.analysis.retransmission", "This frame is a (suspected) retransmission";
        FAST_RETRANSMISSION: None = "tcp.analysis.fast_retransmission", "This frame is a (suspected) fast retransmission";
        SPURIOUS_RETRANSMISSION: None = "tcp.analysis.spurious_retransmission", "This frame is a (suspected) spurious \
            retransmission";
        OUT_OF_ORDER: None = "tcp.analysis.out_of_order", "This frame is a (suspected) out-of-order segment";
        REUSED_PORTS: None = "tcp.analysis.reused_ports", "A new tcp session is started with the same ports as an \
            earlier session in this trace";
        LOST_SEGMENT: None = "tcp.analysis.lost_segment", "Previous segment(s) not captured (common at capture start)";
        ACK_LOST_SEGMENT: None = "tcp.analysis.ack_lost_segment", "ACKed segment that wasn't captured (common at \
            capture start)";
        DUPLICATE_ACK: None = "tcp.analysis.duplicate_ack", "Duplicate ACK";
        WINDOW_UPDATE: None = "tcp.analysis.window_update", "TCP window update";
        WINDOW_FULL: None = "tcp.analysis.window_full", "TCP window specified by the receiver is now completely full";
        KEEP_ALIVE: None = "tcp.analysis.keep_alive", "TCP keep-alive segment";
        KEEP_ALIVE_ACK: None = "tcp.analysis.keep_alive_ack", "ACK to a TCP keep-alive segment";
        ZERO_WINDOW: None = "tcp.analysis.zero_window", "TCP Zero Window segment";
        ZERO_WINDOW_PROBE: None = "tcp.analysis.zero_window_probe", "TCP Zero Window Probe";
        ZERO_WINDOW_PROBE_ACK: None = "tcp.analysis.zero_window_probe_ack", "ACK to a TCP Zero Window Probe";
    }
}

/// Maximum number of streams. If there are more, all are removed and the numbers continue.
const STREAMS_MAX: usize = 1 << 16;
/// Maximum number of segments of one side that wait for an acknowledgment; the oldest is removed.
const UNACKED_MAX: usize = 4096;
/// A segment that follows repeated acknowledgments by less is a fast retransmission, ns.
const FAST: i64 = 20_000_000;
/// If no round-trip time is known: a segment that arrives later than a newer one by less than this is out of order, in
/// ns.
const EARLY: i64 = 3_000_000;

type Ends = ((Addr, u16), (Addr, u16));

/// The streams of a capture.
#[derive(Default)]
pub struct Streams {
    tcp: HashMap<Ends, Stream>,
    next: u32,
}

/// Position of a frame in the capture.
#[derive(Clone, Copy)]
pub struct FramePosition {
    /// Its number, from 1.
    pub number: u64,
    /// Its time, ns since the Unix epoch.
    pub time_ns: i64,
}

#[derive(Default)]
struct Stream {
    number: u32,
    packets: u32,
    completeness: u8,
    first_ns: i64,
    last_ns: i64,
    syn_ns: Option<i64>,
    initial_rtt: Option<i64>,
    sides: [Side; 2],
}

/// State of one side of a stream.
#[derive(Default)]
struct Side {
    /// The sequence number that counts as 0.
    base: Option<u32>,
    is_syn: bool,
    scale: Option<u8>,
    /// The sequence number after the highest that was sent, with the frame and the time that sent it.
    next: Option<(u32, FramePosition)>,
    /// The last acknowledgment: its unscaled window, its frame and time.
    acked: Option<Acked>,
    /// The last acknowledgment of bytes that were not captured.
    acked_beyond: Option<u32>,
    duplicates: u32,
    unacked: VecDeque<Unacked>,
    /// Bytes in the SACK blocks of its last segment.
    sacked: u32,
    pushed: u32,
    /// True if a segment is missing, so that the number of bytes in flight is unknown.
    is_unsure: bool,
    /// True if its last segment was a keep-alive.
    kept_alive: bool,
    probed: bool,
}

#[derive(Clone, Copy)]
struct Acked {
    ack: u32,
    window: u16,
    at: FramePosition,
}

#[derive(Clone, Copy)]
struct Unacked {
    seq: u32,
    next: u32,
    at: FramePosition,
}

/// Results of the analysis of one segment.
#[derive(Default)]
struct Remarks {
    flags: Vec<Def>,
    acks: Option<Unacked>,
    in_flight: Option<u32>,
    pushed: Option<u32>,
    duplicate: Option<(u32, u64)>,
    rto: Option<FramePosition>,
}

/// True if sequence number `a` is after `b`.
fn behind(a: u32, b: u32) -> bool {
    (a.wrapping_sub(b) as i32) > 0
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
    /// Number of streams so far.
    pub fn count(&self) -> u64 {
        self.next.into()
    }

    /// Takes a frame and reports it to the observer.
    pub fn frame<T: Trace>(&mut self, packet: &Packet<'_>, place: FramePosition, t: &mut T) {
        if let Body::Tcp(segment) = &packet.body {
            let (ends, side) = ends(packet, segment.src_port, segment.dst_port);
            self.segment(ends, side, segment, place, t);
        }
    }

    fn segment<T: Trace>(&mut self, ends: Ends, side: usize, s: &Segment<'_>, place: FramePosition, t: &mut T) {
        let (syn, ack) = (s.flags & SYN != 0, s.flags & ACK != 0);
        if self.tcp.len() >= STREAMS_MAX {
            self.tcp.clear();
        }
        // the same ports with another first number are another stream
        let before = self.tcp.get(&ends);
        let is_reused =
            before.is_some_and(|stream| syn && !ack && stream.sides[side].base.is_some_and(|base| base != s.seq));
        if is_reused || before.is_none() {
            let stream =
                Stream { number: self.next, first_ns: place.time_ns, last_ns: place.time_ns, ..Stream::default() };
            self.tcp.insert(ends, stream);
            self.next = self.next.wrapping_add(1);
        }
        let Some(stream) = self.tcp.get_mut(&ends) else { return };
        stream.take(side, s, place, is_reused, t);
    }
}

impl Stream {
    fn take<T: Trace>(&mut self, side: usize, s: &Segment<'_>, place: FramePosition, is_reused: bool, t: &mut T) {
        let has = |flag: u8| s.flags & flag != 0;
        let (syn, ack, fin) = (has(SYN), has(ACK), has(FIN));
        self.packets = self.packets.wrapping_add(1);
        let [relative, delta] = [self.first_ns, self.last_ns].map(|before| place.time_ns.saturating_sub(before));
        self.last_ns = place.time_ns;
        // the value before this segment
        let completeness = self.completeness;
        let is_handshake_end = self.completeness & 7 == 3 && ack && !syn;
        self.completeness |= match (syn, ack) {
            (true, false) => 1,
            (true, true) => 2,
            (false, true) if self.completeness & 2 != 0 => 4,
            _ => 0,
        };
        self.completeness |= (u8::from(s.payload_length > 0) * 8) | (u8::from(fin) * 16) | (u8::from(has(RST)) * 32);
        if syn && !ack {
            self.syn_ns = Some(place.time_ns);
        }
        if let (true, Some(from)) = (is_handshake_end, self.syn_ns) {
            self.initial_rtt.get_or_insert(place.time_ns.saturating_sub(from));
        }
        let (first, second) = self.sides.split_at_mut(1);
        let (me, them) = if side == 0 { (&mut first[0], &mut second[0]) } else { (&mut second[0], &mut first[0]) };
        if syn {
            (me.base, me.is_syn, me.scale) = (Some(s.seq), true, s.window_scale);
        }
        let base = *me.base.get_or_insert(s.seq.wrapping_sub(1));
        let end = s.seq.wrapping_add(s.payload_length).wrapping_add(u32::from(syn) + u32::from(fin));
        let scale = match (syn, me.is_syn && them.is_syn, me.scale, them.scale) {
            (false, true, Some(scale), Some(_)) => scale.min(14),
            _ => 0,
        };
        let factor = match (syn, me.is_syn && them.is_syn, me.scale, them.scale) {
            (true, ..) => None,
            (_, true, Some(scale), Some(_)) => Some(1_i64 << scale.min(14)),
            (_, true, ..) => Some(-2),
            _ => Some(-1),
        };
        let acked = if ack { s.ack.wrapping_sub(*them.base.get_or_insert(s.ack.wrapping_sub(1))) } else { 0 };
        let mut remarks = Remarks::default();
        if is_reused {
            remarks.flags.push(f::REUSED_PORTS);
        }
        classify(me, them, s, end, place, self.initial_rtt, &mut remarks);
        if !T::ON {
            return;
        }
        let at: &[u8] = &[];
        let number = |t: &mut T, def: Def, value: u32| t.field(def, at, 0, Value::U(u64::from(value)));
        t.open(f::NODE, at);
        number(t, f::TCP_STREAM, self.number);
        number(t, f::PACKET, self.packets);
        number(t, f::COMPLETENESS, u32::from(completeness));
        number(t, f::SEQ, s.seq.wrapping_sub(base));
        number(t, f::NEXT, end.wrapping_sub(base));
        number(t, f::ACK, acked);
        number(t, f::WINDOW, u32::from(s.window) << scale);
        if let Some(factor) = factor {
            t.field(f::SCALE, at, 0, Value::I(factor));
        }
        for (is, def) in [
            (syn && !ack, f::CONNECTION_SYN),
            (syn && ack, f::CONNECTION_SYNACK),
            (fin, f::CONNECTION_FIN),
            (has(RST), f::CONNECTION_RST),
        ] {
            if is {
                t.field(def, at, 0, Value::None);
            }
        }
        time(t, f::TIME_RELATIVE, relative);
        time(t, f::TIME_DELTA, delta);
        remarks.trace(self.initial_rtt, place, t);
        t.close(at);
    }
}

/// Classifies a segment that ends at `end` as Wireshark does, from the earlier segments of both sides. Updates their
/// state.
fn classify(
    me: &mut Side,
    them: &mut Side,
    s: &Segment<'_>,
    end: u32,
    place: FramePosition,
    rtt: Option<i64>,
    remarks: &mut Remarks,
) {
    let has = |flag: u8| s.flags & flag != 0;
    let (plain, len) = (!has(SYN) && !has(FIN) && !has(RST), s.payload_length);
    let at_next = me.next.is_some_and(|(next, _)| next == s.seq);
    let same_ack = has(ACK) && me.acked.is_some_and(|a| a.ack == s.ack);
    let same_window = me.acked.is_some_and(|a| a.window == s.window);
    let (was_alive, was_probed) = (them.kept_alive, them.probed);
    let probe = len == 1 && at_next && them.acked.is_some_and(|a| a.window == 0);
    let alive = len <= 1 && plain && !probe && me.next.is_some_and(|(next, _)| s.seq == next.wrapping_sub(1));
    let mut flag = |def: Def, is: bool| {
        if is {
            remarks.flags.push(def);
        }
        is
    };
    flag(f::ZERO_WINDOW_PROBE, probe);
    flag(f::ZERO_WINDOW, s.window == 0 && plain);
    me.is_unsure |= flag(f::LOST_SEGMENT, me.next.is_some_and(|(next, _)| behind(s.seq, next)) && !has(RST));
    flag(f::KEEP_ALIVE, alive);
    let empty = len == 0 && plain && at_next && same_ack;
    // an acknowledgment with SACK blocks repeats the one before, whatever its window is
    let same_window = same_window || empty && s.sack_count > 0;
    flag(f::WINDOW_UPDATE, empty && !same_window);
    if let (true, Some(window)) = (len > 0 && plain, them.acked) {
        let scale = match (me.is_syn && them.is_syn, me.scale, them.scale) {
            (true, Some(_), Some(scale)) => Some(scale.min(14)),
            (true, ..) => Some(0),
            _ => None,
        };
        let full = scale.is_some_and(|scale| end == window.ack.wrapping_add(u32::from(window.window) << scale));
        flag(f::WINDOW_FULL, full);
    }
    let repeated = empty && s.window != 0 && same_window;
    let answered = flag(f::KEEP_ALIVE_ACK, repeated && was_alive)
        | flag(f::ZERO_WINDOW_PROBE_ACK, empty && s.window == 0 && was_probed);
    if flag(f::DUPLICATE_ACK, repeated && !answered) {
        me.duplicates = me.duplicates.saturating_add(1);
        remarks.duplicate = me.acked.map(|a| (me.duplicates, a.at.number));
    } else if !same_ack {
        me.duplicates = 0;
    }
    // acknowledgments of segments that were not captured
    if let Some((next, _)) = them.next
        && has(ACK)
        && !has(RST)
        && behind(s.ack, next)
        && them.acked_beyond.is_none_or(|beyond| behind(s.ack, beyond))
    {
        remarks.flags.push(f::ACK_LOST_SEGMENT);
        them.is_unsure = true;
        // told once; the segment behind what was not captured still shows that
        them.acked_beyond = Some(s.ack);
    }
    if let Some((next, at)) = me.next
        && (len > 0 || has(SYN) || has(FIN))
        && behind(next, s.seq)
        && !alive
    {
        let since = |from: FramePosition| place.time_ns.saturating_sub(from.time_ns);
        let acked = them.acked;
        if len > 0 && acked.is_some_and(|a| !behind(end, a.ack)) {
            remarks.flags.push(f::SPURIOUS_RETRANSMISSION);
            remarks.flags.push(f::RETRANSMISSION);
        } else if them.duplicates >= 2 && acked.is_some_and(|a| a.ack == s.seq && since(a.at) < FAST) {
            remarks.flags.push(f::FAST_RETRANSMISSION);
            remarks.flags.push(f::RETRANSMISSION);
        } else if since(at) < rtt.unwrap_or(EARLY) && next != end {
            remarks.flags.push(f::OUT_OF_ORDER);
        } else {
            remarks.flags.push(f::RETRANSMISSION);
            let first = me.unacked.iter().find(|u| u.seq == s.seq).map_or(at, |u| u.at);
            if since(first) > 0 {
                remarks.rto = Some(first);
            }
        }
    }
    // the data that it acknowledges
    if has(ACK) {
        remarks.acks = them.unacked.iter().rev().find(|u| u.next == s.ack).copied();
        them.unacked.retain_mut(|u| {
            // a part of it may be acknowledged
            if behind(s.ack, u.seq) {
                u.seq = s.ack;
            }
            behind(u.next, s.ack)
        });
        them.is_unsure &= !them.unacked.is_empty();
    }
    if len > 0 || has(SYN) || has(FIN) {
        if me.unacked.len() >= UNACKED_MAX {
            me.unacked.pop_front();
        }
        if !me.unacked.iter().any(|u| u.seq == s.seq && u.next == end) {
            me.unacked.push_back(Unacked { seq: s.seq, next: end, at: place });
        }
    }
    if me.next.is_none_or(|(next, _)| behind(end, next)) && !(has(RST) && len == 0) {
        me.next = Some((end, place));
    }
    if len > 0 {
        let first = me.unacked.iter().map(|u| u.seq).reduce(|a, b| if behind(a, b) { b } else { a });
        let next =
            me.unacked.iter().map(|u| u.next).reduce(|a, b| if behind(b, a) { b } else { a }).filter(|_| !me.is_unsure);
        // less the bytes that the peer received out of order, or twice, as Wireshark counts
        let bytes = first.zip(next).map(|(first, next)| next.wrapping_sub(first).wrapping_sub(them.sacked));
        // SYN and FIN count in sequence numbers only
        remarks.in_flight = bytes.filter(|n| *n > 0 && *n < 1 << 31).map(|n| n - u32::from(has(SYN) || has(FIN)));
        me.pushed = me.pushed.saturating_add(len);
        remarks.pushed = Some(me.pushed).filter(|_| !me.is_unsure);
        if has(PSH) {
            me.pushed = 0;
        }
    }
    if has(ACK) {
        // repeated acknowledgments are distinguished from the first
        let at = me.acked.filter(|a| same_ack && a.window == s.window && len == 0).map_or(place, |a| a.at);
        me.acked = Some(Acked { ack: s.ack, window: s.window, at });
    }
    let blocks = s.sacks.iter().take(s.sack_count.into());
    me.sacked = blocks.fold(0, |bytes, (left, right)| bytes.wrapping_add(right.wrapping_sub(*left)));
    (me.kept_alive, me.probed) = (alive, probe);
}

impl Remarks {
    fn trace<T: Trace>(&self, rtt: Option<i64>, place: FramePosition, t: &mut T) {
        let is_empty =
            self.flags.is_empty() && self.acks.is_none() && self.in_flight.is_none() && self.pushed.is_none();
        if is_empty {
            return;
        }
        let at: &[u8] = &[];
        let number = |t: &mut T, def: Def, value: u64| t.field(def, at, 0, Value::U(value));
        t.open(f::ANALYSIS, at);
        if let Some(acked) = self.acks {
            number(t, f::ACKS_FRAME, acked.at.number);
            time(t, f::ACK_RTT, place.time_ns.saturating_sub(acked.at.time_ns));
        }
        if let Some(rtt) = rtt {
            time(t, f::INITIAL_RTT, rtt);
        }
        if let Some(bytes) = self.in_flight {
            number(t, f::IN_FLIGHT, u64::from(bytes));
        }
        if let Some(bytes) = self.pushed {
            number(t, f::PUSHED, u64::from(bytes));
        }
        if !self.flags.is_empty() {
            t.open(f::FLAGS, at);
            for flag in &self.flags {
                t.field(flag, at, 0, Value::None);
            }
            if let Some(from) = self.rto {
                time(t, f::RTO, place.time_ns.saturating_sub(from.time_ns));
                number(t, f::RTO_FRAME, from.number);
            }
            t.close(at);
        }
        if let Some((count, frame)) = self.duplicate {
            number(t, f::DUPLICATE_NUMBER, u64::from(count));
            number(t, f::DUPLICATE_FRAME, frame);
        }
        t.close(at);
    }
}

fn time<T: Trace>(t: &mut T, def: Def, ns: i64) {
    let value = Value::Time { seconds: ns.div_euclid(1_000_000_000), nanos: ns.rem_euclid(1_000_000_000) as u32 };
    t.field(def, &[], 0, value);
}
