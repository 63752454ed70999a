//! Calls that the other side puts off: it answers that it cannot serve them yet, and the caller asks again.
//!
//! ```text
//!   OPEN a.txt   ERR_GRACE   ERR_GRACE   ERR_GRACE   OK
//!                ├──────────────── put off ─────────▶│
//! ```
//!
//! Each reply comes at once, so that no latency shows the wait. RFC 8881 15.1.1.3 (DELAY), 8.4.2 (GRACE), 18.10.3
//! (DENIED); RFC 1813 2.6 (JUKEBOX).

use crate::exchange::{Exchange, Family, Status};
use crate::finding::{Blame, Certainty, Finding, Rule, Severity, Site};
use crate::op::At;
use crate::report::{Connection, Report};
use crate::stats::is_callback;
use crate::stored::stored;
use alloc::format;
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::cmp::Reverse;
use rdmascope_dissector::text::Elapsed;
use rdmascope_dissector::wire::nfs::{v3, v4};

/// Calls that are followed at most until they are served.
const OPEN_MAX: usize = 64;
/// Pairs of command and status that are counted apart at most.
const SUMS_MAX: usize = 64;
/// ns in all from which on it is worth a word.
const LONG: i64 = 1_000_000_000;

/// Calls of one command that were put off with one status.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Delayed {
    /// The command.
    pub command: &'static str,
    /// Status of the replies that put it off.
    pub status: Status,
    /// Number of those replies.
    pub tries: u64,
    /// The first request.
    pub first: At,
    /// The last reply.
    pub last: At,
    /// Time in which any of them was put off, in ns.
    pub lasted: i64,
    /// Calls that were not served at the end.
    pub left: u64,
}

/// A call that is put off.
#[derive(Clone, Debug)]
struct Open {
    command: &'static str,
    file: Option<Arc<str>>,
    offset: Option<u64>,
    status: Status,
    tries: u64,
    first: At,
    last: At,
}

/// Calls of a connection that are put off, and those that were.
#[derive(Clone, Debug, Default)]
pub struct Delays {
    open: Vec<Open>,
    sums: Vec<Delayed>,
}

/// True if a reply with this status asks the caller to try again later.
fn asks_to_wait(command: &str, Status(family, code): Status) -> bool {
    family == Family::Rpc
        && match v4::Status(code) {
            // the same number as JUKEBOX of version 3
            v4::Status::DELAY | v4::Status::GRACE => true,
            v4::Status::DENIED => command == "LOCK",
            _ => false,
        }
}

impl Open {
    fn is_of(&self, exchange: &Exchange) -> bool {
        (self.command, &self.file, self.offset) == (exchange.command, &exchange.file, exchange.offset)
    }

    /// Adds it to the sums; it was served with the reply at `end`, if it was.
    fn add_to(&self, sums: &mut Vec<Delayed>, served: Option<At>) {
        let &Self { command, status, tries, first, last, .. } = self;
        let last = served.unwrap_or(last);
        let left = u64::from(served.is_none());
        let Some(sum) = sums.iter_mut().find(|sum| (sum.command, sum.status) == (command, status)) else {
            if sums.len() < SUMS_MAX {
                let lasted = last.since(first).max(0);
                sums.push(Delayed { command, status, tries, first, last, lasted, left });
            }
            return;
        };
        // of several that waited at the same time, it counts once
        sum.lasted = sum.lasted.saturating_add(last.since(first.max(sum.last)).max(0));
        (sum.tries, sum.left) = (sum.tries + tries, sum.left + left);
        (sum.first, sum.last) = (sum.first.min(first), sum.last.max(last));
    }
}

impl Delays {
    /// A call was answered.
    pub fn take(&mut self, exchange: &Exchange) {
        let Some(reply) = exchange.reply_end else { return };
        let status = Status(exchange.family, exchange.status.unwrap_or(0));
        let is_put_off = exchange.failed && asks_to_wait(exchange.command, status);
        if !is_put_off && self.open.is_empty() {
            return;
        }
        let place = self.open.iter().position(|open| open.is_of(exchange));
        if let Some(place) = place {
            let open = &mut self.open[place];
            if is_put_off && open.status == status {
                (open.tries, open.last) = (open.tries + 1, reply);
                return;
            }
            self.open.remove(place).add_to(&mut self.sums, Some(reply));
        }
        if is_put_off {
            if self.open.len() >= OPEN_MAX {
                self.open.remove(0).add_to(&mut self.sums, None);
            }
            let Exchange { command, offset, request: first, .. } = *exchange;
            self.open.push(Open { command, file: exchange.file.clone(), offset, status, tries: 1, first, last: reply });
        }
    }

    /// Adds those of the other half of a connection.
    pub fn absorb(&mut self, other: &Self) {
        self.open.extend(other.open.iter().take(OPEN_MAX.saturating_sub(self.open.len())).cloned());
        self.sums.extend(other.sums.iter().take(SUMS_MAX.saturating_sub(self.sums.len())));
    }

