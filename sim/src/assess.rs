//! Compares the result of an analysis with the truth.

use crate::end::{End as Party, Request, Transfer};
use crate::fault::{Act, Fault};
use crate::observer::{Observer, Record};
use crate::plan::{Carrier, Plan, Protocol};
use crate::transport::{Class, Time};
use crate::world::{LinkEvent, Sent, Truth, What, World};
use rdmascope_analyzer::answer::answer;
use rdmascope_analyzer::env::Options;
use rdmascope_analyzer::episodes::time::Owner;
use rdmascope_analyzer::episodes::{Cause, Episode, Kind as Episodic};
use rdmascope_analyzer::exchange::Exchange;
use rdmascope_analyzer::finding::{Blame, Certainty, Finding, Severity};
use rdmascope_analyzer::op::End;
use rdmascope_analyzer::pipeline::{FrameMeta, Pipeline};
use rdmascope_analyzer::report::{Connection, Report, Sink};
use rdmascope_dissector::frame::LinkType;
use rdmascope_dissector::trace::Off;
use sha2::{Digest, Sha256};
use std::collections::BTreeMap;

/// A problem with an analysis.
#[derive(Clone, Debug)]
pub struct Problem {
    /// The kind.
    pub kind: Kind,
    /// The rule, fault or count that it is about.
    pub about: String,
    /// The problem in words.
    pub text: String,
}

/// Kinds of problems.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Kind {
    /// The wrong side is blamed, as certain.
    FalseBlame,
    /// The wrong side is blamed, as likely, in a complete capture.
    FalseLikely,
    /// Something visible in the capture was not reported.
    Missed,
    /// A number is wrong.
    Count,
    /// Time of a request is attributed to the wrong owner.
    Time,
}

impl Kind {
    /// True if something wrong was reported, rather than something missed.
    pub fn is_false(self) -> bool {
        self != Self::Missed
    }
}

/// By name: the number of times that something was looked for, and that it was found.
pub type Recall = BTreeMap<String, (u64, u64)>;

/// A verdict.
#[derive(Debug, Default)]
pub struct Assessment {
    /// The problems found.
    pub problems: Vec<Problem>,
    /// The things looked for.
    pub recall: Recall,
}

impl Assessment {
    fn wrong(&mut self, kind: Kind, about: impl Into<String>, text: String) {
        self.problems.push(Problem { kind, about: about.into(), text });
    }

    fn looked(&mut self, name: &str, found: bool, explain: impl FnOnce() -> String) {
        let row = self.recall.entry(name.to_string()).or_default();
        row.0 += 1;
        row.1 += u64::from(found);
        if !found {
            let text = explain();
            self.wrong(Kind::Missed, name, text);
        }
    }
}

/// Requests as the analysis reports them.
#[derive(Default)]
pub struct Exchanges {
    /// All that ended.
    pub exchanges: Vec<Exchange>,
}

impl Sink for Exchanges {
    fn exchange(&mut self, exchange: &Exchange) {
        self.exchanges.push(exchange.clone());
    }
}

/// Analyzes a capture.
pub fn analyze(records: &[Record]) -> (Report, Exchanges) {
    let options = Options { payloads: true, ..Options::default() };
    let mut pipeline = Pipeline::with_sink(options, Exchanges::default());
    for (n, record) in records.iter().enumerate() {
        let meta = FrameMeta {
            number: n as u64 + 1,
            time_ns: record.time,
            link_type: LinkType::ETHERNET,
            wire_len: record.length,
            interface: record.interface,
        };
        pipeline.frame(&meta, &record.bytes, &mut Off);
    }
    pipeline.finish()
}

/// A finding that names a side and is more than a guess.
pub fn names_somebody(f: &Finding) -> bool {
    f.certainty > Certainty::Guess && matches!(f.by, Blame::Client | Blame::Server | Blame::Network)
}

/// The data to check findings against.
struct Asked<'a> {
    plan: &'a Plan,
    truth: &'a Truth,
    world: &'a World,
}

