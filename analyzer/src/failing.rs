//! Work that failed to the end: a client whose every WRITE is refused breaks no rule, nor does its server, and still
//! nothing worked.
//!
//! ```text
//!   192.0.2.2 → 192.0.2.1   CREATE  3 failed, 9 worked after them               works
//!                           WRITE   9 failed, none worked                       told, with the status
//!                           READ    5 worked, the last 60 failed                told, from the first of the 60 on
//!                           any     none worked since, the session is unknown   told once, for all commands
//!                           READ    session unknown, others worked after them   works: it was set up again
//! ```
//!
//! Requests of all connections between two hosts are looked at together: a session shares them out. \[MS-SMB2\] 2.2.2;
//! RFC 1813 2.6; RFC 8881 15.1.

use crate::exchange::{Failing, Family, Status};
use crate::finding::{Blame, Certainty, Finding, Rule, Severity, Site};
use crate::nfs_causes::{DENIED, JUKEBOX, NOT_SUPPORTED, cause_of_nfs};
use crate::op::At;
use crate::outcome::{Ending, Outcome, Success};
use crate::put_off;
use crate::report::{Connection, Handshake, Protocol, Report};
use crate::stats::{AROUND, MOUNTS, is_callback};
use crate::summary::FailingRun;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use rdmascope_dissector::frame::Addr;
use rdmascope_dissector::text::Elapsed;
use rdmascope_dissector::wire::nfs::v4;

/// Commands that are what a client is there for: they open, read and write files.
const WORK: [&str; 4] = ["CREATE", "OPEN", "READ", "WRITE"];
/// Requests in a row that are no accident.
const MANY: u64 = 10;
/// Requests in a row that the server no longer knows, from which on the client has not recovered.
const SEVERAL: u64 = 3;
/// ns for which a server may ask a client to wait.
const PATIENCE: i64 = 10_000_000_000;

/// The connections between two hosts.
struct Hosts<'r> {
    client: Addr,
    server: Addr,
    family: Family,
    connections: Vec<&'r Connection>,
}

/// Requests that failed one after the other, on a connection of which they are first.
struct Run {
    sum: FailingRun,
    connection: u32,
    /// True if none worked before them.
    is_all: bool,
}

/// Reports commands whose requests failed to the end.
pub(crate) fn conclude(report: &mut Report) {
    put_off::explain_slow(report);
    for finding in findings(&report.connections).into_iter().chain(put_off::findings(&report.connections)) {
        report.findings.add(finding);
    }
    for (place, took) in mounted_later(&report.connections) {
        let connection = &mut report.connections[place];
        let (id, Some(outcome)) = (connection.id, connection.outcome.as_mut()) else { continue };
        outcome.success = Success::Replaced;
        if let Some((rule, by)) = outcome.cause {
            let text = match took {
                0 => String::from("; another connection serves it"),
                _ => format!("; it was mounted over another connection {} after it", Elapsed(took)),
            };
            report.findings.lower(rule, Some(id), by, Severity::Note, format_args!("{text}"));
        }
    }
}

/// The connections on which nothing was mounted while another one of the same hosts, later, was told yes, and ns until
/// that.
fn mounted_later(connections: &[Connection]) -> Vec<(usize, i64)> {
    let hosts = |c: &Connection| c.peers.map(|peer| peer.address);
    let failed = connections.iter().enumerate().filter(|(_, c)| {
        c.outcome.as_ref().is_some_and(|outcome| outcome.failed() && outcome.ending == Ending::NoMount)
    });
    let is_mounted = |name: &str| MOUNTS.contains(&name) || WORK.contains(&name);
    let later = |c: &Connection| {
        let others = connections.iter().filter(|other| hosts(other) == hosts(c) && other.id != c.id);
        // who asks if a program is there mounts nothing, where it does on another connection
        let is_question = c.commands.iter().all(|row| row.name == "NULL");
        if is_question && others.clone().flat_map(|other| &other.commands).any(|row| row.worked.is_some()) {
            return Some(0);
        }
        // on a connection that began later, anything that a client does not do before it mounts
        let is_new = |other: &Connection, name: &str| other.first >= c.last && !AROUND.contains(&name);
        let rows = others.flat_map(|other| other.commands.iter().map(move |row| (other, row)));
        let worked = rows.filter(|(other, row)| is_mounted(row.name) || is_new(other, row.name));
        let worked = worked.filter_map(|(_, row)| row.worked);
        worked.map(|worked| worked.since(c.last)).filter(|took| *took >= 0).min()
    };
    failed.filter_map(|(place, c)| Some((place, later(c)?))).collect()
}

