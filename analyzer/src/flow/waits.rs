//! Stretches of time in which a connection was held up by what carries it, so that nobody else is blamed for them: recovery from loss, a
//! peer that was silent, Nagle's algorithm, credits. The newest few of a connection.

use crate::op::{At, End};

/// Stretches remembered.
const REMEMBERED: usize = 1024;

/// What held a connection up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cause {
    /// Packets were lost, or thought lost, and sent again.
    Recovery,
    /// One end sent nothing, not even acknowledgments.
    Silence,
    /// Data waited for the acknowledgment of data before it, which its receiver delayed.
    Nagle,
    /// A sender waited for credits.
    Credit,
    /// The receive window was closed.
    Window,
    /// What was sent was held up before it passed the capture point.
    HeldUp,
}

#[derive(Clone, Copy, Debug)]
struct Wait {
    cause: Cause,
    from: i64,
    to: i64,
}

/// The waits of one connection. Times in ns.
#[derive(Clone, Debug, Default)]
pub struct Waits {
    /// The newest last, up to a limit; then the oldest is written over.
    kept: alloc::vec::Vec<Wait>,
    next: usize,
    /// By sender: since when it recovers.
    open: [Option<i64>; 2],
    /// By end: the shortest time from a packet to that end to its acknowledgment, from the capture point.
    round_trip: [Option<i64>; 2],
}

impl Waits {
    /// A wait that is over.
    pub fn add(&mut self, cause: Cause, from: i64, to: i64) {
        if to <= from {
            return;
        }
        let wait = Wait { cause, from, to };
        if self.kept.len() < REMEMBERED {
            self.kept.push(wait);
        } else {
            self.kept[self.next % REMEMBERED] = wait;
            self.next = (self.next + 1) % REMEMBERED;
        }
    }

    /// The packets of `by` are being recovered.
    pub fn recovering(&mut self, by: End, since: At) {
        self.open[by.index()].get_or_insert(since.time);
    }

    /// They have been.
    pub fn recovered(&mut self, by: End, since: At, at: At) {
        self.open[by.index()] = None;
        self.add(Cause::Recovery, since.time, at.time);
    }

    /// A packet reached `end` and its acknowledgment came back to the capture point in `ns`.
    #[inline]
    pub fn round_trip(&mut self, end: End, ns: i64) {
        let known = &mut self.round_trip[end.index()];
        if ns >= 0 && known.is_none_or(|known| ns < known) {
            *known = Some(ns);
        }
    }

    /// The shortest way from the capture point to an end and back, in ns, where it was seen.
    pub fn shortest_round_trip(&self, end: End) -> Option<i64> {
        self.round_trip[end.index()]
    }

    /// How much of the time between two points was waiting, for whatever cause, in ns. What is under way counts.
    pub fn between(&self, from: i64, to: i64) -> i64 {
        let mut spans: alloc::vec::Vec<(i64, i64)> = self
            .kept
            .iter()
            .map(|wait| (wait.from, wait.to))
            .chain(self.open.iter().flatten().map(|since| (*since, to)))
            .map(|(begin, end)| (begin.max(from), end.min(to)))
            .filter(|(begin, end)| begin < end)
            .collect();
        spans.sort_unstable();
        let (mut sum, mut until) = (0, from);
        for (begin, end) in spans {
            sum += (end - begin.max(until)).max(0);
            until = until.max(end);
        }
        sum
    }

    /// How much of it was waiting for one cause.
    pub fn of(&self, cause: Cause, from: i64, to: i64) -> i64 {
        self.kept.iter().filter(|wait| wait.cause == cause).map(|wait| (wait.to.min(to) - wait.from.max(from)).max(0)).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_that_overlap_count_once() {
        let mut waits = Waits::default();
        waits.add(Cause::Recovery, 100, 200);
        waits.add(Cause::Silence, 150, 300);
        waits.add(Cause::Nagle, 400, 500);
        waits.add(Cause::Nagle, 500, 500);
        assert_eq!((waits.between(0, 1000), waits.between(120, 450), waits.between(310, 390)), (300, 230, 0));
        assert_eq!((waits.of(Cause::Nagle, 0, 450), waits.of(Cause::Credit, 0, 1000)), (50, 0));
        waits.recovering(End::B, At { frame: 1, time: 900 });
        assert_eq!(waits.between(0, 1000), 400);
        waits.recovered(End::B, At { frame: 1, time: 900 }, At { frame: 2, time: 950 });
        assert_eq!(waits.between(0, 1000), 350);
        (0..2000).for_each(|n| waits.add(Cause::Credit, 2000 + n, 2001 + n));
        assert_eq!((waits.kept.len(), waits.between(0, 1000)), (REMEMBERED, 0), "bounded");
    }
}