impl Asked<'_> {
    fn any(&self, what: impl Fn(What) -> bool) -> bool {
        self.truth.happened.iter().any(|h| what(h.what))
    }

    fn lost(&self) -> bool {
        self.any(|w| matches!(w, What::Lost | What::Damaged))
    }

    fn late(&self) -> bool {
        self.any(|w| matches!(w, What::Late(_)))
    }

    /// True if something was retransmitted that its receiver already had.
    fn needless(&self, from: usize) -> bool {
        self.truth.sent.iter().any(|s| s.from == from && s.again)
    }

    /// True if something of the server came late to the tap, or was retransmitted, and nothing else of it passed
    /// meanwhile: at the tap that looks the same as a slow server.
    fn is_alone(&self) -> bool {
        let kept = |h: &LinkEvent| match h.what {
            What::Late(by) => by,
            What::Lost => self.plan.timeout.min(crate::transport::MILLISECOND),
            _ => 0,
        };
        let passes = |h: &LinkEvent, to: Time| {
            self.truth.tapped.iter().any(|t| t.from == 1 && t.id != h.id && (h.time..to).contains(&t.time))
        };
        // a Response to the server's Read that came late behind the tap: nobody acknowledges it
        let is_hidden = |h: &LinkEvent| h.from == 0 && h.behind && h.class == Class::Response && kept(h) > 0;
        self.truth
            .happened
            .iter()
            .any(|h| is_hidden(h) || h.from == 1 && !h.behind && kept(h) > 0 && !passes(h, h.time + kept(h)))
    }

    fn stalled(&self, by: usize) -> bool {
        !self.world.hosts[by].account().dry.is_empty()
    }

    /// True if this side may be reported for the rule.
    fn may(&self, f: &Finding) -> bool {
        let id = f.rule.id();
        if f.by == Blame::Network {
            return match id {
                "RC-RETRANSMIT" | "RC-GAP" | "TCP-LOSS" => f.text.split("; ").all(|clause| self.is_lost(clause)),
                "RC-REORDER" | "TCP-REORDER" | "TCP-HELD" => self.late(),
                "RC-ICRC" | "TCP-CHECKSUM" | "MPA-CRC" => {
                    self.truth.happened.iter().any(|h| h.what == What::Damaged && !h.behind) && self.direction(&f.text)
                }
                "RC-DUPLICATE" => self.any(|w| w == What::Copied),
                "RC-ECN" | "RC-CNP" => self.any(|w| w == What::Marked),
                "RC-NAK" | "RC-SPURIOUS" | "TCP-SPURIOUS" => self.lost() || self.late(),
                "PEER-SILENT" => self.plan.link.cut.is_some(),
                "RC-PFC" | "RC-PAUSE-STORM" => !self.truth.pauses.is_empty(),
                _ => false,
            };
        }
        let side = usize::from(f.by == Blame::Server);
        if let Some((by, fault, _)) = self.plan.fault
            && self.world.hosts[by].account().failed_at.is_some()
        {
            if by == side && (fault.named.contains(&id) || fault.besides.contains(&id)) {
                return true;
            }
            // an end that stops still owes its answers
            let stops = !fault.act.goes_on() && fault.act.is_transfer();
            if by == side
                && stops
                && matches!(
                    id,
                    "SMB2-UNANSWERED"
                        | "RPC-UNANSWERED"
                        | "SMBD-CREDIT-EXHAUSTED"
                        | "SMBD-CREDIT-STALL"
                        | "CM-DISCONNECT"
                        | "TCP-RESET"
                        | "SMBD-FRAG-REMAINING"
                )
            {
                return true;
            }
        }
        // and so does one that leaves without a word
        if self.world.hosts[side].transport().left()
            && matches!(
                id,
                "SMBD-CREDIT-EXHAUSTED"
                    | "SMBD-CREDIT-STALL"
                    | "SMBD-FRAG-REMAINING"
                    | "SMB2-UNANSWERED"
                    | "RPC-UNANSWERED"
            )
        {
            return true;
        }
        // an end whose peer did something wrong may hang up
        if self.plan.fault.is_some_and(|(by, ..)| by != side && self.world.hosts[by].account().failed_at.is_some())
            && id == "CM-DISCONNECT"
            && side == 0
        {
            return true;
        }
        match id {
            // the ends' own sizes: few credits
            // answered requests moved their data in messages
            "SMB-PATH-INLINE" => {
                let moved = |r: &&Request| r.done.is_some() && r.moved > 0;
                side == 0 && self.truth.requests.iter().filter(moved).all(|r| !r.rdma)
            }
            "SMBD-NEG-REACH" | "SMBD-FRAG-COST" | "SMBD-CREDIT-STARVED" => true,
            "SMBD-CREDIT-STALL" => self.stalled(1 - side),
            "SMBD-CREDIT-OVERRUN" | "SMBD-CREDIT-LAST" | "BUG-SMBDIRECT-LAST-CREDIT" => {
                self.world.hosts[side].account().overran
            }
            // of the simulator's own ends none answers marks of congestion
            "IWARP-ECN" => self.any(|w| w == What::Marked),
            "RC-CNP-MISSING" => !self.plan.ours && self.any(|w| w == What::Marked),
            "SMB2-SLOW" | "RPC-SLOW" => {
                side == 1
                    && (self.plan.slow.is_some() || self.is_alone() || self.world.hosts[1].account().stopped.is_some())
            }
            "RC-RNR" => !self.plan.not_ready[side].is_empty(),
            "RC-SPURIOUS" | "TCP-SPURIOUS" => self.needless(side),
            "PEER-SILENT" => {
                // an end that died, or whose wrong access its peer refused, does not answer any more
                let is_gone =
                    |f: &Fault| matches!(f.act, Act::Deaf | Act::Die) || f.act.needs_memory() && !f.act.goes_on();
                let is_its = |(by, f, _): (usize, &Fault, u64)| {
                    by == side && is_gone(f) && self.world.hosts[by].account().failed_at.is_some()
                };
                self.plan.rude || self.plan.link.cut.is_some() || self.plan.fault.is_some_and(is_its)
            }
            _ => false,
        }
    }

    /// True if packets of the direction that a clause names were lost, damaged, or so late that they were sent again:
    /// that is as good as lost.
    fn is_lost(&self, clause: &str) -> bool {
        let is_gone = |h: &LinkEvent| match h.what {
            What::Lost | What::Damaged => true,
            What::Late(by) => {
                let sent = |s: &Sent| s.from == h.from && s.again && s.id > h.id && (h.behind || s.time < h.time + by);
                self.truth.sent.iter().any(sent)
            }
            _ => false,
        };
        let from = direction(clause);
        // on TCP every segment does
        let acknowledges =
            |h: &LinkEvent| self.plan.carrier == Carrier::Iwarp || matches!(h.class, Class::Ack | Class::Nak);
        self.truth.happened.iter().any(|h| {
            is_gone(h) && from.is_none_or(|from| h.from == from || acknowledges(h) && clause.contains("acknowledgment"))
        })
    }

    /// True if something was lost or damaged in the direction that a text names, or no direction is named.
    fn direction(&self, text: &str) -> bool {
        let Some(from) = direction(text) else { return true };
        self.truth.happened.iter().any(|h| {
            (matches!(h.what, What::Lost | What::Damaged) || h.behind && matches!(h.what, What::Late(_)))
                && (h.from == from || matches!(h.class, Class::Ack | Class::Nak) && text.contains("acknowledgment"))
        })
    }
}

