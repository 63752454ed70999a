//! Numbers in the whole capture for the connections and exchanges that each shard numbers on its own, while frames
//! come. With each frame comes the count that its shard has numbered behind it; as frames are taken in order, that
//! gives each its number in the whole.

use super::Pipeline;
use super::shards::EXCHANGES;
use alloc::vec::Vec;

/// Number of things that an analysis has numbered so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Connections.
    pub connections: u64,
    /// Exchanges.
    pub exchanges: u64,
}

/// Numbers that grow, a byte or two each, found by their place.
#[derive(Clone, Debug, Default)]
pub struct Growing {
    /// Of every 32nd: its number, and where the next one is.
    marks: Vec<(u64, usize)>,
    /// Difference of each to the one before, as LEB128.
    steps: Vec<u8>,
    last: u64,
    len: u64,
}

impl Growing {
    const MARK: u64 = 32;

    /// Number of entries.
    pub fn len(&self) -> u64 {
        self.len
    }

    /// True if there are none.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// One more, which is not less than those before.
    pub fn push(&mut self, number: u64) {
        let mut step = number.saturating_sub(self.last);
        if self.len.is_multiple_of(Self::MARK) {
            self.marks.push((number, self.steps.len()));
        } else {
            while step > 0x7f {
                self.steps.push(step as u8 | 0x80);
                step >>= 7;
            }
            self.steps.push(step as u8);
        }
        self.last = number;
        self.len += 1;
    }

    /// The number of the one at this place, from 0.
    pub fn at(&self, place: u64) -> Option<u64> {
        let &(mut number, start) =
            self.marks.get(usize::try_from(place / Self::MARK).ok()?).filter(|_| place < self.len)?;
        let mut steps = self.steps.get(start..)?.iter();
        for _ in 0..place % Self::MARK {
            let mut shift = 0;
            loop {
                let byte = *steps.next()?;
                number += u64::from(byte & 0x7f) << shift;
                shift += 7;
                if byte < 0x80 {
                    break;
                }
            }
        }
        Some(number)
    }
}

/// See the module.
#[derive(Clone, Debug)]
pub struct Numbers {
    /// By shard: connections, and exchanges.
    shards: Vec<[Growing; 2]>,
    counts: Counts,
}

impl Numbers {
    /// Numbers for `shards` shards, before the first frame.
    pub fn new(shards: usize) -> Self {
        Self { shards: (0..shards.max(1)).map(|_| <[Growing; 2]>::default()).collect(), counts: Counts::default() }
    }

    /// The next frame of the capture was of this shard, which had numbered so much behind it.
    pub fn frame(&mut self, shard: usize, behind: Counts) {
        let Self { shards, counts } = self;
        let Some([connections, exchanges]) = shards.get_mut(shard) else { return };
        while connections.len() < behind.connections {
            counts.connections += 1;
            connections.push(counts.connections);
        }
        while exchanges.len() < behind.exchanges {
            counts.exchanges += 1;
            exchanges.push(counts.exchanges);
        }
    }

    /// The number in the whole of a connection that a shard numbered.
    pub fn connection(&self, number: u64) -> u64 {
        let of = self.shards.len() as u64;
        let Some(place) = number.checked_sub(1) else { return number };
        self.shards[(place % of) as usize][0].at(place / of).unwrap_or(number)
    }

    /// The number in the whole of an exchange that a shard numbered.
    pub fn exchange(&self, number: u64) -> u64 {
        let Some(place) = number.checked_sub(1) else { return number };
        let shard = self.shards.get((place / EXCHANGES) as usize);
        shard.and_then(|[_, exchanges]| exchanges.at(place % EXCHANGES)).unwrap_or(number)
    }
}

impl<S> Pipeline<S> {
    /// Number of connections and exchanges that it has numbered so far.
    pub fn counts(&self) -> Counts {
        let of = self.shard.as_ref().map_or(1, |shard| shard.step());
        Counts {
            connections: u64::from(self.next_id.wrapping_sub(1) / of),
            exchanges: (self.env.next_exchange - 1) % EXCHANGES,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_grows_is_found_again() {
        let mut growing = Growing::default();
        let mut numbers = Vec::new();
        let mut number = 0;
        for n in 0..1000_u64 {
            number += 1 + n * n % 700;
            growing.push(number);
            numbers.push(number);
        }
        assert!((0..1000).all(|place| growing.at(place) == Some(numbers[place as usize])));
        assert_eq!((growing.at(1000), growing.len(), Growing::default().at(0)), (None, 1000, None));
    }

    #[test]
    fn shards_get_the_numbers_of_the_whole_as_frames_come() {
        let counts = |connections, exchanges| Counts { connections, exchanges };
        let mut numbers = Numbers::new(2);
        numbers.frame(0, counts(1, 0));
        numbers.frame(1, counts(1, 2));
        numbers.frame(0, counts(2, 1));
        numbers.frame(1, counts(1, 3));
        // connections of shard 0 are 1, 3, …, of shard 1 2, 4, …
        assert_eq!([1, 2, 3].map(|n| numbers.connection(n)), [1, 2, 3]);
        assert_eq!([1, EXCHANGES + 1, EXCHANGES + 2, EXCHANGES + 3].map(|n| numbers.exchange(n)), [3, 1, 2, 4]);
        assert_eq!((numbers.exchange(0), numbers.connection(0)), (0, 0), "no number stays none");
    }
}
