//! Credits over time, as they were reported, in a bounded number of points: when a story is full, each two neighbours
//! become one that has the least of both, so that no stall is lost.

use rdmascope_analyzer::op::At;
use rdmascope_analyzer::stored::{Reader, Stored, Writer};
use std::collections::HashMap;

/// Maximum number of points of one connection.
const POINTS_MAX: usize = 1 << 16;
/// Maximum number of points of all connections.
const ALL_MAX: usize = 1 << 22;

/// Credits held after a frame. Order: end A, end B, then the credits of the layer above (SMB2, RPC).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Point {
    pub(crate) time: i64,
    pub(crate) frame: u32,
    held: [i32; 3],
}

const UNKNOWN: i32 = i32::MIN;

impl Point {
    pub(crate) fn new(at: At, held: [Option<i64>; 3]) -> Self {
        let narrow = |v: Option<i64>| {
            v.map_or(UNKNOWN, |v| i32::try_from(v).unwrap_or(if v < 0 { i32::MIN + 1 } else { i32::MAX }))
        };
        Self { time: at.time, frame: u32::try_from(at.frame).unwrap_or(u32::MAX), held: held.map(narrow) }
    }

    /// By place: end A, end B, the layer above.
    pub(crate) fn held(&self, which: usize) -> Option<i64> {
        self.held.get(which).copied().filter(|v| *v != UNKNOWN).map(i64::from)
    }

    fn join(self, other: Self) -> Self {
        let mut held = self.held;
        for (mine, theirs) in held.iter_mut().zip(other.held) {
            *mine = match (*mine, theirs) {
                (UNKNOWN, v) | (v, UNKNOWN) => v,
                (a, b) => a.min(b),
            };
        }
        Self { held, ..self }
    }
}

/// All connections, by the numbers under which they are followed.
#[derive(Clone, Debug, Default)]
pub(crate) struct CreditsLog {
    connections: HashMap<u32, Vec<Point>>,
    points: usize,
    /// Points that found no room.
    pub(crate) dropped: u64,
}

impl CreditsLog {
    pub(crate) fn add(&mut self, connection: u32, point: Point) {
        if self.points >= ALL_MAX && !self.connections.contains_key(&connection) {
            self.dropped += 1;
            return;
        }
        let points = self.connections.entry(connection).or_default();
        // values that are not reported now are unchanged
        let mut point = point;
        if let Some(last) = points.last() {
            for (new, old) in point.held.iter_mut().zip(last.held) {
                if *new == UNKNOWN {
                    *new = old;
                }
            }
        }
        if points.len() >= POINTS_MAX {
            self.points -= points.len();
            *points =
                points.chunks(2).map(|pair| pair.iter().copied().reduce(Point::join).unwrap_or_default()).collect();
            self.points += points.len();
        }
        points.push(point);
        self.points += 1;
    }

    pub(crate) fn of(&self, connection: u32) -> &[Point] {
        self.connections.get(&connection).map_or(&[], Vec::as_slice)
    }
}

impl Stored for Point {
    fn store(&self, out: &mut Writer) {
        (self.time, self.frame, self.held).store(out);
    }

    fn restore(from: &mut Reader<'_>) -> Option<Self> {
        let (time, frame, held) = Stored::restore(from)?;
        Some(Self { time, frame, held })
    }
}

impl Stored for CreditsLog {
    fn store(&self, out: &mut Writer) {
        // in the same order each time
        let mut ids: Vec<u32> = self.connections.keys().copied().collect();
        ids.sort_unstable();
        (self.dropped, ids.len()).store(out);
        for id in ids {
            id.store(out);
            self.connections[&id].store(out);
        }
    }

    fn restore(from: &mut Reader<'_>) -> Option<Self> {
        let (dropped, count): (u64, usize) = Stored::restore(from)?;
        let connections: HashMap<u32, Vec<Point>> = (0..count).map(|_| Stored::restore(from)).collect::<Option<_>>()?;
        let points = connections.values().map(Vec::len).sum();
        Some(Self { connections, points, dropped })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_least_survives_thinning() {
        let mut log = CreditsLog::default();
        for i in 0..200_000i64 {
            let held = if i == 777 { 0 } else { 100 };
            log.add(1, Point::new(At { frame: i as u64, time: i }, [Some(held), None, None]));
        }
        let points = log.of(1);
        assert!(points.len() <= POINTS_MAX + 1 && points.len() > POINTS_MAX / 4);
        assert_eq!(points.iter().filter_map(|p| p.held(0)).min(), Some(0));
        assert_eq!(points[0].held(1), None);
        assert!(log.of(2).is_empty());
    }
}
