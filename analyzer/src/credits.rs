//! The credits of SMB2: the message ids that a client may use, \[MS-SMB2\] 3.2.4.1.2, 3.2.4.1.5, 3.2.4.1.6, 3.3.1.1 and
//! 3.3.5.2.3. One rulebook for both ends and for an observer: a client gets the next id from it, a server the
//! permission to serve a request, the analyzer the rule that was broken.
//!
//! A connection begins with one credit, for NEGOTIATE. A request takes as many ids as its CreditCharge says, beginning
//! with its MessageId; a reply grants new ones behind the last that were granted. CANCEL takes none.

use alloc::collections::VecDeque;
use core::fmt;
use hashbrown::HashMap;
use rdmascope_dissector::wire::smb2::Command;

/// Bytes that one credit pays for.
pub const BYTES_PER_CREDIT: u32 = 65_536;

/// Ids between the first that was not used and the last that was granted, at most: 16 bits of credits are granted at a
/// time, and no server gives away more than that.
const WINDOW_MAX: u64 = 131_072;

/// Credits that a message with `bytes` bytes of payload takes, requested or answered, \[MS-SMB2\] 3.1.5.2.
pub const fn charge_of(bytes: u32) -> u16 {
    if bytes == 0 { 1 } else { ((bytes - 1) / BYTES_PER_CREDIT + 1) as u16 }
}

/// Bytes of payload that a request sends or asks for, whichever is more, \[MS-SMB2\] 3.1.5.2 and 3.3.5.2.5; 0 for
/// commands that are not charged by size. `pdu` begins with the header. What the capture cut off counts as 0.
pub fn payload_of(command: Command, pdu: &[u8]) -> u32 {
    let field = |at: usize| pdu.get(at..).and_then(|b| b.first_chunk::<4>()).map_or(0, |b| u32::from_le_bytes(*b));
    match command {
        Command::READ | Command::SET_INFO | Command::CHANGE_NOTIFY => field(68),
        // without a channel RemainingBytes is a hint about requests to come
        Command::WRITE if field(96) == 0 => field(68),
        Command::WRITE => field(100),
        Command::QUERY_INFO => field(68).max(field(76)),
        Command::QUERY_DIRECTORY => field(92),
        Command::IOCTL => field(92).saturating_add(field(104)).max(field(96).saturating_add(field(108))),
        _ => 0,
    }
}

/// A violation of the credit rules by a request or a reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// A request has an id that was used before (3.3.5.2.3).
    Reused {
        /// The first of its ids that was.
        id: u64,
    },
    /// A request has an id that was not granted (3.3.5.2.3).
    NotGranted {
        /// The first of its ids that was not.
        id: u64,
        /// The first that is not granted.
        end: u64,
    },
    /// A reply is to no request.
    NoRequest,
    /// A reply is to a request that was answered.
    Again,
    /// A reply is to another command than the request was.
    OtherCommand {
        /// The command of the request.
        asked: u16,
    },
    /// More credits were granted than ids can be distinguished.
    TooMany,
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Reused { id } => write!(f, "MessageId {id} was used before"),
            Self::NotGranted { id, end } => write!(f, "MessageId {id} was not granted: ids from {end} on are not"),
            Self::NoRequest => f.write_str("the reply has no request"),
            Self::Again => f.write_str("the request was already answered"),
            Self::OtherCommand { asked } => write!(f, "the request has command {asked}"),
            Self::TooMany => f.write_str("more credits were granted than a client can hold"),
        }
    }
}

/// The ids of one connection, from its beginning on.
#[derive(Clone, Debug)]
pub struct Ledger {
    /// The lowest id that was not used.
    base: u64,
    /// Ids from `base` on that were used; the first one was not, if there is one.
    used: VecDeque<bool>,
    /// Number of ids in `used` that were used.
    used_count: u64,
    /// The first id that is not granted.
    end: u64,
    /// Ids below `end` that were not granted: the next grants are for them.
    debt: u64,
    /// Commands of requests that were not answered.
    open: HashMap<u64, u16>,
}

impl Default for Ledger {
    fn default() -> Self {
        Self::new()
    }
}

impl Ledger {
    /// A connection that begins.
    pub fn new() -> Self {
        Self { base: 0, used: VecDeque::new(), used_count: 0, end: 1, debt: 0, open: HashMap::new() }
    }

    /// Credits that the client holds.
    pub fn held(&self) -> u32 {
        u32::try_from(self.end - self.base - self.used_count).unwrap_or(u32::MAX)
    }

    /// Requests that were not answered.
    pub fn open(&self) -> usize {
        self.open.len()
    }

