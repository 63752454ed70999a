//! The part of an analysis that can be compared: negotiated values, requests by command and size, counters, findings.

pub use crate::statistics::Histogram;
use rdmascope_analyzer::episodes::time::Owner;
use rdmascope_analyzer::exchange::{DataPath, Exchange};
use rdmascope_analyzer::finding::{Certainty, Rule, Severity};
use rdmascope_analyzer::report::{Connection, Protocol, Report, Sink};
use std::collections::BTreeMap;

/// A value that is reported but not negotiated: the product name of an end.
pub const CLIENT: &str = "client";
/// The same for the server.
pub const SERVER: &str = "server";
/// Limit of pairs of command and length; beyond it, lengths are rounded down to powers of two.
const KINDS_MAX: usize = 4096;

/// All requests of one command and length.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Requests {
    /// Number of requests.
    pub count: u64,
    /// Requests with a failing status.
    pub errors: u64,
    /// Requests without a reply.
    pub unanswered: u64,
    /// Payload bytes moved.
    pub bytes: u64,
    /// Requests whose payload went by RDMA.
    pub by_rdma: u64,
    /// Time from the first frame of the request to the last frame of the reply.
    pub latency: Histogram,
    /// Round trips: the message and its answer (once for a compound), and each RDMA Read by the server.
    pub trips: Histogram,
    /// Time by owner, in the order of [`Owner::ALL`].
    pub owners: [Histogram; Owner::COUNT],
}

impl Requests {
    fn add(&mut self, exchange: &Exchange) {
        self.count += 1;
        self.errors += u64::from(exchange.failed);
        self.bytes += exchange.bytes_moved;
        self.by_rdma += u64::from(exchange.channel != DataPath::Inline);
        match exchange.latency() {
            Some(ns) => {
                self.latency.add(ns);
                self.trips.add(i64::from(!exchange.is_related) + i64::from(exchange.reads.operations));
            }
            None => self.unanswered += 1,
        }
        if exchange.latency().is_some() && exchange.counts() {
            for (all, owner) in self.owners.iter_mut().zip(Owner::ALL) {
                // the wait before it was sent is not part of its latency
                let before = if owner == Owner::Credit { exchange.wait_for_credit } else { 0 };
                all.add(exchange.time.of(owner).saturating_add(before));
            }
        }
    }

    /// Adds the data of another.
    pub fn join(&mut self, other: &Self) {
        self.count += other.count;
        self.errors += other.errors;
        self.unanswered += other.unanswered;
        self.bytes += other.bytes;
        self.by_rdma += other.by_rdma;
        self.latency.join(&other.latency);
        self.trips.join(&other.trips);
        for (all, more) in self.owners.iter_mut().zip(&other.owners) {
            all.join(more);
        }
    }
}

/// Lengths, in bytes, of requests whose payload went within the messages, and by RDMA: the shortest and the longest of
/// each.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Paths {
    /// Within the messages.
    pub inline: Option<(u32, u32)>,
    /// By RDMA.
    pub rdma: Option<(u32, u32)>,
}

impl Paths {
    fn add(&mut self, length: u32, is_rdma: bool) {
        let span = if is_rdma { &mut self.rdma } else { &mut self.inline };
        *span = Some(span.map_or((length, length), |(least, most)| (least.min(length), most.max(length))));
    }

    /// The longest within the messages and the shortest by RDMA, if only the length decides.
    pub fn threshold(&self) -> Option<(u32, u32)> {
        let ((_, inline), (rdma, _)) = self.inline.zip(self.rdma)?;
        (inline < rdma).then_some((inline, rdma))
    }
}

/// Observer of an analysis.
#[derive(Clone, Debug, Default)]
pub struct Profiler {
    requests: BTreeMap<(&'static str, Option<u32>), Requests>,
    paths: BTreeMap<&'static str, Paths>,
}

impl Sink for Profiler {
    fn exchange(&mut self, exchange: &Exchange) {
        if let (Some(length), true) = (exchange.length, exchange.bytes_moved > 0 && !exchange.failed) {
            self.paths.entry(exchange.command).or_default().add(length, exchange.channel != DataPath::Inline);
        }
        let mut kind = (exchange.command, exchange.length);
        if self.requests.len() >= KINDS_MAX && !self.requests.contains_key(&kind) {
            kind.1 = kind.1.map(|length| if length == 0 { 0 } else { 1 << length.ilog2() });
        }
        self.requests.entry(kind).or_default().add(exchange);
    }
}

/// A finding with its occurrences.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Found {
    /// Severity of the finding.
    pub severity: Severity,
    /// Its certainty.
    pub certainty: Certainty,
    /// Occurrences.
    pub count: u64,
    /// Its first frame.
    pub frame: u64,
}