/// The direction that a text names.
fn direction(text: &str) -> Option<usize> {
    let names = |who: &str| text.contains(who);
    (names("from the client to the server") || names("from 10.0.0.1 to"))
        .then_some(0)
        .or_else(|| (names("from the server to the client") || names("from 10.0.0.2 to")).then_some(1))
}

/// Compares an analysis with the truth.
pub fn assess(plan: &Plan, world: &World, report: &Report, kept: &Exchanges) -> Assessment {
    let truth = &world.truth;
    let asked = Asked { plan, truth, world };
    let mut verdict = Assessment::default();
    if truth.runaway {
        verdict.wrong(Kind::Count, "runaway", "the simulation did not end".into());
        return verdict;
    }
    let findings = report.findings.ranked();
    for f in findings.iter().filter(|f| names_somebody(f)) {
        if !asked.may(f) {
            let text = format!(
                "{} by {}, {}, {}: {}",
                f.rule.id(),
                f.by.name(),
                f.severity.name(),
                f.certainty.name(),
                f.text
            );
            let kind = if f.certainty == Certainty::Certain { Kind::FalseBlame } else { Kind::FalseLikely };
            verdict.wrong(kind, format!("{} {}", f.rule.id(), f.by.name()), text);
        } else if plan.clean && f.severity == Severity::Error {
            verdict.wrong(Kind::FalseBlame, format!("{} {} on a clean run", f.rule.id(), f.by.name()), f.text.clone());
        }
    }
    recall(plan, world, report, &mut verdict);
    episodes(plan, world, report, &mut verdict);
    time(plan, world, kept, &mut verdict);
    if plan.fault.is_none() && world.hosts.iter().all(|h| !h.transport().failed()) {
        owners(plan, world, kept, &mut verdict);
        first_sentence(plan, world, report, &mut verdict);
    }
    if matches!(plan.observer, Observer::Whole | Observer::Tunnel)
        && !world.truth.happened.iter().any(|h| h.behind || h.what == What::Damaged)
    {
        counts(plan, world, report, kept, &mut verdict);
    }
    verdict
}

