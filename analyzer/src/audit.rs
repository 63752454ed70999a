//! The audit of a lossless network: the marks of the packets of each direction below their transport
//! ([`crate::marking`]) and the pauses ([`crate::pauses`]), compared with each other, over the whole capture.
//!
//! ```text
//!   one connection      directions in different classes, marks without CNPs, CNPs without effect, paths of different length
//!   all connections     classes that flow control pauses and that are in use; ECN in use and not; path MTU and what passes; entropy
//! ```
//!
//! A mirror, and every switch, may rewrite the fields that are judged here: no finding is certain, and a capture
//! through a mirror gets none that is not certain by itself. The class of a DSCP is a switch's own setting; the usual
//! one (DSCP / 8) is a guess.
//!
//! RFC 2474, RFC 3168, RFC 7323; IEEE 802.1Q 36 (priority flow control); InfiniBand volume 1 and annex A17 (RoCEv2).

use crate::episodes::{Cause, Kind, Sum};
use crate::finding::{Blame, Certainty, Finding, Rule, Site};
use crate::marking::{CNP_PACE, CNP_TIME, Direction, Gid};
use crate::op::At;
use crate::report::{Connection, Report};
use crate::summary::Transport;
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::fmt;
use hashbrown::HashMap;
use rdmascope_dissector::frame::Addr;
use rdmascope_dissector::text::{Elapsed, Grouped};

/// Packets from which the marking of a direction can be known.
const ENOUGH: u64 = 32;
/// Marks that a receiver must answer.
const MARKS: u64 = 5;
/// Bytes of an Ethernet frame that only jumbo frames have.
const JUMBO: u32 = 2200;
/// Bytes of payload of a frame of 1500 bytes in RoCE, and of the MSS that goes with it.
const SMALL: (u16, u16) = (1024, 1460);
/// Connections of two hosts from which one UDP source port for all is no accident.
const FLOWS: usize = 4;
/// CNPs from which their pace can be known.
const CNPS: u64 = 32;
/// Bytes that a connection must have moved to be held up by its window.
const MUCH: u64 = 1 << 20;
/// ns of a pause that is too long, and of a capture whose share of pauses can be known.
const LONG: (i64, i64) = (50_000_000, 100_000_000);
/// Pauses from which their share can be known.
const PAUSES: u64 = 10;

/// Reports contradictions.
pub(crate) fn conclude(report: &mut Report) {
    for finding in findings(report) {
        report.findings.add(finding);
    }
}

const fn is_roce(c: &Connection) -> bool {
    matches!(c.network.gid, Some(Gid::RoceV1 | Gid::RoceV2Ipv4 | Gid::RoceV2Ipv6))
}

fn is_rdma(c: &Connection) -> bool {
    c.transport.is_some_and(Transport::is_rdma)
}

fn is_iwarp(c: &Connection) -> bool {
    c.transport == Some(Transport::Iwarp)
}

/// Facts about the whole capture with which each connection is compared.
struct Around<'r> {
    report: &'r Report,
    /// Priorities that anybody paused.
    paused: Vec<u8>,
    /// True if packets of RoCE were marked, or CNPs sent.
    marks_roce: bool,
    /// True if segments were marked.
    marks_tcp: bool,
    /// DSCP and tag of RoCE in another class than the default one.
    class: Option<(u32, u8)>,
    /// The largest frame between two hosts that passed as it is for sure.
    largest: HashMap<(Addr, Addr), u32>,
}

impl<'r> Around<'r> {
    fn new(report: &'r Report) -> Self {
        let mut around = Self {
            report,
            paused: Vec::new(),
            marks_roce: false,
            marks_tcp: false,
            class: None,
            largest: HashMap::new(),
        };
        let mut paused: Vec<u8> = report.capture.paused.rows(i64::MAX).iter().filter_map(|row| row.priority).collect();
        paused.sort_unstable();
        paused.dedup();
        around.paused = paused;
        for c in &report.connections {
            for d in &c.network.directions {
                around.marks_roce |= is_roce(c) && (d.cnps.count > 0 || d.ecn[3] > 0);
                around.marks_tcp |= c.network.gid.is_none() && d.ecn[3] > 0;
                if around.class.is_none() && is_roce(c) && d.packets >= ENOUGH {
                    around.class = d.class().filter(|(class, _)| *class > 0).map(|(class, _)| (c.id, class));
                }
                let passed = if is_roce(c) { d.largest } else { d.tcp.largest };
                let row = around.largest.entry(pair(c)).or_default();
                *row = (*row).max(passed);
            }
        }
        around
    }

    /// Findings about a connection rest on its headers: more certain if it was seen whole, and not through a mirror.
    fn certainty(&self, c: &Connection) -> Certainty {
        let mirrored = c.mirrors.places().next().is_some();
        if mirrored || c.progress.missed || self.report.capture.cut > 0 {
            Certainty::Guess
        } else {
            Certainty::IfNothingWasMissed
        }
    }
}

fn findings(report: &Report) -> Vec<Finding> {
    let mut out = Vec::new();
    let around = Around::new(report);
    for c in &report.connections {
        let mut findings = Findings { c, out: &mut out };
        if is_rdma(c) {
            directions(&mut findings, &around);
        }
        if is_roce(c) {
            roce(&mut findings, &around);
        }
        if is_iwarp(c) {
            iwarp(&mut findings, &around);
        }
    }
    of_all(report, &around, &mut out);
    pauses(report, &around, &mut out);
    out
}

/// Takes findings about one connection.
struct Findings<'r> {
    c: &'r Connection,
    out: &'r mut Vec<Finding>,
}

impl Findings<'_> {
    /// An end did something, which `text` says as a predicate.
    fn add_of(&mut self, rule: Rule, end: usize, at: At, certainty: Certainty, text: String) {
        match (self.c.client_known, end) {
            (true, 0) => self.add(rule, Blame::Client, at, certainty, text),
            (true, _) => self.add(rule, Blame::Server, at, certainty, text),
            (false, _) => self.add(rule, Blame::Unknown, at, certainty, format!("{} {text}", self.c.the(end))),
        }
    }

    fn add(&mut self, rule: Rule, by: Blame, at: At, certainty: Certainty, text: String) {
        let site = Site { connection: Some(self.c.id), frame: at.frame, time_ns: at.time };
        self.out.push(Finding::new(rule, by, site, certainty, text));
    }
}