    /// The id of the next request of a client that uses its ids in order; `None` if it holds too few credits.
    pub fn next(&self, charge: u16) -> Option<u64> {
        let first = self.base + self.used.len() as u64;
        (first + u64::from(charge.max(1)) <= self.end).then_some(first)
    }

    /// A request with this MessageId and CreditCharge (0 counts as 1). If it is a fault, nothing of it is taken.
    ///
    /// # Errors
    /// The rule that it breaks.
    pub fn request(&mut self, id: u64, charge: u16, command: u16) -> Result<(), Fault> {
        let count = u64::from(charge.max(1));
        let behind = id.checked_add(count).ok_or(Fault::NotGranted { id, end: self.end })?;
        if id < self.base {
            return Err(Fault::Reused { id });
        }
        if behind > self.end {
            return Err(Fault::NotGranted { id: id.max(self.end), end: self.end });
        }
        let start = (id - self.base) as usize;
        if let Some(at) = (start..start + count as usize).find(|at| self.used.get(*at) == Some(&true)) {
            return Err(Fault::Reused { id: self.base + at as u64 });
        }
        self.take(id, behind);
        self.open.insert(id, command);
        Ok(())
    }

    /// Ids from `id` on to `behind` are used. Both lie in the window.
    fn take(&mut self, id: u64, behind: u64) {
        let (start, room) = ((id.max(self.base) - self.base) as usize, behind.saturating_sub(self.base) as usize);
        if self.used.len() < room {
            self.used.resize(room, false);
        }
        for used in self.used.range_mut(start.min(room)..room) {
            self.used_count += u64::from(!*used);
            *used = true;
        }
        while self.used.front() == Some(&true) {
            self.used.pop_front();
            self.used_count -= 1;
            self.base += 1;
        }
    }

    /// A request that is a fault was sent all the same: for an observer. The ids that it takes without a grant are
    /// owed: the next grants are for them.
    pub fn request_anyway(&mut self, id: u64, charge: u16, command: u16) {
        let behind = id.saturating_add(charge.max(1).into());
        if behind.saturating_sub(self.base) <= WINDOW_MAX {
            self.debt += behind.saturating_sub(self.end);
            self.end = self.end.max(behind);
            self.take(id, behind);
        }
        self.open.insert(id, command);
    }

    /// Ids that were used and never granted.
    pub fn debt(&self) -> u64 {
        self.debt
    }

    /// A reply with this MessageId and `granted` credits; an `interim` one (STATUS_PENDING) leaves the request open.
    /// Its grant counts in any case.
    ///
    /// # Errors
    /// The rule that it breaks.
    pub fn reply(&mut self, id: u64, granted: u16, command: u16, interim: bool) -> Result<(), Fault> {
        let owed = self.debt.min(granted.into());
        self.debt -= owed;
        let end = self.end + u64::from(granted) - owed;
        let fits = end - self.base <= WINDOW_MAX;
        self.end = if fits { end } else { self.base + WINDOW_MAX };
        let asked = if interim { self.open.get(&id).copied() } else { self.open.remove(&id) };
        match asked {
            None if id < self.base || self.used.get((id - self.base) as usize) == Some(&true) => Err(Fault::Again),
            None => Err(Fault::NoRequest),
            Some(asked) if asked != command => Err(Fault::OtherCommand { asked }),
            Some(_) if !fits => Err(Fault::TooMany),
            Some(_) => Ok(()),
        }
    }

    /// The request with this MessageId will not be answered: it was canceled, or the requester has given up.
    pub fn forget(&mut self, id: u64) {
        self.open.remove(&id);
    }

