//! Dissection of one frame, from its record to an observer: first the metadata of the capture, then the bytes. All
//! commands decode frames here.

use crate::streams::{self, Streams};
use rdmascope_analyzer::env::Options;
use rdmascope_analyzer::exchange::Exchange;
use rdmascope_analyzer::keys::Keyring;
use rdmascope_analyzer::notes::FirstPass;
use rdmascope_analyzer::pieces::Assembly;
use rdmascope_analyzer::pipeline::{Counts, FrameMeta, Pipeline};
use rdmascope_analyzer::report::{Quiet, Report, Sink};
use rdmascope_capture::{Interface, Record, Source};
use rdmascope_dissector::frame::{self, Addr, Checked, Packet};
use rdmascope_dissector::trace::{Off, Trace};
use rdmascope_dissector::wire::frame_fields::{self, FrameInfo};
use std::fmt;
use std::sync::Arc;

/// Dissects the frames of a capture, in order.
pub struct Dissection {
    /// State from earlier frames that later frames need: connections, partial messages, requests that wait for a reply.
    pipeline: Pipeline,
    /// UDP port of RoCEv2 in addition to its own; 0 for none.
    roce_port: u16,
    streams: Streams,
    number: u64,
    first_ns: Option<i64>,
    previous_ns: i64,
    /// Interfaces whose speed the analysis knows.
    interfaces: usize,
}

/// Listens for which frame answers which.
#[derive(Clone, Default)]
struct Ahead(FirstPass);

impl Sink for Ahead {
    fn exchange(&mut self, exchange: &Exchange) {
        self.0.add(exchange);
    }

    fn assembled(&mut self, what: Assembly, frame: u64, frames: &[u64]) {
        self.0.assembled(what, frame, frames);
    }
}

/// Makes a first pass over a capture, up to where it is damaged and over `frames` frames at most: finds the frame that
/// answers each request, and the findings of each frame.
pub fn first_pass(source: &mut impl Source, keyring: Keyring, roce_port: u16, frames: u64) -> FirstPass {
    let mut pipeline = Pipeline::with_sink(Options { keyring, ..Options::default() }, Ahead::default());
    let mut options = pipeline.decode_options();
    if roce_port != 0 {
        options.roce_port = roce_port;
    }
    let (mut number, mut now, mut interfaces) = (0, 0, 0);
    while number < frames
        && let Ok(true) = source.advance()
    {
        known_speeds(&mut pipeline, &mut interfaces, source.interfaces());
        let record = source.record();
        number += 1;
        now = if record.has_time() { record.time_ns } else { now };
        let packet = frame::decode(record.link_type, record.bytes, record.wire_len, &options, &mut Off);
        let Record { link_type, wire_len, interface, .. } = record;
        pipeline.packet(&FrameMeta { number, time_ns: now, link_type, wire_len, interface }, &packet, &mut Off);
    }
    let (report, Ahead(mut first_pass)) = pipeline.finish();
    first_pass.found(&report.findings);
    first_pass
}

/// Tells an analysis before a frame how fast new interfaces of its capture are; `known` is the number of those that it
/// was told of.
#[inline]
pub(crate) fn known_speeds<S: Sink>(pipeline: &mut Pipeline<S>, known: &mut usize, interfaces: &[Interface]) {
    if *known != interfaces.len() {
        new_speeds(pipeline, known, interfaces);
    }
}

#[cold]
fn new_speeds<S: Sink>(pipeline: &mut Pipeline<S>, known: &mut usize, interfaces: &[Interface]) {
    for (place, interface) in interfaces.iter().enumerate().skip(*known) {
        if let (Ok(place), Some(bits)) = (u32::try_from(place), interface.speed) {
            pipeline.link_speed(place, bits);
        }
    }
    *known = interfaces.len();
}

/// Facts about earlier frames that are displayed with a frame. Needed when one [`Dissection`] does not see all frames
/// in order.
#[derive(Clone, Copy, Debug)]
pub struct Before {
    /// Number of the frame, from 1.
    pub number: u64,
    /// Time of the first frame of the capture, ns since the Unix epoch.
    pub first_ns: i64,
    /// Time of the frame before; 0 for the first.
    pub previous_ns: i64,
}

/// Times of a capture, as far as read.
#[derive(Clone, Copy, Debug, Default)]
pub struct Past {
    first_ns: Option<i64>,
    previous_ns: i64,
}

impl Past {
    /// Returns the facts about earlier frames that are displayed with the next one.
    pub fn before(&mut self, meta: &FrameMeta) -> Before {
        let first_ns = *self.first_ns.get_or_insert(meta.time_ns);
        let previous_ns = std::mem::replace(&mut self.previous_ns, meta.time_ns);
        Before { number: meta.number, first_ns, previous_ns }
    }
}

