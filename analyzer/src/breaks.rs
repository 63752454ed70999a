//! Oplocks and leases that servers of SMB2 ask back: a request for the file waits until the holder has acknowledged that,
//! or has closed the file, and the time is the holder's. \[MS-SMB2\] 3.3.4.6, 3.3.4.7, 3.3.2.1.
//!
//! ```text
//!   client 1        server        client 2
//!      │   CREATE f ──►│               │
//!      │               │── break of f ►│   ┐
//!      │◄─ STATUS_PENDING, or nothing  │   │ the time of client 2, for 35 s at most
//!      │               │◄── OPLOCK_BREAK, or CLOSE
//!      │◄── its reply  │               │
//! ```
//!
//! The notification goes over a connection of the holder, which may be another one than that of the request.

use crate::op::At;
use alloc::collections::VecDeque;
use alloc::sync::Arc;
use core::fmt;
use rdmascope_dissector::frame::Addr;

/// Breaks that are remembered.
pub(crate) const BREAKS_MAX: usize = 32;
/// ns behind a break at which the server has given up waiting for its acknowledgment, whatever its timer is: 35 s of
/// Windows and ksmbd, 30 s of others.
pub(crate) const OVER: i64 = 40_000_000_000;
/// ns behind a break from which on the server may have given up.
pub(crate) const GIVES_UP: i64 = 25_000_000_000;
/// ns within which a server answers a request that waited for a lock or for a lease, once it may.
pub(crate) const RELEASED_WITHIN: i64 = 50_000_000;
/// ns within which a server sends the break that a request makes necessary.
const ASKED_WITHIN: i64 = 1_000_000_000;
/// ns from which on a request is held against breaks of other connections.
pub(crate) const SHARED_LEAST: i64 = 20_000_000;

/// What a client holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Held {
    /// An oplock, by its FileId.
    Oplock([u8; 16]),
    /// A lease, by its key.
    Lease([u8; 16]),
}

impl fmt::Display for Held {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Oplock(_) => "an oplock",
            Self::Lease(_) => "a lease",
        })
    }
}

/// An oplock or lease that a server asked for.
#[derive(Clone, Debug)]
pub(crate) struct Break {
    /// The connection that was told.
    pub connection: u32,
    /// The server's address, if known.
    pub server: Option<Addr>,
    /// What it asked for.
    pub held: Held,
    /// Its file, if known.
    pub file: Option<Arc<str>>,
    /// True if the client has to acknowledge it; false if it may have to.
    pub is_sure: bool,
    /// Time of the notification.
    pub asked: At,
    /// Time of the acknowledgment, of a CLOSE, or at which the holder's connection was closed.
    pub ended: Option<At>,
    /// The number of the exchange that ended it.
    pub by: Option<u64>,
}

/// A request that may have waited for one.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Waiter<'w> {
    /// Its connection.
    pub connection: u32,
    /// The server's address, if known.
    pub server: Option<Addr>,
    /// Its command.
    pub command: &'static str,
    /// Its file, if known.
    pub file: Option<&'w str>,
    /// Its handle, if it is sent with one.
    pub handle: Option<[u8; 16]>,
    /// The key of the lease that it comes with, if any is known.
    pub lease: Option<[u8; 16]>,
    /// Time of the request.
    pub asked: At,
}

/// ns for which a request waited for what clients held.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Waited {
    /// Of its file.
    pub of_it: i64,
    /// The same, and of a file that may be its own.
    pub perhaps: i64,
    /// The number of the exchange that ended the first of the two.
    pub behind: Option<u64>,
}

/// True if two names of files are the same, as far as they are known. Case makes no difference.
pub(crate) fn is_same(one: Option<&str>, other: Option<&str>) -> Option<bool> {
    one.zip(other).map(|(one, other)| one.eq_ignore_ascii_case(other))
}

/// True if the name of a folder is that of one above a file.
fn is_above(folder: &str, file: &str) -> bool {
    let (folder, file) = (folder.as_bytes(), file.as_bytes());
    let is_start = file.get(..folder.len()).is_some_and(|start| start.eq_ignore_ascii_case(folder));
    is_start && file.get(folder.len()) == Some(&b'\\')
}

