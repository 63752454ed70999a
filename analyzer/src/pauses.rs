//! Pauses of traffic by sender and class, with their duration: priority flow control (IEEE 802.1Qbb) and 802.3x pauses.
//!
//! ```text
//!   pause frame ─▶ Pauses::add ─▶ a stretch of its sender and priority ─▶ an interval: until a time of 0, or until its quanta run out
//!                                                                          │
//!   the speed of the link: of the capture's interface, else listed by SMB servers, else taken to be 100 Gbit/s
//! ```
//!
//! A quantum is 512 bit times. The speed of the link may be known only in the end, so stretches are kept, up to a
//! number of them.
//!
//! [`Recent`] has the last intervals of each sender, as frames come: what connections are held up by.

use crate::op::At;
use crate::series::{Join, Series};
use crate::stored::{stored, stored_enum};
use alloc::vec::Vec;
use core::fmt;
use rdmascope_dissector::frame::Pause;
use rdmascope_dissector::text::Elapsed;

/// Senders and priorities that are followed.
const ROWS_MAX: usize = 256;
/// Intervals that are kept.
const SPANS_MAX: usize = 4096;
/// Stretches that are kept until the end: beyond that they are counted with the speed that is known by then.
const STRETCHES_MAX: usize = 1 << 14;
/// Interfaces whose speed is kept.
const LINKS_MAX: usize = 1024;
/// Bits of a quantum.
const QUANTUM: i128 = 512;
/// Bits a second that are assumed for a link of unknown speed.
const USUAL: u64 = 100_000_000_000;
/// Bits a second that a link may have.
const SPEEDS: core::ops::RangeInclusive<u64> = 1_000_000..=FASTEST;
/// Bits a second than which no link is faster.
const FASTEST: u64 = 1_600_000_000_000;
/// Bits a second of the slowest link of unknown speed on which a pause is followed until it is renewed.
const SLOWEST: u64 = 10_000_000_000;
/// Last intervals of a sender and priority that are kept for the packets to come.
const RECENT: usize = 8;
/// ns behind the end of a pause within which packets that it held back come out.
const RELEASE: i64 = 500_000;
/// The same as a part of the duration of the pause.
const RELEASE_SHARE: i64 = 32;
/// ns between two pauses in which a sender may not have come to send.
const BREAK: i64 = 20_000;
/// ns in which a device still sends what it was sending when the pause came.
const REACTION: i64 = 2_000;
/// ns behind the beginning of a pause in which packets still pass that were on their way: those that pass later are not
/// of its class.
const PASSED: i64 = 100_000;
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
    /// Ethernet address of the device that sent the pause frame.
    pub source: [u8; 6],
    /// Priority that is paused; `None` for the whole link (802.3x).
    pub priority: Option<u8>,
    /// The frame that began it.
    pub begin: At,
    /// Time of its end, in ns since the Unix epoch.
    pub end: i64,
}

impl Span {
    /// Its duration, in ns.
    pub const fn lasted(&self) -> i64 {
        self.end.saturating_sub(self.begin.time)
    }
}

/// Source of the speed of a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Source {
    /// The capture has it for the interface (`if_speed` of pcapng).
    Capture,
    /// SMB servers list it of their interfaces, and all of them the same.
    Listed,
    /// It is not known.
    Assumed,
}

impl Source {
    /// Name in JSON.
    pub const fn key(self) -> &'static str {
        match self {
            Self::Capture => "capture",
            Self::Listed => "smb_interfaces",
            Self::Assumed => "assumed",
        }
    }
}

/// Speed of a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Speed {
    /// Bits a second.
    pub bits: u64,
    /// Source of this value.
    pub from: Source,
}

impl Speed {
    /// Duration of `quanta`, in ns.
    fn lasting(self, quanta: u16) -> i64 {
        i64::try_from(i128::from(quanta) * QUANTUM * 1_000_000_000 / i128::from(self.bits.max(1))).unwrap_or(i64::MAX)
    }
}

impl fmt::Display for Speed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (whole, part) = (self.bits / 1_000_000_000, self.bits % 1_000_000_000 / 100_000_000);
        match (whole, part) {
            (0, _) => write!(f, "{} Mbit/s", self.bits / 1_000_000)?,
            (_, 0) => write!(f, "{whole} Gbit/s")?,
            _ => write!(f, "{whole}.{part} Gbit/s")?,
        }
        f.write_str(match self.from {
            Source::Capture => ", the speed of the interface",
            Source::Listed => ", the speed that the server lists",
            Source::Assumed => ", which is assumed",
        })
    }
}