    /// Credits that a server grants with its reply to a request that asked for `asked`, if the client is to hold `max`
    /// at most: at least one if it holds none.
    pub fn grant(&self, asked: u16, charge: u16, max: u32) -> u16 {
        let room = max.saturating_sub(self.held());
        let least = u32::from(self.held() == 0);
        u32::from(asked.max(charge).max(1)).min(room).max(least) as u16
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn ids_are_used_once_and_only_where_granted() {
        let mut ledger = Ledger::new();
        assert_eq!((ledger.held(), ledger.next(1), ledger.next(2)), (1, Some(0), None));
        ledger.request(0, 0, 0).unwrap();
        assert_eq!(ledger.request(1, 1, 1), Err(Fault::NotGranted { id: 1, end: 1 }));
        ledger.reply(0, 10, 0, false).unwrap();
        assert_eq!(ledger.held(), 10);
        // not in order, which a client may
        ledger.request(5, 2, 8).unwrap();
        ledger.request(1, 1, 8).unwrap();
        assert_eq!((ledger.held(), ledger.next(1)), (7, Some(7)));
        for (id, charge, wrong) in [(0, 1, 0), (1, 1, 1), (5, 1, 5), (4, 2, 5), (6, 1, 6)] {
            assert_eq!(ledger.request(id, charge, 8), Err(Fault::Reused { id: wrong }), "{id}");
        }
        assert_eq!(ledger.request(10, 2, 8), Err(Fault::NotGranted { id: 11, end: 11 }));
        assert_eq!(ledger.request(u64::MAX, 1, 8), Err(Fault::NotGranted { id: u64::MAX, end: 11 }));
        ledger.request(2, 3, 8).unwrap();
        assert_eq!((ledger.held(), ledger.next(4), ledger.next(5)), (4, Some(7), None));
    }

    #[test]
    fn a_reply_answers_one_request_of_its_command() {
        let mut ledger = Ledger::new();
        ledger.request(0, 1, 3).unwrap();
        ledger.reply(0, 5, 3, true).unwrap();
        ledger.reply(0, 0, 3, false).unwrap();
        assert_eq!(ledger.reply(0, 1, 3, false), Err(Fault::Again));
        assert_eq!(ledger.reply(3, 0, 3, false), Err(Fault::NoRequest));
        assert_eq!(ledger.held(), 6, "what it grants counts all the same");
        ledger.request(1, 1, 3).unwrap();
        assert_eq!(ledger.reply(1, 0, 4, false), Err(Fault::OtherCommand { asked: 3 }));
    }

    #[test]
    fn what_was_taken_without_a_grant_is_owed() {
        let mut ledger = Ledger::new();
        ledger.request(0, 1, 0).unwrap();
        assert!(ledger.request(1, 2, 8).is_err());
        ledger.request_anyway(1, 2, 8);
        assert_eq!((ledger.held(), ledger.debt(), ledger.open()), (0, 2, 2));
        ledger.reply(0, 3, 0, false).unwrap();
        assert_eq!((ledger.held(), ledger.debt(), ledger.next(1)), (1, 0, Some(3)));
        ledger.reply(1, 0, 8, false).unwrap();
        // far out, and an id that was used before
        ledger.request_anyway(u64::MAX, 1, 8);
        ledger.request_anyway(0, 1, 8);
        assert_eq!((ledger.held(), ledger.debt(), ledger.open()), (1, 0, 2));
    }

    #[test]
    fn the_payload_is_what_a_command_sends_or_asks_for() {
        let mut pdu = [0; 112];
        pdu[68..72].copy_from_slice(&70_000u32.to_le_bytes());
        pdu[100..104].copy_from_slice(&9u32.to_le_bytes());
        for (command, bytes) in
            [(Command::READ, 70_000), (Command::WRITE, 70_000), (Command::QUERY_INFO, 70_000), (Command::ECHO, 0)]
        {
            assert_eq!(payload_of(command, &pdu), bytes, "{command}");
        }
        pdu[96] = 1;
        assert_eq!(
            (payload_of(Command::WRITE, &pdu), payload_of(Command::IOCTL, &pdu), payload_of(Command::READ, &pdu[..70])),
            (9, 1, 0)
        );
    }

    #[test]
    fn a_server_grants_what_is_asked_for_within_its_limit() {
        let mut ledger = Ledger::new();
        ledger.request(0, 1, 0).unwrap();
        assert_eq!((ledger.grant(100, 1, 50), ledger.grant(0, 1, 50), ledger.grant(0, 1, 0)), (50, 1, 1));
        ledger.reply(0, 50, 0, false).unwrap();
        assert_eq!(ledger.grant(100, 1, 50), 0);
        assert_eq!((charge_of(0), charge_of(65_536), charge_of(65_537), charge_of(8 << 20)), (1, 1, 2, 128));
    }

    proptest! {
        /// However ids come, the credits held are those granted less those taken, and memory is bounded by the window.
        #[test]
        fn credits_are_neither_lost_nor_made(steps in prop::collection::vec((any::<bool>(), 0u64..300, 0u16..5), 0..400)) {
            let mut ledger = Ledger::new();
            let (mut granted, mut taken) = (1u64, 0u64);
            for (request, id, n) in steps {
                if request {
                    if ledger.request(id, n, 0).is_ok() {
                        taken += u64::from(n.max(1));
                    }
                } else {
                    let _ = ledger.reply(id, n, 0, false);
                    granted += u64::from(n);
                }
                prop_assert_eq!(u64::from(ledger.held()), granted - taken);
                prop_assert!(ledger.used.len() as u64 <= WINDOW_MAX && ledger.used.front() != Some(&true));
            }
        }

        #[test]
        fn no_server_fills_our_memory(grants in prop::collection::vec(any::<u16>(), 0..50)) {
            let mut ledger = Ledger::new();
            for granted in grants {
                let _ = ledger.reply(0, granted, 0, false);
                prop_assert!(u64::from(ledger.held()) <= WINDOW_MAX);
            }
        }
    }
}
