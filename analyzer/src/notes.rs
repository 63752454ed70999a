//! Notes about the current frame: the highest layer understood, its connection, its exchanges, the rules that it
//! breaks.

use crate::exchange::{Exchange, Family};
use crate::finding::{Blame, Certainty, Finding, Findings, Rule, Severity};
use crate::mirror;
use crate::op::{At, End};
use crate::pieces::Assembly;
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;
use hashbrown::HashMap;
use rdmascope_dissector::field::Fields;
use rdmascope_dissector::fields;
use rdmascope_dissector::frame::{Addr, Tunnel};
use rdmascope_dissector::trace::{Trace, Value};

fields! {
    /// Results of the analysis for a frame. Wireshark has none of these fields.
    pub mod f ["rdmascope"] {
        PROTOCOL: Protocol = "rdmascope", "rdmascope analysis";
        CONNECTION: U32 = "rdmascope.connection", "Connection", dec;
        CREDITS_CLIENT: I64 = "rdmascope.credits.client", "Send credits the client holds", dec;
        CREDITS_SERVER: I64 = "rdmascope.credits.server", "Send credits the server holds", dec;
        STALL: RelTime = "rdmascope.stall", "Its sender waited for credits";
        EXCHANGE: U64 = "rdmascope.exchange", "Exchange", dec;
        EXCHANGE_BYTES: U64 = "rdmascope.exchange.rdma_bytes", "RDMA bytes of the exchange so far", dec;
        EXCHANGE_REQUEST: FrameNum = "rdmascope.exchange.request", "Answers the request in frame";
        EXCHANGE_TIME: RelTime = "rdmascope.exchange.time", "Time from request to reply";
        EXCHANGE_COMMAND: Str = "rdmascope.exchange.command", "Command of the exchange";
        EXCHANGE_FILE: Str = "rdmascope.exchange.file", "File of the exchange";
        SMB2_RESPONSE_TO: FrameNum = "smb2.response_to", "Response to";
        SMB2_RESPONSE_IN: FrameNum = "smb2.response_in", "Response in";
        SMB2_TIME: RelTime = "smb2.time", "Time to response";
        // the names are Wireshark's, where a call names its reply by "reqframe", and a reply its call by "repframe"
        RPC_REPLY: FrameNum = "rpc.reqframe", "Request Frame";
        RPC_REQUEST: FrameNum = "rpc.repframe", "Reply Frame";
        RPC_TIME: RelTime = "rpc.time", "Time from request";
        RETRANSMISSION: None = "rdmascope.retransmission", "Sent before";
        COPY_OF: FrameNum = "rdmascope.retransmission.of", "Sent before in frame";
        HELD: None = "rdmascope.early", "Packets before this one are missing";
        DAMAGED: None = "rdmascope.damaged", "Damaged: its content is not analysed";
        KEY_STATE: Str = "rdmascope.key.state", "Remote key";
        DATA: Bytes as Data = "rdmascope.data", "Data";
        MIRROR: Str = "rdmascope.mirror", "Came through";
        MIRROR_SESSION: U32 = "rdmascope.mirror.session", "Mirror session", dec;
        MIRROR_TRUNCATED: Bool = "rdmascope.mirror.truncated", "Cut by the mirror";
        FINDING: None = "rdmascope.finding", "Finding";
        FINDING_ID: Str = "rdmascope.finding.id", "Rule";
        FINDING_SEVERITY: Str = "rdmascope.finding.severity", "Severity";
        FINDING_SECTION: Str = "rdmascope.finding.section", "Section";
        FINDING_BY: Str = "rdmascope.finding.by", "By";
        FINDING_CERTAINTY: Str = "rdmascope.finding.certainty", "Certainty";
        FINDING_TEXT: Str = "rdmascope.finding.text", "What happened";
    }
}

/// The fields of this file, for the registry.
pub const FIELDS: &[rdmascope_dissector::field::Def] = <f::All as Fields>::FIELDS;

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
    /// All layers, the lowest first.
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
    /// The rule that was broken.
    pub rule: Rule,
    /// The rule's own severity, or one changed by the circumstances.
    pub severity: Severity,
    /// The side that did it.
    pub by: Blame,
    /// Certainty of the violation.
    pub certainty: Certainty,
    /// The violation, as a clause.
    pub text: String,
}