/// All pauses of one priority by one device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Paused {
    /// Ethernet address of the device that sent the pause frames.
    pub source: [u8; 6],
    /// Priority that is paused; `None` for the whole link (802.3x).
    pub priority: Option<u8>,
    /// Frames that asked to pause; those that end a pause do not count.
    pub frames: u64,
    /// Quanta that they asked for.
    pub quanta: u64,
    /// The first of them.
    pub first: At,
    /// ns paused.
    pub time: i64,
    /// Of those, ns of pauses that were not taken back: they last as long as their quanta, which depend on the speed of
    /// the link.
    pub ran_out: i64,
    /// The longest interval, in ns.
    pub longest: i64,
    /// The speed with which that was counted.
    pub speed: Speed,
}

impl Paused {
    /// The part of its time that depends on an assumed speed: if that is more than half, the time is a guess.
    pub fn is_guess(&self) -> bool {
        self.speed.from == Source::Assumed && self.ran_out > self.time / 2
    }

    /// The part of its time that depends on the speed of the link, as the end of a sentence; empty if there is none.
    pub fn note(&self) -> impl fmt::Display {
        struct Note(Paused);
        impl fmt::Display for Note {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                match self.0 {
                    Paused { ran_out: 0, .. } => Ok(()),
                    Paused { ran_out, time, speed, .. } if ran_out == time => {
                        write!(f, ", until the quanta ran out at {speed}")
                    }
                    Paused { ran_out, speed, .. } => {
                        write!(f, ", {} of it until the quanta ran out at {speed}", Elapsed(ran_out))
                    }
                }
            }
        }
        Note(*self)
    }
}

/// Frames of one sender and priority, each sent before the quanta of the one before could have run out on any link.
#[derive(Clone, Copy, Debug)]
struct Stretch {
    /// Index of the row.
    row: u16,
    /// Quanta of the last frame.
    quanta: u16,
    /// Number of the interface of the capture.
    interface: u32,
    begin: At,
    /// Time of the last frame, in ns since the Unix epoch.
    last: i64,
    /// Time at which it was taken back, in ns since the Unix epoch.
    end: Option<i64>,
}

/// Speeds of the interfaces of a capture, in bits a second.
#[derive(Clone, Debug, Default)]
struct Links(Vec<(u32, u64)>);

impl Links {
    fn set(&mut self, interface: u32, bits: u64) {
        if !SPEEDS.contains(&bits) {
            return;
        }
        match self.0.iter().position(|(known, _)| *known == interface) {
            Some(place) => self.0[place].1 = bits,
            None if self.0.len() < LINKS_MAX => self.0.push((interface, bits)),
            None => {}
        }
    }

    fn of(&self, interface: u32) -> Option<u64> {
        self.0.iter().find(|(known, _)| *known == interface).map(|(_, bits)| *bits)
    }
}

/// Pause times of a frame by priority; `None` for the whole link.
fn each(pause: &Pause) -> impl Iterator<Item = (Option<u8>, u16)> {
    let whole = pause.whole_link.then_some((None, pause.times[0]));
    let priorities = if pause.whole_link { 0 } else { pause.priorities };
    let times = pause.times;
    let classes = (0..8u8).filter(move |p| priorities >> p & 1 != 0).map(move |p| (Some(p), times[usize::from(p)]));
    whole.into_iter().chain(classes)
}

/// An interval of [`Recent`].
#[derive(Clone, Copy, Debug, Default)]
struct Last {
    begin: At,
    /// When it was taken back, or its quanta ran out: then without a frame.
    end: At,
    /// Until when it may last at the longest, as far as the speed of the link is known.
    latest: i64,
    /// True if it was not taken back.
    open: bool,
}

/// The last intervals of one sender and priority.
#[derive(Clone, Copy, Debug)]
struct Sender {
    source: [u8; 6],
    priority: Option<u8>,
    /// A ring; `count` were put in.
    last: [Last; RECENT],
    count: usize,
}

impl Sender {
    fn newest(&mut self) -> Option<&mut Last> {
        (self.count > 0).then(|| &mut self.last[(self.count - 1) % RECENT])
    }

    fn one(&mut self, at: At, known: Option<u64>, quanta: u16) {
        let lasting = |bits| at.time.saturating_add(Speed { bits, from: Source::Assumed }.lasting(quanta));
        let (end, latest) = (lasting(known.unwrap_or(USUAL)), lasting(known.unwrap_or(SLOWEST)));
        let open = self.newest().filter(|last| last.open && last.begin.time <= at.time && at.time <= last.latest);
        match open {
            Some(open) if quanta == 0 => (open.end, open.open) = (at, false),
            // a device that renews a pause does so before it is over
            Some(open) => (open.end, open.latest) = (At { frame: 0, time: end }, latest),
            None if quanta == 0 => {}
            None => {
                self.last[self.count % RECENT] =
                    Last { begin: at, end: At { frame: 0, time: end }, latest, open: true };
                // as far as the place in the ring tells all that is asked of it
                self.count = if self.count + 1 >= 2 * RECENT { RECENT } else { self.count + 1 };
            }
        }
    }