/// The comparable part of an analysis.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Profile {
    /// Frames.
    pub frames: u64,
    /// From the first to the last, ns.
    pub span: i64,
    /// Connections.
    pub connections: u64,
    /// Negotiated values, each with the number of connections that have it.
    pub agreed: BTreeMap<&'static str, BTreeMap<String, u64>>,
    /// Requests by command and requested length, in bytes.
    pub requests: BTreeMap<(&'static str, Option<u32>), Requests>,
    /// Lengths of payload by RDMA, by command.
    pub paths: BTreeMap<&'static str, Paths>,
    /// Counters, summed over all connections.
    pub counters: BTreeMap<&'static str, u64>,
    /// Findings by rule and side to blame.
    pub findings: BTreeMap<(Rule, &'static str), Found>,
    /// Outcomes of connections, each with its number.
    pub outcomes: BTreeMap<String, u64>,
}

impl Profile {
    /// A profile from a report and the observer of the same analysis.
    pub fn new(report: &Report, heard: Profiler) -> Self {
        let mut profile =
            Self { requests: heard.requests, paths: heard.paths, frames: report.capture.frames, ..Self::default() };
        if let (Some(first), Some(last)) = (report.capture.first, report.capture.last) {
            profile.span = last.time.saturating_sub(first.time);
        }
        profile.connections = report.connections.len() as u64;
        profile.counters.insert("capture.lost", report.capture.lost_by_capture);
        profile.counters.insert("capture.cut", report.capture.cut);
        profile.counters.insert("capture.pauses", report.capture.pauses);
        for connection in &report.connections {
            profile.connection(connection);
        }
        for finding in report.findings.iter() {
            let new =
                Found { severity: finding.severity, certainty: finding.certainty, count: 0, frame: finding.frame };
            let found = profile.findings.entry((finding.rule, finding.by.name())).or_insert(new);
            found.count = found.count.saturating_add(finding.count);
            found.severity = found.severity.max(finding.severity);
            found.certainty = found.certainty.max(finding.certainty);
            found.frame = found.frame.min(finding.frame);
        }
        profile
    }

    fn connection(&mut self, c: &Connection) {
        let mut agreed = |what: &'static str, value: Option<String>| {
            if let Some(value) = value {
                *self.agreed.entry(what).or_default().entry(value).or_default() += 1;
            }
        };
        let number = |n: Option<u32>| n.map(|n| n.to_string());
        agreed("transport", c.transport.map(|t| t.name().to_owned()));
        agreed("protocol", Some(c.protocol.name().to_owned()));
        agreed("dialect", c.smb.dialect.map(|d| format!("{}.{}.{}", d >> 8, d >> 4 & 0xf, d & 0xf)));
        agreed("version of NFS", number(Some(c.nfs.version).filter(|n| *n > 0)));
        if c.smb.dialect.is_some() {
            agreed("signing", Some(c.smb.signed().name().to_owned()));
            agreed("encryption", Some(if c.smb.encrypted { "encrypted" } else { "not encrypted" }.to_owned()));
        }
        let n = &c.negotiated;
        agreed("client's MaxSendSize", number(n.max_send_size[0]));
        agreed("server's MaxSendSize", number(n.max_send_size[1]));
        agreed("client's MaxReceiveSize", number(n.max_receive_size[0]));
        agreed("server's MaxReceiveSize", number(n.max_receive_size[1]));
        agreed("client's MaxFragmentedSize", number(n.max_fragmented_size[0]));
        agreed("server's MaxFragmentedSize", number(n.max_fragmented_size[1]));
        agreed("MaxReadWriteSize", number(n.max_read_write_size));
        agreed("credits that the client asks for", number(Some(c.sides[0].requested_max).filter(|n| *n > 0)));
        agreed("credits that the server asks for", number(Some(c.sides[1].requested_max).filter(|n| *n > 0)));
        if let Some(outcome) = &c.outcome {
            *self.outcomes.entry(outcome.ending.name().to_owned()).or_default() += 1;
        }
        if c.protocol == Protocol::RpcRdma {
            agreed("credits that the server grants", number(Some(c.sides[0].granted_total as u32).filter(|n| *n > 0)));
        }
        for (what, product) in [CLIENT, SERVER].into_iter().zip(&c.nfs.implementations) {
            agreed(what, product.clone());
        }
        let (h, r, [client, server]) = (&c.health, &c.rdma, &c.sides);
        for (what, n) in [
            ("transport.retransmissions", h.retransmissions),
            ("transport.naks", h.naks),
            ("transport.rnr_naks", h.rnr_naks),
            ("transport.sequence_gaps", h.sequence_gaps),
            ("transport.duplicates", h.duplicates),
            ("transport.icrc_bad", h.icrc_bad),
            ("transport.crc_bad", h.crc_bad),
            ("transport.ecn_marked", h.ecn_marked),
            ("transport.cnps", h.cnps),
            ("credits.client.stalls", client.stalls),
            ("credits.server.stalls", server.stalls),
            ("credits.client.overruns", client.overruns),
            ("credits.server.overruns", server.overruns),
            ("credits.client.stalled_ns", client.stalled_time.max(0) as u64),
            ("credits.server.stalled_ns", server.stalled_time.max(0) as u64),
            ("messages.client", client.messages),
            ("messages.server", server.messages),
            ("messages.fragmented", client.fragmented + server.fragmented),
            ("messages.keepalives", client.keepalives + server.keepalives),
            ("rdma.reads", r.reads),
            ("rdma.writes", r.writes),
            ("rdma.outside_advertised", r.outside_advertised),
        ] {
            let sum = self.counters.entry(what).or_default();
            *sum = sum.saturating_add(n);
        }
    }

    /// Number of requests.
    pub fn all_requests(&self) -> u64 {
        self.requests.values().map(|r| r.count).sum()
    }

    /// The requests of a command, or of all, within a range of lengths.
    pub fn those(&self, command: Option<&str>, within: impl Fn(Option<u32>) -> bool) -> Requests {
        let mut all = Requests::default();
        for ((name, length), requests) in &self.requests {
            if command.is_none_or(|c| c.eq_ignore_ascii_case(name)) && within(*length) {
                all.join(requests);
            }
        }
        all
    }
}