fn findings(connections: &[Connection]) -> Vec<Finding> {
    let mut all: Vec<Hosts<'_>> = Vec::new();
    for c in connections {
        let family = match c.protocol {
            Protocol::SmbDirect | Protocol::Smb2 => Family::Smb2,
            Protocol::RpcRdma | Protocol::Rpc => Family::Rpc,
            Protocol::Unknown => continue,
        };
        let (client, server) = (c.peers[0].address, c.peers[1].address);
        match all.iter_mut().find(|h| (h.client, h.server, h.family) == (client, server, family)) {
            Some(hosts) => hosts.connections.push(c),
            None => all.push(Hosts { client, server, family, connections: alloc::vec![c] }),
        }
    }
    all.iter().flat_map(Hosts::findings).collect()
}

/// True if a command only prepares for work.
fn is_preparation(name: &str) -> bool {
    MOUNTS.contains(&name) || AROUND.contains(&name)
}

impl Hosts<'_> {
    fn findings(&self) -> Vec<Finding> {
        if let Some(run) = self.lost() {
            return self.told(None, &run).into_iter().collect();
        }
        let mut names: Vec<&str> =
            self.connections.iter().flat_map(|c| c.commands.iter().map(|row| row.name)).collect();
        names.sort_unstable();
        names.dedup();
        // who waits for a lock asks for as long as somebody else holds it
        names.retain(|name| !is_preparation(name) && *name != "LOCK");
        names.iter().filter_map(|command| self.told(Some(command), &self.run(&|name| name == *command)?)).collect()
    }

    /// True if a client of SMB2 set up again what a server no longer knew when the run ended (\[MS-SMB2\] 3.2.5.1.6):
    /// what was under way failed together, and requests for files worked after it. That a logon or a share was accepted
    /// does not tell; nor does anything tell of the handles that were lost.
    fn is_set_up_again(&self, run: &Run) -> bool {
        /// ns within which requests fail that were under way: who goes on asking has not noticed.
        const TOGETHER: i64 = 1_000_000_000;
        let is_told = |code: u32| {
            // STATUS_INVALID_HANDLE, STATUS_FILE_INVALID, STATUS_FILE_CLOSED
            !matches!(code, 0xc000_0008 | 0xc000_0098 | 0xc000_0128)
        };
        let is_lost = run.sum.status.is_some_and(|status| {
            let Status(family, code) = status;
            family == Family::Smb2 && status.failing() == Failing::Lost && is_told(code)
        });
        if !is_lost || run.sum.span.1.since(run.sum.span.0) > TOGETHER {
            return false;
        }
        let last = run.sum.span.1;
        let rows = || self.connections.iter().flat_map(|c| &c.commands);
        // who is refused in that has nothing but what it had beside it
        let is_set_up = |name: &str| matches!(name, "SESSION_SETUP" | "TREE_CONNECT");
        if rows().any(|row| is_set_up(row.name) && row.failing.count > 0 && row.failing.span.1 > last) {
            return false;
        }
        let tells = |name: &str| WORK.contains(&name) || matches!(name, "QUERY_INFO" | "SET_INFO" | "FLUSH");
        rows().filter(|row| tells(row.name)).filter_map(|row| row.worked).any(|worked| worked > last)
    }

    /// The failures of some commands after which none of them worked.
    fn run(&self, of: &dyn Fn(&str) -> bool) -> Option<Run> {
        let rows = || self.connections.iter().flat_map(|c| c.commands.iter().map(move |row| (*c, row)));
        let worked = rows().filter(|(_, row)| of(row.name)).filter_map(|(_, row)| row.worked).max();
        let is_told = |c: &Connection| c.outcome.as_ref().is_some_and(Outcome::failed);
        let mut run: Option<Run> = None;
        for (c, row) in rows().filter(|(c, row)| of(row.name) && row.failing.count > 0 && !is_told(c)) {
            if worked.is_some_and(|worked| row.failing.span.0 < worked) {
                continue;
            }
            let run = run.get_or_insert_with(|| Run {
                sum: FailingRun::default(),
                connection: c.id,
                is_all: worked.is_none(),
            });
            if run.sum.count == 0 || row.failing.span.0 < run.sum.span.0 {
                run.connection = c.id;
            }
            run.sum.join(&row.failing);
        }
        run.filter(|run| !self.is_set_up_again(run))
    }

    /// Requests of any kind that the server does not know any more, or refuses, if nothing else came of it.
    fn lost(&self) -> Option<Run> {
        let any = || self.run(&|_| true).filter(|run| run.is_all);
        let run = self.run(&|name| !is_preparation(name)).or_else(any)?;
        let least = if run.is_all { 1 } else { SEVERAL };
        let is_lost = run.sum.status.is_some_and(|status| status.failing() == Failing::Lost);
        (is_lost && run.sum.lost >= least && run.sum.lost * 2 > run.sum.count).then_some(run)
    }

    /// The finding about failures of a command, or of requests of any kind that the server does not know any more, if
    /// they are more than an accident.
    fn told(&self, command: Option<&str>, run: &Run) -> Option<Finding> {
        let Run { sum, connection, is_all } = run;
        let status = sum.status.filter(|status| !status.is_damage())?;
        let lasted = sum.span.1.since(sum.span.0);
        let is_busy = sum.busy == sum.count;
        let is_much = sum.count >= MANY && (!is_busy || lasted >= PATIENCE);
        let is_work = command.is_some_and(|command| WORK.contains(&command));
        // data that its client could not write, and did not write later either
        let is_over = self.connections.iter().all(|c| c.closed.is_some());
        let is_of_data = command.is_some_and(|command| matches!(command, "WRITE" | "COMMIT"));
        let is_left = is_of_data && is_over && sum.lost == sum.count;
        let is_grave = command.is_none()
            || is_work && (*is_all && (!is_busy || lasted >= PATIENCE) || is_much)
            || is_busy && is_much
            || is_much && command.is_some_and(|command| is_refusal(command, status, *is_all))
            || is_left;
        if !is_grave {
            return None;
        }
        let (command, s) = command.map_or(("request", "s"), |command| (command, " requests"));
        let text = match (is_all, sum.count) {
            (true, 1) => format!("The only {command} failed: {status}"),
            (true, n) => format!("All {n} {command}{s} failed: {status}"),
            (false, 1) => format!("The last {command} failed: {status}"),
            (false, n) => format!("The last {n} {command}{s} failed, from frame {} on: {status}", sum.span.0.frame),
        };
        let is_partial = self.connections.iter().any(|c| is_partial(c));
        let certainty = if is_partial { Certainty::Guess } else { Certainty::IfNothingWasMissed };
        let At { frame, time } = sum.span.0;
        let site = Site { connection: Some(*connection), frame, time_ns: time };
        let finding = Finding::new(Rule::AllFailed, Blame::Unknown, site, certainty, text).with_why(cause(status));
        Some(finding.with_frames((sum.count > 1).then_some(sum.span.1)))
    }
}

