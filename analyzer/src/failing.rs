//! Work that failed from beginning to end: a client whose every WRITE is refused breaks no rule, nor does its server, and
//! still nothing worked.
//!
//! ```text
//!   192.0.2.2 → 192.0.2.1   CREATE  12 answered   3 failed    works
//!                           WRITE    9 answered   9 failed    told, with the status that came most often
//! ```
//!
//! Requests of all connections between two hosts are counted together: a session shares them out. \[MS-SMB2\] 2.2.2;
//! RFC 1813 2.6; RFC 8881 15.1.

use crate::exchange::{Failures, Family};
use crate::finding::{Blame, Certainty, Finding, Rule, Site};
use crate::outcome::Outcome;
use crate::report::{Connection, Handshake, Protocol, Report};
use alloc::format;
use alloc::vec::Vec;
use hashbrown::HashMap;
use rdmascope_dissector::frame::Addr;

/// Commands that are what a client is there for: they open, read and write files.
const WORK: [&str; 4] = ["CREATE", "OPEN", "READ", "WRITE"];

/// Requests of one command between two hosts.
#[derive(Debug, Default)]
struct Work {
    answered: u64,
    failed: u64,
    /// By status, each with the connection of its first reply.
    failures: Vec<(Failures, u32)>,
    /// True if the capture may lack a request, or its answer.
    is_partial: bool,
}

/// Reports commands of which every request failed.
pub(crate) fn conclude(report: &mut Report) {
    for finding in findings(&report.connections) {
        report.findings.add(finding);
    }
}

