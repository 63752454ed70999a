//! Distributions of durations, and tests of whether two of them, or two counts, differ.

use rdmascope_dissector::text::Elapsed;
use std::collections::BTreeMap;

/// Buckets per doubling: 1.1 % each.
const STEPS: f64 = 64.0;

/// A histogram of durations in ns, with buckets of 1.1 %. It does not depend on the order of insertion.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Histogram {
    buckets: BTreeMap<u16, u64>,
    count: u64,
    sum: i64,
    min: i64,
    max: i64,
}

impl Histogram {
    /// Adds a duration; negative ones count as 0.
    pub fn add(&mut self, ns: i64) {
        let ns = ns.max(0);
        self.min = if self.count == 0 { ns } else { self.min.min(ns) };
        self.max = self.max.max(ns);
        self.count += 1;
        self.sum = self.sum.saturating_add(ns);
        *self.buckets.entry(bucket(ns)).or_default() += 1;
    }

    /// Adds the values of another.
    pub fn join(&mut self, other: &Self) {
        if other.count == 0 {
            return;
        }
        self.min = if self.count == 0 { other.min } else { self.min.min(other.min) };
        self.max = self.max.max(other.max);
        self.count += other.count;
        self.sum = self.sum.saturating_add(other.sum);
        for (bucket, n) in &other.buckets {
            *self.buckets.entry(*bucket).or_default() += n;
        }
    }

    /// Number of values.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// The mean, ns; 0 of none.
    pub fn mean(&self) -> f64 {
        self.sum as f64 / self.count.max(1) as f64
    }

    /// The shortest, ns.
    pub fn min(&self) -> Option<i64> {
        (self.count > 0).then_some(self.min)
    }

    /// The longest, ns.
    pub fn max(&self) -> Option<i64> {
        (self.count > 0).then_some(self.max)
    }

    /// The 99th percentile, ns; `None` of fewer than a hundred values, of which it would be the longest.
    pub fn p99(&self) -> Option<i64> {
        if self.count < 100 { None } else { self.quantile(0.99) }
    }

    /// Median and 99th percentile as text; of few values, the longest instead.
    pub fn in_short(&self) -> String {
        let (what, tail) = self.p99().map_or_else(|| ("longest", self.max()), |p99| ("p99", Some(p99)));
        let [median, tail] = [self.quantile(0.5), tail].map(|ns| Elapsed(ns.unwrap_or(0)));
        format!("median {median}, {what} {tail}")
    }

    /// The percentile `part`, ns, to 1.1 %.
    pub fn quantile(&self, part: f64) -> Option<i64> {
        let rank = ((part * self.count as f64).ceil() as u64).clamp(1, self.count.max(1));
        let mut seen = 0;
        let found = self.buckets.iter().find(|(_, n)| {
            seen += **n;
            seen >= rank
        })?;
        Some(value(*found.0).clamp(self.min, self.max))
    }
}

fn bucket(ns: i64) -> u16 {
    if ns <= 0 { 0 } else { ((ns as f64).log2() * STEPS) as u16 + 1 }
}

fn value(bucket: u16) -> i64 {
    if bucket == 0 { 0 } else { ((f64::from(bucket) - 0.5) / STEPS).exp2() as i64 }
}

/// Result of a test of two samples.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Test {
    /// Probability of such a difference, or a greater one, if there is none.
    pub p: f64,
    /// Cliff's delta: from −1, the second is always less, by 0, neither, to 1, the second is always more.
    pub effect: f64,
}

/// The Mann-Whitney test on durations in buckets, with ties. `None` for too few values.
pub(crate) fn mann_whitney(a: &Histogram, b: &Histogram) -> Option<Test> {
    const FEWEST: u64 = 8;
    if a.count < FEWEST || b.count < FEWEST {
        return None;
    }
    let (n, m) = (a.count as f64, b.count as f64);
    let mut all: BTreeMap<u16, [u64; 2]> = BTreeMap::new();
    for (which, histogram) in [a, b].into_iter().enumerate() {
        for (bucket, count) in &histogram.buckets {
            all.entry(*bucket).or_default()[which] += count;
        }
    }
    // how often one of b is greater than one of a; ties count half
    let (mut below, mut more, mut ties) = (0.0, 0.0, 0.0);
    for [in_a, in_b] in all.values() {
        let (in_a, in_b) = (*in_a as f64, *in_b as f64);
        more += in_b * (below + in_a / 2.0);
        below += in_a;
        let tied = in_a + in_b;
        ties += tied * tied * tied - tied;
    }
    let total = n + m;
    let variance = n * m / 12.0 * (total + 1.0 - ties / (total * (total - 1.0)));
    let effect = 2.0 * more / (n * m) - 1.0;
    if variance <= 0.0 {
        return Some(Test { p: 1.0, effect: 0.0 });
    }
    let distance = ((more - n * m / 2.0).abs() - 0.5).max(0.0);
    Some(Test { p: two_sided(distance / variance.sqrt()), effect })
}

