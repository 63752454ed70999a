//! Silences of an end on one connection, held against what it sent elsewhere: a host that answers others is there.

use crate::finding::{Blame, Finding, Rule};
use crate::outcome::side_of;
use crate::report::undelivered::{Undelivered, is_of_roce, is_of_tcp, why_undelivered};
use crate::report::{Connection, Report, Transport};
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use rdmascope_dissector::frame::Reason;
use rdmascope_dissector::text::Times;

/// Cause where the end speaks on other connections to the same peer.
const ONE_WAY: &str = "Packets of this connection alone are dropped: one of several ways (a link of a bundle, a route, a \
    queue of an adapter), or packets of one size or priority";
/// The same of queue pairs: one that is gone, or in an error, answers nothing (IBTA Vol 1 10.3.1).
const ONE_QUEUE_PAIR: &str = "This queue pair alone is gone, or in an error, on the side that is silent: its program \
    ended, or gave it up; or one of several ways between the two drops its packets";
/// Cause where a reset is all that came back (RFC 9293 3.5.2).
const UNKNOWN: &str = "The host was restarted meanwhile, or another one has its address now, or a firewall on the way \
    forgot the connection: who resets it does not know it";

/// ns after a silence or a loss in which ICMP tells of its packets.
const AFTER: i64 = 1_000_000_000;

/// Adds what other connections, ICMP and its end show of the silence of an end.
pub(crate) fn conclude(report: &mut Report, undelivered: &[Undelivered]) {
    beside(report);
    if !undelivered.is_empty() {
        reported(report, undelivered);
    }
}

