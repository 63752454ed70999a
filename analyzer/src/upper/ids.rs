//! The message ids and credits of one SMB2 connection as an observer sees them: the ledger of [`crate::credits`], fed
//! with the captured messages, and patient where the capture may have swapped a request and a reply. \[MS-SMB2\]
//! 3.2.4.1.2, 3.2.4.1.6, 3.3.4.1.2, 3.3.5.2.3.

use super::EARLY;
use crate::credits::{Fault, Ledger};
use crate::op::At;
use alloc::vec::Vec;
use rdmascope_dissector::wire::smb2::{Command, Header};

/// ns within which a capture may show a grant behind the request that uses it.
const SWAPPED: i64 = 200_000;
/// Replies without a request that wait for it at most.
const EARLY_MAX: usize = 8;
/// Replies that are remembered, to tell the same one twice.
const ANSWERED_MAX: usize = 64;

/// A violation of the rules of message ids and credits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum MessageIdViolation {
    /// The client used an id twice.
    Reused {
        /// The first of the request's ids that was.
        id: u64,
    },
    /// The client sent a request for which it held too few credits.
    Overdrawn {
        /// The command of the request.
        command: Command,
        /// Credits that it takes.
        charge: u16,
        /// Credits that were held.
        held: u32,
    },
    /// The client used an id that was not granted, though it held credits.
    Outside {
        /// The command of the request.
        command: Command,
        /// The first of the request's ids that was not granted.
        id: u64,
        /// The first that is not.
        end: u64,
    },
    /// The server answered a request that was not sent.
    Unasked {
        /// The command of the reply.
        command: Command,
        /// Its id.
        id: u64,
    },
    /// The server answered a request twice.
    Again {
        /// The command of the reply.
        command: Command,
        /// Its id.
        id: u64,
        /// Time of its first answer.
        first: At,
    },
    /// The server left the client without a credit and without a request whose reply could bring one.
    Dry,
}

/// A reply that came before its request, or has none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Early {
    /// Its id.
    pub id: u64,
    /// Its command.
    pub command: Command,
    /// Its status.
    pub status: u32,
    /// Time and frame of its capture.
    pub at: At,
}

/// Ids and credits of one connection.
#[derive(Clone, Debug, Default)]
pub(crate) struct Ids {
    /// `None` if the beginning, or anything since, was not seen.
    ledger: Option<Ledger>,
    /// A request beyond the grants, until it is known that no grant for it was captured a little later.
    overdrawn: Option<(At, MessageIdViolation)>,
    early: Vec<Early>,
    /// The last replies, and the index of the next one.
    answered: Vec<(u64, At)>,
    next: usize,
    /// The highest id that was ever among them, and one more: ids mostly grow, and an id not below it was not answered.
    answered_end: u64,
    is_dry: bool,
}

impl Ids {
    /// Credits that the client holds, if known.
    pub(crate) fn held(&self) -> Option<i64> {
        self.ledger.as_ref().map(|ledger| ledger.held().into())
    }

    /// The connection begins with the next request.
    pub(crate) fn begin(&mut self) {
        *self = Self { ledger: Some(Ledger::new()), ..Self::default() };
    }

    /// True if the connection has begun, and all of it was seen.
    pub(crate) fn is_known(&self) -> bool {
        self.ledger.is_some()
    }

    /// Messages were missed: nothing is known any more.
    pub(crate) fn lost(&mut self) {
        self.ledger = None;
        self.overdrawn = None;
        self.early.clear();
    }

    /// A request other than CANCEL. `emit` is given violations of it or of earlier messages. Returns the reply that was
    /// captured before it, if there is one.
    pub(crate) fn request(
        &mut self,
        header: &Header,
        at: At,
        open_max: usize,
        mut emit: impl FnMut(At, MessageIdViolation),
    ) -> Option<Early> {
        let (id, charge, command) = (header.message_id, header.credit_charge, header.command);
        // no reply is sent before its request: the capture has them in the wrong order
        let early = self.early.iter().position(|e| e.id == id).map(|index| self.early.remove(index));
        self.early.retain(|e| {
            let waits = at.since(e.at) <= EARLY;
            if !waits {
                emit(e.at, MessageIdViolation::Unasked { command: e.command, id: e.id });
            }
            waits
        });
        let ledger = self.ledger.as_mut()?;
        let held = ledger.held();
        if let Err(fault) = ledger.request(id, charge, command.0) {
            ledger.request_anyway(id, charge, command.0);
            match fault {
                Fault::NotGranted { id, end } => {
                    let is_short = u32::from(charge.max(1)) > held;
                    let wrong = if is_short {
                        MessageIdViolation::Overdrawn { command, charge, held }
                    } else {
                        MessageIdViolation::Outside { command, id, end }
                    };
                    match self.overdrawn {
                        None => self.overdrawn = Some((at, wrong)),
                        Some(_) => emit(at, wrong),
                    }
                }
                Fault::Reused { id } => emit(at, MessageIdViolation::Reused { id }),
                _ => {}
            }
        }
        if early.is_some() {
            ledger.forget(id);
        }
        if ledger.open() > open_max {
            self.lost();
        }
        early
    }

    /// True if a reply with this id went by lately.
    pub(crate) fn is_answered(&self, id: u64) -> bool {
        id < self.answered_end && self.answered.iter().any(|(answered, _)| *answered == id)
    }