/// Compares the two directions of an RDMA connection.
fn directions(findings: &mut Findings<'_>, around: &Around<'_>) {
    let c = findings.c;
    let [client, server] = &c.network.directions;
    if client.packets.min(server.packets) < ENOUGH {
        return;
    }
    let certainty = around.certainty(c);
    let differ = |a: Option<u16>, b: Option<u16>| a.zip(b).filter(|(a, b)| a != b);
    let what = differ(client.dscp.usual(), server.dscp.usual())
        .map(|(a, b)| format!("DSCP {a}, {}'s {b}", c.the(1)))
        .or_else(|| {
            differ(client.priority.usual(), server.priority.usual())
                .map(|(a, b)| format!("priority {a}, {}'s {b}", c.the(1)))
        })
        .or_else(|| {
            differ(client.service_levels.usual(), server.service_levels.usual())
                .map(|(a, b)| format!("service level {a}, {}'s {b}", c.the(1)))
        });
    if let Some(what) = what {
        // which class a DSCP is in is a switch's setting
        let may = if client.class() == server.class() { "may run" } else { "run" };
        let whose = c.the(0);
        let text = format!("{whose}'s packets have {what}: the two directions {may} in different classes");
        findings.add(Rule::RcMarking, Blame::Unknown, c.first, certainty, text);
    }
    let mirrored = c.mirrors.places().next().is_some();
    for (end, direction) in c.network.directions.iter().enumerate() {
        let often: Vec<u16> =
            direction.ttl.rows().iter().filter(|(_, n)| n * 20 >= direction.packets).map(|(ttl, _)| *ttl).collect();
        // of a capture at several points the same packet has several
        let near = often.iter().max().zip(often.iter().min()).is_some_and(|(a, b)| a - b <= 8);
        if often.len() > 1 && near && !mirrored && c.health.duplicates == 0 {
            let list: Vec<String> = often.iter().map(ToString::to_string).collect();
            let text = format!(
                "packets of {} came with a TTL of {}: they took paths of different length",
                c.the(end),
                list.join(" and ")
            );
            findings.add(Rule::RcHops, Blame::Network, c.first, Certainty::Guess, text);
        }
    }
}

/// Known facts about RoCE: classes, ECN, CNPs, path MTU.
fn roce(findings: &mut Findings<'_>, around: &Around<'_>) {
    let c = findings.c;
    let certainty = around.certainty(c);
    let same = c.network.directions[0].class() == c.network.directions[1].class();
    for (end, direction) in c.network.directions.iter().enumerate() {
        let name = c.the(end);
        let other = &c.network.directions[1 - end];
        match (same, end) {
            (true, 0) => class(findings, around, direction, &"both ends"),
            (true, _) => {}
            (false, _) => class(findings, around, direction, &name),
        }
        if around.marks_roce && direction.packets >= ENOUGH && direction.ecn[0] * 10 >= direction.packets * 9 {
            // the sender, or a device before the capture point: the capture does not show which
            let text = format!(
                "{name}'s RoCE is not ECN-capable at the capture point, although switches mark packets or \
                    receivers send CNPs in this capture"
            );
            findings.add(Rule::RcEct, Blame::Unknown, c.first, certainty, text);
        }
        unanswered(findings, direction, other, end, certainty);
        let cnps = &direction.cnps;
        let Some((first, _)) = cnps.span else { continue };
        if other.ecn[3] == 0 && other.packets >= ENOUGH {
            let text =
                format!("{name} sent {}, but no packet was marked at the capture point", many(cnps.count, "CNP"));
            findings.add(Rule::RcCnpUnmarked, Blame::Network, first, Certainty::Guess, text);
        }
        // a tag says the class by itself
        let priority = cnps.priority.usual().filter(|_| cnps.priority.count() * 10 >= cnps.count * 9);
        let mark = match (direction.class(), priority) {
            (Some((class, true)), Some(priority)) => {
                (priority == u16::from(class)).then(|| format!("priority {priority}"))
            }
            _ => cnps
                .dscp
                .usual()
                .filter(|dscp| direction.dscp.usual() == Some(*dscp))
                .map(|dscp| format!("DSCP {dscp}")),
        };
        let is_classed = direction.dscp.usual() != Some(0) || !around.paused.is_empty();
        if let Some(mark) = mark.filter(|_| direction.packets >= ENOUGH && is_classed) {
            let text = format!("sends its CNPs with {mark}, as its data: they wait in the same queues");
            findings.add_of(Rule::RcCnpClass, end, first, certainty, text);
        }
        if cnps.count >= CNPS && cnps.close * 2 >= cnps.count {
            let (close, all) = (Grouped(cnps.close), Grouped(cnps.count));
            let text = format!("sent {close} of its {all} CNPs within {} of the previous one", Elapsed(CNP_PACE));
            // devices and captures hand over packets in bursts, too
            findings.add_of(Rule::RcCnpPace, end, first, Certainty::Guess, text);
        }
        if let Some(reaction) = other.pace.reaction().filter(crate::marking::Reaction::is_ignored) {
            let (before, after) = (Grouped(reaction.before), Grouped(reaction.after));
            let text = format!(
                "did not slow down: {before} bytes a second before {} CNPs, {after} while they came",
                reaction.cnps
            );
            findings.add_of(Rule::RcCnpIgnored, 1 - end, reaction.at, Certainty::Guess, text);
        }
    }
    if let (Some(mtu), Some(bytes)) = (c.network.path_mtu(), around.largest.get(&pair(c)))
        && mtu <= SMALL.0
        && *bytes >= JUMBO
    {
        let text = format!(
            "RoCE uses a path MTU of {mtu}, although frames of {} bytes pass between the two hosts",
            Grouped((*bytes).into())
        );
        findings.add(Rule::RcMtu, Blame::Unknown, c.first, certainty, text);
    }
}

/// ns for which a pause held a direction up, from which on that is no chance.
const STOPPED: i64 = 1_000_000;

/// Checks that flow control protects the class of a direction, that of `whose`.
fn class(findings: &mut Findings<'_>, around: &Around<'_>, direction: &Direction, whose: &dyn fmt::Display) {
    let c = findings.c;
    let Some((class, tagged)) = direction.class().filter(|_| direction.packets >= ENOUGH) else { return };
    let dscp = direction.dscp.usual().unwrap_or(0);
    let how = if tagged { String::from("by its VLAN tag") } else { format!("by its DSCP {dscp}") };
    // a pause that held it up shows that its sender has it in another class than its DSCP seems to say
    let is_stopped =
        |sum: &Sum| (sum.kind, sum.cause) == (Kind::Pause, Cause::PriorityUnknown) && sum.lasted >= STOPPED;
    if !tagged && c.episodes.sums.iter().any(is_stopped) {
        return;
    }
    if !around.paused.is_empty() && !around.paused.contains(&class) {
        let list = classes(&around.paused);
        let text = format!("RoCE of {whose} is in class {class} {how}; pause frames are seen for {list} only");
        findings.add(Rule::RcClass, Blame::Unknown, c.first, Certainty::Guess, text);
    } else if let Some((_, used)) = around.class.filter(|(id, _)| *id != c.id && class == 0 && around.paused.is_empty())
    {
        let text = format!("RoCE of {whose} is in the default class {how}, while other RoCE here is in class {used}");
        findings.add(Rule::RcBestEffort, Blame::Unknown, c.first, Certainty::Guess, text);
    }
}