    /// The interval without a break that packets waited for which come out at `to`, the first since `from`. `way` is as
    /// in [`Way`].
    fn held(&self, from: i64, to: i64, way: i64) -> Option<(At, At)> {
        let mut found: Option<(At, At)> = None;
        for n in 0..self.count.min(RECENT) {
            let last = &self.last[(self.count - 1 - n) % RECENT];
            if last.end.time <= from || last.begin.time >= to {
                continue;
            }
            found = match found {
                None => {
                    let lasted = last.end.time.saturating_sub(last.begin.time).max(0);
                    let latest = last.end.time.saturating_add(RELEASE + lasted / RELEASE_SHARE).saturating_add(way);
                    (latest >= to).then_some((last.begin, last.end))
                }
                Some((begin, end)) if begin.time.saturating_sub(last.end.time) <= BREAK => Some((last.begin, end)),
                Some(_) => return found,
            };
            found?;
        }
        found
    }
}

/// Who is paused, as far as a capture point can know.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Certainly {
    /// The receiver's port paused the whole link, or the priority that the packets carry.
    Paused,
    /// The receiver's port paused a priority; the packets do not say which is theirs.
    PerhapsPaused,
    /// A port that is neither end's paused what is sent to it.
    Elsewhere,
}

/// Source addresses of an end's packets that are kept: its own, and that of a router behind which it is captured too.
const PORTS: usize = 2;

/// What pauses are compared with of the packets that an end sends.
#[derive(Clone, Copy, Debug, Default)]
pub struct Port {
    macs: [[u8; 6]; PORTS],
    known: usize,
    priority: Option<u8>,
    last: At,
}

impl Port {
    /// Source addresses of its packets.
    pub fn macs(&self) -> &[[u8; 6]] {
        &self.macs[..self.known]
    }

    /// Priority in the VLAN tag of the last packet.
    pub const fn priority(&self) -> Option<u8> {
        self.priority
    }

    /// Its last packet; the default before the first.
    pub fn last(&self) -> At {
        self.last
    }

    /// A packet of it was seen. Returns the frame and time of the one before; the default of the first.
    #[inline]
    pub fn sent(&mut self, at: At, mac: [u8; 6], priority: Option<u8>) -> At {
        self.priority = priority;
        if !self.macs().contains(&mac) && mac != [0; 6] && self.known < PORTS {
            self.macs[self.known] = mac;
            self.known += 1;
        }
        core::mem::replace(&mut self.last, at)
    }

    /// Takes over the other half of a connection.
    pub fn adopt(&mut self, from: &Self) {
        if from.last.time > self.last.time {
            (self.last, self.priority) = (from.last, from.priority);
        }
        for mac in from.macs() {
            if !self.macs().contains(mac) && self.known < PORTS {
                self.macs[self.known] = *mac;
                self.known += 1;
            }
        }
    }
}

/// One direction of a connection, as far as pauses can tell what is its own.
#[derive(Clone, Copy, Debug)]
pub struct Way<'m> {
    /// Source addresses of the sender's packets.
    pub mine: &'m [[u8; 6]],
    /// Source addresses of the receiver's packets.
    pub peers: &'m [[u8; 6]],
    /// Priority in the VLAN tag of the packets.
    pub priority: Option<u8>,
    /// ns from the capture point to the sender and back, as far as known: what a pause held back comes out that much
    /// after its end.
    pub way: i64,
}

/// The last intervals of all senders, for packets as they come. Bounded: of each sender a few.
#[derive(Clone, Debug, Default)]
pub struct Recent {
    senders: Vec<Sender>,
    links: Links,
}

