//! Protection of the built-in peer's clients from each other: limits, the bytes that all connections hold together,
//! byte-range locks, and the delay after a wrong password.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Limits for clients.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// SMB2 credits that a client may hold: each allows 64 KiB of requested data.
    pub credits: u32,
    /// Bytes that may wait to be sent or be on their way from the client, for each connection.
    pub connection_bytes: usize,
    /// The same for all connections together.
    pub total_bytes: usize,
    /// A connection must have a session within this time, and again when its session has ended.
    pub logon_within: Duration,
    /// A client must receive some of the pending output within this time.
    pub stuck_within: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            credits: 1024,
            connection_bytes: 64 << 20,
            total_bytes: 1 << 30,
            logon_within: Duration::from_secs(30),
            stuck_within: Duration::from_secs(30),
        }
    }
}

/// Until when a connection may be without a session. A client that logs off is not hung up on: it may log on again, and
/// disconnects by itself (cifs.ko takes a server that is faster for one that broke off, and reconnects while it
/// unmounts).
#[derive(Clone, Copy, Debug)]
pub(super) struct LogonDeadline {
    within: Duration,
    at: Instant,
    logged_on: bool,
}

impl LogonDeadline {
    /// Of a connection that begins now.
    pub(super) fn new(now: Instant, within: Duration) -> Self {
        Self { within, at: now + within, logged_on: false }
    }

    /// Records whether there is a session now.
    pub(super) fn note(&mut self, now: Instant, logged_on: bool) {
        if self.logged_on && !logged_on {
            self.at = now + self.within;
        }
        self.logged_on = logged_on;
    }

    /// The time left; `None` if there is a session.
    pub(super) fn left(&self, now: Instant) -> Option<Duration> {
        (!self.logged_on).then(|| self.at.saturating_duration_since(now))
    }
}

/// State shared by all connections to a share.
#[derive(Debug, Default)]
pub(super) struct Shared {
    /// Bytes that all connections hold.
    pub(super) bytes: AtomicUsize,
    pub(super) locks: Locks,
    pub(super) logons: Logons,
    owners: AtomicU64,
}

impl Shared {
    /// A number for an open: its locks are known by it.
    pub(super) fn new_owner(&self) -> u64 {
        self.owners.fetch_add(1, Ordering::Relaxed)
    }
}

/// A lock on bytes of a file, \[MS-FSA\] 2.1.5.8.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Range {
    pub(super) offset: u64,
    pub(super) length: u64,
    pub(super) exclusive: bool,
    pub(super) owner: u64,
}

impl Range {
    /// True if both have a byte in common. Without length, a range has none.
    fn meets(&self, offset: u64, length: u64) -> bool {
        let end = |offset: u64, length: u64| u128::from(offset) + u128::from(length);
        let (here, there) = (end(self.offset, self.length), end(offset, length));
        self.length > 0 && length > 0 && u128::from(offset) < here && u128::from(self.offset) < there
    }
}

/// Maximum number of locks on one file.
const LOCKS_MAX: usize = 4096;

/// Locks by file id.
#[derive(Debug, Default)]
pub(super) struct Locks(Mutex<HashMap<u64, Vec<Range>>>);

impl Locks {
    /// Takes a lock. False if it conflicts with a lock of another open, or if there are too many.
    pub(super) fn lock(&self, file: u64, range: Range) -> bool {
        let mut files = locked(&self.0);
        let ranges = files.entry(file).or_default();
        // an exclusive lock excludes its owner's others as well
        let excluded = |other: &Range| other.meets(range.offset, range.length) && (other.exclusive || range.exclusive);
        if ranges.len() >= LOCKS_MAX || ranges.iter().any(excluded) {
            return false;
        }
        ranges.push(range);
        true
    }

    /// Releases the lock of exactly this range. False if there is none.
    pub(super) fn unlock(&self, file: u64, offset: u64, length: u64, owner: u64) -> bool {
        let mut files = locked(&self.0);
        let Some(ranges) = files.get_mut(&file) else { return false };
        let Some(at) = ranges.iter().position(|r| (r.offset, r.length, r.owner) == (offset, length, owner)) else {
            return false;
        };
        ranges.swap_remove(at);
        if ranges.is_empty() {
            files.remove(&file);
        }
        true
    }

    /// Releases all locks of an open.
    pub(super) fn release(&self, file: u64, owner: u64) {
        let mut files = locked(&self.0);
        if let Some(ranges) = files.get_mut(&file) {
            ranges.retain(|range| range.owner != owner);
            if ranges.is_empty() {
                files.remove(&file);
            }
        }
    }

    /// True if an open may read, or write, these bytes.
    pub(super) fn allow(&self, file: u64, offset: u64, length: u64, owner: u64, write: bool) -> bool {
        let files = locked(&self.0);
        let hinders = |r: &Range| {
            r.meets(offset, length) && if r.owner == owner { write && !r.exclusive } else { write || r.exclusive }
        };
        files.get(&file).is_none_or(|ranges| !ranges.iter().any(hinders))
    }
}