/// Marks of `direction` that its receiver did not answer, or late.
fn unanswered(
    findings: &mut Findings<'_>,
    direction: &Direction,
    receiver: &Direction,
    end: usize,
    certainty: Certainty,
) {
    let c = findings.c;
    let name = c.the(end);
    let marks = direction.ecn[3];
    let Some((first, _)) = direction.marked.filter(|_| marks >= MARKS && receiver.packets > 0) else { return };
    if receiver.cnps.count == 0 {
        if c.last.since(first) >= CNP_TIME {
            let n = Grouped(marks);
            let text = format!("sent no CNP, although {n} packets of {name} reached it with a congestion mark");
            findings.add_of(Rule::RcCnpMissing, 1 - end, first, certainty, text);
        }
        return;
    }
    let answers = &direction.answers;
    let open = answers.open.filter(|open| c.last.since(*open) > CNP_TIME);
    let late = answers.late + u64::from(open.is_some());
    if let Some(at) = answers.first_late.or(open).filter(|_| late * 2 > answers.count) {
        let text = format!("answered marked packets of {name} late or not at all, {}", many(late, "time"));
        findings.add_of(Rule::RcCnpMissing, 1 - end, at, Certainty::Guess, text);
    }
}

/// iWARP, on TCP.
fn iwarp(findings: &mut Findings<'_>, around: &Around<'_>) {
    let c = findings.c;
    let certainty = around.certainty(c);
    let tcp = c.network.directions.map(|d| d.tcp);
    let mss = tcp[0].mss.zip(tcp[1].mss).map(|(a, b)| a.min(b));
    if let (Some(mss), Some(bytes)) = (mss, around.largest.get(&pair(c)))
        && mss <= SMALL.1
        && *bytes >= JUMBO
    {
        let text = format!(
            "the MSS of iWARP is {mss}, although frames of {} bytes pass between the two hosts",
            Grouped((*bytes).into())
        );
        findings.add(Rule::IwarpMss, Blame::Unknown, c.first, certainty, text);
    }
    if around.marks_tcp && c.network.tcp_ecn() == Some(false) {
        let (end, how) = if tcp[0].ecn_setup == 0 { (0, "asked for no ECN") } else { (1, "refused ECN") };
        findings.add_of(
            Rule::IwarpEcn,
            end,
            c.first,
            certainty,
            format!("{how}, although a switch marks other TCP connections in this capture"),
        );
    }
    for (end, direction) in c.network.directions.iter().enumerate() {
        let echoes = tcp[1 - end].ece;
        let is_due = direction.ecn[3] >= MARKS && echoes == 0 && c.network.directions[1 - end].packets > 0;
        if let Some((first, _)) = direction.marked.filter(|(first, _)| is_due && c.last.since(*first) >= CNP_TIME)
            && c.network.tcp_ecn() == Some(true)
        {
            let n = Grouped(direction.ecn[3]);
            let text = format!("echoed none of the congestion marks on {n} segments of {} that reached it", c.the(end));
            findings.add_of(Rule::IwarpEce, 1 - end, first, certainty, text);
        }
    }
    let moved = tcp.iter().map(|t| t.bytes).max().unwrap_or(0);
    if let Some(limit) = c.network.window_limit().filter(|_| moved >= MUCH) {
        let text =
            format!("did not agree to scale TCP's window: at most {} bytes are in flight", Grouped(limit.into()));
        match tcp.map(|t| t.window_scale.is_some()) {
            [false, true] => findings.add_of(Rule::IwarpWindow, 0, c.first, certainty, text),
            [true, false] => findings.add_of(Rule::IwarpWindow, 1, c.first, certainty, text),
            _ => {
                let text = format!("the two ends {text}");
                findings.add(Rule::IwarpWindow, Blame::Unknown, c.first, certainty, text);
            }
        }
    }
}

/// Checks that need several connections.
fn of_all(report: &Report, around: &Around<'_>, out: &mut Vec<Finding>) {
    let mut flows: HashMap<(Addr, Addr), Vec<&Connection>> = HashMap::new();
    let mut versions: [Option<&Connection>; 2] = [None; 2];
    for c in &report.connections {
        match c.network.gid {
            Some(Gid::RoceV1) => versions[0] = versions[0].or(Some(c)),
            Some(Gid::RoceV2Ipv4 | Gid::RoceV2Ipv6) => versions[1] = versions[1].or(Some(c)),
            _ => {}
        }
        let [client, server] = &c.network.directions;
        if c.transport == Some(Transport::RoceV2) && client.packets.min(server.packets) >= ENOUGH {
            flows.entry(pair(c)).or_default().push(c);
        }
    }
    let mut pairs: Vec<&Vec<&Connection>> = flows.values().filter(|all| all.len() >= FLOWS).collect();
    pairs.sort_by_key(|all| all[0].id);
    for all in pairs {
        let port = |c: &Connection| {
            let ports =
                c.network.directions.each_ref().map(|d| if d.ports.others() == 0 { d.ports.rows() } else { &[] });
            let [[(a, _)], [(b, _)]] = ports else { return None };
            Some([*a, *b])
        };
        let Some(first) = port(all[0]) else { continue };
        if all.iter().all(|c| port(c) == Some(first)) {
            let text = format!(
                "all {} RoCE connections of the two hosts have the same UDP source port ({}): a switch that chooses \
                    paths by hash sends \
                them all over one path",
                all.len(),
                if first[0] == first[1] { first[0].to_string() } else { format!("{}, back {}", first[0], first[1]) }
            );
            let mut findings = Findings { c: all[0], out };
            findings.add(Rule::RcEntropy, Blame::Unknown, all[0].first, around.certainty(all[0]), text);
        }
    }
    if let [Some(old), Some(new)] = versions {
        let text = format!(
            "RoCE v1 is used beside RoCE v2 ({}): it cannot be routed and has no DSCP",
            format_args!("connection {}", new.id)
        );
        let mut findings = Findings { c: old, out };
        findings.add(Rule::RcGid, Blame::Unknown, old.first, around.certainty(old), text);
    }
}