impl Recent {
    /// True if there was no pause.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.senders.is_empty()
    }

    /// Sets the speed of an interface of the capture, in bits a second.
    pub fn link(&mut self, interface: u32, bits: u64) {
        self.links.set(interface, bits);
    }

    /// A pause frame that came from an interface of the capture.
    pub fn add(&mut self, at: At, interface: u32, pause: &Pause) {
        let known = self.links.of(interface);
        for (priority, quanta) in each(pause) {
            let place = self.senders.iter().position(|s| (s.source, s.priority) == (pause.source, priority));
            let place = match place {
                Some(place) => place,
                None if quanta > 0 && self.senders.len() < ROWS_MAX => {
                    self.senders.push(Sender {
                        source: pause.source,
                        priority,
                        last: [Last::default(); RECENT],
                        count: 0,
                    });
                    self.senders.len() - 1
                }
                None => continue,
            };
            self.senders[place].one(at, known, quanta);
        }
    }

    /// The pause that held a packet up which was seen at `to`, the first of its direction since `from`: begin and end,
    /// and how sure that is. The surest counts, then the longest.
    pub fn held(&self, way: &Way<'_>, from: At, to: At) -> Option<(At, At, Certainly)> {
        let mut best: Option<(At, At, Certainly)> = None;
        for sender in &self.senders {
            let (mine, peers) = (way.mine.contains(&sender.source), way.peers.contains(&sender.source));
            let how = match (mine, peers, sender.priority, way.priority) {
                // an end does not stop itself
                (true, false, ..) => continue,
                (false, true, Some(paused), Some(priority)) if paused != priority => continue,
                (false, true, Some(_), None) => Certainly::PerhapsPaused,
                (false, true, ..) => Certainly::Paused,
                (_, _, Some(paused), Some(priority)) if paused != priority => continue,
                _ => Certainly::Elsewhere,
            };
            let Some((begin, end)) = sender.held(from.time, to.time, way.way) else { continue };
            let passed = from.time.saturating_sub(begin.time).saturating_sub(way.way);
            if sender.priority.is_some() && way.priority.is_none() && passed > PASSED {
                // packets went on while it lasted: theirs is another class
                continue;
            }
            let begin = if begin.time < from.time { from } else { begin };
            let end = if end.frame == 0 || end.time > to.time {
                At { frame: to.frame, time: end.time.min(to.time) }
            } else {
                end
            };
            let lasted = end.time.saturating_sub(begin.time);
            let is_surer = best.is_none_or(|known| {
                let longer = lasted > known.1.time.saturating_sub(known.0.time);
                (how as u8) < known.2 as u8 || how == known.2 && longer
            });
            if lasted >= REACTION && is_surer {
                best = Some((begin, end, how));
            }
        }
        best
    }
}

/// All pauses of a capture.
#[derive(Clone, Debug, Default)]
pub struct Pauses {
    rows: Vec<Paused>,
    stretches: Vec<Stretch>,
    /// By row, the place of its last stretch.
    recent: Vec<Option<usize>>,
    spans: Vec<Span>,
    omitted: u64,
    series: Series<Lasted>,
    /// Bits a second by interface of the capture.
    links: Links,
    /// Bits a second that servers list.
    listed: Option<u64>,
}

impl Pauses {
    /// A pause frame that came from an interface of the capture.
    pub fn add(&mut self, at: At, interface: u32, pause: &Pause) {
        for (priority, quanta) in each(pause) {
            self.one(at, interface, pause.source, priority, quanta);
        }
    }

    /// Sets the speed of an interface of the capture, in bits a second.
    pub fn link(&mut self, interface: u32, bits: u64) {
        self.links.set(interface, bits);
    }

    /// Sets the speeds of the interfaces that servers list, in bits a second: of use if all are alike.
    pub fn listed(&mut self, speeds: impl Iterator<Item = u64>) {
        let mut speeds = speeds.filter(|bits| SPEEDS.contains(bits));
        let first = speeds.next();
        self.listed = first.filter(|first| speeds.all(|bits| bits == *first));
    }

    fn speed(&self, interface: u32) -> Speed {
        let known = self.links.of(interface);
        match (known, self.listed) {
            (Some(bits), _) => Speed { bits, from: Source::Capture },
            (None, Some(bits)) => Speed { bits, from: Source::Listed },
            (None, None) => Speed { bits: USUAL, from: Source::Assumed },
        }
    }

    fn one(&mut self, at: At, interface: u32, source: [u8; 6], priority: Option<u8>, quanta: u16) {
        let place = self.rows.iter().position(|row| (row.source, row.priority) == (source, priority));
        let place = match place {
            Some(place) => place,
            None if quanta > 0 && self.rows.len() < ROWS_MAX => {
                let speed = self.speed(interface);
                self.rows.push(Paused {
                    source,
                    priority,
                    frames: 0,
                    quanta: 0,
                    first: at,
                    time: 0,
                    ran_out: 0,
                    longest: 0,
                    speed,
                });
                self.recent.push(None);
                self.rows.len() - 1
            }
            None => return,
        };
        let row = &mut self.rows[place];
        row.frames += u64::from(quanta > 0);
        row.quanta = row.quanta.saturating_add(quanta.into());
        let open = self.recent[place].and_then(|recent| self.stretches.get_mut(recent)).filter(|s| s.end.is_none());
        let fastest = Speed { bits: FASTEST, from: Source::Assumed };
        match open {
            Some(open) if quanta == 0 => open.end = Some(at.time),
            Some(open)
                if open.interface == interface && at.time <= open.last.saturating_add(fastest.lasting(open.quanta)) =>
            {
                (open.last, open.quanta) = (at.time, quanta);
            }
            _ if quanta == 0 => {}
            _ => {
                if self.stretches.len() >= STRETCHES_MAX {
                    self.settle();
                }
                self.recent[place] = Some(self.stretches.len());
                self.stretches.push(Stretch {
                    row: place as u16,
                    quanta,
                    interface,
                    begin: at,
                    last: at.time,
                    end: None,
                });
            }
        }
    }

