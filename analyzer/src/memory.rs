//! The map of remote memory of one connection: what was advertised to whom, what was done with it, and when it ended.
//! \[MS-SMBD\] 2.2.3.1 and 3.1.4.3–6, RFC 8166 3.4.
//!
//! A key is *live* from the message that advertises it until it is invalidated by the peer's Send, or the exchange that
//! advertised it ends. What comes later is stale. Ended keys are remembered for a while, so that *stale* can be told from
//! *unknown*.

use crate::op::{At, End};
use hashbrown::HashMap;

/// Keys remembered per connection at most, live and ended together.
pub const REGIONS_MAX: usize = 4096;

/// What the peer may do with a region.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Right {
    /// RDMA Read it.
    Read,
    /// RDMA Write it.
    Write,
    /// Not known.
    Any,
}

/// Where a region is in its life.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// Advertised, and the exchange goes on.
    Live,
    /// Invalidated by the peer's Send with Invalidate.
    Invalidated(At),
    /// The exchange ended.
    Ended(At),
}

/// A piece of memory that one end lets the other use.
#[derive(Clone, Copy, Debug)]
pub struct Region {
    /// Address or tagged offset of its first byte.
    pub address: u64,
    /// In bytes.
    pub length: u64,
    /// What the peer may do.
    pub right: Right,
    /// The exchange that advertised it.
    pub exchange: u64,
    /// Its place among that exchange's descriptors or segments.
    pub index: u32,
    /// Where its bytes lie in the exchange's payload.
    pub payload_offset: u64,
    /// When it was advertised.
    pub advertised: At,
    /// Where it is in its life.
    pub state: State,
    /// Bytes read or written.
    pub used: u64,
}

/// What is to be said of an operation on remote memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// All is well.
    Inside,
    /// No such key was advertised.
    Unknown,
    /// The key is known; the bytes are not inside.
    Outside,
    /// The key is no longer to be used.
    Stale,
    /// A Write into memory that is to be read, or the reverse.
    Direction,
}

impl Verdict {
    /// In words.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Inside => "inside what was advertised",
            Self::Unknown => "never advertised",
            Self::Outside => "outside of what was advertised",
            Self::Stale => "no longer valid",
            Self::Direction => "advertised for the other direction",
        }
    }
}

/// The memory that both ends advertised.
#[derive(Clone, Debug, Default)]
pub struct MemoryMap {
    /// By owner and key.
    regions: HashMap<(End, u32), Region>,
    /// Regions advertised.
    pub advertised: u64,
    /// Regions invalidated by the peer.
    pub invalidated: u64,
    /// Regions forgotten because there were too many.
    pub dropped: u64,
    oldest_kept: u64,
    /// The last keys advertised by each end, to see whether they can be guessed.
    recent: [Guess; 2],
}

#[derive(Clone, Copy, Debug, Default)]
struct Guess {
    last: u32,
    step: u32,
    run: u32,
}

impl MemoryMap {
    /// A region is advertised by `owner`. Returns the region of the same key that was still live, where there was one.
    pub fn advertise(&mut self, owner: End, key: u32, region: Region) -> Option<Region> {
        self.advertised += 1;
        let guess = &mut self.recent[owner.index()];
        let step = key.wrapping_sub(guess.last);
        guess.run = if step == guess.step && step != 0 { guess.run + 1 } else { 0 };
        guess.step = step;
        guess.last = key;
        if self.regions.len() >= REGIONS_MAX && !self.regions.contains_key(&(owner, key)) {
            self.forget();
        }
        let before = self.regions.insert((owner, key), region);
        before.filter(|r| r.state == State::Live && r.exchange != region.exchange)
    }

    /// How many keys in a row each were the last one plus the same number (0: not at all).
    pub fn predictable(&self, owner: End) -> (u32, u32) {
        let guess = &self.recent[owner.index()];
        (guess.run, guess.step)
    }

    /// `length` bytes at `address` of `owner`'s memory are read or written (`wanted`).
    pub fn touch(&mut self, owner: End, key: u32, address: u64, length: u32, wanted: Right) -> (Verdict, Option<&mut Region>) {
        let Some(region) = self.regions.get_mut(&(owner, key)) else { return (Verdict::Unknown, None) };
        region.used += u64::from(length);
        let verdict = if region.state != State::Live {
            Verdict::Stale
        } else if region.right != Right::Any && region.right != wanted {
            Verdict::Direction
        } else if address < region.address || (address - region.address).saturating_add(length.into()) > region.length {
            Verdict::Outside
        } else {
            Verdict::Inside
        };
        (verdict, Some(region))
    }