    /// All of them by command and status, also those that are not served yet.
    pub fn rows(&self) -> Vec<Delayed> {
        let mut sums = self.sums.clone();
        self.open.iter().for_each(|open| open.add_to(&mut sums, None));
        sums
    }
}

/// Findings about the calls of a connection that were put off for long.
pub(crate) fn findings(connection: &Connection) -> Vec<Finding> {
    let mut long: Vec<&Delayed> = connection.delayed.iter().filter(|row| row.lasted >= LONG).collect();
    long.sort_by_key(|row| Reverse(row.lasted));
    long.into_iter().map(|row| finding(connection, row)).collect()
}

/// Names the cause of calls that the server was slow to answer, or may have been while a delegation was recalled.
pub(crate) fn explain_slow(report: &mut Report) {
    let in_doubt = |c: &&Connection| c.nfs.perhaps_recalled;
    for id in report.connections.iter().filter(in_doubt).map(|c| Some(c.id)) {
        let is_it = |f: &&Finding| (f.rule, f.connection, f.by) == (Rule::RpcSlow, id, Blame::Server);
        if report.findings.iter().find(is_it).is_some_and(|f| f.certainty == Certainty::Guess) {
            report.findings.because(Rule::RpcSlow, id, Blame::Server, Some(RECALLED));
        }
    }
}

/// Cause of a slow call that may have waited for its own client.
const RECALLED: &str = "The server was slow, or it waited for a delegation that it had asked this client for (see CB_RECALL): the capture \
        does not show of which file";

fn finding(connection: &Connection, row: &Delayed) -> Finding {
    let &Delayed { command, status, tries, first, last, lasted, left } = row;
    let code = v4::Status(status.1);
    let is_lock = code == v4::Status::DENIED;
    let is_recalled = connection.commands.iter().any(|row| row.name == "CB_RECALL" && row.count > 0);
    // who holds a lock is not known, and a server that waits for a delegation may wait for this client
    let is_open = is_lock || code == v4::Status::DELAY && is_recalled;
    let by = match is_callback(command) {
        true => Blame::Client,
        false if is_open => Blame::Unknown,
        false => Blame::Server,
    };
    let name = match code {
        v4::Status::DELAY if connection.nfs.version == 3 => {
            v3::Status::JUKEBOX.name().map_or_else(|| format!("{status}"), |name| name.replace("NFS3", ""))
        }
        _ => format!("{status}"),
    };
    let times = match tries {
        1 => String::from("once"),
        2 => String::from("twice"),
        _ => format!("{tries} times"),
    };
    let what = if is_lock { "somebody else held the lock" } else { "to be tried again" };
    let end = if left == 0 { "until another answer came" } else { "and no other answer came" };
    let who = if by == Blame::Unknown { "The server " } else { "" };
    let text = format!(
        "{who}answered {command} {times} with {name}: {what}, for {} in all, frames {} to {}, {end}",
        Elapsed(lasted),
        first.frame,
        last.frame
    );
    let site = Site { connection: Some(connection.id), frame: first.frame, time_ns: first.time };
    let why = match code {
        v4::Status::GRACE => GRACE,
        v4::Status::DENIED => DENIED,
        _ if is_callback(command) => CALLBACK,
        _ if is_recalled => RECALL,
        _ if connection.nfs.version == 3 => JUKEBOX,
        _ => DELAY,
    };
    let certainty = if by == Blame::Unknown && !is_lock { Certainty::Guess } else { Certainty::Certain };
    let severity = if is_lock { Severity::Note } else { Rule::RpcDelayed.row().severity };
    let found = Finding::new(Rule::RpcDelayed, by, site, certainty, text).with_why(Some(why));
    found.with_severity(severity).with_frames([last])
}

/// Cause of ERR_GRACE (RFC 8881 8.4.2).
pub(crate) const GRACE: &str = "The server's NFS service was restarted, or the file system moved to it: in its grace period, often 90 s, clients \
        only get back what they had open before";

/// Cause of ERR_DENIED of a lock.
const DENIED: &str = "Another client or process holds the lock; the server only says so";

/// Cause of ERR_DELAY for a callback.
const CALLBACK: &str = "The client is busy with the file, or is just getting it";

/// Cause of ERR_DELAY (RFC 8881 15.1.1.3).
pub(crate) const DELAY: &str =
    "The server waits for another client to return a delegation, for slow or archived storage, or for means of its own";

/// The same where the server asked this client for a delegation.
const RECALL: &str =
    "The server waits for a delegation to be returned: it asked this client for one (see CB_RECALL), or for storage";

/// Cause of ERR_JUKEBOX (RFC 1813 2.6).
pub(crate) const JUKEBOX: &str = "The server waits for slow or archived storage, or for means of its own";

