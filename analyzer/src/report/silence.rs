//! Silences of an end on one connection, held against what it sent elsewhere: a host that answers others is there.

use crate::finding::{Blame, Rule};
use crate::outcome::side_of;
use crate::report::{Connection, Report, Transport};
use alloc::vec::Vec;

/// Cause where the end speaks on other connections to the same peer.
const ONE_WAY: &str = "Packets of this connection alone are dropped: one of several ways (a link of a bundle, a route, a \
    queue of an adapter), or packets of one size or priority";
/// The same of queue pairs: one that is gone, or in an error, answers nothing (IBTA Vol 1 10.3.1).
const ONE_QUEUE_PAIR: &str = "This queue pair alone is gone, or in an error, on the side that is silent: its program \
    ended, or gave it up; or one of several ways between the two drops its packets";
/// Cause where a reset is all that came back (RFC 9293 3.5.2).
const UNKNOWN: &str = "The host was restarted meanwhile, or another one has its address now, or a firewall on the way \
    forgot the connection: who resets it does not know it";

/// Adds what other connections, and its end, show of the silence of an end.
pub(crate) fn conclude(report: &mut Report) {
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
    use rdmascope_dissector::frame::Addr;

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
        conclude(&mut report);
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