impl Break {
    /// True if a request is for the file of the break, `None` if it may be.
    fn concerns(&self, waiter: &Waiter<'_>) -> Option<bool> {
        let own = match self.held {
            Held::Oplock(handle) => waiter.handle == Some(handle),
            Held::Lease(key) => waiter.lease == Some(key),
        };
        let is_known = waiter.server.is_some() && waiter.server == self.server || waiter.connection == self.connection;
        // what is sent under the oplock or lease itself does not wait for it
        if own || !is_known {
            return Some(false);
        }
        match is_same(self.file.as_deref(), waiter.file) {
            // others go on meanwhile, unless it is about data that the holder may have cached
            Some(true) => Some(true).filter(|_| self.is_sure && matches!(waiter.command, "CREATE" | "SET_INFO")),
            // files in a folder must be closed before its name can be changed
            Some(false) if waiter.command == "SET_INFO" => {
                let above = self.file.as_deref().zip(waiter.file).is_some_and(|(file, folder)| is_above(folder, file));
                Some(false).filter(|_| !above)
            }
            Some(false) => Some(false),
            // the holder writes what it has cached
            None if waiter.connection == self.connection && waiter.command != "CREATE" => Some(false),
            None => None,
        }
    }
}

/// The breaks of all connections.
#[derive(Clone, Debug, Default)]
pub(crate) struct Breaks {
    list: VecDeque<Break>,
    /// Time in ns from which on no server waits for any of them.
    until: Option<i64>,
}

impl Breaks {
    /// True if a request may have waited for one of them.
    #[inline]
    pub(crate) fn may_hold_up(&self, asked: At) -> bool {
        self.until.is_some_and(|until| asked.time < until)
    }

    /// A server asks for something.
    #[cold]
    pub(crate) fn ask(&mut self, new: Break) {
        let is_open = |old: &&mut Break| old.held == new.held && old.server == new.server && old.ended.is_none();
        if let Some(old) = self.list.iter_mut().find(is_open) {
            if new.asked.since(old.asked) < OVER {
                // it is told on another channel, or once more
                return;
            }
            old.ended = Some(new.asked);
        }
        if self.list.len() >= BREAKS_MAX {
            self.list.pop_front();
        }
        self.until = self.until.max(Some(new.asked.time.saturating_add(OVER)));
        self.list.push_back(new);
    }

    /// The break that a request ends: it acknowledges it, or closes the handle.
    pub(crate) fn end(
        &mut self,
        connection: u32,
        server: Option<Addr>,
        held: Held,
        (at, exchange): (At, u64),
    ) -> Option<&Break> {
        let is_it = |b: &&mut Break| {
            let is_its = b.connection == connection || server.is_some() && b.server == server;
            b.held == held && is_its && b.ended.is_none()
        };
        let ended = self.list.iter_mut().rev().find(is_it)?;
        (ended.ended, ended.by) = (Some(at), Some(exchange));
        Some(ended)
    }

    /// The connection of a holder was closed: it holds nothing any more (\[MS-SMB2\] 3.3.7.1).
    pub(crate) fn left(&mut self, connection: u32, at: At) {
        for b in self.list.iter_mut().filter(|b| b.connection == connection && b.ended.is_none()) {
            b.ended = Some(at);
        }
    }

    /// Time for which a server had to wait for holders between a request and its reply.
    pub(crate) fn waited(&mut self, waiter: &Waiter<'_>, reply: At) -> Waited {
        let mut waited = Waited::default();
        let is_long = reply.since(waiter.asked) >= SHARED_LEAST;
        for b in self.list.iter_mut().filter(|b| is_long || b.connection == waiter.connection) {
            let ended = b.ended;
            let lasted = ended.unwrap_or(reply).min(reply).since(b.asked.max(waiter.asked));
            // what is answered while the holder still has all of it did not wait, unless the server gave up
            let is_over = ended.is_some_and(|ended| ended <= reply);
            let gave_up = reply.since(b.asked) >= GIVES_UP && lasted >= ASKED_WITHIN;
            if lasted <= 0 || !is_over && !gave_up {
                continue;
            }
            let is_prompt = !is_over || ended.is_some_and(|ended| reply.since(ended) <= RELEASED_WITHIN);
            let is_near = b.asked.since(waiter.asked) <= ASKED_WITHIN;
            let concerns = b.concerns(waiter);
            if concerns == Some(true) && !is_over {
                // who asks from now on does not wait for it
                b.ended = Some(reply);
            }
            match concerns {
                Some(true) if lasted > waited.of_it => {
                    (waited.of_it, waited.behind) = (lasted, b.by.filter(|_| is_over));
                }
                None if is_prompt && is_near => waited.perhaps = waited.perhaps.max(lasted),
                _ => {}
            }
        }
        waited.perhaps = waited.perhaps.max(waited.of_it);
        waited
    }
}

