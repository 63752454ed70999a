//! Collections of durations: exact while they are few, in buckets of 3 % when they are many. Bounded either way.

use crate::stored::stored;
use alloc::vec::Vec;

/// Samples kept exactly.
const EXACT_MAX: usize = 1024;
/// Samples that there is room for from the first on.
const FIRST: usize = 32;
/// Buckets per doubling: one is 1/32 wide.
const STEPS: u32 = 32;

/// A collection of durations in ns.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Latency {
    count: u64,
    sum: i64,
    min: i64,
    max: i64,
    samples: Vec<i64>,
    buckets: Vec<u32>,
}

impl Latency {
    /// Adds a duration in ns. Negative ones (a capture whose clock went back) count as 0.
    pub fn add(&mut self, ns: i64) {
        let ns = ns.max(0);
        self.min = if self.count == 0 { ns } else { self.min.min(ns) };
        self.max = self.max.max(ns);
        self.count += 1;
        self.sum = self.sum.saturating_add(ns);
        if !self.buckets.is_empty() {
            self.bucket(ns);
            return;
        }
        if self.samples.is_empty() {
            self.samples.reserve(FIRST);
        }
        self.samples.push(ns);
        if self.samples.len() >= EXACT_MAX {
            self.buckets.resize((64 * STEPS) as usize, 0);
            for sample in core::mem::take(&mut self.samples) {
                self.bucket(sample);
            }
        }
    }

    /// Takes over the durations of another collection.
    pub fn join(&mut self, other: &Self) {
        if other.count > 0
            && other.buckets.is_empty()
            && self.buckets.is_empty()
            && self.samples.len() + other.samples.len() < EXACT_MAX
        {
            self.min = if self.count == 0 { other.min } else { self.min.min(other.min) };
            self.max = self.max.max(other.max);
            self.count += other.count;
            self.sum = self.sum.saturating_add(other.sum);
            self.samples.extend_from_slice(&other.samples);
            return;
        }
        if other.buckets.is_empty() {
            other.samples.iter().for_each(|sample| self.add(*sample));
            return;
        }
        if self.buckets.is_empty() {
            self.buckets.resize((64 * STEPS) as usize, 0);
            for sample in core::mem::take(&mut self.samples) {
                self.bucket(sample);
            }
        }
        for (mine, theirs) in self.buckets.iter_mut().zip(&other.buckets) {
            *mine = mine.saturating_add(*theirs);
        }
        self.min = if self.count == 0 { other.min } else { self.min.min(other.min) };
        self.max = self.max.max(other.max);
        self.count += other.count;
        self.sum = self.sum.saturating_add(other.sum);
    }

    /// Number of durations.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// All together, in ns.
    pub fn sum(&self) -> i64 {
        self.sum
    }

    /// The shortest, in ns.
    pub fn min(&self) -> Option<i64> {
        (self.count > 0).then_some(self.min)
    }

    /// The longest, in ns.
    pub fn max(&self) -> Option<i64> {
        (self.count > 0).then_some(self.max)
    }

    /// The duration, in ns, that 99 of 100 do not exceed; `None` of fewer than a hundred, of which it would be the
    /// longest.
    pub fn p99(&self) -> Option<i64> {
        if self.count < 100 { None } else { self.quantile(990) }
    }

    /// The duration, in ns, that `per_mille` of 1000 do not exceed: 500 is the median.
    pub fn quantile(&self, per_mille: u32) -> Option<i64> {
        if self.count == 0 {
            return None;
        }
        // nearest rank
        let rank = (self.count * u64::from(per_mille)).div_ceil(1000).clamp(1, self.count);
        if self.buckets.is_empty() {
            let mut sorted = self.samples.clone();
            sorted.sort_unstable();
            return sorted.get(rank as usize - 1).copied();
        }
        let mut seen = 0;
        for (index, n) in self.buckets.iter().enumerate() {
            seen += u64::from(*n);
            if seen >= rank {
                return Some(upper_end(index as u32).clamp(self.min, self.max));
            }
        }
        Some(self.max)
    }