stored!(Delayed { command, status, tries, first, last, lasted, left });
stored!(Open { command, file, offset, status, tries, first, last });
stored!(Delays { open, sums });

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: i64 = 1_000_000_000;
    const GRACE: u32 = v4::Status::GRACE.0;
    const DELAY: u32 = v4::Status::DELAY.0;

    /// The reply to a call for a file, at a second; 0 is success.
    fn reply(command: &'static str, file: &str, second: i64, status: u32) -> Exchange {
        let at = At { frame: second as u64, time: second * SECOND };
        let mut e = Exchange::begun(Family::Rpc, command, at, at);
        (e.reply, e.reply_end, e.status, e.failed) = (Some(at), Some(at), Some(status), status != 0);
        e.file = Some(file.into());
        e
    }

    fn rows(all: &[(&'static str, &str, i64, u32)]) -> Vec<(&'static str, u64, i64, u64)> {
        let mut delays = Delays::default();
        all.iter().for_each(|(command, file, second, status)| delays.take(&reply(command, file, *second, *status)));
        delays.rows().iter().map(|row| (row.command, row.tries, row.lasted / SECOND, row.left)).collect()
    }

    #[test]
    fn a_call_is_put_off_from_its_first_request_until_it_is_served() {
        let all = [("OPEN", "a", 1, GRACE), ("OPEN", "a", 6, GRACE), ("OPEN", "b", 7, 0), ("OPEN", "a", 11, 0)];
        assert_eq!(rows(&all), [("OPEN", 2, 10, 0)], "another file may be served meanwhile");
        assert_eq!(rows(&all[..3]), [("OPEN", 2, 5, 1)], "to the last reply");
        assert_eq!(rows(&[("OPEN", "a", 1, 2), ("LOOKUP", "a", 2, 2)]), [], "no such file");
        // it fails for another reason in the end
        assert_eq!(rows(&[("OPEN", "a", 1, DELAY), ("OPEN", "a", 4, 13)]), [("OPEN", 1, 3, 0)]);
    }

    #[test]
    fn what_waits_at_the_same_time_waits_once() {
        let both = [("OPEN", "a", 1, GRACE), ("OPEN", "b", 2, GRACE), ("OPEN", "a", 5, 0), ("OPEN", "b", 6, 0)];
        assert_eq!(rows(&both), [("OPEN", 2, 5, 0)]);
        let later = [("OPEN", "a", 1, GRACE), ("OPEN", "a", 3, 0), ("OPEN", "b", 11, GRACE), ("OPEN", "b", 12, 0)];
        assert_eq!(rows(&later), [("OPEN", 2, 3, 0)]);
    }

    #[test]
    fn calls_that_are_put_off_are_bounded() {
        let mut delays = Delays::default();
        for n in 0..1000 {
            delays.take(&reply("OPEN", &format!("{n}"), n, GRACE));
        }
        assert_eq!((delays.open.len(), delays.rows()[0].tries, delays.rows()[0].left), (OPEN_MAX, 1000, 1000));
    }

    fn told(version: u32, rows: &[Delayed], is_recalled: bool) -> Vec<(Blame, Severity, String)> {
        let mut c = Connection { delayed: rows.to_vec(), ..Connection::default() };
        c.nfs.version = version;
        if is_recalled {
            c.commands.push(crate::summary::Command { name: "CB_RECALL", count: 1, ..Default::default() });
        }
        findings(&c).into_iter().map(|f| (f.by, f.severity, f.text)).collect()
    }

    #[test]
    fn a_long_wait_is_told_with_its_status() {
        let at = |frame: u64| At { frame, time: frame as i64 * SECOND };
        let row = |command, code, lasted| Delayed {
            command,
            status: Status(Family::Rpc, code),
            tries: 3,
            first: at(2),
            last: at(9),
            lasted,
            left: 0,
        };
        let text = "answered OPEN 3 times with ERR_GRACE: to be tried again, for 7.00 s in all, frames 2 to 9, until \
            another answer came";
        assert_eq!(told(4, &[row("OPEN", GRACE, 7 * SECOND)], true), [(Blame::Server, Severity::Warn, text.into())]);
        assert_eq!(told(4, &[row("OPEN", GRACE, SECOND / 2)], false), [], "a short wait is none");
        let one = |version, row, is_recalled| told(version, &[row], is_recalled).remove(0);
        assert!(one(3, row("READ", DELAY, 7 * SECOND), false).2.contains("ERR_JUKEBOX"));
        assert_eq!(one(4, row("OPEN", DELAY, 7 * SECOND), true).0, Blame::Unknown, "it may wait for the client");
        let lock = one(4, row("LOCK", v4::Status::DENIED.0, 7 * SECOND), false);
        assert_eq!((lock.0, lock.1), (Blame::Unknown, Severity::Note), "somebody holds it");
        assert_eq!(one(4, row("CB_RECALL", DELAY, 7 * SECOND), true).0, Blame::Client);
    }
}
