//! Which bytes of a payload RDMA moved: in any order, and however often. Bytes are moved to where their place in the
//! payload is, one after the other, \[MS-SMBD\] 3.1.4.5, 3.1.4.6.

use crate::memory::{Delivery, Fit};
use alloc::collections::BTreeMap;

/// Ranges of a payload that were moved.
#[derive(Clone, Debug, Default)]
pub(crate) struct Covered {
    /// Bytes from the first one on, without a hole.
    whole: u64,
    /// Ranges behind the first hole, which do not touch: where each begins, and where it ends.
    apart: BTreeMap<u64, u64>,
    /// True if that is not known any more.
    is_unknown: bool,
}

impl Covered {
    /// Ranges that are remembered at most.
    const APART_MAX: usize = 4096;

    /// `length` bytes at `offset` were moved.
    #[inline]
    pub(crate) fn add(&mut self, offset: u64, length: u64) {
        if offset <= self.whole && self.apart.is_empty() {
            self.whole = self.whole.max(offset.saturating_add(length));
        } else {
            self.add_apart(offset, offset.saturating_add(length));
        }
    }

    /// RDMA moved, or asked for, this many bytes at a place of the memory that holds the payload.
    pub(crate) fn take(&mut self, delivery: &Delivery<'_>, length: Option<u32>) {
        match length.filter(|_| delivery.verdict == Fit::Inside) {
            Some(length) => self.add(delivery.region.payload_offset.saturating_add(delivery.offset), length.into()),
            None => self.forget(),
        }
    }

    fn add_apart(&mut self, mut from: u64, mut to: u64) {
        if from == to {
            return;
        }
        // what touches it becomes one with it
        while let Some((begin, end)) = self.apart.range(..=to).next_back().map(|(begin, end)| (*begin, *end))
            && end >= from
        {
            self.apart.remove(&begin);
            (from, to) = (from.min(begin), to.max(end));
        }
        if from <= self.whole {
            self.whole = self.whole.max(to);
        } else if self.apart.len() < Self::APART_MAX {
            self.apart.insert(from, to);
        } else {
            self.forget();
        }
    }

    /// It is not known any more which bytes were moved.
    pub(crate) fn forget(&mut self) {
        (self.is_unknown, self.apart) = (true, BTreeMap::new());
    }

    /// Bytes that were moved, each counted once, and how many of the first `length` there are among them; `None` if
    /// that is not known.
    pub(crate) fn of(&self, length: u64) -> Option<(u64, u64)> {
        if self.is_unknown {
            return None;
        }
        let apart: u64 = self.apart.iter().map(|(from, to)| to - from).sum();
        let first: u64 = self.apart.range(..length).map(|(from, to)| *to.min(&length) - from).sum();
        Some((self.whole.saturating_add(apart), self.whole.min(length).saturating_add(first)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;

    #[test]
    fn each_byte_counts_once_wherever_it_comes() {
        let mut covered = Covered::default();
        covered.add(0, 10);
        covered.add(10, 10);
        covered.add(5, 10);
        assert_eq!(covered.of(15), Some((20, 15)));
        covered.add(30, 10);
        covered.add(50, 10);
        assert_eq!((covered.of(35), covered.of(100)), (Some((40, 25)), Some((40, 40))));
        covered.add(35, 20);
        assert_eq!(covered.of(60), Some((50, 50)));
        covered.add(20, 10);
        assert_eq!(covered.of(60), Some((60, 60)));
        covered.add(60, 0);
        covered.add(90, 0);
        assert_eq!(covered.of(100), Some((60, 60)));
        covered.add(u64::MAX, 9);
        covered.forget();
        assert_eq!(covered.of(60), None);
    }

    #[test]
    fn the_order_does_not_matter() {
        // pieces of a payload with a hole, in many orders, some of them twice
        for step in [1_u64, 3, 7, 9, 11, 13, 17, 19] {
            let mut covered = Covered::default();
            let pieces: Vec<u64> = (0..40).map(|n| n * step % 20).filter(|n| *n != 6 && *n != 13).collect();
            pieces.iter().for_each(|n| covered.add(n * 8, 8));
            assert_eq!(covered.of(160), Some((144, 144)), "{step}");
            assert_eq!(covered.of(60), Some((144, 52)), "{step}");
        }
    }

    #[test]
    fn very_many_holes_are_given_up() {
        let mut covered = Covered::default();
        for n in 1..=Covered::APART_MAX as u64 {
            covered.add(n * 2, 1);
        }
        assert_eq!(covered.of(u64::MAX), Some((Covered::APART_MAX as u64, Covered::APART_MAX as u64)));
        covered.add(1 << 40, 1);
        assert_eq!(covered.of(u64::MAX), None);
    }
}
