//! Oplocks and leases that a client keeps though its server asked for them: SMB2-BREAK-KEPT. \[MS-SMB2\] 3.2.5.19, 3.3.2.1, 3.3.6.1.
//!
//! The time counts from the notification to the OPLOCK_BREAK, or to the CLOSE of the file. What the server takes meanwhile
//! for the client's own requests for that file is not the client's time: it writes what it has cached first.
//!
//! They are kept by connection, beside the breaks of all connections ([`crate::breaks`]), so that what is told of one does not
//! hang on which others are analyzed with it.

use crate::breaks::{GIVES_UP, Held, is_same};
use crate::op::At;
use alloc::sync::Arc;
use alloc::vec::Vec;

/// Those that are remembered on a connection.
const KEPT_MAX: usize = 32;
/// ns from which on a client is told to be late.
const LATE: i64 = 1_000_000_000;

/// One that its server asked for.
#[derive(Clone, Debug)]
pub(crate) struct Kept {
    /// What the server asked for.
    pub held: Held,
    /// Its file, if known.
    pub file: Option<Arc<str>>,
    /// Time of the notification.
    pub asked: At,
    /// Sequence number behind it, by which the client acknowledges the packet, if known.
    pub sequence: Option<u32>,
    /// Until when, in ns, the server was busy with requests of the client for this file, and for how long in all.
    busy: (i64, i64),
}

impl Kept {
    /// ns for which the client alone kept it, until `end`.
    pub(crate) fn lasted(&self, end: At) -> i64 {
        end.since(self.asked).saturating_sub(self.busy.1)
    }
}

/// Those of a connection.
#[derive(Clone, Debug, Default)]
pub(crate) struct KeptList(Vec<Kept>);

impl KeptList {
    /// The server asks for one.
    pub(crate) fn ask(&mut self, held: Held, file: Option<Arc<str>>, asked: At, sequence: Option<u32>) {
        if self.0.len() < KEPT_MAX && !self.0.iter().any(|kept| kept.held == held) {
            self.0.push(Kept { held, file, asked, sequence, busy: (asked.time, 0) });
        }
    }

    /// The client holds nothing any more.
    pub(crate) fn clear(&mut self) {
        self.0.clear();
    }

    /// The client gives one back in the frame at hand. Returns it if that is late.
    pub(crate) fn end(&mut self, held: Held, at: At) -> Option<Kept> {
        let place = self.0.iter().position(|kept| kept.held == held)?;
        Some(self.0.swap_remove(place)).filter(|kept| kept.lasted(at) >= LATE)
    }

    /// The server answered a request of the client for this file.
    pub(crate) fn answered(&mut self, file: Option<&str>, request: At, reply: At) {
        for kept in self.0.iter_mut().filter(|kept| is_same(kept.file.as_deref(), file) != Some(false)) {
            let (until, lasted) = kept.busy;
            let until = until.max(request.time);
            kept.busy = (until.max(reply.time), lasted + reply.time.saturating_sub(until).max(0));
        }
    }

    /// Those that the server has given up waiting for at `end`.
    pub(crate) fn overdue(&mut self, end: At) -> impl Iterator<Item = Kept> + '_ {
        self.0.drain(..).filter(move |kept| kept.lasted(end) >= GIVES_UP)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: i64 = 1_000_000;
    const HELD: Held = Held::Lease([1; 16]);

    fn at(ms: i64) -> At {
        At { frame: ms as u64, time: ms * MS }
    }

    fn asked() -> KeptList {
        let mut list = KeptList::default();
        list.ask(HELD, Some("f".into()), at(100), None);
        list
    }

    #[test]
    fn who_gives_it_back_at_once_is_not_late() {
        assert!(asked().end(HELD, at(1099)).is_none());
        assert_eq!(asked().end(HELD, at(1100)).map(|kept| kept.lasted(at(1100))), Some(1000 * MS));
        assert!(asked().end(Held::Lease([2; 16]), at(9000)).is_none(), "another one");
        let mut twice = asked();
        twice.ask(HELD, None, at(900), None);
        assert!(twice.end(HELD, at(1100)).is_some() && twice.end(HELD, at(9000)).is_none(), "asked for once more");
    }

    #[test]
    fn what_the_server_takes_is_not_the_clients_time() {
        let lasted = |answers: &[(Option<&str>, i64, i64)]| {
            let mut list = asked();
            answers.iter().for_each(|&(file, request, reply)| list.answered(file, at(request), at(reply)));
            list.end(HELD, at(5100)).map_or(0, |kept| kept.lasted(at(5100)) / MS)
        };
        assert_eq!(lasted(&[]), 5000);
        assert_eq!(lasted(&[(Some("F"), 200, 1200)]), 4000);
        assert_eq!(lasted(&[(Some("f"), 200, 1200), (Some("f"), 300, 1300)]), 3900, "two at once");
        assert_eq!(lasted(&[(Some("f"), 0, 1200)]), 3900, "asked for before");
        assert_eq!(lasted(&[(None, 200, 1200), (Some("g"), 200, 3000)]), 4000, "another file");
        assert_eq!(lasted(&[(Some("f"), 100, 5000)]), 0, "it was the server alone");
    }

    #[test]
    fn what_is_never_given_back_is_told_when_the_server_has_given_up() {
        let lasted = |end: i64| asked().overdue(at(end)).map(|kept| kept.lasted(at(end)) / MS).collect::<Vec<_>>();
        assert!(lasted(25_000).is_empty());
        assert_eq!(lasted(35_100), [35_000]);
    }
}
