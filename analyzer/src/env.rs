//! What all connections of an analysis share: options, findings, counters of frames, and who listens.

use crate::finding::{Blame, Certainty, Findings, Rule, Severity, Site};
use crate::keys::Keyring;
use crate::op::{At, End};
use crate::report::Sink;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::fmt;

/// How to analyze.
#[derive(Clone, Debug)]
pub struct Options {
    /// Verify the invariant CRC of every packet and the CRC of every FPDU.
    pub check_crc: bool,
    /// Put payloads together and hash them.
    pub payloads: bool,
    /// Connections followed at the same time at most.
    pub connections_max: usize,
    /// Connections that ended in the report at most.
    pub report_max: usize,
    /// Whether those beyond that are added up, the oldest first, rather than left out: for an analysis that has no end.
    pub fold: bool,
    /// Unanswered requests remembered per connection at most.
    pub requests_max: usize,
    /// Exchanges in the list of the slowest.
    pub slowest_max: usize,
    /// Queue pairs that the user says belong together.
    pub pins: Vec<(u32, u32)>,
    /// Keys and passwords to decrypt and verify with; empty for none.
    pub keyring: Keyring,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            check_crc: true,
            payloads: false,
            connections_max: 4096,
            report_max: 10_000,
            fold: false,
            requests_max: 16_384,
            slowest_max: 10,
            pins: Vec::new(),
            keyring: Keyring::new(),
        }
    }
}

/// The highest layer that was understood in a frame.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
#[allow(missing_docs)]
pub enum Layer {
    #[default]
    Other,
    Arp,
    Udp,
    Pause,
    Tcp,
    Mpa,
    Ib,
    Cnp,
    Cm,
    Rdma,
    SmbDirect,
    RpcRdma,
    Smb2,
    Rpc,
    Nfs,
}

impl Layer {
    /// All, lowest first.
    pub const ALL: [Self; 15] = [
        Self::Other,
        Self::Arp,
        Self::Udp,
        Self::Pause,
        Self::Tcp,
        Self::Mpa,
        Self::Ib,
        Self::Cnp,
        Self::Cm,
        Self::Rdma,
        Self::SmbDirect,
        Self::RpcRdma,
        Self::Smb2,
        Self::Rpc,
        Self::Nfs,
    ];

    /// The word of the reports.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Other => "other",
            Self::Arp => "ARP",
            Self::Udp => "UDP",
            Self::Pause => "PFC",
            Self::Tcp => "TCP",
            Self::Mpa => "MPA",
            Self::Ib => "InfiniBand",
            Self::Cnp => "CNP",
            Self::Cm => "CM",
            Self::Rdma => "RDMA",
            Self::SmbDirect => "SMB Direct",
            Self::RpcRdma => "RPC-over-RDMA",
            Self::Smb2 => "SMB2",
            Self::Rpc => "RPC",
            Self::Nfs => "NFS",
        }
    }
}

/// A rule broken in the frame at hand.
#[derive(Clone, Debug)]
pub struct Broken {
    /// Which.
    pub rule: Rule,
    /// The rule's own severity, or what the circumstances made of it.
    pub severity: Severity,
    /// Who did it.
    pub by: Blame,
    /// How sure that is.
    pub certainty: Certainty,
    /// What happened, in one clause.
    pub text: String,
}

/// What a frame answers.
#[derive(Clone, Debug)]
pub struct Answer {
    /// Command or procedure.
    pub command: &'static str,
    /// File name or path, unescaped, as far as it is known.
    pub file: Option<alloc::sync::Arc<str>>,
}

/// Shared by all connections of an analysis.
#[derive(Debug)]
pub struct Env<S> {
    /// How to analyze.
    pub options: Options,
    /// Broken rules.
    pub findings: Findings,
    /// Who listens.
    pub sink: S,
    /// The number that the next exchange gets.
    pub next_exchange: u64,
    /// The exchange that the frame at hand belongs to, 0 for none.
    pub exchange_of_frame: u64,
    /// Bytes that RDMA moved for that exchange up to this frame.
    pub moved_of_frame: u64,
    /// The frame of the request that this frame answers, and how long the answer took, in ns.
    pub answered_in_frame: Option<(u64, i64)>,
    /// What was asked for in that request, and of which file.
    pub answer_of_frame: Option<Answer>,
    /// Rules broken in this frame: kept only for an observer.
    pub broken_in_frame: Vec<Broken>,
    frame: Option<u64>,
    /// The mirror session that the frame at hand came through.
    pub mirror_of_frame: crate::mirror::Set,
    /// The connection that the frame at hand belongs to, and who of it sent the frame.
    pub place_of_frame: Option<(u32, End)>,
    /// Earlier frames of which the frame at hand tells that they are of its connection, by number, and who of it sent them.
    pub earlier_frames: Vec<(u64, End)>,
    /// Whether the packet at hand came before.
    pub retransmission: bool,
    /// Whether the packet at hand was damaged on the way, so that its receiver dropped it.
    pub is_damaged: bool,
    /// Packets that the capture lost.
    pub lost_by_capture: u64,
    /// Frames of followed connections that could not be decoded.
    pub undecoded: u64,
    /// Requests forgotten because there were too many.
    pub requests_dropped: u64,
    /// SMB sessions by id and the connections that carry them.
    pub sessions: Vec<(u64, Vec<u32>)>,
    /// The slowest exchanges.
    pub slowest: Vec<crate::exchange::Exchange>,
    layer: Layer,
}