/// The request that a frame answers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AnsweredRequest {
    /// Protocol family.
    pub family: Family,
    /// The frame in which the request begins.
    pub request: u64,
    /// The frame in which it was whole.
    pub request_end: u64,
    /// Time from the beginning of the request to the end of the answer, in ns.
    pub took: i64,
    /// Time from the end of the request, in ns: what Wireshark calls the time of a reply.
    pub took_whole: i64,
    /// Command or procedure.
    pub command: &'static str,
}

/// An exchange that a frame has to do with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InFrame {
    /// Number of the exchange.
    pub exchange: u64,
    /// Bytes that RDMA moved for it up to this frame.
    pub moved: u64,
    /// Its file, if this frame has its request or ends its reply, and the name is known.
    pub file: Option<Arc<str>>,
    /// The request that this frame answers.
    pub answer: Option<AnsweredRequest>,
}

/// What a first pass over a capture found for a second one: the frame that answers a request, by the last frame of the
/// request, the frame in which the message of a fragment became whole, and the findings by their frames.
#[derive(Clone, Debug, Default)]
pub struct FirstPass {
    by_request: HashMap<u64, Vec<(u64, Family, u64)>>,
    by_fragment: HashMap<u64, Vec<(Assembly, u64)>>,
    findings: Vec<Broken>,
    /// By frame, the places of its findings.
    by_frame: HashMap<u64, Vec<usize>>,
    /// Findings of which not all frames are known.
    cut: Vec<(Rule, Blame)>,
}

impl FirstPass {
    /// An exchange that is complete.
    pub fn add(&mut self, exchange: &Exchange) {
        // the first copy of a reply is the one that is shown as one
        if let Some(reply) = exchange.reply_seen.or(exchange.reply_end) {
            let of_frame = self.by_request.entry(exchange.request_end.frame).or_default();
            let place = of_frame.partition_point(|(id, ..)| *id < exchange.id);
            of_frame.insert(place, (exchange.id, exchange.family, reply.frame));
        }
    }

    /// A message was put together in `frame`.
    pub fn assembled(&mut self, what: Assembly, frame: u64, frames: &[u64]) {
        for fragment in frames.iter().filter(|fragment| **fragment != frame) {
            let of_frame = self.by_fragment.entry(*fragment).or_default();
            if !of_frame.contains(&(what, frame)) {
                of_frame.push((what, frame));
            }
        }
    }

    /// The findings of the finished analysis.
    pub fn found(&mut self, findings: &Findings) {
        for finding in findings.iter() {
            let Finding { rule, severity, by, certainty, ref text, .. } = *finding;
            for frame in finding.frames.iter() {
                self.by_frame.entry(*frame).or_default().push(self.findings.len());
            }
            if finding.frames.omitted() > 0 {
                self.cut.push((rule, by));
            }
            self.findings.push(Broken { rule, severity, by, certainty, text: text.clone() });
        }
    }

    /// The findings of a frame; `broken` is what was found when the frame came, whose words are about this frame.
    fn findings_of<'a>(&'a self, frame: u64, broken: &'a [Broken]) -> Vec<Broken> {
        let same = |a: &Broken, b: &Broken| (a.rule, a.by) == (b.rule, b.by);
        let places = self.by_frame.get(&frame).map_or(&[][..], Vec::as_slice);
        let known: Vec<&Broken> = places.iter().filter_map(|place| self.findings.get(*place)).collect();
        let mut all: Vec<Broken> = Vec::new();
        for own in broken {
            match known.iter().find(|known| same(known, own)) {
                Some(known) => all.push(Broken { text: own.text.clone(), ..(*known).clone() }),
                None if self.cut.contains(&(own.rule, own.by)) => all.push(own.clone()),
                // the end of the capture took it back
                None => {}
            }
        }
        all.extend(known.into_iter().filter(|known| !broken.iter().any(|own| same(known, own))).cloned());
        all
    }

    /// By the number of the exchange, which both passes count alike.
    fn of(&self, frame: u64) -> &[(u64, Family, u64)] {
        self.by_request.get(&frame).map_or(&[], Vec::as_slice)
    }
}