/// Adds what ICMP reports of packets that were not answered, or lost.
fn reported(report: &mut Report, undelivered: &[Undelivered]) {
    const RULES: [Rule; 4] = [Rule::PeerSilent, Rule::PathMtu, Rule::RcRetransmit, Rule::TcpLoss];
    let mut told: Vec<(Rule, u32, Blame, bool, String, &'static str)> = Vec::new();
    for finding in report.findings.iter().filter(|f| RULES.contains(&f.rule)) {
        let Some(c) = report.connections.iter().find(|c| Some(c.id) == finding.connection) else { continue };
        let mut about = undelivered.iter().filter(|u| is_about(c, finding, u));
        let Some((at, [by, _], first)) = about.next() else { continue };
        let times = 1 + about.filter(|(_, [other, _], u)| other == by && u.reason == first.reason).count();
        let mtu = match first.reason {
            Reason::TooLarge(mtu) if mtu > 0 && first.length > mtu => {
                format!(", {} bytes of at most {mtu}", first.length)
            }
            Reason::TooLarge(mtu) if mtu > 0 => format!(", at most {mtu} bytes"),
            _ => String::new(),
        };
        let is_host = *by == first.to;
        let whom = if is_host { " itself" } else { "" };
        let what = if is_host { String::from("they") } else { format!("packets to {}", first.to) };
        let text = format!(
            "; {by}{whom} reported {} that {what} were not delivered: {}{mtu} (ICMP, frame {})",
            Times(times as u64),
            first.reason.name(),
            at.frame
        );
        // what a router does not forward, its destination never saw
        // what it was sent after a packet that was too large may have been smaller
        let may_have_come =
            matches!(first.reason, Reason::NoHost | Reason::NoPort | Reason::Other | Reason::TooLarge(_));
        let is_innocent = !is_host && !may_have_come;
        let is_innocent = is_innocent && finding.rule == Rule::PeerSilent;
        told.push((finding.rule, c.id, finding.by, is_innocent, text, why_undelivered(first.reason, is_host)));
    }
    for (rule, id, by, is_innocent, text, why) in told {
        report.findings.add_to(rule, Some(id), by, &text);
        report.findings.because(rule, Some(id), by, Some(why));
        if is_innocent && report.findings.acquit(rule, Some(id), by) {
            let outcome = report.connections.iter_mut().find(|c| c.id == id).and_then(|c| c.outcome.as_mut());
            if let Some(outcome) = outcome.filter(|outcome| outcome.cause == Some((rule, by))) {
                (outcome.cause, outcome.by) = (Some((rule, Blame::Network)), None);
            }
        }
    }
}

/// True if ICMP tells of packets of a connection that a finding is about.
fn is_about(c: &Connection, finding: &Finding, told: &Undelivered) -> bool {
    let (at, _, undelivered) = told;
    // what came before was answered
    let is_soon = at.time >= finding.time_ns && at.time <= finding.last_time_ns.saturating_add(AFTER);
    // what begins a silence need not be large, unless the quoted packet itself is
    let is_other = finding.rule == Rule::PeerSilent
        && matches!(undelivered.reason, Reason::TooLarge(most) if most == 0 || undelivered.length <= most);
    let sender = side_of(finding.by).map(|silent| 1 - silent);
    let is_sent_by = |side: usize| {
        let [from, to] = [c.peers[side], c.peers[1 - side]];
        let hosts = [from.address, to.address];
        match c.transport {
            Some(Transport::RoceV2) => {
                let sent_from = || c.network.directions[side].ports.rows().iter().map(|(port, _)| *port);
                is_of_roce(told, hosts, to.qp, |port| sent_from().any(|its| its == port))
            }
            Some(Transport::Iwarp | Transport::Tcp) => is_of_tcp(told, hosts, [from.port, to.port]),
            _ => false,
        }
    };
    is_soon && !is_other && (0..2).any(|side| sender.is_none_or(|sender| sender == side) && is_sent_by(side))
}

/// Adds what other connections, and its end, show of the silence of an end.
fn beside(report: &mut Report) {
    let mut told: Vec<(u32, Blame, &str, &'static str)> = Vec::new();
    for finding in report.findings.iter().filter(|f| f.rule == Rule::PeerSilent) {
        let Some(side) = side_of(finding.by) else { continue };
        let Some(c) = report.connections.iter().find(|c| Some(c.id) == finding.connection) else { continue };
        let (from, to) = (finding.time_ns, finding.last_time_ns);
        if report.connections.iter().any(|other| is_beside(c, other) && has_sent(other, side, from, to)) {
            let is_packets = c.transport.is_some_and(Transport::is_packets);
            let why = if is_packets { ONE_QUEUE_PAIR } else { ONE_WAY };
            told.push((c.id, finding.by, "; on other connections to the same peer it sent packets meanwhile", why));
        } else if c.closed.is_some_and(|(by, how, at)| {
            by == Some(side) && how == "RST" && at.time >= to && !has_sent(c, side, to, at.time.saturating_sub(1))
        }) {
            told.push((c.id, finding.by, "; a reset was all that came back", UNKNOWN));
        }
    }
    for (id, by, more, why) in told {
        report.findings.add_to(Rule::PeerSilent, Some(id), by, more);
        report.findings.because(Rule::PeerSilent, Some(id), by, Some(why));
    }
}

/// True if another connection is one of the same client and server.
fn is_beside(c: &Connection, other: &Connection) -> bool {
    other.id != c.id && (0..2).all(|side| other.peers[side].address == c.peers[side].address)
}

/// True if a side sent packets between these times, in ns. Points of the throughput count up to the next.
fn has_sent(c: &Connection, side: usize, from: i64, to: i64) -> bool {
    let next = c.throughput.iter().skip(1).map(|(time, ..)| *time).chain([c.last.time]);
    c.throughput
        .iter()
        .zip(next)
        .any(|((time, client, server), until)| *time > from && until <= to && [*client, *server][side] > 0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::finding::{Certainty, Finding, Site};
    use crate::op::At;
    use crate::report::Peer;
    use alloc::vec;
    use rdmascope_dissector::frame::{Addr, Unreachable};
    use rdmascope_dissector::wire::udp::ROCE_V2;

    const SECOND: i64 = 1_000_000_000;

    fn connection(id: u32, client: u8, throughput: Vec<(i64, u64, u64)>) -> Connection {
        let peer = |host| Peer { address: Addr::V4([192, 0, 2, host]), ..Peer::default() };
        let last = At { frame: 99, time: 20 * SECOND };
        Connection { id, peers: [peer(client), peer(1)], throughput, last, ..Connection::default() }
    }

    /// The text and the cause of a silence of the server between 2 s and 10 s, beside another connection.
    fn silence(mut c: Connection, other: Connection) -> (alloc::string::String, Option<&'static str>) {
        c.id = 1;
        let mut report = Report { connections: vec![c, other], ..Report::default() };
        let site = Site { connection: Some(1), frame: 5, time_ns: 2 * SECOND };
        let mut finding =
            Finding::new(Rule::PeerSilent, Blame::Server, site, Certainty::IfNothingWasMissed, "was silent");
        finding.last_time_ns = 10 * SECOND;
        report.findings.add(finding);
        conclude(&mut report, &[]);
        let found = report.findings.iter().next().expect("it is still there");
        (found.text.clone(), found.why)
    }

    #[test]
    fn who_speaks_elsewhere_is_there() {
        let speaks = |client: u8, at: i64, bytes: u64| {
            let points = vec![(SECOND, 9, 9), (at * SECOND, 9, bytes), (at * SECOND + 1, 0, 0)];
            silence(connection(1, 2, Vec::new()), connection(2, client, points)).1
        };
        assert_eq!(speaks(2, 5, 100), Some(ONE_WAY));
        assert_eq!(
            [speaks(2, 5, 0), speaks(2, 15, 100), speaks(3, 5, 100)],
            [None; 3],
            "silent, later, another client"
        );
    }

    /// Advice about a silence of the server, where the host with this number tells of a packet to it.
    fn advice(by: u8) -> &'static str {
        let (by, ..) = after(by, 2, [40_000, 445], Reason::Prohibited, 3);
        crate::finding::cure(Rule::PeerSilent, by)
    }

    #[test]
    fn who_never_saw_the_packets_is_not_to_be_looked_at() {
        assert!(advice(9).contains("never saw the packets"), "{}", advice(9));
        assert_eq!(advice(1), Rule::PeerSilent.row().cure);
    }

    /// Who is to blame for a silence of the server, its text and its cause, where ICMP tells `told` of a packet to it.
    fn after(by: u8, told: u8, ports: [u16; 2], reason: Reason, at: i64) -> (Blame, String, Option<&'static str>) {
        let address = |host| Addr::V4([192, 0, 2, host]);
        let mut c = Connection { transport: Some(Transport::Tcp), ..connection(1, 2, Vec::new()) };
        (c.peers[0].port, c.peers[1].port) = (40_000, 445);
        let mut report = Report { connections: vec![c], ..Report::default() };
        let site = Site { connection: Some(1), frame: 5, time_ns: 2 * SECOND };
        let mut finding =
            Finding::new(Rule::PeerSilent, Blame::Server, site, Certainty::IfNothingWasMissed, "was silent");
        finding.last_time_ns = 10 * SECOND;
        report.findings.add(finding);
        let length = 1_540;
        let unreachable = Unreachable { reason, protocol: 6, to: address(1), ports, length, queue_pair: None };
        let at = At { frame: 6, time: at * SECOND };
        conclude(&mut report, &[(at, [address(by), address(told)], unreachable); 2]);
        let found = report.findings.iter().next().expect("it is still there");
        (found.by, found.text.clone(), found.why)
    }

    #[test]
    fn what_icmp_reports_explains_a_silence() {
        const PORTS: [u16; 2] = [40_000, 445];
        let (by, text, why) = after(9, 2, PORTS, Reason::Prohibited, 3);
        assert_eq!((by, why), (Blame::Network, Some(why_undelivered(Reason::Prohibited, false))));
        assert_eq!(
            text,
            "the server was silent; 192.0.2.9 reported twice that packets to 192.0.2.1 were not delivered: \
             administratively prohibited (ICMP, frame 6)"
        );
        let (by, text, _) = after(1, 2, PORTS, Reason::NoPort, 3);
        assert_eq!(by, Blame::Server, "it says so itself");
        assert!(text.starts_with("was silent; 192.0.2.1 itself reported twice that they were"), "{text}");
        let (by, text, _) = after(9, 2, PORTS, Reason::TooLarge(1500), 3);
        assert_eq!(by, Blame::Server, "smaller ones may have come");
        assert!(text.ends_with("packet too large, 1540 bytes of at most 1500 (ICMP, frame 6)"), "{text}");
        for other in [0, 9000] {
            assert_eq!(after(9, 2, PORTS, Reason::TooLarge(other), 3).1, "was silent", "it need not be that packet");
        }
        assert_eq!(after(9, 2, PORTS, Reason::NoHost, 3).0, Blame::Server);
        let others = [
            after(9, 3, PORTS, Reason::Prohibited, 3),
            after(9, 2, [40_000, 446], Reason::Prohibited, 3),
            after(9, 2, PORTS, Reason::Prohibited, 12),
        ];
        assert_eq!(others.map(|(by, text, _)| (by, text)), [(); 3].map(|()| (Blame::Server, "was silent".into())));
    }

    #[test]
    fn icmp_about_roce_is_of_its_queue_pair_or_of_its_ports() {
        let address = |host| Addr::V4([192, 0, 2, host]);
        let is_about = |port: u16, queue_pair: Option<u32>| {
            let mut c = Connection { transport: Some(Transport::RoceV2), ..connection(1, 2, Vec::new()) };
            c.peers[1].qp = Some(0x11);
            c.network.directions[0].ports.add(0xc001, 5);
            let site = Site { connection: Some(1), frame: 5, time_ns: SECOND };
            let finding = Finding::new(Rule::PeerSilent, Blame::Server, site, Certainty::Guess, "was silent");
            let (reason, ports) = (Reason::Prohibited, [port, ROCE_V2]);
            let told = Unreachable { reason, protocol: 17, to: address(1), ports, length: 60, queue_pair };
            is_about(&c, &finding, &(At { frame: 6, time: SECOND }, [address(9), address(2)], told))
        };
        assert_eq!([is_about(1, Some(0x11)), is_about(0xc001, Some(0x12))], [true, false]);
        assert_eq!([is_about(0xc001, None), is_about(1, None)], [true, false], "a short quote, and a probe");
    }

    #[test]
    fn a_reset_after_a_silence_is_of_one_that_knows_nothing() {
        let closed = |by, how| {
            let at = At { frame: 50, time: 11 * SECOND };
            let c = Connection { closed: Some((Some(by), how, at)), ..connection(1, 2, Vec::new()) };
            silence(c, connection(2, 3, Vec::new()))
        };
        assert_eq!(closed(1, "RST"), ("was silent; a reset was all that came back".into(), Some(UNKNOWN)));
        assert_eq!([closed(0, "RST").1, closed(1, "FIN").1], [None; 2]);
    }
}