fn findings(connections: &[Connection]) -> Vec<Finding> {
    let mut hosts: Vec<(Addr, Addr, Family)> = Vec::new();
    let mut work: HashMap<(Addr, Addr, Family, &'static str), Work> = HashMap::new();
    for c in connections {
        let family = match c.protocol {
            Protocol::SmbDirect | Protocol::Smb2 => Family::Smb2,
            Protocol::RpcRdma | Protocol::Rpc => Family::Rpc,
            Protocol::Unknown => continue,
        };
        let (client, server) = (c.peers[0].address, c.peers[1].address);
        if !hosts.contains(&(client, server, family)) {
            hosts.push((client, server, family));
        }
        let is_hidden = c.smb.sealed.iter().any(|(n, _)| *n > 0) || c.outcome.as_ref().is_some_and(Outcome::failed);
        let is_partial = c.progress.missed || c.handshake != Handshake::Seen || !c.client_known || is_hidden;
        for command in WORK {
            let work = work.entry((client, server, family, command)).or_default();
            work.is_partial |= is_partial;
            if let Some(row) = c.commands.iter().find(|row| row.name == command) {
                work.answered += row.count.saturating_sub(row.unanswered);
                work.failed += row.errors;
            }
            let of_command = c.failures.iter().filter(|f| f.command == command && f.status.0 == family);
            work.failures.extend(of_command.map(|f| (*f, c.id)));
        }
    }
    let mut found = Vec::new();
    for (client, server, family) in hosts {
        for command in WORK {
            let Some(work) = work.remove(&(client, server, family, command)) else { continue };
            found.extend(work.finding(command));
        }
    }
    found
}

impl Work {
    fn finding(self, command: &str) -> Option<Finding> {
        let Self { answered, failed, mut failures, is_partial } = self;
        let is_told = |(f, _): &(Failures, u32)| f.status.is_ordinary() || f.status.is_damage();
        if failed == 0 || failed < answered || failures.is_empty() || failures.iter().any(is_told) {
            return None;
        }
        failures.sort_by_key(|(f, _)| (core::cmp::Reverse(f.count), f.first));
        let (most, _) = failures[0];
        let (first, connection) = failures.iter().map(|(f, id)| (f.first, *id)).min()?;
        let others = if failures.iter().any(|(f, _)| f.status != most.status) { " and others" } else { "" };
        let text = match failed {
            1 => format!("The only {command} failed: {}", most.status),
            n => format!("All {n} {command} requests failed: {}{others}", most.status),
        };
        let certainty = if is_partial { Certainty::Guess } else { Certainty::IfNothingWasMissed };
        let site = Site { connection: Some(connection), frame: first.frame, time_ns: first.time };
        let mut frames: Vec<_> = failures.iter().map(|(f, _)| f.first).collect();
        frames.sort_unstable();
        let finding = Finding::new(Rule::AllFailed, Blame::Unknown, site, certainty, text);
        Some(finding.with_frames(frames.into_iter().skip(1)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::exchange::Status;
    use crate::op::At;
    use crate::summary::{Command, Peer};
    use alloc::string::String;

    const DENIED: u32 = 0xc000_0022;
    const NO_FILE: u32 = 0xc000_0034;
    const FULL: u32 = 0xc000_007f;

    /// A connection with as many requests of a command, of which as many failed with a status.
    fn with(id: u32, rows: &[(&'static str, u64, u64, u32)]) -> Connection {
        let peer = |last| Peer { address: Addr::V4([192, 0, 2, last]), ..Peer::default() };
        let mut c = Connection {
            id,
            protocol: Protocol::SmbDirect,
            peers: [peer(2), peer(1)],
            handshake: Handshake::Seen,
            client_known: true,
            ..Connection::default()
        };
        for (name, count, errors, status) in rows.iter().copied() {
            c.commands.push(Command { name, count, errors, ..Command::default() });
            if errors > 0 {
                let first = At { frame: u64::from(id) * 10, time: 0 };
                let status = Status(Family::Smb2, status);
                c.failures.push(Failures { command: name, status, count: errors, first });
            }
        }
        c
    }

    fn told(connections: &[Connection]) -> Vec<(u64, String, Certainty)> {
        findings(connections).into_iter().map(|f| (f.frame, f.text, f.certainty)).collect()
    }

    #[test]
    fn a_command_that_never_succeeded_is_told() {
        let denied = [with(1, &[("CREATE", 3, 0, 0), ("WRITE", 9, 9, DENIED)])];
        let text = "All 9 WRITE requests failed: STATUS_ACCESS_DENIED";
        assert_eq!(told(&denied), [(10, text.into(), Certainty::IfNothingWasMissed)]);
        let one = [with(1, &[("CREATE", 1, 1, DENIED)])];
        assert_eq!(told(&one)[0].1, "The only CREATE failed: STATUS_ACCESS_DENIED");
        assert_eq!(told(&[with(1, &[("WRITE", 9, 8, DENIED)])]), []);
        assert_eq!(told(&[with(1, &[("TREE_CONNECT", 2, 2, DENIED)])]), [], "other rules are about mounts");
    }

    #[test]
    fn names_that_are_not_there_and_full_disks_are_others_to_tell() {
        for status in [NO_FILE, FULL] {
            assert_eq!(told(&[with(1, &[("CREATE", 2, 2, status)])]), []);
        }
    }

    #[test]
    fn what_works_over_another_connection_works() {
        let denied = with(1, &[("WRITE", 2, 2, DENIED)]);
        assert_eq!(told(&[denied.clone(), with(2, &[("WRITE", 5, 0, 0)])]), []);
        let both = [with(2, &[("WRITE", 5, 5, DENIED)]), denied.clone()];
        assert_eq!(
            told(&both),
            [(10, "All 7 WRITE requests failed: STATUS_ACCESS_DENIED".into(), Certainty::IfNothingWasMissed)]
        );
        let mut elsewhere = with(2, &[("WRITE", 5, 0, 0)]);
        elsewhere.peers[1].address = Addr::V4([192, 0, 2, 3]);
        assert_eq!(told(&[denied, elsewhere]).len(), 1, "another server");
    }

    #[test]
    fn what_the_capture_lacks_may_have_worked() {
        let mut late = with(1, &[("WRITE", 2, 2, DENIED)]);
        late.progress.missed = true;
        assert_eq!(told(&[late])[0].2, Certainty::Guess);
    }
}
