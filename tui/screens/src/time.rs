//! Times and sizes as people read them.

use rdmascope_dissector::calendar::DateTime;

/// Format of the time of a frame.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Format {
    /// Seconds since the first frame.
    #[default]
    Relative,
    /// Seconds since the row above.
    Delta,
    /// Time of day, UTC.
    Clock,
    /// Date and time, UTC.
    Date,
}

impl Format {
    pub(crate) const fn next(self) -> Self {
        match self {
            Self::Relative => Self::Delta,
            Self::Delta => Self::Clock,
            Self::Clock => Self::Date,
            Self::Date => Self::Relative,
        }
    }

    pub(crate) const fn word(self) -> &'static str {
        match self {
            Self::Relative => "seconds since the first frame",
            Self::Delta => "seconds since the row above",
            Self::Clock => "time of day, UTC",
            Self::Date => "date and time, UTC",
        }
    }

    /// Columns that a time takes.
    pub(crate) const fn width(self) -> u16 {
        match self {
            Self::Relative | Self::Delta => 11,
            Self::Clock => 15,
            Self::Date => 26,
        }
    }

    /// `first` is the time of the first frame, `previous` that of the row above; all in ns since the Unix epoch.
    pub(crate) fn show(self, time: i64, first: i64, previous: i64) -> String {
        match self {
            Self::Relative => seconds(time.saturating_sub(first)),
            Self::Delta => seconds(time.saturating_sub(previous)),
            Self::Clock => {
                let t = DateTime::of_unix_seconds(time.div_euclid(1_000_000_000));
                format!("{:02}:{:02}:{:02}.{:06}", t.hour, t.minute, t.second, time.rem_euclid(1_000_000_000) / 1000)
            }
            Self::Date => {
                let t = DateTime::of_unix_seconds(time.div_euclid(1_000_000_000));
                format!("{:04}-{:02}-{:02} {}", t.year, t.month, t.day, Self::Clock.show(time, first, previous))
            }
        }
    }
}

/// ns as seconds with six decimals.
pub(crate) fn seconds(ns: i64) -> String {
    let sign = if ns < 0 { "-" } else { "" };
    let micros = ns.unsigned_abs() / 1000;
    format!("{sign}{}.{:06}", micros / 1_000_000, micros % 1_000_000)
}

/// ns with a unit that fits, `1,234,567`, `16.8 kB`.
pub(crate) use rdmascope_report::report::words::{duration as span, grouped, size as bytes};

/// Eight heights of a bar, for values in `width` columns; the greatest is full.
pub(crate) fn sparkline(values: &[u64], width: usize) -> String {
    const BARS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
    if values.is_empty() || width == 0 {
        return String::new();
    }
    let width = width.min(values.len());
    let columns: Vec<u64> = (0..width)
        .map(|i| {
            values[i * values.len() / width..((i + 1) * values.len() / width).max(i * values.len() / width + 1)]
                .iter()
                .sum()
        })
        .collect();
    let most = columns.iter().copied().max().unwrap_or(0).max(1);
    // small values are still visible
    columns
        .iter()
        .map(|v| if *v == 0 { ' ' } else { BARS[((*v as u128 * 8).div_ceil(most as u128) as usize).clamp(1, 8) - 1] })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_read_well() {
        assert_eq!(sparkline(&[0, 1, 4, 8], 4), " ▁▄█");
        assert_eq!(sparkline(&[1, 1, 2, 2], 2), "▄█");
    }

    #[test]
    fn times_in_all_formats() {
        let t = 1_763_711_768_500_000_000;
        assert_eq!(Format::Relative.show(t, t - 1_500_000_000, 0), "1.500000");
        assert_eq!(Format::Delta.show(t, 0, t + 1000), "-0.000001");
        assert_eq!(Format::Date.show(t, 0, 0), "2025-11-21 07:56:08.500000");
        for format in [Format::Clock, Format::Date] {
            assert_eq!(format.show(t, 0, 0).len(), usize::from(format.width()));
        }
    }
}