/// Facts about one frame.
#[derive(Clone, Debug, Default)]
pub struct FrameNotes {
    /// What an earlier pass over the capture found.
    pub first_pass: Option<Arc<FirstPass>>,
    layer: Layer,
    observed: Option<u64>,
    /// The exchanges that it belongs to: several if it carries a compound.
    exchanges: Vec<InFrame>,
    broken: Vec<Broken>,
    /// The mirror session that it came through.
    pub mirror: mirror::Set,
    /// The connection that it belongs to, and the end that sent it.
    pub place: Option<(u32, End)>,
    /// Its source and its destination.
    pub hosts: Option<(Addr, Addr)>,
    /// Earlier frames that this frame shows to belong to its connection, by number, with the side that sent them.
    pub earlier: Vec<(u64, End)>,
    /// True if the packet came before.
    pub retransmission: bool,
    /// The frame that the packet stood in before, if still known.
    pub copy_of: Option<u64>,
    /// True if it was damaged on the way, so that its receiver dropped it.
    pub is_damaged: bool,
    /// True if it stands behind its place in the capture: what comes of it is not late.
    pub is_misplaced: bool,
}

impl FrameNotes {
    /// Broken rules kept of one frame at most.
    const BROKEN_MAX: usize = 256;
    /// Exchanges kept of one frame at most.
    const EXCHANGES_MAX: usize = 256;

    /// A new frame. If `observed` gives its number, the rules broken in it are kept until the next.
    #[inline(always)]
    pub fn begin(&mut self, observed: Option<u64>) {
        self.layer = Layer::Other;
        self.observed = observed;
        // nearly always empty
        if !self.exchanges.is_empty() {
            self.exchanges.clear();
        }
        if !self.broken.is_empty() {
            self.broken.clear();
        }
        self.mirror = mirror::Set::default();
        self.place = None;
        self.earlier.clear();
        self.retransmission = false;
        self.copy_of = None;
        self.is_damaged = false;
        self.is_misplaced = false;
    }

    /// It was understood up to `layer`.
    #[inline]
    pub fn understood(&mut self, layer: Layer) {
        self.layer = self.layer.max(layer);
    }

    /// Highest layer that was understood.
    #[inline]
    pub fn layer(&self) -> Layer {
        self.layer
    }

    /// It belongs to an exchange for which RDMA has moved `moved` bytes up to now.
    #[inline]
    pub fn belongs(&mut self, exchange: u64, moved: u64) {
        if let Some(known) = self.exchanges.iter_mut().find(|e| e.exchange == exchange) {
            known.moved = moved;
        } else if self.exchanges.len() < Self::EXCHANGES_MAX {
            self.exchanges.push(InFrame { exchange, moved, file: None, answer: None });
        }
    }

    /// It has the request of an exchange, which is about this file.
    pub fn asks(&mut self, exchange: u64, file: Option<&Arc<str>>) {
        if self.observed.is_some()
            && let Some(known) = self.exchanges.iter_mut().find(|e| e.exchange == exchange)
        {
            known.file = file.cloned();
        }
    }

    /// It ends a reply to an exchange, at `at`.
    pub fn answers(&mut self, exchange: &Exchange, at: At) {
        self.belongs(exchange.id, exchange.rdma_bytes());
        if self.observed.is_none() {
            return;
        }
        if let Some(known) = self.exchanges.iter_mut().find(|e| e.exchange == exchange.id) {
            known.answer = Some(AnsweredRequest {
                family: exchange.family,
                request: exchange.request.frame,
                request_end: exchange.request_end.frame,
                took: at.since(exchange.request),
                took_whole: at.since(exchange.request_end),
                command: exchange.command,
            });
            known.file = exchange.file.clone().or(known.file.take());
        }
    }

    /// The exchanges that it belongs to, in the order in which they stand in it.
    pub fn exchanges(&self) -> &[InFrame] {
        &self.exchanges
    }

    /// True if the decoding of this frame has an observer.
    pub fn is_observed(&self, frame: u64) -> bool {
        self.observed == Some(frame)
    }

