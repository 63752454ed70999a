//! Offset and drift of two clocks, from packets that both captures have.
//!
//! A packet cannot arrive before it was sent. With `f` the time differences of packets in one direction and `r` those
//! in the other, the offset `o(t)` of the clocks obeys `−r ≤ o(t) ≤ f` for all packets. Among all straight lines that
//! obey this, the middle one is reported, with half the distance of the outermost ones as its uncertainty. This holds
//! for any delays, as long as the drift is constant.

/// A straight line through the differences of two clocks.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Clock {
    /// Time of the offset: ns since the Unix epoch, by the first clock.
    pub at: i64,
    /// Time from the first packet that both captures have to the last one, ns.
    pub span: i64,
    /// The second clock minus the first one at that time, ns.
    pub offset: f64,
    /// Uncertainty of the offset over the whole capture, ns.
    pub uncertainty: f64,
    /// Drift of the second clock against the first one, as a fraction.
    pub drift: f64,
    /// Uncertainty of the drift.
    pub drift_uncertainty: f64,
    /// True if no constant drift explains the times: one of the clocks was set meanwhile, or is uneven.
    pub uneven: bool,
    /// True if packets were seen in both directions. One direction alone bounds the offset on one side only.
    pub both_ways: bool,
}

/// Span in ns from which a drift shows: over a shorter one, the jitter of the times is more than a clock drifts.
const DRIFT_SHOWS: i64 = 5_000_000_000;
/// Uncertainty that leaves a drift worth telling: clocks drift by some 50 parts in a million at most.
const DRIFT_KNOWN: f64 = 50e-6;

impl Clock {
    /// True if the times tell the drift.
    pub fn is_drift_known(&self) -> bool {
        self.both_ways && (self.span >= DRIFT_SHOWS || !self.uneven && self.drift_uncertainty <= DRIFT_KNOWN)
    }

    /// Time by the first clock, from a time by the second one.
    pub fn first(&self, second: i64) -> i64 {
        let since = second.saturating_sub(self.at) as f64 - self.offset;
        second.saturating_sub((self.offset + self.drift * since) as i64)
    }
}

/// The clocks of two captures, from packets in each direction: the time at the first point, and the difference to that
/// at the second one.
pub fn clock(forward: &[(i64, i64)], backward: &[(i64, i64)]) -> Option<Clock> {
    let times = || forward.iter().chain(backward).map(|(t, _)| *t);
    let (first, last) = (times().min()?, times().max()?);
    let span = last.saturating_sub(first);
    let at = first.saturating_add(span / 2);
    let relative = |points: &[(i64, i64)]| {
        points.iter().map(|(t, d)| (t.saturating_sub(at) as f64, *d as f64)).collect::<Vec<_>>()
    };
    // the offset is below every difference in one direction, and above every one in the other
    let upper = hull(relative(forward), 1.0);
    let lower = hull(relative(backward), -1.0);
    let both_ways = !upper.is_empty() && !lower.is_empty();
    let half = (span as f64 / 2.0).max(1.0);
    if !both_ways {
        // the least delay counts as none
        let all = if upper.is_empty() { &lower } else { &upper };
        let sign = if upper.is_empty() { -1.0 } else { 1.0 };
        let best = all.iter().map(|(_, d)| d * sign).fold(f64::INFINITY, f64::min) * sign;
        return Some(Clock {
            at,
            span,
            offset: best,
            uncertainty: f64::INFINITY,
            drift: 0.0,
            drift_uncertainty: f64::INFINITY,
            uneven: false,
            both_ways,
        });
    }
    let top = |drift: f64| upper.iter().map(|(t, d)| d - drift * t).fold(f64::INFINITY, f64::min);
    let bottom = |drift: f64| lower.iter().map(|(t, d)| d - drift * t).fold(f64::NEG_INFINITY, f64::max);
    let gap = |drift: f64| top(drift) - bottom(drift);
    // concave: search the drift that leaves the largest gap, within the drift of real clocks
    const MOST: f64 = 1e-3;
    let best = peak(gap, -MOST, MOST);
    let room = gap(best);
    // rounding errors, and the drift while a packet travels, are less than this
    const SLACK: f64 = 20.0;
    if room < -SLACK {
        let (offset, drift) = ((top(best) + bottom(best)) / 2.0, best);
        return Some(Clock {
            at,
            span,
            offset,
            uncertainty: -room,
            drift,
            drift_uncertainty: -room / half,
            uneven: true,
            both_ways,
        });
    }
    let (least, most) = (edge(gap, best, -MOST), edge(gap, best, MOST));
    // the outermost lines at the middle and at both ends
    let reach = |t: f64| {
        let high = peak(|drift| top(drift) + drift * t, least, most);
        let low = peak(|drift| -(bottom(drift) + drift * t), least, most);
        (top(high) + high * t, bottom(low) + low * t)
    };
    let (high, low) = reach(0.0);
    let (offset, drift) = ((high + low) / 2.0, (least + most) / 2.0);
    let worst = [-half, 0.0, half].map(|t| {
        let (high, low) = reach(t);
        let estimate = offset + drift * t;
        (high - estimate).max(estimate - low)
    });
    let uncertainty = worst.into_iter().fold(0.0, f64::max) + SLACK;
    Some(Clock {
        at,
        span,
        offset,
        uncertainty,
        drift,
        drift_uncertainty: (most - least) / 2.0 + SLACK / half,
        uneven: false,
        both_ways,
    })
}