/// Checks the pauses: their sources, and classes that are paused for nothing.
fn pauses(report: &Report, around: &Around<'_>, out: &mut Vec<Finding>) {
    let capture = &report.capture;
    let start = capture.first.map_or(0, |at| at.time);
    let end = capture.last.map_or(0, |at| at.time);
    let span = end.saturating_sub(start);
    let rows = capture.paused.rows(end);
    let mut add = |rule: Rule, by: Blame, at: At, certainty: Certainty, text: String| {
        let site = Site { connection: None, frame: at.frame, time_ns: at.time };
        out.push(Finding::new(rule, by, site, certainty, text));
    };
    for row in &rows {
        let is_much = span >= LONG.1 && row.frames >= PAUSES && row.time >= span / 10;
        if !is_much && row.longest < LONG.0 {
            continue;
        }
        let what = row.priority.map_or_else(|| String::from("the whole link"), |p| format!("class {p}"));
        let share = (i128::from(row.time) * 100 / i128::from(span.max(1))) as i64;
        let (mac, total, longest) = (Addr::Mac(row.source), Elapsed(row.time), Elapsed(row.longest));
        let note = row.note();
        let text = format!("{mac} paused {what} for {total}, {share} % of the capture, {longest} at the longest{note}");
        let certainty = if row.is_guess() { Certainty::Guess } else { Certainty::IfNothingWasMissed };
        add(Rule::RcPauseStorm, Blame::Network, row.first, certainty, text);
    }
    let used = |class: u8| capture.classes[usize::from(class & 7)] > 0;
    let all: u64 = capture.classes.iter().sum();
    // if RoCE itself is in a class that is not paused, that is the problem
    if all < ENOUGH || !around.paused.iter().any(|p| used(*p)) {
        return;
    }
    let mut idle: Vec<u8> = around.paused.iter().copied().filter(|p| !used(*p)).collect();
    idle.dedup();
    if let Some(row) =
        rows.iter().filter(|row| row.priority.is_some_and(|p| idle.contains(&p))).min_by_key(|row| row.first)
    {
        let text = format!("pause frames are sent for {}, but the capture has no packet of it", classes(&idle));
        add(Rule::RcPfcIdle, Blame::Network, row.first, Certainty::Guess, text);
    }
}

/// "1 CNP", "2 CNPs".
fn many(n: u64, what: &str) -> String {
    format!("{} {what}{}", Grouped(n), if n == 1 { "" } else { "s" })
}

/// "class 3", "classes 3 and 4".
pub(crate) fn classes(list: &[u8]) -> String {
    let names: Vec<String> = list.iter().map(ToString::to_string).collect();
    match names.as_slice() {
        [one] => format!("class {one}"),
        [rest @ .., last] => format!("classes {} and {last}", rest.join(", ")),
        [] => String::new(),
    }
}