/// Passes the metadata of a frame to an observer: its number, times, lengths, interface and comments.
pub fn trace<T: Trace>(record: &Record<'_>, interfaces: &[Interface], before: Before, t: &mut T) {
    let interface = interfaces.get(record.interface as usize);
    let info = FrameInfo {
        number: before.number,
        time_ns: record.has_time().then_some(record.time_ns),
        first_ns: before.first_ns,
        previous_ns: (before.number > 1).then_some(before.previous_ns),
        wire_len: record.wire_len,
        // as in Wireshark: only formats with interfaces have this field
        interface: interface.filter(|i| i.name.is_some() || interfaces.len() > 1).map(|_| record.interface),
        interface_name: interface.and_then(|i| i.name.as_deref()),
    };
    frame_fields::trace(&info, record.comments(), record.bytes, t);
}

/// Dissects a frame as far as that needs nothing of earlier ones, for [`Dissection::rest`], with the options of that one.
/// One thread can do so for another.
pub fn begin<T: Trace>(
    record: &Record<'_>,
    interfaces: &[Interface],
    before: Before,
    options: &frame::Options,
    t: &mut T,
) -> Checked {
    trace(record, interfaces, before, t);
    let mut packet = Packet::default();
    decode(record, options, &mut packet, t);
    Checked::of(&mut packet, options)
}

/// The only place from which frames are decoded for an observer: of two, neither would be inlined.
#[inline(never)]
fn decode<'a, T: Trace>(record: &Record<'a>, options: &frame::Options, packet: &mut Packet<'a>, t: &mut T) {
    frame::decode_into(record.link_type, record.bytes, record.wire_len, options, packet, t);
}

/// Known facts about a frame when it was dissected.
pub struct Dissected {
    /// Number of the frame, from 1.
    pub number: u64,
    /// ns since the first frame.
    pub relative_ns: i64,
    /// ns since the frame before; 0 for the first.
    pub delta_ns: i64,
    /// ns since the Unix epoch.
    pub time_ns: i64,
    /// Bytes on the wire.
    pub wire_len: u32,
    /// Bytes in the capture.
    pub cap_len: u32,
    /// Innermost source address.
    pub src: Addr,
    /// Innermost destination address.
    pub dst: Addr,
    /// Name of the content if no layer gave one.
    pub other: &'static str,
}

impl Dissected {
    /// True if the capture has fewer bytes than there were on the wire.
    pub fn is_cut(&self) -> bool {
        self.cap_len < self.wire_len
    }
}

impl Dissection {
    /// At the start of a capture.
    pub fn new(keyring: Keyring) -> Self {
        Self {
            pipeline: Pipeline::new(Options { keyring, ..Options::default() }),
            roce_port: 0,
            streams: Streams::default(),
            number: 0,
            first_ns: None,
            previous_ns: 0,
            interfaces: 0,
        }
    }

    /// Passes in what a first pass over the capture found: a request then names the frame of its reply, and a frame the
    /// findings that only the end of the capture shows.
    pub fn knows(&mut self, first_pass: Arc<FirstPass>) {
        self.pipeline.knows(first_pass);
    }

    /// The analysis of the frames so far.
    pub fn analysis(&mut self) -> &mut Pipeline {
        &mut self.pipeline
    }

    /// Ends the analysis after the last frame. The frames so far give the same report as `analyze`.
    pub fn finish(&mut self) -> Report {
        std::mem::take(&mut self.pipeline).finish().0
    }

    /// Shard number `shard` of `of` that share the frames of a capture, as assigned by a
    /// [`Router`](rdmascope_analyzer::pipeline::Router).
    pub fn shard(keyring: Keyring, shard: usize, of: usize) -> Self {
        let pipeline = Pipeline::shard(Options { keyring, ..Options::default() }, Quiet, shard, of);
        Self { pipeline, ..Self::new(Keyring::new()) }
    }

    /// Options of the frame decoder.
    pub fn decode_options(&self) -> frame::Options {
        let options = self.pipeline.decode_options();
        if self.roce_port == 0 { options } else { frame::Options { roce_port: self.roce_port, ..options } }
    }

    /// The most connections that were followed at one time.
    pub fn most_connections(&self) -> usize {
        self.pipeline.most_connections()
    }

    /// Returns the numbers of connections and exchanges so far, and the number of streams.
    pub fn counts(&self) -> (Counts, u64) {
        (self.pipeline.counts(), self.streams.count())
    }