/// Maximum number of addresses that are remembered.
const ADDRESSES_MAX: usize = 4096;
/// After this long without another one, a wrong password is forgotten.
const FORGOTTEN_AFTER: Duration = Duration::from_secs(600);
/// Delay after the first wrong password; each further one doubles it, up to the longest.
const FIRST_DELAY: Duration = Duration::from_millis(250);
const LONGEST_DELAY: Duration = Duration::from_secs(8);

/// Wrong passwords, by address: how many, and until when it has to wait.
#[derive(Debug, Default)]
pub(super) struct Logons(Mutex<HashMap<IpAddr, (u32, Instant)>>);

impl Logons {
    /// Time that an address has to wait before it may try again.
    pub(super) fn wait(&self, address: IpAddr, now: Instant) -> Duration {
        locked(&self.0).get(&address).map_or(Duration::ZERO, |(_, until)| until.saturating_duration_since(now))
    }

    /// Records a wrong password from this address.
    pub(super) fn failed(&self, address: IpAddr, now: Instant) {
        let mut known = locked(&self.0);
        if known.len() >= ADDRESSES_MAX {
            known.retain(|_, (_, until)| *until + FORGOTTEN_AFTER > now);
        }
        if known.len() >= ADDRESSES_MAX && !known.contains_key(&address) {
            return;
        }
        let (count, until) = known.entry(address).or_insert((0, now));
        if *until + FORGOTTEN_AFTER < now {
            *count = 0;
        }
        let delay = FIRST_DELAY.saturating_mul(1 << (*count).min(8)).min(LONGEST_DELAY);
        *count += 1;
        *until = (*until).max(now) + delay;
    }

    /// Records a right password.
    pub(super) fn succeeded(&self, address: IpAddr) {
        locked(&self.0).remove(&address);
    }
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn locks_exclude_each_other_where_they_meet() {
        let locks = Locks::default();
        let range = |offset, length, exclusive, owner| Range { offset, length, exclusive, owner };
        assert!(locks.lock(1, range(10, 10, false, 1)) && locks.lock(1, range(15, 10, false, 2)));
        assert!(
            !locks.lock(1, range(19, 1, true, 3))
                && locks.lock(1, range(25, 5, true, 3))
                && locks.lock(2, range(0, 100, true, 3))
        );
        // shared: all can read, nobody can write; exclusive: only its owner can do both
        assert!(locks.allow(1, 10, 5, 9, false) && !locks.allow(1, 10, 5, 9, true) && !locks.allow(1, 10, 5, 1, true));
        assert!(locks.allow(1, 25, 5, 3, true) && !locks.allow(1, 29, 1, 1, false) && locks.allow(1, 30, 1, 1, true));
        assert!(locks.allow(1, u64::MAX, 5, 1, true) && locks.allow(1, 25, 0, 1, true));
        assert!(!locks.unlock(1, 10, 9, 1) && !locks.unlock(1, 10, 10, 2) && locks.unlock(1, 10, 10, 1));
        locks.release(1, 2);
        locks.release(1, 3);
        locks.release(2, 3);
        assert!(locks.0.lock().unwrap().is_empty());
    }

    #[test]
    fn a_client_that_logs_off_has_as_long_again_as_one_that_begins() {
        let (begun, within) = (Instant::now(), Duration::from_secs(30));
        let at = |seconds| begun + Duration::from_secs(seconds);
        let mut deadline = LogonDeadline::new(begun, within);
        deadline.note(at(10), false);
        assert_eq!(
            (deadline.left(at(10)), deadline.left(at(31))),
            (Some(within - Duration::from_secs(10)), Some(Duration::ZERO))
        );
        deadline.note(at(29), true);
        assert_eq!(deadline.left(at(1000)), None);
        deadline.note(at(1000), false);
        deadline.note(at(1001), false);
        assert_eq!(
            (deadline.left(at(1000)), deadline.left(at(1029)).map(|left| left.as_secs())),
            (Some(within), Some(1))
        );
        assert_eq!(deadline.left(at(1030)), Some(Duration::ZERO));
    }

    #[test]
    fn each_wrong_password_costs_more_and_a_right_one_ends_it() {
        let (logons, address) = (Logons::default(), IpAddr::from([192, 0, 2, 1]));
        let mut now = Instant::now();
        let mut waits = Vec::new();
        for _ in 0..8 {
            logons.failed(address, now);
            let wait = logons.wait(address, now);
            waits.push(wait.as_millis());
            now += wait;
        }
        assert_eq!(waits, [250, 500, 1000, 2000, 4000, 8000, 8000, 8000]);
        // from many connections at the same time: they wait one after another
        logons.failed(address, now);
        logons.failed(address, now);
        assert_eq!(logons.wait(address, now).as_secs(), 16);
        assert_eq!(logons.wait(IpAddr::from([192, 0, 2, 2]), now), Duration::ZERO);
        logons.succeeded(address);
        assert_eq!(logons.wait(address, now), Duration::ZERO);
        for n in 0..10_000u32 {
            logons.failed(IpAddr::from(n.to_be_bytes()), now);
        }
        assert!(logons.0.lock().unwrap().len() <= ADDRESSES_MAX);
    }
}
