//! Who paused which class of traffic, and for how long: priority flow control (IEEE 802.1Qbb) and 802.3x pauses.
//!
//! ```text
//!   pause frame ─▶ Pauses::add ─▶ an interval of its sender and priority: until a time of 0, or until its quanta run out
//! ```
//!
//! A quantum is 512 bit times, and a capture does not tell how fast the link is: quanta that run out are counted as at 100 Gbit/s.

use crate::op::At;
use crate::series::{Join, Series};
use alloc::vec::Vec;
use rdmascope_dissector::frame::Pause;

/// Senders and priorities that are followed.
const ROWS_MAX: usize = 256;
/// Intervals that are kept.
const SPANS_MAX: usize = 4096;
/// A quantum at 100 Gbit/s, in hundredths of a ns.
const QUANTUM: i64 = 512;
/// Pieces in which an interval goes into the story over time.
const PIECES: i64 = 64;
/// ns of such a piece, at least.
const PIECE: i64 = 1 << 20;

/// Nanoseconds, joined by addition.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Lasted(pub i64);

impl Join for Lasted {
    fn join(self, other: Self) -> Self {
        Self(self.0.saturating_add(other.0))
    }
}

/// An interval in which a sender asked others to be silent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span {
    /// Ethernet address of who asked.
    pub source: [u8; 6],
    /// Which priority; `None` for the whole link (802.3x).
    pub priority: Option<u8>,
    /// The frame that began it.
    pub begin: At,
    /// When it ended, in ns since the Unix epoch.
    pub end: i64,
}

impl Span {
    /// How long it lasted, in ns.
    pub const fn lasted(&self) -> i64 {
        self.end.saturating_sub(self.begin.time)
    }
}

/// All pauses of one priority by one device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Paused {
    /// Ethernet address of who asked for them.
    pub source: [u8; 6],
    /// Which priority; `None` for the whole link (802.3x).
    pub priority: Option<u8>,
    /// Frames that asked to pause; those that end a pause do not count.
    pub frames: u64,
    /// The first of them.
    pub first: At,
    /// ns paused.
    pub time: i64,
    /// The longest interval, in ns.
    pub longest: i64,
    /// Since when, and until when if nothing else is said.
    open: Option<(At, i64)>,
}

/// Who paused what for how long.
#[derive(Clone, Debug, Default)]
pub struct Pauses {
    rows: Vec<Paused>,
    spans: Vec<Span>,
    omitted: u64,
    series: Series<Lasted>,
}

impl Pauses {
    /// A pause frame.
    pub fn add(&mut self, at: At, pause: &Pause) {
        if pause.whole_link {
            self.one(at, pause.source, None, pause.times[0]);
            return;
        }
        for priority in (0..8u8).filter(|p| pause.priorities >> p & 1 != 0) {
            self.one(at, pause.source, Some(priority), pause.times[usize::from(priority)]);
        }
    }

    fn one(&mut self, at: At, source: [u8; 6], priority: Option<u8>, quanta: u16) {
        let place = self.rows.iter().position(|row| (row.source, row.priority) == (source, priority));
        let place = match place {
            Some(place) => place,
            None if quanta > 0 && self.rows.len() < ROWS_MAX => {
                self.rows.push(Paused { source, priority, frames: 0, first: at, time: 0, longest: 0, open: None });
                self.rows.len() - 1
            }
            None => return,
        };
        let until = at.time.saturating_add(i64::from(quanta) * QUANTUM / 100);
        let row = &mut self.rows[place];
        row.frames += u64::from(quanta > 0);
        match row.open {
            Some((since, end)) if quanta > 0 && at.time <= end => row.open = Some((since, until)),
            open => {
                row.open = (quanta > 0).then_some((at, until));
                if let Some((since, end)) = open {
                    self.close(place, since, end.min(at.time));
                }
            }
        }
    }

    fn close(&mut self, place: usize, begin: At, end: i64) {
        let Paused { source, priority, .. } = self.rows[place];
        let span = Span { source, priority, begin, end: end.max(begin.time) };
        let row = &mut self.rows[place];
        row.time = row.time.saturating_add(span.lasted());
        row.longest = row.longest.max(span.lasted());
        tell(&mut self.series, &span);
        if self.spans.len() < SPANS_MAX {
            self.spans.push(span);
        } else {
            self.omitted += 1;
        }
    }

    /// Whether nobody asked anybody to pause.
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// By sender and priority, as they came; what is not over ends with the capture, at `end`, at the latest.
    pub fn rows(&self, end: i64) -> Vec<Paused> {
        let mut all = self.clone();
        all.finish(end);
        all.rows
    }