    /// A reply; notifications of the server are none.
    pub(crate) fn reply(&mut self, header: &Header, at: At, mut emit: impl FnMut(At, MessageIdViolation)) {
        let (id, command) = (header.message_id, header.command);
        let known = if id < self.answered_end { self.answered.as_slice() } else { &[] };
        let before = known.iter().find(|(answered, _)| *answered == id).map(|(_, first)| *first);
        if !header.is_interim() && before.is_none() {
            self.answered_end = self.answered_end.max(id.saturating_add(1));
            match self.answered.get_mut(self.next) {
                Some(slot) => *slot = (id, at),
                None => self.answered.push((id, at)),
            }
            self.next = (self.next + 1) % ANSWERED_MAX;
        }
        let Some(ledger) = self.ledger.as_mut() else { return };
        let result = ledger.reply(id, header.credits, command.0, header.is_interim());
        if let Some((then, wrong)) = self.overdrawn.take()
            // the very next frame, or one soon after it, may have been before it on the wire
            && (ledger.debt() > 0 || (at.since(then) > SWAPPED && at.frame > then.frame + 1))
        {
            emit(then, wrong);
        }
        match (result, before) {
            (Err(Fault::Again), Some(first)) => emit(at, MessageIdViolation::Again { command, id, first }),
            (Err(Fault::NoRequest), _) => {
                if self.early.len() >= EARLY_MAX {
                    let oldest = self.early.remove(0);
                    emit(oldest.at, MessageIdViolation::Unasked { command: oldest.command, id: oldest.id });
                }
                self.early.push(Early { id, command, status: header.status().0, at });
            }
            _ => {}
        }
        let is_dry = ledger.held() == 0 && ledger.open() == 0 && ledger.debt() == 0 && self.early.is_empty();
        if is_dry && !self.is_dry {
            emit(at, MessageIdViolation::Dry);
        }
        self.is_dry = is_dry;
    }

    /// The connection ends: nothing comes any more that would explain the violations that wait.
    pub(crate) fn finish(&mut self, mut emit: impl FnMut(At, MessageIdViolation)) {
        if let Some((at, wrong)) = self.overdrawn.take() {
            emit(at, wrong);
        }
        for early in self.early.drain(..) {
            emit(early.at, MessageIdViolation::Unasked { command: early.command, id: early.id });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;
    use rdmascope_dissector::wire::smb2::header::flags;

    fn at(us: i64) -> At {
        At { frame: us as u64 + 1, time: us * 1000 }
    }

    fn request(ids: &mut Ids, us: i64, id: u64) -> (Vec<MessageIdViolation>, bool) {
        let mut told = Vec::new();
        let header = Header { credit_charge: 1, ..Header::request(Command::ECHO, id) };
        let early = ids.request(&header, at(us), 100, |_, wrong| told.push(wrong));
        (told, early.is_some())
    }

    fn reply(ids: &mut Ids, us: i64, id: u64, credits: u16) -> Vec<MessageIdViolation> {
        let mut told = Vec::new();
        let header = Header { credits, flags: flags::RESPONSE, ..Header::request(Command::ECHO, id) };
        ids.reply(&header, at(us), |_, wrong| told.push(wrong));
        told
    }

    fn begun() -> Ids {
        let mut ids = Ids::default();
        ids.begin();
        assert_eq!(request(&mut ids, 0, 0), (vec![], false));
        assert_eq!(reply(&mut ids, 10, 0, 2), []);
        ids
    }

    #[test]
    fn a_grant_that_the_capture_shows_a_little_late_is_no_fault() {
        for (later, told) in [(50, 0), (5_000, 1)] {
            let mut ids = begun();
            for id in 1..4 {
                assert_eq!(request(&mut ids, 1000, id), (vec![], false), "{id}");
            }
            assert_eq!(reply(&mut ids, 1000 + later, 1, 1).len(), told);
            assert_eq!(ids.held(), Some(0));
        }
        let mut ids = begun();
        (1..4).for_each(|id| drop(request(&mut ids, 1000, id)));
        let overdrawn = MessageIdViolation::Overdrawn { command: Command::ECHO, charge: 1, held: 0 };
        assert_eq!(reply(&mut ids, 1010, 1, 0), [overdrawn], "nothing was granted");
    }

    #[test]
    fn a_reply_that_the_capture_shows_before_its_request_answers_it() {
        let mut ids = begun();
        assert_eq!(reply(&mut ids, 1000, 1, 1), []);
        assert_eq!(request(&mut ids, 1050, 1), (vec![], true));
        assert_eq!(reply(&mut ids, 2000, 2, 1), []);
        assert_eq!(request(&mut ids, 30_000, 3).0, [MessageIdViolation::Unasked { command: Command::ECHO, id: 2 }]);
    }

    #[test]
    fn ids_and_replies_come_once() {
        let mut ids = begun();
        assert_eq!(request(&mut ids, 100, 0).0, [MessageIdViolation::Reused { id: 0 }]);
        assert_eq!(request(&mut ids, 110, 40).0, []);
        let mut told = Vec::new();
        ids.finish(|_, wrong| told.push(wrong));
        assert_eq!(told, [MessageIdViolation::Outside { command: Command::ECHO, id: 40, end: 3 }]);
        let mut ids = begun();
        assert_eq!(
            reply(&mut ids, 30, 0, 1),
            [MessageIdViolation::Again { command: Command::ECHO, id: 0, first: at(10) }]
        );
    }

    #[test]
    fn a_client_that_can_never_ask_again_is_reported_once() {
        let mut ids = Ids::default();
        ids.begin();
        request(&mut ids, 0, 0);
        assert_eq!(reply(&mut ids, 10, 0, 0), [MessageIdViolation::Dry]);
        ids.lost();
        assert_eq!(
            (reply(&mut ids, 20, 0, 0), request(&mut ids, 30, 77).0, ids.held()),
            (vec![], vec![], None),
            "nothing is known"
        );
    }
}
