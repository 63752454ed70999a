//! Connections whose server took far longer for a command than on other connections of the same hosts: one client of many,
//! one server of several, one channel of a session. Within such a connection nothing stands out: all of it is slow.

use crate::episodes::time::Owner;
use crate::finding::{Blame, Certainty, Finding, Rule, Site};
use crate::report::{Connection, Report};
use crate::stats::is_comparable;
use crate::summary::Command;
use alloc::format;
use alloc::vec::Vec;
use rdmascope_dissector::text::Elapsed;

/// Requests of a command whose median says something.
const ENOUGH: u64 = 16;
/// ns of a median from which on it is long.
const LONG: i64 = 20_000_000;
/// Times as long as on the others.
const TIMES: i64 = 20;
/// Connections that one is compared with, at most.
const OTHERS_MAX: usize = 256;
/// Times as long as the way to both ends and back together, from which on the way does not explain it: data and reply may
/// each take it.
const WAYS: i64 = 8;
/// Requests under way at once, on average, from which on they wait for each other.
const DEEP: i64 = 4;
/// Times as many bytes a request moves at most, compared with the others.
const BYTES: u64 = 4;

/// Adds findings about such connections, and the time that it cost.
pub(crate) fn conclude(report: &mut Report) {
    let slower: Vec<(usize, Slower)> =
        (0..report.connections.len()).filter_map(|at| Some((at, slower(report, at)?))).collect();
    for (at, Slower { command, median, others, lost }) in slower {
        let c = &mut report.connections[at];
        let rule = if c.nfs.version > 0 { Rule::RpcSlow } else { Rule::Smb2Slow };
        let text = format!(
            "took {} for the median {command}; on other connections of these hosts it is {}",
            Elapsed(median),
            Elapsed(others)
        );
        let site = Site { connection: Some(c.id), frame: c.first.frame, time_ns: c.first.time };
        c.slow_time[1] = c.slow_time[1].saturating_add(lost);
        report.findings.add(Finding::new(rule, Blame::Server, site, Certainty::Guess, text));
    }
}

/// A command that is slower on a connection than on others.
#[derive(Debug, PartialEq, Eq)]
struct Slower {
    command: &'static str,
    /// ns, on this connection and on the others.
    median: i64,
    others: i64,
    /// ns by which all of them together took longer.
    lost: i64,
}

fn median(row: &Command) -> Option<i64> {
    let worked = row.latency_of_worked.as_ref().unwrap_or(&row.latency);
    worked.quantile(500).filter(|_| worked.count() >= ENOUGH)
}

fn slower(report: &Report, at: usize) -> Option<Slower> {
    let c = &report.connections[at];
    let is_told = |f: &Finding| f.connection == Some(c.id) && matches!(f.rule, Rule::Smb2Slow | Rule::RpcSlow);
    if !c.client_known || report.findings.iter().any(is_told) {
        return None;
    }
    c.commands.iter().filter_map(|row| slower_than(report, c, row)).max_by_key(|slower| slower.lost)
}

