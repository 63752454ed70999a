//! Events on the network over time, on one axis: the rate of both sides, marks, CNPs, pauses, retransmissions.
//!
//! ```text
//!   series of each connection ─┐
//!   pauses of the capture     ─┴▶ Timeline: as many stretches of equal length as are asked for
//! ```

use crate::report::{Capture, Connection};
use crate::series::Trouble;
use alloc::vec;
use alloc::vec::Vec;

/// A stretch of time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Point {
    /// Bytes in frames of clients and of servers.
    pub bytes: [u64; 2],
    /// Packets marked congestion experienced.
    pub marks: u64,
    /// Congestion notification packets.
    pub cnps: u64,
    /// ns of requested pauses; several devices and classes count separately.
    pub paused: i64,
    /// Retransmitted packets and segments.
    pub retransmissions: u64,
    /// Negative acknowledgments, receiver not ready among them.
    pub naks: u64,
}

/// Rows of a [`Timeline`] beside the rate: their names and their values.
pub type Row = (&'static str, fn(&Point) -> u64);

/// All rows beside the rate. Pauses in ns.
pub const ROWS: [Row; 5] = [
    ("marks", |p| p.marks),
    ("CNPs", |p| p.cnps),
    ("paused", |p| p.paused.unsigned_abs()),
    ("retransmissions", |p| p.retransmissions),
    ("NAKs", |p| p.naks),
];

/// Stretches of equal length, from the first frame of the capture to the last.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Timeline {
    /// Beginning of the first one, in ns since the Unix epoch.
    pub begin: i64,
    /// Length of each, in ns.
    pub step: i64,
    /// All points, in order of time.
    pub points: Vec<Point>,
}

impl Timeline {
    /// The timeline of these connections, in `count` stretches; `None` for a capture without frames.
    pub fn new<'c>(connections: impl Iterator<Item = &'c Connection>, capture: &Capture, count: usize) -> Option<Self> {
        let (begin, end) = (capture.first?.time, capture.last?.time);
        let count = count.max(1);
        let step = (end.saturating_sub(begin).max(0) / count as i64).saturating_add(1);
        let mut timeline = Self { begin, step, points: vec![Point::default(); count] };
        for connection in connections {
            for (time, client, server) in &connection.throughput {
                let point = timeline.at(*time);
                point.bytes = [point.bytes[0] + client, point.bytes[1] + server];
            }
            for (time, trouble) in &connection.trouble {
                let Trouble([retransmissions, naks, marks, cnps]) = trouble;
                let point = timeline.at(*time);
                point.retransmissions += retransmissions;
                point.naks += naks;
                point.marks += marks;
                point.cnps += cnps;
            }
        }
        for (time, ns) in capture.paused.series(end) {
            let point = timeline.at(time);
            point.paused = point.paused.saturating_add(ns);
        }
        Some(timeline)
    }

    fn at(&mut self, time: i64) -> &mut Point {
        let place = time.saturating_sub(self.begin).max(0) / self.step;
        let last = self.points.len() - 1;
        &mut self.points[usize::try_from(place).unwrap_or(last).min(last)]
    }

    /// The rows in which anything happened.
    pub fn rows(&self) -> impl Iterator<Item = Row> + '_ {
        ROWS.into_iter().filter(|(_, value)| self.points.iter().any(|point| value(point) > 0))
    }

    /// Bytes a second of clients and servers together in a stretch.
    pub fn rate(&self, point: &Point) -> u64 {
        (u128::from(point.bytes[0] + point.bytes[1]) * 1_000_000_000 / u128::from(self.step.unsigned_abs().max(1)))
            as u64
    }

    /// Beginning of a stretch, in ns since the Unix epoch.
    pub fn time(&self, place: usize) -> i64 {
        self.begin.saturating_add(self.step.saturating_mul(place as i64))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::op::At;
    use rdmascope_dissector::frame::Pause;

    const MS: i64 = 1_000_000;

    fn capture() -> Capture {
        let at = |frame, time| At { frame, time };
        let mut capture = Capture { first: Some(at(1, 100 * MS)), last: Some(at(9, 200 * MS)), ..Capture::default() };
        let pause = Pause { source: [2; 6], priorities: 8, quanta: 1000, times: [1000; 8], whole_link: false };
        capture.paused.add(at(3, 155 * MS), 0, &pause);
        capture
    }

    #[test]
    fn everything_is_on_one_axis_and_nothing_is_lost() {
        let connection = Connection {
            throughput: vec![(100 * MS, 10, 20), (150 * MS, 1, 2), (200 * MS, 3, 0), (900 * MS, 5, 0)],
            trouble: vec![(155 * MS, Trouble([1, 0, 7, 2]))],
            ..Connection::default()
        };
        let timeline = Timeline::new([&connection, &connection].into_iter(), &capture(), 10).expect("there are frames");
        let sum = |value: fn(&Point) -> u64| timeline.points.iter().map(value).sum::<u64>();
        assert_eq!((sum(|p| p.bytes[0]), sum(|p| p.bytes[1])), (38, 44));
        let told: Vec<_> = timeline.rows().map(|(name, value)| (name, value(&timeline.points[5]))).collect();
        assert_eq!(told, [("marks", 14), ("CNPs", 4), ("paused", 5120), ("retransmissions", 2)]);
        assert_eq!(
            (timeline.points.len(), timeline.time(5) <= 155 * MS, timeline.time(6) > 155 * MS),
            (10, true, true)
        );
        assert_eq!(timeline.rate(&Point { bytes: [10_000_001, 0], ..Point::default() }), 1_000_000_000);
    }

    #[test]
    fn a_capture_of_one_moment_or_none_has_an_axis_or_none() {
        let none: [&Connection; 0] = [];
        assert_eq!(Timeline::new(none.into_iter(), &Capture::default(), 10), None);
        let moment = At { frame: 1, time: i64::MIN };
        let capture =
            Capture { first: Some(moment), last: Some(At { frame: 2, time: i64::MAX }), ..Capture::default() };
        assert!(
            Timeline::new(none.into_iter(), &capture, 0)
                .is_some_and(|t| t.points.len() == 1 && t.rows().next().is_none())
        );
    }
}