    /// Buckets for a plot: upper end in ns, count. Empty ones are left out.
    pub fn histogram(&self) -> Vec<(i64, u64)> {
        let mut buckets = self.buckets.clone();
        if buckets.is_empty() {
            buckets.resize((64 * STEPS) as usize, 0);
            for s in &self.samples {
                buckets[index_of(*s) as usize] += 1;
            }
        }
        buckets.iter().enumerate().filter(|(_, n)| **n > 0).map(|(i, n)| (upper_end(i as u32), u64::from(*n))).collect()
    }

    fn bucket(&mut self, ns: i64) {
        let index = index_of(ns) as usize;
        if let Some(n) = self.buckets.get_mut(index) {
            *n = n.saturating_add(1);
        }
    }
}

fn index_of(ns: i64) -> u32 {
    let v = ns.max(0) as u64;
    if v < u64::from(STEPS) {
        return v as u32;
    }
    let octave = 63 - v.leading_zeros();
    let step = ((v >> (octave - 5)) & u64::from(STEPS - 1)) as u32;
    (octave - 4) * STEPS + step
}

fn upper_end(index: u32) -> i64 {
    if index < STEPS {
        return i64::from(index);
    }
    let octave = index / STEPS + 4;
    let step = u64::from(index % STEPS);
    let low = (1u64 << octave) + (step << (octave - 5));
    (low + (1u64 << (octave - 5)) - 1).min(i64::MAX as u64) as i64
}

stored!(Latency { count, sum, min, max, samples, buckets } if |l| {
    let buckets = [0, (64 * STEPS) as usize].contains(&l.buckets.len());
    buckets && l.samples.len() <= EXACT_MAX && l.min <= l.max && l.count < u64::MAX / 1000
});

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn few_are_exact() {
        let mut l = Latency::default();
        for ns in [30, 10, 20, 40] {
            l.add(ns);
        }
        assert_eq!((l.min(), l.quantile(500), l.quantile(990), l.max()), (Some(10), Some(20), Some(40), Some(40)));
        assert_eq!(l.p99(), None, "of four");
        assert_eq!(Latency::default().quantile(500), None);
    }

    #[test]
    fn many_are_within_four_percent() {
        let mut l = Latency::default();
        for ns in 1..=100_000i64 {
            l.add(ns * 17);
        }
        for (per_mille, exact) in [(500, 850_000.0), (990, 1_683_000.0)] {
            let got = l.quantile(per_mille).unwrap() as f64;
            assert!((got - exact).abs() / exact < 0.04, "{got} for {exact}");
        }
        assert_eq!((l.count(), l.max()), (100_000, Some(1_700_000)));
        assert_eq!(l.histogram().iter().map(|(_, n)| n).sum::<u64>(), 100_000);
    }

    #[test]
    fn joining_is_adding() {
        for (few, many) in [(10, 20), (10, 5000), (5000, 10), (3000, 3000)] {
            let (mut a, mut b, mut both) = (Latency::default(), Latency::default(), Latency::default());
            for ns in 0..few {
                a.add(ns * 7);
                both.add(ns * 7);
            }
            for ns in 0..many {
                b.add(ns * 13 + 1);
                both.add(ns * 13 + 1);
            }
            a.join(&b);
            let seen = |l: &Latency| (l.count(), l.sum(), l.min(), l.max());
            assert_eq!(seen(&a), seen(&both));
            let (got, exact) = (a.quantile(500).unwrap() as f64, both.quantile(500).unwrap() as f64);
            assert!((got - exact).abs() <= exact * 0.04 + 1.0, "{got} for {exact}");
        }
    }

    #[test]
    fn buckets_are_consistent() {
        for ns in (0..60).map(|s| 1i64 << s).flat_map(|v| [v - 1, v, v + 1, v + v / 3]) {
            let i = index_of(ns);
            assert!(upper_end(i) >= ns && (i == 0 || upper_end(i - 1) < ns), "{ns}");
        }
    }
}
