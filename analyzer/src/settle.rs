//! Requests that were answered, until it is known that the answer arrived: an exchange ends with the copy of its reply
//! that the client took, and its time can be divided by owner only when the delays are known.

use crate::episodes::not_before;
use crate::exchange::Exchange;
use crate::op::{At, End};
use alloc::boxed::Box;
use alloc::collections::VecDeque;

/// Requests that wait for each direction at most: if one direction only acknowledges, or none, they do not wait for
/// ever.
const WAITING_MAX: usize = 256;

/// A request whose reply was seen.
#[derive(Clone, Debug)]
pub struct Waiting {
    /// The request.
    pub exchange: Box<Exchange>,
    /// Sequence number of the last packet of the reply.
    pub sequence: Option<u32>,
    /// A later copy of the reply, which the client took.
    pub copy: Option<At>,
}

/// Requests of one connection whose reply is not yet known to have arrived, by replier.
#[derive(Clone, Debug, Default)]
pub struct Settling {
    waiting: [VecDeque<Waiting>; 2],
}

impl Settling {
    /// A reply was seen.
    pub fn push(&mut self, exchange: Box<Exchange>, replier: End, sequence: Option<u32>) {
        self.waiting[replier.index()].push_back(Waiting { exchange, sequence, copy: None });
    }

    /// The next of those whose reply has arrived, as all has that `replier` sent up to this sequence number. It stays
    /// until [`Settling::done`].
    #[inline]
    pub fn arrived(&mut self, replier: End, sequence: u32) -> Option<&mut Waiting> {
        let front = self.waiting[replier.index()].front_mut()?;
        front.sequence.is_none_or(|mine| not_before(sequence, mine)).then_some(front)
    }

    /// Removes the one that has waited longest, and returns it: it is settled.
    #[inline]
    pub fn done(&mut self, replier: End) -> Option<Box<Exchange>> {
        self.waiting[replier.index()].pop_front().map(|waiting| waiting.exchange)
    }

    /// A packet of `by` goes out again; `is_behind`: the packets behind it were not taken before it either. A peer that
    /// sent anything since the reply had received it; and a copy that comes within `soon` ns did not wait for its
    /// acknowledgment. In both cases the first copy counts.
    pub fn again(&mut self, by: End, at: At, from: u32, is_behind: bool, spoke: At, soon: i64) {
        for waiting in &mut self.waiting[by.index()] {
            let is_meant =
                waiting.sequence.is_some_and(|mine| if is_behind { not_before(mine, from) } else { mine == from });
            let seen = waiting.exchange.reply_end.unwrap_or(at);
            if is_meant && at.since(seen) > soon && spoke.time <= seen.time {
                waiting.copy = Some(at);
            }
        }
    }

    /// True if there are too many.
    #[inline]
    pub fn is_full(&self, replier: End) -> bool {
        self.waiting[replier.index()].len() > WAITING_MAX
    }

    /// The one that has waited longest. It stays until [`Settling::done`].
    pub fn oldest(&mut self, replier: End) -> Option<&mut Waiting> {
        self.waiting[replier.index()].front_mut()
    }

    /// Takes over the other half of a connection whose directions were first taken for two; `swapped` if their ends
    /// have other names.
    pub fn adopt(&mut self, from: &mut Self, swapped: bool) {
        for end in End::BOTH {
            let mine = if swapped { end.peer() } else { end };
            self.waiting[mine.index()].append(&mut from.waiting[end.index()]);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::exchange::Family;

    fn at(time: i64) -> At {
        At { frame: time as u64, time }
    }

    fn answered(id: u64, time: i64) -> Exchange {
        Exchange {
            id,
            reply: Some(at(time)),
            reply_end: Some(at(time)),
            ..Exchange::begun(Family::Smb2, "READ", at(0), at(0))
        }
    }

    #[test]
    fn a_reply_that_was_not_taken_is_settled_with_the_copy_that_was() {
        let mut settling = Settling::default();
        settling.push(Box::new(answered(1, 10)), End::B, Some(100));
        settling.push(Box::new(answered(2, 11)), End::B, Some(200));
        assert!(settling.arrived(End::B, 99).is_none());
        settling.again(End::B, at(500), 150, true, At::default(), 0);
        let mut next = || {
            let told = settling.arrived(End::B, 200).map(|waiting| (waiting.exchange.id, waiting.copy));
            settling.done(End::B);
            told
        };
        assert_eq!([next(), next()], [Some((1, None)), Some((2, Some(at(500))))]);
        assert!(settling.arrived(End::B, 200).is_none());
    }

    #[test]
    fn a_copy_that_comes_too_soon_to_have_waited_for_an_acknowledgment_is_not_the_one_that_was_taken() {
        let mut settling = Settling::default();
        settling.push(Box::new(answered(1, 10)), End::B, Some(100));
        settling.again(End::B, at(60), 100, false, At::default(), 50);
        assert_eq!(settling.oldest(End::B).unwrap().copy, None);
        settling.again(End::B, at(61), 100, false, At::default(), 50);
        assert_eq!(settling.oldest(End::B).unwrap().copy, Some(at(61)));
    }

    #[test]
    fn who_went_on_speaking_had_the_first_copy() {
        let mut settling = Settling::default();
        settling.push(Box::new(answered(1, 10)), End::B, Some(100));
        settling.again(End::B, at(500), 100, false, at(20), 0);
        assert_eq!(settling.oldest(End::B).unwrap().copy, None);
    }
}
