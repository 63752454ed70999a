//! Times and sizes as people read them.

/// How the time of a frame is shown.
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

    /// `first` is the time of the first frame, `previous` that of the row above; all in ns since the Unix epoch.
    pub(crate) fn show(self, time: i64, first: i64, previous: i64) -> String {
        match self {
            Self::Relative => seconds(time.saturating_sub(first)),
            Self::Delta => seconds(time.saturating_sub(previous)),
            Self::Clock => {
                let day = time.div_euclid(1_000_000_000).rem_euclid(86_400);
                let micros = time.rem_euclid(1_000_000_000) / 1000;
                format!("{:02}:{:02}:{:02}.{micros:06}", day / 3600, day / 60 % 60, day % 60)
            }
            Self::Date => {
                let (year, month, day) = civil(time.div_euclid(86_400_000_000_000));
                format!("{year:04}-{month:02}-{day:02} {}", Self::Clock.show(time, first, previous))
            }
        }
    }
}

/// Year, month and day of days since 1970-01-01.
fn civil(days: i64) -> (i64, i64, i64) {
    let z = days + 719_468;
    let (era, day) = (z.div_euclid(146_097), z.rem_euclid(146_097));
    let year = (day - day / 1_460 + day / 36_524 - day / 146_096) / 365;
    let in_year = day - (365 * year + year / 4 - year / 100);
    let shifted = (5 * in_year + 2) / 153;
    let month = if shifted < 10 { shifted + 3 } else { shifted - 9 };
    (year + era * 400 + i64::from(month <= 2), month, in_year - (153 * shifted + 2) / 5 + 1)
}

/// ns as seconds with six decimals.
pub(crate) fn seconds(ns: i64) -> String {
    let sign = if ns < 0 { "-" } else { "" };
    let micros = ns.unsigned_abs() / 1000;
    format!("{sign}{}.{:06}", micros / 1_000_000, micros % 1_000_000)
}

/// ns with a unit that fits: `0.41 ms`.
pub(crate) fn span(ns: i64) -> String {
    let sign = if ns < 0 { "-" } else { "" };
    let n = ns.unsigned_abs() as f64;
    let (value, unit) = match ns.unsigned_abs() {
        0..1_000 => (n, "ns"),
        1_000..1_000_000 => (n / 1e3, "µs"),
        1_000_000..1_000_000_000 => (n / 1e6, "ms"),
        _ => (n / 1e9, "s"),
    };
    let decimals = if unit == "ns" || value >= 100.0 {
        0
    } else if value >= 10.0 {
        1
    } else {
        2
    };
    format!("{sign}{value:.decimals$} {unit}")
}

/// `1,234,567`
pub(crate) use rdmascope_report::report::words::grouped;

/// `16.8 kB`
pub(crate) fn bytes(n: u64) -> String {
    match n {
        0..10_000 => format!("{} B", grouped(n)),
        10_000..1_000_000 => format!("{:.1} kB", n as f64 / 1e3),
        1_000_000..1_000_000_000 => format!("{:.1} MB", n as f64 / 1e6),
        _ => format!("{:.1} GB", n as f64 / 1e9),
    }
}

/// Eight heights of a bar, for values in `width` columns; the greatest is full.
pub(crate) fn sparkline(values: &[u64], width: usize) -> String {
    const BARS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
    if values.is_empty() || width == 0 {
        return String::new();
    }
    let width = width.min(values.len());
    let columns: Vec<u64> = (0..width)
        .map(|i| values[i * values.len() / width..((i + 1) * values.len() / width).max(i * values.len() / width + 1)].iter().sum())
        .collect();
    let most = columns.iter().copied().max().unwrap_or(0).max(1);
    // what is little is still something
    columns.iter().map(|v| if *v == 0 { ' ' } else { BARS[((*v as u128 * 8).div_ceil(most as u128) as usize).clamp(1, 8) - 1] }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_read_well() {
        assert_eq!(span(412_000), "412 µs");
        assert_eq!(
            (span(12), span(22_100_000_000), grouped(1_234_567), bytes(16_800)),
            ("12 ns".into(), "22.1 s".into(), "1,234,567".into(), "16.8 kB".into())
        );
        assert_eq!(sparkline(&[0, 1, 4, 8], 4), " ▁▄█");
        assert_eq!(sparkline(&[1, 1, 2, 2], 2), "▄█");
    }

    #[test]
    fn times_in_all_formats() {
        let t = 1_763_711_768_500_000_000;
        assert_eq!(Format::Relative.show(t, t - 1_500_000_000, 0), "1.500000");
        assert_eq!(Format::Delta.show(t, 0, t + 1000), "-0.000001");
        assert_eq!(Format::Date.show(t, 0, 0), "2025-11-21 07:56:08.500000");
    }
}