fn recall(plan: &Plan, world: &World, report: &Report, verdict: &mut Assessment) {
    if !plan.observer.sees_all() {
        return;
    }
    let findings = report.findings.ranked();
    let all = || findings.iter().map(|f| format!("{} {}", f.rule.id(), f.by.name())).collect::<Vec<_>>().join(", ");
    let found = |ids: &[&str], side: Option<usize>| {
        let by = side.map(|s| [Blame::Client, Blame::Server][s]);
        findings.iter().any(|f| ids.contains(&f.rule.id()) && by.is_none_or(|by| f.by == by || f.by == Blame::Unknown))
    };
    if let Some((by, fault, _)) = plan.fault
        && let Some(at) = world.hosts[by].account().failed_at
        && world.truth.happened.iter().all(|h| matches!(h.what, What::Marked | What::Copied))
        && world.truth.end > at
        && !plan.rude
        && (fault.act != Act::RefuseCredits || world.hosts[1 - by].account().dry.is_open())
        && !(fault.act == Act::Deaf && world.truth.end < at + crate::transport::SECOND)
        && (fault.act != Act::HalfClose
            || world.truth.requests.iter().any(|r| r.arrived.is_some() && r.replied.is_none()))
    {
        let name = format!("{} of the {}", fault.name, ["client", "server"][by]);
        verdict.looked(&name, found(fault.named, Some(by)), || {
            format!("expected one of {:?} of {by}; said {}", fault.named, all())
        });
    }
    // packets that were lost and retransmitted
    let lost = world
        .truth
        .happened
        .iter()
        .filter(|h| h.what == What::Lost && matches!(h.class, Class::Data | Class::Response));
    let again = |from| world.truth.sent.iter().any(|s| s.from == from && s.again && s.class != Class::Ack);
    let mut seen = [false; 2];
    for h in lost {
        // a packet lost behind the tap is seen twice; one lost before it leaves a gap, if later packets pass before its
        // retransmission
        let next = world.truth.sent.iter().find(|s| s.from == h.from && s.again && s.id > h.id).map(|s| s.id);
        let gap = || {
            let is_later = |t: &&crate::world::Tapped| t.from == h.from && t.id > h.id && next.is_none_or(|n| t.id < n);
            world.truth.tapped.iter().filter(is_later).any(|t| world.truth.sent[t.id as usize - 1].class == h.class)
        };
        seen[h.from] |= again(h.from) && (h.behind || gap());
    }
    for from in [0, 1] {
        if seen[from] && plan.fault.is_none() {
            let ids = match plan.carrier {
                Carrier::Roce => &["RC-RETRANSMIT", "RC-GAP", "PEER-SILENT"][..],
                Carrier::Iwarp => &["TCP-LOSS", "PEER-SILENT"],
            };
            // a Response to a Read that was lost once, and that no rule is about, is an episode of its connection
            let sender = [End::A, End::B][from];
            let is_its = |e: &Episode| {
                e.kind == Episodic::Recovery
                    && e.by == Some(if e.cause.is_of_the_peer() { sender.peer() } else { sender })
            };
            let is_told = |c: &Connection| c.episodes.list.iter().any(is_its);
            let is_named = found(ids, None) || report.connections.iter().any(is_told);
            verdict.looked(&format!("loss, {:?}", plan.carrier), is_named, || {
                format!("packets of {from} were lost; said {}", all())
            });
        }
    }
    if world.truth.happened.iter().any(|h| h.what == What::Damaged && !h.behind) {
        let ids = ["RC-ICRC", "TCP-CHECKSUM", "MPA-CRC"];
        verdict.looked(&format!("damage, {:?}", plan.carrier), found(&ids, None), || format!("said {}", all()));
    }
    if world.truth.happened.iter().any(|h| h.what == What::Marked) {
        verdict.looked(&format!("congestion marks, {:?}", plan.carrier), found(&["RC-ECN", "IWARP-ECN"], None), || {
            format!("said {}", all())
        });
    }
}