    /// Counts all stretches but the last of each row, with the speeds that are known by now.
    #[cold]
    fn settle(&mut self) {
        let mut last: Vec<Option<Stretch>> = alloc::vec![None; self.rows.len()];
        let mut rest = Vec::with_capacity(self.stretches.len());
        for stretch in core::mem::take(&mut self.stretches) {
            if let Some(slot) = last.get_mut(usize::from(stretch.row)) {
                rest.extend(slot.replace(stretch));
            }
        }
        self.count(&rest, i64::MAX);
        self.stretches = last.into_iter().flatten().collect();
        self.recent.fill(None);
        for (place, stretch) in self.stretches.iter().enumerate() {
            self.recent[usize::from(stretch.row)] = Some(place);
        }
    }

    /// Makes intervals of stretches, which are in the order in which they came.
    fn count(&mut self, stretches: &[Stretch], now: i64) {
        // by row: begin, end, and the time of the last frame: the part behind that lasts only if it is not taken back
        let mut open: Vec<Option<(At, i64, i64)>> = alloc::vec![None; self.rows.len()];
        for stretch in stretches {
            let place = usize::from(stretch.row);
            let speed = self.speed(stretch.interface);
            let until = stretch.last.saturating_add(speed.lasting(stretch.quanta));
            let mut since = stretch.begin;
            if let Some((before, end, last)) = open[place].take() {
                if stretch.begin.time <= end {
                    since = before;
                } else {
                    self.close(place, before, end.min(now), last);
                }
            }
            self.rows[place].speed = speed;
            match stretch.end {
                Some(end) if end <= until => self.close(place, since, end.min(now), i64::MAX),
                _ => open[place] = Some((since, until, stretch.last)),
            }
        }
        for (place, left) in open.into_iter().enumerate() {
            if let Some((since, end, last)) = left {
                self.close(place, since, end.min(now), last);
            }
        }
    }

    /// `last`: time of the last frame, whose quanta ran out, in ns.
    fn close(&mut self, place: usize, begin: At, end: i64, last: i64) {
        let Paused { source, priority, .. } = self.rows[place];
        let span = Span { source, priority, begin, end: end.max(begin.time) };
        let row = &mut self.rows[place];
        row.time = row.time.saturating_add(span.lasted());
        row.ran_out = row.ran_out.saturating_add(span.end.saturating_sub(last).clamp(0, span.lasted()));
        row.longest = row.longest.max(span.lasted());
        spread(&mut self.series, &span);
        if self.spans.len() < SPANS_MAX {
            self.spans.push(span);
        } else {
            self.omitted += 1;
        }
    }

    /// True if there was no pause.
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// Pauses by sender and priority, as they came; a pause that is not over ends with the capture, at `end`, at the
    /// latest.
    pub fn rows(&self, end: i64) -> Vec<Paused> {
        self.finished(end).rows
    }

    /// All intervals that are kept, in the order in which they began.
    pub fn spans(&self, end: i64) -> Vec<Span> {
        let mut spans = self.finished(end).spans;
        spans.sort_by_key(|span| (span.begin, span.source, span.priority));
        spans
    }

    /// Number of intervals that are not kept.
    pub fn omitted(&self, end: i64) -> u64 {
        self.finished(end).omitted
    }

    /// ns paused over time: the time of each point, and its sum. Several devices and priorities count each.
    pub fn series(&self, end: i64) -> Vec<(i64, i64)> {
        self.finished(end).series.points().map(|(time, lasted)| (time, lasted.0)).collect()
    }

    fn finished(&self, now: i64) -> Self {
        let mut all = self.clone();
        let stretches = core::mem::take(&mut all.stretches);
        all.count(&stretches, now);
        all
    }
}

/// Spreads an interval over the story.
fn spread(series: &mut Series<Lasted>, span: &Span) {
    let pieces = (span.lasted() / PIECE).clamp(1, PIECES);
    let piece = span.lasted() / pieces;
    for n in 0..pieces {
        series.add(span.begin.time.saturating_add(n * piece), Lasted(piece));
    }
}