    /// All intervals that are kept, in the order in which they began.
    pub fn spans(&self, end: i64) -> Vec<Span> {
        let mut all = self.clone();
        all.finish(end);
        all.spans.sort_by_key(|span| (span.begin, span.source, span.priority));
        all.spans
    }

    /// How many intervals are not kept.
    pub fn omitted(&self) -> u64 {
        self.omitted
    }

    /// ns paused over time: of each point its time and how long. Several devices and priorities count each.
    pub fn series(&self, end: i64) -> Vec<(i64, i64)> {
        let mut all = self.clone();
        all.finish(end);
        all.series.points().map(|(time, lasted)| (time, lasted.0)).collect()
    }

    fn finish(&mut self, now: i64) {
        for place in 0..self.rows.len() {
            if let Some((since, end)) = self.rows[place].open.take() {
                self.close(place, since, end.min(now));
            }
        }
    }
}

/// Spreads an interval over the story.
fn tell(series: &mut Series<Lasted>, span: &Span) {
    let pieces = (span.lasted() / PIECE).clamp(1, PIECES);
    let piece = span.lasted() / pieces;
    for n in 0..pieces {
        series.add(span.begin.time.saturating_add(n * piece), Lasted(piece));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: i64 = 1_000_000;
    const A: [u8; 6] = [2, 0, 0, 0, 0, 1];
    const RAN_OUT: i64 = 0xffff * QUANTUM / 100;

    fn at(time: i64) -> At {
        At { frame: 1, time }
    }

    fn frame(priorities: u8, quanta: u16) -> Pause {
        Pause { source: A, priorities, quanta, times: [quanta; 8], whole_link: false }
    }

    #[test]
    fn a_pause_ends_when_it_is_taken_back_or_runs_out() {
        let mut pauses = Pauses::default();
        pauses.add(at(0), &frame(0b1000, 0xffff));
        pauses.add(at(100_000), &frame(0b1000, 0));
        pauses.add(at(10 * MS), &frame(0b1000, 0xffff));
        let rows = pauses.rows(i64::MAX);
        assert_eq!((rows.len(), rows[0].priority, rows[0].frames), (1, Some(3), 2));
        assert_eq!((rows[0].time, rows[0].longest), (100_000 + RAN_OUT, RAN_OUT));
        // nor does one outlast the capture
        assert_eq!(pauses.rows(10 * MS + 5)[0].time, 100_005);
        let spans: Vec<_> = pauses.spans(i64::MAX).iter().map(|s| (s.begin.time, s.end)).collect();
        assert_eq!(spans, [(0, 100_000), (10 * MS, 10 * MS + RAN_OUT)]);
    }

    #[test]
    fn what_is_asked_for_again_in_time_is_one_pause() {
        let mut pauses = Pauses::default();
        (0..10).for_each(|n| pauses.add(at(n * 300_000), &frame(0b11, 0xffff)));
        let rows = pauses.rows(i64::MAX);
        let priorities: Vec<_> = rows.iter().map(|r| r.priority).collect();
        assert_eq!(priorities, [Some(0), Some(1)]);
        assert_eq!((rows[0].frames, rows[0].time), (10, 9 * 300_000 + RAN_OUT));
        let told: i64 = pauses.series(i64::MAX).iter().map(|(_, ns)| ns).sum();
        assert!((2 * rows[0].time - told).abs() < 1000, "the story tells of all of it");
    }

    #[test]
    fn times_are_by_priority_and_a_plain_pause_is_of_the_link() {
        let mut pauses = Pauses::default();
        let times = [0, 0xffff, 0, 0, 0, 0, 0, 0];
        pauses.add(at(0), &frame(0b1, 0xffff));
        pauses.add(at(5), &Pause { times, ..frame(0b11, 0xffff) });
        pauses.add(at(9), &Pause { whole_link: true, ..frame(0xff, 7) });
        let rows: Vec<_> = pauses.rows(i64::MAX).iter().map(|r| (r.priority, r.time)).collect();
        assert_eq!(rows, [(Some(0), 5), (Some(1), RAN_OUT), (None, 7 * QUANTUM / 100)]);
    }

    #[test]
    fn what_a_hostile_capture_says_is_bounded() {
        let mut pauses = Pauses::default();
        for n in 0..20_000u64 {
            let source = [0, 0, 0, 0, (n >> 8) as u8, n as u8];
            pauses.add(at((n as i64 % 3) * (i64::MAX / 2)), &Pause { source, ..frame(0xff, 0xffff) });
        }
        pauses.add(at(i64::MIN), &frame(1, 1));
        assert!(pauses.rows(i64::MAX).len() <= ROWS_MAX && pauses.spans(i64::MIN).len() <= SPANS_MAX);
    }
}