/// What a request gives back that others may wait for.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Freed {
    /// All that its handle had.
    Handle,
    /// A range of the file, from its first byte to the one behind its last.
    Range(u64, u64),
    /// An oplock or a lease, which its server was seen to ask for then.
    Cache(Option<At>),
}

impl Freed {
    /// True if a request that was sent at `asked` may go on, if its file is the same, or `None` if that is not known, and
    /// if it waits for a lock of this range.
    pub(crate) fn lets(&self, is_same: Option<bool>, asked: At, range: Option<(u64, u64)>) -> bool {
        match *self {
            Self::Handle => is_same == Some(true),
            Self::Range(from, to) => is_same == Some(true) && range.is_none_or(|(a, b)| a < to && from < b),
            Self::Cache(broken) => is_same
                .unwrap_or_else(|| broken.is_some_and(|broken| broken > asked && broken.since(asked) <= ASKED_WITHIN)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: i64 = 1_000_000;
    const SERVER: Option<Addr> = Some(Addr::V4([192, 0, 2, 1]));

    fn at(ms: i64) -> At {
        At { frame: ms as u64, time: ms * MS }
    }

    fn asked(file: Option<&str>, is_sure: bool) -> Break {
        let file = file.map(Arc::from);
        Break {
            connection: 2,
            server: SERVER,
            held: Held::Oplock([2; 16]),
            file,
            is_sure,
            asked: at(10),
            ended: None,
            by: None,
        }
    }

    fn waiter(file: Option<&str>) -> Waiter<'_> {
        Waiter { connection: 1, server: SERVER, command: "CREATE", file, handle: None, lease: None, asked: at(5) }
    }

    /// Time in ms for which a request waited whose reply came then, if the break was ended at that time.
    fn waited(b: Break, ended: Option<i64>, waiter: Waiter<'_>, reply: i64) -> (i64, i64, Option<u64>) {
        let mut breaks = Breaks::default();
        let (connection, held) = (b.connection, b.held);
        breaks.ask(b);
        assert!(breaks.may_hold_up(waiter.asked));
        if let Some(ended) = ended {
            assert!(breaks.end(connection, None, held, (at(ended), 77)).is_some());
        }
        let Waited { of_it, perhaps, behind } = breaks.waited(&waiter, at(reply));
        (of_it / MS, perhaps / MS, behind)
    }

    #[test]
    fn a_request_for_the_file_waits_for_its_holder() {
        let (b, w) = (|| asked(Some("f"), true), || waiter(Some("F")));
        assert_eq!(waited(b(), Some(900), w(), 910), (890, 890, Some(77)));
        assert_eq!(waited(b(), Some(900), w(), 400), (0, 0, None), "it was answered before");
        assert_eq!(waited(b(), None, w(), 20_000), (0, 0, None), "nothing shows that it waited");
        assert_eq!(waited(b(), None, w(), 35_010), (35_000, 35_000, None), "the server gave up");
        assert_eq!(waited(b(), Some(900), waiter(Some("g")), 910), (0, 0, None));
        assert_eq!(waited(b(), Some(900), Waiter { server: None, ..w() }, 910), (0, 0, None), "another server");
        let (held, short) = (Waiter { handle: Some([2; 16]), ..w() }, Waiter { asked: at(895), ..w() });
        assert_eq!(waited(b(), Some(900), held, 910), (0, 0, None), "the holder itself");
        assert_eq!(waited(b(), Some(900), short, 910), (0, 0, None), "too short to be compared across connections");
        assert_eq!(waited(b(), Some(900), Waiter { connection: 2, ..short }, 910), (5, 5, Some(77)));
    }

    #[test]
    fn a_holder_that_leaves_holds_nothing() {
        let mut breaks = Breaks::default();
        breaks.ask(asked(Some("f"), true));
        breaks.left(3, at(500));
        breaks.left(2, at(900));
        breaks.left(2, at(950));
        let left = breaks.waited(&waiter(Some("f")), at(960));
        assert_eq!(left, Waited { of_it: 890 * MS, perhaps: 890 * MS, behind: None });
    }

    #[test]
    fn a_server_that_gave_up_waits_no_more() {
        let mut breaks = Breaks::default();
        breaks.ask(asked(Some("f"), true));
        assert_eq!(breaks.waited(&waiter(Some("f")), at(35_010)).of_it / MS, 35_000);
        let next = Waiter { asked: at(35_100), ..waiter(Some("f")) };
        assert_eq!(breaks.waited(&next, at(38_600)), Waited::default());
    }

    /// A WRITE behind a break of what was read ahead goes on at once, one behind a break of what was written does not.
    #[test]
    fn what_moves_data_may_wait_or_not() {
        let write = Waiter { command: "WRITE", ..waiter(Some("f")) };
        assert_eq!(waited(asked(Some("f"), true), Some(900), write, 910), (0, 890, None));
    }

    #[test]
    fn a_file_that_may_be_another_is_in_doubt() {
        assert_eq!(waited(asked(None, true), Some(900), waiter(Some("f")), 910), (0, 890, None));
        assert_eq!(waited(asked(Some("f"), false), Some(900), waiter(Some("f")), 910), (0, 890, None));
        assert_eq!(waited(asked(None, true), Some(900), waiter(Some("f")), 2000), (0, 0, None), "not soon after it");
        let late = Break { asked: at(3000), ..asked(None, true) };
        assert_eq!(waited(late, Some(3100), waiter(Some("f")), 3110), (0, 0, None), "not because of it");
        let own = Waiter { connection: 2, command: "WRITE", ..waiter(None) };
        assert_eq!(waited(asked(None, true), Some(900), own, 910), (0, 0, None), "what the holder had cached");
    }

    #[test]
    fn the_name_of_a_folder_is_changed_when_its_files_are_closed() {
        let renamed = |folder| Waiter { command: "SET_INFO", ..waiter(Some(folder)) };
        let of = |folder| waited(asked(Some("a\\b\\f"), true), Some(900), renamed(folder), 910);
        assert_eq!(["a", "A\\b", "a\\bb", "b", "a\\b\\f"].map(|folder| of(folder).1), [890, 890, 0, 0, 890]);
    }

    #[test]
    fn breaks_are_forgotten_and_told_once() {
        let mut breaks = Breaks::default();
        assert!(!breaks.may_hold_up(at(0)));
        breaks.ask(asked(None, true));
        breaks.ask(asked(None, true));
        assert_eq!(breaks.list.len(), 1);
        assert!(breaks.may_hold_up(at(40_000)) && !breaks.may_hold_up(at(41_000)));
        breaks.ask(Break { asked: at(50_000), ..asked(None, true) });
        assert!(breaks.list.len() == 2 && breaks.may_hold_up(at(60_000)), "once more, when the server had given up");
        for key in 0..100 {
            breaks.ask(Break { held: Held::Lease([key; 16]), ..asked(None, true) });
        }
        assert_eq!(breaks.list.len(), BREAKS_MAX);
        assert!(breaks.end(1, None, Held::Lease([99; 16]), (at(20), 1)).is_none(), "another connection");
        assert!(breaks.end(1, SERVER, Held::Lease([99; 16]), (at(20), 1)).is_some());
        assert!(breaks.end(1, SERVER, Held::Lease([99; 16]), (at(20), 1)).is_none());
    }

    #[test]
    fn what_is_given_back_lets_through_who_waits_for_it() {
        let lets = |freed: Freed, same, range| freed.lets(same, at(100), range);
        assert_eq!([Some(true), Some(false), None].map(|same| lets(Freed::Handle, same, None)), [true, false, false]);
        let range = |range| lets(Freed::Range(10, 20), Some(true), range);
        assert_eq!(
            [None, Some((0, 10)), Some((0, 11)), Some((19, 99)), Some((20, 99))].map(range),
            [true, false, true, true, false]
        );
        let of_another = |broken: Option<i64>| lets(Freed::Cache(broken.map(at)), None, None);
        assert_eq!([None, Some(99), Some(101), Some(5000)].map(of_another), [false, false, true, false]);
        let cache = Freed::Cache(Some(at(5000)));
        assert_eq!([Some(true), Some(false)].map(|same| lets(cache, same, None)), [true, false]);
    }
}
