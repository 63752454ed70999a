//! Cuts whole connections out of a capture, so that an analysis of the cut gives the same result for them.
//!
//! A first pass assigns each frame to its connection, including the handshake and the fragments of its datagrams. Then
//! connections are chosen: by number, by finding, by frames that a filter passes, by time. Connections of one SMB
//! session are chosen together.

use rdmascope_analyzer::env;
use rdmascope_analyzer::exchange::Exchange;
use rdmascope_analyzer::finding::Rule;
use rdmascope_analyzer::pipeline::{FrameMeta, Pipeline};
use rdmascope_analyzer::report::{Connection, Report, Sink};
use rdmascope_analyzer::rules::Group;
use rdmascope_dissector::frame::{self, Addr, Body};
use rdmascope_dissector::trace::Trace;
use std::collections::{BTreeSet, HashMap, HashSet};

/// Limit of fragmented datagrams, and of queue pairs.
const REMEMBERED: usize = 1 << 16;
/// Limit of requests that can be chosen by number.
const REQUESTS_MAX: usize = 1 << 24;

/// The parts to copy: the union of all choices. Without a choice, everything.
#[derive(Clone, Debug, Default)]
pub struct Wanted {
    /// Connections by their numbers in the report.
    pub connections: Vec<u32>,
    /// Connections with a finding of these rules, and the frames of such findings without a connection.
    pub findings: Vec<Rule>,
    /// Connections of these requests, by their numbers in the report. Without other choices the cut ends with the last
    /// of them.
    pub requests: Vec<u64>,
    /// Connections with one of these frames; numbers begin at 1.
    pub frames: Option<BTreeSet<u64>>,
    /// First and last time, ns since the Unix epoch: connections with a frame in this span, from their beginning to its
    /// end, and failed attempts to connect in it.
    pub span: Option<(i64, i64)>,
    /// Leaves out the other connections of a session, and those that a finding compared.
    pub alone: bool,
}

/// Requests by number: the connection's number in the analysis, and the time of the request's end.
#[derive(Debug, Default)]
struct Requests(HashMap<u64, (u32, i64)>);

impl Sink for Requests {
    fn exchange(&mut self, exchange: &Exchange) {
        let ends =
            [Some(exchange.request_end), exchange.reply_end, Some(exchange.reads.last), Some(exchange.writes.last)];
        let end = ends.into_iter().flatten().map(|at| at.time).max().unwrap_or_default();
        if self.0.len() < REQUESTS_MAX {
            self.0.insert(exchange.id, (exchange.connection, end));
        }
    }
}

/// True if a rule compares connections: why two hosts do not use RDMA, and findings of the audit of the network.
pub fn is_joint(rule: Rule) -> bool {
    const AUDIT: &[Rule] = &[
        Rule::RcBestEffort,
        Rule::RcClass,
        Rule::RcMarking,
        Rule::RcEntropy,
        Rule::RcMtu,
        Rule::RcPfcIdle,
        Rule::RcPauseStorm,
        Rule::RcCnpClass,
        Rule::RcEct,
        Rule::IwarpEcn,
        Rule::IwarpEce,
        Rule::IwarpMss,
    ];
    rule.row().group == Group::Path || AUDIT.contains(&rule)
}

/// Analyzes a capture, and selects whole connections from it.
pub struct Cutter {
    pipeline: Pipeline<Requests>,
    /// For each frame the number of its connection in the analysis, or 0.
    places: Vec<u32>,
    times: Vec<i64>,
    fragments: HashMap<(Addr, Addr, u32), Vec<u64>>,
    queues: HashMap<(Addr, Addr, u32), u32>,
    pauses: Vec<u64>,
    attempts: Attempts,
}

/// Messages of connection management by host: those of failed attempts belong to no connection.
#[derive(Debug, Default)]
struct Attempts {
    hosts: HashMap<u64, [Addr; 2]>,
    frames: HashMap<[Addr; 2], Vec<u64>>,
}

impl Attempts {
    fn add(&mut self, frame: u64, a: Addr, b: Addr) {
        if self.hosts.len() < REMEMBERED {
            let hosts = [a.min(b), a.max(b)];
            self.hosts.insert(frame, hosts);
            self.frames.entry(hosts).or_default().push(frame);
        }
    }
}

impl Default for Cutter {
    fn default() -> Self {
        Self::new()
    }
}

impl Cutter {
    /// A cutter for one capture.
    pub fn new() -> Self {
        Self {
            pipeline: Pipeline::with_sink(env::Options::default(), Requests::default()),
            places: Vec::new(),
            times: Vec::new(),
            fragments: HashMap::new(),
            queues: HashMap::new(),
            pauses: Vec::new(),
            attempts: Attempts::default(),
        }
    }

    /// The analysis, to which a caller may add findings.
    pub fn analysis(&mut self) -> &mut Pipeline<impl Sink + use<>> {
        &mut self.pipeline
    }