stored!(Lasted { 0 });
stored!(Span { source, priority, begin, end });
stored_enum!(Source { Capture, Listed, Assumed });
stored!(Speed { bits, from });
stored!(Paused { source, priority, frames, quanta, first, time, ran_out, longest, speed });
stored!(Stretch { row, quanta, interface, begin, last, end });
stored!(Links { 0 });
stored!(Pauses { rows, stretches, recent, spans, omitted, series, links, listed });

#[cfg(test)]
mod tests {
    use super::*;

    const US: i64 = 1000;
    const CLIENT: [u8; 6] = [2, 0, 0, 0, 0, 1];
    const SERVER: [u8; 6] = [2, 0, 0, 0, 0, 2];
    const SWITCH: [u8; 6] = [2, 0, 0, 0, 0, 3];

    fn seen(time: i64) -> At {
        At { frame: time as u64 / 1000, time }
    }

    fn pfc(source: [u8; 6], priority: u8, quanta: u16) -> Pause {
        let mut times = [0; 8];
        times[usize::from(priority)] = quanta;
        Pause { source, priorities: 1 << priority, quanta, times, whole_link: false }
    }

    /// Begin and end in µs, and how sure, of the pause that a packet of the server waited for, which comes at `to` µs,
    /// the first since `from` µs.
    fn held(recent: &Recent, priority: Option<u8>, from: i64, to: i64) -> Option<(i64, i64, Certainly)> {
        let way = Way { mine: &[SERVER], peers: &[CLIENT], priority, way: 0 };
        recent.held(&way, seen(from * US), seen(to * US)).map(|(begin, end, how)| (begin.time / US, end.time / US, how))
    }

    #[test]
    fn packets_that_pass_while_a_class_is_paused_are_of_another() {
        let passed = |of_packets: Option<u8>, us: i64| {
            let mut recent = Recent::default();
            recent.add(seen(1000 * US), 0, &pfc(CLIENT, 3, u16::MAX));
            recent.add(seen(1300 * US), 0, &pfc(CLIENT, 3, u16::MAX));
            recent.add(seen(1500 * US), 0, &pfc(CLIENT, 3, 0));
            held(&recent, of_packets, 1000 + us, 1510).map(|(.., how)| how)
        };
        assert_eq!([100, 101].map(|us| passed(None, us)), [Some(Certainly::PerhapsPaused), None]);
        assert_eq!(passed(Some(3), 101), Some(Certainly::Paused), "they say that they are of that class");
    }

    #[test]
    fn what_a_pause_held_back_comes_out_a_way_later() {
        let mut recent = Recent::default();
        recent.add(seen(1000 * US), 0, &pfc(CLIENT, 3, 0xffff));
        recent.add(seen(1100 * US), 0, &pfc(CLIENT, 3, 0));
        let held = |way: i64, to: i64| {
            let way = Way { mine: &[SERVER], peers: &[CLIENT], priority: Some(3), way: way * US };
            recent.held(&way, seen(900 * US), seen(to * US)).is_some()
        };
        // half a millisecond and a share of the pause after its end
        assert_eq!([held(0, 1603), held(0, 1604), held(1000, 2603), held(1000, 2604)], [true, false, true, false]);
    }

    #[test]
    fn a_pause_stops_what_is_sent_to_its_source() {
        let quanta = 0xffff;
        for (source, priority, of_packets, expected) in [
            (CLIENT, 3, Some(3), Some(Certainly::Paused)),
            (CLIENT, 3, Some(4), None),
            (CLIENT, 3, None, Some(Certainly::PerhapsPaused)),
            (SERVER, 3, Some(3), None),
            (SWITCH, 3, Some(3), Some(Certainly::Elsewhere)),
            (SWITCH, 3, Some(4), None),
            (SWITCH, 3, None, Some(Certainly::Elsewhere)),
        ] {
            let mut recent = Recent::default();
            recent.add(seen(1000 * US), 0, &pfc(source, priority, quanta));
            recent.add(seen(1100 * US), 0, &pfc(source, priority, 0));
            let found = held(&recent, of_packets, 500, 1101);
            assert_eq!(found, expected.map(|how| (1000, 1100, how)), "{source:?} {priority} {of_packets:?}");
        }
        // the whole link, and of several the surest
        let mut recent = Recent::default();
        recent.add(seen(900 * US), 0, &pfc(SWITCH, 3, quanta));
        let all = Pause { whole_link: true, priorities: 0xff, times: [100; 8], quanta: 100, source: CLIENT };
        recent.add(seen(1000 * US), 0, &all);
        // 100 quanta at 100 Gbit/s: half a microsecond, which is less than the reaction to it
        assert_eq!(held(&recent, None, 500, 1001), Some((900, 1001, Certainly::Elsewhere)));
        let all = Pause { times: [1000; 8], quanta: 1000, ..all };
        recent.add(seen(1100 * US), 0, &all);
        assert_eq!(held(&recent, None, 500, 1110), Some((1100, 1105, Certainly::Paused)));
        // a port that sends packets of both ends says nothing of either
        let both = Way { mine: &[SERVER, SWITCH], peers: &[CLIENT, SWITCH], priority: Some(3), way: 0 };
        assert_eq!(recent.held(&both, seen(500 * US), seen(950 * US)).map(|(.., how)| how), Some(Certainly::Elsewhere));
    }