    /// Dissects a frame of its shard. `datagram` is the IP datagram that it completes:
    /// [`Route`](rdmascope_analyzer::pipeline::Route).
    pub fn part<T: Trace>(
        &mut self,
        record: &Record<'_>,
        before: Before,
        interfaces: &[Interface],
        datagram: Option<Vec<u8>>,
        t: &mut T,
    ) -> Dissected {
        self.goes_to(before, datagram);
        self.frame(record, interfaces, t)
    }

    /// The same with a frame that another thread [began](begin) to dissect for the same observer.
    pub fn rest<T: Trace>(
        &mut self,
        record: &Record<'_>,
        before: Before,
        datagram: Option<Vec<u8>>,
        checked: Checked,
        t: &mut T,
    ) -> Dissected {
        self.goes_to(before, datagram);
        let times = self.times(record);
        let options = self.decode_options();
        let Record { link_type, wire_len, .. } = *record;
        let packet = frame::decode_checked(link_type, record.bytes, wire_len, &options, checked);
        self.follow(record, times.now, &packet, t);
        self.dissected(record, times, &packet, t)
    }

    fn goes_to(&mut self, before: Before, datagram: Option<Vec<u8>>) {
        self.number = before.number - 1;
        self.first_ns = Some(before.first_ns);
        self.previous_ns = before.previous_ns;
        self.pipeline.whole(datagram);
    }

    /// Looks for RoCEv2 on this UDP port too.
    pub fn with_roce_port(self, roce_port: u16) -> Self {
        Self { roce_port, ..self }
    }

    /// Dissects the next frame of the capture.
    pub fn frame<T: Trace>(&mut self, record: &Record<'_>, interfaces: &[Interface], t: &mut T) -> Dissected {
        known_speeds(&mut self.pipeline, &mut self.interfaces, interfaces);
        let times = self.times(record);
        if T::ON {
            let (number, first_ns, previous_ns) = (self.number, times.first, self.previous_ns);
            trace(record, interfaces, Before { number, first_ns, previous_ns }, t);
        }
        let mut packet = Packet::default();
        self.decode(record, times.now, &mut packet, t);
        self.dissected(record, times, &packet, t)
    }

    /// The next frame is at hand.
    fn times(&mut self, record: &Record<'_>) -> Times {
        self.number += 1;
        let now = if record.has_time() { record.time_ns } else { self.previous_ns };
        Times { now, first: *self.first_ns.get_or_insert(now) }
    }

    fn dissected<T: Trace>(&mut self, record: &Record<'_>, times: Times, packet: &Packet<'_>, t: &mut T) -> Dissected {
        t.end();
        let Times { now, first } = times;
        let before = if self.number > 1 { self.previous_ns } else { now };
        self.previous_ns = now;
        Dissected {
            delta_ns: now.saturating_sub(before),
            number: self.number,
            relative_ns: now.saturating_sub(first),
            time_ns: now,
            wire_len: record.wire_len,
            cap_len: u32::try_from(record.bytes.len()).unwrap_or(u32::MAX),
            src: packet.src,
            dst: packet.dst,
            other: packet.body.name(),
        }
    }

    /// Decodes the next frame without output, only to update the state that later frames depend on: their output is the
    /// same as after [`Dissection::frame`].
    pub fn pass(&mut self, record: &Record<'_>) {
        let now = self.times(record).now;
        let mut packet = Packet::default();
        self.decode(record, now, &mut packet, &mut Off);
        self.streams.frame(&packet, streams::FramePosition { number: self.number, time_ns: now }, &mut Off);
        self.previous_ns = now;
    }

    /// The number of frames so far.
    pub fn frames(&self) -> u64 {
        self.number
    }

    fn decode<'a, T: Trace>(&mut self, record: &Record<'a>, time_ns: i64, packet: &mut Packet<'a>, t: &mut T) {
        decode(record, &self.decode_options(), packet, t);
        self.follow(record, time_ns, packet, t);
    }

    /// Whose frame it is, and what it means there.
    fn follow<T: Trace>(&mut self, record: &Record<'_>, time_ns: i64, packet: &Packet<'_>, t: &mut T) {
        if T::ON && t.wants(&streams::f::SET) {
            self.streams.frame(packet, streams::FramePosition { number: self.number, time_ns }, t);
        }
        let Record { link_type, wire_len, interface, .. } = *record;
        self.pipeline.packet(&FrameMeta { number: self.number, time_ns, link_type, wire_len, interface }, packet, t);
    }
}

/// Times of a frame, ns since the Unix epoch.
#[derive(Clone, Copy)]
struct Times {
    now: i64,
    /// Of the first frame of the capture.
    first: i64,
}

/// An address as the frame's line shows it.
pub struct FrameAddress(pub(crate) Addr);

impl fmt::Display for FrameAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Addr::None => Ok(()),
            address => address.fmt(f),
        }
    }
}