    /// Adds a frame, with an observer. Frames are numbered from 1.
    pub fn frame<T: Trace>(&mut self, meta: &FrameMeta, bytes: &[u8], t: &mut T) {
        let packet = frame::decode(meta.link_type, bytes, meta.wire_len, &self.pipeline.decode_options(), t);
        self.pipeline.packet(meta, &packet, t);
        let number = self.places.len() as u64 + 1;
        let mut place = self.pipeline.facts().place.map_or(0, |(connection, _)| connection);
        match &packet.body {
            Body::Ib(ib) => {
                let key = (packet.src, packet.dst, ib.bth.dest_qp);
                if ib.bth.dest_qp <= 1 {
                    self.attempts.add(number, packet.src, packet.dst);
                }
                if place == 0 && ib.bth.dest_qp > 1 {
                    // CNPs belong to a queue pair, but to no flow
                    place = self.queues.get(&key).copied().unwrap_or(0);
                } else if place != 0 && self.queues.len() < REMEMBERED {
                    self.queues.insert(key, place);
                }
            }
            Body::Fragment(fragment) => {
                let key = (packet.src, packet.dst, fragment.id);
                if place != 0 {
                    for earlier in self.fragments.remove(&key).unwrap_or_default() {
                        self.put(earlier, place);
                    }
                } else if self.fragments.len() < REMEMBERED {
                    self.fragments.entry(key).or_default().push(number);
                }
            }
            Body::Pause(_) => self.pauses.push(number),
            _ => {}
        }
        self.places.push(place);
        self.times.push(meta.time_ns);
        let earlier: Vec<(u64, u32)> = self.pipeline.earlier().iter().map(|(frame, _)| (*frame, place)).collect();
        for (frame, place) in earlier {
            self.put(frame, place);
        }
    }

    fn put(&mut self, frame: u64, place: u32) {
        if let Some(known) =
            frame.checked_sub(1).and_then(|at| self.places.get_mut(at as usize)).filter(|known| **known == 0)
        {
            *known = place;
        }
    }

    /// Ends the capture.
    pub fn finish(self) -> Cuts {
        let Self { pipeline, places, times, pauses, attempts, .. } = self;
        let (report, requests) = pipeline.finish();
        Cuts { report, requests, places, times, pauses, attempts }
    }
}

/// An analysed capture with the connection of each frame.
pub struct Cuts {
    /// Report of its analysis.
    pub report: Report,
    requests: Requests,
    places: Vec<u32>,
    times: Vec<i64>,
    pauses: Vec<u64>,
    attempts: Attempts,
}

/// The chosen frames and connections.
#[derive(Clone, Debug, Default)]
pub struct Choice {
    /// Connections by their numbers in the report.
    pub connections: BTreeSet<u32>,
    /// Those of them that were added: they share a session with a chosen one, or a finding compared them with it.
    pub along: BTreeSet<u32>,
    /// Number of frames.
    pub frames: u64,
    chosen: Vec<bool>,
}

impl Choice {
    /// True if a frame was chosen; `frame` counts from 1.
    pub fn has(&self, frame: u64) -> bool {
        frame.checked_sub(1).and_then(|at| self.chosen.get(usize::try_from(at).ok()?)).is_some_and(|chosen| *chosen)
    }
}

impl Cuts {
    /// True if there is a request with this number.
    pub fn has_request(&self, id: u64) -> bool {
        self.requests.0.contains_key(&id)
    }

