//! The time in a frame's line, in the format of `-t`. The keys are tshark's.

use crate::dissection::Dissected;
use crate::zone::Zone;
use rdmascope_dissector::calendar::{DateTime, days_of};
use std::io::Write;

/// Reference point of the time, and its format.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Since the first frame.
    Relative,
    /// Since the frame before.
    Delta,
    /// Since the frame shown before.
    DeltaDisplayed,
    /// Since 1970.
    Epoch,
    /// Time of day, in the local zone or UTC.
    Clock(DisplayZone, Date),
}

/// Time zone in which it is shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DisplayZone {
    /// Here.
    Local,
    /// UTC.
    Utc,
}

/// Format of the date.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Date {
    /// No date.
    No,
    /// Year, month and day.
    Full,
    /// Year and day of the year.
    DayOfYear,
}

/// The kinds by their keys. A suffix such as `.6` is the number of digits of the fraction, 0 to 9.
pub const KEYS: [(&str, Kind); 11] = [
    ("r", Kind::Relative),
    ("d", Kind::Delta),
    ("dd", Kind::DeltaDisplayed),
    ("e", Kind::Epoch),
    ("a", Kind::Clock(DisplayZone::Local, Date::No)),
    ("ad", Kind::Clock(DisplayZone::Local, Date::Full)),
    ("adoy", Kind::Clock(DisplayZone::Local, Date::DayOfYear)),
    ("u", Kind::Clock(DisplayZone::Utc, Date::No)),
    ("ud", Kind::Clock(DisplayZone::Utc, Date::Full)),
    ("udoy", Kind::Clock(DisplayZone::Utc, Date::DayOfYear)),
    ("rs", Kind::Relative),
];

/// Writes the times of frames in order.
#[derive(Clone, Debug)]
pub struct Times {
    kind: Kind,
    digits: usize,
    zone: Zone,
    shown_before: Option<i64>,
}

impl Default for Times {
    fn default() -> Self {
        Self { kind: Kind::Relative, digits: 6, zone: Zone::default(), shown_before: None }
    }
}

impl Times {
    /// Parses the argument of `-t`; `None` if it is not known.
    pub fn parse(text: &str) -> Option<Self> {
        let (key, digits) = match text.split_once('.') {
            Some((key, "")) => (key, 6),
            Some((key, digits)) => (key, digits.parse().ok().filter(|d| *d <= 9)?),
            None => (text, 6),
        };
        let (_, kind) = KEYS.iter().find(|(k, _)| *k == key)?;
        let zone = if matches!(kind, Kind::Clock(DisplayZone::Local, _)) { Zone::local() } else { Zone::default() };
        Some(Self { kind: *kind, digits, zone, shown_before: None })
    }

    /// True if it depends on the frames that were shown before.
    pub fn is_of_order(&self) -> bool {
        self.kind == Kind::DeltaDisplayed
    }

    /// Appends the time of a frame.
    pub fn write(&mut self, out: &mut Vec<u8>, d: &Dissected) {
        match self.kind {
            Kind::Relative => self.seconds(out, d.relative_ns),
            Kind::Delta => self.seconds(out, d.delta_ns),
            Kind::DeltaDisplayed => {
                let before = self.shown_before.replace(d.time_ns).unwrap_or(d.time_ns);
                self.seconds(out, d.time_ns.saturating_sub(before));
            }
            Kind::Epoch => self.seconds(out, d.time_ns),
            Kind::Clock(place, date) => self.clock(out, d.time_ns, place, date),
        }
    }

    fn clock(&self, out: &mut Vec<u8>, ns: i64, place: DisplayZone, date: Date) {
        let seconds = ns.div_euclid(1_000_000_000);
        let ahead = if place == DisplayZone::Local { i64::from(self.zone.offset(seconds)) } else { 0 };
        let t = DateTime::of_unix_seconds(seconds.saturating_add(ahead));
        // writing to a vector cannot fail
        let _ = match date {
            Date::No => Ok(()),
            Date::Full => write!(out, "{:04}-{:02}-{:02} ", t.year, t.month, t.day),
            Date::DayOfYear => {
                let day = |month, day| days_of(t.year, month, day).unwrap_or(0);
                write!(out, "{:04}/{:03} ", t.year, day(t.month, t.day) - day(1, 1) + 1)
            }
        };
        let _ = write!(out, "{:02}:{:02}:{:02}", t.hour, t.minute, t.second);
        self.fraction(out, ns.rem_euclid(1_000_000_000) as u64);
        if place == DisplayZone::Utc && date != Date::No {
            out.push(b'Z');
        }
    }

    /// Writes seconds with the requested number of decimals; further ones are cut off.
    fn seconds(&self, out: &mut Vec<u8>, ns: i64) {
        if ns < 0 {
            out.push(b'-');
        }
        let ns = ns.unsigned_abs();
        rdmascope_dissector::render::decimal(out, ns / 1_000_000_000);
        self.fraction(out, ns % 1_000_000_000);
    }

    fn fraction(&self, out: &mut Vec<u8>, ns: u64) {
        if self.digits == 0 {
            return;
        }
        let mut digits = [b'0'; 9];
        let mut rest = ns;
        for digit in digits.iter_mut().rev() {
            *digit += (rest % 10) as u8;
            rest /= 10;
        }
        out.push(b'.');
        out.extend_from_slice(&digits[..self.digits]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rdmascope_dissector::frame::Addr;

    fn shown(times: &mut Times, time_ns: i64) -> String {
        let d = Dissected {
            number: 2,
            relative_ns: 683_533_999,
            delta_ns: -1_500_000_000,
            time_ns,
            wire_len: 60,
            cap_len: 60,
            src: Addr::None,
            dst: Addr::None,
            other: "",
        };
        let mut out = Vec::new();
        times.write(&mut out, &d);
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn times_are_written_as_tshark_writes_them() {
        let at = 1_795_247_758_161_836_500;
        for (key, expected) in [
            ("r", "0.683533"),
            ("r.9", "0.683533999"),
            ("r.0", "0"),
            ("d", "-1.500000"),
            ("dd", "0.000000"),
            ("e", "1795247758.161836"),
            ("u", "07:55:58.161836"),
            ("ud", "2026-11-21 07:55:58.161836Z"),
            ("udoy.3", "2026/325 07:55:58.161Z"),
        ] {
            assert_eq!(shown(&mut Times::parse(key).unwrap(), at), expected, "{key}");
        }
        let mut displayed = Times::parse("dd").unwrap();
        shown(&mut displayed, at);
        assert_eq!(shown(&mut displayed, at + 2_000_000_000), "2.000000");
        assert!(Times::parse("x").is_none() && Times::parse("r.10").is_none());
        assert!(!shown(&mut Times::parse("ad").unwrap(), i64::MIN).is_empty());
    }
}
