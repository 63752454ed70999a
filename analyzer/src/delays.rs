//! Calls that the other side puts off: it answers that it cannot serve them yet, and the caller asks again.
//!
//! ```text
//!   OPEN a.txt   ERR_GRACE   ERR_GRACE   ERR_GRACE   OK
//!                ├──────────────── put off ─────────▶│
//! ```
//!
//! Each reply comes at once, so that no latency shows the wait. What the calls of a session ask on several connections is
//! put together in the report. RFC 8881 15.1.1.3 (DELAY), 8.4.2 (GRACE), 18.10.3
//! (DENIED); RFC 1813 2.6 (JUKEBOX).

use crate::exchange::{Exchange, Family, Status};
use crate::op::At;
use crate::stored::stored;
use alloc::vec::Vec;
use rdmascope_dissector::wire::nfs::v4;

/// Calls that are followed at most until they are served.
const OPEN_MAX: usize = 512;
/// Calls that were put off which are remembered at most.
const CALLS_MAX: usize = 1024;
/// ns from one answer to the next try after which a client has given up: it repeats a call sooner, and a lock.
pub(crate) const GIVES_UP: i64 = 45_000_000_000;

/// A call that was put off, from its first request until it was served, or given up.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Delayed {
    /// The command.
    pub command: &'static str,
    /// What it is about: [`Exchange::about`].
    pub about: u64,
    /// Offset in the file.
    pub offset: Option<u64>,
    /// Status of the replies that put it off.
    pub status: Status,
    /// Number of those replies.
    pub tries: u64,
    /// The first request.
    pub first: At,
    /// The reply that was another one, or the last.
    pub last: At,
    /// True if another answer came on this connection.
    pub is_served: bool,
}

/// Calls of a connection that are put off, and those that were.
#[derive(Clone, Debug, Default)]
pub struct Delays {
    open: Vec<Delayed>,
    over: Vec<Delayed>,
}

/// True if a reply with this status asks the caller to try again later.
fn asks_to_wait(command: &str, status: Status) -> bool {
    status.0 == Family::Rpc
        && match status.number().map(v4::Status) {
            // the same number as JUKEBOX of version 3
            Some(v4::Status::DELAY | v4::Status::GRACE) => true,
            Some(v4::Status::DENIED) => command == "LOCK",
            _ => false,
        }
}

impl Delayed {
    /// True if it is the same call as another one.
    pub(crate) fn is_same(&self, other: &Self) -> bool {
        (self.command, self.about, self.offset) == (other.command, other.about, other.offset)
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
        let Exchange { command, about, offset, request: first, .. } = *exchange;
        let is_it = |open: &Delayed| (open.command, open.about, open.offset) == (command, about, offset);
        if let Some(place) = self.open.iter().position(is_it) {
            let open = &mut self.open[place];
            let is_late = first.since(open.last) > GIVES_UP;
            if is_put_off && open.status == status && !is_late {
                (open.tries, open.last) = (open.tries + 1, reply);
                return;
            }
            let mut open = self.open.remove(place);
            if !is_late {
                (open.last, open.is_served) = (reply, true);
            }
            self.keep(open);
        }
        if is_put_off {
            if self.open.len() >= OPEN_MAX {
                let oldest = self.open.remove(0);
                self.keep(oldest);
            }
            self.open.push(Delayed { command, about, offset, status, tries: 1, first, last: reply, is_served: false });
        }
    }

    fn keep(&mut self, call: Delayed) {
        if self.over.len() < CALLS_MAX {
            self.over.push(call);
        }
    }

    /// Adds those of the other half of a connection.
    pub fn absorb(&mut self, other: &Self) {
        self.open.extend(other.open.iter().take(OPEN_MAX.saturating_sub(self.open.len())).cloned());
        self.over.extend(other.over.iter().take(CALLS_MAX.saturating_sub(self.over.len())).cloned());
    }

    /// All of them, also those that are not served yet.
    pub fn calls(&self) -> Vec<Delayed> {
        self.over.iter().chain(&self.open).cloned().collect()
    }
}

stored!(Delayed { command, about, offset, status, tries, first, last, is_served });
stored!(Delays { open, over });

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::format;

    const SECOND: i64 = 1_000_000_000;
    const GRACE: u32 = v4::Status::GRACE.0;
    const DELAY: u32 = v4::Status::DELAY.0;

    /// The reply to a call for a file, at a second; 0 is success.
    fn reply(command: &'static str, file: &str, second: i64, status: u32) -> Exchange {
        let at = At { frame: second as u64, time: second * SECOND };
        let mut e = Exchange::begun(Family::Rpc, command, at, at);
        (e.reply, e.reply_end, e.status, e.failed) = (Some(at), Some(at), Some(status), status != 0);
        e.about = file.bytes().fold(0, |number, byte| number << 8 | u64::from(byte));
        e
    }

    fn calls(all: &[(&'static str, &str, i64, u32)]) -> Vec<(u64, i64, bool)> {
        let mut delays = Delays::default();
        all.iter().for_each(|(command, file, second, status)| delays.take(&reply(command, file, *second, *status)));
        delays.calls().iter().map(|call| (call.tries, call.last.since(call.first) / SECOND, call.is_served)).collect()
    }

    #[test]
    fn a_call_is_put_off_from_its_first_request_until_it_is_served() {
        let all = [("OPEN", "a", 1, GRACE), ("OPEN", "a", 6, GRACE), ("OPEN", "b", 7, 0), ("OPEN", "a", 11, 0)];
        assert_eq!(calls(&all), [(2, 10, true)], "another file may be served meanwhile");
        assert_eq!(calls(&all[..3]), [(2, 5, false)], "to the last reply");
        assert_eq!(calls(&[("OPEN", "a", 1, 2), ("LOOKUP", "a", 2, 2)]), [], "no such file");
        // it fails for another reason in the end
        assert_eq!(calls(&[("OPEN", "a", 1, DELAY), ("OPEN", "a", 4, 13)]), [(1, 3, true)]);
    }

    #[test]
    fn who_tries_again_much_later_has_given_up_before() {
        assert_eq!(calls(&[("READ", "a", 1, DELAY), ("READ", "a", 46, 0)]), [(1, 45, true)]);
        assert_eq!(calls(&[("READ", "a", 1, DELAY), ("READ", "a", 47, 0)]), [(1, 0, false)]);
        assert_eq!(calls(&[("READ", "a", 1, DELAY), ("READ", "a", 47, DELAY)]), [(1, 0, false), (1, 0, false)]);
    }

    #[test]
    fn calls_that_are_put_off_are_bounded() {
        let mut delays = Delays::default();
        for n in 0..3000 {
            delays.take(&reply("OPEN", &format!("{n}"), n, GRACE));
        }
        assert_eq!((delays.open.len(), delays.over.len()), (OPEN_MAX, CALLS_MAX));
    }
}