    /// A rule was broken in it.
    pub fn broken(&mut self, broken: Broken) {
        if self.broken.len() < Self::BROKEN_MAX {
            self.broken.push(broken);
        }
    }

    /// Traces the results of the whole frame: its connection, its exchanges, and the rules that it breaks.
    pub fn trace<T: Trace>(&self, tunnel: Option<&Tunnel>, t: &mut T) {
        let later = self.first_pass.as_ref().zip(self.observed);
        let found = later.map(|(known, frame)| known.findings_of(frame, &self.broken));
        let broken = found.as_deref().unwrap_or(&self.broken);
        for (what, frame) in later.and_then(|(known, frame)| known.by_fragment.get(&frame)).into_iter().flatten() {
            t.field(what.reassembled_in(), &[], 0, Value::U(*frame));
        }
        if self.place.is_none() && self.exchanges.is_empty() && broken.is_empty() && tunnel.is_none() {
            return;
        }
        let at: &[u8] = &[];
        t.open(f::PROTOCOL, at);
        if let Some((id, _)) = self.place {
            t.field(f::CONNECTION, at, 0, Value::U(id.into()));
        }
        if let Some(of) = self.copy_of {
            t.field(f::COPY_OF, at, 0, Value::U(of));
        }
        if let Some(tunnel) = tunnel {
            t.field(f::MIRROR, at, 0, Value::Str(tunnel.kind.name()));
            t.field(f::MIRROR_SESSION, at, 0, Value::U(tunnel.id.into()));
            t.field(f::MIRROR_TRUNCATED, at, 0, Value::U(tunnel.truncated.into()));
        }
        let mut replies = later.map_or(&[][..], |(known, frame)| known.of(frame)).iter();
        for exchange in &self.exchanges {
            t.field(f::EXCHANGE, at, 0, Value::U(exchange.exchange));
            if let Some((_, family, reply)) = replies.as_slice().first().filter(|(id, ..)| *id == exchange.exchange) {
                let is_in = if *family == Family::Smb2 { f::SMB2_RESPONSE_IN } else { f::RPC_REPLY };
                t.field(is_in, at, 0, Value::U(*reply));
                replies.next();
            }
            if exchange.moved > 0 {
                t.field(f::EXCHANGE_BYTES, at, 0, Value::U(exchange.moved));
            }
            if let Some(answer) = &exchange.answer {
                t.field(f::EXCHANGE_REQUEST, at, 0, Value::U(answer.request));
                t.field(f::EXCHANGE_TIME, at, 0, duration(answer.took));
                // the same under Wireshark's names, which counts from the frame that it names
                let (to, time) = match answer.family {
                    Family::Smb2 => (f::SMB2_RESPONSE_TO, f::SMB2_TIME),
                    Family::Rpc => (f::RPC_REQUEST, f::RPC_TIME),
                };
                t.field(to, at, 0, Value::U(answer.request_end));
                t.field(time, at, 0, duration(answer.took_whole));
                t.field(f::EXCHANGE_COMMAND, at, 0, Value::Str(answer.command));
            }
            if let Some(file) = &exchange.file {
                t.field(f::EXCHANGE_FILE, at, 0, Value::Str(file));
            }
        }
        for broken in broken {
            let row = broken.rule.row();
            let (id, severity, section, by) = (row.id, broken.severity.name(), row.spec, broken.by.name());
            t.open(f::FINDING, at);
            t.field(f::FINDING_ID, at, 0, Value::Str(id));
            t.field(f::FINDING_SEVERITY, at, 0, Value::Str(severity));
            t.field(f::FINDING_SECTION, at, 0, Value::Str(section));
            t.field(f::FINDING_BY, at, 0, Value::Str(by));
            t.field(f::FINDING_CERTAINTY, at, 0, Value::Str(broken.certainty.name()));
            t.field(f::FINDING_TEXT, at, 0, Value::Str(&broken.text));
            t.close(at);
        }
        t.close(at);
    }
}

/// A duration in ns as the observers take it.
pub fn duration(ns: i64) -> Value<'static> {
    const SECOND: i64 = 1_000_000_000;
    Value::Time { seconds: ns.div_euclid(SECOND), nanos: ns.rem_euclid(SECOND) as u32 }
}