impl<S: Sink> Env<S> {
    /// Broken rules kept of one frame at most.
    const BROKEN_MAX: usize = 256;

    /// Before the first frame.
    pub fn new(options: Options, sink: S) -> Self {
        Self {
            options,
            findings: Findings::default(),
            sink,
            next_exchange: 1,
            exchange_of_frame: 0,
            moved_of_frame: 0,
            answered_in_frame: None,
            answer_of_frame: None,
            broken_in_frame: Vec::new(),
            frame: None,
            mirror_of_frame: Default::default(),
            place_of_frame: None,
            earlier_frames: Vec::new(),
            retransmission: false,
            is_damaged: false,
            lost_by_capture: 0,
            undecoded: 0,
            requests_dropped: 0,
            sessions: Vec::new(),
            slowest: Vec::new(),
            layer: Layer::Other,
        }
    }

    /// The frame at hand was understood up to `layer`.
    #[inline]
    pub fn layer(&mut self, layer: Layer) {
        self.layer = self.layer.max(layer);
    }

    /// A new frame. Where `observed` gives its number, the rules broken in it are kept until the next.
    #[inline]
    pub fn begin_frame(&mut self, observed: Option<u64>) {
        self.layer = Layer::Other;
        self.exchange_of_frame = 0;
        self.moved_of_frame = 0;
        self.answered_in_frame = None;
        self.answer_of_frame = None;
        self.broken_in_frame.clear();
        self.frame = observed;
        self.place_of_frame = None;
        self.earlier_frames.clear();
        self.mirror_of_frame = Default::default();
        self.retransmission = false;
        self.is_damaged = false;
    }

    /// How far the frame at hand was understood.
    #[inline]
    pub fn frame_layer(&self) -> Layer {
        self.layer
    }

    /// A rule was found broken.
    pub fn report(&mut self, rule: Rule, by: Blame, site: Site, certainty: Certainty, text: fmt::Arguments<'_>) {
        self.report_as(rule.row().severity, rule, by, site, certainty, text);
    }

    /// The same, with a severity of its own.
    pub fn report_as(&mut self, severity: Severity, rule: Rule, by: Blame, site: Site, certainty: Certainty, text: fmt::Arguments<'_>) {
        if self.frame == Some(site.frame) && self.broken_in_frame.len() < Self::BROKEN_MAX {
            self.broken_in_frame.push(Broken { rule, severity, by, certainty, text: text.to_string() });
        }
        self.findings.report_as(severity, rule, by, site, certainty, text);
    }

    /// A reply to `exchange` ends at `at`.
    pub fn answered(&mut self, exchange: &crate::exchange::Exchange, at: At) {
        self.exchange_of_frame = exchange.id;
        self.moved_of_frame = exchange.rdma_bytes();
        self.answered_in_frame = Some((exchange.request.frame, at.time.saturating_sub(exchange.request.time)));
        self.answer_of_frame = Some(Answer { command: exchange.command, file: exchange.file.clone() });
    }

    /// The number for a new exchange.
    pub fn number_exchange(&mut self) -> u64 {
        let id = self.next_exchange;
        self.next_exchange += 1;
        id
    }

    /// An SMB session was seen on a connection.
    pub fn session(&mut self, session: u64, connection: u32) {
        const SESSIONS_MAX: usize = 1024;
        if let Some((_, connections)) = self.sessions.iter_mut().find(|(s, _)| *s == session) {
            if !connections.contains(&connection) && connections.len() < 64 {
                connections.push(connection);
            }
        } else if self.sessions.len() < SESSIONS_MAX {
            self.sessions.push((session, alloc::vec![connection]));
        }
    }

    /// An exchange is complete: kept if it is among the slowest.
    pub fn complete(&mut self, exchange: &crate::exchange::Exchange) {
        self.sink.exchange(exchange);
        let Some(latency) = exchange.latency() else { return };
        let max = self.options.slowest_max;
        if self.slowest.len() >= max && self.slowest.last().and_then(|e| e.latency()).is_some_and(|l| l >= latency) || max == 0 {
            return;
        }
        let place = self.slowest.partition_point(|e| e.latency().unwrap_or(0) >= latency);
        self.slowest.insert(place, exchange.clone());
        self.slowest.truncate(max);
    }
}

/// A frame that stands for no frame: before the first.
pub const NOWHERE: At = At { frame: 0, time: 0 };
