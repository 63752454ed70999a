//! Findings about calls of NFS that the other side put off (see `delays`), put together from all connections
//! between two hosts: the calls of one session go over any of them.

use crate::delays::{Delayed, GIVES_UP};
use crate::exchange::Status;
use crate::finding::{Blame, Certainty, Finding, Rule, Severity, Site};
use crate::nfs_causes::{DELAY, GRACE, JUKEBOX};
use crate::report::{Connection, Report};
use crate::stats::is_callback;
use alloc::format;
use alloc::vec::Vec;
use core::cmp::Reverse;
use rdmascope_dissector::frame::Addr;
use rdmascope_dissector::text::{Elapsed, Times};
use rdmascope_dissector::wire::nfs::v4;

/// ns in all from which on it is worth a word.
const LONG: i64 = 1_000_000_000;
/// ns before a call by which the server may have asked for the delegation that the call waits for.
const RECALLED_BEFORE: i64 = 10_000_000_000;

/// Cause of ERR_DENIED of a lock.
const DENIED: &str = "Another client or process holds the lock; the server only says so";
/// Cause of ERR_DELAY for a callback.
const CALLBACK: &str = "The client is busy with the file, or is just getting it";
/// Cause of ERR_DELAY where the server asked this client for a delegation.
const RECALL: &str = "The server waits for a delegation to be returned: it asked this client for one (see CB_RECALL), or \
    for storage";
/// Cause of a slow call that may have waited for its own client.
const RECALLED: &str = "The server was slow, or it waited for a delegation that it had asked this client for (see \
    CB_RECALL): the capture does not show of which file";

/// The same of SMB2.
const BROKEN: &str = "The server was slow, or it waited for a client to give back an oplock or a lease (see \
    OPLOCK_BREAK): the capture does not show of which file";

/// Names the cause of requests that the server was slow to answer, or may have been while a delegation was recalled, or
/// an oplock or a lease.
pub(crate) fn explain_slow(report: &mut Report) {
    for (rule, why) in [(Rule::RpcSlow, RECALLED), (Rule::Smb2Slow, BROKEN)] {
        let in_doubt =
            |c: &&Connection| if rule == Rule::RpcSlow { c.nfs.perhaps_recalled } else { c.smb.perhaps_recalled };
        for id in report.connections.iter().filter(in_doubt).map(|c| Some(c.id)) {
            let is_it = |f: &&Finding| (f.rule, f.connection, f.by) == (rule, id, Blame::Server);
            if report.findings.iter().find(is_it).is_some_and(|f| f.certainty == Certainty::Guess) {
                report.findings.because(rule, id, Blame::Server, Some(why));
            }
        }
    }
}

/// Calls of one command that were put off with one status, between two hosts.
#[derive(Debug)]
struct Sum<'r> {
    command: &'static str,
    status: Status,
    /// In the order in which they began.
    calls: Vec<Delayed>,
    connection: &'r Connection,
}

impl Sum<'_> {
    /// ns in which any of them was put off.
    fn lasted(&self) -> i64 {
        lasted(&self.calls)
    }
}

/// ns in which any of some calls was put off, which are in the order in which they began.
fn lasted(calls: &[Delayed]) -> i64 {
    let (mut lasted, mut until) = (0_i64, i64::MIN);
    for call in calls {
        lasted = lasted.saturating_add(call.last.time.saturating_sub(call.first.time.max(until)).max(0));
        until = until.max(call.last.time);
    }
    lasted
}

/// Pairs of hosts, client first, between which calls were put off.
fn pairs(connections: &[Connection]) -> Vec<[Addr; 2]> {
    let mut pairs: Vec<[Addr; 2]> = Vec::new();
    for pair in connections.iter().filter(|c| !c.delayed.is_empty()).map(hosts) {
        if !pairs.contains(&pair) {
            pairs.push(pair);
        }
    }
    pairs
}

fn hosts(c: &Connection) -> [Addr; 2] {
    [c.peers[0].address, c.peers[1].address]
}

/// Findings about the calls that were put off for long.
pub(crate) fn findings(connections: &[Connection]) -> Vec<Finding> {
    let mut found = Vec::new();
    for pair in pairs(connections) {
        let all: Vec<&Connection> = connections.iter().filter(|c| hosts(c) == pair).collect();
        // the server of version 4.0 opens a connection of its own for callbacks
        let back = connections.iter().filter(|c| hosts(c) == [pair[1], pair[0]]);
        let around: Vec<&Connection> = all.iter().copied().chain(back).collect();
        let mut sums = sums(&all);
        sums.retain(|sum| sum.lasted() >= LONG);
        sums.sort_by_key(|sum| Reverse(sum.lasted()));
        found.extend(sums.iter().map(|sum| finding(sum, &all, &around)));
    }
    found
}