fn slower_than(report: &Report, c: &Connection, row: &Command) -> Option<Slower> {
    let own = median(row).filter(|own| *own >= LONG && is_comparable(row.name))?;
    if row.time.of(Owner::Server).saturating_mul(2) < row.time.sum() {
        return None;
    }
    let way = c.round_trip[0].unwrap_or(0).saturating_add(c.round_trip[1]?);
    let is_deep = row.time.sum() > c.last.since(c.first).saturating_mul(DEEP);
    if own < way.saturating_mul(WAYS) || is_deep {
        return None;
    }
    let has_host_of = |other: &Connection| (0..2).any(|end| other.peers[end].address == c.peers[end].address);
    let is_like = |other: &&Connection| {
        other.id != c.id && other.client_known && other.nfs.version == c.nfs.version && has_host_of(other)
    };
    let rows = report.connections.iter().filter(is_like).take(OTHERS_MAX).flat_map(|other| &other.commands);
    let is_as_large = |other: &&Command| {
        row.bytes.saturating_mul(other.count) <= other.bytes.saturating_mul(row.count).saturating_mul(BYTES)
    };
    let mut medians: Vec<i64> =
        rows.filter(|other| other.name == row.name).filter(is_as_large).filter_map(median).collect();
    medians.sort_unstable();
    let others = *medians.get(medians.len() / 2)?;
    let usual = others.saturating_mul(i64::try_from(row.count).unwrap_or(i64::MAX));
    let lost = row.time.of(Owner::Server).saturating_sub(usual).max(0);
    (own >= others.saturating_mul(TIMES)).then_some(Slower { command: row.name, median: own, others, lost })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::latency::Latency;
    use crate::op::At;
    use crate::summary::Peer;
    use rdmascope_dissector::frame::Addr;

    const MS: i64 = 1_000_000;

    /// A connection of two hosts with READs that the server took so many ns for.
    fn connection(id: u32, [client, server]: [u8; 2], count: u64, took: i64) -> Connection {
        let peer = |host| Peer { address: Addr::V4([192, 0, 2, host]), ..Peer::default() };
        let mut latency = Latency::default();
        (0..count).for_each(|_| latency.add(took));
        let mut row = Command { name: "READ", count, bytes: 4096 * count, latency, ..Command::default() };
        row.time.0[Owner::Server as usize] = took * count as i64;
        Connection {
            id,
            peers: [peer(client), peer(server)],
            client_known: true,
            commands: alloc::vec![row],
            round_trip: [Some(MS / 20); 2],
            last: At { frame: 9, time: took * count as i64 },
            ..Connection::default()
        }
    }

    fn told(connections: Vec<Connection>) -> Vec<(u32, i64)> {
        let mut report = Report { connections, ..Report::default() };
        conclude(&mut report);
        let of = |f: &Finding| {
            let id = f.connection.unwrap_or_default();
            (id, report.connections.iter().find(|c| c.id == id).map_or(0, |c| c.slow_time[1] / MS))
        };
        report.findings.iter().map(of).collect()
    }

    #[test]
    fn one_client_server_or_channel_that_is_slow_stands_out_of_the_others() {
        let fast = |id, hosts| connection(id, hosts, 100, MS);
        let slow = |hosts| connection(9, hosts, 100, 300 * MS);
        let lost = 299 * 100;
        assert_eq!(told(alloc::vec![fast(1, [2, 1]), fast(2, [3, 1]), slow([4, 1])]), [(9, lost)], "a client");
        assert_eq!(told(alloc::vec![slow([2, 5]), fast(1, [2, 1])]), [(9, lost)], "a server");
        assert_eq!(told(alloc::vec![slow([2, 1]), fast(1, [2, 1])]), [(9, lost)], "a channel");
        assert_eq!(told(alloc::vec![slow([2, 1]), fast(1, [3, 4])]), [], "other hosts");
        assert_eq!(told(alloc::vec![slow([2, 1]), connection(1, [2, 1], 100, 20 * MS)]), [], "these are slow, too");
        assert_eq!(told(alloc::vec![slow([2, 1]), connection(1, [2, 1], 5, MS)]), [], "too few");
        assert_eq!(told(alloc::vec![connection(9, [2, 1], 100, 19 * MS), connection(1, [2, 1], 100, MS / 9)]), []);
    }

    #[test]
    fn what_moves_more_or_waits_for_others_is_not_compared() {
        let of = |change: fn(&mut Connection)| {
            let mut slow = connection(9, [2, 1], 100, 300 * MS);
            change(&mut slow);
            told(alloc::vec![slow, connection(1, [2, 1], 100, MS)]).len()
        };
        assert_eq!(of(|c| c.round_trip = [Some(MS), Some(36 * MS)]), 1);
        assert_eq!(of(|c| c.round_trip = [Some(MS), Some(37 * MS)]), 0, "it is far away");
        assert_eq!(of(|c| c.round_trip = [Some(MS), None]), 0, "it may be");
        assert_eq!([of(|c| c.last.time /= 4), of(|c| c.last.time /= 5)], [1, 0], "they wait for each other");
        let told = |change: fn(&mut Command)| {
            let mut slow = connection(9, [2, 1], 100, 300 * MS);
            change(&mut slow.commands[0]);
            told(alloc::vec![slow, connection(1, [2, 1], 100, MS)]).len()
        };
        assert_eq!(told(|_| ()), 1);
        assert_eq!([told(|row| row.bytes *= 4), told(|row| row.bytes *= 5)], [1, 0]);
        assert_eq!(told(|row| row.time = row.time.turned()), 0, "the client's time");
        assert_eq!(told(|row| row.name = "LOCK"), 0);
    }
}
