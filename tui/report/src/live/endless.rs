//! An analysis that has no end: ended connections are summed up and dropped, and frames show which ports to capture.

use crate::dissection::Before;
use crate::known_bugs::Search;
use rdmascope_analyzer::env::Options;
use rdmascope_analyzer::pipeline::{FrameMeta, Pipeline};
use rdmascope_analyzer::report::Sink;
use rdmascope_capture::{Interface, Record};
use rdmascope_dissector::frame::{self, Body, Packet};
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

/// Drops connections that are ended or idle at a time, in ns since 1970.
pub fn expire<S: Sink>(pipeline: &mut Pipeline<S>, now: i64) {
    pipeline.expire(now, CLOSED_AFTER, IDLE_AFTER);
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
        Self { look: Look::new(pipeline.decode_options()), pipeline }
    }
}

impl Look {
    /// Of an analysis with these options.
    pub fn new(decode: frame::Options) -> Self {
        Self { decode, search: Search::new() }
    }

    /// True if known bugs are searched for, which needs the fields of each frame.
    pub fn searches(&self) -> bool {
        self.search.is_some()
    }

    /// Hands a frame of a capture on these interfaces to an analysis. Returns it decoded.
    #[inline]
    pub fn frame<'a, S: Sink>(
        &mut self,
        pipeline: &mut Pipeline<S>,
        meta: &FrameMeta,
        record: &Record<'a>,
        interfaces: &[Interface],
        before: Before,
    ) -> Packet<'a> {
        if let Some(search) = &mut self.search {
            let listener = search.begin(record, interfaces, before);
            let packet = frame::decode(meta.link_type, record.bytes, meta.wire_len, &self.decode, listener);
            pipeline.packet(meta, &packet, listener);
            search.end(meta, pipeline);
            return packet;
        }
        let packet = frame::decode(meta.link_type, record.bytes, meta.wire_len, &self.decode, &mut Off);
        pipeline.packet(meta, &packet, &mut Off);
        packet
    }
}
