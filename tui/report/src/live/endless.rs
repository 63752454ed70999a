//! An analysis that has no end: ended connections are summed up and dropped, and frames show which ports to capture.

use crate::dissection::{Before, Past};
use crate::known_bugs::Search;
use rdmascope_analyzer::env::Options;
use rdmascope_analyzer::pipeline::{FrameMeta, Pipeline};
use rdmascope_analyzer::report::Sink;
use rdmascope_capture::{Interface, Record};
use rdmascope_dissector::frame::{self, Body};
use rdmascope_dissector::trace::Off;
use std::time::{SystemTime, UNIX_EPOCH};

/// Connections that ended and are kept one by one.
pub const ENDED_MAX: usize = 256;
/// ns after its end that a connection is dropped: late packets still belong to it.
pub const CLOSED_AFTER: i64 = 10_000_000_000;
/// ns without a frame after which a connection is dropped.
pub const IDLE_AFTER: i64 = 3_600_000_000_000;

/// ns since 1970.
pub fn now_ns() -> i64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| i64::try_from(d.as_nanos()).unwrap_or(i64::MAX))
}

/// The options of an analysis that has no end.
pub fn endless(options: Options) -> Options {
    Options { report_max: ENDED_MAX, fold: true, ..options }
}

/// Drops ended and idle connections.
pub fn expire<S: Sink>(pipeline: &mut Pipeline<S>) {
    pipeline.expire(now_ns(), CLOSED_AFTER, IDLE_AFTER);
}

/// The TCP port of an MPA handshake (RFC 5044, section 7.1), if the packet is part of one.
pub fn mpa_port(body: &Body<'_>) -> Option<u16> {
    match body {
        Body::Tcp(s) if s.payload.starts_with(b"MPA ID Req Frame") => Some(s.dst_port),
        Body::Tcp(s) if s.payload.starts_with(b"MPA ID Rep Frame") => Some(s.src_port),
        _ => None,
    }
}

/// An analysis, and the search for known bugs that are defined by a filter.
pub struct Follower<S> {
    /// State of the analysis.
    pub pipeline: Pipeline<S>,
    /// How it looks at frames.
    pub look: Look,
}

/// How frames are looked at.
pub struct Look {
    decode: frame::Options,
    search: Option<Box<Search>>,
}

impl<S: Sink> Follower<S> {
    /// Of an analysis that is to begin.
    pub fn new(pipeline: Pipeline<S>) -> Self {
        let look = Look { decode: pipeline.decode_options(), search: Search::new() };
        Self { pipeline, look }
    }

    /// Takes a frame of a capture on these interfaces. Returns the TCP port of an MPA handshake in it.
    #[inline]
    pub fn frame(
        &mut self,
        meta: &FrameMeta,
        record: &Record<'_>,
        interfaces: &[Interface],
        past: &mut Past,
    ) -> Option<u16> {
        self.look.frame(&mut self.pipeline, meta, record, interfaces, past.before(meta))
    }
}

impl Look {
    /// The same, of any analysis.
    #[inline]
    pub fn frame<S: Sink>(
        &mut self,
        pipeline: &mut Pipeline<S>,
        meta: &FrameMeta,
        record: &Record<'_>,
        interfaces: &[Interface],
        before: Before,
    ) -> Option<u16> {
        if let Some(search) = &mut self.search {
            let listener = search.begin(record, interfaces, before);
            let packet = frame::decode(meta.link_type, record.bytes, meta.wire_len, &self.decode, listener);
            pipeline.packet(meta, &packet, listener);
            search.end(meta, pipeline);
            return mpa_port(&packet.body);
        }
        let packet = frame::decode(meta.link_type, record.bytes, meta.wire_len, &self.decode, &mut Off);
        pipeline.packet(meta, &packet, &mut Off);
        mpa_port(&packet.body)
    }
}