/// Both hosts of a connection, in one order.
fn pair(c: &Connection) -> (Addr, Addr) {
    let [a, b] = c.peers.map(|p| p.address);
    if a <= b { (a, b) } else { (b, a) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::marking::Network;
    use crate::summary::Peer;

    const SECOND: i64 = 1_000_000_000;

    /// A connection of two hosts with a thousand packets each way.
    fn connection(id: u32, transport: Transport, gid: Option<Gid>) -> Connection {
        let at = |seconds: i64| At { frame: u64::from(id), time: seconds * SECOND };
        let mut direction = Direction::default();
        (direction.packets, direction.ecn, direction.largest) = (1000, [0, 0, 1000, 0], 1100);
        direction.dscp.add(0, 1000);
        direction.ports.add(0xc000, 1000);
        direction.tcp.syn = gid.is_none();
        let peer = |last| Peer { address: Addr::V4([192, 0, 2, last]), ..Peer::default() };
        Connection {
            id,
            transport: Some(transport),
            peers: [peer(2), peer(1)],
            client_known: true,
            first: at(1),
            last: at(9),
            network: Network { directions: [direction; 2], gid, path_mtu_asked: None },
            ..Connection::default()
        }
    }

    fn roce(id: u32) -> Connection {
        connection(id, Transport::RoceV2, Some(Gid::RoceV2Ipv4))
    }

    fn iwarp(id: u32) -> Connection {
        connection(id, Transport::Iwarp, None)
    }

    fn with(mut c: Connection, change: impl Fn(&mut Direction)) -> Connection {
        c.network.directions.iter_mut().for_each(change);
        c
    }

    fn rules(connections: Vec<Connection>) -> Vec<Rule> {
        let mut rules: Vec<Rule> =
            findings(&Report { connections, ..Report::default() }).iter().map(|f| f.rule).collect();
        rules.dedup();
        rules
    }

    #[test]
    fn roce_in_the_default_class_beside_roce_in_its_own() {
        let marked = with(roce(1), |d| {
            d.dscp = Default::default();
            d.dscp.add(26, 1000);
        });
        assert_eq!(rules(alloc::vec![marked.clone(), roce(2)]), [Rule::RcBestEffort]);
        assert_eq!(rules(alloc::vec![marked.clone(), Connection { id: 2, ..marked }]), []);
        assert_eq!(rules(alloc::vec![roce(1), roce(2)]), []);
    }

    #[test]
    fn a_small_path_mtu_where_jumbo_frames_pass() {
        let small = with(roce(1), |d| d.path_mtu = Some(1024));
        let large = with(roce(2), |d| (d.path_mtu, d.largest) = (Some(4096), 4170));
        assert_eq!(rules(alloc::vec![small.clone(), large.clone()]), [Rule::RcMtu]);
        assert_eq!(rules(alloc::vec![small.clone(), roce(2)]), []);
        // segments that the capturing host had not cut yet are no frames of the wire
        let offloaded = with(iwarp(2), |d| d.largest = 65_000);
        assert_eq!(rules(alloc::vec![small.clone(), offloaded]), []);
        // nor is another host's link this one's
        let mut away = large;
        away.peers[0].address = Addr::V4([192, 0, 2, 9]);
        assert_eq!(rules(alloc::vec![small, away]), []);
        let mss = |id, mss, largest| with(iwarp(id), |d| (d.tcp.mss, d.tcp.largest) = (Some(mss), largest));
        assert_eq!(rules(alloc::vec![mss(1, 1460, 1514), mss(2, 8960, 9014)]), [Rule::IwarpMss]);
        assert_eq!(rules(alloc::vec![mss(1, 8960, 9014), mss(2, 8960, 9014)]), []);
    }

    #[test]
    fn one_source_port_for_all_queue_pairs() {
        let other = with(roce(4), |d| {
            d.ports = Default::default();
            d.ports.add(0xc001, 1000);
        });
        assert_eq!(rules((1..=4).map(roce).collect()), [Rule::RcEntropy]);
        assert_eq!(rules((1..=3).map(roce).collect()), []);
        assert_eq!(rules((1..=3).map(roce).chain([other]).collect()), []);
    }

    #[test]
    fn both_versions_of_roce() {
        let old = connection(1, Transport::RoceV1, Some(Gid::RoceV1));
        assert_eq!(rules(alloc::vec![old.clone(), roce(2)]), [Rule::RcGid]);
        assert_eq!(rules(alloc::vec![old.clone(), Connection { id: 2, ..old }]), []);
        assert_eq!(rules(alloc::vec![connection(1, Transport::Infiniband, Some(Gid::Infiniband)), roce(2)]), []);
    }

    #[test]
    fn iwarp_without_ecn_where_a_switch_marks() {
        let mut asking = iwarp(1);
        asking.network.directions[0].tcp.ecn_setup = 0xc0;
        asking.network.directions[1].tcp.ecn_setup = 0x40;
        let marked = |c| with(c, |d| (d.ecn, d.marked) = ([0, 0, 990, 10], None));
        assert_eq!(rules(alloc::vec![marked(asking.clone()), iwarp(2)]), [Rule::IwarpEcn]);
        assert_eq!(rules(alloc::vec![asking.clone(), iwarp(2)]), []);
        assert_eq!(rules(alloc::vec![marked(asking.clone()), Connection { id: 2, ..asking }]), []);
        // accurate ECN says something else in these bits
        let mut accurate = iwarp(2);
        accurate.network.directions[0].tcp.ecn_setup = 0x80;
        assert_eq!(accurate.network.tcp_ecn(), None);
    }

    #[test]
    fn a_window_that_is_not_scaled() {
        let moved = |bytes, scales: [Option<u8>; 2]| {
            let mut c = iwarp(1);
            c.network
                .directions
                .iter_mut()
                .zip(scales)
                .for_each(|(d, scale)| (d.tcp.bytes, d.tcp.window_scale) = (bytes, scale));
            let found = findings(&Report { connections: alloc::vec![c], ..Report::default() });
            found.iter().map(|f| (f.rule, f.by)).collect::<Vec<_>>()
        };
        assert_eq!(moved(MUCH, [Some(7), None]), [(Rule::IwarpWindow, Blame::Server)]);
        assert_eq!(moved(MUCH, [None, None]), [(Rule::IwarpWindow, Blame::Unknown)]);
        assert_eq!(moved(MUCH, [Some(7), Some(0)]), []);
        assert_eq!(moved(MUCH - 1, [None, None]), []);
        let text = |scales: [Option<u8>; 2]| {
            let mut c = iwarp(1);
            c.network
                .directions
                .iter_mut()
                .zip(scales)
                .for_each(|(d, scale)| (d.tcp.bytes, d.tcp.window_scale) = (MUCH, scale));
            of_one(c)[0].3.clone()
        };
        assert!(
            text([Some(7), None]).starts_with("did not agree to scale")
                && text([None, Some(7)]).starts_with("did not agree to scale")
        );
        assert!(text([None, None]).starts_with("the two ends did not agree to scale"));
    }

    #[test]
    fn what_came_through_a_mirror_is_a_guess() {
        let mut c = with(roce(1), |d| d.ecn = [1000, 0, 0, 0]);
        c.network.directions[0].cnps.count = 1;
        let certainty = |c: &Connection| {
            let found = findings(&Report { connections: alloc::vec![c.clone()], ..Report::default() });
            found.iter().map(|f| (f.rule, f.certainty)).collect::<Vec<_>>()
        };
        assert_eq!(certainty(&c)[0], (Rule::RcEct, Certainty::IfNothingWasMissed));
        c.progress.missed = true;
        assert_eq!(certainty(&c)[0], (Rule::RcEct, Certainty::Guess));
    }

    fn told(report: &Report) -> Vec<(Rule, Blame, Certainty, String)> {
        findings(report).into_iter().map(|f| (f.rule, f.by, f.certainty, f.text.to_string())).collect()
    }

    fn of_one(c: Connection) -> Vec<(Rule, Blame, Certainty, String)> {
        told(&Report { connections: alloc::vec![c], ..Report::default() })
    }

    /// `other` changes the server's packets alone.
    fn server(mut c: Connection, change: impl Fn(&mut Direction)) -> Connection {
        change(&mut c.network.directions[1]);
        c
    }

    fn client(mut c: Connection, change: impl Fn(&mut Direction)) -> Connection {
        change(&mut c.network.directions[0]);
        c
    }

    const PLAIN: Certainty = Certainty::IfNothingWasMissed;

    #[test]
    fn two_directions_in_different_classes() {
        let dscp = |value, packets| {
            let c = with(roce(1), |d| d.packets = packets);
            client(c, |d| {
                d.dscp = Default::default();
                d.dscp.add(value, 1000);
            })
        };
        let text = |class: &str, may| {
            format!("the client's packets have {class}: the two directions {may} in different classes")
        };
        let marking = |text| alloc::vec![(Rule::RcMarking, Blame::Unknown, PLAIN, text)];
        assert_eq!(of_one(dscp(26, ENOUGH)), marking(text("DSCP 26, the server's 0", "run")));
        assert_eq!(of_one(dscp(7, ENOUGH)), marking(text("DSCP 7, the server's 0", "may run")));
        assert_eq!(of_one(dscp(26, ENOUGH - 1)), []);
        assert_eq!(of_one(dscp(0, ENOUGH)), []);
        assert_eq!(of_one(client(dscp(26, ENOUGH), |d| d.packets = 1000)).len(), 1);
        assert_eq!(of_one(client(dscp(26, ENOUGH), |d| d.packets = ENOUGH - 1)), []);
        let priorities = |a, b| server(client(roce(1), |d| d.priority.add(a, 1000)), |d| d.priority.add(b, 1000));
        assert_eq!(of_one(priorities(3, 4)), marking(text("priority 3, the server's 4", "run")));
        assert_eq!(of_one(priorities(3, 3)), []);
        let levels =
            |a, b| server(client(roce(1), |d| d.service_levels.add(a, 1000)), |d| d.service_levels.add(b, 1000));
        assert_eq!(of_one(levels(1, 2)), marking(text("service level 1, the server's 2", "may run")));
        assert_eq!(of_one(levels(2, 2)), []);
        // not of RDMA
        assert_eq!(of_one(Connection { transport: Some(Transport::Tcp), ..dscp(26, 1000) }), []);
        assert_eq!(of_one(Connection { transport: None, ..dscp(26, 1000) }), []);
    }

    #[test]
    fn paths_of_different_length() {
        let ttls = |rows: &[(u16, u64)]| server(roce(1), |d| rows.iter().for_each(|(ttl, n)| d.ttl.add(*ttl, *n)));
        let hops = |text: &str| alloc::vec![(Rule::RcHops, Blame::Network, Certainty::Guess, String::from(text))];
        let found = |c| of_one(c);
        let text = "packets of the server came with a TTL of 64 and 63: they took paths of different length";
        // one in twenty is often enough
        assert_eq!(found(ttls(&[(64, 950), (63, 50)])), hops(text));
        assert_eq!(found(ttls(&[(64, 951), (63, 49)])), []);
        assert_eq!(found(ttls(&[(64, 1000)])), []);
        // as far apart as that, they may be two systems
        assert_eq!(found(ttls(&[(64, 500), (56, 500)])).len(), 1);
        assert_eq!(found(ttls(&[(64, 500), (55, 500)])), []);
        let copies = |c: Connection| {
            let mut c = c;
            c.health.duplicates = 1;
            c
        };
        assert_eq!(found(copies(ttls(&[(64, 950), (63, 50)]))), []);
    }

    #[test]
    fn packets_that_cannot_be_marked() {
        let ecn = |ecn, packets| server(roce(1), |d| (d.ecn, d.packets) = (ecn, packets));
        let beside = |c: Connection| told(&Report { connections: alloc::vec![c, marking()], ..Report::default() });
        fn marking() -> Connection {
            with(roce(2), |d| d.ecn = [0, 0, 999, 1])
        }
        let text = "the server's RoCE is not ECN-capable at the capture point, although switches mark packets or \
            receivers send CNPs in this \
                    capture";
        let ect = alloc::vec![(Rule::RcEct, Blame::Unknown, PLAIN, String::from(text))];
        assert_eq!(beside(ecn([900, 0, 100, 0], 1000)), ect);
        assert_eq!(beside(ecn([899, 0, 101, 0], 1000)), []);
        assert_eq!(beside(ecn([ENOUGH, 0, 0, 0], ENOUGH)), ect);
        assert_eq!(beside(ecn([ENOUGH - 1, 0, 0, 0], ENOUGH - 1)), []);
        // nobody marks, or only segments of TCP are marked
        assert_eq!(of_one(ecn([1000, 0, 0, 0], 1000)), []);
        let tcp = with(iwarp(2), |d| (d.ecn, d.tcp.syn) = ([0, 0, 999, 1], false));
        assert_eq!(
            told(&Report { connections: alloc::vec![ecn([1000, 0, 0, 0], 1000), tcp], ..Report::default() }),
            []
        );
    }

    /// A client that sent CNPs, of which the server's marks are the cause.
    fn notified(change: impl Fn(&mut Direction)) -> Connection {
        let c = server(roce(1), |d| d.ecn = [0, 0, 999, 1]);
        client(c, |d| {
            (d.cnps.count, d.cnps.span) =
                (100, Some((At { frame: 7, time: SECOND }, At { frame: 9, time: 2 * SECOND })));
            change(d);
        })
    }

    #[test]
    fn notifications_without_a_mark() {
        let text = "the client sent 100 CNPs, but no packet was marked at the capture point";
        let unmarked = alloc::vec![(Rule::RcCnpUnmarked, Blame::Network, Certainty::Guess, String::from(text))];
        let marks = |ecn, packets| server(notified(|_| {}), |d| (d.ecn, d.packets) = (ecn, packets));
        assert_eq!(of_one(marks([0, 0, 1000, 0], 1000)), unmarked);
        assert_eq!(of_one(marks([0, 0, ENOUGH, 0], ENOUGH)), unmarked);
        assert_eq!(of_one(marks([0, 0, ENOUGH - 1, 0], ENOUGH - 1)), []);
        assert_eq!(of_one(marks([0, 0, 999, 1], 1000)), []);
        let one = client(marks([0, 0, 1000, 0], 1000), |d| d.cnps.count = 1);
        assert_eq!(of_one(one)[0].3, "the client sent 1 CNP, but no packet was marked at the capture point");
    }

    #[test]
    fn notifications_in_the_queues_of_data() {
        let class = |text: &str| {
            alloc::vec![(
                Rule::RcCnpClass,
                Blame::Client,
                PLAIN,
                format!("sends its CNPs with {text}, as its data: they wait in the same queues")
            )]
        };
        let data = |c: Connection, dscp| {
            with(c, |d| {
                d.dscp = Default::default();
                d.dscp.add(dscp, 1000);
            })
        };
        let by_dscp = |of_data, of_cnps, packets| {
            data(
                notified(|d| {
                    d.packets = packets;
                    d.cnps.dscp.add(of_cnps, 100);
                }),
                of_data,
            )
        };
        assert_eq!(of_one(by_dscp(26, 26, 1000)), class("DSCP 26"));
        assert_eq!(of_one(by_dscp(26, 26, ENOUGH)), class("DSCP 26"));
        assert_eq!(of_one(by_dscp(26, 26, ENOUGH - 1)), []);
        assert_eq!(of_one(by_dscp(26, 48, 1000)), []);
        // where nothing has a class, nothing is in the wrong one
        assert_eq!(of_one(by_dscp(0, 0, 1000)), []);
        let by_tag = |of_data, of_cnps, tagged| {
            notified(|d| {
                d.priority.add(of_data, 1000);
                d.cnps.priority.add(of_cnps, tagged);
                d.cnps.dscp.add(26, 100);
            })
        };
        let tagged = |of_data, of_cnps, tagged| {
            let c = data(by_tag(of_data, of_cnps, tagged), 26);
            of_one(server(c, |d| d.priority.add(of_data, 1000)))
        };
        assert_eq!(tagged(3, 3, 90), class("priority 3"));
        assert_eq!(tagged(3, 6, 90), []);
        // fewer tags than that say nothing of the others, which have the DSCP of the data
        assert_eq!(tagged(3, 6, 89), class("DSCP 26"));
    }

    #[test]
    fn notifications_without_a_pace() {
        let pace = |count, close| of_one(notified(|d| (d.cnps.count, d.cnps.close) = (count, close)));
        let rule = |count, close| {
            pace(count, close).into_iter().map(|(rule, by, certainty, _)| (rule, by, certainty)).collect::<Vec<_>>()
        };
        assert_eq!(rule(CNPS, CNPS / 2), [(Rule::RcCnpPace, Blame::Client, Certainty::Guess)]);
        assert_eq!(pace(100, 50)[0].3, "sent 50 of its 100 CNPs within 4.0 µs of the previous one");
        assert_eq!(rule(CNPS - 1, CNPS - 1), []);
        assert_eq!(rule(CNPS, CNPS / 2 - 1), []);
    }

    #[test]
    fn sizes_at_the_limit() {
        let mtu = |mtu, largest| {
            let large = with(roce(2), |d| d.largest = largest);
            rules(alloc::vec![with(roce(1), |d| d.path_mtu = Some(mtu)), large])
        };
        assert_eq!(mtu(SMALL.0, JUMBO), [Rule::RcMtu]);
        assert_eq!(mtu(SMALL.0 + 1, JUMBO), []);
        assert_eq!(mtu(SMALL.0, JUMBO - 1), []);
        let mss = |of: [u16; 2], largest| {
            let large = with(iwarp(2), |d| d.tcp.largest = largest);
            let small = server(client(iwarp(1), |d| d.tcp.mss = Some(of[0])), |d| d.tcp.mss = Some(of[1]));
            rules(alloc::vec![small, large])
        };
        assert_eq!(mss([SMALL.1, 9000], JUMBO), [Rule::IwarpMss]);
        assert_eq!(mss([9000, SMALL.1], JUMBO), [Rule::IwarpMss]);
        assert_eq!(mss([SMALL.1 + 1, 9000], JUMBO), []);
        assert_eq!(mss([SMALL.1, 9000], JUMBO - 1), []);
    }

    /// A capture of some ns with pauses of priorities, so many, so long, and taken back.
    fn paused(priorities: u8, times: i64, each: i64, ns: i64, connections: Vec<Connection>) -> Report {
        let mut report = Report { connections, ..Report::default() };
        let at = |time| At { frame: 1, time };
        (report.capture.first, report.capture.last) = (Some(at(0)), Some(at(ns)));
        report.capture.paused.link(0, 1_000_000);
        for n in 0..times {
            for (time, quanta) in [(2 * n * each, 0xffff), ((2 * n + 1) * each, 0)] {
                let times = [quanta; 8];
                let pause = rdmascope_dissector::frame::Pause {
                    source: [2, 0, 0, 0, 0, 9],
                    priorities,
                    quanta,
                    times,
                    whole_link: false,
                };
                report.capture.paused.add(at(time), 0, &pause);
            }
        }
        report
    }

    #[test]
    fn a_class_that_flow_control_does_not_protect() {
        let in_class = |dscp, packets| {
            with(roce(1), |d| {
                d.packets = packets;
                d.dscp = Default::default();
                d.dscp.add(dscp, 1000);
            })
        };
        let found = |c| told(&paused(1 << 3, 1, 1, SECOND, alloc::vec![c]));
        let text = "RoCE of both ends is in class 4 by its DSCP 32; pause frames are seen for class 3 only";
        let class = alloc::vec![(Rule::RcClass, Blame::Unknown, Certainty::Guess, String::from(text))];
        assert_eq!(found(in_class(32, ENOUGH)), class);
        assert_eq!(found(in_class(32, ENOUGH - 1)), []);
        assert_eq!(found(in_class(26, ENOUGH)), []);
        let tagged = with(in_class(26, 1000), |d| d.priority.add(5, 1000));
        let text = "RoCE of both ends is in class 5 by its VLAN tag; pause frames are seen for class 3 only";
        assert_eq!(found(tagged)[0].3, text);
        // a pause that holds packets up without a priority shows that they are in its class
        let stopped = |lasted| {
            let (kind, cause, first) = (Kind::Pause, Cause::PriorityUnknown, At::default());
            let mut c = in_class(32, ENOUGH);
            c.episodes.sums.push(Sum {
                kind,
                cause,
                by: None,
                count: 1,
                lasted,
                cost: 0,
                packets: 0,
                repeated: 0,
                first,
                last: first,
            });
            c
        };
        assert_eq!((found(stopped(STOPPED)), found(stopped(STOPPED - 1))), (alloc::vec![], class));
        // each end by itself where they differ
        let apart = server(in_class(32, 1000), |d| d.priority.add(6, 1000));
        let whose: Vec<String> = found(apart).into_iter().filter(|f| f.0 == Rule::RcClass).map(|f| f.3).collect();
        assert!(
            whose[0].starts_with("RoCE of the client is in class 4")
                && whose[1].starts_with("RoCE of the server is in class 6"),
            "{whose:?}"
        );
        // the default class, where other RoCE has one of its own and nothing is paused
        let other = Connection { id: 2, ..in_class(26, ENOUGH) };
        assert_eq!(rules(alloc::vec![in_class(0, 1000), other.clone()]), [Rule::RcBestEffort]);
        assert_eq!(rules(alloc::vec![in_class(8, 1000), other.clone()]), []);
        let few = with(other.clone(), |d| d.packets = ENOUGH - 1);
        assert_eq!(rules(alloc::vec![in_class(0, 1000), few]), []);
        let found: Vec<Rule> =
            told(&paused(1, 1, 1, SECOND, alloc::vec![in_class(0, 1000), other])).iter().map(|f| f.0).collect();
        assert_eq!(found, [Rule::RcClass], "of the other: what is paused is known, and the first is in it");
    }

    #[test]
    fn marks_without_an_answer() {
        let at = |time| At { frame: 7, time };
        let marked = |marks, last| {
            let c = client(roce(1), |d| {
                d.ecn = [0, 0, 1000, marks];
                d.marked = Some((at(SECOND), at(SECOND)));
            });
            Connection { last: at(last), ..c }
        };
        let text = "sent no CNP, although 5 packets of the client reached it with a congestion mark";
        let missing =
            |text: &str, certainty| alloc::vec![(Rule::RcCnpMissing, Blame::Server, certainty, String::from(text))];
        assert_eq!(of_one(marked(MARKS, SECOND + CNP_TIME)), missing(text, PLAIN));
        // which of them is the client is not known
        let nameless = Connection { client_known: false, ..marked(MARKS, SECOND + CNP_TIME) };
        let by_address = "192.0.2.1 sent no CNP, although 5 packets of 192.0.2.2 reached it with a congestion mark";
        let unknown = (Rule::RcCnpMissing, Blame::Unknown, PLAIN, String::from(by_address));
        assert_eq!(of_one(nameless), [unknown]);
        assert_eq!(of_one(marked(MARKS - 1, SECOND + CNP_TIME)), []);
        assert_eq!(of_one(marked(MARKS, SECOND + CNP_TIME - 1)), []);
        // whose packets the capture does not have, of that nothing is known
        assert_eq!(of_one(server(marked(MARKS, 9 * SECOND), |d| d.packets = 0)), []);
        assert_eq!(of_one(server(marked(MARKS, 9 * SECOND), |d| d.packets = 1)), missing(text, PLAIN));
        let answered = |count, late, open: Option<i64>, last| {
            let c = client(marked(MARKS, last), |d| {
                (d.answers.count, d.answers.late, d.answers.open) = (count, late, open.map(at));
                d.answers.first_late = (late > 0).then(|| at(3));
            });
            of_one(server(c, |d| d.cnps.count = 1))
        };
        let text = |n: &str| {
            missing(&format!("answered marked packets of the client late or not at all, {n}"), Certainty::Guess)
        };
        assert_eq!(answered(4, 2, None, SECOND), []);
        assert_eq!(answered(4, 3, None, SECOND), text("3 times"));
        // the last that is open counts when its time is over
        assert_eq!(answered(4, 2, Some(SECOND), SECOND + CNP_TIME), []);
        assert_eq!(answered(4, 2, Some(SECOND), SECOND + CNP_TIME + 1), text("3 times"));
        assert_eq!(answered(0, 0, Some(SECOND), SECOND + CNP_TIME + 1), text("1 time"));
        assert_eq!(answered(2, 0, Some(SECOND), SECOND + CNP_TIME + 1), []);
    }

    #[test]
    fn marks_that_tcp_does_not_echo() {
        let at = |time| At { frame: 7, time };
        let marked = |marks, last, setup: [u8; 2]| {
            let mut c = client(iwarp(1), |d| {
                d.ecn = [0, 0, 1000, marks];
                d.marked = Some((at(SECOND), at(SECOND)));
            });
            c.network.directions.iter_mut().zip(setup).for_each(|(d, setup)| d.tcp.ecn_setup = setup);
            Connection { last: at(last), ..c }
        };
        let agreed = [0xc0, 0x40];
        let text = "echoed none of the congestion marks on 5 segments of the client that reached it";
        let ece = alloc::vec![(Rule::IwarpEce, Blame::Server, PLAIN, String::from(text))];
        let c = |marks, time| marked(marks, SECOND + time, agreed);
        assert_eq!(of_one(c(MARKS, CNP_TIME)), ece);
        assert_eq!(of_one(c(MARKS, CNP_TIME - 1)), []);
        assert_eq!(of_one(c(MARKS - 1, CNP_TIME)), []);
        assert_eq!(of_one(server(c(MARKS, CNP_TIME), |d| d.tcp.ece = 1)), []);
        assert_eq!(of_one(server(c(MARKS, CNP_TIME), |d| d.packets = 0)), []);
        assert_eq!(of_one(server(c(MARKS, CNP_TIME), |d| d.packets = 1)), ece);
        let rows = |setup| {
            of_one(marked(MARKS, 9 * SECOND, setup)).into_iter().map(|(rule, by, ..)| (rule, by)).collect::<Vec<_>>()
        };
        assert_eq!(rows([0xc0, 0]), [(Rule::IwarpEcn, Blame::Server)]);
        assert_eq!(rows([0, 0]), [(Rule::IwarpEcn, Blame::Client)]);
        assert_eq!(rows([0x80, 0x40]), []);
        let how = |setup| of_one(marked(MARKS, 9 * SECOND, setup))[0].3.clone();
        assert!(how([0xc0, 0]).starts_with("refused ECN, ") && how([0, 0]).starts_with("asked for no ECN, "));
    }

    #[test]
    fn so_many_connections_from_one_port() {
        let away = |n| {
            let mut c = roce(n);
            c.peers[0].address = Addr::V4([192, 0, 2, 9]);
            c
        };
        assert_eq!(rules((1..4).map(roce).chain([away(4)]).collect()), []);
        let few = |packets| rules((1..4).map(roce).chain([server(roce(4), |d| d.packets = packets)]).collect());
        assert_eq!(few(ENOUGH), [Rule::RcEntropy]);
        assert_eq!(few(ENOUGH - 1), []);
        // a port beside those that are listed is another one
        let more = client(roce(4), |d| (0xd000..0xd008).for_each(|port| d.ports.add(port, 1)));
        assert_eq!(rules((1..4).map(roce).chain([more]).collect()), []);
        let text = |c: &dyn Fn(u32) -> Connection| of_one_text((1..5).map(c).collect());
        fn of_one_text(connections: Vec<Connection>) -> String {
            told(&Report { connections, ..Report::default() })[0].3.clone()
        }
        assert!(text(&roce).contains("the same UDP source port (49152):"));
        let back = |n| {
            server(roce(n), |d| {
                d.ports = Default::default();
                d.ports.add(0xc001, 1000);
            })
        };
        assert!(text(&back).contains("the same UDP source port (49152, back 49153):"));
        // the two hosts in either order
        let turned = |n| {
            let mut c = roce(n);
            c.peers.reverse();
            c
        };
        assert_eq!(rules((1..4).map(roce).chain([turned(4)]).collect()), [Rule::RcEntropy]);
    }

    #[test]
    fn storms_of_pauses() {
        let storms = |times, each, ns| {
            let found = told(&paused(1 << 3, times, each, ns, Vec::new()));
            found
                .into_iter()
                .map(|(rule, by, certainty, text)| ((rule, by, certainty), text))
                .unzip::<_, _, Vec<_>, Vec<_>>()
        };
        const MS: i64 = 1_000_000;
        let storm = (Rule::RcPauseStorm, Blame::Network, PLAIN);
        let text =
            String::from("02:00:00:00:00:09 paused class 3 for 10 ms, 10 % of the capture, 1.0 ms at the longest");
        assert_eq!(storms(10, MS, LONG.1), (alloc::vec![storm], alloc::vec![text]));
        assert_eq!(storms(10, MS - 1, LONG.1).0, []);
        assert_eq!(storms(10, MS, LONG.1 - 1).0, [], "too short to know its share");
        assert_eq!(storms(PAUSES as i64 - 1, 2 * MS, LONG.1).0, []);
        assert_eq!(storms(10, MS, LONG.1 + 10).0, []);
        // one that is too long, whatever its share
        assert_eq!(storms(1, LONG.0, 100 * SECOND).0, [storm]);
        assert_eq!(storms(1, LONG.0 - 1, 100 * SECOND).0, []);
    }

    #[test]
    fn classes_that_are_paused_for_nothing() {
        let idle = |priorities, classes: [u64; 8]| {
            let mut report = paused(priorities, 1, 1, SECOND, Vec::new());
            report.capture.classes = classes;
            told(&report)
        };
        let text = "pause frames are sent for classes 4 and 5, but the capture has no packet of it";
        let found = alloc::vec![(Rule::RcPfcIdle, Blame::Network, Certainty::Guess, String::from(text))];
        assert_eq!(idle(0b11_1000, [0, 0, 0, ENOUGH, 0, 0, 0, 0]), found);
        assert_eq!(idle(0b11_1000, [0, 0, 0, 1, 0, 0, 0, ENOUGH - 1]), found);
        assert_eq!(idle(0b11_1000, [0, 0, 0, ENOUGH - 1, 0, 0, 0, 0]), []);
        assert_eq!(idle(0b11_1000, [0, 0, 0, ENOUGH, 1, 1, 0, 0]), []);
        // where RoCE is in none that is paused, that is said of RoCE
        assert_eq!(idle(0b11_1000, [ENOUGH, 0, 0, 0, 0, 0, 0, 0]), []);
        assert_eq!(idle(0, [ENOUGH, 0, 0, 0, 0, 0, 0, 0]), []);
        assert_eq!(many(1, "CNP"), "1 CNP");
        assert_eq!(many(2000, "CNP"), "2,000 CNPs");
        assert_eq!(classes(&[]), "");
    }
}