/// ns for which servers put calls off, as RPC-DELAYED tells it, each moment once: no request was under way meanwhile. Locks
/// that others hold are not meant.
pub fn put_off(connections: &[Connection]) -> i64 {
    let mut calls: Vec<Delayed> = Vec::new();
    for pair in pairs(connections) {
        let all: Vec<&Connection> = connections.iter().filter(|c| hosts(c) == pair).collect();
        let is_meant = |sum: &Sum<'_>| sum.lasted() >= LONG && sum.status.number() != Some(v4::Status::DENIED.0);
        calls.extend(sums(&all).into_iter().filter(is_meant).flat_map(|sum| sum.calls));
    }
    calls.sort_by_key(|call| call.first);
    lasted(&calls)
}

/// Calls by command and status. What is tried on several connections is one call.
fn sums<'r>(connections: &[&'r Connection]) -> Vec<Sum<'r>> {
    let mut all: Vec<(&'r Connection, &Delayed)> =
        connections.iter().flat_map(|c| c.delayed.iter().map(move |call| (*c, call))).collect();
    all.sort_by_key(|(_, call)| call.first);
    let mut sums: Vec<Sum<'r>> = Vec::new();
    for (connection, call) in all {
        let Delayed { command, status, .. } = *call;
        let Some(sum) = sums.iter_mut().find(|sum| (sum.command, sum.status) == (command, status)) else {
            sums.push(Sum { command, status, calls: alloc::vec![call.clone()], connection });
            continue;
        };
        let goes_on = |known: &&mut Delayed| {
            let is_open = !known.is_served || call.first <= known.last;
            known.is_same(call) && is_open && call.first.since(known.last) <= GIVES_UP
        };
        match sum.calls.iter_mut().rev().find(goes_on) {
            Some(known) => {
                (known.tries, known.last) = (known.tries + call.tries, known.last.max(call.last));
                known.is_served |= call.is_served;
            }
            None => sum.calls.push(call.clone()),
        }
    }
    sums
}

