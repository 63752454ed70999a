//! A story over time in a bounded number of points: when they are full, neighbours are joined and the step doubles.

use crate::stored::{Reader, Stored, Writer, stored};
use alloc::vec::Vec;

/// Points kept at most.
pub const POINTS_MAX: usize = 512;
/// The first step: 2^20 ns, about a millisecond.
const FIRST_SHIFT: u32 = 20;

/// A point that can be joined with the next one.
pub trait Join: Copy + Default {
    /// Both together.
    fn join(self, other: Self) -> Self;
}

/// Bytes in frames, from end A and end B: joined by addition.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Volume(pub [u64; 2]);

impl Join for Volume {
    fn join(self, other: Self) -> Self {
        Self([self.0[0] + other.0[0], self.0[1] + other.0[1]])
    }
}

/// The least that end A and end B held in a stretch of time; `None` if nothing was learnt.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Least(pub [Option<i64>; 2]);

impl Join for Least {
    fn join(self, other: Self) -> Self {
        let least = |a: Option<i64>, b: Option<i64>| a.map_or(b, |x| Some(b.map_or(x, |y| x.min(y))));
        Self([least(self.0[0], other.0[0]), least(self.0[1], other.0[1])])
    }
}

/// Retransmissions, negative acknowledgments, congestion marks, CNPs: joined by addition.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Trouble(pub [u64; 4]);

impl Trouble {
    /// A packet or segment was retransmitted.
    pub const RETRANSMISSION: Self = Self([1, 0, 0, 0]);
    /// A NAK, an RNR NAK among them.
    pub const NAK: Self = Self([0, 1, 0, 0]);
    /// A packet was marked congestion experienced.
    pub const CONGESTION: Self = Self([0, 0, 1, 0]);
    /// A congestion notification packet.
    pub const CNP: Self = Self([0, 0, 0, 1]);
}

impl Join for Trouble {
    fn join(self, other: Self) -> Self {
        Self(core::array::from_fn(|i| self.0[i] + other.0[i]))
    }
}

/// Points over time.
#[derive(Clone, Debug, Default)]
pub struct Series<P> {
    start: Option<i64>,
    shift: u32,
    points: Vec<P>,
    /// The point that was added to last, and the times that go into it: from, and before.
    last: (usize, i64, i64),
}

impl<P: Join> Series<P> {
    /// Adds at a time, in ns.
    #[inline]
    pub fn add(&mut self, time: i64, point: P) {
        let (last, from, before) = self.last;
        match self.points.get_mut(last) {
            Some(known) if from <= time && time < before => *known = known.join(point),
            _ => self.add_elsewhere(time, point),
        }
    }

    /// The same, if that is not the point that was added to last.
    fn add_elsewhere(&mut self, time: i64, point: P) {
        let start = match self.start {
            Some(start) => start,
            None => {
                self.start = Some(time);
                self.shift = FIRST_SHIFT;
                time
            }
        };
        let since = time.saturating_sub(start).max(0);
        let mut index = (since >> self.shift) as usize;
        while index >= POINTS_MAX {
            self.halve();
            index = (since >> self.shift) as usize;
        }
        if index >= self.points.len() {
            self.points.resize(index + 1, P::default());
        }
        self.points[index] = self.points[index].join(point);
        let from = start.saturating_add((index as i64) << self.shift);
        // values from before the first one go into it
        self.last = (index, if index == 0 { i64::MIN } else { from }, from.saturating_add(1 << self.shift));
    }

    /// The time of each point, in ns, and the point.
    pub fn points(&self) -> impl Iterator<Item = (i64, P)> + '_ {
        let start = self.start.unwrap_or(0);
        self.points.iter().enumerate().map(move |(i, p)| (start.saturating_add((i as i64) << self.shift), *p))
    }

    /// Adds the points of another series, as [`Series::points`] returns them.
    pub fn merge(&mut self, other: impl Iterator<Item = (i64, P)>) {
        let mut all: Vec<(i64, P)> = self.points().chain(other).collect();
        all.sort_by_key(|(time, _)| *time);
        *self = Self::default();
        all.into_iter().for_each(|(time, point)| self.add(time, point));
    }

    #[cold]
    fn halve(&mut self) {
        self.shift += 1;
        let joined: Vec<P> =
            self.points.chunks(2).map(|pair| pair.iter().copied().fold(P::default(), P::join)).collect();
        self.points = joined;
    }
}

stored!(Trouble { 0 });

impl<P: Stored> Stored for Series<P> {
    fn store(&self, out: &mut Writer) {
        (self.start, self.shift).store(out);
        self.points.store(out);
        self.last.store(out);
    }

    fn restore(from: &mut Reader<'_>) -> Option<Self> {
        let (start, shift) = Stored::restore(from)?;
        let series = Self { start, shift, points: Stored::restore(from)?, last: Stored::restore(from)? };
        (series.shift < i64::BITS && series.points.len() <= POINTS_MAX).then_some(series)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_lost_when_the_step_doubles() {
        let mut series = Series::<Volume>::default();
        for i in 0..100_000i64 {
            series.add(i * 1_000_000, Volume([1, 2]));
        }
        assert!(series.points().count() <= POINTS_MAX);
        let sum = series.points().fold(Volume::default(), |s, (_, p)| s.join(p));
        assert_eq!(sum, Volume([100_000, 200_000]));
        series.add(i64::MAX, Volume([1, 0]));
    }

    #[test]
    fn two_become_one_from_the_earlier_beginning() {
        let (mut late, mut early) = (Series::<Volume>::default(), Series::<Volume>::default());
        late.add(50_000_000, Volume([1, 0]));
        early.add(10_000_000, Volume([0, 2]));
        early.add(50_000_000, Volume([0, 4]));
        late.merge(early.points());
        let points: Vec<_> = late.points().filter(|(_, p)| p.0 != [0; 2]).collect();
        assert_eq!((points.first(), points.len()), (Some(&(10_000_000, Volume([0, 2]))), 2));
        assert_eq!(points[1].1, Volume([1, 4]));
    }
}