    /// Chooses frames and connections.
    pub fn choose(&self, wanted: &Wanted) -> Choice {
        let report = &self.report;
        let of: HashMap<u32, u32> =
            report.connections.iter().flat_map(|c| c.followed_as.iter().map(|id| (*id, c.id))).collect();
        let connection = |frame: u64| {
            let place =
                frame.checked_sub(1).and_then(|at| self.places.get(usize::try_from(at).ok()?)).copied().unwrap_or(0);
            of.get(&place).copied()
        };
        let mut choice = Choice::default();
        let mut single: HashSet<u64> = HashSet::new();
        let only_requests = wanted.connections.is_empty() && wanted.findings.is_empty() && wanted.frames.is_none();
        let all = only_requests && wanted.requests.is_empty();
        let requests = || wanted.requests.iter().filter_map(|id| self.requests.0.get(id));
        choice.connections.extend(requests().filter_map(|(followed, _)| of.get(followed).copied()));
        choice
            .connections
            .extend(wanted.connections.iter().filter(|id| report.connections.iter().any(|c| c.id == **id)));
        for finding in report.findings.iter().filter(|f| wanted.findings.contains(&f.rule)) {
            choice.connections.extend(finding.connection);
            if let Some(id) = finding.connection.filter(|_| is_joint(finding.rule) && !wanted.alone) {
                self.beside(id, &mut choice);
            }
            for frame in finding.frames.iter().chain([&finding.frame]) {
                choice.connections.extend(connection(*frame));
                single.insert(*frame);
                if connection(*frame).is_none() {
                    self.attempt(*frame, wanted.alone, &mut single, &mut choice);
                }
            }
        }
        for frame in wanted.frames.iter().flatten() {
            match connection(*frame) {
                Some(id) => _ = choice.connections.insert(id),
                None => {
                    single.insert(*frame);
                    self.attempt(*frame, wanted.alone, &mut single, &mut choice);
                }
            }
        }
        if let Some((from, to)) = wanted.span {
            let in_span = |at: usize| self.times.get(at).is_some_and(|t| (from..=to).contains(t));
            let active: BTreeSet<u32> = (0..self.places.len())
                .filter(|at| in_span(*at))
                .filter_map(|at| of.get(&self.places[at]).copied())
                .collect();
            if all {
                choice.connections = active;
                // frames without a connection: failed attempts to connect, and frames of findings
                let is_single = |frame: &u64| connection(*frame).is_none();
                let attempts =
                    self.attempts.hosts.iter().filter(|(frame, _)| is_single(frame) && in_span(**frame as usize - 1));
                let hosts: HashSet<[Addr; 2]> = attempts.map(|(_, hosts)| *hosts).collect();
                single.extend(
                    hosts
                        .iter()
                        .filter_map(|hosts| self.attempts.frames.get(hosts))
                        .flatten()
                        .copied()
                        .filter(is_single),
                );
                let told = report
                    .findings
                    .iter()
                    .filter(|f| f.connection.is_none())
                    .flat_map(|f| f.frames.iter().chain([&f.frame]));
                single.extend(
                    told.copied().filter(|frame| {
                        is_single(frame) && frame.checked_sub(1).is_some_and(|at| in_span(at as usize))
                    }),
                );
            } else {
                choice.connections.retain(|id| active.contains(id));
            }
        } else if all {
            choice.connections = report.connections.iter().map(|c| c.id).collect();
        }
        if !wanted.alone {
            self.sessions(&mut choice);
        }
        let until = wanted.span.map_or(i64::MAX, |(_, to)| to);
        let until = if only_requests && wanted.span.is_none() {
            requests().map(|(_, end)| *end).max().unwrap_or(until)
        } else {
            until
        };
        choice.chosen = self
            .places
            .iter()
            .zip(&self.times)
            .enumerate()
            .map(|(at, (place, time))| {
                *time <= until
                    && (of.get(place).is_some_and(|id| choice.connections.contains(id))
                        || single.contains(&(at as u64 + 1)))
            })
            .collect();
        // pauses and the state of the network concern everything at that time
        if let (Some(first), Some(last)) =
            (choice.chosen.iter().position(|c| *c), choice.chosen.iter().rposition(|c| *c))
        {
            for pause in self.pauses.iter().map(|frame| *frame as usize - 1).filter(|at| (first..=last).contains(at)) {
                choice.chosen[pause] = true;
            }
        }
        choice.frames = choice.chosen.iter().filter(|c| **c).count() as u64;
        choice
    }

    /// Adds connections that a finding may have compared with `id`: those of the same hosts and, for the audit, those
    /// with the same transport.
    fn beside(&self, id: u32, choice: &mut Choice) {
        let all = &self.report.connections;
        let Some(own) = all.iter().find(|c| c.id == id) else { return };
        let hosts = own.peers.each_ref().map(|peer| peer.address);
        let is_beside =
            |c: &&Connection| c.transport == own.transport || c.peers.iter().any(|peer| hosts.contains(&peer.address));
        let more: Vec<u32> =
            all.iter().filter(is_beside).map(|c| c.id).filter(|id| !choice.connections.contains(id)).collect();
        choice.connections.extend(&more);
        choice.along.extend(more);
    }

    /// If a frame belongs to a failed attempt to connect, adds all messages of attempts between the same hosts, and
    /// their connections, which show how the attempt ended.
    fn attempt(&self, frame: u64, alone: bool, single: &mut HashSet<u64>, choice: &mut Choice) {
        let Some(hosts) = self.attempts.hosts.get(&frame) else { return };
        single.extend(self.attempts.frames.get(hosts).into_iter().flatten());
        if alone {
            return;
        }
        let of_hosts = |c: &&Connection| c.peers.iter().all(|peer| hosts.contains(&peer.address));
        let more = self.report.connections.iter().filter(of_hosts).map(|c| c.id);
        let more: Vec<u32> = more.filter(|id| !choice.connections.contains(id)).collect();
        choice.connections.extend(&more);
        choice.along.extend(more);
    }

    /// Adds connections that share a session with a chosen one.
    fn sessions(&self, choice: &mut Choice) {
        loop {
            let more: Vec<u32> = self
                .report
                .sessions
                .iter()
                .filter(|(_, channels)| channels.iter().any(|id| choice.connections.contains(id)))
                .flat_map(|(_, channels)| channels.iter().copied())
                .filter(|id| !choice.connections.contains(id))
                .collect();
            if more.is_empty() {
                return;
            }
            choice.connections.extend(&more);
            choice.along.extend(more);
        }
    }
}