/// Episodes: each true one is reported, and each reported one has a cause.
fn episodes(plan: &Plan, world: &World, report: &Report, verdict: &mut Assessment) {
    let Some(connection) = report.connections.first() else { return };
    let is_alone = report.connections.len() == 1;
    if !plan.observer.sees_all() || matches!(plan.observer, Observer::Twice(..)) || !is_alone || plan.fault.is_some() {
        return;
    }
    let truth = &world.truth;
    let told = &connection.episodes.list;
    let has = |kind: Episodic, by: Option<End>| told.iter().any(|e| e.kind == kind && (by.is_none() || e.by == by));
    let happened = |is: &dyn Fn(&LinkEvent) -> bool| truth.happened.iter().any(is);
    let is_gone = |h: &LinkEvent| matches!(h.what, What::Lost | What::Damaged | What::Late(_));
    for e in told.iter().filter(|e| e.kind == Episodic::Recovery && connection.client_known) {
        let from = usize::from(e.by == Some(End::B));
        let acknowledges = |h: &LinkEvent| {
            matches!(h.class, Class::Ack | Class::Nak) || plan.carrier == Carrier::Iwarp || h.class == Class::Response
        };
        let is_true = match e.cause {
            // if the receiver's packets were lost, delayed or damaged, its state cannot be known
            Cause::LostBefore => happened(&|h| h.from == from && is_gone(h)),
            Cause::LostBehind => {
                happened(&|h| h.from == from && is_gone(h) || h.from != from && is_gone(h) && acknowledges(h))
            }
            // it seems to be that, if the receiver continues; what a pause delays, Responses to Reads among it, cannot
            // be told from it
            Cause::AckLost | Cause::ResponseLost => happened(&is_gone) || plan.link.pause.is_some(),
            Cause::Damaged => happened(&|h| h.from == from && h.what == What::Damaged),
            Cause::Misaddressed => false,
            _ => true,
        };
        if !is_true {
            verdict.wrong(Kind::Time, format!("cause {}", e.cause.key()), format!("{e:?}"));
        }
    }
    let mut looked = |name: &str, found: bool| verdict.looked(name, found, || format!("told: {told:?}"));
    let ends = [End::A, End::B];
    for side in [0, 1] {
        let refused = world.hosts[side].transport().refused();
        if refused > 0 && !happened(&|h| h.from == side && is_gone(h)) {
            looked("episode: receiver not ready", has(Episodic::Rnr, Some(ends[1 - side])));
        }
    }
    // a packet that leaves as soon as the pause is over had waited for it
    if let Some((of, begin, end)) = plan.link.pause
        && !matches!(plan.observer, Observer::Coarse(_))
        && world.truth.sent.iter().any(|s| s.from == of && s.time < begin)
        && world.truth.sent.iter().any(|s| s.from == of && (end..end + SLACK / 4).contains(&s.time))
        && truth.happened.iter().all(|h| h.what == What::Marked)
    {
        let is_it =
            |e: &Episode| e.kind == Episodic::Pause && e.by == Some(ends[of]) && e.cause == Cause::PriorityUnknown;
        looked("episode: pause", told.iter().any(is_it));
    }
    // what begins and ends within one tick of the capture's clock lasts no time there
    let tick = if let Observer::Coarse(tick) = plan.observer { tick } else { 0 };
    let is_repaired = |h: &LinkEvent| {
        let next = truth.sent.iter().find(|s| s.from == h.from && s.again && s.id > h.id && s.class != Class::Ack);
        h.what == What::Lost
            && h.class == Class::Data
            && h.behind
            && next.is_some_and(|next| next.time - h.time >= tick)
    };
    if happened(&is_repaired) {
        looked(
            "episode: recovery",
            has(Episodic::Recovery, None) || has(Episodic::Rnr, None) || has(Episodic::Silence, None),
        );
    }
}

fn counts(plan: &Plan, world: &World, report: &Report, kept: &Exchanges, verdict: &mut Assessment) {
    // operations that were posted and not sent are already counted by the ends
    let is_left = |h: &dyn Party| h.transport().failed() || !h.transport().is_idle();
    if plan.fault.is_some()
        || world.truth.requests.iter().any(|r| r.done.is_none())
        || world.hosts.iter().any(|h| is_left(&**h))
    {
        return;
    }
    let Some(connection) = report.connections.first() else {
        if !world.truth.tapped.is_empty() {
            verdict.wrong(Kind::Count, "connections", "no connection is reported".into());
        }
        return;
    };
    for side in [0, 1] {
        let (ours, theirs) = (world.hosts[side].account().ledger, connection.sides[side]);
        let mut same = |what: &str, truth: u64, reported: u64| {
            if truth != reported {
                verdict.wrong(
                    Kind::Count,
                    what.to_string(),
                    format!("{what} of {side}: {reported}, and it was {truth}"),
                );
            }
        };
        same("messages", ours.messages, theirs.messages);
        same("fragments", ours.fragments, theirs.fragments);
        same("fragmented messages", ours.fragmented, theirs.fragmented);
        if plan.protocol == Protocol::Nfs && side == 0 {
            same("calls", ours.calls, theirs.spent_total);
            same("credits asked for", ours.requested.into(), theirs.requested_max.into());
            same("credits granted", world.hosts[1].account().ledger.granted, theirs.granted_total);
            same("calls beyond the credits", 0, theirs.overruns);
        }
    }
    let done: Vec<&Request> = world.truth.requests.iter().filter(|r| r.done.is_some()).collect();
    let reported: BTreeMap<u64, &Exchange> =
        kept.exchanges.iter().filter(|e| e.reply_end.is_some()).map(|e| (e.message_id, e)).collect();
    if done.len() != reported.len() {
        verdict.wrong(
            Kind::Count,
            "requests",
            format!("{} requests were answered, {} are told", done.len(), reported.len()),
        );
    }
    for request in done {
        let Some(e) = reported.get(&request.id) else { continue };
        if e.command != request.command {
            verdict.wrong(
                Kind::Count,
                "command",
                format!("{}: {} is told as {}", request.id, request.command, e.command),
            );
        }
        if request.transfer.is_some() {
            if e.bytes_moved != request.moved {
                let text = format!("request {}: {} bytes moved, {} are told", request.id, request.moved, e.bytes_moved);
                verdict.wrong(Kind::Count, "bytes", text);
            }
            if let Some(data) = &request.data {
                let hash: [u8; 32] = Sha256::digest(data).into();
                // data in messages of NFS has no hash
                if e.sha256.map_or(request.rdma || plan.protocol == Protocol::Smb, |told| told != hash) {
                    verdict.wrong(
                        Kind::Count,
                        "hash",
                        format!("request {}: the hash is another: {:?} holes", request.id, e.payload_holes),
                    );
                }
            }
        }
        let (first, last): (Time, Time) = (request.posted, request.done.unwrap_or_default());
        if e.latency().is_some_and(|l| l > last - first + 1) && !is_acknowledgment_hidden(plan, world, request) {
            verdict.wrong(
                Kind::Count,
                "latency",
                format!("request {}: {:?} ns are told, {} passed", request.id, e.latency(), last - first),
            );
        }
    }
}