/// The lower hull of points (`side` 1), or the upper one (`side` −1).
fn hull(mut points: Vec<(f64, f64)>, side: f64) -> Vec<(f64, f64)> {
    points.sort_by(|a, b| a.0.total_cmp(&b.0).then((side * a.1).total_cmp(&(side * b.1))));
    let mut kept: Vec<(f64, f64)> = Vec::new();
    for p in points {
        while let [.., a, b] = kept[..] {
            if side * ((b.0 - a.0) * (p.1 - a.1) - (b.1 - a.1) * (p.0 - a.0)) > 0.0 {
                break;
            }
            kept.pop();
        }
        kept.push(p);
    }
    kept
}

/// Maximum of a concave function.
fn peak(f: impl Fn(f64) -> f64, mut low: f64, mut high: f64) -> f64 {
    for _ in 0..200 {
        let (a, b) = (low + (high - low) / 3.0, high - (high - low) / 3.0);
        if f(a) < f(b) { low = a } else { high = b }
    }
    (low + high) / 2.0
}

/// Zero of a concave function between `inside`, where it is not negative, and `outside`.
fn edge(f: impl Fn(f64) -> f64, inside: f64, outside: f64) -> f64 {
    if f(outside) >= 0.0 {
        return outside;
    }
    let (mut good, mut bad) = (inside, outside);
    for _ in 0..100 {
        let middle = (good + bad) / 2.0;
        if f(middle) >= 0.0 { good = middle } else { bad = middle }
    }
    good
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_capture_held_against_itself_has_one_even_clock() {
        let points: Vec<(i64, i64)> = (0..100).map(|n| (n * 1_234_567, 0)).collect();
        let same = clock(&points, &points).unwrap();
        assert!(!same.uneven && same.offset.abs() < 1.0, "{same:?}");
    }

    /// A recorder of one end may take the time of a packet after the other end received it.
    #[test]
    fn a_moment_tells_no_drift() {
        let late: Vec<(i64, i64)> = (0..100).map(|n| (n * 1_000_000, n % 7 * 10_000 - 30_000)).collect();
        let short = clock(&late, &late).unwrap();
        assert!(short.uneven && !short.is_drift_known(), "{short:?}");
        let long: Vec<(i64, i64)> = late.iter().map(|(t, d)| (t * 1000, *d)).collect();
        assert!(clock(&long, &long).unwrap().is_drift_known());
    }

    #[test]
    fn a_clock_that_is_set_meanwhile_is_uneven() {
        let forward: Vec<(i64, i64)> =
            (0..100).map(|n| (n * 1_000_000, if n < 50 { 10_000 } else { 5_000_000 })).collect();
        let backward: Vec<(i64, i64)> =
            (0..100).map(|n| (n * 1_000_000 + 5, if n < 50 { -10_000 } else { 4_980_000 })).collect();
        assert!(clock(&forward, &backward).unwrap().uneven);
    }
}