    /// The region of a key.
    pub fn find(&self, owner: End, key: u32) -> Option<&Region> {
        self.regions.get(&(owner, key))
    }

    /// The peer's Send invalidated a key of `owner`. Returns the region, as it was before.
    pub fn invalidate(&mut self, at: At, owner: End, key: u32) -> Option<Region> {
        let region = self.regions.get_mut(&(owner, key))?;
        let before = *region;
        if region.state == State::Live {
            region.state = State::Invalidated(at);
            self.invalidated += 1;
        }
        Some(before)
    }

    /// An exchange ended: its key is not to be used any more. Returns the region as it was before.
    pub fn end(&mut self, at: At, owner: End, key: u32, exchange: u64) -> Option<Region> {
        let region = self.regions.get_mut(&(owner, key)).filter(|r| r.exchange == exchange)?;
        let before = *region;
        if region.state == State::Live {
            region.state = State::Ended(at);
        }
        Some(before)
    }

    /// Every region, in no order.
    pub fn all(&self) -> impl Iterator<Item = (End, u32, &Region)> {
        self.regions.iter().map(|((owner, key), region)| (*owner, *key, region))
    }

    /// Takes over the regions of the other half of a connection.
    pub fn adopt(&mut self, by: End, from: &mut Self, from_end: End) {
        for ((owner, key), region) in from.regions.drain() {
            if owner == from_end {
                self.regions.insert((by, key), region);
            }
        }
        self.advertised += from.advertised;
        self.invalidated += from.invalidated;
    }

    /// Makes room: the older half of the ended ones goes, then of all.
    #[cold]
    fn forget(&mut self) {
        let before = self.regions.len();
        let mut ids: alloc::vec::Vec<u64> = self.regions.values().map(|r| r.exchange).collect();
        ids.sort_unstable();
        let middle = ids[ids.len() / 2];
        self.oldest_kept = middle;
        self.regions.retain(|_, r| r.state == State::Live || r.exchange > middle);
        if self.regions.len() > REGIONS_MAX * 3 / 4 {
            self.regions.retain(|_, r| r.exchange > middle);
        }
        if self.regions.len() > REGIONS_MAX * 3 / 4 {
            self.regions.clear();
        }
        self.dropped += (before - self.regions.len()) as u64;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn region(exchange: u64) -> Region {
        Region {
            address: 0x1000,
            length: 4096,
            right: Right::Write,
            exchange,
            index: 0,
            payload_offset: 0,
            advertised: At::default(),
            state: State::Live,
            used: 0,
        }
    }

    #[test]
    fn verdicts() {
        let mut map = MemoryMap::default();
        map.advertise(End::A, 7, region(1));
        assert_eq!(map.touch(End::A, 7, 0x1000, 4096, Right::Write).0, Verdict::Inside);
        assert_eq!(map.touch(End::A, 7, 0x1001, 4096, Right::Write).0, Verdict::Outside);
        assert_eq!(map.touch(End::A, 7, u64::MAX, 4096, Right::Write).0, Verdict::Outside);
        assert_eq!(map.touch(End::A, 7, 0xfff, 1, Right::Write).0, Verdict::Outside);
        assert_eq!(map.touch(End::A, 7, 0x1000, 1, Right::Read).0, Verdict::Direction);
        assert_eq!(map.touch(End::B, 7, 0x1000, 1, Right::Write).0, Verdict::Unknown);
        map.invalidate(At::default(), End::A, 7);
        assert_eq!(map.touch(End::A, 7, 0x1000, 1, Right::Write).0, Verdict::Stale);
    }

    #[test]
    fn a_key_advertised_twice_while_live_is_told() {
        let mut map = MemoryMap::default();
        assert!(map.advertise(End::A, 7, region(1)).is_none());
        assert!(map.advertise(End::A, 7, region(2)).is_some());
        map.end(At::default(), End::A, 7, 2);
        assert!(map.advertise(End::A, 7, region(3)).is_none());
    }

    #[test]
    fn stays_bounded() {
        let mut map = MemoryMap::default();
        for key in 0..100_000 {
            map.advertise(End::A, key, region(u64::from(key)));
        }
        assert!(map.all().count() <= REGIONS_MAX && map.dropped > 0);
        assert_eq!(map.predictable(End::A), (99_998, 1));
    }
}