/// True if the tap cannot show which copy of a reply the client took: it was retransmitted because its acknowledgment
/// was lost, late or delayed before it came to the tap.
fn is_acknowledgment_hidden(plan: &Plan, world: &World, request: &Request) -> bool {
    let replied = request.replied.unwrap_or_default();
    let is_hidden =
        |h: &LinkEvent| h.from == 0 && !h.behind && matches!(h.what, What::Lost | What::Late(_)) && h.time >= replied;
    let is_paused = plan.link.pause.is_some_and(|(of, _, to)| of == 0 && to >= replied);
    world.truth.happened.iter().any(is_hidden) || is_paused
}

/// Periods in which the client, or the server in the middle of a message, did not go on although it could.
fn idle(world: &World) -> Vec<(Time, Time)> {
    let lagged = world.hosts[0].transport().lagged().iter().copied();
    lagged.chain(world.hosts.iter().filter_map(|host| host.account().stopped)).collect()
}

/// Maximum difference of an owner's time from the true one: the time of a packet and of a delayed acknowledgment.
const SLACK: Time = 60 * crate::transport::MICROSECOND;

/// Time by owner, whatever the observer saw: it may be unknown, but nobody has time of what did not happen to the
/// request.
fn owners(plan: &Plan, world: &World, kept: &Exchanges, verdict: &mut Assessment) {
    let truth = &world.truth;
    let is_lossless = truth.happened.iter().all(|h| h.what == What::Marked);
    let is_stalled = world.hosts.iter().map(|h| h.account()).any(|a| !a.dry.is_empty() || a.low);
    let refused = world.hosts.iter().any(|h| h.transport().refused() > 0);
    let is_idle = !idle(world).is_empty();
    // copies of a mirror that come this late cannot be told from packets that were sent again
    let is_late = matches!(plan.observer, Observer::Twice(gap, _) if gap > crate::transport::MILLISECOND);
    // two packets that changed places within 1 ms: until others show it, the second seems to have waited that long
    let is_swapped = matches!(plan.observer, Observer::Swapped(_));
    for request in truth.requests.iter().filter(|r| r.done.is_some()) {
        let Some(e) = kept.exchanges.iter().find(|e| e.message_id == request.id && e.reply_end.is_some()) else {
            continue;
        };
        let done = request.done.unwrap_or_default();
        // the tap is between the ends: the same happens up to a way earlier or later there
        let way: Time = plan.link.distance.iter().sum();
        let paused = plan
            .link
            .pause
            .map_or(0, |(_, from, to)| (to.min(done) - from.max(request.posted) + 2 * way + SLACK).max(0));
        let paused = if truth.pauses.is_empty() { 0 } else { paused };
        let most = [
            (
                Owner::Recovery,
                if is_lossless && !refused && !is_late && plan.link.pause.is_none() { 0 } else { Time::MAX },
            ),
            (Owner::Rnr, if refused { Time::MAX } else { 0 }),
            (Owner::Pause, paused),
            (Owner::Credit, if is_stalled { Time::MAX } else { 0 }),
            (Owner::Client, if is_idle || is_swapped || is_delayed_unseen(world) { Time::MAX } else { 0 }),
        ];
        // frames in an order that is not the ends' seem to have waited that long
        let slack = if matches!(plan.observer, Observer::Jitter(_)) { SLACK } else { 0 };
        for (owner, most) in most {
            let told = e.time.of(owner);
            if told > most.saturating_add(slack) {
                let text = format!(
                    "request {}: {told} ns of {}, and it was {most} at most; {:?}",
                    e.message_id,
                    owner.key(),
                    e.time
                );
                verdict.wrong(Kind::Time, format!("more of {}", owner.key()), text);
            }
        }
    }
}