    #[test]
    fn a_pause_ends_by_its_quanta_at_the_speed_of_the_link_and_goes_on_when_it_is_renewed() {
        let mut recent = Recent::default();
        recent.link(1, 10_000_000_000);
        // 1000 quanta at 10 Gbit/s: 51.2 µs
        recent.add(seen(1000 * US), 1, &pfc(CLIENT, 3, 1000));
        assert_eq!(
            held(&recent, Some(3), 900, 1020),
            Some((1000, 1020, Certainly::Paused)),
            "a packet shows that it is over"
        );
        assert_eq!(held(&recent, Some(3), 1010, 1100), Some((1010, 1051, Certainly::Paused)), "it began to wait later");
        assert_eq!(held(&recent, Some(3), 900, 1552), Some((1000, 1051, Certainly::Paused)));
        assert_eq!(held(&recent, Some(3), 900, 1553), None, "this one would have come at once");
        assert_eq!(held(&recent, Some(3), 1052, 1100), None);
        recent.add(seen(1040 * US), 1, &pfc(CLIENT, 3, 1000));
        recent.add(seen(1080 * US), 1, &pfc(CLIENT, 3, 1000));
        assert_eq!(held(&recent, Some(3), 900, 1140), Some((1000, 1131, Certainly::Paused)));
        // taken back; the next one follows at once
        recent.add(seen(1090 * US), 1, &pfc(CLIENT, 3, 0));
        recent.add(seen(1100 * US), 1, &pfc(CLIENT, 3, 1000));
        assert_eq!(held(&recent, Some(3), 900, 1140), Some((1000, 1140, Certainly::Paused)));
        // and one that leaves time to send
        recent.add(seen(1200 * US), 1, &pfc(CLIENT, 3, 1000));
        assert_eq!(held(&recent, Some(3), 900, 1240), Some((1200, 1240, Certainly::Paused)));
        // a ring of the last ones
        for n in 0..40 {
            recent.add(seen((5000 + n * 1000) * US), 1, &pfc(CLIENT, 3, 1000));
            let at = 5000 + n * 1000;
            assert_eq!(held(&recent, Some(3), at - 500, at + 60), Some((at, at + 51, Certainly::Paused)));
        }
        // on a link of unknown speed a device that renews it shows that it lasts
        for n in 0..4 {
            recent.add(seen((60_000 + n * 1500) * US), 2, &pfc(CLIENT, 3, 0xffff));
        }
        assert_eq!(held(&recent, Some(3), 59_000, 64_600), Some((60_000, 64_600, Certainly::Paused)));
    }

    #[test]
    fn an_end_is_known_by_the_source_addresses_of_its_packets() {
        let mut port = Port::default();
        assert_eq!(port.sent(seen(5 * US), SERVER, Some(3)), At::default());
        assert_eq!(port.sent(seen(6 * US), [0; 6], None), seen(5 * US));
        assert_eq!((port.macs(), port.priority()), (&[SERVER][..], None));
        [SWITCH, CLIENT].into_iter().for_each(|mac| _ = port.sent(seen(7 * US), mac, None));
        assert_eq!(port.macs(), [SERVER, SWITCH]);
        let mut other = Port::default();
        other.adopt(&port);
        assert_eq!(other.macs(), [SERVER, SWITCH]);
        assert_eq!(other.sent(seen(9 * US), SERVER, None), seen(7 * US));
    }

    const MS: i64 = 1_000_000;
    const A: [u8; 6] = [2, 0, 0, 0, 0, 1];
    /// As at 100 Gbit/s.
    const RAN_OUT: i64 = 0xffff * 512 / 100;

    fn at(time: i64) -> At {
        At { frame: 1, time }
    }

    fn frame(priorities: u8, quanta: u16) -> Pause {
        Pause { source: A, priorities, quanta, times: [quanta; 8], whole_link: false }
    }