/// True if calls of NFS that are not for work failed as they do not where all is well: the server does not know the
/// client or its file any more, or the user may do none of that. What a server does not support is refused to everybody.
fn is_refusal(command: &str, status: Status, is_all: bool) -> bool {
    use v4::Status as S;
    let is_refused = match status.number().map(S) {
        Some(S::PERM | S::ACCESS | S::ROFS) => is_all,
        Some(S::MOVED) => true,
        _ => status.failing() == Failing::Lost,
    };
    status.0 == Family::Rpc && !is_callback(command) && is_refused
}

/// True if the capture may lack a request, or its answer.
fn is_partial(c: &Connection) -> bool {
    let is_sealed = c.smb.sealed.iter().any(|(n, _)| *n > 0);
    c.progress.missed || c.handshake != Handshake::Seen || !c.client_known || is_sealed
}

/// Cause of failures with a status.
fn cause(status: Status) -> Option<&'static str> {
    let Status(family, code) = status;
    if status == Status::JUKEBOX {
        return Some(JUKEBOX);
    }
    if let (Family::Rpc, Some(code)) = (family, status.number())
        && let Some(why) = cause_of_nfs(v4::Status(code))
    {
        return Some(why);
    }
    Some(match (status.failing(), family) {
        (Failing::Busy, _) => "Somebody else holds the file, or the server asks again and again to wait",
        (Failing::Lost, Family::Rpc) if status.number().is_none() => {
            "The server refuses the credential, the program or its version, whatever is asked for"
        }
        (Failing::Lost, _) => {
            "The server does not know the client's session, share, client id or handle, or not any more: they were closed \
                or have expired, or the server restarted or failed over; the client did not set them up again"
        }
        // STATUS_MEDIA_WRITE_PROTECTED
        (_, Family::Smb2) if code == 0xc000_00a2 => "The file system or its share is read-only",
        // STATUS_ACCESS_DENIED
        (_, Family::Smb2) if code == 0xc000_0022 => DENIED,
        // STATUS_NOT_IMPLEMENTED, STATUS_INVALID_DEVICE_REQUEST, STATUS_NOT_SUPPORTED
        (_, Family::Smb2) if matches!(code, 0xc000_0002 | 0xc000_0010 | 0xc000_00bb) => NOT_SUPPORTED,
        _ => "The server refuses it for the reason that the status names",
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::summary::{Command, Peer};
    use alloc::string::String;

    const DENIED: u32 = 0xc000_0022;
    const NO_FILE: u32 = 0xc000_0034;
    const FULL: u32 = 0xc000_007f;
    const BUSY: u32 = 0xc000_0043;
    const DELETED: u32 = 0xc000_0203;

    /// A connection whose requests of each command ended so, one in each second: 0 is success.
    fn with(id: u32, rows: &[(&'static str, &[u32])]) -> Connection {
        let peer = |last| Peer { address: Addr::V4([192, 0, 2, last]), ..Peer::default() };
        let mut c = Connection {
            id,
            protocol: Protocol::SmbDirect,
            peers: [peer(2), peer(1)],
            handshake: Handshake::Seen,
            client_known: true,
            ..Connection::default()
        };
        for (name, ends) in rows {
            let mut row = Command { name, ..Command::default() };
            for (n, status) in (0u64..).zip(ends.iter()) {
                let at =
                    At { frame: u64::from(id) * 1000 + n, time: (i64::from(id) * 1000 + n as i64) * 1_000_000_000 };
                row.ended(at, Some(Status(Family::Smb2, *status)).filter(|status| status.1 != 0));
            }
            c.commands.push(row);
        }
        c
    }

    fn told(connections: &[Connection]) -> Vec<(u64, String, Certainty)> {
        findings(connections).into_iter().map(|f| (f.frame, f.text, f.certainty)).collect()
    }

    #[test]
    fn a_command_that_never_succeeded_is_told() {
        let denied = [with(1, &[("CREATE", &[0]), ("WRITE", &[DENIED; 9])])];
        let text = "All 9 WRITE requests failed: STATUS_ACCESS_DENIED";
        assert_eq!(told(&denied), [(1000, text.into(), Certainty::IfNothingWasMissed)]);
        let one = [with(1, &[("CREATE", &[DENIED])])];
        assert_eq!(told(&one)[0].1, "The only CREATE failed: STATUS_ACCESS_DENIED");
        assert_eq!(told(&[with(1, &[("WRITE", &[DENIED, 0])])]), []);
        assert_eq!(told(&[with(1, &[("WRITE", &[0, DENIED])])]), [], "one is no series");
        assert_eq!(told(&[with(1, &[("TREE_CONNECT", &[DENIED, DENIED])])]), [], "other rules are about mounts");
    }

    #[test]
    fn a_command_that_fails_from_somewhere_on_is_told() {
        let mut ends = [0; 30];
        ends[12..].fill(DENIED);
        let text = "The last 18 READ requests failed, from frame 1012 on: STATUS_ACCESS_DENIED";
        assert_eq!(told(&[with(1, &[("READ", &ends)])]), [(1012, text.into(), Certainty::IfNothingWasMissed)]);
    }

    #[test]
    fn who_only_waits_is_given_time() {
        let busy = |n: usize| told(&[with(1, &[("CREATE", &[BUSY; 40][..n])])]);
        assert_eq!(busy(9), []);
        assert_eq!(busy(40)[0].1, "All 40 CREATE requests failed: STATUS_SHARING_VIOLATION");
    }

    #[test]
    fn a_session_that_is_lost_is_told_once() {
        let lost = with(1, &[("READ", &[0, DELETED, DELETED, DELETED]), ("CLOSE", &[0, 0, 0, DELETED])]);
        assert_eq!(told(core::slice::from_ref(&lost)), [], "the CLOSE in between worked");
        let lost = with(1, &[("READ", &[0, DELETED, DELETED]), ("WRITE", &[0, DELETED])]);
        assert_eq!(told(&[lost])[0].1, "The last 3 requests failed, from frame 1001 on: STATUS_USER_SESSION_DELETED");
    }

    /// \[MS-SMB2\] 3.2.5.1.6: the client sets up its session again, and goes on.
    #[test]
    fn what_was_set_up_again_did_not_fail_to_the_end() {
        const EXPIRED: u32 = 0xc000_035c;
        const NO_SHARE: u32 = 0xc000_00c9;
        const CLOSED: u32 = 0xc000_0128;
        for (status, after, is_told) in [
            (DELETED, ("CREATE", &[0; 6][..]), false),
            (EXPIRED, ("SESSION_SETUP", &[0; 6]), true),
            (EXPIRED, ("WRITE", &[0; 6]), false),
            (NO_SHARE, ("TREE_CONNECT", &[0; 6]), true),
            (NO_SHARE, ("QUERY_INFO", &[0; 6]), false),
            (DELETED, ("CREATE", &[0; 2]), true),
            (EXPIRED, ("ECHO", &[0; 6]), true),
            (CLOSED, ("WRITE", &[0; 6]), true),
            (CLOSED, ("CREATE", &[0; 6]), true),
            (DENIED, ("CREATE", &[0; 6]), true),
        ] {
            let found = told(&[with(1, &[("READ", &[status; 2]), after])]);
            assert_eq!(!found.is_empty(), is_told, "{after:?} {found:?}");
        }
        let refused = with(1, &[("WRITE", &[NO_SHARE; 2]), ("TREE_CONNECT", &[0, 0, DENIED]), ("READ", &[0; 6])]);
        assert_eq!(told(&[refused]).len(), 1);
        let asked_on = with(1, &[("READ", &[DELETED; 5]), ("CREATE", &[0; 6])]);
        assert_eq!(told(&[asked_on])[0].1, "All 5 READ requests failed: STATUS_USER_SESSION_DELETED");
        // over another connection
        let both = [with(1, &[("READ", &[DELETED])]), with(2, &[("QUERY_INFO", &[0])])];
        assert_eq!(told(&both), []);
    }

    #[test]
    fn names_that_are_not_there_and_full_disks_are_others_to_tell() {
        for status in [NO_FILE, FULL] {
            assert_eq!(told(&[with(1, &[("CREATE", &[status, status])])]), []);
        }
    }

    #[test]
    fn other_commands_that_never_worked_are_told_if_they_are_many() {
        let all = |command: &'static str, count: u64, worked: bool, status: v4::Status| {
            let mut c = with(1, &[("OPEN", &[0])]);
            c.protocol = Protocol::RpcRdma;
            let mut row = Command { name: command, ..Command::default() };
            (0..count).for_each(|n| {
                let status = Some(Status(Family::Rpc, status.0)).filter(|_| n > 0 || !worked);
                row.ended(At { frame: n + 2, time: n as i64 }, status);
            });
            c.commands.push(row);
            told(&[c]).into_iter().map(|(_, text, _)| text).collect::<Vec<_>>()
        };
        use v4::Status as S;
        assert_eq!(all("REMOVE", 12, false, S::ACCESS), ["All 12 REMOVE requests failed: ERR_ACCESS"]);
        assert_eq!(all("REMOVE", 9, false, S::ACCESS), [""; 0], "a few may be refused");
        assert_eq!(all("REMOVE", 60, true, S::ACCESS), [""; 0], "one worked");
        let moved = "The last 59 GETATTR requests failed, from frame 3 on: ERR_MOVED";
        assert_eq!(all("GETATTR", 60, true, S::MOVED), [moved]);
        assert_eq!(all("LOOKUP", 60, false, S::NOENT), [""; 0], "names that are not there");
        assert_eq!(all("GETXATTR", 60, false, S::NOXATTR), [""; 0], "nor are attributes");
        assert_eq!(all("CLONE", 60, false, S::NOTSUPP), [""; 0], "what no client can have");
        assert_eq!(all("CB_RECALL", 60, false, S::BADHANDLE), [""; 0], "what the client returned already");
    }

    #[test]
    fn data_that_its_client_could_not_write_at_the_end_is_lost() {
        let left = |status: u32, is_closed: bool| {
            let mut c = with(1, &[("WRITE", &[0, 0, status])]);
            c.closed = is_closed.then_some((Some(0), "DREQ", c.last));
            told(&[c])
        };
        assert_eq!(left(DELETED, true)[0].1, "The last WRITE failed: STATUS_USER_SESSION_DELETED");
        assert_eq!(left(DELETED, false), [], "it may go on");
        assert_eq!(left(DENIED, true), [], "the user knows of it");
    }

    #[test]
    fn the_cause_follows_the_status() {
        let why = |status: v4::Status| cause(Status(Family::Rpc, status.0));
        assert_eq!(why(v4::Status::GRACE), cause_of_nfs(v4::Status::GRACE));
        assert!(why(v4::Status::RETRY_UNCACHED_REP).is_some_and(|why| why.contains("did not keep")));
    }

    #[test]
    fn what_works_over_another_connection_works() {
        let denied = with(1, &[("WRITE", &[DENIED; 2])]);
        assert_eq!(told(&[denied.clone(), with(2, &[("WRITE", &[0; 5])])]), []);
        let both = [with(2, &[("WRITE", &[DENIED; 5])]), denied.clone()];
        let text = "All 7 WRITE requests failed: STATUS_ACCESS_DENIED";
        assert_eq!(told(&both), [(1000, text.into(), Certainty::IfNothingWasMissed)]);
        let mut elsewhere = with(2, &[("WRITE", &[0; 5])]);
        elsewhere.peers[1].address = Addr::V4([192, 0, 2, 3]);
        assert_eq!(told(&[denied, elsewhere]).len(), 1, "another server");
    }

    #[test]
    fn a_mount_that_succeeds_later_takes_the_place_of_one_that_was_refused() {
        let mut refused = with(1, &[("MNT", &[DENIED])]);
        refused.outcome = Some(Outcome {
            purpose: crate::outcome::Purpose::RpcTcp,
            reached: crate::outcome::Stage::Negotiated,
            ending: Ending::NoMount,
            success: Success::No,
            by: None,
            closed_by: Some(0),
            closing: crate::outcome::Closing::Closed,
            at: At::default(),
            waited: 0,
            certainty: Certainty::IfNothingWasMissed,
            cause: None,
        });
        let places = |rows: &[(&'static str, &[u32])]| {
            mounted_later(&[refused.clone(), with(2, rows)]).into_iter().map(|(place, _)| place).collect::<Vec<_>>()
        };
        assert_eq!([places(&[("MNT", &[0])]), places(&[("WRITE", &[0])])], [[0], [0]]);
        assert_eq!([places(&[("MNT", &[DENIED])]), places(&[("NULL", &[0])])], [[0; 0]; 2]);
    }

    #[test]
    fn what_the_capture_lacks_may_have_worked() {
        let mut late = with(1, &[("WRITE", &[DENIED; 2])]);
        late.progress.missed = true;
        assert_eq!(told(&[late])[0].2, Certainty::Guess);
    }
}
