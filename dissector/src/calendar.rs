//! The Gregorian calendar, for every time that a capture can hold: NFS counts seconds in 64 bits, which no calendar of
//! ±9,999 years covers.

/// A day, and the time of day in whole seconds; UTC.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DateTime {
    /// Year; 0 is 1 BC.
    pub year: i64,
    /// 1 to 12.
    pub month: u32,
    /// 1 to 31.
    pub day: u32,
    /// 0 to 23.
    pub hour: u32,
    /// 0 to 59.
    pub minute: u32,
    /// 0 to 59: leap seconds are not counted.
    pub second: u32,
}

impl DateTime {
    /// The date and time of `seconds` since 1970-01-01 00:00 UTC.
    pub const fn of_unix_seconds(seconds: i64) -> Self {
        let (year, month, day) = date_of(seconds.div_euclid(86_400));
        let of_day = seconds.rem_euclid(86_400) as u32;
        Self { year, month, day, hour: of_day / 3600, minute: of_day / 60 % 60, second: of_day % 60 }
    }
}

/// Days since 1970-01-01 as year, month and day.
pub const fn date_of(days: i64) -> (i64, u32, u32) {
    // counted in eras of 400 years that begin on 1 March, so that the leap day is the last of its year
    let z = days.saturating_add(719_468);
    let (era, day) = (z.div_euclid(146_097), z.rem_euclid(146_097));
    let year = (day - day / 1_460 + day / 36_524 - day / 146_096) / 365;
    let in_year = day - (365 * year + year / 4 - year / 100);
    let shifted = (5 * in_year + 2) / 153;
    let day = in_year - (153 * shifted + 2) / 5 + 1;
    let month = if shifted < 10 { shifted + 3 } else { shifted - 9 };
    (year + era * 400 + (month <= 2) as i64, month as u32, day as u32)
}

/// Days since 1970-01-01 of a date, `None` where they do not fit: the inverse of [`date_of`].
pub fn days_of(year: i64, month: u32, day: u32) -> Option<i64> {
    let year = year.checked_sub(i64::from(month <= 2))?;
    let (era, in_era) = (year.div_euclid(400), year.rem_euclid(400));
    let shifted = i64::from(if month > 2 { month - 3 } else { month + 9 });
    let in_year = (153 * shifted + 2) / 5 + i64::from(day) - 1;
    era.checked_mul(146_097)?.checked_add(in_era * 365 + in_era / 4 - in_era / 100 + in_year - 719_468)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_go_both_ways() {
        for days in (-800_000..800_000).step_by(97) {
            let (y, m, d) = date_of(days);
            assert_eq!(days_of(y, m, d), Some(days));
        }
        assert_eq!(date_of(0), (1970, 1, 1));
        assert_eq!(date_of(11_016), (2000, 2, 29));
        assert_eq!(days_of(i64::MAX, 3, 1), None);
    }

    #[test]
    fn every_second_has_a_date() {
        let shown = DateTime::of_unix_seconds(1_763_711_768);
        assert_eq!(shown, DateTime { year: 2025, month: 11, day: 21, hour: 7, minute: 56, second: 8 });
        assert_eq!(DateTime::of_unix_seconds(-1).year, 1969);
        for seconds in [i64::MIN, i64::MAX] {
            let t = DateTime::of_unix_seconds(seconds);
            assert!((1..=12).contains(&t.month) && (1..=31).contains(&t.day) && t.hour < 24);
        }
    }
}