/// Tests whether two counts, each of a number of chances, have the same rate: the normal approximation with a
/// continuity correction.
pub(crate) fn counts(a: u64, chances_a: u64, b: u64, chances_b: u64) -> f64 {
    let all = a.saturating_add(b) as f64;
    let chances = chances_a as f64 + chances_b as f64;
    if all == 0.0 || chances_a == 0 || chances_b == 0 {
        return 1.0;
    }
    let share = chances_b as f64 / chances;
    let deviation = (all * share * (1.0 - share)).sqrt();
    two_sided(((b as f64 - all * share).abs() - 0.5).max(0.0) / deviation)
}

fn two_sided(z: f64) -> f64 {
    erfc(z / std::f64::consts::SQRT_2).min(1.0)
}

/// The complementary error function, to 1.2e-7 (Press et al., Numerical Recipes, 6.2).
fn erfc(x: f64) -> f64 {
    let t = 1.0 / (1.0 + x.abs() / 2.0);
    const TERMS: [f64; 10] = [
        -1.265_512_23,
        1.000_023_68,
        0.374_091_96,
        0.096_784_18,
        -0.186_288_06,
        0.278_868_07,
        -1.135_203_98,
        1.488_515_87,
        -0.822_152_23,
        0.170_872_77,
    ];
    let sum = TERMS.iter().rev().fold(0.0, |sum, term| sum * t + term);
    let y = t * (-x * x + sum).exp();
    if x >= 0.0 { y } else { 2.0 - y }
}

/// Holm's method: for each p value, true if it is significant at `level` among all tests together.
pub(crate) fn holm(p: &[f64], level: f64) -> Vec<bool> {
    let mut order: Vec<usize> = (0..p.len()).collect();
    order.sort_by(|a, b| p[*a].total_cmp(&p[*b]));
    let mut significant = vec![false; p.len()];
    for (rank, at) in order.iter().enumerate() {
        if p[*at] > level / (p.len() - rank) as f64 {
            break;
        }
        significant[*at] = true;
    }
    significant
}

#[cfg(test)]
mod tests {
    use super::*;

    fn histogram(values: impl IntoIterator<Item = i64>) -> Histogram {
        let mut h = Histogram::default();
        values.into_iter().for_each(|v| h.add(v));
        h
    }

    #[test]
    fn quantiles_are_right_to_a_percent() {
        let h = histogram((1..=10_000).map(|n| n * 1000));
        for (part, right) in [(0.5, 5_000_000.0), (0.99, 9_900_000.0), (0.999, 9_990_000.0)] {
            let is = h.quantile(part).unwrap() as f64;
            assert!((is / right - 1.0).abs() < 0.012, "{part}: {is}");
        }
        assert_eq!((h.min(), h.max(), Histogram::default().quantile(0.5)), (Some(1000), Some(10_000_000), None));
        assert_eq!(histogram([0, 0]).quantile(0.5), Some(0));
        assert_eq!((histogram(0..99).p99(), histogram([7; 100]).p99().is_some()), (None, true));
    }

    #[test]
    fn the_same_is_the_same_and_slower_is_slower() {
        let a = histogram((0..500).map(|n| 100_000 + n * 100));
        let same = mann_whitney(&a, &a).unwrap();
        assert!(same.p > 0.99 && same.effect.abs() < 1e-9);
        let slower = histogram((0..500).map(|n| 120_000 + n * 100));
        let test = mann_whitney(&a, &slower).unwrap();
        assert!(test.p < 1e-6 && test.effect > 0.3, "{test:?}");
        assert_eq!(mann_whitney(&a, &histogram([1, 2, 3])), None);
        let equal = histogram([7; 20]);
        assert_eq!(mann_whitney(&equal, &equal).unwrap().p, 1.0);
    }

    #[test]
    fn counts_are_held_against_their_chances() {
        assert!(counts(0, 1000, 12, 1000) < 0.01);
        assert!(counts(10, 1000, 12, 1000) > 0.3);
        assert!(counts(10, 1000, 100, 10_000) > 0.3);
        assert_eq!((counts(0, 10, 0, 10), counts(1, 0, 5, 10)), (1.0, 1.0));
    }

    #[test]
    fn many_questions_need_surer_answers() {
        assert_eq!(holm(&[0.001, 0.04, 0.03], 0.05), [true, false, false]);
        assert_eq!(holm(&[0.001, 0.02, 0.04], 0.05), [true, true, true]);
    }
}