/// True if the network delayed a packet behind the tap: its receiver then seems to answer that much later.
fn is_delayed_unseen(world: &World) -> bool {
    world.truth.happened.iter().any(|h| h.behind && matches!(h.what, What::Late(_)))
}

/// The first sentence of the report: what it names has happened, in that direction.
fn first_sentence(plan: &Plan, world: &World, report: &Report, verdict: &mut Assessment) {
    let Some(answer) = answer(report) else { return };
    let Some(main) = answer.main().filter(|main| main.cost > SLACK) else { return };
    let truth = &world.truth;
    let from = main.from.map(|end| usize::from(end == End::B));
    let is = |of: usize| from.is_none_or(|from| from == of);
    let account = |of: usize| world.hosts[of].account();
    let acknowledges =
        |h: &LinkEvent| matches!(h.class, Class::Ack | Class::Nak | Class::Response) || plan.carrier == Carrier::Iwarp;
    let troubled = || truth.happened.iter().any(|h| h.what != What::Marked && (is(h.from) || acknowledges(h)));
    let happened = match main.kind {
        Episodic::Recovery => {
            troubled()
                || truth.sent.iter().any(|s| s.again && is(s.from))
                || plan.link.pause.is_some()
                || world.hosts.iter().any(|h| h.transport().refused() > 0)
        }
        Episodic::Silence => {
            truth.happened.iter().any(|h| h.what != What::Marked) || plan.rude || plan.link.pause.is_some()
        }
        Episodic::Rnr => [0, 1].iter().any(|of| is(*of) && world.hosts[1 - of].transport().refused() > 0),
        Episodic::Credit => [0, 1].iter().any(|of| is(*of) && (!account(*of).dry.is_empty() || account(*of).low)),
        Episodic::Pause => plan.link.pause.is_some_and(|(of, ..)| is(of)),
        Episodic::HeldUp => {
            truth.happened.iter().any(|h| matches!(h.what, What::Late(_) | What::Lost)) || plan.link.pause.is_some()
        }
        Episodic::Idle => {
            !idle(world).is_empty() || matches!(plan.observer, Observer::Swapped(_)) || is_delayed_unseen(world)
        }
        // only the ends of the active mode slow down
        Episodic::Congestion => plan.ours && truth.happened.iter().any(|h| h.what == What::Marked && is(h.from)),
        // no end closes its window or asks for less than it has; TCP holds back acknowledgments in any case
        Episodic::ZeroWindow | Episodic::Nagle => plan.carrier == Carrier::Iwarp,
        Episodic::Interrupted | Episodic::Gap => false,
    };
    if !happened {
        verdict.wrong(Kind::Time, format!("first sentence: {}", main.kind.key()), format!("{main:?}"));
    }
}