fn finding(sum: &Sum<'_>, connections: &[&Connection], around: &[&Connection]) -> Finding {
    let &Sum { command, status, ref calls, connection } = sum;
    let first = calls.iter().map(|call| call.first).min().unwrap_or_default();
    let last = calls.iter().map(|call| call.last).max().unwrap_or_default();
    let code = v4::Status(status.number().unwrap_or_default());
    let is_lock = code == v4::Status::DENIED;
    let is_recalled = around.iter().flat_map(|c| &c.commands).filter(|row| row.name == "CB_RECALL").any(|row| {
        let is_meanwhile = |at: i64| at >= first.time.saturating_sub(RECALLED_BEFORE) && at <= last.time;
        row.unanswered > 0 || row.last.is_some_and(|(at, _)| is_meanwhile(at.time))
    });
    // who holds a lock is not known, and a server that waits for a delegation may wait for this client
    let is_open = is_lock || code == v4::Status::DELAY && is_recalled;
    let by = match is_callback(command) {
        true => Blame::Client,
        false if is_open => Blame::Unknown,
        false => Blame::Server,
    };
    let tries: u64 = calls.iter().map(|call| call.tries).sum();
    let what = if is_lock { "somebody else held the lock" } else { "to be tried again" };
    let is_left = calls.iter().any(|call| !call.is_served);
    // the capture may lack what came in the end
    let is_missed = is_left && connections.iter().any(|c| c.progress.missed);
    let end = match (is_left, is_missed) {
        (false, _) => "until another answer came",
        (true, false) => "and no other answer came",
        (true, true) => "and no other answer was captured",
    };
    let who = if by == Blame::Unknown { "The server " } else { "" };
    let text = format!(
        "{who}answered {command} {} with {status}: {what}, for {} in all, frames {} to {}, {end}",
        Times(tries),
        Elapsed(sum.lasted()),
        first.frame,
        last.frame
    );
    let site = Site { connection: Some(connection.id), frame: first.frame, time_ns: first.time };
    let why = match code {
        v4::Status::GRACE => GRACE,
        v4::Status::DENIED => DENIED,
        _ if is_callback(command) => CALLBACK,
        _ if is_recalled => RECALL,
        _ if status == Status::JUKEBOX => JUKEBOX,
        _ => DELAY,
    };
    let certainty = match by {
        Blame::Unknown if !is_lock => Certainty::Guess,
        _ if is_missed => Certainty::IfNothingWasMissed,
        _ => Certainty::Certain,
    };
    let severity = if is_lock { Severity::Note } else { Rule::RpcDelayed.row().severity };
    let found = Finding::new(Rule::RpcDelayed, by, site, certainty, text).with_why(Some(why));
    found.with_severity(severity).with_frames([last])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::exchange::Family;
    use crate::op::At;
    use crate::summary::{Command, Peer};
    use alloc::string::String;

    const SECOND: i64 = 1_000_000_000;

    fn at(second: u64) -> At {
        At { frame: second, time: second as i64 * SECOND }
    }

    /// A call that was put off three times.
    fn call(command: &'static str, file: &str, code: v4::Status, [first, last]: [u64; 2], is_served: bool) -> Delayed {
        let status = Status(Family::Rpc, code.0);
        let about = file.bytes().fold(0, |number, byte| number << 8 | u64::from(byte));
        Delayed { command, about, offset: None, status, tries: 3, first: at(first), last: at(last), is_served }
    }

    fn connection(id: u32, delayed: Vec<Delayed>) -> Connection {
        let peer = |host| Peer { address: Addr::V4([192, 0, 2, host]), ..Peer::default() };
        let mut c = Connection { id, peers: [peer(2), peer(1)], delayed, ..Connection::default() };
        c.nfs.version = 4;
        c
    }

    fn open(file: &str, span: [u64; 2], is_served: bool) -> Delayed {
        call("OPEN", file, v4::Status::DELAY, span, is_served)
    }

    fn told(connections: &[Connection]) -> Vec<String> {
        findings(connections).into_iter().map(|f| f.text).collect()
    }

    #[test]
    fn what_overlaps_counts_once_and_locks_do_not_count() {
        let lock = call("LOCK", "f", v4::Status::DENIED, [100, 200], true);
        let one = connection(1, alloc::vec![open("a", [10, 20], true), open("b", [15, 25], true), lock]);
        let grace = call("RENAME", "c", v4::Status::GRACE, [24, 30], true);
        let short = call("SETATTR", "d", v4::Status::DELAY, [50, 50], true);
        let two = connection(2, alloc::vec![grace, short]);
        assert_eq!(put_off(&[one, two]) / SECOND, 20);
        assert_eq!(put_off(&[]), 0);
    }

    #[test]
    fn a_long_wait_is_told_with_its_status() {
        let grace = |span, is_served| {
            told(&[connection(1, alloc::vec![call("OPEN", "a", v4::Status::GRACE, span, is_served)])])
        };
        let text = "answered OPEN 3 times with ERR_GRACE: to be tried again, for 7.00 s in all, frames 2 to 9, ";
        assert_eq!(grace([2, 9], true), [format!("{text}until another answer came")]);
        assert_eq!(grace([2, 9], false), [format!("{text}and no other answer came")]);
        assert_eq!(grace([2, 2], true), [""; 0], "a short wait is none");
        let mut missed = connection(1, alloc::vec![open("a", [2, 9], false)]);
        missed.progress.missed = true;
        let found = &findings(&[missed])[0];
        assert!(found.text.ends_with("no other answer was captured"), "{}", found.text);
        assert_eq!(found.certainty, Certainty::IfNothingWasMissed);
    }

    #[test]
    fn waits_that_overlap_count_once() {
        let lasted = |spans: &[[u64; 2]]| {
            let all = spans.iter().enumerate().map(|(n, span)| open(&format!("{n}"), *span, true)).collect();
            let found = findings(&[connection(1, all)]);
            found[0].text.split(" for ").nth(1).and_then(|rest| rest.split(" in all").next()).map(String::from)
        };
        assert_eq!(lasted(&[[2, 62], [10, 12], [20, 23]]).as_deref(), Some("60.0 s"), "inside of another");
        assert_eq!(lasted(&[[2, 6], [4, 9], [20, 21]]).as_deref(), Some("8.00 s"));
    }

    #[test]
    fn a_call_that_is_tried_on_several_connections_is_one() {
        let on = |id, span, is_served| connection(id, alloc::vec![open("a", span, is_served)]);
        let found = told(&[on(1, [2, 5], false), on(2, [6, 8], false), on(3, [10, 12], true)]);
        let text = "answered OPEN 9 times with ERR_DELAY: to be tried again, for 10.0 s in all, frames 2 to 12, until \
            another answer came";
        assert_eq!(found, [text]);
        assert!(told(&[on(1, [2, 5], false), on(2, [60, 62], true)])[0].ends_with("no other answer came"), "given up");
    }

    #[test]
    fn who_waits_for_whom() {
        let one = |call: Delayed, recalled: Option<u64>, version| {
            let mut c = connection(1, alloc::vec![call]);
            c.nfs.version = version;
            // the callbacks of version 4.0 have a connection of their own
            let mut back = connection(2, Vec::new());
            back.peers.swap(0, 1);
            if let Some(second) = recalled {
                let last = Some((at(second), None));
                back.commands.push(Command { name: "CB_RECALL", count: 1, last, ..Command::default() });
            }
            let found = findings(&[c, back]).remove(0);
            (found.by, found.severity, found.why, found.text)
        };
        let delay = |recalled| one(open("a", [20, 29], true), recalled, 4);
        assert_eq!([delay(None).0, delay(Some(22)).0], [Blame::Server, Blame::Unknown], "it may wait for the client");
        assert_eq!([delay(Some(9)).2, delay(Some(30)).2], [Some(DELAY); 2], "before, and later");
        assert_eq!(delay(Some(12)).2, Some(RECALL));
        let read = Delayed { status: Status::JUKEBOX, ..call("READ", "a", v4::Status::DELAY, [2, 9], true) };
        let jukebox = one(read, None, 3);
        assert!(jukebox.3.contains("ERR_JUKEBOX") && jukebox.2 == Some(JUKEBOX));
        let lock = one(call("LOCK", "a", v4::Status::DENIED, [2, 9], true), None, 4);
        assert_eq!((lock.0, lock.1), (Blame::Unknown, Severity::Note), "somebody holds it");
        assert_eq!(one(call("CB_RECALL", "a", v4::Status::DELAY, [2, 9], true), None, 4).0, Blame::Client);
    }
}