    #[test]
    fn a_pause_ends_when_it_is_taken_back_or_runs_out() {
        let mut pauses = Pauses::default();
        pauses.add(at(0), 0, &frame(0b1000, 0xffff));
        pauses.add(at(100_000), 0, &frame(0b1000, 0));
        pauses.add(at(10 * MS), 0, &frame(0b1000, 0xffff));
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
        (0..10).for_each(|n| pauses.add(at(n * 300_000), 0, &frame(0b11, 0xffff)));
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
        pauses.add(at(0), 0, &frame(0b1, 0xffff));
        pauses.add(at(5), 0, &Pause { times, ..frame(0b11, 0xffff) });
        pauses.add(at(9), 0, &Pause { whole_link: true, ..frame(0xff, 7) });
        let rows: Vec<_> = pauses.rows(i64::MAX).iter().map(|r| (r.priority, r.time)).collect();
        assert_eq!(rows, [(Some(0), 5), (Some(1), RAN_OUT), (None, 7 * 512 / 100)]);
    }

    #[test]
    fn what_a_hostile_capture_says_is_bounded() {
        let mut pauses = Pauses::default();
        for n in 0..20_000u64 {
            let source = [0, 0, 0, 0, (n >> 8) as u8, n as u8];
            pauses.add(at((n as i64 % 3) * (i64::MAX / 2)), 0, &Pause { source, ..frame(0xff, 0xffff) });
        }
        pauses.add(at(i64::MIN), 0, &frame(1, 1));
        assert!(pauses.rows(i64::MAX).len() <= ROWS_MAX && pauses.spans(i64::MIN).len() <= SPANS_MAX);
    }

    #[test]
    fn how_long_quanta_last_follows_from_the_speed_of_the_link() {
        let mut pauses = Pauses::default();
        pauses.add(at(0), 0, &frame(0b1000, 0xffff));
        pauses.add(at(10 * MS), 1, &frame(0b10000, 0xffff));
        pauses.add(at(10 * MS + 50_000), 1, &frame(0b10000, 0));
        let told = |pauses: &Pauses| {
            let rows = pauses.rows(i64::MAX);
            assert_eq!((rows[1].time, rows[1].ran_out), (50_000, 0), "what was taken back depends on no speed");
            (rows[0].time, rows[0].quanta, rows[0].is_guess(), alloc::string::ToString::to_string(&rows[0].note()))
        };
        let text = ", until the quanta ran out at 100 Gbit/s, which is assumed";
        assert_eq!(told(&pauses), (RAN_OUT, 0xffff, true, text.into()));
        // one server lists another speed than the others: then it is not known which one counts
        pauses.listed([25_000_000_000, 10_000_000_000].into_iter());
        assert_eq!(told(&pauses).0, RAN_OUT);
        pauses.listed([0, 25_000_000_000, 25_000_000_000].into_iter());
        let text = ", until the quanta ran out at 25 Gbit/s, the speed that the server lists";
        assert_eq!(told(&pauses), (0xffff * 512 / 25, 0xffff, false, text.into()));
        pauses.link(0, 2_500_000_000);
        let text = ", until the quanta ran out at 2.5 Gbit/s, the speed of the interface";
        assert_eq!(told(&pauses), (0xffff * 5120 / 25, 0xffff, false, text.into()));
        // no link has that
        pauses.link(0, 0);
        pauses.link(0, u64::MAX);
        assert_eq!(told(&pauses).0, 0xffff * 5120 / 25);
    }

    #[test]
    fn frames_that_are_apart_on_a_fast_link_are_together_on_a_slow_one() {
        let mut pauses = Pauses::default();
        (0..10).for_each(|n| pauses.add(at(n * MS), 0, &frame(0b1, 0xffff)));
        assert_eq!((pauses.spans(i64::MAX).len(), pauses.rows(i64::MAX)[0].time), (10, 10 * RAN_OUT));
        pauses.link(0, 10_000_000_000);
        let rows = pauses.rows(i64::MAX);
        assert_eq!(
            (pauses.spans(i64::MAX).len(), rows[0].time, rows[0].ran_out),
            (1, 9 * MS + 10 * RAN_OUT + 2, 10 * RAN_OUT + 2)
        );
    }

    #[test]
    fn more_stretches_than_are_kept_lose_no_time() {
        let mut pauses = Pauses::default();
        let many = 3 * STRETCHES_MAX as i64;
        for n in 0..many {
            pauses.add(at(n * MS), 0, &frame(0b1, 0xffff));
            pauses.add(at(n * MS + 1000), 0, &frame(0b1, 0));
        }
        assert!(pauses.stretches.len() <= STRETCHES_MAX);
        let rows = pauses.rows(i64::MAX);
        assert_eq!((rows[0].time, rows[0].ran_out, rows[0].longest), (many * 1000, 0, 1000));
        assert_eq!(pauses.omitted(i64::MAX), many as u64 - SPANS_MAX as u64);
    }
}