/// Compares the time of requests by owner with the truth. The parts always add up to the whole. If the capture has
/// every packet and nothing happened to any, time belongs only to its true owners. The server never has more time than
/// it took, if packets were lost only behind the tap.
fn time(plan: &Plan, world: &World, kept: &Exchanges, verdict: &mut Assessment) {
    for e in &kept.exchanges {
        let latency = e.latency().unwrap_or(0).max(0);
        if e.reply_end.is_some() && e.time.sum() != latency {
            let text =
                format!("request {}: {:?} come to {}, and it took {latency}", e.message_id, e.time, e.time.sum());
            verdict.wrong(Kind::Time, "sum", text);
        }
    }
    if plan.observer != Observer::Whole || plan.fault.is_some() || world.hosts.iter().any(|h| h.transport().failed()) {
        return;
    }
    let truth = &world.truth;
    let is_quiet = truth.happened.iter().all(|h| h.what == What::Marked)
        && plan.link.pause.is_none()
        && plan.not_ready.iter().all(Vec::is_empty);
    let is_seen = truth.happened.iter().all(|h| h.what == What::Marked || h.behind && h.what == What::Lost);
    let is_calm = plan.link.pause.is_none() && plan.not_ready.iter().all(Vec::is_empty);
    if !(is_quiet || is_seen && is_calm) {
        return;
    }
    let is_stalled = world.hosts.iter().map(|h| h.account()).any(|a| !a.dry.is_empty() || a.low);
    let way: Time = plan.link.distance.iter().sum();
    for request in truth.requests.iter().filter(|r| r.done.is_some()) {
        let Some(e) = kept.exchanges.iter().find(|e| e.message_id == request.id && e.reply_end.is_some()) else {
            continue;
        };
        let (Some(arrived), Some(replied)) = (request.arrived, request.replied) else { continue };
        let (server, work) = (e.time.of(Owner::Server), request.work);
        let done = |r: &Request| r.done.unwrap_or(Time::MAX);
        let mut wrong = |about: &str, text: String| {
            verdict.wrong(Kind::Time, about, format!("request {}: {text}; {:?}", e.message_id, e.time))
        };
        if is_quiet {
            let idle = idle(world);
            let overlaps = |(from, to): &(Time, Time)| *from < done(request) + way && request.posted < *to + way;
            let client = e.time.of(Owner::Client);
            if client > 0 && !idle.iter().any(overlaps) {
                wrong("client", format!("{client} ns of the client, which was not late"));
            }
            // an end with only its last credit, or one that stops in the middle of a message, may have waited for more
            // credits, and one whose window is full for acknowledgments: this cannot be seen; then time may remain
            // without an owner
            let within =
                |(from, to): &(Time, Time)| (*to).min(done(request)).saturating_sub((*from).max(request.posted));
            let full: Time =
                world.hosts.iter().flat_map(|h| h.transport().full()).map(|span| within(span).max(0)).sum();
            let is_full = full > 0 && e.time.of(Owner::Unknown) <= full + SLACK;
            let is_unsure = is_stalled || is_full || world.hosts.iter().any(|h| h.account().stopped.is_some());
            for owner in [Owner::Recovery, Owner::Rnr, Owner::Pause, Owner::Unknown] {
                if e.time.of(owner) > 0 && !(owner == Owner::Unknown && is_unsure) {
                    wrong(owner.key(), format!("{} ns of {}, and nothing happened", e.time.of(owner), owner.key()));
                }
            }
            if !is_stalled && e.time.of(Owner::Credit) > 0 {
                wrong("credit", format!("{} ns of credit, and nobody was without", e.time.of(Owner::Credit)));
            }
            if server + SLACK < work && !is_stalled {
                wrong("server has too little", format!("{server} ns of the server, which took {work}"));
            }
        }
        // behind others, or in many packets, it also waits for the window, which cannot be seen from outside
        let is_alone =
            truth.requests.iter().all(|r| r.id == request.id || done(r) < request.posted || r.posted > done(request));
        let is_small = request.length <= 4096;
        let stops: Time = world.hosts[1].account().stopped.map_or(0, |(from, to)| to - from);
        let most = replied - arrived + stops + 2 * way + SLACK;
        if server > most && !is_stalled && is_alone && is_small {
            wrong(
                "server has too much",
                format!("{server} ns of the server, which took {} at most", replied - arrived),
            );
        }
        // time without an answer to its Read belongs to the client
        let lagged = world.hosts[0].transport().lagged();
        let late: Time = lagged
            .iter()
            .filter(|(from, to)| request.posted < *from && *to < done(request))
            .map(|(from, to)| to - from)
            .sum();
        if is_quiet && late > 0 && is_alone && !is_stalled && request.transfer == Some(Transfer::Write) {
            let client = e.time.of(Owner::Client);
            let name = format!("time of a client that answers Reads late, {:?}", plan.carrier);
            verdict.looked(&name, client + late / 16 + SLACK >= late && client <= late + SLACK, || {
                format!("request {}: {client} ns of the client, which was late by {late}; {:?}", e.message_id, e.time)
            });
        }
        let stopped =
            world.hosts[0].account().stopped.filter(|(from, to)| request.posted <= *from && *to <= done(request));
        // TCP may wait for acknowledgments that are held back as long
        if let Some((from, to)) =
            stopped.filter(|_| is_quiet && is_alone && !is_stalled && plan.carrier == Carrier::Roce)
        {
            let (client, late) = (e.time.of(Owner::Client), to - from);
            verdict.looked(
                "time of a client that stops within a message",
                client + late / 16 + SLACK + 2 * way >= late,
                || {
                    format!(
                        "request {}: {client} ns of the client, which stopped for {late}; {:?}",
                        e.message_id, e.time
                    )
                },
            );
        }
    }
}
