//! Congestion: a sender's rate, by the reaction point of DCQCN (Zhu et al., SIGCOMM 2015), and a receiver's
//! notifications (annex A17.9): at most one in 50 µs for a queue pair.
//!
//! Without a notification the rate is not limited. The first one starts at the line rate of the configuration. Each
//! notification reduces the rate by up to half, depending on α, and timers raise it again: five steps half-way to the
//! former rate, then by addition. When the rate reaches the line rate, there is no limit any more.

use crate::transport::Time;

/// Minimum time between two notifications of a receiver, in ns.
const CNP_EVERY: i64 = 50_000;
/// The timer of α, in ns.
const ALPHA_EVERY: i64 = 55_000;
/// The timer of increase, in ns.
const INCREASE_EVERY: i64 = 300_000;
/// The parameter g of the paper.
const GAIN: f64 = 1.0 / 256.0;
/// Steps half-way to the target before it is raised.
const FAST_STEPS: u32 = 5;
/// Bytes a second that the target is raised by.
const ADDITION: f64 = 5.0e6;
/// Minimum rate, in bytes per second.
const LEAST: f64 = 1.0e6;

/// The rate of a sender.
#[derive(Clone, Debug)]
pub(super) struct Sender {
    /// Bytes a second.
    line: f64,
    limited: Option<Limited>,
    /// Number of received notifications.
    pub(super) notifications: u64,
}

#[derive(Clone, Copy, Debug)]
struct Limited {
    rate: f64,
    target: f64,
    alpha: f64,
    steps: u32,
    alpha_at: Time,
    increase_at: Time,
    /// Nothing leaves before.
    next: Time,
}

impl Sender {
    pub(super) fn new(line: u64) -> Self {
        Self { line: (line as f64).max(LEAST), limited: None, notifications: 0 }
    }

    /// Handles a received CNP.
    pub(super) fn notified(&mut self, now: Time) {
        self.notifications += 1;
        self.advance(now);
        let l = self.limited.get_or_insert(Limited {
            rate: self.line,
            target: self.line,
            alpha: 1.0,
            steps: 0,
            alpha_at: now,
            increase_at: now,
            next: now,
        });
        l.target = l.rate;
        l.rate = (l.rate * (1.0 - l.alpha / 2.0)).max(LEAST);
        l.alpha = (1.0 - GAIN) * l.alpha + GAIN;
        l.steps = 0;
        l.alpha_at = now.saturating_add(ALPHA_EVERY);
        l.increase_at = now.saturating_add(INCREASE_EVERY);
    }

    /// The steps of time that have passed.
    fn advance(&mut self, now: Time) {
        let line = self.line;
        let Some(l) = &mut self.limited else { return };
        // after a long silence all steps come to the same
        let skip = now.saturating_sub(INCREASE_EVERY * 100_000);
        l.alpha_at = l.alpha_at.max(skip);
        l.increase_at = l.increase_at.max(skip);
        while now >= l.alpha_at {
            l.alpha *= 1.0 - GAIN;
            l.alpha_at += ALPHA_EVERY;
        }
        while now >= l.increase_at && l.rate < line {
            l.increase_at += INCREASE_EVERY;
            l.steps += 1;
            if l.steps > FAST_STEPS {
                l.target = (l.target + ADDITION).min(line);
            }
            l.rate = (l.rate + l.target) / 2.0;
            if l.rate > line * 0.999 {
                l.rate = line;
            }
        }
        if l.rate >= line {
            self.limited = None;
        }
    }

    /// True if something may leave now.
    pub(super) fn may_send(&mut self, now: Time) -> bool {
        self.advance(now);
        self.limited.is_none_or(|l| now >= l.next)
    }

    /// So many bytes left.
    pub(super) fn sent(&mut self, now: Time, bytes: usize) {
        if let Some(l) = &mut self.limited {
            l.next = l.next.max(now).saturating_add((bytes as f64 / l.rate * 1e9) as i64);
        }
    }

    /// The time at which the next packet may leave, if that is not now.
    pub(super) fn next(&self) -> Option<Time> {
        self.limited.map(|l| l.next)
    }

    /// The limit in bytes per second, if there is one.
    pub(super) fn rate(&self) -> Option<u64> {
        self.limited.map(|l| l.rate as u64)
    }
}

/// State of a receiver's notifications.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Receiver {
    last: Option<Time>,
    due: bool,
}

impl Receiver {
    /// A packet with a congestion mark arrived.
    pub(super) fn marked(&mut self, now: Time) {
        if self.last.is_none_or(|last| now.saturating_sub(last) >= CNP_EVERY) {
            self.last = Some(now);
            self.due = true;
        }
    }

    /// True if a notification is due; resets that.
    pub(super) fn take(&mut self) -> bool {
        std::mem::take(&mut self.due)
    }

    pub(super) fn is_due(&self) -> bool {
        self.due
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rate_falls_with_notifications_and_recovers_without() {
        let line = 1_250_000_000;
        let mut sender = Sender::new(line);
        assert!(sender.rate().is_none() && sender.may_send(0));
        let mut now = 1_000_000;
        let mut before = line;
        for _ in 0..10 {
            sender.notified(now);
            let rate = sender.rate().unwrap();
            assert!(rate < before, "{rate} after {before}");
            before = rate;
            now += 50_000;
        }
        assert!(before < line / 100);
        sender.sent(now, 100_000);
        assert!(!sender.may_send(now) && sender.next().unwrap() > now);
        let mut last = 0;
        while let Some(rate) = {
            sender.may_send(now).then_some(());
            sender.rate()
        } {
            assert!(rate >= last, "it never falls by itself");
            last = rate;
            now += 10_000_000;
            assert!(now < 60_000_000_000, "it recovers within a minute");
        }
    }

    #[test]
    fn a_receiver_notifies_once_in_50_microseconds() {
        let mut receiver = Receiver::default();
        let mut sent = 0;
        for now in (0..1_000_000).step_by(1000) {
            receiver.marked(now);
            sent += u32::from(receiver.take());
        }
        assert_eq!(sent, 20);
    }
}
