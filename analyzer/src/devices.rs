//! Behaviour of an end's adapter when something went wrong: time until it asked for missing packets, until it sent them
//! again, and until it sent again without being asked. Facts, as the capture point saw them. IBA volume 1, 9.7.5 and
//! 9.7.6.

use crate::stored::stored;

/// One measure, in ns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Measure {
    /// A receiver: from the packet that showed a gap to the NAK for it.
    Nak(i64),
    /// A sender: from a NAK to the first packet that it sent again.
    Resend(i64),
    /// A sender: from the last packet that it sent to the first that it sent again without being asked.
    Timeout(i64),
    /// A sender: from an RNR NAK to the Send that it sent again.
    Rnr {
        /// Time that it was asked to wait.
        asked: i64,
        /// Time that it waited.
        kept: i64,
    },
}

/// Durations, in ns.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Spread {
    /// Number of durations.
    pub count: u64,
    /// The shortest.
    pub least: i64,
    /// The longest.
    pub most: i64,
    /// Sum, in ns.
    pub sum: i64,
}

impl Spread {
    /// Adds one.
    pub fn add(&mut self, ns: i64) {
        let ns = ns.max(0);
        self.least = if self.count == 0 { ns } else { self.least.min(ns) };
        self.most = self.most.max(ns);
        self.count += 1;
        self.sum = self.sum.saturating_add(ns);
    }

    /// In the mean; `None` if there are none.
    pub fn mean(&self) -> Option<i64> {
        i64::try_from(self.count).ok().filter(|n| *n > 0).map(|n| self.sum / n)
    }
}

/// The adapter of one end. Times in ns.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Device {
    /// From a gap to its NAK for it.
    pub nak: Spread,
    /// From a NAK to the first packet that it sent again.
    pub resend: Spread,
    /// From its last packet to the first that it sent again unasked.
    pub timeout: Spread,
    /// From an RNR NAK to the Send again.
    pub rnr: Spread,
    /// The longest time that an RNR NAK asked it to wait.
    pub rnr_asked: i64,
    /// Sends that it repeated before the time asked for was over.
    pub rnr_early: u64,
    /// Acknowledgments that it sent.
    pub acks: u64,
    /// Packets that those acknowledged.
    pub acked: u64,
    /// The newest sequence number that it acknowledged.
    last_acked: Option<u32>,
}

impl Device {
    /// Adds a measure.
    pub fn measured(&mut self, measure: Measure) {
        match measure {
            Measure::Nak(ns) => self.nak.add(ns),
            Measure::Resend(ns) => self.resend.add(ns),
            Measure::Timeout(ns) => self.timeout.add(ns),
            Measure::Rnr { asked, kept } => {
                self.rnr.add(kept);
                self.rnr_asked = self.rnr_asked.max(asked);
                self.rnr_early += u64::from(kept < asked);
            }
        }
    }

    /// It acknowledged all up to a PSN.
    #[inline]
    pub fn acknowledged(&mut self, psn: u32) {
        let new = self.last_acked.map_or(1, |last| psn.wrapping_sub(last) & 0xff_ffff);
        // an older one, or one of another use of the numbers
        if new < 1 << 16 {
            self.acks += 1;
            self.acked += u64::from(new);
            self.last_acked = Some(psn);
        }
    }

    /// The exponents `n` of the timeout of 4.096 µs × 2^n that fit the observed times: it is over after one to four
    /// times that (IBA volume 1, 9.7.6.1.3).
    pub fn timeout_exponents(&self) -> Option<(u32, u32)> {
        const UNIT: i64 = 4096;
        if self.timeout.count == 0 || self.timeout.least < UNIT {
            return None;
        }
        let most = (self.timeout.least / UNIT).ilog2().min(31);
        // the longest is no longer than four times as much; beside others that do not fit together, the shortest counts
        let least = (0..most).find(|n| (UNIT << n).saturating_mul(4) >= self.timeout.most).unwrap_or(most);
        Some((least, most))
    }

    /// True if anything is known of it.
    pub fn is_known(&self) -> bool {
        self.nak.count + self.resend.count + self.timeout.count + self.rnr.count > 0
    }

    /// Adds the measures of the same adapter from elsewhere.
    pub fn join(&mut self, other: &Self) {
        for (mine, theirs) in [
            (&mut self.nak, other.nak),
            (&mut self.resend, other.resend),
            (&mut self.timeout, other.timeout),
            (&mut self.rnr, other.rnr),
        ] {
            if theirs.count > 0 {
                mine.least = if mine.count == 0 { theirs.least } else { mine.least.min(theirs.least) };
                mine.most = mine.most.max(theirs.most);
                mine.count += theirs.count;
                mine.sum = mine.sum.saturating_add(theirs.sum);
            }
        }
        self.rnr_asked = self.rnr_asked.max(other.rnr_asked);
        self.rnr_early += other.rnr_early;
        self.acks += other.acks;
        self.acked += other.acked;
    }
}

stored!(Spread { count, least, most, sum });
stored!(Device { nak, resend, timeout, rnr, rnr_asked, rnr_early, acks, acked, last_acked });

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_timeout_is_one_of_the_steps_that_a_queue_pair_has() {
        let mut device = Device::default();
        assert_eq!(device.timeout_exponents(), None);
        device.measured(Measure::Timeout(515_000_000));
        device.measured(Measure::Timeout(530_000_000));
        // 4.096 µs × 2^16 is 268 ms, × 2^17 is 537 ms; four times × 2^14 is 268 ms
        assert_eq!((device.timeout_exponents(), device.timeout.mean()), (Some((15, 16)), Some(522_500_000)));
        let of = |ns: &[i64]| {
            let mut device = Device::default();
            ns.iter().for_each(|ns| device.measured(Measure::Timeout(*ns)));
            device.timeout_exponents()
        };
        assert_eq!([of(&[4096]), of(&[4 * 4096]), of(&[4096, 9 << 30])], [Some((0, 0)), Some((0, 2)), Some((0, 0))]);
    }

    #[test]
    fn who_repeats_before_the_time_is_counted() {
        let mut device = Device::default();
        device.measured(Measure::Rnr { asked: 100, kept: 150 });
        device.measured(Measure::Rnr { asked: 640, kept: 10 });
        assert_eq!((device.rnr.count, device.rnr_asked, device.rnr_early), (2, 640, 1));
    }

    #[test]
    fn acknowledgments_are_counted_with_what_they_acknowledge() {
        let mut device = Device::default();
        [0xff_fffe, 2, 1, 6].into_iter().for_each(|psn| device.acknowledged(psn));
        assert_eq!((device.acks, device.acked), (3, 9));
    }
}
